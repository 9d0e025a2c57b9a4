//! Options of tables: each change has its place in the order of commits, on every node.

use std::collections::BTreeMap;
use std::time::Duration;

use super::nodes::catch_up;
use super::{Content, Rows, content, key, of_machine, settle, taken_over, value, writer};
use crate::common::{Chance, alone, rounds};
use terrace::operators::APPEND;
use terrace::testing::{HandClock, Machine, Survive};
use terrace::{
    Database, Durability, ErrorKind, Existing, MergeOperator, ObjectServer, Result, TableOptions,
    WriteBatch,
};

const HOUR: Duration = Duration::from_secs(3600);

/// All that a node shows: rows, options, the last blob.
fn shown(db: &Database) -> (Content, BTreeMap<String, String>, Option<Vec<u8>>) {
    let names = db.table_names().into_iter().filter(|name| name != "terrace-replica");
    let options = |name: String| {
        let options = db.existing_table(&name).unwrap().options();
        (name, format!("{options:?}"))
    };
    (content(db).unwrap(), names.map(options).collect(), db.last_blob().map(|blob| blob.to_vec()))
}

/// A reader got the options of now before the commits that came before them, and passed over tables
/// that it did not know yet. So a row that was acknowledged by the store expired after a takeover,
/// since its table was created with a time to live that was removed before the row came.
#[test]
fn a_time_to_live_that_was_removed_before_the_table_was_shipped() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    db.table("x").unwrap().durability(Durability::Remote).put("a", "1").unwrap();
    let aging = TableOptions::new().ttl(Duration::from_secs(1));
    let table = db.create_table("t", aging).unwrap();
    db.set_ttl("t", None).unwrap();
    table.durability(Durability::Remote).put("k", "kept for ever").unwrap();
    let clock = HandClock::default();
    let options = of_machine(&Machine::with_files(), None).clock(&clock);
    let second = options.open_shared(server.url(), crate::common::cuts::PATH).unwrap();
    assert_eq!(shown(&second), shown(&db));
    clock.pass(Duration::from_secs(60));
    settle(|| second.step());
    let there = second.existing_table("t").unwrap();
    assert_eq!(there.get("k").unwrap().as_deref(), Some(&b"kept for ever"[..]));
}

/// The numbers of tables are a node's own. A table that was truncated, and one that was made behind
/// a checkpoint, got others with each takeover: what belongs to a table is found by its tag.
#[test]
fn a_takeover_keeps_the_tags_of_tables() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    db.create_table("a", TableOptions::new().tag(7)).unwrap();
    settle(|| db.step());
    db.create_table("b", TableOptions::new().tag(8)).unwrap();
    db.rename_table("b", "c").unwrap();
    db.truncate_table("c").unwrap();
    db.truncate_table("a").unwrap();
    db.set_ttl("a", Some(HOUR)).unwrap();
    db.existing_table("c").unwrap().durability(Durability::Remote).put("last", "row").unwrap();
    let taken = taken_over(&server);
    for (name, tag) in [("a", 7), ("c", 8)] {
        assert_eq!(taken.existing_table(name).unwrap().options().tag_number(), tag, "{name}");
    }
}

/// Options that are set before a truncation were lost: the list of options named the new table, and
/// a reader had the old one.
#[test]
fn options_that_change_before_a_truncation_a_drop_and_a_rename() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    for name in ["a", "b", "c"] {
        db.table(name).unwrap().durability(Durability::Remote).put("row", name).unwrap();
    }
    let follower = of_machine(&Machine::with_files(), None).follow(server.url(), "/f").unwrap();
    let standby = of_machine(&Machine::with_files(), None).standby(server.url(), "/s").unwrap();
    settle(|| db.step());
    db.set_ttl("a", Some(HOUR)).unwrap();
    db.truncate_table("a").unwrap();
    db.set_table_options("b", TableOptions::new().large_values(1 << 10)).unwrap();
    db.drop_table("b").unwrap();
    db.create_table("b", TableOptions::new().filter_bits(3)).unwrap();
    db.set_ttl("c", Some(2 * HOUR)).unwrap();
    db.rename_table("c", "d").unwrap();
    db.set_ttl("d", Some(HOUR)).unwrap();
    db.create_table("c", TableOptions::new().block_size(4096)).unwrap();
    db.existing_table("a").unwrap().durability(Durability::Remote).put("last", "row").unwrap();
    settle(|| follower.step());
    settle(|| standby.step());
    assert_eq!(shown(&follower.database().unwrap()), shown(&db));
    assert_eq!(shown(&standby.promote().unwrap()), shown(&db));
    assert_eq!(follower.status().restarts, 1, "nothing made it start anew");
}

/// A step of a random history.
fn random_step(db: &Database, chance: &mut Chance, round: u64) -> Result<()> {
    let name = ["a", "b", "c", "d"][chance.below(4) as usize];
    let options = [
        TableOptions::new(),
        TableOptions::new().ttl(HOUR),
        TableOptions::new().large_values(1 << 10),
        TableOptions::new().filter_bits(4).block_size(4096).ttl(2 * HOUR),
        TableOptions::new().merge_operator(APPEND),
        TableOptions::new().ttl(HOUR).tag(chance.below(3) + 1),
    ];
    let options = *chance.pick(&options);
    let Ok(table) = db.existing_table(name) else {
        return db.create_table(name, options).map(drop);
    };
    match chance.below(10) {
        0 => db.drop_table(name),
        1 => db.truncate_table(name),
        // Another table has the name, or the options do not fit: nothing is changed.
        2 => db.rename_table(name, "renamed").or(Ok(())),
        3 => db.rename_table("renamed", name).or(Ok(())),
        4 => db.set_ttl(name, [None, Some(HOUR)][chance.below(2) as usize]).or(Ok(())),
        5 | 6 => db.set_table_options(name, options).or(Ok(())),
        7 => {
            let mut load = table.bulk_load(Existing::Replace)?;
            (0..20).try_for_each(|n| load.put(key(n), value(n, round)))?;
            load.finish().map(drop)
        }
        _ => {
            let mut batch = WriteBatch::new();
            batch.put(&table, key(1), "first");
            batch.delete_range(&table, key(0)..key(round % 30));
            batch.put(&table, key(round % 30), vec![round as u8; 3000]);
            batch.set_blob(format!("blob {round}"));
            db.write_with(&batch, Durability::Relaxed)?;
            table.merge(key(2), format!("{round},")).or(Ok(()))
        }
    }
}

/// Random histories of options, tables that are made, emptied, dropped and renamed, and commits of
/// every kind, shipped in pieces of any size. The writer is cut and opened again meanwhile. A
/// follower, a standby that is promoted and a takeover show what the writer has.
#[test]
fn random_options_and_tables_are_the_same_on_every_node() {
    let _turn = alone();
    for seed in 0..rounds(6, 200) {
        let mut chance = Chance::new(seed);
        let (server, mut machine) = (ObjectServer::new(), Machine::with_files());
        let mut db = writer(&machine, &server);
        db.table("a").unwrap();
        settle(|| db.step());
        let node = || of_machine(&Machine::with_files(), None);
        let follower = node().follow(server.url(), "/f").unwrap();
        let standby = node().standby(server.url(), "/s").unwrap();
        for round in 0..80 {
            let done = random_step(&db, &mut chance, round);
            done.unwrap_or_else(|error| panic!("seed {seed}, {round}: {error}"));
            match chance.below(12) {
                0 | 1 => {
                    settle(|| db.step());
                    catch_up(|| follower.step()).unwrap();
                    let there = follower.database().unwrap();
                    assert_eq!(shown(&there), shown(&db), "seed {seed}, {round}: the follower");
                }
                2 => drop(db.step()),
                3 => catch_up(|| standby.step()).unwrap(),
                4 => catch_up(|| follower.step()).unwrap(),
                5 if chance.below(4) == 0 => {
                    machine = machine.crash(Survive::Nothing);
                    db = writer(&machine, &server);
                }
                _ => {}
            }
        }
        db.table("last").unwrap().durability(Durability::Remote).put("a", "b").unwrap();
        settle(|| db.step());
        let expected = shown(&db);
        catch_up(|| follower.step()).unwrap();
        assert_eq!(shown(&follower.database().unwrap()), expected, "seed {seed}: the follower");
        assert_eq!(shown(&taken_over(&server)), expected, "seed {seed}: a takeover");
        let promoted = standby.promote().unwrap();
        assert_eq!(shown(&promoted), expected, "seed {seed}: the standby");
        assert_eq!(promoted.verify().unwrap().damages, [], "seed {seed}");
    }
}

/// Keeps the lesser value.
struct Least;

impl MergeOperator for Least {
    fn name(&self) -> &str {
        "test.least"
    }

    fn merge(
        &self,
        _: &[u8],
        value: Option<&[u8]>,
        operand: &[u8],
    ) -> std::result::Result<Vec<u8>, String> {
        Ok(value.map_or(operand, |value| value.min(operand)).to_vec())
    }
}

/// A node that does not know a merge operator refused the change of options that named it, as it
/// refuses a user's, at each of its steps. So it never went on, and a takeover by it stopped the
/// writer and then failed. Operands need no operator to be applied: a read does, and says so.
#[test]
fn a_node_without_the_merge_operator_goes_on() {
    let _turn = alone();
    let server = ObjectServer::new();
    let options = super::writer_options(&Machine::with_files(), &server, None);
    let db = options.merge_operator(Least).open(crate::common::cuts::PATH).unwrap();
    let table = db.create_table("t", TableOptions::new().ttl(HOUR)).unwrap();
    table.durability(Durability::Remote).put("k", "5").unwrap();
    let node = || of_machine(&Machine::with_files(), None);
    let follower = node().follow(server.url(), "/f").unwrap();
    let standby = node().standby(server.url(), "/s").unwrap();
    // The list of options had both changes as one, which is none that a user may make.
    db.set_ttl("t", None).unwrap();
    db.set_table_options("t", TableOptions::new().merge_operator("test.least")).unwrap();
    for n in 0..400u64 {
        table.merge(key(n % 3), format!("{:03}", 999 - n)).unwrap();
        drop(db.step());
    }
    db.table("other").unwrap().durability(Durability::Remote).put("a", "b").unwrap();
    for _ in 0..2 {
        catch_up(|| follower.step()).unwrap();
        let shown = follower.database().unwrap();
        settle(|| shown.step());
        let other = shown.existing_table("other").unwrap();
        assert_eq!(other.get("a").unwrap().as_deref(), Some(&b"b"[..]));
        let there = shown.existing_table("t").unwrap();
        assert_eq!(there.get("k").unwrap().as_deref(), Some(&b"5"[..]));
        let error = there.get(key(1)).unwrap_err();
        assert!(error.to_string().contains("test.least"), "{error}");
        db.compact_range(&table, ..).unwrap();
        db.forget_unshipped();
        table.merge(key(1), "000").unwrap();
        settle(|| db.step());
    }
    let promoted = standby.promote().unwrap();
    let error = promoted.existing_table("t").unwrap().get(key(1)).unwrap_err();
    assert!(error.to_string().contains("not registered"), "{error}");
    settle(|| promoted.step());
    let known = node().merge_operator(Least).open_shared(server.url(), "/k").unwrap();
    let rows: Rows = content(&known).unwrap().remove("t").unwrap();
    assert_eq!(rows.get(&key(1)).map(Vec::as_slice), Some(&b"000"[..]));
    assert_eq!(rows.get(&key(2)).map(Vec::as_slice), Some(&b"601"[..]));
}

/// A user's table of this name was the follower's own to each of its nodes.
#[test]
fn no_table_of_a_shared_database_has_the_name_of_a_readers_own() {
    let _turn = alone();
    let server = ObjectServer::new();
    let db = writer(&Machine::with_files(), &server);
    db.table("t").unwrap();
    for error in [
        db.table("terrace-replica").map(drop).unwrap_err(),
        db.create_table("terrace-replica", TableOptions::new()).map(drop).unwrap_err(),
        db.rename_table("t", "terrace-replica").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("terrace-replica"), "{error}");
    }
    let machine = Machine::with_files();
    let alone = of_machine(&machine, None).open(crate::common::cuts::PATH).unwrap();
    alone.table("terrace-replica").unwrap();
    alone.close().unwrap();
    let server = ObjectServer::new();
    let options = super::writer_options(&machine, &server, None);
    let error = options.open(crate::common::cuts::PATH).unwrap_err();
    assert!(error.to_string().contains("terrace-replica"), "{error}");
}
