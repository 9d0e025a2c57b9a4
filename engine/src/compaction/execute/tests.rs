use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::base::error::Findings;
use crate::base::options::{Compression, TableOptions};
use crate::base::progress::Meter;
use crate::base::record::{Cursor, Kind, LSN_MAX, Lsn, TableId};
use crate::compaction::{Planned, Situation, Work, pick};
use crate::mvcc::{KeyInterval, SnapshotRegistry, Tombstone, Watermark, pin};
use crate::sstable::tests::{Entry, forward};
use crate::sstable::{Blocks, Found, ReadAhead, ValueMeta};
use crate::version::{FoundEdits, LevelCursor, MAX_LEVELS, SUBLEVELS};
use terrace_testkit::{SimFiles, Survive};

pub(in crate::compaction) const SHAPE: Shape = Shape {
    level1_bytes: 40_000,
    level1_share: None,
    job_bytes: 0,
    little_bytes: 0,
    overlap: 8,
    ratio: 3,
    extent_bytes: 8_000,
    compression: (Compression::Lz4, Compression::Zstd),
    reuse: true,
    fills: true,
    has_objects: false,
    stays_far: false,
    local_room: None,
    drops_tombstones: false,
    forgets_below: false,
    deletes_early: false,
};

/// One table, drained into and compacted by hand.
pub(in crate::compaction) struct Fixture {
    pub(in crate::compaction) shape: Shape,
    files: Arc<SimFiles>,
    pub(in crate::compaction) set: VersionSet,
    pub(in crate::compaction) cache: Arc<BlockCache>,
    table: TableId,
    pub(in crate::compaction) visible: Arc<Watermark>,
    pub(in crate::compaction) snapshots: Arc<SnapshotRegistry>,
}

impl Fixture {
    pub(in crate::compaction) fn new(shape: Shape) -> Fixture {
        Fixture::with_options(shape, TableOptions::new())
    }

    pub(in crate::compaction) fn with_options(shape: Shape, options: TableOptions) -> Fixture {
        let files = SimFiles::new();
        crate::os::create_directory(&*files, Path::new("/db")).unwrap();
        let set =
            VersionSet::create_empty(Arc::clone(&files) as _, Path::new("/db"), [1; 16]).unwrap();
        let table = set.allocate_table_id();
        let op = Op::CreateTable { table, created_lsn: 1, name: "t".into() };
        let options = Op::TableOptions { table, options };
        set.apply(Edit { ops: vec![op, options] }, 1).unwrap();
        let visible = Arc::new(Watermark::new(0));
        let snapshots = SnapshotRegistry::new(Arc::clone(&visible));
        let cache = BlockCache::new(16 << 20);
        Fixture { shape, files, set, cache, table, visible, snapshots }
    }

    /// Everything up to an LSN has expired.
    pub(in crate::compaction) fn expire(&self, expired: Lsn) {
        let op = Op::TimeToLive { table: self.table, ttl: 0, expired };
        self.set.apply(Edit { ops: vec![op] }, self.visible.get()).unwrap();
    }

    /// Merges newer records into level 1, as a drain does; what was carried over.
    pub(in crate::compaction) fn drain(&self, newer: Vec<Entry>) -> CarriedOver {
        self.drain_with(newer, Vec::new())
    }

    /// Merges newer records and range tombstones into level 1, as a drain of all keys does.
    fn drain_with(&self, mut newer: Vec<Entry>, above: Vec<Arc<Tombstone>>) -> CarriedOver {
        newer.sort_by(|a, b| a.key.cmp(&b.key));
        let version = self.set.version(self.table).unwrap();
        let store = self.set.store();
        let column = (!newer.is_empty())
            .then(|| crate::sstable::tests::write_extent(store, self.set.next_extent_id(), &newer));
        // As a column does, to the last key that a tombstone is taken to reach.
        let reach = above.iter().map(|t| match t.interval.last_key() {
            Some(last) => KeyInterval::closed(&t.interval.start, last),
            None => t.interval.clone(),
        });
        let hull = reach.chain(column.as_ref().map(|c| c.meta().interval()));
        let hull = hull.reduce(|a, b| a.joined(&b));
        let level1 = version.level(SUBLEVELS).zip(hull);
        let below = level1.map_or(Vec::new(), |(level, hull)| level.overlapping(&hull).to_vec());
        let horizon = self.snapshots.horizon();
        let mut ranges = Ranges::new(&version, SUBLEVELS, above, &horizon, |_, _| false);
        let below = ranges.without_hidden(&below);
        ranges.tombstones.extend(tombstones_of(&below).unwrap());
        let reuse = self.shape.reuse && ranges.tombstones.is_empty();
        let len = column.as_ref().map_or(0, |column| u64::from(column.meta().location.len));
        let reservation = &store.reserve_space(bytes(&below) + len, false).unwrap();
        let ctx = MergeContext {
            replaces: &below,
            values: values_of(&below),
            ..MergeContext::of(
                (&self.set, &self.cache),
                (&ranges, &horizon),
                &self.shape,
                reservation,
            )
        };
        let upper = match &column {
            Some(column) => {
                let cursor = column.cursor(&self.cache, &ReadAhead::for_job(1));
                Side::records(Box::new(cursor)).unwrap()
            }
            None => Side::extents(&[], &self.cache, false),
        };
        let lower = Side::under(&ranges, &below, &self.cache, reuse).unwrap();
        let outputs = merge_to_level(upper, lower, &ctx).unwrap();
        self.set.sync_extents().unwrap();
        let table = self.table;
        let replaced = outputs.replaced(&below);
        let remove =
            replaced.iter().map(|e| Op::RemoveExtent { table, level: SUBLEVELS, id: e.meta().id });
        let mut ops: Vec<Op> = remove.chain(ranges.remove_hidden()).collect();
        let add = |extent| Op::AddExtent { table, level: SUBLEVELS, extent };
        ops.extend(outputs.extents.into_iter().map(add));
        self.set.apply(Edit { ops }, self.visible.get()).unwrap();
        self.set.give_back(self.set.floor());
        outputs.carried_over
    }

    /// The extents of level 1.
    pub(in crate::compaction) fn level1(&self) -> Vec<Arc<Extent>> {
        let version = self.set.version(self.table).unwrap();
        version.level(SUBLEVELS).map_or(Vec::new(), |level| level.extents().to_vec())
    }

    /// Checks every extent against its checksums and its summaries.
    pub(in crate::compaction) fn verify(&self) {
        let mut report = Findings::default();
        self.set.verify(&mut report, &Meter::silent());
        assert_eq!(report, Findings::default());
    }

    /// Compacts until nothing is left to do; in how many jobs.
    pub(in crate::compaction) fn compact_all(&self) -> usize {
        self.compact_all_counting(&mut CarriedOver::default())
    }

    /// As [`compact_all`](Fixture::compact_all); adds what was carried over.
    fn compact_all_counting(&self, carried_over: &mut CarriedOver) -> usize {
        for jobs in 0.. {
            let version = self.set.version(self.table).unwrap();
            let horizon = self.snapshots.horizon();
            let (readers, work) = (horizon.readers(), Work::Any);
            let shape = &self.shape;
            let now = Situation { readers, rests: true, busy: &[], spared: 0, work, shape };
            let Some(choice) = pick(&version, &now) else { return jobs };
            let (bottom, underestimates) = (MAX_LEVELS, 0);
            let planned = Planned { choice: &choice, bottom, puts_objects: false, underestimates };
            let done = run(planned, &self.set, &self.cache, &horizon, shape, &|_| Ok(())).unwrap();
            self.set.apply(done.edit, self.visible.get()).unwrap();
            self.set.give_back(self.set.floor());
            carried_over.extents += done.carried_over.extents;
            carried_over.blocks += done.carried_over.blocks;
            assert!(jobs < 10_000, "it ends");
        }
        unreachable!()
    }

    pub(in crate::compaction) fn get(&self, key: &[u8], lsn: Lsn) -> Option<Vec<u8>> {
        let version = self.set.version(self.table).unwrap();
        let guard = pin();
        let found = version.get(key, lsn, Blocks::new(&self.cache, &guard)).unwrap();
        let extents = version.levels.iter().filter_map(|level| level.find(key));
        let over = extents.map(|e| e.tombstones().unwrap().newest_over(key, lsn)).max();
        let shown = |f: &Found<'_>| f.kind == Kind::Put && over.is_none_or(|over| over <= f.seq);
        found.filter(shown).map(|f| f.into_value().unwrap().to_vec())
    }
}

pub(in crate::compaction) fn key(n: u16) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn value(n: u16, lsn: Lsn) -> Vec<u8> {
    format!("{n}@{lsn}/").repeat(20).into_bytes()
}

/// Every third one is a large one.
fn longer(n: u16, lsn: Lsn) -> Vec<u8> {
    if n.is_multiple_of(3) { value(n, lsn).repeat(9) } else { value(n, lsn) }
}

type Model = BTreeMap<u16, Option<Vec<u8>>>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn readers_see_the_same_through_drains_and_compactions(
        rounds in prop::collection::vec(
            (
                prop::collection::btree_map(0u16..800, prop::bool::weighted(0.7), 1..200),
                any::<bool>(),
                prop::option::of((0u16..800, prop::option::of(0u16..400))),
            ),
            1..14,
        ),
        apart in any::<bool>(),
    ) {
        let options = TableOptions::new();
        let options = if apart { options.large_values(512) } else { options };
        let fixture = Fixture::with_options(SHAPE, options);
        let mut now = Model::new();
        let mut held = Vec::new();
        for (lsn, (batch, snapshot, range)) in (1u64..).zip(rounds) {
            fixture.visible.raise(lsn);
            let mut above = Vec::new();
            if let Some((from, len)) = range {
                let end = len.map(|len| from + len + 1);
                let interval = KeyInterval { start: key(from), end: end.map(key) };
                above.push(Arc::new(Tombstone::new(interval, lsn)));
                now.retain(|n, _| *n < from || end.is_some_and(|end| *n >= end));
            }
            let mut records = Vec::new();
            for (n, put) in batch {
                let value = put.then(|| longer(n, lsn));
                records.push(match &value {
                    Some(value) => Entry::put(&key(n), lsn, value),
                    None => Entry::delete(&key(n), lsn),
                });
                now.insert(n, value);
            }
            if snapshot {
                held.push((fixture.snapshots.register(), now.clone()));
            }
            fixture.drain_with(records, above);
            fixture.compact_all();
            for (lsn, model) in held.iter().map(|(s, m)| (s.lsn(), m)).chain([(lsn, &now)]) {
                for n in (0..800).step_by(7) {
                    let want = model.get(&n).cloned().flatten();
                    prop_assert_eq!(fixture.get(&key(n), lsn), want, "key {} at {}", n, lsn);
                }
            }
        }
        let mut report = Findings::default();
        fixture.set.verify(&mut report, &Meter::silent());
        prop_assert_eq!(report, Findings::default());
        let named: u64 = {
            let version = fixture.set.version(fixture.table).unwrap();
            let extents = version.levels.iter().flat_map(|l| l.extents().iter());
            let extents = extents.map(|e| e.meta().location.len);
            let values = version.live_values();
            let is_live = |of: &ValueMeta, live: u64| 2 * live >= u64::from(of.values_end());
            prop_assert!(values.values().all(|(of, live)| is_live(of, *live)), "{:?}", values);
            let values = values.values().map(|(of, _)| of.location.len);
            extents.chain(values).map(|len| u64::from(len).next_multiple_of(16_384)).sum()
        };
        prop_assert_eq!(fixture.set.store().space().taken_bytes, named, "no space is leaked");
        let found = fixture.files.crash(Survive::Nothing);
        let again =
            VersionSet::open(found, Path::new("/db"), fixture.set.floor(), FoundEdits::Rewrite)
                .unwrap();
        prop_assert_eq!(again.store().space().taken_bytes, named);
    }
}

#[test]
fn versions_of_a_key_are_never_divided() {
    let fixture = Fixture::new(SHAPE);
    fixture.visible.raise(1);
    let mut held = Vec::new();
    for lsn in 1..200 {
        fixture.visible.raise(lsn);
        held.push(fixture.snapshots.register());
        fixture.drain(vec![Entry::put(b"hot", lsn, &[0; 200])]);
    }
    let shape = |f: &Fixture| {
        let version = f.set.version(f.table).unwrap();
        version.level(SUBLEVELS).map(|level| (level.extents().len(), level.records()))
    };
    assert_eq!(shape(&fixture), Some((1, 199)));
    drop(held);
    fixture.drain(vec![Entry::delete(b"hot", 199)]);
    assert_eq!(shape(&fixture), None, "the tombstone goes too, at the bottom");
    assert_eq!(fixture.set.store().space().taken_bytes, 0);
}

fn until(end: Option<u16>, lsn: Lsn) -> Vec<Arc<Tombstone>> {
    let interval = KeyInterval { start: key(0), end: end.map(key) };
    vec![Arc::new(Tombstone::new(interval, lsn))]
}

#[test]
fn extents_under_a_range_tombstone_go_unread_from_every_level_unless_a_snapshot_reads_them() {
    let fixture = Fixture::new(SHAPE);
    for lsn in 1..=6 {
        fixture.visible.raise(lsn);
        fixture.drain((0..6000).map(|n| Entry::put(&key(n), lsn, &value(n, lsn))).collect());
        fixture.compact_all();
    }
    let levels = || fixture.set.version(fixture.table).unwrap().levels.len();
    assert!(levels() > 1);
    let held = fixture.snapshots.register();
    fixture.visible.raise(7);
    fixture.drain_with(Vec::new(), until(None, 7));
    assert_eq!(fixture.get(&key(7), 6), Some(value(7, 6)), "the snapshot reads it");
    assert_eq!(fixture.get(&key(7), 7), None);
    assert!(levels() > 1, "and keeps it");
    drop(held);
    fixture.visible.raise(8);
    let read = fixture.set.store().bytes_read();
    fixture.drain_with(Vec::new(), until(None, 8));
    assert_eq!(fixture.set.store().bytes_read(), read, "nothing was read");
    assert_eq!((levels(), fixture.set.store().space().taken_bytes), (0, 0));
}

#[test]
fn a_range_tombstone_goes_at_the_bottom_and_reaches_no_further_than_what_it_hides() {
    let fixture = Fixture::new(SHAPE);
    fixture.visible.raise(1);
    fixture.drain((0..300).map(|n| Entry::put(&key(n), 1, &value(n, 1))).collect());
    let held = fixture.snapshots.register();
    fixture.visible.raise(2);
    fixture.drain_with(Vec::new(), until(Some(100), 2));
    let extents = || {
        fixture.set.version(fixture.table).unwrap().levels[usize::from(SUBLEVELS) - 1]
            .extents()
            .to_vec()
    };
    let tombstones = || extents().iter().map(|e| e.meta().tombstones).sum::<u32>();
    assert!(tombstones() > 0, "older versions are still there, for the snapshot");
    fixture.visible.raise(3);
    fixture.drain_with(Vec::new(), until(None, 3));
    assert_eq!(extents().last().unwrap().meta().greatest_key, key(299), "cut at the last key");
    drop(held);
    fixture.visible.raise(4);
    fixture.drain(vec![Entry::put(&key(50), 4, b"new"), Entry::put(&key(200), 4, b"new")]);
    let shown = |n: u16| fixture.get(&key(n), 4);
    assert_eq!(
        [shown(49), shown(50), shown(99), shown(100)],
        [None, Some(b"new".to_vec()), None, None]
    );
    let records: u64 = extents().iter().map(|e| e.meta().records).sum();
    assert!(records < 300, "{records} records");
}

/// What is carried over below may lie under range tombstones of an upper level.
#[test]
fn extents_and_blocks_are_reused_under_range_tombstones_that_go_on_hiding_them() {
    let mut fixture = Fixture::new(SHAPE);
    for lsn in 1..=6 {
        fixture.visible.raise(lsn);
        fixture.drain((0..3000).map(|n| Entry::put(&key(n), lsn, &value(n, lsn))).collect());
        fixture.compact_all();
    }
    // From here on all of it goes down, also what is sparse over level 2.
    fixture.shape.level1_bytes = 1;
    let held = fixture.snapshots.register();
    fixture.visible.raise(7);
    let every = |n: u16| KeyInterval { start: key(n), end: Some(key(n + 60)) };
    let above = (0..3000).step_by(100).map(|n| Arc::new(Tombstone::new(every(n), 7)));
    fixture.drain_with(Vec::new(), above.collect());
    let mut carried_over = CarriedOver::default();
    for lsn in 8..40 {
        fixture.visible.raise(lsn);
        let at = (lsn as u16 * 97) % 29 * 100 + 70;
        let beside = (at..at + 20).map(|n| Entry::put(&key(n), lsn, &value(n, lsn)));
        let CarriedOver { extents, blocks, .. } = fixture.drain(beside.collect());
        carried_over.extents += extents;
        carried_over.blocks += blocks;
        fixture.compact_all_counting(&mut carried_over);
        for n in (0..3000).step_by(7) {
            let now = fixture.get(&key(n), lsn);
            assert_eq!(now.is_none(), n % 100 < 60, "key {n} at {lsn}");
            assert_eq!(fixture.get(&key(n), 6), Some(value(n, 6)), "key {n} for the snapshot");
        }
    }
    assert!(carried_over.extents + carried_over.blocks > 0, "{carried_over:?}");
    drop(held);
    fixture.verify();
}

#[test]
fn a_failed_sync_poisons_and_a_full_disk_does_not() {
    let fixture = Fixture::new(SHAPE);
    let horizon = fixture.snapshots.horizon();
    let source = crate::sstable::tests::sim_store().1;
    let list: Vec<_> = (0..100).map(|n| Entry::put(&key(n), 1, &value(n, 1))).collect();
    let extent = crate::sstable::tests::write_extent(&source, 1, &list);
    let version = fixture.set.version(fixture.table).unwrap();
    let ranges = Ranges::new(&version, 1, Vec::new(), &horizon, |_, _| false);
    let merge = || {
        let reservation = &fixture.set.store().reserve_space(1, false)?;
        let ctx = MergeContext::of(
            (&fixture.set, &fixture.cache),
            (&ranges, &horizon),
            &SHAPE,
            reservation,
        );
        let upper = Side::records(Box::new(extent.cursor(&fixture.cache, &ReadAhead::for_job(1))))?;
        let outputs = merge_to_level(upper, Side::extents(&[], &fixture.cache, true), &ctx)?;
        fixture.set.sync_extents()?;
        Ok::<_, Error>(outputs)
    };
    fixture.files.set_capacity(Some(0));
    let full = merge().unwrap_err();
    assert_eq!((full.kind(), fixture.set.poisoned()), (ErrorKind::Full, false));
    fixture.files.set_capacity(None);
    let outputs = merge().unwrap();
    assert_eq!(outputs.extents.iter().map(|e| e.meta().records).sum::<u64>(), 100);
    assert!(outputs.extents.len() > 1);
    let mut cursor = LevelCursor::new(
        outputs.extents.as_slice().into(),
        Arc::clone(&fixture.cache),
        ReadAhead::for_user(),
    );
    cursor.seek(b"", LSN_MAX).unwrap();
    assert_eq!(forward(&mut cursor), list);
    drop((cursor, outputs));
    assert_eq!(fixture.set.store().space().taken_bytes, 0, "never installed");
    fixture.files.fail_sync_after(1);
    merge().unwrap_err();
    assert!(fixture.set.poisoned());
}

#[test]
fn what_was_cached_stays_cached() {
    let fixture = Fixture::new(SHAPE);
    fixture.visible.raise(1);
    fixture.drain((0..600).map(|n| Entry::put(&key(n), 1, &value(n, 1))).collect());
    let cold = fixture.cache.used();
    assert_eq!(cold, 0, "nothing was read");
    fixture.get(&key(300), 1);
    let one_block = fixture.cache.used();
    fixture.visible.raise(2);
    fixture.drain((0..600).map(|n| Entry::put(&key(n), 2, &value(n, 2))).collect());
    let used = fixture.cache.used();
    assert!(used > one_block && used < 4 * one_block, "{used} bytes after {one_block}");
    let read = fixture.set.store().bytes_read();
    assert_eq!(fixture.get(&key(300), 2), Some(value(300, 2)));
    assert_eq!(fixture.set.store().bytes_read(), read, "the new block was there");
}

#[test]
fn many_small_value_extents_become_few() {
    let shape = Shape { level1_bytes: 1 << 30, extent_bytes: 100_000, ..SHAPE };
    let fixture = Fixture::with_options(shape, TableOptions::new().large_values(512));
    let value = |n: u16| value(n, u64::from(n)).repeat(9);
    // What comes between them comes into one extent.
    fixture.visible.raise(1);
    fixture.drain([0, 700].map(|n| Entry::put(&key(n), 1, b"small")).to_vec());
    let mut jobs = 0;
    for n in 2..=200 {
        fixture.visible.raise(u64::from(n));
        fixture.drain(vec![Entry::put(&key(n), u64::from(n), &value(n))]);
        jobs += fixture.compact_all();
    }
    let live = fixture.set.version(fixture.table).unwrap().live_values();
    assert!(live.len() < 64 && jobs < 8, "{} value extents after {jobs} jobs", live.len());
    (2..=200).for_each(|n| assert_eq!(fixture.get(&key(n), 300), Some(value(n))));
    fixture.verify();
}

#[test]
fn readers_go_on_while_extents_are_replaced() {
    let fixture = Fixture::with_options(SHAPE, TableOptions::new().large_values(512));
    fixture.visible.raise(1);
    fixture.drain((0..400).map(|n| Entry::put(&key(n), 1, &longer(n, 1))).collect());
    std::thread::scope(|scope| {
        for start in [0, 200] {
            let fixture = &fixture;
            scope.spawn(move || {
                for n in (0..400).cycle().skip(start).take(20_000) {
                    let version = fixture.set.version(fixture.table).unwrap();
                    let guard = pin();
                    let blocks = Blocks::new(&fixture.cache, &guard);
                    let found = version.get(&key(n), LSN_MAX, blocks).unwrap().unwrap();
                    let seq = found.seq;
                    assert_eq!(found.into_value().unwrap(), longer(n, seq));
                }
            });
        }
        for lsn in 2..40 {
            fixture.visible.raise(lsn);
            fixture.drain((0..400).map(|n| Entry::put(&key(n), lsn, &longer(n, lsn))).collect());
            fixture.compact_all();
        }
    });
    let mut report = Findings::default();
    fixture.set.verify(&mut report, &Meter::silent());
    assert_eq!(report, Findings::default());
}

/// What comes in the order of its keys overlaps nothing on its way down, and is compressed there
/// all the same, as blocks say themselves.
#[test]
fn each_level_has_its_compression_whatever_the_order_of_keys() {
    const NONE: u32 = 0;
    const ZSTD: u32 = 2;
    let shape = Shape { compression: (Compression::None, Compression::Zstd), ..SHAPE };
    let fixture = Fixture::new(shape);
    for lsn in 1..=12 {
        fixture.visible.raise(lsn);
        let keys = u16::try_from(lsn).unwrap() * 200..u16::try_from(lsn).unwrap() * 200 + 200;
        fixture.drain(keys.map(|n| Entry::put(&key(n), lsn, &[7; 300])).collect());
        fixture.compact_all();
    }
    let version = fixture.set.version(fixture.table).unwrap();
    let mut seen = [0; 2];
    for (level, extent) in version.extents() {
        // Of the header of its first block: checksum, length, compression.
        let header = fixture.set.store().read(&extent.meta().location, 0, 12).unwrap();
        let found = u32::from(header[8]);
        let below = level > SUBLEVELS;
        assert_eq!(found, if below { ZSTD } else { NONE }, "level {level}: {:?}", extent.meta());
        seen[usize::from(below)] += 1;
    }
    assert!(seen.iter().all(|seen| *seen > 0), "extents of level 1 and below: {seen:?}");
    assert!(fixture.get(&key(900), 20).is_some());
    fixture.verify();
}
