//! `prepared` lists and resolves prepared transactions. Their names may have any bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;

/// Bug: no command resolved a prepared transaction, so the locks of one that its owner had left
/// stayed. Fix: `prepared` lists, commits and rolls back.
#[test]
fn prepared_transactions_are_listed_and_resolved() {
    let bench = Bench::new();
    let names: [&[u8]; 4] = [b"plain", b"\x00\xff\x1b[31m", b"a\\x41\n", "é".as_bytes()];
    let db = terrace::Database::open(bench.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    for (at, name) in names.iter().enumerate() {
        let txn = db.begin().unwrap();
        txn.put(&table, [b'a' + at as u8], "v").unwrap();
        txn.prepare(name).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let shown = |encoding: &[&str]| -> Vec<String> {
        let listed = bench.run(encoding.iter().chain(&["prepared", "list"])).good();
        assert!(!listed.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')));
        listed.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    let listed = shown(&[]);
    let expected = ["\\x00\\xff\\x1b[31m", "a\\x5cx41\\n", "plain", "é"];
    assert_eq!(listed, expected);
    assert!(bench.run(["prepared", "list"]).good().contains("\t1 write\t"));
    let json = bench.run(["prepared", "list", "--json"]).json();
    assert_eq!(json[0]["id"], serde_json::json!({ "hex": "00ff1b5b33316d" }));
    assert_eq!((&json[1]["id"], &json[1]["writes"]), (&"a\\x41\n".into(), &1.into()));
    // Bug: a name of the JSON form committed another transaction. Cause: its escapes were undone,
    // and it had none. Fix: both forms have the name that `commit` takes.
    let in_json: Vec<_> = json.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(in_json, expected);
    for name in &listed[..2] {
        bench.run(["prepared", "commit", name]).good();
    }
    bench.run(["prepared", "rollback", &listed[2]]).good();
    let last = shown(&["--hex"]);
    assert_eq!(last, ["c3a9"]);
    bench.run(["--hex", "prepared", "commit", &last[0]]).good();
    assert_eq!(bench.run(["prepared", "list"]).good(), "");
    let keys = bench.run(["scan", "-t", "t", "--keys-only"]).good();
    assert_eq!(keys, "b\nc\nd\n");
    assert!(bench.run(["prepared", "commit", "plain"]).fails(2).contains("prepared as"));
    assert!(bench.run(["prepared", "commit", "a\\q"]).fails(2).contains("\\\\ for a backslash"));
}

/// Bug: the name that `list` printed was no argument of `commit`. Cause: it began with a dash, as
/// options do. Fix: what is no option is the name.
#[test]
fn a_name_may_begin_as_an_option_does() {
    let bench = Bench::new();
    let db = terrace::Database::open(bench.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    for name in ["-5", "--named"] {
        let txn = db.begin().unwrap();
        txn.put(&table, name, "v").unwrap();
        txn.prepare(name).unwrap();
    }
    drop(table);
    db.close().unwrap();
    bench.run(["prepared", "commit", "-5"]).good();
    bench.run(["prepared", "rollback", "--named", "--json"]).good();
    assert_eq!(bench.run(["scan", "-t", "t", "--keys-only"]).good(), "-5\n");
}
