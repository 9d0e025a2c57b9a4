/*
  Calls of the library that a test has fail as on a full disk: the commit and the rollback of a
  prepared transaction.

  They fail while the file exists that the variable TERRACE_FAILING names. A commit that does not
  fail can be held (holds.cc). A plugin for tests is linked with this (xtask/src/mariadb/build.rs), so
  that the handler's calls come here.
*/
#include "moments.h"
#include "terrace.h"
#include "yield.h"

#include <cstdlib>
#include <unistd.h>

static bool is_failing()
{
  const char *file = getenv("TERRACE_FAILING");
  return file && access(file, F_OK) == 0;
}

/* No transaction has this id, so the library refuses it. */
static const char NO_ID[] = "none";

extern "C" {
terrace_pending *__real_terrace_database_enqueue_prepared(const terrace_database *, const void *,
                                                          size_t, const void *, size_t, uint32_t,
                                                          terrace_error **);
terrace_status __real_terrace_database_commit_prepared(const terrace_database *, const void *,
                                                       size_t, terrace_error **);
terrace_status __real_terrace_database_roll_back_prepared(const terrace_database *, const void *,
                                                          size_t, terrace_error **);
terrace_status __real_terrace_error_status(const terrace_error *);

terrace_pending *__wrap_terrace_database_enqueue_prepared(const terrace_database *database,
                                                          const void *id, size_t length,
                                                          const void *blob, size_t blob_length,
                                                          uint32_t durability,
                                                          terrace_error **error)
{
  if (is_failing())
    return __real_terrace_database_enqueue_prepared(database, NO_ID, sizeof(NO_ID), blob,
                                                    blob_length, durability, error);
  return __real_terrace_database_enqueue_prepared(database, id, length, blob, blob_length,
                                                  durability, error);
}

terrace_status __wrap_terrace_database_commit_prepared(const terrace_database *database,
                                                       const void *id, size_t length,
                                                       terrace_error **error)
{
  if (is_failing())
  {
    __real_terrace_database_commit_prepared(database, NO_ID, sizeof(NO_ID), error);
    return TERRACE_FULL;
  }
  terrace_yield("commit-prepared");
  return __real_terrace_database_commit_prepared(database, id, length, error);
}

terrace_status __wrap_terrace_database_roll_back_prepared(const terrace_database *database,
                                                          const void *id, size_t length,
                                                          terrace_error **error)
{
  if (is_failing())
  {
    __real_terrace_database_roll_back_prepared(database, NO_ID, sizeof(NO_ID), error);
    return TERRACE_FULL;
  }
  return __real_terrace_database_roll_back_prepared(database, id, length, error);
}

/* What was refused above is a full disk to the handler. */
terrace_status __wrap_terrace_error_status(const terrace_error *error)
{
  const terrace_status status = __real_terrace_error_status(error);
  const bool was_full = is_failing() || is_of_full(error);
  return status == TERRACE_INVALID && was_full ? TERRACE_FULL : status;
}
}
