//! Static members (KIP-345, KIP-814): a place in the group outlives the process that had it.

use std::sync::Arc;

use crate::{AppendError, GroupError, GroupState, Join, Joined, Waiter};

use super::world::{SESSION_MS, World, protocol};

fn send_static(world: &mut World, instance: &str, change: impl FnOnce(&mut Join)) -> Waiter {
    world.send_join(|join| {
        join.instance_id = Some(instance.into());
        change(join);
    })
}

/// A stable group of static members "i0", "i1", ...
fn stable(world: &mut World, members: usize) -> Vec<Joined> {
    let sent: Vec<_> = (0..members).map(|i| send_static(world, &format!("i{i}"), |_| ())).collect();
    world.gather();
    let joined: Vec<_> = sent.into_iter().map(|waiter| world.joined(waiter).unwrap()).collect();
    world.sync_all(&joined);
    joined
}

fn id_of(world: &World, instance: &str) -> Arc<str> {
    let described = world.groups.describe("g").unwrap();
    let member = described.members.into_iter().find(|m| m.instance_id.as_deref() == Some(instance));
    member.unwrap().member_id
}

#[test]
fn a_static_member_joins_at_once_and_comes_back_without_a_rebalance() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    assert!(members[0].member_id.starts_with("i0-"), "{}", members[0].member_id);
    let back = send_static(&mut world, "i1", |_| ());
    assert!(world.is_waiting(back), "told before its new id is in the log");
    assert_eq!(
        world.heartbeat_of(&members[1].member_id, 1, Some("i1")),
        Ok(()),
        "nothing has changed yet"
    );
    assert_eq!(id_of(&world.restart(), "i1"), members[1].member_id);
    world.acknowledge();
    let back = world.joined(back).unwrap();
    assert_eq!((back.generation, back.members.len(), back.skip_assignment), (1, 0, false));
    assert_ne!(back.member_id, members[1].member_id);
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Stable);
    assert_eq!(id_of(&world.restart(), "i1"), back.member_id);

    // It finds its assignment, the others hear nothing, and its predecessor is fenced for good.
    let sync = world.sync(&back, &[]);
    assert_eq!(world.synced(sync).unwrap().assignment, members[1].member_id.as_bytes());
    assert_eq!(world.heartbeat_of(&members[0].member_id, 1, Some("i0")), Ok(()));
    let old = &members[1].member_id;
    assert_eq!(world.heartbeat_of(old, 1, Some("i1")), Err(GroupError::FencedInstanceId));
    assert_eq!(world.leave(old, Some("i1")), Err(GroupError::FencedInstanceId));
    let commit = world.send_commit("t", 1, |commit| {
        commit.member_id = old.clone();
        commit.instance_id = Some("i1".into());
        commit.generation = 1;
    });
    assert_eq!(world.committed(commit), Err(GroupError::FencedInstanceId));
    let join = send_static(&mut world, "i1", |join| join.member_id = old.clone());
    assert_eq!(world.joined(join).unwrap_err().error, GroupError::FencedInstanceId);
}

#[test]
fn kip_814_a_leader_that_comes_back_keeps_the_assignment() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    let leader = if members[0].leader == members[0].member_id { "i0" } else { "i1" };
    let back = send_static(&mut world, leader, |_| ());
    world.settle();
    let back = world.joined(back).unwrap();
    assert_eq!(
        (&back.leader, back.skip_assignment, back.members.len()),
        (&back.member_id, true, 2)
    );

    // A client that does not know the flag is given the old leader's id: it takes itself for a follower.
    let old = send_static(&mut world, leader, |join| join.skip_assignment = false);
    world.settle();
    let old = world.joined(old).unwrap();
    assert_eq!((&old.leader, old.skip_assignment, old.members.len()), (&back.member_id, false, 0));
    assert_ne!(old.member_id, old.leader);
}

#[test]
fn a_static_member_whose_new_id_cannot_be_stored_is_told_and_the_old_one_stays() {
    let mut world = World::new();
    let members = stable(&mut world, 1);
    let back = send_static(&mut world, "i0", |_| ());
    world.refuse(AppendError::NotEnoughReplicas);
    assert_eq!(world.joined(back).unwrap_err().error, GroupError::CoordinatorNotAvailable);
    assert_eq!(world.heartbeat_of(&members[0].member_id, 1, Some("i0")), Ok(()));
    assert_eq!(id_of(&world, "i0"), members[0].member_id);
}

#[test]
fn static_members_that_come_back_together_are_all_in_the_log() {
    let mut world = World::new();
    stable(&mut world, 3);
    let sent: Vec<_> = (0..3).map(|i| send_static(&mut world, &format!("i{i}"), |_| ())).collect();
    let twice = send_static(&mut world, "i0", |_| ());
    assert_eq!(world.open.len(), 1, "a record holds the whole group: one at a time");
    world.settle();
    let joined: Vec<_> = sent.into_iter().map(|waiter| world.joined(waiter).unwrap()).collect();
    let twice = world.joined(twice).unwrap();
    assert_eq!(id_of(&world, "i0"), twice.member_id);
    for (i, joined) in joined.iter().enumerate().skip(1) {
        assert_eq!(id_of(&world, &format!("i{i}")), joined.member_id);
    }
    let restarted = world.restart().groups.describe("g").unwrap();
    assert_eq!(restarted.members, world.groups.describe("g").unwrap().members);
}

#[test]
fn a_static_member_that_asks_again_and_again_waits_once_and_what_waits_counts() {
    let mut world = World::new();
    stable(&mut world, 2);
    let first = send_static(&mut world, "i0", |_| ());
    let mut last = send_static(&mut world, "i0", |_| ());
    for _ in 0..100 {
        let next = send_static(&mut world, "i0", |_| ());
        let refused = world.joined(last).unwrap_err();
        assert_eq!(refused.error, GroupError::FencedInstanceId);
        last = next;
    }
    let other = send_static(&mut world, "i1", |_| ());
    let group = &world.groups.table.groups["g"];
    assert_eq!(group.rejoins.len(), 3, "what is being written, and the last of each");
    let (counted, kept) = (group.counted_bytes, group.rejoins.capacity());
    assert_eq!(counted, group.members_bytes());
    assert!(kept < 10 && counted > 5 * crate::settings::MEMBER_BYTES, "{kept} {counted}");
    world.settle();
    assert!(world.joined(first).is_ok(), "its record was on its way");
    let last = world.joined(last).unwrap();
    assert_eq!(id_of(&world, "i0"), last.member_id);
    assert!(world.joined(other).is_ok());
    let group = &world.groups.table.groups["g"];
    assert!(group.rejoins.is_empty() && group.counted_bytes < counted);
}

#[test]
fn a_rebalance_takes_along_the_static_member_that_waits_for_the_log() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    let back = send_static(&mut world, "i1", |_| ());
    let leader = world.send_join(|join| {
        join.instance_id = Some("i0".into());
        join.member_id = members[0].member_id.clone();
        join.protocols = vec![protocol("range", &["t", "t2"])];
    });
    let (back, leader) = (world.joined(back).unwrap(), world.joined(leader).unwrap());
    assert_eq!((back.generation, leader.generation), (2, 2));
    world.settle();
    assert_eq!(id_of(&world, "i1"), back.member_id);
    world.sync_all(&[back, leader]);
    let restarted = world.restart().groups.describe("g").unwrap();
    assert_eq!(restarted.members, world.groups.describe("g").unwrap().members);
}

#[test]
fn a_static_member_that_changes_the_protocol_calls_all() {
    let mut world = World::new();
    let both = vec![protocol("range", &["t"]), protocol("sticky", &["t"])];
    let sent: Vec<_> = (0..2)
        .map(|i| {
            let protocols = both.clone();
            send_static(&mut world, &format!("i{i}"), |join| join.protocols = protocols)
        })
        .collect();
    world.gather();
    let members: Vec<_> = sent.into_iter().map(|waiter| world.joined(waiter).unwrap()).collect();
    world.sync_all(&members);
    let back =
        send_static(&mut world, "i1", |join| join.protocols = vec![protocol("sticky", &["t"])]);
    assert!(world.open.is_empty() && world.is_waiting(back));
    let beat = world.heartbeat_of(&members[0].member_id, 1, Some("i0"));
    assert_eq!(beat, Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_static_member_that_comes_back_while_the_leader_assigns_calls_all() {
    let mut world = World::new();
    let sent: Vec<_> = (0..2).map(|i| send_static(&mut world, &format!("i{i}"), |_| ())).collect();
    world.gather();
    let members: Vec<_> = sent.into_iter().map(|waiter| world.joined(waiter).unwrap()).collect();
    let follower = usize::from(members[0].leader == members[0].member_id);
    let waits = world.sync(&members[follower], &[]);
    let back = send_static(&mut world, &format!("i{follower}"), |_| ());
    assert_eq!(world.synced(waits), Err(GroupError::FencedInstanceId));
    assert!(world.is_waiting(back));
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::PreparingRebalance);
}

#[test]
fn one_that_waits_under_the_old_id_is_fenced() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    let first = send_static(&mut world, "i1", |join| {
        join.member_id = members[1].member_id.clone();
        join.protocols = vec![protocol("range", &["t", "t2"])];
    });
    assert!(world.is_waiting(first));
    let second = send_static(&mut world, "i1", |_| ());
    assert_eq!(world.joined(first).unwrap_err().error, GroupError::FencedInstanceId);
    assert!(world.is_waiting(second));
}

#[test]
fn a_static_member_stays_through_a_rebalance_that_it_misses_until_its_session_ends() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    let leader = members.iter().position(|m| m.leader == m.member_id).unwrap();
    let (leads, away) = (&members[leader], &members[1 - leader]);
    let join = world.send_join(|join| {
        join.member_id = leads.member_id.clone();
        join.rebalance_timeout_ms = 1_000;
        join.protocols = vec![protocol("range", &["t", "t2"])];
    });
    assert!(world.is_waiting(join));
    world.advance(SESSION_MS - 1);
    assert!(world.is_waiting(join));
    world.advance(1);
    let joined = world.joined(join).unwrap();
    assert_eq!(joined.members.len(), 1, "{} has been silent for its session", away.member_id);
}

#[test]
fn an_operator_removes_a_static_member_by_its_instance_id() {
    let mut world = World::new();
    let members = stable(&mut world, 2);
    assert_eq!(world.leave("", Some("i9")), Err(GroupError::UnknownMemberId));
    assert_eq!(world.leave("", None), Err(GroupError::UnknownMemberId));
    assert_eq!(world.leave("", Some("i1")), Ok(()));
    let beat = world.heartbeat_of(&members[1].member_id, 1, Some("i1"));
    assert_eq!(beat, Err(GroupError::UnknownMemberId));
    let beat = world.heartbeat_of(&members[0].member_id, 1, Some("i0"));
    assert_eq!(beat, Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_static_member_comes_back_into_a_full_group() {
    let mut world = World::with(crate::Settings { group_size_max: 2, ..super::world::settings() });
    stable(&mut world, 2);
    let back = send_static(&mut world, "i1", |_| ());
    world.settle();
    assert_eq!(world.joined(back).unwrap().generation, 1);
    let third = send_static(&mut world, "i2", |_| ());
    assert_eq!(world.joined(third).unwrap_err().error, GroupError::GroupMaxSizeReached);
}

#[test]
fn who_is_gone_while_its_new_id_is_appended_is_not_answered_and_can_come_again() {
    let mut world = World::new();
    stable(&mut world, 1);
    let back = send_static(&mut world, "i0", |_| ());
    world.asked.remove(&back);
    world.step(crate::Event::Gone(back));
    let again = send_static(&mut world, "i0", |_| ());
    world.settle();
    assert_eq!(world.joined(again).unwrap().member_id, id_of(&world, "i0"));
    assert_eq!(
        world.restart().groups.describe("g").unwrap().members,
        world.groups.describe("g").unwrap().members
    );
}

#[test]
fn a_rebalance_timeout_of_nothing_does_not_spin_while_a_static_member_is_away() {
    let mut world = World::new();
    let sent: Vec<_> = [0, 60_000]
        .into_iter()
        .enumerate()
        .map(|(i, ms)| {
            send_static(&mut world, &format!("i{i}"), |join| join.rebalance_timeout_ms = ms)
        })
        .collect();
    world.gather();
    let members: Vec<_> = sent.into_iter().map(|waiter| world.joined(waiter).unwrap()).collect();
    world.sync_all(&members);
    assert_eq!(world.leave(&members[1].member_id, Some("i1")), Ok(()));
    let (start, mut wakes) = (world.now_ms, 0);
    while world.groups.describe("g").unwrap().state != GroupState::Empty {
        world.now_ms = world.groups.wake_at().unwrap().0;
        world.step(crate::Event::Tick);
        wakes += 1;
        assert!(wakes <= 2 * SESSION_MS / crate::REBALANCE_TIMEOUT_MIN_MS, "woken {wakes} times");
    }
    assert!(world.now_ms - start <= SESSION_MS);
}
