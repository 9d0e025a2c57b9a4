//! The persistent trees and the allocator that the figures `ods` and `alloc` hold Terrace's own
//! against. The trees are for one thread.

mod fast_fair;
mod logged;
mod node;
mod ods;
mod shift;
mod wb;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;

pub use fast_fair::{DeleteOrder, FastFair};
pub use logged::LoggedAllocator;
pub use ods::OdsTree;
pub use shift::Policy;
pub use wb::WbTree;

use terrace::Result;
use terrace::bench::Ground;

/// A persistent tree as the figure `ods` uses it: one thread, keys that are not zero, values that
/// are neither zero nor equal to others (as of pointers, which the sources assume).
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

    /// Nodes in the tree.
    fn nodes(&mut self) -> u64;

    /// What it lies in.
    fn ground(&self) -> &Ground;

    /// Cache lines of nodes that were flushed so far.
    fn lines(&self) -> u64 {
        self.ground().lines()
    }

    /// All flushes so far, the allocator's too.
    fn flushes(&self) -> u64 {
        self.ground().costs().0
    }
}
