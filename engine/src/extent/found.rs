//! Extents of a database whose journal is lost: found by their footers, which end each of them.
//!
//! A footer says where its extent begins and which one it is, and its checksum is seeded with that.
//! It does not say whether an edit still names the extent, nor its table. So this finds extents
//! that were replaced, too, as long as their space was not written again.

use std::sync::Arc;

use super::footer::{FOOTER_LEN, Footer};
use super::frame::{self, HEADER_LEN};
use super::values::{ValueMeta, ValueUse};
use super::{Extent, ExtentMeta, values};
use crate::error::Result;
use crate::record::Reader;
use crate::tier::{ExtentStore, Location};

/// How much is looked through at a time.
const PIECE: u64 = 1 << 20;

/// The longest value extent that is looked for, before its footer.
const LONGEST_VALUES: u64 = 256 << 20;

/// Every extent whose footer is sound, in the order of files and places. Each lists all value
/// extents that were found.
///
/// # Errors
///
/// An I/O error.
pub(crate) fn find_extents(store: &Arc<ExtentStore>) -> Result<Vec<Arc<Extent>>> {
    let (mut metas, mut values) = (Vec::new(), Vec::new());
    for (file, len) in store.file_lens() {
        look_through(store, file, len, |at, bytes| {
            metas.extend(extent_before(file, at, bytes));
            values.extend(values_before(store, file, at, bytes));
            Ok(())
        })?;
    }
    values.sort_by_key(|one: &ValueUse| one.of.id);
    values.dedup_by_key(|one| one.of.id);
    let values: Arc<[ValueUse]> = values.into();
    let mut known = values::ValueExtents::new();
    let mut open = |meta: ExtentMeta| {
        let meta = ExtentMeta { values: Arc::clone(&values), ..meta };
        Ok(Extent::open_among(with_tombstones(store, meta)?, Arc::clone(store), &mut known))
    };
    metas.into_iter().map(&mut open).collect()
}

/// Calls `each` with every place that a footer of either kind may begin at, and its bytes.
fn look_through(
    store: &ExtentStore,
    file: u32,
    len: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut from = 0;
    while from < len {
        let wanted = (PIECE + FOOTER_LEN as u64).min(len - from);
        let place = Location { file, offset: from, len: wanted as u32 };
        let bytes = store.read(&place, 0, place.len)?;
        // The last ones are the first of the next piece.
        for at in 0..bytes.len().saturating_sub(FOOTER_LEN - 1).min(PIECE as usize) {
            let footer = &bytes[at..at + FOOTER_LEN];
            if footer.starts_with(b"TEXT") || footer.starts_with(b"TVAL") {
                each(from + at as u64, footer)?;
            }
        }
        from += PIECE;
    }
    Ok(())
}

/// The id and the checksum that a footer says.
fn named(footer: &[u8]) -> Option<(u64, u32)> {
    let mut reader = Reader::new(footer.get(4..)?);
    let (sum, id) = (reader.u32()?, reader.u64()?);
    Some((id, sum))
}

/// The extent that the footer at `at` of a file ends, but for its range tombstones.
fn extent_before(file: u32, at: u64, footer: &[u8]) -> Option<ExtentMeta> {
    let (id, sum) = named(footer)?;
    let (begin, len) = Footer::extent_before(at, footer)?;
    let found = Footer::decode(id, len, sum, footer).ok()?;
    Some(ExtentMeta {
        id,
        location: Location { file, offset: begin, len },
        records: found.records.max(1),
        deletes: 0,
        tombstones: 0,
        smallest_seq: 0,
        greatest_seq: 0,
        one_seq: false,
        kept: 0,
        raw_bytes: 0,
        smallest_key: Vec::new(),
        greatest_key: Vec::new(),
        footer_checksum: sum,
        values: [].into(),
    })
}

/// With how many range tombstones it has, as its own section says.
fn with_tombstones(store: &ExtentStore, meta: ExtentMeta) -> Result<ExtentMeta> {
    const HEAD: u32 = 8;
    let tail = meta.location.len - FOOTER_LEN as u32;
    let footer = store.read(&meta.location, tail, FOOTER_LEN as u32)?;
    let found = Footer::decode(meta.id, meta.location.len, meta.footer_checksum, &footer);
    let Some(footer) = found.ok().filter(|footer| footer.ranges_len >= HEAD) else {
        return Ok(meta);
    };
    let head = store.read(&meta.location, footer.ranges_offset(), HEAD)?;
    let tombstones = Reader::new(&head[4..]).u32().unwrap_or(0);
    Ok(ExtentMeta { tombstones, ..meta })
}

/// The value extent that the footer at `at` of a file ends: the nearest place before it from which
/// as many values lie end to end as the footer says.
fn values_before(store: &ExtentStore, file: u32, at: u64, footer: &[u8]) -> Option<ValueUse> {
    let (id, sum) = named(footer)?;
    let count = values::count_in_footer(id, sum, footer)?;
    let unit = ExtentStore::unit();
    let nearest = (at / unit * unit).checked_sub(if at.is_multiple_of(unit) { unit } else { 0 })?;
    let places = std::iter::successors(Some(nearest), |place| place.checked_sub(unit));
    let begin = places
        .take_while(|place| at - place <= LONGEST_VALUES)
        .find(|place| lead_to(store, (file, *place), at, count).is_some())?;
    let len = u32::try_from(at - begin).ok()?.checked_add(FOOTER_LEN as u32)?;
    let location = Location { file, offset: begin, len };
    let of = ValueMeta { id, location, values: count, footer_checksum: sum };
    Some(ValueUse { of, bytes: u64::from(of.values_end()) })
}

/// Whether `count` values lie end to end from a place of a file up to `end`, by their headers.
fn lead_to(store: &ExtentStore, (file, begin): (u32, u64), end: u64, count: u32) -> Option<()> {
    let mut at = begin;
    for _ in 0..count {
        let place = Location { file, offset: at, len: HEADER_LEN as u32 };
        if at + HEADER_LEN as u64 > end {
            return None;
        }
        let header = store.read(&place, 0, place.len).ok()?;
        let (len, _) = frame::lens_of(&header)?;
        at += HEADER_LEN as u64 + u64::from(len);
    }
    (at == end).then_some(())
}
