#include "layout.h"

/* Of the record of a layout, and of the keys of its table. */
static const uchar FORMAT = 2;

static Bytes name_of(const KEY &key) { return Bytes(key.name.str, key.name.length); }

Layout Layout::of(const TABLE *table)
{
  Layout layout;
  for (uint i = 0; i < table->s->keys; i++)
    if (i != table->s->primary_key)
      layout.indexes[name_of(table->key_info[i])] = i;
  for (Field **at = table->field; *at; at++)
  {
    const Field *field = *at;
    uint16 bit = NEVER_NULL;
    if (field->null_ptr)
    {
      const uint in_byte = my_bit_log2_uint64(field->null_bit);
      bit = uint16((field->null_ptr - table->record[0]) * 8 + in_byte);
    }
    layout.first_columns.push_back(bit);
  }
  layout.first_null_bytes = uint16(table->s->null_bytes);
  return layout;
}

uint Layout::live_columns() const
{
  uint count = 0;
  for (const Row_column &column : columns)
    count += column.kind == Row_column::LIVE;
  return count;
}

void Layout::count_columns(const TABLE *table)
{
  if (counts_columns())
    return;
  // All rows so far are whole, and have what the table has now.
  const Layout now = of(table);
  first_columns = now.first_columns;
  first_null_bytes = now.first_null_bytes;
  columns.assign(table->s->fields, {Row_column::LIVE, 0});
}

uint number_of(const Numbers &numbers, const Bytes &index)
{
  auto found = numbers.find(index);
  return found == numbers.end() ? NO_NUMBER : found->second;
}

bool has_number(const Numbers &numbers, uint number)
{
  for (auto &index : numbers)
    if (index.second == number)
      return true;
  return false;
}

Bytes version_of(const TABLE_SHARE *definition)
{
  const LEX_CUSTRING &version = definition->tabledef_version;
  return version.length ? Bytes(reinterpret_cast<const char *>(version.str), version.length)
                        : Bytes();
}

const Numbers &Layout::numbers_of(const TABLE_SHARE *definition) const
{
  return before && version_of(definition) == version_before ? before->indexes : indexes;
}

uint Layout::free_number() const
{
  const Numbers none, &of_before = before ? before->indexes : none;
  uint behind = removed.empty() ? 0 : *removed.rbegin() + 1;
  for (const Numbers *of_definition : {&indexes, &of_before})
    for (const auto &index : *of_definition)
      behind = std::max(behind, index.second + 1);
  if (behind < MAX_NUMBERS)
    return behind;
  for (uint number = 0; number < MAX_NUMBERS; number++)
    if (!has_number(indexes, number) && !has_number(of_before, number))
      return number;
  return NO_NUMBER;
}

static void append_short(Bytes *out, size_t value)
{
  uchar bytes[2];
  int2store(bytes, value);
  out->append(reinterpret_cast<char *>(bytes), sizeof(bytes));
}

static void append_text(Bytes *out, const Bytes &text)
{
  append_short(out, text.size());
  *out += text;
}

static void append_numbers(Bytes *out, const Numbers &numbers)
{
  append_short(out, numbers.size());
  for (auto &index : numbers)
  {
    out->push_back(char(index.second));
    append_text(out, index.first);
  }
}

Bytes Layout::record() const
{
  Bytes out(1, char(FORMAT));
  uchar changes[16];
  int8store(changes, committed);
  int8store(changes + 8, pending);
  out.append(reinterpret_cast<char *>(changes), sizeof(changes));
  append_numbers(&out, indexes);
  append_text(&out, version);
  append_text(&out, version_before);
  const Bytes of_before = before ? before->record() : Bytes();
  uchar length[4];
  int4store(length, of_before.size());
  out.append(reinterpret_cast<char *>(length), sizeof(length));
  out += of_before;
  append_short(&out, removed.size());
  for (uint number : removed)
    out.push_back(char(number));
  append_short(&out, first_null_bytes);
  append_short(&out, first_columns.size());
  for (uint16 bit : first_columns)
    append_short(&out, bit);
  append_short(&out, columns.size());
  for (const Row_column &column : columns)
  {
    out.push_back(char(column.kind));
    append_short(&out, column.size);
  }
  return out + defaults;
}

/* Takes bytes from the front of what is left. */
class Reader
{
public:
  Reader(const uchar *data, size_t length) : at(data), end(data + length) {}

  const uchar *take(size_t count)
  {
    if (!good || size_t(end - at) < count)
    {
      good = false;
      return nullptr;
    }
    at += count;
    return at - count;
  }
  size_t take_short()
  {
    const uchar *bytes = take(2);
    return bytes ? uint2korr(bytes) : 0;
  }
  size_t take_long()
  {
    const uchar *bytes = take(4);
    return bytes ? uint4korr(bytes) : 0;
  }
  Bytes take_text(size_t count)
  {
    const uchar *bytes = take(count);
    return bytes ? Bytes(reinterpret_cast<const char *>(bytes), count) : Bytes();
  }
  Numbers take_numbers()
  {
    Numbers numbers;
    const size_t count = take_short();
    for (size_t i = 0; i < count && good; i++)
    {
      const uchar *number = take(1);
      const Bytes name = take_text(take_short());
      if (number)
        numbers[name] = *number;
    }
    return numbers;
  }
  Bytes rest() { return take_text(size_t(end - at)); }
  bool is_good() const { return good; }

private:
  const uchar *at, *end;
  bool good = true;
};

/* What a record says of the definition before. */
static bool parse_before(Reader *reader, Layout *layout)
{
  Layout before;
  layout->version = reader->take_text(reader->take_short());
  layout->version_before = reader->take_text(reader->take_short());
  const Bytes record = reader->take_text(reader->take_long());
  const uchar *bytes = reinterpret_cast<const uchar *>(record.data());
  if (!record.empty() && !before.parse(bytes, record.size()))
    return false;
  if (!record.empty())
    layout->before = std::make_shared<const Layout>(before);
  const size_t count = reader->take_short();
  for (size_t i = 0; i < count && reader->is_good(); i++)
    if (const uchar *number = reader->take(1))
      layout->removed.insert(*number);
  return reader->is_good();
}

bool Layout::parse(const uchar *data, size_t length)
{
  Reader reader(data, length);
  const uchar *format = reader.take(1);
  if (!format || *format != FORMAT)
    return false;
  if (const uchar *changes = reader.take(16))
  {
    committed = uint8korr(changes);
    pending = uint8korr(changes + 8);
  }
  indexes = reader.take_numbers();
  if (!parse_before(&reader, this))
    return false;
  first_null_bytes = uint16(reader.take_short());
  size_t count = reader.take_short();
  for (size_t i = 0; i < count && reader.is_good(); i++)
    first_columns.push_back(uint16(reader.take_short()));
  count = reader.take_short();
  for (size_t i = 0; i < count && reader.is_good(); i++)
  {
    const uchar *kind = reader.take(1);
    const uint16 size = uint16(reader.take_short());
    if (!kind || *kind > Row_column::PREFIXED)
      return false;
    columns.push_back({Row_column::Kind(*kind), size});
  }
  defaults = reader.rest();
  return reader.is_good();
}
