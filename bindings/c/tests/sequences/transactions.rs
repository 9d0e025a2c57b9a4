//! The transaction that runs beside direct writes.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::mem::MaybeUninit;

use terrace_c::error::*;
use terrace_c::pending::*;
use terrace_c::transaction::*;
use terrace_c::transaction_rows::*;

use super::model::*;
use super::pointers::*;
use super::world::World;
use super::*;

/// A transaction and what it should do.
pub(crate) struct Running {
    pub(crate) transaction: Box<Transaction>,
    pub(crate) number: u64,
    pub(crate) began: [Map; 2],
    pub(crate) own: Vec<Write>,
    pub(crate) savepoints: Vec<(u64, usize)>,
    pub(crate) locked: BTreeSet<(usize, Vec<u8>)>,
    /// What others have written after its snapshot.
    pub(crate) changed: BTreeSet<(usize, Vec<u8>)>,
    /// Whether it goes on; and whether a call has ended it by its handle.
    pub(crate) ended: bool,
    pub(crate) taken: bool,
}

impl Running {
    pub(crate) fn sees(&self, table: usize) -> Map {
        let mut map = self.began[table].clone();
        for (at, key, value) in &self.own {
            if *at == table {
                write(&mut map, key, value);
            }
        }
        map
    }
}

impl World {
    pub(crate) fn transaction(&mut self) {
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

    pub(crate) fn write_in(&mut self, running: &mut Running) {
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

    pub(crate) fn read_in(&mut self, running: &mut Running) {
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

    pub(crate) fn savepoint_in(&mut self, running: &mut Running) {
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

    pub(crate) fn end(&mut self, running: &mut Running) {
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
}
