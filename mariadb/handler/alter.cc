/*
  ALTER TABLE in place: indexes that are added, dropped and renamed, and columns that are added at
  the end. layout.h has what a crash leaves.

  A new index is built while others read and write the table (online.h). With LOCK=SHARED nothing
  writes to it, and entries are sorted in memory, and loaded in pieces.
*/
#include "attributes.h"
#include "engine.h"
#include "ha_terrace.h"
#include "renames.h"
#include "role.h"
#include "row_codec.h"
#include "yield.h"

#include <algorithm>

/* Bytes of entries that are sorted and loaded at a time. */
static const size_t PIECE_BYTES = 32 << 20;

static const alter_table_operations OF_INDEXES =
  ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX |
  ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_RENAME_INDEX | ALTER_INDEX_ORDER;
/* What changes the server's definition alone. */
static const alter_table_operations OF_SERVER =
  ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_COLUMN_DEFAULT | ALTER_INDEX_IGNORABILITY |
  ALTER_DROP_CHECK_CONSTRAINT;

/* What an ALTER TABLE keeps from its preparation to its end. */
class Alter_context final : public inplace_alter_handler_ctx
{
public:
  Layout before, after;
  /* Numbers of indexes that are new. */
  std::vector<uint> added;
  /* What writers follow; none where nothing writes. */
  Build_ref build;
};

static Bytes name_of(const KEY &key) { return Bytes(key.name.str, key.name.length); }

static bool same_primary_key(const TABLE *one, const TABLE *two)
{
  const uint of_one = one->s->primary_key, of_two = two->s->primary_key;
  if (of_one == MAX_KEY || of_two == MAX_KEY)
    return of_one == of_two;
  return name_of(one->key_info[of_one]) == name_of(two->key_info[of_two]);
}

/* Whether a column can be added without writing to rows: all of them get one constant. */
static bool is_constant(const Field *field)
{
  const bool is_date = field->type() == MYSQL_TYPE_DATE || field->type() == MYSQL_TYPE_DATETIME ||
                       field->type() == MYSQL_TYPE_TIMESTAMP;
  // A copy says that a date of zeros is none.
  const bool has_default = field->real_maybe_null() || !is_date ||
                           !(field->flags & NO_DEFAULT_VALUE_FLAG);
  // A constraint may refuse the constant, and the rows that have it then: a copy looks at each.
  return field->stored_in_db() && !field->vcol_info && !field->default_value &&
         !field->check_constraint && !field->has_default_now_unireg_check() && has_default &&
         field->unireg_check != Field::NEXT_NUMBER;
}

/* Whether the columns of a table are there, in their order, with constants behind them. */
static bool adds_constants(const TABLE *table, const TABLE *altered, Alter_inplace_info *info)
{
  uint at = 0;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (Create_field *field = fields++)
  {
    if (at < table->s->fields ? field->field != table->field[at] : field->field != nullptr)
      return false;
    at++;
  }
  if (at != altered->s->fields || at <= table->s->fields)
    return false;
  for (uint i = table->s->fields; i < altered->s->fields; i++)
    if (!is_constant(altered->field[i]))
      return false;
  return true;
}

/* How readers skip a column once it is dropped. False for a column that they could not skip. */
static bool row_column_of(const Field *field, Row_column *column)
{
  const uint prefix = field->field_length > 255 ? 2 : 1;
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    *column = {Row_column::FIXED, uint16(field->pack_length())};
    return true;
  case MYSQL_TYPE_STRING:
    *column = {Row_column::PREFIXED, uint16(prefix)};
    return field->type_handler() == &type_handler_string;
  case MYSQL_TYPE_VARCHAR:
    *column = {Row_column::PREFIXED, uint16(prefix)};
    return field->type_handler() == &type_handler_varchar;
  case MYSQL_TYPE_BLOB:
    *column = {Row_column::PREFIXED,
               uint16(static_cast<const Field_blob *>(field)->pack_length_no_ptr())};
    return !field->compression_method();
  default:
    return false;
  }
}

/* Whether columns are dropped and nothing else, and marks those of the altered table. */
static bool drops_columns(const TABLE *table, Alter_inplace_info *info, std::vector<bool> *stays)
{
  stays->assign(table->s->fields, false);
  uint at = 0;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (Create_field *field = fields++)
  {
    while (at < table->s->fields && table->field[at] != field->field)
      at++;
    if (at == table->s->fields)
      return false;
    (*stays)[at++] = true;
  }
  for (uint i = 0; i < table->s->fields; i++)
  {
    Row_column column;
    const Field *field = table->field[i];
    if (!(*stays)[i] && (!field->stored_in_db() || field->vcol_info || !row_column_of(field, &column) ||
                         (field->flags & PART_KEY_FLAG)))
      return false;
  }
  return true;
}

/* Marks columns as dropped. */
static void drop_columns(const TABLE *table, const std::vector<bool> &stays, Layout *layout)
{
  layout->count_columns(table);
  uint live = 0;
  for (Row_column &column : layout->columns)
    if (column.kind == Row_column::LIVE)
    {
      const uint of_table = live++;
      if (!stays[of_table])
        row_column_of(table->field[of_table], &column);
    }
}

/* Whether each index that is added can be built here. */
static bool can_build(const TABLE *altered, const Alter_inplace_info *info)
{
  for (uint i = 0; i < info->index_add_count; i++)
  {
    const KEY &key = altered->key_info[info->index_add_buffer[i]];
    if ((key.flags & (HA_FULLTEXT | HA_SPATIAL)) || key.algorithm == HA_KEY_ALG_LONG_HASH)
      return false;
    for (uint part = 0; part < key.user_defined_key_parts; part++)
      if (!key.key_part[part].field->stored_in_db())
        return false;
  }
  return true;
}

/*
  Whether attributes can change as they are. A row and its entries expire together if they were
  written together, which is not so of rows from before they had a time to live.
*/
bool ha_terrace::can_change_attributes(const TABLE *altered) const
{
  const ha_table_option_struct *before = table->s->option_struct;
  const ha_table_option_struct *after = altered->s->option_struct;
  const bool has_indexes = table->s->keys > (has_primary_key() ? 1 : 0);
  // The copy of a sequence that expires is refused (ddl.cc).
  return has_ttl(before) || !has_ttl(after) ||
         !(has_indexes || table_share->blob_fields || is_sequence());
}

enum_alter_inplace_result
ha_terrace::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  const enum_alter_inplace_result of_keys = check_keys_of_alter(altered, info);
  if (of_keys != HA_ALTER_INPLACE_INSTANT)
    return of_keys;
  const alter_table_operations flags = info->handler_flags & ~OF_SERVER;
  const bool of_indexes = flags && !(flags & ~OF_INDEXES);
  const bool of_columns = flags == ALTER_ADD_STORED_BASE_COLUMN;
  // Columns behind a dropped one have another place.
  const bool of_dropped =
    (flags & ~(ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER)) == ALTER_DROP_STORED_COLUMN;
  if (!of_indexes && !of_columns && !of_dropped)
  {
    terrace_table_options *options = terrace_table_options_new();
    const int wrong = set_attributes(altered->s->option_struct, options);
    terrace_table_options_free(options);
    if (wrong)
      return HA_ALTER_ERROR;
    // With something else, such as a table that has partitions.
    if (flags & OF_INDEXES)
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    if (!can_change_attributes(altered))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    enum_alter_inplace_result result = handler::check_if_supported_inplace_alter(altered, info);
    return result == HA_ALTER_INPLACE_NOT_SUPPORTED || result == HA_ALTER_ERROR
             ? result
             : HA_ALTER_INPLACE_INSTANT;
  }
  // Partitions would not change together if the server was killed.
  // The layout tells two definitions by their versions, and not a third one.
  const Bytes version = version_of(table->s);
  // As of now: the handler may have been opened during another ALTER TABLE, which failed.
  const Layout_ref now = open_table->layout();
  if (version.empty() || version == version_of(altered->s) || (now && now->before))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (table->part_info || table->s->tmp_table != NO_TMP_TABLE || table->versioned() || altered->versioned() ||
      (info->create_info->used_fields & HA_CREATE_USED_AUTO) || !same_primary_key(table, altered))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (of_columns)
    return adds_constants(table, altered, info) ? HA_ALTER_INPLACE_INSTANT
                                                : HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (of_dropped)
  {
    std::vector<bool> stays;
    return drops_columns(table, info, &stays) ? HA_ALTER_INPLACE_INSTANT
                                              : HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  // ALTER IGNORE drops rows, which a copy does.
  // An entry that is younger than its row would expire later.
  if ((info->index_add_count && has_ttl(table->s->option_struct)) || !can_build(altered, info) || (info->ignore && (flags & ALTER_ADD_UNIQUE_INDEX)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  return info->index_add_count ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
}

/* A row with what added columns have where a row does not. */
static bool defaults_of(TABLE *altered, const Layout &before, const Layout &after, Bytes *out)
{
  Bytes record(reinterpret_cast<const char *>(altered->s->default_values),
               altered->s->rec_buff_length);
  uchar *buffer = reinterpret_cast<uchar *>(&record[0]);
  Bytes packed;
  pack_row(altered, buffer, &after, &packed);
  if (!before.defaults.empty())
  {
    // Columns that were added earlier keep what they have.
    Layout of_both = after;
    of_both.defaults = packed;
    const uchar *earlier = reinterpret_cast<const uchar *>(before.defaults.data());
    if (!unpack_row(altered, buffer, &of_both, earlier, before.defaults.size()))
      return false;
    pack_row(altered, buffer, &after, &packed);
  }
  *out = packed;
  return true;
}

/* The name that an index had before a change. */
static Bytes old_name_of(const KEY &key, const Alter_inplace_info *info)
{
  for (const Alter_inplace_info::Rename_key_pair &pair : info->rename_keys)
    if (name_of(*pair.new_key) == name_of(key))
      return name_of(*pair.old_key);
  return name_of(key);
}

/* Gives the indexes of the altered table that it had before their numbers. */
static int keep_numbers(const TABLE *altered, const Alter_inplace_info *info, Layout *layout)
{
  std::vector<bool> is_added(altered->s->keys, false);
  for (uint i = 0; i < info->index_add_count; i++)
    is_added[info->index_add_buffer[i]] = true;
  layout->indexes.clear();
  for (uint i = 0; i < altered->s->keys; i++)
  {
    if (is_added[i] || i == altered->s->primary_key)
      continue;
    const KEY &key = altered->key_info[i];
    const uint number = number_of(layout->before->indexes, old_name_of(key, info));
    if (number == NO_NUMBER)
      return HA_ERR_CRASHED;
    layout->indexes[name_of(key)] = number;
  }
  return 0;
}

bool ha_terrace::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  if (refuse_change())
    return true;
  const bool adds_column = info->handler_flags & ALTER_ADD_STORED_BASE_COLUMN;
  const bool drops_column = info->handler_flags & ALTER_DROP_STORED_COLUMN;
  if (!adds_column && !drops_column && !(info->handler_flags & OF_INDEXES))
    return false;
  THD *thd = ha_thd();
  Alter_context *context = new Alter_context;
  info->handler_ctx = context;
  const Layout_ref now = open_table->layout();
  context->before = now ? *now : Layout::of(table);
  context->after = context->before;
  context->after.version = version_of(altered->s);
  context->after.version_before = version_of(table->s);
  context->after.before = std::make_shared<const Layout>(context->before);
  int error = keep_numbers(altered, info, &context->after);
  if (adds_column)
  {
    context->after.count_columns(table);
    context->after.columns.resize(
      context->after.columns.size() + altered->s->fields - table->s->fields,
      {Row_column::LIVE, 0});
    if (!defaults_of(altered, context->before, context->after, &context->after.defaults))
      error = HA_ERR_CRASHED;
  }
  // Transactions that XA has prepared have no entries of a new index, and may have some of an old
  // one with its number.
  if (info->index_add_count && !error)
    error = wait_for_writers(thd, open_table->table);
  if (info->index_add_count && info->online)
    context->build = std::make_shared<Build>();
  for (uint i = 0; i < info->index_add_count && !error; i++)
  {
    const uint number = context->after.free_number();
    if (number == NO_NUMBER)
    {
      error = HA_ERR_TOO_MANY_FIELDS;
      break;
    }
    context->after.indexes[name_of(altered->key_info[info->index_add_buffer[i]])] = number;
    context->after.removed.erase(number);
    context->added.push_back(number);
    // What was counted is of an index from before with the number.
    open_table->forget_values_of(PREFIX_INDEXES + number);
    if (context->build)
      context->build->add(number, altered->key_info[info->index_add_buffer[i]]);
    error = remove_entries(thd, open_table->table, number);
  }
  context->after.pending = context->before.committed + 1;
  if (!error)
    error = open_table->set_layout(thd, context->after);
  if (error)
  {
    print_error(error, MYF(0));
    return true;
  }
  open_table->is_altered = true;
  if (context->build)
    open_table->set_build(context->build);
  return false;
}

/* One entry: its key, and its value. */
typedef std::pair<Bytes, Bytes> Entry;

/* Says which value is there twice. */
int ha_terrace::fail_of_duplicate(TABLE *altered, uint index, const Bytes &of_row)
{
  Bytes value;
  Bytes key(1, char(PREFIX_ROWS));
  key += of_row;
  int error = get(key, &value, LOCK_NONE);
  if (!error)
    error = whole_row(key, &value);
  if (error)
    return error;
  if (!unpack_row(altered, altered->record[0], open_table->layout().get(),
                  reinterpret_cast<const uchar *>(value.data()), value.size()))
    return HA_ERR_CRASHED;
  print_keydup_error(altered, &altered->key_info[index], MYF(0));
  return HA_ERR_FOUND_DUPP_KEY;
}

/* Waits as long as a statement does for transactions that have all of the table locked. */
static int finish_load(THD *thd, terrace_bulk_load *load)
{
  const ulonglong since = microsecond_interval_timer();
  for (;;)
  {
    Failure failure;
    const terrace_status status = terrace_bulk_load_finish(load, failure.out());
    if (status != TERRACE_TIMEOUT)
      return status == TERRACE_OK ? 0 : failure.handler_error(thd);
    if (int error = fail_of_wait(thd, since, session_lock_wait_seconds(thd)))
      return error;
  }
}

/* Sorts entries and loads them. */
int ha_terrace::load_entries(TABLE *altered, uint index, std::vector<Entry> *entries)
{
  THD *thd = ha_thd();
  std::sort(entries->begin(), entries->end());
  for (size_t i = 1; i < entries->size(); i++)
    if ((*entries)[i].first == (*entries)[i - 1].first)
      return fail_of_duplicate(altered, index, (*entries)[i].second);
  Failure failure;
  // An index that an earlier piece has a value of has it twice.
  for (const Entry &entry : *entries)
  {
    if (entry.second.empty())
      continue;
    const terrace_status found = terrace_table_contains_key(
      open_table->table, entry.first.data(), entry.first.size(), failure.out());
    if (found == TERRACE_OK)
      return fail_of_duplicate(altered, index, entry.second);
    if (found != TERRACE_NOT_FOUND)
      return failure.handler_error(thd);
  }
  terrace_bulk_load *load = terrace_table_bulk_load(open_table->table, false, failure.out());
  terrace_status status = load ? TERRACE_OK : failure.status();
  for (size_t i = 0; i < entries->size() && status == TERRACE_OK; i++)
  {
    const Entry &entry = (*entries)[i];
    status = terrace_bulk_load_put(load, entry.first.data(), entry.first.size(),
                                   entry.second.data(), entry.second.size(), failure.out());
  }
  int error = status == TERRACE_OK ? finish_load(thd, load) : failure.handler_error(thd);
  terrace_bulk_load_free(load);
  entries->clear();
  return error;
}

/* Makes the entries of an index out of all rows. */
int ha_terrace::build_index(TABLE *altered, uint index, uint number)
{
  THD *thd = ha_thd();
  const Key_codec of_index(altered, altered->key_info[index], uchar(PREFIX_INDEXES + number));
  const Layout_ref now = open_table->layout();
  const uchar prefix = PREFIX_ROWS;
  terrace_range rows = {{&prefix, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  // The lock waits for transactions that XA has prepared: they have no entries of the new index.
  terrace_cursor *scan = terrace_transaction_cursor(trx()->handle(), open_table->table, &rows,
                                                    TERRACE_FOR_SHARE, failure.out());
  if (!scan)
    return failure.handler_error(thd);
  std::vector<Entry> entries;
  size_t bytes = 0;
  int error = 0;
  terrace_row lent;
  terrace_status status;
  while ((status = terrace_cursor_next(scan, &lent, failure.out())) == TERRACE_OK && !error)
  {
    const Bytes key(lent.key, lent.key_len);
    Bytes value(lent.value, lent.value_len);
    if ((error = whole_row(key, &value)))
      break;
    if (!unpack_row(altered, altered->record[0], now.get(),
                    reinterpret_cast<const uchar *>(value.data()), value.size()))
      error = HA_ERR_CRASHED;
    Bytes entry;
    const bool has_null = of_index.from_record(&entry, altered->record[0]);
    if (of_index.unique && !has_null)
      entries.emplace_back(entry, key.substr(1));
    else
      entries.emplace_back(entry + key.substr(1), Bytes());
    bytes += entries.back().first.size() + entries.back().second.size() + sizeof(Entry);
    if (bytes >= PIECE_BYTES && !error)
    {
      error = load_entries(altered, index, &entries);
      bytes = 0;
    }
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
      error = HA_ERR_ABORTED_BY_USER;
  }
  if (!error && status != TERRACE_NOT_FOUND)
    error = failure.handler_error(thd);
  terrace_cursor_free(scan);
  return error || entries.empty() ? error : load_entries(altered, index, &entries);
}

bool ha_terrace::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Alter_context *context = static_cast<Alter_context *>(info->handler_ctx);
  if (!context)
    return false;
  MY_BITMAP *read_set = altered->read_set, *write_set = altered->write_set;
  altered->use_all_columns();
  int error = 0;
  for (uint i = 0; i < info->index_add_count && !error; i++)
  {
    // Keys of the definition and of the statement are in one order.
    const uint index = info->index_add_buffer[i];
    error = context->build ? build_online(altered, index, context->added[i])
                           : build_index(altered, index, context->added[i]);
  }
  altered->column_bitmaps_set(read_set, write_set);
  YIELD("alter-built");
  if (error && error != HA_ERR_FOUND_DUPP_KEY)
    print_error(error, MYF(0));
  return error != 0;
}

bool ha_terrace::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info,
                                            bool is_committed)
{
  Alter_context *context = static_cast<Alter_context *>(info->handler_ctx);
  THD *thd = ha_thd();
  // The server renames the new definition behind this, and does not sync that.
  if (is_committed)
    note_definition(thd, open_table->name_of_table());
  if (int failed = is_committed ? begin_definition(thd, open_table->name_of_table()) : 0)
  {
    print_error(failed, MYF(0));
    return true;
  }
  if (!context)
  {
    if (!is_committed || same_attributes(table->s->option_struct, altered->s->option_struct))
      return false;
    const int failed = open_table->set_attributes(thd, altered->s->option_struct);
    if (failed && failed != HA_WRONG_CREATE_OPTION)
      print_error(failed, MYF(0));
    return failed != 0;
  }
  if (is_committed)
  {
    if (const int failed =
          context->build ? settle_noted(altered, info, context->build.get()) : 0)
    {
      if (failed != HA_ERR_FOUND_DUPP_KEY)
        print_error(failed, MYF(0));
      return true;
    }
    open_table->is_altered = false;
    if (int failed = open_table->keep_values(thd))
      sql_print_warning("Terrace: what was counted is not kept: error %d", failed);
    // Views from before do not see the entries.
    open_table->note_new_indexes(context->added);
    context->after.committed = context->after.pending;
    // The old definition needs them until here. Nothing has written rows since.
    if (info->handler_flags & ALTER_DROP_STORED_COLUMN)
    {
      std::vector<bool> stays;
      drops_columns(table, info, &stays);
      drop_columns(table, stays, &context->after);
    }
    YIELD("alter-commit");
    if (int failed = open_table->set_layout(thd, context->after))
    {
      print_error(failed, MYF(0));
      return true;
    }
    YIELD("alter-committed");
    if (context->build)
      open_table->set_build(nullptr);
    return false;
  }
  open_table->is_altered = false;
  if (context->build)
    open_table->set_build(nullptr);
  Layout back = context->before;
  // An earlier index may have had one of these numbers. Transactions under way may still put entries.
  back.removed.insert(context->added.begin(), context->added.end());
  return open_table->set_layout(thd, back) != 0;
}

/* What the server notes once the change is prepared, and asks check_version() for after a crash. */
ulonglong ha_terrace::table_version() const
{
  const Layout_ref now = open_table ? open_table->layout() : nullptr;
  return now && open_table->is_altered ? now->pending : 0;
}

int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong change)
{
  // A change of the server's definition alone holds for either one.
  if (!change)
    return 0;
  Failure failure;
  Open_table *table = Open_table::acquire(name_of(path), &failure);
  if (!table)
    return 1;
  const Layout_ref now = table->layout();
  const bool is_new = now && now->committed == change;
  Open_table::release(table);
  return !is_new;
}

/*
  The layout of the definition that is opened, without the other one. The same one where it has no
  other, or where the definition is a third one.
*/
static int layout_of_one(const TABLE_SHARE *definition, const Layout &now, Layout *one)
{
  *one = now;
  const Bytes version = version_of(definition);
  if (!now.before)
    return 0;
  if (version == now.version_before)
    *one = *now.before;
  else if (!now.version.empty() && version != now.version)
    return 0;
  // From here on no power cut brings the definition from before back.
  else if (my_sync_dir_by_file(definition->normalized_path.str, MYF(MY_WME)))
    return my_errno;
  one->version.clear();
  one->version_before.clear();
  one->before = nullptr;
  one->committed = now.committed;
  one->pending = now.pending;
  one->removed.insert(now.removed.begin(), now.removed.end());
  for (const Numbers *of_either : {&now.indexes, &now.before->indexes})
    for (auto &index : *of_either)
      if (!has_number(one->indexes, index.second))
        one->removed.insert(index.second);
  return 0;
}

/* Forgets what another definition has left: its layout, and the entries of its indexes. */
int ha_terrace::sweep_layout(const Layout &now)
{
  Layout live;
  if (const int error = layout_of_one(table->s, now, &live))
    return error;
  if (live.counts_columns() && live.live_columns() != table->s->fields)
  {
    sql_print_error("Terrace: table %s has %u columns, and its rows %u. Restore its definition "
                    "(.frm)", table->s->path.str, table->s->fields, live.live_columns());
    return HA_ERR_CRASHED;
  }
  bool is_changed = now.before && !live.before;
  for (uint number : std::set<uint>(live.removed))
  {
    const int error = remove_entries(ha_thd(), open_table->table, number);
    // A transaction may hold some. Nothing reads them, and a later opening tries again.
    if (error && error != HA_ERR_LOCK_WAIT_TIMEOUT)
      return error;
    if (!error)
      is_changed = live.removed.erase(number) || is_changed;
  }
  return is_changed ? open_table->set_layout(ha_thd(), live) : 0;
}
