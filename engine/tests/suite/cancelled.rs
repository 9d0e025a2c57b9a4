//! Work that is cancelled wherever a database lies: what it leaves, and that the same work comes to
//! its end afterwards. Calls of the database inside of the function that is told.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::content::{Content, read_all};
use crate::common::{indexed, tiny, wait_until};
use terrace::{
    Database, Durability, ErrorKind, Level0Container, Options, Progress, TableOptions, Tier,
};

/// Where a database lies, and what it has beside extents and zones.
struct World {
    name: &'static str,
    options: fn(&Path) -> Options,
    tables: fn() -> TableOptions,
}

fn bucket(dir: &Path) -> String {
    format!("file://{}", dir.join("bucket").display())
}

const WORLDS: [World; 5] = [
    World { name: "plain", options: |_| tiny().stepped(), tables: TableOptions::new },
    World {
        name: "persistent index",
        options: |dir| indexed().pm_path(dir.join("region")),
        tables: TableOptions::new,
    },
    World {
        name: "row tables",
        options: |_| tiny().stepped(),
        tables: || TableOptions::new().level0(Level0Container::Matrix),
    },
    World {
        name: "bucket",
        options: |dir| tiny().stepped().object_store(bucket(dir)),
        tables: || TableOptions::new().cold(Tier::Object),
    },
    World {
        name: "shared",
        options: |dir| tiny().stepped().object_store(bucket(dir)).share(true),
        tables: TableOptions::new,
    },
];

/// Keeps what is told of an operation, and breaks at call number `breaks_at`.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Progress>>>);

impl Told {
    fn of(&self, options: Options, operation: &'static str, breaks_at: Option<usize>) -> Options {
        let kept = Arc::clone(&self.0);
        options.on_progress(move |at| {
            let mut kept = kept.lock().unwrap();
            if at.operation == operation {
                kept.push(*at);
            }
            match at.operation == operation && breaks_at == Some(kept.len() - 1) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    }

    fn taken(&self) -> Vec<Progress> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Two tables with rows in zones, in level 0 and in levels.
fn fill(db: &Database, world: &World) -> Content {
    for name in ["a", "b"] {
        let table = db.create_table(name, (world.tables)()).unwrap();
        for n in 0..400_u32 {
            let word = n.wrapping_mul(0x9E37_79B9).to_be_bytes();
            table.put(word, word.repeat(150)).unwrap();
            while db.step().unwrap() {}
            if n == 150 {
                db.compact_range(&table, ..).unwrap();
            }
        }
    }
    read_all(db).unwrap()
}

fn check(db: &Database, content: &Content, case: &str) {
    assert_eq!(read_all(db).unwrap().differs_from(content), None, "{case}");
    assert!(db.verify().unwrap().is_sound(), "{case}");
}

#[test]
fn an_opening_that_is_cancelled_anywhere_is_made_again_wherever_the_database_lies() {
    for world in &WORLDS {
        let dir = tempfile::tempdir().unwrap();
        let (options, path) = ((world.options)(dir.path()), dir.path().join("db"));
        let (name, told) = (world.name, Told::default());
        // What was just made is there whatever the function says.
        let db = told.of(options.clone(), "open", Some(0)).create(&path).unwrap();
        assert_eq!(told.taken(), [], "{name}");
        let content = fill(&db, world);
        db.close().unwrap();
        let open = |breaks_at| told.of(options.clone(), "open", breaks_at).open_existing(&path);
        open(None).unwrap().close().unwrap();
        let calls = told.taken();
        assert!(calls.len() > 3 && calls.is_sorted_by_key(|at| at.done), "{name}: {calls:?}");
        for breaks_at in [0, 1, calls.len() / 2, calls.len() - 2, calls.len() - 1] {
            let case = format!("{name}, call {breaks_at} of {}", calls.len());
            let error = open(Some(breaks_at)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{case}: {error}");
            assert_eq!(told.taken().len(), breaks_at + 1, "{case}: no call follows");
            let db = options.clone().open_existing(&path).unwrap();
            check(&db, &content, &case);
            db.close().unwrap();
        }
    }
}

/// Bug: an opening that was cancelled took the seal off a persistent index, so that damage which
/// came later went unseen. Cause: the seal went when the index was found, before anything was to be
/// written. Fix: it goes with the first write of the opening.
#[test]
fn a_cancelled_opening_leaves_a_persistent_index_sealed_unless_it_has_written() {
    let (dir, told) = (tempfile::tempdir().unwrap(), Told::default());
    let (options, path) = ((WORLDS[1].options)(dir.path()), dir.path().join("db"));
    let db = options.clone().create(&path).unwrap();
    let content = fill(&db, &WORLDS[1]);
    db.close().unwrap();
    let bytes = |name: &str| fs::read(dir.path().join(name)).unwrap();
    let (region, index) = (bytes("region"), bytes("region.index"));
    let mut unwritten = 0;
    for breaks_at in 0.. {
        let opened = told.of(options.clone(), "open", Some(breaks_at)).open_existing(&path);
        told.taken();
        let Err(error) = opened else { break };
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{breaks_at}: {error}");
        if bytes("region") != region {
            break;
        }
        assert!(bytes("region.index") == index, "call {breaks_at} changed the index");
        unwritten += 1;
    }
    // Of the index, and of zones behind it.
    assert!(unwritten > 3, "{unwritten} calls come before the first write");
    let sealed = |path: &Path| {
        let db = options.clone().open_existing(path).unwrap();
        check(&db, &content, "at last");
        let checked = db.stats().open.index_bytes_checked;
        db.close().unwrap();
        checked
    };
    // The last one had written. What it left is an index that was not closed.
    assert_eq!(sealed(&path), 0);
    assert!(sealed(&path) > 0);
    let error = told.of(options.clone(), "open", Some(1)).open_existing(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert!(sealed(&path) > 0, "it was held against its seal");
}

/// Of what followers, standbys and takeovers open by themselves nothing is told, and nothing of it
/// can be ended. What a user asks of their databases can.
#[test]
fn nodes_of_a_shared_database_are_not_cancelled() {
    let (dir, told) = (tempfile::tempdir().unwrap(), Told::default());
    let (url, at) = (bucket(dir.path()), |name: &str| dir.path().join(name));
    let writer = tiny().object_store(&url).share(true).create(at("writer")).unwrap();
    let table = writer.create_table("t", TableOptions::new()).unwrap();
    for n in 0..500_u32 {
        table.durability(Durability::Relaxed).put(n.to_be_bytes(), [7; 500]).unwrap();
    }
    table.durability(Durability::Remote).put("last", "row").unwrap();
    let content = read_all(&writer).unwrap();
    let options = |operation| told.of(tiny(), operation, Some(0));
    let follower = options("open").follow(&url, at("follower")).unwrap();
    wait_until("the follower has the last row", || {
        let table = follower.database().unwrap().existing_table("t");
        table.is_ok_and(|table| table.get("last").unwrap().is_some())
    });
    follower.close().unwrap();
    assert_eq!(told.taken(), []);
    let follower = options("verify").follow(&url, at("follower")).unwrap();
    let db = follower.database().unwrap();
    assert_eq!(db.verify().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(db.verify().unwrap().is_sound(), "one call in all is ended");
    drop(db);
    follower.close().unwrap();
    told.taken();
    let taken = options("open").open_shared(&url, at("taken")).unwrap();
    assert_eq!(told.taken(), []);
    assert_eq!(read_all(&taken).unwrap().differs_from(&content), None);
    taken.close().unwrap();
    // From then on it is an opening as any other.
    let again = |options: Options| options.object_store(&url).share(true).open(at("taken"));
    assert_eq!(again(options("open")).unwrap_err().kind(), ErrorKind::Cancelled);
    let taken = again(tiny()).unwrap();
    assert_eq!(read_all(&taken).unwrap().differs_from(&content), None);
    taken.close().unwrap();
    drop(writer);
}

/// What a call of the database gives inside of the function.
type Inside = fn(&Database) -> terrace::Result<()>;

const INSIDE: [(&str, Inside); 17] = [
    ("put", |db| db.existing_table("a")?.put("k", "v")),
    ("get", |db| db.existing_table("a")?.get("k").map(drop)),
    ("range", |db| db.existing_table("a")?.range(..).try_for_each(|row| row.map(drop))),
    ("snapshot", |db| db.snapshot().map(drop)),
    ("run", |db| db.run(|txn| txn.put(&db.existing_table("a")?, "k", "v"))),
    ("table", |db| db.table("made").map(drop)),
    ("drop_table", |db| db.drop_table("b")),
    ("truncate_table", |db| db.truncate_table("b")),
    ("compact_range", |db| db.compact_range(&db.existing_table("a")?, ..).map(drop)),
    ("verify", |db| db.verify().map(drop)),
    ("backup", |db| db.backup("nowhere/at/all").map(drop)),
    ("digest", |db| db.digest().map(drop)),
    ("dump", |db| db.dump(&terrace::DumpOptions::new(), Vec::new()).map(drop)),
    ("sync", Database::sync),
    ("grow_pm", |db| db.grow_pm(4 << 20).map(drop)),
    ("refresh", |db| db.refresh().map(drop)),
    ("close", |db| db.clone().close()),
];

/// Bug: a function that was told of progress and called the database hung, or had others hang.
/// Cause: the work waited for the function, and the call for the work. Fix: such a call fails, as
/// that of a merge operator does. Calls of other databases go on.
#[test]
fn calls_of_the_database_inside_of_the_function_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = tiny().open(dir.path().join("other")).unwrap().table("a").unwrap();
    let held = Arc::new(Mutex::new(None::<Database>));
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (of_function, kept) = (Arc::clone(&held), Arc::clone(&answers));
    let options = tiny().stepped().on_progress(move |at| {
        // Only what is told of while it is kept.
        let db = of_function.lock().unwrap().clone();
        let Some(db) = db else { return ControlFlow::Continue(()) };
        other.put("k", "v").unwrap();
        for (name, inside) in INSIDE {
            kept.lock().unwrap().push((at.operation, name, inside(&db)));
        }
        ControlFlow::Continue(())
    });
    let db = options.open(dir.path().join("db")).unwrap();
    let content = fill(&db, &WORLDS[0]);
    let works: [(&str, &dyn Fn()); 4] = [
        ("verify", &|| assert!(db.verify().unwrap().is_sound())),
        ("backup", &|| assert_eq!(db.backup(dir.path().join("set")).unwrap().number, 1)),
        ("digest", &|| drop(db.digest().unwrap())),
        ("close", &|| db.clone().close().unwrap()),
    ];
    for (operation, work) in works {
        if operation == "close" {
            assert_eq!(read_all(&db).unwrap().differs_from(&content), None);
        }
        *held.lock().unwrap() = Some(db.clone());
        work();
        *held.lock().unwrap() = None;
        let answers = std::mem::take(&mut *answers.lock().unwrap());
        assert!(answers.len() >= INSIDE.len(), "{operation}");
        for (of, name, answer) in answers {
            let (case, error) = (format!("{name} inside of {of}"), answer.expect_err(name));
            // A closing has shut the database by its second step.
            let is_closed = of == "close" && error.kind() == ErrorKind::Closed;
            assert!(is_closed || error.kind() == ErrorKind::Invalid, "{case}: {error}");
            assert!(is_closed || error.to_string().contains("progress"), "{case}: {error}");
        }
    }
}

/// Bug: work of another database that a function had begun told that function again, and so on.
/// Cause: the function of the call covered it. Fix: while it runs it covers nothing.
#[test]
fn a_function_is_not_told_of_work_that_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let [db, other] = ["db", "other"].map(|name| tiny().open(dir.path().join(name)).unwrap());
    let (deepest, depth) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let kept = Arc::clone(&deepest);
    let tell = move |_: &Progress| {
        let now = depth.fetch_add(1, Ordering::Relaxed) + 1;
        kept.fetch_max(now, Ordering::Relaxed);
        if now < 3 {
            other.verify().unwrap();
        }
        depth.fetch_sub(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    assert!(terrace::with_progress(tell, || db.verify()).unwrap().is_sound());
    assert_eq!(deepest.load(Ordering::Relaxed), 1);
}

/// Bug: what a verification had found was lost when it was cancelled, and nothing said where it had
/// not looked. Cause: it had no report then. Fix: its error has one.
#[test]
fn a_verification_that_is_cancelled_tells_what_it_found_and_where_it_did_not_look() {
    let (dir, told) = (tempfile::tempdir().unwrap(), Told::default());
    let (options, path) = ((WORLDS[0].options)(dir.path()), dir.path().join("db"));
    let db = options.clone().create(&path).unwrap();
    fill(&db, &WORLDS[0]);
    db.backup(dir.path().join("set")).unwrap();
    db.close().unwrap();
    let files = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let extents = files.filter(|file| file.to_string_lossy().contains("extents")).min().unwrap();
    let mut bytes = fs::read(&extents).unwrap();
    bytes[100] ^= 1;
    fs::write(&extents, bytes).unwrap();
    let whole = told.of(options.clone(), "verify", None).verify(&path).unwrap();
    assert!(!whole.damages.is_empty() && whole.not_checked.is_empty(), "{whole:?}");
    let calls = told.taken().len();
    let (mut found, mut parts) = (0, usize::MAX);
    for breaks_at in 0..calls - 1 {
        let options = told.of(options.clone(), "verify", Some(breaks_at));
        let error = options.verify(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        told.taken();
        let report = error.report().unwrap();
        assert!(report.damages.iter().all(|damage| whole.damages.contains(damage)), "{report:?}");
        assert!(report.not_checked.iter().all(|part| error.to_string().contains(part)), "{error}");
        assert!(report.damages.len() >= found && report.not_checked.len() <= parts, "{report:?}");
        assert!(report.checked <= whole.checked);
        assert!(!report.is_sound(), "not all was looked at");
        (found, parts) = (report.damages.len(), report.not_checked.len());
    }
    assert_eq!(found, whole.damages.len());
    assert!(parts > 0, "of the last part not all was looked at");
    // The last call comes behind all.
    let last = told.of(options.clone(), "verify", Some(calls - 1)).verify(&path).unwrap();
    assert_eq!((last.damages, last.not_checked.len()), (whole.damages, 0));
    told.taken();
    let set = told.of(options, "verify", Some(1)).backup_set(dir.path().join("set")).unwrap();
    let error = set.verify().unwrap_err();
    assert!(error.to_string().contains("backup 1, and those behind it"), "{error}");
}
