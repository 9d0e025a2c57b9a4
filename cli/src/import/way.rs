//! How rows get into the table: in batches, or all at once.

use terrace::{BulkLoad, Database, Existing, Table};

use super::{Loaded, Loader, Stop};
use crate::args::ImportArguments;
use crate::failure::Failure;

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
        Ok(Way::Bulk(table.bulk_load(existing)?, Loaded::default()))
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

    /// Ends it, after its last row or before. What is in the table, and how it ended: what was
    /// added before a stop is committed, unless all rows were to come at once.
    pub(super) fn end(mut self, added: Result<(), Stop>) -> (Loaded, Result<(), Stop>) {
        let ended = match (&mut self, &added) {
            (Way::Bulk(load, _), Ok(())) => load.finish().map_err(Stop::from),
            // A batch that could not be committed is not tried again.
            (Way::Bulk(..), Err(_)) | (Way::Batches(_), Err(Stop::Failed(Failure::Engine(_)))) => {
                Ok(())
            }
            (Way::Batches(loader), _) => loader.commit().map_err(Stop::from),
        };
        // Rows that are not in are told before why no more came.
        let ended = ended.and(added);
        let loaded = match (&self, &ended) {
            (Way::Bulk(..), Err(_)) => Loaded::default(),
            (Way::Bulk(_, loaded), Ok(())) => *loaded,
            (Way::Batches(loader), _) => loader.loaded,
        };
        (loaded, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::BadRow;

    /// Bug: rows before a broken one were lost, and told as imported. Cause: the failure of the
    /// last batch was dropped for the broken row. Fix: that failure is what is told.
    #[test]
    fn a_last_batch_that_fails_is_told_before_a_broken_row() {
        let dir = tempfile::tempdir().unwrap();
        let database =
            terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
        let table = database.table("t").unwrap();
        let mut way = Way::Batches(Loader::new(&database, &table, 2));
        [b"a", b"b", b"c"].iter().for_each(|key| way.add(*key, b"").unwrap());
        database.clone().close().unwrap();
        let broken = BadRow { line: 4, reason: "broken".to_owned() };
        let (loaded, ended) = way.end(Err(Stop::Broken(broken)));
        assert_eq!(loaded.rows, 2);
        let Err(Stop::Failed(Failure::Engine(error))) = ended else { panic!("another end") };
        assert_eq!(error.kind(), terrace::ErrorKind::Closed);
    }
}
