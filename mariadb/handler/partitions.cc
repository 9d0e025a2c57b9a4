#include "partitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "mysqld.h"

#include <set>
#include <vector>

/* Between the name of a table and the one of its partition. */
static const char SEPARATOR[] = "#P#";

/* The library's table of renames under way. Under the new name of a table it has the old one. */
static const char RENAMES[] = "#terrace/renames";

/* What the server drops partitioned tables with, while it recovers. NULL before and after that. */
static int (*drop_of_server)(handlerton *, const char *) = nullptr;

static Bytes list_of(const Bytes &table) { return "./" + table + ".par"; }

static Bytes table_of(const Bytes &name) { return name.substr(0, name.find(SEPARATOR)); }

static bool has_list(const Bytes &table) { return access(list_of(table).c_str(), F_OK) == 0; }

static bool has_definition(const Bytes &table)
{
  return access(("./" + table + ".frm").c_str(), F_OK) == 0;
}

static std::vector<Bytes> all_names()
{
  Failure failure;
  std::vector<Bytes> all;
  terrace_strings *names = terrace_database_table_names(terrace_db, failure.out());
  for (size_t i = 0; i < terrace_strings_len(names); i++)
    all.push_back(terrace_strings_at(names, i));
  terrace_strings_free(names);
  return all;
}

static std::vector<Bytes> partitions_of(const Bytes &table)
{
  const Bytes begin = table + SEPARATOR;
  std::vector<Bytes> found;
  for (const Bytes &name : all_names())
    if (!name.compare(0, begin.size(), begin))
      found.push_back(name);
  return found;
}

int drop_partitions_of(const Bytes &table)
{
  int error = HA_ERR_NO_SUCH_TABLE;
  for (const Bytes &name : partitions_of(table))
    if ((error = drop_library_table(name)))
      return error;
  // Its recovery drops a table by the name of its engine where it has created no more than that.
  if (drop_of_server)
    unlink(list_of(table).c_str());
  return error;
}

terrace_status note_rename(const Bytes &from, const Bytes &to, Failure *failure)
{
  const Bytes old_table = table_of(from), new_table = table_of(to);
  if (old_table == from || new_table == to || old_table == new_table)
    return TERRACE_OK;
  terrace_table *renames = terrace_database_table(terrace_db, RENAMES, failure->out());
  if (!renames)
    return failure->status();
  // The rename comes behind it in the order of commits, so it need not be durable by itself.
  const terrace_status status =
    terrace_table_put(renames, new_table.data(), new_table.size(), old_table.data(),
                      old_table.size(), TERRACE_RELAXED, failure->out());
  terrace_table_free(renames);
  return status;
}

static void note_end_of_rename(const Bytes &to)
{
  Failure failure;
  terrace_table *renames = terrace_database_existing_table(terrace_db, RENAMES, failure.out());
  if (renames && terrace_table_delete(renames, to.data(), to.size(), TERRACE_RELAXED,
                                      failure.out()) != TERRACE_OK)
    sql_print_warning("Terrace: cannot note that table %s is renamed: %s", to.c_str(),
                      failure.message());
  terrace_table_free(renames);
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

/*
  The server calls it when it has written a list, before it creates partitions, and when it has
  renamed one, after all partitions.
*/
static int list_changed(const char *path, const char *old_path, chf_create_flags change)
{
  if (change == CHF_CREATE_FLAG)
    return sync_list(name_of(path));
  if (change != CHF_RENAME_FLAG)
    return 0;
  const int failed = my_sync_dir_by_file(list_of(name_of(old_path)).c_str(), MYF(MY_WME)) ||
                     my_sync_dir_by_file(list_of(name_of(path)).c_str(), MYF(MY_WME));
  note_end_of_rename(name_of(path));
  return failed;
}

int rename_partitions_of(const Bytes &from, const Bytes &to)
{
  int error = HA_ERR_NO_SUCH_TABLE;
  if (!drop_of_server)
    return error;
  for (const Bytes &name : partitions_of(from))
    if ((error = rename_library_table(name, to + name.substr(from.size()))))
      return error;
  if (!error && rename(list_of(from).c_str(), list_of(to).c_str()))
    error = errno;
  if (!error)
    note_end_of_rename(to);
  return error;
}

/* Renames partitions that lie under the one of two names that has no list. */
static bool end_rename(Bytes from, Bytes to)
{
  if (has_list(from) == has_list(to))
    return true;
  if (has_list(from))
    from.swap(to);
  for (const Bytes &name : partitions_of(from))
  {
    Failure failure;
    const Bytes wanted = to + name.substr(from.size());
    if (terrace_database_rename_table(terrace_db, name.c_str(), wanted.c_str(), failure.out()) !=
        TERRACE_OK)
    {
      sql_print_error("Terrace: cannot rename partition %s to %s, whose rename a crash has cut "
                      "short: %s", name.c_str(), wanted.c_str(), failure.message());
      return false;
    }
  }
  return true;
}

/* Ends all renames that were under way. Those that fail are tried again by the next start. */
static void end_renames()
{
  Failure failure;
  terrace_table *renames = terrace_database_existing_table(terrace_db, RENAMES, failure.out());
  // No partitioned table was ever renamed.
  if (!renames)
    return;
  terrace_cursor *cursor = terrace_table_cursor(renames, nullptr, failure.out());
  terrace_row row;
  while (cursor && terrace_cursor_next(cursor, &row, failure.out()) == TERRACE_OK)
  {
    const Bytes to(row.key, row.key_len), from(row.value, row.value_len);
    if (end_rename(from, to))
      terrace_table_delete(renames, to.data(), to.size(), TERRACE_RELAXED, failure.out());
  }
  terrace_cursor_free(cursor);
  terrace_table_free(renames);
}

/* A drop of a partitioned table by the server's recovery. */
static int drop_partitioned(handlerton *hton, const char *path)
{
  const int error = drop_of_server(hton, path);
  if (error && !non_existing_table_error(error))
    return error;
  const int own_error = drop_partitions_of(name_of(path));
  return own_error == HA_ERR_NO_SUCH_TABLE ? error : own_error;
}

/* Says which tables the server does not have any more. */
static void warn_of_tables_without_definitions()
{
  std::set<Bytes> missing;
  for (const Bytes &name : all_names())
    if (name[0] != '#' && !has_definition(table_of(name)))
      missing.insert(table_of(name));
  for (const Bytes &name : missing)
    sql_print_warning("Terrace: there is no definition %s.frm of a table that has data here. "
                      "Restore the file, or remove the data with DROP TABLE", name.c_str());
}

static int recovery_done(handlerton *)
{
  if (drop_of_server)
    partition_hton->drop_table = drop_of_server;
  drop_of_server = nullptr;
  warn_of_tables_without_definitions();
  return 0;
}

void follow_partitions(handlerton *hton)
{
  end_renames();
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
