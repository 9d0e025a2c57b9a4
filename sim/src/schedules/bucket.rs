//! The object store of a run: what becomes of its requests, and what is left there at rest.

use std::time::Duration;

use terrace::testing::{Machine, schedule};
use terrace::{Database, ObjectServer, Result, StoreFault};

use super::ledger::Ledger;
use crate::Chance;
use crate::violation::Class;

/// What befalls requests. Each is made again, so no caller hears of it.
const FAULTS: [StoreFault; 9] = [
    StoreFault::LoseRequest,
    StoreFault::LoseAnswer,
    StoreFault::Delay(2),
    StoreFault::Delay(20),
    StoreFault::Repeat(5),
    StoreFault::Throttle,
    StoreFault::Shorten,
    StoreFault::Garble,
    StoreFault::Stale(5),
];

/// Of so many requests some fail.
const REQUESTS: u64 = 400;
/// How far away the store is, if it is: a first byte takes so long, and a second has so many bytes.
pub(super) const DISTANCE: (Duration, u64) = (Duration::from_millis(5), 20_000_000);
/// What is to be deleted is deleted within this time.
const LONGEST_DELETION: Duration = Duration::from_mins(2);
const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// In half of the runs each tenth request fails.
pub(super) fn plan_faults(machine: &Machine, seed: u64) {
    let mut chance = Chance::new(seed ^ 0x00B0_C7E7);
    let Some(store) = ObjectServer::of_machine(machine).filter(|_| chance.percent(50)) else {
        return;
    };
    for request in (1..REQUESTS).filter(|_| chance.percent(10)).collect::<Vec<_>>() {
        store.plan(request, *chance.pick(&FAULTS));
    }
}

/// No request fails any more, and none is on its way.
pub(super) fn mend(machine: &Machine) {
    if let Some(store) = ObjectServer::of_machine(machine) {
        store.forget_plans();
        store.deliver();
    }
}

/// The store has all objects that a database needs, and soon no others of it, where no call is
/// under way.
pub(super) fn judge(
    db: &Database,
    machine: &Machine,
    (ledger, who): (&Ledger, &str),
) -> Result<()> {
    if machine.store_url().is_none() {
        return Ok(());
    }
    mend(machine);
    db.collect_objects()?;
    let since = schedule::now();
    loop {
        let report = db.check_object_store()?;
        if !report.lost.is_empty() {
            ledger.violate(Class::Damaged.violation(format!("{report:?} {who}")));
        }
        if report.left.is_empty() {
            return Ok(());
        }
        if schedule::now() - since > LONGEST_DELETION {
            ledger.violate(Class::Leaked.violation(format!("{report:?} {who}")));
            return Ok(());
        }
        schedule::pause(LOOKS_AGAIN);
    }
}
