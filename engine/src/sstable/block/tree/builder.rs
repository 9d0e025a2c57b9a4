//! Lays a tree out. Keys and values are collected as they come, since the prefix, and so what each
//! entry takes, is known with the last key alone.

use std::ops::Range;

use super::{ESCAPE, FIXED, GOES_ON, MOST_ENTRIES, TreeShape};
use crate::base::record::{EntryRef, Kind, Lsn, common, put_u32, put_u64, put_varint};
use crate::sstable::frame::HEADER_LEN;
use crate::sstable::heads::{FAN_OUT, NODE, PADDING, head, nodes_for, roots_for};

/// An interval of at least this many bytes takes no further entry: a look-up may have to pass all
/// of it.
const INTERVAL_BYTES: usize = 256;

/// The longest prefix. Keys that have more in common have it in their rests.
const MOST_PREFIX: usize = 0xFFFF;

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(in crate::sstable::block) struct TreeBuilder {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    entries: Vec<TreeEntry>,
    intervals: Vec<Interval>,
    /// How much all keys have in common.
    prefix: usize,
    smallest_seq: Lsn,
    greatest_seq: Lsn,
    /// Bytes of all entries, but for the first keys of intervals and for sequence numbers.
    plain: usize,
    /// Bytes that the first keys of intervals take behind their heads.
    suffixes: usize,
    /// Where entries are encoded, kept for the next block.
    encoded: Vec<u8>,
}

#[derive(Clone, Debug)]
struct TreeEntry {
    key: Range<usize>,
    value_end: usize,
    /// How much of the first key of its interval it has; of a first one, all.
    shared: usize,
    kind: Kind,
    seq: Lsn,
}

#[derive(Debug)]
struct Interval {
    /// The number of its first entry.
    first: usize,
    bytes: usize,
    /// Whether its first key is that of the entry before.
    goes_on: bool,
}

fn varint_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// What a kind is in the two lowest bits beside a value's length; 0 for one that is written out.
fn code(kind: Kind) -> u64 {
    match kind {
        Kind::Put => 1,
        Kind::Delete => 2,
        Kind::Reference => 3,
        _ => 0,
    }
}

impl TreeBuilder {
    pub(in crate::sstable::block) fn add(&mut self, entry: &EntryRef<'_>) {
        // The interval that it goes into, unless it begins one.
        let interval = self.intervals.last().filter(|interval| {
            let entries = self.entries.len() - interval.first;
            entries < MOST_ENTRIES && interval.bytes < INTERVAL_BYTES
        });
        let begins = interval.is_none();
        let first = interval.map(|interval| &self.entries[interval.first].key);
        let shared_with_first = first.map(|key| common(&self.bytes[key.clone()], entry.key));
        let is_same = |last: &TreeEntry| &self.bytes[last.key.clone()] == entry.key;
        let goes_on = begins && self.entries.last().is_some_and(is_same);
        let len = entry.value.len() as u64;
        let unshared = entry.key.len() - shared_with_first.unwrap_or_default();
        let escaped = |n: usize| if n < ESCAPE { 0 } else { varint_len((n - ESCAPE) as u64) };
        let escapes = escaped(shared_with_first.unwrap_or_default()) + escaped(unshared);
        let header = 1 + escapes + varint_len(len << 2) + usize::from(code(entry.kind) == 0);
        let stored = if begins { 0 } else { unshared };
        self.plain += header + stored + entry.value.len();
        let at = self.bytes.len();
        self.bytes.extend_from_slice(entry.key);
        let key = at..self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        self.narrow_prefix(&key);
        if begins {
            let interval = Interval { first: self.entries.len(), bytes: 0, goes_on };
            self.intervals.push(interval);
            self.suffixes += self.suffix(&key);
        }
        if let Some(interval) = self.intervals.last_mut() {
            interval.bytes += header + stored + entry.value.len();
        }
        let is_only = self.entries.is_empty();
        self.smallest_seq = if is_only { entry.seq } else { self.smallest_seq.min(entry.seq) };
        self.greatest_seq = if is_only { entry.seq } else { self.greatest_seq.max(entry.seq) };
        let shared = shared_with_first.unwrap_or(entry.key.len());
        let value_end = self.bytes.len();
        self.entries.push(TreeEntry { key, value_end, shared, kind: entry.kind, seq: entry.seq });
    }

    /// All keys have in common what the first and the last one have.
    fn narrow_prefix(&mut self, key: &Range<usize>) {
        let Some(first) = self.entries.first() else {
            self.prefix = key.len().min(MOST_PREFIX);
            return;
        };
        let key = &self.bytes[key.clone()];
        let first = &self.bytes[first.key.clone()];
        if !key.starts_with(&first[..self.prefix]) {
            self.prefix = common(first, key).min(self.prefix);
            let keys = self.intervals.iter().map(|one| &self.entries[one.first].key);
            self.suffixes = keys.map(|key| self.suffix(key)).sum();
        }
    }

    /// What the first key of an interval takes behind its head.
    fn suffix(&self, key: &Range<usize>) -> usize {
        key.len().saturating_sub(self.prefix + 8)
    }

    pub(in crate::sstable::block) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that [`finish`](Self::finish) gives at most. Few fewer: escapes are counted as though
    /// there were no prefix.
    pub(in crate::sstable::block) fn size(&self) -> usize {
        let nodes = nodes_for(self.intervals.len());
        let seqs = self.entries.len() * varint_len(self.greatest_seq - self.smallest_seq);
        let entries = self.plain + self.suffixes + seqs;
        let stride = NODE + FAN_OUT * width(entries);
        FIXED + self.prefix.next_multiple_of(8) + 8 * roots_for(nodes) + nodes * stride + entries
    }

    /// Appends the body to `out`, and starts over.
    pub(in crate::sstable::block) fn finish(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        let offsets = self.encode_entries();
        let width = width(self.encoded.len());
        let shape = TreeShape::of(self.intervals.len(), self.prefix, width, self.smallest_seq);
        put_u32(out, self.intervals.len() as u32);
        put_u32(out, self.prefix as u32 | (width as u32) << 16);
        put_u64(out, self.smallest_seq);
        out.extend_from_slice(&self.bytes[..self.prefix]);
        out.resize(start + shape.root_at - HEADER_LEN, 0);
        let heads: Vec<u64> = self.intervals.iter().map(|one| self.head_of(one)).collect();
        let nodes = heads.chunks(FAN_OUT);
        let firsts = nodes.clone().map(|node| node[0]).chain(std::iter::repeat(PADDING));
        firsts.take(shape.roots).for_each(|head| put_u64(out, head));
        for (node, offsets) in nodes.zip(offsets.chunks(FAN_OUT)) {
            let heads = node.iter().copied().chain(std::iter::repeat(PADDING));
            heads.take(FAN_OUT).for_each(|head| put_u64(out, head));
            let offsets = offsets.iter().copied().chain(std::iter::repeat(self.encoded.len()));
            for offset in offsets.take(FAN_OUT) {
                out.extend_from_slice(&(offset as u32).to_le_bytes()[..width]);
            }
        }
        debug_assert_eq!(out.len() - start, shape.entries_at - HEADER_LEN, "as it is read");
        out.extend_from_slice(&self.encoded);
        debug_assert!(out.len() - start <= self.size(), "no more than was said");
        self.clear();
    }

    fn head_of(&self, interval: &Interval) -> u64 {
        head(&self.bytes[self.entries[interval.first].key.clone()][self.prefix..])
    }

    /// Encodes the entries; where each interval begins.
    fn encode_entries(&mut self) -> Vec<usize> {
        self.encoded.clear();
        let mut offsets = Vec::with_capacity(self.intervals.len());
        let ends = self.intervals.iter().skip(1).map(|next| next.first);
        let ends = ends.chain([self.entries.len()]);
        for (interval, end) in self.intervals.iter().zip(ends) {
            offsets.push(self.encoded.len());
            let flags = end - interval.first - 1 + if interval.goes_on { GOES_ON } else { 0 };
            for (nth, entry) in self.entries[interval.first..end].iter().enumerate() {
                let rest = &self.bytes[entry.key.clone()][self.prefix..];
                let key = if nth == 0 {
                    put_lens(&mut self.encoded, flags, false, rest.len());
                    rest.get(8..).unwrap_or_default()
                } else {
                    let shared = entry.shared - self.prefix;
                    put_lens(&mut self.encoded, shared, true, rest.len() - shared);
                    &rest[shared..]
                };
                let value = &self.bytes[entry.key.end..entry.value_end];
                put_varint(&mut self.encoded, (value.len() as u64) << 2 | code(entry.kind));
                if code(entry.kind) == 0 {
                    self.encoded.push(entry.kind as u8);
                }
                put_varint(&mut self.encoded, entry.seq - self.smallest_seq);
                self.encoded.extend_from_slice(key);
                self.encoded.extend_from_slice(value);
            }
        }
        offsets
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.intervals.clear();
        (self.prefix, self.plain, self.suffixes) = (0, 0, 0);
    }
}

/// Bytes of an offset into this many bytes of entries.
fn width(entries: usize) -> usize {
    if entries <= usize::from(u16::MAX) { 2 } else { 4 }
}

/// Two numbers in one byte, as far as they fit; what does not fit follows. The first one of an
/// interval's first entry always fits.
fn put_lens(out: &mut Vec<u8>, high: usize, high_may_follow: bool, low: usize) {
    let in_nibble = |n: usize| n.min(ESCAPE) as u8;
    out.push(in_nibble(high) << 4 | in_nibble(low));
    if high >= ESCAPE && high_may_follow {
        put_varint(out, (high - ESCAPE) as u64);
    }
    if low >= ESCAPE {
        put_varint(out, (low - ESCAPE) as u64);
    }
}
