//! S3 servers on this machine: how each is had, started, killed and started again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check::passes;

pub(super) const BUCKET: &str = "terrace";
const NAME: &str = "terrace";
const SECRET: &str = "terrace-secret";

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It keeps everything in memory.
    Moto,
    /// It syncs what it acknowledges.
    Minio,
    /// It writes to files of a directory.
    Versitygw,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Moto => "moto",
            Kind::Minio => "MinIO",
            Kind::Versitygw => "versitygw",
        }
    }

    /// What it is installed as: a package of Python, or a program in Go.
    fn package(self) -> &'static str {
        match self {
            Kind::Moto => "moto[server,s3]",
            Kind::Minio => "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
            Kind::Versitygw => "github.com/versity/versitygw/cmd/versitygw@latest",
        }
    }

    /// Its program, which is installed where it is missing.
    pub(crate) fn program(self, root: &Path) -> Result<PathBuf> {
        match self {
            Kind::Moto => python_program(root, self.package()),
            Kind::Minio => go_program(root, "minio", self.package()),
            Kind::Versitygw => go_program(root, "versitygw", self.package()),
        }
    }

    fn command(self, program: &Path, port: u16, data: &Path) -> Command {
        let mut command = Command::new(program);
        let (port, at) = (port.to_string(), format!("127.0.0.1:{port}"));
        match self {
            Kind::Moto => command.args(["-H", "127.0.0.1", "-p", &port]),
            Kind::Minio => {
                command.envs([("MINIO_ROOT_USER", NAME), ("MINIO_ROOT_PASSWORD", SECRET)]);
                command.args(["server", "--quiet", "--address", &at]).arg(data)
            }
            Kind::Versitygw => {
                command.args(["--port", &at, "--access", NAME, "--secret", SECRET, "posix"]);
                command.arg(data)
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A program of a Python package.
fn python_program(root: &Path, package: &str) -> Result<PathBuf> {
    let home = root.join("target/moto");
    let program = home.join("bin/moto_server");
    if !program.exists() {
        println!("installing {package} into {}", home.display());
        passes(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        passes(Command::new(home.join("bin/pip")).args(["install", "--quiet", package]))?;
    }
    Ok(program)
}

/// A program in Go: the one that is on the path, or one that is built now.
pub(super) fn go_program(root: &Path, name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|at| at.is_file());
    if let Some(program) = on_path {
        return Ok(program);
    }
    let home = root.join("target/go");
    let program = home.join(name);
    if !program.exists() {
        println!("building {package} into {}", home.display());
        passes(Command::new("go").args(["install", package]).env("GOBIN", &home))?;
    }
    Ok(program)
}

/// A port that is free now.
///
/// The system gives it to no other program in the moment until the server has it.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until a child listens.
pub(super) fn wait_for(child: &mut Child, port: u16) -> Result<()> {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended at once: {status}");
        }
        ensure!(began.elapsed() < START, "the server does not answer");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The first line of the answer to a request.
pub(super) fn ask(port: u16, request: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let len = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_string())
}

/// A server that runs until this is dropped.
pub(crate) struct Running {
    kind: Kind,
    program: PathBuf,
    /// What it keeps is gone with it.
    data: PathBuf,
    pub(crate) port: u16,
    child: Mutex<Child>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            println!("the S3 server does not end: {error}");
        }
        if let Err(error) = std::fs::remove_dir_all(&self.data) {
            println!("{} stays: {error}", self.data.display());
        }
    }
}

impl Running {
    pub(crate) fn start(kind: Kind, program: &Path) -> Result<Running> {
        let port = free_port()?;
        let id = std::process::id();
        let data = std::env::temp_dir().join(format!("terrace-s3-{id}-{port}"));
        // A directory there is a bucket.
        std::fs::create_dir_all(data.join(BUCKET))?;
        let child = Mutex::new(spawn(kind, program, port, &data)?);
        let running = Running { kind, program: program.to_path_buf(), data, port, child };
        if kind == Kind::Moto {
            let answer = ask(port, &format!("PUT /{BUCKET}"), "")?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "the bucket was not made: {answer}");
        }
        Ok(running)
    }

    fn kill(&self) -> Result<()> {
        let mut child = self.child.lock().ok().context("a thread that starts servers panicked")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Has it answer nothing, or go on.
    pub(crate) fn stop(&self, is_stopped: bool) -> Result<()> {
        let child = self.child.lock().ok().context("a thread that starts servers panicked")?;
        let signal = if is_stopped { "-STOP" } else { "-CONT" };
        passes(Command::new("kill").args([signal, &child.id().to_string()]))
    }

    /// Kills it, and starts it again over what it has left.
    pub(super) fn kill_and_start(&self) -> Result<()> {
        self.kill()?;
        let child = spawn(self.kind, &self.program, self.port, &self.data)?;
        *self.child.lock().ok().context("a thread that starts servers panicked")? = child;
        Ok(())
    }

    /// The variables with which tests find a server at a port, and a place there that no other run
    /// has used.
    pub(crate) fn surroundings(port: u16) -> [(&'static str, String); 6] {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".to_string()),
            ("AWS_ACCESS_KEY_ID", NAME.to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_string()),
            ("AWS_REGION", "us-east-1".to_string()),
            ("TERRACE_S3", format!("s3://{BUCKET}/base-{run}")),
        ]
    }
}

fn spawn(kind: Kind, program: &Path, port: u16, data: &Path) -> Result<Child> {
    let spawned = kind.command(program, port, data).spawn();
    let mut child = spawned.with_context(|| format!("starting {}", program.display()))?;
    match wait_for(&mut child, port) {
        Ok(()) => Ok(child),
        Err(error) => {
            child.kill().and_then(|()| child.wait()).map(drop).unwrap_or(());
            Err(error)
        }
    }
}
