//! How long requests may take, by the bytes that they carry; and how long reads do take, to know
//! which one is slow.

use std::time::Duration;

use crate::os::sync::locks::Mutex;
use crate::storage::object::store::Span;

/// How long requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// A call of the engine, with all attempts, without bytes.
    pub(crate) deadline: Duration,
    /// One attempt, without bytes.
    pub(crate) attempt: Duration,
    /// Bytes that even a slow connection carries in a second.
    pub(crate) slowest: u64,
    /// The pause after the first attempt; it doubles.
    pub(crate) first_pause: Duration,
    /// The longest pause.
    pub(crate) longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            deadline: Duration::from_secs(30),
            attempt: Duration::from_secs(10),
            slowest: 64 << 10,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
        }
    }
}

/// Objects that are read whole have no more bytes, as a rule: an entry of the log has a segment of
/// 4 MiB and a group of 16 MiB at most.
const LARGEST: u64 = 32 << 20;

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// With all attempts. One that has begun may end later.
    pub(super) deadline: Duration,
    /// One attempt.
    pub(super) attempt: Duration,
}

impl Patience {
    /// How long a request with so many bytes may take.
    pub(super) fn with(&self, bytes: u64) -> Limits {
        let transfer = self.transfer(bytes);
        Limits { deadline: self.deadline + 3 * transfer, attempt: self.attempt + transfer }
    }

    /// How long a read may take. The length of a whole object is not known: an attempt has the time
    /// of a large one, and the attempts together that of a small one.
    pub(super) fn of(&self, span: Span) -> Limits {
        match span {
            Span::Whole => Limits { attempt: self.with(LARGEST).attempt, ..self.with(0) },
            Span::Bytes { len, .. } => self.with(len),
        }
    }

    fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_millis(bytes.saturating_mul(1000) / self.slowest.max(1))
    }
}

/// So many of the last reads count.
const READS: usize = 256;
/// With fewer, none is slow.
const LEAST: usize = 32;
/// No read is slow before.
const SHORTEST: Duration = Duration::from_millis(2);
/// One read in so many may be made a second time.
const SECONDS: u64 = 20;

#[derive(Debug, Default)]
struct Last {
    reads: Vec<Duration>,
    next: usize,
    /// The 99th percentile, once it was counted.
    slow: Option<Duration>,
}

/// The last reads.
#[derive(Debug, Default)]
pub(super) struct Latency(Mutex<Last>);

impl Latency {
    /// A read took so long.
    pub(super) fn took(&self, time: Duration) {
        let mut last = self.0.lock();
        if last.reads.len() < READS {
            last.reads.push(time);
        } else {
            let next = last.next;
            last.reads[next] = time;
        }
        last.next = (last.next + 1) % READS;
        if last.next.is_multiple_of(LEAST) {
            let mut sorted = last.reads.clone();
            sorted.sort_unstable();
            last.slow = sorted.get(sorted.len() * 99 / 100).copied();
        }
    }

    /// From when on a read is slow, while second reads are few; `hedges` of `gets` were.
    pub(super) fn slow(&self, gets: u64, hedges: u64) -> Option<Duration> {
        let slow = self.0.lock().slow?.max(SHORTEST);
        (hedges * SECONDS <= gets).then_some(slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: an object of 8 MiB did not reach a store of 200 KB/s, however often it was sent.
    /// Cause: an attempt had 10 seconds whatever its length.
    /// Fix: it has as much longer as a slow connection takes for its bytes.
    #[test]
    fn what_has_more_bytes_has_more_time() {
        let patience = Patience::default();
        let (none, block) =
            (patience.with(0), patience.of(Span::Bytes { offset: 9, len: 64 << 10 }));
        assert_eq!((none.attempt.as_secs(), none.deadline.as_secs()), (10, 30));
        assert_eq!((block.attempt.as_secs(), block.deadline.as_secs()), (11, 33));
        let (object, slowly) = (patience.with(8 << 20), Duration::from_secs((8 << 20) / 200_000));
        assert!(object.attempt > 2 * slowly && object.deadline >= 3 * object.attempt, "{object:?}");
        let (whole, largest) = (patience.of(Span::Whole), patience.with(LARGEST));
        assert_eq!((whole.attempt, whole.deadline), (largest.attempt, none.deadline));
    }

    /// Bug: an entry of the log was written, and no node could ever read it.
    /// Cause: a read of a whole object had the time of 8 MiB, and an entry may have 20.
    /// Fix: it has the time of the largest entry.
    #[test]
    fn what_can_be_written_can_be_read() {
        let patience = Patience::default();
        let written = patience.with(20 << 20);
        assert!(patience.of(Span::Whole).attempt >= written.attempt, "{written:?}");
    }

    #[test]
    fn a_read_is_slow_beyond_the_99th_percentile() {
        let latency = Latency::default();
        for _ in 0..LEAST - 1 {
            latency.took(Duration::from_millis(10));
        }
        assert_eq!(latency.slow(100, 0), None, "too few reads");
        for n in 0..READS as u64 {
            latency.took(Duration::from_millis(n));
        }
        let slow = latency.slow(100, 0).unwrap();
        assert!((200..=255).contains(&slow.as_millis()), "{slow:?}");
    }

    #[test]
    fn a_store_that_is_slow_as_a_whole_is_not_asked_twice() {
        let latency = Latency::default();
        (0..READS).for_each(|_| latency.took(Duration::from_millis(1)));
        assert_eq!(latency.slow(100, 5), Some(SHORTEST));
        assert_eq!(latency.slow(100, 6), None);
    }
}
