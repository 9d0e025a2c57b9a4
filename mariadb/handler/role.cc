#include "role.h"
#include "engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sys/stat.h>

static Bytes store;
static bool is_follower = false;
static std::atomic<bool> fenced{false};
static std::mutex lock;
/* Has the lock. */
static Bytes reason_of_fence;

/* A URL is shown to users, and is written to logs: it must have no credentials. */
static bool is_plain_url(const Bytes &url)
{
  for (const char one : url)
    if (one == '@' || one == '?' || uchar(one) <= ' ' || one == 0x7f)
      return false;
  return url.find("://") != Bytes::npos;
}

/* What the tools of clouds read from the environment. */
static bool is_of_credentials(const Bytes &name)
{
  for (const char *beginning : {"AWS_", "GOOGLE_", "AZURE_"})
    if (!name.compare(0, strlen(beginning), beginning))
      return true;
  return false;
}

/* Names of credentials have nothing else, not even a blank. */
static bool is_plain_name(const Bytes &name)
{
  return std::all_of(name.begin(), name.end(), [](uchar one) {
    return (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') || one == '_';
  });
}

/* No message has a value. */
static bool read_credentials(const char *path)
{
  struct stat found;
  if (stat(path, &found) || !S_ISREG(found.st_mode))
  {
    sql_print_error("Terrace: there is no file of credentials %s", path);
    return false;
  }
  if (found.st_mode & (S_IRWXG | S_IRWXO))
  {
    sql_print_error("Terrace: others may use the file of credentials %s: chmod 600", path);
    return false;
  }
  if (found.st_uid != geteuid() && found.st_uid != 0)
  {
    sql_print_error("Terrace: the file of credentials %s is of another user than the server", path);
    return false;
  }
  std::ifstream file(path);
  std::string line;
  for (uint number = 1; std::getline(file, line); number++)
  {
    if (!line.empty() && line.back() == '\r')
      line.pop_back();
    const size_t end = line.find('=');
    if (line.empty() || line[0] == '#')
      continue;
    const Bytes name = line.substr(0, end);
    if (end == Bytes::npos || !is_of_credentials(name) || !is_plain_name(name))
    {
      sql_print_error("Terrace: line %u of %s is none of NAME=value with a name that begins with AWS_, "
                      "GOOGLE_ or AZURE_",
                      number, path);
      return false;
    }
    setenv(name.c_str(), line.c_str() + end + 1, 1);
  }
  // One that is not open has no end.
  if (!file.eof() || file.bad())
  {
    sql_print_error("Terrace: cannot read the file of credentials %s", path);
    return false;
  }
  return true;
}

bool begin_role(const char *share, const char *follow, const char *object_store,
                const char *credentials_file)
{
  is_follower = follow && *follow;
  store = is_follower ? follow : share ? share : "";
  fenced = false;
  if (is_follower && share && *share)
  {
    sql_print_error("Terrace: a server shares its database or follows another one: leave "
                    "terrace_share or terrace_follow out");
    return false;
  }
  const char *variable = is_follower ? "terrace_follow" : "terrace_share";
  if (!store.empty() && !is_plain_url(store))
  {
    sql_print_error("Terrace: %s takes the URL of a store, without credentials, which "
                    "terrace_credentials_file or the environment has",
                    variable);
    return false;
  }
  if (!store.empty() && object_store && *object_store && store != object_store)
  {
    sql_print_error("Terrace: terrace_object_store is another store than %s: cold levels of a shared "
                    "database lie in its store, so leave terrace_object_store out",
                    variable);
    return false;
  }
  return !credentials_file || !*credentials_file || read_credentials(credentials_file);
}

/*
  The function may call the library, which says who has the store. An opening tells of its own end
  before there is a database.
*/
static void on_event(void *, const char *name, const char *json)
{
  if (strcmp(name, "role_change") || !strstr(json, "\"fenced\""))
    return;
  Failure failure;
  if (!database() || terrace_database_sync(database(), failure.out()) != TERRACE_FENCED)
    begin_fenced("another machine has taken the store over");
  else
    begin_fenced(failure.message());
}

bool set_role(terrace_options *options, Failure *failure)
{
  if (!has_role())
    return true;
  if (terrace_options_set(options, "object_store", store.c_str(), failure->out()) != TERRACE_OK)
    return false;
  return is_follower ||
         (terrace_options_set(options, "share", fenced ? "off" : "on", failure->out()) == TERRACE_OK &&
          terrace_options_on_event(options, on_event, nullptr, failure->out()) == TERRACE_OK);
}

bool has_role() { return !store.empty(); }
bool follows() { return is_follower; }
Bytes role_name() { return is_follower ? "follower" : fenced ? "fenced" : "writer"; }
Bytes role_store() { return store; }

Bytes role_error()
{
  std::lock_guard<std::mutex> guard(lock);
  return reason_of_fence;
}

void begin_fenced(const char *reason)
{
  {
    std::lock_guard<std::mutex> guard(lock);
    if (fenced)
      return;
    reason_of_fence = reason;
    fenced = true;
  }
  sql_print_error("Terrace: this server only reads from now on: %s", reason);
}

bool only_reads() { return is_follower || fenced; }

int refuse_change()
{
  if (!only_reads())
    return 0;
  my_printf_error(ER_OPTION_PREVENTS_STATEMENT,
                  is_follower ? "Terrace: this server follows the shared store of another one, so it "
                                "only reads (--terrace-follow)"
                              : "Terrace: another machine has taken the shared store over, so this "
                                "server only reads (--terrace-share)",
                  MYF(0));
  return HA_ERR_TABLE_READONLY;
}
