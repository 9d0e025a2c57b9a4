//! The ends of objects, kept in a local file that survives restarts. An end has the filter and the
//! index of an extent, so a point read of an extent that is not open takes one request.
//!
//! The file is a ring: an entry is written behind the last one, over the oldest, from the start of
//! the file again when the end is reached. It is a cache: nothing of it is synced, and what does
//! not check out is not there. An end is kept as it came from the store. Where anything in it is
//! wrong, the reader forgets it and asks the store again.
//!
//! Entry, at a multiple of 4096:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TERRTAIL` |
//! | 8 | 4 | checksum of bytes 12…47 |
//! | 12 | 4 | epoch |
//! | 16 | 8 | extent id |
//! | 24 | 8 | number of the entry: it rises with each one |
//! | 32 | 4 | offset in the object |
//! | 36 | 4 | length |
//! | 40 | 4 | checksum of the bytes, seeded with epoch, extent id and offset |
//! | 44 | 4 | zero |
//! | 48 | | the bytes |
//!
//! Thread safety: every method may be called from any thread. The lock is held for an instant,
//! never over a read or a write of the file. A write takes its place under the lock first. A read
//! finds its place under the lock, and checks what it reads.
//!
//! Invariant: entries of the map, and places that are being written, do not overlap in the file.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::name::ObjectId;
use crate::base::record::{Reader, checksum, put_u32, put_u64};
use crate::os::HashMap;
use crate::os::sync::locks::Mutex;
use crate::os::{File, Files, Gate, OpenHow};

const MAGIC: &[u8; 8] = b"TERRTAIL";
const STEP: u64 = 4096;
/// An entry takes at most one part in so many of the file.
const PART: u64 = 8;

/// The end of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectTail {
    pub(crate) offset: u32,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TailHeader {
    id: ObjectId,
    number: u64,
    offset: u32,
    len: u32,
    sum: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    header: TailHeader,
}

#[derive(Debug, Default)]
struct Ring {
    entries: HashMap<ObjectId, Entry>,
    /// The same by place.
    places: BTreeMap<u64, ObjectId>,
    /// Where the next entry goes.
    next: u64,
    number: u64,
    bytes: u64,
    /// Where entries are being written.
    writing: Vec<Range<u64>>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct TailCache {
    file: Arc<File>,
    gate: Arc<Gate>,
    capacity: u64,
    ring: Mutex<Ring>,
}

impl TailHeader {
    /// Its bytes.
    pub(super) const LEN: usize = 48;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(TailHeader::LEN);
        put_u32(&mut body, self.id.epoch);
        put_u64(&mut body, self.id.extent);
        put_u64(&mut body, self.number);
        put_u32(&mut body, self.offset);
        put_u32(&mut body, self.len);
        put_u32(&mut body, self.sum);
        put_u32(&mut body, 0);
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, checksum(&[], &body));
        out.extend_from_slice(&body);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<TailHeader> {
        let body = bytes.get(12..TailHeader::LEN)?;
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        if reader.u32()? != checksum(&[], body) {
            return None;
        }
        let id = ObjectId { epoch: reader.u32()?, extent: reader.u64()? };
        let number = reader.u64()?;
        let (offset, len, sum) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let is_sound = reader.u32()? == 0;
        is_sound.then_some(TailHeader { id, number, offset, len, sum })
    }

    fn takes(&self) -> u64 {
        (TailHeader::LEN as u64 + u64::from(self.len)).next_multiple_of(STEP)
    }
}

fn sum_of(id: ObjectId, offset: u32, bytes: &[u8]) -> u32 {
    checksum(&[u64::from(id.epoch), id.extent, u64::from(offset)], bytes)
}

impl Ring {
    /// Forgets what lies from `from` up to `to`.
    fn clear(&mut self, from: u64, to: u64) {
        let before = self.places.range(..from).next_back().map(|(at, id)| (*at, *id));
        let over = before.filter(|(at, id)| {
            self.entries.get(id).is_some_and(|entry| at + entry.header.takes() > from)
        });
        let within: Vec<u64> = self.places.range(from..to).map(|(at, _)| *at).collect();
        for at in within.into_iter().chain(over.map(|(at, _)| at)) {
            if let Some(id) = self.places.remove(&at)
                && let Some(entry) = self.entries.remove(&id)
            {
                self.bytes -= u64::from(entry.header.len);
            }
        }
    }

    /// Takes a place for an entry that takes `len` bytes, over the oldest ones; `None` if one that
    /// is being written lies there.
    fn take_place(&mut self, len: u64, capacity: u64) -> Option<Range<u64>> {
        let at = if self.next + len <= capacity { self.next } else { 0 };
        let place = at..at + len;
        if self.writing.iter().any(|other| other.start < place.end && place.start < other.end) {
            return None;
        }
        self.clear(place.start, place.end);
        self.next = place.end;
        self.number += 1;
        self.writing.push(place.clone());
        Some(place)
    }

    fn insert(&mut self, at: u64, header: TailHeader) {
        self.remove(header.id);
        self.clear(at, at + header.takes());
        self.entries.insert(header.id, Entry { at, header });
        self.places.insert(at, header.id);
        self.bytes += u64::from(header.len);
        self.number = self.number.max(header.number);
    }

    fn remove(&mut self, id: ObjectId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.places.remove(&entry.at);
            self.bytes -= u64::from(entry.header.len);
        }
    }
}

impl TailCache {
    /// The cache in the file at `path`, of about `capacity` bytes. The file is made where there is
    /// none. Entries of an earlier opening are found by their headers.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read.
    pub(crate) fn open(
        files: &dyn Files,
        gate: &Arc<Gate>,
        path: &Path,
        capacity: u64,
    ) -> io::Result<TailCache> {
        let file = match files.open(path, OpenHow::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                files.open(path, OpenHow::CreateNew)?
            }
            opened => opened?,
        };
        let capacity = capacity.next_multiple_of(STEP).max(PART * STEP);
        let ring = scan(&file, capacity)?;
        Ok(TailCache { file, gate: Arc::clone(gate), capacity, ring: Mutex::new(ring) })
    }

    /// Bytes of ends that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.ring.lock().bytes
    }

    /// The end of an object, if it is there and checks out.
    pub(crate) fn get(&self, id: ObjectId) -> Option<ObjectTail> {
        let entry = *self.ring.lock().entries.get(&id)?;
        let TailHeader { offset, len, sum, .. } = entry.header;
        let read = self.file.read_vec(entry.at + TailHeader::LEN as u64, len as usize).ok();
        let sound = read.filter(|bytes| sum_of(id, offset, bytes) == sum);
        if sound.is_none() {
            let mut ring = self.ring.lock();
            // Another entry may have taken its place meanwhile.
            if ring.entries.get(&id).is_some_and(|now| now.header == entry.header) {
                ring.remove(id);
            }
        }
        sound.map(|bytes| ObjectTail { offset, bytes })
    }

    /// Whether it has the end of an object, as far as it is known without a read.
    pub(crate) fn has(&self, id: ObjectId) -> bool {
        self.ring.lock().entries.contains_key(&id)
    }

    /// Keeps the end of an object. What cannot be written is not kept.
    pub(crate) fn keep(&self, id: ObjectId, offset: u32, bytes: &[u8]) {
        let Ok(len) = u32::try_from(bytes.len()) else { return };
        // A read may come here after the closing.
        let Ok(_inside) = self.gate.enter_step() else { return };
        let mut header = TailHeader { id, number: 0, offset, len, sum: sum_of(id, offset, bytes) };
        if header.takes() > self.capacity / PART {
            return;
        }
        let place = {
            let mut ring = self.ring.lock();
            let Some(place) = ring.take_place(header.takes(), self.capacity) else { return };
            header.number = ring.number;
            place
        };
        let mut entry = header.encode();
        entry.extend_from_slice(bytes);
        // With what fills the last step, so that the next header is where it is looked for.
        entry.resize(header.takes() as usize, 0);
        let written = self.file.try_write_all_at(&entry, place.start);
        let mut ring = self.ring.lock();
        ring.writing.retain(|other| *other != place);
        if written.is_ok() {
            ring.insert(place.start, header);
        }
    }

    /// Forgets an object, which is gone.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.ring.lock().remove(id);
    }
}

/// Finds the entries of a file by their headers.
fn scan(file: &File, capacity: u64) -> io::Result<Ring> {
    let len = file.len()?.min(capacity);
    let mut found: Vec<Entry> = Vec::new();
    let mut at = 0;
    while at + TailHeader::LEN as u64 <= len {
        let header = TailHeader::decode(&file.read_vec(at, TailHeader::LEN)?);
        match header.filter(|header| at + header.takes() <= len) {
            Some(header) => {
                found.push(Entry { at, header });
                // What lies inside may be the header of an older entry, which this one is over.
                at += header.takes();
            }
            None => at += STEP,
        }
    }
    found.sort_unstable_by_key(|entry| entry.header.number);
    let mut ring = Ring::default();
    for entry in found {
        ring.insert(entry.at, entry.header);
        ring.next = entry.at + entry.header.takes();
    }
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_testkit::SimFiles;

    const PATH: &str = "/tails";

    fn open(files: &Arc<SimFiles>, capacity: u64) -> TailCache {
        TailCache::open(&**files, &Arc::default(), Path::new(PATH), capacity).unwrap()
    }

    fn id(n: u64) -> ObjectId {
        ObjectId { epoch: 1, extent: n }
    }

    fn bytes(n: u64, len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| (at * 7 + n * 13) as u8).collect()
    }

    #[test]
    fn ends_survive_a_restart() {
        let files = SimFiles::new();
        let cache = open(&files, 1 << 20);
        for n in 0..20 {
            cache.keep(id(n), 100 + n as u32, &bytes(n, 5000));
        }
        cache.forget(id(3));
        drop(cache);
        let cache = open(&files, 1 << 20);
        for n in 0..20 {
            let expected = ObjectTail { offset: 100 + n as u32, bytes: bytes(n, 5000) };
            assert_eq!(cache.get(id(n)), Some(expected), "{n}");
        }
        assert_eq!(cache.bytes(), 20 * 5000);
        assert_eq!(cache.get(ObjectId { epoch: 2, extent: 1 }), None);
    }

    #[test]
    fn the_oldest_ends_go_and_the_file_keeps_its_size() {
        let files = SimFiles::new();
        let cache = open(&files, 1 << 20);
        let mut expected: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for n in 0..1000 {
            let of = bytes(n, 1000 + (n as usize * 7919) % 30_000);
            cache.keep(id(n), 0, &of);
            expected.insert(n, of);
            let found = cache.get(id(n)).unwrap();
            assert_eq!(found.bytes, expected[&n]);
        }
        let len = files.open(Path::new(PATH), OpenHow::Read).unwrap().len().unwrap();
        assert!(len <= 1 << 20, "{len}");
        for cache in [cache, open(&files, 1 << 20)] {
            let there: Vec<u64> = (0..1000).filter(|n| cache.get(id(*n)).is_some()).collect();
            assert!(there.len() > 40, "{}", there.len());
            assert!(there.windows(2).all(|two| two[0] + 1 == two[1]), "the newest: {there:?}");
            assert_eq!(there.last(), Some(&999));
            for n in there {
                assert_eq!(cache.get(id(n)).unwrap().bytes, expected[&n]);
            }
        }
    }

    #[test]
    fn what_a_power_cut_tore_is_not_there() {
        let files = SimFiles::new();
        let cache = open(&files, 1 << 20);
        (0..20).for_each(|n| cache.keep(id(n), 0, &bytes(n, 9000)));
        files.corrupt(Path::new(PATH), 6000, 1);
        files.corrupt(Path::new(PATH), 3 * 4096 + 20, 1);
        let cache = open(&files, 1 << 20);
        let there: Vec<u64> = (0..20).filter(|n| cache.get(id(*n)).is_some()).collect();
        assert_eq!(there, (2..20).collect::<Vec<_>>());
        cache.keep(id(0), 0, &bytes(0, 9000));
        assert_eq!(cache.get(id(0)).unwrap().bytes, bytes(0, 9000));
    }

    /// Bug: all reads of ends waited for the disk while one end was written.
    /// Cause: the lock of the ring was held over the write.
    /// Fix: a write takes its place under the lock, and writes without it.
    #[test]
    fn a_place_that_is_being_written_is_no_other_entrys() {
        const CAPACITY: u64 = 16 * STEP;
        let mut ring = Ring::default();
        let places: Vec<_> = (0..8).map(|_| ring.take_place(2 * STEP, CAPACITY).unwrap()).collect();
        assert_eq!(ring.take_place(STEP, CAPACITY), None, "all of the file is being written");
        assert!(places.windows(2).all(|two| two[0].end == two[1].start));
        ring.writing.retain(|place| *place != places[0]);
        assert_eq!(ring.take_place(2 * STEP, CAPACITY), Some(places[0].clone()));
        assert_eq!(ring.number, 9, "each entry has a number of its own");
    }

    #[test]
    fn ends_that_several_threads_keep_are_whole() {
        let files = SimFiles::new();
        let cache = open(&files, 64 << 10);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for n in 0..200 {
                        let n = thread * 1000 + n;
                        cache.keep(id(n), n as u32, &bytes(n, 1000 + (n as usize * 37) % 6000));
                        for of in [n, n.saturating_sub(1)] {
                            if let Some(found) = cache.get(id(of)) {
                                let len = 1000 + (of as usize * 37) % 6000;
                                assert!(found.bytes == bytes(of, len), "{of}");
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(cache.ring.lock().writing, Vec::<Range<u64>>::new());
        let again = open(&files, 64 << 10);
        let kept: Vec<u64> = (0..4000).filter(|n| cache.get(id(*n)).is_some()).collect();
        assert!(!kept.is_empty());
        assert!(kept.iter().all(|n| again.get(id(*n)) == cache.get(id(*n))));
    }

    #[test]
    fn an_end_that_is_too_long_is_not_kept() {
        let files = SimFiles::new();
        let cache = open(&files, 64 << 10);
        cache.keep(id(1), 0, &bytes(1, 9000));
        assert_eq!(cache.get(id(1)), None);
        cache.keep(id(1), 0, &bytes(1, 4000));
        assert!(cache.get(id(1)).is_some());
    }
}
