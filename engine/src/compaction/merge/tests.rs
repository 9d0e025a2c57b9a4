//! Reuse: what stays, what is copied, and that readers cannot tell.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::base::options::Compression;
use crate::base::record::Lsn;
use crate::compaction::execute::tests::{Fixture, SHAPE, key};
use crate::compaction::{CarriedOver, Shape};
use crate::sstable::tests::Entry;

/// Extents of about six blocks of about ten records.
const BLOCKS: Shape = Shape { extent_bytes: 100_000, level1_bytes: 300_000, ..SHAPE };

/// Nothing that a compression makes smaller.
fn value(n: u16, lsn: Lsn) -> Vec<u8> {
    let mix = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    let seed = mix(u64::from(n) << 32 | lsn);
    (0..200u64).flat_map(|i| mix(seed.wrapping_add(i)).to_le_bytes()).collect()
}

fn puts(keys: impl Iterator<Item = u16>, lsn: Lsn) -> Vec<Entry> {
    keys.map(|n| Entry::put(&key(n), lsn, &value(n, lsn))).collect()
}

fn filled(shape: Shape) -> Fixture {
    let fixture = Fixture::new(shape);
    fixture.visible.raise(1);
    fixture.drain(puts((0..1000).map(|n| 2 * n), 1));
    fixture
}

#[test]
fn what_has_no_newer_key_stays_or_is_copied() {
    let fixture = filled(BLOCKS);
    let before = fixture.level1();
    assert!(before.len() > 10, "{} extents", before.len());
    fixture.visible.raise(2);
    let written = fixture.set.store().bytes_written();
    // The newer record is in one block of one extent.
    let ends = puts([0, 900, 1998].into_iter(), 2);
    let carried_over = fixture.drain(ends);
    assert_eq!(
        carried_over.extents as usize,
        before.len() - 3,
        "the first, the last, and that of 900"
    );
    assert!(carried_over.blocks >= 8, "{carried_over:?}");
    let written = fixture.set.store().bytes_written() - written;
    assert!(written < 4 * 100_000 + 20_000, "{written} bytes written");
    let after = fixture.level1();
    let stayed = before.iter().filter(|e| after.iter().any(|f| f.meta().id == e.meta().id));
    assert_eq!(stayed.count() as u64, carried_over.extents);
    fixture.verify();
    for n in 0..1000 {
        let lsn = if [0, 900, 1998].contains(&(2 * n)) { 2 } else { 1 };
        assert_eq!(fixture.get(&key(2 * n), 9), Some(value(2 * n, lsn)));
        assert_eq!(fixture.get(&key(2 * n + 1), 9), None);
    }
}

#[test]
fn nothing_is_reused_when_it_is_turned_off() {
    let fixture = filled(Shape { reuse: false, ..BLOCKS });
    let before = fixture.level1().len();
    let carried_over = fixture.drain(puts([0, 900, 1998].into_iter(), 2));
    assert_eq!(carried_over, CarriedOver::default());
    assert_eq!(fixture.level1().len(), before);
    fixture.verify();
}

#[test]
fn another_compression_is_not_copied() {
    let mut zstd = filled(BLOCKS);
    zstd.shape.compression = (Compression::Zstd, Compression::Zstd);
    let carried_over = zstd.drain(puts([0, 900, 1998].into_iter(), 2));
    assert!(carried_over.extents > 0 && carried_over.blocks == 0, "{carried_over:?}");
    zstd.verify();
}

#[test]
fn blocks_with_several_versions_or_deletes_are_looked_into() {
    let fixture = Fixture::new(BLOCKS);
    fixture.visible.raise(1);
    fixture.drain(puts(0..500, 1));
    let held = fixture.snapshots.register();
    fixture.visible.raise(3);
    fixture.drain(puts(0..500, 2));
    drop(held);
    // No reader needs the older versions any more, wherever the newer records are.
    let ends = |lsn| puts([0, 499].into_iter(), lsn);
    fixture.drain(ends(3));
    let records = |f: &Fixture| f.level1().iter().map(|e| e.meta().records).sum::<u64>();
    assert!(records(&fixture) < 900, "{} records of 500 keys", records(&fixture));
    let deletes = (0..500).map(|n| Entry::delete(&key(n), 4)).collect();
    fixture.visible.raise(4);
    fixture.drain(deletes);
    assert_eq!(records(&fixture), 0);
}

#[test]
fn cached_blocks_are_cached_where_they_are_copied_to() {
    let fixture = filled(BLOCKS);
    for n in 0..60 {
        fixture.get(&key(2 * n), 9);
    }
    fixture.visible.raise(2);
    // After the first extent's middle.
    let carried_over = fixture.drain(puts([70].into_iter(), 2));
    assert!(carried_over.blocks > 2, "{carried_over:?}");
    let read = fixture.set.store().bytes_read();
    for n in 0..30 {
        assert_eq!(fixture.get(&key(2 * n), 9), Some(value(2 * n, 1)));
    }
    assert_eq!(fixture.set.store().bytes_read(), read, "from the cache, all of them");
}

/// An extent goes unread once its newest record has expired. One of which only the oldest records
/// have expired keeps the others.
#[test]
fn an_extent_goes_when_its_newest_record_has_expired() {
    for (expired, left) in [(0, 11), (1, 11), (2, 0)] {
        let fixture = Fixture::new(BLOCKS);
        fixture.visible.raise(1);
        fixture.drain(puts((0..10).map(|n| 2 * n), 1));
        fixture.visible.raise(2);
        fixture.drain(puts((9..20).map(|n| 2 * n), 2));
        assert_eq!(fixture.level1().len(), 1, "of both");
        fixture.expire(expired);
        fixture.visible.raise(3);
        fixture.drain(puts([21].into_iter(), 3));
        let found = (9..20).filter(|n| fixture.get(&key(2 * n), 9).is_some()).count();
        assert_eq!(found, left, "up to {expired} has expired");
        assert_eq!(fixture.get(&key(21), 9), Some(value(21, 3)));
    }
}

#[test]
fn what_was_cached_stays_cached_on_its_way_down() {
    // Levels of different compressions: everything is written anew; of the same: blocks are copied.
    for compression in
        [(Compression::None, Compression::Zstd), (Compression::Lz4, Compression::Lz4)]
    {
        let fixture = filled(Shape { compression, ..BLOCKS });
        assert!(fixture.compact_all() > 0, "level 1 is over-full");
        fixture.visible.raise(2);
        fixture.drain(puts((0..1000).map(|n| 2 * n), 2));
        let keys = || (0..1000).step_by(50).map(|n| 2 * n);
        let all_there = || keys().all(|n| fixture.get(&key(n), 9) == Some(value(n, 2)));
        assert!(all_there());
        let read = || fixture.set.store().bytes_read();
        let before = read();
        assert!(fixture.compact_all() > 0, "and again, with older ones below");
        let compacted = read();
        assert!(compacted > before && all_there());
        assert_eq!(read(), compacted, "{compression:?}: nothing had to be read again");
        fixture.verify();
    }
}

#[test]
fn small_extents_do_not_grow_in_number() {
    let fixture = filled(BLOCKS);
    let before = fixture.level1();
    // Always between the same two large extents.
    let gap = before[3].meta().greatest_key.clone();
    for n in 0..60u8 {
        let lsn = 2 + Lsn::from(n);
        fixture.visible.raise(lsn);
        let between = [gap.as_slice(), &[n]].concat();
        fixture.drain(vec![
            Entry::put(&key(0), lsn, b"column"),
            Entry::put(&between, lsn, b"x"),
            Entry::put(&key(1998), lsn, b"column"),
        ]);
    }
    let after = fixture.level1().len();
    assert!(after <= before.len() + 3, "{after} extents after {}", before.len());
    fixture.verify();
}

/// A key too many in the first extent must not push the last keys of every extent into the next.
#[test]
fn what_is_left_over_does_not_go_on_to_the_end_of_the_level() {
    let fixture = filled(BLOCKS);
    let before = fixture.level1();
    for n in 0..30u8 {
        let lsn = 2 + Lsn::from(n);
        fixture.visible.raise(lsn);
        let more = [key(0).as_slice(), &[n]].concat();
        let end = Entry::put(&key(1998), lsn, b"end");
        let carried_over = fixture.drain(vec![Entry::put(&more, lsn, &value(0, lsn)), end]);
        assert!(carried_over.extents as usize >= before.len() - 4, "{n}: {carried_over:?}");
    }
    fixture.verify();
}

#[test]
fn by_record_and_by_block_the_records_are_the_same() {
    let fixture = filled(BLOCKS);
    let before = fixture.level1();
    let cache = &fixture.cache;
    let mut by_record = crate::sstable::BlockWalk::new(&before, cache, false);
    let mut by_block = crate::sstable::BlockWalk::new(&before, cache, true);
    let mut count = 0;
    while let Some(key) = by_record.key().map(<[u8]>::to_vec) {
        by_record.open().unwrap();
        assert_eq!(by_block.key(), Some(key.as_slice()));
        by_block.open().unwrap();
        assert_eq!(by_block.key(), Some(key.as_slice()));
        assert_eq!(by_block.entry(), by_record.entry());
        by_record.next().unwrap();
        by_block.next().unwrap();
        count += 1;
    }
    assert_eq!((count, by_block.key()), (1000, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn readers_cannot_tell(
        rounds in prop::collection::vec(
            (
                prop::collection::btree_map(0u16..600, prop::bool::weighted(0.85), 1..60),
                any::<prop::sample::Index>(),
                any::<bool>(),
            ),
            2..16,
        ),
    ) {
        let fixture = Fixture::new(BLOCKS);
        let mut now: BTreeMap<u16, Option<Lsn>> = BTreeMap::new();
        let mut held = Vec::new();
        for (lsn, (batch, from, snapshot)) in (1u64..).zip(rounds) {
            fixture.visible.raise(lsn);
            // Mostly a part of the keys, so that there is something to reuse.
            let from = from.index(600) as u16;
            let width = if lsn % 4 == 0 { 600 } else { 80 };
            let near = |n: u16| from + (u32::from(n) * width / 600) as u16;
            let batch: BTreeMap<u16, bool> =
                batch.into_iter().map(|(n, put)| (near(n), put)).collect();
            let records = batch.iter().map(|(&n, &put)| match put {
                true => Entry::put(&key(n), lsn, &value(n, lsn)),
                false => Entry::delete(&key(n), lsn),
            });
            fixture.drain(records.collect());
            now.extend(batch.iter().map(|(&n, &put)| (n, put.then_some(lsn))));
            if snapshot {
                held.push((fixture.snapshots.register(), now.clone()));
            }
            if lsn % 5 == 0 {
                held.clear();
            }
            fixture.compact_all();
            fixture.verify();
            for (at, model) in held.iter().map(|(s, m)| (s.lsn(), m)).chain([(lsn, &now)]) {
                for n in (0..1200).step_by(5) {
                    let want = model.get(&n).copied().flatten().map(|lsn| value(n, lsn));
                    prop_assert_eq!(fixture.get(&key(n), at), want, "key {} at {}", n, at);
                }
            }
        }
    }
}
