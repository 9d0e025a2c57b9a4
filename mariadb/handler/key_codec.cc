#include "key_codec.h"

/* What follows a chunk of weights, compared with spaces without end. */
static const uchar REST_IS_LESS = 1;
static const uchar REST_IS_SPACES = 2;
static const uchar REST_IS_GREATER = 3;

Key_part_codec::Key_part_codec(TABLE *table_arg, const KEY_PART_INFO &part_arg)
  : table(table_arg), field(table_arg->field[part_arg.fieldnr - 1]), part(&part_arg),
    text(ESCAPED), cs(field->charset()), nullable(part_arg.null_bit != 0),
    descending(part_arg.key_part_flag & HA_REVERSE_SORT), fixed_length(0), part_chars(0),
    decoding(decoding_of(part_arg, field))
{
  if (part_arg.key_part_flag & HA_BLOB_PART)
    kind = BLOB;
  else if (part_arg.key_part_flag & HA_VAR_LENGTH_PART)
    kind = VARCHAR;
  else if (part_arg.type == HA_KEYTYPE_BIT)
    kind = BIT;
  else if (field->real_type() == MYSQL_TYPE_STRING)
    kind = cs == &my_charset_bin ? RAW : CHAR;
  else
    kind = FIXED;

  switch (kind)
  {
  case FIXED:
    fixed_length = field->sort_length();
    return;
  case BIT:
  case RAW:
    fixed_length = part_arg.length;
    return;
  default:
    break;
  }
  part_chars = part_arg.length / cs->mbmaxlen;
  if (cs == &my_charset_bin)
    return;
  find_levels();
}

/* Not each collation with several levels says how many they are. One with a single level has no flags. */
void Key_part_codec::find_levels()
{
  const Bytes of_all = weights_of('a', 0);
  const bool has_levels = weights_of('a', MY_STRXFRM_LEVEL1) != of_all;
  // The server compares texts of other collations with several levels without the spaces behind them.
  text = cs->state & MY_CS_NOPAD || (has_levels && !cs->uca) ? ESCAPED : PADDED;
  for (uint flag = MY_STRXFRM_LEVEL1; flag <= MY_STRXFRM_LEVEL6; flag <<= 1)
  {
    if (has_levels && weights_of('a', flag).empty())
      continue;
    Level level = {has_levels ? flag : 0, Bytes(), 0};
    if (text == PADDED)
    {
      level.space = weights_of(' ', level.flag);
      if (level.space.empty())
        level.space.assign(1, ' ');
      level.chunk = uint(level.space.size() * ((8 + level.space.size() - 1) / level.space.size()));
    }
    levels.push_back(level);
    if (!has_levels)
      return;
  }
}

/* The weights of a letter. UTF-16 and the like have more than one byte for it. */
Bytes Key_part_codec::weights_of(char letter, uint level) const
{
  uchar bytes[8];
  Bytes out;
  cs->fill(reinterpret_cast<char *>(bytes), cs->mbminlen, letter);
  weights(bytes, cs->mbminlen, level, &out);
  return out;
}

size_t Key_part_codec::weights(const uchar *data, size_t length, uint level, Bytes *out) const
{
  // A character may have several weights.
  size_t capacity = cs->strnxfrmlen(length * cs->mbmaxlen) * 2 + 64;
  out->resize(capacity);
  size_t used = cs->strnxfrm(reinterpret_cast<uchar *>(&(*out)[0]), capacity, uint(capacity),
                             data, length, level);
  out->resize(used);
  return used;
}

void Key_part_codec::append_padded(Bytes *out, const Level &level, const uchar *data, size_t length)
{
  const Bytes &space = level.space;
  size_t at = 0;
  for (;;)
  {
    size_t taken = std::min<size_t>(level.chunk, length - at);
    out->append(reinterpret_cast<const char *>(data + at), taken);
    for (size_t filled = taken; filled < level.chunk; filled++)
      out->push_back(space[filled % space.size()]);
    at += taken;
    uchar rest = REST_IS_SPACES;
    for (size_t i = at; i < length; i++)
    {
      uchar pad = uchar(space[(i - at) % space.size()]);
      if (data[i] != pad)
      {
        rest = data[i] < pad ? REST_IS_LESS : REST_IS_GREATER;
        break;
      }
    }
    out->push_back(char(rest));
    if (rest == REST_IS_SPACES)
      return;
  }
}

static void append_escaped(Bytes *out, const uchar *data, size_t length)
{
  for (size_t i = 0; i < length; i++)
  {
    out->push_back(char(data[i]));
    if (data[i] == 0)
      out->push_back(char(0xff));
  }
  out->push_back(0);
  out->push_back(1);
}

void Key_part_codec::append_text(Bytes *out, const uchar *data, size_t length) const
{
  if (cs == &my_charset_bin)
  {
    append_escaped(out, data, std::min<size_t>(length, part->length));
    return;
  }
  const char *begin = reinterpret_cast<const char *>(data);
  length = std::min<size_t>(length, cs->charpos(begin, begin + length, part_chars));
  if (text == PADDED || levels.size() > 1)
    length = cs->state & MY_CS_NOPAD ? length : cs->lengthsp(begin, length);
  for (const Level &level : levels)
  {
    Bytes of_text;
    weights(data, length, level.flag, &of_text);
    const uchar *first = reinterpret_cast<const uchar *>(of_text.data());
    if (text == PADDED)
      append_padded(out, level, first, of_text.size());
    else
      append_escaped(out, first, of_text.size());
  }
}

bool Key_part_codec::open_part(Bytes *out, bool is_null) const
{
  if (nullable)
    out->push_back(is_null ? 0 : 1);
  return is_null;
}

void Key_part_codec::close_part(Bytes *out, size_t start) const
{
  if (descending)
    for (size_t i = start; i < out->size(); i++)
      (*out)[i] = char(~uchar((*out)[i]));
}

bool Key_part_codec::append_from_record(Bytes *out, const uchar *record) const
{
  my_ptrdiff_t offset = record - table->record[0];
  size_t start = out->size();
  bool is_null = open_part(out, nullable && field->is_real_null(offset));
  if (!is_null)
  {
    field->move_field_offset(offset);
    switch (kind)
    {
    case FIXED:
      out->resize(out->size() + fixed_length);
      field->sort_string(reinterpret_cast<uchar *>(&(*out)[out->size() - fixed_length]),
                         fixed_length);
      break;
    case BIT:
      out->resize(out->size() + fixed_length);
      // The bits beside the NULL bits are taken relative to the place that is given.
      field->get_key_image(reinterpret_cast<uchar *>(&(*out)[out->size() - fixed_length]),
                           fixed_length, field->ptr, Field::itRAW);
      break;
    case RAW:
      out->append(reinterpret_cast<const char *>(field->ptr), fixed_length);
      break;
    case CHAR:
      append_text(out, field->ptr, field->pack_length());
      break;
    case VARCHAR:
    {
      Field_varstring *varchar = static_cast<Field_varstring *>(field);
      uint length_bytes = varchar->length_bytes;
      size_t length = length_bytes == 1 ? *field->ptr : uint2korr(field->ptr);
      append_text(out, field->ptr + length_bytes, length);
      break;
    }
    case BLOB:
    {
      Field_blob *blob = static_cast<Field_blob *>(field);
      append_text(out, blob->get_ptr(), blob->get_length());
      break;
    }
    }
    field->move_field_offset(-offset);
  }
  close_part(out, start);
  return is_null;
}

bool Key_part_codec::append_from_key(Bytes *out, const uchar **key) const
{
  const uchar *from = *key;
  *key += part->store_length;
  size_t start = out->size();
  bool is_null = open_part(out, nullable && *from);
  from += nullable;
  if (!is_null)
  {
    switch (kind)
    {
    case FIXED:
    {
      out->resize(out->size() + fixed_length);
      uchar *in_record = field->ptr;
      field->ptr = const_cast<uchar *>(from);
      field->sort_string(reinterpret_cast<uchar *>(&(*out)[out->size() - fixed_length]),
                         fixed_length);
      field->ptr = in_record;
      break;
    }
    case BIT:
    case RAW:
      out->append(reinterpret_cast<const char *>(from), fixed_length);
      break;
    case CHAR:
      append_text(out, from, part->length);
      break;
    case VARCHAR:
    case BLOB:
      append_text(out, from + HA_KEY_BLOB_LENGTH, uint2korr(from));
      break;
    }
  }
  close_part(out, start);
  return is_null;
}

/* The place behind the bytes of a text, or of one level of it. */
const uchar *Key_part_codec::skip_text(const uchar *from, const uchar *end, uint chunk) const
{
  const uchar flip = descending ? 0xff : 0;
  if (text == PADDED)
  {
    for (; from + chunk + 1 <= end; from += chunk + 1)
      if ((from[chunk] ^ flip) == REST_IS_SPACES)
        return from + chunk + 1;
    return nullptr;
  }
  for (; from + 2 <= end; from++)
    if ((*from ^ flip) == 0)
    {
      if ((from[1] ^ flip) == 1)
        return from + 2;
      from++;
    }
  return nullptr;
}

const uchar *Key_part_codec::skip(const uchar *from, const uchar *end) const
{
  const uchar flip = descending ? 0xff : 0;
  if (nullable)
  {
    if (from >= end)
      return nullptr;
    if ((*from++ ^ flip) == 0)
      return from;
  }
  const bool is_text = kind == CHAR || kind == VARCHAR || kind == BLOB;
  if (!is_text)
    return from + fixed_length <= end ? from + fixed_length : nullptr;
  if (levels.empty())
    return skip_text(from, end, 0);
  for (size_t at = 0; at < levels.size() && from; at++)
    from = skip_text(from, end, levels[at].chunk);
  return from;
}

size_t Key_part_codec::max_length() const
{
  size_t length = nullable;
  const bool is_text = kind == CHAR || kind == VARCHAR || kind == BLOB;
  if (!is_text)
    return length + fixed_length;
  if (levels.empty())
    return length + part->length * 2 + 2;
  const size_t of_weights = cs->strnxfrmlen(part->length) * 2 + 64;
  for (const Level &level : levels)
    length += text == PADDED ? (of_weights / level.chunk + 1) * (level.chunk + 1) : of_weights * 2 + 2;
  return length;
}

Key_codec::Key_codec(TABLE *table, const KEY &key, uchar prefix_arg)
  : prefix(prefix_arg), unique(key.flags & HA_NOSAME),
    long_hash(key.algorithm == HA_KEY_ALG_LONG_HASH)
{
  if (long_hash)
    unique = false;
  for (uint i = 0; i < key.user_defined_key_parts; i++)
  {
    parts.emplace_back(table, key.key_part[i]);
    store_lengths.push_back(key.key_part[i].store_length);
    has_levels |= parts.back().has_levels();
    has_virtual |= !table->field[key.key_part[i].fieldnr - 1]->stored_in_db();
  }
}

bool Key_codec::from_record(Bytes *out, const uchar *record, size_t count) const
{
  bool has_null = false;
  out->push_back(char(prefix));
  for (size_t i = 0; i < parts.size() && i < count; i++)
    has_null |= parts[i].append_from_record(out, record);
  return has_null;
}

bool Key_codec::from_key(Bytes *out, const uchar *key, key_part_map map) const
{
  bool has_null = false;
  out->push_back(char(prefix));
  for (const Key_part_codec &part : parts)
  {
    if (!(map & 1))
      break;
    has_null |= part.append_from_key(out, &key);
    map >>= 1;
  }
  return has_null;
}

bool Key_codec::from_key(Bytes *out, const uchar *key, uint length) const
{
  key_part_map map = 0;
  uint covered = 0;
  for (size_t i = 0; i < parts.size() && covered < length; i++)
  {
    covered += store_lengths[i];
    map |= key_part_map(1) << i;
  }
  return from_key(out, key, map);
}

size_t Key_codec::length_of_parts(const uchar *entry, size_t length, uint count) const
{
  const uchar *at = entry + 1, *end = entry + length;
  for (uint i = 0; i < count; i++)
    if (!(at = parts[i].skip(at, end)))
      return 0;
  return size_t(at - entry);
}

size_t Key_codec::max_length() const
{
  size_t length = 1;
  for (const Key_part_codec &part : parts)
    length += part.max_length();
  return length;
}

Bytes successor(const Bytes &prefix)
{
  Bytes next = prefix;
  while (!next.empty() && uchar(next.back()) == 0xff)
    next.pop_back();
  if (!next.empty())
    next.back() = char(uchar(next.back()) + 1);
  return next;
}
