//! What callers have asked for and what they were told, and whether what is read agrees with it.
//!
//! Every write has a stamp, which its values have in them. A write spans the time from its call to
//! its acknowledgement, in the moments of the ledger. Of two writes one is *before* the other if it
//! was acknowledged before the other was called; all others may have either order.

mod judgements;
mod seen;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace::Durability;

use super::rows::QUEUE;
use crate::histories::Done;
use crate::violation::{Class, Violation};
pub(super) use seen::Seen;
use takeover::Takeover;

/// A row: its table, and its key.
pub(super) type Place = (&'static str, Vec<u8>);

/// What lies at a place: a stamp, or nothing.
pub(super) type Stamp = Option<u64>;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has not.
    Called,
    /// It was acknowledged, at this moment, or an opening has found it.
    Acknowledged(u64),
    /// Its caller was told that it may have happened.
    Unknown,
    /// Its caller was told that it has not happened.
    Refused,
    /// It is being prepared, or is prepared, or is being rolled back: no reader sees it.
    Preparing,
    Prepared,
    RollingBack,
}

impl Outcome {
    fn is_hidden(self) -> bool {
        matches!(self, Outcome::Preparing | Outcome::Prepared | Outcome::RollingBack)
    }
}

/// A write that is about to be called.
pub(super) struct Wanted {
    pub caller: usize,
    pub what: String,
    pub durability: Durability,
    /// It changes one of its places, or none.
    pub is_one_of: bool,
    /// It is prepared first.
    pub is_prepared: bool,
}

impl Wanted {
    /// A durable one.
    pub(super) fn new(caller: usize, what: String) -> Wanted {
        let (durability, is_one_of, is_prepared) = (Durability::Durable, false, false);
        Wanted { caller, what, durability, is_one_of, is_prepared }
    }
}

/// A row with a time to live, and between which times it was put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Young {
    pub stamp: u64,
    pub called: Duration,
    pub ended: Duration,
}

/// A transaction that appends to lists.
#[derive(Clone, Debug)]
struct History {
    /// Known when it is about to commit.
    done: Option<Done>,
    is_committed: bool,
}

/// One write: everything in it happens at one moment.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub stamp: u64,
    pub caller: usize,
    pub what: String,
    pub changes: BTreeMap<Place, Stamp>,
    pub durability: Durability,
    /// Of its verdict, if it was prepared.
    pub called: u64,
    pub outcome: Outcome,
    pub is_one_of: bool,
    is_prepared: bool,
    /// Since when a cut must leave it.
    pub durable: Option<u64>,
    /// When a read had ended that showed it: later ones show it, too.
    pub read: Option<u64>,
    /// The nodes that have shown it: they go on to.
    shown_by: BTreeSet<u64>,
}

impl Write {
    fn acknowledged(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Acknowledged(at) => Some(at),
            _ => None,
        }
    }

    /// Whether it was acknowledged before the other was called.
    pub(super) fn is_before(&self, other: &Write) -> bool {
        self.acknowledged().is_some_and(|at| at < other.called)
    }

    /// What is wrong if it was seen, where it must not have been.
    fn seen_early(&self) -> Option<Violation> {
        let is_seen = self.read.is_some() || !self.shown_by.is_empty();
        let what = || Class::Isolation.violation(format!("{self} was seen before its commit"));
        is_seen.then(what)
    }

    /// Whether it may have happened: that is not known yet.
    fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Called | Outcome::Unknown)
    }

    /// Whether it may have taken one of its places: which is not known yet.
    pub(super) fn is_open_pop(&self) -> bool {
        self.is_one_of && self.is_open()
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

/// How writes are called that empty a table, or drop it.
pub(super) const EMPTIES: [&str; 2] = ["truncate", "drop"];

/// What is read at one moment.
pub(super) type State = BTreeMap<Place, Stamp>;

#[derive(Debug, Default)]
struct Book {
    now: u64,
    writes: Vec<Write>,
    steps: Vec<String>,
    violations: Vec<Violation>,
    /// What callers do now, and which operations have overlapped.
    active: BTreeMap<usize, &'static str>,
    pairs: BTreeSet<Pair>,
    fails_for_good: bool,
    /// By so many callers at once.
    unread: u32,
    /// So many callers have the store away now, and when it came back last.
    outages: (u32, u64),
    histories: Vec<History>,
    /// The least and the most time that has passed.
    time: (Duration, Duration),
    young: BTreeMap<usize, Young>,
    takeover: Option<Takeover>,
    /// Other nodes may show an earlier moment, also after an opening.
    lags: bool,
    /// When cuts were whose remains were opened, where that is so.
    cuts: Vec<u64>,
}

/// Two operations.
pub(super) type Pair = (&'static str, &'static str);

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

    /// An operation begins; its moment.
    pub(super) fn begin(&self, caller: usize, operation: &'static str) -> u64 {
        let mut book = self.book();
        book.now += 1;
        let pairs: Vec<Pair> = book
            .active
            .values()
            .map(|other| (operation.min(*other), operation.max(*other)))
            .collect();
        book.pairs.extend(pairs);
        book.active.insert(caller, operation);
        book.now
    }

    /// The operation of a caller has ended.
    pub(super) fn end(&self, caller: usize) {
        let mut book = self.book();
        book.now += 1;
        book.active.remove(&caller);
    }

    /// The operations that have overlapped.
    pub(super) fn pairs(&self) -> BTreeSet<Pair> {
        self.book().pairs.clone()
    }

    /// From now on a call has failed that is not its caller's own.
    pub(super) fn fails_for_good(&self) {
        self.book().fails_for_good = true;
    }

    /// Nothing fails any more.
    pub(super) fn mended(&self) {
        self.book().fails_for_good = false;
    }

    /// Reads fail until [`Ledger::can_read`].
    pub(super) fn cannot_read(&self) {
        self.book().unread += 1;
    }

    pub(super) fn can_read(&self) {
        self.book().unread -= 1;
    }

    /// The store does not answer until [`Ledger::outage_ends`].
    pub(super) fn outage_begins(&self) {
        self.book().outages.0 += 1;
    }

    pub(super) fn outage_ends(&self) {
        let mut book = self.book();
        book.now += 1;
        book.outages = (book.outages.0 - 1, book.now);
    }

    /// Whether the store was away at some time since the moment.
    pub(super) fn was_away(&self, since: u64) -> bool {
        let (open, ended) = self.book().outages;
        open > 0 || ended > since
    }

    /// A write that was acknowledged as remote before the moment.
    pub(super) fn remote_before(&self, moment: u64) -> Option<String> {
        let seen = Seen::Taken(moment);
        self.book().writes.iter().find(|write| seen.must_have(write)).map(ToString::to_string)
    }

    pub(super) fn has_faults(&self) -> bool {
        let book = self.book();
        book.fails_for_good || book.unread > 0
    }

    /// A write is about to be called; its stamp.
    pub(super) fn call(
        &self,
        wanted: Wanted,
        changes: impl FnOnce(u64) -> BTreeMap<Place, Stamp>,
    ) -> u64 {
        let Wanted { caller, what, durability, is_one_of, is_prepared } = wanted;
        let stamp = {
            let mut book = self.book();
            book.now += 1;
            let (stamp, called) = (book.writes.len() as u64 + 1, book.now);
            book.steps.push(format!("{called:5} caller {caller}: {what}, write {stamp}"));
            let outcome = if is_prepared { Outcome::Preparing } else { Outcome::Called };
            let (changes, durable, read) = (BTreeMap::new(), None, None);
            book.writes.push(Write {
                stamp,
                caller,
                what,
                changes,
                durability,
                called,
                outcome,
                is_one_of,
                is_prepared,
                durable,
                read,
                shown_by: BTreeSet::new(),
            });
            stamp
        };
        self.narrow(stamp, changes(stamp));
        stamp
    }

    /// What the write changes, once that is known. A pop that has begun and not ended may get a
    /// row that comes after its call.
    pub(super) fn narrow(&self, stamp: u64, changes: BTreeMap<Place, Stamp>) {
        let mut book = self.book();
        let pushed = changes.keys().filter(|(table, _)| *table == QUEUE);
        let pushed: Vec<Place> = pushed.cloned().collect();
        let pops = book.writes.iter_mut().filter(|write| write.is_one_of);
        for pop in pops.filter(|pop| pop.outcome == Outcome::Called && pop.stamp != stamp) {
            pop.changes.extend(pushed.iter().map(|place| (place.clone(), None)));
        }
        book.writes[stamp as usize - 1].changes = changes;
    }

    /// The places of a table that writes have changed, as far as their keys begin so.
    pub(super) fn places_of(&self, table: &str, prefix: &[u8]) -> Vec<Place> {
        let book = self.book();
        let changed = book.writes.iter().flat_map(|write| write.changes.keys());
        let places = changed.filter(|(of, key)| *of == table && key.starts_with(prefix));
        places.cloned().collect::<BTreeSet<Place>>().into_iter().collect()
    }

    /// Whether the table may have been emptied or dropped since the moment.
    pub(super) fn may_be_emptied(&self, table: &str, since: u64) -> bool {
        let book = self.book();
        let empties = |write: &Write| {
            EMPTIES.iter().any(|what| write.what.starts_with(what))
                && write.changes.keys().any(|(of, _)| *of == table)
        };
        let is_over = |write: &Write| {
            let is_before = write.acknowledged().is_some_and(|at| at < since);
            is_before || write.outcome == Outcome::Refused
        };
        book.writes.iter().any(|write| empties(write) && !is_over(write))
    }

    /// The last write that has put something at a place.
    pub(super) fn last_put(&self, place: &Place) -> Option<u64> {
        let puts = |write: &&Write| matches!(write.changes.get(place), Some(Some(_)));
        self.book().writes.iter().rfind(puts).map(|write| write.stamp)
    }

    /// Whether other nodes may show another moment.
    pub(super) fn has_lagged(&self) -> bool {
        self.book().lags
    }

    /// Other nodes may show an earlier moment from now on.
    pub(super) fn lags(&self) {
        self.book().lags = true;
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.book().writes.is_empty()
    }

    /// The write that has popped the row, if one is known to have.
    pub(super) fn popped(&self, place: &Place) -> Option<u64> {
        let book = self.book();
        let pops = book.writes.iter().filter(|write| write.is_one_of);
        let popped =
            |write: &&Write| write.acknowledged().is_some() && write.changes.contains_key(place);
        pops.filter(popped).map(|write| write.stamp).next()
    }

    /// Whether the write changes the place.
    pub(super) fn changes(&self, stamp: u64, place: &Place) -> bool {
        self.book().writes[stamp as usize - 1].changes.contains_key(place)
    }

    /// The transactions that are prepared, and that no caller resolves.
    pub(super) fn prepared(&self) -> Vec<u64> {
        let book = self.book();
        let prepared = book.writes.iter().filter(|write| write.outcome == Outcome::Prepared);
        prepared.map(|write| write.stamp).collect()
    }

    /// A caller is about to resolve the transaction; false if another one does.
    pub(super) fn resolving(&self, stamp: u64, commits: bool) -> bool {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let write = &mut book.writes[stamp as usize - 1];
        if write.outcome != Outcome::Prepared {
            return false;
        }
        write.outcome = if commits { Outcome::Called } else { Outcome::RollingBack };
        write.called = now;
        let verdict = if commits { "commits" } else { "rolls back" };
        book.steps.push(format!("{now:5}           a caller {verdict} write {stamp}"));
        true
    }

    /// The least and the most time that has passed.
    pub(super) fn time(&self) -> (Duration, Duration) {
        self.book().time
    }

    /// Time passes by `pass`, at some moment of it.
    pub(super) fn pass(&self, time: Duration, pass: impl FnOnce()) {
        self.book().time.1 += time;
        pass();
        self.book().time.0 += time;
    }

    /// A caller is about to put a row with a time to live: none is known until it is put.
    pub(super) fn young_called(&self, caller: usize) -> Duration {
        let mut book = self.book();
        book.young.remove(&caller);
        book.time.0
    }

    /// It was put.
    pub(super) fn young_put(&self, caller: usize, stamp: u64, called: Duration) {
        let mut book = self.book();
        let ended = book.time.1;
        book.young.insert(caller, Young { stamp, called, ended });
    }

    /// The row of a caller.
    pub(super) fn young(&self, caller: usize) -> Option<Young> {
        self.book().young.get(&caller).copied()
    }

    /// The number of a transaction that appends to lists.
    pub(super) fn new_history(&self) -> u32 {
        let mut book = self.book();
        book.histories.push(History { done: None, is_committed: false });
        book.histories.len() as u32
    }

    /// What it does, before it commits.
    pub(super) fn history_meant(&self, done: Done) {
        let mut book = self.book();
        let number = done.id as usize - 1;
        book.histories[number].done = Some(done);
    }

    /// It was committed.
    pub(super) fn history_committed(&self, id: u32) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let history = &mut book.histories[id as usize - 1];
        history.is_committed = true;
        history.done.iter_mut().for_each(|done| done.acknowledged = Some(now));
    }

    /// It was not.
    pub(super) fn history_refused(&self, id: u32) {
        self.book().histories[id as usize - 1].done = None;
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
        let was_seen = (outcome == Outcome::Refused).then(|| write.seen_early()).flatten();
        write.outcome = outcome;
        if matches!(outcome, Outcome::Prepared) {
            write.called = now;
        }
        if write.acknowledged().is_some() && write.durability != Durability::Relaxed {
            write.durable = Some(now);
        }
        book.steps.push(format!("{now:5}           write {stamp}: {outcome:?}"));
        book.violations.extend(was_seen);
    }

    /// A transaction is about to commit. A reader that has seen it before is wrong.
    pub(super) fn commits(&self, stamp: u64) {
        let mut book = self.book();
        book.now += 1;
        let now = book.now;
        let write = &mut book.writes[stamp as usize - 1];
        let was_seen = write.seen_early();
        write.called = now;
        book.violations.extend(was_seen);
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
            active: BTreeMap::new(),
            pairs: BTreeSet::new(),
            fails_for_good: false,
            unread: 0,
            outages: (0, 0),
            histories: book.histories.clone(),
            time: (book.time.1, book.time.1),
            young: book.young.clone(),
            takeover: book.takeover.clone(),
            lags: book.lags,
            cuts: book.cuts.clone(),
        };
        Ledger(Arc::new(Mutex::new(copied)))
    }
}

#[cfg(test)]
mod tests;
