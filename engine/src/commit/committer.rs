//! Commit groups from their ticket on, and all that a database asks of commit.
//!
//! Outline. (1) `write` encodes a group and brings it to its ticket; everything that can fail or
//! block happens there. (2) In the sequencer it takes its ticket, its space and the memtables that
//! will hold it. (3) Outside, beside other groups, its bytes are stored, flushed and fenced, its
//! records indexed, its slot finished; no lock is waited for. (4) A thread that waits publishes all
//! consecutive finished slots together (`publisher`).
//!
//! Thread safety: every method takes `&self`. Lock order: `linking`, `sequencer`, and the
//! publisher's; sequencer and publisher are never held together.
//!
//! Invariants:
//!
//! 1. Between ticket and finish nothing may fail; a thread that dies there poisons the database.
//! 2. A group is in the memtables before its slot is finished, hence before it is visible.
//! 3. A thread that is held up between ticket and finish holds up later LSNs, and nothing else.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use smallvec::smallvec;

use super::bucket::Buckets;
use super::feed::Feed;
use super::floor::{JournalMark, Tails};
use super::group::{Few, Group};
use super::poison::{Poison, Stopped};
use super::publisher::{Goal, Publisher};
use super::ring::{Finished, Written};
use super::sequencer::{InSequencer, Place, Sequencer, Start, Step, reached};
use super::subentry::{Blobs, Content, SUB_HEADER, SubEntry};
use crate::base::error::{Error, Result};
use crate::base::operations;
use crate::base::options::{Durability, Failpoint};
use crate::base::record::{Kind, Lsn};
use crate::memtable::{Memtable, Record};
use crate::mvcc::{Tombstone, Watermark, is_pinned};
use crate::os::sync::atomic::{AtomicBool, AtomicU64 as Counter};
use crate::os::sync::{AtomicU64, Mutex, Ordering};
use crate::pm::alloc::ZonePool;
use crate::pm::{Fenced, Flushed, Geometry, LINE, Purpose, Region, SpentOn};

/// Groups and records since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct CommitCounts {
    pub(crate) groups: Counter,
    pub(crate) records: Counter,
    pub(crate) zone_switches: Counter,
    /// Spilled runs that are part of groups.
    pub(crate) spilled_runs: Counter,
    /// Bytes of zones that groups have taken.
    pub(crate) appended: Counter,
}

/// What a group has for one memtable.
#[derive(Clone, Debug, Default)]
struct IntoMemtable {
    records: u64,
    /// Records that are deletes of one key.
    deletes: u64,
    bytes: u64,
    ranges: Vec<Arc<Tombstone>>,
}

/// Commit for one database.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(super) region: Arc<Region>,
    pub(super) zones: Arc<ZonePool>,
    /// The number of the opening, and its first LSN.
    pub(crate) incarnation: u64,
    pub(super) first: Lsn,
    pub(super) buckets: Buckets,
    pub(super) sequencer: Mutex<Sequencer>,
    /// Held while a zone is linked to a stream, or released.
    pub(super) linking: Mutex<()>,
    pub(super) publisher: Publisher,
    pub(super) poison: Arc<Poison>,
    /// The cleaner's stream.
    pub(crate) cleaner: Option<u32>,
    /// The blobs of commits.
    pub(crate) blobs: Blobs,
    /// 0 until transactions lock rows; then 1 + the last LSN that may have ignored locks. Set in
    /// the sequencer.
    locking_since: AtomicU64,
    /// What commit has done so far.
    pub(crate) counts: CommitCounts,
    /// For measurements: see [`Committer::follow_published_rule`].
    published_rule: AtomicBool,
    /// Where groups go that are shipped.
    pub(super) feed: Option<Feed>,
}

/// A commit that has its place in the order and waits for nothing but the device. Where it is
/// dropped and not waited for, a thread that sleeps behind it is woken to publish.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    committer: &'a Committer,
    /// Its place in the order.
    pub(crate) lsn: Lsn,
    /// The zone that its first sub-entry lies in.
    pub(crate) zone: u32,
    /// Where its first record lies in the region.
    pub(crate) records_at: u64,
    durability: Durability,
    is_waited_for: bool,
}

impl Pending<'_> {
    /// As [`Committer::wait_for`].
    pub(crate) fn wait(mut self) -> Result<Lsn> {
        self.is_waited_for = true;
        self.committer.wait_for(self.lsn, self.durability)?;
        Ok(self.lsn)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_waited_for && !self.committer.region.has(Failpoint::QuietEnqueue) {
            self.committer.publisher.pass_on();
        }
    }
}

impl Committer {
    /// Commit from where recovery ended.
    pub(crate) fn new(
        region: Arc<Region>,
        zones: Arc<ZonePool>,
        visible: Arc<Watermark>,
        poison: Arc<Poison>,
        start: Start,
    ) -> Committer {
        let media = (Arc::clone(&region), Arc::clone(&zones));
        let tails: Tails = start.gidx.iter().copied().collect();
        Committer {
            publisher: Publisher::new(media, Arc::clone(&poison), visible, &start, tails),
            buckets: Buckets::new(),
            sequencer: Mutex::new(Sequencer::new(start.last + 1, start.streams)),
            blobs: Blobs::new(Arc::clone(&region), Arc::clone(&zones)),
            region,
            zones,
            incarnation: start.incarnation,
            first: start.last + 1,
            linking: Mutex::new(()),
            poison,
            cleaner: start.cleaner,
            locking_since: AtomicU64::new(0),
            counts: CommitCounts::default(),
            published_rule: AtomicBool::new(false),
            feed: start.feeds.map(Feed::behind),
        }
    }

    /// Publisher runs so far: groups made durable together.
    pub(crate) fn runs(&self) -> u64 {
        self.publisher.runs.load(Ordering::Relaxed)
    }

    /// The greatest LSN that is published.
    pub(crate) fn visible(&self) -> Lsn {
        self.publisher.visible()
    }

    /// The greatest LSN that is durable.
    pub(crate) fn durable(&self) -> Lsn {
        self.publisher.durable()
    }

    /// The greatest LSN that a read may see: nothing unsynced once the database is poisoned.
    pub(crate) fn readable(&self) -> Lsn {
        let visible = self.visible();
        if self.poison.is_set() { visible.min(self.durable()) } else { visible }
    }

    /// Waits until the caller's own commit is visible and as durable as was asked for.
    pub(crate) fn wait_for(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        self.wait_on_this_machine(lsn, durability)?;
        self.wait_for_store(lsn, durability, None)
    }

    /// The part of [`Committer::wait_for`] that needs no store, with its errors. Row locks are
    /// given back behind it.
    pub(crate) fn wait_on_this_machine(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        let goal = match durability {
            Durability::Durable | Durability::Remote => Goal::Durable,
            Durability::Relaxed => Goal::Visible,
        };
        self.publisher.wait(lsn, goal).map_err(|Stopped| self.poison.unknown_outcome(lsn))
    }

    /// Waits until readers see a commit, which may be another caller's. It is made durable if
    /// nothing else makes it visible.
    pub(crate) fn wait_until_visible(&self, lsn: Lsn) -> Result<()> {
        if lsn <= self.visible() {
            return Ok(());
        }
        self.publisher.wait(lsn, Goal::Durable).map_err(|Stopped| self.poison.unavailable())
    }

    /// The number of the last commit that has its place in the order.
    pub(crate) fn last_ticket(&self) -> Lsn {
        self.sequencer.lock().next - 1
    }

    /// Waits until the shared store has a commit, if that was asked for.
    pub(crate) fn wait_for_store(
        &self,
        lsn: Lsn,
        durability: Durability,
        looks: Option<u64>,
    ) -> Result<()> {
        match &self.feed {
            Some(feed) if durability == Durability::Remote => {
                operations::wait(|spent| &mut spent.remote, || feed.wait_remote(lsn, looks))
            }
            _ => Ok(()),
        }
    }

    /// Where groups go that are shipped to a shared store.
    pub(crate) fn feed(&self) -> Option<&Feed> {
        self.feed.as_ref()
    }

    /// Zones with commits above this one are kept for the shared store. It is asked for after the
    /// LSN that it bounds, which may rise meanwhile, as this one may fall.
    pub(crate) fn kept(&self) -> Lsn {
        let feed = self.feed.as_ref().filter(|_| !self.region.has(Failpoint::ReleaseUnshipped));
        feed.map_or(Lsn::MAX, Feed::kept)
    }

    /// Whether a commit that asks for `durability` waits for nothing any more.
    pub(crate) fn is_done(&self, lsn: Lsn, durability: Durability) -> bool {
        let is_durable = durability == Durability::Relaxed || self.durable() >= lsn;
        let is_remote = durability == Durability::Remote;
        let feed = self.feed.as_ref().filter(|_| is_remote);
        is_durable && self.visible() >= lsn && feed.is_none_or(|feed| feed.is_decided(lsn))
    }

    /// Whether it is done, or never will be.
    pub(crate) fn is_decided(&self, lsn: Lsn, durability: Durability) -> bool {
        self.poison.is_set() || self.is_done(lsn, durability)
    }

    /// Fails for a durability that the database does not have.
    pub(crate) fn check_durability(&self, durability: Durability) -> Result<()> {
        if durability != Durability::Remote || self.feed.is_some() {
            return Ok(());
        }
        Err(Error::invalid(
            "the durability `remote` needs a shared store: open the database with share and \
             object_store",
        ))
    }

    /// Bounds the groups that several threads' batches become: how many batches, and how many
    /// bytes; with one batch every commit is a group of its own.
    pub(crate) fn set_group_bounds(&self, batches: u32, bytes: u64) {
        self.buckets.set_bounds(batches, bytes);
    }

    /// Whether a commit fits in a zone whose records take `stored` bytes.
    pub(crate) fn fits(&self, stored: usize) -> bool {
        let room = self.zones.geometry().largest_zone() - crate::pm::alloc::ZONE_HEADER;
        ((SUB_HEADER + stored) as u64).next_multiple_of(crate::pm::LINE) <= room
    }

    /// Stores a group that has its ticket, beside others; what is left is to wait for the device.
    pub(super) fn store(
        &self,
        group: &mut Group,
        ticket: &mut Ticket<'_>,
        durability: Durability,
    ) -> Pending<'_> {
        let (records, lsn) = (group.records(), ticket.lsn);
        let first = ticket.places.first().map_or((0, 0), |place| (place.zone, place.offset));
        let records_at = self.zones.geometry().zone(first.0) + first.1 + SUB_HEADER as u64;
        self.fill(group, ticket, durability);
        self.counts.groups.fetch_add(1, Ordering::Relaxed);
        self.counts.records.fetch_add(records, Ordering::Relaxed);
        let (committer, zone) = (self, first.0);
        Pending { committer, lsn, zone, records_at, durability, is_waited_for: false }
    }

    /// Whether transactions lock rows, so that commits without locks are refused.
    pub(crate) fn locks_rows(&self) -> bool {
        self.locking_since.load(Ordering::Acquire) != 0
    }

    /// From now on commits without row locks are refused, for as long as the database is open.
    /// Returns once every earlier one is visible. All calls but the first few cost two loads.
    pub(crate) fn lock_rows(&self) -> Result<()> {
        let mut since = self.locking_since.load(Ordering::Acquire);
        if since == 0 {
            since = self.at_boundary(|last| {
                if !self.locks_rows() {
                    self.locking_since.store(last + 1, Ordering::Release);
                }
                self.locking_since.load(Ordering::Acquire)
            });
        }
        // A durable commit that is enqueued, and that no thread waits for, is visible only after a
        // sync: which this thread brings about.
        self.wait_before_ticket(since - 1, Goal::Durable)
    }

    /// Makes durable every group that has its ticket.
    pub(crate) fn sync(&self) -> Result<()> {
        let last = self.at_boundary(|last| last);
        self.wait_before_ticket(last, Goal::Durable)
    }

    /// Waits for the commit of another thread, before the caller has a ticket.
    pub(super) fn wait_before_ticket(&self, lsn: Lsn, goal: Goal) -> Result<()> {
        self.publisher.wait(lsn, goal).map_err(|Stopped| self.poison.unavailable())
    }

    /// Runs `f` at a boundary in the order: every earlier LSN, given to `f` as the last one, has
    /// its memtables; every later one asks for them again. `f` must be short, and allocates
    /// nothing.
    pub(crate) fn at_boundary<T>(&self, f: impl FnOnce(Lsn) -> T) -> T {
        let sequencer = self.sequencer.lock();
        let _inside = InSequencer::enter();
        f(sequencer.next - 1)
    }

    /// Step 3: stores, fences and indexes a group that has its ticket.
    pub(super) fn fill(&self, group: &mut Group, ticket: &mut Ticket<'_>, durability: Durability) {
        let lsn = ticket.lsn;
        debug_assert_eq!(
            ticket.places.len(),
            group.parts.len(),
            "each part of a group has its place before it is stored (invariant 1)"
        );
        reached(Step::Ticket);
        group.number(lsn);
        let switched = self.fence_switches(&mut ticket.places);
        let (count, durable) = (group.parts.len() as u16, self.durable());
        debug_assert!(durable < lsn, "what has no slot yet is not durable");
        let mut flushed: Few<Flushed> = Few::new();
        for (index, (part, place)) in group.parts.iter_mut().zip(&ticket.places).enumerate() {
            let header = SubEntry {
                lsn,
                incarnation: self.incarnation,
                zone_generation: place.generation,
                payload_len: part.payload().len() as u32,
                payload_sum: SubEntry::payload_sum_in(lsn, place.salt, part.header_and_payload()),
                count,
                index: index as u16,
                records: part.records.len() as u32,
                stream: part.stream,
                content: group.content,
                is_plain: part.is_plain(),
                durable,
            };
            let header = header.encode(place.zone, place.salt);
            part.bytes[..SUB_HEADER].copy_from_slice(&header);
            debug_assert!(part.zone_len().is_multiple_of(LINE), "a sub-entry takes whole lines");
            let at = self.zones.geometry().zone(place.zone) + place.offset;
            flushed.push(self.region.flush(self.region.write(at, &part.bytes)));
            self.zones.append(place.zone, part.records.len() as u64);
            self.counts.appended.fetch_add(part.zone_len(), Ordering::Relaxed);
        }
        reached(Step::Flushed);
        let fenced = self.fence_with_floor(flushed);
        reached(Step::Fenced);
        if self.published_rule.load(Ordering::Relaxed) {
            self.pay_for_published_rule(&ticket.places);
        }
        self.index(group, ticket);
        ticket.guard = None;
        reached(Step::Indexed);
        debug_assert!(
            fenced.spans().len() >= group.parts.len(),
            "each part of a group is fenced before its slot is finished"
        );
        let mut written = Few::new();
        for (&span, part) in fenced.spans().iter().zip(&group.parts) {
            written.push(Written { stream: Some(part.stream), span });
        }
        for &span in switched.spans() {
            written.push(Written { stream: None, span });
        }
        // Here, where others do the same, and not when all of them wait for one. What was not
        // handed over stays in the run.
        let is_handed =
            |ranges| self.region.hand_over(ranges).inspect_err(|e| self.stop(e)).is_ok();
        let relaxed =
            durability == Durability::Relaxed && is_handed(&fenced) && is_handed(&switched);
        if let Some(feed) = &self.feed {
            feed.hand_over(group.parts.iter().map(|part| part.payload().len() as u64).sum());
        }
        reached(Step::Finishing);
        self.publisher.ring.finish(lsn, &Finished { written, relaxed });
        ticket.lsn = 0;
    }

    /// Fences a group's parts; on persistent memory the floor goes with them.
    fn fence_with_floor(&self, mut flushed: Few<Flushed>) -> Fenced {
        let Some(pending) = self.publisher.take_floor_with_fence() else {
            return self.region.fence(flushed);
        };
        reached(Step::FloorStored);
        flushed.extend(pending.dirty.into_iter().map(|dirty| self.region.flush(dirty)));
        let fenced = self.region.fence(flushed);
        self.publisher.mark_floor_durable(pending.stored);
        fenced
    }

    /// Whether groups also pay what the published algorithm asks: a tail word for each stream and
    /// a second fence. No reader uses them; recovery rests on the floor.
    pub(crate) fn follow_published_rule(&self, on: bool) {
        self.published_rule.store(on, Ordering::Relaxed);
    }

    fn pay_for_published_rule(&self, places: &[Place]) {
        let words = places.iter().map(|place| {
            let word = self.region.store_word(Geometry::scratch_word(), place.offset);
            self.region.flush(word)
        });
        let words: Few<Flushed> = words.collect();
        drop(self.region.fence(words));
    }

    /// The seal of a full zone is on the media before anything in the next one is.
    fn fence_switches(&self, places: &mut [Place]) -> Fenced {
        let words: Few<_> = places
            .iter_mut()
            .flat_map(|place| place.switch.drain(..))
            .map(|word| self.region.flush(word))
            .collect();
        if words.is_empty() {
            return Fenced::default();
        }
        self.counts.zone_switches.fetch_add(1, Ordering::Relaxed);
        self.region.fence(words)
    }

    fn index(&self, group: &Group, ticket: &Ticket<'_>) {
        debug_assert!(is_pinned(), "the index is used within an epoch");
        debug_assert_eq!(
            ticket.actives.len(),
            group.tables.len(),
            "the ticket of a group has a memtable for each of its tables (invariant 2)"
        );
        let mut inserted: Few<IntoMemtable> =
            smallvec![IntoMemtable::default(); group.tables.len()];
        for (part, place) in group.parts.iter().zip(&ticket.places) {
            let part_at = self.zones.geometry().zone(place.zone) + place.offset;
            for placed in &part.records {
                let at = part_at + u64::from(placed.at);
                if let Some(table) = placed.table.map(|table| table as usize) {
                    let of = &mut inserted[table];
                    of.records += 1;
                    of.deletes += u64::from(part.is_delete(placed));
                    of.bytes += u64::from(placed.stored);
                    let record = || Record::decode(&part.bytes[placed.at as usize..]);
                    match part.has_ranges.then(record).flatten().and_then(|r| r.tombstone(at)) {
                        Some(tombstone) => of.ranges.push(tombstone),
                        None => ticket.actives[table].insert(part.key(placed), ticket.lsn, at),
                    }
                } else if group.content == Content::Commit
                    && Record::decode(&part.bytes[placed.at as usize..])
                        .is_some_and(|record| record.kind == Kind::Blob)
                {
                    self.blobs.note(ticket.lsn, at, self.durable().min(self.visible()));
                }
            }
        }
        for ((table, active), of) in group.tables.iter().zip(&ticket.actives).zip(inserted) {
            let IntoMemtable { records, deletes, bytes, ranges } = of;
            if !ranges.is_empty() {
                active.insert_ranges(ranges);
            }
            if records > 0 {
                active.count(ticket.lsn, (records, deletes), bytes);
                table.count(bytes);
            }
        }
    }

    /// Runs `f` while nothing is written to the region's media; commits wait.
    pub(crate) fn while_quiet<T>(&self, f: impl FnOnce() -> T) -> T {
        let _linking = self.linking.lock();
        self.publisher.while_quiet(f)
    }

    /// Poisons the database, and wakes every thread that waits for a commit.
    pub(super) fn stop(&self, cause: &Error) {
        self.poison.set(cause);
        self.wake_all();
    }

    /// Wakes every thread that waits for a commit after a failure, or for the shared store.
    pub(crate) fn wake_all(&self) {
        self.publisher.wake_all();
        if let (Some(feed), Err(error)) = (&self.feed, self.poison.check()) {
            feed.fail(&error);
        }
    }

    /// Remembers how much of the journal is durable; it rides along with the next floor.
    pub(crate) fn note_journal(&self, mark: JournalMark) {
        self.publisher.note_journal(mark);
    }

    /// Publishes all that is finished, makes it durable and writes the floor; returns F.
    pub(crate) fn sync_floor(&self) -> Result<Lsn> {
        let _spent = SpentOn::purpose(Purpose::Background);
        self.publisher.sync_floor()
    }

    /// F on the media, as far as is known.
    pub(crate) fn floor_there(&self) -> Lsn {
        self.publisher.floor_on_media()
    }

    /// Whether everything committed is durable and the floor says so.
    pub(crate) fn is_floor_current(&self) -> bool {
        self.publisher.is_floor_current()
    }

    /// Those of `zones` that no GIDX word names or will come to name.
    pub(crate) fn releasable(&self, zones: Vec<u32>) -> Vec<u32> {
        self.publisher.releasable(zones, &self.idle_streams())
    }

    /// Releases zones that are [`releasable`](Committer::releasable), of which no reader holds an
    /// offset any more; how many. The floor goes first. Recovery walks upward from the one on the
    /// media and must miss no LSN, and the GIDX word there must not name a zone that is gone. Then
    /// `may_go` says whether they go: a reader beside this process that is found by then reads the
    /// zones, and one that comes later reads that floor.
    pub(crate) fn release(&self, zones: &[u32], may_go: impl FnOnce() -> bool) -> Result<usize> {
        if zones.is_empty() {
            return Ok(0);
        }
        let _spent = SpentOn::purpose(Purpose::Allocation);
        let _linking = self.linking.lock();
        debug_assert!(
            self.zones.greatest(zones) <= self.durable(),
            "a zone is released after all that it had is durable"
        );
        debug_assert!(
            self.zones.greatest(zones) <= self.kept(),
            "a zone is released after the shared store has its commits (invariant 4 of the feed)"
        );
        self.publisher.release(zones, self.zones.greatest(zones))?;
        if !may_go() {
            return Ok(0);
        }
        self.zones.release(zones).inspect_err(|e| self.stop(e))?;
        Ok(zones.len())
    }
}

// A ticket: a group's place in the order of commits, from the sequencer to its finished slot.
//
// Thread safety: the thread that took it owns it.
//
// Invariant: a ticket that is dropped before its slot is finished poisons the database.

/// A ticket; its LSN is 0 before it has one, and once it was honoured.
pub(super) struct Ticket<'a> {
    pub(super) committer: &'a Committer,
    pub(super) lsn: Lsn,
    pub(super) places: Few<Place>,
    pub(super) actives: Few<Arc<Memtable>>,
    /// The epoch in which its records are indexed.
    pub(super) guard: Option<Guard>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.lsn == 0 {
            return;
        }
        // A void slot would let recovery and readers disagree, so there is none (invariant 1).
        let poison = &self.committer.poison;
        poison.set_because(format!("a thread died between ticket and finish of {}", self.lsn));
        self.committer.publisher.ring.abandon(self.lsn);
        self.committer.wake_all();
    }
}
