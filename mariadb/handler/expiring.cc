/*
  Where a table keeps its counters and its layout, and what its attributes are.
*/
#include "engine.h"
#include "ha_terrace.h"
#include "key_codec.h"
#include "numbers.h"
#include "open_table.h"
#include "role.h"

/* The library's table for tables whose rows expire. The server's have no such name (ddl.cc). */
static const char KEEPER[] = "#terrace/expiring";

/* Whether it is there. The library copies the names of all tables to say that one is not. */
static std::atomic<bool> has_keeper{false};

void Open_table::find_keeper() { has_keeper = library_has(KEEPER); }

const Bytes Open_table::COUNTERS(1, char(PREFIX_COUNTERS));
const Bytes Open_table::LAYOUT = Open_table::COUNTERS + '\1';
const Bytes Open_table::VALUES = Open_table::COUNTERS + '\2';

/* A failure of the library, or of statistics that do not have the table. */
static int fail_of(const Failure &failure, THD *thd)
{
  return failure.status() == TERRACE_OK
           ? fail_with("the statistics of the library do not have the table; try again")
           : failure.handler_error(thd);
}

/* The tag of a table; 0 for none. */
static ulonglong tag_of(const terrace_table_options *options)
{
  return strtoull(option_of(options, "tag").c_str(), nullptr, 10);
}

/* The library's number of the table, which earlier versions went by; 0 where it is not found. */
ulonglong Open_table::former_number(Failure *failure) const
{
  terrace_string *now = terrace_table_name(table, failure->out());
  if (!now)
    return 0;
  const Bytes wanted = terrace_string_text(now);
  terrace_string_free(now);
  bool is_wanted = false;
  for (const Number &one : all_numbers())
  {
    const char *of_table = behind(one, "tables/");
    const char *part = of_table ? strchr(of_table, '/') : nullptr;
    if (part && Bytes(part) == "/name")
      is_wanted = one.value == wanted;
    else if (part && is_wanted && Bytes(part) == "/id")
      return strtoull(one.value.c_str(), nullptr, 10);
  }
  return 0;
}

/*
  Takes what the options say the table is known by, and opens the table that keeps what it has. Holds
  `storing`.
*/
int Open_table::find_number(const terrace_table_options *options, Failure *failure)
{
  const ulonglong tag = tag_of(options), found = tag ? tag : former_number(failure);
  if (!found)
    return 1;
  if (!keeper)
    keeper = only_reads() ? terrace_database_existing_table(database(), KEEPER, failure->out())
                          : terrace_database_table(database(), KEEPER, failure->out());
  if (!keeper)
    return 1;
  has_keeper = true;
  number = found;
  return 0;
}

int Open_table::find_number(Failure *failure)
{
  terrace_table_options *options = terrace_table_get_options(table, failure->out());
  const int error = !options || find_number(options, failure);
  terrace_table_options_free(options);
  return error;
}

/*
  As it is opened: moves what an earlier version has kept under the number of the table to its tag.
  Another node of a shared store has other numbers.
*/
int Open_table::take_tag(terrace_table_options *options, Failure *failure)
{
  if (tag_of(options) || only_reads())
    return 0;
  terrace_string *now = terrace_table_name(table, failure->out());
  std::map<Bytes, Bytes> kept;
  int error = !now || set_tag(options, failure);
  for (const Bytes &key : {COUNTERS, LAYOUT, VALUES})
  {
    Bytes value;
    const terrace_status status = error ? TERRACE_OK : get_own(key, &value, failure);
    if (!error && status == TERRACE_OK)
      kept[key] = value;
    error |= status != TERRACE_OK && status != TERRACE_NOT_FOUND;
  }
  const ulonglong former = number;
  number = tag_of(options);
  for (auto &one : kept)
    error = error || put_own(nullptr, one.first, one.second, TERRACE_RELAXED);
  // Behind what was put, in the order of commits.
  error = error || terrace_database_set_table_options(database(), terrace_string_text(now), options,
                                                      failure->out()) != TERRACE_OK;
  terrace_string_free(now);
  const ulonglong tag = number;
  number = former;
  if (!error)
    drop_own();
  number = error ? former : tag;
  return error;
}

/* The key of a mark: no table has number 0. */
static Bytes mark_of(ulonglong number)
{
  uchar bytes[16] = {0};
  mi_int8store(bytes + 8, number);
  return Bytes(reinterpret_cast<char *>(bytes), sizeof(bytes));
}

/* Sets the mark before rows stop to expire, or takes it away, durably. Holds `storing`. */
int Open_table::set_mark(THD *thd, bool is_set)
{
  Failure failure;
  if (!number && find_number(&failure))
    return fail_of(failure, thd);
  const Bytes key = mark_of(number);
  const terrace_status status =
    is_set
      ? terrace_table_put(keeper, key.data(), key.size(), "", 0, TERRACE_DURABLE, failure.out())
      : terrace_table_delete(keeper, key.data(), key.size(), TERRACE_DURABLE, failure.out());
  if (status == TERRACE_OK)
    is_marked = is_set;
  return failure.handler_error(thd);
}

/* Looks for the mark of a table whose rows do not expire. Without any no number is looked up. */
int Open_table::find_mark(Failure *failure)
{
  if (!has_keeper)
    return 0;
  Failure of_keeper;
  keeper = terrace_database_existing_table(database(), KEEPER, of_keeper.out());
  if (!keeper)
    return 0;
  const Bytes of_all(8, '\0');
  const terrace_range marks = {{of_all.data(), of_all.size(), TERRACE_PREFIX},
                               {nullptr, 0, TERRACE_UNBOUNDED}};
  terrace_cursor *cursor = terrace_table_cursor(keeper, &marks, failure->out());
  const terrace_status some =
    cursor ? terrace_cursor_first(cursor, nullptr, failure->out()) : failure->status();
  terrace_cursor_free(cursor);
  if (some != TERRACE_OK)
    return some != TERRACE_NOT_FOUND;
  if (find_number(failure))
    return 1;
  const Bytes key = mark_of(number);
  const terrace_status found =
    terrace_table_contains_key(keeper, key.data(), key.size(), failure->out());
  is_marked = is_unwritten = found == TERRACE_OK;
  return found != TERRACE_OK && found != TERRACE_NOT_FOUND;
}

/*
  The table and the key that something is kept under. NULL where the number of the table cannot be
  looked up: without it there is no place, and number 0 would be one that all tables share. Holds
  `storing`.
*/
terrace_table *Open_table::place_of(bool of_expiring, const Bytes &key, Bytes *placed,
                                    Failure *failure)
{
  *placed = key;
  if (!of_expiring)
    return table;
  if (!number && find_number(failure))
    return nullptr;
  uchar bytes[8];
  mi_int8store(bytes, number);
  *placed = Bytes(reinterpret_cast<char *>(bytes), sizeof(bytes)) + key;
  return keeper;
}

/* Holds `storing`. */
int Open_table::put_own(THD *thd, const Bytes &key, const Bytes &value, uint durability)
{
  Failure failure;
  Bytes placed;
  terrace_table *to = place_of(has_ttl_now, key, &placed, &failure);
  if (!to)
    return fail_of(failure, thd);
  terrace_table_put(to, placed.data(), placed.size(), value.data(), value.size(), durability,
                    failure.out());
  return failure.handler_error(thd);
}

/* Holds `storing`. */
terrace_status Open_table::get_own(const Bytes &key, Bytes *value, Failure *failure)
{
  Bytes placed;
  terrace_value found;
  const terrace_table *from = place_of(has_ttl_now || is_marked, key, &placed, failure);
  if (!from)
    return failure->status() == TERRACE_OK ? TERRACE_UNAVAILABLE : failure->status();
  const terrace_status status =
    terrace_table_get(from, placed.data(), placed.size(), &found, failure->out());
  if (status == TERRACE_OK)
  {
    value->assign(found.data, found.len);
    terrace_value_release(&found);
  }
  return status;
}

/* Copies what the table keeps to where it lies once rows expire, durably. Holds `storing`. */
int Open_table::move_own(THD *thd, const terrace_table_options *wanted)
{
  Failure failure;
  if (find_number(wanted, &failure))
    return fail_of(failure, thd);
  for (const Bytes &key : {COUNTERS, LAYOUT, VALUES})
  {
    Bytes value, placed;
    const terrace_status status = get_own(key, &value, &failure);
    if (status != TERRACE_OK && status != TERRACE_NOT_FOUND)
      return fail_of(failure, thd);
    terrace_table *to = place_of(true, key, &placed, &failure);
    if (!to)
      return fail_of(failure, thd);
    const terrace_status copied =
      status == TERRACE_OK
        ? terrace_table_put(to, placed.data(), placed.size(), value.data(), value.size(),
                            TERRACE_DURABLE, failure.out())
        : terrace_table_delete(to, placed.data(), placed.size(), TERRACE_DURABLE, failure.out());
    if (copied != TERRACE_OK)
      return failure.handler_error(thd);
  }
  return 0;
}

/* Writes what is kept to the table itself, where that has not succeeded yet. Holds `storing`. */
int Open_table::write_own(THD *thd)
{
  int error = is_unwritten ? store(thd) : 0;
  if (!error && is_unwritten)
    error = put_own(thd, VALUES, record_of_values(), TERRACE_RELAXED);
  const Layout_ref now = layout();
  if (!error && is_unwritten && now)
    error = put_own(thd, LAYOUT, now->record(), TERRACE_DURABLE);
  if (!error && is_unwritten && is_marked)
    error = set_mark(thd, false);
  is_unwritten = error != 0;
  return error;
}

/* Whether rows get a shorter life. The library has times in microseconds. */
static bool is_shorter(const Bytes &ttl, const Bytes &before)
{
  return ttl != "none" && (before == "none" || strtoull(ttl.c_str(), nullptr, 10) <
                                                 strtoull(before.c_str(), nullptr, 10));
}

int Open_table::set_attributes(THD *thd, const ha_table_option_struct *attributes, bool is_durable)
{
  Failure failure;
  std::lock_guard<std::mutex> guard(storing);
  // An opening sets what the definition says after a failure.
  is_reconciled = false;
  terrace_table_options *now = terrace_table_get_options(table, failure.out());
  terrace_table_options *wanted = terrace_table_get_options(table, failure.out());
  terrace_string *of_table = terrace_table_name(table, failure.out());
  int error = now && wanted && of_table ? write_own(thd) : failure.handler_error(thd);
  if (!error)
    error = ::set_attributes(attributes, wanted);
  const Bytes before = option_of(now, "ttl");
  const bool is_left = !error && !is_durable && is_shorter(option_of(wanted, "ttl"), before);
  if (is_left &&
      terrace_table_options_set(wanted, "ttl", before.c_str(), failure.out()) != TERRACE_OK)
    error = failure.handler_error(thd);
  bool is_same = true;
  for (const char *name : {"ttl", "cold", "compression"})
    is_same = is_same && !error && option_of(now, name) == option_of(wanted, name);
  const bool will_expire = !error && option_of(wanted, "ttl") != "none";
  if (!error && !is_same)
  {
    // Rows that expire by a definition do not come back with the one that a power cut brings back.
    if (is_durable && my_sync_dir_by_file(("./" + name).c_str(), MYF(MY_WME)))
      error = my_errno;
    if (!error && will_expire != has_ttl_now)
      error = will_expire ? move_own(thd, wanted) : set_mark(thd, true);
    if (!error && terrace_database_set_table_options(database(), terrace_string_text(of_table),
                                                     wanted, failure.out()) != TERRACE_OK)
      error = failure.handler_error(thd);
    if (!error)
    {
      // What the table itself keeps does not expire from here on.
      is_unwritten = has_ttl_now && !will_expire;
      has_ttl_now = will_expire;
      error = write_own(thd);
    }
  }
  is_reconciled = !error && !is_left;
  terrace_string_free(of_table);
  terrace_table_options_free(now);
  terrace_table_options_free(wanted);
  return error;
}

int Open_table::reconcile(THD *thd, const ha_table_option_struct *attributes)
{
  if (is_reconciled || only_reads())
    return 0;
  // Two openings may do it, and the next one does it again where this one fails.
  return set_attributes(thd, attributes, true);
}

void Open_table::drop_own()
{
  std::lock_guard<std::mutex> guard(storing);
  // After a failure some bytes stay, under a tag that no other table gets.
  Failure failure;
  Bytes placed;
  if (is_marked)
    set_mark(nullptr, false);
  if (!has_ttl_now || !number)
    return;
  for (const Bytes &key : {COUNTERS, LAYOUT, VALUES})
    if (terrace_table *from = place_of(true, key, &placed, &failure))
      terrace_table_delete(from, placed.data(), placed.size(), TERRACE_DURABLE, failure.out());
}
