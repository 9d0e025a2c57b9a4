/*
  The key of a row is a name of the library, `db/t`, or `db/`. Its value has a byte of the format, a byte
  of flags, the stamp in 8 bytes, the length of the definition in 4, the definition (`.frm`), and the
  list of partitions (`.par`) in the rest. That of a database has its options (`db.opt`) as definition.
  That of a table whose definition is too large for a value has an empty one. The row of HEAD has there
  what a server that reads the others has to agree with, and the greatest stamp of all.
*/
#include "definitions.h"
#include "belonging.h"
#include "engine.h"
#include "ha_terrace.h"
#include "mysqld.h"
#include "partitions.h"
#include "renames.h"
#include "settle.h"
#include "yield.h"

#include "sql_db.h"

#include <algorithm>
#include <filesystem>

static const char DEFINITIONS[] = "#terrace/definitions";

static const uchar FORMAT = 1;
static const size_t HEADER_BYTES = 14;
/* What a value of the library may have. */
static const size_t MOST_BYTES = 1 << 20;
/* A statement changes it. */
static const uchar CHANGING = 1;

/* The row that is no definition. No name begins so. */
static const Bytes HEAD(1, '\0');

/* Databases that each server has of its own. */
static const char *const OF_SERVER[] = {"mysql", "performance_schema", "sys"};

/* The greatest of all rows, once these were read. */
static ulonglong last_stamp = 0;
static bool knows_stamps = false;

Bytes database_of(const Bytes &table) { return table.substr(0, table.find('/') + 1); }

/*
  Whether a folder is a database that servers do not share: it is each one's own, or none. The server
  looks at its list of those to ignore only where a variable names some.
*/
static bool is_of_server(const Bytes &folder)
{
  static const Bytes OF_NO_SQL = "#mysql50#";
  char name[SAFE_NAME_LEN + 1];
  filename_to_tablename(folder.c_str(), name, sizeof(name), true);
  return !OF_NO_SQL.compare(0, OF_NO_SQL.size(), name, std::min(strlen(name), OF_NO_SQL.size())) ||
         folder == own_folder() || db_name_is_in_ignore_db_dirs_list(name) ||
         std::find(std::begin(OF_SERVER), std::end(OF_SERVER), folder) != std::end(OF_SERVER);
}

bool is_published(const Bytes &table)
{
  return !is_hidden(table) && !is_own_table(table) &&
         !is_of_server(table.substr(0, table.find('/')));
}

static Bytes value_of(const Definition &one)
{
  uchar header[HEADER_BYTES] = {FORMAT, one.is_changing ? CHANGING : uchar(0)};
  int8store(header + 2, one.stamp);
  int4store(header + 10, uint32(one.image.size()));
  return Bytes(reinterpret_cast<char *>(header), sizeof(header)) + one.image + one.partitions;
}

/* One of another format counts as none, and is written anew. */
static Definition parse(const char *value, size_t length)
{
  Definition one;
  const uchar *bytes = reinterpret_cast<const uchar *>(value);
  if (length < HEADER_BYTES || bytes[0] != FORMAT ||
      uint4korr(bytes + 10) > length - HEADER_BYTES)
    return one;
  one.is_there = true;
  one.is_changing = bytes[1] & CHANGING;
  one.stamp = uint8korr(bytes + 2);
  one.image.assign(value + HEADER_BYTES, uint4korr(bytes + 10));
  one.partitions.assign(value + HEADER_BYTES + one.image.size(),
                        length - HEADER_BYTES - one.image.size());
  return one;
}

terrace_status find_definition_row(const Bytes &name, const terrace_transaction *view, Definition *one,
                                   Failure *failure)
{
  *one = Definition();
  Table_ref table(terrace_database_existing_table(database(), DEFINITIONS, failure->out()));
  terrace_status status = table ? TERRACE_OK : failure->status();
  if (status == TERRACE_OK)
  {
    Found_value found;
    status = view ? terrace_transaction_get(view, table, name.data(), name.size(), found.out(),
                                            failure->out())
                  : terrace_table_get(table, name.data(), name.size(), found.out(), failure->out());
    if (status == TERRACE_OK)
      *one = parse(found.data(), found.length());
  }
  // A writer of an earlier version has no such table.
  if (status != TERRACE_NOT_FOUND && status != TERRACE_MISSING_TABLE)
    return status;
  failure->clear();
  return TERRACE_OK;
}

terrace_status each_definition(const Bytes &beginning, Failure *failure,
                               const std::function<void(const Bytes &, const Definition &)> &each)
{
  Table_ref table(terrace_database_existing_table(database(), DEFINITIONS, failure->out()));
  if (!table)
    return failure->status() == TERRACE_MISSING_TABLE ? TERRACE_OK : failure->status();
  const terrace_range range = {{beginning.data(), beginning.size(), TERRACE_PREFIX},
                               {nullptr, 0, TERRACE_UNBOUNDED}};
  terrace_cursor *cursor =
    terrace_table_cursor(table, beginning.empty() ? nullptr : &range, failure->out());
  terrace_status status = cursor ? TERRACE_OK : failure->status();
  terrace_row row;
  while (status == TERRACE_OK &&
         (status = terrace_cursor_next(cursor, &row, failure->out())) == TERRACE_OK)
    if (row.key_len && row.key[0] != HEAD[0])
      each(Bytes(row.key, row.key_len), parse(row.value, row.value_len));
  terrace_cursor_free(cursor);
  return status == TERRACE_NOT_FOUND ? TERRACE_OK : status;
}

terrace_status newest_stamp(ulonglong *stamp, Failure *failure)
{
  Definition head;
  const terrace_status status = find_definition_row(HEAD, nullptr, &head, failure);
  *stamp = head.stamp;
  return status;
}

bool reads_definitions(Bytes *why)
{
  Failure failure;
  Definition head;
  if (find_definition_row(HEAD, nullptr, &head, &failure) != TERRACE_OK)
    *why = failure.message();
  else if (head.image.empty())
    *why = "its writer is of a version that has no definitions of tables there";
  else if (uchar(head.image[0]) != lower_case_table_names)
    *why = "its writer has lower_case_table_names=" + std::to_string(uchar(head.image[0])) +
           ", and this server has to have the same";
  else if (atol(head.image.c_str() + 1) > long(MYSQL_VERSION_ID))
    *why = "its writer is a newer server, of version " + head.image.substr(1) +
           ": upgrade those that follow it first";
  else
    return true;
  return false;
}

/* The library's table of definitions, and changes of it that become one commit. */
class Rows
{
public:
  explicit Rows(Failure *failure_arg)
    : failure(failure_arg),
      table(terrace_database_table(database(), DEFINITIONS, failure_arg->out())),
      batch(terrace_batch_new()), status(table ? TERRACE_OK : failure_arg->status())
  {}
  ~Rows()
  {
    terrace_batch_free(batch);
    terrace_table_free(table);
  }
  Rows(const Rows &) = delete;
  Rows &operator=(const Rows &) = delete;

  Definition get(const Bytes &name)
  {
    if (status != TERRACE_OK)
      return Definition();
    Found_value found;
    status = terrace_table_get(table, name.data(), name.size(), found.out(), failure->out());
    if (status == TERRACE_OK)
      return parse(found.data(), found.length());
    if (status == TERRACE_NOT_FOUND)
      status = TERRACE_OK;
    return Definition();
  }
  void put(const Bytes &name, const Definition &one)
  {
    const Bytes value = value_of(one);
    if (status == TERRACE_OK)
      status = terrace_batch_put(batch, table, name.data(), name.size(), value.data(), value.size(),
                                 failure->out());
  }
  void remove(const Bytes &name)
  {
    if (status == TERRACE_OK)
      status = terrace_batch_delete(batch, table, name.data(), name.size(), failure->out());
  }
  /* A start does again what a power cut takes back, so it need not be durable. */
  terrace_status commit()
  {
    if (status != TERRACE_OK || !terrace_batch_len(batch))
      return status;
    terrace_pending *pending =
      terrace_database_enqueue(database(), batch, TERRACE_RELAXED, failure->out());
    status = pending ? terrace_pending_wait(pending, failure->out()) : failure->status();
    terrace_pending_free(pending);
    return status;
  }
  /* All names, and the greatest stamp. */
  terrace_status names(std::set<Bytes> *all, ulonglong *greatest)
  {
    terrace_cursor *cursor =
      status == TERRACE_OK ? terrace_table_cursor(table, nullptr, failure->out()) : nullptr;
    if (status == TERRACE_OK && !cursor)
      status = failure->status();
    terrace_row row;
    while (status == TERRACE_OK &&
           (status = terrace_cursor_next(cursor, &row, failure->out())) == TERRACE_OK)
    {
      all->insert(Bytes(row.key, row.key_len));
      *greatest = std::max(*greatest, parse(row.value, row.value_len).stamp);
    }
    terrace_cursor_free(cursor);
    if (status == TERRACE_NOT_FOUND)
      status = TERRACE_OK;
    return status;
  }

private:
  Failure *failure;
  terrace_table *table;
  terrace_batch *batch;
  terrace_status status;
};

/* Whether the library has a table, or partitions of that name, or tables of a database. */
typedef std::function<bool(const Bytes &, bool is_partitioned)> Is_here;

/* Whether names have one of a database. */
static bool has_of(const std::set<Bytes> &names, const Bytes &database)
{
  const auto at = names.lower_bound(database);
  return at != names.end() && !at->compare(0, database.size(), database);
}

/* What the files are now; false if one cannot be read. A definition of another engine is none. */
static bool of_files(const Bytes &name, const Is_here &is_here, Definition *one)
{
  const auto is_known = [](File_read read) { return read != File_read::FAILED; };
  if (name == HEAD)
  {
    one->is_there = true;
    one->image.assign(1, char(lower_case_table_names));
    one->image += std::to_string(MYSQL_VERSION_ID);
    return true;
  }
  // One that was written before its folder became the server's own.
  if (is_of_server(name.substr(0, name.find('/'))))
    return true;
  if (name.back() == '/')
  {
    one->is_there = access(("./" + name).c_str(), F_OK) == 0;
    return !one->is_there || is_known(read_file("./" + name + MY_DB_OPT_FILE, &one->image));
  }
  const File_read read = read_file("./" + name + reg_ext, &one->image);
  const bool is_partitioned = is_partitioned_definition(one->image);
  const File_read list =
    is_partitioned ? read_file(list_of(name), &one->partitions) : File_read::MISSING;
  one->is_there = read == File_read::WHOLE && is_own_definition(one->image) &&
                  (!is_partitioned || is_own_list(one->partitions)) && is_here(name, is_partitioned);
  if (!one->is_there)
  {
    one->image.clear();
    one->partitions.clear();
  }
  return is_known(read) && is_known(list);
}

/* Adds to the batch what a name is now; false if that cannot be read. */
static bool publish_one(Rows *rows, const Bytes &name, const Is_here &is_here)
{
  // It has not found its rows. The start that moves them there publishes it.
  if (is_astray(name))
    return true;
  const Definition was = rows->get(name);
  Definition now;
  if (!of_files(name, is_here, &now))
    return false;
  // Its file is lost, or its list, or they are another table's by now. The row is what is left of it:
  // what was half done stays so.
  const bool has_last = name.back() == '/' ? was.is_there : !was.image.empty();
  if (has_last && !now.is_there && is_here(name, !was.partitions.empty()))
    return true;
  const bool is_too_large = value_of(now).size() > MOST_BYTES;
  if (is_too_large)
  {
    now.image.clear();
    now.partitions.clear();
  }
  if (!was.is_changing && was.is_there == now.is_there && was.image == now.image &&
      was.partitions == now.partitions)
    return true;
  if (is_too_large)
    sql_print_warning("Terrace: the definition of table %s is too large for the database, so servers "
                      "that follow this one do not have the table",
                      name.c_str());
  now.stamp = ++last_stamp;
  if (now.is_there)
    rows->put(name, now);
  else
    rows->remove(name);
  return true;
}

static bool publish(const std::set<Bytes> &names, const Is_here &is_here, Bytes *why)
{
  Failure failure;
  Rows rows(&failure);
  bool is_whole = true;
  const ulonglong before = last_stamp;
  if (!knows_stamps)
  {
    std::set<Bytes> all;
    knows_stamps = rows.names(&all, &last_stamp) == TERRACE_OK;
  }
  for (const Bytes &name : names)
    if (!publish_one(&rows, name, is_here))
    {
      *why = "cannot read the files of " + name + ": " + strerror(my_errno);
      is_whole = false;
    }
  // Readers look at this one alone, now and then.
  if (last_stamp != before)
  {
    Definition head;
    of_files(HEAD, is_here, &head);
    head.stamp = last_stamp;
    rows.put(HEAD, head);
  }
  if (rows.commit() == TERRACE_OK)
    return is_whole;
  *why = failure.message();
  return false;
}

terrace_status mark_definition(const Bytes &name, Failure *failure)
{
  Rows rows(failure);
  Definition one = rows.get(name);
  if (!one.is_changing)
  {
    one.is_changing = true;
    rows.put(name, one);
  }
  return rows.commit();
}

bool publish_definitions(const std::set<Bytes> &names, Bytes *why)
{
  const Is_here is_here = [](const Bytes &name, bool is_partitioned) {
    if (name.back() == '/')
    {
      const std::vector<Bytes> all = library_tables();
      return has_of(std::set<Bytes>(all.begin(), all.end()), name);
    }
    return is_partitioned ? !partitions_of(name).empty() : library_has(name);
  };
  return publish(names, is_here, why);
}

/* Databases, and those that have gone too. */
static void add_databases(std::set<Bytes> *names)
{
  for (const Bytes &name : files_in("."))
  {
    // A name of SQL is encoded without these.
    const bool is_of_sql = name.find_first_of("#.+") == Bytes::npos;
    std::error_code none;
    if (std::filesystem::is_directory("./" + name, none) && is_of_sql && !is_of_server(name))
      names->insert(name + '/');
  }
}

std::set<Bytes> settle_definitions()
{
  std::set<Bytes> plain, partitioned, names = {HEAD};
  for (const Bytes &name : library_tables())
    if (is_published(name))
      (table_of_partition(name) == name ? plain : partitioned).insert(table_of_partition(name));
  names.insert(plain.begin(), plain.end());
  names.insert(partitioned.begin(), partitioned.end());
  add_databases(&names);
  Failure failure;
  knows_stamps = Rows(&failure).names(&names, &last_stamp) == TERRACE_OK;
  Bytes why = failure.message();
  std::set<Bytes> left;
  // One commit for each: a database may have more definitions than a commit may.
  const Is_here is_here = [&](const Bytes &name, bool is_partitioned) {
    if (name.back() == '/')
      return has_of(plain, name) || has_of(partitioned, name);
    return (is_partitioned ? partitioned : plain).count(name) != 0;
  };
  // What is not known of stamps is read again by the next statement, once for all names.
  if (!knows_stamps)
    left.swap(names);
  for (const Bytes &name : names)
    if (is_astray(name) ? mark_definition(name, &failure) != TERRACE_OK
                        : !publish({name}, is_here, &why))
      left.insert(name);
  if (!left.empty())
    sql_print_error("Terrace: %zu definitions of tables are not in the database yet, as that of %s, and "
                    "servers that follow this one wait for them: %s",
                    left.size(), left.begin()->c_str(), why.c_str());
  YIELD("published");
  return left;
}
