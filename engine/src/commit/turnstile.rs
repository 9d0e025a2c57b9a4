//! The turnstile: tickets, and the space that goes with them, in one order.
//!
//! Thread safety: behind the committer's one mutex. Nothing in here allocates memory of any size,
//! faults, waits or does I/O; what it needs was made ready before.
//!
//! Invariants:
//!
//! 1. Tickets are dense, and space in every stream is reserved in ticket order.
//! 2. A sub-entry never spans zones.
//! 3. A switch seals the zone it leaves.

use super::group::{Few, Group};
use crate::alloc::{ZONE_HEADER, ZonePool};
use crate::pm::{Dirty, STREAM_SLOTS};
use crate::record::Lsn;

/// Where a stream's next sub-entry goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamTail {
    /// The zone being filled; none at first, and after an opening that found it sealed.
    pub(crate) zone: Option<u32>,
    /// Offset in it.
    pub(crate) tail: u64,
    /// The greatest ordinal in the chain.
    pub(crate) ordinal: u64,
    /// The greatest LSN in the zone being filled.
    pub(crate) greatest: Lsn,
    /// A linked zone, ready for the switch.
    pub(crate) spare: Option<u32>,
    /// No table has it; it gets no spare zone before somebody appends to it.
    pub(crate) idle: bool,
}

/// Where one part of a group goes.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) zone: u32,
    pub(super) generation: u32,
    pub(super) offset: u64,
    /// The words of a zone switch that this group has to make durable.
    pub(super) switch: Few<Dirty>,
}

#[derive(Debug)]
pub(super) struct Turnstile {
    pub(super) next: Lsn,
    pub(super) streams: Vec<StreamTail>,
    zone_size: u64,
}

impl Turnstile {
    pub(super) fn new(next: Lsn, mut streams: Vec<StreamTail>, zone_size: u64) -> Turnstile {
        // Room for all there can be, so that a new one is no allocation.
        streams.reserve_exact(STREAM_SLOTS as usize - streams.len());
        Turnstile { next, streams, zone_size }
    }

    /// The first stream that needs a spare zone before the group can pass.
    pub(super) fn lacks_space(&self, group: &Group) -> Option<u32> {
        let lacks = |part: &super::group::Part| {
            let s = &self.streams[part.stream as usize];
            !self.fits(s, part.zone_len()) && s.spare.is_none()
        };
        group.parts.iter().find(|part| lacks(part)).map(|part| part.stream)
    }

    fn fits(&self, stream: &StreamTail, len: u64) -> bool {
        stream.zone.is_some() && stream.tail + len <= self.zone_size
    }

    /// Takes the ticket and reserves the space of a group that lacks none, in `places`.
    pub(super) fn pass(&mut self, group: &Group, zones: &ZonePool, places: &mut Few<Place>) -> Lsn {
        debug_assert_eq!(self.lacks_space(group), None, "space is ready before the ticket");
        let lsn = self.next;
        self.next += 1;
        let parts = group.parts.iter();
        places.extend(parts.map(|part| self.reserve(part.stream, part.zone_len(), lsn, zones)));
        lsn
    }

    fn reserve(&mut self, stream: u32, len: u64, lsn: Lsn, zones: &ZonePool) -> Place {
        let fits = self.fits(&self.streams[stream as usize], len);
        let s = &mut self.streams[stream as usize];
        let mut switch = Few::new();
        if !fits && let Some(next) = s.spare.take() {
            match s.zone {
                Some(full) => switch.extend(zones.switch(full, s.tail, s.greatest, next)),
                None => switch.push(zones.first_use(next, lsn)),
            }
            s.zone = Some(next);
            s.tail = ZONE_HEADER;
            s.ordinal += 1;
        }
        let offset = s.tail;
        s.tail += len;
        s.greatest = lsn;
        debug_assert!(s.tail <= self.zone_size, "a sub-entry never spans zones (invariant 2)");
        match s.zone {
            Some(zone) => Place { zone, generation: zones.generation(zone), offset, switch },
            None => unreachable!("space is ready before the ticket"),
        }
    }
}
