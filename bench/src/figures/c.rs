//! `c`: what the C interface costs beyond the Rust one: a get, a get into a buffer, a put that is
//! not synced, and a step of a cursor. Everything is in memory and warm; both sides take turns on
//! one thread.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use terrace_c::cursor::{Cursor, Row, terrace_cursor_first, terrace_cursor_next};
use terrace_c::database::{TERRACE_RELAXED, terrace_database_table, terrace_open};
use terrace_c::error::Status;
use terrace_c::table::{
    Table, terrace_table_cursor, terrace_table_get, terrace_table_get_into, terrace_table_put,
};
use terrace_c::value::terrace_value_release;
use terrace_c::{Buffer, Data, Text};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;

const VALUE: [u8; 100] = [7; 100];

/// Parts of a round, in each of which both sides are measured.
const TURNS: u32 = 10;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let (records, operations) =
        settings.pick((10_000, 20_000), (50_000, 200_000), (50_000, 500_000));
    let dir = settings.dir.join("c");
    // One database, opened by each side in turn: only one handle writes at a time.
    let path = std::ffi::CString::new(dir.to_str().context("a directory with a name in UTF-8")?)?;
    // SAFETY: the text ends with a zero byte and outlives the call.
    let opened = terrace_open(unsafe { Text::new(path.as_ptr()) }, None, None);
    // SAFETY: as above; the text is static.
    let name = unsafe { Text::new(c"t".as_ptr()) };
    let table = terrace_database_table(opened.as_deref(), name, None);
    let through_c = table.context("the table of the C interface")?;
    let direct = through_c.table();
    let mut random = Random::new(settings.seed);
    let keys: Vec<[u8; 8]> = (0..records).map(|_| random.next().to_be_bytes()).collect();
    let direct = &direct.durability(terrace::Durability::Relaxed);
    for key in &keys {
        direct.put(key, VALUE)?;
    }
    ensure!(direct.iter().count() == keys.len(), "rows are missing");
    let run = Run { keys: &keys, operations, direct, through_c: &through_c };
    for _ in 0..settings.rounds {
        run.get(report)?;
        run.put(report)?;
        run.scan(report)?;
    }
    for case in ["get", "get into a buffer", "put, unsynced", "a step of a cursor"] {
        let of = |report: &Report, side: &str| report.median(case, side, "time");
        if let (Some(c), Some(rust)) = (of(report, "C"), of(report, "Rust")) {
            report.add(case, "C", "beyond Rust", c - rust, "ns");
        }
    }
    Ok(())
}

struct Run<'a> {
    keys: &'a [[u8; 8]],
    operations: usize,
    direct: &'a terrace::Table,
    through_c: &'a Table,
}

impl Run<'_> {
    fn get(&self, report: &mut Report) -> Result<()> {
        let rust = |key: &[u8; 8]| Ok(usize::from(self.direct.get(black_box(key))?.is_some()));
        let c = |key: &[u8; 8]| {
            let mut value = MaybeUninit::uninit();
            let (table, out) = (Some(self.through_c), Some(&mut value));
            let status = black_box(terrace_table_get)(table, data(key), key.len(), out, None);
            // SAFETY: the call has written the value, whatever its outcome.
            terrace_value_release(Some(unsafe { value.assume_init_mut() }));
            Ok(usize::from(status == Status::TERRACE_OK))
        };
        self.both("get", report, rust, c)?;
        let rust = |key: &[u8; 8]| {
            let mut room = [0_u8; 128];
            let Some(value) = self.direct.get(black_box(key))? else { return Ok(0) };
            room[..value.len()].copy_from_slice(&value);
            black_box(&room);
            Ok(1)
        };
        let c = |key: &[u8; 8]| {
            let (mut room, mut len) = ([0_u8; 128], MaybeUninit::uninit());
            // SAFETY: the room has as many bytes as the call is told, and outlives it.
            let buffer = unsafe { Buffer::new(room.as_mut_ptr().cast()) };
            let (table, out) = (Some(self.through_c), Some(&mut len));
            let get = black_box(terrace_table_get_into);
            let status = get(table, data(key), key.len(), buffer, room.len(), out, None);
            black_box(&room);
            Ok(usize::from(status == Status::TERRACE_OK))
        };
        self.both("get into a buffer", report, rust, c)
    }

    fn put(&self, report: &mut Report) -> Result<()> {
        let rust = |key: &[u8; 8]| {
            self.direct.put(black_box(key), VALUE)?;
            Ok(1)
        };
        let c = |key: &[u8; 8]| {
            let (table, value, len) = (Some(self.through_c), data(&VALUE), VALUE.len());
            let put = black_box(terrace_table_put);
            let status = put(table, data(key), key.len(), value, len, TERRACE_RELAXED, None);
            Ok(usize::from(status == Status::TERRACE_OK))
        };
        // Fewer: what is put stays in the region.
        let run = Run { operations: self.operations / 10, ..*self };
        run.both("put, unsynced", report, rust, c)
    }

    /// Measures one operation on random keys, each side in turn.
    fn both(
        &self,
        case: &str,
        report: &mut Report,
        rust: impl Fn(&[u8; 8]) -> Result<usize>,
        c: impl Fn(&[u8; 8]) -> Result<usize>,
    ) -> Result<()> {
        let (mut random, mut spent) = (Random::new(1), [0.0, 0.0]);
        let each = self.operations / TURNS as usize;
        for _ in 0..TURNS {
            let picked: Vec<usize> =
                (0..each).map(|_| random.below(self.keys.len() as u64) as usize).collect();
            for (side, operation) in
                [&rust as &dyn Fn(&[u8; 8]) -> Result<usize>, &c].into_iter().enumerate()
            {
                let begin = Instant::now();
                let mut done = 0;
                for &at in &picked {
                    done += operation(&self.keys[at])?;
                }
                spent[side] += begin.elapsed().as_nanos() as f64;
                ensure!(done == each, "{done} of {each} operations of {case} succeeded");
            }
        }
        add(report, case, spent, each * TURNS as usize);
        Ok(())
    }

    /// Walks through the whole table, each side in turn.
    fn scan(&self, report: &mut Report) -> Result<()> {
        let mut cursor = terrace_table_cursor(Some(self.through_c), None, None);
        let cursor: &mut Cursor = cursor.as_deref_mut().context("a cursor")?;
        let mut spent = [0.0, 0.0];
        for _ in 0..TURNS {
            let begin = Instant::now();
            let mut rows = 0;
            for row in self.direct.iter() {
                black_box(row?);
                rows += 1;
            }
            spent[0] += begin.elapsed().as_nanos() as f64;
            let begin = Instant::now();
            let (mut row, mut found) = (MaybeUninit::<Row>::uninit(), 0);
            let next = black_box(terrace_cursor_next);
            let mut status = terrace_cursor_first(Some(&mut *cursor), Some(&mut row), None);
            while status == Status::TERRACE_OK {
                black_box(&row);
                found += 1;
                status = next(Some(&mut *cursor), Some(&mut row), None);
            }
            spent[1] += begin.elapsed().as_nanos() as f64;
            ensure!(rows == self.keys.len() && found == rows, "{rows} and {found} rows");
        }
        add(report, "a step of a cursor", spent, self.keys.len() * TURNS as usize);
        Ok(())
    }
}

fn data(bytes: &[u8]) -> Data {
    // SAFETY: the callers above pass the length of the same bytes, which outlive the call.
    unsafe { Data::new(bytes.as_ptr().cast()) }
}

/// The time of one operation on each side.
fn add(report: &mut Report, case: &str, [rust, c]: [f64; 2], operations: usize) {
    report.add(case, "Rust", "time", rust / operations as f64, "ns");
    report.add(case, "C", "time", c / operations as f64, "ns");
}
