//! What was asked of an object store.

use crate::base::counters::{Counter, counters};
use crate::storage::object::store::FailureKind;

counters! {
    /// Counters of a client.
    struct Counts;

    /// Requests to an object store since the opening. Attempts and second requests count too.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RequestCounts;

    /// Reads of objects, whole or in part.
    gets,
    /// Writes of objects.
    puts,
    /// Looks at objects.
    heads,
    /// Deletions, each of up to 1000 objects.
    deletes,
    /// Lists, each of up to 1000 objects.
    lists,
    /// Requests that were made again after a failure.
    retries,
    /// Reads that were made a second time because the first one took long.
    hedges,
    /// Bytes of objects that were sent.
    sent_bytes,
    /// Bytes of objects that came.
    received_bytes,

    @also
    /// Failures by kind.
    failures: [(FailureKind, u64); FailureKind::ALL.len()],

    @hidden
    failed: [Counter; FailureKind::ALL.len()],
}

impl Counts {
    pub(super) fn failed(&self, kind: FailureKind) {
        self.failed[kind as usize].add(1);
    }

    pub(super) fn take(&self) -> RequestCounts {
        self.stats(FailureKind::ALL.map(|kind| (kind, self.failed[kind as usize].get())))
    }
}
