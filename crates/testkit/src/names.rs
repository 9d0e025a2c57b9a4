//! The names of a simulated file system: what is seen, what is durable, and what is between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::Fate;

type Map = BTreeMap<PathBuf, u64>;

#[derive(Clone, Debug)]
enum Operation {
    Create(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Operation {
    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        let (one, two) = match self {
            Operation::Create(name, _) | Operation::Remove(name) => (name, None),
            Operation::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(one).chain(two)
    }

    fn is_in(&self, directory: &Path) -> bool {
        self.names().any(|name| name.parent() == Some(directory))
    }

    fn apply(&self, map: &mut Map) {
        match self {
            Operation::Create(name, id) => {
                map.insert(name.clone(), *id);
            }
            Operation::Remove(name) => {
                map.remove(name);
            }
            Operation::Rename(from, to) => {
                if let Some(id) = map.remove(from) {
                    map.insert(to.clone(), id);
                }
            }
        }
    }
}

/// Invariants:
///
/// 1. `current` is `durable` with all of `pending` applied.
/// 2. `new_directories` are some of `directories`: those of which the name is not durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    current: Map,
    durable: Map,
    pending: Vec<Operation>,
    directories: BTreeSet<PathBuf>,
    new_directories: BTreeSet<PathBuf>,
    /// Those of which the removal is not durable.
    removed_directories: BTreeSet<PathBuf>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<u64> {
        self.current.get(path).copied()
    }

    /// The name of a file, if it has one.
    pub(super) fn of(&self, file: u64) -> Option<&Path> {
        self.current.iter().find(|(_, id)| **id == file).map(|(path, _)| path.as_path())
    }

    /// The files that have a name.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> {
        self.current.values().copied()
    }

    pub(super) fn list(&self, directory: &Path) -> Vec<String> {
        let inside = self.current.keys().filter(|p| p.parent() == Some(directory));
        inside.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect()
    }

    pub(super) fn has_directory(&self, directory: &Path) -> bool {
        self.directories.contains(directory)
    }

    /// The names of the directories in a directory.
    pub(super) fn directories(&self, directory: &Path) -> Vec<String> {
        let inside = self.directories.iter().filter(|path| path.parent() == Some(directory));
        inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
    }

    /// Removes a directory that is empty.
    pub(super) fn remove_directory(&mut self, directory: &Path) -> io::Result<()> {
        let has_files = self.current.keys().any(|path| path.starts_with(directory));
        if has_files || !self.directories(directory).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        if !self.directories.remove(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !self.new_directories.remove(directory) {
            self.removed_directories.insert(directory.to_path_buf());
        }
        Ok(())
    }

    /// Creates a directory and its parents where missing. The root is always durable.
    pub(super) fn create_directory(&mut self, directory: &Path) {
        for path in directory.ancestors() {
            self.removed_directories.remove(path);
            if self.directories.insert(path.to_path_buf()) && path.parent().is_some() {
                self.new_directories.insert(path.to_path_buf());
            }
        }
    }

    fn perform(&mut self, operation: Operation) {
        operation.apply(&mut self.current);
        self.pending.push(operation);
    }

    pub(super) fn create(&mut self, path: &Path, id: u64) {
        self.perform(Operation::Create(path.to_path_buf(), id));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.get(from).ok_or(io::ErrorKind::NotFound)?;
        self.perform(Operation::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.get(path).ok_or(io::ErrorKind::NotFound)?;
        self.perform(Operation::Remove(path.to_path_buf()));
        Ok(())
    }

    /// Makes the names in `directory` durable.
    pub(super) fn sync(&mut self, directory: &Path) {
        let durable = &mut self.durable;
        self.pending.retain(|operation| {
            let synced = operation.is_in(directory);
            if synced {
                operation.apply(durable);
            }
            !synced
        });
        self.new_directories.retain(|made| made.parent() != Some(directory));
        self.removed_directories.retain(|gone| {
            let is_synced = gone.parent() == Some(directory);
            if is_synced {
                durable.retain(|path, _| !path.starts_with(gone));
            }
            !is_synced
        });
    }

    pub(super) fn after_crash(&self, fate: &mut Fate) -> Names {
        let mut durable = self.durable.clone();
        let mut lost = BTreeSet::new();
        for operation in &self.pending {
            let possible = operation.names().all(|name| !lost.contains(name));
            if fate.choose(2) == 1 && possible {
                operation.apply(&mut durable);
            } else {
                lost.extend(operation.names());
            }
        }
        let mut directories = self.directories.clone();
        for gone in self.new_directories.iter().filter(|_| fate.choose(2) == 0) {
            directories.retain(|path| !path.starts_with(gone));
            durable.retain(|path, _| !path.starts_with(gone));
        }
        for gone in &self.removed_directories {
            if fate.choose(2) == 0 {
                directories.insert(gone.clone());
            } else {
                durable.retain(|path, _| !path.starts_with(gone));
            }
        }
        let (current, pending) = (durable.clone(), Vec::new());
        let none = BTreeSet::new;
        let (new_directories, removed_directories) = (none(), none());
        Names { current, durable, pending, directories, new_directories, removed_directories }
    }
}
