//! The end of a database, and its next opening.

use terrace::Result;

use super::super::caller::Caller;
use super::super::rows::TABLES;
use super::Operation;
use crate::violation::Class;

pub(super) const OPERATIONS: &[Operation] = &[Operation::new("close and open", 2, close_and_open)];

/// The closing of a caller that does nothing more.
pub(crate) static CLOSE: Operation = Operation::new("close", 0, close);

fn close(caller: &mut Caller, _from: u64) -> Result<()> {
    caller.note("close");
    caller.world.closing(caller.life);
    let closed = caller.db.clone().close();
    if closed.is_err() {
        caller.world.stopped();
    }
    closed
}

/// Any caller may close, several at once. Nothing is written afterwards, and the first that comes
/// back opens.
fn close_and_open(caller: &mut Caller, from: u64) -> Result<()> {
    close(caller, from)?;
    let ledger = caller.world.ledger.clone();
    match caller.db.existing_table(TABLES[0]) {
        Err(error) if error.kind() == terrace::ErrorKind::Closed => {}
        other => {
            let what = format!("a closed database tells {:?}", other.map(|table| table.name()));
            ledger.violate(Class::WrongError.violation(what));
        }
    }
    let Some((life, db)) = caller.world.open_again(caller.life)? else { return Ok(()) };
    caller.note("open");
    (caller.life, caller.db) = (life, db);
    Ok(())
}
