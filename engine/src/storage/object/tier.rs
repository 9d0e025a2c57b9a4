//! The extents of one database that are objects: writing, reading and deleting them.
//!
//! A job goes through these steps, in this order:
//!
//! 1. [`reserve`](ObjectTier::reserve) gives an extent its name.
//! 2. [`put`](super::ExtentSink::put) sends its bytes. Several are under way at a time.
//! 3. [`finish`](super::Uploads::finish) waits until the store has acknowledged all of the job's.
//! 4. Then [`confirm`](ObjectTier::confirm) looks whether the fence is still this writer's.
//! 5. The journal's edit names the extents, durably.
//! 6. The extents that it replaced are [`released`](ObjectTier::release) with their last reader.
//! 7. [`delete_released`](ObjectTier::delete_released) deletes them later, many at a time, and
//!    [`delete_at_close`](ObjectTier::delete_at_close) what is left.
//!
//! A failure of a request is an error of the step, and the job may be made again. None poisons the
//! database.
//!
//! Thread safety: every method may be called from any thread. `fence` is held while the fence is
//! taken; `objects` for an instant. No lock is taken under another one.
//!
//! Invariants:
//!
//! 1. A name is used once. Its epoch is this writer's alone ([`fence`](super::fence)), and the
//!    caller gives an extent id once within an opening.
//! 2. An object is *live* while the journal may name it, a job writes it, or a reader has it. Only
//!    an object that is not live is deleted, and it never becomes live again.
//! 3. Nothing is deleted for a writer that has lost the fence when it looks.
//! 4. Pieces of the shared store are read alone. Their writer deletes them, and leaves those that
//!    are live here.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use super::client::{Client, ObjectRead, RequestCounts};
use super::fence::{self, Before, Fence, PlacedFence, WriterClaim};
use super::known::KnownFence;
use super::name::{LAST_EPOCH, ObjectId, ObjectNames};
use super::store::{FailureKind, LIST_LEN, Span};
use super::tails::TailCache;
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::sync::atomic::{AtomicU8, Ordering};
use crate::os::sync::locks::Mutex;

/// A closing deletes so many times a thousand objects at most.
const MOST_AT_CLOSE: usize = 8;

/// One part in so many of an object is read at its end at once, within bounds.
const TAIL: u32 = 16;
const SHORTEST_TAIL: u32 = 64 * 1024;
const LONGEST_TAIL: u32 = 1024 * 1024;

/// Where the end begins that is read at once, of an object of this length. Of most extents that is
/// all but the blocks.
pub(crate) fn tail_offset(len: u32) -> u32 {
    len.saturating_sub((len / TAIL).clamp(SHORTEST_TAIL, LONGEST_TAIL))
}

/// What of a test's planted bugs is in effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planted {
    /// The epoch of the opening before is used again.
    pub(crate) same_epoch: bool,
    /// No upload looks at the fence.
    pub(crate) unchecked_fence: bool,
    /// No edit waits for the store to acknowledge an object.
    pub(crate) unacknowledged: bool,
    /// A collection leaves every second object that is not needed.
    pub(crate) keeps_unneeded: bool,
}

#[derive(Debug, Default)]
struct Objects {
    live: BTreeSet<ObjectId>,
    /// Of these, the ones that the store has not acknowledged.
    unacknowledged: BTreeSet<ObjectId>,
    released: BTreeSet<ObjectId>,
    /// Of these, the last one that was tried and could not be deleted: those behind it are next.
    tried: Option<ObjectId>,
}

/// The objects of one database.
#[derive(Debug)]
pub(crate) struct ObjectTier {
    client: Arc<Client>,
    names: ObjectNames,
    claim: WriterClaim,
    /// The fence, once this opening has it.
    fence: Mutex<Option<PlacedFence>>,
    /// The fence of the opening before, if that is known.
    last: Option<PlacedFence>,
    /// Where the fence is remembered for the next opening.
    known: Option<KnownFence>,
    /// It only reads, and takes no fence.
    read_only: bool,
    /// The journal named objects when it was opened, so the store has a fence.
    has_fence: bool,
    objects: Mutex<Objects>,
    tails: Option<TailCache>,
    /// What a piece of the shared store is that is missing: one of [`LOST`] and those behind it.
    missing: AtomicU8,
    planted: Planted,
}

/// A piece that is missing is lost: damage.
const LOST: u8 = 0;
/// The writer has deleted it, since this follower was away.
const LEFT_BEHIND: u8 = 1;
/// So it was found.
const FOUND_LEFT_BEHIND: u8 = 2;

/// Bytes of an object that are on their way from the store, or here.
#[derive(Debug)]
pub(crate) enum Fetch {
    /// They were in the cache of ends.
    Here(Vec<u8>),
    /// A request is under way. `from` is where it begins in the object.
    Asked { id: ObjectId, reading: ObjectRead, from: u32, range: (u32, u32), is_tail: bool },
}

/// What a look at all objects of a database found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Objects that the journal names.
    pub(crate) live: u64,
    pub(crate) live_bytes: u64,
    /// Objects that a crash left, which were deleted unless it was a dry run.
    pub(crate) left: Vec<ObjectId>,
    pub(crate) left_bytes: u64,
    /// Names that Terrace does not give. They stay.
    pub(crate) foreign: Vec<String>,
    /// Extents that the journal names and the store lacks.
    pub(crate) lost: Vec<ObjectId>,
}

impl ObjectTier {
    /// The objects of a database, of which the journal names `named`. Asks the store for nothing.
    pub(crate) fn open(
        client: Arc<Client>,
        names: ObjectNames,
        claim: WriterClaim,
        named: impl IntoIterator<Item = ObjectId>,
    ) -> ObjectTier {
        let live: BTreeSet<ObjectId> = named.into_iter().collect();
        let has_fence = live.iter().any(|id| id.shared().is_none());
        ObjectTier {
            client,
            names,
            claim,
            fence: Mutex::new(None),
            last: None,
            known: None,
            read_only: false,
            has_fence,
            objects: Mutex::new(Objects { live, ..Objects::default() }),
            tails: None,
            missing: AtomicU8::new(LOST),
            planted: Planted::default(),
        }
    }

    /// Takes pieces of the shared store that are missing for deleted by its writer: a follower
    /// reads them.
    pub(crate) fn follows(self) -> ObjectTier {
        self.missing.store(LEFT_BEHIND, Ordering::Relaxed);
        self
    }

    /// Whether a read has found a piece missing that the writer has deleted.
    pub(crate) fn is_left_behind(&self) -> bool {
        self.missing.load(Ordering::Relaxed) == FOUND_LEFT_BEHIND
    }

    /// The writer keeps all that is read here: pieces that are missing are lost.
    pub(crate) fn is_not_left_behind(&self) {
        self.missing.store(LOST, Ordering::Relaxed);
    }

    /// Has it only read.
    pub(crate) fn read_only(mut self) -> ObjectTier {
        self.read_only = true;
        self
    }

    /// Has the fence be remembered for the next opening, and takes it as the last one left it.
    pub(crate) fn with_known_fence(mut self, known: KnownFence) -> ObjectTier {
        self.last = known.load();
        self.known = Some(known);
        self
    }

    /// Where the store is.
    pub(crate) fn address(&self) -> String {
        self.client.address()
    }

    /// What an object is called in messages: a path.
    pub(crate) fn path(&self, id: ObjectId) -> PathBuf {
        format!("{}/{}", self.client.address(), self.names.extent(id)).into()
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The name of an object.
    pub(super) fn name(&self, id: ObjectId) -> String {
        self.names.extent(id)
    }

    pub(super) fn planted(&self) -> &Planted {
        &self.planted
    }

    /// Has ends of objects be kept in a local file.
    pub(crate) fn with_tails(mut self, tails: TailCache) -> ObjectTier {
        self.tails = Some(tails);
        self
    }

    /// Says what the fence was when the opening before had it: then one request takes it.
    #[cfg(test)]
    pub(crate) fn with_last_fence(mut self, last: PlacedFence) -> ObjectTier {
        self.last = Some(last);
        self
    }

    pub(crate) fn with_planted(mut self, planted: Planted) -> ObjectTier {
        self.planted = planted;
        self
    }

    /// Requests since the opening.
    pub(crate) fn counts(&self) -> RequestCounts {
        self.client.counts()
    }

    /// Makes no attempt again from now on: the database is closing.
    pub(crate) fn stop(&self) {
        self.client.stop();
    }

    /// The fence of this opening, which is taken now if it was not.
    ///
    /// # Errors
    ///
    /// As [`fence::take`].
    pub(crate) fn fence(&self) -> Result<PlacedFence> {
        let mut held = self.fence.lock();
        if let Some(placed) = &*held {
            return Ok(placed.clone());
        }
        if self.read_only {
            return Err(Error::invalid("the database is open read-only; open it for writing"));
        }
        let before = Before { last: self.last.clone(), is_there: self.has_fence };
        let mut placed = fence::take(&self.client, &self.names, &self.claim, before)?;
        if let Some(known) = &self.known {
            known.keep(&placed);
        }
        if self.planted.same_epoch {
            placed.value.epoch = 1;
        }
        *held = Some(placed.clone());
        Ok(placed)
    }

    /// Whether this opening still has the fence.
    ///
    /// # Errors
    ///
    /// `Unavailable`, naming the other writer, if it has not; or the store does not answer.
    pub(crate) fn confirm(&self) -> Result<()> {
        if self.planted.unchecked_fence {
            return Ok(());
        }
        let own: Fence = self.fence()?.value;
        fence::confirm(&self.client, &self.names, &own)
    }

    /// Gives an extent of this opening its name. It is live until it is released.
    ///
    /// # Errors
    ///
    /// As [`fence`](Self::fence).
    pub(crate) fn reserve(&self, extent: u64) -> Result<ObjectId> {
        let id = ObjectId { epoch: self.fence()?.value.epoch, extent };
        let mut objects = self.objects.lock();
        objects.unacknowledged.insert(id);
        let is_new = objects.live.insert(id);
        debug_assert!(is_new || self.planted.same_epoch, "an extent id is given once: {id:?}");
        Ok(id)
    }

    /// The store has acknowledged an extent. Its end enters the cache.
    pub(super) fn acknowledged(&self, id: ObjectId, bytes: &[u8]) {
        self.objects.lock().unacknowledged.remove(&id);
        if let (Some(tails), Ok(len)) = (&self.tails, u32::try_from(bytes.len())) {
            let offset = tail_offset(len);
            tails.keep(id, offset, &bytes[offset as usize..]);
        }
    }

    /// Begins to read `len` bytes from `offset` of an object that has `has` bytes. A read in its
    /// end takes no request if the end is in the cache, and else brings all of the end.
    pub(crate) fn begin_read(&self, id: ObjectId, has: u32, (offset, len): (u32, u32)) -> Fetch {
        debug_assert!(
            len > 0 && u64::from(offset) + u64::from(len) <= u64::from(has),
            "a part of it"
        );
        let tail = tail_offset(has);
        if offset >= tail
            && let Some(bytes) = self.in_tail(id, (offset, len))
        {
            return Fetch::Here(bytes);
        }
        let is_tail = self.tails.is_some() && offset + len == has && offset >= tail;
        let (from, to) = if is_tail { (tail, has) } else { (offset, offset + len) };
        let span = Span::Bytes { offset: u64::from(from), len: u64::from(to - from) };
        let reading = self.client.begin_get(&self.names.extent(id), span);
        Fetch::Asked { id, reading, from, range: (offset, len), is_tail }
    }

    /// Whether the end of an object is kept on this machine.
    pub(crate) fn keeps_tail_of(&self, id: ObjectId) -> bool {
        self.tails.as_ref().is_some_and(|tails| tails.has(id))
    }

    fn in_tail(&self, id: ObjectId, (offset, len): (u32, u32)) -> Option<Vec<u8>> {
        let tail = self.tails.as_ref()?.get(id)?;
        let from = offset.checked_sub(tail.offset)? as usize;
        tail.bytes.get(from..from + len as usize).map(<[u8]>::to_vec)
    }

    /// Waits for bytes of an object.
    ///
    /// # Errors
    ///
    /// `Corrupt`, naming the object, if the store lost it or a part of it; `Unavailable` if it does
    /// not answer in time, another writer has taken the store over, or the writer has deleted what
    /// this follower reads.
    pub(crate) fn finish_read(&self, fetch: Fetch) -> Result<Vec<u8>> {
        let (id, reading, from, (offset, len), is_tail) = match fetch {
            Fetch::Here(bytes) => return Ok(bytes),
            Fetch::Asked { id, reading, from, range, is_tail } => {
                (id, reading, from, range, is_tail)
            }
        };
        let name = self.names.extent(id);
        let answer = reading.finish(&self.client);
        if id.shared().is_some()
            && self.missing.load(Ordering::Relaxed) != LOST
            && matches!(&answer, Err(failure) if failure.kind == FailureKind::Missing)
        {
            self.missing.store(FOUND_LEFT_BEHIND, Ordering::Relaxed);
            return Err(self.left_behind(&name));
        }
        let bytes = self.client.told("read", &name, answer).map_err(|e| self.why_lost(e))?.bytes;
        if let Some(tails) = self.tails.as_ref().filter(|_| is_tail) {
            tails.keep(id, from, &bytes);
        }
        if (from, bytes.len()) == (offset, len as usize) {
            return Ok(bytes);
        }
        let start = (offset - from) as usize;
        Ok(bytes[start..start + len as usize].to_vec())
    }

    /// Reads bytes of an object.
    ///
    /// # Errors
    ///
    /// As [`finish_read`](Self::finish_read).
    pub(crate) fn read(&self, id: ObjectId, has: u32, range: (u32, u32)) -> Result<Vec<u8>> {
        self.finish_read(self.begin_read(id, has, range))
    }

    fn left_behind(&self, name: &str) -> Error {
        let message = format!(
            "object {name} of {} is gone: the writer has deleted it since this follower started \
             from its checkpoint; ask the follower for its database again, which starts from the \
             newest checkpoint",
            self.client.address()
        );
        Error::new(ErrorKind::Unavailable, message).of_store()
    }

    /// An object that is gone may have been deleted by the writer that has the fence now, or the
    /// store is another one.
    fn why_lost(&self, lost: Error) -> Error {
        if lost.kind() != ErrorKind::Corrupt {
            return lost;
        }
        let held = self.fence.lock().as_ref().map(|placed| placed.value.clone());
        let fault = match held {
            Some(own) => fence::confirm(&self.client, &self.names, &own).err(),
            None if self.has_fence => fence::check_is_there(&self.client, &self.names).err(),
            None => None,
        };
        match fault.filter(|fault| matches!(fault.kind(), ErrorKind::Fenced | ErrorKind::Invalid)) {
            Some(fault) => fault.after(&lost),
            None => lost,
        }
    }

    /// No durable edit names the object any more, or none ever will, and no reader has it. It is
    /// deleted later.
    pub(crate) fn release(&self, id: ObjectId) {
        let mut objects = self.objects.lock();
        let was_live = objects.live.remove(&id);
        objects.unacknowledged.remove(&id);
        debug_assert!(was_live || self.planted.same_epoch, "released once: {id:?}");
        if id.shared().is_none() {
            objects.released.insert(id);
        }
        drop(objects);
        self.forget_tail(id);
    }

    /// Forgets the end of an object that is kept on this machine.
    pub(crate) fn forget_tail(&self, id: ObjectId) {
        if let Some(tails) = &self.tails {
            tails.forget(id);
        }
    }

    /// Deletes some of what was released, a thousand at most, and says how many objects that were.
    ///
    /// # Errors
    ///
    /// The fence is another writer's, or the store does not answer, or does not delete one of them.
    /// Later calls go on with others, and then try these again.
    pub(crate) fn delete_released(&self) -> Result<usize> {
        let some: Vec<ObjectId> = {
            let mut objects = self.objects.lock();
            let behind = objects.tried.take().map_or(Bound::Unbounded, Bound::Excluded);
            let next = objects.released.range((behind, Bound::Unbounded)).next().copied();
            let from = next.map_or(Bound::Unbounded, Bound::Included);
            objects.released.range((from, Bound::Unbounded)).copied().take(LIST_LEN).collect()
        };
        if !some.is_empty() {
            let deleted = self.delete(&some);
            let mut objects = self.objects.lock();
            if let Err(error) = deleted {
                objects.tried = some.last().copied();
                return Err(error);
            }
            objects.released.retain(|id| some.binary_search(id).is_err());
        }
        Ok(some.len())
    }

    /// Deletes what was released and is left at a closing: the next opening does not know it. The
    /// client was stopped, so each request has one attempt. It ends where the store does not
    /// answer, and after [`MOST_AT_CLOSE`] requests; a collection finds the rest.
    pub(crate) fn delete_at_close(&self) {
        debug_assert!(self.client.is_stopped(), "a closing does not wait for the store");
        let mut batches = (0..MOST_AT_CLOSE).map(|_| self.delete_released());
        while let Some(Ok(1..)) = batches.next() {}
    }

    /// Deletes up to a thousand objects that are not live.
    fn delete(&self, ids: &[ObjectId]) -> Result<()> {
        self.confirm()?;
        debug_assert!(
            self.planted.same_epoch || ids.iter().all(|id| !self.objects.lock().live.contains(id)),
            "invariant 2"
        );
        let names: Vec<String> = ids.iter().map(|id| self.names.extent(*id)).collect();
        let deleted = self.client.delete(&names);
        self.client.told("delete", names.first().map_or("", String::as_str), deleted)
    }

    /// Whether there is something to delete.
    pub(crate) fn has_released(&self) -> bool {
        !self.objects.lock().released.is_empty()
    }

    /// Whether a request would be full, and the one before did not fail.
    pub(crate) fn has_full_request(&self) -> bool {
        let objects = self.objects.lock();
        objects.released.len() >= LIST_LEN && objects.tried.is_none()
    }

    /// The pieces of the shared store that are live.
    pub(crate) fn live_shared(&self) -> BTreeSet<(u64, u32)> {
        self.objects.lock().live.iter().filter_map(|id| id.shared()).collect()
    }

    /// How many objects are live, and how many are to be deleted.
    pub(crate) fn count(&self) -> (u64, u64) {
        let objects = self.objects.lock();
        (objects.live.len() as u64, objects.released.len() as u64)
    }

    /// Bytes of ends that are kept on this machine.
    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tails.as_ref().map_or(0, TailCache::bytes)
    }

    /// Whether the store answers.
    ///
    /// # Errors
    ///
    /// It does not, in the time that a call has.
    pub(crate) fn check_reachable(&self) -> Result<()> {
        let name = self.names.fence();
        match self.client.head(&name) {
            Err(failure) if failure.kind != FailureKind::Missing => {
                Err(self.client.error("look at", &name, failure))
            }
            _ => Ok(()),
        }
    }

    /// Deletes what is still live: a planted bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn delete_now(&self, ids: &[ObjectId]) -> Result<()> {
        let names: Vec<String> = ids.iter().map(|id| self.names.extent(*id)).collect();
        let deleted = self.client.delete(&names);
        self.client.told("delete", names.first().map_or("", String::as_str), deleted)
    }

    /// Lists all objects of the database, and deletes those that no edit names and no job writes:
    /// what a crash left, and what arrived late. With `dry_run` it deletes nothing.
    ///
    /// # Errors
    ///
    /// The fence is another writer's, or the store does not answer; `Closed` at the next request
    /// once the database is closing.
    pub(crate) fn collect(&self, dry_run: bool) -> Result<Collected> {
        // A closing leaves a request one attempt. That this failed says nothing of the store.
        self.collect_all(dry_run).map_err(|error| self.goes_on().err().unwrap_or(error))
    }

    fn collect_all(&self, dry_run: bool) -> Result<Collected> {
        let own = if self.read_only { LAST_EPOCH } else { self.fence()?.value.epoch };
        // An object is live before its first request leaves. So one that is listed and not live
        // was released before, or belongs to an earlier opening.
        let mut collected = Collected::default();
        let mut seen = BTreeSet::new();
        let live_before = self.objects.lock().live.clone();
        let mut after = String::new();
        loop {
            self.goes_on()?;
            let page = self.client.list(self.names.prefix(), &after);
            let page = self.client.told("list", self.names.prefix(), page)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            for info in page {
                let Some(id) = self.names.parse(&info.name) else {
                    if info.name != self.names.fence() {
                        collected.foreign.push(info.name);
                    }
                    continue;
                };
                seen.insert(id);
                if self.objects.lock().live.contains(&id) {
                    collected.live += 1;
                    collected.live_bytes += info.len;
                } else if id.epoch <= own {
                    collected.left.push(id);
                    collected.left_bytes += info.len;
                }
            }
        }
        collected.lost = self.lost(live_before.difference(&seen))?;
        if !dry_run {
            let step = if self.planted.keeps_unneeded { 2 } else { 1 };
            let unneeded: Vec<_> = collected.left.iter().copied().step_by(step).collect();
            for some in unneeded.chunks(LIST_LEN) {
                self.goes_on()?;
                self.delete(some)?;
            }
        }
        Ok(collected)
    }

    /// Fails once the database is closing: a closing waits for one request, not for all.
    fn goes_on(&self) -> Result<()> {
        if self.client.is_stopped() { Err(Error::closed()) } else { Ok(()) }
    }

    /// Which of some objects are lost: live, and not there when they are looked at. A list may be
    /// old, so it is not believed.
    fn lost<'a>(&self, missing: impl Iterator<Item = &'a ObjectId>) -> Result<Vec<ObjectId>> {
        let mut lost = Vec::new();
        for id in missing {
            self.goes_on()?;
            let name = self.names.extent(*id);
            match self.client.head(&name) {
                Ok(_) => {}
                Err(failure) if failure.kind == FailureKind::Missing => {
                    let objects = self.objects.lock();
                    if objects.live.contains(id) && !objects.unacknowledged.contains(id) {
                        lost.push(*id);
                    }
                }
                Err(failure) => return Err(self.client.error("look at", &name, failure)),
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests;
