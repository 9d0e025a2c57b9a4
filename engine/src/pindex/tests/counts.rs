//! What an operation costs, in lines flushed and fences.

use super::support::{Chance, KEYS, Map, Model, create};

/// What `act` costs.
fn cost<T>(map: &Map, act: impl FnOnce() -> crate::base::error::Result<T>) -> (u64, u64) {
    let before = map.costs();
    act().unwrap();
    let after = map.costs();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn an_operation_within_a_leaf_flushes_what_it_stores_to() {
    for keys in KEYS {
        let (_machine, map) = create(15, keys);
        for n in 0..13 {
            let lines = cost(&map, || map.insert(n * 10, 1));
            assert_eq!(lines, (1, 1), "number {n} goes to the end");
        }
        assert_eq!(cost(&map, || map.insert(60, 2)), (1, 1), "a relocation");
        // One hole is left, the last slot: each line from there on is ordered before the next.
        assert_eq!(cost(&map, || map.insert(5, 1)), (4, 4), "a shift");
        assert_eq!(cost(&map, || map.delete(60)), (1, 1), "a deletion");
        assert_eq!(cost(&map, || map.insert(61, 1)), (1, 1), "into the hole");
        let (lines, fences) = cost(&map, || map.insert(75, 1));
        assert!(lines <= 17 && fences <= 7, "a split and a new root: {lines} lines, {fences}");
    }
}

/// Inserts and deletes of random numbers, most of which are not there yet.
fn random(map: &Map) -> (u64, u64) {
    let (mut chance, mut model) = (Chance(7), Model::new());
    cost(map, || {
        for _ in 0..6000 {
            let n = chance.below(8000);
            match chance.below(3) {
                0 => assert_eq!(map.delete(n)?, model.remove(&n)),
                _ => assert_eq!(map.insert(n, 1)?, model.insert(n, 1)),
            }
        }
        Ok(())
    })
}

#[test]
fn lines_and_fences_stay_as_few() {
    let [short, alike] = KEYS.map(|keys| random(&create(900, keys).1));
    assert_eq!(short, (9468, 7891), "lines and fences");
    // A bound in the heap takes its line, and that of its pool's entry when it comes and goes.
    assert!(alike > short && alike.0 < short.0 * 13 / 10, "{alike:?} lines and fences");
}
