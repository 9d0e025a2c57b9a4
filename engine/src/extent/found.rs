//! Extents that no edit names, since the journal or a part of it is lost: found by their footers,
//! which end each of them.
//!
//! A footer says where its extent begins and which one it is, and its checksum is seeded with that.
//! It does not say whether an edit still names the extent, nor its table. So this finds extents
//! that were replaced, too, as long as their space was not written again. Which of several value
//! extents of one id an extent means, the checksums in its references say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::footer::{FOOTER_LEN, Footer};
use super::frame::{self, HEADER_LEN};
use super::values::{ValueExtent, ValueExtents, ValueMeta, ValueUse};
use super::{Extent, ExtentMeta, values};
use crate::error::{Damage, Error, Result};
use crate::os::{Unread, read_past};
use crate::record::Reader;
use crate::tier::{ExtentStore, Location};

/// How much is looked through at a time.
const PIECE: u64 = 1 << 20;

/// The longest value extent that is looked for, before its footer.
const LONGEST_VALUES: u64 = 256 << 20;

/// What was found in the files of a store.
pub(crate) struct FoundExtents {
    store: Arc<ExtentStore>,
    /// The extents whose footers are sound, in the order of files and places.
    metas: Vec<ExtentMeta>,
    /// Value extents by their ids. An id is given again when the job that it was given to has ended
    /// without an edit, and what that job wrote is still there.
    values: BTreeMap<u64, Vec<ValueUse>>,
}

/// Looks through all files for extents. What cannot be read goes to `lost`.
pub(crate) fn find_extents(store: &Arc<ExtentStore>, lost: &mut Vec<Damage>) -> FoundExtents {
    let (mut metas, mut values) = (Vec::new(), BTreeMap::<u64, Vec<ValueUse>>::new());
    for (file, len) in store.file_lens() {
        let mut tombstones_lost = Vec::new();
        look_through(store, (file, len), lost, |at, bytes| {
            metas.extend(extent_before(store, (file, at, bytes), &mut tombstones_lost));
            if let Some(found) = values_before(store, file, at, bytes) {
                values.entry(found.of.id).or_default().push(found);
            }
        });
        lost.append(&mut tombstones_lost);
    }
    FoundExtents { store: Arc::clone(store), metas, values }
}

impl FoundExtents {
    /// The extents but those of `known` ids, each opened when it is its turn. It lists the value
    /// extents that its records refer to. Of several with one id that is the one that has most of
    /// the values: extents may begin alike, and a single one may be damaged.
    pub(crate) fn each_but(&self, known: &BTreeSet<u64>) -> impl Iterator<Item = Arc<Extent>> {
        self.metas.iter().filter(|meta| !known.contains(&meta.id)).map(|meta| {
            let alone = Extent::open(meta.clone(), Arc::clone(&self.store));
            let mut votes: BTreeMap<u64, Vec<(u64, Arc<ValueExtent>)>> = BTreeMap::new();
            alone.each_reference(|at| {
                let Some(same) = self.values.get(&at.extent) else { return };
                let candidates = votes
                    .entry(at.extent)
                    .or_insert_with(|| same.iter().map(|one| (0, self.open_values(one))).collect());
                // Nothing is read for the ids that only one value extent has.
                if let [_, _, ..] = &candidates[..] {
                    candidates.iter_mut().for_each(|(count, values)| {
                        *count += u64::from(values.check(at).is_ok());
                    });
                }
            });
            // The last of those with most: what was written later.
            let most = |of: Vec<(u64, Arc<ValueExtent>)>| of.into_iter().max_by_key(|(n, _)| *n);
            let mut own: ValueExtents = votes
                .into_iter()
                .filter_map(|(id, candidates)| Some((id, most(candidates)?.1)))
                .collect();
            let list = own.values().map(|values| {
                let of = *values.meta();
                ValueUse { of, bytes: u64::from(of.values_end()) }
            });
            let meta = ExtentMeta { values: list.collect(), ..meta.clone() };
            Extent::open_among(meta, Arc::clone(&self.store), &mut own)
        })
    }

    fn open_values(&self, one: &ValueUse) -> Arc<ValueExtent> {
        let values = ValueExtent::new(one.of, Arc::clone(&self.store));
        // Its space is not given back: nothing is known of it.
        values.name();
        values
    }
}

/// Calls `each` with every place that a footer of either kind may begin at, and its bytes.
fn look_through(
    store: &ExtentStore,
    (file, len): (u32, u64),
    lost: &mut Vec<Damage>,
    mut each: impl FnMut(u64, &[u8]),
) {
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
        from += PIECE;
    }
    lost.extend(unread.into_iter().map(|Unread { place, error }| Damage {
        tier: "ssd",
        file: store.path(file),
        offset: place.start,
        what: "file of extents".into(),
        expected: format!("{} readable bytes", place.end - place.start),
        got: error,
    }));
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
    (file, at, footer): (u32, u64, &[u8]),
    lost: &mut Vec<Damage>,
) -> Option<ExtentMeta> {
    let (id, sum) = named(footer)?;
    let (begin, len) = Footer::extent_before(at, footer)?;
    let found = Footer::decode(id, len, sum, footer).ok()?;
    let location = Location { file, offset: begin, len };
    let tombstones = tombstones_of(store, &location, &found).unwrap_or_else(|error| {
        let offset = begin + u64::from(found.ranges_offset());
        lost.push(error.loss(|| Damage {
            tier: "ssd",
            file: store.path(file),
            offset,
            what: format!("range tombstones of extent {id}"),
            expected: String::new(),
            got: String::new(),
        }));
        0
    });
    Some(ExtentMeta {
        id,
        location,
        records: found.records.max(1),
        deletes: 0,
        tombstones,
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

/// How many range tombstones an extent has, as their own section says.
fn tombstones_of(store: &ExtentStore, location: &Location, footer: &Footer) -> Result<u32> {
    const HEAD: u32 = 8;
    if footer.ranges_len < HEAD {
        return Ok(0);
    }
    let head = store.read(location, footer.ranges_offset(), HEAD)?;
    Ok(Reader::new(&head[4..]).u32().unwrap_or(0))
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
