/*
  What the whole plugin shares: the handlerton, the open database and the variables.

  Thread safety: set when the plugin starts, before any table is opened, and not changed after that.
*/
#ifndef TERRACE_HANDLER_ENGINE_H
#define TERRACE_HANDLER_ENGINE_H

#include "server.h"

extern handlerton *terrace_hton;
extern terrace_database *terrace_db;

/* Session variables. */
ulong session_lock_wait_seconds(THD *thd);
/* TERRACE_RELAXED, TERRACE_DURABLE or TERRACE_REMOTE. */
uint session_durability(THD *thd);
ulonglong session_lock_limit(THD *thd);

/* Whether a table has a change that an ALTER TABLE has prepared: 0 if it has. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong change);

#endif
