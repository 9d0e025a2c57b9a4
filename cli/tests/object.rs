//! Cold levels in an object store, end to end: `table --tier`, `store check` and `gc`, a process
//! that is killed. The store is a directory; where `TERRACE_S3` names a bucket (`cargo xtask
//! object`), it is that one too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Bench;

const ROWS: u32 = 20_000;

/// A file of rows that do not compress well.
fn rows(round: u32) -> String {
    let row = |n: u32| {
        let noise = |i: u32| (n * 7919 + i + round).wrapping_mul(2_654_435_761);
        let words: Vec<String> = (0..20).map(|i| format!("{:08x}", noise(i))).collect();
        format!("{n:08},{}\n", words.join(" "))
    };
    std::iter::once("id,text\n".to_string()).chain((0..ROWS).map(row)).collect()
}

/// Kills an import in the middle of it.
fn kill_an_import(mut command: Command) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn whole_course(url: &str) {
    let bench = Bench::new();
    let store = ["--object-store", url];
    let run = |arguments: &[&str]| bench.run(arguments.iter().chain(&store));
    let file = bench.file("rows.csv", rows(0)).display().to_string();
    let changed = run(&["table", "people", "--tier", "object", "--json"]).json();
    assert_eq!(changed["cold"], "object");
    run(&["import", &file, "-t", "people", "-q"]).good();
    run(&["compact", "-t", "people"]).good();
    let checked = run(&["store", "check", "--json"]).json();
    assert!(checked["objects"].as_u64().unwrap() > 0 && checked["lost"] == serde_json::json!([]));

    let newer = bench.file("newer.csv", rows(1)).display().to_string();
    let mut import = bench.command();
    import.args(["import", &newer, "-t", "people", "-q"]).args(store);
    kill_an_import(import);
    run(&["import", &newer, "-t", "people", "-q"]).good();
    run(&["compact", "-t", "people"]).good();
    assert!(run(&["verify"]).good().contains("all sound"));
    let row = rows(1).lines().nth(778).unwrap().split_once(',').unwrap().1.to_string();
    let got = run(&["get", "-t", "people", "00000777"]).good();
    assert!(got.contains(&row), "{got}");
    run(&["store", "gc"]).good();
    let after = run(&["store", "check", "--json"]).json();
    assert_eq!((&after["left"], &after["lost"]), (&serde_json::json!([]), &serde_json::json!([])));

    // A machine that is lost comes back from the bucket alone.
    let (set, new) = (format!("{url}-backups"), bench.path().join("new").display().to_string());
    run(&["backup", &set]).good();
    assert!(bench.run(["backups", &set, "--verify"]).good().contains("all sound"));
    bench.run(["restore", &set, &new]).good();
    let restored = bench.run(["--db", &new, "get", "-t", "people", "00000777"]).good();
    assert!(restored.contains(&row), "{restored}");

    // Without its store the database says what it lacks.
    assert!(
        bench.run(["get", "-t", "people", "00000777"]).fails(2).contains("the option object_store")
    );
    let back = run(&["table", "people", "--tier", "ssd", "--wait", "--json"]).json();
    assert_eq!((&back["object_bytes"], &back["misplaced_bytes"]), (&0.into(), &0.into()));
    assert!(bench.run(["get", "-t", "people", "00000777"]).good().contains(&row));
}

/// Two shared databases under names of which one begins with the other: neither sees an object of
/// the other one.
fn names_that_begin_alike(url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let place = |name: &str| dir.path().join(name).display().to_string();
    let run = |name: &str, arguments: &[&str]| {
        let (db, store) = (place(name), format!("{url}/{name}"));
        let other = ["--db", &db, "--object-store", &store].map(str::to_owned);
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        bench.run(arguments.chain(other))
    };
    for name in ["db1", "db10", "db"] {
        run(name, &["table", "people", "--tier", "object"]).good();
        for round in 0..3 {
            let round = round.to_string();
            run(name, &["put", "-t", "people", "who", name, "--share"]).good();
            run(name, &["put", "-t", "people", &round, name, "--share"]).good();
        }
        run(name, &["compact", "-t", "people"]).good();
    }
    for name in ["db", "db1", "db10"] {
        run(name, &["store", "gc"]).good();
        let checked = run(name, &["store", "check", "--json"]).json();
        assert_eq!(checked["lost"], serde_json::json!([]), "{name}");
        let taken = place(&format!("taken {name}"));
        let promoted = run(name, &["promote", &taken, "--confirm", "--json"]).json();
        let now = promoted["directory"].as_str().unwrap();
        let rows = bench.run(["--db", now, "scan", "-t", "people"]).good();
        assert_eq!(rows.lines().count(), 4, "{rows}");
        assert!(rows.lines().all(|line| line.ends_with(&format!("\t{name}"))), "{rows}");
    }
}

#[test]
fn databases_in_directories_that_begin_alike_never_meet() {
    let dir = tempfile::tempdir().unwrap();
    names_that_begin_alike(&format!("file://{}", dir.path().display()));
}

#[test]
fn databases_in_a_bucket_that_begin_alike_never_meet() {
    match std::env::var("TERRACE_S3") {
        Ok(url) => names_that_begin_alike(&format!("{url}/alike")),
        Err(_) => println!("skipped: TERRACE_S3 names no bucket to write to"),
    }
}

#[test]
fn a_table_goes_to_a_directory_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    whole_course(&format!("file://{}", dir.path().join("bucket").display()));
}

#[test]
fn a_table_goes_to_a_bucket_and_comes_back() {
    match std::env::var("TERRACE_S3") {
        Ok(url) => whole_course(&format!("{url}/course")),
        Err(_) => println!("skipped: TERRACE_S3 names no bucket to write to"),
    }
}

/// A build without the feature `object` says how to get one that has it.
#[cfg(not(feature = "object"))]
#[test]
fn a_command_that_reaches_no_bucket_says_which_one_does() {
    let bench = Bench::new();
    let said = bench.run(["--object-store", "s3://bucket/x", "put", "-t", "t", "k", "v"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    let named = ["--features object", "s3://bucket/x"];
    assert!(named.iter().all(|part| said.err.contains(part)), "{}", said.err);
}
