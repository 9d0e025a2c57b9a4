//! Random operations over several tables against sorted maps: point reads, ranges with every
//! kind of bound from either end and from both in turns, prefixes, snapshots, tables that come
//! and go, reopening and background jobs in between. On real files with a running background, and
//! on both simulated machines with jobs at chosen moments.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use crate::calls;
use crate::common::content::{Content, Effect, Rows, read_all, short, upper};
use crate::common::cuts::{Kind, PATH, lies_apart, mixed_level0, table_options};
use crate::common::{Chance, rounds, tiny};
use proptest::prelude::*;
use terrace::testing::Machine;
use terrace::{
    Database, Durability, ErrorKind, Level0Container, Options, Range, Snapshot, Table, WriteBatch,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

const CONTAINERS: [Level0Container; 3] =
    [Level0Container::GlobalIndex, Level0Container::Matrix, Level0Container::Triangle];

/// Table, key, and what to do with it.
type Write = (u8, u16, What);

#[derive(Clone, Debug)]
enum What {
    /// What fills a value of which length.
    Put(u8, u16),
    /// What fills an operand, which is appended.
    Merge(u8, u8),
    Delete,
    /// All keys up to this one, in the order of keys, or to the end.
    DeleteUpTo(Option<u16>),
}

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<Write>, bool),
    Get(u8, u16),
    MultiGet(u8, Vec<u16>),
    Range(u8, Bound<u16>, Bound<u16>, u64),
    Prefix(u8, u16, u64),
    /// All other calls that read, of a table, a snapshot and a transaction.
    Calls(u8, u16, u16),
    /// Calls that read and write: by which call, and whether in a transaction.
    Change(u8, u16, (u8, u16), u8, bool),
    Take,
    ReadTaken(u8, u8, Bound<u16>, u64),
    LetGo(u8),
    Create(u8),
    Drop(u8),
    Rename(u8, u8),
    Truncate(u8),
    /// Another container of level 0 for a table.
    Container(u8, u8),
    Reopen,
    Steps(u8),
}

fn bound() -> impl Strategy<Value = Bound<u16>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0u16..300).prop_map(Bound::Included),
        (0u16..300).prop_map(Bound::Excluded),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let what = prop_oneof![
        30 => (any::<u8>(), 0u16..6000).prop_map(|(fill, len)| What::Put(fill, len)),
        12 => any::<(u8, u8)>().prop_map(|(fill, len)| What::Merge(fill, len)),
        9 => Just(What::Delete),
        1 => prop::option::weighted(0.9, 0u16..300).prop_map(What::DeleteUpTo),
    ];
    let write = (0u8..4, 0u16..300, what);
    prop_oneof![
        10 => (prop::collection::vec(write, 1..6), any::<bool>())
            .prop_map(|(writes, durable)| Op::Write(writes, durable)),
        4 => (0u8..4, 0u16..300).prop_map(|(t, k)| Op::Get(t, k)),
        1 => (0u8..4, prop::collection::vec(0u16..300, 0..5))
            .prop_map(|(t, k)| Op::MultiGet(t, k)),
        3 => (0u8..4, bound(), bound(), any::<u64>())
            .prop_map(|(t, a, b, m)| Op::Range(t, a, b, m)),
        1 => (0u8..4, 0u16..300, any::<u64>()).prop_map(|(t, k, m)| Op::Prefix(t, k, m)),
        2 => (0u8..4, 0u16..300, 0u16..300).prop_map(|(t, a, b)| Op::Calls(t, a, b)),
        3 => (0u8..4, 0u16..300, any::<(u8, u8)>(), any::<u8>(), any::<bool>())
            .prop_map(|(t, k, (fill, len), call, in_txn)| {
                Op::Change(t, k, (fill, u16::from(len)), call, in_txn)
            }),
        1 => Just(Op::Take),
        2 => (any::<u8>(), 0u8..4, bound(), any::<u64>())
            .prop_map(|(s, t, b, m)| Op::ReadTaken(s, t, b, m)),
        1 => any::<u8>().prop_map(Op::LetGo),
        1 => (0u8..4).prop_map(Op::Create),
        1 => (0u8..40).prop_map(Op::Drop),
        1 => (0u8..4, 0u8..4).prop_map(|(a, b)| Op::Rename(a, b)),
        1 => (0u8..40).prop_map(Op::Truncate),
        1 => (0u8..4, 0u8..3).prop_map(|(t, c)| Op::Container(t, c)),
        1 => Just(Op::Reopen),
        3 => (1u8..30).prop_map(Op::Steps),
    ]
}

/// Keys that are empty, prefixes of each other, at the limit, and full of 0x00 and 0xff.
fn key(n: u16) -> Vec<u8> {
    match n {
        0 => Vec::new(),
        1 => vec![b'x'; 64 * 1024],
        2 => [vec![b'x'; 64 * 1024 - 1], vec![b'y']].concat(),
        3..=8 => vec![0xff; usize::from(n) - 2],
        9..=14 => vec![0; usize::from(n) - 8],
        _ => {
            let digit = |d: u32| [0x00, b'a', b'b', 0xff][usize::from(n >> (2 * d)) % 4];
            (0..1 + u32::from(n) % 5).map(digit).collect()
        }
    }
}

fn value(fill: u8, len: u16) -> Vec<u8> {
    Chance::new(u64::from(fill)).bytes(usize::from(len))
}

#[derive(Clone)]
enum Place {
    Real(std::path::PathBuf),
    Simulated(Machine),
}

impl Place {
    fn open(&self) -> Database {
        match self {
            Place::Real(path) => tiny().open(path),
            Place::Simulated(machine) => stepped(machine).open(PATH),
        }
        .unwrap()
    }
}

fn stepped(machine: &Machine) -> Options {
    tiny().stepped().machine(machine)
}

struct World {
    place: Place,
    db: Database,
    content: Content,
    /// By name: the handle, and how often a table of that name was made or emptied.
    handles: BTreeMap<String, Table>,
    taken: Vec<(Snapshot, Vec<Seen>)>,
}

/// A table as a snapshot has it.
struct Seen {
    table: Table,
    id: u32,
    rows: Rows,
}

impl World {
    fn new(place: Place) -> World {
        let db = place.open();
        let mut world = World {
            place,
            db,
            content: Content::default(),
            handles: BTreeMap::new(),
            taken: Vec::new(),
        };
        world.change(&Effect::Create("a".into()));
        world
    }

    fn table(&self, n: u8) -> Option<(&Table, &Rows)> {
        let name = NAMES[usize::from(n)];
        Some((self.handles.get(name)?, self.content.0.get(name)?))
    }

    fn id(&self, name: &str) -> Option<u32> {
        self.db.stats().tables.iter().find(|t| t.name == name).map(|t| t.id)
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Write(writes, durable) => self.write(writes, *durable),
            Op::Get(t, k) => {
                let Some((table, rows)) = self.table(*t) else { return };
                let got = table.get(key(*k)).unwrap();
                assert_eq!(got.as_deref(), rows.get(&key(*k)).map(Vec::as_slice));
            }
            Op::MultiGet(t, keys) => {
                let Some((table, rows)) = self.table(*t) else { return };
                let got = table.multi_get(keys.iter().map(|k| key(*k))).unwrap();
                for (k, got) in keys.iter().zip(&got) {
                    assert_eq!(got.as_deref(), rows.get(&key(*k)).map(Vec::as_slice));
                }
                assert_eq!(got.len(), keys.len());
            }
            Op::Range(t, from, to, ends) => {
                let Some((table, rows)) = self.table(*t) else { return };
                let bounds = (from.map(key), to.map(key));
                same(table.range(bounds.clone()), within(rows, &bounds), *ends);
            }
            Op::Prefix(t, k, ends) => {
                let Some((table, rows)) = self.table(*t) else { return };
                let prefix = key(*k);
                let want = rows.iter().filter(|(k, _)| k.starts_with(&prefix)).collect();
                same(table.prefix(&prefix), want, *ends);
            }
            Op::Calls(t, a, b) => {
                let Some((table, rows)) = self.table(*t) else { return };
                calls::check(&self.db, table, rows, (key(*a), key(*b)));
            }
            Op::Change(t, k, (fill, len), call, in_txn) => {
                // Two of the long keys with their locks are as much as tiny regions take.
                let k = if (1..=2).contains(k) { 0 } else { *k };
                self.make_room(8 << 10);
                let name = NAMES[usize::from(*t)];
                let Some(rows) = self.content.0.get_mut(name) else { return };
                let how = calls::Change { key: key(k), value: value(*fill, *len), call: *call };
                how.run(&self.db, &self.handles[name], rows, *in_txn);
            }
            Op::Steps(n) => self.steps(*n),
            Op::Reopen => self.reopen(),
            Op::Container(t, c) => {
                let Some((table, _)) = self.table(*t) else { return };
                let container = CONTAINERS[usize::from(*c)];
                let options = table.options().level0(container);
                self.make_room(0);
                self.db.set_table_options(NAMES[usize::from(*t)], options).unwrap();
            }
            Op::Take | Op::ReadTaken(..) | Op::LetGo(_) => self.snapshots(op),
            Op::Create(_) | Op::Drop(_) | Op::Rename(..) | Op::Truncate(_) => self.tables(op),
        }
    }

    fn write(&mut self, writes: &[Write], durable: bool) {
        let mut batch = WriteBatch::new();
        let (mut effects, mut long) = (Vec::new(), 0);
        for (t, k, what) in writes {
            let Some((table, _)) = self.table(*t) else { continue };
            // Two long keys a batch: three with their values do not fit in the largest zone.
            long += u64::from((1..=2).contains(k));
            let k = if long <= 2 || !(1..=2).contains(k) { *k } else { 0 };
            let name = NAMES[usize::from(*t)].to_string();
            match what {
                What::Put(fill, len) => {
                    batch.put(table, key(k), value(*fill, *len));
                    effects.push(Effect::Put(name, key(k), value(*fill, *len)));
                }
                What::Merge(fill, len) => {
                    let operand = value(*fill, u16::from(*len));
                    batch.merge(table, key(k), &operand);
                    effects.push(Effect::Merge(name, key(k), operand));
                }
                What::Delete => {
                    batch.delete(table, key(k));
                    effects.push(Effect::Delete(name, key(k)));
                }
                What::DeleteUpTo(end) => {
                    let end = end.map(|end| key(if (1..=2).contains(&end) { 0 } else { end }));
                    batch.delete_range(table, (Bound::Included(key(k)), upper(end.as_ref())));
                    effects.push(Effect::DeleteRange(name, key(k), end));
                }
            }
        }
        let durability = if durable { Durability::Durable } else { Durability::Relaxed };
        self.make_room(batch.stored_bytes() as u64);
        self.db.write_with(&batch, durability).unwrap();
        effects.iter().for_each(|effect| self.content.apply(effect));
    }

    fn snapshots(&mut self, op: &Op) {
        let at = |n: u8| usize::from(n) % self.taken.len().max(1);
        match op {
            Op::Take => {
                let seen = |(name, rows): (&String, &Rows)| Seen {
                    table: self.handles[name].clone(),
                    id: self.id(name).unwrap(),
                    rows: rows.clone(),
                };
                let seen = self.content.0.iter().map(seen).collect();
                self.taken.push((self.db.snapshot().unwrap(), seen));
            }
            Op::ReadTaken(s, t, from, ends) => {
                let Some((snapshot, seen)) = self.taken.get(at(*s)) else { return };
                let Some(seen) = seen.get(usize::from(*t)) else { return };
                let bounds = (from.map(key), Bound::Unbounded);
                let range = snapshot.range(&seen.table, bounds.clone());
                if self.id(&seen.table.name()) == Some(seen.id) {
                    same(range, within(&seen.rows, &bounds), *ends);
                } else {
                    let gone = snapshot.get(&seen.table, "a").unwrap_err();
                    let kind = gone.kind();
                    let emptied = [ErrorKind::MissingTable, ErrorKind::Invalid].contains(&kind);
                    assert!(emptied, "dropped or emptied: {gone}");
                    let rows: Vec<_> = range.collect();
                    assert!(matches!(&rows[..], [Err(e)] if e.kind() == kind));
                }
            }
            Op::LetGo(s) if !self.taken.is_empty() => drop(self.taken.swap_remove(at(*s))),
            _ => {}
        }
    }

    fn tables(&mut self, op: &Op) {
        let name = |n: &u8| NAMES[usize::from(*n) % 4].to_string();
        let there = |n: &u8| self.content.0.contains_key(NAMES[usize::from(*n) % 4]);
        match op {
            Op::Create(n) if !there(n) => self.change(&Effect::Create(name(n))),
            Op::Drop(n) if *n < 4 && there(n) => self.change(&Effect::Drop(name(n))),
            Op::Truncate(n) if *n < 4 && there(n) => self.change(&Effect::Truncate(name(n))),
            Op::Rename(a, b) if there(a) && !there(b) => {
                self.change(&Effect::Rename(name(a), name(b)));
            }
            Op::Rename(a, b) => {
                let error = self.db.rename_table(&name(a), &name(b)).unwrap_err();
                let kind = if there(a) { ErrorKind::Exists } else { ErrorKind::MissingTable };
                assert_eq!(error.kind(), kind);
            }
            _ => {}
        }
    }

    fn change(&mut self, effect: &Effect) {
        self.make_room(0);
        match effect {
            Effect::Create(name) => {
                let options = table_options(lies_apart(name)).level0(mixed_level0(name));
                let table = self.db.create_table(name, options).unwrap();
                self.handles.insert(name.clone(), table);
            }
            Effect::Drop(name) => {
                self.db.drop_table(name).unwrap();
                let handle = self.handles.remove(name).unwrap();
                assert_eq!(handle.get("a").unwrap_err().kind(), ErrorKind::MissingTable);
            }
            Effect::Rename(from, to) => {
                self.db.rename_table(from, to).unwrap();
                let handle = self.handles.remove(from).unwrap();
                assert_eq!(handle.name(), *to);
                self.handles.insert(to.clone(), handle);
            }
            Effect::Truncate(name) => self.db.truncate_table(name).unwrap(),
            other => unreachable!("{other:?} is no change of a table"),
        }
        self.content.apply(effect);
        assert_eq!(self.db.table_names(), self.content.names());
    }

    fn reopen(&mut self) {
        self.taken.clear();
        self.handles.clear();
        self.db.clone().close().unwrap();
        self.db = self.place.open();
        for name in self.db.table_names() {
            self.handles.insert(name.clone(), self.db.existing_table(&name).unwrap());
        }
        self.whole();
    }

    fn whole(&self) {
        let found = read_all(&self.db).unwrap();
        assert_eq!(found.differs_from(&self.content), None);
    }

    fn steps(&self, n: u8) {
        if !matches!(self.place, Place::Real(_)) {
            for _ in 0..n {
                self.db.step().unwrap();
            }
        }
    }

    /// For a batch of so many bytes, in one piece.
    fn make_room(&self, bytes: u64) {
        let piece = (bytes + 1024).next_power_of_two();
        let full = || {
            let pm = self.db.stats().pm;
            let free = u64::from(pm.zones - pm.zones_used) * pm.zone_size;
            // Some of it is kept for deletes.
            free < piece + 4 * pm.zone_size || pm.largest_free < piece
        };
        for _ in 0..500 {
            if matches!(self.place, Place::Real(_)) || !full() {
                return;
            }
            self.db.step().unwrap();
        }
        panic!("no room: {:?}", self.db.stats());
    }
}

fn within<'a>(
    rows: &'a Rows,
    bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
) -> Vec<(&'a Vec<u8>, &'a Vec<u8>)> {
    rows.iter().filter(|(key, _)| bounds.contains(*key)).collect()
}

/// Reads a range from both ends in turns, as the bits of `ends` say: all ones is forward.
fn same(mut range: Range, want: Vec<(&Vec<u8>, &Vec<u8>)>, ends: u64) {
    let mut chance = Chance::new(ends);
    let mut want = want.into_iter();
    loop {
        let forward = ends.is_multiple_of(3) || (ends % 3 == 1 && chance.percent(50));
        let (got, want) = match forward {
            true => (range.next(), want.next()),
            false => (range.next_back(), want.next_back()),
        };
        let got = got.map(Result::unwrap);
        let got = got.as_ref().map(|(k, v)| (&k[..], &v[..]));
        let want = want.map(|(k, v)| (&k[..], &v[..]));
        let say = |row: Option<(&[u8], &[u8])>| row.map(|(k, v)| (short(k), short(v)));
        assert!(got == want, "{:?} instead of {:?}", say(got), say(want));
        if want.is_none() {
            assert!(range.next().is_none() && range.next_back().is_none(), "fused");
            return;
        }
    }
}

fn places(dir: &tempfile::TempDir) -> [Place; 5] {
    [
        Place::Real(dir.path().join("db")),
        Place::Simulated(Kind::Files.machine()),
        Place::Simulated(Kind::Memory.machine()),
        Place::Simulated(Kind::Index.machine()),
        Place::Simulated(Kind::FullIndex.machine()),
    ]
}

fn all_places(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    for place in places(&dir) {
        let mut world = World::new(place);
        ops.iter().for_each(|op| world.run(op));
        world.whole();
        world.reopen();
        assert!(world.db.verify().unwrap().damages.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: rounds(60, 1500) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_database_agrees_with_sorted_maps(ops in prop::collection::vec(op(), 0..150)) {
        all_places(&ops);
    }
}

#[test]
fn long_lives_agree_with_sorted_maps_through_every_level() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let dir = tempfile::tempdir().unwrap();
    for (n, place) in places(&dir).into_iter().enumerate() {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[n as u8 + 1; 32]);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        let mut world = World::new(place);
        let (mut drains, mut levels) = (0, 0);
        for _ in 0..rounds(12_000, 200_000) {
            let op = op().new_tree(&mut runner).unwrap().current();
            // Tables live longer here, so that their levels fill.
            if matches!(op, Op::Drop(n) | Op::Truncate(n) if n != 0) {
                continue;
            }
            if matches!(op, Op::Reopen) {
                drains += world.db.stats().background.drains;
            }
            world.run(&op);
            let deepest = world.db.stats().tables.iter().map(|t| t.levels.len()).max();
            levels = levels.max(deepest.unwrap_or(0));
        }
        world.reopen();
        assert!(drains > 5 && levels >= 2, "{drains} drains, {levels} levels");
    }
}
