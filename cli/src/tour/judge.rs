//! Holds what is in the tables against what was acknowledged.
//!
//! A thread of a child has one batch under way at a time. So of each thread exactly the
//! acknowledged batches must be there, in every table, and at most the one after them besides:
//! the one that was in flight when the child was killed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::batch::{self, Stamp};

/// What came out, in batches. Everything but the first two has to be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Commits that returned.
    pub(crate) acknowledged: u64,
    /// Batches that did not return, but are there in whole.
    pub(crate) in_flight: u64,
    /// Acknowledged, but missing in one of their tables or more.
    pub(crate) lost: u64,
    /// There in one table and not in another.
    pub(crate) torn: u64,
    /// There with other bytes than were written.
    pub(crate) wrong: u64,
    /// Records that no child can have written.
    pub(crate) invented: u64,
    /// Batches that are there though an earlier one of their thread is not.
    pub(crate) out_of_order: u64,
}

impl Verdict {
    /// Whether all is as it must be.
    pub(crate) fn is_good(&self) -> bool {
        let Verdict { lost, torn, wrong, invented, out_of_order, .. } = *self;
        (lost, torn, wrong, invented, out_of_order) == (0, 0, 0, 0, 0)
    }
}

/// How many batches of each sort are described.
const LISTED: usize = 5;

/// What is known of one batch.
#[derive(Default)]
struct Known {
    acknowledged: Option<u64>,
    ledger: Option<u64>,
    by_name: Option<u64>,
    /// The record's key, as `ledger` and as `by_name` have it.
    keys: [Option<Vec<u8>>; 2],
}

/// Collects what was acknowledged and what was found.
pub(crate) struct Judge {
    rounds: u32,
    batches: BTreeMap<Stamp, Known>,
    latest: BTreeMap<Vec<u8>, (Stamp, u64)>,
    wrong: BTreeSet<Stamp>,
    invented: u64,
}

impl Judge {
    /// A judge of what the children of so many rounds left.
    pub(crate) fn new(rounds: u32) -> Judge {
        Judge {
            rounds,
            batches: BTreeMap::new(),
            latest: BTreeMap::new(),
            wrong: BTreeSet::new(),
            invented: 0,
        }
    }

    /// A commit returned.
    pub(crate) fn acknowledged(&mut self, stamp: Stamp, hash: u64) {
        self.batches.entry(stamp).or_default().acknowledged = Some(hash);
    }

    /// A record of `ledger`. `is_real` says whether the source has such a record.
    pub(crate) fn ledger<E>(
        &mut self,
        key: &[u8],
        value: &[u8],
        is_real: impl FnOnce(&[u8], &[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let Some((stamp, entry)) = batch::read_ledger(key, value) else {
            self.invented += 1;
            return Ok(());
        };
        if batch::hash(stamp, entry.key, entry.value) != entry.hash {
            self.wrong.insert(stamp);
        } else if !stamp.is_possible(self.rounds) || !is_real(entry.key, entry.value)? {
            self.invented += 1;
        }
        let known = self.batches.entry(stamp).or_default();
        known.ledger = Some(entry.hash);
        known.keys[0] = Some(entry.key.to_vec());
        Ok(())
    }

    /// A record of `by_name`.
    pub(crate) fn by_name(&mut self, key: &[u8], value: &[u8]) {
        match batch::read_name(key, value) {
            Some((stamp, name, hash)) => {
                let known = self.batches.entry(stamp).or_default();
                known.by_name = Some(hash);
                known.keys[1] = Some(name.to_vec());
            }
            None => self.invented += 1,
        }
    }

    /// A record of `latest`.
    pub(crate) fn latest(&mut self, key: &[u8], value: &[u8]) {
        match batch::read_latest(value) {
            Some(found) => drop(self.latest.insert(key.to_vec(), found)),
            None => self.invented += 1,
        }
    }

    /// What came out, and a line on each of the first batches that are not as they must be.
    pub(crate) fn verdict(mut self) -> (Verdict, Vec<String>) {
        let mut torn = self.torn_in_latest();
        let mut lost = BTreeSet::new();
        let mut verdict = Verdict::default();
        let mut last_acknowledged: BTreeMap<u32, u64> = BTreeMap::new();
        for (stamp, known) in &self.batches {
            if known.acknowledged.is_some() {
                last_acknowledged.insert(stamp.thread, stamp.sequence);
            }
        }
        // How many batches of each thread are there, and which is the last of them.
        let mut there: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (stamp, known) in &self.batches {
            if known.ledger.is_some() != known.by_name.is_some() {
                torn.insert(*stamp);
            }
            let is_whole =
                known.ledger.is_some() && known.by_name.is_some() && !torn.contains(stamp);
            if is_whole {
                let (count, last) = there.entry(stamp.thread).or_default();
                (*count, *last) = (*count + 1, stamp.sequence);
                let hashes = [known.ledger, known.by_name, known.acknowledged.or(known.ledger)];
                if hashes.iter().any(|hash| *hash != known.ledger) || known.keys[0] != known.keys[1]
                {
                    self.wrong.insert(*stamp);
                }
            }
            if known.acknowledged.is_some() {
                verdict.acknowledged += 1;
                if !is_whole {
                    lost.insert(*stamp);
                }
            } else if is_whole {
                let next = last_acknowledged.get(&stamp.thread).map_or(0, |last| last + 1);
                match stamp.sequence == next {
                    true => verdict.in_flight += 1,
                    false => self.invented += 1,
                }
            }
        }
        verdict.out_of_order =
            there.values().filter(|(count, last)| *count != last + 1).count() as u64;
        verdict.lost = lost.len() as u64;
        verdict.torn = torn.len() as u64;
        verdict.wrong = self.wrong.len() as u64;
        verdict.invented = self.invented;
        let bad = [("lost", &lost), ("torn", &torn), ("wrong", &self.wrong)];
        let lines = bad.iter().flat_map(|(what, stamps)| {
            stamps.iter().take(LISTED).map(|stamp| self.describe(what, *stamp))
        });
        (verdict, lines.collect())
    }

    fn describe(&self, what: &str, stamp: Stamp) -> String {
        let known = self.batches.get(&stamp);
        let there = |is_there: bool| if is_there { "there" } else { "missing" };
        format!(
            "{what}: batch {} of thread {} in round {}: ledger {}, by_name {}, {}",
            stamp.sequence,
            stamp.thread & 0xff,
            (stamp.thread >> 8) + 1,
            there(known.is_some_and(|known| known.ledger.is_some())),
            there(known.is_some_and(|known| known.by_name.is_some())),
            match known.and_then(|known| known.acknowledged) {
                Some(_) => "acknowledged",
                None => "not acknowledged",
            }
        )
    }

    /// The batches whose part in `latest` is missing, or is all there is of them.
    fn torn_in_latest(&mut self) -> BTreeSet<Stamp> {
        // In order of stamp, so that the last one of a key stays.
        let mut due: BTreeMap<&[u8], (Stamp, u64)> = BTreeMap::new();
        for (stamp, known) in &self.batches {
            if let (Some(hash), Some(key)) = (known.ledger, &known.keys[0]) {
                due.insert(key, (*stamp, hash));
            }
        }
        let mut torn = BTreeSet::new();
        for (key, (stamp, hash)) in &due {
            match self.latest.get(*key) {
                Some((found, found_hash)) if found == stamp => {
                    if found_hash != hash {
                        self.wrong.insert(*stamp);
                    }
                }
                _ => drop(torn.insert(*stamp)),
            }
        }
        for (key, (stamp, _)) in &self.latest {
            let in_ledger = self.batches.get(stamp).and_then(|known| known.keys[0].as_ref());
            if in_ledger != Some(key) {
                torn.insert(*stamp);
            }
        }
        torn
    }
}

#[cfg(test)]
mod tests;
