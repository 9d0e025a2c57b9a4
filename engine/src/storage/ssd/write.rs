//! Writing extents.

use std::sync::Arc;

use super::{ExtentStore, SpaceReservation};
use crate::base::error::{Error, ErrorKind, Result};
use crate::mvcc::about_to_wait;
use crate::os::sync::atomic::Ordering;
use crate::storage::location::Location;

impl ExtentStore {
    /// Writes a new extent: where it lies, which the caller owes the store a
    /// [`release`](ExtentStore::release) of. Durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; `Closed`; or on an I/O error. The space is given back then.
    pub(crate) fn write_new(self: &Arc<Self>, bytes: &[u8]) -> Result<Location> {
        self.write_into(bytes, None)
    }

    /// As [`write_new`](Self::write_new), in what is reserved first.
    pub(super) fn write_into(
        self: &Arc<Self>,
        bytes: &[u8],
        reservation: Option<&SpaceReservation>,
    ) -> Result<Location> {
        let len = u32::try_from(bytes.len()).map_err(|_| {
            let message = format!("an extent of {} bytes is beyond 4 GiB", bytes.len());
            Error::new(ErrorKind::Full, message)
        })?;
        let reserved = self.reserve_of(len, reservation)?;
        self.write(&reserved.location(), bytes)?;
        Ok(reserved.keep())
    }

    /// Writes an extent's bytes to their place in a file. Durable after the next
    /// [`sync`](Self::sync).
    pub(crate) fn write(&self, at: &Location, bytes: &[u8]) -> Result<()> {
        about_to_wait();
        debug_assert_eq!(bytes.len(), at.len as usize, "an extent is written whole");
        debug_assert!(!at.is_object(), "a job sends its objects itself");
        let path = self.path(at.file);
        let file = self.file(at.file, &path)?;
        // The rest of its last unit is free. A caller that meets an error gives up the extent.
        file.handle
            .try_write_last_at(bytes, at.offset)
            .map_err(|e| Error::io(&format!("write {} bytes to", bytes.len()), &path, e))?;
        file.dirty.store(true, Ordering::Release);
        self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
