//! Steps 1 and 2: the fixed parts of the region, and the journal.

use std::sync::Arc;

use super::index_file::{self, FoundIndex, IndexFile};
use super::{Opening, media};
use crate::commit::Floor;
use crate::error::{Damage, Error, Mismatch, Result};
use crate::levels::{FoundEdits, JournalFloor, VersionSet};
use crate::options::{Failpoint, Index};
use crate::os::Unread;
use crate::pm::{Region, Span, Superblock};
use crate::ptree::forest::Forest;

/// The region, loaded as far as its fixed parts.
pub(crate) struct Loaded {
    pub(crate) region: Arc<Region>,
    pub(crate) superblock: Superblock,
    pub(crate) floor: Floor,
    pub(crate) damages: Vec<Damage>,
}

impl Opening<'_> {
    /// Step 1.
    pub(crate) fn load(&self) -> Result<Loaded> {
        self.load_with(None)
    }

    /// As [`Opening::load`], for a salvage: what cannot be read of the region, now or later, is no
    /// error but in [`Region::unread`], and so is what a file that was cut short lacks. Without a
    /// floor it is as if nothing had been decided.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the region is lost: without a superblock it is not known where zones lie.
    /// `Invalid` when a file that the options name is that of something else; or an I/O error.
    pub(crate) fn load_readable(&self) -> Result<Loaded> {
        self.load_with(Some(Vec::new()))
    }

    fn load_with(&self, mut unread: Option<Vec<Unread>>) -> Result<Loaded> {
        let path = media::path(self.path, self.options);
        let (media, len) = media::open(&self.files, &path, self.read_only, self.options)?;
        let head = media.head(&path, len.min(Superblock::span().len), unread.as_mut())?;
        let damage = |offset, expected: String, got: String| {
            Mismatch::new(expected, got).at("region", "pm", &path, offset)
        };
        if let Some(unread) = &unread
            && !Superblock::is_region(&head)
            && (!unread.is_empty() || self.options.pm_path.is_none())
        {
            let got = unread.first().map_or("none".into(), |unread| unread.error.clone());
            return Err(Error::corrupt(damage(0, "a superblock in one of two copies".into(), got)));
        }
        let (superblock, damaged) = Superblock::read(&head, &path)?;
        let expected = superblock.geometry.region_len();
        // Longer: it was about to grow when the power went.
        let short = (len < expected)
            .then(|| damage(len, format!("{expected} bytes"), format!("{len} bytes")));
        if let Some(short) = short.as_ref().filter(|_| unread.is_none() || !media.is_file()) {
            return Err(Error::corrupt(short.clone()));
        }
        let room = superblock.geometry.greatest_len();
        debug_assert!(expected <= room, "a region has room for what it can grow to");
        let mut region = Region::with_room(media, &path, expected, room)?;
        let reads_past = unread.is_some();
        if let Some(unread) = unread {
            region.set_unread(unread);
        }
        #[cfg(any(test, feature = "testing"))]
        region.set_failpoint(self.options.failpoint);
        region.load(Span { at: 0, len: superblock.geometry.zones_start() })?;
        let (floor, slot_damage) = match Floor::load(&region) {
            Err(error) if reads_past => (Floor::default(), error.damage().map(without_floor)),
            found => found?,
        };
        let damages = damaged.into_iter().chain(short).chain(slot_damage).collect();
        Ok(Loaded { region: Arc::new(region), superblock, floor, damages })
    }

    /// Step 2, short of the pair.
    pub(super) fn journal(&self, floor: &Floor) -> Result<VersionSet> {
        let mark = JournalFloor { epoch: floor.journal.epoch, number: floor.journal.edit };
        let found = match self.read_only {
            true => FoundEdits::Leave,
            false if self.options.has(Failpoint::KeepFoundEdits) => FoundEdits::Sync,
            false => FoundEdits::Rewrite,
        };
        let set = VersionSet::open(Arc::clone(&self.files), self.path, mark, found)?;
        #[cfg(any(test, feature = "testing"))]
        let set = set.with_failpoint(self.options.failpoint);
        set.know_operators(self.options.operators()?);
        if self.options.caches_blocks_twice() {
            set.store().cache_blocks_in_system();
        }
        if let Some(bytes) = self.options.direct_io_beyond() {
            set.store().use_direct_io_beyond(bytes);
        }
        if !self.options.stepped {
            set.store().go_behind();
        }
        Ok(set)
    }

    pub(crate) fn index_file<'a>(&'a self, records: &'a Arc<Region>) -> IndexFile<'a> {
        let path = index_file::path(self.path, self.options);
        IndexFile { files: &self.files, path, options: self.options, records }
    }

    /// What there is of a persistent index, where one is wanted.
    pub(super) fn find_index(
        &self,
        region: &Arc<Region>,
        superblock: &Superblock,
    ) -> Result<FoundIndex> {
        match self.wants_index() {
            true => self.index_file(region).find(superblock, self.threads()),
            false => Ok(FoundIndex::default()),
        }
    }

    fn wants_index(&self) -> bool {
        self.options.index == Index::Persistent && !self.read_only
    }

    /// The forest that this opening goes on with, where one is wanted; else its file is removed.
    pub(super) fn keep_index(
        &self,
        region: &Arc<Region>,
        found: Option<Forest>,
        superblock: &Superblock,
    ) -> Result<Option<Forest>> {
        let index = self.index_file(region);
        if self.wants_index() {
            return index.begin(found, superblock).map(Some);
        }
        if !self.read_only {
            index.remove(superblock)?;
        }
        Ok(None)
    }
}

/// What becomes of the records of a region whose floor is lost.
fn without_floor(damage: &Damage) -> Damage {
    let got = format!("{}; without a floor, tails and records say what was committed", damage.got);
    Damage { got, ..damage.clone() }
}

/// Fails when the region and the journal are not of one database.
pub(crate) fn check_pair(region: &Region, superblock: &Superblock, set: &VersionSet) -> Result<()> {
    if set.database_id() == superblock.database_id {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the region {} and the journal beside it belong to different databases; put back the files \
         that belong together",
        region.path().display()
    )))
}
