//! What the journal says of a row table of level 0.

use super::{Lsn, Reader, put_u32, put_u64};

/// A row table: the records of one frozen memtable, sorted, in pages of the region. Its directory
/// says where all the rest of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTable {
    /// Its number, of those of extents: never reused.
    pub(crate) id: u64,
    /// The first page of the directory, and how many there are in a row.
    pub(crate) page: u32,
    pub(crate) pages: u32,
    /// The checksum that the directory carries.
    pub(crate) checksum: u32,
    /// It has every record of its table above `after`, and up to `upto`, that a read may find.
    pub(crate) after: Lsn,
    pub(crate) upto: Lsn,
    /// No record of it has a smaller sequence number.
    pub(crate) oldest: Lsn,
}

impl RowTable {
    /// The fields of `docs/format.md`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id);
        [self.page, self.pages, self.checksum].iter().for_each(|field| put_u32(out, *field));
        [self.after, self.upto, self.oldest].iter().for_each(|field| put_u64(out, *field));
    }

    /// Reads the fields; `None` if they are not those of a row table.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<RowTable> {
        let row = RowTable {
            id: reader.u64()?,
            page: reader.u32()?,
            pages: reader.u32()?,
            checksum: reader.u32()?,
            after: reader.u64()?,
            upto: reader.u64()?,
            oldest: reader.u64()?,
        };
        let is_sound = row.id > 0
            && row.pages > 0
            && row.page.checked_add(row.pages).is_some()
            && row.after < row.oldest
            && row.oldest <= row.upto;
        is_sound.then_some(row)
    }

    /// Whether the record with this sequence number is in it, if it counts at all.
    pub(crate) fn has(&self, seq: Lsn) -> bool {
        self.after < seq && seq <= self.upto
    }
}
