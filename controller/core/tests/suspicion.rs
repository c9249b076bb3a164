//! R17: what a suspicion moves, what it must not touch, when it ends, and how many there may be. The controller is broker 1.

mod common;

use barnabas_controller_core::{
    ControllerEvent, Effects, SUSPICION_WINDOW_MS, SUSPICIONS_PER_REGISTRATION_MAX, WriteOutcome,
};
use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, LeaderEpoch, Now, PartitionEpoch, PartitionState,
};
use common::*;

const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

/// Broker 2 leads in epoch 5, with these members.
fn led_by_2(members: &[(i32, i64)]) -> Term {
    let (term, effects) = Term::of(brokers(ALL), &[2, 3, 1], stored(2, 5, members));
    assert!(effects.partition_writes.is_empty());
    term
}

fn only(effects: &Effects) -> &PartitionState {
    assert_eq!(effects.partition_writes.len(), 1, "{effects:?}");
    &effects.partition_writes[0].state
}

fn acknowledged(term: &mut Term, id: i32, epoch: i64) -> Effects {
    let version = term.core.version();
    let (broker, broker_epoch) = (b(id), BrokerEpoch(epoch));
    term.step(ControllerEvent::PushAcked { broker, broker_epoch, version, reports: Vec::new() })
}

#[test]
fn r17_a_suspected_leader_is_replaced_by_an_isr_member_and_leaves_in_the_same_write() {
    let mut term = led_by_2(ALL);
    let effects = term.suspect(2, 12);
    assert!(said(&effects, "broker 2 (broker epoch 12, controller epoch 7) is suspected"));
    let state = only(&effects).clone();
    assert_eq!((state.leader, state.leader_epoch), (Some(b(3)), LeaderEpoch(6)));
    assert_eq!(state.isr, isr(&[(3, 13), (1, 11)]));
    assert_eq!(effects.partition_writes[0].expected, PartitionEpoch(9));
    assert!(term.suspect(2, 12).partition_writes.is_empty(), "said again, nothing new");
    assert!(term.finish(WriteOutcome::Applied).image_changed);
    assert_eq!(*term.state(), state);
}

#[test]
fn r17_who_is_suspected_is_pushed_when_that_changes() {
    let mut term = led_by_2(&[(2, 12)]);
    let version = term.core.version();
    assert!(term.suspect(2, 12).image_changed, "nothing moves, and everybody is told");
    let to_3 = |term: &Term, since| term.core.push_for(b(3), BrokerEpoch(13), since);
    let (suspected, push) = to_3(&term, Some(version)).unwrap();
    assert_eq!(push.suspected, Some([b(2)].into()));
    assert!(push.topics.is_empty());
    assert_eq!(to_3(&term, Some(suspected)), None, "said once");
    assert_eq!(to_3(&term, None).unwrap().1.suspected, Some([b(2)].into()));
    assert!(acknowledged(&mut term, 2, 12).image_changed);
    let (_, push) = to_3(&term, Some(suspected)).unwrap();
    assert_eq!(push.suspected, Some([].into()));
}

#[test]
fn r17_a_suspected_follower_leaves_and_the_leader_epoch_stays() {
    let mut term = led_by_2(ALL);
    let state = only(&term.suspect(3, 13)).clone();
    assert_eq!((state.leader, state.leader_epoch), (Some(b(2)), LeaderEpoch(5)));
    assert_eq!(state.isr, isr(&[(2, 12), (1, 11)]));
}

#[test]
fn r26_a_suspect_counts_for_nothing_when_somebody_asks_what_may_be_stopped() {
    let mut term = led_by_2(&[(2, 12), (3, 13)]);
    assert_eq!(term.core.can_stop(b(2)).unwrap().partitions, 0, "3 would lead");
    // The write that takes it out of the ISR is under way: it still is in what is stored.
    term.suspect(3, 13);
    assert!(term.state().in_isr(b(3)));
    let verdict = term.core.can_stop(b(2)).unwrap();
    assert_eq!((verdict.partitions, verdict.never), (1, false));
    assert!(verdict.obstructions[0].reason.starts_with("0 live ISR members"), "{verdict:?}");
}

#[test]
fn r17_nobody_outside_the_isr_leads_and_the_sole_live_member_waits_for_its_session() {
    let mut term = led_by_2(&[(2, 12)]);
    let effects = term.suspect(2, 12);
    assert!(effects.partition_writes.is_empty(), "{effects:?}");
    assert!(term.core.is_suspected(b(2)));
    let state = only(&term.register(brokers(&[(1, 11), (3, 13)]))).clone();
    assert_eq!((state.leader, state.isr), (None, isr(&[(2, 12)])));
    assert!(!term.core.is_suspected(b(2)), "its registration is gone, and the suspicion with it");
}

#[test]
fn r17_where_only_suspects_are_left_nothing_is_done_that_would_not_be_done_without() {
    let four = &[(1, 11), (2, 12), (3, 13), (4, 14)];
    let (mut term, _) = Term::of(brokers(four), &[2, 4], stored(2, 5, &[(2, 12), (4, 14)]));
    assert_eq!(only(&term.suspect(2, 12)).leader, Some(b(4)));
    term.apply();
    assert!(term.suspect(4, 14).partition_writes.is_empty(), "the sole member");
    // Broker 2 is known to be gone, broker 4 only seems to be: it leads, as any live member would.
    let (mut term, _) = Term::of(brokers(four), &[2, 4], stored(2, 5, &[(2, 12), (4, 14)]));
    term.propose(term.proposal(&[(2, 12), (4, 14)]));
    term.suspect(4, 14);
    term.register(brokers(&[(1, 11), (3, 13), (4, 14)]));
    let state = only(&term.finish(WriteOutcome::Applied)).clone();
    assert_eq!((state.leader, state.isr), (Some(b(4)), isr(&[(4, 14)])));
}

#[test]
fn r17_the_choice_is_made_on_the_version_on_which_the_write_is_conditional() {
    let mut term = led_by_2(ALL);
    // A shrink to {2} is under way: {2,3,1} is not the version that a leader may be chosen on.
    term.propose(term.proposal(&[(2, 12)]));
    assert!(term.suspect(2, 12).partition_writes.is_empty());
    let effects = term.finish(WriteOutcome::Applied);
    assert!(effects.partition_writes.is_empty(), "now it is the sole member: {effects:?}");
    // A conflict: what is stored now counts, not what was known.
    let mut term = led_by_2(ALL);
    term.suspect(2, 12);
    let now = PartitionState { partition_epoch: PartitionEpoch(10), ..stored(2, 5, &[(2, 12)]) };
    let effects = term.finish(WriteOutcome::Conflict { now: Some(now) });
    assert!(effects.partition_writes.is_empty(), "{effects:?}");
}

#[test]
fn r17_a_suspect_is_admitted_to_no_isr_until_it_answers() {
    let mut term = led_by_2(ALL);
    term.suspect(3, 13);
    term.apply();
    let effects = term.propose(term.proposal(&[(2, 12), (3, 13), (1, 11)]));
    assert_eq!(effects.alter_answers[0].1, Err(Condition::IneligibleReplica(b(3))));
    assert!(acknowledged(&mut term, 3, 12).notes.is_empty(), "another incarnation's");
    assert!(term.core.is_suspected(b(3)));
    let effects = acknowledged(&mut term, 3, 13);
    assert!(said(&effects, "answers again") && effects.partition_writes.is_empty());
    let effects = term.propose(term.proposal(&[(2, 12), (3, 13), (1, 11)]));
    assert_eq!(only(&effects).isr, isr(&[(2, 12), (3, 13), (1, 11)]));
}

#[test]
fn r9_a_leader_may_withdraw_a_suspect() {
    let mut term = led_by_2(ALL);
    term.suspect(3, 13);
    term.apply();
    let earlier = term.proposal(&[(2, 12), (3, 13), (1, 11)]);
    term.propose(earlier.clone());
    let committed = term.proposal(&[(2, 12), (1, 11)]);
    let state = only(&term.propose(committed)).clone();
    assert_eq!(state.isr, isr(&[(2, 12), (1, 11)]));
    assert_eq!(state.partition_epoch.0, earlier.partition_epoch.0 + 1);
    term.apply();
    acknowledged(&mut term, 3, 13);
    let effects = term.propose(earlier);
    assert!(effects.partition_writes.is_empty(), "though it may join now: {effects:?}");
    assert_eq!(only(&term.propose(term.proposal(ALL))).isr.len(), 3);
}

#[test]
fn r17_a_new_registration_ends_the_suspicion() {
    let mut term = led_by_2(ALL);
    term.suspect(2, 12);
    term.apply();
    term.register(brokers(&[(1, 11), (2, 22), (3, 13)]));
    assert!(!term.core.is_suspected(b(2)));
    let effects = term.propose(term.proposal(&[(2, 22), (3, 13), (1, 11)]));
    assert_eq!(only(&effects).isr_epoch_of(b(2)), Some(BrokerEpoch(22)));
    assert!(term.suspect(2, 12).notes.is_empty(), "late: that incarnation is known to be gone");
}

#[test]
fn r17_a_new_topic_begins_without_the_suspect() {
    let mut term = led_by_2(ALL);
    term.suspect(2, 12);
    term.apply();
    let request = term.request();
    let effects = term.step(ControllerEvent::CreateTopic { request, topic: create("new", 3, 3) });
    let barnabas_controller_core::TopicWrite::Create { partitions, .. } = &effects.topic_writes[0]
    else {
        panic!("{effects:?}");
    };
    for (assigned, state) in partitions.values() {
        assert!(assigned.contains(&b(2)));
        assert!(!state.in_isr(b(2)) && state.leader != Some(b(2)), "{state:?}");
    }
    let mut alone = create("alone", 1, 1);
    alone.assignment.insert(0, vec![b(2)]);
    let request = term.request();
    let effects = term.step(ControllerEvent::CreateTopic { request, topic: alone });
    assert!(effects.create_answers[0].1.is_err(), "it would have no ISR: {effects:?}");
}

#[test]
fn r17_no_more_than_half_of_the_brokers_are_suspected_at_once() {
    let mut term = led_by_2(ALL);
    term.suspect(3, 13);
    term.apply();
    let effects = term.suspect(2, 12);
    assert!(said(&effects, "2 of 3 brokers would be suspected at once"));
    assert!(effects.partition_writes.is_empty() && !term.core.is_suspected(b(2)));
    assert!(term.suspect(2, 12).notes.is_empty(), "told once");
    // Broker 3 answers: there is room.
    acknowledged(&mut term, 3, 13);
    assert_eq!(only(&term.suspect(2, 12)).leader, Some(BrokerId(1)));
}

#[test]
fn r17_one_registration_is_suspected_so_often_and_no_more() {
    let mut term = led_by_2(&[(2, 12), (1, 11)]);
    let mut suspected = 0;
    for _ in 0..2 * SUSPICIONS_PER_REGISTRATION_MAX {
        term.suspect(3, 13);
        suspected += u32::from(term.core.is_suspected(b(3)));
        acknowledged(&mut term, 3, 13);
    }
    assert_eq!(suspected, SUSPICIONS_PER_REGISTRATION_MAX);
    term.now = Now(SUSPICION_WINDOW_MS);
    term.suspect(3, 13);
    assert!(term.core.is_suspected(b(3)), "later again");
}

#[test]
fn r17_the_controller_does_not_suspect_itself() {
    let mut term = led_by_2(ALL);
    term.suspect(1, 11);
    assert!(!term.core.is_suspected(b(1)));
}
