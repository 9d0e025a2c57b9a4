//! Transactions: isolation levels over snapshots and row locks, own writes, savepoints, and
//! the registry. `docs/transactions.md` has what is promised and how.

mod calls;
mod extract;
mod options;
mod own;
mod pops;
mod prepared;
mod range;
mod registry;
mod seen;
mod spilled;
mod state;
mod tables;
mod transaction;
mod views;
mod writes;

pub use extract::ExtractIf;
pub(crate) use options::run;
pub use options::{Isolation, LockWait, TxnOptions};
pub use prepared::PreparedInfo;
pub(crate) use prepared::{
    KeptPrepares, OpenPrepare, Place, Prepared, decode_lock, lock_again, lock_run_again,
};
pub use range::TxnRange;
pub(crate) use registry::Registry;
pub use registry::TransactionInfo;
pub use transaction::Transaction;

#[cfg(any(test, feature = "testing"))]
pub(crate) use prepared::probe;
