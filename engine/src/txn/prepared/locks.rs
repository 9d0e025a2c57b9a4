//! The locks of a prepared transaction beyond those on what it wrote, as records
//! (`docs/format.md`, section 1).
//!
//! Prepared transactions of a shared database (`docs/internals/shared-store.md`): those that a
//! checkpoint takes along, and those of the writer that a database follows.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{Named, PreparedInfo, PreparedRows, PreparedSet, Resolved, Resolving, State};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MAX_KEY_LEN;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, TableId};
use crate::commit::LockRecord;
use crate::locks::{Keys, Locker, Mode, Patience};
use crate::memtable::{Record, record_len};
use crate::mvcc::pin;
use crate::os::time;
use crate::read::KeyRange;
use crate::sstable::{BlockCache, Blocks, ReadAhead};
use crate::table::{NewRun, Pinned, Shared, TableBatch};
use crate::version::{Level, LevelCursor};

/// Records for the locks of `locker` but the exclusive ones on rows of `batch` and of `runs`.
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
            let (lower, upper) = (cut(lower, Bound::Excluded), cut(upper, Bound::Included));
            let ((from, lower), (to, upper)) = (encode_bound(lower), encode_bound(upper));
            (lower, [vec![mode, 1, from, to], upper].concat())
        }
    }
}

/// A bound that the key of a record can be. No key lies between a longer one and its beginning.
fn cut(bound: Bound<Vec<u8>>, at: fn(Vec<u8>) -> Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match bound {
        Bound::Included(mut key) | Bound::Excluded(mut key) if key.len() > MAX_KEY_LEN => {
            key.truncate(MAX_KEY_LEN);
            at(key)
        }
        bound => bound,
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

/// A prepare whose ticket is durable has its place at once, unless its thread rests. A checkpoint
/// waits for it so long.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// How often it looks whether the database is closing or has stopped.
const LOOK: Duration = Duration::from_millis(100);

/// A transaction that was prepared and open at the LSN of a checkpoint.
pub(crate) struct OpenPrepare {
    pub(crate) lsn: Lsn,
    /// Its records in the region.
    pub(crate) records: Vec<u8>,
    /// What it has spilled, by table.
    pub(crate) runs: Vec<(TableId, Level)>,
}

/// As long as it lives the records of prepares stay, also of those that get their verdict.
pub(crate) struct KeptPrepares<'a>(&'a PreparedSet);

impl PreparedSet {
    /// Keeps records, from before the LSN of a checkpoint is taken.
    pub(crate) fn keep(&self) -> KeptPrepares<'_> {
        self.state.lock().keepers += 1;
        KeptPrepares(self)
    }

    /// Lists a transaction that is prepared on the writer, or no more.
    pub(crate) fn follow(&self, id: &[u8], info: Option<PreparedInfo>) {
        let mut state = self.state.lock();
        match info {
            Some(info) => state.followed.insert(id.to_vec(), info),
            None => state.followed.remove(id),
        };
    }
}

impl KeptPrepares<'_> {
    /// The prepares up to `lsn` without a verdict up to `lsn`, the oldest first. All commits up to
    /// there are durable, and [`PreparedSet::keep`] was called before that LSN was taken. Once it
    /// `hurries`, it waits for no prepare that rests.
    pub(crate) fn open_at(
        &self,
        shared: &Shared,
        lsn: Lsn,
        hurries: &dyn Fn() -> bool,
    ) -> Result<Vec<OpenPrepare>> {
        debug_assert!(lsn <= shared.committer.durable(), "a checkpoint is of what is durable");
        let began = time::now();
        let mut state = self.0.state.lock();
        // Each ticket up to there is taken: what has one is about to have its place.
        while let Some((id, _)) = state.named.iter().find(|(_, it)| it.is_on_its_way(lsn)) {
            shared.check_open()?;
            shared.poison.check()?;
            let longest = if hurries() { LOOK } else { LONGEST_WAIT };
            if time::since(began) >= longest {
                let message = format!(
                    "the prepare of transaction \"{}\" has not ended for {longest:?}, and a \
                     checkpoint waits for it",
                    id.escape_ascii()
                );
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            self.0.placed.wait_for(&mut state, LOOK);
        }
        let mut found = state.open_at(lsn);
        drop(state);
        found.sort_by_key(|contents| contents.place.lsn);
        let open = found.into_iter().map(|PreparedRows { place, runs }| OpenPrepare {
            lsn: place.lsn,
            records: shared.region.bytes(place.at, place.len).to_vec(),
            runs,
        });
        Ok(open.collect())
    }
}

impl Drop for KeptPrepares<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(state.keepers > 0, "each keeper is counted once");
        state.keepers -= 1;
    }
}

impl Named {
    fn is_on_its_way(&self, lsn: Lsn) -> bool {
        matches!(self, Named::Preparing(ticket) if ticket.get().is_some_and(|at| at <= lsn))
    }
}

impl State {
    fn open_at(&self, lsn: Lsn) -> Vec<PreparedRows> {
        let named = self.named.values().filter_map(|named| match named {
            Named::Preparing(_) => None,
            Named::Resolving(Resolving { contents, verdict }) => {
                verdict.get().is_none_or(|at| at > lsn).then(|| contents.clone())
            }
            Named::Open(prepared) => Some(prepared.contents()),
        });
        let is_later = |resolved: &&Resolved| resolved.lsn > lsn;
        let resolved = self.resolved.iter().filter(is_later).map(|it| it.prepare.clone());
        named.chain(resolved).filter(|contents| contents.place.lsn <= lsn).collect()
    }
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
