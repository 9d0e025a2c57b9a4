/*
  What a table of the library says of its own layout, once an ALTER TABLE has changed it in place:
  which number the entries of an index begin with, and what columns rows have that were written
  before a column was added or dropped.

  It is a record beside the counters. A table that was only created and copied has none: its index
  number n is the n-th of the server's definition, and all of its rows have all columns.

  An index is its number. A name is one in a definition: ALTER TABLE may give the name of an index to
  another one, and both definitions are in use while the change is under way. So the record has the
  numbers of either definition by its own names, and tells the two by the version that the server
  gives each definition.

  Crash argument. The record and the server's .frm are not written together. So the record holds
  what both definitions need, the old one and the new one, from before the server switches. Dropped
  columns are marked as the last thing before the switch. The numbers of the change under way and of
  the last committed one tell the server, which starts after a crash, whether the new definition
  holds. Whichever .frm a crash leaves finds the numbers of its indexes. The first handler that opens
  the table later forgets the other definition, and removes the entries that it alone has.

  Thread safety: a Layout does not change once it is shared.
*/
#ifndef TERRACE_HANDLER_LAYOUT_H
#define TERRACE_HANDLER_LAYOUT_H

#include "server.h"

#include <map>
#include <memory>
#include <vector>

/* No index has this number. */
static const uint NO_NUMBER = UINT_MAX;
/* More numbers would reach the prefix of chunks. */
static const uint MAX_NUMBERS = 250;

/* A column of rows: one of the table, or one that was dropped, which readers skip. */
struct Row_column
{
  enum Kind : uchar { LIVE, FIXED, PREFIXED };
  Kind kind;
  /* The bytes of a dropped column of a fixed length, or of the length in front of it. */
  uint16 size;
};

/* The numbers of indexes, by name. */
typedef std::map<Bytes, uint> Numbers;

/* The number of an index; NO_NUMBER for none. */
uint number_of(const Numbers &numbers, const Bytes &index);
bool has_number(const Numbers &numbers, uint number);
/* What the server calls a version of a definition; empty if it has none. */
Bytes version_of(const TABLE_SHARE *definition);

class Layout
{
public:
  /* A column of rows that were written before the first one was added: where its NULL bit is. */
  static const uint16 NEVER_NULL = 0xffff;

  /* As the definition of the server has it. */
  static Layout of(const TABLE *table);
  /* Out of the record. False for bytes that are no such record. */
  bool parse(const uchar *data, size_t length);
  Bytes record() const;

  /* The numbers of the indexes of a definition, by name. */
  const Numbers &numbers_of(const TABLE_SHARE *definition) const;
  /*
    A number that no index of either definition has; NO_NUMBER if there is none. It is behind all
    others while there are such, so that numbers say which index was made first.
  */
  uint free_number() const;
  /* Whether rows say how many columns they have. */
  bool counts_columns() const { return !columns.empty(); }
  uint live_columns() const;
  /* Has rows say how many columns they have, if they do not yet. */
  void count_columns(const TABLE *table);

  /* The last change that was committed, and the one under way, which has the next number. */
  ulonglong committed = 0, pending = 0;
  /* Of the indexes of the newest definition. */
  Numbers indexes;
  /* The version of the definition before it, and its indexes; empty once the table was opened. */
  Bytes version_before;
  Numbers indexes_before;
  /* NULL bits of the columns of rows that do not say how many they have, and their NULL bytes. */
  std::vector<uint16> first_columns;
  uint16 first_null_bytes = 0;
  /* Columns of rows that say how many they have; live ones in the order of the definition. */
  std::vector<Row_column> columns;
  /* A row with the values that added columns have where a row does not have them. */
  Bytes defaults;
};

typedef std::shared_ptr<const Layout> Layout_ref;

#endif
