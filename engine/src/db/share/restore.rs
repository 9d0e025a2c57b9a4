//! A database of a checkpoint: all data is fetched, checked, and written to extents of a new
//! directory. Its region is empty.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::checkpoint::object_of;
use crate::db::maintenance::{check_written, create_of_extents};
use crate::db::open::Content;
use crate::error::Result;
use crate::extent::{ExtentMeta, ValueMeta, ValueUse};
use crate::levels::{Edit, Manifest, Op};
use crate::options::Options;
use crate::replica::{EntryBody, SharedLog, SharedPrepare};
use crate::tier::{ExtentStore, Location};

/// A checkpoint of the log.
pub(super) struct FoundCheckpoint {
    /// That of its writer.
    pub(super) claim: u64,
    pub(super) manifest: Manifest,
    pub(super) prepares: Vec<SharedPrepare>,
}

/// The checkpoint that entry `number` is. `None` if the log has left it behind.
///
/// # Errors
///
/// `Corrupt`; `Unavailable` if the store does not answer.
pub(super) fn checkpoint(log: &SharedLog, number: u64) -> Result<Option<FoundCheckpoint>> {
    let Some(entry) = log.entry(number)? else { return Ok(None) };
    let place = format!("{}/{}", log.address(), crate::replica::entry_name(number)).into();
    match entry.body {
        EntryBody::Checkpoint(found) => {
            let manifest = Manifest::read_bytes(&found.manifest, number, ("object", place))?;
            let (claim, prepares) = (entry.claim, found.prepares);
            Ok(Some(FoundCheckpoint { claim, manifest, prepares }))
        }
        _ => Err(log.damage("shared/log", format!("a checkpoint as entry {number}"))),
    }
}

/// Makes a database of a checkpoint in `to`, which is empty.
///
/// # Errors
///
/// `Invalid` if there is something in `to`; `Corrupt` if data is damaged or gone; `Full`;
/// `Unavailable` if the store does not answer. There is no database then.
pub(super) fn restore(
    log: &SharedLog,
    manifest: &Manifest,
    to: &Path,
    options: &Options,
) -> Result<()> {
    create_of_extents(to, options, |files| {
        let store = ExtentStore::open(Arc::clone(files), to, &[], false)?;
        let mut fetching = Fetching { log, store: &store, values: BTreeMap::new() };
        let ops = manifest.edit.ops.iter().map(|op| fetching.fetch_op(op));
        let edit = Edit { ops: ops.collect::<Result<Vec<_>>>()? };
        store.sync()?;
        check_written(&edit, files, to)?;
        Ok(Content { lsn: manifest.lsn, edit })
    })
}

/// Brings data from the store to a directory.
struct Fetching<'a> {
    log: &'a SharedLog,
    store: &'a Arc<ExtentStore>,
    values: BTreeMap<Location, ValueMeta>,
}

impl Fetching<'_> {
    fn fetch_op(&mut self, op: &Op<Arc<ExtentMeta>>) -> Result<Op<Arc<ExtentMeta>>> {
        let mut op = op.clone();
        if let Op::AddExtent { extent, .. } = &mut op {
            let values = extent
                .values
                .iter()
                .map(|one| Ok(ValueUse { of: self.fetch_values(&one.of)?, ..*one }));
            let values = values.collect::<Result<Arc<[_]>>>()?;
            let location = self.fetch(&extent.location)?;
            *extent = Arc::new(ExtentMeta { location, values, ..ExtentMeta::clone(extent) });
        }
        Ok(op)
    }

    fn fetch_values(&mut self, meta: &ValueMeta) -> Result<ValueMeta> {
        if let Some(there) = self.values.get(&meta.location) {
            return Ok(*there);
        }
        let there = ValueMeta { location: self.fetch(&meta.location)?, ..*meta };
        self.values.insert(meta.location, there);
        Ok(there)
    }

    /// Fetches a piece of data: where it is now.
    fn fetch(&self, from: &Location) -> Result<Location> {
        let name = object_of(from);
        let bytes = self.log.data(&name)?;
        if bytes.len() != from.len as usize {
            return Err(self.log.damage(&name, format!("{} bytes", from.len)));
        }
        let reserved = self.store.reserve(from.len)?;
        self.store.write(&reserved.location(), &bytes)?;
        Ok(reserved.keep())
    }
}
