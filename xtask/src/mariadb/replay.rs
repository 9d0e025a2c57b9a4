//! A replay of the binary log in another database, which has to be as the one that was logged.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::server::Server;

/// The database that the log is replayed in.
const COPY: &str = "replayed";

/// What ends a statement in the text of `mariadb-binlog`.
const DELIMITER: &str = "/*!*/;";

/// How far a log has been replayed.
pub(super) struct Replay {
    file: String,
    position: String,
}

impl Replay {
    /// Begins with the first event of a server's log.
    pub(super) fn begin(server: &Server) -> Result<Replay> {
        server.sql(
            &format!("SET sql_log_bin=0; DROP DATABASE IF EXISTS {COPY}; CREATE DATABASE {COPY}"),
            "mysql",
        )?;
        let first = server.sql("SHOW BINARY LOGS", "mysql")?;
        let file = first.split_whitespace().next().context("there is a log")?.to_owned();
        Ok(Replay { file, position: "4".into() })
    }

    /// Replays what is new, and compares all tables. Of the ledger it compares, row by row, what
    /// clients have written from number `from` on.
    pub(super) fn follow(&mut self, server: &Server, from: usize) -> Result<()> {
        self.replay(server)?;
        let rows = |of: &str| format!("SELECT * FROM {of}.ledger WHERE n >= {from}");
        let (ours, theirs) = (rows("test"), rows(COPY));
        let differing = server.sql(
            &format!(
                "SELECT COUNT(*) FROM ({ours} EXCEPT {theirs} UNION ALL ({theirs} EXCEPT {ours})) d"
            ),
            "mysql",
        )?;
        if differing.trim() != "0" {
            bail!("{} rows differ from the binary log", differing.trim());
        }
        compare_tables(server)
    }

    fn replay(&mut self, server: &Server) -> Result<()> {
        let mut logs: Vec<_> = std::fs::read_dir(server.data())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let number = name.strip_prefix("binlog.").unwrap_or_default();
                number.parse::<u64>().is_ok() && *name >= *self.file
            })
            .collect();
        logs.sort();
        let mut binlog = Command::new("mariadb-binlog");
        binlog.args(["--no-defaults", "--disable-log-bin"]);
        binlog.arg(format!("--rewrite-db=test->{COPY}"));
        // It counts for the first file.
        binlog.arg(format!("--start-position={}", self.position)).args(&logs);
        let output = binlog.output().context("starting mariadb-binlog")?;
        if !output.status.success() {
            bail!("mariadb-binlog: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout).context("reading the binary log")?;
        let said = server.script(&without_unlogged(&text), COPY)?;
        if let Some(error) = said.lines().find(|line| line.starts_with("ERROR ")) {
            bail!("replaying the binary log: {error}");
        }
        let status = server.sql("SHOW MASTER STATUS", "mysql")?;
        let mut words = status.split_whitespace().map(str::to_owned);
        self.file = words.next().context("the log has a file")?;
        self.position = words.next().context("the log has a position")?;
        Ok(())
    }
}

/// The log without the statements on `apart`, whose connection has `sql_log_bin` off. The server's
/// recovery logs them all the same, where a kill has cut one short.
fn without_unlogged(log: &str) -> String {
    let mut left = String::with_capacity(log.len());
    for line in log.lines() {
        let is_apart = line.contains("apart.") || line.contains("`apart`");
        let delimiter = if line.ends_with(DELIMITER) { DELIMITER } else { "" };
        if is_apart && !line.starts_with('#') {
            left.extend(["DO 0", delimiter, "\n"]);
        } else {
            left.extend([line, "\n"]);
        }
    }
    left
}

/// Fails where the databases have other tables, or a table has other rows.
fn compare_tables(server: &Server) -> Result<()> {
    let tables = |database: &str| {
        server.sql(
            &format!(
                "SELECT table_name FROM information_schema.tables \
                 WHERE table_schema = '{database}' ORDER BY 1"
            ),
            "mysql",
        )
    };
    let (of_server, of_log) = (tables("test")?, tables(COPY)?);
    if of_server != of_log {
        bail!("the server has the tables\n{of_server}and the binary log\n{of_log}");
    }
    // For the server a TRUNCATE and its event are not one.
    for table in of_server.lines().filter(|&table| table != "gone") {
        let sum = |database: &str| {
            let said = server.sql(&format!("CHECKSUM TABLE {database}.{table}"), "mysql")?;
            Ok::<_, anyhow::Error>(said.split_whitespace().nth(1).unwrap_or_default().to_owned())
        };
        if sum("test")? != sum(COPY)? {
            bail!("table {table} differs from the binary log");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::without_unlogged;

    /// Bug: a replay stopped at a change of `apart`, which the server's recovery had logged.
    /// Cause: a kill between the change and its end in the server's log of changes; the recovery
    /// logs the statement though its connection logs nothing. Fix: the replay leaves them out.
    #[test]
    fn a_change_that_recovery_logs_is_not_replayed() {
        let log = "use `apart`/*!*/;\nALTER TABLE apart.shape DROP KEY k\n/*!*/;\n\
                   DROP TABLE IF EXISTS `apart`.`moved` /* generated by ddl recovery */\n/*!*/;\n\
                   ALTER TABLE shape FORCE\n/*!*/;\n# of `apart`\n";
        let left = "DO 0/*!*/;\nDO 0\n/*!*/;\nDO 0\n/*!*/;\n\
                    ALTER TABLE shape FORCE\n/*!*/;\n# of `apart`\n";
        assert_eq!(without_unlogged(log), left);
    }
}
