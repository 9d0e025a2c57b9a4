//! The page in Chromium: drawn at three widths in dark and light, without an error, and without a
//! request elsewhere. `cargo xtask check --full` runs it. It leaves pictures in the target folder.
//!
//! Chromium is driven by its DevTools protocol over two pipes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use common::{AT_LAST, Page};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser with one page.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// The events that came, by name.
    events: Vec<Value>,
    session: Option<String>,
    last: u64,
    began: Instant,
    _profile: TempDir,
}

impl Browser {
    /// Starts it; `None` where there is none.
    fn start() -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let is_there = |name: &&&str| Command::new(**name).arg("--version").output().is_ok();
        let name = *names.iter().find(is_there)?;
        let profile = tempfile::tempdir().unwrap();
        // The protocol takes descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null", "sh", name])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, from) = channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        let (events, session, began) = (Vec::new(), None, Instant::now());
        let _profile = profile;
        let mut browser = Browser { process, to, from, events, session, last: 0, began, _profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "DOM"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The answer to a call, which may have failed.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let left = AT_LAST.saturating_sub(self.began.elapsed());
            let message = self.from.recv_timeout(left).unwrap();
            if message["id"] == self.last {
                return message;
            }
            self.events.push(message);
        }
    }

    fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", &params)["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    fn wait_for(&mut self, expression: &str) {
        while self.value(expression) != json!(true) {
            assert!(self.began.elapsed() < AT_LAST, "{expression}");
            thread::yield_now();
        }
    }

    fn open(&mut self, url: &str, width: u32, scheme: &str) {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait_for("document.readyState === 'complete'");
    }

    fn picture(&mut self, name: &str) {
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", &params);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("monitor");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), decode(shot["data"].as_str().unwrap())).unwrap();
    }

    /// What the console has of errors, and each address that was asked for.
    fn check_events(&self, own: &str) {
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => panic!("{params}"),
                "Log.entryAdded" => assert_ne!(params["entry"]["level"], "error", "{params}"),
                "Runtime.consoleAPICalled" => assert_ne!(params["type"], "error", "{params}"),
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap();
                    assert!(url.starts_with(own) || url.starts_with("data:"), "{url}");
                }
                _ => {}
            }
        }
        let asked = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        assert!(self.events.iter().any(|event| asked(&event)));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The bytes of base64.
fn decode(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect();
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[test]
fn the_page_is_drawn_at_each_width_in_dark_and_light() {
    let Some(mut browser) = Browser::start() else {
        writeln!(io::stdout(), "\nskipped: no chromium; `cargo xtask setup` installs it").unwrap();
        return;
    };
    let page = Page::new();
    fill(&page);
    let url = page.monitor.url();
    for width in [1440, 768, 390] {
        for scheme in ["light", "dark"] {
            browser.open(&url, width, scheme);
            browser.wait_for("document.querySelectorAll('canvas').length === 4");
            // Rates are there, so the script has put a second sample in place.
            browser.wait_for("/B\\/s appended/.test(document.body.textContent)");
            let wide = browser.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} at {width}");
            browser.picture(&format!("{width}-{scheme}.png"));
        }
    }
    let zones = page.db.stats().pm.zones;
    let shown = "document.querySelector('#zones tbody tr:last-child td').textContent";
    assert_eq!(browser.value(shown), json!(zones.to_string()));
    walk_by_keyboard(&mut browser);
    browser.check_events(&url);
    without_a_script(&mut browser, &url);
    let Page { db, monitor, dir } = page;
    browser.open(&url, 390, "light");
    db.close().unwrap();
    browser.wait_for("document.getElementById('state').textContent === 'closed'");
    browser.picture("closed.png");
    drop(monitor);
    browser.wait_for("document.getElementById('state').textContent === 'no answer'");
    drop(dir);
}

/// Something in each level, and a name that is no name.
fn fill(page: &Page) {
    for name in ["people", "orders", "<script>\"'&"] {
        let table = page.db.table(name).unwrap();
        for n in 0..2000_u32 {
            table.put(n.to_be_bytes(), [7; 200]).unwrap();
        }
        page.db.compact_range(&table, ..).unwrap();
        for n in 0..500_u32 {
            table.put(n.to_be_bytes(), [8; 200]).unwrap();
            assert!(table.get((n + 1000).to_be_bytes()).unwrap().is_some());
        }
    }
}

/// Each stop of the tab key has an outline; the first one leads to the numbers.
fn walk_by_keyboard(browser: &mut Browser) {
    browser.value("document.activeElement.blur()");
    for stop in 0..8 {
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
            browser.call("Input.dispatchKeyEvent", &key);
        }
        if stop == 0 {
            assert_eq!(browser.value("document.activeElement.className"), "skip");
        }
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "stop {stop}");
    }
}

fn without_a_script(browser: &mut Browser, url: &str) {
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.call("Page.navigate", &json!({ "url": url }));
    let has_all = |html: &str| {
        let parts = ["Look at first", "Where the data lies", "What writers wait for", "people"];
        parts.iter().all(|part| html.contains(part))
    };
    loop {
        let root = browser.call("DOM.getDocument", &json!({}))["root"]["nodeId"].clone();
        // The page may have been loaded anew in between.
        let html = browser.ask("DOM.getOuterHTML", &json!({ "nodeId": root }));
        let html = html["result"]["outerHTML"].as_str().unwrap_or_default();
        let metrics = browser.call("Page.getLayoutMetrics", &json!({}));
        let is_laid_out = metrics["cssContentSize"]["width"].as_f64() > Some(0.0);
        if has_all(html) && !html.contains("<canvas") && is_laid_out {
            break;
        }
        assert!(browser.began.elapsed() < AT_LAST, "{html}");
    }
    browser.picture("no-script.png");
    browser.call("Emulation.setScriptExecutionDisabled", &json!({ "value": false }));
}
