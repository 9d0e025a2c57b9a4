//! `import`: every format, broken rows, and what a stopped import leaves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;
use serde_json::{Value, json};

const CSV: &str = "id,name,text\n1,one,\"a, b\"\n2,two,\n";

fn import(bench: &Bench, name: &str, content: &str, arguments: &[&str]) -> common::Ran {
    let file = bench.file(name, content);
    let file = file.to_str().unwrap();
    bench.run([&["import", file, "-t", "t"], arguments].concat())
}

fn value(bench: &Bench, key: &str) -> Value {
    serde_json::from_str(&bench.run(["get", "-t", "t", key]).good()).unwrap()
}

#[test]
fn csv_rows_are_json_objects() {
    let bench = Bench::new();
    import(&bench, "a.csv", CSV, &[]).good();
    assert_eq!(value(&bench, "1"), json!({"id": "1", "name": "one", "text": "a, b"}));
    let raw = bench.run(["get", "-t", "t", "2"]).good();
    assert_eq!(raw, "{\"id\":\"2\",\"name\":\"two\",\"text\":\"\"}\n");
}

#[test]
fn a_column_can_be_the_key() {
    let bench = Bench::new();
    import(&bench, "a.csv", CSV, &["--key", "name"]).good();
    assert_eq!(value(&bench, "two")["id"], "2");
    let error = import(&bench, "a.csv", CSV, &["--key", "nome"]).fails(2);
    assert!(error.contains("`nome`") && error.contains("`id`, `name`, `text`"), "{error}");
}

#[test]
fn tsv_and_json_lines() {
    let bench = Bench::new();
    import(&bench, "a.tsv", "id\tq\n7\t\"x\n", &[]).good();
    assert_eq!(value(&bench, "7"), json!({"id": "7", "q": "\"x"}));
    let lines = "{\"id\": 8, \"deep\": {\"a\": [1]}}\n\n{\"id\": \"nine\"}\n";
    import(&bench, "a.jsonl", lines, &["--key", "id"]).good();
    assert_eq!(bench.run(["get", "-t", "t", "8"]).good(), "{\"id\": 8, \"deep\": {\"a\": [1]}}\n");
    assert_eq!(value(&bench, "nine")["id"], "nine");
    assert!(import(&bench, "a.jsonl", lines, &[]).fails(2).contains("--key"));
}

#[test]
fn the_format_can_be_named() {
    let bench = Bench::new();
    let error = import(&bench, "rows.txt", CSV, &[]).fails(2);
    assert!(error.contains("--format"));
    import(&bench, "rows.txt", CSV, &["--format", "csv"]).good();
    let ran = bench.feed(&["import", "-", "-t", "t", "--format", "csv"], b"id\nfed\n");
    ran.good();
    assert_eq!(value(&bench, "fed"), json!({"id": "fed"}));
}

#[test]
fn a_broken_row_stops_the_import_and_says_where() {
    let bench = Bench::new();
    let rows = "id,a\n1,x\n2,y\nbroken\n4,z\n";
    let error = import(&bench, "a.csv", rows, &["--batch", "1"]).fails(2);
    assert!(error.contains("line 4"), "{error}");
    assert!(error.contains("1 fields where the first line names 2"), "{error}");
    assert!(error.contains("the 2 rows before it are in"), "{error}");
    assert_eq!(value(&bench, "2")["a"], "y");
    bench.run(["get", "-t", "t", "4"]).fails(1);
}

#[test]
fn broken_rows_can_be_left_out() {
    let bench = Bench::new();
    let mut rows = "id,a\n".to_owned();
    for n in 0..30 {
        rows.push_str(&if n % 2 == 0 { format!("{n},x\n") } else { format!("{n}\n") });
    }
    let report = import(&bench, "a.csv", &rows, &["--skip-bad", "--json"]).json();
    assert_eq!((&report["rows"], &report["skipped"]), (&json!(15), &json!(15)));
    assert_eq!(report["skipped_first"].as_array().unwrap().len(), 10);
    assert_eq!(report["skipped_first"][0]["line"], 3);
    let remarks = import(&bench, "a.csv", &rows, &["--skip-bad"]).fails(0);
    assert!(remarks.contains("left out line 3") && remarks.contains("left out 5 more"));
}

#[test]
fn the_last_row_of_a_key_stays() {
    let bench = Bench::new();
    let rows = "id,a\n1,first\n2,x\n1,last\n";
    let report = import(&bench, "a.csv", rows, &["--json"]).json();
    assert_eq!((&report["rows"], &report["repeated"]), (&json!(3), &json!(1)));
    assert_eq!(value(&bench, "1")["a"], "last");
}

#[test]
fn nothing_is_made_for_a_file_that_is_not_there() {
    let bench = Bench::new();
    assert!(bench.run(["import", "absent.csv", "-t", "t"]).fails(2).contains("absent.csv"));
    assert!(!bench.path().join("db").exists());
}

#[test]
fn quiet_says_nothing() {
    let bench = Bench::new();
    let ran = import(&bench, "a.csv", CSV, &["-q"]);
    assert!(ran.out.is_empty() && ran.err.is_empty());
}

#[test]
fn a_bulk_import_is_all_rows_or_none() {
    let bench = Bench::new();
    let report = import(&bench, "a.csv", "id,a\n1,x\n2,y\n3,z\n", &["--bulk", "--json"]).json();
    assert_eq!((&report["rows"], &report["repeated"]), (&json!(3), &json!(0)));
    assert_eq!(value(&bench, "2")["a"], "y");
    let error = import(&bench, "b.csv", "id,a\n25,x\n3,again\n", &["--bulk"]).fails(2);
    assert!(error.contains("has key \"3\" already"), "{error}");
    bench.run(["get", "-t", "t", "25"]).fails(1);
    import(&bench, "b.csv", "id,a\n25,x\n3,again\n", &["--bulk", "--replace"]).good();
    assert_eq!(
        (&value(&bench, "25")["a"], &value(&bench, "3")["a"]),
        (&json!("x"), &json!("again"))
    );
    let error = import(&bench, "c.csv", "id,a\n5,x\n4,y\n", &["--bulk"]).fails(2);
    assert!(error.contains("\"4\" comes after \"5\""), "{error}");
    let error = import(&bench, "d.csv", "id,a\n6,x\nbroken\n", &["--bulk"]).fails(2);
    assert!(error.contains("line 3") && error.contains("the 0 rows before it are in"), "{error}");
    bench.run(["get", "-t", "t", "6"]).fails(1);
    import(&bench, "e.csv", "id,a\n", &["--bulk", "--batch", "9"]).fails(2);
}

/// Bug: an import that was stopped by Ctrl-C ended without a word of what is in. It says how many
/// rows of the file are in the table, and these are.
#[test]
fn an_import_that_a_signal_stops_says_what_is_in() {
    use std::io::Write;
    use std::process::Stdio;

    let bench = Bench::new();
    let mut command = bench.command();
    command.args(["import", "-", "-t", "t", "--format", "csv", "--batch", "1"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "id").unwrap();
    let mut fed = 0;
    let feed = |input: &mut std::process::ChildStdin, fed: &mut u32| {
        let lines: String = (0..1000).map(|n| format!("row {:08}\n", *fed + n)).collect();
        *fed += 1000;
        input.write_all(lines.as_bytes())
    };
    // More than a pipe holds: the first rows were read, hence signals are taken by now.
    while fed < 20_000 {
        feed(&mut input, &mut fed).unwrap();
    }
    let killed =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    // Until no process reads any more.
    while feed(&mut input, &mut fed).is_ok() {}
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let rows = bench.run(["scan", "-t", "t", "--keys-only"]).good().lines().count();
    let digits = rows.to_string();
    let grouped: String =
        digits.chars().enumerate().fold(String::new(), |mut text, (at, digit)| {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
            text
        });
    assert!(said.contains(&format!("the first {grouped} rows of -")), "{rows} rows: {said}");
}

/// Bug: integers from 2^64 on became floating point numbers, so different keys were one. Cause: the
/// key was the number as it was read. Fix: it is the text as it is written.
#[test]
fn keys_of_json_lines_keep_all_their_digits() {
    let bench = Bench::new();
    let rows = [
        "18446744073709551616",
        "18446744073709551617",
        "12345678901234567890123",
        "12345678901234567890124",
        "0.1000000000000000055",
        "0.1000000000000000056",
    ];
    let lines: String = rows.iter().map(|id| format!("{{\"id\": {id}}}\n")).collect();
    let report = import(&bench, "a.jsonl", &lines, &["--key", "id", "--json"]).json();
    assert_eq!((&report["rows"], &report["repeated"]), (&json!(6), &json!(0)));
    for id in rows {
        bench.run(["get", "-t", "t", id]).good();
    }
    let twice = import(&bench, "b.jsonl", "{\"id\": 1, \"id\": 2}\n", &["--key", "id"]).fails(2);
    assert!(twice.contains("line 1: field `id` is there twice"), "{twice}");
}

/// Bug: a quote that is never closed took all rows behind it for one value. Cause: the reader of
/// CSV ends a field where the file ends. Fix: the import fails, with the line of the quote.
#[test]
fn a_quote_that_is_never_closed_is_an_error() {
    let bench = Bench::new();
    let rows = "a,b\n1,x\n2,\"y\n3,z\n4,w\n";
    for arguments in [&[][..], &["--skip-bad"], &["--batch", "1"]] {
        let error = import(&bench, "a.csv", rows, arguments).fails(2);
        assert!(error.contains("the quote that opens on line 3 is never closed"), "{error}");
        assert!(error.contains("the first 1 row of"), "{error}");
        assert_eq!(value(&bench, "1")["b"], "x");
        bench.run(["get", "-t", "t", "2"]).fails(1);
    }
    import(&bench, "a.tsv", "a\tb\n1\t\"x\n", &[]).good();
    let header = import(&bench, "b.csv", "a,\"b\n1,2\n", &["--key", "a"]).fails(2);
    assert!(header.contains("line 1 is never closed"), "{header}");
}

/// Bug: of two columns of one name one was lost without a word. Fix: the file is refused.
#[test]
fn two_columns_of_one_name_are_refused() {
    let bench = Bench::new();
    let error = import(&bench, "a.csv", "id,x,x\n1,2,3\n", &[]).fails(2);
    assert!(error.contains("two columns are called `x`"), "{error}");
    assert!(!bench.path().join("db").exists(), "nothing is made");
}

/// Bug: a `--bulk` import that failed left an empty table, and an import in batches that failed
/// said that nothing was written. Fix: a table that the import made and put nothing into goes
/// again, and the error says how many rows are in.
#[test]
fn an_import_that_fails_says_what_is_in_and_leaves_no_empty_table() {
    let bench = Bench::new();
    let unsorted = "id\n1\n3\n2\n";
    let error = import(&bench, "a.csv", unsorted, &["--bulk"]).fails(2);
    assert!(error.contains("nothing is in table `t`"), "{error}");
    assert_eq!(bench.run(["tables", "--json"]).good().matches("\"t\"").count(), 0);
    import(&bench, "a.csv", "id,a\nbroken\n", &[]).fails(2);
    assert_eq!(bench.run(["tables", "--json"]).good().matches("\"t\"").count(), 0);
    import(&bench, "a.csv", "id\n1\n", &[]).good();
    import(&bench, "a.csv", unsorted, &["--bulk", "--replace"]).fails(2);
    bench.run(["get", "-t", "t", "1"]).good();
    let mut cut = b"id,a\n".to_vec();
    for n in 0..5000 {
        cut.extend_from_slice(format!("{n},x\n").as_bytes());
    }
    cut.extend_from_slice(b"9999,\"open\n");
    let file = bench.file("c.csv", cut);
    let error = bench.run(["import", file.to_str().unwrap(), "-t", "c"]).fails(2);
    assert!(error.contains("the first 5,000 rows of"), "{error}");
    assert_eq!(bench.run(["scan", "-t", "c", "--keys-only"]).good().lines().count(), 5000);
}

/// Bug: Ctrl-C was lost while JSON Lines came from a pipe that has no more for now. Cause: the
/// reader made its read again after a signal. Fix: the read fails once a signal has asked to stop.
///
/// Bug: a signal that came between a look at the flag and the read, or to another thread, did not
/// end the import. Cause: it interrupted no read. Fix: it comes again, each second.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_an_import_that_waits_for_its_pipe() {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let files = [("jsonl", "{\"id\": 1}\n"), ("csv", "id\n1\n")];
    for ((format, first), to_another) in files.into_iter().zip([false, true]) {
        let bench = Bench::new();
        let mut command = bench.command();
        let named = ["import", "-", "-t", "t", "--format", format, "--key", "id"];
        command.args(named).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(first.as_bytes()).unwrap();
        // More than a pipe holds: once it is in, signals are taken.
        let line = if format == "jsonl" { "{\"id\": 1, \"a\": \"b\"}\n" } else { "1\n" };
        input.write_all(line.repeat((1 << 17) / line.len()).as_bytes()).unwrap();
        let id = child.id().to_string();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let wait = |what: &str, is_done: &mut dyn FnMut() -> bool| {
            while !is_done() {
                assert!(std::time::Instant::now() < until, "{format}: {what}");
                std::thread::yield_now();
            }
        };
        // The numbers of `read` on x86-64 and aarch64, with standard input.
        let reads = |call: String| call.starts_with("0 0x0 ") || call.starts_with("63 0x0 ");
        let call = || std::fs::read_to_string(format!("/proc/{id}/syscall"));
        wait("it reads", &mut || call().map_or(true, reads));
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let mut threads = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap());
        // A thread of its background, which takes a signal that is sent to its number.
        let to = threads.find(|thread| to_another && *thread != id).unwrap_or_else(|| id.clone());
        assert_eq!(to != id, to_another, "an import has a background");
        assert!(Command::new("kill").args(["-INT", &to]).status().unwrap().success());
        wait("it ends", &mut || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{format}: {said}");
    }
}
