/*
  SHOW ENGINE TERRACE STATUS, and the variables of SHOW STATUS.
*/
#include "status.h"
#include "engine.h"
#include "errors.h"

#include <mutex>

/* Bytes with a unit that people read. */
static Bytes size_of(ulonglong bytes)
{
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  uint unit = 0;
  for (; value >= 1024 && unit + 1 < array_elements(units); unit++)
    value /= 1024;
  char text[32];
  snprintf(text, sizeof(text), unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

static Bytes number(ulonglong value) { return std::to_string(value); }

/* A part in a hundred. */
static Bytes percent(ulonglong part, ulonglong whole)
{
  return number(whole ? part * 100 / whole : 0) + " %";
}

static void append_transactions(Bytes *out)
{
  Failure failure;
  terrace_transaction_list *list = terrace_database_list_transactions(terrace_db, failure.out());
  const size_t count = terrace_transaction_list_len(list);
  *out += "TRANSACTIONS\n  " + number(count) + " are open\n";
  for (size_t i = 0; i < std::min<size_t>(count, 20); i++)
  {
    terrace_transaction_info one;
    if (terrace_transaction_list_at(list, i, &one, failure.out()) != TERRACE_OK)
      break;
    *out += "  transaction " + number(one.id) + ", open for " + number(one.age_ms / 1000) +
            " s: " + number(one.writes) + " keys written (" + size_of(one.memory + one.spilled) +
            "), " + number(one.locks) + " locks\n";
    if (one.waits_for)
      *out += Bytes("    waits for ") + one.waits_for + "\n";
  }
  if (count > 20)
    *out += "  the rest is in INFORMATION_SCHEMA.TERRACE_TRANSACTIONS\n";
  terrace_transaction_list_free(list);
}

/* In the order that InnoDB has. */
static Bytes status_text(const terrace_statistics &all, size_t keys, size_t ranges)
{
  Bytes text = Bytes("Terrace ") + terrace_version() + "\n";
  text += "BACKGROUND\n  " + number(all.drains) + " drains, " + number(all.compactions) +
          " compactions, " + number(all.background_failures) +
          " failures\n  writers were slowed down for " + number(all.throttled_ms) + " ms\n";
  append_transactions(&text);
  text += "LOCKS\n  " + number(keys) + " on keys, " + number(ranges) + " on ranges\n";
  text += "SNAPSHOTS\n  " + number(all.snapshots) + " are held";
  Failure failure;
  uint64_t age = 0;
  if (terrace_database_oldest_snapshot_age(terrace_db, &age, failure.out()) == TERRACE_OK)
    text += ", the oldest for " + number(age / 1000) + " s";
  text += "\nDISK\n  " + size_of(all.disk_file_bytes) + " of files, " +
          size_of(all.disk_extent_bytes) + " of them extents\n  since the start " +
          size_of(all.disk_written_bytes) + " written, " + size_of(all.disk_read_bytes) +
          " read in " + number(all.disk_reads) + " reads\n";
  text += "COMMITS\n  " + number(all.commit_groups) + " groups of " + number(all.commit_records) +
          " records, " + number(all.commit_syncs) + " syncs\n  the last visible one is " +
          number(all.visible) + ", the last durable one " + number(all.durable) + "\n";
  text += "REGION\n  " + size_of(all.pm_capacity) + ", of which " +
          percent(all.pm_zones_used, all.pm_zones) + " taken by " + number(all.pm_live_records) +
          " records\n";
  text += "BLOCK CACHE\n  " + size_of(all.cache_used) + " of " + size_of(all.cache_capacity) +
          ", hit rate " + percent(all.cache_hits, all.cache_hits + all.cache_misses) + "\n";
  text += "MEMORY\n  " + size_of(all.memory_held) + " held, " +
          (all.memory_limit ? "the limit is " + size_of(all.memory_limit) : Bytes("no limit")) +
          "\n";
  return text;
}

bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS)
    return false;
  Failure failure;
  terrace_statistics all;
  size_t keys = 0, ranges = 0;
  if (terrace_database_get_statistics(terrace_db, &all, sizeof(all), failure.out()) ||
      terrace_database_locks_held(terrace_db, &keys, &ranges, failure.out()))
    return true;
  const Bytes text = status_text(all, keys, ranges);
  return print(thd, STRING_WITH_LEN("TERRACE"), STRING_WITH_LEN(""), text.data(), text.size());
}

/* What the variables point to. The server reads it while it holds its own lock of variables. */
static terrace_statistics shown;

#define TERRACE_NUMBER(name) {#name, &shown.name, SHOW_ULONGLONG}

static st_mysql_show_var numbers[] = {
  TERRACE_NUMBER(visible),            TERRACE_NUMBER(durable),
  TERRACE_NUMBER(commit_groups),      TERRACE_NUMBER(commit_records),
  TERRACE_NUMBER(commit_syncs),       TERRACE_NUMBER(throttled_ms),
  TERRACE_NUMBER(pm_capacity),        TERRACE_NUMBER(pm_zones),
  TERRACE_NUMBER(pm_zones_used),      TERRACE_NUMBER(pm_live_records),
  TERRACE_NUMBER(disk_file_bytes),    TERRACE_NUMBER(disk_extent_bytes),
  TERRACE_NUMBER(disk_written_bytes), TERRACE_NUMBER(disk_read_bytes),
  TERRACE_NUMBER(disk_reads),         TERRACE_NUMBER(cache_capacity),
  TERRACE_NUMBER(cache_used),         TERRACE_NUMBER(cache_hits),
  TERRACE_NUMBER(cache_misses),       TERRACE_NUMBER(memory_limit),
  TERRACE_NUMBER(memory_held),        TERRACE_NUMBER(drains),
  TERRACE_NUMBER(compactions),        TERRACE_NUMBER(background_failures),
  TERRACE_NUMBER(snapshots),          TERRACE_NUMBER(tables),
  {nullptr, nullptr, SHOW_LONG}};

static int show_numbers(MYSQL_THD, st_mysql_show_var *variable, void *, system_status_var *,
                        enum_var_type)
{
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> guard(one_at_a_time);
  Failure failure;
  terrace_statistics now;
  // The last numbers stay where there are no new ones.
  if (terrace_db &&
      terrace_database_get_statistics(terrace_db, &now, sizeof(now), failure.out()) == TERRACE_OK)
    shown = now;
  variable->type = SHOW_ARRAY;
  variable->value = numbers;
  return 0;
}

st_mysql_show_var engine_status_variables[] = {
  {"Terrace", reinterpret_cast<void *>(show_numbers), SHOW_FUNC}, {nullptr, nullptr, SHOW_LONG}};
