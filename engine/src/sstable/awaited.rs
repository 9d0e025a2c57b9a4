//! What a range has to wait for, of objects. It waits with no epoch pinned: a pinned epoch keeps
//! zones from being released, so writers would wait for the store too.
//!
//! A cursor of a range that must not wait begins to read what it lacks, notes it here, and ends
//! with an error. The range unpins its epoch, waits, and goes on behind its last row. Its
//! read-ahead keeps the piece until the cursor reads it.
//!
//! Thread safety: one reader at a time; a mutex makes it safe for any.

use std::sync::Arc;

use bytes::Bytes;

use super::{BlockCache, Fetched, MissingPart, ReadAhead};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::record::{Reference, SeparatedValue};
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::locks::Mutex;
use crate::storage::ExtentStore;

/// After so many waits without an epoch, a reader waits for what it still lacks with one pinned. A
/// chunk needs an end and a block of each level, and other readers may take their room meanwhile.
const MOST_WAITS: usize = 64;

/// Something of an object that is not on this machine.
#[derive(Debug)]
pub(super) enum Lacking {
    /// The first piece that is on its way for an extent.
    Piece {
        store: Arc<ExtentStore>,
        extent: u64,
    },
    Part(MissingPart),
    /// What operands are merged into. Other values that lie apart are read behind the chunk.
    Value(SeparatedValue),
}

/// What one reader waits for, and whether it waits where it reads.
#[derive(Debug, Default)]
pub(super) struct RangeWaits {
    leaves: AtomicBool,
    lacking: Mutex<Option<Lacking>>,
    /// A value that was waited for, until the reader takes it.
    value: Mutex<Option<(Reference, Bytes)>>,
}

impl ReadAhead {
    /// Says whether the reader ends with an error where it would wait for an object.
    fn leave_where_it_waits(&self, leaves: bool) {
        self.awaited.leaves.store(leaves, Ordering::Relaxed);
        *self.awaited.lacking.lock() = None;
    }

    /// Whether it does.
    pub(super) fn leaves(&self) -> bool {
        self.awaited.leaves.load(Ordering::Relaxed)
    }

    /// The error of a reader that lacks something.
    pub(super) fn leave(&self, lacking: Lacking) -> Error {
        debug_assert!(self.leaves(), "a reader that may wait does so");
        *self.awaited.lacking.lock() = Some(lacking);
        Error::new(ErrorKind::Unavailable, "a part of an object is on its way")
    }

    /// Ends with an error if the reader must not wait for a part and lacks one.
    pub(crate) fn need(&self, missing: impl FnOnce() -> Option<MissingPart>) -> Result<()> {
        let missing = if self.leaves() { missing() } else { None };
        missing.map_or(Ok(()), |part| Err(self.leave(Lacking::Part(part))))
    }

    /// A value that lies apart, for operands over it.
    ///
    /// # Errors
    ///
    /// Those of reading it; or the reader must not wait, and lacks it.
    pub(crate) fn value(&self, apart: &SeparatedValue) -> Result<Bytes> {
        if !self.leaves() || !apart.from.is_remote() {
            return apart.read();
        }
        match self.awaited.value.lock().take() {
            Some((at, value)) if at == apart.at => Ok(value),
            _ => Err(self.leave(Lacking::Value(apart.clone()))),
        }
    }

    /// Whether the last error was one of these.
    pub(crate) fn has_left(&self) -> bool {
        self.awaited.lacking.lock().is_some()
    }

    /// Runs a read that pins an epoch: again behind each wait for an object, in which none is
    /// pinned.
    ///
    /// # Errors
    ///
    /// Those of the read; `Corrupt` if an object is lost or damaged; `Unavailable` if the store
    /// does not answer.
    pub(crate) fn read_apart_from_waits<T>(
        &self,
        cache: &BlockCache,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut waits = 0;
        loop {
            self.leave_where_it_waits(waits < MOST_WAITS);
            match read() {
                Err(_) if self.has_left() => match self.wait(cache) {
                    Ok(()) => waits += 1,
                    // It need not be the block's fault that its piece cannot be read.
                    Err(e) if e.kind() == ErrorKind::Corrupt => waits = MOST_WAITS,
                    Err(e) => return Err(e),
                },
                done => return done,
            }
        }
    }

    /// Waits for what the reader lacked. The caller pins no epoch.
    ///
    /// # Errors
    ///
    /// `Corrupt` if an object is lost or damaged; `Unavailable` if the store does not answer.
    fn wait(&self, cache: &BlockCache) -> Result<()> {
        let lacking = self.awaited.lacking.lock().take();
        match lacking {
            None => Ok(()),
            Some(Lacking::Part(part)) => {
                // The end of an extent, which its slot keeps.
                part.ask()?.keep(cache, &mut Fetched::default())
            }
            Some(Lacking::Piece { store, extent }) => self.wait_for_piece(extent, &store),
            Some(Lacking::Value(apart)) => {
                *self.awaited.value.lock() = Some((apart.at, apart.read()?));
                Ok(())
            }
        }
    }
}
