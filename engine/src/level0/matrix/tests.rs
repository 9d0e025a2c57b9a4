//! The rows against a sorted map: what hints narrow, what is drained, what comes free.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use super::*;
use crate::base::options::Failpoint;
use crate::base::progress::Meter;
use crate::base::record::{EntryRef, Kind, LSN_MAX};
use crate::memtable::{encode_record, set_seq};
use crate::mvcc::pin;
use crate::pm::Geometry;
use crate::pm::alloc::ZonePool;
use terrace_testkit::Machine;

const GEOMETRY: Geometry = Geometry { unit: 16 * PAGE, zone_slots: 64, units: 64, target: 64 };

/// Versions in the order of cursors, with their values.
type Model = BTreeMap<(Vec<u8>, Reverse<Lsn>), (Kind, Vec<u8>)>;

struct World {
    zones: Arc<ZonePool>,
    matrix: RowTables,
    model: Model,
    seed: u64,
    seq: Lsn,
    /// Keys are below it.
    keys: u64,
}

impl World {
    fn new() -> World {
        World::with(None)
    }

    /// One in which a bug is planted.
    fn with(bug: Option<Failpoint>) -> World {
        let machine = Machine::with_memory();
        let mut region = Region::of_machine(&machine, GEOMETRY.region_len()).unwrap();
        Arc::get_mut(&mut region).unwrap().set_failpoint(bug);
        region.persist(ZonePool::format(&region, GEOMETRY)).unwrap();
        let zones = Arc::new(ZonePool::open(&region, GEOMETRY).unwrap().0);
        let pages = Arc::new(PagePool::alone(region, Arc::clone(&zones)));
        let matrix = RowTables::new(pages, Level0Container::Matrix);
        World { zones, matrix, model: Model::new(), seed: 7, seq: 0, keys: 200 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % n
    }

    /// A memtable of so many records, copied into a row table. Its records lie in the last units,
    /// where no page is taken as long as there is room.
    fn add_row(&mut self, records: u64, keys: u64) {
        let _guard = pin();
        self.keys = self.keys.max(keys);
        let region = Arc::clone(self.matrix.region());
        let memtable = Memtable::new(Arc::clone(&region));
        let (after, mut at) = (self.seq, GEOMETRY.zone(56));
        for _ in 0..records {
            self.seq += 1;
            let key = format!("key {:04}", self.below(keys)).into_bytes();
            let kind = if self.below(8) == 0 { Kind::Delete } else { Kind::Put };
            let len = if self.below(30) == 0 { 9000 } else { self.below(300) };
            let value = if kind == Kind::Put { vec![self.seq as u8; len as usize] } else { vec![] };
            let mut record = Vec::new();
            encode_record(&mut record, 1, kind, &key, &value);
            set_seq(&mut record, self.seq);
            region.persist([region.write(at, &record)]).unwrap();
            memtable.insert(&key, self.seq, at);
            memtable.count(self.seq, (1, 0), record.len() as u64);
            at += record.len() as u64;
            self.model.insert((key, Reverse(self.seq)), (kind, value));
        }
        let keep: Keep<'_> = &|seq, newer| Some((seq, newer));
        let lsns = (after, self.seq);
        let jobs = &Arc::default();
        let stored = self.matrix.store(&memtable, keep, (1, self.seq), lsns, jobs);
        let stored = stored.unwrap().unwrap();
        assert_eq!(self.matrix.publish(stored).len() as u64, records);
    }

    fn agrees(&mut self, drained: &DrainedMap) {
        let _guard = pin();
        let (keys, seqs) = (self.keys + 20, self.seq + 2);
        let picks: Vec<_> = (0..400).map(|_| (self.below(keys), self.below(seqs))).collect();
        let seen: Vec<_> = self
            .model
            .iter()
            .filter(|((key, Reverse(seq)), _)| *seq > drained.get(key))
            .map(|((key, seq), (kind, value))| (key.clone(), seq.0, *kind, value.clone()))
            .collect();
        let entry = |e: EntryRef<'_>| (e.key.to_vec(), e.seq, e.kind, e.value.to_vec());
        let mut cursor = self.matrix.cursor(drained);
        cursor.seek(&[], LSN_MAX).unwrap();
        for want in &seen {
            assert_eq!(cursor.entry().map(entry).as_ref(), Some(want));
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none());
        cursor.seek_before(None).unwrap();
        for want in seen.iter().rev() {
            assert_eq!(cursor.entry().map(entry).as_ref(), Some(want));
            cursor.prev().unwrap();
        }
        assert!(cursor.entry().is_none());
        for (key, at) in picks {
            let key = format!("key {key:04}").into_bytes();
            let from = seen.partition_point(|(k, s, ..)| (k, Reverse(*s)) < (&key, Reverse(at)));
            let found = self.matrix.get(&key, at, drained.get(&key)).map(|r| entry(r.entry()));
            assert_eq!(
                found.as_ref(),
                seen.get(from).filter(|(k, ..)| *k == key),
                "{key:?} at {at}"
            );
            cursor.seek(&key, at).unwrap();
            assert_eq!(cursor.entry().map(entry).as_ref(), seen.get(from));
            if cursor.entry().is_some() {
                cursor.prev().unwrap();
                assert_eq!(cursor.entry().map(entry).as_ref(), seen[..from].last());
                if cursor.entry().is_some() {
                    cursor.next().unwrap();
                    assert_eq!(cursor.entry().map(entry).as_ref(), seen.get(from));
                }
            }
        }
    }
}

#[test]
fn rows_with_hints_agree_with_a_sorted_map_before_and_after_columns_go() {
    let mut world = World::new();
    for keys in [200, 200, 40, 200, 7] {
        world.add_row(150, keys);
        world.agrees(&DrainedMap::default());
    }
    let (taken, half) = (world.zones.free(), world.seq / 2);
    let mut drained = DrainedMap::default();
    for (start, end, upto) in [("", "key 0050", half), ("key 0020", "key 0120", world.seq)] {
        let interval = KeyInterval { start: start.into(), end: Some(end.into()) };
        drained.set(&interval, upto);
        world.agrees(&drained);
        world.matrix.retire(&interval, upto, &drained);
        world.agrees(&drained);
    }
    // The pages that came free have other rows now.
    world.add_row(150, 200);
    world.agrees(&drained);
    assert_eq!(world.matrix.drained(), [0; 0]);
    let all = KeyInterval::all();
    drained.set(&all, world.seq);
    world.matrix.retire(&all, world.seq, &drained);
    let rows = world.matrix.drained();
    assert_eq!((rows.len(), world.matrix.size()), (6, Size::default()));
    assert!(world.zones.free() >= taken);
    world.matrix.remove(&rows);
    in_a_while("all of the region is free", || world.zones.free() == 64);
}

/// Waits for what readers of other tests hold up.
fn in_a_while(what: &str, is_so: impl Fn() -> bool) {
    let from = Instant::now();
    while !is_so() {
        assert!(from.elapsed() < Duration::from_secs(60), "{what}");
        crate::mvcc::drive();
        std::thread::yield_now();
    }
}

impl World {
    /// Drains a column of all rows.
    fn drain(&mut self, drained: &mut DrainedMap, (start, end): (&str, &str)) {
        let interval = KeyInterval { start: start.into(), end: Some(end.into()) };
        drained.set(&interval, self.seq);
        self.matrix.retire(&interval, self.seq, drained);
    }

    /// Its pages in use, once those that came free were given back.
    fn settle(&self) -> u64 {
        let in_use = || self.matrix.pages().iter().map(|pages| u64::from(pages.count)).sum();
        in_a_while("each page that is not in use is free", || self.matrix.pages.used() == in_use());
        in_use()
    }

    /// Pages of the array and of keys in use, of those that there are, over all rows.
    fn meta_pages(&self) -> (usize, usize) {
        let rows = self.matrix.rows.load();
        let in_use = rows.iter().map(|row| row.meta_pages().len() - 1).sum();
        (in_use, rows.iter().map(|row| row.entry_pages.len() + row.key_pages.len()).sum())
    }

    /// What an opening makes of the rows.
    fn opened(&self, drained: &DrainedMap) -> Result<RowTables> {
        let rows: Vec<_> = self.matrix.rows.load().iter().map(|row| row.meta).collect();
        let home = (Arc::clone(&self.matrix.pages), Level0Container::Matrix);
        RowTables::open(home, 1, (&rows, drained), &Meter::silent())
    }
}

/// Bug: pages of keys and of the array waited for the whole row table, a twentieth of the container
/// with values of 1 KiB and a third with those of 100 bytes. Cause: searches went over all entries.
/// Fix: they go by spans of those in use, and the directory tells an opening which to pass over.
#[test]
fn pages_of_the_array_and_of_keys_come_free_with_their_columns() {
    let mut world = World::new();
    let mut drained = DrainedMap::default();
    (0..2).for_each(|_| world.add_row(800, 3000));
    let (all, _) = world.meta_pages();
    // From the middle on, then behind that, and last what lies before both.
    let columns = [("key 1000", "key 1700"), ("key 1700", "key 2600"), ("", "key 1000")];
    for (n, column) in columns.into_iter().enumerate() {
        world.drain(&mut drained, column);
        world.settle();
        world.agrees(&drained);
        let (in_use, there) = world.meta_pages();
        assert_eq!(there, all);
        let most = [all * 9 / 10, all * 7 / 10, all * 4 / 10][n];
        assert!(in_use <= most, "{in_use} of {all} pages after column {n}");
        // An opening finds the same, and does not look at what is used again.
        let opened = world.opened(&drained).unwrap();
        assert_eq!(opened.pages(), world.matrix.pages());
        assert_eq!(opened.size(), world.matrix.size());
        world.matrix = opened;
        world.agrees(&drained);
    }
    // What came free has another row now, whose hints lead into what is left.
    world.add_row(500, 3000);
    world.agrees(&drained);
    world.matrix = world.opened(&drained).unwrap();
    world.agrees(&drained);
    world.drain(&mut drained, ("", "z"));
    assert_eq!(world.matrix.drained().len(), 3);
    world.matrix.remove(&world.matrix.drained());
    in_a_while("all of the region is free", || world.zones.free() == 64);
}

/// A column that ends right behind the last key of a page of the array: D does not cover the next
/// fence, so an opening reads the page.
fn drained_up_to_a_fence(bug: Option<Failpoint>) -> Result<RowTables> {
    let mut world = World::with(bug);
    world.add_row(400, 3000);
    let rows = world.matrix.rows.load_full();
    let region = Arc::clone(world.matrix.region());
    let last = rows[0].key(&region, &rows[0].entry(&region, 101)).to_vec();
    let end = String::from_utf8(crate::mvcc::after(&last)).unwrap();
    let mut drained = DrainedMap::default();
    world.drain(&mut drained, ("", &end));
    world.settle();
    // Takes what is free.
    world.add_row(300, 3000);
    world.agrees(&drained);
    world.opened(&drained)
}

#[test]
fn a_page_of_the_array_waits_until_an_opening_passes_over_it() {
    drained_up_to_a_fence(None).unwrap();
}

/// The control of the test above.
#[test]
fn a_page_of_the_array_that_is_used_again_before_has_an_opening_refuse() {
    let refused = drained_up_to_a_fence(Some(Failpoint::FreeUncoveredArray)).unwrap_err();
    assert!(refused.to_string().contains("metadata of row table"), "{refused}");
}

/// Three rows, of which the middle one has the smallest keys alone and is gone.
fn without_the_middle(bug: Option<Failpoint>) -> (World, DrainedMap) {
    let mut world = World::with(bug);
    for keys in [200, 7, 200] {
        world.add_row(150, keys);
    }
    let interval = KeyInterval { start: Vec::new(), end: Some(b"key 0007".into()) };
    let mut drained = DrainedMap::default();
    drained.set(&interval, world.seq);
    world.matrix.retire(&interval, world.seq, &drained);
    let gone = world.matrix.drained();
    assert_eq!(gone, [300], "the number of the row in the middle");
    world.matrix.remove(&gone);
    (world, drained)
}

#[test]
fn hints_are_not_followed_into_a_row_that_is_gone() {
    let (mut world, drained) = without_the_middle(None);
    world.agrees(&drained);
    world.add_row(150, 200);
    world.agrees(&drained);
}

/// The control of the test above.
#[test]
fn hints_that_are_followed_into_a_row_that_is_gone_give_wrong_answers() {
    let (mut world, drained) = without_the_middle(Some(Failpoint::FollowStaleHints));
    let agrees = AssertUnwindSafe(|| world.agrees(&drained));
    assert!(std::panic::catch_unwind(agrees).is_err());
}

#[test]
fn a_row_table_that_finds_no_room_changes_nothing() {
    let mut world = World::new();
    let taken: Vec<_> = std::iter::from_fn(|| world.matrix.pages.take(&[1])).collect();
    let region = Arc::clone(world.matrix.region());
    let memtable = Memtable::new(Arc::clone(&region));
    let mut record = Vec::new();
    encode_record(&mut record, 1, Kind::Put, b"key", &[1; 5000]);
    set_seq(&mut record, 1);
    let at = GEOMETRY.zone(56);
    region.persist([region.write(at, &record)]).unwrap();
    memtable.insert(b"key", 1, at);
    memtable.count(1, (1, 0), record.len() as u64);
    let keep: Keep<'_> = &|seq, newer| Some((seq, newer));
    let jobs = Arc::default();
    assert!(world.matrix.store(&memtable, keep, (1, 1), (0, 1), &jobs).unwrap().is_none());
    assert_eq!(jobs.bytes(), 0);
    world.matrix.pages.give(taken.into_iter().flatten());
    assert_eq!((world.zones.free(), world.matrix.size()), (64, Size::default()));
    world.add_row(100, 20);
    world.agrees(&DrainedMap::default());
}

/// What threads that share the rows of a column among them could save: a search has few
/// comparisons. A column makes one search, however much it moves.
#[test]
fn a_search_compares_with_few_entries_of_each_row() {
    let mut world = World::new();
    (0..5).for_each(|_| world.add_row(512, 4000));
    let (_guard, drained) = (pin(), DrainedMap::default());
    let mut cursor = world.matrix.cursor(&drained);
    let before = row::COMPARED.get();
    for n in 0..100 {
        cursor.seek(format!("key {:04}", n * 40).as_bytes(), LSN_MAX).unwrap();
    }
    let a_row = (row::COMPARED.get() - before) as f64 / 500.0;
    // The first row takes nine or ten, and each one below what hints leave: a few.
    assert!((2.0..8.0).contains(&a_row), "{a_row} comparisons a row");
}

/// Bug: each step down looked again at all entries that were gone in front of it, in each row.
/// Cause: a step moved the place in the row of its record alone. Fix: it moves the place in each
/// row, and a walk down begins at the last entry that can be read.
#[test]
fn a_walk_down_looks_once_at_what_is_gone() {
    let mut world = World::new();
    world.add_row(800, 3000);
    let (upto, mut drained) = (world.seq, DrainedMap::default());
    (0..3).for_each(|_| world.add_row(100, 3000));
    let _guard = pin();
    // Of the first row the end, which is not all of a page, and then all of it.
    for (start, rows, gone) in [("key 1000", 4, u64::from(layout::ENTRIES)), ("", 3, 0)] {
        let interval = KeyInterval { start: start.into(), end: None };
        drained.set(&interval, upto);
        world.matrix.retire(&interval, upto, &drained);
        let (before, mut records) = (row::LOOKED_AT.get(), 0);
        let mut cursor = world.matrix.cursor(&drained);
        cursor.seek_before(None).unwrap();
        while cursor.entry().is_some() {
            records += 1;
            cursor.prev().unwrap();
        }
        let looked_at = row::LOOKED_AT.get() - before;
        assert!(records >= 300, "{records}");
        assert!(looked_at <= rows * (records + 1) + gone, "{looked_at} for {records} records");
    }
}

/// Bug: an opening took time in the square of the pages of a row table that were drained. Cause:
/// it made the spans of all pages again for each page. Fix: it makes them once.
#[test]
fn an_opening_makes_the_spans_of_a_row_table_once() {
    let (mut world, mut drained) = (World::new(), DrainedMap::default());
    world.add_row(800, 3000);
    world.drain(&mut drained, ("", "key 2500"));
    let before = layout::SHOWN.get();
    let opened = world.opened(&drained).unwrap();
    assert_eq!(layout::SHOWN.get() - before, 1);
    assert_eq!(opened.pages(), world.matrix.pages());
}

/// Bug: row tables took memory beside the limit, and a copy of a memtable on its way into one took
/// as much as the memtable. Cause: nothing counted either. Fix: the gauges of indexes and of jobs
/// do.
#[test]
fn row_tables_and_drafts_of_them_are_counted() {
    let mut world = World::new();
    let gauge = Arc::clone(world.matrix.region().indexes());
    (0..2).for_each(|_| world.add_row(200, 50));
    assert_eq!(gauge.bytes(), world.matrix.memory(), "no memtable is left");
    assert!(gauge.bytes() > 2 * size_of::<OpenRow>() as u64);
    world.matrix.show(Vec::new());
    assert_eq!(gauge.bytes(), 0);

    let memtable = Memtable::new(Arc::clone(world.matrix.region()));
    let mut at = GEOMETRY.zone(56);
    for seq in 1..100 {
        let mut record = Vec::new();
        encode_record(&mut record, 1, Kind::Put, b"key", &[1; 200]);
        set_seq(&mut record, seq);
        let region = world.matrix.region();
        region.persist([region.write(at, &record)]).unwrap();
        memtable.insert(b"key", seq, at);
        memtable.count(seq, (1, 0), record.len() as u64);
        at += record.len() as u64;
    }
    let jobs = Arc::<Gauge>::default();
    let keep: Keep<'_> = &|_, _| {
        assert!(jobs.bytes() > memtable.bytes(), "{} bytes", jobs.bytes());
        None
    };
    assert!(world.matrix.store(&memtable, keep, (1, 1), (0, 99), &jobs).unwrap().is_some());
    assert_eq!(jobs.bytes(), 0);
}
