//! A simulated machine: a file system, and persistent memory where it has some.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::memory::SimPm;
use super::{SimFiles, Survive};

/// A machine whose power can be cut.
///
/// Clones are the same machine.
#[derive(Clone, Debug)]
pub struct Machine {
    files: Arc<SimFiles>,
    /// Set once the region is created; `None` on a machine without persistent memory.
    memory: Option<Arc<OnceLock<Arc<SimPm>>>>,
}

impl Machine {
    /// A machine without persistent memory: the region lives in a file.
    pub fn with_files() -> Machine {
        Machine { files: SimFiles::new(), memory: None }
    }

    /// A machine with persistent memory.
    pub fn with_memory() -> Machine {
        Machine { files: SimFiles::new(), memory: Some(Arc::default()) }
    }

    /// The machine as it comes up after a power cut now. This one goes on running.
    #[must_use]
    pub fn crash(&self, survive: Survive) -> Machine {
        // Files stand still while memory is looked at: the cut is one instant for both.
        let state = self.files.state.lock();
        let memory = self.memory.as_ref().map(|memory| {
            let after = OnceLock::new();
            if let Some(pm) = memory.get() {
                after.get_or_init(|| pm.crash(survive));
            }
            Arc::new(after)
        });
        Machine { files: SimFiles::over(state.after_crash(survive)), memory }
    }

    /// The n-th sync of a file from now fails; what it should have made durable is dropped.
    pub fn fail_sync_after(&self, n: u64) {
        self.files.fail_sync_after(n);
    }

    /// Bounds the bytes that files may take.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.files.set_capacity(bytes);
    }

    /// How many syncs of files there were.
    pub fn syncs(&self) -> u64 {
        self.files.syncs()
    }

    /// Flips bits of one byte: of a file, or of the persistent memory for the path `region`.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let pm = self.memory.as_ref().and_then(|m| m.get());
        match pm {
            Some(pm) if path.ends_with("region") => pm.corrupt(offset, xor),
            _ => self.files.corrupt(path, offset, xor),
        }
    }

    /// The files.
    pub(crate) fn files(&self) -> Arc<SimFiles> {
        Arc::clone(&self.files)
    }

    /// Where the persistent memory is, or is going to be.
    pub(crate) fn memory(&self) -> Option<&OnceLock<Arc<SimPm>>> {
        self.memory.as_deref()
    }
}
