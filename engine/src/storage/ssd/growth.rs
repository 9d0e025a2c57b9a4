//! How extent files come by space: ranges that had some before come first, then the end of the last
//! file, then a new one. A file system that has no room for a whole step is asked for less.

use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use super::allocation::{Allocation, FileSpace, Gap};
use super::{ExtentStore, UNIT};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::OpenHow;
use crate::os::sync::atomic::Ordering;

pub(super) const GIB: u64 = 1024 * 1024 * 1024;

/// No extent file of a store of this size grows beyond this; the next one is begun. Large stores
/// have large files, so that even they take few descriptors.
fn greatest_file(file_bytes: u64) -> u64 {
    (file_bytes / 16).next_multiple_of(GIB).max(GIB)
}

/// By how much a store of this size grows: in small steps while it is small.
pub(super) fn growth_step(file_bytes: u64) -> u64 {
    const LEAST: u64 = 4 * 1024 * 1024;
    (file_bytes / 64).next_multiple_of(LEAST).clamp(LEAST, 16 * LEAST)
}

/// On a full file system so many ranges are tried for space before there is none.
const MOST_GAPS: usize = 64;

impl ExtentStore {
    /// Adds room for at least `units` in one piece, and for up to `wanted` in all: where there was
    /// space before, at the end of the last file, or in a new one.
    pub(super) fn grow(&self, allocation: &mut Allocation, units: u64, wanted: u64) -> Result<()> {
        let step = growth_step(allocation.file_bytes()) / UNIT;
        let added = wanted.max(units).next_multiple_of(step);
        let full = match self.fill_gap(allocation, units, added) {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(e) if e.kind() == ErrorKind::Full => Some(e),
            Err(e) => return Err(e),
        };
        // A file system that is full has less room than a step more often than none.
        let mut wanted = added;
        loop {
            match self.lengthen(allocation, wanted) {
                Err(e) if e.kind() == ErrorKind::Full && wanted > units => {
                    wanted = (wanted / 2).max(units);
                }
                Err(e) if e.kind() == ErrorKind::Full => return Err(full.unwrap_or(e)),
                done => return done,
            }
        }
    }

    /// As [`grow`](Self::grow) for ranges that are long enough. On a full file system free ranges
    /// that are shorter go for one: what a file has in a row need not be so on the device.
    pub(super) fn grow_or_join(
        &self,
        allocation: &mut Allocation,
        units: u64,
        wanted: u64,
    ) -> Result<()> {
        match self.grow(allocation, units, wanted) {
            Err(e) if e.kind() == ErrorKind::Full => {
                let holes = self.hollow(allocation, units, units)?;
                let joined =
                    if holes.is_empty() { Err(e) } else { self.grow(allocation, units, 0) };
                let lost = holes.into_iter().filter(|_| joined.is_err());
                lost.filter(|hole| self.find_space(*hole).is_ok())
                    .for_each(|hole| allocation.fill(hole));
                joined
            }
            grown => grown,
        }
    }

    /// Has the file system find space for a range that had some before: for all of it or a part, of
    /// at least `units`. Whether there is such a range.
    fn fill_gap(&self, allocation: &mut Allocation, units: u64, most: u64) -> Result<bool> {
        let mut full = None;
        self.may_use_found(allocation);
        let gaps: Vec<Gap> = allocation.gaps(units, most).take(MOST_GAPS).collect();
        for mut gap in gaps {
            loop {
                match self.find_space(gap) {
                    Ok(()) => {
                        allocation.fill(gap);
                        self.choose_way(allocation.file_bytes());
                        return Ok(true);
                    }
                    Err(e) if e.kind() != ErrorKind::Full => return Err(e),
                    Err(e) => full = full.or(Some(e)),
                }
                if gap.units <= units {
                    break;
                }
                gap.units = (gap.units / 2).max(units);
            }
        }
        full.map_or(Ok(false), Err)
    }

    /// Makes the last file longer by so many units, or begins a new one.
    fn lengthen(&self, allocation: &mut Allocation, added: u64) -> Result<()> {
        let last = allocation.files.last_key_value().map(|(n, file)| (*n, file.units));
        let most = greatest_file(allocation.file_bytes()) / UNIT;
        let (number, old) = match last {
            Some((number, old)) if old + added <= most => (number, old),
            Some((number, _)) => (number + 1, 0),
            None => (1, 0),
        };
        let file = match allocation.files.entry(number) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(none) => {
                self.create(number)?;
                none.insert(FileSpace::default())
            }
        };
        let found = self.find_space(Gap { file: number, start: old, units: added });
        // A full file system would keep what it found before there was no more.
        found.or_else(|e| self.cut(number, old).and(Err(e)))?;
        file.free.release(old, added);
        file.units = old + added;
        self.choose_way(allocation.file_bytes());
        Ok(())
    }

    /// Begins a file.
    fn create(&self, number: u32) -> Result<()> {
        let path = self.path(number);
        let created = match self.files.open(&path, OpenHow::CreateNew) {
            // An earlier creation has failed, and left it. Nothing is there.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.files.open(&path, OpenHow::Write)
            }
            created => created,
        };
        let handle = created.map_err(|e| Error::io("create", &path, e))?;
        if self.wants_direct.load(Ordering::Relaxed) {
            handle.set_direct(true);
        }
        self.new_names.store(true, Ordering::Release);
        let file = self.extent_file(number, handle);
        self.handles.write().insert(number, Arc::new(file));
        Ok(())
    }

    /// Has the file system find space for a range that has none.
    fn find_space(&self, gap: Gap) -> Result<()> {
        let path = self.path(gap.file);
        let (from, to) = (gap.start * UNIT, (gap.start + gap.units) * UNIT);
        let found = self.file(gap.file, &path)?.handle.preallocate(from, to);
        found.map_err(|e| {
            let doing = format!("find {} bytes from byte {from} on in", to - from);
            Error::io(&doing, &path, e)
        })
    }
}
