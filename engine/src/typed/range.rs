//! Ranges of typed tables.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;

use super::{TypedKey, TypedTable, TypedValue};
use crate::base::error::Result;
use crate::read::KeyBounds;

/// A range of keys as bytes.
pub(super) struct Encoded(Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Encoded {
    pub(super) fn of<K: TypedKey>(range: &impl RangeBounds<K>) -> Encoded {
        Encoded(
            range.start_bound().map(TypedKey::to_bytes),
            range.end_bound().map(TypedKey::to_bytes),
        )
    }
}

impl KeyBounds for Encoded {
    fn lower(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(Vec::as_slice)
    }

    fn upper(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(Vec::as_slice)
    }
}

/// The rows of a typed table in the order of their keys, from either end. A row whose bytes are not
/// of the table's types is an error; the rows behind it follow.
pub struct TypedRange<K, V, R> {
    table: TypedTable<K, V>,
    rows: R,
}

impl<K, V, R> std::fmt::Debug for TypedRange<K, V, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedRange").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<K: TypedKey, V: TypedValue, R> TypedRange<K, V, R> {
    pub(super) fn new(table: TypedTable<K, V>, rows: R) -> TypedRange<K, V, R> {
        TypedRange { table, rows }
    }

    fn row(&self, row: Result<(Bytes, Bytes)>) -> Result<(K, V)> {
        self.table.read_row(&row?)
    }
}

impl<K, V, R> Iterator for TypedRange<K, V, R>
where
    K: TypedKey,
    V: TypedValue,
    R: Iterator<Item = Result<(Bytes, Bytes)>>,
{
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        Some(self.row(row))
    }
}

impl<K, V, R> DoubleEndedIterator for TypedRange<K, V, R>
where
    K: TypedKey,
    V: TypedValue,
    R: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        let row = self.rows.next_back()?;
        Some(self.row(row))
    }
}
