//! How a row table lies in its pages (`docs/format.md`, section 1).

use std::ops::Range;
use std::sync::Arc;

use arc_swap::Guard;

use crate::base::error::Mismatch;
use crate::base::record::{Kind, Lsn, Reader, TableId, checksum, put_u32, put_u64};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::ArcSwap;
use crate::pm::PAGE;

/// Bytes of one entry of the metadata array.
pub(super) const ENTRY: usize = 40;

/// Entries in a page of the array.
pub(super) const ENTRIES: u32 = PAGE as u32 / ENTRY as u32;

/// Bytes of the directory before its list of pages.
const HEAD: usize = 64;

const MAGIC: &[u8; 4] = b"TROW";

/// One page of a row table: its number in the region, and the checksum of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    pub(super) page: u32,
    pub(super) checksum: u32,
}

/// The directory of a row table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowDirectory {
    pub(super) table: TableId,
    pub(super) id: u64,
    /// The row table that hints lead into; 0 if there is none.
    pub(super) below: u64,
    pub(super) after: Lsn,
    pub(super) upto: Lsn,
    pub(super) entries: u32,
    /// How many of the pages have the array, and how many keys; the rest has values.
    pub(super) entry_pages: u32,
    pub(super) key_pages: u32,
    pub(super) pages: Vec<PageRef>,
    /// The first key of each page of the array, and the last key of all: what lies in a page is
    /// known when it is gone.
    pub(super) fences: Vec<Vec<u8>>,
}

/// What the first page of a directory says of the whole, unchecked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) table: TableId,
    pub(super) id: u64,
    pub(super) checksum: u32,
    /// Pages of the directory.
    pub(super) pages: u64,
}

impl RowDirectory {
    /// What a page says of the directory that begins with it, if one does.
    pub(super) fn peek(page: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(page.strip_prefix(MAGIC)?);
        let (checksum, table, _) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let id = reader.u64()?;
        reader.take(24)?;
        let (entry_pages, _, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let fences = u64::from(reader.u32()?) + 4 * fences(entry_pages);
        let pages = (HEAD as u64 + 8 * u64::from(count) + fences).div_ceil(PAGE);
        Some(Head { table, id, checksum, pages })
    }

    /// Bytes that a directory of so many pages takes, with these fences.
    pub(super) fn len(pages: usize, fences: &[Vec<u8>]) -> usize {
        HEAD + 8 * pages + fences.iter().map(|fence| 4 + fence.len()).sum::<usize>()
    }

    /// Where the fences lie in the directory: where each begins, and where the last one ends.
    pub(super) fn fence_offsets(&self) -> Vec<u32> {
        let mut at = (HEAD + 8 * self.pages.len() + 4 * self.fences.len()) as u32;
        let mut offsets = vec![at];
        for fence in &self.fences {
            at += fence.len() as u32;
            offsets.push(at);
        }
        offsets
    }

    /// The bytes, filled up to whole pages, and their checksum.
    pub(super) fn encode(&self) -> (Vec<u8>, u32) {
        let len = RowDirectory::len(self.pages.len(), &self.fences);
        let mut out = Vec::with_capacity(len.next_multiple_of(PAGE as usize));
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, 0);
        put_u32(&mut out, self.table);
        put_u32(&mut out, self.entries);
        [self.id, self.below, self.after, self.upto].iter().for_each(|n| put_u64(&mut out, *n));
        let pages = self.pages.len() as u32;
        let in_fences = self.fences.iter().map(|fence| fence.len() as u32).sum();
        let counts = [self.entry_pages, self.key_pages, pages, in_fences];
        counts.iter().for_each(|n| put_u32(&mut out, *n));
        debug_assert_eq!(out.len(), HEAD, "the list begins behind the head");
        for PageRef { page, checksum } in &self.pages {
            put_u32(&mut out, *page);
            put_u32(&mut out, *checksum);
        }
        debug_assert_eq!(self.fences.len() as u64, fences(self.entry_pages), "one a page, and one");
        self.fences.iter().for_each(|fence| put_u32(&mut out, fence.len() as u32));
        self.fences.iter().for_each(|fence| out.extend_from_slice(fence));
        debug_assert_eq!(out.len(), len, "a directory is as long as it was said to be");
        out.resize(out.len().next_multiple_of(PAGE as usize), 0);
        let sum = checksum(&[u64::from(self.table), self.id], &out[8..]);
        out[4..8].copy_from_slice(&sum.to_le_bytes());
        (out, sum)
    }

    /// Reads the directory of the row table `id`; else what was expected and what is there.
    pub(super) fn decode(
        bytes: &[u8],
        table: TableId,
        id: u64,
        sum: u32,
    ) -> Result<RowDirectory, Mismatch> {
        let is = |what: &str| Mismatch::new(format!("a directory of row table {id}"), what);
        let body = bytes.get(8..).ok_or_else(|| is("fewer bytes"))?;
        let computed = checksum(&[u64::from(table), id], body);
        let found = Reader::new(&bytes[4..8]).u32().unwrap_or_default();
        if &bytes[..4] != MAGIC || found != sum || computed != sum {
            let got = format!("{found:08x} over {computed:08x}");
            return Err(Mismatch::new(format!("checksum {sum:08x}"), got));
        }
        let directory = RowDirectory::fields(body).ok_or_else(|| is("fields that do not fit"))?;
        if directory.table == table && directory.id == id {
            return Ok(directory);
        }
        Err(is("the directory of another one"))
    }

    fn fields(body: &[u8]) -> Option<RowDirectory> {
        let mut reader = Reader::new(body);
        let (table, entries) = (reader.u32()?, reader.u32()?);
        let (id, below) = (reader.u64()?, reader.u64()?);
        let (after, upto) = (reader.u64()?, reader.u64()?);
        let (entry_pages, key_pages) = (reader.u32()?, reader.u32()?);
        let (count, in_fences) = (reader.u32()?, reader.u32()?);
        let meta = entry_pages.checked_add(key_pages)?;
        if meta > count || entries.div_ceil(ENTRIES) != entry_pages {
            return None;
        }
        let page = |reader: &mut Reader<'_>| {
            Some(PageRef { page: reader.u32()?, checksum: reader.u32()? })
        };
        let list = reader.take(usize::try_from(count).ok()?.checked_mul(8)?)?;
        let mut list = Reader::new(list);
        let pages = (0..count).map(|_| page(&mut list)).collect::<Option<_>>()?;
        let fences = RowDirectory::fences(&mut reader, (entry_pages, in_fences))?;
        let is_padded = reader.rest().iter().all(|byte| *byte == 0);
        let directory = RowDirectory {
            table,
            id,
            below,
            after,
            upto,
            entries,
            entry_pages,
            key_pages,
            pages,
            fences,
        };
        is_padded.then_some(directory)
    }

    /// The fences, which ascend.
    fn fences(
        reader: &mut Reader<'_>,
        (entry_pages, in_fences): (u32, u32),
    ) -> Option<Vec<Vec<u8>>> {
        let count = usize::try_from(fences(entry_pages)).ok()?;
        let mut lens = Reader::new(reader.take(count.checked_mul(4)?)?);
        let mut keys = Reader::new(reader.take(usize::try_from(in_fences).ok()?)?);
        let fence = |_| Some(keys.take(usize::try_from(lens.u32()?).ok()?)?.to_vec());
        let fences = (0..count).map(fence).collect::<Option<Vec<_>>>()?;
        (keys.rest().is_empty() && fences.is_sorted()).then_some(fences)
    }
}

/// How many fences a row table with so many pages of the array has.
fn fences(entry_pages: u32) -> u64 {
    if entry_pages == 0 { 0 } else { u64::from(entry_pages) + 1 }
}

/// A place among pages of one sort: which of them, and the offset there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u32,
    pub(super) offset: u16,
}

/// An entry of the metadata array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) seq: Lsn,
    /// The first eight bytes of the key, as [`slice`](crate::base::record::slice) has them.
    pub(super) prefix: u64,
    pub(super) key: Place,
    pub(super) key_len: u32,
    pub(super) kind: Kind,
    pub(super) value: Place,
    pub(super) value_len: u32,
    /// The first entry of the row below whose key is not smaller.
    pub(super) hint: u32,
}

impl Entry {
    /// The bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.key_len < 1 << 24, "limits keep keys shorter");
        put_u64(out, self.seq);
        put_u64(out, self.prefix);
        put_u32(out, self.key.page);
        put_u32(out, self.value.page);
        put_u32(out, self.key_len | (self.kind as u32) << 24);
        put_u32(out, self.value_len);
        out.extend_from_slice(&self.key.offset.to_le_bytes());
        out.extend_from_slice(&self.value.offset.to_le_bytes());
        put_u32(out, self.hint);
    }

    /// Reads an entry; `None` if it has no kind that a row table has.
    pub(super) fn decode(bytes: &[u8; ENTRY]) -> Option<Entry> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = Kind::from_u8(bytes[27])
            .filter(|k| matches!(k, Kind::Put | Kind::Delete | Kind::Merge))?;
        Some(Entry {
            seq: long(0),
            prefix: long(8),
            key: Place { page: word(16), offset: half(32) },
            key_len: word(24) & 0x00FF_FFFF,
            kind,
            value: Place { page: word(20), offset: half(34) },
            value_len: word(28),
            hint: word(36),
        })
    }
}

// Which pages of a row table's array and keys are in use. They come free column by column, as its
// pages of values do.
//
// A page of the array goes in four steps: all of its entries are gone; D covers what lies between
// its fences; the spans that searches go by leave it out; and no reader from before is left.
//
// Thread safety: readers load the spans without a lock, with an epoch pinned. A mutex is held by
// the thread that takes pages out of them.
//
// Invariants:
//
// 1. An entry outside of the spans is gone.
// 2. A page of keys is in use as long as a page of the array is whose entries have a key there. So
//    a search may look at the key of each entry in the spans.
// 3. A page goes once.

#[cfg(test)]
thread_local! {
    /// How often this thread made the spans of a row table.
    pub(super) static SHOWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

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

    /// Leaves out pages of the array, before anyone reads the row table.
    pub(super) fn leave_out(&self, pages: &[usize]) {
        let mut users = self.users.lock();
        for page in pages {
            debug_assert!(!users.is_gone[*page], "a page goes once (invariant 3)");
            users.is_gone[*page] = true;
        }
        if !pages.is_empty() {
            self.show(&users);
        }
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
        #[cfg(test)]
        SHOWN.set(SHOWN.get() + 1);
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

    fn directory() -> RowDirectory {
        let pages = (0..600).map(|n| PageRef { page: 40 + n, checksum: n * 7 }).collect();
        let (entry_pages, key_pages) = (3, 100);
        let (after, upto) = (5, 900);
        let entries = 2 * ENTRIES + 1;
        let fences = ["", "b", "bb", "c"].map(|key| key.repeat(900).into_bytes()).to_vec();
        RowDirectory {
            table: 3,
            id: 11,
            below: 9,
            after,
            upto,
            entries,
            entry_pages,
            key_pages,
            pages,
            fences,
        }
    }

    #[test]
    fn a_directory_round_trips_and_no_byte_of_it_is_ignored() {
        let directory = directory();
        let (bytes, sum) = directory.encode();
        assert_eq!(RowDirectory::decode(&bytes, 3, 11, sum).as_ref(), Ok(&directory));
        let pages = RowDirectory::peek(&bytes[..PAGE as usize]).map(|head| head.pages * PAGE);
        assert_eq!(pages, Some(bytes.len() as u64));
        for (fence, at) in directory.fences.iter().zip(directory.fence_offsets().windows(2)) {
            assert_eq!(&bytes[at[0] as usize..at[1] as usize], fence);
        }
        for (table, id, sum) in [(4, 11, sum), (3, 12, sum), (3, 11, sum ^ 1)] {
            assert!(RowDirectory::decode(&bytes, table, id, sum).is_err(), "{table} {id} {sum}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(RowDirectory::decode(&bad, 3, 11, sum).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_entry_round_trips() {
        let entry = Entry {
            seq: 1 << 50,
            prefix: 0x0102_0304_0506_0708,
            key: Place { page: 70_000, offset: 4095 },
            key_len: 65_536,
            kind: Kind::Delete,
            value: Place { page: 80_000, offset: 17 },
            value_len: 1 << 20,
            hint: 123_456,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let bytes: [u8; ENTRY] = bytes.try_into().unwrap();
        assert_eq!(Entry::decode(&bytes), Some(entry));
        let mut bad = bytes;
        bad[27] = 16;
        assert_eq!(Entry::decode(&bad), None, "a row table has puts, deletes and operands");
    }

    mod meta_pages {
        use super::super::*;

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
}
