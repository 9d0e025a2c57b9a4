//! The same operations under other options give the same answers: group batches, streams,
//! compression, values beside their keys or apart, sizes of the region, its zones, the cache and
//! level 1, how soon is drained, and the mode: on simulated machines, on real files, and on a
//! mapped region.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::time::Duration;

use crate::calls;
use crate::common::content::{Content, read_all};
use crate::common::cuts::{Kind, PATH, Rig, lies_apart};
use crate::common::workload::{Action, Taste, next};
use crate::common::{Chance, rounds, tiny};
use crate::per_core;
use terrace::{CommitTuning, Compression, Index, Level0Container, Mode, Options};

/// A hundred actions or so, each possible after those before.
fn script(seed: u64) -> (Vec<Action>, Content) {
    let mut rig = Rig::new(Kind::Files, seed, None);
    let taste =
        Taste { relaxed: 50, tables: 4, steps: 25, value: 9000, keys: 150, ranges: 2, syncs: 0 };
    let (mut chance, mut actions) = (Chance::new(seed), Vec::new());
    for _ in 0..250 {
        let action = next(&mut chance, &taste, &rig.content);
        rig.perform(&action);
        actions.push(action);
    }
    (actions, rig.content)
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
}

#[derive(Clone, Copy)]
enum On {
    Machine(Kind),
    Directory,
}

const FILES: On = On::Machine(Kind::Files);
const MEMORY: On = On::Machine(Kind::Memory);
const INDEX: On = On::Machine(Kind::Index);
const MIXED: On = On::Machine(Kind::Mixed);

/// What the options may be, apart from each other.
fn variants() -> Vec<Variant> {
    let tuned = |tuning| tiny().commit_tuning(tuning);
    let one_stream = CommitTuning::new().own_streams(0);
    let bounded = CommitTuning::new().group_batches(64).group_bytes(4096);
    let emulated = Mode::Emulated { delay: Duration::ZERO };
    let apart = lies_apart;
    let variant = |(name, on, options)| Variant { name, options, on, pace: 1, apart };
    let usual = [
        ("as usual", FILES, tiny()),
        ("memory", MEMORY, tiny()),
        ("real files", On::Directory, tiny()),
        ("mapped", On::Directory, tiny().mode(emulated)),
        ("index", INDEX, tiny()),
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
        ("copies", FILES, tiny().sorted_copy_level0()),
        ("copies in memory", MEMORY, tiny().sorted_copy_level0()),
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
    });
    let values = |name, apart| Variant { name, options: tiny(), on: FILES, pace: 3, apart };
    let values = [values("apart", |_| true), values("together", |_| false)];
    usual.into_iter().map(variant).chain(paced).chain(values).collect()
}

/// Does the operations one way, and holds what is there against `want`.
fn check(variant: Variant, seed: u64, (actions, want): (&[Action], &Content)) {
    let Variant { name, options, on, pace, apart } = variant;
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
    for action in actions {
        match action {
            Action::Steps(n) => rig.perform(&Action::Steps(n * pace)),
            action => rig.perform(action),
        }
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
    while rig.db.step().unwrap() {}
    same(&rig.db, "at rest");
    drop(rig);
    same(&options.open(&path).unwrap(), "opened again");
}

#[test]
fn other_options_give_the_same_answers() {
    for seed in 0..rounds(4, 200) {
        let (actions, want) = script(seed);
        for variant in variants() {
            check(variant, seed, (&actions, &want));
        }
    }
}
