//! The procedures against the tree in memory, with lost replies and foreign changes in between.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AssignmentWrite, CandidateEffect, CandidateEvent, ConfigWrite, PartitionWrite, SessionId,
    TopicWrite, WriteId, WriteOutcome,
};
use barnabas_proto::znode::{self, BrokerNode, paths};
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, ConfigEntity, ControllerEpoch, DirectoryId, Incarnation,
    LeaderEpoch, PartitionEpoch, PartitionState, TopicId, TopicName, TopicPartition,
};

use super::*;
use crate::zookeeper::memory::Tree;
use crate::zookeeper::{CreateMode, WatchKind};

/// A tree with the base nodes, a session, and a controller of epoch 1.
pub(super) struct World {
    pub(super) tree: Tree,
    pub(super) session: SessionId,
    pub(super) epoch_version: i32,
}

impl World {
    pub(super) fn new() -> Self {
        let mut tree = Tree::new();
        let session = tree.open_session();
        for request in base_tree_requests() {
            tree.apply(session, &request).unwrap();
        }
        let mut world = Self { tree, session, epoch_version: 0 };
        world.elect();
        world
    }

    /// A further election: fences every controller before it.
    pub(super) fn elect(&mut self) {
        let node = self.tree.node(paths::CONTROLLER_EPOCH).unwrap().clone();
        let epoch = znode::parse_controller_epoch(&node.data).unwrap();
        let set = Op::Set {
            path: paths::CONTROLLER_EPOCH.into(),
            data: znode::write_controller_epoch(ControllerEpoch(epoch.0 + 1)),
            version: None,
        };
        self.tree.apply(self.session, &Request::Multi(vec![set])).unwrap();
        self.epoch_version = node.stat.version + 1;
    }

    pub(super) fn run<P: Procedure>(&mut self, mut procedure: P) -> P::Output {
        run_at_once(&mut procedure, |request| self.tree.apply(self.session, request))
    }

    /// As `run`, but the first multi is played by `network`.
    pub(super) fn run_with<P: Procedure>(
        &mut self,
        mut procedure: P,
        network: impl Fn(&mut Tree, SessionId, &Request) -> Answer,
    ) -> P::Output {
        let mut first = true;
        run_at_once(&mut procedure, |request| {
            if first && matches!(request, Request::Multi(_)) {
                first = false;
                return network(&mut self.tree, self.session, request);
            }
            self.tree.apply(self.session, request)
        })
    }

    pub(super) fn create(&mut self, name: &str, partitions: i32) {
        let write = WriteTopic::new(self.epoch_version, create(name, 1, partitions));
        assert!(matches!(self.run(write), Ok((_, WriteOutcome::TopicCreated { .. }))));
    }

    pub(super) fn load(&mut self) -> Loaded {
        self.run(Load::default()).unwrap()
    }
}

pub(super) fn lost(_: &mut Tree, _: SessionId, _: &Request) -> Answer {
    Err(Error::OutcomeUnknown("cut".into()))
}

pub(super) fn applied_but_reply_lost(
    tree: &mut Tree,
    session: SessionId,
    request: &Request,
) -> Answer {
    tree.apply(session, request).unwrap();
    Err(Error::OutcomeUnknown("cut".into()))
}

pub(super) fn topic(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

pub(super) fn state(partition_epoch: i32) -> PartitionState {
    PartitionState {
        leader: Some(BrokerId(1)),
        leader_epoch: LeaderEpoch(partition_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        controller_epoch: ControllerEpoch(1),
        isr: vec![(BrokerId(1), BrokerEpoch(5)), (BrokerId(2), BrokerEpoch(6))],
    }
}

fn create(name: &str, id: u8, partitions: i32) -> TopicWrite {
    let replicas = || vec![BrokerId(1), BrokerId(2)];
    TopicWrite::Create {
        write: WriteId(1),
        name: topic(name),
        topic_id: TopicId([id; 16]),
        overrides: BTreeMap::from([("min.insync.replicas".into(), "2".into())]),
        partitions: (0..partitions).map(|index| (index, (replicas(), state(0)))).collect(),
    }
}

fn delete(name: &str) -> TopicWrite {
    TopicWrite::Delete { write: WriteId(2), name: topic(name), partitions: vec![0] }
}

fn write(id: u64, index: i32, expected: i32) -> PartitionWrite {
    PartitionWrite {
        write: WriteId(id),
        partition: TopicPartition { topic: topic("t"), partition: index },
        expected: PartitionEpoch(expected),
        state: state(expected + 1),
    }
}

fn batch(world: &World, writes: Vec<PartitionWrite>) -> WritePartitions {
    WritePartitions::batches(world.epoch_version, writes).remove(0)
}

/// Partition 0 of `t`, of two partitions, on the way to brokers 2 and 3.
fn assign(topic_version: i32, expected: i32) -> AssignmentWrite {
    let settled = Assignment::settled(vec![BrokerId(1), BrokerId(2)]);
    let moving = settled.towards(&[BrokerId(2), BrokerId(3)], Some(9));
    AssignmentWrite {
        write: WriteId(5),
        partition: TopicPartition { topic: topic("t"), partition: 0 },
        topic_id: TopicId([1; 16]),
        topic_version,
        assignments: BTreeMap::from([(0, moving), (1, settled)]),
        expected: PartitionEpoch(expected),
        state: state(expected + 1),
    }
}

fn registration() -> BrokerNode {
    BrokerNode {
        host: "h".into(),
        port: 9092,
        control_address: "h:9192".into(),
        rack: None,
        directory_id: DirectoryId([3; 16]),
        tail_lost: false,
        draining: false,
        timestamp_ms: 0,
    }
}

/// Performs one effect of the candidate in `session`.
fn call(
    tree: &mut Tree,
    session: SessionId,
    me: i32,
    effect: &CandidateEffect,
) -> Option<CandidateEvent> {
    let (call, requests) =
        CandidateCall::new(effect, session, BrokerId(me), &registration(), 7).unwrap();
    let answers: Vec<Answer> =
        requests.iter().map(|request| tree.apply(session, request)).collect();
    call.event(&answers)
}

#[test]
fn settings_of_brokers_are_loaded_and_written_as_kafka_does() {
    let mut world = World::new();
    let set = |path: &str, data: &[u8]| Request::Create {
        path: path.into(),
        data: data.to_vec(),
        mode: CreateMode::Persistent,
    };
    for (path, data) in [
        ("/config/brokers/<default>", &br#"{"version":1,"config":{"log.retention.ms":"5"}}"#[..]),
        ("/config/brokers/2", br#"{"version":1,"config":{"log.cleaner.backoff.ms":"7"}}"#),
        ("/config/brokers/x", b"{}"),
        ("/config/brokers/3", b"{"),
    ] {
        world.tree.apply(world.session, &set(path, data)).unwrap();
    }
    let loaded = world.load();
    assert_eq!(loaded.problems.len(), 2, "{:?}", loaded.problems);
    let pair = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
    let expected = BTreeMap::from([
        (None, pair("log.retention.ms", "5")),
        (Some(BrokerId(2)), pair("log.cleaner.backoff.ms", "7")),
    ]);
    assert_eq!(loaded.snapshot.broker_settings, expected);
    for (broker, expected) in [(None, "5"), (Some(BrokerId(2)), "7"), (Some(BrokerId(4)), "")] {
        let key = if broker.is_none() { "log.retention.ms" } else { "log.cleaner.backoff.ms" };
        let expected = if expected.is_empty() { BTreeMap::new() } else { pair(key, expected) };
        let entity = ConfigEntity::Broker(broker);
        let overrides = Some(pair(key, "9"));
        let write = ConfigWrite {
            write: WriteId(3),
            entity: entity.clone(),
            life: None,
            expected,
            overrides,
        };
        let write = WriteConfig::new(world.epoch_version, write);
        assert_eq!(world.run(write), Ok((WriteId(3), WriteOutcome::Applied)), "{entity}");
        let stored = &world.tree.node(&paths::config(&entity)).unwrap().data;
        assert_eq!(znode::parse_config(&entity, stored), Ok(pair(key, "9")));
    }
}

#[test]
fn what_is_written_is_loaded() {
    let mut world = World::new();
    world.create("t", 3);
    let session = world.session;
    let event = call(&mut world.tree, session, 1, &CandidateEffect::CreateRegistration);
    let Some(CandidateEvent::RegistrationCreated { epoch, .. }) = event else {
        panic!("{event:?}")
    };
    let loaded = world.load();
    assert_eq!(loaded.problems, Vec::<String>::new());
    assert_eq!(loaded.snapshot.brokers[&BrokerId(1)].epoch, epoch);
    let read = &loaded.snapshot.topics[&topic("t")];
    assert_eq!(read.overrides["min.insync.replicas"], "2");
    assert_eq!(read.incarnation.czxid, world.tree.node("/brokers/topics/t").unwrap().stat.czxid);
    assert_eq!(read.partitions.len(), 3);
    assert_eq!(read.partitions[&2].state, Some(state(0)));
}

#[test]
fn unreadable_nodes_are_marked_and_nothing_else_is_touched() {
    let mut world = World::new();
    world.create("t", 2);
    world.create("u", 1);
    let set = |path: &str| Op::Set { path: path.into(), data: b"{".to_vec(), version: None };
    let create = |path: &str| Op::Create {
        path: path.into(),
        data: Vec::new(),
        mode: CreateMode::Persistent,
    };
    let ops = vec![
        set("/brokers/topics/t/partitions/0/state"),
        set("/config/topics/t"),
        set("/brokers/topics/u"),
        create("/admin/delete_topics/u"),
    ];
    world.tree.apply(world.session, &Request::Multi(ops)).unwrap();
    let loaded = world.load();
    assert_eq!(loaded.problems.len(), 3);
    let unreadable: Vec<_> = loaded.snapshot.unreadable.iter().collect();
    assert_eq!(unreadable, [&topic("u")], "not deleted");
    assert_eq!(loaded.stale_marks, [], "its mark says still what was wanted");
    let guarded = &loaded.snapshot.topics[&topic("t")].overrides;
    assert_eq!((&*guarded["retention.ms"], &*guarded["flush.mode"]), ("-1", "sync"));
    let read = &loaded.snapshot.topics[&topic("t")];
    assert_eq!(read.partitions[&0].state, None);
    assert_eq!(read.partitions[&1].state, Some(state(0)));
    assert!(!loaded.snapshot.topics.contains_key(&topic("u")));
}

#[test]
fn a_mark_of_a_topic_that_is_gone_is_reported() {
    let mut world = World::new();
    world.create("t", 1);
    for name in ["t", "gone"] {
        let path = paths::delete_topic(&topic(name));
        let create = Request::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
        world.tree.apply(world.session, &create).unwrap();
    }
    let loaded = world.load();
    assert!(loaded.snapshot.topics[&topic("t")].deleting);
    assert_eq!(loaded.stale_marks, vec![topic("gone")]);
}

#[test]
fn r1_a_conflict_ends_one_write_and_the_rest_is_applied() {
    let mut world = World::new();
    world.create("t", 3);
    let first = batch(&world, vec![write(1, 1, 0)]);
    assert_eq!(world.run(first), Ok(vec![(WriteId(1), WriteOutcome::Applied)]));
    let second = batch(&world, vec![write(2, 0, 0), write(3, 1, 0), write(4, 2, 0)]);
    let mut outcomes = world.run(second).unwrap();
    outcomes.sort_by_key(|(id, _)| *id);
    assert_eq!(
        outcomes,
        vec![
            (WriteId(2), WriteOutcome::Applied),
            (WriteId(3), WriteOutcome::Conflict { now: Some(state(1)) }),
            (WriteId(4), WriteOutcome::Applied),
        ]
    );
}

#[test]
fn r1_a_fenced_controller_writes_nothing() {
    let mut world = World::new();
    world.create("t", 1);
    let (late, topic_late) = (
        batch(&world, vec![write(1, 0, 0)]),
        WriteTopic::new(world.epoch_version, create("u", 1, 1)),
    );
    let delete_late = WriteTopic::new(world.epoch_version, delete("t"));
    world.elect();
    assert_eq!(world.run(late), Ok(vec![(WriteId(1), WriteOutcome::Fenced)]));
    assert_eq!(world.run(topic_late), Ok((WriteId(1), WriteOutcome::Fenced)));
    assert_eq!(world.run(delete_late), Ok((WriteId(2), WriteOutcome::Fenced)));
    assert_eq!(world.load().snapshot.topics[&topic("t")].partitions[&0].state, Some(state(0)));
    assert!(world.tree.node("/brokers/topics/u").is_none());
}

#[test]
fn an_unknown_outcome_is_read_back() {
    let mut world = World::new();
    world.create("t", 2);
    let applied = batch(&world, vec![write(1, 0, 0)]);
    assert_eq!(
        world.run_with(applied, applied_but_reply_lost),
        Ok(vec![(WriteId(1), WriteOutcome::Applied)])
    );
    let not_applied = batch(&world, vec![write(2, 1, 0)]);
    assert_eq!(
        world.run_with(not_applied, lost),
        Ok(vec![(WriteId(2), WriteOutcome::Conflict { now: Some(state(0)) })])
    );
    let fenced = batch(&world, vec![write(3, 1, 0)]);
    world.elect();
    assert_eq!(world.run_with(fenced, lost), Ok(vec![(WriteId(3), WriteOutcome::Fenced)]));
}

#[test]
fn writes_come_in_batches_of_at_most_a_hundred() {
    let writes = (0..250).map(|n| write(n, 0, 0)).collect();
    let sizes: Vec<usize> =
        WritePartitions::batches(0, writes).iter().map(|batch| batch.open_len()).collect();
    assert_eq!(sizes, vec![100, 100, 50]);
}

#[test]
fn r29_a_topic_is_created_once_whatever_the_network_does() {
    let mut world = World::new();
    let czxid = |world: &World, name: &str| {
        world.tree.node(&paths::topic(&topic(name))).unwrap().stat.czxid
    };
    let write = WriteTopic::new(world.epoch_version, create("a", 1, 2));
    let outcome = world.run_with(write, applied_but_reply_lost);
    assert_eq!(outcome, Ok((WriteId(1), WriteOutcome::TopicCreated { czxid: czxid(&world, "a") })));
    let write = WriteTopic::new(world.epoch_version, create("b", 1, 2));
    let outcome = world.run_with(write, lost);
    assert_eq!(outcome, Ok((WriteId(1), WriteOutcome::TopicCreated { czxid: czxid(&world, "b") })));
    let other = WriteTopic::new(world.epoch_version, create("a", 9, 2));
    assert_eq!(world.run(other), Ok((WriteId(1), WriteOutcome::TopicConflict)));
}

#[test]
fn settings_that_stood_there_before_are_replaced() {
    let mut world = World::new();
    let path = paths::topic_config(&topic("t"));
    let create = Request::Create { path, data: b"{}".to_vec(), mode: CreateMode::Persistent };
    world.tree.apply(world.session, &create).unwrap();
    world.create("t", 1);
    assert_eq!(world.load().snapshot.topics[&topic("t")].overrides["min.insync.replicas"], "2");
}

fn overrides(min: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("min.insync.replicas".into(), min.into())])
}

/// From `min.insync.replicas` 2, as created, to `min`.
fn config_write(world: &World, min: &str) -> WriteConfig {
    let czxid = world.tree.node("/brokers/topics/t").unwrap().stat.czxid;
    let write = ConfigWrite {
        write: WriteId(3),
        entity: ConfigEntity::Topic(topic("t")),
        life: Some(Incarnation { topic_id: TopicId([1; 16]), czxid }),
        expected: overrides("2"),
        overrides: Some(overrides(min)),
    };
    WriteConfig::new(world.epoch_version, write)
}

fn stored_overrides(world: &World) -> BTreeMap<String, String> {
    let node = world.tree.node("/config/topics/t").unwrap();
    znode::parse_config(&ConfigEntity::Topic(topic("t")), &node.data).unwrap()
}

#[test]
fn settings_are_written_once_whatever_becomes_of_the_reply() {
    type Network = fn(&mut Tree, SessionId, &Request) -> Answer;
    let networks: [Network; 3] =
        [|tree, session, request| tree.apply(session, request), applied_but_reply_lost, lost];
    for network in networks {
        let mut world = World::new();
        world.create("t", 1);
        let write = config_write(&world, "1");
        assert_eq!(world.run_with(write, network), Ok((WriteId(3), WriteOutcome::Applied)));
        assert_eq!(stored_overrides(&world), overrides("1"));
        assert_eq!(world.tree.node("/config/topics/t").unwrap().stat.version, 1);
    }
}

#[test]
fn r1_settings_are_written_only_on_what_was_decided_on() {
    let mut world = World::new();
    world.create("t", 1);
    // Somebody else writes between the read and the write.
    let write = config_write(&world, "1");
    let theirs = |tree: &mut Tree, session: SessionId, request: &Request| {
        let data = znode::write_config(&overrides("7"));
        let set = Op::Set { path: "/config/topics/t".into(), data, version: None };
        tree.apply(session, &Request::Multi(vec![set])).unwrap();
        tree.apply(session, request)
    };
    let now = WriteOutcome::Config { now: overrides("7") };
    assert_eq!(world.run_with(write, theirs), Ok((WriteId(3), now.clone())));
    // And before the read.
    let write = config_write(&world, "1");
    assert_eq!(world.run(write), Ok((WriteId(3), now)));
    assert_eq!(stored_overrides(&world), overrides("7"));
    let fenced = config_write(&world, "1");
    world.elect();
    assert_eq!(world.run(fenced), Ok((WriteId(3), WriteOutcome::Fenced)));
    let of_an_earlier_life = config_write(&world, "1");
    world.run(WriteTopic::new(world.epoch_version, delete("t"))).unwrap();
    world.create("t", 1);
    assert_eq!(world.run(of_an_earlier_life), Ok((WriteId(3), WriteOutcome::TopicConflict)));
}

#[test]
fn notices_are_read_once_and_removed() {
    let mut world = World::new();
    let notice = |world: &mut World, n: u32, text: &str| {
        let path = format!("{}/config_change_{n:010}", paths::CONFIG_CHANGES);
        let data = text.as_bytes().to_vec();
        let create = Request::Create { path, data, mode: CreateMode::Persistent };
        world.tree.apply(world.session, &create).unwrap();
    };
    notice(&mut world, 1, r#"{"version":2,"entity_path":"topics/t"}"#);
    notice(&mut world, 2, r#"{"version":2,"entity_path":"brokers/1"}"#);
    let read = ReadConfigNotices::new(world.epoch_version);
    let found = world.run(read).unwrap();
    let changed = [ConfigEntity::Topic(topic("t")), ConfigEntity::Broker(Some(BrokerId(1)))];
    assert_eq!(found.changed, changed.into());
    assert!(!found.more);
    let read = ReadConfigNotices::new(world.epoch_version);
    assert_eq!(world.run(read).unwrap(), ConfigNotices::default());
    for n in 0..150 {
        notice(&mut world, n, r#"{"version":2,"entity_path":"topics/u"}"#);
    }
    let read = ReadConfigNotices::new(world.epoch_version);
    assert!(world.run(read).unwrap().more);
    // A deposed controller leaves them to the next one.
    world.elect();
    world.run(ReadConfigNotices::new(world.epoch_version - 1)).unwrap();
    let left = world.tree.nodes().filter(|(path, _)| path.contains("config_change_")).count();
    assert_eq!(left, 50);
}

#[test]
fn a_topic_too_large_for_one_transaction_is_refused_before_anything_is_sent() {
    let mut world = World::new();
    let before = world.tree.zxid();
    let write = WriteTopic::new(world.epoch_version, create("t", 1, 5000));
    assert!(matches!(world.run(write), Ok((_, WriteOutcome::Refused { .. }))));
    assert_eq!(world.tree.zxid(), before);
}

#[test]
fn deletion_leaves_nothing() {
    let mut world = World::new();
    world.create("t", 120);
    world.create("u", 1);
    let write = WriteTopic::new(world.epoch_version, delete("t"));
    assert_eq!(world.run(write), Ok((WriteId(2), WriteOutcome::Applied)));
    let left: Vec<&str> =
        world.tree.nodes().map(|(path, _)| path).filter(|path| path.ends_with("/t")).collect();
    assert_eq!(left, Vec::<&str>::new());
    let again = WriteTopic::new(world.epoch_version, delete("t"));
    assert_eq!(world.run(again), Ok((WriteId(2), WriteOutcome::TopicConflict)));
}

#[test]
fn deletion_resumes_after_each_interruption() {
    for stop_after in 1..12 {
        let mut world = World::new();
        world.create("t", 120);
        let mut procedure = WriteTopic::new(world.epoch_version, delete("t"));
        let mut requests = 0;
        let tree = &mut world.tree;
        let session = world.session;
        let outcome = run_at_once(&mut procedure, |request| {
            requests += 1;
            if requests > stop_after {
                Err(Error::SessionExpired)
            } else {
                tree.apply(session, request)
            }
        });
        let next = WriteTopic::new(world.epoch_version, delete("t"));
        if outcome.is_err() && world.tree.node("/brokers/topics/t").is_some() {
            assert_eq!(world.run(next), Ok((WriteId(2), WriteOutcome::Applied)));
        }
        assert!(!world.tree.nodes().any(|(path, _)| path.ends_with("/t")), "{stop_after}");
    }
}

#[test]
fn deletion_survives_lost_replies() {
    for lose in 1..9 {
        let mut world = World::new();
        world.create("t", 120);
        let mut procedure = WriteTopic::new(world.epoch_version, delete("t"));
        let mut requests = 0;
        let outcome = run_at_once(&mut procedure, |request| {
            requests += 1;
            let answer = world.tree.apply(world.session, request);
            if requests == lose { Err(Error::OutcomeUnknown("cut".into())) } else { answer }
        });
        assert_eq!(outcome, Ok((WriteId(2), WriteOutcome::Applied)), "{lose}");
        assert!(!world.tree.nodes().any(|(path, _)| path.ends_with("/t")));
    }
}

#[test]
fn one_of_two_candidates_wins_the_race() {
    let mut world = World::new();
    let (a, b) = (world.session, world.tree.open_session());
    let race = CandidateEffect::Race { epoch: ControllerEpoch(2), version: world.epoch_version };
    let won = call(&mut world.tree, a, 1, &race);
    let version = world.epoch_version + 1;
    assert_eq!(
        won,
        Some(CandidateEvent::RaceWon { session: a, epoch: ControllerEpoch(2), version })
    );
    assert_eq!(call(&mut world.tree, b, 2, &race), Some(CandidateEvent::RaceLost { session: b }));
    let read = call(&mut world.tree, b, 2, &CandidateEffect::ReadController);
    let Some(CandidateEvent::ControllerRead { node: Some(node), epoch, .. }) = read else {
        panic!("{read:?}")
    };
    assert_eq!((node.owner, node.broker, epoch), (a, BrokerId(1), ControllerEpoch(2)));
    world.tree.end_session(a);
    let fired = world.tree.take_fired();
    let expected =
        crate::zookeeper::Watched { path: paths::CONTROLLER.into(), kind: WatchKind::Node };
    assert!(fired.contains(&(b, expected)));
    let late = call(&mut world.tree, a, 1, &race);
    assert_eq!(late, Some(CandidateEvent::Expired { session: a }));
}

#[test]
fn r17_a_controller_is_deleted_at_the_version_of_its_election_and_no_later_one() {
    let mut world = World::new();
    let (a, b) = (world.session, world.tree.open_session());
    let elect = |world: &mut World, session, id, epoch, version| {
        let race = CandidateEffect::Race { epoch: ControllerEpoch(epoch), version };
        let won = call(&mut world.tree, session, id, &race);
        assert!(matches!(won, Some(CandidateEvent::RaceWon { .. })), "{won:?}");
    };
    let version = world.epoch_version;
    elect(&mut world, a, 1, 2, version);
    let read = call(&mut world.tree, b, 2, &CandidateEffect::ReadController);
    let Some(CandidateEvent::ControllerRead { node: Some(node), mzxid, version, .. }) = read else {
        panic!("{read:?}")
    };
    assert_eq!(node.czxid, mzxid, "one election wrote both");
    let delete = CandidateEffect::DeleteController { version };
    let tried = Some(CandidateEvent::ControllerDeleteTried { session: b });
    assert_eq!(call(&mut world.tree, b, 2, &delete), tried);
    assert!(world.tree.node(paths::CONTROLLER).is_none());
    elect(&mut world, a, 1, 3, version);
    assert_eq!(call(&mut world.tree, b, 2, &delete), tried, "said twice, or late");
    assert!(world.tree.node(paths::CONTROLLER).is_some());
}

#[test]
fn a_foreign_registration_is_a_strangers() {
    let mut world = World::new();
    let session = world.session;
    let create = Request::Create {
        path: paths::broker(BrokerId(1)),
        data: br#"{"host":"kafka","port":9092,"version":5}"#.to_vec(),
        mode: CreateMode::Ephemeral,
    };
    world.tree.apply(session, &create).unwrap();
    let b = world.tree.open_session();
    let exists = call(&mut world.tree, b, 1, &CandidateEffect::CreateRegistration);
    assert_eq!(exists, Some(CandidateEvent::RegistrationExists { session: b }));
    let read = call(&mut world.tree, b, 1, &CandidateEffect::ReadRegistration);
    let Some(CandidateEvent::RegistrationRead { node: Some(node), .. }) = read else {
        panic!("{read:?}")
    };
    assert_eq!(node.owner, session);
    assert_ne!(node.directory, registration().directory_id);
    assert_eq!(call(&mut world.tree, b, 1, &CandidateEffect::AwaitRegistrationGone), None);
    world.tree.end_session(session);
    assert_eq!(world.tree.take_fired().len(), 1);
}

#[test]
fn the_list_of_brokers_is_watched() {
    let mut world = World::new();
    let session = world.session;
    assert_eq!(world.run(ReadBrokers::default()).unwrap(), Registrations::default());
    call(&mut world.tree, session, 4, &CandidateEffect::CreateRegistration);
    let fired = world.tree.take_fired();
    assert_eq!(fired.len(), 1);
    assert_eq!(fired[0].1.kind, WatchKind::Children);
    let found = world.run(ReadBrokers::default()).unwrap();
    assert_eq!(found.brokers.keys().collect::<Vec<_>>(), vec![&BrokerId(4)]);
}

#[test]
fn no_producer_id_is_given_twice() {
    let mut world = World::new();
    assert_eq!(world.run(TakeProducerIds::new(BrokerId(1))), Ok(0..1000));
    // Applied, but the reply is lost: the block is skipped.
    let taken = world.run_with(TakeProducerIds::new(BrokerId(1)), applied_but_reply_lost);
    assert_eq!(taken, Ok(2000..3000));
    // Somebody else is faster.
    let other = |tree: &mut Tree, session: SessionId, request: &Request| {
        run_at_once(&mut TakeProducerIds::new(BrokerId(2)), |request| tree.apply(session, request))
            .unwrap();
        tree.apply(session, request)
    };
    assert_eq!(world.run_with(TakeProducerIds::new(BrokerId(1)), other), Ok(4000..5000));
}

#[test]
fn r18_assignment_and_state_are_one_write() {
    let mut world = World::new();
    world.create("t", 2);
    let write = assign(0, 0);
    let outcome = world.run(WriteAssignment::new(world.epoch_version, write.clone()));
    assert_eq!(outcome, Ok((WriteId(5), WriteOutcome::Applied)));
    let read = &world.load().snapshot.topics[&topic("t")];
    assert_eq!(read.version, 1);
    assert_eq!(read.partitions[&0].assignment, write.assignments[&0]);
    assert_eq!(read.partitions[&1].assignment, write.assignments[&1]);
    assert_eq!(read.partitions[&0].state, Some(state(1)));
}

#[test]
fn r18_another_version_of_either_node_is_a_conflict() {
    let mut world = World::new();
    world.create("t", 2);
    let settled = || Assignment::settled(vec![BrokerId(1), BrokerId(2)]);
    let both = BTreeMap::from([(0, settled()), (1, settled())]);
    let proposal = batch(&world, vec![write(1, 0, 0)]);
    world.run(proposal).unwrap();
    let stale_state = WriteAssignment::new(world.epoch_version, assign(0, 0));
    let found = WriteOutcome::AssignmentConflict { topic: Some((0, both)), now: Some(state(1)) };
    assert_eq!(world.run(stale_state), Ok((WriteId(5), found)));
    let good = WriteAssignment::new(world.epoch_version, assign(0, 1));
    assert_eq!(world.run(good), Ok((WriteId(5), WriteOutcome::Applied)));
    let stale_topic = WriteAssignment::new(world.epoch_version, assign(0, 2));
    let Ok((_, WriteOutcome::AssignmentConflict { topic: Some((1, _)), now })) =
        world.run(stale_topic)
    else {
        panic!("no conflict");
    };
    assert_eq!(now, Some(state(2)));
    world.run(WriteTopic::new(world.epoch_version, delete("t"))).unwrap();
    let gone = WriteAssignment::new(world.epoch_version, assign(1, 2));
    let nothing = WriteOutcome::AssignmentConflict { topic: None, now: None };
    assert_eq!(world.run(gone), Ok((WriteId(5), nothing)));
}

#[test]
fn r18_an_unknown_outcome_is_found_out() {
    for network in [applied_but_reply_lost, lost] {
        let mut world = World::new();
        world.create("t", 2);
        let write = WriteAssignment::new(world.epoch_version, assign(0, 0));
        let outcome = world.run_with(write, network);
        assert_eq!(outcome, Ok((WriteId(5), WriteOutcome::Applied)));
        assert_eq!(world.load().snapshot.topics[&topic("t")].version, 1, "once");
    }
    let mut world = World::new();
    world.create("t", 2);
    let late = WriteAssignment::new(world.epoch_version, assign(0, 0));
    world.elect();
    assert_eq!(world.run_with(late, lost), Ok((WriteId(5), WriteOutcome::Fenced)));
    assert_eq!(world.load().snapshot.topics[&topic("t")].version, 0);
}
