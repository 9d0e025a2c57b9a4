//! What is asked for: a key or a range of keys of one table, shared or exclusively.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};

use crate::mvcc::KeyInterval;
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

/// Which keys, by their names.
#[derive(Clone, Debug)]
pub(super) enum Span {
    Point(Name),
    /// Names of one table; not empty.
    Range(KeyInterval),
}

/// A lock that is held or asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) owner: OwnerId,
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
    pub(super) fn key(name: &[u8], mode: Mode) -> Held {
        let (space, key) = parts(name);
        Held { space, mode, keys: Keys::One(key.to_vec()) }
    }

    pub(super) fn range(names: &KeyInterval, mode: Mode) -> Held {
        Held { space: parts(&names.start).0, mode, keys: Keys::Range(keys_of(names).into()) }
    }
}

/// The name of a key.
pub(super) fn name(space: u64, key: &[u8]) -> Name {
    let mut name = Name::with_capacity(SPACE + key.len());
    name.extend_from_slice(&(space << 1).to_be_bytes());
    name.extend_from_slice(key);
    name
}

/// The names of the keys of an interval.
pub(super) fn names(space: u64, keys: &KeyInterval) -> KeyInterval {
    let start = name(space, &keys.start).to_vec();
    let end = match &keys.end {
        Some(end) => name(space, end).to_vec(),
        // Behind all keys of the table, and before the next table: ranges of two never touch.
        None => (space << 1 | 1).to_be_bytes().to_vec(),
    };
    KeyInterval { start, end: Some(end) }
}

/// The keys of names, which are of one table.
pub(super) fn keys_of(names: &KeyInterval) -> KeyInterval {
    let (space, start) = parts(&names.start);
    let behind = (space << 1 | 1).to_be_bytes();
    let end = names.end.as_deref().filter(|end| **end != behind).map(parts);
    debug_assert!(end.is_none_or(|(of, _)| of == space), "a range is of one table");
    KeyInterval { start: start.to_vec(), end: end.map(|(_, end)| end.to_vec()) }
}

/// The table and the key of a name.
fn parts(name: &[u8]) -> (u64, &[u8]) {
    let (space, key) = name.split_first_chunk().expect("invariant: a name begins with a number");
    (u64::from_be_bytes(*space) >> 1, key)
}

impl Request {
    /// Whether a lock of `owner` on the same keys would exclude it.
    pub(super) fn excludes(&self, owner: OwnerId, mode: Mode) -> bool {
        self.owner != owner && (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
    }

    /// Whether the two exclude each other.
    fn conflicts(&self, other: &Request) -> bool {
        let meet = || match (&self.span, &other.span) {
            (Span::Point(a), Span::Point(b)) => a == b,
            (Span::Range(names), Span::Point(name)) | (Span::Point(name), Span::Range(names)) => {
                names.contains(name)
            }
            (Span::Range(a), Span::Range(b)) => a.overlaps(b),
        };
        self.excludes(other.owner, other.mode) && meet()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.span {
            Span::Point(name) => write!(f, "key {}", Shown(&name[SPACE..])),
            Span::Range(names) => {
                let keys = keys_of(names);
                write!(f, "the keys [{}, ", Shown(&keys.start))?;
                match (keys.last_key(), &keys.end) {
                    (None, _) => write!(f, "end)"),
                    (Some(last), Some(end)) if last.len() == end.len() => {
                        write!(f, "{})", Shown(end))
                    }
                    (Some(last), _) => write!(f, "{}]", Shown(last)),
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
    /// The boundaries of ranges have grown by so many bytes.
    Granted {
        grown: isize,
    },
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
    /// How much is lost when it is chosen to end a deadlock: the owner's work.
    pub(super) cost: u64,
    /// When its call came: tries of one call have one place.
    pub(super) since: Instant,
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

// One part of the lock table: the locks on its keys, and the waiters.
//
// Thread safety: none of its own; the manager holds each in a mutex.
//
// Invariants:
//
// 1. A key has its locks in the one shard of its name.
// 2. No two locks held in a shard exclude each other.
// 3. A waiter for a key stands in the shard of its name, one for a range in every shard, in the
//    order of arrival.

/// Owners that block a request, each once.
pub(super) type Blockers = SmallVec<[OwnerId; 4]>;

/// Who holds something, and how.
pub(super) type Holders = SmallVec<[(OwnerId, Mode); 1]>;

/// Adds an owner that is not there yet.
pub(super) fn add(blockers: &mut Blockers, owner: OwnerId) {
    if !blockers.contains(&owner) {
        blockers.push(owner);
    }
}

/// One part of the lock table.
#[derive(Debug, Default)]
pub(super) struct Shard {
    points: BTreeMap<Name, Holders>,
    waiting: Vec<Arc<Waiter>>,
}

impl Shard {
    /// Bytes that a key takes here, beside what its name has elsewhere.
    pub(super) const POINT: usize = size_of::<(Name, Holders)>() + 1;

    /// The owners of locks on keys that exclude `request`.
    pub(super) fn holders_against(&self, request: &Request, into: &mut Blockers) {
        let mut exclude = |holders: &Holders| {
            for &(owner, mode) in holders {
                if request.excludes(owner, mode) {
                    add(into, owner);
                }
            }
        };
        match &request.span {
            Span::Point(name) => self.points.get(name).into_iter().for_each(&mut exclude),
            Span::Range(names) => {
                let upper = names.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let inside = (Bound::Included(names.start.as_slice()), upper);
                self.points.range::<[u8], _>(inside).for_each(|(_, holders)| exclude(holders));
            }
        }
    }

    /// The owners that wait for locks that exclude `request`.
    pub(super) fn waiters_against(&self, request: &Request, into: &mut Blockers) {
        for waiter in self.waiting.iter().filter(|w| w.request.conflicts(request)) {
            add(into, waiter.request.owner);
        }
    }

    /// Adds a waiter to the queue.
    pub(super) fn enqueue(&mut self, waiter: &Arc<Waiter>) {
        self.waiting.push(Arc::clone(waiter));
    }

    /// Takes a waiter out of the queue; whether it was there.
    pub(super) fn dequeue(&mut self, waiter: &Arc<Waiter>) -> bool {
        let at = self.waiting.iter().position(|w| Arc::ptr_eq(w, waiter));
        at.map(|at| self.waiting.remove(at)).is_some()
    }

    /// Whether the queue has a waiter.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives the lock on a key to `owner`, if no owner has one and none waits here; whether it did.
    /// Costs one search.
    pub(super) fn grant_free(&mut self, name: &Name, owner: OwnerId, mode: Mode) -> bool {
        if self.has_waiters() {
            return false;
        }
        match self.points.entry(name.clone()) {
            Entry::Vacant(free) => free.insert(smallvec![(owner, mode)]).len() == 1,
            Entry::Occupied(_) => false,
        }
    }

    /// Gives the lock on a key to its owner.
    pub(super) fn grant(&mut self, name: &Name, owner: OwnerId, mode: Mode) {
        let holders = self.points.entry(name.clone()).or_default();
        match holders.iter_mut().find(|(holder, _)| *holder == owner) {
            Some((_, held)) => *held = mode.max(*held),
            None => holders.push((owner, mode)),
        }
        debug_assert!(
            holders.len() == 1 || holders.iter().all(|(_, mode)| *mode == Mode::Shared),
            "what is granted excludes nothing that is held (invariant 2)"
        );
    }

    /// Takes back the lock of `owner` on a key.
    pub(super) fn release(&mut self, name: &Name, owner: OwnerId) {
        let Entry::Occupied(mut held) = self.points.entry(name.clone()) else { return };
        held.get_mut().retain(|(holder, _)| *holder != owner);
        if held.get().is_empty() {
            held.remove();
        }
    }

    /// Takes back all locks on keys from one to another, which are those of `owner`.
    pub(super) fn release_all(&mut self, owner: OwnerId, first: &Name, last: &Name) {
        let mut released = self.points.split_off(first);
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        if let Some((next, _)) = released.range::<Name, _>(behind).next() {
            let next = next.clone();
            self.points.append(&mut released.split_off(&next));
        }
        debug_assert!(
            released.values().flatten().all(|(holder, _)| *holder == owner),
            "what an owner holds alone has no lock of others (invariant 2)"
        );
    }

    /// How `owner` holds a key, if it does.
    pub(super) fn mode_of(&self, name: &Name, owner: OwnerId) -> Option<Mode> {
        let held = self.points.get(name)?.iter().find(|(holder, _)| *holder == owner)?;
        Some(held.1)
    }

    /// How many locks on keys are held here.
    pub(super) fn held(&self) -> usize {
        self.points.values().map(|holders| holders.len()).sum()
    }
}
