//! A moment beyond which the calls of a thread do not wait for their turn.
//!
//! Thread safety: what one thread has asked for concerns its own calls alone.

use std::cell::Cell;
use std::thread::LocalKey;
use std::time::Instant;

thread_local! {
    /// The moment that this thread has asked for.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When the call that this thread makes came, if it was tried before.
    static ARRIVAL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `f`, whose calls on this thread wait for their turn until `deadline` and no longer: for a
/// lock on a row, and for space in the region. A call that would wait longer fails with
/// `ErrorKind::Timeout`, and nothing was written. Times that a call
/// has of its own, such as `lock_wait` of a transaction, count too: the earliest moment ends the
/// wait.
///
/// A commit that has its place in the order is not given up: waits for a device and for a shared
/// store are not bounded. Nor is one whose rows were written to extents, because it does not fit in
/// a zone of the region: it waits for space for up to a minute, as without a deadline.
///
/// Inside of `f` the same may be called again, and the earlier deadline counts.
pub fn with_deadline<T>(deadline: Instant, f: impl FnOnce() -> T) -> T {
    with(&DEADLINE, earlier(Some(deadline)), f)
}

/// Runs `f`, whose calls on this thread wait for as long as they do without a deadline: what was
/// done for them would have to be done again.
pub fn without_deadline<T>(f: impl FnOnce() -> T) -> T {
    with(&DEADLINE, None, f)
}

/// Runs `f`, whose calls on this thread stand in the queues for row locks as if they had come at
/// `arrival`: before calls that came later. So a call that waits for a short time, looks at
/// something else and is made again keeps its place. Such a caller makes it again at once: a place
/// is taken only while a call waits.
pub fn with_arrival<T>(arrival: Instant, f: impl FnOnce() -> T) -> T {
    with(&ARRIVAL, ARRIVAL.get().or(Some(arrival)), f)
}

/// Runs `f` with a moment of this thread, which has its old value afterwards however `f` ends.
fn with<T>(
    of_thread: &'static LocalKey<Cell<Option<Instant>>>,
    moment: Option<Instant>,
    f: impl FnOnce() -> T,
) -> T {
    struct OuterMoment(&'static LocalKey<Cell<Option<Instant>>>, Option<Instant>);

    impl Drop for OuterMoment {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    let _outer = OuterMoment(of_thread, of_thread.replace(moment));
    f()
}

/// When the call that this thread makes came.
pub fn arrival() -> Instant {
    ARRIVAL.get().unwrap_or_else(super::time::now)
}

/// The earlier one of a moment and of the deadline of this thread.
pub fn earlier(moment: Option<Instant>) -> Option<Instant> {
    match (DEADLINE.get(), moment) {
        (Some(deadline), Some(moment)) => Some(deadline.min(moment)),
        (deadline, moment) => deadline.or(moment),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_deadline_counts_and_for_this_thread_alone() {
        let now = Instant::now();
        let [soon, late] = [1, 2].map(|seconds| now + Duration::from_secs(seconds));
        assert_eq!(earlier(None), None);
        with_deadline(soon, || {
            with_deadline(late, || assert_eq!(earlier(None), Some(soon)));
            assert_eq!(earlier(Some(late)), Some(soon));
            assert_eq!(earlier(Some(now)), Some(now));
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(earlier(None), None)).join().unwrap();
            });
            without_deadline(|| assert_eq!(earlier(Some(late)), Some(late)));
            let ended = std::panic::catch_unwind(|| with_deadline(now, || panic!("ends")));
            assert!(ended.is_err());
            assert_eq!(earlier(None), Some(soon));
        });
        assert_eq!(earlier(Some(late)), Some(late));
    }
}
