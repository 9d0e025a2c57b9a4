/*
  Columns out of encoded keys, where the encoding keeps all of them: whole numbers, times, DECIMAL,
  ENUM, SET, BINARY, VARBINARY, UUID and INET. Weights of text do not say which text it was, and a
  FLOAT does not say whether its zero was negative.
*/
#include "key_codec.h"

Decoding decoding_of(const KEY_PART_INFO &part, const Field *field)
{
  // The field of the part itself has the length of the part in an open table.
  if (!field || part.length != field->key_length() || (part.key_part_flag & HA_BLOB_PART))
    return DECODE_NOTHING;
  const bool is_binary = field->charset() == &my_charset_bin;
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return field->flags & UNSIGNED_FLAG ? DECODE_UNSIGNED : DECODE_SIGNED;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return DECODE_UNSIGNED;
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_NEWDECIMAL:
    return DECODE_BYTES;
  case MYSQL_TYPE_STRING:
    // UUID and INET are strings of bytes too.
    return is_binary ? DECODE_BYTES : DECODE_NOTHING;
  case MYSQL_TYPE_VARCHAR:
    return is_binary && !field->compression_method() ? DECODE_ESCAPED : DECODE_NOTHING;
  default:
    return DECODE_NOTHING;
  }
}

/* Bytes behind one another, the most significant first, as the server has them. */
static void reverse(uchar *to, const uchar *from, uint length)
{
  for (uint i = 0; i < length; i++)
    to[i] = from[length - 1 - i];
}

/* A VARBINARY without its escapes. */
static void unescape(Field_varstring *to, const uchar *from, uchar flip)
{
  const uint length_bytes = to->length_bytes;
  uint length = 0;
  for (; (from[0] ^ flip) != 0 || (from[1] ^ flip) != 1; from++)
  {
    const uchar byte = *from ^ flip;
    to->ptr[length_bytes + length++] = byte;
    from += byte == 0;
  }
  if (length_bytes == 1)
    *to->ptr = uchar(length);
  else
    int2store(to->ptr, length);
}

void Key_part_codec::decode(uchar *record, const uchar *from) const
{
  const uchar flip = descending ? 0xff : 0;
  const my_ptrdiff_t offset = record - table->record[0];
  if (nullable)
  {
    if ((*from++ ^ flip) == 0)
    {
      field->set_null(offset);
      return;
    }
    field->set_notnull(offset);
  }
  field->move_field_offset(offset);
  uchar bytes[MAX_DECODED_BYTES];
  DBUG_ASSERT(decoding > DECODE_UNSIGNED || fixed_length <= sizeof(bytes));
  switch (decoding)
  {
  case DECODE_SIGNED:
  case DECODE_UNSIGNED:
    for (uint i = 0; i < fixed_length; i++)
      bytes[i] = from[i] ^ flip;
    if (decoding == DECODE_SIGNED)
      bytes[0] ^= 0x80;
    reverse(field->ptr, bytes, fixed_length);
    break;
  case DECODE_BYTES:
    for (uint i = 0; i < fixed_length; i++)
      field->ptr[i] = from[i] ^ flip;
    break;
  case DECODE_ESCAPED:
    unescape(static_cast<Field_varstring *>(field), from, flip);
    break;
  case DECODE_NOTHING:
    break;
  }
  field->move_field_offset(-offset);
}

void Key_codec::decode(uchar *record, const uchar **from, const uchar *end) const
{
  for (const Key_part_codec &part : parts)
  {
    const uchar *behind = part.skip(*from, end);
    if (!behind)
      return;
    if (part.can_decode())
      part.decode(record, *from);
    *from = behind;
  }
}

bool Key_codec::gives(uint column) const
{
  for (const Key_part_codec &part : parts)
    if (part.can_decode() && part.column() == column)
      return true;
  return false;
}
