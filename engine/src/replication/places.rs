//! The subdirectories of a node: one for each checkpoint that it started from. The last one that is
//! whole has the node's database. The others are removed.
//!
//! The directory has the file `NODE`, which is durable before the first subdirectory is made.
//! Without it a directory with other things in it is refused: what a node removes is told by its
//! name alone.
//!
//! A subdirectory gets the file `REMOVING` before anything in it is removed, and loses it last. So
//! what is left of a removal that was cut is known. A subdirectory with the file `shared` was a
//! writer's after a promotion: it stays.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::engine::OpenHow as How;
use crate::engine::open::{
    CLAIMS_FILE, NODE, files_of, has_file, is_database, lock, look_for, node_number, remove_part,
    remove_region_elsewhere,
};
use crate::os::{Directory, DirectoryLock, Files, OpenHow, create_directory};

/// The file of a subdirectory that is being removed.
const REMOVING: &str = "REMOVING";

/// The subdirectories of one node.
#[derive(Debug)]
pub(super) struct Places {
    files: Arc<dyn Files>,
    directory: PathBuf,
    options: Options,
}

impl Places {
    /// Locks the directory of a node, which is made if it is missing. From then on `options` find
    /// its subdirectories through one handle.
    ///
    /// # Errors
    ///
    /// `Exists` for a directory with anything but a node's; `Busy` if another process has it; or an
    /// I/O error.
    pub(super) fn enter(
        directory: &Path,
        options: &mut Options,
    ) -> Result<(Places, DirectoryLock)> {
        let (files, directory) = (files_of(options), directory.to_path_buf());
        let mut places = Places { files, directory, options: options.clone() };
        places.is_marked()?;
        let Places { files, directory, .. } = &places;
        create_directory(&**files, directory).map_err(|e| Error::io("create", directory, e))?;
        let lock = lock(&**files, directory, options, How::Existing)?;
        options.within = files.real().and_then(|files| files.held(directory));
        places.options.within.clone_from(&options.within);
        // Another process may have been faster.
        if !places.is_marked()? {
            let mark = places.directory.join(NODE);
            places.mark(&mark).map_err(|e| Error::io("make", &mark, e))?;
        }
        Ok((places, lock))
    }

    fn is_marked(&self) -> Result<bool> {
        let is_marked = self.has(&self.directory, NODE)?;
        if !is_marked {
            look_for(&self.files, &self.directory, &self.options, (How::Create, None))?;
        }
        Ok(is_marked)
    }

    /// Makes an empty file, durably, if it is not there.
    fn mark(&self, path: &Path) -> io::Result<()> {
        match self.files.open(path, OpenHow::CreateNew) {
            Ok(file) => file.sync()?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        Directory::at(path.parent().unwrap_or(path)).sync(&*self.files)
    }

    /// The options of the database in a subdirectory. A region that lies elsewhere has a name of
    /// its own: the subdirectory's behind that of the node's options.
    pub(super) fn options_of(&self, path: &Path) -> Options {
        let mut options = self.options.clone();
        if let (Some(region), Some(number)) = (&mut options.pm_path, path.file_name()) {
            region.as_mut_os_string().push(".");
            region.as_mut_os_string().push(number);
        }
        options
    }

    /// The subdirectory with a number.
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:08}"))
    }

    /// The numbers that have one, in order.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.files.directories(&self.directory);
        let names = names.map_err(|e| Error::io("list", &self.directory, e))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| node_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Where the next database goes.
    pub(super) fn next(&self) -> Result<PathBuf> {
        Ok(self.path(self.numbers()?.last().map_or(1, |last| last + 1)))
    }

    /// Those that have a database of the node's, the newest first. What a restore left that did not
    /// end has none. One that was a writer's ends them.
    pub(super) fn candidates(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            let path = self.path(number);
            if self.was_writer(&path)? {
                break;
            }
            if !self.has(&path, REMOVING)? && is_database(&path, &self.options_of(&path))? {
                found.push(path);
            }
        }
        Ok(found)
    }

    /// Removes all but `kept`, what was a writer's, and what another opening has open. What cannot
    /// be removed takes space, and is removed by a later call.
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
        has_file(&*self.files, &path.join(name))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let options = self.options_of(path);
        let _lock = lock(&*files_of(&options), path, &options, How::Existing)?;
        let mark = path.join(REMOVING);
        self.mark(&mark).map_err(|e| Error::io("make", &mark, e))?;
        // Before the names by which it is known as the database's own.
        remove_region_elsewhere(path, &options)?;
        let remove = || {
            for name in self.files.list(path)?.into_iter().filter(|name| name != REMOVING) {
                remove_part(&*self.files, path, &name)?;
            }
            Directory::at(path).sync(&*self.files)?;
            self.files.remove(&mark)?;
            self.files.remove_directory(path)
        };
        remove().map_err(|e| Error::io("remove", path, e))
    }
}
