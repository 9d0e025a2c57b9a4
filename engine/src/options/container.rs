//! Which container level 0 keeps records in.

use super::{Level0Container, Options, TableOptions};

impl Options {
    /// The container of a table's level 0: what tests set for all tables, else what the options of
    /// the table say.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn container_of(&self, table: &TableOptions) -> Level0Container {
        self.container.unwrap_or(table.level0)
    }

    /// The container of a table's level 0: what the options of the table say.
    #[cfg(not(any(test, feature = "testing")))]
    pub(crate) const fn container_of(&self, table: &TableOptions) -> Level0Container {
        table.level0
    }
}
