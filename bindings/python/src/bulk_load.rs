//! Bulk loads out of whatever gives pairs of keys and values.

use pyo3::prelude::*;
use pyo3::types::PyMapping;
use terrace::Existing;

use crate::bytes_like::BytesLike;
use crate::calls::released;
use crate::exit;
use crate::progress::{Meter, Told};

/// So many rows are taken from Python before the engine gets them.
const ROWS: usize = 1024;

/// What gives pairs: the items of a mapping, or anything that can be iterated over.
pub(crate) fn pairs<'py>(
    rows: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>> + use<'py>> {
    match rows.cast::<PyMapping>() {
        Ok(mapping) => exit::pulled(&mapping.call_method0("items")?),
        Err(_) => exit::pulled(rows),
    }
}

/// Loads pairs in ascending order of keys, all of them or none; how many there were. `progress` and
/// Ctrl-C end it before the last step.
pub(crate) fn load(
    table: &terrace::Table,
    rows: &Bound<'_, PyAny>,
    existing: Existing,
    progress: Option<&Told<'_>>,
) -> PyResult<u64> {
    let (py, mut meter) = (rows.py(), Meter::new(progress));
    meter.did(py, 0, false)?;
    let mut load = released(py, || table.bulk_load(existing))?;
    let (mut chunk, mut count) = (Vec::with_capacity(ROWS), 0);
    let mut pairs = pairs(rows)?;
    loop {
        chunk.clear();
        for pair in pairs.by_ref().take(ROWS) {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            chunk.push((BytesLike::kept(&key)?, BytesLike::kept(&value)?));
        }
        if chunk.is_empty() {
            break;
        }
        count += chunk.len() as u64;
        let load = &mut load;
        let rows = &chunk;
        released(py, move || rows.iter().try_for_each(|(key, value)| load.put(key, value)))?;
        meter.did(py, count, false)?;
    }
    meter.did(py, count, true)?;
    released(py, || load.finish())?;
    Ok(count)
}
