//! Scripts of SQL that run on Terrace and on InnoDB: both have to answer the same.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::server::Server;

/// Where scripts lie.
const FOLDER: &str = "mariadb/tests/scripts";

/// Runs all scripts.
pub(super) fn run(root: &Path, server: &Server) -> Result<()> {
    let folder = root.join(FOLDER);
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .collect::<Result<_, _>>()?;
    scripts.sort_by_key(fs::DirEntry::path);
    for script in &scripts {
        let path = script.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let [ours, theirs] = on_both(server, &text)?;
        let name = script.file_name().to_string_lossy().into_owned();
        same(&name, &ours, &theirs)?;
        println!("{name}: {} lines as InnoDB", ours.lines().count());
    }
    dumped(server)
}

/// A dump of tables and sequences, under LOCK TABLES, gives a database that goes on as that one.
fn dumped(server: &Server) -> Result<()> {
    on_both(
        server,
        "CREATE SEQUENCE s; CREATE TABLE t (id INT PRIMARY KEY, a BIGINT);
        INSERT INTO t VALUES (1, NEXTVAL(s)), (2, NEXTVAL(s)); CREATE VIEW v AS SELECT a FROM t;
        CREATE SEQUENCE down START WITH -1 INCREMENT BY -2 NOCACHE; SELECT NEXTVAL(down);",
    )?;
    server.sql("DROP DATABASE IF EXISTS copy; CREATE DATABASE copy", "mysql")?;
    let loaded = server.script(&server.dump("of_terrace")?, "copy")?;
    if let Some(error) = loaded.lines().find(|line| line.starts_with("ERROR")) {
        bail!("a dump cannot be loaded: {error}");
    }
    server.sql("SELECT NEXTVAL(s) FROM seq_1_to_998", "of_terrace")?;
    let rows = "SELECT * FROM t; SELECT * FROM v; SELECT * FROM down; SELECT NEXTVAL(down);
        SELECT NEXTVAL(s); SELECT table_name, engine FROM information_schema.tables
        WHERE table_schema = DATABASE() ORDER BY 1";
    same("a dump", &server.sql(rows, "copy")?, &server.sql(rows, "of_terrace")?)?;
    server.sql("DROP DATABASE copy", "mysql")?;
    println!("a dump of sequences and tables gives the same");
    Ok(())
}

/// What both engines answer to a script: Terrace first.
pub(super) fn on_both(server: &Server, text: &str) -> Result<[String; 2]> {
    let mut said = [String::new(), String::new()];
    for (engine, said) in ["Terrace", "InnoDB"].iter().zip(&mut said) {
        let database = format!("of_{}", engine.to_lowercase());
        server.sql(
            &format!("DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database}"),
            "mysql",
        )?;
        let script = format!("SET default_storage_engine={engine};\n{text}");
        let answer = server.script(&script, &database)?;
        *said = answer.replace(engine, "ENGINE").replace(&database, "DATABASE");
    }
    Ok(said)
}

/// Fails where two answers differ, and shows the first place.
pub(super) fn same(name: &str, ours: &str, theirs: &str) -> Result<()> {
    if ours == theirs {
        return Ok(());
    }
    let lines = ours.lines().map(Some).chain(std::iter::repeat(None));
    let other = theirs.lines().map(Some).chain(std::iter::repeat(None));
    let differing = lines.zip(other).take_while(|(one, two)| one.is_some() || two.is_some());
    let (at, (one, two)) = differing
        .enumerate()
        .find(|(_, (one, two))| one != two)
        .context("answers that differ have a line that differs")?;
    let before: Vec<&str> = ours.lines().skip(at.saturating_sub(12)).take(at.min(12)).collect();
    bail!(
        "{name}: line {} differs\n  before:\n{}\n  Terrace: {}\n  InnoDB:  {}",
        at + 1,
        before.join("\n"),
        one.unwrap_or("(end)"),
        two.unwrap_or("(end)")
    )
}
