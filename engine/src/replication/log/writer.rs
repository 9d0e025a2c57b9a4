//! The writer's end of the log: it claims the log, and appends entry after entry.
//!
//! Thread safety: none of its own; its owner has a lock.
//!
//! Invariants:
//!
//! 1. All entries from the claim up to `next` are this writer's own.
//! 2. An entry is encoded once. Until its put is decided, only the same bytes are put again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::end::LogEnd;
use super::entry::{Entry, EntryBody, EntryCompressor, EntryKind, LogClaim, NewBody, NewHead};
use super::shared_log::{Appended, SharedLog};
use crate::base::error::{Error, ErrorKind, Mismatch, Result};
use crate::base::record::{Lsn, Reader, checksum, put_u32, put_u64};
use crate::engine::open::CLAIMS_FILE;
use crate::os::{Directory, Files, NewFile, OpenHow};
use crate::storage::owner;

/// How often a claim is tried while others append.
pub(crate) const CLAIM_TRIES: u32 = 64;

/// The writer's end.
#[derive(Debug)]
pub(crate) struct LogWriter {
    log: Arc<SharedLog>,
    claim: u64,
    next: u64,
    checkpoint: u64,
    last: Lsn,
    /// The entry whose put is not decided.
    undecided: Option<(NewHead, Bytes)>,
    compressor: EntryCompressor,
    /// That of the last segment: the next one needs as much.
    memory: Vec<u8>,
    /// Whether it looks which entry it finds: a planted bug if not.
    checks: bool,
}

impl LogWriter {
    /// Becomes the writer of a log that is the directory's own, or empty. What the log had before
    /// the claim comes with it. `fits` says whether the directory has all of the log: a claim that
    /// comes first would stop a writer for an opening that fails.
    ///
    /// # Errors
    ///
    /// `Fenced` if another directory has taken the log over, `Invalid` if it is another database's;
    /// `Unavailable` if the store does not answer, or others are always faster; those of `fits`,
    /// before a claim.
    pub(crate) fn claim(
        log: &Arc<SharedLog>,
        identity: &Identity,
        (nonce, incarnation): ([u8; 16], u64),
        fits: impl Fn(LogEnd) -> Result<()>,
    ) -> Result<(LogWriter, LogEnd)> {
        let known = identity.load()?;
        // A claim that may still come stays known: the file has room for one such number.
        let nonce = known.undecided().unwrap_or(nonce);
        for _ in 0..CLAIM_TRIES {
            let end = log.end()?;
            let (claimed, number) =
                check_own(log, &known, end)?.unwrap_or((known.claimed, known.number));
            fits(end)?;
            // Synced first, so that a claim of which no answer comes is known.
            identity.store(&Nonces { claimed, number, intended: nonce, ..known })?;
            if let Some(writer) = LogWriter::claim_at(log, (nonce, incarnation), end)? {
                identity.store_claimed((nonce, writer.number()), known.taken_at)?;
                return Ok((writer, end));
            }
        }
        Err(log.overtaken())
    }

    /// Claims the log behind its last entry, which is known; `None` if it is no longer the last.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: the claim may be there, or may come.
    pub(crate) fn claim_at(
        log: &Arc<SharedLog>,
        (nonce, incarnation): ([u8; 16], u64),
        end: LogEnd,
    ) -> Result<Option<LogWriter>> {
        let number = end.next;
        let entry = Entry {
            number,
            claim: number,
            checkpoint: end.checkpoint,
            first: 0,
            last: end.last,
            body: EntryBody::Claim(LogClaim { nonce, incarnation, owner: owner() }),
        };
        let appended = log.append(number, &entry.encode()?.into())?;
        // Where the log went on meanwhile, the claim may be in a hole that a collector made. It may
        // count as well, if another one has claimed behind it, so it stays.
        if matches!(appended, Appended::Taken) || log.is_past(number)? {
            return Ok(None);
        }
        Ok(Some(LogWriter {
            log: Arc::clone(log),
            claim: number,
            next: number + 1,
            checkpoint: end.checkpoint,
            last: end.last,
            undecided: None,
            compressor: EntryCompressor::default(),
            memory: Vec::new(),
            checks: true,
        }))
    }

    /// Whether it looks whose entry it finds in its way: a planted bug if not.
    pub(crate) fn check_claims(&mut self, checks: bool) {
        self.checks = checks;
    }

    /// The number of its claim.
    pub(crate) fn number(&self) -> u64 {
        self.claim
    }

    /// The last LSN of the log.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// The newest checkpoint.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    /// The number of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Memory for the next segment.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }

    /// Whether the put of an entry is not decided: [`LogWriter::settle`] comes first.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided.is_some()
    }

    /// Appends an entry: its number.
    pub(crate) fn append(
        &mut self,
        body: impl Into<NewBody>,
        (first, last): (u64, Lsn),
    ) -> Result<u64> {
        debug_assert!(self.undecided.is_none(), "one entry after the other (invariant 2)");
        debug_assert!(last >= self.last, "the log's LSN never falls");
        let (number, NewBody { kind, bytes }) = (self.next, body.into());
        let checkpoint = if kind == EntryKind::Checkpoint { number } else { self.checkpoint };
        let head = NewHead { number, claim: self.claim, checkpoint, first, last, kind };
        let encoded = head.encode(&bytes, &mut self.compressor)?;
        if kind == EntryKind::Segment {
            self.memory = bytes;
        }
        self.undecided = Some((head, encoded.into()));
        self.settle()?;
        Ok(number)
    }

    /// Puts the undecided entry, until it is known what became of it.
    ///
    /// # Errors
    ///
    /// `Fenced` if another writer has claimed the log: nothing is appended any more. `Unavailable`
    /// if the store does not answer; call it again.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Some((entry, bytes)) = &self.undecided else { return Ok(()) };
        let appended = self.log.append(entry.number, bytes)?;
        if matches!(appended, Appended::Taken) && self.checks {
            return Err(self.log.fenced(&self.found(entry.number)?));
        }
        self.next = entry.number + 1;
        self.checkpoint = entry.checkpoint;
        self.last = entry.last;
        self.undecided = None;
        Ok(())
    }

    /// Whose entry is in the way, for the message. It is another writer's, readable or not.
    fn found(&self, number: u64) -> Result<String> {
        match self.claim_of(number) {
            Ok(Some(claim)) => Ok(claim.to_string()),
            Ok(None) => Ok("its claim cannot be read".to_string()),
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
            Err(error) => Ok(format!("its claim cannot be read: {error}")),
        }
    }

    /// The claim that an entry names, if both are there.
    fn claim_of(&self, number: u64) -> Result<Option<LogClaim>> {
        match self.log.entry(number)? {
            Some(Entry { body: EntryBody::Claim(claim), .. }) => Ok(Some(claim)),
            Some(entry) => self.log.claim(entry.claim),
            None => Ok(None),
        }
    }
}

/// The last claim and its number, if that is the directory's own; `None` for an empty log. Also a
/// claim without a checkpoint may be that of a writer that lives, and has commits.
fn check_own(log: &SharedLog, known: &Nonces, end: LogEnd) -> Result<Option<([u8; 16], u64)>> {
    if end.claim == 0 {
        return Ok(None);
    }
    match log.claim(end.claim)? {
        Some(claim) if known.has(claim.nonce) => Ok(Some((claim.nonce, end.claim))),
        Some(claim) if had(log, known)? => Err(log.fenced(&format!("{claim} has claimed it"))),
        // What this directory has claimed is no more there.
        Some(claim) if known.number >= end.next => Err(log.put_back(&claim)),
        Some(claim) => Err(log.foreign(&claim, end.checkpoint)),
        None => Err(log.damage("shared/log", format!("a claim as entry {}", end.claim))),
    }
}

/// Whether the log has the directory's last claim. Claims that count are never deleted.
fn had(log: &SharedLog, known: &Nonces) -> Result<bool> {
    // As an earlier version wrote it, there is no number.
    let is_there = || Ok(log.claim(known.number)?.is_some_and(|own| own.nonce == known.claimed));
    if known.is_writer() && known.number > 0 { is_there() } else { Ok(known.is_writer()) }
}

// By which a directory knows its own claims: a small file in it, synced before a claim is put into
// the store. A claim of which the answer was lost is known by it too.

const MAGIC: &[u8; 8] = b"TERRNODE";
const LEN: usize = 60;

/// As earlier versions wrote it: without the claim's number, and of directories that never took
/// over.
const LENS_BEFORE: [usize; 2] = [52, 44];

/// The random numbers of the last claim that is known to be there, and of one that may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nonces {
    pub(crate) claimed: [u8; 16],
    pub(crate) intended: [u8; 16],
    /// The last LSN that the directory had when it took the log over: it had all up to there from
    /// the log, under LSNs of its own. 0 if it never did.
    pub(crate) taken_at: Lsn,
    /// The entry of the claim that is known to be there; 0 if there is none, or it is not known.
    pub(crate) number: u64,
}

impl Nonces {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = [self.claimed, self.intended].concat();
        put_u64(&mut body, self.taken_at);
        put_u64(&mut body, self.number);
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, checksum(&[], &body));
        out.extend_from_slice(&body);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Nonces> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        let sum = reader.u32()?;
        let claimed = reader.take(16)?.try_into().ok()?;
        let intended = reader.take(16)?.try_into().ok()?;
        let is_sound = sum == checksum(&[], &bytes[12..]);
        let is_whole = bytes.len() == LEN || LENS_BEFORE.contains(&bytes.len());
        let mut later = || if reader.is_empty() { Some(0) } else { reader.u64() };
        let (taken_at, number) = (later()?, later()?);
        (is_sound && is_whole).then_some(Nonces { claimed, intended, taken_at, number })
    }

    /// The number of a claim that may be there, or may come.
    fn undecided(&self) -> Option<[u8; 16]> {
        (self.intended != self.claimed && self.intended != [0; 16]).then_some(self.intended)
    }

    /// Whether the directory ever was the writer of a shared store.
    fn is_writer(&self) -> bool {
        self.claimed != [0; 16]
    }

    /// Whether a claim with this number is the directory's own.
    pub(crate) fn has(&self, nonce: [u8; 16]) -> bool {
        nonce != [0; 16] && (self.claimed == nonce || self.intended == nonce)
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct Identity {
    files: Arc<dyn Files>,
    directory: PathBuf,
}

impl Identity {
    /// That of a database's directory.
    pub(crate) fn new(files: &Arc<dyn Files>, directory: &Path) -> Identity {
        Identity { files: Arc::clone(files), directory: directory.to_path_buf() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(CLAIMS_FILE)
    }

    /// What it has; nothing if the directory never claimed.
    pub(crate) fn load(&self) -> Result<Nonces> {
        let path = self.path();
        let file = match self.files.open(&path, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Nonces::default()),
            opened => opened.map_err(|e| Error::io("open", &path, e))?,
        };
        let read =
            || file.read_vec(0, usize::try_from(file.len()?).map_or(LEN, |len| len.min(LEN)));
        let bytes = read().map_err(|e| Error::io("read", &path, e))?;
        Nonces::decode(&bytes).ok_or_else(|| {
            let found = Mismatch::new("two numbers with their checksum", "other bytes");
            Error::corrupt(found.at("claims of this directory", "ssd", path, 0))
        })
    }

    /// Remembers a claim and its number as the directory's own, and since when that writes.
    pub(crate) fn store_claimed(
        &self,
        (claimed, number): ([u8; 16], u64),
        taken_at: Lsn,
    ) -> Result<()> {
        self.store(&Nonces { claimed, intended: claimed, taken_at, number })
    }

    /// Writes it, durably and whole or not at all.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    pub(crate) fn store(&self, nonces: &Nonces) -> Result<()> {
        let path = self.path();
        let write = || {
            let new = NewFile::create(&*self.files, &path)?;
            new.file().try_write_all_at(&nonces.encode(), 0)?;
            new.file().sync()?;
            new.rename(&path)?;
            Directory::at(&self.directory).sync(&*self.files)
        };
        write().map_err(|e| Error::io("write", &path, e))
    }
}
