/*
  Columns of foreign keys: which index has them, and how a value of one table is looked up in another.

  Thread safety: of the tables that are given.
*/
#ifndef TERRACE_HANDLER_FOREIGN_COLUMNS_H
#define TERRACE_HANDLER_FOREIGN_COLUMNS_H

#include "server.h"

#include <vector>

typedef std::vector<Field *> Columns;

/* Whether a table can be a child or a parent: its rows do not expire, and have no versions. */
bool can_have_keys(const TABLE *table);
/* The columns of a table by their names; empty where one is not there. */
Columns columns_of(const TABLE *table, const std::vector<Bytes> &names);
/* An index whose first parts are the whole columns, in their order; MAX_KEY for none. */
uint index_of(const TABLE *table, const Columns &columns);
/* Whether values of two columns can be compared as they are. */
bool can_compare(const Field *one, const Field *other);
bool can_compare(const Columns &one, const Columns &other);

/* Whether a record has NULL in a column. */
bool has_null(const TABLE *table, const uchar *record, const Columns &columns);
/* Whether two records differ in a column, byte by byte: other letters of one weight differ. */
bool differ(const TABLE *table, const uchar *one, const uchar *other, const Columns &columns);
/*
  Copies columns of a record into the first record of another table. False where a value does not fit
  there: no row of that table has it.
*/
bool copy_columns(const TABLE *table, const uchar *record, const Columns &from, const Columns &to);

#endif
