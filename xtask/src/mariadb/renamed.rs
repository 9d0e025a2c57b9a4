//! Renames of tables with foreign keys, where a write fails, or a kill comes in between. `between`
//! runs these cases.

use std::fs;

use anyhow::{Context, Result, bail};

use super::between::Holds;
use super::server::Server;
use super::sessions::Session;

/// A parent with a child.
const TABLES: &str = "\
    CREATE TABLE up (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO up VALUES (1); \
    CREATE TABLE down (a INT, KEY (a), FOREIGN KEY (a) REFERENCES up (id)) ENGINE=Terrace; \
    INSERT INTO down VALUES (1)";

/// Runs all cases. Returns the last server.
pub(super) fn run(
    mut server: Server,
    holds: &Holds,
    start: impl Fn() -> Result<Server>,
) -> Result<Server> {
    a_backup_goes_back(&server, holds)?;
    children_go_back(&server)?;
    a_table_follows_its_definition(&server, holds)?;
    for refused in ["refuse-keys", "refuse-note"] {
        server = a_start_finds_no_space(server, holds, (refused, &start))
            .with_context(|| refused.to_owned())?;
    }
    let server = a_backup_goes_back_later(server, holds, &start)?;
    keys_without_a_parent_stay(server, holds, &start)
}

/// Whether parent and child have their rows, and each other.
fn are_whole(server: &Server) -> Result<()> {
    let rows = server.sql("FLUSH TABLES; SELECT id FROM up; SELECT a FROM down", "test")?;
    if rows != "1\n1\n" {
        bail!("the parent and the child have the rows {rows}");
    }
    for refused in ["DELETE FROM up", "INSERT INTO down VALUES (7)"] {
        if server.sql(refused, "test").is_ok() {
            bail!("no foreign key refuses it: {refused}");
        }
    }
    let hidden = "SELECT table_name FROM information_schema.terrace_tables \
                  WHERE table_name LIKE 'test/#sql%' OR table_name IN ('test/above', 'test/moved')";
    let left = server.sql(hidden, "test")?;
    if !left.is_empty() {
        bail!("the library still has {left}");
    }
    server.sql("DROP TABLE down, up", "test").map(drop)
}

/// Bug: behind a copy that got no name there was no table, and its rows had a hidden one. Cause:
/// the server ignores that the old table gets its name back neither, and the end of the statement
/// took its rename for done. Fix: a backup that is all that is left gets the name.
fn a_backup_goes_back(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(TABLES, "test")?;
    let mut session = Session::open(server, "test")?;
    // The second rename of the copy makes the first one durable.
    holds.next("definition")?;
    session.send("ALTER TABLE down ADD COLUMN b INT, ALGORITHM=COPY")?;
    holds.has_come("definition")?;
    holds.next("keys")?;
    holds.go("definition")?;
    holds.has_come("keys")?;
    holds.next("refuse-keys")?;
    holds.next("refuse-note")?;
    holds.go("keys")?;
    let said = session.answer()?;
    if !said.contains("ERROR") {
        bail!("a copy succeeds without its foreign keys");
    }
    are_whole(server).with_context(|| said)
}

/// Bug: where triggers could not follow a copy with RENAME, children referred to the new name,
/// whose definition was gone. Cause: the drop of it was refused for them, and the server goes on.
/// Fix: the drop gives them back first. A folder has the name of the file of triggers here.
///
/// Bug: a child lost its own keys there. Cause: the server renames the old table, which has kept
/// its name, to that name. Fix: that is no rename.
fn children_go_back(server: &Server) -> Result<()> {
    for (altered, new) in [("up", "above"), ("down", "moved")] {
        server.sql(TABLES, "test")?;
        let trigger =
            format!("CREATE TRIGGER told BEFORE INSERT ON {altered} FOR EACH ROW SET @told = 1");
        server.sql(&trigger, "test")?;
        let folder = server.data().join("test").join(format!("{new}.TRG"));
        fs::create_dir(&folder).context("taking the name of triggers")?;
        let alter =
            format!("ALTER TABLE {altered} ADD COLUMN b INT, RENAME TO {new}, ALGORITHM=COPY");
        let said = server.sql(&alter, "test");
        fs::remove_dir(&folder).context("giving it back")?;
        if said.is_ok() {
            bail!("a copy is renamed without its triggers");
        }
        are_whole(server).context(altered)?;
    }
    Ok(())
}

/// Bug: a table was lost where the first of two renames could not be taken back. Cause: the server
/// gives the definition its old name all the same, and the end of the statement took both renames
/// for done. Fix: the table follows its definition.
fn a_table_follows_its_definition(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(TABLES, "test")?;
    let mut renaming = Session::open(server, "test")?;
    holds.next("keys")?;
    renaming.send("RENAME TABLE down TO moved, nope TO anything")?;
    holds.has_come("keys")?;
    holds.next("move")?;
    holds.go("keys")?;
    // The way back.
    holds.has_come("move")?;
    holds.next("refuse-keys")?;
    holds.go("move")?;
    let said = renaming.answer()?;
    if !said.contains("ERROR") {
        bail!("a table that is not there is renamed");
    }
    are_whole(server).with_context(|| said)
}

/// Bug: a start lost the foreign keys of a table whose rename a kill had cut. Cause: it could not
/// give them the table's new name, and forgot them as those of no table: a full disk has room for
/// that. Fix: it forgets none where it could not move some. Bug: a start lost such a table. Cause:
/// it forgot a rename for whose way back the recovery had no room, and the server gave the
/// definition the old name all the same. Fix: the rename is noted until the recovery has ended.
fn a_start_finds_no_space(
    server: Server,
    holds: &Holds,
    (refused, start): (&str, &impl Fn() -> Result<Server>),
) -> Result<Server> {
    server.sql(TABLES, "test")?;
    let mut renaming = Session::open(&server, "test")?;
    holds.next("keys")?;
    renaming.send("RENAME TABLE down TO moved")?;
    holds.has_come("keys")?;
    server.kill()?;
    drop(renaming);
    holds.next(refused)?;
    let server = start()?;
    are_whole(&server)?;
    Ok(server)
}

/// Bug: a kill behind the failure of a copy with RENAME left no table. Cause: the server's recovery
/// does not rename the old one back, and the start took its rename for done. Fix: the end of the
/// recovery does it.
fn a_backup_goes_back_later(
    server: Server,
    holds: &Holds,
    start: &impl Fn() -> Result<Server>,
) -> Result<Server> {
    server.sql(TABLES, "test")?;
    let mut altering = Session::open(&server, "test")?;
    holds.next("refuse-keys")?;
    holds.next("drop")?;
    altering.send("ALTER TABLE up ADD COLUMN b INT, RENAME TO above, ALGORITHM=COPY")?;
    holds.has_come("drop")?;
    server.kill()?;
    drop(altering);
    let server = start()?;
    are_whole(&server)?;
    Ok(server)
}

/// Bug: a kill before a RENAME to a name that a foreign key waits for gave the key the old name.
/// Cause: the start took the key for one of a rename that was taken back. Fix: a way back moves
/// keys first, so that none is left behind it.
///
/// Bug: one that failed without a kill did so too. Cause: the server takes a rename back that was
/// not done. Fix: the way back of a table that is not there moves no keys.
fn keys_without_a_parent_stay(
    server: Server,
    holds: &Holds,
    start: &impl Fn() -> Result<Server>,
) -> Result<Server> {
    server.sql(
        "SET foreign_key_checks=0; \
         CREATE TABLE early (a INT, FOREIGN KEY (a) REFERENCES awaited (id)) ENGINE=Terrace; \
         CREATE TABLE of_other (id INT PRIMARY KEY) ENGINE=Terrace; \
         CREATE TABLE other (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES of_other (id)) \
         ENGINE=Terrace",
        "test",
    )?;
    holds.next("refuse-keys")?;
    if server.sql("RENAME TABLE other TO awaited", "test").is_ok() {
        bail!("a table is renamed without its foreign keys");
    }
    waits_for_its_parent(&server)?;
    let mut renaming = Session::open(&server, "test")?;
    holds.next("move")?;
    renaming.send("RENAME TABLE other TO awaited")?;
    holds.has_come("move")?;
    server.kill()?;
    drop(renaming);
    let server = start()?;
    waits_for_its_parent(&server)?;
    server.sql("DROP TABLE early, other, of_other", "test")?;
    Ok(server)
}

fn waits_for_its_parent(server: &Server) -> Result<()> {
    let said = server.sql("SHOW CREATE TABLE early; SELECT * FROM other", "test")?;
    if !said.contains("REFERENCES `awaited`") {
        bail!("behind a rename that was not done a foreign key is {said}");
    }
    Ok(())
}
