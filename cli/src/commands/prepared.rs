//! `prepared`: transactions that wait for their verdict.

use terrace::PreparedInfo;

use crate::args::PreparedCommand;
use crate::failure::{Failure, Outcome};
use crate::output::JsonBytes;
use crate::session::Session;
use crate::text::counted;

/// Lists prepared transactions, commits one, or rolls one back.
pub(crate) fn run(session: &mut Session, command: &PreparedCommand) -> Result<Outcome, Failure> {
    let encoding = session.output.encoding;
    let (name, commits) = match command {
        PreparedCommand::List => return list(session),
        PreparedCommand::Commit(of) => (encoding.parse_name(&of.name)?, true),
        PreparedCommand::Rollback(of) => (encoding.parse_name(&of.name)?, false),
    };
    let database = session.change()?;
    match commits {
        true => database.commit_prepared(&name)?,
        false => database.roll_back_prepared(&name, terrace::Durability::Durable)?,
    }
    let done = if commits { "committed" } else { "rolled back" };
    let done = format!("transaction `{}` is {done}", encoding.name(&name));
    database.close().map_err(Failure::closing(&done))?;
    session.output.remark(&done);
    Ok(Outcome::Good)
}

fn list(session: &mut Session) -> Result<Outcome, Failure> {
    let transactions = session.read()?.list_prepared();
    let output = &mut session.output;
    let encoding = output.encoding;
    if output.json {
        let object = |it: &PreparedInfo| {
            let (name, id) = (encoding.name(&it.id), JsonBytes::new(encoding, &it.id));
            serde_json::json!({ "name": name, "id": id, "writes": it.writes, "locks": it.locks })
        };
        output.object(&transactions.iter().map(object).collect::<Vec<_>>())?;
        return Ok(Outcome::Good);
    }
    for PreparedInfo { id, writes, locks, .. } in transactions {
        let writes = counted(writes, "write", "writes");
        let locks = counted(locks, "lock", "locks");
        output.line(&format!("{}\t{writes}\t{locks}", encoding.name(&id)))?;
    }
    Ok(Outcome::Good)
}
