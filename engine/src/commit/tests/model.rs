//! Commit under the scheduler: the types of production, three threads with two groups each, in
//! many schedules. `cargo test -p terrace --lib commit::tests::model`
//!
//! The scheduler interleaves at every access to what threads share, and finds every sleeper that
//! no thread wakes (a deadlock). The region and the zones are the real ones, on a simulated
//! machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::os::schedule::explore;
use crate::os::thread;

use super::super::Batch;
use super::super::floor::Floor;
use super::Fixture;
use crate::base::error::Result;
use crate::base::options::Durability::{self, Durable, Relaxed};
use crate::base::record::{Kind, Lsn};

/// Each thread commits its groups one after the other, and reads them back at once.
fn commit_all(dax: bool, group: u32, threads: &'static [[Durability; 2]]) {
    explore(move || {
        let fixture = Arc::new(Fixture::new(dax));
        fixture.committer.set_group_bounds(group, 1 << 16);
        let threads: Vec<_> = (0..threads.len())
            .map(|t| {
                let fixture = Arc::clone(&fixture);
                thread::spawn("model", move || {
                    for (i, durability) in threads[t].iter().enumerate() {
                        let (key, value) = (format!("{t}"), format!("{i}"));
                        let batch = fixture.batch(&[(&key, &value)]);
                        let lsn = fixture.committer.commit(&mut &batch, *durability).unwrap();
                        let committer = &fixture.committer;
                        assert!(committer.visible() >= lsn, "a commit sees itself");
                        if *durability == Durable {
                            assert!(committer.durable() >= lsn, "acknowledged means durable");
                        }
                        assert_eq!(fixture.get(&key, lsn), Some(value));
                    }
                })
            })
            .collect();
        let commits = 2 * threads.len() as u64;
        threads.into_iter().for_each(|t| t.join().unwrap());
        let groups = fixture.committer.counts.groups.load(Ordering::Relaxed);
        assert!(group > 1 || groups == commits, "every batch is a group of its own");
        assert_eq!(fixture.committer.visible(), groups, "LSNs are dense");
        assert_eq!(fixture.committer.sync_floor().unwrap(), groups);
        assert!(fixture.committer.is_floor_current());
    });
}

#[test]
fn three_threads_on_a_file() {
    commit_all(false, 1, &[[Durable; 2]; 3]);
}

#[test]
fn three_threads_on_persistent_memory() {
    commit_all(true, 1, &[[Durable; 2]; 3]);
}

#[test]
fn relaxed_beside_durable() {
    commit_all(false, 1, &[[Relaxed, Durable], [Durable, Relaxed], [Relaxed, Relaxed]]);
}

#[test]
fn groups_of_two_batches() {
    commit_all(false, 2, &[[Durable; 2]; 3]);
    commit_all(true, 2, &[[Durable; 2]; 3]);
}

/// Three threads with two groups each, over two tables that have a stream each: of one table, of
/// the other, and of both. The first zone of each stream is all but full, so that both are left
/// meanwhile for zones that some thread has to link.
#[test]
fn two_streams_that_go_on_to_their_next_zones() {
    let filler = "x".repeat((128 << 10) - 600);
    // To fill zones takes longer than all else.
    explore(move || {
        let fixture = Arc::new(Fixture::of_units(true, 8));
        let (other, second) = fixture.second_table();
        let targets = [fixture.target.clone(), second];
        for target in &targets {
            let mut batch = Batch::default();
            batch.push(target, Kind::Put, b"filler", filler.as_bytes());
            fixture.committer.commit(&mut &batch, Durable).unwrap();
        }
        let begun = fixture.committer.visible();
        let threads: Vec<_> = (0..3)
            .map(|t| {
                let (fixture, targets) = (Arc::clone(&fixture), targets.clone());
                let tables = [Arc::clone(&fixture.table), Arc::clone(&other)];
                thread::spawn("model", move || {
                    for round in 0..2 {
                        let mut batch = Batch::default();
                        let which = [0..1, 1..2, 0..2][(t + round) % 3].clone();
                        let (key, value) = (format!("{t}"), format!("{round}").repeat(200));
                        for target in &targets[which.clone()] {
                            batch.push(target, Kind::Put, key.as_bytes(), value.as_bytes());
                        }
                        let lsn = fixture.committer.commit(&mut &batch, Durable).unwrap();
                        assert!(fixture.committer.durable() >= lsn, "acknowledged means durable");
                        for table in &tables[which] {
                            assert_eq!(table.value(&key, lsn).as_ref(), Some(&value));
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let switches = fixture.committer.counts.zone_switches.load(Ordering::Relaxed);
        assert!(switches >= 3, "first zones, and those after them: {switches}");
        assert_eq!(fixture.committer.sync_floor().unwrap(), begun + 6, "LSNs are dense");
        assert!(fixture.committer.is_floor_current());
        let floor = Floor::load(&fixture.region).unwrap().0;
        assert_eq!(floor.lsn, begun + 6);
    });
}

/// Two threads with a commit each, and what became of it.
fn commit_beside(fixture: &Arc<Fixture>) -> Vec<thread::JoinHandle<Result<Lsn>>> {
    let commit = |key| {
        let fixture = Arc::clone(fixture);
        thread::spawn("model", move || {
            let batch = fixture.batch(&[(key, "1")]);
            fixture.committer.enqueue(&mut &batch, Durable).and_then(|pending| pending.wait())
        })
    };
    ["a", "b"].into_iter().map(commit).collect()
}

#[test]
fn the_background_settles_meanwhile() {
    [false, true].into_iter().for_each(sync_floor_meanwhile);
}

fn sync_floor_meanwhile(dax: bool) {
    explore(move || {
        let fixture = Arc::new(Fixture::new(dax));
        // On persistent memory the next group carries the floor.
        for _ in 0..2 {
            fixture.committer.commit(&mut &fixture.batch(&[("before", "1")]), Durable).unwrap();
        }
        let other = Arc::clone(&fixture);
        let background = thread::spawn("model", move || {
            other.committer.sync_floor().unwrap();
            other.committer.while_quiet(|| ());
            other.committer.releasable(vec![0, 1]);
        });
        commit_beside(&fixture).into_iter().for_each(|t| assert!(t.join().unwrap().is_ok()));
        background.join().unwrap();
        assert_eq!(fixture.committer.durable(), 4);
        assert_eq!(fixture.committer.sync_floor().unwrap(), 4);
    });
}

#[test]
fn a_poisoned_database_wakes_everybody() {
    explore(|| {
        let fixture = Arc::new(Fixture::new(false));
        let threads = commit_beside(&fixture);
        fixture.committer.poison.set_because("test".into());
        fixture.committer.wake_all();
        // Acknowledged, refused or of unknown outcome, and back in every case.
        threads.into_iter().for_each(|t| drop(t.join().unwrap()));
    });
}
