//! The lock of a simulated directory. It keeps no other opening out: it tells calls that come after
//! it was given back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::State;
use terrace_os::parent_of;

/// How often the lock of each directory was given back.
#[derive(Debug, Default)]
pub(super) struct GivenBack {
    locks: BTreeMap<PathBuf, u64>,
    /// Calls that came late.
    pub(super) late: u64,
}

impl GivenBack {
    /// How often that of a file's directory was.
    pub(super) fn of(&self, file: &Path) -> u64 {
        self.locks.get(parent_of(file)).copied().unwrap_or(0)
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
        *state.given_back.locks.entry(std::mem::take(&mut self.directory)).or_default() += 1;
    }
}
