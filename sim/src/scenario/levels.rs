//! A database with rows on disk, which half of the runs begin with.

use terrace::Database;
use terrace::Durability::Relaxed;

use super::{MOST_JOBS, small};
use crate::content::Effect;
use crate::cuts::{Kind, Rig};
use crate::workload::Action;

/// Tables with rows, and one whose rows push those of the others down.
const TABLES: [&str; 2] = ["a", "b"];
const FILLER: &str = "filler";

/// Two tables with rows in level 2 and above it, values of one of them apart, and range tombstones
/// over some; closed.
pub fn with_levels(kind: Kind) -> Rig {
    let mut rig = Rig::new(kind, 9, None);
    small(&mut rig);
    for table in TABLES {
        (0..45).for_each(|n| rig.put(table, &format!("row {n:02}"), 3000, Relaxed));
        rig.compact(table);
        let delete =
            Effect::DeleteRange(table.into(), b"row 20".to_vec(), Some(b"row 28".to_vec()));
        rig.perform(&Action::Write(vec![delete], Relaxed));
        (15..35).for_each(|n| rig.put(table, &format!("row {n:02}"), 2000, Relaxed));
    }
    rig.create(FILLER);
    for n in 0..MOST_JOBS {
        if TABLES.iter().all(|name| is_deep(&rig.db, name)) {
            break;
        }
        rig.put(FILLER, &format!("row {n}"), 25_000, Relaxed);
        rig.steps(3);
    }
    for name in TABLES {
        assert!(is_deep(&rig.db, name), "rows lie in levels: {:?}", rig.db.stats().tables);
    }
    rig.perform(&Action::Table(Effect::Drop(FILLER.into())));
    rig.close();
    rig
}

/// Whether a table has rows in level 2, rows above them, a range tombstone on disk, and values
/// apart if it is to.
fn is_deep(db: &Database, name: &str) -> bool {
    db.stats().tables.iter().filter(|table| table.name == name).any(|table| {
        let has = |level: u8| table.levels.iter().any(|of| of.level == level && of.records > 0);
        let has_ranges = table.levels.iter().any(|of| of.range_deletes > 0);
        has(1) && has(2) && has_ranges && (table.value_extents > 0) == crate::cuts::lies_apart(name)
    })
}
