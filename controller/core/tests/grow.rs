//! Adding partitions to a topic.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    ControllerEvent, CreatePartitions, CreatePartitionsAnswer, Effects, PARTITIONS_PER_CREATE_MAX,
    TopicWrite, WriteId, WriteOutcome,
};
use barnabas_types::{BrokerId, Condition, LeaderEpoch, PartitionEpoch, PartitionState};
use common::*;

const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

/// Topic `t` with two partitions of three replicas.
fn two() -> Term {
    let states = [Some(stored(1, 5, ALL)), Some(stored(2, 5, ALL))];
    Term::with(brokers(ALL), topic(&[1, 2, 3], &states)).0
}

fn ask(term: &mut Term, create: CreatePartitions) -> Effects {
    let request = term.request();
    term.step(ControllerEvent::CreatePartitions { request, create })
}

fn answer(effects: &Effects) -> CreatePartitionsAnswer {
    let [(_, answer)] = effects.partitions_answers.as_slice() else { panic!("{effects:?}") };
    answer.clone()
}

fn grow(effects: &Effects) -> (WriteId, BTreeMap<i32, (Vec<BrokerId>, PartitionState)>) {
    let [TopicWrite::Grow { write, partitions, first, incarnation: life, .. }] =
        effects.topic_writes.as_slice()
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*first, *life), (2, incarnation(100)));
    (*write, partitions.clone())
}

fn written(term: &mut Term, write: WriteId, outcome: WriteOutcome) -> Effects {
    term.step(ControllerEvent::Written { write, outcome })
}

#[test]
fn r29_new_partitions_are_one_write_with_the_registered_epochs_and_are_shown_once_it_is_applied() {
    let mut term = two();
    let before = term.core.version();
    let effects = ask(&mut term, add("t", 5));
    assert!(effects.partitions_answers.is_empty() && !effects.image_changed, "no wish is shown");
    let (write, partitions) = grow(&effects);
    assert_eq!(partitions.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
    let leaders: BTreeSet<_> = partitions.values().map(|(assigned, _)| assigned[0]).collect();
    assert_eq!(leaders.len(), 3, "spread evenly");
    for (assigned, state) in partitions.values() {
        assert_eq!((state.leader, state.isr_ids()), (assigned.first().copied(), assigned.clone()));
        assert!(state.isr.iter().all(|(b, e)| e.0 == 10 + i64::from(b.0)));
        let first = (LeaderEpoch(0), PartitionEpoch(0), TERM);
        assert_eq!((state.leader_epoch, state.partition_epoch, state.controller_epoch), first);
    }
    let effects = written(&mut term, write, WriteOutcome::Applied);
    assert!(effects.image_changed && effects.partitions_answers.is_empty());
    let epoch = term.core.image().brokers[&b(1)].epoch;
    let (_, push) = term.core.push_for(b(1), epoch, Some(before)).unwrap();
    let pushed = &push.topics[&name("t")].partitions;
    assert_eq!(pushed.keys().copied().collect::<Vec<_>>(), [2, 3, 4], "a delta of the new ones");
    assert_eq!(answer(&term.all_hear()), Ok(5), "once every broker has heard of them");
    assert_eq!(term.core.image().topics[&name("t")].partitions.len(), 5);
}

#[test]
fn r29_only_live_replicas_are_in_the_first_isr() {
    let mut term = two();
    term.register(brokers(&[(1, 11), (3, 13)]));
    term.apply();
    let three = ask(&mut term, add("t", 3));
    assert!(matches!(answer(&three), Err(Condition::InvalidReplicationFactor(_))));
    let dead = CreatePartitions { assignment: vec![vec![b(2), b(1), b(3)]], ..add("t", 3) };
    let refused = answer(&ask(&mut term, dead)).unwrap_err();
    assert!(
        matches!(&refused, Condition::InvalidReplicaAssignment(t) if t.contains("broker 2")),
        "{refused}"
    );
}

#[test]
fn r3_a_broker_that_came_back_during_the_write_is_processed_before_it_is_told() {
    let mut term = two();
    let create = CreatePartitions { assignment: vec![vec![b(1), b(2), b(3)]], ..add("t", 3) };
    let (write, _) = grow(&ask(&mut term, create));
    term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    term.apply();
    let effects = written(&mut term, write, WriteOutcome::Applied);
    assert_eq!(effects.partition_writes[0].partition, at("t", 2));
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(2)));
    assert!(!term.pushable(1, 21));
    term.apply();
    assert!(term.pushable(1, 21));
}

#[test]
fn what_is_no_addition_is_refused_with_one_clear_sentence() {
    let mut term = two();
    let mut refused = |create: CreatePartitions| {
        let effects = ask(&mut term, create);
        assert!(effects.topic_writes.is_empty());
        answer(&effects).unwrap_err()
    };
    assert_eq!(refused(add("no", 3)), Condition::UnknownTopicOrPartition);
    for total in [2, 1, 0, -1] {
        let condition = refused(add("t", total));
        assert!(
            matches!(&condition, Condition::InvalidPartitions(t) if t.contains("2 partitions"))
        );
    }
    let many = refused(add("t", 3 + PARTITIONS_PER_CREATE_MAX));
    assert!(matches!(&many, Condition::InvalidPartitions(t) if t.contains("in steps")));
    let given = |assignment: &[&[i32]]| CreatePartitions {
        assignment: assignment.iter().map(|ids| ids.iter().map(|i| b(*i)).collect()).collect(),
        ..add("t", 3)
    };
    for (assignment, part) in [
        (&[&[1, 2, 3][..], &[1, 2, 3]][..], "2 assignments are given for 1"),
        (&[&[1, 2]], "partition 2 has 2 replicas, partition 0 has 3"),
        (&[&[1, 2, 2]], "names a broker twice"),
        (&[&[1, 2, 9]], "broker 9"),
    ] {
        let condition = refused(given(assignment));
        assert!(
            matches!(&condition, Condition::InvalidReplicaAssignment(t) if t.contains(part)),
            "{condition}"
        );
    }
    let checked = CreatePartitions { validate_only: true, ..add("t", 4) };
    let effects = ask(&mut term, checked);
    assert_eq!((answer(&effects), effects.topic_writes.len()), (Ok(4), 0));
}

#[test]
fn additions_to_one_topic_do_not_overlap_and_a_refused_write_leaves_no_trace() {
    let mut term = two();
    let (write, _) = grow(&ask(&mut term, add("t", 3)));
    let second = answer(&ask(&mut term, add("t", 4))).unwrap_err();
    assert!(matches!(second, Condition::InvalidRequest(t) if t.contains("another request")));
    let effects = written(&mut term, write, WriteOutcome::Refused { reason: "too large" });
    assert!(
        matches!(answer(&effects), Err(Condition::InvalidRequest(t)) if t.contains("too large"))
    );
    assert_eq!(term.core.image().topics[&name("t")].partitions.len(), 2);
    let (write, _) = grow(&ask(&mut term, add("t", 3)));
    let effects = written(&mut term, write, WriteOutcome::TopicConflict);
    assert_eq!(answer(&effects), Err(Condition::UnknownTopicOrPartition));
}

#[test]
fn a_deletion_and_a_deposition_answer_who_waits() {
    let mut term = two();
    let (write, _) = grow(&ask(&mut term, add("t", 3)));
    let request = term.request();
    let effects = term.step(ControllerEvent::DeleteTopic { request, topic: name("t") });
    let TopicWrite::Delete { write: delete, .. } = &effects.topic_writes[0] else { panic!() };
    assert_eq!(
        answer(&ask(&mut term, add("t", 4))),
        Err(Condition::UnknownTopicOrPartition),
        "it is being deleted"
    );
    let effects = written(&mut term, *delete, WriteOutcome::Applied);
    assert_eq!(answer(&effects), Err(Condition::UnknownTopicOrPartition));
    assert_eq!(written(&mut term, write, WriteOutcome::TopicConflict), Effects::default());

    for (fenced, expected) in [
        (true, Condition::NotController),
        (false, Condition::UnknownOutcome("the controller was deposed meanwhile")),
    ] {
        let mut term = two();
        let (grow, _) = grow(&ask(&mut term, add("t", 3)));
        let request = term.request();
        let effects = term.step(ControllerEvent::CreateTopic { request, topic: create("v", 1, 1) });
        let TopicWrite::Create { write: other, .. } = &effects.topic_writes[0] else { panic!() };
        let write = if fenced { grow } else { *other };
        let effects = written(&mut term, write, WriteOutcome::Fenced);
        assert!(effects.resign);
        assert_eq!(answer(&effects), Err(expected));
        assert_eq!(answer(&ask(&mut term, add("t", 4))), Err(Condition::NotController));
    }
}
