//! Row tables as an opening, a verification or a salvage finds them.

use std::sync::atomic::Ordering;

use super::layout::{ENTRIES, ENTRY, Entry, Place, RowDirectory};
use super::row::{OpenRow, value_span};
use crate::error::{Damage, Error, Result};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::options::Failpoint;
use crate::pm::{PAGE, Region, Span};
use crate::record::{RowTable, TableId, checksum};

/// A row table that is being read: what it is of, for messages.
struct Found<'a> {
    region: &'a Region,
    table: TableId,
    meta: RowTable,
    directory: RowDirectory,
    row: OpenRow,
}

/// Opens a row table that an edit names: checks all of it but what D covers, and leaves that out.
///
/// # Errors
///
/// `Corrupt` if it does not check out; or on an I/O error.
pub(super) fn open(
    region: &Region,
    table: TableId,
    meta: &RowTable,
    drained: &DrainedMap,
) -> Result<OpenRow> {
    let found = Found::read(region, table, meta)?;
    let in_meta = found.pages_of_meta();
    (0..in_meta).try_for_each(|page| found.check(page, "metadata"))?;
    let row = &found.row;
    for n in 0..row.entries() {
        let entry = found.entry(n)?;
        let is_drained = entry.seq <= drained.get(row.key(region, &entry));
        if !is_drained || region.has(Failpoint::IgnoreDrainedRows) {
            row.count_in(&entry);
        } else {
            row.leave_out(n);
        }
    }
    row.clip();
    for page in 0..row.value_pages.len() {
        if row.in_page[page].load(Ordering::Relaxed) > 0 {
            found.check(in_meta + page, "values")?;
        }
    }
    Ok(found.row)
}

/// The records of a row table that can be read and that D does not cover. What cannot be read goes
/// to `lost`.
///
/// # Errors
///
/// The region cannot be read.
pub(super) fn salvage<'a>(
    region: &'a Region,
    table: TableId,
    meta: &RowTable,
    drained: &DrainedMap,
    lost: &mut Vec<Damage>,
) -> Result<Vec<Record<'a>>> {
    let Some(found) = keep(Found::read(region, table, meta), lost)? else {
        return Ok(Vec::new());
    };
    let in_meta = found.pages_of_meta();
    let mut is_sound = Vec::with_capacity(found.directory.pages.len());
    for page in 0..in_meta {
        is_sound.push(keep(found.check(page, "metadata"), lost)?.is_some());
    }
    // A page of values is looked at when an entry that counts leads to it: others may be another's.
    let mut values: Vec<Option<bool>> = vec![None; found.directory.pages.len() - in_meta];
    let (row, mut records) = (&found.row, Vec::new());
    for n in 0..row.entries() {
        if !is_sound[(n / ENTRIES) as usize] {
            continue;
        }
        let Some(entry) = keep(found.entry(n), lost)? else { continue };
        let first = row.entry_pages.len() + entry.key.page as usize;
        let keys = if entry.key_len == 0 {
            0..0
        } else {
            first..first + pages_of(entry.key, entry.key_len)
        };
        if !is_sound[keys].iter().all(|sound| *sound)
            || entry.seq <= drained.get(row.key(region, &entry))
        {
            continue;
        }
        let mut is_whole = true;
        for page in value_span(&entry) {
            let sound = match values[page] {
                Some(sound) => sound,
                None => keep(found.check(in_meta + page, "values"), lost)?.is_some(),
            };
            values[page] = Some(sound);
            is_whole &= sound;
        }
        if is_whole {
            records.push(row.record(region, &entry));
        }
    }
    Ok(records)
}

/// Puts damage on a list; other errors stay errors.
fn keep<T>(result: Result<T>, lost: &mut Vec<Damage>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.damage() {
            Some(damage) => {
                lost.push(damage.clone());
                Ok(None)
            }
            None => Err(error),
        },
    }
}

impl<'a> Found<'a> {
    /// Reads the directory.
    fn read(region: &'a Region, table: TableId, meta: &RowTable) -> Result<Found<'a>> {
        let span = page_span(meta.page, meta.pages);
        let bad = |at: u64, wrong| damaged(region, (table, meta.id), at, "directory", wrong);
        let outside = |at: u64| {
            let expected = format!("pages inside of {} bytes", region.len());
            bad(at, (expected, format!("a page at {at}")))
        };
        if span.end() > region.len() {
            return Err(outside(span.at));
        }
        region.load(span)?;
        let bytes = region.bytes(span.at, span.len);
        let directory = RowDirectory::decode(bytes, (table, meta.id, meta.checksum))
            .map_err(|wrong| bad(span.at, wrong))?;
        let is_outside = |page: &u32| page_span(*page, 1).end() > region.len();
        if let Some(page) = directory.pages.iter().map(|page| page.page).find(is_outside) {
            return Err(outside(page_span(page, 1).at));
        }
        let row = OpenRow::new(*meta, &directory);
        Ok(Found { region, table, meta: *meta, directory, row })
    }

    fn pages_of_meta(&self) -> usize {
        self.row.entry_pages.len() + self.row.key_pages.len()
    }

    /// Reads a page and holds it against its checksum.
    fn check(&self, page: usize, part: &str) -> Result<()> {
        let page = self.directory.pages[page];
        let span = page_span(page.page, 1);
        self.region.load(span)?;
        let computed = checksum(&[self.meta.id], self.region.bytes(span.at, span.len));
        if computed == page.checksum {
            return Ok(());
        }
        let sums = (format!("checksum {:08x}", page.checksum), format!("{computed:08x}"));
        Err(self.damaged(span.at, part, sums))
    }

    /// An entry that leads into pages that there are. The checksum of its page is right, so what is
    /// wrong here was written so.
    fn entry(&self, n: u32) -> Result<Entry> {
        let at = self.row.entry_at(n);
        let entry = self.region.bytes(at, ENTRY as u64).first_chunk().and_then(Entry::decode);
        let fits = |pages: &[u32], place: Place, len: u32| {
            let (first, last) = (place.page as usize, place.page as usize + pages_of(place, len));
            let in_a_row = || pages[first..last].is_sorted_by(|a, b| a + 1 == *b);
            len == 0 || (last <= pages.len() && in_a_row())
        };
        let is_sound = |entry: &Entry| {
            fits(&self.row.key_pages, entry.key, entry.key_len)
                && fits(&self.row.value_pages, entry.value, entry.value_len)
        };
        entry.filter(is_sound).ok_or_else(|| {
            let wrong = ("an entry inside of its pages".into(), format!("entry {n}"));
            self.damaged(at, "metadata", wrong)
        })
    }

    fn damaged(&self, at: u64, part: &str, wrong: (String, String)) -> Error {
        damaged(self.region, (self.table, self.meta.id), at, part, wrong)
    }
}

fn damaged(
    region: &Region,
    (table, id): (TableId, u64),
    offset: u64,
    part: &str,
    (expected, got): (String, String),
) -> Error {
    let what = format!("{part} of row table {id} of table {table}");
    let file = region.path().to_path_buf();
    Error::corrupt(Damage { tier: "pm", file, offset, what, expected, got })
}

fn page_span(page: u32, pages: u32) -> Span {
    Span { at: u64::from(page) * PAGE, len: u64::from(pages) * PAGE }
}

/// How many pages bytes at a place lie in.
fn pages_of(place: Place, len: u32) -> usize {
    (u64::from(place.offset) + u64::from(len)).div_ceil(PAGE) as usize
}
