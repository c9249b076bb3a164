//! Tests of the scrape, on a broker that is connected to nothing: what its figures are, and what each detail leaves out.

use std::sync::Arc;

use barnabas_metrics::Scraped;
use barnabas_types::{
    Acks, BrokerId, ClusterDelta, ControllerEpoch, Incarnation, TopicId, TopicImage, TopicName,
};

use super::{Detail, Metrics};
use crate::health::Health;
use crate::node::Node;
use crate::storage::Flushers;
use crate::testing::{Disk, LIFE, ME, epoch_of, node, produce, push, registered, state, tp};

/// Broker 1 leads `t-0` alone in its ISR and knows a topic that is elsewhere.
struct Rig {
    node: Arc<Node>,
    disk: Disk,
    metrics: Arc<Metrics>,
}

impl Rig {
    fn new(detail: Detail) -> Self {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1]));
        let brokers = [(ME, registered(epoch_of(ME)))].into();
        let topic = |incarnation, partition| TopicImage {
            incarnation,
            partitions: [(0, partition)].into(),
            ..TopicImage::default()
        };
        let mut elsewhere = push(2, 1, &[2]).partition;
        elsewhere.state.leader = Some(BrokerId(2));
        let other = Incarnation { topic_id: TopicId([8; 16]), czxid: 80 };
        let topics = [
            (TopicName::new("t").unwrap(), topic(LIFE, push(1, 1, &[1]).partition)),
            (TopicName::new("u").unwrap(), topic(other, elsewhere)),
        ];
        let delta = ClusterDelta {
            full: true,
            brokers: Some(brokers),
            topics: topics.into(),
            ..ClusterDelta::default()
        };
        node.view.apply((BrokerId(9), ControllerEpoch(1)), &delta);
        let health = Health::new(ME, 7);
        let metrics = Metrics::new(ME, detail, health);
        let flushers: Flushers = vec![Some(disk.flusher(&node))];
        metrics.registered(&node, &disk.storage, &flushers);
        Self { node, disk, metrics }
    }

    async fn scrape(&self) -> Scraped {
        Scraped::read(&self.metrics.scrape().await.unwrap()).unwrap()
    }
}

fn one(scraped: &Scraped, metric: &str, labels: &[(&str, &str)]) -> f64 {
    let found: Vec<f64> = scraped.values(metric, labels).collect();
    assert_eq!(found.len(), 1, "{metric} {labels:?}: {found:?}");
    found[0]
}

/// The value of the sample without labels.
fn bare(scraped: &Scraped, metric: &str) -> f64 {
    let found: Vec<_> =
        scraped.samples.iter().filter(|s| s.metric == metric && s.labels.is_empty()).collect();
    assert_eq!(found.len(), 1, "{metric}: {found:?}");
    found[0].value
}

const OF_T: &[(&str, &str)] = &[("topic", "t")];
const OF_T_0: &[(&str, &str)] = &[("topic", "t"), ("partition", "0")];
const IN: &str = "kafka_server_brokertopicmetrics_messagesin_total";

#[tokio::test]
async fn a_scrape_tells_what_was_produced_and_where_the_partition_stands() {
    let rig = Rig::new(Detail::Partition);
    let hosted = rig.node.partitions.get("t", 0).unwrap();
    for n in 0..3 {
        produce(&rig.node, &hosted, Acks::None, n, None);
    }
    // A repeated batch is no message more.
    produce(&rig.node, &hosted, Acks::None, 2, None);
    let scraped = rig.scrape().await;
    assert_eq!((one(&scraped, IN, OF_T), bare(&scraped, IN)), (3.0, 3.0));
    let bytes = one(&scraped, "kafka_server_brokertopicmetrics_bytesin_total", OF_T);
    assert_eq!(one(&scraped, "kafka_log_log_size", OF_T_0), bytes);
    assert!(bytes > 180.0, "{bytes}");
    assert_eq!(one(&scraped, "kafka_log_log_logendoffset", OF_T_0), 3.0);
    assert_eq!(one(&scraped, "kafka_topic_partition_current_offset", OF_T_0), 3.0);
    assert_eq!(one(&scraped, "kafka_topic_partition_leader", OF_T_0), 1.0);
    assert_eq!(one(&scraped, "kafka_topic_partition_replicas", OF_T_0), 2.0);
    assert_eq!(one(&scraped, "kafka_topic_partition_in_sync_replica", OF_T_0), 1.0);
    assert_eq!(bare(&scraped, "kafka_server_replicamanager_underreplicatedpartitions"), 1.0);
    assert_eq!(bare(&scraped, "kafka_server_replicamanager_leadercount"), 1.0);
    assert_eq!(bare(&scraped, "barnabas_flush_unflushed_records"), 3.0);
    assert_eq!(bare(&scraped, "barnabas_flush_unflushed_bytes"), bytes);
    // What others lead, they tell, and what the controller knows, it does.
    assert_eq!(scraped.values("kafka_topic_partition_leader", &[("topic", "u")]).count(), 0);
    assert!(!scraped.metrics.contains("kafka_controller_kafkacontroller_offlinepartitionscount"));
    assert_eq!(bare(&scraped, "kafka_controller_kafkacontroller_activecontrollercount"), 0.0);
}

#[tokio::test]
async fn counters_do_not_fall_when_a_replica_or_its_topic_goes() {
    let rig = Rig::new(Detail::Partition);
    let hosted = rig.node.partitions.get("t", 0).unwrap();
    for n in 0..3 {
        produce(&rig.node, &hosted, Acks::None, n, None);
    }
    rig.node.partitions.remove(&tp("t", 0));
    let scraped = rig.scrape().await;
    assert_eq!((one(&scraped, IN, OF_T), bare(&scraped, IN)), (3.0, 3.0));
    // Another replica of it comes.
    let again = rig.disk.host(&rig.node, tp("t", 1));
    state(&rig.node, &again, push(1, 1, &[1]));
    produce(&rig.node, &again, Acks::None, 0, None);
    assert_eq!(one(&rig.scrape().await, IN, OF_T), 4.0);
    rig.node.partitions.remove(&tp("t", 1));
    let nothing = ClusterDelta { full: true, ..ClusterDelta::default() };
    rig.node.view.apply((BrokerId(9), ControllerEpoch(1)), &nothing);
    for _ in 0..2 {
        let scraped = rig.scrape().await;
        assert_eq!(scraped.values(IN, OF_T).count(), 0, "of a topic that is gone");
        assert_eq!(bare(&scraped, IN), 4.0);
    }
}

#[tokio::test]
async fn a_replica_that_something_holds_is_missing_and_holds_nothing_up() {
    let rig = Rig::new(Detail::Partition);
    let hosted = rig.node.partitions.get("t", 0).unwrap();
    let (held, free) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let holder = std::thread::spawn(move || {
        hosted.with_log(|_| {
            held.0.send(()).unwrap();
            let _ = free.1.recv();
        });
    });
    held.1.recv().unwrap();
    let scraped = rig.scrape().await;
    assert_eq!(bare(&scraped, "barnabas_held_replicas"), 1.0);
    assert_eq!(scraped.values("kafka_log_log_size", OF_T_0).count(), 0);
    assert_eq!(one(&scraped, "kafka_topic_partition_leader", OF_T_0), 1.0, "known without it");
    assert_eq!(scraped.values("kafka_topic_partition_current_offset", OF_T_0).count(), 0);
    free.0.send(()).unwrap();
    holder.join().unwrap();
    assert_eq!(bare(&rig.scrape().await, "barnabas_held_replicas"), 0.0);
}

#[tokio::test]
async fn labels_are_as_fine_as_they_may_be() {
    for (detail, forbidden) in [
        (Detail::Topic, &["partition"][..]),
        (Detail::None, &["partition", "topic", "consumergroup"]),
    ] {
        let rig = Rig::new(detail);
        let hosted = rig.node.partitions.get("t", 0).unwrap();
        produce(&rig.node, &hosted, Acks::None, 0, None);
        let scraped = rig.scrape().await;
        for sample in &scraped.samples {
            let forbids = |label: &String| forbidden.contains(&label.as_str());
            assert!(!sample.labels.keys().any(forbids), "{detail:?}: {sample:?}");
        }
        assert_eq!(bare(&scraped, IN), 1.0);
        let by_topic = usize::from(detail == Detail::Topic);
        assert_eq!(scraped.values(IN, OF_T).count(), by_topic);
        assert_eq!(scraped.values("kafka_log_log_size", OF_T).count(), by_topic);
    }
}

#[tokio::test]
async fn a_broker_that_is_starting_tells_what_it_has() {
    let metrics = Metrics::new(ME, Detail::Partition, Health::new(ME, 7));
    let scraped = Scraped::read(&metrics.scrape().await.unwrap()).unwrap();
    assert_eq!(bare(&scraped, "kafka_server_kafkaserver_brokerstate"), 1.0);
    assert!(!scraped.metrics.contains(IN), "it has carried nothing yet, and does not say 0");
}
