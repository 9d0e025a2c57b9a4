//! `memtable`: the index beside its peers. Every index maps a key to the offset of a record, and
//! every timed operation reads the record: a lookup reads the value, a scan all 100 of them. All
//! keys are inserted, a quarter of them is looked up and a hundredth begins a scan: reads have no
//! state that more of them would fill. The persistent index is no peer: it shows what is paid for a
//! restart without a rebuild.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use terrace::bench::Arena;

use crate::Settings;
use crate::indexes::{Kind, OffsetIndex};
use crate::random::Random;
use crate::report::Report;

/// Bytes of a value.
const VALUE: usize = 100;

/// Rows that a scan reads.
const ROWS: usize = 100;

/// Of so many keys one is looked up.
const LOOKUPS: usize = 4;

/// And of so many keys that are looked up one begins a scan.
const SCANS: usize = 25;

/// Operations that one thread does.
struct Share<'a, const N: usize> {
    index: &'a dyn OffsetIndex,
    arena: &'a Arena,
    keys: &'a [[u8; N]],
    offsets: &'a [u64],
}

pub(crate) fn measure(settings: &Settings, report: &mut Report) -> Result<()> {
    for round in 0..settings.rounds_within(1) {
        let seed = settings.seed + u64::from(round);
        sized::<8>(settings, report, seed, |random| random.next().to_be_bytes())?;
        // As text, the way many applications have their keys.
        sized::<24>(settings, report, seed, |random| {
            let mut key = *b"user00000000000000000000";
            let digits = random.next().to_string();
            key[24 - digits.len()..].copy_from_slice(digits.as_bytes());
            key
        })?;
    }
    ratios(settings, report);
    Ok(())
}

fn threads() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [1, 2, 16].into_iter().filter(|threads| *threads <= cores.max(2)).collect()
}

fn case(key: usize, threads: usize) -> String {
    format!("{key}-byte keys, {threads} threads")
}

fn sized<const N: usize>(
    settings: &Settings,
    report: &mut Report,
    seed: u64,
    mut key: impl FnMut(&mut Random) -> [u8; N],
) -> Result<()> {
    let count = settings.pick(200_000, 1_000_000, 5_000_000);
    let mut random = Random::new(seed);
    let keys: Vec<[u8; N]> = (0..count).map(|_| key(&mut random)).collect();
    let record = (24 + N + VALUE).next_multiple_of(8);
    // Twice: the records that are there, and those that the timed inserts append.
    let mut arena = Arena::new(&settings.dir, 2 * (count * record) as u64 + (1 << 20))?;
    let mut buffer = Vec::new();
    let mut append = |key: &[u8; N]| arena.append(key, 1, &[7; VALUE], &mut buffer);
    let offsets: Vec<u64> = keys.iter().map(&mut append).collect();
    // The first touch of the rest's pages belongs to no index.
    for key in &keys {
        append(key);
    }
    arena.truncate(offsets[count - 1] + record as u64);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for i in (1..count).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let looked_up = order[..count / LOOKUPS].iter();
    let lookups: Vec<[u8; N]> = looked_up.map(|i| keys[*i as usize]).collect();
    for threads in threads() {
        for kind in Kind::ALL {
            let name = case(N, threads);
            if !settings.wants(&name, kind.name()) || !kind.takes(N) {
                continue;
            }
            if !kind.is_built() {
                report.not_built(kind.name());
                continue;
            }
            let run = Run { kind, threads, case: name, keys: &keys, offsets: &offsets };
            run.measure(&mut arena, &lookups, report)?;
        }
    }
    Ok(())
}

struct Run<'a, const N: usize> {
    kind: Kind,
    threads: usize,
    case: String,
    keys: &'a [[u8; N]],
    offsets: &'a [u64],
}

impl<const N: usize> Run<'_, N> {
    fn measure(&self, arena: &mut Arena, lookups: &[[u8; N]], report: &mut Report) -> Result<()> {
        let (name, count) = (self.kind.name(), self.keys.len() as f64);
        let mut add = |metric, value, unit| report.add(&self.case, name, metric, value, unit);

        let tail = arena.tail();
        let index = self.kind.create::<N>(arena)?;
        let took = self.together(&*index, arena, self.keys, appending_inserts)?;
        add("append+insert", count / took.as_secs_f64() / 1e6, "Mop/s");
        drop(index);
        arena.truncate(tail);

        let before = allocated();
        let index = self.kind.create::<N>(arena)?;
        let took = self.together(&*index, arena, self.keys, inserts)?;
        add("insert", count / took.as_secs_f64() / 1e6, "Mop/s");
        let taken = (allocated() - before) as u64 + index.persistent_bytes();
        add("memory", taken as f64 / count, "B/key");

        let took = self.together(&*index, arena, lookups, gets)?;
        add("get", lookups.len() as f64 / took.as_secs_f64() / 1e6, "Mop/s");

        let from = starts(lookups, self.keys);
        let took = self.together(&*index, arena, &from, scans)?;
        add("scan of 100", from.len() as f64 / took.as_secs_f64() / 1e3, "kop/s");
        Ok(())
    }

    /// Runs `work` on all threads, each with its share of the keys.
    fn together(
        &self,
        index: &dyn OffsetIndex,
        arena: &Arena,
        keys: &[[u8; N]],
        work: fn(&Share<'_, N>) -> Result<()>,
    ) -> Result<Duration> {
        let each = keys.len().div_ceil(self.threads);
        let from = Instant::now();
        std::thread::scope(|scope| {
            let shares = keys.chunks(each).zip(self.offsets.chunks(each));
            let workers: Vec<_> = shares
                .map(|(keys, offsets)| {
                    scope.spawn(move || work(&Share { index, arena, keys, offsets }))
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        Ok(from.elapsed())
    }
}

/// Keys that scans begin at, so far from the end that there are all the rows behind each.
fn starts<const N: usize>(lookups: &[[u8; N]], keys: &[[u8; N]]) -> Vec<[u8; N]> {
    let mut sorted = keys.to_vec();
    let last = sorted.len() - ROWS;
    let (_, last, _) = sorted.select_nth_unstable(last);
    lookups[..lookups.len() / SCANS].iter().filter(|key| *key <= last).copied().collect()
}

fn inserts<const N: usize>(share: &Share<'_, N>) -> Result<()> {
    for (key, at) in share.keys.iter().zip(share.offsets) {
        share.index.insert(key, *at);
    }
    Ok(())
}

fn appending_inserts<const N: usize>(share: &Share<'_, N>) -> Result<()> {
    let mut buffer = Vec::with_capacity(256);
    for key in share.keys {
        let at = share.arena.append(key, 1, &[7; VALUE], &mut buffer);
        share.index.insert(key, at);
    }
    Ok(())
}

fn gets<const N: usize>(share: &Share<'_, N>) -> Result<()> {
    let mut sum = 0;
    for key in share.keys {
        let at = share.index.get(key).context("a key is missing")?;
        sum += read(share.arena, at);
    }
    std::hint::black_box(sum);
    Ok(())
}

fn scans<const N: usize>(share: &Share<'_, N>) -> Result<()> {
    let mut sum = 0;
    for key in share.keys {
        let mut rows = 0;
        let mut show = |at| {
            sum += read(share.arena, at);
            rows += 1;
        };
        share.index.scan(key, ROWS, &mut show);
        ensure!(rows == ROWS, "a scan showed {rows} of {ROWS} records");
    }
    std::hint::black_box(sum);
    Ok(())
}

/// Reads a record: a byte of each end of its value.
fn read(arena: &Arena, at: u64) -> u64 {
    let (_, value) = arena.read(at);
    u64::from(value[0]) + u64::from(value[VALUE - 1])
}

/// Bytes that the allocator has given out.
fn allocated() -> usize {
    // SAFETY: `mallinfo2` has no arguments and only reads the allocator's own counts.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// The ratios that the expectations are about.
fn ratios(settings: &Settings, report: &mut Report) {
    const METRICS: [(&str, &str, &str); 4] = [
        ("append+insert", "append+insert of best peer", "append+insert of skip list"),
        ("insert", "insert of best peer", "insert of skip list"),
        ("get", "get of best peer", "get of skip list"),
        ("scan of 100", "scan of best peer", "scan of skip list"),
    ];
    for key in [8, 24] {
        for threads in threads() {
            let case = case(key, threads);
            if !settings.wants(&case, "terrace") {
                continue;
            }
            for (metric, of_best, of_skip_list) in METRICS {
                let median = |kind: &Kind| report.median(&case, kind.name(), metric);
                let Some(ours) = median(&Kind::Terrace) else { continue };
                let skip_list = median(&Kind::SkipList).unwrap_or(f64::NAN);
                let best = Kind::PEERS.iter().filter_map(median).fold(f64::NAN, f64::max);
                report.add(&case, "terrace", of_best, ours / best, "×");
                report.add(&case, "terrace", of_skip_list, ours / skip_list, "×");
            }
            report.paper(&case, "terrace", "append+insert of skip list", 2.9);
            report.paper(&case, "terrace", "get of skip list", 2.7);
        }
    }
}
