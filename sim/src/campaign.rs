//! What `terrace-sim --schedules` does: runs seeds, searches for planted bugs, replays a schedule,
//! and makes one that fails smaller.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use terrace::testing::schedule::{allowed_cores, pin_thread};
use terrace_sim::machines::Kind;
use terrace_sim::schedules::{Failure, Overlaps, PLANTED, Planted, Report, Schedule, shrink};
use terrace_sim::stop;
use terrace_sim::violation::Class;

use crate::Arguments;

/// So many schedules have cuts and failures, and do each operation: others look for nothing.
const MANY: u64 = 1000;

/// Each pair of operations is to overlap in so many runs.
const ENOUGH: u64 = 100;

pub(crate) fn run(arguments: &Arguments, begin: Instant) -> Result<ExitCode> {
    stay_on_one_core();
    match (&arguments.replay, &arguments.only, arguments.planted) {
        (Some(file), only, _) => replay(arguments, Path::new(file), only.as_deref()),
        (None, Some(bug), true) => search(arguments, planted(bug)?),
        (None, None, true) => search_all(arguments),
        _ => seeds(arguments, begin),
    }
}

/// The threads of a run take turns, and a turn is handed over faster on one core than to another.
/// Where the system refuses it, runs are slower, and the same.
fn stay_on_one_core() {
    let cores = allowed_cores();
    let core = cores.get(std::process::id() as usize % cores.len().max(1));
    let _is_pinned = core.is_some_and(|core| pin_thread(*core));
}

fn planted(bug: &str) -> Result<&'static Planted> {
    let found = PLANTED.iter().find(|planted| format!("{:?}", planted.bug) == bug);
    found.ok_or_else(|| anyhow!("no planted bug is called {bug:?}"))
}

/// This program, as it runs schedules.
fn again(arguments: &Arguments) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.args(["--schedules", "--trace", &arguments.trace.to_string()]);
    Ok(command)
}

/// Searches for each planted bug, in a process of its own: threads of a run that does not end stay
/// until their process ends.
fn search_all(arguments: &Arguments) -> Result<ExitCode> {
    println!("{:<22} {:>10} {:>8} {:>8}", "bug", "schedules", "seconds", "seed");
    let mut missed = 0;
    for Planted { bug, .. } in PLANTED {
        if stop::is_asked_for() {
            break;
        }
        let mut command = again(arguments)?;
        command.args(["--planted", "--only", &format!("{bug:?}")]);
        if let Some(minutes) = arguments.minutes {
            command.args(["--minutes", &minutes.to_string()]);
        }
        missed += i32::from(!command.status().context("starting a search")?.success());
    }
    Ok(ExitCode::from(u8::from(missed > 0)))
}

/// Searches for one, five minutes at most.
fn search(arguments: &Arguments, planted: &Planted) -> Result<ExitCode> {
    let within = Duration::from_secs_f64(arguments.minutes.unwrap_or(5.0) * 60.0);
    let bug = format!("{:?}", planted.bug);
    let Some((seed, took, failure)) = planted.search(within) else {
        println!("{bug:<22} not found in {within:?}");
        return Ok(ExitCode::FAILURE);
    };
    let what = failure.violations.first().map_or("", String::as_str);
    let what: String = what.chars().take(100).collect();
    println!("{bug:<22} {:>10} {:>8.1} {seed:>8} {what}", seed + 1, took.as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn classes(failure: &Failure) -> Vec<String> {
    let classes = failure.violations.iter().filter_map(|what| Class::of(what));
    classes.map(|class| class.to_string()).collect()
}

/// Runs the schedule of a file. It fails as it failed when the file was written.
fn replay(arguments: &Arguments, file: &Path, bug: Option<&str>) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let schedule = Schedule::read(&text).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let bug = bug.map(planted).transpose()?.map(|planted| planted.bug);
    let run = Schedule { trace: arguments.trace, bug, ..schedule }.run();
    let object = match &run {
        Ok(report) => json!({ "hash": format!("{:016x}", report.hash), "classes": [] }),
        Err(failure) => {
            if !arguments.json {
                eprintln!("VIOLATION: {}\n{failure}", file.display());
            }
            let hash = format!("{:016x}", failure.hash);
            let preemptions = &failure.preemptions;
            json!({ "hash": hash, "classes": classes(failure), "preemptions": preemptions })
        }
    };
    if arguments.json {
        println!("{object}");
    }
    Ok(ExitCode::from(u8::from(run.is_err())))
}

/// Writes a schedule where files go that nothing needs for long.
fn write(schedule: &Schedule, name: &str) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("terrace-{}-{name}.json", std::process::id()));
    std::fs::write(&path, schedule.written()).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// What a replay of the schedule in a process of its own says, if it fails.
fn replayed(arguments: &Arguments, file: &Path) -> Result<Option<Value>> {
    let mut command = again(arguments)?;
    command.arg("--replay").arg(file).arg("--json");
    if let Some(bug) = &arguments.only {
        command.args(["--only", bug]);
    }
    let output = command.output().context("starting a replay")?;
    match output.status.code() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(serde_json::from_slice(&output.stdout).context("reading a replay")?)),
        _ => bail!("a replay ended with {}", output.status),
    }
}

/// Writes the schedule of a failure, makes it smaller, and prints how that one fails.
fn explain(arguments: &Arguments, schedule: &Schedule, failure: &Failure) -> Result<()> {
    let file = write(schedule, &format!("seed-{}", schedule.seed))?;
    eprintln!("--schedules --replay {} repeats it", file.display());
    if arguments.shrink == 0 {
        return Ok(());
    }
    let (wanted, tried) = (classes(failure), write(schedule, "tried")?);
    let wanted = wanted.first().cloned().unwrap_or_default();
    let mut fails = |smaller: &Schedule| {
        std::fs::write(&tried, smaller.written()).ok()?;
        let found = replayed(arguments, &tried).ok()??;
        let found_classes: Vec<String> = serde_json::from_value(found["classes"].clone()).ok()?;
        let is_it = found_classes.contains(&wanted);
        is_it.then(|| serde_json::from_value(found["preemptions"].clone()).ok())?
    };
    let until = Instant::now() + Duration::from_secs(arguments.shrink);
    let small = shrink(schedule, until, &mut fails);
    std::fs::remove_file(&tried).context("removing what was tried")?;
    let file = write(&small, &format!("seed-{}-small", schedule.seed))?;
    let (before, after) = (schedule.operations(), small.operations());
    eprintln!("{after} of {before} operations fail so too: --replay {}", file.display());
    again(arguments)?.arg("--replay").arg(&file).status().context("starting a replay")?;
    Ok(())
}

/// Runs seeds, and says what they have found. For some minutes those come first whose pair of
/// operations has overlapped least: each is still one run.
fn seeds(arguments: &Arguments, begin: Instant) -> Result<ExitCode> {
    let until = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let (mut total, mut failed, mut schedules) = (Report::default(), Vec::new(), 0);
    let mut numbers = arguments.seed..;
    let mut overlaps = Overlaps::from(arguments.seed);
    while !stop::is_asked_for() {
        let enough = schedules >= arguments.seeds;
        if until.map_or(enough, |until| begin.elapsed() >= until) {
            break;
        }
        let seed = match until {
            None => numbers.next().unwrap_or(arguments.seed),
            Some(_) => overlaps.next_seed(),
        };
        let schedule = Schedule { trace: arguments.trace, ..Schedule::of(seed) };
        if arguments.shared && schedule.kind != Kind::Shared {
            continue;
        }
        schedules += 1;
        match schedule.run() {
            Ok(report) => {
                overlaps.add(report.pairs.keys());
                total.add(report);
            }
            Err(failure) => {
                eprintln!("VIOLATION: seed {seed}\n{failure}");
                explain(arguments, &schedule, &failure)?;
                failed.push(seed);
                total.add(Report { hash: failure.hash, ..Report::default() });
                if failure.is_stuck {
                    eprintln!("the threads of this run are stuck, and no other one is begun");
                    break;
                }
            }
        }
    }
    let seldom = overlaps.seldom(ENOUGH);
    let is_whole = schedules >= MANY && !arguments.shared;
    let missing = if is_whole { total.missing() } else { Vec::new() };
    let mut object = json!({
        "seed": arguments.seed,
        "schedules": schedules,
        "failed": failed,
        "cuts": total.cuts,
        "failures": total.failures,
        "points": total.points,
        "switches": total.switches,
        "places": total.covered.len(),
        "places_switched_at": total.covered.values().filter(|(_, switched)| *switched > 0).count(),
        "operations": total.done,
        "missing": missing,
        "pairs": total.pairs.len(),
        "pairs_seldom": seldom.len(),
        "hash": format!("{:016x}", total.hash),
        "seconds": begin.elapsed().as_secs_f64(),
    });
    if until.is_some() {
        let pairs = seldom.iter().map(|((one, other), n)| (format!("{one}, {other}"), json!(n)));
        object["seldom"] = Value::Object(pairs.collect());
    }
    println!("{}", if arguments.json { object.to_string() } else { format!("{object:#}") });
    Ok(ExitCode::from(u8::from(!failed.is_empty() || !missing.is_empty())))
}
