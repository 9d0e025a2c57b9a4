//! `cargo xtask check`: every stage in turn, its name, its time and how it went.

use std::borrow::BorrowMut;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tally::Tally;
use crate::{checkers, dax, fuzz, media, tidy, tour};

/// What the stages share.
pub(crate) struct Setting {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// Whether to test at length.
    pub(crate) long: bool,
    /// What the test runner counted, once it has run.
    tally: Tally,
}

type Stage = (&'static str, fn(&mut Setting) -> Result<()>);

/// The stages, cheap ones first. The tests come last, so that the runner's own summary is what
/// one sees last.
const STAGES: &[Stage] = &[
    ("format", format),
    ("tidy", tidied),
    ("clippy", clippy),
    ("checkers' builds", checkers::builds),
    ("docs", docs),
    ("tour", tour::check),
    ("controls", controls),
    ("simulator", simulated),
    ("fuzz", fuzz::check),
    ("dax", on_dax),
    ("media", media::check),
    ("shuttle", checkers::shuttle),
    ("loom", checkers::loom),
    ("thread sanitizer", checkers::thread_sanitizer),
    ("tests", tests),
];

/// Runs the stages up to the first that fails. Returns whether all went well.
pub(crate) fn run(root: &Path, long: bool) -> Result<bool> {
    let mut setting = Setting { root: root.to_owned(), long, tally: Tally::default() };
    let begin = Instant::now();
    let mut all_ok = true;
    for (name, stage) in STAGES {
        println!("{name}: …");
        let begin = Instant::now();
        let outcome = stage(&mut setting);
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{name}: {verdict} in {:.1} s", begin.elapsed().as_secs_f64());
        if let Err(error) = outcome {
            eprintln!("{name}: {error:#}");
            all_ok = false;
            break;
        }
    }
    let verdict = if all_ok { "ok" } else { "FAILED" };
    println!("check: {verdict} in {:.1} s", begin.elapsed().as_secs_f64());
    if setting.tally.has_run() {
        println!("{}", setting.tally);
    }
    Ok(all_ok)
}

/// The cargo that runs this program, so that a toolchain chosen by the user stays chosen.
pub(crate) fn cargo(setting: &Setting) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(&setting.root);
    command
}

/// Runs a command that has to succeed.
pub(crate) fn passes(mut command: impl BorrowMut<Command>) -> Result<()> {
    let command = command.borrow_mut();
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

fn format(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["fmt", "--all", "--check"]);
    passes(command)
}

fn tidied(setting: &mut Setting) -> Result<()> {
    match tidy::run(&setting.root)? {
        0 => Ok(()),
        _ => bail!("the house rules are broken in the places above"),
    }
}

fn clippy(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    passes(command)
}

fn docs(setting: &mut Setting) -> Result<()> {
    let mut flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    flags.push_str(" -D warnings");
    let mut command = cargo(setting);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", flags.trim());
    passes(command)
}

/// The tests of the tests: each plants one bug, and passes if the suite catches it.
fn controls(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["test", "--package", "terrace-sim", "--test", "controls"]);
    passes(command)
}

/// A thousand seeds of the simulator, each a little; at length, half an hour of everything.
fn simulated(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["run", "--release", "--quiet", "--package", "terrace-sim", "--"]);
    command.args(["--seed", "0", "--seeds", "1000"]);
    command.args(if setting.long { ["--minutes", "30"].as_slice() } else { &["--short"] });
    passes(command)
}

/// A real DAX mapping, in the long suite only.
fn on_dax(setting: &mut Setting) -> Result<()> {
    if !setting.long {
        println!("dax: skipped; it is part of --long, and `cargo xtask dax` runs it alone");
        return Ok(());
    }
    let missing = dax::missing();
    if !missing.is_empty() {
        println!("dax: skipped, for lack of {}; install them with apt-get", missing.join(", "));
        return Ok(());
    }
    dax::run(&setting.root).map(|_| ())
}

fn tests(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if setting.long {
        command.env("TERRACE_LONG", "1");
    }
    setting.tally = Tally::of(command)?;
    setting.tally.verdict()
}
