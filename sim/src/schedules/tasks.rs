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

/// Polls it when it was woken, as an executor does; with `impatient`, now and then before.
pub(super) fn wait_for(pending: PendingCommit, impatient: bool) -> Result<()> {
    poll(pending, impatient, |_| {})
}

/// Polls it when it was woken. Says if that takes longer.
pub(super) fn wait_within(
    pending: PendingCommit,
    time: Duration,
    late: impl FnOnce(),
) -> Result<()> {
    let (since, mut late) = (schedule::now(), Some(late));
    poll(pending, false, |now| {
        if now - since > time {
            late.take().into_iter().for_each(|late| late());
        }
    })
}

fn poll(pending: PendingCommit, impatient: bool, mut looks_at: impl FnMut(Duration)) -> Result<()> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(pending);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        let mut looks = 0;
        while !std::mem::take(&mut *woken.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            schedule::yield_now();
            looks += 1;
            looks_at(schedule::now());
            if impatient && looks % 4 == 0 {
                break;
            }
        }
    }
}
