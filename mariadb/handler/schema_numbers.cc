/*
  Tables of INFORMATION_SCHEMA that show the library's metrics, TERRACE_STATISTICS, and parts of its
  statistics: TERRACE_LEVELS, TERRACE_REGION, TERRACE_COMPACTIONS, TERRACE_MEMORY and TERRACE_NODES.
*/
#include "follower.h"
#include "numbers.h"
#include "role.h"
#include "status.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"

namespace Show
{
static ST_FIELD_INFO columns_of_levels[] = {Column("TABLE_NAME", Varchar(512), NOT_NULL),
                                            Column("LEVEL", ULonglong(), NOT_NULL),
                                            Column("SUBLEVELS", ULonglong(), NOT_NULL),
                                            Column("EXTENTS", ULonglong(), NOT_NULL),
                                            Column("RECORDS", ULonglong(), NOT_NULL),
                                            Column("DELETES", ULonglong(), NOT_NULL),
                                            Column("RANGE_DELETES", ULonglong(), NOT_NULL),
                                            Column("BYTES", ULonglong(), NOT_NULL),
                                            Column("ANSWERED", ULonglong(), NOT_NULL),
                                            CEnd()};

static ST_FIELD_INFO columns_of_values[] = {Column("NAME", Varchar(64), NOT_NULL),
                                            Column("VALUE", Varchar(512), NOT_NULL), CEnd()};

static ST_FIELD_INFO columns_of_statistics[] = {Column("NAME", Varchar(64), NOT_NULL),
                                                Column("VALUE", Double(22), NOT_NULL),
                                                CEnd()};

static ST_FIELD_INFO columns_of_nodes[] = {Column("ROLE", Varchar(16), NOT_NULL),
                                           Column("STORE", Varchar(512), NOT_NULL),
                                           Column("CLAIM", ULonglong(), NULLABLE),
                                           Column("LSN", ULonglong(), NULLABLE),
                                           Column("LAG_MS", ULonglong(), NULLABLE),
                                           Column("LAG_BYTES", ULonglong(), NULLABLE),
                                           Column("LAST_ERROR", Varchar(1024), NULLABLE),
                                           CEnd()};
} // namespace Show

/* The names of the columns behind the table's, as the library has them. */
static const char *const OF_LEVEL[] = {"level",         "sublevels", "extents", "records", "deletes",
                                       "range_deletes", "bytes",     "answered"};

static bool may_see(THD *thd) { return !check_global_access(thd, PROCESS_ACL, true); }

static void store_text(Field *field, const Bytes &text)
{
  field->store(text.data(), text.size(), system_charset_info);
}

static int fill_levels(THD *thd, TABLE_LIST *tables, Item *)
{
  if (!may_see(thd))
    return 0;
  TABLE *to = tables->table;
  const Bytes last = OF_LEVEL[array_elements(OF_LEVEL) - 1];
  for (const Number &number : all_numbers())
  {
    const char *of_table = behind(number, "tables/");
    const char *part = of_table ? strchr(of_table, '/') : nullptr;
    if (!part)
      continue;
    if (Bytes(part) == "/name")
      store_text(to->field[0], number.value);
    if (strncmp(part, "/levels/", 8))
      continue;
    const Bytes name = strrchr(part, '/') + 1;
    for (uint column = 0; column < array_elements(OF_LEVEL); column++)
      if (name == OF_LEVEL[column])
        to->field[column + 1]->store(longlong(strtoull(number.value.c_str(), nullptr, 10)), true);
    if (name == last)
      if (int error = schema_table_store_record(thd, to))
        return error;
  }
  return 0;
}

static int put_value(THD *thd, TABLE *to, const Bytes &name, const Bytes &value)
{
  store_text(to->field[0], name);
  store_text(to->field[1], value);
  return schema_table_store_record(thd, to);
}

static int fill_statistics(THD *thd, TABLE_LIST *tables, Item *)
{
  if (!may_see(thd))
    return 0;
  TABLE *to = tables->table;
  for (auto &one : all_metrics())
  {
    store_text(to->field[0], one.first);
    to->field[1]->store(one.second);
    if (int error = schema_table_store_record(thd, to))
      return error;
  }
  return 0;
}

/* Rows of all statistics whose place begins so. */
static int fill_values(THD *thd, TABLE *to, const char *beginning)
{
  if (!may_see(thd))
    return 0;
  for (const Number &number : all_numbers())
  {
    const char *name = behind(number, beginning);
    const int error = name ? put_value(thd, to, name, number.value) : 0;
    if (error)
      return error;
  }
  return 0;
}

static int fill_region(THD *thd, TABLE_LIST *tables, Item *)
{
  const int error = fill_values(thd, tables->table, "pm/");
  return error ? error : fill_values(thd, tables->table, "pace/");
}

static int fill_compactions(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill_values(thd, tables->table, "background/");
}

static int fill_memory(THD *thd, TABLE_LIST *tables, Item *)
{
  return fill_values(thd, tables->table, "memory/");
}

/* This server alone. A server that only reads ships nothing, so it has no claim and no lag. */
static int fill_nodes(THD *thd, TABLE_LIST *tables, Item *)
{
  if (!may_see(thd) || !has_role())
    return 0;
  TABLE *to = tables->table;
  restore_record(to, s->default_values);
  store_text(to->field[0], role_name());
  store_text(to->field[1], role_store());
  static const char *const places[] = {"share/claim", "commit/visible", "share/lag_ms",
                                       "share/lag_bytes"};
  Bytes last_error = follows() ? follower_note() : role_error();
  for (const Number &number : all_numbers())
  {
    for (uint column = 0; column < array_elements(places); column++)
      if (number.place == places[column] && (column == 1 || !only_reads()))
      {
        to->field[2 + column]->set_notnull();
        to->field[2 + column]->store(longlong(strtoull(number.value.c_str(), nullptr, 10)), true);
      }
    if (last_error.empty() && number.place == "share/note")
      last_error = number.value;
  }
  if (follows())
  {
    const Follower_state state = follower_state();
    to->field[3]->store(longlong(state.commit), true);
    if (state.lag_ms != UINT64_MAX)
    {
      to->field[4]->set_notnull();
      to->field[4]->store(longlong(state.lag_ms), true);
    }
  }
  if (!last_error.empty())
  {
    to->field[6]->set_notnull();
    store_text(to->field[6], last_error);
  }
  return schema_table_store_record(thd, to);
}

static int begin(void *schema, ST_FIELD_INFO *columns, int (*fill)(THD *, TABLE_LIST *, Item *))
{
  static_cast<ST_SCHEMA_TABLE *>(schema)->fields_info = columns;
  static_cast<ST_SCHEMA_TABLE *>(schema)->fill_table = fill;
  return 0;
}

int start_statistics_table(void *schema)
{
  return begin(schema, Show::columns_of_statistics, fill_statistics);
}

int start_levels_table(void *schema) { return begin(schema, Show::columns_of_levels, fill_levels); }
int start_region_table(void *schema) { return begin(schema, Show::columns_of_values, fill_region); }

int start_compactions_table(void *schema)
{
  return begin(schema, Show::columns_of_values, fill_compactions);
}

int start_memory_table(void *schema) { return begin(schema, Show::columns_of_values, fill_memory); }
int start_nodes_table(void *schema) { return begin(schema, Show::columns_of_nodes, fill_nodes); }
