use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Barrier;

use super::picker::{JOBS, JobKind};
use super::*;
use crate::base::error::ErrorKind;
use crate::base::options::{BackgroundTuning, Durability, Options, TableOptions, Tier};
use crate::base::record::{Cursor, LSN_MAX};
use crate::compaction::{ClaimedKeys, SPARED_SUBLEVELS};
use crate::engine::Database;
use crate::jobs::{Look, freeze};
use crate::mvcc::KeyInterval;
use crate::storage::SpaceReservation;
use crate::storage::object_testing::ObjectServer;
use crate::table::{Table, TableCore};
use crate::version::{Edit, EditReservation, LEVEL_2, Op, Room, SUBLEVELS, VersionSet};
use terrace_testkit::{Call, CallSite, Fault, Faulty, FileKind, Machine};

fn table_called(ctx: &JobContext, name: &str) -> Arc<TableCore> {
    ctx.tables.all().into_iter().find(|table| table.name() == name).unwrap()
}

/// Runs the job of a kind; whether it found something to do.
fn run(scheduler: &Scheduler, kind: JobKind) -> bool {
    scheduler.run(JOBS.iter().find(|job| job.kind == kind).unwrap()).unwrap()
}

fn run_until_idle(db: &Database) {
    while db.step().unwrap() {}
}

/// A row with a value that does not compress.
fn row(n: u64, round: u64) -> (Vec<u8>, Vec<u8>) {
    let words = (0..64u64).map(|i| (n << 16 | round << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let value = words.flat_map(|word| (word ^ word >> 29).to_be_bytes()).collect();
    (n.to_be_bytes().to_vec(), value)
}

/// Two jobs of one table hold claims at the same moment, on keys that do not overlap, and run
/// beside each other; what neither has is free for a third.
#[test]
fn two_jobs_of_a_table_are_under_way_at_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(2 << 20).stepped();
    let db = options().level1_size(64 << 20).create(dir.path()).unwrap();
    // Twice, so that there is something to merge; then others, which push it out of the region.
    for (name, round) in [("t", 0), ("t", 1), ("filler", 0)] {
        let table = db.table(name).unwrap();
        for n in 0..12_000 {
            let (key, value) = row(n, round);
            table.durability(Durability::Relaxed).put(&key, &value).unwrap();
            if n % 20 == 0 {
                run_until_idle(&db);
            }
        }
    }
    let model: BTreeMap<_, _> = (0..12_000).map(|n| row(n, 1)).collect();
    db.close().unwrap();

    let db = options().level1_size(64 << 10).open(dir.path()).unwrap();
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    let job = &scheduler.jobs.compact;
    // As on threads of their own, and none of them large.
    scheduler.tune(BackgroundTuning::new().threads(3));
    let table = table_called(ctx, "t");
    (0..5).for_each(|_| table.halve_jobs(false));
    let plan = || match job.look_at(ctx, Arc::clone(&table), (ctx.rest(), Work::Any)) {
        Look::Found(plan) => plan,
        _ => panic!("{:?}: {:?}", ctx.shape(), ctx.claims),
    };
    let plans = [(); 2].map(|()| plan());
    let [first, second] = plans.each_ref().map(|plan| plan.interval());
    assert!(!first.overlaps(&second), "{first:?} and {second:?}");
    let claimed: Vec<_> = ctx.claims.of(table.id()).into_iter().map(|c| c.keys).collect();
    assert_eq!(claimed, [first.clone(), second.clone()]);
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for plan in &plans {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                assert!(job.run(plan, ctx, &|_| Ok(())).unwrap().did);
            });
        }
    });
    assert_eq!(ctx.claims.of(table.id()).len(), 2, "as long as the jobs are there");
    let third = plan();
    let interval = third.interval();
    assert!(!interval.overlaps(&first) && !interval.overlaps(&second), "{interval:?}");
    drop((plans, third));
    assert!(ctx.claims.is_empty());
    let done = [&ctx.metrics.compactions, &ctx.metrics.moves].map(|n| n.get());
    assert_eq!(done.iter().sum::<u64>(), 2, "{done:?}");
    let rows = db.table("t").unwrap().iter().map(Result::unwrap);
    let rows: BTreeMap<_, _> = rows.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(rows == model, "{} of {} rows", rows.len(), model.len());
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// A large table "a" and small ones, each with something to merge, in a database of 2 MiB.
fn large_and_small(machine: &Machine, small: &[&str]) -> Database {
    let options = || Options::new().pm_size(2 << 20).stepped().machine(machine);
    let db = options().level1_size(64 << 20).create("/db").unwrap();
    // Twice, so that there is something to merge; then others, which push it out of the region.
    let twice = |(name, rows)| [(name, rows, 0), (name, rows, 1)];
    let tables = [("a", 8000)].into_iter().chain(small.iter().map(|name| (*name, 400)));
    for (name, rows, round) in tables.flat_map(twice).chain([("filler", 8000, 0)]) {
        let table = db.table(name).unwrap();
        for n in 0..rows {
            let (key, value) = row(n, round);
            table.durability(Durability::Relaxed).put(&key, &value).unwrap();
            if n % 20 == 0 {
                run_until_idle(&db);
            }
        }
    }
    db.close().unwrap();
    options().level1_size(64 << 10).open("/db").unwrap()
}

/// Takes all space that the disk has but for 768 KiB: room for a small table, not for a large one.
fn leave_little(machine: &Machine, ctx: &JobContext) -> Vec<SpaceReservation> {
    let taken = machine.list("/db".as_ref()).into_iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(taken));
    let reserve = || ctx.set.store().reserve_space(64 << 10, true).ok();
    let mut held: Vec<_> = std::iter::from_fn(reserve).collect();
    held.truncate(held.len().saturating_sub(12));
    held
}

/// Bug: on a full disk no compaction was made, though one of a small table had room and would have
/// made more. Cause: tables are looked at by name, and the first one was tried again and again.
/// Fix: after one that the disk has no room for, the next table comes first.
#[test]
fn a_table_that_the_disk_has_no_room_for_holds_up_no_other() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &["b"]);
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    let held = leave_little(&machine, ctx);
    let version = |name| Arc::clone(&table_called(ctx, name).view().version);
    let before = ["a", "b"].map(version);
    let full = scheduler.compact_here().unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert!(scheduler.compact_here().unwrap(), "the next table has room");
    let is_same = ["a", "b"].map(version).iter().zip(&before).all(|(a, b)| Arc::ptr_eq(a, b));
    assert!(!is_same && Arc::ptr_eq(&version("a"), &before[0]), "the small table was compacted");
    drop(held);
    machine.set_capacity(None);
    run_until_idle(&db);
    assert_eq!(db.table("a").unwrap().iter().map(Result::unwrap).count(), 8000);
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// Bug: a compaction that could not read an extent stopped the database. Cause: only a full disk
/// and a want of descriptors or memory were waited for. Fix: a read that fails changes nothing, so
/// the job is made again. Meanwhile another table comes first.
#[test]
fn a_job_that_cannot_read_is_made_again() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &["b"]);
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    let site = CallSite { call: Call::Read, file: FileKind::Extents };
    machine.fail(Fault { for_good: true, ..Fault::once(Faulty::Site(site), 1) });
    let error = scheduler.compact_here().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    scheduler.note_failure(&error);
    assert!(!ctx.shared.poison.is_set());
    assert_eq!(ctx.refused.load(Ordering::Relaxed), table_called(ctx, "a").id());
    db.table("a").unwrap().put("written", "meanwhile").unwrap();
    machine.mend();
    run_until_idle(&db);
    assert_eq!(db.table("a").unwrap().iter().map(Result::unwrap).count(), 8001);
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// Bug: a table that had room waited behind ones that had none, and these were tried with large
/// jobs again and again. Cause: one number said how small jobs are and which table comes first. A
/// success of any table set it back to the first one. Fix: each table has a size of its own, and
/// the tables behind the one that was refused last come first.
#[test]
fn a_success_of_a_table_is_none_of_another_that_has_no_room() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &["b", "c", "d"]);
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    let held = leave_little(&machine, ctx);
    let halvings = |name| table_called(ctx, name).job_halvings();
    let version = |name| Arc::clone(&table_called(ctx, name).view().version);
    let names = ["a", "b", "c", "d"];
    let before = names.map(version);
    assert_eq!(scheduler.compact_here().unwrap_err().kind(), ErrorKind::Full);
    let sizes = || names.map(halvings);
    assert_eq!(sizes(), [1, 0, 0, 0]);
    // Each of the others, before the one that has no room is tried again.
    let is_same = |at: usize| Arc::ptr_eq(&version(names[at]), &before[at]);
    let mut steps = 0;
    while (1..4).any(is_same) {
        assert!(scheduler.compact_here().unwrap(), "{:?}", sizes());
        assert_eq!(sizes(), [1, 0, 0, 0], "a success is of its own table alone");
        steps += 1;
    }
    assert!(is_same(0) && steps >= 3, "{steps}");
    drop(held);
    machine.set_capacity(None);
    run_until_idle(&db);
    assert_eq!(sizes(), [0; 4], "its own success sets it back");
    assert_eq!(ctx.refused.load(Ordering::Relaxed), 0, "and no table comes last");
    assert_eq!(db.table("a").unwrap().iter().map(Result::unwrap).count(), 8000);
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// A few rows come to level 0.
fn bring_to_level0(
    db: &Database,
    (rows, count): (&Table, u64),
    table: &Arc<TableCore>,
    round: u64,
) {
    for n in 0..count {
        let (key, value) = row(n, round);
        rows.durability(Durability::Relaxed).put(&key, &value).unwrap();
    }
    assert!(freeze(&db.inner.ctx, table));
    while !table.view().frozen.is_empty() {
        assert!(db.step().unwrap());
    }
    // What was drained may still lie beside them: readers of other tests hold back what frees.
    let view = table.view();
    let mut cursor = view.level0.cursor(&view.version.drained);
    cursor.seek(b"", LSN_MAX).unwrap();
    let mut records = 0;
    while cursor.entry().is_some() {
        records += 1;
        cursor.next().unwrap();
    }
    assert_eq!(records, count);
}

/// Bug: a drain waited for a compaction to end, and writers for the drain.
/// Cause: where a column has little below it in level 1 it is merged with that, and the compaction
/// had claimed it.
/// Fix: over what is claimed a column is laid, however little there is.
#[test]
fn a_drain_does_not_wait_for_the_little_that_is_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
    let ctx = &*db.inner.ctx;
    let drain = || run(&db.inner.scheduler, JobKind::Drain);
    let rows = db.table("t").unwrap();
    let table = table_called(ctx, "t");
    let bring = |round| bring_to_level0(&db, (&rows, 20), &table, round);
    let ids = |sublevel| {
        let version = Arc::clone(&table.view().version);
        let extents = version.overlapping(sublevel, &KeyInterval::all()).iter();
        extents.map(|extent| extent.meta().id).collect::<Vec<_>>()
    };
    bring(0);
    assert!(drain());
    let below = ids(SUBLEVELS);
    let bytes = table.view().version.level(SUBLEVELS).unwrap().bytes();
    assert!(below.len() == 1 && (1..=ctx.shape().little_bytes).contains(&bytes), "{bytes}");
    bring(1);
    let claims = &ctx.claims;
    let claim = claims.claim(table.id(), ClaimedKeys::in_all_levels(KeyInterval::all())).unwrap();
    assert!(drain(), "it waits for what is claimed");
    assert_eq!(ids(SUBLEVELS), below, "what is claimed is left alone");
    assert_eq!(ids(SUBLEVELS - 1).len(), 1, "what was drained lies over it");
    for n in 0..20 {
        let (key, value) = row(n, 1);
        assert_eq!(rows.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    drop(claim);
    run_until_idle(&db);
    assert_eq!(db.verify().unwrap().damages.len(), 0);
}

/// Bug: while a compaction with objects went on, drains of its keys used up the sublevels above it,
/// and writers waited for the store.
/// Cause: it claimed its keys in all levels, so nothing made room above it.
/// Fix: it claims the lower sublevels alone, and the upper ones become one again and again.
#[test]
fn drains_go_on_above_a_compaction_that_takes_long() {
    // More bytes than a drain merges with what little lies below.
    const ROWS: u64 = 200;
    const ROUNDS: u64 = 40;
    let rounds = |claimed: ClaimedKeys| {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(2 << 20).stepped().create(dir.path()).unwrap();
        let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
        let rows = db.table("t").unwrap();
        let table = table_called(ctx, "t");
        bring_to_level0(&db, (&rows, ROWS), &table, 0);
        assert!(run(scheduler, JobKind::Drain));
        let claim = ctx.claims.claim(table.id(), claimed).unwrap();
        let goes_on = |round: &u64| {
            bring_to_level0(&db, (&rows, ROWS), &table, *round);
            let drained = run(scheduler, JobKind::Drain);
            while run(scheduler, JobKind::Compact) {}
            drained
        };
        let rounds = (1..=ROUNDS).take_while(goes_on).count() as u64;
        drop(claim);
        run_until_idle(&db);
        for n in 0..ROWS {
            let (key, value) = row(n, (rounds + 1).min(ROUNDS));
            assert_eq!(rows.get(&key).unwrap().as_deref(), Some(&value[..]));
        }
        assert_eq!(db.verify().unwrap().damages.len(), 0);
        rounds
    };
    let lower = (SPARED_SUBLEVELS + 1, LEVEL_2);
    assert_eq!(rounds(ClaimedKeys::new(KeyInterval::all(), lower)), ROUNDS);
    let all = rounds(ClaimedKeys::in_all_levels(KeyInterval::all()));
    assert!(
        all < u64::from(SUBLEVELS),
        "{all} rounds: the test sees what a claim on all levels does"
    );
}

/// The background is stopped where it asks for the table index, and so links nothing.
#[test]
fn zones_are_ready_whatever_the_background_is_at() {
    let directory = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(16 << 20).create(directory.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let ctx = &*db.inner.ctx;
    assert_eq!(ctx.shared.region.mode(), "file");
    let index = ctx.tables.index();
    let (free, mut key) = (ctx.shared.zones.free(), 0u32);
    while free - ctx.shared.zones.free() < 16 {
        table.put(key.to_be_bytes(), [1; 4000]).unwrap();
        key += 1;
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while ctx.shared.committer.lacks_standby().is_some() {
        assert!(Instant::now() < deadline, "only a writer that needs a zone links one");
        std::thread::yield_now();
    }
    drop(index);
    db.close().unwrap();
}

/// Makes a database whose level 1 has more than it may have of a smaller one: rows of rounds.
fn filled(dir: &tempfile::TempDir, options: Options, rounds: [(&str, u64); 3]) {
    let db = options.level1_size(64 << 20).create(dir.path()).unwrap();
    for (name, round) in rounds {
        let table = db.table(name).unwrap();
        for n in 0..6_000 {
            let (key, value) = row(n, round);
            table.durability(Durability::Relaxed).put(&key, &value).unwrap();
            if n % 20 == 0 {
                run_until_idle(&db);
            }
        }
    }
    db.close().unwrap();
}

/// A worker that finds a table's change taken looks at other tables, and is not held up.
#[test]
fn a_compaction_is_planned_while_another_table_is_being_changed() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(2 << 20).stepped();
    filled(&dir, options(), [("a", 0), ("b", 0), ("filler", 0)]);

    let db = options().level1_size(64 << 10).open(dir.path()).unwrap();
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    let a = table_called(ctx, "a");
    let change = a.change();
    let plan = job.plan(ctx, Work::Any).unwrap();
    assert_eq!(plan.table().name(), "b", "the first one that is free");
    drop((plan, change));
    assert_eq!(
        job.plan(ctx, Work::Any).unwrap().table().name(),
        "a",
        "it was passed over, not forgotten"
    );
}

/// Bug: a thread that compacts files could send objects, and writers then waited for a slow store.
/// Cause: whether a compaction puts objects was asked when it was chosen and once more when it ran.
/// Between the two the table's cold levels could become objects. Fix: the plan says it.
#[test]
fn a_compaction_in_files_stays_one_when_the_table_changes_its_tier() {
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let options = || Options::new().pm_size(2 << 20).stepped().object_store(server.url());
    filled(&dir, options(), [("t", 0), ("t", 1), ("filler", 0)]);

    let db = options().level1_size(64 << 10).open(dir.path()).unwrap();
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    let table = table_called(ctx, "t");
    let look = job.look_at(ctx, Arc::clone(&table), (ctx.rest(), Work::Files));
    let Look::Found(plan) = look else { panic!("{:?}", ctx.shape()) };
    db.set_cold_tier("t", Tier::Object).unwrap();
    assert!(job.run(&plan, ctx, &|_| Ok(())).unwrap().did);
    assert_eq!((ctx.metrics.compactions.get(), ctx.metrics.moves.get()), (1, 0), "a merge");
    let version = Arc::clone(&table.view().version);
    assert!(version.level(LEVEL_2).is_some_and(|level| !level.is_empty()));
    assert!(!version.has_objects(), "objects were sent");
}

/// Bug: a move set the size of a table's jobs back, and the next one was too large for the disk
/// once more. Cause: each success did. Fix: a move does not, since it writes nothing.
#[test]
fn a_move_says_nothing_about_the_room_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options::new().pm_size(2 << 20).stepped();
    filled(&dir, options(), [("t", 0), ("t", 1), ("filler", 0)]);

    let db = options().level1_size(64 << 10).open(dir.path()).unwrap();
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    let done = || [&ctx.metrics.moves, &ctx.metrics.compactions].map(|n| n.get());
    while let Some(plan) = job.plan(ctx, Work::Any) {
        let before = done();
        plan.table().allow_large_jobs();
        plan.table().halve_jobs(false);
        assert!(job.run(&plan, ctx, &|_| Ok(())).unwrap().did);
        let moves = done()[0] - before[0];
        assert_eq!(u64::from(plan.table().job_halvings()), moves, "{before:?}, {:?}", done());
    }
    assert!(done().iter().all(|n| *n > 0), "{:?}", done());
}

/// Bug: a table with objects had small jobs for good after one that found no room. Cause: a thread
/// that found nothing left the table to the others before it asked whether a larger job may have
/// something to do. Fix: it asks, once none of them would find anything.
#[test]
fn a_table_with_objects_gets_large_jobs_again_where_no_thread_finds_a_small_one() {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = || Options::new().pm_size(4 << 20).machine(&machine).stepped();
    let db = options().object_store(server.url()).create("/db").unwrap();
    let rows = db.create_table("t", TableOptions::new().cold(Tier::Object)).unwrap();
    (0..200).map(|n| row(n, 0)).for_each(|(key, value)| rows.put(&key, &value).unwrap());
    db.compact_range(&rows, ..).unwrap();
    run_until_idle(&db);
    db.close().unwrap();
    for (tier, halvings) in [(Tier::Object, [0, 0]), (Tier::Ssd, [1, 0])] {
        // An opening looks at all tables.
        let db = options().object_store(server.url()).open("/db").unwrap();
        let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
        let table = table_called(ctx, "t");
        assert!(table.view().version.has_objects());
        if tier == Tier::Ssd {
            db.set_cold_tier("t", tier).unwrap();
        }
        table.halve_jobs(false);
        assert!(job.plan(ctx, Work::Files).is_none());
        let found = job.plan(ctx, Work::Objects);
        assert_eq!(found.is_some(), tier == Tier::Ssd, "objects are brought back");
        let before = table.job_halvings();
        let done = found.is_none_or(|plan| job.run(&plan, ctx, &|_| Ok(())).unwrap().did);
        assert_eq!((done, [before, table.job_halvings()]), (true, halvings), "{tier:?}");
        db.close().unwrap();
    }
}

/// Bug: on a full disk what brought objects back to this machine took the space that is kept for
/// jobs that free some. Cause: each compaction was taken for one. Fix: one that leaves more in
/// files than it takes out of them is none.
#[test]
fn what_brings_objects_back_leaves_what_is_kept_for_jobs_that_make_space() {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let options = Options::new().pm_size(4 << 20).machine(&machine).stepped();
    let db = options.object_store(server.url()).create("/db").unwrap();
    let rows = db.create_table("t", TableOptions::new().cold(Tier::Object)).unwrap();
    (0..200).map(|n| row(n, 0)).for_each(|(key, value)| rows.put(&key, &value).unwrap());
    db.compact_range(&rows, ..).unwrap();
    run_until_idle(&db);
    db.set_cold_tier("t", Tier::Ssd).unwrap();
    let (ctx, job, store) =
        (&*db.inner.ctx, &db.inner.scheduler.jobs.compact, db.inner.set.store());
    let table = table_called(ctx, "t");
    assert!(table.view().version.has_objects());
    store.refill_reserve().unwrap();
    machine.set_capacity(Some(0));
    let taken: Vec<_> = std::iter::from_fn(|| store.reserve_space(1, false).ok()).collect();
    drop(store.reserve_space(200 << 10, true).unwrap());
    let run = || {
        let look = job.look_at(ctx, Arc::clone(&table), (ctx.rest(), Work::Objects));
        let Look::Found(plan) = look else { panic!("{:?}", ctx.shape()) };
        job.run(&plan, ctx, &|_| Ok(()))
    };
    assert_eq!(run().err().map(|e| e.kind()), Some(ErrorKind::Full));
    drop(taken);
    machine.set_capacity(None);
    assert!(run().unwrap().did);
    assert!(!table.view().version.has_objects());
}

/// Bug: on a disk that fills, compactions never got smaller. Cause: each drain set their size back,
/// and drains had the room in which a smaller compaction would have fitted. Fix: a drain leaves it,
/// unless it moved deletes out of turn.
#[test]
fn a_drain_in_turn_leaves_the_size_of_compactions() {
    let machine = Machine::with_files();
    let db = Options::new().pm_size(2 << 20).stepped().machine(&machine).create("/db").unwrap();
    let rows = db.table("t").unwrap();
    (0..20).map(|n| row(n, 0)).for_each(|(key, value)| rows.put(&key, &value).unwrap());
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    let table = table_called(ctx, "t");
    assert!(freeze(ctx, &table) && run(scheduler, JobKind::MergeMemtables));
    table.halve_jobs(true);
    assert!(scheduler.jobs.drain.step(ctx).unwrap().drained.is_some());
    assert_eq!((table.job_halvings(), table.underestimates()), (1, 1));
}

/// Takes the journal's room for edits that free space, on a disk without any more.
fn leave_no_edit<'a>(machine: &Machine, set: &'a VersionSet) -> Vec<EditReservation<'a>> {
    drop(set.store().reserve_space(32 << 20, true).unwrap());
    // Extents give the journal nothing.
    set.store().keep_reserve(1 << 30);
    let taken = machine.list("/db".as_ref()).into_iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(taken));
    let none = Op::Counters { next_table: 0, next_extent: 0, table_event_lsn: 0 };
    let edit = |ops| Edit { ops: vec![none.clone(); ops] };
    let one = |ops| set.reserve_edits([edit(ops)].into_iter(), Room::Freeing).ok();
    let all = |ops| std::iter::from_fn(move || one(ops));
    [1000, 1].into_iter().flat_map(all).collect()
}

/// Bug: on a full disk a compaction was made whose edit found no room in the journal, again and
/// again, each time in vain. Cause: the room was looked for once all was written. Fix: it is looked
/// for before.
#[test]
fn a_compaction_without_room_for_its_edit_writes_nothing() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &[]);
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    let held = leave_no_edit(&machine, &ctx.set);
    let run = || {
        let look = job.look_at(ctx, table_called(ctx, "a"), (ctx.rest(), Work::Any));
        let Look::Found(plan) = look else { panic!("{:?}", ctx.shape()) };
        job.run(&plan, ctx, &|_| Ok(()))
    };
    let before = ctx.set.store().bytes_written();
    let full = run().err().unwrap();
    assert!(full.to_string().contains("journal"), "{full}");
    assert_eq!(ctx.set.store().bytes_written(), before, "it wrote in vain");
    drop(held);
    assert!(run().unwrap().did && ctx.set.store().bytes_written() > before);
}

/// Bug: on a full disk a drain was made whose edit found no room in the journal, again and again,
/// each time in vain. Cause: the room was looked for once all was written. Fix: it is looked for
/// before, for all columns of the drain.
#[test]
fn a_drain_without_room_for_its_edit_writes_nothing() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &[]);
    let (ctx, scheduler) = (&*db.inner.ctx, &*db.inner.scheduler);
    for name in (0..16).map(|n| format!("t{n}")) {
        let rows = db.table(&name).unwrap();
        (0..4).map(|n| row(n, 0)).for_each(|(key, value)| rows.put(&key, &value).unwrap());
        // A drain of deletes has the reserves.
        rows.delete_range(..row(1, 0).0).unwrap();
        assert!(freeze(ctx, &table_called(ctx, &name)));
    }
    while run(scheduler, JobKind::MergeMemtables) {}
    let mut held = leave_no_edit(&machine, &ctx.set);
    ctx.shared.zones.set_freeing_only(true);
    let mut in_vain = 0;
    loop {
        let before = ctx.set.store().bytes_written();
        match scheduler.jobs.drain.step(ctx) {
            Ok(outcome) => break assert!(outcome.drained.is_some()),
            Err(full) => assert_eq!(full.kind(), ErrorKind::Full, "{full}"),
        }
        assert_eq!(ctx.set.store().bytes_written(), before, "it wrote in vain");
        in_vain += 1;
        held.pop().unwrap();
    }
    assert!(in_vain > 1, "all had room");
}

/// Bug: on a full disk tables could not be dropped while compactions ran. Cause: each kept the room
/// of its edit, out of the journal's reserve, as long as it ran. Fix: it looks for it, and keeps
/// none.
#[test]
fn a_compaction_leaves_the_room_of_its_edit_to_what_frees_space_sooner() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &[]);
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    drop(leave_no_edit(&machine, &ctx.set));
    // Shorter than that of a drop.
    let shortest = || ctx.set.reserve_edits([Edit { ops: Vec::new() }].into_iter(), Room::Freeing);
    let mut held: Vec<_> = std::iter::from_fn(|| shortest().ok()).collect();
    let dropped = OnceCell::new();
    let drops = |_: u64| {
        dropped.get_or_init(|| db.drop_table("filler"));
        Ok(())
    };
    while dropped.get().is_none() {
        // As little room as it begins with.
        held.pop().unwrap();
        let look = job.look_at(ctx, table_called(ctx, "a"), (ctx.rest(), Work::Any));
        let Look::Found(plan) = look else { panic!("{:?}", ctx.shape()) };
        let full = job.run(&plan, ctx, &drops).err();
        assert!(full.is_none_or(|e| e.kind() == ErrorKind::Full));
    }
    dropped.into_inner().unwrap().unwrap();
}

/// Bug: after edits that found no room in the journal a compaction of deletes was promised all that
/// it reads, and had no room to begin. Cause: a want of room for the edit counted as an extent
/// beyond the promise. Fix: only a merge that fails counts.
#[test]
fn an_edit_without_room_is_no_promise_that_was_too_small() {
    let machine = Machine::with_files();
    let db = large_and_small(&machine, &[]);
    let (ctx, job) = (&*db.inner.ctx, &db.inner.scheduler.jobs.compact);
    let (set, table) = (&ctx.set, table_called(ctx, "a"));
    let held = leave_no_edit(&machine, set);
    let run = || {
        let look = job.look_at(ctx, Arc::clone(&table), (ctx.rest(), Work::Any));
        let Look::Found(plan) = look else { panic!("{:?}", ctx.shape()) };
        job.run(&plan, ctx, &|_| Ok(()))
    };
    let full = run().err().unwrap();
    assert!(full.to_string().contains("journal"), "{full}");
    assert_eq!((table.job_halvings(), table.underestimates()), (1, 0), "{full}");
    drop(held);
    assert!(run().unwrap().did);
}

/// Bug: each restart on a full disk gave puts a piece of the extents' reserve. Cause: that it was
/// used, and that only commits which free space go on, was known to the process alone. Fix: so it
/// is too where an opening finds less than its least amount.
#[test]
fn an_opening_without_the_least_reserve_serves_only_what_frees() {
    for is_used in [false, true] {
        let machine = Machine::with_files();
        let options = || Options::new().pm_size(2 << 20).stepped().machine(&machine);
        let db = options().create("/db").unwrap();
        let rows = db.table("t").unwrap();
        (0..200).map(|n| row(n, 0)).for_each(|(key, value)| rows.put(&key, &value).unwrap());
        db.compact_range(&rows, ..).unwrap();
        run_until_idle(&db);
        let store = db.inner.set.store();
        store.refill_reserve().unwrap();
        if is_used {
            store.keep_reserve(0);
        }
        store.give_back_all().unwrap();
        let taken = machine.list("/db".as_ref()).into_iter().map(|(_, len)| len).sum();
        db.close().unwrap();
        machine.set_capacity(Some(taken));
        let db = options().open("/db").unwrap();
        assert_eq!(db.inner.ctx.shared.zones.is_freeing_only(), is_used);
        machine.set_capacity(None);
        run_until_idle(&db);
        assert!(!db.inner.ctx.shared.zones.is_freeing_only(), "the reserve is whole");
    }
}
