//! Who deletes what is read in the store (`docs/internals/shared-store.md`): each test breaks where
//! its rule is left out. What is read was not read before, so no cache has it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::nodes::catch_up;
use super::{
    Content, content, force_checkpoint, key, of_machine, settle, taken_over, writer, writer_options,
};
use crate::common::cuts::PATH;
use crate::common::{alone, rounds};
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, Follower, ObjectServer, StoreFault, TableOptions, WriteBatch,
};

/// New rows for all keys, and a checkpoint that names none of the pieces of the one before last.
fn checkpoint(db: &Database, round: u64) {
    let mut batch = WriteBatch::new();
    for (name, len) in [("t", 400), ("apart", 2000)] {
        let table = db.table(name).unwrap();
        for n in 0..12 {
            batch.put(&table, key(n), vec![round as u8; len + n as usize]);
        }
    }
    db.write(batch).unwrap();
    if round.is_multiple_of(2) {
        db.compact_range(&db.existing_table("t").unwrap(), ..).unwrap();
    }
    force_checkpoint(db);
    settle(|| db.step());
}

/// A writer with checkpoints of its own, of which the first ones are deleted.
fn begun(machine: &Machine, server: &ObjectServer) -> Database {
    let db = writer(machine, server);
    db.create_table("apart", TableOptions::new().large_values(1 << 10)).unwrap();
    db.table("prepared").unwrap();
    for round in 0..4 {
        checkpoint(&db, round);
    }
    db
}

fn pieces(server: &ObjectServer) -> Vec<String> {
    server.names().into_iter().filter(|name| name.starts_with("shared/extents/")).collect()
}

/// Calls `then` once, before request `at` from now on that comes while `during` runs; whether it
/// came.
fn between(
    server: &ObjectServer,
    at: u64,
    then: impl Fn() + Send + Sync + 'static,
    during: impl FnOnce(),
) -> bool {
    let (came, called) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let is_called = Arc::clone(&called);
    server.watch(Some(Box::new(move |_, after| {
        let is_it = !after && came.fetch_add(1, Ordering::Relaxed) == at;
        if is_it && !called.swap(true, Ordering::Relaxed) {
            then();
        }
    })));
    during();
    server.watch(None);
    is_called.load(Ordering::Relaxed)
}

/// A writer pauses at each request of a checkpoint and of its collection. Meanwhile it is taken
/// over, once or twice. Then it goes on, and deletes nothing that a takeover reads.
#[test]
fn a_writer_that_was_taken_over_deletes_nothing_that_is_read() {
    let _turn = alone();
    for at in 0.. {
        let server = ObjectServer::new();
        let db = begun(&Machine::with_files(), &server);
        let before = content(&db).unwrap();
        let table = db.existing_table("t").unwrap();
        table.durability(Durability::Relaxed).put("one", "more").unwrap();
        let after = content(&db).unwrap();
        force_checkpoint(&db);
        let taken: Arc<Mutex<Vec<Database>>> = Arc::default();
        let (into, of, twice) = (Arc::clone(&taken), server.clone(), at % 3 == 1);
        let take_over = move || {
            let second = taken_over(&of);
            let third = twice.then(|| {
                let own = second.table("own").unwrap();
                own.durability(Durability::Remote).put("own", vec![1; 900]).unwrap();
                force_checkpoint(&second);
                (0..3).for_each(|_| drop(second.step()));
                taken_over(&of)
            });
            into.lock().unwrap().extend([second].into_iter().chain(third));
        };
        let step = || while let Ok(true) = db.step() {};
        if !between(&server, at, take_over, step) {
            assert!(at > 10, "{at} requests");
            break;
        }
        step();
        for (n, second) in taken.lock().unwrap().iter().enumerate() {
            let found = content(second);
            let mut found = found.unwrap_or_else(|error| panic!("{at}, {n}: {error}"));
            assert_eq!(found.remove("own").is_some(), twice, "{at}, {n}");
            found.get_mut("(options)").unwrap().remove(&b"own"[..]);
            assert!(found == before || found == after, "{at}, {n}");
            assert_eq!(second.verify().unwrap().damages, [], "{at}, {n}");
        }
        let last = taken.lock().unwrap().pop().unwrap();
        settle(|| last.step());
        assert_eq!(last.stats().objects.map_or(0, |objects| objects.objects), 0);
    }
}

fn follow(machine: &Machine, server: &ObjectServer, name: Option<&str>) -> Follower {
    let options = of_machine(machine, None).object_cache(1 << 20);
    let options = name.iter().fold(options, |options, name| options.follower_name(*name));
    options.follow(server.url(), "/kept").unwrap()
}

/// The writer makes one checkpoint or three at each request of a follower's opening. What a
/// follower with a name starts from is kept from the moment on at which it says so. One without a
/// name has the last two, also those of a writer that was taken over. Where the checkpoint was left
/// behind before it was read, a follower said that there was no shared database.
#[test]
fn what_a_follower_starts_from_is_there() {
    let _turn = alone();
    for (name, checkpoints, takes_over) in
        [(Some("kept"), 3, false), (None, 1, false), (None, 1, true)]
    {
        for at in 0.. {
            let server = ObjectServer::new();
            let mut db = begun(&Machine::with_files(), &server);
            if takes_over {
                db = taken_over(&server);
            }
            let states = Arc::new(Mutex::new(vec![content(&db).unwrap()]));
            let (writer, into) = (db.clone(), Arc::clone(&states));
            let write = move || {
                for round in 10..10 + checkpoints {
                    checkpoint(&writer, round);
                    into.lock().unwrap().push(content(&writer).unwrap());
                }
            };
            let mut follower = None;
            let open = || follower = Some(follow(&Machine::with_files(), &server, name));
            let came = between(&server, at, write, open);
            let follower = follower.unwrap();
            let shown = content(&follower.database().unwrap());
            let shown = shown.unwrap_or_else(|error| panic!("{name:?} {at}: {error}"));
            assert!(states.lock().unwrap().contains(&shown), "{name:?} {at}");
            if !came {
                assert!(at > 2, "{at} requests");
                break;
            }
        }
    }
}

/// A follower with a name opens at each request of checkpoints and of what they delete, and reads
/// afterwards.
///
/// Bug: the writer deleted what the follower had just begun to read. Cause: it found followers by a
/// list, and a list may be old. Fix: names of followers are in an object, which is read.
#[test]
fn a_follower_that_an_old_list_lacks_is_known() {
    let _turn = alone();
    for stale in [0, 12, 24, 40, 60] {
        for at in 0.. {
            let server = ObjectServer::new();
            let db = begun(&Machine::with_files(), &server);
            let states = Arc::new(Mutex::new(vec![content(&db).unwrap()]));
            let opened: Arc<Mutex<Option<Follower>>> = Arc::default();
            let (into, of) = (Arc::clone(&opened), server.clone());
            let open = move || {
                let follower = follow(&Machine::with_files(), &of, Some("late"));
                *into.lock().unwrap() = Some(follower);
            };
            server.always((stale > 0).then_some(StoreFault::Stale(stale)));
            let came = between(&server, at, open, || {
                for round in 10..13 {
                    checkpoint(&db, round);
                    states.lock().unwrap().push(content(&db).unwrap());
                }
            });
            server.always(None);
            if !came {
                assert!(at > 20, "{at} requests");
                break;
            }
            let follower = opened.lock().unwrap().take().unwrap();
            let shown = content(&follower.database().unwrap());
            let shown = shown.unwrap_or_else(|error| panic!("{stale} {at}: {error}"));
            assert!(states.lock().unwrap().contains(&shown), "{stale} {at}");
        }
    }
}

/// A follower was away for more checkpoints than the writer keeps for it, or is not known any more.
///
/// Bug: its reads failed as `Corrupt` until it had taken a step. Cause: its data was deleted, and
/// it did not look when it was opened. Fix: the store says which data is kept. The follower starts
/// from the newest checkpoint before it is read, or says that what a handle needs is deleted.
#[test]
fn a_follower_whose_data_is_deleted_reads_on() {
    let _turn = alone();
    for case in ["opened again", "forgotten", "gets its name", "open"] {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let db = begun(&Machine::with_files(), &server);
        let name = (case != "gets its name").then_some("away");
        let mut follower = follow(&machine, &server, name);
        let old = follower.database().unwrap();
        if case == "forgotten" {
            of_machine(&machine, None).forget_follower(server.url(), "away").unwrap();
        }
        (10..34).for_each(|round| checkpoint(&db, round));
        if case == "open" {
            let gone = content(&old).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::Unavailable, "{gone}");
            assert!(gone.to_string().contains("ask the follower for its database"), "{gone}");
        } else {
            drop(old);
            follower.close().unwrap();
            // What it kept in memory is lost.
            follower = follow(&machine.crash(Survive::Everything), &server, Some("away"));
        }
        let shown = content(&follower.database().unwrap());
        let shown = shown.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(shown, content(&db).unwrap(), "{case}");
        assert_eq!(follower.status().missed, 1, "{case}");
        checkpoint(&db, 34);
        catch_up(|| follower.step()).unwrap();
        assert_eq!(content(&follower.database().unwrap()).unwrap(), content(&db).unwrap());
    }
}

/// The machine that took over brings its data, and makes checkpoints without it, at each request of
/// a read: what the read is at stays.
#[test]
fn what_a_read_is_at_is_not_deleted() {
    let _turn = alone();
    type Read = fn(&Database) -> terrace::Result<usize>;
    let reads: [Read; 2] = [
        |db| Ok(db.existing_table("apart")?.get(key(3))?.map_or(0, |value| value.len() - 2002)),
        |db| {
            db.existing_table("t")?.range(..).collect::<terrace::Result<Vec<_>>>().map(|r| r.len())
        },
    ];
    for (read, expected) in reads.into_iter().zip([1, 12]) {
        for at in 0.. {
            let server = ObjectServer::new();
            drop(begun(&Machine::with_files(), &server));
            let second = taken_over(&server);
            let writer = second.clone();
            let write = move || (20..24).for_each(|round| checkpoint(&writer, round));
            let mut found = None;
            let came = between(&server, at, write, || found = Some(read(&second)));
            let found = found.unwrap().unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(found, expected, "{at}");
            if !came {
                assert!(at > 1, "{at} requests");
                break;
            }
        }
    }
}

/// A follower with a name reads what it started from while the writer goes on, also where another
/// opening or another machine writes by now. The writer keeps that up to a bound. When the follower
/// has gone on, it is deleted.
#[test]
fn what_a_follower_reads_is_kept_while_it_stands_still() {
    let _turn = alone();
    for case in ["one writer", "opened again", "taken over"] {
        let (server, machine) = (ObjectServer::new(), Machine::with_files());
        let mut db = begun(&machine, &server);
        let expected = content(&db).unwrap();
        let followers = [0; 3].map(|_| Machine::with_files());
        let one = follow(&followers[0], &server, Some("one"));
        let two = follow(&followers[1], &server, Some("two"));
        let three = follow(&followers[2], &server, Some("three"));
        let read = pieces(&server);
        checkpoint(&db, 10);
        checkpoint(&db, 11);
        match case {
            "one writer" => {}
            "opened again" => {
                db.close().unwrap();
                db = writer(&machine, &server);
            }
            _ => db = taken_over(&server),
        }
        for round in 12..20 {
            checkpoint(&db, round);
        }
        assert_eq!(content(&one.database().unwrap()).unwrap(), expected, "{case}");
        // They go on, but for the last one. So does one that lost its power meanwhile.
        catch_up(|| one.step()).unwrap();
        drop(two);
        let two = follow(&followers[1].crash(Survive::Nothing), &server, Some("two"));
        assert_eq!(content(&two.database().unwrap()).unwrap(), expected, "{case}");
        catch_up(|| two.step()).unwrap();
        for follower in [&one, &two] {
            let shown = follower.database().unwrap();
            assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{case}");
            assert_eq!(follower.status().missed, 0, "{case}");
        }
        // The last one was away for too long. Its error names the object that is gone, and says
        // what to do.
        for round in 20..44 {
            checkpoint(&db, round);
            catch_up(|| one.step()).unwrap();
            catch_up(|| two.step()).unwrap();
        }
        let left = pieces(&server);
        assert!(!read.iter().any(|piece| left.contains(piece)), "{case}");
        let gone = content(&three.database().unwrap()).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Unavailable, "{case}: {gone}");
        assert!(gone.to_string().contains("shared/extents/"), "{case}: {gone}");
        catch_up(|| three.step()).unwrap();
        let shown = three.database().unwrap();
        assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{case}");
    }
}

/// Cuts the power of a machine that took over, at each of its requests while its data comes, with
/// checkpoints between that delete what it needs no more. All that its journal names is there.
fn cut_at_each_request(bug: Option<Failpoint>) -> Result<u64, String> {
    let server = ObjectServer::new();
    let expected = content(&begun(&Machine::with_files(), &server)).unwrap();
    let machine = Machine::with_files();
    let options = of_machine(&machine, bug);
    let second = options.open_shared(server.url(), PATH).map_err(|e| e.to_string())?;
    let images = Arc::new(Mutex::new(Vec::new()));
    let (into, of, own) = (Arc::clone(&images), server.clone(), machine);
    server.watch(Some(Box::new(move |number, _| {
        let survive = [Survive::Nothing, Survive::Everything][number as usize % 2];
        into.lock().unwrap().push((own.crash(survive), of.copy()));
    })));
    for _ in 0..4 {
        force_checkpoint(&second);
        for _ in 0..4 {
            drop(second.step());
        }
    }
    server.watch(None);
    let images = std::mem::take(&mut *images.lock().unwrap());
    let looked = images.len() as u64;
    for (n, (machine, server)) in images.into_iter().enumerate() {
        let again = writer_options(&machine, &server, None).open(PATH);
        let found = again.and_then(|again| content(&again));
        let found = found.map_err(|error| format!("image {n}: {error}"))?;
        if found != expected {
            return Err(format!("image {n} has other rows"));
        }
    }
    Ok(looked)
}

#[test]
fn what_a_journal_names_is_there_after_a_cut() {
    let _turn = alone();
    let looked = cut_at_each_request(None).unwrap();
    assert!(looked > 20, "{looked}");
    let found = cut_at_each_request(Some(Failpoint::DeleteBeforeEdit));
    assert!(found.is_err(), "the planted bug was not found");
}

/// A sync of a machine that took over fails, each one in its turn. It stops; what its journal may
/// name is still there when it comes up after a power cut, and when it is taken over itself.
#[test]
fn a_sync_that_fails_after_a_takeover_loses_nothing() {
    let _turn = alone();
    let mut failed = 0;
    for nth in (1..).step_by(rounds(2, 1) as usize) {
        let server = ObjectServer::new();
        drop(begun(&Machine::with_files(), &server));
        let machine = Machine::with_files();
        let second = of_machine(&machine, None).open_shared(server.url(), PATH).unwrap();
        let mut states: Vec<Content> = vec![content(&taken_over(&server.copy())).unwrap()];
        machine.fail_sync_after(nth);
        let mut sound = 0;
        for round in 0..4u64 {
            let mut batch = WriteBatch::new();
            let table = second.existing_table("t").unwrap();
            batch.put(&table, key(round), vec![7; 3000]);
            let mut next = states.last().unwrap().clone();
            next.get_mut("t").unwrap().insert(key(round), vec![7; 3000]);
            states.push(next);
            if second.write(batch).is_err() {
                break;
            }
            sound = states.len() - 1;
            second.forget_unshipped();
            if (0..5).any(|_| second.step().is_err()) {
                break;
            }
        }
        let has_failed = machine.failed_calls().values().sum::<u64>() > 0;
        for survive in [Survive::Nothing, Survive::Everything] {
            let (machine, server) = (machine.crash(survive), server.copy());
            let again = writer_options(&machine, &server, None).open(PATH).unwrap();
            let found = content(&again).unwrap_or_else(|error| panic!("sync {nth}: {error}"));
            assert!(states[sound..].contains(&found), "sync {nth}, {survive:?}");
            settle(|| again.step());
            assert_eq!(content(&again).unwrap(), found, "sync {nth}, {survive:?}");
            assert_eq!(content(&taken_over(&server)).unwrap(), found, "sync {nth}, {survive:?}");
        }
        // The machine is lost: what was shipped is there.
        let third = content(&taken_over(&server)).unwrap();
        assert!(states.contains(&third), "sync {nth}");
        if !has_failed {
            break;
        }
        failed += 1;
    }
    assert!(failed > 5, "{failed} syncs");
}
