//! In some runs what a cut has left is salvaged before it is opened. Nothing is damaged, so both
//! have to find the same.

use std::collections::BTreeSet;

use terrace::testing::Machine;
use terrace::{Result, SalvageReport};

use super::ledger::{Ledger, State};
use super::rows::{read_all, read_more, shown};
use super::world::World;
use crate::machines::PATH;
use crate::violation::Class;

/// One seed of so many: a salvage writes real files.
const ONE_OF: u64 = 8;

/// What a salvage of the machine finds, with all that callers have written. The machine stays as
/// it is. No task of a run may be under way.
pub(super) fn found(world: &World) -> Option<State> {
    let is_meant = (world.seed / 3).is_multiple_of(ONE_OF) && !world.is_shared;
    if !is_meant || world.ledger.is_empty() {
        return None;
    }
    let name = format!("terrace-salvaged-{}-{}", std::process::id(), world.seed);
    let to = std::env::temp_dir().join(name);
    let found = salvage(world, &world.machine.kill(), &to);
    // Another run of this process takes the same name.
    let removed = std::fs::remove_dir_all(&to);
    let told = found.inspect_err(|error| {
        let what = format!("a salvage after a cut: {error}, {removed:?}");
        world.ledger.violate(Class::Refused.violation(what));
    });
    told.ok()
}

fn salvage(world: &World, image: &Machine, to: &std::path::Path) -> Result<State> {
    let options = crate::tiny().machine(image).clock(&world.clock);
    let report = options.salvage(PATH, to)?;
    judge(&world.ledger, &report);
    let db = crate::tiny().clock(&world.clock).open_existing(to)?;
    let mut state = read_all(&db, world.callers, &world.ledger)?;
    state.extend(read_more(&db)?);
    db.close()?;
    Ok(state)
}

/// Holds two states against each other that have to be equal.
pub(super) fn compare(ledger: &Ledger, first: (&str, &State), second: (&str, &State)) {
    let places: BTreeSet<_> = first.1.keys().chain(second.1.keys()).collect();
    for place in places {
        // The later one names places that were written since.
        let [one, other] = [first.1, second.1].map(|state| state.get(place).copied().flatten());
        if one != other {
            let (place, first, second) = (shown(place), first.0, second.0);
            let what = format!("{place}: {first} {one:?}, {second} {other:?}");
            ledger.violate(Class::Changed.violation(what));
        }
    }
}

/// Transactions that are prepared are the one thing that is not in the new database. What a cut has
/// torn is told too, as what may never have been committed.
fn judge(ledger: &Ledger, report: &SalvageReport) {
    // The second is a record, the third what lies behind one that is not there at all, the fourth
    // the floor slot that was written.
    let told = ["prepared", "never committed", "never have been committed", "has torn it"];
    let may_be = |what: &str| told.iter().any(|text| what.contains(text));
    let lost = report.lost.iter().filter(|damage| !may_be(&damage.to_string()));
    let lost: Vec<String> = lost.map(ToString::to_string).collect();
    if !lost.is_empty() {
        ledger.violate(Class::Damaged.violation(format!("a salvage after a cut: {lost:?}")));
    }
}
