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
  A connection carries out the verdict on a prepared transaction, which the log has by now, and says
  how that ended. No checkpoint is set until the library has a commit. What a connection could not
  carry out stays owed until it has succeeded: after a commit that succeeds it is tried again.
  verdict_begins() is false where the other verdict is owed, which the log has before this one.
*/
bool verdict_begins(const Bytes &id, bool to_commit);
void verdict_ended(const Bytes &id, bool has_succeeded);
/* Whether a call that carries a verdict out leaves nothing to do. */
bool is_done(terrace_status status);
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
