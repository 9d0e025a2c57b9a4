/*
  Tables of INFORMATION_SCHEMA: TERRACE_TABLES and TERRACE_TRANSACTIONS.

  They show what other users do, so they are empty without the PROCESS privilege.
*/
#include "engine.h"
#include "errors.h"
#include "ha_terrace.h"
#include "status.h"
#include "waits.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"

namespace Show
{
static ST_FIELD_INFO columns_of_tables[] = {Column("TABLE_NAME", Varchar(512), NOT_NULL),
                                            Column("PM_RECORDS", ULonglong(), NOT_NULL),
                                            Column("PM_BYTES", ULonglong(), NOT_NULL),
                                            Column("DISK_RECORDS", ULonglong(), NOT_NULL),
                                            Column("DISK_BYTES", ULonglong(), NOT_NULL),
                                            Column("TTL_MS", ULonglong(), NOT_NULL),
                                            CEnd()};

static ST_FIELD_INFO columns_of_transactions[] = {Column("TRANSACTION_ID", ULonglong(), NOT_NULL),
                                                  Column("AGE_MS", ULonglong(), NOT_NULL),
                                                  Column("LOCKS", ULonglong(), NOT_NULL),
                                                  Column("WRITES", ULonglong(), NOT_NULL),
                                                  Column("MEMORY_BYTES", ULonglong(), NOT_NULL),
                                                  Column("SPILLED_BYTES", ULonglong(), NOT_NULL),
                                                  Column("WAITS_FOR", Varchar(1024), NULLABLE),
                                                  Column("BLOCKER", ULonglong(), NULLABLE),
                                                  Column("CONNECTION_ID", ULonglong(), NULLABLE),
                                                  Column("QUERY", Varchar(1024), NULLABLE),
                                                  CEnd()};
} // namespace Show

static bool may_see(THD *thd) { return !check_global_access(thd, PROCESS_ACL, true); }

static void store_text(Field *field, const char *text)
{
  field->store(text, strlen(text), system_charset_info);
}

static void store_text_or_null(Field *field, const char *text)
{
  text ? field->set_notnull() : field->set_null();
  if (text)
    store_text(field, text);
}

static void store_number_or_null(Field *field, ulonglong number)
{
  number ? field->set_notnull() : field->set_null();
  field->store(longlong(number), true);
}

static int fill_tables(THD *thd, TABLE_LIST *tables, Item *)
{
  if (!database() || !may_see(thd))
    return 0;
  TABLE *to = tables->table;
  Failure failure;
  terrace_strings *names = terrace_database_table_names(database(), failure.out());
  int error = 0;
  for (size_t i = 0; i < terrace_strings_len(names) && !error; i++)
  {
    const char *name = terrace_strings_at(names, i);
    // What the engine keeps for itself is no table of the server.
    if (is_own_table(name))
      continue;
    terrace_table *table = terrace_database_existing_table(database(), name, failure.out());
    terrace_table_statistics of_table;
    // A table may be dropped meanwhile.
    if (table &&
        terrace_table_get_statistics(table, &of_table, failure.out()) == TERRACE_OK)
    {
      store_text(to->field[0], name);
      const ulonglong values[] = {of_table.pm_records, of_table.pm_bytes, of_table.disk_records,
                                  of_table.disk_bytes, of_table.ttl_ms};
      for (uint column = 0; column < array_elements(values); column++)
        to->field[column + 1]->store(longlong(values[column]), true);
      error = schema_table_store_record(thd, to);
    }
    terrace_table_free(table);
  }
  terrace_strings_free(names);
  return error;
}

static int fill_transactions(THD *thd, TABLE_LIST *tables, Item *)
{
  if (!database() || !may_see(thd))
    return 0;
  TABLE *to = tables->table;
  Failure failure;
  terrace_transaction_list *list = terrace_database_list_transactions(database(), failure.out());
  int error = 0;
  for (size_t i = 0; i < terrace_transaction_list_len(list) && !error; i++)
  {
    terrace_transaction_info one;
    if (terrace_transaction_list_at(list, i, &one, failure.out()) != TERRACE_OK)
      break;
    const ulonglong values[] = {one.id, one.age_ms, one.locks, one.writes, one.memory, one.spilled};
    for (uint column = 0; column < array_elements(values); column++)
      to->field[column]->store(longlong(values[column]), true);
    Field **rest = to->field + array_elements(values);
    Owner owner = {0, Bytes(), 0};
    find_owner(one.id, &owner);
    store_text_or_null(rest[0], one.waits_for);
    store_number_or_null(rest[1], one.waits_for ? owner.blocker : 0);
    store_number_or_null(rest[2], owner.connection);
    store_text_or_null(rest[3], owner.query.empty() ? nullptr : owner.query.c_str());
    error = schema_table_store_record(thd, to);
  }
  terrace_transaction_list_free(list);
  return error;
}

int start_tables_table(void *schema)
{
  static_cast<ST_SCHEMA_TABLE *>(schema)->fields_info = Show::columns_of_tables;
  static_cast<ST_SCHEMA_TABLE *>(schema)->fill_table = fill_tables;
  return 0;
}

int start_transactions_table(void *schema)
{
  static_cast<ST_SCHEMA_TABLE *>(schema)->fields_info = Show::columns_of_transactions;
  static_cast<ST_SCHEMA_TABLE *>(schema)->fill_table = fill_transactions;
  return 0;
}

st_mysql_information_schema engine_schema = {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};
