//! The extents of one job that become objects.

use std::sync::Arc;

use super::name::ObjectId;
use super::tier::ObjectTier;
use super::transfers::Sends;
use crate::base::error::Result;
use crate::base::memory::Gauge;
use crate::storage::location::Location;

/// Where a job puts extents: into space that was reserved for it, or into an object store.
pub(crate) trait ExtentSink {
    /// Writes an extent, or a value extent, of this id: where it is. Of an object it begins to send
    /// the bytes, and may wait for earlier ones.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; an earlier object could not be sent; or this one cannot have a
    /// name.
    fn put(&mut self, extent: u64, bytes: &[u8]) -> Result<Location>;
}

/// Objects of the database that one job sends. An edit may name them once
/// [`finish`](Uploads::finish) has returned.
#[derive(Debug)]
pub(crate) struct Uploads {
    tier: Arc<ObjectTier>,
    sends: Sends<ObjectId>,
    /// Whether there was one.
    has_sent: bool,
}

impl Uploads {
    /// Waits until the store has acknowledged all of them, and looks whether the fence is still
    /// this writer's.
    ///
    /// # Errors
    ///
    /// The store did not acknowledge one in time; `Fenced` if another writer has the store.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Uploads { tier, sends, has_sent } = &mut self;
        if !tier.planted().unacknowledged {
            sends.finish(|id, bytes| tier.acknowledged(*id, bytes))?;
        }
        if *has_sent { tier.confirm() } else { Ok(()) }
    }
}

impl ExtentSink for Uploads {
    fn put(&mut self, extent: u64, bytes: &[u8]) -> Result<Location> {
        let len = Location::len_of(bytes)?;
        let Uploads { tier, sends, has_sent } = self;
        let id = tier.reserve(extent)?;
        *has_sent = true;
        let arrived = |id: &ObjectId, bytes: &[u8]| tier.acknowledged(*id, bytes);
        let sent = sends.send((id, tier.name(id)), bytes.to_vec(), arrived);
        sent.inspect_err(|_| tier.release(id))?;
        Ok(Location::of_object(id, len))
    }
}

impl ObjectTier {
    /// What a job sends its objects with, within what it may have under way.
    pub(crate) fn uploads(self: &Arc<Self>, within: (&Arc<Gauge>, u64)) -> Uploads {
        let sends = Sends::new(self.client(), within);
        Uploads { tier: Arc::clone(self), sends, has_sent: false }
    }
}
