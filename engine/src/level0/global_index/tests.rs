//! A persistent index without space.

use std::collections::BTreeMap;

use super::*;
use crate::base::progress::Meter;
use crate::base::record::{Kind, LSN_MAX};
use crate::memtable::{encode_record, set_seq};
use crate::pindex::forest::Forest;
use terrace_testkit::Machine;

/// Bytes of records that the index is made for: it has eight segments.
const RECORDS: u64 = 1 << 20;
const OWNER: [u8; 16] = [7; 16];

struct World {
    records: Arc<Region>,
    index: Arc<Region>,
    /// Where the next record goes, and its number.
    at: u64,
    seq: Lsn,
}

impl World {
    fn new() -> (World, GlobalIndex) {
        let region = |len| Region::of_machine(&Machine::with_memory(), len).unwrap();
        let (records, index) = (region(8 << 20), region(Forest::region_lens(RECORDS).1));
        let forest = Forest::format(&index, (&records, RECORDS), OWNER).unwrap();
        let world = World { records, index, at: 0, seq: 0 };
        let container = world.over(forest);
        (world, container)
    }

    fn over(&self, forest: Forest) -> GlobalIndex {
        let index = Versions::persistent(&self.records, Arc::new(forest), 1);
        GlobalIndex::new(Arc::clone(&self.records), index)
    }

    fn reopened(&self) -> GlobalIndex {
        let reads = (1, &Meter::silent());
        let forest = Forest::open(&self.index, &self.records, (OWNER, 0), reads).unwrap();
        let forest = forest.expect("it is this owner's");
        forest.begin(0).unwrap();
        self.over(forest)
    }

    fn add(&mut self, memtable: &Memtable, prefix: &str, number: u64) {
        self.seq += 1;
        let key = [prefix.as_bytes(), &(number as u32).to_be_bytes()].concat();
        let mut record = Vec::new();
        encode_record(&mut record, 1, Kind::Put, &key, b"");
        set_seq(&mut record, self.seq);
        self.records.persist([self.records.write(self.at, &record)]).unwrap();
        memtable.insert(&key, self.seq, self.at);
        memtable.count(self.seq, (1, 0), record.len() as u64);
        self.at += record.len() as u64;
    }

    /// A memtable of so many records. The last key has two more versions.
    fn memtable(&mut self, count: u64, prefix: &str) -> Memtable {
        let memtable = Memtable::new(Arc::clone(&self.records));
        for n in 0..count + 2 {
            let number = self.seq + 1 - n.saturating_sub(count - 1);
            self.add(&memtable, prefix, number);
        }
        memtable
    }

    /// A memtable of so many records, of keys of which there are so many.
    fn memtable_over(&mut self, keys: u64, count: u64, prefix: &str) -> Memtable {
        let memtable = Memtable::new(Arc::clone(&self.records));
        for _ in 0..count {
            // Those of later memtables are new ones for a part.
            let number = (self.seq * 7919) % (keys + self.seq);
            self.add(&memtable, prefix, number);
        }
        memtable
    }
}

fn records_of(memtable: &Memtable) -> Vec<(Vec<u8>, Lsn)> {
    let _guard = pin();
    let mut cursor = memtable.cursor();
    cursor.seek_first();
    let next = || {
        let (_, record) = cursor.record()?;
        cursor.step();
        Some((record.key.to_vec(), record.seq))
    };
    std::iter::from_fn(next).collect()
}

/// All versions are kept.
const KEEP: Keep<'_> = &|seq, newer| Some((seq, newer));

fn contents(container: &GlobalIndex) -> Vec<(Vec<u8>, Lsn)> {
    let _guard = pin();
    let from = (&[][..], LSN_MAX);
    let mut walk = WalkUp::from(&container.region, &container.index, from).unwrap();
    let next = || {
        let (_, record) = walk.record()?;
        walk.next().unwrap();
        Some((record.key.to_vec(), record.seq))
    };
    std::iter::from_fn(next).collect()
}

fn is_full(container: &GlobalIndex) -> bool {
    container.oldest_in_memory().is_some()
}

/// Bug: once a persistent index had taken most of its segments no memtable was merged any more,
/// although all was drained, and after an opening too: the region filled, and each write was
/// refused. Cause: a merge asked for segments that no pool had, however many nodes were free in
/// the pools. Fix: what is free counts first.
#[test]
fn an_index_that_was_full_takes_records_once_it_was_drained() {
    let (mut world, mut container) = World::new();
    let (mut memtable, mut first) = (world.memtable(2000, ""), None);
    for round in 0..4 {
        let mut merged = 0;
        while !is_full(&container) {
            container.ingest(&memtable, KEEP).unwrap();
            memtable = world.memtable(2000, "");
            merged += 1;
        }
        // The way to the first leaf stays.
        assert!(merged + 1 >= *first.get_or_insert(merged), "{merged} merges in round {round}");
        assert!(merged > 4, "{merged} merges fill it");
        container.retire(&KeyInterval::all(), LSN_MAX).unwrap();
        assert!(container.is_empty() && contents(&container).is_empty());
        if round % 2 == 1 {
            drop(container);
            container = world.reopened();
        }
    }
}

/// The same, from the end downwards.
fn contents_downwards(container: &GlobalIndex) -> Vec<(Vec<u8>, Lsn)> {
    let _guard = pin();
    let drained = DrainedMap::default();
    let mut cursor = container.cursor(&drained);
    cursor.seek_before(None).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = cursor.entry() {
        all.push((entry.key.to_vec(), entry.seq));
        cursor.prev().unwrap();
    }
    all.reverse();
    all
}

/// Bug: a memtable for which a persistent index had no room was tried again at each step; nothing
/// behind it was merged, deletes on a full disk freed nothing, and `compact_range` never returned.
/// Cause: a merge took all of a memtable or nothing. Fix: an index in memory has the versions that
/// there is no room for, and all newer ones of their keys.
#[test]
fn what_a_full_index_has_no_room_for_is_found_in_memory() {
    // Nodes end, or bounds.
    for prefix in ["", "all alike, and then "] {
        let (mut world, container) = World::new();
        let mut all = Vec::new();
        let mut beyond = 0;
        while beyond < 4 {
            // The keys of each lie between those of the others, and each has some of all others.
            let memtable = world.memtable_over(4000, 1000, prefix);
            all.extend(records_of(&memtable));
            container.ingest(&memtable, KEEP).unwrap();
            beyond += u32::from(is_full(&container));
        }
        all.sort_unstable_by(|(a, newer), (b, older)| a.cmp(b).then(older.cmp(newer)));
        assert!(contents(&container) == all && contents_downwards(&container) == all);
        assert_eq!(container.size().records, all.len() as u64);
        let oldest = container.oldest_in_memory().unwrap();
        let drained = DrainedMap::default();
        for versions in all.chunk_by(|(a, _), (b, _)| a == b) {
            let _guard = pin();
            let (key, newest) = &versions[0];
            let found = container.get(key, LSN_MAX, &drained).unwrap();
            assert_eq!(found.map(|record| record.seq), Some(*newest));
            for (key, seq) in versions {
                let found = container.get(key, *seq, &drained).unwrap();
                assert_eq!(found.map(|record| record.seq), Some(*seq));
            }
        }
        // What the next opening finds in the tree is older than what it reads in the zones.
        drop(container);
        let kept = contents(&world.reopened());
        assert!(kept.len() > 1000 && kept.len() < all.len(), "{} of {}", kept.len(), all.len());
        let kept: BTreeMap<_, _> = kept.into_iter().rev().collect();
        for (key, seq) in all.iter().filter(|(key, seq)| kept.get(key).is_none_or(|k| k < seq)) {
            assert!(*seq >= oldest, "{key:?} {seq} is below the boundary of {oldest}");
        }
    }
}

/// Bug: a table that was dropped beside a full index kept its zones until the next opening. Cause:
/// the clearing walked over the tree alone. Fix: it releases what is in memory too.
#[test]
fn a_clearing_releases_what_is_in_memory_too() {
    let (mut world, container) = World::new();
    while !is_full(&container) {
        let memtable = world.memtable_over(4000, 2000, "");
        container.ingest(&memtable, KEEP).unwrap();
    }
    let all = contents(&container).len();
    assert_eq!(container.clear().unwrap().records.len(), all);
}

/// Bug: one memtable larger than what was left of an index went into memory as a whole. Cause: the
/// index was not asked. Fix: it takes what it has room for.
#[test]
fn a_memtable_that_is_too_large_fills_the_index_first() {
    let (mut world, container) = World::new();
    let memtable = world.memtable(60_000, "");
    container.ingest(&memtable, KEEP).unwrap();
    assert!(is_full(&container));
    assert_eq!(contents(&container).len() as u64, memtable.records());
    drop(container);
    let kept = contents(&world.reopened()).len();
    assert!(kept > 10_000 && kept < 60_000, "{kept} records are in the tree");
}
