//! Which images were looked at, as far as they were read.
//!
//! What a recovery does depends on the bytes that it reads, and on nothing else. So an image that
//! agrees with one that was checked before in every line that was read then, and in its files,
//! comes to the same: it is not checked again, and counts as one with it. A line that recovery does
//! not read (of a payload behind a header that is not sound, say) may hold anything.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::explore::hash;
use super::lines::{Chain, LINE, Lines};
use super::pages::{PAGE, Page, Pages};

const LINES_A_PAGE: usize = PAGE / LINE;

/// Lines of a memory, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LineSet(Vec<u64>);

impl LineSet {
    fn add(&mut self, word: usize, bits: u64) {
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bits;
    }

    fn has(&self, line: usize) -> bool {
        self.0.get(line / 64).is_some_and(|word| (word >> (line % 64)) & 1 != 0)
    }

    /// Where they begin.
    pub(super) fn offsets(&self) -> Vec<u64> {
        let words = self.0.iter().enumerate();
        let lines = words.flat_map(|(n, bits)| bits_of(*bits).map(move |bit| n * 64 + bit));
        lines.map(|line| (line * LINE) as u64).collect()
    }
}

/// The places of a word's bits.
fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then_some(word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}

/// The lines of a memory that a reader read. Its copies share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadLog(Arc<Log>);

#[derive(Debug, Default)]
struct Log {
    /// As many as the memory had when this began.
    lines: Box<[AtomicU64]>,
    /// Those that it has grown by since.
    beyond: Mutex<LineSet>,
}

impl ReadLog {
    /// For a memory that is so long now.
    pub(super) fn of(len: u64) -> ReadLog {
        let words = (len as usize).div_ceil(64 * LINE);
        let lines = (0..words).map(|_| AtomicU64::new(0)).collect();
        ReadLog(Arc::new(Log { lines, beyond: Mutex::default() }))
    }

    pub(super) fn note(&self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = (at as usize / LINE, (at + len - 1) as usize / LINE);
        for word in first / 64..=last / 64 {
            let from = if word == first / 64 { first % 64 } else { 0 };
            let to = if word == last / 64 { last % 64 } else { 63 };
            let bits = (u64::MAX << from) & (u64::MAX >> (63 - to));
            match self.0.lines.get(word) {
                // Most lines are read many times.
                Some(lines) if lines.load(Ordering::Relaxed) & bits == bits => {}
                Some(lines) => {
                    lines.fetch_or(bits, Ordering::Relaxed);
                }
                None => self.0.beyond.lock().add(word, bits),
            }
        }
    }

    pub(super) fn lines(&self) -> LineSet {
        let mut set = self.0.beyond.lock().clone();
        for (word, lines) in self.0.lines.iter().enumerate().rev() {
            let bits = lines.load(Ordering::Relaxed);
            if bits != 0 {
                set.add(word, bits);
            }
        }
        set
    }
}

/// The images that were checked, by which lines were read of them.
#[derive(Debug, Default)]
pub(super) struct Seen {
    sets: Vec<(LineSet, HashSet<u128>)>,
    by_set: HashMap<LineSet, usize>,
    hashes: LineHashes,
}

/// Hashes of the lines of a memory, as it was when they were last asked for.
///
/// A page that is kept here is written to nowhere else: a writer makes a copy. So the same page
/// has the same bytes.
#[derive(Debug, Default)]
struct LineHashes(Vec<Option<(Page, Box<[u128; LINES_A_PAGE]>)>>);

impl LineHashes {
    /// Those of a page; `None` where no write reached it, and all are 0.
    fn of(&mut self, memory: &Pages, n: usize) -> Option<&[u128; LINES_A_PAGE]> {
        let page = memory.page(n)?;
        if n >= self.0.len() {
            self.0.resize_with(n + 1, || None);
        }
        let known = &mut self.0[n];
        if known.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, page)) {
            let of_line = |i: usize| hash((n * PAGE + i * LINE) as u64, &page[i * LINE..][..LINE]);
            *known = Some((Arc::clone(page), Box::new(std::array::from_fn(of_line))));
        }
        known.as_ref().map(|(_, hashes)| &**hashes)
    }
}

/// The images that a moment can leave, for [`Seen`]: what no chain changes is the same in all.
pub(super) struct Images<'a> {
    lines: &'a Lines,
    chains: &'a [Chain],
    /// The chains of each line that one changes.
    changing: Vec<Range<usize>>,
    /// The lines that one changes.
    changing_lines: LineSet,
    of_sets: Vec<OfSet>,
}

/// The images, over the lines of a set alone.
struct OfSet {
    /// The hash of the lines that no chain changes.
    same: u128,
    /// Which of the others are in the set, by their places in `changing`.
    changing: Vec<usize>,
}

/// One of the images: the hash of each line that a chain changes.
pub(super) struct Image(Vec<u128>);

impl<'a> Images<'a> {
    pub(super) fn new(lines: &'a Lines, chains: &'a [Chain]) -> Images<'a> {
        let (mut changing, mut changing_lines) = (Vec::new(), LineSet::default());
        let mut from = 0;
        for chains in chains.chunk_by(|a, b| a.line == b.line) {
            changing.push(from..from + chains.len());
            from += chains.len();
            let line = chains[0].line as usize / LINE;
            changing_lines.add(line / 64, 1 << (line % 64));
        }
        Images { lines, chains, changing, changing_lines, of_sets: Vec::new() }
    }

    /// The image that so many stores of each chain survive in.
    pub(super) fn image(&self, survive: &[usize]) -> Image {
        let hash_of = |chains: &Range<usize>| {
            let of_line = &self.chains[chains.clone()];
            hash(of_line[0].line, &self.lines.line_after(of_line, &survive[chains.clone()]))
        };
        Image(self.changing.iter().map(hash_of).collect())
    }

    fn of_set(&self, set: &LineSet, hashes: &mut LineHashes) -> OfSet {
        let mut same = 0u128;
        for (n, read) in set.0.iter().enumerate() {
            let bits = read & !self.changing_lines.0.get(n).unwrap_or(&0);
            if bits != 0
                && let Some(hashes) = hashes.of(self.lines.media(), n)
            {
                same = bits_of(bits).fold(same, |sum, bit| sum.wrapping_add(hashes[bit]));
            }
        }
        let line_of = |n: &usize| self.chains[self.changing[*n].start].line as usize / LINE;
        let changing = (0..self.changing.len()).filter(|n| set.has(line_of(n))).collect();
        OfSet { same, changing }
    }

    /// The hash of an image over the lines of the `n`-th set.
    fn hash(&mut self, n: usize, set: &LineSet, hashes: &mut LineHashes, image: &Image) -> u128 {
        if n == self.of_sets.len() {
            self.of_sets.push(self.of_set(set, hashes));
        }
        let OfSet { same, changing } = &self.of_sets[n];
        changing.iter().fold(*same, |sum, line| sum.wrapping_add(image.0[*line]))
    }
}

impl Seen {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        self.by_set.clear();
    }

    /// Whether an image like this was checked: `apart` stands for what is not memory.
    pub(super) fn knows(&mut self, images: &mut Images<'_>, image: &Image, apart: u128) -> bool {
        let Seen { sets, hashes, .. } = self;
        sets.iter().enumerate().any(|(n, (set, seen))| {
            seen.contains(&images.hash(n, set, hashes, image).wrapping_add(apart))
        })
    }

    /// Notes that an image was checked, and which lines were read of it: a digest of these and of
    /// what is not memory.
    pub(super) fn add(
        &mut self,
        images: &mut Images<'_>,
        image: &Image,
        (apart, read): (u128, LineSet),
    ) -> u64 {
        let next = self.sets.len();
        let n = *self.by_set.entry(read.clone()).or_insert(next);
        if n == next {
            self.sets.push((read, HashSet::new()));
        }
        let (set, seen) = &mut self.sets[n];
        let image = images.hash(n, set, &mut self.hashes, image).wrapping_add(apart);
        seen.insert(image);
        (image >> 64) as u64 ^ image as u64
    }
}

const _: () = assert!(LINES_A_PAGE == 64, "a word of a set is a page");
