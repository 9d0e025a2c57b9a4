/*
  Which table of the library belongs to which definition, whatever their names are.

  The server gives each definition that it makes a version, which goes with the file where that is
  renamed. Only a file that was copied beside the server has the version of another one. A table, or each
  of its partitions, gets the version of its definition as a mark before the first rename of a statement,
  and a copy gets it when it is made too. The mark goes with the table. It is of the last rename: a change
  in place gives a definition another version, and the next rename another mark. Where rows expire it
  expires as they do. So a mark says something beside the notes of renames alone (renames.h).

  Thread safety: any thread.
*/
#ifndef TERRACE_HANDLER_BELONGING_H
#define TERRACE_HANDLER_BELONGING_H

#include "errors.h"
#include "server.h"

#include <set>
#include <vector>

/* The version of a definition; empty for none, and for that of a view. */
Bytes version_of(const Bytes &table);
Bytes version_in(const Bytes &definition);
/* The engine of the partitions that a definition names; empty for none. */
Bytes partition_engine_in(const Bytes &definition);
/* The mark of a table of the library, or of the first partition of one; empty for none. */
Bytes mark_of(const Bytes &table);
/* Marks a table of the library. */
terrace_status mark(const terrace_table *table, const Bytes &version, Failure *failure);
/* Marks a table, or its partitions, with the version of the definition of the same name. */
terrace_status mark_all_of(const Bytes &table, Failure *failure);

/*
  Gives tables of some names those of their definitions, if these are among the same names. Where each
  waits for the name of another one, one goes aside. Returns the names of those that cannot be moved, and
  the name that one of them has left when it went aside.
*/
std::set<Bytes> place_tables(std::set<Bytes> names);

/*
  Whether a table is one whose move has failed, or one that waits for that. No statement opens, renames or
  drops it: it would write into the rows of another one, or mark them as its own. The next start moves it.
*/
bool is_astray(const Bytes &table);
/* Fails for such a table. */
int refuse_astray(const Bytes &table);

/* The name in a database whose definition has a version; empty for none. */
Bytes find_definition(const Bytes &database, const Bytes &version);

#endif
