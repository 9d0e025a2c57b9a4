//! Keys as nodes hold them: a word each.

use std::cmp::Ordering;

/// How the words of a tree stand for keys. A word of zero is no key, and starts before all.
pub(crate) trait Keys: Send + Sync + std::fmt::Debug {
    /// A key that is looked for.
    type Sought<'a>: Copy;

    /// Compares the keys of two words.
    fn words(&self, a: u64, b: u64) -> Ordering;

    /// The key of a word; of zero, the first key.
    fn sought(&self, word: u64) -> Self::Sought<'_>;

    /// Compares the key of a word with a key.
    fn seek(&self, word: u64, sought: Self::Sought<'_>) -> Ordering;

    /// [`seek`](Keys::seek) for a leaf's slot, whose other word may settle it.
    fn seek_leaf(&self, id: u64, other: u64, sought: Self::Sought<'_>) -> Ordering;
}

/// Keys of eight bytes: the word is the key plus one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed;

impl Keys for Fixed {
    type Sought<'a> = u64;

    fn words(&self, a: u64, b: u64) -> Ordering {
        a.cmp(&b)
    }

    fn seek(&self, word: u64, sought: u64) -> Ordering {
        word.cmp(&sought)
    }

    fn sought(&self, word: u64) -> u64 {
        word.max(1)
    }

    fn seek_leaf(&self, id: u64, _other: u64, sought: u64) -> Ordering {
        id.cmp(&sought)
    }
}
