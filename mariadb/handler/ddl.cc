/*
  Tables as a whole: created, dropped, renamed, emptied, altered and checked.
*/
#include "attributes.h"
#include "belonging.h"
#include "engine.h"
#include "ha_terrace.h"
#include "partition_info.h"
#include "partitions.h"
#include "recovery.h"
#include "renames.h"
#include "role.h"

Bytes name_of(const char *path)
{
  return path[0] == '.' && path[1] == '/' ? path + 2 : path;
}

bool is_own_table(const Bytes &name) { return name.compare(0, 9, "#terrace/") == 0; }

/* SQL can name any folder of the data directory, as `#mysql50#…`, and a folder need not be there. */
static int refuse_own(const Bytes &name)
{
  return is_own_table(name) ? fail_with("tables in #terrace are the engine's own") : 0;
}

bool is_temporary(const Bytes &name) { return name.find("/#sql-temptable-") != Bytes::npos; }

/*
  The old table of a copy may be of another engine, beside rows of its name whose definition is lost.
  The copy would take that name. Behind a kill a recovery would drop the rows for it.
*/
static int refuse_lost_rows(THD *thd, const Bytes &name)
{
  const Bytes copied = is_copy(name) ? altered_table(thd) : Bytes();
  if (copied.empty())
    return 0;
  const TABLE *old = thd->lex->query_tables->table;
  // The server has handlers of its own before those of partitions, and of a sequence.
  const bool is_other = old && old->file->partition_ht() != terrace_hton &&
                        old->file->storage_ht() != terrace_hton;
  return is_other && has_any(copied) ? fail_as_taken(copied) : 0;
}

/* An opening gives each partition what the definition says of the table: its own would be lost. */
static int refuse_attributes_of_partitions(THD *thd, const TABLE *form)
{
  for (partition_info *of_table : {form->part_info, thd->lex->part_info})
  {
    if (!of_table)
      continue;
    List_iterator_fast<partition_element> partitions(of_table->partitions);
    while (const partition_element *partition = partitions++)
      if (partition->option_list)
      {
        my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "Terrace", "attributes of one partition");
        return HA_WRONG_CREATE_OPTION;
      }
  }
  return 0;
}

/* A sequence is one row, which would expire between two numbers, or while none is taken. */
static int refuse_ttl_of_sequence(const TABLE *form, const HA_CREATE_INFO *info)
{
  if (!info->sequence || !has_ttl(form->s->option_struct))
    return 0;
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "Terrace", "TERRACE_TTL of a sequence");
  return HA_WRONG_CREATE_OPTION;
}

int ha_terrace::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  THD *thd = ha_thd();
  if (int error = refuse_change())
    return error;
  if (int error = refuse_attributes_of_partitions(thd, form))
    return error;
  if (int error = refuse_ttl_of_sequence(form, info))
    return error;
  if (int error = refuse_own(name_of(name)))
    return error;
  if (int error = refuse_lost_rows(thd, name_of(name)))
    return error;
  if (info->data_file_name || info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                        ER_THD(thd, WARN_OPTION_IGNORED), "DATA DIRECTORY, INDEX DIRECTORY");
  Failure failure;
  Bytes of_table = name_of(name);
  std::vector<Reference> keys;
  if (int error = wanted_references(of_table, form, info, &keys))
    return error;
  if (int error = check_references(of_table, form, keys))
    return error;
  if (int error = begin_definition(thd, of_table))
    return error;
  terrace_table_options *options = terrace_table_options_new();
  terrace_table *created = nullptr;
  int wrong = set_attributes(form->s->option_struct, options);
  if (!wrong)
    created = terrace_database_create_table(database(), of_table.c_str(), options, failure.out());
  terrace_table_options_free(options);
  if (wrong)
    return wrong;
  if (!created)
  {
    // The server's own message has a number and no reason.
    const terrace_status status = failure.status();
    if (status == TERRACE_INVALID || status == TERRACE_EXISTS || status == TERRACE_TOO_LARGE)
      my_printf_error(ER_CANT_CREATE_TABLE, "Terrace: %s", MYF(0), failure.message());
    return tell(failure.handler_error(thd));
  }
  terrace_table_free(created);
  int error = begin_table(of_table, form, info);
  if (!error)
    error = set_references(of_table, keys);
  if (!error)
    Trx::of(thd)->note_made(of_table);
  // The server drops no table that it could not create.
  if (error && drop_library_table(of_table))
    sql_print_error("Terrace: table %s could not be created, and is not dropped: drop it by hand",
                    of_table.c_str());
  return error;
}

/*
  Whether the record of the layout has to precede the rows. An exchange of partitions compares
  indexes by name, and their order may be another one.
*/
bool ha_terrace::needs_layout(TABLE *form)
{
  bool is_needed = form->s->keys - (form->s->primary_key == MAX_KEY ? 0 : 1) > 1;
  for (uint i = 0; i < form->s->keys; i++)
    is_needed |= Key_codec(form, form->key_info[i], PREFIX_INDEXES).has_levels;
  return is_needed;
}

/* Where the copy of a table keeps the name of that table. Its key begins as a counter's. */
static const char COPY_OF[] = {0, 3};

/* Writes what a table that was created keeps beside its rows. */
int ha_terrace::begin_table(const Bytes &name, TABLE *form, const HA_CREATE_INFO *info)
{
  Failure failure;
  Open_table *opened = Open_table::acquire(name, &failure);
  if (!opened)
    return failure.status() == TERRACE_OK ? fail_with("the table cannot be opened; try again")
                                          : failure.handler_error(ha_thd());
  opened->note_made();
  int error = 0;
  if (form->s->found_next_number_field || info->auto_increment_value)
    error = opened->set_auto_increment(ha_thd(), info->auto_increment_value);
  // The record precedes all rows and renames in the order of commits, so it takes no sync: a table
  // that loses it in a power cut has no rows, and its opening begins it anew.
  if (!error && needs_layout(form) && !info->tmp_table())
    error = opened->set_layout(ha_thd(), Layout::of(form), TERRACE_RELAXED);
  const Bytes copied = is_copy(name) ? altered_table(ha_thd()) : Bytes();
  const LEX_CUSTRING version = form->s->tabledef_version;
  if (!error && !copied.empty() &&
      (terrace_table_put(opened->table, COPY_OF, sizeof(COPY_OF), copied.data(), copied.size(),
                         TERRACE_RELAXED, failure.out()) != TERRACE_OK ||
       mark(opened->table, Bytes(reinterpret_cast<const char *>(version.str), version.length),
            &failure) != TERRACE_OK))
    error = failure.handler_error(ha_thd());
  Open_table::release(opened);
  return error;
}

std::vector<Bytes> library_tables()
{
  Failure failure;
  std::vector<Bytes> all;
  terrace_strings *names = terrace_database_table_names(database(), failure.out());
  for (size_t i = 0; i < terrace_strings_len(names); i++)
    all.push_back(terrace_strings_at(names, i));
  terrace_strings_free(names);
  return all;
}

bool library_has(const Bytes &name)
{
  terrace_table *found =
    terrace_database_existing_table(database(), name.c_str(), Failure().out());
  terrace_table_free(found);
  return found != nullptr;
}

int drop_library_table(const Bytes &name)
{
  Failure failure;
  Open_table *opened = Open_table::acquire(name, &failure);
  terrace_status status = terrace_database_drop_table(database(), name.c_str(), failure.out());
  if (status == TERRACE_OK)
    Open_table::forget(name);
  if (opened && status == TERRACE_OK)
    opened->drop_own();
  if (opened)
    Open_table::release(opened);
  if (status == TERRACE_OK)
    return 0;
  return library_has(name) ? failure.handler_error(current_thd) : HA_ERR_NO_SUCH_TABLE;
}

int wait_for_drop(THD *thd, const Bytes &name)
{
  const int command = thd ? thd_sql_command(thd) : SQLCOM_END;
  const bool is_drop = command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_DB ||
                       (command == SQLCOM_CREATE_TABLE && thd->lex->create_info.or_replace());
  const Trx *own = thd ? Trx::existing(thd) : nullptr;
  // Others drop what they have made. Where they have written to it, their own locks are in the way.
  if (is_temporary(name) || !is_drop || (own && own->has_written()))
    return 0;
  Failure failure;
  terrace_table *dropped =
    terrace_database_existing_table(database(), name.c_str(), failure.out());
  const int error = dropped ? wait_for_writers(thd, dropped) : 0;
  terrace_table_free(dropped);
  return error;
}

/* ALTER TABLE ... RENAME drops what has the new name where the triggers cannot follow. */
static int give_children_back(THD *thd, const Bytes &name)
{
  if (is_recovering() || is_hidden(name) || has_no_references() ||
      thd_sql_command(thd) != SQLCOM_ALTER_TABLE)
    return 0;
  const Bytes altered = altered_table(thd);
  return altered != name && altered == copied_table(name) ? move_children(name, altered) : 0;
}

/* A crash may leave partitions that the server drops by the name of the table. */
int ha_terrace::delete_table(const char *path)
{
  const Bytes name = name_of(path);
  if (int error = refuse_own(name))
    return error;
  if (keeps_lost(name))
    return HA_ERR_NO_SUCH_TABLE;
  if (int error = refuse_astray(table_of_partition(name)))
    return error;
  Trx *of_connection = current_thd ? Trx::existing(current_thd) : nullptr;
  if (is_temporary(name) && of_connection && of_connection->has_written())
  {
    of_connection->drop_at_end(name);
    return 0;
  }
  // A statement may name a table that no engine has.
  if (only_reads() && !is_temporary(name) && has_any(name))
    return refuse_change();
  if (int error = give_children_back(ha_thd(), name))
    return error;
  if (int error = refuse_drop_of_parent(ha_thd(), name))
    return error;
  if (int error = wait_for_drop(ha_thd(), name))
    return error;
  // The server's definition of what was renamed before is not behind this drop then.
  if (sync_renames(ha_thd()))
    return my_errno;
  // A drop gives space back: it goes on where there is none for the mark. The server asks each engine to
  // drop a table that none has.
  if (library_has(name) || has_any(name))
    begin_definition(ha_thd(), name);
  if (!is_temporary(name) && !is_recovering())
    note_definition(ha_thd(), name);
  // A start would give the keys of a copy that is gone to the table (references.h).
  int error = is_hidden(name) ? set_references(name, {}) : 0;
  if (!error)
    error = drop_library_table(name);
  if (error && error != HA_ERR_NO_SUCH_TABLE)
    return error;
  // An earlier drop may have left the keys.
  const int of_keys = set_references(name, {});
  return error && !of_keys ? drop_partitions_of(name) : of_keys;
}

int rename_library_table(const Bytes &from, const Bytes &to)
{
  // The way back of an ALTER TABLE whose old table kept its name.
  if (from == to)
    return 0;
  Failure failure;
  bool is_way_back = false;
  for (const Bytes &name : {from, to})
    if (int error = begin_definition(current_thd, name))
      return error;
  if (int error = begin_rename(current_thd, from, to, &is_way_back))
    return error;
  // The server takes each rename back that has failed, also one that was not done.
  if (!library_has(from))
    return HA_ERR_NO_SUCH_TABLE;
  // Those that a drop has left there are no keys of this table. A recovery may yet need them.
  if (!is_way_back && !is_recovering())
    if (int error = set_references(to, {}))
      return error;
  if (is_way_back)
    if (int error = rename_references(from, to))
      return error;
  if (terrace_database_rename_table(database(), from.c_str(), to.c_str(), failure.out()) !=
      TERRACE_OK)
    return library_has(from) ? failure.handler_error(current_thd) : HA_ERR_NO_SUCH_TABLE;
  Open_table::rename(from, to);
  const int error = is_way_back ? 0 : rename_references(from, to);
  // The server takes a rename that has failed for one that was not done. Its keys have not moved.
  if (error && terrace_database_rename_table(database(), to.c_str(), from.c_str(),
                                             failure.out()) == TERRACE_OK)
    Open_table::rename(to, from);
  return error;
}

Bytes copied_table(const Bytes &copy)
{
  Failure failure;
  const std::vector<Bytes> partitions = library_has(copy) ? std::vector<Bytes>() : partitions_of(copy);
  const Bytes &name = partitions.empty() ? copy : partitions.front();
  terrace_table *table =
    terrace_database_existing_table(database(), name.c_str(), failure.out());
  terrace_value value = {};
  Bytes found;
  if (table && terrace_table_get(table, COPY_OF, sizeof(COPY_OF), &value, failure.out()) ==
                 TERRACE_OK)
    found.assign(reinterpret_cast<const char *>(value.data), value.len);
  terrace_value_release(&value);
  terrace_table_free(table);
  return found;
}

Bytes backup_of(const Bytes &copied, const Bytes &copy)
{
  return copied.substr(0, copied.find('/')) + "/#sql-backup-" +
         copy.substr(copy.find("/#sql-alter-") + strlen("/#sql-alter-"));
}

/*
  A copy gets another name than its table: keys to the table follow, also the copy's own. The server
  has renamed a table with such keys to a backup, which its log does not have.
*/
int ha_terrace::take_place(const Bytes &table, const Bytes &copy, const Bytes &name)
{
  if (int error = move_children(table, name))
    return error;
  const Bytes backup = backup_of(table, copy);
  if (!is_recovering() || !library_has(backup))
    return 0;
  // What cannot be dropped is named as a table without a definition.
  delete_table(backup.c_str());
  unlink(("./" + backup + ".frm").c_str());
  return 0;
}

/* As for a drop. */
int ha_terrace::rename_table(const char *from, const char *to)
{
  if (int error = refuse_change())
    return error;
  for (const char *path : {from, to})
    if (int error = refuse_own(name_of(path)))
      return error;
  const Bytes copy = name_of(from), name = name_of(to);
  // A kill has come behind the rename.
  const bool is_done = is_recovering() && !has_any(copy);
  const bool is_whole = table_of_partition(copy) == copy;
  const Bytes copied =
    is_copy(copy) && is_whole ? copied_table(is_done ? name : copy) : Bytes();
  int error = rename_library_table(copy, name);
  if ((!error || is_done) && !copied.empty() && copied != name && !is_hidden(name) &&
      (error = take_place(copied, copy, name)) && !is_recovering())
    rename_library_table(name, copy);
  // The server takes the name back where the definition of the copy did not get it.
  const Bytes left = is_copy(name) ? copied_table(name) : Bytes();
  if (!error && !left.empty() && left != copy)
    error = move_children(copy, left);
  return tell(error == HA_ERR_NO_SUCH_TABLE ? rename_partitions_of(copy, name) : error);
}

int ha_terrace::truncate()
{
  if (int error = refuse_change())
    return error;
  Failure failure;
  terrace_string *name = terrace_table_name(open_table->table, failure.out());
  if (!name)
    return failure.handler_error(ha_thd());
  close_cursor();
  // As a drop.
  begin_definition(ha_thd(), terrace_string_text(name));
  const terrace_status status =
    terrace_database_truncate_table(database(), terrace_string_text(name), failure.out());
  terrace_string_free(name);
  if (status != TERRACE_OK)
    return failure.handler_error(ha_thd());
  open_table->note_made();
  // The rows are gone, so the statement has succeeded. A crash before this leaves a table without
  // rows and without a layout. Its opening begins one.
  if (open_table->begin_anew(ha_thd()))
    push_warning(ha_thd(), Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                 "Terrace: the table is empty, and what it keeps beside its rows could not be "
                 "written: it is written with the next row");
  return 0;
}

/* DELETE without WHERE is rolled back like any other, so rows are deleted one by one. */
int ha_terrace::delete_all_rows() { return my_errno = HA_ERR_WRONG_COMMAND; }

int ha_terrace::reset_auto_increment(ulonglong value)
{
  return open_table->set_auto_increment(ha_thd(), value);
}

void ha_terrace::update_create_info(HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field)
    info->auto_increment_value = open_table->auto_increment();
}

bool ha_terrace::check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes)
{
  if (table_changes != IS_EQUAL_YES || (info->used_fields & HA_CREATE_USED_AUTO))
    return COMPATIBLE_DATA_NO;
  const ulonglong exchanges = ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN;
  if (!(ha_thd()->lex->alter_info.partition_flags & exchanges))
    return COMPATIBLE_DATA_YES;
  // The server asks this for EXCHANGE alone.
  if (!can_switch_engines())
  {
    my_error(ER_PARTITION_EXCHANGE_FOREIGN_KEY, MYF(0), table_share->table_name.str);
    return COMPATIBLE_DATA_NO;
  }
  // A table and a partition that change places keep their attributes, so these have to be the same.
  return same_attributes(table->s->option_struct, info->option_struct) ? COMPATIBLE_DATA_YES
                                                                       : COMPATIBLE_DATA_NO;
}

/* Says what is wrong with an index. */
static int is_corrupt(THD *thd, const KEY &index, const char *what)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "index %s %s",
                      index.name.str, what);
  return HA_ADMIN_CORRUPT;
}

/* Whether the entries of a row are there, and lead to it. The record is the table's first one. */
int ha_terrace::check_entries(const Bytes &of_row)
{
  for (uint index : secondary)
  {
    if (codec(index).has_virtual)
      compute_virtual(table->record[0]);
    Bytes entry, value;
    const Bytes wanted =
      entry_key(index, table->record[0], of_row, &entry) ? of_row.substr(1) : Bytes();
    const int error = get(entry, &value, LOCK_NONE);
    if (error && error != HA_ERR_KEY_NOT_FOUND)
      return HA_ADMIN_FAILED;
    if (error)
      return is_corrupt(ha_thd(), table->key_info[index], "lacks the entry of a row");
    if (value != wanted)
      return is_corrupt(ha_thd(), table->key_info[index], "has an entry that leads to another row");
  }
  return HA_ADMIN_OK;
}

/* Counts the entries of an index, in the view that rows are read in. */
int ha_terrace::count_entries(uint index, ha_rows *count)
{
  const uchar prefix = codec(index).prefix;
  const terrace_range entries = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  if (int error = open_cursor(entries, TERRACE_READ))
    return error;
  Failure failure;
  terrace_row lent;
  terrace_status status;
  *count = 0;
  while ((status = terrace_cursor_next(cursor, &lent, failure.out())) == TERRACE_OK &&
         thd_kill_level(ha_thd()) == THD_IS_NOT_KILLED)
    ++*count;
  close_cursor();
  if (status == TERRACE_OK)
    return HA_ERR_ABORTED_BY_USER;
  return status == TERRACE_NOT_FOUND ? 0 : failure.handler_error(ha_thd());
}

/*
  Compares rows with the entries of indexes. Each row has its entry in each index, with the value
  that leads to it. No two rows share one, so an index without other entries has as many as there
  are rows.
*/
int ha_terrace::check_indexes()
{
  ha_rows of_rows = 0;
  int error = ha_rnd_init(true), found = HA_ADMIN_OK;
  if (error)
    return HA_ADMIN_FAILED;
  while (found == HA_ADMIN_OK && !(error = ha_rnd_next(table->record[0])))
  {
    of_rows++;
    if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED)
      found = HA_ADMIN_FAILED;
    // Entries expire on their way, and so do rows.
    else if (!open_table->expires())
      found = check_entries(Bytes(row));
  }
  ha_rnd_end();
  if (found != HA_ADMIN_OK)
    return found;
  if (error != HA_ERR_END_OF_FILE)
    return error == HA_ERR_CRASHED ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  for (uint index : secondary)
  {
    ha_rows of_index = 0;
    if (count_entries(index, &of_index))
      return HA_ADMIN_FAILED;
    if (of_index != of_rows && !open_table->expires())
    {
      const Bytes what = "has " + std::to_string(of_index) + " entries, and the table " +
                         std::to_string(of_rows) + " rows";
      return is_corrupt(ha_thd(), table->key_info[index], what.c_str());
    }
  }
  return HA_ADMIN_OK;
}

/* Verifies what the library has on its media, and the indexes of the table. */
int ha_terrace::check(THD *thd, HA_CHECK_OPT *)
{
  Failure failure;
  terrace_report *report = terrace_database_verify(database(), failure.out());
  if (!report)
    return HA_ADMIN_FAILED;
  size_t unreadable = terrace_report_unreadable(report);
  size_t damages = terrace_report_damages(report) - unreadable;
  terrace_report_free(report);
  if (unreadable)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "%llu structures could not be read", ulonglong(unreadable));
  if (damages)
    return HA_ADMIN_CORRUPT;
  if (unreadable)
    return HA_ADMIN_FAILED;
  MY_BITMAP *read_set = table->read_set, *write_set = table->write_set;
  table->use_all_columns();
  const int found = check_indexes();
  table->column_bitmaps_set(read_set, write_set);
  return found;
}

/* Readers and writers go on meanwhile. */
int ha_terrace::optimize(THD *thd, HA_CHECK_OPT *)
{
  if (refuse_change())
    return HA_ADMIN_FAILED;
  Failure failure;
  if (terrace_table_compact_range(open_table->table, nullptr, failure.out()) == TERRACE_OK)
    return HA_ADMIN_OK;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, failure.message());
  return HA_ADMIN_FAILED;
}
