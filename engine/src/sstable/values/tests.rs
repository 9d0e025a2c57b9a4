use std::cell::Cell;

use super::*;
use crate::base::memory::Gauge;
use crate::base::options::Compression;
use crate::base::progress::Meter;
use crate::base::record::{Cursor, EntryRef, FORMAT, Kind, LSN_MAX, checksum};
use crate::mvcc::pin;
use crate::sstable::tests::{forward, sim_store};
use crate::sstable::{BlockCache, Blocks, ExtentBuilder, Format, ReadAhead};
use crate::storage::Location;

/// Values from 600 bytes on, in value extents of 4000 as a rule.
struct Plan {
    store: Arc<ExtentStore>,
    extent_bytes: usize,
    compression: Compression,
    next: Cell<u64>,
    collects: Option<u64>,
}

impl Plan {
    fn new(store: &Arc<ExtentStore>, compression: Compression) -> Plan {
        let (next, collects) = (Cell::new(100), None);
        Plan { store: Arc::clone(store), extent_bytes: 4000, compression, next, collects }
    }
}

impl Layout for Plan {
    fn store(&self) -> &Arc<ExtentStore> {
        &self.store
    }

    fn gauge(&self) -> &Arc<Gauge> {
        &self.store.memory().jobs
    }

    fn format(&self) -> Format {
        Format { large_values: Some(600), ..Format::new(self.compression) }
    }

    fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    fn next_id(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    fn write_values(&self, _: u64, bytes: &[u8]) -> Result<Location> {
        self.store.write_new(bytes)
    }

    fn collects(&self, id: u64) -> bool {
        self.collects == Some(id)
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

/// Of 300 to 1500 bytes; every other one can be compressed.
fn value(n: u64) -> Vec<u8> {
    let noise = |i: u64| (n * 7919 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    (0..300 + n % 5 * 300).map(|i| if n.is_multiple_of(2) { 7 } else { noise(i) as u8 }).collect()
}

fn write(
    id: u64,
    entries: &[(Vec<u8>, Kind, Vec<u8>)],
    sources: ValueExtents,
    plan: &Plan,
) -> Arc<Extent> {
    let mut values = ValueWriter::new(sources);
    let mut builder = ExtentBuilder::new(id, plan.format());
    for (key, kind, value) in entries {
        let entry = EntryRef { key, seq: 5, kind: *kind, value };
        match values.place(&entry, plan).unwrap() {
            None => builder.add(entry),
            Some(value) => builder.add(EntryRef { kind: Kind::Reference, value: &value, ..entry }),
        }
    }
    let mut built = builder.finish();
    values.describe(&mut built, plan).unwrap();
    built.write(&plan.store).unwrap()
}

fn rows(count: u64) -> Vec<(Vec<u8>, Kind, Vec<u8>)> {
    (0..count).map(|n| (key(n), Kind::Put, value(n))).collect()
}

fn entries_of(extent: &Arc<Extent>) -> Vec<(Vec<u8>, Kind, Vec<u8>)> {
    let cache = BlockCache::new(1 << 20);
    let mut cursor = extent.cursor(&cache, &ReadAhead::for_job(1));
    cursor.seek(b"", LSN_MAX).unwrap();
    forward(&mut cursor).into_iter().map(|entry| (entry.key, entry.kind, entry.value)).collect()
}

fn check(extent: &Extent) -> Vec<Damage> {
    let mut report = Findings::default();
    extent.verify(&mut report);
    extent.values().iter().for_each(|values| {
        values.verify(&mut report);
    });
    assert_eq!(report.unreadable, []);
    report.damages
}

fn read(extent: &Extent, n: u64) -> Result<Option<Bytes>> {
    let (cache, guard) = (BlockCache::new(1 << 20), pin());
    let found = extent.get(&key(n), LSN_MAX, Blocks::new(&cache, &guard))?;
    found.map(|found| found.into_value()).transpose()
}

#[test]
fn large_values_lie_apart_and_are_read_where_they_are() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (_, store) = sim_store();
        let extent = write(1, &rows(20), ValueExtents::new(), &Plan::new(&store, compression));
        assert_eq!(check(&extent), []);
        for n in 0..20 {
            assert_eq!(read(&extent, n).unwrap().unwrap(), value(n));
        }
        let meta = extent.meta();
        let raw: usize = rows(20).iter().map(|(key, _, value)| key.len() + value.len()).sum();
        assert_eq!(meta.raw_bytes, raw as u64, "as the user counts them");
        assert!(meta.values.len() > 1 && meta.values.iter().all(|v| v.of.location.len < 4200));
        let values: u32 = meta.values.iter().map(|one| one.of.values).sum();
        assert_eq!(values, 16, "those of 600 bytes and more");
        assert!(meta.values.iter().all(|one| one.bytes == u64::from(one.of.values_end())));
        // Again with the journal's word alone.
        let again = Extent::open(meta.clone(), Arc::clone(&store));
        assert_eq!(check(&again), []);
        assert_eq!(read(&again, 4).unwrap().unwrap(), value(4));
        extent.installed(1);
    }
}

#[test]
fn a_flip_of_any_byte_is_found_and_never_served() {
    let (files, store) = sim_store();
    let plan = Plan::new(&store, Compression::Lz4);
    let extent = write(1, &rows(5), ValueExtents::new(), &plan);
    extent.installed(1);
    for one in &*extent.meta().values {
        let at = one.of.location;
        for i in 0..u64::from(at.len) {
            files.corrupt(&store.path(at.file), at.offset + i, 1 << (i % 8));
            let fresh = Extent::open(extent.meta().clone(), Arc::clone(&store));
            assert!(!check(&fresh).is_empty(), "byte {i} of value extent {}", one.of.id);
            for n in 0..5 {
                match read(&fresh, n) {
                    Ok(found) => assert_eq!(found.unwrap(), value(n), "byte {i}"),
                    Err(error) => {
                        let damage = error.damage().unwrap();
                        assert!(damage.what.contains("value extent"), "{damage}");
                        assert!(damage.offset >= at.offset, "{damage}");
                    }
                }
            }
            files.corrupt(&store.path(at.file), at.offset + i, 1 << (i % 8));
        }
    }
    assert_eq!(check(&extent), []);
}

#[test]
fn another_value_in_the_same_place_does_not_pass() {
    let (_, store) = sim_store();
    let plan = Plan::new(&store, Compression::None);
    let a = write(1, &rows(5), ValueExtents::new(), &plan);
    plan.next.set(100);
    let others = rows(5).into_iter().map(|(k, kind, v)| (k, kind, [v, vec![1]].concat()));
    let b = write(2, &others.collect::<Vec<_>>(), ValueExtents::new(), &plan);
    // The same ids, elsewhere: an old one that was taken for the new one.
    let mut meta = a.meta().clone();
    meta.values = meta
        .values
        .iter()
        .zip(&*b.meta().values)
        .map(|(one, other)| {
            let of = ValueMeta { location: other.of.location, ..one.of };
            ValueUse { of, ..*one }
        })
        .collect();
    let swapped = Extent::open(meta, Arc::clone(&store));
    let error = read(&swapped, 2).unwrap_err();
    assert!(error.damage().unwrap().expected.contains("as its record has it"), "{error}");
    assert!(!check(&swapped).is_empty());
    // A list without one of them.
    let mut meta = a.meta().clone();
    meta.values = meta.values.iter().skip(1).copied().collect();
    let unlisted = Extent::open(meta, Arc::clone(&store));
    assert!(read(&unlisted, 1).unwrap_err().damage().is_some());
    assert!(!check(&unlisted).is_empty());
}

#[test]
fn values_are_taken_over_or_written_anew() {
    let (_, store) = sim_store();
    let plan = Plan::new(&store, Compression::Zstd);
    let first = write(1, &rows(20), ValueExtents::new(), &plan);
    let sources = values_of([&first]);
    let ids = |extent: &Extent| extent.meta().values.iter().map(|v| v.of.id).collect::<Vec<_>>();
    let emptied = ids(&first)[1];
    let plan = Plan { collects: Some(emptied), next: Cell::new(200), ..plan };
    let second = write(2, &entries_of(&first), sources.clone(), &plan);
    let mut want = ids(&first);
    want.retain(|id| *id != emptied);
    want.push(200);
    assert_eq!(ids(&second), want, "its values are in a new one");
    assert_eq!(second.meta().raw_bytes, first.meta().raw_bytes);
    drop((first, sources));
    assert_eq!(check(&second), [], "the space of the others is held");
    (0..20).for_each(|n| assert_eq!(read(&second, n).unwrap().unwrap(), value(n)));
}

#[test]
fn space_is_the_journals_as_long_as_it_names_an_extent_that_lists_it() {
    let (_, store) = sim_store();
    let taken = || store.space().taken_bytes;
    let plan = Plan::new(&store, Compression::None);
    drop(write(1, &rows(8), ValueExtents::new(), &plan));
    assert_eq!(taken(), 0, "never installed");
    let one = write(2, &rows(8), ValueExtents::new(), &plan);
    let two = write(3, &entries_of(&one), values_of([&one]), &plan);
    let (metas, values) = ([one.meta().clone(), two.meta().clone()], one.values().len() as u64);
    assert_eq!(metas[0].values, metas[1].values);
    one.installed(1);
    drop((one, two));
    assert_eq!(taken(), (1 + values) * 16 * 1024, "a unit for each: the journal has them");

    let mut known = ValueExtents::new();
    let one = Extent::open_among(metas[0].clone(), Arc::clone(&store), &mut known);
    let two = write(3, &entries_of(&one), std::mem::take(&mut known), &plan);
    two.installed(1);
    one.mark_obsolete();
    drop(one);
    assert_eq!(taken(), (1 + values) * 16 * 1024, "the other one lists them");
    let held = Arc::clone(&two.values()[0]);
    two.mark_obsolete();
    drop(two);
    assert_eq!(taken(), 16 * 1024, "a reader has one of them");
    drop(held);
    assert_eq!(taken(), 0);
}

#[test]
fn a_footer_of_another_format_is_refused() {
    for format in 0..4 {
        let mut footer = Footer { values: 0, content: 0 }.encode(7);
        footer[20..24].copy_from_slice(&u32::to_le_bytes(format));
        let sum = checksum(&[7], &footer[8..]);
        footer[4..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Footer::decode(7, sum, &footer).is_ok(), format == FORMAT, "format {format}");
    }
}

/// As [`rows`], with other values of the same lengths.
fn other_rows(count: u64) -> Vec<(Vec<u8>, Kind, Vec<u8>)> {
    rows(count).into_iter().map(|(key, kind, value)| (key, kind, other(&value))).collect()
}

fn other(value: &[u8]) -> Vec<u8> {
    value.iter().map(|byte| byte ^ 0x55).collect()
}

/// Bug: a value extent was taken for another one, with other values.
/// Cause: an id is given again when the job that it was given to has ended without an edit, and a
/// footer said no more than how many values there are.
/// Fix: it has a checksum of all values.
#[test]
fn value_extents_of_one_id_are_the_same_only_with_the_same_values() {
    let (_, store) = sim_store();
    let plan = || Plan::new(&store, Compression::None);
    let one = write(1, &rows(12), ValueExtents::new(), &plan());
    let same = write(1, &rows(12), ValueExtents::new(), &plan());
    let other = write(1, &other_rows(12), ValueExtents::new(), &plan());
    let values =
        |extent: &Extent| extent.meta().values.iter().map(|one| one.of).collect::<Vec<_>>();
    assert!(one.meta().is_copy_of(same.meta()) && !one.meta().is_copy_of(other.meta()));
    let pairs = values(&one).into_iter().zip(values(&same)).zip(values(&other));
    for ((one, same), other) in pairs {
        assert_eq!(
            (one.id, one.location.len, one.values),
            (other.id, other.location.len, other.values)
        );
        assert!(one.is_copy_of(&same) && !one.is_copy_of(&other), "{one:?} {other:?}");
    }
}

/// Bug: salvage without a journal lost values that were there.
/// Cause: of value extents with one id it took the first, which may be that of a job that ended
/// without an edit. Values of the live one were not found in it.
/// Fix: it takes the one that has the values, by the checksums in the references.
#[test]
fn of_value_extents_with_one_id_each_extent_is_salvaged_with_its_own() {
    let (_, store) = sim_store();
    let plan = || Plan::new(&store, Compression::None);
    let dead = write(1, &rows(12), ValueExtents::new(), &plan());
    let live = write(2, &other_rows(12), ValueExtents::new(), &plan());
    let alone =
        write(3, &rows(20)[15..], ValueExtents::new(), &Plan { next: Cell::new(500), ..plan() });
    assert_eq!(dead.meta().values[0].of.id, live.meta().values[0].of.id);
    for extent in [&dead, &live, &alone] {
        extent.installed(1);
    }
    let wanted = [(1, rows(12)), (2, other_rows(12)), (3, rows(20)[15..].to_vec())];
    assert!(salvaged(&store) == wanted.map(|(id, rows)| (id, rows, 0)));
}

type Row = (Vec<u8>, Kind, Vec<u8>);

/// The ids of the extents that are found, the rows that a salvage reads of each, and how many lines
/// it reports of it.
fn salvaged(store: &Arc<ExtentStore>) -> Vec<(u64, Vec<Row>, usize)> {
    let mut lost = Vec::new();
    let found = crate::sstable::find_extents(store, &mut lost, &Meter::silent()).unwrap();
    assert_eq!(lost, []);
    let extents = found.each_of(|_| true);
    let salvage = |extent: Arc<Extent>| {
        let (mut lost, mut read) = (Vec::new(), Vec::new());
        let each = |entry: &EntryRef<'_>| {
            read.push((entry.key.to_vec(), entry.kind, entry.value.to_vec()));
            Ok(())
        };
        found.salvage(&extent, &mut lost, each).unwrap();
        (extent.meta().id, read, lost.len())
    };
    extents.map(salvage).collect()
}

/// Bug: salvage without a journal lost all values of an extent for one that was damaged.
/// Cause: two value extents of one id may begin alike. The first reference whose value was not in
/// the one decided for the other, for all references of the extent. Later most references decided,
/// and a value was lost that lay in the other one, too.
/// Fix: each reference is read from a place that has its checksum.
#[test]
fn a_damaged_value_does_not_decide_between_value_extents_of_one_id() {
    let (_, store) = sim_store();
    let plan = || Plan::new(&store, Compression::None);
    // The first value that lies apart is the same in both.
    let others = [&rows(2)[..], &other_rows(12)[2..]].concat();
    let one = write(1, &rows(12), ValueExtents::new(), &plan());
    let other = write(2, &others, ValueExtents::new(), &plan());
    for extent in [&one, &other] {
        extent.installed(1);
    }
    let values = *one.values()[0].meta();
    assert_eq!(values.id, other.values()[0].meta().id);
    let mut bytes = one.values()[0].read_whole().unwrap();
    bytes[0] ^= 1;
    store.write(&values.location, &bytes).unwrap();
    assert!(salvaged(&store) == [(1, rows(12), 0), (2, others, 0)]);
}

/// Bug: salvage lost all values of a value extent for one header that was damaged.
/// Cause: where a value extent begins was found by the lengths in its headers, which lead from one
/// to the next.
/// Fix: it may begin at every place before its footer. The checksums in references say which.
#[test]
fn a_damaged_header_of_a_value_costs_one_value() {
    let (_, store) = sim_store();
    let one = write(1, &rows(40), ValueExtents::new(), &Plan::new(&store, Compression::None));
    one.installed(1);
    for values in one.values().iter() {
        let mut bytes = values.read_whole().unwrap();
        // The length of the first value.
        bytes[4] ^= 1;
        store.write(&values.meta().location, &bytes).unwrap();
    }
    let [(1, read, lost)] = &salvaged(&store)[..] else { panic!("one extent is there") };
    assert_eq!(*lost, one.values().len(), "one value of each");
    assert_eq!(read.len(), 40 - lost);
    assert!(read.iter().all(|row| rows(40).contains(row)));
}

/// Bug: salvage lost all values of a value extent for eight that were damaged at its head. Cause:
/// they are looked up first, and after so many that are nowhere a value extent was searched no
/// more. Fix: where it begins is known from the last value that its extent refers to. Where that
/// fails some others are looked for first, from the last one on.
#[test]
fn damaged_values_at_the_head_cost_no_others() {
    for (damaged, has_last) in [(8, true), (20, true), (8, false), (20, false)] {
        let (_, store) = sim_store();
        let plan = || Plan { extent_bytes: 1 << 20, ..Plan::new(&store, Compression::None) };
        let mut one = write(1, &rows(160), ValueExtents::new(), &plan());
        if !has_last {
            // It refers to all values but the last ones, in the order of keys.
            let kept = entries_of(&one)[..150].to_vec();
            let whole = one;
            one = write(2, &kept, values_of([&whole]), &plan());
            whole.installed(1);
            let at = whole.meta().location;
            store.write(&at, &vec![0; at.len as usize]).unwrap();
        }
        one.installed(1);
        let [values] = one.values() else { panic!("one value extent") };
        let mut bytes = values.read_whole().unwrap();
        let mut at = 0;
        for _ in 0..damaged {
            let (len, _) = frame::lens_of(&bytes[at..]).unwrap();
            bytes[at] ^= 1;
            at += HEADER_LEN + len as usize;
        }
        store.write(&values.meta().location, &bytes).unwrap();
        let found = salvaged(&store);
        let (_, read, lost) = found.last().unwrap();
        assert_eq!(*lost, damaged, "{has_last}");
        assert_eq!(read.len(), one.meta().records as usize - lost);
        assert!(read.iter().all(|row| rows(160).contains(row)));
    }
}

/// Bug: salvage lost values of an extent whose value extent has the id of a dead one. Cause: how
/// often a value was nowhere was counted for all extents together. What dead ones refer to used the
/// search up. Fix: it is counted for each extent. The last value may be one of an older version.
#[test]
fn what_dead_extents_refer_to_uses_no_search_up() {
    let (_, store) = sim_store();
    let plan = || Plan { extent_bytes: 1 << 20, ..Plan::new(&store, Compression::None) };
    let dead = write(1, &rows(160), ValueExtents::new(), &plan());
    let whole = write(2, &other_rows(160), ValueExtents::new(), &plan());
    // It refers to all values but the last ones, in the order of keys.
    let kept = entries_of(&whole)[..150].to_vec();
    let live = write(3, &kept, values_of([&whole]), &plan());
    [&dead, &whole, &live].iter().for_each(|extent| extent.installed(1));
    let gone = dead.values()[0].meta().location;
    assert_eq!(dead.values()[0].meta().id, whole.values()[0].meta().id);
    store.write(&gone, &vec![0; gone.len as usize]).unwrap();
    let footer = whole.meta().location;
    store.write(&footer, &vec![0; footer.len as usize]).unwrap();
    let found = salvaged(&store);
    let lost: Vec<(u64, usize)> = found.iter().map(|(id, _, lost)| (*id, *lost)).collect();
    let apart = entries_of(&live).len();
    assert_eq!(lost[1], (3, 0), "{lost:?}");
    assert!(found[1].1 == other_rows(160)[..apart]);
}

/// Bug: salvage lost all values of an extent that lies behind a dead one of its id. Cause: the
/// footer of the dead one was gone, its values were not. The first of them was found by the footer
/// behind, and where that one begins counted as known. Fix: several places may be known, and
/// a value that is in none of them is searched for.
#[test]
fn values_of_a_dead_extent_do_not_hide_those_behind_them() {
    let (_, store) = sim_store();
    let plan = || Plan::new(&store, Compression::None);
    let dead = write(1, &rows(12), ValueExtents::new(), &plan());
    let live = write(2, &other_rows(12), ValueExtents::new(), &plan());
    for extent in [&dead, &live] {
        extent.installed(1);
    }
    for values in dead.values().iter() {
        let location = values.meta().location;
        let mut bytes = values.read_whole().unwrap();
        let end = bytes.len() - meta::FOOTER_LEN;
        bytes[end..].fill(0);
        store.write(&location, &bytes).unwrap();
    }
    assert!(salvaged(&store) == [(1, rows(12), 0), (2, other_rows(12), 0)]);
}

/// Bug: one sector that could not be read ended a salvage without a journal.
/// Cause: files of extents are looked through by pieces of a megabyte, and an error ended that.
/// Fix: what cannot be read is narrowed down to its sectors.
#[test]
fn extents_are_found_beside_sectors_that_cannot_be_read() {
    let (files, store) = sim_store();
    let plan = Plan::new(&store, Compression::None);
    let extents = [1, 2, 3].map(|id| write(id, &rows(12), ValueExtents::new(), &plan));
    extents.iter().for_each(|extent| extent.installed(1));
    let bad = extents[1].meta().location;
    let end = bad.offset + u64::from(bad.len);
    files.make_unreadable(&store.path(bad.file), end - 1..end);
    let mut lost = Vec::new();
    let found = crate::sstable::find_extents(&store, &mut lost, &Meter::silent()).unwrap();
    let ids: Vec<u64> = found.each_of(|_| true).map(|extent| extent.meta().id).collect();
    assert_eq!(ids, [1, 3]);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!((lost[0].offset..lost[0].offset + 8192).contains(&(end - 1)), "{lost:?}");
}

/// Bug: a verification passed over a value of an earlier extent of the same id.
/// Cause: a value is sealed for its id and its offset, and the earlier one had both.
/// Fix: the footer has a checksum of all values, and of all blocks.
#[test]
fn a_part_of_an_earlier_extent_of_the_same_id_is_found() {
    let (_, store) = sim_store();
    let plan = || Plan::new(&store, Compression::None);
    let dead = write(1, &rows(12), ValueExtents::new(), &plan());
    let live = write(1, &other_rows(12), ValueExtents::new(), &plan());
    assert_eq!((check(&dead), check(&live)), (vec![], vec![]));
    let (old_records, records) = (dead.read_whole().unwrap(), live.read_whole().unwrap());
    let (old, new) = (&dead.values()[0], &live.values()[0]);
    let (old_bytes, mut bytes) = (old.read_whole().unwrap(), new.read_whole().unwrap());
    let (len, _) = frame::lens_of(&bytes).unwrap();
    let first = HEADER_LEN + len as usize;
    bytes[..first].copy_from_slice(&old_bytes[..first]);
    store.write(&new.meta().location, &bytes).unwrap();
    let mut report = Findings::default();
    new.verify(&mut report);
    assert_eq!(report.damages.len(), 1, "{report:?}");
    assert!(report.damages[0].expected.contains("written with"), "{report:?}");
    assert_eq!(new.read_whole().unwrap_err().kind(), crate::base::error::ErrorKind::Corrupt);

    let (len, _) = frame::lens_of(&records).unwrap();
    let block = HEADER_LEN + len as usize;
    assert!(records[..block] != old_records[..block], "it has references to other values");
    let spliced = [&old_records[..block], &records[block..]].concat();
    store.write(&live.meta().location, &spliced).unwrap();
    let again = Extent::open(live.meta().clone(), Arc::clone(&store));
    assert!(!check(&again).is_empty());
    assert!(again.read_whole().is_err());
}
