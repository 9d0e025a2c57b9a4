//! Commit alone: a committer over a small region, without the database around it.

#[cfg(not(feature = "loom"))]
mod floors;
#[cfg(not(feature = "loom"))]
mod held_up;
#[cfg(feature = "loom")]
mod loom;
mod model;
#[cfg(not(feature = "loom"))]
mod order;
#[cfg(not(feature = "loom"))]
mod outcomes;
#[cfg(not(feature = "loom"))]
mod rules;
#[cfg(not(feature = "loom"))]
mod salts;
#[cfg(not(feature = "loom"))]
mod salvage;
#[cfg(not(feature = "loom"))]
mod stored;
#[cfg(not(feature = "loom"))]
mod write_loop;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;

use super::committer::Committer;
use super::committer::Ticket;
use super::floor::Floor;
use super::sequencer::Start;
use super::sequencer::StreamTail;
use super::write::WriteStep;
use super::{Batch, CommitRequest, CommitTable, Group, Poison, Target};
use crate::base::error::{Error, Result};
use crate::base::record::{Kind, Lsn, TableId};
use crate::memtable::Memtable;
use crate::mvcc::Watermark;
use crate::os::{Files, OpenHow};
use crate::pm::alloc::{StreamKind, StreamObject, StreamPool, ZonePool};
use crate::pm::{Geometry, Media, Region};
use terrace_testkit::Machine;

/// A table with one memtable at a time.
pub(super) struct OneTable {
    id: TableId,
    pub(super) memtable: ArcSwap<Memtable>,
    pub(super) dropped: AtomicBool,
    pub(super) stream: AtomicU32,
}

impl OneTable {
    fn new(id: TableId, stream: u32, region: &Arc<Region>) -> OneTable {
        OneTable {
            id,
            memtable: ArcSwap::from_pointee(Memtable::new(Arc::clone(region))),
            dropped: AtomicBool::new(false),
            stream: AtomicU32::new(stream),
        }
    }

    /// The value of a key at an LSN.
    pub(super) fn value(&self, key: &str, at: Lsn) -> Option<String> {
        let _guard = crate::mvcc::pin();
        let memtable = self.memtable.load();
        let record = memtable.get(key.as_bytes(), at)?;
        Some(String::from_utf8(record.value.to_vec()).unwrap())
    }
}

impl CommitTable for OneTable {
    fn hold(&self) {}

    fn release_hold(&self) {}

    fn check_droppable(&self) -> Result<()> {
        Ok(())
    }

    fn table(&self) -> TableId {
        self.id
    }

    fn check_alive(&self) -> Result<()> {
        match self.dropped.load(Ordering::Acquire) {
            true => Err(Error::table_gone("t")),
            false => Ok(()),
        }
    }

    fn active(&self) -> Arc<Memtable> {
        self.memtable.load_full()
    }

    fn stream(&self) -> u32 {
        self.stream.load(Ordering::Relaxed)
    }

    fn count(&self, _bytes: u64) {}
}

/// What a batch names.
#[derive(Clone)]
pub(super) struct Slot(Arc<OneTable>);

impl Target for Slot {
    type Table = OneTable;

    fn resolve(&self) -> Arc<OneTable> {
        Arc::clone(&self.0)
    }

    fn is_same(&self, other: &Slot) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A batch that commits as it is, without locks, and waits for no space.
impl CommitRequest for &Batch<Slot> {
    fn group(&mut self, largest: u64) -> Result<Group> {
        Group::encode(self, largest)
    }
}

/// A committer with one table.
pub(super) struct Fixture {
    pub(super) machine: Machine,
    pub(super) committer: Committer,
    pub(super) table: Arc<OneTable>,
    pub(super) target: Slot,
    pub(super) region: Arc<Region>,
    pub(super) zones: Arc<ZonePool>,
}

impl Fixture {
    /// One over persistent memory (`dax`) or a file.
    /// The ticket of a group, with the zone that it needs.
    pub(super) fn ticket_of(&self, group: &Group) -> Ticket<'_> {
        loop {
            match self.committer.take_ticket(group, &mut |_| ()) {
                Ok(ticket) => return ticket,
                Err(WriteStep::LinkZone { stream, len }) => {
                    self.committer.make_standby(stream, len, group.frees()).unwrap();
                }
                Err(step) => panic!("a write would have to {step:?}"),
            }
        }
    }

    pub(super) fn new(dax: bool) -> Fixture {
        Fixture::of_units(dax, 4)
    }

    /// One over a region of so many units of 128 KiB.
    pub(super) fn of_units(dax: bool, units: u32) -> Fixture {
        let geometry = Geometry { unit: 128 << 10, zone_slots: units, units, target: units };
        let machine = if dax { Machine::with_memory() } else { Machine::with_files() };
        let media = match machine.make_memory(geometry.region_len()) {
            Some(memory) => Media::Simulated(memory),
            None => {
                let path = Path::new("region");
                let file = machine.files().open(path, OpenHow::CreateNew).unwrap();
                file.preallocate(0, geometry.region_len()).unwrap();
                // Its name is as durable as its bytes will be.
                machine.files().sync_directory(Path::new("")).unwrap();
                Media::File(file)
            }
        };
        let region = Region::new(media, Path::new("region"), geometry.region_len()).unwrap();
        let mut dirty = StreamPool::format(&region);
        dirty.extend(ZonePool::format(&region, geometry));
        let shared = StreamObject { stream: 0, generation: 0, kind: StreamKind::Shared };
        dirty.extend(StreamPool::take(&region, &shared));
        dirty.push(Floor::default().store(&region));
        dirty.push(Floor { number: 1, ..Floor::default() }.store(&region));
        region.persist(dirty).unwrap();
        let region = Arc::new(region);
        let (zones, ..) = ZonePool::open(&region, geometry).unwrap();
        let start = Start {
            feeds: None,
            last: 0,
            incarnation: 1,
            floor: Floor::default(),
            streams: vec![StreamTail::default()],
            cleaner: None,
            gidx: vec![None],
        };
        let zones = Arc::new(zones);
        let table = Arc::new(OneTable::new(1, 0, &region));
        let visible = Arc::new(Watermark::new(0));
        let poison = Arc::new(Poison::default());
        Fixture {
            machine,
            committer: Committer::new(
                Arc::clone(&region),
                Arc::clone(&zones),
                visible,
                poison,
                start,
            ),
            region,
            zones,
            target: Slot(Arc::clone(&table)),
            table,
        }
    }

    /// Another table, on a stream of its own.
    pub(super) fn second_table(&self) -> (Arc<OneTable>, Slot) {
        let stream = self.committer.open_stream().unwrap();
        let table = Arc::new(OneTable::new(2, stream, &self.region));
        (Arc::clone(&table), Slot(table))
    }

    /// From now on zones have no salts.
    #[cfg(not(feature = "loom"))]
    pub(super) fn without_salts(&self) {
        self.zones.salts.draw_none();
    }

    /// A batch of puts.
    pub(super) fn batch(&self, rows: &[(&str, &str)]) -> Batch<Slot> {
        let mut batch = Batch::default();
        for (key, value) in rows {
            batch.push(&self.target, Kind::Put, key.as_bytes(), value.as_bytes());
        }
        batch
    }

    /// The value of a key at an LSN.
    pub(super) fn get(&self, key: &str, at: Lsn) -> Option<String> {
        self.table.value(key, at)
    }
}
