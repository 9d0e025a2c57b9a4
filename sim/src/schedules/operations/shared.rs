//! Other nodes of a shared store: followers, standbys that take over, and second writers that must
//! not. Each is on a machine of its own.

use std::time::Duration;

use terrace::testing::{Machine, schedule};
use terrace::{Database, Durability, ErrorKind, ObjectServer, Options, Result, StoreFault};

use super::super::caller::{Caller, changes_of};
use super::super::ledger::{Seen, State};
use super::super::rows::{TABLES, empty, read_all, shared, shown, take_in, value};
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
    let world = &caller.world;
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
    store.always(Some(StoreFault::LoseRequest));
    let done = caller.write(
        format!("await {names} while the store is away"),
        Durability::Durable,
        |stamp| changes_of(&parts, stamp),
        awaited,
    );
    store.always(None);
    done
}

/// What a node shows of the tables of all callers, at one moment. `None` where it has not come to
/// the tables yet, or one was emptied meanwhile.
fn shown_by(caller: &Caller, db: &Database) -> Result<Option<State>> {
    let (callers, ledger) = (caller.world.callers, &caller.world.ledger);
    let snapshot = db.snapshot()?;
    let mut state = State::new();
    for name in TABLES {
        let Ok(table) = db.existing_table(name) else { return Ok(None) };
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
    let Some(follower) = unless_empty(options.follow(&url, "/node"))? else { return Ok(()) };
    for _ in 0..reads {
        let state = follower.database().and_then(|db| shown_by(caller, &db));
        if let Some(state) = unless_away(state)? {
            let who = format!("a follower of caller {}", caller.number);
            ledger.judge(&state, Seen::Behind(node, ledger.now()), &who);
        }
        let (from, visible) = (ledger.now(), caller.db.stats().commit.visible);
        // A database that was closed meanwhile tells of its last commit alone.
        let is_own = caller.db.snapshot().is_ok();
        let since = schedule::now();
        while follower.status().commit < visible {
            if ledger.is_closing() || caller.world.has_failed() {
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
        let state = follower.database().and_then(|db| shown_by(caller, &db));
        if let Some(state) = unless_away(state)? {
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

/// The writer may have made no checkpoint yet.
fn unless_empty<T>(node: Result<T>) -> Result<Option<T>> {
    match node {
        Err(error) if error.to_string().contains("no shared database with a checkpoint") => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A follower that reads in the store may find that the writer has deleted what it reads.
fn unless_away(state: Result<Option<State>>) -> Result<Option<State>> {
    match state {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(None),
        other => other,
    }
}

/// Another directory must not write to the store beside the writer.
fn second_writer(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    caller.note("a second writer opens");
    match options.object_store(url).share(true).open("/second") {
        Err(error) if error.kind() == ErrorKind::Fenced => {}
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
    let Some(standby) = unless_empty(options.standby(&url, "/node"))? else { return Ok(()) };
    schedule::pause(LOOKS_AGAIN * caller.chance.below(8) as u32);
    becomes_writer(caller, "promote", || standby.promote())
}

/// Another machine takes the store over.
fn take_over(caller: &mut Caller, _from: u64) -> Result<()> {
    let Some((url, options)) = node_of(caller) else { return Ok(()) };
    becomes_writer(caller, "take over", || options.open_shared(&url, "/node"))
}

/// The new writer has all that was acknowledged as remote, and a moment of the old one. What it
/// commits stays, and the old one commits nothing there any more.
fn becomes_writer(
    caller: &Caller,
    what: &str,
    become_writer: impl FnOnce() -> Result<Database>,
) -> Result<()> {
    let (ledger, callers) = (caller.world.ledger.clone(), caller.world.callers);
    if !ledger.begin_takeover() {
        // Another caller is about to.
        return Ok(());
    }
    caller.note(what);
    let Some(db) = unless_empty(become_writer())? else {
        ledger.end_takeover();
        return Ok(());
    };
    let by = ledger.has_taken_over();
    caller.note("it is the writer");
    let judge = |db: &Database| -> Result<State> {
        let state = read_all(db, callers, &ledger)?;
        ledger.judge(&state, Seen::Taken(by), "a new writer");
        Ok(state)
    };
    ledger.has_found(judge(&db)?);
    db.table("new")?.durability(Durability::Remote).put("new", "new")?;
    schedule::pause(LOOKS_AGAIN * 4);
    if let Some(table) = shared(&db, TABLES[0])? {
        db.compact_range(&table, ..)?;
    }
    judge(&db)?;
    let report = db.verify()?;
    if !report.damages.is_empty() {
        ledger.violate(Class::Damaged.violation(format!("{report:?} of a new writer")));
    }
    db.close()
}
