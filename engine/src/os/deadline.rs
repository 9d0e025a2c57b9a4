//! A moment beyond which the calls of a thread do not wait for their turn.
//!
//! Thread safety: what one thread has asked for concerns its own calls alone.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// The moment that this thread has asked for.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `f`, whose calls on this thread wait for their turn until `deadline` and no longer: for a
/// lock on a row, and for space in the region. A call that would wait longer fails with
/// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), and nothing was written. Times that a call
/// has of its own, such as `lock_wait` of a transaction, count too: the earliest moment ends the
/// wait.
///
/// A commit that has its place in the order is not given up: waits for a device and for a shared
/// store are not bounded. Inside of `f` the same may be called again, and the earlier deadline
/// counts.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// use std::time::{Duration, Instant};
///
/// let jobs = db.table("jobs")?;
/// let holder = db.begin()?;
/// holder.put(&jobs, "1", "mine")?;
/// let soon = Instant::now() + Duration::from_millis(5);
/// let busy = terrace::with_deadline(soon, || jobs.delete_range(..)).unwrap_err();
/// assert_eq!(busy.kind(), terrace::ErrorKind::Timeout);
/// # Ok(())
/// # }
/// ```
pub fn with_deadline<T>(deadline: Instant, f: impl FnOnce() -> T) -> T {
    /// Gives the deadline back that was there, whatever `f` does.
    struct OuterDeadline(Option<Instant>);

    impl Drop for OuterDeadline {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }

    let _outer = OuterDeadline(DEADLINE.replace(earlier(Some(deadline))));
    f()
}

/// The earlier one of a moment and of the deadline of this thread.
pub(crate) fn earlier(moment: Option<Instant>) -> Option<Instant> {
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
            let ended = std::panic::catch_unwind(|| with_deadline(now, || panic!("ends")));
            assert!(ended.is_err());
            assert_eq!(earlier(None), Some(soon));
        });
        assert_eq!(earlier(Some(late)), Some(late));
    }
}
