//! What an opening reads and makes durable before anything is indexed: the fixed parts of the
//! region (step 1), the journal (step 2), and what was found, with the opening's incarnation (step
//! 4). It learns here where objects are. The object store is asked for nothing, so a database opens
//! while its store is away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::index_file::{self, FoundIndex, IndexFile};
use super::{Opening, media};
use crate::base::error::{Damage, Error, Mismatch, Result};
use crate::base::options::{Failpoint, Index, Options, Storage};
use crate::base::progress::Meter;
use crate::base::record::Lsn;
use crate::commit::{Evidence, Floor, Gidx, RESUME, Recovered, Resume};
use crate::engine::catalog::READER_TABLE;
use crate::os::{Files, Unread};
use crate::pindex::forest::Forest;
use crate::pm::alloc::{ZonePool, ZoneScan};
use crate::pm::{Lived, Region, Span, Superblock};
#[cfg(any(test, feature = "testing", feature = "bench"))]
use crate::storage::Distance;
use crate::storage::{ExtentStore, ObjectClient, ObjectId, ObjectSettings, Planted, open_client};
use crate::version::{FoundEdits, JournalFloor, VersionSet};

/// The region, loaded as far as its fixed parts.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) region: Arc<Region>,
    pub(crate) superblock: Superblock,
    pub(crate) floor: Floor,
    pub(crate) damages: Vec<Damage>,
}

impl Loaded {
    /// What recovery goes by, on one thread, without a persistent index. `durable` is what the
    /// journal knows.
    pub(crate) fn evidence<'a>(
        &'a self,
        (scans, gidx): (&'a [ZoneScan], &'a [Option<Gidx>]),
        durable: Lsn,
    ) -> Evidence<'a> {
        Evidence {
            region: &self.region,
            geometry: self.superblock.geometry,
            floor: self.floor,
            durable,
            incarnations: &self.superblock.incarnations,
            merged: 0,
            scans,
            gidx,
            threads: 1,
            did: &|_| Ok(()),
            check_payloads: true,
            is_written: false,
        }
    }
}

impl Opening<'_> {
    /// Step 1.
    pub(crate) fn load(&self) -> Result<Loaded> {
        self.load_with(None)
    }

    /// As [`Opening::load`], for a salvage: what cannot be read of the region, now or later, is no
    /// error but in [`Region::unread`], and so is what a file that was cut short lacks. Without a
    /// floor it is as if nothing had been decided.
    pub(crate) fn load_readable(&self) -> Result<Loaded> {
        self.load_with(Some(Vec::new()))
    }

    fn load_with(&self, mut unread: Option<Vec<Unread>>) -> Result<Loaded> {
        let path = media::path(self.path, self.options);
        let (media, len) = media::open(&self.files, &path, self.read_only, self.options)?;
        let head = media.head(&path, len.min(Superblock::span().len), unread.as_mut())?;
        let damage = |offset, expected: String, got: String| {
            Mismatch::new(expected, got).at("region", "pm", &path, offset)
        };
        if let Some(unread) = &unread
            && !Superblock::is_region(&head)
            && (!unread.is_empty() || self.options.pm_path.is_none())
        {
            let got = unread.first().map_or("none".into(), |unread| unread.error.clone());
            return Err(Error::corrupt(damage(0, "a superblock in one of two copies".into(), got)));
        }
        let (superblock, damaged) = Superblock::read(&head, &path)?;
        let expected = superblock.geometry.region_len();
        // Longer: it was about to grow when the power went.
        let short = (len < expected)
            .then(|| damage(len, format!("{expected} bytes"), format!("{len} bytes")));
        if let Some(short) = short.as_ref().filter(|_| unread.is_none() || !media.is_file()) {
            return Err(Error::corrupt(short.clone()));
        }
        let room = superblock.geometry.greatest_len();
        debug_assert!(expected <= room, "a region has room for what it can grow to");
        let mut region = Region::with_room(media, &path, expected, room)?;
        let reads_past = unread.is_some();
        if let Some(unread) = unread {
            region.set_unread(unread);
        }
        #[cfg(any(test, feature = "testing"))]
        region.set_failpoint(self.options.failpoint);
        region.load(Span { at: 0, len: superblock.geometry.zones_start() })?;
        let (floor, slot_damage) = match Floor::load(&region) {
            Err(error) if reads_past => (Floor::default(), error.damage().map(without_floor)),
            found => {
                let (mut floor, damage) = found?;
                // The opening that wrote it had decided all up to there. The other slot may be
                // older.
                floor.lsn = floor.lsn.max(superblock.lsn_base);
                (floor, damage)
            }
        };
        let damages = damaged.into_iter().chain(short).chain(slot_damage).collect();
        Ok(Loaded { region: Arc::new(region), superblock, floor, damages })
    }

    /// Step 2. The floor says something of its own journal alone, so the pair is checked first.
    pub(super) fn journal(
        &self,
        region: &Region,
        (superblock, floor): (&Superblock, &Floor),
    ) -> Result<VersionSet> {
        if let Some(id) = VersionSet::database_id_in(&*self.files, self.path)? {
            check_pair(region, superblock, id)?;
        }
        let mark = JournalFloor { epoch: floor.journal.epoch, number: floor.journal.edit };
        let found = match self.read_only {
            true => FoundEdits::Leave,
            false if self.options.has(Failpoint::KeepFoundEdits) => FoundEdits::Sync,
            false => FoundEdits::Rewrite,
        };
        let set = VersionSet::open(Arc::clone(&self.files), self.path, mark, found)?;
        #[cfg(any(test, feature = "testing"))]
        let set = set.with_failpoint(self.options.failpoint);
        set.know_operators(self.options.operators()?);
        if self.options.caches_blocks_twice() {
            set.store().cache_blocks_in_system();
        }
        if let Some(bytes) = self.options.direct_io_beyond() {
            set.store().use_direct_io_beyond(bytes);
        }
        if !self.options.stepped {
            set.store().go_behind();
        }
        Ok(set)
    }

    pub(crate) fn index_file<'a>(&'a self, records: &'a Arc<Region>) -> IndexFile<'a> {
        let path = index_file::path(self.path, self.options);
        IndexFile { files: &self.files, path, options: self.options, records }
    }

    /// What there is of a persistent index, where one is wanted.
    pub(super) fn find_index(
        &self,
        region: &Arc<Region>,
        superblock: &Superblock,
        meter: &Meter,
    ) -> Result<FoundIndex> {
        match self.wants_index() {
            true => self.index_file(region).find(superblock, (self.threads(), meter)),
            false => Ok(FoundIndex::default()),
        }
    }

    fn wants_index(&self) -> bool {
        self.options.index == Index::Persistent && !self.read_only
    }

    /// The forest that this opening goes on with, where one is wanted; else its file is removed. It
    /// goes on without one where there is no room for it: the records are the truth. The note says
    /// what became of the one that was there.
    pub(super) fn keep_index(
        &self,
        region: &Arc<Region>,
        found: FoundIndex,
        superblock: &Superblock,
    ) -> Result<(Option<Forest>, Option<String>)> {
        let index = self.index_file(region);
        if self.wants_index() {
            let note = found.damage.map(|damage| format!("it was made anew: {damage}"));
            return Ok(match index.begin(found.forest, superblock)? {
                Ok(forest) => (Some(forest), note),
                Err(error) => {
                    (None, Some(format!("there is no room for a persistent one: {error}")))
                }
            });
        }
        if !self.read_only {
            index.remove(superblock)?;
        }
        Ok((None, None))
    }
}

/// What becomes of the records of a region whose floor is lost.
fn without_floor(damage: &Damage) -> Damage {
    let got = format!("{}; without a floor, tails and records say what was committed", damage.got);
    Damage { got, ..damage.clone() }
}

/// Fails when the region and the journal, of the database `journal`, are not of one.
pub(crate) fn check_pair(
    region: &Region,
    superblock: &Superblock,
    journal: [u8; 16],
) -> Result<()> {
    if journal == superblock.database_id {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the region {} and the journal beside it belong to different databases; put back the files \
         that belong together",
        region.path().display()
    )))
}

/// What a database names in the object store.
#[derive(Debug, Default)]
pub(crate) struct NamedObjects {
    named: BTreeSet<ObjectId>,
    /// A node's database reads pieces that their writer deletes, also while the node is closed.
    follows: bool,
}

impl NamedObjects {
    pub(crate) fn of(set: &VersionSet) -> NamedObjects {
        let follows = set.tables().iter().any(|table| *table.name == *READER_TABLE);
        NamedObjects { named: set.objects(), follows }
    }
}

impl Opening<'_> {
    /// Tells the extent store of a database where its objects are, if there is an object store.
    pub(crate) fn attach_objects(&self, set: &VersionSet, incarnation: u64) -> Result<()> {
        self.attach_objects_of(set.store(), set.database_id(), NamedObjects::of(set), incarnation)
    }

    /// As [`attach_objects`](Self::attach_objects), of an extent store by itself.
    pub(crate) fn attach_objects_of(
        &self,
        store: &ExtentStore,
        database_id: [u8; 16],
        NamedObjects { named, follows }: NamedObjects,
        incarnation: u64,
    ) -> Result<()> {
        let Some(url) = &self.options.object_store else {
            return match named.len() {
                0 => Ok(()),
                objects => Err(Error::invalid(format!(
                    "{objects} extents of the database in {} are objects, and no object store was \
                     named; open it with the option object_store",
                    self.path.display()
                ))),
            };
        };
        let settings = ObjectSettings {
            url,
            files: &self.files,
            gate: store.gate(),
            simulated: is_simulated(self.options),
            directory: self.path,
            database_id,
            incarnation,
            read_only: self.read_only,
            named,
            planted: planted(self.options),
            events: &self.options.events,
            follows: follows || self.options.stays_far,
            #[cfg(any(test, feature = "testing", feature = "bench"))]
            distance: distance_of(self.options),
        };
        store.attach_objects(settings.open()?);
        Ok(())
    }
}

/// The client of the object store of a URL, for what lies beside a database's objects, and a number
/// that no other opening has. Asks the store for nothing.
pub(crate) fn object_client(
    url: &str,
    options: &Options,
    files: &Arc<dyn Files>,
    number: u64,
) -> Result<(Arc<ObjectClient>, [u8; 16])> {
    open_client(
        (url, is_simulated(options)),
        files,
        (number, &options.events),
        #[cfg(any(test, feature = "testing", feature = "bench"))]
        distance_of(options),
    )
}

#[cfg(any(test, feature = "testing", feature = "bench"))]
fn distance_of(options: &Options) -> Option<Distance> {
    options.distance.map(|(latency, bytes_per_second)| Distance { latency, bytes_per_second })
}

fn is_simulated(options: &Options) -> bool {
    !matches!(options.storage, Storage::Real)
}

fn planted(options: &Options) -> Planted {
    Planted {
        same_epoch: options.has(Failpoint::ReuseOfName),
        unchecked_fence: options.has(Failpoint::SkipFenceCheck),
        unacknowledged: options.has(Failpoint::EditBeforeAcknowledgement),
        keeps_unneeded: options.has(Failpoint::KeepUnneededObjects),
    }
}

/// Writes all that recovery rests on again, durably, and then what this opening adds. Its LSNs are
/// above `lsn_after`. It may be one that `shares`.
pub(super) fn make_durable(
    region: &Region,
    (zones, recovered): (&ZonePool, &mut Recovered),
    superblock: &mut Superblock,
    floor: &mut Floor,
    (lsn_after, shares): (Option<Lsn>, bool),
) -> Result<()> {
    let before = (superblock.incarnations.current, floor.lsn);
    // What was read may have been in a cache only, left there by a process that was killed:
    // also that a zone is free, on which the list of incarnations is about to rest.
    let fixed = Span { at: 0, len: zones.geometry().zones_start() };
    let found = recovered.rewrite.iter().copied().chain([fixed]);
    region.persist(found.map(|span| region.rewrite(span)))?;
    region.persist(recovered.reseal.iter().map(|(zone, len)| zones.reseal(*zone, *len)))?;
    let used = recovered.incarnations();
    let incarnations = &mut superblock.incarnations;
    let has_records = |l: &Lived| used.range(l.first..=l.last).next().is_some();
    incarnations.begin_next(recovered.last, has_records);
    let resumes = resume_zones(zones, recovered, incarnations.current);
    let resume = || resumes.iter().map(|(at, line)| region.write(*at, line));
    if incarnations.is_long() {
        // What is dead must not be found any more once the joined list calls it alive.
        region.persist(resume())?;
        incarnations.join();
    }
    // A takeover has all that the store has.
    let found = superblock.shared_cut.map_or(recovered.last, |cut| cut.min(recovered.last));
    superblock.shared_cut = lsn_after.is_none().then_some(found);
    // An opening that does not share releases zones that the shared store may need.
    superblock.kept = superblock.kept.filter(|_| shares);
    superblock.lsn_base = recovered.seen.max(superblock.lsn_base).max(lsn_after.unwrap_or(0));
    superblock.write(region)?;
    floor.number += 1;
    floor.lsn = superblock.lsn_base;
    floor.incarnation = superblock.incarnations.current;
    debug_assert!(
        before.0 < superblock.incarnations.current,
        "each opening has a number of its own"
    );
    debug_assert!(before.1 <= floor.lsn, "the floor never falls");
    debug_assert!(recovered.last <= floor.lsn, "no LSN is given twice");
    let mut words: Vec<_> = resume().chain([floor.store(region)]).collect();
    for (stream, gidx) in recovered.gidx.iter().enumerate() {
        words.extend(gidx.map(|gidx| gidx.store(region, stream as u32)));
    }
    region.persist(words)?;
    Ok(())
}

/// Lines for the open zones that this opening goes on in: where each goes in the region, and its
/// bytes. Nothing that a crashed opening left behind them checks out any more.
fn resume_zones(
    zones: &ZonePool,
    recovered: &mut Recovered,
    incarnation: u64,
) -> Vec<(u64, Vec<u8>)> {
    let mut lines = Vec::new();
    let salts: BTreeMap<u32, u64> = recovered.open_salts.iter().copied().collect();
    for (stream, number) in recovered.streams.iter_mut().zip(0..) {
        // In a zone that is full nothing lies behind its tail.
        let Some(zone) = stream.zone.filter(|zone| stream.tail < zone.len) else { continue };
        let resume = Resume {
            incarnation,
            zone_generation: zones.generation(zone.number),
            stream: number,
            salt: zones.draw_salt(zone.number, incarnation),
        };
        let before = salts.get(&zone.number).copied().unwrap_or(0);
        let at = zones.geometry().zone(zone.number) + stream.tail;
        debug_assert!(stream.tail.is_multiple_of(RESUME as u64), "a tail is at a line");
        lines.push((at, resume.encode(zone.number, before)));
        stream.skip(RESUME as u64);
    }
    lines
}
