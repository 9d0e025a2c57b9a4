//! The per-core executor of a database.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests;

use std::sync::Arc;

use super::Database;
use crate::error::Result;
use crate::per_core::PerCore;

impl Database {
    /// Starts an executor with so many shards: threads that each own a part of the keys, and do
    /// what is submitted for them. As many as there are processors is best. See [`PerCore`].
    ///
    /// It draws which shard owns which keys by the tables that there are. So it is best made after
    /// a load, and once for a long time.
    ///
    /// # Errors
    ///
    /// - `Invalid`: there are no shards, or more than
    ///   [`MAX_SHARDS`](crate::limits::MAX_SHARDS);
    /// - `Unavailable`: a thread cannot be started, or this is a forked child;
    /// - `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// users.put("ada", "1815")?;
    /// users.put("alan", "1912")?;
    ///
    /// let cores = db.per_core(2)?;
    /// let sharded = cores.table(&users)?;
    ///
    /// // Look-ups, each on the shard that owns the key.
    /// let mut batch = cores.batch();
    /// batch.get(&sharded, "alan").get(&sharded, "kurt");
    /// let values = batch.run()?;
    /// assert_eq!((values.get(0), values.get(1)), (Some(&b"1912"[..]), None));
    ///
    /// // A closure on the shard that owns a key.
    /// let task = sharded.submit("ada", move |_shard| {
    ///     users.put("ada", "1852")?;
    ///     Ok(users.get("ada")?)
    /// })?;
    /// assert_eq!(task.wait()?.as_deref(), Some(&b"1852"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn per_core(&self, shards: usize) -> Result<PerCore> {
        let slots = self.inner.ctx.tables.slots_in_order();
        PerCore::start(self.inner.shared(), Arc::clone(&self.inner) as _, &slots, shards)
    }
}
