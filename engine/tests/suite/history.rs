//! The history of a database, as the system's files hold it.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use terrace::{Database, ErrorKind, HistorySample, Options};

const RECORDS: &str = "terrace_commit_records_total";

fn options() -> Options {
    Options::new().pm_size(4 << 20).history(Duration::from_millis(100))
}

fn samples(path: &Path) -> Vec<HistorySample> {
    Database::history(path, SystemTime::UNIX_EPOCH).expect("no file fails")
}

/// Waits until there are so many samples, in which the last one counts so many records.
fn wait_for(path: &Path, count: usize, records: f64) -> Vec<HistorySample> {
    loop {
        let found = samples(path);
        let last = found.last().and_then(|sample| sample.get(RECORDS));
        if found.len() >= count && last == Some(records) {
            return found;
        }
        std::thread::yield_now();
    }
}

#[test]
fn samples_are_read_beside_a_writer_and_after_it_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = options().open(&path).unwrap();
    let table = db.table("t").unwrap();
    (0..100_u32).for_each(|n| table.put(n.to_be_bytes(), "v").unwrap());
    let stats = db.stats();
    let found = wait_for(&path, 2, stats.commit.records as f64);
    let last = found.last().unwrap();
    for (name, value) in [
        ("terrace_pm_capacity_bytes", stats.pm.capacity as f64),
        ("terrace_memory_held_bytes{part=\"region\"}", stats.memory.region as f64),
        ("terrace_open_duration_seconds", stats.open.total_ms / 1e3),
    ] {
        assert_eq!(last.get(name), Some(value), "{name}");
        assert!(last.values().any(|(known, found)| known == name && found == value));
    }
    assert_eq!(last.get("terrace_nothing"), None);
    // Bug: two buckets of each histogram had other names here. Cause: bounds were written another
    // way. Fix: as in the text.
    let text = db.metrics_text();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("table="));
    for name in lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name) {
        assert!(last.get(name).is_some(), "{name}");
    }
    assert!(found.windows(2).all(|pair| pair[0].at() < pair[1].at()));
    let since = last.at();
    assert_eq!(Database::history(&path, since).unwrap()[0].at(), since);

    // As a kill leaves it: the copy has no end of the last sample.
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let bytes = fs::read(path.join("history-0")).unwrap();
    fs::write(copy.join("history-0"), &bytes[..bytes.len() - 1]).unwrap();
    assert!(samples(&copy).len() + 1 >= found.len());
    db.close().unwrap();

    let before = samples(&path).len();
    let db = options().open(&path).unwrap();
    wait_for(&path, before + 1, db.stats().commit.records as f64);
    db.close().unwrap();
}

#[test]
fn no_history_is_kept_where_none_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    options().history(None::<Duration>).open(&path).unwrap().close().unwrap();
    assert!(samples(&path).is_empty());
    let refused = options().history(Duration::from_millis(99)).open(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("history"), "{refused}");
    let nothing = Database::history(dir.path().join("none"), SystemTime::UNIX_EPOCH);
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::Unavailable);
}
