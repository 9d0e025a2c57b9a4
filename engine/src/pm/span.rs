//! The way of a write to durability, as types: dirty → flushed → fenced → durable, each by move.
//! A step that is left out does not compile, or leaves a value that must be used.
//!
//! On persistent memory, flush and fence do the work and the last step does none. In `file` mode
//! flush and fence do nothing, and the last step is the publisher's write and sync.

use smallvec::SmallVec;

/// A range of bytes of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Offset of the first byte.
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

impl Span {
    /// The offset after the last byte.
    pub(crate) fn end(self) -> u64 {
        self.at + self.len
    }

    /// Whether it has the byte at `at`.
    pub(crate) fn contains(self, at: u64) -> bool {
        (self.at..self.end()).contains(&at)
    }
}

/// Stored, perhaps still in the processor's cache.
#[must_use = "a store that is never flushed is lost in a power cut"]
#[derive(Debug)]
pub(crate) struct Dirty {
    pub(super) span: Span,
    /// Stored past the cache: there is nothing to flush.
    pub(super) streamed: bool,
}

impl Dirty {
    /// Where it was stored.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Two stores to one line, as one.
    #[expect(clippy::needless_pass_by_value, reason = "a typestate is used up by its step")]
    pub(crate) fn join(self, other: Dirty) -> Dirty {
        let (a, b) = (self.span, other.span);
        debug_assert!(!self.streamed && !other.streamed, "streamed stores are not flushed");
        let at = a.at.min(b.at);
        Dirty { span: Span { at, len: a.end().max(b.end()) - at }, streamed: false }
    }
}

/// Flushed, and perhaps not on the media yet.
#[must_use = "a flush that is never fenced may not have happened"]
#[derive(Debug)]
pub(crate) struct Flushed(pub(super) Span);

/// Ordered before everything the same thread stores later. On persistent memory this is durable.
#[must_use = "in file mode, fenced bytes still have to be synced"]
#[derive(Debug, Default)]
pub(crate) struct Fenced(pub(super) SmallVec<[Span; 4]>);

impl Fenced {
    /// The ranges, for [`Fenced::carried`].
    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }

    /// Puts ranges together again that were taken out of others of this kind, and were carried
    /// from the thread that fenced them to the one that makes them durable.
    pub(crate) fn carried(spans: impl IntoIterator<Item = Span>) -> Fenced {
        Fenced(spans.into_iter().collect())
    }
}

/// Proof that a run of bytes is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable(pub(super) ());
