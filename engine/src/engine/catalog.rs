//! Tables by name: create, drop, rename, truncate, and their options.

use std::sync::Arc;

use super::table_events::TableEvent;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::check_table_name;
use crate::base::options::types::TypeNames;
use crate::base::options::{Durability, TableOptions, Tier};
use crate::base::record::{Lsn, TableId};
use crate::commit::{CommitTable, Group};
use crate::jobs::{CountLive, JobContext, install};
use crate::level0::{Level0, RowTables};
use crate::memtable::Memtable;
use crate::read::view::View;
use crate::table::{Change, Shared, Table, TableCore, TableSlot};
use crate::version::{Room, Version};

/// The table in which a follower or a standby keeps its state. A promotion drops it.
pub(crate) const READER_TABLE: &str = "terrace-replica";

/// Its row that says how far the reader has come.
pub(crate) const READER_POSITION: &[u8] = b"position";
/// Bytes of it.
pub(crate) const READER_POSITION_LEN: usize = 24;

/// A table, by its name or by a handle. Calls that take one take `"users"` and `&users` alike.
///
/// A handle means its own table, also where that was renamed: a call with the handle of a dropped
/// table fails, also where another table has its name.
#[derive(Clone, Copy, Debug)]
pub enum TableRef<'a> {
    /// The table that has this name.
    Name(&'a str),
    /// The table of this handle.
    Handle(&'a Table),
}

impl<'a> From<&'a str> for TableRef<'a> {
    fn from(name: &'a str) -> TableRef<'a> {
        TableRef::Name(name)
    }
}

impl<'a> From<&'a String> for TableRef<'a> {
    fn from(name: &'a String) -> TableRef<'a> {
        TableRef::Name(name)
    }
}

impl<'a> From<&'a Table> for TableRef<'a> {
    fn from(table: &'a Table) -> TableRef<'a> {
        TableRef::Handle(table)
    }
}

/// An event that is durable.
struct CarriedOut {
    lsn: Lsn,
    /// The error of the call, if the journal could not take it: the database has stopped.
    in_journal: Result<()>,
}

/// The tables of an open database by name, and how they change.
///
/// Thread safety: any thread may call any method. Lock order is `ddl`, then a table's change, then
/// tables by name; `docs/locks.md` has the whole of it.
pub(crate) struct Catalog {
    ctx: Arc<JobContext>,
    /// A drop finishes it first.
    count_live: Arc<CountLive>,
}

impl Catalog {
    pub(crate) fn new(ctx: Arc<JobContext>, count_live: Arc<CountLive>) -> Catalog {
        Catalog { ctx, count_live }
    }

    /// The state of a table as it opens, with nothing in memory yet.
    pub(crate) fn new_core(
        &self,
        id: TableId,
        name: &str,
        created: Lsn,
        version: Arc<Version>,
    ) -> TableCore {
        let view = self.empty_view(version);
        let of = (self.ctx.tables.changed(), &self.ctx.shared.queue);
        TableCore::new(id, name, (created, created), view, of)
    }

    /// A view of what `version` has, and nothing above it.
    pub(crate) fn empty_view(&self, version: Arc<Version>) -> View {
        let region = &self.ctx.shared.region;
        View {
            active: Arc::new(Memtable::new(Arc::clone(region))),
            frozen: Vec::new(),
            level0: self.empty_level0(&version),
            pending_runs: Vec::new(),
            operator: self.ctx.set.operator_of(version.options),
            is_remote: version.has_objects(),
            version,
            pruned: 0,
        }
    }

    /// The level 0 of a table, with what an opening found in a persistent index.
    fn empty_level0(&self, version: &Version) -> Arc<Level0> {
        let region = Arc::clone(&self.ctx.shared.region);
        match &self.ctx.forest {
            Some(forest) => Level0::persistent(region, Arc::clone(forest), version.table),
            None => {
                let chosen = self.ctx.options.container_of(&version.options);
                Level0::new(RowTables::new(Arc::clone(&self.ctx.shared.pages), chosen))
            }
        }
    }

    /// Opens or creates a table; with `asked`, one that has these options.
    pub(crate) fn open_or_create(
        &self,
        name: &str,
        asked: Option<TableOptions>,
        types: Option<TypeNames>,
    ) -> Result<Arc<TableSlot>> {
        self.ctx.shared.check_open()?;
        self.check_name(name)?;
        let options = asked.unwrap_or_default();
        options.check()?;
        let checked = |slot: Arc<TableSlot>| {
            let stored = slot.core().view().version.options;
            check_same_options(name, stored, asked.unwrap_or(stored)).map(|()| slot)
        };
        if let Some(slot) = self.find(name) {
            return checked(slot);
        }
        if self.ctx.shared.refuses_writes() {
            return self.existing(TableRef::Name(name));
        }
        let _inside = self.ctx.shared.enter()?;
        self.check_operator(name, options)?;
        self.check_tier(options)?;
        let _ddl = self.ctx.shared.ddl.lock();
        match self.find(name) {
            Some(slot) => checked(slot),
            None => self.make(name, TableOptions { types: types.or(options.types), ..options }),
        }
    }

    /// Opens a table with types; by its name, one is created if there is none. A table that has
    /// none yet gets these. It goes without if it cannot be written to, or the disk is full.
    #[cfg(feature = "typed")]
    pub(crate) fn open_typed(
        &self,
        table: TableRef<'_>,
        types: TypeNames,
    ) -> Result<Arc<TableSlot>> {
        let slot = match table {
            TableRef::Name(name) => self.open_or_create(name, None, Some(types))?,
            TableRef::Handle(_) => self.existing(table)?,
        };
        loop {
            let now = slot.core().view().version.options;
            if let Some(stored) = now.types {
                return types.check_same(&slot.core().name(), &stored).map(|()| slot);
            }
            if self.ctx.shared.refuses_writes() {
                return Ok(slot);
            }
            let stamped = TableOptions { types: Some(types), ..now };
            match self.put_options(&slot, Some(now), stamped) {
                Err(e) if e.kind() == ErrorKind::Full => return Ok(slot),
                other => other.map(drop)?,
            }
        }
    }

    /// Creates a table for a user, with a merge operator that the opening knows.
    pub(crate) fn create(&self, name: &str, options: TableOptions) -> Result<Arc<TableSlot>> {
        self.check_operator(name, options)?;
        self.create_stored(name, options)
    }

    /// Creates a table for a user, with a merge operator that the opening need not know.
    pub(crate) fn create_stored(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Arc<TableSlot>> {
        options.check()?;
        let _inside = self.ctx.shared.enter()?;
        self.check_name(name)?;
        self.check_tier(options)?;
        self.create_followed(name, options)
    }

    /// Fails if options name a merge operator that the opening does not know.
    fn check_operator(&self, name: &str, options: TableOptions) -> Result<()> {
        options.check()?;
        match options.merge_operator {
            None => Ok(()),
            Some(_) => {
                let operator = self.ctx.set.operator_of(options);
                operator.check().map_err(|e| e.in_table(|| name.to_string()))
            }
        }
    }

    /// Creates a table as another database has it: that one has checked its name and its options.
    /// The opening need not know its merge operator: operands stay as they are.
    pub(crate) fn create_followed(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<Arc<TableSlot>> {
        let _inside = self.ctx.shared.enter()?;
        let _ddl = self.ctx.shared.ddl.lock();
        if self.find(name).is_some() {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("there is a table {name:?} already"),
            ));
        }
        self.make(name, options)
    }

    /// Fails for a name that a table cannot have. Readers of a shared database have a table of
    /// their own beside those of the writer.
    fn check_name(&self, name: &str) -> Result<()> {
        check_table_name(name)?;
        if name == READER_TABLE && self.ctx.shared.committer.feed().is_some() {
            return Err(Error::invalid(format!(
                "a table of a shared database cannot be named {name:?}: its followers and standbys \
                 keep their own state under that name"
            )));
        }
        Ok(())
    }

    /// Refuses cold levels in an object store that the opening does not have.
    fn check_tier(&self, options: TableOptions) -> Result<()> {
        if options.cold == Tier::Ssd || self.ctx.set.store().objects().is_some() {
            return Ok(());
        }
        Err(Error::invalid(
            "cold levels in an object store need one: name it at the opening, with \
             object_store or `--object-store`",
        ))
    }

    /// Makes a table that is not there; the caller holds `ddl`.
    fn make(&self, name: &str, options: TableOptions) -> Result<Arc<TableSlot>> {
        let table = self.ctx.set.allocate_table_id();
        debug_assert!(self.ctx.tables.get(table).is_none(), "a number is given once");
        let event = TableEvent::Create { table, name: name.to_string(), options };
        let done = self.carry_out(&event, None)?;
        let version =
            self.ctx.set.version(table).unwrap_or_else(|| Arc::new(Version::empty(table)));
        debug_assert_eq!(version.table, table, "a new table has its own version");
        let slot = TableSlot::new(self.new_core(table, name, done.lsn, version));
        let slot = self.ctx.tables.insert(name, slot);
        done.in_journal.map(|()| slot)
    }

    /// The slot of a table that is there. The caller holds `ddl` if the table is to stay there.
    pub(crate) fn existing(&self, table: TableRef<'_>) -> Result<Arc<TableSlot>> {
        self.ctx.shared.check_open()?;
        let name = match table {
            TableRef::Name(name) => name,
            TableRef::Handle(table) => {
                table.check_is_of(&self.ctx.shared, "the one asked")?;
                table.slot.core().check()?;
                return Ok(Arc::clone(&table.slot));
            }
        };
        self.find(name).ok_or_else(|| {
            let names = self.table_names();
            let there = match names.len() {
                0 => "there is none yet".to_string(),
                1..=10 => format!("there are: {}", names.join(", ")),
                n => format!("there are {n}, among them {}", names[..10].join(", ")),
            };
            Error::new(ErrorKind::MissingTable, format!("there is no table {name:?}; {there}"))
        })
    }

    fn find(&self, name: &str) -> Option<Arc<TableSlot>> {
        self.ctx.tables.find(name)
    }

    pub(crate) fn table_names(&self) -> Vec<String> {
        self.ctx.tables.names()
    }

    pub(crate) fn drop_table(&self, table: TableRef<'_>) -> Result<()> {
        let _inside = self.ctx.shared.enter()?;
        let _ddl = self.ctx.shared.ddl.lock();
        let core = self.existing(table)?.core();
        self.count_live.finish(&self.ctx)?;
        let event = TableEvent::Drop { table: core.id(), name: core.name() };
        let done = self.carry_out(&event, Some(&core))?;
        debug_assert!(done.lsn > core.created(), "a table is dropped after it was created");
        self.ctx.tables.remove(&core.name());
        done.in_journal?;
        self.clear(&core);
        Ok(())
    }

    pub(crate) fn rename_table(&self, table: TableRef<'_>, to: &str) -> Result<()> {
        let _inside = self.ctx.shared.enter()?;
        self.check_name(to)?;
        let _ddl = self.ctx.shared.ddl.lock();
        let slot = self.existing(table)?;
        if self.find(to).is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("there is a table {to:?} already")));
        }
        let core = slot.core();
        let (name, before) = (to.to_string(), core.name());
        let event = TableEvent::Rename { table: core.id(), name, before };
        let done = self.carry_out(&event, None)?;
        self.ctx.tables.rename(&core.name(), to);
        debug_assert!(self.find(to).is_some_and(|found| Arc::ptr_eq(&found, &slot)), "one slot");
        done.in_journal
    }

    pub(crate) fn truncate_table(&self, table: TableRef<'_>) -> Result<()> {
        let _inside = self.ctx.shared.enter()?;
        let _ddl = self.ctx.shared.ddl.lock();
        let slot = self.existing(table)?;
        self.count_live.finish(&self.ctx)?;
        let (table, new) = (slot.core().id(), self.ctx.set.allocate_table_id());
        let (name, options) = (slot.core().name(), slot.core().view().version.options);
        let event = TableEvent::Truncate { table, new, name: name.clone(), options };
        let done = self.carry_out(&event, Some(&slot.core()))?;
        let version = self.ctx.set.version(new).unwrap_or_else(|| Arc::new(Version::empty(new)));
        debug_assert!(done.lsn > slot.core().created(), "a table is created before");
        let old = self.ctx.tables.replace(&slot, self.new_core(new, &name, done.lsn, version));
        done.in_journal?;
        self.clear(&old);
        Ok(())
    }

    /// Gives a table the options that `change` makes of those that it has, for a user: to what the
    /// opening can do. It is called without a lock, and again if they were changed meanwhile.
    pub(crate) fn change_options(
        &self,
        table: TableRef<'_>,
        mut change: impl FnMut(TableOptions) -> Result<TableOptions>,
    ) -> Result<()> {
        self.ctx.shared.check_writable()?;
        let slot = self.existing(table)?;
        loop {
            let core = slot.core();
            let before = core.view().version.options;
            let options = TableOptions { types: before.types, ..change(before)? };
            options.check()?;
            if options.cold != before.cold {
                self.check_tier(options)?;
            }
            if options.merge_operator != before.merge_operator {
                self.check_operator(&core.name(), options)?;
                check_change_of_operator(&core.name(), before)?;
            }
            if self.put_options(&slot, Some(before), options)? {
                return Ok(());
            }
        }
    }

    /// Changes options as another node has: that node has checked them. The opening need not know
    /// their merge operator: operands stay as they are.
    pub(crate) fn set_followed_options(&self, name: &str, new: TableOptions) -> Result<()> {
        let slot = self.existing(TableRef::Name(name))?;
        self.put_options(&slot, None, new).map(drop)
    }

    /// Gives a table other options, if it still has those from `before`; whether it had.
    fn put_options(
        &self,
        slot: &TableSlot,
        before: Option<TableOptions>,
        options: TableOptions,
    ) -> Result<bool> {
        let _inside = self.ctx.shared.enter()?;
        let _ddl = self.ctx.shared.ddl.lock();
        let core = slot.core();
        core.check()?;
        let now = core.view().version.options;
        if before.is_some_and(|before| before != now) {
            return Ok(false);
        }
        if options == now {
            return Ok(true);
        }
        // Up to the edit jobs of the table go by the time to live of before. They drop nothing that
        // has expired later than the event's record says, or an older version came back.
        let _reader = self.ctx.shared.snapshots.register();
        let event = TableEvent::Options { table: core.id(), options, expired: 0 };
        let event = self.as_of_now(&event, Some(&core));
        self.carry_out(&event, Some(&core))?.in_journal.map(|()| true)
    }

    /// Shows the options that a table has by now in the journal.
    fn show_options(
        &self,
        core: &TableCore,
        change: &mut Change<'_>,
        versions: Vec<(TableId, Arc<Version>)>,
    ) {
        install(core, change, versions, 0);
        let options = core.view().version.options;
        change.apply(|view| view.operator = self.ctx.set.operator_of(options));
        if let Some(rows) = &core.view().level0.rows {
            rows.choose(self.ctx.options.container_of(&options));
        }
    }

    /// Commits an event and brings the journal up to it. `of` is the table that the event drops, or
    /// of which it changes the options. One that it drops is marked in the sequencer, with the
    /// event's ticket: groups before it still reach the table, groups after it do not.
    ///
    /// Once the event has its ticket, the journal has to follow it, and no other outcome can be
    /// told. So the journal's space is reserved before.
    ///
    /// # Errors
    ///
    /// With an unknown outcome the event may be durable or not. The database shows what is known to
    /// be durable, so its tables are as they were.
    fn carry_out(&self, event: &TableEvent, of: Option<&Arc<TableCore>>) -> Result<CarriedOut> {
        let drops = of.filter(|_| event.drops());
        let room = if drops.is_some() { Room::Freeing } else { Room::Ordinary };
        let mut reservation = self.ctx.set.reserve_edits([event.edit(0)].into_iter(), room)?;
        let (key, value) = event.encode();
        let group = || {
            let table = drops.map(|table| Arc::clone(table) as Arc<dyn CommitTable>);
            Ok(Group::event(&key, &value, table))
        };
        let at_ticket = |_| drops.into_iter().for_each(|table| table.mark_dropped());
        let enqueued =
            self.ctx.shared.enqueue_group(&group, (Durability::Durable, None), &at_ticket);
        let committed = enqueued.and_then(|pending| {
            let zone = pending.zone;
            pending.wait().map(|lsn| (zone, lsn))
        });
        let (zone, lsn) = committed.inspect_err(|_| {
            if self.ctx.shared.poison.is_set() {
                drops.into_iter().for_each(|table| table.unmark_dropped());
            }
        })?;
        debug_assert!(drops.is_none_or(|table| table.check().is_err()), "its ticket dropped it");
        debug_assert!(
            TableEvent::is_news_to(&self.ctx.set, lsn),
            "events come to the journal in order"
        );
        // A job on the table ends with its own edit first; later ones find the mark, or the
        // options.
        let mut change = of.map(|table| table.change());
        let edit = self.as_of_now(event, of).edit(lsn);
        let in_journal = match self.ctx.shared.apply_reserved(edit, &mut reservation) {
            Ok(versions) => {
                if let (Some(core), Some(change), None) = (of, &mut change, drops) {
                    self.show_options(core, change, versions);
                }
                debug_assert!(
                    !TableEvent::is_news_to(&self.ctx.set, lsn),
                    "the journal has the event"
                );
                self.ctx.shared.zones.sub_live(zone, 1);
                Ok(())
            }
            Err(e) => {
                // The event is decided, and shown. Only the next opening can finish it in the
                // journal.
                self.ctx.shared.stop_because(&e.to_string());
                Err(self.ctx.shared.poison.unknown_outcome(lsn))
            }
        };
        Ok(CarriedOut { lsn, in_journal })
    }

    /// The event with what has expired by now, as readers have seen it: that does not come back in
    /// the journal. The record of the event says what had when it was begun, so what expires while
    /// the event waits for the table is back after a kill before the journal has it.
    fn as_of_now(&self, event: &TableEvent, of: Option<&Arc<TableCore>>) -> TableEvent {
        match (event, of) {
            (TableEvent::Options { table, options, expired }, Some(core)) => {
                let version = Arc::clone(&core.view().version);
                let by_now = self.ctx.shared.expired(&version, || self.ctx.shared.clock.now());
                TableEvent::Options {
                    table: *table,
                    options: *options,
                    expired: by_now.max(*expired),
                }
            }
            _ => event.clone(),
        }
    }

    /// Empties the view of a dropped table, and lets its records go once no reader is left.
    fn clear(&self, core: &Arc<TableCore>) {
        debug_assert!(core.check().is_err(), "only a table that was dropped is emptied");
        let empty = self.empty_view(Arc::new(Version::empty(core.id())));
        let before = core.change().apply(|view| *view = empty);
        self.ctx.shared.defer(move |shared| release_records(shared, &before));
        self.ctx.shared.wakeup.wake();
    }
}

/// Fails where a table has other options than are asked for.
fn check_same_options(name: &str, stored: TableOptions, asked: TableOptions) -> Result<()> {
    let both = TableOptions::names().filter_map(|(option, _)| {
        let (stored, asked) = (stored.text(option)?, asked.text(option)?);
        (stored != asked).then(|| format!("{option} is {stored}, not {asked}"))
    });
    let both: Vec<String> = both.collect();
    if both.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Exists,
        format!(
            "table {name:?} has other options than are asked for: {}; ask for those it has, open \
             it without options, or change them with set_table_options",
            both.join("; ")
        ),
    ))
}

/// Fails where a table cannot get another merge operator: one that it has merges its operands.
fn check_change_of_operator(name: &str, now: TableOptions) -> Result<()> {
    if let Some(operator) = now.merge_operator_name() {
        return Err(Error::invalid(format!(
            "table {name:?} keeps its merge operator, {operator:?}: what was merged was merged by \
             it; copy the rows into a table with another one"
        )));
    }
    if now.ttl.is_some() {
        return Err(Error::invalid(format!(
            "table {name:?} has a time to live; remove it with set_ttl before the table gets a \
             merge operator"
        )));
    }
    Ok(())
}

/// Counts every record of a view out of its zone.
fn release_records(shared: &Shared, view: &View) {
    let frozen = view.frozen.iter().map(|f| &f.memtable);
    for memtable in frozen.chain([&view.active]) {
        let mut cursor = memtable.cursor();
        cursor.seek_first();
        while let Some((at, _)) = cursor.record() {
            shared.zones.sub_live(shared.zones.zone_of(at), 1);
            cursor.step();
        }
        let ranges = memtable.tombstones();
        let places = ranges.iter().flat_map(|set| set.iter()).filter_map(|t| t.remove());
        places.for_each(|at| shared.zones.sub_live(shared.zones.zone_of(at), 1));
    }
    shared.count_out(|| view.level0.clear());
}

#[cfg(test)]
mod tests;
