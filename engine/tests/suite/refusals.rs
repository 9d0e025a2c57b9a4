//! Bad input and a bad environment: every one is refused with an error that says what to do, and
//! nothing is harmed by it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use crate::common::content::{Content, Effect, read_all};
use crate::common::cuts::{KINDS, PATH, options};
use crate::common::{made, tiny};
use terrace::testing::Machine;
use terrace::{Database, Durability, Error, ErrorKind, Options, WriteBatch, limits};

fn poke(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn refused(path: &Path) -> Error {
    let read_only = tiny().open_read_only(path).unwrap_err();
    let error = tiny().open(path).unwrap_err();
    assert_eq!(error.kind(), read_only.kind());
    error
}

/// CRC-32C, bit by bit, over seeds of eight bytes each and then bytes.
fn checksum(seeds: &[u64], bytes: &[u8]) -> u32 {
    let mut sum = !0u32;
    let seeds = seeds.iter().flat_map(|seed| seed.to_le_bytes());
    for byte in seeds.chain(bytes.iter().copied()) {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 };
        }
    }
    !sum
}

/// Gives the structure at `at` format version 9, under a right checksum.
fn make_newer(path: &Path, at: usize, len: usize) {
    let mut bytes = fs::read(path).unwrap()[at..at + len].to_vec();
    let old = checksum(&[1], &bytes[16..]).to_le_bytes();
    assert_eq!(bytes[12..16], old, "the checksum is the document's");
    bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
    let sum = checksum(&[9], &bytes[16..]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    poke(path, at as u64, &bytes);
}

#[test]
fn files_of_something_else_and_of_newer_formats() {
    let dir = made();
    poke(&dir.path().join("region"), 0, b"SOMETHIN");
    poke(&dir.path().join("region"), 4096, b"SOMETHIN");
    let error = refused(dir.path());
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("no Terrace region"), "{error}");

    let dir = made();
    make_newer(&dir.path().join("region"), 0, 4096);
    make_newer(&dir.path().join("region"), 4096, 4096);
    let error = refused(dir.path());
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("format 9") && error.to_string().contains("format 1"));

    let dir = made();
    make_newer(&dir.path().join("journal-00000001"), 0, 64);
    let error = refused(dir.path());
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("format 9") && error.to_string().contains("format 1"));

    let dir = made();
    poke(&dir.path().join("journal-00000001"), 0, b"SOMETHIN");
    assert_eq!(refused(dir.path()).kind(), ErrorKind::Corrupt);
}

/// Bug: a region with one copy of the superblock in a newer format (a newer program died between
/// the two) was opened by the other copy. Cause: a copy of a newer format counted as damaged.
/// Fix: one is enough to refuse.
#[test]
fn one_superblock_copy_of_a_newer_format_is_enough() {
    for at in [0, 4096] {
        let dir = made();
        make_newer(&dir.path().join("region"), at, 4096);
        let error = refused(dir.path());
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    for (error, kind) in [
        (tiny().open(dir.path()).unwrap_err(), ErrorKind::Exists),
        (tiny().create(dir.path()).unwrap_err(), ErrorKind::Exists),
        (tiny().open_read_only(dir.path()).unwrap_err(), ErrorKind::MissingDatabase),
    ] {
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("letter.txt"), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no LOCK, nothing");
    let missing = dir.path().join("missing");
    assert_eq!(tiny().open_read_only(&missing).unwrap_err().kind(), ErrorKind::MissingDatabase);
    assert!(!missing.exists());
}

#[test]
fn a_file_where_a_directory_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "x").unwrap();
    for path in [path.clone(), path.join("below")] {
        let error = tiny().open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("file"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "x");
}

#[test]
fn a_read_only_directory_serves_readers() {
    let dir = made();
    let set = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let before: Vec<_> = names(dir.path());
    let db = tiny().open_read_only(dir.path()).unwrap();
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
    assert_eq!(db.table("t").unwrap().put("k", "w").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.table("new").unwrap_err().kind(), ErrorKind::MissingTable);
    assert_eq!(db.drop_table("t").unwrap_err().kind(), ErrorKind::Invalid);
    drop(db);
    assert_eq!(names(dir.path()), before);
    if fs::write(dir.path().join("probe"), "").is_ok() {
        eprintln!("skipped: creating in a read-only directory, which this user (root?) may write");
        fs::remove_file(dir.path().join("probe")).unwrap();
    } else {
        let error = tiny().create(dir.path().join("below")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    set(0o755);
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_at_creation_leaves_nothing_half_done() {
    let whole = {
        let machine = Machine::with_files();
        options(&machine, None).create(PATH).unwrap();
        (1..).find(|kib| {
            let machine = Machine::with_files();
            machine.set_capacity(Some(kib * 1024));
            options(&machine, None).create(PATH).is_ok()
        })
    };
    let enough = whole.unwrap();
    for kib in (0..enough).step_by(101).chain([enough - 1]) {
        let machine = Machine::with_files();
        machine.set_capacity(Some(kib * 1024));
        let error = options(&machine, None).create(PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{kib} KiB: {error}");
        let reader = options(&machine, None).open_read_only(PATH).unwrap_err();
        assert_eq!(reader.kind(), ErrorKind::MissingDatabase, "{reader}");
        machine.set_capacity(None);
        let db = options(&machine, None).create(PATH).unwrap();
        db.table("t").unwrap().put("k", "v").unwrap();
    }
}

/// Bug: "No space left on device" at a creation named neither the size that was asked for nor the
/// option that asks for it.
#[test]
fn a_creation_that_finds_no_space_for_the_region_says_how_much_it_takes() {
    let machine = Machine::with_files();
    machine.set_capacity(Some(1 << 20));
    let error = options(&machine, None).create(PATH).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    let message = error.to_string();
    assert!(message.contains("pm_size") && message.contains("the region takes "), "{message}");
}

/// What `pm_size` is rounded to is documented, and statistics have the real size.
#[test]
fn a_region_is_rounded_down_to_whole_units() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(3_000_001).stepped().create(dir.path().join("db")).unwrap();
    let pm = db.stats().pm;
    assert_eq!(pm.zone_size * u64::from(pm.zones), 2_883_584);
    let file = fs::metadata(dir.path().join("db/region")).unwrap().len();
    assert_eq!(pm.capacity, file, "with the pages before the units");
}

#[test]
fn an_existing_database_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let refused = |path: &Path| {
        let error = tiny().open_existing(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingDatabase, "{error}");
        assert!(error.to_string().contains("there is no database"), "{error}");
    };
    refused(&path);
    fs::create_dir(&path).unwrap();
    refused(&path);
    // What a closed read-only opening, or a creation that was cut off, leaves.
    fs::write(path.join("LOCK"), "").unwrap();
    refused(&path);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "nothing was made");
    tiny().create(&path).unwrap().close().unwrap();
    tiny().open_existing(&path).unwrap().table("t").unwrap().put("k", "v").unwrap();
}

#[test]
fn a_full_disk_while_running_stops_writers_alone_until_there_is_space() {
    for kind in KINDS {
        let machine = kind.machine();
        let db = tiny().machine(&machine).open(PATH).unwrap();
        let table = db.table("t").unwrap();
        table.put("first", "1").unwrap();
        machine.set_capacity(Some(0));
        let mut written = 0u32;
        let error = loop {
            match table.durability(Durability::Relaxed).put(written.to_be_bytes(), [7; 20_000]) {
                Ok(()) => written += 1,
                Err(e) => break e,
            }
            assert!(written < 1000, "the region is smaller than this");
        };
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert_eq!(table.get("first").unwrap().unwrap(), "1");
        assert_eq!(table.iter().map(Result::unwrap).count() as u32, written + 1);
        machine.set_capacity(None);
        // The drain tries again before long, and writers wait for it.
        let again = loop {
            match table.put("last", [7; 20_000]) {
                Err(e) if e.kind() == ErrorKind::Full => {}
                other => break other,
            }
        };
        again.unwrap();
        assert_eq!(table.iter().map(Result::unwrap).count() as u32, written + 2);
        db.close().unwrap();
        let db = options(&machine, None).open(PATH).unwrap();
        let table = db.existing_table("t").unwrap();
        assert_eq!(table.iter().map(Result::unwrap).count() as u32, written + 2);
    }
}

#[test]
fn the_limits_are_exact_and_beyond_them_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(160 << 20).open(dir.path().join("db")).unwrap();
    let name = "n".repeat(limits::MAX_TABLE_NAME_LEN);
    let t = db.table(&name).unwrap();
    let (key, value) = (vec![7; limits::MAX_KEY_LEN], vec![8; limits::MAX_VALUE_LEN]);
    t.put(&key, &value).unwrap();
    assert_eq!(t.get(&key).unwrap().unwrap(), value);
    let longer = |bytes: &[u8]| [bytes, &[0]].concat();
    let refused = |result: terrace::Result<()>, number: usize| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let numbers = [number.to_string(), (number + 1).to_string()];
        assert!(numbers.iter().all(|n| error.to_string().contains(n)), "{error}");
    };
    refused(t.put(longer(&key), "v"), limits::MAX_KEY_LEN);
    refused(t.delete(longer(&key)), limits::MAX_KEY_LEN);
    refused(t.put("k", longer(&value)), limits::MAX_VALUE_LEN);
    refused(db.table(&(name.clone() + "n")).map(drop), limits::MAX_TABLE_NAME_LEN);
    refused(db.rename_table(&name, &(name.clone() + "n")), limits::MAX_TABLE_NAME_LEN);
    for bad in ["", "a\nb", "\0"] {
        assert_eq!(db.table(bad).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let mut batch = WriteBatch::new();
    batch.put(&t, "good", "1").put(&t, longer(&key), "2").put(&t, "good too", "3");
    refused(db.write(batch), limits::MAX_KEY_LEN);
    assert_eq!(t.iter().count(), 1, "nothing of the refused batch is there");
    for size in [limits::MIN_PM_SIZE - 1, limits::MAX_PM_SIZE + 1] {
        let error = Options::new().pm_size(size).open(dir.path().join("other")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(!dir.path().join("other").exists());
}

/// Bug: a put of an over-long key or value alone returned success and wrote nothing. Cause: the
/// refused operation was not in the batch, and an empty batch is a success. Fix: refusals first.
#[test]
fn a_batch_of_nothing_but_refused_operations_is_refused() {
    let dir = made();
    let db = tiny().open(dir.path()).unwrap();
    let t = db.table("t").unwrap();
    let error = t.put(vec![7; limits::MAX_KEY_LEN + 1], "v").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    let mut batch = WriteBatch::new();
    db.write(batch.clone()).unwrap();
    batch.put(&t, "k", vec![7; limits::MAX_VALUE_LEN + 1]);
    assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_batch_fills_a_zone_to_the_last_byte_and_spills_beyond() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let t = db.table("t").unwrap();
    // The largest zone takes an eighth of the region. It has its header, that of the sub-entry, and
    // that of the record, of 24 bytes.
    let most = 256 * 1024 - 64 - 64 - 24 - 1;
    for round in 0..3 {
        t.put("k", vec![round; most]).unwrap();
        assert_eq!(t.get("k").unwrap().unwrap(), vec![round; most]);
    }
    assert_eq!(db.stats().commit.spilled_runs, 0);
    t.put("k", vec![9; most + 1]).unwrap();
    assert_eq!(db.stats().commit.spilled_runs, 1);
    assert_eq!(t.get("k").unwrap().unwrap(), vec![9; most + 1]);
}

/// Bug: an opening with the region of another database wrote to the journal before it refused. It
/// put zeros over a damaged edit that the right region names. Cause: it looked whether both belong
/// together after it had opened the journal. Fix: it looks before.
#[test]
fn a_region_beside_the_journal_of_another_database() {
    let (one, other) = (made(), made());
    fs::copy(one.path().join("region"), other.path().join("region")).unwrap();
    let path = other.path().join("journal-00000001");
    let mut journal = fs::read(&path).unwrap();
    let end = journal.iter().rposition(|byte| *byte != 0).unwrap();
    journal[end + 100] = 1;
    fs::write(&path, &journal).unwrap();
    let error = refused(other.path());
    assert!(fs::read(&path).unwrap() == journal);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("different databases"), "{error}");
    let report = terrace::Options::new().verify(other.path()).unwrap();
    assert!(report.damages.iter().any(|d| d.what == "database id"), "{report:?}");
}

/// The names in a directory, with what the files hold.
fn bytes_of(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = |name: String| (name.clone(), fs::read(path.join(&name)).unwrap());
    names(path).into_iter().filter(|name| name != "LOCK").map(bytes).collect()
}

/// Bug: a directory with a region and extents but no journal counted as empty, and the next
/// opening erased it. Cause: only a journal made a directory a database's. Fix: parts without a
/// journal are a damaged database, unless creation's marker is beside them.
#[test]
fn a_database_without_its_journal_is_refused_and_left_alone() {
    let dir = made();
    let journal = dir.path().join("journal-00000001");
    let kept = fs::read(&journal).unwrap();
    fs::remove_file(&journal).unwrap();
    let before = bytes_of(dir.path());
    for error in [
        tiny().open(dir.path()).unwrap_err(),
        tiny().create(dir.path()).unwrap_err(),
        tiny().open_read_only(dir.path()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        for words in ["lacks its journal", "journal-NNNNNNNN", "region", "terrace salvage"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let report = terrace::Options::new().verify(dir.path()).unwrap();
    assert!(report.damages.iter().any(|damage| damage.what == "journal"), "{report:?}");
    assert_eq!(bytes_of(dir.path()), before, "nothing was changed");
    fs::write(&journal, kept).unwrap();
    let db = tiny().open(dir.path()).unwrap();
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

/// Bug: `salvage` said that there is no database where the journal was lost. Cause: it looked for a
/// journal alone. Fix: it takes what is there: the region's records, and the rows of each extent.
#[test]
fn salvage_without_a_journal_takes_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = tiny().stepped().open(&path).unwrap();
    let small = db.table("small").unwrap();
    let options = terrace::TableOptions::new().large_values(2000);
    let large = db.create_table("large", options).unwrap();
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(2) { 9000 } else { 100 }];
    for n in 0..600u32 {
        while db.stats().pm.zones_used * 2 >= db.stats().pm.zones && db.step().unwrap() {}
        let table = if n % 3 == 0 { &large } else { &small };
        table.durability(Durability::Relaxed).put(n.to_be_bytes(), value(n)).unwrap();
    }
    small.put("last", "in the region").unwrap();
    db.close().unwrap();
    fs::remove_file(path.join("journal-00000001")).unwrap();
    let before = bytes_of(&path);
    let report = terrace::Options::new().salvage(&path, dir.path().join("new")).unwrap();
    assert!(report.lost.iter().any(|lost| lost.what == "journal"), "{report:?}");
    assert!(report.lost.iter().any(|lost| lost.got.contains("extent-0")), "{report:?}");
    assert_eq!(bytes_of(&path), before, "nothing was changed");
    let found = Database::open(dir.path().join("new")).unwrap();
    let mut rows = std::collections::BTreeMap::new();
    for name in found.table_names() {
        for row in found.existing_table(&name).unwrap().iter() {
            let (key, value) = row.unwrap();
            rows.insert(key.to_vec(), value.to_vec());
        }
    }
    for n in 0..600u32 {
        assert_eq!(rows.get(&n.to_be_bytes()[..]), Some(&value(n)), "row {n}");
    }
    assert_eq!(rows.get(&b"last"[..]), Some(&b"in the region".to_vec()));
}

#[test]
fn a_database_without_its_region_is_refused_and_left_alone() {
    let dir = made();
    let region = dir.path().join("region");
    let kept = fs::read(&region).unwrap();
    fs::remove_file(&region).unwrap();
    let before = bytes_of(dir.path());
    let error = refused(dir.path());
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for words in ["lacks its region", "pm_path", "terrace salvage"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(bytes_of(dir.path()), before, "nothing was changed");
    fs::write(&region, kept).unwrap();
    let db = tiny().open(dir.path()).unwrap();
    assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

/// A marker beside a database that was opened is a stray: a copy of it from earlier, say.
#[test]
fn a_stray_marker_erases_nothing() {
    for has_journal in [true, false] {
        let dir = made();
        fs::write(dir.path().join("CREATING"), "half a marker").unwrap();
        if !has_journal {
            fs::remove_file(dir.path().join("journal-00000001")).unwrap();
            let before = bytes_of(dir.path());
            assert_eq!(tiny().open(dir.path()).unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(bytes_of(dir.path()), before);
            continue;
        }
        let db = tiny().open(dir.path()).unwrap();
        assert_eq!(db.existing_table("t").unwrap().get("k").unwrap().unwrap(), "v");
        assert!(!dir.path().join("CREATING").exists(), "the opening removes it");
    }
}

/// Bug: "cannot open" was taken for "is not there", and the file was unlinked. Cause: any error of
/// the look at `pm_path` let the creation go on. Fix: only "not found" does, and nothing is
/// unlinked that the creation did not make.
#[test]
fn what_cannot_be_opened_at_the_path_of_a_new_region_is_left_alone() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region-elsewhere");
    let create = || tiny().pm_path(&region).create(dir.path().join("db")).unwrap_err();
    // It leads to itself, and cannot be opened, by any user.
    symlink(&region, &region).unwrap();
    let error = create();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("region-elsewhere"), "{error}");
    assert!(region.is_symlink(), "left alone");
    // It leads nowhere, and so it is "not found"; still it is a file that a user made.
    fs::remove_file(&region).unwrap();
    symlink(dir.path().join("nowhere"), &region).unwrap();
    let error = create();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert!(region.is_symlink() && !dir.path().join("nowhere").exists(), "left alone");
    assert_eq!(names(&dir.path().join("db")), ["LOCK"], "nothing half done");
    fs::remove_file(&region).unwrap();
    drop(tiny().pm_path(&region).create(dir.path().join("db")).unwrap());
}

/// Bug: two creations that raced for one `pm_path` deleted each other's region. Cause: each removed
/// what it found there. Fix: the region is made under a name that no file had.
#[test]
fn of_two_creations_that_race_for_one_region_one_succeeds() {
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let region = dir.path().join("shared");
        let path = |n: u32| dir.path().join(format!("db{n}"));
        let start = std::sync::Barrier::new(2);
        let create = |n: u32| {
            start.wait();
            tiny().pm_path(&region).create(path(n)).map(|db| {
                db.table("t").unwrap().put("winner", n.to_string()).unwrap();
                db.close().unwrap();
            })
        };
        let ended = std::thread::scope(|scope| {
            [scope.spawn(|| create(0)), scope.spawn(|| create(1))].map(|one| one.join().unwrap())
        });
        let winner = u32::from(ended[1].is_ok());
        let error = ended.into_iter().find_map(Result::err).unwrap_or_else(|| {
            panic!("round {round}: both made a database with one region");
        });
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.to_string().contains("shared"), "{error}");
        let db = tiny().pm_path(&region).open(path(winner)).unwrap();
        let found = db.existing_table("t").unwrap().get("winner").unwrap().unwrap();
        assert_eq!(found, winner.to_string().as_bytes());
        assert_eq!(names(&path(1 - winner)), ["LOCK"], "the other one left nothing");
    }
}

/// Bug: every opening without a persistent index unlinked `<pm_path>.index`, whatever it was:
/// regions named `a` and `a.index` destroyed each other. Cause: the name alone was looked at. Fix:
/// only a file with this database's id is opened, replaced or removed there.
#[test]
fn regions_named_a_and_a_index_do_not_harm_each_other() {
    use std::time::Duration;
    use terrace::{Index, Mode};
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("a.index"));
    let options = |region: &Path| {
        tiny().mode(Mode::Emulated { delay: Duration::ZERO }).pm_path(region).stepped()
    };
    let (db_a, db_b) = (dir.path().join("db-a"), dir.path().join("db-b"));
    let put = |options: Options, path: &Path| {
        options.open(path).unwrap().table("t").unwrap().put("k", path.to_str().unwrap()).unwrap();
    };
    put(options(&a), &db_a);
    put(options(&b), &db_b);
    // The opening that would have removed it.
    put(options(&a), &db_a);
    let error = options(&a).index(Index::Persistent).open(&db_a).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    for words in ["a.index", "the region of a database", "another pm_path"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    for (region, path) in [(&a, &db_a), (&b, &db_b)] {
        let db = options(region).open(path).unwrap();
        let found = db.existing_table("t").unwrap().get("k").unwrap().unwrap();
        assert_eq!(found, path.to_str().unwrap().as_bytes());
    }
    // What is no index at all is left alone too; one of this database's own is replaced.
    let own = dir.path().join("c");
    let index = dir.path().join("c.index");
    let path = dir.path().join("db-c");
    put(options(&own).index(Index::Persistent), &path);
    assert!(index.exists());
    put(options(&own), &path);
    assert!(!index.exists(), "nothing keeps it up to date");
    fs::write(&index, "a letter").unwrap();
    put(options(&own), &path);
    let error = options(&own).index(Index::Persistent).open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert_eq!(fs::read(&index).unwrap(), b"a letter");
}

/// Bug: a copy of a directory, with the same `pm_path`, gave two writers of one region. Cause: only
/// the directory was locked. Fix: so is the region.
#[test]
fn a_copied_directory_does_not_give_a_second_writer() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let options = || tiny().pm_path(dir.path().join("region-elsewhere"));
    let db = options().create(&path).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    fs::create_dir(&copy).unwrap();
    for name in names(&path) {
        fs::copy(path.join(&name), copy.join(&name)).unwrap();
    }
    for error in [options().open(&copy).unwrap_err(), options().open_read_only(&copy).unwrap_err()]
    {
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        let this = format!("process {}", std::process::id());
        for words in ["region-elsewhere", "in use", "copy", "pm_path", this.as_str()] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    db.close().unwrap();
    let copied = options().open_read_only(&copy).unwrap();
    assert_eq!(options().open(&path).unwrap_err().kind(), ErrorKind::Busy, "it is read");
    drop(copied);
    assert_eq!(options().open(&path).unwrap().table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

/// Bug: an option that an opening refused left a database that defeated the error's own advice.
/// Cause: the memory limit was looked at last. Fix: all options are checked first.
#[test]
fn refused_options_make_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let refused = [
        Options::new().memory(64 << 20),
        tiny().pm_size(1),
        tiny().pm_path(path.join("LOCK")),
        tiny().pm_path(path.join("journal-00000001")),
        tiny().pm_path(path.join("reader-0123456789abcdef")),
        tiny().index(terrace::Index::Persistent),
        tiny().file_permissions(0o400),
        tiny().file_permissions(0o755),
    ];
    for options in refused {
        let error = options.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!path.exists(), "{error}");
    }
    // What the error advises works.
    drop(Options::new().memory(64 << 20).pm_size(16 << 20).open(&path).unwrap());
}

/// Bug: files of a database were readable by every user. Cause: they were made with the usual
/// permissions. Fix: 0600, and 0700 for its directory, unless an option says otherwise.
#[test]
fn files_are_their_owners_alone() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let probe = tempfile::tempdir().unwrap();
    fs::create_dir(probe.path().join("usual")).unwrap();
    let umask = 0o777 & !mode(&probe.path().join("usual"));
    for (options, files, directory) in
        [(tiny(), 0o600, 0o700), (tiny().file_permissions(0o664), 0o664, 0o775)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("above").join("db");
        let db = options.open(&path).unwrap();
        let t = db.table("t").unwrap();
        (0..600u32).for_each(|n| t.put(n.to_be_bytes(), [7; 9000]).unwrap());
        db.backup(dir.path().join("set")).unwrap();
        db.close().unwrap();
        assert!(names(&path).iter().any(|name| name.starts_with("extents-")), "it was drained");
        for under in [path.clone(), dir.path().join("set")] {
            assert_eq!(mode(&under), directory & !umask, "{}", under.display());
            for name in names(&under) {
                assert_eq!(mode(&under.join(&name)), files & !umask, "{name}");
            }
        }
        assert_eq!(mode(&dir.path().join("above")), directory & !umask);
    }
}

#[test]
fn everything_after_close_is_closed() {
    let dir = made();
    let db = tiny().open(dir.path()).unwrap();
    let t = db.table("t").unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut range = t.iter();
    db.clone().close().unwrap();
    let closed = |result: terrace::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Closed);
    };
    closed(t.get("k").map(drop));
    closed(t.put("k", "w"));
    closed(t.delete("k"));
    closed(t.multi_get(["k"]).map(drop));
    closed(range.next().unwrap().map(drop));
    closed(snapshot.get(&t, "k").map(drop));
    closed(db.table("t").map(drop));
    closed(db.drop_table("t"));
    closed(db.rename_table("t", "u"));
    closed(db.truncate_table("t"));
    closed(db.snapshot().map(drop));
    closed(db.verify().map(drop));
    let mut batch = WriteBatch::new();
    batch.put(&t, "k", "w");
    closed(db.write(batch));
    db.close().unwrap();
    let again = tiny().open(dir.path()).unwrap();
    assert_eq!(again.table("t").unwrap().get("k").unwrap().unwrap(), "v");
}

#[test]
fn a_batch_over_two_databases() {
    let (one, other) = (made(), made());
    let (a, b) = (tiny().open(one.path()).unwrap(), tiny().open(other.path()).unwrap());
    let (ta, tb) = (a.table("t").unwrap(), b.table("t").unwrap());
    let mut batch = WriteBatch::new();
    batch.put(&ta, "x", "1").put(&tb, "x", "2");
    for db in [&a, &b] {
        assert_eq!(db.write(batch.clone()).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let mut batch = WriteBatch::new();
    batch.put(&tb, "x", "2");
    assert_eq!(a.write(batch).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!((ta.get("x").unwrap(), tb.get("x").unwrap()), (None, None));
    assert_eq!(a.snapshot().unwrap().get(&tb, "k").unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_failed_sync_stops_the_database_and_hides_nothing() {
    let machine = Machine::with_files();
    let db = options(&machine, None).open(PATH).unwrap();
    let t = db.table("t").unwrap();
    t.put("before", "1").unwrap();
    machine.fail_sync_after(1);
    let error = t.put("during", "2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    for error in [
        t.put("after", "3").unwrap_err(),
        t.delete("before").unwrap_err(),
        db.table("new").unwrap_err(),
        db.step().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(t.get("before").unwrap().unwrap(), "1");
    assert_eq!(t.get("during").unwrap(), None, "nothing unsynced is served");
    assert_eq!(t.iter().count(), 1);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Unavailable);
    drop(t);
    let db: Database =
        options(&machine.crash(terrace::testing::Survive::Nothing), None).open(PATH).unwrap();
    let content = read_all(&db).unwrap();
    let mut want = Content::default();
    want.apply(&Effect::Create("t".into()));
    want.apply(&Effect::Put("t".into(), b"before".to_vec(), b"1".to_vec()));
    assert_eq!(content.differs_from(&want), None);
    db.table("t").unwrap().put("after", "4").unwrap();
}
