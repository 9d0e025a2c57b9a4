//! The registration of a reader at the shared store: the writer keeps what a registered reader
//! lacks or reads.
//!
//! A reader that its user has named is registered for good. Every other one is registered under a
//! name of its own while it starts: until it has come to the end of the log once. A reader that
//! starts tells so again and again, by a number that grows. So the writer keeps for it what it
//! copies and what it is about to apply, however long that takes, and forgets one that died
//! meanwhile.
//!
//! Thread safety: any thread may call any method. `state` is held for a few instructions, and
//! `telling` while one sign or the end is sent, with its requests: they come to the store in their
//! order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{self, FoundCheckpoint};
use super::log::{FollowerPlace, SharedLog};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::sync::channel::{RecvTimeoutError, channel};
use crate::os::sync::locks::Mutex;
use crate::os::time;

/// Before the name of a node that starts, and of a takeover.
pub(super) const STARTING: &str = "starting-";
pub(super) const TAKEOVER: &str = "takeover-";

/// Whether no user has given a name.
pub(super) fn is_own_name(name: &str) -> bool {
    name.starts_with(STARTING) || name.starts_with(TAKEOVER)
}

/// A reader that its user has named says how far it is so often, if it has news.
const NEWS: Duration = Duration::from_secs(10);

/// A reader that starts says that it does so often.
const BEAT: Duration = Duration::from_secs(2);

/// One reader's.
#[derive(Debug)]
pub(super) struct Registration {
    log: Arc<SharedLog>,
    /// The user's, or the first part of its own.
    name: String,
    /// Whether the name is the user's.
    is_named: bool,
    /// Steps come in their turn: time is none of their measures.
    is_stepped: bool,
    state: Mutex<State>,
    telling: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// What the store was told, and when.
    told: Option<(FollowerPlace, Instant)>,
    /// Of a reader that starts; 0 of one that does not.
    beat: u64,
    /// Whether the store may have it.
    is_registered: bool,
    /// How often the reader has started: a part of its own name.
    starts: u64,
    /// Why the last news could not be told.
    untold: Option<String>,
}

impl Registration {
    /// That of a node.
    pub(super) fn of_node(
        log: &Arc<SharedLog>,
        (named, nonce): (Option<&str>, [u8; 16]),
        is_stepped: bool,
    ) -> Result<Registration> {
        if let Some(name) = named.filter(|name| is_own_name(name)) {
            return Err(Error::invalid(format!(
                "a follower cannot be named {name:?}: names that begin with {STARTING:?} or \
                 {TAKEOVER:?} are Terrace's own"
            )));
        }
        let of_process = || format!("{STARTING}{:032x}", u128::from_be_bytes(nonce));
        let name = named.map_or_else(of_process, str::to_string);
        Ok(Registration::new(log, name, (named.is_some(), is_stepped)))
    }

    /// That of a takeover, which starts.
    pub(super) fn of_takeover(
        log: &Arc<SharedLog>,
        nonce: [u8; 16],
        is_stepped: bool,
    ) -> Registration {
        let name = format!("{TAKEOVER}{:032x}", u128::from_be_bytes(nonce));
        let registration = Registration::new(log, name, (false, is_stepped));
        registration.state.lock().beat = 1;
        registration
    }

    fn new(
        log: &Arc<SharedLog>,
        name: String,
        (is_named, is_stepped): (bool, bool),
    ) -> Registration {
        let (log, state, telling) = (Arc::clone(log), Mutex::default(), Mutex::default());
        Registration { log, name, is_named, is_stepped, state, telling }
    }

    /// Registers the reader as one that starts from the newest checkpoint, and finds that; `None`
    /// if the log has none. `place` says how far the reader is if it starts from the checkpoint
    /// of that number, and then goes on with an entry.
    pub(super) fn start(
        &self,
        place: impl Fn(u64, u64) -> FollowerPlace,
    ) -> Result<Option<FoundCheckpoint>> {
        let mut left_behind = 0;
        loop {
            let end = self.log.end()?;
            let number = end.checkpoint;
            if number == 0 {
                return Ok(None);
            }
            if number == left_behind {
                return Err(self.log.damage("shared/log", format!("entry {number}")));
            }
            let Some(found) = checkpoint::read(&self.log, number)? else {
                left_behind = number;
                continue;
            };
            self.begin(place(number, found.from.min(number)))?;
            // A collector that has looked before that has found this checkpoint the newest.
            if self.log.end_behind(end.next - 1)?.checkpoint == number {
                return Ok(Some(found));
            }
        }
    }

    /// The reader starts, and tells so: under a new name, if that is its own. A collector may have
    /// taken the one before for dead, and then deletes what that one tells at any later time.
    pub(super) fn begin(&self, place: FollowerPlace) -> Result<()> {
        let before = {
            let mut state = self.state.lock();
            state.beat = state.beat.max(1);
            let is_renamed = !self.is_named && state.is_registered;
            let before = is_renamed.then(|| self.name(&state));
            if !self.is_named {
                (state.told, state.starts) = (None, state.starts + 1);
            }
            before
        };
        let told = self.tell(place).map(drop);
        before.map_or(Ok(()), |name| self.log.unregister(&name)).unwrap_or(());
        told
    }

    fn name(&self, state: &State) -> String {
        if self.is_named { self.name.clone() } else { format!("{}-{}", self.name, state.starts) }
    }

    /// Tells the store how far the reader is, if that is news that is due. As
    /// [`Registration::tell`].
    pub(super) fn tell_news(&self, place: FollowerPlace) -> Result<u64> {
        let (told, beat, has_failed) = {
            let state = self.state.lock();
            (state.told, state.beat, state.untold.is_some())
        };
        if !self.is_named && beat == 0 {
            // If its end was not heard of, it is told again.
            self.end();
            return Ok(0);
        }
        let is_due = |(known, at): (FollowerPlace, Instant)| {
            let has_waited = self.is_stepped || time::since(at) >= NEWS;
            let is_news = match beat {
                0 => known.entry < place.entry && has_waited,
                _ => !self.is_stepped && time::since(at) >= BEAT,
            };
            let has_come = (known.beat > 0) != (beat > 0) && (has_waited || !has_failed);
            is_news || known.base != place.base || has_come
        };
        if !told.is_none_or(is_due) {
            return Ok(0);
        }
        // A start, and another base, have to be told first.
        let known = told.filter(|(known, _)| beat == 0 && known.base == place.base);
        match (self.tell(place), known) {
            (Err(error), Some((known, _))) if error.is_of_store() => {
                // The writer keeps what the reader had then: it may go on, and tells again later.
                let mut state = self.state.lock();
                state.told = Some((known, time::now()));
                state.untold = Some(error.to_string());
                Ok(0)
            }
            (told, _) => told,
        }
    }

    /// Why the store does not know how far the reader is, if the reader goes on all the same.
    pub(super) fn untold(&self) -> Option<String> {
        self.state.lock().untold.clone()
    }

    /// Gives a sign of life now, and looks from which checkpoint on data is kept. A collector that
    /// takes the reader for dead says what it keeps first, and looks for a sign before it deletes.
    /// So it finds this one, or the answer is above what it deletes.
    pub(super) fn confirm(&self, place: FollowerPlace) -> Result<u64> {
        self.tell(place)
    }

    /// The checkpoint that the reader has told of last.
    pub(super) fn base(&self) -> u64 {
        self.state.lock().told.map_or(0, |(place, _)| place.base)
    }

    /// Whether an error is of data that the writer may have deleted, of checkpoint `base`. Damage
    /// of this machine is not: to start again would hide it.
    pub(super) fn is_deleted(&self, error: &Error, base: u64) -> Result<bool> {
        let is_lost = error.kind() == ErrorKind::Corrupt && error.is_of_store();
        Ok(is_lost && base > 0 && base < self.log.read_register()?.0.kept)
    }

    /// Says again and again that the reader starts, if it does, while it does `work`: however long
    /// a copy, its check, a sync, an opening or a few entries take.
    pub(super) fn beating<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_stepped || self.state.lock().beat == 0 {
            return work();
        }
        let (working, ended) = channel::<()>();
        crate::os::thread::scope(|scope| {
            let beats = move || {
                while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                    // If it fails, the next one comes in time: the writer waits for many.
                    drop(self.tell_again());
                }
            };
            let named = crate::os::thread::Builder::new().name("terrace-beat".into());
            let beats = named.spawn_scoped(scope, beats).map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}"))
            })?;
            let done = work();
            drop(working);
            let panicked =
                |_| Error::new(ErrorKind::Unavailable, "the thread terrace-beat panicked");
            beats.join().map_err(panicked).and(done)
        })
    }

    /// Ends it while `work` is done, or before.
    pub(super) fn ending<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.is_stepped {
            self.end();
            return work();
        }
        crate::os::thread::scope(|scope| {
            let named = crate::os::thread::Builder::new().name("terrace-beat".into());
            if named.spawn_scoped(scope, || self.end()).is_err() {
                self.end();
            }
            work()
        })
    }

    /// Tells the store how far the reader is. Data of earlier checkpoints than the answer may be
    /// deleted. Each sign looks for the name in the register: an earlier sign that failed, or the
    /// end of another node of that name, may have left the registration alone.
    fn tell(&self, place: FollowerPlace) -> Result<u64> {
        let _telling = self.telling.lock();
        self.tell_alone(place)
    }

    /// Gives a sign of life, unless one was given just now, or the registration has ended: then it
    /// stays so.
    fn tell_again(&self) -> Result<u64> {
        let _telling = self.telling.lock();
        let told = self.state.lock().told.filter(|(_, at)| time::since(*at) >= BEAT);
        told.map_or(Ok(0), |(place, _)| self.tell_alone(place))
    }

    /// The caller alone tells something.
    fn tell_alone(&self, place: FollowerPlace) -> Result<u64> {
        let (name, place) = {
            let mut state = self.state.lock();
            if state.beat > 0 {
                state.beat += 1;
            }
            state.is_registered = true;
            let place = FollowerPlace { beat: state.beat, ..place };
            (self.name(&state), place)
        };
        self.log.register(&name, place)?;
        let kept = self.log.enlist(&name)?;
        let mut state = self.state.lock();
        (state.told, state.untold) = (Some((place, time::now())), None);
        Ok(kept)
    }

    /// The reader has come to the end of the log, or its start has failed: it starts no more.
    /// Whether it did. One without a name of its user's is not registered any more.
    pub(super) fn arrived(&self) -> bool {
        let was_starting = std::mem::take(&mut self.state.lock().beat) > 0;
        if was_starting {
            self.give_up();
        }
        was_starting
    }

    /// The reader does not go on for now. One that its user has named stays registered.
    pub(super) fn give_up(&self) {
        if !self.is_named {
            self.end();
        }
    }

    /// Ends it. A writer that does not hear of it keeps a few checkpoints more for a while.
    pub(super) fn end(&self) {
        let _telling = self.telling.lock();
        let (name, starts) = {
            let mut state = self.state.lock();
            state.told = None;
            if !state.is_registered {
                return;
            }
            (self.name(&state), state.starts)
        };
        let is_told = self.log.unregister(&name).is_ok();
        let mut state = self.state.lock();
        // It may have started again meanwhile.
        state.is_registered &= !is_told || state.starts != starts;
    }
}
