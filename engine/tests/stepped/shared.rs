//! A shared store: a writer, takeovers, followers and standbys on one simulated store.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod far;
mod held;
mod kept;
mod large;
mod levels;
mod nodes;
mod options;
mod prepared;
mod readers;
mod seeds;
mod starts;
mod transfer;
mod unshipped;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::cuts::{PATH, options as of_machine};
use crate::common::{Chance, NOTHING_TO_WRITE, alone};
use terrace::testing::{Failpoint, Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, Existing, ObjectServer, Options, Result, TableOptions,
    TxnOptions, WriteBatch,
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All tables by name.
type Content = BTreeMap<String, Rows>;

fn writer_options(machine: &Machine, server: &ObjectServer, bug: Option<Failpoint>) -> Options {
    of_machine(machine, bug).object_store(server.url()).share(true)
}

fn writer(machine: &Machine, server: &ObjectServer) -> Database {
    writer_options(machine, server, None).open(PATH).unwrap()
}

fn taken_over(server: &ObjectServer) -> Database {
    of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH).unwrap()
}

/// Steps until nothing is left to do.
fn settle(step: impl Fn() -> Result<bool>) {
    for _ in 0..10_000 {
        if !step().unwrap() {
            return;
        }
    }
    panic!("ten thousand steps and no end");
}

fn content(db: &Database) -> Result<Content> {
    let names = db.table_names().into_iter().filter(|name| name != "terrace-replica");
    let rows = |name: String| {
        let rows = db.existing_table(&name)?.range(..).collect::<Result<Vec<_>>>()?;
        let rows = rows.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        Ok((name, rows.collect()))
    };
    let mut content = names.map(rows).collect::<Result<Content>>()?;
    let prepared = db.list_prepared().into_iter();
    let prepared = prepared.map(|one| (one.id, one.writes.to_le_bytes().to_vec()));
    content.insert("(prepared)".to_string(), prepared.collect());
    let names = db.table_names().into_iter().filter(|name| name != "terrace-replica");
    let options = |name: String| {
        let options = format!("{:?}", db.existing_table(&name)?.options());
        Ok((name.into_bytes(), options.into_bytes()))
    };
    content.insert("(options)".to_string(), names.map(options).collect::<Result<_>>()?);
    let blob = db.last_blob().map(|blob| (b"last".to_vec(), blob.to_vec()));
    content.insert("(blob)".to_string(), blob.into_iter().collect());
    Ok(content)
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    Chance::new(n << 16 | round).bytes(40 + n as usize % 200)
}

/// A step of a workload: it tells after each commit.
type Work = fn(&Database, u64, &dyn Fn()) -> Result<()>;

/// Tables that are there from the start.
const TABLES: [&str; 6] = ["t", "both", "short", "loaded", "remote", "prepared"];

/// Makes the tables of [`WORK`].
fn make_tables(db: &Database, told: &dyn Fn()) {
    for name in TABLES {
        db.table(name).unwrap();
        told();
    }
    let counters = TableOptions::new().merge_operator(terrace::operators::COUNTER);
    db.create_table("counted", counters).unwrap();
    told();
}

/// Commits of every kind, and what changes tables.
const WORK: [Work; 14] = [
    |db, round, _| {
        let (table, other) = (db.existing_table("t")?, db.existing_table("both")?);
        let mut batch = WriteBatch::new();
        batch.put(&table, key(round * 7 % 90), value(round, 1));
        batch.put(&other, key(round), value(round, 2));
        batch.set_blob(format!("blob {round}"));
        db.write_with(&batch, Durability::Relaxed)
    },
    |db, round, told| {
        let table = db.existing_table("t")?;
        (0..20).try_for_each(|n| table.put(key(n * 3), value(n, round)).inspect(|()| told()))
    },
    |db, round, _| db.existing_table("t")?.delete(key(round % 60)),
    |db, _, _| {
        let table = db.existing_table("t")?;
        let mut batch = WriteBatch::new();
        batch.delete_range(&table, key(20)..key(40)).put(&table, key(25), "again");
        db.write(batch)
    },
    |db, round, told| {
        let table = db.table(&format!("new {round}"))?;
        told();
        table.put("a", value(round, 3))?;
        told();
        db.rename_table(&format!("new {round}"), &format!("renamed {round}"))
    },
    |db, _, told| {
        for value in ["b", "c"] {
            let table = db.table("gone")?;
            told();
            table.put("a", value)?;
            told();
            if value == "b" {
                db.drop_table("gone")?;
                told();
            }
        }
        Ok(())
    },
    |db, round, told| {
        let table = db.existing_table("short")?;
        table.put(key(round), "before")?;
        told();
        db.truncate_table("short")?;
        told();
        table.put(key(round), "after")
    },
    |db, round, _| {
        let options = db.existing_table("t")?.options().filter_bits(5 + round as u8 % 8);
        db.set_table_options("t", options)
    },
    |db, round, _| {
        let mut load = db.existing_table("loaded")?.bulk_load(Existing::Replace)?;
        (0..30).try_for_each(|n| load.put(key(n), value(n, round)))?;
        load.finish().map(drop)
    },
    |db, round, _| db.existing_table("counted")?.merge(key(round % 4), 3i64.to_le_bytes()),
    |db, round, told| {
        for (n, name) in ["soon", "late"].into_iter().enumerate() {
            prepare(db, &format!("{name} {round}"), round << 8 | n as u64, Durability::Durable)?;
            told();
        }
        Ok(())
    },
    |db, round, told| {
        for (name, commits) in [("soon", true), ("late", round % 20 < 10)] {
            let before = if name == "soon" { round - 1 } else { round.saturating_sub(11) };
            let id = format!("{name} {before}");
            if !db.list_prepared().iter().any(|one| one.id == id.as_bytes()) {
                continue;
            }
            if commits {
                db.commit_prepared(&id)?
            } else {
                db.roll_back_prepared(&id, terrace::Durability::Durable)?
            }
            told();
        }
        Ok(())
    },
    |db, round, _| {
        let options = db.existing_table("both")?.options();
        // Nothing expires in a test.
        db.set_table_options("both", options.ttl(Duration::from_hours(10_000 + round)))
    },
    |db, round, told| {
        let name = format!("large {}", round % 3);
        if !db.table_names().contains(&name) {
            db.create_table(&name, TableOptions::new().large_values(600))?;
            told();
        }
        let table = db.existing_table(&name)?;
        table.put(key(round), Chance::new(round).bytes(2000))?;
        told();
        table.delete(key(round.saturating_sub(7)))
    },
];

/// Prepares writes of every kind to rows of its own, every other time with some of them spilled.
fn prepare(db: &Database, id: &str, n: u64, durability: Durability) -> Result<()> {
    let table = db.existing_table("prepared")?;
    let row = |m: u64| format!("{n:08} {m:02}");
    let mut options = TxnOptions::new().durability(durability);
    if n % 2 == 1 {
        options = options.spill_at(2 << 10);
    }
    let txn = db.begin_with(options)?;
    txn.delete_range(&table, row(60)..row(80))?;
    for m in 0..40 {
        txn.put(&table, row(m * 2), value(n, m))?;
    }
    txn.delete(&table, row(10))?;
    txn.get_for_update(&table, row(91))?;
    txn.range_for_update(&table, row(95)..row(99))?;
    txn.prepare(id)
}

/// Has the next steps send a checkpoint that leaps: over commits that no segment has any more.
fn force_checkpoint(db: &Database) {
    db.forget_unshipped();
    prepare(db, "forced", 9000, Durability::Durable).unwrap();
    db.roll_back_prepared("forced", terrace::Durability::Durable).unwrap();
}

/// Does all of it once.
fn work(db: &Database, round: u64) {
    for (n, step) in (0..).zip(WORK) {
        step(db, round * 10 + n, &|| ()).unwrap();
    }
}

#[test]
fn what_is_remote_survives_the_machine() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    make_tables(&db, &|| ());
    for round in 0..6 {
        work(&db, round);
    }
    db.table("t").unwrap().durability(Durability::Remote).put("last", "one").unwrap();
    let expected = content(&db).unwrap();
    let blob = db.last_blob().unwrap();
    // The machine is lost here: it does nothing any more.
    let second = taken_over(&server);
    assert_eq!(content(&second).unwrap(), expected);
    assert_eq!(second.last_blob().unwrap(), blob);
    assert_eq!(second.verify().unwrap().damages, []);
    let table = second.table("t").unwrap();
    table.durability(Durability::Remote).put("last", "two").unwrap();
    // It was only paused, and wakes up.
    let old = db.table("t").unwrap();
    let error = old.durability(Durability::Remote).put("void", "void").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    let error = old.put("void", "void").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    work(&second, 20);
    let expected = content(&second).unwrap();
    settle(|| second.step());
    let third = taken_over(&server);
    assert_eq!(content(&third).unwrap(), expected);
    let number = |db: &Database| db.stats().share.unwrap().shipped;
    third.table("t").unwrap().durability(Durability::Remote).put("last", "three").unwrap();
    assert!(number(&third) > number(&second), "numbers of commits go on");
}

#[test]
fn commits_that_wait_share_one_request() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    settle(|| db.step());
    let table = db.table("t").unwrap();
    settle(|| db.step());
    let before = server.requests();
    let pending: Vec<_> = (0..64)
        .map(|n| {
            let mut batch = WriteBatch::new();
            batch.put(&table, key(n), "value");
            db.enqueue(batch, Durability::Remote).unwrap()
        })
        .collect();
    pending.into_iter().for_each(|pending| pending.wait().unwrap());
    assert_eq!(server.requests() - before, 1);
    let stats = db.stats().share.unwrap();
    assert_eq!((stats.lag_commits, stats.lag_bytes, stats.lag_ms), (0, 0, 0), "{stats:?}");
}

#[test]
fn remote_needs_a_shared_store_and_sharing_an_object_store() {
    let _turn = alone();
    let db = of_machine(&Machine::with_files(), None).open(PATH).unwrap();
    let error = db.table("t").unwrap().durability(Durability::Remote).put("a", "b").unwrap_err();
    assert!(error.to_string().contains("with share"), "{error}");
    assert_eq!(db.table("t").unwrap().get("a").unwrap(), None, "nothing was done");
    let shared = of_machine(&Machine::with_files(), None).share(true);
    let error = shared.open(PATH).unwrap_err();
    assert!(error.to_string().contains("object_store"), "{error}");
    let server = ObjectServer::new();
    let options = of_machine(&Machine::with_files(), None);
    let error = options.open_shared(server.url(), PATH).unwrap_err();
    assert!(error.to_string().contains("no shared database"), "{error}");
}

/// The writer is opened again where it was, after a closing and after a power cut: the log goes on
/// without what it has, and with what it lacks.
#[test]
fn a_writer_goes_on_where_its_log_ends() {
    let _turn = alone();
    let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    work(&db, 0);
    settle(|| db.step());
    db.close().unwrap();
    let puts = server.asked("").puts;
    let db = writer(&machine, &server);
    settle(|| db.step());
    assert_eq!(
        server.asked("").puts - puts,
        3,
        "a claim, the tables, and the claim of the register"
    );
    // It is cut with commits that were not shipped.
    work(&db, 1);
    machine = machine.crash(Survive::Nothing);
    let db = writer(&machine, &server);
    let expected = content(&db).unwrap();
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), expected);
    let error = writer_options(&machine.crash(Survive::Everything), &server, None).open(PATH);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Fenced, "it was taken over");
}

/// A directory that lacks commits of the log claimed it first and was refused afterwards: the
/// writer was stopped by an opening that failed. Now it is refused before it claims.
#[test]
fn a_copy_of_a_directory_that_lacks_commits_stops_no_writer() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    let copy = machine.crash(Survive::Everything);
    let table = db.existing_table("t").unwrap();
    table.durability(Durability::Remote).put("later", "one").unwrap();
    let entries = || server.names().into_iter().filter(|it| it.contains("/log/")).count();
    let before = entries();
    for _ in 0..2 {
        let error = writer_options(&copy, &server, None).open(PATH).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("lost commits"), "{error}");
    }
    assert_eq!(entries(), before, "nothing was claimed");
    table.durability(Durability::Remote).put("later", "two").unwrap();
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// Bug: a writer went on without a commit that the store had acknowledged. Cause: the commit was
/// damaged here, and the next LSN, which is behind it, was compared with the log's end. Fix: the
/// last commit that recovery found is. Bug: that was so for one opening; the second one went on.
/// Cause: the first one had raised the floor above the lost commit. Fix: the superblock keeps what
/// openings found until the store agrees.
#[test]
fn a_writer_that_lost_a_commit_which_the_store_has_is_told() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    let (table, value) = (db.existing_table("t").unwrap(), b"the last one of all");
    table.durability(Durability::Remote).put("later", value).unwrap();
    let copy = machine.crash(Survive::Everything);
    let path = std::path::Path::new(PATH).join("region");
    let region = copy.contents(&path);
    let at = region.windows(value.len()).position(|bytes| bytes == value).unwrap();
    copy.corrupt(&path, at as u64, 1);
    let lacks = || {
        let error = writer_options(&copy, &server, None).open(PATH).unwrap_err();
        assert!(error.to_string().contains("lost commits"), "{error}");
    };
    lacks();
    lacks();
    let db = of_machine(&copy, None).open(PATH).unwrap();
    db.existing_table("t").unwrap().put("later", "another one with its LSN").unwrap();
    db.close().unwrap();
    lacks();
}

/// Bug: the writer after a takeover of a store without commits was refused for good. Cause: 0 stood
/// for no takeover, and was the last LSN of such a log. Fix: what a takeover found is an option.
#[test]
fn a_writer_that_took_over_a_store_without_commits_is_let_in() {
    let _turn = alone();
    let server = ObjectServer::new();
    let first = writer(&Machine::with_files(), &server);
    settle(|| first.step());
    let machine = Machine::with_files();
    let db = of_machine(&machine, None).open_shared(server.url(), PATH).unwrap();
    settle(|| db.step());
    db.table("t").unwrap().durability(Durability::Remote).put("key", "there").unwrap();
    db.close().unwrap();
    let db = writer(&machine, &server);
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// A commit above what an opening found is the store's after the store has agreed: the next opening
/// asks for no more than this one has.
#[test]
fn a_writer_that_lost_nothing_is_let_in_after_each_power_cut() {
    let _turn = alone();
    let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
    for round in 0..3_u32 {
        let db = writer(&machine, &server);
        if round == 0 {
            make_tables(&db, &|| ());
        }
        let table = db.existing_table("t").unwrap();
        table.durability(Durability::Remote).put(round.to_be_bytes(), "there").unwrap();
        machine = machine.crash(Survive::Nothing);
        let db = of_machine(&machine, None).open(PATH).unwrap();
        db.existing_table("t").unwrap().put("own", round.to_be_bytes()).unwrap();
        machine = machine.crash(Survive::Everything);
    }
    let db = writer(&machine, &server);
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// The newest checkpoint was damaged in the store, and no opening of the writer came through: what
/// only says what need not be sent again failed all of it. Now the opening sends a checkpoint.
#[test]
fn a_writer_opens_beside_a_damaged_checkpoint_and_makes_another() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    work(&db, 0);
    settle(|| db.step());
    db.close().unwrap();
    let damaged = || {
        let status = of_machine(&Machine::with_files(), None).shared_status(server.url());
        let checkpoint = status.unwrap().checkpoint;
        server.damage(&format!("shared/log/{checkpoint:016x}"), 80);
        checkpoint
    };
    let number = damaged();
    let error = of_machine(&Machine::with_files(), None).open_shared(server.url(), PATH);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt, "no reader starts from it");
    let db = writer(&machine, &server);
    settle(|| db.step());
    assert!(damaged() > number, "there is a newer one, which is damaged in turn");
    work(&db, 1);
    force_checkpoint(&db);
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// A table is created, another one emptied, right after an opening, before anything was shipped.
/// The list of tables behind the claim was of that moment and named them, with the LSN of the
/// opening. So readers did not know the tables of the commits that came after it.
#[test]
fn tables_that_change_right_after_an_opening_are_followed() {
    let _turn = alone();
    let (server, machine) = (ObjectServer::new(), Machine::with_files());
    let db = writer(&machine, &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    let follower = of_machine(&Machine::with_files(), None).follow(server.url(), "/f").unwrap();
    settle(|| follower.step());
    db.close().unwrap();
    for round in 0..3 {
        let db = match round {
            0 => writer(&machine, &server),
            _ => taken_over(&server),
        };
        db.existing_table("short").unwrap().put("before", "gone").unwrap();
        db.truncate_table("short").unwrap();
        db.table(&format!("new {round}")).unwrap().put("a", "b").unwrap();
        db.rename_table("both", "other").unwrap();
        db.rename_table("other", "both").unwrap();
        settle(|| db.step());
        settle(|| follower.step());
        let shown = follower.database().unwrap();
        assert_eq!(content(&shown).unwrap(), content(&db).unwrap(), "{round}");
        assert_eq!(follower.status().restarts, 1);
    }
}

/// A store that is away: commits go on, and what does not fit in memory is made up by a checkpoint.
#[test]
fn a_store_that_is_away_slows_no_commit() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    make_tables(&db, &|| ());
    settle(|| db.step());
    server.always(Some(terrace::StoreFault::Throttle));
    for round in 0..3 {
        work(&db, round);
        drop(db.step());
    }
    let stats = db.stats().share.unwrap();
    assert!(stats.lag_commits > 0 && stats.note.is_some(), "{stats:?}");
    let error = db.table("t").unwrap().durability(Durability::Remote).put("a", "b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    server.always(None);
    settle(|| db.step());
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());
}

/// Bug: a commit that was to be remote had an unknown outcome, and the caller tried again with what
/// is safe to repeat: it heard "done" of a row that no takeover found. Cause: a call that finds
/// nothing to write did not wait for the store. Fix: it waits until the store has what it read.
#[test]
fn a_call_that_is_tried_again_answers_for_the_row_that_it_finds() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    let table = db.table("t").unwrap().durability(Durability::Remote);
    db.table("empty").unwrap();
    settle(|| db.step());
    server.always(Some(terrace::StoreFault::Throttle));
    let error = table.compare_and_set("k", None, Some(b"1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    for call in NOTHING_TO_WRITE {
        let error = call(&db, &table, Durability::Remote).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    }
    server.always(None);
    NOTHING_TO_WRITE[0](&db, &table, Durability::Remote).unwrap();
    assert_eq!(content(&taken_over(&server)).unwrap(), content(&db).unwrap());

    let alone = of_machine(&Machine::with_files(), None).open(PATH).unwrap();
    let [table, _] = ["t", "empty"].map(|name| alone.table(name).unwrap());
    table.put("k", "1").unwrap();
    for call in NOTHING_TO_WRITE {
        let error = call(&alone, &table.durability(Durability::Remote), Durability::Remote);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
