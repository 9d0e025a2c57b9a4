//! Where the database of a tour is: in one directory, or on a machine that will be lost, with a
//! store that is shared by all machines. A machine is a directory here. The store is a directory
//! too, or a bucket that the caller names: a file has its URL, for the processes of the tour.

use std::fs;
use std::path::{Path, PathBuf};

use terrace::{Database, Durability, Options};

use crate::failure::Failure;

/// The file with the URL of the store.
const URL: &str = "store-url";

/// The place of the database between two kills.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'a> {
    dir: &'a Path,
    /// Which machine it is; `None` if there is but one, which stays.
    number: Option<u32>,
}

impl<'a> Machine<'a> {
    /// That of a tour in `dir`.
    pub(crate) fn new(dir: &'a Path, number: Option<u32>) -> Machine<'a> {
        Machine { dir, number }
    }

    pub(super) fn number(self) -> Option<u32> {
        self.number
    }

    /// The machine that comes after this one is lost.
    pub(super) fn next(self) -> Machine<'a> {
        Machine { number: self.number.map(|number| number + 1), ..self }
    }

    fn path(self) -> PathBuf {
        match self.number {
            None => self.dir.join("db"),
            Some(number) => self.dir.join(format!("machine {number}")),
        }
    }

    /// Has all machines of the tour share a place of its own in a store.
    pub(super) fn share(self, store: &str, seed: u64) -> Result<(), Failure> {
        let path = self.dir.join(URL);
        let url = format!("{}/tour-{seed:016x}", store.trim_end_matches('/'));
        fs::write(&path, url)
            .map_err(|error| Failure::io(format!("write {}", path.display()), &error))
    }

    fn url(self) -> String {
        let directory = || format!("file://{}", self.dir.join("store").display());
        fs::read_to_string(self.dir.join(URL)).unwrap_or_else(|_| directory())
    }

    /// Opens the database. A machine that has none takes it over, but for the first one.
    pub(super) fn open(self) -> terrace::Result<Database> {
        let (options, path) = (Options::new().pm_size(super::REGION), self.path());
        match self.number {
            None => options.open(path),
            Some(number) if number > 0 && !path.exists() => options.open_shared(&self.url(), path),
            Some(_) => options.object_store(self.url()).share(true).open(path),
        }
    }

    /// What a commit has to survive.
    pub(super) fn durability(self) -> Durability {
        if self.number.is_some() { Durability::Remote } else { Durability::Durable }
    }

    /// It is lost, with its disk and its memory.
    pub(super) fn lose(self) -> Result<(), Failure> {
        if self.number.is_none() {
            return Ok(());
        }
        let path = self.path();
        let doing = || format!("remove {}", path.display());
        fs::remove_dir_all(&path).map_err(|error| Failure::io(doing(), &error))
    }
}
