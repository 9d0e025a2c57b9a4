//! Epochs: a call that reads bytes it does not own pins the current epoch; whatever is taken out
//! of sight is given back only when every pin from before is gone.
//!
//! No epoch is held between API calls, so an idle iterator or snapshot pins nothing.
//!
//! Thread safety: all functions may be called from any thread, at any time, nested.

use std::cell::Cell;

/// A pinned epoch, which what was found under it borrows from.
pub(crate) type EpochGuard = crossbeam_epoch::Guard;

/// Pins the current epoch: while the guard lives, nothing that this thread can see is freed or
/// written over. Costs one store and one fence.
pub(crate) fn pin() -> EpochGuard {
    crossbeam_epoch::pin()
}

/// Whether this thread has an epoch pinned.
pub(crate) fn is_pinned() -> bool {
    crossbeam_epoch::is_pinned()
}

thread_local! {
    /// Whether this thread runs deferred work.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether that work has deferred more, which is not handed over yet.
    static HAS_MORE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` once every guard that exists now is gone, on whichever thread notices. It is handed
/// over at once: what stayed with this thread would wait for its next calls.
///
/// Work that was deferred may defer more. That is handed over when the outermost call ends: to hand
/// it over runs other work, and so on, as deep as there is work that is due.
pub(crate) fn defer(f: impl FnOnce() + Send + 'static) {
    let guard = crossbeam_epoch::pin();
    guard.defer(move || {
        let outer = IS_INSIDE.replace(true);
        f();
        IS_INSIDE.set(outer);
    });
    if IS_INSIDE.get() {
        HAS_MORE.set(true);
        return;
    }
    guard.flush();
    while HAS_MORE.take() {
        guard.flush();
    }
}

/// Runs all that was deferred before, if no guard is held anywhere: so that where one thread does
/// everything, in steps, the same steps do the same things.
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) fn drive_all() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let ran = Arc::new(AtomicBool::new(false));
    let marker = Arc::clone(&ran);
    defer(move || marker.store(true, Ordering::Relaxed));
    // Another test of the process may hold a guard for long.
    for _ in 0..1000 {
        if ran.load(Ordering::Relaxed) {
            return;
        }
        crossbeam_epoch::pin().flush();
    }
}

/// Pushes deferred work forward until something is true that this work brings about; whether it
/// came true. Another test of the process may hold a guard, or run what was deferred here.
#[cfg(test)]
pub(crate) fn drive_until(is_true: impl Fn() -> bool) -> bool {
    for _ in 0..100_000 {
        if is_true() {
            return true;
        }
        crossbeam_epoch::pin().flush();
        std::thread::yield_now();
    }
    is_true()
}

/// Pushes deferred work forward. Called by the background between jobs and by writers that wait
/// for space; with no guards held anywhere, a few calls run everything deferred before.
pub(crate) fn drive() {
    for _ in 0..4 {
        crossbeam_epoch::pin().flush();
    }
}
