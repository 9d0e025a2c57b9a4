//! The library's rows of definitions beside the server's files.
//!
//! The plugin for tests compares them whenever a statement has published what it has changed, and
//! when a start has settled all. The server dies where they differ. `cut_ddl` has it do so too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::between::{Holds, quiet};
use super::server::{Server, Start};
use super::sessions::Session;
use super::{FOLDER, build};

/// The file that has the plugin compare, under the folder of what is built.
const COMPARES: &str = "compares";

/// The folder of the server.
const NAME: &str = "published";

/// Scripts that change tables.
const SCRIPTS: &[&str] = &["alter", "partitions", "foreign_keys", "sequences", "versioning"];

/// What the error log says of rows that could not be written.
const LATER: &str = "definitions of tables are not in the database yet";

/// Runs all cases.
pub(super) fn run(root: &Path) -> Result<()> {
    let plugin = build::failing_plugin(root)?;
    let holds = Holds::new(root)?;
    let start = |how: Start<'_>| Server::start(root, &plugin, &compared(root, holds.start(how)));
    compare(root, true)?;
    let server = start(Start::fresh(NAME))?;
    for script in SCRIPTS {
        let path = root.join("mariadb/tests/scripts").join(script).with_extension("sql");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        server.sql("DROP DATABASE IF EXISTS of_script; CREATE DATABASE of_script", "mysql")?;
        let script = format!("SET default_storage_engine=Terrace;\n{text}");
        server.script(&script, "of_script").with_context(|| path.display().to_string())?;
    }
    databases_are_published(&server)?;
    full_disks(root, &server, &holds)?;
    let server = lost_ones_stay(server, || start(Start::kept(NAME)))?;
    println!("rows of definitions are as files behind {} scripts, and full disks", SCRIPTS.len());
    server.stop()
}

/// Has the server look for the file.
pub(super) fn compared<'a>(root: &Path, start: Start<'a>) -> Start<'a> {
    let file = root.join(FOLDER).join(COMPARES);
    start.environment("TERRACE_DEFINITIONS", file.to_string_lossy().into_owned())
}

/// Rows and files are compared from now on, or no longer.
pub(super) fn compare(root: &Path, now: bool) -> Result<()> {
    let file = root.join(FOLDER).join(COMPARES);
    let done = if now { fs::write(&file, "") } else { fs::remove_file(&file) };
    done.with_context(|| format!("changing {}", file.display()))
}

/// A statement that changes a table notes its database.
fn databases_are_published(server: &Server) -> Result<()> {
    let table = "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Terrace";
    server.sql(
        &format!(
            "CREATE DATABASE d CHARACTER SET latin1; USE d; {table}; \
             ALTER DATABASE d CHARACTER SET utf8mb4; ALTER TABLE t ADD COLUMN a INT; \
             DROP DATABASE d; CREATE DATABASE d CHARACTER SET latin1; USE d; {table}; \
             DROP DATABASE d"
        ),
        "test",
    )?;
    Ok(())
}

/// A start keeps the row of a table whose definition is lost, and another one finds it there.
fn lost_ones_stay(server: Server, start: impl Fn() -> Result<Server>) -> Result<Server> {
    let make = "CREATE TABLE l (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id)";
    server.sql(make, "test")?;
    let file = server.data().join("test/l.frm");
    let image = fs::read(&file).context("reading a definition")?;
    server.kill()?;
    fs::remove_file(&file).context("losing a definition")?;
    start()?.kill()?;
    fs::write(&file, image).context("finding a definition")?;
    let server = start()?;
    server.sql("INSERT INTO l VALUES (1); DROP TABLE l", "test")?;
    Ok(server)
}

/// Where there is no space for the mark a statement fails before it has changed anything, and one
/// that gives space back goes on. Where there is none behind it, a later statement writes the rows.
fn full_disks(root: &Path, server: &Server, holds: &Holds) -> Result<()> {
    const ROW: &str = "SELECT a FROM t";
    server.sql("CREATE TABLE t (a INT) ENGINE=Terrace; INSERT INTO t VALUES (7)", "test")?;
    let refused = |statement: &str| {
        holds.is_so("refuse-definition", true)?;
        Ok::<_, anyhow::Error>(server.sql(statement, "test").is_err())
    };
    for statement in [
        "CREATE TABLE made (a INT) ENGINE=Terrace",
        "RENAME TABLE t TO made",
        "ALTER TABLE t ADD COLUMN b INT, ALGORITHM=INSTANT",
        "ALTER TABLE t ADD COLUMN b INT, ALGORITHM=COPY",
        "ALTER TABLE t PARTITION BY HASH (a) PARTITIONS 2",
    ] {
        if !refused(statement)? {
            bail!("{statement}: there was no space for its mark, and it succeeds");
        }
        let (rows, tables) = (server.sql(ROW, "test")?, server.sql("SHOW TABLES", "test")?);
        if rows.trim() != "7" || tables.trim() != "t" {
            bail!("{statement}: it was refused, and there are {tables} with {rows}");
        }
    }
    if refused("TRUNCATE TABLE t")? || refused("DROP TABLE t")? {
        bail!("no space for a mark keeps a statement from giving space back");
    }
    for (begin, statement) in [
        ("CREATE TABLE t (a INT) ENGINE=Terrace", "ALTER TABLE t ADD COLUMN b INT"),
        ("SELECT 1", "RENAME TABLE t TO u"),
        ("SELECT 1", "DROP TABLE u"),
        ("SELECT 1", "CREATE TABLE t (a INT) ENGINE=Terrace PARTITION BY HASH (a)"),
    ] {
        server.sql(begin, "test")?;
        unpublished(root, server, holds, statement)?;
        // Its rows go with these.
        server.sql("CREATE TABLE other (a INT) ENGINE=Terrace; DROP TABLE other", "test")?;
    }
    // Those of the last one are left to the next start.
    unpublished(root, server, holds, "DROP TABLE t")?;
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    if log.matches(LATER).count() != 5 {
        bail!("the error log says {} times that rows come later", log.matches(LATER).count());
    }
    Ok(())
}

/// Runs a statement that finds no space when it publishes what it has changed. It succeeds.
fn unpublished(root: &Path, server: &Server, holds: &Holds, statement: &str) -> Result<()> {
    let mut session = Session::open(server, "test")?;
    compare(root, false)?;
    holds.next("settle")?;
    session.send(statement)?;
    holds.has_come("settle")?;
    holds.is_so("refuse-definition", true)?;
    holds.go("settle")?;
    quiet(&mut session).with_context(|| statement.to_owned())?;
    compare(root, true)
}
