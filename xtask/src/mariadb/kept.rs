//! What a table keeps beside its rows, where a call fails on the way: counters of a table whose
//! rows expire lie in a table of the handler's own, and move when the time to live changes.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::between::Holds;
use super::build;
use super::server::{Server, Start};
use super::sessions::Session;

/// The folder of the server.
const NAME: &str = "kept";

/// Bug: readers of a table waited, beyond any KILL, while a writer stored its counters, and
/// openings of all tables while one was opened. Cause: locks that they take were held meanwhile.
/// Fix: these are held for a look at memory alone.
fn nobody_waits_for_a_store(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Terrace; \
         CREATE TABLE opened (id INT PRIMARY KEY) ENGINE=Terrace; \
         INSERT INTO counted (v) VALUES (1)",
        "test",
    )?;
    let mut reader = Session::open(server, "test")?;
    for (held, statement) in [
        ("counters", "INSERT INTO counted (v) SELECT seq FROM seq_1_to_3000"),
        ("open", "SELECT * FROM opened"),
    ] {
        server.sql("FLUSH TABLES", "test")?;
        if held == "counters" {
            // Both are open, so that the reader meets the store alone.
            server.sql("SELECT COUNT(*) FROM counted, opened", "test")?;
        }
        holds.next(held)?;
        let mut writer = Session::open(server, "test")?;
        writer.send(statement)?;
        holds.has_come(held)?;
        reader.send("SELECT v FROM counted WHERE id = 1; SHOW CREATE TABLE counted")?;
        if !reader.answer()?.starts_with("1\ncounted\t") {
            bail!("{held}: a reader does not get its row");
        }
        holds.go(held)?;
        writer.answer()?;
    }
    server.sql("DROP TABLE counted, opened", "test").map(drop)
}

/// Runs all cases. One kill is behind them, since a kill gives no numbers back.
pub(super) fn run(root: &Path) -> Result<()> {
    let plugin = build::failing_plugin(root)?;
    let holds = Holds::new(root)?;
    let server = Server::start(root, &plugin, &holds.start(Start::fresh(NAME)))?;
    a_number_is_stored_again(&server, &holds)?;
    counters_find_their_place(&server, &holds)?;
    counters_move_again(&server, &holds)?;
    what_is_not_stored_is_not_moved(&server, &holds)?;
    a_failure_expires_nothing(&server, &holds)?;
    another_format_is_told(&server, &holds)?;
    an_earlier_order_is_told(&server)?;
    an_empty_table_has_no_order(&server, &holds)?;
    a_layout_is_stored_again(&server, &holds)?;
    a_failed_create_leaves_nothing(&server, &holds)?;
    nobody_waits_for_a_store(&server, &holds)?;
    let changing = copies_expire(&server, &holds)?;
    server.kill()?;
    drop(changing);
    let server = Server::start(root, &plugin, &holds.start(Start::kept(NAME)))?;
    let number = server.sql("INSERT INTO brief (v) VALUES (1); SELECT LAST_INSERT_ID()", "test")?;
    if number.trim().parse::<u64>().context("a number")? <= 10 {
        bail!("the number behind 10 is {number}");
    }
    let found = server.sql("SELECT id FROM shrunk FORCE INDEX (c) WHERE c = 20", "test")?;
    if found.trim() != "2" {
        bail!("a layout that was stored after a TRUNCATE: index c finds {found:?}");
    }
    is_in_order(&server, "killed")?;
    for table in ["seen", "emptied", "lasting", "unknown"] {
        server
            .sql(&format!("INSERT INTO {table} (v) SELECT seq FROM seq_1_to_20"), "test")
            .with_context(|| format!("{table}: numbers behind a kill"))?;
        let checked = server.sql(&format!("CHECK TABLE {table}"), "test")?;
        if !checked.contains("status\tOK") {
            bail!("{table}: {checked}");
        }
    }
    let least = server.sql("SELECT MIN(id) FROM seen WHERE v > 0", "test")?;
    if least.trim().parse::<u64>().context("a number")? <= 5000 {
        bail!("a number behind 5000 is {least}");
    }
    println!("what tables keep: stored again where a call has failed");
    server.stop()
}

/// A row with a number of its own failed, because the counter could not be stored. The same row
/// again was taken for one with a small number, so the counter was not stored at all: after a kill
/// its number was given out twice.
fn a_number_is_stored_again(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE seen (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Terrace; \
         INSERT INTO seen (v) VALUES (0)",
        "test",
    )?;
    holds.next("refuse")?;
    let insert = "INSERT INTO seen VALUES (5000, 0)";
    if server.sql(insert, "test").is_ok() {
        bail!("a row succeeds whose counter cannot be stored");
    }
    server.sql(insert, "test").map(drop)
}

/// Counters of a table whose rows expire lie in another table. Where a TRUNCATE cannot store them
/// there, the next row does, so after a kill no number comes again.
fn counters_find_their_place(server: &Server, holds: &Holds) -> Result<()> {
    let mut session = Session::open(server, "test")?;
    session.send(
        "CREATE TABLE emptied (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Terrace \
         TERRACE_TTL='7d'; LOCK TABLES emptied WRITE; INSERT INTO emptied (v) VALUES (1)",
    )?;
    session.answer()?;
    holds.next("refuse-kept")?;
    session.send(
        "TRUNCATE TABLE emptied; SHOW WARNINGS; INSERT INTO emptied (v) VALUES (1), (2), (3)",
    )?;
    let said = session.answer()?;
    if !said.contains("the table is empty") || said.contains("ERROR") {
        bail!("a TRUNCATE that cannot store what its table keeps: {said}");
    }
    Ok(())
}

/// Where rows stop to expire, counters are copied to the table and written there once more. Where
/// the last write fails, so does ALTER TABLE, and an opening gives the table its time to live back.
/// No number is given out twice.
fn counters_move_again(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE lasting (id INT AUTO_INCREMENT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace \
         TERRACE_TTL='7d'; ALTER TABLE lasting RENAME KEY v TO w, ALGORITHM=INSTANT; \
         INSERT INTO lasting (v) SELECT seq FROM seq_1_to_10",
        "test",
    )?;
    holds.next("options")?;
    let mut changing = Session::open(server, "test")?;
    changing.send("ALTER TABLE lasting TERRACE_TTL='none', ALGORITHM=INSTANT")?;
    holds.has_come("options")?;
    holds.next("refuse")?;
    holds.go("options")?;
    let said = changing.answer()?;
    if !said.contains("ERROR") {
        bail!("counters could not be written, and ALTER TABLE says: {said}");
    }
    server.sql("INSERT INTO lasting (v) SELECT seq FROM seq_1_to_3000", "test").map(drop)
}

/// Bug: where a short time to live was taken away, numbers began at 1 again behind a kill. Cause:
/// the copy in the table expired before the time to live was gone, and the kill came before it was
/// written once more. Fix: until then an opening takes what the keeper has.
fn copies_expire(server: &Server, holds: &Holds) -> Result<Session> {
    server.sql(
        "CREATE TABLE brief (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Terrace \
         TERRACE_TTL='1s'; INSERT INTO brief (v) SELECT seq FROM seq_1_to_10",
        "test",
    )?;
    holds.next("options")?;
    let mut changing = Session::open(server, "test")?;
    changing.send("ALTER TABLE brief TERRACE_TTL='none', ALGORITHM=INSTANT")?;
    holds.has_come("options")?;
    server.sql("DO SLEEP(4)", "test")?;
    holds.next("counters")?;
    holds.go("options")?;
    holds.has_come("counters")?;
    Ok(changing)
}

/// Bug: an ALTER TABLE that gave a partitioned table a shorter life failed at its second
/// partition, and rows of the first one were gone. Cause: partitions got the new life before the
/// server had the new definition. Fix: an opening sets it, which has the definition.
fn a_failure_expires_nothing(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE shorter (id INT PRIMARY KEY) ENGINE=Terrace PARTITION BY RANGE (id) \
         (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20)); \
         INSERT INTO shorter VALUES (1), (11)",
        "test",
    )?;
    holds.is_so("no-options", true)?;
    let said = server.sql("ALTER TABLE shorter TERRACE_TTL='1s', ALGORITHM=INSTANT", "test");
    holds.is_so("no-options", false)?;
    let count = "DO SLEEP(3); SELECT COUNT(*) FROM shorter";
    let rows = server.sql(count, "test")?;
    if said.is_err() && rows.trim() != "2" {
        bail!("an ALTER TABLE has failed, and of 2 rows there are {rows}");
    }
    // It is used by now, so the new life counts.
    let rows = server.sql(count, "test")?;
    if said.is_ok() && rows.trim() != "0" {
        bail!("an ALTER TABLE has succeeded, and {rows} rows live longer than it says");
    }
    server.sql("DROP TABLE shorter", "test").map(drop)
}

/// What a TRUNCATE could not store is stored before an ALTER TABLE moves it, which fails where that
/// fails.
fn what_is_not_stored_is_not_moved(server: &Server, holds: &Holds) -> Result<()> {
    let mut session = Session::open(server, "test")?;
    session.send(
        "CREATE TABLE unknown (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE=Terrace \
         TERRACE_TTL='7d'; LOCK TABLES unknown WRITE; INSERT INTO unknown (v) VALUES (1)",
    )?;
    session.answer()?;
    holds.is_so("no-kept", true)?;
    session.send("TRUNCATE TABLE unknown")?;
    session.answer()?;
    session.send("ALTER TABLE unknown TERRACE_TTL='none', ALGORITHM=INSTANT")?;
    let said = session.answer()?;
    holds.is_so("no-kept", false)?;
    if !said.contains("ERROR") {
        bail!("what a table keeps was moved, and is not stored: {said}");
    }
    session.send(
        "UNLOCK TABLES; INSERT INTO unknown (v) VALUES (1), (2); \
         ALTER TABLE unknown TERRACE_TTL='none', ALGORITHM=INSTANT; \
         INSERT INTO unknown (v) SELECT seq FROM seq_3_to_2000",
    )?;
    let said = session.answer()?;
    if said.is_empty() { Ok(()) } else { bail!("once it can be stored: {said}") }
}

/// Bug: a table whose layout is of an earlier format, from the middle of a change, said that it was
/// crashed. Cause: such a record lacks the columns from before the change. Fix: the error log says
/// what to do, and the table can be dropped.
fn another_format_is_told(server: &Server, holds: &Holds) -> Result<()> {
    server.sql(
        "CREATE TABLE earlier (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE=Terrace",
        "test",
    )?;
    holds.is_so("format", true)?;
    server.sql(
        "ALTER TABLE earlier RENAME KEY v TO w, ALGORITHM=INSTANT; FLUSH TABLES earlier",
        "test",
    )?;
    holds.is_so("format", false)?;
    let said = server.sql("SELECT * FROM earlier", "test");
    let log = std::fs::read_to_string(server.log()).context("reading the error log")?;
    if said.is_ok() || !log.contains("earlier has a record of its layout that this version cannot")
    {
        bail!("a layout of an earlier format: {said:?}");
    }
    server.sql("DROP TABLE earlier; CREATE TABLE earlier (id INT) ENGINE=Terrace", "test")?;
    server.sql("DROP TABLE earlier", "test").map(drop)
}

/// Bug: keys of collations of several levels got another order, and a table from before was read by
/// the new one. Cause: nothing told. Fix: a table with such keys has a record of its layout. One
/// without it is refused, and the error log says what to do.
fn an_earlier_order_is_told(server: &Server) -> Result<()> {
    let collated = |name: &str, collation: &str| {
        format!(
            "CREATE TABLE {name} (c VARCHAR(20) COLLATE {collation} PRIMARY KEY) ENGINE=Terrace; \
             INSERT INTO {name} VALUES ('a'), ('b')"
        )
    };
    let levels = "utf8mb4_uca1400_as_cs";
    let make = [collated("sorted", "utf8mb4_general_ci"), collated("levels", levels)].join("; ");
    server.sql(&format!("{make}; FLUSH TABLES sorted, levels"), "test")?;
    let file = |table: &str| server.data().join("test").join(table).with_extension("frm");
    std::fs::copy(file("levels"), file("sorted")).context("putting another definition there")?;
    let said = server.sql("SELECT * FROM sorted", "test");
    let log = std::fs::read_to_string(server.log()).context("reading the error log")?;
    if said.is_ok() || !log.contains("in which index PRIMARY has another order") {
        bail!("keys of an earlier order: {said:?}");
    }
    let rows = server.sql("DROP TABLE sorted; SELECT * FROM levels", "test")?;
    if rows == "a\nb\n" { Ok(()) } else { bail!("keys of several levels: {rows}") }
}

/// Bug: a table with such keys that a crash had left without rows and without a layout was refused
/// as one of an earlier order, also by TRUNCATE and ALTER TABLE. Cause: TRUNCATE writes the layout
/// behind the removal of the rows, and CREATE TABLE's takes no sync. Fix: a table without rows
/// takes the layout of its definition, which is stored before the first row.
fn an_empty_table_has_no_order(server: &Server, holds: &Holds) -> Result<()> {
    for table in ["flushed", "killed"] {
        let mut session = Session::open(server, "test")?;
        session.send(&format!(
            "CREATE TABLE {table} (n INT, c VARCHAR(20) COLLATE utf8mb4_uca1400_as_cs, KEY n (n), \
             PRIMARY KEY (c)) ENGINE=Terrace TERRACE_TTL='7d'; LOCK TABLES {table} WRITE; \
             INSERT INTO {table} VALUES (1, 'c')"
        ))?;
        session.answer()?;
        holds.is_so("no-kept", true)?;
        session.send(&format!("TRUNCATE TABLE {table}; SHOW WARNINGS"))?;
        let said = session.answer()?;
        holds.is_so("no-kept", false)?;
        if !said.contains("the table is empty") {
            bail!("a TRUNCATE that cannot store the layout: {said}");
        }
        session.send(&format!("UNLOCK TABLES; FLUSH TABLES {table}"))?;
        session.answer()?;
    }
    is_in_order(server, "flushed")?;
    // The same behind a power cut that takes the record of CREATE TABLE.
    let make = |name: &str, collation: &str| {
        format!(
            "CREATE TABLE {name} (c VARCHAR(20) COLLATE {collation} PRIMARY KEY, n INT) \
             ENGINE=Terrace"
        )
    };
    let (plain, cut) =
        (make("cut", "utf8mb4_general_ci"), make("pattern", "utf8mb4_uca1400_as_cs"));
    server.sql(&format!("{plain}; {cut}; FLUSH TABLES cut, pattern"), "test")?;
    let file = |table: &str| server.data().join("test").join(table).with_extension("frm");
    std::fs::copy(file("pattern"), file("cut")).context("putting another definition there")?;
    is_in_order(server, "cut")?;
    server.sql("DROP TABLE flushed, cut, pattern", "test").map(drop)
}

/// Whether a table without rows takes some, and has them behind another opening.
fn is_in_order(server: &Server, table: &str) -> Result<()> {
    let rows = server.sql(
        &format!(
            "INSERT INTO {table} (n, c) VALUES (1, 'b'), (2, 'a'); FLUSH TABLES {table}; \
             SELECT c FROM {table} ORDER BY c; CHECK TABLE {table}"
        ),
        "test",
    )?;
    if rows.starts_with("a\nb\n") && rows.contains("status\tOK") {
        Ok(())
    } else {
        bail!("rows of {table}, which was left without a layout: {rows}")
    }
}

/// Bug: after a TRUNCATE that could neither store the layout of its table nor read it back, rows
/// were written by a layout that was not stored. After a restart each index read the entries of
/// another one. Cause: the layout from before was used as it was. Fix: the next write stores it
/// first.
fn a_layout_is_stored_again(server: &Server, holds: &Holds) -> Result<()> {
    let mut session = Session::open(server, "test")?;
    session.send(
        "CREATE TABLE shrunk (id INT PRIMARY KEY, b INT, c INT, d INT, KEY b (b), KEY c (c), \
         KEY d (d)) ENGINE=Terrace TERRACE_TTL='7d'; \
         ALTER TABLE shrunk DROP KEY b, ALGORITHM=INSTANT; LOCK TABLES shrunk WRITE; \
         INSERT INTO shrunk VALUES (1, 1, 1, 1)",
    )?;
    session.answer()?;
    holds.is_so("no-kept", true)?;
    session.send("TRUNCATE TABLE shrunk")?;
    session.answer()?;
    session.send("INSERT INTO shrunk VALUES (1, 1, 1, 1)")?;
    let refused = session.answer()?;
    holds.is_so("no-kept", false)?;
    session.send("INSERT INTO shrunk VALUES (2, 2, 20, 200), (3, 3, 30, 300)")?;
    let said = session.answer()?;
    if !refused.contains("ERROR") || !said.is_empty() {
        bail!("rows behind a TRUNCATE whose layout is not stored: {refused} {said}");
    }
    Ok(())
}

/// Bug: a CREATE TABLE that failed left a table of the library behind, and the same statement
/// failed from then on. Cause: it was not dropped where it could not be opened. Fix: each failure
/// drops it.
fn a_failed_create_leaves_nothing(server: &Server, holds: &Holds) -> Result<()> {
    let expiring = "CREATE TABLE made (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=Terrace \
                    TERRACE_TTL='7d'";
    holds.is_so("no-kept", true)?;
    let failed = server.sql(expiring, "test");
    holds.is_so("no-kept", false)?;
    server.sql(expiring, "test").context("again, once the table can be opened")?;
    let numbered = "CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=Terrace";
    holds.next("refuse")?;
    let refused = server.sql(numbered, "test");
    server.sql(numbered, "test").context("again, once its counter can be stored")?;
    if failed.is_ok() || refused.is_ok() {
        bail!("CREATE TABLE succeeds without what the table keeps");
    }
    server.sql("DROP TABLE made, counted", "test").map(drop)
}
