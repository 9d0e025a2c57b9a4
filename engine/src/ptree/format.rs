//! The fixed part of a tree's region (`docs/format.md`, section 4).

use std::path::Path;
use std::sync::Arc;

use super::Policy;
use super::keys::Keys;
use super::node::NODE;
use super::nodes::Nodes;
use super::root::Root;
use super::tree::Tree;
use crate::alloc::{ObjectPool, Segments, Slices};
use crate::error::{Damage, Error, Result};
use crate::pm::{Dirty, LINE, PAGE, Region, Span};
use crate::record::{Reader, checksum, put_u32, put_u64};

pub(super) const MAGIC: &[u8; 8] = b"TERRTREE";
const VERSION: u32 = 1;

/// Offset of the word with the root.
const ROOT: u64 = LINE;
/// Offset of the word that counts the openings.
pub(super) const EPOCH: u64 = 2 * LINE;

/// Bytes of the words above, and of those that owners have behind them.
const FIXED_PART: u64 = 6 * LINE;

/// The pool of nodes among a tree's pools.
pub(super) const NODES: u32 = 1;

/// The first of the pools of entries, one for each size.
pub(crate) const ENTRIES: u32 = 2;

/// What a tree's region was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// 1: keys of eight bytes; 2: entries of byte strings.
    pub(crate) kind: u32,
    /// Bytes in a segment.
    pub(crate) segment: u64,
    pub(crate) segments: u64,
}

impl Shape {
    /// The shape of a region of at most `size` bytes.
    pub(crate) fn for_size(kind: u32, size: u64, segment: u64) -> Shape {
        Shape { kind, segment, segments: size.saturating_sub(PAGE) / segment }
    }

    pub(crate) fn region_len(self) -> u64 {
        PAGE + self.segments * self.segment
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LINE as usize);
        put_u32(&mut body, self.kind);
        put_u32(&mut body, NODE as u32);
        put_u64(&mut body, self.segment);
        put_u64(&mut body, self.segments);
        body.resize(LINE as usize - 16, 0);
        let mut line = Vec::with_capacity(LINE as usize);
        line.extend_from_slice(MAGIC);
        put_u32(&mut line, VERSION);
        put_u32(&mut line, checksum(&[u64::from(VERSION)], &body));
        line.extend_from_slice(&body);
        line
    }

    pub(crate) fn decode(line: &[u8], path: &Path) -> Result<Shape> {
        let wrong = |expected: String, got: String| {
            let file = path.to_path_buf();
            let what = "superblock of a tree".to_string();
            Error::corrupt(Damage { tier: "pm", file, offset: 0, what, expected, got })
        };
        let mut r = Reader::new(line);
        if r.take(8) != Some(&MAGIC[..]) {
            return Err(Error::invalid(format!(
                "{} is no Terrace tree (its creation may have been cut short): create one there",
                path.display()
            )));
        }
        let fields = (|| Some((r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u64()?, r.u64()?)))();
        let Some((version, sum, kind, node, segment, segments)) = fields else {
            return Err(wrong("64 bytes".into(), format!("{} bytes", line.len())));
        };
        let computed = checksum(&[u64::from(version)], &line[16..]);
        if sum != computed {
            return Err(wrong(format!("checksum {sum:08x}"), format!("{computed:08x}")));
        }
        if version != VERSION || u64::from(node) != NODE {
            return Err(Error::invalid(format!(
                "{} has format {version} of a tree with nodes of {node} bytes; this version of \
                 Terrace reads format {VERSION} with {NODE}: use the one that made it",
                path.display()
            )));
        }
        Ok(Shape { kind, segment, segments })
    }
}

/// The fixed part as it was found, to be made durable: a process that was killed may have left its
/// last store there in the caches alone. (In `file` mode that syncs all that was found.)
pub(super) fn fixed_part(region: &Region) -> Dirty {
    region.rewrite(Span { at: 0, len: FIXED_PART })
}

impl<K: Keys> Tree<K> {
    /// Makes an empty tree in a region of zeros.
    ///
    /// # Errors
    ///
    /// As [`Region::persist`].
    pub(crate) fn format(
        region: &Arc<Region>,
        shape: Shape,
        keys: impl FnOnce(&Arc<dyn Segments>) -> K,
        policy: Policy,
    ) -> Result<Tree<K>> {
        let tree = Tree::of(region, shape, keys, 1, policy)?;
        let root = tree.nodes.pool.get()?;
        {
            let mut writer = tree.nodes.writer();
            tree.nodes.write(&mut writer, root, (0, 0, 0), &[])?;
            writer.persist()?;
        }
        region.persist([
            region.store_word(ROOT, Root::encode(root, 0)),
            region.store_word(EPOCH, 1),
        ])?;
        // Last: it is a tree from here on.
        region.persist([region.write(0, &shape.encode())])?;
        Ok(tree)
    }

    /// Opens the tree in a region. Takes no longer for a larger one: nothing is read but the
    /// fixed part and the header of each segment (in `file` mode, the segments).
    ///
    /// # Errors
    ///
    /// `Invalid` when there is no tree of this kind, `Corrupt` when its fixed part is damaged.
    pub(crate) fn open(
        region: &Arc<Region>,
        kind: u32,
        keys: impl FnOnce(&Arc<dyn Segments>) -> K,
        policy: Policy,
    ) -> Result<Tree<K>> {
        if region.len() < PAGE {
            return Err(Error::invalid(format!(
                "{} has {} bytes: it is no Terrace tree",
                region.path().display(),
                region.len()
            )));
        }
        region.load(Span { at: 0, len: PAGE })?;
        let shape = Shape::decode(region.bytes(0, LINE), region.path())?;
        if shape.kind != kind {
            return Err(Error::invalid(format!(
                "{} holds a tree of kind {}, not {kind}: open it as what it was created as",
                region.path().display(),
                shape.kind
            )));
        }
        let damaged = |offset, what: &str, expected: String, got: u64| {
            let (file, what) = (region.path().to_path_buf(), what.to_string());
            let got = got.to_string();
            Error::corrupt(Damage { tier: "pm", file, offset, what, expected, got })
        };
        if shape.region_len() > region.len() {
            let expected = format!("{} bytes", shape.region_len());
            return Err(damaged(0, "length of a tree's region", expected, region.len()));
        }
        let epoch = region.word(EPOCH);
        let next = u32::try_from(epoch + 1);
        let next =
            next.map_err(|_| damaged(EPOCH, "count of openings", "32 bits".into(), epoch))?;
        // Before any bitmap is stamped with it.
        region.persist([region.store_word(EPOCH, u64::from(next)), fixed_part(region)])?;
        let tree = Tree::of(region, shape, keys, next, policy)?;
        let (root, _) = tree.root.get(region);
        let inside = (PAGE..region.len()).contains(&root) && tree.nodes.pool.check(root)?;
        if !inside {
            return Err(damaged(ROOT, "root of a tree", "a taken node".into(), root));
        }
        Ok(tree)
    }

    fn of(
        region: &Arc<Region>,
        shape: Shape,
        keys: impl FnOnce(&Arc<dyn Segments>) -> K,
        epoch: u32,
        policy: Policy,
    ) -> Result<Tree<K>> {
        let slices = Slices::open(region, PAGE, shape.segment, shape.segments)?;
        let segments: Arc<dyn Segments> = Arc::new(slices);
        let keys = keys(&segments);
        let pool = ObjectPool::open(region, &segments, NODES, NODE as u32);
        let nodes = Nodes::new(region, pool, keys, epoch, policy, shape.region_len());
        Ok(Tree::new(Arc::new(nodes), Root::new(ROOT)))
    }
}
