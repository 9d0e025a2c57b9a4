//! The lines of a simulated persistent memory: what the media holds for certain, what the caches
//! hold, and every store in between.

use std::collections::{BTreeMap, HashMap};
use std::thread::ThreadId;

use super::pages::Pages;

/// A cache line in bytes.
pub(super) const LINE: usize = 64;

/// The atomic unit in bytes.
const WORD: usize = 8;

/// A store is looked at in pieces of so many bytes, whole lines.
const BLOCK: u64 = 512;

/// A store of one aligned word that the media may not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Store {
    /// Its place among all stores.
    id: u64,
    /// Which word of the line.
    word: u8,
    value: [u8; WORD],
    /// It went past the cache.
    streamed: bool,
}

/// What a thread has sent on its way: the next fence of the thread completes it.
#[derive(Clone, Copy, Debug)]
enum Flight {
    /// A line with all its stores up to one.
    Flushed { line: u64, upto: u64 },
    /// One streaming store.
    Streamed { line: u64, word: u8, id: u64 },
}

/// Stores that persist one after the other: after a cut, a prefix of them is there.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// Offset of the line.
    pub(super) line: u64,
    /// The word, for a chain that is one word's.
    pub(super) word: Option<u8>,
    stores: Vec<Store>,
}

impl Chain {
    /// How many stores can survive at most.
    pub(super) fn len(&self) -> usize {
        self.stores.len()
    }
}

/// The memory between two moments.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    media: Pages,
    cache: Pages,
    /// By line: the stores since the last completed flush, in program order.
    pending: BTreeMap<u64, Vec<Store>>,
    in_flight: HashMap<ThreadId, Vec<Flight>>,
    last_id: u64,
}

impl Lines {
    /// Memory of which every byte is durable.
    pub(super) fn durable(bytes: Pages) -> Lines {
        Lines {
            media: bytes.clone(),
            cache: bytes,
            pending: BTreeMap::new(),
            in_flight: HashMap::new(),
            last_id: 0,
        }
    }

    /// More memory behind the end, durable zeros.
    pub(super) fn grow(&mut self, len: usize) {
        self.media.grow(len);
        self.cache.grow(len);
    }

    /// What is certain to survive.
    pub(super) fn media(&self) -> &Pages {
        &self.media
    }

    /// What a running program reads.
    pub(super) fn cache(&self) -> &Pages {
        &self.cache
    }

    /// The same memory for another process: no thread of this one fences any more.
    pub(super) fn abandoned(&self) -> Lines {
        Lines { in_flight: HashMap::new(), ..self.clone() }
    }

    /// Stores bytes, word by word.
    pub(super) fn store(&mut self, thread: ThreadId, at: u64, bytes: &[u8], streamed: bool) {
        let end = at + bytes.len() as u64;
        let mut from = at;
        while from < end {
            let to = end.min((from / BLOCK + 1) * BLOCK);
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            // A recovery stores most of what it read over itself.
            if streamed || !self.is_unchanged(from, part) {
                self.store_words(thread, from as usize, part, streamed);
            }
            from = to;
        }
    }

    /// Whether bytes are what is there already, so that storing them again changes nothing.
    fn is_unchanged(&self, at: u64, bytes: &[u8]) -> bool {
        let lines = at / LINE as u64 * LINE as u64..at + bytes.len() as u64;
        let mut pending = self.pending.range(lines).flat_map(|(_, stores)| stores);
        self.cache.holds(at as usize, bytes) && !pending.any(|store| store.streamed)
    }

    fn store_words(&mut self, thread: ThreadId, from: usize, bytes: &[u8], streamed: bool) {
        let to = from + bytes.len();
        let start = from / WORD * WORD;
        let mut before = [0; BLOCK as usize];
        let before = &mut before[..to.next_multiple_of(WORD) - start];
        self.cache.read(start, before);
        self.cache.write(from, bytes);
        let mut after = [0; BLOCK as usize];
        let after = &mut after[..before.len()];
        self.cache.read(start, after);
        let words = before.as_chunks::<WORD>().0.iter().zip(after.as_chunks::<WORD>().0);
        for (at, (before, value)) in (start..to).step_by(WORD).zip(words) {
            let line = (at / LINE * LINE) as u64;
            let word = (at % LINE / WORD) as u8;
            let is_streamed = |stores: &Vec<Store>| stores.iter().any(|s| s.streamed);
            if before == value && !streamed && !self.pending.get(&line).is_some_and(is_streamed) {
                // What is stored over itself adds no state that can survive.
                continue;
            }
            self.last_id += 1;
            let id = self.last_id;
            self.pending.entry(line).or_default().push(Store { id, word, value: *value, streamed });
            if streamed {
                let mine = self.in_flight.entry(thread).or_default();
                mine.push(Flight::Streamed { line, word, id });
            }
        }
    }

    /// Flushes the lines of a range as they are now.
    pub(super) fn flush(&mut self, thread: ThreadId, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let first = at / LINE as u64 * LINE as u64;
        let lines = self.pending.range(first..at + len);
        let upto = self.last_id;
        let flights = lines.map(|(line, _)| Flight::Flushed { line: *line, upto });
        self.in_flight.entry(thread).or_default().extend(flights);
    }

    /// Completes what the thread has sent on its way.
    pub(super) fn fence(&mut self, thread: ThreadId) {
        for flight in self.in_flight.remove(&thread).into_iter().flatten() {
            match flight {
                Flight::Flushed { line, upto } => self.complete(line, |store| store.id <= upto),
                Flight::Streamed { line, word, id } => {
                    self.complete(line, |store| store.word == word && store.id <= id);
                }
            }
        }
    }

    fn complete(&mut self, line: u64, done: impl Fn(&Store) -> bool) {
        let Some(stores) = self.pending.get_mut(&line) else { return };
        let media = &mut self.media;
        stores.retain(|store| {
            let done = done(store);
            if done {
                media.write(line as usize + usize::from(store.word) * WORD, &store.value);
            }
            !done
        });
        if stores.is_empty() {
            self.pending.remove(&line);
        }
    }

    /// The chains that a cut now decides on. Words are chains of their own where they were
    /// streamed, and all of them `by_word`.
    pub(super) fn chains(&self, by_word: bool) -> Vec<Chain> {
        let mut chains = Vec::new();
        for (line, stores) in &self.pending {
            let mut of: BTreeMap<Option<u8>, Vec<Store>> = BTreeMap::new();
            for store in stores {
                let word = (by_word || store.streamed).then_some(store.word);
                of.entry(word).or_default().push(*store);
            }
            chains.extend(of.into_iter().map(|(word, stores)| Chain { line: *line, word, stores }));
        }
        chains
    }

    /// What is certain to survive of a line.
    pub(super) fn durable_line(&self, at: u64) -> [u8; LINE] {
        let mut line = [0; LINE];
        self.media.read(at as usize, &mut line);
        line
    }

    /// The line of the chains of one line, of which so many stores survive.
    pub(super) fn line_after(&self, chains: &[Chain], survive: &[usize]) -> [u8; LINE] {
        let mut line = self.durable_line(chains[0].line);
        let put = |store: &Store| {
            line[usize::from(store.word) * WORD..][..WORD].copy_from_slice(&store.value);
        };
        if let ([chain], [n]) = (chains, survive) {
            chain.stores[..*n].iter().for_each(put);
            return line;
        }
        let kept = chains.iter().zip(survive).flat_map(|(chain, n)| &chain.stores[..*n]);
        let mut stores: Vec<&Store> = kept.collect();
        stores.sort_unstable_by_key(|store| store.id);
        stores.into_iter().for_each(put);
        line
    }

    /// The whole memory after a cut that so many stores of each chain survive.
    pub(super) fn after(&self, chains: &[Chain], survive: &[usize]) -> Pages {
        let mut media = self.media.clone();
        let mut from = 0;
        while from < chains.len() {
            let of_line = |chain: &&Chain| chain.line == chains[from].line;
            let to = from + chains[from..].iter().take_while(of_line).count();
            let at = chains[from].line as usize;
            media.write(at, &self.line_after(&chains[from..to], &survive[from..to]));
            from = to;
        }
        media
    }

    /// Flips bits of a byte on the media and in the cache.
    pub(super) fn corrupt(&mut self, at: u64, xor: u8) {
        for pages in [&mut self.media, &mut self.cache] {
            let byte = pages.bytes(at as usize, 1)[0];
            pages.write(at as usize, &[byte ^ xor]);
        }
    }
}
