//! Which container level 0 keeps records in.

use super::Options;

/// The container that level 0 keeps records in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// One index over records that stay in zones.
    GlobalIndex,
    /// Row tables of copies. A round of drains takes what was there when it began.
    Matrix,
    /// Row tables of copies. Each drain takes its keys from all of them.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        expect(dead_code, reason = "no option chooses it yet")
    )]
    Triangle,
    /// Sorted copies, for tests.
    #[cfg(any(test, feature = "testing"))]
    SortedCopy,
}

impl Options {
    /// The container of every table's level 0.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn container(&self) -> ContainerKind {
        self.container
    }

    /// The container of every table's level 0.
    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn container(&self) -> ContainerKind {
        ContainerKind::GlobalIndex
    }
}
