//! LMDB, through heed, with cursors that remove what they stand on.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use heed::types::Bytes;
use heed::{
    CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags, RoTxn, RwTxn,
};

use super::{Meant, ReadWork, RowReader, RowStore, RowWriter, WriteWork};
use crate::stores::read_value;

const MAP: usize = 32 << 30;

type Rows = Database<Bytes, Bytes>;

struct Lmdb {
    path: PathBuf,
    env: Option<Env>,
    db: Rows,
}

pub(super) fn open(dir: &Path) -> Result<Box<dyn RowStore>> {
    let path = dir.join("db");
    std::fs::create_dir_all(&path)?;
    let env = environment(&path)?;
    let mut transaction = env.write_txn()?;
    let db = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { path, env: Some(env), db }))
}

fn environment(path: &Path) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_readers(256);
    // SAFETY: no other process opens this environment, it is not on a network file system, and
    // nothing writes through its mapping.
    Ok(unsafe { options.open(path)? })
}

impl Lmdb {
    fn env(&self) -> Result<&Env> {
        self.env.as_ref().context("a compaction has failed")
    }
}

impl RowStore for Lmdb {
    fn write(&self, sync: bool, work: WriteWork<'_>) -> Result<()> {
        let env = self.env()?;
        let mode = if sync { FlagSetMode::Disable } else { FlagSetMode::Enable };
        // SAFETY: only whether commits sync is changed, never how pages are mapped.
        unsafe { env.set_flags(EnvFlags::NO_SYNC, mode)? };
        let mut writer = Writer { txn: env.write_txn()?, db: self.db };
        work(&mut writer)?;
        Ok(writer.txn.commit()?)
    }

    fn read(&self, work: ReadWork<'_>) -> Result<()> {
        let txn = self.env()?.read_txn()?;
        work(&mut Reader { txn: &txn, db: self.db })
    }

    fn compact(&mut self) -> Result<()> {
        let (new, old) = (self.path.join("compact.mdb"), self.path.join("data.mdb"));
        let mut file = std::fs::File::create_new(&new)?;
        let env = self.env.take().context("a compaction has failed")?;
        env.copy_to_file(&mut file, CompactionOption::Enabled)?;
        file.sync_all()?;
        env.prepare_for_closing().wait();
        std::fs::rename(new, old)?;
        let env = environment(&self.path)?;
        let transaction = env.read_txn()?;
        self.db = env.open_database(&transaction, None)?.context("the database is gone")?;
        drop(transaction);
        self.env = Some(env);
        Ok(())
    }

    fn settings(&self) -> String {
        format!("map of {} GiB; its cache is the page cache, which no setting bounds", MAP >> 30)
    }
}

struct Writer<'a> {
    txn: RwTxn<'a>,
    db: Rows,
}

impl RowWriter for Writer<'_> {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(&mut self.txn, key, value)?)
    }

    fn append(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_with_flags(&mut self.txn, PutFlags::APPEND, key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.db.delete(&mut self.txn, key)?;
        Ok(())
    }

    fn pop(&mut self, from_back: bool) -> Result<bool> {
        let own = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
        macro_rules! take {
            ($rows:expr) => {{
                let mut rows = $rows;
                let row = rows.next().transpose()?.map(own);
                if row.is_some() {
                    // SAFETY: the row was copied; nothing refers to the pages any more.
                    unsafe { rows.del_current()? };
                }
                row
            }};
        }
        let row = match from_back {
            true => take!(self.db.rev_iter_mut(&mut self.txn)?),
            false => take!(self.db.iter_mut(&mut self.txn)?),
        };
        Ok(std::hint::black_box(row).is_some())
    }

    fn retain(&mut self, stays: Meant<'_>) -> Result<u64> {
        let (mut rows, mut removed) = (self.db.iter_mut(&mut self.txn)?, 0);
        while let Some(row) = rows.next() {
            let (key, value) = row?;
            if !stays(key, value) {
                // SAFETY: the row is not used any more.
                unsafe { rows.del_current()? };
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn extract_if(&mut self, from: &[u8], to: &[u8], goes: Meant<'_>) -> Result<u64> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let (mut rows, mut removed) = (self.db.range_mut(&mut self.txn, &range)?, 0);
        while let Some(row) = rows.next() {
            let (key, value) = row?;
            if goes(key, value) {
                std::hint::black_box((key.to_vec(), value.to_vec()));
                // SAFETY: the row was copied.
                unsafe { rows.del_current()? };
                removed += 1;
            }
        }
        Ok(removed)
    }
}

struct Reader<'a> {
    txn: &'a RoTxn<'a>,
    db: Rows,
}

impl RowReader for Reader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.db.get(self.txn, key)?.map(read_value).is_some())
    }

    fn range(&mut self, from: &[u8], rows: usize) -> Result<usize> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let mut found = 0;
        for row in self.db.range(self.txn, &range)?.take(rows) {
            read_value(row?.1);
            found += 1;
        }
        Ok(found)
    }
}
