//! Bugs that tests plant, one at a time.

/// A bug put in on purpose, to prove that the tests would find it. Without the feature `testing`
/// nothing can plant one, and the compiler takes the places out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, unreachable_pub, reason = "exported, and looked for, with `testing` only")
)]
pub enum Failpoint {
    /// The publisher does not sync its runs (`file` mode).
    SkipRunSync,
    /// Writers do not fence what they flushed (persistent memory).
    SkipFence,
    /// Recovery does not look at the payload's checksum.
    SkipPayloadChecksum,
    /// A transaction does not look whether a row was changed after its snapshot.
    SkipConflictCheck,
    /// Reads go by a clock that is a second ahead.
    ExpireEarly,
    /// Reads go by a clock that stands at its beginning.
    NeverExpire,
    /// An opening for writing takes no lock.
    SkipLock,
    /// A drain forgets to set D in its edit.
    ForgetDrained,
    /// The flush of what was stored is left out (persistent memory).
    SkipFlush,
    /// The floor is stored before the sync that makes it true (`file` mode).
    EarlyFloor,
    /// GIDX words are stored ahead of F, and recovery trusts them (`file` mode).
    EarlyGidx,
    /// A drain drops tombstones that still hide something below.
    PruneTombstones,
    /// A drain makes values of operands without what lies below them.
    ForgetBelow,
    /// Level 0 releases a range tombstone when D covers a part of it.
    RetireRangesEarly,
    /// A drain's zones are used again before its edit is in the journal.
    ReuseBeforeEdit,
    /// The cleaner frees the zones that it copied from before the copies are durable.
    FreeBeforeCopy,
    /// Recovery takes the records of an earlier opening that were dead.
    AcceptOldIncarnation,
    /// Recovery looks at each stream by itself, as the published algorithm does, and not at whether
    /// a group is whole.
    PublishedShift,
    /// The journal is told that a spilled run was committed before its commit is durable.
    RunBeforeRecord,
    /// An opening takes pending runs for committed without looking for their records.
    AcceptPendingRun,
    /// Extents of a bulk load are placed though older records of their keys lie above.
    PlaceOverOlder,
    /// An opening indexes what was prepared at the prepare's LSN.
    IndexPrepares,
    /// The zone of a verdict may be used again before the zone of what it is on.
    ReleaseVerdicts,
    /// What a killed process left of a node in the caches counts as durable.
    TrustCaches,
    /// Records that were drained cease to count in their zones before the persistent index has
    /// forgotten them.
    RetireLater,
    /// A closing seals the persistent index before all in it is durable.
    SealEarly,
    /// An opening does not wait until the seal of the persistent index is gone.
    KeepSeal,
    /// A backup has its name before its extents are durable.
    BackupBeforeSync,
    /// A backup takes the space of value extents of earlier ones for free: no manifest names them
    /// by themselves.
    FreeListedValues,
    /// The edit of a drain is in the journal before values that it wrote apart, and what refers to
    /// them, are durable.
    InstallBeforeSync,
    /// Value extents that were emptied are given back before the edit that says so is in the
    /// journal.
    CollectBeforeEdit,
    /// An opening syncs the edits that it found in the journal beyond the floor, and does not write
    /// them again.
    KeepFoundEdits,
    /// A growth of the region whose sync failed tells its caller and nothing else.
    SwallowGrowthError,
    /// A row table is published before its pages are durable.
    SkipRowPersist,
    /// The records of a memtable cease to count in zones although no edit publishes their copies.
    UnjournaledRow,
    /// Hints of a row table lead into the next older one, although it is not the one they are for.
    FollowStaleHints,
    /// An opening takes entries of row tables for live that D covers.
    IgnoreDrainedRows,
    /// Pages of a row table's array are used again although an opening will read them.
    FreeUncoveredArray,
    /// A creation does not make the name of a region in another directory durable.
    SkipRegionName,
    /// An edit names objects before the store has acknowledged them.
    EditBeforeAcknowledgement,
    /// Objects are deleted before the edit that removes them is in the journal.
    DeleteBeforeEdit,
    /// A writer does not look whether another one has the object store.
    SkipFenceCheck,
    /// Each opening names its objects by the same epoch.
    ReuseOfName,
    /// A writer takes any entry of the log that it finds for its own.
    IgnoreClaims,
    /// A search of the log's end trusts each hole that it meets, also one that a collector made.
    TrustSearches,
    /// Entries of the log are deleted up to the newest checkpoint, and some beyond.
    DeleteSegmentsEarly,
    /// A reader of the log carries table events out before the rows that were committed earlier.
    EventsFirst,
    /// A reader of the log commits each part of a large commit by itself.
    ApplyParts,
    /// Zones are released although the shared store lacks commits in them.
    ReleaseUnshipped,
    /// Commits are shipped before they are durable on the writer.
    ShipUndurable,
    /// Commits are acknowledged before the shared store has them.
    AcknowledgeEarly,
    /// A checkpoint of a shared store lacks the transactions that are prepared.
    ForgetPrepares,
    /// A checkpoint of a shared store takes all of level 0 for drained.
    ForgetLevel0,
    /// A checkpoint of a shared store lacks steps that the drained map of a table has forgotten.
    ForgetSteps,
    /// A reader that starts applies again what the levels of its checkpoint have.
    ReplayDrained,
    /// A checkpoint of a shared store names an extent that was not sent.
    NameUnsentExtent,
    /// A reader of the log keeps the rows of a prepared transaction after its verdict.
    KeepResolvedRows,
    /// Every batch is committed as a relaxed one.
    RelaxAll,
    /// No zone is released, however dead it is.
    KeepDeadZones,
    /// The space of extents that an edit has removed is not given back.
    KeepObsoleteExtents,
    /// Records that were drained go on to count in their zones.
    CountDrained,
    /// A collection of objects leaves every second one that is not needed.
    KeepUnneededObjects,
    /// An opening takes no locks for what is prepared.
    UnlockPrepares,
    /// An edit is visible before it is in the journal.
    PublishBeforeEdit,
    /// The last blob is looked for once, though it may be let go meanwhile.
    LookForBlobOnce,
    /// A pop removes and returns the row that it has seen before it had the lock.
    PopUnlockedRow,
    /// A commit that is enqueued finishes its slot and wakes no sleeper.
    QuietEnqueue,
    /// A growth of the region does not hold a closing up.
    GrowOutside,
    /// A bulk load writes its last extent without holding a closing up.
    LoadOutside,
    /// How far the persistent index knows of everything is taken from the views before the floor.
    MergedBeforeFloor,
    /// A table is noted for the scheduler before the scheduler can find it.
    NoteBeforeRegister,
    /// A check that failed is not made up for by the next call.
    ForgetOwedChecks,
    /// A dump reads values of the runs of the version, and rows of those of the view.
    DumpVersionRuns,
    /// A commit that is polled again is done once it is visible.
    SecondPollReturns,
    /// A reservation of space is not given back.
    KeepReservation,
    /// Commits that are awaited have one thread, which waits for the shared store too.
    AwaitInOneQueue,
    /// A second closing does not wait for the first one.
    SecondCloseReturns,
    /// A worker of compactions that rests misses a wake-up that comes before its wait.
    MissWorkersWake,
    /// A thread looks for work before it enters the queue in which it sleeps, and not again.
    SleepWithoutSecondLook,
    /// Level 0 drops drained records while readers still have the view before the drain.
    RetireAtOnce,
    /// An opening drops pending runs before it has looked which of them were committed.
    JudgeBeforeNews,
}
