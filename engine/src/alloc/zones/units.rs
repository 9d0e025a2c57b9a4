//! Units that the pages of row tables take. No entry of the index and no header speaks of them.
//! Edits of the journal name what lies in them. An opening takes the units of those pages out of
//! the free ones ([`PagePool`](crate::alloc::PagePool)).

use super::ZonePool;
use crate::os::sync::atomic::Ordering;

impl ZonePool {
    /// Takes free units for pages, in one piece and never out of the reserve: `wanted`, a power of
    /// two, or the next smaller piece that is there, of `least` units at least. The first unit and
    /// how many they are; `None` when there is no such piece.
    pub(crate) fn take_units(&self, wanted: u32, least: u32) -> Option<(u32, u32)> {
        let mut state = self.reclaim(wanted);
        let free = state.free.units() + state.lent;
        let sizes = std::iter::successors(Some(wanted), |units| Some(units / 2));
        for units in sizes.take_while(|units| *units >= least && *units > 0) {
            if self.reserve.allows(free, units, false)
                && let Some(unit) = state.free.take(units)
            {
                return Some((unit, units));
            }
        }
        None
    }

    /// Takes one unit out of the free ones, at an opening: pages that the journal names lie in it.
    /// Whether it was free.
    pub(crate) fn claim_unit(&self, unit: u32) -> bool {
        self.state.lock().free.take_at(unit)
    }

    /// Takes units back that have no page in use. What lies in them means nothing from here on.
    pub(crate) fn give_units(&self, unit: u32, units: u32) {
        let mut state = self.state.lock();
        state.free.give_each(unit, unit + units);
        self.released.fetch_add(u64::from(units), Ordering::Relaxed);
    }
}
