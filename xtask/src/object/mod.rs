//! `cargo xtask object`: the conformance suite of object stores, and a course of the whole engine,
//! on S3 servers on this machine.
//!
//! The server is moto, from Python's package index. At length (`--long`) it is MinIO and versitygw
//! too, built from Go's module proxy where they are not on the path. They are killed in the middle
//! of the course again and again, and the course is run once more behind a proxy that is far away
//! and cuts connections. On each of them twenty machines are lost, with a writer that is killed and
//! its directory deleted, and no commit. What cannot be had is left out, and said.

mod proxy;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::binaries::Program;
use crate::check::{Setting, passes};
use proxy::Proxy;
pub(crate) use server::{Kind, Running};

/// A server is killed so often,
const KILLED_EVERY: Duration = Duration::from_secs(2);

/// and at least so many times: a course may be over before the first one.
const KILLS: u32 = 5;

/// Four tests run in this build: it is to be built fast.
const FAST_BUILD: &str = "profile.dev.package.terrace.opt-level=0";

/// The stage of the check, by the programs of its build.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    if let Err(missing) = Kind::Moto.program(&setting.root) {
        setting.leave_out(format!("there is no S3 server here: {missing:#}"));
        return Ok(());
    }
    if !setting.is_long() {
        println!("object store: MinIO, versitygw and toxiproxy are part of --long");
    }
    let programs = setting.programs()?;
    let of = |folder: &str, name: &str| {
        let is_it = |program: &&Program| {
            program.is_test && program.name == name && program.folder.ends_with(folder)
        };
        let found = programs.iter().find(is_it).map(Program::command);
        found.with_context(|| format!("the build of the tests has no {name} of {folder}"))
    };
    let tests = [of("engine", "terrace")?, of("cli", "object")?];
    for missing in run_all(&setting.root, tests, setting.is_long())? {
        setting.leave_out(missing);
    }
    Ok(())
}

/// Runs the suite; a missing server is an error.
pub(crate) fn run(root: &Path, long: bool) -> Result<bool> {
    Kind::Moto.program(root)?;
    let missing = run_all(root, built(root)?, long)?;
    missing.iter().for_each(|missing| println!("left out: {missing}"));
    Ok(missing.is_empty())
}

/// Runs the conformance suite of the engine's stores, and the course of the whole engine. Returns
/// what could not be had.
fn run_all(root: &Path, [mut suite, mut course]: [Command; 2], long: bool) -> Result<Vec<String>> {
    let program = Kind::Moto.program(root)?;
    let server = Running::start(Kind::Moto, &program)?;
    run_at(&mut suite, "storage::object::remote", server.port)?;
    run_at(&mut course, "bucket", server.port)?;
    drop(server);
    if !long {
        return Ok(Vec::new());
    }
    let mut terrace = cargo(root);
    terrace.args(["run", "--quiet", "--package", "terrace-cli", "--features", "object", "--"]);
    at_length(root, &mut |port| run_at(&mut course, "bucket", port), &terrace)
}

/// The tests that use the server, built for them alone.
fn built(root: &Path) -> Result<[Command; 2]> {
    let of = |arguments: &[&str]| {
        let mut command = cargo(root);
        command.args(["test", "--features", "object", "--config", FAST_BUILD, "--package"]);
        command.args(arguments);
        command
    };
    let commands = || [of(&["terrace", "--lib"]), of(&["terrace-cli", "--test", "object"])];
    for mut command in commands() {
        passes(command.arg("--no-run"))?;
    }
    Ok(commands().map(|mut command| {
        command.arg("--");
        command
    }))
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn run_at(command: &mut Command, tests: &str, port: u16) -> Result<()> {
    let mut again = again(command);
    again.args([tests, "--nocapture"]);
    passes(again.envs(Running::surroundings(port)))
}

/// The same command, which was not run yet.
fn again(command: &Command) -> Command {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        again.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => again.env(name, value),
            None => again.env_remove(name),
        };
    }
    again
}

/// Twenty machines are lost on a server.
fn lose_machines(server: &Running, kind: Kind, terrace: &Command) -> Result<()> {
    println!("object store: twenty machines are lost, their shared store on {}", kind.name());
    let (mut tour, surroundings) = (again(terrace), Running::surroundings(server.port));
    let store = surroundings.iter().find(|(name, _)| *name == "TERRACE_S3");
    let store = store.map(|(_, store)| format!("{store}/tour")).unwrap_or_default();
    tour.envs(surroundings);
    crate::tour::lose_machines(tour, &store)
}

/// What runs on a server, by its port.
type Course<'a> = dyn FnMut(u16) -> Result<()> + 'a;

/// Runs the course on other servers, which are killed meanwhile, and behind a proxy. Returns what
/// could not be had.
fn at_length(root: &Path, course: &mut Course<'_>, terrace: &Command) -> Result<Vec<String>> {
    let (mut last, mut lacking) = (None, Vec::new());
    for kind in [Kind::Versitygw, Kind::Minio] {
        match kind.program(root) {
            Ok(program) => {
                println!("object store: the course on {}, killed again and again", kind.name());
                let server = Running::start(kind, &program)?;
                under_kills(&server, || course(server.port))?;
                lose_machines(&server, kind, terrace)?;
                last = Some((kind, program));
            }
            Err(missing) => {
                lacking.push(format!("{} cannot be had: {missing:#}", kind.name()));
            }
        }
    }
    let (kind, program): (Kind, PathBuf) = match last {
        Some(last) => last,
        None => (Kind::Moto, Kind::Moto.program(root)?),
    };
    let server = Running::start(kind, &program)?;
    match Proxy::start(root, server.port) {
        Ok(proxy) => {
            println!("object store: the course on {}, far away and cut off", kind.name());
            course(proxy.port)?;
        }
        Err(missing) => lacking.push(format!("toxiproxy cannot be had: {missing:#}")),
    }
    Ok(lacking)
}

/// Runs something again and again while a server is killed and started again.
fn under_kills(server: &Running, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let (is_over, kills) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let killer = scope.spawn(|| -> Result<()> {
            let mut last = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
                if last.elapsed() >= KILLED_EVERY {
                    server.kill_and_start()?;
                    kills.fetch_add(1, Ordering::Relaxed);
                    last = Instant::now();
                }
            }
            Ok(())
        });
        let (mut ran, mut times) = (Ok(()), 0);
        while ran.is_ok() && kills.load(Ordering::Relaxed) < KILLS && !killer.is_finished() {
            ran = run();
            times += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        killer.join().ok().context("the thread that kills servers panicked")??;
        let kills = kills.load(Ordering::Relaxed);
        println!("object store: the server was killed {kills} times in {times} courses");
        ran
    })
}
