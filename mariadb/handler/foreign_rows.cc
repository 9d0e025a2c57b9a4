/*
  Foreign keys as rows change: a row of a child has its parent, and a row of a parent that goes, or
  changes, has no child left behind.

  A child's row locks its parent's key, shared, and sees the newest one: it waits for a transaction
  that removes it. A parent's row has its own key locked by then. Its look for children locks what the
  index of the child has of the key, so that it waits for transactions that remove or add such rows.

  What is refused is looked at before the row changes. What follows it comes behind it, so that a row
  that refers to itself goes once. A savepoint takes back a row with all that followed it where one of
  them is refused.

  The metadata of the other tables is locked before the row changes. A key may move to another table
  while that is waited for: all keys of now are looked at then.
*/
#include "engine.h"
#include "foreign_columns.h"
#include "ha_terrace.h"

#include "sql_show.h"

/* The levels of a cascade, with the row that it begins with. As in InnoDB. */
static const uint MAX_DEPTH = 15;

/* So many rows of a child are looked up at a time. */
static const size_t PIECE = 1000;

static bool is_followed(enum_fk_option action)
{
  return action == FK_OPTION_CASCADE || action == FK_OPTION_SET_NULL;
}

void ha_terrace::follow_references()
{
  const ulonglong now = references_version();
  if (references_seen == now)
    return;
  references_seen = now;
  parents = children = References();
  // Temporary tables have none, and a copy has those that its table will have.
  if (table_share->tmp_table != NO_TMP_TABLE || table->part_info)
    return;
  parents = references_of(open_table->name_of_table());
  children = references_to(open_table->name_of_table());
}

/* Whether keys have changed while a table of one was waited for. Those of now are seen then. */
bool ha_terrace::has_moved()
{
  const ulonglong before = references_seen;
  follow_references();
  return references_seen != before;
}

bool ha_terrace::follows_keys()
{
  if (has_no_references() || (ha_thd()->variables.option_bits & OPTION_NO_FOREIGN_KEY_CHECKS))
    return false;
  follow_references();
  return !parents.empty() || !children.empty();
}

/* Names the key that an error is about. */
static int fail_of(Trx *trx, const Reference &key, int error)
{
  const Sql_name child(key.child);
  StringBuffer<512> text(system_charset_info);
  append_identifier(current_thd, &text, child.database.data(), child.database.size());
  text.append('.');
  append_identifier(current_thd, &text, child.table.data(), child.table.size());
  trx->failed_key = Bytes(text.ptr(), text.length()) + ", " + key.text();
  return error;
}

/* One that a cascade or a look has taken, until it goes out of scope. */
class Taken
{
public:
  Taken(THD *thd, Trx *trx, const Bytes &name, bool writes, int *error)
    : taken(trx->linked.take(thd, name, writes, error))
  {
  }
  ~Taken()
  {
    if (taken)
      taken->is_busy = false;
  }
  Taken(const Taken &) = delete;
  Taken &operator=(const Taken &) = delete;
  bool is_there() const { return taken != nullptr; }
  TABLE *table() const { return taken->table; }
  ha_terrace *file() const { return taken->handler_of(); }

private:
  Linked_table *taken;
};

/*
  The rows whose entries in an index begin with a prefix, as they are now, locked. Empty for none;
  one at most where none is wanted. Many such ranges become the whole table. Of many rows *rest says
  where others begin, which are locked then, and is empty behind the last one.
*/
int ha_terrace::rows_of_key(uint index, const Bytes &prefix, uint kind, std::vector<Bytes> *rows,
                            Bytes *rest)
{
  terrace_range range = {{prefix.data(), prefix.size(), TERRACE_PREFIX},
                         {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  const bool is_primary = index == table_share->primary_key;
  const Bytes behind = successor(prefix), begin = rest ? *rest : Bytes();
  bool is_whole = !begin.empty();
  if (is_whole)
    range = {{begin.data(), begin.size(), TERRACE_INCLUDED},
             {behind.data(), behind.size(), TERRACE_EXCLUDED}};
  else if (int error = trx()->before_range_lock(open_table->name_of_table(),
                                                kind == TERRACE_FOR_UPDATE, &is_whole))
    return error;
  if (rest)
    rest->clear();
  May_wait may_wait(trx());
  uint read_kind = is_whole ? TERRACE_READ_NEWEST : kind;
  terrace_cursor *entries =
    trx()->locking_cursor(nullptr, open_table->name_of_table(), open_table->table, range,
                          kind == TERRACE_FOR_UPDATE, &read_kind, &failure);
  if (!entries)
    return failure.handler_error(ha_thd());
  terrace_row lent;
  terrace_status status = TERRACE_OK;
  int error = 0;
  active_index = index;
  while (!error && (status = terrace_cursor_next(entries, &lent, failure.out())) == TERRACE_OK)
  {
    const Bytes entry(lent.key, lent.key_len);
    rows->push_back(entry);
    if (!is_primary)
      error = row_of_entry(entry, Bytes(lent.value, lent.value_len), &rows->back());
    if (kind == TERRACE_FOR_SHARE)
      break;
    if (rest && rows->size() == PIECE)
    {
      *rest = entry + '\0';
      break;
    }
  }
  active_index = MAX_KEY;
  terrace_cursor_free(entries);
  if (error || status == TERRACE_OK || status == TERRACE_NOT_FOUND)
    return error;
  return failure.handler_error(ha_thd());
}

/* Whether the parent of a record is there, and stays until the end of the transaction. */
int ha_terrace::find_parent(const Reference &key, const uchar *record, const Columns &own)
{
  const int missing = HA_ERR_NO_REFERENCED_ROW;
  int error = 0;
  Taken parent(ha_thd(), trx(), key.parent, false, &error);
  if (!parent.is_there())
    return error ? error : fail_of(trx(), key, missing);
  const Columns of_parent = columns_of(parent.table(), key.parent_columns);
  const uint index = index_of(parent.table(), of_parent);
  if (index == MAX_KEY || !can_have_keys(parent.table()) || !can_compare(own, of_parent) ||
      !copy_columns(table, record, own, of_parent))
    return fail_of(trx(), key, missing);
  const Key_codec &of_index = parent.file()->codec(index);
  const uint count = uint(own.size());
  Bytes wanted;
  of_index.from_record(&wanted, parent.table()->record[0], count);
  if (key.parent == key.child)
  {
    // A row may be its own parent.
    Bytes of_itself;
    codec(index).from_record(&of_itself, record, count);
    if (of_itself == wanted)
      return 0;
  }
  std::vector<Bytes> found;
  if (of_index.unique && count == of_index.part_count())
  {
    error = parent.file()->lock_key(wanted, LOCK_SHARE);
    if (!error)
      return 0;
  }
  else
    error = parent.file()->rows_of_key(index, wanted, TERRACE_FOR_SHARE, &found);
  if (error && error != HA_ERR_KEY_NOT_FOUND)
    return error;
  return found.empty() ? fail_of(trx(), key, missing) : 0;
}

/* Whether a record that is put, or changed, has its parents. */
int ha_terrace::check_parents(const uchar *old_record, const uchar *new_record)
{
  for (const Reference_ref &key : References(parents))
  {
    const Columns own = columns_of(table, key->columns);
    if (own.empty())
      return fail_of(trx(), *key, HA_ERR_NO_REFERENCED_ROW);
    if (has_null(table, new_record, own) ||
        (old_record && !differ(table, old_record, new_record, own)))
      continue;
    const int error = find_parent(*key, new_record, own);
    if ((!error || error == HA_ERR_NO_REFERENCED_ROW) && has_moved())
      return check_parents(old_record, new_record);
    if (error)
      return error;
  }
  return 0;
}

/* What a change of a record does to its children by a key. */
static enum_fk_option action_of(const Reference &key, bool is_delete)
{
  return is_delete ? key.on_delete : key.on_update;
}

/*
  Whether children are refused, and not followed. An update that comes back to a table that is being
  updated is, as in InnoDB.
*/
bool ha_terrace::restricts(const Reference &key, bool is_delete)
{
  if (!is_followed(action_of(key, is_delete)))
    return true;
  if (is_delete)
    return false;
  for (const Trx::Followed &one : trx()->followed)
    if (one.table == key.child && !one.is_delete)
      return true;
  return key.child == key.parent;
}

/* Whether a parent's record loses what its children refer to. */
bool ha_terrace::loses(const Columns &own, const uchar *old_record, const uchar *new_record) const
{
  return !own.empty() && !has_null(table, old_record, own) &&
         (!new_record || differ(table, old_record, new_record, own));
}

/* The rows of a child that refer to a record, and what their entries in its index begin with. */
int ha_terrace::find_children(const Reference &key, const uchar *record, const Columns &own,
                              TABLE *of_child, uint kind, Bytes *prefix,
                              std::vector<Bytes> *rows, Bytes *rest)
{
  const Columns theirs = columns_of(of_child, key.columns);
  const uint index = index_of(of_child, theirs);
  // Without an index nothing says that there is none.
  if (index == MAX_KEY || !can_compare(own, theirs))
    return fail_of(trx(), key, HA_ERR_ROW_IS_REFERENCED);
  if (!copy_columns(table, record, own, theirs))
    return 0;
  ha_terrace *file = static_cast<ha_terrace *>(of_child->file);
  prefix->clear();
  file->codec(index).from_record(prefix, of_child->record[0], uint(own.size()));
  return file->rows_of_key(index, *prefix, kind, rows, rest);
}

/* Before a record goes, or changes: no child refers to it that may not. */
int ha_terrace::check_children(const uchar *old_record, const uchar *new_record, bool *is_followed)
{
  const bool is_delete = !new_record;
  *is_followed = false;
  for (const Reference_ref &key : References(children))
  {
    const Columns own = columns_of(table, key->parent_columns);
    if (!loses(own, old_record, new_record))
      continue;
    const bool follows = !restricts(*key, is_delete);
    int error = 0;
    Bytes prefix;
    std::vector<Bytes> rows;
    bool moved = false;
    {
      // What follows finds the children that are taken here, and so does a look anew.
      Taken child(ha_thd(), trx(), key->child, follows, &error);
      moved = !error && has_moved();
      if (child.is_there() && !moved && !follows)
        error =
          find_children(*key, old_record, own, child.table(), TERRACE_FOR_SHARE, &prefix, &rows);
    }
    if (moved)
      return check_children(old_record, new_record, is_followed);
    *is_followed |= follows;
    if (!error && !rows.empty())
      error = fail_of(trx(), *key, HA_ERR_ROW_IS_REFERENCED);
    if (error)
      return error;
  }
  return 0;
}

/* Changes one row of this child as its parent has changed. */
int ha_terrace::follow_row(const Reference &key, const Bytes &of_row, const Bytes &prefix,
                           TABLE *of_parent, const uchar *new_record)
{
  const bool is_delete = !new_record;
  bool is_there = false;
  row_lock = LOCK_EXCLUSIVE;
  int error = read_row(table->record[0], of_row, &is_there);
  // An earlier row may have had it removed.
  if (error || !is_there)
    return error;
  // Or changed: it refers to another parent then, or to none.
  const Columns own = columns_of(table, key.columns);
  Bytes refers_to;
  codec(index_of(table, own)).from_record(&refers_to, table->record[0], uint(own.size()));
  if (refers_to != prefix)
    return 0;
  if (table->vfield)
  {
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
    table->update_virtual_fields(this, VCOL_UPDATE_INDEXED);
  }
  const bool sets_null = action_of(key, is_delete) == FK_OPTION_SET_NULL;
  if (is_delete && !sets_null)
    return delete_row(table->record[0]);
  store_record(table, record[1]);
  bool fits = true;
  if (sets_null)
    for (Field *column : own)
    {
      fits &= column->real_maybe_null();
      column->set_null();
      column->reset();
    }
  else
    fits = copy_columns(of_parent, new_record, columns_of(of_parent, key.parent_columns), own);
  if (!fits)
    return fail_of(trx(), key, HA_ERR_ROW_IS_REFERENCED);
  if (table->vfield)
  {
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_WRITE);
    table->update_virtual_fields(this, VCOL_UPDATE_INDEXED);
  }
  error = update_row(table->record[1], table->record[0]);
  return error == HA_ERR_RECORD_IS_THE_SAME ? 0 : error;
}

/* Changes the rows of one child. */
int ha_terrace::follow_key(const Reference &key, const uchar *old_record, const uchar *new_record,
                           const Columns &own)
{
  Trx *of_connection = trx();
  int error = 0;
  Bytes prefix, rest;
  Taken child(ha_thd(), of_connection, key.child, true, &error);
  if (!child.is_there())
    return error;
  do
  {
    std::vector<Bytes> rows;
    error =
      find_children(key, old_record, own, child.table(), TERRACE_FOR_UPDATE, &prefix, &rows, &rest);
    if (!error && !rows.empty() && of_connection->followed.size() >= MAX_DEPTH)
      error = fail_of(of_connection, key, HA_ERR_FK_DEPTH_EXCEEDED);
    for (size_t i = 0; i < rows.size() && !error; i++)
    {
      error = thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED ? HA_ERR_ABORTED_BY_USER : 0;
      if (!error)
        error = child.file()->follow_row(key, rows[i], prefix, table, new_record);
    }
  } while (!error && !rest.empty());
  if (error == HA_ERR_FOUND_DUPP_KEY)
  {
    // The number of the index is the child's, and would be taken for one of this table.
    const uint index = of_connection->error_key;
    of_connection->doubled_child = Sql_name(key.child).table;
    of_connection->doubled_index = index < child.table()->s->keys
                                     ? child.table()->key_info[index].name.str
                                     : "PRIMARY";
    error = HA_ERR_FOREIGN_DUPLICATE_KEY;
  }
  return error;
}

/* Before a record goes, or changes. The caller ends it with end_change() where it has begun. */
int ha_terrace::begin_change(const uchar *old_record, const uchar *new_record, Change *change)
{
  if (!follows_keys())
    return 0;
  int error = new_record ? check_parents(old_record, new_record) : 0;
  if (!error)
    error = check_children(old_record, new_record, &change->is_followed);
  if (error || !change->is_followed)
    return error;
  change->is_followed = false;
  if (trx()->followed.empty())
    error = trx()->set_savepoint(&change->savepoint);
  change->is_followed = !error;
  return error;
}

/* Behind the change of a record: what follows it, or all of it is taken back. */
int ha_terrace::end_change(const uchar *old_record, const uchar *new_record, const Change &change,
                           int error)
{
  if (!change.is_followed)
    return error;
  Trx *of_connection = trx();
  of_connection->followed.push_back({open_table->name_of_table(), !new_record});
  for (const Reference_ref &key : References(children))
  {
    const Columns own = columns_of(table, key->parent_columns);
    if (!error && is_followed(action_of(*key, !new_record)) && loses(own, old_record, new_record))
      error = follow_key(*key, old_record, new_record, own);
  }
  of_connection->followed.pop_back();
  if (!change.savepoint)
    return error;
  // After a deadlock there is nothing to take back.
  if (error && error != HA_ERR_LOCK_DEADLOCK && of_connection->roll_back_to(change.savepoint))
    ha_thd()->mark_transaction_to_rollback(true);
  const int released = of_connection->release_savepoint(change.savepoint);
  return error ? error : released;
}
