#include "trx.h"
#include "checkpoints.h"
#include "durability.h"
#include "engine.h"
#include "ha_terrace.h"
#include "key_codec.h"
#include "role.h"
#include "waits.h"
#include "yield.h"

#include <algorithm>

/* Counts changes of layouts, so that views can be told from them. */
static std::atomic<ulonglong> moments{1};

ulonglong Trx::next_moment() { return ++moments; }

/* The number of the last commit that got its place in the order of the binary log. */
static std::atomic<ulonglong> last_in_order{0};

bool copies_tables(THD *thd)
{
  switch (thd_sql_command(thd))
  {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
    return true;
  default:
    return false;
  }
}

static bool is_autocommit(THD *thd)
{
  return !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

Trx *Trx::existing(THD *thd) { return static_cast<Trx *>(thd_get_ha_data(thd, terrace_hton)); }

Trx *Trx::of(THD *thd)
{
  Trx *trx = existing(thd);
  if (!trx)
  {
    trx = new Trx(thd);
    thd_set_ha_data(thd, terrace_hton, trx);
  }
  return trx;
}

void Trx::note_made(const Bytes &table)
{
  made = table;
  made_by = thd->query_id;
}

bool Trx::has_made(const Bytes &table) const
{
  return made == table && made_by == ulonglong(thd->query_id);
}

Trx::~Trx()
{
  end();
  terrace_transaction_options_free(options);
}

void Trx::forget()
{
  terrace_transaction_free(transaction);
  transaction = nullptr;
  terrace_pending_free(pending);
  pending = nullptr;
  prepared.clear();
  has_view = statement_began = wrote = locks = is_owed = false;
  savepoints.clear();
  statement_savepoint = 0;
  next_savepoint = 1;
  ranges_locked.clear();
  range_bytes = due = 0;
  whole.clear();
  history.clear();
}

/*
  It is over. What XA has prepared may go on without this connection, and then keeps the tables that it
  has written to: the next start drops them.
*/
void Trx::end()
{
  forget();
  if (number)
    forget_owner(number);
  number = 0;
  for (const Bytes &name : dropped)
    if (drop_library_table(name))
      sql_print_warning("Terrace: temporary table %s is dropped at the next start", name.c_str());
  dropped.clear();
}

int Trx::set_options(const Settings &wanted)
{
  if (options && settings == wanted)
    return 0;
  terrace_transaction_options_free(options);
  options = terrace_transaction_options_new();
  std::string wait = wanted.wait_ms ? std::to_string(wanted.wait_ms) + "ms" : "no_wait";
  std::string limit = std::to_string(wanted.lock_limit);
  const char *of_all[][2] = {
    {"isolation", wanted.serializable ? "serializable" : "read_committed"},
    {"durability", wanted.durability == TERRACE_RELAXED ? "relaxed" : "durable"},
    {"lock_wait", wait.c_str()},
    {"lock_limit", limit.c_str()},
  };
  Failure failure;
  for (auto &one : of_all)
    if (terrace_transaction_options_set(options, one[0], one[1], failure.out()) != TERRACE_OK)
    {
      terrace_transaction_options_free(options);
      options = nullptr;
      return fail(failure);
    }
  settings = wanted;
  return 0;
}

/* SERIALIZABLE turns into a level with a view where only one plain SELECT is to be read. */
int Trx::begin()
{
  ulong level = thd_tx_isolation(thd);
  serializable = level == ISO_SERIALIZABLE && !(single_read && is_autocommit(thd)) && !only_reads();
  // A copy of a table waits for rows of transactions that XA has prepared, also for new ones.
  view_of_statement = level < ISO_REPEATABLE_READ && !copies_tables(thd);
  gaps = !view_of_statement && !serializable;
  told_wait_ms = wait_ms;
  durability = wanted_durability(thd);
  // No call of the library waits for the store: a kill could not end it.
  const uint of_options = durability == TERRACE_REMOTE ? uint(TERRACE_DURABLE) : durability;
  int error = set_options({serializable, of_options, wait_ms, session_lock_limit(thd)});
  if (error)
    return error;
  Failure failure;
  // Of an earlier one at worst: then no table is of it.
  of_generation = generation();
  terrace_transaction *begun = terrace_database_begin(database(), options, failure.out());
  if (!begun)
    return fail(failure);
  transaction = begun;
  number = terrace_transaction_id(transaction);
  note_owner(number, thd);
  return 0;
}

/*
  A connection that is reset leaves what XA has prepared in it to others, and calls nothing here. Its
  own XID is another one then.
*/
void Trx::forget_detached()
{
  XID of_prepared, now;
  if (prepared.empty() || !xid_of_id(prepared.data(), prepared.size(), &of_prepared) ||
      of_prepared.get_my_xid())
    return;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&now));
  if (!now.eq(&of_prepared))
    end();
}

/*
  Takes back what a kill has asked of the library, once the server has taken the kill back: it does so
  under the lock that it kills under, so that kill has asked by now. A kill that comes here finds no
  call under way, and asks nothing.
*/
void Trx::allow_waits()
{
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED || !is_ended.exchange(false) || !transaction)
    return;
  Failure failure;
  terrace_transaction_allow_waits(transaction, failure.out());
}

int Trx::begin_statement(bool single_read_arg, bool has_locks)
{
  forget_detached();
  allow_waits();
  if (!statement_began)
  {
    single_read = single_read_arg;
    if (transaction && view_of_statement)
      has_view = false;
  }
  // NOWAIT and WAIT of a statement are variables, which the server sets for it alone.
  wait_ms = ulonglong(session_lock_wait_seconds(thd)) * 1000;
  if (!transaction)
  {
    if (pending || !prepared.empty())
      return fail_with("the transaction of this connection is prepared; commit it or roll it back");
    int error = begin();
    if (error)
      return error;
  }
  statement_began = true;
  // The statements behind LOCK TABLES lock rows, and that does not.
  locks |= has_locks && thd_sql_command(thd) != SQLCOM_LOCK_TABLES;
  if (!is_autocommit(thd))
    trans_register_ha(thd, true, terrace_hton, 0);
  trans_register_ha(thd, false, terrace_hton, 0);
  return 0;
}

int Trx::before_plain_read()
{
  if (has_view || serializable)
    return 0;
  Failure failure;
  view_moment = moments;
  if (terrace_transaction_take_view(transaction, failure.out()) != TERRACE_OK)
    return fail(failure);
  has_view = true;
  seen.clear();
  return 0;
}

bool Trx::sees(const Bytes &table, const Stamp &stamp)
{
  const auto known = seen.find(table);
  if (stamp.generation != of_generation)
    return false;
  if (known != seen.end())
    return known->second == stamp.of_definition;
  if (!has_stamp(table, stamp, transaction))
    return false;
  seen[table] = stamp.of_definition;
  return true;
}

int Trx::drop_view()
{
  Failure failure;
  has_view = false;
  return terrace_transaction_drop_view(transaction, failure.out()) == TERRACE_OK ? 0 : fail(failure);
}

int Trx::before_write(const LEX_CSTRING &table)
{
  wrote = true;
  last_written.assign(table.str, table.length);
  return mark_statement();
}

/* Sets the place that the statement rolls back to, unless its end is the transaction's. */
int Trx::mark_statement()
{
  if (statement_savepoint || is_autocommit(thd))
    return 0;
  YIELD("savepoint");
  return push_savepoint(&statement_savepoint);
}

/* It fails for a transaction that has ended, as the call that follows it does. */
void Trx::set_lock_wait(ulonglong wait)
{
  if (wait == told_wait_ms)
    return;
  Failure failure;
  YIELD("wait");
  if (terrace_transaction_set_lock_wait(transaction, wait ? wait : TERRACE_NO_WAIT,
                                        failure.out()) == TERRACE_OK)
    told_wait_ms = wait;
}

/*
  The error of a commit. The server itself says 1180 with a number, behind the error that is here
  first, which is the one that the client gets.
*/
int Trx::fail_at_commit(const Failure &failure) const
{
  const int error = failure.handler_error(thd);
  switch (error)
  {
  case HA_ERR_RECORD_FILE_FULL:
    my_error(ER_RECORD_FILE_FULL, MYF(0), last_written.c_str());
    break;
  case HA_ERR_LOCK_DEADLOCK:
    my_error(ER_LOCK_DEADLOCK, MYF(0));
    break;
  case HA_ERR_LOCK_WAIT_TIMEOUT:
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
    break;
  case HA_ERR_TERRACE:
    my_printf_error(ER_ERROR_DURING_COMMIT, "Terrace: %s", MYF(0), take_message().c_str());
    break;
  default:
    break;
  }
  return error;
}

bool Trx::is_end_of_all(bool all) const { return all || is_autocommit(thd); }

int Trx::commit(bool all)
{
  Failure failure;
  linked.close();
  if (!is_end_of_all(all))
  {
    statement_began = false;
    return statement_savepoint ? release_from(place_of(statement_savepoint)) : 0;
  }
  forget_detached();
  int error = 0;
  if (pending)
    error = commit_pending();
  else if (!prepared.empty())
    error = commit_prepared();
  else if (transaction)
    error = commit_alone();
  if (!error)
    commit_succeeded();
  end();
  return error;
}

/* Waits for what commit_ordered() or commit_alone() has enqueued. */
int Trx::commit_pending()
{
  Failure failure;
  YIELD("commit");
  terrace_status status;
  if (durability != TERRACE_REMOTE)
    status = terrace_pending_wait(pending, failure.out());
  else if (!wait_for_remote(thd, pending, &status, &failure))
    return tell_not_acknowledged(IS_COMMITTED);
  return status == TERRACE_OK ? 0 : fail_at_commit(failure);
}

/* The binary log has an XA COMMIT by now, without a place in the order here. */
int Trx::commit_prepared()
{
  Failure failure;
  if (!is_owed)
    verdict_begins(prepared, true);
  // Replicas have it too, so an error would be wrong: it waits for space until it is killed.
  YIELD("verdict");
  const terrace_status status = carry_out(thd, prepared, true, &failure);
  verdict_ended(prepared, status == TERRACE_OK);
  if (status != TERRACE_OK)
    return fail_at_commit(failure);
  return durability == TERRACE_REMOTE ? wait_for_store(thd, IS_COMMITTED) : 0;
}

/* A commit without a prepare. It answers for rows that it has locked, though it writes nothing. */
int Trx::commit_alone()
{
  Failure failure;
  if (durability != TERRACE_REMOTE || !may_hold_locks())
    return terrace_transaction_commit(transaction, failure.out()) == TERRACE_OK
             ? 0
             : fail_at_commit(failure);
  pending = terrace_transaction_enqueue(transaction, failure.out());
  if (!pending)
    return fail_at_commit(failure);
  // Before the wait for this disk, so that both are synced at once.
  Store_mark mark;
  if (terrace_pending_wait(pending, failure.out()) != TERRACE_OK)
    return fail_at_commit(failure);
  return mark.wait(thd, IS_COMMITTED);
}

int Trx::rollback(bool all)
{
  Failure failure;
  linked.close();
  if (!is_end_of_all(all))
  {
    statement_began = false;
    if (!statement_savepoint)
      return 0;
    const size_t place = place_of(statement_savepoint);
    if (undo_to(place, &failure) == TERRACE_OK)
      return release_from(place);
    statement_savepoint = 0;
    // After a deadlock there is nothing to roll back: the library has done it.
    if (failure.status() == TERRACE_CLOSED)
      return 0;
    // What the statement has written stays, so the transaction must not commit.
    thd->mark_transaction_to_rollback(true);
    return fail(failure);
  }
  forget_detached();
  int error = 0;
  if (is_owed)
    verdict_ended(prepared, false);
  else if (!prepared.empty())
  {
    // Its locks stay until the library has rolled it back.
    verdict_begins(prepared, false);
    const terrace_status status = carry_out(thd, prepared, false, &failure);
    verdict_ended(prepared, status == TERRACE_OK);
    error = status == TERRACE_OK ? 0 : fail(failure);
    if (!error && durability == TERRACE_REMOTE && thd_sql_command(thd) == SQLCOM_XA_ROLLBACK)
      error = wait_for_store(thd, IS_ROLLED_BACK);
  }
  end();
  return error;
}

/* The store has to have what XA prepares. The binary log has the rest, or it is lost with this machine. */
int Trx::prepare(bool all)
{
  linked.close();
  if (!is_end_of_all(all))
    return commit(false);
  if (!transaction)
    return 0;
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  Bytes id = id_of_xid(xid);
  Failure failure;
  terrace_status status = terrace_transaction_prepare(transaction, id.data(), id.size(),
                                                      failure.out());
  int error = status == TERRACE_OK ? 0 : fail_at_commit(failure);
  if (!error && durability == TERRACE_REMOTE && thd_sql_command(thd) == SQLCOM_XA_PREPARE)
    error = wait_for_store(thd, WAS_PREPARED);
  if (error)
  {
    // It may be prepared here.
    Failure of_rollback;
    if ((status == TERRACE_OK || status == TERRACE_UNKNOWN_OUTCOME) && verdict_begins(id, false))
      verdict_ended(id, carry_out(thd, id, false, &of_rollback) == TERRACE_OK);
    end();
    return error;
  }
  forget();
  prepared = id;
  log_was_durable = binary_log_is_durable();
  return 0;
}

void Trx::commit_ordered(bool all)
{
  if (!is_end_of_all(all) || prepared.empty())
    return;
  Failure failure;
  YIELD("order");
  // SET GLOBAL sync_binlog may come between the write of the log and this.
  const bool needs_no_sync = log_was_durable && binary_log_is_durable();
  const uint wanted =
    durability == TERRACE_DURABLE && needs_no_sync ? uint(TERRACE_RELAXED) : durability;
  pending = terrace_database_enqueue_prepared(database(), prepared.data(), prepared.size(), nullptr,
                                              0, wanted, failure.out());
  if (pending)
  {
    // The server holds its lock of the order here, and where it takes consistent snapshots.
    last_in_order = terrace_pending_number(pending);
    return;
  }
  // It is still prepared then, and commit() tries again.
  sql_print_warning("Terrace: a commit in the order of the binary log failed: %s",
                    failure.message());
  is_owed = true;
  verdict_begins(prepared, true);
}

int Trx::push_savepoint(ulonglong *number)
{
  Failure failure;
  const ulonglong next = next_savepoint++;
  if (terrace_transaction_set_savepoint(transaction, std::to_string(next).c_str(), failure.out()) !=
      TERRACE_OK)
    return fail(failure);
  savepoints.push_back({next, false});
  *number = next;
  return 0;
}

/* Where a savepoint lies; behind the last one if there is none of the number. */
size_t Trx::place_of(ulonglong number) const
{
  for (size_t place = savepoints.size(); place > 0; place--)
    if (savepoints[place - 1].number == number)
      return place - 1;
  return savepoints.size();
}

/* The library has dropped all savepoints but the first ones. */
void Trx::cut(size_t length)
{
  savepoints.resize(std::min(length, savepoints.size()));
  if (place_of(statement_savepoint) == savepoints.size())
    statement_savepoint = 0;
}

/* Undoes what was written since a savepoint, and drops those behind it. */
terrace_status Trx::undo_to(size_t place, Failure *failure)
{
  const ulonglong number = place < savepoints.size() ? savepoints[place].number : 0;
  const terrace_status status = terrace_transaction_roll_back_to(
    transaction, std::to_string(number).c_str(), failure->out());
  if (status == TERRACE_OK)
    cut(place + 1);
  return status;
}

/* Drops a savepoint, those behind it, and the released ones right before it. */
int Trx::release_from(size_t place)
{
  while (place > 0 && savepoints[place - 1].is_released)
    place--;
  const std::string name = std::to_string(savepoints[place].number);
  cut(place);
  Failure failure;
  return terrace_transaction_release_savepoint(transaction, name.c_str(), failure.out()) ==
             TERRACE_OK
           ? 0
           : fail(failure);
}

int Trx::set_savepoint(ulonglong *number)
{
  *number = 0;
  if (!transaction)
    return 0;
  // The end of a trigger drops its savepoints, and must not drop the one of the statement.
  const int error = thd->in_sub_stmt ? mark_statement() : 0;
  return error ? error : push_savepoint(number);
}

int Trx::roll_back_to(ulonglong number)
{
  if (!transaction)
    return 0;
  Failure failure;
  return undo_to(place_of(number), &failure) == TERRACE_OK ? 0 : fail(failure);
}

int Trx::release_savepoint(ulonglong number)
{
  const size_t place = place_of(number);
  if (!transaction || place == savepoints.size())
    return 0;
  // A name that is set again leaves the savepoints behind it. The library would drop them too.
  savepoints[place].is_released = true;
  const bool keeps_later = thd_sql_command(thd) == SQLCOM_SAVEPOINT;
  return keeps_later && place + 1 < savepoints.size() ? 0 : release_from(place);
}

/*
  Keeps XA COMMIT from running, as long as it is in scope. That writes the binary log before it says
  anything here, under a lock of the server that any commit has. The lock is taken only where XA has
  prepared transactions, and without a wait: it fails beside any commit then.
*/
class No_xa_commits
{
public:
  explicit No_xa_commits(THD *thd_arg) : thd(thd_arg)
  {
    if (!mysql_bin_log.is_open() || !xa_has_prepared())
      return;
    MDL_REQUEST_INIT(&request, MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT, MDL_EXPLICIT);
    is_needed = true;
    has_failed = thd->mdl_context.try_acquire_lock(&request) || !request.ticket;
  }
  ~No_xa_commits()
  {
    if (is_needed && !has_failed)
      thd->mdl_context.release_lock(request.ticket);
  }
  No_xa_commits(const No_xa_commits &) = delete;
  No_xa_commits &operator=(const No_xa_commits &) = delete;

  bool is_so() const { return !has_failed; }

private:
  THD *thd;
  MDL_request request;
  bool is_needed = false, has_failed = false;
};

int Trx::start_consistent_snapshot()
{
  int error = begin_statement(false, false);
  statement_began = false;
  if (error || serializable || view_of_statement || has_view)
    return error;
  No_xa_commits none(thd);
  // The binary log has them at this position, and a view could not. A transaction that XA has
  // prepared is listed before its commit is owed, so this look is the second one.
  if (!none.is_so() || some_commits_are_owed())
  {
    my_printf_error(ER_ERROR_DURING_COMMIT,
                    "Terrace: the binary log has commits that are not done here, by XA COMMIT or for "
                    "want of space. Take the snapshot again, after freeing space if there is none",
                    MYF(0));
    return HA_ERR_RECORD_FILE_FULL;
  }
  Failure failure;
  view_moment = moments;
  // No wait: the server holds a lock that commits need. The first read waits for the commits.
  if (terrace_transaction_take_view_with(transaction, last_in_order, failure.out()) != TERRACE_OK)
  {
    my_printf_error(ER_UNKNOWN_ERROR, "Terrace: %s", MYF(0), failure.message());
    return fail(failure);
  }
  has_view = true;
  return 0;
}

void Trx::kill()
{
  // The server's mark of the kill comes before the look, as the number does before May_wait's look.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // By number, which no later transaction gets: the connection may free the handle meanwhile.
  const ulonglong number = waiting;
  if (!number)
    return;
  Failure failure;
  YIELD("kill");
  is_ended = true;
  if (terrace_database_end_lock_wait(database(), number, failure.out()) == TERRACE_INVALID)
    sql_print_warning("Terrace: cannot end a wait: %s", failure.message());
}
