//! Row locks, and what an optimistic transaction has to find unchanged, take memory: it is counted
//! and bounded, also without a lock on a range; and each lock is on the whole of its key.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use crate::common::tiny;
use terrace::{
    Database, Durability, Error, ErrorKind, Isolation, LockWait, Options, Table, Transaction,
    TxnOptions, WriteBatch,
};

fn open() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    (dir, db, table)
}

/// Puts rows from `from` on until one is refused; how many were not, and why that one was. Another
/// transaction locks a row between any two of them: so locks on rows do not become ranges.
fn fill(other: &Transaction, txn: &Transaction, table: &Table, from: u32) -> (u32, Error) {
    for n in 0..100_000u32 {
        let key = (from + n).to_be_bytes();
        let put = other.get_for_update(table, [&key[..], b"between"].concat());
        if let Err(e) = put.and_then(|_| txn.put(table, key, [1; 20])) {
            return (n, e);
        }
    }
    panic!("no number of locks was refused");
}

#[test]
fn locks_on_rows_are_counted_and_bounded() {
    const LIMIT: usize = 200_000;
    for optimistic in [false, true] {
        let (_dir, db, table) = open();
        let options = TxnOptions::new().lock_limit(LIMIT).spill_at(20_000);
        let options = if optimistic { options.optimistic() } else { options };
        let txn = db.begin_with(options.clone()).unwrap();
        let other = db.begin_with(TxnOptions::new().lock_limit(usize::MAX)).unwrap();
        let (rows, error) = fill(&other, &txn, &table, 0);
        drop(other);
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        for told in ["200000", "range_for_update", "lock_limit"] {
            assert!(error.to_string().contains(told), "{error}");
        }
        assert!((500..10_000).contains(&rows), "{rows} rows");
        let info = &db.transactions()[0];
        assert!(info.lock_memory <= LIMIT && info.lock_memory > LIMIT / 2, "{info:?}");
        let memory = db.stats().memory;
        assert!(memory.locks as usize <= LIMIT && memory.locks as usize > LIMIT / 2, "{memory:?}");
        assert!(memory.total() >= memory.locks + memory.writes, "{memory:?}");
        // What it has already asks for nothing more.
        txn.put(&table, 0u32.to_be_bytes(), [2; 20]).unwrap();
        assert!(txn.get_for_update(&table, 1u32.to_be_bytes()).unwrap().is_some());
        assert_eq!(txn.get(&table, rows.to_be_bytes()).unwrap(), None, "it was refused as a whole");
        txn.commit().unwrap();
        assert_eq!(table.iter().count(), rows as usize);
        assert_eq!((db.stats().memory.locks, db.locks_held()), (0, (0, 0)));

        // The way out that the error names.
        let txn = db.begin_with(options).unwrap();
        drop(txn.range_for_update(&table, 100_000u32.to_be_bytes()..).unwrap());
        for n in 0..3 * rows {
            txn.put(&table, (100_000 + n).to_be_bytes(), [1; 20]).unwrap();
        }
        assert!(db.transactions()[0].lock_memory < LIMIT / 4);
        txn.commit().unwrap();
        assert_eq!(table.iter().count(), 4 * rows as usize);
    }
}

/// Bug: a transaction as it is begun was refused its 370,768th put. Cause: each row that it wrote
/// had a lock of its own. Fix: where no other transaction has locks between them they become locks
/// on ranges, at each level that locks rows. Others are kept out of them, and a conflict with a row
/// between them is found.
#[test]
fn any_number_of_rows_is_written_within_the_limit() {
    const LIMIT: usize = 40_000;
    let isolations = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
    for (isolation, is_shuffled) in isolations.into_iter().flat_map(|i| [(i, false), (i, true)]) {
        let (_dir, db, table) = open();
        table.put(7_000_001u32.to_be_bytes(), "old").unwrap();
        let options = TxnOptions::new().isolation(isolation).lock_limit(LIMIT).spill_at(20_000);
        let txn = db.begin_with(options).unwrap();
        table.put(7_000_001u32.to_be_bytes(), "of another").unwrap();
        let row = |n: u32| if is_shuffled { n * 7919 % 10_007 } else { n } * 1000;
        for n in 0..10_000 {
            txn.set_savepoint("s").unwrap();
            txn.put(&table, row(n).to_be_bytes(), [1; 20]).unwrap();
            txn.release_savepoint("s").unwrap();
        }
        txn.set_savepoint("s").unwrap();
        txn.put(&table, 5u32.to_be_bytes(), "undone").unwrap();
        txn.roll_back_to("s").unwrap();
        let info = &db.transactions()[0];
        assert!(info.lock_memory <= LIMIT && info.locks < 500, "{info:?}");
        let other = db.begin_with(TxnOptions::new().lock_wait(LockWait::NoWait)).unwrap();
        for n in [0, 17, 9_000] {
            let refused = other.put(&table, row(n).to_be_bytes(), "of another");
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Timeout);
        }
        drop(other);
        if isolation == Isolation::Snapshot {
            let beside = txn.put(&table, 7_000_001u32.to_be_bytes(), "own");
            assert_eq!(beside.unwrap_err().kind(), ErrorKind::Conflict, "locked, and not checked");
            assert_eq!(db.transactions()[0].locks, 0);
            continue;
        }
        txn.commit().unwrap();
        assert_eq!((table.iter().count(), db.locks_held()), (10_001, (0, 0)));
    }
}

/// Reads of a serializable transaction are locks too, or relied on: keys, and ranges.
#[test]
fn what_is_read_is_bounded_where_it_has_to_stay() {
    let (_dir, db, table) = open();
    let options = TxnOptions::new().isolation(Isolation::Serializable).lock_limit(100_000);
    for options in [options.clone(), options.optimistic()] {
        let txn = db.begin_with(options).unwrap();
        // Between any two of them another transaction has a row: they are not joined.
        let other = db.begin_with(TxnOptions::new().lock_limit(usize::MAX)).unwrap();
        let refused = |read: &dyn Fn([u8; 4]) -> Result<(), Error>| {
            let read = |n: u32| {
                other.put(&table, [&n.to_be_bytes()[..], b"between"].concat(), "")?;
                read(n.to_be_bytes())
            };
            let error = (0..100_000).find_map(|n| read(n).err()).unwrap();
            assert!(error.to_string().contains("limit is 100000"), "{error}");
        };
        refused(&|key| txn.get(&table, key).map(drop));
        refused(&|key| txn.range(&table, key.to_vec()..[&key[..], b"a"].concat()).map(drop));
        drop(other);
        txn.get(&table, 0u32.to_be_bytes()).unwrap();
        txn.commit().unwrap();
    }
    // Other levels read as much as they like.
    let txn = db.begin_with(TxnOptions::new().lock_limit(0)).unwrap();
    (0..100u32).for_each(|n| assert_eq!(txn.get(&table, n.to_be_bytes()).unwrap(), None));
    assert_eq!(db.stats().memory.locks, 0);
}

/// Bug: an optimistic transaction could pop no more than some thousand rows. Cause: the range of
/// each pop was counted, though it becomes one with that of the pop before. Fix: what it is joined
/// with is counted no more.
#[test]
fn ranges_that_become_one_are_counted_once() {
    let (_dir, db, table) = open();
    let mut batch = terrace::WriteBatch::new();
    for n in 0..6000u32 {
        batch.put(&table, n.to_be_bytes(), "v");
    }
    db.write(batch).unwrap();
    let serializable = TxnOptions::new().isolation(Isolation::Serializable).lock_limit(100_000);
    for options in [serializable.clone(), serializable.optimistic()] {
        let txn = db.begin_with(options).unwrap();
        for n in 0..3000u32 {
            let from_front = txn.pop_first(&table).unwrap().unwrap().0;
            assert_eq!(&from_front[..], n.to_be_bytes());
        }
        assert!(db.transactions()[0].lock_memory < 1000, "{:?}", db.transactions()[0]);
    }
}

/// A transaction that only wrote into a range that it owns is validated by that range: it finds
/// what others wrote there, and keeps others out.
#[test]
fn an_optimistic_range_stands_for_the_rows_in_it() {
    let (_dir, db, table) = open();
    let begin = || {
        let txn = db.begin_with(TxnOptions::new().optimistic()).unwrap();
        drop(txn.range_for_update(&table, "a".."m").unwrap());
        txn.put(&table, "c", "1").unwrap();
        txn
    };
    let txn = begin();
    table.put("c", "2").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let txn = begin();
    table.put("d", "2").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Conflict);

    let reader = TxnOptions::new().isolation(Isolation::Serializable);
    let reader = db.begin_with(reader.lock_wait(LockWait::NoWait)).unwrap();
    reader.get(&table, "c").unwrap();
    let options = TxnOptions::new().optimistic().lock_wait(LockWait::NoWait);
    let txn = db.begin_with(options).unwrap();
    drop(txn.range_for_update(&table, "a".."m").unwrap());
    txn.put(&table, "c", "3").unwrap();
    assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Timeout, "a reader has it locked");
    drop(reader);
    begin().commit().unwrap();
    assert_eq!(table.get("c").unwrap().unwrap(), "1");
}

#[test]
fn under_a_memory_limit_all_locks_together_have_a_part_of_it() {
    const LIMIT: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().pm_size(4 << 20).stepped().memory(LIMIT);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let first = db.begin_with(TxnOptions::new().spill_at(20_000)).unwrap();
    let second = db.begin_with(TxnOptions::new().spill_at(20_000)).unwrap();
    let (other, beside) = (db.begin().unwrap(), db.begin().unwrap());
    for n in 0..1000u32 {
        other.get_for_update(&table, [&n.to_be_bytes()[..], b"between"].concat()).unwrap();
        first.put(&table, n.to_be_bytes(), [1; 20]).unwrap();
        beside.get_for_update(&table, (2_000_000 + n).to_be_bytes()).unwrap();
    }
    let (rows, error) = fill(&other, &second, &table, 1_000_000);
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    for told in ["1048576", "larger memory", "range_for_update"] {
        assert!(error.to_string().contains(told), "{error}");
    }
    while db.step().unwrap() {}
    let memory = db.stats().memory;
    // Each of the four has told of all but some kilobytes.
    let most = LIMIT / 8 + (32 << 10);
    assert!(memory.locks <= most && memory.total() <= LIMIT, "{memory:?}");
    assert!(first.put(&table, [9; 5], "").is_err(), "what is taken is taken from all");
    // Rows next to each other become a range, though they take less than a part of the limit.
    beside.get_for_update(&table, 2_001_000u32.to_be_bytes()).unwrap();
    drop(beside);
    second.commit().unwrap();
    first.put(&table, [9; 5], "").unwrap();
    first.commit().unwrap();
    drop(other);
    assert_eq!((table.iter().count(), db.stats().memory.locks), (rows as usize + 1001, 0));
}

#[test]
fn long_keys_count_with_their_length() {
    let (_dir, db, table) = open();
    let txn = db.begin().unwrap();
    for n in 0..4u8 {
        let key = [&[7; 60_000][..], &[n]].concat();
        txn.put(&table, key, "").unwrap();
    }
    let info = &db.transactions()[0];
    assert!(info.lock_memory >= 4 * 2 * 60_000, "in the table and with the owner: {info:?}");
    assert!(db.stats().memory.locks >= 4 * 2 * 60_000);
}

/// Two owners of keys that differ in the last byte alone do not meet; of equal ones they do.
#[test]
fn locks_are_on_full_keys() {
    let (_dir, db, table) = open();
    let now = TxnOptions::new().lock_wait(LockWait::NoWait);
    let key = |len: usize, last: u8| {
        let mut key = vec![0xab; len];
        key[len - 1] = last;
        key
    };
    let pairs = [
        (key(40, 1), key(40, 2)),
        (key(60_000, 1), key(60_000, 2)),
        (key(39, 0xab), key(40, 0xab)),
        (key(59_999, 0xab), key(60_000, 0xab)),
        (Vec::new(), vec![0]),
    ];
    for (one, other) in pairs {
        let (a, b) = (db.begin_with(now.clone()).unwrap(), db.begin_with(now.clone()).unwrap());
        a.put(&table, &one, "a").unwrap();
        b.put(&table, &other, "b").unwrap();
        let len = one.len();
        for (txn, key) in [(&a, &other), (&b, &one)] {
            let error = txn.put(&table, key, "").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{len}: {error}");
        }
        b.commit().unwrap();
        a.commit().unwrap();
        assert_eq!(table.get(&one).unwrap().unwrap(), "a", "{len}");
        assert_eq!(table.get(&other).unwrap().unwrap(), "b", "{len}");
    }
}

/// Bug: a plain batch beside transactions locked its rows one by one, without a limit. Cause: the
/// limit, and locks that become ranges, were of transactions alone. Fix: they are of each owner of
/// locks. Where another one has rows between them all, the batch is refused, and nothing written.
#[test]
fn a_plain_batch_is_bounded_too() {
    const ROWS: u32 = 8000;
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().pm_size(4 << 20).stepped().memory(8 << 20);
    let db = options.open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    let other = db.begin_with(TxnOptions::new().spill_at(20_000)).unwrap();
    other.get_for_update(&table, 3_999_999u32.to_be_bytes()).unwrap();
    let mut batch = WriteBatch::new();
    for n in (0..ROWS).rev() {
        batch.put(&table, (n * 1000).to_be_bytes(), "new");
    }
    let pending = db.enqueue(batch.clone(), Durability::Relaxed).unwrap();
    let (keys, ranges) = db.locks_held();
    assert!(keys < 2000 && ranges > 0, "{keys} keys, {ranges} ranges");
    assert!(db.stats().memory.locks < 512 << 10, "{:?}", db.stats().memory);
    pending.wait().unwrap();
    assert_eq!((table.iter().count(), db.locks_held()), (ROWS as usize, (1, 0)));

    // Two, or they would become a range.
    let another = db.begin().unwrap();
    let lock = |n: u32| {
        other.get_for_update(&table, (n * 1000 + 1).to_be_bytes())?;
        another.get_for_update(&table, (n * 1000 + 2).to_be_bytes())
    };
    let refused = (0..ROWS).find_map(|n| lock(n).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let refused = db.write(batch).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    assert!(refused.to_string().contains("commit in parts"), "{refused}");
    table.put("small", "goes on").unwrap();
    assert_eq!(table.iter().count(), ROWS as usize + 1);
    drop((other, another));
    assert_eq!((db.locks_held(), db.stats().memory.locks), ((0, 0), 0));
}
