//! Runs processes side by side: as many as there are cores, each with its output in one piece. A
//! process that does not end in time is killed, so that what it said names where it hangs.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read, Write};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    /// Whether it was killed since it took longer than the limit.
    pub(crate) killed: bool,
}

/// How many processes run at a time.
pub(crate) fn at_a_time() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs all jobs, `workers` at a time, in their order. Prints the output of each when it ends, and
/// kills one that takes longer than `limit`.
///
/// Thread safety: workers share the queue and the results, each under a mutex of its own. A worker
/// prints while it holds the results, so outputs do not mix.
pub(crate) fn run(jobs: Vec<Job>, workers: usize, limit: Duration) -> Result<Vec<Ended>> {
    let queue = Mutex::new(VecDeque::from(jobs));
    let ended: Mutex<Vec<Result<Ended>>> = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let begin = Instant::now();
                    let outcome = run_one(job, limit);
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    let outcome = outcome.and_then(|job| show(&job, begin).map(|()| job));
                    ended.push(outcome);
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// Runs a process to its end or to the limit. Both of its streams go to one pipe, so their order is
/// kept.
fn run_one(Job { name, mut command }: Job, limit: Duration) -> Result<Ended> {
    let (output, writer) = io::pipe().context("making a pipe")?;
    command.stdout(writer.try_clone().context("sharing a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
    // The command holds the writing end: the output ends when nothing holds it.
    drop(command);
    let (bytes, in_time) = read_until(&pieces(output), Instant::now() + limit)
        .with_context(|| format!("reading what {name} says"))?;
    if !in_time {
        child.kill().with_context(|| format!("killing {name}"))?;
    }
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    let output = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended { name, output, success: in_time && status.success(), killed: !in_time })
}

/// What comes out of a pipe, piece by piece. Its thread ends with the pipe, or with the first piece
/// behind the drop of the receiver: a child of a killed process may hold the pipe open.
fn pieces(mut output: PipeReader) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, pieces) = mpsc::channel();
    thread::spawn(move || {
        let mut piece = [0; 4096];
        loop {
            let said = match output.read(&mut piece) {
                Ok(0) => return,
                Ok(length) => Ok(piece[..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            if sender.send(said).is_err() {
                return;
            }
        }
    });
    pieces
}

/// All pieces until they end or until `end`, and whether they ended.
fn read_until(pieces: &Receiver<io::Result<Vec<u8>>>, end: Instant) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    loop {
        match pieces.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(piece) => bytes.extend(piece?),
            Err(RecvTimeoutError::Disconnected) => return Ok((bytes, true)),
            Err(RecvTimeoutError::Timeout) => return Ok((bytes, false)),
        }
    }
}

fn show(job: &Ended, begin: Instant) -> Result<()> {
    let verdict = match job {
        Ended { killed: true, .. } => "KILLED",
        Ended { success: true, .. } => "ended",
        _ => "FAILED",
    };
    let seconds = begin.elapsed().as_secs_f64();
    let text = format!("{}\n{}: {verdict} after {seconds:.1} s\n", job.output, job.name);
    io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("printing: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn each_job_has_its_output_and_its_verdict() {
        let jobs =
            vec![shell("a", "echo one; echo two >&2; echo three"), shell("b", "echo b; exit 3")];
        let mut ended = run(jobs, 2, LIMIT).unwrap();
        ended.sort_by(|x, y| x.name.cmp(&y.name));
        assert_eq!(ended[0].output, "one\ntwo\nthree\n");
        assert_eq!(ended[1].output, "b\n");
        assert_eq!([ended[0].success, ended[1].success], [true, false]);
    }

    #[test]
    fn one_at_a_time_keeps_the_order() {
        let jobs = (0..5).map(|n| shell(&n.to_string(), "true")).collect();
        let ended = run(jobs, 1, LIMIT).unwrap();
        let names: Vec<&str> = ended.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let job = Job { name: "a".into(), command: Command::new("/no/such/program") };
        assert!(run(vec![job], 2, LIMIT).unwrap_err().to_string().contains("starting a"));
    }

    #[test]
    fn a_job_that_hangs_is_killed_and_what_it_said_is_kept() {
        // The shell's child keeps the pipe open behind the kill.
        let jobs = vec![shell("a", "echo here; sleep 600; echo there")];
        let ended = run(jobs, 1, Duration::from_millis(500)).unwrap();
        assert!(ended[0].killed && !ended[0].success);
        assert_eq!(ended[0].output, "here\n");
    }
}
