//! The trees and the allocator that the figures hold the project's own against. Only with the
//! feature `bench`; no part of the stable interface.

mod allocate;
mod fast_fair;
mod ground;
mod wb;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;

pub use allocate::{Allocation, LoggedAllocator, PoolAllocator, VolatileAllocator, ZoneAllocator};
pub use fast_fair::{DeleteOrder, FastFair};
pub use ground::Ground;
pub use wb::WbTree;

use super::OdsTree;
use crate::error::Result;

/// A persistent tree as the figure `ods` uses it: one thread, keys that are not zero, values that
/// are neither zero nor equal to others (as of pointers, which the rivals' sources assume).
pub trait PersistentTree {
    /// Adds a key that is not there.
    ///
    /// # Errors
    ///
    /// `Full`, or an I/O error.
    fn insert(&mut self, key: u64, value: u64) -> Result<()>;

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    ///
    /// An I/O error.
    fn delete(&mut self, key: u64) -> Result<bool>;

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// An I/O error.
    fn get(&self, key: u64) -> Result<Option<u64>>;

    /// All entries, ascending.
    fn content(&self) -> Vec<(u64, u64)>;

    /// Cache lines of nodes that were flushed so far.
    fn lines(&self) -> u64;

    /// All flushes so far, the allocator's too.
    fn flushes(&self) -> u64;

    /// Nodes in the tree.
    fn nodes(&mut self) -> u64;
}

impl PersistentTree for OdsTree {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        OdsTree::insert(self, key, value).map(drop)
    }

    fn delete(&mut self, key: u64) -> Result<bool> {
        Ok(OdsTree::delete(self, key)?.is_some())
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        OdsTree::get(self, key)
    }

    fn content(&self) -> Vec<(u64, u64)> {
        self.range(..).flatten().collect()
    }

    fn lines(&self) -> u64 {
        self.stats().lines
    }

    fn flushes(&self) -> u64 {
        self.stats().flushes
    }

    fn nodes(&mut self) -> u64 {
        OdsTree::nodes(self)
    }
}
