//! Indexes that are added and dropped while clients write: each one is whole once it is there, and
//! no client gets an error that a table without it would not give.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::server::Server;
use super::sessions::Session;

/// Clients that write, and rows of the table. The rows take several pieces of the builder.
const CLIENTS: usize = 3;
const ROWS: usize = 5_000;

const TABLE: &str = "DROP TABLE IF EXISTS online; \
    CREATE TABLE online (id INT PRIMARY KEY, v BIGINT, w INT, note VARCHAR(40)) ENGINE=Terrace; \
    INSERT INTO online SELECT seq, seq, seq % 100, CONCAT('note ', seq) FROM seq_1_to_5000";

/// What is added, and what reads all rows by it; both go again after it.
const INDEXES: [(&str, &str); 2] = [
    ("ADD KEY kw (w, note DESC)", "FORCE INDEX (kw) WHERE w >= 0 OR w < 0"),
    ("ADD UNIQUE KEY uv (v)", "FORCE INDEX (uv) WHERE v >= 0"),
];

/// A lock that was not free, and a value that is there twice while the unique index is there.
const EXPECTED: [&str; 3] = ["ERROR 1205", "ERROR 1213", "ERROR 1062"];

/// Adds and drops indexes for a time.
pub(super) fn run(server: &Server, time: Duration) -> Result<()> {
    server.sql(TABLE, "test")?;
    let (is_over, mut rounds) = (AtomicBool::new(false), 0);
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(Session::open(server, "test")?);
    }
    thread::scope(|scope| {
        let writers: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(client, session)| {
                let is_over = &is_over;
                scope.spawn(move || write(session, client, is_over))
            })
            .collect();
        let begin = Instant::now();
        let mut changed = Ok(());
        while begin.elapsed() < time && changed.is_ok() {
            changed = change(server);
            rounds += 1;
        }
        is_over.store(true, Ordering::Release);
        for writer in writers {
            writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        changed
    })?;
    println!("indexes beside writers: {rounds} rounds, each index is whole");
    Ok(())
}

/// Adds the indexes one by one, with a check, and drops them.
fn change(server: &Server) -> Result<()> {
    for (index, all) in INDEXES {
        server.sql(&format!("ALTER TABLE online {index}, ALGORITHM=NOCOPY, LOCK=NONE"), "test")?;
        let checked = server.sql("CHECK TABLE online", "test")?;
        if !checked.contains("status\tOK") {
            bail!("after {index}: {checked}");
        }
        // The check compares numbers; this one compares what the entries lead to.
        let differing = server.sql(
            &format!(
                "SELECT COUNT(*) FROM online a FORCE INDEX (PRIMARY) LEFT JOIN \
                 (SELECT id, v, w FROM online {all}) b \
                 ON a.id = b.id AND a.v = b.v AND a.w = b.w WHERE b.id IS NULL"
            ),
            "test",
        )?;
        if differing.trim() != "0" {
            bail!("after {index}: {} rows are not found by it", differing.trim());
        }
    }
    server.sql("ALTER TABLE online DROP KEY kw, DROP KEY uv, LOCK=NONE", "test").map(drop)
}

/// Changes rows. What is committed has no value of v twice.
fn write(mut session: Session, client: usize, is_over: &AtomicBool) -> Result<()> {
    let mut at = client * 7919;
    while !is_over.load(Ordering::Acquire) {
        at = at.wrapping_mul(6_364_136_223).wrapping_add(1_442_695) % 1_000_003;
        // Each client has its own rows.
        let id = at % (ROWS / CLIENTS) * CLIENTS + client + 1;
        let statement = match at % 7 {
            0 => format!("UPDATE online SET v = v + 1000000 WHERE ABS(id) = {id} AND id = {id}"),
            1 => format!("UPDATE online SET w = w + 1, note = CONCAT('n', w) WHERE id = {id}"),
            2 => format!("UPDATE online SET id = -id WHERE id IN ({id}, -{id})"),
            3 => format!("DELETE FROM online WHERE id IN ({id}, -{id})"),
            5 => format!(
                "INSERT INTO online SELECT {id}, {id}, {at}, 'again' FROM DUAL WHERE NOT EXISTS \
                 (SELECT 1 FROM online WHERE id IN ({id}, -{id}))"
            ),
            // Another row's value, and no commit.
            4 => format!("BEGIN; UPDATE online SET v = {id} + 1 WHERE id = {id}; ROLLBACK"),
            _ => format!("UPDATE online SET w = w - 1 WHERE id BETWEEN {id} AND {id} + 3"),
        };
        session.send(&statement)?;
        let said = session.answer()?;
        let errors = said.lines().filter(|line| line.starts_with("ERROR "));
        for error in errors {
            if !EXPECTED.iter().any(|expected| error.starts_with(expected)) {
                bail!("{statement}: {error}");
            }
        }
    }
    Ok(())
}
