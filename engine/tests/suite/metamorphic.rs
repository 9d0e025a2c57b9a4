//! The same operations under other options give the same answers: group batches, streams,
//! compression, values beside their keys or apart, sizes of the region, its zones, the cache and
//! level 1, how soon is drained, and the mode: on simulated machines, on real files, and on a
//! mapped region.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::time::Duration;

use crate::calls;
use crate::common::content::{Content, Effect, read_all};
use crate::common::cuts::{Kind, PATH, Rig, lies_apart};
use crate::common::workload::{Action, Taste, next};
use crate::common::{Chance, rounds, tiny};
use crate::per_core;
use terrace::{CommitTuning, Compression, Index, Level0Container, Mode, Options};

/// So many actions come and go with tables, and are followed by those that fill them.
const FIRST: usize = 100;
const ACTIONS: usize = 2000;

/// Actions, each possible after those before. After the first ones no table is emptied, so that
/// rows go down to level 2 and deeper.
fn script(seed: u64) -> (Vec<Action>, Content) {
    let mut rig = Rig::new(Kind::Files, seed, None);
    let first =
        Taste { relaxed: 50, tables: 4, steps: 25, value: 9000, keys: 150, ranges: 4, syncs: 0 };
    let (mut chance, mut actions) = (Chance::new(seed), Vec::new());
    for n in 0..ACTIONS {
        let missing =
            ["a", "b", "c", "d"].into_iter().find(|name| !rig.content.0.contains_key(*name));
        let action = match missing {
            Some(name) if n >= FIRST => Action::Table(Effect::Create(name.into())),
            _ if n >= FIRST => next(&mut chance, &Taste { tables: 0, ..first }, &rig.content),
            _ => next(&mut chance, &first, &rig.content),
        };
        rig.perform(&action);
        actions.push(action);
    }
    (actions, rig.content)
}

/// What a variant has to have made on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Rows in level 2, and values apart where they are to be.
    Level2,
    /// Nothing more: the region, or level 1, has room for all rows.
    Any,
}

/// What has lain on disk at some time.
#[derive(Debug, Default)]
struct Reached {
    level2: bool,
    /// Tombstones of ranges: a compaction to the bottom takes them away.
    ranges: bool,
    values_apart: bool,
}

impl Reached {
    fn look(&mut self, db: &terrace::Database) {
        for table in db.stats().tables {
            self.values_apart |= table.value_extents > 0;
            for of in &table.levels {
                self.level2 |= of.level >= 2 && of.records > 0;
                self.ranges |= of.range_deletes > 0;
            }
        }
    }
}

/// How the operations are done.
struct Variant {
    name: &'static str,
    options: Options,
    /// A simulated machine, or a directory.
    on: On,
    /// Background jobs for each that the script asks for.
    pace: u64,
    /// Of which tables values lie apart.
    apart: fn(&str) -> bool,
    reach: Reach,
}

#[derive(Clone, Copy)]
enum On {
    Machine(Kind),
    Directory,
}

const FILES: On = On::Machine(Kind::Files);
const MEMORY: On = On::Machine(Kind::Memory);
const INDEX: On = On::Machine(Kind::Index);
const FULL_INDEX: On = On::Machine(Kind::FullIndex);
const MIXED: On = On::Machine(Kind::Mixed);

/// What the options may be, apart from each other.
fn variants() -> Vec<Variant> {
    let tuned = |tuning| tiny().commit_tuning(tuning);
    let one_stream = CommitTuning::new().own_streams(0);
    let bounded = CommitTuning::new().group_batches(64).group_bytes(4096);
    let emulated = Mode::Emulated { delay: Duration::ZERO };
    let apart = lies_apart;
    let variant = |(name, on, options)| {
        let reach = match name {
            "flat" | "large zones" => Reach::Any,
            _ => Reach::Level2,
        };
        Variant { name, options, on, pace: 1, apart, reach }
    };
    let usual = [
        ("as usual", FILES, tiny()),
        ("memory", MEMORY, tiny()),
        ("real files", On::Directory, tiny()),
        ("mapped", On::Directory, tiny().mode(emulated)),
        ("index", INDEX, tiny()),
        ("full index", FULL_INDEX, tiny()),
        ("mapped index", On::Directory, tiny().mode(emulated).index(Index::Persistent)),
        ("one stream", MEMORY, tuned(one_stream)),
        ("streams in files", FILES, tuned(CommitTuning::new().own_streams(8))),
        ("small groups", FILES, tuned(bounded)),
        ("large zones", MEMORY, tiny().pm_size(16 << 20)),
        ("odd region", FILES, tiny().pm_size((3 << 20) + 4097)),
        ("no cache", FILES, tiny().cache_size(0)),
        ("large cache", MEMORY, tiny().cache_size(64 << 20)),
        ("flat", FILES, tiny().level1_size(1 << 30)),
        ("as it is", FILES, tiny().compression(Compression::None, Compression::None)),
        ("small", MEMORY, tiny().compression(Compression::Zstd, Compression::Lz4)),
        ("deep", MEMORY, tiny().level1_size(16 << 10)),
        ("matrix", FILES, tiny().level0_of_all(Level0Container::Matrix)),
        ("matrix in memory", MEMORY, tiny().level0_of_all(Level0Container::Matrix)),
        ("triangle", FILES, tiny().level0_of_all(Level0Container::Triangle)),
        ("a container for each table", MIXED, tiny()),
        ("triangle in memory", MEMORY, tiny().level0_of_all(Level0Container::Triangle)),
    ];
    let paced = [("late", 0), ("eager", 8)].map(|(name, pace)| Variant {
        name,
        options: tiny(),
        on: MEMORY,
        pace,
        apart,
        reach: Reach::Level2,
    });
    let reach = Reach::Level2;
    let values = |name, apart| Variant { name, options: tiny(), on: FILES, pace: 3, apart, reach };
    let values = [values("apart", |_| true), values("together", |_| false)];
    usual.into_iter().map(variant).chain(paced).chain(values).collect()
}

/// Does the operations one way, and holds what is there against `want`.
fn check(variant: Variant, seed: u64, (actions, want): (&[Action], &Content)) {
    let Variant { name, options, on, pace, apart, reach } = variant;
    let directory = tempfile::tempdir().unwrap();
    let (kind, path, options) = match on {
        On::Machine(kind) => (kind, PATH.into(), options.machine(&kind.machine())),
        On::Directory => {
            let options = options.pm_path(directory.path().join("region"));
            (Kind::Files, directory.path().join("db"), options)
        }
    };
    let options = options.stepped();
    let mut rig = Rig::new(kind, seed, None);
    rig.db = options.clone().create(&path).unwrap();
    rig.apart = apart;
    let mut reached = Reached::default();
    for action in actions {
        match action {
            Action::Steps(n) => {
                for _ in 0..n * pace {
                    rig.steps(1);
                    reached.look(&rig.db);
                }
            }
            action => rig.perform(action),
        }
        reached.look(&rig.db);
    }
    let same = |db: &terrace::Database, when: &str| {
        let differs = read_all(db).unwrap().differs_from(want);
        assert_eq!(differs, None, "{name}, seed {seed}, {when}");
        for (table, rows) in &want.0 {
            let table = db.existing_table(table).unwrap();
            let key = |n: usize| rows.keys().nth(n).cloned().unwrap_or_default();
            calls::check(db, &table, rows, (key(rows.len() / 3), key(rows.len() / 2)));
        }
        per_core::check(db, want);
    };
    same(&rig.db, "at the end");
    if reach == Reach::Level2 {
        let wants_apart = want.0.keys().any(|table| apart(table));
        assert!(reached.level2 && reached.ranges, "{name}: {reached:?}");
        assert_eq!(reached.values_apart, wants_apart, "{name}: {reached:?}");
    }
    while rig.db.step().unwrap() {}
    same(&rig.db, "at rest");
    drop(rig);
    same(&options.open(&path).unwrap(), "opened again");
}

#[test]
fn other_options_give_the_same_answers() {
    for seed in 0..rounds(1, 40) {
        let (actions, want) = script(seed);
        for variant in variants() {
            check(variant, seed, (&actions, &want));
        }
    }
}
