//! Adds up what test binaries say in their summaries.

use std::fmt;

use anyhow::{Result, bail};

/// The sums over every summary line of all test runs of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    /// Ignored tests, and those that ended because something was missing.
    left_out: u64,
}

/// How a line begins that a test writes, past the harness, when it ends because of what it lacks.
const LACKS: &str = "skipped: ";

impl Tally {
    /// Adds all summaries of a test binary's output. Returns how many there were.
    pub(crate) fn add(&mut self, output: &str) -> usize {
        let lacking = output.lines().filter(|line| line.starts_with(LACKS)).count() as u64;
        // The harness takes them for passed ones.
        let before = self.passed;
        let summaries = output.lines().filter(|line| self.add_line(line)).count();
        self.passed = self.passed.saturating_sub(lacking).max(before);
        self.left_out += lacking;
        summaries
    }

    /// How many tests were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// An error unless every test passed and there were some.
    pub(crate) fn verdict(&self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} tests failed", self.failed);
        }
        if self.passed == 0 {
            bail!("no test ran");
        }
        Ok(())
    }

    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add_line(&mut self, line: &str) -> bool {
        let Some(summary) = line.strip_prefix("test result: ") else { return false };
        let counts = summary.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (count, what) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next());
            match (count, what) {
                (Some(count), Some("passed")) => self.passed += count,
                (Some(count), Some("failed")) => self.failed += count,
                (Some(count), Some("ignored")) => self.left_out += count,
                _ => {}
            }
        }
        true
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.left_out += other.left_out;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} left out", self.passed, self.failed, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";

    #[test]
    fn summaries_add_up() {
        let mut tally = Tally::default();
        assert_eq!(tally.add(&format!("running 3 tests\n{GOOD}")), 1);
        let bad = "test result: FAILED. 4 passed; 2 failed; 0 ignored; finished in 0.1s\n";
        assert_eq!(tally.add(bad), 1);
        assert_eq!(tally.to_string(), "7 passed, 2 failed, 1 left out");
        assert!(tally.verdict().is_err());
    }

    #[test]
    fn stages_add_up() {
        let (mut all, mut stage) = (Tally::default(), Tally::default());
        stage.add(GOOD);
        all += stage;
        assert!(all.verdict().is_ok());
        assert_eq!(all.to_string(), "3 passed, 0 failed, 1 left out");
    }

    /// Bug: a test that ended because it lacked something was counted as passed, and an ignored one
    /// was not counted. Both are left out.
    #[test]
    fn a_test_that_lacks_something_has_not_passed() {
        let mut tally = Tally::default();
        tally.add(&format!("test a ... \nskipped: no right to mount\nok\n{GOOD}"));
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 2 left out");
        assert_eq!(tally.left_out(), 2);
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(Tally::default().verdict().is_err());
    }
}
