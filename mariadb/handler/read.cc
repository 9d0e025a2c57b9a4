/*
  The reads that the server asks for, as ranges of keys.
*/
#include "engine.h"
#include "ha_terrace.h"

/*
  Begins a scan of what a prefix has, which was made at a moment, or with the table. It is the first
  read that fails where the view is older: joins and subqueries do not look at an error of this.
*/
void ha_terrace::begin_scan(uchar prefix, ulonglong made)
{
  end_scan();
  is_unseen = row_lock == LOCK_NONE && !is_sequence() &&
              trx()->view_is_before(std::max(made, open_table->made_at()));
  current.clear();
  scanned = prefix;
  range_end.clear();
}

void ha_terrace::end_scan()
{
  close_cursor();
  is_bounded = is_stepping = is_from_entry = is_unseen = false;
  covers = COVERS_UNKNOWN;
}

int ha_terrace::rnd_init(bool)
{
  // A sequence has no index, so all reads of it begin here.
  if (is_sequence())
    row_lock = LOCK_NONE;
  begin_scan(PREFIX_ROWS, 0);
  return 0;
}

int ha_terrace::rnd_end()
{
  end_scan();
  return 0;
}

int ha_terrace::rnd_next(uchar *record) { return move(record, FORWARD); }

/*
  A key of characters that have more weights than their collation says has no place in it. A hash of
  it follows: the server takes rows of one position for one row where it removes duplicates.
*/
static const size_t NO_POSITION = 0xffff;

void ha_terrace::position(const uchar *record)
{
  const Bytes key = is_from_entry ? row : row_key(record);
  memset(ref, 0, ref_length);
  const bool fits = key.size() <= ref_length - 2 && key.size() < NO_POSITION;
  const size_t hash = fits ? 0 : std::hash<Bytes>()(key);
  int2store(ref, fits ? key.size() : NO_POSITION);
  if (fits)
    memcpy(ref + 2, key.data(), key.size());
  else
    memcpy(ref + 2, &hash, std::min<size_t>(sizeof(hash), ref_length - 2));
}

int ha_terrace::cmp_ref(const uchar *one, const uchar *two)
{
  const auto length = [this](const uchar *of) { return std::min<size_t>(uint2korr(of), ref_length - 2); };
  const size_t of_one = length(one), of_two = length(two);
  int order = memcmp(one + 2, two + 2, std::min(of_one, of_two));
  if (order)
    return order;
  return of_one < of_two ? -1 : of_one > of_two;
}

int ha_terrace::rnd_pos(uchar *record, uchar *position)
{
  if (int error = begin_read())
    return error;
  bool is_there = false;
  if (uint2korr(position) == NO_POSITION)
    return fail_with("the primary key of a row is too long for a sort by the server");
  const Bytes key(reinterpret_cast<char *>(position) + 2, uint2korr(position));
  int error = read_row(record, key, &is_there);
  return error ? error : is_there ? 0 : HA_ERR_KEY_NOT_FOUND;
}

int ha_terrace::index_init(uint index, bool)
{
  active_index = index;
  begin_scan(codec(index).prefix, built_at[index]);
  return 0;
}

int ha_terrace::index_end()
{
  active_index = MAX_KEY;
  end_scan();
  return 0;
}

/* The row of a unique entry, without a cursor. */
int ha_terrace::read_unique(uchar *record, const Bytes &entry)
{
  if (int error = begin_read())
    return error;
  bool is_there = false;
  is_on_current = false;
  current = entry;
  int error;
  is_bounded = true;
  is_stepping = false;
  if (scanned == PREFIX_ROWS)
  {
    bool absent = false;
    error = is_absent(entry, &absent);
    if (!error && !absent)
      error = read_row(record, entry, &is_there);
  }
  else if (row_lock != LOCK_NONE && !skip_locked && trx()->locks_gaps())
  {
    // One key has no gaps, so a lock on it is enough, also where it is not there.
    Bytes value, of_row;
    error = get(entry, &value, row_lock);
    if (!error)
      error = row_of_entry(entry, value, &of_row);
    // The server does not look at a condition again that it has pushed down.
    if (!error)
      error = check_condition(entry, of_row, &is_there);
    if (!error && is_there)
      error = read_row_of_entry(record, of_row, &is_there);
  }
  else if (row_lock == LOCK_NONE && !trx()->is_serializable())
  {
    Found_value value;
    error = get(entry, &value, LOCK_NONE);
    const terrace_row one = {entry.data(), entry.size(), value.data(), value.length()};
    if (!error)
      error = take_row(record, one, &is_there);
  }
  else
  {
    // The entry itself is read, not locked, unless the level locks what it reads.
    terrace_range range = {{entry.data(), entry.size(), TERRACE_INCLUDED},
                           {entry.data(), entry.size(), TERRACE_INCLUDED}};
    error = from(record, range, FORWARD);
    return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
  }
  return error ? error : is_there ? 0 : HA_ERR_KEY_NOT_FOUND;
}

/*
  The server looks for a hash, or for a period that overlaps, before it writes the row. A second writer
  of the hash, or of the parts in front of the period, waits here: at READ COMMITTED it would not see
  what another transaction has put. The server reads periods into a buffer, behind the
  key up to the end of the period. So does no ordered read of a partitioned table.
*/
int ha_terrace::lock_checked(const uchar *record, const Bytes &prefix, const uchar *key,
                             key_part_map parts, enum ha_rkey_function how)
{
  const KEY &of_index = table->key_info[active_index];
  const key_part_map up_to_end = (key_part_map(1) << (of_index.user_defined_key_parts - 1)) - 1;
  const bool is_period = of_index.without_overlaps && record != table->record[0] &&
                         how == HA_READ_AFTER_KEY && parts == up_to_end;
  if (row_lock != LOCK_EXCLUSIVE || !(codec(active_index).long_hash || is_period))
    return 0;
  Bytes before_period;
  if (is_period)
    codec(active_index).from_key(&before_period, key, parts >> 1);
  int error = begin_read();
  if (!error)
    error = lock_key(is_period ? before_period : prefix, LOCK_EXCLUSIVE);
  return error == HA_ERR_KEY_NOT_FOUND ? 0 : error;
}

int ha_terrace::index_read_map(uchar *record, const uchar *key, key_part_map parts,
                               enum ha_rkey_function how)
{
  if (!begins_range)
    range_end.clear();
  const Key_codec &of_index = codec(active_index);
  Bytes prefix;
  const bool has_null = of_index.from_key(&prefix, key, parts);
  const key_part_map all = (key_part_map(1) << of_index.part_count()) - 1;
  const Bytes behind = successor(prefix);
  // No value is the same as a NULL.
  int error = has_null ? 0 : lock_checked(record, prefix, key, parts, how);
  if (error)
    return error;
  switch (how)
  {
  case HA_READ_KEY_EXACT:
  {
    if (of_index.unique && !has_null && (parts & all) == all)
      return read_unique(record, prefix);
    terrace_range range = {{prefix.data(), prefix.size(), TERRACE_PREFIX},
                           {nullptr, 0, TERRACE_UNBOUNDED}};
    is_bounded = true;
    error = from(record, range, FORWARD);
    // What is read next lies behind, or before, the value.
    if (error == HA_ERR_END_OF_FILE)
      current = prefix;
    break;
  }
  case HA_READ_KEY_OR_NEXT:
    error = from(record, prefix, Bytes(), FORWARD);
    break;
  case HA_READ_AFTER_KEY:
    error = from(record, behind, Bytes(), FORWARD);
    break;
  case HA_READ_BEFORE_KEY:
    error = from(record, Bytes(), prefix, BACKWARD);
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    error = from(record, Bytes(), behind, BACKWARD);
    break;
  case HA_READ_PREFIX_LAST:
    error = from(record, prefix, behind, BACKWARD);
    is_bounded = true;
    break;
  default:
    return HA_ERR_WRONG_COMMAND;
  }
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_terrace::index_read_last_map(uchar *record, const uchar *key, key_part_map parts)
{
  return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
}

int ha_terrace::index_next(uchar *record) { return move(record, FORWARD); }
int ha_terrace::index_prev(uchar *record) { return move(record, BACKWARD); }

int ha_terrace::index_first(uchar *record)
{
  if (!begins_range)
    range_end.clear();
  return from(record, Bytes(), Bytes(), FORWARD);
}

int ha_terrace::index_last(uchar *record)
{
  range_end.clear();
  return from(record, Bytes(), Bytes(), BACKWARD);
}

int ha_terrace::index_next_same(uchar *record, const uchar *key, uint length)
{
  Bytes prefix;
  codec(active_index).from_key(&prefix, key, length);
  is_same_asked = true;
  int error = move(record, FORWARD);
  is_same_asked = false;
  if (error)
    return error;
  return current.compare(0, prefix.size(), prefix) == 0 ? 0 : HA_ERR_END_OF_FILE;
}
