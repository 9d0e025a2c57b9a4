//! Calls inside of merge operators, and of closures that a value is lent to.

use super::*;

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

/// Lends a value of the node's database to a closure, on a thread of its own. The closure waits
/// until `is_ending` holds, then calls `inside`: this returns what that finds. `end` runs beside
/// the closure. It waits for the closure, since the region is mapped.
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
