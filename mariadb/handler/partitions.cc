#include "partitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "recovery.h"
#include "renames.h"
#include "settle.h"
#include "yield.h"

/* Between the name of a table and the one of its partition. */
static const char SEPARATOR[] = "#P#";

Bytes list_of(const Bytes &table) { return "./" + table + ".par"; }

Bytes table_of_partition(const Bytes &name) { return name.substr(0, name.find(SEPARATOR)); }

bool has_list(const Bytes &table) { return access(list_of(table).c_str(), F_OK) == 0; }

std::vector<Bytes> partitions_of(const Bytes &table)
{
  const Bytes begin = table + SEPARATOR;
  std::vector<Bytes> found;
  for (const Bytes &name : library_tables())
    if (!name.compare(0, begin.size(), begin))
      found.push_back(name);
  return found;
}

bool has_any(const Bytes &table) { return library_has(table) || !partitions_of(table).empty(); }

bool keeps_lost(const Bytes &table)
{
  return is_recovering() && !is_hidden(table) && table_of_partition(table) == table &&
         !has_definition(table) && has_any(table);
}

int fail_as_taken(const Bytes &table)
{
  YIELD("lost");
  const Bytes why = "there is a table " + table + " already, and its definition is lost";
  return fail_with(why.c_str());
}

/* The names that a connection has locked alone. */
struct Locked
{
  const MDL_context *by;
  std::vector<Bytes> names;
};

static int add_locked(MDL_ticket *ticket, void *all, bool is_granted)
{
  Locked *locked = static_cast<Locked *>(all);
  const MDL_key *key = ticket->get_key();
  if (is_granted && ticket->get_ctx() == locked->by && ticket->get_type() == MDL_EXCLUSIVE &&
      key->mdl_namespace() == MDL_key::TABLE)
    locked->names.push_back(library_name(key->db_name(), key->name()));
  return 0;
}

void refuse_lost_name(THD *thd)
{
  const int command = thd_sql_command(thd);
  const bool alters = command == SQLCOM_ALTER_TABLE;
  const bool makes = command == SQLCOM_CREATE_TABLE || command == SQLCOM_CREATE_SEQUENCE ||
                     (alters && (thd->lex->alter_info.flags & ALTER_RENAME));
  if (!makes || thd->is_error())
    return;
  // The statement itself has the name in several places, or in none: CREATE ... SELECT.
  Locked locked = {&thd->mdl_context, {}};
  mdl_iterate(add_locked, &locked);
  // It is asked for each partition, and to copy all names takes long.
  static thread_local query_id_t seen_in = 0;
  static thread_local Bytes seen;
  for (const Bytes &name : locked.names)
  {
    if (has_definition(name) || (seen_in == thd->query_id && seen == name))
      continue;
    // A CREATE TABLE without partitions finds those of a lost table by its list alone: to copy all
    // names takes long.
    const bool may_be_hidden =
      alters || thd->lex->part_info || thd->lex->create_info.like() || has_list(name);
    if (library_has(name) || (may_be_hidden && !partitions_of(name).empty()))
    {
      tell(fail_as_taken(name));
      return;
    }
    seen_in = thd->query_id;
    seen = name;
  }
}

bool is_listed(const Bytes &partition, bool if_unread)
{
  const Bytes table = table_of_partition(partition);
  Bytes names;
  if (read_file(list_of(table), &names) == File_read::FAILED)
    return if_unread;
  // A zero is behind each name, and before it: that of another one, or of the length of all.
  const Bytes wanted = partition.substr(table.size() + strlen(SEPARATOR));
  return names.find('\0' + wanted + '\0') != Bytes::npos;
}

bool is_part_of(const Bytes &name, const char *partition)
{
  char encoded[FN_REFLEN];
  tablename_to_filename(partition, encoded, sizeof(encoded));
  const Bytes whole = table_of_partition(name) + SEPARATOR + encoded + '#';
  return (name + '#').compare(0, whole.size(), whole) == 0;
}

int drop_each(const std::vector<Bytes> &names)
{
  for (const Bytes &name : names)
    if (int error = drop_library_table(name))
      return error;
  return 0;
}

int drop_partitions_of(const Bytes &table)
{
  // A recovery may end an ALTER TABLE that has put a partitioned table in the place of this one.
  // The list is durable before the first partition, and goes before it. Without one, and with no
  // definition of partitions, they may be of a lost table.
  if (is_recovering())
  {
    const bool is_own = is_hidden(table) || has_list(table) || has_partitioned_definition(table);
    const int error = is_own ? begin_drop(current_thd, table) : 0;
    // The server removes the definition behind it. Without one a later recovery drops nothing.
    return error ? error : HA_ERR_NO_SUCH_TABLE;
  }
  const std::vector<Bytes> names = partitions_of(table);
  if (names.empty() || has_definition(table))
    return HA_ERR_NO_SUCH_TABLE;
  int error = begin_drop(current_thd, table);
  if (!error)
    error = drop_each(names);
  // The server leaves the list where this engine has dropped the table.
  if (!error)
    unlink(list_of(table).c_str());
  return error;
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

int list_changed(const char *path, const char *from, chf_create_flags change)
{
  if (change == CHF_CREATE_FLAG)
    return has_any(name_of(path)) ? tell(fail_as_taken(name_of(path))) : sync_list(name_of(path));
  // Its files are of a moment between two definitions from here on. A drop goes on without a mark.
  if (change == CHF_DELETE_FLAG)
    begin_definition(current_thd, name_of(path ? path : from));
  // Behind changes of single partitions the definition was renamed just before.
  if (change == CHF_RENAME_FLAG)
    return my_sync_dir_by_file(list_of(name_of(path)).c_str(), MYF(MY_WME));
  return 0;
}

int rename_partitions_of(const Bytes &from, const Bytes &to)
{
  int error = HA_ERR_NO_SUCH_TABLE;
  // Those of a lost table are not of a partition that was to become a table.
  if (!is_recovering() || table_of_partition(to) != to)
    return error;
  for (const Bytes &name : partitions_of(from))
    if ((error = rename_library_table(name, to + name.substr(from.size()))))
      return error;
  if (!error && rename(list_of(from).c_str(), list_of(to).c_str()))
    error = errno;
  return error;
}

void move_list(const Bytes &from, const Bytes &to)
{
  if (has_list(from) && !has_list(to) && rename(list_of(from).c_str(), list_of(to).c_str()))
    sql_print_error("Terrace: cannot rename %s to %s: %s", list_of(from).c_str(),
                    list_of(to).c_str(), strerror(errno));
}

terrace_status move_pieces(const std::vector<Bytes> &names, const Bytes &from, const Bytes &to,
                           Failure *failure)
{
  // Otherwise foreign keys of two tables would have one name.
  for (const Bytes &name : names)
    if (library_has(to + name.substr(from.size())))
      return TERRACE_EXISTS;
  for (const Bytes &name : names)
  {
    const Bytes wanted = to + name.substr(from.size());
    // The foreign keys go first (references.h).
    if (rename_references(name, wanted))
      return TERRACE_INTERNAL;
    if (terrace_database_rename_table(database(), name.c_str(), wanted.c_str(), failure->out()) !=
        TERRACE_OK)
      return failure->status();
    Open_table::rename(name, wanted);
  }
  move_list(from, to);
  return TERRACE_OK;
}

terrace_status move_table(const Bytes &from, const Bytes &to, Failure *failure)
{
  std::vector<Bytes> names = partitions_of(from);
  if (library_has(from))
    names.push_back(from);
  return move_pieces(names, from, to, failure);
}
