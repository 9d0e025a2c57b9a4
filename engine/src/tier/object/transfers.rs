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
use crate::error::Result;
use crate::memory::{Gauge, Holding};

/// So many requests at a time.
const MOST: usize = 8;

/// So many bytes of them.
pub(crate) const MOST_BYTES: u64 = 32 << 20;

/// Requests that were begun, the oldest first.
#[derive(Debug)]
pub(crate) struct Transfers<T> {
    begun: VecDeque<(u64, T)>,
    bytes: u64,
    most: u64,
}

impl<T> Default for Transfers<T> {
    fn default() -> Transfers<T> {
        Transfers { begun: VecDeque::new(), bytes: 0, most: MOST_BYTES }
    }
}

impl<T> Transfers<T> {
    /// Whether one of `len` bytes may begin now.
    pub(crate) fn has_room_for(&self, len: u64) -> bool {
        let fits = self.begun.len() < MOST && self.bytes + len <= self.most;
        fits || self.begun.is_empty()
    }

    pub(crate) fn add(&mut self, len: u64, request: T) {
        debug_assert!(self.has_room_for(len), "requests have a bound (invariant 1)");
        self.begun.push_back((len, request));
        self.bytes += len;
    }

    /// The oldest one, whose answer comes next.
    pub(crate) fn oldest(&mut self) -> Option<T> {
        let (len, request) = self.begun.pop_front()?;
        self.bytes -= len;
        Some(request)
    }
}

/// An object on its way to the store.
#[derive(Debug)]
struct SendingObject<K> {
    key: K,
    name: String,
    bytes: Vec<u8>,
    request: ObjectWrite,
    /// Counts the bytes.
    _held: Holding,
}

/// New objects of one job on their way to the store. Each goes by a key of the job's.
#[derive(Debug)]
pub(crate) struct Sends<K> {
    client: Arc<Client>,
    gauge: Arc<Gauge>,
    under_way: Transfers<SendingObject<K>>,
    /// Those of which the request failed.
    failed: Vec<K>,
}

impl<K> Sends<K> {
    /// Nothing is under way yet. The gauge counts the bytes of an object until its answer is there;
    /// with it comes the most that is under way.
    pub(crate) fn new(client: &Arc<Client>, (gauge, most): (&Arc<Gauge>, u64)) -> Sends<K> {
        let (client, gauge) = (Arc::clone(client), Arc::clone(gauge));
        let under_way = Transfers { most: most.min(MOST_BYTES), ..Transfers::default() };
        Sends { client, gauge, under_way, failed: Vec::new() }
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
        let len = bytes.len() as u64;
        while !self.under_way.has_room_for(len) {
            self.finish_oldest(&mut arrived)?;
        }
        let request = self.client.begin_put(&name, &bytes);
        let _held = self.gauge.hold(len);
        self.under_way.add(len, SendingObject { key, name, bytes, request, _held });
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
        let Some(SendingObject { key, name, bytes, request, _held }) = self.under_way.oldest()
        else {
            return Ok(false);
        };
        let sent = request.finish(&self.client, &bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::object::client::Patience;
    use crate::tier::object::clock::StepTimer;
    use crate::tier::object::memory::MemoryServer;

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
