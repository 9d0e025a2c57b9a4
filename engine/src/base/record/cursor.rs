//! The one way to walk sorted records, whatever holds them.
//!
//! A cursor that leaves entries out.

use std::ops::ControlFlow;

use super::{Kind, Lsn, Reference, SeparatedValue};
use crate::base::error::Result;

/// One record as a cursor shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Lsn,
    pub(crate) kind: Kind,
    /// Of a [`Kind::Reference`] where the value lies, else the value.
    pub(crate) value: &'a [u8],
}

impl EntryRef<'_> {
    /// Where the value lies, if it lies apart.
    pub(crate) fn reference(&self) -> Option<Reference> {
        Some(self.value).filter(|_| self.kind == Kind::Reference).and_then(Reference::decode)
    }

    /// Whether it has operands that go on with the next older version of its key.
    pub(crate) fn is_open_merge(&self) -> bool {
        self.kind == Kind::Merge && super::is_open_chain(self.value)
    }

    /// Bytes of key and value, as the user counts them.
    pub(crate) fn raw_len(&self) -> u64 {
        let value = self.reference().map_or(self.value.len(), |at| at.value_len as usize);
        (self.key.len() + value) as u64
    }
}

/// A position in sorted records: by key ascending, then by sequence number **descending**, so the
/// newest version of a key comes first.
///
/// A cursor is invalid (its [`entry`](Cursor::entry) is `None`) until it is placed, and again
/// once it has walked off either end; then only a placing call brings it back.
///
/// Cost: placing is a search, a step is amortised constant. A cursor borrows what it walks and
/// lives only within one API call; iterators that users hold re-seek.
pub(crate) trait Cursor {
    /// Places the cursor on the first entry at or after (`key`, `seq`): the newest version of
    /// `key` that is not newer than `seq`, else the first entry of a greater key.
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()>;

    /// Places the cursor on the last entry whose key is smaller than `key`; on the last entry of
    /// all when `key` is `None`. That is the **oldest** version of its key.
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()>;

    /// Steps to the following entry. The cursor must be valid.
    fn next(&mut self) -> Result<()>;

    /// Steps to the preceding entry. The cursor must be valid.
    fn prev(&mut self) -> Result<()>;

    /// Lends the entries from the one here on to `take`, as long as their keys lie before `bound`
    /// and `take` goes on. Afterwards it stands on the entry where `take` broke off (`Break`), else
    /// on the first one that it has not lent.
    fn pass(
        &mut self,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while let Some(entry) = self.entry().filter(|entry| bound.is_none_or(|b| entry.key < b)) {
            if take(&entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.next()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The entry under the cursor.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The value of the entry under the cursor, if it lies apart. Reads nothing.
    fn separated(&self) -> Result<Option<SeparatedValue>>;
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        (**self).seek(key, seq)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        (**self).seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        (**self).next()
    }

    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }

    fn pass(
        &mut self,
        bound: Option<&[u8]>,
        take: &mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        (**self).pass(bound, take)
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        (**self).entry()
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        (**self).separated()
    }
}

/// The entries of `inner` that `hides` does not hide. A step over a hidden entry costs as much as
/// one over a shown one.
pub(crate) struct Filtered<C, F> {
    pub(crate) inner: C,
    pub(crate) hides: F,
}

impl<C: Cursor, F: Fn(&EntryRef<'_>) -> bool> Filtered<C, F> {
    fn skip(&mut self, step: impl Fn(&mut C) -> Result<()>) -> Result<()> {
        while self.inner.entry().is_some_and(|entry| (self.hides)(&entry)) {
            step(&mut self.inner)?;
        }
        Ok(())
    }
}

impl<C: Cursor, F: Fn(&EntryRef<'_>) -> bool> Cursor for Filtered<C, F> {
    fn seek(&mut self, key: &[u8], seq: Lsn) -> Result<()> {
        self.inner.seek(key, seq)?;
        self.skip(C::next)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.inner.seek_before(key)?;
        self.skip(C::prev)
    }

    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.skip(C::next)
    }

    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.skip(C::prev)
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.inner.entry()
    }

    fn separated(&self) -> Result<Option<SeparatedValue>> {
        self.inner.separated()
    }
}
