//! The fixed part of the index's region (`docs/format.md`, section 4).

use std::path::Path;

use super::node::NODE;
use crate::error::{Error, Mismatch, Result};
use crate::pm::{Dirty, LINE, PAGE, Region, Span};
use crate::record::{Reader, checksum, put_u32, put_u64};

pub(super) const MAGIC: &[u8; 8] = b"TERRTREE";
const VERSION: u32 = 1;

/// The kind of such regions: trees of versions, one for each table.
const FOREST: u32 = 4;

/// Offset of the word that counts the openings.
pub(super) const EPOCH: u64 = 2 * LINE;

/// Bytes of the words above, and of those that owners have behind them.
const FIXED_PART: u64 = 6 * LINE;

/// The pool of nodes among a region's pools.
pub(super) const NODES: u32 = 1;

/// What a region was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes in a segment.
    pub(crate) segment: u64,
    pub(crate) segments: u64,
}

impl Shape {
    /// The shape of a region of at most `size` bytes.
    pub(crate) fn for_size(size: u64, segment: u64) -> Shape {
        Shape { segment, segments: size.saturating_sub(PAGE) / segment }
    }

    pub(crate) fn region_len(self) -> u64 {
        PAGE + self.segments * self.segment
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LINE as usize);
        put_u32(&mut body, FOREST);
        put_u32(&mut body, NODE as u32);
        put_u64(&mut body, self.segment);
        put_u64(&mut body, self.segments);
        body.resize(LINE as usize - 16, 0);
        let mut line = Vec::with_capacity(LINE as usize);
        line.extend_from_slice(MAGIC);
        put_u32(&mut line, VERSION);
        put_u32(&mut line, checksum(&[u64::from(VERSION)], &body));
        line.extend_from_slice(&body);
        line
    }

    pub(crate) fn decode(line: &[u8], path: &Path) -> Result<Shape> {
        let wrong = |found: Mismatch| {
            Error::corrupt(found.at("superblock of the persistent index", "pm", path, 0))
        };
        let mut r = Reader::new(line);
        if r.take(8) != Some(&MAGIC[..]) {
            return Err(Error::invalid(format!(
                "{} is no persistent index of Terrace (its creation may have been cut short)",
                path.display()
            )));
        }
        let fields = (|| Some((r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u64()?, r.u64()?)))();
        let Some((version, sum, kind, node, segment, segments)) = fields else {
            return Err(wrong(Mismatch::new("64 bytes", format!("{} bytes", line.len()))));
        };
        let computed = checksum(&[u64::from(version)], &line[16..]);
        if sum != computed {
            return Err(wrong(Mismatch::checksum(sum, computed)));
        }
        if (version, kind, u64::from(node)) != (VERSION, FOREST, NODE) {
            return Err(Error::invalid(format!(
                "{} has format {version} of an index of kind {kind} with nodes of {node} bytes; \
                 this version of Terrace reads format {VERSION} of kind {FOREST} with {NODE}: use \
                 the one that made it",
                path.display()
            )));
        }
        Ok(Shape { segment, segments })
    }
}

/// The fixed part as it was found, to be made durable: a process that was killed may have left its
/// last store there in the caches alone.
pub(super) fn fixed_part(region: &Region) -> Dirty {
    region.rewrite(Span { at: 0, len: FIXED_PART })
}
