//! How calls end.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;

use terrace::ErrorKind;

use crate::guard::{self, Failure};

/// How a call ended. Programs decide on it, and people read the message of the error.
#[allow(non_camel_case_types, reason = "these are the names that C has")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// It did what it says.
    TERRACE_OK = 0,
    /// The key is not there, or the cursor has no row that way. There is no error object.
    TERRACE_NOT_FOUND = 1,
    /// The buffer is too small. The call says how many bytes it takes. There is no error object.
    TERRACE_BUFFER_TOO_SMALL = 2,
    /// The request can never succeed as it stands: a NULL pointer, an option out of bounds, a write
    /// to a database that is open read-only. Change the request.
    TERRACE_INVALID = 16,
    /// Another transaction changed what this one read or wrote. It was rolled back; run it again.
    TERRACE_CONFLICT = 17,
    /// Two transactions waited for each other. This one was rolled back; run it again.
    TERRACE_DEADLOCK = 18,
    /// A deadline passed. Try later or wait longer.
    TERRACE_TIMEOUT = 19,
    /// Space ran out: disk, persistent memory or memory. Free some; reads go on meanwhile.
    TERRACE_FULL = 20,
    /// Something outside failed, or the database stopped after an earlier failure. Mend the cause,
    /// then open again. A forked child gets this for a database of its parent.
    TERRACE_UNAVAILABLE = 21,
    /// A commit was under way when something failed; the message says which of two cases it is. The
    /// device failed and the database stopped: the commit may or may not be there after the next
    /// opening. Or a TERRACE_REMOTE commit is durable on this machine, and the shared store has not
    /// acknowledged it: it is here, and the database goes on.
    TERRACE_UNKNOWN_OUTCOME = 22,
    /// Stored bytes are not what was written. terrace_error_damage has the place.
    TERRACE_CORRUPT = 23,
    /// The database was closed, or what the handle stood for has ended.
    TERRACE_CLOSED = 24,
    /// The library has a bug. Close the database, and report the message.
    TERRACE_INTERNAL = 25,
    /// Another opening took the object store of the database over. Close this one.
    TERRACE_FENCED = 26,
    /// There is no database in the directory. Name another one, or create a database.
    TERRACE_MISSING_DATABASE = 27,
    /// There is no table of that name, or the table of the handle was dropped.
    TERRACE_MISSING_TABLE = 28,
    /// What was to be made is there already: a database, a table, a file, a key of a bulk load, a
    /// prepared transaction.
    TERRACE_EXISTS = 29,
    /// A key, a value, a name, a batch or a transaction is over its limit. Split it, or raise the
    /// limit where there is an option.
    TERRACE_TOO_LARGE = 30,
    /// A typed table was opened with other types than it was written with.
    TERRACE_WRONG_TYPE = 31,
    /// Another process has the database open, or another caller changes the backup set. Close it
    /// there, or try later.
    TERRACE_BUSY = 32,
    /// The function of terrace_options_set_progress ended the call.
    TERRACE_CANCELLED = 33,
}

/// The name of each status.
const NAMES: [(Status, &CStr); 21] = [
    (Status::TERRACE_OK, c"TERRACE_OK"),
    (Status::TERRACE_NOT_FOUND, c"TERRACE_NOT_FOUND"),
    (Status::TERRACE_BUFFER_TOO_SMALL, c"TERRACE_BUFFER_TOO_SMALL"),
    (Status::TERRACE_INVALID, c"TERRACE_INVALID"),
    (Status::TERRACE_CONFLICT, c"TERRACE_CONFLICT"),
    (Status::TERRACE_DEADLOCK, c"TERRACE_DEADLOCK"),
    (Status::TERRACE_TIMEOUT, c"TERRACE_TIMEOUT"),
    (Status::TERRACE_FULL, c"TERRACE_FULL"),
    (Status::TERRACE_UNAVAILABLE, c"TERRACE_UNAVAILABLE"),
    (Status::TERRACE_UNKNOWN_OUTCOME, c"TERRACE_UNKNOWN_OUTCOME"),
    (Status::TERRACE_CORRUPT, c"TERRACE_CORRUPT"),
    (Status::TERRACE_CLOSED, c"TERRACE_CLOSED"),
    (Status::TERRACE_INTERNAL, c"TERRACE_INTERNAL"),
    (Status::TERRACE_FENCED, c"TERRACE_FENCED"),
    (Status::TERRACE_MISSING_DATABASE, c"TERRACE_MISSING_DATABASE"),
    (Status::TERRACE_MISSING_TABLE, c"TERRACE_MISSING_TABLE"),
    (Status::TERRACE_EXISTS, c"TERRACE_EXISTS"),
    (Status::TERRACE_TOO_LARGE, c"TERRACE_TOO_LARGE"),
    (Status::TERRACE_WRONG_TYPE, c"TERRACE_WRONG_TYPE"),
    (Status::TERRACE_BUSY, c"TERRACE_BUSY"),
    (Status::TERRACE_CANCELLED, c"TERRACE_CANCELLED"),
];

/// The name of a status, such as "TERRACE_NOT_FOUND": static text. "unknown status" for a number
/// that is none, such as that of a later library.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_status_name(status: i32) -> *const c_char {
    let named = NAMES.iter().find(|(known, _)| *known as i32 == status);
    named.map_or(c"unknown status", |(_, name)| name).as_ptr()
}

impl Failure {
    pub(crate) fn status(&self) -> Status {
        match self {
            Failure::Engine(error) => match error.kind() {
                ErrorKind::Invalid => Status::TERRACE_INVALID,
                ErrorKind::Conflict => Status::TERRACE_CONFLICT,
                ErrorKind::Deadlock => Status::TERRACE_DEADLOCK,
                ErrorKind::Timeout => Status::TERRACE_TIMEOUT,
                ErrorKind::Full => Status::TERRACE_FULL,
                ErrorKind::Unavailable => Status::TERRACE_UNAVAILABLE,
                ErrorKind::UnknownOutcome => Status::TERRACE_UNKNOWN_OUTCOME,
                ErrorKind::Corrupt => Status::TERRACE_CORRUPT,
                ErrorKind::Closed => Status::TERRACE_CLOSED,
                ErrorKind::Fenced => Status::TERRACE_FENCED,
                ErrorKind::MissingDatabase => Status::TERRACE_MISSING_DATABASE,
                ErrorKind::MissingTable => Status::TERRACE_MISSING_TABLE,
                ErrorKind::Exists => Status::TERRACE_EXISTS,
                ErrorKind::TooLarge => Status::TERRACE_TOO_LARGE,
                ErrorKind::WrongType => Status::TERRACE_WRONG_TYPE,
                ErrorKind::Busy => Status::TERRACE_BUSY,
                ErrorKind::Cancelled => Status::TERRACE_CANCELLED,
            },
            Failure::Null(_) | Failure::Invalid(_) => Status::TERRACE_INVALID,
            Failure::Closed(_) => Status::TERRACE_CLOSED,
            Failure::Panic(_) => Status::TERRACE_INTERNAL,
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Engine(error) => error.to_string(),
            Failure::Null(name) => format!("{name} is NULL"),
            Failure::Invalid(message) | Failure::Closed(message) => message.clone(),
            Failure::Panic(words) => {
                format!("the library has a bug: {words}; close the database, and report this")
            }
        }
    }
}

/// Why a call failed: a status, a message, and perhaps a damaged place.
///
/// Thread safety: it never changes, and any thread may read it.
#[derive(Debug)]
pub struct Error {
    status: Status,
    message: CString,
    damage: Option<DamageText>,
}

impl Error {
    pub(crate) fn new(failure: Failure) -> Error {
        let (status, message) = (failure.status(), c_text(failure.message()));
        let damage = match failure {
            Failure::Engine(error) => error.damage().map(DamageText::new),
            _ => None,
        };
        Error { status, message, damage }
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> &CStr {
        &self.message
    }
}

/// Where stored bytes turned out wrong, and how. The text belongs to what the damage came from, an
/// error or a report, and lives as long.
#[derive(Debug)]
#[repr(C)]
pub struct Damage {
    /// The tier that holds the bytes: "pm", "journal", "ssd" or "backup".
    pub tier: *const c_char,
    /// The file.
    pub file: *const c_char,
    /// The structure, in the words of docs/format.md.
    pub what: *const c_char,
    /// What a sound structure would hold.
    pub expected: *const c_char,
    /// What was found.
    pub got: *const c_char,
    /// Where the structure begins in the file, in bytes.
    pub offset: u64,
}

/// The text that a [`Damage`] points to.
#[derive(Debug)]
pub(crate) struct DamageText {
    tier: CString,
    file: CString,
    what: CString,
    expected: CString,
    got: CString,
    offset: u64,
}

impl DamageText {
    pub(crate) fn new(damage: &terrace::Damage) -> DamageText {
        DamageText {
            tier: c_text(damage.tier),
            file: c_text(damage.file.as_os_str().as_bytes()),
            what: c_text(damage.what.as_str()),
            expected: c_text(damage.expected.as_str()),
            got: c_text(damage.got.as_str()),
            offset: damage.offset,
        }
    }

    /// The place of what could not be read, and the error.
    pub(crate) fn of_unreadable(place: &terrace::Unreadable) -> DamageText {
        DamageText {
            tier: c_text(place.tier),
            file: c_text(place.file.as_os_str().as_bytes()),
            what: c_text(place.what.as_str()),
            expected: c_text("readable bytes"),
            got: c_text(place.error.as_str()),
            offset: place.offset,
        }
    }

    pub(crate) fn damage(&self) -> Damage {
        Damage {
            tier: self.tier.as_ptr(),
            file: self.file.as_ptr(),
            what: self.what.as_ptr(),
            expected: self.expected.as_ptr(),
            got: self.got.as_ptr(),
            offset: self.offset,
        }
    }
}

/// Text for C. It ends at a zero byte, so it is cut at the first one in it.
pub(crate) fn c_text(text: impl Into<Vec<u8>>) -> CString {
    let mut text = text.into();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    CString::new(text).unwrap_or_default()
}

/// The status of an error, from TERRACE_INVALID on. TERRACE_OK for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_status(error: Option<&Error>) -> Status {
    error.map_or(Status::TERRACE_OK, |error| error.status)
}

/// What happened and what to do about it, with names and numbers: UTF-8 that ends with a zero byte.
/// It belongs to the error. Empty text for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_message(error: Option<&Error>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Whether the transaction that failed was rolled back and is best run again: a conflict or a
/// deadlock.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_is_retryable(error: Option<&Error>) -> bool {
    let status = error.map(|error| error.status);
    matches!(status, Some(Status::TERRACE_CONFLICT | Status::TERRACE_DEADLOCK))
}

/// The damaged place of an error with TERRACE_CORRUPT; whether it has one. The text belongs to the
/// error. Nothing is written to *damage without a place.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_damage(
    error: Option<&Error>,
    damage: Option<&mut std::mem::MaybeUninit<Damage>>,
) -> bool {
    let (Some(found), Some(out)) = (error.and_then(|e| e.damage.as_ref()), damage) else {
        return false;
    };
    out.write(found.damage());
    true
}

/// Frees an error. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_error_free(error: Option<Box<Error>>) {
    guard::free(error);
}

/// Frees text that a function has given away. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_string_free(string: Option<Box<OwnedText>>) {
    guard::free(string);
}

/// Text that C owns.
#[derive(Debug)]
pub struct OwnedText(CString);

impl OwnedText {
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> OwnedText {
        OwnedText(c_text(text))
    }
}

/// The bytes of an owned text, which ends with a zero byte. It belongs to the object. Empty text
/// for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_string_text(string: Option<&OwnedText>) -> *const c_char {
    string.map_or(c"".as_ptr(), |string| string.0.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_where_c_would_end_it() {
        assert_eq!(c_text("a\0b").as_c_str(), c"a");
        assert_eq!(c_text("").as_c_str(), c"");
    }

    #[test]
    fn each_status_has_its_name() {
        let header = include_str!("../include/terrace.h");
        let lines = header.lines().filter_map(|line| line.trim().split_once(" = "));
        let statuses = lines
            .filter_map(|(name, rest)| Some((name, rest.strip_suffix(',')?.parse::<i32>().ok()?)));
        for (name, status) in statuses.clone() {
            let found = NAMES.iter().find(|(known, _)| *known as i32 == status);
            assert_eq!(found.map(|(_, found)| found.to_str()), Some(Ok(name)), "{status}");
        }
        assert_eq!(statuses.count(), NAMES.len());
    }

    #[test]
    fn an_error_has_a_status_and_a_message() {
        let error = Error::new(Failure::Null("key"));
        assert_eq!(terrace_error_status(Some(&error)), Status::TERRACE_INVALID);
        assert_eq!(error.message(), c"key is NULL");
        assert!(!terrace_error_is_retryable(Some(&error)));
        assert!(!terrace_error_damage(Some(&error), None));
        assert_eq!(terrace_error_status(None), Status::TERRACE_OK);
    }
}
