//! Data of the shared store that is read there: a takeover brings it here later, a follower with a
//! bound does not. The writer deletes nothing that one of them reads.

use std::sync::Arc;

use parking_lot::Mutex;

use super::nodes::catch_up;
use super::{
    Content, content, force_checkpoint, key, make_tables, of_machine, settle, taken_over, value,
    work, writer, writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{alone, rounds};
use terrace::testing::{Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, Follower, LockWait, ObjectServer, StoreFault, TableOptions,
    TxnOptions, WriteBatch,
};

/// Rows that lie in levels, and a checkpoint with them.
fn filled(server: &ObjectServer) -> Database {
    let db = writer(&Machine::with_files(), server);
    make_tables(&db, &|| ());
    db.create_table("apart", TableOptions::new().large_values(1 << 10)).unwrap();
    for (name, len) in [("t", 900), ("both", 300), ("apart", 3000)] {
        let table = db.existing_table(name).unwrap();
        for some in (0..600).collect::<Vec<u64>>().chunks(20) {
            let mut batch = WriteBatch::new();
            for n in some {
                batch.put(&table, key(*n), vec![*n as u8; len]);
            }
            db.write_with(&batch, Durability::Relaxed).unwrap();
            // Nothing else drains the region.
            settle(|| db.step());
        }
        db.compact_range(&table, ..).unwrap();
    }
    settle(|| db.step());
    force_checkpoint(&db);
    settle(|| db.step());
    db
}

/// Objects that a database reads in the store.
fn far(db: &Database) -> u64 {
    db.stats().objects.map_or(0, |objects| objects.objects)
}

/// A takeover asks for no data before the first read, which asks for what it needs. The rest comes
/// while nothing else is to be done, and then nothing is asked for any more.
#[test]
fn a_takeover_fetches_what_is_read() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = filled(&server);
    let pieces = server.names().into_iter().filter(|name| name.starts_with("shared/extents/"));
    let pieces: Vec<String> = pieces.collect();
    assert!(pieces.len() > 6, "{pieces:?}");
    let expected = content(&db).unwrap();
    let asked =
        |pieces: &[String]| -> u64 { pieces.iter().map(|piece| server.asked(piece).gets).sum() };
    let before = asked(&pieces);
    let second = taken_over(&server);
    assert_eq!(asked(&pieces), before, "an opening reads no data");
    assert!(far(&second) > 6);
    let table = second.existing_table("t").unwrap();
    table.durability(Durability::Remote).put("own", "row").unwrap();
    assert_eq!(asked(&pieces), before, "a write reads no data");
    assert_eq!(table.get(key(77)).unwrap().unwrap(), vec![77; 900]);
    assert!((1..8).contains(&(asked(&pieces) - before)), "{}", asked(&pieces) - before);
    let apart = second.existing_table("apart").unwrap();
    assert_eq!(apart.get(key(9)).unwrap().unwrap(), vec![9; 3000]);
    // The rest comes.
    settle(|| second.step());
    assert_eq!(far(&second), 0);
    table.delete("own").unwrap();
    let fetched = asked(&pieces);
    pieces.iter().for_each(|piece| server.lose(piece));
    assert_eq!(content(&second).unwrap(), expected);
    assert_eq!(second.verify().unwrap().damages, []);
    assert_eq!(asked(&pieces), fetched);
}

/// Bug: after a takeover each checkpoint sent all data that the takeover had brought here, though
/// the store had it. Cause: the takeover wrote the extents again under other ids, and did not keep
/// what the newest checkpoint names. Fix: it copies extents as they are, and keeps those names.
#[test]
fn what_a_takeover_brings_here_is_not_sent_again() {
    let _turn = alone();
    for restarts in [false, true] {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = filled(&server);
        db.drop_table("apart").unwrap();
        settle(|| db.step());
        force_checkpoint(&db);
        settle(|| db.step());
        let expected = content(&db).unwrap();
        let mut second = of_machine(&machine, None).open_shared(server.url(), PATH).unwrap();
        settle(|| second.step());
        assert_eq!(far(&second), 0, "all is here");
        if restarts {
            second.close().unwrap();
            second = writer_options(&machine, &server, None).open(PATH).unwrap();
        }
        let before = second.stats().share.unwrap().checkpoint_bytes;
        for _ in 0..3 {
            force_checkpoint(&second);
            settle(|| second.step());
        }
        let sent = second.stats().share.unwrap().checkpoint_bytes - before;
        assert!(sent < 64 << 10, "{sent} bytes were sent again");
        // Its checkpoints name pieces of the writer before, which are there.
        let third = taken_over(&server);
        assert_eq!(content(&third).unwrap(), expected);
        assert_eq!(third.verify().unwrap().damages, []);
    }
}

/// Bug: a salvage of a database that took over left out all that the takeover had brought here, and
/// said nothing. Cause: an edit removes an extent and adds it in another place under its id, and a
/// salvage took what was removed for gone. Fix: what is added again is there, where it was last.
#[test]
fn a_salvage_finds_what_a_takeover_brought_here() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, new] = ["one", "two", "new"].map(|name| dir.path().join(name));
    let url = format!("file://{}", dir.path().join("bucket").display());
    let options = || terrace::Options::new().pm_size(4 << 20).stepped();
    let db = options().object_store(&url).share(true).open(one).unwrap();
    let table = db.table("t").unwrap();
    (0..600).for_each(|n| table.put(key(n), vec![n as u8; 900]).unwrap());
    db.compact_range(&table, ..).unwrap();
    settle(|| db.step());
    let expected = content(&db).unwrap();
    let second = options().open_shared(&url, &two).unwrap();
    assert!(far(&second) > 0, "the data lies in the store");
    settle(|| second.step());
    assert_eq!(far(&second), 0, "it was brought here");
    second.close().unwrap();
    let report = options().salvage(&two, &new).unwrap();
    let found = content(&Database::open(&new).unwrap()).unwrap();
    assert_eq!(found["t"], expected["t"], "{report:?}");
}

/// Bug: a takeover read all rows that a prepared transaction had written over or deleted, before it
/// claimed. Cause: it replayed prepares in transactions with a snapshot, which compare each row
/// with that. Fix: they have none. They lock the same rows.
#[test]
fn a_takeover_reads_no_data_to_prepare_again() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = filled(&server);
    let tables = |db: &Database| ["t", "both"].map(|name| db.existing_table(name).unwrap());
    let [ranged, rows] = tables(&db);
    let txn = db.begin_with(TxnOptions::new().durability(Durability::Remote)).unwrap();
    txn.delete_range(&ranged, key(10)..key(590)).unwrap();
    txn.put(&rows, key(7), "new").unwrap();
    txn.delete(&rows, key(300)).unwrap();
    txn.prepare("one").unwrap();
    let asked = || {
        let names = server.names().into_iter().filter(|name| name.starts_with("shared/extents/"));
        names.map(|name| server.asked(&name).gets).sum::<u64>()
    };
    let before = asked();
    let second = taken_over(&server);
    assert_eq!(asked(), before, "an opening reads no data");
    assert!(far(&second) > 6);
    let [ranged, rows] = tables(&second);
    for (table, row) in [(&ranged, 10), (&ranged, 589), (&rows, 7), (&rows, 300)] {
        let other = second.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait)).unwrap();
        let error = other.get_for_update(table, key(row)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{row}: {error}");
    }
    db.commit_prepared("one").unwrap();
    second.commit_prepared("one").unwrap();
    assert_eq!(content(&second).unwrap(), content(&db).unwrap());
    assert_eq!(ranged.range(..).count(), 20);
}

/// What lies in the store already is named by the next checkpoint, and not sent again.
#[test]
fn a_takeover_sends_nothing_that_the_store_has() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = filled(&server);
    let expected = content(&db).unwrap();
    let second = taken_over(&server);
    force_checkpoint(&second);
    // Each step of the shipper comes before one of the background.
    second.step().unwrap();
    second.step().unwrap();
    let sent = second.stats().share.unwrap();
    assert!(sent.checkpoints == 1 && sent.checkpoint_bytes < 20_000, "{sent:?}");
    let third = taken_over(&server);
    assert_eq!(content(&third).unwrap(), expected);
    settle(|| third.step());
    assert_eq!(content(&third).unwrap(), expected);
    assert_eq!(content(&taken_over(&server)).unwrap(), expected);
}

/// The store is away after a takeover: writes go on, drains too, and reads of what is far say so.
#[test]
fn a_takeover_writes_while_the_store_is_away() {
    let _turn = alone();
    let server = ObjectServer::new();
    drop(filled(&server));
    let second = taken_over(&server);
    server.always(Some(StoreFault::Throttle));
    let table = second.existing_table("t").unwrap();
    let read = table.get(key(5)).unwrap_err();
    assert_eq!(read.kind(), terrace::ErrorKind::Unavailable, "{read}");
    for n in 0..800u64 {
        table.put(key(n % 200), vec![7; 4000]).unwrap();
        drop(second.step());
    }
    assert!(second.stats().background.drains > 0, "the region was drained");
    server.always(None);
    settle(|| second.step());
    assert_eq!(table.get(key(5)).unwrap().unwrap(), vec![7; 4000]);
    assert_eq!(table.get(key(205)).unwrap().unwrap(), vec![205; 900]);
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&second).unwrap());
}

/// A reader of a takeover's first version reads on, while compactions bring all of it here, and
/// checkpoints without it are made: the collector leaves what a reader has.
#[test]
fn what_a_reader_has_is_not_deleted() {
    let _turn = alone();
    let server = ObjectServer::new();
    drop(filled(&server));
    let second = taken_over(&server);
    let snapshot = second.snapshot().unwrap();
    let table = second.existing_table("t").unwrap();
    let mut rows = snapshot.range(&table, ..);
    let mut count = u64::from(rows.next().unwrap().is_ok());
    for round in 0..5 {
        work(&second, round);
        settle(|| second.step());
        force_checkpoint(&second);
        settle(|| second.step());
    }
    for row in rows {
        row.unwrap();
        count += 1;
    }
    assert_eq!(count, 600);
    drop(snapshot);
    // What it has brought here lies in the store as before, and its checkpoints name that.
    for name in ["t", "both", "apart"] {
        second.truncate_table(name).unwrap();
    }
    for _ in 0..3 {
        settle(|| second.step());
        force_checkpoint(&second);
    }
    settle(|| second.step());
    let old = server.names().into_iter().filter(|name| name.starts_with("shared/extents/0"));
    let claim = |name: &String| name["shared/extents/".len()..][..16].to_string();
    let claims: std::collections::BTreeSet<String> = old.map(|name| claim(&name)).collect();
    assert_eq!(claims.len(), 1, "the first writer's are gone: {claims:?}");
}

/// The power of a machine that took over is cut at each of its requests, while its data comes. It
/// comes up with a state of its own, and so does a takeover of it.
#[test]
fn a_takeover_that_is_cut_goes_on() {
    let _turn = alone();
    let server = ObjectServer::new();
    drop(filled(&server));
    let machine = Machine::with_files();
    let images = Arc::new(Mutex::new(Vec::new()));
    let states: Arc<Mutex<Vec<Content>>> = Arc::default();
    let second = of_machine(&machine, None).open_shared(server.url(), PATH).unwrap();
    let note = || states.lock().push(content(&second).unwrap());
    note();
    let (into, of, known) = (Arc::clone(&images), server.clone(), Arc::clone(&states));
    let (own, every) = (machine, rounds(5, 1));
    let came = std::sync::atomic::AtomicU64::new(0);
    server.watch(Some(Box::new(move |_, _| {
        // While a state is read it is locked.
        let Some(known) = known.try_lock() else { return };
        if came.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(every) {
            let survive = [Survive::Nothing, Survive::Everything][into.lock().len() % 2];
            into.lock().push((own.crash(survive), of.copy(), known.len()));
        }
    })));
    for round in 0..3u64 {
        let mut batch = WriteBatch::new();
        for name in ["t", "both"] {
            let table = second.existing_table(name).unwrap();
            for n in 0..40 {
                batch.put(&table, key(n * 13), value(n, round));
            }
        }
        second.write(batch).unwrap();
        note();
        for _ in 0..6 {
            second.step().unwrap();
        }
        if round == 1 {
            force_checkpoint(&second);
        }
    }
    settle(|| second.step());
    server.watch(None);
    let (states, images) = (states.lock().clone(), std::mem::take(&mut *images.lock()));
    assert!(images.len() > 10, "{}", images.len());
    for (n, (machine, server, known)) in images.into_iter().enumerate() {
        let again = writer_options(&machine, &server, None).open(PATH).unwrap();
        let found = content(&again).unwrap();
        let until = (known + 1).min(states.len());
        assert!(states[known - 1..until].contains(&found), "image {n}");
        if n % 2 == 0 {
            settle(|| again.step());
            assert_eq!(far(&again), 0, "image {n}");
        } else {
            again
                .existing_table("t")
                .unwrap()
                .durability(Durability::Remote)
                .put("a", "b")
                .unwrap();
        }
        let found = content(&again).unwrap();
        if n % 4 < 2 {
            assert_eq!(content(&taken_over(&server)).unwrap(), found, "image {n}");
        }
    }
}

fn follow(machine: &Machine, server: &ObjectServer, name: Option<&str>) -> Follower {
    let options = of_machine(machine, None).object_cache(64 << 10);
    let options = name.iter().fold(options, |options, name| options.follower_name(*name));
    options.follow(server.url(), "/far").unwrap()
}

/// Bytes of extents that a follower has on its machine.
fn here(follower: &Follower) -> u64 {
    follower.database().unwrap().stats().disk.extent_bytes
}

/// A follower with a bound reads in the store. It restarts from a checkpoint once it has more. What
/// the writer drops, empties, renames, compacts and deletes meanwhile is never missing.
#[test]
fn a_follower_with_a_bound_keeps_it() {
    let _turn = alone();
    for name in [None, Some("far")] {
        let server = ObjectServer::new();
        let db = filled(&server);
        let pieces = server.names().into_iter().filter(|name| name.starts_with("shared/extents/"));
        let pieces: Vec<String> = pieces.collect();
        let asked = || pieces.iter().map(|piece| server.asked(piece).gets).sum::<u64>();
        let before = asked();
        let follower = follow(&Machine::with_files(), &server, name);
        assert_eq!(asked(), before, "it copies nothing");
        let (mut most, mut last, mut held) = (0, None, None);
        for round in 0..14 {
            work(&db, round);
            for n in 0..40 {
                let table = db.existing_table("t").unwrap();
                let row = vec![round as u8; 6000];
                table.durability(Durability::Relaxed).put(key(n * 3), row).unwrap();
                drop(db.step());
                follower.step().unwrap();
            }
            settle(|| db.step());
            catch_up(|| follower.step()).unwrap();
            let shown = follower.database().unwrap();
            assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{name:?} {round}");
            settle(|| shown.step());
            assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{name:?} {round}");
            most = most.max(here(&follower));
            // The writer keeps what the first database reads, also when there is another one.
            let directory = follower.status().directory;
            let (before, first) = last.take().unwrap_or((directory.clone(), shown));
            if before != directory && held.is_none() && name.is_some() {
                held = Some((content(&first).unwrap(), first.clone()));
            }
            last = Some((before, first));
        }
        assert!(db.stats().share.unwrap().checkpoints > 8);
        assert!(follower.status().restarts > 2, "{:?}", follower.status());
        assert!(most < 3 << 20, "{name:?}: {most} bytes");
        drop(last);
        assert_eq!(held.is_some(), name.is_some());
        if let Some((expected, shown)) = held {
            assert_eq!(content(&shown).unwrap(), expected, "what a handle shows is kept");
            let status = of_machine(&Machine::with_files(), None).shared_status(server.url());
            let status = status.unwrap();
            assert!(status.followers[0].base.is_some(), "{status:?}");
        }
        assert_eq!(follower.status().missed, 0);
    }
}

/// A follower is opened again. With a name it goes on where it was. Without one it may restart from
/// a checkpoint.
#[test]
fn a_follower_with_a_bound_is_opened_again() {
    let _turn = alone();
    for name in [None, Some("far")] {
        let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
        let db = filled(&server);
        drop(follow(&machine, &server, name));
        for round in 0..4 {
            work(&db, round);
            force_checkpoint(&db);
            settle(|| db.step());
            machine = machine.crash([Survive::Nothing, Survive::Everything][round as usize % 2]);
            let follower = follow(&machine, &server, name);
            content(&follower.database().unwrap()).unwrap();
            catch_up(|| follower.step()).unwrap();
            let shown = follower.database().unwrap();
            assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{name:?} {round}");
        }
        // One that keeps all data starts from the store.
        let all = of_machine(&machine, None).follow(server.url(), "/far").unwrap();
        catch_up(|| all.step()).unwrap();
        let gets = server.asked("").gets;
        let shown = all.database().unwrap();
        assert_eq!(content(&shown).unwrap(), content(&db).unwrap());
        assert_eq!(server.asked("").gets, gets);
    }
}
