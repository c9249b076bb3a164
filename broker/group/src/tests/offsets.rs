//! OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, deleted topics.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    Answer, AppendError, CommitPartition, DeleteGroup, DeleteOffsets, Event, GroupError,
    GroupState, OffsetRead,
};

use super::world::{World, protocol, settings};

/// OffsetDelete of partition 0 of a topic: the topic's result.
fn send_delete_offset(world: &mut World, topic: &str) -> crate::Waiter {
    let waiter = world.waiter();
    let partitions = vec![(topic.into(), 0)];
    world.step(Event::DeleteOffsets(DeleteOffsets { waiter, group: "g".into(), partitions }));
    waiter
}

fn deleted_offset(world: &mut World, waiter: crate::Waiter) -> Result<(), GroupError> {
    match world.answer(waiter) {
        Answer::DeleteOffsets(result) => result?[0],
        other => panic!("not the answer of a deletion: {other:?}"),
    }
}

fn delete_offset(world: &mut World, topic: &str) -> Result<(), GroupError> {
    let waiter = send_delete_offset(world, topic);
    world.settle();
    deleted_offset(world, waiter)
}

fn send_delete_group(world: &mut World) -> crate::Waiter {
    let waiter = world.waiter();
    world.step(Event::DeleteGroup(DeleteGroup { waiter, group: "g".into() }));
    waiter
}

fn deleted_group(world: &mut World, waiter: crate::Waiter) -> Result<(), GroupError> {
    match world.answer(waiter) {
        Answer::DeleteGroup(result) => result,
        other => panic!("not the answer of a deletion: {other:?}"),
    }
}

fn commit(world: &mut World, topic: &str, offset: i64) {
    let waiter = world.send_commit(topic, offset, |_| ());
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
}

#[test]
fn a_commit_counts_when_it_is_in_the_log() {
    let mut world = World::new();
    let waiter = world.send_commit("t", 7, |c| c.partitions[0].metadata = "note".to_owned());
    assert!(world.is_waiting(waiter));
    assert_eq!(world.offset("t"), None, "returned before it is in the log");
    world.acknowledge();
    assert_eq!(world.committed(waiter), Ok(()));
    let OffsetRead::Committed(offset) = world.groups.committed("g", "t", 0) else {
        panic!("not committed")
    };
    assert_eq!((offset.offset, offset.leader_epoch, &*offset.metadata), (7, Some(3), "note"));
    assert_eq!(offset.commit_timestamp_ms, world.moment().wall_ms);
    let restarted = world.restart();
    assert_eq!(restarted.groups.committed("g", "t", 0), OffsetRead::Committed(offset));
    assert_eq!(restarted.groups.describe("g").unwrap().state, GroupState::Empty);
}

#[test]
fn two_commits_under_way_end_in_log_order_whatever_order_they_are_told_in() {
    let mut world = World::new();
    let (first, second) = (world.send_commit("t", 5, |_| ()), world.send_commit("t", 9, |_| ()));
    let (a, b) = (world.open.pop_front().unwrap(), world.open.pop_front().unwrap());
    world.step(Event::Appended { write: b.write, result: Ok(()) });
    assert!(world.is_waiting(second), "the first may still be in front of it");
    world.step(Event::Appended { write: a.write, result: Ok(()) });
    assert_eq!(world.offset("t"), Some(9));
    assert_eq!((world.committed(first), world.committed(second)), (Ok(()), Ok(())));
    // Told again, and told of what was never ordered.
    world.step(Event::Appended { write: a.write, result: Err(AppendError::TimedOut) });
    world.step(Event::Appended { write: crate::WriteId(99), result: Ok(()) });
    assert_eq!(world.offset("t"), Some(9));
}

#[test]
fn a_commit_that_fails_leaves_the_offset_and_says_so() {
    use AppendError as E;
    let mut world = World::new();
    commit(&mut world, "t", 5);
    for (error, told) in [
        (E::NotEnoughReplicas, GroupError::CoordinatorNotAvailable),
        (E::TimedOut, GroupError::CoordinatorNotAvailable),
        (E::NotLeader, GroupError::NotCoordinator),
        (E::Storage, GroupError::NotCoordinator),
        (E::TooLarge, GroupError::InvalidCommitOffsetSize),
        (E::Other, GroupError::UnknownServerError),
    ] {
        let waiter = world.send_commit("t", 6, |_| ());
        world.refuse(error);
        assert_eq!(world.committed(waiter), Err(told), "{error:?}");
        assert_eq!(world.offset("t"), Some(5));
    }
}

#[test]
fn members_commit_in_their_generation_only() {
    let mut world = World::new();
    let members = world.stable(2);
    let id = &members[0].member_id;
    let ask = |world: &mut World, id: &Arc<str>, generation: i32| {
        let waiter = world.send_commit("t", 1, |commit| {
            commit.member_id = id.clone();
            commit.generation = generation;
        });
        world.settle();
        world.committed(waiter)
    };
    assert_eq!(ask(&mut world, id, 1), Ok(()));
    assert_eq!(ask(&mut world, id, 0), Err(GroupError::IllegalGeneration));
    assert_eq!(ask(&mut world, &"x".into(), 1), Err(GroupError::UnknownMemberId));
    assert_eq!(
        ask(&mut world, &"".into(), -1),
        Err(GroupError::UnknownMemberId),
        "from outside, under members"
    );

    // While members are called they may commit what they have read; once they know the next generation they may not,
    // before they know what it gives them.
    let again = world.send_join(|join| join.member_id = id.clone());
    assert_eq!(ask(&mut world, &members[1].member_id, 1), Ok(()));
    let other = world.send_join(|join| join.member_id = members[1].member_id.clone());
    assert_eq!(world.joined(again).unwrap().generation, 2);
    assert_eq!(ask(&mut world, id, 2), Err(GroupError::RebalanceInProgress));
    assert_eq!(world.joined(other).unwrap().generation, 2);
}

#[test]
fn a_commit_of_a_member_keeps_its_session() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    for _ in 0..4 {
        world.advance(super::world::SESSION_MS - 1);
        let waiter = world.send_commit("t", 1, |commit| {
            commit.member_id = member.member_id.clone();
            commit.generation = 1;
        });
        world.settle();
        assert_eq!(world.committed(waiter), Ok(()));
    }
}

#[test]
fn a_member_of_a_group_that_is_not_known_may_not_commit() {
    let mut world = World::new();
    let mut ask = |knows: bool| {
        let waiter = world.send_commit("t", 1, |commit| {
            commit.generation = 4;
            commit.knows_group_id_not_found = knows;
        });
        world.committed(waiter)
    };
    assert_eq!(ask(false), Err(GroupError::IllegalGeneration));
    assert_eq!(ask(true), Err(GroupError::GroupIdNotFound));
}

#[test]
fn metadata_that_is_too_long_is_refused_for_its_partition_alone() {
    let mut world = World::new();
    let waiter = world.send_commit("t", 1, |commit| {
        let long = CommitPartition {
            metadata: "x".repeat(4_097),
            partition: 1,
            ..commit.partitions[0].clone()
        };
        let fits = CommitPartition {
            metadata: "x".repeat(4_096),
            partition: 2,
            ..commit.partitions[0].clone()
        };
        commit.partitions.extend([long, fits]);
    });
    world.settle();
    let results = vec![Ok(()), Err(GroupError::OffsetMetadataTooLarge), Ok(())];
    assert_eq!(world.answer(waiter), Answer::Commit(Ok(results)));
    assert_eq!(world.groups.committed("g", "t", 1), OffsetRead::None);
    assert_eq!(world.groups.offsets("g").count(), 2);

    let none = world.send_commit("t", 1, |commit| commit.partitions.clear());
    assert_eq!(
        world.answer(none),
        Answer::Commit(Ok(vec![])),
        "nothing to append, nothing to wait for"
    );
}

#[test]
fn kip_496_offsets_of_topics_that_are_not_consumed_can_be_deleted() {
    let mut world = World::new();
    assert_eq!(delete_offset(&mut world, "t"), Err(GroupError::GroupIdNotFound));
    commit(&mut world, "t", 1);
    commit(&mut world, "old", 1);
    let member = world.stable(1).remove(0);
    assert_eq!(delete_offset(&mut world, "t"), Err(GroupError::GroupSubscribedToTopic));
    assert_eq!(delete_offset(&mut world, "old"), Ok(()));
    assert_eq!(
        delete_offset(&mut world, "never"),
        Ok(()),
        "as Kafka: nothing to delete is no error"
    );
    assert_eq!((world.offset("t"), world.offset("old")), (Some(1), None));
    assert_eq!(world.restart().offset("old"), None);
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.settle();
    assert_eq!(delete_offset(&mut world, "t"), Ok(()));
    assert_eq!(world.offset("t"), None);
}

#[test]
fn what_other_kinds_of_groups_read_is_not_known() {
    let mut world = World::new();
    commit(&mut world, "t", 1);
    let connect = |join: &mut crate::Join| {
        join.protocol_type = "connect".into();
        join.protocols[0].metadata = Bytes::from_static(b"not a subscription");
        join.member_id_required = false;
    };
    let waiter = world.send_join(connect);
    world.gather();
    let joined = world.joined(waiter).unwrap();
    world.sync_all(&[joined]);
    assert_eq!(delete_offset(&mut world, "t"), Err(GroupError::NonEmptyGroup));
}

#[test]
fn a_deletion_of_offsets_also_meets_the_commit_in_front_of_it() {
    let mut world = World::new();
    commit(&mut world, "x", 1);
    let committed = world.send_commit("t", 1, |_| ());
    let deleted = send_delete_offset(&mut world, "t");
    world.settle();
    assert_eq!((world.committed(committed), deleted_offset(&mut world, deleted)), (Ok(()), Ok(())));
    assert_eq!((world.offset("t"), world.restart().offset("t")), (None, None));
}

#[test]
fn kip_229_an_empty_group_is_deleted_with_its_offsets() {
    let mut world = World::new();
    let waiter = send_delete_group(&mut world);
    assert_eq!(deleted_group(&mut world, waiter), Err(GroupError::GroupIdNotFound));
    let member = world.stable(1).remove(0);
    let waiter = send_delete_group(&mut world);
    assert_eq!(deleted_group(&mut world, waiter), Err(GroupError::NonEmptyGroup));
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.settle();
    commit(&mut world, "t", 1);

    let under_way = world.send_commit("t2", 1, |_| ());
    let waiter = send_delete_group(&mut world);
    assert!(world.is_waiting(waiter));
    assert_eq!(world.offset("t"), Some(1), "deleted before the log says so");
    let late = world.send_commit("t3", 1, |_| ());
    assert_eq!(world.committed(late), Err(GroupError::CoordinatorNotAvailable));
    let join = world.send_join(|_| ());
    assert_eq!(world.joined(join).unwrap_err().error, GroupError::CoordinatorNotAvailable);
    world.settle();
    assert_eq!(world.committed(under_way), Ok(()));
    assert_eq!(deleted_group(&mut world, waiter), Ok(()));
    assert_eq!(world.groups.list().count(), 0);
    assert_eq!(world.restart().groups.list().count(), 0);
    let again = world.new_id(|_| ());
    assert!(!again.is_empty(), "the name is free again");
}

#[test]
fn a_deletion_that_fails_leaves_the_group() {
    let mut world = World::new();
    commit(&mut world, "t", 1);
    let waiter = send_delete_group(&mut world);
    world.refuse(AppendError::TimedOut);
    assert_eq!(deleted_group(&mut world, waiter), Err(GroupError::CoordinatorNotAvailable));
    assert_eq!(world.offset("t"), Some(1));
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Empty);
    let waiter = send_delete_group(&mut world);
    world.settle();
    assert_eq!(deleted_group(&mut world, waiter), Ok(()));
}

#[test]
fn a_large_group_is_deleted_in_appends_of_bounded_size_and_half_a_deletion_is_no_success() {
    let mut world = World::new();
    let waiter = world.send_commit("t", 1, |commit| {
        let first = commit.partitions[0].clone();
        commit.partitions =
            (0..30_000).map(|partition| CommitPartition { partition, ..first.clone() }).collect();
    });
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
    let waiter = send_delete_group(&mut world);
    assert!(world.open.len() > 1);
    for append in &world.open {
        let bytes: usize = append.records.iter().map(|record| record.key.len()).sum();
        assert!(bytes <= crate::APPEND_BYTES_MAX, "{bytes}");
    }
    world.refuse(AppendError::NotEnoughReplicas);
    world.settle();
    assert_eq!(deleted_group(&mut world, waiter), Err(GroupError::CoordinatorNotAvailable));
    let left = world.groups.offsets("g").count();
    assert!(left > 0 && left < 30_000, "{left}");
    assert_eq!(world.restart().groups.offsets("g").count(), left);
    assert_eq!(world.restart().groups.describe("g"), world.groups.describe("g"));
}

#[test]
fn offsets_of_deleted_topics_go_and_a_failure_is_tried_again_unless_the_topic_is_new() {
    let mut world = World::new();
    commit(&mut world, "a", 1);
    commit(&mut world, "b", 2);
    commit(&mut world, "c", 3);
    let under_way = world.send_commit("a", 5, |_| ());
    world.step(Event::TopicsDeleted(vec!["a".into(), "b".into(), "nobody's".into()]));
    world.acknowledge();
    assert_eq!(world.committed(under_way), Ok(()));
    world.refuse(AppendError::NotEnoughReplicas);
    assert_eq!((world.offset("a"), world.offset("b")), (Some(5), Some(2)));
    // "b" exists again, and somebody commits into its new life.
    let reborn = world.send_commit("b", 0, |_| ());
    world.advance_without_appends(crate::WRITE_RETRY_MS);
    assert_eq!(world.open.len(), 1, "a deletion of the old life was ordered behind it");
    world.settle();
    assert_eq!(world.committed(reborn), Ok(()));
    world.advance(crate::WRITE_RETRY_MS);
    assert_eq!((world.offset("a"), world.offset("b"), world.offset("c")), (None, Some(0), Some(3)));
    let restarted = world.restart();
    assert_eq!(
        (restarted.offset("a"), restarted.offset("b"), restarted.offset("c")),
        (None, Some(0), Some(3))
    );
    assert_eq!(
        world.groups.committed_topics().into_iter().collect::<Vec<_>>(),
        ["b".into(), "c".into()]
    );
}

#[test]
fn an_unload_sends_away_everybody_who_waits() {
    let mut world = World::with(settings());
    let members = world.stable(2);
    let join = world.send_join(|join| join.member_id = members[0].member_id.clone());
    let commit = world.send_commit("t", 1, |commit| {
        commit.member_id = members[1].member_id.clone();
        commit.generation = 1;
    });
    let elsewhere = world.send_commit("t", 1, |commit| commit.group = "h".into());
    world.settle();
    let waiter = world.waiter();
    world.step(Event::DeleteGroup(DeleteGroup { waiter, group: "h".into() }));
    let static_join = world.send_join(|join| {
        join.instance_id = Some("i".into());
        join.protocols = vec![protocol("range", &["t"])];
    });
    assert_eq!((world.committed(commit), world.committed(elsewhere)), (Ok(()), Ok(())));
    let mut effects = crate::Effects::default();
    world.groups.unload(&mut effects);
    let mut refused: Vec<_> = effects.answers.into_iter().collect();
    refused.sort_by_key(|(waiter, _)| *waiter);
    let waiters: Vec<_> = refused.iter().map(|(waiter, _)| *waiter).collect();
    assert_eq!(waiters, [join, waiter, static_join]);
    for (_, answer) in refused {
        let error = match answer {
            Answer::Join(Err(refused)) => refused.error,
            Answer::DeleteGroup(Err(error)) => error,
            other => panic!("not refused: {other:?}"),
        };
        assert_eq!(error, GroupError::NotCoordinator);
    }
    assert_eq!(world.groups.waiting(), 0);
}

#[test]
fn a_failed_deletion_does_not_forget_that_the_group_is_to_be_written_as_empty() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    let waiter = send_delete_group(&mut world);
    world.refuse(AppendError::NotEnoughReplicas);
    world.refuse(AppendError::NotEnoughReplicas);
    assert_eq!(deleted_group(&mut world, waiter), Err(GroupError::CoordinatorNotAvailable));
    assert_eq!(world.restart().groups.describe("g").unwrap().state, GroupState::Stable);
    world.advance(crate::WRITE_RETRY_MS);
    assert_eq!(world.restart().groups.describe("g"), world.groups.describe("g"));
}
