//! Checks all of an extent against its checksums, against itself, and against the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{Block, BlockCursor};
use super::filter::{self, Filter};
use super::footer::{ContentSum, Footer};
use super::frame;
use super::index::Index;
use super::reader::Tail;
use super::{BlockSummary, Extent, ExtentMeta, ReadAhead};
use crate::base::error::{Error, Findings, Mismatch};
use crate::base::options::Compression;
use crate::base::record::{EntryRef, Lsn, Reference};
use crate::mvcc::Tombstones;

impl Extent {
    /// Reads the whole extent from the store and appends all that is wrong to `report`. References
    /// are checked, but not the values that they lead to. Returns the number of structures that
    /// were checked.
    pub(crate) fn verify(&self, report: &mut Findings) -> u64 {
        self.verified(report, |found| {
            let mut check = Check { extent: self, report: found, checked: 0 };
            match self.load_tail() {
                Ok(tail) => check.all(&tail),
                Err(error) => drop(check.take::<()>("extent footer", Err(error))),
            }
            check.checked
        })
    }

    /// Reads it, and checks all checksums of the bytes that it gives. It reads no values: each
    /// value extent is checked where it is read itself.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it is damaged; or an I/O error.
    pub(crate) fn read_whole(&self) -> Result<Vec<u8>, Error> {
        self.or_again(self.read_and_check(), || self.read_and_check())
    }

    fn read_and_check(&self) -> Result<Vec<u8>, Error> {
        // The next opening may write where it lies.
        let inside = self.gate().enter_step().map_err(Error::not_open)?;
        let whole = self.load_whole()?;
        drop(inside);
        self.check_seals(&whole)
            .map_err(|e| if self.meta().location.is_object() { e.of_store() } else { e })?;
        Ok(whole.into_bytes())
    }

    /// Checks what all of it is sealed with. That covers each byte, so it is what was written.
    fn check_seals(&self, whole: &Tail<'_>) -> Result<(), Error> {
        let footer = self.footer(whole)?;
        self.load_filter(whole, &footer)?;
        self.summaries_of(whole, &footer)?;
        self.load_ranges(whole, &footer)?;
        let (id, mut content) = (self.meta().id, ContentSum::new(self.meta().id));
        for entry in self.load_index(whole, &footer)?.entries() {
            let block = whole.part(entry.offset, entry.len).unwrap_or_default();
            frame::check_seal(id, entry.offset, block)
                .map_err(|mismatch| self.corrupt(entry.offset, "block", mismatch))?;
            content.add(block);
        }
        self.check_content(content, whole, &footer)
    }

    /// Checks that the content is what the footer says. Each part is sealed for its place, so where
    /// it is not, one is of an earlier extent of this id.
    fn check_content(
        &self,
        blocks: ContentSum,
        tail: &Tail<'_>,
        footer: &Footer,
    ) -> Result<(), Error> {
        let sum = self.content_of(blocks, tail, footer)?;
        let other = || Mismatch::new("the records that it was written with", "others");
        if sum == footer.content { Ok(()) } else { Err(self.corrupt(0, "records", other())) }
    }
}

impl Check<'_> {
    /// Checks all of it: what `tail` has, and for the rest what is read now.
    fn all(&mut self, tail: &Tail<'_>) {
        let extent = self.extent;
        let Some(footer) = self.take("extent footer", extent.footer(tail)) else { return };
        let filter = self.take("extent filter", extent.load_filter(tail, &footer));
        let summaries = extent.summaries_of(tail, &footer);
        let summaries = self.take("block summaries", summaries);
        if let Some(index) = self.take("extent index", extent.load_index(tail, &footer)) {
            let ranges = self.take("range tombstones", extent.load_ranges(tail, &footer));
            let read = ReadParts { filter, summaries, index, ranges };
            if let Some(content) = self.blocks(tail, &read)
                && let Err(error) = extent.check_content(content, tail, &footer)
            {
                self.report("records", &error);
            }
        }
    }
}

/// What could be read beside the blocks.
struct ReadParts {
    filter: Option<Filter>,
    summaries: Option<Vec<BlockSummary>>,
    index: Index,
    ranges: Option<Tombstones>,
}

/// What was counted on the way through the blocks.
struct Tally {
    counted: ExtentMeta,
    last_seq: Lsn,
    /// Those that are to be checked.
    references: Vec<Reference>,
    /// Bytes referred to, by value extent.
    referred: BTreeMap<u64, u64>,
}

impl Tally {
    /// Takes note of an entry; whether it sorts after the one before, if it is not the first.
    fn add(&mut self, entry: &EntryRef<'_>, is_first: bool) -> bool {
        let (last, last_seq) = (&mut self.counted.greatest_key, self.last_seq);
        let ordered = is_first || (last.as_slice(), entry.seq) < (entry.key, last_seq);
        if let Some(at) = entry.reference() {
            *self.referred.entry(at.extent).or_default() += u64::from(at.len);
            self.references.push(at);
        }
        last.clear();
        last.extend_from_slice(entry.key);
        self.last_seq = entry.seq;
        ordered
    }

    /// Whether it is what the journal says of the extent.
    fn agrees_with(self, meta: &ExtentMeta) -> bool {
        let mut described = ExtentMeta {
            location: self.counted.location,
            values: Arc::clone(&self.counted.values),
            one_seq: false,
            kept: 0,
            footer_checksum: 0,
            ..meta.clone()
        };
        if meta.one_seq {
            let ExtentMeta { smallest_seq, greatest_seq, .. } = self.counted;
            (described.smallest_seq, described.greatest_seq) = (smallest_seq, greatest_seq);
        }
        self.counted == described && self.referred.into_iter().eq(uses(meta))
    }
}

/// The value extents of a description, and the bytes that are referred to.
fn uses(meta: &ExtentMeta) -> impl Iterator<Item = (u64, u64)> {
    meta.values.iter().map(|one| (one.of.id, one.bytes))
}

struct Check<'a> {
    extent: &'a Extent,
    report: &'a mut Findings,
    checked: u64,
}

impl Check<'_> {
    /// Counts a structure, and reports it when it could not be loaded.
    fn take<T>(&mut self, what: &str, loaded: Result<T, Error>) -> Option<T> {
        self.checked += 1;
        loaded.map_err(|error| self.report(what, &error)).ok()
    }

    fn report(&mut self, what: &str, error: &Error) {
        let extent = self.extent;
        self.report.add(error, || extent.damage(0, what, Mismatch::new("", "")));
    }

    /// Checks the blocks; the sum of their seals, if all are sound.
    fn blocks(&mut self, tail: &Tail<'_>, parts: &ReadParts) -> Option<ContentSum> {
        let ReadParts { filter, summaries, index, ranges } = parts;
        let (before, mut content) = (self.report.count(), ContentSum::new(self.extent.meta().id));
        let (references, referred) = (Vec::new(), BTreeMap::new());
        let counted = ExtentMeta::new(self.extent.meta().id);
        let mut tally = Tally { counted, last_seq: 0, references, referred };
        let ahead = ReadAhead::for_job(1);
        for n in 0..index.entries().len() {
            let entry = &index.entries()[n];
            let bytes = match tail.part(entry.offset, entry.len) {
                Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
                None => self.extent.bytes_in_turn(index, n, None, &ahead),
            };
            let block = bytes.and_then(|bytes| {
                content.add(&bytes);
                // What is given is what is checked: no block is asked for again here.
                self.extent.sound_block(entry, bytes)
            });
            if let Some(block) = self.take("block", block)
                && let summary = summaries.as_ref().and_then(|summaries| summaries.get(n))
                && let Err(mismatch) =
                    check_block(&block, index, n, (filter.as_ref(), summary), &mut tally)
            {
                self.report.damages.push(self.extent.damage(entry.offset, "block", mismatch));
            }
        }
        self.references(std::mem::take(&mut tally.references));
        ranges.iter().flat_map(Tombstones::iter).for_each(|t| tally.counted.count_tombstone(t));
        let (meta, records) = (self.extent.meta(), tally.counted.records);
        if self.report.count() == before && !tally.agrees_with(meta) {
            let expected = format!("{} records as the journal describes them", meta.records);
            let mismatch = Mismatch::new(expected, format!("{records} others"));
            self.report.damages.push(self.extent.damage(0, "records", mismatch));
        }
        (self.report.count() == before).then_some(content)
    }
}

impl Check<'_> {
    /// Checks that references lead to values: those to one value extent together, in the order of
    /// its values, so that one read has many of them.
    fn references(&mut self, mut references: Vec<Reference>) {
        references.sort_unstable_by_key(|at| (at.extent, at.offset));
        for places in references.chunk_by(|a, b| a.extent == b.extent) {
            let values = self.extent.value_extent(&places[0]);
            let Some(values) = self.take("value extent", values) else { continue };
            values.check_all(places, |found| _ = self.take("reference", found));
        }
    }
}

/// Checks that entries decode, ascend, are known to the filter, and end as the index says, and that
/// the summary says what there is; counts them.
fn check_block(
    block: &Block,
    index: &Index,
    n: usize,
    (filter, summary): (Option<&Filter>, Option<&BlockSummary>),
    tally: &mut Tally,
) -> Result<(), Mismatch> {
    let undecodable = |_| Mismatch::new("entries that decode", "one that does not");
    block.check().map_err(undecodable)?;
    let mut cursor = BlockCursor::new(block);
    cursor.first().map_err(undecodable)?;
    let mut counted: Option<BlockSummary> = None;
    while let Some(entry) = cursor.entry() {
        let is_first = tally.counted.records == 0 && counted.is_none();
        let new_key = is_first || tally.counted.greatest_key != entry.key;
        match &mut counted {
            Some(counted) => counted.count(&entry, new_key),
            None => counted = Some(BlockSummary::begin(&entry, Compression::None)),
        }
        if !tally.add(&entry, is_first) {
            return Err(Mismatch::new("ascending records", "one that is not greater"));
        }
        if filter.is_some_and(|filter| !filter.may_contain(n, filter::hash(entry.key))) {
            return Err(Mismatch::new("keys that the filter knows", "one that it does not"));
        }
        cursor.next().map_err(undecodable)?;
    }
    let last = (index.last_key(n), index.entries()[n].last_seq);
    let ends = (tally.counted.greatest_key.as_slice(), tally.last_seq) == last;
    let Some(counted) = counted.filter(|_| ends) else {
        let expected = format!("the last record that the index has, with sequence {}", last.1);
        return Err(Mismatch::new(expected, "another one"));
    };
    tally.counted.count_block(&counted);
    match summary.filter(|summary| !counted.counts_as(summary)) {
        Some(summary) => Err(Mismatch::new(format!("{summary:?}"), format!("{counted:?}"))),
        None => Ok(()),
    }
}
