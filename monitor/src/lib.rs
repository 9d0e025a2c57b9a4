//! A page that shows a running Terrace database: what lies where, what moves, and what writers wait
//! for.
//!
//! [`serve`] starts it in the process of the database, in one thread. It takes a sample of the
//! statistics once a second while somebody looks, and nothing otherwise. It does not keep the
//! database open: once that is closed, the page says so.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
//! let monitor = terrace_monitor::serve(&db, "127.0.0.1:0")?;
//! println!("look at {}", monitor.url());
//! # Ok(())
//! # }
//! ```
//!
//! | path | what it has |
//! |---|---|
//! | `/` | the page, whole without a script |
//! | `/sample.json` | the last sample: `stats` as `terrace stats --json`, and what the page shows |
//! | `/picture.json` | what the page shows |
//! | `/history.json` | numbers of the last ten minutes: the database's history, then each sample |
//! | `/metrics` | as `Database::metrics_text` |
//!
//! # Who may look
//!
//! Without a token every user of the machine may, and nobody else: the address has to be a loopback
//! one, and a request that names another server is refused. With [`MonitorOptions::token`] any
//! address may be bound. The connection is not encrypted: put a proxy with TLS before it.

mod access;
pub mod model;
mod page;
mod remote;
mod routes;
mod sampler;
mod server;
pub mod units;

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::process;
use std::thread::{Builder, JoinHandle};

use terrace::Database;
use tokio::runtime;
use tokio::sync::oneshot;

use access::Access;
pub use remote::{Look, Remote};
use routes::Site;
pub use sampler::{INTERVAL, Sampler};

/// How a page is served.
#[derive(Clone, Default)]
pub struct MonitorOptions {
    token: Option<String>,
}

impl MonitorOptions {
    /// The defaults: no token.
    pub fn new() -> MonitorOptions {
        MonitorOptions::default()
    }

    /// Serves only those who have this token: in a header `Authorization: Bearer`, or once as
    /// `?token=`, from where it goes into a cookie. It has 16 to 128 letters, digits and `-._~`.
    /// With it the address may be any.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> MonitorOptions {
        self.token = Some(token.into());
        self
    }

    /// Serves the page of a database at an address; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an address of other machines without a token, and for a token that is not
    /// as [`MonitorOptions::token`] says; otherwise what the system says of the address.
    pub fn serve(self, database: &Database, address: impl ToSocketAddrs) -> Result<Monitor> {
        let invalid = |message: &str| Err(Error::new(ErrorKind::InvalidInput, message));
        if self.token.as_deref().is_some_and(|token| !access::is_fit(token)) {
            return invalid("a token has 16 to 128 letters, digits and -._~");
        }
        let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        if self.token.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
            return invalid("other machines reach this address: set a token, or use 127.0.0.1");
        }
        let listener = TcpListener::bind(&*addresses)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let sampler = Sampler::new(database);
        let (path, token) = (database.path().display().to_string(), self.token.clone());
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("terrace-monitor".into()).spawn(move || {
            let access = Access::new(address, token);
            let site = Site::new(path, sampler, access);
            server::run(&runtime, listener, site, stopped);
        })?;
        let (stop, thread, process) = (Some(stop), Some(thread), process::id());
        Ok(Monitor { address, token: self.token, stop, thread, process })
    }
}

/// Shows no token.
impl fmt::Debug for MonitorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_token = self.token.is_some();
        f.debug_struct("MonitorOptions").field("has_token", &has_token).finish()
    }
}

/// Serves the page of a database at a loopback address, such as `127.0.0.1:0`.
///
/// # Errors
///
/// As [`MonitorOptions::serve`].
pub fn serve(database: &Database, address: impl ToSocketAddrs) -> Result<Monitor> {
    MonitorOptions::new().serve(database, address)
}

/// A page that is served until this is dropped. That ends all connections at once.
pub struct Monitor {
    address: SocketAddr,
    token: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// That of the thread.
    process: u32,
}

impl Monitor {
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a browser on this machine opens. With a token the address has it.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        match &self.token {
            Some(token) => format!("http://{address}/?token={token}"),
            None => format!("http://{address}/"),
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if process::id() != self.process {
            // A forked child has no such thread, whose locks may be taken for ever.
            mem::forget((self.stop.take(), self.thread.take()));
        }
        drop(self.stop.take());
        // It waits for nothing but a sample under way. What a panic said is on standard error.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Shows no token.
impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("address", &self.address).finish_non_exhaustive()
    }
}
