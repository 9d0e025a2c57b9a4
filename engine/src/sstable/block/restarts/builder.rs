//! Lays out a body with restarts.

use crate::base::record::{EntryRef, put_u32};
use crate::sstable::varint::put_varint;

/// Entries from one restart to the next.
const RESTART_INTERVAL: usize = 16;

/// Collects the entries of one block.
#[derive(Debug, Default)]
pub(in crate::sstable::block) struct RestartBuilder {
    body: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl RestartBuilder {
    /// Appends an entry, which sorts after all earlier ones.
    pub(in crate::sstable::block) fn add(&mut self, entry: &EntryRef<'_>) {
        let shared = if self.entries.is_multiple_of(RESTART_INTERVAL) {
            self.restarts.push(self.body.len() as u32);
            0
        } else {
            self.last_key.iter().zip(entry.key).take_while(|(a, b)| a == b).count()
        };
        let unshared = &entry.key[shared..];
        put_varint(&mut self.body, shared as u64);
        put_varint(&mut self.body, unshared.len() as u64);
        put_varint(&mut self.body, entry.value.len() as u64);
        self.body.push(entry.kind as u8);
        put_varint(&mut self.body, entry.seq);
        self.body.extend_from_slice(unshared);
        self.body.extend_from_slice(entry.value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(unshared);
        self.entries += 1;
    }

    pub(in crate::sstable::block) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes that [`finish`](Self::finish) appends.
    pub(in crate::sstable::block) fn size(&self) -> usize {
        self.body.len() + 4 * self.restarts.len() + 4
    }

    /// Appends the body to `out`, and starts over.
    pub(in crate::sstable::block) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.body);
        for restart in &self.restarts {
            put_u32(out, *restart);
        }
        put_u32(out, self.restarts.len() as u32);
        self.restarts.clear();
        self.last_key.clear();
        self.entries = 0;
    }
}
