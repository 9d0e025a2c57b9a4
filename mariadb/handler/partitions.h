/*
  Partitions, and the server's list of them.

  A partitioned table is a table of the library for each partition, and a file of the server that
  lists them, `.par`. The server changes these one after another. Its log of DDL has the table
  alone, so after a kill its recovery does not do all of this:

  - CREATE: it drops the table by its name, which no table of the library has, and leaves the list.
    Where there is none, the partitions stay.
  - DROP: the list goes first. The recovery finds none, so it drops no partition.
  - RENAME: the list goes last. The recovery finds none under the new name, so it renames no
    partition back (renames.h does).
  - ALTER by a copy: it renames the copy by its name, which no table of the library has.

  The server syncs no list, so a power cut would leave it empty, and its table unusable.

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_PARTITIONS_H
#define TERRACE_HANDLER_PARTITIONS_H

#include "errors.h"
#include "server.h"

#include <vector>

/* The table that a partition belongs to; the name itself for another table. */
Bytes table_of_partition(const Bytes &name);
std::vector<Bytes> partitions_of(const Bytes &table);
/* Whether the library has a table, or partitions of it. */
bool has_any(const Bytes &table);
/*
  Whether a recovery is to drop a table whose definition was lost before. The server logs CREATE TABLE
  before it asks a handler, which refuses such a name. What the statement has made has a definition:
  that is written, and synced, before the library has a table, and goes behind it.
*/
bool keeps_lost(const Bytes &table);
/* Fails for a name that a table with a lost definition has. */
int fail_as_taken(const Bytes &table);
/*
  Has a statement fail that gives such a name to a table it makes, or to a copy, when the server makes
  a handler for that. The server looks for errors behind this, and then writes another list over the
  one that is there. A recovery could not take back what a kill cuts later.
*/
void refuse_lost_name(THD *thd);
/* The server's list of partitions. */
Bytes list_of(const Bytes &table);
bool has_list(const Bytes &table);
/* Whether it has this partition; `if_unread` where it cannot be read. */
bool is_listed(const Bytes &partition, bool if_unread);
/* Whether a table is the partition of this name in SQL, or a subpartition of it. */
bool is_part_of(const Bytes &name, const char *partition);
int drop_each(const std::vector<Bytes> &names);

/*
  Drops what the library has of a partitioned table without a definition. HA_ERR_NO_SUCH_TABLE if
  that is nothing, or is left until the server has recovered.
*/
int drop_partitions_of(const Bytes &table);
/* Renames them, and the list. HA_ERR_NO_SUCH_TABLE if there are none, or no recovery asks. */
int rename_partitions_of(const Bytes &from, const Bytes &to);
/* Renames the list, if there is none of the new name. */
void move_list(const Bytes &from, const Bytes &to);
/*
  Renames some of a table and its partitions, or all that there is, and the list: where the library
  has none of the new names.
*/
terrace_status move_pieces(const std::vector<Bytes> &names, const Bytes &from, const Bytes &to,
                           Failure *failure);
terrace_status move_table(const Bytes &from, const Bytes &to, Failure *failure);

/*
  The server calls it when it has written a list, before it creates partitions, and when it has
  renamed one. It makes that durable. A list for a name that the library has is refused.
*/
int list_changed(const char *path, const char *old_path, chf_create_flags change);

#endif
