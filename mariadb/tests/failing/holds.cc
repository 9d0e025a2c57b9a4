/*
  Holds calls of the library for as long as a test wants, so that other connections come in between.

  The variable TERRACE_HOLD names a folder. A call that finds the file of its name there removes it,
  and does not begin until the file with the extension `.go` is there: the test sees that the call has
  come when the file is gone. An entry of an index goes to a wrong place for the file `misplace`. The
  counters of a table are refused for the file `refuse`, and the statistics for `statistics`. A plugin
  for tests is linked with this.
*/
#include "holds.h"

#include <cstdlib>
#include <string>
#include <unistd.h>

/* Whether a test asks for this one: it does for one call at a time. */
static bool is_asked(const char *name)
{
  const char *folder = getenv("TERRACE_HOLD");
  return folder && !unlink((std::string(folder) + "/" + name).c_str());
}

void hold(const char *name)
{
  if (!is_asked(name))
    return;
  const std::string go = std::string(getenv("TERRACE_HOLD")) + "/" + name + ".go";
  while (access(go.c_str(), F_OK))
    usleep(1000);
}

extern "C" {
terrace_status __real_terrace_table_put(const terrace_table *, const void *, size_t, const void *,
                                        size_t, uint32_t, terrace_error **);
terrace_status __real_terrace_transaction_put(const terrace_transaction *, const terrace_table *,
                                              const void *, size_t, const void *, size_t,
                                              terrace_error **);
terrace_cursor *__real_terrace_table_cursor(const terrace_table *, const terrace_range *,
                                            terrace_error **);
terrace_status __real_terrace_transaction_set_savepoint(const terrace_transaction *, const char *,
                                                        terrace_error **);
terrace_string *__real_terrace_database_get_statistics_json(const terrace_database *,
                                                            terrace_error **);
terrace_status __real_terrace_database_set_table_options(const terrace_database *, const char *,
                                                         const terrace_table_options *,
                                                         terrace_error **);
terrace_status __real_terrace_pending_wait(const terrace_pending *, terrace_error **);
int __real_my_sync_dir_by_file(const char *, unsigned long);
terrace_status __real_terrace_database_cancel_transaction(const terrace_database *, uint64_t,
                                                          terrace_error **);

/* A table keeps its counters under a key of one zero (open_table.h). */
terrace_status __wrap_terrace_table_put(const terrace_table *table, const void *key, size_t key_len,
                                        const void *value, size_t value_len, uint32_t durability,
                                        terrace_error **error)
{
  if (key_len == 1 && !*static_cast<const char *>(key))
  {
    hold("counters");
    // The library refuses a key that is NULL.
    if (is_asked("refuse"))
      return __real_terrace_table_put(table, nullptr, 1, value, value_len, durability, error);
  }
  return __real_terrace_table_put(table, key, key_len, value, value_len, durability, error);
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

/* The handler reads outside of transactions where it looks how far a piece of an index goes. */
terrace_cursor *__wrap_terrace_table_cursor(const terrace_table *table, const terrace_range *range,
                                            terrace_error **error)
{
  hold("build");
  return __real_terrace_table_cursor(table, range, error);
}

terrace_status __wrap_terrace_transaction_set_savepoint(const terrace_transaction *transaction,
                                                        const char *name, terrace_error **error)
{
  hold("savepoint");
  return __real_terrace_transaction_set_savepoint(transaction, name, error);
}

/* The library refuses a database that is NULL. */
terrace_string *__wrap_terrace_database_get_statistics_json(const terrace_database *database,
                                                            terrace_error **error)
{
  return __real_terrace_database_get_statistics_json(is_asked("statistics") ? nullptr : database,
                                                     error);
}

terrace_status __wrap_terrace_database_set_table_options(const terrace_database *database,
                                                         const char *name,
                                                         const terrace_table_options *options,
                                                         terrace_error **error)
{
  hold("options");
  return __real_terrace_database_set_table_options(database, name, options, error);
}

/* The server's: it makes definitions durable. */
int __wrap_my_sync_dir_by_file(const char *file, unsigned long flags)
{
  hold("definition");
  return __real_my_sync_dir_by_file(file, flags);
}

terrace_status __wrap_terrace_pending_wait(const terrace_pending *pending, terrace_error **error)
{
  hold("commit");
  return __real_terrace_pending_wait(pending, error);
}

terrace_status __wrap_terrace_database_cancel_transaction(const terrace_database *database,
                                                          uint64_t id, terrace_error **error)
{
  hold("kill");
  return __real_terrace_database_cancel_transaction(database, id, error);
}
}
