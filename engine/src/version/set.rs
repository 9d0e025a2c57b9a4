//! The versions of all tables, current and durable.
//!
//! [`apply_in`](VersionSet::apply_in) makes an edit durable and then visible. Readers take the
//! current version of a table without a lock and keep it as long as they like.
//!
//! Thread safety: every method may be called from any thread. `writer` is held over an append and
//! its sync; `floor` and `removed` for an instant. The order is `writer`, then one of these.
//!
//! Invariants:
//!
//! 1. `current` is what replaying the journal gives, but for drained maps that have forgotten
//!    steps about records that are gone, and marks of time that are no longer needed.
//! 2. An edit becomes visible only once it is durable, and all of it at once.
//! 3. The space of an extent that a journaled edit may name is never given back: not when the
//!    outcome of an append is unknown either. What an edit removed keeps its space until the floor
//!    on the media names that edit (`set/removed.rs`).
//! 4. Once poisoned, nothing is journaled any more.

mod lost_edits;
mod removed;
mod room;
mod runs;
mod salvage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edit::{Edit, Op};
use super::journal::{self, AppendFailure, FoundEdits, Journal, JournalFloor, Prepared, Replayed};
use super::levels::Version;
use super::state::{Applied, Broken, State};
use crate::base::error::{Error, ErrorKind, Findings, Mismatch, Result};
use crate::base::operator::{Operators, TableOperator};
use crate::base::options::{Failpoint, TableOptions};
use crate::base::progress::Meter;
use crate::base::record::{Lsn, TableId};
use crate::mvcc::{Horizon, Timeline, about_to_wait};
use crate::os::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::os::sync::locks::{Mutex, MutexGuard};
use crate::os::sync::shared::ArcSwap;
use crate::os::sync::shared::OnceLock;
use crate::os::{Directory, Files, Inside};
use crate::sstable::{Extent, ExtentMeta, ValueExtents, values_of};
use crate::storage::{ExtentStore, Location, ObjectId};

pub(crate) use lost_edits::LostEdits;
use removed::RemovedExtents;
pub(crate) use room::{EditReservation, Room};
pub(crate) use salvage::{Decided, Ended, ReadableJournal, SalvagedSet, free_name};

/// A journal shorter than this gets no new epoch.
const MIN_ROLL_BYTES: u64 = 1024 * 1024;

/// One table, as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableInfo {
    pub(crate) id: TableId,
    pub(crate) name: Arc<str>,
    pub(crate) created_lsn: Lsn,
}

#[derive(Debug)]
struct Writer {
    journal: Journal,
    /// The length at which a new epoch is begun.
    roll_at: u64,
    /// Bytes of the journal's space that edits to come are reserved.
    reserved: u64,
    /// The greatest LSN of its edits.
    durable: Lsn,
}

/// The right to write to the journal.
struct Changing<'a> {
    writer: MutexGuard<'a, Writer>,
    _inside: Inside,
}

/// All tables' versions and the journal under them.
#[derive(Debug)]
pub(crate) struct VersionSet {
    files: Arc<dyn Files>,
    directory: PathBuf,
    database_id: [u8; 16],
    read_only: bool,
    store: Arc<ExtentStore>,
    current: ArcSwap<State>,
    removed: RemovedExtents,
    writer: Mutex<Writer>,
    floor: Mutex<JournalFloor>,
    next_extent: AtomicU64,
    next_table: AtomicU32,
    poisoned: AtomicBool,
    /// The merge operators that the opening knows.
    operators: OnceLock<Operators>,
    /// Edits that the opening replayed.
    replayed: u64,
    /// As [`VersionSet::durable`].
    durable: Lsn,
    /// A bug that a test has planted.
    #[cfg(any(test, feature = "testing"))]
    failpoint: Option<Failpoint>,
}

impl VersionSet {
    /// Makes the journal of a new database in `directory`, which exists and has none. The database
    /// begins with what `edit` makes out of nothing, as of `lsn`; its extents are there, durably.
    ///
    /// # Errors
    ///
    /// `Exists` if there is a journal already; `Invalid` if the edit breaks an invariant of the
    /// metadata; or on an I/O error.
    pub(crate) fn create(
        files: &dyn Files,
        directory: &Path,
        database_id: [u8; 16],
        (lsn, edit): (Lsn, &Edit<Arc<ExtentMeta>>),
    ) -> Result<()> {
        if !journal::epochs(files, directory)?.is_empty() {
            let message = format!("{} holds a database already", directory.display());
            return Err(Error::new(ErrorKind::Exists, message));
        }
        let checkpoint =
            State::default().into_next(edit).map_err(|broken| refused(&broken))?.state.checkpoint();
        let first = JournalFloor { epoch: 1, number: 1 };
        let prepared = Journal::prepare(files, directory, database_id, first, lsn, &checkpoint)?;
        prepared.install(files, &Directory::at(directory)).map(drop)
    }

    /// A new database's, opened.
    #[cfg(test)]
    pub(crate) fn create_empty(
        files: Arc<dyn Files>,
        directory: &Path,
        database_id: [u8; 16],
    ) -> Result<VersionSet> {
        VersionSet::create(&*files, directory, database_id, (0, &Edit::default()))?;
        VersionSet::open(files, directory, JournalFloor::default(), FoundEdits::Rewrite)
    }

    /// Opens the journal in `directory`: replays it, takes the space of all extents, and makes
    /// the current versions. Edits up to `floor` must be sound; where no floor is known, the
    /// default one is right.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no database; `Corrupt` if the journal or a place it names is damaged;
    /// or on an I/O error.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        floor: JournalFloor,
        found: FoundEdits,
    ) -> Result<VersionSet> {
        let read_only = found == FoundEdits::Leave;
        let (journal, edits) = Journal::open(&*files, directory, floor, found)?;
        let described = replay(&journal, &edits)?;
        let values = described.value_extents().map_err(|broken| {
            let offset = edits.last().map_or(0, |last| last.offset);
            journal.refuse(offset, format!("edits to keep {}", broken.name), broken.detail)
        })?;
        let extents = described.extents().map(|meta| meta.location);
        let taken: Vec<Location> =
            extents.chain(values.values().map(|values| values.location)).collect();
        let mut objects = BTreeSet::new();
        let is_twice = |at: &&Location| at.object().is_some_and(|id| !objects.insert(id));
        if let Some(twice) = taken.iter().find(is_twice) {
            let offset = edits.last().map_or(0, |last| last.offset);
            let expected = "edits to keep objects_are_named_once".to_string();
            return Err(journal.refuse(offset, expected, format!("{twice:?} twice")));
        }
        let store = ExtentStore::open(Arc::clone(&files), directory, &taken, read_only)?;
        let state = opened(&described, &store);
        let mut set = VersionSet::assemble(files, directory, store, journal, state, read_only);
        set.replayed = edits.len() as u64;
        set.durable = journal::durable(&edits);
        Ok(set)
    }

    fn assemble(
        files: Arc<dyn Files>,
        directory: &Path,
        store: Arc<ExtentStore>,
        journal: Journal,
        state: State,
        read_only: bool,
    ) -> VersionSet {
        VersionSet {
            files,
            directory: directory.to_path_buf(),
            database_id: journal.database_id(),
            read_only,
            store,
            next_extent: AtomicU64::new(state.counters.next_extent),
            next_table: AtomicU32::new(state.counters.next_table),
            current: ArcSwap::from_pointee(state),
            removed: RemovedExtents::default(),
            floor: Mutex::new(journal.floor()),
            writer: Mutex::new(Writer {
                journal,
                roll_at: MIN_ROLL_BYTES,
                reserved: 0,
                durable: 0,
            }),
            poisoned: AtomicBool::new(false),
            operators: OnceLock::new(),
            replayed: 0,
            durable: 0,
            #[cfg(any(test, feature = "testing"))]
            failpoint: None,
        }
    }

    /// Plants a bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn with_failpoint(mut self, bug: Option<Failpoint>) -> VersionSet {
        self.failpoint = bug;
        self.store.plant(bug);
        self
    }

    /// Whether a test has planted the bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn has(&self, bug: Failpoint) -> bool {
        self.failpoint == Some(bug)
    }

    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn has(&self, _bug: Failpoint) -> bool {
        false
    }

    /// Edits that the opening replayed.
    pub(crate) fn replayed(&self) -> u64 {
        self.replayed
    }

    /// The LSN up to which all was durable, by the edits that the opening found.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Says which merge operators the opening knows, once. Until then it knows the built-in ones.
    pub(crate) fn know_operators(&self, operators: Operators) {
        let is_first = self.operators.set(operators).is_ok();
        debug_assert!(is_first, "an opening says once what it knows");
    }

    /// The merge operator of a table with these options.
    pub(crate) fn operator_of(&self, options: TableOptions) -> TableOperator {
        self.operators.get_or_init(Operators::default).of(options.merge_operator)
    }

    /// The id of the database whose journal a directory has, if its header is sound.
    pub(crate) fn database_id_in(files: &dyn Files, directory: &Path) -> Result<Option<[u8; 16]>> {
        journal::database_id(files, directory)
    }

    /// The id that the region of the same database carries too.
    pub(crate) fn database_id(&self) -> [u8; 16] {
        self.database_id
    }

    /// Where extents are kept.
    pub(crate) fn store(&self) -> &Arc<ExtentStore> {
        &self.store
    }

    /// All tables, by id.
    pub(crate) fn tables(&self) -> Vec<TableInfo> {
        let state = self.current.load();
        let info = |(&id, table): (&TableId, &super::state::Table<Arc<Extent>>)| TableInfo {
            id,
            name: Arc::clone(&table.name),
            created_lsn: table.created_lsn,
        };
        state.tables.iter().map(info).collect()
    }

    /// The current version of a table.
    pub(crate) fn version(&self, table: TableId) -> Option<Arc<Version>> {
        self.current.load().tables.get(&table).map(|table| Arc::clone(&table.version))
    }

    /// A new extent's id; runs have theirs from here too.
    pub(crate) fn next_extent_id(&self) -> u64 {
        self.next_extent.fetch_add(1, Ordering::Relaxed)
    }

    /// A new table's id.
    pub(crate) fn allocate_table_id(&self) -> TableId {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    /// When records were written.
    pub(crate) fn timeline(&self) -> Arc<Timeline> {
        Arc::clone(&self.current.load().timeline)
    }

    /// Lets go of marks that are closer to each other than their age asks for: see
    /// [`Timeline::thin`]. Not journaled.
    pub(crate) fn thin_timeline(&self, horizon: &Horizon) {
        let _one_at_a_time = self.writer.lock();
        let mut state = State::clone(&self.current.load());
        let options = state.tables.values().map(|table| table.version.options);
        let ttls: Vec<u64> = options.filter_map(|options| options.ttl_micros()).collect();
        let timeline = Arc::make_mut(&mut state.timeline);
        timeline.thin(&ttls, horizon.oldest_time(), horizon.now());
        self.current.store(Arc::new(state));
    }

    /// The LSN of the last table event that the journal contains.
    pub(crate) fn table_event_lsn(&self) -> Lsn {
        self.current.load().counters.table_event_lsn
    }

    /// The last durable edit, for the region's floor slot. Never waits for a sync.
    pub(crate) fn floor(&self) -> JournalFloor {
        *self.floor.lock()
    }

    /// Whether a failure has made it impossible to journal anything more.
    pub(crate) fn poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Refuses everything from now on; for a caller whose own sync failed.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// Poisons the set, and gives the cause. That is never `Full`, which says that nothing has
    /// changed.
    fn poison_by(&self, cause: Error) -> Error {
        self.poison();
        cause.of_kind(ErrorKind::Unavailable)
    }

    /// Makes `edit` durable, then visible: all of it or nothing. All commits
    /// up to `lsn` are durable. Gives the new versions of the tables it touched. The space of the
    /// extents that it removed is taken until [`give_back`](VersionSet::give_back). `room` says how
    /// much of the journal's space it may use.
    ///
    /// # Errors
    ///
    /// `Invalid` if the edit breaks an invariant of the metadata; `Full` if there is no room; an
    /// I/O error of an append that could be undone. Nothing has changed then. Of any other error
    /// the set is poisoned, and the edit may or may not be found at the next opening.
    pub(crate) fn apply_in(
        &self,
        edit: Edit,
        lsn: Lsn,
        room: Room,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.apply_where(edit, lsn, |writer, edit| {
            self.find_room(writer, Journal::len_of(edit), room)
        })
    }

    /// As [`VersionSet::apply_in`], in ordinary room.
    #[cfg(test)]
    pub(crate) fn apply(&self, edit: Edit, lsn: Lsn) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.apply_in(edit, lsn, Room::Ordinary)
    }

    /// As [`VersionSet::apply_in`], in space that was reserved: never `Full`.
    pub(crate) fn apply_reserved(
        &self,
        edit: Edit,
        lsn: Lsn,
        reservation: &mut EditReservation<'_>,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        self.apply_where(edit, lsn, |writer, edit| {
            VersionSet::spend(writer, reservation, edit);
            Ok(())
        })
    }

    fn apply_where(
        &self,
        mut edit: Edit,
        lsn: Lsn,
        find_room: impl FnOnce(&mut Writer, &Edit) -> Result<()>,
    ) -> Result<Vec<(TableId, Arc<Version>)>> {
        about_to_wait();
        let Changing { mut writer, _inside } = self.lock_for_change()?;
        // Its caller may have asked before an edit that came first. A new epoch has no other.
        let lsn = lsn.max(writer.durable).max(self.durable);
        writer.durable = lsn;
        edit.ops.push(Op::Counters {
            next_table: self.next_table.load(Ordering::Relaxed),
            next_extent: self.next_extent.load(Ordering::Relaxed),
            table_event_lsn: 0,
        });
        let mut applied =
            Some(self.current.load().apply(&edit).map_err(|broken| refused(&broken))?);
        #[cfg(any(test, feature = "testing"))]
        let _phase = crate::testing::InPhase::enter(crate::testing::Phase::JournalEdit);
        find_room(&mut writer, &edit)?;
        let is_early = self.has(Failpoint::PublishBeforeEdit);
        let number = writer.journal.floor().number + 1;
        let early = applied.take_if(|_| is_early).map(|applied| self.publish(number, applied));
        if let Err(AppendFailure { error, may_be_durable }) = writer.journal.append(lsn, &edit) {
            if !may_be_durable {
                return Err(error);
            }
            // The journal may name them, so their space is not ours any more (invariant 3).
            edit.added().for_each(|extent| extent.installed(number));
            return Err(self.poison_by(error));
        }
        *self.floor.lock() = writer.journal.floor();
        edit.added().for_each(|extent| extent.installed(number));
        let versions = applied.map_or(early, |applied| Some(self.publish(number, applied)));
        self.roll_if_long(&mut writer, lsn)?;
        Ok(versions.unwrap_or_default())
    }

    /// Makes `edit` visible without a word on the media: for a read-only opening, which sees what
    /// the next writer will journal.
    ///
    /// # Errors
    ///
    /// `Invalid` if the edit breaks an invariant of the metadata.
    pub(crate) fn adopt(&self, edit: &Edit) -> Result<()> {
        let _one_at_a_time = self.writer.lock();
        let applied = self.current.load().apply(edit).map_err(|broken| refused(&broken))?;
        edit.added().for_each(|extent| extent.installed(0));
        // No edit says so, and no floor will.
        self.publish(0, applied);
        self.give_back(JournalFloor::default());
        Ok(())
    }

    fn lock_for_change(&self) -> Result<Changing<'_>> {
        if self.read_only {
            return Err(Error::invalid("the database is open read-only; open it for writing"));
        }
        let inside = self.store.gate().enter_step().map_err(Error::not_open)?;
        let writer = self.writer.lock();
        if self.poisoned() {
            let message = "an earlier failure poisoned the database; open it again";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        self.check_directory()?;
        Ok(Changing { writer, _inside: inside })
    }

    /// Fails if the directory is not this process's any more: it was removed, or its lock file was
    /// removed or replaced.
    ///
    /// # Errors
    ///
    /// `Unavailable`.
    pub(crate) fn check_directory(&self) -> Result<()> {
        let checked = self.files.check(&self.directory);
        checked.map_err(|e| Error::io("go on in", &self.directory, e))
    }

    /// Shows the state that an edit of this number made.
    fn publish(&self, edit: u64, applied: Applied<Arc<Extent>>) -> Vec<(TableId, Arc<Version>)> {
        let Applied { state, touched, removed } = applied;
        self.removed.by(edit, removed);
        self.next_table.fetch_max(state.counters.next_table, Ordering::Relaxed);
        self.next_extent.fetch_max(state.counters.next_extent, Ordering::Relaxed);
        let version = |id| Some((id, Arc::clone(&state.tables.get(&id)?.version)));
        let versions = touched.into_iter().filter_map(version).collect();
        self.current.store(Arc::new(state));
        versions
    }

    /// Begins a new epoch when the journal is long and mostly history. The edit that made it long
    /// is durable whatever happens here; only a failure that leaves the epoch in doubt is one.
    fn roll_if_long(&self, writer: &mut Writer, lsn: Lsn) -> Result<()> {
        if writer.journal.len() < writer.roll_at {
            return Ok(());
        }
        let Ok(prepared) = self.prepare_epoch(writer, lsn) else {
            // The old epoch goes on. Try again once it has doubled, not at every edit. A full disk
            // bounds it: it grows only in space that is found for each edit.
            writer.roll_at = 2 * writer.journal.len();
            return Ok(());
        };
        self.begin_epoch(writer, prepared)
    }

    fn prepare_epoch(&self, writer: &Writer, lsn: Lsn) -> Result<Prepared<'_>> {
        let last = writer.journal.floor();
        let first = JournalFloor { epoch: last.epoch + 1, number: last.number + 1 };
        let checkpoint = self.current.load().checkpoint();
        let (files, id) = (&*self.files, self.database_id);
        let mut prepared = Journal::prepare(files, &self.directory, id, first, lsn, &checkpoint)?;
        prepared.make_room(writer.reserved + journal::RESERVE)?;
        Ok(prepared)
    }

    fn begin_epoch(&self, writer: &mut Writer, prepared: Prepared<'_>) -> Result<()> {
        debug_assert!(prepared.room() >= writer.reserved, "reservations hold in the next epoch");
        let (files, directory) = (&*self.files, self.directory.as_path());
        let last = writer.journal.floor();
        let installed = prepared.install(files, self.store.directory());
        writer.journal = installed.map_err(|e| self.poison_by(e))?;
        writer.roll_at = MIN_ROLL_BYTES.max(4 * writer.journal.len());
        *self.floor.lock() = writer.journal.floor();
        journal::remove_epoch(files, directory, last.epoch);
        Ok(())
    }

    /// The extents and value extents that are objects, as the journal names them.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectId> {
        let state = self.current.load();
        let places = state.extents().flat_map(|extent| extent.meta().places());
        places.filter_map(|place| place.object()).collect()
    }

    /// Makes extents durable, before an edit may name them.
    ///
    /// # Errors
    ///
    /// A failed sync poisons the set.
    pub(crate) fn sync_extents(&self) -> Result<()> {
        self.store().sync().map_err(|e| self.poison_by(e))
    }

    /// Lets the drained map of a table forget what no record is left to ask about: see
    /// [`DrainedMap::forget_below`](crate::mvcc::DrainedMap::forget_below). Not journaled.
    pub(crate) fn forget_drained_below(&self, table: TableId, oldest_live: Lsn) {
        let _one_at_a_time = self.writer.lock();
        let current = self.current.load_full();
        let Some(described) = current.tables.get(&table) else { return };
        // What D covers of a run must stay covered as long as the run is there.
        let oldest_run = described.version.runs.last().map_or(Lsn::MAX, |run| run.lsn);
        let mut drained = described.version.drained.clone();
        // And of a row table, whose records lie in no zone.
        let rows = described.version.rows.iter().map(|row| row.oldest);
        let oldest_row = rows.min().unwrap_or(Lsn::MAX);
        drained.forget_below(oldest_live.min(oldest_run).min(oldest_row));
        // Most have nothing to forget, and a copy has many tables.
        if drained == described.version.drained {
            return;
        }
        let mut state = State::clone(&current);
        if let Some(described) = state.tables.get_mut(&table) {
            Arc::make_mut(&mut described.version).drained = drained;
            self.current.store(Arc::new(state));
        }
    }

    /// Checks the journal and every extent against their checksums and against each other, and
    /// appends all that is wrong to `report`. Gives the number of structures that were checked. It
    /// ends between two extents once the database is being closed, or `meter` was cancelled.
    pub(crate) fn verify(&self, report: &mut Findings, meter: &Meter) -> u64 {
        let mut checked = 0;
        let check_journal = self.writer.lock().journal.check();
        match check_journal() {
            Ok(structures) => checked += structures,
            Err(error) => report
                .add(&error, || Mismatch::default().at("journal", "journal", &self.directory, 0)),
        }
        // Whatever it names stays in place while this is held, so overlaps need no check: taking
        // the same space twice fails at open, and the store gives none out twice.
        let state = self.current.load_full();
        let goes_on =
            |of: &Location| !self.store.gate().is_shut() && meter.did(u64::from(of.len)).is_ok();
        let has_objects = self.are_objects_reachable(report);
        let is_near = |at: &Location| has_objects || at.object().is_none();
        let extents = || state.extents().filter(|extent| is_near(&extent.meta().location));
        // Objects refer to some of this machine, too.
        let values = values_of(state.extents());
        let values = || values.values().filter(|values| is_near(&values.meta().location));
        let places = extents().map(|extent| extent.meta().location);
        let places = places.chain(values().map(|values| values.meta().location));
        meter.plan(places.map(|at| u64::from(at.len)).sum());
        for extent in extents().take_while(|extent| goes_on(&extent.meta().location)) {
            checked += extent.verify(report);
        }
        let values = values().take_while(|values| goes_on(&values.meta().location));
        checked + values.map(|values| values.verify(report)).sum::<u64>()
    }

    /// Whether the store answers that has objects of this set. It is asked once: each object by
    /// itself would wait for it.
    fn are_objects_reachable(&self, report: &mut Findings) -> bool {
        let objects = self.objects().len();
        let Some(tier) = self.store.objects().filter(|_| objects > 0) else { return objects == 0 };
        let reached = tier.check_reachable().inspect_err(|error| {
            let what = format!("{objects} objects");
            report.add(error, || Mismatch::default().at(what, "object", tier.address(), 0));
        });
        reached.is_ok()
    }
}

/// The error for an edit that is refused.
fn refused(broken: &Broken) -> Error {
    Error::invalid(format!("an edit is refused by {}: {}", broken.name, broken.detail))
}

/// The same state with extents to read; those that refer to one value extent share it.
fn opened(described: &State<Arc<ExtentMeta>>, store: &Arc<ExtentStore>) -> State {
    let mut values = ValueExtents::new();
    described
        .map(|meta| Extent::open_among(ExtentMeta::clone(meta), Arc::clone(store), &mut values))
}

fn replay(journal: &Journal, edits: &[Replayed]) -> Result<State<Arc<ExtentMeta>>> {
    State::replayed(edits.iter().map(|one| &one.edit)).map_err(|(n, broken)| {
        let Replayed { offset, number, .. } = &edits[n];
        let expected = format!("edit {number} to keep {}", broken.name);
        journal.refuse(*offset, expected, broken.detail)
    })
}

#[cfg(test)]
mod tests;
