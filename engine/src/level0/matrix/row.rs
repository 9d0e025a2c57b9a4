//! A row table: sorted entries in pages of the region, which never change, and which of them are
//! gone, in memory.
//!
//! Thread safety: bits and counts are atomics. A bit is set once, by the thread that turns it. That
//! thread counts the entry out of its pages.
//!
//! Invariants:
//!
//! 1. The pages of the directory stay until the row table itself goes. Those of the array and of
//!    keys stay as long as [`MetaPages`] says that they can be read. So a reader looks at entries
//!    in its spans, and at their keys. What is outside of them is gone: a reader that comes to an
//!    entry in the order of a walk looks first whether it is.
//! 2. A page of values stays as long as an entry that is not gone has bytes in it. An entry is gone
//!    only when D covers it for every reader. So a reader looks at the value of an entry only if D
//!    of its view does not cover it, and if it is not gone.

use std::cmp::Ordering as Order;
use std::ops::Range;

use super::layout::{ENTRIES, ENTRY, Entry, Place, RowDirectory};
use super::layout::{MetaPages, Readable};
use crate::base::memory::Holding;
use crate::base::options::Failpoint;
use crate::base::record::{LSN_MAX, Lsn, RowTable, TableId, slice};
use crate::memtable::{Record, record_len};
use crate::mvcc::{DrainedMap, KeyInterval, is_pinned};
use crate::os::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::pm::alloc::PageRange;
use crate::pm::{PAGE, Region};

/// Below so many entries a search goes from one to the next.
const LINEAR: u32 = 8;

#[cfg(test)]
thread_local! {
    /// Comparisons with entries that searches of this thread made.
    pub(super) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// Entries of which this thread looked whether they are gone.
    pub(super) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A row table that can be read.
#[derive(Debug)]
pub(super) struct OpenRow {
    pub(super) meta: RowTable,
    table: TableId,
    /// The row table that hints lead into; 0 if there is none.
    below: u64,
    entries: u32,
    pub(super) entry_pages: Box<[u32]>,
    pub(super) key_pages: Box<[u32]>,
    pub(super) value_pages: Box<[u32]>,
    /// Per page of values: entries with bytes in it that are not gone.
    pub(super) in_page: Box<[AtomicU32]>,
    /// A bit for each entry: set once it is gone.
    gone: Box<[AtomicU64]>,
    live: AtomicU32,
    bytes: AtomicU64,
    /// Which pages of the array and of keys are in use.
    pub(super) in_use: MetaPages,
    /// Where fences lie in the directory: the beginning of each, and the end of the last.
    fences: Box<[u32]>,
    /// An edit that removes it is on its way, or all of its pages were given back.
    pub(super) is_going: AtomicBool,
    /// The memory that it takes.
    memory: Holding,
}

/// Where a key is in a row table, for the search in the row below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrowed {
    below: u64,
    from: u32,
    to: u32,
}

impl OpenRow {
    /// A row table in which no entry counts yet.
    pub(super) fn new(region: &Region, meta: RowTable, directory: &RowDirectory) -> OpenRow {
        let (entries, keys) = (directory.entry_pages as usize, directory.key_pages as usize);
        let numbers: Vec<u32> = directory.pages.iter().map(|page| page.page).collect();
        let (array, rest) = numbers.split_at(entries.min(numbers.len()));
        let (key_pages, value_pages) = rest.split_at(keys.min(rest.len()));
        let words = directory.entries.div_ceil(64) as usize;
        let mut row = OpenRow {
            meta,
            table: directory.table,
            below: directory.below,
            entries: directory.entries,
            entry_pages: array.into(),
            key_pages: key_pages.into(),
            value_pages: value_pages.into(),
            in_page: value_pages.iter().map(|_| AtomicU32::new(0)).collect(),
            gone: (0..words).map(|_| AtomicU64::new(0)).collect(),
            live: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            in_use: MetaPages::new(directory.entries, key_pages.len()),
            fences: directory.fence_offsets().into(),
            is_going: AtomicBool::new(false),
            memory: region.indexes().hold(0),
        };
        let pages = row.entry_pages.len() + row.key_pages.len() + 2 * row.value_pages.len();
        let words = pages + row.fences.len() + 2 * row.gone.len();
        row.memory.set((size_of::<OpenRow>() + 4 * words) as u64 + row.in_use.memory());
        row
    }

    /// Counts an entry in, before anyone reads the row table.
    pub(super) fn count_in(&self, entry: &Entry) {
        self.live.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(stored_len(entry), Ordering::Relaxed);
        for page in value_span(entry) {
            self.in_page[page].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Leaves an entry out, before anyone reads the row table.
    pub(super) fn leave_out(&self, n: u32) {
        self.gone[(n / 64) as usize].fetch_or(1 << (n % 64), Ordering::Relaxed);
    }

    /// Leaves out all entries of pages of the array, before anyone reads the row table.
    pub(super) fn leave_out_pages(&self, pages: &[usize]) {
        pages.iter().flat_map(|page| self.entries_of(*page)).for_each(|n| self.leave_out(n));
        self.in_use.leave_out(pages);
    }

    /// Counts in the pages of keys of a page of the array, before anyone reads the row table.
    pub(super) fn count_in_keys(&self, region: &Region, page: usize) {
        self.in_use.count_in(self.keys_of(region, page));
    }

    /// The entries of a page of the array.
    fn entries_of(&self, page: usize) -> Range<u32> {
        let from = page as u32 * ENTRIES;
        from..(from + ENTRIES).min(self.entries)
    }

    /// In which pages the keys of a page of the array lie, which is in use.
    fn keys_of(&self, region: &Region, page: usize) -> Range<usize> {
        let spans = self.entries_of(page).map(|n| key_span(&self.entry(region, n)));
        let spans = spans.filter(|span| !span.is_empty());
        spans.reduce(|all, span| all.start..span.end).unwrap_or(0..0)
    }

    /// A fence: the first key of a page of the array, or the last key of all.
    fn fence<'a>(&self, region: &'a Region, n: usize) -> &'a [u8] {
        let at = u64::from(self.meta.page) * PAGE + u64::from(self.fences[n]);
        region.bytes(at, u64::from(self.fences[n + 1] - self.fences[n]))
    }

    /// Whether D covers all that lies between the fences of a page of the array. An opening passes
    /// over such a page, so it may have other bytes.
    pub(super) fn is_covered(&self, region: &Region, page: usize, drained: &DrainedMap) -> bool {
        let [first, last] = [page, page + 1].map(|n| self.fence(region, n));
        drained.least_within(first, last) >= self.meta.upto
    }

    /// Where an entry lies in the region.
    pub(super) fn entry_at(&self, n: u32) -> u64 {
        let page = u64::from(self.entry_pages[(n / ENTRIES) as usize]);
        page * PAGE + u64::from(n % ENTRIES) * ENTRY as u64
    }

    /// How many entries are not gone.
    pub(super) fn live(&self) -> u64 {
        u64::from(self.live.load(Ordering::Relaxed))
    }

    /// Bytes that these would take in a zone.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many entries there are, gone ones too.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        self.memory.bytes()
    }

    /// An entry that can be read.
    pub(super) fn entry(&self, region: &Region, n: u32) -> Entry {
        let bytes = region.bytes(self.entry_at(n), ENTRY as u64);
        // Checked by the opening or written by this one, and not written since (invariant 1).
        let entry = bytes.first_chunk().and_then(Entry::decode);
        entry.unwrap_or_else(|| panic!("invariant: entry {n} of row table {} is one", self.meta.id))
    }

    fn place<'a>(region: &'a Region, pages: &[u32], place: Place, len: u32) -> &'a [u8] {
        if len == 0 {
            return &[];
        }
        let at = u64::from(pages[place.page as usize]) * PAGE + u64::from(place.offset);
        region.bytes(at, u64::from(len))
    }

    /// The key of an entry.
    pub(super) fn key<'a>(&self, region: &'a Region, entry: &Entry) -> &'a [u8] {
        OpenRow::place(region, &self.key_pages, entry.key, entry.key_len)
    }

    /// The record of an entry that is not gone and not covered (invariant 2).
    pub(super) fn record<'a>(&self, region: &'a Region, entry: &Entry) -> Record<'a> {
        Record {
            seq: entry.seq,
            table: self.table,
            kind: entry.kind,
            key: self.key(region, entry),
            value: OpenRow::place(region, &self.value_pages, entry.value, entry.value_len),
        }
    }

    /// Whether an entry is gone.
    pub(super) fn is_gone(&self, n: u32) -> bool {
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + 1);
        self.gone[(n / 64) as usize].load(Ordering::Acquire) & 1 << (n % 64) != 0
    }

    /// How an entry's key compares to `key`.
    pub(super) fn compare(
        &self,
        region: &Region,
        entry: &Entry,
        (key, prefix): (&[u8], u64),
    ) -> Order {
        #[cfg(test)]
        COMPARED.set(COMPARED.get() + 1);
        entry.prefix.cmp(&prefix).then_with(|| self.key(region, entry).cmp(key))
    }

    /// The first entry that can be read whose key is not smaller than `key`, or else the number of
    /// entries. It lies from the first number on. If it lies behind the second one, it is the first
    /// from there on.
    pub(super) fn lower_bound(&self, region: &Region, key: &[u8], (from, to): (u32, u32)) -> u32 {
        let readable = self.readable();
        for span in readable.spans() {
            let (from, to) = (from.max(span.start), to.min(span.end));
            if from < to {
                let bound = self.search(region, key, (from, to));
                if bound < to {
                    return bound;
                }
            }
        }
        readable.from(to).unwrap_or(self.entries)
    }

    /// The first entry from `from` to `to`, all of which can be read, whose key is not smaller than
    /// `key`; `to` if there is none.
    fn search(&self, region: &Region, key: &[u8], (mut from, mut to): (u32, u32)) -> u32 {
        let sought = (key, slice(key, 0));
        let is_smaller =
            |n: u32| self.compare(region, &self.entry(region, n), sought) == Order::Less;
        while to.saturating_sub(from) > LINEAR {
            let middle = from + (to - from) / 2;
            if is_smaller(middle) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        while from < to && is_smaller(from) {
            from += 1;
        }
        from
    }

    /// As [`OpenRow::lower_bound`] of all entries, from one on that is near.
    pub(super) fn advance(&self, region: &Region, from: u32, key: &[u8]) -> u32 {
        let sought = (key, slice(key, 0));
        for span in self.readable().spans() {
            let (mut at, mut step) = (from.max(span.start), 1);
            while at < span.end {
                let next = (at + step).min(span.end);
                if self.compare(region, &self.entry(region, next - 1), sought) != Order::Less {
                    return self.search(region, key, (at, next));
                }
                (at, step) = (next, step * 2);
            }
        }
        self.entries
    }

    /// The entries that can be read.
    pub(super) fn readable(&self) -> Readable {
        debug_assert!(is_pinned(), "pages stay as long as an epoch is pinned");
        self.in_use.readable()
    }

    /// Where to look for a key, by what the row above says.
    pub(super) fn range(&self, narrowed: Option<Narrowed>) -> (u32, u32) {
        match narrowed {
            // The number is never another one's, so what a hint leads into is still there.
            Some(Narrowed { below, from, to }) if below == self.meta.id => (from, to.max(from)),
            _ => (0, self.entries),
        }
    }

    /// What the hints around the lower bound of a key say of the row below.
    pub(super) fn narrow(&self, region: &Region, bound: u32, below: &OpenRow) -> Option<Narrowed> {
        if self.below == 0 {
            return None;
        }
        let hint = |n: u32| self.entry(region, n).hint.min(below.entries);
        let readable = self.readable();
        // The bound may be in a page that went since the search.
        let at = readable.from(bound).filter(|at| *at == bound);
        let from = readable.before(bound).map_or(0, hint);
        let to = at.map_or(below.entries, hint);
        Some(Narrowed { below: below.meta.id, from, to })
    }

    /// The row table that hints lead into.
    pub(super) fn below(&self) -> u64 {
        self.below
    }

    /// Lets go of the entries in `interval` with a sequence number of at most `upto`; the pages of
    /// values that nothing in this row table needs any more.
    pub(super) fn retire(
        &self,
        region: &Region,
        interval: &KeyInterval,
        upto: Lsn,
    ) -> Vec<PageRange> {
        let all = (0, self.entries);
        let from = self.lower_bound(region, &interval.start, all);
        let end = interval.end.as_ref();
        let to = end.map_or(self.entries, |end| self.lower_bound(region, end, all));
        let mut free = Vec::new();
        for n in (from..to).filter(|n| !self.is_gone(*n)) {
            let entry = self.entry(region, n);
            if entry.seq <= upto {
                self.let_go(n, &entry, &mut free);
            }
        }
        free
    }

    /// Takes out pages of the array of which all entries are gone, and which an opening passes
    /// over. They come free, with their pages of keys, when no reader from before is left.
    pub(super) fn take_out_pages(&self, region: &Region, drained: &DrainedMap) -> Vec<PageRange> {
        let is_early = region.has(Failpoint::FreeUncoveredArray);
        let is_free = |page: usize| {
            let is_gone = self.entries_of(page).all(|n| self.is_gone(n));
            is_gone && (is_early || self.is_covered(region, page, drained))
        };
        let gone = self.in_use.take_out(is_free, |page| self.keys_of(region, page));
        let array = gone.array.iter().map(|page| self.entry_pages[*page]);
        let keys = gone.keys.iter().map(|page| self.key_pages[*page]);
        array.chain(keys).map(single).collect()
    }

    fn let_go(&self, n: u32, entry: &Entry, free: &mut Vec<PageRange>) {
        let bit = 1 << (n % 64);
        if self.gone[(n / 64) as usize].fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return;
        }
        self.bytes.fetch_sub(stored_len(entry), Ordering::Relaxed);
        let before = self.live.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "an entry is counted in before it is counted out");
        for page in value_span(entry) {
            if self.in_page[page].fetch_sub(1, Ordering::AcqRel) == 1 {
                free.push(single(self.value_pages[page]));
            }
        }
    }

    /// Lets go of all entries; the pages of values that were still needed.
    pub(super) fn retire_all(&self, region: &Region) -> Vec<PageRange> {
        self.retire(region, &KeyInterval::all(), LSN_MAX)
    }

    /// The pages of the directory, and those of the array and of keys that are in use.
    pub(super) fn meta_pages(&self) -> Vec<PageRange> {
        let directory = PageRange { first: self.meta.page, count: self.meta.pages };
        let in_use = self.in_use.in_use();
        let array = in_use.array.iter().map(|page| self.entry_pages[*page]);
        let keys = in_use.keys.iter().map(|page| self.key_pages[*page]);
        std::iter::once(directory).chain(array.chain(keys).map(single)).collect()
    }

    /// All pages in use.
    pub(super) fn pages(&self) -> Vec<PageRange> {
        let mut pages = self.meta_pages();
        for (page, live) in self.value_pages.iter().zip(&self.in_page) {
            if live.load(Ordering::Relaxed) > 0 {
                pages.push(single(*page));
            }
        }
        pages
    }
}

fn single(page: u32) -> PageRange {
    PageRange { first: page, count: 1 }
}

/// Bytes that the record of an entry would take in a zone.
fn stored_len(entry: &Entry) -> u64 {
    record_len(entry.key_len as usize, entry.value_len as usize) as u64
}

/// The pages of values that an entry has bytes in, by their place in the directory.
pub(super) fn value_span(entry: &Entry) -> Range<usize> {
    pages_of(entry.value, entry.value_len)
}

/// The pages of keys that the key of an entry lies in, by their place in the directory.
pub(super) fn key_span(entry: &Entry) -> Range<usize> {
    pages_of(entry.key, entry.key_len)
}

/// The pages that bytes at a place lie in.
fn pages_of(place: Place, len: u32) -> Range<usize> {
    if len == 0 {
        return 0..0;
    }
    let end = u64::from(place.offset) + u64::from(len);
    let first = place.page as usize;
    first..first + end.div_ceil(PAGE) as usize
}
