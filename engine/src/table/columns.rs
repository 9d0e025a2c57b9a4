//! The keys alone, or the values alone, of rows.

use bytes::Bytes;

use crate::error::Result;

/// The keys of rows: see [`Range::keys`](crate::Range::keys).
#[derive(Debug)]
pub struct KeyIter<I>(I);

/// The values of rows: see [`Range::values`](crate::Range::values).
#[derive(Debug)]
pub struct ValueIter<I>(I);

impl<I> KeyIter<I> {
    pub(crate) fn new(rows: I) -> KeyIter<I> {
        KeyIter(rows)
    }
}

impl<I> ValueIter<I> {
    pub(crate) fn new(rows: I) -> ValueIter<I> {
        ValueIter(rows)
    }
}

impl<I: Iterator<Item = Result<(Bytes, Bytes)>>> Iterator for KeyIter<I> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.0.next().map(|row| row.map(|(key, _)| key))
    }
}

impl<I: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>> DoubleEndedIterator for KeyIter<I> {
    fn next_back(&mut self) -> Option<Result<Bytes>> {
        self.0.next_back().map(|row| row.map(|(key, _)| key))
    }
}

impl<I: Iterator<Item = Result<(Bytes, Bytes)>>> Iterator for ValueIter<I> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.0.next().map(|row| row.map(|(_, value)| value))
    }
}

impl<I: DoubleEndedIterator<Item = Result<(Bytes, Bytes)>>> DoubleEndedIterator for ValueIter<I> {
    fn next_back(&mut self) -> Option<Result<Bytes>> {
        self.0.next_back().map(|row| row.map(|(_, value)| value))
    }
}
