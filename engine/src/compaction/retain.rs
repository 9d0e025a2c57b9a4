//! Which versions a compaction keeps.
//!
//! Of each key it keeps the newest version, and every version that a snapshot reads or may come to
//! read. A delete is dropped when it hides nothing any more: no deeper level can have its key, and
//! every reader is at or above it. Older versions that came with it are dropped too. If a version
//! is kept for readers alone, it is noted for which.
//!
//! An expired version is dropped, whatever lies below it: that is older and has expired too. So an
//! expired delete hides nothing.
//!
//! Operands go on with the next older version of their key, so that one is needed where they are.
//! If no reader tells the two apart, it is joined to them; else it is kept, and joined later. A
//! range tombstone between the two ends the operands, and the older version is not needed by them.
//! If operands are dropped, no reader sees them, and nothing is joined to them.
//!
//! A range tombstone over a key counts as a newer version. Newer versions and range tombstones in
//! upper levels are not looked at. That keeps too much, never too little.

use crate::base::error::Result;
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::operator::{TableOperator, operand_list};
use crate::base::record::{
    ChainBase, EntryRef, Kind, Lsn, MAX_OPERAND_LEN, chain_len, encode_chain,
};
use crate::mvcc::{Horizon, Readers};

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    Keep,
    Drop,
    /// It goes into the operands that come before it, and is no record of its own any more.
    Join,
}

/// The record that came before.
#[derive(Clone, Copy, Debug)]
struct RecordBefore {
    seq: Lsn,
    /// Whether it stays, and has operands that go on with the next older version.
    goes_on: bool,
}

/// Decides on the records of a forward walk, one after the other.
#[derive(Debug)]
pub(crate) struct Retain<'a> {
    horizon: &'a Horizon,
    /// Everything at or below it has expired for every reader.
    expired: Lsn,
    key: Vec<u8>,
    /// The last record, if it was of the same key.
    newer: Option<RecordBefore>,
    kept_for: Option<Readers>,
}

impl<'a> Retain<'a> {
    /// Keeps what `horizon` needs of what is newer than `expired`.
    pub(crate) fn new(horizon: &'a Horizon, expired: Lsn) -> Retain<'a> {
        Retain { horizon, expired, key: Vec::new(), newer: None, kept_for: None }
    }

    /// The key of the record that it decided on last.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.newer.map(|_| self.key.as_slice())
    }

    /// The readers for which the last record was kept, if it is kept for them alone.
    pub(crate) fn kept_for(&self) -> Option<Readers> {
        self.kept_for
    }

    /// What becomes of `entry`; `hidden_by` is the oldest range tombstone that hides it. `bottom`
    /// says whether no deeper level can have its key; it is asked only about tombstones.
    pub(crate) fn fate(
        &mut self,
        entry: &EntryRef<'_>,
        hidden_by: Option<Lsn>,
        bottom: impl FnOnce() -> bool,
    ) -> Retention {
        if self.newer.is_none() || self.key != entry.key {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.newer = None;
        }
        let before = self.newer.take();
        let fate = self.decide(entry, before, hidden_by, bottom);
        let goes_on = fate != Retention::Drop && entry.is_open_merge();
        self.newer = Some(RecordBefore { seq: entry.seq, goes_on });
        fate
    }

    fn decide(
        &mut self,
        entry: &EntryRef<'_>,
        before: Option<RecordBefore>,
        hidden_by: Option<Lsn>,
        bottom: impl FnOnce() -> bool,
    ) -> Retention {
        self.kept_for = None;
        if entry.seq <= self.expired {
            return Retention::Drop;
        }
        let newer = before.map(|before| before.seq).into_iter().chain(hidden_by).min();
        self.kept_for = newer.and_then(|newer| self.horizon.readers_of(entry.seq, newer));
        if newer.is_some() && self.kept_for.is_none() {
            let is_between = |seq: Lsn| hidden_by.is_some_and(|hidden_by| hidden_by <= seq);
            let joins = before.is_some_and(|before| before.goes_on && !is_between(before.seq));
            return if joins { Retention::Join } else { Retention::Drop };
        }
        if entry.kind == Kind::Delete && bottom() {
            let older = self.horizon.readers_below(entry.seq);
            self.kept_for = self.kept_for.or(older);
            return if older.is_some() { Retention::Keep } else { Retention::Drop };
        }
        Retention::Keep
    }
}

// Operands on their way through a merge.
//
// The records of operands of a key that no reader tells apart become one. With the value below
// them, or with nothing below them, they become a value. If the operator fails, or the opening
// does not know it, they stay operands, in one record.

/// The operands of a key, of one record or of several that were joined.
pub(super) struct Operands {
    pub(super) key: Vec<u8>,
    /// The number of the newest record, which is that of what they become.
    pub(super) seq: Lsn,
    /// The readers for which the newest record was kept, if it was kept for them alone.
    pub(super) kept_for: Option<Readers>,
    base: Base,
    /// The newest first.
    operands: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Base {
    Below,
    None,
    Value(Vec<u8>),
}

impl Operands {
    /// Those of a record.
    pub(super) fn of(entry: &EntryRef<'_>, kept_for: Option<Readers>) -> Result<Operands> {
        let (key, operands) = (entry.key.to_vec(), Vec::new());
        let mut this = Operands { key, seq: entry.seq, kept_for, base: Base::Below, operands };
        this.take(entry)?;
        Ok(this)
    }

    /// Adds an older record of the key, the value of which does not lie apart; whether it is added.
    /// It is not if the record would become too long.
    pub(super) fn join(&mut self, entry: &EntryRef<'_>) -> Result<bool> {
        debug_assert!(
            self.key == entry.key && entry.seq < self.seq && matches!(self.base, Base::Below),
            "an older record of the key is joined to operands that go on"
        );
        let own = chain_len(None, self.operands.iter().map(Vec::len));
        if own + 4 + entry.value.len() > MAX_VALUE_LEN {
            return Ok(false);
        }
        match entry.kind {
            Kind::Merge => self.take(entry)?,
            Kind::Delete => self.base = Base::None,
            _ => self.base = Base::Value(entry.value.to_vec()),
        }
        Ok(true)
    }

    fn take(&mut self, entry: &EntryRef<'_>) -> Result<()> {
        let chain = operand_list(entry.key, entry.value)?;
        let from = self.operands.len();
        self.operands.extend(chain.operands().map(<[u8]>::to_vec));
        self.operands[from..].reverse();
        self.base = match chain.base {
            ChainBase::Below => Base::Below,
            ChainBase::None => Base::None,
            ChainBase::Value(value) => Base::Value(value.to_vec()),
        };
        Ok(())
    }

    /// What becomes of them: a value, or a record of operands. `is_bottom` says that no older
    /// version of the key is left.
    pub(super) fn end(&self, operator: &TableOperator, is_bottom: bool) -> (Kind, Vec<u8>) {
        let base = match &self.base {
            Base::Value(value) => ChainBase::Value(value),
            Base::Below if !is_bottom => ChainBase::Below,
            Base::Below | Base::None => ChainBase::None,
        };
        let value = match base {
            ChainBase::Below => None,
            ChainBase::None => self.fold(operator, None),
            ChainBase::Value(value) => self.fold(operator, Some(value)),
        };
        if let Some(value) = value {
            return (Kind::Put, value);
        }
        if let (ChainBase::Below, [_, .., oldest]) = (base, &self.operands[..])
            && let Some(one) = self.fold_newer(operator, oldest)
        {
            return (Kind::Merge, encode_chain(base, 1, [one.as_slice()].into_iter()));
        }
        (Kind::Merge, encode_chain(base, 1, self.oldest_first()))
    }

    fn oldest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.operands.iter().rev().map(Vec::as_slice)
    }

    /// The value that they make of `base`; `None` if the operator fails. A read says why.
    fn fold(&self, operator: &TableOperator, base: Option<&[u8]>) -> Option<Vec<u8>> {
        operator.fold(&self.key, base, self.oldest_first()).ok()
    }

    /// The one operand that does what they do; `None` if the operator fails, or if it is too long.
    fn fold_newer(&self, operator: &TableOperator, oldest: &[u8]) -> Option<Vec<u8>> {
        let one = operator.fold(&self.key, Some(oldest), self.oldest_first().skip(1)).ok();
        one.filter(|one| one.len() <= MAX_OPERAND_LEN)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::mvcc::{SnapshotRegistry, Watermark};
    use crate::sstable::tests::{Entry, entries};

    /// What a reader at `lsn` sees of `key`, all up to `expired` being too old.
    fn read<'a>(list: &'a [Entry], key: &[u8], lsn: Lsn, expired: Lsn) -> Option<&'a [u8]> {
        let newest = list.iter().find(|e| e.key == key && e.seq <= lsn)?;
        let shown = newest.kind == Kind::Put && newest.seq > expired;
        shown.then_some(newest.value.as_slice())
    }

    fn retained(list: &[Entry], horizon: &Horizon, expired: Lsn, bottom: bool) -> Vec<Entry> {
        let mut retain = Retain::new(horizon, expired);
        list.iter()
            .filter(|e| retain.fate(&e.as_ref(), None, || bottom) == Retention::Keep)
            .cloned()
            .collect()
    }

    proptest! {
        #[test]
        fn no_reader_sees_a_difference(
            list in entries(0..80),
            deeper in entries(0..20),
            mut snapshots in prop::collection::vec(0u64..14, 0..4),
            newest in 0u64..14,
            expired in 0u64..14,
        ) {
            snapshots.retain(|lsn| *lsn <= newest);
            snapshots.sort_unstable();
            let visible = Arc::new(Watermark::new(0));
            let registry = SnapshotRegistry::new(Arc::clone(&visible));
            let held: Vec<_> = snapshots
                .iter()
                .map(|lsn| {
                    visible.raise(*lsn);
                    registry.register()
                })
                .collect();
            visible.raise(newest);
            let horizon = registry.horizon();
            // Deeper levels are older: only keys without an older version above stay.
            let deeper: Vec<Entry> = deeper
                .into_iter()
                .filter(|d| list.iter().all(|e| e.key != d.key || e.seq > d.seq))
                .collect();
            // No reader is as old as what has expired. Some see more of it as expired.
            let expired = expired.min(horizon.oldest());
            for bottom in [true, false] {
                let below: &[Entry] = if bottom { &[] } else { &deeper };
                let kept = retained(&list, &horizon, expired, bottom);
                prop_assert!(kept.iter().all(|e| e.seq > expired));
                let (before, after) = ([&list, below].concat(), [&kept, below].concat());
                for key in list.iter().map(|e| &e.key) {
                    for lsn in snapshots.iter().copied().chain(newest..16) {
                        for later in [expired, expired + 1, lsn] {
                            let later = later.max(expired);
                            prop_assert_eq!(
                                read(&before, key, lsn, later),
                                read(&after, key, lsn, later)
                            );
                        }
                    }
                }
                let again = retained(&kept, &horizon, expired, bottom);
                prop_assert_eq!(again, kept, "once is enough");
            }
            drop(held);
        }
    }

    fn horizon(newest: Lsn) -> Horizon {
        SnapshotRegistry::new(Arc::new(Watermark::new(newest))).horizon()
    }

    #[test]
    fn without_snapshots_one_version_stays_and_tombstones_go_at_the_bottom() {
        let list =
            [Entry::put(b"a", 3, b"new"), Entry::put(b"a", 1, b"old"), Entry::delete(b"b", 2)];
        assert_eq!(retained(&list, &horizon(9), 0, true), &list[..1]);
        assert_eq!(retained(&list, &horizon(9), 0, false), [list[0].clone(), list[2].clone()]);
        assert_eq!(retained(&list, &horizon(1), 0, true), list, "not all of it is visible yet");
    }

    #[test]
    fn what_operands_go_on_with_is_joined_or_kept() {
        let visible = Arc::new(Watermark::new(4));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let _four = registry.register();
        visible.raise(20);
        let horizon = registry.horizon();
        let open = |seq| Entry { kind: Kind::Merge, ..Entry::put(b"k", seq, &[0, 1, 0, 0, 0, 0]) };
        let closed =
            |seq| Entry { kind: Kind::Merge, ..Entry::put(b"k", seq, &[1, 1, 0, 0, 0, 0]) };
        let put = |seq| Entry::put(b"k", seq, b"value");
        let fates = |list: &[(Entry, Option<Lsn>)]| {
            let mut retain = Retain::new(&horizon, 0);
            let fate = |(entry, hidden_by): &(Entry, Option<Lsn>)| {
                retain.fate(&entry.as_ref(), *hidden_by, || true)
            };
            list.iter().map(fate).collect::<Vec<_>>()
        };
        use Retention::{Drop, Join, Keep};
        let delete = Entry::delete(b"k", 7);
        assert_eq!(
            fates(&[(open(9), None), (open(8), None), (put(7), None), (put(6), None)]),
            [Keep, Join, Join, Drop]
        );
        assert_eq!(fates(&[(open(9), None), (delete, None)]), [Keep, Join]);
        assert_eq!(fates(&[(closed(9), None), (put(7), None)]), [Keep, Drop]);
        assert_eq!(fates(&[(put(9), None), (open(8), None), (put(7), None)]), [Keep, Drop, Drop]);
        // The snapshot reads the value at 4.
        assert_eq!(fates(&[(open(9), None), (put(4), None)]), [Keep, Keep]);
        assert_eq!(fates(&[(put(9), None), (open(4), None), (put(3), None)]), [Keep, Keep, Join]);
        // A range tombstone between the two, with the number of the first, and over both.
        assert_eq!(fates(&[(open(9), None), (put(6), Some(8))]), [Keep, Drop]);
        assert_eq!(fates(&[(open(9), None), (put(6), Some(9))]), [Keep, Drop]);
        assert_eq!(fates(&[(open(9), Some(12)), (put(6), Some(12))]), [Drop, Drop]);
    }

    #[test]
    fn it_says_for_whom_it_keeps_what() {
        let visible = Arc::new(Watermark::new(4));
        let registry = SnapshotRegistry::new(Arc::clone(&visible));
        let _four = registry.register();
        visible.raise(10);
        let horizon = registry.horizon();
        let list = [
            (Entry::put(b"a", 9, b"new"), None),
            (Entry::put(b"a", 3, b"old"), None),
            (Entry::delete(b"b", 8), None),
            (Entry::put(b"c", 2, b"hidden"), Some(6)),
            (Entry::put(b"d", 2, b"only"), None),
        ];
        for bottom in [true, false] {
            let mut retain = Retain::new(&horizon, 0);
            let kept = list.iter().map(|(entry, hidden_by)| {
                assert_eq!(retain.fate(&entry.as_ref(), *hidden_by, || bottom), Retention::Keep);
                retain.kept_for()
            });
            let four = Some((4, 4));
            let delete = four.filter(|_| bottom);
            assert_eq!(kept.collect::<Vec<_>>(), [None, four, delete, four, None]);
        }
    }
}

#[cfg(test)]
mod operand_tests {
    use super::*;
    use crate::base::operator::built_in::APPEND;
    use crate::base::operator::{OperatorName, Operators};

    fn entry<'a>(seq: Lsn, kind: Kind, value: &'a [u8]) -> EntryRef<'a> {
        EntryRef { key: b"k", seq, kind, value }
    }

    fn operand(bytes: &[u8]) -> Vec<u8> {
        encode_chain(ChainBase::Below, 1, [bytes].into_iter())
    }

    #[test]
    fn operands_become_one_or_a_value_or_stay() {
        let known = Operators::default().of(Some(OperatorName::new(APPEND)));
        let unknown = TableOperator::default();
        let (a, b) = (operand(b"a"), operand(b"b"));
        let joined = |below: Option<EntryRef<'_>>| {
            let mut operands = Operands::of(&entry(9, Kind::Merge, &b), None).unwrap();
            assert!(operands.join(&entry(8, Kind::Merge, &a)).unwrap());
            assert!(below.is_none_or(|below| operands.join(&below).unwrap()));
            operands
        };
        let all = [&b"a"[..], b"b"];
        let kept = |base| (Kind::Merge, encode_chain(base, 1, all.into_iter()));
        let value = |value: &[u8]| (Kind::Put, value.to_vec());
        assert_eq!(joined(None).end(&known, false), (Kind::Merge, operand(b"ab")));
        assert_eq!(joined(None).end(&known, true), value(b"ab"));
        assert_eq!(joined(None).end(&unknown, false), kept(ChainBase::Below));
        assert_eq!(joined(None).end(&unknown, true), kept(ChainBase::None));
        let put = joined(Some(entry(7, Kind::Put, b"v")));
        assert_eq!(put.end(&known, false), value(b"vab"));
        assert_eq!(put.end(&unknown, false), kept(ChainBase::Value(b"v")));
        let deleted = joined(Some(entry(7, Kind::Delete, b"")));
        assert_eq!(deleted.end(&known, false), value(b"ab"));
        assert_eq!(deleted.end(&unknown, false), kept(ChainBase::None));
    }

    #[test]
    fn a_record_that_would_be_too_long_stays_apart() {
        let long = operand(&vec![b'x'; MAX_OPERAND_LEN]);
        let mut operands = Operands::of(&entry(9, Kind::Merge, &long), None).unwrap();
        assert!(!operands.join(&entry(8, Kind::Merge, &operand(b"a"))).unwrap());
        assert!(!operands.join(&entry(8, Kind::Put, b"")).unwrap());
    }
}
