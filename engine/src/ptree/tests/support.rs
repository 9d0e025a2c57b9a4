//! Trees on simulated machines, and what is checked about them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::format::Shape;
use super::super::keys::{Fixed, Keys};
use super::super::node::{Live, SLOTS, Slot};
use super::super::options::FIXED;
use super::super::tree::Tree;
use super::super::{OdsTree, Policy};
use crate::options::Mode;
use crate::os::Files;
use crate::pm::{Media, Region};
use terrace_testkit::{Explored, Explorer, Machine, Moment, Violation};

pub(super) const POLICIES: [Policy; 2] = [Policy::Nearest, Policy::OneDirection];

/// Machines that trees are cut on: with persistent memory, and with files alone (`file` mode).
pub(super) const MACHINES: [fn() -> Machine; 2] = [Machine::with_memory, Machine::with_files];

/// Each policy on each machine.
pub(super) fn everywhere() -> impl Iterator<Item = (fn() -> Machine, Policy)> + Clone {
    MACHINES.into_iter().flat_map(|machine| POLICIES.map(|policy| (machine, policy)))
}

pub(super) type Model = BTreeMap<u64, u64>;

/// splitmix64.
pub(in crate::ptree) struct Chance(pub(in crate::ptree) u64);

impl Chance {
    pub(in crate::ptree) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(in crate::ptree) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The region of a machine: its persistent memory, or a file where it has none; made of zeros, so
/// many of them, where there is none yet.
pub(super) fn region(machine: &Machine, len: Option<u64>) -> crate::error::Result<Arc<Region>> {
    if machine.memory().is_some() {
        return Region::of_machine(machine, len.unwrap_or(0));
    }
    let (files, path): (Arc<dyn Files>, _) = (machine.files(), Path::new("/region"));
    let (media, len) = match len {
        Some(len) => {
            let media = Media::create(&files, path, len, Mode::File)?;
            crate::os::Directory::at(Path::new("/")).sync(&*files).unwrap();
            (media, len)
        }
        None => Media::open(&files, path, false, Mode::File)?,
    };
    Ok(Arc::new(Region::new(media, path, len)?))
}

/// An empty tree with room for about `nodes` nodes.
pub(super) fn create(nodes: u64, policy: Policy) -> (Machine, OdsTree) {
    create_on(Machine::with_memory(), nodes, policy)
}

/// The same on a machine that has none.
pub(super) fn create_on(machine: Machine, nodes: u64, policy: Policy) -> (Machine, OdsTree) {
    let segment = 4096 * (nodes / 15 + 1);
    let shape = Shape { kind: FIXED, segment, segments: 1 };
    let region = region(&machine, Some(shape.region_len())).unwrap();
    let tree = Tree::format(&region, shape, |_| Fixed, policy).unwrap();
    (machine, OdsTree::new(tree, None))
}

pub(super) fn open(machine: &Machine, policy: Policy) -> Result<OdsTree, String> {
    let region = region(machine, None).map_err(|e| e.to_string())?;
    let tree = Tree::open(&region, FIXED, |_| Fixed, policy).map_err(|e| e.to_string())?;
    Ok(OdsTree::new(tree, None))
}

/// Entries of a tree, in order.
pub(super) type Rows<M> = Vec<(<M as Map>::Key, <M as Map>::Value)>;

/// What a tree holds.
pub(super) type Content<M> = BTreeMap<<M as Map>::Key, <M as Map>::Value>;

/// A tree as a map, of any kind.
pub(super) trait Map: Sized {
    type Key: Ord + Clone + Debug;
    type Value: PartialEq + Clone + Debug;

    fn open(machine: &Machine, policy: Policy) -> Result<Self, String>;

    /// All entries, from the front and from the back.
    fn walks(&self) -> [crate::error::Result<Rows<Self>>; 2];

    fn value(&self, key: &Self::Key) -> crate::error::Result<Option<Self::Value>>;
}

impl Map for OdsTree {
    type Key = u64;
    type Value = u64;

    fn open(machine: &Machine, policy: Policy) -> Result<OdsTree, String> {
        open(machine, policy)
    }

    fn walks(&self) -> [crate::error::Result<Vec<(u64, u64)>>; 2] {
        [self.range(..).collect(), self.range(..).rev().collect()]
    }

    fn value(&self, key: &u64) -> crate::error::Result<Option<u64>> {
        self.get(*key)
    }
}

pub(super) fn content<M: Map>(tree: &M) -> Result<BTreeMap<M::Key, M::Value>, String> {
    let [forward, backward] = tree.walks();
    let forward = forward.map_err(|e| e.to_string())?;
    let mut backward = backward.map_err(|e| e.to_string())?;
    backward.reverse();
    if forward != backward {
        return Err(format!("forward {forward:?}, backward {backward:?}"));
    }
    if !forward.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("not ascending: {forward:?}"));
    }
    for (key, value) in &forward {
        let found = tree.value(key).map_err(|e| e.to_string())?;
        if found.as_ref() != Some(value) {
            return Err(format!("{key:?} has {value:?} in the range, and alone {found:?}"));
        }
    }
    Ok(forward.into_iter().collect())
}

/// What goes on with a tree that was found, and the content it has.
pub(super) type GoOn<M> = fn(&Machine, &mut M, Content<M>, Policy) -> Result<(), String>;

/// Cuts `act` everywhere, in at most so many ways at a place. What is found is the content before
/// or after, and a tree like any other.
pub(super) fn explore<M: Map>(
    (name, most): (&str, usize),
    (machine, policy): (&Machine, Policy),
    model: &Content<M>,
    act: &dyn Fn(&M, &mut Content<M>),
    go_on: GoOn<M>,
) -> Result<Explored, Box<Violation>> {
    let copy = machine.kill();
    let tree = M::open(&copy, policy).unwrap();
    // Touched before, so that the operation alone is recorded.
    content(&tree).unwrap();
    copy.record();
    let mut after = model.clone();
    act(&tree, &mut after);
    copy.mark();
    let trace = copy.recorded().unwrap();
    Explorer::new(format!("{name}, {policy:?}"), 1).most(most).explore(&trace, |found, moment| {
        let mut tree = M::open(found, policy)?;
        let now = content(&tree)?;
        let before = now == *model && moment.acknowledged == 0;
        if !before && now != after {
            let lost = after.iter().find(|(key, value)| now.get(*key) != Some(value));
            let extra = now.iter().find(|(key, _)| !after.contains_key(*key));
            return Err(format!("lost {lost:?}, found {extra:?}"));
        }
        go_on(found, &mut tree, now, policy)
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
    pub(super) fn check<M: Map>(
        &self,
        moment: Moment,
        now: &Content<M>,
        states: &[Vec<Content<M>>],
        owner: impl Fn(&M::Key) -> Option<usize>,
    ) -> Result<(), String> {
        let order = self.order.lock();
        for (thread, states) in states.iter().enumerate() {
            let returned = order[..moment.acknowledged].iter().filter(|t| **t == thread).count();
            let own = now.iter().filter(|(key, _)| owner(key) == Some(thread));
            let own: Content<M> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
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
pub(super) fn check_shape<K: Keys>(tree: &Tree<K>) {
    let (nodes, keys) = (&tree.nodes, &tree.nodes.keys);
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
            let gone = || nodes.compare(node, hole, keys.sought(high)).is_ge();
            let stays = hole.id == 0 || (!K::REFERS && high != 0 && gone());
            assert!(stays, "{hole:?} of {node:?} could come back to life");
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

/// Every live slot, for a look at layouts.
pub(super) fn lives(tree: &Tree<Fixed>) -> Vec<Live> {
    let mut lives = Vec::new();
    tree.visit(|node, level| {
        if level == 0 {
            lives.extend(node.live(tree.nodes.epoch));
        }
    });
    lives
}
