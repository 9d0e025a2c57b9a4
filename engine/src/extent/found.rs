//! Extents of a database whose journal is lost: found by their footers, which end each of them.
//!
//! A footer says where its extent begins and which one it is, and its checksum is seeded with that.
//! It does not say whether an edit still names the extent, nor its table. So this finds extents
//! that were replaced, too, as long as their space was not written again. Which of several value
//! extents of one id an extent means, the checksums in its references say.

use std::collections::HashMap;
use std::sync::Arc;

use super::footer::{FOOTER_LEN, Footer};
use super::frame::{self, HEADER_LEN};
use super::values::{ValueExtent, ValueExtents, ValueMeta, ValueUse};
use super::{Extent, ExtentMeta, values};
use crate::error::Result;
use crate::record::{Reader, Reference};
use crate::tier::{ExtentStore, Location};

/// How much is looked through at a time.
const PIECE: u64 = 1 << 20;

/// The longest value extent that is looked for, before its footer.
const LONGEST_VALUES: u64 = 256 << 20;

/// Every extent whose footer is sound, in the order of files and places. Each lists all value
/// extents that were found; of those with one id, the one that has its values.
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
    let of_one_id = values.chunk_by(|a, b| a.of.id == b.of.id);
    let (firsts, others): (Vec<ValueUse>, Vec<&[ValueUse]>) =
        of_one_id.map(|same| (same[0], &same[1..])).unzip();
    let firsts: Arc<[ValueUse]> = firsts.into();
    let mut same: HashMap<u64, Vec<Arc<ValueExtent>>> = HashMap::new();
    for one in others.into_iter().flatten() {
        let values = ValueExtent::new(one.of, Arc::clone(store));
        // Its space is not given back: nothing is known of it.
        values.name();
        same.entry(one.of.id).or_default().push(values);
    }
    let others = same;
    let mut known = ValueExtents::new();
    let open = |meta: ExtentMeta| {
        let meta = ExtentMeta { values: Arc::clone(&firsts), ..with_tombstones(store, meta)? };
        let extent = Extent::open_among(meta, Arc::clone(store), &mut known);
        let own =
            if others.is_empty() { ValueExtents::new() } else { own_values(&extent, &others) };
        if own.is_empty() {
            return Ok(extent);
        }
        let of = |one: &ValueUse| own.get(&one.of.id).map_or(one.of, |values| *values.meta());
        let values = firsts.iter().map(|one| ValueUse { of: of(one), ..*one }).collect();
        let mut among: ValueExtents = known.iter().map(|(id, v)| (*id, Arc::clone(v))).collect();
        among.extend(own.iter().map(|(id, values)| (*id, Arc::clone(values))));
        let meta = ExtentMeta { values, ..extent.meta().clone() };
        Ok(Extent::open_among(meta, Arc::clone(store), &mut among))
    };
    metas.into_iter().map(open).collect()
}

/// Of value extents that have the id of another one, those whose values the records of an extent
/// refer to. An id is given again when the job that it was given to has ended without an edit. What
/// that job wrote is still there.
fn own_values(extent: &Extent, others: &HashMap<u64, Vec<Arc<ValueExtent>>>) -> ValueExtents {
    let mut own = ValueExtents::new();
    let has = |values: &ValueExtent, at: &Reference| values.check(at).is_ok();
    extent.each_reference(|at| {
        // Nothing is read for the ids that only one value extent has.
        let Some(same) = others.get(&at.extent).filter(|_| !own.contains_key(&at.extent)) else {
            return;
        };
        if extent.value_extent(at).is_ok_and(|first| has(first, at)) {
            return;
        }
        let found = same.iter().find(|values| has(values, at));
        own.extend(found.map(|values| (at.extent, Arc::clone(values))));
    });
    own
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
        has_content_sum: found.has_content_sum(),
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
    let (count, has_content_sum) = values::count_in_footer(id, sum, footer)?;
    let unit = ExtentStore::unit();
    let nearest = (at / unit * unit).checked_sub(if at.is_multiple_of(unit) { unit } else { 0 })?;
    let places = std::iter::successors(Some(nearest), |place| place.checked_sub(unit));
    let begin = places
        .take_while(|place| at - place <= LONGEST_VALUES)
        .find(|place| lead_to(store, (file, *place), at, count).is_some())?;
    let len = u32::try_from(at - begin).ok()?.checked_add(FOOTER_LEN as u32)?;
    let location = Location { file, offset: begin, len };
    let of = ValueMeta { id, location, values: count, footer_checksum: sum, has_content_sum };
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
