//! `--option`, and command lines that are not understood.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Bench;

/// Bug: no command opened a database whose region lies elsewhere. Cause: only a few options of
/// opening had a flag. Fix: `--option` sets each by its name.
#[test]
fn a_database_with_its_region_elsewhere_opens() {
    let bench = Bench::new();
    let at = |name: &str| bench.path().join(name).display().to_string();
    let (region, set, new) = (at("region"), at("set"), at("new"));
    let pm_path = format!("pm_path={region}");
    // Before the name of the command, and behind it.
    let put = ["-o", &pm_path, "put", "-t", "t", "k", "v", "-o", "pm_size=4MiB"];
    bench.run(put).good();
    assert!(bench.path().join("region").is_file());
    bench.run(["get", "-t", "t", "k"]).fails(3);
    assert_eq!(bench.run(["get", "-t", "t", "k", "--option", &pm_path]).good(), "v\n");
    for command in [&["scan", "-t", "t"][..], &["tables"], &["stats"], &["compact"], &["verify"]] {
        bench.run(command.iter().chain(&["-o", &pm_path])).good();
    }
    let stats = bench.run(["stats", "--json", "-o", &pm_path]).json();
    assert!(stats["pm"]["capacity"].as_u64().unwrap() < 5 << 20, "the option was behind the name");
    bench.run(["backup", &set, "-o", &pm_path]).good();
    let restored = format!("pm_path={}", at("restored"));
    bench.run(["restore", &set, &new, "-o", &restored]).good();
    assert_eq!(bench.run(["get", "-t", "t", "k", "--db", &new, "-o", &restored]).good(), "v\n");
    bench.run(["salvage", &bench.db(), &at("saved"), "-o", &pm_path]).good();
}

#[test]
fn wrong_options_are_refused_with_what_there_is() {
    let bench = Bench::new();
    let put = |option: &str| bench.run(["put", "-t", "t", "k", "v", "-o", option]).fails(2);
    let unknown = put("pmsize=4MiB");
    assert!(unknown.contains("no option \"pmsize\"; there are pm_size, "), "{unknown}");
    let wrong = put("pm_size=4MB");
    assert!(wrong.contains("option pm_size takes a size in bytes"), "{wrong}");
    let bare = put("pm_size");
    assert!(bare.contains("option `pm_size` has no value; write -o pm_size=VALUE"), "{bare}");
    assert!(!bench.path().join("db").exists(), "nothing is made");
}

#[test]
fn every_option_of_opening_is_known_by_its_name() {
    let bench = Bench::new();
    for (name, _) in terrace::Options::names() {
        let said = bench.run(["tables", "-o", &format!("{name}=~")]).err;
        let is_known = said.contains("missing database") || said.contains(name);
        assert!(is_known && !said.contains("there is no option"), "{name}: {said}");
    }
}

#[test]
fn an_option_names_the_store_too() {
    let bench = Bench::new();
    let url = format!("object_store=file://{}", bench.path().join("bucket").display());
    bench.run(["put", "-t", "t", "k", "v", "-o", &url, "-o", "share=on"]).good();
    assert!(bench.run(["status", "-o", &url]).good().contains("written by"));
    bench.run(["status", "-o", "object_store=none"]).fails(2);
}

/// Bug: a command line that is not understood was told as text with `--json` too. Cause: the
/// parser of the command line ended the process itself. Fix: its message goes into the JSON.
#[test]
fn a_wrong_command_line_is_json_too() {
    let bench = Bench::new();
    for line in [&["--json", "no-such-command"][..], &["get", "--json"], &["--json", "--wrong"]] {
        let error = bench.run(line).fails(2);
        let error: serde_json::Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["error"]["kind"], "invalid");
        assert!(error["error"]["message"].as_str().unwrap().contains("Usage: terrace"));
    }
    assert!(bench.run(["get"]).fails(2).contains("--table"));
    assert!(bench.run(["--json", "--help"]).good().contains("Usage: terrace"));
}

/// Bug: an argument that is not understood could change the terminal. Cause: its message was
/// printed as it is. Fix: control characters are escaped, as in all other messages.
#[test]
fn an_argument_that_is_not_understood_changes_no_terminal() {
    let said = Bench::new().run(["get", "-t", "t", "--\u{9b}2J"]).fails(2);
    assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
    assert!(said.contains("2J") && said.contains("Usage"), "{said}");
}

/// Bug: of two `-o object_store` the first one counted for some commands, of all other options the
/// last. A store that is no text was taken for none. Fix: the last one counts, and it is refused.
#[test]
fn the_last_store_counts_and_one_that_is_no_text_is_refused() {
    let bench = Bench::new();
    let at = |name: &str| format!("object_store=file://{}", bench.path().join(name).display());
    let said = bench.run(["status", "-o", &at("one"), "-o", &at("two")]).fails(2);
    assert!(said.contains("/two") && !said.contains("/one"), "{said}");
    #[cfg(unix)]
    {
        let mut command = bench.command();
        let url: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
        let output = command.arg("tables").env("TERRACE_OBJECT_STORE", url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("TERRACE_OBJECT_STORE: ") && output.status.code() == Some(2),
            "{said}"
        );
    }
}
