//! Commits whose rows lie in extents: bulk loads, and what fits in no zone. Nodes follow them
//! without a checkpoint, and have each of them whole or not at all.

use super::nodes::{again, catch_up};
use super::{
    Content, content, key, make_tables, of_machine, settle, taken_over, value, writer_options,
};
use crate::common::alone;
use crate::common::cuts::PATH;
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{
    Database, Durability, Existing, Follower, ObjectServer, Options, Result, StoreFault,
    TableOptions, TxnOptions, WriteBatch,
};

/// A large commit of some kind.
type Large = fn(&Database, u64) -> Result<()>;

const LARGE: [(&str, Large); 4] = [
    ("bulk load", |db, round| {
        let mut load = db.existing_table("loaded")?.bulk_load(Existing::Replace)?;
        (0..120).try_for_each(|n| load.put(key(n), value(n, round)))?;
        load.finish()
    }),
    ("spilled transaction", |db, round| {
        let (table, other) = (db.existing_table("t")?, db.existing_table("both")?);
        let counted = db.existing_table("counted")?;
        let txn = db.begin_with(TxnOptions::new().spill_at(2 << 10))?;
        txn.delete_range(&table, key(20)..key(30))?;
        for n in 0..80 {
            txn.put(&table, key(n), value(n, round))?;
            txn.put(&other, key(n), value(n, round + 1))?;
        }
        txn.delete(&table, key(7))?;
        txn.delete(&other, key(900))?;
        txn.merge(&counted, key(1), 5i64.to_le_bytes())?;
        txn.commit()
    }),
    ("batch", |db, round| {
        let table = db.existing_table("remote")?;
        let mut batch = WriteBatch::new();
        batch.set_blob(format!("blob {round}"));
        for n in 0..90 {
            batch.put(&table, key(n), vec![round as u8; 20_000]);
        }
        batch.delete(&table, key(4));
        db.write(batch)
    }),
    ("large values", |db, round| {
        let mut load = db.existing_table("apart")?.bulk_load(Existing::Replace)?;
        (0..40).try_for_each(|n| load.put(key(n), vec![(n + round) as u8; 3000]))?;
        load.finish()
    }),
];

fn begun(machine: &Machine, server: &ObjectServer, bug: Option<Failpoint>) -> Database {
    let db = writer_options(machine, server, bug).open(PATH).unwrap();
    make_tables(&db, &|| ());
    db.create_table("apart", TableOptions::new().large_values(1 << 10)).unwrap();
    for n in 0..60 {
        db.existing_table("t").unwrap().put(key(n * 3), "before").unwrap();
    }
    settle(|| db.step());
    db
}

fn follow(machine: &Machine, server: &ObjectServer, bug: Option<Failpoint>) -> Follower {
    of_machine(machine, bug).follow(server.url(), "/follower").unwrap()
}

fn shown(follower: &Follower) -> Content {
    content(&follower.database().unwrap()).unwrap()
}

#[test]
fn large_commits_are_followed_without_a_checkpoint() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = begun(&Machine::with_files(), &server, None);
    let follower = follow(&Machine::with_files(), &server, None);
    let standby = of_machine(&Machine::with_files(), None).standby(server.url(), "/standby");
    let standby = standby.unwrap();
    let before = db.stats().share.unwrap();
    for (round, (what, large)) in (0..).zip(LARGE.into_iter().chain(LARGE)) {
        large(&db, round).unwrap();
        // A checkpoint that follows has no commit then that readers lack.
        settle(|| db.step());
        db.existing_table("t").unwrap().durability(Durability::Remote).put("after", what).unwrap();
        settle(|| db.step());
        catch_up(|| follower.step()).unwrap();
        catch_up(|| standby.step()).unwrap();
        assert_eq!(shown(&follower), content(&db).unwrap(), "{what}");
        assert_eq!(content(&standby.database().unwrap()).unwrap(), content(&db).unwrap());
    }
    assert_eq!((follower.status().restarts, follower.status().missed), (1, 0));
    let after = db.stats().share.unwrap();
    assert!(after.segments > before.segments + 40, "parts are many: {after:?}");
    let expected = content(&db).unwrap();
    assert_eq!(content(&taken_over(&server)).unwrap(), expected);
    let promoted = standby.promote().unwrap();
    assert_eq!(content(&promoted).unwrap(), expected);
    assert_eq!(promoted.verify().unwrap().damages, []);
    assert_eq!(promoted.last_blob().unwrap(), db.last_blob().unwrap());
}

/// A checkpoint is sent while parts of large commits go out: it has commits of which some parts
/// come before its first entry. A reader of it passes over the others, and counts nothing twice.
#[test]
fn a_reader_of_a_checkpoint_passes_over_parts_of_what_it_has() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = begun(&Machine::with_files(), &server, None);
    let checkpoint = || Options::new().shared_status(server.url()).unwrap().checkpoint;
    let before = content(&db).unwrap();
    // The first one makes a checkpoint due. Its data is sent while the next ones are.
    for (round, at) in [2, 1, 0, 3].into_iter().enumerate() {
        LARGE[at].1(&db, round as u64).unwrap();
    }
    let after = content(&db).unwrap();
    let (mut newest, mut made) = (checkpoint(), 0);
    while db.step().unwrap() {
        let is_new = checkpoint() > newest;
        newest = checkpoint();
        if is_new {
            made += 1;
            let second = taken_over(&server.copy());
            assert_eq!(second.verify().unwrap().damages, []);
            for (name, rows) in content(&second).unwrap() {
                assert!(rows == before[&name] || rows == after[&name], "{name} at entry {newest}");
            }
        }
    }
    assert!(made > 0, "a checkpoint came between");
    assert_eq!(content(&taken_over(&server)).unwrap(), after);
}

/// Steps the writer and a follower entry by entry through a large commit. At each entry the
/// follower, a takeover, and the writer after a power cut have all of it or nothing. What is wrong.
fn entry_by_entry(large: Large, bug: Option<Failpoint>) -> std::result::Result<u64, String> {
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = begun(&machine, &server, None);
    let follower = follow(&Machine::with_files(), &server, bug);
    catch_up(|| follower.step())?;
    let before = content(&db).unwrap();
    large(&db, 3).unwrap();
    let after = content(&db).unwrap();
    let is_whole = |found: &Content| *found == before || *found == after;
    let mut parts = 0;
    while again(|| db.step())? {
        catch_up(|| follower.step())?;
        let found = shown(&follower);
        if !is_whole(&found) {
            return Err(format!("the follower shows a part at entry {parts}"));
        }
        parts += u64::from(found == before);
        let second = of_machine(&Machine::with_files(), None);
        let copy = server.copy();
        let second = second.open_shared(copy.url(), PATH).map_err(|error| error.to_string())?;
        if content(&second).unwrap() != found {
            return Err(format!("a takeover at entry {parts} has other rows than the follower"));
        }
        // The writer comes up again: the commit was durable there.
        let copy = server.copy();
        let again = machine.crash(Survive::Nothing);
        let again = writer_options(&again, &copy, None).open(PATH);
        let again = again.map_err(|error| error.to_string())?;
        settle(|| again.step());
        let third = of_machine(&Machine::with_files(), None).open_shared(copy.url(), PATH);
        if content(&third.map_err(|error| error.to_string())?).unwrap() != after {
            return Err(format!("a writer that was cut at entry {parts} lost its commit"));
        }
    }
    if shown(&follower) == after { Ok(parts) } else { Err("it lacks the commit".to_string()) }
}

#[test]
fn a_large_commit_is_whole_or_not_there_at_each_entry() {
    let _turn = alone();
    for (what, large) in LARGE {
        let parts = entry_by_entry(large, None).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        assert!(parts >= 3, "{what}: {parts} parts");
    }
}

#[test]
fn a_reader_that_applies_parts_is_found() {
    let _turn = alone();
    let wrong = entry_by_entry(LARGE[0].1, Some(Failpoint::ApplyParts)).unwrap_err();
    assert!(wrong.contains("shows a part"), "{wrong}");
}

/// The power of the reader's machine is cut between any two entries, and before its own writes.
#[test]
fn a_reader_that_loses_its_power_between_parts_goes_on() {
    let _turn = alone();
    for (what, large) in LARGE {
        let server = ObjectServer::new();
        let db = begun(&Machine::with_files(), &server, None);
        let mut machine = Machine::with_files();
        drop(follow(&machine, &server, None));
        let before = content(&db).unwrap();
        large(&db, 5).unwrap();
        let after = content(&db).unwrap();
        settle(|| db.step());
        for steps in 0..40 {
            let follower = follow(&machine, &server, None);
            for _ in 0..steps {
                follower.step().unwrap();
            }
            let found = shown(&follower);
            assert!(found == before || found == after, "{what} after {steps} entries");
            let survive = [Survive::Nothing, Survive::Everything][steps % 2];
            machine = machine.crash(survive);
        }
        let follower = follow(&machine, &server, None);
        catch_up(|| follower.step()).unwrap();
        assert_eq!(shown(&follower), after, "{what}");
        assert_eq!(follower.database().unwrap().verify().unwrap().damages, []);
    }
}

/// Bug: while the store was away, compactions and truncations gave nothing back, until the disk was
/// full. Cause: the runs of all large commits were kept for the shipper, which held their extents.
/// Fix: beyond a bound those of further commits are not kept. A checkpoint ships them.
#[test]
fn runs_that_wait_for_the_store_have_a_bound() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = begun(&Machine::with_files(), &server, None);
    let follower = follow(&Machine::with_files(), &server, None);
    catch_up(|| follower.step()).unwrap();
    server.always(Some(StoreFault::Throttle));
    let (_, batch) = LARGE[2];
    for round in 0..20 {
        batch(&db, round).unwrap();
        db.truncate_table("remote").unwrap();
        (0..20).for_each(|_| drop(db.step()));
    }
    let bytes = db.stats().disk.extent_bytes;
    // Each round has written 1.8 MB.
    assert!((4 << 20..16 << 20).contains(&bytes), "{bytes} bytes");
    batch(&db, 77).unwrap();
    server.always(None);
    settle(|| db.step());
    let bytes = db.stats().disk.extent_bytes;
    assert!(bytes < 4 << 20, "{bytes} bytes");
    let expected = content(&db).unwrap();
    catch_up(|| follower.step()).unwrap();
    assert_eq!(shown(&follower), expected);
    assert_eq!(content(&taken_over(&server)).unwrap(), expected);
}
