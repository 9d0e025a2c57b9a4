//! Writes values apart from their records, and puts references in their place. Every value extent
//! is written before the extent that refers to it is described.

use std::sync::Arc;

use bytes::Bytes;

use super::meta::{FOOTER_LEN, Footer};
use super::pieces::ValuePieces;
use super::{ValueExtent, ValueExtents, ValueMeta};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::memory::{Gauge, Holding};
use crate::base::record::{EntryRef, Kind, Reference};
use crate::sstable::compress::Trial;
use crate::sstable::footer::{self, ContentSum};
use crate::sstable::frame::{self, HEADER_LEN};
use crate::sstable::{BuiltExtent, Format, ValueUse};
use crate::storage::{ExtentStore, Location};

/// How and where a job writes what it writes.
pub(crate) trait Layout {
    /// Where it is written to.
    fn store(&self) -> &Arc<ExtentStore>;

    /// What counts the memory that the job takes for it.
    fn gauge(&self) -> &Arc<Gauge>;

    /// How it is laid out.
    fn format(&self) -> Format;

    /// Where extents are cut. A value extent is longer by its footer only, or has one value.
    fn extent_bytes(&self) -> usize;

    /// A new extent's id.
    fn next_id(&self) -> u64;

    /// Whether values of a value extent are written again.
    fn collects(&self, id: u64) -> bool;

    /// Writes a value extent: where it is. It may wait.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; or on an I/O error. Of an object, those of its store.
    fn write_values(&self, id: u64, bytes: &[u8]) -> Result<Location>;
}

/// Writes the values of extents that are built one after the other.
#[derive(Debug, Default)]
pub(crate) struct ValueWriter {
    /// What records that come in refer to.
    sources: ValueExtents,
    open: Option<Values>,
    buffer: ValueBuffer,
    /// What was read of those that are objects.
    pieces: ValuePieces,
    /// What the extent under way refers to of what was written.
    fresh: ValueExtents,
}

/// The memory that value extents are filled in, one after the other.
#[derive(Debug, Default)]
struct ValueBuffer {
    bytes: Vec<u8>,
    /// Once there is any.
    held: Option<Holding>,
}

impl ValueBuffer {
    /// Makes room for `len` bytes more in `out`: twice as many as there are, up to the size of a
    /// value extent.
    fn make_room(&mut self, out: &mut Vec<u8>, len: usize, how: &impl Layout) {
        if out.capacity() - out.len() < len {
            let twice = (out.capacity() * 2).min(how.extent_bytes() + FOOTER_LEN);
            out.reserve_exact(twice.saturating_sub(out.len()).max(len));
        }
        let held = self.held.get_or_insert_with(|| how.gauge().hold(0));
        held.set(out.capacity() as u64);
    }
}

/// A value extent that is being filled.
#[derive(Debug)]
struct Values {
    id: u64,
    out: Vec<u8>,
    values: u32,
    trial: Trial,
    content: ContentSum,
}

impl ValueWriter {
    /// A writer for records that refer to `sources`, if to any.
    pub(crate) fn new(sources: ValueExtents) -> ValueWriter {
        ValueWriter { sources, ..ValueWriter::default() }
    }

    /// What takes the place of a record's value, if that lies apart from now on: the reference that
    /// it has, or one to where its value was written now.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; `Corrupt` if a value that is written again does not check out;
    /// or on an I/O error.
    pub(crate) fn place(
        &mut self,
        entry: &EntryRef<'_>,
        how: &impl Layout,
    ) -> Result<Option<[u8; Reference::LEN]>> {
        if let Some(at) = entry.reference() {
            let source = self.sources.get(&at.extent).ok_or_else(|| unlisted(at.extent))?;
            if !how.collects(at.extent) {
                return Ok(Some(at.encode()));
            }
            let bytes = source.sealed(&at, &mut self.pieces)?;
            let values = self.values(bytes.len(), how)?;
            let at = values.add(at.value_len, |id, _, out| frame::reseal(&bytes, id, out));
            return Ok(Some(at.encode()));
        }
        if entry.kind != Kind::Put || !how.format().is_separated(entry.value.len()) {
            return Ok(None);
        }
        let values = self.values(HEADER_LEN + entry.value.len(), how)?;
        let compression = how.format().compression;
        let at = values.add(entry.value.len() as u32, |id, trial, out| {
            frame::seal(id, entry.value, (compression, trial), out);
        });
        Ok(Some(at.encode()))
    }

    /// A value that lies apart in one of the extents that records which come in refer to.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it does not check out; or on an I/O error.
    pub(crate) fn read(&mut self, at: &Reference) -> Result<Bytes> {
        let source = self.sources.get(&at.extent).ok_or_else(|| unlisted(at.extent))?;
        source.open(at, source.bytes(at, &mut self.pieces)?)
    }

    /// The value extent under way, with room for `len` bytes more.
    fn values(&mut self, len: usize, how: &impl Layout) -> Result<&mut Values> {
        if self.open.as_ref().is_some_and(|open| open.out.len() + len > how.extent_bytes()) {
            self.end(how)?;
        }
        let buffer = &mut self.buffer;
        let open = self.open.get_or_insert_with(|| {
            let id = how.next_id();
            let content = ContentSum::new(id);
            let out = std::mem::take(&mut buffer.bytes);
            Values { id, out, values: 0, trial: Trial::default(), content }
        });
        self.buffer.make_room(&mut open.out, len + FOOTER_LEN, how);
        Ok(open)
    }

    /// Writes the value extent under way.
    fn end(&mut self, how: &impl Layout) -> Result<()> {
        let Some(Values { id, mut out, values, content, .. }) = self.open.take() else {
            return Ok(());
        };
        let footer = Footer { values, content: content.finish() }.encode(id);
        out.extend_from_slice(&footer);
        let location = how.write_values(id, &out)?;
        let footer_checksum = footer::checksum_of(&footer);
        let meta = ValueMeta { id, location, values, footer_checksum };
        self.fresh.insert(id, ValueExtent::new(meta, Arc::clone(how.store())));
        out.clear();
        self.buffer.bytes = out;
        Ok(())
    }

    /// Gives an extent that is complete the list of what it refers to, all of which is written.
    ///
    /// # Errors
    ///
    /// `Full` when there is no room; or on an I/O error.
    pub(crate) fn describe(&mut self, built: &mut BuiltExtent, how: &impl Layout) -> Result<()> {
        self.end(how)?;
        let mut fresh = std::mem::take(&mut self.fresh);
        let mut list = Vec::with_capacity(built.referred.len());
        for (id, bytes) in &built.referred {
            let values = fresh.remove(id).or_else(|| self.sources.get(id).map(Arc::clone));
            list.push((values.ok_or_else(|| unlisted(*id))?, *bytes));
        }
        debug_assert!(fresh.is_empty(), "what was written is of this extent");
        built.meta.values = list
            .iter()
            .map(|(values, bytes)| ValueUse { of: *values.meta(), bytes: *bytes })
            .collect();
        built.values = list.into_iter().map(|(values, _)| values).collect();
        Ok(())
    }
}

impl Values {
    /// Appends what `seal` appends: where it is.
    fn add(
        &mut self,
        value_len: u32,
        seal: impl FnOnce(u64, &mut Trial, &mut Vec<u8>),
    ) -> Reference {
        let offset = self.out.len();
        seal(self.id, &mut self.trial, &mut self.out);
        self.values += 1;
        let sealed = &self.out[offset..];
        self.content.add(sealed);
        Reference {
            extent: self.id,
            offset: offset as u32,
            len: sealed.len() as u32,
            value_len,
            checksum: frame::seal_of(sealed).unwrap_or_default(),
        }
    }
}

/// The error for a record that refers to a value extent which the journal's list lacks.
fn unlisted(id: u64) -> Error {
    let message = format!(
        "a record refers to value extent {id}, which the journal does not list; run `terrace \
         verify` for where it is"
    );
    Error::new(ErrorKind::Corrupt, message)
}
