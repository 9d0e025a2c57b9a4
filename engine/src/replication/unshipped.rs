//! What the directory of a writer that was taken over has, and the shared store lacks.
//!
//! Every claim stays in the log. The first one of somebody else behind the directory's own last one
//! says up to which commit the log has the directory's. Later commits lie whole in zones, which are
//! held until the log has them, unless they were let go.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::log::{EntryKind, Identity, SharedLog};
use super::open_log;
use crate::backup::of_stream;
use crate::base::error::{Error, Result};
use crate::base::options::TableOptions;
use crate::base::record::{
    ChainBase, Cursor, Kind, LSN_MAX, Lsn, OperandList, SYSTEM_TABLE, TableId, decode_end,
};
use crate::commit::{Content, StoredGroup, StreamPlaces};
use crate::engine::table_events::TableEvent;
use crate::engine::{Database, Engine};
use crate::memtable::Record;
use crate::mvcc::{KeyInterval, pin};
use crate::sstable::ReadAhead;
use crate::table::TableCore;

/// A change of a commit that the shared store lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnshippedChange<'a> {
    /// A row was put.
    Put {
        /// The name of its table.
        table: &'a str,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A row was deleted.
    Delete {
        /// The name of its table.
        table: &'a str,
        /// Its key.
        key: &'a [u8],
    },
    /// Rows of a table were deleted.
    DeleteRange {
        /// The name of the table.
        table: &'a str,
        /// The first key.
        from: &'a [u8],
        /// The key behind the last one; `None` for all keys from the first on.
        end: Option<&'a [u8]>,
    },
    /// Operands were merged into a row.
    Merge {
        /// The name of its table.
        table: &'a str,
        /// Its key.
        key: &'a [u8],
        /// The operands, the oldest first.
        operands: Vec<&'a [u8]>,
    },
    /// The commit's blob.
    Blob(&'a [u8]),
    /// A table was created.
    Table {
        /// Its name.
        name: &'a str,
        /// Its options.
        options: TableOptions,
    },
    /// A table was renamed.
    Rename {
        /// The name before.
        from: &'a str,
        /// The name behind.
        to: &'a str,
    },
    /// The table of this name lost all its rows.
    Truncate(&'a str),
    /// The table of this name was dropped.
    Drop(&'a str),
}

/// What the directory of a writer has, and the shared store lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnshippedReport {
    /// The last commit that the store has of the directory.
    pub shipped: u64,
    /// The last commit that was told; `shipped` if there was none.
    pub last: u64,
    /// Commits that were told.
    pub commits: u64,
    /// Changes that were told.
    pub changes: u64,
    /// Whether commits may be missing: the region was full while the store was away and let some
    /// go, or an opening without [`Options::share`](crate::Options::share) did. The rows are in
    /// the directory: read it, or dump it.
    pub has_let_go: bool,
}

impl Database {
    /// Tells each change that this directory has committed and that the shared store at `url`
    /// lacks, commit after commit: for the directory of a writer that was taken over, which is
    /// opened by [`Options::open_read_only`](crate::Options::open_read_only). `each` is given the
    /// number of the commit beside the change. Tables have the names that they had at the commit,
    /// so changes can be carried out one after the other. These are left out:
    ///
    /// - rows of tables that were dropped or truncated since, and changes of options;
    /// - what is prepared and open ([`Database::list_prepared`]). What a prepared transaction wrote
    ///   is told where it was committed. If the store has it as prepared, roll it back there first;
    /// - of a bulk load, or of a transaction that fits in no zone, rows that a later commit has
    ///   replaced.
    ///
    /// It costs two readings of the zones behind `shipped`, and memory for the names of tables.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the database is open to write, or the store's log has no claim of it;
    /// - `Unavailable`: the store does not answer, or its writer collects right now;
    /// - otherwise as [`Table::range`](crate::Table::range), and those of `each`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    /// use terrace::{Durability, Options};
    ///
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let options = Options::new().pm_size(4 << 20);
    /// let db = options.clone().object_store(&bucket).share(true).open(&one)?;
    /// db.table("users")?.durability(Durability::Remote).put("ada", "1815")?;
    /// let taken = options.clone().open_shared(&bucket, two)?;
    /// db.table("users")?.put("alan", "1912")?;
    /// drop(db);
    ///
    /// let old = options.open_read_only(&one)?;
    /// let report = old.unshipped(&bucket, |_, change| Ok(println!("{change:?}")))?;
    /// assert_eq!(report.commits, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn unshipped(
        &self,
        url: &str,
        mut each: impl FnMut(u64, UnshippedChange<'_>) -> io::Result<()>,
    ) -> Result<UnshippedReport> {
        let engine = &self.inner;
        engine.shared.check_open()?;
        if !engine.shared.read_only {
            let why = "open the directory read-only to ask what the shared store lacks of it";
            return Err(Error::invalid(why.to_string()));
        }
        let (shipped, from) = shipped_of(engine, url)?;
        let kept = engine.ctx.superblock.lock().kept;
        let has_let_go = kept.is_none_or(|kept| kept > from);
        let mut report =
            UnshippedReport { shipped, last: shipped, has_let_go, ..UnshippedReport::default() };
        let tables = engine.tables();
        let groups = || unshipped_groups(engine, from + 1, has_let_go);
        let mut names = TableNames::before(&tables, groups()?)?;
        for group in groups()? {
            let group = group?;
            (report.commits, report.last) = (report.commits + 1, group.lsn);
            let mut tell = |change: UnshippedChange<'_>| {
                report.changes += 1;
                each(group.lsn, change).map_err(|error| of_stream("write", error))
            };
            for record in group.records() {
                if let Some(event) = event_in(&record) {
                    change_by(&event).into_iter().try_for_each(&mut tell)?;
                    event.redo(&mut names.now);
                }
                changes_of(&record, &names).into_iter().try_for_each(&mut tell)?;
            }
            if group.has_runs() {
                let rows = group.records().filter(|record| record.kind != Kind::RangeDelete);
                let in_zones: BTreeSet<_> = rows.map(|it| (it.table, it.key)).collect();
                rows_of(engine, &tables, group.lsn, |record| {
                    let is_told = in_zones.contains(&(record.table, record.key));
                    let changes = (!is_told).then(|| changes_of(&record, &names));
                    changes.into_iter().flatten().try_for_each(&mut tell)
                })?;
            }
        }
        Ok(report)
    }
}

/// The commits from an LSN on.
fn unshipped_groups(
    engine: &Engine,
    from: Lsn,
    has_let_go: bool,
) -> Result<impl Iterator<Item = Result<StoredGroup<'_>>>> {
    let mut places = StreamPlaces::default();
    let groups = engine.shared.committer.stored_groups(&mut places, from)?;
    let groups = if has_let_go { groups.that_are_whole() } else { groups };
    let is_told =
        |group: &StoredGroup<'_>| group.content == Content::Commit && group.lsn <= engine.recovered;
    Ok(groups.filter(move |group| group.as_ref().map_or(true, is_told)))
}

/// How tables are called at a commit.
struct TableNames {
    /// The tables that are there in the end.
    there: BTreeSet<TableId>,
    now: BTreeMap<TableId, String>,
}

impl TableNames {
    /// At the first commit that is told.
    fn before<'a>(
        tables: &[Arc<TableCore>],
        groups: impl Iterator<Item = Result<StoredGroup<'a>>>,
    ) -> Result<TableNames> {
        let mut now = tables.iter().map(|table| (table.id(), table.name())).collect();
        let mut events = Vec::new();
        for group in groups {
            events.extend(group?.records_beside_plain().filter_map(|record| event_in(&record)));
        }
        events.iter().rev().for_each(|event| _ = event.undo(&mut now));
        Ok(TableNames { there: tables.iter().map(|table| table.id()).collect(), now })
    }

    /// The name of a table whose rows are told.
    fn of_rows(&self, table: TableId) -> Option<&str> {
        self.there.contains(&table).then(|| self.now.get(&table)).flatten().map(String::as_str)
    }
}

/// The last commit of the directory that the log of a store has, and the last one, by the
/// directory's numbers, that came from there.
fn shipped_of(engine: &Engine, url: &str) -> Result<(Lsn, Lsn)> {
    let files = engine.set.store().files();
    let log = open_log(url, &engine.options, files, 0)?.log;
    let own = Identity::new(files, &engine.path).load()?;
    let end = log.end()?;
    let (mut claim, mut shipped) = (end.claim, end.last);
    while claim > 0 {
        if log.claim(claim)?.is_some_and(|found| own.has(found.nonce)) {
            return Ok((shipped, shipped.max(own.taken_at)));
        }
        shipped = log.header(claim)?.map_or(shipped, |header| header.last);
        claim = claim_before(&log, claim)?;
    }
    Err(Error::invalid(format!(
        "the log of the shared store {} has no claim of the directory {}: name the store that it \
         was shared by",
        log.address(),
        engine.path.display()
    )))
}

/// The claim before a claim; 0 if there is none. A collector leaves claims alone, and may delete
/// what a list still shows.
fn claim_before(log: &SharedLog, claim: u64) -> Result<u64> {
    let mut before = log.entries_in(1..claim)?;
    before.sort_unstable();
    for number in before.into_iter().rev() {
        if let Some(header) = log.header(number)? {
            let is_claim = header.kind == EntryKind::Claim;
            return Ok(if is_claim { number } else { header.claim });
        }
    }
    Ok(0)
}

/// Tells the rows that a commit has put into runs, where no later commit has replaced them.
fn rows_of(
    engine: &Engine,
    tables: &[Arc<TableCore>],
    lsn: Lsn,
    mut tell: impl FnMut(Record<'_>) -> Result<()>,
) -> Result<()> {
    for table in tables {
        let mut key = Vec::new();
        while let Some(row) = row_from(engine, table, (&key, lsn))? {
            let SpilledRow { kind, value, .. } = &row;
            tell(Record { seq: lsn, table: table.id(), kind: *kind, key: &row.key, value })?;
            // The next key in the order.
            key = row.key;
            key.push(0);
        }
    }
    Ok(())
}

/// A row of a commit.
struct SpilledRow {
    kind: Kind,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The first row of a commit from a key on. Nothing is pinned behind it: who is told may write to
/// another database.
fn row_from(
    engine: &Engine,
    table: &TableCore,
    (key, lsn): (&[u8], Lsn),
) -> Result<Option<SpilledRow>> {
    let (view, ahead) = (table.view(), ReadAhead::for_job(1));
    let _guard = pin();
    let above = (&KeyInterval::all(), lsn - 1);
    let mut cursor = view.cursor_above(above.0, above.1, (&engine.shared.cache, &ahead));
    cursor.seek(key, LSN_MAX)?;
    while let Some(entry) = cursor.entry() {
        if entry.seq == lsn && entry.kind != Kind::RangeDelete {
            let key = entry.key.to_vec();
            let (kind, value) = match cursor.separated()? {
                Some(value) => (Kind::Put, value.read()?.to_vec()),
                None => (entry.kind, entry.value.to_vec()),
            };
            return Ok(Some(SpilledRow { kind, key, value }));
        }
        cursor.next()?;
    }
    Ok(None)
}

/// The event that a record is.
fn event_in(record: &Record<'_>) -> Option<TableEvent> {
    let is_event = record.table == SYSTEM_TABLE && record.kind == Kind::TableEvent;
    is_event.then(|| TableEvent::decode(record.key, record.value)).flatten()
}

/// What an event did to a table.
fn change_by(event: &TableEvent) -> Option<UnshippedChange<'_>> {
    Some(match event {
        TableEvent::Create { name, options, .. } => {
            UnshippedChange::Table { name, options: *options }
        }
        TableEvent::Rename { name, before, .. } => {
            UnshippedChange::Rename { from: before, to: name }
        }
        TableEvent::Truncate { name, .. } => UnshippedChange::Truncate(name),
        TableEvent::Drop { name, .. } => UnshippedChange::Drop(name),
        TableEvent::Options { .. } => return None,
    })
}

/// The changes of rows that a record is, and its blob; none if its table is gone in the end.
fn changes_of<'a>(record: &Record<'a>, names: &'a TableNames) -> Vec<UnshippedChange<'a>> {
    let (key, value) = (record.key, record.value);
    if record.table == SYSTEM_TABLE {
        let blob = (record.kind == Kind::Blob).then_some(UnshippedChange::Blob(value));
        return blob.into_iter().collect();
    }
    let Some(table) = names.of_rows(record.table) else { return Vec::new() };
    match record.kind {
        Kind::Put => vec![UnshippedChange::Put { table, key, value }],
        Kind::Delete => vec![UnshippedChange::Delete { table, key }],
        Kind::RangeDelete => {
            let end = decode_end(key, value);
            end.map(|end| UnshippedChange::DeleteRange { table, from: key, end })
                .into_iter()
                .collect()
        }
        Kind::Merge => merge_of(table, key, value),
        _ => Vec::new(),
    }
}

/// What a record of operands does: it may bring the value that they go on from.
fn merge_of<'a>(table: &'a str, key: &'a [u8], value: &'a [u8]) -> Vec<UnshippedChange<'a>> {
    let Some(operands) = OperandList::decode(value) else { return Vec::new() };
    let base = match operands.base {
        ChainBase::Below => None,
        ChainBase::None => Some(UnshippedChange::Delete { table, key }),
        ChainBase::Value(value) => Some(UnshippedChange::Put { table, key, value }),
    };
    let operands = operands.operands().collect();
    let merged = UnshippedChange::Merge { table, key, operands };
    base.into_iter().chain([merged]).collect()
}
