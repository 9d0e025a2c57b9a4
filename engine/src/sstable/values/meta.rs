//! What describes a value extent: its footer, which is its last 64 bytes, and what the journal says
//! with each extent that refers to it.

use crate::base::error::Mismatch;
use crate::base::record::{FORMAT, Reader, put_u32, put_u64};
use crate::sstable::footer::{self, check, check_id, too_short};
use crate::storage::Location;

pub(super) use crate::sstable::footer::FOOTER_LEN;

const MAGIC: &[u8; 4] = b"TVAL";

/// What there is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) values: u32,
    /// The [`ContentSum`] of the values.
    ///
    /// [`ContentSum`]: crate::sstable::footer::ContentSum
    pub(super) content: u32,
}

impl Footer {
    pub(super) fn encode(&self, extent: u64) -> [u8; FOOTER_LEN] {
        footer::encode(MAGIC, extent, |out| {
            put_u32(out, self.values);
            put_u32(out, FORMAT);
            put_u32(out, self.content);
        })
    }

    /// Checks the footer of a value extent whose description in the journal has `journal_checksum`.
    pub(super) fn decode(
        extent: u64,
        journal_checksum: u32,
        bytes: &[u8],
    ) -> Result<Footer, Mismatch> {
        let short = || too_short(bytes.len());
        if bytes.len() != FOOTER_LEN {
            return Err(short());
        }
        let mut reader = check(MAGIC, extent, journal_checksum, bytes)?;
        let id = reader.u64().ok_or_else(short)?;
        let values = reader.u32().ok_or_else(short)?;
        check_id("value extent", (extent, id), reader.u32().ok_or_else(short)?)?;
        let content = reader.u32().ok_or_else(short)?;
        if reader.rest().iter().any(|byte| *byte != 0) {
            return Err(Mismatch::new("zeros behind the fields", "others"));
        }
        Ok(Footer { values, content })
    }
}

/// A value extent's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueMeta {
    pub(crate) id: u64,
    pub(crate) location: Location,
    /// Values in it, whether anything refers to them or not.
    pub(crate) values: u32,
    /// The checksum field of its footer.
    pub(crate) footer_checksum: u32,
}

impl ValueMeta {
    /// Bytes of values, their headers included.
    pub(crate) fn values_end(&self) -> u32 {
        self.location.len.saturating_sub(FOOTER_LEN as u32)
    }

    /// Whether it has the same values, wherever it lies: the footers' checksums say so.
    pub(crate) fn is_copy_of(&self, other: &ValueMeta) -> bool {
        *self == ValueMeta { location: self.location, ..*other }
            && self.location.len == other.location.len
    }
}

/// What an extent refers to of a value extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueUse {
    pub(crate) of: ValueMeta,
    /// Bytes that its records refer to, headers included.
    pub(crate) bytes: u64,
}

impl ValueUse {
    fn is_sound(&self) -> bool {
        self.of.values > 0
            && self.of.location.can_hold(self.of.id)
            && self.bytes > 0
            && self.bytes <= u64::from(self.of.values_end())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let ValueMeta { id, location, values, footer_checksum } = &self.of;
        put_u64(out, *id);
        location.encode(out);
        put_u32(out, *values);
        put_u32(out, *footer_checksum);
        put_u64(out, self.bytes);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<ValueUse> {
        let id = reader.u64()?;
        let location = Location::decode(reader)?;
        let (values, footer_checksum) = (reader.u32()?, reader.u32()?);
        let of = ValueMeta { id, location, values, footer_checksum };
        Some(ValueUse { of, bytes: reader.u64()? })
    }
}

/// Whether it is a list that an extent can have: ascending by id.
pub(in crate::sstable) fn are_sound(list: &[ValueUse]) -> bool {
    list.iter().all(ValueUse::is_sound) && list.windows(2).all(|w| w[0].of.id < w[1].of.id)
}

/// Appends the list of `docs/format.md`.
pub(in crate::sstable) fn encode(list: &[ValueUse], out: &mut Vec<u8>) {
    put_u32(out, list.len() as u32);
    list.iter().for_each(|one| one.encode(out));
}

/// Reads a list; `None` if the bytes end first.
pub(in crate::sstable) fn decode(reader: &mut Reader<'_>) -> Option<Vec<ValueUse>> {
    let mut list = Vec::new();
    for _ in 0..reader.u32()? {
        list.push(ValueUse::decode(reader)?);
    }
    Some(list)
}
