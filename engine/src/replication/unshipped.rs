//! What the directory of a writer that was taken over has, and the shared store lacks.
//!
//! Every claim stays in the log. The first one of somebody else behind the directory's own last one
//! says up to which commit the log has the directory's. Later commits lie in zones of the region,
//! which hold them whole until they are shipped. Of a commit whose zones are gone, rows are left in
//! levels: its last versions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::log::{EntryKind, Identity, SharedLog};
use super::open_log;
use crate::backup::of_stream;
use crate::base::error::{Error, Result};
use crate::base::record::{
    ChainBase, Cursor, Kind, LSN_MAX, Lsn, OperandList, SYSTEM_TABLE, TableId, decode_end,
};
use crate::commit::{Content, payloads_of};
use crate::engine::table_events::TableEvent;
use crate::engine::{Database, Engine};
use crate::memtable::{Record, record_at, records_in};
use crate::mvcc::pin;
use crate::sstable::ReadAhead;
use crate::table::TableCore;

/// A change of a commit that the shared store lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnshippedChange<'a> {
    /// A row was put: its table, key and value.
    Put(&'a str, &'a [u8], &'a [u8]),
    /// A row was deleted: its table and key.
    Delete(&'a str, &'a [u8]),
    /// Rows of a table were deleted, from a key on, up to another one, which is not among them.
    DeleteRange(&'a str, &'a [u8], Option<&'a [u8]>),
    /// Operands were merged into a row: its table and key, and the operands, the oldest first.
    Merge(&'a str, &'a [u8], Vec<&'a [u8]>),
    /// The commit's blob.
    Blob(&'a [u8]),
    /// A table of this name was created, or has the name from here on.
    Table(&'a str),
    /// A table lost all its rows.
    Truncate(&'a str),
}

/// What the directory of a writer has, and the shared store lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnshippedReport {
    /// The last commit that the store has of the directory.
    pub shipped: u64,
    /// The last commit of the directory.
    pub last: u64,
    /// Commits behind `shipped` that are told whole.
    pub commits: u64,
    /// Commits of which the last versions of rows are left alone, in levels: the region has let go
    /// of the rest. Range deletes are not told of these.
    pub partial: u64,
    /// Changes that were told.
    pub changes: u64,
}

/// Where a change lies.
#[derive(Clone, Debug)]
enum ChangePlace {
    /// The offset of its record in the region.
    Region(u64),
    /// A row of a level, by its key.
    Levels(TableId, Vec<u8>),
}

/// The changes behind a commit, by their commits.
#[derive(Debug, Default)]
struct Unshipped {
    changes: Vec<(Lsn, ChangePlace)>,
    /// Commits of which the region has all.
    whole: BTreeSet<Lsn>,
    partial: BTreeSet<Lsn>,
}

impl Database {
    /// Tells each change that this directory has committed and that the shared store at `url`
    /// lacks, commit after commit: for the directory of a writer that was taken over, which is
    /// opened by [`Options::open_read_only`](crate::Options::open_read_only). `each` is given the
    /// number of the commit beside the change. Tables have the names that they have in the end.
    /// Changes of tables that were dropped or truncated since are left out, as are drops, changes
    /// of options, and what is prepared and open ([`Database::list_prepared`]).
    ///
    /// It costs a reading of the region and of the rows of levels, and memory for 48 bytes a
    /// change, and for the keys of rows that levels alone have.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the database is open to write, or the store's log has no claim of it;
    /// - `Unavailable`: the store does not answer;
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
        let shipped = shipped_of(engine, url)?;
        let mut report =
            UnshippedReport { shipped, last: engine.recovered, ..UnshippedReport::default() };
        let mut found = Unshipped::default();
        found.add_region(engine, shipped)?;
        found.add_levels(engine, shipped)?;
        found.changes.sort_by_key(|(lsn, _)| *lsn);
        (report.commits, report.partial) = (found.whole.len() as u64, found.partial.len() as u64);
        let names: BTreeMap<TableId, String> =
            engine.tables().iter().map(|table| (table.id(), table.name())).collect();
        let mut tell = |lsn: Lsn, record: Record<'_>| {
            let told = changes_of(&record, &names).into_iter().try_for_each(|change| {
                report.changes += 1;
                each(lsn, change)
            });
            told.map_err(|error| of_stream("write", error))
        };
        for (lsn, place) in &found.changes {
            match place {
                ChangePlace::Region(at) => tell(*lsn, record_at(&engine.shared.region, *at))?,
                ChangePlace::Levels(id, key) => {
                    let Some(table) = engine.ctx.tables.get(*id) else { continue };
                    // `each` may write elsewhere: nothing is pinned meanwhile.
                    if let Some((kind, value)) = read_row(engine, &table, (key, *lsn))? {
                        tell(*lsn, Record { seq: *lsn, table: *id, kind, key, value: &value })?;
                    }
                }
            }
        }
        Ok(report)
    }
}

/// The last commit of the directory that the log of a store has.
fn shipped_of(engine: &Engine, url: &str) -> Result<Lsn> {
    let files = engine.set.store().files();
    let log = open_log(url, &engine.options, files, 0)?.log;
    let own = Identity::new(files, &engine.path).load()?;
    let end = log.end()?;
    let (mut claim, mut shipped) = (end.claim, end.last);
    while claim > 0 {
        match log.claim(claim)? {
            Some(found) if own.has(found.nonce) => return Ok(shipped),
            _ => {}
        }
        let header = log.header(claim)?;
        shipped = header.map_or(shipped, |header| header.last);
        claim = claim_before(&log, claim)?;
    }
    Err(Error::invalid(format!(
        "the log of the shared store {} has no claim of the directory {}: name the store that it \
         was shared by",
        log.address(),
        engine.path.display()
    )))
}

/// The claim before a claim; 0 if there is none. A collector leaves claims alone.
fn claim_before(log: &SharedLog, claim: u64) -> Result<u64> {
    let before = log.entries_below(claim)?.into_iter().max();
    let header = before.map_or(Ok(None), |number| log.header(number))?;
    Ok(header.map_or(0, |it| if it.kind == EntryKind::Claim { it.number } else { it.claim }))
}

impl Unshipped {
    /// Adds what zones have of commits behind `shipped`.
    fn add_region(&mut self, engine: &Engine, shipped: Lsn) -> Result<()> {
        let (region, zones) = (&engine.shared.region, &engine.shared.zones);
        let mut parts: BTreeMap<Lsn, u16> = BTreeMap::new();
        for zone in zones.in_use() {
            let at = zones.geometry().zone(zone);
            for payload in payloads_of(region, zones.geometry(), zone) {
                let header = payload.header;
                let is_lacking = header.lsn > shipped && header.lsn <= engine.recovered;
                if !is_lacking || header.content != Content::Commit {
                    continue;
                }
                *parts.entry(header.lsn).or_default() += 1;
                let mut has_runs = false;
                for (at, record) in records_in(region, at + payload.at, payload.len) {
                    has_runs |= record.kind == Kind::SpilledRun;
                    self.changes.push((header.lsn, ChangePlace::Region(at)));
                }
                if parts.get(&header.lsn) == Some(&header.count) && !has_runs {
                    self.whole.insert(header.lsn);
                }
            }
        }
        self.partial = parts.into_keys().filter(|lsn| !self.whole.contains(lsn)).collect();
        Ok(())
    }

    /// Adds rows of levels and runs, where the region does not have all of their commit.
    fn add_levels(&mut self, engine: &Engine, shipped: Lsn) -> Result<()> {
        for table in engine.tables() {
            let (view, ahead) = (table.view(), ReadAhead::for_job(1));
            let mut cursor = view.cursor(&engine.shared.cache, &ahead);
            let _guard = pin();
            cursor.seek(b"", LSN_MAX)?;
            while let Some(entry) = cursor.entry() {
                let is_lacking = entry.seq > shipped && entry.seq <= engine.recovered;
                if is_lacking && !self.whole.contains(&entry.seq) {
                    self.partial.insert(entry.seq);
                    let place = ChangePlace::Levels(table.id(), entry.key.to_vec());
                    self.changes.push((entry.seq, place));
                }
                cursor.next()?;
            }
        }
        // What both have is told once.
        let region = &engine.shared.region;
        let partial = &self.partial;
        let in_region = self.changes.iter().filter(|(lsn, _)| partial.contains(lsn));
        let in_region: BTreeSet<(Lsn, TableId, &[u8])> = in_region
            .filter_map(|(lsn, place)| match place {
                ChangePlace::Region(at) => {
                    let record = record_at(region, *at);
                    Some((*lsn, record.table, record.key))
                }
                ChangePlace::Levels(..) => None,
            })
            .collect();
        self.changes.retain(|(lsn, place)| match place {
            ChangePlace::Region(_) => true,
            ChangePlace::Levels(table, key) => !in_region.contains(&(*lsn, *table, key)),
        });
        Ok(())
    }
}

/// The version of a row of levels that a commit has put there.
fn read_row(
    engine: &Engine,
    table: &TableCore,
    (key, lsn): (&[u8], Lsn),
) -> Result<Option<(Kind, Vec<u8>)>> {
    let (view, ahead) = (table.view(), ReadAhead::for_job(1));
    let _guard = pin();
    let mut cursor = view.cursor(&engine.shared.cache, &ahead);
    cursor.seek(key, lsn)?;
    let Some(entry) = cursor.entry() else { return Ok(None) };
    Ok(Some(match cursor.separated()? {
        Some(value) => (Kind::Put, value.read()?.to_vec()),
        None => (entry.kind, entry.value.to_vec()),
    }))
}

/// The changes that a record is; none if it is of no table that is there.
fn changes_of<'a>(
    record: &Record<'a>,
    names: &'a BTreeMap<TableId, String>,
) -> Vec<UnshippedChange<'a>> {
    let (key, value) = (record.key, record.value);
    if record.table == SYSTEM_TABLE {
        return match record.kind {
            Kind::Blob => vec![UnshippedChange::Blob(value)],
            Kind::TableEvent => event_of(key, value, names).into_iter().collect(),
            _ => Vec::new(),
        };
    }
    let Some(name) = names.get(&record.table) else { return Vec::new() };
    match record.kind {
        Kind::Put => vec![UnshippedChange::Put(name, key, value)],
        Kind::Delete => vec![UnshippedChange::Delete(name, key)],
        Kind::RangeDelete => {
            let end = decode_end(key, value);
            end.map(|end| UnshippedChange::DeleteRange(name, key, end)).into_iter().collect()
        }
        Kind::Merge => merge_of(name, key, value),
        _ => Vec::new(),
    }
}

/// What an event did to a table that is there.
fn event_of<'a>(
    key: &[u8],
    value: &[u8],
    names: &'a BTreeMap<TableId, String>,
) -> Option<UnshippedChange<'a>> {
    match TableEvent::decode(key, value)? {
        TableEvent::Create { table, .. } | TableEvent::Rename { table, .. } => {
            names.get(&table).map(|name| UnshippedChange::Table(name))
        }
        TableEvent::Truncate { new, .. } => {
            names.get(&new).map(|name| UnshippedChange::Truncate(name))
        }
        TableEvent::Drop { .. } | TableEvent::Options { .. } => None,
    }
}

/// What a record of operands does: it may bring the value that they go on from.
fn merge_of<'a>(name: &'a str, key: &'a [u8], value: &'a [u8]) -> Vec<UnshippedChange<'a>> {
    let Some(operands) = OperandList::decode(value) else { return Vec::new() };
    let base = match operands.base {
        ChainBase::Below => None,
        ChainBase::None => Some(UnshippedChange::Delete(name, key)),
        ChainBase::Value(value) => Some(UnshippedChange::Put(name, key, value)),
    };
    let merged = UnshippedChange::Merge(name, key, operands.operands().collect());
    base.into_iter().chain([merged]).collect()
}
