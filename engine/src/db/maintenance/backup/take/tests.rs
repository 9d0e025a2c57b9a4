//! Backups beside commits.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::db::Database;
use crate::error::ErrorKind;
use crate::options::{Durability, Options};
use crate::os::sim::Machine;
use crate::table::WriteBatch;
use crate::tier::object_testing::ObjectServer;

/// Bug: nearly every backup beside commits with blobs had none, or that of another commit. Cause:
/// a later blob let go of the one that the backup's moment had seen, and the backup looked for it
/// afterwards. Fix: it takes the blob at its moment.
#[test]
fn a_backup_has_the_blob_of_its_moment() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(8 << 20);
    let db = options().open(dir.path().join("db")).unwrap();
    let (table, set) = (db.table("t").unwrap(), dir.path().join("set"));
    let commit = |n: u64, durability| {
        let mut batch = WriteBatch::new();
        batch.put(&table, "last", n.to_string()).set_blob(n.to_string());
        db.write_with(batch, durability).unwrap();
    };
    commit(0, Durability::Durable);
    let (stop, begun) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            for n in 1.. {
                commit(n, if n % 8 == 0 { Durability::Durable } else { Durability::Relaxed });
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        begun.wait();
        let backups: Vec<u64> = (0..8).map(|_| db.backup(&set).unwrap().number).collect();
        let looks = (0..5000).filter(|_| db.last_blob().is_none()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(looks, 0, "there was a blob all the time");
        for number in backups {
            let to = dir.path().join(format!("copy {number}"));
            Options::new().backup_set(&set).unwrap().restore(number, &to).unwrap();
            let copy: Database = options().open(&to).unwrap();
            let row = copy.table("t").unwrap().get("last").unwrap();
            assert_eq!(copy.last_blob(), row, "backup {number}");
        }
    });
}

/// Bug: on a full disk a backup into a bucket, or a checkpoint, took the space that is kept for
/// jobs that free some. Cause: what it wrote into the files of the database was reserved as what
/// such a job writes. Fix: only a backup's own store has no such space.
#[test]
fn a_backup_into_a_bucket_leaves_what_is_kept_for_jobs_that_make_space() {
    let (bucket, machine) = (ObjectServer::new(), Machine::with_files());
    let options = Options::new().pm_size(4 << 20).machine(&machine).stepped();
    let db = options.create("/db").unwrap();
    db.table("t").unwrap().put("a", vec![7; 4000]).unwrap();
    let store = db.inner.ctx.set.store();
    store.refill_reserve().unwrap();
    machine.set_capacity(Some(0));
    let rest = || store.reserve_space(1, false);
    let taken: Vec<_> = std::iter::from_fn(|| rest().ok()).collect();
    drop(store.reserve_space(64 << 10, true).unwrap());
    let refused = db.backup(bucket.url()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    drop(taken);
    machine.set_capacity(None);
    let info = db.backup(bucket.url()).unwrap();
    assert!(info.added_bytes > 0, "{info:?}");
}
