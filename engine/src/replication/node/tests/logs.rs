//! Nodes and the log that they belong to.

use super::*;

/// Bug: a follower that reads data in the store and was opened with the URL of another log went
/// over to that, and removed what it had. With a name it overwrote the place of that log's
/// follower. Cause: it looked at the other log's checkpoints and registered before it compared the
/// logs. Fix: it compares them first.
#[test]
fn a_follower_goes_over_to_no_other_log() {
    let dir = tempfile::tempdir().unwrap();
    let (server, other) = (ObjectServer::new(), ObjectServer::new());
    let _db = filled(&server, &dir.path().join("first"));
    // The numbers of clients stand for what is drawn: the first claims differ.
    small().shared_status(other.url()).unwrap_err();
    let _other = filled(&other, &dir.path().join("other"));
    let followers = || {
        let names = other.names().into_iter();
        names.filter(|name| name.starts_with("shared/followers/")).collect::<Vec<_>>()
    };
    for (name, cache) in [(None, 1 << 20), (Some("one"), 1 << 20), (Some("one"), 0)] {
        let options = small().object_cache(cache);
        let options = name.iter().fold(options, |options, name| options.follower_name(*name));
        let path = dir.path().join(format!("node {name:?} {cache}"));
        let kind = (&options, NodeKind::Follower);
        caught_up(&server, &path, kind).close().unwrap();
        let refused = Node::open(other.url(), &path, kind).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("first claim"), "{refused}");
        assert_eq!(followers(), Vec::<String>::new());
        // It is itself again where its log is.
        let node = caught_up(&server, &path, kind);
        assert_eq!((node.status().restarts, node.places.numbers().unwrap()), (0, vec![1]));
        node.close().unwrap();
    }
}

/// Bug: another database was shared in the emptied bucket of a running node, and the node went
/// over to its log, or was promoted there. Cause: an opening compared the logs once. Fix: each
/// start from a checkpoint and each promotion compares them.
#[test]
fn a_node_that_runs_goes_over_to_no_other_log() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, &dir.path().join("first"));
    let [node, promoted] = ["one", "two"]
        .map(|name| caught_up(&server, &dir.path().join(name), (&small(), NodeKind::Standby)));
    drop(db);
    server.names().iter().for_each(|name| server.lose(name));
    let _other = filled(&server, &dir.path().join("other"));
    let error = node.restart(&mut node.applier.lock()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(node.status().restarts, 1);
    let refused = promoted.promote().map(drop).unwrap_err();
    assert!(refused.to_string().contains("first claim"), "{refused}");
    assert!(!server.names().iter().any(|name| name.starts_with("shared/followers/")));
}

/// Bug: a standby was promoted in a bucket that had been put back to an older state, whose log had
/// gone on to as many entries. Cause: the number of its last entry was compared alone, and the
/// first claim was the same. Fix: the entry has to have the standby's last commit and its writer.
#[test]
fn a_standby_is_promoted_behind_its_own_last_entry_alone() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let db = filled(&server, &dir.path().join("first"));
    db.table("last").unwrap().durability(Durability::Remote).put("n", "1").unwrap();
    let node = caught_up(&server, &dir.path().join("node"), (&small(), NodeKind::Standby));
    let entries = node.status().entry;
    db.close().unwrap();
    let lost: Vec<String> = (entries..entries + 8).map(entry_name).collect();
    lost.iter().for_each(|name| server.lose(name));
    // Its claim is the entry that the standby has already.
    let there = small().open_shared(server.url(), dir.path().join("other")).unwrap();
    assert_eq!(node.log.end().unwrap().next, entries + 1);
    let refused = node.promote().map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("is another one"), "{refused}");
    there.close().unwrap();
}

/// Bug: damage of an object of the store was told as that of a file of this machine, which was
/// removed then. Cause: what was copied was checked as the file. Fix: the error names the object.
#[test]
fn damage_of_the_store_that_a_copy_meets_names_the_object() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let _db = filled(&server, dir.path());
    let piece = server.names().into_iter().rfind(|name| name.starts_with(PIECES)).unwrap();
    server.damage(&piece, 30);
    let node = Node::open(server.url(), &dir.path().join("node"), (&small(), NodeKind::Standby));
    let damage = node.map(|node| node.step().map(drop)).and_then(|did| did).unwrap_err();
    assert_eq!(damage.kind(), ErrorKind::Corrupt, "{damage}");
    assert!(damage.is_of_store() && damage.to_string().contains(&piece), "{damage}");
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
