//! The shell over ZooKeeper in memory: elections, expiry, fencing, pushes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use barnabas_controller::zookeeper::memory::Tree;
use barnabas_controller::zookeeper::{
    Connect, ConnectError, CreateMode, Memory, Op, Request, SessionEvent, ZooKeeper,
};
use barnabas_controller::{
    AdminService, AlterConfig, ClusterView, ControllerClient, ControllerControlService, Error,
    Ledger, NewTopic, Running, open_with,
};
use barnabas_controller_core::SessionId;
use barnabas_proto::convert::{IsrProposal, IsrProposals};
use barnabas_proto::v1;
use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::znode::paths;
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterImage, Condition, ConfigEntity, ControllerEpoch, FailedReplicas,
    FlushMode, LeaderEpoch, PartitionEpoch, TopicName, TopicPartition, topic_config::SettingChange,
};
use tokio::sync::{mpsc, watch};

mod support;
use support::{Listener, Told, listen, registration, start, until};

fn memory() -> Memory {
    Memory::new(Duration::from_millis(400))
}

fn owner(memory: &Memory, path: &str) -> Option<SessionId> {
    memory.with_tree(|tree| tree.node(path).and_then(|node| node.stat.owner))
}

/// The index of the one controller among `brokers`, once all of them agree on it.
async fn the_controller(brokers: &mut [Running]) -> (usize, ControllerEpoch) {
    let mut told = Vec::new();
    for broker in brokers.iter_mut() {
        let member =
            until(&mut broker.membership, |m| m.controller.is_some() && m.broker_epoch.is_some())
                .await;
        told.push(member.controller.unwrap());
    }
    assert!(told.iter().all(|each| *each == told[0]), "{told:?}");
    let elected: Vec<usize> =
        (0..brokers.len()).filter(|index| brokers[*index].controller.epoch().is_some()).collect();
    assert_eq!(elected.len(), 1);
    assert_eq!(brokers[elected[0]].controller.epoch(), Some(told[0].1));
    (elected[0], told[0].1)
}

async fn three(memory: &Memory) -> (Vec<Listener>, Vec<Running>) {
    let mut listeners = Vec::new();
    let mut brokers = Vec::new();
    for id in 1..=3 {
        let listener = listen().await;
        brokers.push(start(id, memory.clone(), "memory", &listener.address).await);
        listeners.push(listener);
    }
    // The controller may be elected before the last of them is registered.
    for listener in &mut listeners {
        until(&mut listener.told, |told| told.image.brokers.len() == 3).await;
    }
    (listeners, brokers)
}

fn topic(replication_factor: i32) -> NewTopic {
    NewTopic {
        name: "t".into(),
        partitions: Some(3),
        replication_factor: Some(replication_factor),
        ..NewTopic::default()
    }
}

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_candidates_is_elected() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (_, epoch) = the_controller(&mut brokers).await;
    assert_eq!(epoch, ControllerEpoch(1));
    let data = memory.with_tree(|tree| tree.node(paths::CONTROLLER_EPOCH).unwrap().data.clone());
    assert_eq!(data, b"1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_does_not_make_a_second_controller() {
    for lost in 0..12 {
        let memory = memory();
        let opened = open_with(support::config(1, "memory"), memory.clone()).await.unwrap();
        memory.lose_reply(lost);
        let listener = listen().await;
        let mut broker = opened.start(registration(1, &listener.address)).await.unwrap();
        let member = until(&mut broker.membership, |m| m.controller.is_some()).await;
        let (controller, epoch) = member.controller.unwrap();
        assert_eq!(controller, BrokerId(1));
        assert_eq!(broker.controller.epoch(), Some(epoch));
        let node = memory.with_tree(|tree| tree.node(paths::CONTROLLER_EPOCH).unwrap().clone());
        assert_eq!(node.data, epoch.to_string().into_bytes());
        broker.stop().await;
        assert_eq!(owner(&memory, paths::CONTROLLER), None);
        assert_eq!(owner(&memory, "/brokers/ids/1"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_expiry_another_is_elected_and_the_first_registers_again() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (first, epoch) = the_controller(&mut brokers).await;
    let before = brokers[first].membership.borrow().broker_epoch.unwrap();
    memory.expire(owner(&memory, paths::CONTROLLER).unwrap());
    let member =
        until(&mut brokers[first].membership, |m| m.broker_epoch.is_some_and(|now| now > before))
            .await;
    assert!(
        member.controller_epoch_min >= epoch,
        "R22: an older controller is not obeyed after registering again"
    );
    for broker in &mut brokers {
        until(&mut broker.membership, |m| {
            m.controller.is_some_and(|(_, now)| now.0 == epoch.0 + 1)
        })
        .await;
    }
    let (_, next) = the_controller(&mut brokers).await;
    assert_eq!(next, ControllerEpoch(epoch.0 + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_that_somebody_deletes_is_made_again_also_a_second_time() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (client, _events) = memory.connect().await.unwrap();
    for _ in 0..2 {
        for (index, broker) in brokers.iter_mut().enumerate() {
            let member = until(&mut broker.membership, |m| m.broker_epoch.is_some()).await;
            let before = member.broker_epoch.unwrap();
            let path = paths::broker(broker_id(index));
            client.submit(Request::Delete { path: path.clone(), version: None }).await.unwrap();
            let member =
                until(&mut broker.membership, |m| m.broker_epoch.is_some_and(|now| now > before))
                    .await;
            let node = memory.with_tree(|tree| tree.node(&path).unwrap().clone());
            assert_eq!(Some(BrokerEpoch(node.stat.czxid)), member.broker_epoch);
        }
    }
    // In the end all follow the one that is in office.
    for broker in &mut brokers {
        until(&mut broker.membership, |m| {
            let stored = memory.with_tree(|tree| tree.node(paths::CONTROLLER_EPOCH).cloned());
            let stored = stored.map(|node| node.data);
            owner(&memory, paths::CONTROLLER).is_some()
                && m.controller.map(|(_, epoch)| epoch.to_string().into_bytes()) == stored
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r38_a_broker_registers_anew_in_its_session_whether_it_is_controller_or_not() {
    let memory = memory();
    let (listeners, mut brokers) = three(&memory).await;
    let (elected, epoch) = the_controller(&mut brokers).await;
    brokers[elected].controller.create_topic(topic(3)).await.unwrap();
    for index in [elected, (elected + 1) % 3] {
        let path = paths::broker(broker_id(index));
        let session = owner(&memory, &path).unwrap();
        let before = brokers[index].membership.borrow().broker_epoch.unwrap();
        let mut anew = registration(broker_id(index).0, &listeners[index].address);
        anew.tail_lost = true;
        brokers[index].register_anew(anew);
        let member = until(&mut brokers[index].membership, |m| {
            m.broker_epoch.is_some_and(|now| now > before)
        })
        .await;
        assert_eq!(owner(&memory, &path), Some(session), "the session is the same");
        let node = memory.with_tree(|tree| tree.node(&path).unwrap().clone());
        let read = barnabas_controller::BrokerNode::parse(broker_id(index), &node.data).unwrap();
        assert!(read.tail_lost);
        // The controller has processed it as any restart (R6): no partition trusts the old incarnation.
        let mut told = listeners[(index + 2) % 3].told.clone();
        until(&mut told, |told| {
            let known = told.image.brokers.get(&broker_id(index));
            known.is_some_and(|b| Some(b.epoch) == member.broker_epoch && b.tail_lost)
                && told.image.topics[&name()].partitions.values().all(|p| {
                    p.state.isr_epoch_of(broker_id(index)).is_none_or(|entry| entry > before)
                })
        })
        .await;
        assert_eq!(brokers[elected].controller.epoch(), Some(epoch), "the term goes on");
    }
}

fn broker_id(index: usize) -> BrokerId {
    BrokerId(i32::try_from(index).unwrap() + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_a_fenced_controller_resigns() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (first, epoch) = the_controller(&mut brokers).await;
    // As if somebody else had been elected meanwhile.
    memory.with_tree(|tree| {
        let session = tree.open_session();
        let set =
            Op::Set { path: paths::CONTROLLER_EPOCH.into(), data: b"7".to_vec(), version: None };
        tree.apply(session, &Request::Multi(vec![set])).unwrap();
    });
    let refused = brokers[first].controller.create_topic(topic(1)).await.unwrap_err();
    assert!(
        matches!(refused, Condition::NotController | Condition::UnknownOutcome(_)),
        "{refused:?}"
    );
    assert!(memory.with_tree(|tree| tree.node("/brokers/topics/t").is_none()));
    for broker in &mut brokers {
        until(&mut broker.membership, |m| {
            m.controller.is_some_and(|(_, now)| now > ControllerEpoch(7))
        })
        .await;
    }
    let (_, next) = the_controller(&mut brokers).await;
    assert_eq!(next, ControllerEpoch(8));
    assert!(epoch < next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_pushed_and_led_on_when_its_leader_dies() {
    let memory = memory();
    let (mut listeners, mut brokers) = three(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    for listener in &mut listeners {
        until(&mut listener.told, |told| told.image.brokers.len() == 3).await;
    }
    let created = brokers[controller].controller.create_topic(topic(3)).await.unwrap();
    assert_eq!((created.partitions, created.replication_factor), (3, 3));
    let again = brokers[controller].controller.create_topic(topic(3)).await.unwrap_err();
    assert!(matches!(again, Condition::TopicAlreadyExists(_)));
    for listener in &mut listeners {
        let told = until(&mut listener.told, |told| told.image.topics.contains_key(&name())).await;
        assert_eq!(told.image.topics[&name()].partitions.len(), 3);
    }
    // A leader that is not the controller dies.
    let image = listeners[0].told.borrow().image.clone();
    let (index, state) = image.topics[&name()]
        .partitions
        .iter()
        .map(|(index, partition)| (*index, partition.state.clone()))
        .find(|(_, state)| state.leader != Some(BrokerId(controller as i32 + 1)))
        .unwrap();
    let dead = state.leader.unwrap();
    memory.set_unreachable(true);
    memory.expire(owner(&memory, &paths::broker(dead)).unwrap());
    let told = until(&mut listeners[controller].told, |told| {
        let now = &told.image.topics[&name()].partitions[&index].state;
        now.leader != Some(dead)
    })
    .await;
    let now = &told.image.topics[&name()].partitions[&index].state;
    assert!(now.leader.is_some());
    assert_eq!(now.leader_epoch, LeaderEpoch(state.leader_epoch.0 + 1));
    assert!(!now.in_isr(dead), "R5");
    let path = paths::partition_state(&TopicPartition { topic: name(), partition: index });
    let version = memory.with_tree(|tree| tree.node(&path).unwrap().stat.version);
    assert_eq!(now.partition_epoch, PartitionEpoch(version));
    // Deleting goes to all that live.
    brokers[controller].controller.delete_topic("t").await.unwrap();
    until(&mut listeners[controller].told, |told| told.image.topics.is_empty()).await;
    assert!(memory.with_tree(|tree| !tree.nodes().any(|(path, _)| path.ends_with("/t"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_broker_does_not_delay_the_others() {
    let memory = memory();
    let (mut listeners, mut brokers) = three(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    for listener in &mut listeners {
        until(&mut listener.told, |told| told.image.brokers.len() == 3).await;
    }
    let silent = (controller + 1) % 3;
    listeners[silent].silent.send_replace(true);
    for number in 0..5 {
        let topic = NewTopic { name: format!("t{number}"), ..topic(3) };
        brokers[controller].controller.create_topic(topic).await.unwrap();
    }
    for index in [controller, (controller + 2) % 3] {
        until(&mut listeners[index].told, |told| told.image.topics.len() == 5).await;
    }
    assert!(listeners[silent].told.borrow().image.topics.len() < 5);
    listeners[silent].silent.send_replace(false);
    let told = until(&mut listeners[silent].told, |told| told.image.topics.len() == 5).await;
    assert_eq!(told.full_updates, 1, "what was owed came as deltas on the same stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r12_a_proposal_is_written_and_a_stale_one_refused() {
    let memory = memory();
    let (mut listeners, mut brokers) = three(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    for listener in &mut listeners {
        until(&mut listener.told, |told| told.image.brokers.len() == 3).await;
    }
    brokers[controller].controller.create_topic(topic(3)).await.unwrap();
    let told = until(&mut listeners[0].told, |told| told.image.topics.contains_key(&name())).await;
    let topic = &told.image.topics[&name()];
    let state = &topic.partitions[&0].state;
    let leader = state.leader.unwrap();
    let isr: Vec<_> = state.isr.iter().copied().filter(|(id, _)| *id == leader).collect();
    let proposals = IsrProposals {
        leader,
        broker_epoch: told.image.brokers[&leader].epoch,
        proposals: vec![IsrProposal {
            partition: TopicPartition { topic: name(), partition: 0 },
            incarnation: topic.incarnation,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: isr.clone(),
        }],
    };
    let answers = brokers[controller].controller.alter_partitions(proposals.clone()).await;
    let now = answers[0].clone().unwrap();
    assert_eq!(now.isr, isr);
    assert_eq!(now.partition_epoch.0, state.partition_epoch.0 + 1);
    let stale = brokers[controller].controller.alter_partitions(proposals.clone()).await;
    assert!(matches!(stale[0], Err(Condition::InvalidUpdateVersion { .. })), "{stale:?}");
    let elsewhere = brokers[(controller + 1) % 3].controller.alter_partitions(proposals).await;
    assert_eq!(elsewhere[0], Err(Condition::NotController));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_controller_waits_and_goes_on_with_the_same_session() {
    let memory = memory();
    let (mut listeners, mut brokers) = three(&memory).await;
    let (controller, epoch) = the_controller(&mut brokers).await;
    until(&mut listeners[controller].told, |told| told.image.brokers.len() == 3).await;
    let session = owner(&memory, paths::CONTROLLER).unwrap();
    memory.tell(session, SessionEvent::Disconnected);
    until(&mut brokers[controller].membership, |m| !m.connected).await;
    let handle = brokers[controller].controller.clone();
    let creation = tokio::spawn(async move { handle.create_topic(topic(3)).await });
    memory.tell(session, SessionEvent::Reconnected);
    creation.await.unwrap().unwrap();
    assert_eq!(brokers[controller].controller.epoch(), Some(epoch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_session_away_counts_as_expired() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (controller, epoch) = the_controller(&mut brokers).await;
    let session = owner(&memory, paths::CONTROLLER).unwrap();
    memory.tell(session, SessionEvent::Disconnected);
    memory.tell(session, SessionEvent::HalfSessionAway);
    for broker in &mut brokers {
        until(&mut broker.membership, |m| {
            m.controller.is_some_and(|(_, now)| now.0 == epoch.0 + 1)
        })
        .await;
    }
    until(&mut brokers[controller].membership, |m| m.broker_epoch.is_some()).await;
    assert_ne!(owner(&memory, &paths::broker(BrokerId(controller as i32 + 1))), Some(session));
}

/// Registers broker 1 by hand, in a session of its own.
async fn register(memory: &Memory, registration: &barnabas_controller::BrokerNode) -> SessionId {
    open_with(support::config(9, "memory"), memory.clone()).await.unwrap();
    let (client, _events) = memory.connect().await.unwrap();
    let data = registration.write();
    let create =
        Request::Create { path: "/brokers/ids/1".into(), data, mode: CreateMode::Ephemeral };
    client.submit(create).await.unwrap();
    client.session()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_earlier_incarnation_is_replaced() {
    let memory = memory();
    let listener = listen().await;
    let earlier = register(&memory, &registration(1, &listener.address)).await;
    let czxid = memory.with_tree(|tree: &mut Tree| tree.node("/brokers/ids/1").unwrap().stat.czxid);
    let broker = start(1, memory.clone(), "memory", &listener.address).await;
    assert!(broker.broker_epoch.0 > czxid);
    assert_ne!(owner(&memory, "/brokers/ids/1"), Some(earlier));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_strangers_registration_is_left_alone() {
    let memory = memory();
    let (theirs, mine) = (listen().await, listen().await);
    let stranger = register(&memory, &registration(5, &theirs.address)).await;
    let before = memory.with_tree(|tree| tree.node("/brokers/ids/1").unwrap().clone());
    let opened = open_with(support::config(1, "memory"), memory.clone()).await.unwrap();
    let error = opened.start(registration(1, &mine.address)).await.unwrap_err();
    let expected = Error::IdTaken {
        broker: BrokerId(1),
        address: "127.0.0.1:9005".into(),
        session: stranger.0,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        format!(
            "broker id 1 is already registered by another live broker (127.0.0.1:9005, session {:#x}); give this one \
             another broker.id or stop that one",
            stranger.0
        )
    );
    assert_eq!(memory.with_tree(|tree| tree.node("/brokers/ids/1").unwrap().clone()), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_strangers_registration_is_waited_for() {
    let memory = memory();
    let mine = listen().await;
    // Nobody listens at its address: it died, and its session has not ended yet.
    let stranger = register(&memory, &registration(5, "127.0.0.1:1")).await;
    let opened = open_with(support::config(1, "memory"), memory.clone()).await.unwrap();
    let starting = tokio::spawn(opened.start(registration(1, &mine.address)));
    memory.expire(stranger);
    let running = starting.await.unwrap().unwrap();
    assert_eq!(running.membership.borrow().broker_epoch, Some(running.broker_epoch));
}

/// A ZooKeeper whose first session ends as soon as it is there.
struct Fickle {
    memory: Memory,
    sessions: AtomicUsize,
}

impl Connect for Fickle {
    type Client = <Memory as Connect>::Client;

    async fn connect(&self) -> Result<(Self::Client, mpsc::Receiver<SessionEvent>), ConnectError> {
        let (client, events) = self.memory.connect().await?;
        if self.sessions.fetch_add(1, Ordering::SeqCst) == 0 {
            self.memory.expire(client.session());
        }
        Ok((client, events))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a7_a_session_that_ends_during_the_start_is_followed_by_another() {
    let listener = listen().await;
    let fickle = Fickle { memory: memory(), sessions: AtomicUsize::new(0) };
    let opened = open_with(support::config(1, "memory"), fickle).await.unwrap();
    let running = opened.start(registration(1, &listener.address)).await.unwrap();
    assert_eq!(running.membership.borrow().broker_epoch, Some(running.broker_epoch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_cluster_is_refused_and_nothing_is_changed() {
    let memory = memory();
    let mut config = support::config(1, "zk:2181");
    let opened = open_with(config.clone(), memory.clone()).await.unwrap();
    let id = opened.cluster_id().clone();
    config.cluster_id = Some(id.clone());
    assert_eq!(open_with(config.clone(), memory.clone()).await.unwrap().cluster_id(), &id);
    config.cluster_id = Some(barnabas_types::ClusterId("another".into()));
    let paths = |memory: &Memory| memory.with_tree(|tree| tree.nodes().count());
    let before = paths(&memory);
    let error = open_with(config.clone(), memory.clone()).await.unwrap_err();
    assert!(matches!(error, Error::WrongCluster { .. }), "{error}");
    assert_eq!(paths(&memory), before);
    let empty = Memory::new(Duration::from_secs(1));
    let error = open_with(config, empty.clone()).await.unwrap_err();
    assert!(matches!(error, Error::NoCluster { .. }), "{error}");
    assert_eq!(paths(&empty), 1, "only the root");
}

/// Waits until a broker has made some sessions more.
async fn until_sessions(memory: &Memory, more: i64) {
    let next = || {
        memory.with_tree(|tree| {
            let session = tree.open_session();
            tree.end_session(session);
            session.0
        })
    };
    let (first, mut looks) = (next(), 0);
    while next() - first - looks <= more {
        looks += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_that_lost_its_data_or_is_older_is_not_registered_with() {
    let memory = memory();
    let listener = listen().await;
    let mut broker = start(1, memory.clone(), "memory", &listener.address).await;
    until(&mut broker.membership, |m| m.controller.is_some()).await;
    let by_hand = |request: Request| {
        memory.with_tree(|tree| {
            let session = tree.open_session();
            let answer = tree.apply(session, &request);
            tree.end_session(session);
            answer.unwrap();
        });
    };
    let set = |path: &str, data: &[u8]| {
        by_hand(Request::Multi(vec![Op::Set {
            path: path.into(),
            data: data.into(),
            version: None,
        }]));
    };
    let data = |path: &str| memory.with_tree(|tree| tree.node(path).unwrap().data.clone());
    let id = data(paths::CLUSTER_ID);
    let cluster = String::from_utf8(id.clone()).unwrap();
    let restored = cluster.replacen('{', "{\"restored\":\"1\",", 1);
    for wrong in ["no id", "another id", "an older epoch", "a restoration"] {
        memory.set_unreachable(true);
        memory.expire(owner(&memory, "/brokers/ids/1").unwrap());
        let epoch = data(paths::CONTROLLER_EPOCH);
        match wrong {
            "no id" => by_hand(Request::Delete { path: paths::CLUSTER_ID.into(), version: None }),
            "another id" => set(paths::CLUSTER_ID, br#"{"version":"1","id":"another"}"#),
            "an older epoch" => set(paths::CONTROLLER_EPOCH, b"0"),
            _ => set(paths::CLUSTER_ID, restored.as_bytes()),
        }
        memory.set_unreachable(false);
        until_sessions(&memory, 3).await;
        assert_eq!(owner(&memory, "/brokers/ids/1"), None, "{wrong}");
        assert_eq!(owner(&memory, paths::CONTROLLER), None, "{wrong}");
        if wrong == "no id" {
            let (path, data) = (paths::CLUSTER_ID.to_owned(), id.clone());
            by_hand(Request::Create { path, data, mode: CreateMode::Persistent });
        }
        set(paths::CLUSTER_ID, &id);
        set(paths::CONTROLLER_EPOCH, &epoch);
        until(&mut broker.membership, |m| m.controller.is_some() && m.broker_epoch.is_some()).await;
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_know_newer_epochs_refuse_the_start() {
    let memory = memory();
    let (_listeners, mut brokers) = three(&memory).await;
    let (elected, _) = the_controller(&mut brokers).await;
    brokers[elected].controller.create_topic(topic(3)).await.unwrap();
    let mut opened = open_with(support::config(1, "memory"), memory.clone()).await.unwrap();
    let node = memory.with_tree(|tree| tree.node("/brokers/topics/t").unwrap().data.clone());
    let id = barnabas_proto::znode::TopicNode::parse(&name(), &node).unwrap().topic_id;
    let other = barnabas_types::TopicId([9; 16]);
    let tp = |partition| TopicPartition { topic: name(), partition };
    let same = [(tp(0), id, LeaderEpoch(0)), (tp(1), other, LeaderEpoch(7))];
    assert_eq!(opened.refuse_older(&same).await, Ok(()), "another life of the topic says nothing");
    let error = opened
        .refuse_older(&[(tp(0), id, LeaderEpoch(0)), (tp(2), id, LeaderEpoch(7))])
        .await
        .unwrap_err();
    let said = error.to_string();
    assert!(said.contains("t-2 knows leader epoch 7") && said.contains("only come to 0"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_zookeeper_is_named_after_the_timeout() {
    let memory = memory();
    memory.set_unreachable(true);
    let mut config = support::config(1, "zk.example:2181");
    config.connection_timeout_ms = 300;
    let error = open_with(config, memory).await.unwrap_err().to_string();
    assert!(
        error.contains("zk.example:2181")
            && error.contains("300 ms")
            && error.contains("zookeeper.connect"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_take_distinct_blocks_of_producer_ids() {
    struct View;
    impl ClusterView for View {
        fn image(&self) -> Arc<ClusterImage> {
            Arc::default()
        }
        fn me(&self) -> BrokerId {
            BrokerId(1)
        }
        fn cluster_id(&self) -> barnabas_types::ClusterId {
            barnabas_types::ClusterId::default()
        }
        fn settings(&self, _: bool) -> Vec<v1::BrokerSetting> {
            Vec::new()
        }
        fn changes(&self) -> watch::Receiver<u64> {
            watch::channel(0).1
        }
    }
    let memory = memory();
    let (_listeners, brokers) = three(&memory).await;
    let mut first = Vec::new();
    for broker in brokers.iter().chain(&brokers) {
        let client = ControllerClient::new(
            broker.controller.clone(),
            broker.membership.clone(),
            Arc::new(View),
        );
        let block = client.producer_ids().await.unwrap();
        assert_eq!(block.end - block.start, 1000);
        first.push(block.start);
    }
    assert_eq!(first, vec![0, 1000, 2000, 3000, 4000, 5000]);
}

/// Serves the control and admin services of one broker; its view is what the listener was told.
struct Served {
    address: String,
    client: ControllerClient,
    told: watch::Receiver<Told>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ToldView {
    me: BrokerId,
    told: watch::Receiver<support::Told>,
}

impl ClusterView for ToldView {
    fn image(&self) -> Arc<ClusterImage> {
        Arc::new(self.told.borrow().image.clone())
    }
    fn me(&self) -> BrokerId {
        self.me
    }
    fn cluster_id(&self) -> barnabas_types::ClusterId {
        barnabas_types::ClusterId("c".into())
    }
    fn settings(&self, _: bool) -> Vec<v1::BrokerSetting> {
        Vec::new()
    }
    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// The ledger of a broker that keeps no records.
struct NothingLost;

impl Ledger for NothingLost {
    fn list(&self, _: &v1::ListLossesRequest) -> Result<v1::ListLossesResponse, tonic::Status> {
        Ok(v1::ListLossesResponse::default())
    }
}

/// Three brokers whose gRPC services are those of this crate, over the pushes of this crate.
async fn three_just_served(memory: &Memory) -> (Vec<Served>, Vec<Running>) {
    let mut served = Vec::new();
    let mut brokers = Vec::new();
    for id in 1..=3 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let running = start(id, memory.clone(), "memory", &address).await;
        let (pushes, told, _silent) = support::pushes();
        let seen = told.clone();
        let view: Arc<dyn ClusterView> = Arc::new(ToldView { me: BrokerId(id), told });
        let client = ControllerClient::new(
            running.controller.clone(),
            running.membership.clone(),
            view.clone(),
        );
        let server = tonic::transport::Server::builder()
            .add_service(pushes)
            .add_service(ControllerControlService::server(running.controller.clone()))
            .add_service(AdminService::server(
                running.controller.clone(),
                client.clone(),
                view,
                barnabas_controller::Served {
                    ledger: Arc::new(NothingLost),
                    failovers: Arc::new(support::NoHistory),
                    explains: Arc::new(support::ExplainsNothing),
                    logs: Arc::new(support::NoLog),
                },
            ));
        let incoming =
            tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        let task = tokio::spawn(async move {
            let _silent = _silent;
            server.serve_with_incoming(incoming).await.unwrap();
        });
        served.push(Served { address, client, told: seen, task });
        brokers.push(running);
    }
    (served, brokers)
}

/// The same, and each has been told of all three.
async fn three_served(memory: &Memory) -> (Vec<Served>, Vec<Running>) {
    let (mut served, brokers) = three_just_served(memory).await;
    for broker in &mut served {
        until(&mut broker.told, |told| told.image.brokers.len() == 3).await;
    }
    (served, brokers)
}

/// Until the controller says that the broker may stop, which is drained under this epoch.
async fn until_it_may_stop(client: &ControllerClient, epoch: BrokerEpoch) {
    let asking = async {
        while !client.drain(epoch, true).await.unwrap().may_stop {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(support::PATIENCE, asking).await.expect("it may not stop in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_broker_takes_a_creation_and_the_controller_does_it() {
    let memory = memory();
    let (served, mut brokers) = three_just_served(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    let elsewhere = (controller + 1) % 3;
    // Asked before the broker may have heard of the controller's address: it waits for the push.
    let created = served[elsewhere].client.create_topic(topic(1)).await.unwrap();
    assert_eq!(created.partitions, 3);
    let mut admin =
        AdminClient::connect(format!("http://{}", served[elsewhere].address)).await.unwrap();
    let request = v1::CreateTopicRequest { name: "t".into(), ..Default::default() };
    let response = admin.create_topic(request).await.unwrap().into_inner();
    let Some(v1::create_topic_response::Result::Failure(failure)) = response.result else {
        panic!()
    };
    assert_eq!(failure.name, "TOPIC_ALREADY_EXISTS");
    assert!(failure.message.contains("'t'"), "{}", failure.message);
    // Forwarded once is forwarded enough.
    let request = v1::DeleteTopicRequest { name: "t".into(), forwarded: true };
    let response = admin.delete_topic(request.clone()).await.unwrap().into_inner();
    let Some(v1::delete_topic_response::Result::Failure(failure)) = response.result else {
        panic!()
    };
    assert_eq!(failure.name, "NOT_CONTROLLER");
    let request = v1::DeleteTopicRequest { forwarded: false, ..request };
    let response = admin.delete_topic(request).await.unwrap().into_inner();
    assert!(matches!(response.result, Some(v1::delete_topic_response::Result::Deleted(_))));
    let bad =
        NewTopic { overrides: [("min.insync.replica".into(), "1".into())].into(), ..topic(1) };
    let error = served[elsewhere].client.create_topic(bad).await.unwrap_err();
    assert!(error.to_string().contains("did you mean min.insync.replicas?"), "{error}");
}

fn alter(key: &str, change: SettingChange) -> AlterConfig {
    AlterConfig {
        entity: ConfigEntity::Topic(name()),
        replace: false,
        changes: vec![(key.to_owned(), change)],
        validate_only: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r37_settings_are_changed_live_by_any_broker_and_outlive_their_controller() {
    let memory = memory();
    let (served, mut brokers) = three_served(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    let client = &served[(controller + 1) % 3].client;
    client.create_topic(topic(3)).await.unwrap();
    let sync = alter("flush.mode", SettingChange::Set("sync".into()));
    let altered = client.alter_config(sync).await.unwrap();
    assert_eq!(altered.unconfirmed, [], "every leader has it");
    let sync = |told: &Told| {
        let topic = told.image.topics.get(&name());
        topic.is_some_and(|t| t.config.flush_mode == FlushMode::Sync)
    };
    for broker in &served {
        until(&mut broker.told.clone(), sync).await;
    }
    // Kafka's tools write the settings, then a notice.
    let other = BTreeMap::from([
        ("retention.ms".to_owned(), "5".to_owned()),
        ("flush.mode".to_owned(), "sync".to_owned()),
    ]);
    let data = barnabas_proto::znode::write_config(&other);
    let path = paths::topic_config(&name());
    let notice = Op::Create {
        path: format!("{}/config_change_0000000007", paths::CONFIG_CHANGES),
        data: br#"{"version":2,"entity_path":"topics/t"}"#.to_vec(),
        mode: CreateMode::Persistent,
    };
    let (outside, _events) = memory.connect().await.unwrap();
    let ops = vec![Op::Set { path, data, version: None }, notice];
    outside.submit(Request::Multi(ops)).await.unwrap();
    let mut told = served[0].told.clone();
    until(&mut told, |told| told.image.topics[&name()].config.retention_ms == 5).await;

    memory.expire(owner(&memory, paths::CONTROLLER).unwrap());
    let delete = alter("retention.ms", SettingChange::Delete);
    let altered = client.alter_config(delete).await.unwrap();
    assert_eq!(altered.overrides.len(), 1, "what was stored is built upon");
    for broker in &served {
        until(&mut broker.told.clone(), |told| {
            sync(told) && told.image.topics[&name()].config.retention_ms > 5
        })
        .await;
    }
    let error = client.alter_config(alter("no", SettingChange::Delete)).await.unwrap_err();
    assert!(error.to_string().contains("unknown topic setting 'no'"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_cluster_reach_topics_and_brokers_and_outlive_their_controller() {
    let memory = memory();
    let (served, mut brokers) = three_served(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    let client = &served[(controller + 1) % 3].client;
    client.create_topic(topic(3)).await.unwrap();
    let set = |entity, key: &str, value: &str| AlterConfig {
        entity,
        ..alter(key, SettingChange::Set(value.into()))
    };
    let all = ConfigEntity::Broker(None);
    let altered = client.alter_config(set(all.clone(), "log.retention.ms", "5")).await.unwrap();
    assert_eq!(altered.unconfirmed, [], "every broker has it");
    let one = ConfigEntity::Broker(Some(broker_id(0)));
    client.alter_config(set(one, "log.cleaner.backoff.ms", "7")).await.unwrap();
    let told = |told: &Told| {
        let image = &told.image;
        let of = |broker, key: &str| image.broker_settings.get(&broker)?.get(key).cloned();
        image.topics.get(&name()).is_some_and(|t| t.config.retention_ms == 5)
            && of(None, "log.retention.ms").as_deref() == Some("5")
            && of(Some(broker_id(0)), "log.cleaner.backoff.ms").as_deref() == Some("7")
    };
    for broker in &served {
        until(&mut broker.told.clone(), told).await;
    }
    memory.expire(owner(&memory, paths::CONTROLLER).unwrap());
    // What is loaded by the next controller is built upon, and new topics have it too.
    let altered = client.alter_config(set(all.clone(), "log.flush.mode", "sync")).await.unwrap();
    assert_eq!(altered.overrides.len(), 2);
    let both = |told: &Told| {
        let config = told.image.topics.get(&name()).map(|t| t.config);
        config.is_some_and(|c| c.retention_ms == 5 && c.flush_mode == FlushMode::Sync)
    };
    for broker in &served {
        until(&mut broker.told.clone(), both).await;
    }
    let error = client.alter_config(set(all, "broker.id", "5")).await.unwrap_err();
    assert!(error.to_string().contains("a broker's file"), "{error}");

    // Kafka's tools write the settings, then a notice.
    let data = barnabas_proto::znode::write_config(&BTreeMap::new());
    let notice = Op::Create {
        path: format!("{}/config_change_0000000008", paths::CONFIG_CHANGES),
        data: br#"{"version":2,"entity_path":"brokers/<default>"}"#.to_vec(),
        mode: CreateMode::Persistent,
    };
    let path = paths::config(&ConfigEntity::Broker(None));
    let (outside, _events) = memory.connect().await.unwrap();
    let ops = vec![Op::Set { path, data, version: None }, notice];
    outside.submit(Request::Multi(ops)).await.unwrap();
    until(&mut served[0].told.clone(), |told| {
        told.image.topics[&name()].config.flush_mode == FlushMode::Async
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r38_any_broker_tells_the_controller_what_it_cannot_serve() {
    let memory = memory();
    let (served, mut brokers) = three_served(&memory).await;
    let (controller, _) = the_controller(&mut brokers).await;
    let created = served[controller].client.create_topic(topic(3)).await.unwrap();
    for index in [controller, (controller + 1) % 3] {
        let mut told = served[index].told.clone();
        let known = |told: &Told| told.image.topics.contains_key(&name());
        let image = until(&mut told, known).await.image;
        let life = image.topics[&name()].incarnation;
        assert_eq!(life.topic_id, created.topic_id.unwrap());
        let at = TopicPartition { topic: name(), partition: 0 };
        let report = FailedReplicas {
            broker: broker_id(index),
            broker_epoch: image.brokers[&broker_id(index)].epoch,
            sequence: 1,
            replicas: BTreeMap::from([(at.clone(), life)]),
        };
        served[index].client.report_failed(report.clone()).await.unwrap();
        until(&mut told, |told| {
            let state = &told.image.topics[&name()].partitions[&0].state;
            !told.image.is_online(broker_id(index), &name(), 0) && !state.in_isr(broker_id(index))
        })
        .await;
        let stale = FailedReplicas { broker_epoch: BrokerEpoch(1), ..report };
        let error = served[index].client.report_failed(stale).await.unwrap_err();
        assert!(error.to_string().contains("stale"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_call_of_four_kib_is_not_delayed() {
    let memory = memory();
    let (served, mut brokers) = three_served(&memory).await;
    the_controller(&mut brokers).await;
    let mut admin = AdminClient::connect(format!("http://{}", served[0].address)).await.unwrap();
    let request = v1::DescribeTopicsRequest { names: vec!["x".repeat(4096)] };
    let mut took = Vec::new();
    for _ in 0..21 {
        let begun = std::time::Instant::now();
        admin.describe_topics(request.clone()).await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    // With Nagle's algorithm in the way the median is 40 ms and more.
    assert!(took[10] < Duration::from_millis(20), "{took:?}");
}

/// The registration of a broker as it is stored: its czxid, and whether it says that the broker drains.
fn stored_mark(memory: &Memory, id: BrokerId) -> (i64, bool) {
    let node = memory.with_tree(|tree| tree.node(&paths::broker(id)).unwrap().clone());
    let read = barnabas_controller::BrokerNode::parse(id, &node.data).unwrap();
    (node.stat.czxid, read.draining)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r25_a_drain_marks_the_registration_through_any_broker_and_the_epoch_stays() {
    let memory = memory();
    let (mut served, mut brokers) = three_served(&memory).await;
    let (elected, _) = the_controller(&mut brokers).await;
    let created =
        NewTopic { overrides: [("min.insync.replicas".into(), "2".into())].into(), ..topic(3) };
    served[elected].client.create_topic(created).await.unwrap();
    let drained = (elected + 1) % 3;
    let id = broker_id(drained);
    let before = stored_mark(&memory, id);
    assert!(!before.1);
    let address = &served[(elected + 2) % 3].address;
    let mut admin = AdminClient::connect(format!("http://{address}")).await.unwrap();
    // Whoever is asked must have been told where that broker is.
    let seen = &mut served[(elected + 2) % 3].told;
    until(seen, |told| told.image.brokers.len() == 3).await;
    let request =
        v1::SetBrokerDrainingRequest { broker_id: id.0, draining: true, forwarded: false };
    let response = admin.set_broker_draining(request).await.unwrap().into_inner();
    assert!(matches!(response.result, Some(v1::drain_response::Result::Progress(_))));
    assert_eq!(stored_mark(&memory, id), (before.0, true), "czxid, the broker epoch, stays");
    let epoch = BrokerEpoch(before.0);
    let empty = |told: &Told| {
        let image = &told.image;
        let states = || image.topics[&name()].partitions.values().map(|p| &p.state);
        image.brokers[&id].draining && states().all(|s| s.leader != Some(id) && !s.in_isr(id))
    };
    until(&mut served[drained].told, empty).await;
    until_it_may_stop(&served[drained].client, epoch).await;
    let stale = served[drained].client.drain(BrokerEpoch(before.0 - 1), true).await;
    assert!(matches!(stale, Err(Condition::StaleBrokerEpoch { .. } | Condition::Remote { .. })));
    // What it says of itself goes with the registration.
    memory.expire(owner(&memory, &paths::broker(id)).unwrap());
    until(&mut brokers[drained].membership, |m| m.broker_epoch.is_some_and(|now| now > epoch))
        .await;
    let after = stored_mark(&memory, id);
    assert!(after.0 > before.0 && !after.1, "a new registration starts undrained");
    let request = v1::SetBrokerDrainingRequest { broker_id: 9, draining: true, forwarded: false };
    let response = admin.set_broker_draining(request).await.unwrap().into_inner();
    assert!(matches!(response.result, Some(v1::drain_response::Result::Failure(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r26_a_deposed_controller_lets_nobody_stop() {
    let memory = memory();
    let (served, mut brokers) = three_served(&memory).await;
    let (elected, _) = the_controller(&mut brokers).await;
    let epoch = served[elected].client.mark_draining(true).await.unwrap();
    until_it_may_stop(&served[elected].client, epoch).await;
    // As if somebody else had been elected, of which this controller has not heard yet.
    memory.with_tree(|tree| {
        let session = tree.open_session();
        let set =
            Op::Set { path: paths::CONTROLLER_EPOCH.into(), data: b"7".to_vec(), version: None };
        tree.apply(session, &Request::Multi(vec![set])).unwrap();
    });
    let refused = served[elected].client.drain(epoch, true).await;
    assert!(!refused.is_ok_and(|progress| progress.may_stop));
}
