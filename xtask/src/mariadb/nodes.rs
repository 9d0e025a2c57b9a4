//! Servers of one shared store: one that writes, and what becomes of it when another machine takes
//! the store over.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::FOLDER;
use super::server::{Server, Start, until};
use crate::check::passes;
use crate::object::{Kind, Running};

/// What a server that only reads refuses, with error 1290.
const CHANGES: &[&str] = &[
    "INSERT INTO t VALUES (100, 1, 'x')",
    "REPLACE INTO t VALUES (1, 1, 'x')",
    "UPDATE t SET b = 0",
    "DELETE FROM t",
    "SELECT * FROM t WHERE id = 1 FOR UPDATE",
    "SELECT * FROM t LOCK IN SHARE MODE",
    "LOCK TABLES t WRITE",
    "CREATE TABLE n (id INT PRIMARY KEY) ENGINE=Terrace",
    "CREATE TABLE n ENGINE=Terrace SELECT * FROM t",
    "CREATE TEMPORARY TABLE n (id INT PRIMARY KEY) ENGINE=Terrace",
    "DROP TABLE t",
    "DROP TABLE p",
    "RENAME TABLE p TO q",
    "CREATE TABLE q (id INT) ENGINE=Terrace PARTITION BY HASH (id) PARTITIONS 2",
    "RENAME TABLE t TO u",
    "TRUNCATE t",
    "ALTER TABLE t ADD COLUMN d INT DEFAULT 1, ALGORITHM=INSTANT",
    "ALTER TABLE t ADD INDEX (c), ALGORITHM=NOCOPY",
    "ALTER TABLE t FORCE, ALGORITHM=COPY",
    "ALTER TABLE t ENGINE=Aria",
    "ALTER TABLE p DROP PARTITION p0",
    "ALTER TABLE p TRUNCATE PARTITION p0",
    "SELECT NEXTVAL(s)",
    "DROP DATABASE test",
];

/// What it does, also where it names tables that no engine has.
const READS: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT COUNT(*) FROM t",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN; SELECT * FROM t; COMMIT",
    "BEGIN; SELECT * FROM t WHERE b = 20; SELECT * FROM p; ROLLBACK",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT * FROM t; COMMIT",
    "LOCK TABLES t READ; SELECT * FROM t; UNLOCK TABLES",
    "CREATE TABLE a (id INT PRIMARY KEY) ENGINE=Aria SELECT id FROM t; DROP TABLE a",
    "HANDLER t OPEN; HANDLER t READ FIRST; HANDLER t CLOSE",
    "ANALYZE TABLE t; SHOW CREATE TABLE t; SHOW TABLE STATUS",
    "DROP TABLE IF EXISTS of_nobody",
    "FLUSH TABLES",
];

const TABLES: &str = "
    CREATE TABLE t (id INT PRIMARY KEY, b INT, c VARCHAR(20), KEY (b)) ENGINE=Terrace;
    CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace
        PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
                                 PARTITION p1 VALUES LESS THAN MAXVALUE);
    CREATE SEQUENCE s ENGINE=Terrace;
    INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two');
    INSERT INTO p VALUES (1), (11);
    SELECT NEXTVAL(s);";

const ROLE: &str = "SELECT ROLE FROM information_schema.TERRACE_NODES";

/// Runs all parts; `terrace` is the command.
pub(super) fn run(root: &Path, plugin: &Path, terrace: &Path) -> Result<()> {
    taken_over(root, plugin, terrace)?;
    if let Err(missing) = Kind::Moto.program(root) {
        println!("nodes: there is no S3 server here: {missing:#}");
        return Ok(());
    }
    on_s3(root, plugin)?;
    println!("servers of a shared store: written, fenced and started again");
    Ok(())
}

/// The command, built now.
pub(super) fn built(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    passes(Command::new(cargo).current_dir(root).args(["build", "--package", "terrace-cli"]))?;
    Ok(root.join("target/debug/terrace"))
}

fn folder_of(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join("servers").join(name)
}

/// Waits until the store has all that a server has.
fn all_is_shipped(server: &Server) -> Result<()> {
    let lag = "SELECT LAG_BYTES + LAG_MS FROM information_schema.TERRACE_NODES";
    until("all is shipped", || Ok(server.sql(lag, "test")?.trim() == "0"))
}

/// Another machine takes the store over while a server writes.
fn taken_over(root: &Path, plugin: &Path, terrace: &Path) -> Result<()> {
    let home = folder_of(root, "store");
    if home.exists() {
        fs::remove_dir_all(&home).context("removing a store")?;
    }
    fs::create_dir_all(&home).context("making a store")?;
    let (url, to) = (format!("file://{}/bucket", home.display()), home.join("taken"));
    let share = format!("--terrace-share={url}");
    let server =
        Server::start(root, plugin, &Start::fresh("old").with(&[&share, "--log-bin=log"]))?;
    server.sql(TABLES, "test")?;
    all_is_shipped(&server)?;
    let mut promote = Command::new(terrace);
    promote.args(["--object-store", &url, "promote"]).arg(&to).arg("--confirm");
    passes(&mut promote)?;
    // It learns of that when it ships.
    drop(server.sql("INSERT INTO t VALUES (3, 30, 'three')", "test"));
    until("the server knows that it is fenced", || {
        Ok(server.sql(ROLE, "test")?.trim() == "fenced")
    })?;
    only_reads(&server).context("a server that was fenced")?;
    server.stop()?;
    let server = Server::start(root, plugin, &Start::kept("old").with(&[&share, "--log-bin=log"]))?;
    only_reads(&server).context("a server that starts fenced")?;
    server.stop()
}

/// Whether a server says that it is fenced, reads, and changes nothing.
fn only_reads(server: &Server) -> Result<()> {
    let role = server.sql(
        "SELECT ROLE, CLAIM, LSN > 0, LAST_ERROR LIKE '%another%'
         FROM information_schema.TERRACE_NODES",
        "test",
    )?;
    ensure!(role == "fenced\tNULL\t1\t1\n", "TERRACE_NODES says {role}");
    for change in CHANGES {
        match server.sql(change, "test") {
            Ok(said) => bail!("{change} says {said}"),
            Err(error) => ensure!(error.to_string().contains("ERROR 1290"), "{error}"),
        }
    }
    for read in READS {
        server.sql(read, "test")?;
    }
    let rows = server.sql("SELECT * FROM t WHERE id < 3; SELECT * FROM p", "test")?;
    ensure!(rows == "1\t10\tone\n2\t20\ttwo\n1\n11\n", "{rows}");
    Ok(())
}

/// A server writes to a store of S3, with credentials of a file, and its copy is fenced.
fn on_s3(root: &Path, plugin: &Path) -> Result<()> {
    let moto = Running::start(Kind::Moto, &Kind::Moto.program(root)?)?;
    let surroundings = Running::surroundings(moto.port);
    let (mut lines, mut secret, mut store) = (String::new(), "", "");
    for (name, value) in &surroundings {
        match *name {
            "TERRACE_S3" => store = value,
            name => lines.push_str(&format!("{name}={value}\n")),
        }
        if *name == "AWS_SECRET_ACCESS_KEY" {
            secret = value;
        }
    }
    let folder = folder_of(root, "writer");
    let share = format!("--terrace-share={store}");
    let file = root.join(FOLDER).join("credentials");
    fs::write(&file, lines).context("writing credentials")?;
    let credentials = format!("--terrace-credentials-file={}", file.display());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    let fresh = Start::fresh("writer").with(&[&share, &credentials]);
    let server = Server::start(root, plugin, &fresh)?;
    refused(server, "others may use the file")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    for (option, said) in [
        ("--terrace-share=s3://user:secret@bucket/a", "without credentials"),
        ("--terrace-object-store=s3://another/one", "is another store"),
    ] {
        let start = Start::kept("writer").with(&[&share, &credentials, option]);
        refused(Server::start(root, plugin, &start)?, said)?;
    }
    let start = || Start::kept("writer").with(&[&share, &credentials]);
    let server = Server::start(root, plugin, &start())?;
    server.sql(TABLES, "test")?;
    all_is_shipped(&server)?;
    let shown = server.sql("SHOW VARIABLES", "test")?;
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    ensure!(!shown.contains(secret) && !log.contains(secret), "a secret is shown");
    let of_writer = "SELECT ROLE, STORE, CLAIM > 0, LSN > 0, LAST_ERROR FROM \
                     information_schema.TERRACE_NODES";
    let role = server.sql(of_writer, "test")?;
    ensure!(role == format!("writer\t{store}\t1\t1\tNULL\n"), "TERRACE_NODES says {role}");
    server.stop()?;
    let copy = folder_of(root, "copy");
    passes(Command::new("cp").arg("-a").arg(&folder).arg(&copy))?;
    let server = Server::start(root, plugin, &start())?;
    let second = Start::kept("copy").with(&[&share, &credentials]);
    let second = Server::start(root, plugin, &second)?;
    only_reads(&second).context("a copy of the directory")?;
    server.sql("INSERT INTO t VALUES (3, 30, 'three')", "test")?;
    all_is_shipped(&server)?;
    second.stop()?;
    server.stop()
}

/// Whether a server runs without the plugin, and its log says why.
fn refused(server: Server, why: &str) -> Result<()> {
    let engines = server.sql("SHOW ENGINES", "test")?;
    let log = fs::read_to_string(server.log()).context("reading the error log")?;
    ensure!(!engines.contains("Terrace") && log.contains(why), "it does not say {why:?}: {log}");
    ensure!(!log.contains("user:secret"), "a secret is in the log");
    server.stop()
}
