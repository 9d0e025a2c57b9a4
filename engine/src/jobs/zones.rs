//! Zones of the region, between two fills.
//!
//! The next zone of each stream is linked while the one before it fills, so that no writer has to.
//!
//! Zones in which nothing lives are released: when it is worth the syncs that it takes, and when no
//! reader and no power cut needs them any more. Zones on their way wait in a **pending release**
//! for readers to leave. Then they wait for readers beside this process that are opening, since
//! these read zones.
//!
//! What still lives in a zone that is mostly dead is copied into the cleaner's zone, with its
//! sequence numbers, so that the zone can be released. Without that one cold record would keep each
//! zone of a hot table until the drain round comes to it. The copies are an ordinary commit of
//! their own, whose sub-entry says that its records keep their numbers (`docs/format.md`). It is
//! durable before the first copy can be found, so a source is released only when its copies
//! survive; until then recovery finds a record twice, and counts it once (`docs/commit.md`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::context::{Batch, JobContext, Outcome};
use super::ops::{are_worth_it, zones_are_dead};
use super::table_index::Has;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Durability, Failpoint};
use crate::base::record::{Kind, Lsn};
use crate::commit::{Group, OneGroup, payloads_of};
use crate::memtable::{Record, records_in};
use crate::mvcc::pin;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::{BesideReader, HashMap};
use crate::pm::alloc::Frees;

/// Links a standby zone to a stream that has none. Where the region is full, drains make space.
pub(crate) fn preallocate_zone(ctx: &JobContext) -> Result<Outcome> {
    let committer = &ctx.shared.committer;
    let Some(stream) = committer.lacks_standby() else { return Ok(Outcome::NOTHING) };
    match committer.make_standby(stream, 0, Frees::Nothing) {
        Ok(()) => Ok(Outcome::DONE),
        Err(e) if e.kind() == ErrorKind::Full => Ok(Outcome::NOTHING),
        Err(e) => Err(e),
    }
}

/// While zones wait for readers to leave an epoch, the background looks this often;
pub(crate) const READERS_LEAVE: Duration = Duration::from_millis(1);

/// while they wait for readers beside this process, which lists a directory.
const READERS_OPEN: Duration = Duration::from_millis(20);

/// Dead zones that readers may still look into.
#[derive(Debug)]
struct Pending {
    zones: Vec<u32>,
    /// Set once no reader from before is left.
    readers_left: Arc<AtomicBool>,
    /// Readers beside this process that were opening then, and still are.
    opening: Option<Vec<BesideReader>>,
}

/// The job.
#[derive(Debug, Default)]
pub(crate) struct ReleaseZones {
    pending: Mutex<Option<Pending>>,
}

impl ReleaseZones {
    /// For how long zones and pages that wait for readers are left alone, if some do.
    pub(crate) fn pause(&self, ctx: &JobContext) -> Option<Duration> {
        let pending = self.pending.lock();
        let pause = pending.as_ref().map(|it| match it.readers_left.load(Ordering::Acquire) {
            false => READERS_LEAVE,
            true => READERS_OPEN,
        });
        let all_given = || ctx.shared.pages.give_kept().unwrap_or(false);
        pause.or_else(|| (!all_given()).then_some(READERS_OPEN))
    }

    /// Releases the zones that wait for readers no more, or else has dead zones wait for them.
    pub(crate) fn step(&self, batch: Batch, ctx: &JobContext) -> Result<Outcome> {
        ctx.transactions.prepared.release(&ctx.shared);
        tell_of_readers(ctx);
        ctx.shared.pages.give_kept().map_err(|e| no_look(ctx, e))?;
        let mut pending = self.pending.lock();
        if pending.is_none() {
            let zones = releasable(ctx, batch)?;
            if zones.is_empty() {
                return Ok(Outcome::NOTHING);
            }
            let readers_left = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&readers_left);
            *pending = Some(Pending { zones, readers_left: flag, opening: None });
            drop(pending);
            ctx.shared.queue.defer(move || readers_left.store(true, Ordering::Release));
            return Ok(Outcome::DONE);
        }
        let have_left = |waits: &mut Pending| waits.readers_left.load(Ordering::Acquire);
        let Some(mut waiting) = pending.take_if(have_left) else {
            return Ok(Outcome::NOTHING);
        };
        drop(pending);
        let Pending { zones, opening, .. } = &mut waiting;
        debug_assert!(zones_are_dead(ctx, zones), "a zone is released when no record counts");
        let (store, mut failed) = (ctx.set.store(), None);
        let fails = |e| failed = Some(no_look(ctx, e));
        let may_go = || store.readers().have_opened(opening).map_err(fails).unwrap_or(false);
        let released = ctx.shared.committer.release(zones, may_go)?;
        let reader = opening.iter().flatten().next().filter(|_| released == 0);
        ctx.shared.pace.wait_for_reader(reader.map(|reader| reader.process));
        if released == 0 {
            // They wait for a reader beside this process.
            *self.pending.lock() = Some(waiting);
            return failed.map_or(Ok(Outcome::NOTHING), Err);
        }
        ctx.transactions.prepared.released(&ctx.shared.zones, zones);
        ctx.metrics.zones_released.add(released as u64);
        ctx.shared.pace.report(None);
        let oldest = ctx.shared.zones.oldest();
        // Their maps no longer have to say what moved out of those zones.
        let with_steps = ctx.tables.index().having(Has::Drained);
        for table in with_steps {
            ctx.set.forget_drained_below(table.id(), oldest);
        }
        Ok(Outcome::did(released > 0))
    }
}

/// A look for readers beside this process failed. All stays as it is until one succeeds.
fn no_look(ctx: &JobContext, error: io::Error) -> Error {
    Error::io("look for readers in", ctx.set.store().directory().path(), error).into_passing()
}

/// Tells what looks for readers beside this process have met that no job fails by.
fn tell_of_readers(ctx: &JobContext) {
    for (path, error) in ctx.set.store().readers().take_untold() {
        ctx.count_failure(&Error::io("look for readers at", &path, error));
    }
}

/// Dead zones that a power cut does without, if they are worth it: recovery walks upward from the
/// floor on the media, so what is above it must stay, dead or not.
fn releasable(ctx: &JobContext, batch: Batch) -> Result<Vec<u32>> {
    if ctx.options.has(Failpoint::KeepDeadZones) {
        return Ok(Vec::new());
    }
    // Where a commit waits, few zones are worth the syncs too.
    let batch = if ctx.shared.zones.keeps_waiting() { Batch::Any } else { batch };
    let found = dead_and_shipped(ctx, batch)?;
    if !found.is_empty() || !is_to_let_go(ctx) {
        return Ok(found);
    }
    // What the store has goes first, however little it is.
    let found = dead_and_shipped(ctx, Batch::Any)?;
    if found.is_empty() && ctx.let_go()? { dead_and_shipped(ctx, batch) } else { Ok(found) }
}

/// As [`releasable`], of zones that are not kept for the shared store.
fn dead_and_shipped(ctx: &JobContext, batch: Batch) -> Result<Vec<u32>> {
    let (zones, committer) = (&ctx.shared.zones, &ctx.shared.committer);
    let upto = |lsn: Lsn| lsn.min(committer.kept());
    let durable = zones.dead(upto(committer.durable()));
    if !are_worth_it(ctx, &durable, batch) {
        return Ok(Vec::new());
    }
    if ctx.options.has(Failpoint::FreeBeforeCopy) {
        return Ok(committer.releasable(durable));
    }
    // What dies is old, and jobs have moved the floor beyond it, as a rule.
    let there = zones.dead(upto(committer.floor_there()));
    let has_more = there.len() < durable.len();
    let there = committer.releasable(there);
    if has_more && there.is_empty() {
        return Ok(committer.releasable(zones.dead(upto(ctx.sync_floor()?))));
    }
    Ok(there)
}

/// A region is nearly full where one in so many of its units is left.
const NEARLY_FULL: u32 = 8;

/// Whether zones are to go that are kept for the shared store alone, before any writer waits for
/// them: where they are half of the region, or where that is nearly full.
fn is_to_let_go(ctx: &JobContext) -> bool {
    let (zones, committer) = (&ctx.shared.zones, &ctx.shared.committer);
    let Some(feed) = committer.feed() else { return false };
    let dead = zones.dead_units((feed.kept(), committer.durable()));
    feed.note_dead(dead > 0);
    if dead == 0 || !feed.may_let_go() {
        return false;
    }
    // The region may grow on another thread: what is free is of an earlier moment.
    let (free, room) = (zones.free(), zones.room());
    let left = room.saturating_sub(zones.geometry().units) + free;
    let is_full = left * NEARLY_FULL <= room && dead * 2 * NEARLY_FULL >= room;
    dead * 2 >= room || is_full || zones.keeps_waiting()
}

/// A zone is cleaned when at most one in so many of its records lives.
const MOSTLY_DEAD: u64 = 8;

/// The job.
#[derive(Debug, Default)]
pub(crate) struct CleanZones {
    /// Zones that are not worth it, with the live records that each had when that was found.
    not_worth: Mutex<HashMap<u32, u64>>,
}

/// A record that lives, and where.
struct Living<'a> {
    at: u64,
    record: Record<'a>,
}

impl CleanZones {
    /// Zones that are mostly dead, if they are worth it.
    fn zones(&self, batch: Batch, ctx: &JobContext) -> Option<Vec<u32>> {
        let pool = &ctx.shared.zones;
        // Nothing is moved that a power cut could still undo.
        let durable = ctx.shared.committer.durable();
        let not_worth = self.not_worth.lock();
        let mut zones = pool.mostly_dead(durable, MOSTLY_DEAD);
        zones.retain(|zone| not_worth.get(zone) != Some(&pool.live(*zone)));
        are_worth_it(ctx, &zones, batch).then_some(zones)
    }

    /// Moves what lives out of as many as a job may. Where the region is full it does not: drains
    /// make room.
    pub(crate) fn step(&self, batch: Batch, ctx: &JobContext) -> Result<Outcome> {
        let Some(stream) = ctx.shared.committer.cleaner else { return Ok(Outcome::NOTHING) };
        let Some(zones) = self.zones(batch, ctx) else { return Ok(Outcome::NOTHING) };
        // What is read of the zones stays, also while this waits for the copies to be durable.
        let _hold = ctx.shared.queue.hold();
        let budget = ctx.shared.zones.geometry().usual_zone() / 4;
        let (mut living, mut bytes, mut cleaned) = (Vec::new(), 0, 0);
        for zone in zones {
            let found = living_in(ctx, zone)?;
            let more: u64 = found.iter().map(|l| l.record.stored_len() as u64).sum();
            // Few large records may be much of a zone; or what keeps it is no record to move.
            if found.is_empty() || more > budget {
                self.not_worth.lock().insert(zone, ctx.shared.zones.live(zone));
                continue;
            }
            if bytes + more > budget {
                break;
            }
            bytes += more;
            cleaned += 1;
            living.extend(found);
        }
        if living.is_empty() {
            return Ok(Outcome::NOTHING);
        }
        debug_assert!(bytes <= budget, "a job moves no more than its budget");
        debug_assert!(
            living.iter().all(|l| l.record.seq <= ctx.shared.committer.durable()),
            "nothing moves that a power cut could undo"
        );
        // The oldest record first: neighbours in time die together.
        living.sort_by_key(|l| l.record.seq);
        match copy(ctx, stream, &living) {
            Ok(copies) => relocate(ctx, &living, copies)?,
            Err(e) if e.kind() == ErrorKind::Full => return Ok(Outcome::NOTHING),
            Err(e) => return Err(e),
        }
        ctx.metrics.zones_cleaned.add(cleaned);
        ctx.metrics.records_moved.add(living.len() as u64);
        Ok(Outcome::DONE)
    }
}

/// The records of a zone that a read can find.
fn living_in(ctx: &JobContext, zone: u32) -> Result<Vec<Living<'_>>> {
    let _guard = pin();
    let (region, zones) = (&ctx.shared.region, &ctx.shared.zones);
    let at = zones.geometry().zone(zone);
    let records = payloads_of(region, zones.geometry(), zone)
        .flat_map(|payload| records_in(region, at + payload.at, payload.len));
    let lives = |at: u64, record: &Record<'_>| match ctx.tables.get(record.table) {
        Some(table) => table.view().holds(record, at),
        None => Ok(is_last_blob(ctx, record, at)),
    };
    let found = records.filter_map(|(at, record)| match lives(at, &record) {
        Ok(lives) => lives.then_some(Ok(Living { at, record })),
        Err(e) => Some(Err(e)),
    });
    found.collect()
}

fn is_last_blob(ctx: &JobContext, record: &Record<'_>, at: u64) -> bool {
    record.kind == Kind::Blob && ctx.shared.committer.blobs.holds(record.seq, at)
}

/// Commits copies of the records, durably; their zone, and where the first one is.
fn copy(ctx: &JobContext, stream: u32, living: &[Living<'_>]) -> Result<(u32, u64)> {
    debug_assert!(living.is_sorted_by_key(|l| l.record.seq), "the oldest record comes first");
    let records: Vec<Record<'_>> = living.iter().map(|l| l.record).collect();
    let group = Group::moved(stream, &records);
    let committer = &ctx.shared.committer;
    let pending = committer.enqueue(&mut OneGroup::new(group), Durability::Durable)?;
    let (zone, at) = (pending.zone, pending.records_at);
    // Before D forgets what only it knows of older records.
    let oldest = living.iter().map(|l| l.record.seq).min().unwrap_or(0);
    ctx.shared.zones.lower_oldest(zone, oldest);
    if !ctx.options.has(Failpoint::FreeBeforeCopy) {
        pending.wait()?;
    }
    Ok((zone, at))
}

/// Has readers find the copies, which begin at `at` in `zone`, and counts the records out of the
/// zones that they were in.
fn relocate(ctx: &JobContext, living: &[Living<'_>], (zone, mut at): (u32, u64)) -> Result<()> {
    let zones = &ctx.shared.zones;
    for Living { at: from, record } in living {
        debug_assert_eq!(zones.zone_of(at), zone, "copies lie in one zone");
        debug_assert_ne!(zones.zone_of(*from), zone, "no zone is cleaned into itself");
        let found = match ctx.tables.get(record.table) {
            Some(table) => {
                // A table is not dropped meanwhile: its records would be counted out twice.
                let _change = table.change();
                let _guard = pin();
                table.view().relocate(record, *from, at)?
            }
            None => ctx.shared.committer.blobs.relocate(record.seq, *from, at),
        };
        // One that went in the meantime has counted its old place out; no index has the new one.
        let gone_from = if found { zones.zone_of(*from) } else { zone };
        zones.sub_live(gone_from, 1);
        at += record.stored_len() as u64;
    }
    ctx.shared.wakeup.wake();
    Ok(())
}
