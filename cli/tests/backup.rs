//! `backup`, `backups` and `restore`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Bench, Ran, output_when_interrupted};

#[test]
fn a_backup_is_listed_checked_restored_and_deleted() {
    let bench = Bench::new();
    let path = |name: &str| bench.path().join(name).display().to_string();
    let (set, new) = (path("set"), path("new"));
    bench.run(["put", "-t", "t", "k", "first"]).good();
    let first = bench.run(["backup", &set, "--json"]).json();
    assert_eq!((&first["number"], &first["tables"]), (&1.into(), &1.into()));
    bench.run(["put", "-t", "t", "k", "second"]).good();
    assert!(bench.run(["backup", &set]).good().starts_with("backup 2: 1 table, "));
    let listed = bench.run(["backups", &set]).good();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("1\t") && listed.contains("seconds ago\t1 table\t"), "{listed}");
    assert_eq!(bench.run(["backups", &set, "--json"]).json().as_array().unwrap().len(), 2);
    assert!(bench.run(["backups", &set, "--verify"]).good().contains("all sound"));
    bench.run(["restore", &set, &new, "--number", "1"]).good();
    assert_eq!(bench.run(["--db", &new, "get", "-t", "t", "k"]).good(), "first\n");
    assert!(bench.run(["restore", &set, &new]).fails(2).contains("is not empty"));
    let newer = path("newer");
    bench.run(["restore", &set, &newer]).good();
    assert_eq!(bench.run(["--db", &newer, "get", "-t", "t", "k"]).good(), "second\n");
    assert!(bench.run(["backups", &set, "--delete", "1"]).fails(2).contains("--confirm"));
    bench.run(["backups", &set, "--delete", "1", "--confirm"]).good();
    assert!(
        bench.run(["restore", &set, &path("x"), "--number", "1"]).fails(2).contains("no backup 1")
    );
    bench.run(["backups", &path("absent")]).fails(2);
}

#[test]
fn damage_in_a_set_is_a_negative_answer() {
    let bench = Bench::new();
    let set = bench.path().join("set");
    let name = set.display().to_string();
    bench.run(["put", "-t", "t", "k", "v"]).good();
    bench.run(["backup", &name]).good();
    let manifest = set.join("backup-00000001");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let ran = bench.run(["backups", &name, "--verify"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("backup-00000001"), "{}", ran.out);
    assert!(
        bench.run(["restore", &name, "/nowhere", "--number", "1"]).fails(3).contains("damaged")
    );
}

/// Bug: a backup whose number could not be printed was told as failed, though it is in the set.
/// Cause: the failure had nothing of what was done. Fix: it begins with it. So do those of other
/// commands that print what they have done.
#[cfg(target_os = "linux")]
#[test]
fn what_is_done_and_cannot_be_printed_is_told() {
    let bench = Bench::new();
    let path = |name: &str| bench.path().join(name).display().to_string();
    let (set, new, database) = (path("set"), path("new"), path("db"));
    bench.run(["put", "-t", "t", "k", "v"]).good();
    let commands = [
        (vec!["backup", &set], "backup 1 is in the set"),
        (vec!["backup", &set, "--json"], "backup 2 is in the set"),
        (vec!["compact", "-t", "t"], "what was named is compacted"),
        (vec!["salvage", &database, &new], "what could be read is in"),
    ];
    for (arguments, done) in commands {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = bench.command().args(&arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(done) && said.contains("No space left"), "{said}");
    }
    assert_eq!(bench.run(["backups", &set, "--json"]).json().as_array().unwrap().len(), 2);
}

/// Ctrl-C ends what reads or writes a whole database, and the command says what is there. Done once
/// more, it comes to its end.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_what_takes_long_and_says_what_is_there() {
    let bench = Bench::new();
    let at = |name: &str| bench.path().join(name).display().to_string();
    let rows: Vec<u8> = (0..40_000).flat_map(|n| format!("{n},{n:0>300}\n").into_bytes()).collect();
    let rows = [b"key,value\n".to_vec(), rows].concat();
    let file = bench.file("rows.csv", rows).display().to_string();
    bench.run(["import", "-t", "t", &file]).good();
    bench.run(["backup", &at("whole")]).good();
    let cases: [(&[&str], &str); 5] = [
        (&["verify"], "nothing is known of the rest"),
        (&["backup", &at("set")], "nothing of this one"),
        (&["backups", &at("whole"), "--verify"], "nothing is known of the rest"),
        (&["restore", &at("whole"), &at("new")], "there is no database in"),
        (&["salvage", &bench.db(), &at("saved")], "there is no database in"),
    ];
    for (arguments, left) in cases {
        let run = |_| {
            for made in ["set", "new", "saved"] {
                std::fs::remove_dir_all(at(made)).unwrap_or_default();
            }
            output_when_interrupted(bench.command().args(arguments))
        };
        // On a loaded machine it may end before its signal comes, or before it is told of next.
        let stopped = (0..400).map(run).find(|ran| ran.code != Some(0));
        let Ran { code, out, err: said } = stopped.expect("a signal stops one of many");
        assert_eq!(code, Some(130), "{arguments:?}: {said}");
        assert!(said.contains("stopped by a signal") && said.contains(left), "{said}");
        if left.starts_with("nothing is known") {
            assert!(out.contains("structures checked, no damage by then"), "{out}");
            assert!(out.contains("not looked at") && said.contains("not looked at"), "{out}{said}");
        }
        bench.run(arguments).good();
    }
}
