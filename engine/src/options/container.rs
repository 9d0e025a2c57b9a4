//! Which container level 0 keeps records in.

use super::{Level0Container, Options, TableOptions};

/// The container that level 0 keeps records in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// One of those that a table's options name.
    Named(Level0Container),
    /// Sorted copies, for tests.
    #[cfg(any(test, feature = "testing"))]
    SortedCopy,
}

impl ContainerKind {
    /// What becomes of memtables of a table that has row tables already.
    pub(crate) const fn beside_rows(self) -> Level0Container {
        match self {
            ContainerKind::Named(container) => container,
            #[cfg(any(test, feature = "testing"))]
            ContainerKind::SortedCopy => Level0Container::GlobalIndex,
        }
    }
}

impl Options {
    /// The container of a table's level 0: what tests set for all tables, else what the options of
    /// the table say.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn container_of(&self, table: &TableOptions) -> ContainerKind {
        self.container.unwrap_or(ContainerKind::Named(table.level0))
    }

    /// The container of a table's level 0: what the options of the table say.
    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn container_of(&self, table: &TableOptions) -> ContainerKind {
        ContainerKind::Named(table.level0)
    }
}
