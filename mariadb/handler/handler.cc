/*
  What the engine can do, and how a handler is opened, locked and closed.
*/
#include "belonging.h"
#include "engine.h"
#include "ha_terrace.h"
#include "partition_info.h"
#include "partitions.h"
#include "renames.h"
#include "role.h"

#include <algorithm>

handler::Table_flags ha_terrace::table_flags() const
{
  Table_flags flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER |
                      HA_BINLOG_ROW_CAPABLE | HA_CAN_BIT_FIELD | HA_CAN_GEOMETRY |
                      HA_CAN_VIRTUAL_COLUMNS | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                      HA_REC_NOT_IN_SEQ | HA_TABLE_SCAN_ON_INDEX | HA_CAN_TABLES_WITHOUT_ROLLBACK |
                      HA_CAN_SKIP_LOCKED | HA_CRASH_SAFE | HA_SLOW_CMP_REF |
                      HA_PRIMARY_KEY_IN_READ_INDEX;
  // A hidden id is that of the row that was read last.
  if (table_share && has_primary_key())
    flags |= HA_PRIMARY_KEY_REQUIRED_FOR_POSITION;
  // A REPLACE may update the row of the last index alone if that is looked into last.
  if (!std::is_sorted(secondary.begin(), secondary.end()))
    flags |= HA_DUPLICATE_KEY_NOT_IN_ORDER;
  // Only where reads lock ranges, a statement does the same on a replica.
  THD *thd = current_thd;
  if (thd && thd_tx_isolation(thd) > ISO_READ_COMMITTED)
    flags |= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

ulong ha_terrace::index_flags(uint index, uint part, bool all_parts) const
{
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  // The server also asks for a table that is to be made, and has no columns yet.
  if (table_share && table_share->key_info && index < table_share->keys)
  {
    const KEY &key = table_share->key_info[index];
    const uint last = std::min(part, key.user_defined_key_parts - 1);
    bool can_decode = key.algorithm != HA_KEY_ALG_LONG_HASH;
    for (uint i = all_parts ? 0 : last; i <= last && can_decode; i++)
      can_decode = decoding_of(key.key_part[i], table_share->field[key.key_part[i].fieldnr - 1]) !=
                   DECODE_NOTHING;
    if (key.algorithm != HA_KEY_ALG_LONG_HASH)
      flags |= HA_DO_INDEX_COND_PUSHDOWN;
    if (can_decode || index == table_share->primary_key)
      flags |= HA_KEYREAD_ONLY;
  }
  // The server asks before the share has its primary key, when there is no table.
  if (table && index == table_share->primary_key)
    flags |= HA_CLUSTERED_INDEX;
  return flags;
}

/* A row of a scan costs a fraction of one that is looked up. The unit is a look-up of the disk. */
double ha_terrace::scan_time() { return double(stats.records) / 20 + 1; }

double ha_terrace::read_time(uint index, uint ranges, ha_rows rows)
{
  if (index != table_share->primary_key)
    return double(ranges) + double(rows);
  return rows <= 2 ? double(rows) : double(ranges) + double(rows) / 20;
}

int ha_terrace::open(const char *name, int, uint)
{
  Failure failure;
  const Bytes of_table = name_of(name);
  if (is_own_table(of_table))
    return HA_ERR_NO_SUCH_TABLE;
  if (int error = refuse_astray(table_of_partition(of_table)))
    return error;
  if (!follows())
    open_table = Open_table::acquire(of_table, &failure);
  else if (int error = Open_table::follow(of_table, table_share, &open_table, &failure))
    return error;
  if (!open_table)
  {
    if (failure.status() == TERRACE_OK)
      return HA_ERR_CRASHED;
    return failure.status() == TERRACE_MISSING_TABLE ? HA_ERR_NO_SUCH_TABLE
                                                     : failure.handler_error(ha_thd());
  }
  const int error = open_indexes(name);
  // The server closes only what it has opened.
  if (error)
    close();
  return error;
}

/* Takes what the table says of its attributes and indexes. */
int ha_terrace::open_indexes(const char *name)
{
  if (int error = open_table->reconcile(ha_thd(), table->s->option_struct))
    return error;
  layout = open_table->layout();
  if (layout && !open_table->is_altered && !only_reads())
  {
    if (int error = sweep_layout(*layout))
      return error;
    layout = open_table->layout();
  }
  const bool is_kept = !is_temporary(open_table->name_of_table());
  if (!layout && is_kept && needs_layout(table))
  {
    if (int error = open_table->begin_layout(ha_thd(), Layout::of(table)))
      return error;
    layout = open_table->layout();
  }
  codecs.clear();
  bits_of_entries.clear();
  secondary.clear();
  built_at.clear();
  builds_seen = 0;
  for (uint i = 0; i < table->s->keys; i++)
  {
    const KEY &key = table->key_info[i];
    const bool primary = i == table->s->primary_key;
    const uint number =
      layout ? number_of(layout->numbers_of(table->s), Bytes(key.name.str, key.name.length)) : i;
    if (!primary && number == NO_NUMBER)
    {
      sql_print_error("Terrace: index %s of table %s has no entries: %s", key.name.str, name,
                      "drop it, or rebuild the table by ALTER TABLE ... FORCE, ALGORITHM=COPY");
      return HA_ERR_CRASHED;
    }
    codecs.emplace_back(table, key, primary ? PREFIX_ROWS : uchar(PREFIX_INDEXES + number));
    // A table with such keys and with rows has had a layout since they got their order.
    if (codecs.back().has_levels && is_kept && !layout)
    {
      sql_print_error("Terrace: table %s is of a version in which index %s has another order. %s",
                      name, key.name.str, HOW_TO_BRING);
      return HA_ERR_CRASHED;
    }
    built_at.push_back(primary ? 0 : open_table->built_at(number));
    if (!primary)
      secondary.push_back(i);
  }
  // Partitions have the order of the definition. The server refuses a table in which they differ, and
  // an exchange may bring one with other numbers.
  if (!table->part_info)
    std::sort(secondary.begin(), secondary.end(),
              [this](uint a, uint b) { return codec(a).prefix < codec(b).prefix; });
  // A scan of the table is one of its primary key: an UPDATE that changes it must not meet its own
  // rows again.
  key_used_on_scan = table->s->primary_key;
  const size_t longest = has_primary_key() ? codec(table->s->primary_key).max_length() : 9;
  ref_length = uint(longest) + 2;
  return 0;
}

int ha_terrace::close()
{
  close_cursor();
  if (open_table)
    Open_table::release(open_table);
  open_table = nullptr;
  return 0;
}

/*
  Whether a table that the server has open has another definition at the writer by now. The server then
  opens it anew, and asks for its definition. It cannot do so where the connection has locked that out, and
  a transaction goes on with its view: then a read finds out, if there is something to find.
*/
int ha_terrace::discover_check_version()
{
  THD *thd = ha_thd();
  if (!follows() || !open_table || thd->tx_read_only || thd->global_read_lock.is_acquired() ||
      thd->current_backup_stage != BACKUP_FINISHED)
    return 0;
  const Trx *of_connection = Trx::existing(thd);
  if (of_connection && of_connection->holds_view())
    return 0;
  return !has_stamp(open_table->name_of_table(), open_table->stamp, nullptr);
}

/* Nothing of a statement outlives it: the server uses the handler for other ones. */
int ha_terrace::reset()
{
  end_scan();
  cancel_pushed_idx_cond();
  reads_batches = is_in_range = has_more_ranges = begins_range = is_same_asked = false;
  row_lock = LOCK_NONE;
  skip_locked = false;
  error_of_numbers = 0;
  batch.clear();
  computed_blobs.clear();
  for (Bytes *of_statement : {&row_buffer, &row, &current, &range_end, &rest_lower, &rest_upper})
  {
    of_statement->clear();
    of_statement->shrink_to_fit();
  }
  return 0;
}

/* Whether the statement makes a copy of another engine, by another name. */
static bool leaves_engine_and_name(THD *thd)
{
  const handlerton *wanted = thd->lex->create_info.db_type;
  return thd_sql_command(thd) == SQLCOM_ALTER_TABLE && wanted && wanted != terrace_hton &&
         (thd->lex->alter_info.flags & ALTER_RENAME);
}

int ha_terrace::extra(enum ha_extra_function operation)
{
  const bool copies =
    operation == HA_EXTRA_BEGIN_COPY || operation == HA_EXTRA_BEGIN_ALTER_IGNORE_COPY;
  // The row of a sequence is written outside of the transaction, and would wait for that.
  if (copies && !is_sequence())
  {
    // One lock for all rows of a table that nothing else sees yet.
    const uchar rows = PREFIX_ROWS;
    terrace_range all = {{&rows, 1, TERRACE_INCLUDED}, {nullptr, 0, TERRACE_UNBOUNDED}};
    Failure failure;
    if (trx()->handle())
      terrace_cursor_free(terrace_transaction_cursor(trx()->handle(), open_table->table, &all,
                                                     TERRACE_FOR_UPDATE, failure.out()));
    return failure.handler_error(ha_thd());
  }
  // The definition goes, and the rows behind it.
  if (operation == HA_EXTRA_PREPARE_FOR_RENAME && leaves_engine_and_name(ha_thd()))
    return begin_drop(ha_thd(), table_of_partition(open_table->name_of_table()));
  return 0;
}

/* Plain reads of statements that change nothing, with autocommit, need no locks at any level. */
static bool is_plain_select(THD *thd, int lock_type)
{
  return lock_type == F_RDLCK && thd_sql_command(thd) == SQLCOM_SELECT;
}

/*
  Whether a statement that changes tables reads others with a lock, at levels that lock gaps: then
  it does the same on a replica. A copy of a table does at all levels: it waits for transactions that
  XA has prepared, which keep the server from nothing once their connections have ended.
*/
static bool locks_what_it_reads(THD *thd, enum thr_lock_type type, bool is_of_change)
{
  if ((type != TL_READ && type != TL_READ_NO_INSERT) || only_reads())
    return false;
  if (copies_tables(thd))
    return true;
  if (thd_tx_isolation(thd) < ISO_REPEATABLE_READ)
    return false;
  if (is_of_change && thd->locked_tables_mode >= LTM_PRELOCKED)
    return true;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_UPDATE:
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_DELETE:
  case SQLCOM_DELETE_MULTI:
  case SQLCOM_CREATE_TABLE:
  case SQLCOM_LOAD:
    return true;
  default:
    return false;
  }
}

int ha_terrace::external_lock(THD *thd, int lock_type)
{
  if (lock_type == F_UNLCK)
  {
    close_cursor();
    return 0;
  }
  if (lock_type == F_WRLCK)
    row_lock = LOCK_EXCLUSIVE;
  return begin_statement(thd, lock_type);
}

int ha_terrace::start_stmt(THD *thd, thr_lock_type lock_type)
{
  take_lock_type(thd, lock_type);
  return begin_statement(thd, F_RDLCK);
}

/* What a statement that uses the table begins with, also under LOCK TABLES. */
int ha_terrace::begin_statement(THD *thd, int lock_type)
{
  // A copy by another engine would take the place of the definition alone.
  if (row_lock != LOCK_NONE || copies_tables(thd))
    if (int error = refuse_change())
      return error;
  follow_builds();
  // What XA has prepared would be committed to nothing. Nothing else writes to the table now.
  if (removes_rows(thd))
    if (int error = wait_for_writers(thd, open_table->table))
      return error;
  const bool has_locks = row_lock != LOCK_NONE;
  return trx()->begin_statement(is_plain_select(thd, lock_type) && !has_locks, has_locks);
}

/*
  Whether the statement empties the table, or drops this partition of it. Other steps come before
  that: another partition is emptied, or the definition without the partition is there.
*/
bool ha_terrace::removes_rows(THD *thd) const
{
  const ulonglong flags =
    thd_sql_command(thd) == SQLCOM_ALTER_TABLE ? thd->lex->alter_info.partition_flags : 0;
  if (thd_sql_command(thd) == SQLCOM_TRUNCATE || (flags & ALTER_PARTITION_TRUNCATE))
    return true;
  if (!(flags & ALTER_PARTITION_DROP) || !table->part_info)
    return false;
  List_iterator_fast<partition_element> partitions(table->part_info->partitions);
  while (const partition_element *one = partitions++)
    if (one->part_state == PART_TO_BE_DROPPED &&
        is_part_of(open_table->name_of_table(), one->partition_name))
      return true;
  return false;
}

/* How the statement locks what it reads. */
void ha_terrace::take_lock_type(THD *thd, thr_lock_type type)
{
  skip_locked = type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  if (type >= TL_FIRST_WRITE)
    row_lock = LOCK_EXCLUSIVE;
  else if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED ||
           locks_what_it_reads(thd, type, is_of_change))
    row_lock = LOCK_SHARE;
  else
    row_lock = LOCK_NONE;
}

/* Locks of metadata stand for locks of tables, so none is given to the server here. */
THR_LOCK_DATA **ha_terrace::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type != TL_IGNORE)
  {
    is_of_change = type == TL_READ_NO_INSERT;
    take_lock_type(thd, type);
  }
  return to;
}

bool ha_terrace::get_error_message(int error, String *buffer)
{
  if (error == HA_ERR_TERRACE)
  {
    const Bytes message = take_message();
    buffer->append(message.data(), message.size());
  }
  if (error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_ROW_IS_REFERENCED ||
      error == HA_ERR_FK_DEPTH_EXCEEDED)
    buffer->append(trx()->failed_key.data(), trx()->failed_key.size());
  return false;
}

/*
  The server clones the handler of a table with UNIQUE ... USING HASH, to look for duplicates, and
  where a statement reads several indexes at once. A clone locks as its statement does.
*/
handler *ha_terrace::clone(const char *name, MEM_ROOT *mem_root)
{
  handler *copy = handler::clone(name, mem_root);
  if (ha_terrace *clone = static_cast<ha_terrace *>(copy))
  {
    clone->row_lock = row_lock;
    clone->skip_locked = skip_locked;
  }
  return copy;
}
