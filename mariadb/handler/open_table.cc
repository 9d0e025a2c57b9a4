#include "open_table.h"
#include "engine.h"
#include "ha_terrace.h"
#include "key_codec.h"
#include "numbers.h"
#include "role.h"
#include "trx.h"
#include "yield.h"

#include <condition_variable>
#include <map>

static const ulonglong LARGEST_BLOCK = 1024;

/* Held over no call of the library. */
static std::mutex registry_lock;
/* An opening has ended. */
static std::condition_variable loaded;
/* One for each table that is open: two would store the counters of the table in any order. */
static std::map<Bytes, Open_table *> registry;

/* When a table and its indexes were made. */
struct Moments
{
  ulonglong made = 0;
  std::map<uint, ulonglong> indexes;
};

/* By the table's name. Views may be older than what is open. */
static std::map<Bytes, Moments> moments;

/*
  Whether a table of the library is one that a statement fills before it gets its name: the copy of
  an ALTER TABLE, or a partition that is made out of others. Views from while it was filled do not
  see all of its rows.
*/
static bool is_filled_under(const Bytes &name)
{
  static const Bytes of_alter = "/#sql-alter-", of_partition = "#TMP#";
  return name.find(of_alter) != Bytes::npos || name.find(of_partition) != Bytes::npos;
}

Open_table *Open_table::acquire(const Bytes &name, Failure *failure)
{
  Open_table *open;
  {
    std::unique_lock<std::mutex> guard(registry_lock);
    auto found = registry.find(name);
    while (found != registry.end() && found->second->is_loading)
    {
      loaded.wait(guard);
      found = registry.find(name);
    }
    if (found != registry.end())
    {
      found->second->users++;
      return found->second;
    }
    open = registry[name] = new Open_table;
    open->name = name;
    open->users = 1;
  }
  YIELD("open");
  open->table = terrace_database_existing_table(database(), name.c_str(), failure->out());
  const bool is_open = open->table && !open->load(failure);
  {
    std::lock_guard<std::mutex> guard(registry_lock);
    open->is_loading = false;
    auto found = registry.find(open->name);
    if (!is_open && found != registry.end() && found->second == open)
      registry.erase(found);
    auto known = moments.find(open->name);
    if (known != moments.end())
      open->made = known->second.made;
  }
  loaded.notify_all();
  if (is_open)
    return open;
  terrace_table_free(open->keeper);
  terrace_table_free(open->table);
  delete open;
  return nullptr;
}

int Open_table::follow(const Bytes &name, const TABLE_SHARE *definition, Open_table **open,
                       Failure *failure)
{
  Stamp stamp;
  Bytes version;
  if (int error = find_stamp(current_thd, name, &stamp, &version))
    return error;
  if (version != version_of(definition))
    return HA_ERR_TABLE_DEF_CHANGED;
  {
    // Handlers that have the one before go on with it until their statements end.
    std::lock_guard<std::mutex> guard(registry_lock);
    auto found = registry.find(name);
    if (found != registry.end() && !found->second->is_loading && !(found->second->stamp == stamp))
      registry.erase(found);
  }
  *open = acquire(name, failure);
  if (!*open)
    return 0;
  {
    std::lock_guard<std::mutex> guard(registry_lock);
    if (!(*open)->stamp.generation)
      (*open)->stamp = stamp;
  }
  // It is of that definition if that is the newest one still.
  if ((*open)->stamp == stamp && has_stamp(name, stamp, nullptr))
    return 0;
  forget(name);
  release(*open);
  *open = nullptr;
  return HA_ERR_TABLE_DEF_CHANGED;
}

/* The last user gives back the numbers that no row has. */
void Open_table::give_numbers_back()
{
  if (only_reads())
    return;
  std::lock_guard<std::mutex> guard(storing);
  ulonglong before[2];
  {
    std::lock_guard<std::mutex> of_memory(lock);
    if (row_ids.stored == row_ids.next && numbers.stored == numbers.next)
      return;
  }
  // A table that was dropped has no counters.
  Failure failure;
  if (terrace_table_contains_key(table, COUNTERS.data(), COUNTERS.size(), failure.out()) ==
      TERRACE_MISSING_TABLE)
    return;
  {
    std::lock_guard<std::mutex> of_memory(lock);
    before[0] = row_ids.stored;
    before[1] = numbers.stored;
    row_ids.stored = row_ids.next;
    numbers.stored = numbers.next;
  }
  if (!store(nullptr))
    return;
  // A failure leaves a gap.
  std::lock_guard<std::mutex> of_memory(lock);
  row_ids.stored = before[0];
  numbers.stored = before[1];
}

/*
  It stays in the registry while it gives its numbers back, and a handler that is opened meanwhile
  uses it: one that loaded the counters anew would give out numbers that the store takes back.
*/
void Open_table::release(Open_table *table)
{
  {
    std::lock_guard<std::mutex> guard(registry_lock);
    if (table->users > 1)
    {
      table->users--;
      return;
    }
  }
  table->give_numbers_back();
  {
    std::lock_guard<std::mutex> guard(registry_lock);
    if (--table->users)
      return;
    auto found = registry.find(table->name);
    if (found != registry.end() && found->second == table)
      registry.erase(found);
  }
  terrace_table_free(table->keeper);
  terrace_table_free(table->table);
  delete table;
}

void Open_table::forget(const Bytes &name)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  registry.erase(name);
  moments.erase(name);
}

void Open_table::rename(const Bytes &from, const Bytes &to)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  Open_table *open = nullptr;
  auto found = registry.find(from);
  if (found != registry.end())
  {
    open = found->second;
    registry.erase(found);
    open->name = to;
    registry[to] = open;
  }
  auto known = moments.find(from);
  Moments of_table;
  if (known != moments.end())
  {
    of_table = known->second;
    moments.erase(known);
  }
  if (is_filled_under(from))
    of_table.made = Trx::next_moment();
  moments[to] = of_table;
  if (open)
    open->made = of_table.made;
}

Layout_ref Open_table::layout()
{
  std::lock_guard<std::mutex> guard(lock);
  return layout_now;
}

int Open_table::set_layout(THD *thd, const Layout &layout, uint durability)
{
  std::lock_guard<std::mutex> guard(storing);
  if (int error = put_own(thd, LAYOUT, layout.record(), durability))
    return error;
  std::lock_guard<std::mutex> of_memory(lock);
  layout_now = std::make_shared<const Layout>(layout);
  return 0;
}

/*
  A crash behind the creation of a table, or behind the removal of all rows, leaves neither rows nor a
  layout. The next write stores it. A table with rows stays without one.
*/
int Open_table::begin_layout(THD *thd, const Layout &of_definition)
{
  std::lock_guard<std::mutex> guard(storing);
  // Another opening has begun it, and rows may have come since.
  if (layout())
    return 0;
  const uchar first = PREFIX_ROWS;
  const terrace_range all = {{&first, 1, TERRACE_INCLUDED}, {nullptr, 0, TERRACE_UNBOUNDED}};
  Failure failure;
  terrace_cursor *cursor = terrace_table_cursor(table, &all, failure.out());
  const bool is_empty =
    cursor && terrace_cursor_first(cursor, nullptr, failure.out()) == TERRACE_NOT_FOUND;
  terrace_cursor_free(cursor);
  if (!is_empty)
    return failure.handler_error(thd);
  std::lock_guard<std::mutex> of_memory(lock);
  layout_now = std::make_shared<const Layout>(of_definition);
  is_unwritten = true;
  return 0;
}

int Open_table::before_write(THD *thd)
{
  if (!is_unwritten)
    return 0;
  std::lock_guard<std::mutex> guard(storing);
  return write_own(thd);
}

/*
  After all rows and what is kept beside them were removed: writes that anew. What fails here is
  written before the next row. After a crash the next opening begins a layout where it is needed.
*/
int Open_table::begin_anew(THD *thd)
{
  const Layout_ref before = layout();
  {
    std::lock_guard<std::mutex> guard(storing), of_memory(lock);
    // Hidden ids go on. Nothing of what was reserved is stored.
    row_ids.stored = 1;
    numbers.next = numbers.stored = 1;
  }
  int error = before ? set_layout(thd, *before) : 0;
  if (!error)
    error = set_auto_increment(thd, 1);
  if (error)
    is_unwritten = true;
  return error;
}

Build_ref Open_table::build()
{
  std::lock_guard<std::mutex> guard(lock);
  return build_now;
}

void Open_table::set_build(const Build_ref &of_change)
{
  std::lock_guard<std::mutex> guard(lock);
  build_now = of_change;
  builds_so_far++;
}

void Open_table::note_made()
{
  std::lock_guard<std::mutex> guard(registry_lock);
  // A transaction that has made a temporary table reads it, whatever its view is.
  if (is_temporary(name))
    return;
  made = moments[name].made = Trx::next_moment();
}

void Open_table::note_new_indexes(const std::vector<uint> &of_new)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  for (uint number : of_new)
    moments[name].indexes[number] = Trx::next_moment();
}

ulonglong Open_table::built_at(uint number)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  auto of_table = moments.find(name);
  if (of_table == moments.end())
    return 0;
  auto found = of_table->second.indexes.find(number);
  return found == of_table->second.indexes.end() ? 0 : found->second;
}

int Open_table::load_layout(Failure *failure)
{
  Bytes value;
  const terrace_status status = get_own(LAYOUT, &value, failure);
  if (status == TERRACE_NOT_FOUND)
    return 0;
  Layout found;
  if (status != TERRACE_OK)
    return 1;
  if (!found.parse(reinterpret_cast<const uchar *>(value.data()), value.size()))
  {
    sql_print_error("Terrace: table %s has a record of its layout that this version cannot read, of "
                    "format %u. %s",
                    name.c_str(), value.empty() ? 0 : uint(uchar(value[0])), HOW_TO_BRING);
    return 1;
  }
  layout_now = std::make_shared<const Layout>(found);
  return 0;
}

int Open_table::load(Failure *failure)
{
  terrace_table_options *options = terrace_table_get_options(table, failure->out());
  if (!options)
    return 1;
  has_ttl_now = option_of(options, "ttl") != "none";
  const int is_unknown = has_ttl_now
                           ? find_number(options, failure) || take_tag(options, failure)
                           : find_mark(failure);
  terrace_table_options_free(options);
  if (is_unknown || load_layout(failure) || load_values(failure))
    return 1;
  Bytes value;
  const terrace_status status = get_own(COUNTERS, &value, failure);
  if (status == TERRACE_NOT_FOUND)
    return 0;
  if (status != TERRACE_OK || value.size() != 16)
    return 1;
  const uchar *bytes = reinterpret_cast<const uchar *>(value.data());
  row_ids.next = row_ids.stored = uint8korr(bytes);
  numbers.next = numbers.stored = uint8korr(bytes + 8);
  return 0;
}

int Open_table::put_counters(THD *thd, ulonglong of_ids, ulonglong of_numbers)
{
  uchar value[16];
  int8store(value, of_ids);
  int8store(value + 8, of_numbers);
  // Commits keep their order: a row that survives a power cut has its counter before it.
  return put_own(thd, COUNTERS, Bytes(reinterpret_cast<char *>(value), sizeof(value)),
                 TERRACE_RELAXED);
}

/* Holds `storing`, as all that stores. */
int Open_table::store(THD *thd)
{
  ulonglong of_ids, of_numbers;
  {
    std::lock_guard<std::mutex> of_memory(lock);
    of_ids = row_ids.stored;
    of_numbers = numbers.stored;
  }
  return put_counters(thd, of_ids, of_numbers);
}

/*
  Behind a number that was taken: has it stored, with some more. Others take what is stored already
  meanwhile, and what is not stored no row has.
*/
int Open_table::reserve(THD *thd, Counter *counter)
{
  {
    std::lock_guard<std::mutex> of_memory(lock);
    if (counter->next <= counter->stored)
      return 0;
  }
  std::lock_guard<std::mutex> guard(storing);
  ulonglong wanted, of_ids, of_numbers;
  {
    std::lock_guard<std::mutex> of_memory(lock);
    if (counter->next <= counter->stored)
      return 0;
    wanted = counter->next + std::min(counter->block, ULONGLONG_MAX - counter->next);
    counter->block = std::min(counter->block * 2, LARGEST_BLOCK);
    of_ids = counter == &row_ids ? wanted : row_ids.stored;
    of_numbers = counter == &numbers ? wanted : numbers.stored;
  }
  if (int error = put_counters(thd, of_ids, of_numbers))
    return error;
  std::lock_guard<std::mutex> of_memory(lock);
  counter->stored = wanted;
  return 0;
}

int Open_table::next_row_id(THD *thd, ulonglong *id)
{
  {
    std::lock_guard<std::mutex> guard(lock);
    *id = row_ids.next++;
  }
  return reserve(thd, &row_ids);
}

int Open_table::take_auto_increment(THD *thd, ulonglong offset, ulonglong step, ulonglong count,
                                    ulonglong *first)
{
  *first = ULONGLONG_MAX;
  {
    std::lock_guard<std::mutex> guard(lock);
    ulonglong value = numbers.next;
    if (value == ULONGLONG_MAX)
      return 0;
    if (step > 1)
    {
      if (offset > step)
        offset = 0;
      // The first number from value on that is offset + n * step.
      ulonglong base =
        value <= offset ? offset : offset + (value - offset + step - 1) / step * step;
      if (base < value)
        return 0;
      value = base;
    }
    ulonglong most = (ULONGLONG_MAX - value) / step;
    numbers.next = value + std::min(count, most) * step;
    *first = value;
  }
  return reserve(thd, &numbers);
}

int Open_table::saw_auto_increment(THD *thd, ulonglong value)
{
  {
    std::lock_guard<std::mutex> guard(lock);
    if (value >= numbers.next)
      numbers.next = value < ULONGLONG_MAX ? value + 1 : value;
  }
  // Also where it is not the largest: the one before may have failed to be stored.
  return reserve(thd, &numbers);
}

int Open_table::set_auto_increment(THD *thd, ulonglong next)
{
  std::lock_guard<std::mutex> guard(storing);
  {
    std::lock_guard<std::mutex> of_memory(lock);
    numbers.next = numbers.stored = std::max<ulonglong>(next, 1);
  }
  return store(thd);
}

ulonglong Open_table::auto_increment()
{
  std::lock_guard<std::mutex> guard(lock);
  return numbers.next;
}

void Open_table::estimate(bool at_once, ulonglong *of_rows, ulonglong *of_row_bytes,
                          ulonglong *of_index_bytes)
{
  std::unique_lock<std::mutex> guard(lock);
  const ulonglong now = microsecond_interval_timer();
  if (at_once || !estimated_at || now - estimated_at > 1000000)
  {
    // Others go on with the last values, if there are some.
    if (estimated_at)
      estimated_at = now;
    // What cannot be estimated keeps its last value.
    Sizes found = sizes;
    guard.unlock();
    const uchar first = PREFIX_ROWS, second = PREFIX_INDEXES;
    terrace_range of_the_rows = {{&first, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
    terrace_range of_indexes = {{&second, 1, TERRACE_INCLUDED}, {nullptr, 0, TERRACE_UNBOUNDED}};
    Failure failure;
    uint64_t value;
    if (terrace_table_approximate_len(table, &of_the_rows, &value, failure.out()) == TERRACE_OK)
      found.rows = value;
    if (terrace_table_approximate_size(table, &of_the_rows, &value, failure.out()) == TERRACE_OK)
      found.row_bytes = value;
    if (terrace_table_approximate_size(table, &of_indexes, &value, failure.out()) == TERRACE_OK)
      found.index_bytes = value;
    guard.lock();
    sizes = found;
    estimated_at = now;
  }
  *of_rows = sizes.rows;
  *of_row_bytes = sizes.row_bytes;
  *of_index_bytes = sizes.index_bytes;
}

std::vector<ulonglong> Open_table::values_of(uint index, ulonglong of_rows)
{
  std::lock_guard<std::mutex> guard(lock);
  auto found = values.find(index);
  if (found == values.end() || of_rows > found->second.rows * 2 + 100 ||
      of_rows * 2 + 100 < found->second.rows)
    return {};
  return found->second.of_parts;
}

void Open_table::set_values_of(uint index, ulonglong of_rows, const std::vector<ulonglong> &of_parts)
{
  std::lock_guard<std::mutex> guard(lock);
  values[index] = {of_rows, of_parts};
}

/* The first byte of what is kept of values: its format. */
static const char FORMAT_OF_VALUES = 1;
/* The bytes of an index: its prefix, the rows that there were, and how many numbers follow. */
static const size_t HEADER_OF_VALUES = 10;

Bytes Open_table::record_of_values()
{
  std::lock_guard<std::mutex> of_memory(lock);
  Bytes out(1, FORMAT_OF_VALUES);
  uchar bytes[HEADER_OF_VALUES];
  for (auto &index : values)
  {
    bytes[0] = uchar(index.first);
    int8store(bytes + 1, index.second.rows);
    bytes[9] = uchar(index.second.of_parts.size());
    out.append(reinterpret_cast<char *>(bytes), HEADER_OF_VALUES);
    for (ulonglong number : index.second.of_parts)
    {
      int8store(bytes, number);
      out.append(reinterpret_cast<char *>(bytes), 8);
    }
  }
  return out;
}

int Open_table::keep_values(THD *thd)
{
  if (only_reads())
    return 0;
  std::lock_guard<std::mutex> guard(storing);
  return put_own(thd, VALUES, record_of_values(), TERRACE_RELAXED);
}

void Open_table::forget_values_of(uint index)
{
  std::lock_guard<std::mutex> guard(lock);
  values.erase(index);
}

int Open_table::load_values(Failure *failure)
{
  Bytes kept;
  const terrace_status status = get_own(VALUES, &kept, failure);
  // What is not there, or of another format, is counted anew.
  if (status == TERRACE_NOT_FOUND || (status == TERRACE_OK && kept[0] != FORMAT_OF_VALUES))
    return 0;
  if (status != TERRACE_OK)
    return 1;
  const uchar *at = reinterpret_cast<const uchar *>(kept.data()) + 1, *end = at + kept.size() - 1;
  while (size_t(end - at) >= HEADER_OF_VALUES)
  {
    const size_t count = at[9];
    Values &of_index = values[at[0]];
    of_index.rows = uint8korr(at + 1);
    at += HEADER_OF_VALUES;
    if (size_t(end - at) < count * 8)
      return 1;
    for (size_t i = 0; i < count; i++, at += 8)
      of_index.of_parts.push_back(uint8korr(at));
  }
  return at != end;
}
