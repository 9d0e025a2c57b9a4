/*
  What the optimizer asks for.
*/
#include "engine.h"
#include "ha_terrace.h"

int ha_terrace::info(uint flags)
{
  if (flags & HA_STATUS_VARIABLE)
  {
    ulonglong rows, row_bytes, index_bytes;
    const bool is_for_people = flags & HA_STATUS_TIME;
    open_table->estimate(is_for_people, &rows, &row_bytes, &index_bytes);
    // A table without rows would be left out of a join, and these may be new ones.
    stats.records = rows || is_for_people ? rows : 1;
    stats.deleted = 0;
    stats.data_file_length = row_bytes;
    stats.index_file_length = index_bytes;
    stats.mean_rec_length = rows ? ulong(row_bytes / rows) : 0;
  }
  if (flags & HA_STATUS_CONST)
  {
    stats.block_size = 16384;
    stats.max_data_file_length = LONGLONG_MAX;
    for (uint i = 0; i < table->s->keys; i++)
    {
      KEY *key = table->key_info + i;
      ulonglong of_prefix = stats.records;
      for (uint part = 0; part < key->user_defined_key_parts; part++)
      {
        // Without statistics of columns each part divides by ten.
        of_prefix = std::max<ulonglong>(of_prefix / 10, 1);
        const bool is_whole = part + 1 == key->user_defined_key_parts;
        key->rec_per_key[part] = is_whole && (key->flags & HA_NOSAME) ? 1 : ulong(of_prefix);
      }
    }
  }
  if (flags & HA_STATUS_ERRKEY)
    errkey = trx()->error_key;
  if ((flags & HA_STATUS_AUTO) && table->found_next_number_field)
    stats.auto_increment_value = open_table->auto_increment();
  return 0;
}

ha_rows ha_terrace::records_in_range(uint index, const key_range *min, const key_range *max,
                                     page_range *)
{
  const Key_codec &of_index = codec(index);
  const uchar first = of_index.prefix, behind = uchar(of_index.prefix + 1);
  Bytes lower(1, char(first)), upper(1, char(behind));
  if (min)
  {
    lower.clear();
    of_index.from_key(&lower, min->key, min->keypart_map);
    if (min->flag == HA_READ_AFTER_KEY)
      lower = successor(lower);
  }
  if (max)
  {
    upper.clear();
    of_index.from_key(&upper, max->key, max->keypart_map);
    if (max->flag != HA_READ_BEFORE_KEY)
      upper = successor(upper);
  }
  if (lower >= upper)
    return 1;
  terrace_range range = {{lower.data(), lower.size(), TERRACE_INCLUDED},
                         {upper.data(), upper.size(), TERRACE_EXCLUDED}};
  Failure failure;
  uint64_t rows = 0;
  if (terrace_table_approximate_len(open_table->table, &range, &rows, failure.out()) != TERRACE_OK)
    return HA_POS_ERROR;
  // Zero would say that there is no row for certain.
  return std::max<ha_rows>(rows, 1);
}
