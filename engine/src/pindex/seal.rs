//! The seal of a closed forest (`docs/format.md`, section 4): a checksum of each piece of its
//! region.
//!
//! Nodes have no checksum, since a store of a word cannot change a checksum with it. While the
//! forest is closed nothing is stored, so one checksum for many nodes says as much. Checking all of
//! them reads the index alone, and not the records: some tens of bytes for each.
//!
//! Thread safety: the thread that seals, or checks, has the forest to itself.

use std::ops::Range;
use std::path::Path;

use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::options::Failpoint;
use crate::base::progress::Meter;
use crate::base::record::{Checksum, Reader, checksum, put_u32, put_u64};
use crate::os::at_once;
use crate::os::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::pm::{LINE, PAGE, Region, Span};

const MAGIC: &[u8; 4] = b"TSEL";

/// Offset of the word that is zero while there is no seal.
pub(super) const SEAL: u64 = 6 * LINE;

/// Offset of the fields behind the word.
const FIELDS: u64 = SEAL + 8;

/// Offset of the checksums.
const SUMS: u64 = SEAL + LINE;

/// How many there is room for.
const PIECES: u64 = (PAGE - SUMS) / 4;

/// What a seal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForestSeal {
    /// Length of the region.
    len: u64,
    /// Segments that are taken.
    taken: u32,
    /// Segments in a piece.
    piece: u32,
    /// The checksum of each piece.
    sums: Vec<u32>,
}

/// How the taken segments of a region are divided.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    taken: u64,
    piece: u64,
    /// Bytes in a segment.
    segment: u64,
}

impl Pieces {
    fn of(taken: u64, segment: u64) -> Pieces {
        Pieces { taken, piece: taken.div_ceil(PIECES).max(1).next_power_of_two(), segment }
    }

    fn count(self) -> usize {
        self.taken.div_ceil(self.piece) as usize
    }

    fn span(self, n: usize) -> Span {
        let first = n as u64 * self.piece;
        let segments = self.piece.min(self.taken - first);
        Span { at: PAGE + first * self.segment, len: segments * self.segment }
    }

    fn all(self) -> Span {
        Span { at: PAGE, len: self.taken * self.segment }
    }

    /// The checksum of each piece, which `before` is called with before it is read.
    fn sums(
        self,
        region: &Region,
        threads: usize,
        before: &(dyn Fn(Span) -> Result<()> + Sync),
    ) -> Result<Vec<u32>> {
        let sums: Vec<AtomicU32> = (0..self.count()).map(|_| AtomicU32::new(0)).collect();
        let (next, failed) = (AtomicUsize::new(0), crate::os::sync::shared::OnceLock::new());
        at_once(threads.min(sums.len()), || {
            let claim = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < sums.len());
            while let Some(n) = claim() {
                let span = self.span(n);
                if let Err(error) = before(span) {
                    drop(failed.set(error));
                    return;
                }
                let sum = checksum(&[span.at], region.bytes(span.at, span.len));
                sums[n].store(sum, Ordering::Relaxed);
            }
        });
        match failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(sums.into_iter().map(AtomicU32::into_inner).collect()),
        }
    }
}

/// The checksum of the fixed page, but for the seal's word.
fn page_sum(page: &[u8]) -> u32 {
    let mut sum = Checksum::new(&[SEAL]);
    sum.update(&page[..SEAL as usize]);
    sum.update(&page[FIELDS as usize..]);
    sum.finish()
}

impl ForestSeal {
    /// Everything of it but the word.
    fn fields(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity((PAGE - FIELDS) as usize);
        put_u64(&mut out, self.len);
        put_u32(&mut out, self.taken);
        put_u32(&mut out, self.piece);
        out.resize((SUMS - FIELDS) as usize, 0);
        self.sums.iter().for_each(|sum| put_u32(&mut out, *sum));
        out.resize((PAGE - FIELDS) as usize, 0);
        out
    }

    /// The fixed page `page` with this seal.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn encode(&self, page: &[u8]) -> Vec<u8> {
        ForestSeal::mended([&page[..FIELDS as usize], &self.fields()].concat())
    }

    /// A page with the word that says that it is sealed: bad bytes get past it so (`decoders`).
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn mended(mut page: Vec<u8>) -> Vec<u8> {
        if page.len() as u64 == PAGE {
            let word = word_of(&page).to_le_bytes();
            page[SEAL as usize..FIELDS as usize].copy_from_slice(&word);
        }
        page
    }

    /// The seal in the fixed page of the region at `path`; `None` if it is not sealed.
    pub(crate) fn decode(page: &[u8], path: &Path) -> Result<Option<ForestSeal>> {
        let wrong = |expected: String, got: String| {
            let found = Mismatch::new(expected, got);
            Err(Error::corrupt(found.at("fixed page of the persistent index", "pm", path, 0)))
        };
        if page.len() as u64 != PAGE {
            return wrong(format!("{PAGE} bytes"), format!("{} bytes", page.len()));
        }
        let mut r = Reader::new(&page[SEAL as usize..]);
        let fields = (|| Some((r.take(4)?, r.u32()?, r.u64()?, r.u32()?, r.u32()?)))();
        let Some((magic, sum, len, taken, piece)) = fields else {
            unreachable!("a page has its fields")
        };
        if magic == [0; 4] && sum == 0 {
            return Ok(None);
        }
        let computed = page_sum(page);
        if magic != MAGIC || sum != computed {
            let magic = if magic == MAGIC { "" } else { " behind TSEL" };
            return wrong(format!("checksum {sum:08x}{magic}"), format!("{computed:08x}"));
        }
        let count = u64::from(taken).div_ceil(u64::from(piece).max(1));
        if !piece.is_power_of_two() || count > PIECES {
            return wrong(
                format!("at most {PIECES} pieces of a power of two of segments"),
                format!("{taken} segments in pieces of {piece}"),
            );
        }
        let mut sums = Reader::new(&page[SUMS as usize..]);
        let sums = (0..count).map_while(|_| sums.u32()).collect();
        Ok(Some(ForestSeal { len, taken, piece, sums }))
    }

    /// Whatever is not as it was sealed, in a region with segments of so many bytes. Reads all that
    /// is taken of it from the media, and `meter` counts it.
    pub(super) fn damages(
        &self,
        region: &Region,
        segment: u64,
        (threads, meter): (usize, &Meter),
    ) -> Result<Vec<Damage>> {
        let pieces = Pieces { taken: u64::from(self.taken), piece: u64::from(self.piece), segment };
        let all = pieces.taken.checked_mul(segment).and_then(|len| len.checked_add(PAGE));
        if self.len != region.len() || all.is_none_or(|end| end > self.len) {
            let [expected, got] = [self.len, region.len()].map(|len| format!("{len} bytes"));
            let (found, what) = (Mismatch::new(expected, got), "length of the persistent index");
            return Ok(vec![region.damage(region.len().min(self.len), what, found)]);
        }
        meter.plan(pieces.all().len);
        meter.did(0)?;
        let load = |span: Span| region.load(span).and_then(|()| meter.did(span.len));
        let found = pieces.sums(region, threads, &load)?;
        let differ = |n: &usize| found[*n] != self.sums[*n];
        let name = |n: usize| {
            let Range { start, end } = n * self.piece as usize..(n + 1) * self.piece as usize;
            let what = format!("segments {start} to {} of the persistent index", end - 1);
            region.damage(pieces.span(n).at, what, Mismatch::checksum(self.sums[n], found[n]))
        };
        Ok((0..pieces.count()).filter(differ).map(name).collect())
    }

    /// How many pieces there are.
    pub(super) fn pieces(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Bytes that [`ForestSeal::damages`] reads.
    pub(super) fn bytes(&self, segment: u64) -> u64 {
        u64::from(self.taken) * segment
    }
}

/// The word of a page that has everything else.
fn word_of(page: &[u8]) -> u64 {
    u64::from(page_sum(page)) << 32 | u64::from(u32::from_le_bytes(*MAGIC))
}

/// Seals a region, of which so many segments of so many bytes are taken: durable on return. Each
/// piece is a step of `meter`.
pub(super) fn seal(
    region: &Region,
    (taken, segment): (u64, u64),
    (threads, meter): (usize, &Meter),
) -> Result<()> {
    let pieces = Pieces::of(taken, segment);
    meter.plan(pieces.count() as u64);
    // What others have stored there may be in the caches. Bitmaps are never flushed, and nodes that
    // a killed process left are flushed only when they are touched.
    let persist_found = |span| {
        if !region.has(Failpoint::SealEarly) {
            region.persist_found(span)?;
        }
        meter.did(1)
    };
    let sums = pieces.sums(region, threads, &persist_found)?;
    let (len, piece) = (region.len(), pieces.piece as u32);
    let seal = ForestSeal { len, taken: taken as u32, piece, sums };
    region.persist_found(Span { at: 0, len: SEAL })?;
    region.persist([region.write(FIELDS, &seal.fields())])?;
    region.persist([region.store_word(SEAL, word_of(region.bytes(0, PAGE)))])?;
    Ok(())
}

/// Takes the seal away, if there is one: durably, before anything else is stored. It is stored in
/// any case, since a process that was killed may have left its zero in the caches alone.
pub(super) fn unseal(region: &Region) -> Result<()> {
    let gone = region.store_word(SEAL, 0);
    if !region.has(Failpoint::KeepSeal) {
        region.persist([gone])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<u8> {
        (0..PAGE).map(|n| if (SEAL..FIELDS).contains(&n) { 0 } else { n as u8 }).collect()
    }

    fn decode(page: &[u8]) -> Result<Option<ForestSeal>> {
        ForestSeal::decode(page, Path::new("index"))
    }

    #[test]
    fn round_trip_and_every_flip_of_a_sealed_page_is_found() {
        let seal = ForestSeal { len: 1 << 20, taken: 3, piece: 1, sums: vec![7, 8, 9] };
        assert_eq!(decode(&page()).unwrap(), None, "whatever is behind the word");
        let sealed = seal.encode(&page());
        assert_eq!(decode(&sealed).unwrap(), Some(seal));
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 0x10;
            let damage = decode(&flipped).unwrap_err();
            assert_eq!(damage.damage().map(|d| d.offset), Some(0), "byte {at}");
        }
    }

    #[test]
    fn any_number_of_segments_is_divided_among_the_checksums_there_is_room_for() {
        for (taken, piece) in [(0, 1), (1, 1), (912, 1), (913, 2), (524_288, 1024)] {
            let pieces = Pieces::of(taken, 256 << 10);
            assert_eq!(pieces.piece, piece, "{taken}");
            let spans = (0..pieces.count()).map(|n| pieces.span(n));
            let end = spans.fold(PAGE, |end, span| {
                assert_eq!(span.at, end);
                span.end()
            });
            assert_eq!(end, pieces.all().end());
            assert!(pieces.count() as u64 <= PIECES);
        }
    }
}
