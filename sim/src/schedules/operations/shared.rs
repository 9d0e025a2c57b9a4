//! Other nodes of a shared store: followers, standbys that take over, and second writers that must
//! not. Each is on a machine of its own.

use std::time::Duration;

use terrace::testing::{Machine, schedule};
use terrace::{Database, Durability, ErrorKind, ObjectServer, Options, Result, StoreFault};

use super::super::caller::{Caller, changes_of};
use super::super::ledger::{Ledger, Seen, State};
use super::super::rows::{
    APART, MAIN, NEW, QUEUE, TABLES, empty, lists_of, read_all, shared, shown, take_in, value,
};
use super::super::salvaged::compare;
use super::super::tasks::wait_within;
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::of_shared("put in the shared store", 4, put_remote),
    Operation::of_shared("await beside an outage", 2, await_beside_outage),
    Operation::of_shared("follow", 4, follow),
    Operation::of_shared("second writer", 1, second_writer),
    Operation::of_shared("forget unshipped", 1, forget_unshipped),
    Operation::of_shared("promote", 1, promote),
    Operation::of_shared("take over", 1, take_over),
];

/// A node has what the writer had within this time.
const LONGEST_LAG: Duration = Duration::from_mins(2);
/// So long a commit takes at most on this machine.
const LONGEST_COMMIT: Duration = Duration::from_secs(8);
const LOOKS_AGAIN: Duration = Duration::from_millis(50);

/// The store, for a node on a machine of its own, unless another node has taken it over.
fn node_of(caller: &Caller) -> Option<(String, Options)> {
    let world = &caller.world;
    let url = world.machine.store_url().filter(|_| world.is_shared)?;
    (!world.ledger.is_taken_over()).then(|| (url, world.options_on(&Machine::with_files())))
}

fn put_remote(caller: &mut Caller, _from: u64) -> Result<()> {
    if !caller.world.is_shared {
        return Ok(());
    }
    let (place, len) = (caller.own_place(), caller.chance.below(caller.largest));
    let at = place.clone();
    caller.write(
        format!("put {} of {len} bytes, remote", shown(&place)),
        Durability::Remote,
        |stamp| [(place, Some(stamp))].into(),
        |caller, stamp| {
            caller.db.table(at.0)?.durability(Durability::Remote).put(&at.1, value(stamp, len))
        },
    )
}

/// A commit that is to be durable on this machine waits for no store.
fn await_beside_outage(caller: &mut Caller, _from: u64) -> Result<()> {
    let world = caller.world.clone();
    let store = ObjectServer::of_machine(&world.machine).filter(|_| world.is_shared);
    let Some(store) = store else { return Ok(()) };
    let (parts, names) = caller.parts(1);
    let awaited = |caller: &Caller, stamp| {
        let pending = caller.db.enqueue(caller.batch_of(&parts, stamp)?, Durability::Durable)?;
        let late = || {
            let what = "a durable commit waits for the store, which is away";
            caller.world.ledger.violate(Class::NoEnd.violation(what));
            store.always(None);
        };
        wait_within(pending, LONGEST_COMMIT, late)
    };
    world.ledger.outage_begins();
    store.always(Some(StoreFault::LoseRequest));
    let done = caller.write(
        format!("await {names} while the store is away"),
        Durability::Durable,
        |stamp| changes_of(&parts, stamp),
        awaited,
    );
    store.always(None);
    world.ledger.outage_ends();
    done
}

/// What a node shows of the tables of all callers, at one moment. `None` where one was emptied
/// meanwhile.
fn shown_by(caller: &Caller, db: &Database) -> Result<Option<State>> {
    let (callers, ledger) = (caller.world.callers, &caller.world.ledger);
    let snapshot = db.snapshot()?;
    let mut state = State::new();
    for name in [MAIN, APART, QUEUE] {
        let table = db.existing_table(name)?;
        state.extend(empty(name, callers, ledger));
        for row in snapshot.range(&table, ..) {
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) if error.kind().is_refusal() => return Ok(None),
                Err(error) => return Err(error),
            };
            take_in(&mut state, ledger, name, (&key, &value));
        }
    }
    Ok(Some(state))
}

/// A follower shows a moment of the writer, and never an earlier one than before. Once its position
/// is that of the writer at some moment, it shows all that was there then.
fn follow(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    let (reads, reads_store) = (1 + caller.chance.below(4), caller.chance.percent(40));
    let options = if reads_store { options.object_cache(100 << 10) } else { options };
    let (ledger, node) = (caller.world.ledger.clone(), schedule::now().as_micros() as u64);
    caller.note(&format!("follow, as node {node}"));
    let began = ledger.now();
    let follower = unless_empty(&ledger, began, options.follow(&url, "/node"))?;
    let Some(follower) = follower else { return Ok(()) };
    // What it reads in the store the writer may have deleted.
    let reads_store = reads_store || caller.world.has_bucket();
    let state_of = |has_come: bool| {
        match follower.database().and_then(|db| shown_by(caller, &db)) {
            Err(error) if error.kind() == ErrorKind::Unavailable && reads_store => Ok(None),
            // The tables were made before all callers began. Another writer may lack them, if the
            // log did.
            Err(error)
                if error.kind() == ErrorKind::MissingTable
                    && (!has_come
                        || ledger.is_taken_over() && ledger.remote_before(began).is_none()) =>
            {
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::MissingTable => {
                ledger.violate(Class::Lost.violation(format!("a follower: {error}")));
                Ok(None)
            }
            other => other,
        }
    };
    for _ in 0..reads {
        if let Some(state) = state_of(false)? {
            let who = format!("a follower of caller {}", caller.number);
            ledger.judge(&state, Seen::Behind(node, ledger.now()), &who);
        }
        let (from, visible) = (ledger.now(), caller.db.stats().commit.visible);
        // A database that was closed meanwhile tells of its last commit alone.
        let is_own = caller.db.snapshot().is_ok();
        let since = schedule::now();
        while follower.status().commit < visible {
            if caller.world.is_closing(caller.life) || caller.world.has_failed() {
                return follower.close();
            }
            if schedule::now() - since > LONGEST_LAG {
                let what =
                    format!("a follower comes to no commit {visible}: {:?}", follower.status());
                ledger.violate(Class::NoEnd.violation(what));
                return follower.close();
            }
            schedule::pause(LOOKS_AGAIN);
        }
        if let Some(state) = state_of(true)? {
            let who = format!("a follower of caller {} that came to {visible}", caller.number);
            // The numbers of commits of another writer say nothing of this one's.
            let seen = match is_own && !ledger.is_taken_over() {
                true => caller.world.seen(&caller.db, (from, ledger.now())),
                false => Seen::Behind(node, ledger.now()),
            };
            ledger.judge(&state, seen, &who);
        }
    }
    follower.close()
}

/// The writer may have made no checkpoint yet, and has acknowledged nothing as remote then.
pub(crate) fn unless_empty<T>(ledger: &Ledger, began: u64, node: Result<T>) -> Result<Option<T>> {
    match node {
        Err(error) if error.to_string().contains("no shared database with a checkpoint") => {
            if let Some(write) = ledger.remote_before(began) {
                ledger.violate(Class::Lost.violation(format!("{write} is lost: {error}")));
            }
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Another directory must not write to the store beside the writer.
fn second_writer(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    caller.note("a second writer opens");
    match options.object_store(url).share(true).open("/second") {
        Err(error)
            if error.kind() == ErrorKind::Invalid
                && error.to_string().contains("another database") => {}
        other => {
            let what = format!("a second writer is told {:?}", other.map(drop));
            caller.world.ledger.violate(Class::TwoWriters.violation(what));
        }
    }
    Ok(())
}

/// A checkpoint has to take the place of what was forgotten.
fn forget_unshipped(caller: &mut Caller, _from: u64) -> Result<()> {
    caller.note("forget unshipped commits");
    caller.db.forget_unshipped();
    Ok(())
}

/// A standby that was behind for a while becomes the writer.
fn promote(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    caller.note("stand by");
    let (ledger, began) = (&caller.world.ledger, caller.world.ledger.now());
    let standby = unless_empty(ledger, began, options.clone().standby(&url, "/node"))?;
    let Some(standby) = standby else { return Ok(()) };
    schedule::pause(LOOKS_AGAIN * caller.chance.below(8) as u32);
    becomes_writer(caller, "promote", (&url, &options), || standby.promote())
}

/// Another machine takes the store over.
fn take_over(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    let open = || options.clone().open_shared(&url, "/node");
    becomes_writer(caller, "take over", (&url, &options), open)
}

/// Another machine becomes the writer. No call of it fails, but for an outage of the store.
fn becomes_writer(
    caller: &Caller,
    what: &str,
    store: (&str, &Options),
    become_writer: impl FnOnce() -> Result<Database>,
) -> Result<()> {
    let ledger = &caller.world.ledger;
    if !ledger.begin_takeover() {
        // Another caller is about to.
        return Ok(());
    }
    caller.note(what);
    let began = ledger.now();
    match writes_on(caller, began, store, become_writer) {
        Err(error) if error.kind() == ErrorKind::Unavailable && ledger.was_away(began) => {}
        Err(error) => {
            let what = format!("{what} of caller {}: {error}", caller.number);
            ledger.violate(Class::WrongError.violation(what));
        }
        Ok(()) => {}
    }
    Ok(())
}

/// The new writer has all that was acknowledged as remote, and a moment of the old one. What it
/// commits stays, at its next opening and for a third machine. The old one commits nothing there
/// any more.
fn writes_on(
    caller: &Caller,
    began: u64,
    (url, options): (&str, &Options),
    become_writer: impl FnOnce() -> Result<Database>,
) -> Result<()> {
    let (ledger, callers) = (&caller.world.ledger, caller.world.callers);
    let Some(db) = unless_empty(ledger, began, become_writer())? else {
        ledger.end_takeover();
        return Ok(());
    };
    let by = ledger.has_taken_over();
    caller.note("it is the writer");
    let found = read_all(&db, callers, ledger)?;
    ledger.judge(&found, Seen::Taken(by), "a new writer");
    ledger.has_found(found.clone());
    let lists = lists_of(&db)?;
    let judge = |db: &Database, who: &str| -> Result<()> {
        compare(ledger, ("found at the takeover", &found), (who, &read_all(db, callers, ledger)?));
        let new = db.existing_table(NEW)?.get(NEW)?;
        if new.as_deref() != Some(NEW.as_bytes()) || lists_of(db)? != lists {
            let what = format!("a new writer has put {NEW:?} and has {lists:?}, {who} {new:?}");
            ledger.violate(Class::Lost.violation(what));
        }
        let report = db.verify()?;
        if !report.is_sound() {
            ledger.violate(Class::Damaged.violation(format!("{report:?} {who}")));
        }
        Ok(())
    };
    db.table(NEW)?.durability(Durability::Remote).put(NEW, NEW)?;
    schedule::pause(LOOKS_AGAIN * 4);
    if let Some(table) = shared(&db, TABLES[0])? {
        db.compact_range(&table, ..)?;
    }
    judge(&db, "later")?;
    let path = db.path().to_owned();
    db.close()?;
    let options = options.clone().object_store(url).share(true);
    let db = options.clone().open_existing(&path)?;
    judge(&db, "at its next opening")?;
    db.close()?;
    let third = caller.world.options_on(&Machine::with_files()).open_shared(url, "/third")?;
    judge(&third, "on a third machine")?;
    third.close()?;
    match options.open_existing(&path) {
        Err(error) if error.kind() == ErrorKind::Fenced => {}
        other => {
            let what = format!("a writer of which another took over: {:?}", other.map(drop));
            ledger.violate(Class::TwoWriters.violation(what));
        }
    }
    Ok(())
}
