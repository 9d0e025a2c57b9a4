//! A client that sends what it is told to, and a database with a page.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tempfile::TempDir;
use terrace::{Database, Options};
use terrace_monitor::Monitor;

/// What must happen at last, happens within this.
pub(crate) const AT_LAST: Duration = Duration::from_mins(1);

/// A database with its page.
pub(crate) struct Page {
    pub(crate) db: Database,
    pub(crate) monitor: Monitor,
    pub(crate) dir: TempDir,
}

impl Page {
    pub(crate) fn new() -> Page {
        Page::of(Options::new())
    }

    pub(crate) fn of(options: Options) -> Page {
        let dir = tempfile::tempdir().unwrap();
        let db = options.pm_size(4 << 20).open(dir.path().join("db")).unwrap();
        let monitor = terrace_monitor::serve(&db, "127.0.0.1:0").unwrap();
        Page { db, monitor, dir }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        get(self.monitor.address(), path)
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let head = head.to_lowercase();
        Answer { status: status.unwrap_or(0), head, body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(AT_LAST)).unwrap();
    stream
}

/// Sends bytes, and reads until the server closes.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // The server may have refused before it was all sent.
    drop(stream.write_all(bytes));
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    // It may close with bytes unread, which resets the connection behind the answer.
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        text.extend_from_slice(&piece[..read]);
    }
    Answer::parse(&String::from_utf8_lossy(&text))
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}
