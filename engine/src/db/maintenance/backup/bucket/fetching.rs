//! Brings what a backup has to a directory. A few reads are under way at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::Result;
use crate::extent::{ExtentMeta, ValueMeta, ValueUse};
use crate::levels::{Edit, Manifest, Op};
use crate::tier::{ExtentStore, Location};

/// As many reads are under way at a time.
const MOST: usize = 4;

/// Fetches all extents; the operations, with the places that they have now. Nothing is checked but
/// lengths: the caller reads what was written.
///
/// # Errors
///
/// `Corrupt` if an object is gone; `Full`; `Unavailable` if the store does not answer.
pub(super) fn fetch(
    manifest: &Manifest,
    from: &ExtentStore,
    to: &Arc<ExtentStore>,
) -> Result<Edit<Arc<ExtentMeta>>> {
    let moved = fetch_places(places(manifest), from, to)?;
    let place = |at: &Location| moved.get(at).copied().unwrap_or(*at);
    let move_values = |one: &ValueUse| {
        let of = ValueMeta { location: place(&one.of.location), ..one.of };
        ValueUse { of, ..*one }
    };
    let move_op = |op: &Op<Arc<ExtentMeta>>| {
        let mut op = op.clone();
        if let Op::AddExtent { extent, .. } = &mut op {
            let (location, values) =
                (place(&extent.location), extent.values.iter().map(move_values).collect());
            *extent = Arc::new(ExtentMeta { location, values, ..ExtentMeta::clone(extent) });
        }
        op
    };
    Ok(Edit { ops: manifest.edit.ops.iter().map(move_op).collect() })
}

/// Where a backup has its extents, each once.
fn places(manifest: &Manifest) -> Vec<Location> {
    let of = |extent: &Arc<ExtentMeta>| {
        let values = extent.values.iter().map(|one| one.of.location);
        values.chain([extent.location]).collect::<Vec<_>>()
    };
    let mut places: Vec<Location> = manifest.extents().flat_map(of).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn fetch_places(
    places: Vec<Location>,
    from: &ExtentStore,
    to: &Arc<ExtentStore>,
) -> Result<BTreeMap<Location, Location>> {
    let mut moved = BTreeMap::new();
    let mut under_way = VecDeque::new();
    let mut rest = places.into_iter();
    loop {
        while under_way.len() < MOST
            && let Some(place) = rest.next()
        {
            under_way.push_back((place, from.begin_fetch(&place)?));
        }
        let Some((place, fetch)) = under_way.pop_front() else { return Ok(moved) };
        let bytes = from.finish_fetch(&place, fetch)?;
        let reserved = to.reserve(place.len)?;
        to.write(&reserved.location(), &bytes)?;
        moved.insert(place, reserved.keep());
    }
}
