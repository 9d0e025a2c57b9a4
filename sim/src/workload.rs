//! Random work for the power-cut rig: what to do next, given what there is.

use terrace::Durability;

use crate::chance::Chance;
use crate::content::{Content, Effect};

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Action {
    /// One commit.
    Write(Vec<Effect>, Durability),
    /// Create, drop, rename or truncate; prepare or resolve. Durable by itself.
    Table(Effect),
    /// Up to so many background jobs.
    Steps(u64),
    /// Makes relaxed commits durable.
    Sync,
}

/// How a workload leans.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Percentage of commits that are relaxed.
    pub relaxed: u64,
    /// Percentage of actions on tables as such.
    pub tables: u64,
    /// Percentage of actions that are background jobs.
    pub steps: u64,
    /// Values are shorter than this.
    pub value: u64,
    /// Different keys.
    pub keys: u64,
    /// Percentage of writes that delete a range.
    pub ranges: u64,
    /// Percentage of actions that make relaxed commits durable.
    pub syncs: u64,
}

impl Default for Taste {
    fn default() -> Taste {
        Taste { relaxed: 40, tables: 2, steps: 20, value: 12_000, keys: 200, ranges: 2, syncs: 0 }
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A table with a time to live, if there is one: it takes no operands, and keeps its name.
pub const AGING: &str = "aging";

/// The next action, possible for `content`.
pub fn next(chance: &mut Chance, taste: &Taste, content: &Content) -> Action {
    let dice = chance.below(100);
    if content.0.is_empty() || dice < taste.tables {
        return Action::Table(table_action(chance, content));
    }
    if dice < taste.tables + taste.steps {
        return Action::Steps(1 + chance.below(6));
    }
    if taste.syncs > 0 && chance.percent(taste.syncs) {
        return Action::Sync;
    }
    // As many as fit in the largest zone.
    let most = (250_000 / taste.value.max(1)).max(1);
    let operations = if chance.percent(30) { (1 + chance.below(5)).min(most) } else { 1 };
    let effects = (0..operations).map(|_| write(chance, taste, content)).collect();
    let relaxed = chance.percent(taste.relaxed);
    Action::Write(effects, if relaxed { Durability::Relaxed } else { Durability::Durable })
}

fn table_action(chance: &mut Chance, content: &Content) -> Effect {
    let there = content.names();
    let missing: Vec<&str> =
        NAMES.into_iter().filter(|name| !content.0.contains_key(*name)).collect();
    if there.is_empty() {
        return Effect::Create(chance.pick(&missing).to_string());
    }
    let table = chance.pick(&there).clone();
    match chance.below(4) {
        0 if there.len() > 1 => Effect::Drop(table),
        1 if !missing.is_empty() && table != AGING => {
            Effect::Rename(table, chance.pick(&missing).to_string())
        }
        2 => Effect::Truncate(table),
        _ if !missing.is_empty() => Effect::Create(chance.pick(&missing).to_string()),
        _ => Effect::Truncate(table),
    }
}

fn write(chance: &mut Chance, taste: &Taste, content: &Content) -> Effect {
    let table = chance.pick(&content.names()).clone();
    let number = chance.below(taste.keys);
    let name = |number: u64| format!("key {number:03}").into_bytes();
    let key = name(number);
    if chance.percent(25) {
        return Effect::Delete(table, key);
    }
    if taste.ranges > 0 && chance.percent(taste.ranges) {
        let end = name(number + 1 + chance.below(taste.keys / 16));
        // Behind all of these keys, but not behind those of prepared transactions.
        let last = b"key :".to_vec();
        return Effect::DeleteRange(table, key, Some(if chance.percent(3) { last } else { end }));
    }
    if chance.percent(20) && table != AGING {
        let len = chance.below(30);
        return Effect::Merge(table, key, chance.bytes(len as usize));
    }
    let len = if chance.percent(50) { chance.below(40) } else { chance.below(taste.value) };
    Effect::Put(table, key, chance.bytes(len as usize))
}
