//! The backups that a rig has made of its database, and what must be found of them after an end.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use terrace::ErrorKind;
use terrace::testing::Machine;

use crate::content::{Content, read_all};
use crate::cuts::{Violation, options};

/// Where they are.
pub const SET: &str = "/set";

/// A set, and what was asked for and kept of it.
type Checked = (u128, [usize; 4]);

/// Backups, and deletions of the oldest ones, in order; the last of either may be under way.
#[derive(Clone, Debug, Default)]
pub struct Backups {
    /// Of each that was asked for.
    contents: Vec<Content>,
    deletions: usize,
    kept: Kept,
    /// Sets that were checked and found well, each with what was asked for and kept: what is
    /// found depends on nothing else, and few cuts leave one that no other cut left.
    well: Arc<Mutex<HashSet<Checked>>>,
}

/// How many backups, and deletions, were acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    made: usize,
    deleted: usize,
}

impl Backups {
    /// One is asked for.
    pub fn begin(&mut self, content: Content) {
        self.contents.push(content);
    }

    /// It was acknowledged.
    pub fn made(&mut self) {
        self.kept.made = self.contents.len();
    }

    /// The oldest one is to be deleted: its number.
    pub fn begin_deletion(&mut self) -> u64 {
        self.deletions += 1;
        self.deletions as u64
    }

    /// That was acknowledged.
    pub fn deleted(&mut self) {
        self.kept.deleted = self.deletions;
    }

    /// What was acknowledged.
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// So much was acknowledged when the end came.
    pub fn owe(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Restores every backup that is found on `machine`, and holds it against what it was made of.
    pub fn check(&self, machine: &Machine) -> Result<(), Violation> {
        if self.contents.is_empty() {
            return Ok(());
        }
        let asked_for = [self.contents.len(), self.deletions, self.kept.made, self.kept.deleted];
        let set = (machine.digest(Path::new(SET)), asked_for);
        let well = || self.well.lock().unwrap_or_else(PoisonError::into_inner);
        if well().contains(&set) {
            return Ok(());
        }
        self.check_anew(machine)?;
        well().insert(set);
        Ok(())
    }

    fn check_anew(&self, machine: &Machine) -> Result<(), Violation> {
        let machine = machine.files_alone();
        let set = options(&machine, None).backup_set(SET);
        let found = match set.and_then(|set| Ok((set.list()?, set.verify()?, set))) {
            Ok(found) => found,
            // Not even the first one may have come to its directory.
            Err(e) if e.kind() == ErrorKind::Invalid && self.kept.made == 0 => return Ok(()),
            Err(e) => return Err(format!("the backups: {e}")),
        };
        let (list, report, set) = found;
        if let Some(damage) = report.damages.first() {
            return Err(format!("the backups: {damage}"));
        }
        self.check_numbers(&list.iter().map(|info| info.number as usize).collect::<Vec<_>>())?;
        for info in &list {
            let to = format!("/restored {}", info.number);
            let restored = || {
                set.restore(info.number, &to)?;
                read_all(&options(&machine, None).open(&to)?)
            };
            let found = restored().map_err(|e| format!("restoring backup {}: {e}", info.number))?;
            if let Some(what) = found.differs_from(&self.contents[info.number as usize - 1]) {
                return Err(format!("backup {}: {what}", info.number));
            }
        }
        Ok(())
    }

    /// Which there are: all from the last deletion to the last backup, and of both the one that is
    /// under way or not.
    fn check_numbers(&self, found: &[usize]) -> Result<(), Violation> {
        let first = found.first().map_or(self.kept.deleted + 1, |first| *first);
        let last = found.last().map_or(self.kept.deleted, |last| *last);
        let firsts = self.kept.deleted + 1..=self.deletions + 1;
        let lasts = self.kept.made..=self.contents.len();
        let is_dense = found.iter().copied().eq(first..=last);
        match is_dense && firsts.contains(&first) && lasts.contains(&last) {
            true => Ok(()),
            false => Err(format!("backups are {found:?}, must be from {firsts:?} to {lasts:?}")),
        }
    }
}
