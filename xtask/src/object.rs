//! `cargo xtask object`: the conformance suite of object stores, and a course of the whole engine,
//! on an S3 server on this machine.
//! The server is moto, from Python's package index; it lies in `target/moto`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check::{Setting, passes};

const PACKAGE: &str = "moto[server,s3]";
const BUCKET: &str = "terrace";
/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);

/// Part of the long check: the build with the feature `object` takes minutes.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    if !setting.long {
        println!("object store: skipped; part of --long, and `cargo xtask object` runs it alone");
        return Ok(());
    }
    match server(&setting.root) {
        Ok(server) => conform(&setting.root, &server),
        Err(missing) => {
            println!("object store: SKIPPED, there is no S3 server here: {missing:#}");
            Ok(())
        }
    }
}

/// Runs the suite; a missing server is an error.
pub(crate) fn run(root: &Path) -> Result<bool> {
    conform(root, &server(root)?)?;
    Ok(true)
}

/// The server's program, which is installed where it is missing.
fn server(root: &Path) -> Result<PathBuf> {
    let home = root.join("target/moto");
    let program = home.join("bin/moto_server");
    if !program.exists() {
        println!("installing {PACKAGE} into {}", home.display());
        passes(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        passes(Command::new(home.join("bin/pip")).args(["install", "--quiet", PACKAGE]))?;
    }
    Ok(program)
}

/// A server that runs until this is dropped.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            println!("the S3 server does not end: {error}");
        }
    }
}

impl Running {
    fn start(program: &Path) -> Result<Running> {
        // The system gives the port to no other program in the moment until the server has it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let mut running = Running { child, port };
        running.wait()?;
        running.make_bucket()?;
        Ok(running)
    }

    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the S3 server ended at once: {status}");
            }
            ensure!(began.elapsed() < START, "the S3 server does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn make_bucket(&self) -> Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        let request = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "the bucket was not made: {answer}");
        Ok(())
    }
}

fn conform(root: &Path, program: &Path) -> Result<()> {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(root).arg("test").args(arguments);
        command
    };
    let suite = ["--package", "terrace", "--lib", "--features", "object"];
    // The whole engine, by its command.
    let course = ["--package", "terrace-cli", "--test", "object"];
    passes(cargo(&suite).arg("--no-run"))?;
    passes(cargo(&course).arg("--no-run"))?;
    let server = Running::start(program)?;
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    for (arguments, named) in [(&suite[..], "tier::object::remote"), (&course[..], "bucket")] {
        let mut command = cargo(arguments);
        command.args(["--", named, "--nocapture"]);
        command.env("AWS_ENDPOINT", &endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "terrace").env("AWS_SECRET_ACCESS_KEY", "terrace");
        command.env("AWS_REGION", "us-east-1").env("TERRACE_S3", format!("s3://{BUCKET}/base"));
        passes(command)?;
    }
    Ok(())
}
