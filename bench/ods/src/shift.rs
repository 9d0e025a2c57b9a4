//! Changes within one node of the one-direction-shift tree.

use terrace::bench::GroundWriter;

use super::node::{Live, SLOTS, Slot, id_at, line_of};
use super::ods::OdsTree;

/// Where the source's tree ends a node: it keeps a slot for the null that ends it.
const USABLE: usize = 13;

/// How a node makes room for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As the source describes it: shifts to the nearest hole on the right, moves a sparse node
    /// together, packs what a split moves and clears where it was.
    OneDirection,
    /// As Terrace's index does: shifts to the nearest hole on either side, by lines; holes are
    /// spread by splits. Those of the index clear what they moved; here they do not.
    Nearest,
}

/// How a slot gets into a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Into a hole that is there.
    Into(usize),
    /// The slots from `at` up to the hole go right by one.
    Right { at: usize, hole: usize },
    /// The slots from the one behind the hole up to `at` go left by one.
    Left { hole: usize, at: usize },
    /// There is no hole that the policy may use, but one elsewhere.
    Compact,
    /// There is none.
    Full,
}

impl Plan {
    /// How many lines it stores to, and how many slots it moves.
    fn cost(self) -> (u64, usize) {
        match self {
            Plan::Right { at, hole } => (line_of(hole) - line_of(at) + 1, hole - at),
            Plan::Left { hole, at } => (line_of(at) - line_of(hole) + 1, at - hole),
            _ => (1, 0),
        }
    }
}

impl Policy {
    /// How a slot gets in before the live slot `next` (or at the end, where that is `SLOTS`).
    pub(crate) fn plan(self, live: Live, next: usize) -> Plan {
        let usable = if self == Policy::OneDirection { USABLE } else { SLOTS };
        let after = (0..next).rev().find(|slot| live.has(*slot)).map_or(0, |slot| slot + 1);
        if after < next.min(usable) {
            return Plan::Into(after);
        }
        let right = (next..usable).find(|slot| !live.has(*slot));
        let right = right.map(|hole| Plan::Right { at: next, hole });
        let left = (0..after).rev().find(|slot| !live.has(*slot));
        let left = left.map(|hole| Plan::Left { hole, at: after - 1 });
        match (self, right) {
            (Policy::OneDirection, Some(right)) => right,
            // Below seven tenths it is cheaper to move together than to split.
            (Policy::OneDirection, None) if live.count() * 10 < usable * 7 => Plan::Compact,
            (Policy::OneDirection, None) => Plan::Full,
            (Policy::Nearest, right) => {
                right.into_iter().chain(left).min_by_key(|plan| plan.cost()).unwrap_or(Plan::Full)
            }
        }
    }
}

impl OdsTree {
    /// Puts `slot` in by `plan`; which slots are live then. The last line is not ordered yet.
    pub(crate) fn put(
        &self,
        writer: &mut GroundWriter<'_>,
        node: u64,
        live: Live,
        plan: Plan,
        slot: Slot,
    ) -> Live {
        let (at, hole) = match plan {
            Plan::Into(at) => (at, at),
            Plan::Right { at, hole } => {
                for from in (at..hole).rev() {
                    let Slot { id, other } = self.slot(node, from);
                    writer.set(node + id_at(from + 1), id);
                    writer.set(node + id_at(from + 1) + 8, other);
                    if line_of(from) != line_of(from + 1) {
                        writer.fence();
                    }
                }
                (at, hole)
            }
            Plan::Left { hole, at } => {
                for to in hole..at {
                    self.place(writer, node, to, self.slot(node, to + 1));
                    if line_of(to) != line_of(to + 1) {
                        writer.fence();
                    }
                }
                (at, hole)
            }
            Plan::Compact | Plan::Full => unreachable!("room was made before"),
        };
        self.place(writer, node, at, slot);
        live.with(hole)
    }

    /// Moves all live slots to the front, and clears what is left behind.
    pub(crate) fn compact(&self, writer: &mut GroundWriter<'_>, node: u64, live: Live) -> Live {
        for (to, from) in live.slots().enumerate() {
            if to != from {
                self.place(writer, node, to, self.slot(node, from));
                if line_of(to) != line_of(to + 1) {
                    writer.fence();
                }
            }
        }
        writer.fence();
        let packed = Live((1 << live.count()) - 1);
        self.clear(writer, node, packed.holes());
        packed
    }

    /// Clears holes, in order before what is stored next.
    pub(crate) fn clear(&self, writer: &mut GroundWriter<'_>, node: u64, holes: Live) {
        for slot in holes.slots().filter(|slot| self.slot(node, *slot).id != 0) {
            writer.set(node + id_at(slot), 0);
        }
        writer.fence();
    }

    /// Fills a slot that is a hole, or whose content lies in the slot behind it too.
    fn place(&self, writer: &mut GroundWriter<'_>, node: u64, at: usize, slot: Slot) {
        let to = node + id_at(at);
        if self.slot(node, at).id != 0 {
            writer.set(to, 0);
        }
        writer.set(to + 8, slot.other);
        writer.set(to, slot.id);
    }
}
