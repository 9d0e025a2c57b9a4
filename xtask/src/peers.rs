//! `cargo xtask peers`: what the bench's rivals need, installed and built. Takes minutes, and is no
//! part of any check.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Debian's packages: RocksDB with its headers, and the compiler's library that reads them.
const PACKAGES: [&str; 3] = ["librocksdb-dev", "clang", "libclang-dev"];

/// The features of the bench that stand for peers.
const FEATURES: &str = "peer-rocksdb,peer-fjall,peer-redb,peer-lmdb,peer-indexes";

/// Installs what is missing and builds the bench with every peer.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let from = Instant::now();
    if library().is_none() || libclang().is_none() {
        install()?;
    }
    let library = library().context("librocksdb is still missing; install it by hand")?;
    let libclang = libclang().context("libclang is still missing; install it by hand")?;
    println!("building with {FEATURES}; RocksDB from {}", library.display());
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["build", "--release", "--package", "terrace-bench", "--features", FEATURES])
        .env("ROCKSDB_LIB_DIR", &library)
        .env("LIBCLANG_PATH", &libclang)
        .status()?;
    println!("peers: {:.0} s; run target/release/terrace-bench", from.elapsed().as_secs_f64());
    Ok(status.success())
}

fn install() -> Result<()> {
    println!("installing {}", PACKAGES.join(", "));
    let status = Command::new("apt-get").args(["install", "-y"]).args(PACKAGES).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("apt-get install {} failed; install them by hand", PACKAGES.join(" ")),
    }
}

/// The directory of the RocksDB library.
fn library() -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib"];
    places.iter().map(PathBuf::from).find(|place| place.join("librocksdb.so").exists())
}

/// The directory of the newest libclang.
fn libclang() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = versions
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("llvm-")))
        .map(|path| path.join("lib"))
        .filter(|lib| lib.join("libclang.so.1").exists())
        .collect();
    found.sort();
    found.pop()
}
