//! How commits are grouped, and what the background may use: what may change while a database is
//! open.
//!
//! How durable a commit is.
//!
//! Where a database is, and which call makes it.

use super::named::{bytes, count, declare, some_count};

declare! {
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
    struct CommitTuning: [const];

    /// Every batch a group of its own; busy tables have streams of their own on persistent memory
    /// and share one in `file` mode.
    new;

    /// How many batches of different threads may become one commit group, 1 by default. More share
    /// a header and a fence among writers that come at the same time, and make each wait for the
    /// others. That is worth it where the media is slow and threads are many.
    group_batches(batches: u32): u32 = 1 => batches, takes count();

    /// How many bytes such a group may have; 256 KiB by default. The zone of a busy stream is
    /// the limit: a 64th of the region, at most 4 MiB.
    group_bytes(bytes: u64): u64 = 256 * 1024 => bytes, takes bytes();

    /// How many busy tables have a stream of their own, so that their records lie together; the
    /// others share one. At most one for sixteen units of the region, and 383. By default 0 in
    /// `file` mode, where a commit pays by the page and neighbours share pages, else 8.
    own_streams(tables: u32): Option<u32> = None => Some(tables), takes some_count();

    /// For measurements only: every group also stores its tails, and fences once more for them, as
    /// the published algorithm asks. Nothing rests on what is stored.
    #[doc(hidden)]
    published_rule(on: bool): bool = false => on;
}

declare! {
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
    struct BackgroundTuning: [const];

    /// One thread that drains and one that compacts, as fast as they go.
    new;

    /// How many threads it has, 2 by default. The first one moves data out of the region, and the
    /// others compact: different tables, and different keys of one, at the same time. With 1 it
    /// does both in turns: a wait for a drain may last while a compaction writes an extent.
    threads(threads: usize): usize = 2 => threads, takes count();

    /// How many bytes a second compactions may write, all together; 0, the default, for no bound.
    /// Drains are not held to it, since writers wait for them. Nor are compactions that writers
    /// would wait for: where level 1 is over its target, or the region nearly full.
    bytes_per_second(bytes: u64): u64 = 0 => bytes, takes bytes();
}

/// How far a commit has gone when the call that made it returns.
///
/// A call that finds nothing to write waits as well, until what it read has gone as far. So
/// [`Table::compare_and_set`](crate::Table::compare_and_set) that is tried again after an unknown
/// outcome answers for the row that it finds. So does the commit of a transaction that wrote
/// nothing and has locked rows, as [`get_for_update`](crate::Transaction::get_for_update) does.
/// Such a wait costs a sync where relaxed commits came before, and nothing where all is durable.
/// Plain reads wait for nothing, nor does a transaction that is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut. The default.
    #[default]
    Durable,
    /// It survives the death of the process, not a power cut. Commits keep their order: what a
    /// power cut takes is always the newest.
    Relaxed,
    /// It survives the machine: the shared store has acknowledged it, see
    /// [`Options::share`](crate::Options::share). It is `Durable` before. It goes out at once, with
    /// all commits that wait then: it waits for one request, or two where one is under way.
    ///
    /// A commit that was overtaken fails with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced), and
    /// one whose database is closed meanwhile with `UnknownOutcome`. It stays on this machine. So
    /// it does where this machine cannot ship it, as with a disk that fails: once that was tried
    /// three times, the call fails with `UnknownOutcome` and the cause. Shipping is tried on, and
    /// has the commit once the cause is mended. A store that does not answer, or a full disk, is
    /// waited for.
    Remote,
}

impl Durability {
    /// What of it the machine itself gives.
    pub(crate) fn on_this_machine(self) -> Durability {
        match self {
            Durability::Relaxed => Durability::Relaxed,
            Durability::Durable | Durability::Remote => Durability::Durable,
        }
    }

    /// The same for a commit that cannot be relaxed.
    pub(crate) fn at_least_durable(self) -> Durability {
        match self {
            Durability::Remote => Durability::Remote,
            Durability::Durable | Durability::Relaxed => Durability::Durable,
        }
    }
}

/// The call that makes a database. Its number is on the media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Making {
    /// An opening, of a database without a row.
    #[default]
    Creation,
    Restore,
    Salvage,
    Takeover,
}

/// Where a database keeps what it keeps.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// Files of this machine; the region in `file` mode.
    Real,
    /// A simulated machine.
    #[cfg(any(test, feature = "testing"))]
    Simulated(terrace_testkit::Machine),
}
