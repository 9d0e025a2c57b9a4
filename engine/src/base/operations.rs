//! How long operations take, which are calls of users, and where the time of each went.
//!
//! One is timed where it may be told of as slow, and for histograms: with the feature `metrics` one
//! of about [`SAMPLE`] of a kind that a thread makes. The places where a thread waits for others,
//! or for a device, add to a record of the thread. While its operation is not timed they look at a
//! flag of the thread, and read no clock.
//!
//! Thread safety: an operation and its record are one thread's.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use super::counters::Counter;
use super::events::SlowOperationInfo;
use crate::os::sync::locks::Mutex;
use crate::os::{RandomKeys, time};

/// Of so many operations about one is timed for histograms.
const SAMPLE: u32 = 64;

/// What an operation is, as its event names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationKind {
    /// A look-up of one key or of several.
    Get,
    /// A chunk of a range.
    Range,
    /// A commit that is waited for; a prepare.
    Commit,
    /// A commit up to its place in the order.
    Enqueue,
    /// A call of a transaction on one row.
    Transaction,
}

/// How many there are.
const KINDS: usize = 5;

impl OperationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OperationKind::Get => "get",
            OperationKind::Range => "range",
            OperationKind::Commit => "commit",
            OperationKind::Enqueue => "enqueue",
            OperationKind::Transaction => "transaction",
        }
    }
}

/// Where the time of an operation went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpent {
    pub(crate) locks: Duration,
    pub(crate) pace: Duration,
    pub(crate) sync: Duration,
    pub(crate) remote: Duration,
    pub(crate) reading: Duration,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) extents: u64,
}

impl TimeSpent {
    pub(crate) fn count_read(&mut self, bytes: u32) {
        self.reads += 1;
        self.read_bytes += u64::from(bytes);
    }
}

const NOTHING: TimeSpent = TimeSpent {
    locks: Duration::ZERO,
    pace: Duration::ZERO,
    sync: Duration::ZERO,
    remote: Duration::ZERO,
    reading: Duration::ZERO,
    reads: 0,
    read_bytes: 0,
    extents: 0,
};

thread_local! {
    /// Whose operation of this thread is timed: where its [`Times`] lie; 0 without one.
    static TIMED_FOR: Cell<usize> = const { Cell::new(0) };
    /// Where its time went so far.
    static SPENT: Cell<TimeSpent> = const { Cell::new(NOTHING) };
    /// Operations of this thread up to the next one that is a sample, by kind; 0 before a draw.
    static LEFT: [Cell<u32>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
    /// What the next draw comes of; 0 before the first.
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// Draws how many operations it is to the next sample, so that no pattern of calls falls into step.
fn draw_gap() -> u32 {
    let mut chance = CHANCE.get();
    if chance == 0 {
        chance = RandomKeys::default().hash_one(SAMPLE) | 1;
    }
    // Xorshift, of Marsaglia.
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    CHANCE.set(chance);
    1 + (chance >> 32) as u32 % (2 * SAMPLE - 1)
}

/// Counts an operation of this thread; whether it is timed for histograms.
#[inline]
pub(super) fn is_sample(operation: OperationKind) -> bool {
    if cfg!(not(feature = "metrics")) {
        return false;
    }
    LEFT.with(|left| {
        let left = &left[operation as usize];
        if left.get() == 0 {
            left.set(draw_gap());
        }
        left.set(left.get() - 1);
        left.get() == 0
    })
}

/// Whether the operation of this thread is timed.
#[inline]
pub(crate) fn is_timed() -> bool {
    TIMED_FOR.get() != 0
}

/// Adds to the record of this thread, if its operation is timed.
#[inline]
pub(crate) fn note(add: impl FnOnce(&mut TimeSpent)) {
    if is_timed() {
        let mut spent = SPENT.get();
        add(&mut spent);
        SPENT.set(spent);
    }
}

/// Runs a wait, which is in no other one, and adds its time.
#[inline]
pub(crate) fn wait<T>(kind: fn(&mut TimeSpent) -> &mut Duration, f: impl FnOnce() -> T) -> T {
    if !is_timed() {
        return f();
    }
    let began = time::now();
    let done = f();
    note(|spent| *kind(spent) += time::since(began));
    done
}

/// The operation of this thread, for as long as it is timed.
pub(crate) struct TimedOperation {
    operation: OperationKind,
    /// It is slow if it takes longer.
    slow: Option<Duration>,
    /// Whether it is counted in a histogram.
    is_sample: bool,
    began: Instant,
    /// That of another database which this one is inside of, and where its time went so far.
    outer: (usize, TimeSpent),
}

impl TimedOperation {
    /// Begins one; none inside of another one of the same database.
    pub(super) fn begin(
        operation: OperationKind,
        (slow, is_sample): (Option<Duration>, bool),
        times: &Times,
    ) -> Option<TimedOperation> {
        let own = std::ptr::from_ref(times).addr();
        let outer = TIMED_FOR.replace(own);
        if outer == own {
            return None;
        }
        let outer = (outer, SPENT.replace(NOTHING));
        Some(TimedOperation { operation, slow, is_sample, began: time::now(), outer })
    }

    /// Where its time went, if it was slow. The table is not known here.
    pub(super) fn end(self, times: &Times) -> Option<SlowOperationInfo> {
        let (took, spent) = (time::since(self.began), SPENT.get());
        if self.is_sample {
            times.operations[self.operation as usize].add(took);
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        self.slow.is_some_and(|slow| took > slow).then(|| SlowOperationInfo {
            operation: self.operation.name(),
            ms: ms(took),
            lock_ms: ms(spent.locks),
            pace_ms: ms(spent.pace),
            sync_ms: ms(spent.sync),
            remote_ms: ms(spent.remote),
            read_ms: ms(spent.reading),
            reads: spent.reads,
            read_bytes: spent.read_bytes,
            extents: spent.extents,
            ..SlowOperationInfo::default()
        })
    }
}

impl Drop for TimedOperation {
    fn drop(&mut self) {
        TIMED_FOR.set(self.outer.0);
        SPENT.set(self.outer.1);
    }
}

/// Histograms of an open database.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Those of operations, by kind: of samples.
    pub(crate) operations: [Histogram; KINDS],
    pub(crate) syncs: Histogram,
    pub(crate) lock_waits: Histogram,
    pub(crate) lock_waiters: WaitCount,
    pub(crate) drains: Histogram,
    pub(crate) requests: Histogram,
}

/// Threads that wait for one kind of thing. It knows of a wait as soon as it begins.
///
/// Thread safety: any thread waits, and any looks.
#[derive(Debug, Default)]
pub(crate) struct WaitCount(Mutex<WaitsNow>);

/// What [`WaitCount`] knew at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitsNow {
    /// Threads that wait.
    pub(crate) waiting: u32,
    /// Since when one or another has waited, without a gap.
    since: Option<Instant>,
    /// How long all have waited, those that wait now included, as of `at`.
    pub(crate) waited: Duration,
    at: Option<Instant>,
}

impl WaitCount {
    /// The calling thread waits until this is dropped.
    pub(crate) fn begin(&self) -> impl Drop + '_ {
        struct CountedWait<'a>(&'a WaitCount);
        impl Drop for CountedWait<'_> {
            fn drop(&mut self) {
                self.0.change(|waiting| waiting - 1);
            }
        }
        self.change(|waiting| waiting + 1);
        CountedWait(self)
    }

    /// How it is now.
    pub(crate) fn look(&self) -> WaitsNow {
        self.change(|waiting| waiting)
    }

    fn change(&self, change: impl FnOnce(u32) -> u32) -> WaitsNow {
        let (mut now, at) = (self.0.lock(), time::now());
        let passed = now.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        let waited = passed * now.waiting;
        now.waited += waited;
        now.at = Some(at);
        now.waiting = change(now.waiting);
        now.since = now.since.or(now.at).filter(|_| now.waiting > 0);
        *now
    }
}

impl WaitsNow {
    /// For how long one or another has waited, without a gap.
    pub(crate) fn lasts(&self) -> Duration {
        let lasts = self.at.zip(self.since).map(|(at, since)| at.saturating_duration_since(since));
        lasts.unwrap_or_default()
    }
}

/// Buckets with a bound.
const BUCKETS: usize = 28;

/// Counts of times by length. The first bucket has those of up to 256 ns, and each other one has
/// those up to twice the bound before. The last one has the rest, beyond 34 seconds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [Counter; BUCKETS + 1],
    nanos: Counter,
}

impl Histogram {
    /// Counts one.
    pub(crate) fn add(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        let bucket = u64::BITS - (nanos.saturating_sub(1) >> 8).leading_zeros();
        self.counts[(bucket as usize).min(BUCKETS)].add(1);
        self.nanos.add(nanos);
    }

    /// Runs `f`, and counts how long it took.
    pub(crate) fn time<T>(&self, f: impl FnOnce() -> T) -> T {
        if cfg!(not(feature = "metrics")) {
            return f();
        }
        let began = time::now();
        let done = f();
        self.add(time::since(began));
        done
    }

    /// All of them added up, in seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.nanos.get() as f64 / 1e9
    }

    /// The upper bound of each bucket in seconds, with how many it has.
    pub(crate) fn buckets(&self) -> [(f64, u64); BUCKETS + 1] {
        std::array::from_fn(|n| {
            let bound = if n < BUCKETS { (256_u64 << n) as f64 / 1e9 } else { f64::INFINITY };
            (bound, self.counts[n].get())
        })
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_what_is_up_to_its_bound() {
        let histogram = Histogram::default();
        let (bounds, of) = (histogram.buckets().map(|(bound, _)| bound), Duration::from_nanos);
        assert_eq!((bounds[0], bounds[1]), (256e-9, 512e-9));
        assert!((34.0..35.0).contains(&bounds[BUCKETS - 1]) && bounds[BUCKETS].is_infinite());
        let times = [0, 1, 256, 257, 512, 513, 256 << 27, (256 << 27) + 1, u64::MAX];
        times.iter().for_each(|nanos| histogram.add(of(*nanos)));
        let counts = histogram.buckets().map(|(_, count)| count);
        assert_eq!((counts[0], counts[1], counts[2]), (3, 2, 1));
        assert_eq!((counts[BUCKETS - 1], counts[BUCKETS]), (1, 2));
        assert_eq!(counts.iter().sum::<u64>(), times.len() as u64);
    }

    /// Bug: calls 1, 65, 129 … of a thread were samples. A thread that called two databases in turn
    /// had samples of the one alone. Cause: the gap was 64 each time. Fix: it is drawn.
    #[test]
    fn samples_fall_into_step_with_no_pattern_of_calls() {
        for period in [2, 4, 64] {
            let mut samples = vec![0; period];
            for n in 0..period * 64 * 100 {
                samples[n % period] += u32::from(is_sample(OperationKind::Get));
            }
            assert!(samples.iter().all(|n| (40..180).contains(n)), "{period}: {samples:?}");
        }
    }
}
