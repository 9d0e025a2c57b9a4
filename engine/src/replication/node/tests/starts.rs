//! What starts and ends: copies, registrations, signs of life.

use super::*;

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
            crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
                .unwrap();
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

/// Bug: a node was forgotten, and registered again. The writer deleted what it needed.
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
            crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
                .unwrap();
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
        assert!(register.names.contains_key("one"), "{fault:?} at {at}");
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
        crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
            .unwrap();
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
        crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
            .unwrap();
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

/// Bug: a standby that could not start, and lived, held back all entries without a bound. Cause: a
/// start that failed went on giving signs. Fix: it ends its registration until it is tried again.
#[test]
fn a_start_that_fails_holds_nothing_back() {
    for name in [None, Some("reports")] {
        let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
        let db = filled(&server, dir.path());
        let registered = || {
            let names = server.names().into_iter();
            names.filter(|name| name.starts_with("shared/followers/")).count()
        };
        let options = name.iter().fold(small(), |options, name| options.follower_name(*name));
        let node = caught_up(&server, &dir.path().join("node"), (&options, NodeKind::Standby));
        replace_all(&db);
        let mut pieces = server.names().into_iter().filter(|name| name.starts_with(PIECES));
        server.damage(&pieces.next_back().unwrap(), 17);
        let failed = (0..200).find_map(|_| node.step().err()).unwrap();
        assert_eq!(failed.kind(), ErrorKind::Corrupt, "{failed}");
        assert_eq!(registered(), usize::from(name.is_some()), "{name:?}");
        if let Some(name) = name {
            drop(node.step());
            let place = node.log.place_of(name).unwrap().unwrap();
            assert!(place.beat > 0, "it is tried again: {place:?}");
            node.registration.tell_news(place).unwrap();
            let place = node.log.place_of(name).unwrap().unwrap();
            assert_eq!(place.beat, 0, "it is bounded meanwhile");
        }
    }
}

/// Bug: a reader that had started stayed registered, where the store did not answer. Cause: the end
/// of its registration was told once. Fix: each step tells it, until that is heard.
#[test]
fn the_end_of_a_registration_is_told_until_it_is_heard() {
    let mut again = 0;
    for at in 1..6 {
        let server = ObjectServer::new();
        let files = SimFiles::new() as Arc<dyn Files>;
        let (client, nonce) =
            crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
                .unwrap();
        let log = Arc::new(SharedLog::new(client, true));
        let registration = Registration::of_node(&log, (None, nonce), true).unwrap();
        let place = FollowerPlace { entry: 3, base: 3, beat: 0 };
        registration.begin(place).unwrap();
        server.plan(server.requests() + at, StoreFault::Refuse);
        registration.arrived();
        server.forget_plans();
        let left = || server.names().iter().any(|name| name.starts_with("shared/followers/"));
        again += u32::from(left());
        registration.tell_news(place).unwrap();
        assert!(!left(), "request {at}");
        assert!(log.read_register().unwrap().0.names.is_empty(), "request {at}");
    }
    assert!(again >= 2, "each request was refused once, not {again}");
}

/// Bug: a closing left a registration in the store, beside a call that starts a node anew. Cause:
/// it ended the registration, then waited for the call, which registers. Fix: it waits first.
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
