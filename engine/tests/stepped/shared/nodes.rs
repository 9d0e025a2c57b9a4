//! Histories over all nodes: a writer, a follower, a standby and a takeover on one store, whatever
//! becomes of a request, and with the power of the writer cut at each of them. A follower shows a
//! state of the writer's order; nothing that was acknowledged is lost, and nothing void is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Content, WORK, content, make_tables, of_machine, settle, work, writer_options};
use crate::common::cuts::PATH;
use crate::common::{alone, rounds};
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{Database, Durability, Follower, ObjectServer, Standby, StoreFault};

/// The content after each commit of the writer, by its number.
type History = BTreeMap<u64, Content>;

/// The number of the last visible commit.
pub(super) fn visible(db: &Database) -> u64 {
    let stats = db.stats().share.unwrap();
    stats.shipped + stats.lag_commits
}

fn follow(server: &ObjectServer, bug: Option<Failpoint>) -> terrace::Result<Follower> {
    of_machine(&Machine::with_files(), bug).follow(server.url(), "/follower")
}

fn stand_by(server: &ObjectServer, bug: Option<Failpoint>) -> terrace::Result<Standby> {
    of_machine(&Machine::with_files(), bug).standby(server.url(), "/standby")
}

/// Asks again while a request fails.
pub(super) fn again<T>(mut f: impl FnMut() -> terrace::Result<T>) -> Result<T, String> {
    let mut failed = String::new();
    for _ in 0..4 {
        match f() {
            Ok(done) => return Ok(done),
            Err(error) => failed = error.to_string(),
        }
    }
    Err(failed)
}

/// Whether what a node shows is a state of the writer's order: the one of its number.
fn check(db: &Database, commit: u64, history: &History, node: &str) -> Result<(), String> {
    let shown = content(db).map_err(|error| format!("{node}: {error}"))?;
    let (at, expected) = history.range(..=commit).next_back().ok_or("it shows what was not yet")?;
    if shown == *expected {
        return Ok(());
    }
    Err(format!("{node} at {commit} shows other rows than the writer at {at}"))
}

/// Steps a node until there is no more.
pub(super) fn catch_up(step: impl Fn() -> terrace::Result<bool>) -> Result<(), String> {
    for _ in 0..1000 {
        if !again(&step)? {
            return Ok(());
        }
    }
    Err("a thousand entries and no end".to_string())
}

/// What is known of the writer.
struct Seen {
    history: Mutex<History>,
    /// The last commit that was acknowledged as remote.
    remote: Mutex<u64>,
}

impl Seen {
    fn of(db: &Database) -> Seen {
        let seen = Seen { history: Mutex::default(), remote: Mutex::default() };
        seen.note(db);
        make_tables(db, &|| seen.note(db));
        seen
    }

    fn note(&self, db: &Database) {
        let content = content(db).unwrap();
        self.history.lock().insert(visible(db), content);
    }
}

/// Works on the writer, each commit noted, some of them remote.
fn work_noted(db: &Database, round: u64, seen: &Seen) {
    for (n, step) in (0..).zip(WORK) {
        // It may fail where the store does, and then it is noted as far as it came.
        drop(step(db, round * 10 + n, &|| seen.note(db)));
        seen.note(db);
        if n % 4 == 3 {
            let (row, table) = (format!("{round} {n}"), db.existing_table("remote").unwrap());
            // An image that is taken meanwhile may have it.
            let mut with = content(db).unwrap();
            with.get_mut("remote").unwrap().insert(row.clone().into(), b"kept".to_vec());
            seen.history.lock().insert(visible(db) + 1, with);
            if table.durability(Durability::Remote).put(&row, "kept").is_ok() {
                *seen.remote.lock() = visible(db);
            }
        }
        drop(db.step());
    }
}

/// Takes the store over: it must have a state of the history with all that is remote.
fn take_over(server: &ObjectServer, seen: &Seen) -> Result<Database, String> {
    let mut machines = 0;
    let db = again(|| {
        machines += 1;
        of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH)
    });
    let db = db.map_err(|error| format!("no takeover of {machines}: {error}"))?;
    let found = content(&db).map_err(|error| error.to_string())?;
    let (history, remote) = (seen.history.lock(), *seen.remote.lock());
    if history.range(remote..).any(|(_, content)| *content == found) {
        return Ok(db);
    }
    let before = history.iter().rev().find(|(_, content)| **content == found);
    Err(format!("remote was {remote}, and it has {:?}", before.map(|(at, _)| at)))
}

/// A course of all nodes. What is wrong with it.
fn course(
    bug: Option<Failpoint>,
    faults: &[(u64, StoreFault)],
    rounds: u64,
) -> (u64, Result<(), String>) {
    let server = ObjectServer::new();
    let done = course_on(&server, bug, faults, rounds);
    (server.requests(), done)
}

fn course_on(
    server: &ObjectServer,
    bug: Option<Failpoint>,
    faults: &[(u64, StoreFault)],
    rounds: u64,
) -> Result<(), String> {
    let machine = Machine::with_files();
    faults.iter().for_each(|(at, fault)| server.plan(*at, *fault));
    let db = again(|| writer_options(&machine, server, bug).open(PATH))?;
    let seen = Seen::of(&db);
    drop(again(|| db.step()));
    drop(again(|| db.step()));
    let follower = again(|| follow(server, bug))?;
    let standby = again(|| stand_by(server, bug))?;
    for round in 0..rounds {
        work_noted(&db, round, &seen);
        for _ in 0..3 {
            drop(follower.step());
        }
        let shown = (follower.database().unwrap(), follower.status().commit);
        check(&shown.0, shown.1, &seen.history.lock(), "the follower")?;
        drop(standby.step());
    }
    catch_up(|| standby.step())?;
    let shown = (standby.database().unwrap(), standby.status().commit);
    check(&shown.0, shown.1, &seen.history.lock(), "the standby")?;
    // The writer is paused here.
    let second = take_over(server, &seen)?;
    drop(again(|| second.step()));
    // It wakes up.
    let row =
        db.table("remote").and_then(|it| it.durability(Durability::Remote).put("void", "void"));
    if row.is_ok() {
        return Err("a writer that was taken over has acknowledged a commit".to_string());
    }
    drop(db.step());
    work(&second, 50);
    settle(|| again(|| second.step()).map_err(|e| panic!("{e}")));
    let expected = content(&second).unwrap();
    catch_up(|| follower.step()).map_err(|e| format!("the follower: {e}"))?;
    if content(&follower.database().unwrap()).map_err(|e| e.to_string())? != expected {
        return Err("the follower does not show what the new writer has".to_string());
    }
    let third = standby.promote().map_err(|error| format!("no promotion: {error}"))?;
    if content(&third).unwrap() != expected {
        return Err("the standby was promoted with other rows".to_string());
    }
    Ok(())
}

pub(super) const FAULTS: [StoreFault; 9] = [
    StoreFault::LoseRequest,
    StoreFault::LoseAnswer,
    StoreFault::Delay(1),
    StoreFault::Delay(6),
    StoreFault::Repeat(3),
    StoreFault::Throttle,
    StoreFault::Shorten,
    StoreFault::Stale(5),
    StoreFault::Stale(40),
];

#[test]
fn all_nodes_show_one_order() {
    let _turn = alone();
    let (requests, wrong) = course(None, &[], 4);
    assert_eq!(wrong, Ok(()));
    assert!(requests > 60, "{requests}");
}

#[test]
fn all_nodes_show_one_order_whatever_becomes_of_a_request() {
    let _turn = alone();
    let (requests, _) = course(None, &[], 2);
    let step = rounds(23, 1) as usize;
    for (n, at) in (1..=requests).step_by(step).enumerate() {
        for fault in FAULTS.into_iter().skip(n % 2).step_by(2) {
            let (_, wrong) = course(None, &[(at, fault)], 2);
            assert_eq!(wrong, Ok(()), "{fault:?} at {at}");
        }
    }
}

/// The power of the follower's machine is cut again and again, between any two entries: it goes on
/// with a state of the writer's order, and to what the writer has.
#[test]
fn a_follower_that_loses_its_power_goes_on() {
    let _turn = alone();
    let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
    let seen = Seen::of(&db);
    settle(|| db.step());
    let (mut most, mut restarts) = (0, 0);
    for round in 0..rounds(12, 60) {
        work_noted(&db, round, &seen);
        let follower = of_machine(&machine, None).follow(server.url(), "/follower").unwrap();
        for _ in 0..round % 5 * 4 {
            follower.step().unwrap();
        }
        let (shown, status) = (follower.database().unwrap(), follower.status());
        check(&shown, status.commit, &seen.history.lock(), "the follower").unwrap();
        most = most.max(status.commit);
        restarts += status.restarts;
        let survive = [Survive::Nothing, Survive::Everything][round as usize % 2];
        machine = machine.crash(survive);
    }
    assert!(restarts < 3 * rounds(12, 60), "it does not start anew each time: {restarts}");
    let follower = of_machine(&machine, None).follow(server.url(), "/follower").unwrap();
    settle(|| db.step());
    catch_up(|| follower.step()).unwrap();
    assert_eq!(content(&follower.database().unwrap()).unwrap(), content(&db).unwrap());
    assert!(follower.status().commit > most / 2, "{most}");
}

/// A machine that lost its power at a request, the store at that moment, and what was known.
struct Image {
    moment: String,
    machine: Machine,
    server: ObjectServer,
    history: History,
    remote: u64,
}

#[test]
fn nothing_remote_is_lost_by_a_power_cut_before_and_after_each_request() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer_options(&machine, &server, None).open(PATH).unwrap();
    let seen = Arc::new(Seen::of(&db));
    settle(|| db.step());
    let images = Arc::new(Mutex::new(Vec::new()));
    let (into, of, known) = (Arc::clone(&images), server.clone(), Arc::clone(&seen));
    server.watch(Some(Box::new(move |request, after| {
        let Some(history) = known.history.try_lock() else { return };
        let when = if after { "after" } else { "before" };
        into.lock().push(Image {
            moment: format!("{when} request {request}"),
            machine: machine.crash(Survive::Nothing),
            server: of.copy(),
            history: history.clone(),
            remote: *known.remote.lock(),
        });
    })));
    for round in 0..rounds(2, 6) {
        work_noted(&db, round, &seen);
    }
    server.watch(None);
    let images = std::mem::take(&mut *images.lock());
    assert!(images.len() > 20, "{}", images.len());
    for (n, image) in images.into_iter().enumerate().step_by(rounds(3, 1) as usize) {
        let Image { moment, machine, server, history, remote } = image;
        let seen = Seen { history: Mutex::new(history), remote: Mutex::new(remote) };
        if n % 2 == 0 {
            if let Err(wrong) = take_over(&server, &seen) {
                panic!("{moment}: {wrong}");
            }
            continue;
        }
        // The machine comes up again, and brings the log up to what it has.
        let db = writer_options(&machine, &server, None).open(PATH);
        let db = db.unwrap_or_else(|error| panic!("{moment}: {error}"));
        let expected = content(&db).unwrap();
        settle(|| db.step());
        let second = take_over(&server, &seen).unwrap_or_else(|wrong| panic!("{moment}: {wrong}"));
        assert_eq!(content(&second).unwrap(), expected, "{moment}");
    }
}

#[test]
fn planted_bugs_are_found() {
    let _turn = alone();
    let find = |bug: Failpoint| {
        let (requests, wrong) = course(Some(bug), &[], 2);
        let each = (1..=requests).step_by(2);
        let with = |fault| each.clone().find_map(|at| course(Some(bug), &[(at, fault)], 2).1.err());
        wrong.err().or_else(|| with(StoreFault::Refuse)).or_else(|| with(StoreFault::LoseRequest))
    };
    for bug in [Failpoint::IgnoreClaims, Failpoint::DeleteSegmentsEarly, Failpoint::EventsFirst] {
        assert!(find(bug).is_some(), "{bug:?} was not found");
    }
}

/// Commits are acknowledged before the store has them: lost with the machine.
#[test]
fn a_commit_that_is_acknowledged_early_is_found_missing() {
    let _turn = alone();
    let lost = |bug| {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = writer_options(&machine, &server, bug).open(PATH).unwrap();
        let table = db.table("t").unwrap();
        settle(|| db.step());
        server.always(Some(StoreFault::LoseRequest));
        let kept = table.durability(Durability::Remote).put("a", "b").is_ok();
        server.always(None);
        let second = of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH);
        let found = second.unwrap().table("t").unwrap().get("a").unwrap();
        kept && found.is_none()
    };
    assert!(!lost(None));
    assert!(lost(Some(Failpoint::AcknowledgeEarly)), "the planted bug was not found");
}

/// What a follower has seen the writer has after a power cut.
#[test]
fn only_what_is_durable_is_shipped() {
    let _turn = alone();
    let ahead = |bug| {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = writer_options(&machine, &server, bug).open(PATH).unwrap();
        let table = db.table("t").unwrap();
        settle(|| db.step());
        let images = Arc::new(Mutex::new(None));
        let (into, of) = (Arc::clone(&images), server.clone());
        server.watch(Some(Box::new(move |_, after| {
            if after {
                *into.lock() = Some((machine.crash(Survive::Nothing), of.copy()));
            }
        })));
        table.durability(Durability::Relaxed).put("a", "b").unwrap();
        settle(|| db.step());
        server.watch(None);
        let (machine, server) = images.lock().take().unwrap();
        writer_options(&machine, &server, None).open(PATH).is_err()
    };
    assert!(!ahead(None));
    assert!(ahead(Some(Failpoint::ShipUndurable)), "the planted bug was not found");
}
