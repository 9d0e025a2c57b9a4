//! What tests set beside the options that there are: no part of the stable interface.

use std::path::PathBuf;

use super::{ContainerKind, Failpoint, Index, Options, Storage};

impl Options {
    /// Plants a bug.
    #[doc(hidden)]
    #[must_use]
    pub fn failpoint(mut self, bug: Failpoint) -> Options {
        self.failpoint = Some(bug);
        self
    }

    /// Keeps level 0 in a container of copies, which is slow. See `level0/sorted_copy.rs`.
    #[doc(hidden)]
    #[must_use]
    pub fn sorted_copy_level0(mut self) -> Options {
        self.container = ContainerKind::SortedCopy;
        self
    }

    /// Keeps level 0 in row tables; a triangle of them if `triangle` says so.
    #[doc(hidden)]
    #[must_use]
    pub fn row_table_level0(mut self, triangle: bool) -> Options {
        self.container = match triangle {
            true => ContainerKind::Triangle,
            false => ContainerKind::Matrix,
        };
        self
    }

    /// Leaves the background to [`Database::step`](crate::Database::step).
    #[doc(hidden)]
    #[must_use]
    pub fn stepped(mut self) -> Options {
        self.stepped = true;
        self
    }

    /// Takes a directory for the file system that lies in memory.
    #[doc(hidden)]
    #[must_use]
    pub fn tmpfs(mut self, directory: impl Into<PathBuf>) -> Options {
        self.tmpfs = Some(directory.into());
        self
    }

    /// Goes by a clock that a test sets.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: &crate::testing::HandClock) -> Options {
        self.clock = Some(clock.clone());
        self
    }

    /// Opens on a simulated machine.
    #[doc(hidden)]
    #[must_use]
    pub fn machine(mut self, machine: &crate::os::sim::Machine) -> Options {
        if machine.has_index() {
            self.index = Index::Persistent;
        }
        if let Some(triangle) = machine.has_row_tables() {
            self = self.row_table_level0(triangle);
        }
        self.storage = Storage::Simulated(machine.clone());
        self
    }
}
