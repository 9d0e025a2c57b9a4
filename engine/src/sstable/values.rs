//! Value extents: values that lie apart from their records, one behind the other, each sealed for
//! its place as a block is. Extents of records refer to them; nothing else does.
//!
//! A value is read with one access of exactly its bytes. Of values that are read together, those
//! that lie near each other are read with one access of all of them, and of objects all accesses go
//! out side by side. Values do not enter the block cache: each would take the place of many blocks.
//!
//! Thread safety: every method may be called from any thread.
//!
//! Invariants:
//!
//! 1. The space is the journal's as long as it names an extent that lists this one: `named` counts
//!    those. Else it is this object's, and given back when that is dropped.
//! 2. Every extent that lists it holds it. A reader holds one of these, or the value extent
//!    itself. So no space is given back under a reader.

mod meta;
mod pieces;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Extent;
use super::footer::ContentSum;
use super::frame::{self, HEADER_LEN};
use crate::base::error::{Damage, Error, Findings, Mismatch, Result};
use crate::base::record::{ComingValues, ReadValue, Reference};
use crate::os::sync::atomic::{AtomicU32, Ordering};
use crate::storage::ExtentStore;

pub(crate) use meta::{ValueMeta, ValueUse};
pub(super) use meta::{are_sound, decode, encode};
pub(crate) use writer::{Layout, ValueWriter};

use meta::Footer;
use pieces::ValuePieces;

/// Values that are not further apart than this are read at once,
const GAP: u64 = 16 * 1024;

/// and at most so many bytes of them.
const PIECE: u64 = 1024 * 1024;

/// A value extent in its place.
#[derive(Debug)]
pub(crate) struct ValueExtent {
    meta: ValueMeta,
    store: Arc<ExtentStore>,
    named: AtomicU32,
}

/// Whether it is a sound footer of the value extent `id`.
pub(super) fn is_sound_footer(id: u64, checksum: u32, footer: &[u8]) -> bool {
    Footer::decode(id, checksum, footer).is_ok()
}

/// Value extents by their ids.
pub(crate) type ValueExtents = BTreeMap<u64, Arc<ValueExtent>>;

/// The value extents that extents refer to.
pub(crate) fn values_of<'a>(extents: impl IntoIterator<Item = &'a Arc<Extent>>) -> ValueExtents {
    let lists = extents.into_iter().flat_map(|extent| extent.values());
    lists.map(|values| (values.meta().id, Arc::clone(values))).collect()
}

impl ValueExtent {
    /// One that was written, or that the journal names by an extent that is about to list it.
    pub(super) fn new(meta: ValueMeta, store: Arc<ExtentStore>) -> Arc<ValueExtent> {
        Arc::new(ValueExtent { meta, store, named: AtomicU32::new(0) })
    }

    /// Its description.
    pub(crate) fn meta(&self) -> &ValueMeta {
        &self.meta
    }

    /// The journal names one more extent that lists it (invariant 1).
    pub(super) fn name(&self) {
        self.named.fetch_add(1, Ordering::AcqRel);
    }

    /// The journal names one less.
    pub(super) fn unname(&self) {
        let before = self.named.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "named before (invariant 1)");
    }

    /// Checks that a reference leads to a place among the values.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it does not.
    pub(super) fn check_inside(&self, at: &Reference) -> Result<()> {
        let end = u64::from(at.offset) + u64::from(at.len);
        if at.len > HEADER_LEN as u32 && end <= u64::from(self.meta.values_end()) {
            return Ok(());
        }
        let expected = format!("a place within {} bytes of values", self.meta.values_end());
        let got = format!("{} bytes from {} on", at.len, at.offset);
        Err(self.corrupt(at.offset, Mismatch::new(expected, got)))
    }

    fn check_is(&self, at: &Reference, bytes: &[u8]) -> Result<()> {
        match frame::seal_of(bytes) {
            Some(sum) if sum == at.checksum => Ok(()),
            other => {
                let expected = format!("checksum {:#010x}, as its record has it", at.checksum);
                let got = other.map_or("none".into(), |sum| format!("{sum:#010x}"));
                Err(self.corrupt(at.offset, Mismatch::new(expected, got)))
            }
        }
    }

    /// The value that a reference leads to, out of its bytes.
    fn open(&self, at: &Reference, bytes: Bytes) -> Result<Bytes> {
        let whole = frame::open(self.meta.id, at.offset, bytes)
            .map_err(|mismatch| self.corrupt(at.offset, mismatch))?;
        let value = whole.slice(HEADER_LEN..);
        if value.len() != at.value_len as usize {
            let expected = format!("{} bytes, as its record has it", at.value_len);
            let mismatch = Mismatch::new(expected, format!("{}", value.len()));
            return Err(self.corrupt(at.offset, mismatch));
        }
        Ok(value)
    }

    /// What is made of the bytes that a reference leads to.
    fn made<T>(
        &self,
        at: &Reference,
        bytes: Bytes,
        make: impl Fn(Bytes) -> Result<T>,
    ) -> Result<T> {
        let location = &self.meta.location;
        let again = || make(Bytes::from(self.store.read(location, at.offset, at.len)?));
        self.store.or_again(location, make(bytes), again)
    }

    /// The value that a reference leads to, out of its bytes, if they are those that it is to.
    fn open_checked(&self, at: &Reference, bytes: Bytes) -> Result<Bytes> {
        self.made(at, bytes, |bytes| {
            self.check_is(at, &bytes)?;
            self.open(at, bytes)
        })
    }

    /// The values at places in a piece of it that begins at `start`.
    fn open_all(&self, places: &[Reference], start: u32, piece: &Bytes) -> Result<Vec<Bytes>> {
        let open = |at: &Reference| {
            let from = (at.offset - start) as usize;
            self.open_checked(at, piece.slice(from..from + at.len as usize))
        };
        places.iter().map(open).collect()
    }

    /// Checks that what begins at a place is what the reference says, by its header alone.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is not; or on an I/O error.
    pub(super) fn check(&self, at: &Reference) -> Result<()> {
        let mut checked = Ok(());
        self.check_all(std::slice::from_ref(at), |found| checked = found);
        checked
    }

    /// The same of many places, which ascend; gives `found` what comes of each. One that cannot be
    /// read in an object is the last: a request for each of the others would say the same.
    pub(super) fn check_all(&self, places: &[Reference], mut found: impl FnMut(Result<()>)) {
        let mut pieces = ValuePieces::default();
        for at in places {
            if let Err(outside) = self.check_inside(at) {
                found(Err(outside));
                continue;
            }
            match self.bytes_of(at, HEADER_LEN as u32, &mut pieces) {
                Ok(bytes) => found(self.check_header(at, &bytes)),
                Err(unreadable) => {
                    found(Err(unreadable));
                    if self.meta.location.is_object() {
                        return;
                    }
                }
            }
        }
    }

    fn check_header(&self, at: &Reference, bytes: &[u8]) -> Result<()> {
        self.check_is(at, bytes)?;
        let lens = frame::lens_of(bytes);
        let wanted = (at.len - HEADER_LEN as u32, at.value_len);
        if lens == Some(wanted) {
            return Ok(());
        }
        let expected = format!("{wanted:?} bytes, as its record has it");
        Err(self.corrupt(at.offset, Mismatch::new(expected, format!("{lens:?}"))))
    }

    /// The first `len` bytes of those that a reference leads to, or of an object all, read with
    /// others. The reference leads inside.
    fn bytes_of(&self, at: &Reference, len: u32, pieces: &mut ValuePieces) -> Result<Bytes> {
        if self.meta.location.is_object() {
            return pieces.bytes(self, at);
        }
        Ok(Bytes::from(self.store.read(&self.meta.location, at.offset, len)?))
    }

    /// The bytes that a reference leads to. They are the ones that it is to, by their checksum,
    /// which is not checked yet.
    fn bytes(&self, at: &Reference, pieces: &mut ValuePieces) -> Result<Bytes> {
        self.check_inside(at)?;
        let bytes = self.bytes_of(at, at.len, pieces)?;
        self.made(at, bytes, |bytes| self.check_is(at, &bytes).map(|()| bytes))
    }

    /// The same, their seal checked, still compressed.
    fn sealed(&self, at: &Reference, pieces: &mut ValuePieces) -> Result<Bytes> {
        self.made(at, self.bytes(at, pieces)?, |bytes| {
            frame::check_seal(self.meta.id, at.offset, &bytes)
                .map_err(|mismatch| self.corrupt(at.offset, mismatch))?;
            Ok(bytes)
        })
    }

    /// Reads all of it and appends all that is wrong to `report`. Gives the number of structures
    /// that were checked.
    pub(crate) fn verify(&self, report: &mut Findings) -> u64 {
        let at = &self.meta.location;
        let _held = self.store.memory().jobs.hold(u64::from(at.len));
        self.store.verified(at, report, |found| match self.store.read(at, 0, at.len) {
            Ok(bytes) => self.verify_bytes(&Bytes::from(bytes), &mut found.damages),
            Err(error) => {
                found.add(&error, || self.damage(0, Mismatch::new("", "")));
                1
            }
        })
    }

    /// As [`verify`](Self::verify), of what was read of it.
    fn verify_bytes(&self, bytes: &Bytes, report: &mut Vec<Damage>) -> u64 {
        let mut checked = 1;
        let (before, mut content) = (report.len(), ContentSum::new(self.meta.id));
        let (mut offset, end) = (0, self.meta.values_end());
        let footer = self.check_footer(bytes);
        let footer = footer.map_err(|mismatch| report.push(self.damage(end, mismatch))).ok();
        for n in 0..self.meta.values {
            checked += 1;
            content.add(bytes.get(offset as usize..).unwrap_or_default());
            match open_at(self.meta.id, offset, end, bytes) {
                Ok(next) => offset = next,
                Err((mismatch, next)) => {
                    report.push(self.damage(offset, mismatch));
                    // Its length may be right all the same.
                    match next {
                        Some(next) => offset = next,
                        None => return checked + u64::from(self.meta.values - n),
                    }
                }
            }
        }
        if offset != end {
            let mismatch = Mismatch::new(format!("values up to {end}"), format!("up to {offset}"));
            report.push(self.damage(offset, mismatch));
        }
        let sum = footer.filter(|_| report.len() == before).map(|footer| footer.content);
        if sum.is_some_and(|sum| sum != content.finish()) {
            // Each of them is sealed for its place, so one is of an earlier extent of this id.
            let mismatch = Mismatch::new("the values that it was written with", "others");
            report.push(self.damage(end, mismatch));
        }
        checked
    }

    fn check_footer(&self, bytes: &[u8]) -> std::result::Result<Footer, Mismatch> {
        let footer = bytes.get(self.meta.values_end() as usize..).unwrap_or_default();
        Footer::decode(self.meta.id, self.meta.footer_checksum, footer).and_then(|footer| {
            match footer.values == self.meta.values {
                true => Ok(footer),
                false => {
                    let expected = format!("{} values, as the journal has it", self.meta.values);
                    Err(Mismatch::new(expected, format!("{}", footer.values)))
                }
            }
        })
    }

    /// Checks all of it, and reads it.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; or an I/O error.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>> {
        let read = || self.read_and_check();
        self.store.or_again(&self.meta.location, read(), read)
    }

    fn read_and_check(&self) -> Result<Vec<u8>> {
        let inside = self.store.gate().enter_step().map_err(Error::not_open)?;
        let read = self.store.read(&self.meta.location, 0, self.meta.location.len)?;
        drop(inside);
        let (bytes, mut damages) = (Bytes::from(read), Vec::new());
        self.verify_bytes(&bytes, &mut damages);
        match damages.into_iter().next() {
            Some(damage) => Err(self.store.damaged(&self.meta.location, damage)),
            None => Ok(bytes.into()),
        }
    }

    fn corrupt(&self, offset: u32, mismatch: Mismatch) -> Error {
        self.store.damaged(&self.meta.location, self.damage(offset, mismatch))
    }

    /// Damage at `offset`.
    fn damage(&self, offset: u32, mismatch: Mismatch) -> Damage {
        let what = if offset < self.meta.values_end() { "value" } else { "footer" };
        let what = format!("{what} of value extent {}", self.meta.id);
        self.store.damage(&self.meta.location, offset, what, mismatch)
    }
}

/// Checks the value at `offset`, of which there are some up to `end`: where the next one begins.
/// Where that can be said of one that is damaged, it is.
fn open_at(
    id: u64,
    offset: u32,
    end: u32,
    bytes: &Bytes,
) -> std::result::Result<u32, (Mismatch, Option<u32>)> {
    let at = offset as usize;
    let next = bytes.get(at..).and_then(frame::lens_of).and_then(|(len, _)| {
        let next = offset.checked_add(HEADER_LEN as u32)?.checked_add(len)?;
        Some(next).filter(|next| *next <= end)
    });
    let Some(next) = next else {
        let mismatch = Mismatch::new(format!("a value that ends before {end}"), "another");
        return Err((mismatch, None));
    };
    let opened = frame::open(id, offset, bytes.slice(at..next as usize));
    opened.map(|_| next).map_err(|mismatch| (mismatch, Some(next)))
}

impl ReadValue for ValueExtent {
    fn is_remote(&self) -> bool {
        self.meta.location.is_object()
    }

    fn read_value(&self, at: &Reference) -> Result<Bytes> {
        self.check_inside(at)?;
        let bytes = self.store.read(&self.meta.location, at.offset, at.len)?;
        self.open_checked(at, Bytes::from(bytes))
    }

    fn ask_values(self: Arc<Self>, places: &[Reference]) -> Result<(usize, ComingValues)> {
        let near = places[..near_each_other(places)].to_vec();
        let (Some(first), Some(last)) = (near.first(), near.last()) else {
            return Ok((0, Box::new(|| Ok(Vec::new()))));
        };
        self.check_inside(first).and_then(|()| self.check_inside(last))?;
        let (start, len) = (first.offset, last.offset + last.len - first.offset);
        let reading = self.is_remote().then(|| self.store.ask(&self.meta.location, start, len));
        let (count, reading) = (near.len(), reading.transpose()?);
        let wait = move || {
            let bytes = match reading {
                Some(reading) => self.store.end_read(reading)?,
                None => self.store.read(&self.meta.location, start, len)?,
            };
            self.open_all(&near, start, &Bytes::from(bytes))
        };
        Ok((count, Box::new(wait)))
    }
}

/// How many places from the first on are read at once.
fn near_each_other(places: &[Reference]) -> usize {
    let Some(first) = places.first() else { return 0 };
    let end = |at: &Reference| u64::from(at.offset) + u64::from(at.len);
    let is_near = |pair: &[Reference]| {
        if pair[0] == pair[1] {
            return true;
        }
        let gap = u64::from(pair[1].offset).checked_sub(end(&pair[0]));
        gap.is_some_and(|gap| gap <= GAP) && end(&pair[1]) - u64::from(first.offset) <= PIECE
    };
    1 + places.windows(2).take_while(|pair| is_near(pair)).count()
}

impl Drop for ValueExtent {
    fn drop(&mut self) {
        if *self.named.get_mut() == 0 {
            self.store.release(&self.meta.location);
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod probe;

#[cfg(test)]
mod tests;
