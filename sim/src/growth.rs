//! A region whose growth fails at a sync: what is acknowledged afterwards survives a cut that
//! leaves nothing but what was synced.
//!
//! The failed sync covers commits that no sync has covered yet, and the operating system reports
//! it once. So the database has to stop, or the next sync acknowledges bytes that are not there.

use terrace::testing::{Failpoint, Survive};
use terrace::{Durability, ErrorKind};

use crate::cuts::{Kind, PATH, options};
use crate::violation::{Class, Violation};

/// Commits that no sync has covered when the region grows.
const RELAXED: u64 = 4;

/// Writes without a sync, has the growth's sync fail, writes with a sync, and cuts the power. The
/// seed decides which sync of the growth fails, and how large the rows are.
pub fn check(seed: u64, failpoint: Option<Failpoint>) -> Result<(), Violation> {
    let machine = Kind::Files.machine();
    let refused = |e: terrace::Error| Class::Refused.violation(e);
    let db = options(&machine, failpoint).create(PATH).map_err(refused)?;
    let table = db.table("t").map_err(refused)?;
    table.put("first", "there").map_err(refused)?;
    let row = vec![7; 100 + (seed as usize % 8) * 5000];
    for n in 0..RELAXED {
        table.durability(Durability::Relaxed).put([n as u8], &row).map_err(refused)?;
    }
    machine.fail_sync_after(1 + seed % 2);
    let grown = db.grow_pm(5 << 20);
    let last = table.put("last", "there");
    match last.as_ref().map_err(terrace::Error::kind) {
        Ok(()) | Err(ErrorKind::Unavailable | ErrorKind::UnknownOutcome) => {}
        Err(kind) => {
            return Err(Class::Refused.violation(format!("a put after {grown:?}: {kind:?}")));
        }
    }
    let cut = machine.crash(Survive::Nothing);
    let found = options(&cut, failpoint).open(PATH).map_err(refused)?;
    let found = found.existing_table("t").map_err(refused)?;
    let is_there = |key: &[u8]| found.get(key).map(|value| value.is_some()).map_err(refused);
    let lost = |what: &str| {
        let outcome = if grown.is_ok() { "succeeded" } else { "failed" };
        Err(Class::Lost.violation(format!("seed {seed}: {what}; the growth {outcome}")))
    };
    if !is_there(b"first")? {
        return lost("the first row is gone");
    }
    // A commit with a sync covers all commits before it.
    if last.is_ok() && !is_there(b"last")? {
        return lost("a row that was acknowledged after the growth is gone");
    }
    for n in (0..RELAXED).filter(|_| last.is_ok()) {
        if !is_there(&[n as u8])? {
            return lost("a row before one that was acknowledged is gone");
        }
    }
    Ok(())
}
