//! Segments and large commits.
//!
//! The writer cuts a segment of the groups that wait. A commit whose rows lie in extents goes to
//! the log as parts with its rows, and then the segment that makes them count. It is a bulk load,
//! or did not fit in a zone. A prepare whose transaction has spilled goes the same way, and its
//! verdict too. Between two parts the shipper keeps a key, and no cursor: a part that was not
//! appended is read again.
//!
//! A reader writes the rows of parts to extents that no edit names, and the segment behind the last
//! part commits them. So a reader has the commit whole or not at all. Any other entry behind a part
//! ends the commit: it never was. The rows of a prepare count for no read: they become values of
//! the reader's own table, beside what it keeps of other prepares.

use std::sync::Arc;

use super::log::{GroupKind, LargePart, PartKind, SegmentGroups, records_of};
use super::prepares::{SPILLED_BYTES, SpilledRows, spilled_key};
use crate::base::error::Result;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn};
use crate::commit::{Content, FULL_SEGMENT, StoredGroup};
use crate::memtable::{Record, encode_record};
use crate::sstable::{BlockCache, ReadAhead};
use crate::table::{NewRun, RunWriter, Table, UnshippedRun, UnshippedRuns};
use crate::version::LevelCursor;

/// The groups of the next segment.
#[derive(Debug, Default)]
pub(super) struct SegmentCut {
    pub(super) groups: SegmentGroups,
    pub(super) bytes: u64,
    /// The last LSN, if there is something to ship.
    pub(super) last: Option<Lsn>,
    /// The last LSN that was looked at: behind `last` there is no news.
    pub(super) seen: Lsn,
    /// The first group, if it has rows in extents of this machine; `None` inside if its rows are
    /// not kept: a checkpoint ships it.
    pub(super) large: Option<Option<LargeCommit>>,
}

/// Takes groups up to the LSN `until`, until a segment is full or a group cannot go in it. They are
/// all that there are behind the LSN `after`. They go into the `memory` of an earlier segment.
pub(super) fn cut_segment<'a>(
    groups: impl Iterator<Item = Result<StoredGroup<'a>>>,
    (after, until): (Lsn, Lsn),
    (unshipped, memory): (&UnshippedRuns, Vec<u8>),
) -> Result<SegmentCut> {
    let own = SegmentGroups::within(memory);
    let mut cut = SegmentCut { groups: own, seen: after, ..SegmentCut::default() };
    for group in groups {
        let group = group?;
        if group.lsn > until {
            break;
        }
        if let Some(kind) = kind(&group) {
            if group.has_runs() {
                let large = || LargeCommit::of(&group, unshipped);
                cut.large = cut.last.is_none().then(large);
                return Ok(cut);
            }
            // A group may be as large as a zone.
            if cut.last.is_some() && cut.bytes + group.bytes() > FULL_SEGMENT {
                return Ok(cut);
            }
            cut.groups.push((group.lsn, kind), group.parts());
            cut.bytes += group.bytes();
            cut.last = Some(group.lsn);
        }
        cut.seen = group.lsn;
    }
    // An opening leaves out LSNs that the one before may have given.
    cut.seen = until.max(after);
    Ok(cut)
}

/// How the group is shipped; `None` if it is no news.
fn kind(group: &StoredGroup<'_>) -> Option<GroupKind> {
    match group.content {
        Content::Commit => Some(GroupKind::Commit),
        Content::Prepared => Some(GroupKind::Prepared),
        Content::Moved => None,
    }
}

/// One that is being sent.
#[derive(Debug)]
pub(super) struct LargeCommit {
    pub(super) lsn: Lsn,
    /// Whether it is a prepare.
    prepares: bool,
    /// What it has beside its runs.
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
    fn of(group: &StoredGroup<'_>, unshipped: &UnshippedRuns) -> Option<LargeCommit> {
        let prepares = group.content == Content::Prepared;
        let (mut ids, mut own) = (Vec::new(), Vec::new());
        for record in group.parts().flat_map(records_of) {
            match record.kind {
                Kind::SpilledRun => ids.push(u64::from_le_bytes(record.key.try_into().ok()?)),
                kind => encode_record(&mut own, record.table, kind, record.key, record.value),
            }
        }
        let runs = unshipped.get(&ids)?;
        Some(LargeCommit { lsn: group.lsn, prepares, own, runs, sent: PartsSent::default() })
    }

    /// The next part, of about `most` bytes, and what the log has with it; `None` after the last.
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
        groups.push((self.lsn, kind), std::iter::once(&self.own[..]));
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

/// A commit of which parts have come.
#[derive(Default)]
pub(super) struct FollowedLarge {
    lsn: u64,
    pub(super) parts: u32,
    run: u32,
    done: Vec<NewRun>,
    writing: Option<RunWriter>,
    /// Of a prepare, what was written of it.
    spilled: Option<SpilledRows>,
}

/// What came before the segment of a large commit.
pub(super) struct FollowedRuns {
    pub(super) runs: Vec<NewRun>,
    pub(super) spilled: Option<SpilledRows>,
}

impl FollowedLarge {
    /// Whether a part is the next one of this commit, or the first one of another.
    pub(super) fn goes_on_with(&self, part: &LargePart) -> bool {
        let prepares = part.kind == PartKind::Prepared;
        let is_next = part.lsn == self.lsn && prepares == self.spilled.is_some();
        (is_next || self.parts == 0) && part.index == self.parts
    }

    /// Counts a part of which the reader has all rows.
    pub(super) fn pass_over(&mut self, part: &LargePart) -> Result<()> {
        debug_assert!(self.goes_on_with(part), "parts come in their order");
        if part.run != self.run {
            self.end_run()?;
        }
        (self.lsn, self.run, self.parts) = (part.lsn, part.run, self.parts + 1);
        if part.kind == PartKind::Prepared {
            self.spilled.get_or_insert_with(|| SpilledRows::of(part.lsn));
        }
        Ok(())
    }

    /// Takes some rows of a part in, which go to `table`.
    pub(super) fn add(
        &mut self,
        part: &LargePart,
        rows: &[Record<'_>],
        table: &Table,
    ) -> Result<()> {
        self.pass_over(part)?;
        let loaded = part.kind == PartKind::Loaded;
        let writer = self
            .writing
            .get_or_insert_with(|| RunWriter::new(&table.shared, &table.slot.core(), loaded));
        rows.iter().try_for_each(|row| writer.add(row.kind, row.key, row.value))
    }

    /// Takes a part of a prepare in: its `rows` with the table numbers of the reader, whose own
    /// `table` gets them.
    pub(super) fn add_prepared(
        &mut self,
        part: &LargePart,
        rows: &[u8],
        table: &Table,
    ) -> Result<()> {
        debug_assert!(self.goes_on_with(part), "parts come in their order");
        (self.lsn, self.parts) = (part.lsn, self.parts + 1);
        let spilled = self.spilled.get_or_insert_with(|| SpilledRows::of(part.lsn));
        // All runs become one: the keys of its values go up with each piece.
        let writer = self
            .writing
            .get_or_insert_with(|| RunWriter::new(&table.shared, &table.slot.core(), false));
        for piece in rows.chunks(SPILLED_BYTES) {
            writer.add(Kind::Put, &spilled_key(part.lsn, spilled.pieces), piece)?;
            spilled.pieces += 1;
        }
        spilled.writes += part.rows().count() as u64;
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(writer) = self.writing.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }

    /// What came of the commit `lsn`, which has so many parts; `None` if these are others.
    pub(super) fn finish(mut self, lsn: u64, parts: u32) -> Result<Option<FollowedRuns>> {
        if (self.lsn, self.parts) != (lsn, parts) {
            return Ok(None);
        }
        self.end_run()?;
        Ok(Some(FollowedRuns { runs: self.done, spilled: self.spilled }))
    }
}
