//! A cursor that leaves entries out.

use super::{Cursor, EntryRef, Lsn, SeparatedValue};
use crate::error::Result;

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
