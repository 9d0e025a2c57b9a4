//! `dump` and `load`, in both forms.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};

use common::Bench;

/// A database with text, bytes, a table without rows, options, and a blob.
fn filled() -> Bench {
    let bench = Bench::new();
    let db = terrace::Database::open(bench.path().join("db")).unwrap();
    let options = terrace::TableOptions::new().ttl(std::time::Duration::from_secs(86_400));
    db.create_table("empty", options).unwrap();
    let table = db.create_table("rows", terrace::TableOptions::new().block_size(4096)).unwrap();
    for n in 0..2000_u32 {
        table.put(format!("{n:05}"), "some text\n\u{9b}".repeat(n as usize % 80)).unwrap();
    }
    table.put([0xff, 0], [0xfe; 300]).unwrap();
    let mut batch = terrace::WriteBatch::new();
    batch.set_blob([0xff]);
    db.write(batch).unwrap();
    drop(table);
    db.close().unwrap();
    bench
}

/// Bug: rows left a database only as backups of the same format. Fix: a dump has all of them in a
/// form that any opening takes in.
#[test]
fn a_dump_of_either_form_makes_the_same_database() {
    let bench = filled();
    let at = |name: &str| bench.path().join(name).display().to_string();
    for form in [&[][..], &["--json"], &["--json", "--hex"]] {
        let (file, new) = (at("dump"), at(&format!("new{}", form.len())));
        bench.run([&["dump", &file], form].concat()).good();
        let told = bench.run(["load", &file, "--db", &new]);
        assert!(told.err.contains("2 tables with 2,001 rows loaded"), "{}", told.err);
        told.good();
        let scan = |db: &str| bench.run(["--hex", "scan", "-t", "rows", "--db", db]).good();
        assert!(scan(&bench.db()) == scan(&new), "{form:?}");
        let db = terrace::Database::open(&new).unwrap();
        assert_eq!(db.last_blob().as_deref(), Some(&[0xff][..]));
        let ttl = db.existing_table("empty").unwrap().options().time_to_live();
        assert_eq!(ttl, Some(std::time::Duration::from_secs(86_400)));
        assert_eq!(db.existing_table("rows").unwrap().options().block_bytes(), 4096);
        db.close().unwrap();
        let again = bench.run(["load", &file, "--db", &new]).fails(2);
        assert!(again.contains("empty, rows"), "{again}");
        let report = bench.run(["load", &file, "--db", &at("one"), "-t", "rows", "--json"]).json();
        assert_eq!((&report["tables"], &report["rows"]), (&1.into(), &2001.into()));
        std::fs::remove_dir_all(at("one")).unwrap();
    }
}

#[test]
fn dumps_go_through_pipes() {
    let bench = filled();
    let new = bench.path().join("new").display().to_string();
    for form in [&["dump"][..], &["dump", "-", "--json"]] {
        let dump = bench.command().args(form).output().unwrap();
        assert!(dump.status.success());
        bench.feed(&["load", "--db", &new], &dump.stdout).good();
        assert_eq!(bench.run(["get", "-t", "rows", "00001", "--db", &new]).code, Some(0));
        std::fs::remove_dir_all(&new).unwrap();
        // A reader that goes away is no error.
        let mut command = bench.command();
        command.args(form).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_dump_that_was_cut_off_says_what_is_in() {
    let bench = filled();
    let new = bench.path().join("new").display().to_string();
    for (form, code) in [(&["dump"][..], 3), (&["dump", "--json"], 2)] {
        let dump = bench.command().args(form).output().unwrap().stdout;
        for cut in [dump.len() - 1, dump.len() / 2] {
            let error = bench.feed(&["load", "--db", &new], &dump[..cut]).fails(code);
            assert!(error.contains("1 tables with 0 rows are loaded, each whole"), "{error}");
            assert!(error.contains("table \"rows\", of which "), "{error}");
            let tables = bench.run(["tables", "--db", &new, "--json"]).json();
            assert_eq!(tables.as_array().unwrap().len(), 1);
            std::fs::remove_dir_all(&new).unwrap();
        }
    }
    let text = bench.file("text", "no dump at all, but some text");
    bench.run(["load", text.to_str().unwrap(), "--db", &new]).fails(2);
    let wrong = bench.file("wrong", "{\"dump\":2}\n");
    let error = bench.run(["load", wrong.to_str().unwrap(), "--db", &new]).fails(2);
    assert!(error.contains("line 1: version 2 of a dump"), "{error}");
    // Bug: an end that counted other tables was taken. Cause: its rows alone were compared.
    let counted = bench.file("counted", "{\"dump\":1}\n{\"end\":{\"tables\":1,\"rows\":0}}\n");
    let error = bench.run(["load", counted.to_str().unwrap(), "--db", &new]).fails(2);
    assert!(error.contains("1 tables with 0 rows, and 0 with 0 came"), "{error}");
    // Bug: a line without an end in sight was told as a dump that was cut off.
    let long = ["{\"dump\":1}\n", &"x".repeat(9 << 20)].concat();
    let long = bench.file("long", long);
    let error = bench.run(["load", long.to_str().unwrap(), "--db", &new]).fails(2);
    assert!(error.contains("line 2: it has more than 8388608 bytes"), "{error}");
}

#[test]
fn prepared_transactions_are_refused_or_left_out() {
    let bench = filled();
    let db = terrace::Database::open(bench.path().join("db")).unwrap();
    let txn = db.begin().unwrap();
    txn.put(&db.table("rows").unwrap(), "prepared", "v").unwrap();
    txn.prepare("name").unwrap();
    db.close().unwrap();
    let file = bench.file("dump", "before");
    let file = file.to_str().unwrap();
    assert!(bench.run(["dump", file]).fails(2).contains("the first as \"name\""));
    assert_eq!(std::fs::read(file).unwrap(), b"before");
    bench.run(["dump", file, "--without-prepared"]).good();
}

/// Bug: a dump into `/dev/stdout` replaced that link by a file where standard output was a pipe.
/// Cause: a link that leads to no path was taken for a new file. Fix: it is refused.
#[cfg(unix)]
#[test]
fn a_link_that_leads_to_no_file_is_not_replaced() {
    let bench = Bench::new();
    bench.run(["put", "-t", "t", "k", "v"]).good();
    let link = bench.path().join("link");
    std::os::unix::fs::symlink(bench.path().join("nowhere"), &link).unwrap();
    bench.run(["dump", link.to_str().unwrap()]).fails(3);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(bench.path()).unwrap().count(), 2, "the database and the link");
}

/// Waits for what a child comes to, and fails with what it is where it never does.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

/// Whether a child is in a read of its standard input, or in a write of its standard output under
/// any number. It is the call of x86-64, or of aarch64.
fn is_in(child: &Child, [on_x86, on_arm]: [&str; 2], standard: &str) -> bool {
    let of_child = |name: &str| format!("/proc/{}/{name}", child.id());
    let call = std::fs::read_to_string(of_child("syscall")).unwrap_or_default();
    let mut words = call.split(' ');
    let (name, file) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let number = u32::from_str_radix(file.trim_start_matches("0x"), 16).unwrap_or(u32::MAX);
    let file = |number: &str| std::fs::read_link(of_child(&format!("fd/{number}"))).ok();
    (name == on_x86 || name == on_arm) && file(&number.to_string()) == file(standard)
}

/// Sends a signal, and waits for the end.
fn ended(mut child: Child, signal: &str) -> Output {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    wait_until("it ends", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

/// Bug: one signal did not end a dump whose reader rested. Cause: a buffer below the look at the
/// signal made the interrupted write again. Fix: no buffer is below it.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_a_dump_whose_reader_rests() {
    let bench = filled();
    for form in [&["dump"][..], &["dump", "--json"]] {
        for signal in ["-INT", "-TERM"] {
            let mut command = bench.command();
            command.args(form).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().unwrap();
            wait_until("it writes", || is_in(&child, ["1", "64"], "1"));
            let output = ended(child, signal);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(130), "{form:?}: {said}");
            assert!(said.contains("stopped by a signal"), "{said}");
        }
    }
}

/// Bug: a load whose pipe had given nothing ended with 3 after a signal. Cause: the error of its
/// first read was not told as what the signal had ended. Fix: it is, as those of later reads.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_a_load_that_waits_for_its_pipe() {
    let bench = filled();
    let new = bench.path().join("new").display().to_string();
    for form in [&["dump"][..], &["dump", "--json"]] {
        let dump = bench.command().args(form).output().unwrap().stdout;
        for fed in [0, dump.len() - 1] {
            let mut command = bench.command();
            command.args(["load", "--db", &new]).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(&dump[..fed]).unwrap();
            wait_until("it reads", || is_in(&child, ["0", "63"], "0") && waits_for_more(&child));
            let output = ended(child, "-INT");
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(130), "{form:?}: {said}");
            assert!(said.contains("stopped by a signal"), "{said}");
            assert_eq!(said.contains("are loaded, each whole"), fed > 0, "{said}");
            std::fs::remove_dir_all(&new).unwrap_or_default();
        }
    }
}

/// Whether a child sleeps.
fn waits_for_more(child: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
}

/// Bug: no signal ended a load out of a file. Cause: a read of a file is never interrupted, and the
/// flag was looked at behind an interrupted one alone. Fix: around each read.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_a_load_out_of_a_file() {
    let bench = filled();
    let at = |name: &str| bench.path().join(name).display().to_string();
    bench.run(["dump", &at("dump")]).good();
    let interrupted = |_: u32| {
        std::fs::remove_dir_all(at("new")).unwrap_or_default();
        let mut command = bench.command();
        common::interrupted(command.args(["load", &at("dump"), "--db", &at("new")]))
    };
    // On a loaded machine a load may end before its signal comes.
    let stopped = (0..50).map(interrupted).find(|ran| ran.0 != Some(0));
    let (code, said) = stopped.expect("a signal stops one of many loads");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
}

/// Bug: a dump into a full disk was told as done, and as failed. Cause: what it said came before
/// the last bytes were written. Fix: it comes behind them.
#[cfg(target_os = "linux")]
#[test]
fn a_dump_is_told_as_done_once_it_is_written() {
    let bench = Bench::new();
    bench.run(["put", "-t", "t", "k", "v"]).good();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = bench.command().args(["dump", "--json"]).stdout(full()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("write standard output") && !said.contains("dumped"), "{said}");
}
