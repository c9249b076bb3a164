//! What broke elsewhere: ghosts that hold a group up, groups without bounds, clients that vanish, a coordinator that
//! stalls or changes in the middle of something.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{AppendError, Event, GroupError, GroupState, Replayed, Settings};

use super::world::{REBALANCE_MS, SESSION_MS, World, settings};

fn vanish(world: &mut World, waiter: crate::Waiter) {
    if world.asked.remove(&waiter).is_some() {
        world.step(Event::Gone(waiter));
    }
}

#[test]
fn f3_a_member_that_never_rejoins_holds_the_others_up_for_the_rebalance_timeout_at_most() {
    let mut world = World::new();
    let members = world.stable(3);
    let (_, newcomer) = world.send_new_join();
    let rejoins: Vec<_> = members[..2]
        .iter()
        .map(|member| world.send_join(|join| join.member_id = member.member_id.clone()))
        .collect();
    let start = world.now_ms;
    while world.is_waiting(newcomer) {
        let beat = world.heartbeat(&members[2].member_id, 1);
        assert_eq!(
            beat,
            Err(GroupError::RebalanceInProgress),
            "the ghost lives, but does not join"
        );
        world.advance(1_000);
        assert!(
            world.now_ms - start <= REBALANCE_MS,
            "held up for longer than the rebalance timeout"
        );
    }
    for waiter in rejoins.into_iter().chain([newcomer]) {
        assert_eq!(world.joined(waiter).unwrap().generation, 2);
    }
}

#[test]
fn f3_clients_that_retry_before_they_know_their_id_leave_no_ghosts() {
    for id_required in [false, true] {
        let mut world = World::with(Settings { initial_rebalance_delay_ms: 3_000, ..settings() });
        // 20 clients with a request timeout of 2 s, again and again, each time as a new member.
        for _ in 0..30 {
            let sent: Vec<_> = (0..20)
                .map(|_| world.send_join(|join| join.member_id_required = id_required))
                .collect();
            world.advance(2_000);
            for waiter in sent {
                vanish(&mut world, waiter);
            }
        }
        world.advance(SESSION_MS + REBALANCE_MS);
        world.settle();
        let left =
            world.groups.describe("g").map(|described| (described.state, described.members.len()));
        assert!(left.is_none_or(|left| left == (GroupState::Empty, 0)), "{left:?}");
        let (_, waiter) = world.send_new_join();
        world.advance(3_000);
        assert_eq!(world.joined(waiter).unwrap().members.len(), 1, "ghosts are still in the group");
    }
}

#[test]
fn f3_joins_whose_end_nobody_tells_expire() {
    let mut world = World::with(Settings { initial_rebalance_delay_ms: 3_000, ..settings() });
    let members: Vec<_> =
        (0..5).map(|_| world.send_join(|join| join.member_id_required = false)).collect();
    world.advance(crate::NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * REBALANCE_MS);
    assert!(members.iter().all(|waiter| !world.is_waiting(*waiter)));
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Empty);
}

#[test]
fn f3_a_group_never_grows_above_its_limit() {
    for id_required in [false, true] {
        let mut world = World::with(Settings { group_size_max: 5, ..settings() });
        let sent: Vec<_> = (0..50)
            .map(|_| world.send_join(|join| join.member_id_required = id_required))
            .collect();
        let mut ids = BTreeSet::new();
        let mut full = 0;
        for waiter in sent {
            if world.is_waiting(waiter) {
                continue;
            }
            match world.joined(waiter) {
                Err(refused) if refused.error == GroupError::MemberIdRequired => {
                    ids.insert(refused.member_id);
                }
                Err(refused) => {
                    assert_eq!(refused.error, GroupError::GroupMaxSizeReached);
                    full += 1;
                }
                Ok(joined) => panic!("not yet: {joined:?}"),
            }
        }
        assert_eq!(full, 45);
        for id in ids {
            let waiter = world.send_join(|join| join.member_id = id);
            assert!(world.is_waiting(waiter), "whoever was given an id has a place");
        }
        assert_eq!(world.groups.describe("g").unwrap().members.len(), 5);
    }
}

#[test]
fn f3_a_seat_that_was_given_out_and_not_taken_is_free_after_the_session_timeout() {
    let mut world = World::with(Settings { group_size_max: 1, ..settings() });
    let ghost = world.new_id(|_| ());
    let full = world.send_join(|_| ());
    assert_eq!(world.joined(full).unwrap_err().error, GroupError::GroupMaxSizeReached);
    world.advance(SESSION_MS);
    assert_eq!(world.groups.list().count(), 0, "an id that nobody used keeps no group");
    let late = world.send_join(|join| join.member_id = ghost);
    assert_eq!(world.joined(late).unwrap_err().error, GroupError::UnknownMemberId);
    let (_, waiter) = world.send_new_join();
    world.gather();
    assert_eq!(world.joined(waiter).unwrap().generation, 1);
}

#[test]
fn a_group_larger_than_a_lowered_limit_keeps_those_who_come_first() {
    let mut world = World::new();
    let members = world.stable(3);
    let small = Settings { group_size_max: 2, ..settings() };
    let mut world = World::restarted(small, world.log, world.now_ms);
    assert_eq!(world.heartbeat(&members[0].member_id, 1), Err(GroupError::RebalanceInProgress));
    let sent: Vec<_> = members
        .iter()
        .map(|member| world.send_join(|join| join.member_id = member.member_id.clone()))
        .collect();
    let results: Vec<_> =
        sent.into_iter().map(|waiter| world.joined(waiter).map(|j| j.generation)).collect();
    assert_eq!(results[..2], [Ok(2), Ok(2)]);
    assert_eq!(results[2].as_ref().unwrap_err().error, GroupError::GroupMaxSizeReached);
    assert_eq!(world.groups.describe("g").unwrap().members.len(), 2);
}

#[test]
fn a_client_that_is_gone_is_not_waited_for_and_may_come_back_under_its_id() {
    let mut world = World::new();
    let members = world.stable(2);
    let first = world.send_join(|join| join.member_id = members[0].member_id.clone());
    vanish(&mut world, first);
    let other = world.send_join(|join| join.member_id = members[1].member_id.clone());
    assert!(world.is_waiting(other), "the one that is gone has not joined");
    let again = world.send_join(|join| join.member_id = members[0].member_id.clone());
    assert_eq!(world.joined(again).unwrap().generation, 2);
    assert_eq!(world.joined(other).unwrap().generation, 2);

    // One that does not come back is silent.
    let first = world.send_join(|join| join.member_id = members[0].member_id.clone());
    vanish(&mut world, first);
    world.advance(SESSION_MS);
    assert_eq!(world.heartbeat(&members[0].member_id, 2), Err(GroupError::UnknownMemberId));
}

#[test]
fn a_new_member_without_an_id_that_is_gone_leaves_at_once() {
    let mut world = World::new();
    let members = world.stable(1);
    let newcomer = world.send_join(|join| join.member_id_required = false);
    vanish(&mut world, newcomer);
    let join = world.send_join(|join| join.member_id = members[0].member_id.clone());
    assert_eq!(world.joined(join).unwrap().members.len(), 1);
}

#[test]
fn a_stall_of_the_coordinator_is_not_silence_of_its_members() {
    let mut world = World::new();
    let members = world.stable(2);
    // The process stands still for ten sessions; then it reads what has lain in its sockets.
    world.now_ms += 10 * SESSION_MS;
    world.step(Event::Tick);
    for member in &members {
        assert_eq!(world.heartbeat(&member.member_id, 1), Ok(()));
    }
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Stable);
    // From then on silence counts as ever.
    let beats = world.now_ms;
    world.advance(SESSION_MS - 1);
    assert_eq!(world.heartbeat(&members[0].member_id, 1), Ok(()));
    world.advance(1);
    assert_eq!(world.now_ms, beats + SESSION_MS);
    assert_eq!(world.heartbeat(&members[1].member_id, 1), Err(GroupError::UnknownMemberId));
}

#[test]
fn f2_a_new_coordinator_knows_what_was_acknowledged_and_begins_the_sessions_anew() {
    let mut world = World::new();
    let members = world.stable(2);
    let commit = world.send_commit("t", 41, |commit| {
        commit.member_id = members[0].member_id.clone();
        commit.generation = 1;
    });
    world.settle();
    assert_eq!(world.committed(commit), Ok(()));
    // Ordered, never acknowledged.
    let commit = world.send_commit("t", 42, |commit| {
        commit.member_id = members[0].member_id.clone();
        commit.generation = 1;
    });
    world.advance_without_appends(SESSION_MS - 1);
    assert!(world.is_waiting(commit));

    let mut next = world.restart();
    assert_eq!(next.offset("t"), Some(41));
    next.advance(SESSION_MS - 1);
    for member in &members {
        assert_eq!(next.heartbeat(&member.member_id, 1), Ok(()));
        let sync = next.sync(member, &[]);
        assert_eq!(next.synced(sync).unwrap().assignment, member.member_id.as_bytes());
    }
}

#[test]
fn f2_a_generation_that_was_not_stored_is_none_to_the_next_coordinator() {
    let mut world = World::new();
    let members = world.stable(1);
    let (_, newcomer) = world.send_new_join();
    let again = world.send_join(|join| join.member_id = members[0].member_id.clone());
    let (again, newcomer) = (world.joined(again).unwrap(), world.joined(newcomer).unwrap());
    assert_eq!(again.generation, 2);
    let own: Vec<_> = [&again, &newcomer].map(|j| (&j.member_id, "p")).into();
    world.sync(&again, &own);

    let mut next = world.restart();
    assert_eq!(next.heartbeat(&again.member_id, 2), Err(GroupError::IllegalGeneration));
    assert_eq!(next.heartbeat(&newcomer.member_id, 2), Err(GroupError::UnknownMemberId));
    let commit = next.send_commit("t", 1, |commit| {
        commit.member_id = again.member_id.clone();
        commit.generation = 2;
    });
    assert_eq!(next.committed(commit), Err(GroupError::IllegalGeneration));
    let join = next.send_join(|join| {
        join.member_id = again.member_id.clone();
        join.protocols = vec![super::world::protocol("range", &["t"])];
    });
    assert_eq!(next.joined(join).unwrap().generation, 2);
}

#[test]
fn f2_a_log_with_strange_and_damaged_records_loads_and_says_what_it_left_out() {
    let mut world = World::new();
    let waiter = world.send_commit("t", 5, |_| ());
    world.settle();
    assert_eq!(world.committed(waiter), Ok(()));
    let good = world.log[0].clone();
    let mut groups = crate::Groups::loading(settings());
    assert_eq!(
        groups.replay(&[0, 3, 0, 1, b'g'], Some(&[0, 0])),
        Replayed::Skipped { key_version: 3 }
    );
    assert_eq!(
        groups.replay(&[], None),
        Replayed::Damaged { group: None, error: crate::DamagedRecord::Truncated }
    );
    assert_eq!(groups.replay(&good.key, good.value.as_deref()), Replayed::Applied);
    for damage in [&b""[..], &[0], &[0, 9, 1], &[0, 3, 0], &good.value.as_ref().unwrap()[..20]] {
        let replayed = groups.replay(&good.key, Some(damage));
        assert!(
            matches!(replayed, Replayed::Damaged { group: Some(_), .. }),
            "{damage:?}: {replayed:?}"
        );
    }
    groups.loaded(world.moment(), &mut crate::Effects::default());
    let crate::OffsetRead::Committed(offset) = groups.committed("g", "t", 0) else {
        panic!("lost")
    };
    assert_eq!(offset.offset, 5, "a damaged record changes nothing");
}

#[test]
fn a_late_acknowledgement_of_an_assignment_does_not_touch_the_next_generation() {
    let mut world = World::new();
    let (id, join) = world.send_new_join();
    world.gather();
    let first = world.joined(join).unwrap();
    let sync = world.sync(&first, &[(&id, "old")]);
    let late = world.open.pop_front().unwrap();
    let again = world.send_join(|join| {
        join.member_id = id.clone();
        join.protocols = vec![super::world::protocol("range", &["t", "t2"])];
    });
    assert_eq!(world.synced(sync), Err(GroupError::RebalanceInProgress));
    let second = world.joined(again).unwrap();
    assert_eq!(second.generation, 2);
    world.log.extend(late.records);
    world.step(Event::Appended { write: late.write, result: Ok(()) });
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::CompletingRebalance);
    let sync = world.sync(&second, &[(&id, "new")]);
    world.settle();
    assert_eq!(world.synced(sync).unwrap().assignment, Bytes::from_static(b"new"));
}

#[test]
fn f6_the_epoch_of_a_committed_offset_comes_back_as_it_was_committed() {
    let mut world = World::new();
    for (epoch, kept) in [(-1, None), (0, Some(0)), (7, Some(7))] {
        let waiter = world.send_commit("t", 5, |commit| commit.partitions[0].leader_epoch = epoch);
        world.settle();
        assert_eq!(world.committed(waiter), Ok(()));
        for groups in [&world.groups, &world.restart().groups] {
            let crate::OffsetRead::Committed(offset) = groups.committed("g", "t", 0) else {
                panic!("lost")
            };
            assert_eq!(offset.leader_epoch, kept);
        }
    }
}

#[test]
fn an_assignment_too_large_for_a_batch_is_told_to_the_members() {
    let mut world = World::new();
    let (id, join) = world.send_new_join();
    world.gather();
    let joined = world.joined(join).unwrap();
    let sync = world.sync(&joined, &[(&id, &"x".repeat(2 << 20))]);
    world.refuse(AppendError::TooLarge);
    assert_eq!(world.synced(sync), Err(GroupError::UnknownServerError));
}

#[test]
fn what_members_keep_in_memory_is_bounded_and_given_back() {
    let mut world = World::new();
    let join = |world: &mut World, group: &str| {
        world.send_join(|join| {
            join.group = group.into();
            join.member_id_required = false;
            join.protocols[0].metadata = vec![0; crate::PROTOCOLS_BYTES_MAX - 100].into();
        })
    };
    let fit = crate::GROUP_BYTES_MAX / crate::PROTOCOLS_BYTES_MAX;
    let sent: Vec<_> = (0..=fit).map(|_| join(&mut world, "g")).collect();
    let full = world.joined(sent[fit]).unwrap_err();
    assert_eq!(full.error, GroupError::GroupMaxSizeReached);
    assert_eq!(world.groups.describe("g").unwrap().members.len(), fit);

    let mut groups = 1;
    let refused = loop {
        let group = format!("g{groups}");
        let waiters: Vec<_> = (0..fit).map(|_| join(&mut world, &group)).collect();
        if let Some(refused) = waiters.into_iter().find(|waiter| !world.is_waiting(*waiter)) {
            break refused;
        }
        groups += 1;
        assert!(groups <= 1 + crate::MEMBERS_BYTES_MAX / crate::GROUP_BYTES_MAX, "no bound");
    };
    assert_eq!(world.joined(refused).unwrap_err().error, GroupError::PolicyViolation);
    world.advance(crate::NEW_MEMBER_JOIN_TIMEOUT_MS + 2 * REBALANCE_MS);
    let again = join(&mut world, "h");
    assert!(world.is_waiting(again), "what members kept is not given back");
}

#[test]
fn a_member_that_grows_beyond_the_groups_room_is_removed_and_the_others_are_called() {
    let mut world = World::new();
    let full = crate::PROTOCOLS_BYTES_MAX - "range".len();
    let others = crate::GROUP_BYTES_MAX / crate::PROTOCOLS_BYTES_MAX - 1;
    let sizes = std::iter::repeat_n(full, others).chain([full / 2, full / 3]);
    let sent: Vec<_> = sizes
        .map(|size| {
            world.send_join(|join| {
                join.member_id_required = false;
                join.protocols[0].metadata = vec![0; size].into();
            })
        })
        .collect();
    world.gather();
    let mut joined: Vec<_> = sent.into_iter().map(|sent| world.joined(sent).unwrap()).collect();
    let grows = joined.pop().unwrap();
    joined.sort_by_key(|joined| joined.leader != joined.member_id);
    assert_eq!(joined[0].leader, joined[0].member_id);
    world.sync_all(&joined);
    let rejoin = world.send_join(|join| {
        join.member_id = grows.member_id.clone();
        join.protocols[0].metadata = vec![0; full].into();
    });
    assert_eq!(world.joined(rejoin).unwrap_err().error, GroupError::GroupMaxSizeReached);
    assert_eq!(world.heartbeat(&grows.member_id, 1), Err(GroupError::UnknownMemberId));
    let called = world.heartbeat(&joined[1].member_id, 1);
    assert_eq!(called, Err(GroupError::RebalanceInProgress), "its partitions are nobody's");
}

#[test]
fn a_coordinator_that_is_always_late_still_gets_through_its_timers() {
    let mut world = World::new();
    world.stable(1);
    for _ in 0..100 {
        let Some(wake) = world.groups.wake_at() else { break };
        world.now_ms = world.now_ms.max(wake.0) + 3 * crate::STALL_MS;
        world.step(Event::Tick);
        world.settle();
        if world.groups.describe("g").is_none_or(|g| g.state == GroupState::Empty) {
            return;
        }
    }
    panic!("a silent member stays for ever: {:?}", world.groups.describe("g"));
}

#[test]
fn a_flood_of_joins_without_an_id_ends_at_a_bound_and_is_forgotten() {
    let mut world = World::with(Settings { group_size_max: usize::MAX, ..settings() });
    for _ in 0..crate::MEMBERS_MAX {
        world.new_id(|_| ());
    }
    let full = world.send_join(|_| ());
    assert_eq!(world.joined(full).unwrap_err().error, GroupError::GroupMaxSizeReached);
    world.advance(SESSION_MS);
    assert_eq!(world.groups.list().count(), 0);
}
