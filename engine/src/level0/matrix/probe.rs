//! The decoders of row tables, for fuzzing.

use super::layout::{ENTRY, Entry, RowDirectory};
use crate::base::record::{Reader, mended};

/// Takes any bytes for a directory, and their head for an entry; whether either was accepted.
pub(crate) fn probe(bytes: &[u8]) -> bool {
    let entry = bytes.first_chunk::<ENTRY>().and_then(Entry::decode);
    if let Some(entry) = &entry {
        let mut again = Vec::new();
        entry.encode(&mut again);
        let again = again.first_chunk().and_then(Entry::decode);
        assert_eq!(again.as_ref(), Some(entry), "an entry is read as it was written");
    }
    let mut reader = Reader::new(bytes.get(8..).unwrap_or_default());
    let (table, _, id) = (reader.u32(), reader.u32(), reader.u64());
    let (table, id) = (table.unwrap_or_default(), id.unwrap_or_default());
    let right = mended(bytes, 4, (8, bytes.len()), &[u64::from(table), id]);
    let sum = right.get(4..).and_then(|rest| Reader::new(rest).u32()).unwrap_or_default();
    let directory = RowDirectory::decode(&right, table, id, sum);
    if let Ok(directory) = &directory {
        let (again, sum) = directory.encode();
        let again = RowDirectory::decode(&again, table, id, sum);
        assert_eq!(again.as_ref(), Ok(directory), "a directory is read as it was written");
    }
    directory.is_ok() || entry.is_some()
}
