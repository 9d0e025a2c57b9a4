//! The way of a write to durability, as types: dirty → flushed → fenced → durable, each by move.
//! A step that is left out does not compile, or leaves a value that must be used.
//!
//! On persistent memory, flush and fence do the work and the last step does none. In `file` mode
//! flush and fence do nothing, and the last step is the publisher's write and sync.
//!
//! Flushes, fences, syncs and bytes: this field's units of cost, always counted, by what they
//! were spent on.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::os::sync::atomic::{AtomicU64, Ordering};

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

/// What persistence is spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Anything not named below: creation, opening, closing.
    #[default]
    Other,
    /// Commit groups, with the floor that rides along.
    Commit,
    /// Zones linked to streams, and their release.
    Allocation,
    /// The background's own: merging, draining, cleaning, settling.
    Background,
}

const PURPOSES: usize = 4;

impl Purpose {
    /// All of them, with their names.
    pub(crate) const ALL: [(Purpose, &'static str); PURPOSES] = [
        (Purpose::Commit, "commit"),
        (Purpose::Allocation, "allocation"),
        (Purpose::Background, "background"),
        (Purpose::Other, "other"),
    ];
}

thread_local! {
    /// What this thread is doing.
    static PURPOSE: Cell<Purpose> = const { Cell::new(Purpose::Other) };
}

/// For as long as this lives, what this thread spends counts as spent on one purpose.
#[derive(Debug)]
pub(crate) struct SpentOn {
    before: Purpose,
}

impl SpentOn {
    /// Begins a purpose.
    pub(crate) fn purpose(purpose: Purpose) -> SpentOn {
        SpentOn { before: PURPOSE.replace(purpose) }
    }

    /// Begins a purpose, unless the caller has one of its own.
    pub(crate) fn purpose_if_none(purpose: Purpose) -> SpentOn {
        match PURPOSE.get() {
            Purpose::Other => SpentOn::purpose(purpose),
            callers => SpentOn { before: callers },
        }
    }
}

impl Drop for SpentOn {
    fn drop(&mut self) {
        PURPOSE.set(self.before);
    }
}

/// What was spent.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Spent {
    /// Cache lines flushed.
    pub(crate) flushes: AtomicU64,
    /// Store fences.
    pub(crate) fences: AtomicU64,
    /// Media blocks of 256 bytes that fenced ranges touched.
    pub(crate) blocks: AtomicU64,
    /// Completed syncs of the region's file.
    pub(crate) syncs: AtomicU64,
    /// Bytes written to the region's file; on persistent memory, bytes of fenced ranges.
    pub(crate) bytes: AtomicU64,
}

/// Counters of one region since it was opened.
#[derive(Debug, Default)]
pub(crate) struct PmCounts([Spent; PURPOSES]);

impl PmCounts {
    pub(super) fn add(&self, counter: impl Fn(&Spent) -> &AtomicU64, n: u64) {
        counter(self.on(PURPOSE.get())).fetch_add(n, Ordering::Relaxed);
    }

    /// What was spent in all.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn total(&self, counter: impl Fn(&Spent) -> &AtomicU64) -> u64 {
        self.0.iter().map(|spent| counter(spent).load(Ordering::Relaxed)).sum()
    }

    /// What was spent on one purpose.
    pub(crate) fn on(&self, purpose: Purpose) -> &Spent {
        &self.0[purpose as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_its_own_count_and_purposes_nest() {
        let counts = PmCounts::default();
        let commit = SpentOn::purpose(Purpose::Commit);
        counts.add(|c| &c.fences, 1);
        {
            let _link = SpentOn::purpose(Purpose::Allocation);
            counts.add(|c| &c.fences, 2);
        }
        counts.add(|c| &c.fences, 4);
        drop(commit);
        counts.add(|c| &c.fences, 8);
        {
            let _cleaning = SpentOn::purpose(Purpose::Background);
            let _its_commit = SpentOn::purpose_if_none(Purpose::Commit);
            counts.add(|c| &c.fences, 16);
        }
        {
            let _a_callers = SpentOn::purpose_if_none(Purpose::Commit);
            counts.add(|c| &c.fences, 32);
        }
        counts.add(|c| &c.fences, 64);
        let fences = |purpose| counts.on(purpose).fences.load(Ordering::Relaxed);
        assert_eq!(fences(Purpose::Commit), 5 + 32);
        assert_eq!(fences(Purpose::Allocation), 2);
        assert_eq!(fences(Purpose::Background), 16, "the caller's purpose wins");
        assert_eq!(fences(Purpose::Other), 8 + 64);
    }
}
