//! Sends what a backup has and the set lacks. A few objects are under way at a time.

use std::sync::Arc;

use super::BucketSet;
use crate::backup::known::KnownExtents;
use crate::backup::take::Destination;
use crate::engine::Engine;
use crate::error::Result;
use crate::extent::{Extent, ExtentMeta};
use crate::tier::{ExtentSink, ExtentStore, Location, ObjectId, Sends};

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
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer.
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
