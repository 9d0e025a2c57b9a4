//! A run that is ended early says what it has found all the same.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-sim"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether an account has seeds and images. What it has agrees.
fn is_an_account(stdout: &[u8]) -> bool {
    let object: Value = serde_json::from_slice(stdout).unwrap();
    let count = |name: &str| object[name].as_u64().unwrap();
    assert!(count("images") <= count("checked") && count("violations") == 0, "{object}");
    count("seeds") > 0 && count("images") > 0
}

#[test]
fn a_run_that_is_asked_to_stop_says_what_it_has_found() {
    for jobs in ["1", "2"] {
        let mut run = run(&["--seeds", "1000000", "--short", "--jobs", jobs]).spawn().unwrap();
        // It has said how it goes.
        run.stderr.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(is_an_account(&output.stdout), "{output:?}");
    }
}

#[test]
fn a_run_of_some_minutes_ends_with_them_in_the_middle_of_a_seed() {
    // A loaded machine may get to no image in six seconds.
    let has_account = ["0.1", "0.5", "2"].into_iter().any(|minutes| {
        let begin = Instant::now();
        let output = run(&["--minutes", minutes, "--jobs", "2", "--json"]).output().unwrap();
        let most = Duration::from_secs_f64(60.0 * (1.0 + minutes.parse::<f64>().unwrap()));
        assert!(begin.elapsed() < most, "{minutes} minutes took {:?}", begin.elapsed());
        // So short a run has not had everything under test.
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        is_an_account(&output.stdout)
    });
    assert!(has_account);
}
