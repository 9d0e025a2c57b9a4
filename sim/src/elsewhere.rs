//! A database whose region lies in another directory: what it acknowledged survives a cut that
//! leaves nothing but what was synced, names among it.

use terrace::testing::{Failpoint, Survive};

use crate::cuts::{Kind, PATH, options};
use crate::violation::{Class, Violation};

/// Where the region lies.
const REGION: &str = "/pm/region";

/// Creates a database, writes to it and cuts the power.
pub fn check(seed: u64, failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let machine = Kind::Files.machine();
    let refused = |e: terrace::Error| Class::Refused.violation(e);
    let open = |machine| options(machine, failpoint).pm_path(REGION).open(PATH).map_err(refused);
    let db = open(&machine)?;
    db.table("t").and_then(|table| table.put("row", "there")).map_err(refused)?;
    let cut = machine.crash(if seed == 0 { Survive::Nothing } else { Survive::Seeded(seed) });
    let found = open(&cut)?.table("t").and_then(|table| table.get("row")).map_err(refused)?;
    match found.as_deref() {
        Some(b"there") => Ok(()),
        found => Err(Class::Lost.violation(format!("seed {seed}: the row is {found:?}"))),
    }
}
