/*
  What a table of the library says of its own layout, once an ALTER TABLE has changed it in place:
  which number the entries of an index begin with, and what columns rows have that were written
  before a column was added or dropped.

  It is a record beside the counters. A table that was only created and copied has none: its index
  number n is the n-th of the server's definition, and all of its rows have all columns.

  Crash argument. The record and the server's .frm are not written together. So the record holds
  what both definitions need, the old one and the new one, from before the server switches: names of
  indexes that are added are there early, and names of dropped ones stay. Dropped columns are marked
  as the last thing before the switch. The numbers of the change under way and of the last committed
  one tell the server, which starts after a crash, whether the new definition holds. Whichever .frm
  a crash leaves finds its indexes by name. The first handler that opens the table later removes the
  names that its definition does not have, with their entries.

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

  uint number_of(const Bytes &index) const;
  /*
    A number that no index has; NO_NUMBER if there is none. It is behind all others while there are
    such, so that numbers say which index was made first.
  */
  uint free_number() const;
  bool has_number(uint number) const;
  /* Whether rows say how many columns they have. */
  bool counts_columns() const { return !columns.empty(); }
  uint live_columns() const;
  /* Has rows say how many columns they have, if they do not yet. */
  void count_columns(const TABLE *table);

  /* The last change that was committed, and the one under way, which has the next number. */
  ulonglong committed = 0, pending = 0;
  /* Numbers of indexes by name. */
  std::map<Bytes, uint> indexes;
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
