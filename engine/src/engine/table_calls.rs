//! Tables of a database: opened, created, dropped, renamed, emptied, and given other options.

use std::sync::Arc;
use std::time::Duration;

use super::catalog::TableRef;
use super::{Database, TableStats, stats};
use crate::base::error::Result;
use crate::base::options::{Durability, TableOptions, Tier};
use crate::table::{Keep, Table, TableSlot};

impl Database {
    /// The table called `name`, with the options that it has; creates it with the default ones when
    /// there is none.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: the name is over its limit;
    /// - `Invalid`: it is empty, or holds control characters;
    /// - `MissingTable`: there is none, and the database is open read-only or follows a shared
    ///   store;
    /// - otherwise as [`Table::put`].
    pub fn table(&self, name: &str) -> Result<Table> {
        self.inner.catalog.open_or_create(name, None, None).map(|slot| self.handle(slot))
    }

    /// The table called `name`, which has `options`; creates it when there is none. Of several
    /// callers at once one creates it, and all get it. [`Database::table`] asks for no
    /// options.
    ///
    /// # Errors
    ///
    /// `Exists` when it has other options: the message lists those that differ, stored and asked
    /// for. [`Database::set_table_options`] changes them. `Invalid` for options out of bounds;
    /// otherwise as [`Database::table`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let options = terrace::TableOptions::new().block_size(64 * 1024);
    /// let history = db.table_with("history", options)?;
    /// assert_eq!(history.options().block_bytes(), 64 * 1024);
    /// # Ok(())
    /// # }
    /// ```
    pub fn table_with(&self, name: &str, options: TableOptions) -> Result<Table> {
        self.inner.catalog.open_or_create(name, Some(options), None).map(|slot| self.handle(slot))
    }

    /// Creates a table called `name`, whose extents are laid out as `options` say, for as long as
    /// it lives: truncated, renamed, or opened again.
    ///
    /// # Errors
    ///
    /// `Exists` when there is one already; `Invalid` for options out of bounds; otherwise as
    /// [`Database::table`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let options = terrace::TableOptions::new().block_size(64 * 1024).filter_bits(0);
    /// let history = db.create_table("history", options)?;
    /// history.put("1815-12-10", "ada")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_table(&self, name: &str, options: TableOptions) -> Result<Table> {
        let slot = self.inner.catalog.create(name, options)?;
        Ok(self.handle(slot))
    }

    /// Creates a table as another database has it, with a merge operator that need not be
    /// registered.
    pub(crate) fn create_followed_table(&self, name: &str, options: TableOptions) -> Result<Table> {
        let slot = self.inner.catalog.create_followed(name, options)?;
        Ok(self.handle(slot))
    }

    /// Creates a table of a dump, with a merge operator that need not be registered.
    pub(crate) fn create_stored_table(&self, name: &str, options: TableOptions) -> Result<Table> {
        let slot = self.inner.catalog.create_stored(name, options)?;
        Ok(self.handle(slot))
    }

    /// The table called `name`.
    ///
    /// # Errors
    ///
    /// `MissingTable` when there is none, naming those there are; `Closed`.
    pub fn existing_table(&self, name: &str) -> Result<Table> {
        let slot = self.inner.catalog.existing(TableRef::Name(name))?;
        Ok(self.handle(slot))
    }

    pub(crate) fn handle(&self, slot: Arc<TableSlot>) -> Table {
        let keep: Keep = self.inner.clone();
        let (shared, durability) = (Arc::clone(&self.inner.shared), Durability::Durable);
        Table { shared, slot, keep, durability }
    }

    /// The names of all tables, sorted.
    pub fn table_names(&self) -> Vec<String> {
        self.inner.catalog.table_names()
    }

    /// Drops a table and all that is in it. Handles of it fail from then on. After an
    /// `UnknownOutcome` the table is listed and can be read, unless the drop is known to be
    /// durable. The next opening decides.
    ///
    /// # Errors
    ///
    /// `MissingTable` when there is none, or the handle's was dropped; otherwise as [`Table::put`].
    pub fn drop_table<'a>(&self, table: impl Into<TableRef<'a>>) -> Result<()> {
        self.inner.catalog.drop_table(table.into())
    }

    /// Gives a table another name. Handles follow it.
    ///
    /// # Errors
    ///
    /// `MissingTable` when there is no such table; `Exists` when there is a `to`; otherwise as
    /// [`Table::put`].
    pub fn rename_table<'a>(&self, table: impl Into<TableRef<'a>>, to: &str) -> Result<()> {
        self.inner.catalog.rename_table(table.into(), to)
    }

    /// Empties a table, at no cost per row. Handles stay valid; snapshots and iterators made
    /// before fail on it.
    ///
    /// # Errors
    ///
    /// As [`Database::drop_table`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let staged = db.table("staged")?;
    /// staged.put("ada", "1815")?;
    /// db.rename_table("staged", "users")?;
    /// db.truncate_table(&staged)?; // the table of the handle, which is `users` by now
    /// assert_eq!(db.table("users")?.iter().count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn truncate_table<'a>(&self, table: impl Into<TableRef<'a>>) -> Result<()> {
        self.inner.catalog.truncate_table(table.into())
    }

    /// Sets how long records of a table live from now on, those that are there too; `None` for
    /// ever. See [`TableOptions::ttl`]. It counts at once, for snapshots as well: a shorter time
    /// hides what is older. What has expired before does not come back, however long the new time
    /// is.
    ///
    /// # Errors
    ///
    /// `MissingTable` when there is no such table; `Invalid` for a time out of bounds; `Full` when
    /// the disk is full, and nothing was changed; otherwise as [`Table::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// use std::time::Duration;
    ///
    /// let day = Duration::from_secs(86_400);
    /// db.create_table("sessions", terrace::TableOptions::new().ttl(day))?;
    /// db.set_ttl("sessions", Some(7 * day))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_ttl<'a>(&self, table: impl Into<TableRef<'a>>, ttl: Option<Duration>) -> Result<()> {
        self.change_table_options(table, |options| Ok(TableOptions { ttl, ..options }))
    }

    /// Changes where levels 2 and deeper of a table lie ([`TableOptions::cold`]): at once, durably,
    /// by one edit of the journal. What the table has follows in the background;
    /// [`TableStats::misplaced_bytes`](crate::TableStats::misplaced_bytes) says how much is left.
    /// Reads and writes go on meanwhile.
    ///
    /// # Errors
    ///
    /// `MissingTable` for a table that there is not; `Invalid` for [`Tier::Object`] without a
    /// store; otherwise as [`Database::change_table_options`].
    pub fn set_cold_tier<'a>(&self, table: impl Into<TableRef<'a>>, tier: Tier) -> Result<()> {
        self.change_table_options(table, |options| Ok(options.cold(tier)))
    }

    /// Gives a table all of these options in place of its own.
    /// [`Database::change_table_options`] changes some and keeps the others, also those that
    /// another caller changes at the same time.
    ///
    /// # Errors
    ///
    /// As [`Database::change_table_options`].
    pub fn set_table_options<'a>(
        &self,
        table: impl Into<TableRef<'a>>,
        options: TableOptions,
    ) -> Result<()> {
        self.change_table_options(table, |_| Ok(options))
    }

    /// Gives a table the options that `change` makes of those that it has ([`Table::options`] reads
    /// them). It is called again if another caller has changed them meanwhile, so that no change is
    /// lost. An error that it returns is the outcome, and nothing was changed.
    ///
    /// The block size, the filter and which values lie apart count for what is written to disk from
    /// now on: compactions bring older extents there in time. Memtables go to the container of
    /// level 0 that is named, from now on; what the one from before has stays there until it is
    /// drained. The time to live counts as [`Database::set_ttl`] has it.
    ///
    /// # Errors
    ///
    /// As [`Database::set_ttl`], and `Invalid` for options out of bounds.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let table = db.table("history")?;
    /// db.change_table_options(&table, |options| Ok(options.block_size(64 * 1024)))?;
    /// assert_eq!(table.options().block_bytes(), 64 * 1024);
    /// # Ok(())
    /// # }
    /// ```
    pub fn change_table_options<'a>(
        &self,
        table: impl Into<TableRef<'a>>,
        change: impl FnMut(TableOptions) -> Result<TableOptions>,
    ) -> Result<()> {
        self.inner.catalog.change_options(table.into(), change)
    }

    /// What one table has where. It costs a look at that table alone.
    ///
    /// # Errors
    ///
    /// `MissingTable` when there is none, or the handle's was dropped; `Closed`.
    pub fn table_stats<'a>(&self, table: impl Into<TableRef<'a>>) -> Result<TableStats> {
        let slot = self.inner.catalog.existing(table.into())?;
        Ok(stats::table(&slot.core(), &self.inner.ctx.shape()))
    }
}
