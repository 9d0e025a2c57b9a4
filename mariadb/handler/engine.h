/*
  What the whole plugin shares: the handlerton, the open database and the variables.

  Thread safety: set when the plugin starts, before any table is opened, and not changed after that. The
  database of a follower may become another one at any time; what was opened of the one before goes on.
*/
#ifndef TERRACE_HANDLER_ENGINE_H
#define TERRACE_HANDLER_ENGINE_H

#include "server.h"

#include <memory>

extern handlerton *terrace_hton;

/* The database, as long as this is in scope; none before it is open. */
class Database_ref
{
public:
  explicit Database_ref(terrace_database *of_start) : here(of_start) {}
  explicit Database_ref(const std::shared_ptr<terrace_database> &of_now)
    : here(of_now.get()), kept(of_now)
  {}
  operator terrace_database *() const { return here; }

private:
  terrace_database *here;
  std::shared_ptr<terrace_database> kept;
};

Database_ref database();
/* The folder among those of the server's databases that has the directory; empty for none. */
const Bytes &own_folder();

/* Session variables. */
ulong session_lock_wait_seconds(THD *thd);
/* TERRACE_RELAXED, TERRACE_DURABLE or TERRACE_REMOTE. */
uint session_durability(THD *thd);
ulonglong session_lock_limit(THD *thd);

/* Whether a table has a change that an ALTER TABLE has prepared: 0 if it has. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong change);

#endif
