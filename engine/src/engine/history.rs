//! The history of a database: its numbers every few seconds, in a ring of its directory, which can
//! be read beside a writer and after a crash.

mod ring;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Database, Engine, metrics, stats};
use crate::base::error::{Error, Result};
use crate::os::{Files, RealFiles};
#[cfg(any(test, feature = "testing"))]
pub(crate) use ring::probe;
use ring::{Ring, Sample};

/// The numbers of a database at one moment.
///
/// Names and units are those of [`Database::metrics_text`] in `docs/operations.md`, with labels, as
/// in `terrace_memory_held_bytes{part="cache"}`. What has a label `table` there is the sum over all
/// tables here, and falls when a table is dropped. Counters, which end with `_total`, `_count`,
/// `_sum` or `_bucket{…}`, begin again with each opening.
#[derive(Clone, Debug)]
pub struct HistorySample {
    sample: Sample,
}

impl HistorySample {
    /// When it was taken, by the database's clock, which does not go back.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        let at = UNIX_EPOCH.checked_add(Duration::from_millis(self.sample.at));
        at.unwrap_or(UNIX_EPOCH)
    }

    /// A value by its name, if there was one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        let known = self.sample.names.binary_search_by(|known| known.as_str().cmp(name));
        known.ok().and_then(|n| self.sample.values.get(n)).copied()
    }

    /// Whether the counters of this sample went on from those of an earlier one. Counters begin
    /// again with each opening, and those of tables fall when a table is dropped.
    #[must_use]
    pub fn continues(&self, earlier: &HistorySample) -> bool {
        let both = |name| (earlier.get(name), self.get(name));
        let (groups_then, groups) = both("terrace_commit_groups_total");
        let (opened_then, opened) = both("terrace_open_duration_seconds");
        opened == opened_then && groups >= groups_then
    }

    /// All values with their names, in the order of text.
    pub fn values(&self) -> impl Iterator<Item = (&str, f64)> {
        let names = self.sample.names.iter().map(String::as_str);
        names.zip(self.sample.values.iter().copied())
    }
}

impl Database {
    /// The samples of the database in the directory `path` from `since` on, the oldest first. It
    /// need not be open, and may be open to write, in whichever process. Nothing is changed, and no
    /// lock is taken. [`Options::history`](crate::Options::history) says how often there is one.
    /// None are there for a database in memory, of a follower, or that was open for less than that.
    ///
    /// It reads two files of 4 MiB at most, and takes up to eight times as much memory.
    ///
    /// # Errors
    ///
    /// `Unavailable`: there is no such directory, or a file could not be read. What a crash cut
    /// off, or damage, ends the samples of its file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("db");
    /// # terrace::Options::new().pm_size(4 << 20).open(&path)?.close()?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let two_hours = Duration::from_secs(2 * 60 * 60);
    /// for sample in terrace::Database::history(&path, SystemTime::now() - two_hours)? {
    ///     println!("{:?} {:?}", sample.at(), sample.get("terrace_commit_groups_total"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn history(path: impl AsRef<Path>, since: SystemTime) -> Result<Vec<HistorySample>> {
        let (path, files) = (path.as_ref(), RealFiles::default());
        let samples = files.has_directory(path).and_then(|is_there| match is_there {
            true => read(&files, path, since),
            false => Err(io::ErrorKind::NotFound.into()),
        });
        samples.map_err(|e| Error::io("read the history in", path, e))
    }
}

fn read(files: &dyn Files, path: &Path, since: SystemTime) -> io::Result<Vec<HistorySample>> {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let samples = ring::read(files, path, since.as_millis() as u64)?;
    Ok(samples.into_iter().map(|sample| HistorySample { sample }).collect())
}

/// What this opening's database has kept, in the directory that it has open.
pub(super) fn kept(engine: &Engine, since: SystemTime) -> Vec<HistorySample> {
    let kept = interval(engine).map(|_| read(&**engine.set.store().files(), &engine.path, since));
    kept.and_then(io::Result::ok).unwrap_or_default()
}

/// How often a database keeps a sample, if it does.
pub(super) fn interval(engine: &Engine) -> Option<Duration> {
    let is_kept = engine.has_background()
        && engine.options.follows.is_none()
        && engine.options.making.is_none()
        && engine.set.store().files().real().is_some();
    engine.options.history.filter(|_| is_kept)
}

/// The body of the thread that keeps samples. One that cannot be written is left out, and counted
/// as a failure of the background.
pub(super) fn keep(engine: &Engine, interval: Duration) {
    let files = Arc::clone(engine.set.store().files());
    let mut ring = Ring::new(files, &engine.path);
    loop {
        engine.history_wakeup.wait(interval);
        // The closing waits for this thread before it gives the directory up.
        if engine.ctx.is_stopping() {
            return;
        }
        let sample = || {
            let values = metrics::values(&stats::collect(engine), engine.shared.events.times());
            ring.append(engine.shared.clock.now() / 1000, values)
        };
        // No panic of a statistic stops a database.
        let Ok(kept) = catch_unwind(AssertUnwindSafe(sample)) else {
            engine.ctx.metrics.failures.add(1);
            return;
        };
        if let Err(e) = kept {
            engine.ctx.count_failure(&Error::io("write the history in", &engine.path, e));
        }
    }
}
