#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::cell::RefCell;
use std::path::Path;

use super::*;
use crate::storage::ExtentStore;
use crate::version::{Edit, Manifest, Op};
use terrace_testkit::SimFiles;

const UNIT: u64 = 16_384;

fn place(n: u64) -> Location {
    Location { file: 1, offset: n * UNIT, len: 5000 }
}

/// An extent that refers to the value extent 9.
fn refers(id: u64, keys: (&str, &str), at: u64, values_at: u64) -> ExtentMeta {
    let values = ValueMeta { id: 9, location: place(values_at), values: 2, footer_checksum: 88 };
    ExtentMeta {
        id,
        location: place(at),
        records: 10,
        deletes: 0,
        tombstones: 0,
        smallest_seq: 3,
        greatest_seq: 12,
        one_seq: false,
        kept: 0,
        raw_bytes: 900,
        smallest_key: keys.0.into(),
        greatest_key: keys.1.into(),
        footer_checksum: 77,
        values: [ValueUse { of: values, bytes: 4000 }].into(),
    }
}

/// A destination that counts what it gets.
struct Target {
    store: Arc<ExtentStore>,
    next: u64,
    ids: RefCell<Vec<u64>>,
}

impl Target {
    fn new() -> Target {
        let files = SimFiles::new();
        crate::os::create_directory(&*files, Path::new("/db")).unwrap();
        let store = ExtentStore::open(files as _, Path::new("/db"), &[], false).unwrap();
        Target { store, next: 100, ids: RefCell::default() }
    }

    /// Copies extents, and says which ids were brought. What a manifest says of the copies can be
    /// read.
    fn copy(
        &mut self,
        known: &mut KnownExtents,
        metas: &[ExtentMeta],
    ) -> (Vec<u64>, Vec<Arc<ExtentMeta>>) {
        let mut copies = Vec::new();
        for meta in metas {
            let extent = Extent::open(meta.clone(), Arc::clone(&self.store));
            let mut put = |lacking: ToCopy<'_>| {
                self.next += 1;
                self.ids.borrow_mut().push(lacking.id);
                Ok(place(self.next))
            };
            copies.push(known.copy(&extent, &mut put).unwrap());
        }
        let create = Op::CreateTable { table: 3, created_lsn: 1, name: "t".into() };
        let add = |extent: &Arc<ExtentMeta>| Op::AddExtent {
            table: 3,
            level: 1,
            extent: Arc::clone(extent),
        };
        let ops = [create].into_iter().chain(copies.iter().map(add)).collect();
        let manifest = Manifest {
            database_id: [7; 16],
            number: 1,
            lsn: 20,
            created: 0,
            added: 0,
            oldest: 0,
            blob: None,
            edit: Edit { ops },
        };
        manifest.check().unwrap();
        (self.ids.take(), copies)
    }
}

/// Bug: a backup was acknowledged that could never be read, nor could its set.
/// Cause: a value extent was the same as no other, not even as its own copy of the same call. Two
/// extents that refer to it had two copies of it, at two places, and a manifest that says so is
/// refused.
/// Fix: a copy is known by the checksum of its content.
#[test]
fn extents_share_the_copy_of_their_values() {
    let metas = [refers(5, ("a", "b"), 1, 2), refers(6, ("c", "d"), 3, 2)];
    let (mut target, mut known) = (Target::new(), KnownExtents::default());
    let (brought, first) = target.copy(&mut known, &metas);
    assert_eq!(brought, [9, 5, 6]);
    assert_eq!(first[0].values[0].of, first[1].values[0].of);

    // What another opening of the database finds there is known by its checksums.
    let mut later = KnownExtents::default();
    first.iter().for_each(|extent| later.add(extent));
    assert_eq!(target.copy(&mut later, &metas), (vec![], first));
}

/// Bug: each checkpoint of the shared store sent extents again. Cause: one was the same as no
/// other. Fix: the checksums of their contents say which one is there.
#[test]
fn extents_are_brought_once() {
    let metas = [refers(5, ("a", "b"), 1, 2), refers(6, ("c", "d"), 3, 2)];
    let (mut target, mut known) = (Target::new(), KnownExtents::default());
    let (_, first) = target.copy(&mut known, &metas);
    first.iter().for_each(|extent| known.add(extent));
    let (brought, again) = target.copy(&mut known, &metas);
    assert_eq!((brought, again), (vec![], first.clone()));

    // Values that the destination lacks are brought with all that refers to them.
    let lost = first[0].values[0].of.location;
    known.forget(|place| *place == lost);
    let (brought, again) = target.copy(&mut known, &metas);
    assert_eq!(brought, [9, 5, 6]);

    // Those that the database has moved are the same.
    let moved = [refers(5, ("a", "b"), 1, 4), refers(6, ("c", "d"), 3, 4)];
    assert_eq!(target.copy(&mut known, &moved), (vec![], again));
}
