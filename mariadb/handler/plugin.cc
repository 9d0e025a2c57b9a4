/*
  The plugin: its variables, how it starts and stops, and its status.
*/
#include "attributes.h"
#include "engine.h"
#include "follower.h"
#include "ha_terrace.h"
#include "mysqld.h"
#include "partitions.h"
#include "recovery.h"
#include "references.h"
#include "renames.h"
#include "role.h"
#include "status.h"
#include "tuning.h"
#include "waits.h"

#include <algorithm>
#include <fstream>
#include <string>

handlerton *terrace_hton;
static terrace_database *terrace_db;

Database_ref database()
{
  return follows() ? Database_ref(database_of_follower()) : Database_ref(terrace_db);
}

/* Where the database lies unless a variable says so, and where earlier releases put it. */
static const char DEFAULT_DIR[] = "#terrace.d";
static const char *const FORMER_DIRS[] = {"#terrace", "terrace-data"};

/* The server exports it, and has it in no header: a folder of that name is no database. */
void ignore_db_dirs_append(const char *dirname);

static char *data_dir, *pm_path, *mode, *memory_index, *cache_size, *memory, *level1_size,
  *compression, *direct_io, *object_store, *object_cache, *monitor_address, *monitor_token_file, *share,
  *follow, *node_name, *credentials_file;
static terrace_monitor *monitor;

#define TERRACE_OPTION(name, text) \
  static MYSQL_SYSVAR_STR(name, name, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG, text, nullptr, \
                          nullptr, nullptr)

/* A variable that changes while the server runs. */
#define TERRACE_TUNING(name, variable, text) \
  static MYSQL_SYSVAR_STR(name, variable, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC, text, \
                          check_##name, set_##name, nullptr)

static MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                        "The directory of the database; one in the server's data directory if it "
                        "is a relative path",
                        nullptr, nullptr, DEFAULT_DIR);
TERRACE_TUNING(pm_size, tuned_pm_size, "The size of the region, such as 256MiB. It can grow");
TERRACE_OPTION(pm_path, "The file of the region, if it is not in the directory");
TERRACE_OPTION(mode, "How the region is made durable: file, dax or emulated");
static MYSQL_SYSVAR_STR(index, memory_index, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                        "The index over level 0: volatile or persistent", nullptr, nullptr,
                        nullptr);
TERRACE_OPTION(cache_size, "The size of the block cache, or none for a part of the memory");
TERRACE_OPTION(memory, "The limit of all memory, or none");
TERRACE_OPTION(level1_size, "The size of level 1, or none for the default");
TERRACE_OPTION(compression, "none, lz4 or zstd; or two of them, for level 1 and the deeper ones");
TERRACE_OPTION(direct_io, "on, off, or none for the default");
TERRACE_OPTION(object_store, "The URL of the object store for tables with TERRACE_TIER=OBJECT");
TERRACE_OPTION(object_cache, "The size of what is kept here of objects");
TERRACE_OPTION(share, "The URL of the object store that all commits are shipped to, so that other "
                      "machines can follow or take over");
TERRACE_OPTION(follow, "The URL of the object store of another server, whose tables this one shows. It "
                       "only reads them");
TERRACE_OPTION(node_name, "The name under which the store keeps what this server has not read yet while "
                          "it is away");
TERRACE_OPTION(credentials_file, "A file with lines NAME=value of credentials for object stores, as "
                                 "AWS_SECRET_ACCESS_KEY, which nobody else may read");
TERRACE_OPTION(monitor_address, "Where the page of the database is served, such as 127.0.0.1:8080");
TERRACE_OPTION(monitor_token_file, "A file with the token that the page asks for, which an address "
                                   "of other machines needs");
TERRACE_TUNING(threads, tuned_threads, "How many threads the background has");
TERRACE_TUNING(bytes_per_second, tuned_bytes_per_second,
               "How many bytes a second compactions may write; 0 for no bound");
static MYSQL_SYSVAR_STR(backup, last_backup, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
                        "Adds a backup to the set in a directory of the server, when it is set",
                        check_backup, set_backup, nullptr);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                          "How many seconds a statement waits for a row that another transaction "
                          "has locked. lock_wait_timeout holds too, if it is less",
                          nullptr, nullptr, 50, 0, 1024 * 1024 * 1024, 0);
static const char *durabilities[] = {"relaxed", "local", "remote", nullptr};
static TYPELIB durability_names = {array_elements(durabilities) - 1, nullptr, durabilities, nullptr};
static const uint of_durabilities[] = {TERRACE_RELAXED, TERRACE_DURABLE, TERRACE_REMOTE};
enum Durability { RELAXED, LOCAL, REMOTE };

/* A commit waits for the store of terrace_share alone. */
static int check_durability(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  long long number = 0;
  char buffer[16];
  int length = sizeof(buffer);
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING)
  {
    const char *text = value->val_str(value, buffer, &length);
    number = text ? find_type(text, &durability_names, 0) - 1 : -1;
  }
  else if (value->val_int(value, &number))
    number = -1;
  if (number < RELAXED || number > REMOTE)
    return 1;
  if (number == REMOTE && !has_role())
  {
    my_printf_error(ER_WRONG_ARGUMENTS, "Terrace: terrace_durability=remote needs terrace_share",
                    MYF(0));
    return 1;
  }
  *static_cast<ulong *>(save) = ulong(number);
  return 0;
}

static MYSQL_THDVAR_ENUM(durability, PLUGIN_VAR_RQCMDARG,
                         "What commits survive: relaxed, the death of the server; local, a power cut "
                         "too; remote, the loss of the machine, since the shared store has them",
                         check_durability, nullptr, LOCAL, &durability_names);
static MYSQL_THDVAR_ULONGLONG(lock_limit, PLUGIN_VAR_RQCMDARG,
                              "The bytes of memory that locks of one transaction may take", nullptr,
                              nullptr, 64 << 20, 1 << 16, ULONGLONG_MAX, 0);

ulong session_lock_wait_seconds(THD *thd)
{
  return std::min<ulong>(THDVAR(thd, lock_wait_timeout), thd->variables.lock_wait_timeout);
}
uint session_durability(THD *thd) { return of_durabilities[THDVAR(thd, durability)]; }
ulonglong session_lock_limit(THD *thd) { return THDVAR(thd, lock_limit); }

static struct st_mysql_sys_var *variables[] = {
  MYSQL_SYSVAR(data_dir),
  MYSQL_SYSVAR(pm_size),
  MYSQL_SYSVAR(pm_path),
  MYSQL_SYSVAR(mode),
  MYSQL_SYSVAR(index),
  MYSQL_SYSVAR(cache_size),
  MYSQL_SYSVAR(memory),
  MYSQL_SYSVAR(level1_size),
  MYSQL_SYSVAR(compression),
  MYSQL_SYSVAR(direct_io),
  MYSQL_SYSVAR(object_store),
  MYSQL_SYSVAR(object_cache),
  MYSQL_SYSVAR(share),
  MYSQL_SYSVAR(follow),
  MYSQL_SYSVAR(node_name),
  MYSQL_SYSVAR(credentials_file),
  MYSQL_SYSVAR(monitor_address),
  MYSQL_SYSVAR(monitor_token_file),
  MYSQL_SYSVAR(threads),
  MYSQL_SYSVAR(bytes_per_second),
  MYSQL_SYSVAR(backup),
  MYSQL_SYSVAR(lock_limit),
  MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(durability),
  nullptr};

static bool set_options(terrace_options *options, Failure *failure)
{
  const char *of_all[][2] = {{"pm_size", tuned_pm_size},
                             {"pm_path", pm_path},
                             {"mode", mode},
                             {"index", memory_index},
                             {"cache_size", cache_size},
                             {"memory", memory},
                             {"level1_size", level1_size},
                             {"compression", compression},
                             {"direct_io", direct_io},
                             {"object_store", object_store},
                             {"object_cache", object_cache},
                             {"follower_name", follows() ? node_name : nullptr},
                             {"threads", tuned_threads},
                             {"bytes_per_second", tuned_bytes_per_second}};
  for (auto &option : of_all)
    if (option[1] && terrace_options_set(options, option[0], option[1], failure->out()))
      return false;
  return set_role(options, failure);
}

/* A verification ends with its statement. A backup goes on: it may take longer than one may. */
static bool goes_on(void *, const char *operation, uint64_t, uint64_t)
{
  THD *thd = current_thd;
  return !thd || strcmp(operation, "verify") || thd_kill_level(thd) == THD_IS_NOT_KILLED;
}

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *mem_root)
{
  if (!share && current_thd)
    refuse_lost_name(current_thd);
  return new (mem_root) ha_terrace(hton, share);
}

/* Temporary tables end with the server, and a crash leaves their tables here. */
static void drop_temporary_tables()
{
  if (only_reads())
    return;
  for (const Bytes &name : library_tables())
  {
    Failure failure;
    if (is_temporary(name) &&
        terrace_database_drop_table(terrace_db, name.c_str(), failure.out()) != TERRACE_OK)
      sql_print_warning("Terrace: cannot drop temporary table %s: %s", name.c_str(),
                        failure.message());
  }
}

/*
  The directory lies among those of the server's databases. Statements can name any folder there, as
  `#mysql50#…`, unless its name has a dot. They would list, dump, rename and drop it. So one with a
  name from before is renamed.
*/
static bool take_over_former()
{
  for (const char *former : FORMER_DIRS)
  {
    if (strcmp(data_dir, DEFAULT_DIR) || !access(DEFAULT_DIR, F_OK) || access(former, F_OK))
      continue;
    if (rename(former, DEFAULT_DIR) || my_sync_dir(".", MYF(MY_WME)))
    {
      sql_print_error("Terrace: cannot rename the directory %s of the database to %s (%s). Rename "
                      "it, or set terrace_data_dir=%s",
                      former, DEFAULT_DIR, strerror(errno), former);
      return false;
    }
    sql_print_information("Terrace: the directory of the database is %s now; it was %s", DEFAULT_DIR,
                          former);
  }
  return true;
}

static Bytes folder_of_directory;
const Bytes &own_folder() { return folder_of_directory; }

/* The folder of the server's data that has the directory is no database. */
static void hide_from_databases()
{
  folder_of_directory.clear();
  Bytes path = data_dir;
  const Bytes home = mysql_real_data_home;
  if (!path.compare(0, home.size(), home))
    path.erase(0, home.size());
  else if (path[0] == FN_LIBCHAR)
    return;
  Bytes folder;
  // A path may begin with "./", and have more slashes than it needs.
  for (size_t at = 0; at < path.size() && (folder.empty() || folder == "."); at++)
  {
    const size_t end = std::min(path.find(FN_LIBCHAR, at), path.size());
    folder = path.substr(at, end - at);
    at = end;
  }
  folder_of_directory = folder;
  if (!folder.empty())
    ignore_db_dirs_append(folder.c_str());
}

static const char *no_extensions[] = {nullptr};

/* The first word of a file. */
static bool read_token(const char *path, std::string *token)
{
  std::ifstream file(path);
  return bool(file >> *token);
}

/* Serves the page, if a variable asks for it. A server starts without it too. */
static void serve_page()
{
  if (!monitor_address || !*monitor_address)
    return;
  std::string token;
  const bool has_token = monitor_token_file && *monitor_token_file;
  if (has_token && !read_token(monitor_token_file, &token))
  {
    sql_print_error("Terrace: no page is served: %s has no token", monitor_token_file);
    return;
  }
  Failure failure;
  monitor = terrace_monitor_serve(database(), monitor_address, has_token ? token.c_str() : nullptr,
                                  failure.out());
  if (!monitor)
    sql_print_error("Terrace: %s", failure.message());
  else
    sql_print_information("Terrace: the page of the database is at %s, port %u", monitor_address,
                          uint(terrace_monitor_port(monitor)));
}

/* How long a start waits for a shared store that is away: without its tables the server is no use. */
static const ulonglong STORE_SECONDS = 120;
static const ulong RETRY_MICROSECONDS = 1000000;

/* Opens the database, once the shared store answers. */
static void open_with_store(terrace_options *options, Failure *failure)
{
  const ulonglong last = my_interval_timer() + STORE_SECONDS * 1000000000;
  for (;;)
  {
    if (follows())
      begin_follower(data_dir, options, failure);
    else
      terrace_db = terrace_open(data_dir, options, failure->out());
    if (database() || !has_role() || failure->status() != TERRACE_UNAVAILABLE || abort_loop ||
        my_interval_timer() > last)
      return;
    end_follower();
    sql_print_warning("Terrace: the start waits for the shared store: %s", failure->message());
    failure->clear();
    my_sleep(RETRY_MICROSECONDS);
  }
}

/*
  Opens the database. One that another machine has taken the store from is opened to read, so that its
  tables are there. A store that was never this database's is an error.
*/
static bool open_database()
{
  Failure failure, of_reader;
  terrace_options *options = terrace_options_new();
  if (set_options(options, &failure) &&
      terrace_options_set_lock_waits(options, report_wait, nullptr, failure.out()) == TERRACE_OK &&
      terrace_options_set_progress(options, goes_on, nullptr, failure.out()) == TERRACE_OK)
    open_with_store(options, &failure);
  if (!database() && !follows() && failure.status() == TERRACE_FENCED)
  {
    begin_fenced(failure.message());
    if (set_role(options, &of_reader))
      terrace_db = terrace_open_read_only(data_dir, options, of_reader.out());
  }
  terrace_options_free(options);
  const bool is_open = database();
  const bool is_of_reader = only_reads() && !follows();
  if (!is_open)
    sql_print_error("Terrace: cannot open the database in %s: %s", data_dir,
                    is_of_reader ? of_reader.message() : failure.message());
  return is_open;
}

static int start(void *place)
{
  terrace_hton = static_cast<handlerton *>(place);
  terrace_hton->db_type = DB_TYPE_AUTOASSIGN;
  terrace_hton->create = create_handler;
  terrace_hton->flags = HTON_SUPPORTS_FOREIGN_KEYS;
  terrace_hton->tablefile_extensions = no_extensions;
  terrace_hton->table_options = table_attributes;
  terrace_hton->show_status = show_engine_status;
  terrace_hton->check_version = check_version;
  set_backup_functions(terrace_hton);
  set_transaction_functions(terrace_hton);

  if (!take_over_former() || !begin_role(share, follow, object_store, credentials_file))
    return 1;
  // No check comes before the start.
  if (THDVAR(nullptr, durability) == REMOTE && !has_role())
  {
    sql_print_error("Terrace: terrace_durability=remote needs terrace_share");
    return 1;
  }
  hide_from_databases();
  if (!open_database())
    return 1;
  drop_temporary_tables();
  if (!load_references())
    return 1;
  Open_table::find_keeper();
  if (follows() && !show_definitions(terrace_hton))
  {
    end_follower();
    return 1;
  }
  if (!only_reads() && !begin_notes())
  {
    sql_print_error("Terrace: cannot make a file beside the definitions of tables");
    return 1;
  }
  prepare_recovery(terrace_hton);
  serve_page();
  return 0;
}

static int stop(void *)
{
  if (!database())
    return 0;
  terrace_monitor_free(monitor);
  monitor = nullptr;
  give_drop_back();
  if (follows())
  {
    end_follower();
    return 0;
  }
  Failure failure;
  if (terrace_close(terrace_db, failure.out()) != TERRACE_OK)
    sql_print_error("Terrace: closing failed: %s", failure.message());
  terrace_database_free(terrace_db);
  terrace_db = nullptr;
  return 0;
}

static struct st_mysql_storage_engine storage_engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

#define TERRACE_SCHEMA_TABLE(name, text, begin) \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN, &engine_schema, name, "Terrace", text, PLUGIN_LICENSE_GPL, \
   begin, nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_EXPERIMENTAL}

maria_declare_plugin(terrace){
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &storage_engine,
  "Terrace",
  "Terrace",
  "A transactional LSM storage engine whose newest level is its log",
  PLUGIN_LICENSE_GPL,
  start,
  stop,
  0x0001,
  engine_status_variables,
  variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_EXPERIMENTAL,
},
  TERRACE_SCHEMA_TABLE("TERRACE_TABLES", "Records and bytes of tables", start_tables_table),
  TERRACE_SCHEMA_TABLE("TERRACE_TRANSACTIONS", "Open transactions, and what they wait for",
                       start_transactions_table),
  TERRACE_SCHEMA_TABLE("TERRACE_STATISTICS", "Numbers of the database", start_statistics_table),
  TERRACE_SCHEMA_TABLE("TERRACE_LEVELS", "Levels of tables on disk", start_levels_table),
  TERRACE_SCHEMA_TABLE("TERRACE_REGION", "The region, and the pace of writers",
                       start_region_table),
  TERRACE_SCHEMA_TABLE("TERRACE_COMPACTIONS", "Drains, compactions and other background jobs",
                       start_compactions_table),
  TERRACE_SCHEMA_TABLE("TERRACE_MEMORY", "What is held in memory", start_memory_table),
  TERRACE_SCHEMA_TABLE("TERRACE_NODES", "Servers of a shared store", start_nodes_table)
maria_declare_plugin_end;
