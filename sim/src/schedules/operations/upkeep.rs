//! What an operator does: compactions, checks, growth, backups, bulk loads.

use std::collections::BTreeMap;

use terrace::{Durability, ErrorKind, Existing, Result};

use super::super::caller::{Caller, is_of_isolation};
use super::super::ledger::Seen;
use super::super::rows::{List, ROWS, key, lists_of, read_all, value};
use super::super::run::is_sound;
use super::{Operation, judge_young};
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("compact range", 2, compact_range),
    Operation::new("verify", 1, verify),
    Operation::new("grow", 2, grow),
    Operation::new("backup", 2, backup),
    Operation::new("bulk load", 5, bulk_load),
    Operation::new("statistics", 1, statistics),
];

fn compact_range(caller: &mut Caller, from: u64) -> Result<()> {
    caller.note("compact range");
    let name = caller.any_table();
    let table = caller.db.table(name)?;
    match caller.db.compact_range(&table, ..) {
        Err(error) if caller.is_of_emptying(&error, name, from) => Ok(()),
        done => done.map(drop),
    }
}

fn verify(caller: &mut Caller, _from: u64) -> Result<()> {
    caller.note("verify");
    is_sound(&caller.db, &caller.world, "a caller")
}

fn grow(caller: &mut Caller, _from: u64) -> Result<()> {
    caller.note("grow");
    let bytes = (9 + caller.chance.below(16)) << 18;
    let is_larger = || caller.db.stats().pm.capacity >= bytes;
    match caller.db.grow_pm(bytes) {
        // Another caller has made it larger.
        Err(error) if error.kind() == ErrorKind::Invalid && is_larger() => Ok(()),
        grown => grown.map(drop),
    }
}

fn backup(caller: &mut Caller, from: u64) -> Result<()> {
    let name = format!("/backups of {}", caller.number);
    backup_to(caller, from, &name)
}

/// A backup beside all others is the content at one moment.
pub(super) fn backup_to(caller: &Caller, from: u64, name: &str) -> Result<()> {
    let (ledger, callers) = (caller.world.ledger.clone(), caller.world.callers);
    caller.note("backup");
    let before = lists_of(&caller.db)?.unwrap_or_default();
    let info = caller.db.backup(name)?;
    let to = ledger.now();
    caller.note(&format!("backup {} is made", info.number));
    let restored = format!("/restored {} {}", caller.number, ledger.now());
    // Another machine has the set, and no persistent memory.
    let machine = caller.world.machine.files_alone();
    let restore = || -> Result<()> {
        let options = caller.world.options_on(&machine);
        options.clone().backup_set(name)?.restore(info.number, &restored)?;
        let db = options.open_existing(&restored)?;
        let state = read_all(&db, callers, &ledger)?;
        let seen = caller.world.seen(&caller.db, (from, to));
        ledger.judge(&state, seen, "a backup");
        if let Seen::Read(..) = seen {
            judge_young(&db, &ledger, caller.number)?;
            let lists = lists_of(&db)?.unwrap_or_default();
            // Transactions append to them.
            let has = |(old, new): (&List, &List)| new.1.starts_with(&old.1);
            if !before.iter().zip(&lists).all(has) {
                let what = format!("a backup of {before:?} has {lists:?}");
                ledger.violate(Class::Backup.violation(what));
            }
        }
        db.close()
    };
    match restore() {
        Err(error) if !caller.world.excuses(&error) => {
            ledger.violate(Class::Backup.violation(format!("{} of {name}: {error}", info.number)));
            Ok(())
        }
        done => done,
    }
}

/// All rows of the caller in a table, at once.
fn bulk_load(caller: &mut Caller, from: u64) -> Result<()> {
    let (table, number) = (caller.any_table(), caller.number);
    let len = caller.chance.below(caller.largest);
    let existing = if caller.chance.percent(80) { Existing::Replace } else { Existing::Refuse };
    let loaded = caller.write(
        format!("bulk load of {table}, {existing:?}"),
        Durability::Durable,
        |stamp| (0..ROWS).map(|row| ((table, key(number, row)), Some(stamp))).collect(),
        |caller, stamp| {
            let mut load = caller.db.table(table)?.bulk_load(existing)?;
            for row in 0..ROWS {
                load.put(key(number, row), value(stamp, len))?;
            }
            load.finish()
        },
    );
    match loaded {
        Err(error) if is_of_isolation(&error) => Ok(()),
        Err(error) if caller.is_of_emptying(&error, table, from) => Ok(()),
        // A row was there.
        Err(error) if error.kind() == ErrorKind::Exists && existing == Existing::Refuse => Ok(()),
        other => other,
    }
}

fn statistics(caller: &mut Caller, _from: u64) -> Result<()> {
    let stats = caller.db.stats();
    let _all: BTreeMap<String, u32> =
        stats.tables.into_iter().map(|table| (table.name, table.id)).collect();
    caller.db.transactions();
    caller.db.oldest_snapshot_age();
    Ok(())
}
