//! The versions that make the value of a key with operands, taken from a cursor as a range passes
//! them.
//!
//! Upwards the newest version comes first, and the last one that counts is met on the way.
//! Downwards the oldest comes first: whether it counts is known once all newer ones were seen.

use bytes::Bytes;

use super::rows::PassedValue;
use crate::error::Result;
use crate::extent::ReadAhead;
use crate::operator::TableOperator;
use crate::record::{Cursor, EntryRef, Kind, Lsn, MergingCursor, SeparatedValue, is_open_chain};

/// Records of operands of one key, and the value below them.
///
/// Invariant: only the oldest record has a base of its own, and then there is no value below.
#[derive(Debug, Default)]
pub(super) struct PassedOperands {
    /// One order for both: the newest first, or, while a walk goes down, the oldest.
    seqs: Vec<Lsn>,
    versions: Vec<Bytes>,
    below: Option<(Lsn, PassedValue)>,
}

impl PassedOperands {
    /// Those from the version on that `cursor` stands on, which a reader sees. It stands behind
    /// the last one that counts then.
    ///
    /// # Errors
    ///
    /// Those of the cursor and of `is_hidden`.
    pub(super) fn newest_first(
        cursor: &mut MergingCursor<'_>,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<PassedOperands> {
        let mut operands = PassedOperands::default();
        while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
            if !is_put(&entry) || is_hidden(key, entry.seq)? {
                break;
            }
            if entry.kind != Kind::Merge {
                let value = match separated(cursor, &entry)? {
                    Some(apart) => PassedValue::Apart(apart),
                    None => PassedValue::Here(Bytes::copy_from_slice(entry.value)),
                };
                operands.below = Some((entry.seq, value));
                break;
            }
            let goes_on = is_open_chain(entry.value);
            operands.push(entry.seq, entry.value);
            cursor.next()?;
            if !goes_on {
                break;
            }
        }
        Ok(operands)
    }

    /// The same in the order of a walk down.
    ///
    /// # Errors
    ///
    /// As [`PassedOperands::newest_first`].
    pub(super) fn oldest_first(
        cursor: &mut MergingCursor<'_>,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<PassedOperands> {
        let mut operands = PassedOperands::newest_first(cursor, key, is_hidden)?;
        operands.seqs.reverse();
        operands.versions.reverse();
        Ok(operands)
    }

    /// Takes the next newer record of operands of a walk down. `below` is the value that lies
    /// below the first one.
    pub(super) fn add_newer(&mut self, entry: &EntryRef<'_>, below: Option<(Lsn, PassedValue)>) {
        debug_assert!(
            self.seqs.last().is_none_or(|last| *last < entry.seq),
            "downwards versions of a key come in ascending order"
        );
        if !is_open_chain(entry.value) {
            self.clear();
        } else if below.is_some() {
            debug_assert!(self.versions.is_empty(), "a value is taken with the first record");
            self.below = below;
        }
        self.push(entry.seq, entry.value);
    }

    /// A walk down has seen all versions of the key: leaves out what is hidden, and all below it.
    ///
    /// # Errors
    ///
    /// Those of `is_hidden`.
    pub(super) fn turn(
        &mut self,
        key: &[u8],
        is_hidden: impl Fn(&[u8], Lsn) -> Result<bool>,
    ) -> Result<()> {
        self.seqs.reverse();
        self.versions.reverse();
        let below = self.below.as_ref().map(|(seq, _)| *seq);
        for (at, seq) in self.seqs.iter().copied().chain(below).enumerate() {
            if is_hidden(key, seq)? {
                self.seqs.truncate(at);
                self.versions.truncate(at);
                self.below = None;
                break;
            }
        }
        Ok(())
    }

    /// The value that they make, the newest first.
    ///
    /// # Errors
    ///
    /// Those of reading a value that lies apart, for the reader that `ahead` is of; as
    /// [`TableOperator::resolve`].
    pub(super) fn value(
        &self,
        key: &[u8],
        (operator, ahead): (&TableOperator, &ReadAhead),
    ) -> Result<Vec<u8>> {
        debug_assert!(self.seqs.is_sorted_by(|newer, older| newer > older), "the newest first");
        let below = match &self.below {
            None => None,
            Some((_, PassedValue::Here(value))) => Some(value.clone()),
            Some((_, PassedValue::Apart(apart))) => Some(ahead.value(apart)?),
        };
        operator.resolve(key, &self.versions, below.as_deref())
    }

    /// Forgets all, for the next key.
    pub(super) fn clear(&mut self) {
        self.seqs.clear();
        self.versions.clear();
        self.below = None;
    }

    fn push(&mut self, seq: Lsn, record: &[u8]) {
        self.seqs.push(seq);
        self.versions.push(Bytes::copy_from_slice(record));
    }
}

/// Where the value of the entry under a cursor lies, if it lies apart.
pub(super) fn separated(
    cursor: &impl Cursor,
    entry: &EntryRef<'_>,
) -> Result<Option<SeparatedValue>> {
    if entry.kind == Kind::Reference { cursor.separated() } else { Ok(None) }
}

/// Whether the key has a value, wherever it lies.
pub(super) fn is_put(entry: &EntryRef<'_>) -> bool {
    matches!(entry.kind, Kind::Put | Kind::Reference | Kind::Merge)
}
