//! `scheduler`: the time of one step of the background in a database of many tables, of which one
//! is written. A step that finds no job is a **look**: the price of choosing alone. Idle tables
//! have a row each in the region. Neither time may grow with their number.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use terrace::bench::{step, stepped};
use terrace::{Database, Durability, Options};

use crate::Settings;
use crate::report::Report;

const TABLES: [usize; 3] = [1, 1_000, 10_000];

/// Rows that the busy table gets before the background steps again, and their size.
const ROWS: u64 = 16;
const VALUE: usize = 1024;

/// Times that it gets them: all of it stays in the region.
const BATCHES: u64 = 1_000;

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let shm = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(if shm.is_dir() { shm } else { &settings.dir })?;
    let tables = if settings.quick { [1, 100, 1_000] } else { TABLES };
    for count in tables {
        let case = format!("{count} tables");
        if !settings.wants(&case, "terrace") {
            continue;
        }
        let path = dir.path().join(count.to_string());
        create(&path, count)?;
        for _ in 0..settings.rounds {
            let db = stepped(options()).open(&path)?;
            let (steps, looks) = run(&db, settings)?;
            report.add(&case, "terrace", "step", steps, "ns");
            report.add(&case, "terrace", "look", looks, "ns");
            db.close()?;
        }
        std::fs::remove_dir_all(&path)?;
    }
    Ok(())
}

fn options() -> Options {
    Options::new().pm_size(256 << 20)
}

/// A database with a row in each of `count` tables.
fn create(path: &Path, count: usize) -> Result<()> {
    let db = stepped(options()).create(path)?;
    for n in 0..count {
        db.table(&format!("table {n:05}"))?.durability(Durability::Relaxed).put("row", [1; 100])?;
    }
    Ok(db.close()?)
}

/// Mean nanoseconds of a step that ran a job, and of a look.
fn run(db: &Database, settings: &Settings) -> Result<(f64, f64)> {
    let busy = db.table("table 00000")?.durability(Durability::Relaxed);
    while step(db)? {}
    let batches = if settings.quick { BATCHES / 10 } else { BATCHES };
    let [mut steps, mut looks] = [(Duration::ZERO, 0_u32); 2];
    for n in 0..batches * ROWS {
        busy.put(n.to_be_bytes(), [1; VALUE])?;
        if n % ROWS > 0 {
            continue;
        }
        loop {
            let began = Instant::now();
            let was_one = step(db)?;
            let of = if was_one { &mut steps } else { &mut looks };
            *of = (of.0 + began.elapsed(), of.1 + 1);
            if !was_one {
                break;
            }
        }
    }
    let mean = |(time, count): (Duration, u32)| time.as_nanos() as f64 / f64::from(count.max(1));
    Ok((mean(steps), mean(looks)))
}
