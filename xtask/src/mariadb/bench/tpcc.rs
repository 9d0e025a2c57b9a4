//! TPC-C by the scripts of sysbench-tpcc, which are not in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::super::FOLDER;
use super::super::server::Server;
use super::sysbench::said;
use super::table::{Bar, Table};
use super::{Engine, Size, figure};
use crate::check::passes;

const SCRIPTS: &str = "https://github.com/Percona-Lab/sysbench-tpcc";

/// Threads that load and run.
const THREADS: usize = 8;

/// Finds the scripts, or fetches them. Says so where that is not possible.
pub(super) fn find(root: &Path) -> Option<PathBuf> {
    let folder = root.join(FOLDER).join("sysbench-tpcc");
    if !folder.join("tpcc.lua").is_file() {
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--depth=1", SCRIPTS]).arg(&folder);
        if let Err(error) = passes(&mut git) {
            println!("SKIPPED: TPC-C: clone {SCRIPTS} into {}: {error:#}", folder.display());
            return None;
        }
    }
    Some(folder)
}

/// Loads the warehouses, and runs.
pub(super) fn measure(
    server: &Server,
    engine: Engine,
    size: &Size,
    folder: &Path,
    table: &mut Table,
) -> Result<()> {
    server.sql("DROP DATABASE IF EXISTS tpcc; CREATE DATABASE tpcc", "mysql")?;
    let sysbench = |how: &[String]| {
        let mut command = Command::new("sysbench");
        command.current_dir(folder).arg("./tpcc.lua").arg("--db-driver=mysql");
        command.arg("--mysql-user=root").arg("--mysql-db=tpcc").arg("--use_fk=0");
        command.arg(format!("--mysql-socket={}", server.socket().display()));
        command.arg(format!("--mysql_storage_engine={}", engine.name()));
        command.arg(format!("--scale={}", size.warehouses)).arg("--tables=1").args(how);
        said(&mut command, &format!("TPC-C on {}", engine.name()))
    };
    // A thread loads whole warehouses.
    sysbench(&[format!("--threads={}", THREADS.min(size.warehouses)), "prepare".into()])?;
    let run = sysbench(&[
        format!("--threads={THREADS}"),
        format!("--time={}", size.tpcc_seconds),
        "--mysql-ignore-errors=1213,1020,1205".into(),
        "run".into(),
    ])?;
    let line = format!("TPC-C, {} warehouses, {THREADS} threads", size.warehouses);
    table.put(&line, Bar::TPCC, engine, figure(&run, "transactions:", true)?);
    let line = "TPC-C, 95th percentile, ms";
    table.put(line, Bar::TPCC_P95, engine, figure(&run, "95th percentile:", false)?);
    Ok(())
}
