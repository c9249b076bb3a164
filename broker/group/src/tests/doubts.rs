//! Commits and generations whose append ended with an unknown outcome and that are in the log all the same: what is
//! deleted afterwards must be deleted there too.

use crate::{
    Answer, AppendError, CommitPartition, DOUBTS_MAX, DeleteGroup, DeleteOffsets, Event,
    GroupError, GroupState, Settings, WRITE_RETRY_MS,
};

use super::world::{World, settings};

/// A commit that lands in the log untold.
fn lose_commit(world: &mut World, topic: &str, offset: i64) {
    let waiter = world.send_commit(topic, offset, |_| ());
    world.lose_track();
    assert_eq!(world.committed(waiter), Err(GroupError::CoordinatorNotAvailable));
}

fn commit(world: &mut World, topic: &str, offset: i64) {
    let waiter = world.send_commit(topic, offset, |_| ());
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
}

fn delete_group(world: &mut World) -> crate::Waiter {
    let waiter = world.waiter();
    world.step(Event::DeleteGroup(DeleteGroup { waiter, group: "g".into() }));
    waiter
}

#[test]
fn a_deleted_topics_offset_in_doubt_does_not_come_back_in_its_next_life() {
    let mut world = World::new();
    commit(&mut world, "other", 1);
    lose_commit(&mut world, "t", 41);
    assert_eq!((world.offset("t"), world.restart().offset("t")), (None, Some(41)));
    assert!(world.groups.committed_topics().contains("t"), "or its deletion would not be told");
    world.step(Event::TopicsDeleted(vec!["t".into()]));
    world.refuse(AppendError::NotEnoughReplicas);
    world.advance(WRITE_RETRY_MS);
    let restarted = world.restart();
    assert_eq!((restarted.offset("t"), restarted.offset("other")), (None, Some(1)));
}

#[test]
fn a_commit_that_ends_in_doubt_behind_a_failed_deletion_of_its_topic_goes_with_the_next() {
    let mut world = World::new();
    let waiter = world.send_commit("t", 41, |_| ());
    world.step(Event::TopicsDeleted(vec!["t".into()]));
    world.lose_track();
    world.refuse(AppendError::NotEnoughReplicas);
    assert!(world.committed(waiter).is_err());
    world.advance(WRITE_RETRY_MS);
    assert_eq!(world.restart().offset("t"), None);
}

#[test]
fn a_group_that_only_the_log_may_know_can_be_deleted() {
    let mut world = World::new();
    lose_commit(&mut world, "t", 41);
    let waiter = delete_group(&mut world);
    world.settle();
    assert_eq!(world.answer(waiter), Answer::DeleteGroup(Ok(())));
    assert_eq!(world.groups.list().count(), 0);
    assert_eq!(world.restart().groups.list().count(), 0);
}

#[test]
fn an_offset_in_doubt_can_be_deleted() {
    let mut world = World::new();
    commit(&mut world, "other", 1);
    lose_commit(&mut world, "t", 41);
    let waiter = world.waiter();
    let partitions = vec![("t".into(), 0)];
    world.step(Event::DeleteOffsets(DeleteOffsets { waiter, group: "g".into(), partitions }));
    world.settle();
    assert_eq!(world.answer(waiter), Answer::DeleteOffsets(Ok(vec![Ok(())])));
    assert_eq!(world.restart().offset("t"), None);
}

#[test]
fn a_generation_in_doubt_goes_with_its_group() {
    let mut world = World::new();
    let (id, join) = world.send_new_join();
    world.gather();
    let joined = world.joined(join).unwrap();
    let sync = world.sync(&joined, &[(&id, "p")]);
    world.lose_track();
    assert_eq!(world.synced(sync), Err(GroupError::CoordinatorNotAvailable));
    assert_eq!(world.leave(&id, None), Ok(()));
    // The record of the empty group, and the deletion before it is tried again.
    world.refuse(AppendError::NotEnoughReplicas);
    assert_eq!(world.restart().groups.describe("g").unwrap().state, GroupState::Stable);
    let waiter = delete_group(&mut world);
    world.settle();
    assert_eq!(world.answer(waiter), Answer::DeleteGroup(Ok(())));
    assert_eq!(world.restart().groups.list().count(), 0);
}

#[test]
fn an_acknowledged_commit_ends_the_doubt_and_one_that_is_certainly_not_in_the_log_is_none() {
    let mut world = World::new();
    lose_commit(&mut world, "t", 41);
    commit(&mut world, "t", 42);
    lose_commit(&mut world, "t", 43);
    assert_eq!(world.offset("t"), Some(42), "what was acknowledged is read");
    let waiter = world.send_commit("t", 1, |commit| commit.group = "h".into());
    world.refuse(AppendError::TooLarge);
    assert_eq!(world.committed(waiter), Err(GroupError::InvalidCommitOffsetSize));
    assert_eq!(world.groups.list().count(), 1);
}

#[test]
fn the_next_look_for_expired_offsets_ends_doubts() {
    let mut world = World::with(Settings { retention_check_interval_ms: 5_000, ..settings() });
    commit(&mut world, "other", 1);
    lose_commit(&mut world, "t", 41);
    let waiter = world.send_commit("t", 7, |commit| commit.group = "h".into());
    world.lose_track();
    assert!(world.committed(waiter).is_err());
    world.advance(5_000);
    let restarted = world.restart();
    assert_eq!((restarted.offset("t"), restarted.offset("other")), (None, Some(1)));
    assert_eq!((world.groups.list().count(), restarted.groups.list().count()), (1, 1));
}

#[test]
fn doubts_end_at_a_bound_above_which_nothing_new_is_committed() {
    let mut world = World::with(Settings { retention_check_interval_ms: 5_000, ..settings() });
    let waiter = world.send_commit("t", 1, |commit| {
        let first = commit.partitions[0].clone();
        let all = 0..i32::try_from(DOUBTS_MAX).unwrap();
        commit.partitions =
            all.map(|partition| CommitPartition { partition, ..first.clone() }).collect();
    });
    world.lose_track();
    assert!(world.committed(waiter).is_err());
    let new = world.send_commit("new", 1, |commit| commit.group = "h".into());
    assert_eq!(world.committed(new), Err(GroupError::CoordinatorNotAvailable));
    commit(&mut world, "t", 2);
    commit(&mut world, "one less", 1);
    world.advance(5_000);
    commit(&mut world, "new", 1);
    commit(&mut world, "newer", 1);
    assert_eq!(world.restart().groups.offsets("g").count(), 4);
}

#[test]
fn a_topic_that_is_deleted_while_the_deletion_of_its_group_fails_leaves_no_offset() {
    let mut world = World::new();
    commit(&mut world, "t", 41);
    commit(&mut world, "other", 1);
    let waiter = delete_group(&mut world);
    world.step(Event::TopicsDeleted(vec!["t".into()]));
    world.refuse(AppendError::NotEnoughReplicas);
    world.settle();
    assert!(matches!(world.answer(waiter), Answer::DeleteGroup(Err(_))));
    assert_eq!((world.offset("t"), world.offset("other")), (None, Some(1)));
    assert_eq!(world.restart().offset("t"), None);
}
