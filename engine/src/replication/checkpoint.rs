//! Checkpoints: the levels as objects of the shared store, and a manifest that names them. A reader
//! has what lies above the levels from the log. Only a checkpoint that takes the place of commits
//! which the log lacks has that too, as a backup does.
//!
//! The manifest is a backup's. The place of an extent in it is the name of its object: the file is
//! the number of the piece, the offset its claim times 16 MiB.
//!
//! Transactions that are prepared and open at its LSN go with it: their records in the entry, the
//! rows that they have spilled as objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::log::{DataPiece, Entry, EntryBody, LogCheckpoint, PieceId, SharedLog, SharedPrepare};
use crate::backup::{Destination, KnownExtents, fetch, gather};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::options::{Failpoint, Options};
use crate::base::progress::Meter;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, Sealable, TableId};
use crate::compaction::bytes_to_dump;
use crate::engine::Engine;
use crate::engine::open::{Content, LockedDatabase, create_of_extents};
use crate::memtable::encode_record;
use crate::mvcc::DrainedMap;
use crate::os::{HashMap, time};
use crate::sstable::{Extent, ExtentMeta, ReadAhead};
use crate::storage::{ExtentStore, Location, ObjectId, SHARED_PIECES, Sends, shared_name};
use crate::txn::{KeptPrepares, OpenPrepare};
use crate::version::{Edit, Level, LevelCursor, Manifest, Op, Version};

/// No extent is as long, so places of pieces do not touch.
const SPACING: u64 = 16 << 20;

/// Claims and pieces beyond it have no place.
const MOST_CLAIMS: u64 = 1 << 39;
const MOST_PIECES: u32 = SHARED_PIECES;

/// Rows of a prepared transaction are sent in objects of about so many bytes.
const PIECE_BYTES: usize = 4 << 20;

/// About so many bytes of extents are sent ahead of a checkpoint at a time. One extent with its
/// values is sent whole.
pub(super) const AHEAD_BYTES: u64 = 16 << 20;

/// A checkpoint that failed is made again after such a time.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Why a checkpoint that is due could not be made.
#[derive(Debug)]
pub(super) struct Hindrance {
    pub(super) cause: String,
    /// It is tried again then. Where steps come in their turn, each one tries.
    pub(super) until: Instant,
    pause: Duration,
}

impl Hindrance {
    /// That of an error, after the one before.
    pub(super) fn of(error: &Error, before: Option<&Hindrance>) -> Hindrance {
        let pause = before.map_or(FIRST_RETRY, |it| (it.pause * 2).min(LONGEST_RETRY));
        Hindrance { cause: error.to_string(), until: time::now() + pause, pause }
    }
}

/// What a checkpoint has.
#[derive(Debug)]
pub(super) struct SentCheckpoint {
    /// The entry with which a reader of it goes on.
    pub(super) from: u64,
    pub(super) manifest: Manifest,
    pub(super) prepares: Vec<SharedPrepare>,
}

impl SentCheckpoint {
    /// The body of its entry.
    pub(super) fn body(&self) -> LogCheckpoint {
        LogCheckpoint { manifest: self.manifest.encode(), prepares: self.prepares.clone() }
    }

    /// What the log has for a later one.
    pub(super) fn log_base(&self) -> LogBase {
        let Manifest { lsn, oldest, .. } = self.manifest;
        let lacks = if oldest == 0 { lsn } else { oldest - 1 };
        LogBase { from: self.from, lacks }
    }

    /// The pieces that it names.
    pub(super) fn pieces(&self) -> BTreeSet<PieceId> {
        let of_prepares = self.prepares.iter().flat_map(|prepare| &prepare.pieces);
        let of_prepares = of_prepares.map(|piece| (piece.claim, piece.number));
        self.manifest.places().iter().map(piece_of).chain(of_prepares).collect()
    }
}

/// What the log has for the next checkpoint: from an entry on, all commits above an LSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBase {
    pub(super) from: u64,
    /// Of what is above the levels up to here, it may have nothing.
    pub(super) lacks: Lsn,
}

/// The name of the object that a place in a manifest stands for.
pub(super) fn object_of(place: &Location) -> String {
    let (claim, piece) = piece_of(place);
    shared_name(claim, piece)
}

/// The claim and the number of the piece that a place in a manifest stands for.
pub(super) fn piece_of(place: &Location) -> PieceId {
    (place.offset / SPACING, place.file)
}

/// The place in a manifest of what lies in the shared store already: a takeover has named it.
fn shared_place(at: &Location) -> Option<Location> {
    let (claim, piece) = at.object()?.shared()?;
    Some(Location { file: piece, offset: claim * SPACING, len: at.len })
}

/// What the store has of a directory's extents.
#[derive(Debug, Default)]
pub(super) struct SentData {
    known: KnownExtents,
    /// Rows of prepares, by their LSNs.
    prepares: HashMap<Lsn, Vec<DataPiece>>,
}

impl SentData {
    /// What a checkpoint names. Its prepares have the LSNs of its writer: they count if that is
    /// this directory.
    pub(super) fn of(checkpoint: &SentCheckpoint, is_own: bool) -> SentData {
        let mut sent = SentData::default();
        sent.keep_only(checkpoint);
        sent.prepares.retain(|_, _| is_own);
        sent
    }

    /// Keeps what a checkpoint names: no more of it is sure to stay in the store.
    pub(super) fn keep_only(&mut self, checkpoint: &SentCheckpoint) {
        let named = checkpoint.manifest.places();
        self.known.forget(|place| !named.contains(place));
        checkpoint.manifest.extents().for_each(|extent| self.known.add(extent));
        let prepares = checkpoint.prepares.iter();
        self.prepares = prepares.map(|one| (one.lsn, one.pieces.clone())).collect();
    }

    /// Forgets what these pieces of a claim have, and extents with values in them.
    fn forget(&mut self, claim: u64, pieces: &BTreeSet<u32>) {
        let lacks =
            |place: &Location| place.offset == claim * SPACING && pieces.contains(&place.file);
        self.known.forget(lacks);
        self.prepares.retain(|_, known| {
            !known.iter().any(|piece| piece.claim == claim && pieces.contains(&piece.number))
        });
    }
}

/// Gives pieces of data their names.
#[derive(Debug)]
pub(super) struct DataPieces {
    pub(super) claim: u64,
    pub(super) next: u32,
}

impl DataPieces {
    fn take(&mut self, len: u32) -> Result<Location> {
        if self.claim >= MOST_CLAIMS || self.next >= MOST_PIECES || u64::from(len) > SPACING {
            let message = format!(
                "piece {} of claim {} with {len} bytes has no name in the shared store; open the \
                 database again",
                self.next, self.claim
            );
            return Err(Error::new(ErrorKind::Full, message));
        }
        let place = Location { file: self.next, offset: self.claim * SPACING, len };
        self.next += 1;
        Ok(place)
    }
}

/// A checkpoint on its way to the store.
struct Uploading<'a> {
    engine: &'a Engine,
    pieces: &'a mut DataPieces,
    sent: &'a mut SentData,
    /// Pieces on their way, by their number.
    sends: Sends<u32>,
    /// Bytes that were sent for it.
    bytes: u64,
    /// Until it has its LSN.
    kept: Option<KeptPrepares<'a>>,
    open: Vec<OpenPrepare>,
    /// It has what lies above the levels too if some of that is no later.
    lacks: Lsn,
}

/// Sends the levels of this moment, and gives what the entry is to have. If something up to `lacks`
/// lies above the levels, all that lies there is sent too. A reader goes on with the entry `next`
/// then; else the caller says where. `sent` is what the store has already, and has what was added.
///
/// # Errors
///
/// Those of reading; `Unavailable` if the store does not answer. What was sent may be named later.
pub(super) fn send(
    engine: &Engine,
    log: &SharedLog,
    (lacks, next): (Lsn, u64),
    (pieces, sent): (&mut DataPieces, &mut SentData),
) -> Result<SentCheckpoint> {
    let kept = Some(engine.transactions.prepared.keep());
    let mut uploading = Uploading::new(engine, log, (pieces, sent), kept);
    uploading.lacks = lacks;
    let sent = uploading.send_all(next);
    uploading.forget_unsent();
    sent
}

/// The extents that a checkpoint of this moment has of levels, and the store lacks. They are sent
/// for hours maybe, so nothing keeps them from being given back.
pub(super) fn extents(engine: &Engine, sent: &SentData) -> Vec<Weak<Extent>> {
    let versions = engine.tables().into_iter().map(|table| Arc::clone(&table.view().version));
    let of = |version: Arc<Version>| -> Vec<Weak<Extent>> {
        let all = version.levels.iter().flat_map(|level| level.extents().iter());
        all.filter(|extent| !sent.known.has(extent.meta())).map(Arc::downgrade).collect()
    };
    versions.flat_map(of).collect()
}

/// About how many bytes a checkpoint of this moment sends at most.
pub(super) fn bytes_to_send(engine: &Engine, sent: &SentData) -> u64 {
    let lacking = extents(engine, sent).into_iter().filter_map(|extent| extent.upgrade());
    let places: BTreeSet<Location> =
        lacking.flat_map(|extent| sent.known.lacking(extent.meta())).collect();
    let own = places.iter().filter(|at| shared_place(at).is_none());
    let visible = engine.shared.committer.visible();
    let above = engine.tables().into_iter().map(|it| bytes_to_dump(&it.view(), visible));
    own.map(|at| u64::from(at.len)).chain(above).sum()
}

/// Sends some of the extents ahead of a checkpoint, if the store lacks them, and takes out those
/// that it has: how many bytes were sent, about `most` of them. No entry names them yet.
///
/// # Errors
///
/// As [`send`]; `Closed` once a closing has begun.
pub(super) fn send_ahead(
    engine: &Engine,
    log: &SharedLog,
    (extents, most): (&mut Vec<Weak<Extent>>, u64),
    into: (&mut DataPieces, &mut SentData),
) -> Result<u64> {
    let mut uploading = Uploading::new(engine, log, into, None);
    let sent = uploading.send_some(extents, most);
    uploading.forget_unsent();
    sent
}

impl<'a> Uploading<'a> {
    fn new(
        engine: &'a Engine,
        log: &SharedLog,
        (pieces, sent): (&'a mut DataPieces, &'a mut SentData),
        kept: Option<KeptPrepares<'a>>,
    ) -> Uploading<'a> {
        let sends = Sends::new(&log.client, engine.set.store().memory().job_sends());
        Uploading { engine, pieces, sent, sends, bytes: 0, kept, open: Vec::new(), lacks: LSN_MAX }
    }

    fn send_some(&mut self, extents: &mut Vec<Weak<Extent>>, most: u64) -> Result<u64> {
        while self.bytes < most
            && let Some(extent) = extents.pop()
        {
            self.engine.shared.check_open()?;
            if self.is_closing(self.bytes) {
                return Err(Error::closed());
            }
            if let Some(extent) = extent.upgrade() {
                self.copy(&extent)?;
            }
        }
        self.sends.finish(|_, _| ())?;
        Ok(self.bytes)
    }

    fn is_closing(&self, sent: u64) -> bool {
        self.engine.shipper.get().is_some_and(|shipper| shipper.is_closing(sent))
    }

    fn send_all(&mut self, from: u64) -> Result<SentCheckpoint> {
        let engine = self.engine;
        let gathered = gather(engine, self, &Meter::silent())?;
        let open = std::mem::take(&mut self.open);
        let prepares = open.into_iter().map(|prepare| self.send_prepare(prepare));
        let prepares = prepares.collect::<Result<_>>()?;
        // Before an entry names them.
        self.sends.finish(|_, _| ())?;
        // Its number is that of its entry, which comes later.
        let manifest = gathered.manifest(engine, from, self.bytes)?;
        Ok(SentCheckpoint { from, manifest, prepares })
    }

    /// Forgets what the store may lack after a failure: the next checkpoint sends it again, with
    /// what refers to it.
    fn forget_unsent(self) {
        let unsent: BTreeSet<u32> = self.sends.into_unsent().collect();
        if !unsent.is_empty() {
            self.sent.forget(self.pieces.claim, &unsent);
        }
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<Location> {
        self.check_wanted(self.bytes)?;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let place = self.pieces.take(len)?;
        if place.file.is_multiple_of(3) && self.engine.options.has(Failpoint::NameUnsentExtent) {
            return Ok(place);
        }
        self.sends.send((place.file, object_of(&place)), bytes, |_, _| ())?;
        self.bytes += u64::from(len);
        Ok(place)
    }

    /// Sends what a prepared transaction has spilled, if that was not done for an earlier one.
    fn send_prepare(&mut self, prepare: OpenPrepare) -> Result<SharedPrepare> {
        let OpenPrepare { lsn, records, runs } = prepare;
        if let Some(known) = self.sent.prepares.get(&lsn) {
            return Ok(SharedPrepare { lsn, records, pieces: known.clone() });
        }
        let mut pieces = Vec::new();
        for (table, rows) in &runs {
            self.send_rows(*table, rows, &mut pieces)?;
        }
        self.sent.prepares.insert(lsn, pieces.clone());
        Ok(SharedPrepare { lsn, records, pieces })
    }

    fn send_rows(
        &mut self,
        table: TableId,
        rows: &Level,
        pieces: &mut Vec<DataPiece>,
    ) -> Result<()> {
        let (extents, cache) = (Arc::clone(rows.extents()), &self.engine.shared.cache);
        let mut cursor = LevelCursor::new(extents, Arc::clone(cache), ReadAhead::for_job(1));
        let mut bytes = Vec::new();
        cursor.seek(b"", LSN_MAX)?;
        while let Some(entry) = cursor.entry() {
            match cursor.separated()? {
                Some(value) => {
                    encode_record(&mut bytes, table, Kind::Put, entry.key, &value.read()?);
                }
                None => encode_record(&mut bytes, table, entry.kind, entry.key, entry.value),
            }
            cursor.next()?;
            if bytes.len() >= PIECE_BYTES {
                pieces.push(self.send_piece(std::mem::take(&mut bytes))?);
            }
        }
        if !bytes.is_empty() {
            pieces.push(self.send_piece(bytes)?);
        }
        Ok(())
    }

    fn send_piece(&mut self, bytes: Vec<u8>) -> Result<DataPiece> {
        let Location { file, offset, len } = self.send(bytes)?;
        Ok(DataPiece { claim: offset / SPACING, number: file, len })
    }
}

impl Destination for Uploading<'_> {
    fn store(&self) -> &Arc<ExtentStore> {
        self.engine.set.store()
    }

    fn begins(&mut self, lsn: Lsn, oldest: Lsn) -> Result<bool> {
        let kept = self.kept.take();
        if let Some(kept) = kept.filter(|_| !self.engine.options.has(Failpoint::ForgetPrepares)) {
            self.open = kept.open_at(&self.engine.shared, lsn, &|| self.is_closing(0))?;
        }
        Ok(oldest <= self.lacks)
    }

    /// A closing waits for a small checkpoint alone.
    fn check_wanted(&self, bytes: u64) -> Result<()> {
        let is_large = bytes >= AHEAD_BYTES;
        if is_large && self.is_closing(bytes) { Err(Error::closed()) } else { Ok(()) }
    }

    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        let mut known = std::mem::take(&mut self.sent.known);
        let own = known.copy(extent, &mut |lacking| match shared_place(&lacking.location) {
            Some(there) => Ok(there),
            None => self.send(lacking.read()?),
        });
        self.sent.known = known;
        own
    }

    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>> {
        self.copy(dumped)
    }
}

// A database of a checkpoint, in a new directory. Its region is empty. Either all data is fetched,
// checked, and written to extents there, or its extents are named where they lie: in the store.

/// A checkpoint of the log.
pub(super) struct FoundCheckpoint {
    /// That of its writer.
    pub(super) claim: u64,
    /// The entry with which a reader of it goes on: the commits of entries before are in it.
    pub(super) from: u64,
    /// The commit that a reader has once it has come to its entry.
    pub(super) last: Lsn,
    pub(super) manifest: Manifest,
    /// What the levels have of what is above [`Manifest::oldest`].
    pub(super) drained: BTreeMap<TableId, DrainedMap>,
    pub(super) prepares: Vec<SharedPrepare>,
}

impl From<FoundCheckpoint> for SentCheckpoint {
    fn from(found: FoundCheckpoint) -> SentCheckpoint {
        let FoundCheckpoint { from, manifest, prepares, .. } = found;
        SentCheckpoint { from, manifest, prepares }
    }
}

/// The checkpoint that entry `number` is. `None` if the log has left it behind.
pub(super) fn read(log: &SharedLog, number: u64) -> Result<Option<FoundCheckpoint>> {
    let Some(entry) = log.entry(number)? else { return Ok(None) };
    let place = format!("{}/{}", log.address(), crate::replication::log::entry_name(number)).into();
    match entry.body {
        EntryBody::Checkpoint(found) => {
            let mut manifest = Manifest::read_bytes(&found.manifest, number, ("object", place))?;
            let Entry { claim, first: from, last, .. } = entry;
            let (prepares, mut drained) = (found.prepares, BTreeMap::new());
            // A reader's own records have other LSNs.
            manifest.edit.ops.retain_mut(|op| match op {
                Op::DrainedMap { table, map } => {
                    drained.insert(*table, std::mem::take(map));
                    false
                }
                _ => true,
            });
            Ok(Some(FoundCheckpoint { claim, from, last, manifest, drained, prepares }))
        }
        _ => Err(log.damage("shared/log", format!("a checkpoint as entry {number}"))),
    }
}

/// Where the data of a restored database lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPlace {
    /// In its directory: nothing that becomes of the store's objects concerns it.
    Here,
    /// In the store, to be read from there.
    Store,
}

/// Makes a database of a checkpoint in `to`, which is empty.
///
/// # Errors
///
/// `Exists` if there is something in `to`; `Corrupt` if data is damaged or gone; `Full`;
/// `Unavailable` if the store does not answer; `Closed` once the log is stopped. There is no
/// database then.
pub(super) fn restore(
    log: &SharedLog,
    manifest: &Manifest,
    (to, place): (&Path, DataPlace),
    options: &Options,
) -> Result<LockedDatabase> {
    create_of_extents(to, options, |files| {
        if place == DataPlace::Store {
            return Ok(Content { lsn: manifest.lsn, edit: in_store(manifest) });
        }
        let check = |_| log.check_open();
        let edit = fetch((manifest, &*log.client), &object_of, (files, to), &check)?;
        Ok(Content { lsn: manifest.lsn, edit })
    })
}

/// The edit of a checkpoint, with the pieces of the store as places.
fn in_store(manifest: &Manifest) -> Edit<Arc<ExtentMeta>> {
    manifest.relocated(|of| {
        let (claim, piece) = piece_of(&of);
        Location::of_object(ObjectId::of_shared(claim, piece), of.len)
    })
}
