use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::base::record::{LSN_MAX, checksum};
use crate::sstable::block::tests::{BOTH, lay_out};
use crate::sstable::block::{Block, BlockCursor, BlockLayout};
use crate::sstable::tests::Entry;

fn encode(entries: &[Entry], layout: BlockLayout) -> Vec<u8> {
    let (out, size) = lay_out(entries, layout);
    assert!(out.len() <= size, "{} bytes, said to be {size} at most", out.len());
    out
}

fn block(bytes: Vec<u8>) -> Arc<Block> {
    Arc::new(Block::decode(9, 0, Bytes::from(bytes)).unwrap())
}

/// Keys that share their heads, or more, or nothing; many versions; values short and long.
fn lists() -> impl Strategy<Value = Vec<Entry>> {
    let key = prop_oneof![
        prop::collection::vec(0u8..3, 0..30),
        prop::collection::vec(prop::sample::select(&[0u8, 0xFF][..]), 0..12),
        any::<[u8; 16]>().prop_map(Vec::from),
        (0u8..2, 0u64..50).prop_map(|(a, n)| format!("{a}/a common path/{n:03}").into_bytes()),
    ];
    let value = prop_oneof![
        9 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (0usize..400).prop_map(|len| vec![7; len]),
    ];
    let seq = prop_oneof![0u64..40, any::<u64>().prop_map(|seq| seq >> 1)];
    let kind = prop::sample::select(&[Kind::Put, Kind::Put, Kind::Delete, Kind::Lock][..]);
    let prefix = prop::collection::vec(0u8..3, 0..40);
    let entry = (key, seq, kind, value);
    (prop::collection::vec(entry, 1..400), prefix, any::<bool>()).prop_map(
        |(list, prefix, wide)| {
            let of = |(key, seq, kind, value): (Vec<u8>, _, _, _)| Entry {
                key: [prefix.as_slice(), &key].concat(),
                seq,
                kind,
                value,
            };
            let mut list: Vec<Entry> = list.into_iter().map(of).collect();
            list.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
            list.dedup_by(|a, b| (&a.key, a.seq) == (&b.key, b.seq));
            if wide {
                let middle = list.len() / 2;
                list[middle].value = vec![3; 70_000];
            }
            list
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]

    /// The tree, restarts, and the list itself answer alike.
    #[test]
    fn finds_and_walks_as_a_list_does(list in lists()) {
        let blocks = BOTH.map(|layout| block(encode(&list, layout)));
        prop_assert_eq!(blocks[1].check(), Ok(()));
        for block in &blocks {
            let mut cursor = BlockCursor::new(Arc::clone(block));
            cursor.first().unwrap();
            for entry in &list {
                prop_assert_eq!(cursor.entry().map(Entry::from), Some(entry.clone()));
                cursor.next().unwrap();
            }
            prop_assert!(cursor.entry().is_none());
            cursor.last().unwrap();
            for entry in list.iter().rev() {
                prop_assert_eq!(cursor.entry().map(Entry::from), Some(entry.clone()));
                cursor.prev().unwrap();
            }
            prop_assert!(cursor.entry().is_none());
        }
        for near in &list {
            let mut keys = vec![near.key.clone(), [near.key.as_slice(), &[0]].concat()];
            keys.extend(near.key.split_last().map(|(_, key)| key.to_vec()));
            let next = |(last, key): (&u8, &[u8])| [key, &[last.wrapping_add(1)]].concat();
            keys.extend(near.key.split_last().map(next));
            for key in keys {
                for seq in [near.seq, near.seq.saturating_sub(1), near.seq + 1, 0, LSN_MAX] {
                    let sought = (key.as_slice(), u64::MAX - seq);
                    let place = |e: &Entry| (e.key.as_slice(), u64::MAX - e.seq) < sought;
                    let at = list.partition_point(place);
                    let expected = list.get(at).filter(|entry| entry.key == key);
                    for block in &blocks {
                        let hit = block.find(&key, seq).unwrap();
                        let hit = hit.map(|h| (h.seq, h.kind, block.value(h.value)));
                        let expected = expected.map(|e| (e.seq, e.kind, e.value.as_slice()));
                        prop_assert_eq!(hit, expected);
                        let mut cursor = BlockCursor::new(Arc::clone(block));
                        cursor.seek(&key, seq).unwrap();
                        prop_assert_eq!(cursor.entry().map(Entry::from), list.get(at).cloned());
                        if at > 0 && cursor.entry().is_some() {
                            cursor.prev().unwrap();
                            let before = cursor.entry().map(Entry::from);
                            prop_assert_eq!(before.as_ref(), list.get(at - 1));
                        }
                    }
                }
                let before = list.partition_point(|e| e.key < key).checked_sub(1);
                let mut cursor = BlockCursor::new(Arc::clone(&blocks[0]));
                cursor.seek_before(&key).unwrap();
                let found = cursor.entry().map(Entry::from);
                prop_assert_eq!(found.as_ref(), before.map(|n| &list[n]));
            }
        }
    }

    /// Damage behind a right checksum is an error or another answer, not a panic and not a walk
    /// without an end; what passes the check is walked and found whole.
    #[test]
    fn damaged_trees_end_in_errors(
        list in lists(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let mut bytes = encode(&list, BlockLayout::Tree);
        for (at, xor) in flips {
            let at = 16 + at.index((bytes.len() - 16).min(1000));
            bytes[at] ^= xor;
        }
        let sum = checksum(&[9, 0], &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(block) = Block::decode(9, 0, Bytes::from(bytes)) {
            let most = block.len();
            let block = Arc::new(block);
            let checked = block.check();
            for key in list.iter().map(|entry| &entry.key) {
                drop(block.find(key, 5));
            }
            let mut cursor = BlockCursor::new(block);
            let (mut steps, mut step) = (0, cursor.first());
            prop_assert!(checked.is_err() || step.is_ok());
            while step.is_ok() && cursor.entry().is_some() {
                (steps, step) = (steps + 1, cursor.next());
            }
            prop_assert!(steps <= most && (step.is_ok() || cursor.entry().is_none()));
            (steps, step) = (0, cursor.last());
            while step.is_ok() && cursor.entry().is_some() {
                (steps, step) = (steps + 1, cursor.prev());
            }
            prop_assert!(steps <= most && (step.is_ok() || cursor.entry().is_none()));
        }
    }
}

/// What is wrong with a tree though each entry decodes: the check finds it.
#[test]
fn the_check_finds_what_a_walk_does_not() {
    let list: Vec<Entry> = (0..200u8).map(|n| Entry::put(&[n, 1], 7, &[n; 3])).collect();
    let sound = encode(&list, BlockLayout::Tree);
    assert_eq!(block(sound.clone()).check(), Ok(()));
    let shape = TreeShape::decode(&sound).unwrap();
    assert!(shape.roots == 8 && shape.prefix == 0, "{shape:?}");
    let places = [
        ("a head in the root", shape.root_at + 7),
        ("padding of the root", shape.nodes_at - 1),
        ("a head behind its key", shape.nodes_at),
        ("an offset", shape.nodes_at + NODE + 2),
        ("how many entries there are", shape.entries_at),
        ("padding of the last node", shape.entries_at - 1),
    ];
    for (what, at) in places {
        let mut bad = sound.clone();
        bad[at] ^= 0x10;
        let sum = checksum(&[9, 0], &bad[4..]);
        bad[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(block(bad).check(), Err(BadEntry), "{what}");
    }
}
