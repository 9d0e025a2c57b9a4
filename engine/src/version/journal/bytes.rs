//! The journal's bytes. Pure: [`scan`] takes a whole file and gives its edits, or the place of
//! the damage.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Damage, Error, Mismatch};
use crate::base::record::{
    Checksum, LSN_MAX, Lsn, Reader, SealRefused, Sealable, put_u32, put_u64,
};
use crate::sstable::{Described, ExtentMeta};
use crate::version::edit::{Edit, Op};

pub(super) const HEADER_LEN: usize = 64;

const EDIT_HEADER_LEN: usize = 40;
const EDIT_MAGIC: &[u8; 4] = b"TEDT";

/// What an edit is, for messages.
pub(super) const EDIT: &str = "journal edit";

const ALIGNMENT: usize = 8;

/// Damage in the journal at `path`.
pub(super) fn damage(
    path: &Path,
    what: &str,
    offset: usize,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Damage {
    Mismatch::new(expected, got).at(what, "journal", path, offset as u64)
}

/// The header of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) database_id: [u8; 16],
    pub(super) epoch: u64,
    pub(super) first_number: u64,
}

impl Sealable for Header {
    const MAGIC: &'static [u8; 8] = b"TERRJRNL";
    const WHAT: &'static str = "journal header";
    const LEAST: usize = HEADER_LEN;

    fn encode_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.database_id);
        put_u64(out, self.epoch);
        put_u64(out, self.first_number);
        out.resize(HEADER_LEN, 0);
    }

    fn decode_rest(reader: &mut Reader<'_>) -> Option<Header> {
        let database_id = reader.take(16)?.try_into().ok()?;
        let (epoch, first_number) = (reader.u64()?, reader.u64()?);
        reader.take(HEADER_LEN - 48)?;
        Some(Header { database_id, epoch, first_number })
    }
}

impl Header {
    /// The header of a whole file.
    pub(super) fn of(file: &[u8]) -> Result<Header, SealRefused> {
        Header::decode(file.get(..HEADER_LEN).unwrap_or(file))
    }

    /// What is known of a damaged one: its checkpoint says the number.
    pub(super) fn lost(file: &[u8], epoch: u64) -> Header {
        let checkpoint = file.get(HEADER_LEN..).and_then(|rest| Frame::sound(rest, epoch));
        let first_number = checkpoint.map_or(1, |frame| frame.number);
        Header { database_id: [0; 16], epoch, first_number }
    }
}

/// The bytes of an edit; `None` if it is too large for its length field.
pub(super) fn encode_edit<E: Described>(
    epoch: u64,
    number: u64,
    lsn: Lsn,
    edit: &Edit<E>,
) -> Option<Vec<u8>> {
    let payload = edit.encode();
    let mut out = Vec::with_capacity(EDIT_HEADER_LEN + payload.len() + ALIGNMENT);
    out.extend_from_slice(EDIT_MAGIC);
    put_u32(&mut out, 0);
    put_u64(&mut out, number);
    put_u64(&mut out, lsn);
    put_u32(&mut out, u32::try_from(payload.len()).ok()?);
    put_u32(&mut out, u32::try_from(edit.ops.len()).ok()?);
    put_u64(&mut out, 0);
    out.extend_from_slice(&payload);
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    let sum = edit_checksum(epoch, number, &out);
    out[4..8].copy_from_slice(&sum.to_le_bytes());
    Some(out)
}

/// The bytes that an edit takes in a journal.
pub(super) fn edit_len<E: Described>(edit: &Edit<E>) -> u64 {
    (EDIT_HEADER_LEN + edit.encode().len()).next_multiple_of(ALIGNMENT) as u64
}

/// Where the last byte that is not zero ends: what lies behind it was allocated and never written.
pub(super) fn end_of_bytes(file: &[u8]) -> usize {
    file.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn edit_checksum(epoch: u64, number: u64, edit: &[u8]) -> u32 {
    let mut sum = Checksum::new(&[epoch, number]);
    sum.update(&edit[8..]);
    sum.finish()
}

/// The frame around an edit's operations, its checksum right.
pub(super) struct Frame<'a> {
    number: u64,
    lsn: Lsn,
    ops: u32,
    payload: &'a [u8],
    /// Length of all of it, zeros at the end included.
    pub(super) len: usize,
}

impl<'a> Frame<'a> {
    /// The sound frame at the start of `bytes`, or what is wrong with it.
    pub(super) fn decode(bytes: &'a [u8], epoch: u64) -> Result<Frame<'a>, String> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(4).ok_or("the end of the file")?;
        if magic != EDIT_MAGIC {
            return Err(format!("magic {magic:02x?}"));
        }
        let (sum, frame) = Frame::fields(&mut reader, bytes).ok_or("the end of the file")?;
        let computed = edit_checksum(epoch, frame.number, &bytes[..frame.len]);
        if sum != computed {
            return Err(format!("checksum {sum:#010x} over bytes that have {computed:#010x}"));
        }
        Ok(frame)
    }

    /// The sound frame at the start of `bytes`, if there is one. A search for one looks at every
    /// place of a journal that is mostly zeros, so no text is made of what is wrong.
    fn sound(bytes: &'a [u8], epoch: u64) -> Option<Frame<'a>> {
        bytes.starts_with(EDIT_MAGIC).then(|| Frame::decode(bytes, epoch).ok()).flatten()
    }

    fn fields(reader: &mut Reader<'a>, bytes: &[u8]) -> Option<(u32, Frame<'a>)> {
        let (sum, number, lsn) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let (payload_len, ops) = (reader.u32()? as usize, reader.u32()?);
        reader.u64()?;
        let payload = reader.take(payload_len)?;
        let len = (EDIT_HEADER_LEN + payload_len).next_multiple_of(ALIGNMENT);
        (len <= bytes.len()).then_some((sum, Frame { number, lsn, ops, payload, len }))
    }
}

/// An edit as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::version) struct Replayed {
    pub(in crate::version) offset: usize,
    pub(in crate::version) number: u64,
    /// All up to here was durable when it was made.
    pub(in crate::version) lsn: Lsn,
    pub(in crate::version) edit: Edit<Arc<ExtentMeta>>,
}

impl Replayed {
    /// Whether it is the first one of an epoch: only that begins with counters.
    pub(in crate::version) fn is_checkpoint(&self) -> bool {
        matches!(self.edit.ops.first(), Some(Op::Counters { .. }))
    }

    /// The LSN of the last table event that it brings, or 0.
    pub(in crate::version) fn event_lsn(&self) -> Lsn {
        let lsns = self.edit.ops.iter().map(|op| match op {
            Op::Counters { table_event_lsn, .. } => *table_event_lsn,
            _ => 0,
        });
        lsns.max().unwrap_or(0)
    }
}

/// The sound edits of a journal, and what is in doubt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) edits: Vec<Replayed>,
    /// Where the last one ends.
    pub(super) end: usize,
    /// What was durable, and does not check out.
    pub(super) doubts: Vec<Damage>,
    /// What lies behind the last edit: of an append that a power cut tore, as a rule.
    pub(super) torn: Option<Damage>,
}

/// Reads the edits of `file`, whose header is `header`. An edit that does not check out is torn,
/// and the end of the journal, if it is above `floor` and no sound edit with a greater number
/// follows. Otherwise it is in doubt; and so is a checkpoint that is not sound, since it was synced
/// before the file got its name. Behind a doubt the next sound edit is read.
pub(super) fn scan(path: &Path, file: &[u8], header: &Header, floor: u64) -> Scan {
    let mut scan = Scan { end: HEADER_LEN, ..Scan::default() };
    let (mut at, mut number) = (HEADER_LEN, header.first_number);
    loop {
        let got = match Frame::decode(file.get(at..).unwrap_or_default(), header.epoch) {
            Ok(frame) if frame.number == number => {
                at = scan.take_in((path, at), &frame);
                if let Some(next) = number.checked_add(1) {
                    number = next;
                    continue;
                }
                let got = format!("edit {number}");
                scan.doubts.push(damage(path, Header::WHAT, 0, "numbers below 2^64 - 1", got));
                return scan;
            }
            other => other.map_or_else(|why| why, |f| format!("a sound edit {}", f.number)),
        };
        let later = later_edit(file, at, header.epoch, number);
        let was_durable = number <= floor.max(header.first_number);
        let why = match later {
            _ if was_durable => ", which was durable".into(),
            Some((offset, later)) => format!(", since edit {later} at {offset} is sound"),
            None => String::new(),
        };
        let flaw = damage(path, EDIT, at, format!("edit {number}{why}"), got);
        if later.is_none() && !was_durable {
            // The last edit is padded with zeros, so bytes may end within it.
            scan.torn = (end_of_bytes(file) > at).then_some(flaw);
            return scan;
        }
        scan.doubts.push(flaw);
        let Some(next) = later else { return scan };
        (at, number) = next;
    }
}

impl Scan {
    /// What an opening makes of it: the first doubt is an error.
    pub(super) fn checked(self) -> crate::base::error::Result<Scan> {
        match self.doubts.first() {
            Some(first) => Err(Error::corrupt(first.clone())),
            None => Ok(self),
        }
    }

    /// Takes in a sound frame; where the next one begins.
    fn take_in(&mut self, (path, at): (&Path, usize), frame: &Frame<'_>) -> usize {
        let &Frame { number, lsn, ops, payload, len } = frame;
        let edit = Edit::decode(payload, ops);
        let found = edit.map(|edit| Replayed { offset: at, number, lsn, edit });
        if let Some(found) = found.filter(|found| lsn.max(found.event_lsn()) < LSN_MAX) {
            self.edits.push(found);
            self.end = at + len;
        } else {
            let expected = format!("{ops} operations that decode, with LSNs below {LSN_MAX}");
            let got = "others, under a checksum that is right";
            self.doubts.push(damage(path, EDIT, at, expected, got));
        }
        at + len
    }
}

/// A sound edit after `at` with a number greater than `number`.
fn later_edit(file: &[u8], at: usize, epoch: u64, number: u64) -> Option<(usize, u64)> {
    (at..file.len()).step_by(ALIGNMENT).find_map(|offset| {
        let frame = Frame::sound(&file[offset..], epoch)?;
        (frame.number > number).then_some((offset, frame.number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::checksum;
    use crate::version::edit::tests::one_of_each;

    /// As an opening: it fails with the first doubt.
    fn scan(file: &[u8], header: &Header, floor: u64) -> Result<Scan, Damage> {
        let scan = super::scan(Path::new("journal"), file, header, floor);
        scan.doubts.first().cloned().map_or(Ok(scan), Err)
    }

    /// Bug: an edit with the greatest LSN overflowed where openings look for the next commit.
    /// Cause: only the headers of commits were bounded. Fix: those of edits are too.
    #[test]
    fn an_edit_with_an_lsn_that_cannot_be_is_in_doubt() {
        let edit = one_of_each();
        for (lsn, is_sound) in [(LSN_MAX - 1, true), (LSN_MAX, false), (u64::MAX, false)] {
            let mut file = HEADER.encode();
            file.extend(encode_edit(3, 10, lsn, &edit).unwrap());
            assert_eq!(scan(&file, &HEADER, 0).is_ok(), is_sound, "{lsn}");
        }
    }

    const HEADER: Header = Header { database_id: [7; 16], epoch: 3, first_number: 10 };

    /// A header and three edits, with where each edit starts.
    fn sample() -> (Vec<u8>, Vec<usize>) {
        let mut file = HEADER.encode();
        let mut starts = Vec::new();
        for number in 10..13 {
            starts.push(file.len());
            file.extend(encode_edit(3, number, 100, &one_of_each()).unwrap());
        }
        (file, starts)
    }

    #[test]
    fn round_trips() {
        let (file, starts) = sample();
        assert_eq!(Header::of(&file), Ok(HEADER));
        let scan = scan(&file, &HEADER, 0).unwrap();
        assert_eq!(scan.end, file.len());
        assert_eq!(scan.edits.iter().map(|e| e.number).collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!(scan.edits.iter().map(|e| e.offset).collect::<Vec<_>>(), starts);
        assert!(scan.edits.iter().all(|e| e.edit == one_of_each() && e.lsn == 100));
    }

    #[test]
    fn every_flipped_bit_below_the_floor_is_found() {
        let (file, _) = sample();
        for i in 0..file.len() {
            for bit in 0..8 {
                let mut bad = file.clone();
                bad[i] ^= 1 << bit;
                let is_sound = match Header::of(&bad) {
                    Ok(header) => scan(&bad, &header, 12).is_ok(),
                    Err(SealRefused::Format(_)) => panic!("a checksum is seeded with its version"),
                    Err(SealRefused::Damaged(_)) => false,
                };
                assert!(!is_sound, "byte {i}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_torn_tail_is_the_end_and_a_torn_middle_is_damage() {
        let (file, starts) = sample();
        for i in starts[2]..file.len() {
            let torn = scan(&file[..i], &HEADER, 11).unwrap();
            assert_eq!((torn.edits.len(), torn.end), (2, starts[2]));
            let mut flipped = file.clone();
            flipped[i] ^= 0x40;
            assert_eq!(scan(&flipped, &HEADER, 11).unwrap().end, starts[2]);
            assert_eq!(scan(&flipped, &HEADER, 12).unwrap_err().offset, starts[2] as u64);
        }
        for i in starts[1]..starts[2] {
            let mut flipped = file.clone();
            flipped[i] ^= 0x40;
            assert_eq!(
                scan(&flipped, &HEADER, 0).unwrap_err().offset,
                starts[1] as u64,
                "edit 12 follows"
            );
        }
        for i in starts[0]..starts[1] {
            assert!(scan(&file[..i], &HEADER, 0).is_err(), "the checkpoint was synced");
        }
    }

    #[test]
    fn edits_of_another_epoch_or_order_do_not_pass() {
        let mut file = HEADER.encode();
        file.extend(encode_edit(3, 10, 1, &one_of_each()).unwrap());
        let end = file.len();
        file.extend(encode_edit(2, 11, 1, &one_of_each()).unwrap());
        assert_eq!(scan(&file, &HEADER, 10).unwrap().end, end, "a stale edit is no edit");
        file.truncate(end);
        file.extend(encode_edit(3, 12, 1, &one_of_each()).unwrap());
        assert!(scan(&file, &HEADER, 10).is_err(), "edit 11 is missing");
    }

    /// Bug: reading a journal whose numbers end with its last edit panicked, adding one to the
    /// greatest number. Cause: a header is believed once its checksum is right. Fix: the numbers of
    /// edits are added with a check.
    #[test]
    fn numbers_beyond_64_bits_are_damage() {
        let header = Header { first_number: u64::MAX, ..HEADER };
        let mut file = header.encode();
        file.extend(encode_edit(3, u64::MAX, 1, &one_of_each()).unwrap());
        assert_eq!(scan(&file, &header, 0).unwrap_err().what, "journal header");
    }

    #[test]
    fn a_header_that_is_cut_off_is_told_as_a_length() {
        for len in 0..HEADER_LEN {
            let refused = Header::of(&HEADER.encode()[..len]).unwrap_err();
            let said = format!("expected 64 bytes or more, got {len}");
            assert_eq!(refused.to_string(), said);
        }
    }

    #[test]
    fn other_formats_are_told_apart_from_damage() {
        let mut bytes = HEADER.encode();
        bytes[8] = 200;
        let sum = checksum(&[200], &bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::of(&bytes), Err(SealRefused::Format(200)));
    }
}
