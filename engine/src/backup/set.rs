//! The directory of a backup set: `backup-…`, a manifest each; `extents-…`, what they name.
//!
//! Invariants:
//!
//! 1. What a manifest names is durable before the manifest has its name, and stays where it is for
//!    as long as it has it.
//! 2. A writer knows all manifests: what none of them names is free.
//! 3. A number is that of one backup for ever. The manifest of the last backup is not removed but
//!    renamed to `backup-….deleted`, which keeps the number until there is a greater one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::BackupInfo;
use super::known::{KnownExtents, ToCopy};
use super::take::{Destination, gather};
use crate::base::error::{Error, Result, VerifyReport};
use crate::base::options::{Failpoint, Options};
use crate::base::progress::Meter;
use crate::engine::open::{files_of, lock};
use crate::engine::{Engine, OpenHow};
use crate::os::{DirectoryLock, Files, create_directory, parent_of, sync_name};
use crate::sstable::{Extent, ExtentMeta};
use crate::storage::{ExtentStore, Location, is_extent_file_name};
use crate::version::Manifest;

/// Adds a backup to the set in the directory `path`.
pub(super) fn back_up(engine: &Engine, path: &Path) -> Result<BackupInfo> {
    let mut set = Set::open_or_create(path, &engine.options)?;
    set.check_is_of(engine.set.database_id())?;
    let added = add(engine, &mut set);
    if added.is_err() {
        set.give_back_unnamed();
    }
    added
}

/// Gathers a backup and adds it to the set.
fn add(engine: &Engine, set: &mut Writing) -> Result<BackupInfo> {
    let meter = Meter::new(&engine.options, "backup");
    let gathered = gather(engine, set, &meter)?;
    let added = set.store().bytes_written();
    let manifest = gathered.manifest(engine, set.next_number(), added)?;
    meter.end()?;
    set.add(&manifest)?;
    drop(gathered);
    Ok(BackupInfo::of(&manifest))
}

/// A set, locked.
pub(super) struct Set {
    files: Arc<dyn Files>,
    path: PathBuf,
    options: Options,
    _lock: DirectoryLock,
}

/// A set to write to.
pub(super) struct Writing {
    set: Set,
    /// The greatest that a backup ever had; 0 if there was none.
    last_number: u64,
    /// What they are of: one, or none yet.
    databases: BTreeSet<[u8; 16]>,
    store: Arc<ExtentStore>,
    /// The extents that it has.
    known: KnownExtents,
}

/// Fails where no set is.
pub(super) fn check_present(files: &dyn Files, path: &Path) -> Result<()> {
    check_is_no_database(files, path)?;
    if !names(files, path)?.iter().any(|name| is_of_set(name)) {
        return Err(Error::invalid(format!("there are no backups in {}", path.display())));
    }
    Ok(())
}

/// Whether a set gives a file this name. What others put beside its files is left alone: a file
/// system's `lost+found`, an index of a file manager, a note.
fn is_of_set(name: &str) -> bool {
    let is_manifest = || Manifest::number_of(name).or(Manifest::deleted_number_of(name)).is_some();
    name == "LOCK" || is_extent_file_name(name) || is_manifest()
}

/// Fails where a set would lie among the files of a database.
fn check_is_no_database(files: &dyn Files, path: &Path) -> Result<()> {
    let is_of_database =
        |name: &String| name == "region" || name == "shared" || name.starts_with("journal-");
    match names(files, path)?.into_iter().find(is_of_database) {
        None => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "{} holds {other:?} of a database and is no backup set; name an empty or a new \
             directory",
            path.display()
        ))),
    }
}

/// What is in the directory of a set; nothing where there is no directory.
fn names(files: &dyn Files, path: &Path) -> Result<Vec<String>> {
    let names = match files.list(path) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", path, e)),
    };
    Ok(names)
}

impl Set {
    /// An existing set, to read.
    pub(super) fn open_to_read(path: &Path, options: &Options) -> Result<Set> {
        let files = files_of(options);
        check_present(&*files, path)?;
        Set::locked(files, path, options, OpenHow::ReadOnly)
    }

    /// An existing set, to delete backups of.
    pub(super) fn open_to_delete(path: &Path, options: &Options) -> Result<Set> {
        let files = files_of(options);
        check_present(&*files, path)?;
        Set::locked(files, path, options, OpenHow::OpenOrCreate)
    }

    /// A set to write to, made where there is none.
    pub(super) fn open_or_create(path: &Path, options: &Options) -> Result<Writing> {
        let files = files_of(options);
        check_is_no_database(&*files, path)?;
        create_directory(&*files, path).map_err(|e| Error::io("create", path, e))?;
        let set = Set::locked(files, path, options, OpenHow::OpenOrCreate)?;
        let named = sync_name(&*set.files, path);
        named.map_err(|e| Error::io("sync", parent_of(path), e))?;
        set.into_writing()
    }

    fn locked(files: Arc<dyn Files>, path: &Path, options: &Options, how: OpenHow) -> Result<Set> {
        let _lock = lock(&*files, path, options, how)?;
        Ok(Set { files, path: path.to_path_buf(), options: options.clone(), _lock })
    }

    fn into_writing(self) -> Result<Writing> {
        let (numbers, mut databases) = (self.numbers()?, BTreeSet::new());
        let (mut known, mut taken) = (KnownExtents::default(), BTreeSet::new());
        for number in &numbers {
            let manifest = self.manifest(*number)?;
            databases.insert(manifest.database_id);
            manifest.extents().for_each(|extent| known.add(extent));
            if self.options.has(Failpoint::FreeListedValues) {
                taken.extend(manifest.extents().map(|extent| extent.location));
            } else {
                taken.extend(manifest.places());
            }
        }
        debug_assert!(numbers.is_sorted_by(|a, b| a < b), "backups have ascending numbers");
        let taken: Vec<Location> = taken.into_iter().collect();
        let store = ExtentStore::open(Arc::clone(&self.files), &self.path, &taken, false)?;
        // A process that died may have left a backup without its name, or one that was deleted with
        // it, in the operating system's cache alone. What is written from here on rests on both.
        store.sync_names()?;
        let last_number = self.last_number(&numbers)?;
        Ok(Writing { set: self, last_number, databases, store, known })
    }

    /// The greatest number that a backup ever had. What keeps lesser ones is removed. The caller
    /// has made all names durable.
    fn last_number(&self, numbers: &[u64]) -> Result<u64> {
        let names = names(&*self.files, &self.path)?;
        let deleted: Vec<u64> =
            names.iter().filter_map(|name| Manifest::deleted_number_of(name)).collect();
        let last = numbers.iter().chain(&deleted).max().map_or(0, |last| *last);
        for number in deleted.into_iter().filter(|number| *number < last) {
            // One that stays says nothing that the greater number does not say.
            self.files.remove(&Manifest::deleted_path(&self.path, number)).unwrap_or(());
        }
        Ok(last)
    }

    /// The numbers of its backups, ascending.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let names = names(&*self.files, &self.path)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| Manifest::number_of(n)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The manifest of one of them.
    pub(super) fn manifest(&self, number: u64) -> Result<Manifest> {
        Manifest::read(&*self.files, &self.path, number)
    }

    /// The extent files, to read, wherever manifests say that extents are.
    pub(super) fn store(&self) -> Result<Arc<ExtentStore>> {
        ExtentStore::open(Arc::clone(&self.files), &self.path, &[], true)
    }

    /// Deletes a backup. It reads no manifest before that: one that is damaged can be deleted too.
    pub(super) fn delete(self, number: u64) -> Result<()> {
        let (files, path, numbers) = (&*self.files, self.path.as_path(), self.numbers()?);
        let file = Manifest::path(path, number);
        let sync = || sync_name(files, &file).map_err(|e| Error::io("sync", path, e));
        sync()?;
        let is_last = number == self.last_number(&numbers)?;
        if !numbers.contains(&number) {
            let path = path.display();
            return Err(Error::invalid(format!(
                "there is no backup {number} in {path}; there are {numbers:?}"
            )));
        }
        let kept = Manifest::deleted_path(path, number);
        let removed = if is_last { files.rename(&file, &kept) } else { files.remove(&file) };
        removed.map_err(|e| Error::io("remove", &file, e))?;
        // Durably, before anything that it names is gone (invariant 1).
        sync()?;
        if is_last {
            // Its name alone is needed.
            let emptied = files.open(&kept, crate::os::OpenHow::Write);
            emptied.and_then(|file| file.set_len(0)).unwrap_or(());
        }
        self.give_back_unnamed();
        Ok(())
    }

    /// Gives back all that no manifest names, after a call that failed or deleted a backup. The
    /// outcome of that stands whether space is given back or not; the next call gives it back.
    fn give_back_unnamed(self) {
        let given = self.into_writing().and_then(|left| left.store.give_back_all());
        given.map(drop).unwrap_or(());
    }

    /// Checks manifests, and every extent once.
    pub(super) fn verify(&self) -> Result<VerifyReport> {
        let manifests = self.numbers()?.into_iter().map(|number| (number, self.manifest(number)));
        VerifyReport::of_backups(manifests, &self.store()?, &self.path, &self.options)
    }
}

impl Destination for Writing {
    fn store(&self) -> &Arc<ExtentStore> {
        &self.store
    }

    fn copy(&mut self, extent: &Extent) -> Result<Arc<ExtentMeta>> {
        let store = &self.store;
        let mut put = |lacking: ToCopy<'_>| {
            let _held = store.memory().jobs.hold(u64::from(lacking.location.len));
            store.write_new(&lacking.read()?)
        };
        self.known.copy(extent, &mut put)
    }

    fn keep(&mut self, dumped: &Arc<Extent>) -> Result<Arc<ExtentMeta>> {
        Ok(Arc::new(ExtentMeta::clone(dumped.meta())))
    }
}

impl Writing {
    /// The number of the next backup.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// Fails if its backups are of another database.
    pub(super) fn check_is_of(&self, database_id: [u8; 16]) -> Result<()> {
        match self.databases.iter().any(|other| *other != database_id) {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "the backups in {} are of another database; name another directory",
                self.set.path.display()
            ))),
        }
    }

    /// Makes what was written durable, and then the backup that names it.
    pub(super) fn add(&self, manifest: &Manifest) -> Result<()> {
        debug_assert!(
            self.last_number < manifest.number,
            "a backup has a greater number than those before it"
        );
        debug_assert!(
            self.databases.iter().all(|database| *database == manifest.database_id),
            "a set has backups of one database"
        );
        if !self.set.options.has(Failpoint::BackupBeforeSync) {
            self.store.sync()?;
        }
        manifest.write(&*self.set.files, self.store.directory())?;
        // The backup is there whether space is given back or not. The next call gives it back.
        self.store.give_back_all().map(drop).unwrap_or(());
        Ok(())
    }

    /// As [`Set::give_back_unnamed`], after a call that failed.
    pub(super) fn give_back_unnamed(self) {
        let Writing { set, store, .. } = self;
        // The files of the store must not stay open: a file that is removed keeps its space.
        drop(store);
        set.give_back_unnamed();
    }
}
