//! What a node shows while it follows, and what of it stays.

use super::*;

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
    let optimistic = TxnOptions::new().isolation(Isolation::Serializable).optimistic();
    let optimistic = shown.begin_with(optimistic).unwrap();
    assert_eq!(optimistic.get(&table, "a").unwrap().as_deref(), Some(&b"b"[..]));
    assert_eq!(optimistic.range(&table, ..).unwrap().count(), 1);
    let held = optimistic.enqueue().unwrap();
    let promoted = node.promote().unwrap();
    assert_eq!(promoted.list_prepared().len(), 1);
    drop(held);
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
