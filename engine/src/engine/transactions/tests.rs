//! Tasks that await commits of each durability.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::options::Durability::{self, Durable, Relaxed, Remote};
use crate::base::options::Options;
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::table::{PendingCommit, WriteBatch};
use crate::txn::{Isolation, LockWait, TxnOptions};
use terrace_testkit::Machine;

/// How long something that must happen is given to happen.
const LONG: Duration = Duration::from_secs(60);

/// Says, once, which commit is done.
struct Tells(Mutex<Option<(Durability, Sender<Durability>)>>);

impl Wake for Tells {
    fn wake(self: Arc<Tells>) {
        if let Some((durability, told)) = self.0.lock().take() {
            told.send(durability).unwrap_or(());
        }
    }
}

/// Polls a commit: it tells when it is done, now or later.
fn await_one(commit: &mut PendingCommit, durability: Durability, told: &Sender<Durability>) {
    let tells = Arc::new(Tells(Mutex::new(Some((durability, told.clone())))));
    let waker = Waker::from(Arc::clone(&tells));
    if Pin::new(commit).poll(&mut Context::from_waker(&waker)).is_ready() {
        tells.wake();
    }
}

/// Takes what is told until it is all of `expected`, in any order.
fn told_all(told: &Receiver<Durability>, mut expected: Vec<Durability>) {
    while !expected.is_empty() {
        let one = told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{expected:?} is woken"));
        let at = expected.iter().position(|other| *other == one);
        expected.remove(at.unwrap_or_else(|| panic!("{one:?} is not done")));
    }
}

const ORDERS: [[Durability; 3]; 6] = [
    [Relaxed, Durable, Remote],
    [Relaxed, Remote, Durable],
    [Durable, Relaxed, Remote],
    [Durable, Remote, Relaxed],
    [Remote, Relaxed, Durable],
    [Remote, Durable, Relaxed],
];

/// Bug: while the shared store was away, a task that awaited a durable commit was never woken.
/// Cause: one thread waited for all awaited commits, and for the first of them as long as that
/// asked for: here for the store to acknowledge it. Fix: each durability has a thread of its own.
#[test]
fn each_durability_is_awaited_by_itself_while_the_store_is_away() {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = Options::new().pm_size(4 << 20).machine(&machine);
    let db = options.object_store(server.url()).share(true).open("/db").unwrap();
    let table = db.table("t").unwrap();
    table.durability(Remote).put("reached", "").unwrap();
    let (tell, told) = channel();
    for order in ORDERS {
        server.always(Some(StoreFault::LoseRequest));
        let enqueued = order.map(|durability| {
            let mut batch = WriteBatch::new();
            batch.put(&table, format!("{durability:?}"), "");
            (durability, db.enqueue(batch, durability).unwrap())
        });
        let pending = enqueued.map(|(durability, mut commit)| {
            await_one(&mut commit, durability, &tell);
            commit
        });
        told_all(&told, vec![Relaxed, Durable]);
        server.always(None);
        told_all(&told, vec![Remote]);
        pending.into_iter().for_each(|commit| commit.wait().unwrap());
    }
}

/// Bug: dropping an enqueued commit that asked for the shared store waited until the store had it,
/// without bound while that was away; after a poll its rows stayed locked for so long. Cause: row
/// locks were given back once all that was asked for had happened. Fix: they are given back once
/// the commit is as durable as this machine makes it, and visible.
#[test]
fn dropped_commits_give_their_locks_back_while_the_store_is_away() {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = Options::new().pm_size(4 << 20).machine(&machine);
    let db = options.object_store(server.url()).share(true).open("/db").unwrap();
    let table = db.table("t").unwrap();
    table.durability(Remote).put("reached", "").unwrap();
    server.always(Some(StoreFault::LoseRequest));
    for is_polled in [false, true] {
        let txn = db.begin_with(TxnOptions::new().durability(Remote)).unwrap();
        txn.put(&table, "row", "1").unwrap();
        let mut commit = txn.enqueue().unwrap();
        if is_polled {
            await_one(&mut commit, Remote, &channel().0);
        }
        drop(commit);
        let next = TxnOptions::new().isolation(Isolation::ReadCommitted);
        let next = db.begin_with(next.lock_wait(LockWait::AtMost(LONG))).unwrap();
        next.put(&table, "row", "2").unwrap();
        next.roll_back();
    }
    server.always(None);
}

/// Bug: the first lock of a transaction waited for a commit that was enqueued, until something else
/// synced the region; in a stepped database for ever. Cause: it waited until the commit was
/// visible. A durable one is visible after a sync, which no thread brought about. Fix: it waits
/// until the commit is durable, and so syncs itself.
#[test]
fn the_first_lock_brings_about_the_sync_of_an_enqueued_commit() {
    let machine = Machine::with_files();
    let db = Options::new().pm_size(4 << 20).stepped().machine(&machine).create("/db").unwrap();
    let table = db.table("t").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&table, "enqueued", "1");
    let pending = db.enqueue(batch, Durable).unwrap();
    let (done, locked) = channel();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let txn = db.begin().unwrap();
            done.send(txn.get_for_update(&table, "other").unwrap()).unwrap();
        });
        let found = locked.recv_timeout(LONG);
        // Where it still waits, that ends it.
        pending.wait().unwrap();
        found
    });
    assert_eq!(found, Ok(None));
}

/// Bug: a function of `Table::retain` that wrote to its own range waited until its patience was
/// over. Cause: the locks did not know that the transaction ran on this thread. Fix: they are told.
#[test]
fn a_function_of_retain_that_writes_to_its_range_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    table.put("row", "1").unwrap();
    let mut told = None;
    let removed = table.retain(.., |key, _| {
        told = table.put(key, "2").err();
        true
    });
    assert_eq!(told.unwrap().kind(), crate::ErrorKind::Invalid);
    assert_eq!(removed.unwrap(), 0);
    assert_eq!(table.get("row").unwrap().as_deref(), Some(&b"1"[..]));
}
