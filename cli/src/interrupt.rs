//! Ctrl-C: a long command stops between two of its steps, and says how far it has come.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether a signal has asked this process to stop.
pub(crate) fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Ordering::Relaxed)
}

extern "C" fn ask(_signal: libc::c_int) {
    // A store to an atomic is all that a handler does, and is allowed in one.
    IS_ASKED_FOR.store(true, Ordering::Relaxed);
}

/// From now on the first SIGINT or SIGTERM asks this process to stop; the second one ends it.
pub(crate) fn on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the action is plain data that is made here. Its handler stores to an atomic and
        // does nothing else. After it has run once, the signal has its default action again.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ask as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}
