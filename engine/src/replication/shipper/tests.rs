//! Checkpoints of openings that are short.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use super::*;
use crate::base::options::Options;
use crate::os::Files;
use crate::storage::object_testing::ObjectServer;
use terrace_testkit::SimFiles;

/// Bug: the log of a writer that ships little in each of its openings grew for ever, and a takeover
/// applied all of it. Cause: each opening counted its own bytes alone, and a closing begins no
/// checkpoint that is due. Fix: an opening counts what the log has, and makes at its closing what
/// an earlier one has left.
#[test]
fn openings_that_are_short_make_checkpoints() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, _) =
        crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
            .unwrap();
    let log = SharedLog::new(client, false);
    let options = Options::new().pm_size(4 << 20).stepped().object_store(server.url()).share(true);
    let (mut checkpoints, mut random) = (BTreeSet::new(), 1u64);
    for round in 0..30u32 {
        let db = options.clone().open(dir.path()).unwrap();
        let mut value = Vec::new();
        while value.len() < 40 << 10 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value.push((random >> 56) as u8);
        }
        db.table("t").unwrap().put(round.to_be_bytes(), value).unwrap();
        db.close().unwrap();
        let behind = log.bytes_behind(log.end().unwrap().checkpoint, 0).unwrap();
        assert!(behind < 2 * STEPPED_CHECKPOINT_BYTES, "{behind} bytes after {round} openings");
        checkpoints.insert(log.end().unwrap().checkpoint);
    }
    let first = *checkpoints.first().unwrap();
    assert!(checkpoints.len() >= 3, "{checkpoints:?}");
    assert!(log.head().unwrap().0.oldest > first, "entries are deleted too");
}

/// Loads rows of 1,000 bytes that cannot be compressed.
fn load(db: &crate::Database, rows: u64) {
    let mut random = 1u64;
    let mut value = |_| {
        let next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random ^ random >> 29).to_le_bytes()
        };
        std::iter::repeat_with(next).take(125).flatten().collect::<Vec<_>>()
    };
    let mut load = db.table("t").unwrap().bulk_load(crate::table::Existing::Replace).unwrap();
    (0..rows).for_each(|n| load.put(n.to_be_bytes(), value(n)).unwrap());
    load.finish().unwrap();
}

/// Bug: a closing waited for a large checkpoint that an earlier opening had left, where it was
/// under way already. Cause: as long as that one was owed, nothing was given up. Fix: it is given
/// up once it has sent more than a closing would begin.
#[test]
fn a_closing_gives_up_a_large_checkpoint_that_is_under_way() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let options = Options::new().pm_size(16 << 20).stepped();
    let options = options.object_store(server.url()).share(true);
    let db = options.clone().open(dir.path()).unwrap();
    db.table("u").unwrap().put("k", "v").unwrap();
    while db.step().unwrap() {}
    load(&db, 300);
    db.close().unwrap();
    let db = options.open(dir.path()).unwrap();
    db.table("u").unwrap().put("k", "w").unwrap();
    for _ in 0..4 {
        db.step().unwrap();
    }
    load(&db, 18_000);
    // The next step sends a checkpoint whole. The closing begins while it does.
    db.forget_unshipped();
    let (closes, closing) = (db.clone(), Mutex::new(None));
    server.watch(Some(Box::new(move |_, _| {
        let mut closing = closing.lock();
        if closing.is_none() {
            let db = closes.clone();
            *closing = Some(std::thread::spawn(move || db.close().unwrap()));
            let begun = || closes.inner.shipper.get().unwrap().is_closing(u64::MAX);
            while !begun() {
                std::thread::yield_now();
            }
        }
    })));
    let stepped = std::iter::repeat_with(|| db.step());
    let gave_up = stepped.take(10).find_map(Result::err).unwrap();
    assert_eq!(gave_up.kind(), crate::ErrorKind::Closed, "{gave_up}");
    server.watch(None);
    db.close().unwrap();
}

/// Bug: the first closing behind a bulk load sent the whole database. Cause: a checkpoint that an
/// earlier opening had left was made however large it was. Fix: a closing gives a large one up, and
/// an opening that goes on makes it.
#[test]
fn a_closing_gives_up_a_large_checkpoint_that_an_earlier_opening_left() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let options = Options::new().pm_size(16 << 20).stepped();
    let options = options.object_store(server.url()).share(true);
    let pieces =
        || server.names().iter().filter(|name| name.starts_with("shared/extents/")).count();
    let db = options.clone().open(dir.path()).unwrap();
    db.table("u").unwrap().put("k", "v").unwrap();
    while db.step().unwrap() {}
    load(&db, 4000);
    db.close().unwrap();
    let before = pieces();
    for n in 0..3 {
        let db = options.clone().open(dir.path()).unwrap();
        db.table("u").unwrap().put("k", [n]).unwrap();
        db.close().unwrap();
        assert_eq!(pieces(), before, "closing {n} sends no data");
    }
    let db = options.open(dir.path()).unwrap();
    db.table("u").unwrap().put("k", "v").unwrap();
    while db.step().unwrap() {}
    assert!(pieces() > before, "an opening that goes on does");
}

/// Bug: a follower that was away for less than the retention found its entries deleted. Cause: the
/// time of a checkpoint was that of its beginning, and segments that were younger came before its
/// entry. Fix: it is the time of the entry.
#[test]
fn a_checkpoint_is_as_old_as_its_entry() {
    let (server, dir) = (ObjectServer::new(), tempfile::tempdir().unwrap());
    let clock = crate::mvcc::HandClock::default();
    let options = Options::new().pm_size(4 << 20).stepped().clock(&clock);
    let began = options.clock_of_records().now() / MICROS_A_SECOND;
    let db = options.object_store(server.url()).share(true).open(dir.path()).unwrap();
    db.table("t").unwrap().put("k", "v").unwrap();
    // Each request takes a minute.
    let (passes, minute) = (clock, Duration::from_mins(1));
    server.watch(Some(Box::new(move |_, after| {
        if after {
            passes.pass(minute);
        }
    })));
    while db.step().unwrap() {}
    server.watch(None);
    let files = SimFiles::new() as Arc<dyn Files>;
    let (client, _) =
        crate::storage::open_client((server.url(), true), &files, (0, &<_>::default()), None)
            .unwrap();
    let log = SharedLog::new(client, false);
    let number = log.end().unwrap().checkpoint;
    let found = super::super::checkpoint::read(&log, number).unwrap().unwrap();
    let sent = found.manifest.places().len() as u64;
    assert!(sent > 0 && found.manifest.created >= began + sent * 60, "{}", found.manifest.created);
}
