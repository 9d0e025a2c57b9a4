//! Commits that a task awaits.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use terrace::testing::schedule;
use terrace::{PendingCommit, Result};

/// Set by a wake-up.
#[derive(Default)]
struct Woken(Mutex<bool>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Between two looks at a commit that may take long.
const LOOKS_AGAIN: Duration = Duration::from_millis(10);

/// Polls it when it was woken, as an executor does; with `impatient`, now and then before.
pub(super) fn wait_for(pending: PendingCommit, impatient: bool) -> Result<()> {
    poll(pending, impatient, schedule::yield_now)
}

/// Polls it when it was woken. Says if that takes longer. Between two looks it sleeps: of tasks
/// that only yield to each other, none would come to the end of the time.
pub(super) fn wait_within(
    pending: PendingCommit,
    time: Duration,
    late: impl FnOnce(),
) -> Result<()> {
    let (since, mut late) = (schedule::now(), Some(late));
    poll(pending, false, || {
        schedule::pause(LOOKS_AGAIN);
        if schedule::now() - since > time {
            late.take().into_iter().for_each(|late| late());
        }
    })
}

fn poll(pending: PendingCommit, impatient: bool, mut rest: impl FnMut()) -> Result<()> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(pending);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        let mut looks = 0;
        while !std::mem::take(&mut *woken.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            rest();
            looks += 1;
            if impatient && looks % 4 == 0 {
                break;
            }
        }
    }
}
