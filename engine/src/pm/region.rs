//! The region: bytes that survive.
//!
//! Thread safety: every method takes `&self` and may be called from any thread.
//!
//! Invariants:
//!
//! 1. Between the reservation of a range and its publication (through an index, or at open
//!    before any other thread exists) one thread owns it: no other thread reads or writes it.
//!    After publication no thread writes it until its zone was released. A zone is released only
//!    when no reader can hold an offset into it (epochs, see `mvcc::epoch`).
//! 2. Words that are shared while they change (floor slots, GIDX, pool entries, seals) are only
//!    accessed as aligned 8-byte atomics. Those that mean something only together (a floor slot)
//!    are stored under the `words` lock. The page of the words is copied under it, and the copy is
//!    written to the file.
//! 3. In `file` mode no two writes to the file that are in flight overlap, so that nothing is ever
//!    older there than it was. Shared words lie in a page of their own; it is written as a whole
//!    by the holder of the `io` lock. All else is written in exact ranges: by
//!    their owner before they are published ([`Region::hand_over`]), or after that by the holder
//!    of the `io` lock.
//! 4. In `file` mode every write and sync goes through one handle ([`File`]), whose failure is
//!    known to all its users: after it nothing is written or synced any more. A caller that gets an
//!    error of a write or a sync poisons the database, growth too.

mod unread;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(any(test, feature = "testing"))]
use super::LINE;
use super::geometry::{Geometry, PAGE};
use super::mapped::Mapped;
#[cfg(any(target_arch = "x86_64", test, feature = "testing"))]
use super::mapped::streams;
use super::mapping::Mapping;
use super::span::PmCounts;
use super::span::{Dirty, Durable, Fenced, Flushed, Span};
use super::zeros::zero_in_pieces;
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::memory::Gauge;
use crate::base::options::Failpoint;
use crate::os::sync::atomic::{AtomicBool, Ordering, at_once};
use crate::os::sync::locks::Mutex;
use crate::os::{File, Unread, read_past};

/// What lies behind the image, and how bytes reach it.
#[derive(Debug)]
pub(crate) enum Media {
    /// `file` mode: a preallocated file, written and synced by the publisher.
    File(Arc<File>),
    /// `dax` and `emulated` mode: the file is mapped, and the mapping is the region.
    Mapped(Mapped),
    /// `simulated` mode: persistent memory that forgets what was not flushed and fenced.
    #[cfg(any(test, feature = "testing"))]
    Simulated(Arc<terrace_testkit::SimPm>),
}

/// A mapped region in one of the persistence modes.
#[derive(Debug)]
pub(crate) struct Region {
    image: Mapping,
    media: Media,
    path: PathBuf,
    counts: PmCounts,
    /// The memory of indexes over its records, or of the index in it.
    indexes: Arc<Gauge>,
    /// Held while the file is written (invariant 3).
    io: Mutex<()>,
    /// Held while several shared words are stored as one, and while their page is copied
    /// (invariant 2).
    words: Mutex<()>,
    /// Whether nothing more is read of the media.
    has_left: AtomicBool,
    /// What could not be read so far, where that is no error.
    unread: Option<Mutex<Vec<Unread>>>,
    #[cfg(any(test, feature = "testing"))]
    failpoint: Option<Failpoint>,
    /// Where it begins in simulated memory.
    #[cfg(any(test, feature = "testing"))]
    base: u64,
}

impl Media {
    /// Whether it is a file that is read into memory.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Media::File(_))
    }

    /// The first `len` bytes, for an opening that learns from them how long the region is. The
    /// region that is made of this afterwards is the one user of the file. With `unread` the bytes
    /// that cannot be read are added there, as in [`read_past`].
    pub(crate) fn head(
        &self,
        path: &Path,
        len: u64,
        unread: Option<&mut Vec<Unread>>,
    ) -> Result<Vec<u8>> {
        let read = match (self, unread) {
            (Media::File(file), Some(unread)) => {
                let mut bytes = vec![0; usize_of(len)];
                read_past(0, &mut bytes, &mut |at, part| file.read_exact_at(part, at), unread);
                Ok(bytes)
            }
            (Media::File(file), None) => file.read_vec(0, usize_of(len)),
            (Media::Mapped(mapped), _) => mapped.read(usize_of(len)),
            #[cfg(any(test, feature = "testing"))]
            (Media::Simulated(pm), _) => Ok(pm.head(len)),
        };
        read.map_err(|e| Error::io("read the region", path, e))
    }
}

impl Region {
    /// Damage to `what` at a byte of it.
    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>, found: Mismatch) -> Damage {
        found.at(what, "pm", self.path(), offset)
    }

    /// An all-zero image of `len` bytes over `media`. Bytes come in with [`Region::load`].
    pub(crate) fn new(media: Media, path: &Path, len: u64) -> Result<Region> {
        Region::with_room(media, path, len, len)
    }

    /// As [`Region::new`], able to grow to `room` bytes.
    pub(crate) fn with_room(media: Media, path: &Path, len: u64, room: u64) -> Result<Region> {
        let (Ok(len), Ok(room)) = (usize::try_from(len), usize::try_from(room)) else {
            return Err(Error::invalid(format!("a region of {len} bytes cannot be mapped")));
        };
        let anonymous = || Mapping::anonymous(len, room);
        let image = match &media {
            Media::Mapped(mapped) => mapped.map(path, len, room)?,
            _ => anonymous().map_err(|e| Error::io("map the region", path, e))?,
        };
        Ok(Region {
            image,
            media,
            path: path.to_path_buf(),
            counts: PmCounts::default(),
            indexes: Arc::default(),
            io: Mutex::new(()),
            words: Mutex::new(()),
            has_left: AtomicBool::new(false),
            unread: None,
            #[cfg(any(test, feature = "testing"))]
            failpoint: None,
            #[cfg(any(test, feature = "testing"))]
            base: 0,
        })
    }

    /// The gauge of indexes over its records, in all views; or of the index that lies in it.
    pub(crate) fn indexes(&self) -> &Arc<Gauge> {
        &self.indexes
    }

    /// Makes the region longer, by zeros that have their space on the media. It counts as longer
    /// only once the superblock says so. It ends between two pieces if it no more `goes_on`.
    ///
    /// # Errors
    ///
    /// `Full`, or `Closed` if it ended: the region is as long as before. After any other error the
    /// caller must poison the database (invariant 4).
    pub(crate) fn grow(&self, len: u64, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let extend = || {
            self.image.extend(len as usize).map_err(|e| Error::io("map the region", &self.path, e))
        };
        match &self.media {
            Media::File(file) => {
                let zeroed = zero_in_pieces(file, (self.len(), len), goes_on);
                #[cfg(any(test, feature = "testing"))]
                if zeroed.is_err() && self.has(Failpoint::SwallowGrowthError) {
                    file.forget_failure();
                }
                match zeroed.map_err(|e| Error::io("make the region longer", &self.path, e))? {
                    true => extend(),
                    false => Err(Error::closed()),
                }
            }
            Media::Mapped(mapped) => mapped.grow(&self.path, &self.image, len),
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(pm) => {
                pm.grow(pm.len().max(self.base + len));
                extend()
            }
        }
    }

    /// Has it begin at some offset of simulated memory, behind another one.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn based_at(mut self, base: u64) -> Region {
        self.base = base;
        self
    }

    /// Plants a bug.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn set_failpoint(&mut self, failpoint: Option<Failpoint>) {
        self.failpoint = failpoint;
    }

    /// Whether `bug` was planted.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn has(&self, bug: Failpoint) -> bool {
        self.failpoint == Some(bug)
    }

    /// Whether `bug` was planted: never.
    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn has(&self, _bug: Failpoint) -> bool {
        false
    }

    /// The mode's name.
    pub(crate) fn mode(&self) -> &'static str {
        match &self.media {
            Media::File(_) => "file",
            Media::Mapped(mapped) => mapped.name(),
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(_) => "simulated",
        }
    }

    /// Whether it is mapped memory, which the next opening of the file shares with this one.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.media, Media::Mapped(_))
    }

    /// The file's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.image.len() as u64
    }

    /// What persistence has cost so far.
    pub(crate) fn counts(&self) -> &PmCounts {
        &self.counts
    }

    /// From now on the image is what there is, and nothing more is read of the media: another
    /// process may write there.
    pub(crate) fn leave_media(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// Reads a range of the media into the image, at open, before it is published (invariant 1).
    pub(crate) fn load(&self, span: Span) -> Result<()> {
        if self.has_left.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.media {
            Media::File(file) => {
                let read = |image: &mut [u8]| self.read(file, span.at, image);
                self.image.fill(usize_of(span.at), usize_of(span.len), read)?;
            }
            Media::Mapped(_) => {}
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(pm) => {
                pm.copy_to(self.base + span.at, span.len, |at, bytes| {
                    self.image.write(at - usize_of(self.base), bytes);
                });
            }
        }
        Ok(())
    }

    /// Reads a range of the media, at open, and leaves the image as it is: to touch a little of it
    /// costs a huge page.
    pub(crate) fn peek(&self, span: Span) -> Result<Vec<u8>> {
        if let Media::File(file) = &self.media {
            let mut bytes = vec![0; usize_of(span.len)];
            self.read(file, span.at, &mut bytes)?;
            return Ok(bytes);
        }
        self.load(span)?;
        Ok(self.bytes(span.at, span.len).to_vec())
    }

    /// The bytes of a published range (invariant 1).
    pub(crate) fn bytes(&self, at: u64, len: u64) -> &[u8] {
        #[cfg(any(test, feature = "testing"))]
        self.looked_at(at, len);
        self.image.bytes(usize_of(at), usize_of(len))
    }

    #[cfg(any(test, feature = "testing"))]
    fn looked_at(&self, at: u64, len: u64) {
        if let Media::Simulated(pm) = &self.media {
            pm.looked_at(self.base + at, len);
        }
    }

    /// Gives the memory of an image back: the database is closed, and no thread reads it any more.
    /// A mapped file is no memory of this process.
    pub(crate) fn discard(&self) {
        if matches!(self.media, Media::File(_)) {
            self.image.discard();
        }
    }

    /// Hints that the record at `at`, which may be any number at all, will be read.
    pub(crate) fn prefetch(&self, at: u64) {
        self.image.prefetch(at as usize);
    }

    /// A shared word (invariant 2).
    pub(crate) fn word(&self, at: u64) -> u64 {
        #[cfg(any(test, feature = "testing"))]
        self.looked_at(at, 8);
        u64::from_le(self.image.word(usize_of(at)).load(Ordering::Acquire))
    }

    /// Stores a shared word: atomic on every medium (invariant 2).
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn store_word(&self, at: u64, value: u64) -> Dirty {
        self.image.word(usize_of(at)).store(value.to_le(), Ordering::Release);
        #[cfg(any(test, feature = "testing"))]
        if let Media::Simulated(pm) = &self.media {
            // Not read back: another thread may have stored to the word since.
            pm.store(self.base + at, &value.to_le_bytes());
        }
        Dirty { span: Span { at, len: 8 }, streamed: false }
    }

    /// Stores shared words that mean something only together (invariant 2).
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn store_words(&self, at: u64, bytes: &[u8]) -> Dirty {
        debug_assert!(at.is_multiple_of(8) && bytes.len().is_multiple_of(8), "whole words");
        let _alone = self.words.lock();
        for (at, word) in (usize_of(at)..).step_by(8).zip(bytes.as_chunks().0) {
            self.image.word(at).store(u64::from_ne_bytes(*word), Ordering::Release);
        }
        self.stored(Span { at, len: bytes.len() as u64 })
    }

    /// The page of the shared words, with none half stored.
    fn copy_words(&self) -> [u8; PAGE as usize] {
        let mut page = [0; PAGE as usize];
        let at = usize_of(Geometry::words().at);
        let _alone = self.words.lock();
        at_once(|| {
            for (at, word) in (at..).step_by(8).zip(page.as_chunks_mut().0) {
                *word = self.image.word(at).load(Ordering::Acquire).to_ne_bytes();
            }
        });
        page
    }

    /// Stores bytes in a range that the caller owns (invariant 1).
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Dirty {
        #[cfg(target_arch = "x86_64")]
        if matches!(self.media, Media::Mapped(_)) && streams(at, bytes.len()) {
            self.image.stream(usize_of(at), bytes);
            return Dirty { span: Span { at, len: bytes.len() as u64 }, streamed: true };
        }
        #[cfg(any(test, feature = "testing"))]
        if let Media::Simulated(pm) = &self.media
            && streams(at, bytes.len())
        {
            self.image.write(usize_of(at), bytes);
            pm.stream(self.base + at, bytes);
            return Dirty { span: Span { at, len: bytes.len() as u64 }, streamed: true };
        }
        self.image.write(usize_of(at), bytes);
        self.stored(Span { at, len: bytes.len() as u64 })
    }

    /// Stores bytes in a range that the caller owns (invariant 1). Recovery does not read them, so
    /// there is nothing to flush.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn write_volatile(&self, at: u64, bytes: &[u8]) {
        self.image.write(usize_of(at), bytes);
        drop(self.stored(Span { at, len: bytes.len() as u64 }));
    }

    /// Counts a range as stored again as it is, so that recovery can make it durable once more.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn rewrite(&self, span: Span) -> Dirty {
        self.stored(span)
    }

    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    fn stored(&self, span: Span) -> Dirty {
        #[cfg(any(test, feature = "testing"))]
        if let Media::Simulated(pm) = &self.media {
            pm.store(self.base + span.at, self.image.bytes(usize_of(span.at), usize_of(span.len)));
        }
        Dirty { span, streamed: false }
    }

    /// Sends dirty lines on their way to the media. Nothing in `file` mode.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    #[expect(clippy::needless_pass_by_value, reason = "a typestate is used up by its step")]
    pub(crate) fn flush(&self, dirty: Dirty) -> Flushed {
        let span = dirty.span;
        match &self.media {
            Media::File(_) => {}
            Media::Mapped(_) if dirty.streamed => {}
            Media::Mapped(mapped) => {
                let flushed = mapped.flush(self.bytes(span.at, span.len));
                self.counts.add(|c| &c.flushes, flushed);
            }
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(_) if dirty.streamed => {}
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(pm) => {
                self.counts.add(|c| &c.flushes, lines(span));
                if !self.has(Failpoint::SkipFlush) {
                    pm.flush(self.base + span.at, span.len);
                }
            }
        }
        Flushed(span)
    }

    /// Waits until everything this thread flushed is on the media. Nothing in `file` mode.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn fence(&self, flushed: impl IntoIterator<Item = Flushed>) -> Fenced {
        let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
        for flushed in flushed {
            spans.push(flushed.0);
        }
        let bytes = || spans.iter().map(|span| span.len).sum();
        match &self.media {
            Media::File(_) => {}
            Media::Mapped(mapped) => {
                self.counts.add(|c| &c.fences, 1);
                self.counts.add(|c| &c.bytes, bytes());
                self.counts.add(|c| &c.blocks, mapped.fence(&spans));
            }
            #[cfg(any(test, feature = "testing"))]
            Media::Simulated(pm) => {
                self.counts.add(|c| &c.fences, 1);
                self.counts.add(|c| &c.bytes, bytes());
                if !self.has(Failpoint::SkipFence) {
                    pm.fence();
                }
            }
        }
        Fenced(spans)
    }

    /// Whether fenced bytes are durable: there is no file to write and sync.
    pub(crate) fn is_persistent_memory(&self) -> bool {
        !matches!(self.media, Media::File(_))
    }

    /// Makes fenced ranges durable: in `file` mode one write for each run of pages and one sync
    /// for all of them; on persistent memory they are durable already.
    pub(crate) fn sync(&self, ranges: &Fenced) -> Result<Durable> {
        self.write_back(ranges)?;
        self.sync_written()
    }

    /// Hands fenced ranges to the operating system without waiting for the device: they survive
    /// the process. The next [`Region::sync_written`] covers them.
    pub(crate) fn write_back(&self, ranges: &Fenced) -> Result<()> {
        if let Media::File(file) = &self.media {
            let _io = self.io.lock();
            self.write_ranges(file, &ranges.0)?;
        }
        Ok(())
    }

    /// Hands ranges that the caller owns to the operating system, beside other threads that do the
    /// same: as [`Region::write_back`] else.
    pub(crate) fn hand_over(&self, ranges: &Fenced) -> Result<()> {
        if let Media::File(file) = &self.media {
            self.write_ranges(file, &ranges.0)?;
        }
        Ok(())
    }

    /// Hints that a range of the file will be written soon: a page of it that the operating system
    /// does not have would be read first, as ranges are not whole pages.
    pub(crate) fn will_write(&self, span: Span) {
        if let Media::File(file) = &self.media {
            file.will_need(span.at, span.len);
        }
    }

    /// Makes everything durable that was handed over before this call.
    pub(crate) fn sync_written(&self) -> Result<Durable> {
        if let Media::File(file) = &self.media {
            if self.has(Failpoint::SkipRunSync) {
                return Ok(Durable(()));
            }
            file.sync().map_err(|e| Error::io("sync the region", &self.path, e))?;
            self.counts.add(|c| &c.syncs, 1);
        }
        Ok(Durable(()))
    }

    /// All steps at once, for what is rare: zone headers, pool entries, superblocks.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn persist(&self, dirty: impl IntoIterator<Item = Dirty>) -> Result<Durable> {
        let mut flushed: SmallVec<[Flushed; 4]> = SmallVec::new();
        for dirty in dirty {
            flushed.push(self.flush(dirty));
        }
        let fenced = self.fence(flushed);
        self.sync(&fenced)
    }

    /// Sends a range on its way as it is, whichever thread stored there.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn flush_again(&self, span: Span) -> Flushed {
        self.flush(Dirty { span, streamed: false })
    }

    /// Makes a range durable as it is, also what other threads stored and left in the caches.
    #[cfg_attr(any(test, feature = "testing"), track_caller)]
    pub(crate) fn persist_found(&self, span: Span) -> Result<Durable> {
        self.persist([Dirty { span, streamed: false }])
    }

    /// Writes ranges, neighbours in one write (invariant 3).
    fn write_ranges(&self, file: &File, spans: &[Span]) -> Result<()> {
        let words = Geometry::words();
        let (mut runs, mut has_words) = (SmallVec::<[(u64, u64); 8]>::new(), false);
        for span in spans.iter().filter(|span| span.len > 0) {
            match words.contains(span.at) {
                true => has_words = true,
                false => runs.push((span.at, span.end())),
            }
        }
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            let touches = next.0 <= run.1;
            if touches {
                run.1 = run.1.max(next.1);
            }
            touches
        });
        let write = |at: u64, bytes: &[u8]| {
            let written = file.write_all_at(bytes, at);
            self.counts.add(|c| &c.bytes, bytes.len() as u64);
            written.map_err(|e| Error::io("write the region", &self.path, e))
        };
        for (start, end) in runs {
            write(start, self.bytes(start, end.min(self.len()) - start))?;
        }
        if has_words {
            write(words.at, &self.copy_words())?;
        }
        Ok(())
    }
}

/// The image of simulated memory has something other than zeros only where that was stored to.
#[cfg(any(test, feature = "testing"))]
impl Drop for Region {
    fn drop(&mut self) {
        if let Media::Simulated(pm) = &self.media {
            let zeros = [0; 4096];
            pm.copy_to(self.base, self.len(), |at, stored| {
                for from in (0..stored.len()).step_by(zeros.len()) {
                    let n = zeros.len().min(stored.len() - from);
                    self.image.write(at - usize_of(self.base) + from, &zeros[..n]);
                }
            });
            self.image.is_zeros_again();
        }
    }
}

#[cfg(any(test, feature = "testing"))]
fn lines(span: Span) -> u64 {
    (span.end().next_multiple_of(LINE) - span.at / LINE * LINE) / LINE
}

/// Offsets fit in `usize`: the region was mapped.
fn usize_of(n: u64) -> usize {
    debug_assert!(usize::try_from(n).is_ok(), "{n} is no offset of a mapped region");
    n as usize
}
