#include "linked.h"
#include "engine.h"
#include "ha_terrace.h"
#include "references.h"

#include "sql_base.h"
#include "table_cache.h"

ha_terrace *Linked_table::handler_of() const { return static_cast<ha_terrace *>(table->file); }

void Linked_table::name_it(THD *thd, const Bytes &of_table, enum_mdl_type of_lock,
                           enum_mdl_duration until)
{
  const Sql_name of_sql(of_table);
  name = of_table;
  const LEX_CSTRING database = {thd->strmake(of_sql.database.data(), of_sql.database.size()),
                                of_sql.database.size()};
  const LEX_CSTRING called = {thd->strmake(of_sql.table.data(), of_sql.table.size()),
                              of_sql.table.size()};
  list.init_one_table(&database, &called, nullptr, TL_READ);
  MDL_REQUEST_INIT(&list.mdl_request, MDL_key::TABLE, database.str, called.str, of_lock, until);
}

int Linked_table::lock(THD *thd, const Bytes &of_table, enum_mdl_type of_lock)
{
  name_it(thd, of_table, of_lock, MDL_TRANSACTION);
  if (!thd->mdl_context.acquire_lock(&list.mdl_request, thd->variables.lock_wait_timeout))
    return 0;
  const bool is_deadlock = thd->is_error() && thd->get_stmt_da()->sql_errno() == ER_LOCK_DEADLOCK;
  // As after a deadlock of rows. The library knows nothing of this one.
  if (is_deadlock)
    thd->mark_transaction_to_rollback(true);
  return is_deadlock ? HA_ERR_LOCK_DEADLOCK : HA_ERR_LOCK_WAIT_TIMEOUT;
}

bool Linked_table::open(THD *thd, const Bytes &of_table, enum_mdl_type of_lock, int *error)
{
  *error = lock(thd, of_table, of_lock);
  return !*error && open_locked(thd, error);
}

bool Linked_table::look(THD *thd, const Bytes &of_table)
{
  name_it(thd, of_table, MDL_SHARED_HIGH_PRIO, MDL_EXPLICIT);
  int ignored = 0;
  is_look = !thd->mdl_context.try_acquire_lock(&list.mdl_request) && list.mdl_request.ticket;
  return is_look && open_locked(thd, &ignored);
}

bool Linked_table::open_locked(THD *thd, int *error)
{
  if (!library_has(name) || !ha_table_exists(thd, &list.db, &list.table_name))
    return false;
  TABLE *found = nullptr;
  TABLE_SHARE *share = tdc_acquire_share(thd, &list, GTS_TABLE, &found);
  if (!share)
  {
    *error = HA_ERR_NO_SUCH_TABLE;
    return false;
  }
  if (share->db_type() == terrace_hton && !found &&
      (found = static_cast<TABLE *>(my_malloc(PSI_INSTRUMENT_ME, sizeof(TABLE), MYF(MY_WME)))))
  {
    if (open_table_from_share(thd, share, &list.table_name, HA_OPEN_KEYFILE | HA_TRY_READ_ONLY,
                              EXTRA_RECORD, thd->open_options, found, false))
    {
      my_free(found);
      found = nullptr;
      *error = HA_ERR_CRASHED;
    }
    else
    {
      // The server waits for openings that it counts, and does not see, for ever.
      tc_add_table(thd, found);
      found->internal_set_needs_reopen(true);
    }
  }
  if (!found)
    tdc_release_share(share);
  table = found;
  // A partitioned table, or one of another engine, has none of this engine's foreign keys.
  return table && table->file->ht == terrace_hton;
}

int Linked_table::begin(THD *thd)
{
  table->use_all_columns();
  table->pos_in_table_list = &list;
  // An outer join may have left it on a row of NULLs.
  table->null_row = false;
  has_begun = true;
  return table->file->ha_external_lock(thd, F_WRLCK);
}

Linked_table::~Linked_table()
{
  if (table)
    close();
  if (is_look)
    current_thd->mdl_context.release_lock(list.mdl_request.ticket);
}

void Linked_table::close()
{
  if (has_begun)
    table->file->ha_external_unlock(table->in_use);
  table->file->ha_reset();
  table->default_column_bitmaps();
  table->pos_in_table_list = nullptr;
  tc_release_table(table);
}

Linked_table *Linked_tables::take(THD *thd, const Bytes &name, bool writes, int *error)
{
  for (auto &one : all)
    if (!one->is_busy && one->name == name && one->writes >= writes)
    {
      one->is_busy = true;
      return one.get();
    }
  std::unique_ptr<Linked_table> opened(new Linked_table);
  opened->writes = writes;
  if (!opened->open(thd, name, writes ? MDL_SHARED_WRITE : MDL_SHARED_READ, error) ||
      (*error = opened->begin(thd)))
    return nullptr;
  opened->is_busy = true;
  all.push_back(std::move(opened));
  return all.back().get();
}
