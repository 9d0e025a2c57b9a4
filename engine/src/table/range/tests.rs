//! What a range returns of what lies before something that cannot be read.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::path::Path;
use std::sync::Arc;

use super::Range;
use crate::base::error::ErrorKind;
use crate::base::operator::MergeOperator;
use crate::base::options::{Compression, Options, TableOptions};
use crate::table::Table;
use terrace_testkit::Machine;

/// Makes no value of any operand.
struct Refuses;

impl MergeOperator for Refuses {
    fn name(&self) -> &str {
        "test.refuses"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[u8]) -> Result<Vec<u8>, String> {
        Err("no such value".to_string())
    }
}

/// The last byte of each row's key, and the kinds of the errors; a few calls beyond the first end.
fn all(
    mut next: impl FnMut() -> Option<crate::base::error::Result<Vec<u8>>>,
) -> (Vec<u8>, Vec<ErrorKind>) {
    let (mut keys, mut errors) = (Vec::new(), Vec::new());
    let mut ends = 0;
    while ends < 3 {
        match next() {
            Some(Ok(key)) => keys.push(*key.last().unwrap()),
            Some(Err(error)) => errors.push(error.kind()),
            None => ends += 1,
        }
    }
    (keys, errors)
}

/// Goes through a range in each way that there is; what each gave.
fn in_each_way(range: impl Fn() -> Range, from_back: bool) -> [(Vec<u8>, Vec<ErrorKind>); 4] {
    let turned = || if from_back { range().rev() } else { range() };
    let (mut rows, mut lent, mut back, mut lent_back) = (turned(), turned(), range(), range());
    let key = |row: crate::base::error::Result<(bytes::Bytes, bytes::Bytes)>| {
        row.map(|(key, _)| key.to_vec())
    };
    if !from_back {
        (back, lent_back) = (back.rev(), lent_back.rev());
    }
    [
        all(|| rows.next().map(key)),
        all(|| lent.next_with(|key, _| key.to_vec())),
        all(|| back.next_back().map(key)),
        all(|| lent_back.next_back_with(|key, _| key.to_vec())),
    ]
}

/// Checks that each way through the table from either end gives all rows before `bad` and then one
/// error. From one end, in blocks, some rows in front of it may share its fate.
fn gives_all_before(table: &Table, (first, last): (u8, u8), of: u8, kind: ErrorKind) {
    for (keys, errors) in in_each_way(|| table.range(..), false) {
        assert_eq!((keys, errors), ((0..first).collect(), vec![kind]), "upwards");
    }
    for (keys, errors) in in_each_way(|| table.range(..), true) {
        assert_eq!((keys, errors), ((last + 1..of).rev().collect(), vec![kind]), "downwards");
    }
    // What was read before is there for the other end too.
    let mut range = table.range(..);
    let (one, other) = (range.next().unwrap(), range.next_back().unwrap());
    assert_eq!((one.unwrap().0[0], other.unwrap().0[0]), (0, of - 1));
}

/// Bug: a range dropped up to a chunk of sound rows in front of one that could not be merged, or
/// whose block or value was damaged. Cause: the error of a chunk took the place of all that the
/// chunk had. Fix: a chunk ends in front of what cannot be read, and the next one begins with it.
#[test]
fn rows_in_front_of_one_that_cannot_be_merged_are_returned() {
    for bad in [0u8, 1, 40, 98, 99] {
        let machine = Machine::with_files();
        let options = Options::new().pm_size(4 << 20).stepped().machine(&machine);
        let db = options.merge_operator(Refuses).create("/db").unwrap();
        let merges = TableOptions::new().merge_operator("test.refuses");
        let table = db.create_table("t", merges).unwrap();
        for n in 0..100u8 {
            table.put([n], [n]).unwrap();
        }
        table.merge([bad], "1").unwrap();
        let kind = table.get([bad]).unwrap_err().kind();
        if bad > 0 && bad < 99 {
            gives_all_before(&table, (bad, bad), 100, kind);
        } else {
            let up = in_each_way(|| table.range(..), bad == 99);
            up.into_iter().for_each(|found| assert_eq!(found, (vec![], vec![kind])));
        }
        assert_eq!(table.range(..).keys().filter(|key| key.is_ok()).count(), 100, "of keys alone");
        assert_eq!(table.range(..).limit(usize::from(bad)).count(), usize::from(bad));
    }
}

/// A table of 200 rows with values of `len` bytes, all of it in level 1.
fn drained(machine: &Machine, len: usize) -> Table {
    let options = Options::new().pm_size(4 << 20).stepped().machine(machine).cache_size(0);
    let options = options.compression(Compression::None, Compression::None);
    let db = options.create("/db").unwrap();
    let table = db.table("t").unwrap();
    for n in 0..200u8 {
        table.put([n], vec![n; len]).unwrap();
    }
    db.compact_range(&table, ..).unwrap();
    table
}

/// Bug, cause and fix as above, of damage.
#[test]
fn rows_in_front_of_damage_are_returned() {
    for len in [300, 9000] {
        let machine = Machine::with_files();
        let table = drained(&machine, len);
        let store = table.shared.set.store();
        let view = Arc::clone(&table.slot.core().view());
        let (_, extent) = view.version.extents().next().unwrap();
        let values = extent.values().first().map(|values| values.meta().location);
        let at = values.unwrap_or(extent.meta().location);
        let path = store.path(at.file);
        machine.corrupt(Path::new(&path), at.offset + u64::from(at.len) / 2, 1);
        let is_bad = |n: u8| table.get([n]).is_err_and(|e| e.kind() == ErrorKind::Corrupt);
        let bad: Vec<u8> = (0..200).filter(|n| is_bad(*n)).collect();
        let (first, last) = (bad[0], bad[bad.len() - 1]);
        assert!(first > 2 && last < 197, "{bad:?}");
        gives_all_before(&table, (first, last), 200, ErrorKind::Corrupt);
    }
}
