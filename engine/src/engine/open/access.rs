//! Whether a process may open a directory: what is in it decides, then the locks.

use std::path::Path;
use std::sync::Arc;

use super::marker::Marker;
use super::media;
use super::presence::{Parts, Presence, look};
use crate::engine::OpenHow;
use crate::error::{Error, Result};
use crate::options::{Failpoint, Making, Options, Storage};
use crate::os::{Access, DirectoryLock, Files, RealFiles};

/// What is found, if an opening may go on with it: a database, or room for one that it may make.
pub(super) fn admit(
    found: Presence,
    directory: &Path,
    (how, making): (OpenHow, Option<Making>),
) -> Result<Presence> {
    let path = directory.display();
    let refusal = match (&found, how) {
        (Presence::NoJournal(parts), _) => return Err(parts.error()),
        (Presence::Foreign(name), _) => format!(
            "{path} holds {name:?} and no Terrace database; name an empty or a new directory"
        ),
        (Presence::Database, OpenHow::Create) => {
            format!("{path} holds a database already; open it, or name another directory")
        }
        // The call that makes it goes on with it.
        (Presence::Unfinished(marker), OpenHow::Existing) if making == Some(marker.making) => {
            return Ok(Presence::Database);
        }
        (Presence::Unfinished(marker), _) if !may_replace(marker, making) => {
            return Err(marker.making.cut_off(directory));
        }
        (Presence::Unfinished(marker), OpenHow::ReadOnly | OpenHow::Existing) => {
            return Err(marker.making.cut_off(directory));
        }
        (Presence::Missing | Presence::Empty, OpenHow::ReadOnly | OpenHow::Existing) => {
            format!("there is no database in {path}")
        }
        _ => return Ok(found),
    };
    Err(Error::invalid(refusal))
}

/// Whether a call that makes a database may replace what another one left: an unfinished creation
/// has no row, and of what it made itself nothing was ever whole.
pub(crate) fn may_replace(left: &Marker, making: Option<Making>) -> bool {
    left.making == Making::Creation || making == Some(left.making)
}

pub(crate) fn files_of(options: &Options) -> Arc<dyn Files> {
    match &options.storage {
        Storage::Real => {
            Arc::new(RealFiles::new(options.file_permissions, options.within.as_ref()))
        }
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(machine) => machine.files(),
    }
}

/// Takes the lock of the directory `path`. From now on `files` find all that is in it through one
/// handle: a changed working directory, a link that leads elsewhere or a directory that was removed
/// and made again send none of it to another directory.
///
/// # Errors
///
/// `Unavailable` when another process has it; or an I/O error.
pub(crate) fn lock(
    files: &dyn Files,
    path: &Path,
    options: &Options,
    how: OpenHow,
) -> Result<DirectoryLock> {
    files.hold(path).map_err(|e| Error::io("open the directory", path, e))?;
    match (&options.storage, files.real().filter(|_| locks(options))) {
        (_, Some(files)) => Ok(DirectoryLock::take(files, path, access(how))?),
        #[cfg(any(test, feature = "testing"))]
        (Storage::Simulated(machine), None) if access(how) == Access::Exclusive => {
            Ok(DirectoryLock::simulated(machine.lock(path)))
        }
        _ => Ok(DirectoryLock::none()),
    }
}

/// Whether a test has planted that there are no locks.
fn locks(options: &Options) -> bool {
    !options.has(Failpoint::SkipLock)
}

/// Takes the lock of the region too, where there is one.
///
/// # Errors
///
/// `Unavailable` when another open database has the region; or on an I/O error.
pub(crate) fn lock_region(
    lock: &mut DirectoryLock,
    files: &dyn Files,
    (path, options): (&Path, &Options),
    how: OpenHow,
) -> Result<()> {
    match files.real().filter(|_| locks(options)) {
        Some(files) => Ok(lock.take_region(files, &media::path(path, options), access(how))?),
        None => Ok(()),
    }
}

fn access(how: OpenHow) -> Access {
    if how == OpenHow::ReadOnly { Access::Shared } else { Access::Exclusive }
}

/// The database in `path`, or what is left of one, for what reads damaged ones: its parts where it
/// lacks the journal.
///
/// # Errors
///
/// `Invalid` when there is no database; or an I/O error.
pub(crate) fn find_damaged(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
) -> Result<Option<Parts>> {
    match look(files, path, options)? {
        Presence::Database => Ok(None),
        Presence::NoJournal(parts) => Ok(Some(parts)),
        Presence::Unfinished(marker) => Err(marker.making.cut_off(path)),
        _ => Err(Error::invalid(format!("there is no database in {}", path.display()))),
    }
}
