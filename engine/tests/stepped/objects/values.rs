//! Values that lie apart, in objects.

use std::fs;

use super::{
    COLD, extents, fill, key, made_and_closed, objects, options, read_all, run_until_idle, stats,
};
use crate::common::alone;
use terrace::operators::APPEND;
use terrace::{ObjectServer, StoreFault, TableOptions, TableStats, Tier};

/// Values from here on lie apart.
const LARGE: u32 = 550;

#[test]
fn values_that_lie_apart_follow_their_keys_both_ways() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD.large_values(LARGE)).unwrap();
    let mut rows = fill(&table, 0..1500, 0);
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let there = stats(&db);
    assert!(there.value_bytes > 100_000, "{there:?}");
    assert_eq!(there.misplaced_bytes, 0);
    assert!(there.object_bytes >= there.value_bytes, "{there:?}");
    assert!(extents(&server).len() as u64 > there.value_extents, "keys and values are objects");
    let local = db.stats().disk.extent_bytes;
    assert!(local < 100_000, "{local} bytes are left here");
    assert_eq!(read_all(&table), rows);
    // Dead values go, and what has them.
    rows.extend(fill(&table, 0..900, 1));
    table.delete_range(key(1200)..key(1300)).unwrap();
    rows.retain(|k, _| !(key(1200)..key(1300)).contains(k));
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    assert_eq!(read_all(&table), rows);
    db.close().unwrap();
    drop(table);

    let db = options(&server).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(objects(&db).gets, 0, "an opening reads nothing");
    assert_eq!(read_all(&table), rows);
    assert_eq!(db.verify().unwrap().damages, []);
    let report = db.collect_objects().unwrap();
    assert!(report.left.is_empty() && report.lost.is_empty(), "{report:?}");
    db.set_cold_tier("t", Tier::Ssd).unwrap();
    assert!(stats(&db).misplaced_bytes > 0);
    run_until_idle(&db);
    let back = stats(&db);
    assert_eq!((back.object_bytes, back.misplaced_bytes), (0, 0));
    assert_eq!(extents(&server), Vec::<String>::new());
    assert_eq!(read_all(&table), rows);
    db.close().unwrap();
    // It needs no store any more.
    let db = crate::common::tiny().stepped().open(dir.path()).unwrap();
    assert_eq!(read_all(&db.table("t").unwrap()), rows);
}

/// Bug: values that came back from objects took a request each. Cause: a job that writes values
/// again read each when it came to its record. Fix: it reads pieces of many values.
#[test]
fn a_job_reads_many_values_of_objects_with_one_request() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD.large_values(LARGE)).unwrap();
    let rows = fill(&table, 0..1500, 0);
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let TableStats { value_extents, value_bytes, levels, .. } = stats(&db);
    let extents: u64 = levels.iter().map(|level| level.extents).sum();
    assert!(value_bytes > 100_000, "{value_bytes}");
    db.set_cold_tier("t", Tier::Ssd).unwrap();
    let before = objects(&db).gets;
    run_until_idle(&db);
    let (asked, back) = (objects(&db).gets - before, stats(&db));
    assert_eq!((back.object_bytes, back.misplaced_bytes), (0, 0));
    // Each extent comes back, and is written again with its values.
    let most = value_extents + value_bytes / (1 << 20) + 6 * extents;
    assert!(asked <= most, "{asked} requests for {value_bytes} bytes of values; {most} would do");
    assert_eq!(read_all(&table), rows);
    db.close().unwrap();
}

/// Bug: a verification and a backup took a request for each value that lies apart in an object,
/// tens of thousands for an extent, and a closing waited for those of a backup. Cause: both looked
/// at the header of each value that a record refers to. Fix: a verification reads pieces of many
/// values. A backup looks at them where it copies them.
#[test]
fn a_check_reads_many_values_of_objects_with_one_request() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD.large_values(LARGE)).unwrap();
    fill(&table, 0..1500, 0);
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let (all, values) = (extents(&server).len() as u64, stats(&db).value_bytes / 1000);
    assert!(values > 10 * all, "{values} values at least in {all} objects");
    let before = objects(&db).gets;
    assert_eq!(db.verify().unwrap().damages, []);
    let asked = objects(&db).gets - before;
    // Its end, and pieces of its blocks or its values; all of its values.
    assert!(asked <= 4 * all, "{asked} requests for {all} objects");
    let before = objects(&db).gets;
    db.backup(dir.path().join("backups")).unwrap();
    let asked = objects(&db).gets - before;
    assert!(asked <= all, "{asked} requests for {all} objects");
    db.close().unwrap();
}

/// Bug: a compaction that merges operands took a request for each value that they go into. Cause:
/// it read each value when it came to its record. Fix: it reads pieces of many values.
#[test]
fn operands_are_merged_into_many_values_of_objects_with_one_request() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD.large_values(LARGE).merge_operator(APPEND)).unwrap();
    let mut rows = fill(&table, 0..400, 0);
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let (all, values) = (extents(&server).len() as u64, stats(&db).value_bytes / 1000);
    assert!(values > 20 * all, "{values} values at least in {all} objects");
    for (key, value) in &mut rows {
        table.merge(key, " more").unwrap();
        value.extend(b" more");
    }
    let before = objects(&db).gets;
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    let asked = objects(&db).gets - before;
    assert!(asked <= 8 * all, "{asked} requests for {all} objects");
    assert_eq!(read_all(&table), rows);
    db.close().unwrap();
}

#[test]
fn lost_values_are_named() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", COLD.large_values(LARGE)).unwrap();
    fill(&table, 0..600, 0);
    db.compact_range(&table, ..).unwrap();
    run_until_idle(&db);
    assert_eq!(db.verify().unwrap().damages, []);
    let all = extents(&server);
    assert!(all.len() as u64 > stats(&db).value_extents, "{all:?}");
    all.iter().for_each(|name| server.lose(name));
    // What lies in an end that is kept here is not read from there.
    let told = format!("{:?}", db.verify().unwrap().damages);
    let is_named = |name: &&String| told.contains(name.rsplit('/').next().unwrap());
    assert!(all.iter().filter(is_named).count() as u64 >= stats(&db).value_extents, "{told}");
    assert_eq!(db.check_object_store().unwrap().lost.len(), all.len());
    db.close().unwrap();
}

/// Bug: a verification while the store was away passed over damage of this machine, and no line
/// said so. Cause: values apart were looked for among the extents of this machine alone, and
/// objects refer to some of them, too. Fix: all extents say which there are.
#[test]
fn values_of_this_machine_are_verified_while_their_keys_are_away() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    let db = options(&server).create(dir.path()).unwrap();
    let table = db.create_table("t", TableOptions::new().large_values(LARGE)).unwrap();
    let rows = fill(&table, 0..1500, 0);
    db.compact_range(&table, ..).unwrap();
    db.set_cold_tier("t", Tier::Object).unwrap();
    // All keys go down. Their values stay for now.
    let is_between = |it: &TableStats| {
        let keys: u64 = it.levels.iter().map(|level| level.bytes).sum();
        it.misplaced_bytes > 100_000 && it.object_bytes >= keys
    };
    let there = || stats(&db);
    while !is_between(&there()) {
        assert!(db.step().unwrap(), "{:?}", there());
    }
    db.close().unwrap();
    for path in fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()) {
        if path.file_name().unwrap() == "region" || !path.is_file() {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        for value in rows.values().filter(|value| value.len() >= LARGE as usize) {
            if let Some(at) = bytes.windows(value.len()).position(|it| it == *value) {
                bytes[at] ^= 1;
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    server.always(Some(StoreFault::Refuse));
    let report = options(&server).verify(dir.path()).unwrap();
    assert!(report.unreadable[0].what.ends_with("objects"), "{report:?}");
    assert!(!report.damages.is_empty(), "{report:?}");
}

/// Bug: a verification without the store's name told nothing of the rest of the database. Cause: it
/// failed as `Invalid`. Fix: the report says that the objects were not read.
#[test]
fn a_verification_without_a_store_tells_of_the_rest() {
    let _turn = alone();
    let (dir, server) = (tempfile::tempdir().unwrap(), ObjectServer::new());
    made_and_closed(dir.path(), &server);
    let region = dir.path().join("region");
    let mut bytes = fs::read(&region).unwrap();
    bytes[2 * 4096 + 8] ^= 1;
    fs::write(&region, bytes).unwrap();
    let report = terrace::Options::new().verify(dir.path()).unwrap();
    assert!(report.damages.iter().any(|damage| damage.what.contains("floor")), "{report:?}");
    let [objects] = &report.unreadable[..] else { panic!("{report:?}") };
    assert!(objects.what.ends_with("objects") && objects.error.contains("object_store"));
}
