/*
  Multi-range reads: the rows of many ranges, or of a join's batch of keys, are looked up together.

  Entries are read from the index until there are enough of them, and one call of the library has
  their rows. Where rows lie in an object store that is one round of requests, not one for each row.
  Batches begin small, for a query with a LIMIT, and grow. The order of rows is that of the ranges.

  Only plain reads do so: a read that locks takes its rows one by one.
*/
#include "engine.h"
#include "ha_terrace.h"

#include "sql_select.h"

/* Rows of the first batch, and of the largest one. */
static const size_t FIRST_BATCH = 8;
static const size_t LARGEST_BATCH = 256;
/* Batches become smaller where their rows take more. */
static const size_t MOST_BYTES = 1 << 20;

/* Whether a plan may have batches. The connection decides with optimizer_switch. */
bool ha_terrace::may_read_batches(uint flags) const
{
  return optimizer_flag(ha_thd(), OPTIMIZER_SWITCH_MRR) && !(flags & HA_MRR_INDEX_ONLY) &&
         row_lock == LOCK_NONE;
}

/* Whether each range is one key of a unique index. A range of rows is read as a whole anyway. */
static bool are_points(RANGE_SEQ_IF *ranges, void *parameter, uint count, uint flags)
{
  KEY_MULTI_RANGE range;
  range_seq_t at = ranges->init(parameter, count, flags);
  while (!ranges->next(at, &range))
    if (!(range.range_flag & UNIQUE_RANGE) || (range.range_flag & NULL_RANGE))
      return false;
  return true;
}

ha_rows ha_terrace::multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *parameter,
                                                uint count, uint *buffer, uint *flags,
                                                Cost_estimate *cost)
{
  const uint asked = *flags;
  const ha_rows of_all = handler::multi_range_read_info_const(index, ranges, parameter, count,
                                                              buffer, flags, cost);
  if (of_all == HA_POS_ERROR || (asked & HA_MRR_USE_DEFAULT_IMPL) || !may_read_batches(asked) ||
      (index == table_share->primary_key && !are_points(ranges, parameter, count, asked)))
    return of_all;
  *flags &= ~HA_MRR_USE_DEFAULT_IMPL;
  return of_all;
}

ha_rows ha_terrace::multi_range_read_info(uint index, uint count, uint of_rows, uint parts,
                                          uint *buffer, uint *flags, Cost_estimate *cost)
{
  const uint asked = *flags;
  const ha_rows result =
    handler::multi_range_read_info(index, count, of_rows, parts, buffer, flags, cost);
  if (result == 0 && !(asked & HA_MRR_USE_DEFAULT_IMPL) && may_read_batches(asked))
    *flags &= ~HA_MRR_USE_DEFAULT_IMPL;
  return result;
}

int ha_terrace::multi_range_read_explain_info(uint flags, char *text, size_t size)
{
  static const char name[] = "Rows in batches";
  if ((flags & HA_MRR_USE_DEFAULT_IMPL) || size < sizeof(name))
    return 0;
  memcpy(text, name, sizeof(name));
  return sizeof(name) - 1;
}

int ha_terrace::multi_range_read_init(RANGE_SEQ_IF *ranges, void *parameter, uint count, uint flags,
                                      HANDLER_BUFFER *buffer)
{
  batch.clear();
  batch_at = 0;
  batch_size = FIRST_BATCH;
  is_in_range = false;
  // After a write of the transaction a row may have changed since its entry of the view.
  reads_batches = !(flags & HA_MRR_USE_DEFAULT_IMPL) && row_lock == LOCK_NONE &&
                  scan_kind() == TERRACE_READ && !trx()->has_written();
  has_more_ranges = true;
  return handler::multi_range_read_init(ranges, parameter, count, flags, buffer);
}

/*
  A join checks here what it has pushed down to the index, with all columns. It takes an error for the
  end of the rows, unless the connection was told; and so does a merge of indexes. Others tell it once
  more, which is the lesser evil.
*/
int ha_terrace::multi_range_read_next(range_id_t *range)
{
  int error;
  do
    error = reads_batches ? next_of_batch(range) : handler::multi_range_read_next(range);
  while (!error && mrr_funcs.skip_index_tuple && mrr_funcs.skip_index_tuple(mrr_iter, *range));
  if (error && error != HA_ERR_END_OF_FILE)
    print_error(error, MYF(0));
  return error;
}

int ha_terrace::next_of_batch(range_id_t *range)
{
  for (;;)
  {
    while (batch_at < batch.size())
    {
      const In_batch &one = batch[batch_at++];
      if (one.value.empty() ||
          (mrr_funcs.skip_record && mrr_funcs.skip_record(mrr_iter, one.range, nullptr)))
        continue;
      current = one.entry;
      bool is_there;
      if (int error = unpack_found(table->record[0], one.value.data(), one.value.size(), one.row,
                                   &is_there))
        return error;
      // Its chunks may have expired since it was looked up.
      if (!is_there)
        continue;
      // As the server does behind each row that it reads by itself.
      if (table->vfield)
        table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
      *range = one.range;
      return 0;
    }
    if (!has_more_ranges && !is_in_range)
      return HA_ERR_END_OF_FILE;
    if (int error = fill_batch())
      return error;
  }
}

/* Begins the range that the server names next. */
int ha_terrace::begin_next_range()
{
  has_more_ranges = !mrr_funcs.next(mrr_iter, &mrr_cur_range);
  if (!has_more_ranges)
    return 0;
  const key_range *min = mrr_cur_range.start_key.length ? &mrr_cur_range.start_key : nullptr;
  const key_range *max = mrr_cur_range.end_key.length ? &mrr_cur_range.end_key : nullptr;
  Bytes lower, upper;
  bounds_of(active_index, min, max, &lower, &upper);
  const bool is_point =
    (mrr_cur_range.range_flag & UNIQUE_RANGE) && !(mrr_cur_range.range_flag & NULL_RANGE);
  if (is_point && scanned == PREFIX_ROWS)
  {
    batch.push_back({mrr_cur_range.ptr, lower, lower, Bytes()});
    return 0;
  }
  if (lower >= upper)
    return 0;
  const terrace_range range = {{lower.data(), lower.size(), TERRACE_INCLUDED},
                               {upper.data(), upper.size(), TERRACE_EXCLUDED}};
  is_in_range = true;
  if (!cursor)
    return open_cursor(range, TERRACE_READ);
  Failure failure;
  return terrace_cursor_set_range(cursor, &range, failure.out()) == TERRACE_OK
           ? 0
           : failure.handler_error(ha_thd());
}

/* Takes the next entry of the range that is read. */
int ha_terrace::take_entry()
{
  Failure failure;
  terrace_row lent;
  const terrace_status status = terrace_cursor_next(cursor, &lent, failure.out());
  if (status == TERRACE_NOT_FOUND)
  {
    is_in_range = false;
    return 0;
  }
  if (status != TERRACE_OK)
    return failure.handler_error(ha_thd());
  In_batch one = {mrr_cur_range.ptr, Bytes(lent.key, lent.key_len), Bytes(), Bytes()};
  if (scanned == PREFIX_ROWS)
  {
    one.row = one.entry;
    one.value.assign(lent.value, lent.value_len);
  }
  else
  {
    bool holds = true;
    int error = row_of_entry(one.entry, Bytes(lent.value, lent.value_len), &one.row);
    if (!error)
      error = check_condition(one.entry, one.row, &holds);
    if (error || !holds)
      return error;
  }
  batch.push_back(one);
  return 0;
}

/* Reads entries until there are enough of them, and their rows. */
int ha_terrace::fill_batch()
{
  if (int error = begin_read())
    return error;
  batch.clear();
  batch_at = 0;
  while (batch.size() < batch_size && (is_in_range || has_more_ranges))
  {
    if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED)
      return HA_ERR_ABORTED_BY_USER;
    if (int error = is_in_range ? take_entry() : begin_next_range())
      return error;
  }
  if (int error = look_up_batch())
    return error;
  size_t bytes = 0;
  for (const In_batch &one : batch)
    bytes += one.value.size();
  batch_size = bytes > MOST_BYTES ? std::max(batch_size / 4, size_t(1))
                                  : std::min(batch_size * 4, LARGEST_BATCH);
  return 0;
}

/* Looks up the rows of entries. A key that has no row keeps no value. */
int ha_terrace::look_up_batch()
{
  std::vector<terrace_slice> keys;
  std::vector<size_t> places;
  for (size_t i = 0; i < batch.size(); i++)
    if (batch[i].value.empty())
    {
      keys.push_back({batch[i].row.data(), batch[i].row.size()});
      places.push_back(i);
    }
  if (keys.empty())
    return 0;
  Failure failure;
  std::vector<terrace_value> values(keys.size());
  if (terrace_transaction_multi_get(trx()->handle(), open_table->table, keys.data(), values.data(),
                                    keys.size(), failure.out()) != TERRACE_OK)
    return failure.handler_error(ha_thd());
  bool are_all_there = true;
  for (size_t i = 0; i < values.size(); i++)
  {
    batch[places[i]].value.assign(values[i].data, values[i].len);
    are_all_there = are_all_there && values[i].len;
    terrace_value_release(&values[i]);
  }
  // A function that the statement calls may have removed a row since the batches began.
  const bool may_be_missing =
    scanned == PREFIX_ROWS || open_table->expires() || trx()->has_written();
  return are_all_there || may_be_missing ? 0 : HA_ERR_CRASHED;
}
