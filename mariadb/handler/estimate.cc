/*
  What the optimizer asks for.

  How many values an index has is counted by jumps: from one value to the first key behind it. After
  so many jumps the part of the index that they came through says how many there are in all.
*/
#include "engine.h"
#include "ha_terrace.h"

/* Jumps for one number of parts, as a table is opened, and in ANALYZE TABLE. */
static const uint JUMPS = 50;
static const uint JUMPS_OF_ANALYZE = 2000;
/* So many rows of a partition with history are counted. */
static const uint FEW_ROWS = 100;

/* About how many keys lie in a range; 0 where that cannot be said. */
static ulonglong keys_in(terrace_table *table, const terrace_range &range)
{
  Failure failure;
  uint64_t keys = 0;
  return terrace_table_approximate_len(table, &range, &keys, failure.out()) == TERRACE_OK ? keys : 0;
}

/* About how many values the first parts of an index have; 0 where that cannot be said. */
ulonglong ha_terrace::count_values(uint index, uint parts, uint jumps)
{
  const Key_codec &of_index = codec(index);
  const uchar prefix = of_index.prefix;
  const terrace_range all = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  terrace_cursor *cursor_of_values = terrace_table_cursor(open_table->table, &all, failure.out());
  if (!cursor_of_values)
    return 0;
  // Each jump reads one row.
  terrace_cursor_set_limit(cursor_of_values, 1, failure.out());
  ulonglong values = 0;
  terrace_row lent;
  Bytes behind;
  terrace_status status = terrace_cursor_first(cursor_of_values, &lent, failure.out());
  while (status == TERRACE_OK && values < jumps)
  {
    const size_t length = of_index.length_of_parts(reinterpret_cast<const uchar *>(lent.key),
                                                   lent.key_len, parts);
    if (!length)
      break;
    values++;
    behind = successor(Bytes(lent.key, length));
    status = terrace_cursor_seek(cursor_of_values, behind.data(), behind.size(), &lent,
                                 failure.out());
  }
  terrace_cursor_free(cursor_of_values);
  if (status != TERRACE_OK)
    return status == TERRACE_NOT_FOUND ? values : 0;
  terrace_range seen = all;
  seen.lower.kind = TERRACE_INCLUDED;
  seen.upper = {behind.data(), behind.size(), TERRACE_EXCLUDED};
  const ulonglong of_seen = keys_in(open_table->table, seen), of_all = keys_in(open_table->table, all);
  return of_seen ? ulonglong(double(values) * std::max(double(of_all) / double(of_seen), 1.0)) : 0;
}

/* Counts the values of an index, unless that is known. */
std::vector<ulonglong> ha_terrace::values_of(uint index, uint jumps, bool is_anew)
{
  const KEY &key = table->key_info[index];
  std::vector<ulonglong> values;
  if (!is_anew)
    values = open_table->values_of(codec(index).prefix, stats.records);
  if (values.size() == key.user_defined_key_parts)
    return values;
  values.clear();
  for (uint parts = 1; parts <= key.user_defined_key_parts; parts++)
    values.push_back(count_values(index, parts, jumps));
  open_table->set_values_of(codec(index).prefix, stats.records, values);
  return values;
}

int ha_terrace::analyze(THD *thd, HA_CHECK_OPT *)
{
  info(HA_STATUS_VARIABLE | HA_STATUS_TIME);
  for (uint i = 0; i < table->s->keys; i++)
    values_of(i, JUMPS_OF_ANALYZE, true);
  if (int error = open_table->keep_values(thd))
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "Terrace: what was counted is not kept: error %d", error);
  info(HA_STATUS_VARIABLE | HA_STATUS_CONST);
  return HA_ADMIN_OK;
}

/* When the server wrote the definition of a table; 0 where it has no file. */
static time_t time_of_definition(const char *path)
{
  char file[FN_REFLEN];
  MY_STAT of_file;
  fn_format(file, path, "", reg_ext, MYF(MY_UNPACK_FILENAME | MY_APPEND_EXT));
  return my_stat(file, &of_file, MYF(0)) ? of_file.st_mtime : 0;
}

/*
  The rows that a partition has, which are exact while they are few: an estimate counts deletes, and
  the first partition that is empty takes history.
*/
ulonglong ha_terrace::rows_of_history(ulonglong estimated) const
{
  const uchar prefix = PREFIX_ROWS;
  const terrace_range rows = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  ulonglong count = 0;
  terrace_status status = TERRACE_UNAVAILABLE;
  if (terrace_cursor *cursor_of_rows = terrace_table_cursor(open_table->table, &rows, failure.out()))
  {
    terrace_cursor_set_limit(cursor_of_rows, FEW_ROWS, failure.out());
    terrace_cursor_set_keys_only(cursor_of_rows, true, failure.out());
    terrace_row lent;
    while ((status = terrace_cursor_next(cursor_of_rows, &lent, failure.out())) == TERRACE_OK)
      count++;
    terrace_cursor_free(cursor_of_rows);
  }
  const bool has_counted = status == TERRACE_NOT_FOUND && count < FEW_ROWS;
  return (has_counted ? count : estimated) + trx()->history_in(open_table->name_of_table());
}

int ha_terrace::info(uint flags)
{
  if (flags & HA_STATUS_VARIABLE)
  {
    ulonglong rows, row_bytes, index_bytes;
    // The server asks so for people, and to find the partition that takes the next rows of history.
    const bool is_of_history = (flags & HA_STATUS_OPEN) && table->versioned();
    const bool is_at_once = is_of_history || (flags & HA_STATUS_TIME);
    open_table->estimate(is_at_once, &rows, &row_bytes, &index_bytes);
    if (is_of_history)
      rows = rows_of_history(rows);
    // A table without rows would be left out of a join, and these may be new ones.
    stats.records = rows || is_at_once ? rows : 1;
    stats.deleted = 0;
    stats.data_file_length = row_bytes;
    stats.index_file_length = index_bytes;
    stats.mean_rec_length = rows ? ulong(row_bytes / rows) : 0;
  }
  if (flags & HA_STATUS_TIME)
    stats.create_time = time_of_definition(table_share->normalized_path.str);
  if (flags & HA_STATUS_CONST)
  {
    stats.block_size = 16384;
    stats.max_data_file_length = LONGLONG_MAX;
    for (uint i = 0; i < table->s->keys; i++)
    {
      KEY *key = table->key_info + i;
      const std::vector<ulonglong> values = values_of(i, JUMPS, false);
      ulonglong of_prefix = stats.records;
      for (uint part = 0; part < key->user_defined_key_parts; part++)
      {
        // Where nothing is known each part divides by ten.
        of_prefix = std::max<ulonglong>(
          values[part] ? stats.records / values[part] : of_prefix / 10, 1);
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

/* The bounds of a range of the server, in keys: from lower on, and below upper. */
void ha_terrace::bounds_of(uint index, const key_range *min, const key_range *max, Bytes *lower,
                           Bytes *upper) const
{
  const Key_codec &of_index = codec(index);
  lower->assign(1, char(of_index.prefix));
  upper->assign(1, char(of_index.prefix + 1));
  if (min)
  {
    lower->clear();
    of_index.from_key(lower, min->key, min->keypart_map);
    if (min->flag == HA_READ_AFTER_KEY)
      *lower = successor(*lower);
  }
  if (max)
  {
    upper->clear();
    of_index.from_key(upper, max->key, max->keypart_map);
    if (max->flag != HA_READ_BEFORE_KEY)
      *upper = successor(*upper);
  }
}

ha_rows ha_terrace::records_in_range(uint index, const key_range *min, const key_range *max,
                                     page_range *)
{
  Bytes lower, upper;
  bounds_of(index, min, max, &lower, &upper);
  if (lower >= upper)
    return 1;
  terrace_range range = {{lower.data(), lower.size(), TERRACE_INCLUDED},
                         {upper.data(), upper.size(), TERRACE_EXCLUDED}};
  // Zero would say that there is no row for certain.
  return std::max<ha_rows>(keys_in(open_table->table, range), 1);
}
