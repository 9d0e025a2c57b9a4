//! The library's rows of definitions beside the server's files.
//!
//! The plugin for tests compares them whenever a statement has published what it has changed, and
//! when a start has settled all. The server dies where they differ. `cut_ddl` has it do so too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::between::{Holds, quiet};
use super::server::{Server, Start, until};
use super::sessions::Session;
use super::{FOLDER, build};

/// The file that has the plugin compare, under the folder of what is built.
const COMPARES: &str = "compares";

/// The folder of the server.
const NAME: &str = "published";

/// Scripts that change tables.
const SCRIPTS: &[&str] = &["alter", "partitions", "foreign_keys", "sequences", "versioning"];

/// What a definition may have, and a value of the library.
const MOST_BYTES: u64 = 1 << 20;

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
    begun_ones_are_left(root, &server, &holds)?;
    a_publish_comes_before_a_mark(root, &server, &holds)?;
    a_name_that_is_given_free_early_is_the_next_one_s(root, &server, &holds)?;
    large_ones_have_a_row(&server)?;
    let server = lost_ones_stay(server, || start(Start::kept(NAME)))?;
    let server = unreadable_ones_stay(root, server, || start(Start::kept(NAME)))?;
    server.sql("ALTER TABLE larger REMOVE PARTITIONING; DROP TABLE larger, other", "test")?;
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

/// Rows of these names have to say that a statement changes them, and the others are compared.
fn change(root: &Path, names: &str) -> Result<()> {
    let file = root.join(FOLDER).join(COMPARES);
    fs::write(&file, names).with_context(|| format!("changing {}", file.display()))
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

/// Bug: a server died at each start where one file of a definition could not be read, or a row went
/// with the last definition. Cause: streams throw, and a file that cannot be read was taken for one
/// that is not there. Fix: the row stays as it is, and later statements try again.
fn unreadable_ones_stay(
    root: &Path,
    server: Server,
    start: impl Fn() -> Result<Server>,
) -> Result<Server> {
    let make =
        "CREATE DATABASE d CHARACTER SET latin1; USE d; CREATE TABLE t (a INT) ENGINE=Terrace;
        CREATE TABLE u (a INT) ENGINE=Terrace PARTITION BY HASH (a)";
    server.sql(make, "test")?;
    let folder = server.data().join("d");
    let files =
        ["db.opt", "u.frm"].map(|name| (folder.join(name), folder.join(format!("{name}.kept"))));
    server.kill()?;
    for (file, kept) in &files {
        fs::rename(file, kept).context("moving a file")?;
        fs::create_dir(file).context("making a folder in its place")?;
    }
    compare(root, false)?;
    let server = start()?;
    server.sql("INSERT INTO d.t VALUES (1); CREATE TABLE d.v (a INT) ENGINE=Terrace", "test")?;
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    let said =
        ["2 definitions of tables are not in the database yet", "cannot read the files of d/"];
    if !said.iter().all(|part| log.contains(part)) {
        bail!("the error log does not say that files of two definitions cannot be read");
    }
    for (file, kept) in &files {
        fs::remove_dir(file).context("removing a folder")?;
        fs::rename(kept, file).context("moving a file back")?;
    }
    compare(root, true)?;
    server.sql("CREATE TABLE d.w (a INT) ENGINE=Terrace; DROP DATABASE d", "test")?;
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

/// A row that could not be written is left to the statement that has begun to change its table.
fn begun_ones_are_left(root: &Path, server: &Server, holds: &Holds) -> Result<()> {
    server.sql("CREATE TABLE t (a INT) ENGINE=Terrace", "test")?;
    unpublished(root, server, holds, "ALTER TABLE t ADD COLUMN b INT")?;
    let mut renaming = Session::open(server, "test")?;
    holds.next("rename")?;
    renaming.send("RENAME TABLE t TO u")?;
    holds.has_come("rename")?;
    change(root, "test/t test/u")?;
    server.sql("CREATE TABLE other (a INT) ENGINE=Terrace; DROP TABLE other", "test")?;
    change(root, "")?;
    holds.go("rename")?;
    quiet(&mut renaming)
}

/// A statement that writes a row for an earlier one has done so before another one marks it.
fn a_publish_comes_before_a_mark(root: &Path, server: &Server, holds: &Holds) -> Result<()> {
    const RENAME: &str = "RENAME TABLE u TO t";
    unpublished(root, server, holds, "ALTER TABLE u ADD COLUMN c INT")?;
    compare(root, false)?;
    let mut making = Session::open(server, "test")?;
    holds.next("settle")?;
    making.send("CREATE TABLE other (a INT) ENGINE=Terrace")?;
    holds.has_come("settle")?;
    holds.next("row")?;
    holds.go("settle")?;
    holds.has_come("row")?;
    let mut renaming = Session::open(server, "test")?;
    holds.next("rename")?;
    renaming.send(RENAME)?;
    let begun = format!("SELECT 1 FROM information_schema.processlist WHERE info = '{RENAME}'");
    until("a rename has begun", || Ok(!server.sql(&begun, "test")?.is_empty()))?;
    holds.go("row")?;
    quiet(&mut making)?;
    holds.has_come("rename")?;
    change(root, "test/t test/u")?;
    server.sql("DROP TABLE other", "test")?;
    change(root, "")?;
    holds.go("rename")?;
    quiet(&mut renaming)?;
    server.sql("DROP TABLE t", "test").map(drop)
}

/// Bug: a drop below LOCK TABLES published what another statement was changing. Cause: the server
/// gives the name free before the commit. Fix: a name that another one has begun is that one's.
fn a_name_that_is_given_free_early_is_the_next_one_s(
    root: &Path,
    server: &Server,
    holds: &Holds,
) -> Result<()> {
    let make = "CREATE TABLE t (a INT) ENGINE=Terrace";
    server.sql(&format!("{make}; CREATE TABLE x (a INT) ENGINE=Terrace"), "test")?;
    let (mut dropping, mut renaming) =
        (Session::open(server, "test")?, Session::open(server, "test")?);
    dropping.send("LOCK TABLES t WRITE, x WRITE")?;
    quiet(&mut dropping)?;
    compare(root, false)?;
    holds.next("settle")?;
    dropping.send("DROP TABLE t")?;
    holds.has_come("settle")?;
    server.sql(make, "test")?;
    holds.next("rename")?;
    renaming.send("RENAME TABLE t TO u")?;
    holds.has_come("rename")?;
    change(root, "test/t test/u")?;
    holds.go("settle")?;
    quiet(&mut dropping)?;
    change(root, "")?;
    holds.go("rename")?;
    quiet(&mut renaming)?;
    dropping.send("UNLOCK TABLES")?;
    quiet(&mut dropping)?;
    server.sql("DROP TABLE u, x", "test").map(drop)
}

/// A definition that is too large for a value keeps no other one from the database.
fn large_ones_have_a_row(server: &Server) -> Result<()> {
    const FEW: u64 = 1_000;
    let file = server.data().join("test/large.frm");
    let size_of = |values: u64| -> Result<u64> {
        let list: Vec<_> = (100_000..100_000 + values).map(|value| value.to_string()).collect();
        let list = list.join(",");
        let make = format!(
            "DROP TABLE IF EXISTS large; CREATE TABLE large (a INT) ENGINE=Terrace
            PARTITION BY LIST (a) (PARTITION p VALUES IN ({list}));"
        );
        server.script(&make, "test")?;
        Ok(fs::metadata(&file).context("looking at a definition")?.len())
    };
    // Each value has seven bytes. The list of partitions has more than that too.
    let size = size_of(FEW + (MOST_BYTES - size_of(FEW)?) / 7)?;
    if size <= MOST_BYTES - 7 {
        bail!("a definition that should be too large has {size} bytes");
    }
    server.sql(
        "CREATE TABLE small (a INT) ENGINE=Terrace; RENAME TABLE large TO larger, small TO other",
        "test",
    )?;
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    if !log.contains("the definition of table test/larger is too large") {
        bail!("the error log does not say that a definition is too large");
    }
    Ok(())
}
