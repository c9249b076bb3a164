//! Changing topics' settings (R37): checks, one conditional write at a time, the leaders' confirmation.

mod common;

use barnabas_controller_core::{
    AlterConfig, AlteredConfig, ConfigWrite, ControllerEvent, Effects, RequestId, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerEpoch, Condition, ConfigEntity, FlushMode, TopicConfig};
use common::*;

const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

/// Topic `t` with two partitions, led by 1 and 2; everybody has acknowledged everything.
fn two_led() -> Term {
    let states = [Some(stored(1, 5, ALL)), Some(stored(2, 5, ALL))];
    let (mut term, _) = Term::with(brokers(ALL), topic(&[1, 2, 3], &states));
    for (id, epoch) in ALL {
        ack(&mut term, *id, *epoch);
    }
    term
}

fn ack(term: &mut Term, id: i32, epoch: i64) -> Effects {
    let (broker, broker_epoch, version) = (b(id), BrokerEpoch(epoch), term.core.version());
    term.step(ControllerEvent::PushAcked { broker, broker_epoch, version, reports: Vec::new() })
}

fn set(pairs: &[(&str, &str)]) -> AlterConfig {
    let change = |(k, v): &(&str, &str)| ((*k).to_owned(), SettingChange::Set((*v).to_owned()));
    AlterConfig {
        entity: topic_named("t"),
        replace: false,
        changes: pairs.iter().map(change).collect(),
        validate_only: false,
    }
}

fn topic_named(text: &str) -> ConfigEntity {
    ConfigEntity::Topic(name(text))
}

fn alter(term: &mut Term, alter: AlterConfig) -> (RequestId, Effects) {
    let request = term.request();
    (request, term.step(ControllerEvent::AlterConfig { request, alter }))
}

fn refused(term: &mut Term, change: AlterConfig) -> Condition {
    let (_, effects) = alter(term, change);
    assert!(effects.config_writes.is_empty());
    effects.config_answers[0].1.clone().unwrap_err()
}

fn written(term: &mut Term, write: &ConfigWrite, outcome: WriteOutcome) -> Effects {
    term.step(ControllerEvent::Written { write: write.write, outcome })
}

fn config(term: &Term) -> TopicConfig {
    term.core.image().topics[&name("t")].config
}

#[test]
fn r37_a_change_is_answered_when_every_present_leader_has_confirmed_it() {
    let mut term = two_led();
    let before = term.core.version();
    let (request, effects) = alter(&mut term, set(&[("flush.mode", "sync")]));
    let write = effects.config_writes[0].clone();
    assert_eq!(write.overrides, Some(settings(&[("flush.mode", "sync")])));
    assert_eq!((write.expected, config(&term).flush_mode), (settings(&[]), FlushMode::Async));
    let write = effects.config_writes[0].clone();
    let effects = written(&mut term, &write, WriteOutcome::Applied);
    assert!(effects.image_changed && effects.config_answers.is_empty());
    assert_eq!(effects.confirmations_awaited, [request]);
    assert_eq!(config(&term).flush_mode, FlushMode::Sync);

    // The settings travel with every partition, whether its leadership changed or not.
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(11), Some(before)).unwrap();
    let pushed = &push.topics[&name("t")];
    assert_eq!((pushed.partitions.len(), pushed.config.flush_mode), (2, FlushMode::Sync));
    assert_eq!(pushed.overrides, settings(&[("flush.mode", "sync")]));

    assert!(ack(&mut term, 3, 13).config_answers.is_empty(), "3 leads nothing");
    assert!(ack(&mut term, 1, 11).config_answers.is_empty(), "2 has not confirmed");
    let effects = ack(&mut term, 2, 12);
    let overrides = settings(&[("flush.mode", "sync")]);
    let answer = AlteredConfig { overrides, unconfirmed: Vec::new() };
    assert_eq!(effects.config_answers, [(request, Ok(answer))]);
    let late = term.step(ControllerEvent::ConfirmationDue { request });
    assert_eq!(late, Effects::default());
}

#[test]
fn r37_an_acknowledgement_of_an_older_push_confirms_nothing() {
    let mut term = two_led();
    let old = term.core.version();
    let (request, effects) = alter(&mut term, set(&[("flush.mode", "sync")]));
    written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    ack(&mut term, 2, 12);
    let late = ControllerEvent::PushAcked {
        broker: b(1),
        broker_epoch: BrokerEpoch(11),
        version: old,
        reports: Vec::new(),
    };
    assert!(term.step(late).config_answers.is_empty());
    let effects = term.step(ControllerEvent::ConfirmationDue { request });
    let answer = effects.config_answers[0].1.clone().unwrap();
    assert_eq!(answer.unconfirmed, [b(1)], "stored, and said who has not confirmed it");
}

#[test]
fn r37_a_leader_that_dies_is_waited_for_no_longer_and_its_successor_knows_the_settings() {
    let mut term = two_led();
    let (_, effects) = alter(&mut term, set(&[("flush.mode", "sync")]));
    written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    ack(&mut term, 2, 12);
    ack(&mut term, 3, 13);
    let effects = term.register(brokers(&[(2, 12), (3, 13)]));
    assert!(effects.config_answers.is_empty(), "1 still leads, as stored");
    let effects = term.finish(WriteOutcome::Applied);
    assert_eq!(term.state().leader, Some(b(2)));
    let all = effects.config_answers.into_iter().chain(term.apply().config_answers);
    assert_eq!(
        all.count(),
        0,
        "2 may still follow the deposed leader, which commits under the old settings"
    );
    let all = ack(&mut term, 2, 12).config_answers;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1.clone().unwrap().unconfirmed, []);
}

#[test]
fn r1_settings_that_somebody_else_wrote_are_kept_and_built_upon() {
    let mut term = two_led();
    let (_, effects) = alter(&mut term, set(&[("retention.ms", "5")]));
    let theirs = settings(&[("segment.ms", "77"), ("compression.type", "gzip")]);
    let now = WriteOutcome::Config { now: theirs.clone() };
    let effects = written(&mut term, &effects.config_writes[0], now);
    assert_eq!(config(&term).segment_ms, 77);
    assert!(effects.image_changed);
    let again = &effects.config_writes[0];
    assert_eq!(again.expected, theirs);
    let both =
        settings(&[("segment.ms", "77"), ("compression.type", "gzip"), ("retention.ms", "5")]);
    assert_eq!(again.overrides, Some(both));
    written(&mut term, again, WriteOutcome::Applied);
    assert_eq!((config(&term).retention_ms, config(&term).segment_ms), (5, 77));
}

#[test]
fn changes_from_outside_are_read_and_pushed() {
    let mut term = two_led();
    let effects = term.step(ControllerEvent::ConfigChanged { entity: topic_named("t") });
    let read = effects.config_writes[0].clone();
    assert_eq!(read.overrides, None);
    // While it is read nothing is written: the answer may be older than the write.
    let (_, effects) = alter(&mut term, set(&[("retention.ms", "5")]));
    assert!(effects.config_writes.is_empty());
    let bad = settings(&[("segment.ms", "77"), ("segment.bytes", "x")]);
    let effects = written(&mut term, &read, WriteOutcome::Config { now: bad });
    assert!(said(&effects, "segment.bytes must be") && effects.image_changed);
    assert_eq!(config(&term).segment_ms, 77);
    assert_eq!(effects.config_writes.len(), 1, "now the change");
    let unknown = term.step(ControllerEvent::ConfigChanged { entity: topic_named("other") });
    assert_eq!(unknown, Effects::default());
}

#[test]
fn bad_changes_are_refused_before_anything_is_written() {
    let mut term = two_led();
    assert!(
        matches!(refused(&mut term, set(&[("flush.mod", "sync")])), Condition::InvalidConfig(t) if t.contains("flush.mode"))
    );
    assert!(
        matches!(refused(&mut term, set(&[("min.insync.replicas", "4")])), Condition::InvalidConfig(t) if t.contains("replication factor 3"))
    );
    let elsewhere = AlterConfig { entity: topic_named("no"), ..set(&[]) };
    assert_eq!(refused(&mut term, elsewhere), Condition::UnknownTopicOrPartition);
    let checked = AlterConfig { validate_only: true, ..set(&[("min.insync.replicas", "2")]) };
    let (_, effects) = alter(&mut term, checked);
    assert!(effects.config_writes.is_empty() && !effects.image_changed);
    let overrides = settings(&[("min.insync.replicas", "2")]);
    assert_eq!(effects.config_answers[0].1.clone().unwrap().overrides, overrides);
}

#[test]
fn changes_of_one_topic_come_one_after_the_other() {
    let mut term = two_led();
    let (first, effects) = alter(&mut term, set(&[("retention.ms", "1")]));
    let (second, waiting) = alter(&mut term, set(&[("retention.bytes", "2")]));
    assert!(waiting.config_writes.is_empty());
    let effects = written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    assert_eq!(effects.confirmations_awaited, [first]);
    let next = effects.config_writes[0].clone();
    assert_eq!(next.expected, settings(&[("retention.ms", "1")]));
    let reason = "no";
    let effects = written(&mut term, &next, WriteOutcome::Refused { reason });
    assert!(
        matches!(&effects.config_answers[0], (r, Err(Condition::InvalidRequest(_))) if *r == second)
    );
    assert_eq!(config(&term).retention_bytes, -1);

    let mut waiting = Vec::new();
    for _ in 0..18 {
        waiting.push(alter(&mut term, set(&[("retention.ms", "1")])).1);
    }
    let full = waiting.iter().filter(|e| !e.config_answers.is_empty()).count();
    assert_eq!(full, 1, "one under way, sixteen waiting");
}

#[test]
fn a_deletion_and_a_deposition_answer_everybody() {
    let mut term = two_led();
    let (_, effects) = alter(&mut term, set(&[("retention.ms", "1")]));
    written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    alter(&mut term, set(&[("retention.ms", "2")]));
    alter(&mut term, set(&[("retention.ms", "3")]));
    let request = term.request();
    let effects = term.step(ControllerEvent::DeleteTopic { request, topic: name("t") });
    let barnabas_controller_core::TopicWrite::Delete { write, .. } = &effects.topic_writes[0]
    else {
        panic!()
    };
    let (write, outcome) = (*write, WriteOutcome::Applied);
    let effects = term.step(ControllerEvent::Written { write, outcome });
    let answers: Vec<_> = effects.config_answers.iter().map(|(_, a)| a.is_ok()).collect();
    assert_eq!(answers.iter().filter(|ok| **ok).count(), 1, "the stored one");
    assert_eq!(answers.len(), 3);

    let mut term = two_led();
    let (_, effects) = alter(&mut term, set(&[("retention.ms", "1")]));
    written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    let (_, effects) = alter(&mut term, set(&[("retention.ms", "2")]));
    alter(&mut term, set(&[("retention.ms", "3")]));
    let effects = written(&mut term, &effects.config_writes[0], WriteOutcome::Fenced);
    assert!(effects.resign);
    let answers: Vec<_> = effects.config_answers.into_iter().map(|(_, a)| a).collect();
    assert_eq!(answers[0].clone().unwrap().unconfirmed, [b(1), b(2)]);
    assert_eq!(answers[1..], [Err(Condition::NotController), Err(Condition::NotController)]);
}

#[test]
fn an_unclean_election_that_is_now_allowed_is_held_at_once() {
    let (mut term, _) = Term::of(brokers(&[(2, 12)]), &[1, 2], stored(1, 5, &[(1, 11)]));
    term.apply();
    assert!(term.report(2, 12, 5, 9).partition_writes.is_empty());
    let (_, effects) = alter(&mut term, set(&[("unclean.leader.election.enable", "true")]));
    let effects = written(&mut term, &effects.config_writes[0], WriteOutcome::Applied);
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(2)));
}
