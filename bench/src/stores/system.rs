//! A store and where its files lie.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Kind, Memory, Store, version};
use crate::Settings;
use crate::report::Report;

/// Memory that is a file system.
const TMPFS: &str = "/dev/shm";

/// A store, on disk or on tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct System {
    pub(crate) kind: Kind,
    /// All of its files are on tmpfs, where a sync costs nothing.
    pub(crate) on_tmpfs: bool,
}

impl System {
    /// On disk.
    pub(crate) const fn disk(kind: Kind) -> System {
        System { kind, on_tmpfs: false }
    }

    /// On tmpfs.
    pub(crate) const fn tmpfs(kind: Kind) -> System {
        System { kind, on_tmpfs: true }
    }

    /// The name in reports.
    pub(crate) fn name(self) -> String {
        let place = if self.on_tmpfs { " on tmpfs" } else { "" };
        format!("{}{place}", self.kind.name())
    }

    /// Those of `systems` that this build and this machine have; the report says which it skips.
    pub(crate) fn there(
        systems: &[System],
        settings: &Settings,
        report: &mut Report,
    ) -> Vec<System> {
        let mut there = Vec::new();
        for system in systems {
            let name = system.name();
            let asked = settings.load.systems.as_ref();
            if asked.is_some_and(|list| !list.split(',').any(|one| one == name)) {
                continue;
            }
            if !system.kind.is_built() {
                report.not_built(&name);
            } else if system.on_tmpfs && !Path::new(TMPFS).is_dir() {
                report.skipped(&format!("{name}: {TMPFS} is not there"));
            } else {
                there.push(*system);
            }
        }
        there
    }

    /// A fresh home for its files, under `dir` if they are on disk.
    pub(crate) fn home(self, dir: &Path) -> Result<Home> {
        let place = if self.on_tmpfs { Path::new(TMPFS) } else { dir };
        Ok(Home(tempfile::Builder::new().prefix("terrace-bench-").tempdir_in(place)?))
    }

    /// Opens the store in its home, and has the report say how it is set up.
    pub(crate) fn open(
        self,
        home: &Home,
        memory: Memory,
        report: &mut Report,
    ) -> Result<Box<dyn Store>> {
        let store = self.kind.open(&home.path(), memory)?;
        let settings = format!("{}; {}", version(self.kind), store.settings());
        report.settings(&self.name(), &settings);
        Ok(store)
    }
}

/// Where a store's files are, until this is dropped.
#[derive(Debug)]
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    /// The directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }
}
