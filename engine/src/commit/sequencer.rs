//! The sequencer: tickets, and the space that goes with them, in one order.
//!
//! Thread safety: behind the committer's one mutex. Nothing in here allocates memory of any size,
//! faults, waits or does I/O; what it needs was made ready before.
//!
//! Invariants:
//!
//! 1. Tickets are dense, and space in every stream is reserved in ticket order.
//! 2. A sub-entry never spans zones.
//! 3. A switch seals the zone it leaves.

use super::floor::{Floor, Gidx};
use super::group::{Few, Group};
use crate::base::record::Lsn;
use crate::pm::alloc::{Frees, ZONE_HEADER, Zone, ZonePool};
use crate::pm::{Dirty, LINE, STREAM_SLOTS};

/// Where a stream's next sub-entry goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamTail {
    /// The zone being filled; none at first, and after an opening that found it sealed.
    pub(crate) zone: Option<Zone>,
    /// Offset in it.
    pub(crate) tail: u64,
    /// The greatest ordinal in the chain.
    pub(crate) ordinal: u64,
    /// The greatest LSN in the zone being filled.
    pub(crate) greatest: Lsn,
    /// A linked zone, ready for the switch.
    pub(crate) standby: Option<Zone>,
    /// Units that its next zone should have, if 1 is not enough.
    pub(crate) units: u32,
    /// What all streams had appended when it got its zone.
    began: u64,
    /// No table has it; it gets no standby zone before a group is appended to it.
    pub(crate) idle: bool,
}

impl StreamTail {
    /// As an opening found it: the end and the place in the chain of its last zone, which is `zone`
    /// if it is open, and its greatest LSN.
    pub(crate) fn resumed(
        zone: Option<Zone>,
        units: u32,
        tail: u64,
        ordinal: u64,
        greatest: Lsn,
    ) -> StreamTail {
        StreamTail { zone, tail, ordinal, greatest, units, ..StreamTail::default() }
    }

    /// Goes on behind so many bytes that an opening has put into its zone.
    pub(crate) fn skip(&mut self, len: u64) {
        self.tail += len;
        debug_assert!(self.zone.is_some_and(|zone| self.tail <= zone.len), "they fit");
    }

    /// Whether its zone has room for so many bytes.
    fn fits(&self, len: u64) -> bool {
        self.zone.is_some_and(|zone| self.tail + len <= zone.len)
    }

    /// Whether its standby zone has.
    pub(super) fn standby_fits(&self, len: u64) -> bool {
        self.standby.is_some_and(|zone| ZONE_HEADER + len <= zone.len)
    }
}

/// Where one part of a group goes.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) zone: u32,
    pub(super) generation: u32,
    pub(super) salt: u64,
    pub(super) offset: u64,
    /// The words of a zone switch that this group has to make durable.
    pub(super) switch: Few<Dirty>,
}

/// More than any zone has: how many it can get is up to the allocator.
const MOST_UNITS: u32 = 1 << 16;

#[derive(Debug)]
pub(super) struct Sequencer {
    /// Whether it gives out no ticket any more.
    pub(super) is_shut: bool,
    pub(super) next: Lsn,
    pub(super) streams: Vec<StreamTail>,
    /// Bytes that all streams have appended.
    appended: u64,
}

impl Sequencer {
    pub(super) fn new(next: Lsn, mut streams: Vec<StreamTail>) -> Sequencer {
        // Room for all there can be, so that a new one is no allocation.
        streams.reserve_exact(STREAM_SLOTS as usize - streams.len());
        Sequencer { is_shut: false, next, streams, appended: 0 }
    }

    /// The first stream that needs a standby zone before the group can pass, and for how many
    /// bytes.
    pub(super) fn lacks_space(&self, group: &Group) -> Option<(u32, u64)> {
        let lacks = |part: &super::group::Part| {
            let s = &self.streams[part.stream as usize];
            !s.fits(part.zone_len()) && !s.standby_fits(part.zone_len())
        };
        let lacking = group.parts.iter().find(|part| lacks(part));
        lacking.map(|part| (part.stream, part.zone_len()))
    }

    /// Whether the group, which lacks no space, would append to what is kept for those that free
    /// space.
    pub(super) fn is_kept_from(&self, group: &Group, zones: &ZonePool) -> bool {
        let zone = |part: &super::group::Part| {
            let s = &self.streams[part.stream as usize];
            if s.fits(part.zone_len()) { s.zone } else { s.standby }
        };
        let mut taken = group.parts.iter().filter_map(zone);
        taken.any(|zone| zones.is_kept_back(zone.number, group.frees))
    }

    /// Takes the ticket and reserves the space of a group that lacks none, in `places`.
    pub(super) fn pass(&mut self, group: &Group, zones: &ZonePool, places: &mut Few<Place>) -> Lsn {
        debug_assert!(!self.is_shut, "a sequencer that is shut gives out no ticket");
        debug_assert_eq!(self.lacks_space(group), None, "space is ready before the ticket");
        if group.frees > Frees::Nothing {
            zones.note_freeing();
        }
        let lsn = self.next;
        self.next += 1;
        for part in &group.parts {
            places.push(self.reserve(part.stream, part.zone_len(), lsn, zones));
        }
        lsn
    }

    fn reserve(&mut self, stream: u32, len: u64, lsn: Lsn, zones: &ZonePool) -> Place {
        let s = &mut self.streams[stream as usize];
        let mut switch = Few::new();
        debug_assert!(
            s.greatest < lsn,
            "space in a stream is reserved in the order of tickets (invariant 1)"
        );
        if !s.fits(len)
            && let Some(next) = s.standby.take()
        {
            match s.zone {
                Some(full) => {
                    switch.extend(zones.switch(full.number, s.tail, s.greatest, next.number));
                }
                None => switch.push(zones.first_use(next.number, lsn)),
            }
            debug_assert!(
                s.zone.is_none_or(|full| full.number != next.number),
                "a stream switches to another zone than the one that it seals (invariant 3)"
            );
            s.units = units_after(s.units, s.tail, self.appended - s.began);
            s.began = self.appended;
            s.zone = Some(next);
            s.tail = ZONE_HEADER;
            s.ordinal += 1;
        }
        let offset = s.tail;
        debug_assert!(offset.is_multiple_of(LINE), "a sub-entry begins with a line");
        s.tail += len;
        s.greatest = lsn;
        self.appended += len;
        match s.zone {
            Some(Zone { number, len }) => {
                debug_assert!(s.tail <= len, "a sub-entry never spans zones (invariant 2)");
                let (generation, salt) = (zones.generation(number), zones.salt(number));
                Place { zone: number, generation, salt, offset, switch }
            }
            None => unreachable!("space is ready before the ticket"),
        }
    }
}

/// How many units a stream's next zone should have, after one in which it appended `own` bytes
/// while all streams together appended `all`. A busy stream gets twice as many, and then switches
/// less often. An idle one gets half as many: its zones would be kept for few records.
fn units_after(units: u32, own: u64, all: u64) -> u32 {
    match units.max(1) {
        units if own * 4 >= all => units.saturating_mul(2).min(MOST_UNITS),
        units if own * 16 < all => (units / 2).max(1),
        units => units,
    }
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
    /// What the commits of the opening before are above, if groups are shipped to a shared store.
    pub(crate) feeds: Option<Lsn>,
}

// The steps of a commit, and of what rests on its order, at which a test may stop a thread.

/// What a thread has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It took its ticket.
    Ticket,
    /// It stored its parts, and flushed them.
    Flushed,
    /// It stored the floor, which its fence takes along.
    FloorStored,
    /// It fenced them.
    Fenced,
    /// It put its records into the memtables.
    Indexed,
    /// It did all but finish its slot.
    Finishing,
    /// As the publisher, it stored the floor, which its run takes along.
    FloorInRun,
    /// As the publisher, it took the second stage, and read up to where its run goes.
    SyncTarget,
    /// As the publisher, it said that its run is durable, and has not told the floor writer yet.
    SaidDurable,
    /// It changed a table that the list of changed tables does not have yet.
    TableChanged,
    /// It did half of what makes a table known: by number, and by name.
    TableHalfKnown,
}

/// Says, as long as it lives, that this thread is in the sequencer, where nothing is allocated.
pub(super) struct InSequencer(());

impl InSequencer {
    pub(super) fn enter() -> InSequencer {
        #[cfg(any(test, feature = "testing"))]
        crate::testing::set_in_sequencer(true);
        InSequencer(())
    }
}

#[cfg(any(test, feature = "testing"))]
impl Drop for InSequencer {
    fn drop(&mut self) {
        crate::testing::set_in_sequencer(false);
    }
}

/// Says that a step was reached. Nothing, but for threads that a test stops there.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn reached(_step: Step) {}

#[cfg(test)]
pub(crate) use stops::reached;
#[cfg(all(test, not(feature = "loom")))]
pub(crate) use stops::stop_at;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_stream_gets_larger_zones_and_an_idle_one_smaller_ones() {
        assert_eq!([0, 1, 2, 64].map(|units| units_after(units, 100, 100)), [2, 2, 4, 128]);
        assert_eq!([1, 2, 8].map(|units| units_after(units, 100, 1000)), [1, 2, 8]);
        assert_eq!([1, 2, 8].map(|units| units_after(units, 100, 2000)), [1, 1, 4]);
        assert_eq!(
            units_after(MOST_UNITS, 100, 100),
            MOST_UNITS,
            "the allocator bounds it further"
        );
    }
}

#[cfg(test)]
mod stops {
    use std::cell::RefCell;

    use super::Step;

    type Stop = (Step, Box<dyn FnOnce()>);

    thread_local! {
        static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
    }

    /// Has this thread call `wait` when it reaches `step` next.
    #[cfg(not(feature = "loom"))]
    pub(crate) fn stop_at(step: Step, wait: impl FnOnce() + 'static) {
        STOP.set(Some((step, Box::new(wait))));
    }

    pub(crate) fn reached(step: Step) {
        let due = STOP.with_borrow_mut(|stop| stop.take_if(|(at, _)| *at == step));
        if let Some((_, wait)) = due {
            wait();
        }
    }
}
