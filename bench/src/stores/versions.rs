//! Which versions are measured: those that this program was built with, and of the library that is
//! loaded where it comes from the system.

use super::Kind;

const LOCK: &str = include_str!("../../../Cargo.lock");

/// A store's name and version.
pub(crate) fn version(kind: Kind) -> String {
    match kind {
        Kind::RocksDb
        | Kind::RocksDbTuned
        | Kind::RocksDbZstd
        | Kind::RocksDbPiled
        | Kind::RocksDbLogged => {
            let library = loaded("librocksdb.so").unwrap_or_else(|| "linked in".into());
            format!("RocksDB ({library}) through the crate rocksdb {}", locked("rocksdb"))
        }
        Kind::Fjall | Kind::FjallTuned => format!("fjall {}", locked("fjall")),
        Kind::Redb => format!("redb {}", locked("redb")),
        Kind::Lmdb | Kind::LmdbTuned => {
            format!(
                "LMDB of lmdb-master-sys {}, heed {}",
                locked("lmdb-master-sys"),
                locked("heed")
            )
        }
        _ => format!("terrace {}, commit {}", env!("CARGO_PKG_VERSION"), crate::report::commit()),
    }
}

/// The version of a crate that this program was built with.
fn locked(name: &str) -> &'static str {
    let entry = LOCK.split("[[package]]").find(|e| e.contains(&format!("name = \"{name}\"\n")));
    let line = entry.and_then(|e| e.lines().find_map(|line| line.strip_prefix("version = ")));
    line.map_or("of an unknown version", |version| version.trim_matches('"'))
}

/// The file name, with its version, of a library that this process has loaded.
fn loaded(library: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find(|line| line.contains(library))?.split_whitespace().last()?;
    Some(path.rsplit('/').next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(locked("serde").starts_with("1."), "{}", locked("serde"));
        assert_eq!(locked("no-such-crate"), "of an unknown version");
    }
}
