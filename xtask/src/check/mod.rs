//! `cargo xtask check`: every stage in turn, its name, its time and how it went.

pub(crate) mod binaries;
mod jobs;
mod tally;
mod testing;

use std::borrow::BorrowMut;
use std::cell::RefCell;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::{
    c, checkers, dax, elsewhere, fuzz, mariadb, media, object, package, python, tidy, tour,
};
use binaries::Program;
pub(crate) use jobs::at_a_time;
use tally::Tally;

/// How much is checked: each has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// What a developer runs between two edits.
    Quick,
    /// What passes on a fresh machine, in minutes. It writes only below the target folder.
    Check,
    /// What continuous integration runs, on a machine that `cargo xtask setup` has set up.
    Full,
    /// The same at length.
    Long,
}

impl Scope {
    /// How it is asked for.
    fn command(self) -> &'static str {
        match self {
            Scope::Quick => "check --quick",
            Scope::Check => "check",
            Scope::Full => "check --full",
            Scope::Long => "check --long",
        }
    }

    /// Whether it is more than what a fresh machine passes: all its stages have to find what they
    /// need.
    fn is_full(self) -> bool {
        self >= Scope::Full
    }
}

/// What the stages share.
pub(crate) struct Setting {
    /// The root of the repository.
    pub(crate) root: PathBuf,
    /// How much is checked.
    pub(crate) scope: Scope,
    /// What the build of the tests gave, once a stage has needed it.
    programs: Option<Vec<Program>>,
    /// What the tests counted so far.
    tally: Tally,
    /// What the stage under way has left out, and why.
    left_out: RefCell<Vec<String>>,
}

impl Setting {
    /// The test binaries and commands of the workspace. The first stage that asks builds them.
    pub(crate) fn programs(&mut self) -> Result<&[Program]> {
        if self.programs.is_none() {
            self.programs = Some(binaries::build(self)?);
        }
        Ok(self.programs.as_deref().unwrap_or_default())
    }

    /// What the build of the tests has besides. A full check tests stores over a network and the
    /// page of the C interface too, so the engine is built once for all.
    pub(crate) fn features(&self) -> &'static [&'static str] {
        match self.is_full() {
            true => &["--features", "terrace-cli/object,terrace-c/monitor"],
            false => &[],
        }
    }

    /// Counts the tests of a summary line.
    pub(crate) fn count(&mut self, summary: &str) {
        let mut tally = Tally::default();
        tally.add(summary);
        self.add(tally);
    }

    fn add(&mut self, tally: Tally) {
        let left_out = tally.left_out();
        self.tally += tally;
        if left_out > 0 {
            self.leave_out(format!("{left_out} tests, which say what they lack"));
        }
    }

    /// Whether to test at length.
    pub(crate) fn is_long(&self) -> bool {
        self.scope == Scope::Long
    }

    /// Whether this is more than what a fresh machine passes.
    pub(crate) fn is_full(&self) -> bool {
        self.scope.is_full()
    }

    /// Notes what the stage does not run, and why. Its verdict is "left out" then, and with
    /// `--full` it fails: what did not run has not passed.
    pub(crate) fn leave_out(&self, what: impl Into<String>) {
        let what = what.into();
        println!("left out: {what}");
        self.left_out.borrow_mut().push(what);
    }
}

/// A stage: its name, the least scope that has it, and what it does.
type Stage = (&'static str, Scope, fn(&mut Setting) -> Result<()>);

/// The stages: those that read the code first, then the tests, then what takes long.
const STAGES: &[Stage] = &[
    ("format", Scope::Check, format),
    ("tidy", Scope::Check, tidied),
    ("clippy", Scope::Check, clippy),
    ("checkers' builds", Scope::Full, checkers::builds),
    ("macOS", Scope::Full, elsewhere::macos),
    ("Windows", Scope::Full, elsewhere::windows),
    ("aarch64", Scope::Full, elsewhere::aarch64),
    ("docs", Scope::Full, docs),
    ("build", Scope::Check, build),
    ("tests", Scope::Check, testing::all),
    ("C interface", Scope::Check, c::check),
    ("YCSB's client", Scope::Long, c::ycsb),
    ("Python package", Scope::Check, python::check),
    ("crate", Scope::Long, package::check),
    ("MariaDB", Scope::Check, mariadb::check),
    ("tour", Scope::Check, tour::check),
    ("controls", Scope::Full, testing::controls),
    ("simulator", Scope::Check, simulated),
    ("failing calls", Scope::Full, failing),
    ("schedules", Scope::Check, schedules),
    ("fuzz", Scope::Long, fuzz::check),
    ("dax", Scope::Long, on_dax),
    ("media", Scope::Long, media::check),
    ("object store", Scope::Full, object::check),
    ("page", Scope::Long, testing::page),
    ("tracing", Scope::Full, checkers::tracing),
    ("loom", Scope::Long, checkers::loom),
    ("thread sanitizer", Scope::Long, checkers::thread_sanitizer),
];

/// The stages of `--quick`.
const QUICK: &[Stage] = &[
    ("format", Scope::Quick, format),
    ("tidy", Scope::Quick, tidied),
    ("clippy", Scope::Quick, clippy),
    ("unit tests", Scope::Quick, testing::unit),
];

/// How a stage went.
struct Outcome {
    name: &'static str,
    took: Duration,
    result: Result<()>,
    left_out: Vec<String>,
}

impl Outcome {
    fn verdict(&self) -> &'static str {
        match self.result {
            Err(_) => "FAILED",
            Ok(()) if !self.left_out.is_empty() => "left out",
            Ok(()) => "ok",
        }
    }
}

/// Runs the stages of a scope, also behind one that fails. Returns whether all went well.
pub(crate) fn run(root: &Path, scope: Scope) -> Result<bool> {
    let table = if scope == Scope::Quick { QUICK } else { STAGES };
    let stages: Vec<Stage> = table.iter().copied().filter(|stage| stage.1 <= scope).collect();
    run_stages(root, scope, &stages)
}

/// Runs one stage, by its name.
///
/// # Errors
///
/// The names that there are, if it is none of them.
pub(crate) fn run_only(root: &Path, name: &str) -> Result<bool> {
    let Some(stage) = STAGES.iter().find(|stage| stage.0 == name) else {
        let names: Vec<&str> = STAGES.iter().map(|stage| stage.0).collect();
        bail!("there is no stage {name:?}; there are {}", names.join(", "));
    };
    run_stages(root, Scope::Full, &[*stage])
}

fn run_stages(root: &Path, scope: Scope, stages: &[Stage]) -> Result<bool> {
    let mut setting = Setting {
        root: root.to_owned(),
        scope,
        programs: None,
        tally: Tally::default(),
        left_out: RefCell::default(),
    };
    let begin = Instant::now();
    let outcomes: Vec<Outcome> =
        stages.iter().map(|stage| run_stage(*stage, &mut setting)).collect();
    let failed = summary(&outcomes, scope);
    for more in [Scope::Check, Scope::Full, Scope::Long].into_iter().filter(|more| *more > scope) {
        let others = STAGES.iter().filter(|stage| stage.1 == more).map(|stage| stage.0);
        println!("{} has also: {}", more.command(), others.collect::<Vec<_>>().join(", "));
    }
    if failed > 0 {
        say_free_space(root);
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("check: {verdict} in {:.1} s", begin.elapsed().as_secs_f64());
    println!("{}", setting.tally);
    Ok(failed == 0)
}

fn run_stage((name, _, stage): Stage, setting: &mut Setting) -> Outcome {
    println!("{name}: …");
    let begin = Instant::now();
    let result = stage(setting);
    let left_out = setting.left_out.take();
    let outcome = Outcome { name, took: begin.elapsed(), result, left_out };
    println!("{name}: {} in {:.1} s", outcome.verdict(), outcome.took.as_secs_f64());
    outcome
}

/// Prints the time of each stage, and behind them what was left out and what failed. Returns how
/// many stages failed. In some scopes one that has left something out has failed.
fn summary(outcomes: &[Outcome], scope: Scope) -> usize {
    println!();
    for Outcome { name, took, .. } in outcomes {
        println!("{:>8.1} s  {name}", took.as_secs_f64());
    }
    let mut failed = 0;
    for outcome in outcomes {
        let Outcome { name, result, left_out, .. } = outcome;
        for what in left_out {
            println!("left out: {name}: {what}");
        }
        if let Err(error) = result {
            println!("FAILED: {name}: {error:#}");
        }
        let lacks = scope.is_full() && !left_out.is_empty();
        if lacks {
            println!("FAILED: {name}: `{}` leaves nothing out; see `xtask setup`", scope.command());
        }
        failed += usize::from(result.is_err() || lacks);
    }
    failed
}

/// A full disk fails a stage in words of its own: what is free says whether it was that.
fn say_free_space(root: &Path) {
    let asked = Command::new("df").arg("-h").arg(root).arg(env::temp_dir()).output();
    if let Ok(said) = asked {
        println!("{}", String::from_utf8_lossy(&said.stdout).trim());
    }
}

/// The last lines of what a command said, for the error that its end is.
pub(crate) fn last_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
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
    command.args(["clippy", "--workspace", "--all-targets"]);
    command.args(setting.features()).args(["--", "-D", "warnings"]);
    passes(command)
}

fn docs(setting: &mut Setting) -> Result<()> {
    let mut flags = env::var("RUSTDOCFLAGS").unwrap_or_default();
    flags.push_str(" -D warnings");
    let mut command = cargo(setting);
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", flags.trim());
    passes(command)
}

/// All that the stages behind it run, in one build.
fn build(setting: &mut Setting) -> Result<()> {
    setting.programs().map(|_| ())
}

/// A thousand seeds of the simulator, each a little, as the tests were built; at length, half an
/// hour of everything, built for speed.
fn simulated(setting: &mut Setting) -> Result<()> {
    let seeds = ["--seed", "0", "--seeds", "1000"];
    if setting.is_long() {
        let mut command = cargo(setting);
        command.args(["run", "--release", "--quiet", "--package", "terrace-sim", "--"]);
        return passes(command.args(seeds).args(["--minutes", "30"]));
    }
    let simulator = binaries::find(setting.programs()?, "terrace-sim")?;
    passes(simulator.command().args(seeds).arg("--short"))
}

/// Seeds of the simulator in which calls of files fail; at length, so many that every call fails
/// and a hundred thousand different images are opened.
fn failing(setting: &mut Setting) -> Result<()> {
    let faults = ["--faults", "--seed", "0"];
    if setting.is_long() {
        let mut command = cargo(setting);
        command.args(["run", "--release", "--quiet", "--package", "terrace-sim", "--"]);
        let enough = ["--seeds", "400", "--images", "100000", "--moments", "40", "--most", "8"];
        return passes(command.args(faults).args(enough));
    }
    let simulator = binaries::find(setting.programs()?, "terrace-sim")?;
    passes(simulator.command().args(faults).args(["--seeds", "60", "--short"]))
}

/// A minute of schedules, at length an hour, with seeds that no earlier check has had. The full
/// check has fixed ones, as many everywhere. What fails names its seed. At length each planted bug
/// is searched for, those too that take longer than a test may.
fn schedules(setting: &mut Setting) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let fresh = (now * 1000).to_string();
    let seeds = match setting.scope {
        Scope::Full => ["--seed", "1000", "--seeds", "2000"],
        Scope::Long => ["--seed", &fresh, "--minutes", "60"],
        Scope::Quick | Scope::Check => ["--seed", &fresh, "--minutes", "1"],
    };
    let is_long = setting.is_long();
    let simulator = binaries::find(setting.programs()?, "terrace-sim")?;
    passes(simulator.command().args(["--schedules", "--json"]).args(seeds))?;
    if is_long {
        passes(simulator.command().args(["--schedules", "--planted", "--minutes", "20"]))?;
    }
    Ok(())
}

/// A real DAX mapping.
fn on_dax(setting: &mut Setting) -> Result<()> {
    let missing = dax::missing();
    if !missing.is_empty() {
        setting.leave_out(format!("apt-get installs what is missing: {}", missing.join(", ")));
        return Ok(());
    }
    dax::run(&setting.root).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(result: Result<()>, left_out: &[&str]) -> Outcome {
        let left_out = left_out.iter().map(|&what| what.to_owned()).collect();
        Outcome { name: "a stage", took: Duration::ZERO, result, left_out }
    }

    /// Bug: a stage whose server or tool was missing was "ok", with `--long` too. Cause: a stage
    /// had two verdicts. Fix: what was left out is one of its own, and `--full` fails on it.
    #[test]
    fn what_was_left_out_has_not_passed() {
        let outcomes = [outcome(Ok(()), &["no server"]), outcome(Ok(()), &[])];
        assert_eq!(outcomes.each_ref().map(Outcome::verdict), ["left out", "ok"]);
        assert_eq!([summary(&outcomes, Scope::Check), summary(&outcomes, Scope::Full)], [0, 1]);
        let both = [outcome(Err(anyhow::anyhow!("wrong")), &["no server"])];
        assert_eq!(both[0].verdict(), "FAILED");
        assert_eq!([summary(&both, Scope::Check), summary(&both, Scope::Full)], [1, 1]);
    }
}
