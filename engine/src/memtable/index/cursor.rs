//! Cursors: a version, and the path to its leaf.
//!
//! While nothing changes, a step is the next entry of the leaf, and at its end the next leaf from
//! the path. Every node on the path is checked against the version it was passed at; if one has
//! changed, the cursor looks its version up again. So a step always goes to the version that is
//! the nearest at some moment within the step:
//!
//! - Within a leaf, the check shows both entries as neighbours at one moment.
//! - From leaf to leaf, the cursor checks that the first has ended, then the path up to the common
//!   ancestor. Its versions were the same all the while. So nothing lies between the leaf and what
//!   is below the ancestor's next child. At the moment at which the version of the leaf there was
//!   read, all of its path was as passed: it begins no sooner, and its first entry is the next.
//!
//! Thread safety: a cursor belongs to one thread; it stays usable while others change the index.

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use super::inner::{Inner, Node};
use super::leaf::Leaf;
use super::lock::{Optimistic, Restart, Version};
use super::{INNER_LEN, Index, LEAF_LEN};
use super::{Records, Sought};
use crate::base::record::{LSN_MAX, Lsn};
use crate::os::sync::optimistic::Patience;

/// How many records ahead are hinted at: enough for memory to keep up with a scan.
const AHEAD: usize = 8;

/// A position in an [`Index`]. It stays usable while others change the index: a step goes to the
/// nearest version that is there then.
pub(crate) struct IndexCursor<'a, R, const L: usize = LEAF_LEN, const I: usize = INNER_LEN> {
    index: &'a Index<R, L, I>,
    /// Sequence and offset of the version it is on.
    version: Option<(Lsn, u64)>,
    path: Path<'a, L, I>,
    /// Keeps the nodes of the path, and records that are removed meanwhile. Last, so that it is
    /// dropped last.
    guard: Guard,
}

struct Path<'a, const L: usize, const I: usize> {
    steps: SmallVec<[Step<'a, L, I>; 8]>,
    leaf: Option<(&'a Leaf<L>, Version)>,
    /// The entry in the leaf.
    at: usize,
}

#[derive(Clone, Copy)]
struct Step<'a, const L: usize, const I: usize> {
    inner: &'a Inner<L, I>,
    version: Version,
    at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

use Direction::{Back, Forward};

impl<'a, R: Records, const L: usize, const I: usize> IndexCursor<'a, R, L, I> {
    pub(super) fn new(index: &'a Index<R, L, I>) -> IndexCursor<'a, R, L, I> {
        let path = Path { steps: SmallVec::new(), leaf: None, at: 0 };
        IndexCursor { index, version: None, path, guard: crossbeam_epoch::pin() }
    }

    /// To the first version at or after (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: Lsn) {
        self.persist(|cursor| {
            cursor.locate(Sought { key, seq })?;
            cursor.find_version(Forward)
        });
    }

    /// To the last version of a key smaller than `key`; of all keys without one.
    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) {
        self.persist(|cursor| {
            match key {
                Some(key) => cursor.locate(Sought { key, seq: LSN_MAX })?,
                None => cursor.locate_end()?,
            }
            cursor.find_version(Back)
        });
    }

    /// To the following version.
    pub(crate) fn next(&mut self) {
        let Some((seq, at)) = self.version else { return };
        self.path.at += 1;
        if self.find_version(Forward).is_ok() {
            return;
        }
        let index = self.index;
        let sought = Sought { key: index.records.locate(at).0, seq };
        self.persist(|cursor| {
            cursor.locate(sought)?;
            cursor.find_version(Forward)?;
            let Some((_, at)) = cursor.version else { return Ok(()) };
            if sought.order_of(index.records.locate(at)).is_gt() {
                return Ok(());
            }
            // The version itself is still there.
            cursor.path.at += 1;
            cursor.find_version(Forward)
        });
    }

    /// To the preceding version.
    pub(crate) fn prev(&mut self) {
        let Some((seq, at)) = self.version else { return };
        if self.find_version(Back).is_ok() {
            return;
        }
        let index = self.index;
        let sought = Sought { key: index.records.locate(at).0, seq };
        self.persist(|cursor| {
            cursor.locate(sought)?;
            cursor.find_version(Back)
        });
    }

    /// The version under the cursor: (sequence, offset).
    pub(crate) fn version(&self) -> Option<(Lsn, u64)> {
        self.version
    }

    fn persist(&mut self, mut attempt: impl FnMut(&mut Self) -> Optimistic<()>) {
        let mut patience = Patience::default();
        while attempt(self).is_err() {
            patience.wait();
        }
    }

    /// The guard, for as long as the nodes on the path need it.
    fn guard(&self) -> &'a Guard {
        // SAFETY: the nodes that the path refers to live as long as the guard, which is dropped
        // after the path; nothing of the path leaves the cursor. The reference itself is a token
        // that no code follows after the call it is passed to.
        unsafe { &*std::ptr::from_ref(&self.guard) }
    }

    /// The path to where `sought` belongs.
    fn locate(&mut self, sought: Sought<'_>) -> Optimistic<()> {
        let (index, guard) = (self.index, self.guard());
        let Path { steps, leaf, at } = &mut self.path;
        steps.clear();
        let (found, version) = index.descend(sought, guard, |inner, version, at| {
            steps.push(Step { inner, version, at });
        })?;
        *at = found.search(sought, version, &*index.records)?;
        *leaf = Some((found, version));
        self.look_ahead(Forward);
        Ok(())
    }

    /// The path to behind the last entry of all.
    fn locate_end(&mut self) -> Optimistic<()> {
        let inner = &*self.index.root;
        let version = inner.lock.read()?;
        self.path.steps.clear();
        self.descend_to_edge(inner, version, Back)
    }

    /// Goes to the nearest version from where the path leads: the one there if forwards, the one
    /// before if back.
    #[inline(always)]
    fn find_version(&mut self, direction: Direction) -> Optimistic<()> {
        loop {
            let Some((leaf, version)) = self.path.leaf else { return Err(Restart) };
            let at = match direction {
                Forward => Some(self.path.at),
                Back => self.path.at.checked_sub(1),
            };
            let offset = match at {
                Some(at) => leaf.offset(at, version)?,
                None => {
                    leaf.lock.check(version)?;
                    None
                }
            };
            if let (Some(at), Some(offset)) = (at, offset) {
                let records = &*self.index.records;
                let ahead = match direction {
                    Forward => Some(at + AHEAD),
                    Back => at.checked_sub(AHEAD),
                };
                ahead.into_iter().for_each(|at| leaf.prefetch_record(at, records));
                self.path.at = at;
                self.version = Some((records.locate(offset).1, offset));
                return Ok(());
            }
            if !self.turn_leaf(direction)? {
                self.version = None;
                return Ok(());
            }
        }
    }

    /// To the edge of the neighbouring leaf; `false` if there is none.
    fn turn_leaf(&mut self, direction: Direction) -> Optimistic<bool> {
        while let Some(step) = self.path.steps.last_mut() {
            let len = step.inner.len();
            step.inner.lock.check(step.version)?;
            let next = match direction {
                Forward => (step.at < len).then(|| step.at + 1),
                Back => step.at.checked_sub(1),
            };
            if let Some(next) = next {
                step.at = next;
                let Step { inner, version, at } = *step;
                self.enter(inner, version, at, direction)?;
                return Ok(true);
            }
            self.path.steps.pop();
        }
        // An empty path is built again before the next step.
        self.path.leaf = None;
        Ok(false)
    }

    /// Down from child `at` of `inner` to the leaf at the near edge.
    fn enter(
        &mut self,
        inner: &'a Inner<L, I>,
        version: Version,
        at: usize,
        direction: Direction,
    ) -> Optimistic<()> {
        match inner.child(at, version, self.guard())? {
            Node::Inner(below) => {
                let below_version = below.lock.read()?;
                inner.lock.check(version)?;
                self.descend_to_edge(below, below_version, direction)
            }
            Node::Leaf(leaf) => {
                let leaf_version = leaf.lock.read()?;
                // The whole path, not `inner` alone: had a neighbour gone since an ancestor was
                // checked, the leaf could reach past where the cursor comes from.
                for step in &self.path.steps {
                    step.inner.lock.check(step.version)?;
                }
                self.path.at = match direction {
                    Forward => 0,
                    Back => leaf.len(),
                };
                leaf.lock.check(leaf_version)?;
                self.path.leaf = Some((leaf, leaf_version));
                self.look_ahead(direction);
                Ok(())
            }
        }
    }

    fn descend_to_edge(
        &mut self,
        inner: &'a Inner<L, I>,
        version: Version,
        direction: Direction,
    ) -> Optimistic<()> {
        let at = match direction {
            Forward => 0,
            Back => inner.len(),
        };
        inner.lock.check(version)?;
        self.path.steps.push(Step { inner, version, at });
        self.enter(inner, version, at, direction)
    }

    /// Hints at the first records of a leaf just reached, and at the leaf that follows.
    fn look_ahead(&self, direction: Direction) {
        let Some((leaf, _)) = self.path.leaf else { return };
        let records = &*self.index.records;
        let at = self.path.at;
        let near = match direction {
            Forward => at..at + AHEAD,
            Back => at.saturating_sub(AHEAD)..at,
        };
        near.for_each(|at| leaf.prefetch_record(at, records));
        let Some(step) = self.path.steps.last() else { return };
        let next = match direction {
            Forward => Some(step.at + 1),
            Back => step.at.checked_sub(1),
        };
        next.into_iter().for_each(|at| step.inner.prefetch_child(at));
    }
}
