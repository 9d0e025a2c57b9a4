//! `cargo run --release -p terrace-sim -- --seed N --seeds M [--minutes T] [--jobs J] [--json]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "reporting is this program's job")]

mod campaign;

use std::io;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;
use terrace_sim::coverage::{CALL_SITES, Coverage, OPERATIONS};
use terrace_sim::cuts::Kind;
use terrace_sim::run::{Limits, Prepared, Run};
use terrace_sim::scenario::SCENARIOS;
use terrace_sim::stop;
use terrace_sim::violation::Class;

/// So many seeds with faults have every call fail.
const ALL_CALLS: u64 = 400;

/// So many seeds have each scenario on each sort of machine: a run of some minutes tries little of
/// each of them, and everything of those after them.
const ROUND: u64 = 6 * SCENARIOS.len() as u64;

/// Cut the power of simulated machines at every persist point and look what is found.
///
/// One seed is one run: an operation of the engine, every image that a cut in it can leave. The
/// exit code is 1 when a run found something wrong, 2 when no run of several had some operation
/// under test, or had some call fail. SIGINT and SIGTERM end it early: it says all the same what
/// it has found so far.
#[derive(Clone, Debug, Parser)]
#[command(name = "terrace-sim", version)]
struct Arguments {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Go on with more seeds for so many minutes, and end then
    #[arg(long)]
    minutes: Option<f64>,
    /// Go on with more seeds until so many different images were opened
    #[arg(long)]
    images: Option<u64>,
    /// Print nothing but one JSON object at the end
    #[arg(long)]
    json: bool,
    /// Try little for each seed, as the short suite does
    #[arg(long)]
    short: bool,
    /// At most so many moments of a seed, up to three times as many where there are most places
    #[arg(long)]
    moments: Option<usize>,
    /// At most so many images of a moment
    #[arg(long)]
    most: Option<usize>,
    /// Processes to share the seeds; by default one for each core
    #[arg(long)]
    jobs: Option<u64>,
    /// Have calls of files fail, and go on with what is left
    #[arg(long)]
    faults: bool,
    /// Give every machine an object store in reach, where the cold levels of all tables lie
    #[arg(long)]
    objects: bool,
    /// Run whole databases with all their threads under a deterministic scheduler: callers at once,
    /// a cut of power in some, closings, openings. One process runs one seed after the other
    #[arg(long, conflicts_with_all = ["faults", "objects", "images", "jobs"])]
    schedules: bool,
    /// Only schedules of databases that several machines share: the others are passed over
    #[arg(long, requires = "schedules", conflicts_with = "planted")]
    shared: bool,
    /// Plant one bug after the other, and say which seed of a schedule finds it, and when. With
    /// `--minutes`, so long for each
    #[arg(long, requires = "schedules")]
    planted: bool,
    /// Only this planted bug
    #[arg(long, hide = true)]
    only: Option<String>,
    /// A schedule that fails is made smaller for so many seconds
    #[arg(long, default_value_t = 60)]
    shrink: u64,
    /// A failure of a schedule shows so many of the last points
    #[arg(long, default_value_t = 40)]
    trace: usize,
    /// Only this image of the seed, as a violation names it; with `--schedules`, the schedule that
    /// this file has
    #[arg(long)]
    replay: Option<String>,
    /// The process is one of several: it prints all that it counted
    #[arg(long, hide = true)]
    part: bool,
}

impl Arguments {
    fn limits(&self) -> Limits {
        let limits = if self.short { Limits::SHORT } else { Limits::WIDE };
        Limits {
            moments: self.moments.unwrap_or(limits.moments),
            most: self.most.unwrap_or(limits.most),
            ..limits
        }
    }

    fn jobs(&self) -> u64 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        let goes_on = self.minutes.is_some() || self.images.is_some();
        let most = if goes_on { u64::MAX } else { self.seeds.max(1) };
        self.jobs.unwrap_or(cores).clamp(1, most)
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let begin = Instant::now();
    stop::on_signals();
    if arguments.schedules {
        return campaign::run(arguments, begin);
    }
    if arguments.part {
        std::thread::spawn(stop_with_parent);
        println!("{}", serde_json::to_string(&alone(arguments, begin))?);
        return Ok(ExitCode::SUCCESS);
    }
    let coverage = match arguments.jobs() {
        1 => alone(arguments, begin),
        jobs => shared(arguments, jobs)?,
    };
    report(arguments, &coverage, begin.elapsed())
}

/// Stops when the process that this one works for closes its input, or ends.
fn stop_with_parent() {
    if io::copy(&mut io::stdin(), &mut io::sink()).is_ok() {
        stop::ask_for();
    }
}

/// Closes the inputs of all parts once this process was asked to stop.
fn pass_on_stop(inputs: Vec<ChildStdin>) {
    stop::wait();
    drop(inputs);
}

/// All seeds, one after the other: readers of one database hold up what another one frees, so a
/// process has one database at work at a time.
fn alone(arguments: &Arguments, begin: Instant) -> Coverage {
    let (mut coverage, mut prepared) = (Coverage::default(), Prepared::default());
    let until = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (mut said, step) = (Instant::now(), arguments.jobs.filter(|_| arguments.part).unwrap_or(1));
    for n in 0.. {
        let has_images = |wanted| images_of(&coverage) >= wanted;
        let enough = n >= arguments.seeds && arguments.images.is_none_or(has_images);
        if until.map_or(enough, |until| begin.elapsed() >= until) || stop::is_asked_for() {
            break;
        }
        let mut limits = arguments.limits();
        if until.is_some() && n * step < ROUND {
            limits = Limits::SHORT;
        }
        limits.until = until.map(|until| begin + until);
        let seed = arguments.seed + n * step;
        let of = if arguments.faults { Run::failing } else { Run::of };
        let mut run = of(seed, limits);
        if arguments.objects {
            run.kind = Kind::Objects;
        }
        run.replay.clone_from(&arguments.replay);
        let known = coverage.violations.len();
        run.run(&mut prepared, &mut coverage);
        coverage.violations[known..].iter().for_each(|what| eprintln!("VIOLATION: {what}"));
        if !arguments.json && said.elapsed() >= Duration::from_secs(2) {
            said = Instant::now();
            let Coverage { seeds, cuts, .. } = &coverage;
            let images = images_of(&coverage);
            eprint!("\r{seeds} seeds, {cuts} cuts, {images} images … ");
        }
    }
    coverage
}

/// How many different images were opened.
fn images_of(coverage: &Coverage) -> u64 {
    (coverage.images.len() + coverage.faults.images.len()) as u64
}

/// Shares the seeds among processes.
fn shared(arguments: &Arguments, jobs: u64) -> Result<Coverage> {
    let program = std::env::current_exe().context("finding this program")?;
    let limits = arguments.limits();
    let (mut parts, mut inputs) = (Vec::new(), Vec::new());
    for part in 0..jobs {
        let seeds = (arguments.seeds + jobs - 1 - part) / jobs;
        let mut command = Command::new(&program);
        command.args(["--part", "--jobs", &jobs.to_string(), "--seeds", &seeds.to_string()]);
        command.args(["--seed", &(arguments.seed + part).to_string()]);
        command.args(["--moments", &limits.moments.to_string()]);
        command.args(["--most", &limits.most.to_string()]);
        if arguments.faults {
            command.arg("--faults");
        }
        if arguments.objects {
            command.arg("--objects");
        }
        if let Some(images) = arguments.images {
            // Few are the same in two parts: a tenth more makes up for them.
            let share = (images + images / 10).div_ceil(jobs);
            command.args(["--images", &share.to_string()]);
        }
        if let Some(minutes) = arguments.minutes {
            command.args(["--minutes", &minutes.to_string()]);
        }
        // One of them shows how it goes, for all.
        if arguments.json || part > 0 {
            command.arg("--json");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut part = command.spawn().context("starting a part")?;
        inputs.extend(part.stdin.take());
        parts.push(part);
    }
    std::thread::spawn(move || pass_on_stop(inputs));
    let mut coverage = Coverage::default();
    for part in parts {
        let output = part.wait_with_output().context("waiting for a part")?;
        if !output.status.success() {
            bail!("a part of the run ended with {}", output.status);
        }
        coverage.absorb(serde_json::from_slice(&output.stdout).context("reading a part")?);
    }
    Ok(coverage)
}

/// What runs have to say in which calls fail.
fn report_faults(arguments: &Arguments, coverage: &Coverage, took: Duration) -> Result<ExitCode> {
    let faults = &coverage.faults;
    let (never_made, never_failed) = (faults.never_made(), faults.never_failed());
    let unlisted = faults.unlisted();
    let classes = coverage.by_class();
    let object = json!({
        "seed": arguments.seed,
        "seeds": faults.seeds,
        "lives": faults.lives,
        "errors": faults.errors,
        "openings": faults.openings,
        "refused": classes.get(&Class::Refused.to_string()).copied().unwrap_or_default(),
        "failed_openings": faults.failed_openings,
        "images": faults.images.len(),
        "checked": faults.checked,
        "second_cuts": coverage.second_cuts,
        "calls": faults.calls,
        "failed_call_sites": faults.calls.len() - never_failed.len(),
        "call_sites": CALL_SITES.len(),
        "never_made": never_made,
        "never_failed": never_failed,
        "unlisted": unlisted,
        "violations": coverage.violations.len(),
        "classes": classes,
        "seconds": (took.as_secs_f64() * 10.0).round() / 10.0,
    });
    let misses =
        [("never made", &never_made), ("never failed", &never_failed), ("unlisted", &unlisted)];
    let misses = misses.into_iter().filter(|(_, sites)| !sites.is_empty());
    if !arguments.json {
        misses.clone().for_each(|(what, sites)| eprintln!("\ncalls {what}: {sites:?}"));
    }
    println!("{}", serde_json::to_string(&object)?);
    // A few seeds cannot have everything; a call that no list has is a fault of the list.
    let owes_all = faults.seeds >= ALL_CALLS && !stop::is_asked_for();
    let misses = if owes_all { misses.count() } else { unlisted.len() };
    let wants_more = arguments.images.is_some_and(|wanted| images_of(coverage) < wanted);
    Ok(exit_code(coverage, misses > 0 || wants_more))
}

fn exit_code(coverage: &Coverage, misses: bool) -> ExitCode {
    match (coverage.violations.is_empty(), misses) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => ExitCode::from(2),
        (true, false) => ExitCode::SUCCESS,
    }
}

fn report(arguments: &Arguments, coverage: &Coverage, took: Duration) -> Result<ExitCode> {
    if arguments.faults {
        return report_faults(arguments, coverage, took);
    }
    let (missed, all) = (coverage.missed(), coverage.all_sites());
    let never: Vec<&String> = all.difference(&coverage.cut_sites).collect();
    let object = json!({
        "seed": arguments.seed,
        "seeds": coverage.seeds,
        "cuts": coverage.cuts,
        "file_cuts": coverage.file_cuts,
        "images": coverage.images.len(),
        "checked": coverage.checked,
        "made": coverage.made,
        "sampled": coverage.sampled,
        "second_cuts": coverage.second_cuts,
        "sites": { "covered": coverage.cut_sites.len(), "all": all.len(), "never": never },
        "operations": coverage.operations,
        "missed": missed,
        "violations": coverage.violations.len(),
        "seconds": (took.as_secs_f64() * 10.0).round() / 10.0,
    });
    if !arguments.json {
        eprintln!();
        if !never.is_empty() {
            eprintln!("never cut at: {never:?}");
        }
        if !missed.is_empty() {
            eprintln!("missed {} of {} operations: {missed:?}", missed.len(), OPERATIONS.len());
        }
    }
    println!("{}", serde_json::to_string(&object)?);
    // One seed is asked for to repeat it.
    let is_whole = arguments.seeds > 1 || arguments.minutes.is_some();
    let owes_all = is_whole && arguments.replay.is_none() && !stop::is_asked_for();
    Ok(exit_code(coverage, owes_all && !missed.is_empty()))
}
