//! Row tables as an opening, a verification or a salvage finds them.
//!
//! Finds row tables that no edit names: each directory says of which table and number it is.

use std::ops::Range;

use super::layout::{ENTRIES, ENTRY, Entry, RowDirectory};
use super::row::{OpenRow, key_span, value_span};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::options::Failpoint;
use crate::base::progress::Meter;
use crate::base::record::{RowTable, TableId, checksum};
use crate::memtable::Record;
use crate::mvcc::DrainedMap;
use crate::os::sync::atomic::Ordering;
use crate::pm::{PAGE, Region, Span};

/// A row table that is being read: what it is of, for messages.
struct Found<'a> {
    region: &'a Region,
    table: TableId,
    meta: RowTable,
    directory: RowDirectory,
    row: OpenRow,
}

/// Opens a row table that an edit names: checks all of it but what D covers, and leaves that out.
/// `meter` counts its pages.
pub(super) fn open(
    region: &Region,
    (table, meta): (TableId, &RowTable),
    drained: &DrainedMap,
    meter: &Meter,
) -> Result<OpenRow> {
    let found = Found::read(region, table, meta)?;
    let row = &found.row;
    found.plan(meter)?;
    let ignores_drained = region.has(Failpoint::IgnoreDrainedRows);
    let mut keys = Checked::new(row.entry_pages.len()..found.pages_of_meta(), "metadata");
    // They may have other bytes by now.
    let is_passed = |page: &usize| row.is_covered(region, *page, drained) && !ignores_drained;
    let (passed, read): (Vec<_>, Vec<_>) = (0..row.entry_pages.len()).partition(is_passed);
    row.leave_out_pages(&passed);
    meter.did(passed.len() as u64 * PAGE)?;
    for page in read {
        found.check(page, "metadata")?;
        for n in found.entries_of(page) {
            let entry = found.entry(n)?;
            for page in key_span(&entry) {
                keys.check(&found, page)?;
            }
            let is_drained = entry.seq <= drained.get(row.key(region, &entry));
            if !is_drained || ignores_drained {
                row.count_in(&entry);
            } else {
                row.leave_out(n);
            }
        }
        row.count_in_keys(region, page);
        meter.did(PAGE)?;
    }
    meter.did(row.key_pages.len() as u64 * PAGE)?;
    for page in 0..row.value_pages.len() {
        if row.in_page[page].load(Ordering::Relaxed) > 0 {
            found.check(found.pages_of_meta() + page, "values")?;
        }
        meter.did(PAGE)?;
    }
    Ok(found.row)
}

/// The records of a row table that can be read and that D does not cover. What cannot be read goes
/// to `lost`.
pub(crate) fn salvage_row<'a>(
    region: &'a Region,
    (table, meta): (TableId, &RowTable),
    drained: &DrainedMap,
    (lost, meter): (&mut Vec<Damage>, &Meter),
) -> Result<Vec<Record<'a>>> {
    let Some(found) = keep(Found::read(region, table, meta), lost)? else {
        return Ok(Vec::new());
    };
    found.plan(meter)?;
    let (row, mut records) = (&found.row, Vec::new());
    let (array, pages) = (row.entry_pages.len(), found.directory.pages.len());
    let mut keys = Checked::new(array..found.pages_of_meta(), "metadata");
    let mut values = Checked::new(found.pages_of_meta()..pages, "values");
    for page in 0..array {
        meter.did(PAGE)?;
        if row.is_covered(region, page, drained)
            || keep(found.check(page, "metadata"), lost)?.is_none()
        {
            continue;
        }
        for n in found.entries_of(page) {
            let Some(entry) = keep(found.entry(n), lost)? else { continue };
            if !keys.are_sound(&found, key_span(&entry), lost)?
                || entry.seq <= drained.get(row.key(region, &entry))
            {
                continue;
            }
            // A page of values is looked at when an entry that counts leads to it: others may be
            // another's.
            if values.are_sound(&found, value_span(&entry), lost)? {
                records.push(row.record(region, &entry));
            }
        }
    }
    meter.did((pages - array) as u64 * PAGE)?;
    Ok(records)
}

/// Pages of one sort, each of which is checked when an entry leads to it.
struct Checked {
    /// The first of them in the directory.
    first: usize,
    part: &'static str,
    /// Whether each is sound, once it was checked.
    is_sound: Vec<Option<bool>>,
}

impl Checked {
    fn new(pages: Range<usize>, part: &'static str) -> Checked {
        Checked { first: pages.start, part, is_sound: vec![None; pages.len()] }
    }

    /// Checks a page, the first time.
    fn check(&mut self, found: &Found<'_>, page: usize) -> Result<()> {
        if self.is_sound[page].is_none() {
            found.check(self.first + page, self.part)?;
            self.is_sound[page] = Some(true);
        }
        Ok(())
    }

    /// Whether some pages are sound. Those that are not go to `lost`, once.
    fn are_sound(
        &mut self,
        found: &Found<'_>,
        pages: Range<usize>,
        lost: &mut Vec<Damage>,
    ) -> Result<bool> {
        let mut are_sound = true;
        for page in pages {
            if self.is_sound[page].is_none() {
                let checked = keep(found.check(self.first + page, self.part), lost)?;
                self.is_sound[page] = Some(checked.is_some());
            }
            are_sound &= self.is_sound[page] == Some(true);
        }
        Ok(are_sound)
    }
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
            bad(at, Mismatch::new(expected, format!("a page at {at}")))
        };
        if span.end() > region.len() {
            return Err(outside(span.at));
        }
        region.load(span)?;
        let bytes = region.bytes(span.at, span.len);
        let directory = RowDirectory::decode(bytes, table, meta.id, meta.checksum)
            .map_err(|wrong| bad(span.at, wrong))?;
        let is_outside = |page: &u32| page_span(*page, 1).end() > region.len();
        if let Some(page) = directory.pages.iter().map(|page| page.page).find(is_outside) {
            return Err(outside(page_span(page, 1).at));
        }
        let row = OpenRow::new(region, *meta, &directory);
        Ok(Found { region, table, meta: *meta, directory, row })
    }

    /// The bytes of its pages are to be read.
    fn plan(&self, meter: &Meter) -> Result<()> {
        meter.plan(self.directory.pages.len() as u64 * PAGE);
        meter.did(0)
    }

    /// The entries of a page of the array.
    fn entries_of(&self, page: usize) -> Range<u32> {
        let from = page as u32 * ENTRIES;
        from..(from + ENTRIES).min(self.row.entries())
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
        Err(self.damaged(span.at, part, Mismatch::checksum(page.checksum, computed)))
    }

    /// An entry that leads into pages that there are. The checksum of its page is right, so what is
    /// wrong here was written so.
    fn entry(&self, n: u32) -> Result<Entry> {
        let at = self.row.entry_at(n);
        let entry = self.region.bytes(at, ENTRY as u64).first_chunk().and_then(Entry::decode);
        let fits = |pages: &[u32], span: Range<usize>| {
            pages.get(span).is_some_and(|pages| pages.is_sorted_by(|a, b| a + 1 == *b))
        };
        let is_sound = |entry: &Entry| {
            fits(&self.row.key_pages, key_span(entry))
                && fits(&self.row.value_pages, value_span(entry))
        };
        entry.filter(is_sound).ok_or_else(|| {
            let wrong = Mismatch::new("an entry inside of its pages", format!("entry {n}"));
            self.damaged(at, "metadata", wrong)
        })
    }

    fn damaged(&self, at: u64, part: &str, wrong: Mismatch) -> Error {
        damaged(self.region, (self.table, self.meta.id), at, part, wrong)
    }
}

fn damaged(
    region: &Region,
    (table, id): (TableId, u64),
    offset: u64,
    part: &str,
    found: Mismatch,
) -> Error {
    let what = format!("{part} of row table {id} of table {table}");
    Error::corrupt(region.damage(offset, what, found))
}

fn page_span(page: u32, pages: u32) -> Span {
    Span { at: u64::from(page) * PAGE, len: u64::from(pages) * PAGE }
}

/// The row tables whose directories are whole, by their numbers, but for what lies in `zones`. They
/// may have been drained, and their other pages used again. `meter` counts what is looked through.
pub(crate) fn find_rows(
    region: &Region,
    zones: &[Range<u64>],
    meter: &Meter,
) -> Result<Vec<(TableId, RowTable)>> {
    let in_zones = zones.iter().map(|zone| zone.end - zone.start).sum();
    meter.plan(region.len().saturating_sub(in_zones));
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
        meter.did(PAGE)?;
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
