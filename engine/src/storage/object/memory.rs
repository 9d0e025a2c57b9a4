//! An object store in memory, for tests and the simulator. Its time is the number of requests that
//! came so far, so a test has the same course each time.
//!
//! A [`MemoryServer`] outlives the machines that use it. Each opening has a [`MemoryClient`]; the
//! power of a client's machine may be cut before or after any of its requests. What it had sent
//! before may still arrive later.
//!
//! Thread safety: one lock over all state; no call waits under it. Each request is a point of the
//! scheduler, and passes it before it takes the lock. The lock itself is none: a policy of the
//! scheduler cuts the power of a machine, and looks at the store then.

mod faults;
mod rounds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use bytes::Bytes;

use super::store::{
    Answer, Answered, Failure, FailureKind, Got, LIST_LEN, ObjectInfo, ObjectStore, PutWhen, Span,
    Tag, late,
};
use crate::os::schedule::{PointKind, point};

use terrace_testkit::{Call, FileKind, Outcome, RequestFault, Uplink};

pub(crate) use faults::{Effect, RequestKind, Requested};
use rounds::HeldAnswer;
pub use rounds::StoreRounds;

/// How many earlier lists a stale one may go back to.
const HISTORY: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    bytes: Arc<[u8]>,
    /// A hash of the bytes.
    digest: u64,
    writing: u64,
}

/// A change that a request makes.
#[derive(Clone, Debug)]
enum ObjectChange {
    /// Under a condition, or whatever there is.
    Put {
        name: String,
        bytes: Arc<[u8]>,
        when: Option<PutWhen>,
    },
    Delete {
        names: Vec<String>,
    },
}

/// All objects at a moment. Copies share what did not change since.
type Content = Arc<BTreeMap<Arc<str>, Object>>;

#[derive(Debug, Default)]
struct Server {
    objects: Content,
    /// What it had before each of the last requests.
    history: VecDeque<Content>,
    writings: u64,
    requests: u64,
    /// What becomes of requests, by their number.
    effects: BTreeMap<u64, Effect>,
    /// What becomes of all others.
    always: Option<Effect>,
    /// Changes on their way, by the request before which they arrive.
    delayed: BTreeMap<u64, Vec<ObjectChange>>,
    held: Vec<HeldAnswer>,
    /// Where answers come in rounds: what is known of them.
    rounds: Option<StoreRounds>,
    dead: BTreeSet<u64>,
    clients: u64,
    log: Vec<Requested>,
    /// Objects that were asked for whole, without a length.
    read_whole: Vec<String>,
    watch: Watch,
    /// Objects that are longer are written in parts, which takes no condition.
    parts_from: Option<usize>,
    /// The simulated machine that requests come from.
    uplink: Option<Uplink>,
}

/// Told of each request, before and after it is served.
pub(crate) type Watcher = Box<dyn Fn(u64, bool) + Send + Sync>;

#[derive(Default)]
struct Watch(Option<Arc<Watcher>>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.0.is_some())
    }
}

/// The store itself.
#[derive(Debug, Default)]
pub(crate) struct MemoryServer(Mutex<Server>);

/// One machine's way to the store.
#[derive(Clone, Debug)]
pub(crate) struct MemoryClient {
    server: Arc<MemoryServer>,
    id: u64,
}

impl MemoryServer {
    /// A store without objects.
    pub(crate) fn new() -> Arc<MemoryServer> {
        Arc::default()
    }

    /// Another store with the same objects. Nothing is on its way to it.
    pub(crate) fn copy(&self) -> Arc<MemoryServer> {
        let server = self.0.lock();
        let (objects, writings) = (server.objects.clone(), server.writings);
        let clients = server.clients;
        Arc::new(MemoryServer(Mutex::new(Server {
            objects,
            writings,
            clients,
            ..Server::default()
        })))
    }

    /// The same store after the machine that uses it has come to its end. What was on its way
    /// arrives there.
    pub(crate) fn after_end(&self) -> Arc<MemoryServer> {
        let server = self.0.lock();
        let late = server.delayed.iter();
        let delayed =
            late.map(|(at, late)| (at.saturating_sub(server.requests).max(1), late.clone()));
        Arc::new(MemoryServer(Mutex::new(Server {
            objects: server.objects.clone(),
            writings: server.writings,
            clients: server.clients,
            delayed: delayed.collect(),
            parts_from: server.parts_from,
            ..Server::default()
        })))
    }

    /// Has a simulated machine be told of each request.
    pub(crate) fn attach(&self, uplink: Uplink) {
        self.0.lock().uplink = Some(uplink);
    }

    /// Has longer objects be written in parts.
    pub(crate) fn parts_from(&self, len: usize) {
        self.0.lock().parts_from = Some(len);
    }

    /// A hash of what it has, and of what is on its way.
    pub(crate) fn digest(&self) -> u128 {
        let server = self.0.lock();
        let mut sum = DefaultHasher::new();
        for (name, object) in &*server.objects {
            (name, object.digest).hash(&mut sum);
        }
        for (at, changes) in &server.delayed {
            (at.saturating_sub(server.requests), changes.len()).hash(&mut sum);
        }
        u128::from(sum.finish()) << 32
    }

    /// Has something be called before and after each request, or nothing.
    pub(crate) fn watch(&self, watch: Option<Watcher>) {
        self.0.lock().watch = Watch(watch.map(Arc::new));
    }

    /// Calls what watches, without the lock.
    fn tell(&self, after: bool) {
        let server = self.0.lock();
        let (watch, number) = (server.watch.0.clone(), server.requests + u64::from(!after));
        drop(server);
        if let Some(watch) = watch {
            watch(number, after);
        }
    }

    /// A way to it for a machine that has just started.
    pub(crate) fn client(self: &Arc<Self>) -> MemoryClient {
        let mut server = self.0.lock();
        server.clients += 1;
        MemoryClient { server: Arc::clone(self), id: server.clients }
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// All requests so far, in their order.
    pub(crate) fn log(&self) -> Vec<Requested> {
        self.0.lock().log.clone()
    }

    /// Has something happen to the request of a number; the first one has number 1.
    pub(crate) fn plan(&self, request: u64, effect: Effect) {
        self.0.lock().effects.insert(request, effect);
    }

    /// Objects that were asked for whole so far, without a length.
    pub(crate) fn read_whole(&self) -> Vec<String> {
        self.0.lock().read_whole.clone()
    }

    /// Has nothing happen to requests any more.
    pub(crate) fn forget_plans(&self) {
        self.0.lock().effects.clear();
    }

    /// Has the same happen to all requests from now on that have no plan of their own, or nothing.
    pub(crate) fn always(&self, effect: Option<Effect>) {
        self.0.lock().always = effect;
    }

    /// Names and bytes of all objects.
    pub(crate) fn content(&self) -> BTreeMap<String, Arc<[u8]>> {
        let server = self.0.lock();
        let objects = server.objects.iter();
        objects.map(|(name, object)| (name.to_string(), Arc::clone(&object.bytes))).collect()
    }

    /// Puts an object there, past all effects.
    pub(crate) fn place(&self, name: &str) {
        let mut server = self.0.lock();
        server.writings += 1;
        let object = Object::new([1][..].into(), server.writings);
        server.objects_mut().insert(name.into(), object);
    }

    /// Loses an object.
    pub(crate) fn lose(&self, name: &str) {
        self.0.lock().objects_mut().remove(name);
    }

    /// Changes a byte of an object.
    pub(crate) fn damage(&self, name: &str, at: usize) {
        if let Some(object) = self.0.lock().objects_mut().get_mut(name) {
            let mut bytes = object.bytes.to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0x10;
            }
            object.bytes = bytes.into();
        }
    }

    /// Has all delayed changes arrive now.
    pub(crate) fn deliver(&self) {
        self.0.lock().arrive(u64::MAX);
    }
}

impl Object {
    fn new(bytes: Arc<[u8]>, writing: u64) -> Object {
        let mut sum = DefaultHasher::new();
        bytes.hash(&mut sum);
        Object { bytes, digest: sum.finish(), writing }
    }
}

impl MemoryClient {
    /// Tells it from others of the same server.
    pub(crate) fn number(&self) -> u64 {
        self.id
    }
}

impl Server {
    /// The objects, to change them. Earlier copies stay as they are.
    fn objects_mut(&mut self) -> &mut BTreeMap<Arc<str>, Object> {
        Arc::make_mut(&mut self.objects)
    }

    /// Has changes arrive that were on their way until request `until`.
    fn arrive(&mut self, until: u64) {
        let later = self.delayed.split_off(&until.saturating_add(1));
        for change in std::mem::replace(&mut self.delayed, later).into_values().flatten() {
            // The one who asked has its answer already, whatever becomes of this.
            drop(self.change(&change));
        }
    }

    fn change(&mut self, change: &ObjectChange) -> Answered<Tag> {
        match change {
            ObjectChange::Put { name, bytes, when } => {
                let found = self.objects.get(name.as_str()).map(|object| tag(object.writing));
                let holds = match (when, &found) {
                    (None, _) => true,
                    (Some(PutWhen::Absent), found) => found.is_none(),
                    (Some(PutWhen::Tagged(tag)), Some(found)) => tag == found,
                    (Some(PutWhen::Tagged(_)), None) => false,
                };
                if !holds {
                    return Err(Failure::new(FailureKind::Changed, format!("found {found:?}")));
                }
                self.writings += 1;
                let object = Object::new(Arc::clone(bytes), self.writings);
                self.objects_mut().insert(name.as_str().into(), object);
            }
            ObjectChange::Delete { names } => {
                let objects = self.objects_mut();
                names.iter().for_each(|name| drop(objects.remove(name.as_str())));
            }
        }
        Ok(tag(self.writings))
    }

    /// Counts a request and says what becomes of it. A request of a machine without power does not
    /// come here.
    fn request(
        &mut self,
        client: u64,
        kind: RequestKind,
        name: &str,
        fault: Option<RequestFault>,
    ) -> Answered<Option<Effect>> {
        let powerless = Failure::new(FailureKind::Away, "the machine has no power");
        if self.dead.contains(&client) {
            return Err(powerless);
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Arc::clone(&self.objects));
        self.requests += 1;
        self.arrive(self.requests);
        let number = self.requests;
        self.log.push(Requested { number, client, kind, name: name.to_string() });
        let of_machine = fault.map(|fault| effect_of(fault, number));
        let effect = self.effects.remove(&number).or(of_machine).or(self.always);
        match effect {
            Some(Effect::CutBefore) => {
                self.dead.insert(client);
                Err(powerless)
            }
            Some(Effect::CutAfter) => {
                self.dead.insert(client);
                Ok(effect)
            }
            Some(Effect::LoseRequest) => {
                Err(Failure::new(FailureKind::Away, "the request was lost"))
            }
            Some(Effect::Fail(kind)) => Err(Failure::new(kind, "as planned")),
            effect => Ok(effect),
        }
    }

    /// Makes a change as the effect of its request says.
    fn change_as(&mut self, effect: Option<Effect>, change: &ObjectChange) -> Answered<Tag> {
        match effect {
            Some(Effect::Delay(requests)) => {
                let at = self.requests + requests;
                self.delayed.entry(at).or_default().push(change.clone());
                Err(Failure::new(FailureKind::Late, "the request is on its way"))
            }
            Some(Effect::Repeat(requests)) => {
                let at = self.requests + requests;
                self.delayed.entry(at).or_default().push(change.clone());
                self.change(change)
            }
            Some(Effect::LoseAnswer | Effect::CutAfter) => {
                drop(self.change(change));
                Err(Failure::new(FailureKind::Away, "the answer was lost"))
            }
            _ => self.change(change),
        }
    }

    fn find(&self, name: &str) -> Answered<&Object> {
        let missing = || Failure::new(FailureKind::Missing, "no such object");
        self.objects.get(name).ok_or_else(missing)
    }

    fn read(&self, name: &str, span: Span) -> Answered<Got> {
        let object = self.find(name)?;
        let bytes = match span {
            Span::Whole => Some(&object.bytes[..]),
            Span::Bytes { offset, len } => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let to = from.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
                object.bytes.get(from..to)
            }
        };
        let short = || {
            Failure::new(FailureKind::Short, format!("the object has {} bytes", object.bytes.len()))
        };
        Ok(Got { bytes: bytes.ok_or_else(short)?.to_vec(), tag: tag(object.writing) })
    }
}

/// What becomes of a request that a simulated machine has fail.
fn effect_of(fault: RequestFault, number: u64) -> Effect {
    let some = 1 + number % 7;
    match fault.outcome {
        _ if fault.is_busy => Effect::Fail(FailureKind::Throttled),
        Outcome::Done => Effect::LoseAnswer,
        Outcome::Late => Effect::Delay(some),
        Outcome::Twice => Effect::Repeat(some),
        Outcome::Stale => Effect::Stale(some),
        Outcome::Undone | Outcome::Partial | Outcome::LateWriteBack => Effect::LoseRequest,
    }
}

fn tag(writing: u64) -> Tag {
    Tag { entity: Some(writing.to_string()), version: None }
}

/// An answer to a read as the effect of its request says.
fn answer_as<T>(effect: Option<Effect>, found: Answered<T>) -> Answered<T> {
    match effect {
        Some(Effect::LoseAnswer | Effect::CutAfter | Effect::Delay(_)) => {
            Err(Failure::new(FailureKind::Away, "the answer was lost"))
        }
        _ => found,
    }
}

impl MemoryServer {
    /// Tells the machine of a request that is about to leave; how it fails, if it does.
    fn before(&self, call: Call, name: &str) -> Option<RequestFault> {
        point(PointKind::File);
        let file = if name.ends_with("/fence") { FileKind::Fence } else { FileKind::Objects };
        let uplink = self.0.lock().uplink.clone();
        uplink.and_then(|uplink| uplink.before(call, file))
    }

    /// Tells the machine that a request was served.
    fn after(&self) {
        let uplink = self.0.lock().uplink.clone();
        uplink.into_iter().for_each(|uplink| uplink.after());
    }
}

impl MemoryClient {
    /// Sends an answer, or holds it: until the test says so, or until the end of a round.
    fn send<T: Send + 'static>(
        &self,
        (kind, name): (RequestKind, &str),
        is_held: bool,
        (answer, found): (Answer<T>, Answered<T>),
    ) {
        let mut server = self.server.0.lock();
        if is_held || server.rounds.is_some() {
            let send = Box::new(move || answer.send(found));
            server.held.push(HeldAnswer { kind, is_fence: name.ends_with("/fence"), send });
        } else {
            drop(server);
            answer.send(found);
        }
    }

    /// Serves a request that changes objects.
    fn change(&self, call: Call, name: &str, change: &ObjectChange) -> Answered<Tag> {
        let kind = if call == Call::Delete { RequestKind::Delete } else { RequestKind::Put };
        let fault = self.server.before(call, name);
        self.server.tell(false);
        let mut server = self.server.0.lock();
        let requested = server.request(self.id, kind, name, fault);
        let done = requested.and_then(|effect| server.change_as(effect, change));
        drop(server);
        self.server.tell(true);
        self.server.after();
        done
    }

    /// Serves a request that changes none.
    fn look<T>(
        &self,
        (call, kind): (Call, RequestKind),
        name: &str,
        serve: impl FnOnce(&mut Server, Option<Effect>) -> Answered<T>,
    ) -> Answered<T> {
        let fault = self.server.before(call, name);
        self.server.tell(false);
        let mut server = self.server.0.lock();
        let requested = server.request(self.id, kind, name, fault);
        let found = requested.and_then(|effect| serve(&mut server, effect));
        drop(server);
        self.server.tell(true);
        self.server.after();
        found
    }

    /// Writes a long object as stores do that take no condition for one: after a look.
    fn put_in_parts(&self, name: &str, change: &ObjectChange, within: Duration) -> Answered<Tag> {
        match self.head(name, within) {
            Ok(_) => Err(Failure::new(FailureKind::Changed, "there is an object")),
            Err(failure) if failure.kind == FailureKind::Missing => {
                self.change(Call::Upload, name, change)
            }
            Err(failure) => Err(failure),
        }
    }
}

impl ObjectStore for MemoryClient {
    fn address(&self) -> String {
        "memory:".to_string()
    }

    fn begin_put(
        &self,
        name: &str,
        bytes: &Bytes,
        when: &PutWhen,
        within: Duration,
        answer: Answer<Tag>,
    ) {
        let parts_from = self.server.0.lock().parts_from;
        let in_parts = *when == PutWhen::Absent && parts_from.is_some_and(|len| bytes.len() > len);
        let name_of = name.to_string();
        let change = |when| ObjectChange::Put { name: name_of, bytes: bytes[..].into(), when };
        let done = match when {
            _ if in_parts => self.put_in_parts(name, &change(None), within),
            PutWhen::Absent => self.change(Call::Put, name, &change(Some(when.clone()))),
            PutWhen::Tagged(_) => self.change(Call::Replace, name, &change(Some(when.clone()))),
        };
        self.send((RequestKind::Put, name), false, (answer, done));
    }

    fn begin_get(&self, name: &str, span: Span, _: Duration, answer: Answer<Got>) {
        let mut is_held = false;
        let got = self.look((Call::Get, RequestKind::Get), name, |server, effect| {
            is_held = effect == Some(Effect::Hold);
            if matches!(span, Span::Whole) {
                server.read_whole.push(name.to_string());
            }
            answer_as(effect, server.read(name, span))
        });
        self.send((RequestKind::Get, name), is_held, (answer, got));
    }

    fn awaited(&self) {
        self.server.awaited();
    }

    fn head(&self, name: &str, _: Duration) -> Answered<ObjectInfo> {
        let len = self.look((Call::Head, RequestKind::Head), name, |server, effect| {
            answer_as(effect, server.find(name).map(|object| object.bytes.len() as u64))
        })?;
        Ok(ObjectInfo { name: name.to_string(), len })
    }

    fn delete(&self, names: &[String], _: Duration) -> Answered<()> {
        let first = names.first().map_or("", String::as_str);
        let change = ObjectChange::Delete { names: names.to_vec() };
        self.change(Call::Delete, first, &change).map(drop)
    }

    fn list(&self, prefix: &str, after: &str, within: Duration) -> Answered<Vec<ObjectInfo>> {
        let objects = self.look(
            (Call::ListObjects, RequestKind::List),
            prefix,
            |server, effect| match effect {
                Some(Effect::LoseAnswer | Effect::CutAfter | Effect::Delay(_)) => Err(late(within)),
                Some(Effect::Stale(requests)) => {
                    let back = usize::try_from(requests).unwrap_or(usize::MAX).max(1);
                    let at = server.history.len().saturating_sub(back);
                    Ok(server.history.get(at).cloned().unwrap_or_default())
                }
                _ => Ok(Arc::clone(&server.objects)),
            },
        )?;
        let asked = objects.iter().filter(|(name, _)| name.starts_with(prefix) && &***name > after);
        let info = |(name, object): (&Arc<str>, &Object)| ObjectInfo {
            name: name.to_string(),
            len: object.bytes.len() as u64,
        };
        Ok(asked.take(LIST_LEN).map(info).collect())
    }
}
