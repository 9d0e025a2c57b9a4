//! The lock of a simulated directory. It keeps no other opening out: it tells calls that come after
//! it was given back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::faults::Failure;
use super::{Call, SimFile, State};
use terrace_os::parent_of;

/// How often the lock of each directory was given back, and which are taken.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    locks: BTreeMap<PathBuf, u64>,
    taken: BTreeMap<PathBuf, u64>,
    /// Calls that came late.
    pub(super) late: u64,
}

impl GivenBack {
    /// How often that of a file's directory was.
    pub(super) fn of(&self, file: &Path) -> u64 {
        self.locks.get(parent_of(file)).copied().unwrap_or(0)
    }

    /// The lock of a directory is taken.
    pub(super) fn take(&mut self, directory: &Path) {
        *self.taken.entry(directory.to_path_buf()).or_default() += 1;
    }

    /// Counts a change of a name where the lock was given back and no opening has it. A call that
    /// changes names is of no handle, so one of an opening before the one that has it is not
    /// counted. Tests change names there on purpose, so it succeeds.
    pub(super) fn note(&mut self, name: &Path) {
        let is_taken = self.taken.get(parent_of(name)).is_some_and(|openings| *openings > 0);
        self.late += u64::from(self.of(name) > 0 && !is_taken);
    }

    /// Fails for a handle of a file that was opened when the lock had been given back so often.
    pub(super) fn check(&mut self, file: &Path, opened: u64) -> io::Result<()> {
        if self.of(file) == opened {
            return Ok(());
        }
        self.late += 1;
        Err(io::Error::other(format!("{} is another opening's by now", file.display())))
    }
}

/// The lock of a database's directory. Handles that were opened under it change nothing once it is
/// given back.
#[derive(Debug)]
pub struct SimLock {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) directory: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let given_back = &mut state.given_back;
        given_back.taken.entry(self.directory.clone()).and_modify(|openings| *openings -= 1);
        *given_back.locks.entry(std::mem::take(&mut self.directory)).or_default() += 1;
    }
}

impl SimFile {
    /// As [`SimFile::begin_call`], for a call that changes the file. What has stopped at the point
    /// before it comes late where the lock was given back meanwhile.
    pub(super) fn begin_change(&self, call: Call) -> io::Result<Option<Failure>> {
        self.state.lock().given_back.check(&self.path, self.locked)?;
        Ok(self.begin_call(call))
    }
}
