//! A private server: its own data, a socket, no network, and the plugin.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::FOLDER;
use crate::check::last_lines;

/// How long one of a script, or of a benchmark, may take: it loads millions of rows at once.
const LONGEST_SCRIPT: Duration = Duration::from_secs(3600);

/// The code of a command that `timeout` has ended.
const TIMED_OUT: i32 = 124;
const SIGKILL: i32 = 9;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a statement of a session may take. A machine that is loaded is ten times slower.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(300);

/// How a server starts.
pub(super) struct Start<'a> {
    name: &'a str,
    is_fresh: bool,
    options: Vec<String>,
    environment: Vec<(&'a str, String)>,
}

impl<'a> Start<'a> {
    /// With new data.
    pub(super) fn fresh(name: &'a str) -> Start<'a> {
        Start { name, is_fresh: true, options: Vec::new(), environment: Vec::new() }
    }

    /// With the data that it had, if it had some.
    pub(super) fn kept(name: &'a str) -> Start<'a> {
        Start { name, is_fresh: false, options: Vec::new(), environment: Vec::new() }
    }

    /// With more options.
    pub(super) fn with(mut self, options: &[&str]) -> Start<'a> {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// With a variable of its environment.
    pub(super) fn environment(mut self, name: &'a str, value: String) -> Start<'a> {
        self.environment.push((name, value));
        self
    }
}

/// A running server. Dropping it kills it.
pub(super) struct Server {
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(super) fn start(root: &Path, plugin: &Path, how: &Start<'_>) -> Result<Server> {
        let folder = root.join(FOLDER).join("servers").join(how.name);
        if how.is_fresh && folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        if !folder.join("data/mysql").exists() {
            install(&folder)?;
        }
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking"]);
        // Off in a server by default, and then no session can turn it on.
        command.arg("--query-cache-type=1");
        command.arg(format!("--datadir={}", folder.join("data").display()));
        command.arg(format!("--socket={}", socket_of(&folder).display()));
        command.arg(format!("--log-error={}", folder.join("error.log").display()));
        // A server that starts removes temporary tables there, also those of another one.
        let temporary = folder.join("tmp");
        fs::create_dir_all(&temporary)
            .with_context(|| format!("making {}", temporary.display()))?;
        command.arg(format!("--tmpdir={}", temporary.display()));
        command.arg(format!("--pid-file={}", folder.join("pid").display()));
        command.arg(format!("--plugin-dir={}", plugin.display()));
        command.args(["--plugin-maturity=unknown", "--plugin-load-add=ha_terrace"]);
        command.envs(how.environment.iter().map(|(name, value)| (name, value)));
        command.args(&how.options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("starting mariadbd")?;
        let mut server = Server { folder, child };
        server.wait()?;
        server.sql("CREATE DATABASE IF NOT EXISTS test", "mysql")?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let answers = self.client("mysql").args(["-e", "SELECT 1"]).output();
            if answers.is_ok_and(|said| said.status.success()) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().context("looking after mariadbd")? {
                bail!("mariadbd ended with {status}: see {}", self.log().display());
            }
            if begin.elapsed() > PATIENCE {
                bail!("mariadbd does not answer after {PATIENCE:?}: see {}", self.log().display());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The socket that it listens on.
    pub(super) fn socket(&self) -> PathBuf {
        socket_of(&self.folder)
    }

    /// What it writes to.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("error.log")
    }

    /// Where its data lie.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A client of a database.
    pub(super) fn client(&self, database: &str) -> Command {
        self.tool("mariadb", database)
    }

    /// What `mariadb-dump` makes of a database, with no more options.
    pub(super) fn dump(&self, database: &str) -> Result<String> {
        let output = limited(&self.tool("mariadb-dump", database)).output();
        let output = output.context("starting mariadb-dump")?;
        if !output.status.success() {
            bail!("mariadb-dump: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn tool(&self, program: &str, database: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["--no-defaults", "--user=root"]);
        command.arg(format!("--socket={}", self.socket().display())).arg(database);
        command
    }

    /// Runs statements that have to succeed, and returns their rows.
    pub(super) fn sql(&self, statements: &str, database: &str) -> Result<String> {
        let output = limited(&self.client(database)).args(["-N", "-B", "-e", statements]).output();
        let output = output.context("starting a client")?;
        if output.status.code() == Some(TIMED_OUT) {
            bail!("{statements}: no answer after {LONGEST_SCRIPT:?}");
        }
        if !output.status.success() {
            bail!("{statements}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a script, also behind statements that fail. Returns all that the client says, in order.
    pub(super) fn script(&self, text: &str, database: &str) -> Result<String> {
        self.said(text, database, &["--verbose"])
    }

    /// As [`Server::script`], rows and errors alone.
    pub(super) fn answers(&self, text: &str, database: &str) -> Result<String> {
        self.said(text, database, &[])
    }

    fn said(&self, text: &str, database: &str, options: &[&str]) -> Result<String> {
        let (mut reader, writer) = std::io::pipe().context("making a pipe")?;
        let mut command = limited(&self.client(database));
        command.args(["--force", "--unbuffered", "--batch", "--skip-column-names"]).args(options);
        command.stdin(Stdio::piped());
        command.stdout(writer.try_clone().context("sharing a pipe")?).stderr(writer);
        let mut child = command.spawn().context("starting a client")?;
        drop(command);
        let mut input = child.stdin.take().context("a client has an input")?;
        let text = text.to_owned();
        // Both pipes are small, so one thread writes while this one reads.
        let writing = thread::spawn(move || input.write_all(text.as_bytes()));
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut said).context("reading from a client")?;
        let status = child.wait().context("waiting for a client")?;
        // A client that has ended before says why in what was read.
        let written = writing.join();
        let said = String::from_utf8_lossy(&said).into_owned();
        if status.code() == Some(TIMED_OUT) {
            bail!("the script has not ended after {LONGEST_SCRIPT:?}: {said}");
        }
        if !matches!(written, Ok(Ok(()))) {
            bail!("the client ended before its script did: {said}");
        }
        Ok(said)
    }

    /// Kills it, as a crash would. Fails where it has ended by itself.
    pub(super) fn kill(mut self) -> Result<()> {
        self.child.kill().context("killing mariadbd")?;
        let status = self.child.wait().context("waiting for mariadbd")?;
        if status.signal() != Some(SIGKILL) {
            bail!("mariadbd ended before, with {status}: see {}", self.log().display());
        }
        Ok(())
    }

    /// Shuts it down.
    pub(super) fn stop(mut self) -> Result<()> {
        self.sql("SHUTDOWN", "mysql")?;
        let status = self.child.wait().context("waiting for mariadbd")?;
        if !status.success() {
            bail!("mariadbd ended with {status}: see {}", self.log().display());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already after stop and kill, and then these do nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Waits until something is so, for as long as a server may take to answer.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !holds()? {
        if begin.elapsed() > PATIENCE {
            bail!("after {PATIENCE:?} it is not so that {what}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A command that is ended when it takes too long. Its code is `TIMED_OUT` then.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.arg(LONGEST_SCRIPT.as_secs().to_string()).arg(command.get_program());
    limited.args(command.get_args());
    limited
}

/// A path that is short enough for a socket, whatever folder the repository lies in.
fn socket_of(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let id = std::process::id();
    std::env::temp_dir().join(format!("terrace-{name}-{id}.sock"))
}

fn install(folder: &Path) -> Result<()> {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"]);
    command.arg("--skip-test-db");
    command.arg(format!("--datadir={}", folder.join("data").display()));
    let said = command.output().with_context(|| format!("starting {command:?}"))?;
    if !said.status.success() {
        bail!("{command:?}: {}: {}", said.status, last_lines(&said.stderr));
    }
    Ok(())
}
