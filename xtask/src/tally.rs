//! Runs the tests, passes their output through, and adds up what the runner says.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The sums over every summary line of a test run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    summaries: u64,
    passed: u64,
    failed: u64,
    /// Whether cargo ended without an error of its own.
    ended_well: bool,
}

impl Tally {
    /// Runs `cargo test` and counts while its output passes by.
    pub(crate) fn of(mut command: Command) -> Result<Tally> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let output = child.stdout.take().context("the output of the tests is not there")?;
        let mut tally = Tally::default();
        let mut own = std::io::stdout();
        let mut lines = BufReader::new(output);
        // By bytes: a test may print what is no text.
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            own.write_all(&line)?;
            own.flush()?;
            tally.add(&String::from_utf8_lossy(&line));
            line.clear();
        }
        tally.ended_well = child.wait()?.success();
        Ok(tally)
    }

    /// Whether any test binary got as far as its summary.
    pub(crate) fn has_run(&self) -> bool {
        self.summaries > 0
    }

    /// An error unless every test passed and there were some.
    pub(crate) fn verdict(&self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} tests failed", self.failed);
        }
        // A test binary that crashed, or code that did not compile, has no summary.
        if !self.ended_well {
            bail!("the test run did not end well");
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else { return };
        self.summaries += 1;
        let counts = summary.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (count, what) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next());
            match (count, what) {
                (Some(count), Some("passed")) => self.passed += count,
                (Some(count), Some("failed")) => self.failed += count,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_add_up() {
        let mut tally = Tally::default();
        tally.add("running 3 tests");
        tally.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tally.add("test result: FAILED. 4 passed; 2 failed; 0 ignored; finished in 0.1s\n");
        assert_eq!(tally.to_string(), "7 passed, 2 failed");
        assert!(tally.verdict().is_err());
    }

    #[test]
    fn a_crash_is_no_success() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 3 passed; 0 failed;");
        assert!(tally.verdict().is_err());
        tally.ended_well = true;
        assert!(tally.verdict().is_ok());
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(Tally { ended_well: true, ..Tally::default() }.verdict().is_err());
    }
}
