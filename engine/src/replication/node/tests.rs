//! A node that starts: what ends its copy, and that it gives signs of life.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod directories;
mod logs;

use std::thread::yield_now;
use std::time::Instant;

use super::super::api::Follower;
use super::*;
use crate::base::options::{Durability, Mode, TableOptions, Tier};
use crate::os::Files;
use crate::replication::log::{Entry, entry_name};
use crate::storage::object_testing::{ObjectServer, StoreFault};
use crate::txn::{Isolation, TxnOptions};
use terrace_testkit::SimFiles;

const PIECES: &str = "shared/extents/";

/// A database with many tables and a checkpoint of them, and one more behind that, which leaps.
fn filled(server: &ObjectServer, dir: &Path) -> Database {
    let options = small().object_store(server.url()).share(true);
    let db = options.open(dir.join("writer")).unwrap();
    replace_all(&db);
    db
}

fn small() -> Options {
    Options::new().pm_size(4 << 20).stepped()
}

/// A node that has come to the end of the log.
fn caught_up(server: &ObjectServer, path: &Path, kind: (&Options, NodeKind)) -> Arc<Node> {
    let node = Node::open(server.url(), path, kind).unwrap();
    while node.step().unwrap() {}
    node
}

/// A standby in `node`, as [`caught_up`].
fn standby(server: &ObjectServer, dir: &Path) -> Arc<Node> {
    caught_up(server, &dir.join("node"), (&small(), NodeKind::Standby))
}

fn replace_all(db: &Database) {
    for n in 0..40 {
        let name = format!("table {n}");
        let table = db.table(&name).unwrap();
        db.truncate_table(&name).unwrap();
        let mut load = table.bulk_load(crate::table::Existing::Refuse).unwrap();
        (0..20).for_each(|row| load.put(format!("{row:03}"), vec![n; 500]).unwrap());
        load.finish().unwrap();
    }
    db.forget_unshipped();
    db.table("last").unwrap().put("a", "b").unwrap();
    while db.step().unwrap() {}
}

/// Bug: closing a node waited for a whole copy of the data. Cause: nothing between two pieces
/// looked whether the node was closing. Fix: each piece does, and each extent that is checked.
#[test]
fn a_closing_ends_a_copy() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    replace_all(&db);
    let (log, before) = (Arc::clone(&node.log), server.asked("").gets);
    let store = server.clone();
    let pieces = move || {
        let names = store.names().into_iter().filter(|name| name.starts_with(PIECES));
        names.map(|name| store.asked(&name).gets).sum::<u64>()
    };
    let (copied, pieces_before) = (pieces.clone(), pieces());
    // As `Node::close` does, once the first piece is asked for.
    server.watch(Some(Box::new(move |_, after| {
        if after && copied() > pieces_before {
            log.client.stop();
        }
    })));
    let error = (0..200).find_map(|_| node.step().err()).unwrap();
    server.watch(None);
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let copied = pieces() - pieces_before;
    assert!((1..=16).contains(&copied), "{copied} pieces of 40 and more");
    assert!(server.asked("").gets > before);
    node.close().unwrap();
}

/// Bug: the writer forgot a node that took long to check, sync or open what it had copied. Cause:
/// it gave a sign of life with each piece that it copied, and with nothing else. Fix: a
/// thread gives signs until the start has ended.
#[test]
fn a_node_that_starts_gives_signs_of_life() {
    let server = ObjectServer::new();
    let files = SimFiles::new() as Arc<dyn Files>;
    let (log, nonce) = {
        let options = Options::new();
        let (client, nonce) =
            crate::storage::open_client((server.url(), true), &files, 0, None).unwrap();
        (Arc::new(SharedLog::new(client, options.stepped)), nonce)
    };
    let registration = Registration::of_node(&log, (None, nonce), false).unwrap();
    let beats = || {
        let names = server.names().into_iter().filter(|name| name.starts_with("shared/followers/"));
        names.map(|name| server.asked(&name).puts).sum::<u64>()
    };
    registration.begin(FollowerPlace { entry: 3, base: 3, beat: 0 }).unwrap();
    let before = beats();
    let until = Instant::now() + Duration::from_mins(1);
    let beaten = registration.beating(|| {
        while beats() < before + 2 {
            assert!(Instant::now() < until, "two signs within a minute");
            yield_now();
        }
        Ok(())
    });
    beaten.unwrap();
    let after = beats();
    registration.arrived();
    assert!(after >= before + 2 && beats() == 0, "a node that has started is forgotten");
}

/// Bug: the writer deleted what a node needed that had registered anew after it was forgotten.
/// Cause: the register got the node's name only in the sign that found no registration and heard
/// of its own put. Where the answer was lost, or the register could not be written, later signs
/// found the registration and did not look. Fix: the name is due until the register has it.
#[test]
fn a_node_that_was_forgotten_comes_into_the_register_whatever_fails() {
    let faults = [StoreFault::LoseAnswer, StoreFault::Refuse, StoreFault::Repeat(1)];
    let mut refused = 0;
    for (fault, at) in faults.into_iter().flat_map(|fault| (1..=8).map(move |at| (fault, at))) {
        let server = ObjectServer::new();
        let files = SimFiles::new() as Arc<dyn Files>;
        let (client, nonce) =
            crate::storage::open_client((server.url(), true), &files, 0, None).unwrap();
        let log = Arc::new(SharedLog::new(client, true));
        let registration = Registration::of_node(&log, (Some("one"), nonce), true).unwrap();
        let place = FollowerPlace { entry: 3, base: 3, beat: 0 };
        registration.begin(place).unwrap();
        log.unregister("one").unwrap();
        server.plan(server.requests() + at, fault);
        refused += u32::from(registration.begin(place).is_err());
        server.forget_plans();
        server.deliver();
        registration.begin(place).unwrap();
        let register = log.read_register().unwrap().0;
        assert!(register.names.contains("one"), "{fault:?} at {at}");
        assert_eq!(log.registered(&register).unwrap().len(), 1, "{fault:?} at {at}");
    }
    assert!(refused >= 4, "each request of a sign was refused once, not {refused}");
}

/// Bug: the writer deleted what a follower needed, for ever. Cause: another node of its name had
/// taken that out of the register, and its registration stayed, or came again. Signs found the
/// registration and looked no further. Fix: each sign looks for the name in the register.
#[test]
fn a_follower_whose_name_another_node_struck_comes_into_the_register_again() {
    let server = ObjectServer::new();
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, nonce) =
        crate::storage::open_client((server.url(), true), &files, 0, None).unwrap();
    let log = Arc::new(SharedLog::new(client, true));
    let node = || Registration::of_node(&log, (Some("one"), nonce), true).unwrap();
    let (one, other) = (node(), node());
    let place = |entry| FollowerPlace { entry, base: 3, beat: 0 };
    one.begin(place(3)).unwrap();
    one.arrived();
    for entry in 4..8 {
        other.begin(place(entry)).unwrap();
        // The other one strikes the name, and does not get to its registration.
        let (mut register, tag) = log.read_register().unwrap();
        register.names.remove("one");
        assert!(log.replace_register(&register, tag).unwrap());
        one.tell_news(place(entry)).unwrap();
        let register = log.read_register().unwrap().0;
        assert_eq!(log.registered(&register).unwrap().len(), 1, "at entry {entry}");
    }
}

/// Bug: a takeover of which the machine was damaged started again and again, and then said that the
/// writer was too fast. Cause: any damage counted as data that the writer has deleted. Fix: damage
/// of the store alone does, and the last error is told.
#[test]
fn damage_of_this_machine_is_not_data_that_was_deleted() {
    let server = ObjectServer::new();
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, nonce) =
        crate::storage::open_client((server.url(), true), &files, 0, None).unwrap();
    let log = Arc::new(SharedLog::new(client, false));
    let registration = Registration::of_takeover(&log, nonce, true);
    registration.begin(FollowerPlace { entry: 3, base: 3, beat: 0 }).unwrap();
    let missing = || log.data("shared/extents/0000000000000001-00000000").unwrap_err();
    let damage = missing().damage().unwrap().clone();
    let here = Error::corrupt(damage);
    let is_deleted = |error: &Error| registration.is_deleted(error, registration.base()).unwrap();
    assert!(!is_deleted(&missing()) && !is_deleted(&here), "all is kept");
    let (mut register, tag) = log.read_register().unwrap();
    register.kept = 4;
    assert!(log.replace_register(&register, tag).unwrap());
    assert!(is_deleted(&missing()));
    assert!(!is_deleted(&here), "{here}");
    let away = Error::new(ErrorKind::Unavailable, "away").of_store();
    assert!(!is_deleted(&away));
}

/// Bug: a node whose thread panicked went on as if there was no news. Cause: nothing caught the
/// panic. Fix: its status says so, and what it has is never promoted.
#[test]
fn a_node_whose_thread_panics_says_so_and_is_not_promoted() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let kind = (&Options::new().pm_size(4 << 20), NodeKind::Standby);
    let node = Follower::start(server.url(), &dir.path().join("node"), kind).unwrap();
    server.watch(Some(Box::new(|_, _| {
        let own = std::thread::current();
        assert!(own.name() != Some("terrace-follower"), "planned");
    })));
    let until = Instant::now() + Duration::from_mins(1);
    while !node.status().note.is_some_and(|note| note.contains("panicked")) {
        assert!(Instant::now() < until, "the status says so within a minute");
        yield_now();
    }
    server.watch(None);
    let shown = node.database().unwrap();
    assert!(shown.existing_table("table 1").unwrap().get("001").unwrap().is_some());
    let error = node.node.promote().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    // The writer goes on.
    let table = db.existing_table("last").unwrap();
    table.durability(Durability::Remote).put("c", "d").unwrap();
}

/// Bug: a writer kept data for a node that was gone. Cause: a node whose thread could not be
/// started, or that was closed before it had come to the end of the log, stayed registered. Fix:
/// the end of a node that starts ends its registration.
#[test]
fn a_node_that_ends_before_it_has_started_is_not_registered() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small();
    let registered = || {
        let names = server.names().into_iter();
        names.filter(|name| name.starts_with("shared/followers/")).collect::<Vec<_>>()
    };
    for (named, closes) in [(false, false), (false, true), (true, true)] {
        let name = if named { Some("reports") } else { None };
        let options =
            name.iter().fold(options.clone(), |options, name| options.follower_name(*name));
        let path = dir.path().join(format!("node {named} {closes}"));
        let node = Follower::start(server.url(), &path, (&options, NodeKind::Standby)).unwrap();
        assert_eq!(registered().len(), 1, "it has not come to the end yet");
        if closes {
            node.close().unwrap();
        }
        drop(node);
        let left = registered();
        assert_eq!(left.len(), usize::from(named), "{left:?}");
    }
}

/// Bug: a merge operator that stepped, read, promoted or closed a node waited for itself: a step of
/// the node may be what needs the operator. Cause: these calls asked nothing. Fix: they fail there,
/// and leave the node as it is.
#[test]
fn calls_of_a_node_inside_of_an_operator_are_refused() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    for (name, kind) in [("standby", NodeKind::Standby), ("follower", NodeKind::Follower)] {
        let options = small();
        let node = Node::open(server.url(), &dir.path().join(name), (&options, kind)).unwrap();
        let inside = || {
            // As in a step that needs the operator: it has what these calls would wait for.
            let _applier = node.applier.lock();
            let refused = [
                node.step().map(drop),
                node.database().map(drop),
                node.promote().map(drop),
                node.close(),
            ];
            refused.map(Result::unwrap_err)
        };
        for error in operator::run(inside).unwrap() {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error}");
            assert!(error.to_string().contains("merge operator"), "{name}: {error}");
        }
        while node.step().unwrap() {}
        let found = node.database().unwrap().existing_table("last").unwrap();
        assert_eq!(found.get("a").unwrap().as_deref(), Some(&b"b"[..]), "{name} goes on");
        node.close().unwrap();
    }
    drop(db);
}

/// Bug: a standby that was closed or promoted inside of a merge operator, or of a closure that a
/// value is lent to, was lost: its thread and its directory's lock stayed until the process ended.
/// Cause: the call was refused and had taken the handle, and the end of that was refused too. Fix:
/// the call leaves the handle to its caller, and another thread ends one that is dropped there.
#[test]
fn a_handle_that_is_closed_or_dropped_inside_of_an_operator_is_not_lost() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let (options, path) = (Options::new().pm_size(4 << 20), dir.path().join("node"));
    let standby = || options.clone().standby(server.url(), &path);
    let first = standby().unwrap();
    let refused = || [first.close().unwrap_err(), first.promote().map(drop).unwrap_err()];
    let lent = first.database().unwrap().existing_table("last").unwrap();
    let inside = lent.get_with("a", |_| refused()).unwrap().unwrap();
    for error in operator::run(refused).unwrap().into_iter().chain(inside) {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(lent.get("a").unwrap().as_deref(), Some(&b"b"[..]), "it goes on");
    drop(lent);
    operator::run(|| drop(first)).unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    let again = loop {
        match standby() {
            Ok(again) => break again,
            Err(error) => assert!(Instant::now() < until, "closed within a minute: {error}"),
        }
        yield_now();
    };
    let promoted = again.promote().unwrap();
    assert!(promoted.existing_table("last").unwrap().get("a").unwrap().is_some());
    assert_eq!(again.database().unwrap_err().kind(), ErrorKind::Closed);
    drop(db);
}

/// What `inside` finds on a thread of its own, within a closure that a value of the node's database
/// is lent to, once `is_ending` holds of the node. `end` runs beside it, and waits for the closure,
/// since the region is mapped.
fn lent_while<T: Send + 'static>(
    node: &Arc<Node>,
    end: fn(&Node),
    is_ending: impl Fn(&Node, &Database) -> bool + Send + 'static,
    inside: fn(&Node) -> T,
) -> T {
    let until = Instant::now() + Duration::from_mins(1);
    let (lent, is_lent) = std::sync::mpsc::channel();
    let (told, found) = std::sync::mpsc::channel();
    let of_closure = Arc::clone(node);
    let reader = std::thread::spawn(move || {
        let db = of_closure.database().unwrap();
        let within = |_: &[u8]| {
            lent.send(()).unwrap();
            while !is_ending(&of_closure, &db) {
                assert!(Instant::now() < until, "the node ends within a minute");
                yield_now();
            }
            told.send(inside(&of_closure)).unwrap();
        };
        db.existing_table("last").unwrap().get_with("a", within).unwrap().unwrap();
    });
    is_lent.recv().unwrap();
    let ending = Arc::clone(node);
    let ends = std::thread::spawn(move || end(&ending));
    let found = found.recv_timeout(Duration::from_mins(2)).expect("no thread waits for another");
    reader.join().unwrap();
    ends.join().unwrap();
    found
}

/// Bug: a closing of a node and a status that another thread asked for inside of a closure, which a
/// value is lent to, waited for each other. Cause: the closing held the lock of the database of the
/// moment while it waited for the closure. Fix: it holds none.
#[test]
fn a_status_inside_of_a_closure_waits_for_no_closing() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    for kind in [NodeKind::Standby, NodeKind::Follower] {
        let options = Options::new()
            .pm_size(4 << 20)
            .stepped()
            .mode(Mode::Emulated { delay: Duration::ZERO });
        let path = dir.path().join(format!("{kind:?}"));
        let node = caught_up(&server, &path, (&options, kind));
        let close = |node: &Node| node.close().unwrap();
        let is_closing = |_: &Node, db: &Database| db.inner.ctx.is_stopping();
        let status = lent_while(&node, close, is_closing, Node::status);
        assert!(status.commit > 0, "{status:?}");
        assert_eq!(node.database().unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Bug: a promotion and an end of the standby that another thread asked for inside of a closure,
/// which a value is lent to, waited for each other. Cause: whether the end may wait for its own
/// thread was asked of the database of the moment, and the promotion has taken that out. Fix: what
/// holds of all databases is asked without one too.
#[test]
fn an_end_inside_of_a_closure_is_refused_beside_a_promotion() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small().mode(Mode::Emulated { delay: Duration::ZERO });
    for ends in [|node: &Node| node.close(), |node: &Node| node.promote().map(drop)] {
        let path = dir.path().join(format!("node {:?}", ends as *const ()));
        let kind = (&options, NodeKind::Standby);
        let node = caught_up(&server, &path, kind);
        let promote = |node: &Node| drop(node.promote().unwrap());
        let is_closing = |_: &Node, db: &Database| db.inner.ctx.is_stopping();
        let refused = lent_while(&node, promote, is_closing, ends).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}

/// Bug: a follower's status told of a commit that its database did not have yet. Cause: the status
/// was set before the database of a new checkpoint was shown. Fix: the database comes first.
#[test]
fn a_node_shows_a_database_before_its_status_tells_of_it() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let applier = node.applier.lock().take().unwrap();
    let (before, lsn) = (node.current.read().clone().unwrap().path, applier.position.lsn);
    node.progress.lock().commit = lsn - 1;
    let shown = dir.path().join("shown");
    std::thread::scope(|scope| {
        // Who sets or reads the status waits from here on.
        let progress = node.progress.lock();
        let (node, path) = (&node, shown.clone());
        scope.spawn(move || node.show(&applier, path));
        let until = Instant::now() + Duration::from_mins(1);
        let path = || node.current.read().as_ref().map(|current| current.path.clone());
        while path() == Some(before.clone()) && Instant::now() < until {
            yield_now();
        }
        let (found, told) = (path(), progress.commit);
        // Before anything may panic: the scope waits for the thread.
        drop(progress);
        assert_eq!((found, told), (Some(shown.clone()), lsn - 1), "the status comes later");
    });
    assert_eq!(node.status().commit, lsn);
    node.close().unwrap();
}

/// Bug: a standby whose log was gone, or whose URL named another log, said that it lagged by
/// nothing, and its promotion took the other log over without its commits. Cause: a position has
/// numbers alone, which each log begins at 1, and nothing compared it with the end of the log. Fix:
/// the database knows the first claim of its log, and its last entry has to be there.
#[test]
fn a_standby_of_another_log_says_so_and_is_not_promoted() {
    let dir = tempfile::tempdir().unwrap();
    let (server, other) = (ObjectServer::new(), ObjectServer::new());
    let db = filled(&server, &dir.path().join("first"));
    for n in 0..20 {
        db.table("last").unwrap().durability(Durability::Remote).put("n", vec![n]).unwrap();
    }
    let options = small();
    let path = dir.path().join("node");
    let standby = |url: &str| Node::open(url, &path, (&options, NodeKind::Standby)).unwrap();
    let node = standby(server.url());
    while node.step().unwrap() {}
    node.close().unwrap();
    // The numbers of clients stand for what is drawn: the first claims differ.
    options.clone().shared_status(other.url()).unwrap_err();
    let writer = filled(&other, &dir.path().join("other"));
    let refused = |node: &Node, what: &str| {
        let error = node.step().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(node.status().lag_ms, u64::MAX, "it does not know how far the log is");
        let error = node.promote().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    };
    refused(&standby(other.url()), "first claim");
    writer.table("last").unwrap().durability(Durability::Remote).put("e", "f").unwrap();
    // The same log, in an older state.
    let node = standby(server.url());
    let entries = server.names().into_iter().filter(|name| name.starts_with("shared/log/"));
    entries.rev().take(8).for_each(|name| server.lose(&name));
    refused(&node, "entry");
    // It is itself again where its log is.
    let node = standby(server.url());
    assert!(node.database().unwrap().existing_table("last").unwrap().get("n").unwrap().is_some());
    node.close().unwrap();
}

/// Bug: handles of a database that a node had replaced stayed open behind the end of the node, and
/// the next node in the directory deleted its files under them. Cause: the end dropped these
/// databases and closed the last one alone. Fix: it closes all.
#[test]
fn the_end_of_a_node_closes_databases_that_were_replaced() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let options = small();
    let kind = (&options, NodeKind::Standby);
    for (n, end) in
        [|node: &Node| node.close(), |node: &Node| node.promote().map(drop)].into_iter().enumerate()
    {
        let node = caught_up(&server, &dir.path().join(format!("node {n}")), kind);
        let before = node.database().unwrap().existing_table("last").unwrap();
        replace_all(&db);
        while node.step().unwrap() {}
        assert_eq!(node.status().restarts, 2);
        assert!(before.get("a").unwrap().is_some(), "it keeps what it shows");
        end(&node).unwrap();
        assert_eq!(before.get("a").unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Bug: a user who closed a standby's database closed it for the standby too, whose status said
/// that all was well until a promotion failed. Cause: a closing is for all handles. Fix: the node
/// alone closes its database.
#[test]
fn a_node_outlives_a_closing_of_its_database() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    node.database().unwrap().close().unwrap();
    assert!(node.database().unwrap().existing_table("last").unwrap().get("a").unwrap().is_some());
    let promoted = node.promote().unwrap();
    assert!(promoted.existing_table("last").unwrap().get("a").unwrap().is_some());
    promoted.close().unwrap();
}

/// Bug: a promotion that failed in its first step behind the claim left the database open, and its
/// directory could not be opened again while a handle of it was there. Cause: the promotion had
/// taken the database out, so that the end of the node closed none. Fix: it stays there.
#[test]
fn a_promotion_that_fails_behind_the_claim_closes_the_database() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small();
    let path = dir.path().join("node");
    let standby = || Node::open(server.url(), &path, (&options, NodeKind::Standby));
    let node = standby().unwrap();
    while node.step().unwrap() {}
    let shown = node.database().unwrap();
    let (table, claims) = (shown.existing_table("last").unwrap(), server.clone());
    let before = claims.names().len();
    // The claim is there: nothing that this machine writes succeeds from here on.
    server.watch(Some(Box::new(move |_, after| {
        if after && claims.names().len() > before {
            shown.inner.shared.stop_because("planned");
        }
    })));
    let error = node.promote().map(drop).unwrap_err();
    server.watch(None);
    assert!(error.to_string().contains("planned"), "{error}");
    assert_eq!(table.get("a").unwrap_err().kind(), ErrorKind::Closed);
    standby().unwrap().promote().unwrap();
}

/// Bug: a promotion waited for a row lock of a reader's transaction, and failed. Cause: a database
/// that follows gave out locks, though its reader takes none and so heeds none. Fix: it refuses.
#[test]
fn a_database_that_follows_gives_out_no_row_lock() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let prepared = db.begin().unwrap();
    prepared.put(&db.table("last").unwrap(), "a", "c").unwrap();
    prepared.prepare("one").unwrap();
    while db.step().unwrap() {}
    let node = standby(&server, dir.path());
    let shown = node.database().unwrap();
    let table = shown.existing_table("last").unwrap();
    let reads = shown.begin().unwrap();
    let strict = TxnOptions::new().isolation(Isolation::Serializable);
    let strict = shown.begin_with(strict).unwrap();
    let refused = [
        reads.get_for_update(&table, "a").unwrap_err(),
        strict.get(&table, "a").unwrap_err(),
        strict.range(&table, ..).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("locks rows"), "{error}");
    }
    assert_eq!(reads.get(&table, "a").unwrap().as_deref(), Some(&b"b"[..]));
    let promoted = node.promote().unwrap();
    assert_eq!(promoted.list_prepared().len(), 1);
}

/// Bug: a reader that asked for a follower's database inside of a closure, which a value is lent
/// to, and a step that dropped a replaced database waited for each other. Cause: the step waits for
/// all that is read, and the call waited for the step. Fix: the call is refused there.
#[test]
fn a_follower_starts_anew_outside_of_closures_alone() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small().object_cache(1 << 20);
    let kind = (&options, NodeKind::Follower);
    let node = caught_up(&server, &dir.path().join("node"), kind);
    let shown = node.database().unwrap();
    let table = shown.existing_table("last").unwrap();
    let within = |f: &dyn Fn() -> Option<Error>| table.get_with("a", |_| f()).unwrap().unwrap();
    assert!(within(&|| node.database().err()).is_none(), "it waits for nothing");
    for name in server.names().into_iter().filter(|name| name.starts_with(PIECES)) {
        server.lose(&name);
    }
    let error = shown.existing_table("table 1").unwrap().get("001").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for error in [within(&|| node.database().err()), within(&|| node.step().err())] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("closure"), "{error}");
    }
}

/// Bug: a closing beside a call that starts a node anew left a registration in the store. Cause: it
/// ended the registration before it waited for the call, which registers. Fix: it waits first.
#[test]
fn a_closing_leaves_no_registration_of_a_call_beside_it() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    std::thread::scope(|scope| {
        let applier = node.applier.lock();
        let closing = scope.spawn(|| node.close());
        let until = Instant::now() + Duration::from_mins(1);
        while !node.stop.load(Ordering::Acquire) && Instant::now() < until {
            yield_now();
        }
        (0..1000).for_each(|_| yield_now());
        let registered = node.registration.begin(FollowerPlace { entry: 3, base: 3, beat: 0 });
        drop(applier);
        registered.unwrap();
        closing.join().unwrap().unwrap();
    });
    let left = server.names().into_iter().filter(|name| name.starts_with("shared/followers/"));
    assert_eq!(left.count(), 0);
}

/// Bug: damage of a standby's own disk was taken for entries that the writer had deleted: its
/// promotion copied all data again and again, or said that the writer was too fast. Cause: any
/// damage counted where a newer checkpoint was there. Fix: damage of the store alone does.
#[test]
fn damage_of_a_standby_fails_its_promotion() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let options = small();
    let (path, kind) = (dir.path().join("node"), (&options, NodeKind::Standby));
    let node = caught_up(&server, &path, kind);
    let shown = node.database().unwrap();
    {
        // A prepare whose only part is gone.
        let _applying = crate::table::Applying::enter();
        let row = [&[1, 0, 0, 0, 0, 0, 0, 0][..]; 2].concat();
        let row = [&row[..], &[1, 0, 0, 0], &[0; 12]].concat();
        shown.existing_table("terrace-replica").unwrap().put("prepared/one", row).unwrap();
    }
    drop(shown);
    node.close().unwrap();
    let node = Node::open(server.url(), &path, kind).unwrap();
    // The writer goes on between the last look at the log and what follows it.
    let (last, heads) = (server.clone(), server.asked("shared/head").gets);
    let has_gone_on = AtomicBool::new(false);
    server.watch(Some(Box::new(move |_, after| {
        let is_behind = after && last.asked("shared/head").gets == heads + 3;
        if is_behind && !has_gone_on.swap(true, Ordering::Relaxed) {
            // So the checkpoint is not the entry that comes next.
            db.table("last").unwrap().durability(Durability::Remote).put("a", "c").unwrap();
            replace_all(&db);
        }
    })));
    let error = node.promote().map(drop).unwrap_err();
    server.watch(None);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("prepared transaction"), "{error}");
}

/// Bug: a promotion that met a damaged entry in each of its tries said that the writer was too
/// fast. Cause: the damage counted as a reason to start from a newer checkpoint, and was forgotten.
/// Fix: the last try tells it.
#[test]
fn the_last_try_of_a_promotion_tells_the_damage() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    db.table("last").unwrap().durability(Durability::Remote).put("a", "c").unwrap();
    replace_all(&db);
    let mut applier = node.applier.lock();
    let applier = applier.as_mut().unwrap();
    server.damage(&entry_name(applier.expected()), 100);
    let claiming = open_log(server.url(), &node.options, &files_of(&node.options), 0).unwrap();
    let mut claim = |is_last| takeover::claim(&claiming, applier, &node.registration, is_last);
    assert!(claim(false).unwrap().is_none());
    let error = claim(true).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// A claim carries the last commit of its log. A reader that has less of it missed entries.
#[test]
fn a_claim_of_a_later_commit_is_no_next_entry() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let mut applier = node.applier.lock();
    let applier = applier.as_mut().unwrap();
    for more in [1, 0] {
        let (number, last) = (applier.next().unwrap(), applier.position.lsn + more);
        let first = node.log.entry(1).unwrap().unwrap();
        let entry = Entry { number, claim: number, last, ..first };
        let applied = applier.apply(&entry, &node.log);
        assert_eq!(applied.err().map(|e| e.kind()), (more > 0).then_some(ErrorKind::Corrupt));
    }
}

/// Bug: a standby put its cold levels into the bucket, and no command found them again once it had
/// started from a newer checkpoint. Cause: its background did as a writer's, under the id of a
/// database that was replaced. Fix: a node's background writes no object; a promotion's does.
#[test]
fn a_standby_puts_nothing_into_the_store_before_it_is_promoted() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let options = small();
    let shared = options.clone().object_store(server.url()).share(true);
    let db = shared.open(dir.path().join("writer")).unwrap();
    let cold = db.create_table("cold", TableOptions::new().cold(Tier::Object)).unwrap();
    let mut load = cold.bulk_load(crate::table::Existing::Refuse).unwrap();
    (0..2000).for_each(|n| load.put(format!("{n:05}"), vec![7; 500]).unwrap());
    load.finish().unwrap();
    db.compact_range(&cold, ..).unwrap();
    db.forget_unshipped();
    cold.put("a", "b").unwrap();
    while db.step().unwrap() {}
    let objects = || {
        let names = server.names().into_iter();
        names.filter(|name| !name.starts_with("shared/")).collect::<Vec<_>>()
    };
    let before = objects();
    let kind = (&options, NodeKind::Standby);
    let node = caught_up(&server, &dir.path().join("node"), kind);
    let shown = node.database().unwrap();
    while shown.step().unwrap() {}
    assert_eq!(objects(), before);
    drop(shown);
    let promoted = node.promote().unwrap();
    while promoted.step().unwrap() {}
    let table = promoted.existing_table("cold").unwrap();
    assert_eq!(table.options().cold, Tier::Object);
    assert!(objects().len() > before.len(), "the writer's cold levels are in the store");
    drop(db);
}

/// Bug: a child of a fork that asked for the status of its parent's node could hang. Cause: the
/// status takes a lock, which another thread of the parent may hold at the fork. Fix: a child's
/// status takes none.
#[test]
fn a_status_in_a_forked_child_takes_no_lock() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let held = (node.progress.lock(), node.applier.lock(), node.current.write());
    let status = node.status_in_child();
    drop(held);
    assert!(status.note.unwrap().contains("fork"));
    assert_eq!(status.store, node.status().store);
}

/// Bug: each commit of a reader wrote the names of all tables of the writer. Cause: they were a
/// part of its position. Fix: each table has a row of its own, which its events alone change.
#[test]
fn a_position_has_no_names_of_tables() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let own = node.database().unwrap().existing_table("terrace-replica").unwrap();
    let rows = |own: &crate::table::Table| own.prefix("table/").count();
    assert_eq!((rows(&own), own.get("position").unwrap().unwrap().len()), (41, 24));
    db.rename_table("table 1", "one").unwrap();
    db.drop_table("table 2").unwrap();
    db.truncate_table("table 3").unwrap();
    drop(db.table("more").unwrap());
    while db.step().unwrap() {}
    while node.step().unwrap() {}
    assert_eq!(rows(&own), 41);
    // A node that is opened again goes on with them.
    drop(own);
    node.close().unwrap();
    db.table("one").unwrap().durability(Durability::Remote).put("b", "c").unwrap();
    db.table("more").unwrap().durability(Durability::Remote).put("b", "c").unwrap();
    let shown = standby(&server, dir.path()).database().unwrap();
    for name in ["one", "more"] {
        let found = shown.existing_table(name).unwrap().get("b").unwrap();
        assert_eq!(found.as_deref(), Some(&b"c"[..]), "{name}");
    }
    assert!(shown.existing_table("table 3").unwrap().iter().next().is_none());
}

/// Bug: a read-only opening and a salvage of a closed follower's database called data lost that the
/// writer had rightly deleted. Cause: the node alone said that its database follows. Fix: its table
/// says so.
#[test]
fn what_a_closed_follower_reads_is_not_lost_where_its_writer_has_deleted_it() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small().object_cache(1 << 20);
    let node = caught_up(&server, &dir.path().join("node"), (&options, NodeKind::Follower));
    let path = node.status().directory;
    node.close().unwrap();
    for name in server.names().into_iter().filter(|name| name.starts_with(PIECES)) {
        server.lose(&name);
    }
    let options = small().object_store(server.url());
    let db = options.open_read_only(&path).unwrap();
    let error = db.existing_table("table 1").unwrap().get("001").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the writer has deleted it"), "{error}");
}

/// Bug: a promotion under a limit of memory waited for a lock of what it had prepared itself, and
/// failed; an opening of the same directory would not. Cause: it took its row locks as a user's
/// transaction, so they became ranges, with rows of the next prepare in them. Fix: what applies the
/// log takes them beyond the limits, as an opening.
#[test]
fn row_locks_of_a_promotion_stay_row_locks_as_those_of_an_opening() {
    const ROWS: u32 = 8000;
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let options = small().object_store(server.url()).share(true);
    let db = options.open(dir.path().join("writer")).unwrap();
    let table = db.table("t").unwrap();
    for (first, id) in [(0, "b"), (1, "c")] {
        let txn = db.begin().unwrap();
        for row in (first..ROWS).step_by(2) {
            txn.put(&table, row.to_be_bytes(), id).unwrap();
        }
        txn.prepare(id).unwrap();
    }
    while db.step().unwrap() {}
    let options = small().memory(16 << 20);
    let node = caught_up(&server, &dir.path().join("node"), (&options, NodeKind::Standby));
    let promoted = node.promote().unwrap();
    assert_eq!(promoted.list_prepared().len(), 2);
}
