//! The table of all metrics: what `/metrics` serves, and nothing else. `deploy/metrics.md` is made from it. Each family has a file.

mod broker;
mod controller;
mod exporter;
mod failovers;
mod flushing;
mod groups;
mod logs;
mod losses;
mod replicas;
mod room;
mod topics;
mod zookeeper;

use std::fmt::Write as _;

/// What Prometheus is to think of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, from the start of the process on.
    Counter,
    /// What is so now.
    Gauge,
    /// Quantiles of the last one to two minutes; count and sum since the start.
    Summary,
    /// Counts by size, since the start.
    Histogram,
}

/// Which brokers serve it, and so how brokers are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Each broker, of itself: sum, or the greatest.
    Each,
    /// Who leads the partition (of those that nobody serves: the controller): sum.
    Leader,
    /// The controller alone: sum.
    Controller,
    /// Who coordinates the group: sum.
    Coordinator,
    /// Each broker, the same figure: the greatest.
    All,
}

impl Place {
    fn words(self) -> &'static str {
        match self {
            Self::Each => "each broker, of itself",
            Self::Leader => "the partition's leader",
            Self::Controller => "the controller",
            Self::Coordinator => "the group's coordinator",
            Self::All => "each broker, of the cluster",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What one of it is.
    pub unit: &'static str,
    /// Its labels; without those in brackets a sample is a sum over all.
    pub labels: &'static [&'static str],
    /// Who serves it.
    pub place: Place,
    /// What it says, in one sentence without a full stop.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    (kind, unit): (Kind, &'static str),
    labels: &'static [&'static str],
    place: Place,
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, place, help }
}

const BYTES: (Kind, &str) = (Kind::Counter, "bytes");
const RECORDS: (Kind, &str) = (Kind::Counter, "records");
const REQUESTS: (Kind, &str) = (Kind::Counter, "requests");
const EVENTS: (Kind, &str) = (Kind::Counter, "events");
const NUMBER: (Kind, &str) = (Kind::Gauge, "number");
const OFFSET: (Kind, &str) = (Kind::Gauge, "offset");
const SIZE: (Kind, &str) = (Kind::Gauge, "bytes");
const FLAG: (Kind, &str) = (Kind::Gauge, "0 or 1");
const AGE: (Kind, &str) = (Kind::Gauge, "seconds");
const MS: (Kind, &str) = (Kind::Summary, "milliseconds");
const SECONDS: (Kind, &str) = (Kind::Histogram, "seconds");

const NO: &[&str] = &[];
const OF_TOPIC: &[&str] = &["topic"];
const OF_PARTITION: &[&str] = &["topic", "partition"];

/// The families, in the order of the documentation.
const FAMILIES: &[&[Metric]] = &[
    topics::METRICS,
    replicas::METRICS,
    broker::METRICS,
    logs::METRICS,
    controller::METRICS,
    zookeeper::KAFKA,
    groups::METRICS,
    exporter::METRICS,
    failovers::METRICS,
    flushing::METRICS,
    losses::METRICS,
    zookeeper::OWN,
    room::METRICS,
];

const COUNT: usize = {
    let (mut family, mut count) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// Every metric, in the order of the documentation.
pub const METRICS: &[Metric] = &{
    let mut all = [FAMILIES[0][0]; COUNT];
    let (mut family, mut next) = (0, 0);
    while family < FAMILIES.len() {
        let mut index = 0;
        while index < FAMILIES[family].len() {
            all[next] = FAMILIES[family][index];
            (index, next) = (index + 1, next + 1);
        }
        family += 1;
    }
    all
};

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// `deploy/metrics.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(HEAD);
    for Metric { name, kind, unit, labels, place, help } in METRICS {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, kind, place) = (labels.join(", "), kind.name(), place.words());
        // Into a string nothing fails.
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {place} | {help} |");
    }
    text.push_str(FOOT);
    text
}

const HEAD: &str = "# Metrics

Each broker serves these at `http://HOST:9292/metrics` in Prometheus' text format. This page is made from the table in the code (`broker/metrics/src/table.rs`).

*Who* says which broker serves a sample, and so how brokers are put together: what a leader, the controller or a coordinator tells is told once in
the cluster, so a sum over all brokers is right. What each broker tells of itself is summed or compared; what each tells of the cluster is the same everywhere,
but for the last moments: take the greatest.

A figure that a broker does not have is not served as 0: the sample is absent. Counters begin at 0 with the process. Quantiles are those of the last one to two
minutes (if scrapes are rarer: since the scrape before the last), a quarter too high at most; without observations there are none.

`metrics.labels` says how fine labels are. `partition`: everything. `topic`: nothing has the label `partition`; `kafka_log_log_size` and `kafka_log_log_numlogsegments` are
sums by topic, the other metrics of partitions are left out, those of groups are `_sum`. `none`: nothing has the labels `topic` and `consumergroup` either; sums over all
stay.

| name | type | unit | labels | who | what |
|---|---|---|---|---|---|
";

const FOOT: &str = "
The names are those of the JMX exporter's usual rules for Kafka (`kafka_server_…_total` for a `Count`, quantiles as labels) and of kafka_exporter. Kafka's metrics that are
not here have no counterpart: there are no fenced brokers, no controller states, no request queue and no handler threads, and a Fetch of a session names no topics.
As in Kafka, the samples without `topic` of `kafka_server_brokertopicmetrics_…` are the sums of those with it (and of what named no topic here): a query
takes either (`topic=\"\"` or `topic!=\"\"`), never both.
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_say_what_they_are() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for Metric { name, kind, help, labels, .. } in METRICS {
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(good), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(
                !help.is_empty() && !help.ends_with('.') && !help.contains(['\n', '\\', '|']),
                "{name}"
            );
            assert!(labels.iter().all(|label| label.chars().all(good)), "{name}");
        }
    }

    #[test]
    fn the_reference_page_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/metrics.md");
        if std::env::var_os("BARNABAS_WRITE_REFERENCE").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == reference(),
            "deploy/metrics.md is old: BARNABAS_WRITE_REFERENCE=1 cargo test -p barnabas-metrics writes it anew"
        );
    }
}
