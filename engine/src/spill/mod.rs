//! Writes of a transaction that do not stay in memory: sorted extents that no edit of the journal
//! names. So they go with the transaction, or with the process.
//!
//! [`Spilled`] is what was written to one table. [`Epochs`] know which of several versions of a key
//! count after roll-backs to savepoints. [`ExtentWriter`] lays records out.

mod spilled;
mod writer;

pub(crate) use spilled::{Epoch, Epochs, Spilled, Store, Version, Write};
pub(crate) use writer::{ExtentWriter, WriteMemory};
