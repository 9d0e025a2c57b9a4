/*
  What this server is to a shared store (docs/machines.md): its writer, one that another machine has
  taken the store from, or one that follows another machine. The last two only read. One that the store
  was taken from does so after a restart too.

  Thread safety: any thread, but for what the plugin calls when it starts.
*/
#ifndef TERRACE_HANDLER_ROLE_H
#define TERRACE_HANDLER_ROLE_H

#include "errors.h"
#include "server.h"

/*
  When the plugin starts. Fails, and says so, for a store that the other variables contradict. Sets
  the environment to what a file says of credentials: they are in no variable of the server.
*/
bool begin_role(const char *share, const char *follow, const char *object_store,
                const char *credentials_file);
/* Has the options of an opening say it. */
bool set_role(terrace_options *options, Failure *failure);

/* Whether it shares its database, or did, or follows another one's. */
bool has_role();
/* Whether it shows the database of another server. */
bool follows();
/* The name of the role, and the store. */
Bytes role_name();
Bytes role_store();
/* Why it only reads; empty where it does not. */
Bytes role_error();

/* Another machine has taken the store over. */
void begin_fenced(const char *reason);
/* Whether it only reads. */
bool only_reads();
/* Refuses what would change something where it only reads: says error 1290, and returns another one. */
int refuse_change();

#endif
