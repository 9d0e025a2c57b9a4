/*
  Many locks on ranges of a table become one on all of it, once they take a part of the memory that
  locks may take.
*/
#include "engine.h"
#include "key_codec.h"
#include "trx.h"

#include <algorithm>

/*
  What the library counts for a lock on a range (`Locker::bytes_of_range`), besides the bytes of its
  ends, which it has twice. Ranges become one lock at one part in so many of what locks may take, as
  those of rows do.
*/
static const ulonglong BYTES_OF_RANGE = 248;
static const ulonglong ESCALATE_AT = 4;

/*
  Locks all rows of a table, unless another transaction holds some of them: rows and ranges can be
  locked one by one then, and nothing waits for what only saves memory.
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
  return cursor || failure.status() == TERRACE_TIMEOUT ? 0 : fail(failure);
}

bool Trx::holds_whole(const Bytes &name, bool is_exclusive) const
{
  auto found = whole.find(name);
  return found != whole.end() && found->second >= is_exclusive;
}

/* Whether ranges have become so many that they are to be one lock. It is tried again with more. */
bool Trx::adds_up(Ranges *ranges, ulonglong bytes) const
{
  const ulonglong step = settings.lock_limit / ESCALATE_AT;
  ranges->bytes += bytes;
  ranges->due = std::max(ranges->due, step);
  if (ranges->bytes < ranges->due)
    return false;
  ranges->due = ranges->bytes + step / 4;
  return true;
}

int Trx::becomes_whole(const Bytes &name, terrace_table *table, bool is_exclusive, bool *is_whole)
{
  const int error = lock_whole(table, is_exclusive, is_whole);
  if (!*is_whole)
    return error;
  whole[name] = is_exclusive;
  // The library has joined them.
  Ranges &of_table = ranges_locked[name];
  ranges_of_all.bytes -= of_table.bytes;
  ranges_of_all.due -= of_table.bytes;
  of_table = Ranges();
  return error;
}

int Trx::before_range_lock(const Bytes &name, terrace_table *table, const terrace_range &range,
                           bool is_exclusive, bool *is_whole)
{
  *is_whole = holds_whole(name, is_exclusive);
  if (*is_whole)
    return 0;
  const terrace_bound &lower = range.lower, &upper = range.upper;
  const Bytes ends = Bytes(static_cast<const char *>(lower.key), lower.key_len) +
                     Bytes(static_cast<const char *>(upper.key), upper.key_len);
  // Of this table, and of all: many tables may have some each.
  Ranges &of_table = ranges_locked[name];
  if (of_table.last == ends)
    return 0;
  of_table.last = ends;
  // A prefix ends at another one.
  const ulonglong bytes =
    BYTES_OF_RANGE + 2 * (lower.key_len + std::max(lower.key_len, upper.key_len));
  const bool is_due = adds_up(&of_table, bytes), is_due_of_all = adds_up(&ranges_of_all, bytes);
  return is_due || is_due_of_all ? becomes_whole(name, table, is_exclusive, is_whole) : 0;
}

/* A range that needs more memory than there is takes none where its whole table is locked. */
terrace_cursor *Trx::locking_cursor(const Bytes &name, terrace_table *table,
                                    const terrace_range &range, bool is_exclusive, uint *kind,
                                    Failure *failure)
{
  terrace_cursor *cursor =
    terrace_transaction_cursor(transaction, table, &range, *kind, failure->out());
  bool is_whole = false;
  if (cursor || failure->status() != TERRACE_TOO_LARGE ||
      becomes_whole(name, table, is_exclusive, &is_whole) || !is_whole)
    return cursor;
  *kind = TERRACE_READ_NEWEST;
  return terrace_transaction_cursor(transaction, table, &range, *kind, failure->out());
}
