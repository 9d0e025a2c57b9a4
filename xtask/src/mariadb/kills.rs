//! Kills of the server while it commits and alters tables, with the binary log on.
//!
//! Clients insert rows and note each acknowledged one, and one changes the shape of a table. After
//! a kill and a restart every noted row is there, a transaction is there with all of its rows or
//! none, and a replay of the binary log in another database gives the same rows. All tables pass
//! their check, and the server and the library have the same ones.
//!
//! A kill leaves what was written and not synced. `--cuts` loses it: the data lie on a file system
//! that is shut down. So it shows that the log makes those commits durable that the library has not
//! synced.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::FOLDER;
use super::replay::Replay;
use super::server::{Server, Start, until};
use super::sessions::Session;
use crate::media::Disk;

/// Clients that write.
const CLIENTS: usize = 4;

/// The region is small, so that the background moves what clients write, and what ALTER TABLE
/// builds has levels below it.
const OPTIONS: &[&str] = &[
    "--log-bin=binlog",
    "--sync-binlog=1",
    "--server-id=1",
    "--terrace-pm-size=2MiB",
    "--terrace-level1-size=1MiB",
];

/// How long all statements of the changer take, about.
const ALL_STATEMENTS: Duration = Duration::from_secs(8);

/// From so many rounds on each statement of the changer has succeeded at least once.
const ROUNDS_OF_ALL: usize = 50;

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
    "ALTER TABLE ledger DROP KEY IF EXISTS kj",
    // The entries of this index have all columns that its reads ask for.
    "ALTER TABLE ledger ADD KEY IF NOT EXISTS ki (n, part), LOCK=NONE",
    "ALTER TABLE ledger RENAME KEY IF EXISTS ki TO kj",
    "CREATE TABLE IF NOT EXISTS ballast (id INT PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) \
     ENGINE=Terrace",
    "INSERT IGNORE INTO ballast SELECT seq, seq % 97, REPEAT('b', 90) FROM seq_1_to_6000",
    "UPDATE ballast SET a = a + 1 WHERE id % 5 = 0",
    "RENAME TABLE shape TO moved",
    "DELETE FROM moved WHERE id > 200",
    "RENAME TABLE moved TO shape",
    "ALTER TABLE shape DROP KEY IF EXISTS kb, DROP KEY IF EXISTS ku",
    "ALTER TABLE shape FORCE",
    "ALTER TABLE ledger DROP KEY IF EXISTS kn, DROP KEY IF EXISTS kj, LOCK=NONE",
    "CREATE TABLE IF NOT EXISTS gone (id INT PRIMARY KEY, KEY (id)) ENGINE=Terrace",
    "INSERT IGNORE INTO gone VALUES (1), (2)",
    "TRUNCATE TABLE gone",
    "DROP TABLE gone",
    "ALTER TABLE shape DROP COLUMN IF EXISTS b",
];

/// What it sends in every other round before that. The server does not write these and the binary
/// log at once, so they are in no log. No sync of the log makes their definitions durable either.
const PARTITIONS: &[&str] = &[
    "SET sql_log_bin = 0",
    "CREATE DATABASE IF NOT EXISTS apart",
    "DROP TABLE IF EXISTS apart.parts, apart.single, apart.moved, apart.shape",
    "CREATE TABLE apart.shape (id INT PRIMARY KEY, a INT, b INT, KEY (a)) ENGINE=Terrace",
    "INSERT INTO apart.shape SELECT seq, seq, seq FROM seq_1_to_50",
    "ALTER TABLE apart.shape ADD COLUMN c INT NOT NULL DEFAULT 5, ALGORITHM=INSTANT",
    "INSERT INTO apart.shape SELECT seq, seq, seq, seq FROM seq_51_to_60",
    "ALTER TABLE apart.shape RENAME KEY a TO k, ADD KEY (c), ALGORITHM=NOCOPY",
    "ALTER TABLE apart.shape DROP COLUMN b, ALGORITHM=INSTANT",
    "UPDATE apart.shape SET a = a + 1, c = c + 1",
    "ALTER TABLE apart.shape DROP KEY k, DROP KEY c, ALGORITHM=INSTANT",
    "CREATE TABLE apart.parts (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=Terrace PARTITION BY \
     RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE apart.single (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=Terrace",
    "INSERT INTO apart.parts SELECT seq, 1 FROM seq_1_to_150",
    "INSERT INTO apart.single SELECT seq, 2 FROM seq_1_to_50",
    "ALTER TABLE apart.parts EXCHANGE PARTITION p0 WITH TABLE apart.single",
    "ALTER TABLE apart.parts EXCHANGE PARTITION p0 WITH TABLE apart.single",
    "ALTER TABLE apart.parts EXCHANGE PARTITION p0 WITH TABLE apart.single",
    "ALTER TABLE apart.parts REORGANIZE PARTITION p1 INTO \
     (PARTITION p1 VALUES LESS THAN (120), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE apart.parts TRUNCATE PARTITION p2",
    "ALTER TABLE apart.parts DROP PARTITION p2",
    "RENAME TABLE apart.parts TO apart.moved",
    "ALTER TABLE apart.moved FORCE, ALGORITHM=COPY",
    "SET sql_log_bin = 1",
];

/// What clients have done in a round. A round without any shows nothing.
#[derive(Default)]
struct Steps {
    commits: AtomicUsize,
    changes: AtomicUsize,
    /// The statements of the changer that have succeeded.
    changed: Mutex<BTreeSet<&'static str>>,
}

impl Steps {
    fn are_some(&self) -> bool {
        self.commits.load(Ordering::Relaxed) > 0 && self.changes.load(Ordering::Relaxed) > 0
    }
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server is killed.
    Kill,
    /// Its file system is shut down, and what was not synced is gone.
    Cut,
}

/// Kills a server `rounds` times.
pub(super) fn run(root: &Path, plugin: &Path, rounds: usize, end: End) -> Result<()> {
    let name = if end == End::Cut { "cuts" } else { "kills" };
    let folder = root.join(FOLDER).join("servers");
    let disk = match end {
        End::Kill => None,
        End::Cut => {
            Some(Disk::make_at(folder.join("cuts.img"), folder.join(name), "xfs", 4 << 30)?)
        }
    };
    // A new file system is empty.
    let start = if disk.is_some() { Start::kept(name) } else { Start::fresh(name) };
    let mut server = Server::start(root, plugin, &start.with(OPTIONS))?;
    server.sql(&format!("RESET MASTER; {TABLES}"), "test")?;
    let mut replay = Replay::begin(&server)?;
    let mut acknowledged = [0_usize; CLIENTS];
    let mut changed = BTreeSet::new();
    for round in 0..rounds {
        // Commits of all stages are cut: the moment moves from round to round.
        let moment = Duration::from_millis(200 + (round as u64 * 137) % 700);
        // Some rounds are long enough for each statement of the changer.
        let moment = if round % 10 == 9 { ALL_STATEMENTS } else { moment };
        let from = acknowledged.iter().min().copied().unwrap_or(0);
        let changes = if round % 2 == 0 { [CHANGES, PARTITIONS] } else { [PARTITIONS, CHANGES] };
        let clients = write_until_killed(server, disk.as_ref(), &mut acknowledged, moment, changes);
        changed.extend(clients?);
        server = Server::start(root, plugin, &Start::kept(name).with(OPTIONS))?;
        let verified = verify(&server, &mut acknowledged)
            .and_then(|rows| replay.follow(&server, from).map(|()| rows));
        let rows = verified.with_context(|| format!("round {round}"))?;
        println!("{end:?} {}: {rows} rows, none lost, the binary log agrees", round + 1);
    }
    let missed: Vec<&str> =
        CHANGES.iter().chain(PARTITIONS).copied().filter(|one| !changed.contains(one)).collect();
    println!("{end:?}: {} statements of the changer succeeded, {missed:?} never", changed.len());
    if acknowledged.contains(&0) || changed.is_empty() {
        bail!("clients had {acknowledged:?} commits, and {} statements", changed.len());
    }
    if rounds >= ROUNDS_OF_ALL && !missed.is_empty() {
        bail!("in {rounds} rounds these never succeeded: {missed:?}");
    }
    syncs(&server)?;
    server.stop()
}

/// Fails where a commit with the binary log on takes more than one sync of the library.
fn syncs(server: &Server) -> Result<()> {
    const COMMITS: u64 = 200;
    let count = |name: &str| -> Result<u64> {
        let said = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"), "mysql")?;
        said.split_whitespace().nth(1).context("a variable has a value")?.parse().context("a count")
    };
    server.sql("CREATE TABLE counted (n INT PRIMARY KEY) ENGINE=Terrace", "test")?;
    let (ours, of_log) = (count("Terrace_commit_syncs")?, count("Binlog_group_commits")?);
    let inserts: Vec<String> =
        (0..COMMITS).map(|n| format!("INSERT INTO counted VALUES ({n})")).collect();
    server.sql(&inserts.join(";"), "test")?;
    let (ours, of_log) =
        (count("Terrace_commit_syncs")? - ours, count("Binlog_group_commits")? - of_log);
    println!("{COMMITS} commits: {ours} syncs of the library, {of_log} of the binary log");
    // The background has some of its own, the more the longer this takes. A second sync of each
    // commit would be twice as many.
    if ours > COMMITS + COMMITS / 2 {
        bail!("{COMMITS} commits took {ours} syncs of the library");
    }
    server.sql("DROP TABLE counted", "test").map(drop)
}

/// Writes with all clients, and kills the server meanwhile.
fn write_until_killed(
    server: Server,
    disk: Option<&Disk>,
    acknowledged: &mut [usize; CLIENTS],
    moment: Duration,
    changes: [&[&'static str]; 2],
) -> Result<BTreeSet<&'static str>> {
    let (is_over, steps) = (AtomicBool::new(false), Steps::default());
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
                let (is_over, steps) = (&is_over, &steps);
                scope.spawn(move || write(session, client, count, (is_over, steps)))
            })
            .collect();
        let changer = scope.spawn(|| change(&mut changing, changes, (&is_over, &steps)));
        thread::sleep(moment);
        // A client that has failed says more than this, so its error comes first.
        let progress = until("clients commit and a table is altered", || {
            let has_ended = writers.iter().any(|writer| writer.is_finished());
            Ok(has_ended || changer.is_finished() || steps.are_some())
        });
        // From here on clients may get any error. A server without its disk may end by itself.
        is_over.store(true, Ordering::Release);
        let killed = match disk {
            None => server.kill(),
            Some(disk) => disk.shut_down().map(|()| drop(server)),
        };
        for writer in writers {
            writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        changer.join().map_err(|_| anyhow!("the changer panicked"))??;
        progress?;
        killed.and_then(|()| disk.map_or(Ok(()), Disk::again))
    })?;
    Ok(steps.changed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Commits transactions of three rows until the server is gone.
fn write(
    mut session: Session,
    client: usize,
    count: &mut usize,
    (is_over, steps): (&AtomicBool, &Steps),
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
            Ok(said) if said.is_empty() => {
                *count += 1;
                steps.commits.fetch_add(1, Ordering::Relaxed);
            }
            // The client ends with its server, and no server may end before it is killed.
            _ if is_over.load(Ordering::Acquire) => return Ok(()),
            Ok(said) => bail!("client {client}: {said}"),
            Err(error) => return Err(error.context(format!("client {client}"))),
        }
    }
}

/// Alters tables until the server is gone.
fn change(
    session: &mut Session,
    changes: [&[&'static str]; 2],
    (is_over, steps): (&AtomicBool, &Steps),
) -> Result<()> {
    loop {
        for &statement in changes.into_iter().flatten() {
            match session.send(statement).and_then(|()| session.answer()) {
                Ok(said) if !said.contains("ERROR ") => {
                    steps.changes.fetch_add(1, Ordering::Relaxed);
                    let mut changed = steps.changed.lock().unwrap_or_else(PoisonError::into_inner);
                    changed.insert(statement);
                }
                // The client ends with its server.
                _ if is_over.load(Ordering::Acquire) => return Ok(()),
                Ok(said) => bail!("{statement}: {said}"),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fails where a table does not pass its check, or only the server or the library has it.
pub(super) fn verify_tables(server: &Server) -> Result<()> {
    let of_server = server.sql(
        "SELECT CONCAT(table_schema, '/', table_name, COALESCE(CONCAT('#P#', partition_name), '')) \
         FROM information_schema.tables JOIN information_schema.partitions \
         USING (table_schema, table_name) WHERE engine = 'Terrace' ORDER BY 1",
        "test",
    )?;
    let of_library = server
        .sql("SELECT table_name FROM information_schema.terrace_tables ORDER BY 1", "test")?;
    if of_server != of_library {
        bail!("the server has the tables\n{of_server}and the library\n{of_library}");
    }
    // Each partition has the name of its table before it.
    for table in of_server.lines() {
        let table = table.split('#').next().unwrap_or_default();
        let name = table.replace('/', ".");
        let checked = server.sql(&format!("CHECK TABLE {name}"), "test")?;
        if !checked.contains("status\tOK") {
            bail!("CHECK TABLE {name}: {checked}");
        }
    }
    Ok(())
}

/// Fails where an index of numbers, which covers the read, has others than the rows have.
fn covering_reads(server: &Server) -> Result<()> {
    let named = server.sql(
        "SELECT index_name FROM information_schema.statistics WHERE table_schema = 'test' AND \
         table_name = 'ledger' AND index_name IN ('ki', 'kj') AND seq_in_index = 1",
        "test",
    )?;
    let read = |index: &str| {
        let sum = "COUNT(*), SUM(client * 7 + n * 3 + part), SUM(n * part)";
        let plan = format!("FROM ledger FORCE INDEX ({index}) WHERE n >= 0");
        let explained = server.sql(&format!("EXPLAIN SELECT client, n, part {plan}"), "test")?;
        Ok::<_, anyhow::Error>((server.sql(&format!("SELECT {sum} {plan}"), "test")?, explained))
    };
    for index in named.lines() {
        let ((by_index, plan), (by_row, _)) = (read(index)?, read("PRIMARY")?);
        if by_index != by_row || !plan.contains("Using index") {
            bail!("by index {index} the rows are {by_index} and not {by_row}: {plan}");
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
    covering_reads(server)?;
    let count =
        server.sql("SELECT COUNT(*) FROM ledger FORCE INDEX (note) WHERE note > ''", "test")?;
    if count.trim() != all.to_string() {
        bail!("the index has {} of {all} rows", count.trim());
    }
    Ok(all)
}
