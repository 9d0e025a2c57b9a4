//! The bytes of one simulated file: what is read, what is durable, and what is between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::Fate;
use super::explore::hash;

pub(super) const SECTOR: u64 = 512;

/// What space is given back in.
const BLOCK: u64 = 4096;

/// A sector's bytes; `None` stands for zeros.
type Sector = Option<Arc<[u8; SECTOR as usize]>>;

/// How many sectors are in a group.
const GROUP: usize = 64;

/// Neighbouring sectors, which copies of a file share until one of them writes.
#[derive(Clone, Debug)]
struct Group {
    sectors: [Sector; GROUP],
    /// The digest of the bytes, once a caller has asked for it.
    digest: OnceLock<u128>,
}

impl Default for Group {
    fn default() -> Group {
        Group { sectors: [const { None }; GROUP], digest: OnceLock::new() }
    }
}

/// Sectors that are not all zeros, and a length.
#[derive(Clone, Debug, Default)]
struct Image {
    len: u64,
    groups: BTreeMap<u64, Arc<Group>>,
}

/// Where a sector is: its group, and its place there.
fn place(index: u64) -> (u64, usize) {
    (index / GROUP as u64, (index % GROUP as u64) as usize)
}

impl Image {
    fn sector(&self, index: u64) -> Option<&Arc<[u8; SECTOR as usize]>> {
        let (group, at) = place(index);
        self.groups.get(&group)?.sectors[at].as_ref()
    }

    fn sector_mut(&mut self, index: u64) -> &mut Sector {
        let (group, at) = place(index);
        let group = Arc::make_mut(self.groups.entry(group).or_default());
        group.digest.take();
        &mut group.sectors[at]
    }

    fn bytes_mut(&mut self, index: u64) -> &mut Arc<[u8; SECTOR as usize]> {
        self.sector_mut(index).get_or_insert_with(|| Arc::new([0; SECTOR as usize]))
    }

    /// The sectors that are there from one on.
    fn sectors_from(&self, first: u64) -> Vec<u64> {
        let groups = self.groups.range(place(first).0..);
        let all = groups.flat_map(|(n, group)| {
            let there = (0..GROUP).filter(move |at| group.sectors[*at].is_some());
            there.map(move |at| n * GROUP as u64 + at as u64)
        });
        all.filter(|index| *index >= first).collect()
    }

    /// Lets go of what lies beyond `len`, so that a later extension shows zeros.
    fn truncate(&mut self, len: u64) {
        self.len = len;
        for index in self.sectors_from(len.div_ceil(SECTOR)) {
            *self.sector_mut(index) = None;
        }
        let behind = (len % SECTOR) as usize..;
        let is_clean = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        if self.sector(len / SECTOR).is_some_and(|sector| !is_clean(&sector[behind.clone()])) {
            Arc::make_mut(self.bytes_mut(len / SECTOR))[behind].fill(0);
        }
    }

    fn digest(&self) -> u128 {
        let of_group = |(n, group): (&u64, &Arc<Group>)| {
            *group.digest.get_or_init(|| {
                let sectors = group.sectors.iter().enumerate();
                let of_sector = |(at, sector): (usize, &Sector)| {
                    let index = n * GROUP as u64 + at as u64;
                    sector.as_ref().map_or(0, |bytes| hash(index.wrapping_mul(SECTOR), &bytes[..]))
                };
                sectors.map(of_sector).fold(0, u128::wrapping_add)
            })
        };
        self.groups.iter().map(of_group).fold(0, u128::wrapping_add)
    }
}

/// Invariants:
///
/// 1. `pending` holds, oldest first, every state that a sector took since the last sync; its
///    last is the state in `current`. So does `lengths` for the length.
/// 2. A sector or length that is not pending may still differ between `current` and `durable`:
///    a failed sync dropped it.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    current: Image,
    durable: Image,
    pending: BTreeMap<u64, Vec<Sector>>,
    lengths: Vec<u64>,
    /// Blocks without space.
    holes: BTreeSet<u64>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.current.len
    }

    /// The space that it takes.
    pub(super) fn taken(&self) -> u64 {
        self.len() - self.holes.len() as u64 * BLOCK
    }

    /// What of a range, and up to it, has no space.
    pub(super) fn lacking(&self, from: u64, to: u64) -> u64 {
        let holes = self.holes.range(from / BLOCK..to.div_ceil(BLOCK)).count() as u64;
        holes * BLOCK + to.saturating_sub(self.len())
    }

    /// Gives space to a range.
    pub(super) fn fill_holes(&mut self, from: u64, to: u64) {
        let range = from / BLOCK..to.div_ceil(BLOCK);
        self.holes.retain(|block| !range.contains(block));
    }

    /// Takes the space of the whole blocks of a range.
    pub(super) fn punch(&mut self, from: u64, to: u64) {
        let (from, to) = (from.next_multiple_of(BLOCK), to.min(self.len()) / BLOCK * BLOCK);
        for index in self.current.sectors_from(from / SECTOR) {
            if index < to / SECTOR {
                *self.current.sector_mut(index) = None;
                self.pending.entry(index).or_default().push(None);
            }
        }
        self.holes.extend(from / BLOCK..to / BLOCK);
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let n = self.current.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for_each_sector(n, offset, |index, within, range| match self.current.sector(index) {
            Some(sector) => buffer[range].copy_from_slice(&sector[within]),
            None => buffer[range].fill(0),
        });
        n
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        self.fill_holes(offset, end);
        for_each_sector(bytes.len(), offset, |index, within, range| {
            let sector = self.current.bytes_mut(index);
            Arc::make_mut(sector)[within].copy_from_slice(&bytes[range]);
            self.pending.entry(index).or_default().push(Some(Arc::clone(sector)));
        });
        if end > self.current.len {
            self.current.len = end;
            self.lengths.push(end);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len == self.current.len {
            return;
        }
        if len < self.current.len {
            let first_cut = len / SECTOR;
            let cut = self.current.sectors_from(first_cut);
            self.current.truncate(len);
            self.holes.split_off(&(len / BLOCK));
            for index in cut {
                let state = self.current.sector(index).cloned();
                self.pending.entry(index).or_default().push(state);
            }
        }
        self.current.len = len;
        self.lengths.push(len);
    }

    pub(super) fn sync(&mut self) {
        for (index, states) in std::mem::take(&mut self.pending) {
            if let Some(newest) = states.into_iter().next_back() {
                *self.durable.sector_mut(index) = newest;
            }
        }
        if let Some(len) = self.lengths.pop() {
            self.durable.truncate(len);
        }
        self.lengths.clear();
    }

    /// What a failed sync leaves: the sectors count as written and are not. The length lives in
    /// the file system's own journal and stays pending.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// What a sync leaves that fails half-way: some sectors are durable, the others are dropped.
    pub(super) fn sync_some(&mut self, fate: &mut Fate) {
        self.pending.retain(|_, _| fate.choose(2) == 1);
        let lengths = std::mem::take(&mut self.lengths);
        self.sync();
        self.lengths = lengths;
    }

    pub(super) fn after_crash(&self, fate: &mut Fate) -> Content {
        let mut image = self.durable.clone();
        for (index, states) in &self.pending {
            match fate.choose(states.len() + 1) {
                0 => {}
                n => *image.sector_mut(*index) = states[n - 1].clone(),
            }
        }
        let len = match fate.choose(self.lengths.len() + 1) {
            0 => self.durable.len,
            n => self.lengths[n - 1],
        };
        image.truncate(len);
        Content { current: image.clone(), durable: image, ..Content::default() }
    }

    /// A hash of what is read, of a file that goes by `name`: of an empty one too, which is not the
    /// same as none.
    pub(super) fn digest(&self, name: u64) -> u128 {
        let digest = self.current.digest();
        let parts = [u128::from(self.current.len) + 1, digest].map(u128::to_le_bytes);
        hash(name, parts.as_flattened())
    }

    pub(super) fn corrupt(&mut self, offset: u64, xor: u8) {
        for image in [&mut self.current, &mut self.durable] {
            if offset < image.len {
                let sector = image.bytes_mut(offset / SECTOR);
                Arc::make_mut(sector)[(offset % SECTOR) as usize] ^= xor;
            }
        }
    }
}

/// Cuts `n` bytes at `offset` of a file into sectors: calls `f` with the sector's index, the range
/// in the sector and the range in the bytes.
fn for_each_sector(
    n: usize,
    offset: u64,
    mut f: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < n {
        let at = offset + done as u64;
        let start = (at % SECTOR) as usize;
        let len = (SECTOR as usize - start).min(n - done);
        f(at / SECTOR, start..start + len, done..done + len);
        done += len;
    }
}
