//! Sends what a backup has and the set lacks. A few objects are under way at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::BucketSet;
use crate::db::engine::Engine;
use crate::db::maintenance::backup::take::Destination;
use crate::error::Result;
use crate::extent::{Extent, ExtentMeta, ValueExtent, ValueMeta, ValueUse};
use crate::levels::Manifest;
use crate::memory::Holding;
use crate::tier::{ExtentStore, Location, ObjectId, ObjectWrite};

/// As many are under way at a time; the next one waits for the oldest.
const MOST: usize = 4;

/// What the set has, by the ids of extents.
#[derive(Debug, Default)]
pub(super) struct KnownExtents {
    extents: HashMap<u64, Vec<Arc<ExtentMeta>>>,
    values: HashMap<u64, Vec<ValueMeta>>,
}

impl KnownExtents {
    /// Adds what a backup has.
    pub(super) fn add(&mut self, manifest: &Manifest) {
        for extent in manifest.extents() {
            let known = self.extents.entry(extent.id).or_default();
            if !known.contains(extent) {
                known.push(Arc::clone(extent));
            }
            for one in extent.values.iter() {
                let known = self.values.entry(one.of.id).or_default();
                if !known.contains(&one.of) {
                    known.push(one.of);
                }
            }
        }
    }

    fn extent(&self, meta: &ExtentMeta) -> Option<Arc<ExtentMeta>> {
        self.extents.get(&meta.id)?.iter().find(|own| own.is_copy_of(meta)).cloned()
    }

    fn values(&self, meta: &ValueMeta) -> Option<ValueMeta> {
        self.values.get(&meta.id)?.iter().find(|own| own.is_copy_of(meta)).copied()
    }
}

/// An object on its way.
struct SentObject {
    name: String,
    bytes: Vec<u8>,
    writing: ObjectWrite,
    _held: Holding,
}

/// A backup on its way to the store.
pub(super) struct Sending<'a> {
    engine: &'a Engine,
    bucket: &'a BucketSet,
    /// The caller's; names of objects begin with it.
    epoch: u32,
    known: KnownExtents,
    under_way: VecDeque<SentObject>,
    /// Bytes that were sent.
    bytes: u64,
}

impl<'a> Sending<'a> {
    /// Sends to a set that has `known`, under the names of an epoch.
    pub(super) fn new(
        engine: &'a Engine,
        bucket: &'a BucketSet,
        (epoch, known): (u32, KnownExtents),
    ) -> Sending<'a> {
        Sending { engine, bucket, epoch, known, under_way: VecDeque::new(), bytes: 0 }
    }

    /// Waits until the store has acknowledged all; bytes that were sent.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer.
    pub(super) fn finish(mut self) -> Result<u64> {
        while let Some(oldest) = self.under_way.pop_front() {
            self.bucket.acknowledge(&oldest.name, oldest.writing, &oldest.bytes)?;
        }
        Ok(self.bytes)
    }

    fn send(&mut self, id: u64, bytes: Vec<u8>) -> Result<Location> {
        while self.under_way.len() >= MOST
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.bucket.acknowledge(&oldest.name, oldest.writing, &oldest.bytes)?;
        }
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let place = Location::of_object(ObjectId { epoch: self.epoch, extent: id }, len);
        let (name, writing) = self.bucket.begin_send(&place, &bytes);
        let _held = self.engine.set.store().memory().jobs.hold(u64::from(len));
        self.under_way.push_back(SentObject { name, bytes, writing, _held });
        self.bytes += u64::from(len);
        Ok(place)
    }

    fn send_extent(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        let meta = extent.meta();
        let listed = extent.values().iter().zip(&*meta.values);
        let values =
            listed.map(|(values, one)| Ok(ValueUse { of: self.send_values(values)?, ..*one }));
        let values = values.collect::<Result<Arc<[_]>>>()?;
        let location = self.send(meta.id, extent.read_whole()?)?;
        let own = Arc::new(ExtentMeta { location, values, ..meta.clone() });
        self.known.extents.entry(meta.id).or_default().push(Arc::clone(&own));
        Ok(own)
    }

    fn send_values(&mut self, values: &ValueExtent) -> Result<ValueMeta> {
        let meta = values.meta();
        if let Some(own) = self.known.values(meta) {
            return Ok(own);
        }
        let own = ValueMeta { location: self.send(meta.id, values.read_whole()?)?, ..*meta };
        self.known.values.entry(meta.id).or_default().push(own);
        Ok(own)
    }
}

impl Destination for Sending<'_> {
    fn store(&self) -> &Arc<ExtentStore> {
        self.engine.set.store()
    }

    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        match self.known.extent(extent.meta()) {
            Some(own) => Ok(own),
            None => self.send_extent(extent),
        }
    }

    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>> {
        self.send_extent(dumped)
    }
}
