//! A commit whose rows lie in extents, on its way to the log: parts with its rows, and then the
//! segment that makes them count. The commit is a bulk load, or did not fit in a zone. A prepare
//! whose transaction has spilled goes the same way, and its verdict too.
//!
//! Between two parts the shipper keeps a key, and no cursor: a part that was not appended is read
//! again.

use std::sync::Arc;

use super::log::{GroupKind, LargePart, PartKind, SegmentGroups, records_of};
use crate::commit::{Content, FedGroup};
use crate::error::Result;
use crate::extent::{BlockCache, ReadAhead};
use crate::levels::LevelCursor;
use crate::memtable::encode_record;
use crate::record::{Cursor, Kind, LSN_MAX, Lsn, Reader, put_bytes};
use crate::table::{UnshippedRun, UnshippedRuns};

/// One that is being sent.
#[derive(Debug)]
pub(super) struct LargeCommit {
    pub(super) lsn: Lsn,
    /// Whether it is a prepare.
    prepares: bool,
    /// What it has beside its runs: one part of a group, with its length.
    own: Vec<u8>,
    runs: Vec<UnshippedRun>,
    pub(super) sent: PartsSent,
}

/// What the log has of it.
#[derive(Clone, Debug, Default)]
pub(super) struct PartsSent {
    parts: u32,
    /// The run that comes next, and the last key of it that was sent.
    run: usize,
    key: Option<Vec<u8>>,
}

impl LargeCommit {
    /// The commit of a group with runs; `None` if its rows are not here: a checkpoint ships it.
    pub(super) fn of(
        group: FedGroup,
        parts: &[u8],
        unshipped: &UnshippedRuns,
    ) -> Option<LargeCommit> {
        let prepares = match group.content {
            Content::Commit => false,
            Content::Prepared => true,
            Content::Moved => return None,
        };
        let (mut ids, mut records) = (Vec::new(), Vec::new());
        let mut reader = Reader::new(parts);
        while !reader.is_empty() {
            for record in records_of(reader.bytes()?) {
                match record.kind {
                    Kind::SpilledRun => {
                        ids.push(u64::from_le_bytes(record.key.try_into().ok()?));
                    }
                    kind => {
                        encode_record(&mut records, record.table, kind, record.key, record.value);
                    }
                }
            }
        }
        let runs = unshipped.get(&ids)?;
        let mut own = Vec::new();
        put_bytes(&mut own, &records);
        Some(LargeCommit { lsn: group.lsn, prepares, own, runs, sent: PartsSent::default() })
    }

    /// The next part, of about `most` bytes, and what the log has with it; `None` after the last.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub(super) fn next_part(
        &self,
        cache: &Arc<BlockCache>,
        most: usize,
    ) -> Result<Option<(LargePart, PartsSent)>> {
        let PartsSent { parts, mut run, ref key } = self.sent;
        let mut key = key.clone();
        while let Some(of) = self.runs.get(run) {
            let mut part = LargePart {
                lsn: self.lsn,
                index: parts,
                run: run as u32,
                table: of.table,
                kind: match (self.prepares, of.loaded) {
                    (true, _) => PartKind::Prepared,
                    (false, true) => PartKind::Loaded,
                    (false, false) => PartKind::Written,
                },
                records: Vec::new(),
            };
            key = fill(&mut part, of, key.as_deref(), (cache, most))?;
            if !part.records.is_empty() {
                return Ok(Some((part, PartsSent { parts: parts + 1, run, key })));
            }
            run += 1;
        }
        Ok(None)
    }

    /// The groups of the segment behind the last part.
    pub(super) fn groups(&self) -> SegmentGroups {
        let mut groups = SegmentGroups::default();
        let parts = self.sent.parts;
        let kind = match self.prepares {
            true => GroupKind::PreparedLarge(parts),
            false => GroupKind::Large(parts),
        };
        groups.push((self.lsn, kind), 1, &self.own);
        groups
    }
}

/// Adds rows of a run behind a key; the last key, `None` if there are no more.
fn fill(
    part: &mut LargePart,
    run: &UnshippedRun,
    after: Option<&[u8]>,
    (cache, most): (&Arc<BlockCache>, usize),
) -> Result<Option<Vec<u8>>> {
    let extents = Arc::clone(run.rows.extents());
    let mut cursor = LevelCursor::new(extents, Arc::clone(cache), ReadAhead::for_job(1));
    cursor.seek(after.unwrap_or_default(), LSN_MAX)?;
    let mut last: Option<Vec<u8>> = None;
    while let Some(entry) = cursor.entry() {
        if after == Some(entry.key) {
            cursor.next()?;
            continue;
        }
        match cursor.separated()? {
            Some(value) => part.add(Kind::Put, entry.key, &value.read()?),
            None => part.add(entry.kind, entry.key, entry.value),
        }
        let key = last.get_or_insert_default();
        key.clear();
        key.extend_from_slice(entry.key);
        if part.records.len() >= most {
            break;
        }
        cursor.next()?;
    }
    Ok(last)
}
