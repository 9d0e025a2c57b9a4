#include "partitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "mysqld.h"
#include "renames.h"

#include <set>
#include <vector>

/* Between the name of a table and the one of its partition. */
static const char SEPARATOR[] = "#P#";

/* The library's table of what recoveries have dropped by name. */
static const char DROPS[] = "#terrace/drops";

/* What the server drops partitioned tables with, while it recovers. NULL before and after that. */
static int (*drop_of_server)(handlerton *, const char *) = nullptr;

static Bytes list_of(const Bytes &table) { return "./" + table + ".par"; }

Bytes table_of_partition(const Bytes &name) { return name.substr(0, name.find(SEPARATOR)); }

bool is_recovering() { return drop_of_server != nullptr; }

static bool has_list(const Bytes &table) { return access(list_of(table).c_str(), F_OK) == 0; }

static std::vector<Bytes> partitions_of(const Bytes &table)
{
  const Bytes begin = table + SEPARATOR;
  std::vector<Bytes> found;
  for (const Bytes &name : library_tables())
    if (!name.compare(0, begin.size(), begin))
      found.push_back(name);
  return found;
}

static int drop_all(const std::vector<Bytes> &names)
{
  for (const Bytes &name : names)
    if (int error = drop_library_table(name))
      return error;
  return 0;
}

/* What recoveries have dropped by a name that no table has, until their definitions are settled. */
static int note_drop(const Bytes &table)
{
  Failure failure;
  terrace_table *drops = terrace_database_table(terrace_db, DROPS, failure.out());
  const bool failed = !drops || terrace_table_put(drops, table.data(), table.size(), "", 0,
                                                  TERRACE_RELAXED, failure.out()) != TERRACE_OK;
  terrace_table_free(drops);
  return failed ? failure.handler_error(current_thd) : HA_ERR_NO_SUCH_TABLE;
}

int drop_partitions_of(const Bytes &table)
{
  // A recovery may end an ALTER TABLE that has put a partitioned table in the place of this one.
  if (is_recovering())
    return note_drop(table);
  const std::vector<Bytes> names = partitions_of(table);
  if (names.empty() || has_definition(table))
    return HA_ERR_NO_SUCH_TABLE;
  return drop_all(names);
}

/* Drops what was noted and has no definition any more, and the list, which the server leaves. */
static void end_drops()
{
  Failure failure;
  terrace_table *drops = terrace_database_existing_table(terrace_db, DROPS, failure.out());
  if (!drops)
    return;
  terrace_cursor *cursor = terrace_table_cursor(drops, nullptr, failure.out());
  terrace_row row;
  while (cursor && terrace_cursor_next(cursor, &row, failure.out()) == TERRACE_OK)
  {
    const Bytes table(row.key, row.key_len);
    if (!has_definition(table))
    {
      // What cannot be dropped is named as a table without a definition.
      drop_all(partitions_of(table));
      unlink(list_of(table).c_str());
    }
    terrace_table_delete(drops, table.data(), table.size(), TERRACE_RELAXED, failure.out());
  }
  terrace_cursor_free(cursor);
  terrace_table_free(drops);
}

/* Has a list survive a power cut: the server writes it without a sync. */
static int sync_list(const Bytes &table)
{
  const Bytes list = list_of(table);
  const int file = my_open(list.c_str(), O_RDONLY, MYF(MY_WME));
  if (file < 0)
    return 1;
  const int failed = my_sync(file, MYF(MY_WME));
  my_close(file, MYF(0));
  return failed || my_sync_dir_by_file(list.c_str(), MYF(MY_WME));
}

/* The server calls it when it has written a list, before it creates partitions. */
static int list_changed(const char *path, const char *, chf_create_flags change)
{
  return change == CHF_CREATE_FLAG ? sync_list(name_of(path)) : 0;
}

int rename_partitions_of(const Bytes &from, const Bytes &to)
{
  int error = HA_ERR_NO_SUCH_TABLE;
  if (!is_recovering())
    return error;
  for (const Bytes &name : partitions_of(from))
    if ((error = rename_library_table(name, to + name.substr(from.size()))))
      return error;
  if (!error && rename(list_of(from).c_str(), list_of(to).c_str()))
    error = errno;
  return error;
}

terrace_status move_table(const Bytes &from, const Bytes &to, Failure *failure)
{
  std::vector<Bytes> names = partitions_of(from);
  names.push_back(from);
  for (const Bytes &name : names)
  {
    const Bytes wanted = to + name.substr(from.size());
    if (library_has(name) && !library_has(wanted) &&
        terrace_database_rename_table(terrace_db, name.c_str(), wanted.c_str(), failure->out()) !=
          TERRACE_OK)
      return failure->status();
  }
  if (has_list(from) && !has_list(to) && rename(list_of(from).c_str(), list_of(to).c_str()))
    sql_print_error("Terrace: cannot rename %s to %s: %s", list_of(from).c_str(),
                    list_of(to).c_str(), strerror(errno));
  return TERRACE_OK;
}

/* A drop of a partitioned table by the server's recovery. */
static int drop_partitioned(handlerton *hton, const char *path)
{
  const int error = drop_of_server(hton, path);
  if (error && !non_existing_table_error(error))
    return error;
  const std::vector<Bytes> names = partitions_of(name_of(path));
  return names.empty() ? error : drop_all(names);
}

/* Says which tables the server does not have any more. */
static void warn_of_tables_without_definitions()
{
  std::set<Bytes> missing;
  for (const Bytes &name : library_tables())
    if (name[0] != '#' && !has_definition(table_of_partition(name)))
      missing.insert(table_of_partition(name));
  for (const Bytes &name : missing)
    sql_print_warning("Terrace: there is no definition %s.frm of a table that has data here. "
                      "Restore the file, or remove the data with DROP TABLE", name.c_str());
}

static int recovery_done(handlerton *)
{
  if (drop_of_server)
    partition_hton->drop_table = drop_of_server;
  drop_of_server = nullptr;
  forget_renames();
  end_drops();
  warn_of_tables_without_definitions();
  return 0;
}

void prepare_recovery(handlerton *hton)
{
  settle_renames();
  hton->create_partitioning_metadata = list_changed;
  hton->signal_ddl_recovery_done = recovery_done;
}

void recovery_begins()
{
  if (drop_of_server || !partition_hton)
    return;
  drop_of_server = partition_hton->drop_table;
  partition_hton->drop_table = drop_partitioned;
}
