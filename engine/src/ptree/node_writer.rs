//! How a tree writes: word by word, a line flushed when the writer leaves it. A file is sent the
//! whole node that a line is of, so that what was cleared in it before goes along, in the one
//! sector that both lie in.

use smallvec::SmallVec;

use super::node::NODE;
use crate::error::Result;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::optimistic::step;
use crate::pm::{Dirty, Fenced, Flushed, LINE, Region, Span};

/// Collects the stores of one operation on their way to durability.
#[derive(Debug)]
pub(crate) struct NodeWriter<'a> {
    region: &'a Region,
    /// Counts the lines.
    lines: &'a AtomicU64,
    /// The line that was stored to last.
    wet: Option<(u64, Dirty)>,
    flushed: SmallVec<[Flushed; 6]>,
    fenced: Fenced,
}

impl<'a> NodeWriter<'a> {
    pub(crate) fn new(region: &'a Region, lines: &'a AtomicU64) -> NodeWriter<'a> {
        NodeWriter { region, lines, wet: None, flushed: SmallVec::new(), fenced: Fenced::default() }
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
        if let Some((line, mut dirty)) = self.wet.take() {
            self.lines.fetch_add(1, Ordering::Relaxed);
            if !self.region.is_persistent_memory() {
                let node = Span { at: line * LINE / NODE * NODE, len: NODE };
                dirty = dirty.join(self.region.rewrite(node));
            }
            self.flushed.push(self.region.flush(dirty));
        }
    }

    /// Flushes what another thread stored, without counting it as the tree's.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn also(&mut self, dirty: Dirty) {
        self.flushed.push(self.region.flush(dirty));
    }

    /// Orders what was stored before what will be, within one node. In `file` mode that takes
    /// nothing: a node lies in one sector.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn order(&mut self) {
        self.flush();
        if !self.flushed.is_empty() {
            self.fenced.absorb(self.region.fence(self.flushed.drain(..)));
        }
    }

    /// Leaves the last line to the cache: a planted bug.
    pub(crate) fn leave(&mut self) {
        self.wet = None;
    }

    /// Makes durable what was stored.
    ///
    /// # Errors
    ///
    /// As [`Region::sync`].
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn persist(&mut self) -> Result<()> {
        self.order();
        if !self.fenced.is_empty() {
            self.region.sync(&std::mem::take(&mut self.fenced))?;
        }
        Ok(())
    }
}

impl Drop for NodeWriter<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.wet.is_none() && self.flushed.is_empty() || std::thread::panicking(),
            "what was stored was also ordered"
        );
    }
}
