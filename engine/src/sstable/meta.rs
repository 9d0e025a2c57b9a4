//! What the journal says of an extent.

use std::sync::Arc;

use super::BlockSummary;
use super::values::{self, ValueUse};
use crate::base::record::{Lsn, Reader, put_bytes, put_u32, put_u64};
use crate::mvcc::{KeptFor, KeyInterval, Tombstone};
use crate::storage::Location;

/// An extent never has this many records, nor bytes of them. So sums over all extents do not
/// overflow.
const BEYOND: u64 = 1 << 40;

/// An extent's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentMeta {
    pub(crate) id: u64,
    pub(crate) location: Location,
    pub(crate) records: u64,
    /// Of these, range tombstones included.
    pub(crate) deletes: u64,
    /// Of these, range tombstones.
    pub(crate) tombstones: u32,
    pub(crate) smallest_seq: Lsn,
    pub(crate) greatest_seq: Lsn,
    /// Both are the sequence number of all records, whatever stands in the blocks: those were
    /// written before it was known.
    pub(crate) one_seq: bool,
    /// Records that were kept for readers alone when it was written: superseded or hidden ones, and
    /// deletes with nothing below them. They can go once no reader is below the greatest sequence
    /// number. 0 also if they were not counted.
    pub(crate) kept: u64,
    /// Bytes of keys and values, as the user counts them.
    pub(crate) raw_bytes: u64,
    pub(crate) smallest_key: Vec<u8>,
    pub(crate) greatest_key: Vec<u8>,
    /// The checksum field of its footer. It ties the journal to exactly these bytes.
    pub(crate) footer_checksum: u32,
    /// The value extents that its records refer to, ascending by id.
    pub(crate) values: Arc<[ValueUse]>,
}

impl ExtentMeta {
    /// That of an extent in which nothing was counted yet, and which has no place.
    pub(super) fn new(id: u64) -> ExtentMeta {
        ExtentMeta {
            id,
            location: Location { file: 0, offset: 0, len: 0 },
            records: 0,
            deletes: 0,
            tombstones: 0,
            smallest_seq: Lsn::MAX,
            greatest_seq: 0,
            one_seq: false,
            kept: 0,
            raw_bytes: 0,
            smallest_key: Vec::new(),
            greatest_key: Vec::new(),
            footer_checksum: 0,
            values: [].into(),
        }
    }

    /// Counts the next block, but for its last key.
    pub(super) fn count_block(&mut self, block: &BlockSummary) {
        if self.records == 0 {
            self.smallest_key.clone_from(&block.first_key);
        }
        self.records += u64::from(block.records);
        self.deletes += u64::from(block.deletes);
        self.smallest_seq = self.smallest_seq.min(block.smallest_seq);
        self.greatest_seq = self.greatest_seq.max(block.greatest_seq);
        self.raw_bytes += block.raw_bytes;
    }

    /// Counts a range tombstone. They come behind all blocks.
    pub(super) fn count_tombstone(&mut self, tombstone: &Tombstone) {
        let (start, last) = (&tombstone.interval.start, tombstone.interval.last_key());
        let last = last.unwrap_or_default();
        if self.records == 0 || *start < self.smallest_key {
            self.smallest_key.clone_from(start);
        }
        if self.records == 0 || last > self.greatest_key.as_slice() {
            self.greatest_key = last.to_vec();
        }
        self.records += 1;
        self.deletes += 1;
        self.tombstones += 1;
        self.smallest_seq = self.smallest_seq.min(tombstone.seq);
        self.greatest_seq = self.greatest_seq.max(tombstone.seq);
        self.raw_bytes += tombstone.raw_bytes() as u64;
    }

    /// Appends the description of `docs/format.md`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id);
        self.location.encode(out);
        put_u64(out, self.records);
        put_u64(out, self.deletes);
        put_u32(out, self.tombstones);
        put_u64(out, self.kept);
        out.push(u8::from(self.one_seq));
        put_u64(out, self.smallest_seq);
        put_u64(out, self.greatest_seq);
        put_u64(out, self.raw_bytes);
        put_bytes(out, &self.smallest_key);
        put_bytes(out, &self.greatest_key);
        put_u32(out, self.footer_checksum);
        values::encode(&self.values, out);
    }

    /// Where it lies, and where the value extents lie that it refers to.
    pub(crate) fn places(&self) -> impl Iterator<Item = Location> + '_ {
        std::iter::once(self.location).chain(self.values.iter().map(|one| one.of.location))
    }

    /// Reads a description; `None` if the bytes end first or say what no extent can be.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<ExtentMeta> {
        let id = reader.u64()?;
        let location = Location::decode(reader)?;
        let meta = ExtentMeta {
            id,
            location,
            records: reader.u64()?,
            deletes: reader.u64()?,
            tombstones: reader.u32()?,
            kept: reader.u64()?,
            one_seq: reader.flag()?,
            smallest_seq: reader.u64()?,
            greatest_seq: reader.u64()?,
            raw_bytes: reader.u64()?,
            smallest_key: reader.bytes()?.to_vec(),
            greatest_key: reader.bytes()?.to_vec(),
            footer_checksum: reader.u32()?,
            values: values::decode(reader)?.into(),
        };
        meta.is_sound().then_some(meta)
    }

    /// Whether the numbers can be true together.
    pub(crate) fn is_sound(&self) -> bool {
        self.records > 0
            && self.deletes <= self.records
            && u64::from(self.tombstones) <= self.deletes
            && self.kept <= self.records
            && self.records.max(self.raw_bytes) < BEYOND
            && self.smallest_seq <= self.greatest_seq
            && (!self.one_seq
                || self.smallest_seq == self.greatest_seq && self.tombstones == 0 && self.kept == 0)
            && self.smallest_key <= self.greatest_key
            && self.location.can_hold(self.id)
            && values::are_sound(&self.values)
    }

    /// The description once all records have the sequence number `seq`.
    pub(crate) fn numbered(&self, seq: Lsn) -> ExtentMeta {
        ExtentMeta { smallest_seq: seq, greatest_seq: seq, one_seq: true, ..self.clone() }
    }

    /// Whether it has the same records, wherever they and the values lie: the footers' checksums
    /// say so. Ids alone do not, since they are given again.
    pub(crate) fn is_copy_of(&self, other: &ExtentMeta) -> bool {
        let pairs = || self.values.iter().zip(&*other.values);
        let alike = |(a, b): (&ValueUse, &ValueUse)| a.bytes == b.bytes && a.of.is_copy_of(&b.of);
        let same = ExtentMeta {
            location: self.location,
            values: Arc::clone(&self.values),
            ..other.clone()
        };
        *self == same
            && self.location.len == other.location.len
            && self.values.len() == other.values.len()
            && pairs().all(alike)
    }

    /// The greatest id that it names: its own, or a value extent's.
    pub(crate) fn last_id(&self) -> u64 {
        self.values.last().map_or(self.id, |one| one.of.id.max(self.id))
    }

    /// The sequence number of all records, where that is not in the blocks.
    pub(crate) fn one_seq(&self) -> Option<Lsn> {
        self.one_seq.then_some(self.greatest_seq)
    }

    /// How many of its records were kept for readers that are not among `readers`, which ascend.
    /// All of them, if every reader sees its newest record; else as many as `kept_for` knows of.
    pub(crate) fn obsolete_records(&self, kept_for: &KeptFor, readers: &[Lsn]) -> u64 {
        let nobody_is_older = readers.first().is_none_or(|oldest| self.greatest_seq <= *oldest);
        if nobody_is_older { self.kept } else { kept_for.obsolete(readers) }
    }

    /// All keys that it may say something of.
    pub(crate) fn interval(&self) -> KeyInterval {
        KeyInterval::closed(&self.smallest_key, &self.greatest_key)
    }

    /// Whether `key` lies between the smallest and the greatest key.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.smallest_key.as_slice() <= key && key <= self.greatest_key.as_slice()
    }
}

/// Something with an extent's description: the extent, or the description alone. Code that only
/// chooses extents works on either.
pub(crate) trait Described: Clone {
    /// The description.
    fn meta(&self) -> &ExtentMeta;

    /// How often it was read of late; 0 where reads are not counted.
    fn read_frequency(&self) -> u32 {
        0
    }

    /// How many of its records were kept for readers that are not among `readers`, which ascend.
    /// They go when it is written again.
    fn obsolete(&self, readers: &[Lsn]) -> u64 {
        self.meta().obsolete_records(&KeptFor::default(), readers)
    }

    /// The same extent; all its records have the sequence number `seq` from now on.
    fn numbered(&self, seq: Lsn) -> Self;

    /// The description of what stands in its blocks.
    fn as_written(&self) -> &ExtentMeta {
        self.meta()
    }
}

impl Described for Arc<ExtentMeta> {
    fn meta(&self) -> &ExtentMeta {
        self
    }

    fn numbered(&self, seq: Lsn) -> Arc<ExtentMeta> {
        Arc::new(ExtentMeta::numbered(self, seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ExtentMeta {
        ExtentMeta {
            id: 7,
            location: Location { file: 1, offset: 16_384, len: 1_000 },
            records: 10,
            deletes: 1,
            tombstones: 0,
            smallest_seq: 3,
            greatest_seq: 12,
            one_seq: false,
            kept: 0,
            raw_bytes: 900,
            smallest_key: b"a".to_vec(),
            greatest_key: b"zebra".to_vec(),
            footer_checksum: 0x1234_5678,
            values: [].into(),
        }
    }

    /// Bug: opening panicked when the records of a level, as edits with right checksums describe
    /// them, were more than 64 bits count. Cause: a description was sound with any number. Fix: it
    /// has a bound that sums stay below.
    #[test]
    fn more_than_an_extent_can_have_is_not_sound() {
        assert!(sample().is_sound());
        assert!(!ExtentMeta { records: u64::MAX, ..sample() }.is_sound());
        assert!(!ExtentMeta { raw_bytes: u64::MAX, ..sample() }.is_sound());
        assert!(!ExtentMeta { kept: 11, ..sample() }.is_sound());
    }

    #[test]
    fn an_object_has_an_epoch_and_the_id_of_its_extent() {
        const OBJECT: u32 = 1 << 31;
        let of = |file, offset| {
            let location = Location { file, offset, len: 1_000 };
            let mut bytes = Vec::new();
            ExtentMeta { location, ..sample() }.encode(&mut bytes);
            ExtentMeta::decode(&mut Reader::new(&bytes))
        };
        let object = of(OBJECT | 3, 7).unwrap();
        assert!(object.location.is_object());
        assert!(!sample().location.is_object());
        for (file, offset) in [(OBJECT, 7), (OBJECT | 3, 8)] {
            assert_eq!(of(file, offset), None, "{file} {offset}");
        }
        // A piece of the shared store has the number that its writer gave it.
        let piece = of(u32::MAX, 16_384).unwrap();
        assert_eq!(piece.location.object().unwrap().shared(), Some((16_384, (1 << 30) - 1)));
    }

    #[test]
    fn round_trips_and_never_reads_past_its_end() {
        let meta = sample();
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(ExtentMeta::decode(&mut reader), Some(meta.clone()));
        assert!(reader.is_empty());
        for len in 0..bytes.len() {
            assert_eq!(ExtentMeta::decode(&mut Reader::new(&bytes[..len])), None);
        }
        for i in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[i] ^= 1 << bit;
                let found = ExtentMeta::decode(&mut Reader::new(&bad));
                assert_ne!(found, Some(meta.clone()), "no byte is ignored");
            }
        }
    }
}
