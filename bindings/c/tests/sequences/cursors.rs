//! Snapshots and cursors.

use std::mem::MaybeUninit;
use std::ops::Bound;

use terrace_c::Data;
use terrace_c::cursor::*;
use terrace_c::database::*;
use terrace_c::range::*;
use terrace_c::snapshot::*;
use terrace_c::table::*;
use terrace_c::transaction::*;

use super::model::*;
use super::pointers::*;
use super::world::World;
use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Nowhere,
    At(Vec<u8>),
    Before,
    Behind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    First,
    Last,
    Seek,
    SeekForPrev,
    Next,
    Prev,
}

/// A cursor and what it should do.
pub(crate) struct Moving {
    pub(crate) cursor: Box<Cursor>,
    pub(crate) table: usize,
    pub(crate) bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    pub(crate) position: Position,
    pub(crate) keys_only: bool,
    /// The rows of its moment; `None` for what the transaction of a number sees.
    pub(crate) rows: Result<Map, u64>,
}

impl World {
    pub(crate) fn snapshot(&mut self) {
        if self.snapshots.is_empty() || self.random.one_in(4) {
            let snapshot = terrace_database_snapshot(self.database.as_deref(), None);
            self.snapshots.push((snapshot.expect("a snapshot"), self.model.clone()));
            return;
        }
        let which = self.random.below(self.snapshots.len() as u64) as usize;
        if self.random.one_in(6) {
            terrace_snapshot_free(Some(self.snapshots.swap_remove(which).0));
            return;
        }
        let (at, key) = (self.pick(), self.key());
        let (snapshot, model) = &self.snapshots[which];
        let (mut value, len) = (MaybeUninit::uninit(), key.len());
        let (table, k) = (self.table(at), data(&key));
        let status = terrace_snapshot_get(Some(snapshot), table, k, len, Some(&mut value), None);
        World::check_value(status, value, model[at].get(&key));
    }

    pub(crate) fn open_cursor(&mut self) {
        if self.cursors.len() > 6 {
            let which = self.random.below(self.cursors.len() as u64) as usize;
            terrace_cursor_free(Some(self.cursors.swap_remove(which).cursor));
        }
        let (at, bounds) = (self.pick(), self.bounds());
        let (range, table) = (range_of(&bounds), self.tables[at].as_deref());
        let (cursor, rows) = match (self.random.below(3), &self.running, self.snapshots.first()) {
            (0, Some(running), _) => {
                let transaction = Some(&*running.transaction);
                let cursor = terrace_transaction_cursor(
                    transaction,
                    table,
                    Some(&range),
                    TERRACE_READ,
                    None,
                );
                assert_eq!(cursor.is_none(), running.taken);
                if running.taken {
                    return;
                }
                (cursor, Err(running.number))
            }
            (1, _, Some((snapshot, model))) => {
                let cursor = terrace_snapshot_cursor(Some(snapshot), table, Some(&range), None);
                (cursor, Ok(model[at].clone()))
            }
            _ => (terrace_table_cursor(table, Some(&range), None), Ok(self.model[at].clone())),
        };
        let cursor = cursor.expect("a cursor");
        let (position, keys_only) = (Position::Nowhere, false);
        self.cursors.push(Moving { cursor, table: at, bounds, position, keys_only, rows });
    }

    pub(crate) fn move_cursor(&mut self) {
        if self.cursors.is_empty() {
            return self.open_cursor();
        }
        let which = self.random.below(self.cursors.len() as u64) as usize;
        let (key, bounds) = (self.key(), self.bounds());
        let step = match self.random.below(12) {
            0 => Move::First,
            1 => Move::Last,
            2 => Move::Seek,
            3 => Move::SeekForPrev,
            4..=7 => Move::Next,
            _ => Move::Prev,
        };
        let (moves_range, turns_values) = (self.random.one_in(15), self.random.one_in(10));
        let running = self.running.as_ref();
        let moving = &mut self.cursors[which];
        let rows = match &moving.rows {
            Ok(rows) => Some(rows.clone()),
            Err(number) => running
                .filter(|running| running.number == *number && !running.ended)
                .map(|running| running.sees(moving.table)),
        };
        if moves_range {
            let range = range_of(&bounds);
            let set = terrace_cursor_set_range(Some(&mut moving.cursor), Some(&range), None);
            assert_eq!(set, OK);
            (moving.bounds, moving.position) = (bounds, Position::Nowhere);
        }
        if turns_values {
            moving.keys_only = !moving.keys_only;
            let cursor = Some(&mut *moving.cursor);
            assert_eq!(terrace_cursor_set_keys_only(cursor, moving.keys_only, None), OK);
        }
        moving.step(step, &key, rows.as_ref());
    }
}

impl Moving {
    pub(crate) fn step(&mut self, step: Move, key: &[u8], rows: Option<&Map>) {
        let is_at_end = matches!(
            (&self.position, step),
            (Position::Behind, Move::Next) | (Position::Before, Move::Prev)
        );
        let (cursor, mut row) = (Some(&mut *self.cursor), MaybeUninit::uninit());
        let (out, k, len) = (Some(&mut row), data(key), key.len());
        let status = match step {
            Move::First => terrace_cursor_first(cursor, out, None),
            Move::Last => terrace_cursor_last(cursor, out, None),
            Move::Seek => terrace_cursor_seek(cursor, k, len, out, None),
            Move::SeekForPrev => terrace_cursor_seek_for_prev(cursor, k, len, out, None),
            Move::Next => terrace_cursor_next(cursor, out, None),
            Move::Prev => terrace_cursor_prev(cursor, out, None),
        };
        let Some(rows) = rows else {
            assert_eq!(status, if is_at_end { NOT_FOUND } else { CLOSED });
            return;
        };
        let inside = || rows.iter().filter(|(key, _)| is_inside(&self.bounds, key));
        let expected = match (step, &self.position) {
            (Move::Next, Position::Behind) | (Move::Prev, Position::Before) => None,
            (Move::Seek, _) => inside().find(|(one, _)| one.as_slice() >= key),
            (Move::SeekForPrev, _) => inside().rfind(|(one, _)| one.as_slice() <= key),
            (Move::Next, Position::At(at)) => inside().find(|(one, _)| *one > at),
            (Move::Prev, Position::At(at)) => inside().rfind(|(one, _)| *one < at),
            (Move::First | Move::Next, _) => inside().next(),
            (Move::Last | Move::Prev, _) => inside().next_back(),
        };
        match expected {
            Some((key, value)) => {
                assert_eq!(status, OK, "{step:?} from {:?}", self.position);
                let row: Row = filled(row);
                assert_eq!(lent(row.key, row.key_len), key.as_slice());
                let value = if self.keys_only { &[] } else { value.as_slice() };
                assert_eq!(lent(row.value, row.value_len), value);
                self.position = Position::At(key.clone());
            }
            None => {
                assert_eq!(status, NOT_FOUND, "{step:?} from {:?}", self.position);
                self.position = match step {
                    Move::First | Move::Seek | Move::Next => Position::Behind,
                    Move::Last | Move::SeekForPrev | Move::Prev => Position::Before,
                };
            }
        }
    }
}

pub(crate) fn is_inside((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
    };
    above
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(bound) => key <= bound.as_slice(),
            Bound::Excluded(bound) => key < bound.as_slice(),
        }
}

/// Whether no key can lie inside.
pub(crate) fn is_empty(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match bounds {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), upper) => match upper {
            Bound::Included(upper) | Bound::Excluded(upper) => lower >= upper,
            Bound::Unbounded => false,
        },
    }
}

/// A range for C. It borrows the bounds, which outlive the call that gets it.
pub(crate) fn range_of((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Range {
    let bound = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => RangeBound { key: Data::null(), key_len: 0, kind: TERRACE_UNBOUNDED },
        Bound::Included(key) => {
            RangeBound { key: data(key), key_len: key.len(), kind: TERRACE_INCLUDED }
        }
        Bound::Excluded(key) => {
            RangeBound { key: data(key), key_len: key.len(), kind: TERRACE_EXCLUDED }
        }
    };
    Range { lower: bound(lower), upper: bound(upper) }
}
