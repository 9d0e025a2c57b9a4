//! How a command ends: well, with a negative answer, or with an error that has a kind.

use std::io;

use terrace::ErrorKind;

use crate::output::in_json;

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked.
    Good,
    /// The work is done and the answer is no: not found, damaged, lost.
    Negative,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is wrong.
    Invalid(String),
    /// A signal asked to stop; what was done by then.
    Interrupted(String),
    /// Something around the program failed.
    Outside(String),
    /// The engine refused.
    Engine(terrace::Error),
    /// A part was done before the rest failed.
    Partly { done: String, cause: Box<Failure> },
}

impl Failure {
    /// A failure of something around the program, with what was being done.
    pub(crate) fn io(doing: impl std::fmt::Display, error: &io::Error) -> Failure {
        Failure::Outside(format!("cannot {doing}: {error}"))
    }

    /// Says what is there, where a signal has stopped the engine.
    pub(crate) fn stopped(left: impl std::fmt::Display) -> impl FnOnce(terrace::Error) -> Failure {
        move |error| match Failure::from(error) {
            Failure::Interrupted(message) => Failure::Interrupted(format!("{message}; {left}")),
            failure => failure,
        }
    }

    /// A closing that failed behind work that is done.
    pub(crate) fn closing(done: impl Into<String>) -> impl FnOnce(terrace::Error) -> Failure {
        let done = format!("{}, but the database could not be closed", done.into());
        |error| Failure::Partly { done, cause: Box::new(error.into()) }
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, Failure::Interrupted(_)) {
            return 130;
        }
        if self.kind().is_refusal() { 2 } else { 3 }
    }

    /// The error for a person, or for a program.
    pub(crate) fn report(&self, json: bool) -> String {
        let kind = match self {
            Failure::Interrupted(_) => "interrupted",
            _ => self.kind().as_str(),
        };
        let message = self.message();
        if json {
            let error = serde_json::json!({ "error": { "kind": kind, "message": message } });
            in_json(&error.to_string())
        } else {
            format!("error ({kind}): {message}")
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Failure::Invalid(_) => ErrorKind::Invalid,
            Failure::Outside(_) | Failure::Interrupted(_) => ErrorKind::Unavailable,
            Failure::Partly { cause, .. } => cause.kind(),
            Failure::Engine(error) => error.kind(),
        }
    }

    /// What happened.
    pub(crate) fn message(&self) -> String {
        match self {
            Failure::Invalid(message)
            | Failure::Interrupted(message)
            | Failure::Outside(message) => message.clone(),
            Failure::Engine(error) => error.to_string(),
            Failure::Partly { done, cause } => format!("{done}, for: {}", cause.message()),
        }
    }
}

impl From<terrace::Error> for Failure {
    fn from(error: terrace::Error) -> Failure {
        match error.kind() {
            // A signal alone has a call end so.
            ErrorKind::Cancelled => Failure::Interrupted(format!("stopped by a signal: {error}")),
            _ => Failure::Engine(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_the_same_for_people_and_programs() {
        let failure = Failure::Invalid("no \"table\"".to_owned());
        assert_eq!(failure.report(false), "error (invalid): no \"table\"");
        let value: serde_json::Value = serde_json::from_str(&failure.report(true)).unwrap();
        assert_eq!(value["error"]["kind"], "invalid");
        assert_eq!(value["error"]["message"], "no \"table\"");
    }

    /// Bug: a closing that failed behind a commit or a takeover was told as its failure. Cause: the
    /// error had nothing of what was done. Fix: the error begins with it.
    #[test]
    fn a_failed_closing_says_what_was_done() {
        let cause = terrace::Options::new().set("absent", "").unwrap_err();
        let failure = Failure::closing("transaction `x` is committed")(cause);
        let begin = "error (invalid): transaction `x` is committed, but the database could not be \
                     closed, for: ";
        assert!(failure.report(false).starts_with(begin), "{}", failure.report(false));
    }

    #[test]
    fn codes_tell_requests_from_the_world() {
        assert_eq!(Failure::Invalid(String::new()).exit_code(), 2);
        assert_eq!(Failure::Outside(String::new()).exit_code(), 3);
    }
}
