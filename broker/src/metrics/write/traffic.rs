//! What topics carry, and requests.

use barnabas_metrics::{Carried, Labels, Text};
use barnabas_types::TopicName;

use super::super::Detail;
use super::super::scrape::{Metrics, Sources};

type Part = fn(&Carried) -> u64;

const PREFIX: &str = "kafka_server_brokertopicmetrics_";
const PARTS: [(&str, Part); 7] = [
    ("messagesin_total", |carried| carried.messages_in),
    ("bytesin_total", |carried| carried.bytes_in),
    ("bytesout_total", |carried| carried.bytes_out),
    ("replicationbytesin_total", |carried| carried.replication_bytes_in),
    ("replicationbytesout_total", |carried| carried.replication_bytes_out),
    ("totalproducerequests_total", |carried| carried.produce_requests),
    ("failedproducerequests_total", |carried| carried.failed_produce_requests),
];

/// Microseconds in a millisecond.
const MS: f64 = 1e3;

pub(in super::super) fn traffic(metrics: &Metrics, sources: &Sources, text: &mut Text) {
    let node = &sources.node;
    let image = node.view.image();
    let exists = |name: &str| {
        let name = TopicName::new(name);
        name.is_ok_and(|name| image.topics.contains_key(&name) || image.unreadable.contains(&name))
    };
    let carried = node.partitions.carried(exists);
    let mut all = carried.others;
    all += node.figures.strays.carried();
    let topics: Vec<(Labels, Carried)> = carried
        .topics
        .iter()
        .map(|(name, of_topic)| {
            all += *of_topic;
            (Labels::none().with("topic", name), *of_topic)
        })
        .collect();
    for (name, part) in PARTS {
        text.one(&format!("{PREFIX}{name}"), part(&all));
        if metrics.detail >= Detail::Topic {
            for (labels, of_topic) in &topics {
                text.sample(labels, part(of_topic));
            }
        }
    }
    let requests: Vec<_> = node.figures.requests.counts().collect();
    let fetches = requests.iter().filter(|(name, _)| *name == "FetchConsumer");
    let fetches: u64 = fetches.map(|(_, counts)| counts.count()).sum();
    text.one(&format!("{PREFIX}totalfetchrequests_total"), fetches);
    text.one(&format!("{PREFIX}failedfetchrequests_total"), node.figures.failed_fetches());
    text.metric("kafka_network_requestmetrics_requests_total");
    for (name, counts) in &requests {
        text.sample(&Labels::none().with("request", name), counts.count());
    }
    text.metric("kafka_network_requestmetrics_totaltimems");
    for (name, counts) in &requests {
        let recent = metrics.recent(name, counts);
        text.summary(&Labels::none().with("request", name), &recent, counts, MS);
    }
}
