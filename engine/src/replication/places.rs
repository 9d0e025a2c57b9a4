//! The subdirectories of a node: one for each checkpoint that it started from. The last one that is
//! whole has the node's database. The others are removed.
//!
//! A subdirectory gets the file `REMOVING` before anything in it is removed, and loses it last. So
//! what is left of a removal that was cut is known. A subdirectory with the file `shared` was a
//! writer's after a promotion: it stays.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::engine::open::{CLAIMS_FILE, remove_part};
use crate::os::{Directory, Files, OpenHow};

/// The file of a subdirectory that is being removed.
const REMOVING: &str = "REMOVING";

/// The subdirectories of one node.
#[derive(Debug)]
pub(super) struct Places {
    files: Arc<dyn Files>,
    directory: PathBuf,
}

impl Places {
    pub(super) fn new(files: &Arc<dyn Files>, directory: &Path) -> Places {
        Places { files: Arc::clone(files), directory: directory.to_path_buf() }
    }

    /// The subdirectory with a number.
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}"))
    }

    /// The numbers that have one, in order.
    fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.files.directories(&self.directory);
        let names = names.map_err(|e| Error::io("list", &self.directory, e))?;
        let number = |name: String| {
            let number = name.parse().ok()?;
            (format!("{number:08}") == name).then_some(number)
        };
        let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Where the next database goes.
    pub(super) fn next(&self) -> Result<PathBuf> {
        Ok(self.path(self.numbers()?.last().map_or(1, |last| last + 1)))
    }

    /// Those that may have the node's database, the newest first. One that was a writer's is the
    /// last of them.
    pub(super) fn candidates(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            let path = self.path(number);
            if self.was_writer(&path)? {
                break;
            }
            if !self.has(&path, REMOVING)? {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Removes all but `kept`, and what was a writer's. What cannot be removed takes space, and is
    /// removed by a later call.
    pub(super) fn clean(&self, kept: &BTreeSet<PathBuf>) {
        let paths = self.numbers().unwrap_or_default().into_iter().map(|number| self.path(number));
        for path in paths.filter(|path| !kept.contains(path)) {
            if matches!(self.was_writer(&path), Ok(false)) {
                self.remove(&path).unwrap_or(());
            }
        }
    }

    fn was_writer(&self, path: &Path) -> Result<bool> {
        self.has(path, CLAIMS_FILE)
    }

    fn has(&self, path: &Path, name: &str) -> Result<bool> {
        let path = path.join(name);
        match self.files.open(&path, OpenHow::Read) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io("open", &path, e)),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mark = path.join(REMOVING);
        match self.files.open(&mark, OpenHow::CreateNew) {
            Ok(file) => file.sync()?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        Directory::at(path).sync(&*self.files)?;
        for name in self.files.list(path)?.into_iter().filter(|name| name != REMOVING) {
            remove_part(&*self.files, path, &name)?;
        }
        Directory::at(path).sync(&*self.files)?;
        self.files.remove(&mark)?;
        self.files.remove_directory(path)
    }
}
