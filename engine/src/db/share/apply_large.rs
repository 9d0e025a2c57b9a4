//! A large commit of the writer, as a reader of the log takes it in. Rows of parts go to extents
//! that no edit names, and the segment behind the last part commits them. So a reader has the
//! commit whole or not at all. Any other entry behind a part ends the commit: it never was.

use crate::error::Result;
use crate::replica::LargePart;
use crate::table::{NewRun, RunWriter, Table};

/// A commit of which parts have come.
#[derive(Default)]
pub(super) struct FollowedLarge {
    lsn: u64,
    pub(super) parts: u32,
    run: u32,
    done: Vec<NewRun>,
    writing: Option<RunWriter>,
}

impl FollowedLarge {
    /// Whether a part is the next one of this commit, or the first one of another.
    pub(super) fn goes_on_with(&self, part: &LargePart) -> bool {
        let is_next = part.lsn == self.lsn || self.parts == 0;
        is_next && part.index == self.parts
    }

    /// Takes a part in, of which the rows go to `table`.
    ///
    /// # Errors
    ///
    /// `Full`; or an I/O error.
    pub(super) fn add(&mut self, part: &LargePart, table: &Table) -> Result<()> {
        debug_assert!(self.goes_on_with(part), "parts come in their order");
        if part.run != self.run {
            self.end_run()?;
        }
        (self.lsn, self.run, self.parts) = (part.lsn, part.run, self.parts + 1);
        let writer = self.writing.get_or_insert_with(|| RunWriter::new(table, part.loaded));
        part.rows().try_for_each(|row| writer.add(row.kind, row.key, row.value))
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(writer) = self.writing.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }

    /// The runs of the commit `lsn`, which has so many parts; `None` if these are others.
    ///
    /// # Errors
    ///
    /// As [`FollowedLarge::add`].
    pub(super) fn finish(mut self, lsn: u64, parts: u32) -> Result<Option<Vec<NewRun>>> {
        if (self.lsn, self.parts) != (lsn, parts) {
            return Ok(None);
        }
        self.end_run()?;
        Ok(Some(self.done))
    }
}
