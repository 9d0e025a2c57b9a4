//! A thread that applies what another database has committed: it alone writes to one that follows.

use std::cell::Cell;

thread_local! {
    static APPLYING: Cell<bool> = const { Cell::new(false) };
}

/// As long as it lives, its thread may write to databases that follow.
#[derive(Debug)]
pub(crate) struct Applying(());

impl Applying {
    /// Begins.
    pub(crate) fn enter() -> Applying {
        debug_assert!(!APPLYING.get(), "a thread applies one database at a time");
        APPLYING.set(true);
        Applying(())
    }

    /// Whether this thread applies.
    pub(super) fn is_inside() -> bool {
        APPLYING.get()
    }
}

impl Drop for Applying {
    fn drop(&mut self) {
        APPLYING.set(false);
    }
}
