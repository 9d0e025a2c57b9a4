/*
  Commits that wait for the shared store (terrace_durability=remote). Such a commit is done here, as
  any other one, and its locks are free: then it waits until the store has it. A kill ends the wait.

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_DURABILITY_H
#define TERRACE_HANDLER_DURABILITY_H

#include "errors.h"
#include "server.h"

/*
  Waits for a commit. False where it is done here, and a kill came before the store had it: that is no
  failure of the library. Otherwise *status and *failure are those of the commit.
*/
bool wait_for_remote(THD *thd, const terrace_pending *pending, terrace_status *status,
                     Failure *failure);
/* Says that a commit is done here, and that the store may lack it. Returns an error of the handler. */
int tell_not_acknowledged();
/* Waits until the store has all commits so far. Says why, and fails, where it may lack some. */
int wait_for_store(THD *thd);

#endif
