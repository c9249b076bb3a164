//! Adding partitions against the tree in memory, with lost replies and foreign changes in between.

use std::collections::BTreeMap;

use barnabas_controller_core::{TopicWrite, WriteId, WriteOutcome};
use barnabas_proto::znode::{TopicNode, paths};
use barnabas_types::{Assignment, BrokerId, Incarnation, TopicId};

use super::tests::{World, applied_but_reply_lost, lost, state, topic};
use super::*;
use crate::zookeeper::CreateMode;

/// From the partitions that `t` was created with (`first`) to `total`.
fn grow(world: &World, first: i32, total: i32) -> WriteTopic {
    let czxid = world.tree.node("/brokers/topics/t").unwrap().stat.czxid;
    let replicas = || vec![BrokerId(2), BrokerId(1)];
    let write = TopicWrite::Grow {
        write: WriteId(9),
        name: topic("t"),
        incarnation: Incarnation { topic_id: TopicId([1; 16]), czxid },
        first,
        partitions: (first..total).map(|index| (index, (replicas(), state(0)))).collect(),
    };
    WriteTopic::new(world.epoch_version, write)
}

fn assigned(world: &World) -> BTreeMap<i32, Vec<BrokerId>> {
    let node = world.tree.node("/brokers/topics/t").unwrap();
    let read = TopicNode::parse(&topic("t"), &node.data).unwrap().partitions;
    read.into_iter().map(|(index, a)| (index, a.replicas)).collect()
}

fn done(outcome: WriteOutcome) -> Result<(WriteId, WriteOutcome), GivenUp> {
    Ok((WriteId(9), outcome))
}

#[test]
fn r29_new_partitions_are_loaded_beside_the_old_ones() {
    let mut world = World::new();
    world.create("t", 2);
    let before = assigned(&world);
    let write = grow(&world, 2, 4);
    assert_eq!(world.run(write), done(WriteOutcome::Applied));
    let after = assigned(&world);
    assert_eq!(after.len(), 4);
    assert!(before.iter().all(|(index, replicas)| after.get(index) == Some(replicas)));
    let read = world.load().snapshot.topics.remove(&topic("t")).unwrap();
    assert_eq!(read.partitions[&3].state, Some(state(0)));
    assert_eq!(read.partitions[&3].assignment.replicas, [BrokerId(2), BrokerId(1)]);
}

#[test]
fn partitions_are_added_once_whatever_the_network_does() {
    type Network = fn(
        &mut crate::zookeeper::memory::Tree,
        barnabas_controller_core::SessionId,
        &Request,
    ) -> Answer;
    for network in [lost as Network, applied_but_reply_lost] {
        let mut world = World::new();
        world.create("t", 2);
        let write = grow(&world, 2, 3);
        assert_eq!(world.run_with(write, network), done(WriteOutcome::Applied));
        assert_eq!(assigned(&world).len(), 3);
    }
}

#[test]
fn r1_a_fenced_controller_adds_nothing_and_another_life_is_left_alone() {
    let mut world = World::new();
    world.create("t", 2);
    let late = grow(&world, 2, 3);
    world.elect();
    assert_eq!(world.run(late), done(WriteOutcome::Fenced));
    let earlier = grow(&world, 2, 3);
    let delete = TopicWrite::Delete { write: WriteId(2), name: topic("t"), partitions: vec![0, 1] };
    let delete = WriteTopic::new(world.epoch_version, delete);
    world.run(delete).unwrap();
    assert_eq!(world.run(earlier.clone()), done(WriteOutcome::TopicConflict));
    world.create("t", 2);
    assert_eq!(world.run(earlier), done(WriteOutcome::TopicConflict));
    assert_eq!(assigned(&world).len(), 2);
}

#[test]
fn what_others_wrote_meanwhile_is_kept_or_refused() {
    let mut world = World::new();
    world.create("t", 2);
    // The assignment of a partition that is there changes between read and write.
    let write = grow(&world, 2, 3);
    let outcome = world.run_with(write, |tree, session, request| {
        let mut node =
            TopicNode::parse(&topic("t"), &tree.node("/brokers/topics/t").unwrap().data).unwrap();
        node.partitions.insert(0, Assignment::settled(vec![BrokerId(7), BrokerId(1)]));
        let path = paths::topic(&topic("t"));
        let set = Op::Set { path, data: node.write(), version: None };
        tree.apply(session, &Request::Multi(vec![set])).unwrap();
        tree.apply(session, request)
    });
    assert_eq!(outcome, done(WriteOutcome::Applied));
    assert_eq!(assigned(&world)[&0], [BrokerId(7), BrokerId(1)]);
    // Their number changed: the decision does not fit any more.
    let other = grow(&world, 2, 4);
    assert!(matches!(world.run(other), Ok((_, WriteOutcome::Refused { .. }))));
    // Nodes that a hand left there.
    let path = paths::partition(&topic("t"), 3);
    let create = Request::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
    world.tree.apply(world.session, &create).unwrap();
    let blocked = grow(&world, 3, 4);
    let Ok((_, WriteOutcome::Refused { reason })) = world.run(blocked) else { panic!() };
    assert!(reason.contains("remove them"));
}

#[test]
fn more_than_one_transaction_carries_is_refused() {
    let mut world = World::new();
    world.create("t", 1);
    let many = grow(&world, 1, 5000);
    let Ok((_, WriteOutcome::Refused { reason })) = world.run(many) else { panic!() };
    assert!(reason.contains("512 KiB"));
}
