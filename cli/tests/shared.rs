//! A shared database, end to end: a writer whose directory is lost, a follower, a standby that is
//! promoted, and the writer that was taken over. The store is a directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;

#[test]
fn a_lost_machine_is_replaced_by_its_standby() {
    let (bench, dir) = (Bench::new(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", dir.path().join("bucket").display());
    let run = |arguments: &[&str]| bench.run(arguments.iter().chain(&["--object-store", &url]));
    let place = |name: &str| dir.path().join(name).display().to_string();
    run(&["put", "-t", "people", "ada", "1815", "--share"]).good();
    let (standby, follower) = (place("standby"), place("follower"));
    let caught_up = run(&["standby", &standby, "--once", "--json"]).good();
    // A lag that is not known is null, and no number that stands for it.
    let knows = caught_up.contains("\"commit\"") && !caught_up.contains(&u64::MAX.to_string());
    assert!(knows, "{caught_up}");
    run(&["put", "-t", "people", "alan", "1912", "--share"]).good();
    let status = run(&["status", "--json"]).json();
    assert!(status["commit"].as_u64().unwrap() > 1 && status["checkpoint"].as_u64().unwrap() > 0);
    run(&["follow", &follower, "--once", "--name", "reports"]).good();
    let status = run(&["status"]).good();
    assert!(status.contains("reports: has entry") && status.contains(" behind"), "{status}");
    let far = place("far");
    run(&["follow", &far, "--once", "--name", "far", "--cache", "1MiB"]).good();
    let status = run(&["status"]).good();
    assert!(status.contains("far: has entry") && status.contains("reads checkpoint"), "{status}");
    assert!(run(&["follow", &far, "--cache", "much"]).fails(2).contains("object_cache"));
    run(&["forget", "reports"]).good();
    assert!(!run(&["status"]).good().contains("reports"));
    run(&["standby", &standby, "--once"]).good();
    let same = bench.run(["verify", "--against", &far, "--object-store", &url]).good();
    assert!(same.contains("1 tables with 2 rows") && same.contains("all the same"), "{same}");
    for node in [&standby, &follower] {
        let same = bench.run(["verify", "--against", node]).good();
        assert!(same.contains("1 tables with 2 rows") && same.contains("all the same"), "{same}");
    }
    run(&["put", "-t", "people", "mary", "1768", "--share"]).good();
    assert!(bench.run(["verify", "--against", &standby]).fails(2).contains("at commits"));
    run(&["standby", &standby, "--once"]).good();
    // What another one has put there shows.
    let own = dir.path().join("standby/00000001");
    let put = ["put", "-t", "people", "mary", "1768", "--db"];
    let refused = bench.run(put.iter().copied().chain([own.to_str().unwrap()])).fails(2);
    assert!(refused.contains("read-only"), "{refused}");
    let stray = place("stray");
    std::fs::create_dir(&stray).unwrap();
    for file in std::fs::read_dir(&own).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), std::path::Path::new(&stray).join(file.file_name())).unwrap();
    }
    bench.run(["delete", "-t", "people", "mary", "--db", &stray]).good();
    let other = bench.run(["verify", "--against", &stray, "--json"]);
    assert_eq!(other.code, Some(1), "{}", other.err);
    assert!(other.out.contains("2 with") && other.out.contains("people"), "{}", other.out);
    bench.run(["put", "-t", "people", "mary", "1768", "--db", &stray]).good();
    bench.run(["verify", "--against", &stray]).good();

    assert!(run(&["promote", &standby]).fails(2).contains("--confirm"));
    let promoted = run(&["promote", &standby, "--confirm", "--json"]).json();
    let now = promoted["directory"].as_str().unwrap().to_string();
    let on = |arguments: &[&str]| {
        bench.run(arguments.iter().chain(&["--object-store", &url, "--db", &now, "--share"]))
    };
    assert!(on(&["get", "-t", "people", "alan"]).good().contains("1912"));
    on(&["put", "-t", "people", "grace", "1906"]).good();
    // What is left of the writer before stops at once.
    let old = run(&["put", "-t", "people", "void", "void", "--share"]).fails(3);
    assert!(old.contains("took the shared store"), "{old}");
    // It tells what it has alone. Its rows can be put where the others are.
    bench.run(["put", "-t", "people", "left", "here"]).good();
    let alone = run(&["dump", "--unshipped"]).good();
    let lines: Vec<&str> = alone.lines().collect();
    assert_eq!(lines[0], "{\"unshipped\":1}");
    assert!(lines[1].contains("\"put\":\"left\",\"value\":\"here\""), "{alone}");
    assert!(lines[2].starts_with("{\"end\":{\"shipped\":"), "{alone}");
    // An opening that does not share lets zones go.
    assert!(lines[2].contains("\"commits\":1,\"changes\":1,\"has_let_go\":true}"), "{alone}");
    let refused = bench.run(["dump", "--unshipped"]).fails(2);
    assert!(refused.contains("--object-store"), "{refused}");
    // A machine without anything takes over from the second one.
    let third = place("third");
    let promoted = run(&["promote", &third, "--confirm", "--json"]).json();
    let now = promoted["directory"].as_str().unwrap();
    let got = bench.run(["get", "-t", "people", "grace", "--db", now]).good();
    assert!(got.contains("1906"), "{got}");
    assert!(bench.run(["verify", "--db", now]).good().contains("all sound"));
}

/// Bug: `standby --once` waited for ever where the standby could not go on, as with the URL of
/// another store. Cause: it waited for the end of the log alone. Fix: a note of the status ends it.
#[test]
fn a_node_that_cannot_go_on_ends_once() {
    let (bench, dir) = (Bench::new(), tempfile::tempdir().unwrap());
    let place = |name: &str| dir.path().join(name).display().to_string();
    let url = |name: &str| format!("file://{}", place(name));
    let standby = place("standby");
    for (name, db) in [("bucket", "one"), ("other", "two")] {
        let put = ["put", "-t", "people", "ada", "1815", "--share", "--object-store"];
        bench.run(put.iter().copied().chain([&*url(name), "--db", &*place(db)])).good();
    }
    bench.run(["standby", &standby, "--once", "--object-store", &url("bucket")]).good();
    let refused = bench.run(["standby", &standby, "--once", "--object-store", &url("other")]);
    let refused = refused.fails(3);
    assert!(refused.contains("cannot go on") && refused.contains("first claim"), "{refused}");
}

/// Bug: nothing said that a machine was the writer where standard output was on a full disk. Cause:
/// the error was that of the printing alone. Fix: it begins with what was done.
#[cfg(target_os = "linux")]
#[test]
fn a_promotion_that_cannot_be_printed_is_told() {
    let (bench, dir) = (Bench::new(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", dir.path().join("bucket").display());
    bench.run(["put", "-t", "people", "ada", "1815", "--share", "--object-store", &url]).good();
    for name in ["one", "two"] {
        let standby = dir.path().join(name).display().to_string();
        let mut command = bench.command();
        command.args(["promote", &standby, "--confirm", "--object-store", &url]);
        if name == "two" {
            command.arg("--json");
        }
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("writes from commit") && said.contains("No space left"), "{said}");
    }
}
