//! What a directory holds: nothing, a database, a database that lacks a part, what an unfinished
//! creation left, or files of something else. An opening asks before it touches anything.
//!
//! `docs/format.md` ("Creation") has the argument that an unfinished creation is never mistaken for
//! a damaged database, nor the other way round. Two pieces of evidence have to agree before
//! anything is replaced: the marker is there, and no opening ever used the region.

use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index_file::INDEX;
use super::marker::{MARKER, Marker};
use super::media::{self, REGION};
use crate::error::{Damage, Error, Mismatch, Result};
use crate::levels::{Manifest, is_journal_name};
use crate::options::{Options, Storage};
use crate::os::Files;
use crate::tier::is_extent_file_name;

/// What a directory holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Missing,
    /// Nothing, or the lock file alone, beside what a volume has.
    Empty,
    /// What a creation, or another call that makes a database, left when it was cut off: the same
    /// call may replace it.
    Unfinished(Marker),
    Database,
    /// Parts of a database, and no journal.
    NoJournal(Parts),
    /// Files of something else, with the name of one.
    Foreign(String),
}

/// The parts of a database that has no journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) directory: PathBuf,
    /// The names of those that are there.
    pub(crate) names: Vec<String>,
}

impl Parts {
    /// The journal as a missing structure.
    pub(crate) fn damage(&self) -> Damage {
        let expected = format!("a file journal-NNNNNNNN beside {}", self.some_names());
        Mismatch::new(expected, "none").at("journal", "journal", &self.directory, 0)
    }

    /// The error of every opening.
    pub(crate) fn error(&self) -> Error {
        let directory = self.directory.display();
        Error::missing(
            self.damage(),
            format!(
                "the database in {directory} lacks its journal: there is no file journal-NNNNNNNN \
                 beside {}, and nothing was changed; put the journal back, or write what can be \
                 read to a new database with `terrace salvage`; remove these files only if the \
                 data is not needed",
                self.some_names()
            ),
        )
    }

    fn some_names(&self) -> String {
        const SHOWN: usize = 4;
        let shown = self.names[..self.names.len().min(SHOWN)].join(", ");
        match self.names.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}

/// Whether a file system, or an operating system, makes something of that name at the top of a
/// volume: a mount point that was just made has it, and is as good as empty.
pub(super) fn is_of_volume(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "lost+found",
        ".snapshot",
        ".fseventsd",
        ".Spotlight-V100",
        ".Trashes",
        "System Volume Information",
        "$RECYCLE.BIN",
    ];
    NAMES.contains(&name)
}

/// Says what the directory `path` holds. Changes nothing.
///
/// # Errors
///
/// An I/O error other than that the directory is missing.
pub(crate) fn look(files: &Arc<dyn Files>, path: &Path, options: &Options) -> Result<Presence> {
    let mut names = match files.list(path) {
        Ok(names) => names,
        Err(e) if e.kind() == NotFound => return Ok(Presence::Missing),
        Err(e) => return Err(Error::io("list", path, e)),
    };
    names.retain(|name| name != "LOCK" && !is_of_volume(name));
    if names.iter().any(|name| name == MARKER) {
        names.retain(|name| name != MARKER);
        let marker = Marker::read(&**files, path)?;
        // A torn marker is alone, since it is durable before all else. Beside other files it is
        // damaged, and what they are it does not say.
        let says = marker.database_id.is_some() || names.is_empty();
        if says && !was_opened(files, path, options, &marker)? {
            return Ok(Presence::Unfinished(marker));
        }
    }
    if names.iter().any(|name| is_journal_name(name)) {
        return Ok(Presence::Database);
    }
    without_journal(files, path, names)
}

fn without_journal(files: &Arc<dyn Files>, path: &Path, names: Vec<String>) -> Result<Presence> {
    if let Some(backup) = names.iter().find(|name| Manifest::number_of(name).is_some()) {
        return Ok(Presence::Foreign(backup.clone()));
    }
    let is_half_made = |name: &str| name.strip_suffix(".new").is_some_and(is_journal_name);
    let mut parts = Vec::new();
    for name in &names {
        let is_part = match name.as_str() {
            REGION => media::is_region(&**files, &path.join(REGION))?,
            INDEX => names.iter().any(|other| other == REGION),
            name => is_extent_file_name(name) || is_half_made(name),
        };
        if is_part {
            parts.push(name.clone());
        }
    }
    match (parts.is_empty(), names.into_iter().next()) {
        (false, _) => {
            Ok(Presence::NoJournal(Parts { directory: path.to_path_buf(), names: parts }))
        }
        (true, Some(other)) => Ok(Presence::Foreign(other)),
        (true, None) => Ok(Presence::Empty),
    }
}

/// Whether an opening ever used the region beside a marker, other than those of the call that made
/// the marker. Then the marker is a stray: creation
/// removes it, durably, before the first opening.
fn was_opened(
    files: &Arc<dyn Files>,
    path: &Path,
    options: &Options,
    marker: &Marker,
) -> Result<bool> {
    let regions: Vec<PathBuf> = match &options.storage {
        Storage::Real => {
            let named = [options.pm_path.clone(), marker.pm_path.clone()];
            std::iter::once(path.join(REGION)).chain(named.into_iter().flatten()).collect()
        }
        #[cfg(any(test, feature = "testing"))]
        Storage::Simulated(_) => vec![media::path(path, options)],
    };
    for region in regions {
        if let Some(superblock) = media::peek(files, &region, options)?
            && marker.database_id.is_none_or(|id| id == superblock.database_id)
            && superblock.incarnations.current > marker.making.last_incarnation()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
