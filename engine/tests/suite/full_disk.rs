//! A full disk: what frees space works from the reserves that are kept for it, nothing is lost or
//! poisoned, and writers go on once there is space again.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::cuts::{KINDS, Kind, PATH, options};
use crate::common::wait_until;
use terrace::testing::{
    Call, CallSite, Fault, Faulty, FileKind, Machine, Outcome, Reason, Survive,
};
use terrace::{
    Database, Durability, Error, ErrorKind, Index, Level0Container, Mode, Options, TableOptions,
    WriteBatch,
};

mod deletes;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a table has, and what it should have.
type Tables = BTreeMap<String, Rows>;

const SOON: Duration = Duration::from_millis(150);

fn row(n: u32) -> (Vec<u8>, Vec<u8>) {
    // Neighbours in time are not neighbours by key.
    let key = n.wrapping_mul(0x9E37_79B1).to_be_bytes();
    // What does not compress: the disk is full after as many rows as it has room for.
    let mut word = u64::from(n) | 1 << 40;
    let value = (0..501).flat_map(|_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word ^ word >> 29).to_be_bytes()
    });
    (key.to_vec(), value.collect())
}

/// Puts one row; `false` if there is no space by the deadline.
fn put(db: &Database, table: &str, (key, value): &(Vec<u8>, Vec<u8>)) -> bool {
    let mut batch = WriteBatch::new();
    batch.put(&db.existing_table(table).unwrap(), key, value);
    match terrace::with_deadline(Instant::now() + SOON, || {
        db.write_with(&batch, Durability::Durable)
    }) {
        Ok(()) => true,
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Full | ErrorKind::Timeout), "{e}");
            false
        }
    }
}

/// Runs jobs until there is none to do, or none that can; the error of a full disk.
fn work(db: &Database) -> Option<Error> {
    for _ in 0..10_000 {
        match db.step() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(e) if e.kind() == ErrorKind::Full => return Some(e),
            Err(e) if e.to_string().contains("try again") => return Some(e),
            Err(e) => panic!("{e}"),
        }
    }
    panic!("jobs come to no end");
}

/// A database with two tables on a disk without any space, which refuses puts.
fn filled(machine: &Machine) -> (Database, Tables) {
    let db = options(machine, None).create(PATH).unwrap();
    let mut tables = Tables::new();
    for name in ["t", "other"] {
        db.table(name).unwrap();
        tables.insert(name.into(), Rows::new());
    }
    let mut n = 0;
    let mut fill = |most: u32| {
        while n < most {
            let (name, row) = (if n % 8 == 7 { "other" } else { "t" }, row(n));
            if !put(&db, name, &row) {
                return false;
            }
            tables.get_mut(name).unwrap().insert(row.0, row.1);
            n += 1;
            if n % 8 == 0 {
                work(&db);
            }
        }
        true
    };
    // Readers of other tests may keep zones for a while.
    wait_until("rows find space", || {
        work(&db);
        fill(1200)
    });
    let taken = machine.list(Path::new(PATH)).into_iter().map(|(_, len)| len).sum();
    machine.set_capacity(Some(taken));
    for _ in 0..2 {
        assert!(!fill(9000), "9000 rows do not fill it");
    }
    assert!(n > 1200 && n < 9000, "{n} rows fill it");
    assert!(work(&db).is_some(), "drains wait for space");
    (db, tables)
}

fn content(db: &Database) -> Tables {
    let rows = |name: &String| {
        let rows = db.existing_table(name).unwrap().iter().map(Result::unwrap);
        rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    db.table_names().into_iter().map(|name| (name.clone(), rows(&name))).collect()
}

/// Compares by numbers: whole tables would be printed otherwise.
fn check(db: &Database, tables: &Tables, what: &str) {
    let found = content(db);
    let counts = |tables: &Tables| -> Vec<(String, usize)> {
        tables.iter().map(|(name, rows)| (name.clone(), rows.len())).collect()
    };
    assert_eq!(counts(&found), counts(tables), "{what}");
    assert!(found == *tables, "{what}: other rows");
}

/// The calls that free space.
#[derive(Clone, Copy, Debug)]
enum Way {
    Delete,
    DeleteInTransaction,
    DeleteRange,
    Truncate,
    Drop,
}

const WAYS: [Way; 5] =
    [Way::Delete, Way::DeleteInTransaction, Way::DeleteRange, Way::Truncate, Way::Drop];

impl Way {
    /// Frees table `t`, or some of it.
    fn run(self, db: &Database, tables: &mut Tables) -> terrace::Result<()> {
        let table = db.existing_table("t")?;
        let rows = tables.get_mut("t").unwrap();
        let some: Vec<Vec<u8>> = rows.keys().step_by(3).take(150).cloned().collect();
        match self {
            Way::Delete => some.iter().try_for_each(|key| table.delete(key))?,
            Way::DeleteInTransaction => {
                let txn = db.begin()?;
                some.iter().try_for_each(|key| txn.delete(&table, key))?;
                txn.commit()?;
            }
            Way::DeleteRange => table.delete_range(..)?,
            Way::Truncate => db.truncate_table("t")?,
            Way::Drop => db.drop_table("t")?,
        }
        match self {
            Way::Delete | Way::DeleteInTransaction => rows.retain(|key, _| !some.contains(key)),
            Way::DeleteRange | Way::Truncate => rows.clear(),
            Way::Drop => drop(tables.remove("t")),
        }
        Ok(())
    }

    /// Whether so much comes free that puts go on without more disk.
    fn frees_much(self) -> bool {
        !matches!(self, Way::Delete | Way::DeleteInTransaction)
    }
}

/// Calls that need space: they work or are refused, and change nothing then.
fn need_space(db: &Database, tables: &mut Tables) {
    let may_be_full = |done: terrace::Result<()>| match done {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Full, "{e}");
            let told = e.to_string();
            assert!(told.contains("drop_table") && told.contains(" of "), "{told}");
            false
        }
    };
    if may_be_full(db.rename_table("other", "renamed")) {
        let rows = tables.remove("other").unwrap();
        tables.insert("renamed".into(), rows);
    }
    if may_be_full(db.create_table("new", terrace::TableOptions::new()).map(drop)) {
        tables.insert("new".into(), Rows::new());
    }
}

/// Opens what an end left; the disk is full still. All is there, and a table can be dropped.
fn opens_on_the_full_disk(machine: &Machine, tables: &Tables, what: &str) {
    let mut tables = tables.clone();
    let db = options(machine, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
    check(&db, &tables, what);
    let name = tables.keys().next().unwrap().clone();
    db.drop_table(&name).unwrap_or_else(|e| panic!("{what}: {e}"));
    tables.remove(&name);
    work(&db);
    check(&db, &tables, what);
    assert!(db.verify().unwrap().damages.is_empty(), "{what}");
}

/// Bug: on a full disk deletes, range deletes, truncations and drops were refused as `Full`, though
/// that error says to free space. Cause: all commits had the same right to the region, and edits to
/// the journal. Fix: both keep a reserve for what frees space.
#[test]
fn what_frees_space_works_on_a_full_disk_and_writers_go_on() {
    for kind in KINDS {
        for way in WAYS {
            let what = format!("{kind:?}, {way:?}");
            let machine = kind.machine();
            let (db, mut tables) = filled(&machine);
            way.run(&db, &mut tables).unwrap_or_else(|e| panic!("{what}: {e}"));
            check(&db, &tables, &what);
            opens_on_the_full_disk(&machine.crash(Survive::Nothing), &tables, &what);
            let tries = if way.frees_much() { 200 } else { 3 };
            let went_on = (0..tries).any(|n| {
                work(&db);
                goes_on(&db, &mut tables, n)
            });
            assert!(went_on || !way.frees_much(), "{what}: no space came free");
            if went_on {
                need_space(&db, &mut tables);
            }
            check(&db, &tables, &what);
            opens_on_the_full_disk(&machine.crash(Survive::Nothing), &tables, &what);
            opens_on_the_full_disk(&machine.kill(), &tables, &what);
            check(&db, &tables, &what);
            machine.set_capacity(None);
            wait_until(&format!("{what}: a put finds space"), || {
                work(&db);
                goes_on(&db, &mut tables, 1000)
            });
            check(&db, &tables, &what);
            let after = machine.crash(Survive::Seeded(7));
            let db = options(&after, None).open(PATH).unwrap();
            check(&db, &tables, &what);
            assert!(db.verify().unwrap().damages.is_empty(), "{what}");
        }
    }
}

/// Bug: after an opening drains found no space on a disk that others had filled since. Cause: the
/// reserve of the extent files was known to the process alone. Fix: an opening finds it again
/// before another file or job may take it.
#[test]
fn an_opening_finds_the_reserve_again() {
    for kind in KINDS {
        let machine = kind.machine();
        let db = options(&machine, None).create(PATH).unwrap();
        let mut tables = Tables::from([("t".to_string(), Rows::new())]);
        let put_some = |db: &Database, tables: &mut Tables, from: u32| {
            let table = db.table("t").unwrap();
            for n in from..from + 40 {
                assert!(put(db, "t", &row(n)));
                tables.get_mut("t").unwrap().extend([row(n)]);
            }
            db.compact_range(&table, ..).map(drop)
        };
        put_some(&db, &mut tables, 0).unwrap();
        // It gives back what no extent has.
        db.close().unwrap();
        let db = options(&machine, None).open(PATH).unwrap();
        let taken = machine.list(Path::new(PATH)).into_iter().map(|(_, len)| len).sum();
        machine.set_capacity(Some(taken));
        put_some(&db, &mut tables, 40).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        check(&db, &tables, "on a full disk");
    }
}

/// Bug: a backup that met a full disk kept all that it had copied by then, and writers lacked it.
/// Cause: only the end of a backup that was made gave space back. Fix: each end does, and a
/// manifest that does not get its name is removed.
#[test]
fn a_backup_that_fails_leaves_nothing_and_writers_go_on() {
    let set = Path::new("/set");
    let bytes = |machine: &Machine, path: &Path| -> u64 {
        machine.list(path).into_iter().map(|(_, len)| len).sum()
    };
    let sites = [
        (Call::Write, FileKind::SetExtents),
        (Call::Sync, FileKind::SetExtents),
        (Call::Create, FileKind::NewManifest),
        (Call::Write, FileKind::NewManifest),
        (Call::Sync, FileKind::NewManifest),
        (Call::Rename, FileKind::Manifest),
    ];
    let sites = sites.map(|(call, file)| Some(CallSite { call, file }));
    // None: there is space for a part of what is copied.
    for site in [None].into_iter().chain(sites) {
        for earlier in [0, 1] {
            let what = format!("{site:?} after {earlier}");
            let machine = Kind::Files.machine();
            let db = options(&machine, None).create(PATH).unwrap();
            let table = db.table("t").unwrap();
            let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
            let rows: Rows = (0..2000).map(row).collect();
            rows.iter().for_each(|(key, value)| load.put(key, value).unwrap());
            load.finish().unwrap();
            let mut tables = Tables::from([("t".to_string(), rows)]);
            for _ in 0..earlier {
                db.backup(set).unwrap();
                db.compact_range(&table, ..).unwrap();
                for n in 2000..2400 {
                    assert!(put(&db, "t", &row(n)), "{what}");
                    tables.get_mut("t").unwrap().extend([row(n)]);
                    work(&db);
                }
            }
            let before = bytes(&machine, set);
            match site {
                None => {
                    let taken = bytes(&machine, Path::new(PATH)) + before;
                    let more = if earlier == 0 { 5 << 20 } else { 1 << 20 };
                    machine.set_capacity(Some(taken + more));
                }
                Some(site) => {
                    let (of, outcome) = (Faulty::Site(site), Outcome::Undone);
                    let reason = Reason::NoSpace;
                    machine.fail(Fault { of, nth: 1, outcome, reason, for_good: false });
                }
            }
            let error = db.backup(set).expect_err(&what);
            assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable), "{error}");
            let names: Vec<String> = machine.list(set).into_iter().map(|(name, _)| name).collect();
            assert!(!names.iter().any(|name| name.ends_with(".new")), "{what}: {names:?}");
            let after = bytes(&machine, set);
            assert!(after <= before, "{what}: {after} bytes of {before} stay");
            db.create_table("new", terrace::TableOptions::new()).unwrap();
            tables.insert("new".into(), Rows::new());
            for n in 3000..3040 {
                assert!(put(&db, "new", &row(n)), "{what}");
                tables.get_mut("new").unwrap().extend([row(n)]);
                assert!(work(&db).is_none(), "{what}");
            }
            check(&db, &tables, &what);
            machine.mend();
            let info = db.backup(set).unwrap();
            assert_eq!(info.number, earlier + 1, "{what}");
            let backups = options(&machine, None).backup_set(set).unwrap();
            assert!(backups.verify().unwrap().damages.is_empty(), "{what}");
            assert_eq!(backups.list().unwrap().len() as u64, earlier + 1, "{what}");
        }
    }
}

/// Whether an ordinary put goes on.
fn goes_on(db: &Database, tables: &mut Tables, n: u32) -> bool {
    let name = tables.keys().next().unwrap().clone();
    let row = row(1_000_000 + n);
    let done = put(db, &name, &row);
    if done {
        tables.get_mut(&name).unwrap().insert(row.0, row.1);
    }
    done
}

/// What a run of calls came to while one site has no space.
#[derive(Debug, Default)]
struct Seen {
    struck: u64,
    refused: u64,
    unknown: u64,
}

/// Runs tables' events, drains, compactions and a growth. Every call works, or is refused as
/// `Full` and can be made again; only a journal that finds no space where it had asked for it may
/// leave an event in doubt.
fn meet_full(kind: Kind, fault: Fault, seen: &mut Seen) -> bool {
    let site = fault.of;
    let what = format!("{kind:?}, {fault:?}");
    let machine = kind.machine();
    let db = options(&machine, None).create(PATH).unwrap();
    let mut tables = Tables::new();
    for name in ["t", "other", "third"] {
        db.table(name).unwrap();
        tables.insert(name.into(), Rows::new());
    }
    let before: u64 = machine.failed_calls().values().sum();
    machine.fail(fault);
    let mut n = 0;
    let mut in_doubt = None;
    for round in 0..6 {
        for _ in 0..100 {
            let name = if n % 2 == 0 { "t" } else { "other" };
            n += 1;
            if !put(&db, name, &row(n)) {
                break;
            }
            tables.get_mut(name).unwrap().extend([row(n)]);
            if n % 10 == 0 {
                seen.refused += u64::from(work(&db).is_some());
            }
        }
        match event(&db, round).map_err(|e| (e.kind(), e)) {
            Ok(()) => note_event(round, &mut tables),
            Err((ErrorKind::Full, _)) => seen.refused += 1,
            Err((ErrorKind::Unavailable, e)) if fault.reason == Reason::NoDescriptor => {
                assert!(e.to_string().contains("try again"), "{what}: {e}");
                seen.refused += 1;
            }
            Err((ErrorKind::UnknownOutcome, e)) => {
                assert!(writes_journal(site), "{what}: {e}");
                let mut with_it = tables.clone();
                note_event(round, &mut with_it);
                in_doubt = Some(with_it);
                break;
            }
            Err((_, e)) => panic!("{what}: {e}"),
        }
    }
    let struck = machine.failed_calls().values().sum::<u64>() > before;
    seen.struck += u64::from(struck);
    seen.unknown += u64::from(in_doubt.is_some());
    if in_doubt.is_none() {
        check(&db, &tables, &what);
    }
    let cuts = [Survive::Nothing, Survive::Seeded(3)].map(|survive| machine.crash(survive));
    for after in [machine.kill()].into_iter().chain(cuts) {
        after.mend();
        let db = options(&after, None).open(PATH).unwrap_or_else(|e| panic!("{what}: {e}"));
        match &in_doubt {
            // Decided: as a whole or not at all.
            Some(with_it) if content(&db) == *with_it => {}
            _ => check(&db, &tables, &what),
        }
        assert!(work(&db).is_none(), "{what}");
        db.table("later").unwrap().put("k", "v").unwrap();
        assert!(db.verify().unwrap().damages.is_empty(), "{what}");
    }
    if in_doubt.is_none() {
        machine.mend();
        assert!(work(&db).is_none(), "{what}");
        db.table("later").unwrap_or_else(|e| panic!("{what}: it is poisoned: {e}"));
    }
    struck
}

fn writes_journal(of: Faulty) -> bool {
    matches!(of, Faulty::Site(CallSite { call: Call::Write, file: FileKind::Journal }))
}

/// One event of a table, or a growth.
fn event(db: &Database, round: u32) -> terrace::Result<()> {
    match round {
        0 => db.rename_table("third", "fourth"),
        1 => db.create_table("new", terrace::TableOptions::new()).map(drop),
        2 => db.grow_pm(db.stats().pm.capacity + (1 << 20)).map(drop),
        3 => db.truncate_table("t"),
        4 => db.existing_table("other")?.delete_range(..),
        _ => db.drop_table("t"),
    }
}

/// What it makes of the tables.
fn note_event(round: u32, tables: &mut Tables) {
    match round {
        0 => {
            let rows = tables.remove("third").unwrap();
            tables.insert("fourth".into(), rows);
        }
        1 => drop(tables.insert("new".into(), Rows::new())),
        2 => {}
        3 => tables.get_mut("t").unwrap().clear(),
        4 => tables.get_mut("other").unwrap().clear(),
        _ => drop(tables.remove("t")),
    }
}

/// Bug: a table's event was durable, then the journal met a full disk, and the database was
/// poisoned. Cause: the space of the edit was looked for after the commit. Fix: it is reserved
/// before the ticket.
#[test]
fn no_space_at_any_call_loses_nothing_and_poisons_nothing() {
    let sites = [
        (Call::Preallocate, FileKind::Journal),
        (Call::Preallocate, FileKind::Extents),
        (Call::Preallocate, FileKind::Region),
        (Call::Write, FileKind::Journal),
        (Call::Write, FileKind::Extents),
        (Call::Create, FileKind::Extents),
    ];
    for kind in [Kind::Files, Kind::Memory] {
        let mut total = Seen::default();
        for (call, file) in sites {
            for for_good in [false, true] {
                let mut seen = Seen::default();
                // Every call at first, then ever fewer: there are some hundred writes.
                let mut nth = 1;
                loop {
                    let of = Faulty::Site(CallSite { call, file });
                    let outcome = match call {
                        Call::Create => Outcome::Undone,
                        _ if nth % 2 == 0 => Outcome::Partial,
                        _ => Outcome::Undone,
                    };
                    let fault = Fault { of, nth, outcome, reason: Reason::NoSpace, for_good };
                    if !meet_full(kind, fault, &mut seen) {
                        break;
                    }
                    nth += 1 + nth / 2;
                }
                eprintln!("{kind:?}, {call:?} {file:?}, for good {for_good}: {seen:?}");
                assert!(seen.unknown == 0 || call == Call::Write, "{seen:?}");
                total.struck += seen.struck;
                total.refused += seen.refused;
            }
        }
        assert!(total.struck > 15 && total.refused > 20, "{kind:?}: {total:?}");
    }
}

/// Mounts a file system of 64 MiB in memory, where a test may.
fn mounted(at: &Path) -> Option<Unmounts> {
    std::fs::create_dir(at).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64M", "tmpfs"])
        .arg(at)
        .output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        // Past the harness, which shows nothing of a test that passes: the check counts it.
        let lacks = format!("\nskipped: this test takes the right to mount a tmpfs: {mounted:?}\n");
        std::io::Write::write_all(&mut std::io::stderr(), lacks.as_bytes()).unwrap();
        return None;
    }
    Some(Unmounts(at.to_path_buf()))
}

/// Bug: a database whose persistent index had to be made anew did not open on a full disk. Cause:
/// the opening failed where the index found no space. Fix: it goes on with an index in memory.
#[test]
fn an_opening_without_room_for_its_index_goes_on_in_memory() {
    let home = tempfile::tempdir().unwrap();
    let mount = home.path().join("disk");
    let Some(_unmounts) = mounted(&mount) else { return };
    let emulated = Mode::Emulated { delay: Duration::ZERO };
    let options = |index| {
        Options::new().pm_size(8 << 20).mode(emulated).pm_path(mount.join("region")).index(index)
    };
    let path = home.path().join("db");
    let db = options(Index::Persistent).create(&path).unwrap();
    let matrix = TableOptions::new().level0(Level0Container::Matrix);
    let table = db.create_table("t", matrix).unwrap();
    for n in 0..1000 {
        let (key, value) = row(n);
        table.put(key, value).unwrap();
    }
    drop(table);
    db.close().unwrap();
    // This one removes the index.
    options(Index::Volatile).open_existing(&path).unwrap().close().unwrap();
    let ballast = mount.join("ballast");
    let full = std::fs::write(&ballast, vec![1; 64 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    for _ in 0..2 {
        let db = options(Index::Persistent).open_existing(&path).unwrap();
        let pm = db.stats().pm;
        assert_eq!(pm.index, "volatile");
        assert!(pm.index_note.is_some_and(|note| note.contains("no room")));
        assert_eq!(db.table("t").unwrap().iter().count(), 1000);
        // Enough for merges. A persistent index would know no row tables that they make.
        let table = db.table("t").unwrap();
        for n in 0..200 {
            let (key, value) = row(n);
            table.durability(Durability::Relaxed).put(key, value).unwrap();
        }
        let before = db.stats().background.merges;
        wait_until("memtables are merged", || {
            table.put("more", vec![1; 4096]).unwrap();
            db.stats().background.merges > before
        });
        table.delete("more").unwrap();
        drop(table);
        db.close().unwrap();
    }
    std::fs::remove_file(&ballast).unwrap();
    let db = options(Index::Persistent).open_existing(&path).unwrap();
    assert_eq!((db.stats().pm.index, db.stats().pm.index_note), ("persistent", None));
    assert_eq!(db.table("t").unwrap().iter().count(), 1000);
    db.close().unwrap();
}

/// Bug: a want of descriptors or memory at an edit of the journal stopped the database. Cause: any
/// error of an edit did, but for a full disk. Fix: where nothing has changed, it is made again.
#[test]
fn a_shortage_of_the_system_at_an_edit_stops_nothing() {
    let mut total = Seen::default();
    for call in [Call::Preallocate, Call::Write] {
        for nth in (1..40).step_by(3) {
            let of = Faulty::Site(CallSite { call, file: FileKind::Journal });
            let (outcome, reason) = (Outcome::Undone, Reason::NoDescriptor);
            let fault = Fault { of, nth, outcome, reason, for_good: false };
            if !meet_full(Kind::Files, fault, &mut total) {
                break;
            }
        }
    }
    assert!(total.struck > 3, "{total:?}");
}

/// A real file system without any space, where a test may mount one.
#[test]
fn a_full_file_system_in_memory_lets_space_be_freed() {
    let home = tempfile::tempdir().unwrap();
    let mount = home.path().join("disk");
    let Some(_unmounts) = mounted(&mount) else { return };
    for way in WAYS {
        let path = mount.join("db");
        let options = || Options::new().pm_size(8 << 20).cache_size(1 << 20);
        let until = Instant::now() + Duration::from_mins(1);
        let db = loop {
            match options().create(&path) {
                Ok(db) => break db,
                // A process that another test starts has the removed files open for a moment.
                Err(e) => assert!(e.kind() == ErrorKind::Full && Instant::now() < until, "{e}"),
            }
            std::thread::yield_now();
        };
        let mut tables = Tables::new();
        for name in ["t", "other"] {
            db.table(name).unwrap();
            tables.insert(name.into(), Rows::new());
        }
        let mut n = 0;
        let error = loop {
            let (name, (key, value)) = (if n % 8 == 7 { "other" } else { "t" }, row(n));
            let table = db.existing_table(name).unwrap();
            match table.durability(terrace::Durability::Relaxed).put(&key, &value) {
                Ok(()) => drop(tables.get_mut(name).unwrap().insert(key, value)),
                Err(e) => break e,
            }
            n += 1;
        };
        assert_eq!(error.kind(), ErrorKind::Full, "{way:?}: {error}");
        let told = error.to_string();
        assert!(told.contains("drop_table") && told.contains("KiB"), "{told}");
        way.run(&db, &mut tables).unwrap_or_else(|e| panic!("{way:?} after {n} rows: {e}"));
        check(&db, &tables, "freed");
        need_space(&db, &mut tables);
        let name = tables.keys().next().unwrap().clone();
        let table = db.existing_table(&name).unwrap();
        // One put alone may wait for a minute.
        let until = Instant::now() + Duration::from_mins(5);
        while way.frees_much() {
            match table.put("again", "and again") {
                Ok(()) => {
                    tables.get_mut(&name).unwrap().insert("again".into(), "and again".into());
                    break;
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::Full, "{e}"),
            }
            assert!(Instant::now() < until, "{way:?}: no space came back");
        }
        drop(table);
        db.close().unwrap();
        let db = options().open(&path).unwrap();
        check(&db, &tables, "opened again");
        assert!(db.verify().unwrap().damages.is_empty());
        let names: Vec<String> = db.table_names();
        names.iter().for_each(|name| db.drop_table(name).unwrap());
        drop(db);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

struct Unmounts(std::path::PathBuf);

impl Drop for Unmounts {
    fn drop(&mut self) {
        // Lazily: a process that another test starts has all files of this one for a moment.
        let unmounted = std::process::Command::new("umount").arg("--lazy").arg(&self.0).output();
        let is_done = unmounted.is_ok_and(|output| output.status.success());
        assert!(is_done || std::thread::panicking(), "{} stays", self.0.display());
    }
}
