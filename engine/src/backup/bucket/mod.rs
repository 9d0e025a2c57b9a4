//! A backup set in an object store. `docs/format.md` has its objects, `docs/internals/backup.md`
//! the argument why no caller that is paused, late or dead leaves a backup without its parts.
//!
//! Invariants:
//!
//! 1. What a manifest names is in the store before the manifest is, and the manifest before the
//!    head names it.
//! 2. A name is used once: it has the epoch of the caller that made it.
//! 3. Deleted is only what no backup of the head names, under a name of an earlier epoch than the
//!    caller's, and after the caller has replaced the head.

mod head;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::BackupInfo;
use super::known::KnownExtents;
use super::restore::{fetch, restore_meter, restore_with};
use super::take::{Destination, gather};
use crate::base::error::{Error, Result, VerifyReport};
use crate::base::options::{Options, Storage};
use crate::base::progress::Meter;
use crate::base::record::Sealable;
use crate::engine::Engine;
use crate::engine::open::{files_of, object_client};
use crate::os::Files;
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::{
    ExtentSink, ExtentStore, FailureKind, Location, ObjectClient, ObjectId, ObjectNames,
    ObjectSpan, Sends, TaggedValue, open_reader, owner,
};
use crate::version::Manifest;
use head::SetHead;

#[cfg(any(test, feature = "testing"))]
pub(crate) use head::probe;

/// What names of manifests begin with.
const MANIFESTS: &str = "backups/manifests/";

/// Names that are deleted with one request.
const BATCH: usize = 1000;

/// The set's URL, where a path is one.
pub(super) fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

fn manifest_name(number: u64) -> String {
    format!("{MANIFESTS}{number:08}")
}

fn manifest_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(MANIFESTS)?.parse().ok()?;
    (manifest_name(number) == name).then_some(number)
}

/// The way to a set.
pub(super) struct BucketSet {
    client: Arc<ObjectClient>,
    files: Arc<dyn Files>,
    names: ObjectNames,
    nonce: [u8; 16],
    /// Who calls, for the messages of others.
    owner: String,
}

impl BucketSet {
    /// The way to the set of a URL. Asks the store for nothing.
    pub(super) fn open(url: &str, options: &Options) -> Result<BucketSet> {
        let files = files_of(options);
        let (client, nonce) = object_client(url, options, &files, 0)?;
        let simulated = !matches!(options.storage, Storage::Real);
        // What a simulated machine writes is the same in every run.
        let owner = if simulated { "process 1, simulated".to_string() } else { owner() };
        Ok(BucketSet { client, files, names: ObjectNames::of_backups(), nonce, owner })
    }

    /// Fails where no set is.
    pub(super) fn check_present(&self) -> Result<()> {
        self.head().map(drop)
    }

    fn head(&self) -> Result<SetHead> {
        let found = head::look(&self.client)?;
        found.map(|placed| placed.value).ok_or_else(|| head::no_backups(&self.client.address()))
    }

    fn take(&self, database_id: Option<[u8; 16]>) -> Result<TaggedValue<SetHead>> {
        head::take(&self.client, database_id, (self.nonce, &self.owner))
    }

    /// Its backups, the oldest first.
    pub(super) fn list(&self) -> Result<Vec<BackupInfo>> {
        let info = |number| self.manifest(number).map(|manifest| BackupInfo::of(&manifest));
        self.head()?.numbers.into_iter().map(info).collect()
    }

    fn manifest(&self, number: u64) -> Result<Manifest> {
        let name = manifest_name(number);
        let got = self.client.get(&name, ObjectSpan::Whole);
        if matches!(&got, Err(failure) if failure.kind == FailureKind::Missing) {
            // Another caller may have deleted it since the head was read.
            check_has(&self.head()?, number, &self.client.address())?;
        }
        let bytes = self.client.told("read", &name, got)?.bytes;
        let place = format!("{}/{name}", self.client.address()).into();
        Manifest::read_bytes(&bytes, number, ("backup", place))
    }

    /// The extents of the set, to read.
    fn store(&self) -> Arc<ExtentStore> {
        let tier = open_reader(Arc::clone(&self.client), self.names.clone());
        ExtentStore::of_objects(Arc::clone(&self.files), tier)
    }

    fn name_of(&self, place: &Location) -> String {
        place.object().map_or_else(String::new, |id: ObjectId| self.names.extent(id))
    }

    /// Checks manifests, and every extent once.
    pub(super) fn verify(&self, options: &Options) -> Result<VerifyReport> {
        let numbers = self.head()?.numbers.into_iter();
        let manifests = numbers.map(|number| (number, self.manifest(number)));
        let address = self.client.address();
        VerifyReport::of_backups(manifests, &self.store(), Path::new(&address), options)
    }

    /// Deletes a backup, and what no other one needs.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none of this number; `Busy` if another caller changes the set,
    /// or the store does not answer.
    pub(super) fn delete(&self, number: u64) -> Result<()> {
        check_has(&self.head()?, number, &self.client.address())?;
        let held = self.take(None)?;
        check_has(&held.value, number, &self.client.address())?;
        let mut numbers = held.value.numbers.clone();
        numbers.retain(|other| *other != number);
        let held = head::replace(&self.client, held, numbers)?;
        // The backup is gone whether its objects are or not. The next call deletes them.
        self.collect(&held.value).unwrap_or(());
        Ok(())
    }

    /// Deletes what no backup of the head needs: what was deleted, and what calls left that failed
    /// (invariant 3).
    fn collect(&self, head: &SetHead) -> Result<()> {
        let mut named: BTreeSet<ObjectId> = BTreeSet::new();
        for number in &head.numbers {
            let manifest = self.manifest(*number)?;
            named.extend(manifest.places().iter().filter_map(Location::object));
        }
        let is_left = |name: &str| match (self.names.parse(name), manifest_number(name)) {
            (Some(id), _) => id.epoch < head.epoch && !named.contains(&id),
            (None, Some(number)) => {
                number < u64::from(head.epoch) && !head.numbers.contains(&number)
            }
            (None, None) => false,
        };
        let mut left = self.names()?;
        left.retain(|name| is_left(name));
        for some in left.chunks(BATCH) {
            self.client.told("delete", &some[0], self.client.delete(some))?;
        }
        Ok(())
    }

    /// The names of all objects of the set.
    fn names(&self) -> Result<Vec<String>> {
        let (prefix, mut names) = (self.names.prefix(), Vec::<String>::new());
        loop {
            let after = names.last().cloned().unwrap_or_default();
            let page = self.client.told("list", prefix, self.client.list(prefix, &after))?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page.into_iter().map(|info| info.name));
        }
    }

    /// Makes a database of backup `number` in `to`.
    pub(super) fn restore(&self, number: u64, to: &Path, options: &Options) -> Result<()> {
        check_has(&self.head()?, number, &self.client.address())?;
        let manifest = self.manifest(number)?;
        restore_with(&manifest, to, options, |files| {
            let name = |at: &Location| self.name_of(at);
            // Each byte is fetched, and read again.
            let meter = restore_meter(&manifest, options, 2)?;
            let edit =
                fetch((&manifest, &self.client), &name, (files, to), &|bytes| meter.did(bytes))?;
            meter.end().map(|()| edit)
        })
    }
}

fn check_has(head: &SetHead, number: u64, address: &str) -> Result<()> {
    if head.numbers.contains(&number) {
        return Ok(());
    }
    let there = &head.numbers;
    Err(Error::invalid(format!("there is no backup {number} in {address}; there are {there:?}")))
}

/// Adds a backup to the set of a URL.
pub(super) fn back_up(engine: &Engine, url: &str) -> Result<BackupInfo> {
    let bucket = BucketSet::open(url, &engine.options)?;
    let database_id = engine.set.database_id();
    let held = bucket.take(Some(database_id))?;
    let (epoch, numbers) = (held.value.epoch, held.value.numbers.clone());
    let mut known = KnownExtents::default();
    for number in &numbers {
        bucket.manifest(*number)?.extents().for_each(|extent| known.add(extent));
    }
    let mut sending = Sending::new(engine, &bucket, (epoch, known));
    let meter = Meter::new(&engine.options, "backup");
    let gathered = gather(engine, &mut sending, &meter)?;
    let manifest = gathered.manifest(engine, u64::from(epoch), sending.finish()?)?;
    meter.end()?;
    let (name, bytes) = (manifest_name(manifest.number), manifest.encode());
    let written = bucket.client.begin_put(&name, bytes.into()).finish(&bucket.client);
    bucket.client.told("write", &name, written)?;
    let follows = numbers.last().is_some_and(|last| last + 1 == manifest.number) || epoch == 1;
    let held = head::replace(&bucket.client, held, [numbers, vec![manifest.number]].concat())?;
    drop(gathered);
    if !follows {
        // A call since the backup before has failed, or was a deletion. The backup is there whether
        // what these left is deleted or not: the next deletion deletes it.
        bucket.collect(&held.value).unwrap_or(());
    }
    Ok(BackupInfo::of(&manifest))
}

/// A backup on its way to the store.
pub(super) struct Sending<'a> {
    sent: SentObjects<'a>,
    known: KnownExtents,
    /// Where what is above the levels is written first. Of a database that is only read it is the
    /// set itself: no file of the database is written.
    store: Arc<ExtentStore>,
    writes_to_set: bool,
}

/// The objects of a call, on their way.
struct SentObjects<'a> {
    bucket: &'a BucketSet,
    /// The caller's; names of objects begin with it.
    epoch: u32,
    sends: Sends<()>,
    /// Bytes that were sent.
    bytes: u64,
}

impl ExtentSink for SentObjects<'_> {
    fn put(&mut self, extent: u64, bytes: &[u8]) -> Result<Location> {
        self.send(extent, bytes.to_vec())
    }
}

impl SentObjects<'_> {
    fn send(&mut self, id: u64, bytes: Vec<u8>) -> Result<Location> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let place = Location::of_object(ObjectId { epoch: self.epoch, extent: id }, len);
        self.sends.send(((), self.bucket.name_of(&place)), bytes, |(), _| ())?;
        self.bytes += u64::from(len);
        Ok(place)
    }
}

impl<'a> Sending<'a> {
    /// Sends to a set that has `known`, under the names of an epoch.
    pub(super) fn new(
        engine: &Engine,
        bucket: &'a BucketSet,
        (epoch, known): (u32, KnownExtents),
    ) -> Sending<'a> {
        let own = engine.set.store();
        let sends = Sends::new(&bucket.client, own.memory().job_sends());
        let writes_to_set = engine.shared.read_only;
        let store = if writes_to_set { bucket.store() } else { Arc::clone(own) };
        let sent = SentObjects { bucket, epoch, sends, bytes: 0 };
        Sending { sent, known, store, writes_to_set }
    }

    /// Waits until the store has acknowledged all; bytes that were sent.
    pub(super) fn finish(self) -> Result<u64> {
        let SentObjects { mut sends, bytes, .. } = self.sent;
        sends.finish(|(), _| ())?;
        Ok(bytes)
    }
}

impl Destination for Sending<'_> {
    fn store(&self) -> &Arc<ExtentStore> {
        &self.store
    }

    fn objects(&mut self) -> Option<&mut dyn ExtentSink> {
        self.writes_to_set.then_some(&mut self.sent)
    }

    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        let Sending { sent, known, .. } = self;
        known.copy(extent, &mut |lacking| sent.send(lacking.id, lacking.read()?))
    }

    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>> {
        match self.writes_to_set {
            true => Ok(Arc::new(ExtentMeta::clone(dumped.meta()))),
            false => self.copy(dumped),
        }
    }
}
