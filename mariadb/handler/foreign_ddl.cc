/*
  Foreign keys in statements that change tables: what a definition says, whether it can be, and what
  is refused because of one.
*/
#include "attributes.h"
#include "engine.h"
#include "foreign_columns.h"
#include "ha_terrace.h"
#include "recovery.h"

#include <set>

static bool checks_keys(THD *thd)
{
  return !(thd->variables.option_bits & OPTION_NO_FOREIGN_KEY_CHECKS);
}

Bytes altered_table(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
  case SQLCOM_ANALYZE:
    break;
  default:
    return Bytes();
  }
  const TABLE_LIST *first = thd->lex->query_tables;
  return first ? library_name(first->db.str, first->table_name.str) : Bytes();
}

/* Says why a foreign key cannot be. */
static int refuse(THD *thd, const Reference &key, const char *reason)
{
  const Sql_name child(key.child);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN,
                      "Table %s.%s, %s: %s", child.database.c_str(), child.table.c_str(),
                      key.text().c_str(), reason);
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

/*
  The server has removed from the lists of a statement what it does not do: what is there, or is not,
  with IF EXISTS and IF NOT EXISTS. The statement itself has that still.
*/
static bool is_dropped(Alter_info *said, const Bytes &name)
{
  List_iterator<Alter_drop> drops(said->drop_list);
  while (const Alter_drop *drop = drops++)
    if (drop->type == Alter_drop::FOREIGN_KEY &&
        !my_strcasecmp(system_charset_info, drop->name, name.c_str()))
      return true;
  return false;
}

static std::vector<Bytes> names_of(const List<Key_part_spec> &columns, bool *has_prefix)
{
  std::vector<Bytes> names;
  List_iterator<Key_part_spec> parts(const_cast<List<Key_part_spec> &>(columns));
  while (const Key_part_spec *part = parts++)
  {
    names.emplace_back(part->field_name.str, part->field_name.length);
    *has_prefix |= part->length != 0;
  }
  return names;
}

/* SET DEFAULT restricts, as in InnoDB. */
static enum_fk_option action_of(enum_fk_option said)
{
  return said == FK_OPTION_UNDEF || said == FK_OPTION_SET_DEFAULT ? FK_OPTION_RESTRICT : said;
}

/* A name that no key has. That of a table may stay with a key that is not its own any more. */
static Bytes made_name(const Bytes &table, const std::vector<Reference> &keys)
{
  const Bytes made = Sql_name(table).table + "_ibfk_";
  ulong last = 0;
  for (const Reference &key : keys)
    if (key.name.compare(0, made.size(), made) == 0)
      last = std::max(last, strtoul(key.name.c_str() + made.size(), nullptr, 10));
  Bytes name;
  do
    name = made + std::to_string(++last);
  while (is_name_taken(name, table));
  return name;
}

/* Adds what the statement says to the keys of a table. */
static int add_wanted(THD *thd, Alter_info *said, const Bytes &child, const Bytes &table,
                      std::vector<Reference> *keys)
{
  List_iterator<Key> of_statement(said->key_list);
  while (Key *key = of_statement++)
  {
    if (key->type != Key::FOREIGN_KEY || key->old)
      continue;
    const ::Foreign_key *foreign = static_cast<::Foreign_key *>(key);
    Reference wanted;
    bool has_prefix = false;
    wanted.child = child;
    wanted.columns = names_of(foreign->columns, &has_prefix);
    wanted.parent_columns = names_of(foreign->ref_columns, &has_prefix);
    if (wanted.parent_columns.empty())
      wanted.parent_columns = wanted.columns;
    Bytes database = foreign->ref_db.str ? foreign->ref_db.str : Sql_name(table).database;
    Bytes parent = foreign->ref_table.str;
    if (lower_case_table_names)
      for (Bytes *name : {&database, &parent})
        my_casedn_str(system_charset_info, &(*name)[0]);
    wanted.parent = library_name(database, parent);
    wanted.on_delete = action_of(foreign->delete_opt);
    wanted.on_update = action_of(foreign->update_opt);
    const LEX_CSTRING &name =
      foreign->constraint_name.str ? foreign->constraint_name : foreign->name;
    wanted.name = name.str ? Bytes(name.str, name.length) : made_name(table, *keys);
    if (has_prefix)
      return refuse(thd, wanted, "a prefix of a column is no key");
    keys->push_back(wanted);
  }
  return 0;
}

/* Whether each name is the only one of its database. */
static int check_names(THD *thd, const Bytes &table, const std::vector<Reference> &keys)
{
  for (size_t i = 0; i < keys.size(); i++)
  {
    bool is_taken = is_name_taken(keys[i].name, table);
    for (size_t other = 0; other < i; other++)
      is_taken |= !my_strcasecmp(system_charset_info, keys[i].name.c_str(),
                                 keys[other].name.c_str());
    if (is_taken)
    {
      refuse(thd, keys[i], "another foreign key of the database has the name");
      return HA_ERR_FOUND_DUPP_KEY;
    }
  }
  return 0;
}

static const char GO_BY_TIME[] =
  "rows that expire, and those with system versions, have no foreign key";

/* What is so of a child alone. */
static int check_child(THD *thd, const Reference &key, const TABLE *child)
{
  const Columns own = columns_of(child, key.columns);
  if (!can_have_keys(child))
    return refuse(thd, key, GO_BY_TIME);
  if (index_of(child, own) == MAX_KEY)
    return refuse(thd, key, "no index of the table begins with the columns");
  for (const Field *column : own)
  {
    const bool sets_null =
      key.on_delete == FK_OPTION_SET_NULL || key.on_update == FK_OPTION_SET_NULL;
    if (sets_null && !column->real_maybe_null())
      return refuse(thd, key, "SET NULL on a column that is NOT NULL");
    if ((column->flags & BLOB_FLAG) || column->vcol_info)
      return refuse(thd, key, "a column has a type that foreign keys do not take");
  }
  return 0;
}

/* What is so of a child and its parent. */
static int check_pair(THD *thd, const Reference &key, const TABLE *child, const TABLE *parent)
{
  const Columns own = columns_of(child, key.columns);
  const Columns theirs = columns_of(parent, key.parent_columns);
  if (!can_have_keys(parent))
    return refuse(thd, key, GO_BY_TIME);
  if (index_of(parent, theirs) == MAX_KEY)
    return refuse(thd, key, "no index of the parent begins with its columns");
  if (!can_compare(own, theirs))
    return refuse(thd, key, "the types of the columns differ");
  for (size_t i = 0; i < own.size(); i++)
    if (key.on_update == FK_OPTION_CASCADE && theirs[i]->real_maybe_null() &&
        !own[i]->real_maybe_null())
      return refuse(thd, key, "CASCADE of NULL to a column that is NOT NULL");
  return 0;
}

/* The keys that a table which is made is to have: those of the one that it is a copy of, and new. */
int ha_terrace::wanted_references(const Bytes &name, TABLE *form, const HA_CREATE_INFO *info,
                                  std::vector<Reference> *keys)
{
  THD *thd = ha_thd();
  const bool is_copy = is_hidden(name);
  const Bytes table_name = is_copy ? altered_table(thd) : name;
  const bool says = is_copy ? !table_name.empty() : thd_sql_command(thd) == SQLCOM_CREATE_TABLE;
  // Without it nothing is said.
  Alter_info nothing;
  Alter_info *said = info->alter_info ? info->alter_info : &nothing;
  if (is_temporary(name) || info->tmp_table())
  {
    if (int error = add_wanted(thd, said, name, name, keys))
      return error;
    return keys->empty() ? 0 : refuse(thd, keys->front(), "temporary tables have no foreign keys");
  }
  if (!says || form->part_info)
    return 0;
  if (is_copy)
    for (const Reference_ref &key : references_of(table_name))
      if (!is_dropped(said, key->name))
      {
        keys->push_back(*key);
        keys->back().child = name;
      }
  if (int error = add_wanted(thd, said, name, table_name, keys))
    return error;
  return check_names(thd, table_name, *keys);
}

/*
  Locks the parents of the keys that a table gets or loses. A change of a parent's rows, and an ALTER
  TABLE of it, look for its keys when they begin. They do not find one that is made meanwhile, nor
  those of a copy until it has its name. A rename that fails gives a table the keys back that are
  dropped. The order is that of names, so no two of these wait for each other.
*/
static int lock_parents(THD *thd, const Bytes &table, const References &before,
                        const std::vector<Reference> &wanted)
{
  std::set<Bytes> parents;
  for (const Reference &key : wanted)
    parents.insert(key.parent);
  for (const Reference_ref &key : before)
    parents.insert(key->parent);
  parents.erase(table);
  for (const Bytes &parent : parents)
    if (int error = Linked_table().lock(thd, parent, MDL_SHARED_NO_WRITE))
      return error;
  return 0;
}

/* Whether a table that is made can be the child, and the parent, that keys say. */
int ha_terrace::check_references(const Bytes &name, TABLE *form,
                                 const std::vector<Reference> &keys)
{
  // It has none, and those of a table whose name it has are not its own.
  if (is_temporary(name))
    return 0;
  THD *thd = ha_thd();
  const Bytes table_name = is_hidden(name) ? altered_table(thd) : name;
  for (const Reference &key : keys)
    if (int error = check_child(thd, key, form))
      return error;
  // Also without checks: its rows would go, or stay, unseen by its children.
  for (const Reference_ref &key : references_to(table_name))
    if (key->child != table_name && !can_have_keys(form))
      return refuse(thd, *key, GO_BY_TIME);
  const References before = is_hidden(name) ? references_of(table_name) : References();
  if (int error = lock_parents(thd, table_name, before, keys))
    return error;
  if (!checks_keys(thd))
    return 0;
  for (const Reference &key : keys)
  {
    int error = 0;
    Linked_table parent;
    const bool is_itself = key.parent == table_name;
    const bool is_there = is_itself || parent.open(thd, key.parent, MDL_SHARED_NO_WRITE, &error);
    if (error)
      return error;
    if (!is_there)
      return refuse(thd, key, "there is no such parent");
    if ((error = check_pair(thd, key, form, is_itself ? form : parent.table)))
      return error;
  }
  if (table_name.empty())
    return 0;
  for (const Reference_ref &key : references_to(table_name))
  {
    int error = 0;
    Linked_table child;
    // A key that stays is among those above.
    if (key->child == table_name)
      continue;
    if (child.open(thd, key->child, MDL_SHARED_READ, &error))
      error = check_pair(thd, *key, child.table, form);
    if (error)
      return error;
  }
  return 0;
}

int refuse_drop_of_parent(THD *thd, const Bytes &name)
{
  // A recovery cannot tell a drop that was allowed, which it has to end, from another one.
  if (has_no_references() || is_hidden(name) || !checks_keys(thd) || is_recovering())
    return 0;
  Trx *of_connection = Trx::of(thd);
  // CREATE TABLE ... SELECT that fails. Its definition goes in any case.
  if (of_connection->has_made(name))
    return 0;
  const bool is_of_database = thd_sql_command(thd) == SQLCOM_DROP_DB;
  of_connection->failed_key.clear();
  for (const Reference_ref &key : references_to(name))
    if (key->child != name &&
        !(is_of_database && Sql_name(key->child).database == Sql_name(name).database))
      return library_has(name) ? HA_ERR_ROW_IS_REFERENCED : 0;
  return 0;
}

/* Whether a foreign key has a column of the table that changes its name, or goes. */
static bool changes_columns(const TABLE *table, const std::vector<Bytes> &names,
                            Alter_inplace_info *info)
{
  for (const Field *column : columns_of(table, names))
  {
    bool stays = false;
    List_iterator_fast<Create_field> fields(info->alter_info->create_list);
    while (const Create_field *field = fields++)
      stays |= field->field == column &&
               !my_strcasecmp(system_charset_info, field->field_name.str, column->field_name.str);
    if (!stays)
      return true;
  }
  return false;
}

/* The name of an index that goes though a foreign key needs it; NULL for none. */
static const char *needed_index(const TABLE *table, const TABLE *altered,
                                const std::vector<Bytes> &names, Alter_inplace_info *info)
{
  const uint index = index_of(table, columns_of(table, names));
  if (index == MAX_KEY || index_of(altered, columns_of(altered, names)) != MAX_KEY)
    return nullptr;
  return info->index_drop_count ? info->index_drop_buffer[0]->name.str
                                : table->key_info[index].name.str;
}

/*
  Whether foreign keys let a table be altered in place. A copy is asked about columns by the server, and
  makes the keys that are new.
*/
enum_alter_inplace_result ha_terrace::check_keys_of_alter(TABLE *altered, Alter_inplace_info *info)
{
  if (info->handler_flags & (ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  follow_references();
  if (!parents.empty() || !children.empty())
    if (has_ttl(altered->s->option_struct))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  for (const References *keys : {&parents, &children})
    for (const Reference_ref &key : *keys)
    {
      const std::vector<Bytes> &names = keys == &parents ? key->columns : key->parent_columns;
      if (changes_columns(table, names, info))
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
      const char *needed = needed_index(table, altered, names, info);
      if (!needed || !checks_keys(ha_thd()))
        continue;
      my_error(ER_DROP_INDEX_FK, MYF(0), needed);
      return HA_ALTER_ERROR;
    }
  return HA_ALTER_INPLACE_INSTANT;
}
