//! Settings of brokers and of the cluster: what they change in topics, who confirms them, what a new term finds.

mod common;

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterConfig, ConfigWrite, ControllerEvent, Effects, RequestId, Snapshot, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerEpoch, BrokerId, Condition, ConfigEntity, FlushMode, TopicConfig};
use common::*;

const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];
const CLUSTER: ConfigEntity = ConfigEntity::Broker(None);

/// Topic `t`, led by 1, that says `retention.ms` itself; everybody has acknowledged everything.
fn one() -> Term {
    let mut t = topic(&[1, 2, 3], &[Some(stored(1, 5, ALL))]);
    t.overrides = settings(&[("retention.ms", "9")]);
    let (mut term, _) = Term::with(brokers(ALL), t);
    for (id, epoch) in ALL {
        ack(&mut term, *id, *epoch);
    }
    term
}

fn ack(term: &mut Term, id: i32, epoch: i64) -> Effects {
    let (broker, broker_epoch, version) = (b(id), BrokerEpoch(epoch), term.core.version());
    term.step(ControllerEvent::PushAcked { broker, broker_epoch, version, reports: Vec::new() })
}

fn alter(term: &mut Term, entity: ConfigEntity, pairs: &[(&str, &str)]) -> (RequestId, Effects) {
    let request = term.request();
    let change = |(k, v): &(&str, &str)| ((*k).to_owned(), SettingChange::Set((*v).to_owned()));
    let changes = pairs.iter().map(change).collect();
    let alter = AlterConfig { entity, replace: false, changes, validate_only: false };
    (request, term.step(ControllerEvent::AlterConfig { request, alter }))
}

fn stored_now(term: &mut Term, write: &ConfigWrite) -> Effects {
    let outcome = WriteOutcome::Applied;
    term.step(ControllerEvent::Written { write: write.write, outcome })
}

fn config(term: &Term) -> TopicConfig {
    term.core.image().topics[&name("t")].config
}

#[test]
fn r37_a_change_for_the_cluster_changes_what_topics_do_not_say_and_every_live_broker_confirms_it() {
    let mut term = one();
    let before = term.core.version();
    let pairs = [("log.retention.ms", "7"), ("log.flush.mode", "sync")];
    let (request, effects) = alter(&mut term, CLUSTER, &pairs);
    let write = effects.config_writes[0].clone();
    assert_eq!((write.entity.clone(), write.life), (CLUSTER, None));
    assert_eq!(write.overrides, Some(settings(&pairs)));
    assert_eq!(config(&term).flush_mode, FlushMode::Async, "no wish is in force");
    let effects = stored_now(&mut term, &write);
    assert_eq!(effects.confirmations_awaited, [request]);
    assert_eq!((config(&term).flush_mode, config(&term).retention_ms), (FlushMode::Sync, 9));
    let (_, push) = term.core.push_for(b(2), BrokerEpoch(12), Some(before)).unwrap();
    assert_eq!(push.topics[&name("t")].config.flush_mode, FlushMode::Sync);
    let shown = BTreeMap::from([(None, settings(&pairs))]);
    assert_eq!(push.broker_settings, Some(shown));

    assert!(ack(&mut term, 1, 11).config_answers.is_empty());
    assert!(ack(&mut term, 2, 12).config_answers.is_empty(), "3 has not confirmed");
    let effects = term.step(ControllerEvent::ConfirmationDue { request });
    assert_eq!(effects.config_answers[0].1.clone().unwrap().unconfirmed, [b(3)]);

    // A topic that is made from now on has them, one that says otherwise does not.
    let own = settings(&[("flush.mode", "async")]);
    for (text, overrides, mode) in
        [("v", BTreeMap::new(), FlushMode::Sync), ("w", own, FlushMode::Async)]
    {
        let request = term.request();
        let topic = barnabas_controller_core::CreateTopic { overrides, ..create(text, 1, 3) };
        let effects = term.step(ControllerEvent::CreateTopic { request, topic });
        let barnabas_controller_core::TopicWrite::Create { write, .. } = &effects.topic_writes[0]
        else {
            panic!()
        };
        let (write, outcome) = (*write, WriteOutcome::TopicCreated { czxid: 500 });
        term.step(ControllerEvent::Written { write, outcome });
        assert_eq!(term.core.image().topics[&name(text)].config.flush_mode, mode);
    }
}

#[test]
fn a_new_term_begins_with_what_is_stored_and_names_what_makes_no_sense() {
    let mut term = Term::new();
    let overrides = settings(&[("log.retention.ms", "7"), ("log.segment.bytes", "x")]);
    let snapshot = Snapshot {
        brokers: brokers(ALL),
        topics: BTreeMap::from([(name("t"), topic(&[1, 2, 3], &[Some(stored(1, 5, ALL))]))]),
        broker_settings: BTreeMap::from([
            (None, overrides.clone()),
            (Some(b(2)), settings(&[("log.cleaner.backoff.ms", "5")])),
        ]),
        ..Snapshot::default()
    };
    let effects = term.step(ControllerEvent::Loaded(snapshot));
    assert!(said(&effects, "settings of the cluster: log.segment.bytes must be"));
    assert_eq!(config(&term).retention_ms, 7);
    assert_eq!(config(&term).segment_bytes, TopicConfig::default().segment_bytes);
    assert_eq!(term.core.image().broker_settings[&None], overrides);
    assert_eq!(term.core.image().broker_settings.len(), 2);
}

#[test]
fn a_setting_of_one_broker_concerns_that_broker() {
    let mut term = one();
    let entity = ConfigEntity::Broker(Some(b(2)));
    let (request, effects) = alter(&mut term, entity.clone(), &[("log.cleaner.backoff.ms", "5")]);
    let before = config(&term);
    assert!(stored_now(&mut term, &effects.config_writes[0]).config_answers.is_empty());
    assert_eq!(config(&term), before);
    assert!(ack(&mut term, 1, 11).config_answers.is_empty());
    let effects = ack(&mut term, 2, 12);
    assert!(
        matches!(&effects.config_answers[0], (r, Ok(a)) if *r == request && a.unconfirmed.is_empty())
    );
    let (_, effects) = alter(&mut term, entity, &[("log.retention.ms", "5")]);
    let refused = effects.config_answers[0].1.clone().unwrap_err();
    assert!(matches!(refused, Condition::InvalidConfig(t) if t.contains("for the cluster")));
    // One that nobody has heard of is a slip.
    let nobody = ConfigEntity::Broker(Some(BrokerId(9)));
    let (_, effects) = alter(&mut term, nobody, &[("log.cleaner.backoff.ms", "5")]);
    let refused = effects.config_answers[0].1.clone().unwrap_err();
    assert!(
        matches!(refused, Condition::InvalidRequest(t) if t.contains("broker 9 is not registered"))
    );
}

#[test]
fn a_broker_that_is_away_gets_its_settings_with_its_first_push() {
    let here = &ALL[..2];
    let (mut term, _) = Term::with(brokers(here), topic(&[1, 2, 3], &[Some(stored(1, 5, here))]));
    let away = ConfigEntity::Broker(Some(b(3)));
    let (_, effects) = alter(&mut term, away, &[("log.cleaner.backoff.ms", "5")]);
    // Nobody is waited for.
    assert_eq!(stored_now(&mut term, &effects.config_writes[0]).config_answers.len(), 1);
}

#[test]
fn e6_min_insync_replicas_of_the_cluster_are_refused_where_a_topic_could_never_have_them() {
    let mut term = one();
    let (_, effects) = alter(&mut term, CLUSTER, &[("min.insync.replicas", "99")]);
    let refused = effects.config_answers[0].1.clone().unwrap_err();
    let Condition::InvalidConfig(text) = refused else { panic!("{refused:?}") };
    assert!(text.contains("above the replication factor 3 of topic 't'"), "{text}");
    let (_, effects) = alter(&mut term, CLUSTER, &[("min.insync.replicas", "3")]);
    stored_now(&mut term, &effects.config_writes[0]);
    assert_eq!(config(&term).min_insync_replicas, 3);
    // A topic that says otherwise does not stand in the way.
    let request = term.request();
    let change = ("min.insync.replicas".to_owned(), SettingChange::Set("2".to_owned()));
    let entity = ConfigEntity::Topic(name("t"));
    let own = AlterConfig { entity, replace: false, changes: vec![change], validate_only: false };
    let effects = term.step(ControllerEvent::AlterConfig { request, alter: own });
    stored_now(&mut term, &effects.config_writes[0]);
    let (_, effects) = alter(&mut term, CLUSTER, &[("min.insync.replicas", "99")]);
    stored_now(&mut term, &effects.config_writes[0]);
    assert_eq!(config(&term).min_insync_replicas, 2);
}

#[test]
fn r1_settings_that_somebody_else_wrote_are_taken_up_and_built_upon() {
    let mut term = one();
    let (_, effects) = alter(&mut term, CLUSTER, &[("log.retention.bytes", "5")]);
    let theirs = settings(&[("log.flush.mode", "sync")]);
    let write = effects.config_writes[0].write;
    let outcome = WriteOutcome::Config { now: theirs.clone() };
    let effects = term.step(ControllerEvent::Written { write, outcome });
    assert_eq!(config(&term).flush_mode, FlushMode::Sync);
    let again = effects.config_writes[0].clone();
    assert_eq!(again.expected, theirs);
    let both = settings(&[("log.flush.mode", "sync"), ("log.retention.bytes", "5")]);
    assert_eq!(again.overrides, Some(both));
    // A notice: read again once that is done.
    let notice = ControllerEvent::ConfigChanged { entity: CLUSTER };
    assert!(term.step(notice).config_writes.is_empty());
    let effects = stored_now(&mut term, &again);
    let read = effects.config_writes[0].clone();
    assert_eq!(read.overrides, None);
    let outcome = WriteOutcome::Config { now: BTreeMap::new() };
    let effects = term.step(ControllerEvent::Written { write: read.write, outcome });
    assert!(effects.image_changed);
    assert_eq!((config(&term).flush_mode, config(&term).retention_bytes), (FlushMode::Async, -1));
    assert!(term.core.image().broker_settings.is_empty());
}

#[test]
fn an_unclean_election_that_is_now_allowed_everywhere_is_held_at_once() {
    let (mut term, _) = Term::of(brokers(&[(2, 12)]), &[1, 2], stored(1, 5, &[(1, 11)]));
    term.apply();
    assert!(term.report(2, 12, 5, 9).partition_writes.is_empty());
    let pairs = [("unclean.leader.election.enable", "true")];
    let (_, effects) = alter(&mut term, CLUSTER, &pairs);
    let effects = stored_now(&mut term, &effects.config_writes[0]);
    assert_eq!(effects.partition_writes[0].state.leader, Some(b(2)));
}

#[test]
fn a_deposition_answers_who_waits() {
    let mut term = one();
    let (_, effects) = alter(&mut term, CLUSTER, &[("log.retention.ms", "5")]);
    let one = ConfigEntity::Broker(Some(b(1)));
    alter(&mut term, one, &[("log.cleaner.backoff.ms", "5")]);
    alter(&mut term, CLUSTER, &[("log.retention.ms", "6")]);
    let (write, outcome) = (effects.config_writes[0].write, WriteOutcome::Fenced);
    let effects = term.step(ControllerEvent::Written { write, outcome });
    let answers: Vec<_> = effects.config_answers.into_iter().map(|(_, a)| a.unwrap_err()).collect();
    let unknown = Condition::UnknownOutcome("the controller was deposed meanwhile");
    assert_eq!(answers, [Condition::NotController, Condition::NotController, unknown]);
}
