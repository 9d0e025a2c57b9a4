//! The operations under test: each prepares a database and then does one thing to it.

mod disk;
mod levels;
mod objects;
mod overlaid;
mod prepared;

use terrace::testing::Machine;
use terrace::{CommitTuning, Durability};

use crate::content::{Effect, prepared_name};
use crate::cuts::{Account, Rig};
use crate::workload::{Action, Taste};
use Durability::{Durable, Relaxed};
use disk::{operands, ranges, rewrite_until, rows_below, sink, values};
use overlaid::{drain_overlaid, overlay};

pub use levels::with_levels;
pub use prepared::{again, journal, long_journal, many_openings};

/// What a seed puts under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    Commits,
    Switch,
    Sizes,
    Streams,
    Growth,
    Merge,
    Drain,
    Free,
    Clean,
    Tables,
    Checkpoint,
    Buried,
    Spill,
    SpillDrain,
    Load,
    Ranges,
    Values,
    Recovery,
    Joining,
    Mixed,
    Prepared,
    Backup,
    Closing,
    Opening,
    Sinking,
    Overlaid,
    Operands,
    /// Rows go down to objects, and objects take the place of others.
    Cold,
}

use Scenario::*;

pub const SCENARIOS: [Scenario; 28] = [
    Commits, Switch, Sizes, Streams, Growth, Merge, Drain, Free, Clean, Tables, Checkpoint, Buried,
    Spill, SpillDrain, Load, Ranges, Values, Recovery, Joining, Mixed, Prepared, Backup, Closing,
    Opening, Sinking, Overlaid, Operands, Cold,
];

/// How long a journal gets before it has a new epoch.
const JOURNAL_EPOCH: u64 = 1 << 20;

/// A limit of memory under which a compaction of a tiny database writes several extents, between
/// which drains pass: what they write comes to lie over what is merged.
const LITTLE_MEMORY: u64 = 4 << 20;

/// More background jobs than anything here needs.
const MOST_JOBS: u64 = 2000;

impl Scenario {
    /// A database that is about to do it.
    pub fn prepare(self, rig: &mut Rig) {
        match self {
            Commits => prepare_commits(rig),
            Switch | Sizes | Growth | Load => small(rig),
            Merge => {
                small(rig);
                // Enough for some nodes of a tree.
                for _ in 0..rig.chance.below(60) {
                    put_any(rig, Relaxed);
                }
            }
            Streams => {
                small(rig);
                rig.db.tune_commits(CommitTuning::new().own_streams(1));
                let first = 41 + rig.chance.below(40);
                write_in_turn(rig, first, |_| false);
                let busy = rig.chance.percent(50);
                rig.db.tune_commits(CommitTuning::new().own_streams(u32::from(busy)));
            }
            Drain | Tables => half_full(rig),
            Free => {
                half_full(rig);
                steps_until(rig, |rig| rig.db.stats().background.drains > 0);
            }
            Clean => mostly_dead(rig),
            Checkpoint => {}
            Joining => (0..3).for_each(|_| put_any(rig, Relaxed)),
            Buried => bury(rig),
            Spill => small(rig),
            SpillDrain => {
                small(rig);
                spill(rig);
                put_any(rig, Relaxed);
            }
            Ranges | Operands => rows_below(rig, "a"),
            Values => rows_below(rig, "b"),
            Sinking => {
                rows_below(rig, "a");
                rig.close();
                rig.open_within(LITTLE_MEMORY);
                // From here on it goes on and on.
                sink(rig);
            }
            Recovery | Mixed => {
                let acts = 20 + rig.chance.below(60);
                work(rig, acts);
            }
            Prepared => {
                small(rig);
                rig.put("a", "doomed 3", 500, Durable);
                if rig.chance.percent(50) {
                    outlive_a_verdict(rig);
                }
            }
            Backup => half_full(rig),
            Overlaid => overlay(rig),
            Cold => objects::prepare(rig),
            Closing => merged(rig),
            Opening => {
                merged(rig);
                rig.close();
                if rig.chance.percent(50) {
                    miss_an_opening(rig);
                }
            }
        }
    }

    /// Does it.
    pub fn act(self, rig: &mut Rig) {
        match self {
            Commits => commits(rig),
            Switch => switch(rig),
            Sizes => sizes(rig),
            Streams => {
                let streams = rig.db.stats().pm.streams_used;
                write_in_turn(rig, 120, |rig| rig.db.stats().pm.streams_used != streams);
            }
            Growth => grow(rig),
            Merge => {
                put_any(rig, Relaxed);
                steps_until(rig, |rig| rig.db.stats().background.merges > 0);
                put_any(rig, Durable);
            }
            Drain => {
                put_any(rig, Relaxed);
                let drains = rig.db.stats().background.drains;
                steps_until(rig, |rig| rig.db.stats().background.drains > drains);
            }
            Free => {
                let released = rig.db.stats().background.zones_released;
                steps_until(rig, |rig| rig.db.stats().background.zones_released > released);
                put_any(rig, Durable);
            }
            Clean => clean(rig),
            Buried => {
                let drains = rig.db.stats().background.drains;
                rewrite_until(rig, |rig| rig.db.stats().background.drains > drains + 1);
            }
            Spill => {
                put_any(rig, Relaxed);
                spill(rig);
                put_any(rig, Relaxed);
            }
            SpillDrain => {
                let left = |rig: &Rig| rig.db.stats().tables.iter().any(|t| t.spilled_runs > 0);
                steps_until(rig, |rig| !left(rig));
                // What takes the place of the runs' extents.
                spill(rig);
            }
            Load => loads(rig),
            Ranges => ranges(rig),
            Operands => operands(rig),
            Values => values(rig),
            Sinking => sink(rig),
            Overlaid => drain_overlaid(rig),
            Cold => objects::act(rig),
            Tables => tables(rig),
            Checkpoint => (0..30).for_each(|n| rig.create(&format!("{n:0>240}"))),
            Recovery | Joining => panic!("recovery is recorded where it happens"),
            Mixed => {
                let acts = 4 + rig.chance.below(16);
                work(rig, acts);
            }
            Prepared => prepare_and_resolve(rig),
            Backup => back_up(rig),
            Closing => {
                put_any(rig, Relaxed);
                rig.close();
            }
            Opening => {
                rig.open();
                put_any(rig, Durable);
            }
        }
    }
}

impl Scenario {
    /// Whether rows may lie on disk when it begins. The others put some there, or have a history of
    /// their own.
    pub fn may_begin_with_levels(self) -> bool {
        let others =
            [Checkpoint, Joining, Ranges, Operands, Values, Sinking, Buried, Overlaid, Cold];
        !others.contains(&self)
    }

    /// What it has under test where rows lie on disk, in words.
    pub fn operation_with_levels(self) -> Option<&'static str> {
        match self {
            Recovery => Some("recovery with levels"),
            Closing => Some("closing with levels"),
            Opening => Some("opening with levels"),
            Tables => Some("drop with levels"),
            Backup => Some("backup with levels"),
            _ => None,
        }
    }

    /// What it has under test by its name alone, and how often.
    pub fn operations(self) -> &'static [(&'static str, u64)] {
        match self {
            Tables => &[
                ("create table", 1),
                ("drop table", 1),
                ("rename table", 1),
                ("truncate table", 1),
            ],
            Prepared => &[("prepare", 2), ("resolve", 1)],
            Load => &[("bulk load", 3)],
            Ranges => &[("range delete", 1)],
            Overlaid => &[("change of a container", 1)],
            Cold => &[("collection of objects", 1), ("change of the tier", 1)],
            Backup => &[("backup", 3), ("deletion of a backup", 1)],
            Closing => &[("closing", 1)],
            Opening => &[("opening", 1)],
            _ => &[],
        }
    }

    /// What a process leaves that is killed at work, for half of the recoveries.
    pub fn killed(self, rig: &mut Rig) -> Option<(Machine, Account)> {
        if self != Recovery || rig.chance.percent(50) {
            return None;
        }
        rig.machine.kill_before(1 + rig.chance.below(60));
        let taste = any_work(rig);
        rig.work_until_found(&taste, 200)
    }
}

/// Two transactions are prepared in one zone and one of them gets its verdict in a later one,
/// which has nothing alive in it but that, when zones after it have been released.
fn outlive_a_verdict(rig: &mut Rig) {
    rig.perform(&Action::Table(Effect::Prepare(1)));
    rig.perform(&Action::Table(Effect::Prepare(2)));
    switch(rig);
    resolve(rig, 1);
    let released = rig.db.stats().background.zones_released;
    steps_until(rig, |rig| rig.db.stats().background.zones_released > released + 6);
}

/// Rows in level 0, and some above it.
fn merged(rig: &mut Rig) {
    small(rig);
    steps_until(rig, |rig| rig.db.stats().background.merges > 0);
    for _ in 0..rig.chance.below(8) {
        put_any(rig, Relaxed);
    }
}

/// An opening that keeps no persistent index, where there was one.
fn miss_an_opening(rig: &mut Rig) {
    let has_index = rig.db.stats().pm.index == "persistent";
    drop(rig.machine.clone().index(false));
    rig.open();
    put_any(rig, Relaxed);
    rig.close();
    drop(rig.machine.clone().index(has_index));
}

/// A backup with everything in it, and one with what is new, of rows above and below level 0; then
/// the first one goes, and a third one takes the place of what it had alone.
fn back_up(rig: &mut Rig) {
    for n in 0..3 {
        put_any(rig, Relaxed);
        if n == 2 {
            rig.delete_backup();
        }
        rig.back_up();
        let jobs = rig.chance.below(30);
        rig.steps(jobs);
    }
    put_any(rig, Durable);
}

fn resolve(rig: &mut Rig, n: u64) {
    let verdict = if rig.chance.percent(50) { Effect::Commit(n) } else { Effect::RollBack(n) };
    rig.perform(&Action::Table(verdict));
}

fn prepare_and_resolve(rig: &mut Rig) {
    rig.perform(&Action::Table(Effect::Prepare(3)));
    put_any(rig, Relaxed);
    rig.perform(&Action::Table(Effect::Prepare(4)));
    if rig.chance.percent(30) {
        switch(rig);
    }
    resolve(rig, 3);
    rig.steps(6);
    put_any(rig, Relaxed);
    if rig.content.1.contains(&prepared_name(2)) {
        resolve(rig, 2);
    }
    if rig.chance.percent(50) {
        resolve(rig, 4);
    }
    rig.steps(10);
    put_any(rig, Durable);
}

fn any_work(rig: &mut Rig) -> Taste {
    let value = *rig.chance.pick(&[300, 6000, 25_000]);
    Taste { relaxed: 50, tables: 4, steps: 35, value, keys: 120, ranges: 2, syncs: 0 }
}

fn work(rig: &mut Rig, acts: u64) {
    let taste = any_work(rig);
    (0..acts).for_each(|_| rig.act(&taste));
}

fn steps_until(rig: &mut Rig, done: impl Fn(&Rig) -> bool) {
    steps_until_with(rig, |n| ("a", format!("row {}", n % 90)), done);
}

/// The same with rows of another table, or with other keys.
fn steps_until_with(
    rig: &mut Rig,
    row: impl Fn(u64) -> (&'static str, String),
    done: impl Fn(&Rig) -> bool,
) {
    for n in 0..MOST_JOBS {
        if done(rig) || !rig.goes_on() {
            return;
        }
        if !rig.step() {
            // There is nothing to do: something new.
            let (table, key) = row(n);
            rig.put(table, &key, 9000, Relaxed);
        }
    }
    if rig.disturbed().is_none() {
        panic!("{MOST_JOBS} background jobs did not do it: {:?}", rig.db.stats());
    }
}

fn put_any(rig: &mut Rig, durability: Durability) {
    let table = *rig.chance.pick(&["a", "b"]);
    let key = format!("row {}", rig.chance.below(90));
    let len = rig.chance.below(400) as usize;
    rig.put(table, &key, len, durability);
}

/// Tables `a` and `b`, if they are not there.
fn two_tables(rig: &mut Rig) {
    for name in ["a", "b"] {
        if !rig.content.0.contains_key(name) {
            rig.create(name);
        }
    }
}

/// Two tables with a few rows.
fn small(rig: &mut Rig) {
    two_tables(rig);
    for _ in 0..1 + rig.chance.below(8) {
        let durability = *rig.chance.pick(&[Durable, Relaxed]);
        put_any(rig, durability);
    }
}

fn prepare_commits(rig: &mut Rig) {
    small(rig);
    rig.create("c");
    rig.create("d");
    if rig.chance.percent(75) {
        rig.db.tune_commits(CommitTuning::new().own_streams(1));
        // Commits over several tables have parts in two streams then.
        write_in_turn(rig, 100, |rig| rig.db.stats().pm.streams_used > 1);
    }
    // Where in the sixteen groups of a floor the commits fall.
    for _ in 0..rig.chance.below(16) {
        put_any(rig, Durable);
    }
}

/// Commits over one to four tables, relaxed beside durable.
fn commits(rig: &mut Rig) {
    for _ in 0..5 {
        let mut tables = vec!["a", "b", "c", "d"];
        for _ in 0..rig.chance.below(4) {
            let gone = rig.chance.below(tables.len() as u64) as usize;
            tables.remove(gone);
        }
        let effects = tables.into_iter().map(|table| {
            let key = format!("row {}", rig.chance.below(20)).into_bytes();
            if rig.chance.percent(25) {
                return Effect::Delete(table.into(), key);
            }
            let len = *rig.chance.pick(&[3, 40, 90, 300, 1200]);
            Effect::Put(table.into(), key, rig.chance.bytes(len))
        });
        let effects: Vec<Effect> = effects.collect();
        let durability = *rig.chance.pick(&[Durable, Relaxed]);
        rig.perform(&Action::Write(effects, durability));
    }
}

fn switch(rig: &mut Rig) {
    let switches = rig.db.stats().commit.zone_switches;
    for n in 0..40 {
        let len = 10_000 + rig.chance.below(50_000) as usize;
        rig.put("a", &format!("fill {n}"), len, Relaxed);
        if rig.db.stats().commit.zone_switches > switches || !rig.goes_on() {
            break;
        }
    }
    put_any(rig, Durable);
}

/// Zones of one unit and of two, which a batch takes that fits no smaller one, until some go.
fn sizes(rig: &mut Rig) {
    for n in 0..6 {
        let len = *rig.chance.pick(&[140_000, 230_000, 60_000]);
        rig.put(["a", "b"][n % 2], &format!("large {}", n % 3), len, Relaxed);
        rig.steps(3);
    }
    put_any(rig, Durable);
}

/// Two busy tables in turn.
fn write_in_turn(rig: &mut Rig, rounds: u64, done: impl Fn(&Rig) -> bool) {
    for n in 0..rounds {
        if done(rig) || !rig.goes_on() {
            break;
        }
        let table = ["a", "b"][(n / 40 % 2) as usize];
        rig.put(table, &format!("{n}"), 3000, Durable);
        rig.steps(50);
    }
}

fn grow(rig: &mut Rig) {
    put_any(rig, Relaxed);
    rig.grow(512 << 10);
    put_any(rig, Relaxed);
    put_any(rig, Durable);
}

/// A region that is half full.
fn half_full(rig: &mut Rig) {
    small(rig);
    let mut n = 0;
    while rig.db.stats().pm.zones_used < 7 {
        let len = 4000 + rig.chance.below(9000) as usize;
        let key = format!("row {}", rig.chance.below(90));
        if rig.chance.percent(10) {
            let delete = Effect::Delete(["a", "b"][n % 2].into(), key.into_bytes());
            rig.perform(&Action::Write(vec![delete], Relaxed));
        } else {
            rig.put(["a", "b"][n % 2], &key, len, Relaxed);
        }
        n += 1;
    }
}

/// A region close to half full in which each zone has one cold record, the others of which are
/// superseded.
fn mostly_dead(rig: &mut Rig) {
    two_tables(rig);
    let mut n = 0;
    while rig.db.stats().pm.zones_used < 7 {
        if n % 18 == 0 {
            rig.put("b", &format!("cold {n}"), 50, Relaxed);
        }
        rig.put("a", &format!("hot {}", n % 4), 6500, Relaxed);
        // Nothing calls for cleaning yet: freezes and merges.
        rig.steps(1);
        n += 1;
    }
}

/// Rows at the bottom of two levels, and above them, in the region, their tombstones.
fn bury(rig: &mut Rig) {
    small(rig);
    let depth = |rig: &Rig| rig.db.stats().tables.iter().map(|t| t.levels.len()).max();
    rewrite_until(rig, |rig| depth(rig) >= Some(2));
    for n in (0..90).filter(|n| n % 5 < 2) {
        let delete = Effect::Delete("a".into(), format!("row {n}").into_bytes());
        rig.perform(&Action::Write(vec![delete], Relaxed));
    }
}

fn clean(rig: &mut Rig) {
    let cleaned = rig.db.stats().background.zones_cleaned;
    for n in 0..200 {
        if rig.db.stats().background.zones_cleaned > cleaned || !rig.goes_on() {
            break;
        }
        rig.put("a", &format!("hot {}", n % 4), 16_000, Relaxed);
        rig.steps(1);
    }
    rig.steps(4);
}

/// A transaction over two tables that does not fit in memory, and a batch that does not fit in a
/// zone.
fn spill(rig: &mut Rig) {
    let large = rig.chance.percent(30);
    let effects = (0..24 + rig.chance.below(12)).map(|n| {
        let table = ["a", "b"][(n % 3 / 2) as usize];
        let row = rig.chance.below(90);
        let key = format!("row {row}").into_bytes();
        match rig.chance.below(12) {
            0 | 1 => Effect::Delete(table.into(), key),
            // Often of one digit more: ten rows.
            2 => Effect::DeleteRange(table.into(), key, Some(format!("row {row}:").into())),
            _ => {
                let len = if large { 16_000 } else { 1 + rig.chance.below(1500) as usize };
                Effect::Put(table.into(), key, rig.chance.bytes(len))
            }
        }
    });
    let effects: Vec<Effect> = effects.collect();
    if large {
        rig.perform(&Action::Write(effects, Durable));
    } else {
        rig.transact(effects);
    }
}

/// Loads among other writes; extents of them get their places, some are merged.
fn loads(rig: &mut Rig) {
    for _ in 0..3 {
        let (from, every) = (rig.chance.below(60), 1 + rig.chance.below(6));
        let keys = (from..from + 30).step_by(every as usize);
        let row =
            |n| (format!("row {n}").into_bytes(), rig.chance.bytes(1 + n as usize * 97 % 2000));
        let rows = keys.map(row).collect();
        rig.load(["a", "b"][from as usize % 2], rows);
        put_any(rig, Relaxed);
        let jobs = rig.chance.below(30);
        rig.steps(jobs);
    }
    let left = |rig: &Rig| rig.db.stats().tables.iter().any(|t| t.spilled_runs > 0);
    steps_until(rig, |rig| !left(rig));
}

fn tables(rig: &mut Rig) {
    rig.create("c");
    rig.put("c", "in c", 100, Relaxed);
    rig.perform(&Action::Table(Effect::Truncate("a".into())));
    rig.put("a", "after", 100, Relaxed);
    rig.perform(&Action::Table(Effect::Rename("a".into(), "z".into())));
    rig.perform(&Action::Table(Effect::Drop("b".into())));
    rig.put("c", "last", 100, Relaxed);
    rig.steps(30);
}
