/*
  What a table of the library says of its own layout: which number the entries of an index begin with,
  and what columns rows have that were written before a column was added or dropped. A table has it if
  it was created with two secondary indexes or more, or with a key of a collation of several levels, or
  once an ALTER TABLE has changed it in place.

  It is a record beside the counters. Another table has none: its index number n is the n-th of the
  server's definition, and all of its rows have all columns. A table and a partition may change places
  if their indexes have the same names in another order, so two indexes need the record.

  An index is its number. A name is one in a definition: ALTER TABLE may give the name of an index to
  another one, and both definitions are in use while the change is under way. So the record of a
  change holds the layout from before it, and tells the two definitions by the version that the
  server gives each.

  Crash argument. The record and the server's .frm are not written together. The server renames the
  new .frm behind the commit here, without a sync, and ends its log of DDL. So a power cut may bring
  the old .frm back. The record therefore holds all that either definition needs. The numbers of the
  change under way and of the last committed one tell the server's recovery whether to switch.

  The first handler that opens the table later has one definition, and forgets the other:

  - The new one: the handler makes the rename durable first, and fails where that fails. So no row is
    written by the new definition whose .frm may still go.
  - The old one: the change was not committed, or its .frm was lost before any handler had it. No row
    was written by the new definition: columns change under a lock that excludes others until the
    statement has ended. The layout from before is taken back.
  - Another one, whose columns agree: both stay.

  Entries of the other definition are removed before it is forgotten. What cannot be removed yet,
  because a prepared transaction holds it, stays noted by its number.

  Thread safety: a Layout does not change once it is shared.
*/
#ifndef TERRACE_HANDLER_LAYOUT_H
#define TERRACE_HANDLER_LAYOUT_H

#include "server.h"

#include <map>
#include <memory>
#include <set>
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
  /* Out of the record. False for bytes that are no such record, or one of another format. */
  bool parse(const uchar *data, size_t length);
  Bytes record() const;

  /* The numbers of the indexes of a definition, by name. */
  const Numbers &numbers_of(const TABLE_SHARE *definition) const;
  /*
    A number that no index of either definition has; NO_NUMBER if there is none. It is behind all
    others while there are such, so that numbers say which index was made first. Behind the last one
    it may be that of a removed index, whose entries the caller removes.
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
  /* While either definition may hold: their versions, and the layout from before the change. */
  Bytes version, version_before;
  std::shared_ptr<const Layout> before;
  /* Numbers of removed indexes that may still have entries. */
  std::set<uint> removed;
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
