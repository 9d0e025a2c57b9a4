//! Nodes and takeovers that start: the writer keeps what they need meanwhile, and goes on if they
//! fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::nodes::catch_up;
use super::{
    content, force_checkpoint, key, make_tables, of_machine, prepare, settle, work, writer,
    writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{Chance, alone};
use terrace::testing::{Call, CallSite, Fault, Faulty, FileKind, Machine};
use terrace::{Database, Durability, Error, ErrorKind, Existing, ObjectServer, StoreFault};

/// A database with rows in levels and a checkpoint, and commits behind it.
fn filled(server: &ObjectServer) -> Database {
    let db = writer(&Machine::with_files(), server);
    make_tables(&db, &|| ());
    rewrite(&db, 0);
    work(&db, 1);
    settle(|| db.step());
    db
}

/// Replaces all rows, so that the next checkpoint has other pieces.
fn rewrite(db: &Database, round: u64) {
    let mut load = db.existing_table("loaded").unwrap().bulk_load(Existing::Replace).unwrap();
    for n in 0..2000 {
        load.put(key(n), vec![(n + round) as u8; 900]).unwrap();
    }
    load.finish().unwrap();
    settle(|| db.step());
    force_checkpoint(db);
    settle(|| db.step());
}

/// Replaces all rows of many tables, so that a later checkpoint names none of the pieces before.
fn replace_all(db: &Database, round: u64) {
    for n in 0..20 {
        let name = format!("many {n}");
        let table = db.table(&name).unwrap();
        db.truncate_table(&name).unwrap();
        let mut load = table.bulk_load(terrace::Existing::Refuse).unwrap();
        (0..20).for_each(|row| load.put(key(row), vec![(n + round) as u8; 500]).unwrap());
        load.finish().unwrap();
    }
    force_checkpoint(db);
    settle(|| db.step());
}

/// What a takeover has left in its directory.
fn names_of(machine: &Machine) -> Vec<String> {
    let names = machine.list(Path::new(PATH)).into_iter().map(|(name, _)| name);
    names.filter(|name| name != "LOCK").collect()
}

/// A takeover that failed has left no file and no registration.
fn check_nothing_left(server: &ObjectServer, machine: &Machine) {
    assert_eq!(names_of(machine), Vec::<String>::new());
    let registered: Vec<String> =
        server.names().into_iter().filter(|name| name.contains("/takeover-")).collect();
    assert_eq!(registered, Vec::<String>::new());
}

/// Bug: a takeover that could not be opened, or whose prepares could not be fetched, left a
/// database in its directory, and its registration held the writer's collector back. Cause: only
/// what failed in the claim was cleaned up. Fix: the call that began a step cleans up after it.
#[test]
fn a_takeover_that_fails_here_leaves_nothing_behind() {
    let _turn = alone();
    let calls =
        [Call::Open, Call::Create, Call::Write, Call::Sync, Call::SyncDirectory, Call::Read];
    let files = [FileKind::Region, FileKind::Journal, FileKind::Marker, FileKind::Directory];
    let mut failed = 0;
    let server = ObjectServer::new();
    let db = filled(&server);
    prepare(&db, "open", 5, Durability::Remote).unwrap();
    for (call, file) in calls.into_iter().flat_map(|call| files.map(|file| (call, file))) {
        for nth in 1..40 {
            let (server, machine) = (server.copy(), Machine::with_files());
            machine.fail(Fault::once(Faulty::Site(CallSite { call, file }), nth));
            let taken = of_machine(&machine, None).open_shared(server.url(), PATH);
            let was_struck = !machine.failed_calls().is_empty();
            machine.mend();
            match taken {
                Err(_) if names_of(&machine).iter().any(|name| name == "shared") => {
                    // It is the writer's, and is whole: the end of its making alone has failed.
                    writer(&machine, &server);
                }
                Err(_) => {
                    failed += 1;
                    check_nothing_left(&server, &machine);
                    of_machine(&machine, None).open_shared(server.url(), PATH).unwrap();
                }
                Ok(_) if !was_struck => break,
                Ok(_) => {}
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

/// A takeover claimed the log before it applied what is there. Where that failed, the writer was
/// stopped and nothing had taken its place. Now all that the log has is applied first, so the
/// writer goes on after a failure, whichever request failed, and the directory is as before.
#[test]
fn a_takeover_that_fails_leaves_the_writer_alone() {
    let _turn = alone();
    for stands_by in [false, true] {
        let (mut failed, mut done) = (0, false);
        for at in 1..200 {
            let server = ObjectServer::new();
            let db = filled(&server);
            let table = db.existing_table("t").unwrap();
            let machine = Machine::with_files();
            let node = || of_machine(&machine, None);
            let standby = stands_by.then(|| node().standby(server.url(), PATH).unwrap());
            table.durability(Durability::Remote).put("more", "rows").unwrap();
            prepare(&db, "open", 5, Durability::Remote).unwrap();
            let expected = content(&db).unwrap();
            server.plan(server.requests() + at, StoreFault::Refuse);
            let before = server.requests();
            let taken = match standby {
                Some(standby) => standby.promote(),
                None => node().open_shared(server.url(), PATH),
            };
            let was_planned = server.requests() - before >= at;
            server.forget_plans();
            let went_on = table.durability(Durability::Remote).put("still", "there");
            match taken {
                // What it is told at the end may fail: the registration that it ends.
                Ok(second) => {
                    assert_eq!(content(&second).unwrap(), expected, "{at}");
                    assert_eq!(went_on.unwrap_err().kind(), ErrorKind::Fenced, "{at}");
                    done = !was_planned;
                }
                Err(error) => {
                    failed += 1;
                    // Only the look behind the claim may fail after it.
                    let is_claimed = went_on.is_err();
                    assert!(
                        !is_claimed || error.to_string().contains("shared/head"),
                        "{at}: {error}"
                    );
                    if !stands_by {
                        check_nothing_left(&server, &machine);
                        let again = node().open_shared(server.url(), PATH).unwrap();
                        let mut expected = expected;
                        if !is_claimed {
                            let rows = expected.get_mut("t").unwrap();
                            rows.insert(b"still".to_vec(), b"there".to_vec());
                        }
                        assert_eq!(content(&again).unwrap(), expected, "{at}");
                    }
                }
            }
            if done {
                break;
            }
        }
        assert!(done && failed > 4, "{stands_by}: {failed}");
    }
}

/// An entry of the log that cannot be applied fails a takeover, and does not stop the writer.
#[test]
fn a_log_that_cannot_be_applied_stops_no_writer() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = filled(&server);
    let standby = of_machine(&Machine::with_files(), None).standby(server.url(), "/s").unwrap();
    let table = db.existing_table("t").unwrap();
    table.durability(Durability::Remote).put("a", "b").unwrap();
    let last = server.names().into_iter().rfind(|name| name.starts_with("shared/log/")).unwrap();
    // In its body, which no search for the end reads.
    server.damage(&last, 80);
    let machine = Machine::with_files();
    for _ in 0..2 {
        let error = of_machine(&machine, None).open_shared(server.url(), PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert_eq!(standby.promote().unwrap_err().kind(), ErrorKind::Corrupt);
    table.durability(Durability::Remote).put("b", "c").unwrap();
}

/// A standby whose next entry is damaged starts from a newer checkpoint, if there is one. Its
/// promotion did not: it failed for good, though the store had all data.
#[test]
fn a_standby_is_promoted_behind_a_damaged_entry() {
    let _turn = alone();
    for at in [20, 80] {
        let server = ObjectServer::new();
        let db = filled(&server);
        let standby = of_machine(&Machine::with_files(), None).standby(server.url(), "/s").unwrap();
        catch_up(|| standby.step()).unwrap();
        db.existing_table("t").unwrap().durability(Durability::Remote).put("a", "b").unwrap();
        let last = server.names().into_iter().rfind(|name| name.starts_with("shared/log/"));
        force_checkpoint(&db);
        settle(|| db.step());
        // In its header and in its body.
        server.damage(&last.unwrap(), at);
        let before = content(&db).unwrap();
        let second = standby.promote().unwrap();
        assert_eq!(content(&second).unwrap(), before, "{at}");
        let error = db.existing_table("t").unwrap().durability(Durability::Remote).put("b", "c");
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Fenced, "{at}");
    }
}

/// The writer commits again and again between requests of a takeover. That reads on up to the end
/// of the log, and claims the next number right then.
#[test]
fn a_takeover_beside_a_busy_writer_catches_up() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = Arc::new(Mutex::new(filled(&server)));
    let (busy, chance) = (Arc::clone(&db), Mutex::new(Chance::new(7)));
    server.watch(Some(Box::new(move |number, after| {
        let Some(db) = busy.try_lock().filter(|_| after) else { return };
        // One commit for two requests.
        if chance.lock().percent(50) {
            let table = db.existing_table("t").unwrap();
            drop(table.durability(Durability::Remote).put(key(number), "busy"));
        }
    })));
    let second = of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH).unwrap();
    server.watch(None);
    let db = db.lock();
    let old = db.existing_table("t").unwrap().durability(Durability::Remote).put("a", "b");
    assert_eq!(old.unwrap_err().kind(), ErrorKind::Fenced);
    let rows = content(&second).unwrap().remove("t").unwrap();
    assert!(rows.values().filter(|value| **value == b"busy").count() > 4);
}

/// A node that copied was not registered. So the writer deleted what it was about to copy as soon
/// as it had two newer checkpoints, and no standby could be made beside a busy writer. Here the
/// writer makes checkpoints of other data between the requests of a node that copies.
#[test]
fn a_node_that_copies_beside_a_busy_writer_is_made() {
    let _turn = alone();
    for name in [None, Some("reports")] {
        let server = ObjectServer::new();
        let db = filled(&server);
        replace_all(&db, 0);
        let pieces = server.names().into_iter().filter(|name| name.starts_with("shared/extents/"));
        let (pieces, store) = (pieces.collect::<Vec<_>>(), server.clone());
        let db = Arc::new(Mutex::new(db));
        let (busy, rounds) = (Arc::clone(&db), Mutex::new(0));
        server.watch(Some(Box::new(move |_, after| {
            let Some(db) = busy.try_lock().filter(|_| after) else { return };
            let copied = pieces.iter().filter(|piece| store.asked(piece).gets > 0).count();
            let mut rounds = rounds.lock();
            // From the first pieces on that are copied.
            if copied > 0 && *rounds < 6 {
                *rounds += 1;
                replace_all(&db, *rounds);
            }
        })));
        let options = of_machine(&Machine::with_files(), None);
        let options = name.iter().fold(options, |options, name| options.follower_name(*name));
        let standby = options.standby(server.url(), "/s").unwrap();
        server.watch(None);
        catch_up(|| standby.step()).unwrap();
        let db = db.lock();
        assert!(db.stats().share.unwrap().checkpoints > 5);
        let shown = standby.database().unwrap();
        assert_eq!(content(&shown).unwrap(), content(&db).unwrap());
        assert_eq!(standby.status().missed, 0, "{:?}", standby.status());
        let stored = server.names().into_iter();
        let registered: Vec<String> =
            stored.filter(|name| name.starts_with("shared/followers/")).collect();
        let expected: Vec<String> =
            name.into_iter().map(|name| format!("shared/followers/{name}")).collect();
        assert_eq!(
            registered, expected,
            "a node that has started is registered by its user's name"
        );
    }
}

/// A failure of the collector counted as one of the entry before it: the entry was there, and the
/// shipper paused. It is the collector's alone, and its own statistics say so.
#[test]
fn a_collector_that_fails_fails_no_entry() {
    let _turn = alone();
    let mut failed = 0;
    for at in 1..120 {
        let server = ObjectServer::new();
        let db = filled(&server);
        db.existing_table("t").unwrap().put("a", "b").unwrap();
        force_checkpoint(&db);
        server.plan(server.requests() + at, StoreFault::Refuse);
        let entries = || server.names().iter().filter(|it| it.starts_with("shared/log/")).count();
        let (newest, before) =
            (|| server.names().into_iter().rfind(|it| it.contains("/log/")), entries());
        let last = newest();
        let stepped = db.step();
        let stats = db.stats().share.unwrap();
        let is_there = newest() != last;
        assert_eq!(stepped.is_ok(), is_there, "{at}: {stepped:?}, {before} entries");
        assert_eq!(stats.note.is_none(), is_there, "{at}: {stats:?}");
        failed += u64::from(stats.collect_note.is_some());
        if is_there && stats.collect_note.is_none() {
            break;
        }
        server.forget_plans();
        settle(|| db.step());
        assert_eq!(db.stats().share.unwrap().collect_note, None);
    }
    assert!(failed > 3, "{failed}");
}

/// A follower that reads in the store takes an entry that it cannot apply for a sign that its data
/// is lost, and starts from the newest checkpoint. It did so again and again, without a pause,
/// where that is the checkpoint that it has.
#[test]
fn a_damaged_entry_has_no_follower_start_anew_again_and_again() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = filled(&server);
    let options = of_machine(&Machine::with_files(), None).object_cache(64 << 10);
    let follower = options.follow(server.url(), "/f").unwrap();
    catch_up(|| follower.step()).unwrap();
    db.existing_table("t").unwrap().durability(Durability::Remote).put("a", "b").unwrap();
    let last = server.names().into_iter().rfind(|name| name.starts_with("shared/log/")).unwrap();
    server.damage(&last, 80);
    let before = follower.status().restarts;
    for _ in 0..5 {
        assert_eq!(follower.step().unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(follower.status().restarts, before);
    // A newer checkpoint is something to start from.
    force_checkpoint(&db);
    settle(|| db.step());
    catch_up(|| follower.step()).unwrap();
    assert_eq!(content(&follower.database().unwrap()).unwrap(), content(&db).unwrap());
}

/// Bug: a takeover that stood still for as long as the writer made many checkpoints claimed the
/// log, and its data was gone. Cause: entries may be kept longer than data, so it came to the end
/// of the log, and nothing looked whether the data of its checkpoint was kept. Fix: it gives a
/// sign and looks, before it claims, and starts from the newest checkpoint if it was not kept.
#[test]
fn a_takeover_that_stood_still_has_all_data() {
    let _turn = alone();
    let mut stood = 0;
    for at in (1..).step_by(2) {
        let server = ObjectServer::new();
        let options = super::writer_options(&Machine::with_files(), &server, None);
        let db = options.share_retention(Duration::from_hours(1)).open(PATH).unwrap();
        db.table("t").unwrap();
        // Each checkpoint has them in another piece, as long as they lie in the region.
        let first = db.table("first").unwrap();
        (0..50).for_each(|n| first.put(key(n), key(n)).unwrap());
        // Of so many segments that one is due: it comes behind them, and leaps over none.
        let checkpoint = |db: &Database, round: u64| {
            let table = db.existing_table("t")?;
            (0..300).try_for_each(|n| table.put(key(n), vec![(n + round) as u8; 900]))?;
            while db.step()? {}
            Ok::<(), Error>(())
        };
        checkpoint(&db, 0).unwrap();
        let (busy, before) = (db.clone(), server.requests());
        // The last round that the log has.
        let last = Arc::new(Mutex::new(None));
        let into = Arc::clone(&last);
        server.watch(Some(Box::new(move |number, after| {
            let Some(mut last) = into.try_lock() else { return };
            if after && number >= before + at && last.is_none() {
                *last = Some(0);
                // If the log is claimed by now, none of them gets there.
                let rounds = (1..20).take_while(|round| checkpoint(&busy, *round).is_ok());
                *last = rounds.last().or(*last);
            }
        })));
        let options = of_machine(&Machine::with_files(), None);
        let second = options.open_shared(server.url(), "/second").unwrap();
        server.watch(None);
        let Some(round) = *last.lock() else { break };
        stood += 1;
        let mut content = content(&second).unwrap();
        let rows = content.remove("t").unwrap();
        let expected: Vec<u8> = (0..300).map(|n| (n + round) as u8).collect();
        let found: Vec<u8> = rows.values().map(|value| value[0]).collect();
        assert_eq!(found, expected, "{at}: {round}");
        assert_eq!(content["first"], (0..50).map(|n| (key(n), key(n))).collect(), "{at}: {round}");
    }
    assert!(stood > 6, "{stood}");
}

/// Bug: an opening with `share` took the store from a writer that had just begun and lived. Cause:
/// the opening took a log without a checkpoint for an empty one. Fix: the opening fails, and its
/// error says what to delete if that writer is lost.
#[test]
fn a_store_whose_first_checkpoint_never_came_is_its_writers() {
    let _turn = alone();
    let server = ObjectServer::new();
    let lost = writer(&Machine::with_files(), &server);
    lost.table("t").unwrap().put("of the", "lost one").unwrap();
    let options = writer_options(&Machine::with_files(), &server, None);
    let error = options.open(PATH).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("delete all objects below"), "{error}");
    server.names().iter().filter(|name| name.starts_with("shared/")).for_each(|it| server.lose(it));
    let other = writer(&Machine::with_files(), &server);
    let table = other.table("t").unwrap();
    table.durability(Durability::Remote).put("of the", "other").unwrap();
    // The first one lives after all. It is fenced: the log has another's checkpoint.
    let late = lost.table("t").unwrap().durability(Durability::Remote).put("too", "late");
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Fenced);
    let taken = super::taken_over(&server);
    let rows = content(&taken).unwrap();
    assert_eq!(rows["t"].get(&b"of the"[..]), Some(&b"other".to_vec()));
}
