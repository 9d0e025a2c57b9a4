//! Statements that rename tables in chains, where the disk is full at some steps, and kills.
//!
//! The server gives definitions their old names also where the handler refuses to rename the table.
//! So tables may end under names that none of the renames said. Each table has its own name as its
//! comment and in its rows, and its own foreign key. Behind each failure the definition, the rows
//! and the keys of each table are together, and nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::between::Holds;
use super::cut_ddl::send;
use super::server::{Server, Start};
use super::sessions::Session;
use super::{FOLDER, astray, build};

/// The folder of the server.
const NAME: &str = "chains";

/// What the tables of a chain are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Child,
    Parent,
    Parts,
}

const KINDS: &[Kind] = &[Kind::Plain, Kind::Child, Kind::Parent, Kind::Parts];

/// Each with the tables that it renames. Renames end with one that fails, or are killed before it.
const STATEMENTS: &[(&str, &[&str])] = &[
    ("RENAME TABLE a TO old", &["a"]),
    ("RENAME TABLE a TO old, b TO a", &["a", "b"]),
    ("RENAME TABLE a TO tmp, b TO a, tmp TO b", &["a", "b"]),
    ("RENAME TABLE a TO tmp, b TO a, c TO b, tmp TO c", &["a", "b", "c"]),
    ("ALTER TABLE a ADD COLUMN x INT NOT NULL DEFAULT 7, ALGORITHM=COPY", &["a"]),
    ("ALTER TABLE a ADD COLUMN x INT NOT NULL DEFAULT 7, RENAME TO above, ALGORITHM=COPY", &["a"]),
];

/// A statement over tables of one kind.
#[derive(Debug)]
struct Chain {
    statement: &'static str,
    tables: &'static [&'static str],
    kind: Kind,
}

impl Chain {
    fn all(text: &str) -> Vec<Chain> {
        let of_kind = |kind| {
            STATEMENTS.iter().map(move |&(statement, tables)| Chain { statement, tables, kind })
        };
        let is_wanted =
            |chain: &Chain| format!("{:?} {}", chain.kind, chain.statement).contains(text);
        KINDS.iter().flat_map(|&kind| of_kind(kind)).filter(is_wanted).collect()
    }

    fn is_rename(&self) -> bool {
        self.statement.starts_with("RENAME")
    }

    /// One that fails behind all renames, so that the server takes them back.
    fn failing(&self) -> String {
        let more = if self.is_rename() { ", nope TO z" } else { "" };
        format!("{}{more}", self.statement)
    }

    fn begin(&self, server: &Server) -> Result<()> {
        let copies = server.sql(
            "SELECT SUBSTR(table_name, 5) FROM information_schema.terrace_tables \
             WHERE table_name LIKE 'cut/#sql-alter-%'",
            "mysql",
        )?;
        for copy in copies.lines() {
            server.sql(&format!("DROP TABLE cut.`#mysql50#{copy}`"), "mysql")?;
        }
        let mut make = "DROP DATABASE IF EXISTS cut; CREATE DATABASE cut; USE cut; \
            CREATE TABLE top (id INT PRIMARY KEY, who VARCHAR(9)) ENGINE=Terrace COMMENT='top'; \
            INSERT INTO top VALUES (1, 'top'), (2, 'top');"
            .to_owned();
        for name in self.tables {
            let more = match self.kind {
                Kind::Child => {
                    format!(", CONSTRAINT of_{name} FOREIGN KEY (id) REFERENCES top (id)")
                }
                _ => String::new(),
            };
            let parts =
                if self.kind == Kind::Parts { "PARTITION BY HASH (id) PARTITIONS 2" } else { "" };
            make.push_str(&format!(
                "CREATE TABLE {name} (id INT PRIMARY KEY, who VARCHAR(9){more}) ENGINE=Terrace \
                 COMMENT='{name}' {parts}; INSERT INTO {name} VALUES (1, '{name}'), (2, '{name}');"
            ));
            if self.kind == Kind::Parent {
                let child = format!("below_{name}");
                make.push_str(&format!(
                    "CREATE TABLE {child} (id INT PRIMARY KEY, who VARCHAR(9), CONSTRAINT \
                     to_{name} FOREIGN KEY (id) REFERENCES {name} (id)) ENGINE=Terrace \
                     COMMENT='{child}'; INSERT INTO {child} VALUES (1, '{child}'), (2, '{child}');"
                ));
            }
        }
        server.sql(&make, "mysql").map(drop)
    }

    /// Fails where a definition has not its own rows and keys, or a table is not there.
    fn is_whole(&self, server: &Server) -> Result<()> {
        let listed = server.sql(
            "SELECT table_name, table_comment FROM information_schema.tables \
             WHERE table_schema = 'cut' ORDER BY 2",
            "mysql",
        )?;
        let named: Vec<(&str, &str)> =
            listed.lines().filter_map(|line| line.split_once('\t')).collect();
        let mut wanted = vec!["top".to_owned()];
        for name in self.tables {
            wanted.push((*name).to_owned());
            if self.kind == Kind::Parent {
                wanted.push(format!("below_{name}"));
            }
        }
        wanted.sort();
        let comments: Vec<&str> = named.iter().map(|(_, comment)| *comment).collect();
        if comments != wanted {
            bail!("the tables are\n{listed}");
        }
        for (name, own) in &named {
            has_own_rows(server, name, own).context(listed.clone())?;
            let keys = server.sql(&format!("SHOW CREATE TABLE {name}"), "cut")?;
            let key = match (own.strip_prefix("below_"), self.kind) {
                (Some(parent), _) => {
                    let at = named.iter().find(|(_, comment)| *comment == parent);
                    let at = at.context("a parent is there")?.0;
                    format!("CONSTRAINT `to_{parent}` FOREIGN KEY (`id`) REFERENCES `{at}`")
                }
                (None, Kind::Child) if *own != "top" => {
                    format!("CONSTRAINT `of_{own}` FOREIGN KEY (`id`) REFERENCES `top`")
                }
                _ => String::new(),
            };
            let count = keys.matches("FOREIGN KEY").count();
            if !keys.contains(&key) || count != usize::from(!key.is_empty()) {
                bail!("table {name}, which is {own}, has the keys {keys}");
            }
        }
        has_each_once(server)
    }
}

/// Fails where a table has other rows than its own, or others than its definition says.
fn has_own_rows(server: &Server, name: &str, own: &str) -> Result<()> {
    let rows = server.sql(&format!("SELECT * FROM {name} ORDER BY id"), "cut")?;
    let of_x = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'cut' \
                AND column_name = 'x' AND table_name";
    let has_x = server.sql(&format!("{of_x} = '{name}'"), "mysql")? == "1\n";
    let x = if has_x { "\t7" } else { "" };
    let checked = server.sql(&format!("CHECK TABLE {name}"), "cut")?;
    if rows != format!("1\t{own}{x}\n2\t{own}{x}\n") || !checked.contains("status\tOK") {
        bail!("table {name}, which is {own}, has the rows {rows}: {checked}");
    }
    Ok(())
}

/// Fails where a statement gets at a table that has not its own rows.
fn refuses_what_is_astray(server: &Server) -> Result<()> {
    let all = "SELECT table_name, table_comment FROM information_schema.tables \
               WHERE table_schema = 'cut' ORDER BY 1";
    for line in server.sql(all, "mysql")?.lines() {
        let name = line.split_once('\t').context("a table has a comment")?.0;
        let own = server.sql(&format!("SHOW CREATE TABLE {name}"), "cut");
        if let Ok(made) = own {
            let own = made.split("COMMENT='").nth(1).and_then(|rest| rest.split('\'').next());
            has_own_rows(server, name, own.context("a table has a comment")?)?;
            continue;
        }
        for statement in [
            format!("INSERT INTO {name} (id, who) VALUES (3, 'new')"),
            format!("RENAME TABLE {name} TO anything"),
            format!("ALTER TABLE {name} ADD COLUMN y INT, ALGORITHM=COPY"),
            format!("DROP TABLE {name}"),
        ] {
            // Without the list of its partitions the server does not come to the handler.
            let texts = ["restart the server", "read from the .par file", "(errno: 2 "];
            let done = server.sql(&statement, "cut");
            let is_refused = done.as_ref().is_err_and(|why| {
                let said = format!("{why:#}");
                texts.iter().any(|text| said.contains(text))
            });
            if !is_refused {
                bail!("of a table that is astray: {statement}: {done:?}");
            }
        }
    }
    Ok(())
}

/// Fails where only the server or the library has a table. A copy may be left of an ALTER TABLE
/// that has failed. A start names it.
fn has_each_once(server: &Server) -> Result<()> {
    let of_server = server.sql(
        "SELECT CONCAT(table_name, COALESCE(CONCAT('#P#', partition_name), '')) \
         FROM information_schema.partitions WHERE table_schema = 'cut' ORDER BY 1",
        "cut",
    )?;
    let of_library = server.sql(
        "SELECT SUBSTR(table_name, 5) FROM information_schema.terrace_tables \
         WHERE table_name LIKE 'cut/%' AND table_name NOT LIKE 'cut/#sql-alter-%' ORDER BY 1",
        "cut",
    )?;
    if of_server != of_library {
        bail!("the server has the tables\n{of_server}and the library\n{of_library}");
    }
    Ok(())
}

/// Where the disk is full.
pub(super) struct Full(PathBuf);

impl Full {
    /// Behind some steps, for some.
    pub(super) fn set(&self, before: usize, count: usize) -> Result<()> {
        fs::write(&self.0, format!("{before} {count}\n")).context("having a full disk")
    }

    /// At the next step, and at one more behind some.
    pub(super) fn set_twice(&self, before: usize) -> Result<()> {
        let later = self.0.with_file_name("full-later");
        fs::write(later, format!("{before} 1\n")).context("having a full disk again")?;
        self.set(0, 1)
    }

    /// No longer. Whether a step has found it.
    pub(super) fn end(&self, count: usize) -> Result<bool> {
        let Ok(left) = fs::read_to_string(&self.0) else { return Ok(true) };
        fs::remove_file(&self.0).context("having space again")?;
        Ok(left.trim() == format!("0 {}", count - 1) && count > 1)
    }
}

/// Runs statements with a text: with kills, or without.
pub(super) fn run(root: &Path, with_kills: bool, text: &str) -> Result<()> {
    let plugin = build::failing_plugin(root)?;
    let holds = Holds::new(root)?;
    let full = Full(root.join(FOLDER).join("holds").join("full"));
    let moments = root.join(FOLDER).join("moments-of-chains");
    let start = |start: Start<'_>| {
        let file = moments.to_string_lossy().into_owned();
        Server::start(root, &plugin, &holds.start(start).environment("TERRACE_KILL", file))
    };
    let mut server = start(Start::fresh(NAME))?;
    if "astray".contains(text) {
        server = astray::run(server, (&holds, &full), || start(Start::kept(NAME)))?;
    }
    let mut count = 0;
    for chain in Chain::all(text) {
        for length in [1, 2] {
            for before in 0.. {
                let context = || format!("{chain:?}, behind {before} steps {length} find no space");
                chain.begin(&server)?;
                full.set(before, length)?;
                let said = server.script(&chain.failing(), "cut")?;
                let was_full = full.end(length)?;
                // What the end of the statement has no space for, a start does.
                if length > 1 && chain.is_whole(&server).is_err() {
                    refuses_what_is_astray(&server).with_context(context)?;
                    server.kill()?;
                    server = start(Start::kept(NAME))?;
                }
                chain.is_whole(&server).with_context(context).with_context(|| said)?;
                count += 1;
                if !was_full {
                    break;
                }
            }
        }
        println!("{chain:?}: {count} cases so far");
        if with_kills {
            let kept = || start(Start::kept(NAME));
            server = killed_before_the_end(server, &chain, (&full, &holds, &kept))?;
            server = killed_in_between(server, &chain, (&full, &moments, &kept))?;
        }
    }
    println!("chains of renames on a full disk: {count} cases");
    server.stop()
}

/// The statement has failed, and the server is killed before the handler ends what it could not.
fn killed_before_the_end(
    mut server: Server,
    chain: &Chain,
    (full, holds, start): (&Full, &Holds, &dyn Fn() -> Result<Server>),
) -> Result<Server> {
    // Before that there may be no note yet.
    for before in 4.. {
        chain.begin(&server)?;
        full.set(before, 1)?;
        holds.next("settle")?;
        let mut session = Session::open(&server, "cut")?;
        session.send(&chain.failing())?;
        holds.has_come("settle")?;
        server.kill()?;
        drop(session);
        let was_full = full.end(1)?;
        server = start()?;
        chain
            .is_whole(&server)
            .with_context(|| format!("{chain:?}, killed at its end, full behind {before} steps"))?;
        if !was_full {
            break;
        }
    }
    Ok(server)
}

/// The server is killed at each call of the library, and its next start finds a full disk.
fn killed_in_between(
    mut server: Server,
    chain: &Chain,
    (full, moments, start): (&Full, &Path, &dyn Fn() -> Result<Server>),
) -> Result<Server> {
    for moment in 1.. {
        for before in 0.. {
            chain.begin(&server)?;
            fs::write(moments, format!("{moment}\n")).context("naming a moment")?;
            let was_killed = send(&server, chain.statement, false)?;
            fs::remove_file(moments).context("forgetting a moment")?;
            server.kill()?;
            full.set(before, 1)?;
            server = start()?;
            let was_full = full.end(1)?;
            chain.is_whole(&server).with_context(|| {
                format!("{chain:?}, killed at moment {moment}, then full behind {before} steps")
            })?;
            if !was_killed {
                return Ok(server);
            }
            if !was_full {
                break;
            }
        }
    }
    Ok(server)
}
