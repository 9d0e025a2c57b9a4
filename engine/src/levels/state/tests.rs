use super::*;
use crate::extent::ExtentMeta;
use crate::levels::edit::tests::{meta, one_of_each};
use crate::mvcc::{DrainedMap, KeyInterval};

type Meta = Arc<ExtentMeta>;

fn add(level: u8, id: u64, from: &str, to: &str) -> Op<Meta> {
    Op::AddExtent { table: 1, level, extent: meta(id, from, to) }
}

fn start() -> State<Meta> {
    let create = Op::CreateTable { table: 1, created_lsn: 4, name: "t".into() };
    apply(&State::default(), vec![create, add(1, 1, "a", "c"), add(1, 2, "d", "f")]).unwrap()
}

fn apply(state: &State<Meta>, ops: Vec<Op<Meta>>) -> Result<State<Meta>, &'static str> {
    state.apply(&Edit { ops }).map(|applied| applied.state).map_err(|broken| broken.name)
}

fn ids(state: &State<Meta>, level: u8) -> Vec<u64> {
    let level = state.tables[&1].version.level(level);
    level.map_or(Vec::new(), |l| l.extents().iter().map(|e| e.id).collect())
}

#[test]
fn each_invariant_is_kept() {
    let state = start();
    let drained = |seq, start: &str| {
        let interval = KeyInterval { start: start.into(), end: None };
        Op::Drained { table: 1, seq, interval }
    };
    let create = |table, name: &str| Op::CreateTable { table, created_lsn: 9, name: name.into() };
    let unsound = Arc::new(ExtentMeta { records: 0, ..(*meta(9, "x", "y")).clone() });
    let cases: Vec<(Vec<Op<Meta>>, &str)> = vec![
        (vec![create(1, "u")], "table_is_new"),
        (vec![create(0, "u")], "table_is_new"),
        (vec![create(2, "t")], "name_is_free"),
        (vec![Op::RenameTable { table: 1, name: "t".into() }], "name_is_free"),
        (vec![Op::DropTable { table: 2 }], "table_is_there"),
        (vec![add(0, 3, "x", "y")], "level_is_in_range"),
        (vec![add(8, 3, "x", "y")], "level_is_in_range"),
        (vec![add(2, 1, "x", "y")], "extent_is_new"),
        (vec![add(1, 3, "c", "cc")], "level_is_disjoint"),
        (vec![Op::AddExtent { table: 1, level: 1, extent: unsound }], "extent_is_sound"),
        (vec![Op::RemoveExtent { table: 1, level: 2, id: 1 }], "extent_is_there"),
        (vec![Op::MoveExtent { table: 1, from: 1, to: 2, id: 7 }], "extent_is_there"),
        (vec![drained(5, "m"), drained(4, "a")], "drained_never_falls"),
    ];
    for (ops, name) in cases {
        assert_eq!(apply(&state, ops.clone()).unwrap_err(), name, "{ops:?}");
    }
    assert_eq!(ids(&state, 1), [1, 2], "a refused edit changes nothing");
}

#[test]
fn order_within_an_edit_is_free() {
    let replace = vec![
        add(1, 3, "b", "e"),
        Op::RemoveExtent { table: 1, level: 1, id: 1 },
        Op::MoveExtent { table: 1, from: 1, to: 2, id: 2 },
    ];
    let applied = start().apply(&Edit { ops: replace }).unwrap();
    assert_eq!((ids(&applied.state, 1), ids(&applied.state, 2)), (vec![3], vec![2]));
    assert_eq!(applied.removed.iter().map(|e| e.id).collect::<Vec<_>>(), [1]);
    assert_eq!(applied.touched, BTreeSet::from([1]));
    assert_eq!(applied.state.counters.next_extent, 4);
}

#[test]
fn a_dropped_table_takes_its_extents_along() {
    let ops = vec![add(2, 5, "a", "z"), Op::DropTable { table: 1 }];
    let applied = start().apply(&Edit { ops }).unwrap();
    assert_eq!(applied.removed.len(), 3);
    assert!(applied.state.tables.is_empty() && applied.touched.is_empty());
    assert_eq!(applied.state.counters.next_table, 2, "ids are not used again");
}

#[test]
fn a_checkpoint_makes_the_state_again() {
    let mut map = DrainedMap::default();
    map.set(&KeyInterval { start: b"c".to_vec(), end: Some(b"f".to_vec()) }, 12);
    let ops = vec![
        add(3, 7, "a", "z"),
        Op::DrainedMap { table: 1, map },
        Op::Counters { next_table: 9, next_extent: 2, table_event_lsn: 5 },
        Op::CreateTable { table: 4, created_lsn: 9, name: "u".into() },
        Op::TableOptions { table: 4, options: TableOptions::new().filter_bits(0) },
    ];
    let state = apply(&start(), ops).unwrap();
    let checkpoint = state.checkpoint();
    let again = State::default().apply(&checkpoint).unwrap().state;
    assert_eq!(again.checkpoint(), checkpoint);
    assert_eq!(again.counters, state.counters);
    assert_eq!(again.tables[&4].version.options, TableOptions::new().filter_bits(0));
    assert_eq!(again.counters.next_extent, 8);
    assert_eq!(again.extents().count(), 3);
}

#[test]
fn an_edit_of_everything_is_refused_for_what_is_missing() {
    let broken = State::default().apply(&one_of_each()).unwrap_err();
    assert_eq!((broken.name, broken.detail.as_str()), ("table_is_there", "there is no table 4"));
}
