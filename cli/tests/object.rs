//! Cold levels in an object store, end to end: `table --tier`, `store check` and `gc`, a process
//! that is killed. The store is a directory; where `TERRACE_S3` names a bucket (`cargo xtask
//! object`), it is that one too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Bench;
use common::refusing::Refusing;
use terrace::events::Event;
use terrace::{Durability, Options};

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

/// By this a process of the test knows where it serves, and what is behind that.
const BEHIND: &str = "TERRACE_S3_BEHIND";

/// Credentials without a right and ones that have expired, and stores that are asked for too much.
const REFUSALS: [(u16, &str); 4] =
    [(403, "AccessDenied"), (400, "ExpiredToken"), (429, "TooManyRequests"), (503, "SlowDown")];

/// A writer shares its database while its bucket refuses all: commits go on, it says why nothing is
/// sent, and all of it comes to a follower behind that. `TERRACE_LONG` has each refusal last for
/// two minutes.
#[test]
fn a_shared_bucket_that_refuses_stops_no_commit() {
    let Ok(url) = std::env::var("TERRACE_S3") else {
        println!("skipped: TERRACE_S3 names no bucket to write to");
        return;
    };
    if let Ok(behind) = std::env::var(BEHIND) {
        let (port, server) = behind.split_once(' ').unwrap();
        let refusing = Refusing::start(port.parse().unwrap(), server.to_string());
        println!("{}", write_beside_refusals(&format!("{url}/refused"), &refusing));
        return;
    }
    // Processes read from their surroundings where the bucket is.
    let server = std::env::var("AWS_ENDPOINT").unwrap().replace("http://", "");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args(["--exact", "a_shared_bucket_that_refuses_stops_no_commit", "--nocapture"]);
    own.env("AWS_ENDPOINT", format!("http://127.0.0.1:{free}"));
    assert!(own.env(BEHIND, format!("{free} {server}")).status().unwrap().success());
}

/// What it has seen.
fn write_beside_refusals(url: &str, refusing: &Refusing) -> String {
    let long = std::env::var_os("TERRACE_LONG").is_some();
    let lasts = Duration::from_secs(if long { 120 } else { 3 });
    let dir = tempfile::tempdir().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    // What waits for the bucket finds room.
    let options = || Options::new().pm_size(256 << 20);
    let of_writer = options().object_store(url).share(true).on_event(move |event| match event {
        Event::BackgroundError(error) => told.lock().unwrap().push(error.error.clone()),
        Event::StoreRetry(retry) => told.lock().unwrap().push(retry.cause.clone()),
        _ => {}
    });
    let db = of_writer.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let remote = table.durability(Durability::Remote);
    remote.put("first", "row").unwrap();
    let follower = options().follow(url, dir.path().join("follower")).unwrap();
    let (mut written, mut seen) = (1, String::new());
    for (status, code) in REFUSALS {
        events.lock().unwrap().clear();
        refusing.set(Some((status, code)));
        let (began, mut longest) = (Instant::now(), Duration::ZERO);
        let share = || db.stats().share.unwrap();
        let says = |text: &str| text.contains(code) || text.contains(&status.to_string());
        let is_told = || events.lock().unwrap().iter().any(|it| says(it));
        while began.elapsed() < lasts || !is_told() {
            assert!(began.elapsed() < lasts * 20, "{code}: no event tells it");
            let put = Instant::now();
            table.put(format!("{code} {written}"), [7; 100]).unwrap();
            longest = longest.max(put.elapsed());
            written += 1;
        }
        assert!(longest < Duration::from_secs(2), "{code}: a commit took {longest:?}");
        let now = share();
        assert!(now.lag_commits > 0 && now.lag_ms > 0, "{code}: {now:?}");
        // A request is made again for a while where the store asks for less.
        let is_over = status == 403 || long;
        assert!(!is_over || now.note.as_deref().is_some_and(says), "{code}: {now:?}");
        refusing.set(None);
        remote.put(format!("{code} last"), "row").unwrap();
        written += 1;
        until("it says that it fails", || share().note.is_none());
        let all = |db: &terrace::Database| db.existing_table("t").unwrap().iter().count();
        until("the follower lacks rows", || all(&follower.database().unwrap()) == written);
        assert_eq!(all(&db), written);
        seen += &format!("{status} {code}: {written} rows, no commit took over {longest:?}\n");
    }
    assert_eq!(follower.status().restarts, 1, "nothing leapt: {:?}", follower.status());
    seen
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::yield_now();
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
