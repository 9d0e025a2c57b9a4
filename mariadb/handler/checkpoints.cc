#include "checkpoints.h"
#include "engine.h"
#include "errors.h"
#include "mysqld.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

static std::mutex lock;
/* Ids of commits that the log has and the library has not; whether no connection is at them. */
static std::map<Bytes, bool> owed;
/* How many those are, for who must not wait for the lock. */
static std::atomic<size_t> owed_count{0};
/* Whether a connection has given one of them up. */
static std::atomic<bool> some_are_left{false};
/* Checkpoints that were asked for and not answered. */
static std::vector<void *> asked;

bool binary_log_is_durable() { return opt_bin_log && sync_binlog_period == 1; }

/* Commits what connections have given up. Whether nothing is owed any more. */
static bool pay()
{
  bool stays = false;
  for (auto at = owed.begin(); at != owed.end();)
  {
    Failure failure;
    const Bytes &id = at->first;
    const bool is_left = at->second;
    if (is_left && terrace_database_commit_prepared(terrace_db, id.data(), id.size(),
                                                    failure.out()) == TERRACE_OK)
      at = owed.erase(at);
    else
    {
      stays |= is_left;
      at++;
    }
  }
  some_are_left = stays;
  owed_count = owed.size();
  return owed.empty();
}

/* Answers what was asked. A failure leaves it: the server keeps its logs, and asks again. */
static void answer()
{
  if (asked.empty() || !pay())
    return;
  Failure failure;
  if (terrace_database_sync(terrace_db, failure.out()) != TERRACE_OK)
  {
    sql_print_error("Terrace: no checkpoint of the binary log: %s", failure.message());
    return;
  }
  for (void *cookie : asked)
    commit_checkpoint_notify_ha(cookie);
  asked.clear();
}

void checkpoint_requested(void *cookie)
{
  std::lock_guard<std::mutex> guard(lock);
  asked.push_back(cookie);
  answer();
}

void commit_is_owed(const Bytes &id)
{
  std::lock_guard<std::mutex> guard(lock);
  owed[id] = false;
  owed_count = owed.size();
}

bool some_commits_are_owed() { return owed_count != 0; }

void owed_commit_ended(const Bytes &id, bool is_done)
{
  std::lock_guard<std::mutex> guard(lock);
  if (!is_done)
  {
    owed[id] = some_are_left = true;
    return;
  }
  owed.erase(id);
  owed_count = owed.size();
  answer();
}

void commit_succeeded()
{
  if (!some_are_left)
    return;
  std::lock_guard<std::mutex> guard(lock);
  if (pay())
    answer();
}
