/*
  Renames of tables, and the server's definitions of them.

  The server renames the tables of the library, then its own files, the definition (`.frm`) last and
  without a sync. A power cut may lose the last step of a rename that its log of DDL has ended. For
  partitions the log cannot undo a rename at all (partitions.h). So each rename is noted before it
  begins, until its files are durable. Behind a statement that has failed, and when a recovery has
  ended, tables go to the names of their definitions (settle.h). Before a recovery a definition gets the
  new name if the library has all of the table there. A rename begins when the definitions of those
  before it are durable, so a crash has one to settle.

  Thread safety: any thread; a lock is held around the renames of each connection, and over no write.
  What the plugin calls when it starts has no thread beside it.
*/
#ifndef TERRACE_HANDLER_RENAMES_H
#define TERRACE_HANDLER_RENAMES_H

#include "errors.h"
#include "server.h"

/*
  Before a table of the library is renamed. The way back of a rename that the statement has just noted
  is set as one, and is not noted.
*/
int begin_rename(THD *thd, const Bytes &from, const Bytes &to, bool *is_way_back);

/* Before a table is dropped: makes earlier renames of the statement durable. */
int sync_renames(THD *thd);

/*
  Before a table goes without a definition: in steps, by DROP TABLE of a lost one, or behind its
  definition, by an ALTER TABLE that gives its copy another engine and another name. Behind a crash
  between the steps the start drops the rest, which no statement of the server's log does. So it does
  with partitions that a recovery drops by a name that no table of the library has.
*/
int begin_drop(THD *thd, const Bytes &table);

/*
  The definition of a table changes in place, or goes: the server does that without a sync before the
  statement ends. A changed one and the one before go with what the library has. One that a power cut
  brings back for a dropped table goes with DROP TABLE.
*/
void note_definition(THD *thd, const Bytes &table);

/*
  Before a statement changes a table, or a partition of one, in the library: marks its definition
  (definitions.h). Where that fails the library has no space for it: what gives space back may go on.
*/
int begin_definition(THD *thd, const Bytes &name);

/*
  At the end of a statement, and of a connection: settles renames that have failed, makes the others
  durable, and forgets them. Publishes definitions. The end of another statement's tries again what is
  not durable, or not published.
*/
void end_renames(THD *thd);
/* Names whose rows the end of a statement is to write. */
void leave_unpublished(const std::set<Bytes> &names);

/*
  When the plugin starts: knows by which definitions drops are noted. A database that was taken over has
  the notes of a server whose definitions are on another machine: that a table has none here says nothing.
*/
bool begin_notes();

/*
  When the plugin starts, before the server recovers by its log of DDL: prepares what the log needs, and
  forgets no rename. When the server has recovered: settles all, and its own.
*/
void settle_renames(bool recovers);

bool has_definition(const Bytes &table);
/* Whether it has one of a partitioned table. */
bool has_partitioned_definition(const Bytes &table);

#endif
