//! Tests of the whole port over a broker that is connected to nothing: a large cluster, a reader that does not read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterDelta, ControllerEpoch, Partition, TopicImage, TopicName,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Hosts, Parts, Site, Source, serve};
use crate::explain::Explainer;
use crate::health::Health;
use crate::ledger::Ledger;
use crate::metrics::{Detail, Metrics};
use crate::node::Node;
use crate::testing::{Disk, ME, node, registered};
use crate::timeline::Timeline;

const TOPICS: usize = 100;
const PARTITIONS: i32 = 100;

pub(super) fn source(node: &Arc<Node>, disk: &Disk) -> Arc<Source> {
    let health = Health::new(ME, 7);
    Source::new(Parts {
        node: node.clone(),
        storage: disk.storage.clone(),
        health: health.clone(),
        explains: Explainer::new(node.clone(), disk.storage.clone(), health),
        failovers: Arc::new(Timeline::default()),
        ledger: Arc::new(Ledger::new(ME, node.journal.clone())),
        zookeeper_connect: "zk:2181".to_owned(),
        http_port: 9292,
        metrics: Metrics::new(ME, Detail::Partition, Health::new(ME, 7)),
        read_only: true,
    })
}

/// The controller tells of [`TOPICS`] topics with [`PARTITIONS`] partitions each, led by `leader`.
pub(super) fn tell(node: &Node, leader: i32) {
    let partition = || {
        let mut partition = Partition {
            assigned_replicas: [1, 2, 3].map(BrokerId).to_vec(),
            ..Partition::default()
        };
        partition.state.leader = Some(BrokerId(leader));
        partition.state.isr = [1, 2].map(|id| (BrokerId(id), BrokerEpoch(1))).to_vec();
        partition.state.leader_epoch.0 = leader;
        partition.state.partition_epoch.0 = leader;
        partition
    };
    let topics = (0..TOPICS).map(|n| {
        let partitions = (0..PARTITIONS).map(|index| (index, partition())).collect();
        let topic = TopicImage { partitions, ..TopicImage::default() };
        (TopicName::new(&format!("topic-{n:03}")).unwrap(), topic)
    });
    let brokers = BTreeMap::from([(ME, registered(BrokerEpoch(101)))]);
    let delta = ClusterDelta {
        full: true,
        brokers: Some(brokers),
        topics: topics.collect(),
        ..ClusterDelta::default()
    };
    node.view.apply((ME, ControllerEpoch(5)), &delta);
}

async fn get(source: &Source, path: &str, query: &str) -> (usize, Value) {
    let began = Instant::now();
    let body = super::api::get(source, path, query).await.unwrap();
    println!("{path}?{query}: {} bytes, {:?}", body.len(), began.elapsed());
    (body.len(), serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn ten_thousand_partitions_are_answered_in_windows() {
    let (node, disk) = (node(), Disk::new());
    let source = source(&node, &disk);
    let early = super::api::get(&source, "cluster", "").await.unwrap_err();
    assert!(early.message.contains("no metadata yet"));
    assert!(super::api::get(&source, "ledger", "").await.is_ok(), "that is here already");
    tell(&node, 1);
    let (bytes, map) = get(&source, "partitions/map", "").await;
    assert!(bytes < 20_000, "{bytes}");
    assert_eq!(map["topics"].as_array().unwrap().len(), TOPICS);
    assert_eq!(map["topics"][7]["states"], "r".repeat(100));
    let (_, list) = get(&source, "partitions", "limit=500&from=9900").await;
    assert_eq!(
        (&list["total"], list["partitions"].as_array().unwrap().len()),
        (&json!(10_000), 100)
    );
    assert_eq!(list["partitions"][0]["topic"], "topic-099");
    assert_eq!(list["partitions"][0]["log_end_offset"], Value::Null, "nobody tells it");
    let (_, list) = get(&source, "partitions", "q=topic-042-7").await;
    assert_eq!(list["total"], 11);
    let (bytes, told) = get(&source, "cluster", "").await;
    assert_eq!(told["counts"]["under_replicated_partitions"], 10_000);
    assert!(bytes < 4_000 && told["problems"].as_array().unwrap().len() < 6, "{bytes}");
    let (_, brokers) = get(&source, "brokers", "").await;
    let states: Vec<&Value> =
        brokers["brokers"].as_array().unwrap().iter().map(|b| &b["state"]).collect();
    assert_eq!(states, ["starting", "dead", "dead"]);
    get(&source, "topics", "").await;
    let before = super::api::get(&source, "partitions/map", "").await.unwrap();
    let again = super::api::get(&source, "partitions/map", "").await.unwrap();
    assert_eq!(before.as_ptr(), again.as_ptr(), "built once for all who ask within a second");
}

/// What has come, at least something.
async fn read_on(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 1 << 20];
    let got = stream.read(&mut bytes).await.unwrap();
    assert!(got > 0, "the stream has ended");
    String::from_utf8_lossy(&bytes[..got]).into_owned()
}

#[tokio::test]
async fn events_come_as_they_are_allowed_and_a_reader_that_does_not_read_is_cut() {
    let (node, disk) = (node(), Disk::new());
    let source = source(&node, &disk);
    tell(&node, 1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let health = Health::new(ME, 7);
    let metrics = Metrics::new(ME, Detail::Partition, health.clone());
    let site = Site::new(Hosts::default(), health, metrics, None);
    site.registered(source.clone());
    let server = tokio::spawn(serve(site, listener));
    let open = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream
    };
    let (mut reader, mut sleeper) = (open().await, open().await);
    let mut seen = String::new();
    for wanted in ["event: beat", "\"many\":10000"] {
        while !seen.contains(wanted) {
            seen.push_str(&read_on(&mut reader).await);
        }
        // More changes than are named.
        tell(&node, 2);
    }
    // Whoever sleeps is behind by more than it may be, once the kernel takes no more for it. The other one reads, and stays.
    let text = json!("x".repeat(100_000));
    let cut = async {
        while source.ring.readers() > 1 {
            source.ring.push(5, "test", &text);
            let mut event = String::new();
            while !event.contains("\"\n\n") {
                event.push_str(&read_on(&mut reader).await);
            }
        }
        let mut rest = Vec::new();
        // It ends, with an error or without.
        let _ = sleeper.read_to_end(&mut rest).await;
    };
    tokio::time::timeout(Duration::from_secs(30), cut).await.expect("it is cut");
    assert_eq!(source.ring.readers(), 1);
    server.abort();
}

#[tokio::test]
async fn one_answer_is_made_for_all_who_ask_at_once_and_a_new_one_when_the_cluster_has_changed() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let (node, disk) = (node(), Disk::new());
    let source = source(&node, &disk);
    let made = AtomicUsize::new(0);
    let ask = || {
        source.kept("what", async {
            // Whoever else asks comes here before it is done.
            tokio::task::yield_now().await;
            Ok(json!(made.fetch_add(1, Ordering::Relaxed)))
        })
    };
    let (first, second, third) = tokio::join!(ask(), ask(), ask());
    let bodies = [first.unwrap(), second.unwrap(), third.unwrap()];
    assert!(bodies.iter().all(|body| &body[..] == b"0\n"), "{bodies:?}");
    tell(&node, 1);
    assert_eq!(&ask().await.unwrap()[..], b"1\n");
    // Who gives up holds nobody up.
    tell(&node, 2);
    tokio::select! {
        biased;
        _ = ask() => panic!("it takes two turns"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(&ask().await.unwrap()[..], b"2\n");
}
