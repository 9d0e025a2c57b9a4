//! Digests: what a database shows at one commit, as a hash for each table. Two nodes of a shared
//! database that are at one commit have the same.

use crc_fast::{CrcAlgorithm, Digest as Crc};

use super::apply::{LogPosition, ROW};
use crate::base::error::{Error, Result};
use crate::base::progress::{DIGEST, Meter};
use crate::engine::Database;
use crate::engine::catalog::READER_TABLE;
use crate::table::{Snapshot, Table};

/// So many rows are counted at a time.
const ROWS: u64 = 256;

/// What a database shows at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Digest {
    /// The commit, by the numbers of the writer.
    pub commit: u64,
    /// All tables, by name.
    pub tables: Vec<TableDigest>,
}

/// What a table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableDigest {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// A CRC-64 of its keys and values, in order. `None` where rows expire: each node lets them go
    /// by its own clock.
    pub hash: Option<u64>,
}

impl Digest {
    /// What is not the same, a line for each table; nothing if both nodes show the same.
    ///
    /// # Errors
    ///
    /// `Invalid` if the two are of different commits.
    pub fn differences(&self, other: &Digest) -> Result<Vec<String>> {
        if self.commit != other.commit {
            return Err(Error::invalid(format!(
                "the nodes are at commits {} and {}, and only nodes at one commit can be compared; \
                 close the writer, and let followers and standbys catch up",
                self.commit, other.commit
            )));
        }
        let find = |of: &Digest, name: &str| of.tables.iter().find(|it| it.name == name).cloned();
        let mut lines = Vec::new();
        for table in &self.tables {
            let name = &table.name;
            match find(other, name) {
                None => lines.push(format!("table {name:?} is in the first node alone")),
                Some(there) if there.hash.is_none() || table.hash.is_none() => {}
                Some(there) if there == *table => {}
                Some(there) => lines.push(format!(
                    "table {name:?} differs: {} rows with hash {:016x}, and {} with {:016x}",
                    table.rows,
                    table.hash.unwrap_or_default(),
                    there.rows,
                    there.hash.unwrap_or_default()
                )),
            }
        }
        for table in &other.tables {
            if find(self, &table.name).is_none() {
                lines.push(format!("table {:?} is in the second node alone", table.name));
            }
        }
        Ok(lines)
    }
}

impl Database {
    /// What the database shows now: a hash for each table, at one commit. It reads every row, while
    /// writers go on. Of a follower or a standby the commit is the writer's.
    ///
    /// # Errors
    ///
    /// As [`Table::range`]; `Conflict` if a table is dropped or truncated meanwhile; `Cancelled`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use terrace::Options;
    ///
    /// let bucket = format!("file://{}", dir.path().join("bucket").display());
    /// let options = Options::new().pm_size(4 << 20);
    /// let db = options.clone().object_store(&bucket).share(true).open(dir.path().join("one"))?;
    /// db.table("users")?.put("ada", "1815")?;
    /// let digest = db.digest()?;
    /// db.close()?;
    ///
    /// let standby = options.standby(&bucket, dir.path().join("two"))?;
    /// while standby.status().commit < digest.commit {
    ///     std::thread::sleep(std::time::Duration::from_millis(20));
    /// }
    /// let other = standby.database()?.digest()?;
    /// assert!(digest.differences(&other)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn digest(&self) -> Result<Digest> {
        // An operator must not wait for the end of a truncation.
        self.inner.shared.check_open()?;
        let (tables, snapshot) = {
            // None is created, dropped or renamed meanwhile.
            let _ddl = self.inner.shared.ddl.lock();
            let tables = self.table_names().into_iter();
            let tables = tables.map(|name| Ok((self.existing_table(&name)?, name)));
            (tables.collect::<Result<Vec<_>>>()?, self.snapshot()?)
        };
        let meter = Meter::new(&self.inner.options, DIGEST);
        for (table, _) in &tables {
            meter.plan(table.approximate_len(..)?);
        }
        meter.did(0)?;
        let mut commit = snapshot.lsn();
        let mut digests = Vec::with_capacity(tables.len());
        for (table, name) in tables {
            // A table of that name that has no position is a user's.
            if name == READER_TABLE
                && let Some(row) = snapshot.get(&table, ROW)?
                && let Some(position) = LogPosition::of_row(&row)
            {
                commit = position.lsn;
            } else {
                digests.push(digest_of(&table, name, (&snapshot, &meter))?);
            }
        }
        meter.end()?;
        digests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Digest { commit, tables: digests })
    }
}

fn digest_of(
    table: &Table,
    name: String,
    (snapshot, meter): (&Snapshot, &Meter),
) -> Result<TableDigest> {
    if table.options().ttl_micros().is_some() {
        return Ok(TableDigest { name, rows: 0, hash: None });
    }
    let (mut rows, mut sum) = (0u64, Crc::new(CrcAlgorithm::Crc64Nvme));
    for row in snapshot.range(table, ..) {
        let (key, value) = row?;
        for part in [&key[..], &value[..]] {
            sum.update(&(part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        rows += 1;
        if rows.is_multiple_of(ROWS) {
            meter.did(ROWS)?;
        }
    }
    meter.did(rows % ROWS)?;
    Ok(TableDigest { name, rows, hash: Some(sum.finalize()) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests stop and tell")]
mod tests {
    use super::READER_TABLE;
    use crate::base::options::Options;

    /// Bug: the digest left out a user's table that has the name in which followers keep their
    /// state. Cause: it went by the name alone. Fix: it goes by the position in the log as well.
    #[test]
    fn a_table_of_a_user_is_in_the_digest_whatever_its_name() {
        let db = Options::new().pm_size(4 << 20).in_memory(16 << 20).open("db").unwrap();
        db.table(READER_TABLE).unwrap().put("k", "v").unwrap();
        let tables = db.digest().unwrap().tables;
        assert_eq!((tables[0].name.as_str(), tables[0].rows), (READER_TABLE, 1));
    }
}
