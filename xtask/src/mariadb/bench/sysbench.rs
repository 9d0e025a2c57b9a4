//! The workloads of sysbench, and the space that its rows take.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::server::Server;
use super::table::{Bar, Table};
use super::{Engine, Size, disk, figure, load};

/// A workload, and what it asks for: that of reads or of writes.
struct Workload {
    name: &'static str,
    bar: Bar,
    /// Of a script that reads the first table alone.
    is_of_one_table: bool,
}

const fn workload(name: &'static str, bar: Bar) -> Workload {
    Workload { name, bar, is_of_one_table: false }
}

/// Those that leave the rows as they are come first, and the one that takes rows away is the last.
const WORKLOADS: [Workload; 9] = [
    workload("oltp_point_select", Bar::READS),
    workload("oltp_read_only", Bar::READS),
    Workload { name: "select_random_ranges", bar: Bar::READS, is_of_one_table: true },
    workload("oltp_read_write", Bar::WRITES),
    workload("oltp_update_index", Bar::WRITES),
    workload("oltp_update_non_index", Bar::WRITES),
    workload("oltp_write_only", Bar::WRITES),
    workload("oltp_insert", Bar::WRITES),
    workload("oltp_delete", Bar::WRITES),
];

/// Fills the tables, and runs all workloads with all numbers of threads.
pub(super) fn measure(
    server: &Server,
    engine: Engine,
    size: &Size,
    table: &mut Table,
) -> Result<()> {
    server.sql("DROP DATABASE IF EXISTS bench; CREATE DATABASE bench", "mysql")?;
    sysbench(server, engine, size, "oltp_read_write", size.tables, &["prepare".into()])?;
    table.put("space of the rows, MB", Bar::SPACE, engine, disk::space(server, engine, size)?);
    if engine != Engine::MyRocks {
        load::measure(server, engine, size, table)?;
    }
    for workload in &WORKLOADS {
        for threads in size.threads {
            let tables = if workload.is_of_one_table { 1 } else { size.tables };
            let how = [
                format!("--threads={threads}"),
                format!("--time={}", size.seconds),
                // A deadlock, a row that changed, and a timeout: the transaction is tried again.
                "--mysql-ignore-errors=1213,1020,1205".into(),
                "run".into(),
            ];
            let said = sysbench(server, engine, size, workload.name, tables, &how)?;
            let line = format!("{}, {threads} threads", workload.name);
            table.put(&line, workload.bar, engine, figure(&said, "transactions:", true)?);
        }
    }
    Ok(())
}

fn sysbench(
    server: &Server,
    engine: Engine,
    size: &Size,
    script: &str,
    tables: usize,
    how: &[String],
) -> Result<String> {
    let mut command = Command::new("sysbench");
    command.arg(script).arg("--db-driver=mysql").arg("--mysql-user=root");
    command.arg(format!("--mysql-socket={}", server.socket().display()));
    command.arg(format!("--mysql-storage-engine={}", engine.name())).arg("--mysql-db=bench");
    command.arg(format!("--table-size={}", size.rows)).arg(format!("--tables={tables}")).args(how);
    said(&mut command, &format!("sysbench {script} on {}", engine.name()))
}

/// What a command says that has to succeed.
pub(super) fn said(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {what}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{what}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(said)
}
