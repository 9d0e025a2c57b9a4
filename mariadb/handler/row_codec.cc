#include "row_codec.h"

static bool is_blob(const Field *field)
{
  return field->flags & BLOB_FLAG;
}

void pack_row(const TABLE *table, const uchar *record, Bytes *out)
{
  const TABLE_SHARE *share = table->s;
  const my_ptrdiff_t offset = record - table->record[0];
  size_t most = 1 + share->null_bytes + share->reclength + 8 * share->fields;
  for (Field **at = table->field; *at; at++)
  {
    Field *field = *at;
    if (!field->stored_in_db() || field->is_real_null(offset) || !is_blob(field))
      continue;
    field->move_field_offset(offset);
    most += static_cast<Field_blob *>(field)->get_length() + 4;
    field->move_field_offset(-offset);
  }
  out->resize(most);
  uchar *to = reinterpret_cast<uchar *>(&(*out)[0]), *begin = to;
  *to++ = ROW_WHOLE;
  memcpy(to, record, share->null_bytes);
  to += share->null_bytes;
  for (Field **at = table->field; *at; at++)
  {
    Field *field = *at;
    if (!field->stored_in_db() || field->is_real_null(offset))
      continue;
    field->move_field_offset(offset);
    to = field->pack(to, field->ptr, UINT_MAX);
    field->move_field_offset(-offset);
  }
  out->resize(size_t(to - begin));
}

bool unpack_row(TABLE *table, uchar *record, const uchar *data, size_t length)
{
  const TABLE_SHARE *share = table->s;
  const uchar *end = data + length;
  if (length < 1 + share->null_bytes || *data != ROW_WHOLE)
    return false;
  memcpy(record, data + 1, share->null_bytes);
  data += 1 + share->null_bytes;
  const my_ptrdiff_t offset = record - table->record[0];
  for (Field **at = table->field; *at; at++)
  {
    Field *field = *at;
    if (!field->stored_in_db())
      continue;
    field->move_field_offset(offset);
    if (!field->is_real_null())
      data = field->unpack(field->ptr, data, end, 0);
    else if (is_blob(field))
      field->reset();
    field->move_field_offset(-offset);
    if (!data || data > end)
      return false;
  }
  return data == end;
}
