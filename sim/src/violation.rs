//! What went wrong, in words that begin with what sort of thing it is.

use std::any::Any;
use std::fmt;

/// What went wrong, in words.
pub type Violation = String;

/// The sort of a violation. Its text has it in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Commits that had to be there are missing at the end of what is.
    Lost,
    /// An opening without faults failed.
    Refused,
    /// What is found is the content after no prefix of the commits.
    NotAPrefix,
    /// What is found is not what was found before.
    Changed,
    /// A check of the stored bytes found damage.
    Damaged,
    /// Space that nothing uses is not free.
    Leaked,
    /// A backup is missing, or is not what it was made of.
    Backup,
    /// A call told an error that it must not tell, or none where it must.
    WrongError,
    /// A transaction saw or wrote what its level forbids.
    Isolation,
    /// A row was gone before its time to live was over.
    EarlyExpiry,
    /// A row was there long after it.
    LateExpiry,
    /// Two writers had one database open.
    TwoWriters,
    /// Threads wait for each other, or go on for ever.
    NoEnd,
    Panic,
}

const CLASSES: [Class; 14] = [
    Class::Lost,
    Class::Refused,
    Class::NotAPrefix,
    Class::Changed,
    Class::Damaged,
    Class::Leaked,
    Class::Backup,
    Class::WrongError,
    Class::Isolation,
    Class::EarlyExpiry,
    Class::LateExpiry,
    Class::TwoWriters,
    Class::NoEnd,
    Class::Panic,
];

impl Class {
    fn as_str(self) -> &'static str {
        match self {
            Class::Lost => "lost",
            Class::Refused => "refused",
            Class::NotAPrefix => "not a prefix",
            Class::Changed => "changed",
            Class::Damaged => "damaged",
            Class::Leaked => "leaked",
            Class::Backup => "backup",
            Class::WrongError => "wrong error",
            Class::Isolation => "isolation",
            Class::EarlyExpiry => "early expiry",
            Class::LateExpiry => "late expiry",
            Class::TwoWriters => "two writers",
            Class::NoEnd => "no end",
            Class::Panic => "panic",
        }
    }

    /// A violation of this sort.
    pub fn violation(self, what: impl fmt::Display) -> Violation {
        format!("[{self}] {what}")
    }

    /// The sort of a violation.
    pub fn of(violation: &str) -> Option<Class> {
        let place = |class: &Class| violation.find(&format!("[{class}]"));
        let found = CLASSES.into_iter().filter_map(|class| Some((place(&class)?, class)));
        found.min_by_key(|(at, _)| *at).map(|(_, class)| class)
    }
}

/// What a panic stands for: the violation that it tells, or a panic.
pub fn of_panic(payload: &(dyn Any + Send), place: &str) -> Violation {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    match Class::of(text) {
        Some(_) => format!("{place}: {text}"),
        None => Class::Panic.violation(format!("{place}: {text}")),
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_tells_its_class() {
        for class in CLASSES {
            let violation = format!("seed 7: {}", class.violation("a row, [b] of others"));
            assert_eq!(Class::of(&violation), Some(class));
        }
        assert_eq!(Class::of("something else"), None);
    }
}
