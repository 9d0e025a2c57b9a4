//! Creations and restores in which calls fail, several in a row: each begins with what the one
//! before left.

use terrace::testing::{Call, CallSite, Fault, Faulty, FileKind, Machine, Survive};
use terrace::{ErrorKind, Options, Result};

use super::{Calls, Failing, after};
use crate::backups::SET;
use crate::content::{Content, read_all};
use crate::cuts::{End, PATH, Rig, options};
use crate::disturbed::has_failed;
use crate::run::same;
use crate::violation::{Class, Violation};

/// A path below a directory that the creation makes too.
const BELOW: &str = "/above/db";

/// Where a region lies that is not in the directory of its database.
const REGION: &str = "/pm/region";

/// Where a backup is restored to.
const RESTORED: &str = "/restored";

/// What a creation does only where another one has failed.
const CLEARING: [CallSite; 9] = [
    CallSite { call: Call::List, file: FileKind::Directory },
    CallSite { call: Call::Open, file: FileKind::Marker },
    CallSite { call: Call::Read, file: FileKind::Marker },
    CallSite { call: Call::Remove, file: FileKind::Marker },
    CallSite { call: Call::Read, file: FileKind::Region },
    CallSite { call: Call::Remove, file: FileKind::Region },
    CallSite { call: Call::Remove, file: FileKind::Journal },
    CallSite { call: Call::Remove, file: FileKind::NewJournal },
    CallSite { call: Call::Remove, file: FileKind::Extents },
];

/// What an operation does only where another call has failed.
pub(super) const UNDOING: [CallSite; 3] = [
    CallSite { call: Call::Resize, file: FileKind::Journal },
    CallSite { call: Call::Remove, file: FileKind::NewJournal },
    CallSite { call: Call::Remove, file: FileKind::NewManifest },
];

impl Failing<'_> {
    /// Creations in a row in which a call fails. What one of them left can be opened, and what was
    /// written to it durably is there.
    pub(super) fn create(&mut self) -> std::result::Result<(), Violation> {
        let (kind, failpoint) = (self.run.kind, self.run.failpoint);
        let is_elsewhere = kind.is_files() && self.chance.percent(40);
        let path = *self.chance.pick(&[PATH, BELOW]);
        let opens = |machine: &Machine| {
            let options = options(machine, failpoint);
            if is_elsewhere { options.pm_path(REGION) } else { options }
        };
        let unfaulted = kind.machine();
        write(opens(&unfaulted), path, 0).map_err(|e| Class::Refused.violation(e))?;
        let calls = with_clearing(unfaulted.calls());
        let (mut machine, mut written) = (kind.machine(), Vec::new());
        for n in 0..1 + self.chance.below(4) as u8 {
            self.plan_any(&machine, &calls);
            self.plan_leftovers(&machine, n > 0);
            let done = write(opens(&machine), path, n);
            self.coverage.faults.count(&machine);
            match done {
                Ok(()) => written.push(n),
                Err(e) if may_tell(e.kind()) && has_failed(&machine) => {
                    self.coverage.faults.errors += 1
                }
                // A region elsewhere that is not provably its own is left alone: the message says
                // what to do, and nothing has been written.
                Err(e) if is_in_the_way(&e) && is_elsewhere && written.is_empty() => return Ok(()),
                Err(e) => return Err(Class::WrongError.violation(e)),
            }
            let end = self.any_end();
            machine = after(&machine, end);
        }
        machine.mend();
        for cut in [None, Some(Survive::Seeded(self.run.seed)), Some(Survive::Nothing)] {
            machine = cut.map_or(machine.clone(), |cut| machine.crash(cut));
            match rows(opens(&machine), path) {
                Ok(found) if written.iter().all(|n| found.contains(n)) => {}
                Ok(found) => {
                    let what = format!("rows {written:?} of a new database, {found:?} are there");
                    return Err(Class::Lost.violation(what));
                }
                Err(e) if is_in_the_way(&e) && is_elsewhere && written.is_empty() => return Ok(()),
                Err(e) => return Err(Class::Refused.violation(e)),
            }
        }
        Ok(())
    }

    /// Restores of the newest backup in a row, on a copy of the machine, in which a call fails. One
    /// without faults then has what the backup has.
    pub(super) fn restore(&mut self, rig: &Rig) -> std::result::Result<(), Violation> {
        let found = rig.machine.files_alone().crash(Survive::Everything);
        found.mend();
        let failpoint = self.run.failpoint;
        let newest = |machine: &Machine| {
            let list = options(machine, failpoint).backup_set(SET).ok()?.list().ok()?;
            list.last().map(|info| info.number)
        };
        let Some(number) = newest(&found) else { return Ok(()) };
        let restore = |machine: &Machine| {
            options(machine, failpoint).backup_set(SET)?.restore(number, RESTORED)
        };
        let unfaulted = found.files_alone();
        let restored = restore(&unfaulted).and_then(|()| content(&unfaulted));
        let want = restored.map_err(|e| Class::Backup.violation(e))?;
        let calls = with_clearing(unfaulted.calls());
        let mut machine = found;
        for n in 0..1 + self.chance.below(4) {
            self.plan_any(&machine, &calls);
            self.plan_leftovers(&machine, n > 0);
            let done = restore(&machine);
            self.coverage.faults.count(&machine);
            match done {
                Ok(()) => {}
                Err(e) if may_tell(e.kind()) && has_failed(&machine) => {
                    self.coverage.faults.errors += 1
                }
                // An earlier one was done after all.
                Err(e) if is_done(&e) => break,
                Err(e) => return Err(Class::WrongError.violation(e)),
            }
            let end = self.any_end();
            machine = after(&machine, end);
        }
        machine.mend();
        match restore(&machine) {
            Ok(()) => {}
            Err(e) if is_done(&e) => {}
            Err(e) => return Err(Class::Refused.violation(e)),
        }
        for cut in [None, Some(Survive::Nothing)] {
            machine = cut.map_or(machine.clone(), |cut| machine.crash(cut));
            let found = content(&machine).map_err(|e| Class::Refused.violation(e))?;
            same(&found, &want)?;
        }
        Ok(())
    }

    fn any_end(&mut self) -> End {
        let ways = [Survive::Nothing, Survive::Everything, Survive::Seeded(self.chance.next())];
        if self.chance.percent(50) { End::Kill } else { End::Cut(*self.chance.pick(&ways)) }
    }

    /// A creation that fails leaves its marker, every second time; one behind it, which finds that,
    /// fails in what it clears.
    fn plan_leftovers(&mut self, machine: &Machine, is_behind: bool) {
        if self.chance.percent(50) {
            return;
        }
        let remove = CallSite { call: Call::Remove, file: FileKind::Marker };
        let site = if is_behind { *self.chance.pick(&CLEARING) } else { remove };
        let for_good = !is_behind || self.chance.percent(30);
        machine.fail(Fault { for_good, ..Fault::once(Faulty::Site(site), 1) });
    }

    /// Plans one fault, or two.
    fn plan_any(&mut self, machine: &Machine, calls: &Calls) {
        for _ in 0..1 + self.chance.below(2) {
            self.plan(machine, calls);
        }
    }
}

fn with_clearing(mut calls: Calls) -> Calls {
    for site in CLEARING {
        calls.entry(site).or_insert(1);
    }
    calls
}

/// Whether a failing call may be told so.
fn may_tell(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full | ErrorKind::Unavailable | ErrorKind::UnknownOutcome)
}

fn is_in_the_way(error: &terrace::Error) -> bool {
    error.kind() == ErrorKind::Exists && error.to_string().contains(REGION)
}

/// Whether there is a database already where one is restored to.
fn is_done(error: &terrace::Error) -> bool {
    error.kind() == ErrorKind::Exists && error.to_string().contains("is not empty")
}

/// Opens or creates the database, and writes row `n` durably.
fn write(options: Options, path: &str, n: u8) -> Result<()> {
    options.open(path)?.table("t")?.put([n], [n])
}

/// The numbers of the rows that are there.
fn rows(options: Options, path: &str) -> Result<Vec<u8>> {
    let db = options.open(path)?;
    db.table("t")?.iter().map(|row| row.map(|(key, _)| key[0])).collect()
}

/// What the restored database has.
fn content(machine: &Machine) -> Result<Content> {
    read_all(&options(machine, None).open(RESTORED)?)
}
