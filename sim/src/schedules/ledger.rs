//! What callers have asked for and what they were told, and whether what is read agrees with it.
//!
//! Every write has a stamp, which its values have in them. A write spans the time from its call to
//! its acknowledgement, in the moments of the ledger. Of two writes one is *before* the other if it
//! was acknowledged before the other was called; all others may have either order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace::Durability;

use crate::violation::{Class, Violation};

/// A row: its table, and its key.
pub(super) type Place = (&'static str, Vec<u8>);

/// What lies at a place: a stamp, or nothing.
pub(super) type Stamp = Option<u64>;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has not.
    Called,
    /// It was acknowledged, at this moment.
    Acknowledged(u64),
    /// Its caller was told that it may have happened.
    Unknown,
    /// Its caller was told that it has not happened.
    Refused,
}

/// One write: everything in it happens at one moment.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub stamp: u64,
    pub caller: usize,
    pub what: String,
    pub changes: BTreeMap<Place, Stamp>,
    pub durability: Durability,
    pub called: u64,
    pub outcome: Outcome,
    /// Since when a cut must leave it.
    pub durable: Option<u64>,
    /// When a read had ended that showed it: later ones show it, too.
    pub read: Option<u64>,
}

impl Write {
    fn acknowledged(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Acknowledged(at) => Some(at),
            _ => None,
        }
    }

    /// Whether it was acknowledged before the other was called.
    fn is_before(&self, other: &Write) -> bool {
        self.acknowledged().is_some_and(|at| at < other.called)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Write { stamp, caller, what, called, .. } = self;
        write!(f, "write {stamp} of caller {caller} ({what}, called at {called}, ")?;
        match self.outcome {
            Outcome::Acknowledged(at) => write!(f, "{:?} at {at})", self.durability),
            other => write!(f, "{other:?})"),
        }
    }
}

/// What is read at one moment.
pub(super) type State = BTreeMap<Place, Stamp>;

/// When a state was read, and what must be in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// By a call in the run, which lasted from one moment to the other.
    Read(u64, u64),
    /// In what a cut has left, at this moment: durable writes must be there.
    AfterCut(u64),
}

impl Seen {
    /// Whether the write was acknowledged early enough to be seen for certain.
    fn must_have(self, write: &Write) -> bool {
        match self {
            Seen::Read(from, _) => {
                [write.acknowledged(), write.read].into_iter().flatten().any(|at| at < from)
            }
            Seen::AfterCut(cut) => write.durable.is_some_and(|at| at < cut),
        }
    }

    /// Whether the write was called early enough to be seen.
    fn may_have(self, write: &Write) -> bool {
        let (Seen::Read(_, at) | Seen::AfterCut(at)) = self;
        write.called < at && write.outcome != Outcome::Refused
    }
}

#[derive(Debug, Default)]
struct Book {
    now: u64,
    writes: Vec<Write>,
    steps: Vec<String>,
    violations: Vec<Violation>,
}

/// The ledger of a run. Its mutex is no point of the scheduler: keeping it changes no schedule.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new moment.
    pub(super) fn now(&self) -> u64 {
        let mut book = self.book();
        book.now += 1;
        book.now
    }

    /// Notes what happens, for the print of a failure.
    pub(super) fn note(&self, step: impl Into<String>) {
        let mut book = self.book();
        let now = book.now;
        book.steps.push(format!("{now:5} {}", step.into()));
    }

    /// How many writes of this kind were acknowledged, and of how many that is not known.
    pub(super) fn count(&self, what: &str) -> (usize, usize) {
        let book = self.book();
        let of = |is: fn(Outcome) -> bool| {
            book.writes.iter().filter(|write| write.what == what && is(write.outcome)).count()
        };
        let is_open = |outcome| matches!(outcome, Outcome::Called | Outcome::Unknown);
        (of(|outcome| matches!(outcome, Outcome::Acknowledged(_))), of(is_open))
    }

    /// A write is about to be called; its stamp.
    pub(super) fn call(
        &self,
        caller: usize,
        what: String,
        durability: Durability,
        changes: impl FnOnce(u64) -> BTreeMap<Place, Stamp>,
    ) -> u64 {
        let mut book = self.book();
        book.now += 1;
        let (stamp, called) = (book.writes.len() as u64 + 1, book.now);
        let changes = changes(stamp);
        book.steps.push(format!("{called:5} caller {caller}: {what}, write {stamp}"));
        let (outcome, durable, read) = (Outcome::Called, None, None);
        book.writes.push(Write {
            stamp,
            caller,
            what,
            changes,
            durability,
            called,
            outcome,
            durable,
            read,
        });
        stamp
    }

    /// What was acknowledged by the moment is durable from now on.
    pub(super) fn made_durable(&self, by: u64) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        for write in &mut book.writes {
            if write.acknowledged().is_some_and(|at| at <= by) {
                write.durable.get_or_insert(now);
            }
        }
    }

    /// The write has ended.
    pub(super) fn ended(&self, stamp: u64, outcome: impl FnOnce(u64) -> Outcome) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let outcome = outcome(now);
        let write = &mut book.writes[stamp as usize - 1];
        write.outcome = outcome;
        if write.acknowledged().is_some() && write.durability != Durability::Relaxed {
            write.durable = Some(now);
        }
        book.steps.push(format!("{now:5}           write {stamp}: {outcome:?}"));
    }

    /// The least and the most that a row counts whose last write has this stamp, in what a cut at
    /// the moment has left.
    pub(super) fn counts_of(&self, what: &str, stamp: u64, cut: u64) -> (usize, usize) {
        let book = self.book();
        let all = || book.writes.iter().filter(|write| write.what == what);
        let Some(last) = of_stamp(&book.writes, stamp) else { return (0, 0) };
        let seen = Seen::AfterCut(cut);
        let before = all().filter(|write| write.is_before(last)).count();
        (before + 1, all().filter(|write| seen.may_have(write)).count())
    }

    /// Something is wrong.
    pub(super) fn violate(&self, violation: Violation) {
        let mut book = self.book();
        let now = book.now;
        book.steps.push(format!("{now:5} {violation}"));
        book.violations.push(violation);
    }

    /// What was wrong, and what happened.
    pub(super) fn take(&self) -> (Vec<Violation>, Vec<String>) {
        let mut book = self.book();
        (std::mem::take(&mut book.violations), book.steps.clone())
    }

    /// The ledger as it is.
    pub(super) fn copy(&self) -> Ledger {
        let book = self.book();
        let copied = Book {
            now: book.now,
            writes: book.writes.clone(),
            steps: book.steps.clone(),
            violations: Vec::new(),
        };
        Ledger(Arc::new(Mutex::new(copied)))
    }

    /// Holds what was read at one moment against the ledger.
    pub(super) fn judge(&self, state: &State, seen: Seen, who: &str) {
        let found = judge(&self.book().writes, state, seen);
        match (found, seen) {
            (Ok(shown), Seen::Read(_, to)) => {
                let mut book = self.book();
                for stamp in shown {
                    let read = &mut book.writes[stamp as usize - 1].read;
                    *read = Some(read.map_or(to, |at| at.min(to)));
                }
            }
            (Ok(_), Seen::AfterCut(_)) => {}
            (Err(what), _) => self.violate(format!("{what}; read by {who}")),
        }
    }
}

/// The write of a stamp.
fn of_stamp(writes: &[Write], stamp: u64) -> Option<&Write> {
    writes.get(usize::try_from(stamp.checked_sub(1)?).ok()?)
}

/// Whether a state is the content at one moment; the writes that it shows for certain.
fn judge(writes: &[Write], state: &State, seen: Seen) -> Result<BTreeSet<u64>, Violation> {
    let mut shown = BTreeSet::new();
    for (place, &found) in state {
        let show = shows(writes, place, found, seen)?;
        shown.extend(show);
    }
    // What is shown, and all before it, must show in each place.
    for &stamp in &shown {
        let later = &writes[stamp as usize - 1];
        for write in writes {
            if write.stamp == stamp || write.is_before(later) {
                is_in(writes, (write, later), state, seen)?;
            }
        }
    }
    Ok(shown)
}

/// The write that a place shows for certain. None if it may be one of several, or none.
fn shows(
    writes: &[Write],
    place: &Place,
    found: Stamp,
    seen: Seen,
) -> Result<Option<u64>, Violation> {
    let here = |write: &&Write| write.changes.contains_key(place);
    let may_be = |write: &&Write| {
        let newer = writes
            .iter()
            .filter(here)
            .find(|newer| write.is_before(newer) && seen.must_have(newer));
        write.changes[place] == found && seen.may_have(write) && newer.is_none()
    };
    let mut can_be = writes.iter().filter(here).filter(may_be);
    if let Some(first) = can_be.next() {
        // Nothing is also what was there first.
        let was_there = || writes.iter().filter(here).any(|write| seen.must_have(write));
        let is_certain = can_be.next().is_none() && (found.is_some() || was_there());
        return Ok(is_certain.then_some(first.stamp));
    }
    let hides = |write: &&Write| seen.must_have(write);
    let hidden = writes.iter().filter(here).rfind(hides);
    match (found, hidden) {
        (None, None) => Ok(None),
        (None, Some(write)) => Err(Class::Lost.violation(format!("{} lacks {write}", name(place)))),
        (Some(stamp), _) => {
            let shown = of_stamp(writes, stamp).map(ToString::to_string);
            let shown = shown.unwrap_or_else(|| format!("unknown write {stamp}"));
            let hidden = hidden.map(|write| format!(", though {write} is newer"));
            let hidden = hidden.unwrap_or_default();
            Err(Class::Changed.violation(format!("{} has {shown}{hidden}", name(place))))
        }
    }
}

/// Whether no place is older than `write`, since `later` is shown.
fn is_in(
    writes: &[Write],
    (write, later): (&Write, &Write),
    state: &State,
    seen: Seen,
) -> Result<(), Violation> {
    for (place, change) in &write.changes {
        let Some(found) = state.get(place) else { continue };
        if found == change {
            continue;
        }
        let other = found.and_then(|stamp| of_stamp(writes, stamp));
        let is_older = match other {
            // Nothing is there, and no deletion can be the cause.
            None => !writes.iter().any(|deletion| {
                deletion.changes.get(place) == Some(&None)
                    && !deletion.is_before(write)
                    && seen.may_have(deletion)
            }),
            Some(other) => other.is_before(write),
        };
        if is_older {
            let there = other.map_or("nothing".into(), ToString::to_string);
            let what = format!("{later} is there, and {} has {there} for {write}", name(place));
            return Err(Class::NotAPrefix.violation(what));
        }
    }
    Ok(())
}

fn name((table, key): &Place) -> String {
    format!("{table}[{}]", String::from_utf8_lossy(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        ("a", key.as_bytes().to_vec())
    }

    /// A ledger in which writes are called and acknowledged, one after the other.
    fn after(writes: &[(&[(&str, bool)], Durability)]) -> Ledger {
        let ledger = Ledger::default();
        for (changes, durability) in writes {
            let stamp = ledger.call(0, "write".into(), *durability, |stamp| {
                changes.iter().map(|(key, puts)| (place(key), puts.then_some(stamp))).collect()
            });
            ledger.ended(stamp, Outcome::Acknowledged);
        }
        ledger
    }

    /// What the ledger says of a state, read now or left by a cut now.
    fn judged(ledger: &Ledger, state: &[(&str, Stamp)], is_cut: bool) -> Option<Class> {
        let from = ledger.now();
        let state = state.iter().map(|(key, stamp)| (place(key), *stamp)).collect();
        let seen = if is_cut { Seen::AfterCut(from) } else { Seen::Read(from, ledger.now()) };
        ledger.judge(&state, seen, "a test");
        let (violations, _) = ledger.take();
        violations.first().and_then(|what| Class::of(what))
    }

    #[test]
    fn what_is_lost_torn_or_out_of_order_is_accused_and_what_may_be_is_not() {
        use Durability::{Durable, Relaxed};
        let puts = |durability| after(&[(&[("x", true)], durability)]);
        assert_eq!(judged(&puts(Relaxed), &[("x", Some(1))], false), None);
        assert_eq!(judged(&puts(Relaxed), &[("x", None)], false), Some(Class::Lost));
        assert_eq!(judged(&puts(Relaxed), &[("x", None)], true), None, "a cut may take it");
        assert_eq!(judged(&puts(Durable), &[("x", None)], true), Some(Class::Lost));
        assert_eq!(judged(&puts(Durable), &[("x", Some(7))], true), Some(Class::Changed));
        // The older of two.
        let twice = after(&[(&[("x", true)], Relaxed), (&[("x", true)], Relaxed)]);
        assert_eq!(judged(&twice, &[("x", Some(1))], false), Some(Class::Changed));
        assert_eq!(judged(&twice, &[("x", Some(1))], true), None);
        // One of two rows of a batch, and a later write without an earlier one.
        let batch = || after(&[(&[("x", true), ("y", true)], Relaxed)]);
        let torn = [("x", Some(1)), ("y", None)];
        assert_eq!(judged(&batch(), &torn, true), Some(Class::NotAPrefix));
        let order = || after(&[(&[("x", true)], Relaxed), (&[("y", true)], Relaxed)]);
        let late = [("x", None), ("y", Some(2))];
        assert_eq!(judged(&order(), &late, true), Some(Class::NotAPrefix));
        // A deletion shows as a put does, where the row is known to have been there.
        let gone = after(&[
            (&[("x", true)], Durable),
            (&[("y", true)], Relaxed),
            (&[("x", false)], Relaxed),
        ]);
        let without = [("x", None), ("y", None)];
        assert_eq!(judged(&gone, &without, true), Some(Class::NotAPrefix));
        assert_eq!(judged(&gone, &[("x", None), ("y", Some(2))], true), None);
    }

    #[test]
    fn a_later_deletion_excuses_no_torn_batch() {
        let ledger = after(&[(&[("x", true), ("y", true)], Durability::Relaxed)]);
        let from = ledger.now();
        let seen = Seen::AfterCut(from);
        ledger.call(0, "delete".into(), Durability::Relaxed, |_| {
            BTreeMap::from([(place("y"), None)])
        });
        let state = BTreeMap::from([(place("x"), Some(1)), (place("y"), None)]);
        ledger.judge(&state, seen, "a test");
        assert_eq!(Class::of(&ledger.take().0[0]), Some(Class::NotAPrefix));
    }

    #[test]
    fn what_was_read_once_is_read_from_then_on() {
        let ledger = Ledger::default();
        ledger.call(0, "put".into(), Durability::Relaxed, |stamp| {
            BTreeMap::from([(place("x"), Some(stamp))])
        });
        assert_eq!(judged(&ledger, &[("x", None)], false), None);
        assert_eq!(judged(&ledger, &[("x", Some(1))], false), None);
        assert_eq!(judged(&ledger, &[("x", None)], false), Some(Class::Lost));
    }
}
