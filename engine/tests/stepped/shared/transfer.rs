//! Data of checkpoints on its way to the store and back: requests that fail, stores that are far.

use super::nodes::again;
use super::{Content, content, key, of_machine, settle, taken_over, writer_options};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone};
use terrace::testing::{Call, CallSite, Fault, Faulty, FileKind, Machine};
use terrace::{Database, Durability, ErrorKind, Existing, ObjectServer, StoreFault, TableOptions};

/// Rows in several extents, some with values apart, and a transaction whose rows are spilled.
fn fill(db: &Database) {
    let apart = TableOptions::new().large_values(1 << 10);
    for name in ["a", "b", "c"] {
        let table = match db.existing_table(name) {
            Ok(table) => table,
            Err(_) => db.create_table(name, apart).unwrap(),
        };
        let mut load = table.bulk_load(Existing::Replace).unwrap();
        for n in 0..60 {
            let len = if n % 3 == 0 { 3000 } else { 90 };
            load.put(key(n), vec![n as u8; len]).unwrap();
        }
        load.finish().unwrap();
    }
    db.table("prepared").unwrap();
    super::prepare(db, "open", 1, Durability::Durable).unwrap();
}

/// A request of a checkpoint fails for good. The next checkpoint sends again what the store may
/// lack, with the extents that refer to it. A takeover finds all data.
#[test]
fn a_checkpoint_that_failed_is_sent_again_with_all_that_the_store_lacks() {
    let _turn = alone();
    let mut failed = 0;
    for at in 1.. {
        let server = ObjectServer::new();
        let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
        settle(|| db.step());
        fill(&db);
        super::force_checkpoint(&db);
        let before = server.requests();
        server.plan(before + at, StoreFault::Refuse);
        settle(|| again(|| db.step()).map_err(|error| panic!("{error}")));
        let took = server.requests() - before;
        if took < at {
            break;
        }
        failed += u64::from(server.asked("").puts > 0);
        server.forget_plans();
        let second = taken_over(&server);
        let expected: Content = content(&db).unwrap();
        assert_eq!(content(&second).unwrap(), expected, "request {at} failed");
        assert_eq!(second.verify().unwrap().damages, [], "request {at} failed");
    }
    assert!(failed > 8, "{failed} requests");
}

/// Bug: commits waited for the shared store until all data of a checkpoint was sent. Cause: the
/// shipper sent all of it in one step, after the checkpoint had its LSN. Fix: the extents of levels
/// go out before, a few at a time, with segments between.
#[test]
fn segments_go_on_while_the_extents_of_a_checkpoint_are_sent() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    for n in 0..20 {
        let mut load =
            db.table(&format!("many {n}")).unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
        let value = |row| Chance::new(n << 8 | row).bytes(1000);
        (0..20).for_each(|row| load.put(key(row), value(row)).unwrap());
        load.finish().unwrap();
    }
    let checkpoints = || db.stats().share.unwrap().checkpoints;
    let count = |prefix: &str| server.names().iter().filter(|it| it.starts_with(prefix)).count();
    let (first, mut between) = (checkpoints(), 0);
    for n in 0..1000 {
        if checkpoints() > first {
            break;
        }
        small.put(key(n), key(n)).unwrap();
        let (pieces, entries) = (count("shared/extents/"), count("shared/log/"));
        db.step().unwrap();
        if count("shared/extents/") > pieces && count("shared/log/") > entries {
            between += 1;
        }
    }
    assert!(checkpoints() > first, "the checkpoint was made");
    assert!(between > 8, "{between} segments between pieces");
    settle(|| db.step());
    let second = taken_over(&server);
    assert_eq!(content(&second).unwrap(), content(&db).unwrap());
    assert_eq!(second.verify().unwrap().damages, []);
}

/// Ships commits until a checkpoint is due that cannot be made: this machine cannot read an extent.
fn hindered(machine: &Machine, server: &ObjectServer) -> Database {
    let db = writer_options(machine, server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    let mut load = db.table("loaded").unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
    (0..20).for_each(|row| load.put(key(row), Chance::new(row).bytes(1000)).unwrap());
    load.finish().unwrap();
    settle(|| db.step());
    let of = Faulty::Site(CallSite { call: Call::Read, file: FileKind::Extents });
    machine.fail(Fault { for_good: true, ..Fault::once(of, 1) });
    for n in 0..400 {
        small.durability(Durability::Remote).put(key(n), Chance::new(n).bytes(900)).unwrap();
    }
    db
}

/// Bug: no commit was shipped any more, and those that asked for `Remote` waited without end.
/// Cause: a checkpoint that was due and could not be made, as with an extent that cannot be read,
/// ended each step of the shipper before its segment. Fix: segments go on, and it is tried again.
#[test]
fn a_checkpoint_that_cannot_be_made_holds_no_commit_up() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = hindered(&machine, &server);
    let stats = || db.stats().share.unwrap();
    let before = stats().checkpoints;
    assert!(stats().note.is_some(), "it says why there is no checkpoint");
    machine.mend();
    settle(|| db.step());
    assert_eq!((stats().checkpoints, stats().note), (before + 1, None));
    let second = taken_over(&server);
    assert_eq!(content(&second).unwrap(), content(&db).unwrap());
}

/// Bug: commits that asked for `Remote` waited without end. Cause: commits were forgotten, so a
/// checkpoint has to come before any segment, and this machine could not write or read its extents.
/// Fix: after three tries the calls fail, and say why. Shipping goes on once that is mended.
#[test]
fn a_remote_commit_that_this_machine_cannot_ship_fails_and_goes_on_later() {
    let _turn = alone();
    for (call, is_large) in [(Call::Write, false), (Call::Read, false), (Call::Read, true)] {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = writer_options(&machine, &server, None).open(PATH).unwrap();
        let small = db.table("small").unwrap();
        settle(|| db.step());
        small.put("first", "1").unwrap();
        let of = Faulty::Site(CallSite { call, file: FileKind::Extents });
        let fails = || machine.fail(Fault { for_good: true, ..Fault::once(of, 1) });
        if call == Call::Write {
            fails();
        }
        let mut load = (call == Call::Read)
            .then(|| db.table("loaded").unwrap().bulk_load(terrace::Existing::Refuse).unwrap());
        if let Some(mut load) = load.take() {
            (0..20).for_each(|row| load.put(key(row), Chance::new(row).bytes(1000)).unwrap());
            load.finish().unwrap();
            fails();
        }
        if !is_large {
            db.forget_unshipped();
        }
        for n in 0..3 {
            let error = small.durability(Durability::Remote).put(key(n), "here").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{call:?}: {error}");
            let text = error.to_string();
            assert!(text.contains("is durable on this machine"), "{text}");
            assert!(text.contains("extents") && text.contains("I/O error"), "{text}");
            assert_eq!(small.get(key(n)).unwrap().as_deref(), Some(&b"here"[..]));
        }
        small.put("local", "goes on").unwrap();
        assert!(db.stats().share.unwrap().note.is_some(), "it says why");
        machine.mend();
        small.durability(Durability::Remote).put("last", "one").unwrap();
        settle(|| db.step());
        assert_eq!(db.stats().share.unwrap().note, None);
        assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap(), "{call:?}");
    }
}

/// What passes by itself is waited for: a store that is away, and a full disk.
#[test]
fn a_remote_commit_waits_for_a_store_that_is_away() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer_options(&machine, &server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    server.always(Some(StoreFault::Throttle));
    db.forget_unshipped();
    let away = small.durability(Durability::Remote).put("k", "1").unwrap_err();
    assert!(away.to_string().contains("after 64 steps"), "a stepped one gives up then: {away}");
    server.always(None);
    small.durability(Durability::Remote).put("k", "2").unwrap();
}

/// Bug: a closing waited for all data of a checkpoint, and commits were not shipped if that failed.
/// Cause: the closing began with the checkpoint that was due. Fix: it ships segments alone.
#[test]
fn a_closing_ships_commits_where_a_checkpoint_is_due() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    let stats = || db.stats().share.unwrap();
    let (before, mut n) = (stats(), 0);
    // The put that makes a checkpoint due is the last one: no step has begun the checkpoint.
    while stats().segment_bytes - before.segment_bytes < 256 << 10 {
        small.durability(Durability::Remote).put(key(n), Chance::new(n).bytes(900)).unwrap();
        n += 1;
    }
    assert_eq!(stats().checkpoint_bytes, before.checkpoint_bytes, "none has begun");
    small.put("last", "one").unwrap();
    let status = || of_machine(&Machine::with_files(), None).shared_status(server.url()).unwrap();
    let pieces = || server.names().iter().filter(|it| it.starts_with("shared/extents/")).count();
    let checkpoint = (status().checkpoint, pieces());
    db.close().unwrap();
    assert_eq!((status().checkpoint, pieces()), checkpoint, "the closing sent none of it");
    let second = taken_over(&server);
    let last = second.existing_table("small").unwrap().get("last").unwrap();
    assert_eq!(last.as_deref(), Some(&b"one"[..]));
}

/// Bug: a closing waited until all that lies above levels was written once more. Cause: a
/// checkpoint that takes the place of forgotten commits asked whether it was wanted only where it
/// sends. Fix: it asks before each table too. A small one is made, and the next opening makes the
/// large one.
#[test]
fn a_closing_makes_a_small_checkpoint_alone() {
    let _turn = alone();
    for mib in [1, 20] {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let open = || writer_options(&machine, &server, None).pm_size(96 << 20).open(PATH).unwrap();
        let db = open();
        let table = db.table("t").unwrap();
        settle(|| db.step());
        let pieces =
            || server.names().iter().filter(|it| it.starts_with("shared/extents/")).count();
        for n in 0..mib {
            for row in 0..16 {
                let value = Chance::new(n << 8 | row).bytes(64 << 10);
                table.durability(Durability::Relaxed).put(key(n << 8 | row), value).unwrap();
            }
            settle(|| db.step());
        }
        let before = pieces();
        db.forget_unshipped();
        db.close().unwrap();
        assert_eq!(pieces() > before, mib == 1, "{mib}: {before} {}", pieces());
        let db = open();
        settle(|| db.step());
        assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap(), "{mib}");
    }
}

/// Bug: what compactions had replaced took disk as long as extents were sent ahead of a checkpoint,
/// and it was sent too. Cause: the shipper held each of them. Fix: it holds none.
#[test]
fn what_is_replaced_while_extents_are_sent_ahead_is_given_back() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer_options(&Machine::with_files(), &server, None).open(PATH).unwrap();
    let small = db.table("small").unwrap();
    settle(|| db.step());
    let name = |n: u64| format!("many {n}");
    for n in 0..12 {
        let mut load = db.table(&name(n)).unwrap().bulk_load(terrace::Existing::Refuse).unwrap();
        let value = |row| Chance::new(n << 8 | row).bytes(1000);
        (0..20).for_each(|row| load.put(key(row), value(row)).unwrap());
        load.finish().unwrap();
    }
    // The log has all of them: it holds none.
    settle(|| db.step());
    let pieces = || server.names().iter().filter(|it| it.starts_with("shared/extents/")).count();
    let before = pieces();
    for n in 0.. {
        if pieces() > before {
            break;
        }
        assert!(n < 100, "a checkpoint is due");
        small.put(key(n), Chance::new(n).bytes(900)).unwrap();
        db.step().unwrap();
    }
    (0..12).for_each(|n| db.truncate_table(&name(n)).unwrap());
    settle(|| db.step());
    let sent = db.stats().share.unwrap().checkpoint_bytes;
    assert!(sent < 90_000, "{sent} bytes of 240,000 were sent");
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}
