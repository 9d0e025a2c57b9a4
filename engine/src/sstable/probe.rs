//! What `decoders` tries on extents: each part alone, and a whole one.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{Block, BlockCursor};
use super::filter::{self, Filter};
use super::footer::{self, FOOTER_LEN, Footer};
use super::index::Index;
use super::{ranges, summary};
use crate::base::record::{Kind, Lsn, mended};

pub(crate) use super::values::probe::values;

/// The extent that a part alone is taken to be of.
const EXTENT: u64 = 1;

pub(crate) fn footer(bytes: &[u8]) -> bool {
    let field = |from: usize, to: usize| {
        let bytes = bytes.get(from..to).unwrap_or_default();
        bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    let id = field(8, 16);
    let right = mended(bytes, 4, (8, bytes.len()), &[id]);
    let sum = right.get(4..).and_then(|rest| rest.first_chunk::<4>());
    let sum = sum.map_or(0, |sum| u32::from_le_bytes(*sum));
    // The journal says how long an extent is. Here the footer itself says it.
    let len = (field(24, 28) + field(28, 32) + field(48, 52) + FOOTER_LEN as u64) as u32;
    drop(Footer::decode(id, len, sum, bytes));
    let decoded = Footer::decode(id, len, sum, &right);
    if let Ok(footer) = &decoded {
        let again = footer.encode(id);
        let sum = footer::checksum_of(&again);
        assert_eq!(Footer::decode(id, len, sum, &again).as_ref(), Ok(footer));
    }
    decoded.is_ok()
}

pub(crate) fn filter(bytes: &[u8]) -> bool {
    let right = mended(bytes, 0, (4, bytes.len()), &[EXTENT, 1]);
    drop(Filter::decode(EXTENT, bytes.to_vec()));
    let decoded = Filter::decode(EXTENT, right);
    if let Ok(filter) = &decoded {
        for n in 0..64u64 {
            black_box(filter.may_contain(n as usize % 5, filter::hash(&n.to_le_bytes())));
        }
    }
    decoded.is_ok()
}

pub(crate) fn index(bytes: &[u8]) -> bool {
    let right = mended(bytes, 0, (4, bytes.len()), &[EXTENT, 2]);
    drop(Index::decode(EXTENT, bytes.to_vec()));
    let decoded = Index::decode(EXTENT, right);
    decoded.as_ref().is_ok_and(|index| {
        walk_index(index);
        true
    })
}

pub(crate) fn ranges(bytes: &[u8]) -> bool {
    let right = mended(bytes, 0, (4, bytes.len()), &[EXTENT, 4]);
    drop(ranges::decode(EXTENT, bytes));
    let decoded = ranges::decode(EXTENT, &right);
    if let Ok(found) = &decoded {
        let mut list: Vec<_> = found.iter().cloned().collect();
        list.sort_by(|a, b| ranges::place(a).cmp(&ranges::place(b)));
        assert_eq!(ranges::encode(EXTENT, &list), right);
    }
    decoded.is_ok()
}

/// Every block is found by its own last record.
fn walk_index(index: &Index) {
    for (n, entry) in index.entries().iter().enumerate() {
        assert_eq!(index.find(index.last_key(n), entry.last_seq), Some(n));
        assert!(index.find_key(index.last_key(n)).is_some_and(|found| found <= n));
    }
    assert!(index.blocks_end() >= index.entries().first().map_or(0, |first| first.len));
}

pub(crate) fn block(bytes: &[u8]) -> bool {
    let right = mended(bytes, 0, (4, bytes.len()), &[EXTENT, 0]);
    drop(Block::decode(EXTENT, 0, Bytes::copy_from_slice(bytes)));
    Block::decode(EXTENT, 0, Bytes::from(right)).is_ok_and(walk_block)
}

/// Walks a block both ways and looks for some of what is in it; whether all of it decodes.
fn walk_block(block: Block) -> bool {
    let block = Arc::new(block);
    let checked = block.check().is_ok();
    let mut cursor = BlockCursor::new(Arc::clone(&block));
    let mut places: Vec<(Vec<u8>, Lsn)> = Vec::new();
    let mut stepped = cursor.first();
    while stepped.is_ok()
        && let Some(entry) = cursor.entry()
    {
        assert!(entry.kind != Kind::Reference || entry.reference().is_some());
        places.push((entry.key.to_vec(), entry.seq));
        stepped = cursor.next();
    }
    let forward = stepped.is_ok();
    let (mut back, mut stepped) = (0, cursor.last());
    // Entries that a false restart array or false offsets lead to may be more.
    while stepped.is_ok() && back <= cursor.block().len() && cursor.entry().is_some() {
        back += 1;
        stepped = cursor.prev();
    }
    let ascend = |w: &[(Vec<u8>, Lsn)]| (&w[0].0, w[1].1) < (&w[1].0, w[0].1);
    let is_sound = checked && forward && places.windows(2).all(ascend);
    let mut found = places.iter().step_by(7);
    let found = found.all(|(key, seq)| {
        let is_there = cursor.seek(key, *seq).is_ok()
            && cursor.entry().is_some_and(|entry| (entry.key, entry.seq) == (key, *seq));
        let hit = block.find(key, *seq);
        let is_hit = hit.is_ok_and(|hit| hit.is_some_and(|hit| hit.seq == *seq));
        assert!(!is_sound || !block.is_tree() || is_there && is_hit);
        cursor.seek_before(key).is_ok()
    });
    checked && forward && found && !places.is_empty()
}

/// A whole extent, all checksums in it made right.
pub(crate) fn extent(bytes: &[u8]) -> bool {
    let Some(footer_at) = bytes.len().checked_sub(FOOTER_LEN) else { return false };
    let id = bytes[footer_at + 8..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
    let mut right = bytes[..footer_at].to_vec();
    right.extend(mended(&bytes[footer_at..], 4, (8, FOOTER_LEN), &[id]));
    let sum = right[footer_at + 4..].first_chunk().map_or(0, |sum| u32::from_le_bytes(*sum));
    let len = right.len() as u32;
    let Ok(footer) = Footer::decode(id, len, sum, &right[footer_at..]) else { return false };
    let (filter, index) = (footer.filter_offset as usize, footer.index_offset as usize);
    let summaries = footer.summary_offset as usize;
    mend(&mut right, (summaries, filter), &[id, 3]);
    let bytes = right.get(summaries..filter).unwrap_or_default();
    if let Ok(blocks) = summary::decode(id, footer.blocks as usize, bytes) {
        let again = summary::encode(id, &blocks);
        assert_eq!(summary::decode(id, blocks.len(), &again), Ok(blocks));
    }
    mend(&mut right, (filter, index), &[id, 1]);
    let ranges_at = footer.ranges_offset() as usize;
    let ranges_end = ranges_at + footer.ranges_len as usize;
    mend(&mut right, (index, ranges_at), &[id, 2]);
    mend(&mut right, (ranges_at, ranges_end), &[id, 4]);
    let part = |from: usize, to: usize| right.get(from..to).unwrap_or_default().to_vec();
    if Filter::decode(id, part(filter, index)).is_err()
        || ranges::decode(id, &part(ranges_at, ranges_end)).is_err()
    {
        return false;
    }
    let Ok(index) = Index::decode(id, part(index, ranges_at)) else { return false };
    walk_index(&index);
    index.entries().iter().fold(true, |all, entry| {
        let (from, to) = (entry.offset as usize, entry.offset as usize + entry.len as usize);
        mend(&mut right, (from, to), &[id, u64::from(entry.offset)]);
        let bytes = right.get(from..to).map(Bytes::copy_from_slice);
        let block = bytes.and_then(|bytes| Block::decode(id, entry.offset, bytes).ok());
        block.is_some_and(walk_block) && all
    })
}

/// Makes the checksum right that a part of an extent begins with.
fn mend(extent: &mut [u8], (from, to): (usize, usize), seeds: &[u64]) {
    if let Some(part) = extent.get_mut(from..to) {
        let right = mended(part, 0, (4, part.len()), seeds);
        part.copy_from_slice(&right);
    }
}
