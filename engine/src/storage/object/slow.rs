//! A store that is as far away as a test or a benchmark says: each request waits for its way, and
//! its bytes take the time that a connection takes. What lies behind it is a store on this machine.
//!
//! Thread safety: every method may be called from any thread. A few threads serve what is due; they
//! end with the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::store::{Answer, Answered, Got, ObjectInfo, ObjectStore, PutWhen, Span, Tag, Waiting};
use crate::base::error::{Error, Result};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::thread::JoinHandle;
use crate::os::time;

const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Waits {
    /// By the time when they are due; the number tells those of one time apart.
    due: BTreeMap<(Instant, u64), Job>,
    added: u64,
    is_over: bool,
}

#[derive(Default)]
struct Line {
    waits: Mutex<Waits>,
    changed: Condvar,
}

impl Line {
    fn add(&self, at: Instant, job: impl FnOnce() + Send + 'static) {
        let mut waits = self.waits.lock();
        waits.added += 1;
        let number = waits.added;
        waits.due.insert((at, number), Box::new(job));
        drop(waits);
        self.changed.notify_one();
    }

    /// Does what is due, until the store is dropped.
    fn serve(&self) {
        let mut waits = self.waits.lock();
        while !waits.is_over {
            let first = waits.due.first_key_value().map(|((at, _), _)| *at);
            match first {
                Some(at) if at <= time::now() => {
                    if let Some((_, job)) = waits.due.pop_first() {
                        drop(waits);
                        job();
                        waits = self.waits.lock();
                    }
                }
                Some(at) => drop(self.changed.wait_until(&mut waits, at)),
                None => self.changed.wait(&mut waits),
            }
        }
    }
}

/// How far away a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distance {
    /// From a request to the first byte of its answer.
    pub(crate) latency: Duration,
    /// Of one connection; each request has one of its own.
    pub(crate) bytes_per_second: u64,
}

impl Distance {
    fn transfer(self, bytes: usize) -> Duration {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second.max(1);
        Duration::from_nanos(nanos)
    }
}

/// A store that is that far away.
pub(crate) struct SlowStore {
    inner: Arc<dyn ObjectStore>,
    distance: Distance,
    line: Arc<Line>,
    threads: Vec<JoinHandle<()>>,
}

impl SlowStore {
    /// `inner`, that far away.
    ///
    /// # Errors
    ///
    /// The system has no more threads.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, distance: Distance) -> Result<SlowStore> {
        let line = Arc::new(Line::default());
        let start = |_| {
            let line = Arc::clone(&line);
            crate::os::thread::Builder::new()
                .name("terrace-distance".into())
                .spawn(move || line.serve())
        };
        let threads = (0..THREADS).map(start).collect::<std::io::Result<Vec<_>>>();
        let threads =
            threads.map_err(|e| Error::io("start a thread for", "a store".as_ref(), e))?;
        Ok(SlowStore { inner, distance, line, threads })
    }

    /// Asks after a request's way.
    fn ask<T: Send + 'static>(
        &self,
        bytes: usize,
        ask: impl FnOnce(&dyn ObjectStore) -> Answered<T> + Send + 'static,
        size: fn(&T) -> usize,
        answer: Answer<T>,
    ) {
        let (inner, line, distance) =
            (Arc::clone(&self.inner), Arc::clone(&self.line), self.distance);
        let at = time::now() + distance.latency + distance.transfer(bytes);
        self.line.add(at, move || {
            let answered = ask(&*inner);
            let transfer = answered.as_ref().map_or(0, size);
            line.add(time::now() + distance.transfer(transfer), move || answer.send(answered));
        });
    }

    fn wait<T: Send + 'static>(
        &self,
        within: Duration,
        ask: impl FnOnce(&dyn ObjectStore) -> Answered<T> + Send + 'static,
    ) -> Answered<T> {
        let waiting = Waiting::default();
        self.ask(0, ask, |_| 0, waiting.answer());
        waiting.next(within).unwrap_or_else(|| Err(super::store::late(within)))
    }
}

impl Drop for SlowStore {
    fn drop(&mut self) {
        self.line.waits.lock().is_over = true;
        self.line.changed.notify_all();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap_or(()));
    }
}

impl fmt::Debug for SlowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowStore").field("distance", &self.distance).finish_non_exhaustive()
    }
}

impl ObjectStore for SlowStore {
    fn address(&self) -> String {
        self.inner.address()
    }

    fn begin_put(
        &self,
        name: &str,
        bytes: &Bytes,
        when: &PutWhen,
        within: Duration,
        answer: Answer<Tag>,
    ) {
        let (name, own, when) = (name.to_string(), bytes.clone(), when.clone());
        let put = move |store: &dyn ObjectStore| store.put(&name, &own, &when, within);
        self.ask(bytes.len(), put, |_| 0, answer);
    }

    fn begin_get(&self, name: &str, span: Span, within: Duration, answer: Answer<Got>) {
        let name = name.to_string();
        let get = move |store: &dyn ObjectStore| store.get(&name, span, within);
        self.ask(0, get, |got| got.bytes.len(), answer);
    }

    fn head(&self, name: &str, within: Duration) -> Answered<ObjectInfo> {
        let name = name.to_string();
        self.wait(within, move |store| store.head(&name, within))
    }

    fn delete(&self, names: &[String], within: Duration) -> Answered<()> {
        let names = names.to_vec();
        self.wait(within, move |store| store.delete(&names, within))
    }

    fn list(&self, prefix: &str, after: &str, within: Duration) -> Answered<Vec<ObjectInfo>> {
        let (prefix, after) = (prefix.to_string(), after.to_string());
        self.wait(within, move |store| store.list(&prefix, &after, within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::object::memory::MemoryServer;

    #[test]
    fn requests_wait_side_by_side() {
        let (latency, within) = (Duration::from_millis(50), Duration::from_secs(10));
        let distance = Distance { latency, bytes_per_second: 100_000_000 };
        let store = SlowStore::new(Arc::new(MemoryServer::new().client()), distance).unwrap();
        let began = Instant::now();
        store.put("a", &vec![7; 1000].into(), &PutWhen::Absent, within).unwrap();
        assert!(began.elapsed() >= latency);
        let began = Instant::now();
        let all: Vec<Waiting<Got>> = (0..100).map(|_| Waiting::default()).collect();
        for waiting in &all {
            let span = Span::Bytes { offset: 10, len: 20 };
            store.begin_get("a", span, within, waiting.answer());
        }
        for waiting in all {
            assert_eq!(waiting.next(within).unwrap().unwrap().bytes, [7; 20]);
        }
        let took = began.elapsed();
        assert!(took >= latency && took < 20 * latency, "{took:?}");
    }
}
