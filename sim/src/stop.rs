//! A run that is asked to stop ends where it is, and still says what it has found.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static ASKED_FOR: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();

fn asked_for() -> MutexGuard<'static, bool> {
    ASKED_FOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a signal or a caller has asked this process to stop.
pub fn is_asked_for() -> bool {
    *asked_for()
}

/// Asks this process to stop.
pub fn ask_for() {
    *asked_for() = true;
    CHANGED.notify_all();
}

/// Waits until a signal or a caller asks this process to stop.
pub fn wait() {
    let stopped = CHANGED.wait_while(asked_for(), |asked_for| !*asked_for);
    drop(stopped.unwrap_or_else(PoisonError::into_inner));
}

/// From now on SIGINT and SIGTERM ask this process to stop, instead of ending it. Call it before
/// starting threads: a thread inherits the signals that it blocks from its parent.
pub fn on_signals() {
    // SAFETY: a set of signals is plain data, which `sigemptyset` makes; the calls get pointers to
    // it alone, and fail for nothing but signals that there are not.
    let signals = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGINT);
        libc::sigaddset(&raw mut signals, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        signals
    };
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both point to what this thread has.
        while unsafe { libc::sigwait(&raw const signals, &raw mut signal) } == 0 {
            ask_for();
        }
    });
}
