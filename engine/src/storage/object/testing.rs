//! The store in memory for tests of the whole engine: a server with a URL, and what befalls the
//! requests to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use super::memory::{Effect, MemoryClient, MemoryServer, RequestKind};
use super::store::FailureKind;
use crate::base::error::{Error, Result};
use terrace_testkit::{Machine, Reached, Uplink};

pub use super::memory::StoreRounds;

/// All servers, by their URL.
static SERVERS: LazyLock<Mutex<BTreeMap<String, Weak<Inner>>>> = LazyLock::new(Mutex::default);

/// The number of the next one.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// After so many new ones those that are gone are forgotten.
const CLEARED_EVERY: u64 = 256;

struct Inner {
    url: String,
    server: Arc<MemoryServer>,
}

/// An object store in memory. It is there as long as a handle is.
#[derive(Clone)]
pub struct ObjectServer(Arc<Inner>);

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// It does not arrive.
    LoseRequest,
    /// It is served, and its answer does not arrive.
    LoseAnswer,
    /// A change is made that many requests later; the caller hears of no answer.
    Delay(u64),
    /// A change is made now, and once more that many requests later.
    Repeat(u64),
    /// The store says that it has too much to do.
    Throttle,
    /// The store refuses the credentials.
    Refuse,
    /// Fewer bytes come than were asked for.
    Shorten,
    /// Other bytes come than were sent.
    Garble,
    /// A list is as of that many requests ago.
    Stale(u64),
    /// A read is answered when [`ObjectServer::release`] is called.
    Hold,
    /// The machine loses its power before the request leaves.
    CutBefore,
    /// The machine loses its power once the request is served.
    CutAfter,
}

impl StoreFault {
    fn effect(self) -> Effect {
        match self {
            StoreFault::LoseRequest => Effect::LoseRequest,
            StoreFault::LoseAnswer => Effect::LoseAnswer,
            StoreFault::Delay(requests) => Effect::Delay(requests),
            StoreFault::Repeat(requests) => Effect::Repeat(requests),
            StoreFault::Throttle => Effect::Fail(FailureKind::Throttled),
            StoreFault::Refuse => Effect::Fail(FailureKind::Refused),
            StoreFault::Shorten => Effect::Fail(FailureKind::Short),
            StoreFault::Garble => Effect::Fail(FailureKind::Wrong),
            StoreFault::Stale(requests) => Effect::Stale(requests),
            StoreFault::Hold => Effect::Hold,
            StoreFault::CutBefore => Effect::CutBefore,
            StoreFault::CutAfter => Effect::CutAfter,
        }
    }
}

/// How often a store was asked for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Writes.
    pub puts: u64,
    /// Reads.
    pub gets: u64,
    /// Looks.
    pub heads: u64,
    /// Deletions.
    pub deletes: u64,
    /// Lists.
    pub lists: u64,
}

impl ObjectServer {
    /// A store without objects.
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> ObjectServer {
        ObjectServer::of(MemoryServer::new())
    }

    fn of(server: Arc<MemoryServer>) -> ObjectServer {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut servers = SERVERS.lock();
        if number.is_multiple_of(CLEARED_EVERY) {
            servers.retain(|_, known| known.strong_count() > 0);
        }
        let url = format!("memory://{number}");
        let inner = Arc::new(Inner { url: url.clone(), server });
        servers.insert(url, Arc::downgrade(&inner));
        ObjectServer(inner)
    }

    /// Another store with the same objects, and no requests on their way.
    #[must_use]
    pub fn copy(&self) -> ObjectServer {
        ObjectServer::of(self.0.server.copy())
    }

    /// Has longer objects be written in parts, which takes no condition.
    pub fn parts_from(&self, len: usize) {
        self.0.server.parts_from(len);
    }

    /// What [`Options::object_store`](crate::Options::object_store) takes.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.0.server.requests()
    }

    /// Requests so far, by kind, for names that end so.
    pub fn asked(&self, end: &str) -> Asked {
        let mut asked = Asked::default();
        for request in self.0.server.log().into_iter().filter(|asked| asked.name.ends_with(end)) {
            let count = match request.kind {
                RequestKind::Put => &mut asked.puts,
                RequestKind::Get => &mut asked.gets,
                RequestKind::Head => &mut asked.heads,
                RequestKind::Delete => &mut asked.deletes,
                RequestKind::List => &mut asked.lists,
            };
            *count += 1;
        }
        asked
    }

    /// Objects that were asked for whole so far, without a length.
    pub fn read_whole(&self) -> Vec<String> {
        self.0.server.read_whole()
    }

    /// Has answers come in rounds while `work` runs, and says how it waited. A round comes when a
    /// caller waits: with all that is under way then. So no clock decides what is waited for.
    pub fn in_rounds<T>(&self, work: impl FnOnce() -> T) -> (T, StoreRounds) {
        self.0.server.begin_rounds();
        let done = work();
        (done, self.0.server.end_rounds())
    }

    /// How many answers are held.
    pub fn held(&self) -> usize {
        self.0.server.held()
    }

    /// Sends the answers of reads that were held ([`StoreFault::Hold`]).
    pub fn release(&self) {
        self.0.server.release();
    }

    /// Has something happen to the request of a number; the first one has number 1.
    pub fn plan(&self, request: u64, fault: StoreFault) {
        self.0.server.plan(request, fault.effect());
    }

    /// Has nothing happen to requests any more.
    pub fn forget_plans(&self) {
        self.0.server.forget_plans();
    }

    /// Has the same happen to all requests from now on, or nothing.
    pub fn always(&self, fault: Option<StoreFault>) {
        self.0.server.always(fault.map(StoreFault::effect));
    }

    /// Has something be called before and after each request, with its number and whether it was
    /// served: a test takes a copy of the machine then. `None` ends that.
    pub fn watch(&self, watch: Option<Box<dyn Fn(u64, bool) + Send + Sync>>) {
        self.0.server.watch(watch);
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.0.server.content().into_keys().collect()
    }

    /// Bytes of an object.
    pub fn len(&self, name: &str) -> usize {
        self.0.server.content().get(name).map_or(0, |bytes| bytes.len())
    }

    /// Puts an object there that Terrace knows nothing of.
    pub fn place(&self, name: &str) {
        self.0.server.place(name);
    }

    /// Loses an object.
    pub fn lose(&self, name: &str) {
        self.0.server.lose(name);
    }

    /// Changes a byte of an object.
    pub fn damage(&self, name: &str, at: usize) {
        self.0.server.damage(name, at);
    }

    /// Has all delayed changes arrive now.
    pub fn deliver(&self) {
        self.0.server.deliver();
    }
}

impl Reached for ObjectServer {
    fn after_end(&self) -> Arc<dyn Reached> {
        Arc::new(ObjectServer::of(self.0.server.after_end()))
    }

    fn attach(&self, uplink: Uplink) {
        self.0.server.attach(uplink);
    }

    fn url(&self) -> String {
        self.0.url.clone()
    }

    fn digest(&self) -> u128 {
        self.0.server.digest()
    }
}

impl ObjectServer {
    /// The store that a machine reaches, if it reaches one.
    pub fn of_machine(machine: &Machine) -> Option<ObjectServer> {
        let found = SERVERS.lock().get(&machine.store_url()?).and_then(Weak::upgrade);
        found.map(ObjectServer)
    }
}

impl fmt::Debug for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectServer({})", self.0.url)
    }
}

/// A way to the store of a URL.
pub(super) fn client_of(url: &str) -> Result<MemoryClient> {
    let found = SERVERS.lock().get(url).and_then(Weak::upgrade);
    let found = found.ok_or_else(|| Error::invalid(format!("there is no store {url}")))?;
    Ok(found.server.client())
}
