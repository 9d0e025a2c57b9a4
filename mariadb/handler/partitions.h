/*
  Partitions, and the server's list of them.

  A partitioned table is a table of the library for each partition, and a file of the server that
  lists them, `.par`. The server changes these one after another. Its log of DDL has the table
  alone, so after a kill its recovery does not do all of this:

  - CREATE: it drops the table by its name, which no table of the library has, and leaves the list.
  - DROP: the list goes first. The recovery finds none, so it drops no partition.
  - RENAME: the list goes last. The recovery finds none under the new name, so it renames no
    partition back.
  - ALTER by a copy: it renames the copy by its name, which no table of the library has.

  The server syncs no list, so a power cut would leave it empty, and its table unusable.

  Thread safety: what the plugin calls when it starts has no thread beside it; the others are for
  any thread.
*/
#ifndef TERRACE_HANDLER_PARTITIONS_H
#define TERRACE_HANDLER_PARTITIONS_H

#include "errors.h"
#include "server.h"

/* Drops what the library has of a partitioned table. HA_ERR_NO_SUCH_TABLE if that is nothing. */
int drop_partitions_of(const Bytes &table);

/* Renames them, and the list. HA_ERR_NO_SUCH_TABLE if there are none, or no recovery asks. */
int rename_partitions_of(const Bytes &from, const Bytes &to);

/* Before a table is renamed: if it is a partition, notes where the whole table goes. */
terrace_status note_rename(const Bytes &from, const Bytes &to, Failure *failure);

/* When the plugin starts: has partitions follow their lists. The server has changed nothing yet. */
void follow_partitions(handlerton *hton);
/* Before the server reads its log of DDL: its drops of partitioned tables drop what has no list. */
void recovery_begins();

#endif
