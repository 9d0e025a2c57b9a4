//! Adds up what test binaries say in their summaries.

use std::fmt;

use anyhow::{Result, bail};

/// The sums over every summary line of all test runs of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    /// Adds all summaries of a test binary's output. Returns how many there were.
    pub(crate) fn add(&mut self, output: &str) -> usize {
        output.lines().filter(|line| self.add_line(line)).count()
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

    const GOOD: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";

    #[test]
    fn summaries_add_up() {
        let mut tally = Tally::default();
        assert_eq!(tally.add(&format!("running 3 tests\n{GOOD}")), 1);
        let bad = "test result: FAILED. 4 passed; 2 failed; 0 ignored; finished in 0.1s\n";
        assert_eq!(tally.add(bad), 1);
        assert_eq!(tally.to_string(), "7 passed, 2 failed");
        assert!(tally.verdict().is_err());
    }

    #[test]
    fn stages_add_up() {
        let (mut all, mut stage) = (Tally::default(), Tally::default());
        stage.add(GOOD);
        all += stage;
        assert!(all.verdict().is_ok());
        assert_eq!(all.to_string(), "3 passed, 0 failed");
    }

    #[test]
    fn nothing_run_is_no_success() {
        assert!(Tally::default().verdict().is_err());
    }
}
