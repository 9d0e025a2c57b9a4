/*
  Rows in bytes: a byte for the format, the NULL bits, and the columns that are stored and not NULL,
  each as the server packs it. Virtual columns are not stored.

  A row of format ROW_WHOLE has the NULL bytes of the server's record, and all columns of the table
  as it was created. Once a column was added or dropped in place, rows are of format ROW_COUNTED: the
  number of columns in 2 bytes, then a NULL bit for each. The layout says which of them were dropped;
  they are NULL in rows that are written later. A row with fewer columns than the layout has those
  of the layout's defaults.

  A row that is longer than a value of the library may be goes on in chunks, under keys of their
  own.
*/
#ifndef TERRACE_HANDLER_ROW_CODEC_H
#define TERRACE_HANDLER_ROW_CODEC_H

#include "layout.h"
#include "server.h"

/* A row that is a value. */
static const uchar ROW_WHOLE = 1;
/* A row that goes on: the number of chunks follows in 4 bytes, then the row's first bytes. */
static const uchar ROW_CHUNKED = 2;
/* A row that says how many columns it has. */
static const uchar ROW_COUNTED = 3;
static const size_t CHUNKED_HEADER = 5;
/* Bytes of a row that one value holds. */
static const size_t CHUNK_BYTES = 1000 * 1000;

/* Packs a record of the table, as its layout says; NULL for none. */
void pack_row(const TABLE *table, const uchar *record, const Layout *layout, Bytes *out);

/*
  Unpacks a row into a record. BLOBs of the record point into data, and into the layout, which have
  to stay until the next row is read. Returns false for bytes that are no row of this table.
*/
bool unpack_row(TABLE *table, uchar *record, const Layout *layout, const uchar *data,
                size_t length);

#endif
