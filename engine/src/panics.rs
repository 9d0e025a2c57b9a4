//! Handles stay usable after a panic of the caller that unwinds past them: calls of the engine do
//! not run the caller's code while something is half changed, and panic for nothing that can
//! happen. A transaction that was being used is whole, and is rolled back when it is dropped.

use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::backup::BackupSet;
use crate::engine::Database;
use crate::per_core::{PerCore, ShardedTable};
use crate::table::{BulkLoad, PendingCommit, Range, Snapshot, Table, WriteBatch};
use crate::txn::{Transaction, TxnRange};

macro_rules! unwind_safe {
    ($($handle:ty),*) => {
        $(
            impl UnwindSafe for $handle {}
            impl RefUnwindSafe for $handle {}
        )*
    };
}

unwind_safe!(
    Database,
    Table,
    Snapshot,
    Range,
    WriteBatch,
    BulkLoad,
    PendingCommit,
    Transaction,
    TxnRange,
    BackupSet,
    PerCore,
    ShardedTable
);
