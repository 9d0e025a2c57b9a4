#include "waits.h"

#include <map>
#include <mutex>

/* The server exports it, and has it in no header. */
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

static std::mutex lock;
static std::map<ulonglong, THD *> owners;

void note_owner(ulonglong transaction, THD *thd)
{
  std::lock_guard<std::mutex> guard(lock);
  owners[transaction] = thd;
}

void forget_owner(ulonglong transaction)
{
  std::lock_guard<std::mutex> guard(lock);
  owners.erase(transaction);
}

/* The lock keeps the other connection there. The server ends it later, on a thread of its own. */
void report_wait(void *, uint64_t, uint64_t holder)
{
  std::lock_guard<std::mutex> guard(lock);
  const auto found = owners.find(holder);
  thd_rpl_deadlock_check(current_thd, found == owners.end() ? nullptr : found->second);
}
