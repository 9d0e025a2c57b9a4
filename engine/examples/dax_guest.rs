//! What runs on the virtual machine of `cargo xtask dax`: it opens a database in `dax` mode, checks
//! what it finds, and commits until the machine is killed.
//!
//! `dax_guest DIRECTORY` expects a DAX file system there. It says `found N` and then `acked N`.

#![allow(clippy::print_stdout, reason = "it talks to the machine's console")]

use std::io::Write;
use std::path::PathBuf;

use terrace::{Mode, Options};

/// The value of a row, from its number.
fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + n as usize % 40)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = PathBuf::from(std::env::args().nth(1).ok_or("usage: dax_guest DIRECTORY")?);
    let options = Options::new().mode(Mode::Dax).pm_path(home.join("region")).pm_size(32 << 20);
    let db = options.open(home.join("db"))?;
    let table = db.table("t")?;
    let mut next = 0u64;
    for row in table.iter() {
        let (key, found) = row?;
        if key != next.to_be_bytes()[..] || found != value(next) {
            return Err(format!("row {next} is not what was written").into());
        }
        next += 1;
    }
    if let Some(damage) = db.verify()?.damages.first() {
        return Err(format!("damage: {damage:?}").into());
    }
    println!("mode {}, found {next}", db.stats().mode);
    loop {
        table.put(next.to_be_bytes(), value(next))?;
        next += 1;
        if next.is_multiple_of(50) {
            println!("acked {next}");
            std::io::stdout().flush()?;
        }
    }
}
