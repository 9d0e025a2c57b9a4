//! Bytes on the disk, and the start after a kill.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::super::server::Server;
use super::table::{Bar, Table};
use super::{Engine, Size, start};

/// Megabytes that the tables of sysbench take, once all of them are on the disk and compacted.
pub(super) fn space(server: &Server, engine: Engine, size: &Size) -> Result<f64> {
    let names: Vec<String> = (1..=size.tables).map(|n| format!("bench.sbtest{n}")).collect();
    let bytes = match engine {
        Engine::Terrace => {
            server.sql(&format!("OPTIMIZE TABLE {}", names.join(", ")), "mysql")?;
            let said = server.sql(
                "SELECT SUM(disk_bytes) FROM information_schema.terrace_tables \
                 WHERE table_name LIKE 'bench/%'",
                "mysql",
            )?;
            said.trim().parse().with_context(|| format!("no size: {said}"))?
        }
        Engine::InnoDb => bytes_of_files(&server.data().join("bench"), "ibd")?,
        Engine::MyRocks => {
            server.sql(
                "SET GLOBAL rocksdb_force_flush_memtable_now = 1; \
                 SET GLOBAL rocksdb_compact_cf = 'default'",
                "mysql",
            )?;
            bytes_of_files(&server.data().join("#rocksdb"), "sst")?
        }
    };
    Ok(bytes as f64 / 1e6)
}

/// What the files of a folder with an extension take.
fn bytes_of_files(folder: &Path, extension: &str) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|of_file| of_file == extension) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Writes, kills the server, and measures until the next one answers.
pub(super) fn restart(
    root: &Path,
    plugin: &Path,
    engine: Engine,
    size: &Size,
    table: &mut Table,
) -> Result<()> {
    // All of it stays where only the log has it.
    let bytes = size.unflushed;
    let options = match engine {
        Engine::InnoDb => vec![
            format!("--innodb-buffer-pool-size={}M", 3 * bytes),
            format!("--innodb-log-file-size={}M", 3 * bytes),
            "--innodb-max-dirty-pages-pct=99".into(),
        ],
        _ => vec![format!("--terrace-pm-size={}MiB", 2 * bytes.max(8))],
    };
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(root, plugin, &start(engine, size, true).with(&options))?;
    server.sql(
        &format!(
            "CREATE TABLE unflushed (id INT PRIMARY KEY, v VARCHAR(1000)) ENGINE={}",
            engine.name()
        ),
        "test",
    )?;
    for piece in 0..bytes {
        let first = piece * 1000;
        server.sql(
            &format!(
                "INSERT INTO unflushed SELECT seq, REPEAT(MD5(seq), 31) FROM seq_{first}_to_{}",
                first + 999
            ),
            "test",
        )?;
    }
    server.kill()?;
    let begin = Instant::now();
    let server = Server::start(root, plugin, &start(engine, size, false).with(&options))?;
    let seconds = begin.elapsed().as_secs_f64();
    let rows = server.sql("SELECT COUNT(*) FROM unflushed", "test")?;
    if rows.trim() != (bytes * 1000).to_string() {
        bail!("{} rows after a kill on {}", rows.trim(), engine.name());
    }
    let line = format!("start after a kill with {bytes} MB in the log, s");
    table.put(&line, Bar::RESTART, engine, seconds);
    server.stop()
}
