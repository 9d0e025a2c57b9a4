//! Gives free space back to the file system while the database is open: files without an extent go,
//! and files lose the free part at their end. Extents are put into the first place that
//! is free, so the ends come free as the extents there are replaced.
//!
//! Whether an old file or length survives a power cut does not matter: what is free follows from
//! the journal alone.

use std::sync::atomic::Ordering;

use super::{Allocation, ExtentStore, UNIT, growth_step};
use crate::error::{Error, Result};

/// One part of so many of what is taken stays free, so that jobs do not ask for what was just given
/// back.
const SLACK: u64 = 8;

impl ExtentStore {
    /// Gives back what is free beyond what jobs will need soon; the bytes.
    ///
    /// # Errors
    ///
    /// An I/O error. Nothing is lost by it.
    pub(crate) fn give_back(&self) -> Result<u64> {
        let mut allocation = self.allocation.lock();
        let step = growth_step(allocation.file_bytes()) / UNIT;
        let keep = allocation.promised_units.max(allocation.taken_units / SLACK).max(step);
        let mut spare = allocation.free_units().saturating_sub(keep) / step * step;
        let mut returned = 0;
        let numbers: Vec<u32> = allocation.files.keys().rev().copied().collect();
        for number in numbers {
            let units = self.shrink(&mut allocation, number, spare, step)?;
            spare -= units;
            returned += units * UNIT;
        }
        self.returned.fetch_add(returned, Ordering::Relaxed);
        Ok(returned)
    }

    /// Takes at most `most` units off the end of a file, in steps, or the whole file; how many.
    fn shrink(
        &self,
        allocation: &mut Allocation,
        number: u32,
        most: u64,
        step: u64,
    ) -> Result<u64> {
        let is_last = allocation.files.last_key_value().is_some_and(|(n, _)| *n == number);
        let Some((free, len)) = allocation.files.get_mut(&number) else { return Ok(0) };
        let (tail, old) = (free.tail(*len), *len);
        let path = self.path(number);
        if tail == old && old <= most && !is_last {
            allocation.files.remove(&number);
            self.handles.write().remove(&number);
            self.files.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
            return Ok(old);
        }
        let units = tail.min(most) / step * step;
        if units > 0 {
            let file = self.file(number, &path)?;
            free.cut_tail(old, units);
            *len = old - units;
            let cut = file.handle.set_len((old - units) * UNIT);
            cut.map_err(|e| Error::io("shorten", &path, e))?;
        }
        Ok(units)
    }
}
