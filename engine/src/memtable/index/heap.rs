//! What the index allocates, and how it gives it back: counted, and freed by epoch.
//!
//! Thread safety: any thread allocates; only the thread that took a thing out of the tree, under
//! the locks of the nodes that held it, retires it.

use std::sync::Arc;

use crossbeam_epoch::{Guard, Shared};

use crate::base::memory::Gauge;
use crate::base::record::Lsn;
use crate::os::sync::optimistic::{AtomicPtr, AtomicUsize, Ordering};

/// Bytes too long for the node they belong to. They never change.
#[derive(Debug)]
pub(super) struct Spill {
    pub(super) bytes: Box<[u8]>,
    /// For a separator: the sequence number behind the key.
    pub(super) seq: Lsn,
}

impl Spill {
    fn size(&self) -> usize {
        size_of::<Spill>() + self.bytes.len()
    }
}

/// A pointer to a [`Spill`], or to none; a node's lock guards it.
#[derive(Debug, Default)]
pub(super) struct SpillLink(AtomicPtr<Spill>);

impl SpillLink {
    /// The pointer as it is. It may be followed only after a check of the node's version.
    pub(super) fn get(&self) -> *mut Spill {
        self.0.load(Ordering::Acquire)
    }

    /// Writes it, under the lock or before another thread sees it.
    pub(super) fn set(&self, to: *mut Spill) {
        self.0.store(to, Ordering::Release);
    }
}

/// The bytes that an index takes. They are also counted with those of all other indexes over the
/// same records, for as long as the index lives.
#[derive(Debug, Default)]
pub(super) struct Taken {
    own: AtomicUsize,
    all: Arc<Gauge>,
}

impl Taken {
    /// Nothing yet. `all` counts for all indexes.
    pub(super) fn among(all: Arc<Gauge>) -> Taken {
        Taken { own: AtomicUsize::new(0), all }
    }

    /// Bytes of this one.
    pub(super) fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.add(bytes as u64);
    }

    fn sub(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.all.sub(bytes as u64);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.all.sub(self.bytes() as u64);
    }
}

/// The heap as one operation on one index sees it: its epoch, and the index's count of bytes.
#[derive(Clone, Copy)]
pub(super) struct Heap<'a> {
    guard: &'a Guard,
    memory: &'a Taken,
}

impl<'a> Heap<'a> {
    /// The heap within the epoch that `guard` pins.
    pub(super) fn new(guard: &'a Guard, memory: &'a Taken) -> Heap<'a> {
        Heap { guard, memory }
    }

    /// Puts bytes, and a sequence number that may belong to them, on the heap.
    pub(super) fn spill(self, bytes: &[u8], seq: Lsn) -> *mut Spill {
        let spill = Box::new(Spill { bytes: bytes.into(), seq });
        self.memory.add(spill.size());
        Box::into_raw(spill)
    }

    /// Frees a spill, if it is one, once no reader can see it.
    pub(super) fn retire_spill(self, spill: *mut Spill) {
        if spill.is_null() {
            return;
        }
        // SAFETY: made by `spill`, and retired only once (see the head of this file), so that it
        // is still there; it never changes.
        let size = unsafe { &*spill }.size();
        // SAFETY: as above; the link to it was overwritten, so only threads that pinned before can
        // still hold it.
        unsafe { self.retire(spill, size) };
    }

    /// A new node.
    pub(super) fn node<T: Default>(self) -> Box<T> {
        self.memory.add(size_of::<T>());
        Box::default()
    }

    /// Counts a node out that its owner frees by itself.
    pub(super) fn forget<T>(self) {
        self.memory.sub(size_of::<T>());
    }

    /// Frees a node once no reader can see it.
    ///
    /// # Safety
    ///
    /// `node` came out of a box, no link leads to it any more, and no other thread retires it.
    pub(super) unsafe fn retire_node<T>(self, node: *const T) {
        // SAFETY: the caller's promise.
        unsafe { self.retire(node.cast_mut(), size_of::<T>()) };
    }

    /// # Safety
    ///
    /// As for `retire_node`.
    unsafe fn retire<T>(self, thing: *mut T, size: usize) {
        self.memory.sub(size);
        // SAFETY: the caller's promise; `thing` was a box, which is what an owned pointer of the
        // epochs is.
        unsafe { self.guard.defer_destroy(Shared::from(thing.cast_const())) };
    }
}
