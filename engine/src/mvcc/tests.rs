//! Snapshots, horizons and the visible watermark under the scheduler: the types of production.
//! `cargo test -p terrace --lib mvcc::tests`

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::os::schedule::explore;
use crate::os::thread;

use super::{SnapshotRegistry, Watermark};
use crate::base::record::Lsn;
use crate::os::sync::locks::Mutex;

/// The versions of one key, of which each commit writes one.
#[derive(Default)]
struct Versions(Mutex<BTreeSet<Lsn>>);

impl Versions {
    fn at_most(&self, lsn: Lsn) -> Option<Lsn> {
        self.0.lock().range(..=lsn).next_back().copied()
    }
}

/// The publisher makes commits visible, two jobs drop what their horizons do not need, and two
/// readers register and look: each finds the version of its own LSN, as often as it looks. A reader
/// that registered what it had read of the watermark before could come after a horizon without it.
#[test]
fn a_reader_finds_its_version_whatever_horizon_was_taken_meanwhile() {
    let test = || {
        let visible = Arc::new(Watermark::new(1));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let versions = Arc::new(Versions::default());
        versions.0.lock().insert(1);
        let mut threads = Vec::new();
        let written = Arc::clone(&versions);
        threads.push(thread::spawn("model", move || {
            for lsn in 2..=4 {
                written.0.lock().insert(lsn);
                visible.raise(lsn);
            }
        }));
        for _ in 0..2 {
            let (registry, versions) = (Arc::clone(&registry), Arc::clone(&versions));
            threads.push(thread::spawn("model", move || {
                let horizon = registry.horizon();
                let candidates: Vec<Lsn> = versions.0.lock().iter().copied().collect();
                for pair in candidates.windows(2).filter(|pair| pair[1] <= horizon.newest()) {
                    if horizon.readers_of(pair[0], pair[1]).is_none() {
                        versions.0.lock().remove(&pair[0]);
                    }
                }
            }));
        }
        for _ in 0..2 {
            let (registry, versions) = (Arc::clone(&registry), Arc::clone(&versions));
            threads.push(thread::spawn("model", move || {
                let snapshot = registry.register();
                for _ in 0..2 {
                    assert_eq!(versions.at_most(snapshot.lsn()), Some(snapshot.lsn()));
                }
                let again = registry.register();
                assert!(again.lsn() >= snapshot.lsn(), "what was visible stays so");
                assert_eq!(versions.at_most(again.lsn()), Some(again.lsn()));
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(registry.held(), (0, None));
        assert_eq!(registry.horizon().readers(), [4]);
    };
    explore(test);
}
