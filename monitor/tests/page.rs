//! What the page shows, and that it ends with its database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant, UNIX_EPOCH};

use common::{AT_LAST, Page, get};
use serde_json::{Value, json};
use terrace::Options;
use terrace_monitor::Remote;

/// The statistics of an answer are those of the same moment.
#[test]
fn values_are_those_of_the_statistics() {
    let page = Page::new();
    let table = page.db.table("people").unwrap();
    for n in 0..1000_u32 {
        table.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    // As text and back, as the answer was: a fraction may lose its last digit by that.
    let stats = || -> Value {
        serde_json::from_str(&serde_json::to_string(&page.db.stats()).unwrap()).unwrap()
    };
    let began = Instant::now();
    loop {
        let (before, sample, after) = (stats(), page.get("/sample.json").json(), stats());
        // While the background is at work, no two looks are alike.
        if before == after && sample["stats"] == after {
            assert_eq!(sample["state"], "open");
            check_picture(&sample["picture"], &after);
            break;
        }
        assert!(began.elapsed() < AT_LAST, "{sample} is not {after}");
        std::thread::yield_now();
    }
    let html = page.get("/").body;
    for shown in ["people", "Look at first", "Where the data lies", "level 2 and deeper"] {
        assert!(html.contains(shown), "{shown}");
    }
    assert!(html.contains(&terrace_monitor::units::size(page.db.stats().pm.capacity)));
    // They are of the last second.
    let groups = || {
        let metrics = page.get("/metrics").body;
        let mut lines = metrics.lines();
        let groups = lines.find_map(|line| line.strip_prefix("terrace_commit_groups_total "));
        groups.unwrap().parse::<f64>().unwrap()
    };
    while groups() != page.db.stats().commit.groups as f64 {
        assert!(began.elapsed() < AT_LAST);
    }
}

fn check_picture(picture: &Value, stats: &Value) {
    let number = |place: &str| stats.pointer(place).unwrap().as_u64().unwrap();
    let step = |name: &str| {
        let steps = picture["stairs"].as_array().unwrap();
        steps.iter().find(|step| step["name"] == name).unwrap()["bytes"].as_u64().unwrap()
    };
    assert_eq!(step("region"), number("/pm/zones_used") * number("/pm/zone_size"));
    assert_eq!(step("index"), number("/memory/indexes"));
    let cell = |section: &str, row: &str, at: usize| {
        let sections = picture["sections"].as_array().unwrap();
        let section = sections.iter().find(|one| one["id"] == section).unwrap();
        let row = section["rows"].as_array().unwrap().iter().find(|one| one["name"] == row);
        row.unwrap()["cells"][at].as_str().unwrap().to_owned()
    };
    assert_eq!(cell("zones", "taken", 0), number("/pm/zones_used").to_string());
    let memtable = terrace_monitor::units::size(number("/tables/0/memtable_bytes"));
    assert_eq!(cell("tables", "people", 0), memtable);
    let cache = terrace_monitor::units::size(number("/memory/cache"));
    assert_eq!(cell("memory", "cache", 0), cache);
}

/// The second sample has rates, and the ring has both.
#[test]
fn the_ring_has_each_sample() {
    let page = Page::of(Options::new().history(None));
    page.db.table("t").unwrap().put("a", "1").unwrap();
    let began = Instant::now();
    let history = loop {
        let history = page.get("/history.json").json();
        if history["at_ms"].as_array().unwrap().len() >= 2 {
            break history;
        }
        assert!(began.elapsed() < AT_LAST);
    };
    let times = history["at_ms"].as_array().unwrap();
    assert_eq!(history["series"]["appended"][0], Value::Null);
    assert!(history["series"]["appended"][1].is_number());
    let after = page.get(&format!("/history.json?after={}", times[0])).json();
    assert_eq!(after["at_ms"][0], times[1]);
}

/// Bug: a look at another page panicked inside of a runtime. Cause: it had a runtime of its own.
/// Fix: it reads a socket.
#[test]
fn a_page_is_looked_at_in_asynchronous_code() {
    let page = Page::new();
    let remote = Remote::new(&page.monitor.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let look = runtime.block_on(async { remote.look().unwrap() });
    assert_eq!((look.state.as_str(), look.picture.unwrap().state.as_str()), ("open", "open"));
    let Page { monitor, .. } = page;
    drop(monitor);
    assert!(remote.look().is_err());
}

/// The map has each byte of the levels once, and is bounded.
#[test]
fn a_map_has_all_bytes_of_the_levels() {
    let page = Page::new();
    let table = page.db.table("t").unwrap();
    for _ in 0..3 {
        for n in 0..3000_u32 {
            table.put(n.to_be_bytes(), [7; 300]).unwrap();
        }
        page.db.compact_range(&table, ..).unwrap();
    }
    let sample = page.get("/sample.json").json();
    let (map, table) = (&sample["picture"]["maps"][0], &sample["stats"]["tables"][0]);
    assert_eq!(map["table"], "t");
    let sum = |level: &Value| {
        let bytes = level["bytes"].as_array().unwrap();
        assert!(bytes.len() <= terrace_monitor::model::COLUMNS);
        bytes.iter().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>()
    };
    for (shown, level) in map["levels"]
        .as_array()
        .unwrap()
        .iter()
        .zip(table["levels"].as_array().unwrap().iter().filter(|level| level["bytes"] != 0))
    {
        assert_eq!(shown["level"], level["level"]);
        let (shown, whole) = (sum(shown), level["bytes"].as_u64().unwrap());
        // A part of an extent in each of its columns is a whole number of bytes.
        assert!(shown <= whole && shown > whole * 9 / 10, "{shown} of {whole}");
    }
    assert!(page.get("/").body.contains("Keys and levels"));
}

/// Bug: who came within a second behind a scrape saw no map. Cause: the scrape's sample, which has
/// none, was shown. Fix: who looks has a whole one.
#[test]
fn a_look_behind_a_scrape_has_the_map() {
    let page = Page::new();
    let table = page.db.table("people").unwrap();
    table.put("ada", "1815").unwrap();
    page.db.compact_range(&table, ..).unwrap();
    page.get("/metrics");
    assert!(page.get("/").body.contains("Keys and levels"));
}

/// What was before the first look comes out of the database's history.
#[test]
fn the_charts_begin_with_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let options = Options::new().pm_size(4 << 20).history(Duration::from_millis(100));
    let db = options.open(&path).unwrap();
    let table = db.table("t").unwrap();
    let began = Instant::now();
    let kept = loop {
        table.put("key", "value").unwrap();
        let kept = terrace::Database::history(&path, UNIX_EPOCH).unwrap();
        if kept.len() >= 4 {
            break kept;
        }
        assert!(began.elapsed() < AT_LAST);
    };
    let monitor = terrace_monitor::serve(&db, "127.0.0.1:0").unwrap();
    let history = get(monitor.address(), "/history.json").json();
    let first = kept[1].at().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    assert_eq!(history["at_ms"][0], first);
    assert!(history["series"]["appended"][0].is_number(), "{history}");
}

#[test]
fn a_name_of_a_table_is_text() {
    let page = Page::new();
    page.db.table("<script>\"'&").unwrap();
    let html = page.get("/").body;
    assert!(html.contains("&lt;script&gt;&quot;'&amp;"), "{html}");
    assert!(!html.contains("<script>"));
    let tables = page.get("/sample.json").json()["stats"]["tables"].clone();
    assert_eq!(tables[0]["name"], json!("<script>\"'&"));
}

/// The page keeps nothing open: the last handle closes the database, and it opens again at once.
#[test]
fn the_page_says_that_its_database_is_closed() {
    let Page { db, monitor, dir } = Page::new();
    let address = monitor.address();
    assert_eq!(get(address, "/sample.json").json()["state"], "open");
    drop(db);
    let again = Options::new().open_existing(dir.path().join("db")).unwrap();
    let began = Instant::now();
    // A sample that is younger than a second is shown as it is.
    while get(address, "/sample.json").json()["state"] != "closed" {
        assert!(began.elapsed() < AT_LAST);
    }
    let page = get(address, "/");
    assert!(page.body.contains("data-state=\"closed\"") && page.body.contains("Look at first"));
    assert_eq!(get(address, "/metrics").status, 503);
    drop(monitor);
    drop(again);
}

#[test]
fn files_of_the_page_are_there() {
    let page = Page::new();
    for (path, kind, part) in [
        ("/app.js", "text/javascript", "become"),
        ("/style.css", "text/css", "--accent"),
        ("/uplot.js", "text/javascript", "uPlot"),
        ("/uplot.css", "text/css", "uplot"),
    ] {
        let file = page.get(path);
        assert_eq!(file.status, 200, "{path}");
        assert!(file.head.contains(kind) && file.body.contains(part), "{path}");
    }
}

/// Of a color and its ground the one is at least 4.5 times as light as the other, in both schemes.
#[test]
fn text_has_contrast() {
    let style = include_str!("../assets/style.css");
    let schemes: Vec<&str> = style.split(":root {").skip(1).take(2).collect();
    for scheme in schemes {
        let value = |name: &str| {
            let (_, rest) = scheme.split_once(&format!("{name}: #")).unwrap();
            let parts = [0, 2, 4].map(|at| u8::from_str_radix(&rest[at..at + 2], 16).unwrap());
            let [red, green, blue] = parts.map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * red + 0.7152 * green + 0.0722 * blue
        };
        for ground in ["--page", "--card"] {
            for text in ["--text", "--quiet", "--accent", "--good", "--bad"] {
                let (one, other) = (value(ground), value(text));
                let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
                assert!(contrast >= 4.5, "{text} on {ground}: {contrast:.2}");
            }
        }
    }
}
