//! The journal: a file of edits, each synced before it counts.
//!
//! Thread safety: none of its own; the version set serialises all calls.
//!
//! An opening for writing builds on what it finds, so it first writes that again: the sync of an
//! edit may have failed, and such an edit stays readable and is on no device. The floor tells which
//! edits are durable; an opening writes the others, in place. It changes no byte that it read, so a
//! cut leaves each sector as the opening found it or as it was on the device. Only the last edit
//! can differ there, because an append waits for the sync of the one before (invariant 1). So the
//! next opening finds all the edits, or all but that one, which was acknowledged to no caller.
//!
//! The file is longer than its edits: space is allocated ahead of need, and reads as zeros. So an
//! append that has its space cannot meet a full disk. `docs/internals/full-disk.md` says which
//! edits may use how much of it.
//!
//! Invariants:
//!
//! 1. The bytes up to `end` are sound edits with dense numbers, and durable, once the journal is
//!    open for writing. Nothing but zeros is after them when [`append`](Journal::append) is called.
//! 2. An epoch has its name only once its checkpoint is synced.
//! 3. After an append whose outcome is not known, nothing is appended any more. The handle sees to
//!    it for a failed sync.
//! 4. `end` ≤ `allocated`, and the bytes between them have space on the device, as far as the file
//!    system allocates ahead at all.

mod bytes;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edit::Edit;
use crate::base::error::{Damage, Error, ErrorKind, Result};
use crate::base::record::{Lsn, SealRefused, Sealable, other_format};
use crate::os::{Directory, File, Files, NewFile, OpenHow, Unread, read_past};
use crate::sstable::Described;
use bytes::{EDIT, Header, Scan, damage};

pub(super) use bytes::Replayed;

/// How far the journal is known to be durable. Numbers go on rising from epoch to epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalFloor {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

/// What an opening does with the edits that it finds beyond the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundEdits {
    /// Nothing: it only reads.
    Leave,
    /// It writes them again and syncs them.
    Rewrite,
    /// It syncs them: a planted bug.
    Sync,
}

/// An append that did not succeed.
#[derive(Debug)]
pub(super) struct AppendFailure {
    pub(super) error: Error,
    /// Whether the edit may be found at the next opening all the same.
    pub(super) may_be_durable: bool,
}

/// By how much the file grows.
pub(super) const STEP: u64 = 64 * 1024;

/// Space that edits leave to those that free space, and to those that follow a commit.
pub(super) const RESERVE: u64 = STEP / 2;

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: Arc<File>,
    path: PathBuf,
    header: Header,
    next_number: u64,
    end: u64,
    /// Up to here the file has space on the device (invariant 4).
    allocated: u64,
}

/// What can be read of a damaged journal.
pub(super) struct ReadEdits {
    pub(super) edits: Vec<Replayed>,
    pub(super) doubts: Vec<Damage>,
    /// A torn append, where the floor names an earlier epoch. An opening drops it.
    pub(super) torn: Option<Damage>,
    /// Whether the last edits are in doubt.
    pub(super) ends_early: bool,
}

/// A new epoch that has no name yet.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    journal: Journal,
    new: NewFile<'a>,
}

fn path_of(directory: &Path, epoch: u64) -> PathBuf {
    directory.join(format!("journal-{epoch:08}"))
}

fn epoch_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("journal-")?;
    let epoch = digits.parse().ok()?;
    (digits == format!("{epoch:08}")).then_some(epoch)
}

/// Whether a file of this name is an epoch of a journal.
pub(crate) fn is_journal_name(name: &str) -> bool {
    epoch_of(name).is_some()
}

/// The epochs that `directory` has, ascending.
pub(super) fn epochs(files: &dyn Files, directory: &Path) -> Result<Vec<u64>> {
    let names = files.list(directory).map_err(|e| Error::io("list", directory, e))?;
    let mut epochs: Vec<u64> = names.iter().filter_map(|name| epoch_of(name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// The id of the database that the greatest epoch is of, if its header is sound.
pub(super) fn database_id(files: &dyn Files, directory: &Path) -> Result<Option<[u8; 16]>> {
    let Some(epoch) = epochs(files, directory)?.pop() else { return Ok(None) };
    let path = path_of(directory, epoch);
    let file = files.open(&path, OpenHow::Read).map_err(|e| Error::io("open", &path, e))?;
    let mut header = [0; bytes::HEADER_LEN];
    let read = file.read_exact_at(&mut header, 0);
    Ok(read.ok().and_then(|()| Header::of(&header).ok()).map(|header| header.database_id))
}

impl Journal {
    /// Writes and syncs a new epoch that begins with `checkpoint`. Nothing counts on it yet, so a
    /// failure leaves everything as it was.
    pub(super) fn prepare<'a, E: Described>(
        files: &'a dyn Files,
        directory: &Path,
        database_id: [u8; 16],
        first: JournalFloor,
        lsn: Lsn,
        checkpoint: &Edit<E>,
    ) -> Result<Prepared<'a>> {
        let (epoch, first_number) = (first.epoch, first.number);
        let header = Header { database_id, epoch, first_number };
        let mut content = header.encode();
        content.extend(encode(first, lsn, checkpoint)?);
        let path = path_of(directory, first.epoch);
        let made_as = NewFile::made_as(&path);
        let created = NewFile::create(files, &path);
        let new = created.map_err(|e| Error::io("create", &made_as, e))?;
        let file = Arc::clone(new.file());
        let (next_number, end) = (first.number + 1, content.len() as u64);
        let allocated = (end + RESERVE).next_multiple_of(STEP);
        let found = file.preallocate(0, allocated);
        found.map_err(|e| Error::io("find space for", &made_as, e))?;
        file.try_write_all_at(&content, 0).map_err(|e| Error::io("write", &made_as, e))?;
        file.sync().map_err(|e| Error::io("sync", &made_as, e))?;
        let journal = Journal { file, path, header, next_number, end, allocated };
        Ok(Prepared { journal, new })
    }

    /// Opens the greatest epoch and reads its edits. Unless the opening only reads, it clears a
    /// torn tail, makes what it found durable, and removes what else an interrupted change of epoch
    /// left.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no journal, or one of another format; `Corrupt` if what was durable
    /// is not sound, by `floor` or by the journal itself; or on an I/O error.
    pub(super) fn open(
        files: &dyn Files,
        directory: &Path,
        floor: JournalFloor,
        found: FoundEdits,
    ) -> Result<(Journal, Vec<Replayed>)> {
        let epochs = epochs(files, directory)?;
        let Some((&epoch, older)) = epochs.split_last() else {
            let message = format!("{} holds no database: it has no journal", directory.display());
            return Err(Error::invalid(message));
        };
        let path = path_of(directory, epoch);
        let how = if found == FoundEdits::Leave { OpenHow::Read } else { OpenHow::Write };
        let file = files.open(&path, how).map_err(|e| Error::io("open", &path, e))?;
        let content = read_whole(&file).map_err(|e| Error::io("read", &path, e))?;
        let (header, scan) = parse(&path, &content, epoch, floor)?;
        let scan = scan.checked()?;
        let next_number = header.first_number + scan.edits.len() as u64;
        let end = scan.end as u64;
        let mut journal = Journal { file, path, header, next_number, end, allocated: end };
        if found != FoundEdits::Leave {
            if epoch != floor.epoch {
                // The process that gave it the name may have died before that was durable.
                let synced = Directory::at(directory).sync(files);
                synced.map_err(|e| Error::io("sync", directory, e))?;
            }
            journal.write_found(&content, undurable_from(&scan, epoch, floor), found)?;
            remove_leftovers(files, directory, older)?;
            journal.find_reserve(content.len() as u64)?;
        }
        Ok((journal, scan.edits))
    }

    /// Makes durable what an opening found from byte `from` on, and writes zeros over what is
    /// behind it. That needs no space.
    fn write_found(&self, content: &[u8], from: usize, found: FoundEdits) -> Result<()> {
        let end = self.end as usize;
        debug_assert!(from <= end && end <= content.len(), "edits end within the file");
        let torn = bytes::end_of_bytes(content).saturating_sub(end);
        if from == end && torn == 0 {
            return Ok(());
        }
        let written = |bytes: &[u8], at: usize| {
            let written = self.file.write_all_at(bytes, at as u64);
            written.map_err(|e| Error::io("write", &self.path, e))
        };
        if torn > 0 {
            written(&vec![0; torn], end)?;
        }
        if found == FoundEdits::Rewrite {
            written(&content[from..end], from)?;
        }
        self.file.sync().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Looks for the reserve in a file of `len` bytes that an opening found. On a full disk it goes
    /// on with what there is.
    fn find_reserve(&mut self, len: u64) -> Result<()> {
        let there = len.max(self.end);
        let wanted = (self.end + RESERVE).next_multiple_of(STEP).max(there);
        for upto in [wanted, there] {
            if upto == self.end {
                break;
            }
            let found = self.file.preallocate(self.end, upto);
            match found.map_err(|e| Error::io("find space for", &self.path, e)) {
                Ok(()) => {
                    self.allocated = upto;
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Full => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Syncs what an opening found that only reads, beside another process.
    pub(super) fn sync_found(&self, files: &dyn Files) -> Result<()> {
        let file = files.open(&self.path, OpenHow::TO_SYNC);
        file.and_then(|file| file.sync()).map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Bytes that may be appended without a call for space.
    pub(super) fn room(&self) -> u64 {
        debug_assert!(self.end <= self.allocated, "invariant 4");
        self.allocated - self.end
    }

    /// Has space for `bytes` more behind the last edit, at least.
    ///
    /// # Errors
    ///
    /// `Full` when the disk has none; or another I/O error. Nothing has changed then.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<()> {
        let upto = (self.end + bytes).next_multiple_of(STEP);
        if bytes <= self.room() {
            return Ok(());
        }
        let found = self.file.preallocate(self.allocated, upto);
        found.map_err(|e| {
            let more = upto - self.allocated;
            Error::io(&format!("find {more} bytes more for"), &self.path, e)
        })?;
        self.allocated = upto;
        Ok(())
    }

    /// Opens the greatest epoch to read: its sound edits, and what is in doubt. Without a floor a
    /// torn append is in doubt, too. Where the checkpoint is lost, the edits of the epoch before
    /// come first, if that is still there. They are from offset 0.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no journal; or on an I/O error.
    pub(super) fn open_readable(
        files: &dyn Files,
        directory: &Path,
        floor: JournalFloor,
    ) -> Result<(Journal, ReadEdits)> {
        let mut epochs = epochs(files, directory)?;
        let Some(epoch) = epochs.pop() else {
            let message = format!("{} holds no database: it has no journal", directory.display());
            return Err(Error::invalid(message));
        };
        let path = path_of(directory, epoch);
        let (file, content, unread) = read_readable(files, &path)?;
        let (header, mut scan) = parse(&path, &content, epoch, floor)?;
        let (in_doubt, torn) = match floor == JournalFloor::default() {
            true => (scan.torn.take(), None),
            false => (None, scan.torn.take().filter(|_| floor.epoch != epoch)),
        };
        scan.doubts.extend(in_doubt.into_iter().chain(unreadable(&path, unread)));
        let ends_early = epoch < floor.epoch
            || scan.edits.is_empty()
            || scan.doubts.iter().any(|doubt| doubt.offset >= scan.end as u64);
        // One that is older by more says nothing of what came between.
        if !scan.edits.first().is_some_and(Replayed::is_checkpoint)
            && epochs.pop().is_some_and(|before| before + 1 == epoch)
        {
            // All of it was durable before the checkpoint was.
            let number = header.first_number.saturating_sub(1);
            let before = read_older(files, directory, JournalFloor { epoch: epoch - 1, number });
            match before {
                Ok((edits, doubts)) => {
                    scan.edits.splice(0..0, edits);
                    scan.doubts.extend(doubts);
                }
                Err(error) => {
                    let (path, got) = (path_of(directory, epoch - 1), error.to_string());
                    scan.doubts.push(damage(&path, "journal", 0, "readable bytes", got));
                }
            }
        }
        let next_number = scan.edits.last().map_or(0, |edit| edit.number).saturating_add(1);
        let header = Header { epoch, first_number: 0, ..header };
        let (end, allocated) = (content.len() as u64, content.len() as u64);
        let journal = Journal { file, path, header, next_number, end, allocated };
        Ok((journal, ReadEdits { edits: scan.edits, doubts: scan.doubts, torn, ends_early }))
    }

    /// Appends an edit and syncs it. On success it is durable.
    pub(super) fn append<E: Described>(
        &mut self,
        lsn: Lsn,
        edit: &Edit<E>,
    ) -> std::result::Result<(), AppendFailure> {
        let at = JournalFloor { epoch: self.header.epoch, number: self.next_number };
        let refused = |error| AppendFailure { error, may_be_durable: false };
        let bytes = encode(at, lsn, edit).map_err(refused)?;
        if let Err(e) = self.file.try_write_all_at(&bytes, self.end) {
            let error = Error::io("append an edit to", &self.path, e);
            // The bytes before the end are as they were, and the sync proves it: a part of the edit
            // that arrived lies behind them, in a sector that they may share.
            let undone = self.file.set_len(self.end).and_then(|()| self.file.sync());
            self.allocated = self.end;
            return Err(AppendFailure { error, may_be_durable: undone.is_err() });
        }
        if let Err(e) = self.file.sync() {
            let error = Error::io("sync", &self.path, e);
            return Err(AppendFailure { error, may_be_durable: true });
        }
        self.end += bytes.len() as u64;
        // Where no space was asked for, the write found some.
        self.allocated = self.allocated.max(self.end);
        self.next_number += 1;
        Ok(())
    }

    /// The bytes that an edit takes.
    pub(super) fn len_of<E: Described>(edit: &Edit<E>) -> u64 {
        bytes::edit_len(edit)
    }

    /// The last durable edit.
    pub(super) fn floor(&self) -> JournalFloor {
        debug_assert!(self.next_number > self.header.first_number, "there is a checkpoint");
        JournalFloor { epoch: self.header.epoch, number: self.next_number - 1 }
    }

    pub(super) fn database_id(&self) -> [u8; 16] {
        self.header.database_id
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// A check of every edit that is durable now. It reads the file again, and gives how many
    /// structures there are. It takes long and needs the journal no more: edits go on meanwhile,
    /// and change no byte that it reads (invariant 1).
    pub(super) fn check(&self) -> impl FnOnce() -> Result<u64> + use<> {
        let (file, path, epoch) = (Arc::clone(&self.file), self.path.clone(), self.header.epoch);
        let (floor, end) = (self.floor(), self.end);
        move || {
            let len = file.len().map(|len| len.min(end) as usize);
            let content = len.and_then(|len| file.read_vec(0, len));
            let content = content.map_err(|e| Error::io("read", &path, e))?;
            let (_, scan) = parse(&path, &content, epoch, floor)?;
            Ok(1 + scan.checked()?.edits.len() as u64)
        }
    }

    /// An error that says that the edit at `offset` is damaged, though its checksum is right.
    pub(super) fn refuse(&self, offset: usize, expected: String, got: String) -> Error {
        Error::corrupt(damage(&self.path, EDIT, offset, expected, got))
    }
}

impl Prepared<'_> {
    /// As [`Journal::room`].
    pub(super) fn room(&self) -> u64 {
        self.journal.room()
    }

    /// As [`Journal::make_room`].
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<()> {
        self.journal.make_room(bytes)
    }

    /// Gives the epoch its name; from then on it is the journal. A failure leaves open which one
    /// is found at the next opening, so nothing more may be journaled.
    pub(super) fn install(self, files: &dyn Files, directory: &Directory) -> Result<Journal> {
        let to = &self.journal.path;
        self.new.rename(to).map_err(|e| Error::io("rename to", to, e))?;
        directory.sync(files).map_err(|e| Error::io("sync", directory.path(), e))?;
        Ok(self.journal)
    }
}

/// Removes an epoch that has a successor, if that is possible now. It is not needed, and every
/// opening takes the greatest epoch and removes the others.
pub(super) fn remove_epoch(files: &dyn Files, directory: &Path, epoch: u64) {
    files.remove(&path_of(directory, epoch)).unwrap_or(());
}

fn encode<E: Described>(at: JournalFloor, lsn: Lsn, edit: &Edit<E>) -> Result<Vec<u8>> {
    bytes::encode_edit(at.epoch, at.number, lsn, edit).ok_or_else(|| {
        let message = format!("an edit of {} operations is beyond 4 GiB", edit.ops.len());
        Error::new(ErrorKind::Full, message)
    })
}

/// What can be read of a file, with ones for the rest, and what cannot.
fn read_readable(files: &dyn Files, path: &Path) -> Result<(Arc<File>, Vec<u8>, Vec<Unread>)> {
    let file = files.open(path, OpenHow::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure", path, e))?;
    let (mut content, mut unread) = (vec![0; usize::try_from(len).unwrap_or(0)], Vec::new());
    read_past(0, &mut content, &mut |at, part| file.read_exact_at(part, at), &mut unread);
    Ok((file, content, unread))
}

/// The edits of the epoch before a lost checkpoint, which went up to `floor`, and what is in doubt.
fn read_older(
    files: &dyn Files,
    directory: &Path,
    floor: JournalFloor,
) -> Result<(Vec<Replayed>, Vec<Damage>)> {
    let path = path_of(directory, floor.epoch);
    let (_, content, unread) = read_readable(files, &path)?;
    let (_, Scan { mut edits, mut doubts, torn, .. }) = parse(&path, &content, floor.epoch, floor)?;
    doubts.extend(torn.into_iter().chain(unreadable(&path, unread)));
    edits.iter_mut().for_each(|edit| edit.offset = 0);
    Ok((edits, doubts))
}

/// The lines about what cannot be read of a file.
fn unreadable(path: &Path, unread: Vec<Unread>) -> impl Iterator<Item = Damage> {
    unread.into_iter().map(move |Unread { place, error }| {
        let expected = format!("{} readable bytes", place.end - place.start);
        damage(path, "journal", place.start as usize, expected, error)
    })
}

pub(super) fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut content = vec![0; len];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// The LSN up to which all was durable when the last of these edits was made.
pub(super) fn durable(edits: &[Replayed]) -> Lsn {
    edits.iter().map(|edit| edit.lsn).max().unwrap_or(0)
}

/// The offset from which on the found bytes of an epoch may not be durable. The floor is stored
/// once the edit that it names is durable, with all that comes before it in the epoch.
fn undurable_from(scan: &Scan, epoch: u64, floor: JournalFloor) -> usize {
    if epoch != floor.epoch {
        return 0;
    }
    let beyond = scan.edits.iter().find(|edit| edit.number > floor.number);
    beyond.map_or(scan.end, |edit| edit.offset)
}

/// Checks the content of an epoch's file against itself and against the floor.
///
/// # Errors
///
/// `Invalid` if it has another format. Damage is in doubt.
fn parse(path: &Path, content: &[u8], epoch: u64, floor: JournalFloor) -> Result<(Header, Scan)> {
    let (header, damaged) = match Header::of(content) {
        Ok(header) => (header, None),
        Err(SealRefused::Format(version)) => return Err(other_format(path.display(), version)),
        Err(SealRefused::Damaged(found)) => {
            (Header::lost(content, epoch), Some(found.at(Header::WHAT, "journal", path, 0)))
        }
    };
    let other = (header.epoch != epoch || epoch < floor.epoch).then(|| {
        let expected = format!("epoch {}", epoch.max(floor.epoch));
        damage(path, Header::WHAT, 0, expected, format!("epoch {}", header.epoch))
    });
    let mut scan = bytes::scan(path, content, &Header { epoch, ..header }, floor.number);
    scan.doubts.splice(0..0, damaged.into_iter().chain(other));
    Ok((header, scan))
}

fn remove_leftovers(files: &dyn Files, directory: &Path, older: &[u64]) -> Result<()> {
    let names = files.list(directory).map_err(|e| Error::io("list", directory, e))?;
    let unnamed = |name: &&String| name.strip_suffix(".new").and_then(epoch_of).is_some();
    let half_made = names.iter().filter(unnamed).map(|name| directory.join(name));
    for path in older.iter().map(|epoch| path_of(directory, *epoch)).chain(half_made) {
        files.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}
