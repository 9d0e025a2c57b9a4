//! Kills of the server while it commits and alters tables, with the binary log on.
//!
//! Clients insert rows and note each acknowledged one, and one changes the shape of a table. After
//! a kill and a restart every noted row is there, a transaction is there with all of its rows or
//! none, and a replay of the binary log on an empty table gives the same rows. All tables pass
//! their check, and the server and the library have the same ones.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::server::{Server, Start};
use super::sessions::Session;

/// Clients that write.
const CLIENTS: usize = 4;

const OPTIONS: &[&str] = &["--log-bin=binlog", "--sync-binlog=1", "--server-id=1"];

const TABLES: &str = "CREATE TABLE IF NOT EXISTS ledger (client INT, n INT, part INT, note \
    VARCHAR(100), PRIMARY KEY (client, n, part), KEY (note)) ENGINE=Terrace";

/// What the client that alters a table sends, again and again, wherever a kill has left it.
const CHANGES: &[&str] = &[
    "RENAME TABLE IF EXISTS moved TO shape",
    "CREATE TABLE IF NOT EXISTS shape (id INT PRIMARY KEY, a INT) ENGINE=Terrace",
    "INSERT IGNORE INTO shape (id, a) SELECT seq, seq * 7 FROM seq_1_to_300",
    "ALTER TABLE shape DROP KEY IF EXISTS kb",
    "ALTER TABLE shape ADD COLUMN IF NOT EXISTS b INT NOT NULL DEFAULT 5",
    "ALTER TABLE shape ADD KEY IF NOT EXISTS ka (a), ADD UNIQUE KEY IF NOT EXISTS ku (id, a)",
    "UPDATE shape SET a = a + 1",
    // Clients write to this one meanwhile.
    "ALTER TABLE ledger ADD KEY IF NOT EXISTS kn (n, note), LOCK=NONE",
    "ALTER TABLE shape RENAME KEY IF EXISTS ka TO kb",
    "RENAME TABLE shape TO moved",
    "DELETE FROM moved WHERE id > 200",
    "RENAME TABLE moved TO shape",
    "ALTER TABLE shape DROP KEY IF EXISTS kb, DROP KEY IF EXISTS ku",
    "ALTER TABLE shape FORCE",
    "ALTER TABLE ledger DROP KEY IF EXISTS kn, LOCK=NONE",
    "CREATE TABLE IF NOT EXISTS gone (id INT PRIMARY KEY, KEY (id)) ENGINE=Terrace",
    "INSERT IGNORE INTO gone VALUES (1), (2)",
    "TRUNCATE TABLE gone",
    "DROP TABLE gone",
    "ALTER TABLE shape DROP COLUMN IF EXISTS b",
];

/// Kills a server `rounds` times.
pub(super) fn run(root: &Path, plugin: &Path, rounds: usize) -> Result<()> {
    let mut server = Server::start(root, plugin, &Start::fresh("kills").with(OPTIONS))?;
    server.sql(&format!("RESET MASTER; {TABLES}"), "test")?;
    let mut acknowledged = [0_usize; CLIENTS];
    for round in 0..rounds {
        // Commits of all stages are cut: the moment moves from round to round.
        let moment = Duration::from_millis(200 + (round as u64 * 137) % 700);
        write_until_killed(server, &mut acknowledged, moment)?;
        server = Server::start(root, plugin, &Start::kept("kills").with(OPTIONS))?;
        let rows = verify(&server, &mut acknowledged).with_context(|| format!("round {round}"))?;
        println!("kill {}: {rows} rows, none lost, the binary log agrees", round + 1);
    }
    server.stop()
}

/// Writes with all clients, and kills the server meanwhile.
fn write_until_killed(
    server: Server,
    acknowledged: &mut [usize; CLIENTS],
    moment: Duration,
) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let mut changing = Session::open(&server, "test")?;
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(Session::open(&server, "test")?);
    }
    thread::scope(|scope| {
        let writers: Vec<_> = sessions
            .into_iter()
            .zip(acknowledged.iter_mut())
            .enumerate()
            .map(|(client, (session, count))| {
                let is_over = &is_over;
                scope.spawn(move || write(session, client, count, is_over))
            })
            .collect();
        let changer = scope.spawn(|| change(&mut changing));
        thread::sleep(moment);
        let killed = server.kill();
        is_over.store(true, Ordering::Release);
        for writer in writers {
            writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        changer.join().map_err(|_| anyhow!("the changer panicked"))??;
        killed
    })
}

/// Commits transactions of three rows until the server is gone.
fn write(
    mut session: Session,
    client: usize,
    count: &mut usize,
    is_over: &AtomicBool,
) -> Result<()> {
    loop {
        let n = *count;
        let rows: Vec<String> =
            (0..3).map(|part| format!("({client}, {n}, {part}, 'note {n}')")).collect();
        let statements = format!(
            "BEGIN; INSERT INTO ledger VALUES {}; UPDATE ledger SET note = CONCAT(note, '!') \
             WHERE client = {client} AND n = {n}; COMMIT",
            rows.join(", ")
        );
        let answer = session.send(&statements).and_then(|()| session.answer());
        match answer {
            Ok(said) if said.is_empty() => *count += 1,
            Ok(said) if said.contains("ERROR 2006") || said.contains("ERROR 2013") => {
                return Ok(());
            }
            Ok(said) => bail!("client {client}: {said}"),
            // The client ends with its server.
            Err(_) if is_over.load(Ordering::Acquire) => return Ok(()),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Alters tables until the server is gone.
fn change(session: &mut Session) -> Result<()> {
    loop {
        for statement in CHANGES {
            // The client ends with its server.
            let Ok(said) = session.send(statement).and_then(|()| session.answer()) else {
                return Ok(());
            };
            match said.find("ERROR ") {
                None => {}
                Some(_) if said.contains("ERROR 2006") || said.contains("ERROR 2013") => {
                    return Ok(());
                }
                Some(_) => bail!("{statement}: {said}"),
            }
        }
    }
}

/// Fails where a table does not pass its check, or only the server or the library has it.
fn verify_tables(server: &Server) -> Result<()> {
    let of_server = server.sql(
        "SELECT CONCAT(table_schema, '/', table_name) FROM information_schema.tables \
         WHERE engine = 'Terrace' ORDER BY 1",
        "test",
    )?;
    let of_library = server
        .sql("SELECT table_name FROM information_schema.terrace_tables ORDER BY 1", "test")?;
    if of_server != of_library {
        bail!("the server has the tables\n{of_server}and the library\n{of_library}");
    }
    for table in of_server.lines() {
        let name = table.replace('/', ".");
        let checked = server.sql(&format!("CHECK TABLE {name}"), "test")?;
        if !checked.contains("status\tOK") {
            bail!("CHECK TABLE {name}: {checked}");
        }
    }
    Ok(())
}

/// Fails where an acknowledged row is lost. Counts what is there besides as acknowledged from here.
fn verify(server: &Server, acknowledged: &mut [usize; CLIENTS]) -> Result<usize> {
    let mut all = 0;
    for (client, count) in acknowledged.iter_mut().enumerate() {
        let said = server.sql(
            &format!(
                "SELECT COUNT(*), COUNT(DISTINCT n), COALESCE(MAX(n), -1) + 1, \
                 COALESCE(SUM(note <> CONCAT('note ', n, '!')), 0) FROM ledger \
                 WHERE client = {client}"
            ),
            "test",
        )?;
        let numbers: Vec<usize> =
            said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [rows, transactions, next, wrong] = numbers[..] else { bail!("not four: {said}") };
        if rows != 3 * transactions || next != transactions || wrong != 0 {
            bail!("client {client}: {rows} rows of {transactions} transactions, {wrong} wrong");
        }
        // The one that was under way may have been committed.
        if next < *count || next > *count + 1 {
            bail!("client {client}: {count} acknowledged, and {next} there");
        }
        *count = next;
        all += rows;
    }
    verify_tables(server)?;
    let count =
        server.sql("SELECT COUNT(*) FROM ledger FORCE INDEX (note) WHERE note > ''", "test")?;
    if count.trim() != all.to_string() {
        bail!("the index has {} of {all} rows", count.trim());
    }
    replay(server)?;
    Ok(all)
}

/// Replays the binary log into another database, and compares.
fn replay(server: &Server) -> Result<()> {
    server.sql(
        "SET sql_log_bin=0; DROP DATABASE IF EXISTS replayed; CREATE DATABASE replayed",
        "mysql",
    )?;
    let mut logs: Vec<_> = std::fs::read_dir(server.data())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension().is_some_and(|number| number != "index" && number != "state")
        })
        .filter(|path| path.file_stem().is_some_and(|stem| stem == "binlog"))
        .collect();
    logs.sort();
    let mut binlog = Command::new("mariadb-binlog");
    binlog.args(["--no-defaults", "--disable-log-bin", "--rewrite-db=test->replayed"]);
    binlog.args(&logs);
    let output = binlog.output().context("starting mariadb-binlog")?;
    if !output.status.success() {
        bail!("mariadb-binlog: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("reading the binary log")?;
    let said = server.script(&text, "replayed")?;
    if let Some(error) = said.lines().find(|line| line.starts_with("ERROR ")) {
        bail!("replaying the binary log: {error}");
    }
    let differing = server.sql(
        "SELECT COUNT(*) FROM (SELECT * FROM test.ledger EXCEPT SELECT * FROM replayed.ledger \
         UNION ALL (SELECT * FROM replayed.ledger EXCEPT SELECT * FROM test.ledger)) d",
        "mysql",
    )?;
    if differing.trim() != "0" {
        bail!("{} rows differ from the binary log", differing.trim());
    }
    let tables = |database: &str| {
        server.sql(
            &format!(
                "SELECT table_name FROM information_schema.tables \
                 WHERE table_schema = '{database}' ORDER BY 1"
            ),
            "mysql",
        )
    };
    let (of_server, of_log) = (tables("test")?, tables("replayed")?);
    if of_server != of_log {
        bail!("the server has the tables\n{of_server}and the binary log\n{of_log}");
    }
    // For the server a TRUNCATE and its event are not one.
    for table in of_server.lines().filter(|&table| table != "gone") {
        let sum = |database: &str| {
            let said = server.sql(&format!("CHECKSUM TABLE {database}.{table}"), "mysql")?;
            Ok::<_, anyhow::Error>(said.split_whitespace().nth(1).unwrap_or_default().to_owned())
        };
        if sum("test")? != sum("replayed")? {
            bail!("table {table} differs from the binary log");
        }
    }
    Ok(())
}
