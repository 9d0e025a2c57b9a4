//! Runs processes side by side: as many as there are cores, each with its output in one piece.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

/// A process to run, and its name in what is printed.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    /// What it wrote, to either stream.
    pub(crate) output: String,
    pub(crate) success: bool,
}

/// How many processes run at a time.
pub(crate) fn at_a_time() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs all jobs, `workers` at a time, in their order. Prints the output of each when it ends.
///
/// Thread safety: workers share the queue and the results, each under a mutex of its own. A worker
/// prints while it holds the results, so outputs do not mix.
pub(crate) fn run(jobs: Vec<Job>, workers: usize) -> Result<Vec<Ended>> {
    let queue = Mutex::new(VecDeque::from(jobs));
    let ended: Mutex<Vec<Result<Ended>>> = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let begin = Instant::now();
                    let outcome = run_one(job);
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    let outcome = outcome.and_then(|job| show(&job, begin).map(|()| job));
                    ended.push(outcome);
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// Runs a process to its end. Both of its streams go to one pipe, so their order is kept.
fn run_one(Job { name, mut command }: Job) -> Result<Ended> {
    let (mut output, writer) = io::pipe().context("making a pipe")?;
    command.stdout(writer.try_clone().context("sharing a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
    // The command holds the writing end: the output ends when nothing holds it.
    drop(command);
    let mut bytes = Vec::new();
    output.read_to_end(&mut bytes).with_context(|| format!("reading what {name} says"))?;
    let success = child.wait().with_context(|| format!("waiting for {name}"))?.success();
    Ok(Ended { name, output: String::from_utf8_lossy(&bytes).into_owned(), success })
}

fn show(job: &Ended, begin: Instant) -> Result<()> {
    let (seconds, verdict) =
        (begin.elapsed().as_secs_f64(), if job.success { "ended" } else { "FAILED" });
    let text = format!("{}{}: {verdict} after {seconds:.1} s\n", job.output, job.name);
    io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("printing: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn each_job_has_its_output_and_its_verdict() {
        let jobs =
            vec![shell("a", "echo one; echo two >&2; echo three"), shell("b", "echo b; exit 3")];
        let mut ended = run(jobs, 2).unwrap();
        ended.sort_by(|x, y| x.name.cmp(&y.name));
        assert_eq!(ended[0].output, "one\ntwo\nthree\n");
        assert_eq!(ended[1].output, "b\n");
        assert_eq!([ended[0].success, ended[1].success], [true, false]);
    }

    #[test]
    fn one_at_a_time_keeps_the_order() {
        let jobs = (0..5).map(|n| shell(&n.to_string(), "true")).collect();
        let ended = run(jobs, 1).unwrap();
        let names: Vec<&str> = ended.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let job = Job { name: "a".into(), command: Command::new("/no/such/program") };
        assert!(run(vec![job], 2).unwrap_err().to_string().contains("starting a"));
    }
}
