//! What is done with an object store, on a machine that has one in reach.

use terrace::{ObjectServer, Result, Tier};

use super::super::caller::Caller;
use super::{Operation, upkeep};
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::with_bucket("change tier", 3, change_tier),
    Operation::with_bucket("collect objects", 2, collect_objects),
    Operation::with_bucket("check objects", 1, check_objects),
    Operation::with_bucket("backup to a bucket", 2, backup_to_bucket),
];

/// Has the cold levels of a table lie elsewhere.
fn change_tier(caller: &mut Caller, _from: u64) -> Result<()> {
    let (name, to_store) = (caller.any_table(), caller.chance.percent(60));
    if !caller.world.has_bucket() {
        return Ok(());
    }
    let to = if to_store { Tier::Object } else { Tier::Ssd };
    caller.note(&format!("{name} goes to {to:?}"));
    caller.db.set_cold_tier(name, to)
}

/// Deletes what no edit names. Nothing that one names may be missing.
fn collect_objects(caller: &mut Caller, _from: u64) -> Result<()> {
    look(caller, "collect objects", |caller| caller.db.collect_objects().map(|found| found.lost))
}

fn check_objects(caller: &mut Caller, _from: u64) -> Result<()> {
    look(caller, "check objects", |caller| caller.db.check_object_store().map(|found| found.lost))
}

fn look(
    caller: &Caller,
    what: &str,
    look: impl FnOnce(&Caller) -> Result<Vec<String>>,
) -> Result<()> {
    if !caller.world.has_bucket() {
        return Ok(());
    }
    caller.note(what);
    let lost = look(caller)?;
    if !lost.is_empty() {
        let what = format!("lost objects: {lost:?} by {what}");
        caller.world.ledger.violate(Class::Damaged.violation(what));
    }
    Ok(())
}

/// As a backup in files, and the bucket is of it alone.
fn backup_to_bucket(caller: &mut Caller, from: u64) -> Result<()> {
    let bucket = ObjectServer::new();
    upkeep::backup_to(caller, from, bucket.url())
}
