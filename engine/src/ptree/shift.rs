//! Changes within one node: putting a slot in its place by shifting others into the nearest hole,
//! taking one out where it is, and moving all together.
//!
//! Why a cut anywhere is harmless (invariant 2 of `node.rs`; stores to a line persist in order,
//! and a line is flushed and fenced before the next one is stored to):
//!
//! * *Shifting right*, slot i to i + 1, from the hole down: the identity is stored first, so that
//!   slot i + 1 repeats slot i and is a hole; then the other word. What was in slot i + 1 lies in
//!   slot i + 2 already, which comes to life by the same store.
//! * *Shifting left*, slot i + 1 to i, from the hole up: slot i is a hole. It is emptied, its other
//!   word is stored, then its identity. With that it comes to life, and slot i + 1 becomes a hole
//!   that repeats it.
//! * *Placing* is the last step of both: the slot is a hole or has its double next to it. It is
//!   emptied, gets the other word, then the identity.
//! * *Taking out* stores a zero as the identity.

use super::Policy;
use super::keys::Keys;
use super::node::{Live, Node, SLOTS, Slot, id_at, line_of};
use super::node_writer::NodeWriter;
use super::nodes::Nodes;

/// Where the source's tree ends a node: it keeps a slot for the null that ends it.
const USABLE: usize = 13;

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
    /// How many lines it stores to.
    fn lines(self) -> u64 {
        match self {
            Plan::Into(_) => 1,
            Plan::Right { at, hole } => line_of(hole) - line_of(at) + 1,
            Plan::Left { hole, at } => line_of(at) - line_of(hole) + 1,
            Plan::Compact | Plan::Full => 0,
        }
    }

    fn moves(self) -> usize {
        match self {
            Plan::Right { at, hole } => hole - at,
            Plan::Left { hole, at } => at - hole,
            _ => 0,
        }
    }
}

impl Policy {
    /// How many slots of a node are used.
    pub(crate) fn usable(self) -> usize {
        match self {
            Policy::OneDirection => USABLE,
            Policy::Nearest => SLOTS,
        }
    }

    /// How a slot gets in before the live slot `next` (or at the end, where that is `SLOTS`).
    pub(crate) fn plan(self, live: Live, next: usize) -> Plan {
        let after = (0..next).rev().find(|slot| live.has(*slot)).map_or(0, |slot| slot + 1);
        let usable = self.usable();
        if after < next.min(usable) {
            return Plan::Into(after);
        }
        let right = (next..usable).find(|slot| !live.has(*slot));
        let right = right.map(|hole| Plan::Right { at: next, hole });
        let left = (0..after).rev().find(|slot| !live.has(*slot));
        let left = left.map(|hole| Plan::Left { hole, at: after - 1 });
        match (self, right, left) {
            (Policy::OneDirection, Some(right), _) => right,
            // Below seven tenths it is cheaper to move together than to split.
            (Policy::OneDirection, None, _) if live.count() * 10 < usable * 7 => Plan::Compact,
            (Policy::OneDirection, None, _) => Plan::Full,
            (Policy::Nearest, right, left) => right
                .into_iter()
                .chain(left)
                .min_by_key(|plan| (plan.lines(), plan.moves()))
                .unwrap_or(Plan::Full),
        }
    }
}

impl<K: Keys> Nodes<K> {
    /// Puts `slot` in by `plan`; which slots are live then. The last line is not ordered yet.
    pub(crate) fn put(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        live: Live,
        plan: Plan,
        slot: Slot,
    ) -> Live {
        match plan {
            Plan::Into(at) => {
                place(writer, node, at, slot);
                live.with(at)
            }
            Plan::Right { at, hole } => {
                for from in (at..hole).rev() {
                    let Slot { id, other } = node.slot(from);
                    writer.set(node.at + id_at(from + 1), id);
                    writer.set(node.at + id_at(from + 1) + 8, other);
                    if line_of(from) != line_of(from + 1) {
                        writer.order();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
            Plan::Left { hole, at } => {
                for to in hole..at {
                    place(writer, node, to, node.slot(to + 1));
                    if line_of(to) != line_of(to + 1) {
                        writer.order();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
            Plan::Compact | Plan::Full => unreachable!("room was made before"),
        }
    }

    /// Takes a live slot out; which are live then. Not ordered yet.
    pub(crate) fn take(
        &self,
        writer: &mut NodeWriter<'_>,
        node: Node<'_>,
        live: Live,
        slot: usize,
    ) -> Live {
        debug_assert!(live.has(slot), "slot {slot} of {live:?} is live");
        writer.set(node.at + id_at(slot), 0);
        live.without(slot)
    }

    /// Moves all live slots to the front. What stays behind in the slots they came from is not
    /// greater than what is before it: a hole, and cleared at the end.
    pub(crate) fn compact(&self, writer: &mut NodeWriter<'_>, node: Node<'_>, live: Live) -> Live {
        let mut packed = Live::default();
        for (to, from) in live.slots().enumerate() {
            if to != from {
                place(writer, node, to, node.slot(from));
                if line_of(to) != line_of(to + 1) {
                    writer.order();
                }
            }
            packed = packed.with(to);
        }
        writer.order();
        for slot in packed.count()..SLOTS {
            if node.slot(slot).id != 0 {
                writer.set(node.at + id_at(slot), 0);
            }
        }
        writer.order();
        packed
    }
}

/// Fills a slot that is a hole, or whose content lies in the slot behind it too.
fn place(writer: &mut NodeWriter<'_>, node: Node<'_>, at: usize, slot: Slot) {
    let to = node.at + id_at(at);
    if node.slot(at).id != 0 {
        writer.set(to, 0);
    }
    writer.set(to + 8, slot.other);
    writer.set(to, slot.id);
}
