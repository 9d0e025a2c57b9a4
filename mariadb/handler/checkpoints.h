/*
  Checkpoints of the binary log.

  A commit that the synced log has, with its prepared transaction, is durable: after a crash the
  server reads the log and commits it. So the library enqueues it relaxed, without a sync. The server
  reads logs back to its last checkpoint alone, and purges older ones. Before it sets one it asks,
  and the library makes durable all commits of those logs with one sync.

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_CHECKPOINTS_H
#define TERRACE_HANDLER_CHECKPOINTS_H

#include "errors.h"
#include "server.h"

/* Whether what the server has written to the binary log survives a power cut. */
bool binary_log_is_durable();

/* Before the server sets a checkpoint: answers it once all earlier commits are durable. */
void checkpoint_requested(void *cookie);

/*
  The log has a commit that could not be enqueued, so no checkpoint is set until the library has it.
  Its connection tries again, and says how that ended.
*/
void commit_is_owed(const Bytes &id);
void owed_commit_ended(const Bytes &id, bool is_done);
/* A connection gives a prepared transaction up that it could not commit, or roll back. */
void verdict_is_owed(const Bytes &id, bool to_commit);
/* Whether the log has a commit that the library does not have. */
bool some_commits_are_owed();
/* After any commit: there may be space again for verdicts that connections have given up. */
void commit_succeeded();

/*
  Commits a prepared transaction, or rolls it back. A commit waits for space, and where something
  else is short for a while, until the connection is killed. A rollback, and a commit without a
  connection, is tried once.
*/
terrace_status carry_out(THD *thd, const Bytes &id, bool to_commit, Failure *failure);

#endif
