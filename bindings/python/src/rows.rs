//! Iterators over rows.
//!
//! Thread safety: any thread may take the next row. Rows are read in chunks without the
//! interpreter's lock. The lock of the state is waited for without it too, and never held while
//! Python runs. Objects without references to others are made under it, which runs no Python: the
//! collector looks for garbage at others alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::bytes_like::BytesLike;
use crate::calls::{KeepOpen, released};
use crate::{errors, options};

/// What an iterator gives of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Items,
    Keys,
    Values,
}

type Row = (Bytes, Bytes);

/// What is given of a row, not put together yet.
enum Objects<'py> {
    Pair([Bound<'py, PyBytes>; 2]),
    One(Bound<'py, PyBytes>),
}

impl Part {
    fn objects<'py>(self, py: Python<'py>, key: &[u8], value: &[u8]) -> Objects<'py> {
        match self {
            Part::Items => Objects::Pair([PyBytes::new(py, key), PyBytes::new(py, value)]),
            Part::Keys => Objects::One(PyBytes::new(py, key)),
            Part::Values => Objects::One(PyBytes::new(py, value)),
        }
    }
}

/// A range of the engine.
enum Source {
    /// Of a table or a snapshot: its rows stay as they are.
    Fixed(terrace::Range),
    /// The same without values.
    FixedKeys(terrace::KeyIter<terrace::Range>),
    /// Of a transaction: rows that were not reached yet change with what the transaction writes.
    Live(terrace::TxnRange, Arc<AtomicU64>),
    /// Rows are locked one by one, as they are taken.
    OneByOne(terrace::TxnRange),
}

/// Where a range of a transaction stands: behind all rows that were given, and before all others.
enum Place {
    /// At its beginning.
    Beginning,
    /// At a key that was sought: its row was not given.
    At(Bytes),
    /// Behind the key that was given last.
    Behind(Bytes),
}

struct State {
    source: Source,
    chunk: std::vec::IntoIter<Row>,
    /// How many rows the next chunk has.
    rows: usize,
    /// How many rows may still be given.
    left: usize,
    /// What the transaction had written when the chunk was read.
    written: u64,
    /// Where a range stands that may have to go back.
    place: Place,
    /// The error that comes behind the chunk.
    failed: Option<terrace::Error>,
}

/// How many rows an iterator gives at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(usize);

impl<'a, 'py> FromPyObject<'a, 'py> for Limit {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Limit> {
        let limit = options::count("limit", usize::MAX as u64, &object)?;
        Ok(Limit(limit as usize))
    }
}

/// The first chunk is small, for callers that want few rows.
const FIRST_ROWS: usize = 16;
const MOST_ROWS: usize = 1024;

/// Rows in the order of their keys, or in the reverse order.
#[pyclass(frozen, module = "terrace")]
pub(crate) struct Rows {
    state: Mutex<State>,
    part: Part,
    _keep: KeepOpen,
}

impl Rows {
    /// Those of a table, or of a snapshot of it.
    pub(crate) fn of_table(
        db: &terrace::Database,
        mut range: terrace::Range,
        limit: Option<Limit>,
        part: Part,
    ) -> Rows {
        // The engine's own limit would count rows that a seek drops unseen.
        range.expect_rows(limit.map_or(FIRST_ROWS, |limit| limit.0));
        let source = match part {
            Part::Keys => Source::FixedKeys(range.keys()),
            Part::Items | Part::Values => Source::Fixed(range),
        };
        Rows::new(db, source, limit, part)
    }

    /// Those of a transaction, with the count of its writes.
    pub(crate) fn of_transaction(
        db: &terrace::Database,
        range: terrace::TxnRange,
        writes: &Arc<AtomicU64>,
        limit: Option<Limit>,
        part: Part,
    ) -> Rows {
        let range = expecting(range, limit, part);
        Rows::new(db, Source::Live(range, Arc::clone(writes)), limit, part)
    }

    /// Those of a transaction that no other owner has locked.
    pub(crate) fn one_by_one(
        db: &terrace::Database,
        range: terrace::TxnRange,
        limit: Option<Limit>,
        part: Part,
    ) -> Rows {
        let range = expecting(range, limit, part);
        Rows::new(db, Source::OneByOne(range), limit, part)
    }

    fn new(db: &terrace::Database, source: Source, limit: Option<Limit>, part: Part) -> Rows {
        let state = State {
            source,
            chunk: Vec::new().into_iter(),
            rows: limit.map_or(FIRST_ROWS, |limit| limit.0).clamp(1, MOST_ROWS),
            left: limit.map_or(usize::MAX, |limit| limit.0),
            written: 0,
            place: Place::Beginning,
            failed: None,
        };
        Rows { state: Mutex::new(state), part, _keep: KeepOpen::new(db) }
    }
}

/// A transaction's range that reads no more than is asked for.
fn expecting(mut range: terrace::TxnRange, limit: Option<Limit>, part: Part) -> terrace::TxnRange {
    range.expect_rows(limit.map_or(FIRST_ROWS, |limit| limit.0));
    if part == Part::Keys { range.keys_only() } else { range }
}

impl State {
    /// Reads rows if none is at hand; whether there is one.
    fn read_on(&mut self) -> terrace::Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        if let Source::Fixed(range) = &mut self.source {
            return range.read_on();
        }
        if self.is_stale() {
            self.go_back();
        }
        if self.chunk.as_slice().is_empty() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.read();
            if let Some(error) = self.failed.take_if(|_| self.chunk.as_slice().is_empty()) {
                return Err(error);
            }
        }
        Ok(!self.chunk.as_slice().is_empty())
    }

    /// The next row, if it is there without waiting for anything.
    fn at_hand<'py>(&mut self, py: Python<'py>, part: Part) -> Option<Objects<'py>> {
        if self.left == 0 || self.is_stale() {
            return None;
        }
        let objects = match &mut self.source {
            // Rows of tables go from the engine's buffer into objects, with nothing in between.
            Source::Fixed(range) if range.at_hand() == 0 => return None,
            Source::Fixed(range) => {
                range.next_with(|key, value| part.objects(py, key, value))?.ok()?
            }
            _ => {
                let (key, value) = self.chunk.next()?;
                let objects = part.objects(py, &key, &value);
                if matches!(self.source, Source::Live(..)) {
                    self.place = Place::Behind(key);
                }
                objects
            }
        };
        self.left -= 1;
        Some(objects)
    }

    /// Whether the transaction has written since the chunk was read.
    fn is_stale(&self) -> bool {
        match &self.source {
            Source::Live(_, writes) => writes.load(Ordering::Acquire) != self.written,
            _ => false,
        }
    }

    /// Forgets rows that were read ahead, and goes back to where the range stands. A transaction
    /// that writes in between rows makes later chunks small.
    fn go_back(&mut self) {
        let Source::Live(range, writes) = &mut self.source else { return };
        if self.failed.is_some() {
            // The range has ended with an error. What was read before it is still given.
            self.written = writes.load(Ordering::Acquire);
            return;
        }
        self.chunk = Vec::new().into_iter();
        self.rows = 1;
        match &self.place {
            Place::Beginning => range.rewind(),
            Place::At(key) | Place::Behind(key) => range.seek(key),
        }
    }

    /// Reads the next chunk. An error comes behind the rows that were read before it.
    fn read(&mut self) {
        let most = self.rows.min(self.left);
        self.rows = (self.rows * 2).min(MOST_ROWS);
        let mut chunk = Vec::with_capacity(most);
        let filled = match &mut self.source {
            Source::Fixed(_) => Ok(()),
            Source::FixedKeys(keys) => {
                let mut rows = keys.map(|key| key.map(|key| (key, Bytes::new())));
                fill(&mut chunk, most, &mut rows)
            }
            Source::Live(range, writes) => {
                self.written = writes.load(Ordering::Acquire);
                let place = &self.place;
                let was_given = |row: &terrace::Result<Row>| match (row, place) {
                    (Ok((key, _)), Place::Behind(given)) => key == given,
                    _ => false,
                };
                fill(&mut chunk, most, &mut range.skip_while(was_given))
            }
            Source::OneByOne(range) => fill(&mut chunk, 1, range),
        };
        self.failed = filled.err();
        self.chunk = chunk.into_iter();
    }

    fn seek(&mut self, key: &[u8]) -> bool {
        self.chunk = Vec::new().into_iter();
        self.rows = FIRST_ROWS;
        self.place = Place::At(Bytes::copy_from_slice(key));
        match &mut self.source {
            Source::Fixed(range) => range.seek(key),
            Source::Live(range, _) | Source::OneByOne(range) => range.seek(key),
            Source::FixedKeys(_) => return false,
        }
        true
    }
}

/// Takes so many rows, or those before an error.
fn fill(
    chunk: &mut Vec<Row>,
    most: usize,
    rows: &mut impl Iterator<Item = terrace::Result<Row>>,
) -> terrace::Result<()> {
    for row in rows.take(most) {
        chunk.push(row?);
    }
    Ok(())
}

#[pymethods]
impl Rows {
    /// `Rows[bytes]`, for annotations.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        class.py().import("types")?.getattr("GenericAlias")?.call1((class, item))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            let at_hand = self.state.try_lock().and_then(|mut state| state.at_hand(py, self.part));
            match at_hand {
                Some(Objects::Pair(pair)) => return Ok(Some(PyTuple::new(py, pair)?.into_any())),
                Some(Objects::One(one)) => return Ok(Some(one.into_any())),
                None if released(py, || self.state.lock().read_on())? => {}
                None => return Ok(None),
            }
        }
    }

    /// Goes on at `key`, as of the same moment; returns itself. A limit counts on.
    ///
    /// It goes with `items` and `values`, and costs less than a new range.
    fn seek(slf: Py<Self>, py: Python<'_>, key: BytesLike) -> PyResult<Py<Self>> {
        let rows = slf.get();
        let moved = released(py, || Ok(rows.state.lock().seek(&key)))?;
        match moved {
            true => Ok(slf),
            false => {
                Err(errors::invalid(py, "seek goes with items() and values(), not with keys()"))
            }
        }
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let instead = "make a list of it";
        Err(errors::not_picklable(py, "an iterator over rows", instead))
    }
}

/// A row as a pair.
pub(crate) fn row<'py>(py: Python<'py>, (key, value): &Row) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}
