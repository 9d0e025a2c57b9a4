//! `ods`: cache lines flushed, nodes and time of persistent trees, as the source counts them (Yan
//! et al., 2021, tables 2 and 3): one thread, unique random keys, values equal to their keys. `ods`
//! is the source's tree, and `terrace` the same tree with the way of making room that the engine's
//! persistent index has.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use terrace::Mode;
use terrace::bench::Ground;
use terrace_ods::{DeleteOrder, FastFair, OdsTree, PersistentTree, Policy, WbTree};

use crate::Settings;
use crate::random::Random;
use crate::report::Report;

/// Bytes in a region: room for a million keys.
const REGION: u64 = 64 << 20;

/// Keys of the first part.
const KEYS: usize = 50_000;

/// The source's delays for a flushed line, in nanoseconds.
const DELAYS: [u64; 3] = [0, 300, 600];

const SYSTEMS: [&str; 5] = ["ods", "terrace", "fast&fair", "fast&fair published", "wb+"];

fn make(system: &str, path: &Path, delay: u64) -> Result<Box<dyn PersistentTree>> {
    // A region waits for each media block of each range that a fence completes, and a tree flushes
    // line by line: so it waits for each line, the allocator's too.
    let mode = Mode::Emulated { delay: Duration::from_nanos(delay) };
    let ods = |policy| -> Result<Box<dyn PersistentTree>> {
        let ground = Ground::create(path, REGION, mode, OdsTree::NODE)?;
        Ok(Box::new(OdsTree::create(ground, policy)?))
    };
    let fast_fair = |order| -> Result<Box<dyn PersistentTree>> {
        let ground = Ground::create(path, REGION, mode, FastFair::NODE)?;
        Ok(Box::new(FastFair::create(ground, order)?))
    };
    match system {
        "ods" => ods(Policy::OneDirection),
        "terrace" => ods(Policy::Nearest),
        "wb+" => {
            let ground = Ground::create(path, REGION, mode, WbTree::NODE)?;
            Ok(Box::new(WbTree::create(ground)?))
        }
        "fast&fair" => fast_fair(DeleteOrder::Safe),
        _ => fast_fair(DeleteOrder::Published),
    }
}

/// Unique random keys of 62 bits.
struct Keys {
    random: Random,
    used: HashSet<u64>,
}

impl Keys {
    fn new(seed: u64) -> Keys {
        Keys { random: Random::new(seed), used: HashSet::new() }
    }

    fn next(&mut self) -> u64 {
        loop {
            let key = (self.random.next() >> 2) | 1;
            if self.used.insert(key) {
                return key;
            }
        }
    }

    fn take(&mut self, n: usize) -> Vec<u64> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// What a stretch of operations cost.
struct Cost {
    lines: u64,
    flushes: u64,
    time: Duration,
}

fn cost(
    tree: &mut dyn PersistentTree,
    work: impl FnOnce(&mut dyn PersistentTree) -> Result<()>,
) -> Result<Cost> {
    let (lines, flushes, began) = (tree.lines(), tree.flushes(), Instant::now());
    work(tree)?;
    let time = began.elapsed();
    Ok(Cost { lines: tree.lines() - lines, flushes: tree.flushes() - flushes, time })
}

fn insert_all(tree: &mut dyn PersistentTree, keys: &[u64]) -> Result<()> {
    keys.iter().try_for_each(|key| Ok(tree.insert(*key, *key)?))
}

fn delete_all(tree: &mut dyn PersistentTree, keys: &[u64]) -> Result<()> {
    for key in keys {
        ensure!(tree.delete(*key)?, "key {key} is gone");
    }
    Ok(())
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    let shm = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(if shm.is_dir() { shm } else { &settings.dir })?;
    let delays = if settings.quick { &DELAYS[..1] } else { &DELAYS[..] };
    let mixes = MIXES.iter().take(if settings.quick { 1 } else { MIXES.len() });
    for round in 0..settings.rounds_within(1) {
        for delay in delays {
            for system in SYSTEMS {
                let path = dir.path().join(format!("{round}-{delay}-{}", system.replace(' ', "-")));
                for holes in [0, 10, 20] {
                    if settings.wants(&single(holes), system) {
                        let tree = make(system, &path, *delay)?;
                        measure_single(settings, report, (system, *delay, holes), tree)?;
                        std::fs::remove_file(&path)?;
                    }
                }
                for mix in mixes.clone() {
                    if settings.wants(mix.name, system) {
                        measure_mix(settings, report, (system, *delay, mix), &path)?;
                    }
                }
            }
        }
    }
    papers(report);
    super::ods_threads::measure(settings, report, dir.path())
}

fn single(holes: usize) -> String {
    if holes == 0 { "50k+50k".into() } else { format!("50k+50k holes {holes}%") }
}

fn add(report: &mut Report, case: &str, system: &str, delay: u64, n: usize, cost: &Cost) {
    if delay == 0 && cost.lines > 0 {
        report.add(case, system, "lines", cost.lines as f64, "lines");
        let others = cost.flushes.saturating_sub(cost.lines);
        report.add(case, system, "allocator", others as f64, "lines");
    }
    let metric = match delay {
        0 => "time +0",
        300 => "time +300",
        _ => "time +600",
    };
    report.add(case, system, metric, cost.time.as_nanos() as f64 / n as f64, "ns/op");
}

/// Warm-up, inserts, deletes of the warm-up's keys in the order in which they were loaded. With
/// holes, so many more keys are loaded, and deleted at random before anything is counted.
fn measure_single(
    settings: &Settings,
    report: &mut Report,
    (system, delay, holes): (&str, u64, usize),
    mut tree: Box<dyn PersistentTree>,
) -> Result<()> {
    let (tree, mut keys) = (&mut *tree, Keys::new(settings.seed));
    let mut warm = keys.take(KEYS * 100 / (100 - holes));
    insert_all(tree, &warm)?;
    while warm.len() > KEYS {
        let at = keys.random.below(warm.len() as u64) as usize;
        ensure!(tree.delete(warm.remove(at))?, "a key is gone");
    }
    let case = single(holes);
    let new = keys.take(KEYS);
    let inserted = cost(tree, |tree| insert_all(tree, &new))?;
    add(report, &format!("{case} insert"), system, delay, KEYS, &inserted);
    if delay == 0 {
        report.add(&format!("{case} insert"), system, "nodes", tree.nodes() as f64, "nodes");
    }
    let searched = cost(tree, |tree| {
        for key in warm.iter().chain(&new) {
            ensure!(tree.get(*key)? == Some(*key), "key {key} is lost");
        }
        Ok(())
    })?;
    add(report, &format!("{case} search"), system, delay, 2 * KEYS, &searched);
    let deleted = cost(tree, |tree| delete_all(tree, &warm))?;
    add(report, &format!("{case} delete"), system, delay, KEYS, &deleted);
    for key in new.iter().step_by(97) {
        ensure!(tree.get(*key)? == Some(*key), "key {key} is lost");
    }
    Ok(())
}

/// Insert : delete : search, so many operations on so many keys.
struct Mix {
    name: &'static str,
    of_five: [u64; 3],
    operations: usize,
}

const WARM: usize = 500_000;

const MIXES: [Mix; 4] = [
    Mix { name: "3:1:1 0.1M", of_five: [3, 1, 1], operations: 100_000 },
    Mix { name: "3:1:1 0.5M", of_five: [3, 1, 1], operations: 500_000 },
    Mix { name: "1:1:3 0.1M", of_five: [1, 1, 3], operations: 100_000 },
    Mix { name: "1:1:3 0.5M", of_five: [1, 1, 3], operations: 500_000 },
];

fn measure_mix(
    settings: &Settings,
    report: &mut Report,
    (system, delay, mix): (&str, u64, &Mix),
    path: &Path,
) -> Result<()> {
    for holes in [0, 10, 20] {
        let mut tree = make(system, path, delay)?;
        let (tree, mut keys) = (&mut *tree, Keys::new(settings.seed));
        let mut live = keys.take(WARM * 100 / (100 - holes));
        insert_all(tree, &live)?;
        while live.len() > WARM {
            let at = keys.random.below(live.len() as u64) as usize;
            ensure!(tree.delete(live.swap_remove(at))?, "a key is gone");
        }
        let mixed = cost(tree, |tree| {
            for _ in 0..mix.operations {
                let at = keys.random.below(live.len() as u64) as usize;
                match keys.random.below(5) {
                    n if n < mix.of_five[0] => {
                        let key = keys.next();
                        tree.insert(key, key)?;
                        live.push(key);
                    }
                    n if n < mix.of_five[0] + mix.of_five[1] => {
                        ensure!(tree.delete(live.swap_remove(at))?, "a key is gone");
                    }
                    _ => ensure!(tree.get(live[at])? == Some(live[at]), "a key is lost"),
                }
            }
            Ok(())
        })?;
        let holes = if holes == 0 { String::new() } else { format!(" holes {holes}%") };
        add(report, &format!("{}{holes}", mix.name), system, delay, mix.operations, &mixed);
        std::fs::remove_file(path)?;
        if system.starts_with("fast") || system == "wb+" {
            // It leaves no holes.
            break;
        }
    }
    Ok(())
}

/// The figures of the source. Its mixed ones fit about 0.1 M operations.
fn papers(report: &mut Report) {
    let rows = [
        ("50k+50k insert", "ods", "lines", 157_075.0),
        ("50k+50k insert", "fast&fair", "lines", 157_075.0),
        ("50k+50k holes 10% insert", "ods", "lines", 149_358.0),
        ("50k+50k holes 20% insert", "ods", "lines", 141_981.0),
        ("50k+50k insert", "ods", "nodes", 12_182.0),
        ("50k+50k insert", "fast&fair", "nodes", 12_182.0),
        ("50k+50k holes 10% insert", "ods", "nodes", 12_343.0),
        ("50k+50k holes 20% insert", "ods", "nodes", 12_507.0),
        ("50k+50k delete", "ods", "lines", 62_482.0),
        ("50k+50k holes 10% delete", "ods", "lines", 62_343.0),
        ("50k+50k holes 20% delete", "ods", "lines", 62_507.0),
        ("50k+50k delete", "fast&fair", "lines", 158_347.0),
        ("50k+50k insert", "wb+", "lines", 377_204.0),
        ("50k+50k delete", "wb+", "lines", 2_582_854.0),
        ("3:1:1 0.1M", "ods", "lines", 202_798.0),
        ("3:1:1 0.1M holes 10%", "ods", "lines", 187_966.0),
        ("3:1:1 0.1M holes 20%", "ods", "lines", 177_054.0),
        ("3:1:1 0.1M", "fast&fair", "lines", 229_992.0),
        ("1:1:3 0.1M", "ods", "lines", 81_287.0),
        ("1:1:3 0.1M holes 10%", "ods", "lines", 75_841.0),
        ("1:1:3 0.1M holes 20%", "ods", "lines", 71_447.0),
        ("1:1:3 0.1M", "fast&fair", "lines", 109_619.0),
        ("3:1:1 0.1M", "wb+", "lines", 1_217_410.0),
        ("1:1:3 0.1M", "wb+", "lines", 974_465.0),
    ];
    for (case, system, metric, value) in rows {
        report.paper(case, system, metric, value);
    }
}
