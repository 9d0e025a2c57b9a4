//! sysbench and TPC-C on Terrace, InnoDB and MyRocks. Each engine has a server of its own, with the
//! same memory, and they run one after the other.

mod disk;
mod load;
mod sysbench;
mod table;
mod tpcc;

use std::path::Path;

use anyhow::{Result, bail};

use super::server::{Server, Start};
use table::Table;

/// Where the packaged plugin of MyRocks lies: not in the folder of plugins of the private servers.
const ROCKS: &str = "/usr/lib/mysql/plugin/ha_rocksdb.so";

/// What is measured, and for how long.
pub(super) struct Size {
    /// Rows of a table of sysbench, and how many tables there are.
    rows: usize,
    tables: usize,
    /// Seconds of each run of sysbench, and its threads.
    seconds: u32,
    threads: &'static [usize],
    /// Megabytes of memory of an engine. A part of it is the region of Terrace and the write
    /// buffers of MyRocks.
    memory: usize,
    /// Warehouses of TPC-C, and seconds of its run; 0 leaves it out.
    warehouses: usize,
    tpcc_seconds: u32,
    /// Megabytes that are written before a kill.
    unflushed: usize,
}

impl Size {
    /// The size of a name: `--smoke`, `--quick`, `--larger` (than memory), or seconds of each run.
    pub(super) fn named(name: Option<&str>) -> Result<Size> {
        let whole = Size {
            rows: 1_000_000,
            tables: 4,
            seconds: 30,
            threads: &[2, 16],
            memory: 2_048,
            warehouses: 10,
            tpcc_seconds: 120,
            unflushed: 1_024,
        };
        Ok(match name {
            None => whole,
            Some("--smoke") => Size {
                rows: 1_000,
                tables: 2,
                seconds: 1,
                threads: &[2],
                memory: 128,
                warehouses: 0,
                tpcc_seconds: 0,
                unflushed: 8,
            },
            Some("--quick") => Size {
                rows: 50_000,
                seconds: 4,
                memory: 512,
                warehouses: 1,
                tpcc_seconds: 20,
                unflushed: 128,
                ..whole
            },
            // About 950 MB of rows in InnoDB.
            Some("--larger") => Size { memory: 240, warehouses: 0, ..whole },
            Some(seconds) => Size { seconds: seconds.parse()?, ..whole },
        })
    }
}

/// An engine that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Terrace,
    InnoDb,
    MyRocks,
}

impl Engine {
    const ALL: [Engine; 3] = [Engine::Terrace, Engine::InnoDb, Engine::MyRocks];

    /// What the server calls it.
    fn name(self) -> &'static str {
        match self {
            Engine::Terrace => "Terrace",
            Engine::InnoDb => "InnoDB",
            Engine::MyRocks => "RocksDB",
        }
    }

    /// The options of its server: `memory` megabytes, and a sync for each commit.
    fn options(self, memory: usize) -> Vec<String> {
        let (buffers, cache) = (memory / 4, memory - memory / 4);
        let mut options = vec!["--max-connections=200".to_owned()];
        options.extend(match self {
            Engine::Terrace => vec![
                format!("--terrace-pm-size={buffers}MiB"),
                format!("--terrace-cache-size={cache}MiB"),
                "--innodb-buffer-pool-size=16M".into(),
            ],
            Engine::InnoDb => vec![
                format!("--innodb-buffer-pool-size={memory}M"),
                format!("--innodb-log-file-size={}M", memory.clamp(96, 2_048)),
                "--innodb-flush-log-at-trx-commit=1".into(),
                "--terrace-pm-size=16MiB".into(),
                "--terrace-cache-size=8MiB".into(),
            ],
            Engine::MyRocks => vec![
                "--plugin-load-add=ha_rocksdb".into(),
                format!("--rocksdb-block-cache-size={cache}M"),
                format!("--rocksdb-db-write-buffer-size={buffers}M"),
                "--rocksdb-flush-log-at-trx-commit=1".into(),
                "--rocksdb-strict-collation-check=OFF".into(),
                "--innodb-buffer-pool-size=16M".into(),
                "--terrace-pm-size=16MiB".into(),
                "--terrace-cache-size=8MiB".into(),
            ],
        });
        options
    }

    fn is_there(self) -> bool {
        self != Engine::MyRocks || Path::new(ROCKS).exists()
    }
}

/// How a server of an engine starts.
fn start(engine: Engine, size: &Size, is_fresh: bool) -> Start<'static> {
    let options = engine.options(size.memory);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    if is_fresh { Start::fresh("bench") } else { Start::kept("bench") }.with(&options)
}

/// Measures all engines, and prints what is asked for beside what was measured.
pub(super) fn run(root: &Path, plugin: &Path, size: &Size) -> Result<()> {
    link_rocks(plugin)?;
    let harness = if size.warehouses > 0 { tpcc::find(root) } else { None };
    let mut table = Table::default();
    for engine in Engine::ALL.into_iter().filter(|engine| engine.is_there()) {
        println!("measuring {}", engine.name());
        let server = Server::start(root, plugin, &start(engine, size, true))?;
        sysbench::measure(&server, engine, size, &mut table)?;
        if let Some(folder) = &harness {
            tpcc::measure(&server, engine, size, folder, &mut table)?;
        }
        server.stop()?;
        if engine != Engine::MyRocks {
            disk::restart(root, plugin, engine, size, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

/// Links the plugin of MyRocks to where the private servers look for plugins.
fn link_rocks(plugin: &Path) -> Result<()> {
    let link = plugin.join("ha_rocksdb.so");
    if Engine::MyRocks.is_there() && !link.exists() {
        std::os::unix::fs::symlink(ROCKS, &link)?;
    }
    Ok(())
}

/// The number behind a label of sysbench, such as `transactions:`; in parentheses if `a_second`.
fn figure(said: &str, label: &str, a_second: bool) -> Result<f64> {
    let line = said.lines().find_map(|line| line.trim_start().strip_prefix(label));
    let text = match (line, a_second) {
        (Some(line), true) => line.split('(').nth(1).unwrap_or_default(),
        (Some(line), false) => line,
        (None, _) => bail!("sysbench does not say {label} {said}"),
    };
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn figures_of_sysbench_are_read() {
        let said =
            "SQL:\n    transactions:  812 (161.70 per sec.)\nL:\n  95th percentile:  14.46\n";
        assert_eq!(figure(said, "transactions:", true).unwrap(), 161.70);
        assert_eq!(figure(said, "95th percentile:", false).unwrap(), 14.46);
        assert!(figure(said, "errors:", true).is_err());
    }
}
