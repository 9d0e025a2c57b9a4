//! Write batches.

use std::borrow::Cow;
use std::sync::Arc;

use super::atomic::ChangeRows;
use super::core::{TableBatch, TableTarget};
use super::{Shared, Table};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits;
use crate::base::operator::TableOperator;
use crate::base::options::Durability;
use crate::base::record::{ChainBase, Kind, MAX_OPERAND_LEN, encode_chain};
use crate::commit::Target;
use crate::locks::Patience;
use crate::read::{KeyBounds, KeyRange};

/// Operations on any tables of one database that become visible and durable together, or not at
/// all. Commit it with [`Database::write`](crate::Database::write).
///
/// Of several operations on one key the last counts, range deletes included. A batch is in memory
/// until it is committed. One that does not fit in the region's largest zone (16 MiB less 64 bytes
/// at the default size) goes to extents, and is always durable; its range deletes have to fit.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
/// let (users, emails) = (db.table("users")?, db.table("emails")?);
/// let mut batch = terrace::WriteBatch::new();
/// batch.put(&users, "ada", "ada@example.org").put(&emails, "ada@example.org", "ada");
/// db.write(batch)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(super) batch: TableBatch,
    database: Option<Arc<Shared>>,
    mixed: bool,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value` in `table`. A key or value over its limit makes the commit fail.
    pub fn put(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        self.push(table, Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from `table`; nothing happens if it is not there.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.push(table, Kind::Delete, key.as_ref(), &[])
    }

    /// Removes every key of `table` in `range`: those that are there when the batch is committed,
    /// and those that the batch has put before. Keys that it puts afterwards stay. A bound over the
    /// limit of keys makes the commit fail.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let users = db.table("users")?;
    /// let mut batch = terrace::WriteBatch::new();
    /// batch.put(&users, "ada", "1815").delete_range(&users, "a".."b").put(&users, "alan", "1912");
    /// db.write(batch)?;
    /// assert_eq!(users.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> &mut WriteBatch {
        if let Some(interval) = KeyRange::from_bounds(&range).interval() {
            let target = self.target(table);
            self.batch.push_range(&target, &interval);
        }
        self
    }

    /// Removes every key of `table` that begins with `prefix`. As [`WriteBatch::delete_range`].
    pub fn delete_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) -> &mut WriteBatch {
        let KeyRange { lower, upper } = KeyRange::prefix(prefix.as_ref());
        self.delete_range(table, (lower, upper))
    }

    /// Makes the whole batch fail at commit.
    fn refuse(&mut self, error: &Error) -> &mut WriteBatch {
        self.batch.refuse(error.kind(), error.to_string());
        self
    }

    /// Adds an operation as a record has it.
    pub(crate) fn push(
        &mut self,
        table: &Table,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> &mut WriteBatch {
        let target = self.target(table);
        self.batch.push(&target, kind, key, value);
        self
    }

    /// Sets the commit's blob: up to 4 KiB of the caller's, a position in another log for example,
    /// which [`Database::last_blob`](crate::Database::last_blob) gives back once the commit is
    /// visible, and after a restart, until a later commit brings another one. One over its limit
    /// makes the commit fail.
    pub fn set_blob(&mut self, blob: impl AsRef<[u8]>) -> &mut WriteBatch {
        self.batch.set_blob(blob.as_ref());
        self
    }

    fn target(&mut self, table: &Table) -> TableTarget {
        let database = self.database.get_or_insert_with(|| Arc::clone(&table.shared));
        self.mixed |= !Arc::ptr_eq(database, &table.shared);
        TableTarget::Slot(Arc::clone(&table.slot))
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of the region it will take at most.
    #[doc(hidden)]
    pub fn stored_bytes(&self) -> usize {
        self.batch.stored_len()
    }

    /// Forgets all operations.
    pub fn clear(&mut self) {
        *self = WriteBatch::default();
    }

    /// Its operations, for a commit in a database.
    pub(crate) fn check<'a>(
        batch: Cow<'a, WriteBatch>,
        shared: &Arc<Shared>,
    ) -> Result<Cow<'a, TableBatch>> {
        let foreign = batch.database.as_ref().is_some_and(|d| !Arc::ptr_eq(d, shared));
        if batch.mixed || foreign {
            return Err(Error::invalid(
                "the batch holds tables of another database; use a batch for each",
            ));
        }
        let mut batch = match batch {
            Cow::Owned(batch) => Cow::Owned(batch.batch),
            Cow::Borrowed(batch) => Cow::Borrowed(&batch.batch),
        };
        // A batch that the caller keeps is copied only if its operations change.
        if !matches!(&batch, Cow::Borrowed(batch) if batch.merges().is_empty()) {
            shared.merge_deep_rows(batch.to_mut())?;
        }
        Ok(batch)
    }
}

// Operands: writes that need not know the value that they change.
//
// An operand is one more record of its key. So that a read has few of them to merge, a writer that
// finds [`MOST_IN_A_ROW`] records of operands in memory first writes the value that they make. It
// looks in memory alone, and counts by the depth that the newest record notes. A writer that finds
// the row locked writes one record more. It tries again at each multiple, and where the depth ends
// it waits for the row, as the write itself does. A drain joins what is left.

/// So many records of operands of a key in a row are merged before the next one is written.
const MOST_IN_A_ROW: u8 = 64;

impl Table {
    /// Merges `operand` into the value of `key`, durably, with the table's merge operator (see
    /// [`TableOptions::merge_operator`](crate::TableOptions::merge_operator)).
    ///
    /// It writes the operand and reads no value: a look-up in memory, and a record as
    /// [`Table::put`] writes one. Reads merge. Drains and compactions leave the result in the place
    /// of what they read. Of 64 operands in a row that lie in memory the next call first writes the
    /// value. That call locks the row, as [`Table::update`](Table::update) does, so from then on
    /// plain writes of the database lock their rows too. If the row is locked, it leaves that to a
    /// later call; from 255 operands on it waits for the row.
    ///
    /// An operand that the operator refuses is written all the same: reads of the key fail then.
    ///
    /// # Errors
    ///
    /// `Invalid` if the table has no merge operator, or one that is not registered; otherwise as
    /// [`Table::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let counter = terrace::TableOptions::new().merge_operator(terrace::operators::COUNTER);
    /// let hits = db.create_table("hits", counter)?;
    /// hits.merge("index.html", 1i64.to_be_bytes())?;
    /// hits.merge("index.html", 41i64.to_be_bytes())?;
    /// assert_eq!(hits.get("index.html")?.as_deref(), Some(&42i64.to_be_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = TableBatch::default();
        let target = TableTarget::Slot(Arc::clone(&self.slot));
        let record = self.operand(operand.as_ref())?;
        batch.push(&target, Kind::Merge, key.as_ref(), &record);
        self.shared.merge_deep_rows(&mut batch)?;
        self.shared.write(&batch, self.durability)
    }

    /// The merge operator of the table.
    pub(crate) fn operator(&self) -> Result<TableOperator> {
        let core = self.slot.core();
        let operator = core.view().operator.clone();
        operator.check().map_err(|e| e.in_table(|| core.name()))?;
        Ok(operator)
    }

    /// The record of an operand.
    fn operand(&self, operand: &[u8]) -> Result<Vec<u8>> {
        self.operator()?;
        limits::check_len("merge operand", operand.len(), MAX_OPERAND_LEN)?;
        Ok(encode_chain(ChainBase::Below, 1, [operand].into_iter()))
    }
}

impl WriteBatch {
    /// Merges `operand` into the value of `key`. What the batch does to the key before counts. See
    /// [`Table::merge`]. Without an operator that is registered the commit fails as `Invalid`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let append = terrace::TableOptions::new().merge_operator(terrace::operators::APPEND);
    /// let log = db.create_table("log", append)?;
    /// let mut batch = terrace::WriteBatch::new();
    /// batch.put(&log, "day", "a").merge(&log, "day", "b").merge(&log, "day", "c");
    /// db.write(batch)?;
    /// assert_eq!(log.get("day")?.as_deref(), Some(&b"abc"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut WriteBatch {
        match table.operand(operand.as_ref()) {
            Ok(record) => self.push(table, Kind::Merge, key.as_ref(), &record),
            Err(e) => self.refuse(&e),
        }
    }
}

impl Shared {
    /// Prepares operands to be written: counts those that lie in memory already, and merges them
    /// first where they are many.
    pub(crate) fn merge_deep_rows(&self, batch: &mut TableBatch) -> Result<()> {
        let mut usual = None;
        for place in batch.merges() {
            let (target, key) = batch.row(place);
            let below = self.operands_in_memory(target, key)?;
            let is_merged = match below {
                // No record counts further. All rows have the same deadline.
                u8::MAX => {
                    let patience = *usual.get_or_insert_with(Patience::usual);
                    self.merge_row(target, key, patience)?
                }
                n if n > 0 && n.is_multiple_of(MOST_IN_A_ROW) => {
                    self.merge_row(target, key, Patience::None)?
                }
                _ => false,
            };
            let depth = match (is_merged, below) {
                (true, _) => 1,
                // Its operator may refuse it: it is tried again when as many have come as before.
                (false, u8::MAX) => u8::MAX - MOST_IN_A_ROW,
                (false, below) => below + 1,
            };
            batch.set_depth(place, depth);
        }
        Ok(())
    }

    fn operands_in_memory(&self, target: &TableTarget, key: &[u8]) -> Result<u8> {
        let _guard = crate::mvcc::pin();
        self.check_open()?;
        target.resolve().view().operands_in_memory(key)
    }

    /// Writes the value that the operands of a row make, if no transaction has it locked and the
    /// operator can; whether it did. Readers see the same before and after.
    fn merge_row(&self, target: &TableTarget, key: &[u8], patience: Patience) -> Result<bool> {
        let TableTarget::Slot(slot) = target else { return Ok(false) };
        limits::check_key(key)?;
        let rows = ChangeRows { shared: self, slot, durability: Durability::Relaxed };
        let done = rows.change(key, patience, |value| {
            let same = value.map(|value| Some(value.to_vec()));
            (same, value.is_some())
        });
        match done {
            Err(e) if e.kind().is_refusal() || e.kind() == ErrorKind::Timeout => Ok(false),
            done => done,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::MergeOperator;
    use crate::base::options::{Options, TableOptions};
    use crate::locks::{Locker, Mode};
    use crate::operators::COUNTER;

    /// Bug: once the depth of a hot key had come to 255 its operands were never merged again.
    /// Cause: a writer that found the row locked at 64, 128 and 192 tried no more: 255 is no
    /// multiple of 64, and no record counts further. Fix: it tries at 255 too, and waits there.
    #[test]
    fn operands_are_merged_however_often_the_row_was_locked() {
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().pm_size(4 << 20).stepped().open(dir.path()).unwrap();
        let options = TableOptions::new().merge_operator(COUNTER);
        let t = db.create_table("t", options).unwrap();
        let (target, shared) = (TableTarget::Slot(Arc::clone(&t.slot)), &t.shared);
        let depth = || shared.operands_in_memory(&target, b"hits").unwrap();
        let merge = |is_locked: bool| {
            let mut batch = TableBatch::default();
            let operand = t.operand(&1i64.to_be_bytes()).unwrap();
            batch.push(&target, Kind::Merge, b"hits", &operand);
            let mut other = Locker::new(&shared.locks);
            if is_locked {
                let (space, mode) = (target.lock_space(), Mode::Exclusive);
                other.lock_key(space, b"hits", mode, Patience::None, &String::new).unwrap();
            }
            shared.merge_deep_rows(&mut batch).unwrap();
            drop(other);
            shared.write(&batch, Durability::Relaxed).unwrap();
        };
        (0..255).for_each(|_| merge(true));
        assert_eq!(depth(), 255);
        for _ in 0..300 {
            merge(false);
            assert!(depth() <= MOST_IN_A_ROW, "{} records of operands", depth());
        }
        assert_eq!(t.get("hits").unwrap().unwrap(), &555i64.to_be_bytes()[..]);
    }

    /// Counts how often it is asked, and makes no value.
    struct Refuses(Arc<AtomicU64>);

    impl MergeOperator for Refuses {
        fn name(&self) -> &str {
            "test.refuses"
        }

        fn merge(
            &self,
            _: &[u8],
            _: Option<&[u8]>,
            _: &[u8],
        ) -> std::result::Result<Vec<u8>, String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err("no value".into())
        }
    }

    /// Bug: from 255 operands on, each merge of a row read all of them, if its operator refused
    /// one. Cause: the depth stayed 255, where each merge tries. Fix: it goes back, and as many are
    /// written before the next try.
    #[test]
    fn a_row_whose_operator_refuses_is_seldom_tried() {
        let dir = tempfile::tempdir().unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let operator = Refuses(Arc::clone(&asked));
        let options = Options::new().pm_size(4 << 20).stepped().merge_operator(operator);
        let db = options.open(dir.path()).unwrap();
        let options = TableOptions::new().merge_operator("test.refuses");
        let t = db.create_table("t", options).unwrap().durability(Durability::Relaxed);
        (0..2000).for_each(|_| t.merge("k", "1").unwrap());
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked > 20 && asked < 100, "{asked} tries");
    }
}
