/*
  A server that follows the shared store of another one: what it shows, and how its server learns of
  tables.

  The tables are those of the rows that the writer keeps of its definitions (definitions.h). The server
  asks for one when it opens a table that it does not know, and for each table that it has open when a
  statement takes it. So a follower has no files of definitions, but for those of partitioned tables: the
  server reads their lists from files.

  A row has a stamp, which changes with the definition, and with what TRUNCATE and RENAME TABLE make of a
  table. Invariants:

  1. A table that is open has the stamp that its row had before and behind its opening, and was whole. A
     writer marks a row before it changes the table, so the table is of that definition.
  2. A statement reads rows by a view in which the row of the definition has the stamp of the open table,
     and is whole. So rows are of the definition that they are read by.

  The library may have to start from a checkpoint. Then the database becomes another one, a generation
  later. Tables and transactions are of one generation: those of an earlier one are opened anew.

  Thread safety: any thread. begin_follower and end_follower have no thread beside them.
*/
#ifndef TERRACE_HANDLER_FOLLOWER_H
#define TERRACE_HANDLER_FOLLOWER_H

#include "definitions.h"
#include "engine.h"
#include "errors.h"

/* What tells one state of a table from another one. */
struct Stamp
{
  ulonglong generation = 0, of_definition = 0;
  bool operator==(const Stamp &other) const
  {
    return generation == other.generation && of_definition == other.of_definition;
  }
};

/* The one of this moment; none before it is open. */
std::shared_ptr<terrace_database> database_of_follower();

/* Begins to follow the store of the role, with the data of this server in a directory. */
bool begin_follower(const char *directory, const terrace_options *options, Failure *failure);
/* When the plugin is ready: the server asks for tables, and databases are made as the writer has them. */
bool show_definitions(handlerton *hton);
void end_follower();

/* How far it is: its last commit by the numbers of the writer, and its lag, UINT64_MAX while it starts. */
struct Follower_state
{
  ulonglong commit = 0, lag_ms = UINT64_MAX;
};
Follower_state follower_state();
/* Why it does not go on, if so. */
Bytes follower_note();
ulonglong generation();

/*
  The stamp of the definition of a table or a partition, and its version, once no statement of the writer
  changes it. Waits as long as a statement waits for a lock. 0, HA_ERR_NO_SUCH_TABLE, or an error that is
  told.
*/
int find_stamp(THD *thd, const Bytes &table, Stamp *stamp, Bytes *version);
/* Whether a definition has a stamp and is whole, as a transaction sees it; the newest without any. */
bool has_stamp(const Bytes &table, const Stamp &stamp, const terrace_transaction *view);

#endif
