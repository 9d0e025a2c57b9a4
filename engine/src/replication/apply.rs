//! A reader of the log: applies entries to a database of its own, in their order.
//!
//! Thread safety: none of its own; its owner has a lock.
//!
//! Invariants:
//!
//! 1. The database has the commits of the writer up to `position.lsn`, all of them and no others.
//!    It has that once it has come to the entry of the checkpoint that it was restored from: levels
//!    may have later ones than the log up to an earlier entry.
//! 2. The position is written by the commit that it speaks of. A table event is a commit of its
//!    own, which comes before; to carry it out twice changes nothing.
//! 3. What is noted in memory and not committed counts for nothing: after a failure it is read
//!    again. Before the entry of its checkpoint a reader starts anew instead.

mod position;
mod replay;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::checkpoint::{DataPlace, FoundCheckpoint};
use super::log::{
    Entry, EntryBody, FollowerPlace, GroupKind, LargePart, LogCheckpoint, PartKind, SharedLog,
    ShippedGroup, records_of,
};
use super::prepares::{FollowedPrepares, with_own_tables};
use super::segment::{FollowedLarge, FollowedRuns};
use crate::base::error::{Error, Result};
use crate::base::options::{Durability, Failpoint, TableOptions, Tier};
use crate::base::record::{Kind, Lsn, TableId};
use crate::engine::Database;
use crate::engine::catalog::READER_TABLE;
use crate::engine::table_events::TableEvent;
use crate::memtable::Record;
use crate::mvcc::KeyInterval;
use crate::table::{Applying, Table, WriteBatch};
use crate::version::Manifest;

pub(super) use position::{BASE, LogPosition, ROW};
use position::{LOG, START, followed, named_in, own_tables, table_key, tables_of};
use replay::ReplayFilter;

/// Groups are applied together below so many bytes. One that has as many is applied alone.
const BATCH_BYTES: usize = 256 << 10;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryApplied {
    Done,
    /// It is a checkpoint with commits that no segment has.
    Leaps,
}

/// A database that follows.
pub(super) struct Applier {
    pub(super) db: Database,
    /// It has the position.
    table: Table,
    pub(super) position: LogPosition,
    /// Tables of the writer, by its numbers. Each has a row of its own.
    tables: BTreeMap<TableId, String>,
    /// Of them, those whose rows change with the next commit.
    changed: BTreeSet<TableId>,
    prepares: FollowedPrepares,
    /// Of which parts lie between the position and the next entry.
    large: Option<FollowedLarge>,
    /// The checkpoint of which the database reads data in the store; 0 if it has all data itself.
    pub(super) base: u64,
    /// The checkpoint that it was restored from; 0 if that was in an earlier opening.
    start: u64,
    /// What that has, until its entry.
    replay: Option<ReplayFilter>,
    /// Checkpoints that it came to since.
    pub(super) checkpoints_since: u32,
    /// Whether a failure left what the database may not have (invariant 3).
    is_stale: bool,
    /// Whether the log is known to be the one that the database follows.
    is_of_log: bool,
}

impl Applier {
    fn at(
        db: Database,
        table: Table,
        (position, base): (LogPosition, u64),
        (tables, prepares): (BTreeMap<TableId, String>, FollowedPrepares),
    ) -> Applier {
        Applier {
            db,
            table,
            position,
            tables,
            changed: BTreeSet::new(),
            prepares,
            large: None,
            base,
            start: 0,
            replay: None,
            checkpoints_since: 0,
            is_stale: false,
            is_of_log: false,
        }
    }

    /// Goes on with a database that was restored from a checkpoint.
    pub(super) fn restored(
        db: Database,
        (found, place): (&FoundCheckpoint, DataPlace),
        log: &SharedLog,
    ) -> Result<Applier> {
        let _applying = Applying::enter();
        let table = db.table(READER_TABLE)?;
        let FoundCheckpoint { claim, from, manifest, prepares: open, .. } = found;
        let mut prepares = prepares_of(&db, &table)?;
        let own = own_tables(&db)?;
        let of_manifest = followed(tables_of(manifest));
        let own = |id: TableId| {
            let known = of_manifest.get(&id).and_then(|name| own.get(name));
            known.copied().ok_or_else(|| log.damage("shared/log", format!("a table {id}")))
        };
        for prepare in open {
            let records = with_own_tables(records_of(&prepare.records), own)?;
            let pieces = prepare.pieces.iter().map(|piece| {
                let bytes = log.data(&piece.name())?;
                with_own_tables(records_of(&bytes), own)
            });
            prepares.add_whole((&db, &table), &records, pieces)?;
        }
        let (start, lsn) = (manifest.number, manifest.lsn);
        // What comes before the first entry is known once that is.
        let (claim, lsn) = if *from > start { (*claim, lsn) } else { (0, 0) };
        let position = LogPosition { entry: from - 1, claim, lsn };
        let mut batch = WriteBatch::new();
        batch.put(&table, ROW, position.to_row());
        batch.put(&table, START, start.to_le_bytes());
        for (id, name) in &of_manifest {
            batch.put(&table, table_key(*id), name);
        }
        let base = if place == DataPlace::Store { start } else { 0 };
        if base > 0 {
            batch.put(&table, BASE, base.to_le_bytes());
        }
        if let Some(blob) = &manifest.blob {
            batch.set_blob(blob);
        }
        db.write(batch)?;
        let again = db.inner.options.has(Failpoint::ReplayDrained);
        let replay = (*from <= start).then(|| ReplayFilter::of(found, again));
        let applier = Applier::at(db, table, (position, base), (of_manifest, prepares));
        Ok(Applier { start, replay, ..applier })
    }

    /// Goes on with a database where it was; `None` if it never followed, or had not yet come to
    /// the checkpoint that it was restored from.
    pub(super) fn resumed(db: Database) -> Result<Option<Applier>> {
        if !db.table_names().iter().any(|name| name == READER_TABLE) {
            return Ok(None);
        }
        let _applying = Applying::enter();
        let table = db.existing_table(READER_TABLE)?;
        let row = table.get(ROW)?;
        let Some(position) = row.and_then(|row| LogPosition::of_row(&row)) else {
            return Ok(None);
        };
        let number = |key: &[u8]| -> Result<u64> {
            let row = table.get(key)?.and_then(|row| row[..].try_into().ok());
            Ok(row.map_or(0, u64::from_le_bytes))
        };
        if position.entry < number(START)? {
            return Ok(None);
        }
        // A promotion that did not end may have prepared them: the rows say what is.
        for begun in db.list_prepared() {
            db.roll_back_prepared(begun.id, Durability::Durable)?;
        }
        let (tables, prepares) = (named_in(&table)?, prepares_of(&db, &table)?);
        let base = number(BASE)?;
        Ok(Some(Applier::at(db, table, (position, base), (tables, prepares))))
    }

    /// Fails unless the database follows this log: the numbers of all logs begin at 1. The nonce of
    /// the log's first claim, which stays for ever, tells. The first call notes it in the database.
    ///
    /// # Errors
    ///
    /// `Invalid` if the database follows another log; those of the store and of writes.
    pub(super) fn check_log(&mut self, log: &SharedLog) -> Result<()> {
        if self.is_of_log {
            return Ok(());
        }
        let first = log.claim(1)?.map(|claim| claim.nonce);
        match (self.table.get(LOG)?, first) {
            (Some(known), first) if first.is_none_or(|first| known[..] != first) => {
                return Err(log.other("its first claim is another one"));
            }
            (None, Some(first)) => {
                let _applying = Applying::enter();
                self.table.put(LOG, first)?;
            }
            _ => {}
        }
        self.is_of_log = true;
        Ok(())
    }

    /// Has the next [`Applier::check_log`] ask again.
    pub(super) fn forget_log(&mut self) {
        self.is_of_log = false;
    }

    /// The number of the entry that comes next.
    pub(super) fn next(&mut self) -> Result<u64> {
        if self.is_stale {
            self.check_shown()?;
            self.read_again()?;
        }
        Ok(self.expected())
    }

    /// As [`Applier::next`], if nothing has failed.
    pub(super) fn expected(&self) -> u64 {
        let parts = self.large.as_ref().map_or(0, |large| large.parts);
        self.position.entry + 1 + u64::from(parts)
    }

    /// How far the reader is once it has entry `entry`, for its registration.
    pub(super) fn place(&self, entry: u64) -> FollowerPlace {
        FollowerPlace { entry, base: self.base, beat: 0 }
    }

    /// The log goes on behind `entry` with another writer: a commit whose end did not come never
    /// was.
    pub(super) fn end_at(&mut self, entry: u64) {
        debug_assert_eq!(self.expected(), entry + 1, "all before it is applied");
        (self.large, self.position.entry) = (None, entry);
    }

    /// Applies the entry that comes next.
    pub(super) fn apply(&mut self, entry: &Entry, log: &SharedLog) -> Result<EntryApplied> {
        let _applying = Applying::enter();
        debug_assert!(!self.is_stale, "the next entry was asked for after a failure");
        let applied = self.apply_next(entry, log);
        self.is_stale = applied.is_err();
        applied
    }

    /// Takes the position from the database (invariant 3).
    fn read_again(&mut self) -> Result<()> {
        let _applying = Applying::enter();
        let row = self.table.get(ROW)?;
        let position = row.and_then(|row| LogPosition::of_row(&row));
        self.position = position.ok_or_else(|| {
            Error::invalid(
                "the database of a follower has lost its position; remove its directory and start \
                 again from the store",
            )
        })?;
        (self.tables, self.changed) = (named_in(&self.table)?, BTreeSet::new());
        self.prepares.give_up(&self.db)?;
        self.prepares = prepares_of(&self.db, &self.table)?;
        self.large = None;
        self.is_stale = false;
        Ok(())
    }

    fn apply_next(&mut self, entry: &Entry, log: &SharedLog) -> Result<EntryApplied> {
        debug_assert_eq!(entry.number, self.expected(), "entries come in their order");
        if self.position.claim == 0 {
            let is_segment = matches!(entry.body, EntryBody::Segment(_));
            let lsn = if is_segment { entry.first - 1 } else { entry.last };
            (self.position.claim, self.position.lsn) = (entry.claim, lsn);
        }
        if let EntryBody::Part(part) = &entry.body {
            return self.apply_part(entry, part, log).map(|()| EntryApplied::Done);
        }
        let large = self.large.take();
        let is_claim = matches!(entry.body, EntryBody::Claim(_));
        if entry.last < self.position.lsn || is_claim && entry.last > self.position.lsn {
            let expected = format!("entry {} behind commit {}", entry.number, self.position.lsn);
            return Err(log.damage("shared/log", expected));
        }
        match &entry.body {
            // Up to a checkpoint its tables count, by their numbers in one directory.
            EntryBody::Claim(_) if self.replay.is_some() => self.position.claim = entry.claim,
            EntryBody::Claim(_) | EntryBody::Part(_) => {}
            EntryBody::Tables(tables) => {
                if entry.claim != self.position.claim {
                    let tables = tables.iter().map(|it| (it.id, it.name.as_str()));
                    self.adopt(entry.claim, tables, log)?;
                }
                self.position.lsn = entry.last;
            }
            EntryBody::Checkpoint(_) if entry.last > self.position.lsn => {
                return Ok(EntryApplied::Leaps);
            }
            EntryBody::Checkpoint(LogCheckpoint { manifest, .. }) => {
                self.checkpoints_since += u32::from(entry.number > self.start);
                if entry.number == self.start {
                    self.replay = None;
                }
                if entry.claim != self.position.claim {
                    let place = ("object", log.address().into());
                    let manifest = Manifest::read_bytes(manifest, entry.number, place)?;
                    self.adopt(entry.claim, tables_of(&manifest), log)?;
                }
            }
            EntryBody::Segment(groups) => self.apply_segment(entry, groups, large, log)?,
        }
        self.position.entry = entry.number;
        self.commit(WriteBatch::new())?;
        Ok(EntryApplied::Done)
    }

    fn apply_segment(
        &mut self,
        entry: &Entry,
        groups: &[ShippedGroup],
        large: Option<FollowedLarge>,
        log: &SharedLog,
    ) -> Result<()> {
        let goes_on = entry.claim == self.position.claim
            && (entry.first..=entry.last + 1).contains(&(self.position.lsn + 1));
        if !goes_on {
            let expected = format!(
                "commits from {} on, of claim {}, in entry {}",
                self.position.lsn + 1,
                self.position.claim,
                entry.number
            );
            return Err(log.damage("shared/log", expected));
        }
        if let Some(group) = groups.first()
            && let Some(parts) = group.kind.parts()
            && !(self.is_again(group.lsn) && group.kind.is_prepare())
        {
            let large = large.unwrap_or_default().finish(group.lsn, parts)?;
            let prepares = group.kind == GroupKind::PreparedLarge(parts);
            let large = large.filter(|large| prepares == large.spilled.is_some());
            let expected = || format!("{parts} parts before entry {}", entry.number);
            let large = large.ok_or_else(|| log.damage("shared/log", expected()))?;
            self.apply_large(entry.number, group, large)?;
        }
        self.apply_groups(groups)?;
        self.position.lsn = entry.last;
        Ok(())
    }

    /// Takes in a part of a large commit: nothing of it shows.
    fn apply_part(&mut self, entry: &Entry, part: &LargePart, log: &SharedLog) -> Result<()> {
        let mut large = self.large.take().unwrap_or_default();
        let goes_on = entry.claim == self.position.claim
            && entry.last == self.position.lsn
            && large.goes_on_with(part);
        if !goes_on {
            let expected = format!("another part of a commit in entry {}", entry.number);
            return Err(log.damage("shared/log", expected));
        }
        let news: Vec<Record<'_>> = part.rows().filter(|row| !self.has(part.lsn, row)).collect();
        let is_prepare = part.kind == PartKind::Prepared;
        if news.is_empty() || is_prepare && self.is_again(part.lsn) {
            large.pass_over(part)?;
        } else if is_prepare {
            let rows = self.with_own_tables(part.rows())?;
            large.add_prepared(part, &rows, &self.table)?;
        } else {
            large.add(part, &news, &self.table_of(part.table)?)?;
        }
        self.large = Some(large);
        if self.db.inner.options.has(Failpoint::ApplyParts) {
            let mut batch = WriteBatch::new();
            part.rows().try_for_each(|row| self.add(&mut batch, (part.lsn, row)))?;
            self.commit(batch)?;
        }
        Ok(())
    }

    /// Commits a large commit with all of its parts, and the position behind it.
    fn apply_large(&mut self, entry: u64, group: &ShippedGroup, large: FollowedRuns) -> Result<()> {
        let FollowedRuns { runs, spilled } = large;
        let mut batch = WriteBatch::new();
        if spilled.is_some() {
            self.prepares.add(self.with_own_tables(group.records())?, spilled);
        } else {
            self.add_group(&mut batch, group)?;
        }
        (self.position.entry, self.position.lsn) = (entry, group.lsn);
        if runs.is_empty() {
            return self.commit(batch);
        }
        self.complete(&mut batch)?;
        let shared = &self.db.inner.shared;
        let lsn = shared.commit_runs(&*WriteBatch::check(Cow::Owned(batch), shared)?, runs)?;
        shared.committer.wait_for(lsn, Durability::Durable)?;
        self.prepares.tell(&self.db);
        self.db.inner.step_for_space();
        Ok(())
    }

    /// Takes over the table numbers of another writer, which has the same tables. Its list comes
    /// right behind its claim.
    fn adopt<'a>(
        &mut self,
        claim: u64,
        tables: impl Iterator<Item = (TableId, &'a str)>,
        log: &SharedLog,
    ) -> Result<()> {
        let theirs = followed(tables);
        let mut names: Vec<&String> = theirs.values().collect();
        names.sort();
        let own = self.db.table_names();
        let own: Vec<&String> = own.iter().filter(|name| *name != READER_TABLE).collect();
        if names != own || claim != self.position.entry {
            let expected = format!("the tables {own:?} in the list of claim {claim}");
            return Err(log.damage("shared/log", expected));
        }
        self.changed.extend(self.tables.keys().chain(theirs.keys()));
        (self.tables, self.position.claim) = (theirs, claim);
        Ok(())
    }

    /// Cold levels need an object store.
    fn fitting(&self, options: TableOptions) -> TableOptions {
        let has_store = self.db.inner.set.store().objects().is_some();
        if has_store { options } else { options.cold(Tier::Ssd) }
    }

    fn apply_groups(&mut self, groups: &[ShippedGroup]) -> Result<()> {
        let applied = self.position.lsn;
        let news = || groups.iter().filter(|group| group.lsn > applied);
        if self.db.inner.options.has(Failpoint::EventsFirst) {
            for (group, event) in
                news().filter_map(|g| Some((g, self.event_of(g)?))).collect::<Vec<_>>()
            {
                self.carry_out(&event, group.lsn)?;
            }
        }
        let mut batch = WriteBatch::new();
        for group in news() {
            let bytes: usize = group.parts.iter().map(Vec::len).sum();
            let waiting = batch.stored_bytes() + self.prepares.fresh_bytes();
            // The operands of a key in a batch become one record, which has a limit.
            if waiting > 0 && waiting + bytes >= BATCH_BYTES {
                self.commit(std::mem::take(&mut batch))?;
            }
            if group.kind.is_prepare() {
                if !self.is_again(group.lsn) {
                    self.prepares.add(self.with_own_tables(group.records())?, None);
                }
                self.position.lsn = group.lsn;
                continue;
            }
            if let Some(event) = self.event_of(group) {
                self.commit(std::mem::take(&mut batch))?;
                self.carry_out(&event, group.lsn)?;
                continue;
            }
            self.add_group(&mut batch, group)?;
            self.position.lsn = group.lsn;
        }
        self.commit(batch)
    }

    /// Adds a record of the writer to a batch, with what it changes.
    fn add(&mut self, batch: &mut WriteBatch, (lsn, record): (Lsn, Record<'_>)) -> Result<()> {
        if self.has(lsn, &record) {
            return Ok(());
        }
        match record.kind {
            Kind::CommitPrepared | Kind::RollBackPrepared => {
                self.prepares.resolve(record.key, batch, &self.table);
            }
            Kind::Blob => drop(batch.set_blob(record.value)),
            Kind::Put | Kind::Delete | Kind::Merge => {
                let table = self.table_of(record.table)?;
                batch.push(&table, record.kind, record.key, record.value);
            }
            Kind::RangeDelete => {
                let table = self.table_of(record.table)?;
                for KeyInterval { start, end } in self.lacking(lsn, &record) {
                    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
                    batch.delete_range(&table, (Bound::Included(start), end));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records of a prepare with the reader's own numbers of tables.
    fn with_own_tables<'a>(&self, records: impl Iterator<Item = Record<'a>>) -> Result<Vec<u8>> {
        let own = |id| self.table_of(id).map(|table| table.slot.core().id());
        with_own_tables(records, own)
    }

    fn table_of(&self, id: TableId) -> Result<Table> {
        self.db.existing_table(self.name_of(id)?)
    }

    /// The name of a table of the writer. In the order of the log each one is known.
    fn name_of(&self, id: TableId) -> Result<&str> {
        self.tables.get(&id).map(String::as_str).ok_or_else(|| {
            Error::invalid(format!(
                "the writer of the shared store has committed to a table with the number {id}, \
                 which is not known here; remove this directory and start again from the store"
            ))
        })
    }

    /// Carries a table event out, and notes its commit.
    fn carry_out(&mut self, event: &TableEvent, lsn: Lsn) -> Result<()> {
        let db = self.db.clone();
        let is_there = |name: &str| db.inner.ctx.tables.find(name).is_some();
        match event {
            TableEvent::Create { table, name, options } => {
                if !is_there(name) {
                    self.db.create_followed_table(name, self.fitting(*options))?;
                }
                self.call(*table, Some(name));
            }
            TableEvent::Options { table, options, .. } => {
                let name = self.name_of(*table)?.to_string();
                let options = self.fitting(*options);
                self.db.inner.catalog.set_followed_options(&name, options)?;
            }
            TableEvent::Drop { table, .. } => {
                if let Some(name) = self.call(*table, None)
                    && is_there(&name)
                {
                    self.db.drop_table(&name)?;
                }
            }
            TableEvent::Rename { table, name, .. } => {
                let before = self.call(*table, Some(name));
                if let Some(before) = before.filter(|before| before != name && is_there(before)) {
                    self.db.rename_table(&before, name)?;
                }
            }
            TableEvent::Truncate { table, new, name, .. } => {
                self.call(*table, None);
                self.call(*new, Some(name));
                if is_there(name) {
                    self.db.truncate_table(name)?;
                }
            }
        }
        self.position.lsn = self.position.lsn.max(lsn);
        self.commit(WriteBatch::new())
    }

    /// Notes how the writer calls a table from now on, `None` for one that is gone. The next commit
    /// has its row. What it was called before.
    fn call(&mut self, table: TableId, name: Option<&str>) -> Option<String> {
        self.changed.insert(table);
        match name {
            Some(name) => self.tables.insert(table, name.to_string()),
            None => self.tables.remove(&table),
        }
    }

    /// Commits a batch together with the position (invariant 2), and with what is prepared.
    fn commit(&mut self, mut batch: WriteBatch) -> Result<()> {
        self.complete(&mut batch)?;
        self.db.write_with(&batch, Durability::Relaxed)?;
        self.prepares.tell(&self.db);
        self.db.inner.step_for_space();
        Ok(())
    }

    fn complete(&mut self, batch: &mut WriteBatch) -> Result<()> {
        self.prepares.write(&self.db, batch, &self.table)?;
        for id in std::mem::take(&mut self.changed) {
            match self.tables.get(&id) {
                Some(name) => batch.put(&self.table, table_key(id), name),
                None => batch.delete(&self.table, table_key(id)),
            };
        }
        batch.put(&self.table, ROW, self.position.to_row());
        Ok(())
    }

    /// Prepares what the writer has prepared, with its locks, and is not prepared here yet. All
    /// that can fail of a takeover by what the log has is done then.
    pub(super) fn prepare_all(&mut self) -> Result<()> {
        let _applying = Applying::enter();
        self.prepares.prepare_all(&self.db, &self.table)
    }

    /// Ends following: the database is as every other one, and has what is prepared.
    pub(super) fn into_database(self) -> Result<Database> {
        let _applying = Applying::enter();
        self.db.drop_table(READER_TABLE)?;
        Ok(self.db)
    }
}

/// What is prepared by the rows of a reader's table.
fn prepares_of(db: &Database, table: &Table) -> Result<FollowedPrepares> {
    FollowedPrepares::load(db, table, db.inner.options.has(Failpoint::KeepResolvedRows))
}
