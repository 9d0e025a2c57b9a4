//! The stages that run tests. The binaries of one build run side by side as processes, the largest
//! divided by module.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use super::binaries::Program;
use super::jobs::{self, Ended, Job};
use super::tally::Tally;
use super::{Setting, cargo};

/// The tests that run longest, by binary and module. They start first, so that the short ones fill
/// the rest.
const LONGEST: &[&str] = &[
    "stepped steps",
    "stepped power",
    "suite model",
    "suite flips",
    "processes",
    "stepped reading",
    "stepped regressions",
    "suite bytes",
    "suite full_disk",
];

/// The binaries whose tests are divided among processes. Databases at work in one process hold up
/// each other, so each process has one thread.
const DIVIDED: &[&str] = &["stepped", "suite", "terrace"];

/// How long a process may take, and one of the long suite. The longest take five minutes.
const LIMIT: Duration = Duration::from_mins(20);
const LONG_LIMIT: Duration = Duration::from_hours(8);

/// The binary whose tests plant a bug each. It is a stage of its own.
const CONTROLS: &str = "controls";

/// The binary that drives a browser. It is a stage of its own.
const BROWSER: &str = "browser";

/// Every test of the workspace but the controls and that of the browser. Tests wait for the disk
/// most of their time, so twice as many processes run as there are cores.
pub(super) fn all(setting: &mut Setting) -> Result<()> {
    let mut programs: Vec<Program> = setting.programs()?.to_vec();
    programs.retain(|program| program.is_test);
    programs.retain(|program| ![CONTROLS, BROWSER].contains(&&*program.name));
    let mut to_run = Vec::new();
    for program in &programs {
        if DIVIDED.contains(&program.name.as_str()) {
            to_run.extend(by_module(setting, program)?);
        } else {
            to_run.push(job(setting, program, program.name.clone(), &[]));
        }
    }
    let place = |job: &Job| LONGEST.iter().position(|long| *long == job.name);
    to_run.sort_by_key(|job| place(job).unwrap_or(LONGEST.len()));
    let mut examples = cargo(setting);
    examples.args(["test", "--workspace", "--doc"]).args(setting.features());
    to_run.insert(0, Job { name: "examples in the documentation".into(), command: examples });
    run(setting, to_run, 2 * jobs::at_a_time())
}

/// The tests of one binary, a job for each module at its top.
fn by_module(setting: &Setting, program: &Program) -> Result<Vec<Job>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in program.tests()? {
        let module = test.split("::").next().unwrap_or_default().to_owned();
        modules.entry(module).or_default().push(test);
    }
    let one = |(module, tests): (String, Vec<String>)| {
        job(setting, program, format!("{} {module}", program.name), &tests)
    };
    Ok(modules.into_iter().map(one).collect())
}

/// The unit tests of the workspace alone.
pub(super) fn unit(setting: &mut Setting) -> Result<()> {
    let mut command = cargo(setting);
    command.args(["test", "--workspace", "--lib", "--bins", "--no-fail-fast"]);
    run(setting, vec![Job { name: "unit tests".into(), command }], 1)
}

/// The tests of the tests: each plants one bug, and passes if the suite catches it. Databases at
/// work in one process hold up each other, so each control has a process of its own.
pub(super) fn controls(setting: &mut Setting) -> Result<()> {
    let binary = alone(setting, CONTROLS)?;
    let one = |name: String| {
        let mut command = binary.command();
        command.args([&name, "--exact"]);
        Job { name: format!("{CONTROLS}::{name}"), command }
    };
    let to_run = binary.tests()?.into_iter().map(one).collect();
    run(setting, to_run, jobs::at_a_time())
}

/// The page of a running database, in a browser.
pub(super) fn page(setting: &mut Setting) -> Result<()> {
    crate::setup::chromium()?;
    let binary = alone(setting, BROWSER)?;
    let job = job(setting, &binary, BROWSER.to_owned(), &[]);
    run(setting, vec![job], 1)
}

/// A binary that is a stage of its own.
fn alone(setting: &mut Setting, name: &str) -> Result<Program> {
    let mut programs = setting.programs()?.iter();
    let found = programs.find(|program| program.is_test && program.name == name);
    found.cloned().with_context(|| format!("the build of the tests has no {name}"))
}

/// Tests of one binary, by their names; all of them without any. One runs at a time.
fn job(setting: &Setting, program: &Program, name: String, tests: &[String]) -> Job {
    let mut command = program.command();
    command.arg("--test-threads=1");
    if !tests.is_empty() {
        command.arg("--exact").args(tests);
    }
    if setting.is_long() {
        command.env("TERRACE_LONG", "1");
    }
    Job { name, command }
}

fn run(setting: &mut Setting, to_run: Vec<Job>, workers: usize) -> Result<()> {
    let limit = if setting.is_long() { LONG_LIMIT } else { LIMIT };
    let ended = jobs::run(to_run, workers, limit)?;
    let (tally, outcome) = judge(&ended);
    setting.add(tally);
    outcome
}

/// What the jobs counted, and an error that names all that failed.
fn judge(ended: &[Ended]) -> (Tally, Result<()>) {
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for job in ended {
        let summaries = tally.add(&job.output);
        failed.extend(job.output.lines().filter_map(failed_test));
        if job.killed {
            let at = job.output.lines().rfind(|line| !line.is_empty()).unwrap_or("its beginning");
            failed.push(format!("{}, which hangs at {at:?}", job.name));
            continue;
        }
        // A binary that crashed, or code that did not compile, has no summary.
        if !job.success && summaries == 0 {
            failed.push(format!("{}, which ended without a summary", job.name));
        }
    }
    let outcome = match (failed.as_slice(), ended.iter().find(|job| !job.success)) {
        ([], None) => tally.verdict(),
        ([], Some(job)) => Err(anyhow::anyhow!("{} did not end well", job.name)),
        (failed, _) => Err(anyhow::anyhow!("{}", failed.join("\n"))),
    };
    (tally, outcome)
}

/// The name in a line such as `test a::b ... FAILED`.
fn failed_test(line: &str) -> Option<String> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    verdict.starts_with("FAILED").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
    const BAD: &str = "test b ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";

    fn said(jobs: &[(&str, bool)]) -> (String, Option<String>) {
        let job = |&(output, success): &(&str, bool)| Ended {
            name: "n".into(),
            output: output.into(),
            success,
            killed: false,
        };
        let ended: Vec<Ended> = jobs.iter().map(job).collect();
        let (tally, outcome) = judge(&ended);
        (tally.to_string(), outcome.err().map(|error| error.to_string()))
    }

    #[test]
    fn all_that_pass_are_counted() {
        assert_eq!(
            said(&[(GOOD, true), (GOOD, true)]),
            ("2 passed, 0 failed, 0 left out".into(), None)
        );
    }

    #[test]
    fn a_failed_test_is_named() {
        let (counts, error) = said(&[(BAD, false), (GOOD, true)]);
        assert_eq!(
            (counts.as_str(), error.as_deref()),
            ("1 passed, 1 failed, 0 left out", Some("b"))
        );
    }

    #[test]
    fn a_crash_is_no_success() {
        let (_, error) = said(&[(GOOD, true), ("test c ... ", false)]);
        assert!(error.unwrap().contains("without a summary"));
        let (_, error) = said(&[(GOOD, false)]);
        assert!(error.unwrap().contains("did not end well"));
    }

    #[test]
    fn a_job_that_was_killed_names_the_test_at_which_it_hangs() {
        let output = format!("{GOOD}test d ... ");
        let ended = Ended { name: "n".into(), output, success: false, killed: true };
        let error = judge(&[ended]).1.unwrap_err().to_string();
        assert_eq!(error, "n, which hangs at \"test d ... \"");
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(said(&[]).1.is_some());
    }
}
