//! `history`: the samples that the database has kept, as rows of bars.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use terrace::{Database, HistorySample};

use crate::args::HistoryArguments;
use crate::failure::{Failure, Outcome};
use crate::grid::{Align, Grid};
use crate::session::Session;
use crate::text::{counted, grouped, size};

/// Bars in a row, each of a part of the time.
const BARS: usize = 60;

/// What a row shows of the values of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The value, in bytes.
    Bytes,
    /// The value.
    Count,
    /// By how much it rose in a second.
    Rate,
    /// The same, in bytes.
    ByteRate,
    /// By how many seconds it rose in a second: how many waited at once, on average.
    Waiting,
}

/// What rows there are. A name with labels makes one row for each of them.
struct Series {
    title: &'static str,
    name: &'static str,
    shown: Shown,
}

const SERIES: [Series; 17] = [
    Series {
        title: "records committed/s",
        name: "terrace_commit_records_total",
        shown: Shown::Rate,
    },
    Series { title: "syncs of commits/s", name: "terrace_commit_syncs_total", shown: Shown::Rate },
    Series {
        title: "waiting for space or pace",
        name: "terrace_commit_throttled_seconds_total",
        shown: Shown::Waiting,
    },
    Series {
        title: "waiting for locks",
        name: "terrace_lock_waited_seconds_total",
        shown: Shown::Waiting,
    },
    Series {
        title: "look-ups answered/s",
        name: "terrace_level_answered_total",
        shown: Shown::Rate,
    },
    Series {
        title: "blocks from the cache/s",
        name: "terrace_cache_hits_total",
        shown: Shown::Rate,
    },
    Series { title: "blocks read/s", name: "terrace_cache_misses_total", shown: Shown::Rate },
    Series {
        title: "written to extents/s",
        name: "terrace_disk_written_bytes_total",
        shown: Shown::ByteRate,
    },
    Series {
        title: "drained/s",
        name: "terrace_background_drained_bytes_total",
        shown: Shown::ByteRate,
    },
    Series {
        title: "compactions/s",
        name: "terrace_background_compactions_total",
        shown: Shown::Rate,
    },
    Series {
        title: "jobs that failed/s",
        name: "terrace_background_failures_total",
        shown: Shown::Rate,
    },
    Series { title: "region: units taken", name: "terrace_pm_zones_used", shown: Shown::Count },
    Series { title: "snapshots", name: "terrace_background_snapshots", shown: Shown::Count },
    Series { title: "memory", name: "terrace_memory_held_bytes", shown: Shown::Bytes },
    Series { title: "size", name: "terrace_level_size_bytes", shown: Shown::Bytes },
    Series { title: "in objects", name: "terrace_table_objects_bytes", shown: Shown::Bytes },
    Series {
        title: "not yet in the shared store",
        name: "terrace_share_lag_bytes",
        shown: Shown::Bytes,
    },
];

/// Prints the history of the database.
pub(crate) fn run(session: &mut Session, asked: &HistoryArguments) -> Result<Outcome, Failure> {
    let now = SystemTime::now();
    let since = now.checked_sub(asked.since).unwrap_or(SystemTime::UNIX_EPOCH);
    let samples = Database::history(session.directory(), since)?;
    if session.output.json {
        for sample in &samples {
            let values: Map<String, Value> =
                sample.values().map(|(name, value)| (name.to_owned(), json!(value))).collect();
            session.output.object(&json!({"at": time(sample.at()), "values": values}))?;
        }
        return Ok(Outcome::Good);
    }
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        let path = session.directory().display();
        session.output.remark(&format!(
            "{path} has no samples of the last {}; a database that is open to write keeps one each \
             ten seconds, see the option `history`",
            humantime::format_duration(asked.since)
        ));
        return Ok(Outcome::Good);
    };
    let (count, from, to) = (samples.len() as u64, time(first.at()), time(last.at()));
    let openings = steps(&samples).filter(|step| !step.is_of_one_opening()).count() as u64 + 1;
    session.output.line(&format!(
        "{from} to {to}: {}, {}",
        counted(count, "sample", "samples"),
        counted(openings, "opening", "openings")
    ))?;
    for line in grid(&samples).lines() {
        session.output.line(&line)?;
    }
    Ok(Outcome::Good)
}

fn time(of: SystemTime) -> String {
    humantime::format_rfc3339_seconds(of).to_string()
}

/// Two samples in a row.
struct Step<'a> {
    from: &'a HistorySample,
    to: &'a HistorySample,
}

impl Step<'_> {
    fn took(&self) -> Duration {
        self.to.at().duration_since(self.from.at()).unwrap_or_default()
    }

    fn is_of_one_opening(&self) -> bool {
        self.to.continues(self.from)
    }

    /// What a row shows for it.
    fn value(&self, name: &str, shown: Shown) -> Option<f64> {
        let to = self.to.get(name)?;
        if matches!(shown, Shown::Bytes | Shown::Count) {
            return Some(to);
        }
        let took = self.took().as_secs_f64();
        let rise = to - self.from.get(name)?;
        (self.is_of_one_opening() && took > 0.0).then(|| rise.max(0.0) / took)
    }
}

fn steps(samples: &[HistorySample]) -> impl Iterator<Item = Step<'_>> {
    samples.windows(2).filter_map(|pair| match pair {
        [from, to] => Some(Step { from, to }),
        _ => None,
    })
}

fn grid(samples: &[HistorySample]) -> Grid {
    let heads = ["least", "mean", "most", "last"].map(|head| (head, Align::Right));
    let heads = [&[("", Align::Left)][..], &heads, &[("", Align::Left)]].concat();
    let mut grid = Grid::new(&heads);
    // A name stays to the end of its opening.
    let ends = steps(samples).filter(|step| !step.is_of_one_opening()).map(|step| step.from);
    let names: BTreeSet<&str> =
        ends.chain(samples.last()).flat_map(|end| end.values().map(|(name, _)| name)).collect();
    for Series { title, name, shown } in SERIES {
        let prefix = format!("{name}{{");
        for full in names.iter().filter(|full| **full == name || full.starts_with(&prefix)) {
            let label = full[name.len()..].trim_matches(['{', '}']).replace(['=', '"'], " ");
            let title = format!("{title} {}", label.trim());
            if let Some(row) = row(title.trim(), samples, full, shown) {
                grid.row(row);
            }
        }
    }
    grid
}

/// A row, unless all its values are 0.
fn row(title: &str, samples: &[HistorySample], name: &str, shown: Shown) -> Option<Vec<String>> {
    let of_steps = || steps(samples).map(|step| (step.to.at(), step.value(name, shown)));
    let values: Vec<f64> = of_steps().filter_map(|(_, value)| value).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    let least = values.iter().copied().fold(most, f64::min);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let numbers = [least, mean, most, *values.last()?].map(|value| text(value, shown));
    let (from, to) = (samples.first()?.at(), samples.last()?.at());
    let whole = to.duration_since(from).unwrap_or_default().as_secs_f64();
    let mut bars = vec![Vec::new(); BARS];
    for (at, value) in of_steps() {
        let place = at.duration_since(from).unwrap_or_default().as_secs_f64() / whole.max(1e-9);
        let bar = ((place * BARS as f64).ceil() as usize).clamp(1, BARS) - 1;
        bars[bar].extend(value);
    }
    let bars = bars.iter().map(|of| bar(of, most)).collect::<String>();
    Some([&[title.to_owned()][..], &numbers, &[bars.trim_end().to_owned()]].concat())
}

/// A bar as high as the mean of its values beside the most; a space where there is none.
fn bar(values: &[f64], most: f64) -> char {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if values.is_empty() {
        return ' ';
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    HEIGHTS[((mean / most * 8.0) as usize).min(7)]
}

fn text(value: f64, shown: Shown) -> String {
    match shown {
        Shown::Bytes | Shown::ByteRate => size(value.round() as u64),
        _ if value < 10.0 && value.fract() != 0.0 => format!("{value:.2}"),
        _ => grouped(value.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a database that each 100 ms keeps one, over two openings.
    fn samples() -> Vec<HistorySample> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        for opening in 1..=2 {
            let interval = Duration::from_millis(100);
            let options = terrace::Options::new().pm_size(4 << 20).history(interval);
            let db = options.open(&path).unwrap();
            let table = db.table("days").unwrap();
            let kept = || Database::history(&path, SystemTime::UNIX_EPOCH).unwrap();
            while kept().len() < 3 * opening {
                table.put("2024-01-01", "snow").unwrap();
            }
            db.close().unwrap();
        }
        Database::history(&path, SystemTime::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn rows_have_a_bar_for_each_part_of_the_time_and_counters_begin_with_an_opening() {
        let samples = samples();
        let breaks: Vec<bool> = steps(&samples).map(|step| !step.is_of_one_opening()).collect();
        assert_eq!(breaks.iter().filter(|is_break| **is_break).count(), 1, "{breaks:?}");
        let name = "terrace_commit_records_total";
        for (step, is_break) in steps(&samples).zip(breaks) {
            let rate = step.value(name, Shown::Rate);
            assert_eq!(rate.is_none(), is_break);
            let rise = step.to.get(name).unwrap() - step.from.get(name).unwrap();
            let seconds = step.took().as_secs_f64();
            assert!(rate.is_none_or(|rate| (rate * seconds - rise).abs() < 1e-6));
        }
        let lines = grid(&samples).lines();
        let has = |title: &str| lines.iter().any(|line| line.starts_with(title));
        assert!(has("records committed/s") && has("memory part  region"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains('█')), "{lines:?}");
        assert!(!has("jobs that failed/s"), "a row of zeros is left out");
    }
}
