#include "checkpoints.h"
#include "engine.h"
#include "errors.h"
#include "mysqld.h"
#include "role.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

/* What is to be done with a prepared transaction, and who is at it: nobody, a client, or pay(). */
struct Verdict
{
  bool to_commit, is_left, is_being_paid;
};

static std::mutex lock;
/* By the ids of transactions: verdicts under way, and what connections have given up. */
static std::map<Bytes, Verdict> owed;
/* A thread carries out what connections have given up. */
static bool is_paying = false;
/* It has ended with one of them. */
static std::condition_variable paid;
/* How many commits are owed, for who must not wait for the lock. */
static std::atomic<size_t> owed_commits{0};
/* Whether a connection has given one of them up. */
static std::atomic<bool> some_are_left{false};
/* Checkpoints that were asked for and not answered. */
static std::vector<void *> asked;

bool binary_log_is_durable() { return opt_bin_log && sync_binlog_period == 1; }

/* The library refuses the id of a transaction that is not prepared any more. */
bool is_done(terrace_status status) { return status == TERRACE_OK || status == TERRACE_INVALID; }

/* How long a verdict waits for what is short, until it is tried again. */
static const ulong RETRY_MICROSECONDS = 50000;

static terrace_status try_once(const Bytes &id, bool to_commit, Failure *failure)
{
  return to_commit
           ? terrace_database_commit_prepared(database(), id.data(), id.size(), failure->out())
           : terrace_database_roll_back_prepared(database(), id.data(), id.size(), failure->out());
}

/* Whether a failure may pass. A database that has stopped makes nothing durable any more. */
static bool is_passing(terrace_status status)
{
  Failure failure;
  return status == TERRACE_FULL ||
         (status == TERRACE_UNAVAILABLE &&
          terrace_database_sync(database(), failure.out()) == TERRACE_OK);
}

terrace_status carry_out(THD *thd, const Bytes &id, bool to_commit, Failure *failure)
{
  while (to_commit && thd && thd_kill_level(thd) == THD_IS_NOT_KILLED)
  {
    Failure of_attempt;
    const terrace_status status = try_once(id, to_commit, &of_attempt);
    if (status == TERRACE_OK)
      return status;
    if (!is_passing(status))
      break;
    my_sleep(RETRY_MICROSECONDS);
  }
  return try_once(id, to_commit, failure);
}

/* Has the lock. */
static void count_owed()
{
  size_t commits = 0;
  bool is_left = false;
  for (const auto &one : owed)
  {
    commits += one.second.to_commit;
    is_left |= one.second.is_left;
  }
  owed_commits = commits;
  some_are_left = is_left;
}

/*
  Carries out what connections have given up, one thread at a time. It gives the lock back for the
  calls, which sync and wait: commits take the lock, and the server's lock of their order with it.
  A client that says one of them again meanwhile waits for its call. So nobody begins another
  transaction by an id that is about to be resolved. Whether no commit is owed any more.
*/
static bool pay(std::unique_lock<std::mutex> *held)
{
  if (is_paying || !some_are_left)
    return owed_commits == 0;
  std::vector<Bytes> ids;
  for (const auto &one : owed)
    if (one.second.is_left)
      ids.push_back(one.first);
  is_paying = true;
  for (const Bytes &id : ids)
  {
    const auto at = owed.find(id);
    // A client has said it again.
    if (at == owed.end() || !at->second.is_left)
      continue;
    const bool to_commit = at->second.to_commit;
    at->second = {to_commit, false, true};
    held->unlock();
    Failure failure;
    const bool is_over = is_done(try_once(id, to_commit, &failure));
    held->lock();
    if (is_over)
      owed.erase(id);
    else
      owed[id] = {to_commit, true, false};
    paid.notify_all();
  }
  is_paying = false;
  count_owed();
  return owed_commits == 0;
}

/*
  Answers what was asked. A failure leaves it: the server keeps its logs, and asks again. It gives
  the lock back for the sync, because commits take the lock, and the server's lock of their order
  with it. What is owed from then on is in a later log than those asked for.
*/
static void answer(std::unique_lock<std::mutex> *held)
{
  // Where nothing can be resolved any more, no log is needed for that.
  const bool is_over = only_reads();
  if ((!is_over && !pay(held)) || asked.empty())
    return;
  std::vector<void *> now;
  now.swap(asked);
  held->unlock();
  Failure failure;
  if (is_over || terrace_database_sync(database(), failure.out()) == TERRACE_OK)
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

bool verdict_begins(const Bytes &id, bool to_commit)
{
  std::unique_lock<std::mutex> held(lock);
  auto at = owed.find(id);
  for (; at != owed.end() && at->second.is_being_paid; at = owed.find(id))
    paid.wait(held);
  if (at != owed.end() && at->second.to_commit != to_commit)
    return false;
  owed[id] = {to_commit, false, false};
  count_owed();
  return true;
}

bool some_commits_are_owed() { return owed_commits != 0; }

void verdict_ended(const Bytes &id, bool has_succeeded)
{
  std::unique_lock<std::mutex> held(lock);
  if (!has_succeeded)
  {
    owed[id].is_left = true;
    count_owed();
    return;
  }
  owed.erase(id);
  count_owed();
  answer(&held);
}

void commit_succeeded()
{
  if (!some_are_left)
    return;
  std::unique_lock<std::mutex> held(lock);
  answer(&held);
}
