use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::compaction::pick;
use crate::extent::tests::{Entry, forward};
use crate::mvcc::{SnapshotRegistry, Watermark};
use crate::options::Compression;
use crate::os::Files;
use crate::os::sim::{SimFiles, Survive};
use crate::record::{Kind, Lsn, TableId};

const SHAPE: Shape = Shape {
    level1_bytes: 40_000,
    ratio: 3,
    extent_bytes: 8_000,
    compression: (Compression::Lz4, Compression::Zstd),
    drops_tombstones: false,
};

struct Fixture {
    files: Arc<SimFiles>,
    set: VersionSet,
    cache: Arc<BlockCache>,
    table: TableId,
    visible: Arc<Watermark>,
    snapshots: Arc<SnapshotRegistry>,
}

impl Fixture {
    fn new() -> Fixture {
        let files = SimFiles::new();
        files.create_directory(Path::new("/db")).unwrap();
        let set = VersionSet::create(Arc::clone(&files) as _, Path::new("/db"), [1; 16]).unwrap();
        let table = set.allocate_table_id();
        let op = Op::CreateTable { table, created_lsn: 1, name: "t".into() };
        set.apply(Edit { ops: vec![op] }, 1).unwrap();
        let visible = Arc::new(Watermark::new(0));
        let snapshots = SnapshotRegistry::new(Arc::clone(&visible));
        Fixture { files, set, cache: Arc::new(BlockCache::new(1 << 20)), table, visible, snapshots }
    }

    /// Merges newer records into level 1, as a drain does.
    fn drain(&self, mut newer: Vec<Entry>) {
        newer.sort_by(|a, b| a.key.cmp(&b.key));
        let version = self.set.version(self.table).unwrap();
        let store = self.set.store();
        let column = crate::extent::tests::write_extent(store, self.set.next_extent_id(), &newer);
        let below: Vec<_> = version.level(1).map_or(Vec::new(), |level| {
            let meta = column.meta();
            level.overlapping_closed(&meta.smallest_key, &meta.greatest_key).to_vec()
        });
        let horizon = self.snapshots.horizon();
        let ranges = Ranges::new(&version, 1, Vec::new(), &horizon);
        let ctx = MergeContext {
            set: &self.set,
            cache: &self.cache,
            replaces: &below,
            horizon: &horizon,
            bottom: |key: &[u8]| version.is_bottom(1, key),
            ranges: &ranges,
            extent_bytes: SHAPE.extent_bytes,
            compression: Compression::Zstd,
        };
        let below_cursor =
            LevelCursor::new(below.as_slice().into(), Arc::clone(&self.cache), false);
        let column_cursor = column.cursor(&self.cache, false);
        let mut input = MergingCursor::new(vec![Box::new(column_cursor), Box::new(below_cursor)]);
        let outputs = merge_to_level(&mut input, &ctx).unwrap();
        let table = self.table;
        let remove = below.iter().map(|e| Op::RemoveExtent { table, level: 1, id: e.meta().id });
        let mut ops: Vec<Op> = remove.collect();
        let add = |extent| Op::AddExtent { table, level: 1, extent };
        ops.extend(outputs.extents.into_iter().map(add));
        self.set.apply(Edit { ops }, self.visible.get()).unwrap();
    }

    /// Compacts until nothing is left to do.
    fn settle(&self) -> usize {
        for jobs in 0.. {
            let version = self.set.version(self.table).unwrap();
            let Some(choice) = pick(&version, &SHAPE) else { return jobs };
            let horizon = self.snapshots.horizon();
            let edit = run(&choice, &self.set, &self.cache, &horizon, &SHAPE).unwrap();
            self.set.apply(edit, self.visible.get()).unwrap();
            assert!(jobs < 10_000, "it ends");
        }
        unreachable!()
    }

    fn get(&self, key: &[u8], lsn: Lsn) -> Option<Vec<u8>> {
        let version = self.set.version(self.table).unwrap();
        let found = version.get(key, lsn, &self.cache).unwrap();
        found.filter(|f| f.kind == Kind::Put).map(|f| f.value.to_vec())
    }
}

fn key(n: u16) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

fn value(n: u16, lsn: Lsn) -> Vec<u8> {
    format!("{n}@{lsn}/").repeat(20).into_bytes()
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
            ),
            1..14,
        ),
    ) {
        let fixture = Fixture::new();
        let mut now = Model::new();
        let mut held = Vec::new();
        for (lsn, (batch, snapshot)) in (1u64..).zip(rounds) {
            fixture.visible.raise(lsn);
            let mut records = Vec::new();
            for (n, put) in batch {
                let value = put.then(|| value(n, lsn));
                records.push(match &value {
                    Some(value) => Entry::put(&key(n), lsn, value),
                    None => Entry::delete(&key(n), lsn),
                });
                now.insert(n, value);
            }
            if snapshot {
                held.push((fixture.snapshots.register(), now.clone()));
            }
            fixture.drain(records);
            fixture.settle();
            for (lsn, model) in held.iter().map(|(s, m)| (s.lsn(), m)).chain([(lsn, &now)]) {
                for n in (0..800).step_by(7) {
                    let want = model.get(&n).cloned().flatten();
                    prop_assert_eq!(fixture.get(&key(n), lsn), want, "key {} at {}", n, lsn);
                }
            }
        }
        let mut report = Vec::new();
        fixture.set.verify(&mut report);
        prop_assert_eq!(report, vec![]);
        let named: u64 = {
            let version = fixture.set.version(fixture.table).unwrap();
            let extents = version.levels.iter().flat_map(|l| l.extents().iter());
            extents.map(|e| u64::from(e.meta().location.len).next_multiple_of(16_384)).sum()
        };
        prop_assert_eq!(fixture.set.store().space().taken_bytes, named, "no space is leaked");
        let found = fixture.files.crash(Survive::Nothing);
        let again =
            VersionSet::open(found, Path::new("/db"), fixture.set.floor(), false).unwrap();
        prop_assert_eq!(again.store().space().taken_bytes, named);
    }
}

#[test]
fn versions_of_a_key_are_never_divided() {
    let fixture = Fixture::new();
    fixture.visible.raise(1);
    let mut held = Vec::new();
    for lsn in 1..200 {
        fixture.visible.raise(lsn);
        held.push(fixture.snapshots.register());
        fixture.drain(vec![Entry::put(b"hot", lsn, &[0; 200])]);
    }
    let shape = |f: &Fixture| {
        let version = f.set.version(f.table).unwrap();
        version.level(1).map(|level| (level.extents().len(), level.records()))
    };
    assert_eq!(shape(&fixture), Some((1, 199)));
    drop(held);
    fixture.drain(vec![Entry::delete(b"hot", 199)]);
    assert_eq!(shape(&fixture), None, "the tombstone goes too, at the bottom");
    assert_eq!(fixture.set.store().space().taken_bytes, 0);
}

#[test]
fn a_failed_sync_poisons_and_a_full_disk_does_not() {
    let fixture = Fixture::new();
    let horizon = fixture.snapshots.horizon();
    let version = fixture.set.version(fixture.table).unwrap();
    let ranges = Ranges::new(&version, 1, Vec::new(), &horizon);
    let ctx = MergeContext {
        set: &fixture.set,
        cache: &fixture.cache,
        replaces: &[],
        horizon: &horizon,
        bottom: |_: &[u8]| true,
        ranges: &ranges,
        extent_bytes: SHAPE.extent_bytes,
        compression: Compression::Zstd,
    };
    let source = crate::extent::tests::sim_store().1;
    let list: Vec<_> = (0..100).map(|n| Entry::put(&key(n), 1, &value(n, 1))).collect();
    let extent = crate::extent::tests::write_extent(&source, 1, &list);
    let mut input = extent.cursor(&fixture.cache, false);
    fixture.files.set_capacity(Some(1 << 20));
    let full = merge_to_level(&mut input, &ctx).unwrap_err();
    assert_eq!((full.kind(), fixture.set.poisoned()), (ErrorKind::Full, false));
    fixture.files.set_capacity(None);
    let outputs = merge_to_level(&mut input, &ctx).unwrap();
    assert_eq!((outputs.entries_in, outputs.entries_out), (100, 100));
    assert!(outputs.extents.len() > 1);
    let mut cursor =
        LevelCursor::new(outputs.extents.as_slice().into(), Arc::clone(&fixture.cache), true);
    cursor.seek(b"", LSN_MAX).unwrap();
    assert_eq!(forward(&mut cursor), list);
    drop((cursor, outputs));
    assert_eq!(fixture.set.store().space().taken_bytes, 0, "never installed");
    fixture.files.fail_sync_after(1);
    merge_to_level(&mut input, &ctx).unwrap_err();
    assert!(fixture.set.poisoned());
}

#[test]
fn what_was_cached_stays_cached() {
    let fixture = Fixture::new();
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
fn readers_go_on_while_extents_are_replaced() {
    let fixture = Fixture::new();
    fixture.visible.raise(1);
    fixture.drain((0..400).map(|n| Entry::put(&key(n), 1, &value(n, 1))).collect());
    std::thread::scope(|scope| {
        for start in [0, 200] {
            let fixture = &fixture;
            scope.spawn(move || {
                for n in (0..400).cycle().skip(start).take(20_000) {
                    let version = fixture.set.version(fixture.table).unwrap();
                    let found = version.get(&key(n), LSN_MAX, &fixture.cache).unwrap().unwrap();
                    assert_eq!(found.value, value(n, found.seq));
                }
            });
        }
        for lsn in 2..40 {
            fixture.visible.raise(lsn);
            fixture.drain((0..400).map(|n| Entry::put(&key(n), lsn, &value(n, lsn))).collect());
            fixture.settle();
        }
    });
    let mut report = Vec::new();
    fixture.set.verify(&mut report);
    assert_eq!(report, []);
}
