//! Promotions: what fails them, and what they leave.

use super::*;

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

/// Bug: a standby with a smaller region than the writer's was not promoted while more was prepared
/// than a quarter of its own region. Cause: a promotion prepared rows in the region, as a user's
/// transaction does. Fix: it writes them to extents.
#[test]
fn a_promotion_prepares_more_than_its_region_may_keep() {
    const PREPARES: u8 = 4;
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let options = Options::new().pm_size(64 << 20).stepped();
    let db = options.object_store(server.url()).share(true).open(dir.path().join("writer"));
    let db = db.unwrap();
    let table = db.table("t").unwrap();
    for n in 0..PREPARES {
        let txn = db.begin().unwrap();
        (0..20).for_each(|row| txn.put(&table, [n, row], vec![n; 16 << 10]).unwrap());
        txn.prepare([n]).unwrap();
    }
    while db.step().unwrap() {}
    let promoted = standby(&server, dir.path()).promote().unwrap();
    assert_eq!(promoted.list_prepared().len(), usize::from(PREPARES));
    for n in 0..PREPARES {
        promoted.commit_prepared([n]).unwrap();
    }
    let table = promoted.existing_table("t").unwrap();
    assert_eq!(table.iter().count(), 20 * usize::from(PREPARES));
}
