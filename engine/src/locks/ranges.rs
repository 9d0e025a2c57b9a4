//! Locks on ranges: a line of names, cut at boundaries, and who holds each part. A name finds its
//! part in a logarithm of their number.
//!
//! Thread safety: none of its own; the manager holds it in a mutex.
//!
//! Invariants:
//!
//! 1. The holders at a boundary hold every name from there to the next boundary. Before the first
//!    boundary, and from the last one on, no owner holds a name.
//! 2. Parts next to each other have different holders. Those of a part are in order, each once.
//! 3. No two holders of a part exclude each other.
//! 4. `bytes` is what the boundaries take, with their names and holders.

use std::collections::BTreeMap;
use std::ops::Bound;

use smallvec::SmallVec;

use super::request::{Blockers, Holders, add};
use super::request::{Mode, OwnerId, Request, Span};
use crate::mvcc::KeyInterval;

/// The locks on ranges.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    at: BTreeMap<Vec<u8>, Holders>,
    bytes: usize,
}

#[cfg(test)]
thread_local! {
    /// Parts of ranges, and edges of the graph of waits, that this thread has visited.
    pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn count_visit() {
    #[cfg(test)]
    VISITED.set(VISITED.get() + 1);
}

/// Names next to each other that the same owners hold.
struct Part<'a> {
    start: &'a [u8],
    end: Option<&'a [u8]>,
    holders: &'a [(OwnerId, Mode)],
}

impl Part<'_> {
    fn mode_of(&self, owner: OwnerId) -> Option<Mode> {
        self.holders.iter().find(|(holder, _)| *holder == owner).map(|(_, mode)| *mode)
    }
}

impl RangeLocks {
    /// Bytes of memory that a boundary takes with a name of `len` bytes and one holder. Tables and
    /// lists are a third empty.
    pub(super) const fn bytes_of_boundary(len: usize) -> usize {
        size_of::<(Vec<u8>, Holders)>() * 3 / 2 + len
    }

    /// Bytes of memory that all boundaries take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no range is held.
    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The owners of ranges with a name.
    pub(super) fn holders(&self, name: &[u8]) -> &[(OwnerId, Mode)] {
        let up_to = (Bound::Unbounded, Bound::Included(name));
        self.at.range::<[u8], _>(up_to).next_back().map_or(&[][..], |(_, holders)| holders)
    }

    /// The parts of what is asked for, in order; of one name, that alone.
    fn parts<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = Part<'a>> {
        let (start, end) = match span {
            Span::Point(name) => (name.as_slice(), Some(name.as_slice())),
            Span::Range(names) => (names.start.as_slice(), names.end.as_deref()),
        };
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let within =
            (end != Some(start)).then(|| self.at.range::<[u8], _>((Bound::Excluded(start), upper)));
        let within =
            within.into_iter().flatten().map(|(at, holders)| (at.as_slice(), &holders[..]));
        let mut parts = std::iter::once((start, self.holders(start))).chain(within).peekable();
        std::iter::from_fn(move || {
            let (start, holders) = parts.next()?;
            count_visit();
            Some(Part { start, end: parts.peek().map(|(next, _)| *next).or(end), holders })
        })
    }

    /// What of a request its owner does not have yet, up to its first and last name of that kind.
    pub(super) fn missing(&self, request: &Request) -> Option<KeyInterval> {
        let mut missing: Option<KeyInterval> = None;
        let has = |part: &Part<'_>| part.mode_of(request.owner).is_some_and(|m| m >= request.mode);
        for part in self.parts(&request.span).filter(|part| !has(part)) {
            let end = part.end.map(<[u8]>::to_vec);
            let start = missing.map_or_else(|| part.start.to_vec(), |missing| missing.start);
            missing = Some(KeyInterval { start, end });
        }
        missing
    }

    /// The owners of ranges that exclude `request`.
    pub(super) fn holders_against(&self, request: &Request, into: &mut Blockers) {
        for part in self.parts(&request.span) {
            for &(owner, mode) in part.holders {
                if request.excludes(owner, mode) {
                    add(into, owner);
                }
            }
        }
    }

    /// Gives names to an owner; by how many bytes the boundaries have grown.
    pub(super) fn grant(&mut self, names: &KeyInterval, owner: OwnerId, mode: Mode) -> isize {
        self.change(names, |holders| {
            give(holders, owner, mode);
            debug_assert!(
                holders.len() == 1 || holders.iter().all(|(_, mode)| *mode == Mode::Shared),
                "what is granted excludes nothing that is held (invariant 3)"
            );
        })
    }

    /// By how many bytes the boundaries would grow if a range were given to its owner.
    pub(super) fn growth(&self, request: &Request) -> isize {
        let Span::Range(names) = &request.span else { return 0 };
        let in_front = (Bound::Unbounded, Bound::Excluded(names.start.as_slice()));
        let in_front = self.at.range::<[u8], _>(in_front).next_back();
        let mut before = in_front.map_or_else(Holders::new, |(_, holders)| holders.clone());
        let mut bytes = 0;
        for part in self.parts(&request.span) {
            let mut holders = Holders::from_slice(part.holders);
            give(&mut holders, request.owner, request.mode);
            bytes += if holders == before { 0 } else { bytes_at(part.start, &holders) };
            before = holders;
        }
        let end = names.end.as_deref();
        let behind = end.map(|end| (end, self.holders(end)));
        bytes += behind
            .filter(|(_, holders)| *holders != before.as_slice())
            .map_or(0, |(end, holders)| bytes_at(end, holders));
        bytes.cast_signed() - self.bytes_from(&names.start, end).cast_signed()
    }

    /// Takes names back from an owner.
    pub(super) fn release(&mut self, names: &KeyInterval, owner: OwnerId) {
        self.change(names, |holders| holders.retain(|(holder, _)| *holder != owner));
    }

    fn change(&mut self, names: &KeyInterval, f: impl Fn(&mut Holders)) -> isize {
        let end = names.end.as_deref();
        let before = self.bytes_from(&names.start, end);
        self.cut(&names.start);
        end.into_iter().for_each(|end| self.cut(end));
        let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
        let inside = (Bound::Included(names.start.as_slice()), upper);
        self.at.range_mut::<[u8], _>(inside).for_each(|(_, holders)| {
            count_visit();
            f(holders);
        });
        self.join(&names.start, end);
        let grown = self.bytes_from(&names.start, end).cast_signed() - before.cast_signed();
        self.bytes = self.bytes.saturating_add_signed(grown);
        debug_assert_eq!(self.at.is_empty(), self.bytes == 0, "all is counted (invariant 4)");
        grown
    }

    /// What the boundaries from one name to another take, both included.
    fn bytes_from(&self, start: &[u8], end: Option<&[u8]>) -> usize {
        let upper = end.map_or(Bound::Unbounded, Bound::Included);
        let boundaries = self.at.range::<[u8], _>((Bound::Included(start), upper));
        boundaries.map(|(name, holders)| bytes_at(name, holders)).sum()
    }

    /// Makes a boundary.
    fn cut(&mut self, name: &[u8]) {
        if !self.at.contains_key(name) {
            let holders = SmallVec::from_slice(self.holders(name));
            self.at.insert(name.to_vec(), holders);
        }
    }

    /// Removes boundaries between parts with the same holders (invariant 2).
    fn join(&mut self, start: &[u8], end: Option<&[u8]>) {
        let mut in_front = self.at.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(start)));
        let mut before = in_front.next_back().map_or(&[][..], |(_, holders)| holders.as_slice());
        let mut needless: SmallVec<[Vec<u8>; 2]> = SmallVec::new();
        let upper = end.map_or(Bound::Unbounded, Bound::Included);
        for (name, holders) in self.at.range::<[u8], _>((Bound::Included(start), upper)) {
            count_visit();
            if holders.as_slice() == before {
                needless.push(name.clone());
            }
            before = holders.as_slice();
        }
        for name in needless {
            self.at.remove(&name);
        }
    }

    /// How many ranges are held, each with all that it was joined with.
    pub(super) fn held(&self) -> usize {
        let mut before: &[(OwnerId, Mode)] = &[];
        let mut count = 0;
        for holders in self.at.values() {
            let is_new = |(owner, _): &&(OwnerId, Mode)| before.iter().all(|(of, _)| of != owner);
            count += holders.iter().filter(is_new).count();
            before = holders;
        }
        count
    }

    /// How an owner holds names: those next to each other with one mode together.
    pub(super) fn held_by(&self, owner: OwnerId, names: KeyInterval) -> Vec<(KeyInterval, Mode)> {
        let mut held: Vec<(KeyInterval, Mode)> = Vec::new();
        for part in self.parts(&Span::Range(names)) {
            let Some(mode) = part.mode_of(owner) else { continue };
            let end = part.end.map(<[u8]>::to_vec);
            match held
                .last_mut()
                .filter(|(last, of)| *of == mode && last.end.as_deref() == Some(part.start))
            {
                Some((last, _)) => last.end = end,
                None => held.push((KeyInterval { start: part.start.to_vec(), end }, mode)),
            }
        }
        held
    }
}

/// What a boundary takes, with its name and holders.
fn bytes_at(name: &[u8], holders: &[(OwnerId, Mode)]) -> usize {
    let others = holders.len().saturating_sub(1);
    RangeLocks::bytes_of_boundary(name.len()) + others * 2 * size_of::<(OwnerId, Mode)>()
}

/// Adds an owner, in this mode at least.
fn give(holders: &mut Holders, owner: OwnerId, mode: Mode) {
    match holders.binary_search_by_key(&owner, |(holder, _)| *holder) {
        Ok(at) => holders[at].1 = mode.max(holders[at].1),
        Err(at) => holders.insert(at, (owner, mode)),
    }
}
