//! What runs where the medium fails: on the virtual machine of `cargo xtask dax`, and on the file
//! systems of `cargo xtask media`. It opens a database, checks what it finds, and commits until it
//! is killed or cannot go on.
//!
//! `guest dax|file|growing DIRECTORY` says `found N`, then `acked N`, and of what goes wrong
//! `full: …` or `stopped …`, and then how many rows can be read all the same. On files it says
//! `draining` when a drain begins, and `cut` when one ends after the file system did.

#![allow(clippy::print_stdout, reason = "it talks to the process that started it")]

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use terrace::testing::{Phase, watch_phases};
use terrace::{Database, ErrorKind, Mode, Options, Table, WriteBatch};

const USAGE: &str = "usage: guest dax|file|growing DIRECTORY";

/// How many threads are in each phase.
static PHASES: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

/// A file that cannot be made once the file system is down.
static PROBE: OnceLock<PathBuf> = OnceLock::new();

/// The value of a row, from its number. It does not compress, so that a disk is full soon.
fn value(n: u64) -> Vec<u8> {
    let words = 0..1 + n % 40;
    let word = |i: u64| (n << 8 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    words.flat_map(|i| (word(i) ^ word(i) >> 29).to_le_bytes()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next();
    let home = PathBuf::from(arguments.next().ok_or(USAGE)?);
    // A console is slow; where each commit is a sync, nothing is lost by telling of each.
    let (options, every) = match mode.as_deref() {
        Some("dax") => {
            (Options::new().mode(Mode::Dax).pm_path(home.join("region")).pm_size(32 << 20), 50)
        }
        Some("file") => (Options::new().pm_size(2 << 20).level1_size(1 << 20), 1),
        // The region grows while the guest commits, so growth meets what the medium does.
        Some("growing") => {
            (Options::new().pm_initial_size(2 << 20).pm_size(16 << 20).level1_size(1 << 20), 1)
        }
        _ => return Err(USAGE.into()),
    };
    if mode.as_deref() != Some("dax") {
        PROBE.get_or_init(|| home.join("probe"));
    }
    watch_phases(|phase, entered| {
        PHASES[phase as usize].fetch_add(if entered { 1 } else { -1 }, Ordering::Relaxed);
        match (phase, entered, PROBE.get()) {
            (Phase::Drain, true, Some(_)) => println!("draining"),
            (Phase::Drain, false, Some(probe)) if File::create(probe).is_err() => println!("cut"),
            _ => {}
        }
    });
    let db = options.open(home.join("db"))?;
    let tables = [db.table("t")?, db.table("u")?];
    let found = rows(&tables)?;
    if let Some(damage) = db.verify()?.damages.first() {
        return Err(format!("damage: {damage:?}").into());
    }
    println!("mode {}, found {found}", db.stats().mode);
    std::io::stdout().flush()?;
    go_on(&db, &tables, found, every)
}

/// Commits rows from number `next` on, telling of every so many.
fn go_on(
    db: &Database,
    tables: &[Table; 2],
    mut next: u64,
    every: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        match commit(db, tables, next) {
            Ok(()) => {
                next += 1;
                if next.is_multiple_of(every) {
                    println!("acked {next}");
                }
            }
            Err(e) if e.kind() == ErrorKind::Full => {
                println!("full: {e}");
                println!("read {}", rows(tables)?);
                // The test reads this and makes room.
                std::thread::park_timeout(Duration::from_millis(100));
            }
            Err(e) => {
                println!("stopped{}, {}: {e}", phases(), e.kind().as_str());
                match rows(tables) {
                    Ok(n) => println!("read {n}"),
                    Err(e) => println!("unreadable: {e}"),
                }
                return Ok(());
            }
        }
        std::io::stdout().flush()?;
    }
}

/// Where the engine is.
fn phases() -> String {
    let names = [(Phase::Commit, "commit"), (Phase::Drain, "drain"), (Phase::JournalEdit, "edit")];
    let is_in = |phase: Phase| PHASES[phase as usize].load(Ordering::Relaxed) > 0;
    names
        .into_iter()
        .filter(|(phase, _)| is_in(*phase))
        .map(|(_, name)| format!(" {name}"))
        .collect()
}

fn commit(db: &Database, tables: &[Table; 2], n: u64) -> terrace::Result<()> {
    let mut batch = WriteBatch::new();
    for table in tables {
        batch.put(table, n.to_be_bytes(), value(n));
    }
    db.write(batch)
}

/// How many rows there are: all from the first on, in both tables, each as it was written.
fn rows(tables: &[Table; 2]) -> Result<u64, Box<dyn std::error::Error>> {
    let mut lens = [0u64; 2];
    for (table, len) in tables.iter().zip(&mut lens) {
        for row in table.iter() {
            let (key, found) = row?;
            if key != len.to_be_bytes()[..] || found != value(*len) {
                return Err(format!("row {len} of {} is not what was written", table.name()).into());
            }
            *len += 1;
        }
    }
    if lens[0] == lens[1] { Ok(lens[0]) } else { Err(format!("a torn commit: {lens:?}").into()) }
}
