//! Rows of a parent that change while another connection moves, makes or drops foreign keys: no row
//! stays without its parent. `between` runs these cases.

use std::fs;

use anyhow::{Context, Result, bail};

use super::between::{Holds, quiet};
use super::server::{Server, until};
use super::sessions::Session;

/// Where others wait for those who use a table.
const BY_METADATA: &str = "SELECT COUNT(*) FROM information_schema.processlist \
    WHERE state = 'Waiting for table metadata lock'";

/// Where others wait for those who have locked a row.
const BY_ROWS: &str =
    "SELECT COUNT(*) FROM information_schema.terrace_transactions WHERE waits_for IS NOT NULL";

/// Runs all cases.
pub(super) fn run(server: &Server, holds: &Holds) -> Result<()> {
    a_parent_moves(server)?;
    a_child_moves(server)?;
    a_key_comes_late(server)?;
    a_parent_is_altered(server, holds)?;
    a_new_key_has_its_turn(server)?;
    keys_go_with_a_second_drop(server, holds)?;
    keys_of_a_drop_bind_nobody(server, holds)
}

/// A session that has said a statement, which waits: it is so often that others wait then.
fn waiting(server: &Server, statement: &str, (waits, count): (&str, &str)) -> Result<Session> {
    let mut session = Session::open(server, "test")?;
    session.send(statement)?;
    until(&format!("it waits: {statement}"), || Ok(server.sql(waits, "test")?.trim() == count))?;
    Ok(session)
}

/// A transaction that has read a table.
fn reading(server: &Server, table: &str) -> Result<Session> {
    let mut session = Session::open(server, "test")?;
    session.send(&format!("BEGIN; SELECT COUNT(*) FROM {table}"))?;
    session.answer()?;
    Ok(session)
}

fn commit(session: &mut Session) -> Result<()> {
    session.send("COMMIT")?;
    quiet(session)
}

/// Bug: a child's row was put beside a RENAME that gave its parent's name to another table, though
/// the parent does not have the value. Cause: a key that had moved was looked for again where the
/// look had failed alone. Fix: so it is where the look has found a row.
fn a_parent_moves(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO up VALUES (1); \
         CREATE TABLE next_up (id INT PRIMARY KEY) ENGINE=Terrace; \
         INSERT INTO next_up VALUES (1), (5); \
         CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace",
        "test",
    )?;
    let mut reader = reading(server, "up")?;
    let rename = "RENAME TABLE up TO last_up, next_up TO up";
    let mut renaming = waiting(server, rename, (BY_METADATA, "1"))?;
    let mut child = waiting(server, "INSERT INTO down VALUES (5)", (BY_METADATA, "2"))?;
    commit(&mut reader)?;
    quiet(&mut renaming)?;
    let said = child.answer()?;
    if !said.contains("ERROR 1452") {
        bail!("a row was put by a table that is no parent any more: {said}");
    }
    server.sql("DROP TABLE down, up, last_up", "test").map(drop)
}

/// Bug: rows of a child stayed behind a cascade, and rows of a table without a key went. Cause: the
/// server does not lock children of a statement that a procedure repeats. A cascade did not look
/// whether its key had moved while it waited. Fix: all children are locked before the row changes.
fn a_child_moves(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO up VALUES (1), (2); \
         CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (id) ON DELETE CASCADE) \
         ENGINE=Terrace; INSERT INTO down VALUES (1), (2); \
         CREATE TABLE free (a INT, KEY (a)) ENGINE=Terrace; INSERT INTO free VALUES (1), (2); \
         CREATE PROCEDURE go(x INT) DELETE FROM up WHERE id = x",
        "test",
    )?;
    let mut deleting = Session::open(server, "test")?;
    deleting.send("CALL go(99)")?;
    quiet(&mut deleting)?;
    server.sql("RENAME TABLE down TO log", "test")?;
    for (id, rename) in
        [(1, "RENAME TABLE log TO old"), (2, "RENAME TABLE log TO old, free TO log")]
    {
        let mut reader = reading(server, "log")?;
        let mut renaming = waiting(server, rename, (BY_METADATA, "1"))?;
        deleting.send(&format!("CALL go({id})"))?;
        until("a cascade waits", || Ok(server.sql(BY_METADATA, "test")?.trim() == "2"))?;
        commit(&mut reader)?;
        quiet(&mut renaming)?;
        quiet(&mut deleting)?;
        let orphans = "SELECT a FROM old WHERE a NOT IN (SELECT id FROM up)";
        let left = server.sql(orphans, "test")?;
        if !left.is_empty() {
            bail!("{rename}: rows of the child stay without a parent: {left}");
        }
        if id == 1 {
            server.sql("RENAME TABLE old TO log", "test")?;
        }
    }
    let free = server.sql("SELECT a FROM log", "test")?;
    if free != "1\n2\n" {
        bail!("a table without a key has {free} behind a cascade");
    }
    server.sql("DROP TABLE old, log, up; DROP PROCEDURE go", "test").map(drop)
}

/// Bug: a row of a new child had no parent. Cause: the change of a row looks for its keys once, and
/// then waits for entries of indexes. Meanwhile CREATE TABLE made a key, and others a row by it.
/// Fix: CREATE TABLE waits for transactions that have changed rows of the parent.
fn a_key_comes_late(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY, w INT, u INT, KEY (w), KEY (u)) ENGINE=Terrace; \
         INSERT INTO up VALUES (1, 1, 5)",
        "test",
    )?;
    let mut locking = Session::open(server, "test")?;
    locking
        .send("BEGIN; SELECT id FROM up FORCE INDEX (w) WHERE w BETWEEN 50 AND 60 FOR UPDATE")?;
    quiet(&mut locking)?;
    let update = "UPDATE up SET w = 55, u = 6 WHERE id = 1";
    let mut changing = waiting(server, update, (BY_ROWS, "1"))?;
    let create = "CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (u)) ENGINE=Terrace";
    let mut creating = waiting(server, create, (BY_METADATA, "1"))?;
    commit(&mut locking)?;
    quiet(&mut changing)?;
    quiet(&mut creating)?;
    if server.sql("INSERT INTO down VALUES (5)", "test").is_ok() {
        bail!("a row was put without a parent");
    }
    server.sql("DROP TABLE down, up", "test").map(drop)
}

/// Bug: a table got a foreign key to one that was partitioned then, which has none. Cause: an
/// ALTER TABLE of the parent looks for its keys when it begins, and CREATE TABLE did not wait for
/// it. Fix: it does.
fn a_parent_is_altered(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=Terrace; \
         INSERT INTO up VALUES (5)",
        "test",
    )?;
    let mut altering = Session::open(server, "test")?;
    holds.next("counters")?;
    altering.send("ALTER TABLE up PARTITION BY HASH (id)")?;
    holds.has_come("counters")?;
    let create = "CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace";
    let mut creating = waiting(server, create, (BY_METADATA, "1"))?;
    holds.go("counters")?;
    quiet(&mut altering)?;
    let said = creating.answer()?;
    if !said.contains("ERROR 1005") {
        bail!("a table has a foreign key to a partitioned one: {said}");
    }
    server.sql("DROP TABLE up", "test").map(drop)
}

/// Bug: CREATE TABLE waited as long as transactions changed rows of the parent, one beside the
/// other. Cause: its lock let later ones go first. Fix: they wait for it. Of two parents it waits
/// for the first by name, and has not locked the other one.
fn a_new_key_has_its_turn(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY, v INT) ENGINE=Terrace; \
         CREATE TABLE up_too LIKE up; \
         INSERT INTO up VALUES (1, 0), (2, 0); INSERT INTO up_too VALUES (1, 0)",
        "test",
    )?;
    let mut changing = Session::open(server, "test")?;
    changing.send("BEGIN; UPDATE up SET v = 1 WHERE id = 1")?;
    quiet(&mut changing)?;
    let create = "CREATE TABLE down (a INT, b INT, FOREIGN KEY (a) REFERENCES up_too (id), \
                  FOREIGN KEY (b) REFERENCES up (id)) ENGINE=Terrace";
    let mut creating = waiting(server, create, (BY_METADATA, "1"))?;
    let begin = "SET lock_wait_timeout=1; UPDATE";
    let later = server.sql(&format!("{begin} up SET v = 1 WHERE id = 2"), "test");
    let of_other = server.sql(&format!("{begin} up_too SET v = 1"), "test");
    commit(&mut changing)?;
    quiet(&mut creating)?;
    if !later.is_err_and(|error| format!("{error:#}").contains("1205")) {
        bail!("a change of the parent goes before a CREATE TABLE that waits");
    }
    of_other.context("a parent that is the second by name")?;
    server.sql("DROP TABLE down, up, up_too", "test").map(drop)
}

/// Bug: no DROP TABLE of a parent succeeded, though its child was gone. Cause: the child's drop
/// could not forget the keys, and the next one found no table. Fix: that one forgets them.
fn keys_go_with_a_second_drop(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; \
         CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace",
        "test",
    )?;
    holds.next("refuse-keys")?;
    if server.sql("DROP TABLE down", "test").is_ok() {
        bail!("a table is dropped whose keys could not be forgotten");
    }
    // The server has its definition, or not.
    server.sql("DROP TABLE IF EXISTS down", "test")?;
    server.sql("DROP TABLE up", "test").context("a parent without children").map(drop)
}

/// Bug: a table got the foreign keys of one whose name it got, and took no row. Cause: a drop could
/// not forget them, and a RENAME added to what the name had. Fix: it removes that first.
fn keys_of_a_drop_bind_nobody(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; \
         CREATE TABLE down (a INT, FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace; \
         CREATE TABLE other (b INT) ENGINE=Terrace; FLUSH TABLES",
        "test",
    )?;
    holds.next("refuse-keys")?;
    if server.sql("DROP TABLE down", "test").is_ok() {
        bail!("a table is dropped whose keys could not be forgotten");
    }
    // The server has its definition, or not.
    let file = server.data().join("test/down.frm");
    if file.exists() {
        fs::remove_file(&file).context("removing a definition")?;
    }
    server
        .sql("FLUSH TABLES; RENAME TABLE other TO down; INSERT INTO down VALUES (7)", "test")
        .context("a table with the name of one that had keys")?;
    server.sql("DROP TABLE up, down", "test").map(drop)
}
