//! Reads what can still be read of an extent, block by block.

use bytes::Bytes;

use super::block::BlockCursor;
use super::index::Index;
use super::{Extent, ReadAhead};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::record::{EntryRef, Kind, Lsn, Reference};
use crate::mvcc::Tombstones;

/// Adds to a loss the keys that were lost: those after `before`, or all, up to `last`.
fn keys_of(damage: Damage, before: Option<&[u8]>, last: &[u8]) -> Damage {
    let after = before.map_or_else(String::new, |before| format!("after {} ", shown(before)));
    let keys = format!("keys {after}up to {}", shown(last));
    Damage { what: format!("{}, {keys}", damage.what), ..damage }
}

/// The newest version of a key, and those that it goes on with.
#[derive(Default)]
struct NewestVersions {
    /// The newest first.
    found: Vec<(Lsn, Kind, Vec<u8>)>,
    /// Whether the last one goes on with the next older version.
    go_on: bool,
}

impl NewestVersions {
    fn add(&mut self, entry: &EntryRef<'_>) {
        self.found.push((entry.seq, entry.kind, entry.value.to_vec()));
        self.go_on = entry.is_open_merge();
    }

    /// Passes the gathered entries on, the oldest first, and clears them.
    fn pass(
        &mut self,
        key: Option<&[u8]>,
        each: &mut impl FnMut(&EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        self.go_on = false;
        let Some(key) = key else { return Ok(()) };
        for (seq, kind, value) in self.found.drain(..).rev() {
            each(&EntryRef { key, seq, kind, value: &value })?;
        }
        Ok(())
    }
}

/// A key for people, cut short when it is long.
fn shown(key: &[u8]) -> String {
    const MOST: usize = 64;
    let more = if key.len() > MOST { "…" } else { "" };
    format!("\"{}{more}\"", key[..key.len().min(MOST)].escape_ascii())
}

impl Extent {
    /// The range tombstones that can be read.
    pub(crate) fn salvage_tombstones(&self, lost: &mut Vec<Damage>) -> Tombstones {
        let found = self.load_tail().and_then(|tail| self.load_ranges(&tail, &self.footer(&tail)?));
        found.unwrap_or_else(|error| {
            lost.extend(
                (self.meta().tombstones > 0).then(|| self.loss(0, "range tombstones", &error)),
            );
            Tombstones::default()
        })
    }

    /// Passes the newest version of each key that can be read to `each`, in the order of keys.
    /// Before operands comes what they go on with, the oldest version first. What cannot be read is
    /// added to `lost`: a single block if the index is sound, else everything. Of values that lie
    /// apart each is added alone, with its key.
    ///
    /// # Errors
    ///
    /// What `each` fails with.
    pub(crate) fn salvage(
        &self,
        lost: &mut Vec<Damage>,
        each: impl FnMut(&EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        self.salvage_with(|at| self.separated(at)?.read(), lost, each)
    }

    /// As [`salvage`](Self::salvage); `read` reads values that lie apart.
    pub(super) fn salvage_with(
        &self,
        read: impl Fn(Reference) -> Result<Bytes>,
        lost: &mut Vec<Damage>,
        mut each: impl FnMut(&EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let index = match self.salvage_index() {
            Ok(index) => index,
            Err(error) => {
                lost.push(keys_of(self.loss(0, "extent", &error), None, &self.meta().greatest_key));
                return Ok(());
            }
        };
        let (mut last, ahead): (Option<Vec<u8>>, _) = (None, ReadAhead::for_job(1));
        let mut versions = NewestVersions::default();
        for n in 0..index.entries().len() {
            let offset = index.entries()[n].offset;
            let before = n.checked_sub(1).map(|before| index.last_key(before));
            let block = match self.load_in_turn(&index, n, None, &ahead) {
                Ok(block) => block,
                Err(error) => {
                    let loss = self.loss(offset, "block", &error);
                    lost.push(keys_of(loss, before, index.last_key(n)));
                    continue;
                }
            };
            let mut cursor = BlockCursor::new(&block);
            let mut stepped = cursor.first();
            while stepped.is_ok()
                && let Some(entry) = cursor.entry()
            {
                let is_new = last.as_deref() != Some(entry.key);
                if is_new {
                    versions.pass(last.as_deref(), &mut each)?;
                    last = Some(entry.key.to_vec());
                }
                if is_new || versions.go_on {
                    let seq = self.meta().one_seq().unwrap_or(entry.seq);
                    match entry.reference().map(&read).transpose() {
                        Ok(None) => versions.add(&EntryRef { seq, ..entry }),
                        Ok(Some(value)) => {
                            let (kind, value) = (Kind::Put, &value[..]);
                            versions.add(&EntryRef { seq, kind, value, ..entry });
                        }
                        Err(error) => {
                            versions.go_on = false;
                            lost.push(self.lost_value(offset, entry.key, &error));
                        }
                    }
                }
                stepped = cursor.next();
            }
            if stepped.is_err() {
                let mismatch = Mismatch::new("entries that decode", "one that does not");
                let damage = self.damage(offset, "block", mismatch);
                lost.push(keys_of(damage, last.as_deref(), index.last_key(n)));
            }
        }
        versions.pass(last.as_deref(), &mut each)
    }

    /// Passes the references of all versions that can be read to `each`.
    pub(super) fn each_reference(&self, mut each: impl FnMut(Reference)) {
        let Ok(index) = self.salvage_index() else { return };
        let ahead = ReadAhead::for_job(1);
        for n in 0..index.entries().len() {
            // What is lost is told when it is read for good.
            let Ok(block) = self.load_in_turn(&index, n, None, &ahead) else { continue };
            let mut cursor = BlockCursor::new(&block);
            let mut stepped = cursor.first();
            while stepped.is_ok()
                && let Some(entry) = cursor.entry()
            {
                entry.reference().into_iter().for_each(&mut each);
                stepped = cursor.next();
            }
        }
    }

    fn salvage_index(&self) -> Result<Index> {
        self.load_tail().and_then(|tail| self.load_index(&tail, &self.footer(&tail)?))
    }

    fn lost_value(&self, offset: u32, key: &[u8], error: &Error) -> Damage {
        let damage = self.loss(offset, "value", error);
        Damage { what: format!("{}, of key {}", damage.what, shown(key)), ..damage }
    }

    fn loss(&self, offset: u32, what: &str, error: &Error) -> Damage {
        error.loss(|| self.damage(offset, what, Mismatch::new("", "")))
    }
}
