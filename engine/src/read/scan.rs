//! Ranges, a chunk at a time. Each chunk is read from the view of its moment, at the same LSN, into
//! its own buffer. Nothing is held between chunks. A chunk ends early where the walk lacks a part
//! of an object. The caller reads values that lie apart, when it pins no epoch any more.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::AsOf;
use super::key_range::KeyRange;
use super::rows::{Chunk, Rows};
use super::rows::{PassedOperands, is_put, separated};
use crate::base::error::{Error, Result};
use crate::base::operator::TableOperator;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, MergingCursor};
use crate::read::view::{RangeTombstones, View};
use crate::sstable::{BlockCache, ReadAhead};

/// The first rows of `range` at a moment from one of its ends. The caller holds an epoch guard.
pub(crate) fn rows(
    view: &View,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    (range, from_back): (&KeyRange, bool),
    as_of: AsOf,
    chunk: Chunk,
) -> Result<Rows> {
    let (at, ranges) = (as_of.lsn, view.range_tombstones());
    let is_hidden = hides(ranges.as_ref(), ahead, as_of);
    let (mut cursor, mut rows) = (view.cursor(cache, ahead), Rows::default());
    let begin = if from_back { end_of(range) } else { Some(Cow::Borrowed(range.start())) };
    view.version.begin_range((begin.as_deref(), from_back), cache, ahead);
    let how = (is_hidden, (&view.operator, &**ahead));
    let walked = match from_back {
        true => walk_down(&mut rows, &mut cursor, (range, at), how, chunk),
        false => walk_up(&mut rows, &mut cursor, (range, at), how, chunk),
    };
    match walked {
        // What it has passed. The next walk begins there, and is the one that fails: no row in
        // front of damage is lost to it.
        Err(_) if rows.end(false).is_some() => Ok(rows),
        walked => walked.map(|()| rows),
    }
}

/// What hides a version at a moment: its age, or a range tombstone. A tombstone that has to come
/// from an object store ends the walk.
fn hides<'a>(
    ranges: Option<&'a RangeTombstones<'a>>,
    ahead: &'a ReadAhead,
    AsOf { lsn: at, expired }: AsOf,
) -> impl Fn(&[u8], Lsn) -> Result<bool> + 'a {
    move |key, seq| match ranges {
        _ if seq <= expired => Ok(true),
        Some(ranges) => {
            ahead.need(|| ranges.missing_over(key, seq).next())?;
            ranges.hide_version(key, seq, at)
        }
        None => Ok(false),
    }
}

fn walk_up(
    rows: &mut Rows,
    cursor: &mut MergingCursor<'_>,
    (range, at): (&KeyRange, Lsn),
    (is_hidden, merges): (impl Fn(&[u8], Lsn) -> Result<bool>, (&TableOperator, &ReadAhead)),
    chunk: Chunk,
) -> Result<()> {
    // The one key from the lower bound on that is not in the range, and the sequence number to seek
    // to.
    let (left_out, from) = match &range.lower {
        Bound::Excluded(key) => (Some(key.as_slice()), 0),
        Bound::Included(_) | Bound::Unbounded => (None, LSN_MAX),
    };
    cursor.seek(range.start(), from)?;
    let (mut passed, mut walked, end) = (Passed::default(), 0, end_of(range));
    while !rows.is_full(chunk) {
        let mut stop = Stop::Full;
        let lent = cursor.pass(end.as_deref(), &mut |entry| {
            walked += 1;
            let is_left_out = rows.len() == 0 && left_out == Some(entry.key);
            if entry.seq > at || is_left_out || rows.knows(entry.key) {
                if walked > MOST_WALKED && passed.key != entry.key {
                    stop = Stop::Walked;
                    return ControlFlow::Break(());
                }
                if !passed.are_many(entry.key) {
                    return ControlFlow::Continue(());
                }
                // To the newest version that the reader may see, or to the next key.
                stop = Stop::Seek(if entry.seq > at { at } else { 0 });
                return ControlFlow::Break(());
            }
            let hidden = if is_put(entry) { is_hidden(entry.key, entry.seq) } else { Ok(true) };
            stop = match (hidden, entry.kind) {
                (Err(error), _) => Stop::Failed(error),
                (Ok(true), _) => {
                    rows.pass(entry.key);
                    if walked <= MOST_WALKED {
                        return ControlFlow::Continue(());
                    }
                    Stop::Walked
                }
                (_, Kind::Merge) if !chunk.keys_only => Stop::Merge,
                (_, Kind::Reference) if !chunk.keys_only => Stop::Apart,
                _ => {
                    rows.add(entry.key, entry.value, None, chunk);
                    if !rows.is_full(chunk) {
                        return ControlFlow::Continue(());
                    }
                    Stop::Full
                }
            };
            ControlFlow::Break(())
        })?;
        if lent.is_continue() {
            rows.exhausted = true;
            return Ok(());
        }
        if let Stop::Walked = stop {
            rows.pass_up_to(&passed.key);
            return Ok(());
        }
        go_on(stop, cursor, (rows, &passed), (&is_hidden, merges), chunk)?;
    }
    Ok(())
}

/// Deals with what a walk up has stopped at, and goes on behind it.
fn go_on(
    stop: Stop,
    cursor: &mut MergingCursor<'_>,
    (rows, passed): (&mut Rows, &Passed),
    (is_hidden, merges): (impl Fn(&[u8], Lsn) -> Result<bool>, (&TableOperator, &ReadAhead)),
    chunk: Chunk,
) -> Result<()> {
    match (stop, cursor.entry()) {
        (Stop::Full | Stop::Walked, _) | (_, None) => {}
        (Stop::Failed(error), _) => return Err(error),
        (Stop::Seek(seq), _) => cursor.skip_to(&passed.key, seq)?,
        (Stop::Merge, Some(entry)) => {
            let key = entry.key.to_vec();
            // The cursor goes on by itself.
            let operands = PassedOperands::newest_first(cursor, &key, &is_hidden)?;
            rows.add(&key, &operands.value(&key, merges)?, None, chunk);
        }
        (Stop::Apart, Some(entry)) => {
            rows.add(entry.key, entry.value, cursor.separated()?, chunk);
            if !rows.is_full(chunk) {
                cursor.next()?;
            }
        }
    }
    Ok(())
}

/// So many entries a chunk walks past as a rule, however few rows they make: an epoch is pinned
/// meanwhile, and nothing of the region is released.
const MOST_WALKED: usize = 4096;

/// Why a walk up looks at an entry by itself.
enum Stop {
    /// The rows are enough.
    Full,
    /// The chunk has walked far enough.
    Walked,
    /// Many versions of its key were passed; to this sequence number.
    Seek(Lsn),
    /// It has operands.
    Merge,
    /// Its value lies apart.
    Apart,
    Failed(Error),
}

/// What a walk down knows of a key whose versions it has not all seen.
#[derive(Clone, Copy)]
struct KeyUnderWay {
    /// Rows that came before it.
    before: usize,
    /// Its newest version so far.
    newest: Lsn,
    /// Whether that has operands.
    has_operands: bool,
}

/// The last key of a walk down.
#[derive(Default)]
struct LastKey {
    key: Vec<u8>,
    under_way: Option<KeyUnderWay>,
}

fn walk_down(
    rows: &mut Rows,
    cursor: &mut MergingCursor<'_>,
    range: (&KeyRange, Lsn),
    (is_hidden, merges): (impl Fn(&[u8], Lsn) -> Result<bool>, (&TableOperator, &ReadAhead)),
    chunk: Chunk,
) -> Result<()> {
    let mut last = LastKey::default();
    let walked = pass_down((rows, &mut last), cursor, range, (&is_hidden, merges), chunk);
    let LastKey { key, under_way } = last;
    if let (Err(_), Some(KeyUnderWay { before, .. })) = (&walked, under_way) {
        // Not all versions of its key were seen.
        rows.truncate(before);
        if !merges.1.has_left() {
            // What cannot be read may lie in front of the key. On the way up its newest version
            // comes first. Where that fails too, the next walk begins with the key.
            let own = KeyRange { lower: Bound::Included(key.clone()), upper: Bound::Included(key) };
            let seen = walk_up(rows, cursor, (&own, range.1), (&is_hidden, merges), chunk);
            debug_assert!(seen.is_err() || rows.len() <= before + 1, "a key has one row");
            rows.exhausted = false;
        }
    }
    walked
}

fn pass_down(
    (rows, LastKey { key, under_way }): (&mut Rows, &mut LastKey),
    cursor: &mut MergingCursor<'_>,
    (range, at): (&KeyRange, Lsn),
    (is_hidden, merges): (impl Fn(&[u8], Lsn) -> Result<bool>, (&TableOperator, &ReadAhead)),
    chunk: Chunk,
) -> Result<()> {
    cursor.seek_before(end_of(range).as_deref())?;
    // The operands of the newest version of the walk's key.
    let (mut operands, mut passed, mut walked) = (<_>::default(), Passed::default(), 0);
    while let Some(entry) = cursor.entry() {
        walked += 1;
        let so_far = match under_way.filter(|_| entry.key == *key) {
            Some(same) => same,
            None => {
                let done = (under_way.take(), &mut operands);
                finish_key(rows, key, done, (&is_hidden, merges), chunk)?;
                if !range.above_lower(entry.key) {
                    rows.exhausted = true;
                    return Ok(());
                }
                if rows.is_full(chunk) || walked > MOST_WALKED {
                    return Ok(());
                }
                key.clear();
                key.extend_from_slice(entry.key);
                KeyUnderWay { before: rows.len(), newest: 0, has_operands: false }
            }
        };
        *under_way = Some(so_far);
        let KeyUnderWay { before, newest, has_operands } = so_far;
        let are_many = passed.are_many(entry.key);
        if are_many {
            // To the newest that a reader may see.
            cursor.seek(key, at)?;
        }
        // Backwards the oldest version comes first: each newer one takes its place.
        if let Some(entry) = cursor.entry().filter(|entry| entry.key == *key && entry.seq <= at) {
            let is_merge = entry.kind == Kind::Merge;
            *under_way = Some(KeyUnderWay { before, newest: entry.seq, has_operands: is_merge });
            if is_merge && !chunk.keys_only {
                // A row for now: its value comes once all versions were seen.
                let has_value = !has_operands && rows.len() > before;
                let below = if has_value { rows.pop_value() } else { None };
                rows.truncate(before);
                rows.add(entry.key, &[], None, chunk);
                if are_many {
                    operands = PassedOperands::oldest_first(cursor, key, &is_hidden)?;
                } else {
                    operands.add_newer(&entry, below.map(|value| (newest, value)));
                }
            } else {
                rows.truncate(before);
                operands.clear();
                if is_put(&entry) {
                    rows.add(entry.key, entry.value, separated(cursor, &entry)?, chunk);
                }
            }
        }
        if are_many {
            cursor.seek_before(Some(key))?;
        } else {
            cursor.prev()?;
        }
    }
    let done = (under_way.take(), &mut operands);
    finish_key(rows, key, done, (&is_hidden, merges), chunk)?;
    rows.exhausted = true;
    Ok(())
}

/// All versions of `key` were seen: drops its row if it is hidden. If the newest version has
/// operands, the row gets the value that they make. A chunk of keys only does without.
fn finish_key(
    rows: &mut Rows,
    key: &[u8],
    (under_way, operands): (Option<KeyUnderWay>, &mut PassedOperands),
    (is_hidden, merges): (impl Fn(&[u8], Lsn) -> Result<bool>, (&TableOperator, &ReadAhead)),
    chunk: Chunk,
) -> Result<()> {
    let Some(KeyUnderWay { before, newest, has_operands }) = under_way else { return Ok(()) };
    if rows.len() <= before {
        rows.pass(key);
        return Ok(());
    }
    // Without knowing that, the walk has not passed the key.
    let hidden = is_hidden(key, newest).inspect_err(|_| rows.truncate(before))?;
    if hidden {
        rows.truncate(before);
        rows.pass(key);
    } else if has_operands && !chunk.keys_only {
        rows.truncate(before);
        operands.turn(key, is_hidden)?;
        rows.add(key, &operands.value(key, merges)?, None, chunk);
    }
    operands.clear();
    Ok(())
}

/// A walk steps past this many versions of a key, and then seeks. RocksDB has the same number
/// (`max_sequential_skip_in_iterations`).
const MOST_PASSED: usize = 8;

/// Versions of one key that a walk has passed.
#[derive(Debug, Default)]
struct Passed {
    key: Vec<u8>,
    versions: usize,
}

impl Passed {
    /// Counts one more; whether there are many. Then it begins again from none.
    fn are_many(&mut self, key: &[u8]) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.versions = 0;
        }
        self.versions += 1;
        let are_many = self.versions > MOST_PASSED;
        if are_many {
            self.versions = 0;
        }
        are_many
    }
}

/// What all keys of a range lie before; `None` if it has no end.
fn end_of(range: &KeyRange) -> Option<Cow<'_, [u8]>> {
    match &range.upper {
        Bound::Unbounded => None,
        Bound::Excluded(upper) => Some(Cow::Borrowed(upper)),
        Bound::Included(upper) => {
            // The least key greater than `upper`.
            let mut after = upper.clone();
            after.push(0);
            Some(Cow::Owned(after))
        }
    }
}

#[cfg(test)]
mod tests;
