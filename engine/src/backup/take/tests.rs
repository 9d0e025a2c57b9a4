//! Backups beside commits.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::backup::set::{Set, Writing};
use crate::base::error::ErrorKind;
use crate::base::options::{Durability, Options};
use crate::engine::Database;
use crate::mvcc::{drive_until, is_pinned};
use crate::storage::object_testing::ObjectServer;
use crate::table::WriteBatch;
use terrace_testkit::Machine;

/// Bug: nearly every backup beside commits with blobs had none, or that of another commit. Cause:
/// a later blob removed the one that the backup's moment had seen, and the backup looked for it
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
        db.write_with(&batch, durability).unwrap();
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
        let backups: Vec<_> = (0..8).map(|_| db.backup(&set)).collect();
        let looks = (0..5000).filter(|_| db.last_blob().is_none()).count();
        // Before anything may panic: the scope waits for the writer.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(looks, 0, "there was a blob all the time");
        for backup in backups {
            let number = backup.unwrap().number;
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

/// A set, which calls `dumping` before anything is written into it, and `asks` before each extent.
struct Watched<'a> {
    set: Writing,
    dumping: &'a dyn Fn(),
    asks: &'a dyn Fn() -> Result<()>,
}

impl Destination for Watched<'_> {
    fn store(&self) -> &Arc<ExtentStore> {
        Writing::store(&self.set)
    }

    fn begins(&mut self, _lsn: Lsn, _oldest: Lsn) -> Result<bool> {
        (self.dumping)();
        Ok(true)
    }

    fn check_wanted(&self, _above: u64) -> Result<()> {
        (self.asks)()
    }

    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        self.set.copy(extent)
    }

    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>> {
        self.set.keep(dumped)
    }
}

/// Bug: while a backup wrote what lay in memory, no database of the process got space back, and
/// writers came to `Full`. Cause: the backup had an epoch pinned, and all databases share the
/// epochs. Fix: it holds what its own database defers. What its views have is there to the end,
/// though the database drains and overwrites all of it meanwhile.
#[test]
fn a_backup_holds_no_other_database_and_has_all_of_its_moment() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let options = || Options::new().pm_size(4 << 20).stepped();
    let [db, other] = [&dirs[0], &dirs[1]].map(|dir| options().open(dir.path()).unwrap());
    let table = db.table("t").unwrap();
    let key = |n: u32| n.to_be_bytes();
    let fill = |round: u8| {
        for n in 0..600 {
            table.put(key(n), [round; 1000]).unwrap();
            while db.step().unwrap() {}
        }
    };
    fill(0);
    let (engine, queue) = (&db.inner, &other.inner.shared.queue);
    let dumping = || {
        assert!(!is_pinned());
        let (ran, has_run) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (sets, has_set) = (Arc::clone(&ran), Arc::clone(&has_run));
        queue.defer(move || sets.store(true, Ordering::SeqCst));
        engine.shared.queue.defer(move || has_set.store(true, Ordering::SeqCst));
        assert!(drive_until(|| {
            queue.drive();
            ran.load(Ordering::SeqCst)
        }));
        // As much as the region takes beside what is held.
        (1..3).for_each(fill);
        assert!(!has_run.load(Ordering::SeqCst), "its own work waits");
    };
    let set = Set::open_or_create(dirs[2].path(), &engine.options).unwrap();
    let mut watched = Watched { set, dumping: &dumping, asks: &|| Ok(()) };
    let gathered = gather(engine, &mut watched, &Meter::silent()).unwrap();
    let manifest = gathered.manifest(engine, watched.set.next_number(), 0).unwrap();
    watched.set.add(&manifest).unwrap();
    drop(gathered);
    drop(watched);
    let to = dirs[0].path().join("copy");
    Options::new().backup_set(dirs[2].path()).unwrap().restore(manifest.number, &to).unwrap();
    let copy = options().open(&to).unwrap();
    let rows = copy.table("t").unwrap();
    for n in 0..600 {
        assert_eq!(rows.get(key(n)).unwrap().as_deref(), Some(&[0; 1000][..]), "row {n}");
    }
}

/// Bug: a closing waited until all of a large table that lies above its levels was written, by a
/// backup or a checkpoint. Cause: these asked whether they go on before each table. Fix: they ask
/// before each extent. What was written is given back.
#[test]
fn a_closing_waits_for_one_extent_of_a_backup() {
    const ASKED: usize = 3;
    // Its destination ends it, or the closing that has begun.
    for closes in [false, true] {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let options = Options::new().pm_size(8 << 20).stepped();
        let db = options.open(dirs[0].path().join("db")).unwrap();
        let table = db.table("t").unwrap();
        let engine = &db.inner;
        let key = |n: u32| n.wrapping_mul(0x9E37_79B9).to_be_bytes();
        // What does not compress: three extents.
        let word = |n: u64| (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes();
        let value =
            |n: u32| (0..125).flat_map(|at| word(u64::from(n) << 32 | at)).collect::<Vec<_>>();
        (0..5500).for_each(|n| table.put(key(n), value(n)).unwrap());
        let asked = Cell::new(0);
        let asks = || {
            asked.set(asked.get() + 1);
            match asked.get() == ASKED {
                true if closes => engine.shared.gate.shut(),
                true => return Err(Error::closed()),
                false => {}
            }
            Ok(())
        };
        let set = Set::open_or_create(dirs[1].path(), &engine.options).unwrap();
        let mut watched = Watched { set, dumping: &|| (), asks: &asks };
        let ended = gather(engine, &mut watched, &Meter::silent()).err().unwrap();
        assert_eq!(ended.kind(), ErrorKind::Closed, "{ended}");
        assert_eq!(asked.get(), ASKED, "it asks before each extent");
        let written = watched.set.store().bytes_written();
        assert!((1..9 << 19).contains(&written), "{written} of 5.5 MB were written");
        assert_eq!(watched.set.store().space().taken_bytes, 0);
    }
}

/// Bug: a closing waited until all of a table was read that a backup or a checkpoint wrote nothing
/// of, as of one with deletes alone. Cause: these asked whether they go on before each extent that
/// they wrote. Fix: they ask while they read, too.
#[test]
fn a_closing_ends_a_backup_that_reads_and_writes_nothing() {
    for closes in [false, true] {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let options = Options::new().pm_size(8 << 20).stepped();
        let db = options.open(dirs[0].path().join("db")).unwrap();
        let (table, engine) = (db.table("t").unwrap(), &db.inner);
        for from in (0u32..60_000).step_by(1000) {
            let mut batch = WriteBatch::new();
            (from..from + 1000).for_each(|n| _ = batch.delete(&table, n.to_be_bytes()));
            db.write(batch).unwrap();
        }
        let asked = Cell::new(0);
        let asks = || {
            asked.set(asked.get() + 1);
            match asked.get() == 2 {
                true if closes => engine.shared.gate.shut(),
                true => return Err(Error::closed()),
                false => {}
            }
            Ok(())
        };
        let set = Set::open_or_create(dirs[1].path(), &engine.options).unwrap();
        let mut watched = Watched { set, dumping: &|| (), asks: &asks };
        let ended = gather(engine, &mut watched, &Meter::silent()).err().unwrap();
        assert_eq!(ended.kind(), ErrorKind::Closed, "{ended}");
        assert_eq!(watched.set.store().bytes_written(), 0);
    }
}
