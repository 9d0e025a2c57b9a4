//! Takes samples of a database, and keeps the numbers of the last ten minutes.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use terrace::{Database, StatsReader};

use crate::model::{Picture, Point, Sample, past, picture};

/// A sample is taken at most so often.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// As long as this after the last look somebody is looking.
const LOOKING: Duration = Duration::from_secs(10);

/// Points that are kept: as many as ten minutes have, and none that is older.
const POINTS: usize = 600;
const OLDEST_MS: u64 = 600_000;

/// Samples of a database that it does not keep open.
#[derive(Debug)]
pub struct Sampler {
    reader: StatsReader,
    last: Option<Taken>,
    points: VecDeque<Point>,
    looked: Option<Instant>,
    /// Whether the points go on from the database's history.
    has_history: bool,
    is_closed: bool,
}

/// A sample, its metrics as text, and what it shows.
#[derive(Debug)]
struct Taken {
    sample: Sample,
    metrics: Bytes,
    picture: Picture,
}

impl Sampler {
    /// Of this database.
    pub fn new(database: &Database) -> Sampler {
        let points = VecDeque::new();
        let reader = database.stats_reader();
        let (looked, has_history) = (None, false);
        Sampler { reader, last: None, points, looked, has_history, is_closed: false }
    }

    /// Notes that somebody looks, and takes a sample if the last one is older than a second.
    pub fn look(&mut self) {
        self.looked = Some(Instant::now());
        self.sample();
    }

    /// Takes a sample if somebody has looked lately, and the last one is older than a second.
    pub fn tick(&mut self) {
        if self.is_looked_at() {
            self.sample();
        }
    }

    fn is_looked_at(&self) -> bool {
        self.looked.is_some_and(|looked| looked.elapsed() < LOOKING)
    }

    fn sample(&mut self) {
        let is_looked_at = self.is_looked_at();
        let last = self.last.as_ref().map(|last| &last.sample);
        // What a sample for metrics alone lacks comes at once for who looks.
        let is_whole = !is_looked_at || self.has_history;
        let is_fresh = |last: &Sample| is_whole && last.at.elapsed() < INTERVAL;
        if self.is_closed || last.is_some_and(is_fresh) {
            return;
        }
        let (at, since) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        // A clock that is set back does not take the charts back.
        let least = |last: &Sample| last.at_ms + (at - last.at).as_millis() as u64;
        let at_ms = since.map_or(0, |since| since.as_millis() as u64).max(last.map_or(0, least));
        let Some((stats, metrics)) = self.reader.stats_and_text() else {
            self.is_closed = true;
            return;
        };
        let mut sample = Sample::new(at, at_ms, stats, &metrics);
        if is_looked_at {
            sample = sample.with_maps(&self.reader);
        }
        // What a rate is of has to last a while.
        let earlier = last.filter(|last| at.duration_since(last.at) >= INTERVAL);
        let picture = picture(&sample, earlier);
        if is_looked_at {
            // What was sampled for metrics alone has gaps, which the history has not.
            if !std::mem::replace(&mut self.has_history, true) {
                let since = SystemTime::now().checked_sub(Duration::from_millis(OLDEST_MS));
                let mut past = past::of(&self.reader.history(since.unwrap_or(UNIX_EPOCH)));
                // What was looked at is here, a point a second. The database's clock does not go
                // back, and may be ahead of this one.
                let first = self.points.front().map_or(at_ms, |point| point.at_ms);
                let last = self.points.back().map_or(0, |point| point.at_ms);
                let is_new = |at: u64| at < at_ms && (at < first || at > last);
                past.retain(|point| is_new(point.at_ms));
                self.points.extend(past);
                self.points.make_contiguous().sort_by_key(|point| point.at_ms);
            }
            self.points.push_back(picture.point);
            let is_over = |first: &mut Point| first.at_ms + OLDEST_MS < at_ms;
            while self.points.pop_front_if(is_over).is_some() {}
            while self.points.len() > POINTS {
                self.points.pop_front();
            }
        } else {
            self.has_history = false;
        }
        self.last = Some(Taken { sample, metrics: metrics.into(), picture });
    }

    /// The last sample; `None` if the database was closed before the first.
    pub fn sample_of_last_look(&self) -> Option<&Sample> {
        self.last.as_ref().map(|last| &last.sample)
    }

    /// What the last sample shows.
    pub fn picture(&self) -> Option<&Picture> {
        self.last.as_ref().map(|last| &last.picture)
    }

    /// The numbers of the last ten minutes: up to the first look those of the history that the
    /// database keeps, and later ones as far as somebody looked.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }

    /// Whether the last look found the database closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What the database is: as [`Stats::state`](terrace::Stats) has it, or `closed`.
    pub fn state(&self) -> &'static str {
        let state = self.sample_of_last_look().map_or("open", |sample| sample.stats.state);
        if self.is_closed { "closed" } else { state }
    }

    /// Statistics and histograms as Prometheus reads them, of the last second; `None` once the
    /// database is closed.
    pub fn metrics(&mut self) -> Option<Bytes> {
        self.sample();
        self.last.as_ref().filter(|_| !self.is_closed).map(|last| last.metrics.clone())
    }
}
