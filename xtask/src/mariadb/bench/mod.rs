//! sysbench on Terrace, InnoDB and MyRocks, one after the other on one server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::server::{Server, Start};

const WORKLOADS: [&str; 9] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_insert",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_delete",
    "select_random_ranges",
];

const ENGINES: [&str; 3] = ["Terrace", "InnoDB", "RocksDB"];

/// Rows of a table, tables, and threads.
const ROWS: usize = 100_000;
const TABLES: usize = 4;
const THREADS: [usize; 2] = [2, 16];

/// Runs each workload for some seconds, and prints transactions a second, and how many times those
/// of the others Terrace makes.
pub(super) fn run(root: &Path, plugin: &Path, seconds: u32) -> Result<()> {
    let options = [
        "--innodb-buffer-pool-size=512M",
        "--innodb-flush-log-at-trx-commit=1",
        "--terrace-pm-size=512MiB",
        "--max-connections=200",
    ];
    let server = Server::start(root, plugin, &Start::fresh("bench").with(&options))?;
    // The packaged plugin lies beside the server's own, not in this server's folder of plugins.
    let has_rocks = Path::new("/usr/lib/mysql/plugin/ha_rocksdb.so").exists();
    let rocks = has_rocks && with_rocks(&server, plugin).is_ok();
    println!(
        "{:<24}{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "workload", "threads", "Terrace", "InnoDB", "MyRocks", "to InnoDB", "to MyRocks"
    );
    for workload in WORKLOADS {
        for threads in THREADS {
            let mut line = format!("{workload:<24}{threads:>8}");
            let mut figures = Vec::new();
            for engine in ENGINES {
                let is_there = engine != "RocksDB" || rocks;
                let figure = if is_there {
                    Some(measure(&server, engine, workload, threads, seconds)?)
                } else {
                    None
                };
                line.push_str(&format!("{:>12}", shown(figure, 0)));
                figures.push(figure);
            }
            for other in &figures[1..] {
                let ratio = figures[0].zip(*other).map(|(ours, theirs)| ours / theirs);
                line.push_str(&format!("{:>12}", shown(ratio, 2)));
            }
            println!("{line}");
        }
    }
    server.stop()
}

/// A figure, or a line where there is none.
fn shown(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
}

fn with_rocks(server: &Server, plugin: &Path) -> Result<()> {
    let link = plugin.join("ha_rocksdb.so");
    if !link.exists() {
        std::os::unix::fs::symlink("/usr/lib/mysql/plugin/ha_rocksdb.so", &link)?;
    }
    server.sql("INSTALL SONAME 'ha_rocksdb'", "mysql").map(drop)
}

fn sysbench(server: &Server, engine: &str, workload: &str, how: &[String]) -> Result<String> {
    let mut command = Command::new("sysbench");
    command.arg(workload).arg("--db-driver=mysql").arg("--mysql-user=root");
    command.arg(format!("--mysql-socket={}", server.socket().display()));
    command.arg(format!("--mysql-storage-engine={engine}")).arg("--mysql-db=bench");
    command.arg(format!("--table-size={ROWS}")).arg(format!("--tables={TABLES}")).args(how);
    let output = command.output().context("starting sysbench")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("sysbench {workload} on {engine}: {said}");
    }
    Ok(said)
}

/// Transactions a second.
fn measure(
    server: &Server,
    engine: &str,
    workload: &str,
    threads: usize,
    seconds: u32,
) -> Result<f64> {
    server.sql("DROP DATABASE IF EXISTS bench; CREATE DATABASE bench", "mysql")?;
    sysbench(server, engine, workload, &["prepare".into()])?;
    let how = [
        format!("--threads={threads}"),
        format!("--time={seconds}"),
        "--mysql-ignore-errors=1213,1020,1205".into(),
        "run".into(),
    ];
    let said = sysbench(server, engine, workload, &how)?;
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with("transactions:"))
        .context("sysbench says no transactions")?;
    let figure = line.split('(').nth(1).and_then(|rest| rest.split_whitespace().next());
    figure.and_then(|figure| figure.parse().ok()).with_context(|| format!("no figure: {line}"))
}
