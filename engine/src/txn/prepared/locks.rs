//! The locks of a prepared transaction beyond those on what it wrote, as records
//! (`docs/format.md`, section 1).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::commit::LockRecord;
use crate::error::Result;
use crate::extent::{BlockCache, Blocks, ReadAhead};
use crate::levels::{Level, LevelCursor};
use crate::locks::{Keys, Locker, Mode, Patience};
use crate::memtable::{Record, record_len};
use crate::mvcc::pin;
use crate::read::KeyRange;
use crate::record::{Cursor, Kind, LSN_MAX};
use crate::table::{NewRun, Pinned, Shared, TableBatch};

/// Records for the locks of `locker` but the exclusive ones on rows of `batch` and of `runs`.
///
/// # Errors
///
/// `Corrupt` if what was spilled does not check out; or on an I/O error.
pub(super) fn encode(
    locker: &Locker,
    batch: &TableBatch,
    runs: &[NewRun],
    targets: &[Arc<Pinned>],
    cache: &BlockCache,
) -> Result<Vec<LockRecord>> {
    if runs.is_empty() && !locker.has_ranges() && locker.held() == batch.len() {
        // Without a range each row was locked by itself before it was written.
        return Ok(Vec::new());
    }
    let written: BTreeSet<(u64, &[u8])> =
        batch.rows().map(|(table, key)| (table.lock_space(), key)).collect();
    let mut records = Vec::new();
    for lock in locker.locks() {
        let target = targets.iter().find(|target| target.lock_space() == lock.space);
        let Some(target) = target else { continue };
        if let Keys::One(key) = &lock.keys
            && lock.mode == Mode::Exclusive
            && (written.contains(&(lock.space, key)) || is_in_run(runs, target, key, cache)?)
        {
            continue;
        }
        let (key, value) = encode_one(lock.mode, lock.keys);
        records.push(LockRecord { table: target.core.id(), key, value });
    }
    Ok(records)
}

fn is_in_run(runs: &[NewRun], target: &Pinned, key: &[u8], cache: &BlockCache) -> Result<bool> {
    let run = runs.iter().find(|run| run.core.id() == target.core.id());
    let Some(extent) = run.and_then(|run| run.extents.find(key)) else { return Ok(false) };
    Ok(extent.get(key, LSN_MAX, Blocks::new(cache, &pin()))?.is_some())
}

/// Bytes that they take in a zone.
pub(super) fn stored_len(locks: &[LockRecord]) -> usize {
    locks.iter().map(|lock| record_len(lock.key.len(), lock.value.len())).sum()
}

fn encode_one(mode: Mode, keys: Keys) -> (Vec<u8>, Vec<u8>) {
    let mode = match mode {
        Mode::Shared => 1,
        Mode::Exclusive => 2,
    };
    match keys {
        Keys::One(key) => (key, vec![mode, 0, 0, 0]),
        Keys::Range(KeyRange { lower, upper }) => {
            let ((from, lower), (to, upper)) = (encode_bound(lower), encode_bound(upper));
            (lower, [vec![mode, 1, from, to], upper].concat())
        }
    }
}

fn encode_bound(bound: Bound<Vec<u8>>) -> (u8, Vec<u8>) {
    match bound {
        Bound::Unbounded => (0, Vec::new()),
        Bound::Included(key) => (1, key),
        Bound::Excluded(key) => (2, key),
    }
}

/// What the record of a lock says; `None` if it is not sound.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<(Mode, Keys)> {
    let (&[mode, is_range, from, to], upper) = value.split_first_chunk()?;
    let mode = match mode {
        1 => Mode::Shared,
        2 => Mode::Exclusive,
        _ => return None,
    };
    match (is_range, from, to, upper) {
        (0, 0, 0, []) => Some((mode, Keys::One(key.to_vec()))),
        (1, ..) => {
            let (lower, upper) = (decode_bound(from, key)?, decode_bound(to, upper)?);
            Some((mode, Keys::Range(KeyRange { lower, upper })))
        }
        _ => None,
    }
}

fn decode_bound(kind: u8, key: &[u8]) -> Option<Bound<Vec<u8>>> {
    match kind {
        0 if key.is_empty() => Some(Bound::Unbounded),
        1 => Some(Bound::Included(key.to_vec())),
        2 => Some(Bound::Excluded(key.to_vec())),
        _ => None,
    }
}

/// What is tried by bad bytes.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe {
    /// The first byte is the length of the record's key, which comes next; the rest its value.
    pub(crate) fn lock(bytes: &[u8]) -> bool {
        let Some((&len, rest)) = bytes.split_first() else { return false };
        let Some((key, value)) = rest.split_at_checked(len.into()) else { return false };
        let decoded = super::decode(key, value);
        if let Some((mode, keys)) = decoded.clone() {
            assert_eq!(super::encode_one(mode, keys), (key.to_vec(), value.to_vec()));
        }
        decoded.is_some()
    }
}

/// Locks again what a record of a prepare, found at an opening, says was locked. No other owner
/// locks anything yet, and the prepared transactions held their locks together.
///
/// # Errors
///
/// As [`Locker::lock_key`].
pub(crate) fn lock_again(
    shared: &Shared,
    locker: &mut Locker,
    target: &Pinned,
    record: &Record<'_>,
) -> Result<()> {
    shared.committer.lock_rows()?;
    let (space, name) = (target.lock_space(), || target.label());
    let (mode, keys) = match record.kind {
        // The range has a lock of its own among the records.
        Kind::RangeDelete => return Ok(()),
        Kind::Lock => decode(record.key, record.value)
            .expect("invariant: the locks of a prepare were checked when it was found"),
        _ => (Mode::Exclusive, Keys::One(record.key.to_vec())),
    };
    match keys {
        Keys::One(key) => {
            locker.lock_key_beyond_limit(space, &key, mode, Patience::None, &name).map(drop)
        }
        Keys::Range(range) => {
            locker.lock_range_beyond_limit(space, &range, mode, Patience::None, &name).map(drop)
        }
    }
}

/// Locks again the rows of a prepare's run. Those in ranges that are locked need nothing.
///
/// # Errors
///
/// As [`Locker::lock_key`]; `Corrupt` if what was spilled does not check out.
pub(crate) fn lock_run_again(
    shared: &Shared,
    locker: &mut Locker,
    target: &Pinned,
    run: &Level,
) -> Result<()> {
    shared.committer.lock_rows()?;
    let (space, name) = (target.lock_space(), || target.label());
    let extents = Arc::clone(run.extents());
    let mut cursor = LevelCursor::new(extents, Arc::clone(&shared.cache), ReadAhead::for_job(1));
    cursor.seek(b"", LSN_MAX)?;
    while let Some(entry) = cursor.entry() {
        locker.lock_key_beyond_limit(space, entry.key, Mode::Exclusive, Patience::None, &name)?;
        cursor.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_round_trip() {
        let bound = |n: u8| match n % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(vec![n; 3]),
            _ => Bound::Excluded(vec![n; 2]),
        };
        let ranges = (0..9).map(|n| Keys::Range(KeyRange { lower: bound(n), upper: bound(n / 3) }));
        for keys in ranges.chain([Keys::One(b"key".to_vec())]) {
            for mode in [Mode::Shared, Mode::Exclusive] {
                let (key, value) = encode_one(mode, keys.clone());
                let found = format!("{:?}", decode(&key, &value).unwrap());
                assert_eq!(found, format!("{:?}", (mode, &keys)));
                assert!(decode(&key, &value[..3]).is_none());
                let mut bad = value;
                bad[0] = 3;
                assert!(decode(&key, &bad).is_none());
            }
        }
    }
}
