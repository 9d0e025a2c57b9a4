//! Simulated persistent memory.
//!
//! # The crash model
//!
//! The media holds lines of 64 bytes, and changes 8 aligned bytes at a time. A store changes the
//! caches only. From then on the media may take it at any moment, and:
//!
//! 1. Ordinary stores to one line reach the media in program order: after a power cut the line
//!    holds what it held at the last completed flush, and of the stores since then a **prefix**.
//!    What is written with one call counts as stores of its words in ascending order.
//! 2. Lines are independent of each other.
//! 3. A flush takes a line with all stores to it so far. It is complete once the thread that
//!    issued it fences: those stores are then on the media. A fence does nothing for the flushes
//!    of other threads.
//! 4. Streaming stores go past the cache. They need no flush, the next fence of their thread
//!    completes them; until then **any subset** of their words may be on the media.
//! 5. Between stores to the same word the media never goes back.
//!
//! Rule 1 is what x86-64 gives, and what release stores give on Arm, where plain stores to a line
//! may come in any order. With [`arm`](SimPm::arm) on, ordinary stores too survive as any subset
//! of their words. What is safe under `arm` is safe under rule 1.
//!
//! Thread safety: one mutex around everything.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::lines::Lines;
use super::pages::Pages;
use super::power::Power;
use super::seen::ReadLog;
use super::trace::{Event, FilesThen, Recorder, Trace};
use super::{Fate, Survive};
use terrace_os::schedule;

/// A simulated persistent-memory device.
#[derive(Debug)]
pub struct SimPm {
    state: Mutex<State>,
    power: Arc<Power>,
    /// Whether a recording is on, to be asked without the mutex.
    recording: AtomicBool,
    /// The log of what is read.
    reads: OnceLock<ReadLog>,
}

#[derive(Debug)]
struct State {
    lines: Lines,
    /// Words survive on their own.
    arm: bool,
    recorder: Option<Recorder>,
}

impl SimPm {
    /// A device of `len` zero bytes.
    pub(super) fn new(len: u64, power: Arc<Power>) -> Arc<SimPm> {
        SimPm::holding(Lines::durable(Pages::zeros(len as usize)), false, power)
    }

    pub(super) fn holding(lines: Lines, arm: bool, power: Arc<Power>) -> Arc<SimPm> {
        let state = Mutex::new(State { lines, arm, recorder: None });
        let (recording, reads) = (AtomicBool::new(false), OnceLock::new());
        Arc::new(SimPm { state, power, recording, reads })
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a length in bytes")]
    pub fn len(&self) -> u64 {
        self.state.lock().lines.media().len() as u64
    }

    /// Makes the device longer, by zeros.
    #[track_caller]
    pub fn grow(&self, len: u64) {
        let site = Location::caller();
        let event = self.is_recording().then(|| Event::grow(len, site));
        self.with(event, |lines| lines.grow(len as usize));
    }

    /// From now on words survive a cut on their own, as on Arm.
    pub(super) fn arm(&self) {
        self.state.lock().arm = true;
    }

    /// The device as it comes back after a power cut now.
    pub(super) fn crash(&self, survive: Survive, power: Arc<Power>) -> Arc<SimPm> {
        let state = self.state.lock();
        let mut fate = Fate::new(survive);
        let chains = state.lines.chains(state.arm);
        let survive: Vec<usize> = chains.iter().map(|c| fate.choose(c.len() + 1)).collect();
        let media = state.lines.after(&chains, &survive);
        self.like(Lines::durable(media), state.arm, power)
    }

    /// Another device, of which the same reads are noted.
    fn like(&self, lines: Lines, arm: bool, power: Arc<Power>) -> Arc<SimPm> {
        let other = SimPm::holding(lines, arm, power);
        self.reads.get().into_iter().for_each(|log| other.log_reads(log));
        other
    }

    /// Notes what is read from now on; one log at most.
    pub(super) fn log_reads(&self, log: &ReadLog) {
        self.reads.get_or_init(|| log.clone());
    }

    /// Notes that a reader looks at a range.
    pub fn looked_at(&self, at: u64, len: u64) {
        if let Some(log) = self.reads.get() {
            log.note(at, len);
        }
    }

    /// The device as another process finds it after this one died: caches are coherent, and what
    /// was not fenced is not on the media for that.
    pub(super) fn kill(&self, power: Arc<Power>) -> Arc<SimPm> {
        let state = self.state.lock();
        self.like(state.lines.abandoned(), state.arm, power)
    }

    /// Reads what a running thread sees: through the cache.
    pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
        self.looked_at(at, len);
        self.state.lock().lines.cache().bytes(at as usize, len as usize)
    }

    /// The first `len` bytes, looked at.
    pub fn head(&self, len: u64) -> Vec<u8> {
        self.looked_at(0, len);
        self.state.lock().lines.cache().bytes(0, len as usize)
    }

    /// Gives a range to an image of it, in parts, without pages that no store reached: they hold
    /// zeros, as every new image does. That alone is no look at it.
    pub fn copy_to(&self, at: u64, len: u64, image: impl FnMut(usize, &[u8])) {
        let state = self.state.lock();
        let copy = || state.lines.cache().for_each_written(at as usize, len as usize, image);
        // Another task would wait for the lock outside of the scheduler.
        schedule::without_switch(copy);
    }

    /// Stores into the cache.
    #[track_caller]
    pub fn store(&self, at: u64, bytes: &[u8]) {
        self.store_by(at, bytes, false);
    }

    /// Stores past the cache.
    #[track_caller]
    pub fn stream(&self, at: u64, bytes: &[u8]) {
        self.store_by(at, bytes, true);
    }

    #[track_caller]
    fn store_by(&self, at: u64, bytes: &[u8], streamed: bool) {
        let site = Location::caller();
        let event = || Event::store(at, bytes.to_vec(), streamed, site);
        let event = self.is_recording().then(event);
        let thread = std::thread::current().id();
        self.with(event, |lines| lines.store(thread, at, bytes, streamed));
    }

    /// Flushes the lines of a range, as they are now.
    #[track_caller]
    pub fn flush(&self, at: u64, len: u64) {
        let site = Location::caller();
        let event = self.is_recording().then(|| Event::flush(at, len, site));
        let thread = std::thread::current().id();
        self.with(event, |lines| lines.flush(thread, at, len));
    }

    /// Completes the flushes of this thread.
    #[track_caller]
    pub fn fence(&self) {
        self.power.before_step();
        let site = Location::caller();
        let event = self.is_recording().then(|| Event::fence(site));
        let thread = std::thread::current().id();
        self.with(event, |lines| lines.fence(thread));
    }

    /// Notes that something was acknowledged.
    #[track_caller]
    pub(super) fn mark(&self) {
        let site = Location::caller();
        let event = self.is_recording().then(|| Event::mark(site));
        self.with(event, |_| {});
    }

    /// Notes that files are about to change.
    pub(super) fn note(&self, event: Event) {
        self.with(Some(event), |_| {});
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    fn with(&self, event: Option<Event>, change: impl FnOnce(&mut Lines)) {
        let files = event.as_ref().and_then(|_| self.changed_files());
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(recorder), Some(event)) = (&mut state.recorder, event) {
            recorder.add(event, files);
        }
        change(&mut state.lines);
    }

    /// The files, if they have changed since the recorder saw them. Their mutex is taken before
    /// that of the memory everywhere, so not while it is held.
    fn changed_files(&self) -> Option<FilesThen> {
        let seen = self.state.lock().recorder.as_ref().and_then(Recorder::seen);
        self.power.changed_files(seen)
    }

    /// Records every event from now on.
    pub(super) fn record(&self) {
        let mut state = self.state.lock();
        state.recorder = Some(Recorder::new(state.lines.clone(), state.arm));
        self.recording.store(true, Ordering::Relaxed);
    }

    /// What was recorded, to the end.
    pub(super) fn recorded(&self) -> Option<Trace> {
        let files = self.changed_files();
        self.recording.store(false, Ordering::Relaxed);
        Some(self.state.lock().recorder.take()?.finish(files))
    }

    /// Flips bits of a byte on the media and in the cache.
    pub fn corrupt(&self, at: u64, xor: u8) {
        self.state.lock().lines.corrupt(at, xor);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn fates(pm: &SimPm, at: u64, len: u64) -> BTreeSet<Vec<u8>> {
        let found = |seed| pm.crash(Survive::Seeded(seed), Arc::default()).read(at, len);
        (0..400).map(found).collect()
    }

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

    #[test]
    fn a_line_survives_as_a_prefix_of_its_stores() {
        let pm = SimPm::new(64, Arc::default());
        pm.store(8, &[1; 8]);
        pm.store(0, &[2; 8]);
        pm.store(8, &[3; 8]);
        let line = |a: u8, b: u8| [[a; 8], [b; 8]].concat();
        let prefixes = [line(0, 0), line(0, 1), line(2, 1), line(2, 3)];
        assert_eq!(fates(&pm, 0, 16), BTreeSet::from(prefixes));
        pm.arm();
        let words = [0, 2].into_iter().flat_map(|a| [0, 1, 3].map(|b| line(a, b)));
        assert_eq!(fates(&pm, 0, 16), words.collect());
    }

    #[test]
    fn a_flush_takes_the_stores_before_it_and_no_later_ones() {
        let pm = SimPm::new(64, Arc::default());
        pm.store(0, &[1; 8]);
        pm.flush(0, 8);
        pm.store(0, &[2; 8]);
        pm.fence();
        assert_eq!(fates(&pm, 0, 8), BTreeSet::from([vec![1; 8], vec![2; 8]]));
    }

    #[test]
    fn a_fence_is_no_use_to_other_threads() {
        let pm = SimPm::new(64, Arc::default());
        pm.store(0, &[1; 8]);
        pm.flush(0, 8);
        std::thread::scope(|threads| {
            threads.spawn(|| pm.fence());
        });
        assert_eq!(fates(&pm, 0, 8).len(), 2);
        pm.fence();
        assert_eq!(fates(&pm, 0, 8).len(), 1);
    }

    #[test]
    fn streamed_words_survive_on_their_own_and_need_no_flush() {
        let pm = SimPm::new(64, Arc::default());
        pm.stream(0, &[1; 24]);
        assert_eq!(fates(&pm, 0, 24).len(), 8);
        pm.fence();
        assert_eq!(fates(&pm, 0, 24), BTreeSet::from([vec![1; 24]]));
    }

    #[test]
    fn the_media_never_goes_back() {
        let pm = SimPm::new(64, Arc::default());
        pm.store(0, &[1; 8]);
        pm.stream(0, &[2; 8]);
        pm.fence();
        assert_eq!(fates(&pm, 0, 8), BTreeSet::from([vec![2; 8]]));
    }

    #[test]
    fn a_store_that_straddles_words_can_tear() {
        let pm = SimPm::new(64, Arc::default());
        pm.store(4, &[1; 8]);
        let torn =
            [vec![0; 12], [[0; 4], [1; 4], [0; 4]].concat(), [[0; 4], [1; 4], [1; 4]].concat()];
        assert_eq!(fates(&pm, 0, 12), BTreeSet::from(torn));
    }
}
