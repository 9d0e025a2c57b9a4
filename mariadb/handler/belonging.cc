#include "belonging.h"
#include "engine.h"
#include "ha_terrace.h"
#include "partitions.h"
#include "renames.h"
#include "settle.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>

/* Where a table keeps its mark. Its key begins as a counter's. */
static const char MARK[] = {0, 4};

/* What one has behind its name that has made room for another one. No SQL name is encoded so. */
static const char ASIDE[] = "#aside";

/* The version is at the beginning of the second part of the file. */
static const size_t VERSION_AT = 64;

static std::mutex lock;
/* Names whose tables could not be moved to their definitions. */
static std::set<Bytes> astray;
/* Openings take no lock while there are none. */
static std::atomic<bool> has_astray{false};

/* How much of a definition says its version. */
static const size_t WITH_VERSION = VERSION_AT + 2 + MY_UUID_SIZE;

Bytes version_in(const Bytes &definition)
{
  const char *bytes = definition.data(), *version = bytes + VERSION_AT;
  const bool is_table =
    definition.size() >= WITH_VERSION && uchar(bytes[0]) == 0xfe && bytes[1] == 1;
  if (!is_table || version[0] != EXTRA2_TABLEDEF_VERSION || version[1] != MY_UUID_SIZE)
    return Bytes();
  return Bytes(version + 2, MY_UUID_SIZE);
}

/* It is behind the version. Its number is another one on each server, so it is told by its name. */
Bytes partition_engine_in(const Bytes &definition)
{
  const bool has_one = !version_in(definition).empty() && definition.size() > WITH_VERSION + 2 &&
                       definition[WITH_VERSION] == EXTRA2_DEFAULT_PART_ENGINE;
  return has_one ? definition.substr(WITH_VERSION + 2, uchar(definition[WITH_VERSION + 1])) : Bytes();
}

Bytes version_of(const Bytes &table)
{
  Bytes definition;
  read_file("./" + table + ".frm", &definition, WITH_VERSION);
  return version_in(definition);
}

Bytes mark_of(const Bytes &table)
{
  Failure failure;
  const std::vector<Bytes> partitions =
    library_has(table) ? std::vector<Bytes>() : partitions_of(table);
  const Bytes &name = partitions.empty() ? table : partitions.front();
  terrace_table *opened =
    terrace_database_existing_table(database(), name.c_str(), failure.out());
  terrace_value value = {};
  Bytes found;
  if (opened &&
      terrace_table_get(opened, MARK, sizeof(MARK), &value, failure.out()) == TERRACE_OK)
    found.assign(reinterpret_cast<const char *>(value.data), value.len);
  terrace_value_release(&value);
  terrace_table_free(opened);
  return found;
}

terrace_status mark(const terrace_table *table, const Bytes &version, Failure *failure)
{
  // A rename comes behind it in the order of commits.
  return terrace_table_put(table, MARK, sizeof(MARK), version.data(), version.size(),
                           TERRACE_RELAXED, failure->out());
}

terrace_status mark_all_of(const Bytes &table, Failure *failure)
{
  const Bytes version = version_of(table);
  if (version.empty())
    return TERRACE_OK;
  std::vector<Bytes> names = partitions_of(table);
  names.push_back(table);
  terrace_status status = TERRACE_OK;
  for (const Bytes &name : names)
  {
    terrace_table *opened =
      terrace_database_existing_table(database(), name.c_str(), Failure().out());
    // Also one that is there: where rows expire it would go before them.
    if (opened && status == TERRACE_OK)
      status = mark(opened, version, failure);
    terrace_table_free(opened);
  }
  return status;
}

/* What the library has of a table, or of some partitions, that goes to another name. */
struct Move
{
  Bytes from, to;
  std::vector<Bytes> names;
};

static std::vector<Move> misplaced(const std::set<Bytes> &names)
{
  std::map<Bytes, Bytes> versions, places;
  for (const Bytes &name : names)
  {
    const Bytes version = versions[name] = version_of(name);
    if (!version.empty())
      places[version] = name;
  }
  std::map<std::pair<Bytes, Bytes>, Move> found;
  for (const Bytes &name : library_tables())
  {
    const Bytes from = table_of_partition(name);
    if (!names.count(from))
      continue;
    const auto place = places.find(mark_of(name));
    // A definition that was copied as a file has the version of another one.
    if (place == places.end() || place->second == from || place->first == versions[from])
      continue;
    Move &move = found[{from, place->second}];
    move.from = from;
    move.to = place->second;
    move.names.push_back(name);
  }
  std::vector<Move> moves;
  for (const auto &one : found)
    moves.push_back(one.second);
  return moves;
}

/* Whether a move waits for itself: one behind the other, each waits for the name of the next one. */
static bool is_circle(const Move &first, const std::vector<Move> &moves)
{
  const Move *at = &first;
  for (size_t step = 0; step < moves.size(); step++)
  {
    if (at->to == first.from)
      return true;
    const auto next = std::find_if(moves.begin(), moves.end(),
                                   [at](const Move &one) { return one.from == at->to; });
    if (next == moves.end())
      return false;
    at = &*next;
  }
  return false;
}

static terrace_status move_to(const Move &move, const Bytes &to)
{
  Failure failure;
  const terrace_status status = move_pieces(move.names, move.from, to, &failure);
  if (status != TERRACE_OK && status != TERRACE_EXISTS)
    sql_print_error("Terrace: cannot rename table %s to %s, which has its definition: %s",
                    move.from.c_str(), move.to.c_str(), failure.message());
  return status;
}

/* Does one of some moves. Whether there was one to do; names that fail are added to those. */
static bool move_one(const std::vector<Move> &moves, std::set<Bytes> *stuck)
{
  for (const Move &move : moves)
  {
    if (stuck->count(move.from))
      continue;
    const terrace_status status = move_to(move, move.to);
    if (status == TERRACE_OK)
      return true;
    if (status != TERRACE_EXISTS)
      stuck->insert({move.from, move.to});
  }
  for (const Move &move : moves)
  {
    if (stuck->count(move.from) || !is_circle(move, moves))
      continue;
    if (move_to(move, move.from + ASIDE) == TERRACE_OK)
      return true;
    stuck->insert({move.from, move.to});
  }
  return false;
}

/* A kill may have come between the last partition and the list. */
static void place_list(const Bytes &table, const std::set<Bytes> &names)
{
  const std::vector<Bytes> partitions =
    has_partitioned_definition(table) && !has_list(table) ? partitions_of(table)
                                                          : std::vector<Bytes>();
  if (partitions.empty())
    return;
  for (const Bytes &name : names)
    if (has_list(name) && partitions_of(name).empty() &&
        is_listed(name + partitions.front().substr(table.size()), false))
    {
      move_list(name, table);
      return;
    }
}

/*
  Of some names, those of moves that have failed, and of what waits for these. What has its place behind
  a table that has none can wait for ever.
*/
static void note_astray(const std::set<Bytes> &names, std::set<Bytes> failed,
                        const std::vector<Move> &moves)
{
  for (size_t step = 0; step < moves.size(); step++)
    for (const Move &move : moves)
      if (failed.count(move.to))
        failed.insert(move.from);
  std::lock_guard<std::mutex> guard(lock);
  for (const Bytes &name : names)
    astray.erase(name);
  astray.insert(failed.begin(), failed.end());
  has_astray = !astray.empty();
}

std::set<Bytes> place_tables(std::set<Bytes> names)
{
  // One that a kill has left there.
  for (const Bytes &name : std::set<Bytes>(names))
    names.insert(name + ASIDE);
  std::set<Bytes> stuck;
  std::vector<Move> moves = misplaced(names);
  while (move_one(moves, &stuck))
    moves = misplaced(names);
  note_astray(names, stuck, moves);
  for (const Move &move : moves)
    stuck.insert({move.from, move.to});
  for (const Bytes &name : names)
  {
    // No note has the name of what is aside. Those of the name that it has left bring it back.
    if (stuck.count(name + ASIDE))
      stuck.insert(name);
    place_list(name, names);
  }
  return stuck;
}

bool is_astray(const Bytes &table)
{
  if (!has_astray)
    return false;
  std::lock_guard<std::mutex> guard(lock);
  return astray.count(table);
}

int refuse_astray(const Bytes &table)
{
  if (!is_astray(table))
    return 0;
  const Bytes why = "table " + table + " has not found its rows behind a rename that has failed: "
                    "restart the server, with space on the disk";
  return fail_with(why.c_str());
}

Bytes find_definition(const Bytes &database, const Bytes &version)
{
  for (const std::filesystem::path file : files_in("./" + database))
  {
    const Bytes name = database + '/' + file.stem().string();
    if (file.extension() == ".frm" && version_of(name) == version)
      return name;
  }
  return Bytes();
}
