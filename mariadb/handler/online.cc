#include "online.h"
#include "engine.h"
#include "ha_terrace.h"
#include "row_codec.h"
#include "yield.h"

/* Rows that the builder locks at a time. */
static const size_t PIECE_ROWS = 500;
/* How long the builder waits in a queue at a time, because writers queue behind it. */
static const ulonglong WAIT_MS = 50;
/* Rows with a value that is there twice: with more of them the change fails. */
static const size_t MOST_NOTED = 10000;

void Build::add(uint number, const KEY &key)
{
  std::unique_ptr<Index> index(new Index);
  index->number = number;
  index->key = key;
  index->parts.assign(key.key_part, key.key_part + key.user_defined_key_parts);
  // Other handlers read this when the table that its fields belong to may be closed.
  for (KEY_PART_INFO &part : index->parts)
    part.field = nullptr;
  index->key.key_part = index->parts.data();
  indexes.push_back(std::move(index));
}

void Build::note(uint index, const Bytes &row)
{
  std::lock_guard<std::mutex> guard(lock);
  is_full = is_full || rows.size() >= MOST_NOTED;
  if (!is_full)
    rows.push_back({index, row});
}

bool Build::noted(std::vector<Noted> *of_all)
{
  std::lock_guard<std::mutex> guard(lock);
  *of_all = rows;
  return !is_full;
}

/* A transaction of the builder. It is rolled back at its end if it was not committed. */
class Piece
{
public:
  Piece() = default;
  ~Piece()
  {
    terrace_transaction_free(handle);
    terrace_transaction_options_free(options);
  }
  Piece(const Piece &) = delete;
  Piece &operator=(const Piece &) = delete;

  terrace_status begin(Failure *failure)
  {
    options = terrace_transaction_options_new();
    const Bytes wait = std::to_string(WAIT_MS) + "ms";
    const char *of_all[][2] = {
      {"isolation", "read_committed"}, {"durability", "relaxed"}, {"lock_wait", wait.c_str()}};
    for (auto &one : of_all)
      if (terrace_transaction_options_set(options, one[0], one[1], failure->out()) != TERRACE_OK)
        return failure->status();
    handle = terrace_database_begin(database(), options, failure->out());
    return handle ? TERRACE_OK : failure->status();
  }

  terrace_transaction *handle = nullptr;

private:
  terrace_transaction_options *options = nullptr;
};

static bool is_to_be_tried_again(terrace_status status)
{
  return status == TERRACE_TIMEOUT || status == TERRACE_DEADLOCK || status == TERRACE_CONFLICT;
}

int fail_of_wait(THD *thd, ulonglong since, ulonglong seconds)
{
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    return HA_ERR_ABORTED_BY_USER;
  const ulonglong waited = (microsecond_interval_timer() - since) / 1000000;
  return waited >= seconds ? HA_ERR_LOCK_WAIT_TIMEOUT : 0;
}

int wait_for_writers(THD *thd, terrace_table *table)
{
  const uchar prefix = PREFIX_ROWS;
  const terrace_range rows = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  const ulonglong since = microsecond_interval_timer();
  for (;;)
  {
    Failure failure;
    Piece piece;
    terrace_cursor *cursor = nullptr;
    if (piece.begin(&failure) == TERRACE_OK)
      cursor = terrace_transaction_cursor(piece.handle, table, &rows, TERRACE_FOR_SHARE,
                                          failure.out());
    terrace_cursor_free(cursor);
    if (cursor)
      return 0;
    if (!is_to_be_tried_again(failure.status()))
      return failure.handler_error(thd);
    if (int error = fail_of_wait(thd, since, session_lock_wait_seconds(thd)))
      return error;
  }
}

int remove_entries(THD *thd, terrace_table *table, uint number)
{
  // Such a prefix is the one of chunks, or of rows.
  if (number >= MAX_NUMBERS)
    return fail_with("the number of an index is too large");
  const uchar prefix = uchar(PREFIX_INDEXES + number);
  const terrace_range entries = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  Piece piece;
  if (piece.begin(&failure) != TERRACE_OK)
    return failure.handler_error(thd);
  terrace_transaction_set_lock_wait(piece.handle, TERRACE_NO_WAIT, failure.out());
  if (terrace_transaction_delete_range(piece.handle, table, &entries, failure.out()) == TERRACE_OK &&
      terrace_transaction_commit(piece.handle, failure.out()) == TERRACE_OK)
    return 0;
  return failure.status() == TERRACE_TIMEOUT ? HA_ERR_LOCK_WAIT_TIMEOUT
                                             : failure.handler_error(thd);
}

/* The key of the last row of the piece that begins at a key; empty where there are no more rows. */
int ha_terrace::end_of_piece(const Bytes &from, Bytes *last)
{
  const uchar behind = PREFIX_ROWS + 1;
  const terrace_range rest = {{from.data(), from.size(), TERRACE_INCLUDED},
                              {&behind, 1, TERRACE_EXCLUDED}};
  Failure failure;
  last->clear();
  YIELD("build");
  terrace_cursor *keys = terrace_table_cursor(open_table->table, &rest, failure.out());
  if (!keys)
    return failure.handler_error(ha_thd());
  terrace_cursor_set_limit(keys, PIECE_ROWS, failure.out());
  terrace_cursor_set_keys_only(keys, true, failure.out());
  terrace_row lent;
  terrace_status status;
  while ((status = terrace_cursor_next(keys, &lent, failure.out())) == TERRACE_OK)
    last->assign(lent.key, lent.key_len);
  terrace_cursor_free(keys);
  return status == TERRACE_NOT_FOUND ? 0 : failure.handler_error(ha_thd());
}

/* What came of an entry that the builder puts. */
enum Put_outcome { PUT, TAKEN, PUT_FAILED };

/* Puts an entry. A unique one that another row has stays. */
static Put_outcome put_built(terrace_transaction *transaction, terrace_table *table,
                             const Bytes &entry, const Bytes &value, Failure *failure)
{
  if (!value.empty())
  {
    terrace_value held;
    const terrace_status status = terrace_transaction_get_for_update(
      transaction, table, entry.data(), entry.size(), &held, failure->out());
    if (status == TERRACE_OK)
    {
      const bool is_ours = Bytes(held.data, held.len) == value;
      terrace_value_release(&held);
      return is_ours ? PUT : TAKEN;
    }
    if (status != TERRACE_NOT_FOUND)
      return PUT_FAILED;
  }
  return terrace_transaction_put(transaction, table, entry.data(), entry.size(), value.data(),
                                 value.size(), failure->out()) == TERRACE_OK
           ? PUT
           : PUT_FAILED;
}

/*
  Locks the rows of a piece, and puts their entries. *again is set where a lock was not free; blocked
  is the entry that it is of, or empty where it is of rows.
*/
int ha_terrace::build_piece(TABLE *altered, uint index, const Key_codec &of_index,
                            const terrace_range &rows, bool *again, Bytes *blocked)
{
  THD *thd = ha_thd();
  Failure failure;
  Piece piece;
  *again = false;
  blocked->clear();
  terrace_cursor *scan = nullptr;
  if (piece.begin(&failure) == TERRACE_OK)
    scan = terrace_transaction_cursor(piece.handle, open_table->table, &rows, TERRACE_FOR_SHARE,
                                      failure.out());
  if (!scan)
  {
    *again = is_to_be_tried_again(failure.status());
    return *again ? 0 : failure.handler_error(thd);
  }
  // With the rows locked a wait for an entry could be one in a circle.
  terrace_transaction_set_lock_wait(piece.handle, TERRACE_NO_WAIT, failure.out());
  const Layout_ref now = open_table->layout();
  terrace_row lent;
  terrace_status status = TERRACE_OK;
  int error = 0;
  Put_outcome outcome = PUT;
  // BLOBs of the record point into it.
  Bytes value;
  while (outcome == PUT &&
         (status = terrace_cursor_next(scan, &lent, failure.out())) == TERRACE_OK)
  {
    const Bytes key(lent.key, lent.key_len);
    value.assign(lent.value, lent.value_len);
    // Its chunks change with the row, which is locked until the piece is committed.
    if ((error = whole_row(key, &value, piece.handle)))
      break;
    const uchar *from = reinterpret_cast<const uchar *>(value.data());
    if (!unpack_row(altered, altered->record[0], now.get(), from, value.size()))
    {
      error = HA_ERR_CRASHED;
      break;
    }
    Bytes entry, of_entry;
    if (entry_of(of_index, altered->record[0], key, &entry))
      of_entry = key.substr(1);
    outcome = put_built(piece.handle, open_table->table, entry, of_entry, &failure);
    if (outcome == PUT_FAILED)
      *blocked = entry;
  }
  terrace_cursor_free(scan);
  if (error)
    return error;
  YIELD("piece");
  // The row that was read last is still in the record.
  if (outcome == TAKEN)
  {
    print_keydup_error(altered, &altered->key_info[index], MYF(0));
    return HA_ERR_FOUND_DUPP_KEY;
  }
  if (outcome == PUT && status == TERRACE_NOT_FOUND &&
      terrace_transaction_commit(piece.handle, failure.out()) == TERRACE_OK)
    return 0;
  *again = is_to_be_tried_again(failure.status());
  return *again ? 0 : failure.handler_error(thd);
}

/* Waits until an entry is not locked. */
int ha_terrace::wait_for_entry(const Bytes &entry)
{
  Failure failure;
  Piece piece;
  terrace_value held;
  if (piece.begin(&failure) == TERRACE_OK)
  {
    const terrace_status status = terrace_transaction_get_for_update(
      piece.handle, open_table->table, entry.data(), entry.size(), &held, failure.out());
    if (status == TERRACE_OK)
      terrace_value_release(&held);
    if (status == TERRACE_OK || status == TERRACE_NOT_FOUND)
      return 0;
  }
  return is_to_be_tried_again(failure.status()) ? 0 : failure.handler_error(ha_thd());
}

/* Makes the entries of an index out of all rows, while others write. */
int ha_terrace::build_online(TABLE *altered, uint index, uint number)
{
  const Key_codec of_index(altered, altered->key_info[index], uchar(PREFIX_INDEXES + number));
  Bytes from(1, char(PREFIX_ROWS)), last, blocked;
  for (;;)
  {
    if (int error = end_of_piece(from, &last))
      return error;
    if (last.empty())
      return 0;
    const terrace_range rows = {{from.data(), from.size(), TERRACE_INCLUDED},
                                {last.data(), last.size(), TERRACE_INCLUDED}};
    const ulonglong since = microsecond_interval_timer();
    for (bool again = true; again;)
    {
      if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED)
        return HA_ERR_ABORTED_BY_USER;
      int error = build_piece(altered, index, of_index, rows, &again, &blocked);
      // As the lock on the table at the end does, it waits for transactions that are open.
      if (!error && again)
        error = fail_of_wait(ha_thd(), since, ha_thd()->variables.lock_wait_timeout);
      if (!error && again && !blocked.empty())
        error = wait_for_entry(blocked);
      if (error)
        return error;
    }
    from = last + '\0';
    YIELD("next-piece");
  }
}

/* Puts the entry of a row that a writer has noted, unless another row has its value. */
int ha_terrace::settle_row(TABLE *altered, uint index, const Key_codec &of_index, const Bytes &key,
                           terrace_transaction *transaction)
{
  Bytes value, entry;
  // The lock waits for a transaction that XA has prepared.
  int error = get(key, &value, LOCK_SHARE);
  if (error == HA_ERR_KEY_NOT_FOUND)
    return 0;
  if (!error)
    error = whole_row(key, &value);
  if (error)
    return error;
  if (!unpack_row(altered, altered->record[0], open_table->layout().get(),
                  reinterpret_cast<const uchar *>(value.data()), value.size()))
    return HA_ERR_CRASHED;
  if (!entry_of(of_index, altered->record[0], key, &entry))
    return 0;
  const ulonglong since = microsecond_interval_timer();
  for (;;)
  {
    Failure failure;
    const Put_outcome outcome =
      put_built(transaction, open_table->table, entry, key.substr(1), &failure);
    if (outcome == PUT)
      return 0;
    if (outcome == TAKEN)
    {
      print_keydup_error(altered, &altered->key_info[index], MYF(0));
      return HA_ERR_FOUND_DUPP_KEY;
    }
    // A transaction that XA has prepared may have removed another row, and has its entry locked.
    if (failure.status() != TERRACE_TIMEOUT)
      return failure.handler_error(ha_thd());
    if (int error = fail_of_wait(ha_thd(), since, session_lock_wait_seconds(ha_thd())))
      return error;
  }
}

/* Looks at the rows that writers have noted. Nothing else uses the table. */
int ha_terrace::settle_noted(TABLE *altered, const Alter_inplace_info *info, Build *of_change)
{
  std::vector<Build::Noted> rows;
  if (!of_change->noted(&rows))
    return fail_with("too many rows have a value that another row has in a new unique index");
  if (rows.empty())
    return 0;
  Failure failure;
  Piece piece;
  if (piece.begin(&failure) != TERRACE_OK)
    return failure.handler_error(ha_thd());
  for (const Build::Noted &noted : rows)
  {
    const uint index = info->index_add_buffer[noted.index];
    const uchar prefix = uchar(PREFIX_INDEXES + of_change->indexes[noted.index]->number);
    const Key_codec of_index(altered, altered->key_info[index], prefix);
    if (int error = settle_row(altered, index, of_index, noted.row, piece.handle))
      return error;
  }
  return terrace_transaction_commit(piece.handle, failure.out()) == TERRACE_OK
           ? 0
           : failure.handler_error(ha_thd());
}

/* The indexes that an ALTER TABLE builds now, as this handler's table has their columns. */
void ha_terrace::follow_builds()
{
  const ulonglong now = open_table->builds();
  if (now == builds_seen)
    return;
  builds_seen = now;
  build = open_table->build();
  codecs_of_build.clear();
  for (size_t i = 0; build && i < build->indexes.size(); i++)
  {
    const Build::Index &index = *build->indexes[i];
    codecs_of_build.emplace_back(table, index.key, uchar(PREFIX_INDEXES + index.number));
  }
}

/* Puts the entry of a row that was written. Another row's entry stays, and the row is noted. */
int ha_terrace::put_built_entry(uint of_build, const Bytes &entry, bool is_unique,
                                const Bytes &of_row)
{
  if (!is_unique)
    return put(entry, Bytes());
  Bytes holder;
  const Bytes value = of_row.substr(1);
  const int error = get(entry, &holder, LOCK_EXCLUSIVE);
  if (!error && holder != value)
  {
    build->note(of_build, of_row);
    return 0;
  }
  return error && error != HA_ERR_KEY_NOT_FOUND ? error : put(entry, value);
}

/* Removes the entry that a row has had. Of a unique index, another row's entry stays. */
int ha_terrace::remove_own_entry(const Bytes &entry, bool is_unique, const Bytes &of_row)
{
  if (!is_unique)
    return remove(entry);
  Bytes holder;
  const int error = get(entry, &holder, LOCK_EXCLUSIVE);
  if (error)
    return error == HA_ERR_KEY_NOT_FOUND ? 0 : error;
  return holder == of_row.substr(1) ? remove(entry) : 0;
}

/*
  Changes the entries of a row in the indexes that are built: old_record is NULL for a row that is
  new, and new_record for one that goes.
*/
int ha_terrace::change_built_entries(const uchar *old_record, const uchar *new_record,
                                     const Bytes &old_row, const Bytes &new_row)
{
  for (uint i = 0; i < codecs_of_build.size(); i++)
  {
    Bytes before, after;
    const bool was_unique =
      old_record && entry_of(codecs_of_build[i], old_record, old_row, &before);
    const bool is_unique = new_record && entry_of(codecs_of_build[i], new_record, new_row, &after);
    if (before == after && old_row == new_row)
      continue;
    int error = old_record ? remove_own_entry(before, was_unique, old_row) : 0;
    if (!error && new_record)
      error = put_built_entry(i, after, is_unique, new_row);
    if (error)
      return error;
  }
  return 0;
}
