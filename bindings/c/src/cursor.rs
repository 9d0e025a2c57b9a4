//! Cursors: one position in a range of a table, which moves both ways and anywhere.
//!
//! The engine's ranges go on from an end, and cannot turn round. A cursor has one for the way that
//! it goes, and opens another one at its row when it turns or is sent elsewhere. All of them read
//! as of one moment.
//!
//! Thread safety: one thread at a time; C promises it.
//!
//! Invariants:
//!
//! 1. `rows` has what comes behind the position, the way of `way`, and nothing else.
//! 2. `row` is what C was lent last. It is replaced or dropped by the next call alone.

use std::mem::MaybeUninit;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Status};
use crate::guard::{self, Failure, Result, need};
use crate::pointers::Data;
use crate::range::{Bounds, Range, bounds};
use crate::table::Table;
use crate::transaction::{Running, Scan};

/// A row that a cursor has lent. It is valid until the next call on the cursor.
#[derive(Debug)]
#[repr(C)]
pub struct Row {
    /// The key.
    pub key: *const std::ffi::c_char,
    /// How many bytes it has.
    pub key_len: usize,
    /// The value.
    pub value: *const std::ffi::c_char,
    /// How many bytes it has.
    pub value_len: usize,
}

/// A position in a range of a table, all as of one moment. Not for several threads at once; it may
/// move between them. It is on a row, before the first one, behind the last one, or nowhere. A new
/// cursor is nowhere: its first step goes to the first row, or backwards to the last one.
pub struct Cursor {
    table: terrace::Table,
    source: Source,
    bounds: Bounds,
    limit: usize,
    /// Whether values are left unread.
    keys_only: bool,
    /// How many rows may still come.
    left: usize,
    way: Way,
    position: Position,
    rows: Option<Rows>,
    row: (Bytes, Bytes),
}

/// What a cursor reads.
enum Source {
    /// Committed rows of a moment. With a database the moment can be renewed.
    Snapshot(terrace::Snapshot, Option<terrace::Database>),
    /// What a transaction sees.
    Transaction(Arc<Running>, Scan),
}

enum Rows {
    Committed(terrace::Range),
    Transaction(terrace::TxnRange),
    CommittedKeys(terrace::KeyIter<terrace::Range>),
    TransactionKeys(terrace::KeyIter<terrace::TxnRange>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Nowhere,
    OnRow,
    BeforeFirst,
    BehindLast,
}

impl Rows {
    #[inline]
    fn take(&mut self, way: Way) -> Option<terrace::Result<(Bytes, Bytes)>> {
        match (self, way) {
            (Rows::Committed(rows), Way::Up) => rows.next(),
            (Rows::Committed(rows), Way::Down) => rows.next_back(),
            (Rows::Transaction(rows), Way::Up) => rows.next(),
            (Rows::Transaction(rows), Way::Down) => rows.next_back(),
            (Rows::CommittedKeys(keys), way) => take_key(keys, way),
            (Rows::TransactionKeys(keys), way) => take_key(keys, way),
        }
    }

    /// The same rows without their values.
    fn keys(self) -> Rows {
        match self {
            Rows::Committed(rows) => Rows::CommittedKeys(rows.keys()),
            Rows::Transaction(rows) => Rows::TransactionKeys(rows.keys()),
            keys => keys,
        }
    }
}

/// The next key, with an empty value.
fn take_key(
    keys: &mut impl DoubleEndedIterator<Item = terrace::Result<Bytes>>,
    way: Way,
) -> Option<terrace::Result<(Bytes, Bytes)>> {
    let key = match way {
        Way::Up => keys.next(),
        Way::Down => keys.next_back(),
    };
    key.map(|key| key.map(|key| (key, Bytes::new())))
}

impl Source {
    fn open(&self, table: &terrace::Table, bounds: Bounds, left: usize) -> Result<Rows> {
        match self {
            Source::Snapshot(snapshot, _) => {
                let range = snapshot.range(table, bounds);
                Ok(Rows::Committed(if left < usize::MAX { range.limit(left) } else { range }))
            }
            Source::Transaction(running, scan) => running.with(|transaction| {
                let range = match scan {
                    Scan::Read => transaction.range(table, bounds)?,
                    Scan::ForUpdate => transaction.range_for_update(table, bounds)?,
                    Scan::SkipLocked => transaction.range_skip_locked(table, bounds)?,
                    Scan::Newest => transaction.range_unlocked(table, bounds)?,
                    Scan::ForShare => transaction.range_for_share(table, bounds)?,
                };
                Ok(Rows::Transaction(if left < usize::MAX { range.limit(left) } else { range }))
            }),
        }
    }
}

impl Cursor {
    /// Over committed rows, as of now.
    pub(crate) fn of_now(table: &Table, bounds: Bounds) -> Result<Cursor> {
        let source = Source::Snapshot(table.database.snapshot()?, Some(table.database.clone()));
        Ok(Cursor::new(table, source, bounds))
    }

    /// Over committed rows, as of a snapshot.
    pub(crate) fn of_snapshot(
        snapshot: terrace::Snapshot,
        table: &Table,
        bounds: Bounds,
    ) -> Cursor {
        Cursor::new(table, Source::Snapshot(snapshot, None), bounds)
    }

    /// Over what a transaction sees. The rows of one for update or share are locked at
    /// once.
    pub(crate) fn of_transaction(
        running: &Arc<Running>,
        scan: Scan,
        table: &Table,
        bounds: Bounds,
    ) -> Result<Cursor> {
        running.with(|_| Ok(()))?;
        let source = Source::Transaction(Arc::clone(running), scan);
        let mut cursor = Cursor::new(table, source, bounds);
        cursor.lock()?;
        Ok(cursor)
    }

    fn new(table: &Table, source: Source, bounds: Bounds) -> Cursor {
        Cursor {
            table: table.table.clone(),
            source,
            bounds,
            limit: usize::MAX,
            keys_only: false,
            left: usize::MAX,
            way: Way::Up,
            position: Position::Nowhere,
            rows: None,
            row: (Bytes::new(), Bytes::new()),
        }
    }

    /// Locks the whole range, if it is for update or for share.
    fn lock(&mut self) -> Result<()> {
        if matches!(self.source, Source::Transaction(_, Scan::ForUpdate | Scan::ForShare)) {
            let bounds = self.bounds.clone();
            self.send(Way::Up, bounds)?;
        }
        Ok(())
    }

    /// Opens what lies the way of `way` in `bounds`.
    fn send(&mut self, way: Way, bounds: Bounds) -> Result<()> {
        self.rows = None;
        let rows = self.source.open(&self.table, bounds, self.left)?;
        self.rows = Some(if self.keys_only { rows.keys() } else { rows });
        self.way = way;
        Ok(())
    }

    /// Opens what lies there, and lets as many rows come as the limit says.
    fn place(&mut self, way: Way, bounds: Bounds) -> Result<Status> {
        self.left = self.limit;
        self.send(way, bounds)?;
        self.take()
    }

    /// Moves to the next row of `rows`.
    #[inline]
    fn take(&mut self) -> Result<Status> {
        if self.left == 0 {
            return Ok(Status::TERRACE_NOT_FOUND);
        }
        match self.rows.as_mut().and_then(|rows| rows.take(self.way)) {
            Some(Ok(row)) => {
                self.row = row;
                self.left -= 1;
                self.position = Position::OnRow;
                Ok(Status::TERRACE_OK)
            }
            None => {
                self.rows = None;
                self.position = match self.way {
                    Way::Up => Position::BehindLast,
                    Way::Down => Position::BeforeFirst,
                };
                Ok(Status::TERRACE_NOT_FOUND)
            }
            Some(Err(error)) => {
                // A range ends after an error. The next call opens another one at the position.
                self.rows = None;
                Err(Failure::from(error))
            }
        }
    }

    /// Moves by one row.
    #[inline]
    fn step(&mut self, way: Way) -> Result<Status> {
        if self.way != way || self.rows.is_none() {
            let Some(bounds) = self.behind(way) else { return Ok(Status::TERRACE_NOT_FOUND) };
            if self.left == 0 {
                return Ok(Status::TERRACE_NOT_FOUND);
            }
            self.send(way, bounds)?;
        }
        self.take()
    }

    /// What lies behind the position; `None` at the end of the range.
    fn behind(&self, way: Way) -> Option<Bounds> {
        let (lower, upper) = self.bounds.clone();
        let key = || Bound::Excluded(self.row.0.to_vec());
        match (self.position, way) {
            (Position::OnRow, Way::Up) => Some((key(), upper)),
            (Position::OnRow, Way::Down) => Some((lower, key())),
            (Position::BehindLast, Way::Up) | (Position::BeforeFirst, Way::Down) => None,
            _ => Some((lower, upper)),
        }
    }

    /// The bounds of the range from `key` on, upwards or downwards.
    fn from(&self, key: &[u8], way: Way) -> Bounds {
        let (mut lower, mut upper) = self.bounds.clone();
        match way {
            Way::Up => {
                let is_inside = match &lower {
                    Bound::Unbounded => true,
                    Bound::Included(bound) => key >= bound.as_slice(),
                    Bound::Excluded(bound) => key > bound.as_slice(),
                };
                if is_inside {
                    lower = Bound::Included(key.to_vec());
                }
            }
            Way::Down => {
                let is_inside = match &upper {
                    Bound::Unbounded => true,
                    Bound::Included(bound) => key <= bound.as_slice(),
                    Bound::Excluded(bound) => key < bound.as_slice(),
                };
                if is_inside {
                    upper = Bound::Included(key.to_vec());
                }
            }
        }
        (lower, upper)
    }

    /// Begins anew, over other bounds if there are some.
    fn restart(&mut self, bounds: Option<Bounds>) -> Result<()> {
        if let Some(bounds) = bounds {
            self.bounds = bounds;
        }
        self.rows = None;
        self.position = Position::Nowhere;
        self.left = self.limit;
        self.lock()
    }

    /// Takes the moment of now.
    fn renew(&mut self) -> Result<()> {
        match &mut self.source {
            Source::Snapshot(snapshot, Some(database)) => *snapshot = database.snapshot()?,
            Source::Snapshot(_, None) => {
                let message =
                    "a cursor of a snapshot stays as of its moment; make one of the table";
                return Err(Failure::Invalid(message.into()));
            }
            Source::Transaction(running, _) => running.with(|_| Ok(()))?,
        }
        self.restart(None)
    }

    /// Lends the row that the position is on.
    #[inline]
    fn lend(&self, status: Status, row: Option<&mut MaybeUninit<Row>>) -> Status {
        if let (Status::TERRACE_OK, Some(row)) = (status, row) {
            let (key, value) = &self.row;
            row.write(Row {
                key: key.as_ptr().cast(),
                key_len: key.len(),
                value: value.as_ptr().cast(),
                value_len: value.len(),
            });
        }
        status
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("table", &self.table)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

#[inline]
fn moved(
    cursor: Option<&mut Cursor>,
    row: Option<&mut MaybeUninit<Row>>,
    how: impl FnOnce(&mut Cursor) -> Result<Status>,
) -> Result<Status> {
    let cursor = need(cursor, "cursor")?;
    let status = how(cursor)?;
    Ok(cursor.lend(status, row))
}

/// Moves to the first row and lends it. TERRACE_NOT_FOUND when there is none, and nothing is
/// written to *row then. row may be NULL in this call and those that follow.
///
/// Errors: as terrace_table_get; of a transaction's cursor also those of
/// terrace_transaction_get_for_update. The position stays, and the call can be repeated.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_first(
    cursor: Option<&mut Cursor>,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        moved(cursor, row, |cursor| cursor.place(Way::Up, cursor.bounds.clone()))
    })
}

/// Moves to the last row and lends it. As terrace_cursor_first.
///
/// Errors: as terrace_cursor_first.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_last(
    cursor: Option<&mut Cursor>,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        moved(cursor, row, |cursor| cursor.place(Way::Down, cursor.bounds.clone()))
    })
}

/// Moves to the first row whose key is not less, and lends it. A cursor can be sent anywhere in its
/// range, any number of times. TERRACE_NOT_FOUND when there is no such row; the cursor is behind
/// the last row then. As terrace_cursor_first.
///
/// Errors: as terrace_cursor_first.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_seek(
    cursor: Option<&mut Cursor>,
    key: Data,
    key_len: usize,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let key = key.bytes(key_len, "key")?;
        moved(cursor, row, |cursor| cursor.place(Way::Up, cursor.from(key, Way::Up)))
    })
}

/// Moves to the last row whose key is not greater, and lends it. TERRACE_NOT_FOUND when there is no
/// such row; the cursor is before the first row then. As terrace_cursor_first.
///
/// Errors: as terrace_cursor_first.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_seek_for_prev(
    cursor: Option<&mut Cursor>,
    key: Data,
    key_len: usize,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || {
        let key = key.bytes(key_len, "key")?;
        moved(cursor, row, |cursor| cursor.place(Way::Down, cursor.from(key, Way::Down)))
    })
}

/// Moves to the next row and lends it; from nowhere, to the first. TERRACE_NOT_FOUND at the end,
/// and the cursor is behind the last row then. As terrace_cursor_first.
///
/// Errors: as terrace_cursor_first.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_next(
    cursor: Option<&mut Cursor>,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || moved(cursor, row, |cursor| cursor.step(Way::Up)))
}

/// Moves to the row before and lends it; from nowhere, to the last. TERRACE_NOT_FOUND at the
/// beginning, and the cursor is before the first row then. As terrace_cursor_first.
///
/// Errors: as terrace_cursor_first.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_prev(
    cursor: Option<&mut Cursor>,
    row: Option<&mut MaybeUninit<Row>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::status(error, || moved(cursor, row, |cursor| cursor.step(Way::Down)))
}

/// Limits how many rows come from each terrace_cursor_first, last, seek and seek_for_prev on, the
/// row of that call included; 0 for no limit. Behind the last of them comes TERRACE_NOT_FOUND. The
/// library reads no row beyond the limit. A new limit holds from the next of these calls on, or at
/// once where the cursor is nowhere.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_set_limit(
    cursor: Option<&mut Cursor>,
    rows: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let cursor = need(cursor, "cursor")?;
        cursor.limit = if rows == 0 { usize::MAX } else { rows };
        if cursor.position == Position::Nowhere {
            cursor.left = cursor.limit;
            // The first step opens the range with that limit. Its locks are there already.
            cursor.rows = None;
        }
        Ok(())
    })
}

/// Leaves values unread, or reads them again, from the next row on. A row without its value has one
/// of no bytes. Values that lie apart cost no reads then.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_set_keys_only(
    cursor: Option<&mut Cursor>,
    keys_only: bool,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let cursor = need(cursor, "cursor")?;
        if cursor.keys_only != keys_only {
            cursor.keys_only = keys_only;
            // The next step opens the rest of the range again.
            cursor.rows = None;
        }
        Ok(())
    })
}

/// Gives a cursor another range of its table, as of the same moment. It is nowhere then. NULL
/// stands for all keys.
///
/// Errors: TERRACE_INVALID for bounds of an unknown kind, and nothing is changed; of a cursor for
/// update, those of terrace_transaction_cursor.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_set_range(
    cursor: Option<&mut Cursor>,
    range: Option<&Range>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || need(cursor, "cursor")?.restart(Some(bounds(range)?)))
}

/// Lets a cursor of a table see what is committed by now. It is nowhere then. A cursor that lives
/// long keeps versions from being dropped; this lets them go. One of a transaction goes on as its
/// isolation level says.
///
/// Errors: TERRACE_INVALID for a cursor of a snapshot; TERRACE_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_refresh(
    cursor: Option<&mut Cursor>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || need(cursor, "cursor")?.renew())
}

/// Frees a cursor. The row that it has lent is gone. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_cursor_free(cursor: Option<Box<Cursor>>) {
    guard::free(cursor);
}
