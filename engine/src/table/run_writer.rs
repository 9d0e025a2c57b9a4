//! Writes a run of a commit that comes from elsewhere: the reader of a shared log lays out what the
//! writer's run had.

use std::sync::Arc;

use super::bulk::writer_of;
use super::runs::NewRun;
use super::{Shared, Table, TableCore};
use crate::error::Result;
use crate::levels::Level;
use crate::record::{EntryRef, Kind};
use crate::spill::ExtentWriter;

/// A run that is being written. Dropped, it leaves nothing.
pub(crate) struct RunWriter {
    core: Arc<TableCore>,
    writer: ExtentWriter,
    loaded: bool,
    _held: HeldMemory,
}

/// Bytes that a writer holds in memory.
struct HeldMemory {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.shared.write_memory.changed(self.bytes, 0);
    }
}

impl RunWriter {
    /// Begins a run of a table.
    pub(crate) fn new(table: &Table, loaded: bool) -> RunWriter {
        let (shared, core) = (Arc::clone(&table.shared), table.slot.core());
        let (writer, bytes) = writer_of(&shared, core.view().version.options);
        RunWriter { core, writer, loaded, _held: HeldMemory { shared, bytes } }
    }

    /// Adds a row, of which the key is greater than all before.
    ///
    /// # Errors
    ///
    /// `Full`; or an I/O error.
    pub(crate) fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        // What is written here in place of the LSN means nothing.
        self.writer.add(EntryRef { key, seq: 1, kind, value })
    }

    /// The run, to be committed.
    ///
    /// # Errors
    ///
    /// As [`RunWriter::add`].
    pub(crate) fn finish(self) -> Result<NewRun> {
        let extents = Level::new(self.writer.finish()?);
        Ok(NewRun { core: self.core, extents, loaded: self.loaded })
    }
}
