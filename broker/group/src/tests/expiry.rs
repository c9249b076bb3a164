//! KIP-211: how long offsets and groups without members are kept.

use crate::{GroupState, Settings};

use super::world::{SESSION_MS, World, settings};

const RETENTION_MS: u64 = 100_000;
const CHECK_MS: u64 = 1_000;

fn world() -> World {
    World::with(Settings {
        offsets_retention_ms: RETENTION_MS,
        retention_check_interval_ms: CHECK_MS,
        ..settings()
    })
}

fn commit(world: &mut World, topic: &str, change: impl FnOnce(&mut crate::Commit)) {
    let waiter = world.send_commit(topic, 1, change);
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
}

/// Time passes, and the member sends heartbeats.
fn live(world: &mut World, member: &crate::Joined, ms: u64) {
    let end = world.now_ms + ms;
    while world.now_ms < end {
        world.advance((end - world.now_ms).min(SESSION_MS / 2));
        let _ = world.heartbeat(&member.member_id, member.generation);
    }
}

#[test]
fn f1_offsets_of_an_idle_group_with_members_stay() {
    let mut world = world();
    let member = world.stable(1).remove(0);
    commit(&mut world, "t", |c| {
        c.member_id = member.member_id.clone();
        c.generation = 1;
    });
    live(&mut world, &member, 4 * RETENTION_MS);
    assert_eq!(world.offset("t"), Some(1));
    assert_eq!(world.groups.expires_at_ms("g", "t", 0), None);

    // Across a change of the coordinator too.
    let mut next = world.restart();
    live(&mut next, &member, 4 * RETENTION_MS);
    assert_eq!(next.offset("t"), Some(1));
}

#[test]
fn f1_offsets_of_a_group_that_is_stuck_in_a_rebalance_stay() {
    let mut world = world();
    let members = world.stable(2);
    commit(&mut world, "t", |c| {
        c.member_id = members[0].member_id.clone();
        c.generation = 1;
    });
    commit(&mut world, "other", |c| {
        c.member_id = members[0].member_id.clone();
        c.generation = 1;
    });
    let join = |join: &mut crate::Join, id: &std::sync::Arc<str>| {
        join.member_id = id.clone();
        join.rebalance_timeout_ms = i32::try_from(3 * RETENTION_MS).unwrap();
    };
    let waits = world.send_join(|j| join(j, &members[0].member_id));
    let end = world.now_ms + 2 * RETENTION_MS;
    while world.now_ms < end && world.is_waiting(waits) {
        let _ = world.heartbeat(&members[1].member_id, 1);
        world.advance(SESSION_MS / 2);
        assert_eq!((world.offset("t"), world.offset("other")), (Some(1), Some(1)));
    }
}

#[test]
fn f1_the_clock_starts_when_the_group_is_empty_and_a_restart_does_not_change_it() {
    let mut world = world();
    let member = world.stable(1).remove(0);
    commit(&mut world, "t", |c| {
        c.member_id = member.member_id.clone();
        c.generation = 1;
    });
    live(&mut world, &member, 3 * RETENTION_MS);
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.settle();
    let empty_since = world.moment().wall_ms;
    assert_eq!(
        world.groups.expires_at_ms("g", "t", 0),
        Some(empty_since + i64::try_from(RETENTION_MS).unwrap())
    );
    world.advance(RETENTION_MS / 2);
    let mut next = world.restart();
    for world in [&mut world, &mut next] {
        world.advance(RETENTION_MS / 2 - CHECK_MS);
        assert_eq!(world.offset("t"), Some(1));
        world.advance(2 * CHECK_MS);
        assert_eq!(world.offset("t"), None);
        assert_eq!(world.groups.list().count(), 0, "the group goes with its last offset");
        assert_eq!(world.restart().groups.list().count(), 0);
    }
}

#[test]
fn f1_a_group_that_comes_back_in_time_keeps_its_offsets() {
    let mut world = world();
    let member = world.stable(1).remove(0);
    commit(&mut world, "t", |c| {
        c.member_id = member.member_id.clone();
        c.generation = 1;
    });
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.advance(RETENTION_MS - 2 * CHECK_MS);
    let (_, join) = world.send_new_join();
    world.gather();
    let joined = world.joined(join).unwrap();
    assert_eq!(joined.generation, 3, "members, none, members");
    world.sync_all(std::slice::from_ref(&joined));
    live(&mut world, &joined, 3 * RETENTION_MS);
    assert_eq!(world.offset("t"), Some(1));
}

#[test]
fn f1_a_topic_that_nobody_subscribes_to_any_more_goes_by_its_last_commit() {
    let mut world = world();
    commit(&mut world, "left", |_| ());
    let member = world.stable(1).remove(0);
    commit(&mut world, "t", |c| {
        c.member_id = member.member_id.clone();
        c.generation = 1;
    });
    live(&mut world, &member, RETENTION_MS - CHECK_MS);
    assert_eq!(world.offset("left"), Some(1));
    live(&mut world, &member, 3 * CHECK_MS);
    assert_eq!((world.offset("left"), world.offset("t")), (None, Some(1)));
}

#[test]
fn f1_subscriptions_that_cannot_be_read_keep_everything() {
    let mut world = world();
    commit(&mut world, "left", |_| ());
    let waiter = world.send_join(|join| {
        join.member_id_required = false;
        join.protocols[0].metadata = bytes::Bytes::from_static(&[0]);
    });
    world.gather();
    let member = world.joined(waiter).unwrap();
    world.sync_all(std::slice::from_ref(&member));
    live(&mut world, &member, 3 * RETENTION_MS);
    assert_eq!(world.offset("left"), Some(1));
}

#[test]
fn a_simple_consumers_offsets_go_by_each_commit() {
    let mut world = world();
    commit(&mut world, "a", |_| ());
    world.advance(RETENTION_MS / 2);
    commit(&mut world, "b", |_| ());
    world.advance(RETENTION_MS / 2 + CHECK_MS);
    assert_eq!((world.offset("a"), world.offset("b")), (None, Some(1)));
    world.advance(RETENTION_MS / 2 + CHECK_MS);
    assert_eq!(world.groups.list().count(), 0);
}

#[test]
fn an_operators_commit_into_a_group_that_is_long_empty_has_its_full_time() {
    let mut world = world();
    let member = world.stable(1).remove(0);
    commit(&mut world, "t", |c| {
        c.member_id = member.member_id.clone();
        c.generation = 1;
    });
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.advance(RETENTION_MS - CHECK_MS);
    commit(&mut world, "t", |_| ());
    world.advance(RETENTION_MS - CHECK_MS);
    assert_eq!(world.offset("t"), Some(1));
    world.advance(3 * CHECK_MS);
    assert_eq!(world.offset("t"), None);
}

#[test]
fn a_retention_that_the_client_asked_for_counts_from_its_commit() {
    let mut world = world();
    commit(&mut world, "short", |c| c.retention_ms = Some(5_000));
    commit(&mut world, "long", |c| c.retention_ms = Some(i64::try_from(RETENTION_MS).unwrap() * 3));
    let restarted = world.restart();
    assert_eq!(
        restarted.groups.expires_at_ms("g", "short", 0),
        Some(world.moment().wall_ms + 5_000)
    );
    world.advance(5_000 + CHECK_MS);
    assert_eq!((world.offset("short"), world.offset("long")), (None, Some(1)));
    world.advance(2 * RETENTION_MS);
    assert_eq!(world.offset("long"), Some(1));
    world.advance(RETENTION_MS + CHECK_MS);
    assert_eq!(world.offset("long"), None);
}

#[test]
fn an_expiry_does_not_overtake_the_commit_in_front_of_it() {
    let mut world = world();
    commit(&mut world, "t", |_| ());
    world.advance(RETENTION_MS - CHECK_MS);
    let waiter = world.send_commit("t", 2, |_| ());
    world.advance_without_appends(3 * CHECK_MS);
    assert_eq!(world.open.len(), 1, "a deletion was ordered behind a commit");
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
    world.advance(2 * CHECK_MS);
    assert_eq!((world.offset("t"), world.restart().offset("t")), (Some(2), Some(2)));
}

#[test]
fn a_group_that_expires_takes_nothing_new_until_that_is_settled() {
    let mut world = world();
    commit(&mut world, "t", |_| ());
    world.advance_without_appends(RETENTION_MS + CHECK_MS);
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Dead);
    let waiter = world.send_commit("t", 2, |_| ());
    assert_eq!(world.committed(waiter), Err(crate::GroupError::CoordinatorNotAvailable));
    world.refuse(crate::AppendError::NotEnoughReplicas);
    commit(&mut world, "t", |_| ());
    world.advance(CHECK_MS);
    assert_eq!(world.offset("t"), Some(1));
}

#[test]
fn a_wall_clock_that_jumps_back_expires_nothing_early() {
    let mut world = world();
    commit(&mut world, "t", |_| ());
    world.wall_offset_ms -= 3_600_000;
    world.advance(RETENTION_MS * 2);
    assert_eq!(world.offset("t"), Some(1));
    world.wall_offset_ms += 3_600_000;
    world.advance(CHECK_MS);
    assert_eq!(world.offset("t"), None);
}
