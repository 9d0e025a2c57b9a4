//! Readers beside a writer. Each has a file of its own in the database's directory, which it has
//! locked until it ends. The file says which edit of the journal the reader shows, once it is open.
//! `docs/internals/readers.md` says what a writer keeps for it.
//!
//! The name of a reader changes at most once: a writer that goes on without it renames its file.
//! Only that writer lists the names, one listing at a time, and renames none while it reads the
//! names. So each listing has each reader.
//!
//! Thread safety: every method may be called from any thread; `listed` is held over a listing.
//!
//! Invariants:
//!
//! 1. A name whose file is not locked is of a reader that ended, or that has read nothing yet.
//! 2. A reader that a writer went on without never takes what it has read for sound: the reader
//!    says that it is open, and then looks for its name. The writer renames the file, and then
//!    looks whether the reader is open.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::calls;
use super::chance::draw_random;
use super::files::Files;
use super::fork::ForkGuard;
use super::lock::{Access, FileLock};
use super::real::RealFiles;
use super::time;
use crate::sync::locks::Mutex;

/// What names of readers begin with, and those that a writer went on without.
const PREFIX: &str = "reader-";
const LATE: &str = "reader-late-";

/// The file of a reader: the edit that it shows, the same with all bits turned round, and the
/// number of its process.
const LINE: usize = 20;

/// A writer of another user finds the lock of a reader's file, and reads it.
const FOR_ALL: u32 = 0o644;

/// A writer waits so long for a reader that is opening.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a file of this name is a reader's.
pub fn is_reader_name(name: &str) -> bool {
    ReaderName::of(name).is_some()
}

/// What the name of a reader says.
#[derive(Clone, Copy, Debug)]
struct ReaderName {
    id: u64,
    is_late: bool,
}

impl ReaderName {
    fn of(name: &str) -> Option<ReaderName> {
        let late = name.strip_prefix(LATE);
        let digits = late.or_else(|| name.strip_prefix(PREFIX))?;
        let is_id = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u64::from_str_radix(digits, 16).ok().filter(|_| is_id)?;
        Some(ReaderName { id, is_late: late.is_some() })
    }

    fn path(self, directory: &Path) -> PathBuf {
        let prefix = if self.is_late { LATE } else { PREFIX };
        directory.join(format!("{prefix}{:016x}", self.id))
    }

    fn late(self) -> ReaderName {
        ReaderName { is_late: true, ..self }
    }
}

/// This process as a reader of a database that others may write. It ends when it is dropped, and
/// with the process.
#[derive(Debug)]
pub struct ReaderRegistration {
    files: RealFiles,
    directory: PathBuf,
    name: ReaderName,
    lock: FileLock,
    fork: ForkGuard,
}

impl ReaderRegistration {
    /// Begins to read what is in `directory`.
    ///
    /// # Errors
    ///
    /// No file can be made there.
    pub fn begin(files: &RealFiles, directory: &Path) -> io::Result<ReaderRegistration> {
        let files = RealFiles::new(FOR_ALL, files.held(directory).as_ref());
        loop {
            let mut id = [0; 16];
            draw_random(&mut id)?;
            let name = ReaderName { id: u128::from_le_bytes(id) as u64, is_late: false };
            let path = name.path(directory);
            // A writer may have the new file for an instant, and removes it.
            let Some(lock) = FileLock::at(&files, &path, Access::Exclusive)? else { continue };
            let (directory, fork) = (directory.to_path_buf(), ForkGuard::new());
            let registration = ReaderRegistration { files, directory, name, lock, fork };
            let file = registration.lock.file();
            calls::set_permissions(file, FOR_ALL)?;
            // On a full disk it fails here, before anything is read.
            let mut line = [0; LINE];
            line[16..].copy_from_slice(&std::process::id().to_le_bytes());
            calls::write_all_at(file, &line, 0)?;
            return Ok(registration);
        }
    }

    /// From now on it shows what edits up to this one made. Whether all that it has read counts: if
    /// not, a writer went on without it.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn shows(&self, edit: u64) -> io::Result<bool> {
        let line = u128::from(edit) | u128::from(!edit) << 64;
        calls::write_all_at(self.lock.file(), &line.to_le_bytes(), 0)?;
        self.files.leads_to(&self.name.path(&self.directory), self.lock.file())
    }
}

impl Drop for ReaderRegistration {
    fn drop(&mut self) {
        if !self.fork.is_forked() {
            let remove = |name: ReaderName| self.files.remove(&name.path(&self.directory));
            // One that stays goes with the next look of a writer: it is not locked.
            remove(self.name).or_else(|_| remove(self.name.late())).unwrap_or(());
        }
    }
}

/// What the file of a reader says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReaderLine {
    /// The edit that it shows; `None` as long as it is opening.
    shows: Option<u64>,
    /// The number of its process; 0 where that is not known.
    process: u32,
}

impl ReaderLine {
    fn read(file: &fs::File) -> io::Result<ReaderLine> {
        let (mut bytes, mut len) = ([0; LINE], 0);
        while len < LINE {
            match calls::read_at(file, &mut bytes[len..], len as u64)? {
                0 => break,
                n => len += n,
            }
        }
        Ok(ReaderLine::of(bytes))
    }

    fn of(bytes: [u8; LINE]) -> ReaderLine {
        let words = bytes.as_chunks().0;
        let [edit, turned] = [words[0], words[1]].map(u64::from_le_bytes);
        let [.., a, b, c, d] = bytes;
        let process = u32::from_le_bytes([a, b, c, d]);
        ReaderLine { shows: (turned == !edit).then_some(edit), process }
    }
}

/// A reader, as a writer finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideReader {
    /// What its name ends with.
    pub id: u64,
    /// The number of its process, as that has it; 0 where it is not known.
    pub process: u32,
    /// The edit of the journal that it shows. While it is opening: it will show no earlier one.
    pub shows: u64,
    /// Whether it is known to be open.
    pub is_open: bool,
    /// Whether a writer went on without it.
    is_late: bool,
}

impl BesideReader {
    /// Whether it shows, or may come to show, what one edit of the journal added and another one
    /// removed.
    pub fn may_show(&self, added: u64, removed: u64) -> bool {
        self.shows < removed && (!self.is_open || added <= self.shows)
    }
}

/// A reader that is not known to be open, as it was found first.
#[derive(Clone, Copy, Debug)]
struct OpeningReader {
    id: u64,
    /// Since when zones wait for it.
    since: Option<Instant>,
    /// It will show no earlier edit.
    least: u64,
}

/// What listings found so far.
#[derive(Debug, Default)]
struct Listed {
    opening: Vec<OpeningReader>,
    /// The journal had this edit when the last listing began. Who came later reads it.
    journaled: u64,
    /// Whether the last look of [`Readers::list`] failed.
    has_failed: bool,
    /// Files with a reader's name that are none, or that this process may not open.
    odd: Vec<u64>,
    /// Failures that no event has told yet, with their paths.
    untold: Vec<(PathBuf, io::Error)>,
}

impl Listed {
    /// A file says nothing of its reader. It is told of once.
    fn note(&mut self, name: ReaderName, path: PathBuf, error: impl FnOnce() -> io::Error) {
        if !self.odd.contains(&name.id) {
            self.odd.push(name.id);
            self.untold.push((path, error()));
        }
    }
}

/// The readers of a directory, for the process that writes there.
#[derive(Debug)]
pub struct Readers {
    files: Arc<dyn Files>,
    directory: PathBuf,
    listed: Mutex<Listed>,
}

impl Readers {
    /// Those of a directory. Files that are not the operating system's have none.
    pub fn new(files: Arc<dyn Files>, directory: &Path) -> Readers {
        Readers { files, directory: directory.to_path_buf(), listed: Mutex::default() }
    }

    /// Those that are there now. Names of readers that ended are removed. The journal has the edit
    /// `journaled`.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub fn list(&self, journaled: u64) -> io::Result<Vec<BesideReader>> {
        let there = self.list_for(journaled, false);
        let mut listed = self.listed.lock();
        let had_failed = std::mem::replace(&mut listed.has_failed, there.is_err());
        if let Err(error) = &there
            && !had_failed
        {
            let error = io::Error::new(error.kind(), error.to_string());
            listed.untold.push((self.directory.clone(), error));
        }
        there
    }

    /// The same. Where zones wait, readers that are opening have [`PATIENCE`] from then on.
    fn list_for(&self, journaled: u64, zones_wait: bool) -> io::Result<Vec<BesideReader>> {
        let Some(real) = self.files.real() else { return Ok(Vec::new()) };
        let mut listed = self.listed.lock();
        let (mut there, mut opening) = (Vec::new(), Vec::new());
        let names = real.list(&self.directory)?;
        let names: Vec<ReaderName> = names.iter().filter_map(|name| ReaderName::of(name)).collect();
        listed.odd.retain(|id| names.iter().any(|name| name.id == *id));
        for mut name in names {
            let known = listed.opening.iter().find(|reader| reader.id == name.id).copied();
            let new = OpeningReader { id: name.id, since: None, least: listed.journaled };
            let mut reader = known.unwrap_or(new);
            let path = name.path(&self.directory);
            let mut seen = match look(real, &path)? {
                Found::Nobody => continue,
                Found::NoFile => {
                    listed.note(name, path, no_file);
                    continue;
                }
                Found::Reader(seen) => seen,
            };
            if seen.file.is_none() {
                listed.note(name, path, kept_out);
            }
            let waits = zones_wait && !name.is_late && seen.is_opening();
            if waits && time::since(*reader.since.get_or_insert_with(time::now)) > PATIENCE {
                // It may have come to its end, or be open by now.
                go_on_without(real, &self.directory, &mut name)?;
                seen = seen.again()?;
            }
            if seen.is_opening() {
                opening.push(reader);
            }
            let ReaderLine { shows, process } = seen.line;
            // A late reader that is still opening finds its file renamed, and opens again.
            if shows.is_some() || seen.file.is_none() || !name.is_late {
                there.push(BesideReader {
                    id: name.id,
                    process,
                    shows: shows.unwrap_or(reader.least),
                    is_open: shows.is_some(),
                    is_late: name.is_late,
                });
            }
        }
        (listed.opening, listed.journaled) = (opening, listed.journaled.max(journaled));
        Ok(there)
    }

    /// Whether readers that were opening when this was first asked, with `None`, are so no more:
    /// they read zones. `opening` are those that still are.
    ///
    /// # Errors
    ///
    /// An I/O error: where it is of the renaming, a reader that is late is waited for.
    pub fn have_opened(&self, opening: &mut Option<Vec<BesideReader>>) -> io::Result<bool> {
        let mut there = self.list_for(0, true)?;
        there.retain(|reader| !reader.is_open && !reader.is_late);
        if let Some(before) = opening {
            there.retain(|reader| before.iter().any(|known| known.id == reader.id));
        }
        Ok(opening.insert(there).is_empty())
    }

    /// Takes the failures that no event has told yet. A file that has a reader's name and says
    /// nothing is one, once. So is a failure of [`Readers::list`] behind a look that succeeded.
    pub fn take_untold(&self) -> Vec<(PathBuf, io::Error)> {
        std::mem::take(&mut self.listed.lock().untold)
    }
}

/// What has the name of a reader.
enum Found {
    /// Its reader has ended, or has read nothing yet.
    Nobody,
    /// No reader makes that.
    NoFile,
    Reader(Seen),
}

fn no_file() -> io::Error {
    io::Error::other("it has the name of a reader, and is no file: it is left alone; remove it")
}

fn kept_out() -> io::Error {
    let message = "this process may not open it: disk space is kept for the reader that it is of, \
                   until it is gone; let this process read it, or remove it once no process reads";
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

/// A reader that has not ended, as its file shows it.
struct Seen {
    /// `None` where this process may not open it: it may be open.
    file: Option<fs::File>,
    line: ReaderLine,
}

impl Seen {
    fn is_opening(&self) -> bool {
        self.line.shows.is_none()
    }

    /// What its file says now.
    fn again(self) -> io::Result<Seen> {
        let line = self.file.as_ref().map(ReaderLine::read).transpose()?;
        Ok(Seen { line: line.unwrap_or_default(), ..self })
    }
}

/// What the file at `path` says of a reader. It opens regular files alone: the opening of a pipe
/// waits until another process writes to it.
fn look(files: &RealFiles, path: &Path) -> io::Result<Found> {
    let len = match files.regular_len(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nobody),
        found => found?,
    };
    let Some(len) = len else { return Ok(Found::NoFile) };
    let file = match files.open_regular(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nobody),
        // It was made a moment ago: its reader reads later bytes. Or it has died right then.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && len == 0 => {
            return Ok(Found::Nobody);
        }
        // A rule of the system keeps it from this process, and so its lock.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Found::Reader(Seen { file: None, line: ReaderLine::default() }));
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Ok(Found::NoFile);
    }
    if let Some(_ended) = FileLock::take(file.try_clone()?, Access::Exclusive)? {
        // A name that stays is looked at again.
        files.remove(path).unwrap_or(());
        return Ok(Found::Nobody);
    }
    Seen { file: Some(file), line: ReaderLine::default() }.again().map(Found::Reader)
}

/// Renames the file of a late reader. A reader that is still opening opens again then.
fn go_on_without(files: &RealFiles, directory: &Path, name: &mut ReaderName) -> io::Result<()> {
    match files.rename(&name.path(directory), &name.late().path(directory)) {
        // It has ended.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.map(|()| *name = name.late()),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::super::files::OpenHow;
    use super::*;

    fn world() -> (tempfile::TempDir, RealFiles, Readers) {
        let directory = tempfile::tempdir().unwrap();
        let readers = Readers::new(Arc::new(RealFiles::default()), directory.path());
        (directory, RealFiles::default(), readers)
    }

    /// The least edit that a reader shows, or may come to show.
    fn shown(readers: &Readers, journaled: u64) -> Option<u64> {
        readers.list(journaled).unwrap().iter().map(|reader| reader.shows).min()
    }

    #[test]
    fn what_came_and_went_since_is_shown_by_none_that_is_open() {
        let of = |is_open| BesideReader { id: 0, process: 0, shows: 5, is_open, is_late: false };
        for (added, removed, open, opening) in
            [(3, 5, false, false), (5, 6, true, true), (6, 9, false, true)]
        {
            let shown = [true, false].map(|is_open| of(is_open).may_show(added, removed));
            assert_eq!(shown, [open, opening], "added by {added} and removed by {removed}");
        }
    }

    #[test]
    fn a_reader_holds_all_while_it_opens_and_then_what_it_shows() {
        let (directory, files, readers) = world();
        let look = || (shown(&readers, 0), readers.have_opened(&mut None).unwrap());
        assert_eq!(look(), (None, true));
        let first = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert_eq!(look(), (Some(0), false));
        assert!(first.shows(7).unwrap());
        let second = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert!(second.shows(5).unwrap());
        assert_eq!(look(), (Some(5), true));
        drop(second);
        assert_eq!(look(), (Some(7), true));
        drop(first);
        assert_eq!(readers.list(0).unwrap(), []);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Also after a power cut, which leaves the old name of a late one, or the new one.
    #[test]
    fn the_name_of_a_reader_that_ended_is_removed() {
        let (directory, _, readers) = world();
        let stale = directory.path().join(format!("{PREFIX}0123456789abcdef"));
        let late = directory.path().join(format!("{LATE}0123456789abcdef"));
        let other = directory.path().join(format!("{PREFIX}of-a-user"));
        std::fs::create_dir(directory.path().join(format!("{PREFIX}0123456789abcdee"))).unwrap();
        for path in [&stale, &late, &other] {
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(readers.list(0).unwrap(), []);
        assert!(!stale.exists() && !late.exists() && other.exists());
    }

    /// Has all wait for longer than a writer does.
    fn wait_long(readers: &Readers) {
        let since = time::now().checked_sub(2 * PATIENCE).unwrap();
        let mut listed = readers.listed.lock();
        listed.opening.iter_mut().for_each(|reader| reader.since = Some(since));
    }

    #[test]
    fn a_writer_goes_on_without_a_reader_that_opens_too_long() {
        let (directory, files, readers) = world();
        let late = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert_eq!(late.lock.file().metadata().unwrap().len(), LINE as u64, "it needs no more");
        assert!(!readers.have_opened(&mut None).unwrap());
        wait_long(&readers);
        assert!(readers.have_opened(&mut None).unwrap());
        assert!(late.name.late().path(directory.path()).exists());
        assert_eq!(readers.list(0).unwrap(), [], "it shows nothing");
        assert!(!late.shows(3).unwrap(), "it opens again");
        // What it shows is kept until it is gone: it may not have looked.
        assert_eq!(shown(&readers, 0), Some(3));
        let fast = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert_eq!(shown(&readers, 0), Some(0));
        assert!(fast.shows(4).unwrap());
        wait_long(&readers);
        assert_eq!(shown(&readers, 0), Some(3));
        assert!(fast.shows(6).unwrap(), "one that is open is never late");
        drop((late, fast));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Bug: a writer waited for ever for a late reader whose file it could not mark, on a full disk
    /// that copies on write or of an owner that it does not know; and all users could write what
    /// it trusts. Cause: the mark was a byte in the file. Fix: the file is renamed.
    #[test]
    fn nobody_else_writes_the_file_of_a_reader() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, files, readers) = world();
        let late = ReaderRegistration::begin(&files, directory.path()).unwrap();
        let path = late.name.path(directory.path());
        let path_late = late.name.late().path(directory.path());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, FOR_ALL);
        let before = fs::read(&path).unwrap();
        assert!(!readers.have_opened(&mut None).unwrap());
        wait_long(&readers);
        assert!(readers.have_opened(&mut None).unwrap());
        assert_eq!(fs::read(&path_late).unwrap(), before, "a full disk does not matter");
    }

    /// The writer keeps extents for it, since it may be open. It keeps no zones: it reads none, or
    /// it finds that its name has changed.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_reader_whose_file_cannot_be_opened_keeps_space_and_no_zones() {
        let (directory, files, readers) = world();
        let reader = ReaderRegistration::begin(&files, directory.path()).unwrap();
        calls::set_permissions(reader.lock.file(), 0).unwrap();
        without_rights(|| {
            let mut opening = None;
            assert!(!readers.have_opened(&mut opening).unwrap());
            readers.list(8).unwrap();
            wait_long(&readers);
            assert!(readers.have_opened(&mut opening).unwrap());
            assert!(readers.have_opened(&mut None).unwrap());
            assert_eq!(shown(&readers, 9), Some(0), "the bound stays");
        });
        assert!(!reader.shows(3).unwrap(), "it opens again");
        let told = readers.take_untold();
        assert_eq!(told.len(), 1, "once: {told:?}");
        assert_eq!(told[0].0, reader.name.path(directory.path()), "by its name");
        assert!(told[0].1.to_string().contains("until it is gone"), "{told:?}");
    }

    /// Root may open all files, and list all directories.
    #[cfg(target_os = "linux")]
    fn without_rights(f: impl FnOnce() + Send) {
        let without = || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
            f();
        };
        std::thread::scope(|scope| scope.spawn(without).join().unwrap());
    }

    /// Bug: the file of a reader that was killed as it had just made it kept space for ever, where
    /// the writer has another user. Cause: only the reader's user could open the file yet, so the
    /// writer could not look at its lock. Fix: the reader of an empty file has read nothing.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_reader_that_was_killed_before_it_read_keeps_nothing() {
        let (directory, files, readers) = world();
        let name = ReaderName { id: 7, is_late: false };
        let left = files.open_system(&name.path(directory.path()), OpenHow::CreateNew).unwrap();
        calls::set_permissions(&left, 0).unwrap();
        without_rights(|| {
            assert_eq!(readers.list(3).unwrap(), []);
            assert!(readers.have_opened(&mut None).unwrap());
            // It was not dead: what it reads now it reads behind the first look.
            calls::write_all_at(&left, &[0; LINE], 0).unwrap();
            assert_eq!(shown(&readers, 4), Some(3));
        });
    }

    /// Bug: a pipe with the name of a reader held up the writer for ever. Cause: the opening
    /// of a pipe waits until another process writes to it. Fix: the writer opens regular files.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_no_regular_file_is_no_reader_and_is_told_once() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let (directory, _, readers) = world();
        let [pipe, socket, link, inner] =
            [1, 2, 3, 4].map(|id| ReaderName { id, is_late: id == 2 }.path(directory.path()));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&link, &link).unwrap();
        fs::create_dir(&inner).unwrap();
        assert!(readers.have_opened(&mut None).unwrap());
        assert_eq!(readers.list(0).unwrap(), []);
        let mut told: Vec<PathBuf> = readers.take_untold().into_iter().map(|it| it.0).collect();
        told.sort();
        assert_eq!(told, [pipe, link, inner, socket], "each by its name");
        assert_eq!(readers.list(0).unwrap(), []);
        assert!(readers.take_untold().is_empty(), "once");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "they are left alone");
    }

    /// Bug: a listing that failed was told by those alone who waited for zones. Fix: each is noted,
    /// until somebody tells.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_listing_that_fails_is_told_once_until_one_succeeds() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, _, readers) = world();
        let let_list = |may: bool| {
            let mode = if may { 0o700 } else { 0o300 };
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        without_rights(|| {
            for _ in 0..2 {
                let_list(false);
                readers.list(0).unwrap_err();
                readers.list(0).unwrap_err();
                let told = readers.take_untold();
                assert_eq!(told.len(), 1, "{told:?}");
                assert_eq!(told[0].0, directory.path());
                let_list(true);
                readers.list(0).unwrap();
            }
            assert!(readers.take_untold().is_empty());
        });
    }

    #[test]
    fn a_reader_that_cannot_be_renamed_is_waited_for() {
        let (directory, files, readers) = world();
        let late = ReaderRegistration::begin(&files, directory.path()).unwrap();
        let in_its_place = late.name.late().path(directory.path());
        fs::create_dir(&in_its_place).unwrap();
        fs::write(in_its_place.join("file"), "").unwrap();
        assert!(!readers.have_opened(&mut None).unwrap());
        wait_long(&readers);
        readers.have_opened(&mut None).unwrap_err();
        fs::remove_dir_all(&in_its_place).unwrap();
        assert!(readers.have_opened(&mut None).unwrap());
        assert!(!late.shows(3).unwrap());
    }

    /// Bug: beside any writer no opening of more than ten seconds succeeded. Cause: each sample of
    /// the history lists the readers for statistics, which began the patience with those that were
    /// opening. Fix: it begins where zones wait.
    #[test]
    fn statistics_begin_no_patience() {
        let (directory, files, readers) = world();
        let slow = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert_eq!(shown(&readers, 0), Some(0));
        assert!(readers.listed.lock().opening.iter().all(|reader| reader.since.is_none()));
        assert_eq!(shown(&readers, 0), Some(0));
        assert!(slow.shows(3).unwrap());
    }

    /// Bug: with readers that came one after the other no zone was released, and no space came
    /// back, as long as one of them was opening. Cause: a writer waited for all that were opening
    /// when it looked. Fix: it waits for those that were when it first looked; who comes later
    /// reads later bytes.
    #[test]
    fn a_writer_does_not_wait_for_readers_that_come_later() {
        let (directory, files, readers) = world();
        let first = ReaderRegistration::begin(&files, directory.path()).unwrap();
        let mut opening = None;
        assert!(!readers.have_opened(&mut opening).unwrap());
        assert_eq!(shown(&readers, 4), Some(0));
        let second = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert!(!readers.have_opened(&mut opening).unwrap(), "the first one still is");
        assert!(first.shows(6).unwrap());
        assert!(readers.have_opened(&mut opening).unwrap());
        assert!(!readers.have_opened(&mut None).unwrap());
        assert_eq!(shown(&readers, 9), Some(4), "the second one reads what there was by then");
        let third = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert!(second.shows(8).unwrap());
        drop(first);
        assert_eq!(shown(&readers, 9), Some(8));
        drop(second);
        assert_eq!(shown(&readers, 9), Some(9));
        drop(third);
    }

    #[test]
    fn a_line_that_is_not_whole_says_that_the_reader_is_opening() {
        let edit = 0x1234_5678_9abc_def0_u64;
        let mut whole = [0; LINE];
        whole[..8].copy_from_slice(&edit.to_le_bytes());
        whole[8..16].copy_from_slice(&(!edit).to_le_bytes());
        whole[16] = 7;
        assert_eq!(ReaderLine::of(whole), ReaderLine { shows: Some(edit), process: 7 });
        for len in 0..16 {
            let mut torn = [0; LINE];
            torn[..len].copy_from_slice(&whole[..len]);
            assert_eq!(ReaderLine::of(torn).shows, None, "{len} bytes");
        }
    }
}
