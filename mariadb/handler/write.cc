/*
  Writes: a row, its entries in the indexes, and its chunks if it is large.

  All checks for duplicates of a row come before its first change, so an error leaves nothing.
*/
#include "durability.h"
#include "engine.h"
#include "ha_terrace.h"
#include "row_codec.h"

Bytes ha_terrace::row_key(const uchar *record) const
{
  if (!has_primary_key())
    return row;
  Bytes key;
  codec(table_share->primary_key).from_record(&key, record);
  return key;
}

bool ha_terrace::entry_of(const Key_codec &of_index, const uchar *record, const Bytes &of_row,
                          Bytes *entry)
{
  const bool has_null = of_index.from_record(entry, record);
  if (of_index.unique && !has_null)
    return true;
  entry->append(of_row, 1, Bytes::npos);
  return false;
}

int ha_terrace::begin_write()
{
  trx()->error_key = MAX_KEY;
  if (int error = open_table->before_write(ha_thd()))
    return error;
  if (is_sequence())
    return 0;
  return trx()->before_write(table_share->table_name);
}

int ha_terrace::get(const Bytes &key, Found_value *found, Row_lock lock) const
{
  Failure failure;
  Trx *of_connection = trx();
  terrace_transaction *handle = of_connection->handle();
  terrace_status status;
  {
    May_wait may_wait(of_connection, skip_locked);
    auto read = lock == LOCK_EXCLUSIVE ? terrace_transaction_get_for_update
                : lock == LOCK_SHARE   ? terrace_transaction_get_for_share
                                       : terrace_transaction_get;
    status = read(handle, open_table->table, key.data(), key.size(), found->out(), failure.out());
  }
  if (status == TERRACE_NOT_FOUND)
    return HA_ERR_KEY_NOT_FOUND;
  // The row is left out, and the statement goes on.
  if (status == TERRACE_TIMEOUT && skip_locked)
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  return failure.handler_error(ha_thd());
}

int ha_terrace::get(const Bytes &key, Bytes *value, Row_lock lock) const
{
  Found_value found;
  int error = get(key, &found, lock);
  if (!error)
    value->assign(found.data(), found.length());
  return error;
}

int ha_terrace::lock_key(const Bytes &key, Row_lock lock) const
{
  Found_value found;
  return get(key, &found, lock);
}

int ha_terrace::put_of_sequence(const Bytes &key, const Bytes &value) const
{
  Failure failure;
  const uint wanted = wanted_durability(ha_thd());
  // A kill could not end a wait of the library.
  const uint durability = wanted == TERRACE_REMOTE ? uint(TERRACE_DURABLE) : wanted;
  if (terrace_table_put(open_table->table, key.data(), key.size(), value.data(), value.size(),
                        durability, failure.out()) != TERRACE_OK)
    return failure.handler_error(ha_thd());
  return wanted == TERRACE_REMOTE ? wait_for_store(ha_thd(), HAS_GONE_ON) : 0;
}

int ha_terrace::put(const Bytes &key, const Bytes &value) const
{
  if (is_sequence())
    return put_of_sequence(key, value);
  Failure failure;
  Trx *of_connection = trx();
  May_wait may_wait(of_connection);
  if (terrace_transaction_put(of_connection->handle(), open_table->table, key.data(), key.size(),
                              value.data(), value.size(), failure.out()) != TERRACE_OK)
    return failure.handler_error(ha_thd());
  return 0;
}

int ha_terrace::remove(const Bytes &key) const
{
  Failure failure;
  Trx *of_connection = trx();
  May_wait may_wait(of_connection);
  if (terrace_transaction_delete(of_connection->handle(), open_table->table, key.data(),
                                 key.size(), failure.out()) != TERRACE_OK)
    return failure.handler_error(ha_thd());
  return 0;
}

/* The key of a chunk of a row. */
static Bytes chunk_key(const Bytes &row, uint32 number)
{
  Bytes key = row;
  key[0] = char(PREFIX_CHUNKS);
  uchar bytes[4];
  mi_int4store(bytes, number);
  key.append(reinterpret_cast<char *>(bytes), sizeof(bytes));
  return key;
}

int ha_terrace::put_row(const Bytes &key, const uchar *record)
{
  Bytes value;
  pack_row(table, record, layout.get(), &value);
  if (value.size() <= CHUNK_BYTES)
    return put(key, value);
  uint32 chunks = 0;
  for (size_t at = CHUNK_BYTES; at < value.size(); at += CHUNK_BYTES)
    if (int error = put(chunk_key(key, chunks++), value.substr(at, CHUNK_BYTES)))
      return error;
  uchar header[CHUNKED_HEADER] = {ROW_CHUNKED};
  int4store(header + 1, chunks);
  Bytes first(reinterpret_cast<char *>(header), sizeof(header));
  first.append(value, 0, CHUNK_BYTES);
  return put(key, first);
}

int ha_terrace::remove_chunks(const Bytes &key, const Bytes &value)
{
  if (value.size() < CHUNKED_HEADER || uchar(value[0]) != ROW_CHUNKED)
    return 0;
  const uint32 chunks = uint4korr(reinterpret_cast<const uchar *>(value.data()) + 1);
  for (uint32 i = 0; i < chunks; i++)
    if (int error = remove(chunk_key(key, i)))
      return error;
  return 0;
}

int ha_terrace::remove_row(const Bytes &key)
{
  if (table_share->blob_fields)
  {
    Bytes value;
    int error = get(key, &value, LOCK_EXCLUSIVE);
    // It may have expired since the statement has read it, with its chunks.
    if (error == HA_ERR_KEY_NOT_FOUND && open_table->expires())
      return 0;
    if (!error)
      error = remove_chunks(key, value);
    if (error)
      return error;
  }
  return remove(key);
}

int ha_terrace::get_chunk(const Bytes &key, Bytes *chunk, terrace_transaction *reader) const
{
  if (!reader)
    return get(key, chunk, row_lock);
  Failure failure;
  Found_value found;
  const terrace_status status = terrace_transaction_get(reader, open_table->table, key.data(),
                                                        key.size(), found.out(), failure.out());
  if (status == TERRACE_OK)
    chunk->assign(found.data(), found.length());
  return status == TERRACE_NOT_FOUND ? HA_ERR_KEY_NOT_FOUND : failure.handler_error(ha_thd());
}

/* Puts a row together that goes on in chunks. */
int ha_terrace::whole_row(const Bytes &key, Bytes *value, terrace_transaction *reader) const
{
  if (value->size() < CHUNKED_HEADER || uchar((*value)[0]) != ROW_CHUNKED)
    return 0;
  const uint32 chunks = uint4korr(reinterpret_cast<const uchar *>(value->data()) + 1);
  Bytes whole = value->substr(CHUNKED_HEADER);
  for (uint32 i = 0; i < chunks; i++)
  {
    Bytes chunk;
    if (int error = get_chunk(chunk_key(key, i), &chunk, reader))
      return error == HA_ERR_KEY_NOT_FOUND && !open_table->expires() ? HA_ERR_CRASHED : error;
    whole.append(chunk);
  }
  value->swap(whole);
  return 0;
}

int ha_terrace::unpack(uchar *record, const char *value, size_t length, const Bytes &key)
{
  const bool is_chunked = length >= CHUNKED_HEADER && uchar(*value) == ROW_CHUNKED;
  // BLOBs of the record point into it.
  if (is_chunked || table_share->blob_fields)
    row_buffer.assign(value, length);
  if (is_chunked)
    if (int error = whole_row(key, &row_buffer))
      return error;
  if (is_chunked || table_share->blob_fields)
  {
    value = row_buffer.data();
    length = row_buffer.size();
  }
  row = key;
  is_from_entry = false;
  const uchar *bytes = reinterpret_cast<const uchar *>(value);
  return unpack_row(table, record, layout.get(), bytes, length) ? 0 : HA_ERR_CRASHED;
}

int ha_terrace::fail_if_taken(uint index, const Bytes &key)
{
  int error = lock_key(key, LOCK_EXCLUSIVE);
  if (error == HA_ERR_KEY_NOT_FOUND)
    return 0;
  if (error)
    return error;
  trx()->error_key = index;
  return HA_ERR_FOUND_DUPP_KEY;
}

/*
  Where rows expire, another row may have taken the value of an entry since this row was read: the
  lock on the row keeps neither from expiring.
*/
int ha_terrace::fail_if_taken_by_another(uint index, const Bytes &entry, const Bytes &of_row)
{
  Bytes holder;
  const int error = get(entry, &holder, LOCK_EXCLUSIVE);
  if (error || holder == of_row.substr(1))
    return error == HA_ERR_KEY_NOT_FOUND ? 0 : error;
  trx()->error_key = index;
  return HA_ERR_FOUND_DUPP_KEY;
}

int ha_terrace::check_unique(uint index, const uchar *record, const Bytes &of_row)
{
  Bytes entry;
  return entry_key(index, record, of_row, &entry) ? fail_if_taken(index, entry) : 0;
}

int ha_terrace::put_entry(uint index, const uchar *record, const Bytes &of_row)
{
  Bytes entry;
  if (entry_key(index, record, of_row, &entry))
    return put(entry, of_row.substr(1));
  return put(entry, Bytes());
}

int ha_terrace::remove_entry(uint index, const uchar *record, const Bytes &of_row)
{
  Bytes entry;
  const bool is_unique = entry_key(index, record, of_row, &entry);
  return remove_own_entry(entry, is_unique && open_table->expires(), of_row);
}

int ha_terrace::note_auto_increment(const uchar *record)
{
  Field *field = table->found_next_number_field;
  if (!field || record != table->record[0] || field->is_null())
    return 0;
  longlong value = field->val_int();
  if (!field->is_unsigned() && value < 0)
    return 0;
  return open_table->saw_auto_increment(ha_thd(), ulonglong(value));
}

int ha_terrace::write_row(const uchar *record)
{
  int error = begin_write();
  if (!error && table->next_number_field && record == table->record[0])
  {
    error_of_numbers = 0;
    error = update_auto_increment();
    // The server's own error says that no number was given, and not why.
    if (error && error_of_numbers)
      error = error_of_numbers;
  }
  if (error)
    return error;
  compute_unread(record);
  Bytes key;
  if (has_primary_key())
  {
    key = row_key(record);
    error = fail_if_taken(table_share->primary_key, key);
  }
  else
  {
    ulonglong id;
    error = open_table->next_row_id(ha_thd(), &id);
    uchar bytes[9] = {PREFIX_ROWS};
    mi_int8store(bytes + 1, id);
    key.assign(reinterpret_cast<char *>(bytes), sizeof(bytes));
  }
  for (size_t at = 0; at < secondary.size() && !error; at++)
    error = check_unique(secondary[at], record, key);
  if (!error && follows_keys())
    error = check_parents(nullptr, record);
  if (!error)
    error = put_row(key, record);
  for (size_t at = 0; at < secondary.size() && !error; at++)
    error = put_entry(secondary[at], record, key);
  if (!error)
    error = change_built_entries(nullptr, record, Bytes(), key);
  if (error)
    return error;
  row = key;
  if (table->part_info && table->versioned() && record == table->record[0] &&
      !table->vers_end_field()->is_max())
    trx()->add_history(open_table->name_of_table());
  return table->next_number_field ? note_auto_increment(record) : 0;
}

int ha_terrace::change_entry(uint index, const uchar *old_record, const uchar *new_record,
                             const Bytes &old_row, const Bytes &new_row, bool is_new_to_view)
{
  Bytes old_entry, new_entry;
  const bool is_unique = entry_key(index, old_record, old_row, &old_entry);
  entry_key(index, new_record, new_row, &new_entry);
  // Where rows expire an entry is written again, so that it expires with its row. So is one that
  // the view may not have: the transaction sees its own row, and finds it by its own entry.
  if (old_entry == new_entry && old_row == new_row && !open_table->expires() && !is_new_to_view)
    return 0;
  int error = 0;
  if (old_entry != new_entry)
    error = remove_own_entry(old_entry, is_unique && open_table->expires(), old_row);
  return error ? error : put_entry(index, new_record, new_row);
}

/* Whether a view of the transaction has another row than the newest one, or none. */
int ha_terrace::differs_in_view(const Bytes &key, const uchar *record, bool *differs)
{
  *differs = false;
  if (secondary.empty() || !trx()->holds_view())
    return 0;
  Bytes in_view, newest;
  const int error = get(key, &in_view, LOCK_NONE);
  if (error)
  {
    *differs = error == HA_ERR_KEY_NOT_FOUND;
    return *differs ? 0 : error;
  }
  // A row in chunks, or of an earlier layout, is taken for another one.
  pack_row(table, record, layout.get(), &newest);
  *differs = in_view != newest;
  return 0;
}

/* Whether no stored column changes. The new record is the table's first one. */
bool ha_terrace::is_same(const uchar *old_record, const uchar *new_record) const
{
  const my_ptrdiff_t to_old = old_record - new_record;
  for (Field **column = table->field; *column; column++)
    if ((*column)->stored_in_db() &&
        ((*column)->is_real_null() != (*column)->is_real_null(to_old) ||
         (!(*column)->is_real_null() && (*column)->cmp_binary_offset(uint(to_old)))))
      return false;
  return true;
}

int ha_terrace::update_row(const uchar *old_record, const uchar *new_record)
{
  int error = begin_write();
  if (error)
    return error;
  // As InnoDB does: the server counts no change then. A row that is written anew expires later.
  if (!open_table->expires() && is_same(old_record, new_record))
    return HA_ERR_RECORD_IS_THE_SAME;
  compute_unread(old_record);
  compute_unread(new_record);
  const Bytes old_key = row_key(old_record), new_key = row_key(new_record);
  bool is_new_to_view = false;
  if ((error = differs_in_view(old_key, old_record, &is_new_to_view)))
    return error;
  if (old_key != new_key)
    error = fail_if_taken(table_share->primary_key, new_key);
  for (size_t at = 0; at < secondary.size() && !error; at++)
  {
    Bytes old_entry, new_entry;
    if (!entry_key(secondary[at], new_record, new_key, &new_entry))
      continue;
    entry_key(secondary[at], old_record, old_key, &old_entry);
    if (old_entry != new_entry)
      error = fail_if_taken(secondary[at], new_entry);
    else if (open_table->expires())
      error = fail_if_taken_by_another(secondary[at], new_entry, old_key);
  }
  Change change;
  if (!error)
    error = begin_change(old_record, new_record, &change);
  if (!error && (old_key != new_key || table_share->blob_fields))
    error = remove_row(old_key);
  if (!error)
    error = put_row(new_key, new_record);
  for (size_t at = 0; at < secondary.size() && !error; at++)
    error = change_entry(secondary[at], old_record, new_record, old_key, new_key, is_new_to_view);
  if (!error)
    error = change_built_entries(old_record, new_record, old_key, new_key);
  if ((error = end_change(old_record, new_record, change, error)))
    return error;
  row = new_key;
  Field *number = table->found_next_number_field;
  if (number && bitmap_is_set(table->write_set, number->field_index))
    return note_auto_increment(new_record);
  return 0;
}

int ha_terrace::delete_row(const uchar *record)
{
  int error = begin_write();
  if (error)
    return error;
  compute_unread(record);
  const Bytes key = row_key(record);
  Change change;
  if (!(error = begin_change(record, nullptr, &change)))
    error = remove_row(key);
  for (size_t at = 0; at < secondary.size() && !error; at++)
    error = remove_entry(secondary[at], record, key);
  if (!error)
    error = change_built_entries(record, nullptr, key, Bytes());
  return end_change(record, nullptr, change, error);
}

void ha_terrace::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                    ulonglong *first, ulonglong *reserved)
{
  error_of_numbers = open_table->take_auto_increment(ha_thd(), offset, increment, wanted, first);
  if (error_of_numbers)
    *first = ULONGLONG_MAX;
  *reserved = wanted;
}
