//! Moving replicas (KIP-455, R18 to R24) through the whole controller.

mod common;

use std::collections::BTreeMap;

use barnabas_controller_core::{
    ControllerEvent, Effects, LoadedTopic, Reassign, TopicWrite, WriteOutcome,
};
use barnabas_types::{Assignment, BrokerEpoch, BrokerId, Condition, LeaderEpoch, Partition};
use common::*;

/// Five brokers; `t` is on the first three, all in the ISR, 1 leads in epoch 5.
const LIVE: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13), (4, 14), (5, 15)];
const ISR: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

fn ids(of: &[i32]) -> Vec<BrokerId> {
    of.iter().map(|id| b(*id)).collect()
}

fn to(replicas: &[i32]) -> Reassign {
    Reassign::To { replicas: ids(replicas), throttle: None }
}

fn healthy() -> Term {
    Term::of(brokers(LIVE), &[1, 2, 3], stored(1, 5, ISR)).0
}

fn answer(effects: &Effects) -> Result<(), Condition> {
    assert_eq!(effects.reassign_answers.len(), 1, "{effects:?}");
    effects.reassign_answers[0].1.clone()
}

fn shown(term: &Term) -> &Partition {
    term.partition_of(&at("t", 0))
}

/// The move to `replicas` is stored.
fn moving(replicas: &[i32]) -> Term {
    let mut term = healthy();
    term.reassign(at("t", 0), to(replicas));
    assert_eq!(answer(&term.assigned(WriteOutcome::Applied)), Ok(()));
    term
}

/// The leader proposes these members and the store takes it.
fn join(term: &mut Term, members: &[(i32, i64)]) -> Effects {
    let effects = term.propose(term.proposal(members));
    assert_eq!(effects.partition_writes.len(), 1, "{effects:?}");
    term.finish(WriteOutcome::Applied)
}

fn acknowledge(term: &mut Term, id: i32, epoch: i64) -> Effects {
    term.step(ControllerEvent::PushAcked {
        broker: b(id),
        broker_epoch: BrokerEpoch(epoch),
        version: term.core.version(),
        reports: Vec::new(),
    })
}

#[test]
fn r18_one_write_of_both_nodes_and_a_higher_partition_epoch() {
    let mut term = healthy();
    let effects = term.reassign(at("t", 0), to(&[4, 2, 3]));
    assert!(effects.reassign_answers.is_empty(), "a wish is no state");
    assert_eq!(shown(&term).assigned_replicas, ids(&[1, 2, 3]));
    let write = &term.assigning[0];
    assert_eq!((write.topic_version, write.expected.0), (0, 9));
    assert_eq!(write.state.leader_epoch, LeaderEpoch(5), "nothing else changes");
    assert_eq!(write.state.isr_ids(), ids(&[2, 3, 1]));
    let old = term.proposal(&[(1, 11), (2, 12)]);
    let effects = term.assigned(WriteOutcome::Applied);
    assert!(effects.image_changed);
    assert_eq!(shown(&term).assigned_replicas, ids(&[4, 2, 3, 1]));
    assert_eq!(shown(&term).moving.adding, ids(&[4]));
    assert_eq!(shown(&term).moving.removing, ids(&[1]));
    let effects = term.propose(old);
    assert!(effects.alter_answers[0].1.is_err(), "it was made for the earlier assignment");
    term.reassign(at("t", 0), Reassign::Throttle(7));
    assert_eq!(term.assigning[0].topic_version, 1);
}

#[test]
fn r18_conflicts_are_adopted_and_the_wish_is_judged_anew() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    let other = Assignment::settled(ids(&[1, 2, 3])).towards(&ids(&[1, 2, 5]), None);
    let state = stored(1, 6, ISR);
    let effects = term.assigned(WriteOutcome::AssignmentConflict {
        topic: Some((7, BTreeMap::from([(0, other)]))),
        now: Some(state),
    });
    assert!(effects.reassign_answers.is_empty());
    let write = &term.assigning[0];
    assert_eq!(write.topic_version, 7);
    assert_eq!(write.assignments[&0].replicas, ids(&[1, 2, 4, 5, 3]));
    assert_eq!(answer(&term.assigned(WriteOutcome::Applied)), Ok(()));
    assert_eq!(shown(&term).assignment().original(), ids(&[1, 2, 3]));
}

#[test]
fn r18_a_topic_node_that_cannot_be_read_is_not_written_again_and_again() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    let unreadable = || {
        let now = Some(stored(1, 5, ISR));
        WriteOutcome::AssignmentConflict { topic: None, now }
    };
    let effects = term.assigned(unreadable());
    assert!(matches!(answer(&effects), Err(Condition::InvalidRequest(_))), "{effects:?}");
    assert!(term.assigning.is_empty());
    // The end of a move, which nobody waits for.
    let mut term = moving(&[1, 2]);
    let effects = term.assigned(unreadable());
    assert!(said(&effects, "restore it") && term.assigning.is_empty(), "{effects:?}");
    join(&mut term, ISR);
    let node = BTreeMap::from([(0, shown(&term).assignment())]);
    let now = Some(term.state().clone());
    term.assigned(WriteOutcome::AssignmentConflict { topic: Some((5, node)), now });
    assert_eq!(term.assigning[0].topic_version, 5, "tried again once something has changed");
}

#[test]
fn a_move_that_waited_for_a_deletion_goes_on_if_that_is_refused() {
    let mut term = healthy();
    let (name, request) = (name("t"), term.request());
    let effects = term.step(ControllerEvent::Reassign {
        request,
        partition: at("t", 0),
        wish: to(&[1, 2, 4]),
    });
    assert_eq!(effects.assignment_writes.len(), 1);
    term.reassign(at("t", 0), to(&[1, 2, 5]));
    let request = term.request();
    term.step(ControllerEvent::DeleteTopic { request, topic: name });
    let effects = term.assigned(WriteOutcome::Applied);
    let write = match &effects.topic_writes[..] {
        [TopicWrite::Delete { write, .. }] => *write,
        other => panic!("{other:?}"),
    };
    assert!(term.assigning.is_empty(), "the deletion comes first");
    let outcome = WriteOutcome::Refused { reason: "too large" };
    term.step(ControllerEvent::Written { write, outcome });
    assert_eq!(term.assigning.len(), 1);
}

#[test]
fn r18_partitions_that_are_added_meanwhile_are_counted_once() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    let request = term.request();
    let event = ControllerEvent::CreatePartitions { request, create: add("t", 2) };
    let effects = term.step(event);
    let (write, added) = match &effects.topic_writes[..] {
        [TopicWrite::Grow { write, partitions, .. }] => (*write, partitions[&1].0.clone()),
        other => panic!("{other:?}"),
    };
    // They come first: the move meets another version of the topic's node.
    let settled = |replicas| Assignment::settled(replicas);
    let node = BTreeMap::from([(0, settled(ids(&[1, 2, 3]))), (1, settled(added))]);
    let now = Some(term.state().clone());
    term.assigned(WriteOutcome::AssignmentConflict { topic: Some((1, node)), now });
    assert!(term.assigning.is_empty(), "it waits until they are known");
    term.step(ControllerEvent::Written { write, outcome: WriteOutcome::Applied });
    let write = &term.assigning[0];
    assert_eq!((write.topic_version, write.assignments.len()), (1, 2));
}

#[test]
fn r18_partitions_of_one_topic_take_turns() {
    let state = || Some(stored(1, 5, ISR));
    let loaded = topic(&[1, 2, 3], &[state(), state(), state()]);
    let mut term = Term::with(brokers(LIVE), loaded).0;
    for index in 0..3 {
        term.reassign(at("t", index), to(&[1, 2, 4]));
    }
    for index in 0..3 {
        assert_eq!(term.assigning.len(), 1);
        let write = &term.assigning[0];
        assert_eq!(write.topic_version, index);
        let moving = write.assignments.values().filter(|a| a.moving.is_under_way()).count();
        assert_eq!(moving, usize::try_from(index).unwrap() + 1, "each keeps the others' moves");
        term.assigned(WriteOutcome::Applied);
    }
    assert!(term.assigning.is_empty());
    assert_eq!(term.core.reassignments().unwrap().len(), 3);
}

#[test]
fn r20_a_move_ends_only_when_the_whole_target_is_in_the_isr() {
    let mut term = moving(&[4, 5]);
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (4, 14)]);
    assert!(term.assigning.is_empty(), "5 is not in yet");
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (4, 14), (5, 15)]);
    let write = &term.assigning[0];
    assert_eq!(write.assignments[&0], Assignment::settled(ids(&[4, 5])));
    assert_eq!(write.state.isr, isr(&[(4, 14), (5, 15)]));
    assert_eq!((write.state.leader, write.state.leader_epoch), (Some(b(4)), LeaderEpoch(6)));
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).assignment(), Assignment::settled(ids(&[4, 5])));
}

#[test]
fn r20_the_leader_epoch_rises_whenever_replicas_leave_also_if_the_leader_stays() {
    let mut term = moving(&[1, 2]);
    let write = &term.assigning[0];
    assert_eq!((write.state.leader, write.state.leader_epoch), (Some(b(1)), LeaderEpoch(6)));
    term.assigned(WriteOutcome::Applied);
    let mut grown = moving(&[1, 2, 3, 4]);
    join(&mut grown, &[(1, 11), (2, 12), (3, 13), (4, 14)]);
    assert_eq!(grown.assigning[0].state.leader_epoch, LeaderEpoch(5), "nobody leaves");
}

#[test]
fn r20_a_dead_target_is_waited_for() {
    let mut term = moving(&[1, 2, 4]);
    term.register(brokers(&[(1, 11), (2, 12), (3, 13)]));
    assert!(term.assigning.is_empty() && term.open.is_empty());
    assert_eq!(shown(&term).moving.adding, ids(&[4]));
    term.register(brokers(&[(1, 11), (2, 12), (3, 13), (4, 24)]));
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (4, 24)]);
    assert_eq!(term.assigning[0].assignments[&0], Assignment::settled(ids(&[1, 2, 4])));
}

#[test]
fn r20_a_new_controller_goes_on() {
    let assignment = Assignment::settled(ids(&[1, 2, 3])).towards(&ids(&[1, 2, 4]), Some(5));
    let mut loaded =
        topic(&[1, 2, 3], &[Some(stored(1, 5, &[(1, 11), (2, 12), (3, 13), (4, 14)]))]);
    loaded.version = 8;
    loaded.partitions.get_mut(&0).unwrap().assignment = assignment;
    // 4 is away at the election: the move is not dropped.
    let (mut term, _) = Term::with(brokers(&[(1, 11), (2, 12), (3, 13)]), loaded);
    assert!(term.assigning.is_empty());
    term.apply();
    assert_eq!(shown(&term).state.isr_ids(), ids(&[1, 2, 3]));
    term.register(brokers(LIVE));
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (4, 14)]);
    assert_eq!(term.assigning[0].topic_version, 8);
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).assignment(), Assignment::settled(ids(&[1, 2, 4])));
}

#[test]
fn r21_a_cancelled_move_lets_the_newcomer_leave_by_the_same_rule() {
    let mut term = moving(&[1, 2, 4]);
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (4, 14)]);
    // Instead of the end that is due now: the store was slower than the operator.
    term.reassign(at("t", 0), Reassign::Cancel);
    let over = term.assigned(WriteOutcome::Applied);
    assert_eq!(answer(&over), Err(Condition::NoReassignmentInProgress), "it was over already");

    let mut term = moving(&[1, 2, 4]);
    term.reassign(at("t", 0), Reassign::Cancel);
    assert_eq!(term.assigning[0].assignments[&0].target(), ids(&[1, 2, 3]));
    assert!(term.assigning[0].assignments[&0].replicas.contains(&b(4)), "nobody leaves at once");
    let effects = term.assigned(WriteOutcome::Applied);
    assert_eq!(answer(&effects), Ok(()));
    let write = &term.assigning[0];
    assert_eq!(write.state.leader_epoch, LeaderEpoch(6));
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).assignment(), Assignment::settled(ids(&[1, 2, 3])));
}

#[test]
fn r21_a_cancellation_with_a_dead_original_waits() {
    let mut term = moving(&[1, 2, 4]);
    join(&mut term, &[(1, 11), (2, 12), (3, 13)]);
    term.register(brokers(&[(1, 11), (2, 12), (4, 14), (5, 15)]));
    term.apply();
    term.reassign(at("t", 0), Reassign::Cancel);
    term.assigned(WriteOutcome::Applied);
    assert!(term.assigning.is_empty(), "3 is not in the ISR");
    assert_eq!(shown(&term).moving.removing, ids(&[4]));
}

#[test]
fn r21_another_target_in_the_middle_of_a_move() {
    let mut term = moving(&[1, 2, 4]);
    term.reassign(at("t", 0), to(&[1, 2, 5]));
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).assigned_replicas, ids(&[1, 2, 5, 4, 3]));
    join(&mut term, &[(1, 11), (2, 12), (5, 15), (3, 13)]);
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).assignment(), Assignment::settled(ids(&[1, 2, 5])));
}

#[test]
fn r22_a_move_is_over_for_whoever_waits_when_the_removed_replica_is_gone() {
    let mut term = moving(&[1, 2]);
    term.assigned(WriteOutcome::Applied);
    let listed = |term: &Term| term.core.reassignments().unwrap().get(&at("t", 0)).cloned();
    let waiting = listed(&term).unwrap();
    assert_eq!(waiting.assigned_replicas, ids(&[1, 2, 3]));
    assert_eq!(waiting.moving.removing, ids(&[3]));
    acknowledge(&mut term, 1, 11);
    assert!(listed(&term).is_some(), "3 has not confirmed");
    acknowledge(&mut term, 3, 12);
    assert!(listed(&term).is_some(), "another incarnation");
    acknowledge(&mut term, 3, 13);
    assert_eq!(listed(&term), None);
}

#[test]
fn r22_a_dead_broker_is_not_waited_for_until_it_is_back() {
    let mut term = moving(&[1, 2]);
    term.assigned(WriteOutcome::Applied);
    term.register(brokers(&[(1, 11), (2, 12)]));
    assert_eq!(term.core.reassignments().unwrap(), BTreeMap::new());
    term.register(brokers(&[(1, 11), (2, 12), (3, 33)]));
    assert_eq!(term.core.reassignments().unwrap().len(), 1);
    acknowledge(&mut term, 3, 33);
    assert_eq!(term.core.reassignments().unwrap(), BTreeMap::new());
}

#[test]
fn r23_fewer_replicas_than_min_insync_are_refused() {
    let mut loaded: LoadedTopic = topic(&[1, 2, 3], &[Some(stored(1, 5, ISR))]);
    loaded.overrides.insert("min.insync.replicas".to_owned(), "2".to_owned());
    let mut term = Term::with(brokers(LIVE), loaded).0;
    let effects = term.reassign(at("t", 0), to(&[1]));
    let Err(Condition::InvalidReplicaAssignment(text)) = answer(&effects) else {
        panic!("{effects:?}")
    };
    assert!(text.contains("min.insync.replicas, 2"), "{text}");
    assert!(term.assigning.is_empty());
}

#[test]
fn r23_is_about_targets_not_about_the_pace_of_a_move_that_is_under_way() {
    let assignment = Assignment::settled(ids(&[1, 2, 3])).towards(&ids(&[1, 4]), None);
    let mut loaded = topic(&[1, 2, 3], &[Some(stored(1, 5, ISR))]);
    loaded.partitions.get_mut(&0).unwrap().assignment = assignment;
    // The cluster's default was raised meanwhile.
    loaded.overrides.insert("min.insync.replicas".to_owned(), "3".to_owned());
    let mut term = Term::with(brokers(LIVE), loaded).0;
    assert!(
        answer(&term.reassign(at("t", 0), to(&[1]))).is_err(),
        "fewer than it will have anyway"
    );
    term.reassign(at("t", 0), Reassign::Throttle(7));
    assert_eq!(term.assigning[0].assignments[&0].moving.throttle, Some(7));
    term.assigned(WriteOutcome::Applied);
    term.reassign(at("t", 0), to(&[1, 5]));
    assert_eq!(term.assigning[0].assignments[&0].target(), ids(&[1, 5]), "as many as now");
}

#[test]
fn r24_the_longest_log_is_looked_for_in_the_whole_ar() {
    let mut term = moving(&[4, 5]);
    // The last member comes back without its tail; of five replicas only the target's and one other have reported.
    term.register(brokers(&[(1, 11), (4, 14), (5, 15)]));
    term.apply();
    term.register(brokers(&[(4, 14), (5, 15)]));
    term.apply();
    let mut back = brokers(&[(2, 22), (3, 23), (4, 14), (5, 15)]);
    back.insert(b(1), lost(21));
    term.register(back);
    term.apply();
    assert_eq!(term.state().leader, None);
    for (id, epoch, end) in [(4, 14, 5), (5, 15, 5), (3, 23, 8)] {
        term.report(id, epoch, 4, end);
        assert!(term.open.is_empty(), "2 and 1 have not reported");
    }
    term.report(1, 21, 4, 7);
    let effects = term.report(2, 22, 4, 9);
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(2)), "a replica that is leaving");
}

#[test]
fn each_entry_has_its_own_answer() {
    let mut term = healthy();
    for (partition, wish, name) in [
        (at("nope", 0), to(&[1]), "UnknownTopic"),
        (at("t", 7), to(&[1]), "UnknownTopic"),
        (at("t", 0), to(&[]), "InvalidReplicaAssignment"),
        (at("t", 0), to(&[1, 1]), "InvalidReplicaAssignment"),
        (at("t", 0), to(&[-1]), "InvalidReplicaAssignment"),
        (at("t", 0), to(&[1, 9]), "InvalidReplicaAssignment"),
        (at("t", 0), Reassign::Cancel, "NoReassignmentInProgress"),
        (at("t", 0), Reassign::Throttle(1), "NoReassignmentInProgress"),
    ] {
        let effects = term.reassign(partition, wish);
        let refused = answer(&effects).unwrap_err();
        assert!(format!("{refused:?}").starts_with(name), "{refused:?}");
        assert!(term.assigning.is_empty());
    }
    assert_eq!(answer(&term.reassign(at("t", 0), to(&[1, 2, 3]))), Ok(()), "it is so already");
    term.register(brokers(&[(1, 11), (2, 12), (4, 14)]));
    term.apply();
    term.reassign(at("t", 0), to(&[1, 3, 4]));
    assert_eq!(term.assigning.len(), 1, "who holds the partition may be away");
}

#[test]
fn another_order_of_the_same_replicas_is_written_at_once() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[3, 1, 2]));
    assert_eq!(answer(&term.assigned(WriteOutcome::Applied)), Ok(()));
    assert_eq!(shown(&term).assignment(), Assignment::settled(ids(&[3, 1, 2])));
    assert_eq!((term.state().leader, term.state().leader_epoch), (Some(b(1)), LeaderEpoch(5)));
    assert_eq!(term.core.reassignments().unwrap(), BTreeMap::new());
}

#[test]
fn a_throttle_lives_and_ends_with_its_move() {
    let mut term = healthy();
    let limited = Reassign::To { replicas: ids(&[1, 2, 4]), throttle: Some(1000) };
    term.reassign(at("t", 0), limited);
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).moving.throttle, Some(1000));
    for (wish, limit) in [
        (Reassign::Throttle(50), Some(50)),
        (to(&[1, 2, 5]), Some(50)),
        (Reassign::Throttle(0), None),
        (Reassign::To { replicas: ids(&[1, 2, 5]), throttle: Some(9) }, Some(9)),
    ] {
        term.reassign(at("t", 0), wish);
        term.assigned(WriteOutcome::Applied);
        assert_eq!(shown(&term).moving.throttle, limit);
    }
    join(&mut term, &[(1, 11), (2, 12), (3, 13), (5, 15)]);
    assert_eq!(term.assigning[0].assignments[&0].moving.throttle, None);
    term.assigned(WriteOutcome::Applied);
    assert_eq!(shown(&term).moving.throttle, None);
}

#[test]
fn a_refusal_by_the_store_is_told_and_not_repeated_for_ever() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    let effects = term.assigned(WriteOutcome::Refused { reason: "too large" });
    assert!(
        matches!(answer(&effects), Err(Condition::InvalidRequest(t)) if t.contains("too large"))
    );
    assert!(term.assigning.is_empty());
    let mut term = moving(&[1, 2]);
    term.assigned(WriteOutcome::Refused { reason: "too large" });
    assert!(term.assigning.is_empty(), "tried again when something changes");
    join(&mut term, &[(1, 11), (2, 12)]);
    assert_eq!(term.assigning.len(), 1);
}

#[test]
fn a_deletion_waits_for_the_write_that_is_under_way() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    term.reassign(at("t", 0), Reassign::Cancel);
    let request = term.request();
    let effects = term.step(ControllerEvent::DeleteTopic { request, topic: name("t") });
    assert!(effects.topic_writes.is_empty());
    let effects = term.assigned(WriteOutcome::Applied);
    assert_eq!(effects.topic_writes.len(), 1);
    assert!(term.assigning.is_empty());
    let write = match &effects.topic_writes[0] {
        TopicWrite::Delete { write, .. } => *write,
        other => panic!("{other:?}"),
    };
    let effects = term.step(ControllerEvent::Written { write, outcome: WriteOutcome::Applied });
    assert!(effects.delete_answers.is_empty(), "the brokers have not heard of it");
    assert_eq!(answer(&effects), Err(Condition::UnknownTopicOrPartition));
    let answers: usize = LIVE
        .iter()
        .map(|(id, epoch)| acknowledge(&mut term, *id, *epoch).delete_answers.len())
        .sum();
    assert_eq!(answers, 1);
}

#[test]
fn the_end_of_the_term_answers_whoever_waits() {
    let mut term = healthy();
    term.reassign(at("t", 0), to(&[1, 2, 4]));
    term.reassign(at("t", 0), to(&[1, 2, 5]));
    let effects = term.assigned(WriteOutcome::Fenced);
    assert!(effects.resign);
    let answers: Vec<_> = effects.reassign_answers.iter().map(|a| a.1.clone()).collect();
    assert_eq!(answers, vec![Err(Condition::NotController); 2]);
    assert_eq!(term.core.reassignments(), Err(Condition::NotController));
}

#[test]
fn an_election_comes_before_the_end_of_a_move() {
    let mut term = moving(&[4, 2, 3]);
    // 1 goes away in the write that would have let 4 in.
    let effects = term.propose(term.proposal(&[(1, 11), (2, 12), (3, 13), (4, 14)]));
    assert_eq!(effects.partition_writes.len(), 1);
    term.register(brokers(&[(2, 12), (3, 13), (4, 14)]));
    let effects = term.finish(WriteOutcome::Applied);
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(4)), "the target comes first");
    term.apply();
    assert_eq!(term.assigning[0].assignments[&0], Assignment::settled(ids(&[4, 2, 3])));
    assert_eq!(term.assigning[0].state.leader_epoch, LeaderEpoch(7));
}
