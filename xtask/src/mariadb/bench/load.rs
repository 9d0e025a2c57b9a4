//! LOAD DATA of the rows of a table of sysbench into an empty one, beside InnoDB. MyRocks bounds
//! how many rows a transaction locks.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::super::server::Server;
use super::table::{Bar, Table};
use super::{Engine, Size};

/// Measures LOAD DATA into a table with the index of the original, and into one without.
pub(super) fn measure(
    server: &Server,
    engine: Engine,
    size: &Size,
    table: &mut Table,
) -> Result<()> {
    let file = server.data().join("rows.txt");
    let path = file.display();
    server.sql(&format!("SELECT * INTO OUTFILE '{path}' FROM sbtest1"), "bench")?;
    for (name, has_index) in [("with an index", true), ("without an index", false)] {
        server.sql("DROP TABLE IF EXISTS loaded; CREATE TABLE loaded LIKE sbtest1", "bench")?;
        if !has_index {
            server.sql("ALTER TABLE loaded DROP KEY k_1", "bench")?;
        }
        let begin = Instant::now();
        server.sql(&format!("LOAD DATA INFILE '{path}' INTO TABLE loaded"), "bench")?;
        let seconds = begin.elapsed().as_secs_f64();
        let rows = server.sql("SELECT COUNT(*) FROM loaded", "bench")?;
        if rows.trim() != size.rows.to_string() {
            bail!("LOAD DATA has loaded {} rows on {}", rows.trim(), engine.name());
        }
        let line = format!("LOAD DATA {name}, rows a second");
        table.put(&line, Bar::SHOWN, engine, size.rows as f64 / seconds);
    }
    server.sql("DROP TABLE loaded", "bench")?;
    fs::remove_file(&file).with_context(|| format!("removing {path}"))
}
