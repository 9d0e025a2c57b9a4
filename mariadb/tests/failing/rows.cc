/*
  Compares the library's rows of definitions with the server's files, as long as there is the file that
  the variable TERRACE_DEFINITIONS names: whenever a statement has published what it has changed, and
  when a start has settled all. The server dies where they differ, and says so. The file has the names
  that a statement changes meanwhile, one a line: their rows have to say that, and are not compared.

  For the file `refuse-definition` (holds.cc) the next commit of rows is refused as on a full disk. A
  plugin for tests is linked with this.
*/
#include "definitions.h"
#include "engine.h"
#include "ha_terrace.h"
#include "moments.h"
#include "partitions.h"
#include "yield.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <unistd.h>

namespace fs = std::filesystem;

static Bytes content_of(const fs::path &path)
{
  std::ifstream file(path, std::ios::binary);
  return Bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

/* What rows should be, as their values without the stamp. That of a lost definition may be any. */
static const Bytes LOST = "lost";

/* The library takes no larger value. */
static const size_t MOST_BYTES = (1 << 20) - 14;

static std::map<Bytes, Bytes> wanted()
{
  std::map<Bytes, Bytes> all;
  std::error_code none;
  for (const Bytes &name : library_tables())
  {
    const Bytes table = table_of_partition(name);
    const Bytes image = content_of("./" + table + ".frm");
    const uchar engine = image.size() > 3 ? uchar(image[3]) : 0;
    const bool is_ours = engine == DB_TYPE_PARTITION_DB || engine >= DB_TYPE_FIRST_DYNAMIC;
    if (is_own_table(name) || is_hidden(table) || !(is_ours || image.empty()))
      continue;
    const Bytes whole = image + content_of("./" + table + ".par");
    all[table] = image.empty() ? LOST : whole.size() > MOST_BYTES ? Bytes() : whole;
    const Bytes database = table.substr(0, table.find('/') + 1);
    all[database] = content_of("./" + database + "db.opt");
  }
  return all;
}

static void differs(const Bytes &name, const char *what)
{
  fprintf(stderr, "Terrace: a test finds that the row of the definition of %s %s\n", name.c_str(),
          what);
  fflush(stderr);
  raise(SIGABRT);
}

void compare_definitions()
{
  const char *file = getenv("TERRACE_DEFINITIONS");
  if (!file || access(file, F_OK))
    return;
  std::map<Bytes, Bytes> files = wanted();
  std::ifstream names(file);
  const std::set<Bytes> changing((std::istream_iterator<Bytes>(names)),
                                 std::istream_iterator<Bytes>());
  size_t found = 0;
  terrace_error *error = nullptr;
  terrace_table *table = terrace_database_existing_table(database(), "#terrace/definitions", &error);
  terrace_cursor *cursor = table ? terrace_table_cursor(table, nullptr, &error) : nullptr;
  terrace_row row;
  while (cursor && terrace_cursor_next(cursor, &row, &error) == TERRACE_OK)
  {
    const Bytes name(row.key, row.key_len), value(row.value, row.value_len);
    if (!name[0])
      continue;
    if (value.size() < 14 || value[0] != 1)
      differs(name, "has another format");
    if (value[1] && !changing.count(name))
      differs(name, "says that it changes");
    if (changing.count(name))
    {
      if (!value[1])
        differs(name, "does not say that it changes");
      files.erase(name);
      found++;
      continue;
    }
    // A database may have no table, or be dropped since.
    if (name.back() != '/' && !files.count(name))
      differs(name, "has no file");
    if (files.count(name) && files[name] != LOST && files[name] != value.substr(14))
      differs(name, "is not its file");
    files.erase(name);
  }
  terrace_cursor_free(cursor);
  terrace_table_free(table);
  terrace_error_free(error);
  if (found != changing.size())
    differs(*changing.begin(), "is not there, or that of another one that changes");
  if (!files.empty())
    differs(files.begin()->first, "is not there");
}

extern "C" {
terrace_pending *__real_terrace_database_enqueue(const terrace_database *, terrace_batch *, uint32_t,
                                                 terrace_error **);

/* Rows of definitions alone are written so without the store. The library refuses no database. */
terrace_pending *__wrap_terrace_database_enqueue(const terrace_database *database,
                                                 terrace_batch *batch, uint32_t durability,
                                                 terrace_error **error)
{
  if (durability == TERRACE_RELAXED)
    terrace_yield("row");
  const bool is_refused = durability == TERRACE_RELAXED && is_asked("refuse-definition");
  terrace_pending *pending =
    __real_terrace_database_enqueue(is_refused ? nullptr : database, batch, durability, error);
  if (is_refused)
    as_full(error);
  return pending;
}
}
