#include "tuning.h"
#include "engine.h"
#include "errors.h"

#include "mysqld.h"

#include <atomic>
#include <mutex>

char *tuned_pm_size, *tuned_threads, *tuned_bytes_per_second, *last_backup;

/* What the library takes where a variable says nothing. */
static const size_t DEFAULT_THREADS = 2;

/* The text of a SET, which lives as long as the statement; NULL for none. */
static const char *text_of(THD *thd, st_mysql_value *value)
{
  char buffer[FN_REFLEN];
  int length = sizeof(buffer);
  const char *text = value->val_str(value, buffer, &length);
  return text ? thd->strmake(text, size_t(length)) : nullptr;
}

static int refuse(const char *message)
{
  my_printf_error(ER_WRONG_ARGUMENTS, "Terrace: %s", MYF(0), message);
  return 1;
}

/* The library says whether it takes a value. */
static int check_option(THD *thd, void *save, st_mysql_value *value, const char *name)
{
  const char *text = text_of(thd, value);
  if (!text)
    return refuse("a variable takes a text");
  Failure failure;
  terrace_options *options = terrace_options_new();
  const terrace_status status = terrace_options_set(options, name, text, failure.out());
  terrace_options_free(options);
  if (status != TERRACE_OK)
    return refuse(failure.message());
  *static_cast<const char **>(save) = text;
  return 0;
}

int check_pm_size(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  return check_option(thd, save, value, "pm_size");
}

int check_threads(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  return check_option(thd, save, value, "threads");
}

int check_bytes_per_second(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  return check_option(thd, save, value, "bytes_per_second");
}

int check_backup(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  const char *text = text_of(thd, value);
  if (!text || !*text)
    return refuse("terrace_backup takes the directory of a set of backups");
  *static_cast<const char **>(save) = text;
  return 0;
}

/* The number of a text that the library takes as one: with a unit if it has one. */
static ulonglong number_of(const char *text, ulonglong otherwise)
{
  if (!text)
    return otherwise;
  char *unit;
  const ulonglong number = strtoull(text, &unit, 10);
  while (*unit == ' ')
    unit++;
  static const char units[] = "KMGT";
  const char *found = *unit ? strchr(units, *unit) : nullptr;
  return found ? number << (10 * (found - units + 1)) : number;
}

static const char *asked_for(const void *save) { return *static_cast<const char *const *>(save); }

/*
  Keeps the text of a variable, unless the library has refused what it asks for. The server holds its
  lock of all variables: others read the text under it, so none is freed without it.
*/
static void keep(void *place, const char *text, terrace_status status, const Failure &failure)
{
  if (status != TERRACE_OK)
  {
    refuse(failure.message());
    return;
  }
  char *now = my_strdup(PSI_NOT_INSTRUMENTED, text, MYF(MY_WME));
  if (!now)
    return;
  char **variable = static_cast<char **>(place);
  my_free(*variable);
  *variable = now;
}

void set_pm_size(THD *, st_mysql_sys_var *, void *place, const void *save)
{
  Failure failure;
  const char *text = asked_for(save);
  keep(place, text,
       terrace_database_grow_pm(database(), number_of(text, 0), nullptr, failure.out()), failure);
}

/* Sets both numbers of the background. */
static void tune(void *place, const char *text, const char *threads, const char *bytes_per_second)
{
  Failure failure;
  const terrace_status status =
    terrace_database_tune_background(database(), number_of(threads, DEFAULT_THREADS),
                                     number_of(bytes_per_second, 0), failure.out());
  keep(place, text, status, failure);
}

void set_threads(THD *, st_mysql_sys_var *, void *place, const void *save)
{
  tune(place, asked_for(save), asked_for(save), tuned_bytes_per_second);
}

void set_bytes_per_second(THD *, st_mysql_sys_var *, void *place, const void *save)
{
  tune(place, asked_for(save), tuned_threads, asked_for(save));
}

void set_backup(THD *, st_mysql_sys_var *, void *place, const void *save)
{
  static std::mutex one_at_a_time;
  Failure failure;
  terrace_status status;
  const char *text = asked_for(save);
  // A backup takes long, and the server holds the lock of all variables.
  mysql_mutex_unlock(&LOCK_global_system_variables);
  {
    std::lock_guard<std::mutex> guard(one_at_a_time);
    status = terrace_database_backup(database(), text, nullptr, failure.out());
  }
  mysql_mutex_lock(&LOCK_global_system_variables);
  keep(place, text, status, failure);
}

/* Whether the server has tables of the engine, apart from temporary ones. */
static bool has_tables()
{
  Failure failure;
  terrace_strings *names = terrace_database_table_names(database(), failure.out());
  bool found = false;
  for (size_t i = 0; i < terrace_strings_len(names) && !found; i++)
  {
    const char *name = terrace_strings_at(names, i);
    found = name[0] != '#' && !strstr(name, "/#sql");
  }
  terrace_strings_free(names);
  return found;
}

/* Whether BACKUP STAGE has begun and not ended, in whatever connection. */
static std::atomic<bool> is_backed_up{false};

static void backup_begins() { is_backed_up = true; }
static void backup_ends() { is_backed_up = false; }

/* mariadb-backup flushes the logs of engines, and them alone, in another connection than the stages. */
static bool refuse_foreign_backup(handlerton *)
{
  THD *thd = current_thd;
  if (!thd || !is_backed_up || thd->lex->type != REFRESH_ENGINE_LOG || !has_tables())
    return false;
  my_printf_error(ER_ILLEGAL_HA,
                  "mariadb-backup copies no tables of Terrace. Use SET GLOBAL terrace_backup = "
                  "'DIRECTORY', or mariadb-dump --single-transaction",
                  MYF(0));
  return true;
}

void set_backup_functions(handlerton *hton)
{
  hton->prepare_for_backup = backup_begins;
  hton->end_backup = backup_ends;
  hton->flush_logs = refuse_foreign_backup;
}
