//! What a directory holds: nothing, a database, a database that lacks a part, what an unfinished
//! creation left, or files of something else; and whether a process may open it. An opening asks
//! before it touches anything, and then takes the locks.
//!
//! The **marker** of a directory that is being made is a file that is made first and removed last.
//! While it is there, and no opening has used the region but those of the call that makes the
//! directory, there is no database. It says which call that is. What a restore, a salvage or a
//! takeover left is not taken for an empty directory: the same call starts over, and all others
//! refuse.
//!
//! `docs/format.md` ("Creation") has the argument that an unfinished creation is never mistaken for
//! a damaged database, nor the other way round. Two pieces of evidence have to agree before
//! anything is replaced: the marker is there, and no opening ever used the region.

use std::io::ErrorKind::{AlreadyExists, NotFound};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create::CLAIMS_FILE;
use super::index_file::INDEX;
use super::media::{self, REGION};
use crate::base::error::{Damage, Error, ErrorKind, Mismatch, Result};
use crate::base::options::{Failpoint, Making, Options, Storage};
use crate::base::record::{Reader, checksum, put_bytes, put_u32};
use crate::engine::OpenHow;
use crate::os::{
    Access, Directory, DirectoryLock, Files, RealFiles, bytes_of_path, is_reader_name,
    path_of_bytes,
};
use crate::storage::is_extent_file_name;
use crate::version::{Manifest, is_journal_name};

/// What a directory holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Missing,
    /// Nothing, or the lock file alone, beside what a volume has.
    Empty,
    /// What a creation, or another call that makes a database, left when it was cut off: the same
    /// call may replace it.
    Unfinished(Marker),
    Database,
    /// Parts of a database, and no journal.
    NoJournal(Parts),
    /// Files of something else, with the name of one.
    Foreign(String),
}

/// The parts of a database that has no journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) directory: PathBuf,
    /// The names of those that are there.
    pub(crate) names: Vec<String>,
}

impl Parts {
    /// The journal as a missing structure.
    pub(crate) fn damage(&self) -> Damage {
        let expected = format!("a file journal-NNNNNNNN beside {}", self.some_names());
        Mismatch::new(expected, "none").at("journal", "journal", &self.directory, 0)
    }

    /// The error of every opening.
    pub(crate) fn error(&self) -> Error {
        let directory = self.directory.display();
        Error::missing(
            self.damage(),
            format!(
                "the database in {directory} lacks its journal: there is no file journal-NNNNNNNN \
                 beside {}, and nothing was changed; put the journal back, or write what can be \
                 read to a new database with `terrace salvage`; remove these files only if the \
                 data is not needed",
                self.some_names()
            ),
        )
    }

    fn some_names(&self) -> String {
        const SHOWN: usize = 4;
        let shown = self.names[..self.names.len().min(SHOWN)].join(", ");
        match self.names.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}

/// Whether a file system, or an operating system, makes something of that name at the top of a
/// volume: a mount point that was just made has it, and is as good as empty.
pub(super) fn is_of_volume(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "lost+found",
        ".snapshot",
        ".fseventsd",
        ".Spotlight-V100",
        ".Trashes",
        "System Volume Information",
        "$RECYCLE.BIN",
    ];
    NAMES.contains(&name)
}

/// Says what the directory `path` holds. Changes nothing.
pub(super) fn look(files: &Arc<dyn Files>, path: &Path, options: &Options) -> Result<Presence> {
    let mut names = match files.list(path) {
        Ok(names) => names,
        Err(e) if e.kind() == NotFound => return Ok(Presence::Missing),
        Err(e) => return Err(Error::io("list", path, e)),
    };
    names.retain(|name| name != "LOCK" && !is_reader_name(name) && !is_of_volume(name));
    if names.iter().any(|name| name == MARKER) {
        names.retain(|name| name != MARKER);
        let marker = Marker::read(&**files, path)?;
        // A torn marker is alone, since it is durable before all else. Beside other files it is
        // damaged, and what they are it does not say.
        let says = marker.database_id.is_some() || names.is_empty();
        if says && !was_opened(files, path, options, &marker)? {
            return Ok(Presence::Unfinished(marker));
        }
    }
    if names.iter().any(|name| is_journal_name(name)) {
        return Ok(Presence::Database);
    }
    without_journal(files, path, names)
}

fn without_journal(files: &Arc<dyn Files>, path: &Path, names: Vec<String>) -> Result<Presence> {
    if let Some(backup) = names.iter().find(|name| Manifest::number_of(name).is_some()) {
        return Ok(Presence::Foreign(backup.clone()));
    }
    let is_half_made = |name: &str| name.strip_suffix(".new").is_some_and(is_journal_name);
    let mut parts = Vec::new();
    for name in &names {
        let is_part = match name.as_str() {
            REGION => media::is_region(&**files, &path.join(REGION))?,
            INDEX => names.iter().any(|other| other == REGION),
            name => is_extent_file_name(name) || is_half_made(name),
        };
        if is_part {
            parts.push(name.clone());
        }
    }
    match (parts.is_empty(), names.into_iter().next()) {
        (false, _) => {
            Ok(Presence::NoJournal(Parts { directory: path.to_path_buf(), names: parts }))
        }
        (true, Some(other)) => Ok(Presence::Foreign(other)),
        (true, None) => Ok(Presence::Empty),
    }
}

/// Whether an opening ever used the region beside a marker, other than those of the call that made
/// the marker. Then the marker is a stray: creation
/// removes it, durably, before the first opening.
fn was_opened(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
    marker: &Marker,
) -> Result<bool> {
    let regions: Vec<PathBuf> = match &options.storage {
        Storage::Real => {
            let named = [options.pm_path.clone(), marker.pm_path.clone()];
            std::iter::once(path.join(REGION)).chain(named.into_iter().flatten()).collect()
        }
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(_) => vec![media::path(path, options)],
    };
    for region in regions {
        if let Some(superblock) = media::peek(files, &region, options)?
            && marker.database_id.is_none_or(|id| id == superblock.database_id)
            && superblock.incarnations.current > marker.making.last_incarnation()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The marker's file name.
pub(super) const MARKER: &str = "CREATING";

const MAGIC: &[u8; 8] = b"TERRNEW\0";

/// No marker is longer: a path has a bound.
const LONGEST: usize = 16 * 1024;

impl Making {
    const ALL: [Making; 4] = [Making::Creation, Making::Restore, Making::Salvage, Making::Takeover];

    /// The greatest incarnation of a region that is still being made: creation's own, and that of
    /// each opening by the call.
    pub(super) fn last_incarnation(self) -> u64 {
        match self {
            Making::Creation => 1,
            Making::Restore | Making::Salvage => 2,
            Making::Takeover => 3,
        }
    }

    /// The error of all other calls on what was cut off.
    pub(crate) fn cut_off(self, directory: &Path) -> Error {
        let (what, again) = match self {
            Making::Creation => ("the creation of a database", "create it again"),
            Making::Restore => ("a restore", "run the restore again"),
            Making::Salvage => ("a salvage", "run the salvage again"),
            Making::Takeover => ("a takeover of a shared database", "run the takeover again"),
        };
        Error::new(
            ErrorKind::MissingDatabase,
            format!(
                "{what} into {} was cut off before its end, so there is no whole database: {again} \
             with this directory, which starts over, or remove the directory",
                directory.display()
            ),
        )
    }
}

/// What the marker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The database that is made; `None` where the marker itself is torn, and then it is all there
    /// is of the creation.
    pub(crate) database_id: Option<[u8; 16]>,
    /// Where its region is made, if not in the directory.
    pub(crate) pm_path: Option<PathBuf>,
    pub(crate) making: Making,
}

impl Marker {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let path = self.pm_path.as_deref().map(bytes_of_path).unwrap_or_default();
        let mut body = self.database_id.unwrap_or_default().to_vec();
        put_bytes(&mut body, &path);
        if self.making != Making::Creation {
            body.push(self.making as u8);
        }
        let mut bytes = MAGIC.to_vec();
        put_u32(&mut bytes, checksum(&[], &body));
        bytes.extend(body);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Marker> {
        let mut r = Reader::new(bytes);
        let (magic, sum) = (r.take(8)?, r.u32()?);
        if magic != MAGIC || sum != checksum(&[], bytes.get(12..)?) {
            return None;
        }
        let database_id = Some(r.take(16)?.try_into().ok()?);
        let path = r.bytes()?;
        let making = match r.rest() {
            [] => Making::Creation,
            // Creation's own is not written.
            [0] => return None,
            [code] => *Making::ALL.get(usize::from(*code))?,
            _ => return None,
        };
        let pm_path = if path.is_empty() { None } else { Some(path_of_bytes(path)?) };
        Some(Marker { database_id, pm_path, making })
    }

    /// Reads the marker in `directory`. A torn one says nothing.
    pub(super) fn read(files: &dyn Files, directory: &Path) -> Result<Marker> {
        let path = directory.join(MARKER);
        let file = match files.open(&path, crate::os::OpenHow::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == NotFound => return Ok(Marker::default()),
            Err(e) => return Err(Error::io("open", &path, e)),
        };
        let len = file.len().map_err(|e| Error::io("measure", &path, e))?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(LONGEST);
        let bytes = file.read_vec(0, len).map_err(|e| Error::io("read", &path, e))?;
        Ok(Marker::decode(&bytes).unwrap_or_default())
    }

    /// Makes the marker, durably.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error; there may be a torn marker then.
    pub(super) fn write(&self, files: &dyn Files, directory: &Path) -> Result<()> {
        let path = directory.join(MARKER);
        debug_assert_eq!(
            Marker::decode(&self.encode()).as_ref(),
            Some(self),
            "an opening reads the marker that a creation wrote"
        );
        let file =
            files.open(&path, crate::os::OpenHow::CreateNew).map_err(|e| match e.kind() {
                AlreadyExists => {
                    Error::new(ErrorKind::Exists, format!("{} is there already", path.display()))
                }
                _ => Error::io("create", &path, e),
            })?;
        file.try_write_all_at(&self.encode(), 0).map_err(|e| Error::io("write", &path, e))?;
        file.sync().map_err(|e| Error::io("sync", &path, e))?;
        sync_names(files, directory)
    }
}

/// Removes the marker in `directory`, durably, if there is one.
///
/// # Errors
///
/// An I/O error; the marker may be there or not.
pub(crate) fn remove_marker(files: &dyn Files, directory: &Path) -> Result<()> {
    let path = directory.join(MARKER);
    match files.remove(&path) {
        Ok(()) => sync_names(files, directory),
        Err(e) if e.kind() == NotFound => Ok(()),
        Err(e) => Err(Error::io("remove", &path, e)),
    }
}

fn sync_names(files: &dyn Files, directory: &Path) -> Result<()> {
    Directory::at(directory).sync(files).map_err(|e| Error::io("sync", directory, e))
}

/// What a directory holds, if an opening may go on with it: a database, or room for one that it may
/// make, as the call `making` if that is one.
pub(crate) fn look_for(
    files: &Arc<dyn Files>,
    directory: &Path,
    options: &Options,
    (how, making): (OpenHow, Option<Making>),
) -> Result<Presence> {
    let (found, path) = (look(files, directory, options)?, directory.display());
    let (kind, refusal) = match (&found, how) {
        (Presence::Database | Presence::NoJournal(_) | Presence::Foreign(_), OpenHow::Create)
            if making.is_some() =>
        {
            let refusal = format!("{path} is not empty; name an empty or a new directory");
            (ErrorKind::Exists, refusal)
        }
        (Presence::NoJournal(parts), _) => return Err(parts.error()),
        (Presence::Foreign(name), _) => {
            let kind = match how {
                OpenHow::ReadOnly | OpenHow::Existing => ErrorKind::MissingDatabase,
                OpenHow::Create | OpenHow::OpenOrCreate => ErrorKind::Exists,
            };
            let what = "and no Terrace database; name an empty or a new directory";
            (kind, format!("{path} holds {name:?} {what}"))
        }
        (Presence::Database, OpenHow::Create) => {
            let advice = "open it, or name another directory";
            (ErrorKind::Exists, format!("{path} holds a database already; {advice}"))
        }
        // The call that makes it goes on with it.
        (Presence::Unfinished(marker), OpenHow::Existing) if making == Some(marker.making) => {
            return Ok(Presence::Database);
        }
        (Presence::Unfinished(marker), _)
            if matches!(how, OpenHow::ReadOnly | OpenHow::Existing)
                || !may_replace(marker, making) =>
        {
            return Err(marker.making.cut_off(directory));
        }
        (Presence::Missing | Presence::Empty, OpenHow::ReadOnly | OpenHow::Existing) => {
            let advice = "name another directory, or create a database there";
            (ErrorKind::MissingDatabase, format!("there is no database in {path}; {advice}"))
        }
        _ => return Ok(found),
    };
    Err(Error::new(kind, refusal))
}

/// The file that marks the directory of a follower or a standby.
pub(crate) const NODE: &str = "NODE";

/// The number that names a subdirectory of such a directory.
pub(crate) fn node_number(name: &str) -> Option<u64> {
    let number = name.parse().ok()?;
    (format!("{number:08}") == name).then_some(number)
}

/// Whether there is a file. A directory of that name is none.
pub(crate) fn has_file(files: &dyn Files, path: &Path) -> Result<bool> {
    match files.open(path, crate::os::OpenHow::Read) {
        Ok(_) => Ok(!files.has_directory(path).map_err(|e| Error::io("look at", path, e))?),
        Err(e) if e.kind() == NotFound => Ok(false),
        Err(e) => Err(Error::io("open", path, e)),
    }
}

/// A path through links too, whose names say nothing. One in memory is a name alone.
pub(super) fn real_path(files: &dyn Files, given: &Path) -> PathBuf {
    let canonical = || std::fs::canonicalize(given).or_else(|_| std::path::absolute(given));
    files.real().and_then(|_| canonical().ok()).unwrap_or_else(|| given.to_path_buf())
}

/// Fails where the databases of a node lie, for all but the node and its promotion. The node would
/// go on from there, and show and promote what no writer has committed. It removes what it has not
/// made. One that was promoted is a writer's.
pub(super) fn check_not_of_node(given: &Path, options: &Options, how: OpenHow) -> Result<()> {
    if how == OpenHow::ReadOnly || options.follows.is_some() || options.lsn_after.is_some() {
        return Ok(());
    }
    let files = files_of(options);
    let path = real_path(&*files, given);
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(directory), Some(_)) = (path.parent(), name.and_then(node_number)) else {
        return Ok(());
    };
    if !has_file(&*files, &directory.join(NODE))? || has_file(&*files, &path.join(CLAIMS_FILE))? {
        return Ok(());
    }
    let advice = match how {
        OpenHow::Create => "name a directory elsewhere: the node removes what it has not made",
        _ => "open it read-only, promote the standby, or copy it to another directory first",
    };
    Err(Error::invalid(format!(
        "{} is a place of the follower or standby in {}, which alone writes there: {advice}",
        path.display(),
        directory.display()
    )))
}

/// Whether a directory has a database, whole or damaged, and no unfinished creation of one.
pub(crate) fn is_database(directory: &Path, options: &Options) -> Result<bool> {
    let found = look(&files_of(options), directory, options)?;
    Ok(matches!(found, Presence::Database | Presence::NoJournal(_)))
}

/// Whether a call that makes a database may replace what another one left: an unfinished creation
/// has no row, and of what it made itself nothing was ever whole.
pub(super) fn may_replace(left: &Marker, making: Option<Making>) -> bool {
    left.making == Making::Creation || making == Some(left.making)
}

pub(crate) fn files_of(options: &Options) -> Arc<dyn Files> {
    if let Some(files) = &options.in_memory {
        return Arc::clone(files) as _;
    }
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
/// `Busy` when another process has it; or an I/O error.
pub(crate) fn lock(
    files: &dyn Files,
    path: &Path,
    options: &Options,
    how: OpenHow,
) -> Result<DirectoryLock> {
    files.hold(path).map_err(|e| Error::io("open the directory", path, e))?;
    if let Some(files) = &options.in_memory {
        let busy = || format!("{} is open, in memory: close it first", path.display());
        let lock = files.lock(path, access(how)).map_err(|e| Error::io("lock", path, e))?;
        let lock = lock.ok_or_else(|| Error::new(ErrorKind::Busy, busy()))?;
        return Ok(DirectoryLock::other(lock));
    }
    match (&options.storage, files.real().filter(|_| locks(options))) {
        (_, Some(files)) => DirectoryLock::take(files, path, access(how)).map_err(Error::lock),
        #[cfg(any(test, feature = "testing"))]
        (Storage::Simulated(machine), None) if access(how) == Access::Exclusive => {
            Ok(DirectoryLock::other(machine.lock(path)))
        }
        _ => Ok(DirectoryLock::none()),
    }
}

/// Whether a test has planted that there are no locks.
pub(super) fn locks(options: &Options) -> bool {
    !options.has(Failpoint::SkipLock)
}

/// Takes the lock of the region too, where there is one.
///
/// # Errors
///
/// `Busy` when another open database has the region; or on an I/O error.
pub(crate) fn lock_region(
    lock: &mut DirectoryLock,
    files: &dyn Files,
    (path, options): (&Path, &Options),
    how: OpenHow,
) -> Result<()> {
    match files.real().filter(|_| locks(options)) {
        Some(files) => {
            lock.take_region(files, &media::path(path, options), access(how)).map_err(Error::lock)
        }
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
/// `MissingDatabase` when there is none; or an I/O error.
pub(crate) fn find_damaged(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
) -> Result<Option<Parts>> {
    match look(files, path, options)? {
        Presence::Database => Ok(None),
        Presence::NoJournal(parts) => Ok(Some(parts)),
        Presence::Unfinished(marker) => Err(marker.making.cut_off(path)),
        _ => Err(Error::new(
            ErrorKind::MissingDatabase,
            format!("there is no database in {}", path.display()),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::*;

    #[test]
    fn a_marker_round_trips_and_a_torn_one_says_nothing() {
        let paths = [None, Some(PathBuf::from("/mnt/pmem/region"))];
        let each = |making| paths.clone().map(|pm_path| (pm_path, making));
        for (pm_path, making) in Making::ALL.into_iter().flat_map(each) {
            let marker = Marker { database_id: Some([7; 16]), pm_path, making };
            let bytes = marker.encode();
            assert_eq!(Marker::decode(&bytes), Some(marker));
            // A cut marker is no marker, not one of another call.
            for len in 0..bytes.len() {
                assert_eq!(Marker::decode(&bytes[..len]), None);
            }
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                assert_eq!(Marker::decode(&flipped), None, "byte {at}");
            }
        }
    }
}
