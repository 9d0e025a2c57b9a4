//! Servers that follow another one's shared store: what they show while its definitions change,
//! what they refuse, and what a start finds that an earlier one has left.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use super::nodes::{TABLES, all_is_shipped, reads_alone, refused, store};
use super::server::{Server, Start, until};

/// Changes of definitions, again and again, between transfers from one table to another one.
const CHANGES: &[&str] = &[
    "ALTER TABLE one ADD COLUMN x INT DEFAULT 3 FIRST",
    "ALTER TABLE one DROP COLUMN x",
    "ALTER TABLE one ADD KEY k (v)",
    "ALTER TABLE one DROP KEY k",
    "ALTER TABLE two FORCE, ALGORITHM=COPY",
    "RENAME TABLE one TO three, two TO one, three TO two",
    "ALTER TABLE two COMMENT 'another'",
    "TRUNCATE filled; INSERT INTO filled (id, v) SELECT seq, 1 FROM seq_1_to_100",
    "DROP TABLE filled; CREATE TABLE filled (q VARCHAR(30) DEFAULT 'abc', id INT PRIMARY KEY, v INT)
     ENGINE=Terrace; INSERT INTO filled (id, v) SELECT seq, 1 FROM seq_1_to_100",
    "DROP TABLE filled; CREATE TABLE filled (id INT PRIMARY KEY, v INT) ENGINE=Terrace;
     INSERT INTO filled (id, v) SELECT seq, 1 FROM seq_1_to_100",
    "ALTER TABLE parts PARTITION BY HASH (id) PARTITIONS 5",
    "ALTER TABLE parts ADD COLUMN y INT DEFAULT 2",
    "ALTER TABLE parts DROP COLUMN y",
    "ALTER TABLE parts PARTITION BY KEY (id) PARTITIONS 2",
];

const MADE: &str = "
    CREATE TABLE one (id INT PRIMARY KEY, v INT) ENGINE=Terrace;
    CREATE TABLE two LIKE one;
    INSERT INTO one SELECT seq, 100 FROM seq_1_to_50;
    INSERT INTO two SELECT seq, 100 FROM seq_1_to_50;
    CREATE TABLE filled (id INT PRIMARY KEY, v INT) ENGINE=Terrace;
    INSERT INTO filled SELECT seq, 1 FROM seq_1_to_100;
    CREATE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE=Terrace
        PARTITION BY HASH (id) PARTITIONS 3;
    INSERT INTO parts SELECT seq, 1 FROM seq_1_to_100;";

/// What a follower may answer to each.
const ASKED: &[(&str, &[&str])] = &[
    ("SELECT (SELECT SUM(v) FROM one) + (SELECT SUM(v) FROM two)", &["10000"]),
    ("SELECT COUNT(*) + COALESCE(SUM(v), 0) FROM filled", &["200", "0"]),
    ("SELECT COUNT(*) + SUM(v) FROM parts", &["200"]),
    ("SELECT COUNT(*) FROM one JOIN two USING (id)", &["50"]),
];

/// What it may fail with: the definition has changed since the statement, or its transaction,
/// began; statements that wait for each other.
const MAY_FAIL: &[&str] = &["ERROR 1412", "ERROR 1213"];

/// How many clients ask meanwhile.
const CLIENTS: usize = 3;

/// How often all changes are made.
const ROUNDS: usize = 12;

pub(super) fn run(root: &Path, plugin: &Path) -> Result<()> {
    let home = store(root)?;
    let url = format!("file://{}/bucket", home.display());
    let (share, follow) = (format!("--terrace-share={url}"), format!("--terrace-follow={url}"));
    for (options, said) in [
        (&[&*follow, &share][..], "leave terrace_share or terrace_follow out"),
        (&["--terrace-follow=s3://user:secret@bucket/a"], "without credentials"),
    ] {
        let start = Start::fresh("follower").with(options);
        refused(Server::start(root, plugin, &start)?, said)?;
    }
    let writer = Server::start(root, plugin, &Start::fresh("writer").with(&[&share]))?;
    writer.sql(TABLES, "test")?;
    writer.sql("CREATE DATABASE shop CHARACTER SET latin1", "test")?;
    writer.sql(MADE, "shop")?;
    all_is_shipped(&writer)?;
    let start = |name| Start::kept(name).with(&[&follow, "--terrace-node-name=second"]);
    let follower = Server::start(root, plugin, &start("follower"))?;
    shows(&follower)?;
    definitions_change(&writer, &follower)?;
    all_is_shipped(&writer)?;
    same_tables(&writer, &follower)?;
    // A table of its own. What it has of partitioned ones is of an earlier definition by then.
    let own = "CREATE TABLE own (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY HASH (id)
               PARTITIONS 2; INSERT INTO own VALUES (1), (2)";
    follower.sql(own, "shop")?;
    follower.kill()?;
    writer
        .sql("ALTER TABLE parts PARTITION BY HASH (id) PARTITIONS 7; DROP TABLE filled", "shop")?;
    writer.sql("CREATE DATABASE later; CREATE TABLE later.t (a INT) ENGINE=Terrace", "shop")?;
    all_is_shipped(&writer)?;
    let follower = Server::start(root, plugin, &start("follower"))?;
    same_tables(&writer, &follower)?;
    ensure!(!follower.data().join("shop/filled.frm").exists(), "a file of a table that is gone");
    let own = follower.sql("SELECT COUNT(*) FROM own", "shop")?;
    ensure!(own.trim() == "2", "a table of another engine has {own}");
    follower.stop()?;
    writer.stop()
}

/// Whether a follower has the tables and the databases, and changes none.
fn shows(follower: &Server) -> Result<()> {
    let role = "SELECT ROLE, CLAIM, LSN > 0, LAG_MS IS NOT NULL, LAST_ERROR
                FROM information_schema.TERRACE_NODES";
    let role = follower.sql(role, "test")?;
    ensure!(role == "follower\tNULL\t1\t1\tNULL\n", "TERRACE_NODES says {role}");
    reads_alone(follower)?;
    let tables = follower.sql("SHOW TABLES", "test")?;
    ensure!(tables == "p\ns\nt\n", "{tables}");
    let database = follower.sql("SHOW CREATE DATABASE shop; SHOW DATABASES", "test")?;
    ensure!(database.contains("latin1") && database.contains("\nshop\n"), "{database}");
    ensure!(!follower.data().join("test/t.frm").exists(), "it needs no file of a definition");
    Ok(())
}

/// The writer changes definitions while clients ask the follower. Each answer is of one moment.
fn definitions_change(writer: &Server, follower: &Server) -> Result<()> {
    let (ended, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let ask = || -> Result<()> {
            while !ended.load(Ordering::Acquire) {
                for (question, expected) in ASKED {
                    let script = format!("BEGIN; {question}; COMMIT; {question};\n").repeat(20);
                    let said = follower.answers(&script, "shop")?;
                    // Before an error the client says the statement, between two rules.
                    let is_rule = |line: &&str| line.is_empty() || line.starts_with("---");
                    let is_said = |line: &&str| !is_rule(line) && !line.contains(question);
                    for line in said.lines().filter(is_said) {
                        // One alone is dropped, and made again.
                        let is_gone = line.starts_with("ERROR 1146") && line.contains("filled");
                        let may_be = expected.contains(&line)
                            || is_gone
                            || MAY_FAIL.iter().any(|error| line.starts_with(error));
                        ensure!(may_be, "{question} says {line}");
                        answers.fetch_add(u64::from(expected.contains(&line)), Ordering::Relaxed);
                    }
                }
            }
            Ok(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        let changed = (0..ROUNDS).flat_map(|_| CHANGES).try_for_each(|change| {
            let transfer = "BEGIN; UPDATE one SET v = v - 7 WHERE id = 3;
                            UPDATE two SET v = v + 7 WHERE id = 4; COMMIT; ";
            writer.sql(&format!("{transfer}{change}"), "shop").map(drop).context(*change)
        });
        ended.store(true, Ordering::Release);
        for client in clients {
            match client.join() {
                Ok(asked) => asked?,
                Err(_) => bail!("a client panicked"),
            }
        }
        changed
    })?;
    let answers = answers.into_inner();
    ensure!(answers > 1000, "{answers} answers say little");
    println!("a follower: {answers} answers while definitions changed");
    Ok(())
}

/// Whether a follower comes to show the tables that the writer has.
fn same_tables(writer: &Server, follower: &Server) -> Result<()> {
    let asked = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES
                 WHERE ENGINE = 'Terrace' ORDER BY 1, 2; SHOW CREATE TABLE shop.one;
                 SHOW CREATE TABLE shop.two; SHOW CREATE TABLE shop.parts; SELECT * FROM shop.one;
                 SELECT * FROM shop.two; SELECT * FROM shop.parts ORDER BY id";
    let expected = writer.sql(asked, "test")?;
    until("the follower shows the same tables", || {
        Ok(follower.sql(asked, "test").is_ok_and(|shown| shown == expected))
    })
}
