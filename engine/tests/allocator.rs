//! The allocator as the whole database uses it: many small tables in a small region, streams of
//! busy tables, and nothing that leaks when the power goes while zones change hands.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

mod common;

use std::collections::BTreeSet;

use common::cuts::{KINDS, PATH, options};
use common::tiny;
use terrace::testing::{Machine, Survive};
use terrace::{CommitTuning, Database, Durability, Options};

#[test]
fn a_thousand_small_tables_share_a_region_of_256_mib() {
    let machine = Machine::with_files();
    let open = || Options::new().machine(&machine).pm_size(256 << 20).open(PATH).unwrap();
    let db = open();
    let tables: Vec<_> = (0..1000).map(|t| db.table(&format!("t{t}")).unwrap()).collect();
    for round in 0..3u32 {
        for (t, table) in tables.iter().enumerate() {
            let key = (round * 1000 + t as u32).to_be_bytes();
            table.put_with(key, [t as u8; 50], Durability::Relaxed).unwrap();
        }
    }
    let pm = db.stats().pm;
    assert!(pm.zones_used <= 3, "3000 rows of 100 bytes in {} zones of 4 MiB", pm.zones_used);
    drop((tables, db));
    let db = open();
    assert_eq!(db.table_names().len(), 1000);
    for t in [0, 1, 500, 999] {
        let table = db.existing_table(&format!("t{t}")).unwrap();
        assert_eq!(table.iter().count(), 3, "table {t}");
    }
}

/// Two busy tables in turn, then neither.
fn write_in_turn(db: &Database, rounds: u32) {
    let tables = ["a", "b"].map(|name| db.table(name).unwrap());
    for n in 0..rounds {
        let table = &tables[(n / 40 % 2) as usize];
        table.put(n.to_be_bytes(), [n as u8; 3000]).unwrap();
        while db.step().unwrap() {}
    }
}

#[test]
fn no_zone_leaks_when_the_power_goes_while_streams_open_and_close() {
    let tuning = CommitTuning::new().own_streams(1);
    for kind in KINDS {
        let (mut cuts, mut streams_seen) = (0, BTreeSet::new());
        for step in (1..).step_by(7) {
            let machine = kind.machine();
            let db = tiny().machine(&machine).commit_tuning(tuning).stepped().open(PATH).unwrap();
            machine.cut_before(step, Survive::Seeded(step));
            write_in_turn(&db, 160);
            streams_seen.insert(db.stats().pm.streams_used);
            let Some(after) = machine.found() else { break };
            cuts += 1;
            let db = options(&after, None).stepped().open(PATH).unwrap();
            assert!(db.verify().unwrap().damages.is_empty(), "step {step}");
            while db.step().unwrap() {}
            let pm = db.stats().pm;
            // Each live zone holds a record, but for the open one and the spare of each stream.
            let most = pm.zones_live + 2 * pm.streams_used;
            assert!(pm.zones_used <= most, "step {step}, {kind:?}: {pm:?}");
        }
        assert!(cuts > 20, "{cuts} cuts");
        assert!(streams_seen.contains(&2), "a busy table had a stream: {streams_seen:?}");
    }
}
