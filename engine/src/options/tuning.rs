//! How commits are grouped, and what the background may use: what may change while a database is
//! open.

/// How commits are grouped, and which tables have their records to themselves. May be changed
/// while the database is open: [`Database::tune_commits`](crate::Database::tune_commits).
///
/// # Examples
///
/// ```
/// let tuning = terrace::CommitTuning::new().group_batches(16).own_streams(4);
/// assert_eq!(tuning, tuning.group_bytes(256 * 1024));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitTuning {
    pub(crate) group_batches: u32,
    pub(crate) group_bytes: u64,
    pub(crate) own_streams: Option<u32>,
    pub(crate) published_rule: bool,
}

impl Default for CommitTuning {
    fn default() -> CommitTuning {
        CommitTuning::new()
    }
}

impl CommitTuning {
    /// Every batch a group of its own; busy tables have streams of their own on persistent memory
    /// and share one in `file` mode.
    pub const fn new() -> CommitTuning {
        CommitTuning {
            group_batches: 1,
            group_bytes: 256 * 1024,
            own_streams: None,
            published_rule: false,
        }
    }

    /// How many batches of different threads may become one commit group, 1 by default. More share
    /// a header and a fence among writers that come at the same time, and make each wait for the
    /// others. That is worth it where the media is slow and threads are many.
    #[must_use]
    pub const fn group_batches(mut self, batches: u32) -> CommitTuning {
        self.group_batches = batches;
        self
    }

    /// For measurements only: every group also stores its tails, and fences once more for them, as
    /// the published algorithm asks. Nothing rests on what is stored.
    #[doc(hidden)]
    #[must_use]
    pub const fn published_rule(mut self, on: bool) -> CommitTuning {
        self.published_rule = on;
        self
    }

    /// How many bytes such a group may have; 256 KiB by default. The zone of a busy stream is
    /// the limit: a 64th of the region, at most 4 MiB.
    #[must_use]
    pub const fn group_bytes(mut self, bytes: u64) -> CommitTuning {
        self.group_bytes = bytes;
        self
    }

    /// How many busy tables have a stream of their own, so that their records lie together; the
    /// others share one. At most one for sixteen units of the region, and 383. By default 0 in
    /// `file` mode, where a commit pays by the page and neighbours share pages, else 8.
    #[must_use]
    pub const fn own_streams(mut self, tables: u32) -> CommitTuning {
        self.own_streams = Some(tables);
        self
    }
}

/// What the background may use of the machine. May be changed while the database is open:
/// [`Database::tune_background`](crate::Database::tune_background).
///
/// # Examples
///
/// ```
/// let tuning = terrace::BackgroundTuning::new().threads(4).bytes_per_second(64 << 20);
/// assert_eq!(tuning, tuning.threads(4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundTuning {
    pub(crate) threads: usize,
    pub(crate) bytes_per_second: u64,
}

impl Default for BackgroundTuning {
    fn default() -> BackgroundTuning {
        BackgroundTuning::new()
    }
}

impl BackgroundTuning {
    /// One thread that drains and one that compacts, as fast as they go.
    pub const fn new() -> BackgroundTuning {
        BackgroundTuning { threads: 2, bytes_per_second: 0 }
    }

    /// How many threads it has, 2 by default. The first one moves data out of the region, and the
    /// others compact: different tables, and different keys of one, at the same time. With 1 it
    /// does both in turns: a wait for a drain may last while a compaction writes an extent.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> BackgroundTuning {
        self.threads = threads;
        self
    }

    /// How many bytes a second compactions may write, all together; 0, the default, for no bound.
    /// Drains are not held to it, since writers wait for them. Nor are compactions that writers
    /// would wait for: where level 1 is over its target, or the region nearly full.
    #[must_use]
    pub const fn bytes_per_second(mut self, bytes: u64) -> BackgroundTuning {
        self.bytes_per_second = bytes;
        self
    }
}
