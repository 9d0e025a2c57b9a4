//! What the tour says, in lines of at most 80 columns.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use terrace::{Database, Stats};

use super::batch::THREADS;
use super::examine::Examined;
use super::judge::Verdict;
use super::kill::Told;
use super::machine::Machine;
use super::source::Source;
use crate::failure::Failure;
use crate::grid::{Align, Grid};
use crate::import::Loaded;
use crate::session::Session;
use crate::text::{clipped, grouped, size};

/// Records printed at the end.
const SHOWN: usize = 10;

type Said = Result<(), Failure>;

/// One round as it is shown and summed up.
pub(super) struct Round {
    acknowledged: u64,
    in_flight: u64,
    missing: u64,
    examined: Examined,
    groups: u64,
    syncs: u64,
}

impl Round {
    /// A round from what the child told and what was found before and after it.
    pub(super) fn new(told: &Told, before: Option<&Examined>, now: &Examined) -> Round {
        let Verdict { lost, torn, wrong, invented, out_of_order, .. } = now.verdict;
        let earlier = before.map_or(0, |before| before.verdict.in_flight);
        Round {
            acknowledged: told.acknowledged,
            in_flight: now.verdict.in_flight.saturating_sub(earlier),
            missing: lost + torn + wrong + invented + out_of_order,
            examined: *now,
            groups: told.groups,
            syncs: told.syncs,
        }
    }
}

/// All that the closing words are about.
pub(super) struct Summary {
    pub(super) stats: Stats,
    pub(super) source: Source,
    pub(super) loaded: Loaded,
    pub(super) took: Duration,
    pub(super) seed: u64,
    pub(super) rounds: Vec<Round>,
    pub(super) verdict: Verdict,
}

/// Says a line at once: the tour is watched. With `--json` it goes where progress goes.
fn say(session: &mut Session, line: &str) -> Said {
    if session.output.json {
        session.output.remark(line);
        return Ok(());
    }
    session.output.line(line)?;
    session.output.flush()
}

fn say_all<'a>(session: &mut Session, lines: impl IntoIterator<Item = &'a str>) -> Said {
    lines.into_iter().try_for_each(|line| say(session, line))
}

/// The first words.
pub(super) fn opening(session: &mut Session, machine: Machine<'_>, dir: &Path, seed: u64) -> Said {
    say(session, "A tour of Terrace: real data, a process killed in the middle of its work,")?;
    if machine.number().is_some() {
        say(session, "its directory deleted, a takeover by another one through a shared store,")?;
    }
    say(session, "and a count of what is missing afterwards.")?;
    say(session, "")?;
    say(session, &format!("  in    {}", dir.display()))?;
    say(session, &format!("  seed  {seed} (repeats this choice of records and moments)"))?;
    say(session, "")
}

/// What was imported.
pub(super) fn imported(
    session: &mut Session,
    source: &Source,
    loaded: &Loaded,
    took: Duration,
) -> Said {
    let seconds = took.as_secs_f64();
    let rate = size((loaded.bytes as f64 / seconds.max(1e-9)) as u64);
    say(session, "1. Import")?;
    say(session, &format!("  from     {}", source.from))?;
    let distinct = loaded.rows - loaded.repeated;
    say(session, &format!("  records  {} into table `{}`", grouped(distinct), source.table))?;
    let bytes = size(loaded.bytes);
    say(session, &format!("  bytes    {bytes} in {seconds:.2} s ({rate}/s), each batch durable"))?;
    say(session, "")
}

/// What is going to happen in the rounds, and the headings of their table.
pub(super) fn before_rounds(session: &mut Session, machine: Machine<'_>, rounds: u32) -> Said {
    let times = if rounds == 1 { "once".to_owned() } else { format!("{rounds} times") };
    say(session, &format!("2. Kill it, {times}"))?;
    let child = format!(
        "  A child process commits from {THREADS} threads, each commit over three tables at"
    );
    let end = match machine.number() {
        None => [
            "  once, and reports every commit that returned. It is killed (SIGKILL) at a",
            "  random moment. A new process opens the database and looks for all that was",
            "  reported, in this round and in those before.",
        ],
        Some(_) => [
            "  once, and reports every commit that the shared store has. It is killed at a",
            "  random moment, and all of its directory deleted. A new process takes over in",
            "  an empty directory, and looks for all that was reported so far.",
        ],
    };
    say(session, &child)?;
    say_all(session, end)?;
    say_all(
        session,
        [
            "",
            "  reported   commits that had returned: all of them must be there",
            "  in flight  commits that had not returned, yet are there, in whole",
            "  missing    lost + torn + wrong + invented: must be 0",
            "",
            "  round  reported  in flight  missing  opened in  rebuilt    records/s",
        ],
    )
}

/// A line of the table of rounds.
pub(super) fn round(session: &mut Session, number: usize, round: &Round) -> Said {
    let Examined { open_ms, rebuild_ms, records_rebuilt, .. } = round.examined;
    let rate = match records_rebuilt {
        0 => "-".to_owned(),
        records => grouped((records as f64 / (rebuild_ms / 1e3).max(1e-6)) as u64),
    };
    say(
        session,
        &format!(
            "  {number:>5}  {:>8}  {:>9}  {:>7}  {:>6.0} ms  {:>7}  {rate:>11}",
            grouped(round.acknowledged),
            round.in_flight,
            round.missing,
            open_ms,
            grouped(records_rebuilt),
        ),
    )
}

/// Where the records lie, and how commits shared their syncs.
pub(super) fn tiers(session: &mut Session, stats: &Stats, rounds: &[Round]) -> Said {
    say(session, "")?;
    say(session, "3. Where the records are now")?;
    let mut levels: Vec<u8> =
        stats.tables.iter().flat_map(|t| t.levels.iter().map(|level| level.level)).collect();
    levels.sort_unstable();
    levels.dedup();
    let names: Vec<String> = levels.iter().map(|level| format!("level {level}")).collect();
    let mut columns =
        vec![("  table", Align::Left), ("newest", Align::Right), ("level 0", Align::Right)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    columns.push(("on disk", Align::Right));
    let mut grid = Grid::new(&columns);
    for table in &stats.tables {
        let mut cells = vec![format!("  {}", clipped(&table.name, 20))];
        cells.push(grouped(table.memtable_records));
        cells.push(grouped(table.level0_records));
        for level in &levels {
            let here = table.levels.iter().filter(|here| here.level == *level);
            cells.push(grouped(here.map(|here| here.records).sum()));
        }
        cells.push(size(table.levels.iter().map(|level| level.bytes).sum()));
        grid.row(cells);
    }
    for line in grid.lines() {
        say(session, &line)?;
    }
    let (region, mode) = (size(stats.pm.capacity), stats.mode);
    say(session, &format!("  Newest and level 0 lie in the region ({region}, mode `{mode}`),"))?;
    say(session, "  which is small on purpose: records step down into extent files as you watch.")?;
    let (groups, syncs) = sums(rounds);
    if groups > 0 {
        say(
            session,
            &format!(
                "  {} syncs made {} commit groups durable: {:.2} syncs a group.",
                grouped(syncs),
                grouped(groups),
                syncs as f64 / groups as f64
            ),
        )?;
    }
    Ok(())
}

fn sums(rounds: &[Round]) -> (u64, u64) {
    rounds
        .iter()
        .fold((0, 0), |(groups, syncs), round| (groups + round.groups, syncs + round.syncs))
}

/// Some of the records.
pub(super) fn records(session: &mut Session, database: &Database, table: &str) -> Said {
    say(session, "")?;
    say(session, &format!("4. Some records of `{table}`, in the order of their keys"))?;
    let mut grid = Grid::new(&[("  key", Align::Left), ("value", Align::Left)]);
    let encoding = session.output.encoding;
    for record in database.existing_table(table)?.iter().take(SHOWN) {
        let (key, value) = record?;
        let start = &value[..value.len().min(64)];
        let key = clipped(&encoding.line(&key), 26);
        grid.row([format!("  {key}"), clipped(&encoding.line(start), 48)]);
    }
    for line in grid.lines() {
        say(session, &line)?;
    }
    Ok(())
}

/// The result, for people or as one JSON object.
pub(super) fn closing(session: &mut Session, machine: Machine<'_>, summary: &Summary) -> Said {
    let Summary { verdict, rounds, .. } = summary;
    let Verdict { acknowledged, in_flight, lost, torn, wrong, invented, out_of_order } = *verdict;
    let kills = rounds.len();
    say(session, "")?;
    say(session, "Result")?;
    for (name, count, meaning) in [
        ("acknowledged", acknowledged, "commits that had returned"),
        ("in flight", in_flight, "commits that had not, and are there in whole"),
        ("lost", lost, "acknowledged, and missing in any of their tables"),
        ("torn", torn, "there in one table and not in another"),
        ("wrong", wrong, "there with other bytes than were written"),
        ("invented", invented, "there, though no writer can have written them"),
        ("out of order", out_of_order, "there, though an earlier one of their thread is not"),
    ] {
        say(session, &format!("  {name:<12}  {:>9}  {meaning}", grouped(count)))?;
    }
    say(session, "")?;
    if verdict.is_good() {
        let commits = grouped(acknowledged);
        let ends = if machine.number().is_some() { "lost machines" } else { "kills" };
        say(session, &format!("  {kills} {ends}, {commits} commits, nothing missing."))?;
    } else {
        say(session, "  FAILED: the counts above must be 0 from `lost` on.")?;
    }
    let bounds = match machine.number() {
        None => [
            "  A killed process is not a power cut: what it had handed to the operating",
            "  system stays. Power cuts are simulated in the test suite, which drops whatever",
            "  no completed sync covers: cargo test --package terrace.",
        ],
        Some(_) => [
            "  All machines are this one here. Stores that lose requests, and machines that",
            "  were only paused, are simulated in the test suite:",
            "  cargo test --package terrace --test stepped shared.",
        ],
    };
    say(session, "")?;
    say_all(session, bounds)?;
    if session.output.json {
        session.output.object(&object(summary))?;
    }
    Ok(())
}

fn object(summary: &Summary) -> serde_json::Value {
    let Summary { stats, source, loaded, took, seed, rounds, verdict } = summary;
    let (groups, syncs) = sums(rounds);
    let open_ms = rounds.iter().map(|round| round.examined.open_ms).fold(0.0, f64::max);
    let rebuilt: u64 = rounds.iter().map(|round| round.examined.records_rebuilt).sum();
    json!({
        "mode": stats.mode,
        "source": source.from,
        "records": loaded.rows - loaded.repeated,
        "bytes": loaded.bytes,
        "import_seconds": took.as_secs_f64(),
        "seed": seed,
        "rounds": rounds.len(),
        "acknowledged": verdict.acknowledged,
        "in_flight": verdict.in_flight,
        "lost": verdict.lost,
        "torn": verdict.torn,
        "wrong": verdict.wrong,
        "invented": verdict.invented,
        "out_of_order": verdict.out_of_order,
        "open_ms": open_ms,
        "records_rebuilt": rebuilt,
        "groups": groups,
        "syncs": syncs,
    })
}
