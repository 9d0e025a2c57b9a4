//! Errors: a kind that says what to do, and a message with names and numbers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::os::{LockError, NotOpen};

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller can do about an [`Error`].
///
/// The list is closed on purpose: a program decides on the kind, a person reads the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ErrorKind {
    /// The request can never succeed as it stands, and no kind below says why (an option out of
    /// bounds, keys that do not ascend, a write to a database that is open read-only). Change the
    /// request.
    Invalid,
    /// There is no database in the directory. Name another directory, or create a database there.
    MissingDatabase,
    /// There is no table of that name, or the table of the handle was dropped. Open the table by a
    /// name that is there, or create it.
    MissingTable,
    /// What the call was to make is there already: a database, a table, a file, a key of a bulk
    /// load, a prepared transaction. Take the one that is there, or another name.
    Exists,
    /// A key, a value, a name, a batch or a transaction is over its limit. The message has the
    /// limit and what was asked. Split it, or raise the limit where there is an option.
    TooLarge,
    /// A typed table was opened with other types than it was written with. Open it with its own.
    WrongType,
    /// Another process has the database or its region open, or another caller changes the backup
    /// set. The message names the holder where it is known. Close it there, or try later.
    Busy,
    /// Another transaction changed what this one read or wrote. Run it again.
    Conflict,
    /// Two transactions waited for each other and this one was chosen to stop. Run it again.
    Deadlock,
    /// A deadline passed. Try later or wait longer.
    Timeout,
    /// Space ran out (disk, persistent memory or memory). Free some; reads go on meanwhile, and so
    /// do deletes, `truncate_table` and `drop_table`.
    Full,
    /// Something outside failed (an I/O error, for example), or the database was poisoned by an
    /// earlier failure. Mend the cause, then open again.
    Unavailable,
    /// A commit was under way when something failed. The message says which of two cases it is. The
    /// device failed and the database stopped: the commit may or may not be there after the next
    /// opening; open again and look. Or a commit with `Durability::Remote` is durable on this
    /// machine, and the shared store has not acknowledged it: it is here, and the database goes on.
    UnknownOutcome,
    /// Stored bytes are not what was written. See [`Error::damage`] for the place.
    Corrupt,
    /// Another opening has the object store, or took it over. This one cannot write: close it. The
    /// message names the other one.
    Fenced,
    /// The database, or the object that the handle stood for, was closed.
    Closed,
    /// The function of [`Options::on_progress`](crate::Options::on_progress) ended the call, which
    /// says what is left of it. Call again for all of it.
    Cancelled,
}

impl ErrorKind {
    /// The kind in lower-case words, as the command line and metrics print it.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::MissingDatabase => "missing database",
            ErrorKind::MissingTable => "missing table",
            ErrorKind::Exists => "exists",
            ErrorKind::TooLarge => "too large",
            ErrorKind::WrongType => "wrong type",
            ErrorKind::Busy => "busy",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Full => "full",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::UnknownOutcome => "unknown outcome",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Closed => "closed",
            ErrorKind::Cancelled => "cancelled",
        }
    }

    /// Whether the request itself is at fault, and fails again until it is changed: `Invalid`,
    /// `MissingDatabase`, `MissingTable`, `Exists`, `TooLarge` or `WrongType`. Nothing was done.
    pub fn is_refusal(self) -> bool {
        use ErrorKind::{Exists, Invalid, MissingDatabase, MissingTable, TooLarge, WrongType};
        matches!(self, Invalid | MissingDatabase | MissingTable | Exists | TooLarge | WrongType)
    }
}

/// Where stored bytes turned out wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Damage {
    /// The step of the terrace that holds the bytes: `pm`, `journal`, `ssd` or `object`; or
    /// `backup`.
    pub tier: &'static str,
    /// The file; of an object, the store's URL and the object's name.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub file: PathBuf,
    /// Offset of the damaged structure from the start of the file, in bytes.
    pub offset: u64,
    /// The structure, in the words of `docs/format.md`.
    pub what: String,
    /// What a sound structure would hold.
    pub expected: String,
    /// What was found.
    pub got: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {} ({} tier) at byte {}: expected {}, got {}",
            self.what,
            self.file.display(),
            self.tier,
            self.offset,
            self.expected,
            self.got
        )
    }
}

/// What a sound structure would hold, and what was found in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Mismatch {
    pub(crate) fn new(expected: impl Into<String>, got: impl Into<String>) -> Mismatch {
        Mismatch { expected: expected.into(), got: got.into() }
    }

    /// Another checksum than the one that is stored.
    pub(crate) fn checksum(stored: u32, computed: u32) -> Mismatch {
        let expected = format!("checksum {stored:#010x}");
        Mismatch::new(expected, format!("{computed:#010x}, computed from the bytes"))
    }

    /// The damage, once it is known what it is of and where that lies.
    pub(crate) fn at(
        self,
        what: impl Into<String>,
        tier: &'static str,
        file: impl Into<PathBuf>,
        offset: u64,
    ) -> Damage {
        let Mismatch { expected, got } = self;
        Damage { tier, file: file.into(), offset, what: what.into(), expected, got }
    }
}

/// A structure that could not be read: nothing is known of what is stored there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Unreadable {
    /// As [`Damage::tier`].
    pub tier: &'static str,
    /// As [`Damage::file`].
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub file: PathBuf,
    /// As [`Damage::offset`].
    pub offset: u64,
    /// As [`Damage::what`].
    pub what: String,
    /// Why the read failed.
    pub error: String,
}

/// A path where only text can be: bytes of it that are no text are replaced.
#[cfg(feature = "serde")]
pub(crate) fn path_as_text<S: serde::Serializer>(
    path: &Path,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// What verification found. [`Database::verify`](crate::Database::verify) compares a persistent
/// index ([`Index::Persistent`](crate::Index::Persistent)) with the records.
/// [`Options::verify`](crate::Options::verify) checks its checksums. A damaged index loses nothing:
/// the next opening rebuilds it from the records.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VerifyReport {
    /// Structures that were checked.
    pub checked: u64,
    /// Every damage found: what was read, and is wrong. Damage can hide more behind it: what cannot
    /// be reached is not checked.
    pub damages: Vec<Damage>,
    /// What could not be read: an I/O error, or an object of a store that does not answer. Nothing
    /// is known of it, so mend the cause and verify again.
    pub unreadable: Vec<Unreadable>,
    /// The commit as of which it was verified, where another process may write meanwhile.
    pub commit: Option<u64>,
    /// The parts that were not looked at, or not to their end, of a verification that was cancelled
    /// ([`Error::report`]).
    pub not_checked: Vec<String>,
}

/// What a check has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Read, and wrong.
    pub(crate) damages: Vec<Damage>,
    /// Not read.
    pub(crate) unreadable: Vec<Unreadable>,
}

impl Findings {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.damages.len() + self.unreadable.len()
    }

    /// Adds those of another.
    pub(crate) fn append(&mut self, mut other: Findings) {
        self.damages.append(&mut other.damages);
        self.unreadable.append(&mut other.unreadable);
    }

    /// Adds what an error says: damage, or that nothing is known of the structure at `place`.
    pub(crate) fn add(&mut self, error: &Error, place: impl FnOnce() -> Damage) {
        if let Some(damage) = error.damage() {
            self.damages.push(damage.clone());
            return;
        }
        let Damage { tier, file, offset, what, .. } = place();
        let error = error.to_string();
        self.unreadable.push(Unreadable { tier, file, offset, what, error });
    }

    /// The first of them as an error.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the first damage; `Unavailable` if there is none, and something could not be
    /// read.
    pub(crate) fn check(self) -> Result<()> {
        if let Some(damage) = self.damages.into_iter().next() {
            return Err(Error::corrupt(damage));
        }
        match self.unreadable.into_iter().next() {
            Some(unreadable) => Err(Error::new(ErrorKind::Unavailable, unreadable.error)),
            None => Ok(()),
        }
    }
}

/// What a part of the engine tells another with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    None,
    /// The table that a handle stood for is gone.
    TableGone,
    /// The table was truncated after the snapshot.
    Truncated,
    /// A merge operator fails or is missing; the message does not name the table yet.
    Merge,
    /// The object store failed. Nothing that is durable on this machine is in doubt.
    Store,
    /// It did, and does so until the database is opened again.
    StoreForGood,
    /// The system had no descriptor, memory or thread left. Nothing was done.
    Shortage,
    /// An extent of this machine could not be read. Nothing was done.
    Unread,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    damage: Option<Damage>,
    report: Option<VerifyReport>,
    source: Option<io::Error>,
    /// What the engine itself does about it.
    signal: Signal,
}

/// Why a call failed.
///
/// # Examples
///
/// ```
/// use terrace::{Database, ErrorKind};
///
/// let error = terrace::Options::new().open_read_only("/nowhere/at/all").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::MissingDatabase);
/// assert!(error.to_string().contains("/nowhere/at/all"));
/// ```
pub struct Error(Box<Inner>);

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            damage: None,
            report: None,
            source: None,
            signal: Signal::None,
        }))
    }

    /// The error of every call on a database that was closed.
    pub(crate) fn closed() -> Error {
        Error::not_open(NotOpen::Closed)
    }

    // No `From`: with one beside the reflexive one, `?` would not settle the error of a closure
    // that `Database::run` runs.
    pub(crate) fn not_open(why: NotOpen) -> Error {
        let kind = match why {
            NotOpen::Closed => ErrorKind::Closed,
            NotOpen::Forked => ErrorKind::Unavailable,
        };
        Error::new(kind, why.to_string())
    }

    pub(crate) fn lock(error: LockError) -> Error {
        match error {
            LockError::InUse(message) => Error::new(ErrorKind::Busy, message),
            LockError::Io(doing, path, error) => Error::io(doing, &path, error),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// The error of every call on a table that was dropped.
    pub(crate) fn table_gone(name: &str) -> Error {
        let message = format!("table {name:?} was dropped; take a handle of one that is there");
        let mut error = Error::new(ErrorKind::MissingTable, message);
        error.0.signal = Signal::TableGone;
        error
    }

    /// The error of a snapshot, or of what reads one, on a table that was truncated after it.
    pub(crate) fn truncated(name: &str) -> Error {
        let mut error = Error::invalid(format!("table {name:?} was truncated since the snapshot"));
        error.0.signal = Signal::Truncated;
        error
    }

    /// The error of a merge operator that fails or is missing.
    pub(crate) fn merge(message: impl Into<String>) -> Error {
        let mut error = Error::invalid(message);
        error.0.signal = Signal::Merge;
        error
    }

    /// Names the table in the error of a merge operator.
    pub(crate) fn in_table(mut self, name: impl FnOnce() -> String) -> Error {
        if self.0.signal == Signal::Merge {
            self.0.message = format!("table {:?}: {}", name(), self.0.message);
            self.0.signal = Signal::None;
        }
        self
    }

    /// The same as an error of the object store: a job that meets it is made again later.
    pub(crate) fn of_store(mut self) -> Error {
        self.0.signal = Signal::Store;
        self
    }

    /// Whether the object store failed.
    pub(crate) fn is_of_store(&self) -> bool {
        matches!(self.0.signal, Signal::Store | Signal::StoreForGood)
    }

    /// The same as an error of the object store that lasts until the database is opened again.
    pub(crate) fn of_store_for_good(mut self) -> Error {
        self.0.signal = Signal::StoreForGood;
        self
    }

    /// Whether the object store failed, and may answer later.
    pub(crate) fn is_of_store_for_now(&self) -> bool {
        self.0.signal == Signal::Store
    }

    /// Whether the cause may pass by itself and nothing was done: the disk is full, the system had
    /// no descriptor, memory or thread left, or an extent could not be read. A job that meets it is
    /// made again later.
    pub(crate) fn may_pass(&self) -> bool {
        self.0.kind == ErrorKind::Full || matches!(self.0.signal, Signal::Shortage | Signal::Unread)
    }

    /// The same, whose cause may pass: what is due waits for no more than another look.
    pub(crate) fn into_passing(mut self) -> Error {
        self.0.signal = Signal::Shortage;
        self
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.0.signal == Signal::Truncated
    }

    pub(crate) fn is_table_gone(&self) -> bool {
        self.0.signal == Signal::TableGone
    }

    pub(crate) fn corrupt(damage: Damage) -> Error {
        let advice = "run `terrace verify` for the whole extent of it";
        let message = format!("damaged {damage}; {advice}");
        Error::missing(damage, message)
    }

    /// The error for a database that lacks a part, which `damage` names. The message says what to
    /// do.
    pub(crate) fn missing(damage: Damage, message: String) -> Error {
        Error(Box::new(Inner {
            kind: ErrorKind::Corrupt,
            message,
            damage: Some(damage),
            report: None,
            source: None,
            signal: Signal::None,
        }))
    }

    /// The same with another kind, for a caller that knows what became of it.
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Error {
        (self.0.kind, self.0.signal) = (kind, Signal::None);
        self
    }

    /// Wraps an I/O error with what was being done to which file. A full disk becomes
    /// [`ErrorKind::Full`], everything else [`ErrorKind::Unavailable`].
    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
            _ => ErrorKind::Unavailable,
        };
        let mut message = format!("cannot {doing} {}: {source}", path.display());
        let is_shortage = is_shortage(&source);
        if is_shortage {
            message.push_str(
                "; this process or machine has none left for a moment, so try again, and raise \
                 the limit (ulimit -n for descriptors) if it lasts",
            );
        }
        Error(Box::new(Inner {
            kind,
            message,
            damage: None,
            report: None,
            source: Some(source),
            signal: if is_shortage { Signal::Shortage } else { Signal::None },
        }))
    }

    /// The same as an error of a read in an extent, which loses nothing.
    pub(crate) fn into_unread(mut self) -> Error {
        if self.0.signal == Signal::None {
            self.0.signal = Signal::Unread;
        }
        self
    }

    /// Whether a call of the system failed for good: what it was to read is not known.
    pub(crate) fn is_unread(&self) -> bool {
        self.0.signal == Signal::Unread || self.0.source.is_some() && self.0.signal == Signal::None
    }

    /// What a salvage says of it: damage, or a place that cannot be read.
    pub(crate) fn loss(&self, place: impl FnOnce() -> Damage) -> Damage {
        self.damage().cloned().unwrap_or_else(|| {
            let got = self.to_string();
            Damage { expected: "readable bytes".into(), got, ..place() }
        })
    }

    /// The same for another caller.
    pub(crate) fn again(&self) -> Error {
        let mut error = Error::new(self.kind(), self.to_string());
        error.0.signal = self.0.signal;
        error
    }

    /// The same after another one, which led to it: both messages.
    pub(crate) fn after(self, first: &Error) -> Error {
        let mut error = Error::new(self.kind(), format!("{first}: {self}"));
        error.0.signal = self.0.signal;
        error
    }

    /// Adds to the message what the caller can do about it.
    pub(crate) fn advise(mut self, advice: &str) -> Error {
        self.0.message = format!("{}; {advice}", self.0.message);
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the transaction that failed was rolled back and is best run again: a conflict or a
    /// deadlock.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Conflict | ErrorKind::Deadlock)
    }

    /// The damaged place, when the kind is [`ErrorKind::Corrupt`], or the region in emulated memory
    /// that is gone.
    pub fn damage(&self) -> Option<&Damage> {
        self.0.damage.as_ref()
    }

    /// What a verification had found when it was cancelled, and which parts it had not looked at.
    pub fn report(&self) -> Option<&VerifyReport> {
        self.0.report.as_ref()
    }

    /// The same, of a verification that was cancelled.
    pub(crate) fn with_report(mut self, report: VerifyReport) -> Error {
        let parts = report.not_checked.join(", ");
        if !parts.is_empty() {
            self = self.advise(&format!("not looked at, or not to the end: {parts}"));
        }
        self.0.report = Some(report);
        self
    }
}

/// Whether the system refused a call since it had no descriptor, memory or thread left. Such a
/// call did nothing. What a handle of a file or directory notes as its failure is none: its kind
/// is lost.
fn is_shortage(error: &io::Error) -> bool {
    #[cfg(unix)]
    const CODES: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    // ERROR_TOO_MANY_OPEN_FILES, ERROR_NOT_ENOUGH_MEMORY.
    #[cfg(windows)]
    const CODES: [i32; 2] = [4, 8];
    error.raw_os_error().is_some_and(|code| CODES.contains(&code))
}

/// The kind and the message, as `unwrap` shows them.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}
