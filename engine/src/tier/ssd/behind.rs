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
//! 1. The threads end once the store is dropped, with what they read then.
//! 2. Who drops a [`Reading`] has no part in it any more: the bytes go where they came, and what is
//!    in that place by then is nobody's matter.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{ExtentFile, ExtentStore, Location};
use crate::error::Result;

/// As many reads at a time as there are threads.
const THREADS: usize = 4;

/// Bytes of an extent that are on their way.
#[derive(Debug)]
pub(crate) struct Reading {
    at: Location,
    offset: u32,
    len: u32,
    answer: Receiver<io::Result<Vec<u8>>>,
}

impl Reading {
    /// Where in the extent they begin, and how many they are.
    pub(crate) fn range(&self) -> (u32, u32) {
        (self.offset, self.len)
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
        // Whoever asked may have gone.
        self.answer.send(bytes).unwrap_or(());
    }
}

/// The queue of those who read behind, once there was something to read. Dropping it ends them;
/// nobody waits for that, least of all a forked child, which has no such threads.
#[derive(Debug, Default)]
pub(super) struct Behind(OnceLock<Option<Sender<Request>>>);

/// Starts the threads; `None` where the system has no more: then everybody reads for himself.
fn start() -> Option<Sender<Request>> {
    let (queue, requests) = channel();
    let requests = Arc::new(Mutex::new(requests));
    for n in 1..=THREADS {
        let requests = Arc::clone(&requests);
        let named = std::thread::Builder::new().name(format!("terrace-read-{n}"));
        named.spawn(move || serve_all(&requests)).ok()?;
    }
    Some(queue)
}

/// Serves one request after the other, until nobody can make any.
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
        let queue = self.behind.0.get_or_init(start).as_ref()?;
        let file = self.handles.read().get(&at.file).map(Arc::clone)?;
        let (answer, receiver) = sync_channel(1);
        let from = at.offset + u64::from(offset);
        let request = Request { file, offset: from, len: len as usize, answer };
        queue.send(request).ok()?;
        Some(Reading { at: *at, offset, len, answer: receiver })
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    ///
    /// As [`read`](ExtentStore::read).
    pub(crate) fn end_read(&self, reading: Reading) -> Result<Vec<u8>> {
        let Reading { at, offset, len, answer } = reading;
        let found = answer.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)));
        self.was_read(&at, (offset, len), found)
    }
}

#[cfg(test)]
mod tests;
