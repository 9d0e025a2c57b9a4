//! The Python package of Terrace: the module `terrace._terrace`. The folder `python/terrace` has
//! what is written in Python, with the type stubs of this module.
//!
//! Each call that may wait releases the interpreter's lock (`calls.rs`), a look-up only before it
//! waits for a device (`reads.rs`). None holds a lock of its own while it has that one. No thread
//! takes it again once the interpreter ends (`exit.rs`). Errors of the engine become exceptions by
//! kind (`errors.rs`).

#![allow(clippy::needless_pass_by_value, reason = "PyO3 gives arguments by value")]
#![allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]

mod backup;
mod batch;
mod bulk_load;
mod bytes_like;
mod calls;
mod compact;
mod database;
mod dump;
mod errors;
mod events;
mod exit;
mod follower;
mod json;
mod key_range;
mod open;
mod options;
mod pending;
mod progress;
mod reads;
mod retry;
mod rows;
mod snapshot;
mod table;
mod transaction;

use pyo3::prelude::*;

/// The module `terrace._terrace`.
#[pymodule(gil_used = true)]
mod _terrace {
    #[pymodule_export]
    use crate::backup::{BackupSet, restore};
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::database::Database;
    #[pymodule_export]
    use crate::follower::{Follower, follow, forget_follower, open_shared, shared_status, standby};
    #[pymodule_export]
    use crate::open::{create, open, option_names, salvage, verify};
    #[pymodule_export]
    use crate::pending::{PendingCommit, Wakeup};
    #[pymodule_export]
    use crate::retry::{Attempt, Transactions};
    #[pymodule_export]
    use crate::rows::Rows;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::transaction::Transaction;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::exit::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
