/*
  Renames of tables, and the server's definitions of them.

  The server renames the tables of the library, then its own files, the definition (`.frm`) last and
  without a sync. A power cut may lose the last step of a rename that its log of DDL has ended. For
  partitions the log cannot undo a rename at all (partitions.h). So each rename is noted before it
  begins, until its files are durable. After a crash, and behind a statement that has failed, the
  handler undoes those renames whose old name still has a definition and whose new one has none, the
  newest first. A definition of a view, or of another engine's table, is none.

  Thread safety: any thread; a lock is held around the renames of each connection, and over no write. What the plugin
  calls when it starts has no thread beside it.
*/
#ifndef TERRACE_HANDLER_RENAMES_H
#define TERRACE_HANDLER_RENAMES_H

#include "errors.h"
#include "server.h"

/* Before a table of the library is renamed. */
terrace_status begin_rename(THD *thd, const Bytes &from, const Bytes &to, Failure *failure);

/* Before a table is dropped: makes earlier renames of the statement durable. */
int sync_renames(THD *thd);

/*
  The definition of a table changes in place: the server renames a new one to its name, without a
  sync, before the statement ends. Either one goes with what the library has.
*/
void note_definition(THD *thd, const Bytes &table);

/* At the end of a statement: undoes renames that have failed, makes the others durable, and forgets
   them. */
void end_renames(THD *thd);

/*
  At the end of a connection: as end_renames(). Another connection tries again what fails, since a
  later connection may lie at the same place.
*/
void leave_renames(THD *thd);

/* When the plugin starts, before the server reads its log of DDL: settles renames. */
void settle_renames();

bool has_definition(const Bytes &table);

/* When the server has recovered: its own renames are done. */
void forget_renames();

#endif
