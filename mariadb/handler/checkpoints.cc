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

/*
  Answers what was asked. A failure leaves it: the server keeps its logs, and asks again. It gives
  the lock back for the sync, because commits take the lock, and the server's lock of their order
  with it. What is owed from then on is in a later log than those asked for.
*/
static void answer(std::unique_lock<std::mutex> *held)
{
  if (asked.empty() || !pay())
    return;
  std::vector<void *> now;
  now.swap(asked);
  held->unlock();
  Failure failure;
  if (terrace_database_sync(terrace_db, failure.out()) == TERRACE_OK)
  {
    for (void *cookie : now)
      commit_checkpoint_notify_ha(cookie);
    return;
  }
  sql_print_error("Terrace: no checkpoint of the binary log: %s", failure.message());
  held->lock();
  asked.insert(asked.begin(), now.begin(), now.end());
}

void checkpoint_requested(void *cookie)
{
  std::unique_lock<std::mutex> held(lock);
  asked.push_back(cookie);
  answer(&held);
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
  std::unique_lock<std::mutex> held(lock);
  if (!is_done)
  {
    owed[id] = some_are_left = true;
    return;
  }
  owed.erase(id);
  owed_count = owed.size();
  answer(&held);
}

void commit_succeeded()
{
  if (!some_are_left)
    return;
  std::unique_lock<std::mutex> held(lock);
  if (pay())
    answer(&held);
}
