//! What one connection may hold, and what it may keep from others.

use std::net::IpAddr;

use barnabas_wire::encode_request;
use barnabas_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use barnabas_wire::messages::{FetchRequest, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::testing::{ME, node, node_for, sockets};

/// The beginning of a produce frame (version 9) that announces `len` bytes.
fn head(len: usize) -> Vec<u8> {
    let mut bytes = i32::try_from(len).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 7, 0xff, 0xff, 0]);
    bytes
}

/// Nothing here takes so long unless it never comes.
const DEADLINE: Duration = Duration::from_secs(20);
/// ApiVersions version 0.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];

struct Rig {
    node: Arc<Node>,
    stop: watch::Sender<bool>,
}

impl Rig {
    fn new() -> Self {
        Self { node: node(), stop: watch::channel(false).0 }
    }

    async fn connect(&self) -> TcpStream {
        let (server, client) = sockets().await;
        let place = self.node.places.take(IpAddr::from([127, 0, 0, 1])).unwrap();
        let peer = client.local_addr().unwrap();
        tokio::spawn(serve(
            self.node.clone(),
            (self.node.turns.number(), server),
            peer,
            place,
            self.stop.subscribe(),
        ));
        client
    }

    /// Until that much is reserved.
    async fn until_reserved(&self, wanted: impl Fn(usize) -> bool) {
        until(|| wanted(self.node.budget.request_bytes())).await;
    }
}

/// Lets the connections go on until this holds.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// A request is answered.
async fn is_served(client: &mut TcpStream) {
    client.write_all(&API_VERSIONS).await.unwrap();
    let mut answer = vec![0; usize::try_from(client.read_i32().await.unwrap()).unwrap()];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..4], [0, 0, 0, 1]);
}

#[tokio::test]
async fn what_is_announced_and_not_sent_costs_nobody_anything() {
    let rig = Rig::new();
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut client = rig.connect().await;
        client.write_all(&head(9 << 20)).await.unwrap();
        silent.push(client);
    }
    let mut client = rig.connect().await;
    client.write_all(&head(9 << 20)).await.unwrap();
    client.write_all(&vec![0; 8 << 20]).await.unwrap();
    rig.until_reserved(|bytes| bytes > 8 << 20).await;
    assert!(rig.node.budget.request_bytes() < 26 << 20);
    is_served(&mut rig.connect().await).await;
    drop((silent, client));
    rig.until_reserved(|bytes| bytes == 0).await;
}

#[tokio::test]
async fn a_frame_that_is_refused_gives_its_memory_back() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    let len = 5 << 20;
    client.write_all(&head(len)).await.unwrap();
    client.write_all(&vec![0; len / 2]).await.unwrap();
    rig.until_reserved(|bytes| bytes > len / 4).await;
    client.write_all(&vec![0xff; len / 2]).await.unwrap();
    // No produce request: whatever it is taken for, its bytes go.
    rig.until_reserved(|bytes| bytes == 0).await;
}

#[tokio::test]
async fn requests_that_stopped_half_way_go_when_others_need_their_memory() {
    let rig = Rig::new();
    let mut stopped = Vec::new();
    for _ in 0..5 {
        let mut client = rig.connect().await;
        client.write_all(&head(9 << 20)).await.unwrap();
        // More than the sockets' buffers take, and never the end.
        let sent = client.write_all(&vec![0; 8 << 20]).await;
        stopped.push((client, sent));
    }
    // 40 MiB were not to be had: some were closed, and a whole request fits again.
    let mut client = rig.connect().await;
    let len = 9 << 20;
    client.write_all(&head(len)).await.unwrap();
    client.write_all(&vec![0; len - 11 + 4]).await.unwrap();
    let mut end = [0; 1];
    // It is no request after all, and the broker says so by closing.
    let _ = client.read(&mut end).await;
    is_served(&mut rig.connect().await).await;
}

#[tokio::test]
async fn a_large_fetch_that_waits_for_records_gives_way_to_requests_that_wait_for_its_memory() {
    let (rig, disk) = (Rig::new(), crate::testing::Disk::new());
    let hosted = disk.host(&rig.node, crate::testing::tp("t", 0));
    crate::testing::state(&rig.node, &hosted, crate::testing::push(1, 1, &[1]));
    let mut topic = FetchTopic::default();
    topic.topic = "t".into();
    topic.partitions.push(FetchPartition::default());
    let mut request = FetchRequest::default();
    (request.replica_id, request.min_bytes, request.max_bytes) = (-1, 1, 1 << 20);
    (request.max_wait_ms, request.session_epoch) = (3_600_000, -1);
    request.topics.push(topic);
    request.rack_id = StrBytes::from("r".repeat(2 * FREE_BYTES_MAX));
    let mut client = rig.connect().await;
    client.write_all(&encode_request(1, "c", 11, &request).unwrap()).await.unwrap();
    rig.until_reserved(|bytes| bytes > 0).await;
    let budget = &rig.node.budget;
    let rest = budget.max_bytes() - budget.request_bytes();
    let rest = budget.try_reserve(rest, false).unwrap();
    let beyond = budget.clone().reserve(1, false).await;
    let reserved = tokio::time::timeout(DEADLINE, budget.clone().reserve(1, false)).await;
    drop(reserved.expect("the fetch keeps its memory"));
    drop((rest, beyond));
    assert!(client.read_i32().await.unwrap() > 0, "it is answered");
    rig.until_reserved(|bytes| bytes == 0).await;
}

#[tokio::test]
async fn beyond_the_limit_only_a_follower_may_stay() {
    let rig = Rig { node: node_for(ME, 1), stop: watch::channel(false).0 };
    let mut first = rig.connect().await;
    let mut second = rig.connect().await;
    second.write_all(&API_VERSIONS).await.unwrap();
    assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 0, "closed");
    is_served(&mut first).await;
    // Key 32001 stays; its body tells that it is nonsense.
    let mut third = rig.connect().await;
    third.write_all(&[0, 0, 0, 20, 0x7d, 0x01, 0, 0, 0, 0]).await.unwrap();
    drop(first);
    until(|| rig.node.places.counts().clients == 0).await;
    is_served(&mut rig.connect().await).await;
    assert!(rig.node.places.counts().refused >= 1);
    drop(third);
}

#[tokio::test]
async fn requests_that_came_together_are_served_although_slow_readers_hold_too_much() {
    let rig = Rig::new();
    let mut client = rig.connect().await;
    rig.node.budget.answers_grew(rig.node.budget.max_bytes() + 1);
    client.write_all(&API_VERSIONS.repeat(5)).await.unwrap();
    let all = async {
        for _ in 0..5 {
            let mut answer = vec![0; usize::try_from(client.read_i32().await.unwrap()).unwrap()];
            client.read_exact(&mut answer).await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("nobody woke the connection");
}
