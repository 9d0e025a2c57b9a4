//! The binary form of a dump: a head, blocks of whole entries, and an end (`docs/format.md`).

use std::io::{self, Read, Write};
use std::path::Path;

use super::{DumpEntry, DumpReport};
use crate::base::error::{Error, Mismatch};
use crate::base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::options::TableOptions;
use crate::base::record::{FORMAT, Reader, checksum, other_format, put_bytes, put_u32, put_u64};

const MAGIC: &[u8; 8] = b"TERRDUMP";

/// A block is written once it has so many bytes.
const BLOCK: usize = 256 * 1024;

/// With its last entry a block has no more than this.
const LARGEST: usize = BLOCK + MAX_KEY_LEN + MAX_VALUE_LEN + 64;

const TABLE: u8 = 1;
const BLOB: u8 = 2;
const ROWS: u8 = 3;
const ROW: u8 = 4;
const END: u8 = 5;

/// Writes entries.
pub(super) struct Encoder<W> {
    to: W,
    block: Vec<u8>,
    /// The number of the next block. The head goes out with the first one.
    number: u64,
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(to: W) -> Encoder<W> {
        Encoder { to, block: Vec::new(), number: 0 }
    }

    pub(super) fn add(&mut self, entry: &DumpEntry<'_>) -> io::Result<()> {
        let out = &mut self.block;
        match entry {
            DumpEntry::Table(name, options) => {
                out.push(TABLE);
                put_bytes(out, name.as_bytes());
                let mut fields = Vec::new();
                options.encode(&mut fields);
                put_bytes(out, &fields);
            }
            DumpEntry::Blob(blob) => {
                out.push(BLOB);
                put_bytes(out, blob);
            }
            DumpEntry::Rows(name) => {
                out.push(ROWS);
                put_bytes(out, name.as_bytes());
            }
            DumpEntry::Row(key, value) => {
                out.push(ROW);
                put_bytes(out, key);
                put_bytes(out, value);
            }
        }
        if out.len() < BLOCK { Ok(()) } else { self.write_block() }
    }

    pub(super) fn end(mut self, report: DumpReport) -> io::Result<()> {
        self.block.push(END);
        put_u64(&mut self.block, report.tables);
        put_u64(&mut self.block, report.rows);
        self.write_block()?;
        self.to.flush()
    }

    fn write_block(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        if self.number == 0 {
            head.extend_from_slice(MAGIC);
            put_u32(&mut head, FORMAT);
            let sum = checksum(&[], &head);
            put_u32(&mut head, sum);
        }
        put_u32(&mut head, self.block.len() as u32);
        put_u32(&mut head, checksum(&[self.number], &self.block));
        self.to.write_all(&head)?;
        self.to.write_all(&self.block)?;
        self.block.clear();
        self.number += 1;
        Ok(())
    }
}

/// What is read of a dump, from its beginning on.
struct Input<R> {
    from: R,
    at: u64,
    bytes: Vec<u8>,
}

impl<R: Read> Input<R> {
    /// The next `n` bytes, or fewer at the end. Memory is taken as they come.
    fn read(&mut self, n: usize) -> io::Result<&[u8]> {
        self.bytes.clear();
        self.at += (&mut self.from).take(n as u64).read_to_end(&mut self.bytes)? as u64;
        Ok(&self.bytes)
    }

    /// The next `n` bytes of `what`; damage where the input ends before.
    fn whole(&mut self, n: usize, what: &str) -> io::Result<&[u8]> {
        let got = self.read(n)?.len();
        if got < n {
            let found =
                Mismatch::new(format!("{n} bytes"), format!("the end of the dump after {got}"));
            return Err(damage(found, what, self.at));
        }
        Ok(&self.bytes)
    }
}

/// Damage of what ends at an offset.
fn damage(found: Mismatch, what: &str, at: u64) -> io::Error {
    let damage = found.at(what, "backup", Path::new("the dump"), at);
    let message = format!("damaged {damage}; make the dump again");
    io::Error::other(Error::missing(damage, message))
}

/// Reads a dump, entry by entry. Only whole blocks are looked into.
pub(super) fn decode(
    from: impl Read,
    add: &mut dyn FnMut(DumpEntry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut input = Input { from, at: 0, bytes: Vec::new() };
    decode_head(input.whole(16, "head of the dump")?)?;
    let mut rows = 0;
    for number in 0_u64.. {
        let what = format!("block {number}");
        let mut head = Reader::new(input.whole(8, &what)?);
        let (len, sum) = (head.u32().unwrap_or(0) as usize, head.u32().unwrap_or(0));
        if !(1..=LARGEST).contains(&len) {
            let found = Mismatch::new(format!("1 to {LARGEST} bytes"), len.to_string());
            return Err(damage(found, &what, input.at));
        }
        let block = input.whole(len, &what)?;
        let computed = checksum(&[number], block);
        if computed != sum {
            return Err(damage(Mismatch::checksum(sum, computed), &what, input.at));
        }
        let found = match decode_block(block, &mut rows, add) {
            Ok(None) => continue,
            Ok(Some(end)) if end.rows == rows => break,
            Ok(Some(end)) => Mismatch::new(format!("{} rows", end.rows), rows.to_string()),
            Err(Refused::By(error)) => return Err(error),
            Err(Refused::Fields) => {
                Mismatch::new("entries that can be", "others, checksum and all")
            }
        };
        return Err(damage(found, &what, input.at));
    }
    match input.read(1)?.len() {
        0 => Ok(()),
        _ => Err(damage(Mismatch::new("nothing", "more bytes"), "end of the dump", input.at)),
    }
}

/// Reads magic, version and checksum.
fn decode_head(head: &[u8]) -> io::Result<()> {
    let mut reader = Reader::new(head);
    if reader.take(8) != Some(MAGIC) {
        let message = "it is no dump of Terrace in binary form";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let (version, sum) = (reader.u32().unwrap_or(0), reader.u32().unwrap_or(0));
    let computed = checksum(&[], &head[..12]);
    if sum != computed {
        return Err(damage(Mismatch::checksum(sum, computed), "head of the dump", 16));
    }
    match version {
        FORMAT => Ok(()),
        _ => Err(io::Error::other(other_format("the dump", version))),
    }
}

/// Why a block of a sound checksum was not taken.
enum Refused {
    /// It says what cannot be.
    Fields,
    By(io::Error),
}

/// Hands the entries of a block on, and counts its rows. What the dump has in all, if it ends here.
fn decode_block(
    block: &[u8],
    rows: &mut u64,
    add: &mut dyn FnMut(DumpEntry<'_>) -> io::Result<()>,
) -> Result<Option<DumpReport>, Refused> {
    let mut reader = Reader::new(block);
    while !reader.is_empty() {
        let tag = reader.u8();
        if tag == Some(END) {
            let end = (|| Some(DumpReport { tables: reader.u64()?, rows: reader.u64()? }))();
            return end.filter(|_| reader.is_empty()).map(Some).ok_or(Refused::Fields);
        }
        let entry = tag.and_then(|tag| decode_entry(tag, &mut reader)).ok_or(Refused::Fields)?;
        *rows += u64::from(matches!(entry, DumpEntry::Row(..)));
        add(entry).map_err(Refused::By)?;
    }
    Ok(None)
}

fn decode_entry<'a>(tag: u8, reader: &mut Reader<'a>) -> Option<DumpEntry<'a>> {
    let name = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok();
    let first = reader.bytes()?;
    match tag {
        TABLE => Some(DumpEntry::Table(name(first)?, TableOptions::decode(reader.bytes()?)?)),
        BLOB => Some(DumpEntry::Blob(first)),
        ROWS => name(first).map(DumpEntry::Rows),
        ROW => Some(DumpEntry::Row(first, reader.bytes()?)),
        _ => None,
    }
}

/// The bytes as they are, and with the checksums of the head and the first block made right. What
/// is accepted is encoded and read again.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn probe(bytes: &[u8]) -> bool {
    use crate::base::record::mended;
    let head = mended(bytes, 12, (0, 12), &[]);
    let len = bytes.get(16..20).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    let right = mended(&head, 20, (24, 24 + len as usize), &[0]);
    let encode = |bytes: &[u8]| {
        let (mut again, mut report) = (Vec::new(), DumpReport::default());
        let mut out = Encoder::new(&mut again);
        let mut add = |entry: DumpEntry<'_>| {
            report.tables += u64::from(matches!(entry, DumpEntry::Rows(_)));
            report.rows += u64::from(matches!(entry, DumpEntry::Row(..)));
            out.add(&entry)
        };
        decode(bytes, &mut add).ok()?;
        out.end(report).ok().map(|()| again)
    };
    let mut accepted = false;
    for bytes in [bytes, &right] {
        if let Some(again) = encode(bytes) {
            assert_eq!(encode(&again).as_ref(), Some(&again), "a dump reads the same again");
            accepted = true;
        }
    }
    accepted
}
