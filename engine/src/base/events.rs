//! Events of a running database, and their way to the function that is told of them.
//!
//! A part of the engine puts an event into a bounded queue, and one thread calls the function. So
//! no lock of the engine is held while that runs, and it may call the database. A queue that is
//! full takes no event: the next one that fits says how many were left out.
//!
//! Thread safety: any thread sends, one thread calls. The mutex is held for a few instructions; no
//! other lock is taken under it.
//!
//! Invariants:
//!
//! 1. Events are delivered in the order in which they were numbered.
//! 2. The thread ends after the closing has asked it to, once the queue is empty.
//! 3. A user's call of `Database::close` alone waits for the function, and none that the function
//!    makes: it may close this database, or another one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::error::{Damage, Error, ErrorKind, Result};
use super::operations::{OperationKind, TimedOperation, Times, is_sample};
use crate::mvcc::Clock;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::thread::Builder;

#[cfg(feature = "tracing")]
mod traced;

/// Declares the kinds of events, each with its name and its level for `tracing`. Each has the three
/// fields that all of them have.
macro_rules! events {
    (
        $(#[$event_doc:meta])*
        pub enum $event:ident;
        $($(#[$doc:meta])* $name:literal, $level:ident => $kind:ident: pub struct $info:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty,)*
        })*
    ) => {
        $(#[$event_doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[cfg_attr(feature = "serde", serde(tag = "event"))]
        #[non_exhaustive]
        pub enum $event {
            $($(#[$doc])* #[cfg_attr(feature = "serde", serde(rename = $name))] $kind($info),)*
        }

        impl $event {
            /// The name of the kind, which later versions keep: `drain`, `stall_begin`.
            pub fn name(&self) -> &'static str {
                match self { $($event::$kind(_) => $name,)* }
            }

            /// The time in milliseconds since 1970. It never goes back in one database.
            pub fn at_ms(&self) -> u64 {
                match self { $($event::$kind(info) => info.at_ms,)* }
            }

            /// The number of the event in this process. A later one of the database has a greater
            /// one.
            pub fn number(&self) -> u64 {
                match self { $($event::$kind(info) => info.number,)* }
            }

            /// How many events were left out right before this one, since the queue was full.
            pub fn dropped(&self) -> u64 {
                match self { $($event::$kind(info) => info.dropped,)* }
            }

            fn stamp(&mut self, at: u64, order: u64, left_out: u64) {
                let (at_ms, number, dropped) = match self {
                    $($event::$kind(info) => {
                        (&mut info.at_ms, &mut info.number, &mut info.dropped)
                    })*
                };
                (*at_ms, *number, *dropped) = (at, order, left_out);
            }

            #[cfg(feature = "tracing")]
            fn trace(&self) {
                match self {
                    $($event::$kind(info) => tracing::event!(
                        name: $name, target: "terrace", tracing::Level::$level,
                        at_ms = info.at_ms, number = info.number, dropped = info.dropped,
                        $($field = traced::Field::value(&info.$field),)*
                        $name
                    ),)*
                }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize))]
            #[non_exhaustive]
            pub struct $info {
                /// As [`Event::at_ms`].
                pub at_ms: u64,
                /// As [`Event::number`].
                pub number: u64,
                /// As [`Event::dropped`].
                pub dropped: u64,
                $($(#[$field_doc])* pub $field: $ty,)*
            }

            impl From<$info> for $event {
                fn from(info: $info) -> $event {
                    $event::$kind(info)
                }
            }
        )*
    };
}

events! {
    /// What a running database does: see [`Options::on_event`](crate::Options::on_event).
    ///
    /// With the feature `serde` it is an object in JSON with a field `event`, the
    /// [`name`](Event::name) of the kind, and the fields of the kind. With the feature `tracing`
    /// each event goes to `tracing` too, with the target `terrace` and the fields of the kind.
    pub enum Event;

    /// The database was opened.
    "opened", INFO => Opened: pub struct OpenedInfo {
        /// How the region is kept: `file`, `dax` or `emulated`.
        mode: &'static str,
        /// Whether it is open read-only.
        read_only: bool,
        /// Milliseconds from the call to here.
        ms: f64,
        /// Of these, reading zones and rebuilding the index.
        rebuild_ms: f64,
        /// Records that were indexed.
        records_rebuilt: u64,
        /// Commit groups above the floor that the opening found whole.
        groups_accepted: u64,
    }

    /// A memtable was merged into level 0, or copied into a row table of it.
    "flush", DEBUG => Flush: pub struct FlushInfo {
        /// The table.
        table: String,
        /// Whether it was copied into a row table.
        row_table: bool,
        /// Records of the memtable; 0 of one that was frozen for its boundary alone.
        records: u64,
        /// Bytes of these records.
        bytes: u64,
        /// Milliseconds from the beginning of the merge.
        ms: f64,
    }

    /// A drain has moved records of a table from level 0 to level 1.
    "drain", DEBUG => Drain: pub struct DrainInfo {
        /// The table.
        table: String,
        /// Why: `region` makes room in the region, `runs` moves large commits and bulk loads,
        /// `deletes` moves keys of which many are deleted, `call` is a manual compaction.
        reason: &'static str,
        /// Bytes of level 0 that it moved.
        level0_bytes: u64,
        /// Extents that it wrote.
        extents_out: u64,
        /// Bytes in them.
        bytes_out: u64,
        /// Milliseconds of the job, which may have drained other tables too: from its beginning, or
        /// from the end of the drain right before it.
        ms: f64,
    }

    /// A compaction has merged extents, or an edit alone has moved or removed some, unread.
    "compaction", DEBUG => Compaction: pub struct CompactionInfo {
        /// The table.
        table: String,
        /// The uppermost level that it took extents from; 0 of a load, which is in none.
        from_level: u8,
        /// The deepest level that it came to.
        to_level: u8,
        /// Why: `call` for a manual compaction, `values` for value extents that are mostly dead,
        /// `deletes` for the tombstones in an extent, `again` to write extents again in their
        /// level, `level` to bring them down. Without a merge: `load` brings a bulk load to its
        /// level, `expired` and `hidden` remove extents in which all has expired, or is hidden by
        /// range deletes.
        reason: &'static str,
        /// Whether extents went down unread, by one edit of the journal.
        is_move: bool,
        /// Extents that it took, those of the level that it wrote to among them.
        extents_in: u64,
        /// Bytes in them.
        bytes_in: u64,
        /// Extents that it wrote.
        extents_out: u64,
        /// Bytes in them.
        bytes_out: u64,
        /// Other extents that its edit moved down unread into the room that it made.
        extents_moved: u64,
        /// Milliseconds from its beginning, with what it rested for
        /// [`bytes_per_second`](crate::BackgroundTuning::bytes_per_second).
        ms: f64,
    }

    /// Writers begin to wait. One that comes before the end of the one before says that they wait
    /// for another reason now.
    "stall_begin", WARN => StallBegin: pub struct StallBeginInfo {
        /// Why.
        reason: &'static str,
        /// Nanoseconds that writers wait for each KiB; 0 where they wait for space.
        delay_ns_per_kib: u64,
        /// The number of the process for which zones wait, where it opens the database to read.
        reader: Option<u32>,
    }

    /// Writers go on: no write is slowed down any more, and none waits for space.
    "stall_end", INFO => StallEnd: pub struct StallEndInfo {
        /// As of the last beginning.
        reason: &'static str,
        /// Milliseconds since the first writer waited.
        ms: f64,
        /// Milliseconds that writers waited meanwhile, added up.
        waited_ms: f64,
        /// Bytes of the writes that were slowed down.
        bytes: u64,
    }

    /// The region has grown, or cannot. The refusal of a disk that stays full is told once.
    "growth", INFO => Growth: pub struct GrowthInfo {
        /// Bytes of the region before.
        from_bytes: u64,
        /// Bytes of it now; or those that it was to have.
        to_bytes: u64,
        /// Why it could not grow.
        refused: Option<String>,
    }

    /// Something failed that no call of a user is told of, or the database stopped.
    "background_error", ERROR => BackgroundError: pub struct BackgroundErrorInfo {
        /// What failed, and why.
        error: String,
        /// The kind of the error; none where a thread panicked.
        kind: Option<ErrorKind>,
        /// The name of the thread that it failed on.
        thread: String,
        /// Whether it is tried again.
        retried: bool,
        /// Whether the database stopped: calls that write fail until it is opened again.
        stopped: bool,
    }

    /// A request to the object store failed, and is made again after a pause.
    "store_retry", WARN => StoreRetry: pub struct StoreRetryInfo {
        /// `get`, `put`, `head`, `delete` or `list`.
        request: &'static str,
        /// The object; the first of those to delete; or the prefix of a list.
        object: String,
        /// The attempt that failed, from 1.
        attempt: u64,
        /// How it failed: `away`, `late`, `throttled`, `short` or `wrong`.
        status: &'static str,
        /// What the store said.
        cause: String,
        /// Milliseconds until the next attempt.
        pause_ms: f64,
    }

    /// A read found other bytes than were written.
    "corruption", ERROR => Corruption: pub struct CorruptionInfo {
        /// As [`Damage::tier`](crate::Damage::tier).
        tier: &'static str,
        /// The file; of an object, the store's URL and the object's name.
        file: String,
        /// The offset of the damaged structure in the file, in bytes.
        offset: u64,
        /// The structure, what it should hold, and what was found.
        what: String,
    }

    /// A database of a shared store has another role.
    "role_change", INFO => RoleChange: pub struct RoleChangeInfo {
        /// `writer`; `follower` or `standby`, once for each database that it starts from;
        /// `promoted`, of a standby or a takeover that is the writer now; `fenced`, of a writer
        /// that another one has taken the store from.
        role: &'static str,
        /// The last commit that it had then.
        lsn: u64,
    }

    /// A call took longer than [`Options::slow_operation`](crate::Options::slow_operation). Times
    /// are in milliseconds, and of the calling thread. What they leave is processing, or waiting
    /// for a processor; also what a closure of the caller's took that a value was lent to.
    "slow_operation", WARN => SlowOperation: pub struct SlowOperationInfo {
        /// `get` of one key or several, `range` of one chunk of rows, `commit`, also of a prepare,
        /// `enqueue`, or `transaction`, a call of a transaction on one row.
        operation: &'static str,
        /// The table; none of a commit, which may have several.
        table: Option<String>,
        /// All of it.
        ms: f64,
        /// Waits for locks on rows.
        lock_ms: f64,
        /// Slowed down, or waiting for space in the region.
        pace_ms: f64,
        /// Publishing commits, and syncs, of this thread and of others that it waited for.
        sync_ms: f64,
        /// Waits for the shared store to acknowledge a commit.
        remote_ms: f64,
        /// Reading from extent files and the object store, or waiting for what was begun there.
        read_ms: f64,
        /// So many reads. Blocks in the cache take none.
        reads: u64,
        /// Bytes of them.
        read_bytes: u64,
        /// Extents of levels that look-ups have asked, each of another sublevel or level.
        extents: u64,
    }

    /// The database was closed. It is the last event.
    "closed", INFO => Closed: pub struct ClosedInfo {
        /// What failed, if something did.
        error: Option<String>,
    }
}

impl BackgroundErrorInfo {
    fn new(error: String, kind: Option<ErrorKind>, stopped: bool) -> BackgroundErrorInfo {
        let thread = std::thread::current().name().unwrap_or_default().to_string();
        let retried = !stopped;
        BackgroundErrorInfo { error, kind, thread, retried, stopped, ..<_>::default() }
    }
}

impl CorruptionInfo {
    fn of(damage: &Damage) -> CorruptionInfo {
        let Damage { tier, file, offset, what, expected, got } = damage;
        CorruptionInfo {
            tier,
            file: file.display().to_string(),
            offset: *offset,
            what: format!("{what}: expected {expected}, got {got}"),
            ..CorruptionInfo::default()
        }
    }
}

pub(crate) type EventFn = Arc<dyn Fn(&Event) + Send + Sync>;

/// Events that wait at most.
const MOST_WAITING: usize = 1024;

/// The number of the next event of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Where parts of an open database send events to, nowhere without a function, and where they count
/// how long things take.
#[derive(Clone, Default)]
pub(crate) struct Events {
    queue: Option<Arc<EventQueue>>,
    times: Arc<Times>,
}

struct EventQueue {
    tell: Option<EventFn>,
    /// Operations that take longer are told of.
    slow: Option<Duration>,
    clock: Arc<Clock>,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Event>,
    /// Events that were left out since the last one that fitted.
    dropped: u64,
    is_closed: bool,
    /// Whether the thread is there.
    runs: bool,
}

thread_local! {
    /// Whether this is a thread that tells somebody of events.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

impl Events {
    /// Those that `tell` is told of, where there is one. With the feature `tracing` somebody may
    /// listen at any time.
    pub(crate) fn new(
        (tell, slow): (Option<EventFn>, Option<Duration>),
        clock: impl FnOnce() -> Arc<Clock>,
    ) -> Events {
        if tell.is_none() && cfg!(not(feature = "tracing")) {
            return Events::default();
        }
        let (state, changed) = (Mutex::default(), Condvar::new());
        let queue = EventQueue { tell, slow, clock: clock(), state, changed };
        Events { queue: Some(Arc::new(queue)), times: Arc::default() }
    }

    /// What tells an open database from others.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.times) as usize
    }

    /// Sends an event, which is made only if somebody is told of it.
    #[inline]
    pub(crate) fn send<E: Into<Event>>(&self, make: impl FnOnce() -> E) {
        if let Some(queue) = &self.queue {
            queue.add(make().into());
        }
    }

    /// Sends the damage that an error names, if it names some.
    pub(crate) fn damage(&self, error: &Error) {
        if let Some(damage) = error.damage() {
            self.send(|| CorruptionInfo::of(damage));
        }
    }

    /// Sends that something failed, and whether the database stopped by it.
    pub(crate) fn failure(&self, error: &Error, stopped: bool) {
        self.damage(error);
        let kind = Some(error.kind());
        self.send(|| BackgroundErrorInfo::new(error.to_string(), kind, stopped));
    }

    /// Sends that the database stopped by what is no error.
    pub(crate) fn stopped_because(&self, cause: &str) {
        self.send(|| BackgroundErrorInfo::new(cause.to_string(), None, true));
    }

    /// Histograms of how long things take.
    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    /// Whether somebody is told.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Runs an operation, and tells of it if it was slow. One inside of another is part of that.
    #[inline]
    pub(crate) fn time<T>(
        &self,
        operation: OperationKind,
        table: impl FnOnce() -> Option<String>,
        f: impl FnOnce() -> T,
    ) -> T {
        let timed = self.begin(operation);
        let done = f();
        self.end(timed, table);
        done
    }

    /// Begins an operation; none where it is not timed, or is part of another one.
    #[inline]
    pub(crate) fn begin(&self, operation: OperationKind) -> Option<TimedOperation> {
        // What is told of a call would have the function make the next one.
        let slow = self.queue.as_ref().and_then(|queue| queue.slow).filter(|_| !TELLS.get());
        let is_sample = is_sample(operation);
        let is_timed = is_sample || slow.is_some();
        if is_timed {
            TimedOperation::begin(operation, (slow, is_sample), &self.times)
        } else {
            None
        }
    }

    /// Tells of an operation that has ended, if it was slow.
    #[inline]
    pub(crate) fn end(
        &self,
        timed: Option<TimedOperation>,
        table: impl FnOnce() -> Option<String>,
    ) {
        if let Some(slow) = timed.and_then(|timed| timed.end(&self.times)) {
            self.send(|| SlowOperationInfo { table: table(), ..slow });
        }
    }

    /// What `make` makes, to be sent later, if somebody is told of it.
    pub(crate) fn prepare<E>(&self, make: impl FnOnce() -> E) -> Option<E> {
        self.queue.as_ref().map(|_| make())
    }

    /// Starts the thread that calls the function.
    pub(crate) fn start(&self) -> Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        queue.state.lock().runs = true;
        let runs = Arc::clone(queue);
        let thread = Builder::new().name("terrace-events".into()).spawn(move || runs.run());
        thread.map(drop).map_err(|error| {
            queue.state.lock().runs = false;
            Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
        })
    }

    /// Sends the last event, which always fits. The thread ends behind it.
    pub(crate) fn stop(&self, last: impl FnOnce() -> ClosedInfo) {
        let Some(queue) = &self.queue else { return };
        let last = last().into();
        let mut state = queue.state.lock();
        queue.push(&mut state, last);
        state.is_closed = true;
        drop(state);
        queue.changed.notify_all();
    }

    /// Waits until all events of a database are told that is closed, or is being closed by another
    /// thread (invariant 3).
    pub(crate) fn wait(&self) {
        let Some(queue) = self.queue.as_ref().filter(|_| !TELLS.get()) else { return };
        let mut state = queue.state.lock();
        while state.runs {
            queue.changed.wait(&mut state);
        }
    }
}

impl EventQueue {
    fn add(&self, event: Event) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        // Slow operations come once a call, and where all is slow they leave room for the others.
        let most = match event {
            Event::SlowOperation(_) => MOST_WAITING / 2,
            _ => MOST_WAITING,
        };
        if state.waiting.len() >= most {
            state.dropped += 1;
            return;
        }
        self.push(&mut state, event);
        drop(state);
        self.changed.notify_one();
    }

    /// Numbers an event, and puts it behind the others (invariant 1).
    fn push(&self, state: &mut QueueState, mut event: Event) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        event.stamp(self.clock.now() / 1000, number, std::mem::take(&mut state.dropped));
        state.waiting.push_back(event);
    }

    /// The body of the thread.
    fn run(&self) {
        TELLS.set(true);
        while let Some(event) = self.next() {
            // A panic of the function, or of a subscriber, is not ours to pass on.
            let call = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).unwrap_or(());
            if let Some(tell) = &self.tell {
                call(&|| tell(&event));
            }
            #[cfg(feature = "tracing")]
            call(&|| event.trace());
        }
        self.state.lock().runs = false;
        self.changed.notify_all();
    }

    /// The next event; `None` when the thread is to end (invariant 2).
    fn next(&self) -> Option<Event> {
        let mut state = self.state.lock();
        loop {
            if let Some(event) = state.waiting.pop_front() {
                return Some(event);
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Events").field(&self.queue.is_some()).finish()
    }
}
