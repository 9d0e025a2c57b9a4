#include "references.h"
#include "engine.h"
#include "ha_terrace.h"

#include "sql_show.h"

#include <atomic>
#include <map>
#include <mutex>

/* The library's table of foreign keys: under the child and the name, the rest. */
static const char REFERENCES[] = "#terrace/references";
/* The first byte of a value. */
static const char FORMAT = 1;

typedef std::map<Bytes, Reference_ref> All;

/* Of writers alone. One holds it until what it has written is durable. */
static std::mutex lock;
/* It does not change: a writer puts another one in its place. */
static std::shared_ptr<const All> all_seen = std::make_shared<const All>();
static std::atomic<ulonglong> version{1};
static std::atomic<bool> is_empty{true};

Sql_name::Sql_name(const Bytes &name)
{
  const size_t slash = std::min(name.find('/'), name.size());
  char buffer[NAME_LEN + 1];
  database.assign(buffer, filename_to_tablename(name.substr(0, slash).c_str(), buffer,
                                                sizeof(buffer), true));
  const Bytes rest = slash < name.size() ? name.substr(slash + 1) : Bytes();
  // Names that a statement of DDL gives are not encoded.
  if (is_hidden(name))
    table = rest;
  else
    table.assign(buffer, filename_to_tablename(rest.c_str(), buffer, sizeof(buffer), true));
}

Bytes library_name(const Bytes &database, const Bytes &table)
{
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof(path) - 1, database.c_str(), table.c_str(), "", 0);
  const char *end = path + strlen(path);
  for (int slashes = 0; end > path && slashes < 2;)
    slashes += *--end == FN_LIBCHAR;
  return *end == FN_LIBCHAR ? end + 1 : end;
}

bool is_hidden(const Bytes &name) { return name.find("/#sql") != Bytes::npos; }
bool is_copy(const Bytes &name) { return name.find("/#sql-alter-") != Bytes::npos; }

static void append_quoted(String *out, const Bytes &name)
{
  append_identifier(current_thd, out, name.data(), name.size());
}

static void append_columns(String *out, const std::vector<Bytes> &columns)
{
  out->append('(');
  for (size_t i = 0; i < columns.size(); i++)
  {
    if (i)
      out->append(STRING_WITH_LEN(", "));
    append_quoted(out, columns[i]);
  }
  out->append(')');
}

static const char *name_of_action(enum_fk_option action)
{
  switch (action)
  {
  case FK_OPTION_CASCADE: return "CASCADE";
  case FK_OPTION_SET_NULL: return "SET NULL";
  case FK_OPTION_NO_ACTION: return "NO ACTION";
  default: return nullptr;
  }
}

Bytes Reference::text() const
{
  StringBuffer<512> out(system_charset_info);
  const Sql_name of_child(child), of_parent(parent);
  out.append(STRING_WITH_LEN("CONSTRAINT "));
  append_quoted(&out, name);
  out.append(STRING_WITH_LEN(" FOREIGN KEY "));
  append_columns(&out, columns);
  out.append(STRING_WITH_LEN(" REFERENCES "));
  if (of_child.database != of_parent.database)
  {
    append_quoted(&out, of_parent.database);
    out.append('.');
  }
  append_quoted(&out, of_parent.table);
  out.append(' ');
  append_columns(&out, parent_columns);
  const char *of_delete = name_of_action(on_delete), *of_update = name_of_action(on_update);
  if (of_delete)
  {
    out.append(STRING_WITH_LEN(" ON DELETE "));
    out.append(of_delete, strlen(of_delete));
  }
  if (of_update)
  {
    out.append(STRING_WITH_LEN(" ON UPDATE "));
    out.append(of_update, strlen(of_update));
  }
  return Bytes(out.ptr(), out.length());
}

static Bytes key_of(const Reference &one) { return one.child + '\0' + one.name; }

static Bytes value_of(const Reference &one)
{
  Bytes value(1, FORMAT);
  value.push_back(char(one.on_delete));
  value.push_back(char(one.on_update));
  value += one.parent + '\0';
  for (size_t i = 0; i < one.columns.size(); i++)
    value += one.columns[i] + '\0' + one.parent_columns[i] + '\0';
  return value;
}

/* False for bytes that are no foreign key of this format. */
static bool parse(const Bytes &key, const Bytes &value, Reference *out)
{
  const size_t middle = key.find('\0');
  if (middle == Bytes::npos || value.size() < 4 || value[0] != FORMAT)
    return false;
  out->child = key.substr(0, middle);
  out->name = key.substr(middle + 1);
  out->on_delete = enum_fk_option(value[1]);
  out->on_update = enum_fk_option(value[2]);
  std::vector<Bytes> parts;
  for (size_t at = 3, end; at < value.size(); at = end + 1)
  {
    end = value.find('\0', at);
    if (end == Bytes::npos)
      return false;
    parts.push_back(value.substr(at, end - at));
  }
  if (parts.size() < 3 || parts.size() % 2 == 0)
    return false;
  out->parent = parts[0];
  for (size_t i = 1; i < parts.size(); i += 2)
  {
    out->columns.push_back(parts[i]);
    out->parent_columns.push_back(parts[i + 1]);
  }
  return true;
}

static std::shared_ptr<const All> seen() { return std::atomic_load(&all_seen); }

/* The caller has the lock. */
static void show(All &&all)
{
  is_empty = all.empty();
  std::atomic_store(&all_seen, std::make_shared<const All>(std::move(all)));
  version++;
}

/* Changes some, all or none of them; the caller has the lock. */
static terrace_status write(const std::vector<Bytes> &removed, const std::vector<Reference> &added,
                            Failure *failure)
{
  if (removed.empty() && added.empty())
    return TERRACE_OK;
  terrace_table *table = terrace_database_table(database(), REFERENCES, failure->out());
  if (!table)
    return failure->status();
  terrace_batch *batch = terrace_batch_new();
  terrace_status status = TERRACE_OK;
  for (size_t i = 0; i < removed.size() && status == TERRACE_OK; i++)
    status = terrace_batch_delete(batch, table, removed[i].data(), removed[i].size(),
                                  failure->out());
  for (size_t i = 0; i < added.size() && status == TERRACE_OK; i++)
  {
    const Bytes key = key_of(added[i]), value = value_of(added[i]);
    status = terrace_batch_put(batch, table, key.data(), key.size(), value.data(), value.size(),
                               failure->out());
  }
  if (status == TERRACE_OK)
    status = terrace_database_write(database(), batch, TERRACE_DURABLE, failure->out());
  terrace_batch_free(batch);
  terrace_table_free(table);
  if (status != TERRACE_OK)
    return status;
  All changed(*seen());
  for (const Bytes &key : removed)
    changed.erase(key);
  for (const Reference &one : added)
    changed[key_of(one)] = std::make_shared<const Reference>(one);
  show(std::move(changed));
  return TERRACE_OK;
}

static References some(bool (*is_wanted)(const Reference &, const Bytes &), const Bytes &name)
{
  References found;
  if (is_empty)
    return found;
  const std::shared_ptr<const All> all = seen();
  for (auto &one : *all)
    if (is_wanted(*one.second, name))
      found.push_back(one.second);
  return found;
}

References references_of(const Bytes &child)
{
  return some([](const Reference &one, const Bytes &name) { return one.child == name; }, child);
}

References references_to(const Bytes &parent)
{
  return some([](const Reference &one,
                 const Bytes &name) { return one.parent == name && !is_hidden(one.child); },
              parent);
}

/* Whether a key of the table's database has a name, but for those of one child. */
static bool has_name(const Bytes &name, const Bytes &table, const Bytes &but_of)
{
  const size_t database = table.find('/') + 1;
  const std::shared_ptr<const All> all = seen();
  for (auto &one : *all)
    if (one.second->child != but_of &&
        !one.second->child.compare(0, database, table, 0, database) &&
        !my_strcasecmp(system_charset_info, one.second->name.c_str(), name.c_str()))
      return true;
  return false;
}

bool is_name_taken(const Bytes &name, const Bytes &table)
{
  return !seen()->count(table + '\0' + name) && has_name(name, table, table);
}

ulonglong references_version() { return version; }
bool has_no_references() { return is_empty; }

int set_references(const Bytes &child, const std::vector<Reference> &wanted)
{
  if (is_empty && wanted.empty())
    return 0;
  Failure failure;
  std::lock_guard<std::mutex> guard(lock);
  // Another statement may have given a name since this one has looked.
  for (const Reference &one : wanted)
    if (is_name_taken(one.name, is_hidden(child) ? altered_table(current_thd) : child))
      return HA_ERR_FOUND_DUPP_KEY;
  std::vector<Bytes> removed;
  const std::shared_ptr<const All> all = seen();
  for (auto &one : *all)
    if (one.second->child == child)
      removed.push_back(one.first);
  return write(removed, wanted, &failure) == TERRACE_OK ? 0 : failure.handler_error(current_thd);
}

/*
  A name that was made of the table's goes with it, as in InnoDB. Where another key has the new one,
  the name stays.
*/
static void rename_child(Reference *one, const Bytes &to)
{
  const Bytes made = Sql_name(one->child).table + "_ibfk_";
  if (!is_hidden(one->child) && !is_hidden(to) && one->name.compare(0, made.size(), made) == 0)
  {
    const Bytes wanted = Sql_name(to).table + "_ibfk_" + one->name.substr(made.size());
    if (!has_name(wanted, to, Bytes()) && !has_name(wanted, one->child, Bytes()))
      one->name = wanted;
  }
  one->child = to;
}

/* Renames a table where keys have it as their child, and as their parent. */
static int rename_in(const Bytes &from, const Bytes &to, bool of_child, bool of_parent)
{
  if (is_empty)
    return 0;
  Failure failure;
  std::lock_guard<std::mutex> guard(lock);
  std::vector<Bytes> removed;
  std::vector<Reference> added;
  const std::shared_ptr<const All> all = seen();
  for (auto &one : *all)
  {
    const bool is_child = of_child && one.second->child == from;
    const bool is_parent = of_parent && one.second->parent == from;
    if (!is_child && !is_parent)
      continue;
    removed.push_back(one.first);
    added.push_back(*one.second);
    if (is_child)
      rename_child(&added.back(), to);
    if (is_parent)
      added.back().parent = to;
  }
  return write(removed, added, &failure) == TERRACE_OK ? 0 : failure.handler_error(current_thd);
}

int rename_references(const Bytes &from, const Bytes &to)
{
  return rename_in(from, to, true, !is_hidden(from) && !is_hidden(to));
}

int move_children(const Bytes &from, const Bytes &to) { return rename_in(from, to, false, true); }

bool load_references()
{
  Failure failure;
  terrace_table *table = terrace_database_existing_table(database(), REFERENCES, failure.out());
  // There was never a foreign key.
  if (!table)
    return failure.status() == TERRACE_OK || failure.status() == TERRACE_MISSING_TABLE;
  std::lock_guard<std::mutex> guard(lock);
  All all;
  terrace_cursor *cursor = terrace_table_cursor(table, nullptr, failure.out());
  terrace_row row;
  terrace_status status = cursor ? TERRACE_OK : failure.status();
  while (status == TERRACE_OK &&
         (status = terrace_cursor_next(cursor, &row, failure.out())) == TERRACE_OK)
  {
    Reference one;
    if (!parse(Bytes(row.key, row.key_len), Bytes(row.value, row.value_len), &one))
    {
      sql_print_error("Terrace: a foreign key is not of a format that this version reads");
      status = TERRACE_CORRUPT;
      break;
    }
    all[key_of(one)] = std::make_shared<const Reference>(one);
  }
  show(std::move(all));
  terrace_cursor_free(cursor);
  terrace_table_free(table);
  return status == TERRACE_NOT_FOUND;
}

bool settle_references(const Bytes &from, const Bytes &to)
{
  // A table that has its old name has its keys too.
  if (!library_has(to) || library_has(from) || !rename_references(from, to))
    return true;
  sql_print_error("Terrace: table %s has no foreign keys until the next start: those of %s cannot "
                  "get its name",
                  to.c_str(), from.c_str());
  return false;
}

void sweep_references()
{
  std::lock_guard<std::mutex> guard(lock);
  std::vector<Bytes> removed;
  const std::shared_ptr<const All> all = seen();
  for (auto &one : *all)
    if (!library_has(one.second->child))
      removed.push_back(one.first);
  Failure failure;
  if (write(removed, {}, &failure) != TERRACE_OK)
    sql_print_warning("Terrace: cannot forget foreign keys of tables that are gone: %s",
                      failure.message());
}
