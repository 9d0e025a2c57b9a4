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
static uchar *pack_counted_header(const TABLE *table, const Layout &layout, my_ptrdiff_t offset,
                                  uchar *to)
{
  const uint count = uint(layout.columns.size()), bytes = (count + 7) / 8;
  *to = ROW_COUNTED;
  int2store(to + 1, count);
  to += 3;
  memset(to, 0, bytes);
  uint live = 0;
  for (uint i = 0; i < count; i++)
    if (layout.columns[i].kind != Row_column::LIVE || table->field[live++]->is_real_null(offset))
      to[i / 8] |= uchar(1 << (i % 8));
  return to + bytes;
}

void pack_row(const TABLE *table, const uchar *record, const Layout *layout, Bytes *out)
{
  const TABLE_SHARE *share = table->s;
  const my_ptrdiff_t offset = record - table->record[0];
  const bool is_counted = layout && layout->counts_columns();
  out->resize(most_bytes(table, record) + (is_counted ? layout->columns.size() : 0));
  uchar *to = reinterpret_cast<uchar *>(&(*out)[0]), *begin = to;
  if (is_counted)
    to = pack_counted_header(table, *layout, offset, to);
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

/* The place behind a dropped column; NULL for a damaged row. */
static const uchar *skip_column(const Row_column &column, const uchar *data, const uchar *end)
{
  size_t length = column.size;
  if (column.kind == Row_column::PREFIXED)
  {
    if (size_t(end - data) < column.size)
      return nullptr;
    for (uint i = 0; i < column.size; i++)
      length += size_t(data[i]) << (8 * i);
  }
  return size_t(end - data) < length ? nullptr : data + length;
}

/*
  Unpacks the columns of a row. Returns where they end, NULL for a damaged row. A column that is NULL
  has the bytes that the server gives it: the server compares whole records to see what an UPDATE has
  changed.
*/
static const uchar *unpack_columns(TABLE *table, uchar *record, const Layout &layout,
                                   const Packed_row &row, const uchar *end)
{
  const my_ptrdiff_t offset = record - table->record[0];
  const uchar *data = row.columns;
  uint live = 0;
  for (uint i = 0; i < row.count && data && data <= end; i++)
  {
    const bool is_null = row.is_null(i);
    if (layout.columns[i].kind != Row_column::LIVE)
    {
      data = is_null ? data : skip_column(layout.columns[i], data, end);
      continue;
    }
    if (live == table->s->fields)
      return data;
    Field *field = table->field[live++];
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
      field->reset();
    }
    field->move_field_offset(-offset);
  }
  return data && data <= end ? data : nullptr;
}

static bool unpack_by_layout(TABLE *table, uchar *record, const Layout &layout, const uchar *data,
                             size_t length)
{
  const TABLE_SHARE *share = table->s;
  memcpy(record, share->default_values, share->null_bytes);
  Packed_row row;
  if (!open_row(layout, data, length, &row) || row.count > layout.columns.size())
    return false;
  if (row.count < layout.columns.size() && !layout.defaults.empty())
  {
    const uchar *defaults = reinterpret_cast<const uchar *>(layout.defaults.data());
    const uchar *end = defaults + layout.defaults.size();
    Packed_row added;
    if (!open_row(layout, defaults, layout.defaults.size(), &added) ||
        added.count > layout.columns.size() ||
        !unpack_columns(table, record, layout, added, end))
      return false;
  }
  return unpack_columns(table, record, layout, row, data + length) != nullptr;
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
    else
      field->reset();
    field->move_field_offset(-offset);
    if (!data || data > end)
      return false;
  }
  return data == end;
}
