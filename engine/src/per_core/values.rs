//! What a batch of look-ups found.

use super::get_batch::GetBatch;

/// The values of a [`GetBatch`], by the order in which the keys were added. They lie in one buffer
/// for each shard.
pub struct FoundValues {
    batch: GetBatch,
}

impl FoundValues {
    pub(super) fn new(batch: GetBatch) -> FoundValues {
        FoundValues { batch }
    }

    /// How many keys the batch had.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether the batch had no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the key that was added as number `n`, from 0 on; `None` without one.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        self.batch.value(n)
    }

    /// All values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|n| self.get(n))
    }

    /// The batch again, without keys and without a snapshot. It has kept its memory, so the next
    /// look-ups allocate nothing.
    pub fn into_batch(self) -> GetBatch {
        let mut batch = self.batch;
        batch.clear();
        batch
    }
}

impl std::fmt::Debug for FoundValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FoundValues({} keys)", self.len())
    }
}
