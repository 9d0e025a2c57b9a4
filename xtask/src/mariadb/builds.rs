//! Indexes that are built beside other connections. `between` runs these cases.

use anyhow::{Context, Result, bail};

use super::between::{Holds, quiet};
use super::server::{Server, until};
use super::sessions::Session;

/// The builder of an index locked the chunks of a large row until the ALTER TABLE ended, in the
/// connection's own transaction. Writers of that row waited for all of it. They wait for the piece.
pub(super) fn large_rows_are_free(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE large (id INT PRIMARY KEY, v INT, b LONGBLOB) ENGINE=Terrace; \
         INSERT INTO large SELECT seq, seq, IF(seq = 1, REPEAT('x', 3000000), '') \
         FROM seq_1_to_600",
        "test",
    )?;
    holds.next("build")?;
    let mut changing = Session::open(server, "test")?;
    changing.send("ALTER TABLE large ADD KEY (v), ALGORITHM=NOCOPY, LOCK=NONE")?;
    holds.has_come("build")?;
    let mut owner = Session::open(server, "test")?;
    owner.send("BEGIN; UPDATE large SET v = -1 WHERE id = 600")?;
    quiet(&mut owner)?;
    holds.go("build")?;
    // The row lies in the second piece, so the builder has gone through the first one.
    let waits = "SELECT COUNT(*) FROM information_schema.terrace_transactions \
                 WHERE waits_for IS NOT NULL";
    until("the builder waits for a row", || Ok(server.sql(waits, "test")?.trim() != "0"))?;
    let said = server
        .sql("SET terrace_lock_wait_timeout=10; UPDATE large SET b = 'y' WHERE id = 1", "test");
    owner.send("COMMIT")?;
    quiet(&mut owner)?;
    quiet(&mut changing)?;
    said.context("a large row beside the builder of an index")?;
    let checked = server.sql("CHECK TABLE large", "test")?;
    if !checked.contains("status\tOK") {
        bail!("a large row was changed beside the builder of an index: {checked}");
    }
    server.sql("DROP TABLE large", "test").map(drop)
}

/// Bug: a table that was opened while an index was built, whose ALTER TABLE then failed, was
/// copied by each later one, or refused to change in place. Cause: its handler kept the layout of
/// the change that had failed. Fix: the layout is looked up.
pub(super) fn a_failure_leaves_no_copy(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE twice (id INT PRIMARY KEY, v INT) ENGINE=Terrace; \
         INSERT INTO twice VALUES (1, 1), (2, 1)",
        "test",
    )?;
    holds.next("build")?;
    let mut failing = Session::open(server, "test")?;
    failing.send("ALTER TABLE twice ADD UNIQUE u (v), ALGORITHM=NOCOPY, LOCK=NONE")?;
    holds.has_come("build")?;
    let mut opened = Session::open(server, "test")?;
    // The server gives the table that was opened last to the next one that asks.
    opened.send("BEGIN; SELECT COUNT(*) FROM twice")?;
    opened.answer()?;
    holds.go("build")?;
    let said = failing.answer()?;
    opened.send("COMMIT; ALTER TABLE twice ADD INDEX i (v), ALGORITHM=NOCOPY")?;
    quiet(&mut opened)?;
    if !said.contains("ERROR 1062") {
        bail!("a unique index of a value that is there twice: {said}");
    }
    server.sql("DROP TABLE twice", "test").map(drop)
}

/// Bug: the end of a build failed after 50 ms where the entry of a row that it looks at again was
/// locked by a transaction that XA has prepared. Cause: it waited as long as a piece does, once.
/// Fix: it waits as long as a statement does.
pub(super) fn a_noted_row_waits(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE freed (id INT PRIMARY KEY, v INT) ENGINE=Terrace; \
         INSERT INTO freed SELECT seq, seq FROM seq_1_to_600",
        "test",
    )?;
    holds.next("next-piece")?;
    let mut changing = Session::open(server, "test")?;
    changing.send("ALTER TABLE freed ADD UNIQUE u (v), ALGORITHM=NOCOPY, LOCK=NONE")?;
    holds.has_come("next-piece")?;
    server.sql("UPDATE freed SET v = 1 WHERE id = 2", "test")?;
    let mut preparing = Session::open(server, "test")?;
    preparing.send(
        "XA START 'f'; DELETE FROM freed WHERE id = 1; XA END 'f'; XA PREPARE 'f'; \
         SELECT CONNECTION_ID()",
    )?;
    let id = preparing.answer()?;
    drop(preparing);
    let ended =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {}", id.trim());
    until("the connection has ended", || Ok(server.sql(&ended, "test")?.trim() == "0"))?;
    holds.go("next-piece")?;
    let waits = "SELECT COUNT(*) FROM information_schema.terrace_transactions \
                 WHERE waits_for IS NOT NULL";
    until("the end of the build waits", || Ok(server.sql(waits, "test")?.trim() != "0"))?;
    server.sql("XA COMMIT 'f'", "test")?;
    quiet(&mut changing)?;
    let found = server.sql("SELECT id FROM freed FORCE INDEX (u) WHERE v = 1", "test")?;
    if found.trim() != "2" {
        bail!("a new unique index finds {found} by the value that row 2 has");
    }
    server.sql("DROP TABLE freed", "test").map(drop)
}

/// An ALTER TABLE gives the name of an index to another one, while others write. A name stood for
/// an index in the table's own record, so connections that opened the table meanwhile put entries
/// of the one into the other.
pub(super) fn names_move_between_indexes(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE names (id INT PRIMARY KEY, a INT, b INT, KEY a (a), KEY b (b)) \
         ENGINE=Terrace; INSERT INTO names SELECT seq, seq, 1000 - seq FROM seq_1_to_100; \
         FLUSH TABLES names",
        "test",
    )?;
    holds.next("build")?;
    let mut changing = Session::open(server, "test")?;
    changing.send(
        "ALTER TABLE names ADD INDEX c (a, b), DROP INDEX b, RENAME INDEX a TO b, \
         ALGORITHM=NOCOPY, LOCK=NONE",
    )?;
    holds.has_come("build")?;
    let said = server.sql(
        "SELECT id FROM names FORCE INDEX (b) WHERE b = 999; \
         UPDATE names SET b = 5000 WHERE id = 7; INSERT INTO names VALUES (101, 101, 899); \
         SELECT id FROM names FORCE INDEX (b) WHERE b > 999; \
         SELECT id FROM names FORCE INDEX (a) WHERE a = 101",
        "test",
    )?;
    if said != "1\n7\n101\n" {
        bail!("by indexes of the old definition: {said}");
    }
    holds.go("build")?;
    quiet(&mut changing)?;
    names_are_whole(server)
}

/// Index b is one of column a by now, and c one of both columns.
pub(super) fn names_are_whole(server: &Server) -> Result<()> {
    let checked = server.sql("CHECK TABLE names", "test")?;
    if !checked.contains("status\tOK") {
        bail!("after names of indexes have moved: {checked}");
    }
    let said = server.sql(
        "SELECT id FROM names FORCE INDEX (b) WHERE a = 7; \
         SELECT id FROM names FORCE INDEX (c) WHERE a = 7 AND b = 5000; \
         SELECT COUNT(*) FROM names FORCE INDEX (b) WHERE a < 102; \
         SELECT COUNT(*) FROM names FORCE INDEX (c) WHERE a < 102",
        "test",
    )?;
    if said != "7\n7\n101\n101\n" {
        bail!("by indexes whose names have moved: {said}");
    }
    Ok(())
}
