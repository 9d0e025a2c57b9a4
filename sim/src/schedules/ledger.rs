//! What callers have asked for and what they were told, and whether what is read agrees with it.
//!
//! Every write has a stamp, which its values have in them. A write spans the time from its call to
//! its acknowledgement, in the moments of the ledger. Of two writes one is *before* the other if it
//! was acknowledged before the other was called; all others may have either order.

mod seen;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace::{Durability, Isolation};

use super::judge::{judge, of_stamp};
use super::rows::QUEUE;
use crate::histories::{self, Done};
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
    /// It was acknowledged, at this moment.
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

#[derive(Debug, Default)]
struct Book {
    now: u64,
    writes: Vec<Write>,
    steps: Vec<String>,
    violations: Vec<Violation>,
    /// When cuts were whose remains were opened.
    cuts: Vec<u64>,
    /// What callers do now, and which operations have overlapped.
    active: BTreeMap<usize, &'static str>,
    pairs: BTreeSet<Pair>,
    is_closing: bool,
    fails_for_good: bool,
    /// By so many callers at once.
    unread: u32,
    histories: Vec<History>,
    /// The least and the most time that has passed.
    time: (Duration, Duration),
    young: BTreeMap<usize, Young>,
    takeover: Option<Takeover>,
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

    /// From now on calls may be told that the database is closed.
    pub(super) fn closing(&self) {
        self.book().is_closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.book().is_closing
    }

    /// From now on files get no space, or a call that is not its caller's own has failed.
    pub(super) fn fails_for_good(&self) {
        self.book().fails_for_good = true;
    }

    /// Reads fail until [`Ledger::can_read`].
    pub(super) fn cannot_read(&self) {
        self.book().unread += 1;
    }

    pub(super) fn can_read(&self) {
        self.book().unread -= 1;
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

    /// The transactions that must be prepared, and those that may be.
    pub(super) fn prepares(&self) -> (Vec<u64>, Vec<u64>) {
        let book = self.book();
        let of = |is: fn(&Write) -> bool| {
            let prepared = book.writes.iter().filter(|write| write.is_prepared);
            prepared.filter(|write| is(write)).map(|write| write.stamp).collect()
        };
        let is_open = |write: &Write| {
            write.outcome.is_hidden() || matches!(write.outcome, Outcome::Called | Outcome::Unknown)
        };
        (of(|write| write.outcome == Outcome::Prepared), of(is_open))
    }

    /// These transactions are prepared after an opening, and no others.
    pub(super) fn found_prepared(&self, listed: &[u64]) {
        let mut book = self.book();
        for write in book.writes.iter_mut().filter(|write| write.is_prepared) {
            if listed.contains(&write.stamp) {
                write.outcome = Outcome::Prepared;
            } else if write.outcome.is_hidden() {
                write.outcome = Outcome::Refused;
            }
        }
    }

    /// Holds the order of operands, and that each is there once, against the ledger.
    pub(super) fn judge_order(&self, operands: &[u64]) {
        let book = self.book();
        let twice = operands.iter().enumerate().find(|(n, one)| operands[..*n].contains(one));
        let late = operands.iter().enumerate().find_map(|(n, later)| {
            let later = of_stamp(&book.writes, *later)?;
            let earlier = operands[..n].iter().filter_map(|one| of_stamp(&book.writes, *one));
            earlier.into_iter().find(|earlier| later.is_before(earlier)).map(|_| later.stamp)
        });
        drop(book);
        if let Some((_, stamp)) = twice {
            self.violate(Class::Changed.violation(format!("{stamp} is there twice: {operands:?}")));
        }
        if let Some(stamp) = late {
            let what = format!("{stamp} is behind a later operand: {operands:?}");
            self.violate(Class::NotAPrefix.violation(what));
        }
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
        self.book().histories[id as usize - 1].is_committed = true;
    }

    /// It was not.
    pub(super) fn history_refused(&self, id: u32) {
        self.book().histories[id as usize - 1].done = None;
    }

    /// Holds the histories of transactions, and what lists are now, against their level. After a
    /// cut those of readers do not count: what they read may be lost.
    pub(super) fn judge_histories(
        &self,
        lists: Vec<(u8, Vec<u32>)>,
        level: Isolation,
        (is_cut, who): (bool, &str),
    ) {
        let is_there = |done: &Done| {
            let has = |(key, list): &(u8, Vec<u32>)| {
                done.appends.contains(key) && histories::times(list, done.id) > 0
            };
            lists.iter().any(has)
        };
        let book = self.book();
        let mut history = Vec::new();
        let mut lost = None;
        for History { done, is_committed } in &book.histories {
            let Some(done) = done else { continue };
            let counts = is_there(done) || (*is_committed && !(is_cut && done.appends.is_empty()));
            if counts {
                history.push(done.clone());
            }
            for &key in done.appends.iter().filter(|_| counts) {
                let list = lists.iter().find(|(of, _)| *of == key);
                let times = list.map_or(0, |(_, list)| histories::times(list, done.id));
                if times != done.times(key) {
                    lost = Some((done.id, key));
                }
            }
        }
        drop(book);
        if let Some((id, key)) = lost {
            let what = format!("transaction {id} is not in list {key}: {lists:?} {who}");
            self.violate(Class::Lost.violation(what));
        }
        let reads = Done { id: u32::MAX, reads: lists, appends: Vec::new() };
        history.push(reads);
        if let Err(what) = histories::check(&history, level) {
            self.violate(Class::Isolation.violation(format!("{what} {who}: {history:?}")));
        }
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
        if matches!(outcome, Outcome::Prepared) {
            write.called = now;
        }
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
            cuts: book.cuts.clone(),
            active: BTreeMap::new(),
            pairs: BTreeSet::new(),
            is_closing: false,
            fails_for_good: false,
            unread: 0,
            histories: book.histories.clone(),
            time: book.time,
            young: BTreeMap::new(),
            takeover: book.takeover.clone(),
        };
        Ledger(Arc::new(Mutex::new(copied)))
    }

    /// Holds what was read at one moment against the ledger.
    pub(super) fn judge(&self, state: &State, seen: Seen, who: &str) {
        let found = {
            let book = self.book();
            judge(&book.writes, &book.cuts, (state, seen))
        };
        match (found, seen) {
            (Ok(shown), Seen::Read(_, to)) => {
                let mut book = self.book();
                for stamp in shown {
                    let read = &mut book.writes[stamp as usize - 1].read;
                    *read = Some(read.map_or(to, |at| at.min(to)));
                }
            }
            (Ok(_), Seen::Stopped(..) | Seen::Taken(_)) => {}
            (Ok(shown), Seen::Behind(node, _)) => {
                let mut book = self.book();
                for stamp in shown {
                    book.writes[stamp as usize - 1].shown_by.insert(node);
                }
            }
            // What an opening has found stays: it has written again what it builds on.
            (Ok(shown), Seen::AfterCut(cut)) => {
                let mut book = self.book();
                book.cuts.push(cut);
                book.now += 1;
                let now = book.now;
                for stamp in shown {
                    book.writes[stamp as usize - 1].durable.get_or_insert(now);
                }
            }
            (Err(what), _) => self.violate(format!("{what}; read by {who}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        ("a", key.as_bytes().to_vec())
    }

    fn wanted(durability: Durability) -> Wanted {
        Wanted { durability, ..Wanted::new(0, "write".into()) }
    }

    /// Bug: a run with a full disk was told to be wrong for the errors that came of it. Cause: a
    /// caller that could not read set the mark of faults back to what it was before its call, and
    /// the disk became full meanwhile. Fix: each kind of fault has a mark of its own.
    #[test]
    fn a_disk_that_gets_full_while_reads_fail_stays_full() {
        let ledger = Ledger::default();
        ledger.cannot_read();
        ledger.cannot_read();
        ledger.can_read();
        assert!(ledger.has_faults(), "another caller cannot read");
        ledger.fails_for_good();
        ledger.can_read();
        assert!(ledger.has_faults());
        let ledger = Ledger::default();
        ledger.cannot_read();
        ledger.can_read();
        assert!(!ledger.has_faults());
    }

    /// A ledger in which writes are called and acknowledged, one after the other.
    fn after(writes: &[(&[(&str, bool)], Durability)]) -> Ledger {
        let ledger = Ledger::default();
        for (changes, durability) in writes {
            let stamp = ledger.call(wanted(*durability), |stamp| {
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
        ledger.call(wanted(Durability::Relaxed), |_| BTreeMap::from([(place("y"), None)]));
        let state = BTreeMap::from([(place("x"), Some(1)), (place("y"), None)]);
        ledger.judge(&state, seen, "a test");
        assert_eq!(Class::of(&ledger.take().0[0]), Some(Class::NotAPrefix));
    }

    #[test]
    fn what_was_read_once_is_read_from_then_on() {
        let ledger = Ledger::default();
        ledger
            .call(wanted(Durability::Relaxed), |stamp| BTreeMap::from([(place("x"), Some(stamp))]));
        assert_eq!(judged(&ledger, &[("x", None)], false), None);
        assert_eq!(judged(&ledger, &[("x", Some(1))], false), None);
        assert_eq!(judged(&ledger, &[("x", None)], false), Some(Class::Lost));
    }
}
