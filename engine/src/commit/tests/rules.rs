//! The rules of the ring, each by name (`docs/commit.md`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::super::floor::{Floor, Gidx, JournalMark};
use super::super::recover::{Evidence, Recovered, recover};
use super::super::{Batch, Group, OneGroup};
use super::{Fixture, Slot};
use crate::base::error::{ErrorKind, Result};
use crate::base::options::Durability::{self, Durable, Relaxed};
use crate::base::record::Lsn;
use crate::pm::alloc::{Frees, StreamPool, ZONE_HEADER, Zone, ZonePool};
use crate::pm::{Incarnations, Lived, Media, Purpose, Region, Span};
use terrace_testkit::{Machine, Survive};

/// How long something that must not happen is given to happen.
pub(super) const A_WHILE: Duration = Duration::from_millis(50);

impl Fixture {
    pub(super) fn commit(&self, rows: &[(&str, &str)]) -> Lsn {
        self.committer.commit(&mut &self.batch(rows), Durable).unwrap()
    }

    pub(super) fn group(&self, batch: &Batch<Slot>) -> Group {
        Group::encode(batch, self.zones.geometry().largest_zone()).unwrap()
    }

    /// Commits so many batches, two of which fill a zone; the zones that they go to.
    fn zones_of_large(&self, count: u32, durability: Durability) -> Vec<u32> {
        let batch = self.batch(&[("k", &"x".repeat(50 << 10))]);
        let commit = |_| {
            let pending = self.committer.enqueue(&mut &batch, durability).unwrap();
            let zone = pending.zone;
            pending.wait().unwrap();
            zone
        };
        (0..count).map(commit).collect()
    }

    fn fences(&self) -> u64 {
        self.region.counts().on(Purpose::Commit).fences.load(Ordering::Relaxed)
    }

    fn syncs(&self) -> u64 {
        self.region.counts().on(Purpose::Commit).syncs.load(Ordering::Relaxed)
    }

    /// The region as it is on the media of `machine`, which is this one or has come of it.
    pub(super) fn region_on(&self, machine: &Machine) -> Arc<Region> {
        let (path, geometry) = (self.region.path(), self.zones.geometry());
        let media = match machine.memory().and_then(|m| m.get()) {
            Some(memory) => Media::Simulated(memory.clone()),
            None => {
                use crate::os::{Files, OpenHow};
                Media::File(machine.files().open(path, OpenHow::Write).unwrap())
            }
        };
        let region = Region::new(media, path, geometry.region_len()).unwrap();
        region.load(Span { at: 0, len: geometry.zones_start() }).unwrap();
        Arc::new(region)
    }

    /// What recovery decides from what is on the media now.
    fn recover(&self, incarnations: &Incarnations) -> Result<Recovered> {
        self.recover_on(&self.machine, incarnations)
    }

    /// What recovery decides on `machine`.
    pub(super) fn recover_on(
        &self,
        machine: &Machine,
        incarnations: &Incarnations,
    ) -> Result<Recovered> {
        let (region, geometry) = (self.region_on(machine), self.zones.geometry());
        let (floor, _) = Floor::load(&region)?;
        let (_, scans, _) = ZonePool::open(&region, geometry)?;
        let streams = StreamPool::scan(&region)?;
        let gidx = streams.iter().map(|s| Gidx::load(&region, s.stream));
        let gidx = gidx.collect::<Result<Vec<_>>>()?;
        recover(&Evidence {
            region: &region,
            geometry,
            floor,
            durable: 0,
            incarnations,
            merged: 0,
            scans: &scans,
            gidx: &gidx,
            threads: 1,
            did: &|_| Ok(()),
            check_payloads: true,
            is_written: false,
        })
    }

    /// The bytes of a range become what they were before anything was written there, as when the
    /// power goes before they reached the media.
    fn lose(&self, span: Span) {
        let lost = self.region.write(span.at, &vec![0; span.len as usize]);
        self.region.persist([lost]).unwrap();
    }
}

pub(super) fn first_incarnation() -> Incarnations {
    Incarnations { current: 1, earlier: Vec::new() }
}

#[test]
fn what_can_fail_fails_before_the_ticket() {
    let fixture = Fixture::new(false);
    assert_eq!(fixture.commit(&[("a", "1")]), 1);
    let large = "x".repeat(200 << 10);
    let too_large = fixture.committer.commit(&mut &fixture.batch(&[("a", &large)]), Durable);
    assert_eq!(too_large.unwrap_err().kind(), ErrorKind::TooLarge);
    fixture.table.dropped.store(true, Ordering::Release);
    let dropped = fixture.committer.commit(&mut &fixture.batch(&[("a", "2")]), Durable);
    assert!(dropped.unwrap_err().is_table_gone());
    fixture.table.dropped.store(false, Ordering::Release);
    let zone = "x".repeat(120 << 10);
    let full = (0..8).find_map(|_| {
        fixture.committer.commit(&mut &fixture.batch(&[("z", &zone)]), Durable).err()
    });
    assert_eq!(full.unwrap().kind(), ErrorKind::Full);
    let next = fixture.committer.visible() + 1;
    assert_eq!(fixture.commit(&[("b", "3")]), next, "refusals took no LSN");
}

#[test]
fn of_several_batches_the_last_write_of_a_key_counts() {
    let fixture = Fixture::new(false);
    let mut group = fixture.group(&fixture.batch(&[("a", "1"), ("b", "1")]));
    group.absorb(fixture.group(&fixture.batch(&[("c", "2"), ("a", "2")])));
    group.absorb(fixture.group(&fixture.batch(&[("b", "3")])));
    group.drop_superseded();
    assert_eq!(group.records(), 3);
    let pending = fixture.committer.enqueue(&mut OneGroup::new(group), Durable).unwrap();
    let lsn = pending.wait().unwrap();
    for (key, value) in [("a", "2"), ("b", "3"), ("c", "2")] {
        assert_eq!(fixture.get(key, lsn).as_deref(), Some(value), "{key}");
    }
    assert_eq!(fixture.recover(&first_incarnation()).unwrap().last, lsn);
}

#[test]
fn of_batches_in_two_streams_too() {
    let fixture = Fixture::new(false);
    fixture.committer.open_stream().unwrap();
    fixture.table.stream.store(1, Ordering::Relaxed);
    let mut group = fixture.group(&fixture.batch(&[("a", "1"), ("b", "1")]));
    fixture.table.stream.store(0, Ordering::Relaxed);
    group.absorb(fixture.group(&fixture.batch(&[("a", "2")])));
    fixture.table.stream.store(1, Ordering::Relaxed);
    group.absorb(fixture.group(&fixture.batch(&[("a", "3")])));
    group.drop_superseded();
    assert_eq!((group.records(), group.parts.len()), (2, 1), "stream 0 has nothing left");
    let lsn =
        fixture.committer.enqueue(&mut OneGroup::new(group), Durable).unwrap().wait().unwrap();
    assert_eq!(fixture.get("a", lsn).as_deref(), Some("3"));
    assert_eq!(fixture.get("b", lsn).as_deref(), Some("1"));
}

#[test]
fn groups_of_several_threads_are_dense_and_wait_for_nobody_alone() {
    let fixture = Fixture::new(false);
    fixture.committer.set_group_bounds(4, 64 << 10);
    assert_eq!(fixture.commit(&[("alone", "1")]), 1);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                for i in 0..50 {
                    let key = format!("{t}/{i}");
                    let lsn = fixture.commit(&[(&key, "1"), ("shared", &key)]);
                    assert_eq!(fixture.get(&key, lsn).as_deref(), Some("1"));
                }
            });
        }
    });
    let groups = fixture.committer.counts.groups.load(Ordering::Relaxed);
    assert!((101..=401).contains(&groups), "{groups} groups of at most 4 for 401 batches");
    assert_eq!(fixture.committer.durable(), groups, "LSNs are dense");
}

#[test]
fn a_sub_entry_never_spans_zones_and_a_left_zone_is_sealed() {
    let fixture = Fixture::new(true);
    assert_eq!(fixture.zones_of_large(5, Durable), [0, 0, 1, 1, 2]);
    let recovered = fixture.recover(&first_incarnation()).unwrap();
    assert_eq!(recovered.last, 5);
    let in_zones: Vec<usize> = recovered.zones.iter().map(|(_, entries)| entries.len()).collect();
    assert_eq!(in_zones, [2, 2, 1]);
    let open = Zone { number: 2, len: 128 << 10 };
    assert_eq!(recovered.streams[0].zone, Some(open), "the last one stays open");
}

#[test]
fn a_batch_that_fits_no_small_zone_takes_a_larger_one() {
    for dax in [false, true] {
        let fixture = Fixture::of_units(dax, 64);
        fixture.commit(&[("small", "1")]);
        // The stream has a standby zone of one unit by now, which has to go.
        fixture.committer.make_standby(0, 0, Frees::Nothing).unwrap();
        let large = "x".repeat(700 << 10);
        let pending = fixture.committer.enqueue(&mut &fixture.batch(&[("large", &large)]), Durable);
        let pending = pending.unwrap();
        let zone = pending.zone;
        pending.wait().unwrap();
        assert_eq!(fixture.zones.units_of(zone), 8, "a MiB");
        // What is left of it is used, too.
        let next =
            fixture.committer.enqueue(&mut &fixture.batch(&[("next", "1")]), Durable).unwrap();
        assert_eq!((next.zone, next.wait().unwrap()), (zone, 3));
        assert_eq!(fixture.zones.zone_of(fixture.zones.geometry().zone(zone + 7)), zone);
        assert_eq!(fixture.get("large", 3), Some(large));
        let recovered = fixture.recover(&first_incarnation()).unwrap();
        assert_eq!((recovered.last, recovered.zones.len()), (3, 2));
        let open = recovered.streams[0].zone.unwrap();
        assert_eq!(open, Zone { number: zone, len: 1 << 20 });
        // Larger than the largest zone: refused before anything is done.
        let too_large = "x".repeat(1 << 20);
        let refused = fixture.committer.commit(&mut &fixture.batch(&[("a", &too_large)]), Durable);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(fixture.commit(&[("last", "1")]), 4);
    }
}

#[test]
fn busy_streams_take_larger_zones_and_closed_ones_begin_small_again() {
    let fixture = Fixture::of_units(true, 512);
    let value = "x".repeat(30 << 10);
    let mut sizes = Vec::new();
    for _ in 0..150 {
        let pending =
            fixture.committer.enqueue(&mut &fixture.batch(&[("k", &value)]), Relaxed).unwrap();
        let units = fixture.zones.units_of(pending.zone);
        pending.wait().unwrap();
        if sizes.last() != Some(&units) {
            sizes.push(units);
        }
    }
    assert_eq!(sizes, [1, 2, 4, 8], "up to a 64th of the region");
    let stream = fixture.committer.open_stream().unwrap();
    fixture.table.stream.store(stream, Ordering::Relaxed);
    let pending = fixture.committer.enqueue(&mut &fixture.batch(&[("own", "1")]), Relaxed).unwrap();
    assert_eq!(fixture.zones.units_of(pending.zone), 1);
    pending.wait().unwrap();
}

/// What is left of a region that is nearly full is for the writers. One stream alone was given a
/// sixteenth of it at most, which is one unit as a rule, and a link for each is a sync.
#[test]
fn a_stream_that_is_alone_takes_large_zones_of_what_is_left() {
    let fixture = Fixture::of_units(true, 256);
    let value = "x".repeat(30 << 10);
    while fixture.zones.free() >= 20 {
        let free = fixture.zones.free();
        let batch = fixture.batch(&[("k", &value)]);
        let pending = fixture.committer.enqueue(&mut &batch, Relaxed).unwrap();
        let taken = free - fixture.zones.free();
        pending.wait().unwrap();
        assert!(taken == 0 || free > 200 || taken == 4, "{taken} units of {free}");
    }
}

#[test]
fn one_sync_makes_everything_durable_that_was_finished() {
    let fixture = Fixture::new(false);
    fixture.commit(&[("first", "1")]);
    let (syncs, runs) = (fixture.syncs(), fixture.committer.runs());
    let pending: Vec<_> = (0..20)
        .map(|i| {
            let batch = fixture.batch(&[(&format!("{i}"), "1")]);
            fixture.committer.enqueue(&mut &batch, Durable).unwrap()
        })
        .collect();
    assert!(pending.into_iter().rev().all(|p| p.wait().is_ok()));
    assert_eq!((fixture.syncs() - syncs, fixture.committer.runs() - runs), (1, 1));
}

#[test]
fn on_persistent_memory_a_lone_commit_costs_one_fence() {
    let fixture = Fixture::new(true);
    fixture.commit(&[("first", "1")]);
    let before = fixture.fences();
    for i in 0..10 {
        fixture.commit(&[(&format!("{i}"), "1")]);
    }
    assert_eq!(fixture.fences() - before, 10, "the floor goes with the next group's fence");
}

#[test]
fn a_thread_that_is_held_up_holds_up_later_lsns_and_nothing_else() {
    let fixture = Fixture::new(false);
    fixture.commit(&[("before", "1")]);
    let mut slow = fixture.group(&fixture.batch(&[("slow", "1")]));
    let mut ticket = fixture.ticket_of(&slow);
    let (done, waits) = mpsc::channel();
    std::thread::scope(|scope| {
        for key in ["x", "y"] {
            let (fixture, done) = (&fixture, done.clone());
            scope.spawn(move || done.send(fixture.commit(&[(key, "1")])).unwrap());
        }
        assert!(waits.recv_timeout(A_WHILE).is_err(), "later LSNs wait");
        assert_eq!(fixture.get("before", fixture.committer.visible()).as_deref(), Some("1"));
        assert_eq!(fixture.committer.visible(), 1, "readers see a prefix");
        fixture.committer.fill(&mut slow, &mut ticket, Durable);
        fixture.committer.sync_floor().unwrap();
        assert_eq!(waits.recv().unwrap() + waits.recv().unwrap(), 3 + 4);
    });
    assert_eq!(fixture.committer.durable(), 4);
}

#[test]
fn a_thread_that_dies_with_its_ticket_stops_the_database_and_wakes_everybody() {
    let fixture = Fixture::new(false);
    let dead = fixture.group(&fixture.batch(&[("dead", "1")]));
    let ticket = fixture.ticket_of(&dead);
    std::thread::scope(|scope| {
        let batch = fixture.batch(&[("later", "1")]);
        let pending = fixture.committer.enqueue(&mut &batch, Durable).unwrap();
        let waiter = scope.spawn(move || pending.wait());
        drop(ticket);
        let outcome = waiter.join().unwrap();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    });
    let next = fixture.committer.commit(&mut &fixture.batch(&[("next", "1")]), Durable);
    assert_eq!(next.unwrap_err().kind(), ErrorKind::Unavailable, "no void slot: it is over");
    assert_eq!(fixture.committer.readable(), 0);
}

/// Bug: a failure while a zone was linked poisoned the database, and threads that slept for their
/// run's sync slept on. Cause: only failures of the publisher itself woke them. Fix: whatever stops
/// commit wakes every waiting thread.
#[test]
fn a_failure_while_a_zone_is_linked_wakes_those_who_wait_for_a_sync() {
    let fixture = Fixture::new(false);
    fixture.commit(&[("first", "1")]);
    let (done, outcomes) = mpsc::channel();
    std::thread::scope(|scope| {
        let syncs = fixture.committer.publisher.hold_syncs();
        for key in ["x", "y"] {
            let (fixture, done) = (&fixture, done.clone());
            scope.spawn(move || {
                let batch = fixture.batch(&[(key, "1")]);
                done.send(fixture.committer.commit(&mut &batch, Durable)).unwrap();
            });
        }
        // With their tickets their outcome is unknown from here on.
        while fixture.committer.at_boundary(|last| last) < 3 {
            std::thread::yield_now();
        }
        assert!(outcomes.recv_timeout(A_WHILE).is_err(), "they wait for the sync");
        fixture.machine.fail_sync_after(0);
        assert!(fixture.committer.make_standby(0, 0, Frees::Nothing).is_err());
        let woken = [(); 2].map(|()| outcomes.recv_timeout(Duration::from_secs(60)));
        drop(syncs);
        fixture.committer.wake_all();
        for outcome in woken {
            let outcome = outcome.expect("a failure wakes every waiting thread");
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::UnknownOutcome);
        }
    });
}

#[test]
fn a_commit_whose_sync_failed_has_an_unknown_outcome_and_is_not_served() {
    let fixture = Fixture::new(false);
    fixture.commit(&[("a", "1")]);
    fixture.machine.fail_sync_after(0);
    let failed = fixture.committer.commit(&mut &fixture.batch(&[("a", "2")]), Durable);
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(fixture.get("a", fixture.committer.readable()).as_deref(), Some("1"));
    let later = fixture.committer.commit(&mut &fixture.batch(&[("b", "1")]), Relaxed);
    assert_eq!(later.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_relaxed_commit_does_not_wait_for_a_neighbours_sync() {
    let fixture = Fixture::new(false);
    fixture.commit(&[("a", "1")]);
    std::thread::scope(|scope| {
        let syncs = fixture.committer.publisher.hold_syncs();
        let (done, waits) = mpsc::channel();
        let other = &fixture;
        scope.spawn(move || done.send(other.commit(&[("durable", "1")])).unwrap());
        // Its neighbour may or may not be in front of it; both go.
        let batch = fixture.batch(&[("relaxed", "1")]);
        let lsn = fixture.committer.commit(&mut &batch, Relaxed).unwrap();
        assert_eq!(fixture.get("relaxed", fixture.committer.visible()).as_deref(), Some("1"));
        assert!(fixture.committer.durable() < lsn, "visible, not durable");
        assert!(waits.recv_timeout(A_WHILE).is_err(), "the durable one waits for its sync");
        drop(syncs);
        // The thread that gives the stage back passes it on.
        fixture.committer.sync_floor().unwrap();
        waits.recv().unwrap();
    });
}

#[test]
fn a_sync_makes_all_relaxed_commits_durable_at_once() {
    for dax in [false, true] {
        let fixture = Fixture::new(dax);
        let batch = fixture.batch(&[("k", "1")]);
        for _ in 0..50 {
            fixture.committer.commit(&mut &batch, Relaxed).unwrap();
        }
        // No thread waits for it.
        let pending = fixture.committer.enqueue(&mut &batch, Relaxed).unwrap();
        assert_eq!(fixture.committer.durable(), if dax { 50 } else { 0 });
        let syncs = fixture.syncs();
        fixture.committer.sync().unwrap();
        assert_eq!(fixture.committer.durable(), pending.lsn);
        fixture.committer.sync().unwrap();
        assert_eq!(fixture.syncs() - syncs, u64::from(!dax), "dax: {dax}");
    }
}

#[test]
fn the_floor_is_stored_only_after_what_made_it_true() {
    for dax in [false, true] {
        let fixture = Fixture::new(dax);
        let floor = || Floor::load(&fixture.region).unwrap().0.lsn;
        for lsn in 1..=50 {
            assert_eq!(fixture.commit(&[("k", "1")]), lsn);
            // It rides with every sixteenth group, or the run after it.
            assert_eq!(floor(), (lsn - 1) / 16 * 16);
        }
        assert!(!fixture.committer.is_floor_current());
        assert_eq!(fixture.committer.sync_floor().unwrap(), 50);
        assert_eq!(floor(), 50);
        assert!(fixture.committer.is_floor_current());
    }
}

#[test]
fn nothing_above_the_floor_is_moved_or_freed() {
    let fixture = Fixture::new(false);
    // Two zones, of which the first is sealed. No commit waits for a sync.
    assert_eq!(fixture.zones_of_large(3, Relaxed), [0, 0, 1]);
    let (committer, pool) = (&fixture.committer, &fixture.zones);
    assert_eq!((committer.visible(), committer.durable()), (3, 0));
    pool.sub_live(0, 1);
    assert_eq!(
        pool.mostly_dead(committer.durable(), 2),
        [0_u32; 0],
        "what is not durable is not moved"
    );
    pool.sub_live(0, 1);
    assert_eq!(pool.dead(committer.durable()), [0_u32; 0], "nor freed");
    let floor = committer.sync_floor().unwrap();
    assert_eq!(pool.dead(floor), [0]);
    pool.add_live(0, 1);
    assert_eq!(pool.mostly_dead(floor, 2), [0]);
}

#[test]
fn zones_go_with_one_sync_where_the_floor_is_beyond_them() {
    let fixture = Fixture::new(false);
    assert_eq!(fixture.zones_of_large(3, Relaxed), [0, 0, 1]);
    let (committer, pool) = (&fixture.committer, &fixture.zones);
    assert_eq!(committer.sync_floor().unwrap(), 3);
    // A later floor is on its way, in a run that no thread waits for.
    (4..=19).for_each(|lsn| assert_eq!(fixture.commit(&[("k", "1")]), lsn));
    committer.commit(&mut &fixture.batch(&[("k", "2")]), Relaxed).unwrap();
    assert_eq!((Floor::load(&fixture.region).unwrap().0.lsn, committer.floor_there()), (19, 3));
    pool.sub_live(0, 2);
    let dead = committer.releasable(pool.dead(committer.floor_there()));
    assert_eq!(dead, [0]);
    let syncs = || fixture.region.counts().on(Purpose::Allocation).syncs.load(Ordering::Relaxed);
    let before = syncs();
    committer.release(&dead, || true).unwrap();
    assert_eq!(syncs() - before, 1, "the floor is not written for it");
    assert_eq!(fixture.recover(&first_incarnation()).unwrap().last, 20);
    assert_eq!((committer.sync_floor().unwrap(), committer.floor_there()), (20, 20));
}

/// An edit frees zones. Until the floor on the media names it, damage to it counts as an append
/// that was torn.
#[test]
fn zones_take_the_floor_along_that_names_the_edits_that_freed_them() {
    let fixture = Fixture::new(false);
    assert_eq!(fixture.zones_of_large(3, Relaxed), [0, 0, 1]);
    let (committer, pool) = (&fixture.committer, &fixture.zones);
    assert_eq!(committer.sync_floor().unwrap(), 3);
    let mark = JournalMark { epoch: 1, edit: 9 };
    committer.note_journal(mark);
    pool.sub_live(0, 2);
    let dead = committer.releasable(pool.dead(committer.floor_there()));
    assert_eq!(dead, [0]);
    committer.release(&dead, || true).unwrap();
    let after = fixture.machine.crash(Survive::Nothing);
    assert_eq!(Floor::load(&fixture.region_on(&after)).unwrap().0.journal, mark);
}

#[test]
fn a_boundary_divides_the_order() {
    let fixture = Fixture::new(true);
    fixture.commit(&[("a", "1")]);
    let boundary = fixture.committer.at_boundary(|last| last);
    assert_eq!(boundary, 1);
    assert_eq!(fixture.commit(&[("b", "1")]), boundary + 1);
}

#[test]
fn a_closed_stream_gives_all_its_zones_back() {
    let fixture = Fixture::new(true);
    fixture.commit(&[("shared", "1")]);
    let stream = fixture.committer.open_stream().unwrap();
    fixture.table.stream.store(stream, Ordering::Relaxed);
    fixture.committer.make_standby(stream, 0, Frees::Nothing).unwrap();
    let late = fixture.group(&fixture.batch(&[("own", "1")]));
    let pending = fixture.committer.enqueue(&mut &fixture.batch(&[("own", "0")]), Durable).unwrap();
    let zone = pending.zone;
    pending.wait().unwrap();
    fixture.table.stream.store(0, Ordering::Relaxed);
    let free = fixture.zones.free();
    fixture.committer.close_stream(stream).unwrap();
    // A group that was encoded before comes late: it opens the stream again.
    fixture.committer.enqueue(&mut OneGroup::new(late), Durable).unwrap().wait().unwrap();
    assert_eq!(fixture.committer.reopened_streams(), [stream]);
    fixture.committer.close_stream(stream).unwrap();
    assert_eq!(fixture.committer.reopened_streams(), [0_u32; 0]);
    let last = fixture.committer.sync_floor().unwrap();
    assert_eq!(fixture.recover(&first_incarnation()).unwrap().last, last);
    let own: Vec<u32> = (0..4).filter(|z| fixture.zones.live(*z) > 0 && *z != 0).collect();
    assert!(own.contains(&zone));
    own.iter().for_each(|zone| fixture.zones.sub_live(*zone, fixture.zones.live(*zone)));
    let dead = fixture.committer.releasable(fixture.zones.dead(last));
    assert_eq!(dead, own, "the word of a closed stream is no reason to keep its zone");
    fixture.committer.release(&dead, || true).unwrap();
    assert_eq!(Gidx::load(&fixture.region, stream).unwrap(), None);
    assert!(fixture.zones.free() > free);
    assert_eq!(fixture.recover(&first_incarnation()).unwrap().last, last);
    assert_eq!(fixture.committer.open_stream().unwrap(), stream, "it is used again");
}

/// Commits 1 to 4 in streams A and B, durably, and then a run {5: A, B; 6: A} that reaches the
/// operating system only. Returns where in the region B's part of 5 lies.
fn run_over_two_streams(fixture: &Fixture) -> Span {
    let (a, b) = (0, fixture.committer.open_stream().unwrap());
    let in_stream = |stream: u32, key: &str| {
        fixture.table.stream.store(stream, Ordering::Relaxed);
        fixture.group(&fixture.batch(&[(key, "1")]))
    };
    for stream in [a, b, a, b] {
        let group = in_stream(stream, "before");
        fixture.committer.enqueue(&mut OneGroup::new(group), Durable).unwrap().wait().unwrap();
    }
    fixture.committer.sync_floor().unwrap();
    let mut five = in_stream(a, "in A");
    five.absorb(in_stream(b, "in B"));
    let before = Gidx::load(&fixture.region, b).unwrap().unwrap();
    let six = in_stream(a, "six");
    for group in [five, six] {
        fixture.committer.enqueue(&mut OneGroup::new(group), Relaxed).unwrap().wait().unwrap();
    }
    let at = fixture.zones.geometry().zone(before.zone) + before.tail;
    Span { at, len: 128 }
}

#[test]
fn published_rule_a_run_of_which_one_stream_survives_is_cut_before_its_gap() {
    let fixture = Fixture::new(false);
    let part_in_b = run_over_two_streams(&fixture);
    assert_eq!(fixture.recover(&first_incarnation()).unwrap().last, 6, "the whole run is there");
    fixture.lose(part_in_b);
    // The published rule shifts the tables of the one incomplete LSN back: A would keep 6, which
    // was committed after 5, without 5.
    let recovered = fixture.recover(&first_incarnation()).unwrap();
    assert_eq!(recovered.last, 4);
    let kept: Vec<Lsn> =
        recovered.zones.iter().flat_map(|(_, e)| e).map(|entry| entry.lsn).collect();
    assert_eq!(kept, [1, 3, 2, 4], "neither 5 nor 6, in no stream");
    assert_eq!(recovered.seen, 6, "their LSNs are not used again");
}

#[test]
fn published_rule_entries_above_a_cut_stay_dead_with_good_checksums() {
    let fixture = Fixture::new(false);
    let part_in_b = run_over_two_streams(&fixture);
    fixture.lose(part_in_b);
    // The next opening has recorded its cut. 5's part in A and 6 lie there with good checksums,
    // and no writer completes the part of 5 in B any more.
    let cut = Lived { first: 1, last: 1, cut: 4 };
    let next = Incarnations { current: 2, earlier: vec![cut] };
    let recovered = fixture.recover(&next).unwrap();
    assert_eq!((recovered.last, recovered.seen), (4, 4));
}

#[test]
fn published_rule_a_stream_that_is_gone_holds_nothing_back() {
    let fixture = Fixture::new(false);
    run_over_two_streams(&fixture);
    let floor = fixture.committer.sync_floor().unwrap();
    assert_eq!(floor, 6);
    // B's table was drained, or dropped: its zone is released. Its parts of LSNs below the floor
    // are missing now, which the published rule would take for an incomplete group.
    fixture.committer.close_stream(1).unwrap();
    let zone = (0..4).find(|z| *z != 0 && fixture.zones.live(*z) > 0).unwrap();
    fixture.zones.sub_live(zone, fixture.zones.live(zone));
    let dead = fixture.committer.releasable(fixture.zones.dead(floor));
    assert_eq!(dead, [zone]);
    fixture.committer.release(&dead, || true).unwrap();
    let recovered = fixture.recover(&first_incarnation()).unwrap();
    assert_eq!(recovered.last, 6);
    let in_a: Vec<Lsn> = recovered.zones.iter().flat_map(|(_, e)| e).map(|e| e.lsn).collect();
    assert_eq!(in_a, [1, 3, 5, 6]);
}

#[test]
fn a_zone_has_room_for_its_header_before_anything_else() {
    let fixture = Fixture::new(true);
    let pending = fixture.committer.enqueue(&mut &fixture.batch(&[("a", "1")]), Durable).unwrap();
    pending.wait().unwrap();
    let recovered = fixture.recover(&first_incarnation()).unwrap();
    let geometry = fixture.zones.geometry();
    let first = recovered.zones[0].1[0].payload_at;
    assert_eq!(first, geometry.zone(0) + ZONE_HEADER + super::super::subentry::SUB_HEADER as u64);
}
