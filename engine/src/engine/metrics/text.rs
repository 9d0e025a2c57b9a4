//! Metrics in the text format of OpenMetrics, which Prometheus reads.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use super::{METRICS, Timed, histograms};
use crate::base::events::Events;
use crate::engine::{Engine, Stats};

/// Statistics and histograms of one moment.
pub(in crate::engine) fn text_of(engine: &Engine, stats: Stats) -> String {
    let mut registry = Registry::default();
    let events = engine.shared.events.clone();
    registry.register_collector(Box::new(Scrape { stats, events }));
    let mut out = String::new();
    let written = text::encode(&mut out, &registry);
    debug_assert!(written.is_ok(), "writing to a string does not fail");
    out
}

struct Scrape {
    stats: Stats,
    events: Events,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in METRICS {
            let unit = metric.unit.map(unit_of);
            let mut of_labels = encoder.encode_descriptor(
                metric.name,
                metric.help,
                unit.as_ref(),
                type_of(metric.metric_type),
            )?;
            let mut done = Ok(());
            (metric.values)(&self.stats, &mut |labels, value| {
                done = done.and_then(|()| {
                    let mut one = of_labels.encode_family(&labels)?;
                    write(&mut one, metric.metric_type, value)
                });
            });
            done?;
        }
        let unit = unit_of(super::Unit::Seconds);
        for Timed { name, help, histogram } in histograms(self.events.times()) {
            let buckets = histogram.buckets();
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder
                .encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?
                .encode_histogram::<NoLabelSet>(histogram.sum(), count, &buckets, None)?;
        }
        Ok(())
    }
}

fn write(to: &mut MetricEncoder<'_>, metric_type: super::MetricType, value: f64) -> fmt::Result {
    match metric_type {
        super::MetricType::Counter => to.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>),
        super::MetricType::Gauge => to.encode_gauge(&value),
    }
}

fn type_of(metric_type: super::MetricType) -> MetricType {
    match metric_type {
        super::MetricType::Counter => MetricType::Counter,
        super::MetricType::Gauge => MetricType::Gauge,
    }
}

fn unit_of(unit: super::Unit) -> Unit {
    match unit {
        super::Unit::Bytes => Unit::Bytes,
        super::Unit::Seconds => Unit::Seconds,
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}
