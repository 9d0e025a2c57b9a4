//! Statements that change tables, and a kill of the server at each step of each.
//!
//! A plugin for this test kills the server before and behind each call of the library that creates,
//! drops, renames or empties a table. After the next start the server and the library have the same
//! tables, each passes its check, and they are those of before the statement or of behind it. The
//! server is killed once more in some recoveries. In other cases the kill is a power cut. It takes
//! definitions (`.frm`) back to the last sync of their directory, also behind the statement.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::kills::verify_tables;
use super::server::{Server, Start, until};
use super::sessions::Session;
use super::{FOLDER, build, lost, published};

/// What a case begins with. The one table is partitioned, the other is not.
const BEGIN: &str = "\
    DROP DATABASE IF EXISTS cut; CREATE DATABASE cut; USE cut; \
    CREATE TABLE parts (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=Terrace \
    PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN \
    (20), PARTITION p2 VALUES LESS THAN (40)); \
    CREATE TABLE single (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=Terrace; \
    CREATE TABLE inno (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO inno VALUES (1); \
    INSERT INTO parts SELECT seq, 1 FROM seq_1_to_30; \
    INSERT INTO single SELECT seq, 2 FROM seq_1_to_9; \
    CREATE TABLE second (b VARCHAR(9) PRIMARY KEY) ENGINE=Terrace; \
    INSERT INTO second VALUES ('x'); \
    CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=Terrace; INSERT INTO parent VALUES (1); \
    CREATE TABLE child (a INT, KEY (a), FOREIGN KEY (a) REFERENCES parent (id)) ENGINE=Terrace; \
    INSERT INTO child VALUES (1); SET foreign_key_checks=0; \
    CREATE TABLE early (a INT, FOREIGN KEY (a) REFERENCES awaited (id)) ENGINE=Terrace; \
    SET foreign_key_checks=1";

/// A statement, and at how many moments the server can be killed in it at least: before and behind
/// each call of the library that it takes. With fewer the plugin has missed some.
#[derive(Clone, Copy)]
pub(super) struct Case {
    least: usize,
    statement: &'static str,
}

pub(super) const fn case(least: usize, statement: &'static str) -> Case {
    Case { least, statement }
}

/// Statements of the check.
const STATEMENTS: &[Case] = &[
    case(
        4,
        "CREATE TABLE made (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id) PARTITIONS 2",
    ),
    case(6, "DROP TABLE parts"),
    case(6, "RENAME TABLE parts TO moved"),
    case(18, "ALTER TABLE parts ADD COLUMN b INT"),
    PARENT,
    RENAMED,
    CHILD,
    // The old name of one has a definition of another engine when the server is killed.
    case(8, "RENAME TABLE single TO other, inno TO single, parts TO moved"),
    FAILING,
    FAILED_SELECT,
    TO_ITSELF,
    UNCHECKED,
    DROPPED,
    AWAITED,
    LEFT,
];

/// Statements that fail.
const FAIL: &[Case] = &[FAILING, FAILED_SELECT];

/// Bug: a kill behind a drop, or in the CREATE TABLE of a table that a foreign key waits for, left
/// a definition without a table. Cause: the recovery's drop was refused for the foreign keys, and
/// the server goes on without it. Fix: a recovery's drop is not refused.
const DROPPED: Case = case(2, "SET STATEMENT foreign_key_checks=0 FOR DROP TABLE parent");
const AWAITED: Case = case(2, "CREATE TABLE awaited (id INT PRIMARY KEY) ENGINE=Terrace");

/// Bug: a kill where a CREATE TABLE takes its partitions back left some of them. Cause: the list of
/// partitions goes first, and without one the recovery took them for those of a lost table. Fix: a
/// definition of a partitioned table says too that they are its own.
const FAILED_SELECT: Case = case(
    8,
    "CREATE TABLE made (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY HASH (id) PARTITIONS 2 \
     SELECT 1 AS id UNION ALL SELECT 1",
);

/// Bug: a kill behind the removal of the old definition left the old rows, and their name was
/// refused from then on. Cause: the recovery's drop of them took the table for one that was lost
/// before. Fix: the statement notes that the table goes, and a start ends that.
const LEFT: Case = case(2, "ALTER TABLE single ENGINE=InnoDB, RENAME TO left_engine");

/// Bug: a rename of partitions failed half way, and a kill in its way back, or a failure there,
/// left partitions under the new name. The log then advised to drop them. Cause: the way back was
/// noted as a rename of its own, which hid the first one, and the end of the statement forgot it
/// unseen. Fix: the way back is no rename, and the end of the statement and the next start do it.
/// The plugin has the third rename fail, and the first way back of the second one.
const FAILING: Case = case(12, "RENAME TABLE parts TO blocked");

/// Bug: a kill in a copy of a table that others refer to left the new definition over the old rows.
/// Cause: the recovery's drop of the old table was refused for the foreign keys, and the server
/// goes on without it. Fix: a recovery's drop is not refused.
const PARENT: Case = case(6, "ALTER TABLE parent ADD COLUMN b INT, ALGORITHM=COPY");

/// Bug: behind a kill in a copy that renames its table other tables referred to no table, and the
/// old rows stayed. Cause: the recovery's statement has no table whose keys it moves, and the
/// server's log no backup. Fix: the copy notes its table.
const RENAMED: Case =
    case(6, "ALTER TABLE parent ADD COLUMN b INT, RENAME TO elder, ALGORITHM=COPY");

/// Bug: a copy with a key to its own table and RENAME left the old rows, with or without a kill.
/// Cause: its key referred to the old name, and that drop was refused. Fix: the key goes with it.
const TO_ITSELF: Case =
    case(4, "ALTER TABLE single ADD FOREIGN KEY (a) REFERENCES single (id), RENAME TO own");

/// Bug: without foreign_key_checks a kill decided whether children followed a copy with RENAME.
/// Cause: they followed where the old table was gone by then. Fix: they follow always.
const UNCHECKED: Case = case(
    4,
    "SET STATEMENT foreign_key_checks=0 FOR ALTER TABLE parent ADD COLUMN b INT, RENAME TO elder, \
     ALGORITHM=COPY",
);

/// Bug: a kill behind the drop of a copied table gave the new one the keys of the old one. Cause:
/// the keys of the old one were there under its hidden name, and the start took its rename for one
/// that had not begun. Fix: the keys of a hidden table go before it does.
const CHILD: Case =
    case(6, "ALTER TABLE child DROP FOREIGN KEY child_ibfk_1, ADD COLUMN b INT, ALGORITHM=COPY");

/// Statements of the long check besides.
const MORE_STATEMENTS: &[Case] = &[
    case(2, "CREATE TABLE made (id INT PRIMARY KEY) ENGINE=Terrace"),
    case(2, "CREATE TABLE made ENGINE=Terrace SELECT * FROM single"),
    case(10, "RENAME TABLE single TO other, parts TO single, other TO parts"),
    case(2, "TRUNCATE TABLE single"),
    case(6, "ALTER TABLE single ADD COLUMN b INT, ALGORITHM=COPY"),
    case(2, "ALTER TABLE single RENAME TO moved"),
    case(6, "ALTER TABLE single PARTITION BY HASH (id) PARTITIONS 2"),
    case(6, "ALTER TABLE parts REMOVE PARTITIONING"),
    case(2, "ALTER TABLE parts ADD PARTITION (PARTITION p3 VALUES LESS THAN (60))"),
    case(2, "ALTER TABLE parts DROP PARTITION p1"),
    case(2, "ALTER TABLE parts TRUNCATE PARTITION p1"),
    case(
        4,
        "ALTER TABLE parts REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (15), \
     PARTITION p3 VALUES LESS THAN (20))",
    ),
    EXCHANGE,
    case(2, "ALTER TABLE parts CONVERT PARTITION p1 TO TABLE made"),
    case(2, "ALTER TABLE single ENGINE=InnoDB"),
    case(6, "ALTER TABLE parts ENGINE=InnoDB REMOVE PARTITIONING"),
    case(6, "ALTER TABLE parts ENGINE=InnoDB, RENAME TO left_engine REMOVE PARTITIONING"),
];

/// Bug: a kill behind the first rename of an exchange took the definition of the table. Cause: the
/// start gave the definition the hidden name of that rename. The server moves rows alone. Fix: a
/// rename to such a name is undone. Behind the second rename the log does that, and a start said
/// that it failed.
const EXCHANGE: Case = case(2, "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE single");

/// More of these, which the server does in steps: after a kill some of them are done.
const IN_STEPS: &[Case] = &[
    case(8, "CREATE OR REPLACE TABLE parts (id INT PRIMARY KEY) ENGINE=Terrace"),
    case(8, "DROP TABLE single, parts"),
    SWAP,
    case(8, "DROP DATABASE cut"),
    case(6, "TRUNCATE TABLE parts"),
];

/// Statements that a power cut comes into.
const CUT: &[Case] = &[COPY, SWAP, PARTITION];

/// Statements of the long check besides.
const MORE_CUT: &[Case] = &[
    case(18, "ALTER TABLE parts MODIFY a BIGINT"),
    case(8, "RENAME TABLE parts TO moved"),
    case(6, "ALTER TABLE parts REMOVE PARTITIONING"),
];

/// Bug: a power cut behind the first rename of a copy left the new definition over the old rows.
/// Cause: the start undid that rename, and the server's log of DDL then ended the statement. Fix:
/// the log ends it alone, and the second rename waits until the definition of the first is durable.
const COPY: Case = case(10, "ALTER TABLE single MODIFY a BIGINT, ALGORITHM=COPY");

/// Bug: a power cut in a recovery left some partitions under the table's name, others under the
/// copy's. Cause: it brought the definition of the old table back, so the next start took the
/// rename of the partitions for done. Fix: a recovery removes it durably before the rename.
const PARTITION: Case = case(16, "ALTER TABLE single PARTITION BY HASH (id) PARTITIONS 2");

/// Bug: a power cut that took both definitions back left the old one of the first table over the
/// rows of the second. Cause: the first rename was undone where the second one had its old name.
/// Fix: each rename waits until the definitions of those before it are durable.
const SWAP: Case = case(8, "RENAME TABLE single TO other, second TO single");

/// Turns the binary log on.
const LOG: &[&str] = &["--log-bin=binlog", "--server-id=1"];

/// Where the server has its data.
const FOLDER_OF_SERVER: &str = "cut-ddl";

/// The tables of a case.
const TABLES: &str = "SELECT table_name FROM information_schema.tables \
    WHERE table_schema = 'cut' ORDER BY 1";

/// How many connections wait for others to end their use of a table.
const WAITING: &str = "SELECT COUNT(*) FROM information_schema.processlist \
    WHERE state = 'Waiting for table metadata lock'";

/// The server with the plugin that kills it.
pub(super) struct Killing<'a> {
    root: &'a Path,
    plugin: &'a Path,
    /// The file with the number of moments until the server dies.
    countdown: &'a Path,
    /// The folder of definitions that a power cut leaves, where a kill is one.
    durable: Option<&'a Path>,
    options: &'static [&'static str],
}

impl Killing<'_> {
    fn start(&self, start: Start<'_>) -> Result<Server> {
        let variable = self.countdown.to_string_lossy().into_owned();
        let mut start = start.with(self.options).environment("TERRACE_KILL", variable);
        start = published::compared(self.root, start);
        if let Some(folder) = self.durable {
            start = start.environment("TERRACE_DURABLE", folder.to_string_lossy().into_owned());
        }
        Server::start(self.root, self.plugin, &start)
    }

    /// From now on the server dies at a moment, counted from 1.
    pub(super) fn kill_at(&self, moment: usize) -> Result<()> {
        fs::write(self.countdown, format!("{moment}\n")).context("naming a moment")
    }

    /// From now on it lives.
    pub(super) fn let_live(&self) -> Result<()> {
        fs::remove_file(self.countdown).context("forgetting a moment")
    }

    /// Before a statement all definitions are durable.
    pub(super) fn begin(&self, server: &Server) -> Result<()> {
        server.sql(BEGIN, "mysql")?;
        let Some(folder) = self.durable else { return Ok(()) };
        remove(folder)?;
        fs::create_dir_all(folder).context("making a folder")?;
        for file in definitions(&server.data().join("cut"))? {
            link(&file, folder)?;
        }
        Ok(())
    }

    /// Takes back the names of definitions that were not synced, where the kill is a power cut.
    fn cut(&self, data: &Path) -> Result<()> {
        let (Some(folder), database) = (self.durable, data.join("cut")) else { return Ok(()) };
        for file in definitions(&database)? {
            if fs::metadata(&file).context("looking at a definition")?.nlink() > 1 {
                fs::remove_file(&file).context("taking a definition back")?;
            }
        }
        definitions(folder)?.iter().try_for_each(|file| link(file, &database))
    }

    /// Starts the server again. It is killed once more while it recovers, if it comes that far.
    pub(super) fn start_again(&self, data: &Path, moment: usize) -> Result<Server> {
        self.cut(data)?;
        self.kill_at(moment)?;
        let started = self.start(Start::kept(FOLDER_OF_SERVER));
        self.let_live()?;
        match started {
            Err(error) if format!("{error:#}").contains("signal: 9") => {
                self.cut(data)?;
                self.start(Start::kept(FOLDER_OF_SERVER))
            }
            started => started,
        }
    }
}

/// Runs the statements of the check, or all, with the binary log off and on: those with a text.
pub(super) fn run(root: &Path, long: bool, text: &str) -> Result<()> {
    let plugin = build::failing_plugin(root)?;
    let countdown = root.join(FOLDER).join("moments");
    let durable = root.join(FOLDER).join("durable");
    let all: &[&[Case]] =
        if long { &[STATEMENTS, MORE_STATEMENTS, IN_STEPS] } else { &[STATEMENTS] };
    let cut: &[&[Case]] = if long { &[CUT, MORE_CUT] } else { &[CUT] };
    let logs: &[&[&str]] = if long { &[&[], LOG] } else { &[LOG] };
    for options in logs {
        for (cases, durable) in [(all, None), (cut, Some(&*durable))] {
            let killing =
                Killing { root, plugin: &plugin, countdown: &countdown, durable, options };
            if killing.countdown.exists() {
                killing.let_live()?;
            }
            let mut server = killing.start(Start::fresh(FOLDER_OF_SERVER))?;
            published::compare(root, true)?;
            let cases = cases.iter().copied().flatten();
            for case in cases.filter(|case| case.statement.contains(text)) {
                server = kill_in(&killing, server, *case)?;
            }
            // These lose definitions and put them back beside the server.
            published::compare(root, false)?;
            if durable.is_none() && (text.is_empty() || text == "lost") {
                server = lost::rows_stay(&killing, server)?;
                server = lost::partitions_go(&killing, server)?;
            }
            if durable.is_none() && (text.is_empty() || text == "reader") {
                server = readers_hold_it_up(&killing, server)?;
            }
            let log = fs::read_to_string(server.log()).context("reading the error log")?;
            if let Some(line) = log.lines().find(|line| line.contains("cannot rename table")) {
                bail!("a start says that it cannot settle a rename: {line}");
            }
            server.stop()?;
        }
    }
    Ok(())
}

/// The definitions and the lists of partitions in a folder.
fn definitions(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.context("reading a folder")?.path();
        if path.extension().is_some_and(|of_file| of_file == "frm" || of_file == "par") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Gives a file the same name in another folder too.
fn link(file: &Path, folder: &Path) -> Result<()> {
    let place = folder.join(file.file_name().context("a file has a name")?);
    if place.exists() {
        fs::remove_file(&place).context("replacing a definition")?;
    }
    fs::hard_link(file, &place).with_context(|| format!("making {}", place.display()))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// Kills the server at each moment of a statement. Returns the last server.
fn kill_in(killing: &Killing<'_>, mut server: Server, case: Case) -> Result<Server> {
    let statement = case.statement;
    killing.begin(&server)?;
    let data = server.data();
    let before = tables(&server)?;
    let fails = is_one_of(FAIL, statement);
    if server.sql(statement, "cut").is_err() != fails {
        bail!("{statement}: it fails, or the one that has to fail does not");
    }
    let behind = tables(&server)?;
    if fails && behind != before {
        bail!("{statement}: behind its failure the tables are\n{behind}and not\n{before}");
    }
    for moment in 1.. {
        killing.begin(&server)?;
        killing.kill_at(moment)?;
        let was_killed = send(&server, statement, fails)?;
        killing.let_live()?;
        if !was_killed && killing.durable.is_none() {
            has_moments(case, moment - 1)?;
            break;
        }
        server.kill()?;
        let context = || format!("{statement}, killed at moment {moment}");
        server = killing.start_again(&data, 1 + moment % 5).with_context(context)?;
        verify_tables(&server).with_context(context)?;
        let now = tables(&server).with_context(context)?;
        let may_be = was_killed && (now == before || is_one_of(IN_STEPS, statement));
        if now != behind && !may_be {
            bail!("{}: the tables are\n{now}and not\n{before}or\n{behind}", context());
        }
        // A power cut behind the statement takes nothing back.
        if !was_killed {
            has_moments(case, moment - 1)?;
            break;
        }
    }
    Ok(server)
}

/// Changes by a copy, which waits for those who read the table when all rows are in it.
const HELD_UP: &[&str] = &[
    "ALTER TABLE single MODIFY a BIGINT, ALGORITHM=COPY",
    "ALTER TABLE single MODIFY a BIGINT, RENAME TO other",
    "ALTER TABLE single ENGINE=InnoDB, RENAME TO left_engine",
    "ALTER TABLE parts MODIFY a BIGINT",
    "ALTER TABLE inno ENGINE=Terrace",
];

/// The server is killed while a copy waits for a transaction that has read the table. Its log of
/// DDL has it that all is copied, so the recovery ends the statement.
fn readers_hold_it_up(killing: &Killing<'_>, mut server: Server) -> Result<Server> {
    let data = server.data();
    for (n, statement) in HELD_UP.iter().enumerate() {
        killing.begin(&server)?;
        let before = tables(&server)?;
        server.sql(statement, "cut")?;
        let behind = tables(&server)?;
        killing.begin(&server)?;
        let mut reader = Session::open(&server, "cut")?;
        reader.send("BEGIN; SELECT COUNT(*) FROM single, parts, inno")?;
        reader.answer()?;
        let mut changing = Session::open(&server, "cut")?;
        changing.send(statement)?;
        until("a copy waits for a reader", || Ok(server.sql(WAITING, "cut")?.trim() == "1"))?;
        server.kill()?;
        let context = || format!("{statement}, killed while it waits for a reader");
        server = killing.start_again(&data, 1 + n % 5).with_context(context)?;
        verify_tables(&server).with_context(context)?;
        let now = tables(&server).with_context(context)?;
        if now != before && now != behind {
            bail!("{}: the tables are\n{now}and not\n{before}or\n{behind}", context());
        }
    }
    println!("kills where a reader holds a copy up: {} statements", HELD_UP.len());
    Ok(server)
}

fn is_one_of(cases: &[Case], statement: &str) -> bool {
    cases.iter().any(|case| case.statement == statement)
}

pub(super) fn has_moments(Case { least, statement }: Case, found: usize) -> Result<()> {
    println!("{statement}: killed at {found} moments");
    if found < least {
        bail!("{statement}: there are {least} moments at least to kill the server at");
    }
    Ok(())
}

/// Sends a statement, which may fail. Whether the server was killed in it.
pub(super) fn send(server: &Server, statement: &str, may_fail: bool) -> Result<bool> {
    let mut session = Session::open(server, "cut")?;
    session.send(statement)?;
    // A client may end with its server.
    let Ok(answer) = session.answer() else { return Ok(true) };
    if answer.contains("ERROR 2006") || answer.contains("ERROR 2013") {
        return Ok(true);
    }
    if !answer.is_empty() && !may_fail {
        bail!("{statement}: {answer}");
    }
    Ok(false)
}

/// The definitions and the checksums of all tables of a case.
pub(super) fn tables(server: &Server) -> Result<String> {
    let mut all = String::new();
    for table in server.sql(TABLES, "mysql")?.lines() {
        let statements = format!("SHOW CREATE TABLE cut.{table}; CHECKSUM TABLE cut.{table}");
        all.push_str(&server.sql(&statements, "mysql")?);
    }
    Ok(all)
}
