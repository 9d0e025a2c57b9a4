//! Entries of the log: their bytes (`docs/format.md`, "Shared store"). An entry has a header, and a
//! body that is compressed where that makes it shorter. The writer keeps the memory of its
//! compressor.

use std::fmt;
use std::io::Read;

use super::groups::{
    LargePart, SegmentGroups, SharedPrepare, ShippedGroup, decode_groups, encode_group,
};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::MAX_TABLE_NAME_LEN;
use crate::base::record::{
    FORMAT, LSN_MAX, Lsn, Reader, TableId, checksum, put_bytes, put_u32, put_u64,
};

pub(super) const MAGIC: &[u8; 8] = b"TERRSHAR";

/// Bytes before an entry's body.
pub(crate) const HEADER_LEN: usize = 72;

/// The longest body before compression: a segment is cut long before, a checkpoint lists extents.
pub(super) const MOST_BYTES: u32 = 1 << 30;

/// What an entry says of itself, before its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// Its place in the log, from 1.
    pub(crate) number: u64,
    /// The claim of its writer; of a claim, its own number.
    pub(crate) claim: u64,
    /// The newest checkpoint up to here, this entry included; 0 if there is none.
    pub(crate) checkpoint: u64,
    /// Of a segment, its first LSN; of a checkpoint, the entry with which a reader of it goes on.
    pub(crate) first: u64,
    /// The LSN that a reader has once it has applied the entry.
    pub(crate) last: Lsn,
    pub(crate) kind: EntryKind,
    compression: u8,
    /// Bytes of the body, before compression and as they are stored.
    lens: (u32, u32),
    body_sum: u32,
}

/// The numbers are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Claim = 1,
    Segment = 3,
    Checkpoint = 4,
    Part = 5,
    Tables = 6,
}

impl EntryKind {
    fn from_u8(n: u8) -> Option<EntryKind> {
        use EntryKind::{Checkpoint, Claim, Part, Segment, Tables};
        [Claim, Tables, Segment, Checkpoint, Part].into_iter().find(|kind| *kind as u8 == n)
    }
}

/// An opening that became the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogClaim {
    /// By which it knows its own claim.
    pub(crate) nonce: [u8; 16],
    pub(crate) incarnation: u64,
    /// Process, program and machine, for messages.
    pub(crate) owner: String,
}

impl fmt::Display for LogClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (incarnation {})", self.owner, self.incarnation)
    }
}

/// A table of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedTable {
    pub(crate) id: TableId,
    pub(crate) name: String,
}

/// All tables at one LSN, and the transactions that were prepared then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCheckpoint {
    /// The bytes of a manifest.
    pub(crate) manifest: Vec<u8>,
    /// By their LSNs.
    pub(crate) prepares: Vec<SharedPrepare>,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryBody {
    Claim(LogClaim),
    /// All tables that there are, by the numbers of a new writer.
    Tables(Vec<SharedTable>),
    /// Commit groups; LSNs without one were no news.
    Segment(Vec<ShippedGroup>),
    Checkpoint(LogCheckpoint),
    /// Rows of a large commit that a later entry makes count.
    Part(LargePart),
}

/// One object of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) claim: u64,
    pub(crate) checkpoint: u64,
    /// As [`EntryHeader::first`].
    pub(crate) first: u64,
    pub(crate) last: Lsn,
    pub(crate) body: EntryBody,
}

impl EntryHeader {
    /// Reads the header of entry `number`.
    pub(crate) fn decode(
        bytes: &[u8],
        number: u64,
    ) -> std::result::Result<EntryHeader, EntryRefused> {
        let damaged = |what: &str| EntryRefused::Damaged(what.to_string());
        let head = bytes.get(..HEADER_LEN).ok_or_else(|| damaged("72 bytes or more"))?;
        let mut reader = Reader::new(head.strip_prefix(MAGIC).ok_or_else(|| damaged("magic"))?);
        let (version, sum) =
            reader.u32().zip(reader.u32()).ok_or_else(|| damaged("version and checksum"))?;
        if sum != checksum(&[u64::from(version), number], &head[16..]) {
            return Err(damaged("the checksum of a header of this number"));
        }
        if version != FORMAT {
            return Err(EntryRefused::Format(version));
        }
        EntryHeader::decode_fields(&mut reader)
            .filter(|header| header.number == number)
            .ok_or_else(|| damaged("possible fields"))
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Option<EntryHeader> {
        let body_sum = reader.u32()?;
        let (kind, compression) = (EntryKind::from_u8(reader.u8()?)?, reader.u8()?);
        let is_zero = reader.u16()? == 0;
        let lens = (reader.u32()?, reader.u32()?);
        let (number, claim, checkpoint) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (first, last) = (reader.u64()?, reader.u64()?);
        let header = EntryHeader {
            number,
            claim,
            checkpoint,
            first,
            last,
            kind,
            compression,
            lens,
            body_sum,
        };
        (is_zero && header.is_sound()).then_some(header)
    }

    fn is_sound(&self) -> bool {
        let claims_itself = (self.claim == self.number) == (self.kind == EntryKind::Claim);
        let checkpoints = (self.checkpoint == self.number) == (self.kind == EntryKind::Checkpoint);
        let begins = match self.kind {
            EntryKind::Segment => 1..=self.last,
            EntryKind::Checkpoint => 1..=self.number + 1,
            EntryKind::Claim | EntryKind::Part | EntryKind::Tables => 0..=0,
        };
        let is_plain = self.compression == 0 && self.lens.0 == self.lens.1;
        (1..=self.number).contains(&self.claim)
            && self.checkpoint <= self.number
            && claims_itself
            && checkpoints
            && begins.contains(&self.first)
            && self.last < LSN_MAX
            && self.lens.0 <= MOST_BYTES
            && (is_plain || self.compression == 2)
    }
}

/// Why the bytes of an entry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryRefused {
    /// It is of this format, which is not known.
    Format(u32),
    /// What a sound entry would have there.
    Damaged(String),
}

impl EntryBody {
    pub(super) fn kind(&self) -> EntryKind {
        match self {
            EntryBody::Claim(_) => EntryKind::Claim,
            EntryBody::Tables(_) => EntryKind::Tables,
            EntryBody::Segment(_) => EntryKind::Segment,
            EntryBody::Checkpoint(_) => EntryKind::Checkpoint,
            EntryBody::Part(_) => EntryKind::Part,
        }
    }
}

impl Entry {
    /// Reads the whole object of entry `number`.
    pub(crate) fn decode(bytes: &[u8], number: u64) -> std::result::Result<Entry, EntryRefused> {
        let header = EntryHeader::decode(bytes, number)?;
        let damaged = |what: &str| EntryRefused::Damaged(what.to_string());
        let stored = &bytes[HEADER_LEN..];
        if stored.len() != header.lens.1 as usize {
            return Err(damaged("a body of the length in the header"));
        }
        if header.body_sum != checksum(&[number], stored) {
            return Err(damaged("the checksum of the body"));
        }
        let body = match header.compression {
            0 => stored.to_vec(),
            _ => decompress(stored, header.lens.0)
                .ok_or_else(|| damaged("a body that can be decompressed"))?,
        };
        let body = decode_body(&header, &body).ok_or_else(|| damaged("a possible body"))?;
        let EntryHeader { number, claim, checkpoint, first, last, .. } = header;
        Ok(Entry { number, claim, checkpoint, first, last, body })
    }
}

/// What `stored` is made of, which has `len` bytes. Takes memory as bytes come.
fn decompress(stored: &[u8], len: u32) -> Option<Vec<u8>> {
    let decoder = zstd::stream::read::Decoder::new(stored).ok()?;
    let mut body = Vec::new();
    decoder.take(u64::from(len) + 1).read_to_end(&mut body).ok()?;
    (body.len() == len as usize).then_some(body)
}

pub(super) fn encode_body(body: &EntryBody) -> Vec<u8> {
    let mut out = Vec::new();
    match body {
        EntryBody::Claim(claim) => {
            out.extend_from_slice(&claim.nonce);
            put_u64(&mut out, claim.incarnation);
            put_bytes(&mut out, claim.owner.as_bytes());
        }
        EntryBody::Tables(tables) => {
            for SharedTable { id, name } in tables {
                put_u32(&mut out, *id);
                put_bytes(&mut out, name.as_bytes());
            }
        }
        EntryBody::Segment(groups) => {
            for group in groups {
                let parts = group.parts.iter().map(Vec::as_slice);
                encode_group(&mut out, (group.lsn, group.kind), parts);
            }
        }
        EntryBody::Checkpoint(LogCheckpoint { manifest, prepares }) => {
            put_bytes(&mut out, manifest);
            prepares.iter().for_each(|prepare| prepare.encode(&mut out));
        }
        EntryBody::Part(part) => part.encode(&mut out),
    }
    out
}

fn decode_body(header: &EntryHeader, bytes: &[u8]) -> Option<EntryBody> {
    let mut reader = Reader::new(bytes);
    match header.kind {
        EntryKind::Claim => {
            let nonce = reader.take(16)?.try_into().ok()?;
            let incarnation = reader.u64()?;
            let owner = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
            let claim = LogClaim { nonce, incarnation, owner };
            reader.is_empty().then_some(EntryBody::Claim(claim))
        }
        EntryKind::Tables => {
            let mut tables = Vec::new();
            while !reader.is_empty() {
                tables.push(decode_table(&mut reader)?);
            }
            Some(EntryBody::Tables(tables))
        }
        EntryKind::Segment => {
            decode_groups(bytes, header.first, header.last).map(EntryBody::Segment)
        }
        EntryKind::Part => LargePart::decode(bytes, header.last).map(EntryBody::Part),
        EntryKind::Checkpoint => {
            let (manifest, mut prepares) = (reader.bytes()?.to_vec(), Vec::new());
            let mut next = 1;
            while !reader.is_empty() {
                let prepare = SharedPrepare::decode(&mut reader)?;
                if !(next..=header.last).contains(&prepare.lsn) {
                    return None;
                }
                next = prepare.lsn + 1;
                prepares.push(prepare);
            }
            Some(EntryBody::Checkpoint(LogCheckpoint { manifest, prepares }))
        }
    }
}

fn decode_table(reader: &mut Reader<'_>) -> Option<SharedTable> {
    let (id, name) = (reader.u32()?, reader.bytes()?);
    let name = String::from_utf8(name.to_vec()).ok()?;
    (name.len() <= MAX_TABLE_NAME_LEN).then_some(SharedTable { id, name })
}

/// Zstandard's level: the fastest that is worth it.
const LEVEL: i32 = 1;

/// Bodies below it are not compressed.
const LEAST_TO_COMPRESS: usize = 256;

/// The body of an entry that is to be appended.
#[derive(Debug)]
pub(crate) struct NewBody {
    pub(super) kind: EntryKind,
    pub(super) bytes: Vec<u8>,
}

impl From<EntryBody> for NewBody {
    fn from(body: EntryBody) -> NewBody {
        NewBody { kind: body.kind(), bytes: encode_body(&body) }
    }
}

impl From<SegmentGroups> for NewBody {
    fn from(groups: SegmentGroups) -> NewBody {
        NewBody { kind: EntryKind::Segment, bytes: groups.into_bytes() }
    }
}

/// Compresses the bodies of a writer's entries, in memory that it has once.
#[derive(Default)]
pub(super) struct EntryCompressor(Option<zstd::bulk::Compressor<'static>>);

impl fmt::Debug for EntryCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryCompressor")
    }
}

impl EntryCompressor {
    /// Appends what `body` is compressed to; whether that is shorter. If not, `out` is as before.
    fn append(&mut self, out: &mut Vec<u8>, body: &[u8]) -> bool {
        if body.len() < LEAST_TO_COMPRESS {
            return false;
        }
        if self.0.is_none() {
            self.0 = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        let Some(compressor) = &mut self.0 else { return false };
        let before = out.len();
        // One byte less: what is as long is no gain.
        out.resize(before + body.len() - 1, 0);
        let len = compressor.compress_to_buffer(body, &mut out[before..]);
        out.truncate(before + *len.as_ref().unwrap_or(&0));
        len.is_ok()
    }
}

/// The fields of an entry that is to be encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHead {
    pub(super) number: u64,
    pub(super) claim: u64,
    pub(super) checkpoint: u64,
    pub(super) first: u64,
    pub(super) last: Lsn,
    pub(super) kind: EntryKind,
}

impl NewHead {
    /// The bytes of the object with this body.
    pub(super) fn encode(self, body: &[u8], compressor: &mut EntryCompressor) -> Result<Vec<u8>> {
        if body.len() > MOST_BYTES as usize {
            let len = body.len();
            let message = format!("an entry of the log takes {MOST_BYTES} bytes, not {len}");
            return Err(Error::new(ErrorKind::Full, message));
        }
        let mut out = Vec::with_capacity(HEADER_LEN + body.len());
        out.resize(HEADER_LEN, 0);
        let is_smaller = compressor.append(&mut out, body);
        if !is_smaller {
            out.extend_from_slice(body);
        }
        let (compression, stored) = (if is_smaller { 2 } else { 0 }, &out[HEADER_LEN..]);
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        put_u32(&mut header, FORMAT);
        put_u32(&mut header, 0);
        put_u32(&mut header, checksum(&[self.number], stored));
        header.extend_from_slice(&[self.kind as u8, compression, 0, 0]);
        put_u32(&mut header, body.len() as u32);
        put_u32(&mut header, stored.len() as u32);
        for field in [self.number, self.claim, self.checkpoint, self.first, self.last] {
            put_u64(&mut header, field);
        }
        debug_assert_eq!(header.len(), HEADER_LEN, "a header has a fixed length");
        let sum = checksum(&[u64::from(FORMAT), self.number], &header[16..]);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }
}

impl Entry {
    /// The bytes of the object.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let Entry { number, claim, checkpoint, first, last, ref body } = *self;
        let head = NewHead { number, claim, checkpoint, first, last, kind: body.kind() };
        head.encode(&encode_body(body), &mut EntryCompressor::default())
    }
}
