/*
  The steps of a scan: a cursor over rows or over entries of an index, and the row of each entry.

  A plain read takes rows and entries from one view, so they agree, unless the transaction has
  written a row that changed after the view: then an old entry of the view leads to the new row. A
  locking read takes entries as they are when the cursor is sent, locks each row, and reads it again.
  Both leave out a row that the entry does not belong to.
*/
#include "engine.h"
#include "ha_terrace.h"
#include "role.h"

int ha_terrace::begin_read()
{
  Trx *of_connection = trx();
  // Under LOCK TABLES the server tells this of no statement that uses a sequence.
  if (is_sequence() && !of_connection->handle())
    return of_connection->begin_statement(true, false);
  if (!of_connection->handle())
    return fail_with("the transaction of this connection has ended; roll it back");
  if (is_sequence())
    return 0;
  if (is_unseen)
    return HA_ERR_TABLE_DEF_CHANGED;
  if (follows())
    return begin_followed_read();
  return row_lock == LOCK_NONE ? of_connection->before_plain_read() : 0;
}

/*
  The view has to be of the definition that the table is open by. One that this read takes may be of the
  moment in which the writer changes it: the read waits, and takes another one.
*/
int ha_terrace::begin_followed_read()
{
  Trx *of_connection = trx();
  const bool is_first = !of_connection->holds_view();
  const Bytes &name = open_table->name_of_table();
  for (;;)
  {
    if (int error = of_connection->before_plain_read())
      return error;
    if (of_connection->sees(name, open_table->stamp))
      return 0;
    Stamp now;
    Bytes version;
    if (!is_first || of_connection->drop_view())
      return HA_ERR_TABLE_DEF_CHANGED;
    const int error = find_stamp(ha_thd(), name, &now, &version);
    if (error && error != HA_ERR_NO_SUCH_TABLE)
      return error;
    if (error || !(now == open_table->stamp))
      return HA_ERR_TABLE_DEF_CHANGED;
  }
}

uint ha_terrace::scan_kind() const
{
  if (is_sequence())
    return TERRACE_READ_NEWEST;
  // A range has rows that others have locked, so it is not locked where those are left out.
  if (skip_locked)
    return TERRACE_READ_NEWEST;
  if (trx()->is_serializable())
    return locking_kind();
  if (row_lock == LOCK_NONE)
    return TERRACE_READ;
  return trx()->locks_gaps() ? locking_kind() : TERRACE_READ_NEWEST;
}

/* As scan_kind(); a table that is locked as a whole needs no locks on its ranges. */
int ha_terrace::choose_kind(uint *kind) const
{
  *kind = scan_kind();
  if (*kind != TERRACE_FOR_UPDATE && *kind != TERRACE_FOR_SHARE)
    return 0;
  bool is_whole = false;
  int error = trx()->before_range_lock(open_table->name_of_table(), *kind == TERRACE_FOR_UPDATE,
                                       &is_whole);
  if (is_whole)
    *kind = TERRACE_READ_NEWEST;
  return error;
}

void ha_terrace::close_cursor()
{
  terrace_cursor_free(cursor);
  cursor = nullptr;
  is_on_current = false;
}

terrace_cursor *ha_terrace::new_cursor(const terrace_range &range, Failure *failure)
{
  is_on_current = false;
  return cursor = trx()->locking_cursor(cursor, open_table->name_of_table(), open_table->table,
                                        range, row_lock == LOCK_EXCLUSIVE, &cursor_kind, failure);
}

int ha_terrace::from(uchar *record, const terrace_range &range, Way way)
{
  if (int error = begin_read())
    return error;
  uint kind = TERRACE_READ;
  if (int error = choose_kind(&kind))
    return error;
  // The cursor of a step may be one that does not lock.
  if (is_stepping || kind != cursor_kind)
    close_cursor();
  is_stepping = false;
  cursor_kind = kind;
  Failure failure;
  terrace_row lent;
  May_wait may_wait(trx(), skip_locked);
  if (!new_cursor(range, &failure))
    return failure.handler_error(ha_thd());
  is_on_current = true;
  const terrace_status status = way == FORWARD ? terrace_cursor_first(cursor, &lent, failure.out())
                                               : terrace_cursor_last(cursor, &lent, failure.out());
  return settle(record, status, &lent, way, &failure);
}

/* From lower on and below upper; the bounds of what is scanned where they are empty. */
int ha_terrace::from(uchar *record, const Bytes &lower, const Bytes &upper, Way way)
{
  const uchar first = scanned, behind = uchar(scanned + 1);
  terrace_range range;
  if (lower.empty())
    range.lower = {&first, 1, TERRACE_INCLUDED};
  else
    range.lower = {lower.data(), lower.size(), TERRACE_INCLUDED};
  const bool has_end = way == FORWARD && upper.empty() && !range_end.empty();
  const Bytes &end = has_end ? range_end : upper;
  if (end.empty())
    range.upper = {&behind, 1, TERRACE_EXCLUDED};
  else
    range.upper = {end.data(), end.size(), TERRACE_EXCLUDED};
  is_bounded = false;
  // A range that ends before it begins is empty.
  if (has_end && (lower.empty() ? Bytes(1, char(first)) : lower) >= end)
    return HA_ERR_END_OF_FILE;
  if (!steps_through_gaps(has_end || (!lower.empty() && !upper.empty())))
    return from(record, range, way);
  if (int error = begin_read())
    return error;
  close_cursor();
  rest_lower.assign(static_cast<const char *>(range.lower.key), range.lower.key_len);
  rest_upper.assign(static_cast<const char *>(range.upper.key), range.upper.key_len);
  is_stepping = true;
  stepping_way = way;
  steps = 0;
  return step_through_gaps(record, way);
}

int ha_terrace::move(uchar *record, Way way)
{
  if (cursor && is_on_current && !(is_stepping && way != stepping_way))
  {
    Failure failure;
    terrace_row lent;
    May_wait may_wait(trx(), skip_locked);
    terrace_status status = way == FORWARD ? terrace_cursor_next(cursor, &lent, failure.out())
                                           : terrace_cursor_prev(cursor, &lent, failure.out());
    if (status != TERRACE_NOT_FOUND || is_stepping || is_same_asked || !is_bounded)
      return settle(record, status, &lent, way, &failure);
  }
  if (is_same_asked && is_bounded)
    return HA_ERR_END_OF_FILE;
  // On from the entry that was returned last, to the end of what is scanned.
  if (current.empty())
    return from(record, Bytes(), Bytes(), way);
  const Bytes entry = current;
  if (way == BACKWARD)
    return from(record, Bytes(), entry, way);
  return from(record, entry + '\0', Bytes(), way);
}

int ha_terrace::settle(uchar *record, terrace_status status, terrace_row *lent, Way way,
                       Failure *failure)
{
  for (;;)
  {
    if (status == TERRACE_NOT_FOUND)
      return is_stepping ? step_through_gaps(record, way) : HA_ERR_END_OF_FILE;
    if (status != TERRACE_OK)
    {
      close_cursor();
      return failure->handler_error(ha_thd());
    }
    bool is_there = true;
    if (int error = take_row(record, *lent, &is_there))
      return error;
    if (is_there)
      return 0;
    if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    status = way == FORWARD ? terrace_cursor_next(cursor, lent, failure->out())
                            : terrace_cursor_prev(cursor, lent, failure->out());
  }
}

int ha_terrace::row_of_entry(const Bytes &entry, const Bytes &value, Bytes *of_row) const
{
  of_row->assign(1, char(PREFIX_ROWS));
  if (!value.empty())
  {
    of_row->append(value);
    return 0;
  }
  size_t parts = codec(active_index).length_of_parts(
    reinterpret_cast<const uchar *>(entry.data()), entry.size());
  if (!parts)
    return HA_ERR_CRASHED;
  of_row->append(entry, parts, Bytes::npos);
  return 0;
}

int ha_terrace::take_row(uchar *record, const terrace_row &lent, bool *is_there)
{
  current.assign(lent.key, lent.key_len);
  if (scanned == PREFIX_ROWS)
  {
    // A cursor that locks has read the newest row with the lock.
    if (row_lock != LOCK_NONE && (skip_locked || cursor_kind == TERRACE_READ_NEWEST))
      return read_row(record, current, is_there);
    return unpack_found(record, lent.value, lent.value_len, current, is_there);
  }
  Bytes of_row;
  if (int error = row_of_entry(current, Bytes(lent.value, lent.value_len), &of_row))
    return error;
  if (int error = check_condition(current, of_row, is_there))
    return error;
  if (!*is_there)
    return 0;
  if (is_covered())
  {
    decode_entry(record, current, of_row);
    row = of_row;
    is_from_entry = true;
    return 0;
  }
  if (int error = read_row_of_entry(record, of_row, is_there))
    return error;
  const bool may_differ =
    row_lock != LOCK_NONE || trx()->has_written() || open_table->expires();
  if (!*is_there)
    return may_differ ? 0 : HA_ERR_CRASHED;
  *is_there = !may_differ || is_still_there(record);
  return 0;
}

/* The row of an entry. The server computes no virtual columns while it reads an index alone. */
int ha_terrace::read_row_of_entry(uchar *record, const Bytes &of_row, bool *is_there)
{
  if (int error = read_row(record, of_row, is_there))
    return error;
  const bool is_computed_later = record == table->record[0] && !keyread_enabled();
  if (*is_there && codec(active_index).has_virtual && !is_computed_later &&
      record != table->record[1])
    compute_virtual(record);
  return 0;
}

/* Whether the row that was read is the one that the current entry belongs to. */
bool ha_terrace::is_still_there(uchar *record)
{
  if (codec(active_index).has_virtual)
    compute_virtual(record);
  Bytes entry;
  entry_key(active_index, record, row, &entry);
  return entry == current;
}

/* As unpack(). A row whose chunks have expired since it was found is not there any more. */
int ha_terrace::unpack_found(uchar *record, const char *value, size_t length, const Bytes &key,
                             bool *is_there)
{
  const int error = unpack(record, value, length, key);
  *is_there = error != HA_ERR_KEY_NOT_FOUND;
  return *is_there ? error : 0;
}

/*
  Whether a locking read leaves a key alone: where gaps are not locked, one that is not there is not
  locked either, or others could not insert it until the end of the transaction.
*/
int ha_terrace::is_absent(const Bytes &key, bool *absent)
{
  *absent = false;
  if (row_lock == LOCK_NONE || (!skip_locked && (trx()->is_serializable() || trx()->locks_gaps())))
    return 0;
  Failure failure;
  terrace_status status = terrace_table_contains_key(open_table->table, key.data(), key.size(),
                                                     failure.out());
  if (status == TERRACE_NOT_FOUND && trx()->has_written())
  {
    // A row of the transaction itself.
    const terrace_range one = {{key.data(), key.size(), TERRACE_INCLUDED},
                               {key.data(), key.size(), TERRACE_INCLUDED}};
    if (int error = open_cursor(one, TERRACE_READ_NEWEST))
      return error;
    terrace_row lent;
    status = terrace_cursor_first(cursor, &lent, failure.out());
    close_cursor();
  }
  *absent = status == TERRACE_NOT_FOUND;
  return status == TERRACE_OK || *absent ? 0 : failure.handler_error(ha_thd());
}

int ha_terrace::read_row(uchar *record, const Bytes &key, bool *is_there)
{
  Found_value found;
  int error = get(key, &found, row_lock);
  is_from_entry = false;
  *is_there = !error;
  if (error == HA_ERR_KEY_NOT_FOUND || (error == HA_ERR_LOCK_WAIT_TIMEOUT && skip_locked))
    return 0;
  return error ? error : unpack_found(record, found.data(), found.length(), key, is_there);
}
