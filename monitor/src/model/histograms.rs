//! Histograms out of the text of the metrics.

/// How often something took how long, since the opening.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The name of the metric, without its unit.
    pub name: String,
    /// All of them added up, in seconds.
    pub sum: f64,
    /// By upper bound in seconds, how many took no longer.
    pub buckets: Vec<Bucket>,
}

/// How many took no longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The bound in seconds.
    pub bound: f64,
    /// How many.
    pub count: u64,
}

impl Histogram {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |bucket| bucket.count)
    }

    /// The bound that this part of those since `earlier` stayed under, infinite beyond the last
    /// one; `None` if there are none.
    pub fn quantile(&self, part: f64, earlier: Option<&Histogram>) -> Option<f64> {
        let before = |at: usize| {
            let bucket = earlier.and_then(|earlier| earlier.buckets.get(at));
            bucket.map_or(0, |bucket| bucket.count)
        };
        let counts = || self.buckets.iter().enumerate();
        let since = |at: usize, count: u64| count.saturating_sub(before(at));
        let all = counts().next_back().map_or(0, |(at, bucket)| since(at, bucket.count));
        if all == 0 {
            return None;
        }
        let enough = (part * all as f64).ceil().max(1.0) as u64;
        counts().find(|(at, bucket)| since(*at, bucket.count) >= enough).map(|(_, of)| of.bound)
    }
}

/// The histograms of a text in the format of OpenMetrics.
pub(super) fn parse(text: &str) -> Vec<Histogram> {
    let mut found: Vec<Histogram> = Vec::new();
    for line in text.lines() {
        if let Some((name, rest)) = line.split_once("_seconds_bucket{le=\"") {
            let Some((bound, count)) = rest.split_once("\"} ") else { continue };
            if found.last().is_none_or(|last| last.name != name) {
                found.push(Histogram { name: name.to_owned(), ..Histogram::default() });
            }
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(0.0) };
            let count = count.trim().parse().unwrap_or(0);
            found.last_mut().into_iter().for_each(|of| of.buckets.push(Bucket { bound, count }));
        }
    }
    for line in text.lines() {
        if let Some((name, sum)) = line.split_once("_seconds_sum ")
            && let Some(of) = found.iter_mut().find(|of| of.name == name)
        {
            of.sum = sum.trim().parse().unwrap_or(0.0);
        }
    }
    // The history has them in the order of text.
    found.iter_mut().for_each(|of| of.buckets.sort_by(|a, b| a.bound.total_cmp(&b.bound)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP terrace_read_get_seconds Look-ups.\n\
        terrace_commit_groups_total 4\n\
        terrace_read_get_seconds_sum 1.5\n\
        terrace_read_get_seconds_count 100\n\
        terrace_read_get_seconds_bucket{le=\"0.001\"} 90\n\
        terrace_read_get_seconds_bucket{le=\"0.002\"} 98\n\
        terrace_read_get_seconds_bucket{le=\"+Inf\"} 100\n";

    #[test]
    fn a_histogram_is_read_and_its_quantiles_are_bounds() {
        let [now] = parse(TEXT).try_into().unwrap();
        assert_eq!((now.name.as_str(), now.sum, now.count()), ("terrace_read_get", 1.5, 100));
        assert_eq!(now.quantile(0.5, None), Some(0.001));
        assert_eq!(now.quantile(0.98, None), Some(0.002));
        assert_eq!(now.quantile(0.99, None), Some(f64::INFINITY), "it is beyond the last bound");
        assert_eq!(now.quantile(0.5, Some(&now)), None);
        let mut earlier = now.clone();
        earlier.buckets[0].count = 89;
        earlier.buckets[1].count = 97;
        earlier.buckets[2].count = 99;
        assert_eq!(now.quantile(0.99, Some(&earlier)), Some(0.001));
    }
}
