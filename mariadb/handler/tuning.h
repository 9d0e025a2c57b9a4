/*
  Global variables that change while the server runs.
*/
#ifndef TERRACE_HANDLER_TUNING_H
#define TERRACE_HANDLER_TUNING_H

#include "server.h"

/* Their values, as text; NULL for the library's default. */
extern char *tuned_pm_size, *tuned_threads, *tuned_bytes_per_second, *last_backup;

/* Check a value, and set it, as a variable of the server has them. */
int check_pm_size(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value);
int check_threads(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value);
int check_bytes_per_second(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value);
int check_backup(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value);
void set_pm_size(THD *, st_mysql_sys_var *, void *place, const void *save);
void set_threads(THD *, st_mysql_sys_var *, void *place, const void *save);
void set_bytes_per_second(THD *, st_mysql_sys_var *, void *place, const void *save);
/* Adds a backup to the set in a directory. */
void set_backup(THD *, st_mysql_sys_var *, void *place, const void *save);
/*
  Refuses mariadb-backup, which leaves out engines that it does not know, and says that all is well.
  It gets an error as it flushes the logs of engines.
*/
void set_backup_functions(handlerton *hton);

#endif
