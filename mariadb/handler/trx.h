/*
  The transaction of a connection.

  It begins with the first statement that uses a table of Terrace. Its levels:

  - READ UNCOMMITTED and READ COMMITTED: plain reads see a view that each statement takes;
  - REPEATABLE READ: plain reads see one view, which the first of them takes;
  - SERIALIZABLE: reads lock what they read. A single SELECT with autocommit reads a view.

  Locking reads and writes see the newest rows at every level.

  Thread safety: the connection's thread, but for kill(), which any thread calls.
*/
#ifndef TERRACE_HANDLER_TRX_H
#define TERRACE_HANDLER_TRX_H

#include "errors.h"
#include "follower.h"
#include "linked.h"
#include "server.h"

#include <atomic>
#include <map>
#include <vector>

class Trx
{
public:
  /* The transaction of a connection; made if there is none. */
  static Trx *of(THD *thd);
  /* As of(), NULL if there is none. */
  static Trx *existing(THD *thd);

  explicit Trx(THD *thd_arg) : thd(thd_arg) {}
  ~Trx();

  /* A statement begins to use tables. It may lock rows. */
  int begin_statement(bool single_read, bool has_locks);
  /* Before a plain read: takes the view where there is none yet. */
  int before_plain_read();
  /* On a server that follows another one: whether the view has a table with a stamp. */
  bool sees(const Bytes &table, const Stamp &stamp);
  int drop_view();
  /* Before a write: marks the place that a statement rolls back to, and notes the table. */
  int before_write(const LEX_CSTRING &table);

  int commit(bool all);
  int rollback(bool all);
  int prepare(bool all);
  void commit_ordered(bool all);
  int set_savepoint(ulonglong *number);
  int roll_back_to(ulonglong number);
  int release_savepoint(ulonglong number);
  int start_consistent_snapshot();
  /* From another thread: ends a wait for a lock, and its statement so. It holds no lock of its own. */
  void kill();
  /* The index that has the last duplicate. A row that moves to another partition has it there. */
  uint error_key = MAX_KEY;
  /* The foreign key that the last error is about. */
  Bytes failed_key;
  /* The index of a child in which a change that follows has found a duplicate. */
  Bytes doubled_child, doubled_index;
  /* Notes the last table that a statement has made, and whether that is the one under way. */
  void note_made(const Bytes &table);
  bool has_made(const Bytes &table) const;
  /* Tables that the statement uses because of foreign keys. */
  Linked_tables linked;
  /* Tables whose rows are being changed, each because of the one before. */
  struct Followed
  {
    Bytes table;
    bool is_delete;
  };
  std::vector<Followed> followed;

  /*
    Before a range of a table is locked. Once locks on ranges take a quarter of terrace_lock_limit,
    those of the table that has most become one on all of it. *is_whole says whether that of this one
    is held.
  */
  int before_range_lock(const Bytes &name, bool is_exclusive, bool *is_whole);
  /*
    Sends a cursor to a range, or makes one for NULL, in scope of May_wait; frees it where it fails.
    A range that needs more memory than there is takes none where its whole table is locked. *kind is
    what it reads then.
  */
  terrace_cursor *locking_cursor(terrace_cursor *cursor, const Bytes &name, terrace_table *table,
                                 const terrace_range &range, bool is_exclusive, uint *kind,
                                 Failure *failure);
  bool holds_whole(const Bytes &name, bool is_exclusive) const;

  terrace_transaction *handle() const { return transaction; }
  /*
    Drops a temporary table at the end of the transaction, which may have written to it: the library
    commits nothing to a table that is gone.
  */
  void drop_at_end(const Bytes &table) { dropped.push_back(table); }
  /* Rows of history that it has put into a partition, whether or not a statement took them back. */
  void add_history(const Bytes &table) { history[table]++; }
  ulonglong history_in(const Bytes &table) const
  {
    auto found = history.find(table);
    return found == history.end() ? 0 : found->second;
  }
  /* Whether a row was written since the transaction began. */
  bool has_written() const { return wrote; }
  /* Whether it may have locks, also on what it has only read. */
  bool may_hold_locks() const { return wrote || locks || serializable; }
  bool is_serializable() const { return serializable; }
  /* Whether plain reads see a view, which may be older than the newest rows. */
  bool holds_view() const { return has_view; }
  /* Whether its view was taken before a moment of next_moment(). */
  bool view_is_before(ulonglong moment) const { return has_view && view_moment < moment; }
  /* A moment after all views that there are. */
  static ulonglong next_moment();
  /* Whether locking reads keep rows out of the gaps of what they read. */
  bool locks_gaps() const { return gaps; }

private:
  friend class May_wait;

  /* What a transaction begins with. */
  struct Settings
  {
    bool serializable;
    uint durability;
    ulonglong wait_ms, lock_limit;
    bool operator==(const Settings &other) const
    {
      return serializable == other.serializable && durability == other.durability &&
             wait_ms == other.wait_ms && lock_limit == other.lock_limit;
    }
  };

  /*
    A savepoint of the library, in the order in which they were set. The library names them by their
    numbers. The statement has one too: it lies below those that triggers and functions set.
  */
  struct Savepoint
  {
    ulonglong number;
    /* The server has forgotten it, and later ones are in use. */
    bool is_released;
  };

  bool is_end_of_all(bool all) const;
  int mark_statement();
  int push_savepoint(ulonglong *number);
  size_t place_of(ulonglong number) const;
  terrace_status undo_to(size_t place, Failure *failure);
  int release_from(size_t place);
  void cut(size_t length);
  void forget_detached();
  void set_lock_wait(ulonglong wait_ms);
  void allow_waits();
  int lock_whole(terrace_table *table, bool is_exclusive, bool *is_whole);
  int becomes_whole(const Bytes &name, terrace_table *table, bool is_exclusive, bool *is_whole);
  int most_becomes_whole(bool is_due, ulonglong *bytes);
  terrace_cursor *counted_cursor(terrace_cursor *cursor, const Bytes &name, terrace_table *table,
                                 const terrace_range &range, uint kind, Failure *failure);
  int begin();
  int set_options(const Settings &wanted);
  int fail(const Failure &failure) { return failure.handler_error(thd); }
  int fail_at_commit(const Failure &failure) const;
  int commit_pending();
  int commit_prepared();
  int commit_alone();
  void forget();
  void end();

  THD *thd;
  terrace_transaction *transaction = nullptr;
  /* Its number, also once it is prepared; 0 where there is none. */
  ulonglong number = 0;
  /* Its number while a call of it that may wait is under way, and 0 otherwise. */
  std::atomic<ulonglong> waiting{0};
  /* Its calls were told not to wait. It is the server that takes a kill back, between statements. */
  std::atomic<bool> is_ended{false};
  terrace_pending *pending = nullptr;
  /* The id that it is prepared under; empty if it is not. */
  Bytes prepared;
  /* Whether the binary log was durable without a sync here when it was prepared. */
  bool log_was_durable = false;
  /* The binary log has its commit, which could not be enqueued. */
  bool is_owed = false;
  /* The options of the last transaction, and what they say. */
  terrace_transaction_options *options = nullptr;
  Settings settings = {false, TERRACE_DURABLE, 0, 0};
  /* How durable its commit is to be. Its options may say less. */
  uint durability = TERRACE_DURABLE;
  bool serializable = false;
  bool gaps = false;
  bool single_read = false;
  bool has_view = false;
  ulonglong view_moment = 0;
  /* The database that it reads, and the tables that its view was found to have. */
  ulonglong of_generation = 0;
  std::map<Bytes, ulonglong> seen;
  bool view_of_statement = false;
  bool statement_began = false;
  std::vector<Savepoint> savepoints;
  /* The number of the statement's savepoint; 0 for none. */
  ulonglong statement_savepoint = 0;
  bool wrote = false;
  /* Whether a statement was to lock rows. */
  bool locks = false;
  /* The table that was written last. Errors at commit name it. */
  Bytes last_written;
  ulonglong next_savepoint = 1;
  /* How long calls of the statement wait for a lock, and what the library was told last. */
  ulonglong wait_ms = 0, told_wait_ms = 0;
  /* The memory of its locks on ranges of a table, and behind which they are to be one lock. */
  struct Ranges
  {
    ulonglong bytes = 0, due = 0;
    bool are_exclusive = false;
  };
  std::map<Bytes, Ranges> ranges_locked;
  /* The same of all tables. */
  ulonglong range_bytes = 0, due = 0;
  /* Tables that are locked as a whole, and whether exclusively. */
  std::map<Bytes, bool> whole;
  std::map<Bytes, ulonglong> history;
  std::vector<Bytes> dropped;
  Bytes made;
  /* The number of the statement that has made it. */
  ulonglong made_by = 0;
};

/*
  Says that a call of a transaction may wait, for as long as it is in scope. It waits for a lock as
  long as the statement does, or not at all. Each call says so itself, because one statement has
  calls of both kinds, and a later statement must not inherit the wait of an earlier one.
*/
class May_wait
{
public:
  explicit May_wait(Trx *trx_arg, bool no_wait = false)
    : trx(trx_arg), before(trx_arg->waiting), wait_before(trx_arg->told_wait_ms)
  {
    trx->waiting = terrace_transaction_id(trx->transaction);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // A kill that came before found no call to end, and does not come again.
    if (thd_kill_level(trx->thd) != THD_IS_NOT_KILLED)
      trx->kill();
    trx->set_lock_wait(no_wait ? 0 : trx->wait_ms);
  }
  ~May_wait()
  {
    trx->waiting = before;
    // The call that this one was inside of goes on.
    if (before)
      trx->set_lock_wait(wait_before);
  }
  May_wait(const May_wait &) = delete;
  May_wait &operator=(const May_wait &) = delete;

private:
  Trx *trx;
  const ulonglong before, wait_before;
};

/* Whether a statement may copy tables, and so has to have all rows as they are now. */
bool copies_tables(THD *thd);

/* The bytes of an XID as the id of a prepared transaction, and back. */
Bytes id_of_xid(const XID &xid);
bool xid_of_id(const char *id, size_t length, XID *xid);

/* Whether XA, and not the server for a commit, has prepared a transaction that is not resolved. */
bool xa_has_prepared();

/* Puts the functions of transactions into a handlerton. */
void set_transaction_functions(handlerton *hton);

#endif
