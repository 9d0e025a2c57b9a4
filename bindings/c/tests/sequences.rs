//! Sequences of calls, valid and invalid ones, through the functions that C calls, held against a
//! model in maps. Each sequence is made of a seed: it runs the same each time.
//!
//! One thread makes all calls. So a direct write of a row that the transaction has locked would
//! wait for nothing: it is made with a deadline, and has to time out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::path::Path;

use terrace_c::batch::*;
use terrace_c::cursor::*;
use terrace_c::database::*;
use terrace_c::error::*;
use terrace_c::operator::*;
use terrace_c::options::*;
use terrace_c::pending::*;
use terrace_c::range::*;
use terrace_c::snapshot::*;
use terrace_c::table::*;
use terrace_c::transaction::*;
use terrace_c::transaction_rows::*;
use terrace_c::value::*;
use terrace_c::{Buffer, Data, Slice, Slices, Text, Values};

/// Sequences of one database, and calls of one sequence.
const SEQUENCES: u64 = 250;
const CALLS: u64 = 30;

/// Keys that there are, the empty one among them.
const KEYS: u64 = 24;

const OK: Status = Status::TERRACE_OK;
const NOT_FOUND: Status = Status::TERRACE_NOT_FOUND;
const INVALID: Status = Status::TERRACE_INVALID;
const CLOSED: Status = Status::TERRACE_CLOSED;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write to a table.
type Write = (usize, Vec<u8>, Change);

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>),
    Delete,
    /// Appends: both tables have this merge operator.
    Merge(Vec<u8>),
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

fn data(bytes: &[u8]) -> Data {
    // SAFETY: the callers below pass the length of the same bytes, which outlive the call.
    unsafe { Data::new(bytes.as_ptr().cast()) }
}

fn text(text: &CString) -> Text {
    // SAFETY: the text ends with a zero byte and outlives the call.
    unsafe { Text::new(text.as_ptr()) }
}

/// The bytes that a call has lent.
fn lent<'a>(data: *const std::ffi::c_char, len: usize) -> &'a [u8] {
    assert!(!data.is_null());
    // SAFETY: the library has lent so many bytes, which are looked at before its next call.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Position {
    Nowhere,
    At(Vec<u8>),
    Before,
    Behind,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    First,
    Last,
    Seek,
    SeekForPrev,
    Next,
    Prev,
}

/// A cursor and what it should do.
struct Moving {
    cursor: Box<Cursor>,
    table: usize,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    position: Position,
    keys_only: bool,
    /// The rows of its moment; `None` for what the transaction of a number sees.
    rows: Result<Map, u64>,
}

/// A transaction and what it should do.
struct Running {
    transaction: Box<Transaction>,
    number: u64,
    began: [Map; 2],
    own: Vec<Write>,
    savepoints: Vec<(u64, usize)>,
    locked: BTreeSet<(usize, Vec<u8>)>,
    /// What others have written after its snapshot.
    changed: BTreeSet<(usize, Vec<u8>)>,
    /// Whether it goes on; and whether a call has ended it by its handle.
    ended: bool,
    taken: bool,
}

impl Running {
    fn sees(&self, table: usize) -> Map {
        let mut map = self.began[table].clone();
        for (at, key, value) in &self.own {
            if *at == table {
                write(&mut map, key, value);
            }
        }
        map
    }
}

fn write(map: &mut Map, key: &[u8], change: &Change) {
    match change {
        Change::Put(value) => drop(map.insert(key.to_vec(), value.clone())),
        Change::Delete => drop(map.remove(key)),
        Change::Merge(operand) => map.entry(key.to_vec()).or_default().extend(operand),
    }
}

struct World {
    random: Random,
    database: Option<Box<Database>>,
    tables: [Option<Box<Table>>; 2],
    model: [Map; 2],
    running: Option<Running>,
    transactions: u64,
    snapshots: Vec<(Box<Snapshot>, [Map; 2])>,
    cursors: Vec<Moving>,
    batch: Option<Box<Batch>>,
    batched: Vec<Write>,
    #[expect(clippy::vec_box, reason = "pointers to them stay valid while the list grows")]
    pending: Vec<Box<Pending>>,
    error: Option<Box<Error>>,
    calls: u64,
}

impl World {
    fn open(directory: &Path, seed: u64) -> World {
        let mut options = terrace_options_new();
        for (name, value) in [("mode", "emulated"), ("pm_size", "8MiB"), ("cache_size", "1MiB")] {
            let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
            let set = terrace_options_set(options.as_deref_mut(), text(&name), text(&value), None);
            assert_eq!(set, OK);
        }
        let path = CString::new(directory.to_str().unwrap()).unwrap();
        let database = terrace_open(text(&path), options.as_deref(), None);
        terrace_options_free(options);
        let mut of_tables = terrace_table_options_new();
        let (name, value) = (c"merge_operator".to_owned(), c"append".to_owned());
        let set =
            terrace_table_options_set(of_tables.as_deref_mut(), text(&name), text(&value), None);
        assert_eq!(set, OK);
        let table = |name: &str| {
            let (name, database) = (CString::new(name).unwrap(), database.as_deref());
            terrace_database_create_table(database, text(&name), of_tables.as_deref(), None)
        };
        let tables = [table("a"), table("b")];
        assert!(tables.iter().all(Option::is_some));
        terrace_table_options_free(of_tables);
        World {
            random: Random(seed),
            tables,
            database,
            model: [Map::new(), Map::new()],
            running: None,
            transactions: 0,
            snapshots: Vec::new(),
            cursors: Vec::new(),
            batch: terrace_batch_new(),
            batched: Vec::new(),
            pending: Vec::new(),
            error: None,
            calls: 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.random.below(KEYS) {
            0 => Vec::new(),
            n => format!("k{n:02}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.random.one_in(20) { 3000 } else { self.random.below(40) };
        let byte = self.random.next() as u8;
        vec![byte; len as usize]
    }

    fn pick(&mut self) -> usize {
        self.random.below(2) as usize
    }

    fn table(&self, at: usize) -> Option<&Table> {
        self.tables[at].as_deref()
    }

    /// The bounds of a range, for C and for the model.
    fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let bound = |world: &mut World| match world.random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(world.key()),
            _ => Bound::Excluded(world.key()),
        };
        (bound(self), bound(self))
    }

    fn call(&mut self) {
        self.calls += 1;
        match self.random.below(20) {
            0..=2 => self.write_directly(),
            3 if self.random.one_in(2) => self.end_row(),
            3 => self.get(),
            4 => self.get_into(),
            5 => self.multi_get(),
            6..=7 => self.add_to_batch(),
            8 => self.write_batch(),
            9 => self.delete_range(),
            10 => self.snapshot(),
            11 => self.open_cursor(),
            12..=15 => self.move_cursor(),
            16..=18 => self.transaction(),
            _ => self.misuse(),
        }
    }

    /// What others have written, for the running transaction and the model.
    fn written(&mut self, (table, key, value): &Write) {
        write(&mut self.model[*table], key, value);
        if let Some(running) = self.running.as_mut().filter(|running| !running.ended) {
            running.changed.insert((*table, key.clone()));
        }
    }

    fn is_locked(&self, table: usize, key: &[u8]) -> bool {
        let running = self.running.as_ref().filter(|running| !running.ended);
        running.is_some_and(|running| running.locked.contains(&(table, key.to_vec())))
    }

    fn write_directly(&mut self) {
        let (at, key, value) = (self.pick(), self.key(), self.value());
        if self.is_locked(at, &key) {
            let (k, v) = (data(&key), data(&value));
            let status = terrace_table_try_put(
                self.tables[at].as_deref(),
                k,
                key.len(),
                v,
                value.len(),
                1,
                Some(&mut self.error),
            );
            assert_eq!(status, Status::TERRACE_TIMEOUT);
            assert_eq!(terrace_error_status(self.error.as_deref()), status);
            return;
        }
        let durability = self.random.below(2) as u32;
        let (table, len) = (self.tables[at].as_deref(), key.len());
        let (k, v, value_len) = (data(&key), data(&value), value.len());
        let (status, change) = match self.random.below(3) {
            0 => (terrace_table_delete(table, k, len, durability, None), Change::Delete),
            1 => {
                let merged = terrace_table_merge(table, k, len, v, value_len, durability, None);
                (merged, Change::Merge(value))
            }
            _ => {
                let put = terrace_table_put(table, k, len, v, value_len, durability, None);
                (put, Change::Put(value))
            }
        };
        assert_eq!(status, OK);
        self.written(&(at, key, change));
    }

    fn check_value(status: Status, value: MaybeUninit<Value>, expected: Option<&Vec<u8>>) {
        // SAFETY: each call that gets a value writes it, whatever its outcome.
        let mut value = unsafe { value.assume_init() };
        match expected {
            Some(expected) => {
                assert_eq!(status, OK);
                assert_eq!(lent(value.data, value.len), expected.as_slice());
            }
            None => {
                assert_eq!(status, NOT_FOUND);
                assert!(value.data.is_null());
            }
        }
        terrace_value_release(Some(&mut value));
        terrace_value_release(Some(&mut value));
    }

    fn get(&mut self) {
        let (at, key) = (self.pick(), self.key());
        let mut value = MaybeUninit::uninit();
        let status =
            terrace_table_get(self.table(at), data(&key), key.len(), Some(&mut value), None);
        World::check_value(status, value, self.model[at].get(&key));
    }

    /// The least or the greatest row of a table, a snapshot or the transaction.
    fn end_row(&mut self) {
        let (at, is_last) = (self.pick(), self.random.one_in(2));
        let (mut key, mut value) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let (k, v, table) = (Some(&mut key), Some(&mut value), self.tables[at].as_deref());
        let which = self.random.below(3);
        let running = self.running.as_ref().filter(|_| which == 0);
        let (status, rows) = match (running, self.snapshots.first().filter(|_| which == 1)) {
            (Some(running), _) => {
                let transaction = Some(&*running.transaction);
                let status = match is_last {
                    false => terrace_transaction_first(transaction, table, k, v, None),
                    true => terrace_transaction_last(transaction, table, k, v, None),
                };
                if running.ended {
                    assert_eq!(status, CLOSED);
                    return;
                }
                (status, running.sees(at))
            }
            (_, Some((snapshot, model))) => {
                let status = match is_last {
                    false => terrace_snapshot_first(Some(snapshot), table, k, v, None),
                    true => terrace_snapshot_last(Some(snapshot), table, k, v, None),
                };
                (status, model[at].clone())
            }
            _ => {
                let status = match is_last {
                    false => terrace_table_first(table, k, v, None),
                    true => terrace_table_last(table, k, v, None),
                };
                (status, self.model[at].clone())
            }
        };
        let row = if is_last { rows.last_key_value() } else { rows.first_key_value() };
        World::check_value(status, key, row.map(|row| row.0));
        World::check_value(status, value, row.map(|row| row.1));
    }

    fn get_into(&mut self) {
        let (at, key, capacity) = (self.pick(), self.key(), self.random.below(60) as usize);
        let (mut room, mut len) = ([0_u8; 64], MaybeUninit::new(99));
        // SAFETY: the room has at least so many bytes, and outlives the call.
        let buffer = unsafe { Buffer::new(room.as_mut_ptr().cast()) };
        let status = terrace_table_get_into(
            self.table(at),
            data(&key),
            key.len(),
            buffer,
            capacity,
            Some(&mut len),
            None,
        );
        // SAFETY: it was written before the call.
        let len = unsafe { len.assume_init() };
        match self.model[at].get(&key) {
            None => assert_eq!((status, len), (NOT_FOUND, 0)),
            Some(value) if value.len() <= capacity => {
                assert_eq!((status, &room[..len]), (OK, value.as_slice()));
            }
            Some(value) => {
                assert_eq!((status, len), (Status::TERRACE_BUFFER_TOO_SMALL, value.len()));
                assert_eq!(room, [0; 64]);
            }
        }
    }

    fn multi_get(&mut self) {
        let at = self.pick();
        let keys: Vec<Vec<u8>> = (0..self.random.below(5)).map(|_| self.key()).collect();
        let slices: Vec<Slice> =
            keys.iter().map(|key| Slice { data: data(key), len: key.len() }).collect();
        let mut values: Vec<Value> = keys.iter().map(|_| Value::default()).collect();
        // SAFETY: both arrays have an element for each key, and outlive the call.
        let arrays = unsafe { (Slices::new(slices.as_ptr()), Values::new(values.as_mut_ptr())) };
        let status = terrace_table_multi_get(self.table(at), arrays.0, arrays.1, keys.len(), None);
        assert_eq!(status, OK);
        for (key, mut value) in keys.iter().zip(values) {
            match self.model[at].get(key) {
                Some(expected) => assert_eq!(lent(value.data, value.len), expected.as_slice()),
                None => assert!(value.data.is_null()),
            }
            terrace_value_release(Some(&mut value));
        }
    }

    fn add_to_batch(&mut self) {
        let (at, key, value) = (self.pick(), self.key(), self.value());
        let (batch, table) = (self.batch.as_deref_mut(), self.tables[at].as_deref());
        let (k, len, v, value_len) = (data(&key), key.len(), data(&value), value.len());
        let (status, change) = match self.random.below(4) {
            0 => (terrace_batch_delete(batch, table, k, len, None), Change::Delete),
            1 => {
                let merged = terrace_batch_merge(batch, table, k, len, v, value_len, None);
                (merged, Change::Merge(value))
            }
            _ => {
                let put = terrace_batch_put(batch, table, k, len, v, value_len, None);
                (put, Change::Put(value))
            }
        };
        assert_eq!(status, OK);
        self.batched.push((at, key, change));
        if self.random.one_in(12) {
            terrace_batch_clear(self.batch.as_deref_mut());
            self.batched.clear();
        }
        assert_eq!(terrace_batch_len(self.batch.as_deref()), self.batched.len());
    }

    fn write_batch(&mut self) {
        let batched = std::mem::take(&mut self.batched);
        let is_locked = batched.iter().any(|(table, key, _)| self.is_locked(*table, key));
        let (database, batch) = (self.database.as_deref(), self.batch.as_deref_mut());
        if is_locked {
            let status = terrace_database_try_write(database, batch, 1, None);
            assert_eq!(status, Status::TERRACE_TIMEOUT);
            assert_eq!(terrace_batch_len(self.batch.as_deref()), 0);
            return;
        }
        if self.random.one_in(2) {
            let pending = terrace_database_enqueue(database, batch, TERRACE_DURABLE, None);
            let pending = pending.expect("an enqueued batch");
            assert_eq!(terrace_pending_wait(Some(&pending), None), OK);
            self.pending.push(pending);
        } else {
            assert_eq!(terrace_database_write(database, batch, TERRACE_RELAXED, None), OK);
        }
        batched.iter().for_each(|write| self.written(write));
    }

    fn delete_range(&mut self) {
        if self.running.is_some() {
            return;
        }
        let (at, bounds) = (self.pick(), self.bounds());
        let range = range_of(&bounds);
        assert_eq!(terrace_table_delete_range(self.table(at), Some(&range), None), OK);
        self.model[at].retain(|key, _| !is_inside(&bounds, key));
    }

    fn snapshot(&mut self) {
        if self.snapshots.is_empty() || self.random.one_in(4) {
            let snapshot = terrace_database_snapshot(self.database.as_deref(), None);
            self.snapshots.push((snapshot.expect("a snapshot"), self.model.clone()));
            return;
        }
        let which = self.random.below(self.snapshots.len() as u64) as usize;
        if self.random.one_in(6) {
            terrace_snapshot_free(Some(self.snapshots.swap_remove(which).0));
            return;
        }
        let (at, key) = (self.pick(), self.key());
        let (snapshot, model) = &self.snapshots[which];
        let (mut value, len) = (MaybeUninit::uninit(), key.len());
        let (table, k) = (self.table(at), data(&key));
        let status = terrace_snapshot_get(Some(snapshot), table, k, len, Some(&mut value), None);
        World::check_value(status, value, model[at].get(&key));
    }

    fn open_cursor(&mut self) {
        if self.cursors.len() > 6 {
            let which = self.random.below(self.cursors.len() as u64) as usize;
            terrace_cursor_free(Some(self.cursors.swap_remove(which).cursor));
        }
        let (at, bounds) = (self.pick(), self.bounds());
        let (range, table) = (range_of(&bounds), self.tables[at].as_deref());
        let (cursor, rows) = match (self.random.below(3), &self.running, self.snapshots.first()) {
            (0, Some(running), _) => {
                let transaction = Some(&*running.transaction);
                let cursor = terrace_transaction_cursor(
                    transaction,
                    table,
                    Some(&range),
                    TERRACE_READ,
                    None,
                );
                assert_eq!(cursor.is_none(), running.taken);
                if running.taken {
                    return;
                }
                (cursor, Err(running.number))
            }
            (1, _, Some((snapshot, model))) => {
                let cursor = terrace_snapshot_cursor(Some(snapshot), table, Some(&range), None);
                (cursor, Ok(model[at].clone()))
            }
            _ => (terrace_table_cursor(table, Some(&range), None), Ok(self.model[at].clone())),
        };
        let cursor = cursor.expect("a cursor");
        let (position, keys_only) = (Position::Nowhere, false);
        self.cursors.push(Moving { cursor, table: at, bounds, position, keys_only, rows });
    }

    fn move_cursor(&mut self) {
        if self.cursors.is_empty() {
            return self.open_cursor();
        }
        let which = self.random.below(self.cursors.len() as u64) as usize;
        let (key, bounds) = (self.key(), self.bounds());
        let step = match self.random.below(12) {
            0 => Move::First,
            1 => Move::Last,
            2 => Move::Seek,
            3 => Move::SeekForPrev,
            4..=7 => Move::Next,
            _ => Move::Prev,
        };
        let (moves_range, turns_values) = (self.random.one_in(15), self.random.one_in(10));
        let running = self.running.as_ref();
        let moving = &mut self.cursors[which];
        let rows = match &moving.rows {
            Ok(rows) => Some(rows.clone()),
            Err(number) => running
                .filter(|running| running.number == *number && !running.ended)
                .map(|running| running.sees(moving.table)),
        };
        if moves_range {
            let range = range_of(&bounds);
            let set = terrace_cursor_set_range(Some(&mut moving.cursor), Some(&range), None);
            assert_eq!(set, OK);
            (moving.bounds, moving.position) = (bounds, Position::Nowhere);
        }
        if turns_values {
            moving.keys_only = !moving.keys_only;
            let cursor = Some(&mut *moving.cursor);
            assert_eq!(terrace_cursor_set_keys_only(cursor, moving.keys_only, None), OK);
        }
        moving.step(step, &key, rows.as_ref());
    }

    fn transaction(&mut self) {
        let Some(mut running) = self.running.take() else {
            let transaction = terrace_database_begin(self.database.as_deref(), None, None);
            let transaction = transaction.expect("a transaction");
            self.transactions += 1;
            let wait = terrace_transaction_set_lock_wait(Some(&transaction), TERRACE_NO_WAIT, None);
            assert_eq!(wait, OK);
            self.running = Some(Running {
                transaction,
                number: self.transactions,
                began: self.model.clone(),
                own: Vec::new(),
                savepoints: Vec::new(),
                locked: BTreeSet::new(),
                changed: BTreeSet::new(),
                ended: false,
                taken: false,
            });
            return;
        };
        match self.random.below(12) {
            0..=4 => self.write_in(&mut running),
            5..=6 => self.read_in(&mut running),
            7..=8 => self.savepoint_in(&mut running),
            9 => {
                terrace_transaction_free(Some(running.transaction));
                return;
            }
            _ => self.end(&mut running),
        }
        self.running = Some(running);
    }

    fn write_in(&mut self, running: &mut Running) {
        let (at, key, value) = (self.pick(), self.key(), self.value());
        let name = (at, key.clone());
        let conflicts = running.changed.contains(&name) && !running.locked.contains(&name);
        let expected = match (running.ended, conflicts) {
            (true, _) => CLOSED,
            (_, true) => Status::TERRACE_CONFLICT,
            _ => OK,
        };
        let (transaction, table) = (Some(&*running.transaction), self.tables[at].as_deref());
        let (k, len) = (data(&key), key.len());
        let (status, write) = match self.random.below(5) {
            0 => {
                let deleted = terrace_transaction_delete(transaction, table, k, len, None);
                (deleted, Some(Change::Delete))
            }
            1 => {
                let mut found = MaybeUninit::uninit();
                let out = Some(&mut found);
                let status =
                    terrace_transaction_get_for_update(transaction, table, k, len, out, None);
                if expected == OK {
                    World::check_value(status, found, running.sees(at).get(&key));
                    (OK, None)
                } else {
                    (status, None)
                }
            }
            2 => {
                let (v, value_len) = (data(&value), value.len());
                let merged =
                    terrace_transaction_merge(transaction, table, k, len, v, value_len, None);
                (merged, Some(Change::Merge(value)))
            }
            _ => {
                let (v, value_len) = (data(&value), value.len());
                let put = terrace_transaction_put(transaction, table, k, len, v, value_len, None);
                (put, Some(Change::Put(value)))
            }
        };
        assert_eq!(status, expected);
        running.ended |= expected != OK;
        if expected == OK {
            running.locked.insert(name);
            running.own.extend(write.map(|change| (at, key, change)));
        }
    }

    fn read_in(&mut self, running: &mut Running) {
        let (at, key) = (self.pick(), self.key());
        let mut value = MaybeUninit::uninit();
        let (transaction, k) = (Some(&*running.transaction), data(&key));
        let out = Some(&mut value);
        let status = terrace_transaction_get(transaction, self.table(at), k, key.len(), out, None);
        if running.ended {
            assert_eq!(status, CLOSED);
        } else {
            World::check_value(status, value, running.sees(at).get(&key));
        }
    }

    fn savepoint_in(&mut self, running: &mut Running) {
        let name = self.random.below(3);
        let c_name = CString::new(format!("savepoint {name}")).unwrap();
        let transaction = Some(&*running.transaction);
        let newest = running.savepoints.iter().rposition(|(known, _)| *known == name);
        let known = |newest: Option<usize>| match (running.ended, newest) {
            (true, _) => CLOSED,
            (_, None) => INVALID,
            _ => OK,
        };
        match self.random.below(3) {
            0 => {
                let status = terrace_transaction_set_savepoint(transaction, text(&c_name), None);
                assert_eq!(status, if running.ended { CLOSED } else { OK });
                running.savepoints.push((name, running.own.len()));
            }
            1 => {
                let status = terrace_transaction_roll_back_to(transaction, text(&c_name), None);
                assert_eq!(status, known(newest));
                if let Some(newest) = newest.filter(|_| status == OK) {
                    running.own.truncate(running.savepoints[newest].1);
                    running.savepoints.truncate(newest + 1);
                }
            }
            _ => {
                let status =
                    terrace_transaction_release_savepoint(transaction, text(&c_name), None);
                assert_eq!(status, known(newest));
                if let Some(newest) = newest.filter(|_| status == OK) {
                    running.savepoints.truncate(newest);
                }
            }
        }
    }

    fn end(&mut self, running: &mut Running) {
        let transaction = Some(&*running.transaction);
        let status = match self.random.below(4) {
            0 => {
                // After a conflict there is nothing to roll back, and nothing to complain of.
                let status = terrace_transaction_roll_back(transaction, None);
                assert_eq!(status, if running.taken { CLOSED } else { OK });
                (running.ended, running.taken) = (true, true);
                return;
            }
            1 => {
                let status = terrace_transaction_cancel(transaction, None);
                assert_eq!(status, if running.ended { NOT_FOUND } else { OK });
                running.ended = true;
                return;
            }
            2 => {
                let pending = terrace_transaction_enqueue(transaction, Some(&mut self.error));
                match pending {
                    Some(pending) => {
                        assert_eq!(terrace_pending_wait(Some(&pending), None), OK);
                        terrace_pending_free(Some(pending));
                        OK
                    }
                    None => terrace_error_status(self.error.as_deref()),
                }
            }
            _ => terrace_transaction_commit(transaction, None),
        };
        assert_eq!(status, if running.ended { CLOSED } else { OK });
        if !running.ended {
            for (table, key, value) in &running.own {
                write(&mut self.model[*table], key, value);
            }
        }
        (running.ended, running.taken) = (true, true);
    }

    /// Calls that cannot succeed, and change nothing.
    fn misuse(&mut self) {
        let (at, key) = (self.pick(), self.key());
        let (table, error) = (self.tables[at].as_deref(), Some(&mut self.error));
        let (k, null, len) = (data(&key), Data::null(), key.len());
        let mut value = MaybeUninit::uninit();
        let status = match self.random.below(13) {
            0 => terrace_table_get(None, k, len, Some(&mut value), error),
            1 => terrace_table_get(table, null, 7, Some(&mut value), error),
            2 => terrace_table_get(table, k, len, None, error),
            3 => terrace_table_put(table, k, len, null, 1, TERRACE_DURABLE, error),
            4 => terrace_table_put(table, k, len, k, len, 2 + self.random.0 as u32 % 9, error),
            5 => terrace_batch_put(self.batch.as_deref_mut(), None, k, len, k, len, error),
            6 => terrace_database_write(self.database.as_deref(), None, TERRACE_DURABLE, error),
            7 => terrace_cursor_next(None, None, error),
            8 => terrace_transaction_put(None, table, k, len, k, len, error),
            9 => {
                let kind = 4 + self.random.0 as u32 % 99;
                let lower = RangeBound { key: k, key_len: len, kind };
                let upper = RangeBound { key: null, key_len: 0, kind: TERRACE_UNBOUNDED };
                let range = Range { lower, upper };
                assert!(terrace_table_cursor(table, Some(&range), None).is_none());
                terrace_table_delete_range(table, Some(&range), error)
            }
            10 => {
                let long = vec![0; 64 * 1024 + 1];
                terrace_table_put(table, data(&long), long.len(), k, len, TERRACE_RELAXED, error)
            }
            11 => terrace_table_merge(table, k, len, null, 1, TERRACE_DURABLE, error),
            _ => {
                assert!(terrace_database_table(None, Text::null(), None).is_none());
                terrace_transaction_set_savepoint(None, Text::null(), error)
            }
        };
        assert_eq!(status, INVALID);
        assert_eq!(terrace_error_status(self.error.as_deref()), INVALID);
    }

    /// Frees what a sequence has made, in any order.
    fn free_handles(&mut self) {
        while !(self.running.is_none() && self.cursors.is_empty() && self.snapshots.is_empty()) {
            match self.random.below(3) {
                0 => terrace_transaction_free(self.running.take().map(|one| one.transaction)),
                1 => terrace_cursor_free(self.cursors.pop().map(|moving| moving.cursor)),
                _ => terrace_snapshot_free(self.snapshots.pop().map(|(snapshot, _)| snapshot)),
            }
        }
        self.pending.drain(..).for_each(|pending| terrace_pending_free(Some(pending)));
    }

    /// Every row of both tables, at once.
    fn check_all(&mut self) {
        for at in 0..2 {
            let mut cursor = terrace_table_cursor(self.table(at), None, None);
            let mut found = Map::new();
            loop {
                let mut row = MaybeUninit::uninit();
                match terrace_cursor_next(cursor.as_deref_mut(), Some(&mut row), None) {
                    Status::TERRACE_OK => {}
                    status => break assert_eq!(status, NOT_FOUND),
                }
                // SAFETY: a step that succeeds writes the row.
                let row: Row = unsafe { row.assume_init() };
                let (key, value) = (lent(row.key, row.key_len), lent(row.value, row.value_len));
                found.insert(key.to_vec(), value.to_vec());
            }
            terrace_cursor_free(cursor);
            assert_eq!(found, self.model[at]);
        }
    }

    /// Closes the database under its handles. They say so, and are freed in any order.
    fn close(mut self) {
        let status = terrace_close(self.database.as_deref(), None);
        assert_eq!(status, OK);
        let mut value = MaybeUninit::uninit();
        let (out, table) = (Some(&mut value), self.table(0));
        assert_eq!(terrace_table_get(table, data(b"k"), 1, out, None), CLOSED);
        for moving in &mut self.cursors {
            // Where no key can be, committed rows are not looked for.
            let is_end = moving.rows.is_ok() && is_empty(&moving.bounds);
            let status = terrace_cursor_first(Some(&mut moving.cursor), None, None);
            assert_eq!(status, if is_end { NOT_FOUND } else { CLOSED });
        }
        for (snapshot, _) in &self.snapshots {
            let out = Some(&mut value);
            let table = self.tables[1].as_deref();
            let status = terrace_snapshot_get(Some(snapshot), table, data(b"k"), 1, out, None);
            assert_eq!(status, CLOSED);
        }
        if self.random.one_in(2) {
            terrace_database_free(self.database.take());
            terrace_table_free(self.tables[0].take());
        }
        self.free_handles();
        terrace_batch_free(self.batch.take());
        self.tables.into_iter().for_each(|table| terrace_table_free(table));
        terrace_database_free(self.database);
        terrace_error_free(self.error);
    }
}

impl Moving {
    fn step(&mut self, step: Move, key: &[u8], rows: Option<&Map>) {
        let is_at_end = matches!(
            (&self.position, step),
            (Position::Behind, Move::Next) | (Position::Before, Move::Prev)
        );
        let (cursor, mut row) = (Some(&mut *self.cursor), MaybeUninit::uninit());
        let (out, k, len) = (Some(&mut row), data(key), key.len());
        let status = match step {
            Move::First => terrace_cursor_first(cursor, out, None),
            Move::Last => terrace_cursor_last(cursor, out, None),
            Move::Seek => terrace_cursor_seek(cursor, k, len, out, None),
            Move::SeekForPrev => terrace_cursor_seek_for_prev(cursor, k, len, out, None),
            Move::Next => terrace_cursor_next(cursor, out, None),
            Move::Prev => terrace_cursor_prev(cursor, out, None),
        };
        let Some(rows) = rows else {
            assert_eq!(status, if is_at_end { NOT_FOUND } else { CLOSED });
            return;
        };
        let inside = || rows.iter().filter(|(key, _)| is_inside(&self.bounds, key));
        let expected = match (step, &self.position) {
            (Move::Next, Position::Behind) | (Move::Prev, Position::Before) => None,
            (Move::Seek, _) => inside().find(|(one, _)| one.as_slice() >= key),
            (Move::SeekForPrev, _) => inside().rfind(|(one, _)| one.as_slice() <= key),
            (Move::Next, Position::At(at)) => inside().find(|(one, _)| *one > at),
            (Move::Prev, Position::At(at)) => inside().rfind(|(one, _)| *one < at),
            (Move::First | Move::Next, _) => inside().next(),
            (Move::Last | Move::Prev, _) => inside().next_back(),
        };
        match expected {
            Some((key, value)) => {
                assert_eq!(status, OK, "{step:?} from {:?}", self.position);
                // SAFETY: a step that succeeds writes the row.
                let row: Row = unsafe { row.assume_init() };
                assert_eq!(lent(row.key, row.key_len), key.as_slice());
                let value = if self.keys_only { &[] } else { value.as_slice() };
                assert_eq!(lent(row.value, row.value_len), value);
                self.position = Position::At(key.clone());
            }
            None => {
                assert_eq!(status, NOT_FOUND, "{step:?} from {:?}", self.position);
                self.position = match step {
                    Move::First | Move::Seek | Move::Next => Position::Behind,
                    Move::Last | Move::SeekForPrev | Move::Prev => Position::Before,
                };
            }
        }
    }
}

fn is_inside((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound.as_slice(),
        Bound::Excluded(bound) => key > bound.as_slice(),
    };
    above
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(bound) => key <= bound.as_slice(),
            Bound::Excluded(bound) => key < bound.as_slice(),
        }
}

/// Whether no key can lie inside.
fn is_empty(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match bounds {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), upper) => match upper {
            Bound::Included(upper) | Bound::Excluded(upper) => lower >= upper,
            Bound::Unbounded => false,
        },
    }
}

/// A range for C. It borrows the bounds, which outlive the call that gets it.
fn range_of((lower, upper): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Range {
    let bound = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => RangeBound { key: Data::null(), key_len: 0, kind: TERRACE_UNBOUNDED },
        Bound::Included(key) => {
            RangeBound { key: data(key), key_len: key.len(), kind: TERRACE_INCLUDED }
        }
        Bound::Excluded(key) => {
            RangeBound { key: data(key), key_len: key.len(), kind: TERRACE_EXCLUDED }
        }
    };
    Range { lower: bound(lower), upper: bound(upper) }
}

/// Sequences of one database.
fn run(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::open(&directory.path().join("db"), seed);
    for sequence in 0..SEQUENCES {
        for _ in 0..CALLS {
            world.call();
        }
        if sequence + 1 < SEQUENCES {
            world.free_handles();
        }
        if sequence % 16 == 0 {
            world.check_all();
        }
    }
    assert_eq!(world.calls, SEQUENCES * CALLS);
    world.close();
}

/// Ten thousand sequences, on two threads.
#[test]
fn any_sequence_of_calls_does_what_the_model_does() {
    const DATABASES: u64 = 10_000 / SEQUENCES;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                (0..DATABASES).filter(|seed| seed % 2 == thread).for_each(|seed| {
                    let outcome = std::panic::catch_unwind(|| run(seed));
                    assert!(outcome.is_ok(), "the sequences of seed {seed}");
                });
            });
        }
    });
}
