//! What calls that fail have done to a life.

use terrace::testing::Machine;
use terrace::{Error, ErrorKind};

use crate::violation::{Class, Violation};

/// After so many errors in a row the machine is mended.
const MENDED_AFTER: u32 = 5;

/// After so many errors in a row nothing but another opening helps.
const ENDS_AFTER: u32 = 12;

/// The errors that calls of a database told, and what is wrong about them.
#[derive(Debug, Default)]
pub struct Disturbed {
    /// How many were told.
    pub errors: u64,
    /// A commit has an unknown outcome.
    pub has_unknown: bool,
    in_a_row: u32,
    /// No call fails any more.
    is_mended: bool,
    /// What was told, in order.
    told: Vec<String>,
    complaint: Option<Violation>,
}

impl Disturbed {
    /// A commit or a background job was done.
    pub(crate) fn passed(&mut self) {
        self.in_a_row = 0;
    }

    /// From now on no call fails.
    pub(crate) fn mended(&mut self) {
        self.is_mended = true;
    }

    /// No job has made room for a commit. One has to, once the machine works again, unless the
    /// database has stopped.
    pub(crate) fn no_room(&mut self, has_stopped: bool) {
        if self.is_mended && !has_stopped {
            self.complain(Class::NoEnd, "jobs make no room, though no call fails any more");
        }
    }

    /// How many jobs in a row may find nothing to do before there is room.
    pub(crate) fn most_idle(&self) -> u32 {
        if self.is_mended { 2000 } else { 20 }
    }

    /// A call told an error, on a machine of which a call has failed or has not. Whether the
    /// machine is to be mended now.
    pub(crate) fn failed(&mut self, what: &str, error: &Error, has_failed: bool) -> bool {
        self.note(format!("{what}: {} ({})", error, error.kind().as_str()));
        self.errors += 1;
        self.in_a_row += 1;
        match error.kind() {
            _ if !has_failed => {
                self.complain(Class::WrongError, &format!("{what}, and no call failed: {error}"));
            }
            ErrorKind::Full | ErrorKind::Unavailable => {}
            ErrorKind::UnknownOutcome => self.has_unknown = true,
            // Whether a table is there may be what is unknown.
            kind if kind.is_refusal() && self.has_unknown => {}
            _ => self.complain(Class::WrongError, &format!("{what}: {error}")),
        }
        self.in_a_row == MENDED_AFTER
    }

    /// Notes something for the report of a violation.
    pub(crate) fn note(&mut self, what: String) {
        self.told.push(what);
    }

    /// All that was noted.
    pub(crate) fn told(&self) -> String {
        self.told.join("\n    ")
    }

    /// Nothing but another opening helps.
    pub(crate) fn end(&mut self) {
        self.in_a_row = ENDS_AFTER;
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.in_a_row < ENDS_AFTER
    }

    pub(crate) fn complain(&mut self, class: Class, what: &str) {
        self.complaint.get_or_insert_with(|| class.violation(what));
    }

    /// What is wrong about the errors, if anything.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.complaint.clone().map_or(Ok(()), Err)
    }
}

/// Whether a call of the machine has failed, or its disk is full since an earlier life.
pub(crate) fn has_failed(machine: &Machine) -> bool {
    !machine.failed_calls().is_empty() || machine.is_bounded()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{Kind, PATH, options};

    fn class(disturbed: &Disturbed) -> Option<Class> {
        disturbed.verdict().err().and_then(|what| Class::of(&what))
    }

    /// Bug: a database that told errors while each call of its machine did what it is for was taken
    /// for one whose calls fail. Cause: what had failed was not asked for. Fix: it is.
    #[test]
    fn an_error_comes_of_a_call_that_has_failed() {
        let machine = Kind::Files.machine();
        machine.set_capacity(Some(0));
        let full = options(&machine, None).create(PATH).err().unwrap();
        assert_eq!(full.kind(), ErrorKind::Full);
        for (has_failed, want) in [(true, None), (false, Some(Class::WrongError))] {
            let mut disturbed = Disturbed::default();
            disturbed.failed("a creation", &full, has_failed);
            assert_eq!(class(&disturbed), want);
        }
    }

    /// Bug: a database whose jobs never went on after a fault did nothing to the end of its life,
    /// and that was no violation. Cause: room that does not come ended each act without a word.
    /// Fix: it has to come once no call fails any more.
    #[test]
    fn room_comes_once_no_call_fails() {
        let mut disturbed = Disturbed::default();
        disturbed.no_room(false);
        assert_eq!(class(&disturbed), None);
        disturbed.mended();
        disturbed.no_room(true);
        assert_eq!(class(&disturbed), None);
        disturbed.no_room(false);
        assert_eq!(class(&disturbed), Some(Class::NoEnd));
    }
}
