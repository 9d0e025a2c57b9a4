//! The same operations under other options give the same answers: group batches, streams,
//! compression, sizes of the region, the cache and level 1, and the kind of machine.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod common;

use common::content::{Content, read_all};
use common::cuts::{Kind, PATH, Rig};
use common::workload::{Action, Taste, next};
use common::{Chance, rounds, tiny};
use terrace::{CommitTuning, Compression, Options};

/// A hundred actions or so, each possible after those before.
fn script(seed: u64) -> (Vec<Action>, Content) {
    let mut rig = Rig::new(Kind::Files, seed, None);
    let taste = Taste { relaxed: 50, tables: 4, steps: 25, value: 9000, keys: 150 };
    let (mut chance, mut actions) = (Chance::new(seed), Vec::new());
    for _ in 0..250 {
        let action = next(&mut chance, &taste, &rig.content);
        rig.perform(&action);
        actions.push(action);
    }
    (actions, rig.content)
}

/// What the options may be, apart from each other.
fn variants() -> Vec<(&'static str, Kind, Options)> {
    let tuned = |tuning| tiny().commit_tuning(tuning);
    let one_stream = CommitTuning::new().own_streams(0);
    let bounded = CommitTuning::new().group_batches(64).group_bytes(4096);
    vec![
        ("as usual", Kind::Files, tiny()),
        ("memory", Kind::Memory, tiny()),
        ("one stream", Kind::Memory, tuned(one_stream)),
        ("streams in files", Kind::Files, tuned(CommitTuning::new().own_streams(8))),
        ("small groups", Kind::Files, tuned(bounded)),
        ("large region", Kind::Memory, tiny().pm_size(16 << 20)),
        ("odd region", Kind::Files, tiny().pm_size((3 << 20) + 4097)),
        ("no cache", Kind::Files, tiny().cache_size(0)),
        ("large cache", Kind::Memory, tiny().cache_size(64 << 20)),
        ("flat", Kind::Files, tiny().level1_size(1 << 30)),
        ("as it is", Kind::Files, tiny().compression(Compression::None, Compression::None)),
        ("small", Kind::Memory, tiny().compression(Compression::Zstd, Compression::Lz4)),
        ("deep", Kind::Memory, tiny().level1_size(16 << 10)),
    ]
}

#[test]
fn other_options_give_the_same_answers() {
    for seed in 0..rounds(4, 200) {
        let (actions, want) = script(seed);
        for (name, kind, options) in variants() {
            let machine = kind.machine();
            let options = options.stepped().machine(&machine);
            let mut rig = Rig::new(kind, seed, None);
            rig.db = options.clone().create(PATH).unwrap();
            actions.iter().for_each(|action| rig.perform(action));
            let same = |db: &terrace::Database, when: &str| {
                let differs = read_all(db).unwrap().differs_from(&want);
                assert_eq!(differs, None, "{name}, seed {seed}, {when}");
            };
            same(&rig.db, "at the end");
            while rig.db.step().unwrap() {}
            same(&rig.db, "at rest");
            drop(rig);
            same(&options.open(PATH).unwrap(), "opened again");
        }
    }
}
