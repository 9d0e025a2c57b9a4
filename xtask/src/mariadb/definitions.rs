//! Changes of tables in place whose definition (`.frm`) a power cut takes back. The server renames
//! it without a sync and ends its log of DDL, so a cut may leave the old one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::server::{Server, Start, until};
use super::sessions::Session;

/// The folder of the server.
const NAME: &str = "definitions";

/// Each is of a table of its own, which has columns `id`, `a` and `b`, and index `kb` of `b`.
const CHANGES: &[&str] = &[
    "ADD COLUMN c INT NOT NULL DEFAULT 7",
    "DROP COLUMN a",
    "ADD KEY kc (a)",
    "DROP KEY kb",
    "RENAME KEY kb TO kc",
    "ADD KEY kc (a), DROP KEY kb, ADD UNIQUE KEY ku (b, id)",
];

/// Runs all cases.
pub(super) fn run(root: &Path, plugin: &Path) -> Result<()> {
    let server = Server::start(root, plugin, &Start::fresh(NAME))?;
    let server = old_ones_hold(server, || Server::start(root, plugin, &Start::kept(NAME)))?;
    entries_go_at_last(&server)?;
    println!("definitions that a power cut takes back: {} changes", CHANGES.len());
    server.stop()
}

/// The name of the table of a change. The second one of each was altered in place before.
fn tables() -> impl Iterator<Item = (String, &'static str)> {
    let of = |twice: bool| {
        CHANGES.iter().enumerate().map(move |(n, &change)| (format!("t{n}{twice}"), change))
    };
    of(false).chain(of(true))
}

/// The new definition was committed, and the old one is back. It found that its columns were
/// dropped, or that its indexes had no entries, and the table could not be opened, dropped or
/// rebuilt.
fn old_ones_hold(server: Server, start: impl Fn() -> Result<Server>) -> Result<Server> {
    let mut before = Vec::new();
    for (table, _) in tables() {
        server.sql(
            &format!(
                "CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b INT, KEY kb (b)) \
                 ENGINE=Terrace; INSERT INTO {table} SELECT seq, seq * 2, seq * 3 FROM seq_1_to_100"
            ),
            "test",
        )?;
        if table.ends_with("true") {
            server.sql(
                &format!(
                    "ALTER TABLE {table} ADD COLUMN p INT DEFAULT 3, ALGORITHM=INSTANT; \
                     ALTER TABLE {table} ADD COLUMN q INT DEFAULT 4, ALGORITHM=INSTANT; \
                     INSERT INTO {table} VALUES (101, 202, 303, 1, 2); \
                     ALTER TABLE {table} DROP COLUMN p, ALGORITHM=INSTANT; \
                     INSERT INTO {table} VALUES (102, 204, 306, 5)"
                ),
                "test",
            )?;
        }
        before.push(rows(&server, &table)?);
    }
    let file = |table: &str| server.data().join("test").join(table).with_extension("frm");
    let mut definitions = Vec::new();
    for (table, change) in tables() {
        let path = file(&table);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        definitions.push((path, text));
        server.sql(&format!("ALTER TABLE {table} {change}, ALGORITHM=NOCOPY"), "test")?;
    }
    server.kill()?;
    for (path, text) in definitions {
        fs::write(&path, text).with_context(|| format!("putting {} back", path.display()))?;
    }
    let server = start()?;
    for ((table, change), before) in tables().zip(before) {
        old_one_holds(&server, (&table, change), &before)
            .with_context(|| format!("{table}: {change}"))?;
    }
    Ok(server)
}

/// The table is as before its change, can be written to, and can be changed again.
fn old_one_holds(server: &Server, (table, change): (&str, &str), before: &str) -> Result<()> {
    let now = rows(server, table)?;
    if now != before {
        bail!("the rows are\n{now}and not\n{before}");
    }
    is_whole(server, table)?;
    server.sql(&format!("INSERT INTO {table} (id, b) VALUES (500, 7)"), "test")?;
    is_whole(server, table)?;
    server.sql(&format!("ALTER TABLE {table} {change}, ALGORITHM=NOCOPY"), "test")?;
    server.sql(&format!("INSERT INTO {table} (id, b) VALUES (501, 8)"), "test")?;
    is_whole(server, table)?;
    let count = server.sql(&format!("SELECT COUNT(*), SUM(b) FROM {table}"), "test")?;
    let lines = before.lines().count();
    if count.split_whitespace().next() != Some(&(lines / 2 + 2).to_string()) {
        bail!("of {} rows there are {count}", lines / 2 + 2);
    }
    Ok(())
}

/// All rows, and those that an index of the old definition leads to.
fn rows(server: &Server, table: &str) -> Result<String> {
    server.sql(
        &format!(
            "SELECT * FROM {table} ORDER BY id; \
             SELECT * FROM {table} FORCE INDEX (kb) WHERE b > 0 ORDER BY b"
        ),
        "test",
    )
}

fn is_whole(server: &Server, table: &str) -> Result<()> {
    let checked = server.sql(&format!("CHECK TABLE {table}"), "test")?;
    if checked.contains("status\tOK") { Ok(()) } else { bail!("{checked}") }
}

/// An index was dropped while a transaction that XA had prepared held entries of it. They could not
/// be removed, the layout forgot their number, and they stayed for ever. A later opening removes
/// them.
fn entries_go_at_last(server: &Server) -> Result<()> {
    const ROWS: u64 = 5000;
    server.sql(
        "CREATE TABLE g (id INT PRIMARY KEY, v INT, KEY kv (v)) ENGINE=Terrace; \
         INSERT INTO g SELECT seq, seq FROM seq_1_to_5000",
        "test",
    )?;
    let mut session = Session::open(server, "test")?;
    session.send(
        "XA START 'g'; UPDATE g SET v = -1 WHERE id = 1; XA END 'g'; XA PREPARE 'g'; \
         SELECT CONNECTION_ID()",
    )?;
    let id = session.answer()?;
    drop(session);
    let ended =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {}", id.trim());
    until("the session has ended", || Ok(server.sql(&ended, "test")?.trim() == "0"))?;
    server.sql("ALTER TABLE g DROP KEY kv, ALGORITHM=INSTANT; SELECT COUNT(*) FROM g", "test")?;
    server.sql("XA ROLLBACK 'g'; FLUSH TABLES g; SELECT COUNT(*) FROM g", "test")?;
    server.sql("OPTIMIZE TABLE g", "test")?;
    let records = server.sql(
        "SELECT pm_records + disk_records FROM information_schema.terrace_tables \
         WHERE table_name = 'test/g'",
        "test",
    )?;
    if records.trim().parse::<u64>().context("a count")? > ROWS + ROWS / 2 {
        bail!("a table of {ROWS} rows without an index has {records} records");
    }
    Ok(())
}
