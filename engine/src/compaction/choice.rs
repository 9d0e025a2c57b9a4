//! What a compaction does: its inputs, what they overlap, and where they go. And how extents get
//! down from a level. Pure functions of a version.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::claimed::ClaimedKeys;
use super::shape::Shape;
use crate::extent::{Described, Extent};
use crate::levels::{LEVEL_2, MAX_LEVELS, SUBLEVELS, Version};
use crate::mvcc::KeyInterval;
use crate::options::TableOptions;
use crate::record::{Lsn, TableId};
use crate::tier::Location;

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
        /// Value extents whose values the job rewrites, where inputs refer to them.
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

    /// What it works on: its keys, in the levels from its first input's to its output's.
    pub(crate) fn claimed(&self) -> ClaimedKeys {
        let top = match self {
            Choice::Move { from, .. } => Some(*from),
            Choice::Merge { inputs, .. } => inputs.iter().map(|(n, _)| *n).min(),
        };
        ClaimedKeys::new(self.interval(), (top.unwrap_or(self.to()), self.to()))
    }

    /// Whether range tombstones come into it, which may hide extents of deeper levels.
    pub(crate) fn may_hide(&self) -> bool {
        self.inputs().any(|extent| extent.meta().tombstones > 0)
    }

    /// This choice, or a merge that rewrites the extent: where the level has another compression or
    /// another tier.
    pub(super) fn compressed(self, shape: &Shape, options: TableOptions) -> Choice<E> {
        if self.is_unread(shape, options) {
            return self;
        }
        let Choice::Move { table, from, to, extent } = self else { return self };
        let (inputs, overlap, collects) = (vec![(from, vec![extent])], Vec::new(), BTreeSet::new());
        Choice::Merge { table, inputs, to, overlap, collects }
    }

    /// Whether an extent goes to another level as it is.
    fn is_unread(&self, shape: &Shape, options: TableOptions) -> bool {
        let Choice::Move { from, to, extent, .. } = self else { return false };
        extent.meta().location.is_object() == shape.puts_objects(*to, options)
            && shape.compression_of(*from, options) == shape.compression_of(*to, options)
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
        if self.is_unread(shape, options) {
            return false;
        }
        let (overlap, collects) = match self {
            Choice::Move { .. } => (&[][..], &BTreeSet::new()),
            Choice::Merge { overlap, collects, .. } => (&overlap[..], collects),
        };
        let reads_objects = |extent: &E| {
            let meta = extent.meta();
            let mut values = meta.values.iter().filter(|one| collects.contains(&one.of.id));
            meta.location.is_object() || values.any(|one| one.of.location.is_object())
        };
        shape.puts_objects(self.to(), options) || self.inputs().chain(overlap).any(reads_objects)
    }

    /// Whether extents of this machine are written again in their level and nothing else: they make
    /// room for others.
    pub(crate) fn goes_down_for_room(&self) -> bool {
        let Choice::Merge { inputs, to, overlap, collects, .. } = self else { return false };
        let is_local = |e: &E| !e.meta().location.is_object();
        overlap.is_empty()
            && collects.is_empty()
            && inputs.iter().all(|(level, extents)| level == to && extents.iter().all(is_local))
    }

    /// What goes down, or is written again where it is.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &E> {
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
    pub(super) fn cost(&self) -> f64 {
        let (down, again) = self.bytes();
        let read_frequency = self.inputs().map(Described::read_frequency).max().unwrap_or(0);
        // A step for each power of two.
        let often = 1 + u32::BITS - read_frequency.leading_zeros();
        (again + 1) as f64 / down.max(1) as f64 * f64::from(often)
    }

    /// Bytes that go down, and bytes that are written again for it.
    pub(super) fn bytes(&self) -> (u64, u64) {
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
