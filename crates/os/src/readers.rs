//! Readers beside a writer. Each has a file of its own in the database's directory, which it has
//! locked until it ends. The file says which edit of the journal the reader shows, once it is open.
//! `docs/internals/readers.md` says what a writer keeps for it.
//!
//! The name of a reader stays the same from the first byte that it reads to its end. So a listing
//! has it: what a listing shows of a name that is changed meanwhile is not known.
//!
//! Thread safety: every method may be called from any thread; `listed` is held over a listing.
//!
//! Invariants:
//!
//! 1. A name whose file is not locked is of a reader that ended, or that has read nothing yet.
//! 2. A reader that a writer went on without never takes what it has read for sound: the reader
//!    says that it is open, and then looks for the writer's mark. The writer sets the mark, and
//!    then looks whether the reader is open.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::calls;
use super::chance::draw_random;
use super::files::{Files, OpenHow};
use super::fork::ForkGuard;
use super::lock::{Access, FileLock};
use super::real::RealFiles;
use super::time;
use crate::sync::locks::Mutex;

/// What names of readers begin with.
const PREFIX: &str = "reader-";

/// The file of a reader: the edit that it shows, the same with all bits turned round, and a byte
/// that is not zero once a writer went on without it.
const LINE: usize = 17;

/// Where the writer's mark is.
const MARK_AT: u64 = 16;

/// A writer waits so long for a reader that is opening.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a file of this name is a reader's.
pub fn is_reader_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|d| d.len() == 16 && d.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// This process as a reader of a database that others may write. It ends when it is dropped, and
/// with the process.
#[derive(Debug)]
pub struct ReaderRegistration {
    files: RealFiles,
    path: PathBuf,
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
            let path = directory.join(format!("{PREFIX}{:016x}", u128::from_le_bytes(id) as u64));
            // A writer may have the new file for an instant, and removes it.
            let Some(lock) = FileLock::at(&files, &path, Access::Exclusive)? else { continue };
            let registration = ReaderRegistration { files, path, lock, fork: ForkGuard::new() };
            let file = registration.lock.file();
            calls::let_others(file)?;
            // On a full disk it fails here, and not once it is marked.
            calls::write_all_at(file, &[0; LINE], 0)?;
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
        let is_there = self.files.leads_to(&self.path, self.lock.file())?;
        Ok(is_there && !ReaderLine::read(self.lock.file())?.is_given_up)
    }
}

impl Drop for ReaderRegistration {
    fn drop(&mut self) {
        if !self.fork.is_forked() {
            // One that stays goes with the next look of a writer: it is not locked.
            self.files.remove(&self.path).unwrap_or(());
        }
    }
}

/// A writer of another user finds the lock of a reader's file, and marks it. The directory says who
/// comes that far.
const FOR_ALL: u32 = 0o666;

/// What the file of a reader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReaderLine {
    /// The edit that it shows; `None` as long as it is opening.
    shows: Option<u64>,
    is_given_up: bool,
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
        ReaderLine { shows: (turned == !edit).then_some(edit), is_given_up: bytes[LINE - 1] != 0 }
    }
}

/// A reader, as a writer finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BesideReader {
    /// The name of its file.
    pub name: String,
    /// The edit of the journal that it shows. While it is opening: it will show no earlier one.
    pub shows: u64,
    /// Whether it is open.
    pub is_open: bool,
}

impl BesideReader {
    /// Whether it shows, or may come to show, what one edit of the journal added and another one
    /// removed.
    pub fn may_show(&self, added: u64, removed: u64) -> bool {
        self.shows < removed && (!self.is_open || added <= self.shows)
    }
}

/// A reader that is opening, as it was found first.
#[derive(Clone, Debug)]
struct OpeningReader {
    name: String,
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
        self.list_for(journaled, false)
    }

    /// The same. Where zones wait, readers that are opening have [`PATIENCE`] from then on.
    fn list_for(&self, journaled: u64, zones_wait: bool) -> io::Result<Vec<BesideReader>> {
        let Some(real) = self.files.real() else { return Ok(Vec::new()) };
        let mut listed = self.listed.lock();
        let (mut there, mut opening) = (Vec::new(), Vec::new());
        for name in real.list(&self.directory)?.into_iter().filter(|name| is_reader_name(name)) {
            let known = listed.opening.iter().find(|reader| reader.name == name).cloned();
            let mut reader = known.unwrap_or_else(|| OpeningReader {
                name: name.clone(),
                since: None,
                least: listed.journaled,
            });
            let is_late =
                zones_wait && time::since(*reader.since.get_or_insert_with(time::now)) > PATIENCE;
            let Some(line) = look(real, &self.directory.join(&name), is_late)? else { continue };
            let (shows, is_open) = (line.shows.unwrap_or(reader.least), line.shows.is_some());
            if is_open || !line.is_given_up {
                there.push(BesideReader { name, shows, is_open });
            }
            if !is_open {
                opening.push(reader);
            }
        }
        *listed = Listed { opening, journaled: listed.journaled.max(journaled) };
        Ok(there)
    }

    /// Whether readers that were opening when this was first asked, with `None`, are so no more:
    /// they read zones. `opening` are those that still are.
    pub fn have_opened(&self, opening: &mut Option<Vec<String>>) -> bool {
        let Ok(mut there) = self.list_for(0, true) else { return false };
        there.retain(|reader| !reader.is_open);
        let names = there.into_iter().map(|reader| reader.name);
        let left: Vec<String> = match opening.take() {
            None => names.collect(),
            Some(before) => names.filter(|name| before.contains(name)).collect(),
        };
        opening.insert(left).is_empty()
    }
}

/// What the file at `path` says of a reader; `None` if that has ended. One that is late is gone on
/// without, as long as it is opening.
fn look(files: &RealFiles, path: &Path, is_late: bool) -> io::Result<Option<ReaderLine>> {
    let opened = match files.open_system(path, OpenHow::Write) {
        // Of another user: it can be seen, and not marked.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            files.open_system(path, OpenHow::Read)
        }
        opened => opened,
    };
    let file = match opened {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
            return Ok(None);
        }
        // It was made a moment ago, or a rule of the system keeps it from this process. It may be
        // open, and cannot be marked: it is waited for.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Some(ReaderLine { shows: None, is_given_up: false }));
        }
        opened => opened?,
    };
    let again = file.try_clone()?;
    if let Some(_ended) = FileLock::take(again, Access::Exclusive)? {
        // A name that stays is looked at again.
        files.remove(path).unwrap_or(());
        return Ok(None);
    }
    let line = ReaderLine::read(&file)?;
    if !is_late || line.shows.is_some() || line.is_given_up {
        return Ok(Some(line));
    }
    match calls::write_all_at(&file, &[1], MARK_AT) {
        Ok(()) => ReaderLine::read(&file).map(Some),
        // What cannot be marked is waited for.
        Err(_) => Ok(Some(line)),
    }
}

#[cfg(test)]
mod tests {
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
        let of = |is_open| BesideReader { name: String::new(), shows: 5, is_open };
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
        let look = || (shown(&readers, 0), readers.have_opened(&mut None));
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

    #[test]
    fn the_name_of_a_reader_that_ended_is_removed() {
        let (directory, _, readers) = world();
        let stale = directory.path().join(format!("{PREFIX}0123456789abcdef"));
        let other = directory.path().join(format!("{PREFIX}of-a-user"));
        std::fs::create_dir(directory.path().join(format!("{PREFIX}0123456789abcdee"))).unwrap();
        for path in [&stale, &other] {
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(readers.list(0).unwrap(), []);
        assert!(!stale.exists() && other.exists());
    }

    #[test]
    fn a_writer_goes_on_without_a_reader_that_opens_too_long() {
        let (directory, files, readers) = world();
        let late = ReaderRegistration::begin(&files, directory.path()).unwrap();
        let len = late.lock.file().metadata().unwrap().len();
        assert_eq!(len, LINE as u64, "a full disk does not keep the mark from it");
        assert!(!readers.have_opened(&mut None));
        let long_ago = || {
            let since = time::now().checked_sub(2 * PATIENCE).unwrap();
            let mut listed = readers.listed.lock();
            listed.opening.iter_mut().for_each(|reader| reader.since = Some(since));
        };
        long_ago();
        assert!(readers.have_opened(&mut None));
        assert!(!late.shows(3).unwrap(), "it begins anew");
        // What it shows is kept until it is gone: it may not have looked.
        assert_eq!(shown(&readers, 0), Some(3));
        let fast = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert_eq!(shown(&readers, 0), Some(0));
        assert!(fast.shows(4).unwrap());
        long_ago();
        assert_eq!(shown(&readers, 0), Some(3));
        assert!(fast.shows(6).unwrap(), "one that is open is never late");
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
        assert!(!readers.have_opened(&mut opening));
        assert_eq!(shown(&readers, 4), Some(0));
        let second = ReaderRegistration::begin(&files, directory.path()).unwrap();
        assert!(!readers.have_opened(&mut opening), "the first one still is");
        assert!(first.shows(6).unwrap());
        assert!(readers.have_opened(&mut opening));
        assert!(!readers.have_opened(&mut None));
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
        assert_eq!(ReaderLine::of(whole), ReaderLine { shows: Some(edit), is_given_up: false });
        for len in 0..16 {
            let mut torn = [0; LINE];
            torn[..len].copy_from_slice(&whole[..len]);
            assert_eq!(ReaderLine::of(torn).shows, None, "{len} bytes");
        }
    }
}
