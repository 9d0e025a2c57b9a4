//! Ranges of keys as Python names them: a prefix, a start that belongs to it, a stop that does not.

use std::ops::Bound;

use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::bytes_like::BytesLike;
use crate::errors;

/// The bounds of a range.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys that begin with `prefix`, are not below `start`, and are below `stop`.
pub(crate) fn bounds(
    prefix: Option<&BytesLike>,
    start: Option<&BytesLike>,
    stop: Option<&BytesLike>,
) -> Bounds {
    let mut lower: Option<Vec<u8>> = prefix.map(|prefix| prefix.to_vec());
    let mut upper: Option<Vec<u8>> = prefix.and_then(|prefix| behind(prefix));
    if let Some(start) = start {
        lower = Some(lower.map_or_else(|| start.to_vec(), |lower| lower.max(start.to_vec())));
    }
    if let Some(stop) = stop {
        upper = Some(upper.map_or_else(|| stop.to_vec(), |upper| upper.min(stop.to_vec())));
    }
    (
        lower.map_or(Bound::Unbounded, Bound::Included),
        upper.map_or(Bound::Unbounded, Bound::Excluded),
    )
}

/// The first key behind all that begin with `prefix`; `None` when there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// The range of a slice `start:stop`.
pub(crate) fn of_slice(slice: &pyo3::Bound<'_, PySlice>) -> PyResult<Bounds> {
    if !slice.getattr("step")?.is_none() {
        let message = "a slice of keys takes no step; use items(reverse=True) for the other way";
        return Err(errors::invalid(slice.py(), message));
    }
    let (start, stop) = (slice.getattr("start")?, slice.getattr("stop")?);
    let (start, stop): (Option<BytesLike>, Option<BytesLike>) = (start.extract()?, stop.extract()?);
    Ok(bounds(None, start.as_ref(), stop.as_ref()))
}
