//! Which images were looked at, as far as they were read.
//!
//! What a recovery does depends on the bytes that it reads, and on nothing else. So an image that
//! agrees with one that was checked before in every line that was read then, and in its files,
//! comes to the same: it is not checked again, and counts as one with it. A line that nobody reads
//! (of a payload behind a header that is not sound, say) may hold anything.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::explore::hash;
use super::lines::{Chain, LINE, Lines};

/// Lines of a memory, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LineSet(Vec<u64>);

impl LineSet {
    fn add(&mut self, line: usize) {
        let word = line / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (line % 64);
    }

    fn has(&self, line: usize) -> bool {
        self.0.get(line / 64).is_some_and(|word| (word >> (line % 64)) & 1 != 0)
    }

    /// Where they begin.
    #[cfg(test)]
    pub(super) fn offsets(&self) -> Vec<u64> {
        self.lines().map(|line| (line * LINE) as u64).collect()
    }

    fn lines(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(n, word)| {
            (0..64usize).filter(move |bit| (word >> bit) & 1 != 0).map(move |bit| n * 64 + bit)
        })
    }
}

/// The lines of a memory that somebody read. Its copies share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadLog(Arc<Mutex<LineSet>>);

impl ReadLog {
    pub(super) fn note(&self, at: u64, len: u64) {
        if len > 0 {
            let lines = at as usize / LINE..=(at + len - 1) as usize / LINE;
            let mut set = self.0.lock();
            lines.for_each(|line| set.add(line));
        }
    }

    pub(super) fn lines(&self) -> LineSet {
        self.0.lock().clone()
    }
}

/// The images that were checked, by which lines were read of them.
#[derive(Debug, Default)]
pub(super) struct Seen {
    sets: Vec<(LineSet, HashSet<u128>)>,
    by_set: HashMap<LineSet, usize>,
}

/// The images that a moment can leave, for [`Seen`]: what no chain changes is the same in all.
pub(super) struct Images<'a> {
    lines: &'a Lines,
    chains: &'a [Chain],
    /// The chains of each line that one changes.
    changing: Vec<Range<usize>>,
    of_sets: Vec<OfSet>,
}

/// The images, over the lines of a set alone.
struct OfSet {
    /// The hash of the lines that no chain changes.
    same: u128,
    /// Which of the others are in the set.
    changing: Vec<Range<usize>>,
}

impl<'a> Images<'a> {
    pub(super) fn new(lines: &'a Lines, chains: &'a [Chain]) -> Images<'a> {
        let mut changing = Vec::new();
        let mut from = 0;
        for chains in chains.chunk_by(|a, b| a.line == b.line) {
            changing.push(from..from + chains.len());
            from += chains.len();
        }
        Images { lines, chains, changing, of_sets: Vec::new() }
    }

    fn of_set(&self, set: &LineSet) -> OfSet {
        let line_of = |chains: &Range<usize>| self.chains[chains.start].line;
        let changing: HashSet<u64> = self.changing.iter().map(line_of).collect();
        let lines = set.lines().map(|line| (line * LINE) as u64);
        let same = lines.filter(|line| !changing.contains(line));
        let hashes = same.map(|line| hash(line, &self.lines.durable_line(line)));
        let in_set = |chains: &&Range<usize>| set.has(line_of(chains) as usize / LINE);
        OfSet {
            same: hashes.fold(0, u128::wrapping_add),
            changing: self.changing.iter().filter(in_set).cloned().collect(),
        }
    }

    /// The hash of the image that so many stores of each chain survive in, over the lines of the
    /// `n`-th set.
    fn hash(&mut self, (n, set): (usize, &LineSet), survive: &[usize]) -> u128 {
        if n == self.of_sets.len() {
            self.of_sets.push(self.of_set(set));
        }
        let OfSet { same, changing } = &self.of_sets[n];
        changing.iter().fold(*same, |sum, chains| {
            let (of_line, survive) = (&self.chains[chains.clone()], &survive[chains.clone()]);
            let bytes = self.lines.line_after(of_line, survive);
            sum.wrapping_add(hash(of_line[0].line, &bytes))
        })
    }
}

impl Seen {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Seen::default();
    }

    /// Whether an image like this was checked: `apart` stands for what is not memory.
    pub(super) fn knows(&self, images: &mut Images<'_>, survive: &[usize], apart: u128) -> bool {
        self.sets.iter().enumerate().any(|(n, (set, hashes))| {
            hashes.contains(&images.hash((n, set), survive).wrapping_add(apart))
        })
    }

    /// Notes that an image was checked, and which lines were read of it: a digest of these and of
    /// what is not memory.
    pub(super) fn add(
        &mut self,
        images: &mut Images<'_>,
        survive: &[usize],
        (apart, read): (u128, LineSet),
    ) -> u64 {
        let next = self.sets.len();
        let n = *self.by_set.entry(read.clone()).or_insert(next);
        if n == next {
            self.sets.push((read, HashSet::new()));
        }
        let image = images.hash((n, &self.sets[n].0), survive).wrapping_add(apart);
        self.sets[n].1.insert(image);
        (image >> 64) as u64 ^ image as u64
    }
}
