use super::*;
use crate::violation::Class;

fn place(key: &str) -> Place {
    ("a", key.as_bytes().to_vec())
}

fn wanted(durability: Durability) -> Wanted {
    Wanted { durability, ..Wanted::new(0, "write".into()) }
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
    let gone =
        after(&[(&[("x", true)], Durable), (&[("y", true)], Relaxed), (&[("x", false)], Relaxed)]);
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
    ledger.call(wanted(Durability::Relaxed), |stamp| BTreeMap::from([(place("x"), Some(stamp))]));
    assert_eq!(judged(&ledger, &[("x", None)], false), None);
    assert_eq!(judged(&ledger, &[("x", Some(1))], false), None);
    assert_eq!(judged(&ledger, &[("x", None)], false), Some(Class::Lost));
}

/// What was accused since the last question.
fn accused(ledger: &Ledger) -> Option<Class> {
    ledger.take().0.first().and_then(|what| Class::of(what))
}

/// A transaction that was prepared, and whose commit is under way.
fn verdict_under_way() -> Ledger {
    let ledger = Ledger::default();
    let prepared = Wanted { is_prepared: true, ..Wanted::new(0, "prepare".into()) };
    let stamp = ledger.call(prepared, |stamp| BTreeMap::from([(place("x"), Some(stamp))]));
    ledger.ended(stamp, |_| Outcome::Prepared);
    assert!(ledger.resolving(stamp, true));
    ledger
}

/// Bug: a prepared transaction could vanish in a cut while its commit was under way. Cause: only
/// those whose verdict was not asked for had to be listed. Fix: one whose commit has
/// begun is listed, or its row is there, and not both.
#[test]
fn a_prepared_transaction_is_there_whatever_its_verdict_came_to() {
    let found = |listed: &[u64], stamp: Stamp| {
        let ledger = verdict_under_way();
        ledger.judge_prepared(listed, &State::from([(place("x"), stamp)]), "a test");
        accused(&ledger)
    };
    assert_eq!(found(&[1], None), None);
    assert_eq!(found(&[], Some(1)), None);
    assert_eq!(found(&[], Some(2)), None, "a later one is there");
    assert_eq!(found(&[], None), Some(Class::Lost));
    assert_eq!(found(&[1], Some(1)), Some(Class::Changed));
    assert_eq!(found(&[7], Some(1)), Some(Class::Changed), "of no caller");
    // What an opening has found is so at the next one.
    let ledger = verdict_under_way();
    ledger.judge_prepared(&[], &State::from([(place("x"), Some(1))]), "a test");
    assert_eq!(judged(&ledger, &[("x", None)], true), Some(Class::Lost));
    let ledger = verdict_under_way();
    ledger.judge_prepared(&[1], &State::new(), "a test");
    ledger.judge_prepared(&[], &State::new(), "a test");
    assert_eq!(accused(&ledger), Some(Class::Lost));
}

fn row(key: &str) -> Place {
    (QUEUE, key.as_bytes().to_vec())
}

/// A queue with three rows, and a pop of any of them that has begun.
fn pop_under_way() -> Ledger {
    let ledger = Ledger::default();
    for key in ["1", "2", "3"] {
        let push = |stamp| BTreeMap::from([(row(key), Some(stamp))]);
        let stamp = ledger.call(wanted(Durability::Durable), push);
        ledger.ended(stamp, Outcome::Acknowledged);
    }
    let pop = Wanted { is_one_of: true, ..Wanted::new(0, "pop".into()) };
    ledger.call(pop, |_| ["1", "2", "3"].map(|key| (row(key), None)).into());
    ledger
}

/// What is wrong with the rows of the queue that a cut has left.
fn left(ledger: &Ledger, rows: [Stamp; 3]) -> Option<Class> {
    let state = [row("1"), row("2"), row("3")].into_iter().zip(rows).collect();
    ledger.judge(&state, Seen::AfterCut(ledger.now()), "a test");
    accused(ledger)
}

/// Bug: a cut in a pop could take all rows of the queue. Cause: a pop that has not ended may have
/// taken any row, and was the excuse for each that was missing. Fix: it excuses one.
#[test]
fn a_pop_that_has_not_ended_takes_one_row() {
    assert_eq!(left(&pop_under_way(), [Some(1), Some(2), Some(3)]), None);
    assert_eq!(left(&pop_under_way(), [None, Some(2), Some(3)]), None);
    assert_eq!(left(&pop_under_way(), [None, Some(2), None]), Some(Class::Lost));
    assert_eq!(left(&pop_under_way(), [None; 3]), Some(Class::Lost));
    // What an opening has found stays, and the pop takes no other row later.
    let ledger = pop_under_way();
    assert_eq!(left(&ledger, [None, Some(2), Some(3)]), None);
    assert_eq!(left(&ledger, [None, Some(2), Some(3)]), None);
    assert_eq!(left(&ledger, [None, Some(2), None]), Some(Class::Lost));
    let ledger = pop_under_way();
    assert_eq!(left(&ledger, [None, Some(2), Some(3)]), None);
    assert_eq!(left(&ledger, [Some(1), Some(2), Some(3)]), Some(Class::Changed));
    let ledger = pop_under_way();
    assert_eq!(left(&ledger, [Some(1), Some(2), Some(3)]), None);
    assert_eq!(left(&ledger, [None, Some(2), Some(3)]), Some(Class::Lost));
}

/// Bug: a pop could give any row, with the value of another one. Cause: what it gives was only held
/// against what others had popped. Fix: a push has put these bytes there, and no row comes first
/// that was pushed before the call and that no pop can have taken.
#[test]
fn a_pop_gives_the_row_at_its_end_as_it_was_pushed() {
    let ledger = Ledger::default();
    for key in ["1", "2", "3"] {
        let push = |stamp| BTreeMap::from([(row(key), Some(stamp))]);
        let stamp = ledger.call(wanted(Durability::Relaxed), push);
        ledger.ended(stamp, Outcome::Acknowledged);
    }
    let pop = |is_last, key: &str, value| {
        let from = ledger.now();
        ledger.judge_pop((99, from, is_last), (key.as_bytes(), value));
        accused(&ledger)
    };
    assert_eq!(pop(false, "1", 1), None);
    assert_eq!(pop(true, "3", 3), None);
    assert_eq!(pop(false, "1", 2), Some(Class::Changed));
    assert_eq!(pop(false, "0", 1), Some(Class::Changed), "no push had this key");
    assert_eq!(pop(false, "3", 3), Some(Class::Isolation));
    assert_eq!(pop(true, "2", 2), Some(Class::Isolation));
    // One that has not ended may have taken one row.
    let other = Wanted { is_one_of: true, ..Wanted::new(1, "pop".into()) };
    ledger.call(other, |_| ["1", "2", "3"].map(|key| (row(key), None)).into());
    assert_eq!(pop(false, "2", 2), None);
    assert_eq!(pop(false, "3", 3), Some(Class::Isolation));
}

/// Bug: what one opening after a cut had not found, the next one could find. Cause: an opening that
/// was cut left the ledger as it was, but for what it had shown. Fix: what it has not found is
/// gone.
#[test]
fn what_an_opening_has_not_found_does_not_come_back() {
    use Durability::Relaxed;
    let twice = || after(&[(&[("x", true)], Relaxed), (&[("x", true)], Relaxed)]);
    let ledger = twice();
    assert_eq!(judged(&ledger, &[("x", Some(1))], true), None);
    assert_eq!(judged(&ledger, &[("x", Some(2))], true), Some(Class::Changed));
    let ledger = twice();
    assert_eq!(judged(&ledger, &[("x", None)], true), None);
    assert_eq!(judged(&ledger, &[("x", Some(1))], true), Some(Class::Changed));
    // A write that had not ended and is there stays.
    let ledger = Ledger::default();
    ledger.call(wanted(Relaxed), |stamp| BTreeMap::from([(place("x"), Some(stamp))]));
    assert_eq!(judged(&ledger, &[("x", Some(1))], true), None);
    assert_eq!(judged(&ledger, &[("x", None)], true), Some(Class::Lost));
}

/// Bug: a row could be read before its transaction committed, or of a write that was refused later.
/// Cause: a write may be seen from its call on, and how it ended was not held against who had read
/// it. Fix: what was read is not refused, and no transaction is read before its commit is called.
#[test]
fn what_was_read_is_not_refused_and_no_transaction_is_read_before_its_commit() {
    let seen = |by: fn(&Ledger, u64)| {
        let ledger = Ledger::default();
        let put = |stamp| BTreeMap::from([(place("x"), Some(stamp))]);
        let stamp = ledger.call(wanted(Durability::Relaxed), put);
        assert_eq!(judged(&ledger, &[("x", Some(stamp))], false), None);
        by(&ledger, stamp);
        accused(&ledger)
    };
    assert_eq!(seen(|ledger, stamp| ledger.ended(stamp, Outcome::Acknowledged)), None);
    assert_eq!(seen(|ledger, stamp| ledger.ended(stamp, |_| Outcome::Unknown)), None);
    let refused = seen(|ledger, stamp| ledger.ended(stamp, |_| Outcome::Refused));
    assert_eq!(refused, Some(Class::Isolation));
    assert_eq!(seen(|ledger, stamp| ledger.commits(stamp)), Some(Class::Isolation));
    // By a node.
    let ledger = Ledger::default();
    let put = |stamp| BTreeMap::from([(place("x"), Some(stamp))]);
    let stamp = ledger.call(wanted(Durability::Relaxed), put);
    let state = State::from([(place("x"), Some(stamp))]);
    ledger.judge(&state, Seen::Behind(1, ledger.now()), "a node");
    ledger.ended(stamp, |_| Outcome::Refused);
    assert_eq!(accused(&ledger), Some(Class::Isolation));
}

/// Bug: a run passed in which the store lost a remote commit and had no checkpoint. Cause: nothing
/// asked the ledger. Fix: the ledger names a write that was acknowledged as remote by then.
#[test]
fn a_remote_write_that_was_acknowledged_is_named() {
    let put: &[(&str, bool)] = &[("x", true)];
    let ledger = after(&[(put, Durability::Durable)]);
    assert_eq!(ledger.remote_before(ledger.now()), None);
    let ledger = after(&[(put, Durability::Durable), (put, Durability::Remote)]);
    assert_eq!(ledger.remote_before(1), None);
    assert!(ledger.remote_before(ledger.now()).is_some_and(|write| write.contains("write 2")));
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
