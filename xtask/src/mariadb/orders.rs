//! Orders of two connections that time alone brings about once in a million: one is held at a point
//! of the handler (`mariadb/handler/yield.h`), another does something, and the first one goes on.
//! Each case waits until its point was reached, so none passes without it. What has an answer on
//! InnoDB is compared with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::between::{Holds, quiet};
use super::build;
use super::scripts::same;
use super::server::{Server, Start, until};
use super::sessions::Session;

/// The folder of the server.
const NAME: &str = "orders";

const OPTIONS: &[&str] = &["--log-bin=binlog", "--server-id=1", "--sync-binlog=1"];

/// How many rows an altered table has: some pieces of the builder.
const ROWS: usize = 1_800;

/// Where an ALTER TABLE that builds an index is held, and whether others can write there: they wait
/// for the rows of a piece, and for the table at the end.
const OF_ALTER: &[(&str, bool)] = &[
    ("build", true),
    ("next-piece", true),
    ("piece", false),
    ("alter-built", true),
    ("alter-commit", false),
    ("alter-committed", false),
];

/// Where a commit with the binary log is held, and whether its rows are there after a kill.
const OF_COMMIT: &[(&str, bool)] = &[("prepared", false), ("order", true), ("commit", true)];

/// What was held.
struct Orders<'a> {
    root: &'a Path,
    plugin: &'a Path,
    holds: &'a Holds,
    reached: BTreeSet<&'static str>,
}

impl Orders<'_> {
    fn start(&self, start: Start<'_>) -> Result<Server> {
        Server::start(self.root, self.plugin, &self.holds.start(start.with(OPTIONS)))
    }

    /// Sends a statement, and waits until its connection is held at a point.
    fn hold(&mut self, session: &mut Session, point: &'static str, statement: &str) -> Result<()> {
        self.holds.next(point)?;
        session.send(statement)?;
        self.holds.has_come(point).with_context(|| statement.to_owned())?;
        self.reached.insert(point);
        Ok(())
    }
}

/// Runs all cases.
pub(super) fn run(root: &Path) -> Result<()> {
    let plugin = build::failing_plugin(root)?;
    let holds = Holds::new(root)?;
    let mut orders = Orders { root, plugin: &plugin, holds: &holds, reached: BTreeSet::new() };
    let server = orders.start(Start::fresh(NAME))?;
    for &(point, others_write) in OF_ALTER {
        indexes_beside_writers(&mut orders, &server, point, others_write)
            .and_then(|()| a_value_comes_twice(&mut orders, &server, point, others_write))
            .and_then(|()| an_alter_is_killed(&mut orders, &server, point))
            .with_context(|| format!("ALTER TABLE is held at {point}"))?;
    }
    kill_meets_a_wait(&mut orders, &server)?;
    kill_meets_another_transaction(&mut orders, &server)?;
    a_kill_does_not_wait(&server)?;
    xa_beside_others(&mut orders, &server)?;
    let mut server = server;
    for point in ["verdict", "carried-out"] {
        server = xa_and_a_kill(&mut orders, server, point)
            .with_context(|| format!("XA COMMIT is held at {point}"))?;
    }
    for &(point, is_there) in OF_COMMIT {
        server = commit_and_a_kill(&mut orders, server, (point, is_there))
            .with_context(|| format!("a commit is held at {point}"))?;
    }
    for &(point, is_there) in OF_ALTER {
        server = alter_and_a_kill(&mut orders, server, point, is_there)
            .with_context(|| format!("ALTER TABLE is held at {point}"))?;
    }
    println!("orders: connections were held at {:?}", orders.reached);
    server.stop()
}

/// Makes a table of an engine.
fn make(server: &Server, engine: &str) -> Result<()> {
    server
        .sql(
            &format!(
                "CREATE OR REPLACE TABLE o_{engine} (id INT PRIMARY KEY, a INT, b VARCHAR(20)) \
             ENGINE={engine}; INSERT INTO o_{engine} SELECT seq, seq, CONCAT('b', seq % 50) \
             FROM seq_1_to_{ROWS}; FLUSH TABLES o_{engine}"
            ),
            "test",
        )
        .map(drop)
}

/// What an engine says of its table: the definition, and the rows by each index.
fn said(server: &Server, engine: &str) -> Result<String> {
    let mut all = server.sql(&format!("SHOW CREATE TABLE o_{engine}"), "test")?;
    let indexes = server.sql(&format!("SHOW INDEX FROM o_{engine}"), "test")?;
    let names: BTreeSet<&str> =
        indexes.lines().filter_map(|line| line.split('\t').nth(2)).collect();
    for name in names {
        all.push_str(&server.sql(
            &format!(
                "SELECT * FROM o_{engine} FORCE INDEX ({name}) WHERE id <> 0 ORDER BY id; \
                 SELECT id, a FROM o_{engine} FORCE INDEX ({name}) WHERE a > -100 ORDER BY a, id"
            ),
            "test",
        )?);
    }
    let checked = server.sql(&format!("CHECK TABLE o_{engine}"), "test")?;
    if !checked.contains("status\tOK") {
        bail!("CHECK TABLE: {checked}");
    }
    Ok(all.replace(engine, "ENGINE"))
}

/// Fails where the tables of both engines differ.
fn compare(server: &Server) -> Result<()> {
    same("the tables", &said(server, "Terrace")?, &said(server, "InnoDB")?)
}

const ADD: &str = "ADD KEY ka (a, b), ADD UNIQUE KEY ua (a), LOCK=NONE";

/// Rows before the builder, behind it, and in its piece are changed while it is held.
fn indexes_beside_writers(
    orders: &mut Orders<'_>,
    server: &Server,
    point: &'static str,
    others_write: bool,
) -> Result<()> {
    let writes = |engine: &str| {
        [
            format!("UPDATE o_{engine} SET a = a + 100000 WHERE id IN (1, 2, 900, {ROWS})"),
            format!("UPDATE o_{engine} SET id = -id WHERE id IN (3, 901)"),
            format!("DELETE FROM o_{engine} WHERE id IN (4, 902)"),
            format!("REPLACE INTO o_{engine} VALUES (5, -5, 'x'), (99999, -6, NULL)"),
            // A value moves from one row to another.
            format!("UPDATE o_{engine} SET a = -7 WHERE id = 7"),
            format!("UPDATE o_{engine} SET a = 7 WHERE id = 1700"),
            // One that is there twice comes and goes, where the new index does not refuse it.
            String::from("BEGIN"),
            format!("UPDATE o_{engine} SET a = 10 WHERE id = 1701 AND {others_write}"),
            String::from("ROLLBACK"),
        ]
        .join("; ")
    };
    make(server, "Terrace")?;
    make(server, "InnoDB")?;
    let (mut changing, mut writer) =
        (Session::open(server, "test")?, Session::open(server, "test")?);
    orders.hold(&mut changing, point, &format!("ALTER TABLE o_Terrace {ADD}"))?;
    writer.send(&writes("Terrace"))?;
    if others_write {
        quiet(&mut writer).context("a writer beside ALTER TABLE")?;
    }
    orders.holds.go(point)?;
    quiet(&mut changing)?;
    if !others_write {
        quiet(&mut writer).context("a writer behind ALTER TABLE")?;
    }
    let (alter, writes) = (format!("ALTER TABLE o_InnoDB {ADD}"), writes("InnoDB"));
    let order = if others_write { [writes, alter] } else { [alter, writes] };
    server.sql(&order.join("; "), "test")?;
    compare(server)
}

/// A writer gives a row the value of another one while a unique index is built. Where it can write,
/// the ALTER TABLE fails; behind the ALTER TABLE the writer does.
fn a_value_comes_twice(
    orders: &mut Orders<'_>,
    server: &Server,
    point: &'static str,
    others_write: bool,
) -> Result<()> {
    let write = |engine: &str| format!("UPDATE o_{engine} SET a = 1 WHERE id = 1600");
    make(server, "Terrace")?;
    make(server, "InnoDB")?;
    let (mut changing, mut writer) =
        (Session::open(server, "test")?, Session::open(server, "test")?);
    orders.hold(&mut changing, point, &format!("ALTER TABLE o_Terrace {ADD}"))?;
    writer.send(&write("Terrace"))?;
    // Beside a piece it waits for the entry alone, and comes before the end of the ALTER TABLE.
    let writes = others_write || point == "piece";
    let early = if others_write { Some(writer.answer()?) } else { None };
    orders.holds.go(point)?;
    let of_change = changing.answer()?;
    let of_writer = early.map_or_else(|| writer.answer(), Ok)?;
    let alter = format!("ALTER TABLE o_InnoDB {ADD}");
    let order = if writes { [write("InnoDB"), alter] } else { [alter, write("InnoDB")] };
    let mut theirs = Vec::new();
    for statement in order {
        theirs.push(server.sql(&statement, "test").err().map(|error| format!("{error:#}")));
    }
    if !writes {
        theirs.reverse();
    }
    let ours = [of_writer, of_change];
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let code = |said: &str| said.contains("ERROR 1062");
        if code(ours) != theirs.as_deref().is_some_and(code) || (!code(ours) && !ours.is_empty()) {
            bail!("Terrace says {ours:?}, and InnoDB {theirs:?}");
        }
    }
    compare(server)
}

/// KILL QUERY of an ALTER TABLE. It is done, or has left nothing.
fn an_alter_is_killed(orders: &mut Orders<'_>, server: &Server, point: &'static str) -> Result<()> {
    make(server, "Terrace")?;
    make(server, "InnoDB")?;
    let mut changing = Session::open(server, "test")?;
    let id = connection(&mut changing)?;
    orders.hold(&mut changing, point, &format!("ALTER TABLE o_Terrace {ADD}"))?;
    server.sql(&format!("KILL QUERY {id}"), "test")?;
    orders.holds.go(point)?;
    let answer = changing.answer()?;
    let has_failed = answer.contains("ERROR 1317");
    if !has_failed && !answer.is_empty() {
        bail!("an ALTER TABLE that was killed says: {answer}");
    }
    // The server may look for a kill behind the build, and does so no more once it commits.
    let builds = ["build", "next-piece", "piece"].contains(&point);
    if has_failed != builds && point != "alter-built" {
        bail!("an ALTER TABLE that was killed at {point} says: {answer}");
    }
    if has_failed {
        compare(server).context("behind an ALTER TABLE that was killed")?;
        server.sql(&format!("ALTER TABLE o_Terrace {ADD}"), "test")?;
    }
    server.sql(&format!("ALTER TABLE o_InnoDB {ADD}"), "test")?;
    compare(server)
}

/// The server is killed while an ALTER TABLE is held. The table has one definition, whole.
fn alter_and_a_kill(
    orders: &mut Orders<'_>,
    server: Server,
    point: &'static str,
    others_write: bool,
) -> Result<Server> {
    make(&server, "Terrace")?;
    make(&server, "InnoDB")?;
    let (mut changing, mut writer) =
        (Session::open(&server, "test")?, Session::open(&server, "test")?);
    orders.hold(&mut changing, point, &format!("ALTER TABLE o_Terrace {ADD}"))?;
    let write = |engine: &str| format!("UPDATE o_{engine} SET a = -1 WHERE id IN (1, 1700)");
    if others_write {
        writer.send(&write("Terrace"))?;
        quiet(&mut writer)?;
        server.sql(&write("InnoDB"), "test")?;
        server
            .sql("DELETE FROM o_Terrace WHERE id = 1; DELETE FROM o_InnoDB WHERE id = 1", "test")?;
    }
    server.kill()?;
    let server = orders.start(Start::kept(NAME))?;
    let definition = server.sql("SHOW CREATE TABLE o_Terrace", "test")?;
    // The server's log of DDL asks the handler whether the change is committed.
    let is_new = definition.contains("ua");
    if is_new != (point == "alter-committed") {
        bail!("ALTER TABLE was killed before its end, and the table is {definition}");
    }
    if !is_new {
        compare(&server)?;
        server.sql(&format!("ALTER TABLE o_Terrace {ADD}"), "test")?;
    }
    server.sql(&format!("ALTER TABLE o_InnoDB {ADD}"), "test")?;
    compare(&server)?;
    Ok(server)
}

/// The number of a session's connection.
fn connection(session: &mut Session) -> Result<String> {
    session.send("SELECT CONNECTION_ID()")?;
    Ok(session.answer()?.trim().to_owned())
}

/// A KILL QUERY that comes when its victim has looked for one and does not wait yet ends the wait.
fn kill_meets_a_wait(orders: &mut Orders<'_>, server: &Server) -> Result<()> {
    make(server, "Terrace")?;
    let (mut owner, mut victim) = (Session::open(server, "test")?, Session::open(server, "test")?);
    owner.send("BEGIN; UPDATE o_Terrace SET a = 0 WHERE id = 10")?;
    quiet(&mut owner)?;
    let id = connection(&mut victim)?;
    victim
        .send("SET terrace_lock_wait_timeout=600; BEGIN; SELECT a FROM o_Terrace WHERE id = 9")?;
    victim.answer()?;
    // NOWAIT has told the library of no wait, so the next call tells it of one.
    victim.send("SELECT a FROM o_Terrace WHERE id = 9 FOR UPDATE NOWAIT")?;
    victim.answer()?;
    orders.hold(&mut victim, "wait", "UPDATE o_Terrace SET a = 1 WHERE id = 10")?;
    server.sql(&format!("KILL QUERY {id}"), "test")?;
    orders.holds.go("wait")?;
    let said = victim.answer()?;
    if !said.contains("ERROR 1317") {
        bail!("the victim of KILL QUERY that was about to wait: {said}");
    }
    owner.send("COMMIT")?;
    quiet(&mut owner)?;
    victim.send("ROLLBACK; UPDATE o_Terrace SET a = 2 WHERE id = 10")?;
    quiet(&mut victim)
}

/// A KILL QUERY that has found its victim's wait goes on when that wait has ended. It ends the
/// statement or nothing, and nothing of the connection's next transaction.
fn kill_meets_another_transaction(orders: &mut Orders<'_>, server: &Server) -> Result<()> {
    let (mut owner, mut victim) = (Session::open(server, "test")?, Session::open(server, "test")?);
    let mut killer = Session::open(server, "test")?;
    owner.send("BEGIN; UPDATE o_Terrace SET a = 0 WHERE id = 10")?;
    quiet(&mut owner)?;
    let id = connection(&mut victim)?;
    victim.send("SET terrace_lock_wait_timeout=600; UPDATE o_Terrace SET a = 3 WHERE id = 10")?;
    let waits = "SELECT COUNT(*) FROM information_schema.terrace_transactions \
                 WHERE waits_for IS NOT NULL";
    until("the victim waits for a lock", || Ok(server.sql(waits, "test")?.trim() == "1"))?;
    orders.hold(&mut killer, "kill", &format!("KILL QUERY {id}"))?;
    owner.send("COMMIT")?;
    quiet(&mut owner)?;
    until("the victim waits no more", || Ok(server.sql(waits, "test")?.trim() == "0"))?;
    orders.holds.go("kill")?;
    quiet(&mut killer)?;
    let said = victim.answer()?;
    if !said.is_empty() && !said.contains("ERROR 1317") {
        bail!("the victim of a KILL QUERY behind its wait: {said}");
    }
    victim.send(
        "BEGIN; UPDATE o_Terrace SET a = 4 WHERE id = 11; \
         UPDATE o_Terrace SET a = 5 WHERE id = 12; COMMIT",
    )?;
    quiet(&mut victim).context("the victim's next transaction")?;
    let rows = server.sql("SELECT a FROM o_Terrace WHERE id IN (10, 11, 12)", "test")?;
    if rows != format!("{}\n4\n5\n", if said.is_empty() { 3 } else { 0 }) {
        bail!("the victim was told {said:?}, and the rows are {rows}");
    }
    Ok(())
}

/// Bug: a SELECT that passes many rows which its transaction has deleted was not ended. Who ended
/// it waited for it: `KILL QUERY`, and the server's one thread for the times of statements. Cause:
/// only a wait for a lock was ended, and a call was waited for. Fix: the call looks at a mark. A
/// locking read that goes step by step looked for its first row in a call that no kill found.
fn a_kill_does_not_wait(server: &Server) -> Result<()> {
    server.sql(
        "CREATE TABLE passed (id INT PRIMARY KEY) ENGINE=Terrace; \
         INSERT INTO passed SELECT seq FROM seq_1_to_600000",
        "test",
    )?;
    let mut victim = Session::open(server, "test")?;
    let id = connection(&mut victim)?;
    let plain = "SELECT * FROM passed LIMIT 1";
    let stepping = "SELECT * FROM passed ORDER BY id LIMIT 1 FOR UPDATE";
    let mut cases = vec![(plain, true), (plain, false), (stepping, true), (stepping, false)];
    let mut tries = 0;
    while let Some(&(select, kill)) = cases.last() {
        let runs = format!(
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE id = {id} AND info = '{select}'"
        );
        victim.send("BEGIN; DELETE FROM passed")?;
        quiet(&mut victim)?;
        let mut begun = Instant::now();
        if kill {
            victim.send(select)?;
            until("the victim reads", || Ok(server.sql(&runs, "test")?.trim() == "1"))?;
            begun = Instant::now();
            server.sql(&format!("KILL QUERY {id}"), "test")?;
        } else {
            victim.send(&format!("SET STATEMENT max_statement_time = 0.1 FOR {select}"))?;
        }
        let said = victim.answer()?;
        let (took, code) = (begun.elapsed(), if kill { "ERROR 1317" } else { "ERROR 1969" });
        // On a loaded machine a client takes its time to start: one try of a case has to be short.
        let is_short = took <= Duration::from_secs(1);
        tries += 1;
        if !said.contains(code) || !is_short && tries >= 20 {
            bail!("after {took:?} {select}, which was ended, says: {said}");
        }
        if is_short {
            cases.pop();
        }
        // The transaction goes on.
        victim.send("INSERT INTO passed VALUES (0); SELECT MIN(id) FROM passed; ROLLBACK")?;
        let said = victim.answer()?;
        if said != "0\n" {
            bail!("behind a SELECT that was ended: {said}");
        }
    }
    server.sql("DROP TABLE passed", "test").map(drop)
}

/// Makes tables of both engines in which a transaction writes.
fn make_pair(server: &Server) -> Result<()> {
    server
        .sql(
            "CREATE OR REPLACE TABLE p_t (id INT PRIMARY KEY) ENGINE=Terrace; \
         CREATE OR REPLACE TABLE p_i (id INT PRIMARY KEY) ENGINE=InnoDB",
            "test",
        )
        .map(drop)
}

/// The rows of both engines, which have to be the same.
fn rows_of_pair(server: &Server) -> Result<String> {
    let of = |table: &str| {
        let all = "COALESCE(GROUP_CONCAT(id ORDER BY id), '')";
        server.sql(&format!("SELECT {all} FROM {table}"), "test")
    };
    let (ours, theirs) = (of("p_t")?, of("p_i")?);
    if ours != theirs {
        bail!("Terrace has the rows {ours}, and InnoDB {theirs}");
    }
    Ok(ours.trim().to_owned())
}

/// Prepares a transaction of both engines by XA, in a connection that ends.
fn prepare_pair(server: &Server, id: u32) -> Result<()> {
    let mut owner = Session::open(server, "test")?;
    let number = connection(&mut owner)?;
    owner.send(&format!(
        "XA START 'p'; INSERT INTO p_t VALUES ({id}); INSERT INTO p_i VALUES ({id}); XA END 'p'; \
         XA PREPARE 'p'"
    ))?;
    quiet(&mut owner)?;
    drop(owner);
    let is_there =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {number}");
    until("the owner has ended", || Ok(server.sql(&is_there, "test")?.trim() == "0"))
}

/// Between the binary log and the library no reader sees an XA COMMIT, and its locks hold.
fn xa_beside_others(orders: &mut Orders<'_>, server: &Server) -> Result<()> {
    make_pair(server)?;
    prepare_pair(server, 1)?;
    let mut committing = Session::open(server, "test")?;
    orders.hold(&mut committing, "verdict", "XA COMMIT 'p'")?;
    let seen = server.sql("SELECT COUNT(*) FROM p_t", "test")?;
    let locked = server.sql("SET terrace_lock_wait_timeout=0; INSERT INTO p_t VALUES (1)", "test");
    let again = server.sql("XA ROLLBACK 'p'", "test");
    orders.holds.go("verdict")?;
    quiet(&mut committing)?;
    if seen.trim() != "0" {
        bail!("an XA COMMIT that is not done is seen");
    }
    if !locked.is_err_and(|error| format!("{error:#}").contains("1205")) {
        bail!("a row of an XA COMMIT that is not done is not locked");
    }
    if again.is_ok() {
        bail!("XA ROLLBACK succeeds beside XA COMMIT");
    }
    if rows_of_pair(server)? != "1" {
        bail!("XA COMMIT beside others has lost its rows");
    }
    Ok(())
}

/// The server is killed in an XA COMMIT, before the library commits or behind that. The client says
/// it again, if it is still prepared, and both engines have the rows.
fn xa_and_a_kill(orders: &mut Orders<'_>, server: Server, point: &'static str) -> Result<Server> {
    make_pair(&server)?;
    prepare_pair(&server, 2)?;
    let mut committing = Session::open(&server, "test")?;
    orders.hold(&mut committing, point, "XA COMMIT 'p'")?;
    server.kill()?;
    let server = orders.start(Start::kept(NAME))?;
    if server.sql("XA RECOVER", "test")?.contains('p') {
        server.sql("XA COMMIT 'p'", "test")?;
    } else if point == "verdict" {
        bail!("a transaction that was not committed is not prepared any more");
    }
    if rows_of_pair(&server)? != "2" {
        bail!("XA COMMIT and a kill: the rows are {}", rows_of_pair(&server)?);
    }
    Ok(server)
}

/// The server is killed in a commit that both engines take part in. Either both have it or none, as
/// the binary log says.
fn commit_and_a_kill(
    orders: &mut Orders<'_>,
    server: Server,
    (point, is_there): (&'static str, bool),
) -> Result<Server> {
    make_pair(&server)?;
    let mut session = Session::open(&server, "test")?;
    session.send("BEGIN; INSERT INTO p_i VALUES (3); INSERT INTO p_t VALUES (3)")?;
    quiet(&mut session)?;
    orders.hold(&mut session, point, "COMMIT")?;
    let seen = server.sql("SET innodb_lock_wait_timeout=1; SELECT COUNT(*) FROM p_t", "test")?;
    if point != "commit" && seen.trim() != "0" {
        bail!("a commit without its place in the order is seen");
    }
    server.kill()?;
    let server = orders.start(Start::kept(NAME))?;
    let rows = rows_of_pair(&server)?;
    if rows != if is_there { "3" } else { "" } {
        bail!("after a kill the rows are {rows:?}");
    }
    Ok(server)
}
