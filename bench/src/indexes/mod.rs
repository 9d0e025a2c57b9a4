//! The memtable's index and its peers behind one small trait: maps from a key to the offset of a
//! record, all of them over the same records.

mod locked;
#[cfg(feature = "peer-indexes")]
mod peers;
mod persistent;
mod terrace;

use ::terrace::bench::Arena;
use anyhow::Result;
#[cfg(not(feature = "peer-indexes"))]
use anyhow::bail;

/// An index under test.
pub(crate) trait OffsetIndex: Send + Sync {
    /// Adds a key that is not there yet.
    fn insert(&self, key: &[u8], at: u64);

    /// The offset of a key's record.
    fn get(&self, key: &[u8]) -> Option<u64>;

    /// Shows the offsets of up to `rows` keys from `from` on, in order.
    fn scan(&self, from: &[u8], rows: usize, show: &mut dyn FnMut(u64));

    /// Bytes that it takes beside the heap, in persistent memory.
    fn persistent_bytes(&self) -> u64 {
        0
    }
}

/// Which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The memtable's.
    Terrace,
    /// The persistent index, in emulated persistent memory.
    Persistent,
    /// Crossbeam's skip list.
    SkipList,
    /// An adaptive radix tree with optimistic lock coupling; keys of eight bytes only.
    Congee,
    /// A B+-tree with optimistic lock coupling.
    Ferntree,
    /// A trie of B+-trees.
    Masstree,
    /// The standard library's B-tree behind a reader-writer lock.
    BTreeMap,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Terrace,
        Kind::Persistent,
        Kind::SkipList,
        Kind::Congee,
        Kind::Ferntree,
        Kind::Masstree,
        Kind::BTreeMap,
    ];

    /// What it is held against: indexes of others.
    pub(crate) const PEERS: [Kind; 5] =
        [Kind::SkipList, Kind::Congee, Kind::Ferntree, Kind::Masstree, Kind::BTreeMap];

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Terrace => "terrace",
            Kind::Persistent => "persistent",
            Kind::SkipList => "skiplist",
            Kind::Congee => "congee",
            Kind::Ferntree => "ferntree",
            Kind::Masstree => "masstree",
            Kind::BTreeMap => "btreemap+lock",
        }
    }

    /// Whether this build has it.
    pub(crate) fn is_built(self) -> bool {
        matches!(self, Kind::Terrace | Kind::Persistent | Kind::BTreeMap)
            || cfg!(feature = "peer-indexes")
    }

    /// Whether it takes keys of so many bytes.
    pub(crate) fn takes(self, key: usize) -> bool {
        self != Kind::Congee || key == 8
    }

    /// An empty index for keys of `N` bytes.
    pub(crate) fn create<const N: usize>(self, arena: &Arena) -> Result<Box<dyn OffsetIndex>> {
        match self {
            Kind::Terrace => Ok(terrace::create(arena)),
            Kind::Persistent => persistent::create(arena),
            Kind::BTreeMap => Ok(locked::create::<N>()),
            #[cfg(feature = "peer-indexes")]
            _ => Ok(peers::create::<N>(self)),
            #[cfg(not(feature = "peer-indexes"))]
            _ => bail!("{} is not built in; see `cargo xtask peers`", self.name()),
        }
    }
}

/// The sequence number of every record.
const SEQ: u64 = 1;

/// A key as the indexes that keep keys have it.
fn array<const N: usize>(key: &[u8]) -> [u8; N] {
    key.try_into().expect("keys have the length of their case")
}
