//! The tour: it finds nothing missing, and it would find it if there were.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;

/// This file as real data: a record a line.
const INPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tour.rs");

#[test]
fn a_round_loses_nothing_and_leaves_nothing() {
    let bench = Bench::new();
    let mut command = bench.command();
    command.env("TMPDIR", bench.path());
    command.args(["tour", "--rounds", "1", "--input", INPUT, "--json", "--seed", "7"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), 1, "one object");
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
    for count in ["lost", "torn", "wrong", "invented", "out_of_order"] {
        assert_eq!(outcome[count], 0, "{count} in {outcome}");
    }
    assert!(outcome["acknowledged"].as_u64().unwrap() >= 10_000);
    assert_eq!(outcome["rounds"], 1);
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 0, "the directory is removed");
}

#[test]
fn the_words_fit_a_terminal_and_a_loss_is_found() {
    let bench = Bench::new();
    let dir = bench.path().join("tour");
    let dir = dir.to_str().unwrap();
    let text = bench.run(["tour", "--rounds", "1", "--input", INPUT, "--dir", dir]).good();
    for line in text.lines().filter(|line| !line.contains(dir) && !line.contains(INPUT)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("nothing missing"));

    // Round 0, thread 0, batch 3: acknowledged, since thousands came after it.
    let db = format!("{dir}/db");
    let key = "000000000000000000000003";
    bench.run(["--db", &db, "--hex", "delete", "-t", "ledger", key]).good();
    let check = bench.run(["tour-check", "--dir", dir, "--rounds", "1", "--source", "rows"]);
    let found = check.json();
    assert_eq!((&found["lost"], &found["torn"]), (&1.into(), &1.into()));
    assert_eq!(found["out_of_order"], 1);
    check.fails(1);
}

#[test]
fn machines_that_are_lost_lose_nothing_and_a_loss_is_found() {
    let bench = Bench::new();
    let dir = bench.path().join("tour");
    let dir = dir.to_str().unwrap();
    let tour = ["tour", "--lost-machine", "--rounds", "2", "--input", INPUT, "--dir", dir];
    let text = bench.run(tour).good();
    for line in text.lines().filter(|line| !line.contains(dir) && !line.contains(INPUT)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("2 lost machines"), "{text}");
    let mut left: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["acknowledged", "machine 2", "store"], "each machine but the last is lost");

    // Round 0, thread 0, batch 3: a machine that lost it would show.
    let (db, store) = (format!("{dir}/machine 2"), format!("file://{dir}/store"));
    let key = "000000000000000000000003";
    let on = ["--db", &db, "--object-store", &store, "--share", "--hex"];
    bench.run(on.iter().chain(&["delete", "-t", "ledger", key])).good();
    std::fs::remove_dir_all(&db).unwrap();
    let check = ["tour-check", "--dir", dir, "--rounds", "2", "--source", "rows", "--machine", "3"];
    let check = bench.run(check);
    let found = check.json();
    assert_eq!((&found["lost"], &found["torn"]), (&1.into(), &1.into()));
    check.fails(1);
}

#[test]
fn a_directory_that_is_not_empty_stays_as_it_is() {
    let bench = Bench::new();
    bench.file("mine.txt", "mine");
    let dir = bench.path().to_str().unwrap();
    let error = bench.run(["tour", "--input", INPUT, "--dir", dir]).fails(2);
    assert!(error.contains("is not empty"));
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 1);
}
