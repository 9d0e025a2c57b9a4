/*
  Kills the server before or behind a call of the library that creates, drops, renames or empties a
  table. A rename to the third partition of `blocked` fails, and so does the rename back from its
  second one behind that. A test can hold a connection before a rename and a drop (holds.cc).

  So does a sync of a directory. It also kills it where a statement is refused for the name of a table
  whose definition is lost.

  The variable TERRACE_KILL names a file with a number: how many such moments there are until the
  server dies. Without the file it lives. The variable TERRACE_DURABLE names a folder. It has links to
  the definitions that a power cut leaves in database `cut`, under the names that it leaves them: as
  of the last sync, and those that the server has created since. A plugin for tests is linked with
  this.
*/
#include "moments.h"
#include "terrace.h"
#include "yield.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace fs = std::filesystem;

/* Adds definitions that are not there yet. A file with one name is not. */
static void note_durable()
{
  const char *folder = getenv("TERRACE_DURABLE");
  std::error_code none;
  if (!folder || !fs::is_directory("./cut", none))
    return;
  fs::create_directories(folder, none);
  for (const fs::directory_entry &file : fs::directory_iterator("./cut", none))
  {
    const fs::path name = file.path().filename(), place = folder / name;
    if ((name.extension() != ".frm" && name.extension() != ".par") ||
        fs::hard_link_count(file.path(), none) > 1)
      continue;
    fs::remove(place, none);
    fs::create_hard_link(file.path(), place, none);
  }
}

void moment()
{
  note_durable();
  const char *path = getenv("TERRACE_KILL");
  FILE *file = path ? fopen(path, "r+") : nullptr;
  if (!file)
    return;
  int left = 0;
  if (fscanf(file, "%d", &left) == 1 && left <= 1)
    raise(SIGKILL);
  rewind(file);
  fprintf(file, "%d\n", left - 1);
  fclose(file);
}

int sync_at_moments(int (*sync)(const char *, unsigned long), const char *file, unsigned long flags)
{
  moment();
  const int failed = sync(file, flags);
  if (const char *folder = failed ? nullptr : getenv("TERRACE_DURABLE"))
  {
    std::error_code none;
    fs::remove_all(folder, none);
  }
  moment();
  return failed;
}

extern "C" {
terrace_table *__real_terrace_database_create_table(const terrace_database *, const char *,
                                                    const terrace_table_options *,
                                                    terrace_error **);
terrace_status __real_terrace_database_drop_table(const terrace_database *, const char *,
                                                  terrace_error **);
terrace_status __real_terrace_database_rename_table(const terrace_database *, const char *,
                                                    const char *, terrace_error **);
terrace_status __real_terrace_database_truncate_table(const terrace_database *, const char *,
                                                      terrace_error **);

terrace_table *__wrap_terrace_database_create_table(const terrace_database *database,
                                                    const char *name,
                                                    const terrace_table_options *options,
                                                    terrace_error **error)
{
  moment();
  terrace_table *made = __real_terrace_database_create_table(database, name, options, error);
  moment();
  return made;
}

terrace_status __wrap_terrace_database_drop_table(const terrace_database *database,
                                                  const char *name, terrace_error **error)
{
  moment();
  terrace_yield("drop");
  // The library refuses a database that is NULL.
  const terrace_status status = __real_terrace_database_drop_table(
    is_asked("refuse-drop") ? nullptr : database, name, error);
  moment();
  return status;
}

terrace_status __wrap_terrace_database_rename_table(const terrace_database *database,
                                                    const char *from, const char *to,
                                                    terrace_error **error)
{
  moment();
  terrace_yield("move");
  static bool fails_back = false;
  const bool is_blocked = strstr(to, "/blocked#P#p2");
  const bool is_back = fails_back && strstr(from, "/blocked#P#p1");
  fails_back = is_blocked || (fails_back && !is_back);
  const bool finds_full = is_full();
  // The library refuses a database that is NULL.
  const terrace_status status = __real_terrace_database_rename_table(
    is_blocked || is_back || finds_full ? nullptr : database, from, to, error);
  moment();
  return finds_full ? as_full(error) : status;
}

terrace_status __wrap_terrace_database_truncate_table(const terrace_database *database,
                                                      const char *name, terrace_error **error)
{
  moment();
  const terrace_status status = __real_terrace_database_truncate_table(database, name, error);
  moment();
  return status;
}
}
