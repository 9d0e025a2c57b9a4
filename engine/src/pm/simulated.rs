//! Simulated persistent memory.
//!
//! The crash model. The media holds lines of 64 bytes. A store changes the line in the cache
//! only. A flush takes the line as it is then; the flush is complete when the thread that issued
//! it fences, and from then on the media holds at least that state of the line. Until then the
//! cache may write any line back at any moment, so after a power cut each line that differs
//! between cache and media is independently either as the last completed flush left it, or as it
//! was in the cache. (That a line can also survive half-way through its stores is the explorer's
//! business.)

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;

use super::LINE;
use super::span::Span;
use crate::os::sim::Survive;

/// A simulated persistent-memory device.
#[derive(Debug)]
pub(crate) struct SimPm(Mutex<State>);

#[derive(Debug)]
struct State {
    media: Vec<u8>,
    cache: Vec<u8>,
    /// Per thread: lines flushed and not yet fenced, as they were at the flush.
    in_flight: HashMap<ThreadId, Vec<(usize, Vec<u8>)>>,
}

impl SimPm {
    /// A device of `len` zero bytes.
    pub(crate) fn new(len: u64) -> Arc<SimPm> {
        SimPm::holding(vec![0; len as usize])
    }

    fn holding(media: Vec<u8>) -> Arc<SimPm> {
        let cache = media.clone();
        Arc::new(SimPm(Mutex::new(State { media, cache, in_flight: HashMap::new() })))
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.lock().media.len() as u64
    }

    /// The device as it comes back after a power cut now.
    pub(crate) fn crash(&self, survive: Survive) -> Arc<SimPm> {
        let state = self.0.lock();
        let mut media = state.media.clone();
        let mut random = survive.stream();
        for (old, new) in media
            .chunks_exact_mut(LINE as usize)
            .zip(state.cache.chunks_exact(LINE as usize))
            .filter(|(old, new)| *old != *new)
        {
            if random.next() {
                old.copy_from_slice(new);
            }
        }
        SimPm::holding(media)
    }

    pub(super) fn read(&self, span: Span) -> Vec<u8> {
        self.0.lock().media[span.at as usize..span.end() as usize].to_vec()
    }

    pub(super) fn store(&self, span: Span, bytes: &[u8]) {
        self.0.lock().cache[span.at as usize..span.end() as usize].copy_from_slice(bytes);
    }

    pub(super) fn flush(&self, span: Span) {
        let mut state = self.0.lock();
        let state = &mut *state;
        let mine = state.in_flight.entry(std::thread::current().id()).or_default();
        let first = (span.at / LINE * LINE) as usize;
        for at in (first..span.end() as usize).step_by(LINE as usize) {
            mine.push((at, state.cache[at..at + LINE as usize].to_vec()));
        }
    }

    pub(super) fn fence(&self) {
        let mut state = self.0.lock();
        let mine = state.in_flight.remove(&std::thread::current().id());
        for (at, line) in mine.into_iter().flatten() {
            state.media[at..at + LINE as usize].copy_from_slice(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfenced_lines_are_lost_and_fenced_ones_stay() {
        let pm = SimPm::new(256);
        let (a, b) = (Span { at: 0, len: 8 }, Span { at: 64, len: 8 });
        pm.store(a, b"fenced..");
        pm.flush(a);
        pm.fence();
        pm.store(b, b"flushed.");
        pm.flush(b);
        let after = pm.crash(Survive::Nothing);
        assert_eq!(after.read(a), b"fenced..");
        assert_eq!(after.read(b), [0; 8]);
        assert_eq!(pm.crash(Survive::Everything).read(b), b"flushed.");
    }
}
