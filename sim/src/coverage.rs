//! Which operations of the engine were cut, so that a run that missed one says so.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use terrace::testing::{Explored, Machine, Trace};
use terrace::{Database, Durability, Stats};

use crate::violation::Class;

/// Every operation that a full run must have cut.
pub const OPERATIONS: [&str; 49] = [
    "allocate",
    "zone of several units",
    "zone switch",
    "free",
    "stream open",
    "stream close",
    "growth",
    "commit over 1 table",
    "commit over 2 tables",
    "commit over 3 tables",
    "commit over 4 tables",
    "relaxed beside durable",
    "freeze",
    "merge",
    "row table",
    "removal of a row table",
    "change of a container",
    "drain",
    "compaction",
    "trivial moves",
    "clean",
    "spilled commit",
    "drain of a run",
    "bulk load",
    "range delete",
    "values apart",
    "collection of values",
    "create table",
    "drop table",
    "rename table",
    "truncate table",
    "prepare",
    "resolve",
    "journal edit",
    "journal checkpoint",
    "recovery",
    "backup",
    "deletion of a backup",
    "closing",
    "opening",
    "object",
    "deletion of objects",
    "collection of objects",
    "change of the tier",
    "recovery with levels",
    "closing with levels",
    "opening with levels",
    "drop with levels",
    "backup with levels",
];

/// Every call of every file, and every request to an object store, that the engine makes on a
/// simulated machine: a full run with faults must have had each of them fail. The calls of `LOCK`
/// and of the files that are mapped are of real file systems alone (`docs/testing.md`).
pub const CALL_SITES: [&str; 79] = [
    "create region",
    "open region",
    "read region",
    "write region",
    "preallocate region",
    "sync region",
    "remove region",
    "open journal",
    "read journal",
    "write journal",
    "preallocate journal",
    "resize journal",
    "sync journal",
    "rename journal",
    "remove journal",
    "create new journal",
    "write new journal",
    "preallocate new journal",
    "sync new journal",
    "remove new journal",
    "create extents",
    "open extents",
    "read extents",
    "write extents",
    "preallocate extents",
    "punch extents",
    "resize extents",
    "sync extents",
    "remove extents",
    "create marker",
    "open marker",
    "read marker",
    "write marker",
    "sync marker",
    "remove marker",
    "open manifest of a set",
    "read manifest of a set",
    "rename manifest of a set",
    "remove manifest of a set",
    "create new manifest of a set",
    "write new manifest of a set",
    "sync new manifest of a set",
    "remove new manifest of a set",
    "create extents of a set",
    "open extents of a set",
    "read extents of a set",
    "write extents of a set",
    "preallocate extents of a set",
    "punch extents of a set",
    "resize extents of a set",
    "sync extents of a set",
    "create directory of a database",
    "list of a database",
    "sync directory of a database",
    "create directory of a set",
    "list of a set",
    "sync directory of a set",
    "create directory above",
    "list above",
    "sync directory above",
    "sync directory of a region",
    "create ends of objects",
    "open ends of objects",
    "read ends of objects",
    "write ends of objects",
    "create known fence",
    "open known fence",
    "read known fence",
    "write known fence",
    "put objects",
    "upload objects",
    "get objects",
    "look at objects",
    "delete objects",
    "list objects",
    "put fence",
    "replace fence",
    "get fence",
    "look at fence",
];

include!(concat!(env!("OUT_DIR"), "/sites.rs"));

/// What runs did, added up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    pub seeds: u64,
    /// Moments at which power was cut.
    pub cuts: u64,
    /// Of them, those on machines without persistent memory.
    pub file_cuts: u64,
    /// Images that were opened and checked, each once a moment of acknowledgement.
    pub checked: u64,
    /// Digests of what was read of them: as many as there were different images.
    pub images: HashSet<u64>,
    /// Images that cuts can leave, of those that were tried.
    pub made: u64,
    /// Moments with more combinations than were tried.
    pub sampled: u64,
    /// Openings that were cut again.
    pub second_cuts: u64,
    /// How often each operation was under test.
    pub operations: BTreeMap<String, u64>,
    /// Places that caused an event while an operation was under test.
    pub sites: BTreeSet<String>,
    /// Those of them that were cut at.
    pub cut_sites: BTreeSet<String>,
    pub violations: Vec<String>,
    /// Of runs in which calls fail.
    pub faults: FaultCoverage,
}

/// What runs did in which calls fail.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FaultCoverage {
    pub seeds: u64,
    /// Lives that followed on an end.
    pub lives: u64,
    /// Errors that calls of a database told.
    pub errors: u64,
    /// Openings that failed, as a call of theirs did.
    pub failed_openings: u64,
    /// Openings without faults: each of them must succeed.
    pub openings: u64,
    /// Images after a failure and a cut that were opened and checked.
    pub checked: u64,
    /// Digests of what was read of them: as many as there were different images.
    pub images: HashSet<u64>,
    /// How often each call was made, and how often it failed.
    pub calls: BTreeMap<String, [u64; 2]>,
}

impl FaultCoverage {
    fn absorb(&mut self, other: FaultCoverage) {
        self.seeds += other.seeds;
        self.lives += other.lives;
        self.errors += other.errors;
        self.failed_openings += other.failed_openings;
        self.openings += other.openings;
        self.checked += other.checked;
        self.images.extend(other.images);
        for (site, [made, failed]) in other.calls {
            let counts = self.calls.entry(site).or_default();
            *counts = [counts[0] + made, counts[1] + failed];
        }
    }

    /// Adds the calls of a machine.
    pub fn count(&mut self, machine: &Machine) {
        for (n, calls) in [machine.calls(), machine.failed_calls()].into_iter().enumerate() {
            for (site, times) in calls {
                self.calls.entry(site.to_string()).or_default()[n] += times;
            }
        }
    }

    pub fn explored(&mut self, explored: &Explored) {
        self.checked += explored.checked;
        self.images.extend(&explored.digests);
    }

    /// Calls that no run made, though the engine can make them.
    pub fn never_made(&self) -> Vec<&str> {
        let is_made = |site: &&str| self.calls.contains_key(*site);
        CALL_SITES.into_iter().filter(|site| !is_made(site)).collect()
    }

    /// Calls that were made and never failed.
    pub fn never_failed(&self) -> Vec<&str> {
        let made = self.calls.iter().filter(|(_, [_, failed])| *failed == 0);
        made.map(|(site, _)| site.as_str()).collect()
    }

    /// Calls that were made and that no list has.
    pub fn unlisted(&self) -> Vec<&str> {
        let made = self.calls.keys().map(String::as_str);
        made.filter(|site| !CALL_SITES.contains(site)).collect()
    }
}

impl Coverage {
    pub fn absorb(&mut self, other: Coverage) {
        self.seeds += other.seeds;
        self.cuts += other.cuts;
        self.file_cuts += other.file_cuts;
        self.checked += other.checked;
        self.images.extend(other.images);
        self.made += other.made;
        self.sampled += other.sampled;
        self.second_cuts += other.second_cuts;
        for (operation, n) in other.operations {
            *self.operations.entry(operation).or_default() += n;
        }
        self.sites.extend(other.sites);
        self.cut_sites.extend(other.cut_sites);
        self.violations.extend(other.violations);
        self.faults.absorb(other.faults);
    }

    pub fn explored(&mut self, explored: &Explored, trace: &Trace, is_files: bool) {
        self.cuts += explored.moments;
        self.file_cuts += if is_files { explored.moments } else { 0 };
        self.checked += explored.checked;
        self.images.extend(&explored.digests);
        self.made += explored.images;
        self.sampled += explored.sampled;
        let name = |site: &terrace::testing::Site| match site.line {
            0 => site.file.to_string(),
            line => format!("{}:{line}", site.file),
        };
        self.sites.extend(trace.sites().keys().map(name));
        self.cut_sites.extend(explored.sites.keys().map(name));
    }

    pub fn count(&mut self, operation: &str, n: u64) {
        debug_assert!(OPERATIONS.contains(&operation), "{operation} is a known operation");
        if n > 0 {
            *self.operations.entry(operation.to_string()).or_default() += n;
        }
    }

    /// Places in the source that store to the region, flush or fence, and those that were seen to
    /// change files.
    pub fn all_sites(&self) -> BTreeSet<String> {
        let of_source = SITES.iter().map(|(file, line)| format!("{file}:{line}"));
        of_source.chain(self.sites.iter().cloned()).collect()
    }

    /// How many violations there are of each class.
    pub fn by_class(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for violation in &self.violations {
            let class = Class::of(violation).map_or("other".to_string(), |class| class.to_string());
            *counts.entry(class).or_default() += 1;
        }
        counts
    }

    /// Operations that no run had under test.
    pub fn missed(&self) -> Vec<&'static str> {
        OPERATIONS.into_iter().filter(|name| !self.operations.contains_key(*name)).collect()
    }
}

/// A look at the counters of a database, to see what happened since.
#[derive(Debug)]
pub struct Before(Stats);

impl Before {
    pub fn of(db: &Database) -> Before {
        Before(db.stats())
    }

    /// Counts what has happened to `db` since.
    pub fn count(&self, db: &Database, written: &[(usize, Durability)], coverage: &mut Coverage) {
        let (before, now) = (&self.0, db.stats());
        let up = |get: fn(&Stats) -> u64| get(&now).saturating_sub(get(before));
        let down = |get: fn(&Stats) -> u64| get(before).saturating_sub(get(&now));
        let taken = |s: &Stats| u64::from(s.pm.zones_used) + s.background.zones_released;
        let streams = |s: &Stats| u64::from(s.pm.streams_used);
        let several = |s: &Stats| u64::from(s.pm.zones_used - s.pm.zones_linked);
        coverage.count("allocate", up(taken));
        coverage.count("zone of several units", up(several));
        coverage.count("zone switch", up(|s| s.commit.zone_switches));
        coverage.count("free", up(|s| s.background.zones_released));
        coverage.count("stream open", up(streams));
        coverage.count("stream close", down(streams));
        coverage.count("growth", u64::from(up(|s| s.pm.capacity) > 0));
        coverage.count("freeze", up(|s| s.background.freezes));
        coverage.count("merge", up(|s| s.background.merges));
        coverage.count("row table", up(|s| s.background.row_tables));
        coverage.count("removal of a row table", up(|s| s.background.row_tables_removed));
        coverage.count("drain", up(|s| s.background.drains));
        coverage.count("compaction", up(|s| s.background.compactions + s.background.moves));
        coverage.count("trivial moves", up(|s| s.background.trivially_moved_extents));
        coverage.count("spilled commit", up(|s| s.commit.spilled_runs));
        coverage.count("drain of a run", up(|s| s.background.spilled_extents));
        let values = |s: &Stats| s.tables.iter().map(|t| t.value_extents).sum();
        coverage.count("values apart", up(values));
        coverage.count("collection of values", up(|s| s.background.collections));
        coverage.count("clean", up(|s| s.background.zones_cleaned));
        coverage.count("object", up(|s| s.objects.as_ref().map_or(0, |o| o.puts)));
        coverage.count("deletion of objects", up(|s| s.objects.as_ref().map_or(0, |o| o.deletes)));
        for tables in 1..=4 {
            let of_many = written.iter().filter(|(n, _)| *n == tables).count() as u64;
            let unit = if tables == 1 { "table" } else { "tables" };
            coverage.count(&format!("commit over {tables} {unit}"), of_many);
        }
        let has = |durability| written.iter().any(|(_, d)| *d == durability);
        let both = has(Durability::Relaxed) && has(Durability::Durable);
        coverage.count("relaxed beside durable", u64::from(both));
    }
}

/// Counts what files tell: edits of the journal, and new epochs of it.
pub fn count_journal(trace: &Trace, coverage: &mut Coverage) {
    for (site, n) in trace.sites() {
        match site.file {
            "sync journal" => coverage.count("journal edit", n),
            "rename journal" => coverage.count("journal checkpoint", n),
            _ => {}
        }
    }
}
