#include "foreign_columns.h"
#include "attributes.h"

bool can_have_keys(const TABLE *table)
{
  return !has_ttl(table->s->option_struct) && !table->versioned();
}

Columns columns_of(const TABLE *table, const std::vector<Bytes> &names)
{
  Columns found;
  for (const Bytes &name : names)
  {
    Field **at = table->field;
    while (*at && my_strcasecmp(system_charset_info, (*at)->field_name.str, name.c_str()))
      at++;
    if (!*at)
      return Columns();
    found.push_back(*at);
  }
  return found;
}

static bool has_columns(const KEY &key, const Columns &columns)
{
  if ((key.flags & (HA_FULLTEXT | HA_SPATIAL)) || key.algorithm == HA_KEY_ALG_LONG_HASH ||
      key.user_defined_key_parts < columns.size())
    return false;
  for (size_t i = 0; i < columns.size(); i++)
  {
    const KEY_PART_INFO &part = key.key_part[i];
    if (part.fieldnr != columns[i]->field_index + 1 || (part.key_part_flag & HA_PART_KEY_SEG) ||
        part.length != columns[i]->key_length())
      return false;
  }
  return true;
}

uint index_of(const TABLE *table, const Columns &columns)
{
  uint found = MAX_KEY;
  for (uint i = 0; i < table->s->keys && !columns.empty(); i++)
  {
    const KEY &key = table->key_info[i];
    if (!has_columns(key, columns))
      continue;
    // One look-up, and a lock on one key.
    if ((key.flags & HA_NOSAME) && key.user_defined_key_parts == columns.size())
      return i;
    found = found == MAX_KEY ? i : found;
  }
  return found;
}

static bool is_text(const Field *field)
{
  return field->type_handler() == &type_handler_string ||
         field->type_handler() == &type_handler_varchar;
}

bool can_compare(const Field *one, const Field *other)
{
  if ((one->flags & BLOB_FLAG) || one->vcol_info || other->vcol_info)
    return false;
  if (is_text(one) && is_text(other))
    return one->charset() == other->charset();
  return one->type_handler() == other->type_handler() &&
         one->pack_length() == other->pack_length() &&
         one->field_length == other->field_length && one->decimals() == other->decimals() &&
         (one->flags & UNSIGNED_FLAG) == (other->flags & UNSIGNED_FLAG);
}

bool can_compare(const Columns &one, const Columns &other)
{
  bool can = !one.empty() && one.size() == other.size();
  for (size_t i = 0; can && i < one.size(); i++)
    can = can_compare(one[i], other[i]);
  return can;
}

bool has_null(const TABLE *table, const uchar *record, const Columns &columns)
{
  for (const Field *column : columns)
    if (column->is_real_null(record - table->record[0]))
      return true;
  return false;
}

bool differ(const TABLE *table, const uchar *one, const uchar *other, const Columns &columns)
{
  // The server compares with a record behind.
  if (other < one)
    std::swap(one, other);
  const my_ptrdiff_t offset = one - table->record[0], between = other - one;
  for (Field *column : columns)
  {
    const bool is_null = column->is_real_null(offset);
    if (is_null != column->is_real_null(offset + between))
      return true;
    column->move_field_offset(offset);
    const bool is_other = !is_null && column->cmp_binary_offset(uint(between));
    column->move_field_offset(-offset);
    if (is_other)
      return true;
  }
  return false;
}

static bool copy_column(Field *from, Field *to)
{
  to->set_notnull();
  if (from->real_type() == MYSQL_TYPE_BIT)
  {
    to->store(from->val_int(), true);
    return true;
  }
  if (!is_text(from))
  {
    memcpy(to->ptr, from->ptr, to->pack_length());
    return true;
  }
  StringBuffer<256> wanted(from->charset()), copied(from->charset());
  String *value = from->val_str(&wanted);
  to->store(value->ptr(), value->length(), from->charset());
  return sortcmp(value, to->val_str(&copied), from->charset()) == 0;
}

bool copy_columns(const TABLE *table, const uchar *record, const Columns &from, const Columns &to)
{
  const my_ptrdiff_t offset = record - table->record[0];
  THD *thd = table->in_use;
  const enum_check_fields checks = thd->count_cuted_fields;
  thd->count_cuted_fields = CHECK_FIELD_IGNORE;
  bool fits = true;
  for (size_t i = 0; i < from.size() && fits; i++)
  {
    if (from[i]->is_real_null(offset))
    {
      fits = to[i]->real_maybe_null();
      to[i]->set_null();
      continue;
    }
    from[i]->move_field_offset(offset);
    fits = copy_column(from[i], to[i]);
    from[i]->move_field_offset(-offset);
  }
  thd->count_cuted_fields = checks;
  return fits;
}
