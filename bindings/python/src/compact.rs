//! Manual compactions, which say how far they are and can be stopped.

use std::ops::ControlFlow;

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::calls::released;
use crate::key_range::Bounds;
use crate::table::Table;
use crate::{exit, json};

/// Compacts a range. `progress` is called as it goes on; if it raises or returns `False`, or Ctrl-C
/// is pressed, the compaction stops.
pub(crate) fn compact(
    py: Python<'_>,
    table: &Table,
    range: Bounds,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let progress = progress.map(|progress| progress.clone().unbind());
    let mut raised = None;
    let done = released(py, || {
        table.db.compact_range_with(&table.table, range, |at| {
            // Where the interpreter ends the compaction stops, and then the thread.
            let Some(_pass) = exit::pass_unless_ended() else { return ControlFlow::Break(()) };
            let told = Python::attach(|py| {
                py.check_signals()?;
                let Some(progress) = &progress else { return Ok(true) };
                let answer = progress.call1(py, (json::to_python(py, at)?,))?;
                Ok(!answer.is(PyBool::new(py, false)))
            });
            match told {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    })?;
    raised.map_or_else(|| json::to_python(py, &done), Err)
}
