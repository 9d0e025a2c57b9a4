//! Where the index finds the keys that it does not keep.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::Result;
use crate::memory::Gauge;
use crate::record::Lsn;

/// Records by offset. A record stays as it is from before its offset is inserted until the epoch
/// in which it was removed is over.
pub(crate) trait Records {
    /// The key and the sequence number of the record at `at`.
    fn locate(&self, at: u64) -> (&[u8], Lsn);

    /// Hints that the record at `at`, which may be any number at all, will be read.
    fn prefetch(&self, at: u64);

    /// What counts the memory of all indexes over these records.
    fn gauge(&self) -> Arc<Gauge> {
        Arc::default()
    }

    /// Whether the record at `at` is what it was when it was written, where that can be in doubt.
    ///
    /// # Errors
    ///
    /// `Corrupt`, from then on: here and as [`Records::sound`].
    fn check(&self, _at: u64) -> Result<()> {
        Ok(())
    }

    /// Whether every record was that was looked at so far.
    ///
    /// # Errors
    ///
    /// `Corrupt`: nothing that was made of keys since counts.
    fn sound(&self) -> Result<()> {
        Ok(())
    }
}

impl<R: Records> Records for Arc<R> {
    fn locate(&self, at: u64) -> (&[u8], Lsn) {
        (**self).locate(at)
    }

    fn prefetch(&self, at: u64) {
        (**self).prefetch(at);
    }

    fn gauge(&self) -> Arc<Gauge> {
        (**self).gauge()
    }

    fn check(&self, at: u64) -> Result<()> {
        (**self).check(at)
    }

    fn sound(&self) -> Result<()> {
        (**self).sound()
    }
}

/// A place in the order of versions: by key, the newest version of a key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sought<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: Lsn,
}

impl Sought<'_> {
    /// How the version (`key`, `seq`) stands to this place.
    #[inline(always)]
    pub(super) fn order_of(&self, (key, seq): (&[u8], Lsn)) -> Ordering {
        key.cmp(self.key).then_with(|| self.seq.cmp(&seq))
    }
}
