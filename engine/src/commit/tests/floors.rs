//! How far the floor on the media is behind what is durable, and that its slots are written whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::super::floor::Floor;
use super::Fixture;
use super::rules::A_WHILE;
use crate::base::options::Durability::{Durable, Relaxed};
use crate::base::record::Lsn;
use crate::commit::pending_floor::most_lag;
use crate::pm::{Geometry, LINE, Span};
use terrace_testkit::Survive;

impl Fixture {
    /// How many LSNs the floor that a power cut leaves is behind `durable`.
    fn lag(&self, durable: Lsn) -> u64 {
        let after = self.machine.crash(Survive::Nothing);
        durable - Floor::load(&self.region_on(&after)).unwrap().0.lsn
    }
}

/// Bug: a slot of the floor could be torn in the file. Cause: one thread stored a floor to the
/// image while another wrote the page that it lies in. Fix: the page is copied under the lock that
/// a floor is stored under, and the copy is written.
#[test]
fn a_slot_is_written_whole_while_the_next_floor_is_stored() {
    let fixture = Fixture::new(false);
    let (region, is_over) = (&fixture.region, AtomicBool::new(false));
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut floor = Floor { number: 2, lsn: 1, ..Floor::default() };
            while !is_over.load(Ordering::Relaxed) {
                drop(floor.store(region));
                floor.number += 1;
                floor.lsn = floor.number.wrapping_mul(0x0101_0101_0101_0101) >> 8;
            }
        });
        let is_torn = |slot| {
            let bytes = region.peek(Span { at: Geometry::floor_slot(slot), len: LINE }).unwrap();
            Floor::decode(&bytes).is_err()
        };
        let mut torn = 0;
        for _ in 0..40_000 {
            let page = region.fence([region.flush_again(Geometry::words())]);
            region.write_back(&page).unwrap();
            torn += (0..2).filter(|slot| is_torn(*slot)).count();
        }
        is_over.store(true, Ordering::Relaxed);
        torn
    });
    assert_eq!(torn, 0);
}

/// Bug: the floor was said to be sixteen groups behind, and was behind by as many groups as one
/// sync made durable. Cause: a floor goes with a run, and says what was durable before it. Fix: the
/// publisher writes the floor before a run counts as durable that would leave it further behind.
#[test]
fn a_long_run_of_relaxed_commits_leaves_the_floor_near() {
    for dax in [false, true] {
        let fixture = Fixture::of_units(dax, 64);
        let batch = fixture.batch(&[("k", "1")]);
        for _ in 0..3 * most_lag() {
            fixture.committer.commit(&mut &batch, Relaxed).unwrap();
        }
        let durable = fixture.committer.commit(&mut &batch, Durable).unwrap();
        assert_eq!(durable, 3 * most_lag() + 1);
        let lag = fixture.lag(durable);
        assert!(lag <= most_lag(), "dax {dax}: {lag} groups");
        assert_eq!(fixture.lag(fixture.committer.sync_floor().unwrap()), 0, "dax {dax}");
    }
}

/// Where the publisher finds the floor's state taken again and again, it goes on without it; but
/// not for ever.
#[test]
fn a_publisher_waits_for_the_floor_when_it_is_far_behind() {
    let fixture = &Fixture::of_units(true, 64);
    let (done, all) = mpsc::channel();
    std::thread::scope(|scope| {
        let taken = fixture.committer.publisher.floor_writer.lock();
        scope.spawn(move || {
            let batch = fixture.batch(&[("k", "1")]);
            (0..most_lag() + 100)
                .for_each(|_| drop(fixture.committer.commit(&mut &batch, Durable)));
            done.send(()).unwrap();
        });
        while fixture.committer.durable() < most_lag() {
            std::thread::yield_now();
        }
        let waits = all.recv_timeout(A_WHILE).is_err();
        let durable = fixture.committer.durable();
        drop(taken);
        assert!(waits, "it waits");
        assert_eq!(durable, most_lag());
        all.recv().unwrap();
    });
    assert_eq!(fixture.committer.durable(), most_lag() + 100);
    assert!(fixture.lag(most_lag() + 100) <= most_lag());
}
