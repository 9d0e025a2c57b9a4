//! A large commit of the writer, as a reader of the log takes it in. Rows of parts go to extents
//! that no edit names, and the segment behind the last part commits them. So a reader has the
//! commit whole or not at all. Any other entry behind a part ends the commit: it never was.
//!
//! The rows of a prepare count for no read: they become values of the reader's own table, beside
//! what it keeps of other prepares.

use super::log::{LargePart, PartKind};
use super::prepares::{SPILLED_BYTES, SpilledRows, spilled_key};
use crate::error::Result;
use crate::record::Kind;
use crate::table::{NewRun, RunWriter, Table};

/// A commit of which parts have come.
#[derive(Default)]
pub(super) struct FollowedLarge {
    lsn: u64,
    pub(super) parts: u32,
    run: u32,
    done: Vec<NewRun>,
    writing: Option<RunWriter>,
    /// Of a prepare, what was written of it.
    spilled: Option<SpilledRows>,
}

/// What came before the segment of a large commit.
pub(super) struct FollowedRuns {
    pub(super) runs: Vec<NewRun>,
    pub(super) spilled: Option<SpilledRows>,
}

impl FollowedLarge {
    /// Whether a part is the next one of this commit, or the first one of another.
    pub(super) fn goes_on_with(&self, part: &LargePart) -> bool {
        let prepares = part.kind == PartKind::Prepared;
        let is_next = part.lsn == self.lsn && prepares == self.spilled.is_some();
        (is_next || self.parts == 0) && part.index == self.parts
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
        let loaded = part.kind == PartKind::Loaded;
        let writer = self.writing.get_or_insert_with(|| RunWriter::new(table, loaded));
        part.rows().try_for_each(|row| writer.add(row.kind, row.key, row.value))
    }

    /// Takes a part of a prepare in: its `rows` with the table numbers of the reader, whose own
    /// `table` gets them.
    ///
    /// # Errors
    ///
    /// As [`FollowedLarge::add`].
    pub(super) fn add_prepared(
        &mut self,
        part: &LargePart,
        rows: &[u8],
        table: &Table,
    ) -> Result<()> {
        debug_assert!(self.goes_on_with(part), "parts come in their order");
        (self.lsn, self.parts) = (part.lsn, self.parts + 1);
        let spilled = self.spilled.get_or_insert_with(|| SpilledRows::of(part.lsn));
        // All runs become one: the keys of its values go up with each piece.
        let writer = self.writing.get_or_insert_with(|| RunWriter::new(table, false));
        for piece in rows.chunks(SPILLED_BYTES) {
            writer.add(Kind::Put, &spilled_key(part.lsn, spilled.pieces), piece)?;
            spilled.pieces += 1;
        }
        spilled.writes += part.rows().count() as u64;
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(writer) = self.writing.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }

    /// What came of the commit `lsn`, which has so many parts; `None` if these are others.
    ///
    /// # Errors
    ///
    /// As [`FollowedLarge::add`].
    pub(super) fn finish(mut self, lsn: u64, parts: u32) -> Result<Option<FollowedRuns>> {
        if (self.lsn, self.parts) != (lsn, parts) {
            return Ok(None);
        }
        self.end_run()?;
        Ok(Some(FollowedRuns { runs: self.done, spilled: self.spilled }))
    }
}
