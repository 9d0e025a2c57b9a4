//! What an opening has cost.

/// How an opening went.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OpenStats {
    /// Milliseconds from the call to a database that serves.
    pub total_ms: f64,
    /// Of these, reading zones and rebuilding the index.
    pub rebuild_ms: f64,
    /// Records that were indexed.
    pub records_rebuilt: u64,
    /// Records that were looked at; the persistent index knows the others.
    pub records_read: u64,
    /// Bytes of a persistent index that were held against its checksums: all of one that was
    /// closed.
    pub index_bytes_checked: u64,
    /// Commit groups above the floor that recovery found whole.
    pub groups_accepted: u64,
    /// Edits of the journal that were replayed, its checkpoint included.
    pub journal_edits: u64,
}
