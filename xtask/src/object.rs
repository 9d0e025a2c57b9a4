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

use crate::check::binaries::Program;
use crate::check::{Setting, passes};

const PACKAGE: &str = "moto[server,s3]";
const BUCKET: &str = "terrace";
/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);

/// The tests that use the server: what a binary is called, the folder of its crate, and which of
/// its tests.
const TESTS: [(&str, &str, &str); 2] =
    [("terrace", "engine", "tier::object::remote"), ("object", "cli", "bucket")];

/// The stage of the check: runs the tests of its build. The build of the whole workspace has the
/// feature `object`, since the command does.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    let program = match server(&setting.root) {
        Ok(program) => program,
        Err(missing) => {
            println!("object store: SKIPPED, there is no S3 server here: {missing:#}");
            return Ok(());
        }
    };
    let built = setting.programs()?;
    let find = |(name, folder, tests)| {
        let is_it =
            |one: &&Program| one.is_test && one.name == name && one.folder.ends_with(folder);
        let found = built.iter().find(is_it);
        let found = found.with_context(|| format!("the build has no tests {name} of {folder}"))?;
        Ok((found.command(), tests))
    };
    let commands = TESTS.into_iter().map(find).collect::<Result<Vec<_>>>()?;
    let server = Running::start(&program)?;
    for (mut command, tests) in commands {
        passes(command.args([tests, "--nocapture"]).envs(server.surroundings()))?;
    }
    Ok(())
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

    /// The variables with which tests find the server.
    fn surroundings(&self) -> [(&'static str, String); 6] {
        let [name, secret, region] = ["terrace", "terrace", "us-east-1"].map(str::to_string);
        [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_string()),
            ("AWS_ACCESS_KEY_ID", name),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", region),
            ("TERRACE_S3", format!("s3://{BUCKET}/base")),
        ]
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
    for (arguments, (_, _, tests)) in [&suite[..], &course[..]].into_iter().zip(TESTS) {
        let mut command = cargo(arguments);
        passes(command.args(["--", tests, "--nocapture"]).envs(server.surroundings()))?;
    }
    Ok(())
}
