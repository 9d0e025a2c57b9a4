//! One database, its handles, and which call comes next.

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
use terrace_c::{Data, Text};

use super::cursors::*;
use super::model::*;
use super::pointers::*;
use super::transactions::*;
use super::*;

/// Keys that there are, the empty one among them.
pub(crate) const KEYS: u64 = 24;

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) database: Option<Box<Database>>,
    pub(crate) tables: [Option<Box<Table>>; 2],
    pub(crate) model: [Map; 2],
    pub(crate) running: Option<Running>,
    pub(crate) transactions: u64,
    pub(crate) snapshots: Vec<(Box<Snapshot>, [Map; 2])>,
    pub(crate) cursors: Vec<Moving>,
    pub(crate) batch: Option<Box<Batch>>,
    pub(crate) batched: Vec<Write>,
    #[expect(clippy::vec_box, reason = "pointers to them stay valid while the list grows")]
    pub(crate) pending: Vec<Box<Pending>>,
    pub(crate) error: Option<Box<Error>>,
    pub(crate) calls: u64,
}

impl World {
    pub(crate) fn open(directory: &Path, seed: u64) -> World {
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

    pub(crate) fn key(&mut self) -> Vec<u8> {
        match self.random.below(KEYS) {
            0 => Vec::new(),
            n => format!("k{n:02}").into_bytes(),
        }
    }

    pub(crate) fn value(&mut self) -> Vec<u8> {
        let len = if self.random.one_in(20) { 3000 } else { self.random.below(40) };
        let byte = self.random.next() as u8;
        vec![byte; len as usize]
    }

    pub(crate) fn pick(&mut self) -> usize {
        self.random.below(2) as usize
    }

    pub(crate) fn table(&self, at: usize) -> Option<&Table> {
        self.tables[at].as_deref()
    }

    /// The bounds of a range, for C and for the model.
    pub(crate) fn bounds(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let bound = |world: &mut World| match world.random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(world.key()),
            _ => Bound::Excluded(world.key()),
        };
        (bound(self), bound(self))
    }

    pub(crate) fn call(&mut self) {
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
    pub(crate) fn written(&mut self, (table, key, value): &Write) {
        write(&mut self.model[*table], key, value);
        if let Some(running) = self.running.as_mut().filter(|running| !running.ended) {
            running.changed.insert((*table, key.clone()));
        }
    }

    pub(crate) fn is_locked(&self, table: usize, key: &[u8]) -> bool {
        let running = self.running.as_ref().filter(|running| !running.ended);
        running.is_some_and(|running| running.locked.contains(&(table, key.to_vec())))
    }

    /// Calls that cannot succeed, and change nothing.
    pub(crate) fn misuse(&mut self) {
        let (at, key) = (self.pick(), self.key());
        let (table, error) = (self.tables[at].as_deref(), Some(&mut self.error));
        let (k, null, len) = (data(&key), Data::null(), key.len());
        let mut value = MaybeUninit::uninit();
        let call = self.random.below(13);
        let status = match call {
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
        let expected = if call == 10 { TOO_LARGE } else { INVALID };
        assert_eq!(status, expected);
        assert_eq!(terrace_error_status(self.error.as_deref()), expected);
    }

    /// Frees what a sequence has made, in any order.
    pub(crate) fn free_handles(&mut self) {
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
    pub(crate) fn check_all(&mut self) {
        for at in 0..2 {
            let mut cursor = terrace_table_cursor(self.table(at), None, None);
            let mut found = Map::new();
            loop {
                let mut row = MaybeUninit::uninit();
                match terrace_cursor_next(cursor.as_deref_mut(), Some(&mut row), None) {
                    Status::TERRACE_OK => {}
                    status => break assert_eq!(status, NOT_FOUND),
                }
                let row: Row = filled(row);
                let (key, value) = (lent(row.key, row.key_len), lent(row.value, row.value_len));
                found.insert(key.to_vec(), value.to_vec());
            }
            terrace_cursor_free(cursor);
            assert_eq!(found, self.model[at]);
        }
    }

    /// Closes the database under its handles. They say so, and are freed in any order.
    pub(crate) fn close(mut self) {
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
