//! The answer to a creation, an addition or a deletion waits until the brokers have heard of it.

mod common;

use barnabas_controller_core::{
    ControllerEvent, Effects, RequestId, Snapshot, TopicWrite, WriteOutcome,
};
use barnabas_types::{BrokerEpoch, Condition, TopicId};
use common::*;

const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

fn three() -> Term {
    let mut term = Term::new();
    term.step(ControllerEvent::Loaded(Snapshot { brokers: brokers(ALL), ..Snapshot::default() }));
    term
}

/// Creates a topic in the store; nobody has heard of it yet.
fn stored_topic(term: &mut Term, text: &str) -> (RequestId, Effects) {
    let request = term.request();
    let topic = create(text, 1, 1);
    let effects = term.step(ControllerEvent::CreateTopic { request, topic });
    let TopicWrite::Create { write, .. } = effects.topic_writes[0] else { panic!() };
    let outcome = WriteOutcome::TopicCreated { czxid: 500 };
    (request, term.step(ControllerEvent::Written { write, outcome }))
}

fn created(effects: &Effects, request: RequestId) -> bool {
    effects.create_answers == [(request, Ok((TopicId([9; 16]), 1, 1)))]
}

fn due(term: &mut Term, request: RequestId) -> Effects {
    term.step(ControllerEvent::ConfirmationDue { request })
}

fn broken(term: &mut Term, id: i32, epoch: i64) -> Effects {
    term.step(ControllerEvent::PushBroken { broker: b(id), broker_epoch: BrokerEpoch(epoch) })
}

#[test]
fn a_creation_is_answered_when_the_last_live_broker_has_heard_of_it() {
    let mut term = three();
    let (request, effects) = stored_topic(&mut term, "a");
    assert_eq!(effects.announcements_awaited, [request]);
    assert!(effects.create_answers.is_empty() && effects.image_changed);
    for id in [1, 2] {
        assert!(term.hears(id).create_answers.is_empty(), "{id}");
    }
    assert!(created(&term.hears(3), request));
    assert_eq!(due(&mut term, request), Effects::default(), "answered once");
}

#[test]
fn a_broker_that_is_gone_or_cannot_be_reached_holds_nobody_up() {
    let mut term = three();
    let (request, _) = stored_topic(&mut term, "a");
    term.hears(1);
    assert!(broken(&mut term, 2, 99).create_answers.is_empty(), "of another incarnation");
    assert!(broken(&mut term, 2, 12).create_answers.is_empty(), "3 is waited for");
    assert!(created(&term.register(brokers(&ALL[..2])), request));
    // The next creation does not wait for it either, until it acknowledges something.
    let (request, effects) = stored_topic(&mut term, "b");
    assert!(effects.create_answers.is_empty());
    assert!(created(&term.hears(1), request));
    term.hears(2);
    let (request, _) = stored_topic(&mut term, "c");
    assert!(term.hears(1).create_answers.is_empty());
    assert!(created(&term.hears(2), request));
    // Nor does a new incarnation inherit that it could not be reached.
    broken(&mut term, 2, 12);
    term.register(brokers(&[(1, 11), (2, 22)]));
    term.apply();
    let (request, _) = stored_topic(&mut term, "d");
    assert!(term.hears(1).create_answers.is_empty());
    assert!(created(&term.hears(2), request));
}

#[test]
fn a_broker_that_hangs_exhausts_the_patience_once() {
    let mut term = three();
    let (request, _) = stored_topic(&mut term, "a");
    term.hears(1);
    term.hears(2);
    assert!(created(&due(&mut term, request), request));
    let (request, _) = stored_topic(&mut term, "b");
    term.hears(1);
    assert!(created(&term.hears(2), request));
}

#[test]
fn a_deposed_controller_answers_what_is_stored() {
    let mut term = three();
    let (request, _) = stored_topic(&mut term, "a");
    let other = term.request();
    let effects =
        term.step(ControllerEvent::CreateTopic { request: other, topic: create("b", 1, 1) });
    let TopicWrite::Create { write, .. } = effects.topic_writes[0] else { panic!() };
    let effects = term.step(ControllerEvent::Written { write, outcome: WriteOutcome::Fenced });
    assert!(effects.resign);
    let answers = [(other, Err(Condition::NotController)), (request, Ok((TopicId([9; 16]), 1, 1)))];
    assert_eq!(effects.create_answers, answers);
}
