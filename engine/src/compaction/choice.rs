//! What a compaction does: its inputs, what they overlap, and where they go. And how extents get
//! down from a level. Pure functions of a version.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::shape::{ClaimedKeys, Shape, is_claimed};
use crate::base::options::TableOptions;
use crate::base::record::{Lsn, TableId};
use crate::mvcc::KeyInterval;
use crate::sstable::{Described, Extent, ExtentMeta};
use crate::storage::Location;
use crate::version::{Edit, LEVEL_2, MAX_LEVELS, Op, SUBLEVELS, Version};

/// An extent is mostly tombstones when one in so many of its records is one; at rest fewer do.
pub(super) const HEAVY: u64 = 2;
pub(super) const HEAVY_AT_REST: u64 = 8;

/// The most places of a level that an input set is tried at.
pub(super) const MOST_PLACES: usize = 64;

/// What else a choice depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The LSNs at which a reader reads: ascending, the newest last.
    pub(crate) readers: &'a [Lsn],
    /// Whether no writer has written for a while.
    pub(crate) rests: bool,
    /// What other jobs of the same table read or write.
    pub(crate) busy: &'a [ClaimedKeys],
    /// So many sublevels, from the uppermost on, stay out of compactions to level 2. Drains go on
    /// in them however long such a compaction takes.
    pub(crate) spared: u8,
    /// What is looked for.
    pub(crate) work: Work,
    pub(crate) shape: &'a Shape,
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
    /// Whether what lies there may be read.
    pub(super) fn may_read(self, place: &Location) -> bool {
        self != Work::Files || !place.is_object()
    }
}

impl Situation<'_> {
    /// Whether a choice can run now: it is of the work that is looked for, no other job works on
    /// any of its keys in its levels, and it spares what it has to. What is passed over for that
    /// hides no other choice.
    pub(super) fn allows<E: Described>(&self, choice: &Choice<E>, version: &Version<E>) -> bool {
        let (claimed, options) = (choice.claimed(), version.options);
        let is_work = match self.work {
            Work::Any => true,
            Work::Files => !choice.touches_objects(self.shape, options),
            Work::Objects => choice.touches_objects(self.shape, options),
        };
        is_work && claimed.spares(self.spared) && !self.busy.iter().any(|busy| busy.meets(&claimed))
    }

    /// The oldest LSN at which a reader reads.
    pub(super) fn oldest(&self) -> Lsn {
        self.readers.first().copied().unwrap_or(0)
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice<E = Arc<Extent>> {
    pub(crate) table: TableId,
    /// The upper levels first. They are merged with what they overlap in a deeper level, or are
    /// written again in theirs. What overlaps an input in a deeper level above `to` is one too.
    pub(crate) inputs: Vec<(u8, Vec<E>)>,
    /// The level of the overlap and of the output.
    pub(crate) to: u8,
    pub(crate) overlap: Vec<E>,
    /// Value extents whose values the job rewrites, where inputs refer to them.
    pub(crate) collects: BTreeSet<u64>,
    /// Whether the one input, which overlaps nothing down to its new level, goes there unread.
    pub(crate) is_move: bool,
    /// Whether the inputs are copied to this machine as they are, out of the shared store.
    pub(crate) is_copy: bool,
}

impl<E: Described> Choice<E> {
    /// An extent goes down unread.
    pub(super) fn moved(version: &Version<E>, (from, extent): (u8, &E), to: u8) -> Choice<E> {
        debug_assert!(from < to, "an extent moves down");
        let inputs = vec![(from, vec![extent.clone()])];
        Choice { is_move: true, ..Choice::of(version, inputs, to) }
    }

    /// Neighbours are written again in their level.
    pub(super) fn again(version: &Version<E>, level: u8, extents: &[E]) -> Choice<E> {
        Choice::of(version, vec![(level, extents.to_vec())], level)
    }

    fn of(version: &Version<E>, inputs: Vec<(u8, Vec<E>)>, to: u8) -> Choice<E> {
        let (overlap, collects) = (Vec::new(), BTreeSet::new());
        let (table, is_move, is_copy) = (version.table, false, false);
        Choice { table, inputs, to, overlap, collects, is_move, is_copy }
    }

    /// The keys that it works on: of its inputs and of what they overlap.
    pub(crate) fn interval(&self) -> KeyInterval {
        span(self.extents().chain(&self.overlap))
    }

    /// What it works on: its keys, in the levels from its first input's to its output's.
    pub(crate) fn claimed(&self) -> ClaimedKeys {
        let top = self.inputs.iter().map(|(n, _)| *n).min();
        ClaimedKeys::new(self.interval(), (top.unwrap_or(self.to), self.to))
    }

    /// Whether range tombstones come into it, which may hide extents of deeper levels.
    pub(crate) fn may_hide(&self) -> bool {
        self.extents().any(|extent| extent.meta().tombstones > 0)
    }

    /// This choice, or a merge that rewrites the extent: where the level has another compression or
    /// another tier.
    pub(super) fn compressed(self, shape: &Shape, options: TableOptions) -> Choice<E> {
        Choice { is_move: self.is_unread(shape, options), ..self }
    }

    /// Whether an extent goes to another level as it is.
    fn is_unread(&self, shape: &Shape, options: TableOptions) -> bool {
        let to = shape.compression_of(self.to, options);
        let puts_objects = shape.puts_objects(self.to, options);
        self.is_move
            && self.inputs.iter().all(|(from, _)| shape.compression_of(*from, options) == to)
            && self.extents().all(|e| e.meta().location.is_object() == puts_objects)
    }

    /// Bytes that it takes out of level 1.
    pub(crate) fn out_of_level1(&self) -> u64 {
        let leaves = |n: u8| n <= SUBLEVELS && self.to > SUBLEVELS;
        let sublevels = self.inputs.iter().filter(|(n, _)| leaves(*n));
        sublevels.map(|(_, extents)| bytes(extents)).sum()
    }

    /// The extents that leave a sublevel.
    pub(crate) fn leaving(&self) -> Vec<E> {
        let sublevels = self.inputs.iter().filter(|(n, _)| *n <= SUBLEVELS && *n < self.to);
        sublevels.flat_map(|(_, extents)| extents).cloned().collect()
    }

    /// Whether it reads or writes objects: it may take long.
    pub(crate) fn touches_objects(&self, shape: &Shape, options: TableOptions) -> bool {
        if self.is_unread(shape, options) {
            return false;
        }
        let reads_objects = |extent: &E| {
            let meta = extent.meta();
            let mut values = meta.values.iter().filter(|one| self.collects.contains(&one.of.id));
            meta.location.is_object() || values.any(|one| one.of.location.is_object())
        };
        shape.puts_objects(self.to, options)
            || self.extents().chain(&self.overlap).any(reads_objects)
    }

    /// Whether extents of this machine are written again in their level and nothing else: they make
    /// room for others.
    pub(crate) fn goes_down_for_room(&self) -> bool {
        let Choice { inputs, to, overlap, collects, .. } = self;
        let is_local = |e: &E| !e.meta().location.is_object();
        overlap.is_empty()
            && collects.is_empty()
            && inputs.iter().all(|(level, extents)| level == to && extents.iter().all(is_local))
    }

    /// What goes down, or is written again where it is.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &E> {
        self.inputs.iter().flat_map(|(_, extents)| extents)
    }

    /// Whether it is there for the tombstones of an extent, or would be: at rest too, if `rests`.
    pub(crate) fn is_for_tombstones(&self, rests: bool) -> bool {
        let share = if rests { HEAVY_AT_REST } else { HEAVY };
        let is_heavy = |e: &E| {
            let meta = e.meta();
            meta.deletes * share >= meta.records.max(1) || rests && meta.tombstones > 0
        };
        self.extents().any(is_heavy)
    }

    /// The less, the longer its first input has been in the database.
    pub(super) fn age(&self) -> u64 {
        self.extents().next().map_or(0, |extent| extent.meta().id)
    }

    /// What has to be written again for a byte to go down, more for what is read.
    pub(super) fn cost(&self) -> f64 {
        let (down, again) = self.bytes();
        let read_frequency = self.extents().map(Described::read_frequency).max().unwrap_or(0);
        // A step for each power of two.
        let often = 1 + u32::BITS - read_frequency.leading_zeros();
        (again + 1) as f64 / down.max(1) as f64 * f64::from(often)
    }

    /// About the bytes that its deletes rid it of, where no reader is older than they are: their
    /// own and those of as many records that they hide.
    pub(super) fn hidden_bytes(&self, oldest: Lsn) -> u64 {
        let (down, again) = self.bytes();
        let records = |e: &E| u128::from(e.meta().records);
        let all = self.extents().chain(&self.overlap).map(records).sum::<u128>().max(1);
        let in_effect = self.extents().filter(|e| e.meta().greatest_seq <= oldest);
        let gone = all.min(2 * in_effect.map(|e| u128::from(e.meta().deletes)).sum::<u128>());
        (u128::from(down + again) * gone / all) as u64
    }

    /// Bytes that go down, and bytes that are written again for it.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (bytes(self.extents()), bytes(&self.overlap))
    }
}

/// Bytes of extents on the tier.
pub(super) fn bytes<'a, E: Described + 'a>(extents: impl IntoIterator<Item = &'a E>) -> u64 {
    extents.into_iter().map(|extent| u64::from(extent.meta().location.len)).sum()
}

/// From the smallest key to the greatest.
fn span<'a, E: Described + 'a>(extents: impl Iterator<Item = &'a E>) -> KeyInterval {
    let intervals = extents.map(|extent| extent.meta().interval());
    intervals.reduce(|a, b| a.joined(&b)).unwrap_or_else(|| KeyInterval::closed(b"", b""))
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
    debug_assert!(!inputs.is_empty(), "something goes down");
    debug_assert!(inputs.iter().all(|(n, _)| *n < to), "inputs lie above the level they go to");
    let overlap = version.overlapping(to, keys).to_vec();
    let is_move = match (&inputs[..], &overlap[..]) {
        ([(_, alone)], []) if alone.len() == 1 => {
            alone[0].meta().deletes == 0 || !hides_nothing(version, to, &alone[0])
        }
        _ => false,
    };
    Choice { overlap, is_move, ..Choice::of(version, inputs, to) }
}

/// Whether no level deeper than `level` has anything between an extent's keys.
pub(super) fn hides_nothing<E: Described>(version: &Version<E>, level: u8, extent: &E) -> bool {
    let keys = extent.meta().interval();
    (level + 1..=MAX_LEVELS).all(|deeper| version.overlapping(deeper, &keys).is_empty())
}

// Intra-L1 compactions: which sublevels of level 1 become one. A pure function of a version.
//
// Each round of drains takes a sublevel more wherever it has keys. A round is small beside what
// level 1 may have. So rounds use up the sublevels long before they use up its bytes. Each
// compaction into level 2 would then rewrite much of level 2 for few new bytes. An intra-L1
// compaction merges the sublevels that lie over some keys into the deepest of them. It writes what
// they have and nothing of level 2, and makes room for as many rounds.
//
// From the uppermost sublevel on it takes as many as cost the fewest bytes for each sublevel that
// comes free. What was merged like that before is larger than what a round brings. It is left
// alone until there is about as much above it, so a byte is merged a logarithmic number of times.
// That is size-tiered compaction within a level ("Dostoevsky: Better Space-Time Trade-Offs for
// LSM-Tree Based Key-Value Stores via Adaptive Removal of Superfluous Merging", SIGMOD 2018).
//
// An extent with clear sublevels right below it moves through them by its name.
//
// What other jobs work on is left alone. So above a compaction with objects, which may take long,
// the sublevels that it spares become one again and again.

/// Where there are so few sublevels left above some keys, they become one.
const FEW_LEFT: u8 = 4;

/// The fewest sublevels that come free.
const LEAST_ROOM: u8 = 3;

/// A compaction, and its bytes for each sublevel that comes free.
type Costly<E> = (u64, Choice<E>);

/// The compaction of the place with the fewest sublevels left; of several the one that costs least.
pub(super) fn pick_intra_l1<E: Described>(
    version: &Version<E>,
    now: &Situation<'_>,
) -> Option<Choice<E>> {
    (1..=FEW_LEFT.max(now.spared)).find_map(|first| {
        let extents = version.level(first).map_or(&[][..], |sublevel| sublevel.extents());
        // Out of sublevels that are spared, nothing gets down but into the others.
        let only_moves = first > FEW_LEFT;
        let step = if only_moves { 1 } else { extents.len().div_ceil(MOST_PLACES).max(1) };
        let choices = extents.iter().step_by(step).filter_map(|extent| {
            let choice = cheapest(version, (first, extent), now)?;
            let is_meant = !only_moves || choice.1.is_move;
            (is_meant && now.allows(&choice.1, version)).then_some(choice)
        });
        let least = choices.min_by_key(|(cost, choice)| (*cost, choice.age()));
        least.map(|(_, choice)| choice)
    })
}

/// What lies under an extent of sublevel `first` in others, as far down as is cheapest, and above
/// what is `busy`.
fn cheapest<E: Described>(
    version: &Version<E>,
    (first, extent): (u8, &E),
    now: &Situation<'_>,
) -> Option<Costly<E>> {
    let (mut keys, busy) = (extent.meta().interval(), now.busy);
    let (mut taken, mut sum) = (Vec::new(), 0);
    let mut least: Option<(u64, usize)> = None;
    let is_taken =
        |n: &u8| !version.overlapping(*n, &keys).is_empty() || is_claimed(busy, *n, &keys);
    let below = (first + 1..=SUBLEVELS).find(is_taken).unwrap_or(SUBLEVELS + 1);
    if below > first + 1 {
        debug_assert!(below - 1 <= SUBLEVELS, "an extent moves down within level 1");
        return Some((0, Choice::moved(version, (first, extent), below - 1)));
    }
    for n in first..=SUBLEVELS {
        let here = version.overlapping(n, &keys);
        if here.is_empty() {
            continue;
        }
        keys = keys.joined(&span(here.iter()));
        if (first..=n).any(|n| is_claimed(busy, n, &keys)) {
            break;
        }
        sum += bytes(here);
        taken.push((n, here));
        if sum > now.shape.job_bytes {
            break;
        }
        let room = n - first;
        if room < LEAST_ROOM {
            continue;
        }
        let cost = sum / u64::from(room);
        if least.is_none_or(|(other, _)| cost <= other) {
            least = Some((cost, taken.len()));
        }
    }
    let (cost, sublevels) = least?;
    let (to, overlap) = taken[sublevels - 1];
    debug_assert!(first < to && to <= SUBLEVELS, "sublevels become one within level 1");
    debug_assert!(sublevels > 1, "one sublevel alone stays as it is");
    let inputs = taken[..sublevels - 1].iter().map(|(n, here)| (*n, here.to_vec())).collect();
    let overlap = overlap.to_vec();
    Some((cost, Choice { overlap, ..Choice::of(version, inputs, to) }))
}

// Trivial moves: which extents of level 1 move down, unread, in the edit of a compaction. A pure
// function of a version.
//
// While a compaction merges extents of level 1, drains put columns over them, into ever higher
// sublevels. Once the compaction has removed the extents, nothing lies below the columns. Yet a
// column blocks the sublevels below it for later columns. So the edit of the compaction moves them
// down by name, as deep as sublevels are clear. Order is kept: nothing passes what it has keys in
// common with, nor the sublevel that the compaction wrote to.

/// The operations that move extents of sublevels down to where `done`, a choice of extents that
/// `version` still has, makes room, but for what is `busy`.
pub(crate) fn trivial_moves<E: Described>(
    version: &Version<E>,
    done: &Choice<E>,
    busy: &[ClaimedKeys],
) -> Edit<E> {
    let removed = done.leaving();
    if removed.is_empty() {
        return Edit { ops: Vec::new() };
    }
    let gone: BTreeSet<u64> = removed.iter().map(|extent| extent.meta().id).collect();
    let (keys, table) = (span(removed.iter()), version.table);
    let (filled, output) = (done.to, done.interval());
    let left = |n: u8| {
        let extents = version.level(n).map_or(&[][..], |sublevel| sublevel.extents());
        extents.iter().filter(|e| !gone.contains(&e.meta().id)).cloned().collect::<Vec<_>>()
    };
    // The uppermost first.
    let mut sublevels: Vec<Vec<E>> = (1..=SUBLEVELS).map(left).collect();
    let mut ops = Vec::new();
    // What an intra-L1 compaction writes to is merged with it.
    for from in (1..SUBLEVELS.min(filled)).rev() {
        for extent in version.overlapping(from, &keys) {
            let own = extent.meta();
            let keys = own.interval();
            let stays = gone.contains(&own.id) || is_claimed(busy, from, &keys);
            let lies_over = output.overlaps(&keys);
            let is_clear = |(n, sublevel): &(u8, &Vec<E>)| {
                let is_filled = *n == filled && lies_over;
                let is_clear = !is_filled && !is_claimed(busy, *n, &keys);
                is_clear && !sublevel.iter().any(|other| meet(own, other.meta()))
            };
            let below = (from + 1..).zip(&sublevels[usize::from(from)..]);
            let depth = if stays { 0 } else { below.take_while(is_clear).count() };
            if depth > 0 {
                let to = from + depth as u8;
                debug_assert!(to <= SUBLEVELS, "a trivial move stays within level 1");
                debug_assert!(version.table == table, "a compaction is of one table");
                sublevels[usize::from(from) - 1].retain(|other| other.meta().id != own.id);
                sublevels[usize::from(to) - 1].push(extent.clone());
                ops.push(Op::MoveExtent { table, from, to, id: own.id });
            }
        }
    }
    Edit { ops }
}

/// Whether two extents may have keys in common.
fn meet(a: &ExtentMeta, b: &ExtentMeta) -> bool {
    a.smallest_key <= b.greatest_key && b.smallest_key <= a.greatest_key
}
