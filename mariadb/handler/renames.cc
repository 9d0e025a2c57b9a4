/*
  Each table that a statement renames is marked with the version of its definition (belonging.h), if that
  can be read. A partition that becomes a table, or moves in its table, is neither marked nor noted. So
  what a failure or a kill leaves of other renames is not guessed from names: a definition and its rows
  find each other in any order of the names. The notes say which names a statement has used, and tables
  move among these alone. A move goes to a name that is free, and one of a circle goes aside first, so no
  table is ever over another one. What cannot be moved keeps its notes, and no statement gets at it until
  the next start has looked at it by the same marks.
*/
#include "renames.h"
#include "belonging.h"
#include "definitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "partitions.h"
#include "recovery.h"
#include "references.h"
#include "role.h"
#include "settle.h"
#include "trx.h"
#include "yield.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>

/* The library's table of renames. Under a number, which grows, it has the old and the new name. */
static const char RENAMES[] = "#terrace/renames";

/* What a statement has begun: its renames, and the names whose definitions it changes. */
struct Begun
{
  std::vector<Rename> renames;
  std::set<Bytes> names;
};

static std::mutex lock;
static std::map<THD *, Begun> under_way;
/* What ended statements could not make durable: the end of another one's renames tries it again. */
static std::vector<Rename> left;
/* Whether a statement tries the first ones again. Until then others look at them as before. */
static bool tries_left = false;
/* Held over writes of rows of definitions. It comes before the other one. */
static std::mutex publishing;
/* Rows of ended statements that could not be written. The end of another one tries it again. */
static std::set<Bytes> unpublished;
/* How many connections have some under way: commits take no lock without a rename. */
static std::atomic<size_t> connections{0};
static ulonglong last_number = 0;

/* A file beside the definitions of this server, which no other one has, and what is in it. */
static const char IDENTITY[] = "./#terrace.identity";
static Bytes own_identity;

bool begin_notes()
{
  if (read_file(IDENTITY, &own_identity) == File_read::WHOLE && !own_identity.empty())
    return true;
  std::random_device random;
  char text[8 * 4 + 1];
  for (uint at = 0; at < sizeof(text) - 1; at += 8)
    snprintf(text + at, 9, "%08x", uint(random()));
  own_identity = text;
  const File to = my_create(IDENTITY, 0, O_WRONLY | O_TRUNC | O_CLOEXEC, MYF(MY_WME));
  if (to < 0)
    return false;
  const bool is_written =
    !my_write(to, reinterpret_cast<const uchar *>(text), own_identity.size(), MYF(MY_WME | MY_NABP)) &&
    !my_sync(to, MYF(MY_WME));
  return !my_close(to, MYF(MY_WME)) && is_written && !my_sync_dir_by_file(IDENTITY, MYF(MY_WME));
}

static Bytes key_of(ulonglong number)
{
  uchar bytes[8];
  mi_int8store(bytes, number);
  return Bytes(reinterpret_cast<char *>(bytes), sizeof(bytes));
}

static terrace_status put(const Rename &rename, Failure *failure)
{
  terrace_table *renames = terrace_database_table(database(), RENAMES, failure->out());
  if (!renames)
    return failure->status();
  const Bytes key = key_of(rename.number), names = rename.from + '\0' + rename.to;
  const Bytes value = is_drop(rename) ? names + '\0' + own_identity : names;
  // A rename comes behind it in the order of commits, so it need not be durable by itself. The
  // definition of a table that is dropped goes in no order with commits.
  const terrace_status status =
    terrace_table_put(renames, key.data(), key.size(), value.data(), value.size(),
                      is_drop(rename) ? TERRACE_DURABLE : TERRACE_RELAXED, failure->out());
  terrace_table_free(renames);
  return status;
}

/*
  Durably: behind the statement its old name may get another definition, and a note that came back
  would take that one for the table's. Whether all are forgotten.
*/
static bool forget(std::vector<Rename> done)
{
  done.erase(std::remove_if(done.begin(), done.end(), [](const Rename &one) { return !one.number; }),
             done.end());
  if (done.empty())
    return true;
  Failure failure;
  bool is_done = true;
  terrace_table *renames = terrace_database_existing_table(database(), RENAMES, failure.out());
  for (const Rename &rename : done)
  {
    const Bytes key = key_of(rename.number);
    // Commits keep their order, so the last one makes all durable.
    const uint durability = &rename == &done.back() ? TERRACE_DURABLE : TERRACE_RELAXED;
    if (terrace_table_delete(renames, key.data(), key.size(), durability, failure.out()) ==
        TERRACE_OK)
      continue;
    is_done = false;
    sql_print_warning("Terrace: cannot note the end of a rename or a drop of table %s: %s",
                      rename.from.c_str(), failure.message());
  }
  terrace_table_free(renames);
  return is_done;
}

/* All that are noted, the newest first. */
static std::vector<Rename> noted()
{
  std::vector<Rename> found;
  Failure failure;
  terrace_table *renames = terrace_database_existing_table(database(), RENAMES, failure.out());
  // No table was ever renamed.
  if (!renames)
    return found;
  terrace_cursor *cursor = terrace_table_cursor(renames, nullptr, failure.out());
  terrace_row row;
  while (cursor && terrace_cursor_prev(cursor, &row, failure.out()) == TERRACE_OK)
  {
    const Bytes names(row.value, row.value_len);
    const size_t end = names.find('\0'), last = std::min(names.find('\0', end + 1), names.size());
    if (row.key_len == 8 && end != Bytes::npos)
      found.push_back({mi_uint8korr(reinterpret_cast<const uchar *>(row.key)), names.substr(0, end),
                       names.substr(end + 1, last - end - 1),
                       last < names.size() ? names.substr(last + 1) : Bytes()});
  }
  terrace_cursor_free(cursor);
  terrace_table_free(renames);
  return found;
}

/*
  Whether a rename is of a statement that was cut, also where the start has undone it: not all under the
  new name need be old.
*/
static bool is_noted(const Rename &rename)
{
  for (const Rename &one : noted())
    if (one.from == rename.from && one.to == rename.to)
      return true;
  return false;
}

/* Notes something of the statement of a connection. */
template <typename Note> static void note(THD *thd, Note note_in)
{
  {
    std::lock_guard<std::mutex> guard(lock);
    note_in(&under_way[thd]);
    connections = under_way.size();
  }
  // A recovery has no statement that ends.
  if (is_recovering())
    return;
  // The server tells the end of a connection to engines alone that have something of it.
  Trx::of(thd);
  // So that commit or rollback is called at the end of the statement.
  trans_register_ha(thd, false, terrace_hton, 0);
}

static void begun(THD *thd, const Rename &rename)
{
  note(thd, [&rename](Begun *of_statement) { of_statement->renames.push_back(rename); });
}

/* Makes definitions durable. Returns those where it fails, and leaves the others. */
static std::vector<Rename> sync(std::vector<Rename> *renames, myf flags)
{
  std::map<Bytes, bool> folders;
  std::vector<Rename> failed, done;
  for (const Rename &rename : *renames)
  {
    bool is_done = true;
    for (const Bytes &name : {rename.from, rename.to})
    {
      const Bytes path = "./" + name, folder = path.substr(0, path.rfind('/'));
      // A folder that is gone has no definitions.
      if (!folders.count(folder))
        folders[folder] = access(folder.c_str(), F_OK) || !my_sync_dir_by_file(path.c_str(), flags);
      is_done &= folders[folder];
    }
    (is_done ? done : failed).push_back(rename);
  }
  renames->swap(done);
  return failed;
}

/* Makes definitions durable, and forgets their renames. Returns those where one of both fails. */
static std::vector<Rename> finish(std::vector<Rename> done, myf flags)
{
  std::vector<Rename> kept = sync(&done, flags);
  if (!forget(done))
    kept.insert(kept.end(), done.begin(), done.end());
  return kept;
}

/* Of a connection. It alone changes that, so definitions are made durable without the lock. */
static Begun statement_of(THD *thd)
{
  std::lock_guard<std::mutex> guard(lock);
  auto at = under_way.find(thd);
  return at == under_way.end() ? Begun() : at->second;
}

static std::vector<Rename> renames_of(THD *thd) { return statement_of(thd).renames; }

/* The last one of a connection; NULL for none. The caller has the lock. */
static const Rename *last_of(THD *thd)
{
  auto at = under_way.find(thd);
  return at == under_way.end() || at->second.renames.empty() ? nullptr
                                                             : &at->second.renames.back();
}

int sync_renames(THD *thd)
{
  std::vector<Rename> renames = renames_of(thd);
  renames.erase(std::remove_if(renames.begin(), renames.end(),
                               [](const Rename &one) { return !one.number || is_drop(one); }),
                renames.end());
  return !sync(&renames, MYF(MY_WME)).empty();
}

/*
  Makes definitions durable before the next rename. So a power cut takes back the definition of the
  last one alone. Of earlier statements only renames of the same tables matter. A recovery has removed
  the definition that the next one replaces.
*/
static bool sync_before(THD *thd, const Rename &next)
{
  std::vector<Rename> renames = renames_of(thd);
  if (is_recovering())
    renames.push_back(next);
  {
    std::lock_guard<std::mutex> guard(lock);
    for (const Rename &one : left)
      if (one.from == next.to || one.to == next.from)
        renames.push_back(one);
  }
  return sync(&renames, MYF(MY_WME)).empty();
}

/*
  Refuses a name under which the library has a table, or partitions, of a lost definition. The start
  has settled renames that were cut, so a recovery begins each one anew. It goes on where its log's
  drop of a table has failed whose copy, which is whole, gets the name.
*/
static int refuse_taken(const Rename &rename)
{
  YIELD("taken");
  if (is_recovering() && is_copy(rename.from) && copied_table(rename.from) == rename.to &&
      !is_noted(rename))
  {
    drop_each(partitions_of(rename.to));
    if (library_has(rename.to) && !drop_library_table(rename.to))
      set_references(rename.to, {});
  }
  if (!has_any(rename.to))
    return 0;
  // The server's way back of a rename that was refused. A message would end its way back.
  if (is_recovering() || !has_own_definition(rename.from))
    return HA_ERR_TABLE_EXIST;
  return fail_as_taken(rename.to);
}

/* What the statement has renamed before, the newest first. */
static std::vector<Rename> renames_before(THD *thd)
{
  if (is_recovering())
    return noted();
  std::vector<Rename> before = renames_of(thd);
  std::reverse(before.begin(), before.end());
  return before;
}

/*
  Marks a table, unless the statement has done so: the way back may have given the name that it has now
  to another definition. Gives one that has left the new name its foreign keys, where they could not
  follow.
*/
static int prepare(THD *thd, const Rename &rename)
{
  bool is_marked = false;
  for (const Rename &one : renames_before(thd))
  {
    is_marked |= one.to == rename.from && one.from != one.to;
    if (one.from == rename.to && one.from != one.to && !settle_references(one.from, one.to))
      return HA_ERR_RECORD_FILE_FULL;
  }
  Failure failure;
  return is_marked || mark_all_of(rename.from, &failure) == TERRACE_OK
           ? 0
           : failure.handler_error(thd);
}

int begin_rename(THD *thd, const Bytes &from, const Bytes &to, bool *is_way_back)
{
  Rename rename = {0, table_of_partition(from), table_of_partition(to)};
  for (const Bytes &name : {rename.from, rename.to})
    if (is_astray(name))
      // The server's way back of this, which it has not done. A message would end its way back.
      return has_own_definition(rename.from) ? refuse_astray(name) : HA_ERR_TABLE_EXIST;
  // A partition that becomes a table, or moves in its table, is not all that its definition names.
  if ((rename.from == from) != (rename.to == to) || rename.from == rename.to)
  {
    const bool becomes_table = rename.from != from && rename.to == to && library_has(from);
    return becomes_table && !is_recovering() && !partitions_of(to).empty() ? fail_as_taken(to) : 0;
  }
  // No crash leaves temporary tables.
  if (is_temporary(from))
    return 0;
  bool is_reverse;
  {
    std::lock_guard<std::mutex> guard(lock);
    const Rename *last = last_of(thd);
    // The other partitions of the same table.
    if (last && last->from == rename.from && last->to == rename.to)
      return 0;
    // The server takes back a rename that has failed. The end of the statement does what it cannot.
    is_reverse = last && last->from == rename.to && last->to == rename.from;
    *is_way_back =
      is_reverse && has_own_definition(rename.to) && !has_own_definition(rename.from);
    if (*is_way_back)
      return 0;
    rename.number = ++last_number;
  }
  if (int error = refuse_taken(rename))
    return error;
  // The old table is a backup, or is dropped. A power cut may have brought its definition back.
  if (is_recovering() && is_copy(rename.from) && has_definition(rename.from))
    unlink(("./" + rename.to + ".frm").c_str());
  // The recovery repeats what a crash takes back. Of a rename and its reverse either is right.
  if (!is_reverse && !sync_before(thd, rename) && !is_recovering())
    return fail_with("the definition of a table that was renamed before cannot be made durable");
  // Commits take the lock, so these writes have it not.
  if (int error = prepare(thd, rename))
    return error;
  Failure failure;
  if (put(rename, &failure) != TERRACE_OK)
    return failure.handler_error(thd);
  begun(thd, rename);
  return 0;
}

int begin_drop(THD *thd, const Bytes &table)
{
  Rename rename = {0, table, table};
  {
    std::lock_guard<std::mutex> guard(lock);
    const Rename *last = last_of(thd);
    // The other partitions of the same table.
    if (last && is_drop(*last) && last->from == table)
      return 0;
    rename.number = ++last_number;
  }
  Failure failure;
  if (put(rename, &failure) != TERRACE_OK)
    return failure.handler_error(thd);
  begun(thd, rename);
  return 0;
}

void note_definition(THD *thd, const Bytes &table)
{
  const Bytes whole = table_of_partition(table), folder = whole.substr(0, whole.find('/') + 1);
  {
    std::lock_guard<std::mutex> guard(lock);
    const Rename *last = last_of(thd);
    // A sync is of all in the folder: DROP DATABASE has many tables.
    if (last && !last->number && !last->from.compare(0, folder.size(), folder))
      return;
  }
  begun(thd, {0, whole, whole});
}

int begin_definition(THD *thd, const Bytes &name)
{
  const Bytes whole = table_of_partition(name);
  // The end of the recovery compares all.
  if (is_recovering() || only_reads() || !is_published(whole))
    return 0;
  note(thd, [&whole](Begun *of_statement) {
    of_statement->names.insert({whole, database_of(whole)});
  });
  Failure failure;
  std::lock_guard<std::mutex> guard(publishing);
  return mark_definition(whole, &failure) == TERRACE_OK ? 0 : failure.handler_error(thd);
}

/*
  Publishes what a statement has changed, and what earlier ones could not. A table that another statement
  has begun to change is that one's: it may be half done. Below LOCK TABLES a drop or a rename gives the
  name free before its commit.
*/
static void publish(std::set<Bytes> names)
{
  std::lock_guard<std::mutex> of_rows(publishing);
  {
    std::lock_guard<std::mutex> guard(lock);
    for (const auto &other : under_way)
      for (const Bytes &name : other.second.names)
      {
        unpublished.erase(name);
        if (name.back() != '/')
          names.erase(name);
      }
    names.insert(unpublished.begin(), unpublished.end());
  }
  if (names.empty() || only_reads())
    return;
  unpublished.clear();
  Bytes why;
  if (publish_definitions(names, &why))
    return;
  sql_print_warning("Terrace: definitions of tables are not in the database yet, and servers that "
                    "follow this one wait for them: %s", why.c_str());
  unpublished = names;
}

void leave_unpublished(const std::set<Bytes> &names)
{
  std::lock_guard<std::mutex> of_rows(publishing);
  unpublished.insert(names.begin(), names.end());
}

void end_renames(THD *thd)
{
  // What the connection itself has begun is seen.
  if (!connections)
    return;
  Begun ended = statement_of(thd);
  std::vector<Rename> done = ended.renames, of_others;
  if (done.empty() && ended.names.empty())
    return;
  // What cannot be settled now stays noted: a later start does it.
  std::reverse(done.begin(), done.end());
  YIELD("settle");
  const std::set<Bytes> stuck = settle(done);
  done.erase(std::remove_if(done.begin(), done.end(), [&](const Rename &one) {
               return one.from != one.to && (stuck.count(one.from) || stuck.count(one.to));
             }),
             done.end());
  {
    std::lock_guard<std::mutex> guard(lock);
    if (!tries_left && !ended.renames.empty())
      of_others = left;
    tries_left |= !of_others.empty();
    // No later statement settles these: it has no lock on their names.
    under_way.erase(thd);
    connections = under_way.size();
  }
  std::vector<Rename> kept = finish(done, MYF(MY_WME));
  publish(ended.names);
  YIELD("published");
  const std::vector<Rename> kept_of_others = finish(of_others, MYF(0));
  kept.insert(kept.end(), kept_of_others.begin(), kept_of_others.end());
  std::lock_guard<std::mutex> guard(lock);
  left.erase(left.begin(), left.begin() + of_others.size());
  left.insert(left.end(), kept.begin(), kept.end());
  if (!of_others.empty())
    tries_left = false;
}

/* Ends a drop that a crash has cut, if it is of this server; whether it is over. */
static bool end_own_drop(const Rename &rename)
{
  if (rename.by.empty() || rename.by == own_identity)
    return end_drop(rename.from);
  sql_print_warning("Terrace: a drop of table %s was under way on another server. It is not ended: the "
                    "table may be whole",
                    rename.from.c_str());
  return true;
}

void settle_renames(bool recovers)
{
  std::vector<Rename> all = noted(), settled;
  Definitions definitions;
  for (const Rename &rename : all)
  {
    last_number = std::max(last_number, rename.number);
    if (!recovers || is_drop(rename))
      continue;
    settle_before(rename, &definitions);
    settle_references(rename.from, rename.to);
  }
  if (recovers)
  {
    // The recovery may drop what an older definition needs.
    sync(&all, MYF(MY_WME));
    return;
  }
  std::vector<Rename> renames = lost_copies();
  renames.insert(renames.end(), all.begin(), all.end());
  const std::set<Bytes> stuck = settle(renames);
  // A later start tries again what failed. What has the name of a dropped table may be one whose rename
  // has failed.
  for (const Rename &rename : all)
    if (!stuck.count(rename.from) && !stuck.count(rename.to) &&
        (!is_drop(rename) || end_own_drop(rename)))
      settled.push_back(rename);
  // Behind the moves: these give keys their new names first.
  if (stuck.empty())
    sweep_references();
  const std::vector<Rename> kept = finish(settled, MYF(MY_WME));
  std::lock_guard<std::mutex> guard(lock);
  left = kept;
  // Those of the recovery are noted too.
  under_way.clear();
  connections = 0;
}
