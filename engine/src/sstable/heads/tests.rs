use proptest::prelude::*;

use super::*;

/// Heads as nodes of this stride, with a root.
fn laid_out(heads: &[u64], stride: usize) -> (Vec<[u8; 8]>, Vec<u8>) {
    let mut nodes = Vec::new();
    for node in heads.chunks(FAN_OUT) {
        let start = nodes.len();
        let node = node.iter().copied().chain(std::iter::repeat(PADDING)).take(FAN_OUT);
        node.for_each(|head| nodes.extend_from_slice(&head.to_le_bytes()));
        // What lies between nodes is not compared.
        nodes.resize(start + stride, 0x11);
    }
    let mut root: Vec<[u8; 8]> =
        heads.iter().step_by(FAN_OUT).map(|head| head.to_le_bytes()).collect();
    root.resize(roots_for(nodes_for(heads.len())), PADDING.to_le_bytes());
    (root, nodes)
}

fn sorted(most: usize) -> impl Strategy<Value = Vec<u64>> {
    let head =
        prop_oneof![0u64..20, any::<u64>(), Just(u64::MAX), Just(1 << 63), Just(i64::MAX as u64)];
    prop::collection::vec(head, 1..most).prop_map(|mut heads| {
        heads.sort_unstable();
        heads
    })
}

proptest! {
    /// All comparisons answer as a search over the sorted list does.
    #[test]
    fn every_search_answers_as_a_naive_one(
        heads in sorted(600),
        more in prop::collection::vec(any::<u64>(), 8),
        stride in prop_oneof![Just(NODE), Just(NODE + 16), Just(NODE + 32)],
    ) {
        let (root, nodes) = laid_out(&heads, stride);
        let tree = Heads { root: &root, nodes: &nodes, stride };
        let around = |head: &u64| [head.wrapping_sub(1), *head, head.wrapping_add(1)];
        let near = heads.iter().flat_map(around);
        for sought in near.chain(more).chain([0, u64::MAX]) {
            let naive = heads.partition_point(|head| *head < sought);
            for lanes in Lanes::available() {
                let found = lanes.lower_bound(tree, sought);
                prop_assert_eq!(found.map(|n| n.min(heads.len())), Some(naive), "{:?}", lanes);
            }
            let naive = heads.partition_point(|head| *head <= sought);
            let found = tree.upper_bound(sought, heads.len()).map(|n| n.min(heads.len()));
            prop_assert_eq!(found, Some(naive));
        }
    }

    /// And alike over bytes that are no tree.
    #[test]
    fn every_search_answers_alike_over_any_bytes(
        root in prop::collection::vec(any::<[u8; 8]>(), 0..40),
        nodes in prop::collection::vec(any::<u8>(), 0..2000),
        sought in any::<u64>(),
    ) {
        let root = &root[..root.len() / 8 * 8];
        let tree = Heads { root, nodes: &nodes, stride: 80 };
        let scalar = Lanes::Scalar.lower_bound(tree, sought);
        for lanes in Lanes::available() {
            prop_assert_eq!(lanes.lower_bound(tree, sought), scalar, "{:?}", lanes);
        }
    }

    #[test]
    fn heads_are_in_the_order_of_keys(
        a in prop::collection::vec(0u8..3, 0..12),
        b in prop::collection::vec(0u8..3, 0..12),
    ) {
        let (less, more) = if a <= b { (a, b) } else { (b, a) };
        prop_assert!(head(&less) <= head(&more));
    }

    #[test]
    fn keys_are_found_by_their_heads(
        mut keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 0..200),
        sought in prop::collection::vec(0u8..3, 0..12),
        common in prop::collection::vec(0u8..3, 0..3),
    ) {
        keys.iter_mut().for_each(|key| *key = [common.as_slice(), key].concat());
        keys.sort();
        let heads = OwnedHeads::of(keys.iter().map(Vec::as_slice));
        for sought in [[common.as_slice(), &sought].concat(), sought] {
            let found = heads.partition_point(&sought, |n| keys[n] < sought);
            prop_assert_eq!(found, keys.partition_point(|key| *key < sought));
        }
    }
}

#[test]
fn the_best_of_what_there_is_is_chosen() {
    let available = Lanes::available();
    assert_eq!((available[0], available.last()), (Lanes::Scalar, Some(&chosen())));
}

/// See [`OwnedHeads::rest_of`].
#[test]
#[cfg_attr(miri, ignore = "it takes times")]
fn keys_that_begin_differently_cost_no_more_than_others() {
    use std::hint::black_box;
    let took = |first: u8| {
        let keys: Vec<[u8; 2]> =
            (0..200).map(|n| if first == 0 { [n, 1] } else { [7, n] }).collect();
        let heads = OwnedHeads::of(keys.iter().map(|key| &key[..]));
        let round = || {
            let begin = std::time::Instant::now();
            for n in 0..2000 {
                let key = black_box(&keys[n % keys.len()]);
                assert_eq!(heads.partition_point(key, |_| false), n % keys.len());
            }
            begin.elapsed()
        };
        (0..30).map(|_| round()).min().unwrap()
    };
    let (differently, alike) = (took(0), took(1));
    assert!(differently < alike * 3, "{differently:?} against {alike:?}");
}
