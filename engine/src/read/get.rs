//! One key.
//!
//! Which keys have changed since a moment: by this a transaction finds a conflict.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::{AsOf, KeyRange};
use crate::base::error::Result;
use crate::base::operator::TableOperator;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, SeparatedValue, is_open_chain};
use crate::memtable::Record;
use crate::read::view::{PinnedView, View};
use crate::sstable::{BlockCache, Found, FoundPlace, ReadAhead};

/// The value of `key` at a moment.
pub(crate) fn get(view: PinnedView<'_>, key: &[u8], as_of: AsOf) -> Result<Option<Bytes>> {
    match shown(view, key, (as_of, as_of.lsn))? {
        None => Ok(None),
        Some(operands) if operands.kind() == Kind::Merge => {
            merged(view, (key, as_of), operands).map(Some)
        }
        Some(version) => version.into_value().map(Some),
    }
}

/// What a look-up found, before a value that lies apart in an object is read.
#[derive(Debug)]
pub(crate) enum Lookup {
    Here(Bytes),
    /// It holds the space of the value.
    Apart(SeparatedValue),
    /// Operands, and the value that lies apart below them.
    Over(SeparatedValue, PendingMerge),
}

/// Operands of a key, to be merged into a value that is still to be read.
#[derive(Debug)]
pub(crate) struct PendingMerge {
    operator: TableOperator,
    key: Vec<u8>,
    /// Their records, the newest first.
    versions: Vec<Bytes>,
}

impl PendingMerge {
    /// The value that they make of the one below them.
    pub(super) fn over(&self, below: Option<&[u8]>) -> Result<Bytes> {
        self.operator.resolve(&self.key, &self.versions, below).map(Bytes::from)
    }
}

/// As [`get`], but a value that lies apart in an object is not read.
pub(crate) fn find(view: PinnedView<'_>, key: &[u8], as_of: AsOf) -> Result<Option<Lookup>> {
    let found = shown(view, key, (as_of, as_of.lsn))?;
    found.map(|version| look_up(view, (key, as_of), version)).transpose()
}

fn look_up(
    view: PinnedView<'_>,
    (key, as_of): (&[u8], AsOf),
    version: Located<'_>,
) -> Result<Lookup> {
    if version.kind() != Kind::Merge {
        return version.into_place();
    }
    let (versions, below) = versions(view, (key, as_of), version)?;
    let operands = PendingMerge { operator: view.operator.clone(), key: key.to_vec(), versions };
    Ok(match below.map(Located::into_place).transpose()? {
        None => Lookup::Here(operands.over(None)?),
        Some(Lookup::Here(value)) => Lookup::Here(operands.over(Some(&value))?),
        Some(Lookup::Apart(value) | Lookup::Over(value, _)) => Lookup::Over(value, operands),
    })
}

/// What a look-up that lends came to.
#[derive(Debug)]
pub(crate) enum LentValue<T> {
    Made(Option<T>),
    /// The value is still to be read, or in memory of its own.
    Found(Lookup),
}

/// As [`lend`], but a value that lies apart in an object is not read: `f` has not run then.
pub(crate) fn borrow_local<T>(
    view: PinnedView<'_>,
    (key, as_of): (&[u8], AsOf),
    f: impl FnOnce(&[u8]) -> T,
) -> Result<LentValue<T>> {
    let lent = match shown(view, key, (as_of, as_of.lsn))? {
        None => None,
        Some(Located::Disk(found)) if found.kind != Kind::Merge && !found.is_remote() => {
            Some(found.lend(f)?)
        }
        Some(Located::Memory(record)) if record.kind != Kind::Merge => Some(f(record.value)),
        Some(version) => return look_up(view, (key, as_of), version).map(LentValue::Found),
    };
    Ok(LentValue::Made(lent))
}

/// What `f` makes of the value of `key` at a moment. It runs once at most, while the epoch is
/// pinned, and is lent the bytes where they lie. Operands are merged into a value of
/// their own first.
pub(crate) fn lend<T>(
    view: PinnedView<'_>,
    (key, as_of): (&[u8], AsOf),
    f: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>> {
    match shown(view, key, (as_of, as_of.lsn))? {
        None => Ok(None),
        Some(operands) if operands.kind() == Kind::Merge => {
            Ok(Some(f(&merged(view, (key, as_of), operands)?)))
        }
        Some(Located::Memory(record)) => Ok(Some(f(record.value))),
        Some(Located::Disk(found)) => found.lend(f).map(Some),
    }
}

/// Whether `key` has a value at a moment. A value that lies apart is not read, and operands are not
/// merged.
pub(crate) fn contains(view: PinnedView<'_>, key: &[u8], as_of: AsOf) -> Result<bool> {
    Ok(shown(view, key, (as_of, as_of.lsn))?.is_some())
}

/// A version of a key, where it lies.
enum Located<'a> {
    Memory(Record<'a>),
    Disk(Found<'a>),
}

impl Located<'_> {
    fn seq(&self) -> Lsn {
        match self {
            Located::Memory(record) => record.seq,
            Located::Disk(found) => found.seq,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Located::Memory(record) => record.kind,
            Located::Disk(found) => found.kind,
        }
    }

    fn into_value(self) -> Result<Bytes> {
        match self {
            Located::Memory(record) => Ok(Bytes::copy_from_slice(record.value)),
            Located::Disk(found) => found.into_value(),
        }
    }

    fn into_place(self) -> Result<Lookup> {
        Ok(match self {
            Located::Memory(record) => Lookup::Here(Bytes::copy_from_slice(record.value)),
            Located::Disk(found) => match found.into_place() {
                FoundPlace::Here(value) => Lookup::Here(value),
                FoundPlace::Apart(value) if value.from.is_remote() => Lookup::Apart(value),
                FoundPlace::Apart(value) => Lookup::Here(value.read()?),
            },
        })
    }
}

/// The value that operands of a key make with what they go on with.
fn merged(view: PinnedView<'_>, (key, as_of): (&[u8], AsOf), newest: Located<'_>) -> Result<Bytes> {
    let (versions, below) = versions(view, (key, as_of), newest)?;
    let below = below.map(Located::into_value).transpose()?;
    view.operator.resolve(key, &versions, below.as_deref()).map(Bytes::from)
}

/// Records of operands of a key, the newest first, and what they go on with: each older version is
/// looked up in its turn, up to one that is a value or shows nothing.
fn versions<'a>(
    view: PinnedView<'a>,
    (key, as_of): (&[u8], AsOf),
    newest: Located<'a>,
) -> Result<(Vec<Bytes>, Option<Located<'a>>)> {
    let (mut versions, mut next) = (Vec::new(), Some(newest));
    while let Some(version) = next {
        let (kind, seq) = (version.kind(), version.seq());
        if kind != Kind::Merge {
            return Ok((versions, Some(version)));
        }
        let value = version.into_value()?;
        let goes_on = is_open_chain(&value) && seq > 0;
        versions.push(value);
        next = if goes_on { shown(view, key, (as_of, seq - 1))? } else { None };
    }
    Ok((versions, None))
}

/// The newest version of `key` at or below `at`, unless it is a delete or hidden from a reader.
// It is the whole work of most reads, and a version is large to hand on.
#[inline(always)]
fn shown<'a>(
    view: PinnedView<'a>,
    key: &[u8],
    (as_of, at): (AsOf, Lsn),
) -> Result<Option<Located<'a>>> {
    let Some(version) = newest_at(view, key, at)? else { return Ok(None) };
    let has_value = matches!(version.kind(), Kind::Put | Kind::Merge);
    let is_shown = has_value && !is_hidden(view.view, key, version.seq(), as_of)?;
    Ok(is_shown.then_some(version))
}

/// The newest version of `key` at or below `at`. The newest run is compared with what is in memory.
#[inline(always)]
fn newest_at<'a>(
    PinnedView { view, blocks }: PinnedView<'a>,
    key: &[u8],
    at: Lsn,
) -> Result<Option<Located<'a>>> {
    let in_memory = view.newest_in_memory(key, at)?;
    if view.has_runs() {
        let above = in_memory.as_ref().map_or(0, |record| record.seq);
        if let Some(found) = view.newest_in_runs(key, above, at, blocks)? {
            return Ok(Some(Located::Disk(found)));
        }
    }
    match in_memory {
        Some(record) => Ok(Some(Located::Memory(record))),
        None => Ok(view.version.get(key, at, blocks)?.map(Located::Disk)),
    }
}

/// Whether the version `seq` of `key` has expired or lies under a range tombstone.
fn is_hidden(view: &View, key: &[u8], seq: Lsn, as_of: AsOf) -> Result<bool> {
    if seq <= as_of.expired {
        return Ok(true);
    }
    match view.range_tombstones() {
        Some(ranges) => ranges.hide_version(key, seq, as_of.lsn),
        None => Ok(false),
    }
}

/// The LSN of the newest version of `key` above `since`, deletions included. A version that no
/// reader needs may be gone. No version above a registered snapshot is gone, with one exception: a
/// range delete of a key that was not there at the snapshot and is not there now.
///
/// Extents that have nothing above `since` are not read: as a rule none is, if that was lately.
pub(crate) fn newest_above(
    PinnedView { view, blocks }: PinnedView<'_>,
    key: &[u8],
    since: Lsn,
) -> Result<Option<Lsn>> {
    let in_memory = view.newest_in_memory(key, LSN_MAX)?.map(|record| record.seq);
    let mut newest = since.max(in_memory.unwrap_or(0));
    if let Some(found) = view.newest_in_runs(key, newest, LSN_MAX, blocks)? {
        newest = found.seq;
    }
    if newest == since
        && in_memory.is_none()
        && let Some(found) = view.version.get_above(key, since, blocks)?
    {
        newest = newest.max(found.seq);
    }
    if let Some(ranges) = view.range_tombstones() {
        newest = ranges.newest_over(key, (newest, LSN_MAX))?;
    }
    Ok(Some(newest).filter(|newest| *newest > since))
}

/// What a look for a change in a range has found.
pub(crate) enum Looked {
    /// A key that was changed, by the commit of this LSN.
    Found(Vec<u8>, Lsn),
    /// Nothing up to this key. The look goes on behind it.
    NothingUpTo(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// So many versions a look passes with one view: an epoch is pinned meanwhile.
const MOST_PASSED: usize = 4096;

/// Looks for a key of `range` with a version above `since`. A range tombstone counts as a version.
/// Extents that have nothing above `since` are not read. The caller holds an epoch guard.
pub(crate) fn find_change(
    view: &View,
    (cache, ahead): (&Arc<BlockCache>, &Arc<ReadAhead>),
    range: &KeyRange,
    since: Lsn,
) -> Result<Looked> {
    let Some(interval) = range.interval() else { return Ok(Looked::Nothing) };
    if let Some(ranges) = view.range_tombstones()
        && let Some((key, lsn)) = ranges.newer_in(&interval, since, ahead)?
    {
        return Ok(Looked::Found(key, lsn));
    }
    let mut cursor = view.cursor_above(&interval, since, (cache, ahead));
    // Behind all versions of a key that is left out.
    let from = if let Bound::Excluded(_) = range.lower { 0 } else { LSN_MAX };
    cursor.seek(range.start(), from)?;
    let (mut passed, mut last) = (0, Vec::new());
    while let Some(entry) = cursor.entry().filter(|entry| range.below_upper(entry.key)) {
        debug_assert!(range.above_lower(entry.key), "each look goes on behind the one before");
        if entry.seq > since {
            return Ok(Looked::Found(entry.key.to_vec(), entry.seq));
        }
        entry.key.clone_into(&mut last);
        passed += 1;
        match cursor.next() {
            Err(_) if ahead.has_left() => return Ok(Looked::NothingUpTo(last)),
            done => done?,
        }
        if passed >= MOST_PASSED {
            return Ok(Looked::NothingUpTo(last));
        }
    }
    Ok(Looked::Nothing)
}
