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

use super::power::Power;
use super::{Fate, Survive};

/// A cache line.
const LINE: usize = 64;

/// A simulated persistent-memory device.
#[derive(Debug)]
pub(crate) struct SimPm {
    state: Mutex<State>,
    power: Arc<Power>,
}

#[derive(Debug)]
struct State {
    media: Vec<u8>,
    cache: Vec<u8>,
    /// Per thread: lines flushed and not yet fenced, as they were at the flush.
    in_flight: HashMap<ThreadId, Vec<(usize, Vec<u8>)>>,
}

impl SimPm {
    /// A device of `len` zero bytes.
    pub(super) fn new(len: u64, power: Arc<Power>) -> Arc<SimPm> {
        SimPm::holding(vec![0; len as usize], vec![0; len as usize], power)
    }

    fn holding(media: Vec<u8>, cache: Vec<u8>, power: Arc<Power>) -> Arc<SimPm> {
        let state = Mutex::new(State { media, cache, in_flight: HashMap::new() });
        Arc::new(SimPm { state, power })
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.state.lock().media.len() as u64
    }

    /// The device as it comes back after a power cut now.
    pub(super) fn crash(&self, survive: Survive, power: Arc<Power>) -> Arc<SimPm> {
        let state = self.state.lock();
        let mut media = state.media.clone();
        let mut fate = Fate::new(survive);
        for (old, new) in media
            .chunks_exact_mut(LINE)
            .zip(state.cache.chunks_exact(LINE))
            .filter(|(old, new)| *old != *new)
        {
            if fate.choose(2) == 1 {
                old.copy_from_slice(new);
            }
        }
        SimPm::holding(media.clone(), media, power)
    }

    /// The device as another process finds it after this one died: caches are coherent, and what
    /// was not fenced is not on the media for that.
    pub(super) fn kill(&self, power: Arc<Power>) -> Arc<SimPm> {
        let state = self.state.lock();
        SimPm::holding(state.media.clone(), state.cache.clone(), power)
    }

    /// Reads what is there for whoever runs: through the cache.
    pub(crate) fn read(&self, at: u64, len: u64) -> Vec<u8> {
        self.state.lock().cache[range(at, len)].to_vec()
    }

    /// Stores into the cache.
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) {
        self.state.lock().cache[range(at, bytes.len() as u64)].copy_from_slice(bytes);
    }

    /// Flushes the lines of a range, as they are now.
    pub(crate) fn flush(&self, at: u64, len: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mine = state.in_flight.entry(std::thread::current().id()).or_default();
        let range = range(at, len);
        for line in (range.start / LINE * LINE..range.end).step_by(LINE) {
            mine.push((line, state.cache[line..line + LINE].to_vec()));
        }
    }

    /// Completes the flushes of this thread.
    pub(crate) fn fence(&self) {
        self.power.before_step();
        let mut state = self.state.lock();
        let mine = state.in_flight.remove(&std::thread::current().id());
        for (at, line) in mine.into_iter().flatten() {
            state.media[at..at + LINE].copy_from_slice(&line);
        }
    }

    /// Flips bits of a byte on the media and in the cache.
    pub(crate) fn corrupt(&self, at: u64, xor: u8) {
        let mut state = self.state.lock();
        state.media[at as usize] ^= xor;
        state.cache[at as usize] ^= xor;
    }
}

fn range(at: u64, len: u64) -> std::ops::Range<usize> {
    at as usize..(at + len) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfenced_lines_are_lost_and_fenced_ones_stay() {
        let pm = SimPm::new(256, Arc::default());
        pm.store(0, b"fenced..");
        pm.flush(0, 8);
        pm.fence();
        pm.store(64, b"flushed.");
        pm.flush(64, 8);
        let after = pm.crash(Survive::Nothing, Arc::default());
        assert_eq!(after.read(0, 8), b"fenced..");
        assert_eq!(after.read(64, 8), [0; 8]);
        assert_eq!(pm.crash(Survive::Everything, Arc::default()).read(64, 8), b"flushed.");
        assert_eq!(pm.kill(Arc::default()).read(64, 8), b"flushed.", "caches outlive a process");
    }
}
