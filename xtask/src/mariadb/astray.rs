//! Tables that have not the names of their definitions, in cases that no chain of renames has.
//! `chains` runs these.

use std::fs;

use anyhow::{Context, Result, bail};

use super::between::Holds;
use super::chains::Full;
use super::noted::rename_unsynced;
use super::server::Server;
use super::sessions::Session;

/// Runs all cases. Returns the last server.
pub(super) fn run(
    server: Server,
    (holds, full): (&Holds, &Full),
    start: impl Fn() -> Result<Server>,
) -> Result<Server> {
    server.sql("CREATE DATABASE IF NOT EXISTS test", "mysql")?;
    a_definition_was_copied(&server)?;
    a_key_waits_for_its_parent(&server, full)?;
    a_mark_is_renewed(&server, holds)?;
    let server = an_earlier_version_leaves_marks(server, holds, &start)?;
    let server = a_circle_finds_no_space_twice(server, (holds, full), &start)?;
    println!("tables that are astray: copied definitions, keys, marks, circles");
    Ok(server)
}

/// Bug: behind a RENAME that failed a table answered by the name of a file that was copied, and had
/// none of its own. Cause: both definitions have one version, and the last name was its place. Fix:
/// a table that has a definition of its version stays.
fn a_definition_was_copied(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO t VALUES (1); \
         FLUSH TABLES",
        "test",
    )?;
    let file = |name: &str| server.data().join("test").join(name).with_extension("frm");
    fs::copy(file("t"), file("t_bak")).context("copying a definition")?;
    if server.sql("RENAME TABLE t TO t_old, t_bak TO t", "test").is_ok() {
        bail!("a definition without a table is renamed");
    }
    let rows = server.sql("SELECT id FROM t", "test").context("beside a copied definition")?;
    if rows != "1\n" {
        bail!("a table with a copied definition has the rows {rows}");
    }
    server.sql("DROP TABLE t", "test")?;
    fs::remove_file(file("t_bak")).context("removing the copy of a definition")
}

/// Bug: where an ALTER TABLE found no space, a key that waited for its parent got another one.
/// Cause: the altered table is the copy of an earlier ALTER TABLE that gave it another name, and
/// its end took it for the copy of this one. Fix: the old table of this one has another name there.
fn a_key_waits_for_its_parent(server: &Server, full: &Full) -> Result<()> {
    for before in 0.. {
        server.sql(
            "CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; \
             ALTER TABLE up ADD COLUMN b INT, RENAME TO above, ALGORITHM=COPY; \
             SET foreign_key_checks=0; \
             CREATE TABLE early (a INT, FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace",
            "test",
        )?;
        full.set(before, 1)?;
        let altered = "ALTER TABLE above ADD COLUMN c INT, ALGORITHM=COPY";
        let said = server.script(altered, "test")?;
        let was_full = full.end(1)?;
        let keys = server.sql("SHOW CREATE TABLE early; SELECT * FROM above", "test")?;
        if !keys.contains("REFERENCES `up`") {
            bail!("full behind {before} steps, a key that waits has a parent: {keys}{said}");
        }
        server.sql("DROP TABLE early, above", "test")?;
        if !was_full {
            break;
        }
    }
    Ok(())
}

/// Bug: the mark of a table whose rows expire went before them. Cause: it was written once. Fix:
/// each rename writes it.
fn a_mark_is_renewed(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace TERRACE_TTL='1d'; RENAME TABLE t TO u",
        "test",
    )?;
    holds.next("mark")?;
    holds.go("mark")?;
    server.sql("RENAME TABLE u TO t; DROP TABLE t", "test")?;
    holds.is_so("mark", false).map_or(Ok(()), |()| bail!("a second rename writes no mark"))
}

/// Bug: a power cut behind a rename by an earlier version left a definition without its table.
/// Cause: that version leaves the mark of a definition that it changes, and no definition has that
/// mark. Fix: such a mark counts as none.
fn an_earlier_version_leaves_marks(
    server: Server,
    holds: &Holds,
    start: &impl Fn() -> Result<Server>,
) -> Result<Server> {
    server.sql(
        "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO x VALUES (1); \
         RENAME TABLE x TO t; ALTER TABLE t ADD COLUMN c INT DEFAULT 7, ALGORITHM=INSTANT",
        "test",
    )?;
    holds.is_so("no-mark", true)?;
    rename_unsynced(&server, holds, "t TO u")?;
    holds.is_so("no-mark", false)?;
    let file = |name: &str| server.data().join("test").join(name).with_extension("frm");
    let (before, behind) = (file("t"), file("u"));
    server.kill()?;
    fs::rename(behind, before).context("taking a definition back")?;
    let server = start()?;
    let name = server.sql("SHOW TABLES", "test")?;
    let rows = server.sql(&format!("SELECT id, c FROM {name}"), "test")?;
    if rows != "1\t7\n" {
        bail!("behind a rename by an earlier version {name} has the rows {rows}");
    }
    server.sql(&format!("DROP TABLE {name}"), "test")?;
    Ok(server)
}

/// Bug: a start that found no space twice lost a table. Cause: one of a circle stayed aside, and
/// the notes of the name that it had left were forgotten. Fix: they stay.
fn a_circle_finds_no_space_twice(
    mut server: Server,
    (holds, full): (&Holds, &Full),
    start: &impl Fn() -> Result<Server>,
) -> Result<Server> {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    for before in 0.. {
        for name in NAMES {
            let make = format!(
                "CREATE TABLE {name} (who VARCHAR(9) PRIMARY KEY) ENGINE=Terrace; \
                 INSERT INTO {name} VALUES ('{name}')"
            );
            server.sql(&make, "test")?;
        }
        let mut session = Session::open(&server, "test")?;
        holds.next("rename")?;
        session.send("RENAME TABLE d TO u, u TO v, c TO d, b TO c, a TO b, v TO a, e TO f")?;
        holds.has_come("rename")?;
        for (first, second) in [("move", "rename"); 6] {
            for (next, held) in [(first, second), (second, first)] {
                holds.next(next)?;
                holds.go(held)?;
                holds.has_come(next)?;
            }
        }
        server.kill()?;
        drop(session);
        full.set_twice(before)?;
        server = start()?;
        let was_full = full.end(1)?;
        server.kill()?;
        server = start()?;
        for name in NAMES {
            let rows = server.sql(&format!("SELECT who FROM {name}"), "test");
            let rows = rows.with_context(|| format!("full behind {before} more steps"))?;
            if rows != format!("{name}\n") {
                bail!("full behind {before} more steps, {name} has the rows {rows}");
            }
        }
        server.sql("DROP TABLE a, b, c, d, e", "test")?;
        if !was_full {
            break;
        }
    }
    Ok(server)
}
