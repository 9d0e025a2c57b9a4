//! A round: start a child, listen to it, kill it in the middle of its work.

use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::ledger::Line;
use crate::failure::Failure;

/// A child that commits nothing for so long hangs.
const STALL: Duration = Duration::from_secs(60);

/// What a round needs to know.
pub(crate) struct Plan<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) round: u32,
    pub(crate) source: &'a str,
    pub(crate) seed: u64,
    /// The machine that the child works on, if that will be lost.
    pub(crate) machine: Option<u32>,
    /// Where the child serves its page, if it does.
    pub(crate) watch: Option<SocketAddr>,
    /// Kill after so many acknowledged commits…
    pub(crate) commits: u64,
    /// …and this little while.
    pub(crate) delay: Duration,
}

/// What the child told before it died.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) lines: Vec<Line>,
    pub(crate) acknowledged: u64,
    pub(crate) groups: u64,
    pub(crate) syncs: u64,
}

impl Told {
    fn add(&mut self, line: Line) {
        match line {
            Line::Acknowledged { .. } => self.acknowledged += 1,
            Line::Statistics { groups, syncs } => (self.groups, self.syncs) = (groups, syncs),
        }
        self.lines.push(line);
    }
}

/// Runs the round. All that the child had told when it died counts, what was still in the pipe
/// included: a commit was acknowledged before its line was written.
pub(crate) fn run(plan: &Plan<'_>) -> Result<Told, Failure> {
    let mut child = Mortal(start(plan)?);
    let pipe = child.0.stdout.take();
    let pipe = pipe.ok_or_else(|| Failure::Outside("the child has no pipe".to_owned()))?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let line = Line::read(&mut pipe);
            let is_last = !matches!(line, Ok(Some(_)));
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    let reading = |error| Failure::io("listen to the child", &error);
    let mut told = Told::default();
    while told.acknowledged < plan.commits {
        match receiver.recv_timeout(STALL) {
            Ok(line) => match line.map_err(reading)? {
                Some(line) => told.add(line),
                None => return Err(child.ended_by_itself()),
            },
            Err(_) => {
                let seconds = STALL.as_secs();
                return Err(Failure::Outside(format!("no commit for {seconds} seconds")));
            }
        }
    }
    thread::sleep(plan.delay);
    child.kill();
    while let Ok(line) = receiver.recv() {
        match line.map_err(reading)? {
            Some(line) => told.add(line),
            None => break,
        }
    }
    drop(receiver);
    // It only ever ends by itself, and now it has.
    drop(reader.join());
    Ok(told)
}

fn start(plan: &Plan<'_>) -> Result<Child, Failure> {
    let mut command = super::this_program()?;
    command.arg("tour-child").arg("--dir").arg(plan.dir);
    command.args(["--round", &plan.round.to_string()]);
    command.args(["--source", plan.source, "--seed", &plan.seed.to_string()]);
    if let Some(machine) = plan.machine {
        command.args(["--machine", &machine.to_string()]);
    }
    if let Some(address) = plan.watch {
        command.args(["--watch", &address.to_string()]);
    }
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| Failure::io("start a child", &error))
}

/// A child that does not outlive this process's interest in it.
struct Mortal(Child);

impl Mortal {
    /// Kills the child with SIGKILL, which it can neither see nor delay.
    fn kill(&mut self) {
        // Either fails only if the child is gone, and that is all that is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }

    fn ended_by_itself(&mut self) -> Failure {
        let status = self.0.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        Failure::Outside(format!("the child ended by itself: {status}"))
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.kill();
    }
}
