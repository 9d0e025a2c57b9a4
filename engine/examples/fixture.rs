//! Writes a fixture of the on-media format that this version writes; see `tests/suite/fixtures.rs`.
//!
//! `cargo run -p terrace --example fixture -- engine/tests/fixtures/format-N`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

#[path = "../tests/fixtures/content.rs"]
mod content;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use terrace::Result;

fn main() {
    let Some(target) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: fixture DIRECTORY, which is made");
        std::process::exit(2);
    };
    let made = tempfile::tempdir().map_err(|e| e.to_string());
    let done = made.and_then(|dir| {
        make(dir.path()).map_err(|e| e.to_string())?;
        pack(dir.path(), &target).map_err(|e| e.to_string())
    });
    if let Err(e) = done {
        eprintln!("fixture: {e}");
        std::process::exit(1);
    }
}

/// A database as a crash in its second opening leaves it: `path/crashed`.
fn make(path: &Path) -> Result<()> {
    let live = path.join("live");
    let db = content::options().stepped().open(&live)?;
    content::first_life(&db)?;
    db.close()?;
    let db = content::options().stepped().open(&live)?;
    content::second_life(&db)?;
    // All is durable and nothing runs: what the files have is what a power cut leaves.
    fs::create_dir(path.join("crashed")).expect("an empty directory");
    for name in names(&live).expect("a readable directory") {
        fs::copy(live.join(&name), path.join("crashed").join(&name)).expect("copies");
    }
    db.close()
}

fn pack(path: &Path, target: &Path) -> io::Result<()> {
    let from = path.join("crashed");
    fs::create_dir_all(target)?;
    for name in names(&from)?.into_iter().filter(|name| name != "LOCK") {
        let packed = zstd::bulk::compress(&fs::read(from.join(&name))?, 19)?;
        println!("{name}: {} bytes", packed.len());
        fs::write(target.join(format!("{name}.zst")), packed)?;
    }
    Ok(())
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
