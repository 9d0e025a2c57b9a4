//! Taking a backup while the database is at work.
//!
//! Outline. (1) At a boundary in the order of commits, where nothing is frozen, every table's view
//! is taken, and then a snapshot. So the views have all that the snapshot sees, and their levels
//! nothing that it does not. (2) While what this database defers is held, what is above the levels
//! is written into the set. No epoch is pinned: other databases are not held. (3) Levels are held
//! by their versions alone: what the set has not is copied, at leisure. (4) The manifest is
//! written.
//!
//! A destination may take the levels alone, with what they lack: a checkpoint of the shared store,
//! whose log has the rest. Then (2) is left out.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::options::{Failpoint, TableOptions};
use crate::base::progress::Meter;
use crate::base::record::Lsn;
use crate::compaction::{self, DumpInto, Dumped};
use crate::engine::Engine;
use crate::mvcc::{Hold, Horizon, Registered, TimeMark, pin};
use crate::read::view::View;
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::{ExtentSink, ExtentStore};
use crate::table::TableCore;
use crate::version::{Edit, Level, MAX_LEVELS, Manifest, Op, SUBLEVELS, Version};

/// A table of a moment.
struct Seen {
    table: Arc<TableCore>,
    name: String,
    view: Arc<View>,
    /// Nothing of it above its levels has a lower LSN.
    oldest: Lsn,
}

/// All tables as of one LSN, and the last blob as of that.
struct Moment {
    tables: Vec<Seen>,
    snapshot: Registered,
    blob: Option<Vec<u8>>,
}

impl Moment {
    /// Nothing above the levels of any table has a lower LSN. One more than the LSN if nothing is
    /// there.
    fn oldest(&self) -> Lsn {
        let later = self.snapshot.lsn() + 1;
        self.tables.iter().map(|seen| seen.oldest).min().unwrap_or(later)
    }
}

/// The unit of a backup's time is a second, that of the clock a microsecond.
pub(crate) const MICROS_A_SECOND: u64 = 1_000_000;

/// A table of which the part above its levels is in the set, if the set takes that.
struct Half {
    table: Arc<TableCore>,
    name: String,
    version: Arc<Version>,
    dumped: Dumped,
    /// Nothing of it above the levels that the set takes alone has a lower LSN. 0 if the set takes
    /// more.
    oldest: Lsn,
}

/// What step 2 has done.
struct Dump {
    halves: Vec<Half>,
    lsn: Lsn,
    /// As [`Manifest::oldest`].
    oldest: Lsn,
    blob: Option<Vec<u8>>,
}

/// Where a backup goes.
pub(crate) trait Destination {
    /// Where what is above the levels is written first.
    fn store(&self) -> &Arc<ExtentStore>;

    /// Where that is sent, if it becomes objects of the destination at once.
    fn objects(&mut self) -> Option<&mut dyn ExtentSink> {
        None
    }

    /// The LSN is taken, and all up to it is durable. Nothing above the levels is below `oldest`.
    /// Whether it takes what lies there, or the levels with their drained maps alone.
    fn begins(&mut self, _lsn: Lsn, _oldest: Lsn) -> Result<bool> {
        Ok(true)
    }

    /// Before an extent is written to its store, and now and then while it reads: so many bytes lie
    /// above levels, with its table's.
    fn check_wanted(&self, _above: u64) -> Result<()> {
        Ok(())
    }

    /// Its own copy of an extent of a level, made now if it has none.
    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>>;

    /// Keeps an extent that was written to its [`Destination::store`].
    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>>;
}

/// What a backup has. It is kept until the backup is whole, or given up.
pub(crate) struct Gathered {
    /// What was visible there is in it, and nothing else.
    lsn: Lsn,
    /// When it was begun, in seconds since 1970.
    created: u64,
    /// As [`Manifest::oldest`].
    oldest: Lsn,
    blob: Option<Vec<u8>>,
    edit: Edit<Arc<ExtentMeta>>,
    /// What was dumped is there as long as this is.
    _halves: Vec<Half>,
}

impl Gathered {
    /// The manifest of backup `number`, for which `added` bytes were written.
    pub(crate) fn manifest(&self, engine: &Engine, number: u64, added: u64) -> Result<Manifest> {
        let manifest = Manifest {
            database_id: engine.set.database_id(),
            number,
            lsn: self.lsn,
            created: self.created,
            added,
            oldest: self.oldest,
            blob: self.blob.clone(),
            edit: self.edit.clone(),
        };
        manifest.check().map(|()| manifest)
    }
}

/// Brings all that is visible now to a destination.
pub(crate) fn gather(
    engine: &Engine,
    into: &mut dyn Destination,
    meter: &Meter,
) -> Result<Gathered> {
    let created = engine.shared.clock.now() / MICROS_A_SECOND;
    let Dump { halves, lsn, oldest, blob } = dump(engine, into, meter)?;
    let mut ops = dates(engine, lsn);
    for half in &halves {
        half.describe(into, (engine, meter), &mut ops)?;
    }
    // What is durable nowhere else must not be all that is left of a commit that never was.
    engine.shared.poison.check()?;
    Ok(Gathered { lsn, created, oldest, blob, edit: Edit { ops }, _halves: halves })
}

/// When records up to `lsn` were written: those above all marks, by now.
fn dates(engine: &Engine, lsn: Lsn) -> Vec<Op<Arc<ExtentMeta>>> {
    let mut timeline = engine.set.timeline().up_to(lsn);
    let now = TimeMark { lsn, time: engine.shared.clock.now() };
    if timeline.is_followed_by(now) {
        timeline.add(now);
    }
    timeline.marks().iter().copied().map(Op::TimeMark).collect()
}

/// Steps 1 and 2. The hold keeps what the views have; it is of this database alone.
fn dump(engine: &Engine, destination: &mut dyn Destination, meter: &Meter) -> Result<Dump> {
    // A closing waits for the extent under way.
    let _inside = engine.shared.gate.enter_call().map_err(Error::not_open)?;
    // A table with records that are not counted yet looks as if it had none above its levels.
    engine.scheduler.jobs.count_live.finish(&engine.ctx)?;
    let (moment, _hold) = moment(engine);
    let oldest = moment.oldest();
    let Moment { tables, snapshot, blob } = moment;
    let (lsn, shape, horizon) = (snapshot.lsn(), engine.ctx.shape(), Horizon::of(&snapshot));
    if !engine.shared.read_only {
        let floor = engine.ctx.sync_floor()?;
        debug_assert!(lsn <= floor, "what a backup has no power cut takes back");
    }
    for Seen { view, .. } in &tables {
        let levels = view.version.levels.iter().map(|level| level.bytes() + level.referred());
        meter.plan(compaction::bytes_to_dump(view, lsn) + levels.sum::<u64>());
    }
    meter.did(0)?;
    let is_whole = destination.begins(lsn, oldest)?;
    let mut above = 0;
    let half = |Seen { table, name, view, oldest }| {
        if !is_whole {
            let (version, dumped) = (Arc::clone(&view.version), Dumped::default());
            return Ok(Half { table, name, version, dumped, oldest });
        }
        let check_open = || engine.shared.check_open();
        let bytes = compaction::bytes_to_dump(&view, lsn);
        above += bytes;
        check_open().and_then(|()| destination.check_wanted(above))?;
        let (set, store) = (&*engine.set, &Arc::clone(destination.store()));
        let (before, told) = (store.bytes_written(), Cell::new(0));
        let check_open = || {
            // As far as others do not write there too.
            let written = (store.bytes_written() - before).min(bytes);
            let more = written - told.replace(written);
            check_open().and_then(|()| meter.did(more))
        };
        let dump = |into: DumpInto<'_>| {
            compaction::dump(&view, &horizon, into, &engine.shared.cache, &shape)
        };
        let dumped = match destination.objects() {
            Some(sink) => dump(DumpInto { set, store, objects: Some(sink), check: &check_open }),
            None => {
                let check = &|| check_open().and_then(|()| destination.check_wanted(above));
                dump(DumpInto { set, store, objects: None, check })
            }
        };
        let (version, dumped) = (Arc::clone(&view.version), dumped?);
        let half = Half { table, name, version, dumped, oldest: 0 };
        meter.did(bytes - told.get()).map(|()| half)
    };
    let halves = tables.into_iter().map(half).collect::<Result<_>>()?;
    Ok(Dump { halves, lsn, oldest: if is_whole { 0 } else { oldest }, blob })
}

/// The least LSN that may lie above the levels; one more than the last visible one if nothing does.
pub(crate) fn oldest_above_levels(engine: &Engine) -> Result<Lsn> {
    let _inside = engine.shared.gate.enter_call().map_err(Error::not_open)?;
    engine.scheduler.jobs.count_live.finish(&engine.ctx)?;
    Ok(moment(engine).0.oldest())
}

/// The least LSN above the levels of a view; `later` if nothing is there. Before it was taken all
/// up to `drained` was in levels. No zone that has something of it had less than `in_zones`.
///
/// It is above each step that the view's drained map has forgotten: these lie below all zones, runs
/// and row tables of an earlier moment.
fn oldest_in(view: &View, (drained, in_zones): (Lsn, Lsn), later: Lsn) -> Lsn {
    let in_zones = (view.level0.size().records > 0).then_some(in_zones);
    let in_rows = view.version.rows.iter().map(|rows| rows.oldest);
    let in_level0 = in_zones.into_iter().chain(in_rows).map(|oldest| oldest.max(drained + 1));
    let in_runs = view.runs().map(|run| run.lsn);
    in_level0.chain(view.oldest_in_memtables()).chain(in_runs).fold(later, Lsn::min)
}

/// Step 1, with a hold from before.
fn moment(engine: &Engine) -> (Moment, Hold) {
    // None is created, dropped or renamed meanwhile. One that is may wait for zones, which a hold
    // keeps back: so the hold begins behind it.
    let _ddl = engine.shared.ddl.lock();
    let hold = engine.shared.queue.hold();
    // For the blob: a later commit frees its zone.
    let _guard = pin();
    let tables = engine.tables();
    // Before the views: what is drained meanwhile, they may not show as drained.
    let drained: Vec<Lsn> = tables.iter().map(|table| table.drained_below()).collect();
    // Room for them is made here, so that the sequencer allocates nothing.
    let mut views = Vec::with_capacity(tables.len());
    let (blobs, mut last_blob) = (&engine.shared.committer.blobs, None);
    let snapshot = engine.shared.snapshots.register_at(|visible| {
        engine.shared.committer.at_boundary(|_| {
            // Views first: a drain takes no more to levels than what is visible by then.
            views.extend(tables.iter().map(|table| Arc::clone(&table.view())));
            let (lsn, blob) = blobs.as_of(|| visible.get());
            last_blob = blob;
            lsn
        })
    });
    let blob = last_blob.map(|blob| blobs.read(blob));
    debug_assert_eq!(views.len(), tables.len(), "a backup has the view of each table");
    // Behind the views: what their maps have forgotten was below all zones by then. Zones with what
    // they have stay, and later commits go to zones that may not be there yet.
    let later = snapshot.lsn() + 1;
    let in_zones = engine.shared.zones.oldest().min(later);
    let forgets = engine.options.has(Failpoint::ForgetLevel0);
    let seen = |((table, view), drained): ((Arc<TableCore>, Arc<View>), _)| {
        let drained = if forgets { later - 1 } else { drained };
        let oldest = oldest_in(&view, (drained, in_zones), later);
        Seen { name: table.name(), table, view, oldest }
    };
    let tables = tables.into_iter().zip(views).zip(drained).map(seen).collect();
    (Moment { tables, snapshot, blob }, hold)
}

impl Half {
    /// Copies what the set has not; the operations that make the table.
    fn describe(
        &self,
        into: &mut dyn Destination,
        (engine, meter): (&Engine, &Meter),
        ops: &mut Vec<Op<Arc<ExtentMeta>>>,
    ) -> Result<()> {
        let (id, version, gate) = (self.table.id(), &self.version, &engine.shared.gate);
        ops.push(Op::CreateTable {
            table: id,
            created_lsn: self.table.created(),
            name: self.name.clone(),
        });
        if version.options != TableOptions::new() {
            ops.push(Op::TableOptions { table: id, options: version.options });
        }
        if version.expired > 0 {
            let ttl = version.options.ttl_micros().unwrap_or(0);
            ops.push(Op::TimeToLive { table: id, ttl, expired: version.expired });
        }
        if self.oldest > 0 {
            let mut map = version.drained.clone();
            if !engine.options.has(Failpoint::ForgetSteps) {
                // It may have forgotten steps below that, and a reader may begin below them.
                map.raise(self.oldest - 1);
            }
            ops.push(Op::DrainedMap { table: id, map });
        }
        let add = |level, extent| Op::AddExtent { table: id, level, extent };
        // Where there is no free sublevel for what was above the levels, they begin one further
        // down.
        let free = (1..=SUBLEVELS).take_while(|n| version.level(*n).is_none_or(Level::is_empty));
        let sublevel = free.last();
        let top = sublevel.unwrap_or(1);
        for extent in &self.dumped.extents {
            gate.check_open().map_err(Error::not_open)?;
            ops.push(add(top, into.keep(extent)?));
        }
        let first: u8 = if self.dumped.extents.is_empty() || sublevel.is_some() { 1 } else { 2 };
        let deepest = usize::from(first) - 1 + version.levels.len();
        if deepest > usize::from(MAX_LEVELS) {
            return Err(Error::invalid(format!(
                "table {:?} has {deepest} levels with what is in the region, and a backup takes \
                 {MAX_LEVELS}; try again once that was drained",
                self.name
            )));
        }
        for (level, extents) in (first..).zip(&version.levels) {
            let is_shown = |extent: &&Arc<Extent>| !self.dumped.hidden.contains(&extent.meta().id);
            for extent in extents.extents().iter().filter(is_shown) {
                gate.check_open().map_err(Error::not_open)?;
                ops.push(add(level, into.copy(extent)?));
                let values: u64 = extent.meta().values.iter().map(|one| one.bytes).sum();
                meter.did(u64::from(extent.meta().location.len) + values)?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
