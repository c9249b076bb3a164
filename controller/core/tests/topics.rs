//! Creating and deleting topics.

mod common;

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterConfig, ControllerEvent, CreateTopic, CreateTopicAnswer, Effects,
    PARTITIONS_PER_CREATE_MAX, Snapshot, TopicWrite, WriteId, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerEpoch, Condition, ConfigEntity, LeaderEpoch, PartitionEpoch, TopicId};
use common::*;

fn cluster(of: &[(i32, i64)]) -> Term {
    let mut term = Term::new();
    let snapshot = Snapshot { brokers: brokers(of), ..Snapshot::default() };
    term.step(ControllerEvent::Loaded(snapshot));
    term
}

fn three() -> Term {
    cluster(&[(1, 11), (2, 12), (3, 13)])
}

fn ask(term: &mut Term, topic: CreateTopic) -> Effects {
    let request = term.request();
    term.step(ControllerEvent::CreateTopic { request, topic })
}

fn ask_delete(term: &mut Term, text: &str) -> Effects {
    let request = term.request();
    term.step(ControllerEvent::DeleteTopic { request, topic: name(text) })
}

fn refusal(term: &mut Term, topic: CreateTopic) -> Condition {
    let effects = ask(term, topic);
    assert!(effects.topic_writes.is_empty());
    effects.create_answers[0].1.clone().unwrap_err()
}

fn write_of(effects: &Effects) -> WriteId {
    match &effects.topic_writes[0] {
        TopicWrite::Create { write, .. }
        | TopicWrite::Delete { write, .. }
        | TopicWrite::Grow { write, .. } => *write,
    }
}

fn written(term: &mut Term, write: WriteId, outcome: WriteOutcome) -> Effects {
    term.step(ControllerEvent::Written { write, outcome })
}

fn created(term: &mut Term, topic: CreateTopic, czxid: i64) -> CreateTopicAnswer {
    let write = write_of(&ask(term, topic));
    let effects = written(term, write, WriteOutcome::TopicCreated { czxid });
    assert!(effects.image_changed);
    term.all_hear().create_answers[0].1.clone()
}

#[test]
fn r29_a_creation_is_one_write_with_the_registered_epochs_and_is_answered_when_it_is_in_the_image()
{
    let mut term = three();
    let effects = ask(&mut term, create("orders", 4, 3));
    assert!(effects.create_answers.is_empty() && !effects.image_changed);
    assert!(term.core.image().topics.is_empty(), "no wish is shown");
    let [TopicWrite::Create { write, partitions, .. }] = effects.topic_writes.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(partitions.len(), 4);
    for (assigned, state) in partitions.values() {
        assert_eq!(state.leader, assigned.first().copied());
        assert_eq!(state.isr_ids(), *assigned);
        assert!(state.isr.iter().all(|(b, e)| e.0 == 10 + i64::from(b.0)));
        let first = (LeaderEpoch(0), PartitionEpoch(0), TERM);
        assert_eq!((state.leader_epoch, state.partition_epoch, state.controller_epoch), first);
    }
    let effects = written(&mut term, *write, WriteOutcome::TopicCreated { czxid: 500 });
    assert!(effects.create_answers.is_empty(), "the brokers have not heard of it");
    assert_eq!(term.all_hear().create_answers[0].1, Ok((TopicId([9; 16]), 4, 3)));
    let shown = &term.core.image().topics[&name("orders")];
    assert_eq!((shown.incarnation.czxid, shown.partitions.len()), (500, 4));
    assert!(effects.image_changed);
}

#[test]
fn r29_brokers_that_change_during_a_creation_are_processed_before_they_are_told() {
    let mut term = three();
    let write = write_of(&ask(&mut term, create("orders", 1, 3)));
    term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    assert!(term.pushable(1, 21));
    let effects = written(&mut term, write, WriteOutcome::TopicCreated { czxid: 500 });
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(2)));
    assert!(!term.pushable(1, 21));
    term.apply();
    assert!(term.pushable(1, 21));
}

#[test]
fn creation_is_refused_with_one_clear_sentence() {
    let mut term = three();
    created(&mut term, create("a.b", 1, 1), 500).unwrap();
    let text = |condition: Condition| condition.to_string();
    assert_eq!(text(refusal(&mut term, create("a.b", 1, 1))), "topic 'a.b' exists");
    let collision = refusal(&mut term, create("a_b", 1, 1));
    assert!(matches!(&collision, Condition::InvalidTopic(t) if t.contains("'a.b'")));
    let factor = refusal(&mut term, create("x", 1, 4));
    assert!(
        matches!(&factor, Condition::InvalidReplicationFactor(t) if t.contains("factor 4") && t.contains("brokers, 3"))
    );
    assert!(matches!(
        refusal(&mut term, create("x", 1, 0)),
        Condition::InvalidReplicationFactor(_)
    ));
    for partitions in [0, -1, PARTITIONS_PER_CREATE_MAX + 1] {
        let condition = refusal(&mut term, create("x", partitions, 1));
        assert!(matches!(condition, Condition::InvalidPartitions(_)));
    }
    let mut strict = create("x", 1, 2);
    strict.overrides = settings(&[("min.insync.replicas", "3")]);
    assert!(text(refusal(&mut term, strict)).contains("min.insync.replicas 3"));
}

#[test]
fn what_the_cluster_asks_of_topics_that_do_not_say_does_not_hinder_a_creation() {
    let mut term = three();
    let cluster = ConfigEntity::Broker(None);
    let changes = vec![("min.insync.replicas".to_owned(), SettingChange::Set("2".to_owned()))];
    let request = term.request();
    let alter = AlterConfig { entity: cluster, replace: false, changes, validate_only: false };
    let effects = term.step(ControllerEvent::AlterConfig { request, alter });
    let write = effects.config_writes[0].write;
    written(&mut term, write, WriteOutcome::Applied);
    assert_eq!(created(&mut term, create("one", 1, 1), 5), Ok((TopicId([9; 16]), 1, 1)));
    assert_eq!(term.core.image().topics[&name("one")].config.min_insync_replicas, 2);
    let mut own = create("own", 1, 1);
    own.overrides = settings(&[("min.insync.replicas", "2")]);
    assert!(matches!(refusal(&mut term, own), Condition::InvalidConfig(_)));
    // It can be moved to as many replicas as it has.
    let to = barnabas_controller_core::Reassign::To { replicas: vec![b(3)], throttle: None };
    assert!(term.reassign(at("one", 0), to).reassign_answers.is_empty());
    assert_eq!(term.assigning.len(), 1);
}

#[test]
fn a_manual_assignment_is_checked_and_kept() {
    let mut term = three();
    let manual = |lists: &[(i32, &[i32])]| {
        let assignment =
            lists.iter().map(|(i, l)| (*i, l.iter().map(|x| b(*x)).collect())).collect();
        CreateTopic { assignment, partitions: None, replication_factor: None, ..create("m", 1, 1) }
    };
    let bad: [&[(i32, &[i32])]; 6] = [
        &[(1, &[1])],               // not from 0
        &[(0, &[1]), (2, &[1])],    // a gap
        &[(0, &[1]), (1, &[1, 2])], // lengths differ
        &[(0, &[])],                // empty
        &[(0, &[1, 1])],            // twice
        &[(0, &[1, 4])],            // not registered
    ];
    for lists in bad {
        let condition = refusal(&mut term, manual(lists));
        assert!(matches!(condition, Condition::InvalidReplicaAssignment(_)), "{lists:?}");
    }
    assert_eq!(created(&mut term, manual(&[(0, &[3, 1]), (1, &[1, 2])]), 7).unwrap().1, 2);
    let shown = &term.core.image().topics[&name("m")].partitions[&0];
    assert_eq!(
        (shown.assigned_replicas.clone(), shown.state.leader),
        (vec![b(3), b(1)], Some(b(3)))
    );
}

#[test]
fn defaults_apply_and_validate_only_writes_nothing() {
    let mut term = three();
    let topic = CreateTopic {
        partitions: None,
        replication_factor: None,
        validate_only: true,
        ..create("v", 1, 1)
    };
    let effects = ask(&mut term, topic);
    assert_eq!(effects.create_answers[0].1, Ok((TopicId([9; 16]), 2, 2)));
    assert!(effects.topic_writes.is_empty());
    assert!(created(&mut term, create("v", 1, 1), 5).is_ok());
}

#[test]
fn a_name_is_taken_while_it_is_created_and_free_after_a_failure() {
    let mut term = three();
    let write = write_of(&ask(&mut term, create("t", 1, 1)));
    assert!(matches!(refusal(&mut term, create("t", 1, 1)), Condition::TopicAlreadyExists(_)));
    let effects = written(&mut term, write, WriteOutcome::Refused { reason: "too large" });
    assert!(effects.create_answers[0].1.clone().unwrap_err().to_string().contains("too large"));
    let write = write_of(&ask(&mut term, create("t", 1, 1)));
    let effects = written(&mut term, write, WriteOutcome::TopicConflict);
    let exists = Condition::TopicAlreadyExists("t".to_owned());
    assert_eq!(effects.create_answers[0].1, Err(exists));
    assert!(created(&mut term, create("t", 1, 1), 5).is_ok());
}

#[test]
fn many_one_partition_topics_spread_their_leaders_also_when_created_at_once() {
    let mut term = three();
    let mut writes = Vec::new();
    for i in 0..9 {
        writes.push(write_of(&ask(&mut term, create(&format!("t{i}"), 1, 2))));
    }
    for (i, write) in (0..).zip(writes) {
        written(&mut term, write, WriteOutcome::TopicCreated { czxid: 100 + i });
    }
    let mut leads = BTreeMap::new();
    for topic in term.core.image().topics.values() {
        *leads.entry(topic.partitions[&0].state.leader.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(leads, BTreeMap::from([(b(1), 3), (b(2), 3), (b(3), 3)]));
}

#[test]
fn r29_a_deletion_does_not_wait_for_dead_replicas_and_leaves_a_tombstone() {
    let mut term = three();
    created(&mut term, create("t", 2, 3), 500).unwrap();
    term.register(brokers(&[(1, 11)]));
    term.apply();
    let version = term.core.version();
    let effects = ask_delete(&mut term, "t");
    assert!(effects.delete_answers.is_empty());
    assert!(term.core.image().topics.contains_key(&name("t")), "until it is done");
    let [TopicWrite::Delete { write, partitions, .. }] = effects.topic_writes.as_slice() else {
        panic!("{effects:?}")
    };
    assert_eq!(*partitions, [0, 1]);
    assert!(ask_delete(&mut term, "t").topic_writes.is_empty(), "waits with the first");
    assert!(matches!(refusal(&mut term, create("t", 1, 1)), Condition::TopicAlreadyExists(_)));
    let effects = written(&mut term, *write, WriteOutcome::Applied);
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(11), Some(version)).unwrap();
    assert!(effects.delete_answers.is_empty());
    let effects = term.all_hear();
    assert_eq!(effects.delete_answers.len(), 2);
    assert!(effects.delete_answers.iter().all(|a| a.1 == Ok(TopicId([9; 16]))));
    assert_eq!(
        push.deleted,
        [(name("t"), barnabas_types::Incarnation { topic_id: TopicId([9; 16]), czxid: 500 })]
    );
    let effects = ask_delete(&mut term, "t");
    assert_eq!(effects.delete_answers[0].1, Err(Condition::UnknownTopicOrPartition));
}

#[test]
fn internal_topics_are_compacted_and_neither_deleted_nor_spread_over_more_partitions() {
    let mut term = three();
    let offsets = |policy: &str| CreateTopic {
        overrides: settings(&[("cleanup.policy", policy)]),
        ..create("__consumer_offsets", 2, 3)
    };
    for bad in [create("__consumer_offsets", 2, 3), offsets("compact,delete")] {
        let condition = refusal(&mut term, bad);
        assert!(matches!(&condition, Condition::InvalidConfig(text) if text.contains("compact")));
    }
    created(&mut term, offsets("compact"), 500).unwrap();
    let change = ("cleanup.policy".to_owned(), SettingChange::Delete);
    let alter = AlterConfig {
        entity: ConfigEntity::Topic(name("__consumer_offsets")),
        replace: false,
        changes: vec![change],
        validate_only: false,
    };
    let request = term.request();
    let effects = term.step(ControllerEvent::AlterConfig { request, alter });
    assert!(effects.config_writes.is_empty());
    assert!(matches!(effects.config_answers[0].1, Err(Condition::InvalidConfig(_))));
    let effects = ask_delete(&mut term, "__consumer_offsets");
    assert!(effects.topic_writes.is_empty());
    let [(_, Err(Condition::InvalidTopic(text)))] = effects.delete_answers.as_slice() else {
        panic!("{effects:?}")
    };
    assert!(text.contains("'__consumer_offsets'") && text.contains("not deleted"), "{text}");
    let request = term.request();
    let create = add("__consumer_offsets", 3);
    let effects = term.step(ControllerEvent::CreatePartitions { request, create });
    assert!(effects.topic_writes.is_empty());
    let [(_, Err(Condition::InvalidPartitions(text)))] = effects.partitions_answers.as_slice()
    else {
        panic!("{effects:?}")
    };
    assert!(text.contains("gets no others"), "{text}");
}

#[test]
fn r27_a_name_that_is_created_again_is_told_with_the_old_tombstone_and_the_new_incarnation() {
    let mut term = three();
    created(&mut term, create("t", 1, 3), 500).unwrap();
    let version = term.core.version();
    let write = write_of(&ask_delete(&mut term, "t"));
    written(&mut term, write, WriteOutcome::Applied);
    // No broker has acknowledged the deletion yet.
    let write = write_of(&ask(&mut term, create("t", 1, 3)));
    written(&mut term, write, WriteOutcome::TopicCreated { czxid: 600 });
    let (_, push) = term.core.push_for(b(2), BrokerEpoch(12), Some(version)).unwrap();
    assert_eq!(push.deleted[0].1.czxid, 500);
    assert_eq!(push.topics[&name("t")].incarnation.czxid, 600);
}

#[test]
fn a_deletion_of_an_earlier_term_goes_on_and_is_not_shown() {
    let mut t = topic(&[1, 2], &[Some(stored(1, 5, &[(1, 11)])), None]);
    t.deleting = true;
    let (mut term, effects) = Term::with(brokers(&[(1, 21)]), t);
    assert!(matches!(effects.topic_writes.as_slice(), [TopicWrite::Delete { .. }]));
    assert!(effects.partition_writes.is_empty());
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(21), None).unwrap();
    assert!(push.full && push.topics.is_empty());
    assert!(matches!(refusal(&mut term, create("t", 1, 1)), Condition::TopicAlreadyExists(_)));
    written(&mut term, write_of(&effects), WriteOutcome::Applied);
    assert!(created(&mut term, create("t", 1, 1), 900).is_ok());
}

#[test]
fn a_refused_deletion_leaves_the_topic_as_it_is() {
    let mut term = three();
    created(&mut term, create("t", 1, 3), 500).unwrap();
    let write = write_of(&ask_delete(&mut term, "t"));
    let effects = written(&mut term, write, WriteOutcome::Refused { reason: "no rights" });
    assert!(effects.delete_answers[0].1.clone().unwrap_err().to_string().contains("no rights"));
    assert!(term.core.image().topics.contains_key(&name("t")));
    assert!(matches!(
        ask_delete(&mut term, "t").topic_writes.as_slice(),
        [TopicWrite::Delete { .. }]
    ));
}

#[test]
fn r1_a_fenced_creation_is_known_not_to_exist_the_others_are_not_known() {
    let mut term = three();
    let fenced = write_of(&ask(&mut term, create("a", 1, 1)));
    ask(&mut term, create("b", 1, 1));
    let effects = written(&mut term, fenced, WriteOutcome::Fenced);
    assert!(effects.resign);
    assert_eq!(effects.create_answers[0].1, Err(Condition::NotController));
    assert!(matches!(effects.create_answers[1].1, Err(Condition::UnknownOutcome(_))));
}

#[test]
fn a_topic_whose_node_cannot_be_read_is_neither_deleted_nor_created_again() {
    let mut term = Term::new();
    let snapshot = Snapshot {
        brokers: brokers(&[(1, 11)]),
        unreadable: [name("torn")].into(),
        ..Snapshot::default()
    };
    term.step(ControllerEvent::Loaded(snapshot));
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(11), None).unwrap();
    assert!(push.full && push.unreadable.contains(&name("torn")));
    let refused = refusal(&mut term, create("torn", 1, 1));
    assert!(matches!(refused, Condition::TopicAlreadyExists(t) if t.contains("cannot be read")));
}
