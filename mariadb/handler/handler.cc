/*
  What the engine can do, and how a handler is opened, locked and closed.
*/
#include "engine.h"
#include "ha_terrace.h"

handler::Table_flags ha_terrace::table_flags() const
{
  Table_flags flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER |
                      HA_BINLOG_ROW_CAPABLE | HA_CAN_BIT_FIELD | HA_CAN_GEOMETRY |
                      HA_CAN_VIRTUAL_COLUMNS | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                      HA_REC_NOT_IN_SEQ | HA_TABLE_SCAN_ON_INDEX | HA_CAN_TABLES_WITHOUT_ROLLBACK |
                      HA_CAN_SKIP_LOCKED | HA_CHECK_UNIQUE_AFTER_WRITE | HA_CRASH_SAFE |
                      HA_SLOW_CMP_REF;
  // A hidden id is that of the row that was read last.
  if (table_share && has_primary_key())
    flags |= HA_PRIMARY_KEY_REQUIRED_FOR_POSITION;
  // Only where reads lock ranges, a statement does the same on a replica.
  THD *thd = current_thd;
  if (thd && thd_tx_isolation(thd) == ISO_SERIALIZABLE)
    flags |= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

ulong ha_terrace::index_flags(uint index, uint, bool) const
{
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  // The server asks before the share has its primary key, when there is no table.
  if (table && index == table_share->primary_key)
    flags |= HA_CLUSTERED_INDEX;
  return flags;
}

/* A row of a scan costs a fraction of one that is looked up. The unit is a look-up of the disk. */
double ha_terrace::scan_time() { return double(stats.records) / 20 + 1; }

double ha_terrace::read_time(uint index, uint ranges, ha_rows rows)
{
  double seeks = ranges;
  if (index == table_share->primary_key)
    return seeks + double(rows) / 20;
  return seeks + double(rows);
}

int ha_terrace::open(const char *name, int, uint)
{
  Failure failure;
  Bytes of_table = name[0] == '.' && name[1] == '/' ? name + 2 : name;
  open_table = Open_table::acquire(of_table, &failure);
  if (!open_table)
    return failure.status() == TERRACE_INVALID ? HA_ERR_NO_SUCH_TABLE
                                               : failure.handler_error(ha_thd());
  codecs.clear();
  for (uint i = 0; i < table->s->keys; i++)
  {
    const bool primary = i == table->s->primary_key;
    codecs.emplace_back(table, table->key_info[i],
                        primary ? PREFIX_ROWS : uchar(PREFIX_INDEXES + i));
  }
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

int ha_terrace::reset()
{
  close_cursor();
  row_buffer.clear();
  row_buffer.shrink_to_fit();
  return 0;
}

int ha_terrace::extra(enum ha_extra_function operation)
{
  if (operation == HA_EXTRA_BEGIN_COPY || operation == HA_EXTRA_BEGIN_ALTER_IGNORE_COPY)
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
  return 0;
}

/* Plain reads of statements that change nothing, with autocommit, need no locks at any level. */
static bool is_plain_select(THD *thd, int lock_type)
{
  return lock_type == F_RDLCK && thd_sql_command(thd) == SQLCOM_SELECT;
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
  return trx()->begin_statement(is_plain_select(thd, lock_type) && row_lock == LOCK_NONE);
}

int ha_terrace::start_stmt(THD *thd, thr_lock_type lock_type)
{
  if (lock_type >= TL_FIRST_WRITE)
    row_lock = LOCK_EXCLUSIVE;
  else
    row_lock = lock_type == TL_READ_WITH_SHARED_LOCKS ? LOCK_SHARE : LOCK_NONE;
  return trx()->begin_statement(is_plain_select(thd, F_RDLCK) && row_lock == LOCK_NONE);
}

/* Locks of metadata stand for locks of tables, so none is given to the server here. */
THR_LOCK_DATA **ha_terrace::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  skip_locked = type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  if (type >= TL_FIRST_WRITE)
    row_lock = LOCK_EXCLUSIVE;
  else if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED)
    row_lock = LOCK_SHARE;
  else
    row_lock = LOCK_NONE;
  return to;
}

bool ha_terrace::get_error_message(int error, String *buffer)
{
  if (error == HA_ERR_TERRACE)
    buffer->append(last_message(), strlen(last_message()));
  return false;
}

/* The server clones the handler of a table with UNIQUE ... USING HASH, to look for duplicates. */
handler *ha_terrace::clone(const char *name, MEM_ROOT *mem_root)
{
  handler *copy = handler::clone(name, mem_root);
  if (copy)
    static_cast<ha_terrace *>(copy)->row_lock = row_lock;
  return copy;
}
