//! The order of commits: what the sequencer does, what one group and one run take along, and which
//! side of a boundary each record is on.

use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::bucket::Buckets;
use super::super::publisher::{Goal, MAX_RUN, TURNS};
use super::Fixture;
use crate::base::options::Durability::{Durable, Relaxed};
use crate::base::record::Lsn;
use crate::memtable::Memtable;
use crate::mvcc::pin;
use crate::pm::Spent;
use crate::pm::alloc::Frees;

#[test]
fn the_sequencer_does_no_io_not_even_for_a_zone_switch() {
    for dax in [false, true] {
        let fixture = Fixture::new(dax);
        fixture.commit(&[("fills the zone", &"x".repeat(120 << 10))]);
        fixture.committer.make_standby(0, 0, Frees::Nothing).unwrap();
        let mut group = fixture.group(&fixture.batch(&[("next zone", &"x".repeat(20 << 10))]));
        let counters: [fn(&Spent) -> &AtomicU64; 4] =
            [|c| &c.flushes, |c| &c.fences, |c| &c.syncs, |c| &c.bytes];
        let spent = || counters.map(|counter| fixture.region.counts().total(counter));
        let before = spent();
        let mut ticket = fixture.ticket_of(&group);
        assert_eq!(ticket.places[0].switch.len(), 2, "a seal, and the next zone's first use");
        assert_eq!(spent(), before, "that is left to the group's own thread");
        fixture.committer.fill(&mut group, &mut ticket, Durable);
        assert_eq!(fixture.committer.sync_floor().unwrap(), 2);
        assert!(spent() > before);
    }
}

#[test]
fn a_run_is_bounded_and_handed_over() {
    let fixture = Fixture::of_units(true, 64);
    let batch = fixture.batch(&[("k", "1")]);
    let most = MAX_RUN * u64::from(TURNS);
    let pending: Vec<_> = (0..most + MAX_RUN + 10)
        .map(|_| fixture.committer.enqueue(&mut &batch, Durable).unwrap())
        .collect();
    let runs = || fixture.committer.runs();
    assert_eq!((fixture.committer.visible(), runs()), (0, 0), "no thread has waited yet");
    // The thread that waits for the first one publishes so many, and then returns.
    fixture.committer.publisher.wait(1, Goal::Durable).unwrap();
    assert_eq!((fixture.committer.visible(), runs()), (most, u64::from(TURNS)));
    let last = pending.last().unwrap().lsn;
    fixture.committer.publisher.wait(most + 1, Goal::Durable).unwrap();
    assert_eq!((fixture.committer.visible(), runs()), (last, u64::from(TURNS) + 2));
}

/// A run that is handed over shows readers what is relaxed in it, and what comes before that. A
/// durable commit behind them is seen from its sync on: a reader may tell others of it.
#[test]
fn a_durable_commit_is_not_visible_before_its_sync() {
    let fixture = Fixture::new(false);
    let batch = fixture.batch(&[("k", "1")]);
    let lsns = [Durable, Relaxed, Durable, Durable]
        .map(|durability| fixture.committer.enqueue(&mut &batch, durability).unwrap().lsn);
    assert_eq!(lsns, [1, 2, 3, 4]);
    let (committer, publisher) = (&fixture.committer, &fixture.committer.publisher);
    // A thread that waits for no sync hands over all four.
    publisher.wait(4, Goal::Written).unwrap();
    assert_eq!((committer.visible(), committer.durable()), (2, 0));
    publisher.wait(4, Goal::Durable).unwrap();
    assert_eq!((committer.visible(), committer.durable()), (4, 4));
}

/// A publisher that publishes as much as it may wakes a sleeper to go on with the rest.
#[test]
fn what_is_left_of_a_bounded_run_is_handed_to_a_sleeper() {
    let fixture = &Fixture::of_units(true, 64);
    let most = MAX_RUN * u64::from(TURNS);
    // The first one is not finished, so all that follow wait.
    let mut first = fixture.group(&fixture.batch(&[("first", "1")]));
    let mut ticket = fixture.ticket_of(&first);
    let batch = fixture.batch(&[("k", "1")]);
    let last = (0..most + 10).map(|_| fixture.committer.enqueue(&mut &batch, Durable).unwrap().lsn);
    let last = last.last().unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(move || fixture.committer.publisher.wait(last, Goal::Durable));
        fixture.committer.fill(&mut first, &mut ticket, Durable);
        fixture.committer.publisher.wait(1, Goal::Durable).unwrap();
        // This thread waits for nothing any more.
        sleeper.join().unwrap().unwrap();
    });
    assert_eq!(fixture.committer.durable(), last);
}

/// What of the LSNs that several batches got.
fn sizes(lsns: &[Lsn]) -> Vec<usize> {
    let mut groups = BTreeMap::<Lsn, usize>::new();
    lsns.iter().for_each(|lsn| *groups.entry(*lsn).or_default() += 1);
    groups.into_values().collect()
}

/// Nine batches queue behind a leader that is held in front of the sequencer, where `change` is
/// called before it goes on; the sizes of the groups that they become.
fn groups_of_nine(fixture: &Fixture, value: &str, change: impl FnOnce()) -> Vec<usize> {
    let bucket = fixture.committer.buckets.of_this_thread(false).unwrap();
    let first = fixture.committer.visible();
    let lsns = std::thread::scope(|scope| {
        let sequencer = fixture.committer.sequencer.lock();
        let commit = |key: String| move || fixture.commit(&[(&key, value)]);
        let leader = scope.spawn(commit("leader".into()));
        wait_until(|| bucket.is_led());
        let mut members = Vec::new();
        for n in 0..9 {
            members.push(scope.spawn(commit(format!("{n}"))));
            wait_until(|| bucket.waiting() == n + 1);
        }
        change();
        drop(sequencer);
        assert_eq!(leader.join().unwrap(), first + 1, "the leader had gone alone");
        members.into_iter().map(|member| member.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(lsns.is_sorted(), "they keep the order in which they came: {lsns:?}");
    sizes(&lsns)
}

fn wait_until(is_true: impl Fn() -> bool) {
    while !is_true() {
        std::thread::yield_now();
    }
}

#[test]
fn groups_take_as_many_batches_as_they_may_in_the_order_of_their_coming() {
    let mut fixture = Fixture::of_units(false, 64);
    fixture.committer.buckets = Buckets::of(1);
    let bounds = |batches, bytes| fixture.committer.set_group_bounds(batches, bytes);
    bounds(4, 64 << 10);
    assert_eq!(groups_of_nine(&fixture, "1", || ()), [4, 4, 1]);
    // Changed while they wait: what counts is the bound when a group is gathered.
    assert_eq!(groups_of_nine(&fixture, "1", || bounds(2, 64 << 10)), [2, 2, 2, 2, 1]);
    assert_eq!(groups_of_nine(&fixture, "1", || bounds(100, 64 << 10)), [9]);
    // By bytes: each batch takes a little more than 1000.
    let value = "x".repeat(1000);
    bounds(100, 3500);
    assert_eq!(groups_of_nine(&fixture, &value, || ()), [3, 3, 3]);
    assert_eq!(groups_of_nine(&fixture, &value, || bounds(100, 5000)), [4, 4, 1]);
    assert_eq!(groups_of_nine(&fixture, &value, || bounds(3, 2500)), [2, 2, 2, 2, 1]);
    assert_eq!(groups_of_nine(&fixture, &value, || bounds(100, 1)), [1; 9]);
}

/// Memtables are frozen at boundaries in the order of commits, while four threads commit: whatever
/// lies in one is on its side of both of its boundaries.
#[test]
fn a_freeze_has_each_record_on_its_side_whoever_commits_meanwhile() {
    let fixture = &Fixture::of_units(true, 64);
    let is_over = &AtomicBool::new(false);
    let mut frozen: Vec<(Arc<Memtable>, Lsn)> = Vec::new();
    std::thread::scope(|scope| {
        for t in 0..4 {
            scope.spawn(move || {
                let keys = (0..10_000).map(|n| format!("{t}/{n}"));
                for key in keys.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    fixture.committer.commit(&mut &fixture.batch(&[(&key, "1")]), Relaxed).unwrap();
                }
            });
        }
        for n in 1..=20 {
            wait_until(|| fixture.committer.visible() >= n * 5);
            let fresh = Arc::new(Memtable::new(Arc::clone(&fixture.region)));
            let freeze = |boundary| (fixture.table.memtable.swap(fresh), boundary);
            frozen.push(fixture.committer.at_boundary(freeze));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let last = fixture.committer.sync_floor().unwrap();
    frozen.push((fixture.table.memtable.load_full(), last));
    let (mut before, mut records) = (0, 0);
    for (memtable, boundary) in &frozen {
        let _guard = pin();
        let mut cursor = memtable.cursor();
        cursor.seek_first();
        while let Some((_, record)) = cursor.record() {
            assert!(record.seq > before && record.seq <= *boundary, "{} at {boundary}", record.seq);
            records += 1;
            cursor.step();
        }
        before = *boundary;
    }
    assert_eq!(records, last, "each is in one memtable");
}
