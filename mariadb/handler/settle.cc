#include "settle.h"
#include "belonging.h"
#include "engine.h"
#include "ha_terrace.h"
#include "partitions.h"
#include "references.h"
#include "renames.h"

#include <algorithm>
#include <filesystem>

bool has_definition(const Bytes &table)
{
  return access(("./" + table + ".frm").c_str(), F_OK) == 0;
}

/* The number of the engine that a definition of a table names; -1 for none, or that of a view. */
static int engine_of(const Bytes &definition)
{
  const uchar *header = reinterpret_cast<const uchar *>(definition.data());
  const bool is_of_table = definition.size() >= 4 && header[0] == 0xfe && header[1] == 1;
  return is_of_table ? header[3] : -1;
}

static int engine_of_definition(const Bytes &table)
{
  Bytes header;
  read_file("./" + table + reg_ext, &header, 4);
  return engine_of(header);
}

bool has_partitioned_definition(const Bytes &table)
{
  return engine_of_definition(table) == DB_TYPE_PARTITION_DB;
}

static bool is_own(int engine)
{
  return engine == DB_TYPE_UNKNOWN || engine == DB_TYPE_PARTITION_DB ||
         engine >= DB_TYPE_FIRST_DYNAMIC;
}

bool is_own_definition(const Bytes &definition) { return is_own(engine_of(definition)); }

bool is_partitioned_definition(const Bytes &definition)
{
  return engine_of(definition) == DB_TYPE_PARTITION_DB;
}

bool is_own_list(const Bytes &list)
{
  // Lengths, a sum and how many there are come before the engines.
  static const size_t ENGINES_AT = 12;
  return list.size() > ENGINES_AT && is_own(uchar(list[ENGINES_AT]));
}

bool has_own_definition(const Bytes &table) { return is_own(engine_of_definition(table)); }

File_read read_file(const Bytes &path, Bytes *out, size_t most)
{
  out->clear();
  const File file = my_open(path.c_str(), O_RDONLY | O_CLOEXEC, MYF(0));
  if (file < 0)
    return my_errno == ENOENT ? File_read::MISSING : File_read::FAILED;
  uchar buffer[16384];
  size_t length = 0;
  while (out->size() < most &&
         (length = my_read(file, buffer, std::min(sizeof(buffer), most - out->size()), MYF(0))) &&
         length != MY_FILE_ERROR)
    out->append(reinterpret_cast<char *>(buffer), length);
  my_close(file, MYF(0));
  return length == MY_FILE_ERROR ? File_read::FAILED : File_read::WHOLE;
}

std::vector<Bytes> files_in(const Bytes &folder)
{
  std::vector<Bytes> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  return names;
}

/*
  The old table of an ALTER TABLE by a copy. Until the server has recovered, its log alone knows
  which of both tables goes.
*/
static bool is_backup(const Bytes &table)
{
  return table.find("/#sql-backup-") != Bytes::npos;
}

/* Whether the library has all of a table under its new name. */
static bool is_complete(const Rename &rename)
{
  return !has_any(rename.from) && has_any(rename.to);
}

/*
  Whether the old table of a copy is what is left of a table. The server ignores that it could not
  rename it back. It has dropped the backup of a copy that has the name, or another one.
*/
static bool is_left(const Rename &rename)
{
  return is_backup(rename.to) && has_definition(rename.to) && has_any(rename.to) &&
         !has_definition(rename.from) && !has_any(rename.from);
}

/* Gives a definition, and a list of partitions, the new name durably. */
static bool move_definition(const Rename &rename)
{
  for (const char *extension : {".par", ".frm"})
  {
    const Bytes from = "./" + rename.from + extension, to = "./" + rename.to + extension;
    if (!access(from.c_str(), F_OK) && my_rename(from.c_str(), to.c_str(), MYF(MY_WME)))
      return false;
  }
  return !my_sync_dir_by_file(("./" + rename.to).c_str(), MYF(MY_WME)) &&
         !my_sync_dir_by_file(("./" + rename.from).c_str(), MYF(MY_WME));
}

bool end_drop(const Bytes &table)
{
  if (has_definition(table))
    return true;
  // As a drop of a hidden one does: keys alone would keep their names from others.
  if (is_hidden(table) && set_references(table, {}))
    return false;
  const std::vector<Bytes> names = partitions_of(table);
  if (drop_each(names) || (names.empty() && library_has(table) && drop_library_table(table)) ||
      set_references(table, {}))
    return false;
  unlink(list_of(table).c_str());
  return true;
}

/* Gives a table the name that its definition has. */
static bool move_to_definition(const Bytes &from, const Bytes &to)
{
  Failure failure;
  if (move_table(from, to, &failure) == TERRACE_OK)
    return true;
  sql_print_error("Terrace: cannot rename table %s to %s, which has its definition: %s",
                  from.c_str(), to.c_str(), failure.message());
  return false;
}

/* Whether a database of a rename has a definition of a version. */
static bool has_version(const Rename &rename, const Bytes &version)
{
  for (const Bytes &name : {rename.from, rename.to})
    if (!find_definition(name.substr(0, name.find('/')), version).empty())
      return true;
  return false;
}

/*
  Whether the mark of a table under the new name has nothing to say. It has expired with its rows, or an
  earlier version of the handler has renamed the table, which leaves the mark of a definition that was
  changed since. A backup has that of a definition that has gone.
*/
static bool is_unmarked(const Rename &rename)
{
  const Bytes mark = mark_of(rename.to);
  return mark.empty() ||
         (!is_backup(rename.to) && !has_any(rename.from) && !has_version(rename, mark));
}

/* Whether a table under the new name may be that of the definition under the old one. */
static bool belongs(const Rename &rename)
{
  return mark_of(rename.to) == version_of(rename.from) || is_unmarked(rename);
}

void settle_before(const Rename &rename, Definitions *definitions)
{
  auto is_defined = [definitions](const Bytes &table) {
    auto known = definitions->find(table);
    return known == definitions->end() ? has_own_definition(table) : known->second;
  };
  // The definition goes last: if it is there, all is.
  if (!is_defined(rename.from))
  {
    (*definitions)[rename.from] = is_defined(rename.to);
    (*definitions)[rename.to] = false;
    return;
  }
  // The log does not know partitions.
  if (is_backup(rename.to) && partitions_of(rename.to).empty())
    return;
  if (is_defined(rename.to) || definitions->count(rename.to) || !belongs(rename))
    return;
  // EXCHANGE PARTITION gives a table a hidden name, and its definition stays.
  const bool moves = !is_hidden(rename.to) || is_backup(rename.to);
  // The partition has the name of the table. The log knows that.
  if (!moves && library_has(rename.from) && library_has(rename.to))
    return;
  if (is_hidden(rename.from) || !moves || !is_complete(rename))
  {
    move_to_definition(rename.to, rename.from);
    return;
  }
  (*definitions)[rename.from] = true;
  (*definitions)[rename.to] = false;
  move_definition(rename);
}

/*
  A copy that has got another name than its table: keys to the table follow, and its backup goes. The
  server's recovery has ended the statement also where these could not. Whether that is done.
*/
static bool end_copy(const Bytes &copy, const Bytes &name)
{
  const bool is_its_own = has_any(name) && mark_of(name) == version_of(name);
  const Bytes copied = is_its_own ? copied_table(name) : Bytes();
  if (copied.empty() || copied == name || has_any(copied) || has_definition(copied))
    return true;
  if (move_children(copied, name))
    return false;
  const Bytes backup = backup_of(copied, copy);
  unlink(("./" + backup + ".frm").c_str());
  return end_drop(backup);
}

/*
  A copy that has its new name in the library alone: the server has removed the definition, and the old
  table is whole, under its name or as the backup. Whether it is gone.
*/
static bool drop_failed_copy(const Rename &rename)
{
  const Bytes mark = mark_of(rename.to), copied = copied_table(rename.to);
  if (mark.empty() || copied.empty() || has_definition(rename.to) || has_version(rename, mark))
    return true;
  for (const Bytes &name : {copied, backup_of(copied, rename.from)})
    if (name != rename.to && has_definition(name) && has_any(name))
      return end_drop(rename.to);
  return true;
}

/* Whether the old table of a copy is left behind an ALTER TABLE that has succeeded. */
static bool is_waste(const Rename &rename)
{
  const Bytes version = version_of(rename.from);
  return is_backup(rename.to) && !has_definition(rename.to) && has_any(rename.to) &&
         !version.empty() && mark_of(rename.from) == version;
}

/* Whether a copy is of a table itself, which may be the copy of another one that had another name. */
static bool is_altered(const Bytes &table, const Bytes &copy, const std::vector<Rename> &all)
{
  const Bytes backup = backup_of(table, copy);
  return std::any_of(all.begin(), all.end(), [&](const Rename &one) {
    return one.from == table && one.to == backup;
  });
}

std::set<Bytes> settle(const std::vector<Rename> &all)
{
  std::set<Bytes> names;
  for (const Rename &rename : all)
    if (rename.from != rename.to)
      names.insert({rename.from, rename.to});
  std::set<Bytes> stuck;
  if (names.empty())
    return stuck;
  stuck = place_tables(names);
  for (const Rename &rename : all)
  {
    if (rename.from == rename.to)
      continue;
    const bool of_copy = is_copy(rename.from) && !is_hidden(rename.to);
    bool is_done = !stuck.count(rename.from) && !stuck.count(rename.to);
    if (is_done && of_copy)
      is_done = (is_altered(rename.to, rename.from, all) || end_copy(rename.from, rename.to)) &&
                drop_failed_copy(rename);
    if (is_done && is_left(rename))
      is_done = move_definition({0, rename.to, rename.from}) &&
                move_to_definition(rename.to, rename.from);
    else if (is_done && is_waste(rename))
      is_done = end_drop(rename.to);
    else if (is_done && has_any(rename.to) && has_own_definition(rename.from) &&
             !has_own_definition(rename.to) && is_unmarked(rename))
      is_done = move_to_definition(rename.to, rename.from);
    if (settle_references(rename.from, rename.to) && is_done)
      continue;
    stuck.insert({rename.from, rename.to});
    // Its backup stays too.
    if (of_copy)
      stuck.insert({copied_table(rename.from), copied_table(rename.to)});
  }
  return stuck;
}

std::vector<Rename> lost_copies()
{
  std::vector<Rename> found;
  for (const Bytes &name : library_tables())
  {
    const Bytes copy = table_of_partition(name);
    if (!is_copy(copy) || has_definition(copy) || (!found.empty() && found.back().from == copy))
      continue;
    const Bytes mark = mark_of(copy);
    const Bytes to = mark.empty() ? mark : find_definition(copy.substr(0, copy.find('/')), mark);
    if (!to.empty())
      found.push_back({0, copy, to});
  }
  return found;
}
