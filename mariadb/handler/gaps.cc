/*
  Locking reads that keep other transactions from putting rows between those that were read, at
  REPEATABLE READ.

  A read of a range locks all of it at once, rows and gaps. Where the server does not say how far it
  reads (ORDER BY with LIMIT), the first rows are locked one by one, each with the gap before it, so
  that a queue can be read from its end. After STEPS of them the rest is locked at once, because a
  lock on a range costs more than one on a row.
*/
#include "engine.h"
#include "ha_terrace.h"

/* Rows that are locked one by one before the rest is. */
static const uint STEPS = 32;

/* How a cursor locks what it reads. */
uint ha_terrace::locking_kind() const
{
  return row_lock == LOCK_EXCLUSIVE ? TERRACE_FOR_UPDATE : TERRACE_FOR_SHARE;
}

/* Whether a scan goes step by step. */
bool ha_terrace::steps_through_gaps(bool is_narrow) const
{
  return row_lock != LOCK_NONE && !skip_locked && trx()->locks_gaps() && !is_narrow &&
         inited == INDEX &&
         !trx()->holds_whole(open_table->name_of_table(), row_lock == LOCK_EXCLUSIVE);
}

int ha_terrace::read_range_first(const key_range *start, const key_range *end, bool is_point,
                                 bool sorted)
{
  range_end.clear();
  if (end)
  {
    codec(active_index).from_key(&range_end, end->key, end->keypart_map);
    if (end->flag != HA_READ_BEFORE_KEY)
      range_end = successor(range_end);
  }
  // The server reads many ranges, and looks for a kill behind a row alone.
  if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED)
    return HA_ERR_ABORTED_BY_USER;
  begins_range = true;
  int error = handler::read_range_first(start, end, is_point, sorted);
  begins_range = false;
  return error;
}

int ha_terrace::open_cursor(const terrace_range &range, uint kind)
{
  Failure failure;
  close_cursor();
  if (kind != TERRACE_READ_NEWEST)
    if (int error = choose_kind(&kind))
      return error;
  cursor_kind = kind;
  May_wait may_wait(trx(), skip_locked);
  if (!new_cursor(range, &failure))
    return failure.handler_error(ha_thd());
  is_on_current = true;
  return 0;
}

/*
  The next row of a scan that goes step by step. The row is looked for without a lock, and then
  everything up to it is locked and read again, for another row may have come meanwhile.
*/
int ha_terrace::step_through_gaps(uchar *record, Way way)
{
  terrace_range rest = {{rest_lower.data(), rest_lower.size(), TERRACE_INCLUDED},
                        {rest_upper.data(), rest_upper.size(), TERRACE_EXCLUDED}};
  Failure failure;
  terrace_row lent;
  terrace_status status = TERRACE_NOT_FOUND;
  if (rest_lower >= rest_upper)
    return HA_ERR_END_OF_FILE;
  if (steps++ < STEPS)
  {
    if (int error = open_cursor(rest, TERRACE_READ_NEWEST))
      return error;
    // It may pass many rows that the transaction has deleted.
    May_wait may_wait(trx(), skip_locked);
    status = way == FORWARD ? terrace_cursor_first(cursor, &lent, failure.out())
                            : terrace_cursor_last(cursor, &lent, failure.out());
  }
  if (status == TERRACE_NOT_FOUND)
    is_stepping = false;
  else if (status != TERRACE_OK)
  {
    close_cursor();
    return failure.handler_error(ha_thd());
  }
  else
  {
    const Bytes found(lent.key, lent.key_len);
    if (way == FORWARD)
    {
      rest.upper = {found.data(), found.size(), TERRACE_INCLUDED};
      if (int error = open_cursor(rest, locking_kind()))
        return error;
      rest_lower = found + '\0';
    }
    else
    {
      rest.lower = {found.data(), found.size(), TERRACE_INCLUDED};
      if (int error = open_cursor(rest, locking_kind()))
        return error;
      rest_upper = found;
    }
  }
  if (!is_stepping)
    if (int error = open_cursor(rest, locking_kind()))
      return error;
  May_wait may_wait(trx(), skip_locked);
  status = way == FORWARD ? terrace_cursor_first(cursor, &lent, failure.out())
                          : terrace_cursor_last(cursor, &lent, failure.out());
  return settle(record, status, &lent, way, &failure);
}
