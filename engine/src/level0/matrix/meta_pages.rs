//! Which pages of a row table's array and keys are in use. They come free column by column, as its
//! pages of values do.
//!
//! A page of the array goes in four steps: all of its entries are gone; D covers what lies between
//! its fences; the spans that searches go by leave it out; and no reader from before is left.
//!
//! Thread safety: readers load the spans without a lock, with an epoch pinned. A mutex is held by
//! the thread that takes pages out of them.
//!
//! Invariants:
//!
//! 1. An entry outside of the spans is gone.
//! 2. A page of keys is in use as long as a page of the array is whose entries have a key there. So
//!    a search may look at the key of each entry in the spans.
//! 3. A page goes once.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::Guard;

use super::layout::ENTRIES;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::ArcSwap;

/// The pages of the array and of keys of one row table, by their places in its directory.
#[derive(Debug)]
pub(super) struct MetaPages {
    entries: u32,
    /// Some page of the array is gone. As long as none is, all entries can be read.
    has_gaps: AtomicBool,
    /// Entries in pages that are in use: ascending, and with a gap between two.
    spans: ArcSwap<Vec<Range<u32>>>,
    users: Mutex<Users>,
}

#[derive(Debug)]
struct Users {
    /// Per page of the array: whether it is gone.
    is_gone: Vec<bool>,
    /// Per page of keys: pages of the array in use whose entries have a key there.
    of_keys: Vec<u32>,
}

/// Pages that are gone, or in use, by their places among those of the array and of keys.
#[derive(Debug, Default)]
pub(super) struct MetaPageList {
    pub(super) array: Vec<usize>,
    pub(super) keys: Vec<usize>,
}

/// The entries of a row table that can be read, at some moment. They can be read as long as the
/// epoch of that moment is pinned.
pub(super) enum Readable {
    All(Range<u32>),
    Spans(Guard<Arc<Vec<Range<u32>>>>),
}

impl Readable {
    /// Them, ascending.
    pub(super) fn spans(&self) -> &[Range<u32>] {
        match self {
            Readable::All(all) => std::slice::from_ref(all),
            Readable::Spans(spans) => spans,
        }
    }

    /// The last entry before `n`.
    pub(super) fn before(&self, n: u32) -> Option<u32> {
        let last = self.spans().iter().rev().find(|span| span.start < n)?;
        (!last.is_empty()).then(|| last.end.min(n) - 1)
    }

    /// The first entry from `n` on.
    pub(super) fn from(&self, n: u32) -> Option<u32> {
        self.spans().iter().find(|span| span.end > n).map(|span| span.start.max(n))
    }
}

impl MetaPages {
    /// Of so many entries and pages of keys; the pages of the array are in use, and none of those
    /// of keys is yet.
    pub(super) fn new(entries: u32, key_pages: usize) -> MetaPages {
        let users = Users {
            is_gone: vec![false; entries.div_ceil(ENTRIES) as usize],
            of_keys: vec![0; key_pages],
        };
        MetaPages {
            entries,
            has_gaps: AtomicBool::new(false),
            spans: ArcSwap::default(),
            users: Mutex::new(users),
        }
    }

    /// Counts in the pages of keys of a page of the array, before anyone reads the row table.
    pub(super) fn count_in(&self, keys: Range<usize>) {
        let mut users = self.users.lock();
        keys.for_each(|page| users.of_keys[page] += 1);
    }

    /// Leaves out a page of the array, before anyone reads the row table.
    pub(super) fn leave_out(&self, page: usize) {
        let mut users = self.users.lock();
        debug_assert!(!users.is_gone[page], "a page goes once (invariant 3)");
        users.is_gone[page] = true;
        self.show(&users);
    }

    /// The entries that can be read. The caller has an epoch pinned.
    pub(super) fn readable(&self) -> Readable {
        if self.has_gaps.load(Ordering::Acquire) {
            Readable::Spans(self.spans.load())
        } else {
            Readable::All(0..self.entries)
        }
    }

    /// Takes out each page of the array that `is_free`; the pages of keys that only they used go
    /// with them. `keys_of` says in which pages the keys of one lie. The caller uses what went
    /// again when no reader from before is left.
    pub(super) fn take_out(
        &self,
        is_free: impl Fn(usize) -> bool,
        keys_of: impl Fn(usize) -> Range<usize>,
    ) -> MetaPageList {
        let mut users = self.users.lock();
        let is_next = |page: &usize| !users.is_gone[*page] && is_free(*page);
        let array: Vec<usize> = (0..users.is_gone.len()).filter(is_next).collect();
        let mut gone = MetaPageList { array, keys: Vec::new() };
        for page in &gone.array {
            users.is_gone[*page] = true;
            for keys in keys_of(*page) {
                debug_assert!(users.of_keys[keys] > 0, "a user of page {keys} was counted in");
                users.of_keys[keys] = users.of_keys[keys].saturating_sub(1);
                if users.of_keys[keys] == 0 {
                    gone.keys.push(keys);
                }
            }
        }
        if !gone.array.is_empty() {
            self.show(&users);
        }
        gone
    }

    /// The pages in use.
    pub(super) fn in_use(&self) -> MetaPageList {
        let users = self.users.lock();
        let array = (0..users.is_gone.len()).filter(|page| !users.is_gone[*page]).collect();
        let keys = (0..users.of_keys.len()).filter(|page| users.of_keys[*page] > 0).collect();
        MetaPageList { array, keys }
    }

    /// Has searches from now on leave out what is gone.
    fn show(&self, users: &Users) {
        let mut spans: Vec<Range<u32>> = Vec::new();
        for page in (0..users.is_gone.len() as u32).filter(|page| !users.is_gone[*page as usize]) {
            let (from, to) = (page * ENTRIES, ((page + 1) * ENTRIES).min(self.entries));
            match spans.last_mut().filter(|last| last.end == from) {
                Some(last) => last.end = to,
                None => spans.push(from..to),
            }
        }
        self.spans.store(Arc::new(spans));
        self.has_gaps.store(true, Ordering::Release);
    }

    /// Bytes of memory that they take beside those of `self`.
    pub(super) fn memory(&self) -> u64 {
        let users = self.users.lock();
        (users.is_gone.len() + 4 * users.of_keys.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_keys_go_with_the_last_page_of_the_array_that_uses_them() {
        // Pages of keys 0 and 1 are shared by two pages of the array each.
        let keys_of = |page: usize| [0..1, 0..2, 1..4][page].clone();
        let pages = MetaPages::new(2 * ENTRIES + 5, 4);
        (0..3).for_each(|page| pages.count_in(keys_of(page)));
        let all = pages.readable();
        assert_eq!((all.before(0), all.before(ENTRIES)), (None, Some(ENTRIES - 1)));
        assert_eq!((all.from(7), all.from(2 * ENTRIES + 5)), (Some(7), None));

        let gone = pages.take_out(|page| page == 1, keys_of);
        assert_eq!((gone.array, gone.keys), (vec![1], vec![]));
        let rest = pages.readable();
        assert_eq!(rest.spans(), [0..ENTRIES, 2 * ENTRIES..2 * ENTRIES + 5]);
        assert_eq!(rest.from(ENTRIES), Some(2 * ENTRIES));
        assert_eq!(rest.before(2 * ENTRIES), Some(ENTRIES - 1));

        let gone = pages.take_out(|page| page < 2, keys_of);
        assert_eq!((gone.array, gone.keys), (vec![0], vec![0]));
        let rest = pages.readable();
        assert_eq!((rest.before(2 * ENTRIES), rest.from(0)), (None, Some(2 * ENTRIES)));
        let in_use = pages.in_use();
        assert_eq!((in_use.array, in_use.keys), (vec![2], vec![1, 2, 3]));

        let gone = pages.take_out(|_| true, keys_of);
        assert_eq!((gone.array, gone.keys), (vec![2], vec![1, 2, 3]));
        assert_eq!((pages.readable().from(0), pages.readable().before(200)), (None, None));
    }

    #[test]
    fn a_row_table_without_entries_has_none_to_read() {
        let pages = MetaPages::new(0, 0);
        assert_eq!((pages.readable().from(0), pages.readable().before(0)), (None, None));
        assert!(pages.take_out(|_| true, |_| 0..0).array.is_empty());
    }
}
