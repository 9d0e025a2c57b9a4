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
use std::time::{Duration, Instant};

use super::checkpoint;
use super::log::{EntryKind, FollowerPlace, LogHead, Register, SharedLog, data_number};
use super::registration::{STARTING, TAKEOVER};
use crate::base::error::{Error, ErrorKind, Result};
use crate::os::time;

/// Registered followers hold deletion back for so many checkpoints.
const MOST_HELD: usize = 16;

/// So many entries are deleted at once. A collection that ends early has deleted what it found.
const MOST_DELETED: usize = 1000;

/// How often a collection is tried that followers overtake.
const TRIES: u32 = 8;

/// Pieces that this machine reads from the store: their claims and numbers.
pub(super) type LivePieces<'a> = &'a dyn Fn() -> BTreeSet<(u64, u32)>;

/// The first entry that a checkpoint needs: entries below it were appended before a moment.
#[derive(Clone, Copy, Debug)]
struct AgeMark {
    number: u64,
    at: Instant,
}

/// What a registered reader needs.
#[derive(Clone, Copy, Debug)]
struct Needs {
    place: FollowerPlace,
    /// Whether it holds back sixteen checkpoints at most.
    is_bounded: bool,
}

/// The last sign of a reader that starts.
#[derive(Clone, Copy, Debug)]
struct Beat {
    number: u64,
    /// How many checkpoints there were when a collection began that knew it; `None` in the one that
    /// has read it first.
    made: Option<u64>,
    /// As [`FollowerPlace::base`].
    base: u64,
}

/// A checkpoint that the log has: its entry, the data that it names, and the first piece that may
/// be on its way into a later one.
#[derive(Debug)]
pub(super) struct MadeCheckpoint {
    pub(super) number: u64,
    /// The entry with which a reader of it goes on.
    pub(super) from: u64,
    pub(super) data: BTreeSet<String>,
    pub(super) pending: u32,
}

/// The checkpoints that are kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// This writer's claim.
    claim: u64,
    /// The last two, and older ones of which followers read data: their entries, with the data that
    /// they name. The first one may be an earlier opening's, of which the data is not known. No
    /// data is deleted while it is here.
    checkpoints: VecDeque<(u64, Option<BTreeSet<String>>)>,
    /// One for each checkpoint from the oldest entry on.
    marks: VecDeque<AgeMark>,
    retention: Duration,
    /// The newest checkpoint before this writer; 0 if there was none.
    before: u64,
    /// When this writer began, and in seconds by the clock of its records.
    began: (Instant, u64),
    knows_oldest: bool,
    /// Claims before this writer's that were found.
    claims: BTreeSet<u64>,
    /// The last of these that counts. One between it and this writer's is void: it came into a
    /// hole.
    claim_before: u64,
    /// Whether the store has to be looked through.
    is_due: bool,
    /// Pieces of this claim from here on may be on their way into a checkpoint.
    pending: u32,
    /// Readers that start, by their names.
    starting: BTreeMap<String, Beat>,
    /// Checkpoints of this opening.
    made: u64,
    /// Entries are deleted up to the last one: a planted bug.
    early: bool,
}

impl Kept {
    /// With the checkpoint that the log had before this writer, and the data that it names, if that
    /// is known; 0 if there was none. An earlier writer may have died while it collected.
    pub(super) fn new(
        claim: u64,
        (before, data): (u64, Option<BTreeSet<String>>),
        (early, retention): (bool, Duration),
        now: u64,
    ) -> Kept {
        // What comes before it stands for all earlier ones: their data is not known.
        let earlier = data.as_ref().map(|_| (before - 1, None));
        let newest = (before > 0).then_some((before, data));
        let checkpoints: VecDeque<_> = earlier.into_iter().chain(newest).collect();
        let is_due = !checkpoints.is_empty();
        Kept {
            claim,
            checkpoints,
            marks: VecDeque::new(),
            retention,
            before,
            began: (time::now(), now),
            knows_oldest: false,
            claims: BTreeSet::new(),
            claim_before: u64::MAX,
            is_due,
            pending: 0,
            starting: BTreeMap::new(),
            made: 0,
            early,
        }
    }

    /// The last claim before this writer's that counts.
    pub(super) fn behind(self, claim_before: u64) -> Kept {
        Kept { claim_before, ..self }
    }

    /// There is one more checkpoint.
    pub(super) fn add(&mut self, made: MadeCheckpoint) {
        let MadeCheckpoint { number, from, data, pending } = made;
        self.pending = pending;
        self.made += 1;
        self.marks.push_back(AgeMark { number: from.min(number), at: time::now() });
        self.checkpoints.push_back((number, Some(data)));
        self.is_due = true;
    }

    /// Moves the head and deletes what it has left behind, but for the pieces that are `live` on
    /// this machine: their claims and numbers.
    ///
    /// # Errors
    ///
    /// The store does not answer, or readers register all the time: it is done later. `Closed` once
    /// the log is stopped: no request follows.
    pub(super) fn collect(&mut self, log: &SharedLog, live: LivePieces<'_>) -> Result<()> {
        if !std::mem::take(&mut self.is_due) {
            return Ok(());
        }
        self.collect_now(log, live).inspect_err(|_| self.is_due = true)
    }

    fn collect_now(&mut self, log: &SharedLog, live: LivePieces<'_>) -> Result<()> {
        // What an earlier collection has read came before so many checkpoints at least.
        self.starting.values_mut().for_each(|beat| _ = beat.made.get_or_insert(self.made));
        for _ in 0..TRIES {
            log.check_open()?;
            if self.try_collect(log, live)? {
                return Ok(());
            }
        }
        let message = format!(
            "readers register at the shared store {} all the time; nothing was deleted",
            log.address()
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Whether no follower has registered meanwhile.
    fn try_collect(&mut self, log: &SharedLog, live: LivePieces<'_>) -> Result<bool> {
        let Some(&(newest, _)) = self.checkpoints.back() else { return Ok(true) };
        let (register, tag) = log.read_register()?;
        let needs = self.needs_of(log.registered(&register)?);
        let oldest = self.first_needed(log, &needs)?;
        log.check_open()?;
        if !log.raise_head(LogHead { oldest, checkpoint: newest })? {
            return Ok(false);
        }
        let below = if self.early { newest + 1 } else { oldest };
        self.delete_entries(log, below)?;
        let (gone, kept) = self.left_behind(&needs);
        // What a checkpoint of an earlier opening names is not known.
        if self.checkpoints.iter().skip(gone).any(|(_, data)| data.is_none()) {
            return Ok(true);
        }
        // A follower that registers before this is seen, or its base is kept. One that registers
        // later sees it.
        let raises = kept > register.kept;
        if raises && !log.replace_register(&Register { kept, ..register }, tag)? {
            return Ok(false);
        }
        // One that was taken for dead gives a sign first, and looks at the register then.
        if raises && self.has_come_back(log)? {
            return Ok(false);
        }
        self.checkpoints.drain(..gone);
        let live = live();
        self.delete_data(log, &live)?;
        self.forget_dead(log, kept, &live).map(|()| true)
    }

    /// What readers need. One that starts has no bound, as long as it gives a sign within sixteen
    /// checkpoints.
    fn needs_of(&mut self, registered: Vec<(String, FollowerPlace)>) -> Vec<Needs> {
        let before = std::mem::take(&mut self.starting);
        let mut needs = Vec::with_capacity(registered.len());
        for (name, place) in registered {
            let mut is_bounded = true;
            if place.beat > 0 {
                let fresh = Beat { number: place.beat, made: None, base: place.base };
                let known = before.get(&name).filter(|known| known.number == place.beat);
                let beat = known.copied().unwrap_or(fresh);
                is_bounded = self.is_silent(beat);
                // A takeover that left its registration has ended, or starts over: its base is too
                // old to be held (`left_behind`).
                let has_left = is_bounded && name.starts_with(TAKEOVER);
                self.starting.insert(name, beat);
                if has_left {
                    continue;
                }
            }
            needs.push(Needs { place, is_bounded });
        }
        needs
    }

    fn is_silent(&self, beat: Beat) -> bool {
        beat.made.is_some_and(|made| self.made - made >= MOST_HELD as u64)
    }

    /// Whether a reader that was taken for dead has given a sign since.
    fn has_come_back(&self, log: &SharedLog) -> Result<bool> {
        for (name, beat) in self.starting.iter().filter(|(_, beat)| self.is_silent(**beat)) {
            if log.place_of(name)?.is_some_and(|place| place.beat != beat.number) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many checkpoints before the last two are not kept, since no reader needs their data; and
    /// the first one that is.
    fn left_behind(&self, needs: &[Needs]) -> (usize, u64) {
        let numbers: Vec<u64> = self.checkpoints.iter().map(|(number, _)| *number).collect();
        let most = numbers.len().saturating_sub(2);
        let needs_at = |it: &Needs, at: usize| {
            let reads = (1..=numbers[at]).contains(&it.place.base);
            reads && !(it.is_bounded && numbers.len() - at > MOST_HELD)
        };
        let is_gone = |at: &usize| !needs.iter().any(|it| needs_at(it, *at));
        let gone = (0..most).take_while(is_gone).count();
        (gone, numbers.get(gone).copied().unwrap_or(0))
    }

    /// Forgets readers that died while they started, once nothing is `kept` for them: if one is
    /// alive, it learns that from the register, and starts under another name. What a takeover has
    /// registered is what holds an earlier writer back: it stays as long as this machine, or a
    /// checkpoint, has data of one.
    fn forget_dead(
        &mut self,
        log: &SharedLog,
        kept: u64,
        live: &BTreeSet<(u64, u32)>,
    ) -> Result<()> {
        let is_earlier = |name: &String| data_number(name).is_some_and(|(it, _)| it < self.claim);
        let named = self.checkpoints.iter().filter_map(|(_, data)| data.as_ref()).flatten();
        let has_earlier =
            live.iter().any(|(claim, _)| *claim < self.claim) || named.into_iter().any(is_earlier);
        let is_dead = |(name, beat): (&String, &Beat)| {
            let own = name.starts_with(STARTING) || name.starts_with(TAKEOVER) && !has_earlier;
            (own && self.is_silent(*beat) && beat.base < kept).then(|| name.clone())
        };
        let dead: Vec<String> = self.starting.iter().filter_map(is_dead).collect();
        for name in dead {
            log.check_open()?;
            log.unregister(&name)?;
            self.starting.remove(&name);
        }
        Ok(())
    }

    /// Marks of the checkpoints that earlier openings have left in the log, the newest first: as
    /// many as readers hold back, and up to one that is as old as the retention.
    fn earlier_marks(&self, log: &SharedLog, oldest: u64) -> Result<Vec<AgeMark>> {
        let is_old = |mark: &AgeMark| time::since(mark.at) >= self.retention;
        let (mut marks, mut number) = (Vec::new(), self.before);
        while number > oldest && (marks.len() <= MOST_HELD || !marks.last().is_some_and(is_old)) {
            log.check_open()?;
            let at = if self.retention.is_zero() { None } else { self.made_at(log, number)? };
            let from = sound(log.header(number))?.map_or(number, |of| of.first.min(number));
            marks.push(AgeMark { number: from.max(oldest), at: at.unwrap_or(self.began.0) });
            number = sound(log.header(number - 1))?.map_or(0, |before| before.checkpoint);
        }
        marks.push(AgeMark { number: oldest, at: self.began.0 });
        Ok(marks)
    }

    /// When a checkpoint of an earlier opening was made, by the clock of records; at most a second
    /// later.
    fn made_at(&self, log: &SharedLog, number: u64) -> Result<Option<Instant>> {
        let (began, now) = self.began;
        let Some(found) = sound(checkpoint::read(log, number))? else { return Ok(None) };
        Ok(began.checked_sub(Duration::from_secs(now.saturating_sub(found.manifest.created + 1))))
    }

    /// The first entry that is kept.
    fn first_needed(&mut self, log: &SharedLog, needs: &[Needs]) -> Result<u64> {
        if !self.knows_oldest {
            let earlier = self.earlier_marks(log, log.head()?.0.oldest)?;
            earlier.into_iter().for_each(|mark| self.marks.push_front(mark));
            self.knows_oldest = true;
        }
        let first = self.marks.front().map_or(1, |mark| mark.number);
        let older = self.marks.iter().rev().nth(1).map_or(first, |mark| mark.number);
        let is_old = |mark: &&AgeMark| time::since(mark.at) >= self.retention;
        let by_time = self.marks.iter().rev().find(is_old).map_or(first, |mark| mark.number);
        let bound = self.marks.iter().rev().nth(MOST_HELD).map_or(first, |mark| mark.number);
        let held_by = |it: &Needs| {
            let next = it.place.entry + 1;
            if it.is_bounded { next.max(bound) } else { next }
        };
        let held = needs.iter().map(held_by).min();
        let needed = older.min(by_time).min(held.unwrap_or(u64::MAX)).max(first);
        // One mark at or below what is kept stays.
        while self.marks.get(1).is_some_and(|mark| mark.number <= needed) {
            self.marks.pop_front();
        }
        Ok(needed)
    }

    fn delete_entries(&mut self, log: &SharedLog, below: u64) -> Result<()> {
        let mut gone = Vec::new();
        for number in log.entries_below(below)? {
            log.check_open()?;
            // All entries above its claim are this writer's own, and none of them is a claim that
            // counts.
            if number == self.claim || self.claims.contains(&number) {
                continue;
            }
            if number < self.claim {
                match sound(log.header(number))? {
                    Some(header)
                        if header.kind == EntryKind::Claim && number <= self.claim_before =>
                    {
                        self.claims.insert(number);
                        continue;
                    }
                    Some(_) => {}
                    None => continue,
                }
            }
            gone.push(crate::replication::log::entry_name(number));
            if gone.len() == MOST_DELETED {
                log.delete(&std::mem::take(&mut gone))?;
            }
        }
        log.check_open()?;
        log.delete(&gone)
    }

    fn delete_data(&self, log: &SharedLog, live: &BTreeSet<(u64, u32)>) -> Result<()> {
        let known = || self.checkpoints.iter().filter_map(|(_, data)| data.as_ref());
        debug_assert_eq!(known().count(), self.checkpoints.len(), "each one's data is known");
        // What a takeover has named is read until the last reader of an older version has gone.
        let is_gone = |name: &String| {
            let is_old = data_number(name).is_some_and(|(claim, piece)| {
                let is_before = claim < self.claim || claim == self.claim && piece < self.pending;
                is_before && !live.contains(&(claim, piece))
            });
            is_old && !known().any(|data| data.contains(name))
        };
        let gone: Vec<String> = log.all_data()?.into_iter().filter(is_gone).collect();
        log.check_open()?;
        log.delete(&gone)
    }
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
