//! The staircase: where the data lies, from the newest to the coldest.

use serde::{Deserialize, Serialize};
use terrace::{LevelStats, Stats};

use super::rates::Rates;
use crate::units::size;

/// A place where data lies, and what comes into it from the place above.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// What comes into it, a second.
    pub flow: String,
    /// Bytes in it.
    pub bytes: u64,
    /// The same with its unit.
    pub size: String,
    /// The part of its bound that is taken, between 0 and 1, where it has a bound.
    pub share: Option<f64>,
    /// The bound, in words.
    pub bound: String,
    /// Look-ups that it answered: how many a second, and its part of those answered on disk.
    pub answered: String,
}

pub(super) fn of(rates: &Rates<'_>) -> Vec<Step> {
    let stats = &rates.now.stats;
    let mut steps = vec![index(rates), region(rates), level1(rates), level2(rates)];
    if stats.objects.is_some() {
        steps.push(objects(rates));
    }
    steps
}

fn step(name: &str, bytes: u64, flow: String) -> Step {
    Step { name: name.to_owned(), bytes, size: size(bytes), flow, ..Step::default() }
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

fn index(rates: &Rates<'_>) -> Step {
    let memory = &rates.now.stats.memory;
    let room = memory.limit.saturating_sub(memory.region) / 4;
    let bound = if room > 0 { format!("of {} of memory", size(room)) } else { String::new() };
    let flow = format!("{} records committed", rates.number(|stats| stats.commit.records));
    Step { share: part(memory.indexes, room), bound, ..step("index", memory.indexes, flow) }
}

fn region(rates: &Rates<'_>) -> Step {
    let pm = &rates.now.stats.pm;
    let taken = u64::from(pm.zones_used) * pm.zone_size;
    let flow = format!("{} appended", rates.bytes(|stats| stats.pm.appended_bytes));
    let bound = format!("of {}", size(pm.capacity));
    Step { share: part(taken, pm.capacity), bound, ..step("region", taken, flow) }
}

fn level1(rates: &Rates<'_>) -> Step {
    let stats = &rates.now.stats;
    // Loads and large commits are merged in later.
    let runs: u64 = stats.tables.iter().map(|table| table.spilled_bytes).sum();
    let bytes = sum(stats, is_level1, |level| level.bytes) + runs;
    let flow = format!("{} written by drains", rates.bytes(|stats| stats.background.drained_bytes));
    Step { answered: answered(rates, is_level1), ..step("level 1", bytes, flow) }
}

fn level2(rates: &Rates<'_>) -> Step {
    let stats = &rates.now.stats;
    let tables = stats.tables.iter();
    let values: u64 = tables.clone().map(|table| table.value_bytes).sum();
    let objects: u64 = tables.map(|table| table.object_bytes).sum();
    let all = sum(stats, is_deeper, |level| level.bytes) + values;
    let written = rates.bytes(|stats| {
        let drained = stats.background.drained_bytes;
        stats.disk.written_bytes.saturating_sub(drained)
    });
    let flow = format!("{written} by compactions and loads");
    let here = all.saturating_sub(objects);
    Step { answered: answered(rates, is_deeper), ..step("level 2 and deeper", here, flow) }
}

fn objects(rates: &Rates<'_>) -> Step {
    let bytes = rates.now.stats.tables.iter().map(|table| table.object_bytes).sum();
    let sent = |stats: &Stats| stats.objects.as_ref().map_or(0, |of| of.sent_bytes);
    let received = |stats: &Stats| stats.objects.as_ref().map_or(0, |of| of.received_bytes);
    let flow = format!("{} sent, {} received", rates.bytes(sent), rates.bytes(received));
    step("object store", bytes, flow)
}

fn is_level1(level: &LevelStats) -> bool {
    level.level == 1
}

fn is_deeper(level: &LevelStats) -> bool {
    level.level > 1
}

/// What some levels of all tables have together.
fn sum(stats: &Stats, is_meant: fn(&LevelStats) -> bool, of: fn(&LevelStats) -> u64) -> u64 {
    let levels = stats.tables.iter().flat_map(|table| &table.levels);
    levels.filter(|level| is_meant(level)).map(of).sum()
}

fn answered(rates: &Rates<'_>, is_meant: fn(&LevelStats) -> bool) -> String {
    let count = |stats: &Stats| sum(stats, is_meant, |level| level.answered);
    let all = sum(&rates.now.stats, |_| true, |level| level.answered);
    let share = part(count(&rates.now.stats), all);
    let share = share.map(|share| format!(", {:.0} % of those on disk", share * 100.0));
    format!("{} look-ups{}", rates.number(count), share.unwrap_or_default())
}
