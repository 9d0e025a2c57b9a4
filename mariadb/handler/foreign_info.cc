/*
  What the server is told of foreign keys: SHOW CREATE TABLE, INFORMATION_SCHEMA, and its own checks.
*/
#include "engine.h"
#include "foreign_columns.h"
#include "ha_terrace.h"

static LEX_CSTRING *name_in(THD *thd, const Bytes &name)
{
  return reinterpret_cast<LEX_CSTRING *>(
    thd_make_lex_string(thd, nullptr, name.data(), uint(name.size()), 1));
}

static void set_nullable(THD *thd, FOREIGN_KEY_INFO *info, bool of_parent, const Columns &columns)
{
  for (uint i = 0; i < columns.size(); i++)
    if (columns[i]->real_maybe_null())
      info->set_nullable(thd, of_parent, i, uint(columns.size()));
}

/* What the server has of a key. The table is one of both ends; the other one is opened if it can be. */
static FOREIGN_KEY_INFO *info_of(THD *thd, const Reference &key, TABLE *table, bool is_child)
{
  FOREIGN_KEY_INFO *info = new (thd->alloc(sizeof(FOREIGN_KEY_INFO))) FOREIGN_KEY_INFO();
  const Sql_name child(key.child), parent(key.parent);
  info->foreign_id = name_in(thd, key.name);
  info->foreign_db = name_in(thd, child.database);
  info->foreign_table = name_in(thd, child.table);
  info->referenced_db = name_in(thd, parent.database);
  info->referenced_table = name_in(thd, parent.table);
  info->update_method = key.on_update;
  info->delete_method = key.on_delete;
  info->referenced_key_name = nullptr;
  for (const Bytes &column : key.columns)
    info->foreign_fields.push_back(name_in(thd, column), thd->mem_root);
  for (const Bytes &column : key.parent_columns)
    info->referenced_fields.push_back(name_in(thd, column), thd->mem_root);
  set_nullable(thd, info, !is_child, columns_of(table, is_child ? key.columns : key.parent_columns));
  // Statements that change rows ask for children, and need the names alone.
  if (!is_child && thd_sql_command(thd) != SQLCOM_ALTER_TABLE)
    return info;
  Linked_table other;
  TABLE *of_other = table;
  if (key.child != key.parent)
    of_other = other.look(thd, is_child ? key.parent : key.child) ? other.table : nullptr;
  if (!of_other)
    return info;
  const Columns theirs = columns_of(of_other, is_child ? key.parent_columns : key.columns);
  set_nullable(thd, info, is_child, theirs);
  const uint index = is_child ? index_of(of_other, theirs) : MAX_KEY;
  if (index != MAX_KEY)
    info->referenced_key_name = name_in(thd, of_other->key_info[index].name.str);
  return info;
}

int ha_terrace::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
{
  follow_references();
  for (const Reference_ref &key : References(parents))
    list->push_back(info_of(thd, *key, table, true), thd->mem_root);
  return 0;
}

int ha_terrace::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list)
{
  follow_references();
  for (const Reference_ref &key : References(children))
    list->push_back(info_of(thd, *key, table, false), thd->mem_root);
  return 0;
}

bool ha_terrace::referenced_by_foreign_key() const noexcept
{
  if (!open_table || table->part_info || has_no_references())
    return false;
  // The server calls it for each statement.
  const_cast<ha_terrace *>(this)->follow_references();
  return !children.empty();
}

/* The key of a child that what followed a change would have doubled. */
bool ha_terrace::get_foreign_dup_key(char *child, uint child_len, char *index, uint index_len)
{
  strmake(child, trx()->doubled_child.c_str(), child_len - 1);
  strmake(index, trx()->doubled_index.c_str(), index_len - 1);
  return true;
}

bool ha_terrace::can_switch_engines()
{
  follow_references();
  return parents.empty() && children.empty();
}

char *ha_terrace::get_foreign_key_create_info()
{
  follow_references();
  Bytes text;
  for (const Reference_ref &key : parents)
    text += ",\n  " + key->text();
  return text.empty() ? nullptr : my_strdup(PSI_INSTRUMENT_ME, text.c_str(), MYF(MY_WME));
}

void ha_terrace::free_foreign_key_create_info(char *text) { my_free(text); }
