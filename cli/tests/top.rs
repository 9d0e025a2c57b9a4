//! `top` and `--watch`: what the page of a database shows, in text.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;
use serde_json::Value;
use terrace::Options;
use terrace_monitor::MonitorOptions;

const TOKEN: &str = "0123456789-abcdef";

#[test]
fn a_directory_is_shown_once_where_there_is_no_terminal() {
    let bench = Bench::new();
    bench.run(["put", "-t", "people", "ada", "1815"]).good();
    for arguments in [vec!["top"], vec!["top", &bench.db()]] {
        let text = bench.run(arguments).good();
        for part in ["Look at first\n", "Where the data lies\n", "region", "people", "0 B/s"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    bench.run(["top", "nothing-here"]).fails(2);
}

#[test]
fn a_running_database_is_shown_by_the_address_of_its_page() {
    let bench = Bench::new();
    let db = Options::new().pm_size(4 << 20).open(bench.db()).unwrap();
    db.table("<people>").unwrap().put("ada", "1815").unwrap();
    let page = MonitorOptions::new().token(TOKEN).serve(&db, "127.0.0.1:0").unwrap();
    let plain = format!("http://{}/", page.address());
    let by_variable = bench.command().args(["top", &plain]).env("TERRACE_TOKEN", TOKEN).output();
    assert!(by_variable.unwrap().status.success());
    let text = bench.run(["top", &page.url()]).good();
    assert!(text.contains("<people>") && !text.contains('\x1b'), "{text}");
    let shown: Value = bench.run(["top", "--json", &page.url()]).json();
    assert_eq!(shown["stairs"][1]["name"], "region");
    let without = format!("http://{}/", page.address());
    assert!(bench.run(["top", &without]).fails(3).contains("token"));
    assert!(bench.run(["top", "https://localhost/"]).fails(2).contains("http://HOST:PORT/"));
    drop(page);
    bench.run(["top", &without]).fails(3);
}

/// Bug: a look beside a service did not say that it is of a reader, nor as of when. Cause: the
/// reader was opened once. Fix: it is opened again and again, and says its commit.
#[test]
fn beside_a_service_it_says_as_of_which_commit() {
    let bench = Bench::new();
    let db = Options::new().pm_size(4 << 20).open(bench.db()).unwrap();
    db.table("people").unwrap().put("ada", "1815").unwrap();
    let shown: Value = bench.run(["top", "--json"]).json();
    let state = format!("read-only as of commit {}; ", db.stats().commit.visible);
    assert!(shown["state"].as_str().unwrap().starts_with(&state), "{shown}");
    assert_eq!(db.stats().disk.readers, 0);
    let text = bench.run(["top"]).good();
    assert!(text.starts_with(&state) && text.contains(" UTC\n"), "{text}");
}

/// Bug: a database that was closed long ago was shown as if it ran. Cause: text and JSON had no
/// state. Fix: they have.
#[test]
fn a_closed_database_is_shown_as_closed() {
    let bench = Bench::new();
    let db = Options::new().pm_size(4 << 20).open(bench.db()).unwrap();
    let page = terrace_monitor::serve(&db, "127.0.0.1:0").unwrap();
    let shown: Value = bench.run(["top", "--json", &page.url()]).json();
    assert_eq!(shown["state"], "open");
    db.close().unwrap();
    // The page has a sample of the last second at first.
    assert!(bench.run(["top", &page.url()]).good().starts_with("closed, "));
}

#[test]
fn a_command_says_where_its_page_is() {
    let bench = Bench::new();
    let file = bench.file("a.csv", "id,name\n1,one\n");
    let arguments = ["import", file.to_str().unwrap(), "-t", "t", "--watch"];
    let ran = bench.run(arguments);
    assert!(ran.err.contains("watch it at http://127.0.0.1:"), "{}", ran.err);
    ran.good();
}
