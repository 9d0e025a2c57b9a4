//! Which compaction to run next. Pure functions of a version, of how often its extents are read,
//! and of what runs already.
//!
//! First go extents that are mostly tombstones. One that has something below it goes down, where
//! its tombstones take with them what they hide. One that has nothing below it is written again
//! without them, once no reader is older.
//!
//! Then value extents that are mostly dead, or many and small, are emptied (`collect.rs`): what
//! makes space does not wait for what moves it.
//!
//! Then levels. A level is over-full when it has more bytes than its target; the target of level 1
//! is given, or follows from what is below it, and grows by the ratio from level to level. So two
//! levels are enough until level 2 outgrows its target; then level 3 opens by itself. Level 1 is
//! over-full too when drains are about to run out of sublevels that cannot become one.
//!
//! From level 1 goes an **input set**: neighbours in one sublevel with all that lies under them in
//! deeper ones. What level 2 has of their keys is written once for all sublevels, so an input set
//! takes as many neighbours as is cheapest. From deeper levels goes an extent at a time.
//!
//! Where drains are about to run out of sublevels, and level 1 has not the bytes that it may have,
//! these become one (`intra_l1.rs`). At last versions that no reader needs any more go
//! (`superseded.rs`).
//!
//! An extent that overlaps nothing goes down by its name alone, unless its new level has another
//! compression. Then a compaction rewrites it there. Otherwise an extent that comes in the order of
//! its keys would keep the compression of level 1 for good.
//!
//! Of all that could go, that goes which has least under it for its bytes; what is read twice as
//! much is worth a step, so that it stays in level 1. Of equals the one that has been in the
//! database longest, by its id.
//!
//! Where values lie apart a level has few bytes, and many that it refers to. It is over-full also
//! when those are more than its target and than one part by the ratio of what deeper levels refer
//! to. Otherwise replaced values would stay as long as the keys above them find room. Moving
//! references costs little, so that is all it is held to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::collect::pick_values;
use super::intra_l1::pick_intra_l1;
use super::misplaced::pick_misplaced;
use super::superseded::pick_superseded;
use crate::extent::{Described, Extent, ExtentMeta, Format};
use crate::levels::{LEVEL_2, Level, MAX_LEVELS, SUBLEVELS, Version};
use crate::mvcc::KeyInterval;
use crate::options::{Compression, TableOptions, Tier};
use crate::record::{Lsn, TableId};
use crate::tier::EXTENT_BYTES;

/// Drains are about to run out of sublevels when they have come up to here.
const LAST_SUBLEVELS: u8 = 2;

/// The most places of a level that an input set is tried at.
pub(super) const MOST_PLACES: usize = 64;

/// An extent is mostly tombstones when one in so many of its records is one; at rest fewer do.
const HEAVY: u64 = 2;
const HEAVY_AT_REST: u64 = 8;

/// An object is as large as so many extents in a file: each request takes long, and costs money.
const OBJECT_EXTENTS: usize = 4;

/// How large levels and extents shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The target of level 1.
    pub(crate) level1_bytes: u64,
    /// It is one byte for so many below it, if that is more.
    pub(crate) level1_share: Option<u64>,
    /// The most bytes that a job reads to bring an input set down, if that of an extent has no
    /// more.
    pub(crate) job_bytes: u64,
    /// How much larger each level's target is than the one above.
    pub(crate) ratio: u64,
    /// As many bytes of a sublevel are rather written again with what comes to lie over them, so
    /// that a table with little has few extents.
    pub(crate) little_bytes: u64,
    /// Where extents are cut.
    pub(crate) extent_bytes: usize,
    /// Of blocks of level 1, and of those below.
    pub(crate) compression: (Compression, Compression),
    /// Whether merges reuse extents and blocks.
    pub(crate) reuse: bool,
    /// Whether what drains write enters the cache while that has room.
    pub(crate) fills: bool,
    /// Whether the database has an object store.
    pub(crate) has_objects: bool,
    /// A planted bug: drains take every tombstone for one that hides nothing.
    pub(crate) drops_tombstones: bool,
    /// A planted bug: drains take operands for all that their key has.
    pub(crate) forgets_below: bool,
    /// A planted bug: objects are deleted before the edit that removes them.
    pub(crate) deletes_early: bool,
}

impl Shape {
    /// How extents of a level are laid out, in a table with these options.
    pub(crate) fn format(&self, level: u8, options: TableOptions) -> Format {
        Format::of(options, self.compression_of(level))
    }

    /// Whether extents that a job writes to a level become objects.
    pub(crate) fn puts_objects(&self, level: u8, options: TableOptions) -> bool {
        self.has_objects && options.cold == Tier::Object && level >= LEVEL_2
    }

    /// Where extents are cut, in files or as objects.
    pub(crate) fn extent_bytes_of(&self, objects: bool) -> usize {
        // Under a memory limit extents are small, and objects are no larger.
        let several = objects && self.extent_bytes >= EXTENT_BYTES;
        self.extent_bytes * if several { OBJECT_EXTENTS } else { 1 }
    }

    /// How blocks of a level are compressed.
    fn compression_of(&self, level: u8) -> Compression {
        if level <= SUBLEVELS { self.compression.0 } else { self.compression.1 }
    }

    /// The target of level 1, of all its sublevels together.
    fn target_of_sublevels<E: Described>(&self, version: &Version<E>) -> u64 {
        self.target_by_share(self.level1_share, version)
    }

    /// The target of level `n` where level 1's is `target_of_sublevels`. One with nothing deeper
    /// has room for all that lies below level 1, however small level 1 is made at rest. A small
    /// level 1 is no reason to open a level, and to have versions lie in both.
    fn target_of<E: Described>(&self, n: u8, version: &Version<E>) -> u64 {
        let is_last = version.levels.iter().skip(usize::from(n)).all(Level::is_empty);
        let least = self.level1_share.filter(|_| is_last).map(|share| share.min(self.ratio));
        let above = self.target_by_share(least.or(self.level1_share), version);
        let steps = u32::from(n + 1 - LEVEL_2);
        above.saturating_mul(self.ratio.saturating_pow(steps))
    }

    /// The target of level 1, if it is one byte for so many below it.
    fn target_by_share<E: Described>(&self, share: Option<u64>, version: &Version<E>) -> u64 {
        let below =
            version.levels.iter().skip(usize::from(SUBLEVELS)).map(Level::bytes).sum::<u64>();
        self.level1_bytes.max(share.map_or(0, |share| below.div_ceil(share))).max(1)
    }

    /// How full level 1 is, with 1 for as full as it shall be and 2 for no sublevel being left.
    pub(crate) fn fullness<E: Described>(&self, version: &Version<E>) -> f64 {
        let uppermost = (1..=SUBLEVELS).find(|n| version.level(*n).is_some_and(|l| !l.is_empty()));
        let taken = uppermost.map_or(0, |n| (LAST_SUBLEVELS + 1).saturating_sub(n));
        let by_sublevels = match taken {
            0 => 0.0,
            taken => 1.0 + f64::from(taken) / f64::from(LAST_SUBLEVELS),
        };
        self.fullness_in_bytes(version).max(by_sublevels)
    }

    /// The same by its bytes alone.
    fn fullness_in_bytes<E: Described>(&self, version: &Version<E>) -> f64 {
        let sublevels = version.levels.iter().take(usize::from(SUBLEVELS));
        let sum = |(a, b), level: &Level<E>| (a + level.bytes(), b + level.referred());
        let level1 = sublevels.fold((0, 0), sum);
        self.fullness_of(level1, SUBLEVELS, self.target_of_sublevels(version), version)
    }

    /// How much of its target a level has that ends with `n`: of bytes, or of bytes that it refers
    /// to.
    fn fullness_of<E: Described>(
        &self,
        (bytes, referred): (u64, u64),
        n: u8,
        target: u64,
        version: &Version<E>,
    ) -> f64 {
        let below: u64 = version.levels.iter().skip(usize::from(n)).map(Level::referred).sum();
        let values = referred as f64 / target.max(below / self.ratio) as f64;
        values.max(bytes as f64 / target as f64)
    }
}

/// What else a choice depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The LSNs at which a reader reads: ascending, the newest last.
    pub(crate) readers: &'a [Lsn],
    /// Whether no writer has written for a while.
    pub(crate) rests: bool,
    /// Keys that jobs of the same table are at work on, in any level.
    pub(crate) busy: &'a [KeyInterval],
    /// What is looked for.
    pub(crate) work: Work,
}

/// Which compactions a thread runs. Those that read or write objects have one of their own, so that
/// a store that is slow, or away, holds up no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// All of them.
    Any,
    /// Those in files alone.
    Files,
    /// Those with objects.
    Objects,
}

impl Work {
    /// Whether a choice is among it.
    pub(crate) fn has<E: Described>(
        self,
        choice: &Choice<E>,
        shape: &Shape,
        options: TableOptions,
    ) -> bool {
        match self {
            Work::Any => true,
            Work::Files => !choice.touches_objects(shape, options),
            Work::Objects => choice.touches_objects(shape, options),
        }
    }
}

impl Situation<'_> {
    /// The oldest LSN at which a reader reads.
    pub(super) fn oldest(&self) -> Lsn {
        self.readers.first().copied().unwrap_or(0)
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice<E = Arc<Extent>> {
    /// An extent that overlaps nothing down to its new level goes there unread.
    Move { table: TableId, from: u8, to: u8, extent: E },
    /// Extents are merged with what they overlap in a deeper level, or are written again in theirs.
    Merge {
        table: TableId,
        /// The upper levels first. What overlaps an input in a deeper level above `to` is one too.
        inputs: Vec<(u8, Vec<E>)>,
        /// The level of the overlap and of the output.
        to: u8,
        overlap: Vec<E>,
        /// Value extents of which the inputs' values are written anew.
        collects: BTreeSet<u64>,
    },
}

impl<E: Described> Choice<E> {
    /// The keys that it works on: of its inputs and of what they overlap.
    pub(crate) fn interval(&self) -> KeyInterval {
        match self {
            Choice::Move { .. } => span(self.inputs()),
            Choice::Merge { overlap, .. } => span(self.inputs().chain(overlap)),
        }
    }

    /// This choice, or a merge that rewrites the extent: where the level has another compression or
    /// another tier.
    pub(super) fn compressed(self, shape: &Shape, options: TableOptions) -> Choice<E> {
        let Choice::Move { table, from, to, extent } = self else { return self };
        let stays = extent.meta().location.is_object() == shape.puts_objects(to, options);
        if shape.compression_of(from) == shape.compression_of(to) && stays {
            return Choice::Move { table, from, to, extent };
        }
        let (inputs, overlap, collects) = (vec![(from, vec![extent])], Vec::new(), BTreeSet::new());
        Choice::Merge { table, inputs, to, overlap, collects }
    }

    /// Bytes that it takes out of level 1.
    pub(crate) fn out_of_level1(&self) -> u64 {
        match self {
            Choice::Move { from, to, extent, .. } if *from <= SUBLEVELS && *to > SUBLEVELS => {
                bytes([extent])
            }
            Choice::Merge { inputs, to, .. } if *to > SUBLEVELS => {
                let sublevels = inputs.iter().filter(|(n, _)| *n <= SUBLEVELS);
                sublevels.map(|(_, extents)| bytes(extents)).sum()
            }
            _ => 0,
        }
    }

    /// The extents that leave a sublevel.
    pub(crate) fn leaving(&self) -> Vec<E> {
        match self {
            Choice::Move { from, extent, .. } if *from <= SUBLEVELS => vec![extent.clone()],
            Choice::Move { .. } => Vec::new(),
            Choice::Merge { inputs, to, .. } => {
                let sublevels = inputs.iter().filter(|(n, _)| *n <= SUBLEVELS && n < to);
                sublevels.flat_map(|(_, extents)| extents).cloned().collect()
            }
        }
    }

    /// The level that they go to.
    pub(crate) fn to(&self) -> u8 {
        let (Choice::Move { to, .. } | Choice::Merge { to, .. }) = self;
        *to
    }

    /// Whether it reads or writes objects: it may take long.
    pub(crate) fn touches_objects(&self, shape: &Shape, options: TableOptions) -> bool {
        let Choice::Merge { to, overlap, .. } = self else { return false };
        let is_object = |extent: &E| extent.meta().location.is_object();
        shape.puts_objects(*to, options) || self.inputs().chain(overlap).any(is_object)
    }

    /// What goes down, or is written again where it is.
    fn inputs(&self) -> impl Iterator<Item = &E> {
        let (alone, set) = match self {
            Choice::Move { extent, .. } => (Some(extent), &[][..]),
            Choice::Merge { inputs, .. } => (None, &inputs[..]),
        };
        alone.into_iter().chain(set.iter().flat_map(|(_, extents)| extents))
    }

    /// Whether it is there for the tombstones of an extent, or would be: at rest too, if `rests`.
    pub(crate) fn is_for_tombstones(&self, rests: bool) -> bool {
        let share = if rests { HEAVY_AT_REST } else { HEAVY };
        let is_heavy = |e: &E| {
            let meta = e.meta();
            meta.deletes * share >= meta.records.max(1) || rests && meta.tombstones > 0
        };
        self.inputs().any(is_heavy)
    }

    /// The less, the longer its first input has been in the database.
    pub(super) fn age(&self) -> u64 {
        self.inputs().next().map_or(0, |extent| extent.meta().id)
    }

    /// What has to be written again for a byte to go down, more for what is read.
    fn cost(&self) -> f64 {
        let (down, again) = self.bytes();
        let read_frequency = self.inputs().map(Described::read_frequency).max().unwrap_or(0);
        // A step for each power of two.
        let often = 1 + u32::BITS - read_frequency.leading_zeros();
        (again + 1) as f64 / down.max(1) as f64 * f64::from(often)
    }

    /// Bytes that go down, and bytes that are written again for it.
    fn bytes(&self) -> (u64, u64) {
        let again = match self {
            Choice::Move { .. } => 0,
            Choice::Merge { overlap, .. } => bytes(overlap.iter()),
        };
        (bytes(self.inputs()), again)
    }
}

/// Bytes of extents on the tier.
pub(super) fn bytes<'a, E: Described + 'a>(extents: impl IntoIterator<Item = &'a E>) -> u64 {
    extents.into_iter().map(|extent| u64::from(extent.meta().location.len)).sum()
}

/// From the smallest key to the greatest.
pub(super) fn span<'a, E: Described + 'a>(extents: impl Iterator<Item = &'a E>) -> KeyInterval {
    let intervals = extents.map(|extent| extent.meta().interval());
    intervals.reduce(|a, b| a.joined(&b)).unwrap_or_else(|| KeyInterval::closed(b"", b""))
}

/// The compaction that `version` needs most, if it needs one that can run now.
pub(crate) fn pick<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let options = version.options;
    let ours = |choice: Option<Choice<E>>| {
        choice
            .map(|choice| choice.compressed(shape, options))
            .filter(|choice| now.work.has(choice, shape, options))
    };
    ours(pick_heavy(version, now))
        .or_else(|| ours(pick_values(version, shape, now)))
        .or_else(|| ours(is_crowded(version).then(|| pick_intra_l1(version, shape, now)).flatten()))
        .or_else(|| ours(pick_level(version, shape, now)))
        .or_else(|| ours(pick_intra_l1(version, shape, now)))
        .or_else(|| ours(pick_superseded(version, now)))
        .or_else(|| ours(pick_misplaced(version, shape, now)))
        .inspect(|choice| {
            debug_assert!(is_free(choice, now), "what is chosen can run now");
            debug_assert!(choice.inputs().next().is_some(), "what is chosen has inputs");
        })
}

/// What rids the table of most tombstones.
fn pick_heavy<E: Described>(version: &Version<E>, now: &Situation<'_>) -> Option<Choice<E>> {
    // A range tombstone may hide any number of records: it goes down to them when there is time.
    let has_time_for =
        |n: u8, e: &E| now.rests && e.meta().tombstones > 0 && !hides_nothing(version, n, e);
    let share = if now.rests { HEAVY_AT_REST } else { HEAVY };
    let heavy = version.extents().filter(|(n, e)| {
        e.meta().deletes * share >= e.meta().records.max(1) || has_time_for(*n, e)
    });
    let choices = heavy.filter_map(|(n, extent)| {
        let choice = if hides_nothing(version, n, extent) {
            // All its tombstones go, or it would be chosen again and again.
            let done_with = extent.meta().greatest_seq <= now.oldest();
            done_with.then(|| Choice::Merge {
                table: version.table,
                inputs: vec![(n, vec![extent.clone()])],
                to: n,
                overlap: Vec::new(),
                collects: BTreeSet::new(),
            })
        } else {
            (n < MAX_LEVELS).then(|| send_down(version, n, extent))
        };
        choice.filter(|choice| is_free(choice, now)).map(|choice| (extent.meta(), choice))
    });
    let most = |a: &ExtentMeta, b: &ExtentMeta| a.deletes.cmp(&b.deletes).then(b.id.cmp(&a.id));
    choices.max_by(|(a, _), (b, _)| most(a, b)).map(|(_, choice)| choice)
}

/// What takes bytes out of the level that is fullest for its target.
fn pick_level<E: Described>(
    version: &Version<E>,
    shape: &Shape,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    let mut full = Vec::new();
    let sublevels = shape.fullness_in_bytes(version);
    let uppermost = if is_crowded(version) { LAST_SUBLEVELS } else { SUBLEVELS };
    if sublevels > 1.0 || is_crowded(version) {
        full.push((sublevels.max(1.0), SUBLEVELS));
    }
    for n in LEVEL_2..MAX_LEVELS {
        let level = version.level(n).map_or((0, 0), |level| (level.bytes(), level.referred()));
        let fullness = shape.fullness_of(level, n, shape.target_of(n, version), version);
        if fullness > 1.0 {
            full.push((fullness, n));
        }
    }
    // Of equals the upper one: what comes down later passes it anyway.
    full.sort_by(|(a, n), (b, m)| b.total_cmp(a).then(n.cmp(m)));
    full.into_iter().find_map(|(_, n)| match n {
        SUBLEVELS => {
            best((1..=uppermost).flat_map(|sublevel| input_sets(version, sublevel, shape, now)))
        }
        _ => best(singles(version, n, now)),
    })
}

/// Whether drains have come up to the last sublevels.
fn is_crowded<E: Described>(version: &Version<E>) -> bool {
    version.levels.iter().take(usize::from(LAST_SUBLEVELS)).any(|sublevel| !sublevel.is_empty())
}

/// Each extent of a level below the sublevels, on its way down.
fn singles<'a, E: Described>(
    version: &'a Version<E>,
    n: u8,
    now: &'a Situation<'_>,
) -> impl Iterator<Item = Choice<E>> + 'a {
    let extents = version.level(n).map_or(&[][..], |level| level.extents());
    let choices = extents.iter().map(move |extent| send_down(version, n, extent));
    choices.filter(|choice| is_free(choice, now))
}

/// Input sets that begin with an extent of a sublevel, each as wide as is best.
fn input_sets<'a, E: Described>(
    version: &'a Version<E>,
    sublevel: u8,
    shape: &'a Shape,
    now: &'a Situation<'_>,
) -> impl Iterator<Item = Choice<E>> + 'a {
    let extents = version.level(sublevel).map_or(&[][..], |level| level.extents());
    let step = extents.len().div_ceil(MOST_PLACES).max(1);
    extents.iter().step_by(step).filter_map(move |first| {
        let keys = first.meta().interval();
        let mut best = input_set(version, sublevel, keys.clone());
        if !is_free(&best, now) {
            return None;
        }
        let rest = KeyInterval { start: keys.end.clone()?, end: None };
        let beside = version.overlapping(SUBLEVELS, &rest);
        let mut next = 0;
        while next < beside.len() && !matches!(best, Choice::Move { .. }) {
            let wider = input_set(version, 1, keys.joined(&beside[next].meta().interval()));
            let (down, again) = wider.bytes();
            if down + again > shape.job_bytes || !is_free(&wider, now) {
                break;
            }
            if wider.cost() <= best.cost() {
                best = wider;
            }
            next += 1 + next / 2;
        }
        Some(best)
    })
}

/// What the sublevels from `first` on have of some keys goes below them.
pub(super) fn input_set<E: Described>(
    version: &Version<E>,
    first: u8,
    mut keys: KeyInterval,
) -> Choice<E> {
    let mut inputs = Vec::new();
    for n in first..=SUBLEVELS {
        let here = version.overlapping(n, &keys);
        if !here.is_empty() {
            keys = keys.joined(&span(here.iter()));
            inputs.push((n, here.to_vec()));
        }
    }
    down(version, inputs, LEVEL_2, &keys)
}

/// What has least under it for its bytes and its read frequency.
fn best<E: Described>(choices: impl Iterator<Item = Choice<E>>) -> Option<Choice<E>> {
    let all = choices.map(|choice| (choice.cost(), choice.age(), choice));
    let least = all.min_by(|(a, age, _), (b, other, _)| a.total_cmp(b).then(age.cmp(other)));
    least.map(|(_, _, choice)| choice)
}

/// How an extent of level `from` gets down: of a sublevel with what lies under it in others.
pub(super) fn send_down<E: Described>(version: &Version<E>, from: u8, extent: &E) -> Choice<E> {
    let keys = extent.meta().interval();
    match from <= SUBLEVELS {
        true => input_set(version, from, keys),
        false => down(version, vec![(from, vec![extent.clone()])], from + 1, &keys),
    }
}

/// Inputs with all their keys on their way to level `to`.
fn down<E: Described>(
    version: &Version<E>,
    inputs: Vec<(u8, Vec<E>)>,
    to: u8,
    keys: &KeyInterval,
) -> Choice<E> {
    let (table, overlap) = (version.table, version.overlapping(to, keys).to_vec());
    if let ([(from, alone)], []) = (&inputs[..], &overlap[..])
        && let [extent] = &alone[..]
    {
        let drops_deletes = extent.meta().deletes > 0 && hides_nothing(version, to, extent);
        if !drops_deletes {
            return Choice::Move { table, from: *from, to, extent: extent.clone() };
        }
    }
    Choice::Merge { table, inputs, to, overlap, collects: BTreeSet::new() }
}

/// Whether no level deeper than `level` has anything between an extent's keys.
pub(super) fn hides_nothing<E: Described>(version: &Version<E>, level: u8, extent: &E) -> bool {
    let keys = extent.meta().interval();
    (level + 1..=MAX_LEVELS).all(|deeper| version.overlapping(deeper, &keys).is_empty())
}

/// Whether no other job works on any of its keys.
pub(super) fn is_free<E: Described>(choice: &Choice<E>, now: &Situation<'_>) -> bool {
    let interval = choice.interval();
    !now.busy.iter().any(|busy| busy.overlaps(&interval))
}

#[cfg(test)]
mod tests;
