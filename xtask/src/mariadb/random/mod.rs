//! Random SQL on Terrace and on InnoDB: both have to give the same rows, errors, warnings, numbers
//! of changed rows, and order.
//!
//! Statements come from a seed. They make tables of columns of all types with indexes of all kinds,
//! change them, and ask for them in ways that have one answer. One table has 20,000 rows, which a
//! region of 2 MiB and a small level 1 do not hold. Two sessions write, each to tables of its own,
//! so that no lock decides; a third one reads, at times in one view. The server starts again after
//! each two hundred statements.
//!
//! Where a row has two duplicates, both engines name the one in the older index, and ON DUPLICATE
//! KEY UPDATE changes its row. OPTIMIZE gives InnoDB's indexes the server's order, and leaves
//! Terrace's. So the tester sends no such statement for a table with several unique indexes, and
//! has both engines copy that table where a column goes.

mod foreign;
mod kinds;
mod statements;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::scripts::same;
use super::server::{Server, Start};
use super::sessions::Session;
use statements::{SESSIONS, Step};

/// Statements of one script.
const PIECE: usize = 1_000;

/// After so many the server starts again.
const BETWEEN_STARTS: usize = 200;

/// Tables lie on the disk with all their levels.
const OPTIONS: &[&str] = &[
    "--terrace-pm-size=2MiB",
    "--terrace-level1-size=1MiB",
    "--terrace-cache-size=1MiB",
    "--innodb-lock-wait-timeout=2",
    "--terrace-lock-wait-timeout=2",
];

const ENGINES: [&str; 2] = ["Terrace", "InnoDB"];

/// The seed of the day, so that each day's check tries other statements.
pub(super) fn seed_of_the_day() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    Ok(now.as_secs() / 86_400 * 1_000)
}

/// Runs `count` statements.
pub(super) fn run(root: &Path, plugin: &Path, count: usize, seed: u64) -> Result<()> {
    let mut server = Server::start(root, plugin, &Start::fresh("random").with(OPTIONS))?;
    for piece in 0..count.div_ceil(PIECE) as u64 {
        let seed = seed.wrapping_add(piece);
        let steps = statements::script(seed, PIECE.min(count));
        let text: Vec<String> =
            steps.iter().map(|step| format!("{}: {};\n", step.session, step.statement)).collect();
        std::fs::write(root.join(super::FOLDER).join("random.sql"), text.concat())?;
        for engine in ENGINES {
            let name = database(engine);
            let statements = format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}");
            server.sql(&statements, "mysql")?;
        }
        let mut lines = 0;
        for some in steps.chunks(BETWEEN_STARTS) {
            let [ours, theirs] = ENGINES.map(|engine| play(&server, some, engine));
            let (ours, theirs) = (without_entries(&ours?), without_entries(&theirs?));
            same(&format!("random SQL of seed {seed} (random.sql)"), &ours, &theirs)?;
            lines += ours.lines().count();
            server.stop()?;
            server = Server::start(root, plugin, &Start::kept("random").with(OPTIONS))?;
        }
        println!("seed {seed}: {lines} lines as InnoDB");
    }
    server.stop()
}

fn database(engine: &str) -> String {
    format!("of_{}", engine.to_lowercase())
}

/// Plays steps in sessions of their own. Returns statements and answers.
fn play(server: &Server, steps: &[Step], engine: &str) -> Result<String> {
    let name = database(engine);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let mut session = Session::open(server, &name)?;
        session.send(&format!(
            "SET default_storage_engine={engine}; \
             SET NAMES utf8mb4, sql_mode='', timestamp=1000000000"
        ))?;
        session.answer()?;
        sessions.push(session);
    }
    let mut said = String::new();
    for Step { session: number, statement } in steps {
        let session = &mut sessions[*number];
        session.send(statement)?;
        let answer = session.answer()?.replace(engine, "ENGINE").replace(&name, "DATABASE");
        said.push_str(&format!("{number}: {statement}\n{answer}"));
    }
    Ok(said)
}

/// Answers without the values of duplicates, which an ALTER TABLE finds in the order of its copy,
/// and without the notes of OPTIMIZE: InnoDB makes the table anew, and says so.
fn without_entries(said: &str) -> String {
    let of_line = |line: &str| match (line.find("Duplicate entry '"), line.rfind("' for key ")) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}\n", &line[..begin], &line[end..]),
        _ => format!("{line}\n"),
    };
    said.lines().filter(|line| !line.contains("\toptimize\tnote\t")).map(of_line).collect()
}
