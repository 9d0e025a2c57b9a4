/*
  Definitions of the server in the library, so that the machines that follow a database have them.

  The server keeps a definition in files, which lie on one machine. The library's table of definitions
  has a copy under the name of each table, and of each database under its name with a slash. Before a
  statement changes a table whose name others see, its row is marked as one that changes. When the
  statement has ended the row gets what the files are by then, and a new stamp. Both are commits, so
  a reader never takes rows of one definition for those of another: between the mark and the end it
  waits. A start compares all rows with the files, and ends what a crash or a failure has left.

  A table whose files are lost keeps its row. Names that no statement gives (`#sql-…`) have no rows. The
  server tells no handler when it has made, changed or dropped a database. The next statement that
  changes a table there notes that, or a start.

  Thread safety: the caller lets one thread in at a time.
*/
#ifndef TERRACE_HANDLER_DEFINITIONS_H
#define TERRACE_HANDLER_DEFINITIONS_H

#include "errors.h"
#include "server.h"

#include <functional>
#include <set>

struct Definition
{
  bool is_there = false, is_changing = false;
  ulonglong stamp = 0;
  /* Of a table the definition (`.frm`), empty where it is too large, and its list of partitions (`.par`). */
  Bytes image, partitions;
};

/* The row of a name as a transaction sees it, or the newest one without any; none is no error. */
terrace_status find_definition_row(const Bytes &name, const terrace_transaction *view, Definition *one,
                                   Failure *failure);
/* All newest rows whose names begin so. */
terrace_status each_definition(const Bytes &beginning, Failure *failure,
                               const std::function<void(const Bytes &, const Definition &)> &each);
/* What a server that reads the rows has to agree with: lower_case_table_names, and its version. */
bool reads_definitions(Bytes *why);
/* The greatest stamp of all rows. */
terrace_status newest_stamp(ulonglong *stamp, Failure *failure);

/* The name of the row of a table's or a partition's database. */
Bytes database_of(const Bytes &table);
/* Whether a table has a row: the engine's own, and what a statement uses for itself, have none. */
bool is_published(const Bytes &table);

/* Says that a definition changes, unless its row says so. Commits and changes of tables keep their order. */
terrace_status mark_definition(const Bytes &name, Failure *failure);
/*
  Gives rows what the files are now, all in one commit. What has not changed stays as it is, and so does a
  row whose files cannot be read. Whether all was done, or why not.
*/
bool publish_definitions(const std::set<Bytes> &names, Bytes *why);
/* When the server has recovered: all rows. Those that could not be written are left to other statements. */
std::set<Bytes> settle_definitions();

#endif
