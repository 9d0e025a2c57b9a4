#include "waits.h"

#include <map>
#include <mutex>

/* The server exports it, and has it in no header. */
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

/* The most of a statement that is shown. */
static const size_t LONGEST_QUERY = 1024;

struct Noted
{
  THD *thd = nullptr;
  ulonglong blocker = 0;
};

static std::mutex lock;
static std::map<ulonglong, Noted> owners;

void note_owner(ulonglong transaction, THD *thd)
{
  std::lock_guard<std::mutex> guard(lock);
  owners[transaction].thd = thd;
}

void forget_owner(ulonglong transaction)
{
  std::lock_guard<std::mutex> guard(lock);
  owners.erase(transaction);
}

/* The lock keeps the other connection there. The server ends it later, on a thread of its own. */
void report_wait(void *, uint64_t waiter, uint64_t holder)
{
  std::lock_guard<std::mutex> guard(lock);
  const auto waiting = owners.find(waiter), found = owners.find(holder);
  if (waiting != owners.end())
    waiting->second.blocker = holder;
  thd_rpl_deadlock_check(current_thd, found == owners.end() ? nullptr : found->second.thd);
}

bool find_owner(ulonglong transaction, Owner *owner)
{
  std::lock_guard<std::mutex> guard(lock);
  const auto found = owners.find(transaction);
  if (found == owners.end())
    return false;
  char query[LONGEST_QUERY];
  const size_t length = thd_query_safe(found->second.thd, query, sizeof(query));
  *owner = {thd_get_thread_id(found->second.thd), Bytes(query, length), found->second.blocker};
  return true;
}
