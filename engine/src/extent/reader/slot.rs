//! Where the parts of an extent are held once they were read.
//!
//! Every read looks into them several times, so finding them here takes no lock. As entries of the
//! block cache they would cost a look into a shared table each time. When the parts of all extents
//! take more memory than they may, a clock goes through the slots of the store. It empties those
//! that were not used since it last came by. Their parts are read again when they are needed.
//! Without a memory limit it never does.
//!
//! Invariants:
//!
//! 1. A slot is known to the clock from soon after it was filled until it is emptied.
//! 2. A slot is filled when it is empty, and never refilled: a second thread uses what is there.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::{ArcSwap, Guard};

use super::Parts;
use crate::memory::{Clock, LetGo};

/// What an empty slot points to; its address tells. So a loaded pointer always leads to some parts.
static NOTHING: LazyLock<Arc<Parts>> = LazyLock::new(Arc::default);

/// Room for an extent's parts.
#[derive(Debug)]
pub(super) struct Slot {
    parts: ArcSwap<Parts>,
    /// Since the clock came by.
    used: AtomicBool,
    /// In the clock; 0 before the first time.
    place: AtomicU64,
}

/// Parts of an extent that are in use. They stay until this is dropped.
#[derive(Debug)]
pub(in crate::extent) struct Loaded(Guard<Arc<Parts>>);

impl Default for Slot {
    fn default() -> Slot {
        let parts = ArcSwap::new(Arc::clone(&NOTHING));
        Slot { parts, used: AtomicBool::default(), place: AtomicU64::default() }
    }
}

impl Slot {
    /// What is in it; a sign of use.
    pub(super) fn get(&self) -> Option<Loaded> {
        let found = self.peek()?;
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(found)
    }

    /// What is in it; no sign of use.
    pub(super) fn peek(&self) -> Option<Loaded> {
        Loaded::of(self.parts.load())
    }

    /// Fills it if it is empty, and returns what is in it then. If a reader is about to use it, it
    /// counts as used. Otherwise the clock's hand, which stands before new slots, would find it
    /// unused and empty it at once, time after time.
    pub(super) fn fill(self: &Arc<Self>, parts: Arc<Parts>, clock: &Clock, used: bool) -> Loaded {
        let before = self.parts.compare_and_swap(&*NOTHING, Arc::clone(&parts));
        if let Some(there) = Loaded::of(before) {
            return there;
        }
        self.used.store(used, Ordering::Relaxed);
        let place = clock.keep(Arc::clone(self) as _, parts.memory() as u64);
        // Another thread may have filled it again meanwhile, with a later value.
        self.place.fetch_max(place, Ordering::AcqRel);
        Loaded(Guard::from_inner(parts))
    }

    /// Has the clock forget it, with its extent.
    pub(super) fn leave(&self, clock: &Clock) {
        match self.place.load(Ordering::Acquire) {
            0 => {}
            place => clock.remove(place),
        }
    }
}

impl LetGo for Slot {
    fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn release(&self) {
        self.parts.store(Arc::clone(&NOTHING));
    }
}

impl Deref for Loaded {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Loaded {
    /// What a slot had; `None` if it was empty.
    fn of(found: Guard<Arc<Parts>>) -> Option<Loaded> {
        (!Arc::ptr_eq(&found, &NOTHING)).then_some(Loaded(found))
    }

    /// The parts, to keep for long.
    pub(in crate::extent) fn shared(&self) -> Arc<Parts> {
        Arc::clone(&self.0)
    }
}
