//! Bulk load: sorted input goes straight into extents, and becomes visible together.
//!
//! Outline. (1) Records are laid out as they come, in the format of the levels that they are for.
//! Nothing names these extents, so a load that is dropped, or whose process dies, leaves nothing.
//! (2) At the end they are synced. Then the load locks all keys from its first to its last, gaps
//! included, as a transaction would that writes them. It looks for those that are there already.
//! (3) It is committed as a run (`runs.rs`), and has the LSN of that commit. (4) The background
//! gives its extents their places in levels, by their names alone where they overlap little
//! (`compaction/placing.rs`).

use std::ops::Bound;
use std::sync::Arc;

use super::runs::{NewRun, RunWriter};
use super::{Pinned, Range, Shared, Table, TableBatch};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits;
use crate::base::options::{Durability, Failpoint};
use crate::base::record::{Cursor, Kind, LSN_MAX};
use crate::locks::{Locker, Mode, Patience};
use crate::mvcc::KeyInterval;
use crate::read::KeyRange;
use crate::sstable::ReadAhead;
use crate::version::{Level, LevelCursor};

/// So many rows of the table in front of the next loaded key are passed one by one.
const FEW_ROWS: usize = 64;

/// What a [`BulkLoad`] does with keys that the table has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It fails, names the first of them, and changes nothing. It reads what the table has between
    /// the first and the last key of the load.
    #[default]
    Refuse,
    /// Their values are replaced, as by a put. It reads nothing.
    Replace,
}

/// A load of keys in ascending order, each once, into one table: written once, in the form in
/// which levels keep it, without passing through the region.
///
/// No reader sees any of it before [`BulkLoad::finish`]. Every later reader sees all of it, at the
/// place in the order of commits that `finish` takes. Dropping it before that leaves nothing
/// behind. It holds about 2 MiB of memory, however much is loaded; 4 MiB in a table whose large
/// values lie apart.
///
/// `finish` is to others what a transaction is that writes every key from the first to the last,
/// gaps included. It waits up to 10 s for transactions that have locked any of them. A caller that
/// writes or locks one waits until it is done. A transaction under a snapshot from before it that
/// writes one of its keys has a conflict. As after the first transaction that locks a row, other
/// writes lock their rows from then on, until the database is closed.
///
/// Where extents of the load overlap nothing in the upper levels, and little below, they stay as
/// they were written, and the background only notes which level has them. Others are merged with
/// what they overlap.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let squares = db.table("squares")?;
/// let mut load = squares.bulk_load(terrace::Existing::Refuse)?;
/// for n in 0..1000u32 {
///     load.put(n.to_be_bytes(), (n * n).to_be_bytes())?;
/// }
/// assert!(load.put(7u32.to_be_bytes(), "").is_err(), "keys ascend");
/// load.finish()?;
/// assert_eq!(squares.get(12u32.to_be_bytes())?.as_deref(), Some(&144u32.to_be_bytes()[..]));
/// # Ok(())
/// # }
/// ```
pub struct BulkLoad {
    table: Table,
    /// Truncated meanwhile, the load fails.
    pinned: Pinned,
    existing: Existing,
    last: Option<Vec<u8>>,
    state: State,
}

enum State {
    Writing(Box<RunWriter>),
    /// All is written, and not committed yet.
    Written(NewRun),
    Ended,
}

impl BulkLoad {
    pub(super) fn begin(table: &Table, existing: Existing) -> Result<BulkLoad> {
        let shared = &table.shared;
        shared.check_writable()?;
        let pinned = table.slot.pin();
        pinned.core.check()?;
        let writer = RunWriter::new(shared, &pinned.core, true);
        // The cache gives way.
        shared.wakeup.wake();
        let state = State::Writing(Box::new(writer));
        Ok(BulkLoad { table: table.clone(), pinned, existing, last: None, state })
    }

    /// Adds a key with its value.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the key is not greater than the one before;
    /// - `TooLarge`: key or value are over their
    ///   limit. The load goes on without it;
    /// - `Full`, or `Unavailable` after an I/O error: the load is over and has left nothing;
    /// - otherwise as [`Table::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.table.shared.check_writable()?;
        let State::Writing(writer) = &mut self.state else { return Err(ended()) };
        check(self.last.as_deref(), key, value)?;
        if let Err(e) = writer.add(Kind::Put, key, value) {
            self.state = State::Ended;
            return Err(e);
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    /// Makes all of it visible, durably, at once. Without any key it does nothing.
    ///
    /// # Errors
    ///
    /// - `Exists`: the table has one of the keys, and they were to be refused;
    /// - `MissingTable`: it was dropped
    ///   or truncated meanwhile;
    /// - `Timeout`: a transaction has had one of the keys, or a gap between them, locked for 10 s;
    ///   or the region had no room by the deadline of the thread;
    /// - `Deadlock`: a transaction waits for another one that waits for this load;
    /// - `UnknownOutcome`: the device failed while the commit was under way;
    /// - otherwise as [`Table::put`].
    ///
    /// After a key that was there, `Timeout` and `Deadlock` it can be called again; after any other
    /// error the load is over. But for `UnknownOutcome` it has left nothing then.
    pub fn finish(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.table.shared);
        let inside = shared.enter()?;
        let inside = (!shared.region.has(Failpoint::LoadOutside)).then_some(inside);
        let run = match std::mem::replace(&mut self.state, State::Ended) {
            State::Writing(writer) => {
                let run = writer.finish()?;
                // Before a writer has to wait for this load.
                shared.sync_extents()?;
                run
            }
            State::Written(run) => run,
            State::Ended => return Err(ended()),
        };
        drop(inside);
        let extents = &run.extents;
        let Some(range) = range(extents) else { return Ok(()) };
        debug_assert_eq!(
            extents.extents().last().map(|extent| extent.meta().greatest_key.as_slice()),
            self.last.as_deref(),
            "the extents of a load end with the key that was put last"
        );
        self.pinned.core.check()?;
        let locked = self.lock(&range).and_then(|locker| {
            self.check_existing(extents, &range)?;
            Ok(locker)
        });
        let _locker = match locked {
            Ok(locker) => locker,
            Err(e) => {
                self.state = State::Written(run);
                return Err(e);
            }
        };
        let committed = shared.commit_runs(&TableBatch::default(), vec![run.clone()]);
        if committed.as_ref().is_err_and(|e| e.kind() == ErrorKind::Timeout) {
            debug_assert!(
                extents.extents().iter().all(|extent| extent.is_new()),
                "a commit of runs has no deadline once the journal has named them"
            );
            self.state = State::Written(run);
        }
        let lsn = committed?;
        shared.committer.wait_for(lsn, Durability::Durable)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.table.shared
    }

    /// Locks all that the load may touch, until its commit is visible.
    fn lock(&self, range: &KeyRange) -> Result<Locker> {
        let shared = self.shared();
        shared.committer.lock_rows()?;
        let mut locker = Locker::new(&shared.locks);
        let (space, name) = (self.pinned.lock_space(), || self.pinned.label());
        locker.lock_range(space, range, Mode::Exclusive, Patience::usual(), &name)?;
        Ok(locker)
    }

    /// Fails if the table has one of the keys, and they are to be refused. Both sides are walked in
    /// order, and each passes over what lies in front of the other's next key.
    fn check_existing(&self, extents: &Level, range: &KeyRange) -> Result<()> {
        if self.existing == Existing::Replace {
            return Ok(());
        }
        let cache = Arc::clone(&self.shared().cache);
        let mut loaded =
            LevelCursor::new(Arc::clone(extents.extents()), cache, ReadAhead::for_job(1));
        let (mut next, mut passed) = (range.start().to_vec(), 0);
        let mut rows = self.rows(&next, range);
        while let Some(row) = rows.next() {
            let (key, _) = row?;
            if *key < *next {
                passed += 1;
                if passed == FEW_ROWS {
                    rows = self.rows(&next, range);
                }
                continue;
            }
            loaded.seek(&key, LSN_MAX)?;
            match loaded.entry() {
                Some(entry) if entry.key == &key[..] => return Err(self.exists(&key)),
                Some(entry) => (next, passed) = (entry.key.to_vec(), 0),
                None => break,
            }
        }
        Ok(())
    }

    /// The rows of the table from a key to the end of the load, without their values.
    fn rows(&self, from: &[u8], range: &KeyRange) -> Range {
        let rest = KeyRange { lower: Bound::Included(from.to_vec()), upper: range.upper.clone() };
        let now = Arc::new(self.shared().snapshots.register());
        Range::new(&self.table, rest, now, || None).keys_only()
    }

    fn exists(&self, key: &[u8]) -> Error {
        Error::new(
            ErrorKind::Exists,
            format!(
                "table {:?} has key {} already, and perhaps more of the load's; remove them, or \
                 load with Existing::Replace",
                self.pinned.label(),
                shown(key)
            ),
        )
    }
}

impl std::fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.last.as_deref().map(shown);
        f.debug_struct("BulkLoad")
            .field("table", &self.table)
            .field("existing", &self.existing)
            .field("last", &last)
            .finish_non_exhaustive()
    }
}

fn ended() -> Error {
    let message = "the bulk load has ended; begin another one";
    Error::new(ErrorKind::Closed, message)
}

/// From the first key to the last; `None` without any.
fn range(extents: &Level) -> Option<KeyRange> {
    let (first, last) = (extents.extents().first()?.meta(), extents.extents().last()?.meta());
    Some(KeyInterval::closed(&first.smallest_key, &last.greatest_key).into())
}

/// Whether a key may come after `last`, with its value.
fn check(last: Option<&[u8]>, key: &[u8], value: &[u8]) -> Result<()> {
    let Some(last) = last else {
        return limits::check_key(key).and_then(|()| limits::check_value(value));
    };
    if key > last {
        let checked = limits::check_key(key).and_then(|()| limits::check_value(value));
        return checked.map_err(|e| {
            let (key, last) = (shown(key), shown(last));
            e.advise(&format!("it is key {key} of a bulk load, after {last}"))
        });
    }
    Err(Error::invalid(if key == last {
        format!("key {} comes twice in a bulk load; leave one of them out", shown(key))
    } else {
        format!(
            "key {} comes after {} in a bulk load; keys have to ascend, so sort them first",
            shown(key),
            shown(last)
        )
    }))
}

/// A key, or its beginning, for messages.
fn shown(key: &[u8]) -> String {
    const MOST: usize = 64;
    let head = key[..key.len().min(MOST)].escape_ascii();
    let rest = if key.len() > MOST { "…" } else { "" };
    format!("\"{head}{rest}\"")
}
