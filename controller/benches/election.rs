//! What a new controller costs in a large cluster: `cargo bench -p barnabas-controller --bench election [-- PARTITIONS]`. Each line is
//! one JSON object.
//!
//! Real ZooKeeper, real controllers, brokers that only listen to pushes. The figure to look at is the ratio to the raw reading of the
//! same nodes in the same run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use barnabas_controller::translate::topic_create_ops;
use barnabas_controller::zookeeper::{Connect, Op, Reply, Request, Servers, Session, ZooKeeper};
use barnabas_controller::{Running, open};
use barnabas_proto::znode::paths;
use barnabas_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, PartitionState, TopicId,
    TopicName, TopicPartition,
};
use tokio::task::JoinSet;

#[path = "../tests/support/mod.rs"]
mod support;
use support::{Listener, config, listen, registration, server, until};

const PARTITIONS_A_TOPIC: i32 = 500;
/// Nodes of one raw multi-read, and reads in flight: the knee of the curve.
const NODES_A_READ: usize = 100;
const READS_IN_FLIGHT: usize = 32;

fn main() {
    let asked = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let partitions: i32 = asked.unwrap_or(100_000);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(partitions));
}

async fn run(partitions: i32) {
    let connect = server::chroot("election").await;
    let mut listeners: Vec<Listener> = Vec::new();
    let mut brokers: Vec<Running> = Vec::new();
    for id in 1..=3 {
        let listener = listen().await;
        let mut broker = open(config(id, &connect))
            .await
            .expect("ZooKeeper answers")
            .start(registration(id, &listener.address))
            .await
            .expect("the broker registers");
        // One after the other, so that broker 1 is the first controller.
        until(&mut broker.membership, |m| m.controller.is_some() && m.broker_epoch.is_some()).await;
        listeners.push(listener);
        brokers.push(broker);
    }
    let epochs: Vec<(BrokerId, BrokerEpoch)> = brokers
        .iter()
        .zip(1..)
        .map(|(b, id)| (BrokerId(id), b.membership.borrow().broker_epoch.expect("registered")))
        .collect();
    let (session, _events) = Servers::new(&connect, Duration::from_secs(30))
        .connect()
        .await
        .expect("a session of its own");
    let names = create(&session, &epochs, partitions).await;
    let raw = raw_read(&session, &names).await;
    println!(r#"{{"figure":"raw_read","partitions":{partitions},"ms":{}}}"#, raw.as_millis());

    // Broker 2 or 3 becomes controller when broker 1, which led a third of the partitions, is gone.
    let first = brokers.remove(0);
    let freed = Instant::now();
    first.stop().await;
    let mut told = listeners[1].told.clone();
    until(&mut told, |told| {
        told.image.controller.is_some_and(|(_, epoch)| epoch > ControllerEpoch(1))
            && told.image.topics.len() == names.len()
    })
    .await;
    let pushed = freed.elapsed();
    until(&mut told, |told| {
        told.image
            .topics
            .values()
            .any(|topic| topic.partitions.values().any(|p| p.state.leader_epoch > LeaderEpoch(0)))
    })
    .await;
    let changed = freed.elapsed();
    until(&mut told, |told| {
        told.image.topics.values().all(|topic| {
            topic.partitions.values().all(|p| p.state.leader.is_some_and(|l| l != BrokerId(1)))
        })
    })
    .await;
    let all = freed.elapsed();
    println!(
        r#"{{"figure":"new_controller","partitions":{partitions},"cluster_pushed_ms":{},"first_leader_change_ms":{},"all_led_ms":{},"goal_ms":{},"ratio_to_raw_read":{:.2},"goal_ratio":2}}"#,
        pushed.as_millis(),
        changed.as_millis(),
        all.as_millis(),
        if partitions <= 10_000 { 1_000 } else { 3_000 },
        changed.as_secs_f64() / raw.as_secs_f64(),
    );
    for broker in brokers {
        broker.stop().await;
    }
}

/// Writes the nodes of the topics as a controller would, but without one.
async fn create(
    session: &Session,
    epochs: &[(BrokerId, BrokerEpoch)],
    partitions: i32,
) -> Vec<TopicName> {
    let topics = (partitions + PARTITIONS_A_TOPIC - 1) / PARTITIONS_A_TOPIC;
    let mut names = Vec::new();
    for number in 0..topics {
        let name = TopicName::new(&format!("scale-{number:04}")).expect("a legal name");
        let count = PARTITIONS_A_TOPIC.min(partitions - number * PARTITIONS_A_TOPIC);
        let states: BTreeMap<i32, (Vec<BrokerId>, PartitionState)> = (0..count)
            .map(|index| {
                let turn = usize::try_from(index).unwrap_or(0) % epochs.len();
                let mut isr = epochs.to_vec();
                isr.rotate_left(turn);
                let state = PartitionState {
                    leader: isr.first().map(|m| m.0),
                    leader_epoch: LeaderEpoch(0),
                    partition_epoch: PartitionEpoch(0),
                    controller_epoch: ControllerEpoch(1),
                    isr: isr.clone(),
                };
                (index, (isr.into_iter().map(|m| m.0).collect(), state))
            })
            .collect();
        let mut id = [9; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let mut ops = topic_create_ops(0, &name, TopicId(id), &BTreeMap::new(), &states);
        // Nobody's term is checked: no controller writes here.
        ops.retain(|op| !matches!(op, Op::Check { .. }));
        let reply = session.submit(Request::Multi(ops)).await.expect("ZooKeeper answers");
        assert!(matches!(reply, Reply::Multi(_)), "{reply:?}");
        names.push(name);
    }
    names
}

/// The least that reading the same nodes takes.
async fn raw_read(session: &Session, names: &[TopicName]) -> Duration {
    let begun = Instant::now();
    let nodes: Vec<String> = names
        .iter()
        .flat_map(|topic| {
            (0..PARTITIONS_A_TOPIC).map(|partition| {
                paths::partition_state(&TopicPartition { topic: topic.clone(), partition })
            })
        })
        .collect();
    let mut reads = nodes.chunks(NODES_A_READ).map(<[String]>::to_vec);
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < READS_IN_FLIGHT
            && let Some(read) = reads.next()
        {
            let session = session.clone();
            under_way.spawn(async move { session.submit(Request::MultiRead(read)).await });
        }
        match under_way.join_next().await {
            Some(read) => drop(read.expect("no panic").expect("ZooKeeper answers")),
            None => return begun.elapsed(),
        }
    }
}
