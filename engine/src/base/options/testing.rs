//! What tests set beside the options that there are: no part of the stable interface.

use std::path::PathBuf;

use super::{Failpoint, Index, Level0Container, Options, Storage};

/// On a machine with this option a persistent index is made for so many bytes of records.
#[derive(Clone, Copy, Debug)]
pub struct IndexRoom(pub u64);

impl Options {
    /// Plants a bug.
    #[doc(hidden)]
    #[must_use]
    pub fn failpoint(mut self, bug: Failpoint) -> Options {
        self.failpoint = Some(bug);
        self
    }

    /// Keeps level 0 of every table in this container. The options of the table do not count.
    #[doc(hidden)]
    #[must_use]
    pub fn level0_of_all(mut self, container: Level0Container) -> Options {
        self.container = Some(container);
        self
    }

    /// Leaves the background to [`Database::step`](crate::Database::step).
    #[doc(hidden)]
    #[must_use]
    pub fn stepped(mut self) -> Options {
        self.stepped = true;
        self
    }

    /// Freezes a memtable that has so many bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn freeze_bytes(mut self, bytes: u64) -> Options {
        self.freeze_bytes = Some(bytes);
        self
    }

    /// Makes a checkpoint of a shared database after segments of so many bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Options {
        self.checkpoint_bytes = Some(bytes);
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
    pub fn machine(mut self, machine: &terrace_testkit::Machine) -> Options {
        if machine.has_index() {
            self.index = Index::Persistent;
        }
        if let Some(container) = machine.option_of() {
            self = self.level0_of_all(container);
        }
        self.index_room = machine.option_of().map(|IndexRoom(bytes)| bytes);
        if let Some(url) = machine.store_url() {
            self.object_store = Some(url);
        }
        self.storage = Storage::Simulated(machine.clone());
        self
    }
}
