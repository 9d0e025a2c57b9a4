//! Edits: what changes in the metadata, all or nothing.
//!
//! In memory an operation that adds an extent carries the extent; from the journal it comes with
//! the description alone.

use std::sync::Arc;

use crate::base::options::TableOptions;
use crate::base::record::{Lsn, Reader, RowTable, TableId, put_bytes, put_u32, put_u64};
use crate::mvcc::{DrainedMap, KeyInterval, TimeMark};
use crate::sstable::{Described, Extent, ExtentMeta};

/// One change. Levels are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op<E = Arc<Extent>> {
    /// A table comes to be.
    CreateTable { table: TableId, created_lsn: Lsn, name: String },
    /// A table goes, and its extents with it.
    DropTable { table: TableId },
    /// A table is called otherwise.
    RenameTable { table: TableId, name: String },
    /// An extent enters a level.
    AddExtent { table: TableId, level: u8, extent: E },
    /// An extent leaves a level: for good, or the same edit adds it in another place.
    RemoveExtent { table: TableId, level: u8, id: u64 },
    /// D of the interval rises to `seq`.
    Drained { table: TableId, seq: Lsn, interval: KeyInterval },
    /// The whole drained map.
    DrainedMap { table: TableId, map: DrainedMap },
    /// Each counter rises to at least this. Every edit that is journaled gets one, so that callers
    /// need it only for the table-event LSN (and may leave the others 0).
    Counters { next_table: TableId, next_extent: u64, table_event_lsn: Lsn },
    /// What a table was created with, where that is not the default.
    TableOptions { table: TableId, options: TableOptions },
    /// An extent changes its level, unread.
    MoveExtent { table: TableId, from: u8, to: u8, id: u64 },
    /// Extents, by key, are kept for a run that is about to be committed; `loaded` if they are laid
    /// out as those of levels are.
    AddRun { table: TableId, run: u64, extents: Vec<E>, loaded: bool },
    /// The run was committed: all of it has this sequence number.
    CommitRun { table: TableId, run: u64, lsn: Lsn },
    /// The run was not committed, and goes.
    DropRun { table: TableId, run: u64 },
    /// All of an extent of a committed run is drained, and it goes; with the last one the run.
    RemoveFromRun { table: TableId, run: u64, id: u64 },
    /// A row table of level 0 is in the region: its records no longer count in zones.
    AddRow { table: TableId, row: RowTable },
    /// All of a row table is drained, and it goes.
    RemoveRow { table: TableId, id: u64 },
    /// All at or below the mark's LSN was committed by its time.
    TimeMark(TimeMark),
    /// Records of the table live so many microseconds, or 0 for ever, from now on; all at or below
    /// the LSN have expired and stay so.
    TimeToLive { table: TableId, ttl: u64, expired: Lsn },
    /// Extents of a committed run change to a level, unread: all their records have the run's
    /// sequence number from then on. With the last extent the run goes.
    MoveFromRun { table: TableId, run: u64, level: u8, ids: Vec<u64> },
}

/// Changes that become true together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit<E = Arc<Extent>> {
    pub(crate) ops: Vec<Op<E>>,
}

impl<E> Default for Edit<E> {
    fn default() -> Edit<E> {
        Edit { ops: Vec::new() }
    }
}

impl<E> Op<E> {
    /// The table that it is about.
    pub(super) fn table(&self) -> Option<TableId> {
        match self {
            Op::CreateTable { table, .. }
            | Op::DropTable { table }
            | Op::RenameTable { table, .. }
            | Op::AddExtent { table, .. }
            | Op::RemoveExtent { table, .. }
            | Op::Drained { table, .. }
            | Op::DrainedMap { table, .. }
            | Op::TableOptions { table, .. }
            | Op::MoveExtent { table, .. }
            | Op::AddRun { table, .. }
            | Op::CommitRun { table, .. }
            | Op::DropRun { table, .. }
            | Op::RemoveFromRun { table, .. }
            | Op::AddRow { table, .. }
            | Op::RemoveRow { table, .. }
            | Op::TimeToLive { table, .. }
            | Op::MoveFromRun { table, .. } => Some(*table),
            Op::Counters { .. } | Op::TimeMark(_) => None,
        }
    }
}

impl<E: Described> Op<E> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::CreateTable { table, created_lsn, name } => {
                head(out, 1, *table);
                put_u64(out, *created_lsn);
                put_bytes(out, name.as_bytes());
            }
            Op::DropTable { table } => head(out, 2, *table),
            Op::RenameTable { table, name } => {
                head(out, 3, *table);
                put_bytes(out, name.as_bytes());
            }
            Op::AddExtent { table, level, extent } => {
                in_level(out, 4, *table, *level);
                extent.meta().encode(out);
            }
            Op::RemoveExtent { table, level, id } => {
                in_level(out, 5, *table, *level);
                put_u64(out, *id);
            }
            Op::Drained { table, seq, interval } => {
                head(out, 6, *table);
                put_u64(out, *seq);
                put_bytes(out, &interval.start);
                out.push(u8::from(interval.end.is_some()));
                put_bytes(out, interval.end.as_deref().unwrap_or_default());
            }
            Op::DrainedMap { table, map } => {
                head(out, 7, *table);
                put_u32(out, map.steps().len() as u32);
                for (start, seq) in map.steps() {
                    put_bytes(out, start);
                    put_u64(out, *seq);
                }
            }
            Op::Counters { next_table, next_extent, table_event_lsn } => {
                numbers(out, 8, *next_table, &[*next_extent, *table_event_lsn]);
            }
            Op::MoveExtent { table, from, to, id } => {
                head(out, 9, *table);
                out.extend_from_slice(&[*from, *to]);
                put_u64(out, *id);
            }
            Op::AddRun { table, run, extents, loaded } => {
                add_run(out, *table, *run, extents, *loaded);
            }
            Op::CommitRun { table, run, lsn } => numbers(out, 11, *table, &[*run, *lsn]),
            Op::DropRun { table, run } => numbers(out, 12, *table, &[*run]),
            Op::TableOptions { table, options } => {
                head(out, 13, *table);
                let mut fields = Vec::new();
                options.encode(&mut fields);
                put_bytes(out, &fields);
            }
            Op::RemoveFromRun { table, run, id } => numbers(out, 14, *table, &[*run, *id]),
            Op::AddRow { table, row } => {
                head(out, 18, *table);
                row.encode(out);
            }
            Op::RemoveRow { table, id } => numbers(out, 19, *table, &[*id]),
            Op::TimeMark(TimeMark { lsn, time }) => numbers(out, 16, 0, &[*lsn, *time]),
            Op::TimeToLive { table, ttl, expired } => numbers(out, 17, *table, &[*ttl, *expired]),
            Op::MoveFromRun { table, run, level, ids } => {
                numbers(out, 15, *table, &[*run]);
                out.push(*level);
                put_u32(out, ids.len() as u32);
                ids.iter().for_each(|id| put_u64(out, *id));
            }
        }
    }
}

/// The extents as they were written: an edit that was to number them may have been refused.
fn add_run<E: Described>(out: &mut Vec<u8>, table: TableId, run: u64, extents: &[E], loaded: bool) {
    numbers(out, 10, table, &[run]);
    out.push(u8::from(loaded));
    put_u32(out, extents.len() as u32);
    extents.iter().for_each(|extent| extent.as_written().encode(out));
}

/// What begins with a level.
fn in_level(out: &mut Vec<u8>, kind: u8, table: TableId, level: u8) {
    head(out, kind, table);
    out.push(level);
}

/// An operation of nothing but numbers.
fn numbers(out: &mut Vec<u8>, kind: u8, table: TableId, numbers: &[u64]) {
    head(out, kind, table);
    numbers.iter().for_each(|number| put_u64(out, *number));
}

/// The kind and the number that every operation begins with.
fn head(out: &mut Vec<u8>, kind: u8, number: u32) {
    out.push(kind);
    put_u32(out, number);
}

impl Op<Arc<ExtentMeta>> {
    fn decode(reader: &mut Reader<'_>) -> Option<Op<Arc<ExtentMeta>>> {
        let kind = reader.u8()?;
        let table = reader.u32()?;
        Some(match kind {
            1 => Op::CreateTable { table, created_lsn: reader.u64()?, name: name(reader)? },
            2 => Op::DropTable { table },
            3 => Op::RenameTable { table, name: name(reader)? },
            4 => {
                let level = reader.u8()?;
                Op::AddExtent { table, level, extent: Arc::new(ExtentMeta::decode(reader)?) }
            }
            5 => Op::RemoveExtent { table, level: reader.u8()?, id: reader.u64()? },
            6 => Op::Drained { table, seq: reader.u64()?, interval: interval(reader)? },
            7 => Op::DrainedMap { table, map: drained_map(reader)? },
            8 => Op::Counters {
                next_table: table,
                next_extent: reader.u64()?,
                table_event_lsn: reader.u64()?,
            },
            9 => {
                let (from, to) = (reader.u8()?, reader.u8()?);
                Op::MoveExtent { table, from, to, id: reader.u64()? }
            }
            10 => {
                let (run, loaded) = (reader.u64()?, reader.flag()?);
                Op::AddRun { table, run, extents: descriptions(reader)?, loaded }
            }
            11 => Op::CommitRun { table, run: reader.u64()?, lsn: reader.u64()? },
            12 => Op::DropRun { table, run: reader.u64()? },
            13 => Op::TableOptions { table, options: TableOptions::decode(reader.bytes()?)? },
            14 => Op::RemoveFromRun { table, run: reader.u64()?, id: reader.u64()? },
            18 => Op::AddRow { table, row: RowTable::decode(reader)? },
            19 => Op::RemoveRow { table, id: reader.u64()? },
            16 if table == 0 => Op::TimeMark(TimeMark { lsn: reader.u64()?, time: reader.u64()? }),
            17 => Op::TimeToLive { table, ttl: reader.u64()?, expired: reader.u64()? },
            15 => {
                let (run, level) = (reader.u64()?, reader.u8()?);
                let ids = (0..reader.u32()?).map(|_| reader.u64()).collect::<Option<_>>()?;
                Op::MoveFromRun { table, run, level, ids }
            }
            _ => return None,
        })
    }
}

fn name(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

fn interval(reader: &mut Reader<'_>) -> Option<KeyInterval> {
    let start = reader.bytes()?.to_vec();
    let has_end = reader.flag()?;
    let end = reader.bytes()?.to_vec();
    match has_end {
        false if end.is_empty() => Some(KeyInterval { start, end: None }),
        true if start < end => Some(KeyInterval { start, end: Some(end) }),
        _ => None,
    }
}

fn drained_map(reader: &mut Reader<'_>) -> Option<DrainedMap> {
    let count = reader.u32()?;
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push((reader.bytes()?.to_vec(), reader.u64()?));
    }
    DrainedMap::from_steps(steps)
}

fn descriptions(reader: &mut Reader<'_>) -> Option<Vec<Arc<ExtentMeta>>> {
    let count = reader.u32()?;
    let mut extents = Vec::new();
    for _ in 0..count {
        extents.push(Arc::new(ExtentMeta::decode(reader)?));
    }
    Some(extents)
}

impl<E: Described> Edit<E> {
    /// The operations' bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.ops.iter().for_each(|op| op.encode(&mut out));
        out
    }

    /// Whether it removes extents, or row tables. What goes as it raises D, the drain sees to.
    pub(crate) fn frees(&self) -> bool {
        self.ops.iter().any(|op| {
            matches!(
                op,
                Op::DropTable { .. }
                    | Op::RemoveExtent { .. }
                    | Op::RemoveFromRun { .. }
                    | Op::DropRun { .. }
                    | Op::RemoveRow { .. }
            )
        })
    }

    /// The extents it adds.
    pub(crate) fn added(&self) -> impl Iterator<Item = &E> {
        self.ops.iter().flat_map(|op| match op {
            Op::AddExtent { extent, .. } => std::slice::from_ref(extent),
            Op::AddRun { extents, .. } => extents,
            _ => &[],
        })
    }
}

impl Edit<Arc<ExtentMeta>> {
    /// Reads exactly `count` operations.
    pub(super) fn decode(payload: &[u8], count: u32) -> Option<Edit<Arc<ExtentMeta>>> {
        let mut reader = Reader::new(payload);
        let mut ops = Vec::new();
        for _ in 0..count {
            ops.push(Op::decode(&mut reader)?);
        }
        reader.is_empty().then_some(Edit { ops })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::sstable::tests::{Entry, sim_store, write_extent};
    use crate::sstable::{ValueMeta, ValueUse};
    use crate::storage::Location;

    pub(in crate::version) fn meta(id: u64, from: &str, to: &str) -> Arc<ExtentMeta> {
        Arc::new(ExtentMeta {
            id,
            location: Location { file: 1, offset: id * 16_384, len: 1000 },
            records: 10,
            deletes: 1,
            tombstones: 0,
            smallest_seq: 3,
            greatest_seq: 9,
            one_seq: false,
            kept: 0,
            raw_bytes: 900,
            smallest_key: from.into(),
            greatest_key: to.into(),
            footer_checksum: 77,
            values: [].into(),
        })
    }

    /// As [`meta`], with records that refer to values in extent `of`.
    pub(in crate::version) fn referring(id: u64, from: &str, to: &str, of: u64) -> Arc<ExtentMeta> {
        let location = Location { file: 1, offset: of * 16_384, len: 5000 };
        let of = ValueMeta { id: of, location, values: 2, footer_checksum: 88 };
        let values = [ValueUse { of, bytes: 4000 }].into();
        Arc::new(ExtentMeta { values, ..ExtentMeta::clone(&meta(id, from, to)) })
    }

    /// As [`meta`], with records that were kept for readers, a range tombstone among them.
    fn keeping(id: u64, from: &str, to: &str, values: &[ValueUse]) -> Arc<ExtentMeta> {
        let (kept, values) = (4, values.into());
        Arc::new(ExtentMeta {
            kept,
            values,
            tombstones: 1,
            ..ExtentMeta::clone(&meta(id, from, to))
        })
    }

    fn add_run(run: u64, loaded: bool) -> Op<Arc<ExtentMeta>> {
        let extents = vec![meta(9, "a", "b"), meta(10, "c", "d")];
        Op::AddRun { table: 3, run, extents, loaded }
    }

    pub(in crate::version) fn one_of_each() -> Edit<Arc<ExtentMeta>> {
        let mut map = DrainedMap::default();
        map.set(&KeyInterval { start: b"c".to_vec(), end: Some(b"f".to_vec()) }, 12);
        let until = KeyInterval { start: b"d".to_vec(), end: Some(b"d\0".to_vec()) };
        let ranged = ExtentMeta { tombstones: 1, ..ExtentMeta::clone(&meta(6, "c", "d")) };
        let referred = referring(22, "k", "l", 15).values.to_vec();
        let ops = vec![
            Op::CreateTable { table: 3, created_lsn: 9, name: "users".into() },
            Op::DropTable { table: 4 },
            Op::RenameTable { table: 3, name: "people".into() },
            Op::AddExtent { table: 3, level: 1, extent: meta(5, "a", "b") },
            Op::RemoveExtent { table: 3, level: 2, id: 9 },
            Op::Drained { table: 3, seq: 11, interval: KeyInterval::all() },
            Op::Drained { table: 3, seq: 11, interval: until },
            Op::DrainedMap { table: 3, map },
            Op::Counters { next_table: 5, next_extent: 6, table_event_lsn: 7 },
            Op::MoveExtent { table: 3, from: 1, to: 2, id: 5 },
            add_run(8, false),
            Op::CommitRun { table: 3, run: 8, lsn: 21 },
            Op::DropRun { table: 3, run: 7 },
            Op::RemoveFromRun { table: 3, run: 8, id: 9 },
            Op::AddExtent { table: 3, level: 1, extent: Arc::new(ranged) },
            Op::TableOptions { table: 3, options: TableOptions::new().block_size(4096) },
            Op::TimeMark(TimeMark { lsn: 22, time: 1_770_000_000_000_000 }),
            Op::TimeToLive { table: 3, ttl: 60_000_000, expired: 20 },
            add_run(11, true),
            Op::MoveFromRun { table: 3, run: 11, level: 2, ids: vec![9, 10] },
            Op::AddExtent { table: 3, level: 1, extent: meta(7, "c", "d").numbered(5) },
            Op::AddExtent { table: 3, level: 1, extent: referring(14, "e", "f", 15) },
            Op::AddExtent { table: 3, level: 1, extent: referring(16, "g", "h", 15).numbered(5) },
            Op::AddExtent { table: 3, level: 1, extent: keeping(20, "i", "j", &[]) },
            Op::AddExtent { table: 3, level: 1, extent: keeping(21, "k", "l", &referred) },
            Op::AddRun {
                table: 3,
                run: 17,
                extents: vec![referring(18, "a", "b", 19)],
                loaded: true,
            },
        ];
        Edit { ops }
    }

    #[test]
    fn round_trips() {
        let edit = one_of_each();
        let bytes = edit.encode();
        assert_eq!(Edit::decode(&bytes, 26), Some(edit));
        assert_eq!(Edit::decode(&bytes, 25), None, "bytes left over");
        assert_eq!(Edit::decode(&bytes, 27), None, "an operation missing");
        for len in 0..bytes.len() {
            assert_eq!(Edit::decode(&bytes[..len], 26), None);
        }
    }

    #[test]
    fn extents_of_a_run_are_described_as_they_were_written() {
        let (_, store) = sim_store();
        let extent = write_extent(&store, 7, &[Entry::put(b"k", 1, b"v")]);
        let written = extent.meta().clone();
        assert_eq!(extent.numbered(9).meta().one_seq(), Some(9));
        let edit = Edit {
            ops: vec![Op::AddRun { table: 3, run: 8, extents: vec![extent], loaded: true }],
        };
        let decoded = Edit::decode(&edit.encode(), 1).unwrap();
        assert_eq!(decoded.added().map(|meta| (**meta).clone()).collect::<Vec<_>>(), [written]);
    }

    /// Bug: an edit that drained an interval which ends before it starts was read, and broke the
    /// drained map. Cause: under a right checksum any two keys were one. Fix: an interval has keys,
    /// or the edit does not decode.
    #[test]
    fn an_interval_without_keys_is_refused() {
        for (end, is_one) in [("a", false), ("b", false), ("c", true)] {
            let interval = KeyInterval { start: b"b".to_vec(), end: Some(end.into()) };
            let ops = vec![Op::Drained { table: 3, seq: 11, interval }];
            let edit: Edit<Arc<ExtentMeta>> = Edit { ops };
            assert_eq!(Edit::decode(&edit.encode(), 1).is_some(), is_one, "b to {end}");
        }
    }

    #[test]
    fn no_byte_is_ignored() {
        let edit = one_of_each();
        let bytes = edit.encode();
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                assert_ne!(Edit::decode(&bad, 26), Some(edit.clone()), "byte {i}, bit {bit}");
            }
        }
    }
}
