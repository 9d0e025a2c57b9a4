//! The backups that a rig has made of its database, and what must be found of them after an end.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use terrace::ErrorKind;
use terrace::testing::Machine;

use crate::content::{Content, read_all};
use crate::cuts::{End, Violation, options};
use crate::violation::Class;

/// Where they are.
pub const SET: &str = "/set";

/// A set, what was asked for and kept of it, and the digests of what its backups may have.
type Checked = (u128, [usize; 4], Vec<Vec<u64>>);

/// What a backup may have.
#[derive(Clone, Debug)]
struct Wanted {
    content: Content,
    digest: u64,
}

impl Wanted {
    fn new(content: Content) -> Wanted {
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(&content);
        Wanted { content, digest }
    }
}

/// Backups, and deletions of the oldest ones, in order; the last of either may be under way.
#[derive(Clone, Debug, Default)]
pub struct Backups {
    /// Of each number that was asked for, what it may have: of several where the attempts before
    /// the last one failed.
    contents: Vec<Vec<Wanted>>,
    /// The last attempt failed, and left nothing: its number is free.
    last_is_free: bool,
    deletions: usize,
    kept: Kept,
    /// Sets that were checked and found well, each with what was asked for, kept and wanted: the
    /// verdict depends on nothing else, and few cuts leave one that no other cut left.
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
    pub fn begin(&mut self, mut content: Content) {
        // A backup has what is committed.
        content.1.clear();
        let wanted = Wanted::new(content);
        match self.contents.last_mut() {
            Some(last) if self.last_is_free => last.push(wanted),
            _ => self.contents.push(vec![wanted]),
        }
    }

    /// It was acknowledged.
    pub fn made(&mut self) {
        if let Some(last) = self.contents.last_mut() {
            last.drain(..last.len() - 1);
        }
        self.last_is_free = false;
        self.kept.made = self.contents.len();
    }

    /// It failed: it may be there, and may not.
    pub fn not_made(&mut self, machine: &Machine) {
        self.last_is_free = numbers(machine).is_none_or(|n| !n.contains(&self.contents.len()));
    }

    /// Whether one can be deleted, so that another one is left.
    pub fn has_several(&self) -> bool {
        self.contents.len() - usize::from(self.last_is_free) > self.deletions + 1
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

    /// That failed: it may be gone, and may not.
    pub fn not_deleted(&mut self, machine: &Machine) {
        if numbers(machine).is_some_and(|n| n.contains(&self.deletions)) {
            self.deletions -= 1;
        }
    }

    /// Goes on with what is found after an end.
    pub fn live_on(&mut self, machine: &Machine, end: End) {
        let found = numbers(machine).unwrap_or_default();
        let (Some(first), Some(last)) = (found.first(), found.last()) else {
            *self = Backups::default();
            return;
        };
        self.contents.truncate(*last);
        self.last_is_free = false;
        self.deletions = first - 1;
        if matches!(end, End::Cut(_)) {
            self.kept = Kept { made: *last, deleted: first - 1 };
        }
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
        let digests = |several: &Vec<Wanted>| several.iter().map(|one| one.digest).collect();
        let wanted = self.contents.iter().map(digests).collect();
        let set = (machine.digest(Path::new(SET)), asked_for, wanted);
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
        machine.mend();
        let set = options(&machine, None).backup_set(SET);
        let found = match set.and_then(|set| Ok((set.list()?, set.verify()?, set))) {
            Ok(found) => found,
            // Not even the first one may have come to its directory.
            Err(e) if e.kind() == ErrorKind::Invalid && self.kept.made == 0 => return Ok(()),
            Err(e) => return Err(Class::Backup.violation(e)),
        };
        let (list, report, set) = found;
        if !report.is_sound() {
            return Err(Class::Backup.violation(format!("{report:?}")));
        }
        self.check_numbers(&list.iter().map(|info| info.number as usize).collect::<Vec<_>>())?;
        for info in &list {
            let to = format!("/restored {}", info.number);
            let restored = || {
                set.restore(info.number, &to)?;
                read_all(&options(&machine, None).open(&to)?)
            };
            let number = info.number;
            let refused = |e| Class::Backup.violation(format!("restoring {number}: {e}"));
            let found = restored().map_err(refused)?;
            let wanted = &self.contents[number as usize - 1];
            if let Some(what) =
                wanted.iter().map(|one| found.differs_from(&one.content)).min().flatten()
            {
                return Err(Class::Backup.violation(format!("{number}: {what}")));
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
            false => {
                let what = format!("there are {found:?}, must be from {firsts:?} to {lasts:?}");
                Err(Class::Backup.violation(what))
            }
        }
    }
}

/// The numbers of the backups that are found, if there is a set.
fn numbers(machine: &Machine) -> Option<Vec<usize>> {
    let alone = machine.files_alone();
    alone.mend();
    let set = options(&alone, None).backup_set(SET).ok()?;
    Some(set.list().ok()?.iter().map(|info| info.number as usize).collect())
}
