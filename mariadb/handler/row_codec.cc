#include "row_codec.h"

static bool is_blob(const Field *field)
{
  return field->flags & BLOB_FLAG;
}

/* The most bytes that a record takes. */
static size_t most_bytes(const TABLE *table, const uchar *record)
{
  const TABLE_SHARE *share = table->s;
  const my_ptrdiff_t offset = record - table->record[0];
  size_t most = 3 + share->null_bytes + share->reclength + 9 * share->fields;
  for (Field **at = table->field; *at; at++)
  {
    Field *field = *at;
    if (!field->stored_in_db() || field->is_real_null(offset) || !is_blob(field))
      continue;
    field->move_field_offset(offset);
    most += static_cast<Field_blob *>(field)->get_length() + 4;
    field->move_field_offset(-offset);
  }
  return most;
}

/* The number of columns, and their NULL bits. */
static uchar *pack_counted_header(const TABLE *table, my_ptrdiff_t offset, uchar *to)
{
  const uint count = table->s->fields, bytes = (count + 7) / 8;
  *to = ROW_COUNTED;
  int2store(to + 1, count);
  to += 3;
  memset(to, 0, bytes);
  for (uint i = 0; i < count; i++)
    if (table->field[i]->is_real_null(offset))
      to[i / 8] |= uchar(1 << (i % 8));
  return to + bytes;
}

void pack_row(const TABLE *table, const uchar *record, bool is_counted, Bytes *out)
{
  const TABLE_SHARE *share = table->s;
  const my_ptrdiff_t offset = record - table->record[0];
  out->resize(most_bytes(table, record));
  uchar *to = reinterpret_cast<uchar *>(&(*out)[0]), *begin = to;
  if (is_counted)
    to = pack_counted_header(table, offset, to);
  else
  {
    *to++ = ROW_WHOLE;
    memcpy(to, record, share->null_bytes);
    to += share->null_bytes;
  }
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

/* A row that is read: how many columns it has, and where. */
struct Packed_row
{
  uint count = 0;
  /* Its NULL bits, and which of them a column has; the column's own number where it is counted. */
  const uchar *null_bits = nullptr;
  const std::vector<uint16> *bits = nullptr;
  const uchar *columns = nullptr;

  bool is_null(uint column) const
  {
    const uint bit = bits ? (*bits)[column] : column;
    return bit != Layout::NEVER_NULL && (null_bits[bit / 8] & (1 << (bit % 8)));
  }
};

/* Reads the header of a row of a table that has a layout. */
static bool open_row(const Layout &layout, const uchar *data, size_t length, Packed_row *row)
{
  if (length && *data == ROW_WHOLE)
  {
    row->count = uint(layout.first_columns.size());
    row->bits = &layout.first_columns;
    row->null_bits = data + 1;
    row->columns = row->null_bits + layout.first_null_bytes;
    return row->columns <= data + length;
  }
  if (length < 3 || *data != ROW_COUNTED)
    return false;
  row->count = uint2korr(data + 1);
  row->null_bits = data + 3;
  row->columns = row->null_bits + (row->count + 7) / 8;
  return row->columns <= data + length;
}

/* Unpacks the columns of a row. Returns where they end, NULL for a damaged row. */
static const uchar *unpack_columns(TABLE *table, uchar *record, const Packed_row &row,
                                   const uchar *end)
{
  const my_ptrdiff_t offset = record - table->record[0];
  const uchar *data = row.columns;
  for (uint i = 0; i < std::min(row.count, table->s->fields) && data; i++)
  {
    Field *field = table->field[i];
    const bool is_null = row.is_null(i);
    if (!field->stored_in_db())
      continue;
    field->move_field_offset(offset);
    if (!is_null)
    {
      field->set_notnull();
      data = field->unpack(field->ptr, data, end, 0);
    }
    else
    {
      field->set_null();
      if (is_blob(field))
        field->reset();
    }
    field->move_field_offset(-offset);
    if (data > end)
      return nullptr;
  }
  return data;
}

static bool unpack_by_layout(TABLE *table, uchar *record, const Layout &layout, const uchar *data,
                             size_t length)
{
  const TABLE_SHARE *share = table->s;
  memcpy(record, share->default_values, share->null_bytes);
  Packed_row row;
  if (!open_row(layout, data, length, &row))
    return false;
  if (row.count < share->fields)
  {
    const uchar *defaults = reinterpret_cast<const uchar *>(layout.defaults.data());
    Packed_row added;
    if (!open_row(layout, defaults, layout.defaults.size(), &added) ||
        added.count < share->fields ||
        !unpack_columns(table, record, added, defaults + layout.defaults.size()))
      return false;
  }
  return unpack_columns(table, record, row, data + length) != nullptr;
}

bool unpack_row(TABLE *table, uchar *record, const Layout *layout, const uchar *data,
                size_t length)
{
  if (layout && layout->counts_columns())
    return unpack_by_layout(table, record, *layout, data, length);
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
