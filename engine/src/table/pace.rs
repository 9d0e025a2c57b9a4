//! Pacing: how fast writers may go, as a plain value that the background writes and commit reads.
//!
//! As the region fills beyond the drain's mark, writers slow down smoothly, instead of stopping.
//! They slow down in proportion to their bytes and to how full the region is, at the measured speed
//! of the drain. At the very end they wait for a zone.
//!
//! All writers together go at that pace: what each is to wait adds up on a clock that they share.
//! A writer that finds the clock ahead of the time waits until it is not. A wait for a KiB is
//! mostly shorter than the system can wait for. So the clock may be a little ahead before a writer
//! waits. It may be behind too, which makes up for waits that took too long.
//!
//! Thread safety: one background writes, any number of writers read and park. The clock moves by
//! compare and swap; a writer that moved it has its turn.

use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::events::{Events, StallBeginInfo, StallEndInfo};
use crate::base::operations::{WaitCount, WaitsNow, note};
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::locks::{Condvar, Mutex};
use crate::os::{earlier, time};

/// Longest that one write is slowed down on purpose.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

/// How far the clock may be ahead before a writer waits, and behind to make up for long waits.
const AHEAD: Duration = Duration::from_micros(100);
const BEHIND: Duration = Duration::from_millis(1);

/// Why writers wait that find no zone.
const FULL: &str = "the region is full, and drains go on";

/// Why they wait where a reader keeps zones.
const FOR_READER: &str = "the region is full, and another process opens the database to read";

/// How long a writer waits for a zone before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pace of writers.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds that writers wait for each KiB they write.
    delay: AtomicU64,
    /// The clock: nanoseconds from `began` on up to when all that was written has been waited for.
    clock: AtomicU64,
    began: Instant,
    waits: WaitCount,
    /// Whether no space can be made at present.
    is_stuck: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    events: Events,
}

#[derive(Debug, Default)]
struct State {
    /// Rises whenever the background has made space, or has failed to.
    rounds: u64,
    /// Why no space can be made at present.
    stuck: Option<String>,
    /// Whether that is for want of something else than space.
    is_shortage: bool,
    is_closed: bool,
    /// Why writers are slowed down.
    reason: &'static str,
    /// The process of a reader that opens the database, for which zones wait.
    reader: Option<u32>,
    /// What is told of the waits, until they are over.
    stall: Option<Stall>,
}

/// Waits of writers, from the first one on.
#[derive(Debug)]
struct Stall {
    reason: &'static str,
    began: Instant,
    /// As [`Pace::waited`] was.
    waited: Duration,
    bytes: u64,
    /// A writer has begun to wait since the background looked last.
    is_fresh: bool,
}

impl Pace {
    /// That of a database whose writers do not wait.
    pub(crate) fn new(events: &Events) -> Pace {
        Pace {
            events: events.clone(),
            delay: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            began: time::now(),
            waits: WaitCount::default(),
            is_stuck: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Sets the delay of writers in nanoseconds a KiB, and says why.
    pub(crate) fn set_delay(&self, nanos_per_kib: u64, reason: &'static str) {
        debug_assert!(
            nanos_per_kib == 0 || !reason.is_empty(),
            "writers that are slowed down are told why"
        );
        if self.delay() != nanos_per_kib {
            let mut state = self.state.lock();
            // Who is about to wait sees both or none.
            state.reason = reason;
            self.delay.store(nanos_per_kib, Ordering::Relaxed);
        }
        if self.events.is_on() {
            self.end_stall(nanos_per_kib);
        }
    }

    /// A writer begins to wait. A want of space is told of once: it comes and goes while it lasts.
    fn begin_wait(&self, state: &mut State, reason: &'static str, (delay, bytes): (u64, u64)) {
        if !self.events.is_on() {
            return;
        }
        let reader = state.reader.filter(|_| reason == FULL);
        let reason = if reader.is_some() { FOR_READER } else { reason };
        let (began, waited) = (time::now(), self.waited());
        let none = || Stall { reason: "", began, waited, bytes: 0, is_fresh: true };
        let stall = state.stall.get_or_insert_with(none);
        stall.bytes += bytes;
        stall.is_fresh = true;
        // A want of space outlasts what slows writers down beside it.
        let goes_on = match stall.reason {
            FULL => reason != FOR_READER,
            FOR_READER => ![FULL, FOR_READER].contains(&reason),
            _ => false,
        };
        if stall.reason != reason && !goes_on {
            stall.reason = reason;
            let delay_ns_per_kib = delay;
            let begin = || StallBeginInfo { reason, delay_ns_per_kib, reader, ..<_>::default() };
            self.events.send(begin);
        }
    }

    /// Zones wait for this reader, or for none.
    pub(crate) fn wait_for_reader(&self, reader: Option<u32>) {
        let mut state = self.state.lock();
        state.reader = reader;
        let State { stall: Some(stall), .. } = &mut *state else { return };
        if reader.is_some() && stall.reason == FULL {
            stall.reason = FOR_READER;
            let begin = || StallBeginInfo { reason: FOR_READER, reader, ..<_>::default() };
            self.events.send(begin);
        }
    }

    /// The background looks: a stall is over once nothing slows writers down, and none has waited
    /// since it looked last.
    fn end_stall(&self, delay: u64) {
        let mut state = self.state.lock();
        let is_waited = delay > 0 || self.waits.look().waiting > 0;
        let Some(stall) = &mut state.stall else { return };
        if std::mem::take(&mut stall.is_fresh) || is_waited {
            return;
        }
        let &mut Stall { reason, began, waited, bytes, .. } = stall;
        state.stall = None;
        self.events.send(|| StallEndInfo {
            reason,
            ms: time::since(began).as_secs_f64() * 1e3,
            waited_ms: (self.waited() - waited).as_secs_f64() * 1e3,
            bytes,
            ..StallEndInfo::default()
        });
    }

    /// The delay of writers in nanoseconds a KiB.
    pub(crate) fn delay(&self) -> u64 {
        self.delay.load(Ordering::Relaxed)
    }

    /// Writers that wait, and how long they have since the database was opened.
    pub(crate) fn waits(&self) -> WaitsNow {
        self.waits.look()
    }

    fn waited(&self) -> Duration {
        self.waits().waited
    }

    /// Why no space can be made at present.
    pub(crate) fn stuck(&self) -> Option<String> {
        self.state.lock().stuck.clone()
    }

    /// Tells waiting writers that something changed: space was made, or cannot be.
    pub(crate) fn report(&self, stuck: Option<String>) {
        self.tell(stuck, false);
    }

    fn tell(&self, stuck: Option<String>, is_shortage: bool) {
        let mut state = self.state.lock();
        state.rounds += 1;
        self.is_stuck.store(stuck.is_some(), Ordering::Relaxed);
        (state.stuck, state.is_shortage) = (stuck, is_shortage);
        self.changed.notify_all();
    }

    /// Tells them that no space can be made because of an error that may pass.
    pub(crate) fn report_failure(&self, error: &Error) {
        debug_assert!(error.may_pass(), "what does not pass stops the database: {error}");
        self.tell(Some(error.to_string()), error.kind() != ErrorKind::Full);
    }

    /// Ends all waits, and those that begin later: the database is closed.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Slows a write of `bytes` down as far as is called for.
    pub(crate) fn slow_down(&self, bytes: u64) -> Result<()> {
        let delay = self.delay();
        if delay == 0 {
            return Ok(());
        }
        let deadline = earlier(None);
        let nanos = delay.saturating_mul(bytes.div_ceil(1024));
        let now = time::since(self.began);
        let turn = |clock: u64| {
            let from = Duration::from_nanos(clock).max(now.saturating_sub(BEHIND));
            (from + Duration::from_nanos(nanos)).min(now + LONGEST_DELAY)
        };
        let mut clock = self.clock.load(Ordering::Relaxed);
        let until = loop {
            let until = turn(clock);
            if deadline.is_some_and(|deadline| deadline < self.began + until) {
                let wait = until.saturating_sub(now).as_secs_f64() * 1e3;
                let reason = self.state.lock().reason;
                let why = format!("writers wait {wait:.1} ms for {bytes} bytes, since {reason}");
                return Err(late(&why));
            }
            let (order, to) = (Ordering::Relaxed, until.as_nanos() as u64);
            match self.clock.compare_exchange_weak(clock, to, order, order) {
                Ok(_) => break until,
                Err(other) => clock = other,
            }
        };
        if until > now + AHEAD {
            let mut state = self.state.lock();
            let (reason, end) = (state.reason, self.began + until);
            // Relief ends the wait early.
            let is_slowed = |state: &State| self.delay() != 0 && !state.is_closed;
            if is_slowed(&state) {
                // All of the wait is a part of the stall.
                self.begin_wait(&mut state, reason, (delay, bytes));
                let _waits = self.waits.begin();
                while is_slowed(&state) && !self.changed.wait_until(&mut state, end).timed_out() {}
            }
            let is_closed = state.is_closed;
            drop(state);
            let waited = time::since(self.began) - now;
            note(|spent| spent.pace += waited);
            if is_closed {
                return Err(Error::closed());
            }
        }
        Ok(())
    }

    /// Waits until the background has made space since `rounds`.
    pub(crate) fn wait_for_space(&self, rounds: u64) -> Result<()> {
        let patience = time::now() + PATIENCE;
        let until = earlier(None).map_or(patience, |deadline| deadline.min(patience));
        let mut state = self.state.lock();
        debug_assert!(rounds <= state.rounds, "a writer waits for a round after one that was told");
        self.begin_wait(&mut state, FULL, (0, 0));
        let waits = self.waits.begin();
        let goes_on = |state: &State| state.rounds == rounds && !state.is_closed;
        while goes_on(&state) && !self.changed.wait_until(&mut state, until).timed_out() {}
        drop(waits);
        if state.is_closed {
            return Err(Error::closed());
        }
        if state.rounds == rounds {
            return Err(match until < patience {
                true => late("the region is full, and drains have made no space yet"),
                false => full(&match state.reader {
                    Some(id) => format!("process {id} opens the database to read, and keeps zones"),
                    None => "the drain has made no space for a minute".to_string(),
                }),
            });
        }
        match &state.stuck {
            Some(reason) if state.is_shortage => Err(short(reason)),
            Some(reason) => Err(full(reason)),
            None => Ok(()),
        }
    }

    /// Whether no space can be made at present.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// How many rounds the background has reported.
    pub(crate) fn rounds(&self) -> u64 {
        self.state.lock().rounds
    }
}

fn short(reason: &str) -> Error {
    let advice = "nothing was written; reads go on, and so do writes once that has passed";
    let message = format!("the region is full and cannot be drained: {reason}; {advice}");
    Error::new(ErrorKind::Unavailable, message)
}

fn full(reason: &str) -> Error {
    let advice = "nothing was written; reads go on, and so do writes once there is space: \
                  delete_range, truncate_table and drop_table go on and free some, or give the \
                  file system more";
    Error::new(
        ErrorKind::Full,
        format!("the region is full and cannot be drained: {reason}; {advice}"),
    )
}

fn late(reason: &str) -> Error {
    let message = format!("{reason}: the deadline comes first; nothing was written, try again");
    Error::new(ErrorKind::Timeout, message)
}

// Wake-ups of the background and of what keeps zones ready. Writers wake them now and then, and
// so does each thread that waits for them.
//
// Thread safety: any thread wakes, one waits. A wake-up without a waiter is kept.

/// Wakes one thread.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    woken: Mutex<bool>,
    changed: Condvar,
    written: AtomicU64,
}

/// Bytes written between two wake-ups.
const WAKE_EVERY: u64 = 64 * 1024;

impl Wakeup {
    /// Wakes it now.
    pub(crate) fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }

    /// Counts written bytes; whether so many have come that it should be woken.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        before / WAKE_EVERY != (before + bytes) / WAKE_EVERY
    }

    /// Waits for a wake-up, or for `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.changed.wait_for(&mut woken, timeout);
        }
        *woken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::with_deadline;

    #[test]
    fn who_would_wait_too_long_is_told_why_and_at_once() {
        let pace = Pace::new(&Events::default());
        let soon = Instant::now() + Duration::from_millis(1);
        with_deadline(soon, || pace.slow_down(1 << 20)).unwrap();
        pace.set_delay(1_000_000, "the region is filling");
        let error = with_deadline(soon, || pace.slow_down(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("the region is filling"), "{error}");
        assert_eq!(pace.waited(), Duration::ZERO, "it did not wait");
        let later = Instant::now() + Duration::from_secs(60);
        with_deadline(later, || pace.slow_down(3 * 1024)).unwrap();
        assert!(
            pace.waited() > Duration::from_millis(1),
            "three less what the clock may be behind"
        );
        pace.set_delay(0, "none");
        with_deadline(soon, || pace.slow_down(1 << 30)).unwrap();
    }

    #[test]
    fn a_wait_counts_as_it_goes_on() {
        let pace = Pace::new(&Events::default());
        let rounds = pace.rounds();
        std::thread::scope(|scope| {
            scope.spawn(|| pace.wait_for_space(rounds).unwrap_err());
            while pace.waits().waiting == 0 {
                std::thread::yield_now();
            }
            // Two looks in one tick of the clock are alike.
            let one = pace.waits();
            while pace.waits().waited == one.waited {
                std::thread::yield_now();
            }
            assert!(pace.waits().lasts() > one.lasts());
            assert_eq!(pace.stuck(), None);
            pace.report(Some("the disk is full".into()));
        });
        assert_eq!(pace.stuck().as_deref(), Some("the disk is full"));
        assert!(pace.waits().waiting == 0 && pace.waits().lasts().is_zero());
    }

    /// Bug: a wait of some hundred nanoseconds took as long as the shortest one that the system
    /// has, some 70 µs. Writers fell from 300,000 to 12,000 writes a second each as soon as any
    /// wait was asked for. Cause: each write waited by itself. Fix: the clock.
    #[test]
    fn short_waits_add_up_before_anybody_waits() {
        let pace = Pace::new(&Events::default());
        pace.set_delay(200, "the drain lags behind its turn");
        let (from, mut waits) = (Instant::now(), 0);
        // They are to take 20 ms, and one wait makes up for 500 of them.
        for _ in 0..100_000 {
            let before = pace.waited();
            pace.slow_down(1000).unwrap();
            waits += u64::from(pace.waited() > before);
        }
        let took = from.elapsed();
        assert!(took >= Duration::from_millis(18), "{took:?}");
        assert!(waits < 1000, "{waits} of 100,000 waited");
        assert!(pace.waited() < took);
    }

    #[test]
    fn writers_go_at_the_pace_together() {
        let pace = Pace::new(&Events::default());
        pace.set_delay(10_000, "the drain lags behind its turn");
        let from = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| pace.slow_down(1024).unwrap()));
            }
        });
        // 2,000 of 10 µs, less what the clock may be behind and ahead.
        assert!(from.elapsed() >= Duration::from_millis(18), "{:?}", from.elapsed());
    }

    #[test]
    fn a_closing_ends_all_waits() {
        let pace = Pace::new(&Events::default());
        pace.set_delay(1 << 30, "the region is filling");
        pace.close();
        let later = Instant::now() + Duration::from_secs(60);
        let waits =
            [with_deadline(later, || pace.slow_down(1 << 20)), pace.wait_for_space(pace.rounds())];
        for wait in waits {
            assert_eq!(wait.unwrap_err().kind(), ErrorKind::Closed);
        }
        assert!(Instant::now() < later);
    }

    #[test]
    fn space_that_does_not_come_by_the_deadline_is_a_timeout() {
        let pace = Pace::new(&Events::default());
        let soon = Instant::now() + Duration::from_millis(1);
        let error = with_deadline(soon, || pace.wait_for_space(pace.rounds())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let before = pace.rounds();
        pace.report(None);
        with_deadline(soon, || pace.wait_for_space(before)).unwrap();
        pace.report(Some("the disk is full".into()));
        let error = pace.wait_for_space(before).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full);
        assert!(error.to_string().contains("the disk is full"), "{error}");
    }
}
