/*
  Holds connections at points of the handler (yield.h), and in calls of the library, for as long as a
  test wants, so that other connections come in between.

  The variable TERRACE_HOLD names a folder. A connection that finds the file of a point there removes
  it, and does not go on until the file with the extension `.go` is there: the test sees that the
  connection has come when the file is gone. An entry of an index goes to a wrong place for the file
  `misplace`. The counters of a table are refused for the file `refuse`, the record of its layout for
  `refuse-layout`, foreign keys for `refuse-keys`, the note of a rename for `refuse-note`, the drop of
  a table for `refuse-drop`, and what a table whose rows expire keeps for `refuse-kept`. As long as there
  is `no-kept`, that is refused, and for `no-options` the options of partitions `p1`. As long as there is
  `format`, the record of a layout has another format, for `unsynced` no directory can be synced, and for
  `no-mark` renames write no marks, as those of an earlier version. The file `full` has two numbers:
  behind how many steps of renames the disk is full, and for how many. A step writes a note, a mark or
  foreign keys, or renames a table. Behind these comes the file `full-later`.
  A plugin for tests is linked with this.
*/
#include "moments.h"
#include "terrace.h"
#include "yield.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

bool is_asked(const char *name)
{
  const char *folder = getenv("TERRACE_HOLD");
  return folder && !unlink((std::string(folder) + "/" + name).c_str());
}

static bool is_there(const std::string &name)
{
  const char *folder = getenv("TERRACE_HOLD");
  return folder && !access((std::string(folder) + "/" + name).c_str(), F_OK);
}

bool is_full()
{
  const char *folder = getenv("TERRACE_HOLD");
  const std::string name = std::string(folder ? folder : "") + "/full";
  FILE *file = folder ? fopen(name.c_str(), "r+") : nullptr;
  if (!file)
    return false;
  int before = 0, count = 0;
  const bool is_read = fscanf(file, "%d %d", &before, &count) == 2;
  const bool is_now = is_read && before == 0;
  rewind(file);
  fprintf(file, "%d %d\n", is_now ? 0 : before - 1, is_now ? count - 1 : count);
  fclose(file);
  if (is_now && count <= 1 && rename((name + "-later").c_str(), name.c_str()))
    unlink(name.c_str());
  return is_now;
}

static thread_local const terrace_error *refused = nullptr;

bool is_of_full(const terrace_error *error) { return error && error == refused; }

terrace_status as_full(terrace_error **error)
{
  refused = *error;
  return TERRACE_FULL;
}

void terrace_yield(const char *point)
{
  if (!strcmp(point, "lost"))
    moment();
  if (!strcmp(point, "published"))
    compare_definitions();
  if (!is_asked(point))
    return;
  while (!is_there(std::string(point) + ".go"))
    usleep(1000);
}

extern "C" {
terrace_status __real_terrace_table_put(const terrace_table *, const void *, size_t, const void *,
                                        size_t, uint32_t, terrace_error **);
terrace_status __real_terrace_database_write(const terrace_database *, terrace_batch *, uint32_t,
                                             terrace_error **);
terrace_status __real_terrace_transaction_put(const terrace_transaction *, const terrace_table *,
                                              const void *, size_t, const void *, size_t,
                                              terrace_error **);
terrace_status __real_terrace_database_set_table_options(const terrace_database *, const char *,
                                                         const terrace_table_options *,
                                                         terrace_error **);
int __real_my_sync_dir_by_file(const char *, unsigned long);

/*
  A table keeps its counters under a key of one zero, and its layout under 0, 1 (open_table.h). Where
  its rows expire, 8 bytes come before these. A rename is noted under 8 bytes (renames.cc).
*/
terrace_status __wrap_terrace_table_put(const terrace_table *table, const void *key, size_t key_len,
                                        const void *value, size_t value_len, uint32_t durability,
                                        terrace_error **error)
{
  if (key_len == 1 && !*static_cast<const char *>(key))
  {
    terrace_yield("counters");
    // The library refuses a key that is NULL.
    if (is_asked("refuse"))
      return __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
  }
  if (key_len == 8)
  {
    terrace_yield("rename");
    if (is_asked("refuse-note"))
      return __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
  }
  const std::string place(static_cast<const char *>(key), key_len);
  const bool is_mark = place == std::string("\0\4", 2);
  if (is_mark)
    terrace_yield("mark");
  if (is_mark && is_there("no-mark"))
    return TERRACE_OK;
  const bool is_kept_elsewhere = key_len == 9 || key_len == 10;
  if (is_kept_elsewhere && (is_there("no-kept") || is_asked("refuse-kept")))
    return __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
  if ((key_len == 8 || is_mark) && is_full())
  {
    __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
    return as_full(error);
  }
  std::string changed(static_cast<const char *>(value), value_len);
  const bool is_layout = place == std::string("\0\1", 2);
  if (is_layout && is_asked("refuse-layout"))
    return __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
  if (is_layout && is_there("format"))
    changed[0] = 1;
  return __real_terrace_table_put(table, key, key_len, changed.data(), value_len, durability, error);
}

/* Foreign keys alone are written so. The library refuses a database that is NULL. */
terrace_status __wrap_terrace_database_write(const terrace_database *database,
                                             terrace_batch *batch, uint32_t durability,
                                             terrace_error **error)
{
  terrace_yield("keys");
  if (is_full())
  {
    __real_terrace_database_write(nullptr, batch, durability, error);
    return as_full(error);
  }
  return __real_terrace_database_write(is_asked("refuse-keys") ? nullptr : database, batch,
                                       durability, error);
}

/* Entries of indexes have prefixes between those of rows and of chunks, and end with the row's key. */
terrace_status __wrap_terrace_transaction_put(const terrace_transaction *transaction,
                                              const terrace_table *table, const void *key,
                                              size_t key_len, const void *value, size_t value_len,
                                              terrace_error **error)
{
  std::string place(static_cast<const char *>(key), key_len);
  const unsigned char prefix = key_len ? static_cast<unsigned char>(place[0]) : 0;
  if (prefix >= 2 && prefix < 0xff && is_asked("misplace"))
    place.back() = char(place.back() ^ 1);
  return __real_terrace_transaction_put(transaction, table, place.data(), place.size(), value,
                                        value_len, error);
}

terrace_status __wrap_terrace_database_set_table_options(const terrace_database *database,
                                                         const char *name,
                                                         const terrace_table_options *options,
                                                         terrace_error **error)
{
  terrace_yield("options");
  // The library refuses a database that is NULL.
  const bool is_refused = is_there("no-options") && strstr(name, "#P#p1");
  return __real_terrace_database_set_table_options(is_refused ? nullptr : database, name, options,
                                                   error);
}

/* The server's: it makes definitions durable. */
int __wrap_my_sync_dir_by_file(const char *file, unsigned long flags)
{
  terrace_yield("definition");
  // A device is no directory. The client is not told of it.
  const bool fails = is_there("unsynced");
  return sync_at_moments(__real_my_sync_dir_by_file, fails ? "/dev/null/of" : file,
                         fails ? 0 : flags);
}
}
