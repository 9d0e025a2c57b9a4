//! Changes within one node: putting a slot in its place by shifting others into the nearest hole,
//! and taking one out where it is. The source shifts to holes on the right alone. Either side, by
//! lines, flushes the fewest.
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

use super::node::{Live, Node, SLOTS, Slot, id_at, line_of};
use super::node_writer::NodeWriter;
use super::nodes::Nodes;

/// How a slot gets into a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Into a hole that is there.
    Into(usize),
    /// The slots from `at` up to the hole go right by one.
    Right { at: usize, hole: usize },
    /// The slots from the one behind the hole up to `at` go left by one.
    Left { hole: usize, at: usize },
}

impl Plan {
    /// How many lines it stores to.
    fn lines(self) -> u64 {
        match self {
            Plan::Into(_) => 1,
            Plan::Right { at, hole } => line_of(hole) - line_of(at) + 1,
            Plan::Left { hole, at } => line_of(at) - line_of(hole) + 1,
        }
    }

    fn moves(self) -> usize {
        match self {
            Plan::Into(_) => 0,
            Plan::Right { at, hole } => hole - at,
            Plan::Left { hole, at } => at - hole,
        }
    }
}

impl Live {
    /// How a slot gets in before the live slot `next` (or at the end, where that is `SLOTS`): to
    /// the nearest hole on either side, by lines. `None` where there is no hole.
    pub(crate) fn plan(self, next: usize) -> Option<Plan> {
        let after = (0..next).rev().find(|slot| self.has(*slot)).map_or(0, |slot| slot + 1);
        if after < next {
            return Some(Plan::Into(after));
        }
        let right = (next..SLOTS).find(|slot| !self.has(*slot));
        let right = right.map(|hole| Plan::Right { at: next, hole });
        let left = (0..after).rev().find(|slot| !self.has(*slot));
        let left = left.map(|hole| Plan::Left { hole, at: after - 1 });
        right.into_iter().chain(left).min_by_key(|plan| (plan.lines(), plan.moves()))
    }
}

impl Nodes {
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
                        writer.fence();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
            Plan::Left { hole, at } => {
                for to in hole..at {
                    place(writer, node, to, node.slot(to + 1));
                    if line_of(to) != line_of(to + 1) {
                        writer.fence();
                    }
                }
                place(writer, node, at, slot);
                live.with(hole)
            }
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
