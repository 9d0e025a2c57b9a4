//! Brings what a backup has to a directory. A few reads are under way at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::extent::ExtentMeta;
use crate::levels::{Edit, Manifest};
use crate::tier::{ExtentStore, Location, Transfers};

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
    let mut moved: BTreeMap<Location, Location> = BTreeMap::new();
    let mut under_way = Transfers::default();
    let mut rest = manifest.places().into_iter().peekable();
    loop {
        while let Some(place) = rest.next_if(|at| under_way.has_room_for(u64::from(at.len))) {
            under_way.add(u64::from(place.len), (place, from.begin_fetch(&place)?));
        }
        let Some((place, fetch)) = under_way.oldest() else { break };
        moved.insert(place, to.write_new(&from.finish_fetch(&place, fetch)?)?);
    }
    Ok(manifest.relocated(|at| moved.get(&at).copied().unwrap_or(at)))
}
