//! Rows: direct writes and reads, batches, range deletes.

use std::mem::MaybeUninit;

use terrace_c::Slice;
use terrace_c::batch::*;
use terrace_c::database::*;
use terrace_c::error::*;
use terrace_c::operator::*;
use terrace_c::pending::*;
use terrace_c::snapshot::*;
use terrace_c::table::*;
use terrace_c::transaction_rows::*;
use terrace_c::value::*;

use super::cursors::{is_inside, range_of};
use super::model::*;
use super::pointers::*;
use super::world::World;
use super::*;

impl World {
    pub(crate) fn write_directly(&mut self) {
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

    pub(crate) fn check_value(
        status: Status,
        value: MaybeUninit<Value>,
        expected: Option<&Vec<u8>>,
    ) {
        let mut value = filled(value);
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

    pub(crate) fn get(&mut self) {
        let (at, key) = (self.pick(), self.key());
        let mut value = MaybeUninit::uninit();
        let status =
            terrace_table_get(self.table(at), data(&key), key.len(), Some(&mut value), None);
        World::check_value(status, value, self.model[at].get(&key));
    }

    /// The least or the greatest row of a table, a snapshot or the transaction.
    pub(crate) fn end_row(&mut self) {
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

    pub(crate) fn get_into(&mut self) {
        let (at, key, capacity) = (self.pick(), self.key(), self.random.below(60) as usize);
        let (mut room, mut len) = ([0_u8; 64], MaybeUninit::new(99));
        let buffer = buffer(&mut room);
        let status = terrace_table_get_into(
            self.table(at),
            data(&key),
            key.len(),
            buffer,
            capacity,
            Some(&mut len),
            None,
        );
        let len = filled(len);
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

    pub(crate) fn multi_get(&mut self) {
        let at = self.pick();
        let keys: Vec<Vec<u8>> = (0..self.random.below(5)).map(|_| self.key()).collect();
        let slices: Vec<Slice> =
            keys.iter().map(|key| Slice { data: data(key), len: key.len() }).collect();
        let mut values: Vec<Value> = keys.iter().map(|_| Value::default()).collect();
        let arrays = arrays(&slices, &mut values);
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

    pub(crate) fn add_to_batch(&mut self) {
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

    pub(crate) fn write_batch(&mut self) {
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

    pub(crate) fn delete_range(&mut self) {
        if self.running.is_some() {
            return;
        }
        let (at, bounds) = (self.pick(), self.bounds());
        let range = range_of(&bounds);
        assert_eq!(terrace_table_delete_range(self.table(at), Some(&range), None), OK);
        self.model[at].retain(|key, _| !is_inside(&bounds, key));
    }
}
