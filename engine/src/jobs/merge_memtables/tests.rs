//! How far the persistent index is said to know of everything, beside commits that are stopped on
//! their way.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::{merge_memtables, merge_some};
use crate::base::options::{Durability, Options};
use crate::commit::{Step, stop_at};
use crate::engine::Database;
use crate::jobs::table_index::Has;
use crate::jobs::{JobContext, freeze};
use crate::table::{Table, WriteBatch};
use terrace_testkit::{Machine, Survive};

/// How long something that must happen is given to happen.
const LONG: Duration = Duration::from_secs(60);

fn options(machine: &Machine) -> Options {
    Options::new().pm_size(4 << 20).stepped().machine(machine)
}

/// Commits a row, and waits until it is durable.
fn put(db: &Database, table: &str, key: &str) {
    let mut batch = WriteBatch::new();
    batch.put(&db.table(table).unwrap(), key, "1");
    db.enqueue(batch, Durability::Durable).unwrap().wait().unwrap();
}

/// Has this thread, when it comes to `step`, say so and wait until the other end sends, or is gone.
fn stop_here(step: Step, stopped: mpsc::Sender<()>, go: mpsc::Receiver<()>) {
    stop_at(step, move || {
        stopped.send(()).unwrap();
        go.recv().ok();
    });
}

/// Bug: an opening with a persistent index left out a commit that was acknowledged. Cause: two
/// commits were about to note that their table had changed. The later one said that it was noted,
/// and was stopped before it was. The earlier one believed that, and was acknowledged. A merge
/// of another table asked the scheduler's index for the oldest record in a memtable, and raised the
/// boundary of the persistent index above the acknowledged one. Fix: the boundary comes from the
/// views of all tables; and a table says that it is noted only once it is.
#[test]
fn the_boundary_of_a_persistent_index_stays_below_a_commit_that_the_scheduler_has_not_seen() {
    for truncated in [false, true] {
        let machine = Machine::with_memory().index(true);
        let db = &options(&machine).create("/db").unwrap();
        put(db, "busy", "row");
        db.table("idle").unwrap();
        if truncated {
            put(db, "idle", "before");
            db.truncate_table("idle").unwrap();
        }
        let ctx: &JobContext = &db.inner.ctx;
        let busy = ctx.tables.find("busy").unwrap().core();
        drop(ctx.tables.index());
        let (stopped, at_step) = mpsc::channel();
        let late_stopped = stopped.clone();
        let ((go_early, early), (go_late, late)) = (mpsc::channel(), mpsc::channel());
        let ends = std::thread::scope(|scope| {
            // Dropped first where an assertion fails: then no thread waits for ever.
            let (go_early, go_late) = (go_early, go_late);
            let acknowledged = scope.spawn(move || {
                stop_here(Step::Ticket, stopped, early);
                put(db, "idle", "acknowledged");
            });
            at_step.recv_timeout(LONG).expect("the first one has its ticket");
            assert!(freeze(ctx, &busy), "there is something to merge");
            scope.spawn(move || {
                stop_here(Step::TableChanged, late_stopped, late);
                put(db, "idle", "late");
            });
            at_step.recv_timeout(LONG).expect("the other one is about to note its table");
            go_early.send(()).unwrap();
            acknowledged.join().unwrap();
            let committer = &db.inner.ctx.shared.committer;
            let last = committer.at_boundary(|last| last);
            assert_eq!(committer.visible(), last - 1, "the later one is stopped");
            assert!(merge_some(vec![busy], ctx).unwrap().did);
            let ends = [machine.kill(), machine.crash(Survive::Nothing)];
            go_late.send(()).unwrap();
            ends
        });
        for after in ends {
            let again = options(&after).open("/db").unwrap();
            let found = again.table("idle").unwrap().get("acknowledged").unwrap();
            assert_eq!(found.as_deref(), Some(&b"1"[..]), "truncated: {truncated}");
        }
        assert!(db.table("idle").unwrap().get("late").unwrap().is_some());
    }
}

/// Bug: behind a merge that found no room in the persistent index nothing was merged any more, and
/// `compact_range` never returned. Cause: the memtable stayed, and was tried again. Fix: what there
/// is no room for goes into memory, and the boundary of the index stays below it.
#[test]
fn a_merge_into_a_full_index_goes_on_in_memory() {
    let machine = Machine::with_memory().index(true);
    let db = options(&machine).create("/db").unwrap();
    let key = |n: u32| format!("the same but for the end {n:04}");
    (0..100).for_each(|n| put(&db, "t", &key(n)));
    let ctx: &JobContext = &db.inner.ctx;
    let forest = ctx.forest.as_ref().unwrap();
    // All nodes, of which some are given back: there is no segment for bounds.
    let trees: Vec<_> = (1000..).map_while(|table| forest.create(table).ok()).collect();
    assert!(trees.len() > 1000, "{} trees", trees.len());
    trees[..500].iter().for_each(|tree| forest.remove(tree).unwrap());
    let table = ctx.tables.find("t").unwrap().core();
    let check = |db: &Database, count: u32| {
        let rows: Vec<_> = db.table("t").unwrap().iter().map(|row| row.unwrap().0).collect();
        assert_eq!(rows, (0..count).map(key).collect::<Vec<_>>());
    };
    for count in [101, 102] {
        assert!(freeze(ctx, &table));
        assert!(merge_memtables(ctx).unwrap().did);
        let view = table.view();
        assert_eq!((view.level0.size().records, view.frozen.len()), (u64::from(count) - 1, 0));
        let oldest = view.level0.in_zones.oldest_in_memory().expect("some are in memory");
        assert!(forest.merged() < oldest, "{} < {oldest}", forest.merged());
        check(&db, count - 1);
        put(&db, "t", &key(count - 1));
    }
    for end in [machine.crash(Survive::Nothing), machine.kill()] {
        check(&options(&end).open("/db").unwrap(), 102);
    }
    let t = db.table("t").unwrap();
    std::thread::scope(|scope| {
        let compacted = scope.spawn(|| db.compact_range(&t, ..));
        while !compacted.is_finished() {
            db.step().unwrap();
        }
        assert!(compacted.join().unwrap().unwrap().is_finished);
    });
    let begun = Instant::now();
    while table.view().level0.in_zones.oldest_in_memory().is_some() {
        assert!(begun.elapsed() < LONG, "all is drained");
        db.step().unwrap();
    }
    assert!(db.verify().unwrap().damages.is_empty());
    check(&db, 102);
}

/// So many merges end in a kill.
const KILLS: usize = 8;

/// Rows that were acknowledged, by table; those of a table that is truncated are forgotten first.
#[derive(Default)]
struct Account {
    rows: Mutex<BTreeMap<String, Vec<u64>>>,
    /// Held shared by a write until it is in the account, and alone by a truncation.
    changes: RwLock<()>,
}

impl Account {
    fn write(&self, db: &Database, name: &str, n: u64) {
        let _no_truncation = self.changes.read();
        let table: Table = db.table(name).unwrap();
        let durability =
            [Durability::Durable, Durability::Relaxed][usize::from(n.is_multiple_of(3))];
        table.durability(durability).put(n.to_be_bytes(), n.to_string()).unwrap();
        self.rows.lock().entry(name.to_string()).or_default().push(n);
    }

    fn truncate(&self, db: &Database, name: &str) {
        let _alone = self.changes.write();
        self.rows.lock().remove(name);
        db.truncate_table(name).unwrap();
    }
}

/// Writers, tables that come and are truncated, and merges go on side by side; again and again the
/// process is killed. All that was acknowledged before is there, in each table.
#[test]
fn kills_beside_merges_of_many_tables_lose_nothing_that_was_acknowledged() {
    let machine = Machine::with_memory().index(true);
    let db = &Options::new().pm_size(16 << 20).stepped().machine(&machine).create("/db").unwrap();
    let (account, stop) = (&Account::default(), &AtomicBool::new(false));
    let (kills, begun) = (&AtomicU64::new(0), Instant::now());
    db.table("0").unwrap();
    let found = std::thread::scope(|scope| {
        for writer in 0..3u64 {
            scope.spawn(move || {
                // As many as the region has room for.
                for n in (0..15_000u64).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // Some are left for each merge, however long that takes.
                    while n >= 1500 * (1 + kills.load(Ordering::Relaxed)) && begun.elapsed() < LONG
                    {
                        std::thread::yield_now();
                    }
                    // Each table is written to seldom enough to be merged between two writes.
                    account.write(db, &((n * 7 + writer) % 9).to_string(), n * 3 + writer);
                    if n % 101 == 50 && writer == 0 {
                        account.truncate(db, &(n % 9).to_string());
                    }
                }
            });
        }
        let mut found = Vec::new();
        for round in 0.. {
            let ctx: &JobContext = &db.inner.ctx;
            for table in ctx.tables.all().iter().skip(round % 3).step_by(2) {
                freeze(ctx, table);
            }
            let has_frozen = !ctx.tables.index().having(Has::Frozen).is_empty();
            if !merge_memtables(ctx).unwrap().did && !has_frozen {
                assert!(begun.elapsed() < LONG, "{} merges", found.len());
                continue;
            }
            let no_truncation = account.changes.read();
            let rows = account.rows.lock().clone();
            found.push((machine.kill(), rows));
            kills.store(found.len() as u64, Ordering::Relaxed);
            drop(no_truncation);
            if found.len() == KILLS {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        found
    });
    for (killed, rows) in found {
        let again =
            Options::new().pm_size(16 << 20).stepped().machine(&killed).open("/db").unwrap();
        for (name, rows) in rows {
            let table = again.table(&name).unwrap();
            for n in rows {
                let value = table.get(n.to_be_bytes()).unwrap();
                assert_eq!(value, Some(n.to_string().into()), "row {n} of table {name}");
            }
        }
    }
}
