//! A write batch as users fill it: operations on several tables that become one commit.

use std::borrow::Cow;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits;
use crate::base::operator::operand_list;
use crate::base::record::{
    ChainBase, Kind, LSN_MAX, TableId, decode_end, encode_chain, encode_end, set_depth, slice,
};
use crate::memtable::{Memtable, record_len};
use crate::mvcc::{KeyInterval, Tombstone, Tombstones, union};
use crate::os::HashMap;
use crate::pm::alloc::Frees;

/// What a batch names: whatever table stands there when the batch is committed.
pub(crate) trait Target: Clone {
    /// The tables that stand there.
    type Table: CommitTable + 'static;

    /// The table of this moment.
    fn resolve(&self) -> Arc<Self::Table>;

    /// Whether another one names the same.
    fn is_same(&self, other: &Self) -> bool;
}

/// A table as commit sees it.
pub(crate) trait CommitTable: Send + Sync {
    /// Its number.
    fn table(&self) -> TableId;

    /// Fails when it was dropped. Asked in the sequencer, where drops are ordered too.
    fn check_alive(&self) -> Result<()>;

    /// The memtable that takes groups now. Asked in the sequencer, where freezes are ordered too.
    fn active(&self) -> Arc<Memtable>;

    /// The stream that its records are appended to at present.
    fn stream(&self) -> u32;

    /// Counts bytes of records that were appended for it.
    fn count(&self, bytes: u64);

    /// Keeps it from being dropped, for one prepared transaction more. Said in the sequencer.
    fn hold(&self);

    /// Takes one [`CommitTable::hold`] back.
    fn release_hold(&self);

    /// Fails while a prepared transaction holds it. Asked in the sequencer.
    fn check_droppable(&self) -> Result<()>;
}

/// The tables of a batch.
pub(crate) type CommitTables = SmallVec<[Arc<dyn CommitTable>; 2]>;

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

/// Operations in the order they were given, on what `T` names.
#[derive(Clone)]
pub(crate) struct Batch<T> {
    pub(super) targets: SmallVec<[T; 2]>,
    pub(super) operations: SmallVec<[Operation; 1]>,
    bytes: Vec<u8>,
    stored: usize,
    /// What the commit leaves to be read after a restart.
    pub(super) blob: Option<Box<[u8]>>,
    /// The first operation that broke a limit; reported at commit.
    refused: Option<(ErrorKind, String)>,
    /// Whether there are range deletes among them.
    pub(super) has_ranges: bool,
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch {
            targets: SmallVec::new(),
            operations: SmallVec::new(),
            bytes: Vec::new(),
            stored: 0,
            blob: None,
            refused: None,
            has_ranges: false,
        }
    }
}

/// An operation of a batch: the number of its table in [`Batch::tables`], and the rest.
pub(crate) struct Sorted<'a> {
    pub(crate) table: usize,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: Cow<'a, [u8]>,
}

/// Which operations count, by their places.
#[derive(Default)]
struct Order {
    /// The last of each key, in the order of tables and keys.
    last: Vec<u32>,
    /// Of one with operands, those on the same key that come before it.
    earlier: HashMap<u32, Vec<u32>>,
}

impl<T: Target> Batch<T> {
    /// Adds an operation. One past a limit makes the whole batch fail at commit.
    pub(crate) fn push(&mut self, target: &T, kind: Kind, key: &[u8], value: &[u8]) {
        let checked = limits::check_key(key).and_then(|()| limits::check_value(value));
        if let Err(e) = checked {
            self.refused.get_or_insert((e.kind(), e.to_string()));
            return;
        }
        if self.operations.len() == limits::MAX_BATCH_OPERATIONS {
            let most = limits::MAX_BATCH_OPERATIONS;
            let message = format!("a batch takes at most {most} operations; commit it in parts");
            self.refuse(ErrorKind::TooLarge, message);
            return;
        }
        let target = self.target(target);
        let key_at = self.bytes.len();
        self.bytes.reserve(key.len() + value.len());
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let end = self.bytes.len();
        let number = self.operations.len() as u64 + 1;
        self.operations.push(Operation { target, kind, number, key_at, value_at, end });
        self.stored += record_len(key.len(), value.len());
    }

    /// Makes the whole batch fail at commit.
    pub(crate) fn refuse(&mut self, kind: ErrorKind, message: String) {
        self.refused.get_or_insert((kind, message));
    }

    /// The places of operations that have operands.
    pub(crate) fn merges(&self) -> Vec<usize> {
        let places = 0..self.operations.len();
        places.filter(|place| self.operations[*place].kind == Kind::Merge).collect()
    }

    /// The table and the key of an operation.
    pub(crate) fn row(&self, place: usize) -> (&T, &[u8]) {
        let operation = &self.operations[place];
        (&self.targets[operation.target], self.key(operation))
    }

    /// Says of an operation that has operands how many records of such lie below it.
    pub(crate) fn set_depth(&mut self, place: usize, depth: u8) {
        let at = self.operations[place].value_at;
        set_depth(&mut self.bytes[at..], depth);
    }

    /// Adds a range delete. It undoes what the batch has put into the interval before it.
    pub(crate) fn push_range(&mut self, target: &T, interval: &KeyInterval) {
        let end = interval.end.as_deref();
        if let Err(e) = end.map_or(Ok(()), limits::check_key) {
            self.refused.get_or_insert((e.kind(), e.to_string()));
            return;
        }
        self.has_ranges = true;
        self.push(target, Kind::RangeDelete, &interval.start, &encode_end(end));
    }

    fn target(&mut self, target: &T) -> usize {
        let known = self.targets.iter().rposition(|t| t.is_same(target));
        known.unwrap_or_else(|| {
            self.targets.push(target.clone());
            self.targets.len() - 1
        })
    }

    /// Sets the commit's blob. One past its limit makes the whole batch fail at commit.
    pub(crate) fn set_blob(&mut self, blob: &[u8]) {
        if let Err(e) = limits::check_blob(blob) {
            self.refused.get_or_insert((e.kind(), e.to_string()));
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

    /// The rows that it writes: tables and keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&T, &[u8])> {
        let rows = self.operations.iter().filter(|o| o.kind != Kind::RangeDelete);
        rows.map(|o| (&self.targets[o.target], self.key(o)))
    }

    /// The intervals that it deletes.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&T, KeyInterval)> {
        let ranges = self.operations.iter().filter(|o| o.kind == Kind::RangeDelete);
        ranges.map(|o| (&self.targets[o.target], self.interval(o)))
    }

    /// What a range delete deletes.
    fn interval(&self, operation: &Operation) -> KeyInterval {
        let start = self.key(operation).to_vec();
        // The value is what `push_range` made.
        let end = decode_end(&start, self.value(operation)).flatten().map(<[u8]>::to_vec);
        KeyInterval { start, end }
    }

    /// What there is beside its puts and deletes.
    pub(crate) fn without_rows(&self) -> Batch<T> {
        let mut rest = Batch::default();
        for (target, interval) in self.effective_ranges() {
            rest.push_range(&self.targets[target], &interval);
        }
        if let Some(blob) = &self.blob {
            rest.set_blob(blob);
        }
        rest
    }

    /// How much space comes free by it: some if it does nothing but delete.
    pub(crate) fn frees(&self) -> Frees {
        let frees = self.operations.iter().map(|operation| match operation.kind {
            Kind::RangeDelete => Frees::Much,
            Kind::Delete => Frees::Keys,
            _ => Frees::Nothing,
        });
        frees.min().unwrap_or_default()
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
            Some((kind, message)) => Err(Error::new(*kind, message.clone())),
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
    pub(crate) fn tables(&self) -> impl Iterator<Item = Arc<T::Table>> {
        self.targets.iter().map(Target::resolve)
    }

    /// What counts of each key, in the order of tables and keys. Of several operations on a key the
    /// last counts. Operands count with what they go on with.
    pub(crate) fn sorted(&self) -> Result<Vec<Sorted<'_>>> {
        let mut sorted = Vec::with_capacity(self.operations.len());
        self.each_sorted(|operation| sorted.push(operation))?;
        Ok(sorted)
    }

    /// Calls `take` with each of [`Batch::sorted`]. A batch of one operation, which most are, costs
    /// no more than that call.
    pub(super) fn each_sorted<'a>(&'a self, mut take: impl FnMut(Sorted<'a>)) -> Result<()> {
        let borrowed = |o: &'a Operation| {
            let value = Cow::Borrowed(self.value(o));
            Sorted { table: o.target, kind: o.kind, key: self.key(o), value }
        };
        if let [alone] = &self.operations[..] {
            if alone.kind != Kind::RangeDelete {
                take(borrowed(alone));
            }
            return Ok(());
        }
        let over = self.tombstones();
        let counts = |o: &Operation| {
            let over = over.get(o.target);
            over.is_none_or(|over| over.newest_over(self.key(o), LSN_MAX) <= o.number)
        };
        let Order { last, earlier } = self.order();
        for place in last {
            let o = &self.operations[place as usize];
            if !counts(o) {
                continue;
            }
            let mut operation = borrowed(o);
            if let Some(places) = earlier.get(&place) {
                let places = places.iter().chain([&place]);
                let all = places.map(|place| &self.operations[*place as usize]);
                operation.value = Cow::Owned(self.joined(all.filter(|o| counts(o)))?);
            }
            take(operation);
        }
        Ok(())
    }

    /// The record that operations on one key make, the last of which has operands.
    fn joined<'a>(&'a self, operations: impl Iterator<Item = &'a Operation>) -> Result<Vec<u8>> {
        let (mut base, mut operands, mut depth) = (ChainBase::Below, Vec::new(), 1);
        let mut key: &[u8] = &[];
        for o in operations {
            key = self.key(o);
            match o.kind {
                Kind::Put => (base, operands) = (ChainBase::Value(self.value(o)), Vec::new()),
                Kind::Delete => (base, operands) = (ChainBase::None, Vec::new()),
                _ => {
                    let chain = operand_list(key, self.value(o))?;
                    if !chain.is_open() {
                        (base, operands) = (chain.base, Vec::new());
                    }
                    depth = depth.max(chain.depth);
                    operands.extend(chain.operands());
                }
            }
        }
        let record = encode_chain(base, depth, operands.into_iter());
        if record.len() > limits::MAX_VALUE_LEN {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the operands of key \"{}\" in a batch take {} bytes together, and the limit \
                     is {}; commit them in parts",
                    key.escape_ascii(),
                    record.len(),
                    limits::MAX_VALUE_LEN
                ),
            ));
        }
        Ok(record)
    }

    /// The range deletes, which come before the rest: targets and intervals. Those of a target are
    /// disjoint, as those that meet become one.
    pub(super) fn effective_ranges(&self) -> Vec<(usize, KeyInterval)> {
        let of_target = |(target, over): (usize, Tombstones)| {
            let intervals = over.iter().map(|tombstone| tombstone.interval.clone());
            union(intervals).into_iter().map(move |interval| (target, interval))
        };
        self.tombstones().into_iter().enumerate().flat_map(of_target).collect()
    }

    /// The range deletes of each target, as if each operation were a commit of its own; nothing
    /// without any.
    fn tombstones(&self) -> Vec<Tombstones> {
        if !self.has_ranges {
            return Vec::new();
        }
        let of_target = |target| {
            let deletes = self.operations.iter().filter(|o| o.kind == Kind::RangeDelete);
            let own = deletes.filter(|o| o.target == target);
            own.map(|o| Arc::new(Tombstone::new(self.interval(o), o.number))).collect()
        };
        (0..self.targets.len()).map(of_target).collect()
    }

    /// Which operations on single keys count.
    fn order(&self) -> Order {
        let is_point = |(o, _): &(&Operation, u32)| o.kind != Kind::RangeDelete;
        let points = self.operations.iter().zip(0..).filter(is_point);
        let mut found = Order::default();
        let mut order: Vec<(usize, u64, u32)> = Vec::with_capacity(self.operations.len());
        order.extend(points.map(|(o, place)| (o.target, slice(self.key(o), 0), place)));
        let key = |place: u32| self.key(&self.operations[place as usize]);
        order.sort_unstable_by(|a, b| {
            // Most keys differ in their heads.
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| (key(a.2), a.2).cmp(&(key(b.2), b.2)))
        });
        found.last.reserve(order.len());
        for of_key in order.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1) && key(a.2) == key(b.2)) {
            let [earlier @ .., last] = of_key else { continue };
            found.last.push(last.2);
            if !earlier.is_empty() && self.operations[last.2 as usize].kind == Kind::Merge {
                found.earlier.insert(last.2, earlier.iter().map(|of| of.2).collect());
            }
        }
        found
    }
}

impl<T> std::fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("operations", &self.operations.len())
            .field("tables", &self.targets.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A target by number, whose table no test asks for.
    #[derive(Clone)]
    struct Nowhere(u8);

    impl Target for Nowhere {
        type Table = crate::commit::tests::OneTable;

        fn resolve(&self) -> Arc<Self::Table> {
            unreachable!("no test asks where it goes")
        }

        fn is_same(&self, other: &Nowhere) -> bool {
            self.0 == other.0
        }
    }

    /// Keys that agree in their heads, that end in zeros, that are empty; few, so that many come
    /// twice.
    #[test]
    fn of_several_operations_on_a_key_the_last_counts_and_all_are_in_order() {
        let tables = [Nowhere(0), Nowhere(1)];
        let keys: Vec<Vec<u8>> = (0..40u8)
            .map(|n| match n % 4 {
                0 => vec![0; usize::from(n / 4)],
                1 => vec![b'a'; usize::from(n / 4)],
                2 => [&b"the same head"[..], &[n / 4]].concat(),
                _ => vec![255, n],
            })
            .collect();
        let mut seed = 3u64;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        for len in (0..100).chain([500]) {
            let (mut batch, mut expected) = (Batch::default(), BTreeMap::new());
            let mut order = Vec::new();
            for n in 0..len {
                let (table, key) = (below(2), &keys[below(keys.len())]);
                if !order.contains(&table) {
                    order.push(table);
                }
                batch.push(&tables[table], Kind::Put, key, &[n as u8]);
                let place = order.iter().position(|t| *t == table).unwrap();
                expected.insert((place, key.clone()), vec![n as u8]);
            }
            let found = batch.sorted().unwrap().into_iter();
            let found = found.map(|o| ((o.table, o.key.to_vec()), o.value.to_vec()));
            assert!(found.eq(expected), "{len} operations");
        }
    }
}
