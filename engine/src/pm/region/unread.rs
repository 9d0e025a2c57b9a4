//! Reads of the file behind a region, for a salvage past what the device cannot read.

use super::Region;
use crate::base::error::{Error, Result};
use crate::os::sync::locks::Mutex;
use crate::os::{File, Unread, read_past};

impl Region {
    /// From now on what cannot be read is no error but listed, as in [`read_past`], behind
    /// `before`.
    pub(crate) fn set_unread(&mut self, before: Vec<Unread>) {
        self.unread = Some(Mutex::new(before));
    }

    /// What could not be read so far, by place.
    pub(crate) fn unread(&self) -> Vec<Unread> {
        let mut all = self.unread.as_ref().map_or_else(Vec::new, |unread| unread.lock().clone());
        all.sort_by_key(|one| (one.place.start, one.place.end));
        // Some of it was asked for again.
        all.dedup_by(|next, last| {
            let meets = next.place.start <= last.place.end;
            if meets {
                last.place.end = last.place.end.max(next.place.end);
            }
            meets
        });
        all
    }

    /// Reads bytes of the file behind it.
    pub(super) fn read(&self, file: &File, at: u64, bytes: &mut [u8]) -> Result<()> {
        let mut read = |at, part: &mut [u8]| file.read_exact_at(part, at);
        match &self.unread {
            Some(unread) => {
                let mut found = Vec::new();
                read_past(at, bytes, &mut read, &mut found);
                unread.lock().append(&mut found);
                Ok(())
            }
            None => read(at, bytes).map_err(|e| Error::io("read the region", &self.path, e)),
        }
    }
}
