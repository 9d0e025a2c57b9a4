//! `backup`, `backups` and `restore`: backups of the database, in a set of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use terrace::BackupInfo;

use crate::args::{BackupArguments, BackupsArguments, RestoreArguments};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::session::Session;
use crate::text::{counted, size};

/// Adds a backup to a set.
pub(crate) fn take(session: &mut Session, arguments: &BackupArguments) -> Result<Outcome, Failure> {
    let database = session.read()?;
    interrupt::on_signals();
    let left = "the set has the backups that it had, and nothing of this one";
    let info = database.backup(&arguments.set).map_err(Failure::stopped(left))?;
    let (done, output) = (format!("backup {} is in the set", info.number), &mut session.output);
    output.done(&done);
    database.close().map_err(Failure::closing(done))?;
    if output.json {
        output.object(&info)?;
        return Ok(Outcome::Good);
    }
    let BackupInfo { number, tables, bytes, added_bytes, .. } = info;
    let tables = counted(tables, "table", "tables");
    let (bytes, added) = (size(bytes), size(added_bytes));
    output.line(&format!("backup {number}: {tables}, {bytes}, {added} of it new"))?;
    Ok(Outcome::Good)
}

/// Lists the backups of a set, checks them, or deletes one.
pub(crate) fn list(
    session: &mut Session,
    arguments: &BackupsArguments,
) -> Result<Outcome, Failure> {
    let set = session.named_options().backup_set(&arguments.set)?;
    if let Some(number) = arguments.delete {
        if !arguments.confirm {
            let why = format!("this deletes backup {number} for good; say --confirm to do it");
            return Err(Failure::Invalid(why));
        }
        set.delete(number)?;
        session.output.remark(&format!("backup {number} is deleted"));
        return Ok(Outcome::Good);
    }
    if arguments.verify {
        interrupt::on_signals();
        return super::verify::told(session, set.verify());
    }
    let (backups, output) = (set.list()?, &mut session.output);
    if output.json {
        output.object(&backups)?;
        return Ok(Outcome::Good);
    }
    for BackupInfo { number, created, tables, bytes, added_bytes, .. } in backups {
        let tables = counted(tables, "table", "tables");
        let (bytes, added) = (size(bytes), size(added_bytes));
        output.line(&format!(
            "{number}\t{}\t{tables}\t{bytes}\t{added} new",
            age(UNIX_EPOCH + Duration::from_secs(created))
        ))?;
    }
    Ok(Outcome::Good)
}

/// Makes a database of a backup.
pub(crate) fn restore(
    session: &mut Session,
    arguments: &RestoreArguments,
) -> Result<Outcome, Failure> {
    let set = session.named_options().backup_set(&arguments.set)?;
    let number = match arguments.number {
        Some(number) => number,
        None => set.list()?.last().map(|last| last.number).ok_or_else(|| {
            let set = arguments.set.display();
            Failure::Invalid(format!("there are no backups in {set}"))
        })?,
    };
    let to = arguments.to.display();
    interrupt::on_signals();
    let left = format!("there is no database in {to}");
    set.restore(number, &arguments.to).map_err(Failure::stopped(left))?;
    session.output.remark(&format!("backup {number} is restored to {to}"));
    Ok(Outcome::Good)
}

/// How long ago something was, in words.
fn age(then: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(then).map_or(0, |age| age.as_secs());
    match seconds {
        0..120 => format!("{seconds} seconds ago"),
        120..7200 => format!("{} minutes ago", seconds / 60),
        7200..172_800 => format!("{} hours ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_words() {
        let of = |seconds| age(SystemTime::now() - Duration::from_secs(seconds));
        assert_eq!(of(7 * 60), "7 minutes ago");
        assert_eq!(of(47 * 3600), "47 hours ago");
        assert_eq!(of(9 * 86_400), "9 days ago");
        assert_eq!(age(SystemTime::now() + Duration::from_secs(60)), "0 seconds ago");
    }
}
