//! Draining brokers and elections on demand (R25, R26, R39), with the writes performed by hand.

mod common;

use std::collections::BTreeMap;

use barnabas_controller_core::{
    ControllerEvent, DrainProgress, Effects, ElectLeaders, ElectPartition, Election, WriteOutcome,
};
use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerImage, Condition, LeaderEpoch, PartitionEpoch, PartitionState,
};
use common::*;

const AR: &[i32] = &[1, 2, 3];
const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

/// `of` as registered, those in `draining` with the mark.
fn marked(of: &[(i32, i64)], draining: &[i32]) -> BTreeMap<BrokerId, BrokerImage> {
    let mut registered = brokers(of);
    for id in draining {
        registered.get_mut(&b(*id)).unwrap().draining = true;
    }
    registered
}

/// A term over `t-0` with the given min.insync.replicas; all three live, ISR as given, its first member leads.
fn term(min_insync_replicas: u32, members: &[(i32, i64)]) -> Term {
    let mut loaded = topic(AR, &[Some(stored(members[0].0, 5, members))]);
    loaded.overrides = settings(&[("min.insync.replicas", &min_insync_replicas.to_string())]);
    Term::with(brokers(ALL), loaded).0
}

fn drain(term: &mut Term, id: i32, epoch: i64) -> Result<DrainProgress, Condition> {
    let request = term.request();
    let (broker, broker_epoch) = (b(id), BrokerEpoch(epoch));
    let event = ControllerEvent::Drain { request, broker, broker_epoch, draining: true };
    let mut answers = term.step(event).drain_answers;
    assert_eq!(answers.len(), 1);
    answers.remove(0).1
}

fn acked(term: &mut Term, id: i32, epoch: i64) {
    term.step(ControllerEvent::PushAcked {
        broker: b(id),
        broker_epoch: BrokerEpoch(epoch),
        version: term.core.version(),
        reports: Vec::new(),
    });
}

fn only(effects: &Effects) -> &PartitionState {
    assert_eq!(effects.partition_writes.len(), 1, "{effects:?}");
    &effects.partition_writes[0].state
}

#[test]
fn r26_one_write_takes_a_draining_leader_out_and_elects_another() {
    let mut term = term(2, ALL);
    let effects = term.register(marked(ALL, &[1]));
    let new = only(&effects);
    assert_eq!((new.leader, new.leader_epoch), (Some(b(2)), LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(2, 12), (3, 13)]));
}

#[test]
fn r26_a_draining_follower_leaves_and_the_leader_epoch_stays() {
    let mut term = term(2, ALL);
    let effects = term.register(marked(ALL, &[3]));
    let new = only(&effects);
    assert_eq!((new.leader, new.leader_epoch), (Some(b(1)), LeaderEpoch(5)));
    assert_eq!(new.isr, isr(&[(1, 11), (2, 12)]));
}

#[test]
fn r26_that_it_may_stop_is_said_in_a_later_step_and_when_the_leaders_know() {
    let mut term = term(2, ALL);
    term.register(marked(ALL, &[1]));
    let waiting = drain(&mut term, 1, 11).unwrap();
    assert_eq!((waiting.may_stop, waiting.partitions), (false, 1), "it is not written yet");
    term.apply();
    let waiting = drain(&mut term, 1, 11).unwrap();
    assert_eq!((waiting.may_stop, waiting.partitions), (false, 0), "2 does not know that it leads");
    acked(&mut term, 2, 12);
    assert!(!drain(&mut term, 1, 11).unwrap().may_stop, "1 does not know that it leads no more");
    acked(&mut term, 1, 11);
    assert!(drain(&mut term, 1, 11).unwrap().may_stop);
}

#[test]
fn r26_a_drain_waits_for_min_insync_replicas_and_goes_on_when_others_have_caught_up() {
    let mut term = term(2, &[(1, 11), (2, 12)]);
    let effects = term.register(marked(ALL, &[1]));
    assert!(effects.partition_writes.is_empty(), "1 and 2 are needed");
    let waiting = drain(&mut term, 1, 11).unwrap();
    assert!(!waiting.may_stop);
    assert!(waiting.obstructions[0].reason.contains("1 live ISR members would be left"));
    assert!(!waiting.obstructions[0].never);
    let proposal = term.proposal(ALL);
    assert_eq!(term.propose(proposal).partition_writes.len(), 1);
    let effects = term.apply();
    assert_eq!(term.state().leader, Some(b(2)));
    assert_eq!(term.state().isr, isr(&[(2, 12), (3, 13)]), "{effects:?}");
}

#[test]
fn r26_a_second_drainer_waits_until_the_first_is_back() {
    let mut term = term(2, ALL);
    term.register(marked(ALL, &[2]));
    term.apply();
    assert!(term.register(marked(ALL, &[1, 2])).partition_writes.is_empty());
    assert_eq!(term.state().isr, isr(&[(1, 11), (3, 13)]));
    // 2 has stopped and is back, undrained (R25), and has caught up.
    let back = &[(1, 11), (2, 22), (3, 13)];
    assert!(term.register(marked(back, &[1])).partition_writes.is_empty());
    let proposal = term.proposal(back);
    term.propose(proposal);
    term.apply();
    assert_eq!(term.state().leader, Some(b(2)));
    assert_eq!(term.state().isr, isr(&[(2, 22), (3, 13)]));
}

#[test]
fn r26_two_drainers_leave_every_partition_in_the_same_order() {
    // 3 lags in partition 1.
    let behind = stored(1, 5, &[(1, 11), (2, 12)]);
    let mut loaded = topic(AR, &[Some(stored(1, 5, ALL)), Some(behind)]);
    loaded.overrides = settings(&[("min.insync.replicas", "2")]);
    let mut term = Term::with(brokers(ALL), loaded).0;
    term.register(marked(ALL, &[2]));
    term.apply();
    term.register(marked(ALL, &[1, 2]));
    term.apply();
    let isr_of = |term: &Term, p| term.partition_of(&at("t", p)).state.isr_ids();
    assert_eq!((isr_of(&term, 0), isr_of(&term, 1)), (vec![b(1), b(3)], vec![b(1), b(2)]));
    let mut proposal = term.proposal(ALL);
    proposal.partition = at("t", 1);
    let state = &term.partition_of(&at("t", 1)).state;
    (proposal.leader_epoch, proposal.partition_epoch) = (state.leader_epoch, state.partition_epoch);
    term.propose(proposal);
    term.apply();
    assert_eq!(isr_of(&term, 1), [b(1), b(3)], "2 began first: otherwise each waits for the other");
}

#[test]
fn r26_a_draining_broker_is_not_admitted_again() {
    let mut term = term(2, ALL);
    term.register(marked(ALL, &[3]));
    term.apply();
    let proposal = term.proposal(ALL);
    let effects = term.propose(proposal);
    assert!(effects.partition_writes.is_empty());
    assert_eq!(effects.alter_answers[0].1, Err(Condition::IneligibleReplica(b(3))));
    // Undrained, it may join.
    term.register(brokers(ALL));
    let proposal = term.proposal(ALL);
    assert_eq!(only(&term.propose(proposal)).isr, isr(ALL));
}

#[test]
fn r26_an_admission_that_is_being_written_keeps_the_broker_from_stopping() {
    let mut term = term(2, &[(1, 11), (2, 12)]);
    let proposal = term.proposal(ALL);
    assert_eq!(term.propose(proposal).partition_writes.len(), 1, "proposed before it drained");
    term.register(marked(ALL, &[3]));
    acked(&mut term, 1, 11);
    acked(&mut term, 3, 13);
    assert!(!drain(&mut term, 3, 13).unwrap().may_stop);
    term.apply();
    assert!(!term.state().in_isr(b(3)), "admitted, and out again");
    acked(&mut term, 1, 11);
    acked(&mut term, 3, 13);
    assert!(drain(&mut term, 3, 13).unwrap().may_stop);
}

#[test]
fn r26_a_draining_broker_leads_only_if_nobody_else_can() {
    let mut term = term(1, ALL);
    // The leader dies while the next in line drains.
    let rest = &[(2, 12), (3, 13)];
    let effects = term.register(marked(rest, &[2]));
    assert_eq!(only(&effects).leader, Some(b(3)));
    term.apply();
    assert_eq!(term.state().isr, isr(&[(3, 13)]));
    // Sole member, draining: it stays.
    assert!(term.register(marked(rest, &[2, 3])).partition_writes.is_empty());
    assert_eq!(term.state().leader, Some(b(3)));
}

#[test]
fn r25_a_request_of_another_registration_is_refused() {
    let mut term = term(2, ALL);
    term.register(marked(ALL, &[1]));
    term.apply();
    let stale = Condition::StaleBrokerEpoch { asked: BrokerEpoch(10), present: BrokerEpoch(11) };
    assert_eq!(drain(&mut term, 1, 10), Err(stale));
    let back = &[(1, 21), (2, 12), (3, 13)];
    term.register(brokers(back));
    assert!(matches!(drain(&mut term, 1, 21), Err(Condition::InvalidRequest(_))), "undrained");
}

#[test]
fn r26_a_new_topic_does_not_count_on_a_draining_broker() {
    let mut term = term(2, ALL);
    term.register(marked(ALL, &[1]));
    let request = term.request();
    let event = ControllerEvent::CreateTopic { request, topic: create("new", 1, 3) };
    let effects = term.step(event);
    let barnabas_controller_core::TopicWrite::Create { partitions, .. } = &effects.topic_writes[0]
    else {
        panic!("{effects:?}")
    };
    let (assigned, state) = &partitions[&0];
    assert_eq!((assigned.len(), state.isr.len()), (3, 2));
    assert!(!state.in_isr(b(1)) && state.leader != Some(b(1)));
    term.register(marked(ALL, &[1, 2, 3]));
    let request = term.request();
    let event = ControllerEvent::CreateTopic { request, topic: create("none", 1, 3) };
    let refused = term.step(event).create_answers.remove(0).1.unwrap_err();
    assert!(refused.to_string().contains("not being drained"), "{refused}");
}

#[test]
fn can_stop_says_yes_not_now_or_never() {
    let verdict = |min, members: &[(i32, i64)], id| term(min, members).core.can_stop(b(id));
    let yes = verdict(2, ALL, 1).unwrap();
    assert_eq!((yes.partitions, yes.never), (0, false));
    let later = verdict(2, &[(1, 11), (2, 12)], 1).unwrap();
    assert_eq!((later.partitions, later.never), (1, false));
    assert_eq!(verdict(2, &[(1, 11), (2, 12)], 3).unwrap().partitions, 0, "3 is not in the ISR");
    let never = verdict(3, ALL, 1).unwrap();
    assert_eq!((never.partitions, never.never), (1, true));
    assert!(never.obstructions[0].reason.contains("add a replica"));
    assert!(matches!(verdict(2, ALL, 9), Err(Condition::InvalidRequest(_))));
}

fn elect(term: &mut Term, election: Election, expected: Option<PartitionEpoch>) -> Effects {
    let request = term.request();
    let partitions = vec![ElectPartition { partition: at("t", 0), expected }];
    let elect = ElectLeaders { election, partitions };
    term.step(ControllerEvent::ElectLeaders { request, elect })
}

fn result(effects: &Effects) -> &Result<PartitionState, Condition> {
    assert_eq!(effects.elect_answers.len(), 1, "{effects:?}");
    &effects.elect_answers[0].1[0].1
}

#[test]
fn the_preferred_replica_leads_again_when_asked_and_the_answer_waits_for_the_write() {
    let mut term = Term::of(brokers(ALL), AR, stored(2, 5, ALL)).0;
    let effects = elect(&mut term, Election::Preferred, None);
    assert!(effects.elect_answers.is_empty());
    assert_eq!((only(&effects).leader, only(&effects).leader_epoch), (Some(b(1)), LeaderEpoch(6)));
    assert_eq!(only(&effects).isr, isr(ALL));
    let effects = term.finish(WriteOutcome::Applied);
    assert_eq!(result(&effects).as_ref().unwrap().leader, Some(b(1)));
    let effects = elect(&mut term, Election::Preferred, None);
    assert!(matches!(result(&effects), Err(Condition::ElectionNotNeeded(_))));
}

#[test]
fn a_preferred_replica_that_is_dead_draining_or_behind_is_not_elected() {
    let unavailable = |registered, members: &[(i32, i64)]| {
        let mut term = Term::of(registered, AR, stored(2, 5, members)).0;
        term.apply();
        let effects = elect(&mut term, Election::Preferred, None);
        assert!(effects.partition_writes.is_empty());
        assert!(matches!(result(&effects), Err(Condition::PreferredLeaderNotAvailable(_))));
    };
    unavailable(brokers(&[(2, 12), (3, 13)]), &[(2, 12), (3, 13)]);
    unavailable(brokers(ALL), &[(2, 12), (3, 13)]);
    unavailable(marked(ALL, &[1]), ALL);
}

#[test]
fn an_election_meets_a_conflict_and_is_decided_anew() {
    let mut term = Term::of(brokers(ALL), AR, stored(2, 5, ALL)).0;
    elect(&mut term, Election::Preferred, None);
    let now = Some(PartitionState { partition_epoch: PartitionEpoch(10), ..stored(2, 5, ALL) });
    let effects = term.finish(WriteOutcome::Conflict { now });
    assert_eq!(only(&effects).partition_epoch, PartitionEpoch(11));
    assert!(result(&term.finish(WriteOutcome::Applied)).is_ok());
}

#[test]
fn of_two_elections_that_a_conflict_meets_both_are_answered() {
    let mut term = Term::of(brokers(ALL), AR, stored(2, 5, ALL)).0;
    elect(&mut term, Election::Preferred, None);
    elect(&mut term, Election::Preferred, Some(PartitionEpoch(10)));
    let now = Some(PartitionState { partition_epoch: PartitionEpoch(10), ..stored(2, 5, ALL) });
    let overtaken = term.finish(WriteOutcome::Conflict { now });
    assert!(matches!(result(&overtaken), Err(Condition::InvalidUpdateVersion { .. })));
    assert!(result(&term.finish(WriteOutcome::Applied)).is_ok());
}

#[test]
fn an_election_is_told_that_the_store_refuses_what_must_come_first() {
    let mut term = Term::of(brokers(ALL), AR, stored(2, 5, ALL)).0;
    term.register(brokers(&[(1, 11), (3, 13)]));
    assert!(elect(&mut term, Election::Preferred, None).elect_answers.is_empty());
    let refused = term.finish(WriteOutcome::Refused { reason: "too large" });
    assert!(matches!(result(&refused), Err(Condition::InvalidUpdateVersion { .. })));
    assert_eq!(term.state().leader, None, "it is shown without a leader");
}

#[test]
fn every_partition_gets_its_own_result() {
    let states = [Some(stored(2, 5, ALL)), Some(stored(1, 5, ALL)), None];
    let mut term = Term::with(brokers(ALL), topic(AR, &states)).0;
    let request = term.request();
    let one = |p| ElectPartition { partition: at("t", p), expected: None };
    let partitions = [0, 1, 2, 7, 1].map(one).to_vec();
    let elect = ElectLeaders { election: Election::Preferred, partitions };
    assert!(term.step(ControllerEvent::ElectLeaders { request, elect }).elect_answers.is_empty());
    let effects = term.finish(WriteOutcome::Applied);
    let results = &effects.elect_answers[0].1;
    assert_eq!(results.iter().map(|r| r.0.partition).collect::<Vec<_>>(), [0, 1, 2, 7]);
    assert!(results[0].1.is_ok());
    assert!(matches!(results[1].1, Err(Condition::ElectionNotNeeded(_))));
    assert!(results[2].1.is_err(), "its node is missing");
    assert_eq!(results[3].1, Err(Condition::UnknownTopicOrPartition));
}

#[test]
fn leaders_are_rebalanced_above_the_percentage_only() {
    let states = [Some(stored(2, 5, ALL)), Some(stored(1, 5, ALL))];
    let due = |imbalance_percentage, registered| {
        let mut term = Term::with(registered, topic(AR, &states)).0;
        term.apply();
        term.step(ControllerEvent::RebalanceDue { imbalance_percentage }).partition_writes.len()
    };
    assert_eq!(due(10, brokers(ALL)), 1);
    assert_eq!(due(50, brokers(ALL)), 0, "a half is not more than a half");
    assert_eq!(due(10, marked(ALL, &[1])), 0, "never onto a draining broker");
}

/// Leaderless in epoch 6, ISR {1}, which is dead; 2 and 3 are live and outside.
fn leaderless() -> Term {
    let mut term = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11)])).0;
    term.register(brokers(&[(2, 12), (3, 13)]));
    term.apply();
    assert_eq!(term.state().leader, None);
    term
}

const UNCLEAN: Election = Election::Unclean { to: None };

#[test]
fn r39_an_unclean_election_takes_the_longest_log_that_was_told() {
    let mut term = leaderless();
    let epoch = Some(term.state().partition_epoch);
    let refused = elect(&mut term, UNCLEAN, epoch);
    assert!(matches!(result(&refused), Err(Condition::EligibleLeadersNotAvailable(_))));
    term.report(2, 12, 4, 90);
    term.report(3, 13, 5, 70);
    let effects = elect(&mut term, UNCLEAN, epoch);
    let new = only(&effects);
    assert_eq!((new.leader, new.leader_epoch), (Some(b(3)), LeaderEpoch(7)));
    assert_eq!(new.isr, isr(&[(3, 13)]));
    let effects = term.apply();
    assert!(said(&effects, "from offset 70 on may be lost"));
}

#[test]
fn r39_the_operator_may_name_the_broker() {
    let mut term = leaderless();
    let epoch = Some(term.state().partition_epoch);
    term.report(2, 12, 4, 90);
    term.report(3, 13, 5, 70);
    let to = |id| Election::Unclean { to: Some(b(id)) };
    for wrong in [1, 9] {
        let effects = elect(&mut term, to(wrong), epoch);
        assert!(matches!(result(&effects), Err(Condition::EligibleLeadersNotAvailable(_))));
    }
    assert_eq!(only(&elect(&mut term, to(2), epoch)).leader, Some(b(2)));
}

#[test]
fn r39_only_at_the_epoch_that_was_shown_and_only_without_a_leader() {
    let mut term = leaderless();
    let shown = term.state().partition_epoch;
    term.report(2, 12, 5, 70);
    let effects = elect(&mut term, UNCLEAN, Some(PartitionEpoch(shown.0 - 1)));
    assert!(matches!(result(&effects), Err(Condition::InvalidUpdateVersion { .. })));
    // The ISR member is back before the command arrives.
    term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    let effects = elect(&mut term, UNCLEAN, Some(shown));
    assert!(effects.elect_answers.is_empty(), "the return is written first");
    let effects = term.finish(WriteOutcome::Applied);
    assert!(matches!(result(&effects), Err(Condition::InvalidUpdateVersion { .. })));
    assert_eq!(term.state().leader, Some(b(1)));
    let shown = Some(term.state().partition_epoch);
    let effects = elect(&mut term, UNCLEAN, shown);
    assert!(matches!(result(&effects), Err(Condition::ElectionNotNeeded(_))));
}

#[test]
fn a_deposed_controller_answers_elections() {
    let mut term = Term::of(brokers(ALL), AR, stored(2, 5, ALL)).0;
    elect(&mut term, Election::Preferred, None);
    let effects = term.finish(WriteOutcome::Fenced);
    assert!(matches!(result(&effects), Err(Condition::UnknownOutcome(_))));
    let effects = elect(&mut term, Election::Preferred, None);
    assert_eq!(result(&effects), &Err(Condition::NotController));
}

#[test]
fn r26_a_draining_broker_with_the_longest_log_is_waited_for() {
    let mut registered = marked(&[(2, 12), (3, 13)], &[3]);
    registered.insert(b(1), lost(21));
    let mut term = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11)])).0;
    term.register(registered.clone());
    term.apply();
    assert_eq!(term.state().leader, None);
    term.report(1, 21, 5, 10);
    term.report(2, 12, 5, 20);
    let effects = term.report(3, 13, 5, 30);
    assert!(effects.partition_writes.is_empty(), "it may have been told that it may stop");
    registered.get_mut(&b(3)).unwrap().draining = false;
    assert_eq!(only(&term.register(registered)).leader, Some(b(3)));
}
