//! The body of a block as a tree of two layers, as it lies on the medium and in memory.
//!
//! ```text
//! fixed part | prefix | root | node | node | … | entries
//! ```
//!
//! The *prefix* is what all keys of the block begin with; the *rest* of a key is what follows it.
//! Entries form *intervals* of at most eight. The nodes hold, of the first key of each interval,
//! the [head](crate::sstable::heads), and where the interval begins. Other keys of an interval are
//! stored without what they share with the first one. So each entry decodes without those before
//! it but the first.
//!
//! A look-up touches its bytes in ascending order: fixed part and prefix, root, one node, one
//! interval. In an interval it seldom compares bytes. Let `c` be how much of the sought key the
//! interval's first key has. An entry that shares less with the first key is greater than the
//! sought key; one that shares more is smaller; only one that shares exactly `c` has to be
//! compared.

mod builder;
#[cfg(test)]
mod tests;
mod walk;

use std::cmp::Ordering;
use std::ops::Range;

use super::BadEntry;
use crate::base::error::Mismatch;
use crate::base::record::{Kind, Lsn, Reader, Reference, common, varint, varint_len};
use crate::sstable::frame::HEADER_LEN;
use crate::sstable::heads::{FAN_OUT, Heads, NODE, PADDING, head, nodes_for, roots_for};

pub(super) use builder::TreeBuilder;
pub(super) use walk::TreeCursor;

/// The most entries in an interval.
const MOST_ENTRIES: usize = 8;

/// Bytes of the fixed part.
const FIXED: usize = 16;

/// The nibble that says that the number follows.
const ESCAPE: usize = 15;

/// In the first byte of an interval: its first key is also that of the entry before.
const GOES_ON: usize = 8;

/// Where the parts of a body lie in the bytes of the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeShape {
    intervals: usize,
    prefix: usize,
    /// Bytes of an offset: 2, or 4.
    width: usize,
    /// The smallest sequence number.
    base: Lsn,
    roots: usize,
    root_at: usize,
    nodes_at: usize,
    entries_at: usize,
}

impl TreeShape {
    /// Reads the fixed part behind the header of a block.
    pub(super) fn decode(bytes: &[u8]) -> Result<TreeShape, Mismatch> {
        let short = || Mismatch::new("a tree of entries", format!("{} bytes", bytes.len()));
        let mut reader = Reader::new(bytes.get(HEADER_LEN..).ok_or_else(short)?);
        let intervals = reader.u32().ok_or_else(short)? as usize;
        let widths = reader.u32().ok_or_else(short)?;
        let base = reader.u64().ok_or_else(short)?;
        let (prefix, width) = ((widths & 0xFFFF) as usize, (widths >> 16) as usize);
        if intervals == 0 || !matches!(width, 2 | 4) {
            let got = format!("{intervals}, of {width}");
            return Err(Mismatch::new("intervals, offsets of 2 or 4 bytes", got));
        }
        let shape = TreeShape::of(intervals, prefix, width, base);
        if shape.entries_at >= bytes.len() || u32::try_from(bytes.len()).is_err() {
            let got = format!("{} bytes", bytes.len());
            return Err(Mismatch::new(format!("entries from {} on", shape.entries_at), got));
        }
        Ok(shape)
    }

    fn of(intervals: usize, prefix: usize, width: usize, base: Lsn) -> TreeShape {
        let nodes = nodes_for(intervals);
        let roots = roots_for(nodes);
        let root_at = HEADER_LEN + FIXED + prefix.next_multiple_of(8);
        let nodes_at = root_at + 8 * roots;
        let entries_at = nodes_at + nodes * (NODE + FAN_OUT * width);
        TreeShape { intervals, prefix, width, base, roots, root_at, nodes_at, entries_at }
    }

    /// Bytes from one node to the next.
    fn stride(&self) -> usize {
        NODE + FAN_OUT * self.width
    }
}

/// A block with where its parts lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryTree<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) shape: &'a TreeShape,
}

/// An entry as it lies in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry {
    pub(super) seq: Lsn,
    /// How much of the rest of the interval's first key its own begins with.
    shared: u32,
    /// Where lies what follows of its key, up to its value, and where that ends.
    unshared: u32,
    value: u32,
    end: u32,
    pub(super) kind: Kind,
}

impl RawEntry {
    fn shared(&self) -> usize {
        self.shared as usize
    }

    fn unshared(&self) -> Range<usize> {
        self.unshared as usize..self.value as usize
    }

    /// Where its value lies in the block.
    pub(super) fn value(&self) -> Range<usize> {
        self.value as usize..self.end as usize
    }

    fn end(&self) -> usize {
        self.end as usize
    }
}

/// The first entry of an interval. Its `shared` bytes are in its head.
#[derive(Clone, Copy, Debug)]
struct First {
    head: u64,
    entry: RawEntry,
    /// How many entries the interval has.
    entries: u8,
    /// Whether its key is also that of the entry before.
    goes_on: bool,
}

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace {
    interval: usize,
    /// Its number in the interval.
    nth: usize,
    pub(super) entry: RawEntry,
    /// Whether its key is the one that was sought.
    pub(super) is_sought: bool,
}

impl First {
    /// Appends the first `len` bytes of the rest of its key, which has as many.
    fn put_rest(&self, bytes: &[u8], len: usize, out: &mut Vec<u8>) {
        let head = self.head.to_be_bytes();
        match len.checked_sub(8) {
            Some(behind) => {
                out.extend_from_slice(&head);
                out.extend_from_slice(&bytes[self.entry.unshared()][..behind]);
            }
            None => out.extend_from_slice(&head[..len]),
        }
    }

    fn rest_len(&self) -> usize {
        self.entry.shared() + self.entry.unshared().len()
    }

    /// How much of `sought`, whose head is `sought_head`, the rest of its key has; and the order of
    /// the two.
    fn compare(&self, bytes: &[u8], sought: &[u8], sought_head: u64) -> (usize, Ordering) {
        let most = self.rest_len().min(sought.len());
        let differ = self.head ^ sought_head;
        if differ != 0 {
            let common = (differ.leading_zeros() / 8) as usize;
            return (common.min(most), self.head.cmp(&sought_head));
        }
        if most < 8 {
            // Filled up with zeros, they look alike. The shorter one comes first.
            return (most, self.rest_len().cmp(&sought.len()));
        }
        let (suffix, rest) = (&bytes[self.entry.unshared()], &sought[8..]);
        let common = common(suffix, rest);
        (8 + common, suffix[common..].cmp(&rest[common..]))
    }
}

impl<'a> EntryTree<'a> {
    pub(super) fn prefix(self) -> &'a [u8] {
        let from = HEADER_LEN + FIXED;
        &self.bytes[from..from + self.shape.prefix]
    }

    fn heads(self) -> Heads<'a> {
        let TreeShape { root_at, nodes_at, entries_at, .. } = *self.shape;
        Heads {
            root: self.bytes[root_at..nodes_at].as_chunks().0,
            nodes: &self.bytes[nodes_at..entries_at],
            stride: self.shape.stride(),
        }
    }

    /// The head of an interval, and where it begins.
    #[inline]
    fn interval(self, n: usize) -> Option<(u64, usize)> {
        let node = self.shape.nodes_at + n / FAN_OUT * self.shape.stride();
        let (at, slot) = (node + n % FAN_OUT * 8, n % FAN_OUT * self.shape.width);
        let head = u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        let offset = self.bytes.get(node + NODE + slot..)?;
        let offset = match self.shape.width {
            2 => usize::from(u16::from_le_bytes(*offset.first_chunk()?)),
            _ => u32::from_le_bytes(*offset.first_chunk()?) as usize,
        };
        Some((head, self.shape.entries_at + offset))
    }

    /// The first entry of interval `n`.
    fn first(self, n: usize) -> Result<First, BadEntry> {
        let found = (n < self.shape.intervals).then(|| self.interval(n)).flatten();
        let (head, mut at) = found.ok_or(BadEntry)?;
        let lens = usize::from(*self.bytes.get(at).ok_or(BadEntry)?);
        at += 1;
        let (high, low) = (lens >> 4, lens & ESCAPE);
        let rest = self.escaped(low, &mut at).ok_or(BadEntry)?;
        let entry = self.entry(rest.min(8), rest.saturating_sub(8), at).ok_or(BadEntry)?;
        let entries = (high % GOES_ON + 1) as u8;
        Ok(First { head, entry, entries, goes_on: high >= GOES_ON })
    }

    /// The entry at `at`, which is not the first of its interval. `first` is how long the rest of
    /// the first key is.
    #[inline]
    fn following(self, first: usize, mut at: usize) -> Result<RawEntry, BadEntry> {
        let lens = usize::from(*self.bytes.get(at).ok_or(BadEntry)?);
        at += 1;
        let shared = self.escaped(lens >> 4, &mut at).ok_or(BadEntry)?;
        let unshared = self.escaped(lens & ESCAPE, &mut at).ok_or(BadEntry)?;
        let entry = self.entry(shared, unshared, at).ok_or(BadEntry)?;
        if shared > first { Err(BadEntry) } else { Ok(entry) }
    }

    #[inline]
    fn escaped(self, nibble: usize, at: &mut usize) -> Option<usize> {
        if nibble < ESCAPE { Some(nibble) } else { Some(ESCAPE + varint_len(self.bytes, at)?) }
    }

    /// What follows the lengths of the key.
    #[inline]
    fn entry(self, shared: usize, unshared: usize, mut at: usize) -> Option<RawEntry> {
        let len_and_kind = varint(self.bytes, &mut at)?;
        let value_len = usize::try_from(len_and_kind >> 2).ok()?;
        let kind = match len_and_kind & 3 {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Reference,
            _ => {
                let kind = Kind::from_u8(*self.bytes.get(at)?)?;
                at += 1;
                kind
            }
        };
        let seq = self.shape.base.checked_add(varint(self.bytes, &mut at)?)?;
        let key_end = at.checked_add(unshared)?;
        let end = key_end.checked_add(value_len)?;
        let is_whole = kind != Kind::Reference || value_len == Reference::LEN;
        // A block has less than 4 GiB, so all of it is within 32 bits once the end is.
        let [shared, unshared, value] = [shared, at, key_end].map(|n| n as u32);
        let entry = RawEntry { seq, shared, unshared, value, end: end as u32, kind };
        (is_whole && end <= self.bytes.len()).then_some(entry)
    }

    /// The first entry at or after (`key`, `seq`), if there is one.
    pub(super) fn find(self, key: &[u8], seq: Lsn) -> Result<Option<EntryPlace>, BadEntry> {
        let Some(rest) = key.strip_prefix(self.prefix()) else {
            return if key < self.prefix() { self.place_of_first(0, false) } else { Ok(None) };
        };
        let sought = head(rest);
        let (next, found) = self.interval_for(rest, sought, seq)?;
        let is_sought = match found {
            Some(first) if !first.goes_on => {
                let entry = first.entry;
                return Ok(Some(EntryPlace { interval: next, nth: 0, entry, is_sought: true }));
            }
            found => found.is_some(),
        };
        if let Some(interval) = next.checked_sub(1)
            && let Some(found) = self.find_in(interval, (rest, sought), seq)?
        {
            return Ok(Some(found));
        }
        self.place_of_first(next, is_sought)
    }

    fn place_of_first(
        self,
        interval: usize,
        is_sought: bool,
    ) -> Result<Option<EntryPlace>, BadEntry> {
        if interval >= self.shape.intervals {
            return Ok(None);
        }
        let entry = self.first(interval)?.entry;
        Ok(Some(EntryPlace { interval, nth: 0, entry, is_sought }))
    }

    /// The first interval that begins at or after what is sought; and its first entry, if that has
    /// the key.
    fn interval_for(
        self,
        rest: &[u8],
        sought: u64,
        seq: Lsn,
    ) -> Result<(usize, Option<First>), BadEntry> {
        let all = self.shape.intervals;
        let heads = self.heads();
        let mut from = heads.lower_bound(sought).ok_or(BadEntry)?.min(all);
        let has_head =
            |n: usize| n < all && self.interval(n).is_some_and(|(head, _)| head == sought);
        if !has_head(from) {
            return Ok((from, None));
        }
        let mut to = from + 1;
        if has_head(to) {
            to = heads.upper_bound(sought, all).ok_or(BadEntry)?.clamp(to, all);
        }
        // Of those with the same head, the first that is not before what is sought.
        let mut found = None;
        while from < to {
            let middle = from.midpoint(to);
            let first = self.first(middle)?;
            let by_key = first.compare(self.bytes, rest, sought).1;
            if by_key.then(seq.cmp(&first.entry.seq)) == Ordering::Less {
                from = middle + 1;
            } else {
                to = middle;
                found = (by_key == Ordering::Equal).then_some(first);
            }
        }
        Ok((from, found))
    }

    /// The first entry of an interval, after its first, that is at or after what is sought.
    fn find_in(
        self,
        interval: usize,
        (rest, sought): (&[u8], u64),
        seq: Lsn,
    ) -> Result<Option<EntryPlace>, BadEntry> {
        let first = self.first(interval)?;
        let (common, _) = first.compare(self.bytes, rest, sought);
        let first_len = first.rest_len();
        let mut at = first.entry.end();
        for nth in 1..usize::from(first.entries) {
            let entry = self.following(first_len, at)?;
            at = entry.end();
            let by_key = match entry.shared().cmp(&common) {
                Ordering::Less => Ordering::Greater,
                Ordering::Greater => Ordering::Less,
                Ordering::Equal => self.bytes[entry.unshared()].cmp(&rest[common..]),
            };
            if by_key.then(seq.cmp(&entry.seq)) != Ordering::Less {
                let is_sought = by_key == Ordering::Equal;
                return Ok(Some(EntryPlace { interval, nth, entry, is_sought }));
            }
        }
        Ok(None)
    }

    /// Whether the tree over the entries says of them what they are, and each is stored as it is
    /// looked for. For checks: it builds each key.
    pub(super) fn check(self) -> Result<(), BadEntry> {
        let (shape, mut end, mut before) = (self.shape, self.shape.entries_at, None);
        for n in 0..nodes_for(shape.intervals) * FAN_OUT {
            let (head, at) = self.interval(n).ok_or(BadEntry)?;
            if n >= shape.intervals {
                sound(head == PADDING && at == self.bytes.len())?;
                continue;
            }
            let first = self.first(n)?;
            let in_head = first.entry.shared;
            sound(at == end && (in_head == 8 || head << (8 * in_head) == 0))?;
            let mut key = Vec::new();
            first.put_rest(self.bytes, first.rest_len(), &mut key);
            let begins = key.clone();
            sound(first.goes_on == (before.as_ref() == Some(&key)))?;
            end = first.entry.end();
            for _ in 1..first.entries {
                let entry = self.following(begins.len(), end)?;
                let unshared = &self.bytes[entry.unshared()];
                let shared = entry.shared();
                sound(begins.get(shared) < unshared.first() || begins.len() == shared)?;
                key.truncate(shared);
                key.extend_from_slice(unshared);
                end = entry.end();
            }
            before = Some(key);
        }
        let nodes = nodes_for(shape.intervals);
        let head_of = |n: usize| self.interval(n * FAN_OUT).filter(|_| n < nodes);
        let of_nodes = (0..shape.roots).map(|n| head_of(n).map_or(PADDING, |(head, _)| head));
        let root = self.heads().root.iter().map(|head| u64::from_le_bytes(*head));
        sound(root.eq(of_nodes) && end == self.bytes.len())
    }
}

fn sound(is_sound: bool) -> Result<(), BadEntry> {
    if is_sound { Ok(()) } else { Err(BadEntry) }
}
