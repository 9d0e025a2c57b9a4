//! What rose between two samples, a second.

use terrace::Stats;

use super::{Histogram, Sample};
use crate::units::{grouped, size, time};

/// What is shown where a number is not known.
pub(super) const UNKNOWN: &str = "–";

/// An earlier sample that is older than this says nothing about the present.
const TOO_OLD: f64 = 60.0;

/// Two samples of one opening.
pub(super) struct Rates<'a> {
    pub(super) now: &'a Sample,
    earlier: Option<&'a Sample>,
    seconds: f64,
}

impl<'a> Rates<'a> {
    pub(super) fn new(now: &'a Sample, earlier: Option<&'a Sample>) -> Rates<'a> {
        let since = |sample: &Sample| now.at.saturating_duration_since(sample.at).as_secs_f64();
        let earlier =
            earlier.filter(|sample| (f64::MIN_POSITIVE..TOO_OLD).contains(&since(sample)));
        Rates { now, earlier, seconds: earlier.map_or(0.0, since) }
    }

    /// How much a counter rose a second.
    pub(super) fn of(&self, counter: impl Fn(&Stats) -> f64) -> Option<f64> {
        let earlier = self.earlier?;
        let rose = counter(&self.now.stats) - counter(&earlier.stats);
        Some((rose / self.seconds).max(0.0))
    }

    /// The same of bytes, as text.
    pub(super) fn bytes(&self, counter: impl Fn(&Stats) -> u64) -> String {
        let rate = self.of(|stats| counter(stats) as f64);
        rate.map_or(UNKNOWN.to_owned(), |rate| format!("{}/s", size(rate.round() as u64)))
    }

    /// The same of things that are counted, as text.
    pub(super) fn number(&self, counter: impl Fn(&Stats) -> u64) -> String {
        number(self.of(|stats| counter(stats) as f64))
    }

    pub(super) fn histogram(&self, name: &str) -> Option<&'a Histogram> {
        find(self.now, name)
    }

    fn earlier_histogram(&self, name: &str) -> Option<&'a Histogram> {
        self.earlier.and_then(|sample| find(sample, name))
    }

    /// How many a histogram took up a second.
    pub(super) fn count_in(&self, name: &str) -> Option<f64> {
        let (now, earlier) = (self.histogram(name)?, self.earlier_histogram(name)?);
        Some(now.count().saturating_sub(earlier.count()) as f64 / self.seconds)
    }

    /// Seconds that what a histogram took up lasted, a second.
    pub(super) fn seconds_in(&self, name: &str) -> Option<f64> {
        let (now, earlier) = (self.histogram(name)?, self.earlier_histogram(name)?);
        Some(((now.sum - earlier.sum) / self.seconds).max(0.0))
    }

    /// A quantile of what a histogram took up since the earlier sample.
    pub(super) fn quantile(&self, name: &str, part: f64) -> Option<f64> {
        let earlier = self.earlier_histogram(name)?;
        self.histogram(name)?.quantile(part, Some(earlier))
    }
}

fn find<'a>(sample: &'a Sample, name: &str) -> Option<&'a Histogram> {
    sample.histograms.iter().find(|histogram| histogram.name == name)
}

/// How many a second, as text.
pub(super) fn number(rate: Option<f64>) -> String {
    let text = |rate: f64| match rate {
        0.0 => "0/s".to_owned(),
        few if few < 10.0 => format!("{few:.1}/s"),
        many => format!("{}/s", grouped(many.round() as u64)),
    };
    rate.map_or(UNKNOWN.to_owned(), text)
}

/// A bound of a time, as text.
pub(super) fn bound(seconds: Option<f64>) -> String {
    match seconds {
        None => UNKNOWN.to_owned(),
        Some(bound) if bound.is_finite() => format!("≤ {}", time(bound)),
        // The last bound of the engine's histograms.
        Some(_) => "> 34 s".to_owned(),
    }
}
