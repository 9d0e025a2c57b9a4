//! How a tree writes: word by word, a line flushed when the writer leaves it. The region is
//! persistent memory, so what is fenced is durable.

use smallvec::SmallVec;

use crate::os::sync::optimistic::step;
use crate::pm::{Dirty, Flushed, LINE, Region};

/// Collects the stores of one operation on their way to durability.
#[derive(Debug)]
pub(crate) struct NodeWriter<'a> {
    region: &'a Region,
    /// The line that was stored to last.
    wet: Option<(u64, Dirty)>,
    flushed: SmallVec<[Flushed; 6]>,
}

impl<'a> NodeWriter<'a> {
    pub(crate) fn new(region: &'a Region) -> NodeWriter<'a> {
        NodeWriter { region, wet: None, flushed: SmallVec::new() }
    }

    /// Stores a word. The line of the word before is flushed if it is another one.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn set(&mut self, at: u64, value: u64) {
        if self.wet.as_ref().is_some_and(|(line, _)| *line != at / LINE) {
            self.flush();
        }
        step();
        let dirty = self.region.store_word(at, value);
        self.wet = Some(match self.wet.take() {
            Some((line, before)) => (line, before.join(dirty)),
            None => (at / LINE, dirty),
        });
    }

    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    fn flush(&mut self) {
        if let Some((_, dirty)) = self.wet.take() {
            self.flushed.push(self.region.flush(dirty));
        }
    }

    /// Flushes what was stored beside the words.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn also(&mut self, dirty: Dirty) {
        self.flushed.push(self.region.flush(dirty));
    }

    /// Makes durable what was stored, before what will be.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn fence(&mut self) {
        self.flush();
        if !self.flushed.is_empty() {
            // Nothing is left to sync: there is no file.
            drop(self.region.fence(self.flushed.drain(..)));
        }
    }

    /// Leaves the last line to the cache: a planted bug.
    pub(crate) fn leave(&mut self) {
        self.wet = None;
    }
}

impl Drop for NodeWriter<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.wet.is_none() && self.flushed.is_empty() || std::thread::panicking(),
            "what was stored was also fenced"
        );
    }
}
