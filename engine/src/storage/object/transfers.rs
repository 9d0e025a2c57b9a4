//! Requests of one job that are under way side by side: objects that it reads or sends.
//!
//! A request to a bucket takes tens of milliseconds, however little it carries, and one connection
//! carries a part of what the network does. So a few requests are begun before the answer of the
//! first one is waited for. Answers are taken in the order in which the requests were begun.
//!
//! Thread safety: none of its own; each belongs to the job that began its requests. So no job takes
//! another one's answer, and no job's failure is another one's.
//!
//! Invariants:
//!
//! 1. At most `MOST` requests are under way, with at most `MOST_BYTES` in all, or what a memory
//!    limit leaves a job; one alone may have more.
//! 2. An object counts as sent only once [`Sends::finish`] has its answer.

use std::collections::VecDeque;
use std::sync::Arc;

use super::client::{Client, ObjectWrite};
use super::name::ObjectId;
use super::tier::ObjectTier;
use crate::base::error::Result;
use crate::base::memory::{Gauge, Holding};
use crate::storage::location::Location;

/// So many requests at a time.
const MOST: usize = 8;

/// So many bytes of them.
pub(crate) const MOST_BYTES: u64 = 32 << 20;

/// Requests that were begun, the oldest first.
#[derive(Debug)]
pub(crate) struct Transfers<T> {
    begun: VecDeque<(Holding, T)>,
    gauge: Arc<Gauge>,
    bytes: u64,
    most: u64,
}

impl<T> Transfers<T> {
    /// Nothing is under way yet. The gauge counts the bytes of each request from its begin on; with
    /// it comes the most that is under way.
    pub(crate) fn new((gauge, most): (&Arc<Gauge>, u64)) -> Transfers<T> {
        let (begun, gauge, most) = (VecDeque::new(), Arc::clone(gauge), most.min(MOST_BYTES));
        Transfers { begun, gauge, bytes: 0, most }
    }

    /// Whether one of `len` bytes may begin now.
    pub(crate) fn has_room_for(&self, len: u64) -> bool {
        let fits = self.begun.len() < MOST && self.bytes + len <= self.most;
        fits || self.begun.is_empty()
    }

    pub(crate) fn add(&mut self, len: u64, request: T) {
        debug_assert!(self.has_room_for(len), "requests have a bound (invariant 1)");
        self.begun.push_back((self.gauge.hold(len), request));
        self.bytes += len;
    }

    /// The oldest one, whose answer comes next. The caller keeps what counts its bytes for as long
    /// as it has them.
    pub(crate) fn oldest(&mut self) -> Option<(Holding, T)> {
        let (held, request) = self.begun.pop_front()?;
        self.bytes -= held.bytes();
        Some((held, request))
    }
}

/// An object on its way to the store.
#[derive(Debug)]
struct SendingObject<K> {
    key: K,
    name: String,
    request: ObjectWrite,
}

/// New objects of one job on their way to the store. Each goes by a key of the job's.
#[derive(Debug)]
pub(crate) struct Sends<K> {
    client: Arc<Client>,
    under_way: Transfers<SendingObject<K>>,
    /// Those of which the request failed.
    failed: Vec<K>,
}

impl<K> Sends<K> {
    /// Nothing is under way yet. The gauge counts the bytes of an object until its answer is there;
    /// with it comes the most that is under way.
    pub(crate) fn new(client: &Arc<Client>, within: (&Arc<Gauge>, u64)) -> Sends<K> {
        let (client, under_way) = (Arc::clone(client), Transfers::new(within));
        Sends { client, under_way, failed: Vec::new() }
    }

    /// Begins to send an object, under a name that is used once. It may wait for earlier ones;
    /// `arrived` is told of those that the store has acknowledged.
    ///
    /// # Errors
    ///
    /// As [`Sends::finish`], of an earlier object; this one is not begun then.
    pub(crate) fn send(
        &mut self,
        (key, name): (K, String),
        bytes: Vec<u8>,
        mut arrived: impl FnMut(&K, &[u8]),
    ) -> Result<()> {
        // The store shares them as they are, with the room behind them.
        let memory = bytes.capacity() as u64;
        while !self.under_way.has_room_for(memory) {
            self.finish_oldest(&mut arrived)?;
        }
        let request = self.client.begin_put(&name, bytes.into());
        self.under_way.add(memory, SendingObject { key, name, request });
        Ok(())
    }

    /// Waits until the store has all of them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer; the message names the object.
    pub(crate) fn finish(&mut self, mut arrived: impl FnMut(&K, &[u8])) -> Result<()> {
        while self.finish_oldest(&mut arrived)? {}
        Ok(())
    }

    /// Waits for the oldest one; whether there was one.
    fn finish_oldest(&mut self, arrived: &mut impl FnMut(&K, &[u8])) -> Result<bool> {
        let Some((_held, oldest)) = self.under_way.oldest() else { return Ok(false) };
        let SendingObject { key, name, request } = oldest;
        let bytes = request.bytes().clone();
        let sent = request.finish(&self.client);
        match self.client.told("write", &name, sent) {
            Ok(()) => arrived(&key, &bytes),
            Err(error) => {
                self.failed.push(key);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Ends sending: the objects that the store may lack.
    pub(crate) fn into_unsent(self) -> impl Iterator<Item = K> {
        let begun = self.under_way.begun.into_iter().map(|(_, sending)| sending.key);
        self.failed.into_iter().chain(begun)
    }
}

/// Where a job puts extents: into space that was reserved for it, or into an object store.
pub(crate) trait ExtentSink {
    /// Writes an extent, or a value extent, of this id: where it is. Of an object it begins to send
    /// the bytes, and may wait for earlier ones.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; an earlier object could not be sent; or this one cannot have a
    /// name.
    fn put(&mut self, extent: u64, bytes: &[u8]) -> Result<Location>;
}

/// Objects of the database that one job sends. An edit may name them once
/// [`finish`](Uploads::finish) has returned.
#[derive(Debug)]
pub(crate) struct Uploads {
    tier: Arc<ObjectTier>,
    sends: Sends<ObjectId>,
    /// Whether there was one.
    has_sent: bool,
}

impl Uploads {
    /// Waits until the store has acknowledged all of them, and looks whether the fence is still
    /// this writer's.
    ///
    /// # Errors
    ///
    /// The store did not acknowledge one in time; `Fenced` if another writer has the store.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Uploads { tier, sends, has_sent } = &mut self;
        if !tier.planted().unacknowledged {
            sends.finish(|id, bytes| tier.acknowledged(*id, bytes))?;
        }
        if *has_sent { tier.confirm() } else { Ok(()) }
    }
}

impl ExtentSink for Uploads {
    fn put(&mut self, extent: u64, bytes: &[u8]) -> Result<Location> {
        let len = Location::len_of(bytes)?;
        let Uploads { tier, sends, has_sent } = self;
        let id = tier.reserve(extent)?;
        *has_sent = true;
        let arrived = |id: &ObjectId, bytes: &[u8]| tier.acknowledged(*id, bytes);
        let sent = sends.send((id, tier.name(id)), bytes.to_vec(), arrived);
        sent.inspect_err(|_| tier.release(id))?;
        Ok(Location::of_object(id, len))
    }
}

impl ObjectTier {
    /// What a job sends its objects with, within what it may have under way.
    pub(crate) fn uploads(self: &Arc<Self>, within: (&Arc<Gauge>, u64)) -> Uploads {
        let sends = Sends::new(self.client(), within);
        Uploads { tier: Arc::clone(self), sends, has_sent: false }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::storage::object::client::Patience;
    use crate::storage::object::clock::StepTimer;
    use crate::storage::object::memory::MemoryServer;
    use crate::storage::object::store::{
        Answer, Answered, Got, ObjectInfo, ObjectStore, PutWhen, Span, Tag, late,
    };

    /// Keeps what it is to write until it is dropped, and answers nothing.
    #[derive(Debug, Default)]
    struct KeepingStore(parking_lot::Mutex<Vec<(Bytes, Answer<Tag>)>>);

    impl ObjectStore for KeepingStore {
        fn address(&self) -> String {
            "keeps:".to_string()
        }

        fn begin_put(&self, _: &str, bytes: &Bytes, _: &PutWhen, _: Duration, answer: Answer<Tag>) {
            self.0.lock().push((bytes.clone(), answer));
        }

        fn begin_get(&self, _: &str, _: Span, _: Duration, _: Answer<Got>) {}

        fn head(&self, _: &str, within: Duration) -> Answered<ObjectInfo> {
            Err(late(within))
        }

        fn delete(&self, _: &[String], within: Duration) -> Answered<()> {
            Err(late(within))
        }

        fn list(&self, _: &str, _: &str, within: Duration) -> Answered<Vec<ObjectInfo>> {
            Err(late(within))
        }
    }

    /// Bug: an extent took its memory twice while it was sent, and one of the two was counted.
    /// Cause: the job kept its bytes for another attempt, and the store had a copy. Fix: they share
    /// them.
    #[test]
    fn what_is_sent_is_in_memory_once() {
        let (store, timer) = (Arc::new(KeepingStore::default()), Arc::new(StepTimer::default()));
        let client = Arc::new(Client::new(Arc::clone(&store) as _, timer, Patience::default()));
        let gauge = Arc::new(Gauge::default());
        let mut sends = Sends::new(&client, (&gauge, u64::MAX));
        let lens = [3 << 20, 1, 0, 2 << 20];
        let kept: Vec<*const u8> = lens
            .iter()
            .map(|&len| {
                // Room behind the bytes is no reason to copy them.
                let mut bytes = Vec::with_capacity(len + 100);
                bytes.resize(len, 7);
                let at = bytes.as_ptr();
                sends.send(((), format!("a/{len}")), bytes, |(), _| ()).unwrap();
                at
            })
            .collect();
        let with_store = store.0.lock();
        for (((bytes, _), at), len) in with_store.iter().zip(&kept).zip(lens) {
            assert_eq!(bytes.len(), len);
            assert!(len == 0 || bytes.as_ptr() == *at, "the store copied {len} bytes");
        }
        let room = lens.map(|len| len + 100);
        assert_eq!(gauge.bytes(), room.iter().sum::<usize>() as u64, "with the room behind them");
    }

    /// Bug: what was on its way took more memory than a job may have. Cause: the bytes of an object
    /// counted, and not what was allocated for them. Fix: that counts, and has the bound.
    #[test]
    fn what_is_allocated_for_what_is_sent_has_the_bound() {
        let (store, timer) = (Arc::new(KeepingStore::default()), Arc::new(StepTimer::default()));
        let client = Arc::new(Client::new(Arc::clone(&store) as _, timer, Patience::default()));
        let gauge = Arc::new(Gauge::default());
        let mut sends = Sends::new(&client, (&gauge, 3 << 20));
        let object = || Vec::with_capacity(1 << 20);
        for n in 0..3 {
            sends.send(((), format!("a/{n}")), object(), |(), _| ()).unwrap();
        }
        assert_eq!(gauge.bytes(), 3 << 20);
        assert!(!sends.under_way.has_room_for(1), "three that are empty take all");
    }

    /// Bug: under a memory limit a job that wrote objects held up to 32 MiB beside its share.
    /// Cause: what is on its way had a bound of its own. Fix: that bound is a part of the limit.
    #[test]
    fn what_is_on_its_way_has_the_bound_of_the_limit() {
        for (most, object, expected) in [
            (3 << 20, 1 << 20, 3 << 20),
            (1 << 20, 3 << 20, 3 << 20),
            (u64::MAX, 5 << 20, 30 << 20),
        ] {
            let (server, timer) = (MemoryServer::new(), Arc::new(StepTimer::default()));
            let client = Client::new(Arc::new(server.client()), timer, Patience::default());
            let (client, gauge) = (Arc::new(client), Arc::new(Gauge::default()));
            let mut sends = Sends::new(&client, (&gauge, most));
            let mut held = 0;
            for n in 0..10 {
                sends.send(((), format!("a/{n}")), vec![n; object], |(), _| ()).unwrap();
                held = held.max(gauge.bytes());
            }
            assert_eq!(held, expected);
            sends.finish(|(), _| ()).unwrap();
            assert_eq!((gauge.bytes(), server.content().len()), (0, 10));
        }
    }
}
