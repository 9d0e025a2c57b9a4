/*
  SHOW ENGINE TERRACE STATUS, and the variables of SHOW STATUS.
*/
#include "status.h"
#include "engine.h"
#include "errors.h"

#include <cmath>

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
  terrace_transaction_list *list = terrace_database_list_transactions(database(), failure.out());
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
  if (terrace_database_oldest_snapshot_age(database(), &age, failure.out()) == TERRACE_OK)
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
  if (terrace_database_get_statistics(database(), &all, sizeof(all), failure.out()) ||
      terrace_database_locks_held(database(), &keys, &ranges, failure.out()))
    return true;
  const Bytes text = status_text(all, keys, ranges);
  return print(thd, STRING_WITH_LEN("TERRACE"), STRING_WITH_LEN(""), text.data(), text.size());
}

/*
  The name of a variable for a metric: without `terrace_` and `_total`, and with the values of its
  labels. Empty for a bucket of a histogram.
*/
static Bytes variable_of(const Bytes &metric)
{
  if (metric.find("{le=") != Bytes::npos)
    return "";
  const size_t begin = strlen("terrace_");
  Bytes name = metric.substr(begin, std::min(metric.find('{'), metric.size()) - begin);
  const size_t total = name.rfind("_total");
  if (total != Bytes::npos && total + strlen("_total") == name.size())
    name.resize(total);
  for (size_t at = metric.find('"'); at != Bytes::npos;)
  {
    const size_t end = metric.find('"', at + 1);
    if (end == Bytes::npos)
      break;
    name += '_' + metric.substr(at + 1, end - at - 1);
    at = metric.find('"', end + 1);
  }
  return name;
}

std::map<Bytes, double> all_metrics()
{
  std::map<Bytes, double> values;
  if (!database())
    return values;
  Failure failure;
  size_t keys, ranges;
  if (!terrace_database_locks_held(database(), &keys, &ranges, failure.out()))
    values = {{"locks_on_keys", double(keys)}, {"locks_on_ranges", double(ranges)}};
  terrace_metrics *metrics = terrace_database_metrics(database(), failure.out());
  double value;
  for (size_t at = 0; const char *name = terrace_metrics_at(metrics, at, &value); at++)
    values[variable_of(name)] += value;
  terrace_metrics_free(metrics);
  values.erase("");
  return values;
}

/*
  The variables are in the statement's memory. A function in its WHERE may ask once more, while the
  server reads them.
*/
static int show_metrics(MYSQL_THD thd, st_mysql_show_var *variable, void *, system_status_var *,
                        enum_var_type)
{
  const std::map<Bytes, double> values = all_metrics();
  const size_t size = (values.size() + 1) * sizeof(st_mysql_show_var);
  auto *const shown = static_cast<st_mysql_show_var *>(thd_alloc(thd, size));
  static st_mysql_show_var nothing[] = {{nullptr, nullptr, SHOW_LONG}};
  variable->type = SHOW_ARRAY;
  variable->value = shown ? shown : nothing;
  if (!shown)
    return 1;
  st_mysql_show_var *next = shown;
  for (auto &one : values)
  {
    char value[64];
    snprintf(value, sizeof(value), one.second == floor(one.second) ? "%.0f" : "%.9f", one.second);
    *next++ = {thd_strdup(thd, one.first.c_str()), thd_strdup(thd, value), SHOW_CHAR};
  }
  *next = {nullptr, nullptr, SHOW_LONG};
  return 0;
}

st_mysql_show_var engine_status_variables[] = {
  {"Terrace", reinterpret_cast<void *>(show_metrics), SHOW_FUNC}, {nullptr, nullptr, SHOW_LONG}};
