//! Opening to read, beside a process that writes. `docs/internals/readers.md` says why what is read
//! is a state that a power cut may leave, and what the writer keeps for it.
//!
//! The order: a name in the directory; the words; the journal; the fixed parts again, and zones; a
//! sync of what was read; the look whether all of that counts. Where it does not, or something does
//! not check out that the writer may just have changed, all begins anew.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::create::CLAIMS_FILE;
use super::own_records::unknown_runs;
use super::presence::{self, NODE, Presence, has_file, locks, real_path};
use super::{Engine, Instance, Opening, files_of, media, with_events};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Mode, Options};
use crate::commit::Recovered;
use crate::os::{DirectoryLock, Files, OpenHow, ReaderRegistration, has_stopped, time};
use crate::pm::{Region, Superblock};
use crate::version::VersionSet;

/// So often an opening begins anew.
const TRIES: u32 = 5;

/// The pause before the second try. Each later one is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Opens the database in `path`, which another process has open to write, as `busy` says.
pub(super) fn open(
    (path, options): (&Path, &Options),
    busy: &Error,
    started: Instant,
) -> Result<Arc<Instance>> {
    let files = files_of(options);
    files.hold(path).map_err(|e| Error::io("open the directory", path, e))?;
    open_in(&files, (path, options), (None, busy), started)
}

/// Whether a writer has come since an opening that came beside none. Until then it shows all that
/// there is.
pub(crate) fn has_writer_come(engine: &Engine) -> Result<bool> {
    let Some(shown) = WriterIdentity::before_writer(engine) else { return Ok(true) };
    let (path, files) = (&*engine.path, engine.set.store().files());
    // A writer changes the incarnation before all else.
    let now = media::peek(files, &media::path(path, &engine.options), &engine.options)?;
    Ok(now.is_none_or(|now| {
        (now.database_id, now.incarnations.current) != (shown.database_id, shown.incarnation)
    }))
}

/// What tells one opening to write from the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriterIdentity {
    database_id: [u8; 16],
    incarnation: u64,
}

impl WriterIdentity {
    /// That of the last writer whose database this reader shows.
    fn shown_by(engine: &Engine) -> WriterIdentity {
        let (database_id, incarnation) =
            (engine.set.database_id(), engine.shared.committer.incarnation);
        WriterIdentity { database_id, incarnation }
    }

    /// The same of a reader that came beside no writer.
    fn before_writer(engine: &Engine) -> Option<WriterIdentity> {
        (!engine.opened.beside_writer).then(|| WriterIdentity::shown_by(engine))
    }
}

/// Opens it once more for a reader beside a writer, in the directory that this has open. Unlike a
/// first opening it does not take the lock of the directory: a writer that begins would be refused.
pub(crate) fn open_again(engine: &Engine) -> Result<Arc<Instance>> {
    let (path, files) = (&*engine.path, engine.set.store().files());
    let message = format!("another process may have {} open; close it there first", path.display());
    let busy = Error::new(ErrorKind::Busy, message);
    open_in(
        files,
        (path, &engine.options),
        (WriterIdentity::before_writer(engine), &busy),
        time::now(),
    )
}

/// A registration in place of the lock of an opening beside no writer: from here on one may begin,
/// which keeps what this reader shows. Where there can be none, the lock stays. So it does where
/// the region is elsewhere, since a writer in a copy of the directory looks for readers there.
pub(super) fn in_place_of(lock: DirectoryLock, engine: &mut Engine) -> DirectoryLock {
    let files = Arc::clone(engine.set.store().files());
    let options = &engine.options;
    debug_assert!(!engine.shared.region.is_mapped(), "a reader has an image of the file");
    let real = files.real().filter(|_| locks(options) && options.pm_path.is_none());
    let (Some(real), Ok(None)) = (real, refusal(&files, &engine.path, options)) else {
        return lock;
    };
    let Ok(registration) = ReaderRegistration::begin(real, &engine.path) else { return lock };
    if !registration.shows(engine.set.floor().number).unwrap_or(false) {
        return lock;
    }
    engine.shared.region.leave_media();
    engine.is_beside = true;
    DirectoryLock::other(registration)
}

fn open_in(
    files: &Arc<dyn Files>,
    (path, options): (&Path, &Options),
    (before, busy): (Option<WriterIdentity>, &Error),
    started: Instant,
) -> Result<Arc<Instance>> {
    let refused = |why: &str| {
        let message =
            format!("{busy}, or read a backup; beside that process it cannot be read: {why}");
        Err(Error::new(ErrorKind::Busy, message))
    };
    if let Some(why) = refusal(files, path, options)? {
        return refused(why);
    }
    let Some(real) = files.real() else { return refused("its files are in memory") };
    let mut pauses = (0..TRIES - 1).map(|doublings| FIRST_PAUSE * (1 << doublings));
    loop {
        let registration = match ReaderRegistration::begin(real, path) {
            Ok(registration) => registration,
            Err(e) => return refused(&format!("a reader makes a file there, and {e}")),
        };
        // A region in mapped memory is a file too: its bytes as they are now are copied.
        let options = &Options { mode: Mode::File, ..with_events(options) };
        let (files, beside) = (Arc::clone(files), Some(&registration));
        let opened = Opening { files, path, options, read_only: true, beside }.run(started);
        let error = match opened {
            Ok(mut engine) => {
                engine.opened.beside_writer = before != Some(WriterIdentity::shown_by(&engine));
                return Instance::start(engine, DirectoryLock::other(registration));
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => error,
        };
        let Some(pause) = pauses.next() else { return Err(in_doubt(error)) };
        // The next try begins with a look at all that is there then. The writer waits for none.
        drop(registration);
        time::wait_out(pause);
    }
}

/// Damage that each try found may be what the writer changed meanwhile.
fn in_doubt(error: Error) -> Error {
    if error.kind() != ErrorKind::Corrupt {
        return error;
    }
    let message = format!(
        "what was read beside a process that writes did not check out, {TRIES} times: try again, \
         or verify the database once it is closed there; the last time: {error}"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Why a database cannot be read beside a process that writes to it.
fn refusal(files: &Arc<dyn Files>, path: &Path, options: &Options) -> Result<Option<&'static str>> {
    let is_shared = || -> Result<bool> {
        let node = real_path(&**files, path).parent().map(|of| of.join(NODE));
        let is_of_node = node.map_or(Ok(false), |node| has_file(&**files, &node))?;
        let has_claims = has_file(&**files, &path.join(CLAIMS_FILE))?;
        Ok(is_of_node || has_claims || options.object_store.is_some())
    };
    Ok(match files.real() {
        None => Some("its files are in memory"),
        _ if is_shared()? => Some("it has an object store, or is of a shared database"),
        _ if presence::look(files, path, options)? != Presence::Database => {
            Some("it is not whole yet")
        }
        _ => None,
    })
}

impl Opening<'_> {
    /// What was read beside a writer counts from now on: it is durable, no other opening began
    /// meanwhile, and the writer has kept all of it.
    pub(super) fn settle(
        &self,
        registration: &ReaderRegistration,
        (region, superblock): (&Region, &Superblock),
        set: &VersionSet,
        recovered: &mut Recovered,
    ) -> Result<()> {
        if let Some(first) = unknown_runs(region, recovered, set)? {
            debug_assert!(first <= recovered.last, "it was found");
            recovered.last = first - 1;
            for (_, accepted) in &mut recovered.zones {
                accepted.retain(|entry| entry.lsn < first);
            }
        }
        let path = region.path();
        let file = self.files.open(path, OpenHow::TO_SYNC);
        file.and_then(|file| file.sync()).map_err(|e| Error::io("sync", path, e))?;
        set.sync_found()?;
        // Behind the syncs: they tell nothing of an earlier one that failed. What a writer has left
        // that is gone is read as by an opening beside no writer.
        let has_stopped = self.files.real().map(|files| has_stopped(files, self.path));
        if has_stopped.transpose().map_err(|e| Error::io("read LOCK in", self.path, e))?
            == Some(true)
        {
            let message = format!(
                "the process that has {} open stopped after a failure, and what it wrote may be \
                 on no device; close it there first, and open it again",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        let now = media::peek(&self.files, path, self.options)?;
        let is_same =
            now.is_some_and(|now| now.incarnations.current == superblock.incarnations.current);
        let shows = registration.shows(set.floor().number);
        let counts = shows.map_err(|e| Error::io("register as a reader in", self.path, e))?;
        if is_same && counts {
            region.leave_media();
            return Ok(());
        }
        let message = format!(
            "the process that writes to {} went on without this reader, which took too long to \
             open it, or another opening to write began; try again",
            self.path.display()
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}
