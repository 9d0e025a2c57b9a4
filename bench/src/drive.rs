//! Threads that do one operation after the other, and what was seen of them: how many, how long
//! each took, and when.
//!
//! A **closed loop** does the next operation when the one before is done: what a store can do at
//! most. An **open loop** has a rate, so every operation has a moment at which it should begin, and
//! its latency counts from then: while a store stalls, work piles up and is seen to wait.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::latency::{Latency, let_work};

/// Completions are counted by the millisecond, so that gaps are seen.
const TICK: Duration = Duration::from_millis(1);

/// Throughput is shown for each tenth of a second.
const TICKS_A_SAMPLE: usize = 100;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After so long.
    Time(Duration),
    /// After so many operations of all threads together.
    Operations(u64),
    /// After both.
    Later(Duration, u64),
}

/// How to drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    pub(crate) threads: u64,
    pub(crate) until: Until,
    /// Operations a second, of all threads together, in an open loop.
    pub(crate) rate: Option<f64>,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) operations: u64,
    pub(crate) took: Duration,
    pub(crate) latency: Latency,
    /// Operations that ended in each millisecond.
    ticks: Vec<u32>,
}

impl Seen {
    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.took.as_secs_f64()
    }

    /// Seconds, and operations a second in the tenth of a second before.
    pub(crate) fn series(&self) -> Vec<Vec<f64>> {
        let each = TICK.as_secs_f64() * TICKS_A_SAMPLE as f64;
        let samples = self.ticks.chunks_exact(TICKS_A_SAMPLE).zip(1..);
        let sum = |ticks: &[u32]| ticks.iter().map(|n| f64::from(*n)).sum::<f64>();
        samples.map(|(ticks, n)| vec![f64::from(n) * each, sum(ticks) / each]).collect()
    }

    /// The longest time in which no operation of any thread ended, in milliseconds.
    pub(crate) fn longest_gap_ms(&self) -> f64 {
        let gaps = self.ticks.split(|ended| *ended > 0).map(<[u32]>::len);
        gaps.max().unwrap_or(0) as f64 * TICK.as_secs_f64() * 1e3
    }
}

/// What one thread saw.
struct Own {
    latency: Latency,
    ticks: Vec<u32>,
}

impl Drive {
    /// A closed loop for so long.
    pub(crate) fn closed(threads: u64, time: Duration) -> Drive {
        Drive { threads, until: Until::Time(time), rate: None }
    }

    /// Has every thread make its own operation with `worker` and repeat it.
    pub(crate) fn run<W>(&self, worker: impl Fn(u64) -> W + Sync) -> Result<Seen>
    where
        W: FnMut() -> Result<()>,
    {
        let failed = AtomicBool::new(false);
        let from = Instant::now();
        let work = |thread| {
            let own = self.work(thread, worker(thread), from, &failed);
            failed.fetch_or(own.is_err(), Ordering::Relaxed);
            own
        };
        let work = &work;
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|thread| scope.spawn(move || work(thread))).collect();
            let joined = threads.into_iter().map(|t| t.join().expect("no panic"));
            joined.collect::<Result<Vec<Own>>>()
        })?;
        let took = from.elapsed();
        let (mut latency, mut ticks) = (Latency::new(), Vec::new());
        for own in all {
            latency.add(&own.latency);
            ticks.resize(own.ticks.len().max(ticks.len()), 0);
            ticks.iter_mut().zip(own.ticks).for_each(|(sum, n)| *sum += n);
        }
        let operations = ticks.iter().map(|n| u64::from(*n)).sum();
        Ok(Seen { operations, took, latency, ticks })
    }

    fn work(
        &self,
        thread: u64,
        mut operation: impl FnMut() -> Result<()>,
        from: Instant,
        failed: &AtomicBool,
    ) -> Result<Own> {
        let mut own = Own { latency: Latency::new(), ticks: Vec::new() };
        let interval = self.rate.map(|rate| self.threads as f64 / rate);
        if interval.is_some() {
            // The client's own sleeps are to add as little as can be.
            rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        }
        let mut began = from.elapsed();
        for n in 0.. {
            let due = |interval: f64| (n as f64 + thread as f64 / self.threads as f64) * interval;
            let due = interval.map(|interval| Duration::from_secs_f64(due(interval)));
            if self.is_over(thread, n, due.unwrap_or(began)) || failed.load(Ordering::Relaxed) {
                break;
            }
            if let Some(due) = due {
                if self.is_over(thread, n, from.elapsed()) {
                    // Due in time and never begun: it has waited at least until now.
                    own.latency.record(from.elapsed().saturating_sub(due));
                    continue;
                }
                let_work(due.saturating_sub(from.elapsed()));
                began = due;
            }
            operation()?;
            let ended = from.elapsed();
            own.latency.record(ended - began);
            let tick = (ended.as_nanos() / TICK.as_nanos()) as usize;
            own.ticks.resize(own.ticks.len().max(tick + 1), 0);
            own.ticks[tick] += 1;
            began = ended;
        }
        Ok(own)
    }

    /// Whether a thread's operation `n`, at `at`, is past the end.
    fn is_over(&self, thread: u64, n: u64, at: Duration) -> bool {
        let (time, all) = match self.until {
            Until::Time(time) => (time, 0),
            Until::Operations(all) => (Duration::ZERO, all),
            Until::Later(time, all) => (time, all),
        };
        at >= time && n * self.threads + thread >= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_does_as_many_as_asked() {
        let drive = Drive { threads: 3, until: Until::Operations(1000), rate: None };
        let seen = drive.run(|_| || Ok(())).unwrap();
        assert_eq!((seen.operations, seen.latency.count()), (1000, 1000));
    }

    #[test]
    fn the_later_of_two_ends_counts() {
        let (short, long) = (Duration::ZERO, Duration::from_millis(30));
        for (until, least) in [(Until::Later(short, 500), 500), (Until::Later(long, 1), 2)] {
            let seen = Drive { threads: 2, until, rate: None }.run(|_| || Ok(())).unwrap();
            assert!(seen.operations >= least, "{} operations {until:?}", seen.operations);
            assert!(least == 500 || seen.took >= long, "{:?}", seen.took);
        }
    }

    #[test]
    fn an_open_loop_counts_from_when_an_operation_should_have_begun() {
        // A hundred a second; the third takes a fifth of a second, and those behind it wait.
        let drive = Drive { threads: 1, until: Until::Operations(20), rate: Some(100.0) };
        let seen = drive
            .run(|_| {
                let mut n = 0;
                move || {
                    n += 1;
                    let_work(Duration::from_millis(if n == 3 { 200 } else { 0 }));
                    Ok(())
                }
            })
            .unwrap();
        assert_eq!(seen.operations, 20);
        let slow = seen.latency.buckets().iter().filter(|(ns, _)| *ns > 20_000_000).count();
        assert!(slow > 10, "{slow} operations waited, where the stall lasted for twenty");
        assert!(seen.longest_gap_ms() >= 150.0, "{} ms", seen.longest_gap_ms());
    }

    #[test]
    fn an_open_loop_that_cannot_keep_up_counts_what_never_began() {
        let time = Duration::from_millis(100);
        let drive = Drive { threads: 1, until: Until::Time(time), rate: Some(1000.0) };
        let slow = |_| {
            || {
                let_work(Duration::from_millis(50));
                Ok(())
            }
        };
        let seen = drive.run(slow).unwrap();
        assert!(seen.operations < 10);
        assert_eq!(seen.latency.count(), 100, "every operation that was due has a latency");
    }

    #[test]
    fn an_error_ends_every_thread() {
        let drive = Drive { threads: 2, until: Until::Operations(u64::MAX), rate: None };
        let fail = |thread| {
            move || {
                anyhow::ensure!(thread == 0, "thread {thread} fails");
                Ok(())
            }
        };
        assert!(drive.run(fail).is_err());
    }
}
