//! A run that is asked to stop ends where it is, and still says what it has found.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether somebody has asked this process to stop.
pub fn is_asked_for() -> bool {
    ASKED_FOR.load(Ordering::Relaxed)
}

/// Asks this process to stop.
pub fn ask_for() {
    ASKED_FOR.store(true, Ordering::Relaxed);
}

extern "C" fn on_signal(_signal: libc::c_int) {
    ask_for();
}

/// From now on SIGINT and SIGTERM ask this process to stop, instead of ending it.
pub fn on_signals() {
    let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, handler) };
    }
}
