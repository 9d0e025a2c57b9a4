#include "recovery.h"
#include "belonging.h"
#include "definitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "mysqld.h"
#include "partitions.h"
#include "renames.h"
#include "role.h"

#include <set>
#include <shared_mutex>

/* What the server drops partitioned tables with; NULL before the plugin has its own there. */
static int (*drop_of_server)(handlerton *, const char *) = nullptr;
/* Shared by drops that use the database. */
static std::shared_mutex in_drop;
static bool recovers = false;

bool is_recovering() { return recovers; }

/* A drop of a partitioned table, whose list goes first. The server's recovery finds none. */
static int drop_partitioned(handlerton *hton, const char *path)
{
  {
    std::shared_lock<std::shared_mutex> guard(in_drop);
    // The engine of partitions has no text for it.
    if (int error = tell(refuse_astray(name_of(path))))
      return error;
    const std::vector<Bytes> names = partitions_of(name_of(path));
    // The server's drop removes the list before it asks for any.
    if (!names.empty())
      if (int error = refuse_change())
        return error;
    for (const Bytes &name : names)
      if (int error = wait_for_drop(current_thd, name))
        return error;
    // The server's drop removes the list, then one partition after another.
    if (!recovers && !names.empty() && !has_definition(name_of(path)))
      if (int error = begin_drop(current_thd, name_of(path)))
        return error;
  }
  if (!recovers)
    return drop_of_server(hton, path);
  // It goes by the list, which may be that of a lost table.
  if (keeps_lost(name_of(path)))
    return HA_ERR_NO_SUCH_TABLE;
  const int error = drop_of_server(hton, path);
  // The list is gone. One that a power cut brings back would stay.
  if (my_sync_dir_by_file(path, MYF(MY_WME)))
    return HA_ERR_INTERNAL_ERROR;
  if (error && !non_existing_table_error(error))
    return error;
  const std::vector<Bytes> names = partitions_of(name_of(path));
  return names.empty() ? error : drop_each(names);
}

/* The server may start its plugin of partitions behind this one, and before it recovers. */
static void wrap_drop()
{
  if (!partition_hton || partition_hton->drop_table == drop_partitioned)
    return;
  drop_of_server = partition_hton->drop_table;
  partition_hton->drop_table = drop_partitioned;
}

/* Says which tables and partitions the server does not have any more. */
static void warn_of_tables_without_definitions()
{
  std::set<Bytes> missing;
  for (const Bytes &name : library_tables())
  {
    const Bytes table = table_of_partition(name);
    if (is_own_table(name) || is_temporary(name))
      continue;
    if (!has_definition(table))
      missing.insert(table);
    else if (name != table && !has_definition(name) && !is_listed(name, true))
      sql_print_warning("Terrace: table %s has no such partition, and its data is here. Look at it "
                        "before you remove it: DROP TABLE `#mysql50#%s`",
                        name.c_str(), name.substr(name.find('/') + 1).c_str());
  }
  for (const Bytes &name : missing)
    sql_print_warning("Terrace: there is no definition %s.frm of a table that has data here. "
                      "Restore the file, and the list %s.par if it has partitions. Only if no "
                      "other table lacks this data: DROP TABLE removes it",
                      name.c_str(), name.c_str());
}

static int recovery_done(handlerton *)
{
  recovers = false;
  if (only_reads())
    return 0;
  settle_renames(false);
  leave_unpublished(settle_definitions());
  warn_of_tables_without_definitions();
  return 0;
}

void prepare_recovery(handlerton *hton)
{
  if (!only_reads())
    settle_renames(true);
  hton->create_partitioning_metadata = list_changed;
  hton->signal_ddl_recovery_done = recovery_done;
  wrap_drop();
}

void recovery_begins()
{
  recovers = true;
  wrap_drop();
}

void give_drop_back()
{
  // A server that shuts down may have freed its handlerton of partitions by now.
  if (!drop_of_server || abort_loop)
    return;
  partition_hton->drop_table = drop_of_server;
  // A drop that has begun looks at the database.
  std::unique_lock<std::shared_mutex> guard(in_drop);
}
