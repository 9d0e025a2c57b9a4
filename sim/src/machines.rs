//! The simulated machines, and how databases are opened on them.

use serde::{Deserialize, Serialize};
use terrace::testing::{Failpoint, HandClock, IndexRoom, Machine};
use terrace::{Level0Container, ObjectServer, Options, TableOptions};

/// Where the path of every simulated database leads.
pub const PATH: &str = "/db";

/// Which simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    Files,
    Memory,
    /// With persistent memory, and the index of level 0 in it.
    Index,
    /// The same, with an index that has room for some records of each table.
    FullIndex,
    /// With persistent memory, and level 0 in a matrix of row tables.
    Matrix,
    /// With level 0 in a triangle of row tables.
    Triangle,
    /// With persistent memory, and a container of level 0 for each table by its name.
    Mixed,
    /// With an object store in reach, where the cold levels of all tables lie.
    Objects,
    /// The same, and the database is shared through the store.
    Shared,
}

/// All of them whose levels lie in files.
pub const ALL_KINDS: [Kind; 7] = [
    Kind::Files,
    Kind::Memory,
    Kind::Index,
    Kind::FullIndex,
    Kind::Matrix,
    Kind::Triangle,
    Kind::Mixed,
];

/// Objects that are longer are written in parts.
const PARTS_FROM: usize = 100_000;

/// Those whose level 0 is the default one.
pub const KINDS: [Kind; 3] = [Kind::Files, Kind::Memory, Kind::Index];

impl Kind {
    pub fn machine(self) -> Machine {
        match self {
            Kind::Files => Machine::with_files(),
            Kind::Memory | Kind::Mixed => Machine::with_memory(),
            Kind::Index => Machine::with_memory().index(true),
            // A segment for nodes, and one for heads: no node can be divided.
            Kind::FullIndex => Machine::with_memory().index(true).option(IndexRoom(1)),
            Kind::Matrix => Machine::with_memory().option(Level0Container::Matrix),
            Kind::Triangle => Machine::with_files().option(Level0Container::Triangle),
            Kind::Objects | Kind::Shared => {
                let store = ObjectServer::new();
                store.parts_from(PARTS_FROM);
                Machine::with_files().with_store(&store)
            }
        }
    }

    /// Whether the region is a file.
    pub fn is_files(self) -> bool {
        matches!(self, Kind::Files | Kind::Triangle | Kind::Objects | Kind::Shared)
    }

    /// Whether it is one of those that differ in nothing but their level 0, of which tests take a
    /// part.
    pub fn is_variant(self) -> bool {
        !matches!(self, Kind::Files | Kind::Memory)
    }
}

/// Options for the rig: tiny, stepped, on `machine`.
pub fn options(machine: &Machine, failpoint: Option<Failpoint>) -> Options {
    // A run does not depend on the time of day.
    let clock = HandClock::default();
    let options = crate::tiny().stepped().machine(machine).clock(&clock);
    match failpoint {
        Some(bug) => options.failpoint(bug),
        None => options,
    }
}

/// In these tables values from 600 bytes on lie apart on disk.
const APART: [&str; 2] = ["b", "d"];

/// Whether values of a table lie apart.
pub fn lies_apart(name: &str) -> bool {
    APART.contains(&name)
}

/// The container of a table's level 0 where tables have several: the tables of a commit lie in all
/// of them.
pub fn mixed_level0(name: &str) -> Level0Container {
    match name.bytes().last().map_or(0, |last| last % 3) {
        // "b"
        2 => Level0Container::Matrix,
        // "c"
        0 => Level0Container::Triangle,
        // "a", "d"
        _ => Level0Container::GlobalIndex,
    }
}

/// What a table is created with whose values lie apart, or do not. Operands are appended.
pub fn table_options(apart: bool) -> TableOptions {
    let options = TableOptions::new().merge_operator(terrace::operators::APPEND);
    if apart { options.large_values(600) } else { options }
}

/// A copy of a machine on which nothing is pending.
pub fn copy(machine: &Machine) -> Machine {
    machine.kill()
}
