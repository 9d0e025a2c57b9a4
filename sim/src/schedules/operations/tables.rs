//! Tables that are made, emptied, renamed, changed and dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use terrace::{Durability, Result, TableOptions};

use super::super::caller::Caller;
use super::super::ledger::EMPTIES;
use super::super::rows::{
    APART, LONG, NAME, OPTIONS, OWN_TABLES, ROWS, empty, key, own_table, value,
};
use super::Operation;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("truncate", 3, truncate),
    Operation::new("create", 4, create),
    Operation::new("rename", 3, rename),
    Operation::new("change options", 3, change_options),
    Operation::new("drop", 3, drop_own),
    Operation::new("put elsewhere", 4, put_elsewhere),
];

fn truncate(caller: &mut Caller, _from: u64) -> Result<()> {
    let (callers, ledger) = (caller.world.callers, caller.world.ledger.clone());
    caller.write(
        format!("{} {APART}", EMPTIES[0]),
        Durability::Durable,
        |_| empty(APART, callers, &ledger),
        |caller, _| caller.db.truncate_table(APART),
    )
}

fn own_of(caller: &Caller) -> &'static str {
    OWN_TABLES[caller.number]
}

/// Creates the caller's own table, or puts rows there.
fn create(caller: &mut Caller, _from: u64) -> Result<()> {
    let own = own_of(caller);
    if let Some((name, _)) = own_table(&caller.db, own) {
        let place = (own, key(caller.number, caller.chance.below(ROWS)));
        let at = place.clone();
        return caller.write(
            format!("put in {name}"),
            Durability::Durable,
            |stamp| BTreeMap::from([(place, Some(stamp))]),
            |caller, stamp| caller.db.existing_table(&name)?.put(&at.1, value(stamp, 10)),
        );
    }
    let apart = caller.chance.percent(50);
    caller.write(
        format!("create {own}"),
        Durability::Durable,
        |stamp| BTreeMap::from([((own, NAME.to_vec()), Some(stamp))]),
        |caller, stamp| {
            let options = TableOptions::new();
            let options = if apart { options.large_values(600) } else { options };
            caller.db.create_table(&format!("{own}/{stamp}"), options).map(drop)
        },
    )
}

/// The name has the stamp of the write that gave it.
fn rename(caller: &mut Caller, _from: u64) -> Result<()> {
    let own = own_of(caller);
    let Some((name, _)) = own_table(&caller.db, own) else { return Ok(()) };
    caller.write(
        format!("rename {name}"),
        Durability::Durable,
        |stamp| BTreeMap::from([((own, NAME.to_vec()), Some(stamp))]),
        |caller, stamp| caller.db.rename_table(name.as_str(), &format!("{own}/{stamp}")),
    )
}

/// The time to live has the stamp.
fn change_options(caller: &mut Caller, _from: u64) -> Result<()> {
    let own = own_of(caller);
    let Some((name, _)) = own_table(&caller.db, own) else { return Ok(()) };
    let blocks = caller.chance.percent(50);
    caller.write(
        format!("change the options of {name}"),
        Durability::Durable,
        |stamp| BTreeMap::from([((own, OPTIONS.to_vec()), Some(stamp))]),
        |caller, stamp| {
            caller.db.change_table_options(name.as_str(), |options| {
                let options = options.ttl(Duration::from_secs(LONG + stamp));
                Ok(if blocks { options.block_size(8192) } else { options })
            })
        },
    )
}

fn drop_own(caller: &mut Caller, _from: u64) -> Result<()> {
    let own = own_of(caller);
    let Some((name, _)) = own_table(&caller.db, own) else { return Ok(()) };
    let (callers, ledger) = (caller.world.callers, caller.world.ledger.clone());
    caller.write(
        format!("{} {name}", EMPTIES[1]),
        Durability::Durable,
        |_| {
            let mut changes = empty(own, callers, &ledger);
            changes.extend([NAME, OPTIONS].map(|key| ((own, key.to_vec()), None)));
            changes
        },
        |caller, _| caller.db.drop_table(name.as_str()),
    )
}

/// Puts a row in the own table of another caller, which may drop or rename it meanwhile.
fn put_elsewhere(caller: &mut Caller, from: u64) -> Result<()> {
    let other = OWN_TABLES[caller.chance.below(caller.world.callers as u64) as usize];
    let Some((name, _)) = own_table(&caller.db, other) else { return Ok(()) };
    let Ok(table) = caller.db.existing_table(&name) else { return Ok(()) };
    let place = (other, key(caller.number, caller.chance.below(ROWS)));
    let (at, durability) = (place.clone(), caller.durability());
    let put = caller.write(
        format!("put in {name} of another, {durability:?}"),
        durability,
        |stamp| BTreeMap::from([(place, Some(stamp))]),
        |_, stamp| table.durability(durability).put(&at.1, value(stamp, 10)),
    );
    match put {
        Err(error) if caller.is_of_emptying(&error, other, from) => Ok(()),
        done => done,
    }
}
