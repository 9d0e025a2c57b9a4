//! A process of its own that tells what it does, line by line, until it is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "TERRACE_CHILD_DIRECTORY";
const WHAT: &str = "TERRACE_CHILD_WHAT";

/// Lines that it must have told before it is killed.
const ENOUGH: usize = 20;

/// In the child: the directory that it was given, and what to do there. The test that is the
/// child's entry asks for it, and does nothing without.
pub fn given() -> Option<(PathBuf, String)> {
    let directory = std::env::var_os(DIRECTORY)?;
    Some((directory.into(), std::env::var(WHAT).unwrap()))
}

/// In the child: tells a line. One write, so that it is there as a whole.
pub fn tell(line: &str) {
    std::io::stderr().write_all(format!("told {line}\n").as_bytes()).unwrap();
}

/// Runs the test `entry` of this test binary, kills it after `wait` in the midst of its work, and
/// gives the lines that it told.
pub fn told_until_killed(entry: &str, directory: &Path, what: &str, wait: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([entry, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(WHAT, what)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut told, mut other) = (Vec::new(), String::new());
    let began = Instant::now();
    for line in stderr.lines().map_while(Result::ok) {
        match line.strip_prefix("told ") {
            Some(line) => told.push(line.to_string()),
            None => other = other + &line + "\n",
        }
        if began.elapsed() > wait && told.len() > ENOUGH {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "the child ended by itself, {status}: {other}");
    told
}
