//! Reads of simulated files that go wrong.

use std::path::Path;

use super::{Fate, SimFiles, Survive};

/// Which reads of files go wrong.
#[derive(Clone, Copy, Debug)]
pub struct ReadFaults {
    /// What decides.
    pub seed: u64,
    /// One read in so many goes wrong.
    pub every: u64,
    /// Whether a read may also give bytes of which one has a bit flipped, beside an I/O error and
    /// less than was asked for. What is on the device stays as it is.
    pub flips: bool,
}

/// What becomes of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFate {
    Works,
    Fails,
    /// It gives the first part of what was asked for, as any read may.
    Short,
    /// A bit of the byte that this number picks is flipped.
    Flips(usize),
}

/// Decides for each read in turn.
#[derive(Debug)]
pub(super) struct Reads {
    faults: ReadFaults,
    fate: Fate,
    /// How many went wrong.
    pub(super) struck: u64,
}

impl Reads {
    pub(super) fn new(faults: ReadFaults) -> Reads {
        Reads { faults, fate: Fate::new(Survive::Seeded(faults.seed)), struck: 0 }
    }

    pub(super) fn next(&mut self) -> ReadFate {
        if self.fate.choose(self.faults.every as usize) > 0 {
            return ReadFate::Works;
        }
        self.struck += 1;
        match self.fate.choose(if self.faults.flips { 3 } else { 2 }) {
            0 => ReadFate::Fails,
            1 => ReadFate::Short,
            _ => ReadFate::Flips(self.fate.choose(1 << 20)),
        }
    }
}

impl SimFiles {
    /// Flips the bits of `xor` in one byte, and no caller is told. Nothing happens to a file or a
    /// byte that is not there.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let mut state = self.state.lock();
        if let Some(id) = state.names.get(path)
            && let Some(content) = state.files.get_mut(&id)
        {
            content.corrupt(offset, xor);
        }
    }
}
