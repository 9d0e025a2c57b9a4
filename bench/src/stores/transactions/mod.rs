//! Transactions behind one small trait: Terrace's, and those of RocksDB's `TransactionDB`. Both
//! lock rows as they write them or ask for them, and read what is committed (read committed).

#[cfg(feature = "peer-rocksdb")]
mod rocksdb;
mod terrace;

use std::path::Path;

use anyhow::{Result, bail};

use super::{Kind, Memory};

/// A store with transactions, durable when they have committed.
pub(crate) trait Transactional: Send + Sync {
    /// Begins one.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>>;

    /// What the store is set to.
    fn settings(&self) -> String;
}

/// Called with a key and a value; whether to go on.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// A transaction. Dropped, it is rolled back.
pub(crate) trait Transaction {
    /// The value of a key, as committed or written here.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The same, and no other transaction writes it until this one ends.
    fn get_for_update(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets a key.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Visits the rows from `from` to before `to`, in order.
    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<()>;

    /// Commits, durably.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Opens a store for transactions.
pub(crate) fn open(kind: Kind, dir: &Path, memory: Memory) -> Result<Box<dyn Transactional>> {
    match kind {
        Kind::Terrace | Kind::TerraceEmulated | Kind::TerraceDelayed => {
            terrace::open(dir, memory, kind)
        }
        #[cfg(feature = "peer-rocksdb")]
        Kind::RocksDb | Kind::RocksDbTuned => rocksdb::open(dir, memory, kind),
        _ => bail!("{} has no transactions, or is not built in", kind.name()),
    }
}

/// Runs `f` in a transaction and commits it, again when another one was in its way: what `f` gave,
/// and how often it ran again.
pub(crate) fn run<T>(
    store: &dyn Transactional,
    f: impl Fn(&dyn Transaction) -> Result<T>,
) -> Result<(T, u64)> {
    let mut again = 0;
    loop {
        let transaction = store.begin()?;
        match f(&*transaction).and_then(|done| transaction.commit().map(|()| done)) {
            Ok(done) => return Ok((done, again)),
            Err(e) if is_retryable(&e) => again += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Whether a transaction failed for what another one did.
fn is_retryable(error: &anyhow::Error) -> bool {
    #[cfg(feature = "peer-rocksdb")]
    if rocksdb::is_retryable(error) {
        return true;
    }
    error.downcast_ref::<::terrace::Error>().is_some_and(::terrace::Error::is_retryable)
}
