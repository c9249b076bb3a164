//! R4 and R27: which pushes are accepted; and what a change of role does.

use super::*;

#[test]
fn r4_a_push_for_another_incarnation_of_this_broker_is_refused() {
    let mut rig = Rig::new(log(0, &[]));
    let effects = rig.state(StatePush { broker_epoch: BrokerEpoch(99), ..push(1, 1, 1, &[1]) });
    assert_eq!((rig.replica.role(), effects.notes.len()), (Role::Idle, 1));
    rig.step(Event::Registered { broker_epoch: BrokerEpoch(200) });
    rig.state(push(1, 1, 1, &[1]));
    assert_eq!(rig.replica.role(), Role::Idle, "meant for the earlier registration");
    rig.state(StatePush { broker_epoch: BrokerEpoch(200), ..push(1, 1, 1, &[1]) });
    assert_eq!(rig.replica.role(), Role::Leader { leader_epoch: LeaderEpoch(1) });
}

#[test]
fn r4_nothing_is_accepted_before_the_registration() {
    let mut effects = Effects::default();
    let mut replica = Replica::new(BrokerId(1), log(0, &[]), OPTIONS);
    replica.step(Now(1), Event::State(push(1, 1, 1, &[1])), &mut effects);
    assert_eq!(replica.role(), Role::Idle);
}

#[test]
fn r4_a_deposed_controller_is_refused() {
    let mut rig = Rig::new(log(0, &[]));
    rig.state(StatePush { controller_epoch: ControllerEpoch(5), ..push(2, 1, 1, &[1, 2]) });
    rig.state(StatePush { controller_epoch: ControllerEpoch(4), ..push(1, 2, 2, &[1, 2]) });
    assert_eq!(rig.epoch(), LeaderEpoch(1));
    rig.state(StatePush { controller_epoch: ControllerEpoch(5), ..push(1, 2, 2, &[1, 2]) });
    assert_eq!(rig.epoch(), LeaderEpoch(2));
}

#[test]
fn r4_a_repeated_push_of_a_newer_controller_raises_the_known_controller_epoch() {
    let mut rig = Rig::new(log(0, &[]));
    rig.state(push(2, 1, 1, &[1, 2]));
    let repeat =
        rig.state(StatePush { controller_epoch: ControllerEpoch(3), ..push(2, 1, 1, &[1, 2]) });
    assert_eq!(repeat, Effects::default());
    rig.state(StatePush { controller_epoch: ControllerEpoch(2), ..push(1, 2, 2, &[1, 2]) });
    assert_eq!(rig.epoch(), LeaderEpoch(1));
}

#[test]
fn r4_older_leader_and_partition_epochs_are_refused() {
    let mut rig = Rig::new(log(0, &[]));
    rig.state(push(2, 5, 8, &[1, 2]));
    for old in [push(1, 4, 9, &[1, 2]), push(1, 6, 7, &[1, 2]), push(1, 6, 8, &[1, 2])] {
        rig.state(old);
        assert_eq!(
            rig.replica.role(),
            Role::Follower { leader: BrokerId(2), leader_epoch: LeaderEpoch(5) }
        );
    }
}

#[test]
fn r4_the_state_that_is_known_already_is_ignored_without_a_note() {
    let mut rig = Rig::leader(&[1, 2]);
    assert_eq!(rig.state(push(1, 1, 1, &[1, 2])), Effects::default());
}

#[test]
fn r37_settings_of_a_repeated_push_are_adopted() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.state(StatePush {
        min_insync_replicas: 3,
        flush_mode: FlushMode::Sync,
        ..push(1, 1, 1, &[1, 2])
    });
    assert_eq!(rig.replica.flush_mode(), FlushMode::Sync);
    let effects = rig.produce(1, Acks::All);
    assert_eq!(answers(&effects), [(1, Err(Condition::NotEnoughReplicas { isr: 2, min: 3 }))]);
}

#[test]
fn r4_two_leaders_in_one_epoch_are_refused_loudly() {
    let mut rig = Rig::leader(&[1, 2]);
    let effects = rig.state(push(2, 1, 2, &[1, 2]));
    assert!(effects.notes[0].warn);
    assert_eq!(rig.replica.role(), Role::Leader { leader_epoch: LeaderEpoch(1) });
}

#[test]
fn i8_a_state_whose_isr_is_not_assigned_is_refused_loudly() {
    let mut rig = Rig::new(log(0, &[]));
    for bad in [push(1, 1, 1, &[1, 9]), push(1, 1, 1, &[2]), push(-1, 1, 1, &[])] {
        assert!(rig.state(bad).notes[0].warn);
        assert_eq!(rig.replica.role(), Role::Idle);
    }
}

#[test]
fn r27_another_life_of_the_topic_is_refused() {
    let mut rig = Rig::leader(&[1, 2]);
    for czxid in [69, 71] {
        let other = Incarnation { topic_id: TopicId([8; 16]), czxid };
        let effects = rig.state(StatePush { incarnation: other, ..push(2, 9, 9, &[1, 2]) });
        assert_eq!(effects.notes[0].warn, czxid == 71);
        assert_eq!(rig.replica.incarnation(), Some(LIFE));
    }
}

#[test]
fn r22_a_replica_that_is_no_longer_assigned_is_deleted() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.order(1, Acks::All, 1);
    let mut gone = push(2, 2, 2, &[2, 3]);
    gone.partition.assigned_replicas.remove(0);
    let effects = rig.state(gone);
    assert!(effects.delete);
    assert_eq!(effects.role_changed, Some(Role::Deleted));
    assert_eq!(answers(&effects), [(1, Err(Condition::NotLeaderOrFollower))]);
    rig.state(push(1, 3, 3, &[1, 2]));
    assert_eq!(rig.replica.role(), Role::Deleted);
}

#[test]
fn r22_a_leader_and_a_follower_whose_topic_is_deleted_end_within_their_leader_epoch() {
    for leader in [1, 2] {
        let mut rig = Rig::new(log(0, &[]));
        rig.state(push(leader, 1, 1, &[1, 2]));
        if leader == 1 {
            rig.order(1, Acks::All, 1);
        }
        let mut gone = push(-1, 1, 2, &[]);
        gone.partition.assigned_replicas.clear();
        let effects = rig.state(gone);
        assert!(effects.delete && effects.notes.is_empty(), "{:?}", effects.notes);
        assert_eq!(effects.role_changed, Some(Role::Deleted));
        let ended: &[_] =
            if leader == 1 { &[(1, Err(Condition::NotLeaderOrFollower))] } else { &[] };
        assert_eq!(answers(&effects), ended);
    }
}

#[test]
fn kip279_the_epoch_is_assigned_at_the_election_before_any_append() {
    let mut rig = Rig::new(log(7, &[(1, 0)]));
    let effects = rig.state(push(1, 3, 1, &[1, 2]));
    assert_eq!(effects.assign_epoch, Some((LeaderEpoch(3), Offset(7))));
    assert_eq!(effects.role_changed, Some(Role::Leader { leader_epoch: LeaderEpoch(3) }));
    assert_eq!(*rig.replica.epochs(), table(&[(1, 0), (3, 7)]));
}

#[test]
fn lm_an_epoch_that_the_log_knows_is_not_led_again() {
    let mut rig = Rig::new(log(7, &[(1, 0), (3, 5)]));
    let effects = rig.state(push(1, 3, 1, &[1, 2]));
    assert!(rig.replica.is_fenced() && effects.notes[0].warn && effects.assign_epoch.is_none());
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), [(1, Err(Condition::KafkaStorageError))]);
}

#[test]
fn r15_becoming_a_follower_truncates_nothing() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::Leader);
    let effects = rig.state(push(2, 2, 2, &[1, 2]));
    assert_eq!((effects.truncate_to, effects.reset_to), (None, None));
    assert_eq!(rig.replica.log_end(), Offset(1));
    assert_eq!(rig.replica.fetch_position().unwrap().last_epoch, Some(LeaderEpoch(1)));
}

#[test]
fn r8_a_report_is_given_in_an_accepted_leaderless_state_only() {
    let mut rig = Rig::leader(&[1]);
    rig.produce(1, Acks::Leader);
    assert_eq!(rig.replica.report(), None);
    rig.order(2, Acks::Leader, 1);
    rig.state(push(-1, 2, 2, &[1]));
    assert_eq!(rig.replica.report(), None, "a write is under way");
    rig.step(Event::Appended {
        waiter: Some(WaiterId(2)),
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(2),
    });
    assert_eq!(
        rig.replica.report(),
        Some(ReplicaReport {
            leader_epoch: LeaderEpoch(2),
            last_epoch: Some(LeaderEpoch(1)),
            log_end: Offset(2)
        })
    );
}

#[test]
fn r7_membership_counts_only_under_the_same_broker_epoch() {
    let mut rig = Rig::new(log(0, &[]));
    assert!(!rig.replica.is_isr_member_under(broker_epoch(1)));
    rig.state(push(2, 1, 1, &[1, 2]));
    assert!(rig.replica.is_isr_member_under(broker_epoch(1)));
    assert!(!rig.replica.is_isr_member_under(BrokerEpoch(1)));
}

#[test]
fn a_state_that_comes_during_a_followers_append_is_taken_after_it() {
    let mut rig = Rig::follower(log(0, &[]), 2);
    let effects = rig.answer(records(3, &[(1, 0), (2, 2)], 0));
    assert!(effects.append.is_some());
    let effects = rig.state(push(1, 3, 2, &[1, 2]));
    assert_eq!(effects, Effects::default());
    let older = rig.state(push(2, 2, 2, &[1, 2]));
    assert_eq!(older.notes.len(), 1, "older than the waiting one");
    let effects = rig.step(Event::Appended {
        waiter: None,
        leader_epoch: LeaderEpoch(2),
        log_end: Offset(3),
    });
    assert_eq!(effects.assign_epoch, Some((LeaderEpoch(3), Offset(3))));
    assert_eq!(*rig.replica.epochs(), table(&[(1, 0), (2, 2), (3, 3)]));
}

#[test]
fn an_election_during_a_producers_append_begins_the_epoch_after_it() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.order(1, Acks::All, 4);
    let effects = rig.state(push(1, 2, 2, &[1, 2]));
    assert_eq!(answers(&effects), [(1, Err(Condition::NotLeaderOrFollower))]);
    assert_eq!(effects.assign_epoch, Some((LeaderEpoch(2), Offset(4))));
    let effects = rig.step(Event::Appended {
        waiter: Some(WaiterId(1)),
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(4),
    });
    assert_eq!(answers(&effects), []);
    assert_eq!(rig.replica.log_end(), Offset(4));
}
