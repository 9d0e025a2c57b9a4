//! What to look at first.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::units::{grouped, share, size, time};

/// A number to look at first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookFirst {
    /// What it is of.
    pub name: String,
    /// The number.
    pub value: String,
    /// What it means.
    pub remark: String,
}

fn waiting(pace: &Value, seconds: f64) -> String {
    let waiting = pace["waiting"].as_u64().unwrap_or(0);
    let why = pace["stuck"].as_str().or(pace["reason"].as_str()).unwrap_or("none");
    let why = if why == "none" { "no zone is free" } else { why };
    format!("{}: {why}", waiting_now(waiting, seconds))
}

/// Who waits now, and for how long there was always one who did.
pub(super) fn waiting_now(waiting: u64, seconds: f64) -> String {
    let wait = if waiting == 1 { "waits" } else { "wait" };
    format!("{} {wait} now, one or another for {}", grouped(waiting), time(seconds))
}

/// The three numbers to look at first: whether writers wait and why, how full the region is, and
/// how many blocks are found in memory. They are of statistics in JSON.
pub fn look_first(stats: &Value) -> Vec<LookFirst> {
    let number = |place: &str| stats.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    let line = |name: &str, value, remark| LookFirst { name: name.to_owned(), value, remark };
    let reason = stats.pointer("/pace/reason").and_then(Value::as_str).unwrap_or("none");
    let waited = stats.pointer("/commit/throttled_ms").and_then(Value::as_f64).unwrap_or(0.0);
    let waited = format!("{} ms", grouped(waited.round() as u64));
    let now = match (number("/pace/waiting"), stats.pointer("/pace/waiting_ms")) {
        (1.., Some(ms)) => waiting(&stats["pace"], ms.as_f64().unwrap_or(0.0) / 1e3),
        _ => format!("reason to wait now: {reason}"),
    };
    let now = format!("of waiting since this opening; {now}");
    let units = number("/pm/zones");
    let live = share(number("/pm/zones_live"), units);
    let taken = size(number("/pm/capacity"));
    let taken = format!("of {taken} is taken; {live} has records that count");
    let (hits, misses) = (number("/cache/hits"), number("/cache/misses"));
    let found = format!("of {} blocks that were read were in the cache", grouped(hits + misses));
    vec![
        line("writers", waited, now),
        line("region", share(number("/pm/zones_used"), units), taken),
        line("cache", share(hits, hits + misses), found),
    ]
}
