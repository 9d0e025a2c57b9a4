/*
  Reads from an entry of an index alone, without its row: of a query that needs no other columns,
  and of a condition that the server has pushed down.

  An entry says nothing of a row that another transaction may have changed since. So a read that
  locks looks at the row, and so does one of a view after the transaction has written.
*/
#include "engine.h"
#include "ha_terrace.h"

/* Whether an entry of the index, with the row's key, has these columns. */
bool ha_terrace::gives(const MY_BITMAP *columns) const
{
  for (uint i = bitmap_get_first_set(columns); i != MY_BIT_NONE; i = bitmap_get_next_set(columns, i))
    if (!codec(active_index).gives(i) &&
        !(has_primary_key() && codec(table_share->primary_key).gives(i)))
      return false;
  return true;
}

/* Whether the row is not needed. */
bool ha_terrace::is_covered()
{
  if (!keyread_enabled() || keyread != active_index || scanned == PREFIX_ROWS ||
      row_lock != LOCK_NONE || trx()->has_written())
    return false;
  if (covers == COVERS_UNKNOWN)
    covers = gives(table->read_set) ? COVERS : COVERS_NOT;
  return covers == COVERS;
}

static bool is_of_entries(const Field &column)
{
  return !column.stored_in_db() && (column.flags & (PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG));
}

/* The virtual columns that indexes have, and those that these are made of. */
MY_BITMAP *ha_terrace::columns_of_entries()
{
  if (bits_of_entries.empty())
  {
    bits_of_entries.resize(bitmap_buffer_size(table->s->fields) / sizeof(my_bitmap_map));
    my_bitmap_init(&of_entries, bits_of_entries.data(), table->s->fields);
    MY_BITMAP *const read_set = table->read_set;
    table->read_set = &of_entries;
    for (Field **column = table->vfield; *column; column++)
      if (is_of_entries(**column))
      {
        bitmap_set_bit(&of_entries, (*column)->field_index);
        (*column)->vcol_info->expr->walk(&Item::register_field_in_read_map, true, table);
      }
    table->read_set = read_set;
  }
  return &of_entries;
}

/*
  Computes the virtual columns of entries out of a row. The server does not while it reads keys, nor
  in the records by which it merges partitions. A column has two places for values of BLOBs, and other
  records may have theirs there: those of this one are kept here.
*/
void ha_terrace::compute_virtual(uchar *record)
{
  const uint before = keyread;
  MY_BITMAP *const read_set = table->read_set, *const computed = columns_of_entries();
  std::vector<Field_blob *> blobs;
  for (Field **column = table->vfield; *column; column++)
    if (((*column)->flags & BLOB_FLAG) && bitmap_is_set(computed, (*column)->field_index))
      blobs.push_back(static_cast<Field_blob *>(*column));
  std::vector<String> of_others(blobs.size() * 2);
  for (size_t i = 0; i < blobs.size(); i++)
  {
    blobs[i]->swap(of_others[i * 2], false);
    blobs[i]->swap(of_others[i * 2 + 1], true);
  }
  keyread = MAX_KEY;
  table->read_set = computed;
  table->move_fields(table->field, record, table->record[0]);
  table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  table->move_fields(table->field, table->record[0], record);
  table->read_set = read_set;
  keyread = before;
  for (size_t i = 0; i < blobs.size(); i++)
  {
    blobs[i]->swap(computed_blobs[{record, blobs[i]->field_index}], true);
    blobs[i]->swap(of_others[i * 2], false);
    blobs[i]->swap(of_others[i * 2 + 1], true);
  }
}

/*
  Before a row comes, goes or changes. A row event may lack virtual columns of the table, or give them
  by another expression, and the server computes none, whatever it is to read. Entries are made of
  them.
*/
void ha_terrace::compute_unread(const uchar *record)
{
  const bool is_event = ha_thd()->lex->is_stmt_row_injection();
  for (Field **column = table->vfield; column && *column; column++)
    if (is_of_entries(**column) &&
        (is_event || !bitmap_is_set(table->read_set, (*column)->field_index)))
      return compute_virtual(const_cast<uchar *>(record));
}

/* Sets the columns that the entry and the row's key have. */
void ha_terrace::decode_entry(uchar *record, const Bytes &entry, const Bytes &of_row) const
{
  const uchar *from = reinterpret_cast<const uchar *>(entry.data()) + 1;
  codec(active_index).decode(record, &from, from + entry.size() - 1);
  if (!has_primary_key())
    return;
  from = reinterpret_cast<const uchar *>(of_row.data()) + 1;
  codec(table_share->primary_key).decode(record, &from, from + of_row.size() - 1);
}

Item *ha_terrace::idx_cond_push(uint index, Item *condition)
{
  if (index == table_share->primary_key || index >= codecs.size())
    return condition;
  // The server takes every column of the primary key for one that the entry has.
  MY_BITMAP *before = table->read_set;
  bitmap_clear_all(&table->tmp_set);
  table->read_set = &table->tmp_set;
  condition->walk(&Item::register_field_in_read_map, true, table);
  table->read_set = before;
  const uint active = active_index;
  active_index = index;
  const bool has_all = gives(&table->tmp_set);
  active_index = active;
  if (!has_all)
    return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = index;
  return nullptr;
}

/* Asks the server whether the pushed condition holds. Fails at the end of the server's range. */
int ha_terrace::check_condition(const Bytes &entry, const Bytes &of_row, bool *holds)
{
  *holds = true;
  if (!pushed_idx_cond || pushed_idx_cond_keyno != active_index || scanned == PREFIX_ROWS)
    return 0;
  decode_entry(table->record[0], entry, of_row);
  // The check would compare columns with the end of the range that an entry does not give back. The
  // cursor ends there by itself.
  key_range *const end = end_range;
  end_range = nullptr;
  const check_result_t result = handler_index_cond_check(this);
  end_range = end;
  switch (result)
  {
  case CHECK_POS:
    return 0;
  case CHECK_NEG:
    *holds = false;
    return 0;
  case CHECK_OUT_OF_RANGE:
    return HA_ERR_END_OF_FILE;
  case CHECK_ABORTED_BY_USER:
    return HA_ERR_ABORTED_BY_USER;
  default:
    return HA_ERR_INTERNAL_ERROR;
  }
}
