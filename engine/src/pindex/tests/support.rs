//! An index on a simulated machine as a map of numbers, and what is checked about it.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::forest::Forest;
use super::super::node::{NODE, SLOTS, Slot};
use super::super::tree::Tree;
use crate::base::options::Failpoint;
use crate::base::progress::Meter;
use crate::base::record::{Kind, LSN_MAX, Lsn};
use crate::memtable::{encode_record, record_at, set_seq};
use crate::mvcc::pin;
use crate::os::sync::locks::Mutex;
use crate::pindex::node::Shape;
use crate::pm::{Region, Spent};
use terrace_testkit::{Explored, Explorer, Machine, Moment, Violation};

/// What keys are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keys {
    /// Their first bytes tell them apart, and bounds lie in a word.
    Short,
    /// Their records tell them apart, and bounds lie in the heap.
    Alike,
    /// The same, and bounds are of many sizes.
    Long,
}

pub(super) const KEYS: [Keys; 2] = [Keys::Short, Keys::Alike];

impl Keys {
    /// The key of a number, in the order of numbers.
    fn of(self, n: u64) -> Vec<u8> {
        let number = (n as u32).to_be_bytes();
        match self {
            Keys::Short => number.to_vec(),
            Keys::Alike => [b"all alike, and then ".as_slice(), &number].concat(),
            Keys::Long => [vec![b'k'; 20 + n as usize / 20 * 30], number.to_vec()].concat(),
        }
    }
}

pub(super) type Model = BTreeMap<u64, u64>;

/// splitmix64.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Keys whose first eight bytes say all, a part, or nothing; some begin others, some end in zeros.
pub(super) fn key(n: u64) -> Vec<u8> {
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match n % 5 {
        0 => spread.to_be_bytes().to_vec(),
        1 => format!("all alike, and then {n}").into_bytes(),
        2 => [b"a".as_slice(), &vec![0; n as usize / 5 % 23]].concat(),
        3 => n.to_string().into_bytes(),
        _ => spread.to_be_bytes()[..(n / 5 % 4) as usize].to_vec(),
    }
}

/// The sequence number of all versions of a map.
const SEQ: Lsn = 1;

/// Records, in memory that is not cut. A number and its value have one record.
pub(super) struct Zones {
    pub(super) keys: Keys,
    pub(super) region: Arc<Region>,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// The offset behind the last record.
    tail: u64,
    /// By number and value.
    records: HashMap<(u64, u64), u64>,
}

impl Zones {
    pub(super) fn new(keys: Keys) -> Arc<Zones> {
        let region = Region::of_machine(&Machine::with_memory(), 2 << 20).unwrap();
        let written = Written { tail: 64, ..Written::default() };
        Arc::new(Zones { keys, region, written: Mutex::new(written) })
    }

    /// Writes a record.
    pub(super) fn put(&self, key: &[u8], seq: Lsn, value: &[u8]) -> u64 {
        let (mut written, mut bytes) = (self.written.lock(), Vec::new());
        encode_record(&mut bytes, 1, Kind::Put, key, value);
        set_seq(&mut bytes, seq);
        let at = written.tail;
        drop(self.region.write(at, &bytes));
        written.tail += bytes.len() as u64;
        at
    }

    /// Puts another record where one was.
    pub(super) fn reuse(&self, at: u64) {
        let record = record_at(&self.region, at);
        let (key, value) = (vec![b'~'; record.key.len()], record.value.to_vec());
        let mut bytes = Vec::new();
        encode_record(&mut bytes, 1, Kind::Put, &key, &value);
        set_seq(&mut bytes, 1 << 40);
        drop(self.region.write(at, &bytes));
        self.written.lock().records.retain(|_, other| *other != at);
    }

    fn record_of(&self, n: u64, value: u64) -> u64 {
        if let Some(at) = self.written.lock().records.get(&(n, value)) {
            return *at;
        }
        let number = [n.to_le_bytes(), value.to_le_bytes()].concat();
        let at = self.put(&self.keys.of(n), SEQ, &number);
        self.written.lock().records.insert((n, value), at);
        at
    }

    /// The number and the value of a record.
    fn read(&self, at: u64) -> (u64, u64) {
        let (words, _) = record_at(&self.region, at).value.as_chunks();
        (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
    }
}

type Result<T> = crate::base::error::Result<T>;

const OWNER: ([u8; 16], u64) = ([7; 16], 1);

const TABLE: u32 = 1;

/// The index of one table.
pub(super) struct Map {
    pub(super) forest: Forest,
    pub(super) tree: Tree,
    pub(super) zones: Arc<Zones>,
}

/// An empty map with room for about `nodes` nodes, on a machine of its own.
pub(super) fn create(nodes: u64, keys: Keys) -> (Machine, Map) {
    // A segment has 15 nodes, or about 50 short bounds; the head has one.
    let shape = Shape { segment: 4096, segments: nodes.div_ceil(15) + nodes / 50 + 2 };
    create_as(shape, &Zones::new(keys))
}

pub(super) fn create_as(shape: Shape, zones: &Arc<Zones>) -> (Machine, Map) {
    let machine = Machine::with_memory();
    let region = Region::of_machine(&machine, shape.region_len()).unwrap();
    (machine, Map::format(&region, shape, zones))
}

pub(super) fn open(machine: &Machine, zones: &Arc<Zones>) -> std::result::Result<Map, String> {
    open_with(machine, zones, None)
}

pub(super) fn open_with(
    machine: &Machine,
    zones: &Arc<Zones>,
    failpoint: Option<Failpoint>,
) -> std::result::Result<Map, String> {
    let mut region = Region::of_machine(machine, 0).map_err(|e| e.to_string())?;
    Arc::get_mut(&mut region).unwrap().set_failpoint(failpoint);
    let reads = (1, &Meter::silent());
    let forest = Forest::open(&region, &zones.region, OWNER, reads).map_err(|e| e.to_string())?;
    let forest = forest.ok_or("there is no index")?;
    forest.begin(OWNER.1).map_err(|e| e.to_string())?;
    let tree = forest.take(TABLE).ok_or("the table has no tree")?;
    Ok(Map { forest, tree, zones: Arc::clone(zones) })
}

impl Map {
    pub(super) fn format(region: &Arc<Region>, shape: Shape, zones: &Arc<Zones>) -> Map {
        let forest = Forest::format_as(region, &zones.region, shape, OWNER.0).unwrap();
        forest.begin(OWNER.1).unwrap();
        let tree = forest.create(TABLE).unwrap();
        Map { forest, tree, zones: Arc::clone(zones) }
    }

    fn find(&self, n: u64) -> Result<Option<u64>> {
        Ok(self.tree.get(&self.zones.keys.of(n), LSN_MAX)?.map(|(_, at)| at))
    }

    /// Gives a number a value; the one before, if it had one.
    pub(super) fn insert(&self, n: u64, value: u64) -> Result<Option<u64>> {
        let _guard = pin();
        let (key, at) = (self.zones.keys.of(n), self.zones.record_of(n, value));
        let Some(old) = self.find(n)? else {
            assert!(self.tree.insert(&key, SEQ, at)?);
            return Ok(None);
        };
        let before = self.zones.read(old).1;
        assert!(self.tree.relocate(&key, SEQ, old, at)?);
        Ok(Some(before))
    }

    pub(super) fn get(&self, n: u64) -> Result<Option<u64>> {
        let _guard = pin();
        Ok(self.find(n)?.map(|at| self.zones.read(at).1))
    }

    /// Takes a number out; its value, if it had one.
    pub(super) fn delete(&self, n: u64) -> Result<Option<u64>> {
        let _guard = pin();
        let removed = self.tree.remove(&self.zones.keys.of(n), SEQ)?;
        Ok(removed.map(|at| self.zones.read(at).1))
    }

    /// The numbers of a range with their values, ascending.
    pub(super) fn range(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, u64)>> {
        let (_guard, mut cursor, mut rows) = (pin(), self.tree.cursor(), Vec::new());
        cursor.seek(&self.zones.keys.of(*range.start()), LSN_MAX)?;
        while let Some(row) = cursor.version().map(|(_, at)| self.zones.read(at)) {
            if row.0 > *range.end() {
                break;
            }
            rows.push(row);
            cursor.next()?;
        }
        Ok(rows)
    }

    /// The same, descending.
    pub(super) fn range_back(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, u64)>> {
        let (_guard, mut cursor, mut rows) = (pin(), self.tree.cursor(), Vec::new());
        let behind = range.end().checked_add(1).map(|end| self.zones.keys.of(end));
        cursor.seek_before(behind.as_deref())?;
        while let Some(row) = cursor.version().map(|(_, at)| self.zones.read(at)) {
            if row.0 < *range.start() {
                break;
            }
            rows.push(row);
            cursor.prev()?;
        }
        Ok(rows)
    }

    /// Frees nodes and bounds that nothing leads to; how many there were.
    pub(super) fn reclaim(&mut self) -> Result<u64> {
        self.forest.reclaim(std::iter::once(&self.tree))
    }

    pub(super) fn height(&self) -> u32 {
        self.tree.root.get(&self.tree.nodes.region).1
    }

    pub(super) fn nodes(&self) -> Vec<u64> {
        let mut nodes = Vec::new();
        self.tree.visit(|node, _| nodes.push(node.at));
        nodes
    }

    pub(super) fn splits(&self) -> u64 {
        self.tree.nodes.counts.splits.load(Ordering::Relaxed)
    }

    pub(super) fn unlinks(&self) -> u64 {
        self.tree.nodes.counts.unlinks.load(Ordering::Relaxed)
    }

    pub(super) fn repairs(&self) -> u64 {
        self.tree.nodes.counts.repairs.load(Ordering::Relaxed)
    }

    /// Lines flushed and fences so far.
    pub(super) fn costs(&self) -> (u64, u64) {
        let total = |of: fn(&Spent) -> &_| self.forest.counts().total(of);
        (total(|c| &c.flushes), total(|c| &c.fences))
    }
}

/// What a map holds, found in every way.
pub(super) fn content(map: &Map) -> std::result::Result<Model, String> {
    let forward = map.range(0..=u64::MAX).map_err(|e| e.to_string())?;
    let mut backward = map.range_back(0..=u64::MAX).map_err(|e| e.to_string())?;
    backward.reverse();
    if forward != backward {
        return Err(format!("forward {forward:?}, backward {backward:?}"));
    }
    if !forward.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("not ascending: {forward:?}"));
    }
    for (n, value) in &forward {
        let found = map.get(*n).map_err(|e| e.to_string())?;
        if found != Some(*value) {
            return Err(format!("{n} has {value} in the range, and alone {found:?}"));
        }
    }
    Ok(forward.into_iter().collect())
}

/// What goes on with a map that was found, and the content it has.
pub(super) type GoOn = fn(&Machine, &mut Map, Model) -> std::result::Result<(), String>;

/// Cuts `act` everywhere, in at most so many ways at a place. What is found is the content before
/// or after, and an index like any other.
pub(super) fn explore(
    (name, most): (&str, usize),
    (machine, zones): (&Machine, &Arc<Zones>),
    model: &Model,
    act: &dyn Fn(&Map, &mut Model),
    go_on: GoOn,
) -> std::result::Result<Explored, Box<Violation>> {
    let copy = machine.kill();
    let map = open(&copy, zones).unwrap();
    // Touched before, so that the operation alone is recorded.
    content(&map).unwrap();
    copy.record();
    let mut after = model.clone();
    act(&map, &mut after);
    copy.mark();
    let trace = copy.recorded().unwrap();
    let explorer = Explorer::new(format!("{name}, {:?}", zones.keys), 1).most(most);
    explorer.explore(&trace, |found, moment| {
        let mut map = open(found, zones)?;
        let now = content(&map)?;
        let before = now == *model && moment.acknowledged == 0;
        if !before && now != after {
            let lost = after.iter().find(|(n, value)| now.get(*n) != Some(value));
            let extra = now.iter().find(|(n, _)| !after.contains_key(*n));
            return Err(format!("lost {lost:?}, found {extra:?}"));
        }
        go_on(found, &mut map, now)
    })
}

/// What threads were told while a machine recorded: whose call returned, in the order of the marks.
pub(super) struct Told<'m> {
    machine: &'m Machine,
    order: Mutex<Vec<usize>>,
}

impl Told<'_> {
    pub(super) fn new(machine: &Machine) -> Told<'_> {
        Told { machine, order: Mutex::default() }
    }

    /// A call of `thread` returned.
    pub(super) fn note(&self, thread: usize) {
        let mut order = self.order.lock();
        order.push(thread);
        self.machine.mark();
    }

    /// What each thread was told is there: its keys hold what they held after its last call that
    /// had returned, or after the one that was under way. `states` has that for each thread, from
    /// before its first call on; `owner` says whose a key is.
    pub(super) fn check(
        &self,
        moment: Moment,
        now: &Model,
        states: &[Vec<Model>],
        owner: impl Fn(&u64) -> Option<usize>,
    ) -> std::result::Result<(), String> {
        let order = self.order.lock();
        for (thread, states) in states.iter().enumerate() {
            let returned = order[..moment.acknowledged].iter().filter(|t| **t == thread).count();
            let own = now.iter().filter(|(key, _)| owner(key) == Some(thread));
            let own: Model = own.map(|(key, value)| (*key, *value)).collect();
            let next = (returned + 1).min(states.len() - 1);
            if own != states[returned] && own != states[next] {
                let expected = &states[returned];
                return Err(format!(
                    "thread {thread} was told of {returned} calls, which leave {expected:?}, and \
                     there is {own:?}"
                ));
            }
        }
        Ok(())
    }
}

/// The invariants of the tree, where nothing is under way.
pub(super) fn check_shape(tree: &Tree) {
    let (_guard, nodes, keys) = (pin(), &tree.nodes, &tree.nodes.keys);
    let mut lows: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    tree.visit(|node, level| {
        lows.entry(level).or_default().push(node.low());
        let live = node.live(nodes.epoch).unwrap_or_else(|| panic!("{node:?} was touched"));
        let slots: Vec<Slot> = live.slots().map(|slot| node.slot(slot)).collect();
        let ascend = |a: &Slot, b: &Slot| nodes.order(node, *b, *a).is_gt();
        assert!(slots.is_sorted_by(ascend), "{node:?}: {slots:?}");
        let high = match node.sibling() {
            0 => 0,
            sibling => nodes.node(sibling).low(),
        };
        let inside = |slot: &Slot| {
            nodes.compare(node, *slot, keys.sought(node.low())).is_ge()
                && (high == 0 || nodes.compare(node, *slot, keys.sought(high)).is_lt())
        };
        assert!(slots.iter().all(inside), "{node:?}: {slots:?}");
        for hole in (0..SLOTS).filter(|slot| !live.has(*slot)).map(|slot| node.slot(slot)) {
            assert_eq!(hole.id, 0, "{hole:?} of {node:?} could come back to life");
        }
        if !node.is_leaf() {
            for slot in slots {
                assert_eq!(nodes.node(slot.id).low(), slot.other, "{node:?}");
            }
            assert_eq!(nodes.node(node.leftmost()).low(), node.low(), "{node:?}");
        }
        assert_eq!(node.is_leaf(), level == 0);
        assert!(nodes.pool.check(node.at).unwrap(), "{node:?} is taken");
    });
    let ascend = |a: &u64, b: &u64| *b != 0 && (*a == 0 || keys.bounds(*a, *b).is_lt());
    assert!(lows.values().all(|lows| lows.is_sorted_by(ascend)), "{lows:?}");
}

/// Whether a line of the region belongs to one of these nodes.
pub(super) fn is_of(nodes: &[u64], line: u64) -> bool {
    nodes.iter().any(|node| (*node..*node + NODE).contains(&line))
}
