/*
  The handlerton's functions of transactions: commits, savepoints, two phases and XA.
*/
#include "checkpoints.h"
#include "durability.h"
#include "engine.h"
#include "recovery.h"
#include "renames.h"
#include "role.h"
#include "trx.h"
#include "yield.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

/* What the functions of XA return: the standard's numbers. */
static const int OF_XA_OK = 0, OF_XA_RMERR = -3, OF_XA_NOTA = -4;

Bytes id_of_xid(const XID &xid)
{
  uchar header[6];
  int4store(header, uint32(xid.formatID));
  header[4] = uchar(xid.gtrid_length);
  header[5] = uchar(xid.bqual_length);
  Bytes id(reinterpret_cast<char *>(header), sizeof(header));
  id.append(xid.data, size_t(xid.gtrid_length + xid.bqual_length));
  return id;
}

bool xid_of_id(const char *id, size_t length, XID *xid)
{
  const uchar *bytes = reinterpret_cast<const uchar *>(id);
  if (length < 6 || length != size_t(6) + bytes[4] + bytes[5] ||
      size_t(bytes[4]) + bytes[5] > XIDDATASIZE)
    return false;
  xid->set(long(sint4korr(bytes)), id + 6, bytes[4], id + 6 + bytes[4], bytes[5]);
  return true;
}

static int close_connection(handlerton *, THD *thd)
{
  end_renames(thd);
  // A transaction that XA has prepared stays so.
  Trx *trx = Trx::existing(thd);
  // A thread that kills the connection does not find it from here on.
  thd_set_ha_data(thd, terrace_hton, nullptr);
  delete trx;
  return 0;
}

static int commit(handlerton *, THD *thd, bool all)
{
  end_renames(thd);
  // The server wakes those that wait for this commit: the end of a statement is none.
  Trx *trx = Trx::existing(thd);
  return trx ? trx->commit(all) : 0;
}

static int rollback(handlerton *, THD *thd, bool all)
{
  end_renames(thd);
  Trx *trx = Trx::existing(thd);
  return trx ? tell(trx->rollback(all)) : 0;
}

static int prepare(handlerton *, THD *thd, bool all)
{
  Trx *trx = Trx::existing(thd);
  const int error = trx ? trx->prepare(all) : 0;
  YIELD("prepared");
  return error;
}

static void commit_ordered(handlerton *, THD *thd, bool all)
{
  if (Trx *trx = Trx::existing(thd))
    trx->commit_ordered(all);
}

/* The ids of all transactions that are prepared. */
static std::vector<XID> all_prepared()
{
  std::vector<XID> all;
  Failure failure;
  terrace_prepared_list *list = terrace_database_list_prepared(database(), failure.out());
  if (!list)
    sql_print_error("Terrace: cannot list prepared transactions: %s", failure.message());
  for (size_t i = 0; list && i < terrace_prepared_list_len(list); i++)
  {
    terrace_prepared prepared;
    XID xid;
    if (terrace_prepared_list_at(list, i, &prepared, failure.out()) == TERRACE_OK &&
        xid_of_id(prepared.id, prepared.id_len, &xid))
      all.push_back(xid);
  }
  terrace_prepared_list_free(list);
  return all;
}

bool xa_has_prepared()
{
  for (XID &xid : all_prepared())
    if (!xid.get_my_xid())
      return true;
  return false;
}

static int recover(handlerton *, XID *xids, uint most)
{
  recovery_begins();
  // None can be resolved, and a server with some and without a binary log does not start.
  if (only_reads())
    return 0;
  const std::vector<XID> all = all_prepared();
  const size_t found = std::min<size_t>(all.size(), most);
  std::copy_n(all.begin(), found, xids);
  if (found)
    sql_print_information("Terrace: %zu transactions are prepared", found);
  return int(found);
}

static std::mutex lock;
/*
  Verdicts that are done here, and whether they commit, where a client was told that the store may lack
  them: the server keeps such an XID.
*/
static std::map<Bytes, bool> unacknowledged;

/* Waits for the store where a client asks for that. A verdict that is said again waits again. */
static int acknowledge(THD *thd, const Bytes &id, bool to_commit)
{
  const bool is_there =
    !thd || wanted_durability(thd) != TERRACE_REMOTE ||
    !wait_for_store(thd, to_commit ? IS_COMMITTED : IS_ROLLED_BACK);
  std::lock_guard<std::mutex> guard(lock);
  if (is_there)
    unacknowledged.erase(id);
  else
    unacknowledged[id] = to_commit;
  return is_there ? OF_XA_OK : OF_XA_RMERR;
}

/* Whether a verdict is done here and not acknowledged; *is_commit is which one. */
static bool is_unacknowledged(const Bytes &id, bool *is_commit)
{
  std::lock_guard<std::mutex> guard(lock);
  const auto found = unacknowledged.find(id);
  if (found == unacknowledged.end())
    return false;
  *is_commit = found->second;
  return true;
}

/*
  The server takes the number that this returns for nothing. An error of the connection is what has
  the statement fail, and keeps the XID, so that the client can say it again. The verdict is owed all
  the same: a client that says the other one, or is gone, would take back what replicas have.
*/
static int resolve(XID *xid, bool to_commit)
{
  Failure failure;
  Bytes id = id_of_xid(*xid);
  THD *thd = current_thd;
  bool is_commit;
  if (is_unacknowledged(id, &is_commit))
  {
    if (refuse_change())
      return OF_XA_RMERR;
    if (is_commit == to_commit)
      return acknowledge(thd, id, to_commit);
    if (thd)
      my_printf_error(ER_XAER_RMERR, "XAER_RMERR: Terrace: the transaction is %s here, and the store "
                      "may lack that: say that again", MYF(0),
                      is_commit ? "committed" : "rolled back");
    return OF_XA_RMERR;
  }
  // The binary log has its verdict by now, and replicas have it.
  if (!verdict_begins(id, to_commit))
  {
    if (thd)
      my_printf_error(ER_XAER_RMERR, "XAER_RMERR: Terrace: the transaction is to be %s, which has "
                      "failed so far and is tried again", MYF(0),
                      to_commit ? "rolled back" : "committed");
    return OF_XA_RMERR;
  }
  YIELD("verdict");
  const terrace_status status = carry_out(thd, id, to_commit, &failure);
  YIELD("carried-out");
  verdict_ended(id, is_done(status));
  if (status == TERRACE_OK)
  {
    if (thd)
      commit_succeeded();
    return acknowledge(thd, id, to_commit);
  }
  if (status == TERRACE_INVALID)
    return OF_XA_NOTA;
  if (refuse_change())
    return OF_XA_RMERR;
  sql_print_error("Terrace: a prepared transaction stays prepared until this succeeds: %s",
                  failure.message());
  if (thd)
    my_printf_error(ER_XAER_RMERR, "XAER_RMERR: the transaction stays prepared until this succeeds, "
                    "and it is tried again: Terrace: %s", MYF(0), failure.message());
  return OF_XA_RMERR;
}

static int commit_by_xid(handlerton *, XID *xid) { return resolve(xid, true); }
static int rollback_by_xid(handlerton *, XID *xid) { return resolve(xid, false); }

static int savepoint_set(handlerton *, THD *thd, void *place)
{
  return tell(Trx::of(thd)->set_savepoint(static_cast<ulonglong *>(place)));
}

static int savepoint_rollback(handlerton *, THD *thd, void *place)
{
  return tell(Trx::of(thd)->roll_back_to(*static_cast<ulonglong *>(place)));
}

static int savepoint_release(handlerton *, THD *thd, void *place)
{
  return tell(Trx::of(thd)->release_savepoint(*static_cast<ulonglong *>(place)));
}

/* Locks of rows are kept by a rollback to a savepoint, so those of metadata are too. */
static bool can_release_mdl(handlerton *, THD *thd)
{
  const Trx *trx = Trx::existing(thd);
  return !trx || !trx->may_hold_locks();
}

static int start_consistent_snapshot(handlerton *, THD *thd)
{
  return Trx::of(thd)->start_consistent_snapshot();
}

static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Trx *trx = Trx::existing(thd))
    trx->kill();
}

void set_transaction_functions(handlerton *hton)
{
  hton->savepoint_offset = sizeof(ulonglong);
  hton->close_connection = close_connection;
  hton->commit = commit;
  hton->rollback = rollback;
  hton->prepare = prepare;
  hton->commit_ordered = commit_ordered;
  hton->commit_checkpoint_request = checkpoint_requested;
  hton->recover = recover;
  hton->commit_by_xid = commit_by_xid;
  hton->rollback_by_xid = rollback_by_xid;
  hton->savepoint_set = savepoint_set;
  hton->savepoint_rollback = savepoint_rollback;
  hton->savepoint_release = savepoint_release;
  hton->savepoint_rollback_can_release_mdl = can_release_mdl;
  hton->start_consistent_snapshot = start_consistent_snapshot;
  hton->kill_query = kill_query;
}
