//! Dumps: all rows of a database as a stream of entries that any version of the format can take in.
//!
//! A dump is what one snapshot shows, table by table, in the order of keys. A load gives each table
//! its rows by one bulk load, so a table has all rows of the dump or is not there. The binary form
//! is in [`stream`]; the command has another one.

mod stream;

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::is_of_node;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::TableOptions;
use crate::engine::Database;
use crate::engine::catalog::READER_TABLE;
use crate::mvcc::pin;
use crate::table::{BulkLoad, Snapshot, Table, WriteBatch};

#[cfg(any(test, feature = "testing"))]
pub(crate) use stream::probe;

/// A part of a dump. All tables come first. Then comes the blob of the last commit that had one, if
/// there is one. Then come, for each table in the order of their names, [`DumpEntry::Rows`] and its
/// rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpEntry<'a> {
    /// A table, by its name, with its options.
    Table(&'a str, TableOptions),
    /// What [`Database::last_blob`] gave.
    Blob(&'a [u8]),
    /// The rows of the table of this name follow.
    Rows(&'a str),
    /// A row: its key, which is greater than the one before, and its value.
    Row(&'a [u8], &'a [u8]),
}

/// What of a database a dump or a load takes: all of it by default.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    tables: Vec<String>,
    without_prepared: bool,
}

impl DumpOptions {
    /// All tables. A dump is refused while transactions are prepared.
    pub fn new() -> DumpOptions {
        DumpOptions::default()
    }

    /// Takes this table, and others that are named so, and no other one. The blob is left out.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> DumpOptions {
        self.tables.push(name.into());
        self
    }

    /// Dumps although transactions are prepared. What they wrote, and their locks, are left out.
    #[must_use]
    pub fn without_prepared(mut self) -> DumpOptions {
        self.without_prepared = true;
        self
    }

    fn takes(&self, name: &str) -> bool {
        self.tables.is_empty() || self.tables.iter().any(|table| table == name)
    }

    /// Fails if a table was named that is not among `names`.
    fn check_named(&self, names: &[&str]) -> Result<()> {
        match self.tables.iter().find(|table| !names.contains(&table.as_str())) {
            None => Ok(()),
            Some(missing) => Err(Error::new(
                ErrorKind::MissingTable,
                format!("there is no table {missing:?}; there are: {}", names.join(", ")),
            )),
        }
    }
}

/// What a dump or a load has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DumpReport {
    /// Tables, with all their rows.
    pub tables: u64,
    /// Rows of these tables.
    pub rows: u64,
}

impl Database {
    /// Writes all tables with their options, their rows, and the last blob to `to`, as one snapshot
    /// shows them, while writers go on. [`Database::load`] takes them in. `docs/format.md` has the
    /// form: it has a checksum for each block and an end, so a load tells a damaged dump and one
    /// that was cut off. It costs a reading of all rows, and as much memory as a block and a row
    /// have. Old versions of rows stay meanwhile, as for every snapshot.
    ///
    /// Merge operators are dumped by name, and their tables with the merged values. The age of rows
    /// is left out: in a table with a time to live they live that long from the load on.
    ///
    /// # Errors
    ///
    /// - `Invalid`: transactions are prepared, and were not left out by
    ///   [`DumpOptions::without_prepared`];
    /// - `MissingTable`: a table that was named is not there;
    /// - `Conflict`: a table was dropped or truncated meanwhile;
    /// - `Full` and `Unavailable`: `to` has failed;
    /// - otherwise as [`Table::range`].
    ///
    /// What was written by then has no end, and no load takes it for whole.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    /// use terrace::{Database, DumpOptions};
    ///
    /// let db = Database::open(one)?;
    /// db.table("users")?.put("ada", "1815")?;
    /// let mut dump = Vec::new();
    /// assert_eq!(db.dump(&DumpOptions::new(), &mut dump)?.rows, 1);
    ///
    /// let new = Database::open(two)?;
    /// new.load(&DumpOptions::new(), &dump[..])?;
    /// assert!(new.existing_table("users")?.get("ada")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump(&self, options: &DumpOptions, to: impl Write) -> Result<DumpReport> {
        let mut out = stream::Encoder::new(to);
        let report = self.dump_entries(options, |entry| out.add(&entry))?;
        out.end(report).map_err(|e| of_stream("write", e))?;
        Ok(report)
    }

    /// As [`Database::dump`], in a form of the caller's own: `each` is given one entry after the
    /// other.
    ///
    /// # Errors
    ///
    /// As [`Database::dump`]. An error of `each` ends the dump.
    pub fn dump_entries(
        &self,
        options: &DumpOptions,
        mut each: impl FnMut(DumpEntry<'_>) -> io::Result<()>,
    ) -> Result<DumpReport> {
        let Moment { tables, snapshot, blob } = self.moment(options)?;
        let mut each = |entry: DumpEntry<'_>| each(entry).map_err(|e| of_stream("write", e));
        for (name, table) in &tables {
            each(DumpEntry::Table(name, table.options()))?;
        }
        if let Some(blob) = &blob {
            each(DumpEntry::Blob(blob))?;
        }
        let mut report = DumpReport::default();
        for (name, table) in &tables {
            each(DumpEntry::Rows(name))?;
            for row in snapshot.range(table, ..) {
                let (key, value) = row?;
                each(DumpEntry::Row(&key, &value))?;
                report.rows += 1;
            }
            report.tables += 1;
        }
        Ok(report)
    }

    /// What a dump is of: tables, a snapshot, and the blob as of it.
    fn moment(&self, options: &DumpOptions) -> Result<Moment> {
        let shared = &self.inner.shared;
        shared.check_open()?;
        // None is created, dropped or renamed meanwhile.
        let _ddl = shared.ddl.lock();
        let mut names = self.table_names();
        if is_of_node(self)? {
            names.retain(|name| name != READER_TABLE);
        }
        options.check_named(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let taken = names.into_iter().filter(|name| options.takes(name));
        let tables = taken.map(|name| Ok((name.clone(), self.existing_table(&name)?)));
        let tables = tables.collect::<Result<_>>()?;
        // For the blob: a later commit frees its zone.
        let _guard = pin();
        let (blobs, mut last) = (&shared.committer.blobs, None);
        let registered = shared.snapshots.register_at(|visible| {
            let (lsn, blob) = blobs.as_of(|| visible.get());
            last = blob;
            lsn
        });
        let blob = last.filter(|_| options.tables.is_empty()).map(|blob| blobs.read(blob));
        // Behind the snapshot: one that is resolved in between is not in it, and was on its way.
        let prepared = self.list_prepared();
        if let Some(first) = prepared.first().filter(|_| !options.without_prepared) {
            return Err(Error::invalid(format!(
                "{} transactions are prepared, the first as \"{}\", and a dump cannot have them; \
                 commit them or roll them back, or leave them out",
                prepared.len(),
                first.id.escape_ascii()
            )));
        }
        let registered = Arc::new(registered);
        let snapshot =
            Snapshot { shared: Arc::clone(shared), registered, keep: self.inner.clone() };
        Ok(Moment { tables, snapshot, blob })
    }

    /// Takes in a dump that [`Database::dump`] has written: makes its tables, with their options
    /// and rows. A merge operator need not be known to the opening. The blob becomes the last one
    /// where the database has none. It holds a few MiB of memory, however long the dump is.
    ///
    /// # Errors
    ///
    /// - `Exists`: the database has a table of that name. Nothing was loaded, unless another thread
    ///   has made the table since the load began;
    /// - `MissingTable`: a table that was named is not in the dump. Nothing was loaded;
    /// - `Corrupt`: the dump is damaged or was cut off, at the offset that is told;
    /// - `Invalid`: it is no dump, or of another version of the format;
    /// - `Unavailable`: `from` has failed;
    /// - otherwise as [`BulkLoad::finish`].
    ///
    /// After an error each table has all rows of the dump or is not there, and the message says how
    /// many tables and rows there are. A process that dies leaves the table under way without rows.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terrace::{Database, DumpOptions, ErrorKind};
    ///
    /// let db = Database::open(dir.path().join("db"))?;
    /// db.table("users")?.put("ada", "1815")?;
    /// let mut dump = Vec::new();
    /// db.dump(&DumpOptions::new(), &mut dump)?;
    /// db.drop_table("users")?;
    ///
    /// let cut_off = &dump[..dump.len() - 1];
    /// let error = db.load(&DumpOptions::new(), cut_off).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Corrupt);
    /// # Ok(())
    /// # }
    /// ```
    pub fn load(&self, options: &DumpOptions, from: impl Read) -> Result<DumpReport> {
        self.load_entries(options, |add| stream::decode(from, add))
    }

    /// As [`Database::load`], from a form of the caller's own: `feed` gives one entry after the
    /// other to the function that it is called with, and ends with its first error.
    ///
    /// # Errors
    ///
    /// As [`Database::load`]. An error of `feed` ends the load; one of `InvalidData` is `Invalid`.
    pub fn load_entries(
        &self,
        options: &DumpOptions,
        feed: impl FnOnce(&mut dyn FnMut(DumpEntry<'_>) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<DumpReport> {
        let mut loader = Loader::new(self, options);
        let fed = feed(&mut |entry| loader.add(&entry).map_err(io::Error::other));
        let ended = fed.map_err(|e| of_stream("read", e)).and_then(|()| loader.finish());
        ended.map_err(|error| loader.abandon(error))
    }
}

/// The error of a stream that failed, or the engine's own that came through it.
pub(crate) fn of_stream(doing: &str, error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Error::invalid(format!("cannot {doing} the dump: {error}"))
        }
        Err(error) => Error::io(doing, Path::new("the dump"), error),
    }
}

struct Moment {
    tables: Vec<(String, Table)>,
    snapshot: Snapshot,
    blob: Option<Vec<u8>>,
}

/// A dump on its way into a database.
struct Loader<'a> {
    database: &'a Database,
    options: &'a DumpOptions,
    /// Those that the dump names, the ones first whose rows have not come.
    tables: Vec<(String, TableOptions)>,
    blob: Option<Vec<u8>>,
    /// Rows of some table were announced.
    has_begun: bool,
    open: Option<Loading>,
    done: DumpReport,
}

/// The table under way.
struct Loading {
    table: Table,
    load: BulkLoad,
    rows: u64,
}

impl Loader<'_> {
    fn new<'a>(database: &'a Database, options: &'a DumpOptions) -> Loader<'a> {
        let (tables, done) = (Vec::new(), DumpReport::default());
        Loader { database, options, tables, blob: None, has_begun: false, open: None, done }
    }

    fn add(&mut self, entry: &DumpEntry<'_>) -> Result<()> {
        match *entry {
            DumpEntry::Table(name, options) if !self.has_begun => {
                self.tables.push((name.to_string(), options));
            }
            DumpEntry::Blob(blob) if !self.has_begun => self.blob = Some(blob.to_vec()),
            DumpEntry::Rows(name) => self.begin(name)?,
            DumpEntry::Row(key, value) if self.has_begun => {
                // Rows of a table that is not taken pass by.
                if let Some(open) = &mut self.open {
                    open.load.put(key, value)?;
                    open.rows += 1;
                }
            }
            _ => return Err(out_of_order(entry)),
        }
        Ok(())
    }

    /// Ends the table under way, and begins the next one.
    fn begin(&mut self, name: &str) -> Result<()> {
        self.check()?;
        self.end_table()?;
        let found = self.tables.iter().position(|(known, _)| known == name);
        let found = found.ok_or_else(|| out_of_order(&DumpEntry::Rows(name)))?;
        let (name, options) = self.tables.remove(found);
        if self.options.takes(&name) {
            let table = self.database.create_stored_table(&name, options)?;
            let load = table.bulk_load(crate::table::Existing::Refuse)?;
            self.open = Some(Loading { table, load, rows: 0 });
        }
        Ok(())
    }

    /// Refuses what cannot be loaded before anything is.
    fn check(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let names: Vec<&str> = self.tables.iter().map(|(name, _)| name.as_str()).collect();
        self.options.check_named(&names)?;
        let there = self.database.table_names();
        let taken = names.into_iter().filter(|name| self.options.takes(name));
        let both: Vec<&str> = taken.filter(|name| there.iter().any(|it| it == name)).collect();
        if both.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Exists,
            format!(
                "the database has tables of the dump already: {}; drop or rename them, load into a \
                 new database, or name the other tables alone",
                both.join(", ")
            ),
        ))
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open {
            open.load.finish()?;
            self.done.rows += open.rows;
            self.done.tables += 1;
        }
        self.open = None;
        Ok(())
    }

    fn finish(&mut self) -> Result<DumpReport> {
        self.check()?;
        self.end_table()?;
        if let Some((name, _)) = self.tables.first() {
            return Err(Error::invalid(format!("the dump names table {name:?} without its rows")));
        }
        let takes_all = self.options.tables.is_empty() && self.database.last_blob().is_none();
        if let Some(blob) = self.blob.take().filter(|_| takes_all) {
            let mut batch = WriteBatch::new();
            batch.set_blob(blob);
            self.database.write(batch)?;
        }
        Ok(self.done)
    }

    /// Removes the table under way. The error says what is there.
    fn abandon(self, error: Error) -> Error {
        let DumpReport { tables, rows } = self.done;
        let done = format!("{tables} tables with {rows} rows are loaded, each whole");
        let Some(Loading { table, load, rows }) = self.open else { return error.advise(&done) };
        let name = table.name();
        drop(load);
        let state = match error.kind() {
            ErrorKind::UnknownOutcome => "has all its rows or none".to_string(),
            _ => match self.database.drop_table(&table) {
                Ok(()) => "is not there".to_string(),
                Err(e) => format!("has no rows and could not be removed ({e})"),
            },
        };
        error.advise(&format!("{done}; table {name:?}, of which {rows} rows were read, {state}"))
    }
}

fn out_of_order(entry: &DumpEntry<'_>) -> Error {
    let what = match entry {
        DumpEntry::Table(name, _) => format!("table {name:?} comes behind rows"),
        DumpEntry::Blob(_) => "the blob comes behind rows".to_string(),
        DumpEntry::Rows(name) => format!("rows of table {name:?} come twice, or without the table"),
        DumpEntry::Row(..) => "a row comes before its table".to_string(),
    };
    Error::invalid(format!("the dump has its parts in a wrong order: {what}"))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
