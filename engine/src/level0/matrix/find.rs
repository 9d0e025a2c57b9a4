//! Finds row tables that no edit names: each directory says of which table and number it is.

use std::ops::Range;

use super::layout::RowDirectory;
use crate::error::Result;
use crate::pm::{PAGE, Region, Span};
use crate::record::{RowTable, TableId};

/// The row tables whose directories are whole, by their numbers, but for what lies in `zones`. They
/// may have been drained, and their other pages used again.
///
/// # Errors
///
/// The region cannot be read.
pub(crate) fn find_rows(region: &Region, zones: &[Range<u64>]) -> Result<Vec<(TableId, RowTable)>> {
    let mut zones = zones.to_vec();
    zones.sort_by_key(|zone| zone.start);
    let mut zones = zones.into_iter().peekable();
    let (mut found, mut at) = (Vec::new(), 0);
    while at + PAGE <= region.len() {
        while zones.next_if(|zone| zone.end <= at).is_some() {}
        if let Some(zone) = zones.peek().filter(|zone| zone.start <= at) {
            at = zone.end.next_multiple_of(PAGE);
            continue;
        }
        found.extend(directory_at(region, at)?);
        at += PAGE;
    }
    found.sort_by_key(|(_, row)| row.id);
    Ok(found)
}

/// The row table whose directory begins at an offset, if one does.
fn directory_at(region: &Region, at: u64) -> Result<Option<(TableId, RowTable)>> {
    region.load(Span { at, len: PAGE })?;
    let Some(head) = RowDirectory::peek(region.bytes(at, PAGE)) else { return Ok(None) };
    let len = head.pages * PAGE;
    if at + len > region.len() {
        return Ok(None);
    }
    region.load(Span { at, len })?;
    let bytes = region.bytes(at, len);
    let Ok(directory) = RowDirectory::decode(bytes, head.table, head.id, head.checksum) else {
        return Ok(None);
    };
    let (page, pages) = ((at / PAGE) as u32, head.pages as u32);
    let RowDirectory { table, id, after, upto, .. } = directory;
    // No edit says which is the oldest record: none is older than this.
    let oldest = after + 1;
    Ok(Some((table, RowTable { id, page, pages, checksum: head.checksum, after, upto, oldest })))
}
