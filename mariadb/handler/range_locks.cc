/*
  Many locks on ranges of a table become one on all of it, once they take a part of the memory that
  locks may take.
*/
#include "engine.h"
#include "key_codec.h"
#include "trx.h"

#include <algorithm>

/* Ranges become one lock at one part in so many of what the locks of a transaction may take. */
static const ulonglong ESCALATE_AT = 4;

/*
  Locks all rows of a table, unless another transaction holds some of them, or there is no memory for
  its part in their ranges: rows and ranges can be locked one by one then, and nothing waits or fails
  for what only saves memory.
*/
int Trx::lock_whole(terrace_table *table, bool is_exclusive, bool *is_whole)
{
  const uchar rows = PREFIX_ROWS;
  const terrace_range all = {{&rows, 1, TERRACE_INCLUDED}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  const May_wait no_wait(this, true);
  terrace_cursor *cursor = terrace_transaction_cursor(
    transaction, table, &all, is_exclusive ? TERRACE_FOR_UPDATE : TERRACE_FOR_SHARE, failure.out());
  terrace_cursor_free(cursor);
  *is_whole = cursor != nullptr;
  const terrace_status status = failure.status();
  return cursor || status == TERRACE_TIMEOUT || status == TERRACE_TOO_LARGE ? 0 : fail(failure);
}

bool Trx::holds_whole(const Bytes &name, bool is_exclusive) const
{
  auto found = whole.find(name);
  return found != whole.end() && found->second >= is_exclusive;
}

/* It gives none of its ranges back that it has locked exclusively, unless it is so too. */
int Trx::becomes_whole(const Bytes &name, terrace_table *table, bool is_exclusive, bool *is_whole)
{
  Ranges &of_table = ranges_locked[name];
  is_exclusive |= of_table.are_exclusive;
  const int error = lock_whole(table, is_exclusive, is_whole);
  if (*is_whole)
  {
    whole[name] = is_exclusive;
    range_bytes -= of_table.bytes;
    of_table.bytes = 0;
  }
  // It is tried again with more.
  of_table.due = of_table.bytes + settings.lock_limit / ESCALATE_AT / 4;
  return error;
}

/*
  Of the tables whose ranges take more than is due, or of all, the one with most becomes one lock, if
  it has less than *bytes; these are its own then, or 0 if there is none.
*/
int Trx::most_becomes_whole(bool is_due, ulonglong *bytes)
{
  auto most = ranges_locked.end();
  for (auto at = ranges_locked.begin(); at != ranges_locked.end(); ++at)
    if (at->second.bytes > (is_due ? at->second.due : 0) && at->second.bytes < *bytes &&
        (most == ranges_locked.end() || at->second.bytes > most->second.bytes))
      most = at;
  *bytes = most == ranges_locked.end() ? 0 : most->second.bytes;
  if (!*bytes)
    return 0;
  Failure failure;
  const char *of_most = most->first.c_str();
  terrace_table *table = terrace_database_existing_table(database(), of_most, failure.out());
  int error = 0;
  bool is_whole;
  if (table)
    error = becomes_whole(most->first, table, false, &is_whole);
  else if (failure.status() != TERRACE_MISSING_TABLE)
    error = fail(failure);
  else
  {
    // A temporary table that this transaction has dropped: nothing of it becomes whole.
    range_bytes -= most->second.bytes;
    ranges_locked.erase(most);
  }
  terrace_table_free(table);
  return error;
}

int Trx::before_range_lock(const Bytes &name, bool is_exclusive, bool *is_whole)
{
  *is_whole = holds_whole(name, is_exclusive);
  const ulonglong step = settings.lock_limit / ESCALATE_AT;
  if (*is_whole || range_bytes < std::max(due, step))
    return 0;
  ulonglong bytes = ULONGLONG_MAX;
  const int error = most_becomes_whole(true, &bytes);
  due = range_bytes + step / 4;
  *is_whole = holds_whole(name, is_exclusive);
  return error;
}

terrace_cursor *Trx::counted_cursor(terrace_cursor *cursor, const Bytes &name, terrace_table *table,
                                    const terrace_range &range, uint kind, Failure *failure)
{
  const bool locks = kind == TERRACE_FOR_UPDATE || kind == TERRACE_FOR_SHARE;
  const ulonglong before = locks ? terrace_transaction_lock_memory(transaction) : 0;
  if (!cursor)
    cursor = terrace_transaction_cursor(transaction, table, &range, kind, failure->out());
  else if (terrace_cursor_set_range(cursor, &range, failure->out()) != TERRACE_OK)
  {
    terrace_cursor_free(cursor);
    cursor = nullptr;
  }
  if (!locks)
    return cursor;
  // Locks on rows may have become ranges meanwhile, which takes less.
  const ulonglong now = std::max<ulonglong>(before, terrace_transaction_lock_memory(transaction));
  ranges_locked[name].bytes += now - before;
  range_bytes += now - before;
  return cursor;
}

terrace_cursor *Trx::locking_cursor(terrace_cursor *cursor, const Bytes &name, terrace_table *table,
                                    const terrace_range &range, bool is_exclusive, uint *kind,
                                    Failure *failure)
{
  cursor = counted_cursor(cursor, name, table, range, *kind, failure);
  if (*kind != TERRACE_FOR_UPDATE && *kind != TERRACE_FOR_SHARE)
    return cursor;
  ranges_locked[name].are_exclusive |= is_exclusive;
  // Tables give their memory back, the one with most first, until there is room.
  ulonglong bytes = ULONGLONG_MAX;
  bool is_whole = false;
  while (!cursor && failure->status() == TERRACE_TOO_LARGE && !is_whole &&
         !most_becomes_whole(false, &bytes) && bytes)
  {
    is_whole = holds_whole(name, is_exclusive);
    if (!is_whole)
      cursor = counted_cursor(nullptr, name, table, range, *kind, failure);
  }
  if (cursor || failure->status() != TERRACE_TOO_LARGE ||
      (!is_whole && (becomes_whole(name, table, is_exclusive, &is_whole) || !is_whole)))
    return cursor;
  *kind = TERRACE_READ_NEWEST;
  return counted_cursor(nullptr, name, table, range, *kind, failure);
}
