//! JoinGroup, SyncGroup and Heartbeat of dynamic members: from an empty group to a stable one and on.

use crate::{Answer, Event, GroupError, GroupState, Settings};

use super::world::{REBALANCE_MS, SESSION_MS, World, protocol, settings};

#[test]
fn kip_394_a_new_member_gets_an_id_first_and_joins_with_it() {
    let mut world = World::new();
    let id = world.new_id(|_| ());
    assert!(id.starts_with("c-u"), "{id}");
    let waiter = world.send_join(|join| join.member_id = id.clone());
    assert!(world.is_waiting(waiter), "the first rebalance ends by its delay");
    world.gather();
    let joined = world.joined(waiter).unwrap();
    assert_eq!((joined.generation, &joined.leader, &joined.member_id), (1, &id, &id));
    assert_eq!((&*joined.protocol_type, &*joined.protocol_name), ("consumer", "range"));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.members[0].metadata, protocol("range", &["t"]).metadata);
}

#[test]
fn before_version_4_a_new_member_joins_at_once() {
    let mut world = World::new();
    let waiter = world.send_join(|join| join.member_id_required = false);
    world.gather();
    assert_eq!(world.joined(waiter).unwrap().generation, 1);
}

#[test]
fn the_assignment_is_in_the_log_before_anybody_hears_of_it() {
    let mut world = World::new();
    let (_, a) = world.send_new_join();
    let (_, b) = world.send_new_join();
    world.gather();
    let (a, b) = (world.joined(a).unwrap(), world.joined(b).unwrap());
    let (leader, follower) = if a.leader == a.member_id { (a, b) } else { (b, a) };
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));

    let follows = world.sync(&follower, &[]);
    let leads = world.sync(&leader, &[(&leader.member_id, "p0"), (&follower.member_id, "p1")]);
    assert!(world.is_waiting(follows) && world.is_waiting(leads), "answered before the append");
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::CompletingRebalance);
    assert_eq!(world.restart().groups.describe("g"), None);
    world.acknowledge();
    assert_eq!(world.synced(follows).unwrap().assignment, "p1");
    assert_eq!(world.synced(leads).unwrap().assignment, "p0");

    let described = world.groups.describe("g").unwrap();
    assert_eq!((described.state, described.generation), (GroupState::Stable, 1));
    let restarted = world.restart().groups.describe("g").unwrap();
    assert_eq!(restarted.members, described.members);
    assert_eq!((restarted.state, restarted.leader), (GroupState::Stable, described.leader));
}

#[test]
fn a_lost_assignment_is_told_to_all_and_the_group_rebalances() {
    use crate::AppendError as E;
    for (error, told) in [
        (E::NotEnoughReplicas, GroupError::CoordinatorNotAvailable),
        (E::TimedOut, GroupError::CoordinatorNotAvailable),
        (E::NotLeader, GroupError::NotCoordinator),
        (E::Storage, GroupError::NotCoordinator),
        (E::TooLarge, GroupError::UnknownServerError),
    ] {
        let mut world = World::new();
        let (_, join) = world.send_new_join();
        world.gather();
        let joined = world.joined(join).unwrap();
        let sync = world.sync(&joined, &[(&joined.member_id, "p")]);
        world.refuse(error);
        assert_eq!(world.synced(sync), Err(told), "{error:?}");
        assert_eq!(world.groups.describe("g").unwrap().state, GroupState::PreparingRebalance);
    }
}

#[test]
fn a_stable_member_fetches_its_assignment_again() {
    let mut world = World::new();
    let members = world.stable(2);
    let waiter = world.sync(&members[1], &[]);
    assert_eq!(world.synced(waiter).unwrap().assignment, members[1].member_id.as_bytes());
    assert!(world.open.is_empty(), "nothing new to write");
}

#[test]
fn a_sync_is_checked() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    let mut ask = |change: &dyn Fn(&mut crate::Joined)| {
        let mut asked = member.clone();
        change(&mut asked);
        let waiter = world.sync(&asked, &[]);
        world.synced(waiter).map(|_| ())
    };
    assert_eq!(ask(&|_| ()), Ok(()));
    assert_eq!(ask(&|j| j.generation += 1), Err(GroupError::IllegalGeneration));
    assert_eq!(ask(&|j| j.member_id = "x".into()), Err(GroupError::UnknownMemberId));
    assert_eq!(
        ask(&|j| j.protocol_type = "connect".into()),
        Err(GroupError::InconsistentGroupProtocol)
    );
    assert_eq!(
        ask(&|j| j.protocol_name = "sticky".into()),
        Err(GroupError::InconsistentGroupProtocol)
    );
}

#[test]
fn a_new_member_calls_the_others_by_their_heartbeats() {
    let mut world = World::new();
    let old = world.stable(1).remove(0);
    assert_eq!(world.heartbeat(&old.member_id, 1), Ok(()));
    let (_, newcomer) = world.send_new_join();
    assert_eq!(world.heartbeat(&old.member_id, 1), Err(GroupError::RebalanceInProgress));
    assert!(world.is_waiting(newcomer));
    let again = world.send_join(|join| join.member_id = old.member_id.clone());
    let (again, newcomer) = (world.joined(again).unwrap(), world.joined(newcomer).unwrap());
    assert_eq!((again.generation, newcomer.generation), (2, 2));
    assert_eq!(again.leader, old.member_id, "the leader stays if it joins");
    assert_eq!(world.heartbeat(&old.member_id, 1), Err(GroupError::IllegalGeneration));
    assert_eq!(world.heartbeat(&old.member_id, 2), Ok(()));
    assert_eq!(world.heartbeat(&"x".into(), 2), Err(GroupError::UnknownMemberId));
}

#[test]
fn who_does_not_rejoin_in_time_is_left_behind() {
    let mut world = World::new();
    let members = world.stable(2);
    let (_, newcomer) = world.send_new_join();
    // Both live on, but only one hears the call.
    let joins = world.send_join(|join| join.member_id = members[1].member_id.clone());
    for _ in 0..REBALANCE_MS / 5_000 {
        assert!(world.is_waiting(joins));
        let beat = world.heartbeat(&members[0].member_id, 1);
        assert_eq!(beat, Err(GroupError::RebalanceInProgress));
        world.advance(5_000);
    }
    let joined = world.joined(joins).unwrap();
    assert_eq!(joined.generation, 2);
    assert_eq!(world.joined(newcomer).unwrap().generation, 2);
    assert_eq!(world.heartbeat(&members[0].member_id, 2), Err(GroupError::UnknownMemberId));
    assert_ne!(joined.leader, members[0].member_id, "a leader that is away leads no more");
}

#[test]
fn a_silent_member_is_removed_and_the_others_are_called() {
    let mut world = World::new();
    let members = world.stable(2);
    world.advance(SESSION_MS - 1);
    assert_eq!(world.heartbeat(&members[0].member_id, 1), Ok(()));
    assert_eq!(world.groups.describe("g").unwrap().members.len(), 2);
    world.advance(1);
    assert_eq!(world.groups.describe("g").unwrap().members.len(), 1);
    assert_eq!(world.heartbeat(&members[0].member_id, 1), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_member_that_does_not_sync_is_removed() {
    let mut world = World::new();
    let (_, a) = world.send_new_join();
    let (_, b) = world.send_new_join();
    world.gather();
    let (a, b) = (world.joined(a).unwrap(), world.joined(b).unwrap());
    let (leader, follower) = if a.leader == a.member_id { (a, b) } else { (b, a) };
    let waits = world.sync(&follower, &[]);
    for _ in 0..REBALANCE_MS / 5_000 {
        assert!(world.is_waiting(waits));
        assert_eq!(
            world.heartbeat(&leader.member_id, 1),
            Ok(()),
            "the leader lives, and does not sync"
        );
        world.advance(5_000);
    }
    assert_eq!(world.synced(waits), Err(GroupError::RebalanceInProgress));
    assert_eq!(world.heartbeat(&leader.member_id, 1), Err(GroupError::UnknownMemberId));
    assert_eq!(world.heartbeat(&follower.member_id, 1), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_leader_that_joins_again_calls_all_and_a_follower_does_not() {
    let mut world = World::new();
    let members = world.stable(2);
    let follower = world.send_join(|join| join.member_id = members[1].member_id.clone());
    let again = world.joined(follower).unwrap();
    assert_eq!((again.generation, again.members.len()), (1, 0));
    assert_eq!(world.groups.describe("g").unwrap().state, GroupState::Stable);
    let leader = world.send_join(|join| join.member_id = members[0].member_id.clone());
    assert!(world.is_waiting(leader));
    assert_eq!(world.heartbeat(&members[1].member_id, 1), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_follower_with_another_subscription_calls_all() {
    let mut world = World::new();
    let members = world.stable(2);
    let follower = world.send_join(|join| {
        join.member_id = members[1].member_id.clone();
        join.protocols = vec![protocol("range", &["t", "t2"])];
    });
    assert!(world.is_waiting(follower));
    assert_eq!(world.heartbeat(&members[0].member_id, 1), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_join_that_repeats_itself_while_the_leader_assigns_is_answered_at_once() {
    let mut world = World::new();
    let (id, join) = world.send_new_join();
    world.gather();
    let first = world.joined(join).unwrap();
    let again = world.send_join(|join| join.member_id = id);
    assert_eq!(world.joined(again).unwrap(), first);
}

#[test]
fn a_join_on_a_second_connection_ends_the_first() {
    let mut world = World::new();
    let members = world.stable(2);
    let first = world.send_join(|join| join.member_id = members[0].member_id.clone());
    let second = world.send_join(|join| join.member_id = members[0].member_id.clone());
    assert_eq!(world.joined(first).unwrap_err().error, GroupError::RebalanceInProgress);
    assert!(world.is_waiting(second));
}

#[test]
fn kip_134_the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() {
    let mut world = World::with(Settings { initial_rebalance_delay_ms: 3_000, ..settings() });
    let mut sent = vec![world.send_new_join().1];
    let start = world.now_ms;
    while world.is_waiting(sent[0]) {
        world.advance(2_000);
        if world.is_waiting(sent[0]) {
            sent.push(world.send_new_join().1);
        }
        assert!(world.now_ms - start <= REBALANCE_MS + 2_000, "extended for ever");
    }
    assert_eq!(world.now_ms - start, REBALANCE_MS, "each newcomer extends the wait");
    assert!(sent.into_iter().all(|waiter| world.joined(waiter).unwrap().generation == 1));

    let mut quiet = World::with(Settings { initial_rebalance_delay_ms: 3_000, ..settings() });
    let (_, waiter) = quiet.send_new_join();
    quiet.advance(2_999);
    assert!(quiet.is_waiting(waiter));
    quiet.advance(1);
    assert_eq!(quiet.joined(waiter).unwrap().generation, 1);
}

#[test]
fn the_protocol_is_the_one_that_all_support_and_most_prefer() {
    let mut world = World::new();
    let (range, sticky, robin) =
        (protocol("range", &["t"]), protocol("sticky", &["t"]), protocol("robin", &["t"]));
    let lists = [
        vec![robin, range.clone(), sticky.clone()],
        vec![sticky.clone(), range.clone()],
        vec![sticky.clone(), range],
    ];
    let sent: Vec<_> = lists
        .into_iter()
        .map(|protocols| {
            let id = world.new_id(|join| join.protocols.clone_from(&protocols));
            world.send_join(|join| {
                join.member_id = id;
                join.protocols = protocols;
            })
        })
        .collect();
    world.gather();
    for waiter in sent {
        assert_eq!(&*world.joined(waiter).unwrap().protocol_name, "sticky");
    }
    let other = world.send_join(|join| join.protocols = vec![protocol("robin", &["t"])]);
    assert_eq!(world.joined(other).unwrap_err().error, GroupError::InconsistentGroupProtocol);
    let kind = world.send_join(|join| {
        join.protocols = vec![sticky];
        join.protocol_type = "connect".into();
    });
    assert_eq!(world.joined(kind).unwrap_err().error, GroupError::InconsistentGroupProtocol);
}

/// As in Kafka: it may change its protocols, but not to another kind; whoever reads its offsets knows it by that.
#[test]
fn the_only_member_keeps_its_kind_of_protocols() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    let mut join = |kind: &str, name: &str| {
        let waiter = world.send_join(|join| {
            join.member_id = member.member_id.clone();
            join.protocol_type = kind.into();
            join.protocols = vec![protocol(name, &["t"])];
        });
        world.joined(waiter).map(|joined| joined.protocol_name).map_err(|refused| refused.error)
    };
    assert_eq!(join("connect", "sticky"), Err(GroupError::InconsistentGroupProtocol));
    assert_eq!(join("consumer", "sticky"), Ok("sticky".into()));
    // An empty group begins with any.
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.settle();
    let other = world.send_join(|join| {
        join.protocol_type = "connect".into();
        join.member_id_required = false;
    });
    world.gather();
    assert_eq!(&*world.joined(other).unwrap().protocol_type, "connect");
}

#[test]
fn a_join_is_checked_before_anything_is_kept() {
    let mut world = World::new();
    let mut ask = |change: &dyn Fn(&mut crate::Join)| {
        let waiter = world.send_join(change);
        assert!(world.groups.list().next().is_none(), "a refused join leaves a group behind");
        world.joined(waiter).unwrap_err().error
    };
    assert_eq!(ask(&|j| j.group = "".into()), GroupError::InvalidGroupId);
    assert_eq!(ask(&|j| j.session_timeout_ms = 5_999), GroupError::InvalidSessionTimeout);
    assert_eq!(ask(&|j| j.session_timeout_ms = 1_800_001), GroupError::InvalidSessionTimeout);
    assert_eq!(ask(&|j| j.session_timeout_ms = -1), GroupError::InvalidSessionTimeout);
    assert_eq!(ask(&|j| j.protocols.clear()), GroupError::InconsistentGroupProtocol);
    assert_eq!(ask(&|j| j.protocol_type = "".into()), GroupError::InconsistentGroupProtocol);
    assert_eq!(ask(&|j| j.member_id = "x".into()), GroupError::UnknownMemberId);
    assert_eq!(ask(&|j| j.protocols = vec![protocol("p", &["t"]); 65]), GroupError::InvalidRequest);
    assert_eq!(
        ask(&|j| j.protocols[0].metadata = vec![0; crate::PROTOCOLS_BYTES_MAX].into()),
        GroupError::InvalidRequest
    );
    assert_eq!(ask(&|j| j.client_id = "x".repeat(40_000).into()), GroupError::InvalidRequest);
}

#[test]
fn the_last_member_that_leaves_makes_the_group_empty_in_the_log_too() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    assert_eq!(world.leave(&member.member_id, None), Err(GroupError::UnknownMemberId));
    world.settle();
    let described = world.groups.describe("g").unwrap();
    assert_eq!((described.state, described.generation), (GroupState::Empty, 2));
    assert_eq!(world.restart().groups.describe("g").unwrap(), described);
}

#[test]
fn that_a_group_is_empty_is_written_again_if_it_failed() {
    let mut world = World::new();
    let member = world.stable(1).remove(0);
    assert_eq!(world.leave(&member.member_id, None), Ok(()));
    world.refuse(crate::AppendError::NotEnoughReplicas);
    assert_eq!(world.restart().groups.describe("g").unwrap().state, GroupState::Stable);
    let since = world.groups.describe("g").unwrap().state_since_ms;
    world.advance(1_000);
    let restarted = world.restart().groups.describe("g").unwrap();
    assert_eq!((restarted.state, restarted.state_since_ms), (GroupState::Empty, since));
}

#[test]
fn requests_before_the_load_and_after_the_unload_are_sent_away() {
    let mut groups = crate::Groups::loading(settings());
    let mut effects = crate::Effects::default();
    let world = World::new();
    let heartbeat = |waiter| {
        Event::Heartbeat(crate::Heartbeat {
            waiter: crate::Waiter(waiter),
            group: "g".into(),
            generation: 1,
            member_id: "m".into(),
            instance_id: None,
        })
    };
    groups.step(world.moment(), heartbeat(1), &mut effects);
    groups.loaded(world.moment(), &mut effects);
    groups.unload(&mut effects);
    groups.step(world.moment(), heartbeat(2), &mut effects);
    assert_eq!(groups.wake_at(), None);
    let errors: Vec<_> = effects.answers.into_iter().map(|(_, answer)| answer).collect();
    assert_eq!(
        errors,
        [
            Answer::Heartbeat(Err(GroupError::CoordinatorLoadInProgress)),
            Answer::Heartbeat(Err(GroupError::NotCoordinator))
        ]
    );
}
