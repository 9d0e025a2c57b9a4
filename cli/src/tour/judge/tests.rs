use std::convert::Infallible;

use super::super::batch::{entry, hash, latest, name};
use super::*;

/// The tables as the children left them, to be spoiled before they are judged.
#[derive(Default)]
struct Left {
    acknowledged: BTreeMap<Stamp, u64>,
    ledger: BTreeMap<Stamp, Vec<u8>>,
    by_name: BTreeMap<Vec<u8>, Vec<u8>>,
    latest: BTreeMap<Vec<u8>, Vec<u8>>,
}

const KEYS: [&[u8]; 2] = [b"first", b"second"];
const VALUE: &[u8] = b"real";

fn stamp(thread: u32, sequence: u64) -> Stamp {
    Stamp { thread, sequence }
}

impl Left {
    /// What two threads leave after ten acknowledged batches each.
    fn after_ten() -> Left {
        let mut left = Left::default();
        for thread in 0..2 {
            for sequence in 0..10 {
                left.commit(stamp(thread, sequence));
                left.acknowledge(stamp(thread, sequence));
            }
        }
        left
    }

    fn key(stamp: Stamp) -> &'static [u8] {
        KEYS[stamp.thread as usize % 2]
    }

    fn commit(&mut self, stamp: Stamp) {
        let key = Left::key(stamp);
        let hash = hash(stamp, key, VALUE);
        self.ledger.insert(stamp, entry(hash, key, VALUE));
        self.by_name.insert(name(key, stamp), hash.to_le_bytes().to_vec());
        self.latest.insert(key.to_vec(), latest(stamp, hash));
    }

    fn acknowledge(&mut self, stamp: Stamp) {
        self.acknowledged.insert(stamp, hash(stamp, Left::key(stamp), VALUE));
    }

    fn judged(&self) -> Verdict {
        let mut judge = Judge::new(1);
        for (stamp, hash) in &self.acknowledged {
            judge.acknowledged(*stamp, *hash);
        }
        for (stamp, value) in &self.ledger {
            let is_real = |_: &[u8], value: &[u8]| Ok::<bool, Infallible>(value == VALUE);
            judge.ledger(&stamp.encode(), value, is_real).unwrap();
        }
        for (key, value) in &self.by_name {
            judge.by_name(key, value);
        }
        for (key, value) in &self.latest {
            judge.latest(key, value);
        }
        judge.verdict().0
    }
}

#[test]
fn everything_there_is_good() {
    let mut left = Left::after_ten();
    assert_eq!(left.judged(), Verdict { acknowledged: 20, ..Verdict::default() });
    left.commit(stamp(1, 10));
    let verdict = left.judged();
    assert_eq!(verdict, Verdict { acknowledged: 20, in_flight: 1, ..Verdict::default() });
    assert!(verdict.is_good());
}

#[test]
fn an_acknowledged_batch_that_is_gone_is_lost() {
    let mut left = Left::after_ten();
    left.acknowledge(stamp(0, 10));
    let verdict = left.judged();
    assert_eq!((verdict.lost, verdict.torn), (1, 0));
    assert!(!verdict.is_good());
}

#[test]
fn a_hole_is_lost_and_out_of_order() {
    let mut left = Left::after_ten();
    left.ledger.remove(&stamp(0, 4));
    left.by_name.remove(&name(KEYS[0], stamp(0, 4)));
    let verdict = left.judged();
    assert_eq!((verdict.lost, verdict.torn, verdict.out_of_order), (1, 0, 1));
}

#[test]
fn a_batch_in_one_table_only_is_torn() {
    let mut left = Left::after_ten();
    left.ledger.remove(&stamp(0, 4));
    let verdict = left.judged();
    assert_eq!((verdict.lost, verdict.torn), (1, 1));

    let mut left = Left::after_ten();
    left.commit(stamp(0, 10));
    left.by_name.remove(&name(KEYS[0], stamp(0, 10)));
    let verdict = left.judged();
    assert_eq!((verdict.lost, verdict.torn, verdict.in_flight), (0, 1, 0));
}

#[test]
fn an_overwrite_that_went_missing_is_torn() {
    let mut left = Left::after_ten();
    let older = stamp(0, 8);
    left.latest.insert(KEYS[0].to_vec(), latest(older, hash(older, KEYS[0], VALUE)));
    let verdict = left.judged();
    assert_eq!((verdict.lost, verdict.torn), (1, 1));

    let mut left = Left::after_ten();
    left.latest.remove(KEYS[0]);
    assert_eq!(left.judged().torn, 1);
}

#[test]
fn an_overwrite_alone_is_torn() {
    let mut left = Left::after_ten();
    let next = stamp(0, 10);
    left.latest.insert(KEYS[0].to_vec(), latest(next, hash(next, KEYS[0], VALUE)));
    // The batch before it is overwritten by one that is not there.
    assert!(left.judged().torn >= 1);
}

#[test]
fn other_bytes_are_wrong() {
    let mut left = Left::after_ten();
    let at = stamp(0, 4);
    left.ledger.insert(at, entry(hash(at, KEYS[0], VALUE), KEYS[0], b"rotten"));
    assert_eq!(left.judged().wrong, 1);

    let mut left = Left::after_ten();
    left.by_name.insert(name(KEYS[0], at), vec![0; 8]);
    assert_eq!(left.judged().wrong, 1);

    let mut left = Left::after_ten();
    left.acknowledged.insert(at, 0);
    assert_eq!(left.judged().wrong, 1);
}

#[test]
fn what_no_child_wrote_is_invented() {
    // A sequence too far ahead.
    let mut left = Left::after_ten();
    left.commit(stamp(0, 10));
    left.commit(stamp(0, 11));
    assert_eq!(left.judged().invented, 1);

    // A thread that never ran.
    let mut left = Left::after_ten();
    left.commit(stamp(Stamp::thread(1, 0), 0));
    assert_eq!(left.judged().invented, 1);

    // A record that the source does not have.
    let mut left = Left::after_ten();
    let at = stamp(1, 10);
    left.commit(at);
    left.ledger.insert(at, entry(hash(at, KEYS[1], b"unreal"), KEYS[1], b"unreal"));
    assert!(left.judged().invented >= 1);

    // Keys of no known shape.
    let mut left = Left::after_ten();
    left.by_name.insert(b"short".to_vec(), vec![0; 8]);
    assert_eq!(left.judged().invented, 1);
}
