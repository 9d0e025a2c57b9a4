//! Tables whose definitions are lost, and a kill of the server in statements that use their names.

use std::fs;

use anyhow::{Context, Result, bail};

use super::cut_ddl::{Killing, case, has_moments, send, tables};
use super::kills::verify_tables;
use super::server::Server;

/// How many partitions the library has of the partitioned one.
const PARTITIONS: &str = "SELECT COUNT(*) FROM information_schema.terrace_tables \
    WHERE table_name LIKE 'cut/parts#P#%'";

/// A table whose definition is lost, and a statement that gives its name to another one.
struct Lost {
    table: &'static str,
    /// What of it is lost: the definition, or the list of partitions too.
    files: &'static [&'static str],
    /// Makes a table of another engine by the name.
    first: &'static str,
    statement: &'static str,
}

const fn refused(table: &'static str, statement: &'static str) -> Lost {
    Lost { table, files: &["frm"], first: "", statement }
}

const fn without_list(statement: &'static str) -> Lost {
    Lost { table: "parts", files: &["frm", "par"], first: "", statement }
}

const REFUSED: &[Lost] = &[
    refused("single", "CREATE TABLE single (id INT PRIMARY KEY) ENGINE=Terrace"),
    refused("single", "CREATE TABLE single ENGINE=Terrace SELECT b FROM second"),
    refused("single", "CREATE SEQUENCE single ENGINE=Terrace"),
    refused("parts", "CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=Terrace"),
    refused(
        "parts",
        "CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id) \
         PARTITIONS 2",
    ),
    refused("parts", "CREATE TABLE parts LIKE model"),
    refused("parts", "CREATE TABLE parts (a INT DEFAULT NEXTVAL(s)) ENGINE=Terrace"),
    refused(
        "parts",
        "CREATE TABLE parts (a INT DEFAULT NEXTVAL(s)) ENGINE=Terrace SELECT b FROM second",
    ),
    refused(
        "single",
        "CREATE TABLE single (a INT DEFAULT NEXTVAL(s)) ENGINE=Terrace SELECT b FROM second",
    ),
    Lost {
        table: "single",
        files: &["frm"],
        first: "CREATE TABLE single (id INT PRIMARY KEY) ENGINE=InnoDB",
        statement: "ALTER TABLE single ENGINE=Terrace",
    },
    refused("parts", CONVERTED),
    without_list(CONVERTED),
    without_list(
        "CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id) \
         PARTITIONS 2",
    ),
    without_list("CREATE TABLE parts LIKE model"),
    without_list("ALTER TABLE single MODIFY a BIGINT, RENAME TO parts"),
    without_list("ALTER TABLE inno ENGINE=Terrace, RENAME TO parts"),
    // It is not refused. The server is killed before the library has a table.
    without_list("CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=Terrace"),
];

/// Bug: a partition that becomes a table got the name of a lost table, and hid its partitions.
/// Cause: the server has written the new definition when it first asks the handler, which then
/// takes no name for that of a lost table. Fix: the handler refuses the rename, and the server
/// takes the statement back.
const CONVERTED: &str = "ALTER TABLE model CONVERT PARTITION p1 TO TABLE parts";

/// Bug: a kill in a CREATE TABLE that is refused for the name of a lost table took the lost rows.
/// Cause: the server logs the statement before it asks a handler, and its recovery drops what has
/// the name. Fix: a recovery drops no table without a definition, which one that was made has. Bug:
/// so did a kill in an ALTER TABLE that takes the table of another engine over. Cause: it was
/// refused at its rename, and a recovery drops what has the name there. Fix: its copy is refused.
/// Bug: a kill in a CREATE TABLE took partitions whose list was lost too. Cause: its recovery
/// dropped all partitions by the name. Fix: it drops those of a table that has a list.
/// Bug: a kill in an ALTER TABLE that renames its copy over such partitions took the altered table:
/// it was refused at its last rename, when the old rows were gone. Fix: its copy is refused.
/// Bug: CREATE TABLE … LIKE over such partitions left a list of others. Cause: it was refused
/// behind that. Fix: it is refused before.
pub(super) fn rows_stay(killing: &Killing<'_>, mut server: Server) -> Result<Server> {
    for lost in REFUSED {
        for moment in 1.. {
            let was_killed;
            (server, was_killed) = kill_over(killing, server, (lost, moment))
                .with_context(|| format!("{}, killed at moment {moment}", lost.statement))?;
            if !was_killed && moment == 1 {
                bail!("{}: the server is not killed where it is refused", lost.statement);
            }
            // Others do nothing behind it.
            if !was_killed || !lost.statement.starts_with("ALTER") {
                break;
            }
        }
    }
    println!("kills where a lost name is refused: {} statements", REFUSED.len());
    Ok(server)
}

/// Bug: a kill in DROP TABLE of a lost partitioned table left some partitions, and no list of them.
/// Cause: a recovery leaves lost tables. Fix: the drop is noted, and a start ends it.
/// Bug: one that was not killed left the list, so that the database could not be dropped. Cause:
/// the server leaves it. Fix: the handler removes it.
pub(super) fn partitions_go(killing: &Killing<'_>, mut server: Server) -> Result<Server> {
    for files in [&["frm"][..], &["frm", "par"]] {
        for moment in 1.. {
            killing.begin(&server)?;
            let data = server.data();
            server.sql("FLUSH TABLES", "cut")?;
            for of_file in files {
                fs::remove_file(data.join("cut/parts").with_extension(of_file))
                    .context("losing a definition")?;
            }
            killing.kill_at(moment)?;
            let was_killed = send(&server, "DROP TABLE parts", false)?;
            killing.let_live()?;
            server.kill()?;
            server = killing.start_again(&data, 1 + moment % 5)?;
            let context = || format!("a drop without {files:?}, killed at moment {moment}");
            // It has not begun, and the lost table is whole, or it has ended.
            let left = server.sql(PARTITIONS, "mysql")?;
            if left.trim() == "3" && was_killed {
                server.sql("DROP TABLE parts", "cut").with_context(context)?;
            }
            verify_tables(&server).with_context(context)?;
            if data.join("cut/parts.par").exists() {
                bail!("{}: the list of partitions is still there", context());
            }
            if !was_killed {
                has_moments(case(6, "DROP TABLE of a lost table"), moment - 1)?;
                break;
            }
        }
    }
    Ok(server)
}

/// Kills the server at a moment of a statement over lost rows. Whether it was killed.
fn kill_over(
    killing: &Killing<'_>,
    server: Server,
    (lost, moment): (&Lost, usize),
) -> Result<(Server, bool)> {
    let data = server.data();
    killing.begin(&server)?;
    server.sql("CREATE TABLE model LIKE parts; CREATE SEQUENCE s ENGINE=Terrace", "cut")?;
    let before = tables(&server)?;
    server.sql("FLUSH TABLES", "cut")?;
    let place = data.join("cut").join(lost.table);
    let aside = |of_file: &str| place.with_extension(format!("{of_file}-aside"));
    for of_file in lost.files {
        fs::rename(place.with_extension(of_file), aside(of_file)).context("losing a definition")?;
    }
    if !lost.first.is_empty() {
        server.sql(lost.first, "cut")?;
    }
    killing.kill_at(moment)?;
    let was_killed = send(&server, lost.statement, true)?;
    killing.let_live()?;
    server.kill()?;
    let server = killing.start_again(&data, 1)?;
    if !lost.first.is_empty() {
        server.sql(&format!("DROP TABLE {}", lost.table), "cut")?;
    }
    for of_file in lost.files {
        fs::rename(aside(of_file), place.with_extension(of_file))
            .context("finding a definition")?;
    }
    let now = tables(&server)?;
    if now != before {
        bail!("the tables are\n{now}and not\n{before}");
    }
    // A sequence cannot be checked.
    server.sql("DROP SEQUENCE s", "cut")?;
    verify_tables(&server)?;
    Ok((server, was_killed))
}
