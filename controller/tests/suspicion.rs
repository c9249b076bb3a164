//! Suspicion through the shell (R17), with ZooKeeper in memory and real ports: who refuses is gone, who listens is not.

use std::time::Duration;

use barnabas_controller::translate::race_ops;
use barnabas_controller::zookeeper::{Connect, CreateMode, Memory, Request, ZooKeeper};
use barnabas_controller::{BrokerNode, NewTopic, Running, open_with};
use barnabas_controller_core::SessionId;
use barnabas_proto::znode::paths;
use barnabas_types::{BrokerId, ControllerEpoch, PartitionState, TopicName};
use tokio::net::TcpListener;

mod support;
use support::{PATIENCE, Told, listen, registration, until};

fn memory() -> Memory {
    // Sessions of processes that are gone do not end by themselves here.
    Memory::new(Duration::from_secs(600))
}

async fn start(id: i32, memory: &Memory, address: &str, suspicion: bool) -> Running {
    let config = barnabas_controller::Config { suspicion, ..support::config(id, "memory") };
    let opened = open_with(config, memory.clone()).await.unwrap();
    opened.start(registration(id, address)).await.unwrap()
}

/// A port at which nobody listens, and a listener that never accepts: a process that stands still.
async fn still() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn nobody() -> String {
    still().await.1
}

/// What a process leaves behind that registered and died: its session is alive.
async fn dead(memory: &Memory, id: i32, node: &BrokerNode, controller: bool) -> SessionId {
    // Makes the base tree.
    open_with(support::config(9, "memory"), memory.clone()).await.unwrap();
    let (client, _events) = memory.connect().await.unwrap();
    let (path, data) = (paths::broker(BrokerId(id)), node.write());
    client.submit(Request::Create { path, data, mode: CreateMode::Ephemeral }).await.unwrap();
    if controller {
        let race = race_ops(BrokerId(id), ControllerEpoch(1), 0, 0);
        client.submit(Request::Multi(race)).await.unwrap();
    }
    client.session()
}

fn lives(memory: &Memory, session: SessionId) -> bool {
    memory.with_tree(|tree| tree.is_live(session))
}

fn state(told: &Told) -> Option<&PartitionState> {
    let topic = told.image.topics.get(&TopicName::new("t").unwrap())?;
    Some(&topic.partitions[&0].state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_broker_whose_ports_refuse_is_out_of_every_isr_and_one_that_stands_still_is_not() {
    let memory = memory();
    let (_still, address) = still().await;
    let gone = dead(&memory, 2, &registration(2, &nobody().await), false).await;
    let still = dead(&memory, 3, &registration(3, &address), false).await;
    let mut listener = listen().await;
    let broker = start(1, &memory, &listener.address, true).await;
    until(&mut listener.told, |told| told.image.brokers.len() == 3).await;
    let topic = NewTopic {
        name: "t".into(),
        assignment: [(0, vec![BrokerId(2), BrokerId(3), BrokerId(1)])].into(),
        ..NewTopic::default()
    };
    broker.controller.create_topic(topic).await.unwrap();
    let members = |told: &Told| state(told).map(PartitionState::isr_ids);
    let told =
        until(&mut listener.told, |told| members(told) == Some(vec![BrokerId(3), BrokerId(1)]))
            .await;
    assert_eq!(state(&told).unwrap().leader, Some(BrokerId(3)));
    assert!(lives(&memory, gone) && lives(&memory, still));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_a_controller_whose_ports_refuse_is_deposed_before_its_session_ends() {
    let memory = memory();
    let (ports, address) = still().await;
    let controller = dead(&memory, 2, &registration(2, &address), true).await;
    let listener = listen().await;
    let mut broker = start(1, &memory, &listener.address, true).await;
    // It is dialled, and its kernel answers: it stays.
    ports.accept().await.unwrap();
    assert_eq!(
        broker.membership.borrow_and_update().controller,
        Some((BrokerId(2), ControllerEpoch(1)))
    );
    drop(ports);
    let second = Some((BrokerId(1), ControllerEpoch(2)));
    until(&mut broker.membership, |m| m.controller == second).await;
    assert!(lives(&memory, controller));

    let mut failovers = broker.take_failovers().unwrap();
    // It is told as far as it has come, again and again, until every broker knows.
    loop {
        let told = tokio::time::timeout(PATIENCE, failovers.recv()).await.unwrap().unwrap();
        assert_eq!((told.broker_id, told.cause.as_str()), (2, "suspicion"));
        assert!(told.was_controller && told.broker_epoch.is_some());
        let names: Vec<&str> = told.phases.iter().map(|phase| phase.name.as_str()).collect();
        for name in ["controller_gone", "controller_elected", "loaded"] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
        if names.contains(&"pushed") {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_controller_takes_the_place_of_its_dead_incarnation_at_once() {
    let memory = memory();
    let listener = listen().await;
    let earlier = dead(&memory, 1, &registration(1, &listener.address), true).await;
    // No matter of suspicion: the lock of the directory proves it.
    let mut broker = start(1, &memory, &listener.address, false).await;
    let second = Some((BrokerId(1), ControllerEpoch(2)));
    until(&mut broker.membership, |m| m.controller == second).await;
    assert!(lives(&memory, earlier));
}
