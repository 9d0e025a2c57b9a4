//! A gate that many pass, at once and within one another, until it is shut for good.
//!
//! Thread safety: a thread that enters counts itself first and looks at the gate then. A thread
//! that shuts it does so first and looks at the count then. All agree on one order of these steps,
//! so one of the two sees the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: AtomicUsize,
    is_shut: AtomicBool,
}

/// Inside of it.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Enters, unless it is shut.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self);
        (!self.is_shut.load(Ordering::SeqCst)).then_some(inside)
    }

    /// Shuts it, and waits for all threads inside. A thread that is inside must not call it.
    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let inside = self.0.inside.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(inside > 0, "each that leaves the gate has entered it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_inside_is_waited_for_and_nobody_enters_later() {
        let (gate, done) = (Gate::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(_inside) = gate.enter() {
                        let _again = gate.enter();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 10 {
                std::thread::yield_now();
            }
            gate.shut();
            let then = done.load(Ordering::Relaxed);
            assert!(gate.enter().is_none());
            std::thread::yield_now();
            assert_eq!(done.load(Ordering::Relaxed), then);
        });
    }
}
