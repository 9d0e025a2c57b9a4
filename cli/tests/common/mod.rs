//! A database in a temporary directory and the command to work on it.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod refusing;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A place for one test.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

/// What a run of the command left.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of the database.
    pub(crate) fn db(&self) -> String {
        self.path().join("db").display().to_string()
    }

    /// Writes a file next to the database.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The command, with the database of this test.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.env("TERRACE_DB", self.path().join("db")).stdin(Stdio::null());
        command
    }

    /// Runs the command.
    pub(crate) fn run<I: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = I>,
    ) -> Ran {
        Ran::of(self.command().args(arguments).output().unwrap())
    }

    /// Runs the command with this on its standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }
}

/// The code and the errors of a command that is sent a signal once it takes signals.
#[cfg(target_os = "linux")]
pub(crate) fn interrupted(command: &mut Command) -> (Option<i32>, String) {
    let Ran { code, err, .. } = output_when_interrupted(command);
    (code, err)
}

/// All of such a command.
#[cfg(target_os = "linux")]
pub(crate) fn output_when_interrupted(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let takes_signals = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        // It may end before this thread looks.
        status.contains("(zombie)") || u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 > 0
    };
    while !takes_signals() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    Ran::of(child.wait_with_output().unwrap())
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The standard output of a run that went well.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The standard error of a run that ended with this code.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }

    /// The standard output as JSON, whatever the code.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}
