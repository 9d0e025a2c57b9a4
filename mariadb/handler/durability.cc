#include "durability.h"
#include "engine.h"
#include "role.h"
#include "trx.h"
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

/* What lists of connections show of a wait. */
class Shown_wait
{
public:
  explicit Shown_wait(THD *thd_arg)
    : thd(thd_arg), before(thd ? thd_proc_info(thd, "Waiting for the shared store") : nullptr)
  {
  }
  ~Shown_wait()
  {
    if (thd)
      thd_proc_info(thd, before);
  }
  Shown_wait(const Shown_wait &) = delete;
  Shown_wait &operator=(const Shown_wait &) = delete;

private:
  THD *thd;
  const char *before;
};

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
    const Shown_wait shown(thd);
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

static const char *const TEXTS[] = {"it is committed here, and the store may lack it",
                                    "it is rolled back here, and the store may lack that",
                                    "it is rolled back, because the store may lack it",
                                    "the sequence has gone on here, and the store may lack that"};

static void tell_why(Done_here done, const char *why)
{
  my_printf_error(ER_ERROR_DURING_COMMIT, "Terrace: %s: %s", MYF(0), TEXTS[done], why);
}

int tell_not_acknowledged(Done_here done)
{
  tell_why(done, "the wait was ended");
  return HA_ERR_ABORTED_BY_USER;
}

/* The library's table for commits that say nothing. */
static const char MARKS[] = "#terrace/marks";

Store_mark::Store_mark()
{
  terrace_table *marks = terrace_database_table(database(), MARKS, failure.out());
  if (!marks)
    return;
  terrace_batch *batch = terrace_batch_new();
  if (terrace_batch_put(batch, marks, "", 0, "", 0, failure.out()) == TERRACE_OK)
    pending = terrace_database_enqueue(database(), batch, TERRACE_REMOTE, failure.out());
  terrace_batch_free(batch);
  terrace_table_free(marks);
}

int Store_mark::wait(THD *thd, Done_here done)
{
  terrace_status status = TERRACE_OK;
  if (pending && !wait_for_remote(thd, pending, &status, &failure))
    return tell_not_acknowledged(done);
  if (pending && status == TERRACE_OK)
    return 0;
  tell_why(done, failure.message());
  return HA_ERR_TERRACE;
}

/* Whether a statement makes a table, or another copy of one. It commits nothing else then. */
static bool makes_tables(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_CREATE_TABLE:
  case SQLCOM_CREATE_SEQUENCE:
  case SQLCOM_ALTER_SEQUENCE:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    break;
  default:
    if (!copies_tables(thd))
      return false;
  }
  // That of a temporary table may go on in the transaction.
  return !thd->lex->tmp_table();
}

uint wanted_durability(THD *thd)
{
  // It is opened without the store.
  if (only_reads())
    return TERRACE_RELAXED;
  const uint of_session = session_durability(thd);
  // Nobody is answered by a thread of replication, which STOP SLAVE and a shutdown wait for. A table
  // whose commit fails is dropped, and the binary log has it by then.
  const bool waits = !thd->slave_thread && !makes_tables(thd);
  return of_session == TERRACE_REMOTE && !waits ? uint(TERRACE_DURABLE) : of_session;
}
