//! How a tree's region is made and opened.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::bytes::BytesTree;
use super::fixed::OdsTree;
use super::format::{ENTRIES, Shape};
use super::heap::Heap;
use super::keys::{Fixed, Keys};
use super::refs::Refs;
use super::tree::Tree;
use crate::alloc::Segments;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Mode;
use crate::os::{Access, FileLock, Files, RealFiles, sync_name};
use crate::pm::{Media, Region};

/// Bytes in a segment.
const SEGMENT: u64 = 64 * 1024;

/// The kind of trees with keys of eight bytes.
pub(super) const FIXED: u32 = 1;

/// The kind of trees of byte strings.
pub(super) const BYTES: u32 = 2;

/// How a node makes room for a key. The format is the same, so a tree can be opened with another
/// policy than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Shifts to the nearest hole on either side, by lines; holes are spread by splits, which
    /// leave the moved keys where they were. The default: it flushes the fewest lines.
    #[default]
    Nearest,
    /// As the source describes it: shifts to the nearest hole on the right, moves a sparse node
    /// together, packs what a split moves and clears where it was.
    OneDirection,
}

/// How to make or open a tree.
///
/// # Examples
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("index");
/// use terrace::ptree;
///
/// let tree = ptree::Options::new().size(1 << 20).create(&path)?;
/// assert_eq!(tree.insert(7, 70)?, None);
/// drop(tree);
/// let tree = ptree::Options::new().open(&path)?;
/// assert_eq!(tree.get(7)?, Some(70));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    mode: Mode,
    size: u64,
    policy: Policy,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The smallest region, in bytes (256 KiB).
    pub const MIN_SIZE: u64 = 256 * 1024;

    /// The largest region, in bytes (64 GiB).
    pub const MAX_SIZE: u64 = 64 << 30;

    /// A region of 64 MiB in [`Mode::File`].
    pub fn new() -> Options {
        Options { mode: Mode::File, size: 64 << 20, policy: Policy::default() }
    }

    /// How the region is kept; [`Mode::File`] by default. In that mode every operation that
    /// changes something waits for a sync of its own, and writers take turns.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Options {
        self.mode = mode;
        self
    }

    /// The size of the region in bytes, from [`Options::MIN_SIZE`] to [`Options::MAX_SIZE`]; 64
    /// MiB by default, about two million keys of eight bytes. It counts only when a tree is
    /// created, and does not grow.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Options {
        self.size = bytes;
        self
    }

    /// How nodes make room.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Options {
        self.policy = policy;
        self
    }

    /// Makes an empty tree in a new file.
    ///
    /// # Errors
    ///
    /// `Invalid` for a size out of bounds or a path where something is; `Unavailable` for
    /// [`Mode::Dax`] on a file system that is none; `Full`, or another I/O error.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<OdsTree> {
        let (tree, lock) = self.make(path.as_ref(), FIXED, |_, _| Fixed)?;
        Ok(OdsTree::new(tree, Some(lock)))
    }

    /// Opens a tree.
    ///
    /// # Errors
    ///
    /// `Invalid` when the file holds no tree of this kind, `Unavailable` when another process has
    /// it open, `Corrupt` when its fixed part is damaged; otherwise an I/O error.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<OdsTree> {
        let (tree, lock) = self.find(path.as_ref(), FIXED, |_, _| Fixed)?;
        Ok(OdsTree::new(tree, Some(lock)))
    }

    /// Makes an empty tree of byte strings in a new file.
    ///
    /// # Errors
    ///
    /// As [`Options::create`].
    pub fn create_bytes(&self, path: impl AsRef<Path>) -> Result<BytesTree> {
        let (tree, lock) = self.make(path.as_ref(), BYTES, entries)?;
        Ok(BytesTree::new(tree, Some(lock)))
    }

    /// Opens a tree of byte strings.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open_bytes(&self, path: impl AsRef<Path>) -> Result<BytesTree> {
        let (tree, lock) = self.find(path.as_ref(), BYTES, entries)?;
        Ok(BytesTree::new(tree, Some(lock)))
    }

    fn make<K: Keys>(
        &self,
        path: &Path,
        kind: u32,
        keys: impl FnOnce(&Arc<Region>, &Arc<dyn Segments>) -> K,
    ) -> Result<(Tree<K>, FileLock)> {
        if !(Options::MIN_SIZE..=Options::MAX_SIZE).contains(&self.size) {
            return Err(Error::invalid(format!(
                "a tree of {} bytes is out of bounds: size takes {} to {}",
                self.size,
                Options::MIN_SIZE,
                Options::MAX_SIZE
            )));
        }
        if path.exists() {
            return Err(Error::invalid(format!(
                "{} exists: open it, or create the tree at another path",
                path.display()
            )));
        }
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let shape = Shape::for_size(kind, self.size, SEGMENT);
        let media = Media::create(&files, path, shape.region_len(), self.mode)?;
        let lock = lock(path)?;
        let region = Arc::new(Region::new(media, path, shape.region_len())?);
        let keys = |segments: &Arc<dyn Segments>| keys(&region, segments);
        let tree = Tree::format(&region, shape, keys, self.policy)?;
        sync_name(&*files, path).map_err(|e| Error::io("sync the name of", path, e))?;
        Ok((tree, lock))
    }

    fn find<K: Keys>(
        &self,
        path: &Path,
        kind: u32,
        keys: impl FnOnce(&Arc<Region>, &Arc<dyn Segments>) -> K,
    ) -> Result<(Tree<K>, FileLock)> {
        if !path.is_file() {
            return Err(Error::invalid(format!(
                "{} is no file: create the tree first",
                path.display()
            )));
        }
        let lock = lock(path)?;
        let files: Arc<dyn Files> = Arc::new(RealFiles::default());
        let (media, len) = Media::open(&files, path, false, self.mode)?;
        if len == 0 {
            return Err(Error::invalid(format!("{} is empty: it is no tree", path.display())));
        }
        let region = Arc::new(Region::new(media, path, len)?);
        let keys = |segments: &Arc<dyn Segments>| keys(&region, segments);
        Ok((Tree::open(&region, kind, keys, self.policy)?, lock))
    }
}

/// The keys of a tree of byte strings.
pub(super) fn entries(region: &Arc<Region>, segments: &Arc<dyn Segments>) -> Refs<Heap> {
    let heap = Heap::open(region, segments, ENTRIES);
    Refs { records: heap.clone(), heap }
}

/// One process at a time.
fn lock(path: &Path) -> Result<FileLock> {
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    let taken = FileLock::take(file, Access::Exclusive).map_err(|e| Error::io("lock", path, e))?;
    taken.ok_or_else(|| {
        Error::new(
            ErrorKind::Unavailable,
            format!("the tree {} is open elsewhere; close it there", path.display()),
        )
    })
}
