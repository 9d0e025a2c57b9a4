//! Where in its level an extent is that a reader walks in.

use std::sync::{Arc, Weak};

use super::Extent;

/// The share of a level that has all records.
pub(crate) const WHOLE: u32 = 1024;

/// An extent of a level, and how much of the records of all levels that level has, of [`WHOLE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLevel<'a> {
    pub(crate) level: &'a Arc<[Arc<Extent>]>,
    pub(crate) number: usize,
    pub(crate) share: u32,
}

impl<'a> InLevel<'a> {
    /// The extent.
    pub(crate) fn extent(self) -> Option<&'a Arc<Extent>> {
        self.level.get(self.number)
    }
}

/// The same of a walk. It holds no extent: between two chunks a range holds none.
#[derive(Debug)]
pub(super) struct Beside {
    level: Weak<[Arc<Extent>]>,
    number: usize,
}

impl Beside {
    pub(super) fn new(at: InLevel<'_>) -> Beside {
        Beside { level: Arc::downgrade(at.level), number: at.number }
    }

    /// Whether it is at an extent or at a neighbour of it.
    pub(super) fn is_near(&self, at: InLevel<'_>) -> bool {
        std::ptr::addr_eq(self.level.as_ptr(), Arc::as_ptr(at.level))
            && self.number.abs_diff(at.number) <= 1
    }

    /// The extents before or behind it, the nearest first.
    pub(super) fn next(&self, is_backward: bool) -> impl Iterator<Item = Arc<Extent>> + use<> {
        let (level, number) = (self.level.upgrade(), self.number);
        level.into_iter().flat_map(move |level| {
            (1..).map_while(move |steps| {
                let n = if is_backward { number.checked_sub(steps)? } else { number + steps };
                level.get(n).map(Arc::clone)
            })
        })
    }
}
