//! What is asked for: a key or a range of keys of one table, shared or exclusively.

use std::fmt;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::os::sync::{Condvar, Mutex};
use crate::read::KeyRange;

/// The number of an owner, which holds locks and gives all of them back together. Never reused.
pub(crate) type OwnerId = u64;

/// A key with the number of its table in front.
pub(super) type Name = SmallVec<[u8; 36]>;

pub(super) const SPACE: usize = size_of::<u64>();

/// Whether others may hold it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With other shared ones.
    Shared,
    /// Alone.
    Exclusive,
}

/// Which keys.
#[derive(Clone, Debug)]
pub(super) enum Span {
    Point(Name),
    Range(KeyRange),
}

/// A lock that is held or asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) owner: OwnerId,
    pub(super) space: u64,
    pub(super) mode: Mode,
    pub(super) span: Span,
}

/// A lock that is held, as its holder speaks of it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The number under which its table's rows are locked.
    pub(crate) space: u64,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
}

/// What a lock is on.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    One(Vec<u8>),
    Range(KeyRange),
}

impl Held {
    pub(super) fn key(name: &Name, mode: Mode) -> Held {
        let (space, key) =
            name.split_first_chunk().expect("invariant: a name begins with a number");
        Held { space: u64::from_be_bytes(*space), mode, keys: Keys::One(key.to_vec()) }
    }
}

/// The name of a key.
pub(super) fn name(space: u64, key: &[u8]) -> Name {
    let mut name = Name::with_capacity(SPACE + key.len());
    name.extend_from_slice(&space.to_be_bytes());
    name.extend_from_slice(key);
    name
}

/// The key in a name of `space`; `None` if it is of another table.
fn key_in(name: &[u8], space: u64) -> Option<&[u8]> {
    name.strip_prefix(&space.to_be_bytes())
}

impl Request {
    /// Whether it and a lock of `owner` on the key `name` exclude each other.
    pub(super) fn conflicts_with_point(&self, name: &Name, owner: OwnerId, mode: Mode) -> bool {
        let together = self.mode == Mode::Shared && mode == Mode::Shared;
        if self.owner == owner || together {
            return false;
        }
        match &self.span {
            Span::Point(own) => own == name,
            Span::Range(range) => contains(range, name, self.space),
        }
    }

    /// Whether this lock on a range makes `other` of the same owner needless.
    pub(super) fn covers(&self, other: &Request) -> bool {
        let same = self.owner == other.owner && self.space == other.space;
        let Span::Range(range) = &self.span else { return false };
        same && self.mode >= other.mode
            && match &other.span {
                Span::Point(name) => contains(range, name, self.space),
                Span::Range(asked) => range.lower == asked.lower && range.upper == asked.upper,
            }
    }

    /// The lock on a range, for its holder.
    pub(super) fn held(&self) -> Option<Held> {
        let Span::Range(range) = &self.span else { return None };
        Some(Held { space: self.space, mode: self.mode, keys: Keys::Range(range.clone()) })
    }

    /// Whether the two exclude each other.
    pub(super) fn conflicts(&self, other: &Request) -> bool {
        match (&self.span, &other.span) {
            (_, Span::Point(name)) => self.conflicts_with_point(name, other.owner, other.mode),
            (Span::Point(name), _) => other.conflicts_with_point(name, self.owner, self.mode),
            (Span::Range(a), Span::Range(b)) => {
                let together = self.mode == Mode::Shared && other.mode == Mode::Shared;
                let apart = self.owner == other.owner || together || self.space != other.space;
                !apart && overlap(a, b)
            }
        }
    }
}

fn contains(range: &KeyRange, name: &[u8], space: u64) -> bool {
    key_in(name, space).is_some_and(|key| range.above_lower(key) && range.below_upper(key))
}

/// Whether a key may lie in both.
fn overlap(a: &KeyRange, b: &KeyRange) -> bool {
    let reaches = |from: &KeyRange, to: &KeyRange| {
        !KeyRange { lower: from.lower.clone(), upper: to.upper.clone() }.is_empty()
    };
    reaches(a, a) && reaches(b, b) && reaches(a, b) && reaches(b, a)
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.span {
            Span::Point(name) => write!(f, "key {}", Shown(&name[SPACE..])),
            Span::Range(range) => {
                let (open, lower) = match &range.lower {
                    Bound::Included(key) => ('[', Shown(key)),
                    Bound::Excluded(key) => ('(', Shown(key)),
                    Bound::Unbounded => ('(', Shown(b"")),
                };
                write!(f, "the keys {open}{lower}, ")?;
                match &range.upper {
                    Bound::Included(key) => write!(f, "{}]", Shown(key)),
                    Bound::Excluded(key) => write!(f, "{})", Shown(key)),
                    Bound::Unbounded => write!(f, "end)"),
                }
            }
        }
    }
}

/// A key for people, cut short when it is long.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 48;
        let cut = &self.0[..self.0.len().min(MOST)];
        let more = if cut.len() < self.0.len() { "…" } else { "" };
        write!(f, "\"{}{more}\"", cut.escape_ascii())
    }
}

/// What became of a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// Chosen to end a deadlock, which is described.
    Deadlock(String),
    Killed,
    /// The database was closed.
    Closed,
    /// The deadline passed; these stood in the way.
    Late(Vec<OwnerId>),
}

/// An owner that waits for a lock.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: Request,
    /// How much is lost when it is chosen to end a deadlock: locks held.
    pub(super) cost: usize,
    /// The table's name, for people.
    pub(super) table: String,
    pub(super) outcome: Mutex<Option<Outcome>>,
    pub(super) woken: Condvar,
}

impl Waiter {
    /// Says what became of it. Only the thread that took it out of the graph calls this (manager
    /// invariant 3).
    pub(super) fn tell(&self, outcome: Outcome) {
        let before = self.outcome.lock().replace(outcome);
        debug_assert!(before.is_none(), "a waiter is told once (manager invariant 3)");
        self.woken.notify_one();
    }
}
