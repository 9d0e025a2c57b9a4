/*
  Keys in bytes whose order is the order of the index.

  An entry of an index begins with the number of the index, and then has each key part:

  - a byte for NULL (0) or a value (1), where the column can be NULL;
  - a number, a time, an ENUM, a SET or a BIT in the server's sort format, of a fixed length;
  - text as the weights of its collation, cut into chunks that compare as if both texts were padded
    with spaces (PAD SPACE), or with zeros escaped and an end mark (NO PAD, binary). Where a collation
    has several levels, all weights of one are in front of those of the next;
  - all bytes of the part inverted, where the part is DESC.

  No part is the beginning of another value of it, so parts can be put one behind the other, and a
  part can be skipped without a length.

  Thread safety: a codec belongs to one open handler and uses the fields of its TABLE.
*/
#ifndef TERRACE_HANDLER_KEY_CODEC_H
#define TERRACE_HANDLER_KEY_CODEC_H

#include "server.h"

#include <vector>

/* How an encoded part of a key turns into its column. */
enum Decoding { DECODE_NOTHING, DECODE_SIGNED, DECODE_UNSIGNED, DECODE_BYTES, DECODE_ESCAPED };

/* How a part of a column does. It needs no table, because the server asks before there is one. */
Decoding decoding_of(const KEY_PART_INFO &part, const Field *column);

/* Keys that begin with this byte hold counters, not rows. */
static const uchar PREFIX_COUNTERS = 0;
/* Rows, by primary key or hidden row id. */
static const uchar PREFIX_ROWS = 1;
/* Entries of index number n have the prefix n + 2. */
static const uchar PREFIX_INDEXES = 2;
/* Parts of rows that are too large for one value. */
static const uchar PREFIX_CHUNKS = 0xff;

/* The most bytes of a whole number. */
static const size_t MAX_DECODED_BYTES = 8;

class Key_part_codec
{
public:
  Key_part_codec(TABLE *table, const KEY_PART_INFO &part);

  /* Appends the part of a record. Returns whether it is NULL. */
  bool append_from_record(Bytes *out, const uchar *record) const;
  /* Appends the part of a key in the server's key format, and moves *key behind it. */
  bool append_from_key(Bytes *out, const uchar **key) const;
  /* The place behind the part in an encoded key; NULL for bytes that are no such part. */
  const uchar *skip(const uchar *from, const uchar *end) const;
  /* The most bytes that the part takes. */
  size_t max_length() const;
  uint column() const { return field->field_index; }
  /* Whether the encoded part says what the column has. */
  bool can_decode() const { return decoding != DECODE_NOTHING; }
  /* Whether it has the weights of several levels, one behind the other. */
  bool has_levels() const { return !levels.empty() && levels[0].flag; }
  /* Sets the column of a record to what an encoded part says. */
  void decode(uchar *record, const uchar *from) const;

private:
  enum Kind { FIXED, BIT, RAW, CHAR, VARCHAR, BLOB };
  enum Text { ESCAPED, PADDED };
  /* Of the collation, and the weights of a space there, which pad a text. */
  struct Level
  {
    uint flag;
    Bytes space;
    /* So many bytes of weights lie in front of each mark. */
    uint chunk;
  };

  void append_text(Bytes *out, const uchar *data, size_t length) const;
  static void append_padded(Bytes *out, const Level &level, const uchar *weights, size_t length);
  const uchar *skip_text(const uchar *from, const uchar *end, uint chunk) const;
  bool open_part(Bytes *out, bool is_null) const;
  void close_part(Bytes *out, size_t start) const;
  void find_levels();
  Bytes weights_of(char letter, uint level) const;
  size_t weights(const uchar *data, size_t length, uint level, Bytes *out) const;

  TABLE *table;
  Field *field;
  const KEY_PART_INFO *part;
  Kind kind;
  Text text;
  CHARSET_INFO *cs;
  bool nullable;
  bool descending;
  uint fixed_length;
  uint part_chars;
  std::vector<Level> levels;
  Decoding decoding = DECODE_NOTHING;
};


class Key_codec
{
public:
  Key_codec() = default;
  /* prefix is the byte that entries begin with. */
  Key_codec(TABLE *table, const KEY &key, uchar prefix);

  /* Appends prefix and parts of a record, the first ones or all. Returns whether one is NULL. */
  bool from_record(Bytes *out, const uchar *record, size_t count = MAX_REF_PARTS) const;
  /* As from_record, for the first parts of a key in the server's format. */
  bool from_key(Bytes *out, const uchar *key, key_part_map parts) const;
  /* As from_key, by the length of the key. */
  bool from_key(Bytes *out, const uchar *key, uint length) const;
  /* How many bytes of an entry are prefix and parts; 0 for bytes that are no entry. */
  size_t length_of_parts(const uchar *entry, size_t length) const
  {
    return length_of_parts(entry, length, part_count());
  }
  /* As length_of_parts, of the first parts alone. */
  size_t length_of_parts(const uchar *entry, size_t length, uint count) const;
  size_t max_length() const;
  /* Sets the columns of a record to what the parts at *from say, and moves *from behind them. */
  void decode(uchar *record, const uchar **from, const uchar *end) const;

  uchar prefix = 0;
  /* No two entries without NULL are the same. */
  bool unique = false;
  /* Uniqueness that the server checks by a hash. */
  bool long_hash = false;
  /* A part is a virtual column, which rows do not have. */
  bool has_virtual = false;
  /* A part is of a collation of several levels. */
  bool has_levels = false;
  uint part_count() const { return uint(parts.size()); }
  /* Whether decode() sets a column, by its number in the table. */
  bool gives(uint column) const;

private:
  std::vector<Key_part_codec> parts;
  std::vector<uint> store_lengths;
};

/* The first key behind all keys that begin with prefix. Empty when there is none. */
Bytes successor(const Bytes &prefix);

#endif
