//! Which directories a node takes, gives back, and keeps for itself.

use super::*;

/// Bug: a standby whose promotion failed kept its directory, and applied nothing any more. It could
/// not be opened again, as its documentation says, while its handle was there. Cause: the lock of
/// the directory lived as long as the handle. Fix: each end of a node gives it back, and a
/// promotion ends the node whatever comes of it.
#[test]
fn a_promotion_that_fails_gives_the_directory_back() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    for options in [Options::new().pm_size(4 << 20), small()] {
        let path = dir.path().join(format!("node {}", options.stepped));
        let standby = || options.clone().standby(server.url(), &path).unwrap();
        let closed = standby();
        closed.close().unwrap();
        let failed = standby();
        server.always(Some(StoreFault::Refuse));
        let error = failed.promote().unwrap_err();
        server.always(None);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let note = failed.status().note.unwrap();
        assert!(note.contains("the promotion failed") && note.contains("open the"), "{note}");
        assert_eq!(failed.database().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(failed.promote().unwrap_err().kind(), ErrorKind::Closed);
        let again = standby();
        let promoted = again.promote().unwrap();
        assert!(promoted.existing_table("last").unwrap().get("a").unwrap().is_some());
        // One that follows the new writer lies beside it.
        let next = standby();
        assert_ne!(next.status().directory, promoted.inner.path);
        drop((closed, failed, again));
        next.close().unwrap();
    }
    drop(db);
}

/// Bug: a node deleted the files of a directory that was none of its own, as of a backup of the day
/// in `20240101`. Cause: it took each subdirectory with a number for its own, in whichever
/// directory it was opened. Fix: a directory with other things in it is refused, and a node's has a
/// mark.
#[test]
fn a_node_is_refused_in_a_directory_of_something_else() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small();
    let backups = dir.path().join("backups");
    let precious = backups.join("20240101").join("backup");
    std::fs::create_dir_all(precious.parent().unwrap()).unwrap();
    std::fs::write(&precious, "bytes").unwrap();
    for path in [&backups, &dir.path().join("writer")] {
        let node = Node::open(server.url(), path, (&options, NodeKind::Standby));
        let error = node.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.to_string().contains("name a"), "{error}");
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"bytes");
    assert_eq!(std::fs::read_dir(&backups).unwrap().count(), 1, "nothing was made there");
}

/// Bug: a node whose region lies elsewhere could not start from a newer checkpoint, and was not
/// promoted then. Cause: all of its databases had the same `pm_path`, where the region of the one
/// before is in the way. Fix: each has a region of its own, which goes with its subdirectory.
#[test]
fn a_node_with_a_region_elsewhere_starts_again_and_is_promoted() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let regions = dir.path().join("regions");
    std::fs::create_dir(&regions).unwrap();
    let options = small().pm_path(regions.join("region"));
    let path = dir.path().join("node");
    let standby = || Node::open(server.url(), &path, (&options, NodeKind::Standby)).unwrap();
    let names = || {
        let names = std::fs::read_dir(&regions).unwrap();
        let mut names: Vec<_> = names.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    std::fs::write(regions.join("region.00000003"), "another's").unwrap();
    for round in 1..3 {
        let node = standby();
        while node.step().unwrap() {}
        assert_eq!(names(), [format!("region.{round:08}").as_str(), "region.00000003"]);
        node.close().unwrap();
        replace_all(&db);
        let node = standby();
        let stepped = (0..10).map(|_| node.step()).find(|did| !matches!(did, Ok(true))).unwrap();
        // The third one has no place, and what is there stays.
        assert_eq!(stepped.is_err(), round == 2, "{stepped:?}");
        node.close().unwrap();
    }
    std::fs::remove_file(regions.join("region.00000003")).unwrap();
    let node = standby();
    let promoted = node.promote().unwrap();
    assert!(promoted.existing_table("last").unwrap().get("a").unwrap().is_some());
    assert_eq!(promoted.inner.path, node.status().directory);
    assert_eq!(names().len(), 1, "{:?}", names());
    drop(db);
}

/// Bug: the command told the directory that a standby had before its promotion, which may have been
/// replaced since, and the status told the directory of the node. Cause: both asked for the
/// database of the moment, and a promotion ends with none. Fix: the status keeps the last
/// directory.
#[test]
fn a_status_names_the_directory_that_was_promoted() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let options = small();
    let kind = (&options, NodeKind::Standby);
    let node = Node::open(server.url(), &dir.path().join("node"), kind).unwrap();
    let before = node.status().directory;
    replace_all(&db);
    let promoted = node.promote().unwrap();
    assert_ne!(promoted.inner.path, before, "it has started from a newer checkpoint");
    assert_eq!(node.status().directory, promoted.inner.path);
}

/// Bug: a program that opened the database of a standby that was down wrote to it, and the standby
/// showed and promoted that. Cause: nothing but sharing asked whose the database is. Fix: an
/// opening to write is refused until the standby was promoted.
#[test]
fn the_database_of_a_node_is_opened_to_write_by_its_node_alone() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let path = node.status().directory;
    node.close().unwrap();
    for error in [small().open(&path), small().open_existing(&path)] {
        let error = error.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("promote the standby"), "{error}");
    }
    // Bug: through a link it was opened. Cause: the name of the link was asked. Fix: what it leads
    // to is.
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(small().open(&link).map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let read = small().open_read_only(&path).unwrap();
    assert!(read.existing_table("last").unwrap().get("a").unwrap().is_some());
    drop(read);
    let promoted = standby(&server, dir.path()).promote().unwrap();
    assert_eq!(promoted.inner.path, path);
    promoted.close().unwrap();
    small().open_existing(&path).unwrap().table("last").unwrap().put("a", "c").unwrap();
}

/// Bug: a database that was restored, or salvaged, beside those of a node was refused as a node's.
/// The promotion that the message advised removed it. Cause: the calls that make it asked for an
/// empty directory alone. Fix: they ask whose the place is, and nothing is made there.
#[test]
fn no_database_is_made_at_the_place_of_a_node() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let promoted = standby(&server, dir.path()).promote().unwrap();
    let (set, writer) = (dir.path().join("set"), promoted.inner.path.clone());
    promoted.backup(&set).unwrap();
    promoted.close().unwrap();
    let next = dir.path().join("node/00000002");
    let set = small().backup_set(&set).unwrap();
    let refused = [
        set.restore(1, &next).unwrap_err(),
        small().salvage(&writer, &next).map(drop).unwrap_err(),
        small().create(&next).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("name a directory elsewhere"), "{error}");
    }
    assert!(!next.exists());
    // Its own path, once the database is gone.
    std::fs::remove_dir_all(&writer).unwrap();
    assert_eq!(set.restore(1, &writer).unwrap_err().kind(), ErrorKind::Invalid);
    set.restore(1, dir.path().join("00000001")).unwrap();
    let restored = small().open_existing(dir.path().join("00000001")).unwrap();
    assert!(restored.existing_table("last").unwrap().get("a").unwrap().is_some());
}

/// Bug: a command that met the database of a node that runs was refused as `Invalid`, and one that
/// waits while a process has it gave up. Cause: whose it is was asked before the lock was. Fix: it
/// is asked behind the lock.
#[test]
fn the_database_of_a_node_that_runs_is_busy() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let error = small().open(node.status().directory).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

/// Bug: a directory called `NODE` counted as the mark of a node's directory. Openings of databases
/// beside it were refused, and a node that was opened there removed them. Cause: a directory can be
/// opened to read, as a file can. Fix: a directory is no mark.
#[test]
fn a_directory_is_no_mark_of_a_node() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("NODE")).unwrap();
    let path = data.join("20240101");
    small().create(&path).unwrap().table("t").unwrap().put("k", "v").unwrap();
    let node = Node::open(server.url(), &data, (&small(), NodeKind::Standby));
    assert_eq!(node.map(drop).unwrap_err().kind(), ErrorKind::Exists);
    let db = small().open_existing(&path).unwrap();
    assert_eq!(db.table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

fn starts_from_the_store(node: &Node) {
    assert_eq!(node.places.numbers().unwrap().len(), 1, "what is gone is removed");
    let promoted = node.promote().unwrap();
    assert!(promoted.existing_table("last").unwrap().get("a").unwrap().is_some());
}

/// Bug: after a restart of the machine a standby with emulated memory never started again. Cause:
/// it opened its database, whose region is gone, and the failure ended it. Fix: it starts from the
/// store.
#[cfg(unix)]
#[test]
fn a_standby_whose_emulated_memory_is_gone_starts_from_the_store() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let options = small().mode(Mode::Emulated { delay: Duration::ZERO });
    let (path, kind) = (dir.path().join("node"), (&options, NodeKind::Standby));
    let node = caught_up(&server, &path, kind);
    let region = std::fs::read_link(node.status().directory.join("region")).unwrap();
    node.close().unwrap();
    std::fs::remove_file(region).unwrap();
    starts_from_the_store(&caught_up(&server, &path, kind));
}

/// Bug: a node with emulated memory at a `pm_path` could not be opened after a restart of the
/// machine, and was not promoted. Cause: the opening took the missing file for damage. Fix: it
/// takes the memory for gone, as it does without a `pm_path`.
#[test]
fn a_node_whose_named_emulated_memory_is_gone_starts_from_the_store() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let region = dir.path().join("memory");
    let options = small().mode(Mode::Emulated { delay: Duration::ZERO }).pm_path(&region);
    let (path, kind) = (dir.path().join("node"), (&options, NodeKind::Standby));
    caught_up(&server, &path, kind).close().unwrap();
    std::fs::remove_file(dir.path().join("memory.00000001")).unwrap();
    starts_from_the_store(&caught_up(&server, &path, kind));
}

/// Bug: a takeover was made at a place of a node, which removed it between the takeover's two
/// openings. Cause: a takeover was excused from the check that all other calls pass. Fix: a
/// promotion alone is.
#[test]
fn no_takeover_is_made_at_the_place_of_a_node() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    let node = standby(&server, dir.path());
    let next = dir.path().join("node/00000007");
    let error = small().open_shared(server.url(), &next).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("name a directory elsewhere"), "{error}");
    assert!(!next.exists());
    node.close().unwrap();
    // The writer goes on.
    db.table("last").unwrap().durability(Durability::Remote).put("a", "c").unwrap();
}

/// Bug: a database that a node had replaced stayed on the disk for good behind a promotion, where a
/// handle of it was left. Cause: the end of a node closed it and removed nothing, and no node is
/// opened there again. Fix: the end removes what it has closed.
#[test]
fn the_end_of_a_node_removes_databases_that_were_replaced() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, dir.path());
    for (n, end) in
        [|node: &Node| node.close(), |node: &Node| node.promote().map(drop)].into_iter().enumerate()
    {
        let path = dir.path().join(format!("node {n}"));
        let node = caught_up(&server, &path, (&small(), NodeKind::Standby));
        let before = node.database().unwrap().existing_table("last").unwrap();
        replace_all(&db);
        while node.step().unwrap() {}
        assert_eq!(node.places.numbers().unwrap(), [1, 2]);
        end(&node).unwrap();
        assert_eq!(node.places.numbers().unwrap(), [2]);
        // A second end removes nothing.
        node.close().unwrap();
        assert_eq!(node.places.numbers().unwrap(), [2]);
        drop(before);
    }
}
