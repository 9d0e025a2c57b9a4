//! Points out of the history that the database keeps.

use terrace::HistorySample;

use super::Point;
use super::histograms::{Histogram, parse};

/// The points of samples in the order of their times: one for each but the first.
pub(crate) fn of(samples: &[HistorySample]) -> Vec<Point> {
    let timed: Vec<Vec<Histogram>> = samples.iter().map(histograms).collect();
    let pairs = samples.windows(2).zip(timed.windows(2));
    pairs.filter_map(|(samples, timed)| point(samples, timed)).collect()
}

fn histograms(sample: &HistorySample) -> Vec<Histogram> {
    let timed = sample.values().filter(|(name, _)| name.contains("_seconds_bucket{"));
    parse(&timed.map(|(name, value)| format!("{name} {value}\n")).collect::<String>())
}

fn point(samples: &[HistorySample], timed: &[Vec<Histogram>]) -> Option<Point> {
    let ([earlier, now], [timed_earlier, timed]) = (samples, timed) else { return None };
    let seconds = now.at().duration_since(earlier.at()).ok()?.as_secs_f64();
    let goes_on = now.continues(earlier);
    let rate = |name: &str| {
        let rose = now.get(name)? - earlier.get(name)?;
        (goes_on && rose >= 0.0 && seconds > 0.0).then(|| rose / seconds)
    };
    let p99 = |name: &str| {
        let timed_earlier = Some(timed_earlier).filter(|_| goes_on)?;
        let of = |all: &[Histogram]| all.iter().position(|of| of.name == name);
        let (now, earlier) = (&timed[of(timed)?], &timed_earlier[of(timed_earlier)?]);
        now.quantile(0.99, Some(earlier)).filter(|p99| p99.is_finite()).map(|p99| p99 * 1e3)
    };
    let part = |part: f64, whole: &str| match now.get(whole) {
        Some(whole) if whole > 0.0 => part / whole,
        _ => 0.0,
    };
    let held = now.values().filter(|(name, _)| name.starts_with("terrace_memory_held_bytes{"));
    let used = now.get("terrace_pm_zones_used").unwrap_or(0.0);
    let at = now.at().duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Point {
        at_ms: at.as_millis() as u64,
        appended: rate("terrace_pm_appended_bytes_total"),
        drained: rate("terrace_background_drain_written_bytes_total"),
        written: rate("terrace_disk_written_bytes_total"),
        read: rate("terrace_disk_read_bytes_total"),
        throttled_ms: rate("terrace_commit_throttled_seconds_total").map(|s| s * 1e3),
        lock_wait_ms: rate("terrace_lock_waited_seconds_total").map(|s| s * 1e3),
        commit_p99_ms: p99("terrace_commit_wait"),
        get_p99_ms: p99("terrace_read_get"),
        region: part(used, "terrace_pm_zones"),
        memory: part(held.map(|(_, bytes)| bytes).sum(), "terrace_memory_limit_bytes"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::{Duration, SystemTime};

    use terrace::{Database, Options};

    use super::*;

    /// Bug: what an opening had written looked like what the next one wrote more. Cause: a counter
    /// that was greater than that of the opening before counted as one that went on. Fix: there is
    /// no rate between two openings.
    #[test]
    fn no_rate_goes_from_one_opening_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let kept = || Database::history(&path, SystemTime::UNIX_EPOCH).unwrap();
        for puts in [1, 1000] {
            let options = Options::new().pm_size(4 << 20).history(Duration::from_millis(100));
            let db = options.open(&path).unwrap();
            let table = db.table("t").unwrap();
            (0..puts).for_each(|n: u32| table.put(n.to_be_bytes(), [7; 100]).unwrap());
            let before = kept().len();
            while kept().len() < before + 2 {
                std::thread::yield_now();
            }
            db.close().unwrap();
        }
        let samples = kept();
        let is_break = |pair: &[HistorySample]| !pair[1].continues(&pair[0]);
        let breaks: Vec<bool> = samples.windows(2).map(is_break).collect();
        let gaps: Vec<bool> = of(&samples).iter().map(|point| point.appended.is_none()).collect();
        assert_eq!(breaks.iter().filter(|is_break| **is_break).count(), 1);
        assert_eq!(gaps, breaks);
    }
}
