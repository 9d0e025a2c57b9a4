//! The way of a commit group from its batch to its LSN.
//!
//! Outline. (1) The group is encoded and checked; everything that can fail or block happens now:
//! space, ring credit. (2) In the turnstile it takes its ticket, its space and the memtables that
//! will hold it. (3) Outside, in parallel with others, its bytes are stored, flushed and fenced,
//! its records indexed, its slot finished. (4) Whoever wins the publisher's lock publishes all
//! consecutive finished slots with one sync; the rest park.
//!
//! Thread safety: every method takes `&self`. Lock order: `linking`, then `publisher` or
//! `turnstile`; publisher and turnstile are never held together. Waiters park.
//!
//! Invariants:
//!
//! 1. visible ≤ last ticket; F ≤ durable ≤ visible. (A relaxed commit is visible, not durable.)
//! 2. Between ticket and finish nothing may fail; a thread that dies there poisons the database.
//! 3. A group is in the memtables before its slot is finished, hence before it is visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::Thread;

use parking_lot::{Mutex, MutexGuard};

use super::batch::Batch;
use super::floor::{Floor, Gidx, JournalMark};
use super::group::{Few, Group};
use super::poison::Poison;
use super::publisher::Publisher;
use super::ring::{Finished, RING, Ring};
use super::subentry::{SUB_HEADER, SubEntry};
use super::turnstile::{Place, StreamTail, Turnstile};
use crate::alloc::ZonePool;
use crate::error::{ErrorKind, Result};
use crate::memtable::{Memtable, Record};
use crate::mvcc::{Watermark, pin};
use crate::options::Durability;
use crate::pm::{Fenced, Region};
use crate::record::Lsn;

/// Groups, records, runs, since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct CommitCounts {
    pub(crate) groups: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) zone_switches: AtomicU64,
    /// Bytes of zones that groups have taken.
    pub(crate) appended: AtomicU64,
}

/// Where an opening starts from.
#[derive(Debug)]
pub(crate) struct Start {
    /// Every LSN up to here is decided.
    pub(crate) last: Lsn,
    pub(crate) incarnation: u64,
    pub(crate) floor: Floor,
    pub(crate) streams: Vec<StreamTail>,
    /// Where each stream's committed records end.
    pub(crate) gidx: Vec<Option<Gidx>>,
    /// The cleaner's stream.
    pub(crate) cleaner: Option<u32>,
}

/// Commit for one database.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(super) region: Arc<Region>,
    pub(super) zones: Arc<ZonePool>,
    pub(super) incarnation: u64,
    turnstile: Mutex<Turnstile>,
    /// Held while a spare zone is linked.
    linking: Mutex<()>,
    pub(super) ring: Ring,
    pub(super) publisher: Mutex<Publisher>,
    pub(super) visible: Arc<Watermark>,
    pub(super) durable: Watermark,
    pub(super) poison: Arc<Poison>,
    pub(super) journal: Mutex<JournalMark>,
    cleaner: Option<u32>,
    counts: CommitCounts,
}

/// A commit that has its place in the order and waits for nothing but the device.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    committer: &'a Committer,
    lsn: Lsn,
    zone: u32,
    at: u64,
    durability: Durability,
}

impl Pending<'_> {
    /// The zone that its first sub-entry lies in.
    pub(crate) fn zone(&self) -> u32 {
        self.zone
    }

    /// Where its first record lies in the region.
    pub(crate) fn records_at(&self) -> u64 {
        self.at
    }

    /// Waits until the commit is visible and as durable as was asked for.
    ///
    /// # Errors
    ///
    /// `UnknownOutcome` when the database was poisoned meanwhile.
    pub(crate) fn wait(self) -> Result<Lsn> {
        self.committer.wait(self.lsn, self.durability)?;
        Ok(self.lsn)
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
        let zone_size = zones.geometry().zone_size;
        let gidx = start.gidx.iter().enumerate();
        let gidx = gidx.filter_map(|(stream, gidx)| Some((stream as u32, (*gidx)?)));
        Committer {
            publisher: Mutex::new(Publisher::new(start.floor, gidx.collect())),
            turnstile: Mutex::new(Turnstile::new(start.last + 1, start.streams, zone_size)),
            region,
            zones,
            incarnation: start.incarnation,
            linking: Mutex::new(()),
            ring: Ring::new(),
            durable: Watermark::new(start.last),
            visible,
            poison,
            journal: Mutex::new(start.floor.journal),
            cleaner: start.cleaner,
            counts: CommitCounts::default(),
        }
    }

    /// What commit has done so far.
    pub(crate) fn counts(&self) -> &CommitCounts {
        &self.counts
    }

    /// The greatest LSN that is published.
    pub(crate) fn visible(&self) -> Lsn {
        self.visible.get()
    }

    /// The greatest LSN that is durable.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable.get()
    }

    /// The greatest LSN that a read may see: nothing unsynced once the database is poisoned.
    pub(crate) fn readable(&self) -> Lsn {
        let visible = self.visible.get();
        if self.poison.is_set() { visible.min(self.durable.get()) } else { visible }
    }

    /// Gives a batch its place in the order.
    ///
    /// # Errors
    ///
    /// `Invalid` when the batch broke a limit or names a dropped table; `Full` when the region
    /// has no zone left; `Unavailable` when the database is poisoned. Nothing was done then.
    pub(crate) fn enqueue(&self, batch: &Batch, durability: Durability) -> Result<Pending<'_>> {
        let group = Group::encode(batch, self.zones.geometry().zone_size)?;
        self.enqueue_group(group, durability, &mut || ())
    }

    /// Gives an encoded group its place in the order; `at_ticket` runs in the turnstile with the
    /// group's ticket, and must be short.
    ///
    /// # Errors
    ///
    /// As [`Committer::enqueue`].
    pub(crate) fn enqueue_group(
        &self,
        group: Group,
        durability: Durability,
        at_ticket: &mut dyn FnMut(),
    ) -> Result<Pending<'_>> {
        let records = group.records();
        let ticket = self.take_ticket(&group, at_ticket)?;
        let lsn = ticket.lsn;
        let zone = ticket.places.first().map_or(0, |place| place.zone);
        let offset = ticket.places.first().map_or(0, |place| place.offset);
        let at = self.zones.geometry().zone(zone) + offset + SUB_HEADER as u64;
        self.fill(group, ticket, durability);
        self.counts.groups.fetch_add(1, Ordering::Relaxed);
        self.counts.records.fetch_add(records, Ordering::Relaxed);
        Ok(Pending { committer: self, lsn, zone, at, durability })
    }

    fn take_ticket(&self, group: &Group, at_ticket: &mut dyn FnMut()) -> Result<Ticket<'_>> {
        loop {
            self.poison.check()?;
            let mut turnstile = self.turnstile.lock();
            for home in &group.homes {
                home.check_alive()?;
            }
            if turnstile.next - self.visible.get() >= RING {
                let oldest = turnstile.next - RING;
                drop(turnstile);
                self.wait(oldest, Durability::Relaxed)?;
                continue;
            }
            if let Some(stream) = turnstile.lacks_space(group) {
                drop(turnstile);
                self.make_spare(stream)?;
                continue;
            }
            let actives = group.homes.iter().map(|home| home.active()).collect();
            let (lsn, places) = turnstile.pass(group, &self.zones);
            at_ticket();
            return Ok(Ticket { committer: self, lsn, places, actives, honoured: false });
        }
    }

    /// Links a spare zone to a stream that has none.
    ///
    /// # Errors
    ///
    /// As [`ZonePool::link`].
    pub(crate) fn make_spare(&self, stream: u32) -> Result<()> {
        let _linking = self.linking.lock();
        let tail = self.turnstile.lock().streams[stream as usize];
        if tail.spare.is_some() {
            return Ok(());
        }
        let linked = self.zones.link(stream, tail.ordinal + 1, self.incarnation);
        if let Err(e) = &linked
            && e.kind() != ErrorKind::Full
        {
            self.poison.set(e);
        }
        let zone = linked?;
        self.turnstile.lock().streams[stream as usize].spare = Some(zone);
        Ok(())
    }

    /// Whether some stream has no spare zone. The cleaner's links one when it needs it: a zone
    /// kept ready would be one that nobody can write to.
    pub(crate) fn lacks_spare(&self) -> Option<u32> {
        let turnstile = self.turnstile.lock();
        let mut streams = (0..).zip(&turnstile.streams);
        let lacks =
            |(stream, s): &(u32, &StreamTail)| s.spare.is_none() && self.cleaner != Some(*stream);
        streams.find(lacks).map(|(stream, _)| stream)
    }

    /// The cleaner's stream.
    pub(crate) fn cleaner(&self) -> Option<u32> {
        self.cleaner
    }

    /// Runs `f` at a boundary in the order: every earlier LSN, given to `f` as the last one, has
    /// its memtables; every later one asks for them anew. `f` must be short.
    pub(crate) fn at_boundary<T>(&self, f: impl FnOnce(Lsn) -> T) -> T {
        let turnstile = self.turnstile.lock();
        f(turnstile.next - 1)
    }

    /// Step 3: stores, fences and indexes a group that has its ticket.
    fn fill(&self, mut group: Group, mut ticket: Ticket<'_>, durability: Durability) {
        let lsn = ticket.lsn;
        group.number(lsn);
        let mut fenced = self.fence_switches(&mut ticket.places);
        let count = group.parts.len() as u16;
        let (mut flushed, mut tails) = (Few::new(), Few::new());
        for (index, (part, place)) in group.parts.iter_mut().zip(&ticket.places).enumerate() {
            let zone_at = self.zones.geometry().zone(place.zone);
            let header = SubEntry {
                lsn,
                incarnation: self.incarnation,
                zone_generation: self.zones.generation(place.zone),
                payload_len: part.payload().len() as u32,
                payload_sum: SubEntry::payload_sum(lsn, part.payload()),
                count,
                index: index as u16,
                records: part.records.len() as u32,
                stream: part.stream,
                moved: group.moved,
            };
            part.bytes[..SUB_HEADER].copy_from_slice(&header.encode(place.zone));
            let stored = self.region.write(zone_at + place.offset, &part.bytes);
            flushed.push(self.region.flush(stored));
            self.zones.append(place.zone, part.records.len() as u64);
            self.counts.appended.fetch_add(part.zone_len(), Ordering::Relaxed);
            let tail = place.offset + part.zone_len();
            tails.push((part.stream, Gidx { zone: place.zone, tail }));
        }
        fenced.absorb(self.region.fence(flushed));
        self.index(&group, &ticket);
        let durable = durability == Durability::Durable;
        self.ring.finish(lsn, Finished { fenced, tails, durable });
        ticket.honoured = true;
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
        let _guard = pin();
        for (part, place) in group.parts.iter().zip(&ticket.places) {
            let part_at = self.zones.geometry().zone(place.zone) + place.offset;
            for placed in &part.records {
                let Some(home) = placed.home else { continue };
                if let Some(record) = Record::decode(&part.bytes[placed.at..]) {
                    ticket.actives[home].insert(&record, part_at + placed.at as u64);
                }
            }
        }
    }

    /// Runs `f` while nothing is written to the region's media; commits wait at their sync.
    pub(crate) fn while_quiet<T>(&self, f: impl FnOnce() -> T) -> T {
        let _linking = self.linking.lock();
        let _turn = self.publish();
        f()
    }

    /// Waits until `lsn` is published, publishing whatever is finished when nobody else does.
    pub(crate) fn wait(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        let done = || match durability {
            Durability::Durable => self.durable.get() >= lsn && self.visible.get() >= lsn,
            Durability::Relaxed => self.visible.get() >= lsn,
        };
        loop {
            if done() {
                return Ok(());
            }
            if self.poison.is_set() {
                return Err(self.poison.unknown_outcome(lsn));
            }
            if let Some(mut turn) = self.try_publish()
                && self.run(&mut turn, false)
            {
                continue;
            }
            self.ring.enlist(lsn);
            // Whoever publishes the LSN wakes us; whoever gives the publisher's lock back looks
            // whether something was finished meanwhile, and wakes its waiter. So there is nothing
            // to do as long as the lock is taken or the next slot is not finished.
            fence(Ordering::SeqCst);
            let idle = self.publisher.is_locked() || !self.ring.is_finished(self.visible.get() + 1);
            if idle && !done() && !self.poison.is_set() {
                std::thread::park();
            }
        }
    }

    /// The publisher's turn, if nobody has it.
    fn try_publish(&self) -> Option<Turn<'_>> {
        Some(Turn {
            committer: self,
            publisher: Some(self.publisher.try_lock()?),
            woken: Vec::new(),
        })
    }

    /// The publisher's turn.
    pub(super) fn publish(&self) -> Turn<'_> {
        Turn { committer: self, publisher: Some(self.publisher.lock()), woken: Vec::new() }
    }

    /// Wakes everybody who waits for a commit, after a failure.
    pub(crate) fn wake_all(&self) {
        self.ring.dismiss_all().iter().for_each(Thread::unpark);
    }

    /// How many runs were published.
    pub(super) fn count_run(&self) {
        self.counts.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers how much of the journal is durable; it rides along with the next floor.
    pub(crate) fn note_journal(&self, mark: JournalMark) {
        *self.journal.lock() = mark;
    }
}

/// A ticket that has not been honoured yet.
struct Ticket<'a> {
    committer: &'a Committer,
    lsn: Lsn,
    places: Few<Place>,
    actives: Few<Arc<Memtable>>,
    honoured: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.honoured {
            return;
        }
        // A void slot would let recovery and readers disagree, so there is none (invariant 2).
        let poison = &self.committer.poison;
        poison.set_because(format!("a thread died between ticket and finish of {}", self.lsn));
        self.committer.wake_all();
    }
}

/// The publisher's turn. Giving it back wakes those whose commits were published, and before them
/// the one who can go on with what was finished meanwhile.
pub(super) struct Turn<'a> {
    committer: &'a Committer,
    publisher: Option<MutexGuard<'a, Publisher>>,
    /// Whose commits this turn has published.
    pub(super) woken: Vec<Thread>,
}

impl std::ops::Deref for Turn<'_> {
    type Target = Publisher;

    fn deref(&self) -> &Publisher {
        self.publisher.as_ref().expect("invariant: a turn has the lock until it is dropped")
    }
}

impl std::ops::DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Publisher {
        self.publisher.as_mut().expect("invariant: a turn has the lock until it is dropped")
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let committer = self.committer;
        drop(self.publisher.take());
        // Against the fence in `wait`: either we see the slot that was finished while we had the
        // lock, or its waiter sees the lock free.
        fence(Ordering::SeqCst);
        let next = committer.visible.get() + 1;
        if committer.ring.is_finished(next) {
            let mut successor = Vec::new();
            committer.ring.dismiss(next, &mut successor);
            successor.iter().for_each(Thread::unpark);
        }
        self.woken.iter().for_each(Thread::unpark);
        if committer.poison.is_set() {
            committer.wake_all();
        }
    }
}
