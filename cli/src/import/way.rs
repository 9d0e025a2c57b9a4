//! How rows get into the table: in batches, or all at once.

use terrace::{BulkLoad, Database, Existing, Table};

use super::{Loaded, Loader};
use crate::args::ImportArguments;

/// One or the other.
pub(super) enum Way<'a> {
    /// Batch by batch, each all or nothing.
    Batches(Loader<'a>),
    /// All rows or none; they come in the order of their keys.
    Bulk(BulkLoad, Loaded),
}

impl<'a> Way<'a> {
    /// The way that was asked for.
    pub(super) fn new(
        database: &'a Database,
        table: &'a Table,
        arguments: &ImportArguments,
    ) -> terrace::Result<Way<'a>> {
        if !arguments.bulk {
            return Ok(Way::Batches(Loader::new(database, table, arguments.batch as usize)));
        }
        let existing = if arguments.replace { Existing::Replace } else { Existing::Refuse };
        Ok(Way::Bulk(table.bulk_load_with(existing)?, Loaded::default()))
    }

    /// Adds a record.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> terrace::Result<()> {
        match self {
            Way::Batches(loader) => loader.add(key, value),
            Way::Bulk(load, loaded) => {
                load.put(key, value)?;
                loaded.rows += 1;
                loaded.bytes += (key.len() + value.len()) as u64;
                Ok(())
            }
        }
    }

    /// Ends it; what is in the table.
    pub(super) fn finish(mut self) -> terrace::Result<Loaded> {
        match &mut self {
            Way::Batches(loader) => loader.commit()?,
            Way::Bulk(load, _) => load.finish()?,
        }
        Ok(self.loaded())
    }

    /// Ends it before its last row; what is in the table all the same.
    pub(super) fn stop(self) -> terrace::Result<Loaded> {
        match self {
            Way::Batches(mut loader) => loader.commit().map(|()| loader.loaded),
            Way::Bulk(..) => Ok(Loaded::default()),
        }
    }

    fn loaded(&self) -> Loaded {
        match self {
            Way::Batches(loader) => loader.loaded,
            Way::Bulk(_, loaded) => *loaded,
        }
    }
}
