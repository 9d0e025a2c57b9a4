//! Statistics for readers that do not keep the database open.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use super::history;
use super::stats::{self, Stats};
use super::{Database, Engine, HistorySample};

/// Reads the statistics of a database, and does not keep it open: [`Database::stats_reader`].
///
/// A closing waits for a call that is under way. Afterwards each call gives `None`.
#[derive(Clone)]
pub struct StatsReader {
    engine: Weak<Engine>,
}

impl Database {
    /// A reader of the statistics that is no handle of the database: when the last handle is gone
    /// the database closes.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db"))?;
    /// let reader = db.stats_reader();
    /// assert!(reader.stats().is_some_and(|stats| stats.commit.groups == 0));
    /// drop(db);
    /// assert!(reader.stats().is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats_reader(&self) -> StatsReader {
        StatsReader { engine: Arc::downgrade(self.inner.engine()) }
    }
}

impl StatsReader {
    /// As [`Database::stats`]; `None` once the database is closed.
    pub fn stats(&self) -> Option<Stats> {
        self.read(stats::collect)
    }

    /// As [`Database::metrics_text`]; `None` once the database is closed.
    #[cfg(feature = "metrics")]
    pub fn metrics_text(&self) -> Option<String> {
        self.stats_and_text().map(|(_, text)| text)
    }

    /// Both of the same moment, which are collected once; `None` once the database is closed.
    #[cfg(feature = "metrics")]
    pub fn stats_and_text(&self) -> Option<(Stats, String)> {
        self.read(|engine| {
            let stats = stats::collect(engine);
            let text = super::metrics::text_of(engine, stats.clone());
            (stats, text)
        })
    }

    /// As [`Database::history`], of this database. Nothing where this opening keeps none, where it
    /// cannot be read, and once it is closed.
    pub fn history(&self, since: SystemTime) -> Vec<HistorySample> {
        self.read(|engine| history::kept(engine, since)).unwrap_or_default()
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Engine) -> T) -> Option<T> {
        let engine = self.engine.upgrade()?;
        let _inside = engine.shared.gate.enter_call().ok()?;
        Some(read(&engine))
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader").finish_non_exhaustive()
    }
}
