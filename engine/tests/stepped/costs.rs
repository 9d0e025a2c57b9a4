//! What persistence costs is counted by what it was spent on: commits, zones, the background.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::time::Instant;

use crate::common::{alone, indexed};
use terrace::{Database, Durability, Options, PersistenceStats, Stats, Table};

fn row(stats: &Stats, purpose: &str) -> PersistenceStats {
    *stats.persistence.iter().find(|row| row.purpose == purpose).unwrap()
}

/// The rows of what was spent between two looks.
fn moved(before: &Stats, after: &Stats) -> Vec<&'static str> {
    let numbers = |row: &PersistenceStats| [row.flushes, row.fences, row.blocks, row.bytes];
    let rows = before.persistence.iter().zip(&after.persistence);
    rows.filter(|(b, a)| numbers(b) != numbers(a)).map(|(_, after)| after.purpose).collect()
}

/// The rows that `act` moves.
fn spent(db: &Database, act: impl FnOnce()) -> Vec<&'static str> {
    let before = db.stats();
    act();
    moved(&before, &db.stats())
}

fn put(table: &Table, key: &str, len: usize) {
    table.durability(Durability::Durable).put(key, vec![1; len]).unwrap();
}

fn rest(db: &Database) {
    while db.step().unwrap() {}
}

/// In emulated memory, with the persistent index of level 0, which is a region of its own.
#[test]
fn each_cost_is_counted_where_it_was_caused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = indexed().create(dir.path().join("db")).unwrap();
    let (hot, cold) = (db.table("hot").unwrap(), db.table("cold").unwrap());
    put(&hot, "first", 10);
    rest(&db);
    // A commit with a zone to go to: its bytes, in one fence.
    let before = row(&db.stats(), "commit");
    assert_eq!(spent(&db, || put(&hot, "second", 1000)), ["commit"]);
    let after = row(&db.stats(), "commit");
    assert_eq!((after.fences - before.fences, after.syncs), (1, 0));
    let bytes = after.bytes - before.bytes;
    assert!((1000..1500).contains(&bytes), "{bytes}");
    assert_eq!(db.stats().commit.bytes, after.bytes);
    // The next zones: by a writer that finds none ready, and by the background beforehand.
    let linked = spent(&db, || {
        (0..20).for_each(|n| put(&hot, &format!("row {n}"), 20_000));
    });
    assert_eq!(linked, ["commit", "allocation"]);
    // Rows that die soon, each zone with one that does not; jobs one by one. Whatever they do, and
    // whatever they commit themselves, is no cost of commits.
    let mut seen = Vec::new();
    for n in 0..4000 {
        if n % 18 == 0 {
            put(&cold, &format!("cold {n}"), 50);
        }
        put(&hot, &format!("hot {}", n % 4), 6500);
        let (before, merged) = (db.stats(), db.stats().background);
        if !db.step().unwrap() {
            continue;
        }
        let after = db.stats();
        let rows = moved(&before, &after);
        assert!(!rows.contains(&"commit") && !rows.contains(&"other"), "{rows:?}");
        let background = row(&after, "background").flushes - row(&before, "background").flushes;
        if after.background.merges > merged.merges {
            // Each entry of the index is a line at least.
            assert!(background > 0, "{after:?}");
            seen.push("merge");
        }
        if after.background.zones_cleaned > merged.zones_cleaned {
            let groups = after.commit.groups - before.commit.groups;
            assert!(groups == 1 && background > 0, "the copies are a commit: {after:?}");
            seen.push("clean");
        }
        if rows == ["allocation"] {
            seen.push("link");
        }
        if ["merge", "clean", "link"].iter().all(|job| seen.contains(job)) {
            break;
        }
    }
    for job in ["merge", "clean", "link"] {
        assert!(seen.contains(&job), "{job} is missing");
    }
}

/// A merge of as many new keys costs the persistent index a line each, at least.
#[test]
fn the_persistent_index_counts_too() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let cost = |name: &str, is_persistent: bool| {
        let index = if is_persistent { terrace::Index::Persistent } else { Default::default() };
        let db = indexed().index(index).create(dir.path().join(name)).unwrap();
        let table = db.table("t").unwrap();
        let before = db.stats();
        while db.stats().background.merges == before.background.merges {
            for n in 0..50 {
                let key = format!("{} {n}", db.stats().commit.visible);
                table.durability(Durability::Relaxed).put(key, [1; 100]).unwrap();
            }
            rest(&db);
        }
        let (before, after) = (row(&before, "background"), row(&db.stats(), "background"));
        (after.flushes - before.flushes, db.stats().tables[0].level0_records)
    };
    let (volatile, _) = cost("volatile", false);
    let (persistent, records) = cost("persistent", true);
    assert!(records > 500 && persistent > volatile + records, "{persistent}, {volatile}");
}

/// Bug: while a writer wrote, the background wrote the floor and synced without a pause.
/// Cause: with nothing left to do it settled and looked again at once, since there was something
/// new to see; each time there was.
/// Fix: while a writer writes it does so as often as it looks around by itself: five times a
/// second.
#[test]
fn a_background_with_nothing_to_do_does_not_sync_all_the_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().pm_size(16 << 20).create(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let syncs = || row(&db.stats(), "background").syncs;
    let (before, from) = (syncs(), Instant::now());
    for n in 0..20_000 {
        table.durability(Durability::Relaxed).put(format!("{n:05}"), vec![1; 100]).unwrap();
    }
    let (synced, looks) = (syncs() - before, from.elapsed().as_millis() as u64 / 200);
    // Each time what was handed over, and the floor; as much for each memtable that is merged.
    assert!(synced <= 40 + 3 * looks, "{synced} syncs in {looks} looks");
}
