//! Extents that no edit names, since the journal or a part of it is lost: found by their footers,
//! which end each of them.
//!
//! A footer says where its extent begins and which one it is, and its checksum is seeded with that.
//! It does not say whether an edit still names the extent, nor its table. So this finds extents
//! that were replaced, too, as long as their space was not written again.
//!
//! The footer of a value extent does not say where that begins. Where a value lies, and in which of
//! several value extents of one id, its checksum in the reference says. The last value that an
//! extent refers to ends at the footer, as a rule, which says where to look first. Else a few
//! values, from the last one on, are looked for before the others. So values that are lost cost no
//! others, unless all of these few are.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::footer::{FOOTER_LEN, Footer};
use super::values::{ValueExtent, ValueMeta, is_sound_footer};
use super::{Extent, ExtentMeta};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::limits::MAX_VALUE_LEN;
use crate::base::progress::Meter;
use crate::base::record::{EntryRef, ReadValue, Reader, Reference};
use crate::os::{Unread, read_past};
use crate::storage::{ExtentStore, Location};

/// How much is looked through at a time.
const PIECE: u64 = 1 << 20;

/// The longest value extent that is looked for, before its footer.
const LONGEST_VALUES: u64 = 256 << 20;

/// After so many values that are nowhere in it, a value extent is searched for few others.
const MOST_FAILED: u32 = 8;

/// What was found in the files of a store.
pub(crate) struct FoundExtents {
    store: Arc<ExtentStore>,
    /// The extents whose footers are sound, in the order of files and places.
    metas: Vec<ExtentMeta>,
    /// Value extents by their ids. An id is given again when the job that it was given to has ended
    /// without an edit, and what that job wrote is still there.
    values: BTreeMap<u64, Vec<FoundValueExtent>>,
}

/// A value extent whose footer is sound.
#[derive(Default)]
struct FoundValueExtent {
    file: u32,
    /// Where the footer begins, and the values end.
    end: u64,
    /// Where it began for values that were found, the last one first. There are several where
    /// values lie before it whose own footer is gone.
    begins: RefCell<Vec<u64>>,
    /// How many values of the extent that is read were looked for here, and not found.
    failed: Cell<u32>,
}

/// Looks through all files for extents. What cannot be read goes to `lost`, and `meter` counts the
/// bytes.
pub(crate) fn find_extents(
    store: &Arc<ExtentStore>,
    lost: &mut Vec<Damage>,
    meter: &Meter,
) -> Result<FoundExtents> {
    meter.plan(store.file_lens().into_iter().map(|(_, len)| len).sum());
    let (mut metas, mut values) = (Vec::new(), BTreeMap::<u64, Vec<FoundValueExtent>>::new());
    for (file, len) in store.file_lens() {
        let mut tombstones_lost = Vec::new();
        look_through(store, (file, len), (lost, meter), |at, bytes| {
            metas.extend(extent_before(store, file, at, bytes, &mut tombstones_lost));
            if let Some((id, _)) =
                named(bytes).filter(|(id, sum)| is_sound_footer(*id, *sum, bytes))
            {
                let found = FoundValueExtent { file, end: at, ..Default::default() };
                values.entry(id).or_default().push(found);
            }
        })?;
        lost.append(&mut tombstones_lost);
    }
    Ok(FoundExtents { store: Arc::clone(store), metas, values })
}

impl FoundExtents {
    /// The extents of the ids that are wanted, each opened when it is its turn. They list no value
    /// extents: [`salvage`](Self::salvage) reads their values.
    pub(crate) fn each_of(
        &self,
        is_wanted: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = Arc<Extent>> {
        let metas = self.metas.iter().filter(move |meta| is_wanted(meta.id));
        metas.map(|meta| Extent::open(meta.clone(), Arc::clone(&self.store)))
    }

    /// As [`Extent::salvage`], of an extent that was found.
    ///
    /// # Errors
    ///
    /// What `each` fails with.
    pub(crate) fn salvage(
        &self,
        extent: &Extent,
        lost: &mut Vec<Damage>,
        each: impl FnMut(&EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let ends = OnceCell::new();
        let read = |at: Reference| {
            let ends = ends.get_or_init(|| self.look_ahead(extent));
            let found = self.value(&at, ends.get(&at.extent).copied());
            found.ok_or_else(|| self.no_value(extent.meta(), &at))
        };
        extent.salvage_with(read, lost, each)
    }

    /// Finds where the value extents begin that an extent refers to, as a rule; where the last
    /// value of it ends in each of them.
    fn look_ahead(&self, extent: &Extent) -> BTreeMap<u64, u64> {
        let mut references = BTreeMap::<u64, Vec<Reference>>::new();
        // Of all versions: the last value may be that of an older one.
        extent.each_reference(|at| references.entry(at.extent).or_default().push(at));
        let look_for = |(id, at): (u64, Vec<Reference>)| {
            let end = at.iter().map(|at| u64::from(at.offset) + u64::from(at.len)).max()?;
            let values = self.values.get(&id)?;
            values.iter().for_each(|one| one.failed.set(0));
            let mut few = at.iter().rev().step_by(at.len().div_ceil(MOST_FAILED as usize));
            few.find(|at| self.value(at, Some(end)).is_some());
            Some((id, end))
        };
        references.into_iter().filter_map(look_for).collect()
    }

    /// The value that a reference leads to, if it is there; `last` is where the last one ends that
    /// its extent refers to.
    fn value(&self, at: &Reference, last: Option<u64>) -> Option<Bytes> {
        let values = self.values.get(&at.extent);
        let values = values.filter(|_| at.value_len as usize <= MAX_VALUE_LEN)?;
        // Likely places come first: each costs one read.
        let likely = values.iter().flat_map(|one| one.likely(last).map(move |at| (one, at)));
        let others = values.iter().flat_map(|one| one.search(at).map(move |at| (one, at)));
        let found = likely.chain(others).find_map(|(one, begin)| one.read(&self.store, begin, at));
        if found.is_none() {
            values.iter().for_each(|one| one.failed.set(one.failed.get().saturating_add(1)));
        }
        found
    }

    fn no_value(&self, of: &ExtentMeta, at: &Reference) -> Error {
        let places = self.values.get(&at.extent).map_or(0, Vec::len);
        let expected = format!("{} bytes of checksum {:#010x}", at.len, at.checksum);
        let got = format!("none in the {places} value extents of this number that were found");
        let what = format!("value of value extent {}", at.extent);
        Error::corrupt(self.store.damage(&of.location, 0, what, Mismatch::new(expected, got)))
    }
}

impl FoundValueExtent {
    /// Where it is likely to begin: where it did for another value, or where it does if the last
    /// value that an extent refers to, which ends `last` bytes behind its begin, is its last one.
    fn likely(&self, last: Option<u64>) -> impl Iterator<Item = u64> {
        let known = self.begins.borrow().clone();
        let begin = last.and_then(|last| self.end.checked_sub(last));
        let begin = begin.filter(|begin| begin.is_multiple_of(ExtentStore::unit()));
        let is_new = begin.filter(|begin| !known.contains(begin));
        known.into_iter().chain(is_new)
    }

    /// All places where it may begin if it has a value, the nearest first. It is not the nearest
    /// for all where a newer extent lies in its space. There are none once it was searched often
    /// enough in vain: it is searched for fewer and fewer of the others.
    fn search(&self, at: &Reference) -> impl Iterator<Item = u64> {
        let (unit, failed) = (ExtentStore::unit(), self.failed.get());
        let is_searched = failed < MOST_FAILED || failed.saturating_add(1).is_power_of_two();
        let nearest = self.end.checked_sub(u64::from(at.offset) + u64::from(at.len));
        let nearest = nearest.filter(|_| is_searched).map(|place| place / unit * unit);
        let places = std::iter::successors(nearest, move |place| place.checked_sub(unit));
        let end = self.end;
        places.take_while(move |place| end - place <= LONGEST_VALUES)
    }

    /// The value that a reference leads to, if it lies there.
    fn read(&self, store: &Arc<ExtentStore>, begin: u64, at: &Reference) -> Option<Bytes> {
        let len =
            u32::try_from(self.end.checked_sub(begin)?).ok()?.checked_add(FOOTER_LEN as u32)?;
        let location = Location { file: self.file, offset: begin, len };
        // Nothing but its place is asked for.
        let of = ValueMeta { id: at.extent, location, values: 1, footer_checksum: 0 };
        let values = ValueExtent::new(of, Arc::clone(store));
        // Its space is not given back: nothing is known of it.
        values.name();
        // Its header first, which is enough for all other places.
        let value = values.check(at).and_then(|()| values.read_value(at)).ok()?;
        let mut begins = self.begins.borrow_mut();
        begins.retain(|other| *other != begin);
        begins.insert(0, begin);
        Some(value)
    }
}

/// Calls `each` with every place that a footer of either kind may begin at, and its bytes.
fn look_through(
    store: &ExtentStore,
    (file, len): (u32, u64),
    (lost, meter): (&mut Vec<Damage>, &Meter),
    mut each: impl FnMut(u64, &[u8]),
) -> Result<()> {
    let (mut from, mut unread) = (0, Vec::new());
    while from < len {
        let wanted = (PIECE + FOOTER_LEN as u64).min(len - from);
        let mut bytes = vec![0; wanted as usize];
        let mut read = |at: u64, part: &mut [u8]| {
            let place = Location { file, offset: at, len: part.len() as u32 };
            part.copy_from_slice(&store.read(&place, 0, place.len)?);
            Ok::<(), Error>(())
        };
        read_past(from, &mut bytes, &mut read, &mut unread);
        // The last ones are the first of the next piece.
        for at in 0..bytes.len().saturating_sub(FOOTER_LEN - 1).min(PIECE as usize) {
            let footer = &bytes[at..at + FOOTER_LEN];
            if footer.starts_with(b"TEXT") || footer.starts_with(b"TVAL") {
                each(from + at as u64, footer);
            }
        }
        meter.did(PIECE.min(len - from))?;
        from += PIECE;
    }
    lost.extend(unread.into_iter().map(|Unread { place, error }| {
        let found = Mismatch::new(format!("{} readable bytes", place.end - place.start), error);
        found.at("file of extents", "ssd", store.path(file), place.start)
    }));
    Ok(())
}

/// The id and the checksum that a footer says.
fn named(footer: &[u8]) -> Option<(u64, u32)> {
    let mut reader = Reader::new(footer.get(4..)?);
    let (sum, id) = (reader.u32()?, reader.u64()?);
    Some((id, sum))
}

/// The extent that the footer at a place of a file ends.
fn extent_before(
    store: &ExtentStore,
    file: u32,
    at: u64,
    footer: &[u8],
    lost: &mut Vec<Damage>,
) -> Option<ExtentMeta> {
    let (id, sum) = named(footer)?;
    let (begin, len) = Footer::extent_before(id, at, footer)?;
    let found = Footer::decode(id, len, sum, footer).ok()?;
    let location = Location { file, offset: begin, len };
    let tombstones = tombstones_of(store, &location, &found).unwrap_or_else(|error| {
        let what = format!("range tombstones of extent {id}");
        let place = || store.damage(&location, found.ranges_offset(), what, Mismatch::default());
        lost.push(error.loss(place));
        0
    });
    Some(ExtentMeta {
        location,
        records: found.records.max(1),
        tombstones,
        smallest_seq: 0,
        footer_checksum: sum,
        ..ExtentMeta::new(id)
    })
}

/// How many range tombstones an extent has, as their own section says.
fn tombstones_of(store: &ExtentStore, location: &Location, footer: &Footer) -> Result<u32> {
    const HEAD: u32 = 8;
    if footer.ranges_len < HEAD {
        return Ok(0);
    }
    let head = store.read(location, footer.ranges_offset(), HEAD)?;
    Ok(Reader::new(&head[4..]).u32().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: each value that was lost cost a salvage up to 16,384 reads. Cause: all places were
    /// tried for it, also where it was known where its extent begins. Fix: likely places are tried
    /// first, and an extent in which several values were looked for in vain is searched seldom.
    #[test]
    fn a_value_that_is_lost_costs_few_reads() {
        let at = Reference { extent: 1, offset: 0, len: 100, value_len: 100, checksum: 0 };
        let end = 64 << 20;
        let one = FoundValueExtent { end, ..Default::default() };
        assert!(one.search(&at).count() > 1000);
        let searches = (0..100_000).filter(|failed| {
            one.failed.set(*failed);
            one.search(&at).next().is_some()
        });
        assert_eq!(searches.count(), 8 + 13, "of 100,000 values");
        one.failed.set(MOST_FAILED);
        assert_eq!(one.search(&at).count(), 0);
        assert_eq!(one.likely(None).count(), 0);
        *one.begins.borrow_mut() = vec![1 << 20];
        assert!(one.likely(None).eq([1 << 20]));
        assert!(one.likely(Some(2 << 20)).eq([1 << 20, end - (2 << 20)]));
        assert!(one.likely(Some(1000)).eq([1 << 20]), "no extent begins there");
    }
}
