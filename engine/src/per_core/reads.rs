//! What a closure has of the shard that runs it.

use std::cell::Cell;

use bytes::Bytes;

use super::state::{ExecutorState, ShardCount, ShardCounts};
use crate::base::error::{Error, Result};
use crate::read;
use crate::read::AsOf;
use crate::read::view::PinnedView;
use crate::table::{Table, TableCore};

/// The shard that runs a closure. See [`PerCore`](crate::PerCore).
///
/// The closure may use every handle of the database that it has: it may write, and run
/// transactions, over keys of all shards. The engine is the same for all threads. Reads of many
/// keys are best made through [`ShardScope::read`].
pub struct ShardScope<'a> {
    state: &'a ExecutorState,
    number: usize,
    counts: &'a ShardCounts,
}

impl<'a> ShardScope<'a> {
    pub(super) fn new(
        state: &'a ExecutorState,
        number: usize,
        counts: &'a ShardCounts,
    ) -> ShardScope<'a> {
        ShardScope { state, number, counts }
    }

    /// A closure has ended on it.
    pub(super) fn count_closure(&self, has_panicked: bool) {
        self.counts.add(ShardCount::Closures, 1);
        self.counts.add(ShardCount::Panics, u64::from(has_panicked));
    }

    /// Its number, from 0 on.
    pub fn number(&self) -> usize {
        self.number
    }

    /// What `f` makes of `table` as it is at one moment. The epoch is pinned, and the table's view
    /// loaded, once for all look-ups in `f`.
    ///
    /// While `f` runs, memory that readers may see is not given back: it should take milliseconds
    /// at most. A write inside of it fails with `Invalid`, since it could wait for this read.
    ///
    /// # Errors
    ///
    /// `MissingTable` when the table was dropped; `Invalid` if it is of another database; `Closed`.
    /// Errors of single look-ups are those of their calls.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// users.put("ada", "1815")?;
    /// let cores = db.per_core(2)?;
    /// let found = cores.submit_to(0, move |shard| {
    ///     shard.read(&users, |reads| {
    ///         let names = ["ada", "alan"];
    ///         names.iter().filter(|name| matches!(reads.contains_key(name), Ok(true))).count()
    ///     })
    /// })?;
    /// assert_eq!(found.wait()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<T>(&self, table: &Table, f: impl FnOnce(&TableReads<'_>) -> T) -> Result<T> {
        let shared = &self.state.shared;
        if !std::sync::Arc::ptr_eq(shared, &table.shared) {
            let name = table.name();
            let message = format!("table {name:?} is of another database than the executor");
            return Err(Error::invalid(message));
        }
        // The table may turn out to be emptied, and is looked into again then. `f` has not run.
        let f = Cell::new(Some(f));
        let read = shared.with_table(&table.slot, |core| {
            shared.read(core, None, |view, at| {
                let gets = Cell::new(0);
                let reads = TableReads { core, view, at, gets };
                let made = f.take().map(|f| f(&reads));
                self.counts.add(ShardCount::Gets, reads.gets.get());
                Ok(made)
            })
        })?;
        Ok(read.expect("invariant: a call that ran `f` ended without an error"))
    }
}

impl std::fmt::Debug for ShardScope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardScope").field("number", &self.number).finish_non_exhaustive()
    }
}

/// One table at one moment, for many look-ups. See [`ShardScope::read`].
pub struct TableReads<'a> {
    core: &'a TableCore,
    view: PinnedView<'a>,
    at: AsOf,
    gets: Cell<u64>,
}

impl TableReads<'_> {
    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the block that would hold it is damaged;
    /// - `Unavailable`: a file could not be read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.counted(read::get(self.view, key.as_ref(), self.at))
    }

    /// What `f` makes of the value of `key`; `None` without one. It is lent the bytes where they
    /// lie, and nothing is allocated.
    ///
    /// # Errors
    ///
    /// As [`TableReads::get`].
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.counted(read::lend(self.view, (key.as_ref(), self.at), f))
    }

    /// Whether there is `key`. A value that lies apart from its key is not read.
    ///
    /// # Errors
    ///
    /// As [`TableReads::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.counted(read::contains(self.view, key.as_ref(), self.at))
    }

    #[inline]
    fn counted<T>(&self, read: Result<T>) -> Result<T> {
        self.gets.set(self.gets.get() + 1);
        read.map_err(|error| error.in_table(|| self.core.name()))
    }
}

impl std::fmt::Debug for TableReads<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableReads").field("table", &self.core.name()).finish_non_exhaustive()
    }
}
