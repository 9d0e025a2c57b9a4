//! What the engine needs of an object store, and how its requests fail.
//!
//! An object has a name and bytes. It appears whole or not at all. A **tag** tells one writing of a
//! name from another one; a store compares it when an object is replaced.
//!
//! Reads and writes of whole objects are begun and answered later, so that one thread has many of
//! them under way. An implementation that has no threads answers before the call returns.
//!
//! Thread safety: every method may be called from any thread.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::base::error::{Error, ErrorKind, Mismatch};
use crate::os::sync::channel::{Receiver, Sender, channel};
use crate::os::time;

/// How a request failed: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FailureKind {
    /// No answer: the store cannot be reached, or it failed inside. What was asked for may have
    /// been done, and may still be done later.
    Away,
    /// The answer did not come in time. As for `Away`, nothing is known of what was asked for.
    Late,
    /// The store has too much to do. Nothing was done; ask again after a while.
    Throttled,
    /// The credentials or the configuration do not allow it. Nothing was done.
    Refused,
    /// There is no object of this name.
    Missing,
    /// Fewer bytes came than were asked for.
    Short,
    /// Other bytes came than were sent, or the store received other bytes than were sent to it.
    Wrong,
    /// The condition of a put does not hold: there is an object, or one with another tag.
    Changed,
    /// The store could not make a change durable. It may have been done, and a power cut may take
    /// it back; asking again does not help.
    Unsynced,
}

impl FailureKind {
    /// All kinds, in the order of their definition.
    pub(crate) const ALL: [FailureKind; 9] = [
        FailureKind::Away,
        FailureKind::Late,
        FailureKind::Throttled,
        FailureKind::Refused,
        FailureKind::Missing,
        FailureKind::Short,
        FailureKind::Wrong,
        FailureKind::Changed,
        FailureKind::Unsynced,
    ];

    /// The kind in lower-case words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FailureKind::Away => "away",
            FailureKind::Late => "late",
            FailureKind::Throttled => "throttled",
            FailureKind::Refused => "refused",
            FailureKind::Missing => "missing",
            FailureKind::Short => "short",
            FailureKind::Wrong => "wrong",
            FailureKind::Changed => "changed",
            FailureKind::Unsynced => "unsynced",
        }
    }

    /// Whether the same request may succeed later without anyone's help.
    pub(crate) fn is_passing(self) -> bool {
        use FailureKind::{Away, Late, Short, Throttled, Wrong};
        matches!(self, Away | Late | Throttled | Short | Wrong)
    }
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What kind of failure it is.
    pub(crate) kind: FailureKind,
    /// The cause in the store's words.
    pub(crate) cause: String,
}

impl Failure {
    /// A failure of a kind, with its cause.
    pub(crate) fn new(kind: FailureKind, cause: impl Into<String>) -> Failure {
        Failure { kind, cause: cause.into() }
    }

    /// The engine's error: what was being done with which object, and what to do now.
    pub(crate) fn into_error(self, doing: &str, object: &str, store: &str) -> Error {
        let (kind, advice) = match self.kind {
            FailureKind::Away | FailureKind::Late | FailureKind::Throttled => {
                (ErrorKind::Unavailable, "the call can be made again once the store answers")
            }
            FailureKind::Refused => {
                (ErrorKind::Unavailable, "check the credentials and the permissions of the bucket")
            }
            FailureKind::Changed => (ErrorKind::Unavailable, "another writer has changed it"),
            FailureKind::Unsynced => (
                ErrorKind::Unavailable,
                "check the file system of the store, and open the database again",
            ),
            FailureKind::Missing | FailureKind::Short | FailureKind::Wrong => {
                (ErrorKind::Corrupt, "run `terrace verify` for the whole extent of it")
            }
        };
        let (name, cause) = (self.kind.as_str(), self.cause);
        let message =
            format!("cannot {doing} object {object} of {store}: {name}: {cause}; {advice}");
        if kind != ErrorKind::Corrupt {
            let error = Error::new(kind, message);
            return match self.kind {
                FailureKind::Unsynced => error.of_store_for_good(),
                _ => error.of_store(),
            };
        }
        let found = Mismatch::new("all bytes that were written", format!("{name}: {cause}"));
        let damage = found.at("object", "object", format!("{store}/{object}"), 0);
        Error::missing(damage, message).of_store()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.cause)
    }
}

/// The result of a request.
pub(crate) type Answered<T> = Result<T, Failure>;

/// Tells one writing of an object from another. What it says inside is the store's matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    /// The entity tag, if the store has one.
    pub(crate) entity: Option<String>,
    /// The version, if the store has one.
    pub(crate) version: Option<String>,
}

/// When a put writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PutWhen {
    /// If there is no object of the name.
    Absent,
    /// If the object has this tag.
    Tagged(Tag),
}

/// An object as a list or a look at it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectInfo {
    /// Its name.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) len: u64,
}

/// What a read gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    /// The bytes that were asked for.
    pub(crate) bytes: Vec<u8>,
    /// The object's tag.
    pub(crate) tag: Tag,
}

/// Which bytes a read is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The whole object.
    Whole,
    /// So many bytes from an offset on.
    Bytes {
        /// The first byte.
        offset: u64,
        /// How many, at least one.
        len: u64,
    },
}

/// Where the answer of a request that was begun goes. One that is dropped answers that the store is
/// away.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    to: Option<Sender<(Answered<T>, Instant)>>,
}

impl<T> Answer<T> {
    /// Answers. The caller may have gone; then the answer is lost.
    pub(crate) fn send(mut self, answer: Answered<T>) {
        if let Some(to) = self.to.take() {
            to.send((answer, time::now())).unwrap_or(());
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let failure = Failure::new(FailureKind::Away, "the request was given up");
            to.send((Err(failure), time::now())).unwrap_or(());
        }
    }
}

/// Requests that are under way, of which the first answer counts.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    from: Receiver<(Answered<T>, Instant)>,
    to: Sender<(Answered<T>, Instant)>,
    began: Instant,
    /// When the last answer that was taken came.
    answered_at: Cell<Option<Instant>>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        let (to, from) = channel();
        Waiting { from, to, began: time::now(), answered_at: Cell::default() }
    }
}

impl<T> Waiting<T> {
    /// Where one more request answers.
    pub(crate) fn answer(&self) -> Answer<T> {
        Answer { to: Some(self.to.clone()) }
    }

    /// The next answer, if one comes in time.
    pub(crate) fn next(&self, within: Duration) -> Option<Answered<T>> {
        // Requests that are begun keep the channel open, and so does this: an error is the time.
        let (answer, at) = self.from.recv_timeout(within).ok()?;
        self.answered_at.set(Some(at));
        Some(answer)
    }

    /// How long the last answer that was taken took, however late its caller asked.
    pub(crate) fn took(&self) -> Duration {
        let until = self.answered_at.get().unwrap_or_else(time::now);
        until.saturating_duration_since(self.began)
    }
}

/// An object store.
///
/// A request ends with an answer after `within` at the latest; the failure is `Late` then. A put or
/// a deletion that failed as `Away` or `Late` may have been done, and may still be done later.
pub(crate) trait ObjectStore: fmt::Debug + Send + Sync {
    /// Where it is, for messages: a URL without credentials.
    fn address(&self) -> String;

    /// Begins to write an object: all of `bytes` or nothing. The answer comes after the store has
    /// them durably and has compared their checksum, as far as its protocol has one. A store that
    /// keeps the bytes until then shares them with the caller: an object takes its memory once.
    fn begin_put(
        &self,
        name: &str,
        bytes: &Bytes,
        when: &PutWhen,
        within: Duration,
        answer: Answer<Tag>,
    );

    /// Begins to read an object. An answer that is not a failure has as many bytes as were asked
    /// for.
    fn begin_get(&self, name: &str, span: Span, within: Duration, answer: Answer<Got>);

    /// A caller is about to wait for an answer. Stores of tests answer no sooner.
    fn awaited(&self) {}

    /// Looks at an object.
    ///
    /// # Errors
    ///
    /// `Missing` if there is none; or the request failed.
    fn head(&self, name: &str, within: Duration) -> Answered<ObjectInfo>;

    /// Deletes objects. One that is not there counts as deleted.
    ///
    /// # Errors
    ///
    /// The request failed; some of the objects may be gone.
    fn delete(&self, names: &[String], within: Duration) -> Answered<()>;

    /// Up to 1000 objects of which the name begins with `prefix` and comes after `after`, by name.
    /// Fewer only if there are no more. The prefix ends with a slash or is empty.
    ///
    /// # Errors
    ///
    /// The request failed.
    fn list(&self, prefix: &str, after: &str, within: Duration) -> Answered<Vec<ObjectInfo>>;

    /// Writes an object and waits: see [`begin_put`](ObjectStore::begin_put).
    ///
    /// # Errors
    ///
    /// `Changed` if the condition does not hold; or the request failed.
    fn put(&self, name: &str, bytes: &Bytes, when: &PutWhen, within: Duration) -> Answered<Tag> {
        let waiting = Waiting::default();
        self.begin_put(name, bytes, when, within, waiting.answer());
        self.awaited();
        waiting.next(within).unwrap_or_else(|| Err(late(within)))
    }

    /// Reads an object and waits: see [`begin_get`](ObjectStore::begin_get).
    ///
    /// # Errors
    ///
    /// `Missing` if there is none, `Short` if it ends before the span does; or the request failed.
    fn get(&self, name: &str, span: Span, within: Duration) -> Answered<Got> {
        let waiting = Waiting::default();
        self.begin_get(name, span, within, waiting.answer());
        self.awaited();
        waiting.next(within).unwrap_or_else(|| Err(late(within)))
    }
}

/// As many objects as a list has at most.
pub(crate) const LIST_LEN: usize = 1000;

/// The failure of a request without an answer.
pub(super) fn late(within: Duration) -> Failure {
    Failure::new(FailureKind::Late, format!("no answer within {} ms", within.as_millis()))
}
