//! A write batch as users fill it: operations on several tables that become one commit.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::limits;
use crate::memtable::{Memtable, record_len};
use crate::mvcc::{KeyInterval, Tombstone, Tombstones, union};
use crate::record::{Kind, LSN_MAX, TableId, decode_end, encode_end};

/// What a batch names: whatever table stands there when the batch is committed.
pub(crate) trait Target: Send + Sync {
    /// The table of this moment.
    fn resolve(&self) -> Arc<dyn Home>;

    /// The number under which rows of the table are locked. It stays through truncations.
    fn lock_space(&self) -> u64;

    /// Its name, for messages.
    fn label(&self) -> String;
}

/// A table as commit sees it.
pub(crate) trait Home: Send + Sync {
    /// Its number.
    fn table(&self) -> TableId;

    /// Fails when it was dropped. Asked in the turnstile, where drops are ordered too.
    fn check_alive(&self) -> Result<()>;

    /// The memtable that takes groups now. Asked in the turnstile, where freezes are ordered too.
    fn active(&self) -> Arc<Memtable>;

    /// The stream that its records are appended to at present.
    fn stream(&self) -> u32;

    /// Counts bytes of records that were appended for it.
    fn count(&self, bytes: u64);

    /// Keeps it from being dropped, for one prepared transaction more. Said in the turnstile.
    fn hold(&self);

    /// Takes one [`Home::hold`] back.
    fn let_go(&self);

    /// Fails while somebody holds it. Asked in the turnstile.
    fn check_droppable(&self) -> Result<()>;
}

/// The tables of a batch.
pub(crate) type Homes = SmallVec<[Arc<dyn Home>; 2]>;

#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) target: usize,
    pub(super) kind: Kind,
    /// Its place among them, from 1.
    number: u64,
    key_at: usize,
    value_at: usize,
    end: usize,
}

/// Operations in the order they were given.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    pub(super) targets: SmallVec<[Arc<dyn Target>; 2]>,
    pub(super) operations: SmallVec<[Operation; 1]>,
    bytes: Vec<u8>,
    stored: usize,
    /// What the commit leaves to be read after a restart.
    pub(super) blob: Option<Box<[u8]>>,
    /// The first operation that broke a limit; reported at commit.
    refused: Option<String>,
    /// Whether there are range deletes among them.
    pub(super) has_ranges: bool,
    /// Whether its rows are not locked: refused in the turnstile once transactions take locks.
    pub(super) unlocked: bool,
}

impl Batch {
    /// Adds an operation. One past a limit makes the whole batch fail at commit.
    pub(crate) fn push(&mut self, target: &Arc<dyn Target>, kind: Kind, key: &[u8], value: &[u8]) {
        let checked = limits::check_key(key).and_then(|()| limits::check_value(value));
        if let Err(e) = checked {
            self.refused.get_or_insert(e.to_string());
            return;
        }
        if self.operations.len() == limits::MAX_BATCH_OPERATIONS {
            self.refused.get_or_insert(format!(
                "a batch takes at most {} operations; commit it in parts",
                limits::MAX_BATCH_OPERATIONS
            ));
            return;
        }
        let target = self.target(target);
        let key_at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let end = self.bytes.len();
        let number = self.operations.len() as u64 + 1;
        self.operations.push(Operation { target, kind, number, key_at, value_at, end });
        self.stored += record_len(key.len(), value.len());
    }

    /// Adds a range delete. It undoes what the batch has put into the interval before it.
    pub(crate) fn push_range(&mut self, target: &Arc<dyn Target>, interval: &KeyInterval) {
        let end = interval.end.as_deref();
        if let Err(e) = end.map_or(Ok(()), limits::check_key) {
            self.refused.get_or_insert(e.to_string());
            return;
        }
        self.has_ranges = true;
        self.push(target, Kind::RangeDelete, &interval.start, &encode_end(end));
    }

    fn target(&mut self, target: &Arc<dyn Target>) -> usize {
        let known = self.targets.iter().rposition(|t| Arc::ptr_eq(t, target));
        known.unwrap_or_else(|| {
            self.targets.push(Arc::clone(target));
            self.targets.len() - 1
        })
    }

    /// Sets the commit's blob. One past its limit makes the whole batch fail at commit.
    pub(crate) fn set_blob(&mut self, blob: &[u8]) {
        if let Err(e) = limits::check_blob(blob) {
            self.refused.get_or_insert(e.to_string());
            return;
        }
        if self.blob.is_none() {
            self.stored += record_len(0, limits::MAX_BLOB_LEN);
        }
        self.blob = Some(blob.into());
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.blob.is_none()
    }

    /// Says whether its rows are not locked. Once transactions take locks it is refused.
    pub(crate) fn set_unlocked(&mut self, unlocked: bool) {
        self.unlocked = unlocked;
    }

    /// The rows that it writes: tables and keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&dyn Target, &[u8])> {
        let rows = self.operations.iter().filter(|o| o.kind != Kind::RangeDelete);
        rows.map(|o| (&*self.targets[o.target], self.key(o)))
    }

    /// The intervals that it deletes.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&dyn Target, KeyInterval)> {
        let ranges = self.operations.iter().filter(|o| o.kind == Kind::RangeDelete);
        ranges.map(|o| (&*self.targets[o.target], self.interval(o)))
    }

    /// What a range delete deletes.
    fn interval(&self, operation: &Operation) -> KeyInterval {
        let start = self.key(operation).to_vec();
        // The value is what `push_range` made.
        let end = decode_end(&start, self.value(operation)).flatten().map(<[u8]>::to_vec);
        KeyInterval { start, end }
    }

    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Bytes that it will take in a zone, at most.
    pub(crate) fn stored_len(&self) -> usize {
        self.stored
    }

    /// Fails when an operation broke a limit.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.refused {
            Some(message) => Err(Error::invalid(message.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn key(&self, operation: &Operation) -> &[u8] {
        &self.bytes[operation.key_at..operation.value_at]
    }

    pub(super) fn value(&self, operation: &Operation) -> &[u8] {
        &self.bytes[operation.value_at..operation.end]
    }

    /// The tables that the operations go to now.
    pub(crate) fn homes(&self) -> Homes {
        self.targets.iter().map(|t| t.resolve()).collect()
    }

    /// The operations that count: of several on one key of a table, the last, unless a later range
    /// delete is over it. Range deletes become disjoint: those of a table that meet become one.
    pub(super) fn effective(&self) -> Effective<'_> {
        if !self.has_ranges {
            return Effective { points: self.last_of_each(), ranges: Vec::new() };
        }
        let mut ranges = Vec::new();
        let mut points = self.last_of_each().into_owned();
        for target in 0..self.targets.len() {
            let of_target = (0..).zip(&self.operations).filter(|(_, o)| o.target == target);
            let deletes = of_target.filter(|(_, o)| o.kind == Kind::RangeDelete);
            // As if each operation were a commit of its own.
            let over: Tombstones =
                deletes.map(|(n, o)| Arc::new(Tombstone::new(self.interval(o), n + 1))).collect();
            points.retain(|o| {
                o.target != target || over.newest_over(self.key(o), LSN_MAX) <= o.number
            });
            let intervals = over.iter().map(|tombstone| tombstone.interval.clone());
            ranges.extend(union(intervals).into_iter().map(|interval| (target, interval)));
        }
        Effective { points: points.into(), ranges }
    }

    /// The puts and deletes that count among themselves.
    fn last_of_each(&self) -> Cow<'_, [Operation]> {
        if self.operations.len() < 2 && !self.has_ranges {
            return Cow::Borrowed(&self.operations);
        }
        let place = |i: &usize| {
            let operation = &self.operations[*i];
            (operation.target, self.key(operation))
        };
        let is_point = |i: &usize| self.operations[*i].kind != Kind::RangeDelete;
        let mut order: Vec<usize> = (0..self.operations.len()).filter(is_point).collect();
        order.sort_by(|a, b| place(a).cmp(&place(b)));
        // The sort is stable: the last of equals is the last given.
        let mut last = Vec::with_capacity(order.len());
        for (n, i) in order.iter().enumerate() {
            if order.get(n + 1).is_none_or(|next| place(next) != place(i)) {
                last.push(*i);
            }
        }
        last.into_iter().map(|i| self.operations[i]).collect::<Vec<_>>().into()
    }
}

/// What is left of a batch's operations.
pub(super) struct Effective<'a> {
    pub(super) points: Cow<'a, [Operation]>,
    /// Range deletes: targets and intervals, those of a target disjoint. They come before the
    /// points.
    pub(super) ranges: Vec<(usize, KeyInterval)>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("operations", &self.operations.len())
            .field("tables", &self.targets.len())
            .finish_non_exhaustive()
    }
}
