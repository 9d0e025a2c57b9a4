#include "follower.h"
#include "belonging.h"
#include "ha_terrace.h"
#include "partitions.h"
#include "references.h"
#include "role.h"
#include "settle.h"
#include "yield.h"

#include "mysqld.h"
#include "sql_db.h"
#include "table_cache.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

/* The server exports it, and has it in no header. */
void my_dbopt_cleanup();

/* The name of this engine in definitions. */
static const Bytes ENGINE = "Terrace";
/* A start waits so long for the end of the log. */
static const ulonglong START_SECONDS = 120;
/* The thread looks so often for what the writer has changed. */
static const std::chrono::milliseconds LOOKS{100};
/* What waits for the end of a statement of the writer looks again after so long, first and at most. */
static const ulong FIRST_WAIT_MICROSECONDS = 2000, LONGEST_WAIT_MICROSECONDS = 50000;

static terrace_follower *follower;
static std::thread shower;
static std::mutex lock;
static std::condition_variable ending;
/* Have the lock. */
static std::shared_ptr<terrace_database> shown;
static bool ends = false;
static std::atomic<ulonglong> shown_generation{0};
/* Databases that this server has made, or has seen the writer have. Of the thread alone. */
static std::set<Bytes> databases;

std::shared_ptr<terrace_database> database_of_follower()
{
  std::lock_guard<std::mutex> guard(lock);
  return shown;
}

ulonglong generation() { return shown_generation; }

static bool show_database(Failure *failure)
{
  terrace_node_status now;
  if (terrace_follower_get_status(follower, &now, failure->out()) != TERRACE_OK)
    return false;
  std::shared_ptr<terrace_database> next(terrace_follower_database(follower, failure->out()),
                                         terrace_database_free);
  if (!next)
    return false;
  std::lock_guard<std::mutex> guard(lock);
  shown.swap(next);
  shown_generation = now.restarts + 1;
  return true;
}

/*
  Waits for the end of the log: until then tables of the writer are not there. Without the store a server
  that was here before shows what it had.
*/
static void wait_for_end()
{
  const ulonglong last = my_interval_timer() + START_SECONDS * 1000000000;
  while (follower_state().lag_ms == UINT64_MAX && !abort_loop)
  {
    if (my_interval_timer() > last)
    {
      sql_print_warning("Terrace: this server has not come to the end of the log of %s yet: %s",
                        role_store().c_str(), follower_note().c_str());
      return;
    }
    my_sleep(FIRST_WAIT_MICROSECONDS);
  }
}

bool begin_follower(const char *directory, const terrace_options *options, Failure *failure)
{
  follower = terrace_follow(role_store().c_str(), directory, options, failure->out());
  if (!follower)
    return false;
  wait_for_end();
  return show_database(failure);
}

void end_follower()
{
  {
    std::lock_guard<std::mutex> guard(lock);
    ends = true;
  }
  ending.notify_all();
  if (shower.joinable())
    shower.join();
  {
    std::lock_guard<std::mutex> guard(lock);
    shown.reset();
  }
  Failure failure;
  if (follower && terrace_follower_close(follower, failure.out()) != TERRACE_OK)
    sql_print_error("Terrace: closing failed: %s", failure.message());
  terrace_follower_free(follower);
  follower = nullptr;
  databases.clear();
  ends = false;
}

Follower_state follower_state()
{
  terrace_node_status now;
  Failure failure;
  Follower_state state;
  if (terrace_follower_get_status(follower, &now, failure.out()) == TERRACE_OK)
  {
    state.commit = now.commit;
    state.lag_ms = now.lag_ms;
  }
  return state;
}

Bytes follower_note()
{
  Failure failure;
  terrace_string *note = terrace_follower_note(follower, failure.out());
  const Bytes text = note ? terrace_string_text(note) : failure.message();
  terrace_string_free(note);
  return text;
}

/* An error that the client has been told. */
static int told() { return HA_ERR_GENERIC; }

/* The row of a table once no statement of the writer changes it. */
static int find_whole(THD *thd, const Bytes &table, Definition *one)
{
  const ulonglong last =
    my_interval_timer() + ulonglong(session_lock_wait_seconds(thd)) * 1000000000;
  ulong wait = FIRST_WAIT_MICROSECONDS;
  for (;;)
  {
    Failure failure;
    if (find_definition_row(table, nullptr, one, &failure) != TERRACE_OK)
      return tell(failure.handler_error(thd));
    if (!one->is_changing)
      break;
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    {
      my_error(ER_QUERY_INTERRUPTED, MYF(0));
      return told();
    }
    if (my_interval_timer() > last)
    {
      my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
      return told();
    }
    my_sleep(wait);
    wait = std::min(wait * 2, LONGEST_WAIT_MICROSECONDS);
  }
  if (!one->is_there)
    return HA_ERR_NO_SUCH_TABLE;
  if (!one->image.empty())
    return 0;
  my_printf_error(ER_NOT_FORM_FILE,
                  "Terrace: the definition of table %s is too large for the database, so servers that "
                  "follow its writer do not have the table",
                  MYF(0), table.c_str());
  return told();
}

int find_stamp(THD *thd, const Bytes &table, Stamp *stamp, Bytes *version)
{
  Definition one;
  // Of an earlier generation at worst, which is told from the next one.
  stamp->generation = generation();
  if (int error = find_whole(thd, table_of_partition(table), &one))
    return error;
  stamp->of_definition = one.stamp;
  *version = version_in(one.image);
  return 0;
}

bool has_stamp(const Bytes &table, const Stamp &stamp, const terrace_transaction *view)
{
  Definition one;
  Failure failure;
  return stamp.generation == generation() &&
         find_definition_row(table_of_partition(table), view, &one, &failure) == TERRACE_OK &&
         one.is_there && !one.is_changing && one.stamp == stamp.of_definition;
}

static int discover_table(handlerton *, THD *thd, TABLE_SHARE *share)
{
  const Bytes table = name_of(share->normalized_path.str);
  Definition one;
  if (!is_published(table))
    return HA_ERR_NO_SUCH_TABLE;
  if (int error = find_whole(thd, table, &one))
    return error;
  // The server reads the list of partitions from its file, which it writes with the definition.
  const bool has_list = !one.partitions.empty();
  const auto bytes = [](const Bytes &of) { return reinterpret_cast<const uchar *>(of.data()); };
  return share->init_from_binary_frm_image(thd, has_list, bytes(one.image), one.image.size(),
                                           has_list ? bytes(one.partitions) : nullptr,
                                           one.partitions.size());
}

static Bytes file_name(const char *name)
{
  char encoded[FN_REFLEN];
  tablename_to_filename(name, encoded, sizeof(encoded));
  return encoded;
}

static int discover_names(handlerton *, LEX_CSTRING *db, MY_DIR *,
                          handlerton::discovered_list *result)
{
  const Bytes beginning = file_name(db->str) + '/';
  Failure failure;
  bool is_full = false;
  const auto add = [&](const Bytes &name, const Definition &) {
    if (name.size() > beginning.size())
      is_full |= result->add_file(name.c_str() + beginning.size());
  };
  return each_definition(beginning, &failure, add) != TERRACE_OK || is_full;
}

static int discover_existence(handlerton *, const char *db, const char *table)
{
  Definition one;
  Failure failure;
  return find_definition_row(file_name(db) + '/' + file_name(table), nullptr, &one, &failure) !=
           TERRACE_OK ||
         one.is_there;
}

/* Makes a database, or gives it the options that it has at the writer. */
static void make_database(const Bytes &name, const Bytes &options)
{
  const Bytes folder = "./" + name, file = folder + MY_DB_OPT_FILE;
  Bytes here;
  if (access(folder.c_str(), F_OK) && my_mkdir(folder.c_str(), 0777, MYF(MY_WME)))
    return;
  databases.insert(name);
  if (read_file(file, &here) == File_read::FAILED || here == options)
    return;
  const Bytes anew = file + ".new";
  const File to = my_create(anew.c_str(), 0, O_WRONLY | O_TRUNC | O_CLOEXEC, MYF(MY_WME));
  const bool is_written = to >= 0 && !my_write(to, reinterpret_cast<const uchar *>(options.data()),
                                               options.size(), MYF(MY_WME | MY_NABP));
  if (to >= 0)
    my_close(to, MYF(MY_WME));
  if (is_written)
    my_rename(anew.c_str(), file.c_str(), MYF(MY_WME));
}

/* Whether the writer has no such table, as far as that can be read now. */
static bool is_gone(const Bytes &table)
{
  Definition one;
  Failure failure;
  return find_definition_row(table, nullptr, &one, &failure) == TERRACE_OK && !one.is_there;
}

/* Whether a definition is of a table with partitions of this engine. */
static bool is_partitioned_here(const Bytes &table)
{
  Bytes definition;
  return read_file("./" + table + reg_ext, &definition) == File_read::WHOLE &&
         is_partitioned_definition(definition) && partition_engine_in(definition) == ENGINE;
}

/*
  Files of partitioned tables that the writer has no more; at a start all, which are of any age. Of other
  tables the server keeps no files here.
*/
static void remove_stale_files(bool is_start)
{
  for (const Bytes &folder : files_in("."))
    for (const std::filesystem::path file : files_in("./" + folder))
    {
      const Bytes name = folder + '/' + file.stem().string();
      if (file.extension() != reg_ext || !is_published(name) || !is_partitioned_here(name) ||
          !(is_start || is_gone(name)))
        continue;
      my_delete(("./" + name + reg_ext).c_str(), MYF(0));
      my_delete(list_of(name).c_str(), MYF(0));
    }
}

/* A database that the writer has dropped goes if nothing of this server's own is in it. */
static void drop_database(const Bytes &name)
{
  const Bytes folder = "./" + name;
  for (const Bytes &file : files_in(folder))
    if (file != MY_DB_OPT_FILE)
      return;
  my_delete((folder + MY_DB_OPT_FILE).c_str(), MYF(0));
  rmdir(folder.c_str());
}

/* Brings this server's folders and caches to what the rows say now. */
static bool show_rows()
{
  Failure failure;
  std::set<Bytes> gone = databases;
  std::map<Bytes, Bytes> found;
  const auto note = [&](const Bytes &name, const Definition &one) {
    if (name.back() == '/' && one.is_there)
      found[name] = one.image;
  };
  if (each_definition(Bytes(), &failure, note) != TERRACE_OK)
  {
    sql_print_error("Terrace: cannot read the definitions of %s: %s", role_store().c_str(),
                    failure.message());
    return false;
  }
  for (const auto &one : found)
  {
    make_database(one.first, one.second);
    gone.erase(one.first);
  }
  remove_stale_files(false);
  for (const Bytes &name : gone)
  {
    drop_database(name);
    databases.erase(name);
  }
  my_dbopt_cleanup();
  // Tables that are not in use are opened anew, those in use with their next statement.
  tc_purge();
  return load_references();
}

static void keep_showing()
{
  my_thread_init();
  ulonglong seen_stamp = 0, seen_generation = generation();
  std::unique_lock<std::mutex> guard(lock);
  while (!ending.wait_for(guard, LOOKS, [] { return ends; }))
  {
    guard.unlock();
    Failure failure;
    terrace_node_status now;
    ulonglong stamp = seen_stamp;
    if (terrace_follower_get_status(follower, &now, failure.out()) == TERRACE_OK &&
        now.restarts + 1 != generation())
      show_database(&failure);
    if (newest_stamp(&stamp, &failure) == TERRACE_OK &&
        (stamp != seen_stamp || generation() != seen_generation) && show_rows())
    {
      seen_stamp = stamp;
      seen_generation = generation();
    }
    YIELD("shown");
    guard.lock();
  }
  guard.unlock();
  my_thread_end();
}

bool show_definitions(handlerton *hton)
{
  Bytes why;
  if (!reads_definitions(&why))
  {
    sql_print_error("Terrace: cannot follow %s: %s", role_store().c_str(), why.c_str());
    return false;
  }
  remove_stale_files(true);
  if (!show_rows())
    return false;
  hton->discover_table = discover_table;
  hton->discover_table_names = discover_names;
  hton->discover_table_existence = discover_existence;
  shower = std::thread(keep_showing);
  return true;
}
