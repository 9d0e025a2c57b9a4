//! What may go from the shared store: entries and data that neither of the last two checkpoints
//! needs. A checkpoint needs its own entry, and those with which a reader of it goes on. Entries
//! stay longer for the time of the retention, and for registered followers up to a bound. So does
//! the data of checkpoints from which a registered follower reads. Readers that start have no
//! bound, as long as they are alive.
//!
//! The head moves first. Claims that count stay for ever: the object of a claim is what a writer
//! meets that was taken over. Data of a later claim is another writer's. Data that this writer
//! reads from the store stays as long as it does so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint;
use super::log::{
    EntryHeader, EntryKind, FollowerPlace, LogHead, PieceId, Register, RegisteredReader, SharedLog,
    SignSeen, data_number, entry_name,
};
use super::registration::{TAKEOVER, is_own_name};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::sync::locks::Mutex;
use crate::os::sync::shared::OnceLock;
use crate::os::time;

/// Registered followers hold deletion back for so many checkpoints.
const MOST_HELD: usize = 16;

/// A writer goes on counting the checkpoints since the signs of readers, where the one before it
/// has begun, if it has made fewer itself by then. One more may be on its way.
const COUNTED_ON: usize = 2;

/// So many entries are deleted at once. A collection that ends early has deleted what it found.
const MOST_DELETED: usize = 1000;

/// How often a collection is tried that followers overtake.
const TRIES: u32 = 8;

/// A closing waits for a collection so long, and for its request.
const CLOSING: Duration = Duration::from_secs(5);

/// Pieces that this machine reads from the store.
pub(super) type LivePieces<'a> = &'a dyn Fn() -> BTreeSet<PieceId>;

/// The first entry that a checkpoint needs: entries below it were appended before a moment.
#[derive(Clone, Copy, Debug)]
struct AgeMark {
    number: u64,
    at: Instant,
}

/// A registered reader.
#[derive(Clone, Debug)]
struct KnownReader {
    name: String,
    place: FollowerPlace,
    /// Whether it started, and has given no sign for sixteen checkpoints.
    is_silent: bool,
}

impl KnownReader {
    /// Whether it holds back sixteen checkpoints at most.
    fn is_bounded(&self) -> bool {
        self.place.beat == 0 || self.is_silent
    }

    /// Whether it holds anything back. A takeover that left its registration has ended, or starts
    /// over: its base is too old to be held (`left_behind`).
    fn needs(&self) -> bool {
        !(self.is_silent && self.name.starts_with(TAKEOVER))
    }
}

/// A checkpoint that the log has: its entry, the data that it names, and the first piece that may
/// be on its way into a later one.
#[derive(Debug)]
pub(super) struct MadeCheckpoint {
    pub(super) number: u64,
    /// The entry with which a reader of it goes on.
    pub(super) from: u64,
    pub(super) pieces: BTreeSet<PieceId>,
    pub(super) pending: u32,
}

/// Checkpoints that the collector has not taken note of yet.
pub(super) type MadeCheckpoints = Arc<Mutex<Vec<MadeCheckpoint>>>;

/// A checkpoint that is kept.
#[derive(Clone, Copy, Debug)]
struct KeptCheckpoint {
    number: u64,
    /// Whether it is known what it names. No data is deleted while one is kept of which it is not.
    is_known: bool,
}

/// The checkpoints that are kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// This writer's claim.
    claim: u64,
    /// The last two, and older ones of which followers read data. The first one may be an earlier
    /// opening's, of which the data is not known.
    checkpoints: VecDeque<KeptCheckpoint>,
    /// The pieces that they name, each with the last one that does.
    named: BTreeMap<PieceId, u64>,
    /// One for each checkpoint from the oldest entry on.
    marks: VecDeque<AgeMark>,
    /// The newest checkpoints of the log, sixteen at most.
    newest: VecDeque<u64>,
    retention: Duration,
    /// The newest checkpoint before this writer; 0 if there was none.
    before: u64,
    /// When this writer began, and in seconds by the clock of its records.
    began: (Instant, u64),
    knows_oldest: bool,
    /// The last claim before this writer's that counts. One between it and this writer's is void:
    /// it came into a hole.
    claim_before: u64,
    /// Of the entries below this one, claims that count are left.
    cleaned: u64,
    /// Whether the store has to be looked through.
    is_due: bool,
    /// Pieces of this claim from here on may be on their way into a checkpoint.
    pending: u32,
    /// Checkpoints of this opening, and those that come to them with the next collection.
    made: usize,
    coming: MadeCheckpoints,
    /// When the closing began, if so.
    closing: Arc<OnceLock<Instant>>,
    /// Entries are deleted up to the last one: a planted bug.
    early: bool,
}

impl Kept {
    /// With the checkpoint that the log had before this writer, and the data that it names, if that
    /// is known; 0 if there was none. An earlier writer may have died while it collected.
    pub(super) fn new(
        claim: u64,
        (before, pieces): (u64, Option<BTreeSet<PieceId>>),
        (early, retention): (bool, Duration),
        now: u64,
    ) -> Kept {
        let is_known = pieces.is_some();
        // What comes before it stands for all earlier ones: their data is not known.
        let earlier = is_known.then(|| KeptCheckpoint { number: before - 1, is_known: false });
        let newest = (before > 0).then_some(KeptCheckpoint { number: before, is_known });
        let checkpoints: VecDeque<_> = earlier.into_iter().chain(newest).collect();
        let is_due = !checkpoints.is_empty();
        let named = pieces.into_iter().flatten().map(|piece| (piece, before)).collect();
        Kept {
            claim,
            checkpoints,
            named,
            marks: VecDeque::new(),
            newest: VecDeque::new(),
            retention,
            before,
            began: (time::now(), now),
            knows_oldest: false,
            claim_before: claim - 1,
            cleaned: 0,
            is_due,
            pending: 0,
            made: 0,
            coming: Arc::default(),
            closing: Arc::default(),
            early,
        }
    }

    /// With the last claim before this writer's that counts, and where its checkpoints come and its
    /// closing is told.
    pub(super) fn behind(
        self,
        claim_before: u64,
        coming: &MadeCheckpoints,
        closing: &Arc<OnceLock<Instant>>,
    ) -> Kept {
        Kept { claim_before, coming: Arc::clone(coming), closing: Arc::clone(closing), ..self }
    }

    /// There is one more checkpoint.
    fn add(&mut self, made: MadeCheckpoint) {
        let MadeCheckpoint { number, from, pieces, pending } = made;
        self.pending = pending;
        self.made += 1;
        let mark = AgeMark { number: from.min(number), at: time::now() };
        let is_later = |before: &AgeMark| before.number <= mark.number;
        debug_assert!(self.marks.back().is_none_or(is_later), "no checkpoint needs an older entry");
        self.marks.push_back(mark);
        self.checkpoints.push_back(KeptCheckpoint { number, is_known: true });
        self.named.extend(pieces.into_iter().map(|piece| (piece, number)));
        self.newest.push_back(number);
        if self.newest.len() > MOST_HELD {
            self.newest.pop_front();
        }
        self.is_due = true;
    }

    /// Whether work of several requests may go on.
    fn check_open(&self, log: &SharedLog) -> Result<()> {
        if self.closing.get().is_some_and(|began| time::since(*began) >= CLOSING) {
            return Err(Error::closed());
        }
        log.check_open()
    }

    /// Moves the head and deletes what it has left behind, but for the pieces that are `live` on
    /// this machine: their claims and numbers.
    ///
    /// # Errors
    ///
    /// The store does not answer, or readers register all the time: it is done later. `Closed` once
    /// the log is stopped: no request follows.
    pub(super) fn collect(&mut self, log: &SharedLog, live: LivePieces<'_>) -> Result<()> {
        let coming = std::mem::take(&mut *self.coming.lock());
        coming.into_iter().for_each(|made| self.add(made));
        if !std::mem::take(&mut self.is_due) {
            return Ok(());
        }
        self.collect_now(log, live).inspect_err(|_| self.is_due = true)
    }

    fn collect_now(&mut self, log: &SharedLog, live: LivePieces<'_>) -> Result<()> {
        if !self.knows_oldest {
            self.claim_register(log)?;
            let head = log.head()?.0;
            self.find_earlier(log, head.oldest)?;
            (self.cleaned, self.knows_oldest) = (head.cleaned, true);
        }
        for tried in 0..TRIES {
            self.check_open(log)?;
            if self.try_collect(log, live, tried == 0)? {
                return Ok(());
            }
        }
        Err(readers_register(log))
    }

    /// Has the register be this writer's: no earlier writer changes it any more. What the one
    /// before it knew of signs stays, if this one has made few checkpoints since. Others may have
    /// read signs late, and know of older checkpoints alone.
    fn claim_register(&self, log: &SharedLog) -> Result<()> {
        for _ in 0..TRIES {
            self.check_open(log)?;
            let (register, tag) = log.read_register()?;
            if register.claim >= self.claim {
                return Ok(());
            }
            let mut to = Register { claim: self.claim, ..register };
            // Behind the register is read.
            let made = self.made + self.coming.lock().len();
            if register.claim != self.claim_before || made >= COUNTED_ON {
                to.names.values_mut().for_each(|seen| *seen = SignSeen::default());
            }
            if log.replace_register(&to, tag)? {
                return Ok(());
            }
        }
        Err(readers_register(log))
    }

    /// Whether no follower has registered meanwhile. What the first try reads in the register this
    /// writer has read in an earlier collection, or the one before it
    /// ([`claim_register`](Kept::claim_register)).
    fn try_collect(
        &mut self,
        log: &SharedLog,
        live: LivePieces<'_>,
        is_first: bool,
    ) -> Result<bool> {
        let Some(&KeptCheckpoint { number: newest, .. }) = self.checkpoints.back() else {
            return Ok(true);
        };
        let (register, tag) = log.read_register()?;
        if register.claim > self.claim {
            // This writer was taken over.
            return Ok(true);
        }
        let registered = log.registered(&register)?;
        let names = self.signs_of(&register, &registered, (newest, is_first));
        let readers = self.readers_of(&registered, &names);
        let oldest = self.first_needed(&readers);
        self.check_open(log)?;
        let head = LogHead { oldest, checkpoint: newest, cleaned: self.cleaned };
        if !log.raise_head(head)? {
            return Ok(false);
        }
        self.delete_entries(log, if self.early { newest + 1 } else { oldest })?;
        self.cleaned = oldest;
        let (gone, first) = self.left_behind(&readers);
        // What a checkpoint of an earlier opening names is not known.
        let is_known = self.checkpoints.iter().skip(gone).all(|kept| kept.is_known);
        let kept = if is_known { first.max(register.kept) } else { register.kept };
        // A follower that registers before this is seen, or its base is kept. One that registers
        // later sees it.
        let raises = kept > register.kept;
        let is_news = raises || names != register.names;
        let to = Register { kept, claim: self.claim, names };
        if is_news && !log.replace_register(&to, tag)? {
            return Ok(false);
        }
        if !is_known {
            return Ok(true);
        }
        // One that was taken for dead gives a sign first, and looks at the register then.
        if raises && self.has_come_back(log, &readers)? {
            return Ok(false);
        }
        self.checkpoints.drain(..gone);
        self.named.retain(|_, last| *last >= first);
        let live = live();
        self.delete_data(log, &live)?;
        self.forget_dead(log, (kept, &live), &readers)?;
        // An object that is gone ended its registration. No reader takes a name of its own twice.
        let left = registered.iter().filter(|it| it.place.is_none() && is_own_name(&it.name));
        left.map(|it| &it.name).try_for_each(|name| self.forget(log, name))?;
        Ok(true)
    }

    /// The names of the register, with the signs that are known now.
    fn signs_of(
        &self,
        register: &Register,
        registered: &[RegisteredReader],
        (newest, is_first): (u64, bool),
    ) -> BTreeMap<String, SignSeen> {
        let sign = |reader: &RegisteredReader| {
            let beat = reader.place.map_or(0, |place| place.beat);
            let known = register.names.get(&reader.name).filter(|_| register.claim == self.claim);
            let known = known.copied().filter(|seen| seen.beat == beat);
            let mut seen = known.unwrap_or(SignSeen { beat, checkpoint: 0 });
            if known.is_some() && is_first && beat > 0 && seen.checkpoint == 0 {
                seen.checkpoint = newest;
            }
            (reader.name.clone(), seen)
        };
        registered.iter().map(sign).collect()
    }

    /// The readers that have a place. One that starts holds all, as long as it gives a sign within
    /// sixteen checkpoints.
    fn readers_of(
        &self,
        registered: &[RegisteredReader],
        names: &BTreeMap<String, SignSeen>,
    ) -> Vec<KnownReader> {
        let is_silent = |seen: &SignSeen| seen.checkpoint > 0 && self.is_past(seen.checkpoint);
        let reader = |RegisteredReader { name, place }: &RegisteredReader| {
            let is_silent = names.get(name).is_some_and(is_silent);
            Some(KnownReader { name: name.clone(), place: (*place)?, is_silent })
        };
        registered.iter().filter_map(reader).collect()
    }

    /// Whether a reader that was taken for dead has given a sign since.
    fn has_come_back(&self, log: &SharedLog, readers: &[KnownReader]) -> Result<bool> {
        for reader in readers.iter().filter(|reader| reader.is_silent) {
            if log.place_of(&reader.name)?.is_some_and(|place| place.beat != reader.place.beat) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many checkpoints before the last two are not kept, since no reader needs their data; and
    /// the first one that is.
    fn left_behind(&self, readers: &[KnownReader]) -> (usize, u64) {
        // One that reads an older checkpoint than the sixteenth of the log is left behind.
        let needs = |it: &&KnownReader| {
            it.needs() && it.place.base > 0 && !(it.is_bounded() && self.is_past(it.place.base))
        };
        let base = readers.iter().filter(needs).map(|it| it.place.base).min().unwrap_or(u64::MAX);
        let before_last_two = self.checkpoints.len().saturating_sub(2);
        let older = self.checkpoints.iter().take(before_last_two);
        let gone = older.take_while(|kept| kept.number < base).count();
        (gone, self.checkpoints.get(gone).map_or(0, |kept| kept.number))
    }

    /// Whether sixteen checkpoints of the log are newer than one.
    fn is_past(&self, checkpoint: u64) -> bool {
        let oldest = self.newest.front().filter(|_| self.newest.len() == MOST_HELD);
        oldest.is_some_and(|oldest| *oldest > checkpoint)
    }

    /// Forgets readers that died while they started, once nothing is `kept` for them: if one is
    /// alive, it learns that from the register, and starts under another name. What a takeover has
    /// registered is what holds an earlier writer back: it stays as long as this machine, or a
    /// checkpoint, has data of one.
    fn forget_dead(
        &self,
        log: &SharedLog,
        (kept, live): (u64, &BTreeSet<PieceId>),
        readers: &[KnownReader],
    ) -> Result<()> {
        let first = live.first().into_iter().chain(self.named.keys().next());
        let has_earlier = first.min().is_some_and(|(claim, _)| *claim < self.claim);
        let is_dead = |reader: &&KnownReader| {
            let name = &reader.name;
            let own = is_own_name(name) && !(name.starts_with(TAKEOVER) && has_earlier);
            own && reader.is_silent && reader.place.base < kept
        };
        readers.iter().filter(is_dead).try_for_each(|reader| self.forget(log, &reader.name))
    }

    fn forget(&self, log: &SharedLog, name: &str) -> Result<()> {
        self.check_open(log)?;
        log.unregister(name)
    }

    /// Finds the checkpoints that earlier openings have left in the log from its oldest entry on:
    /// as many as readers hold back, and the newest that is as old as the retention.
    fn find_earlier(&mut self, log: &SharedLog, oldest: u64) -> Result<()> {
        let old = self.old_one(log, oldest)?;
        let mark = |number: u64| {
            let at = old.filter(|(old, _)| number <= *old).map_or(self.began.0, |(_, at)| at);
            let from = sound(log.header(number))?.map_or(number, |of| of.first.min(number));
            Ok::<_, Error>(AgeMark { number: from.max(oldest), at })
        };
        let (mut number, mut marks, mut numbers) = (self.before, Vec::new(), Vec::new());
        while number > oldest && numbers.len() <= MOST_HELD {
            self.check_open(log)?;
            marks.push(mark(number)?);
            numbers.push(number);
            number = sound(log.header(number - 1))?.map_or(0, |before| before.checkpoint);
        }
        if let Some((old, _)) = old.filter(|(old, _)| *old <= number) {
            marks.push(mark(old)?);
        }
        marks.push(AgeMark { number: oldest, at: self.began.0 });
        // Where a request has failed, nothing was taken note of.
        marks.into_iter().for_each(|mark| self.marks.push_front(mark));
        numbers.into_iter().for_each(|number| self.newest.push_front(number));
        self.newest.drain(..self.newest.len().saturating_sub(MOST_HELD));
        Ok(())
    }

    /// The newest checkpoint of an earlier opening that is as old as the retention, and when it was
    /// made. Entries are as old as those around them, so few checkpoints are read.
    fn old_one(&self, log: &SharedLog, oldest: u64) -> Result<Option<(u64, Instant)>> {
        let (mut low, mut high, mut found) = (oldest, self.before + 1, None);
        while low < high && !self.retention.is_zero() {
            self.check_open(log)?;
            let middle = low + (high - low) / 2;
            let number = sound(log.header(middle))?.map_or(0, |of| of.checkpoint);
            if number < low {
                low = middle + 1;
                continue;
            }
            match self.made_at(log, number)?.filter(|at| time::since(*at) >= self.retention) {
                Some(at) => (found, low) = (Some((number, at)), middle + 1),
                None => high = number,
            }
        }
        Ok(found)
    }

    /// When a checkpoint of an earlier opening was made, by the clock of records; at most a second
    /// later.
    fn made_at(&self, log: &SharedLog, number: u64) -> Result<Option<Instant>> {
        let (began, now) = self.began;
        let Some(found) = sound(checkpoint::read(log, number))? else { return Ok(None) };
        Ok(began.checked_sub(Duration::from_secs(now.saturating_sub(found.manifest.created + 1))))
    }

    /// The first entry that is kept.
    fn first_needed(&mut self, readers: &[KnownReader]) -> u64 {
        let first = self.marks.front().map_or(1, |mark| mark.number);
        let older = self.marks.iter().rev().nth(1).map_or(first, |mark| mark.number);
        let is_old = |mark: &&AgeMark| time::since(mark.at) >= self.retention;
        let by_time = self.marks.iter().rev().find(is_old).map_or(first, |mark| mark.number);
        let bound = self.marks.iter().rev().nth(MOST_HELD).map_or(first, |mark| mark.number);
        let held_by = |it: &KnownReader| {
            let next = it.place.entry + 1;
            if it.is_bounded() { next.max(bound) } else { next }
        };
        let held = readers.iter().filter(|it| it.needs()).map(held_by).min();
        let needed = older.min(by_time).min(held.unwrap_or(u64::MAX)).max(first);
        // One mark at or below what is kept stays.
        while self.marks.get(1).is_some_and(|mark| mark.number <= needed) {
            self.marks.pop_front();
        }
        needed
    }

    /// Deletes entries below one, but for claims that count. Those behind the last claim before
    /// this writer's are none, but for its own: they need no look.
    fn delete_entries(&mut self, log: &SharedLog, below: u64) -> Result<()> {
        let from = self.cleaned.min(self.claim_before + 1);
        for some in log.entries_in(from..below)?.chunks(MOST_DELETED) {
            self.check_open(log)?;
            let looked: Vec<u64> =
                some.iter().copied().filter(|number| *number <= self.claim_before).collect();
            let headers = log.sound_headers(&looked)?;
            let stays =
                |of: &Option<EntryHeader>| of.as_ref().is_none_or(|of| of.kind == EntryKind::Claim);
            let kept = looked.into_iter().zip(headers).filter(|(_, of)| stays(of));
            let kept: BTreeSet<u64> = kept.map(|(number, _)| number).chain([self.claim]).collect();
            let gone = some.iter().filter(|number| !kept.contains(number));
            let gone: Vec<String> = gone.map(|number| entry_name(*number)).collect();
            log.delete(&gone)?;
        }
        Ok(())
    }

    fn delete_data(&self, log: &SharedLog, live: &BTreeSet<PieceId>) -> Result<()> {
        debug_assert!(
            self.checkpoints.iter().all(|kept| kept.is_known),
            "each one's data is known"
        );
        // What a takeover has named is read until the last reader of an older version has gone.
        let is_gone = |name: &String| {
            data_number(name).is_some_and(|piece| {
                let (claim, number) = piece;
                let is_before = claim < self.claim || claim == self.claim && number < self.pending;
                is_before && !live.contains(&piece) && !self.named.contains_key(&piece)
            })
        };
        let gone: Vec<String> = log.all_data()?.into_iter().filter(is_gone).collect();
        self.check_open(log)?;
        log.delete(&gone)
    }
}

/// The error of a collection that is overtaken each time.
fn readers_register(log: &SharedLog) -> Error {
    let message = format!(
        "readers register at the shared store {} all the time; nothing was deleted",
        log.address()
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Nothing where an entry is damaged: it tells no more, and holds up no collection.
fn sound<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        found => found,
    }
}

#[cfg(test)]
mod tests;
