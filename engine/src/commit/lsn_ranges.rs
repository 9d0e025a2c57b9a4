//! Ranges of LSNs, for messages.

use std::fmt;
use std::ops::RangeInclusive;

use crate::base::record::Lsn;

/// LSNs for people; ranges that ascend.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LsnRanges(pub(super) Vec<RangeInclusive<Lsn>>);

impl LsnRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Extend<Lsn> for LsnRanges {
    /// Adds LSNs that ascend.
    fn extend<I: IntoIterator<Item = Lsn>>(&mut self, lsns: I) {
        for lsn in lsns {
            match self.0.last_mut().filter(|last| lsn <= last.end() + 1) {
                Some(last) => *last = *last.start()..=lsn,
                None => self.0.push(lsn..=lsn),
            }
        }
    }
}

impl fmt::Display for LsnRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        for (n, range) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            match (range.start(), range.end()) {
                (one, last) if one == last => write!(f, "{comma}{one}")?,
                (first, last) => write!(f, "{comma}{first} to {last}")?,
            }
        }
        match self.0.get(SHOWN..).and_then(|more| more.last()) {
            Some(last) => write!(f, " and others up to {}", last.end()),
            None => Ok(()),
        }
    }
}
