//! The bytes of one simulated file: what is read, what is durable, and what is between.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Fate;

pub(super) const SECTOR: u64 = 512;

/// A sector's bytes; `None` stands for zeros.
type Sector = Option<Arc<[u8; SECTOR as usize]>>;

/// Sectors that are not all zeros, and a length.
#[derive(Clone, Debug, Default)]
struct Image {
    len: u64,
    sectors: BTreeMap<u64, Arc<[u8; SECTOR as usize]>>,
}

impl Image {
    fn put(&mut self, index: u64, sector: Sector) {
        match sector {
            Some(bytes) => self.sectors.insert(index, bytes),
            None => self.sectors.remove(&index),
        };
    }

    /// Lets go of what lies beyond `len`, so that a later extension shows zeros.
    fn truncate(&mut self, len: u64) {
        self.len = len;
        self.sectors.split_off(&len.div_ceil(SECTOR));
        if let Some(last) = self.sectors.get_mut(&(len / SECTOR)) {
            Arc::make_mut(last)[(len % SECTOR) as usize..].fill(0);
        }
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
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.current.len
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let n = self.current.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for_each_sector(n, offset, |index, within, range| match self.current.sectors.get(&index) {
            Some(sector) => buffer[range].copy_from_slice(&sector[within]),
            None => buffer[range].fill(0),
        });
        n
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        for_each_sector(bytes.len(), offset, |index, within, range| {
            let sector =
                self.current.sectors.entry(index).or_insert_with(|| Arc::new([0; SECTOR as usize]));
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
            let cut: Vec<u64> = self.current.sectors.range(first_cut..).map(|(i, _)| *i).collect();
            self.current.truncate(len);
            for index in cut {
                let state = self.current.sectors.get(&index).cloned();
                self.pending.entry(index).or_default().push(state);
            }
        }
        self.current.len = len;
        self.lengths.push(len);
    }

    pub(super) fn sync(&mut self) {
        for (index, states) in std::mem::take(&mut self.pending) {
            if let Some(newest) = states.into_iter().next_back() {
                self.durable.put(index, newest);
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

    pub(super) fn after_crash(&self, fate: &mut Fate) -> Content {
        let mut image = self.durable.clone();
        for (index, states) in &self.pending {
            match fate.choose(states.len() + 1) {
                0 => {}
                n => image.put(*index, states[n - 1].clone()),
            }
        }
        let len = match fate.choose(self.lengths.len() + 1) {
            0 => self.durable.len,
            n => self.lengths[n - 1],
        };
        image.truncate(len);
        Content { current: image.clone(), durable: image, ..Content::default() }
    }

    /// A hash of what is read, of a file that goes by `name`.
    pub(super) fn digest(&self, name: u64) -> u128 {
        let start = super::explore::hash(name, &self.current.len.to_le_bytes());
        self.current.sectors.iter().fold(start, |sum, (index, sector)| {
            let at = name.wrapping_add(index.wrapping_mul(SECTOR));
            sum.wrapping_add(super::explore::hash(at, &sector[..]))
        })
    }

    pub(super) fn corrupt(&mut self, offset: u64, xor: u8) {
        for image in [&mut self.current, &mut self.durable] {
            if offset < image.len {
                let sector = image
                    .sectors
                    .entry(offset / SECTOR)
                    .or_insert_with(|| Arc::new([0; SECTOR as usize]));
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
