/*
  Many locks on ranges of a table become one on all of it, once they take a part of the memory that
  locks may take.
*/
#include "engine.h"
#include "key_codec.h"
#include "trx.h"

#include <algorithm>

/*
  What a lock on a range takes, besides its ends: both are in each part of the library's lock table.
  Ranges become one lock at one part in so many of what locks may take, as those of rows do.
*/
static const ulonglong PARTS = 32;
static const ulonglong BYTES_OF_END = 128;
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

int Trx::before_range_lock(const Bytes &name, terrace_table *table, const terrace_range &range,
                           bool is_exclusive, bool *is_whole)
{
  *is_whole = holds_whole(name, is_exclusive);
  if (*is_whole)
    return 0;
  const ulonglong bytes =
    PARTS * (2 * BYTES_OF_END + range.lower.key_len + range.upper.key_len);
  // Of this table, and of all: many tables may have some each.
  Ranges &of_table = ranges_locked[name];
  const bool is_due = adds_up(&of_table, bytes), is_due_of_all = adds_up(&ranges_of_all, bytes);
  if (!is_due && !is_due_of_all)
    return 0;
  const int error = lock_whole(table, is_exclusive, is_whole);
  if (!*is_whole)
    return error;
  whole[name] = is_exclusive;
  // The library has joined them.
  ranges_of_all.bytes -= of_table.bytes;
  of_table = Ranges();
  return error;
}
