//! How long reads take, to know which one is slow.

use std::time::Duration;

use crate::os::sync::locks::Mutex;

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
