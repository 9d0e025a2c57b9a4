//! Transactions: isolation levels over snapshots and row locks, own writes, savepoints, and who
//! is running. `docs/transactions.md` has what is promised and how.

mod options;
mod range;
mod registry;
mod retry;
mod state;
mod transaction;
mod writes;

pub use options::{Isolation, LockWait, TxnOptions};
pub use range::TxnRange;
pub use registry::TransactionInfo;
pub use transaction::Transaction;

pub(crate) use registry::Registry;
pub(crate) use retry::run;
