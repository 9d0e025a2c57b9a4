//! Scripts of several sessions, step by step, on Terrace and on InnoDB.
//!
//! A line of a script is `name: statement`, and waits for its answer; `name& statement` sends it
//! and goes on; `name=` waits for the answer of the statement sent before; `name~` ends the
//! session, and waits until the server has done so. Where the engines are
//! meant to differ, `name! text: statement` runs on Terrace alone, and the answer holds the text.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use anyhow::{Context, Result, bail};

use super::scripts::same;
use super::server::{LONGEST_ANSWER, Server, until};

/// Where scripts lie.
const FOLDER: &str = "mariadb/tests/sessions";

/// What ends an answer.
const END: &str = "-- end of answer";

/// Runs all scripts.
pub(super) fn run(root: &Path, server: &Server) -> Result<()> {
    let folder = root.join(FOLDER);
    let mut scripts: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .collect::<Result<_, _>>()?;
    scripts.sort_by_key(fs::DirEntry::path);
    for script in &scripts {
        let path = script.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let name = script.file_name().to_string_lossy().into_owned();
        let ours = play(server, &text, "Terrace").with_context(|| name.clone())?;
        let theirs = play(server, &text, "InnoDB").with_context(|| name.clone())?;
        same(&name, &ours, &theirs)?;
        println!("{name}: {} lines as InnoDB", ours.lines().count());
    }
    Ok(())
}

/// A client that stays connected.
pub(super) struct Session {
    child: Child,
    input: ChildStdin,
    /// Lines of the client, which a thread reads, so that a wait for them has an end.
    output: Receiver<String>,
    /// What was sent last.
    statement: String,
}

impl Session {
    /// Connects to a database.
    pub(super) fn open(server: &Server, database: &str) -> Result<Session> {
        let (reader, writer) = std::io::pipe().context("making a pipe")?;
        let mut command = server.client(database);
        command.args(["--force", "--unbuffered", "--batch", "--skip-column-names"]);
        command.stdin(Stdio::piped());
        command.stdout(writer.try_clone().context("sharing a pipe")?).stderr(writer);
        let mut child = command.spawn().context("starting a client")?;
        let input = child.stdin.take().context("a client has an input")?;
        let (sender, output) = mpsc::channel();
        // It ends with the client, or with the session.
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Session { child, input, output, statement: String::new() })
    }

    /// Sends a statement.
    pub(super) fn send(&mut self, statement: &str) -> Result<()> {
        statement.clone_into(&mut self.statement);
        writeln!(self.input, "{statement};\nSELECT '{END}';").context("writing to a client")?;
        self.input.flush().context("writing to a client")
    }

    /// Waits for the answer to the last statement.
    pub(super) fn answer(&mut self) -> Result<String> {
        let mut said = String::new();
        loop {
            let line = match self.output.recv_timeout(LONGEST_ANSWER) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{}: no answer after {LONGEST_ANSWER:?}: {said}", self.statement)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{}: the client ended: {said}", self.statement)
                }
            };
            if line.trim_end() == END {
                return Ok(said);
            }
            // Line numbers count what the client was sent, and say nothing.
            said.push_str(&without_line_number(&line));
            // Without a server the end of the answer fails too.
            if line.starts_with("ERROR 2006") || line.starts_with("ERROR 2013") {
                return Ok(said);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The client may have ended before.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An error without the number of its line.
fn without_line_number(line: &str) -> String {
    let is_error = line.starts_with("ERROR ");
    match (line.find(" at line "), is_error) {
        (Some(at), true) => {
            let rest = line[at..].find(':').map_or("", |colon| &line[at + colon..]);
            format!("{}{rest}", &line[..at])
        }
        _ => line.to_owned(),
    }
}

/// Plays a script on an engine. Returns statements and answers.
fn play(server: &Server, text: &str, engine: &str) -> Result<String> {
    let database = "of_sessions";
    server
        .sql(&format!("DROP DATABASE IF EXISTS {database}; CREATE DATABASE {database}"), "mysql")?;
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut said = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let at =
            line.find([':', '&', '=', '!', '~']).with_context(|| format!("no session: {line}"))?;
        let (name, how, rest) = (&line[..at], &line[at..=at], line[at + 1..].trim());
        if how == "~" {
            drop(sessions.remove(name));
            until_it_has_ended(server, name)?;
            said.push_str(&format!("{line}\n"));
            continue;
        }
        if !sessions.contains_key(name) {
            let mut session = Session::open(server, database)?;
            session.send(&format!(
                "SET default_storage_engine={engine}, innodb_lock_wait_timeout=1, \
                 terrace_lock_wait_timeout=1; DO GET_LOCK('session {name}', 60)"
            ))?;
            session.answer()?;
            sessions.insert(name.to_owned(), session);
        }
        let session = sessions.get_mut(name).context("it was put there")?;
        match how {
            "!" if engine != "Terrace" => continue,
            "!" => {
                let (text, statement) = rest.split_once(": ").context("no text before a colon")?;
                session.send(statement)?;
                let answer = session.answer()?;
                // No text means that it succeeds.
                let is_wanted = match text.trim() {
                    "" => !answer.contains("ERROR "),
                    text => answer.contains(text),
                };
                if !is_wanted {
                    bail!("{line}: the answer is {answer}");
                }
                continue;
            }
            "=" => {}
            _ => session.send(rest)?,
        }
        said.push_str(line);
        said.push('\n');
        if how != "&" {
            said.push_str(&session.answer()?.replace(engine, "ENGINE"));
        }
    }
    Ok(said)
}

/// Waits until the server has ended a session, which has a lock of the server's in its name.
fn until_it_has_ended(server: &Server, name: &str) -> Result<()> {
    until("a session has ended", || {
        let is_free = format!("SELECT IS_FREE_LOCK('session {name}')");
        Ok(server.sql(&is_free, "mysql")?.trim() == "1")
    })
}

#[cfg(test)]
mod tests {
    use super::without_line_number;

    #[test]
    fn errors_lose_the_number_of_their_line() {
        let line = "ERROR 1062 (23000) at line 12: Duplicate entry\n";
        assert_eq!(without_line_number(line), "ERROR 1062 (23000): Duplicate entry\n");
        assert_eq!(without_line_number("1 at line 2: x\n"), "1 at line 2: x\n");
    }
}
