//! Reads that are made meanwhile: threads of the store read what a job or a long range is about to
//! come to, while it works on what it has. Else either the processor or the device has nothing to
//! do, and the device never has more than one read.
//!
//! A store reads behind only if it was asked to: where jobs are stepped, everything happens in the
//! order of their steps.
//!
//! Thread safety: a queue that any thread may put reads into, and the store's threads take from.
//! The threads know files and none of the store, so it never is one of them that drops it.
//!
//! Invariants:
//!
//! 1. The threads have ended when the database is closed. Of a store that is dropped without that
//!    they end with what they read then.
//! 2. A caller that drops a [`Reading`] does not get its bytes. The read still ends, and its bytes
//!    are dropped: no later read of that place gets them.

use std::io;
use std::sync::Arc;

use super::{ExtentFile, ExtentStore, Location};
use crate::base::error::{Error, Result};
use crate::base::operations::{self, note};
use crate::os::sync::atomic::Ordering;
use crate::os::sync::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
use crate::os::sync::locks::Mutex;
use crate::os::thread::JoinHandle;
use crate::storage::object::Fetch;

/// As many reads at a time as there are threads.
const THREADS: usize = 4;

/// Bytes of an extent that are on their way.
#[derive(Debug)]
pub(crate) struct Reading {
    at: Location,
    offset: u32,
    len: u32,
    source: Source,
}

/// Where they come from.
#[derive(Debug)]
enum Source {
    File(Receiver<io::Result<Vec<u8>>>),
    Object(Box<Fetch>),
}

impl Reading {
    /// Where in the extent they begin, and how many they are.
    pub(crate) fn range(&self) -> (u32, u32) {
        (self.offset, self.len)
    }

    /// Whether it takes no request, or has been waited for.
    pub(crate) fn is_here(&self) -> bool {
        matches!(&self.source, Source::Object(fetch) if matches!(**fetch, Fetch::Here(_)))
    }
}

#[derive(Debug)]
pub(super) struct Request {
    file: Arc<ExtentFile>,
    offset: u64,
    len: usize,
    answer: SyncSender<io::Result<Vec<u8>>>,
}

impl Request {
    fn serve(self) {
        let bytes = self.file.handle.read_vec(self.offset, self.len);
        // The caller may have dropped its [`Reading`].
        self.answer.send(bytes).unwrap_or(());
    }
}

/// The threads that read behind, once there was something to read. A forked child has none of them.
#[derive(Debug, Default)]
pub(super) struct Behind(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Reading {
        queue: Sender<Request>,
        threads: Vec<JoinHandle<()>>,
    },
    /// The system has no more threads, or the database was closed: the caller reads by itself.
    Off,
}

impl Behind {
    /// Puts a read into the queue, and starts the threads at the first; whether it will be served.
    fn send(&self, request: Request) -> bool {
        let mut state = self.0.lock();
        if matches!(*state, State::Idle) {
            *state = start().unwrap_or(State::Off);
        }
        match &*state {
            State::Reading { queue, .. } => queue.send(request).is_ok(),
            State::Idle | State::Off => false,
        }
    }

    /// Ends the threads, and waits until they have ended. What was begun is read before that.
    fn stop(&self) {
        let state = std::mem::replace(&mut *self.0.lock(), State::Off);
        if let State::Reading { queue, threads } = state {
            drop(queue);
            // A thread that panicked has ended too; the reader that waited for it has an error.
            threads.into_iter().for_each(|thread| thread.join().unwrap_or(()));
        }
    }
}

/// Starts the threads; `None` where the system has no more.
fn start() -> Option<State> {
    let (queue, requests) = channel();
    let requests = Arc::new(Mutex::new(requests));
    let mut threads = Vec::with_capacity(THREADS);
    for n in 1..=THREADS {
        let requests = Arc::clone(&requests);
        let named = crate::os::thread::Builder::new().name(format!("terrace-read-{n}"));
        threads.push(named.spawn(move || serve_all(&requests)).ok()?);
    }
    Some(State::Reading { queue, threads })
}

/// Serves one request after the other, until no sender is left.
fn serve_all(requests: &Mutex<Receiver<Request>>) {
    loop {
        let next = requests.lock().recv();
        let Ok(request) = next else { return };
        request.serve();
    }
}

impl ExtentStore {
    /// Has what jobs and long ranges are about to come to be read meanwhile.
    pub(crate) fn go_behind(&self) {
        self.reads_behind.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(crate) fn reads_behind(&self) -> bool {
        self.reads_behind.load(Ordering::Relaxed)
    }

    /// Begins to read `len` bytes from `offset` of an extent; `None` if the caller has to read them
    /// when it needs them.
    pub(crate) fn begin_read(&self, at: &Location, offset: u32, len: u32) -> Option<Reading> {
        if !self.reads_behind() || u64::from(offset) + u64::from(len) > u64::from(at.len) {
            return None;
        }
        if let Some(id) = at.object() {
            let fetch = self.objects()?.begin_read(id, at.len, (offset, len));
            return Some(Reading { at: *at, offset, len, source: Source::Object(Box::new(fetch)) });
        }
        let file = self.handles.read().get(&at.file).map(Arc::clone)?;
        let (answer, receiver) = sync_channel(1);
        let from = at.offset + u64::from(offset);
        let request = Request { file, offset: from, len: len as usize, answer };
        let is_sent = self.behind.send(request);
        is_sent.then_some(Reading { at: *at, offset, len, source: Source::File(receiver) })
    }

    /// Asks an object store for `len` bytes from `offset` of an extent.
    ///
    /// # Errors
    ///
    /// `Invalid` if no store was named; `Corrupt` for a place in a file.
    pub(crate) fn ask(&self, at: &Location, offset: u32, len: u32) -> Result<Reading> {
        let Some(id) = at.object() else {
            return Err(self.no_object(at, offset));
        };
        let fetch = self.tier(id)?.begin_read(id, at.len, (offset, len));
        Ok(Reading { at: *at, offset, len, source: Source::Object(Box::new(fetch)) })
    }

    /// Waits for what was begun of an object, and keeps it for [`end_read`](ExtentStore::end_read).
    ///
    /// # Errors
    ///
    /// As [`read`](ExtentStore::read).
    pub(crate) fn fetch(&self, reading: Reading) -> Result<Reading> {
        let Reading { at, offset, len, .. } = reading;
        let bytes = self.end_read(reading)?;
        Ok(Reading { at, offset, len, source: Source::Object(Box::new(Fetch::Here(bytes))) })
    }

    /// Ends the threads that read behind: the database is closed.
    pub(crate) fn stop_behind(&self) {
        self.behind.stop();
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    ///
    /// As [`read`](ExtentStore::read).
    pub(crate) fn end_read(&self, reading: Reading) -> Result<Vec<u8>> {
        note(|spent| spent.count_read(reading.len));
        operations::wait(|spent| &mut spent.reading, || self.end_read_now(reading))
    }

    fn end_read_now(&self, reading: Reading) -> Result<Vec<u8>> {
        let Reading { at, offset, len, source } = reading;
        let found = match (source, at.object()) {
            (Source::Object(fetch), Some(id)) => self.tier(id)?.finish_read(*fetch),
            (Source::Object(_), None) => Err(self.no_object(&at, offset)),
            (Source::File(answer), _) => {
                let found = answer.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)));
                self.was_read(&at, (offset, len), found)
            }
        };
        self.of_this_opening(found)
    }

    fn no_object(&self, at: &Location, offset: u32) -> Error {
        self.corrupt(at, offset, "an object".into(), "a place in a file".into())
    }
}

#[cfg(test)]
mod tests;
