//! Logs, what of them is not flushed, and followers' lag.

use std::collections::BTreeMap;

use barnabas_metrics::{Labels, Text};
use barnabas_types::TopicPartition;

use super::super::Detail;
use super::super::replicas::Replicas;
use super::super::scrape::{Metrics, Sources};
use crate::partition::Figures;

/// Microseconds in a millisecond.
const MS: f64 = 1e3;

#[derive(Default)]
struct Unflushed {
    records: u64,
    bytes: u64,
    age_ms: u64,
    overdue_ms: u64,
}

pub(in super::super) fn logs(
    metrics: &Metrics,
    sources: &Sources,
    replicas: &Replicas,
    text: &mut Text,
) {
    let (count, held) = replicas.count();
    text.one("kafka_server_replicamanager_partitioncount", count);
    text.one("barnabas_held_replicas", held);
    let (mut unflushed, mut lag) = (Unflushed::default(), 0);
    for (_, figures) in replicas.told() {
        unflushed.records += figures.unflushed_records();
        unflushed.bytes += figures.unflushed_bytes;
        unflushed.age_ms = unflushed.age_ms.max(figures.unflushed_age_ms);
        unflushed.overdue_ms = unflushed.overdue_ms.max(figures.flush_overdue_ms);
        lag = lag.max(figures.farthest_lag().unwrap_or(0));
    }
    text.one("kafka_server_replicafetchermanager_maxlag", lag);
    text.one("barnabas_flush_unflushed_records", unflushed.records);
    text.one("barnabas_flush_unflushed_bytes", unflushed.bytes);
    #[allow(clippy::cast_precision_loss)]
    text.one("barnabas_flush_unflushed_age_seconds", unflushed.age_ms as f64 / MS);
    #[allow(clippy::cast_precision_loss)]
    text.one("barnabas_flush_overdue_seconds", unflushed.overdue_ms as f64 / MS);
    match metrics.detail {
        Detail::Partition => by_partition(replicas, text),
        Detail::Topic => by_topic(replicas, text),
        Detail::None => {}
    }
    flushes(metrics, sources, text);
}

fn by_partition(replicas: &Replicas, text: &mut Text) {
    let label = |tp: &TopicPartition| {
        Labels::none().with("topic", tp.topic.as_str()).with("partition", tp.partition)
    };
    let lines: Vec<(Labels, &Figures)> =
        replicas.told().map(|(tp, figures)| (label(tp), figures)).collect();
    type Value = fn(&Figures) -> i128;
    let named: [(&str, Value); 4] = [
        ("size", |figures| figures.size_bytes.into()),
        ("logstartoffset", |figures| figures.log_start.0.into()),
        ("logendoffset", |figures| figures.log_end.0.into()),
        ("numlogsegments", |figures| figures.segments as i128),
    ];
    for (name, value) in named {
        text.metric(&format!("kafka_log_log_{name}"));
        for (labels, figures) in &lines {
            text.sample(labels, value(figures));
        }
    }
}

fn by_topic(replicas: &Replicas, text: &mut Text) {
    let mut topics: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
    for (tp, figures) in replicas.told() {
        let (bytes, segments) = topics.entry(tp.topic.as_str()).or_default();
        *bytes += figures.size_bytes;
        *segments += figures.segments;
    }
    text.metric("kafka_log_log_size");
    for (topic, (bytes, _)) in &topics {
        text.sample(&Labels::none().with("topic", topic), bytes);
    }
    text.metric("kafka_log_log_numlogsegments");
    for (topic, (_, segments)) in &topics {
        text.sample(&Labels::none().with("topic", topic), segments);
    }
}

fn flushes(metrics: &Metrics, sources: &Sources, text: &mut Text) {
    let (took, sizes, (partitions, failed)) = sources.flushes();
    let none = Labels::none();
    let name = "kafka_log_logflushstats_logflushrateandtimems";
    text.metric(name);
    text.summary(&none, &metrics.recent(name, &took), &took, MS);
    text.metric("barnabas_flush_seconds");
    text.seconds(&none, &took);
    text.metric("barnabas_flush_group_size");
    text.sizes(&none, &sizes);
    text.one("barnabas_flush_partitions_total", partitions);
    text.one("barnabas_flush_failed_total", failed);
}
