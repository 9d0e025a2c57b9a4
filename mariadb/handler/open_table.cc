#include "open_table.h"
#include "engine.h"
#include "key_codec.h"
#include "trx.h"

#include <map>

static const ulonglong LARGEST_BLOCK = 1024;
static const char COUNTERS[1] = {char(PREFIX_COUNTERS)};
static const char LAYOUT[2] = {char(PREFIX_COUNTERS), 1};

static std::mutex registry_lock;
static std::map<Bytes, Open_table *> registry;
/* When indexes of tables were built, by the table's name. Views may be older than open tables. */
static std::map<Bytes, std::map<uint, ulonglong>> built;

Open_table *Open_table::acquire(const Bytes &name, Failure *failure)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  auto found = registry.find(name);
  if (found != registry.end())
  {
    found->second->users++;
    return found->second;
  }
  terrace_table *handle = terrace_database_existing_table(terrace_db, name.c_str(), failure->out());
  if (!handle)
    return nullptr;
  Open_table *open = new Open_table;
  open->table = handle;
  open->name = name;
  open->users = 1;
  if (open->load(failure))
  {
    terrace_table_free(handle);
    delete open;
    return nullptr;
  }
  registry[name] = open;
  return open;
}

void Open_table::release(Open_table *table)
{
  {
    std::lock_guard<std::mutex> guard(registry_lock);
    if (--table->users)
      return;
    auto found = registry.find(table->name);
    if (found != registry.end() && found->second == table)
      registry.erase(found);
  }
  // The last user gives back the numbers that no row has.
  for (Counter *counter : {&table->row_ids, &table->numbers})
    counter->block = 0;
  if (table->row_ids.stored != table->row_ids.next || table->numbers.stored != table->numbers.next)
  {
    table->row_ids.stored = table->row_ids.next;
    table->numbers.stored = table->numbers.next;
    Failure failure;
    // A table that was dropped has no counters. For another one a failure leaves a gap.
    uchar value[16];
    int8store(value, table->row_ids.stored);
    int8store(value + 8, table->numbers.stored);
    terrace_table_put(table->table, COUNTERS, 1, value, sizeof(value), TERRACE_RELAXED,
                      failure.out());
  }
  terrace_table_free(table->table);
  delete table;
}

void Open_table::forget(const Bytes &name)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  registry.erase(name);
  built.erase(name);
}

void Open_table::rename(const Bytes &from, const Bytes &to)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  registry.erase(from);
  auto found = built.find(from);
  if (found == built.end())
    return;
  built[to] = found->second;
  built.erase(from);
}

Layout_ref Open_table::layout()
{
  std::lock_guard<std::mutex> guard(lock);
  return layout_now;
}

int Open_table::set_layout(THD *thd, const Layout &layout)
{
  const Bytes record = layout.record();
  Failure failure;
  if (terrace_table_put(table, LAYOUT, sizeof(LAYOUT), record.data(), record.size(),
                        TERRACE_DURABLE, failure.out()) != TERRACE_OK)
    return failure.handler_error(thd);
  std::lock_guard<std::mutex> guard(lock);
  layout_now = std::make_shared<const Layout>(layout);
  return 0;
}

int Open_table::drop_layout(THD *thd)
{
  Failure failure;
  if (terrace_table_delete(table, LAYOUT, sizeof(LAYOUT), TERRACE_DURABLE, failure.out()) !=
      TERRACE_OK)
    return failure.handler_error(thd);
  std::lock_guard<std::mutex> guard(lock);
  layout_now = nullptr;
  return 0;
}

void Open_table::note_new_indexes(const std::vector<uint> &of_new)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  for (uint number : of_new)
    built[name][number] = Trx::next_moment();
}

ulonglong Open_table::built_at(uint number)
{
  std::lock_guard<std::mutex> guard(registry_lock);
  auto of_table = built.find(name);
  if (of_table == built.end())
    return 0;
  auto found = of_table->second.find(number);
  return found == of_table->second.end() ? 0 : found->second;
}

int Open_table::load_layout(Failure *failure)
{
  terrace_value value;
  terrace_status status =
    terrace_table_get(table, LAYOUT, sizeof(LAYOUT), &value, failure->out());
  if (status == TERRACE_NOT_FOUND)
    return 0;
  if (status != TERRACE_OK)
    return 1;
  Layout found;
  const bool is_good = found.parse(reinterpret_cast<const uchar *>(value.data), value.len);
  terrace_value_release(&value);
  if (!is_good)
    return 1;
  layout_now = std::make_shared<const Layout>(found);
  return 0;
}

int Open_table::load(Failure *failure)
{
  if (load_layout(failure))
    return 1;
  uchar value[16];
  size_t length = 0;
  terrace_status status = terrace_table_get_into(table, COUNTERS, 1, value, sizeof(value), &length,
                                                 failure->out());
  if (status == TERRACE_NOT_FOUND)
    return 0;
  if (status != TERRACE_OK || length != sizeof(value))
    return 1;
  row_ids.next = row_ids.stored = uint8korr(value);
  numbers.next = numbers.stored = uint8korr(value + 8);
  return 0;
}

int Open_table::store(THD *thd)
{
  uchar value[16];
  int8store(value, row_ids.stored);
  int8store(value + 8, numbers.stored);
  Failure failure;
  // Commits keep their order: a row that survives a power cut has its counter before it.
  if (terrace_table_put(table, COUNTERS, 1, value, sizeof(value), TERRACE_RELAXED,
                        failure.out()) != TERRACE_OK)
    return failure.handler_error(thd);
  return 0;
}

int Open_table::reserve(THD *thd, Counter *counter)
{
  if (counter->next <= counter->stored)
    return 0;
  ulonglong before = counter->stored;
  counter->stored = counter->next + std::min(counter->block, ULONGLONG_MAX - counter->next);
  counter->block = std::min(counter->block * 2, LARGEST_BLOCK);
  int error = store(thd);
  if (error)
    counter->stored = before;
  return error;
}

int Open_table::next_row_id(THD *thd, ulonglong *id)
{
  std::lock_guard<std::mutex> guard(lock);
  *id = row_ids.next++;
  return reserve(thd, &row_ids);
}

int Open_table::take_auto_increment(THD *thd, ulonglong offset, ulonglong step, ulonglong count,
                                    ulonglong *first)
{
  std::lock_guard<std::mutex> guard(lock);
  ulonglong value = numbers.next;
  *first = ULONGLONG_MAX;
  if (value == ULONGLONG_MAX)
    return 0;
  if (step > 1)
  {
    if (offset > step)
      offset = 0;
    // The first number from value on that is offset + n * step.
    ulonglong base = value <= offset ? offset : offset + (value - offset + step - 1) / step * step;
    if (base < value)
      return 0;
    value = base;
  }
  ulonglong most = (ULONGLONG_MAX - value) / step;
  numbers.next = value + std::min(count, most) * step;
  *first = value;
  return reserve(thd, &numbers);
}

int Open_table::saw_auto_increment(THD *thd, ulonglong value)
{
  std::lock_guard<std::mutex> guard(lock);
  if (value < numbers.next)
    return 0;
  numbers.next = value < ULONGLONG_MAX ? value + 1 : value;
  return reserve(thd, &numbers);
}

int Open_table::set_auto_increment(THD *thd, ulonglong next)
{
  std::lock_guard<std::mutex> guard(lock);
  numbers.next = numbers.stored = std::max<ulonglong>(next, 1);
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
  std::lock_guard<std::mutex> guard(lock);
  ulonglong now = microsecond_interval_timer();
  if (at_once || !estimated_at || now - estimated_at > 1000000)
  {
    const uchar first = PREFIX_ROWS, second = PREFIX_INDEXES;
    terrace_range of_the_rows = {{&first, 1, TERRACE_PREFIX}, {nullptr, 0, TERRACE_UNBOUNDED}};
    terrace_range of_indexes = {{&second, 1, TERRACE_INCLUDED}, {nullptr, 0, TERRACE_UNBOUNDED}};
    Failure failure;
    uint64_t value;
    // What cannot be estimated keeps its last value.
    if (terrace_table_approximate_len(table, &of_the_rows, &value, failure.out()) == TERRACE_OK)
      rows = value;
    if (terrace_table_approximate_size(table, &of_the_rows, &value, failure.out()) == TERRACE_OK)
      row_bytes = value;
    if (terrace_table_approximate_size(table, &of_indexes, &value, failure.out()) == TERRACE_OK)
      index_bytes = value;
    estimated_at = now;
  }
  *of_rows = rows;
  *of_row_bytes = row_bytes;
  *of_index_bytes = index_bytes;
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
