//! What a shard is asked for. Each request is answered once: by the shard, or with `Closed` when it
//! is dropped before it began.
//!
//! The look-ups of a batch that one shard does, and what it found. It goes to the shard and comes
//! back, so that a batch that is used again allocates nothing.

use std::ops::Range;
use std::sync::Arc;

use super::reads::ShardScope;
use super::state::ended;
use crate::base::error::Result;
use crate::mvcc::Registered;
use crate::os::sync::locks::{Condvar, Mutex};
use crate::read;
use crate::read::AsOf;
use crate::read::view::PinnedView;

/// So many requests wait for a shard at most.
pub(super) const QUEUE: usize = 1024;

/// One request.
pub(super) enum ShardRequest {
    Gets(GetsRequest),
    Work(Box<dyn ShardWork>),
    /// The executor was closed: this is the last one.
    Stop,
}

/// A closure with the place for its answer. Dropped before it ran, it answers `Closed`.
pub(super) trait ShardWork: Send {
    /// Runs it, and answers.
    fn run(self: Box<Self>, shard: &ShardScope<'_>);
}

/// What a shard answered to look-ups. The look-ups come back with what was found.
pub(super) struct GetsReply {
    pub(super) shard: usize,
    pub(super) gets: Box<ShardGets>,
    pub(super) outcome: Result<()>,
}

/// Look-ups in one shard.
pub(super) struct GetsRequest {
    shard: usize,
    /// `None` once it was answered.
    gets: Option<Box<ShardGets>>,
    replies: Arc<Replies<GetsReply>>,
    snapshot: Option<Arc<Registered>>,
}

impl GetsRequest {
    /// Look-ups in `shard`, as of a snapshot if there is one.
    pub(super) fn new(
        shard: usize,
        gets: Box<ShardGets>,
        replies: &Arc<Replies<GetsReply>>,
        snapshot: Option<Arc<Registered>>,
    ) -> GetsRequest {
        GetsRequest { shard, gets: Some(gets), replies: Arc::clone(replies), snapshot }
    }

    /// Does them by `look_up`, and answers.
    pub(super) fn answer(
        mut self,
        look_up: impl FnOnce(&mut ShardGets, Option<&Registered>) -> Result<()>,
    ) {
        let snapshot = self.snapshot.take();
        let Some(mut gets) = self.gets.take() else { return };
        let outcome = look_up(&mut gets, snapshot.as_deref());
        // The snapshot goes first: once the answer is there, the executor holds nothing for it.
        drop(snapshot);
        self.replies.give(GetsReply { shard: self.shard, gets, outcome });
    }
}

impl Drop for GetsRequest {
    fn drop(&mut self) {
        if let Some(gets) = self.gets.take() {
            let outcome = Err(ended());
            self.replies.give(GetsReply { shard: self.shard, gets, outcome });
        }
    }
}

// Where the answers of shards lie until they are waited for.
//
// Thread safety: any thread gives and one waits. The mutex is held for a few instructions, and no
// other lock is taken under it.

/// Answers, in the order in which they came.
pub(super) struct Replies<T> {
    state: Mutex<Given<T>>,
    enough: Condvar,
}

struct Given<T> {
    replies: Vec<T>,
    /// With so many the thread that waits goes on.
    wanted: usize,
}

impl<T> Default for Replies<T> {
    fn default() -> Replies<T> {
        let state = Given { replies: Vec::new(), wanted: usize::MAX };
        Replies { state: Mutex::new(state), enough: Condvar::new() }
    }
}

impl<T> Replies<T> {
    /// Gives one. It wakes the thread that waits, if that wants no more.
    pub(super) fn give(&self, reply: T) {
        let mut state = self.state.lock();
        state.replies.push(reply);
        if state.replies.len() >= state.wanted {
            self.enough.notify_one();
        }
    }

    /// Whether `count` are here.
    pub(super) fn has(&self, count: usize) -> bool {
        self.state.lock().replies.len() >= count
    }

    /// Waits until `count` are here, and moves them to `into`.
    pub(super) fn take(&self, count: usize, into: &mut Vec<T>) {
        let mut state = self.state.lock();
        state.wanted = count;
        while state.replies.len() < count {
            self.enough.wait(&mut state);
        }
        state.wanted = usize::MAX;
        into.append(&mut state.replies);
    }
}

/// The end of a chain.
const NONE: usize = usize::MAX;

/// A key that is sought. It ends where the next one starts.
#[derive(Clone, Copy, Debug)]
struct SoughtKey {
    start: usize,
    /// The next one of the same table.
    next: usize,
}

/// The keys of one table: the numbers of its first and its last one.
#[derive(Clone, Copy, Debug)]
struct KeyChain {
    first: usize,
    last: usize,
}

/// Look-ups in one shard.
///
/// Invariant: each key is in the chain of its table, once, in the order in which the keys came.
#[derive(Debug, Default)]
pub(super) struct ShardGets {
    keys: Vec<u8>,
    sought: Vec<SoughtKey>,
    /// By the number of the table.
    chains: Vec<KeyChain>,
    /// The tables that have a key.
    tables: Vec<usize>,
    values: Vec<u8>,
    /// By the number of the key: where its value lies in `values`. Empty before it was looked up.
    found: Vec<Option<Range<usize>>>,
}

impl ShardGets {
    /// Adds a key of a table; its number.
    #[inline]
    pub(super) fn push(&mut self, table: usize, key: &[u8]) -> usize {
        let number = self.sought.len();
        if self.chains.len() <= table {
            self.chains.resize(table + 1, KeyChain { first: NONE, last: NONE });
        }
        let chain = &mut self.chains[table];
        match chain.last {
            NONE => {
                chain.first = number;
                self.tables.push(table);
            }
            last => self.sought[last].next = number,
        }
        chain.last = number;
        self.sought.push(SoughtKey { start: self.keys.len(), next: NONE });
        self.keys.extend_from_slice(key);
        number
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.sought.len()
    }

    /// The number of the `n`th table that has a key.
    pub(super) fn table(&self, n: usize) -> Option<usize> {
        self.tables.get(n).copied()
    }

    /// Forgets what was found: the look-ups begin.
    pub(super) fn begin(&mut self) {
        self.values.clear();
        self.found.clear();
        self.found.resize(self.sought.len(), None);
    }

    /// Forgets all keys, and keeps the memory.
    pub(super) fn clear(&mut self) {
        for table in self.tables.drain(..) {
            self.chains[table] = KeyChain { first: NONE, last: NONE };
        }
        self.keys.clear();
        self.sought.clear();
        self.values.clear();
        self.found.clear();
    }

    /// The value that was found for key `number`.
    pub(super) fn value(&self, number: usize) -> Option<&[u8]> {
        let place = self.found.get(number)?.as_ref()?;
        self.values.get(place.clone())
    }

    /// Looks up the keys of one table, as of one moment.
    pub(super) fn look_up(&mut self, table: usize, view: PinnedView<'_>, at: AsOf) -> Result<()> {
        let first = self.chains.get(table).map_or(NONE, |chain| chain.first);
        let ShardGets { keys, sought, values, found, .. } = self;
        let mut number = first;
        while let Some(key) = sought.get(number) {
            let end = sought.get(number + 1).map_or(keys.len(), |next| next.start);
            let from = values.len();
            let lent = read::lend(view, (&keys[key.start..end], at), |value| {
                values.extend_from_slice(value);
            })?;
            found[number] = lent.map(|()| from..values.len());
            number = key.next;
        }
        Ok(())
    }

    /// The keys of one table, with their numbers.
    pub(super) fn keys_of(&self, table: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let first = self.chains.get(table).map_or(NONE, |chain| chain.first);
        let mut next = self.sought.get(first).map(|key| (first, key));
        std::iter::from_fn(move || {
            let (number, key) = next?;
            next = self.sought.get(key.next).map(|then| (key.next, then));
            let end = self.sought.get(number + 1).map_or(self.keys.len(), |next| next.start);
            Some((number, &self.keys[key.start..end]))
        })
    }

    /// Key `number` has a value.
    pub(super) fn found(&mut self, number: usize, value: &[u8]) {
        let from = self.values.len();
        self.values.extend_from_slice(value);
        self.found[number] = Some(from..self.values.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(gets: &ShardGets, table: usize) -> Vec<usize> {
        gets.keys_of(table).map(|(number, _)| number).collect()
    }

    #[test]
    fn keys_are_in_the_chain_of_their_table_in_order() {
        let mut gets = ShardGets::default();
        for round in 0..2 {
            let numbers = [3, 1, 3, 3, 1].map(|table| gets.push(table, b"key"));
            assert_eq!(numbers, [0, 1, 2, 3, 4], "in round {round}");
            assert_eq!((keys_of(&gets, 3), keys_of(&gets, 1)), (vec![0, 2, 3], vec![1, 4]));
            assert_eq!(keys_of(&gets, 2), [0; 0], "a table without a key");
            assert_eq!((gets.table(0), gets.table(1), gets.table(2)), (Some(3), Some(1), None));
            gets.clear();
            assert_eq!((gets.len(), gets.table(0)), (0, None));
        }
    }

    #[test]
    fn nothing_is_found_before_it_was_looked_up() {
        let mut gets = ShardGets::default();
        gets.push(0, b"key");
        assert_eq!(gets.value(0), None);
        gets.begin();
        assert_eq!((gets.value(0), gets.value(1)), (None, None));
    }
}
