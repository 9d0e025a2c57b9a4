//! The steps of a commit, and of what rests on its order, at which a test may stop a thread.

/// What a thread has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It took its ticket.
    Ticket,
    /// It stored its parts, and flushed them.
    Flushed,
    /// It stored the floor, which its fence takes along.
    FloorStored,
    /// It fenced them.
    Fenced,
    /// It put its records into the memtables.
    Indexed,
    /// It did all but finish its slot.
    Finishing,
    /// As the publisher, it stored the floor, which its run takes along.
    FloorInRun,
    /// As the publisher, it took the second stage, and read up to where its run goes.
    SyncTarget,
    /// As the publisher, it said that its run is durable, and has not told the floor writer yet.
    SaidDurable,
    /// It changed a table that the list of changed tables does not have yet.
    TableChanged,
    /// It did half of what makes a table known: by number, and by name.
    TableHalfKnown,
}

/// Says, as long as it lives, that this thread is in the turnstile, where nothing is allocated.
pub(super) struct InTurnstile(());

impl InTurnstile {
    pub(super) fn enter() -> InTurnstile {
        #[cfg(any(test, feature = "testing"))]
        crate::testing::set_in_turnstile(true);
        InTurnstile(())
    }
}

#[cfg(any(test, feature = "testing"))]
impl Drop for InTurnstile {
    fn drop(&mut self) {
        crate::testing::set_in_turnstile(false);
    }
}

/// Says that a step was reached. Nothing, but for threads that a test stops there.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn reached(_step: Step) {}

#[cfg(test)]
pub(crate) use stops::reached;
#[cfg(all(test, not(feature = "loom")))]
pub(crate) use stops::stop_at;

#[cfg(test)]
mod stops {
    use std::cell::RefCell;

    use super::Step;

    type Stop = (Step, Box<dyn FnOnce()>);

    thread_local! {
        static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
    }

    /// Has this thread call `wait` when it reaches `step` next.
    #[cfg(not(feature = "loom"))]
    pub(crate) fn stop_at(step: Step, wait: impl FnOnce() + 'static) {
        STOP.set(Some((step, Box::new(wait))));
    }

    pub(crate) fn reached(step: Step) {
        let due = STOP.with_borrow_mut(|stop| stop.take_if(|(at, _)| *at == step));
        if let Some((_, wait)) = due {
            wait();
        }
    }
}
