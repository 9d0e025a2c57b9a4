//! A swip: 64 bits that lead to a value in memory, or say that it is on the medium alone.
//!
//! ```text
//! the address of the value, whose lowest bit is 0       it is in memory
//! a mark of 63 bits, and a 1 as the lowest bit          it is on the medium
//! ```
//!
//! A reader that has an epoch pinned loads the word, looks at one bit, and has the value. It writes
//! nothing, takes no lock, and counts no reference.
//!
//! Thread safety: any thread calls any method.
//!
//! Invariants:
//!
//! 1. A swip with an address owns one reference of the value's `Arc`.
//! 2. That reference is given up only after the address was taken out, and after every epoch that
//!    was pinned then is gone. So a reader that loaded the address under a guard may use the value
//!    as long as the guard lives.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use crate::mvcc::{EpochGuard, retire};
use crate::os::sync::optimistic::{AtomicPtr, Ordering};

/// The lowest bit of a word that is no address.
const ON_MEDIUM: usize = 1;

/// A way to a value that is in memory or not.
pub(crate) struct Swip<T: Send + Sync + 'static>(AtomicPtr<T>);

/// What a swip led to until now. It is given up when the epochs that readers have pinned are gone.
pub(crate) struct Retired<T: Send + Sync + 'static>(ManuallyDrop<Arc<T>>);

/// The word for what is on the medium alone.
fn marked<T>(mark: u64) -> *mut T {
    ptr::without_provenance_mut((mark as usize) << 1 | ON_MEDIUM)
}

fn is_address<T>(word: *mut T) -> bool {
    word.addr() & ON_MEDIUM == 0
}

impl<T: Send + Sync + 'static> Default for Swip<T> {
    fn default() -> Swip<T> {
        const { assert!(align_of::<T>() > ON_MEDIUM, "the lowest bit of an address is free") };
        Swip(AtomicPtr::new(marked(0)))
    }
}

impl<T: Send + Sync + 'static> Swip<T> {
    /// The value, if it is in memory.
    #[inline]
    pub(crate) fn get<'g>(&self, _pinned: &'g EpochGuard) -> Option<&'g T> {
        // Pairs with the release in `set`: what the value is made of is seen with its address.
        let word = self.0.load(Ordering::Acquire);
        // SAFETY: an address came from an `Arc` whose reference the swip owned when it was loaded
        // (invariant 1). The guard was pinned before the load, so the reference outlives it
        // (invariant 2). Values are only ever shared.
        is_address(word).then(|| unsafe { &*word })
    }

    /// The value with a reference of its own, for a holder that outlives its epoch.
    pub(crate) fn pin(&self, _pinned: &EpochGuard) -> Option<Arc<T>> {
        let word = self.0.load(Ordering::Acquire);
        // SAFETY: as in `get`, the `Arc` has a reference for as long as the guard lives. So its
        // count can be raised, and the raised count is the one that `from_raw` takes.
        is_address(word).then(|| unsafe {
            exchanges::count();
            Arc::increment_strong_count(word);
            Arc::from_raw(word)
        })
    }

    /// Whether the value is in memory.
    pub(crate) fn is_set(&self) -> bool {
        is_address(self.0.load(Ordering::Relaxed))
    }

    /// The mark that it was taken out with last; 0 before that, or if the value is in memory.
    pub(crate) fn mark(&self) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if is_address(word) { 0 } else { (word.addr() >> 1) as u64 }
    }

    /// Leads to `value` from now on; gives `value` back if it leads to one already.
    pub(crate) fn set(&self, value: Arc<T>) -> Result<(), Arc<T>> {
        let seen = self.0.load(Ordering::Relaxed);
        if is_address(seen) {
            return Err(value);
        }
        let word = Arc::into_raw(value).cast_mut();
        exchanges::count();
        match self.0.compare_exchange(seen, word, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            // SAFETY: `into_raw` gave the address just now, and no thread has seen it.
            Err(_) => Err(unsafe { Arc::from_raw(word) }),
        }
    }

    /// Takes the value out and leaves `mark`, of which 63 bits count.
    #[must_use = "what it led to is given up when this is dropped"]
    pub(crate) fn take(&self, mark: u64) -> Option<Retired<T>> {
        if !self.is_set() {
            return None;
        }
        exchanges::count();
        let word = self.0.swap(marked(mark), Ordering::AcqRel);
        // SAFETY: the swip owned a reference (invariant 1). The exchange took it out, so no other
        // call takes the same one. `Retired` gives it up as invariant 2 asks.
        is_address(word).then(|| Retired(ManuallyDrop::new(unsafe { Arc::from_raw(word) })))
    }
}

impl<T: Send + Sync + 'static> Drop for Swip<T> {
    fn drop(&mut self) {
        drop(self.take(0));
    }
}

impl<T: Send + Sync + 'static> Retired<T> {
    /// Gives many up at once: it costs as much as one.
    pub(crate) fn give_up(mut all: Vec<Retired<T>>) {
        // SAFETY: each is taken out once; forgotten by the drain below, none is dropped again.
        let take = |one: &mut Retired<T>| unsafe { ManuallyDrop::take(&mut one.0) };
        let taken: Vec<Arc<T>> = all.iter_mut().map(take).collect();
        all.drain(..).for_each(std::mem::forget);
        if !taken.is_empty() {
            retire(taken);
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only time that it is dropped, and it is not used any more.
        let taken = unsafe { ManuallyDrop::take(&mut self.0) };
        retire(taken);
    }
}

impl<T: Send + Sync + 'static> std::fmt::Debug for Swip<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_set() {
            write!(f, "Swip(in memory)")
        } else {
            write!(f, "Swip(on the medium, {})", self.mark())
        }
    }
}

/// Counts the atomic read-modify-writes of this file, in tests alone.
pub(super) mod exchanges {
    #[cfg(test)]
    thread_local! {
        static OWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[inline(always)]
    pub(super) fn count() {
        #[cfg(test)]
        OWN.set(OWN.get() + 1);
    }

    /// How many this thread has made.
    #[cfg(test)]
    pub(in crate::cache) fn own() -> u64 {
        OWN.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::{drive_until, pin};

    #[test]
    fn a_swip_leads_to_its_value_until_it_is_taken_out() {
        let (swip, value) = (Swip::default(), Arc::new(7u64));
        let guard = pin();
        assert!(swip.get(&guard).is_none() && swip.mark() == 0 && !swip.is_set());
        swip.set(Arc::clone(&value)).unwrap();
        assert_eq!(swip.set(Arc::new(8)), Err(Arc::new(8)), "it leads to one");
        assert_eq!((swip.get(&guard), swip.pin(&guard)), (Some(&7), Some(Arc::new(7))));
        assert_eq!(Arc::strong_count(&value), 2);
        let lent = swip.get(&guard).unwrap();
        drop(swip.take(5));
        assert_eq!((swip.mark(), swip.is_set(), swip.pin(&guard)), (5, false, None));
        assert_eq!((*lent, Arc::strong_count(&value)), (7, 2), "the guard keeps it");
        assert!(swip.take(6).is_none() && swip.mark() == 5);
        drop(guard);
        assert!(drive_until(|| Arc::strong_count(&value) == 1));
    }

    #[test]
    fn what_a_dropped_swip_led_to_is_given_up_once() {
        let value = Arc::new(7u64);
        let swips: Vec<Swip<u64>> = (0..9).map(|_| Swip::default()).collect();
        swips.iter().for_each(|swip| swip.set(Arc::clone(&value)).unwrap());
        assert_eq!(Arc::strong_count(&value), 10);
        let taken = swips[..4].iter().filter_map(|swip| swip.take(1)).collect();
        Retired::give_up(taken);
        drop(swips);
        assert!(drive_until(|| Arc::strong_count(&value) == 1));
    }
}
