/*
  Which connection has a transaction of the library, for people, and for the server: it has to know who
  waits for whom.

  A replica applies transactions at once, and commits them in the order of the primary. One that comes
  first and waits for a lock of a later one would wait for ever, because that one waits for its turn.
  So the server ends the later one, which is applied again.

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_WAITS_H
#define TERRACE_HANDLER_WAITS_H

#include "server.h"

/* A connection has a transaction, and has it no more. */
void note_owner(ulonglong transaction, THD *thd);
void forget_owner(ulonglong transaction);

/* The library calls it: the calling connection is about to wait. */
void report_wait(void *, uint64_t waiter, uint64_t holder);

/* What people want to know of a transaction. */
struct Owner
{
  ulonglong connection;
  /* What the connection runs; empty between two statements. */
  Bytes query;
  /* One that it has waited for last, when it began to; 0 for none. */
  ulonglong blocker;
};

/* The owner of a transaction. False where no connection has it. */
bool find_owner(ulonglong transaction, Owner *owner);

#endif
