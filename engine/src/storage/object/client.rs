//! Requests with retries, deadlines and second requests, all counted.
//!
//! A request that fails for a passing cause is made again after a pause that doubles. When its
//! deadline has passed, the caller has the last failure. Attempts and deadlines are longer for
//! more bytes, so that a slow connection is no failure (`patience.rs`). A read of which the answer
//! takes longer than 99 of 100 reads before is asked for a second time, and the first answer
//! counts.
//!
//! Every put has a condition, so making it again is safe. Of a new object the retry may find what
//! the first attempt wrote: then the bytes are compared.
//!
//! Thread safety: every method may be called from any thread.

mod counts;
mod patience;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::clock::Timer;
use super::store::{
    Answered, Failure, FailureKind, Got, ObjectInfo, ObjectStore, PutWhen, Span, Tag, Waiting, late,
};
use crate::base::error::{Error, Result};
use crate::base::events::{Events, StoreRetryInfo};
use crate::base::operations::Histogram;
use crate::base::record::Sealable;
use crate::os::sync::atomic::{AtomicBool, Ordering};

use counts::Counts;

pub(crate) use counts::RequestCounts;
pub(crate) use patience::Patience;
use patience::{Latency, Limits};

/// A deletion has the time of so many bytes for each name: 30 ms at the least speed.
const NAME_BYTES: u64 = 2 << 10;

/// How often a wait looks whether the client was stopped.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// A call makes no attempt again after so long while a database closes.
const HURRIED: Duration = Duration::from_secs(5);

/// The way to an object store.
#[derive(Debug)]
pub(crate) struct Client {
    store: Arc<dyn ObjectStore>,
    timer: Arc<dyn Timer>,
    patience: Patience,
    is_hurried: AtomicBool,
    reads: Latency,
    counts: Counts,
    events: Events,
}

/// A read that was begun.
#[derive(Debug)]
pub(crate) struct ObjectRead {
    name: String,
    span: Span,
    waiting: Waiting<Got>,
}

/// A new object that is being written.
#[derive(Debug)]
pub(crate) struct ObjectWrite {
    name: String,
    bytes: Bytes,
    waiting: Waiting<Tag>,
}

impl Client {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        timer: Arc<dyn Timer>,
        patience: Patience,
    ) -> Client {
        let (reads, counts, events) = <_>::default();
        Client { store, timer, patience, is_hurried: AtomicBool::new(false), reads, counts, events }
    }

    /// The same, which tells of requests that are made again.
    pub(crate) fn telling(self, events: &Events) -> Client {
        Client { events: events.clone(), ..self }
    }

    /// Where the store is, for messages.
    pub(crate) fn address(&self) -> String {
        self.store.address()
    }

    /// What was asked for so far.
    pub(crate) fn counts(&self) -> RequestCounts {
        self.counts.take()
    }

    /// From now on a call makes no attempt again after five seconds. One that is under way may end.
    pub(crate) fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    /// Ends pauses, and makes no attempt again: the database is closing.
    pub(crate) fn stop(&self) {
        self.timer.stop();
    }

    /// Whether it was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.timer.is_stopped()
    }

    /// Begins to read an object.
    pub(crate) fn begin_get(&self, name: &str, span: Span) -> ObjectRead {
        let waiting = Waiting::default();
        self.counts.gets.add(1);
        self.store.begin_get(name, span, self.patience.of(span).attempt, waiting.answer());
        ObjectRead { name: name.to_string(), span, waiting }
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// As [`ObjectRead::finish`].
    pub(crate) fn get(&self, name: &str, span: Span) -> Answered<Got> {
        self.begin_get(name, span).finish(self)
    }

    /// Begins to write an object of a name that has none.
    pub(crate) fn begin_put(&self, name: &str, bytes: Bytes) -> ObjectWrite {
        let waiting = Waiting::default();
        self.send_put(name, &bytes, &waiting);
        ObjectWrite { name: name.to_string(), bytes, waiting }
    }

    fn send_put(&self, name: &str, bytes: &Bytes, waiting: &Waiting<Tag>) {
        self.counts.puts.add(1);
        self.counts.sent_bytes.add(bytes.len() as u64);
        let within = self.patience.with(bytes.len() as u64).attempt;
        self.store.begin_put(name, bytes, &PutWhen::Absent, within, waiting.answer());
    }

    /// Writes an object under a condition. `Changed` after an attempt of which nothing is known may
    /// be this call's own doing: the caller looks.
    ///
    /// # Errors
    ///
    /// `Changed`; or no attempt succeeded before the deadline.
    pub(crate) fn put(&self, name: &str, bytes: &Bytes, when: &PutWhen) -> Answered<Tag> {
        self.attempts(("put", name), self.patience.with(bytes.len() as u64), |within| {
            self.counts.puts.add(1);
            self.counts.sent_bytes.add(bytes.len() as u64);
            self.requests().time(|| self.store.put(name, bytes, when, within))
        })
    }

    /// Times of attempts. One that was begun earlier takes as long as its answer, and no more: its
    /// caller had other work.
    fn requests(&self) -> &Histogram {
        &self.events.times().requests
    }

    /// Looks at an object.
    ///
    /// # Errors
    ///
    /// `Missing`; or no attempt succeeded before the deadline.
    pub(crate) fn head(&self, name: &str) -> Answered<ObjectInfo> {
        self.attempts(("head", name), self.patience.with(0), |within| {
            self.counts.heads.add(1);
            self.requests().time(|| self.store.head(name, within))
        })
    }

    /// Deletes objects, as many in one request as the store takes.
    ///
    /// # Errors
    ///
    /// No attempt succeeded before the deadline. Some of the objects may be gone.
    pub(crate) fn delete(&self, names: &[String]) -> Answered<()> {
        let first = names.first().map_or("", String::as_str);
        // Some stores delete one after another.
        self.attempts(
            ("delete", first),
            self.patience.with(names.len() as u64 * NAME_BYTES),
            |within| {
                self.counts.deletes.add(1);
                self.requests().time(|| self.store.delete(names, within))
            },
        )
    }

    /// Objects of a prefix, by name, after one. A store that does not go on behind that has no
    /// more: the marker of a folder has the folder's name.
    ///
    /// # Errors
    ///
    /// No attempt succeeded before the deadline.
    pub(crate) fn list(&self, prefix: &str, after: &str) -> Answered<Vec<ObjectInfo>> {
        let page = self.attempts(("list", prefix), self.patience.with(0), |within| {
            self.counts.lists.add(1);
            self.requests().time(|| self.store.list(prefix, after, within))
        })?;
        let goes_on = page.last().is_some_and(|last| last.name.as_str() > after);
        Ok(if goes_on { page } else { Vec::new() })
    }

    /// Makes attempts until one succeeds, one fails for good, or the deadline has passed.
    fn attempts<T>(
        &self,
        (request, object): (&'static str, &str),
        limits: Limits,
        mut ask: impl FnMut(Duration) -> Answered<T>,
    ) -> Answered<T> {
        // A request that was begun earlier has as long from the wait on: its caller had other work.
        let (mut pause, began) = (self.patience.first_pause, self.timer.now());
        let deadline = began + limits.deadline;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let failure = match ask(limits.attempt) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let hurried = self.is_hurried.load(Ordering::Relaxed).then_some(began + HURRIED);
            let deadline = hurried.map_or(deadline, |hurried| deadline.min(hurried));
            let tell = |failure: &Failure, pause: Duration| {
                self.events.send(|| StoreRetryInfo {
                    request,
                    object: object.to_string(),
                    attempt,
                    status: failure.kind.as_str(),
                    cause: failure.cause.clone(),
                    pause_ms: pause.as_secs_f64() * 1e3,
                    ..StoreRetryInfo::default()
                });
            };
            pause = self.prepare_retry((deadline, pause), failure, tell)?;
        }
    }

    /// Waits before the next attempt, and says how long the pause after it is; the failure if there
    /// is none.
    fn prepare_retry(
        &self,
        (deadline, pause): (Duration, Duration),
        failure: Failure,
        tell: impl FnOnce(&Failure, Duration),
    ) -> Answered<Duration> {
        self.counts.failed(failure.kind);
        if !failure.kind.is_passing() || self.timer.now() + pause > deadline {
            return Err(failure);
        }
        let spread = self.spread(pause);
        tell(&failure, spread);
        if !self.timer.pause(spread) {
            return Err(failure);
        }
        self.counts.retries.add(1);
        Ok((pause * 2).min(self.patience.longest_pause))
    }

    /// Waits for half to all of `pause`, by what `caller` is called, before what others overtook is
    /// tried again; not any more once it is stopped.
    pub(crate) fn pause(&self, pause: Duration, caller: &str) -> bool {
        let drawn = caller.bytes().fold(0x9E37_79B9_7F4A_7C15_u64, |drawn, byte| {
            (drawn ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        self.timer.pause(pause / 2 + pause * u32::from((drawn >> 56) as u8) / 512)
    }

    /// A pause of half to all of `pause`, so that callers that failed together do not come again
    /// together.
    fn spread(&self, pause: Duration) -> Duration {
        let drawn = self.counts.retries.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        pause / 2 + pause * u32::from(drawn as u8) / 512
    }
}

impl ObjectRead {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// `Missing`, `Refused`; or no attempt succeeded before the deadline.
    pub(crate) fn finish(self, client: &Client) -> Answered<Got> {
        let ObjectRead { name, span, waiting } = self;
        let mut first = Some(waiting);
        client.attempts(("get", &name), client.patience.of(span), |within| {
            let waiting = first.take().unwrap_or_else(|| {
                let waiting = Waiting::default();
                client.counts.gets.add(1);
                client.store.begin_get(&name, span, within, waiting.answer());
                waiting
            });
            let answer = client.first_answer(&name, span, within, &waiting);
            client.requests().add(waiting.took());
            let got = answer?;
            client.reads.took(waiting.took());
            client.counts.received_bytes.add(got.bytes.len() as u64);
            has_all(&got, span)?;
            Ok(got)
        })
    }
}

impl Client {
    /// The next answer, if one comes in time. Once the client is stopped, that is the time of an
    /// attempt without bytes.
    fn next<T>(&self, waiting: &Waiting<T>, within: Duration) -> Option<Answered<T>> {
        let answer = waiting.next(Duration::ZERO);
        if answer.is_some() {
            return answer;
        }
        self.store.awaited();
        let mut left = within;
        loop {
            let now = left.min(LOOK_AROUND);
            let answer = waiting.next(now);
            left -= now;
            if answer.is_some() || left.is_zero() {
                return answer;
            }
            if self.timer.is_stopped() {
                left = left.min(self.patience.attempt);
            }
        }
    }

    /// The answer of a read, or of a second one if that is sooner.
    fn first_answer(
        &self,
        name: &str,
        span: Span,
        within: Duration,
        waiting: &Waiting<Got>,
    ) -> Answered<Got> {
        let usual = self.reads.slow(self.counts.gets.get(), self.counts.hedges.get());
        let mut answer = self.next(waiting, usual.unwrap_or(within).min(within));
        if answer.is_none() && usual.is_some() {
            self.counts.hedges.add(1);
            self.counts.gets.add(1);
            self.store.begin_get(name, span, within, waiting.answer());
            answer = self.next(waiting, within);
            // A failure of one of them is no answer while the other one may succeed.
            if matches!(answer, Some(Err(_))) {
                answer = self.next(waiting, within).or(answer);
            }
        }
        answer.unwrap_or_else(|| Err(late(within)))
    }
}

/// Whether a read has as many bytes as were asked for, whatever the store says.
fn has_all(got: &Got, span: Span) -> Answered<()> {
    match span {
        Span::Bytes { len, .. } if got.bytes.len() as u64 != len => {
            let cause = format!("{} bytes instead of {len}", got.bytes.len());
            Err(Failure::new(FailureKind::Short, cause))
        }
        _ => Ok(()),
    }
}

impl ObjectWrite {
    /// The bytes of the object.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Waits until the store has the object.
    ///
    /// # Errors
    ///
    /// No attempt succeeded before the deadline: the object may be there, or may come. `Changed`
    /// says that the name has other bytes.
    pub(crate) fn finish(self, client: &Client) -> Answered<()> {
        let ObjectWrite { name, bytes, waiting } = self;
        let mut first = Some(waiting);
        client.attempts(("put", &name), client.patience.with(bytes.len() as u64), |within| {
            let waiting = first.take().unwrap_or_else(|| {
                let waiting = Waiting::default();
                client.send_put(&name, &bytes, &waiting);
                waiting
            });
            let answer = client.next(&waiting, within).unwrap_or_else(|| Err(late(within)));
            client.requests().add(waiting.took());
            match answer {
                Err(failure) if failure.kind == FailureKind::Changed => {
                    client.is_there(&name, &bytes, within)
                }
                answer => answer.map(drop),
            }
        })
    }
}

impl Client {
    /// Whether an object has these bytes: an earlier attempt wrote them.
    fn is_there(&self, name: &str, bytes: &[u8], within: Duration) -> Answered<()> {
        self.counts.gets.add(1);
        let found = self.store.get(name, Span::Whole, within).map_err(|failure| {
            // Two attempts met in the store, and neither is there yet.
            let is_missing = failure.kind == FailureKind::Missing;
            if is_missing { Failure { kind: FailureKind::Away, ..failure } } else { failure }
        })?;
        if found.bytes == bytes {
            return Ok(());
        }
        let cause = format!("the name has {} other bytes", found.bytes.len());
        Err(Failure::new(FailureKind::Changed, cause))
    }

    /// The engine's error for a request that failed.
    pub(crate) fn error(&self, doing: &str, name: &str, failure: Failure) -> Error {
        failure.into_error(doing, name, &self.store.address())
    }

    /// The engine's result of a request.
    pub(crate) fn told<T>(&self, doing: &str, name: &str, answer: Answered<T>) -> Result<T> {
        answer.map_err(|failure| self.error(doing, name, failure))
    }
}

// Registers: small objects that say one thing, and that are replaced by compare-and-swap. A list of
// objects may be old; a read of one object is never old. So what all have to agree on is in one.

/// What a register says, with the tag of that writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaggedValue<T> {
    pub(crate) value: T,
    pub(crate) tag: Tag,
}

impl Client {
    /// What the register `name` says; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is of another format; `Corrupt`; `Unavailable` if the store does not
    /// answer.
    pub(crate) fn read_register<T: Sealable>(&self, name: &str) -> Result<Option<TaggedValue<T>>> {
        let got = match self.get(name, Span::Whole) {
            Err(failure) if failure.kind == FailureKind::Missing => return Ok(None),
            got => self.told(&format!("read the {} in", T::WHAT), name, got)?,
        };
        match T::decode(&got.bytes) {
            Ok(value) => Ok(Some(TaggedValue { value, tag: got.tag })),
            Err(refused) => Err(refused
                .error(T::WHAT, "object", format!("{}/{name}", self.address()))
                .of_store()),
        }
    }

    /// Puts a register over the one that was found with a tag, or where there was none: its tag;
    /// `None` if it has changed since. An attempt of this call may have done that, of which the
    /// answer was lost.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store does not answer: it may have been done.
    pub(crate) fn replace_register<T: Sealable>(
        &self,
        name: &str,
        to: &T,
        before: Option<Tag>,
    ) -> Result<Option<Tag>> {
        let when = before.map_or(PutWhen::Absent, PutWhen::Tagged);
        match self.put(name, &to.encode().into(), &when) {
            Ok(tag) => Ok(Some(tag)),
            Err(failure) if failure.kind == FailureKind::Changed => Ok(None),
            Err(failure) => Err(self.error(&format!("write the {} in", T::WHAT), name, failure)),
        }
    }
}

#[cfg(test)]
mod tests;
