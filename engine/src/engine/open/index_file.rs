//! The file with the persistent index of level 0, beside the region. The records are the truth: a
//! forest that is not there, is damaged, or missed an opening is made anew, and what it would have
//! known is found as without one.
//!
//! In the database's own directory the name is the database's own. Beside a region that lies
//! elsewhere (`pm_path`) any file may have that name, so only a file with this database's id is
//! opened, replaced or removed there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::media;
use crate::base::error::{Damage, Error, ErrorKind, Mismatch, Result};
use crate::base::options::{Options, Storage};
use crate::base::progress::Meter;
use crate::os::{Files, OpenHow, cores};
use crate::pindex::forest::Forest;
#[cfg(any(test, feature = "testing"))]
use crate::pm::Span;
use crate::pm::{Media, PAGE, Region, Superblock};

/// The file's name in a database's directory.
pub(super) const INDEX: &str = "index";

/// Where the index of the database in `directory` is.
pub(super) fn path(directory: &Path, options: &Options) -> PathBuf {
    options.pm_path.as_deref().map_or_else(|| directory.join(INDEX), beside)
}

/// Where the index is of a region that lies elsewhere.
fn beside(region: &Path) -> PathBuf {
    let mut path = region.as_os_str().to_os_string();
    path.push(".index");
    path.into()
}

/// Removes the index beside a region that lies elsewhere, if it is of the database `id`.
pub(super) fn remove_beside(files: &dyn Files, region: &Path, id: [u8; 16]) -> Result<()> {
    let path = beside(region);
    match head(files, &path) {
        Ok(head) if !Superblock::is_region(&head) && Forest::is_of(&head, id) => {
            files.remove(&path).map_err(|e| Error::io("remove", &path, e))
        }
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("look at", &path, e)),
    }
}

/// The first page of a file, or as much as there is.
fn head(files: &dyn Files, path: &Path) -> io::Result<Vec<u8>> {
    let file = files.open(path, OpenHow::Read)?;
    let len = file.len()?.min(PAGE);
    file.read_vec(0, usize::try_from(len).unwrap_or(0))
}

/// The file, and what it belongs to.
pub(crate) struct IndexFile<'a> {
    pub(super) files: &'a Arc<dyn Files>,
    pub(super) path: PathBuf,
    pub(super) options: &'a Options,
    /// Where the records are.
    pub(super) records: &'a Arc<Region>,
}

/// What has the index's name.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// This database's index, perhaps damaged or half made.
    Own,
    /// Something else, in words.
    Other(&'static str),
}

/// What an opening finds.
#[derive(Debug, Default)]
pub(super) struct FoundIndex {
    /// One that it can go on with.
    pub(super) forest: Option<Forest>,
    /// What is wrong with one that it cannot go on with.
    pub(super) damage: Option<Damage>,
}

impl IndexFile<'_> {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The forest, if the last opening used it; `superblock` is as that left it. One that is
    /// damaged is none: all that it knew is in the records. `meter` counts what is read of it.
    ///
    /// # Errors
    ///
    /// `Exists` when another file has the name; `Cancelled`, and it is as it was; or an I/O error.
    pub(super) fn find(
        &self,
        superblock: &Superblock,
        reads: (usize, &Meter),
    ) -> Result<FoundIndex> {
        if let Found::Other(what) = self.look(superblock)? {
            return Err(self.in_the_way(what));
        }
        let Some((media, len)) = self.media(superblock, false)? else {
            return Ok(FoundIndex::default());
        };
        if len < PAGE {
            return Ok(FoundIndex { forest: None, damage: self.too_short(len) });
        }
        let region = self.region(media, len, superblock)?;
        let owner = (superblock.database_id, superblock.incarnations.current);
        match Forest::open(&region, self.records, owner, reads) {
            Ok(forest) => Ok(FoundIndex { forest, damage: None }),
            Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => {
                Ok(FoundIndex { forest: None, damage: e.damage().cloned() })
            }
            Err(error) => Err(error),
        }
    }

    /// What is damaged of the index of a closed database, after how many structures were looked at;
    /// `superblock` is as the last opening left it.
    pub(crate) fn verify(
        &self,
        superblock: &Superblock,
        meter: &Meter,
    ) -> Result<(u64, Vec<Damage>)> {
        if matches!(self.look(superblock)?, Found::Other(_)) {
            return Ok((0, Vec::new()));
        }
        let Some((media, len)) = self.media(superblock, true)? else { return Ok((0, Vec::new())) };
        if len < PAGE {
            return Ok((1, self.too_short(len).into_iter().collect()));
        }
        Forest::verify(&*self.region(media, len, superblock)?, (cores(), meter))
    }

    /// A creation that was cut short leaves no byte, or all.
    fn too_short(&self, len: u64) -> Option<Damage> {
        (len > 0).then(|| {
            let found = Mismatch::new(format!("at least {PAGE} bytes"), format!("{len} bytes"));
            found.at("length of the persistent index", "pm", &self.path, len)
        })
    }

    /// Makes a forest without trees, in place of what may be there.
    ///
    /// # Errors
    ///
    /// `Full`, or another I/O error.
    fn make(&self, superblock: &Superblock) -> Result<Forest> {
        let room = self.room(superblock);
        let (len, _) = Forest::region_lens(room);
        let (media, len) = match &self.options.storage {
            Storage::Real => {
                self.clear(superblock)?;
                let name = media::name_of_index(&self.path)?;
                (media::create_file(self.files, &self.path, len, &name, self.options)?, len)
            }
            #[cfg(any(test, feature = "testing"))]
            Storage::Simulated(machine) => {
                let Some(pm) = machine.memory().and_then(|pm| pm.get()) else {
                    unreachable!("the options were checked")
                };
                let bytes = superblock.geometry.greatest_len();
                let len = pm.len().saturating_sub(bytes).max(len);
                pm.grow(bytes + len);
                (Media::Simulated(Arc::clone(pm)), len)
            }
        };
        let region = self.region(media, len, superblock);
        // No later opening would know whose it is.
        let region = region.inspect_err(|_| self.files.remove(&self.path).unwrap_or(()))?;
        #[cfg(any(test, feature = "testing"))]
        if matches!(self.options.storage, Storage::Simulated(_)) {
            // Where a file is made anew, memory is wiped, as far as it was used. A file is gone at
            // once, so this is no index any more before the rest of it is wiped.
            region.load(Span { at: 0, len })?;
            Forest::disown(&region)?;
            if region.bytes(0, len).iter().any(|byte| *byte != 0) {
                region.persist([region.write(0, &vec![0; len as usize])])?;
            }
        }
        Forest::format(&region, (self.records, room), superblock.database_id)
    }

    /// The forest that was found, or a new one, for this opening; or why there is no room for a new
    /// one. `superblock` is as it is on the media, with this opening in it.
    pub(super) fn begin(
        &self,
        found: Option<Forest>,
        superblock: &Superblock,
    ) -> Result<std::result::Result<Forest, Error>> {
        let forest = match found.map_or_else(|| self.make(superblock), Ok) {
            Err(error) if error.may_pass() => return Ok(Err(error)),
            forest => forest?,
        };
        debug_assert!(forest.merged() <= superblock.lsn_base, "an index knows of no later commit");
        forest.begin(superblock.incarnations.current)?;
        Ok(Ok(forest))
    }

    /// Removes the file, if it is this database's: this opening does not keep it up to date.
    pub(super) fn remove(&self, superblock: &Superblock) -> Result<()> {
        match self.look(superblock)? {
            Found::Own => self.clear(superblock),
            Found::Nothing | Found::Other(_) => Ok(()),
        }
    }

    /// Has nothing be at the path.
    fn clear(&self, superblock: &Superblock) -> Result<()> {
        let removed = match (self.look(superblock)?, &self.options.pm_path) {
            (Found::Other(what), _) => return Err(self.in_the_way(what)),
            // A link may be left whose file has gone with the machine's memory.
            (_, None) => media::remove(&**self.files, &self.path),
            (Found::Own, Some(_)) => self.files.remove(&self.path),
            (Found::Nothing, Some(_)) => Ok(()),
        };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", &self.path, e))
            }
            _ => Ok(()),
        }
    }

    /// Says what has the index's name. Changes nothing.
    fn look(&self, superblock: &Superblock) -> Result<Found> {
        if !matches!(self.options.storage, Storage::Real) {
            return Ok(Found::Nothing);
        }
        let lies_elsewhere = self.options.pm_path.is_some();
        let head = match head(&**self.files, &self.path) {
            Ok(head) => head,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && lies_elsewhere => {
                return Ok(Found::Other("a file that this user may not read"));
            }
            Err(e) => return Err(Error::io("look at", &self.path, e)),
        };
        Ok(if Superblock::is_region(&head) {
            Found::Other("the region of a database")
        } else if !lies_elsewhere || Forest::is_of(&head, superblock.database_id) {
            Found::Own
        } else {
            Found::Other("a file without the id of this database")
        })
    }

    fn in_the_way(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::Exists,
            format!(
                "the persistent index lies at {}, and there is {what}, which is left alone: name \
             another pm_path, or move that file; if an opening was cut short while it made the \
             index, remove it",
                self.path.display()
            ),
        )
    }

    /// The media and its length, if there is one.
    fn media(&self, superblock: &Superblock, read_only: bool) -> Result<Option<(Media, u64)>> {
        match &self.options.storage {
            Storage::Real if self.look(superblock)? == Found::Nothing => Ok(None),
            Storage::Real => {
                Media::open(self.files, &self.path, read_only, self.options.mode).map(Some)
            }
            #[cfg(any(test, feature = "testing"))]
            Storage::Simulated(machine) => {
                let pm = machine.memory().and_then(|pm| pm.get());
                let base = superblock.geometry.greatest_len();
                Ok(pm.map(|pm| (Media::Simulated(Arc::clone(pm)), pm.len().saturating_sub(base))))
            }
        }
    }

    /// Bytes of records that it has room for.
    fn room(&self, superblock: &Superblock) -> u64 {
        #[cfg(any(test, feature = "testing"))]
        if let Some(bytes) = self.options.index_room {
            return bytes;
        }
        superblock.geometry.greatest_len()
    }

    fn region(&self, media: Media, len: u64, superblock: &Superblock) -> Result<Arc<Region>> {
        let (_, room) = Forest::region_lens(self.room(superblock));
        let region = Region::with_room(media, &self.path, len, room.max(len))?;
        #[cfg(any(test, feature = "testing"))]
        let region = {
            let mut region = region;
            region.set_failpoint(self.options.failpoint);
            match self.options.storage {
                Storage::Real => region,
                Storage::Simulated(_) => region.based_at(superblock.geometry.greatest_len()),
            }
        };
        Ok(Arc::new(region))
    }
}
