#include "durability.h"
#include "engine.h"
#include "yield.h"

#include <condition_variable>
#include <memory>
#include <mutex>

/* A commit that is waited for. Who waits may have given up when it ends. */
struct Awaited
{
  std::mutex lock;
  std::condition_variable changed;
  bool has_ended = false;
};

typedef std::shared_ptr<Awaited> Awaited_ref;

/* The library calls it once. */
static void commit_ended(void *context, terrace_status, const terrace_error *)
{
  const std::unique_ptr<Awaited_ref> awaited(static_cast<Awaited_ref *>(context));
  {
    std::lock_guard<std::mutex> guard((*awaited)->lock);
    (*awaited)->has_ended = true;
  }
  (*awaited)->changed.notify_all();
}

/* How often a wait looks for a kill. */
static const std::chrono::milliseconds LOOK(20);

bool wait_for_remote(THD *thd, const terrace_pending *pending, terrace_status *status,
                     Failure *failure)
{
  const Awaited_ref awaited = std::make_shared<Awaited>();
  Awaited_ref *context = new Awaited_ref(awaited);
  *status = terrace_pending_on_end(pending, commit_ended, context, failure->out());
  if (*status != TERRACE_OK)
  {
    delete context;
    return true;
  }
  {
    std::unique_lock<std::mutex> guard(awaited->lock);
    while (!awaited->has_ended)
    {
      if (thd && thd_kill_level(thd) != THD_IS_NOT_KILLED)
        return false;
      awaited->changed.wait_for(guard, LOOK);
    }
  }
  *status = terrace_pending_wait(pending, failure->out());
  return true;
}

int tell_not_acknowledged()
{
  my_printf_error(ER_ERROR_DURING_COMMIT,
                  "Terrace: it is committed here, and the store may lack it: the wait was ended",
                  MYF(0));
  return HA_ERR_ABORTED_BY_USER;
}

/* The library's table for commits that say nothing. */
static const char MARKS[] = "#terrace/marks";

/* A commit behind all others: the store has those before it. NULL after an error. */
static terrace_pending *enqueue_mark(Failure *failure)
{
  terrace_table *marks = terrace_database_table(terrace_db, MARKS, failure->out());
  if (!marks)
    return nullptr;
  terrace_batch *batch = terrace_batch_new();
  terrace_pending *pending = nullptr;
  if (terrace_batch_put(batch, marks, "", 0, "", 0, failure->out()) == TERRACE_OK)
    pending = terrace_database_enqueue(terrace_db, batch, TERRACE_REMOTE, failure->out());
  terrace_batch_free(batch);
  terrace_table_free(marks);
  return pending;
}

int wait_for_store(THD *thd)
{
  Failure failure;
  terrace_status status = TERRACE_OK;
  terrace_pending *mark = enqueue_mark(&failure);
  const bool has_ended = mark && wait_for_remote(thd, mark, &status, &failure);
  terrace_pending_free(mark);
  if (mark && !has_ended)
    return tell_not_acknowledged();
  if (mark && status == TERRACE_OK)
    return 0;
  my_printf_error(ER_ERROR_DURING_COMMIT,
                  "Terrace: it is committed here, and the store may lack it: %s", MYF(0),
                  failure.message());
  return HA_ERR_TERRACE;
}
