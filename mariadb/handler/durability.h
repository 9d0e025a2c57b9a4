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

/* What is done here when the store may lack it. */
enum Done_here
{
  IS_COMMITTED,
  IS_ROLLED_BACK,
  /* It is rolled back because of that. */
  WAS_PREPARED,
  /* A sequence. */
  HAS_GONE_ON
};

/* Says that a kill has ended the wait. Returns an error of the handler. */
int tell_not_acknowledged(Done_here done);

/* A commit behind all others: the store has those before it. */
class Store_mark
{
public:
  Store_mark();
  ~Store_mark() { terrace_pending_free(pending); }
  Store_mark(const Store_mark &) = delete;
  Store_mark &operator=(const Store_mark &) = delete;

  /* Waits until the store has it. Says why, and fails, where it may not. */
  int wait(THD *thd, Done_here done);

private:
  Failure failure;
  terrace_pending *pending = nullptr;
};

/* Waits until the store has all commits so far. */
inline int wait_for_store(THD *thd, Done_here done) { return Store_mark().wait(thd, done); }

/*
  How durable what a statement writes is to be: TERRACE_RELAXED, TERRACE_DURABLE or TERRACE_REMOTE. It
  may be less than the session asks for.
*/
uint wanted_durability(THD *thd);

#endif
