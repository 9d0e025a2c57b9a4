//! The shipper as a thread of its own: what it asks of a store.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::wait_until;
use terrace::{Durability, ObjectServer, Options, StoreFault, WriteBatch};

/// Whether the first list was answered.
static LISTED: AtomicBool = AtomicBool::new(false);

/// The pause after a failure was skipped while a whole segment waited: millions of requests went to
/// a store that refused them. Each failure has its pause, which doubles, however much waits.
#[test]
fn a_store_that_refuses_is_asked_less_and_less_often() {
    for mib in [2, 6] {
        let dir = tempfile::tempdir().unwrap();
        let server = ObjectServer::new();
        let options = Options::new().pm_size(64 << 20).object_store(server.url()).share(true);
        let db = options.open(dir.path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        table.durability(Durability::Remote).put("a", "1").unwrap();
        server.always(Some(StoreFault::Refuse));
        for n in 0..mib {
            let mut batch = WriteBatch::new();
            batch.put(&table, format!("k{n}"), vec![n as u8; 1 << 20]);
            db.write_with(&batch, Durability::Relaxed).unwrap();
        }
        let note = || db.stats().share.unwrap().note;
        wait_until("it is refused", || note().is_some());
        // Entries alone: the collector asks too, and has pauses of its own.
        let puts = || server.asked("").puts;
        // The clock is read first: a delay of this thread adds to the time, and to no requests.
        let (began, before) = (Instant::now(), puts());
        wait_until("it is asked again", || puts() >= before + 5);
        // Pauses of 200, 400, 800 and 1600 milliseconds lie between five requests.
        assert!(began.elapsed() >= Duration::from_secs(2), "{mib} MiB: {:?}", began.elapsed());
        server.always(None);
        table.durability(Durability::Remote).put("b", "2").unwrap();
        assert_eq!(note(), None);
    }
}

/// Bug: a list that got no answer held all commits up. Cause: the collector ran on the shipper's
/// thread. Fix: it has a thread of its own.
#[test]
fn a_list_without_an_answer_holds_no_commit_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = ObjectServer::new();
    let (lists, (answers, no_answer)) = (server.clone(), channel::<()>());
    let no_answer = Mutex::new(no_answer);
    server.watch(Some(Box::new(move |_, after| {
        if after && ["shared/log/", "shared/followers/"].iter().any(|of| lists.asked(of).lists > 0)
        {
            let own = std::thread::current();
            if own.name().is_some_and(|name| name.contains("collector") || name.contains("shipper"))
                && !LISTED.swap(true, Ordering::AcqRel)
            {
                no_answer.lock().unwrap().recv().unwrap_err();
            }
        }
    })));
    let options = Options::new().pm_size(64 << 20).object_store(server.url()).share(true);
    let db = options.open(dir.path().join("db")).unwrap();
    wait_until("the collector lists", || LISTED.load(Ordering::Acquire));
    let table = db.table("t").unwrap();
    let before = db.stats().share.unwrap().segments;
    for n in 0..3 {
        let mut batch = WriteBatch::new();
        batch.put(&table, format!("k{n}"), "value");
        let pending = db.enqueue(batch, Durability::Remote).unwrap();
        wait_until("it is shipped", || db.stats().share.unwrap().lag_commits == 0);
        pending.wait().unwrap();
    }
    assert!(db.stats().share.unwrap().segments > before);
    drop(answers);
    server.watch(None);
}

/// A writer that is faster than its store, or has none for a while, is held up by nothing, and what
/// it has comes there in the end. The shipper reads zones that go at any moment.
#[test]
fn a_writer_that_is_faster_than_its_store_waits_for_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = ObjectServer::new();
    let options = Options::new().pm_size(8 << 20).object_store(server.url()).share(true);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let write = |n: u64| {
        let mut batch = WriteBatch::new();
        batch.put(&table, (n % 8).to_be_bytes(), vec![n as u8; 64 << 10]);
        db.write_with(&batch, Durability::Relaxed).unwrap();
    };
    for round in 0..3 {
        server.always((round == 1).then_some(StoreFault::Refuse));
        (0..600).for_each(write);
        let mut batch = WriteBatch::new();
        batch.put(&table, "remote", [round]);
        let pending = db.enqueue(batch, Durability::Remote).unwrap();
        (0..100).for_each(write);
        let shipped = db.stats().share.unwrap().shipped;
        assert!(round != 1 || shipped < pending.number(), "the store is away");
        server.always(None);
        pending.wait().unwrap();
    }
    assert!(db.stats().background.zones_released > 0);
    wait_until("all is shipped", || db.stats().share.unwrap().lag_commits == 0);
    let taken = Options::new().pm_size(8 << 20).open_shared(server.url(), dir.path().join("other"));
    let other = taken.unwrap().existing_table("t").unwrap();
    for n in 0..8u64 {
        assert_eq!(other.get(n.to_be_bytes()).unwrap(), table.get(n.to_be_bytes()).unwrap(), "{n}");
    }
    assert_eq!(other.get("remote").unwrap().unwrap().to_vec(), [2]);
}

/// Whether a piece of a checkpoint was sent by the thread of checkpoints.
static SENT: AtomicBool = AtomicBool::new(false);

/// Bug: commits waited for the shared store until a checkpoint was sent. Cause: the shipper's
/// thread sent it. Fix: a thread of its own sends the data, segments go on, and the entry says from
/// which one a reader goes on.
#[test]
fn a_checkpoint_without_an_answer_holds_no_commit_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = ObjectServer::new();
    let (answers, no_answer) = channel::<()>();
    let no_answer = Mutex::new(no_answer);
    server.watch(Some(Box::new(move |_, after| {
        let own = std::thread::current();
        if after
            && own.name().is_some_and(|name| name.contains("checkpoints"))
            && !SENT.swap(true, Ordering::AcqRel)
        {
            no_answer.lock().unwrap().recv().unwrap_err();
        }
    })));
    let options = Options::new().pm_size(64 << 20).object_store(server.url()).share(true);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let remote = table.durability(Durability::Remote);
    let put = |n: u64| {
        let words = (0..128 << 10).map(|i| (n << 20 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let value: Vec<u8> =
            words.flat_map(|word: u64| (word ^ word >> 29).to_be_bytes()).collect();
        remote.put(n.to_be_bytes(), value).unwrap();
    };
    // A checkpoint is due after 64 MiB.
    (0..66).for_each(put);
    wait_until("data is sent", || SENT.load(Ordering::Acquire));
    let before = db.stats().share.unwrap();
    (60..70).for_each(put);
    assert_eq!(db.stats().share.unwrap().checkpoints, before.checkpoints);
    let entry = || Options::new().shared_status(server.url()).unwrap().checkpoint;
    let first = entry();
    drop(answers);
    wait_until("it is made", || db.stats().share.unwrap().checkpoints > before.checkpoints);
    wait_until("its entry comes", || {
        remote.put("more", "rows").unwrap();
        entry() > first
    });
    (68..72).for_each(put);
    let follower = Options::new().pm_size(64 << 20).follow(server.url(), dir.path().join("f"));
    let follower = follower.unwrap();
    let last = db.stats().share.unwrap().shipped;
    wait_until("it follows", || follower.status().commit >= last);
    let other = follower.database().unwrap().existing_table("t").unwrap();
    for n in 0..72u64 {
        assert_eq!(other.get(n.to_be_bytes()).unwrap(), table.get(n.to_be_bytes()).unwrap(), "{n}");
    }
    follower.close().unwrap();
    db.close().unwrap();
}
