//! The explorer: every way in which a power cut can leave a workload.
//!
//! 1. [Record](Machine::record) the workload on a machine with persistent memory, with a
//!    [mark](Machine::mark) after each operation that is acknowledged.
//! 2. [`Explorer::explore`] stops before every event of the recording (every store, flush, fence
//!    and change of files) and after the last. There it works out which images of the memory a cut
//!    can leave: one for each choice of a prefix of each chain of stores. (The model is at the head
//!    of `base/memory.rs`.)
//! 3. Each image is handed, as a machine that has just come up, to a checker. Images that are like
//!    one that was checked before with as much acknowledged, in all that was read then, are not
//!    checked again (`seen`).
//!
//! All combinations are tried where there are at most [`Explorer::most`]; else all old, all new,
//! each chain alone ahead of the others, each alone behind them, and a seeded sample.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Instant;

use super::lines::{Chain, Lines};
use super::machine::Machine;
use super::seen::{Images, Seen};
use super::trace::{Event, Site, Trace, What};
use super::{Fate, SimFiles, Survive};

/// How many combinations are tried before they are sampled.
const MOST: usize = 4096;

/// How many ways for files to survive are drawn, beside nothing and everything.
const SEEDED: usize = 6;

/// Explores recordings.
#[derive(Clone, Debug)]
pub struct Explorer {
    operation: String,
    seed: u64,
    most: usize,
    arm: bool,
    moments: usize,
    until: Option<Instant>,
    stop: fn() -> bool,
    after_failure: bool,
    only: Option<Replay>,
}

/// Where in a recording the power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The number of the event that did not happen any more.
    pub event: usize,
    /// How many [marks](Machine::mark) came before.
    pub acknowledged: usize,
    /// Whether the whole recording had happened.
    pub finished: bool,
}

/// What an exploration looked at.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Moments at which power was cut.
    pub moments: u64,
    /// Images that cuts can leave, those that were sampled.
    pub images: u64,
    /// Images that were checked: no two of them alike in all that was read.
    pub checked: u64,
    /// A digest of what was read of each of them, to count those of several explorations once.
    pub digests: HashSet<u64>,
    /// Moments with more combinations than are tried.
    pub sampled: u64,
    /// Places in the source that were cut at, and how often.
    pub sites: BTreeMap<Site, u64>,
}

impl Explored {
    /// Adds what another exploration looked at.
    pub fn absorb(&mut self, other: &Explored) {
        self.moments += other.moments;
        self.images += other.images;
        self.checked += other.checked;
        self.digests.extend(&other.digests);
        self.sampled += other.sampled;
        for (site, n) in &other.sites {
            *self.sites.entry(*site).or_default() += n;
        }
    }
}

/// An image that the checker refused.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What was explored.
    pub operation: String,
    /// The seed of the exploration.
    pub seed: u64,
    /// Where the power was cut.
    pub moment: Moment,
    /// The event that did not happen any more, in words.
    pub before: String,
    /// The chains of stores that were under way, and how many stores of each survived.
    pub lines: Vec<String>,
    /// What the checker said.
    pub what: String,
    /// What [`Explorer::replay`] takes to make this image again.
    pub replay: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, seed {}: power cut at event {} (before: {}; {} acknowledged): {}\n  lines: {}\n  \
             replay: Explorer::new({:?}, {}).replay({:?})",
            self.operation,
            self.seed,
            self.moment.event,
            self.before,
            self.moment.acknowledged,
            self.what,
            if self.lines.is_empty() { "none under way".into() } else { self.lines.join(", ") },
            self.operation,
            self.seed,
            self.replay,
        )
    }
}

impl std::error::Error for Violation {}

/// One image: the event, what becomes of the files, and how much of each chain survives.
#[derive(Clone, Debug)]
struct Replay {
    event: usize,
    /// Of the files.
    fate: u64,
    survive: Vec<usize>,
}

impl Replay {
    fn parse(text: &str) -> Option<Replay> {
        let (event, rest) = text.split_once(':')?;
        let (fate, survive) = rest.split_once(':')?;
        let survive = survive.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().ok());
        let survive = survive.collect::<Option<_>>()?;
        Some(Replay { event: event.parse().ok()?, fate: fate.parse().ok()?, survive })
    }

    fn text(event: usize, fate: u64, survive: &[usize]) -> String {
        let survive: Vec<String> = survive.iter().map(usize::to_string).collect();
        format!("{event}:{fate}:{}", survive.join(","))
    }
}

impl Explorer {
    /// An explorer of `operation`, a name for reports; `seed` picks the samples.
    pub fn new(operation: impl Into<String>, seed: u64) -> Explorer {
        Explorer {
            operation: operation.into(),
            seed,
            most: MOST,
            arm: false,
            moments: usize::MAX,
            until: None,
            stop: || false,
            after_failure: false,
            only: None,
        }
    }

    /// How many combinations a moment may have before they are sampled; 4096 by default. A sample
    /// is about as large.
    #[must_use]
    pub fn most(mut self, images: usize) -> Explorer {
        self.most = images.max(1);
        self
    }

    /// Stops before so many events at most: one of each place in the source, a third of them of the
    /// rarest, then a seeded choice.
    #[must_use]
    pub fn moments(mut self, moments: usize) -> Explorer {
        self.moments = moments.max(1);
        self
    }

    /// Makes no image after that, so that an exploration that has no end ends.
    #[must_use]
    pub fn until(mut self, until: Instant) -> Explorer {
        self.until = Some(until);
        self
    }

    /// Makes no image any more once `stop` says so.
    #[must_use]
    pub fn stop_if(mut self, stop: fn() -> bool) -> Explorer {
        self.stop = stop;
        self
    }

    /// Lets ordinary stores survive word by word, as on Arm.
    #[must_use]
    pub fn arm(mut self) -> Explorer {
        self.arm = true;
        self
    }

    /// Stops only after a call has failed.
    #[must_use]
    pub fn after_failure(mut self) -> Explorer {
        self.after_failure = true;
        self
    }

    /// Makes only the image that a [`Violation::replay`] names; nothing if that is malformed.
    #[must_use]
    pub fn replay(mut self, replay: &str) -> Explorer {
        self.only = Replay::parse(replay);
        self
    }

    /// Checks every image of `trace`. `check` opens the machine it is given and says what is
    /// wrong with it, if anything; it must not depend on anything but the machine and the moment.
    ///
    /// # Errors
    ///
    /// The first image that was refused.
    pub fn explore(
        &self,
        trace: &Trace,
        mut check: impl FnMut(&Machine, Moment) -> Result<(), String>,
    ) -> Result<Explored, Box<Violation>> {
        let mut explored = Explored::default();
        let mut lines = trace.start.clone();
        let mut seen = Seen::default();
        let mut moment = Moment { event: 0, acknowledged: 0, finished: false };
        let stops = self.stops(trace);
        for event in trace.events.iter().map(Some).chain([None]) {
            moment.finished = event.is_none();
            if stops.contains(&moment.event) {
                if self.is_over() {
                    break;
                }
                let site = event.map(|event| event.site);
                site.into_iter().for_each(|site| *explored.sites.entry(site).or_default() += 1);
                let at = Stop { trace, lines: &lines, moment, event };
                self.stop_at(&at, &mut seen, &mut explored, &mut check)?;
            }
            if let Some(event) = event {
                event.apply(&mut lines);
                moment.event += 1;
                if matches!(event.what, What::Mark) {
                    moment.acknowledged += 1;
                    // What was fine while it was under way may be too little now.
                    seen.clear();
                }
            }
        }
        Ok(explored)
    }

    fn is_over(&self) -> bool {
        (self.stop)() || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The events to stop before; the number behind the last stands for the end.
    fn stops(&self, trace: &Trace) -> BTreeSet<usize> {
        if let Some(only) = &self.only {
            return BTreeSet::from([only.event]);
        }
        let end = trace.events.len();
        let begin = match self.after_failure {
            true => trace.first_failure().unwrap_or(end),
            false => 0,
        };
        let is_stop = |n: &usize| trace.events[*n].is_persist_point();
        let mut others: Vec<usize> = (begin..end).filter(is_stop).collect();
        if others.len() < self.moments {
            return others.into_iter().chain([end]).collect();
        }
        let mut fate = Fate::new(Survive::Seeded(self.seed ^ 0x5709_5709));
        for i in (1..others.len()).rev() {
            others.swap(i, fate.choose(i + 1));
        }
        let mut sites = HashSet::new();
        let (first, more): (Vec<usize>, Vec<usize>) =
            others.into_iter().partition(|n| sites.insert(trace.events[*n].site));
        // What happens once in a recording is in few of them: a third is for the rarest places.
        let counts = trace.sites();
        let mut rarest = first.clone();
        rarest.sort_by_key(|n| counts.get(&trace.events[*n].site));
        let chosen = rarest.into_iter().take(self.moments / 3).chain(first).chain(more);
        let mut stops = BTreeSet::from([end]);
        for n in chosen {
            if stops.len() < self.moments {
                stops.insert(n);
            }
        }
        stops
    }

    fn stop_at(
        &self,
        at: &Stop<'_>,
        seen: &mut Seen,
        explored: &mut Explored,
        check: &mut impl FnMut(&Machine, Moment) -> Result<(), String>,
    ) -> Result<(), Box<Violation>> {
        let chains = at.lines.chains(self.arm || at.trace.arm);
        let mut images = Images::new(at.lines, &chains);
        explored.moments += 1;
        let combinations = self.combinations(&chains, at.moment.event);
        explored.sampled += u64::from(combinations.sampled);
        for (n, survive) in combinations.of.iter().enumerate() {
            let image = images.image(survive);
            for fate in self.fates(at, n) {
                if self.is_over() {
                    return Ok(());
                }
                explored.images += 1;
                let files = at.files(fate);
                let apart = files.digest(Path::new("/")).rotate_left(64);
                if seen.knows(&mut images, &image, apart) {
                    continue;
                }
                explored.checked += 1;
                let machine = match at.trace.memory {
                    true => Machine::holding(at.lines.after(&chains, survive), at.trace.arm, files),
                    false => Machine::with(files),
                };
                let log = machine.log_reads();
                if let Err(what) = check(&machine, at.moment) {
                    let cut = (survive.as_slice(), fate);
                    return Err(Box::new(self.violation(at, &chains, cut, what)));
                }
                let digest = seen.add(&mut images, &image, (apart, log.lines()));
                explored.digests.insert(digest);
            }
        }
        Ok(())
    }

    /// What becomes of the files beside the `n`-th choice for the memory: one way or another where
    /// the memory is at stake, else nothing, everything, and a few that a seed decides.
    fn fates(&self, at: &Stop<'_>, n: usize) -> Vec<u64> {
        if let Some(only) = &self.only {
            return vec![only.fate];
        }
        let first = (self.seed ^ at.moment.event as u64).wrapping_mul(3);
        if at.trace.memory && !matches!(at.event, Some(Event { what: What::File, .. })) {
            return vec![first.wrapping_add(n as u64)];
        }
        let seeded = if at.trace.memory { 1 } else { SEEDED.min(self.most) as u64 };
        let any = (0..seeded).map(|i| (first ^ i.rotate_left(16)) / 3 * 3 + 2);
        [0, 1].into_iter().chain(any).collect()
    }

    fn combinations(&self, chains: &[Chain], event: usize) -> Combinations {
        let lens: Vec<usize> = chains.iter().map(Chain::len).collect();
        if let Some(only) = &self.only {
            let fits = only.survive.len() == lens.len()
                && only.survive.iter().zip(&lens).all(|(n, len)| n <= len);
            let of = if fits { vec![only.survive.clone()] } else { Vec::new() };
            return Combinations { of, sampled: false };
        }
        let product = lens.iter().try_fold(1usize, |product, len| product.checked_mul(len + 1));
        if product.is_some_and(|product| product <= self.most) {
            return Combinations { of: every(&lens), sampled: false };
        }
        // Which of them is settled before one is made: there is a number for every word that was
        // streamed, and two choices for each of those.
        let mut picks = vec![Pick::Old, Pick::New];
        picks.extend((0..lens.len()).flat_map(|i| [Pick::Ahead(i), Pick::Behind(i)]));
        let mut fate = Fate::new(Survive::Seeded(self.seed ^ (event as u64).rotate_left(32)));
        // All old and all new stay.
        while picks.len() > self.most.max(2) {
            picks.swap_remove(2 + fate.choose(picks.len() - 2));
        }
        let mut of: Vec<Vec<usize>> = picks.into_iter().map(|pick| pick.make(&lens)).collect();
        while of.len() < self.most {
            of.push(lens.iter().map(|len| fate.choose(len + 1)).collect());
        }
        Combinations { of, sampled: true }
    }

    fn violation(
        &self,
        at: &Stop<'_>,
        chains: &[Chain],
        (survive, fate): (&[usize], u64),
        what: String,
    ) -> Violation {
        let line = |(chain, n): (&Chain, &usize)| {
            let word = chain.word.map_or(String::new(), |word| format!(" word {word}"));
            format!("{:#x}{word}: {n} of {} stores", chain.line, chain.len())
        };
        Violation {
            operation: self.operation.clone(),
            seed: self.seed,
            moment: at.moment,
            before: at.event.map_or("the end".into(), Event::describe),
            lines: chains.iter().zip(survive).map(line).collect(),
            what,
            replay: Replay::text(at.moment.event, fate, survive),
        }
    }
}

/// A moment of a recording.
struct Stop<'a> {
    trace: &'a Trace,
    lines: &'a Lines,
    moment: Moment,
    event: Option<&'a Event>,
}

impl Stop<'_> {
    /// The files after the cut, one way or another.
    fn files(&self, choice: u64) -> std::sync::Arc<SimFiles> {
        let survive = match choice % 3 {
            0 => Survive::Nothing,
            1 => Survive::Everything,
            _ => Survive::Seeded(choice),
        };
        let before = self.trace.files_before(self.moment.event);
        before.map_or_else(SimFiles::new, |files| files.cut(survive))
    }
}

struct Combinations {
    of: Vec<Vec<usize>>,
    sampled: bool,
}

/// A choice among the many, not made yet.
#[derive(Clone, Copy)]
enum Pick {
    Old,
    New,
    /// All old but this one.
    Ahead(usize),
    /// All new but this one.
    Behind(usize),
}

impl Pick {
    /// How many stores of each chain survive, of so many.
    fn make(self, lens: &[usize]) -> Vec<usize> {
        let old = || vec![0; lens.len()];
        match self {
            Pick::Old => old(),
            Pick::New => lens.to_vec(),
            Pick::Ahead(i) => {
                let mut ahead = old();
                ahead[i] = lens[i];
                ahead
            }
            Pick::Behind(i) => {
                let mut behind = lens.to_vec();
                behind[i] = 0;
                behind
            }
        }
    }
}

/// Every way to pick a number up to each of `lens`.
fn every(lens: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for len in lens {
        let longer = |head: &Vec<usize>| {
            let head = head.clone();
            (0..=*len).map(move |n| [&head[..], &[n]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// A line of zeros adds nothing, so that memory that is not used costs nothing.
pub(super) fn hash(at: u64, line: &[u8]) -> u128 {
    if line.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut halves = [at ^ 0x9e37_79b9_7f4a_7c15, at.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03];
    for word in line.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        for (half, odd) in halves.iter_mut().zip([0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb]) {
            *half = (*half ^ u64::from_le_bytes(bytes)).wrapping_mul(odd);
            *half ^= *half >> 29;
        }
    }
    u128::from(halves[0]) << 64 | u128::from(halves[1])
}

#[cfg(test)]
mod tests;
