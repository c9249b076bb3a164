//! Leader and ISR decisions through the whole controller, one test or more for each rule.

mod common;

use barnabas_controller_core::{ControllerEvent, Effects, Snapshot, WriteOutcome};
use barnabas_types::{BrokerEpoch, Condition, LeaderEpoch, PartitionEpoch, PartitionState};
use common::*;

const AR: &[i32] = &[1, 2, 3];
const ALL: &[(i32, i64)] = &[(1, 11), (2, 12), (3, 13)];

/// Three brokers, all in the ISR, 1 leads in epoch 5.
fn healthy() -> Term {
    let (term, effects) = Term::of(brokers(ALL), AR, stored(1, 5, ALL));
    assert!(effects.partition_writes.is_empty());
    assert!(effects.image_changed);
    term
}

fn leader(state: &PartitionState) -> i32 {
    state.leader.map_or(-1, |l| l.0)
}

fn only(effects: &Effects) -> &PartitionState {
    assert_eq!(effects.partition_writes.len(), 1, "{effects:?}");
    &effects.partition_writes[0].state
}

fn answer(effects: &Effects) -> Result<PartitionState, Condition> {
    assert_eq!(effects.alter_answers.len(), 1, "{effects:?}");
    effects.alter_answers[0].1.clone()
}

fn refused(effects: &Effects) -> Condition {
    assert!(effects.partition_writes.is_empty(), "{effects:?}");
    answer(effects).unwrap_err()
}

#[test]
fn r1_a_conflict_is_adopted_and_decided_anew() {
    let mut term = healthy();
    term.register(brokers(&[(2, 12), (3, 13)]));
    let other = PartitionState { partition_epoch: PartitionEpoch(12), ..stored(3, 8, &[(3, 13)]) };
    let effects = term.finish(WriteOutcome::Conflict { now: Some(other.clone()) });
    assert!(effects.partition_writes.is_empty(), "what is there fits: nothing to write");
    assert_eq!(*term.state(), other);

    let gone = PartitionState { partition_epoch: PartitionEpoch(13), ..stored(1, 9, ALL) };
    term.register(brokers(&[(2, 12)]));
    let effects = term.finish(WriteOutcome::Conflict { now: Some(gone) });
    let again = only(&effects);
    assert_eq!((leader(again), again.leader_epoch), (2, LeaderEpoch(10)));
    assert_eq!(effects.partition_writes[0].expected, PartitionEpoch(13));
}

#[test]
fn r1_a_conflict_with_what_was_meant_counts_as_applied() {
    let mut term = healthy();
    let effects = term.propose(term.proposal(&[(1, 11), (2, 12)]));
    let meant = only(&effects).clone();
    let effects = term.finish(WriteOutcome::Conflict { now: Some(meant.clone()) });
    assert_eq!(answer(&effects), Ok(meant));
}

#[test]
fn r1_a_fenced_write_ends_the_term() {
    let mut term = healthy();
    let effects = term.propose(term.proposal(&[(1, 11), (2, 12)]));
    assert_eq!(effects.partition_writes.len(), 1);
    let effects = term.finish(WriteOutcome::Fenced);
    assert!(effects.resign);
    assert_eq!(answer(&effects), Err(Condition::NotController));
    assert!(!term.pushable(1, 11), "a deposed controller pushes nothing");
    let effects = term.register(brokers(&[(2, 12)]));
    assert_eq!(effects, Effects::default());
    let late = term.proposal(&[(1, 11)]);
    assert_eq!(refused(&term.propose(late)), Condition::NotController);
}

#[test]
fn r1_a_write_counts_only_when_it_is_written() {
    let mut term = healthy();
    let version = term.core.version();
    let effects = term.propose(term.proposal(&[(1, 11), (2, 12)]));
    assert!(!effects.image_changed);
    assert_eq!((term.core.version(), term.state().isr.len()), (version, 3), "no wish is shown");
    let write = term.open[0].write;
    let effects = term.finish(WriteOutcome::Applied);
    assert!(effects.image_changed);
    assert_eq!((term.core.version(), term.state().isr.len()), (version + 1, 2));
    let again = term.step(ControllerEvent::Written { write, outcome: WriteOutcome::Applied });
    assert_eq!(again, Effects::default(), "a duplicate completion changes nothing");
}

#[test]
fn r3_a_restart_before_the_election_is_down_then_up_before_it_is_told_anything() {
    // 1 led epoch 5 under broker epoch 11 and is registered under 21 now: nobody told this term that it was ever away.
    let (mut term, effects) =
        Term::of(brokers(&[(1, 21), (2, 12), (3, 13)]), AR, stored(1, 5, ALL));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (2, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(2, 12), (3, 13)]));
    assert!(!term.pushable(1, 21), "it would be told to lead epoch 5 again");
    assert!(effects.image_changed && term.pushable(2, 12), "the others are not delayed");
    let effects = term.apply();
    assert!(effects.image_changed && said(&effects, "broker 1 came back under epoch 21 (was 11)"));
    assert!(term.pushable(1, 21) && term.pushable(2, 12));
    assert!(!term.pushable(1, 11), "the incarnation that is gone");
}

#[test]
fn r3_an_absent_member_is_processed_at_loading() {
    let (mut term, effects) = Term::of(brokers(&[(2, 12), (3, 13)]), AR, stored(1, 5, ALL));
    assert_eq!(leader(only(&effects)), 2);
    let effects = term.apply();
    assert!(term.pushable(2, 12) && said(&effects, "broker 1 went away"));
}

#[test]
fn r3_a_full_push_never_omits_a_partition_that_waits() {
    let t = topic(AR, &[Some(stored(1, 5, ALL)), Some(stored(2, 5, &[(2, 12)])), None]);
    let (term, effects) = Term::with(brokers(&[(1, 21), (2, 12), (3, 13)]), t);
    assert_eq!(effects.partition_writes.len(), 1);
    let (_, push) = term.core.push_for(b(3), BrokerEpoch(13), None).unwrap();
    assert!(push.full);
    assert_eq!(push.topics[&name("t")].partitions.len(), 3, "the unreadable one too");
    assert_eq!(push.topics[&name("t")].partitions[&2].state.leader, None);
}

#[test]
fn r3_within_a_term_a_bounced_member_is_told_nothing_before_its_write() {
    let mut term = healthy();
    let effects = term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    assert_eq!(leader(only(&effects)), 2);
    assert!(term.pushable(2, 12), "the others are not delayed");
    assert!(!term.pushable(1, 21), "it would be told to lead epoch 5 again");
    assert!(term.apply().image_changed);
    assert!(term.pushable(1, 21));
}

#[test]
fn r3_a_bounce_during_another_write_holds_the_push_too() {
    let mut term = healthy();
    term.propose(term.proposal(&[(1, 11), (2, 12)]));
    term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    assert!(!term.pushable(1, 21));
    let effects = term.finish(WriteOutcome::Applied);
    assert_eq!(leader(only(&effects)), 2, "decided again at completion");
    assert!(!term.pushable(1, 21));
    term.apply();
    assert!(term.pushable(1, 21));
    assert_eq!(term.state().isr, isr(&[(2, 12)]));
}

#[test]
fn r3_a_write_that_the_store_refuses_is_never_pushed_around() {
    let (mut term, _) = Term::of(brokers(&[(1, 21), (2, 12), (3, 13)]), AR, stored(1, 5, ALL));
    let effects = term.finish(WriteOutcome::Refused { reason: "too large" });
    assert!(effects.notes.iter().all(|n| n.warn) && effects.image_changed);
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(21), None).unwrap();
    assert_eq!(
        push.topics[&name("t")].partitions[&0].state.leader,
        None,
        "not leader 1 in epoch 5"
    );
    let effects = term.register(brokers(&[(1, 22), (2, 12), (3, 13)]));
    assert_eq!(leader(only(&effects)), 2, "tried again at the next change");
    term.apply();
    assert_eq!(leader(term.state()), 2);
}

#[test]
fn r5_the_first_live_isr_member_of_ar_leads() {
    let mut term = healthy();
    let effects = term.register(brokers(&[(2, 12), (3, 13)]));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (2, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(2, 12), (3, 13)]));
    let effects = term.apply();
    assert!(said(&effects, "leader 1 -> 2, leader epoch 5 -> 6, ISR [1,2,3] -> [2,3]"));
    assert!(said(&effects, "broker 1 went away"));
}

#[test]
fn r5_a_follower_that_goes_leaves_the_isr_and_the_leader_stays() {
    let mut term = healthy();
    let effects = term.register(brokers(&[(1, 11), (2, 12)]));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch, new.isr.len()), (1, LeaderEpoch(5), 2));
}

#[test]
fn r5_all_gone_keeps_the_isr_and_the_first_to_return_whole_leads() {
    let mut term = healthy();
    let effects = term.register(brokers(&[]));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (-1, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(ALL), "the ISR is kept under its old epochs");
    let effects = term.apply();
    assert!(effects.notes.iter().any(|n| n.warn));
    let effects = term.register(brokers(&[(3, 23)]));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (3, LeaderEpoch(7)));
    assert_eq!(new.isr, isr(&[(3, 23)]), "confirmed under its new epoch");
}

#[test]
fn r5_a_replica_outside_the_isr_never_leads() {
    let (mut term, _) = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11)]));
    let effects = term.register(brokers(&[(2, 12), (3, 13)]));
    assert_eq!((leader(only(&effects)), only(&effects).isr.clone()), (-1, isr(&[(1, 11)])));
    term.apply();
    for (id, epoch) in [(2, 12), (3, 13)] {
        let effects = term.report(id, epoch, 5, 100);
        assert!(effects.partition_writes.is_empty(), "unclean election is off");
    }
}

#[test]
fn r5_one_leader_epoch_is_never_led_by_two_incarnations() {
    let (mut term, _) = Term::of(brokers(&[(1, 11)]), AR, stored(1, 5, &[(1, 11)]));
    let effects = term.register(brokers(&[(1, 21)]));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (1, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(1, 21)]));
}

#[test]
fn r5_no_change_without_a_cause() {
    let mut term = healthy();
    let effects = term.register(brokers(&[(1, 11), (2, 12), (3, 13), (4, 14)]));
    assert!(effects.partition_writes.is_empty() && effects.image_changed);
    let effects = term.register(brokers(&[(1, 11), (2, 12), (3, 13), (4, 14)]));
    assert_eq!(effects, Effects::default());
}

#[test]
fn r6_a_lost_tail_leaves_while_any_other_member_remains_even_dead() {
    let two = &[(1, 11), (2, 12)];
    let (mut term, _) = Term::of(brokers(two), AR, stored(1, 5, two));
    let mut registered = brokers(&[]);
    registered.insert(b(1), lost(21));
    let effects = term.register(registered);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (-1, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(2, 12)]), "2 is dead but may hold everything");
    let effects = term.apply();
    assert!(said(&effects, "may have lost the tail"));
    let effects = term.register(brokers(&[(2, 22)]));
    assert_eq!(leader(only(&effects)), 2);
}

#[test]
fn r6_the_last_member_with_a_lost_tail_is_kept_unconfirmed_and_not_elected() {
    let (mut term, _) = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11)]));
    let mut registered = brokers(&[(2, 12)]);
    registered.insert(b(1), lost(21));
    let effects = term.register(registered.clone());
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (-1, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(1, 11)]));
    term.apply();
    assert!(term.pushable(1, 21), "it must hear the leaderless state to report");
    registered.insert(b(3), broker(33));
    assert!(term.register(registered).partition_writes.is_empty());
}

#[test]
fn r6_two_lost_tails_keep_one_member() {
    let two = &[(1, 11), (2, 12)];
    let (term, effects) =
        Term::of([(b(1), lost(21)), (b(2), lost(22))].into(), AR, stored(1, 5, two));
    let new = only(&effects);
    assert_eq!((leader(new), new.isr.clone()), (-1, isr(&[(1, 11)])));
    assert_eq!(term.open.len(), 1);
}

#[test]
fn r7_a_lost_tail_under_its_confirmed_epoch_is_an_ordinary_member() {
    let registered = [(b(1), lost(11)), (b(2), broker(12))].into();
    let (_, effects) = Term::of(registered, AR, stored(1, 5, &[(1, 11), (2, 12)]));
    assert!(effects.partition_writes.is_empty());
}

/// 1 was the last ISR member and came back with a lost tail; leader -1 in epoch 6; 2 and 3 are live.
fn last_member_lost() -> Term {
    let registered = [(b(1), lost(21)), (b(2), broker(12)), (b(3), broker(13))].into();
    let (mut term, _) = Term::of(registered, AR, stored(1, 5, &[(1, 11)]));
    term.apply();
    assert_eq!((leader(term.state()), term.state().leader_epoch), (-1, LeaderEpoch(6)));
    term
}

#[test]
fn r8_all_of_ar_have_reported_and_the_longest_log_leads() {
    let mut term = last_member_lost();
    assert!(term.report(1, 21, 5, 40).partition_writes.is_empty());
    assert!(term.report(3, 13, 5, 60).partition_writes.is_empty(), "not from the live subset");
    let effects = term.report(2, 12, 4, 900);
    let new = only(&effects);
    assert_eq!(
        (leader(new), new.leader_epoch),
        (3, LeaderEpoch(7)),
        "the epoch counts before the length"
    );
    assert_eq!(new.isr, isr(&[(3, 13)]));
    let effects = term.apply();
    assert!(said(&effects, "recovered from the longest log"));
    assert!(effects.notes.iter().any(|n| n.warn));
}

#[test]
fn r8_the_leader_epoch_is_above_all_that_the_logs_know() {
    // What is stored was taken back to an earlier time.
    let mut term = last_member_lost();
    term.report(1, 21, 5, 40);
    term.report(3, 13, 30, 60);
    let effects = term.report(2, 12, 4, 900);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (3, LeaderEpoch(31)));
}

#[test]
fn r8_equal_logs_prefer_an_isr_member_then_ar_order() {
    let registered = [(b(1), broker(11)), (b(2), broker(12)), (b(3), lost(23))].into();
    let (mut term, _) = Term::of(registered, AR, stored(3, 5, &[(3, 13)]));
    term.apply();
    term.report(1, 11, 5, 60);
    term.report(2, 12, 5, 60);
    assert_eq!(leader(only(&term.report(3, 23, 5, 60))), 3);

    let mut term = last_member_lost();
    term.report(1, 21, -1, 0);
    term.report(3, 13, 5, 60);
    assert_eq!(leader(only(&term.report(2, 12, 5, 60))), 2);
}

#[test]
fn r8_a_report_counts_only_under_the_registered_epoch_in_the_present_leaderless_epoch() {
    let mut term = last_member_lost();
    term.report(1, 21, 5, 40);
    term.report(3, 13, 5, 60);
    for effects in [
        term.report_in(2, 12, LeaderEpoch(5), (5, 70)),
        term.report_in(2, 12, LeaderEpoch(7), (5, 70)),
        term.report(2, 99, 5, 70),
    ] {
        assert!(effects.partition_writes.is_empty());
    }
    // A new registration discards its own report: 3 must report again.
    let registered: std::collections::BTreeMap<_, _> =
        [(b(1), lost(21)), (b(2), broker(12)), (b(3), broker(33))].into();
    term.register(registered);
    assert!(term.report(2, 12, 5, 50).partition_writes.is_empty());
    assert_eq!(leader(only(&term.report(3, 33, 5, 60))), 3);
}

#[test]
fn r8_a_new_leaderless_epoch_discards_earlier_reports() {
    let mut term = last_member_lost();
    term.report(1, 21, 5, 40);
    term.report(3, 13, 5, 60);
    // 2 reports last and leads; then it goes away: leaderless again, in epoch 8, with nothing known.
    assert_eq!(leader(only(&term.report(2, 12, 5, 80))), 2);
    term.apply();
    let without: std::collections::BTreeMap<_, _> = [(b(1), lost(21)), (b(3), broker(13))].into();
    term.register(without.clone());
    term.apply();
    assert_eq!((leader(term.state()), term.state().leader_epoch), (-1, LeaderEpoch(8)));
    let mut back = without;
    back.insert(b(2), lost(42));
    assert!(term.register(back).partition_writes.is_empty());
    assert!(term.report(2, 42, 7, 80).partition_writes.is_empty());
    assert!(term.report(1, 21, 7, 10).partition_writes.is_empty());
    assert_eq!(leader(only(&term.report(3, 13, 5, 60))), 2);
}

#[test]
fn r8_unclean_election_takes_the_best_of_the_live_ones_only_if_enabled() {
    let mut t = topic(AR, &[Some(stored(1, 5, &[(1, 11)]))]);
    t.overrides = settings(&[("unclean.leader.election.enable", "true")]);
    let (mut term, effects) = Term::with(brokers(&[(2, 12), (3, 13)]), t);
    assert_eq!(
        leader(only(&effects)),
        -1,
        "first leaderless, so that the reports are of one epoch"
    );
    term.apply();
    assert!(
        term.report(2, 12, 5, 10).partition_writes.is_empty(),
        "3 is live and has not reported"
    );
    let effects = term.report(3, 13, 5, 20);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (3, LeaderEpoch(7)));
    assert_eq!(new.isr, isr(&[(3, 13)]));
    let effects = term.apply();
    assert!(said(&effects, "unclean leader election"));
    assert!(said(&effects, "broker 2 (last epoch 5, log end 10)"));
}

#[test]
fn r9_the_withdrawal_of_a_proposal_is_written() {
    let mut term = healthy();
    let effects = term.propose(term.proposal(ALL));
    assert_eq!(only(&effects).partition_epoch, PartitionEpoch(10), "the same ISR, a newer epoch");
    let effects = term.apply();
    assert_eq!(answer(&effects).unwrap().isr, isr(ALL));
}

#[test]
fn r9_r13_a_proposal_on_another_partition_epoch_is_refused() {
    let mut term = healthy();
    let old = term.proposal(&[(1, 11)]);
    term.propose(term.proposal(&[(1, 11), (2, 12)]));
    term.apply();
    assert!(matches!(refused(&term.propose(old)), Condition::InvalidUpdateVersion { .. }));
}

#[test]
fn r9_a_busy_partition_judges_the_newest_proposal_afterwards() {
    let mut term = healthy();
    let first = term.proposal(&[(1, 11), (2, 12)]);
    term.propose(first.clone());
    assert!(term.propose(first.clone()).alter_answers.is_empty(), "queued");
    let effects = term.propose(first);
    assert!(matches!(answer(&effects), Err(Condition::InvalidUpdateVersion { .. })), "superseded");
    let effects = term.finish(WriteOutcome::Applied);
    let outcomes: Vec<bool> = effects.alter_answers.iter().map(|a| a.1.is_ok()).collect();
    assert_eq!(outcomes, [true, false], "the queued one builds on an older partition epoch");
}

#[test]
fn r12_only_the_leader_of_the_present_epoch_may_propose() {
    let mut term = healthy();
    let good = term.proposal(&[(1, 11), (2, 12)]);
    let mut p = good.clone();
    p.leader_epoch = LeaderEpoch(4);
    assert!(matches!(refused(&term.propose(p)), Condition::FencedLeaderEpoch { .. }));
    let mut p = good.clone();
    p.leader_epoch = LeaderEpoch(6);
    assert!(matches!(refused(&term.propose(p)), Condition::UnknownLeaderEpoch { .. }));
    let mut p = good.clone();
    (p.leader, p.broker_epoch) = (b(2), BrokerEpoch(12));
    assert_eq!(refused(&term.propose(p)), Condition::NotLeaderOrFollower);
    let mut p = good.clone();
    p.broker_epoch = BrokerEpoch(10);
    assert!(matches!(refused(&term.propose(p)), Condition::StaleBrokerEpoch { .. }));
    let mut p = good;
    p.partition = at("nowhere", 0);
    assert_eq!(refused(&term.propose(p)), Condition::UnknownTopicOrPartition);
}

#[test]
fn r12_members_must_be_registered_under_the_epoch_they_fetched_with() {
    let (mut term, _) = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11), (2, 12)]));
    // A new member's earlier incarnation: that one alone is withdrawn.
    let effects = term.propose(term.proposal(&[(1, 11), (2, 12), (3, 10)]));
    assert_eq!(refused(&effects), Condition::IneligibleReplica(b(3)));
    let bad: [&[(i32, i64)]; 5] = [
        &[(1, 11), (2, 9)],           // a kept member's earlier incarnation
        &[(1, 11), (2, 12), (4, 14)], // not assigned
        &[(1, 11), (2, 12), (2, 12)], // twice
        &[(2, 12), (3, 13)],          // without the leader
        &[],
    ];
    for bad in bad {
        let effects = term.propose(term.proposal(bad));
        assert!(matches!(refused(&effects), Condition::InvalidUpdateVersion { .. }), "{bad:?}");
    }
    let effects = term.propose(term.proposal(&[(3, 13), (2, 12), (1, 11)]));
    assert_eq!(only(&effects).isr, isr(ALL), "in the order of the assignment");
    let effects = term.apply();
    assert!(answer(&effects).is_ok() && said(&effects, "proposal of leader 1"));
}

#[test]
fn r12_a_member_that_is_gone_is_not_admitted() {
    let two = &[(1, 11), (2, 12)];
    let (mut term, _) = Term::of(brokers(two), AR, stored(1, 5, two));
    let effects = term.propose(term.proposal(ALL));
    assert_eq!(refused(&effects), Condition::IneligibleReplica(b(3)), "it is withdrawn at once");
}

#[test]
fn r13_a_shrink_is_shown_when_it_is_written() {
    let mut term = healthy();
    term.propose(term.proposal(&[(1, 11)]));
    assert_eq!(term.state().isr.len(), 3);
    let effects = term.apply();
    assert_eq!(answer(&effects).unwrap(), *term.state());
    assert_eq!(term.state().isr, isr(&[(1, 11)]));
}

#[test]
fn r17_the_new_leader_is_in_the_isr_of_the_version_on_which_the_write_is_conditional() {
    let mut term = healthy();
    // A shrink to {1} is under way when 1 goes away: {1,2,3} is not the version that a leader may be chosen on.
    term.propose(term.proposal(&[(1, 11)]));
    assert!(term.register(brokers(&[(2, 12), (3, 13)])).partition_writes.is_empty());
    let effects = term.finish(WriteOutcome::Applied);
    let write = &effects.partition_writes[0];
    assert_eq!((write.expected, leader(&write.state)), (PartitionEpoch(10), -1));
}

#[test]
fn r29_a_proposal_for_another_incarnation_is_refused() {
    let mut term = healthy();
    let mut p = term.proposal(&[(1, 11)]);
    p.incarnation.czxid += 1;
    assert_eq!(refused(&term.propose(p)), Condition::InconsistentTopicId);
}

#[test]
fn r27_a_report_of_another_incarnation_is_ignored() {
    let mut term = last_member_lost();
    term.report(1, 21, 5, 40);
    term.report(3, 13, 5, 60);
    let report = barnabas_controller_core::ReplicaReport {
        incarnation: incarnation(99),
        leader_epoch: LeaderEpoch(6),
        last_epoch: Some(LeaderEpoch(5)),
        log_end: barnabas_types::Offset(70),
    };
    let effects = term.step(ControllerEvent::PushAcked {
        broker: b(2),
        broker_epoch: BrokerEpoch(12),
        version: 1,
        reports: vec![(at("t", 0), report)],
    });
    assert!(effects.partition_writes.is_empty());
}

#[test]
fn a_damaged_partition_is_shown_leaderless_and_never_written() {
    let outside = PartitionState { isr: isr(&[(9, 19)]), leader: None, ..stored(1, 5, ALL) };
    let t = topic(AR, &[None, Some(outside)]);
    let (mut term, effects) = Term::with(brokers(ALL), t);
    assert_eq!(effects.notes.iter().filter(|n| n.warn).count(), 2);
    for partition in [0, 1] {
        let shown = term.partition_of(&at("t", partition));
        assert_eq!((leader(&shown.state), shown.assigned_replicas.len()), (-1, 3));
    }
    assert!(term.register(brokers(&[(1, 21)])).partition_writes.is_empty());
    assert!(term.report(1, 21, 5, 5).partition_writes.is_empty());
}

#[test]
fn a_state_node_that_disappears_is_not_written_again() {
    let mut term = healthy();
    term.register(brokers(&[(2, 12), (3, 13)]));
    let effects = term.finish(WriteOutcome::Conflict { now: None });
    assert!(effects.partition_writes.is_empty() && effects.notes.iter().any(|n| n.warn));
    assert_eq!(leader(term.state()), -1);
}

#[test]
fn nothing_is_served_before_the_term_is_loaded() {
    let mut term = Term::new();
    assert!(term.register(brokers(ALL)).notes.is_empty() && !term.pushable(1, 11));
    let effects = term.step(ControllerEvent::Loaded(Snapshot::default()));
    assert!(effects.partition_writes.is_empty());
}

fn failed(term: &mut Term, id: i32, epoch: i64, sequence: u64, failed: bool) -> Effects {
    let life = term.core.image().topics[&name("t")].incarnation;
    let lives: Vec<_> = failed.then_some(life).into_iter().collect();
    term.failed(id, epoch, sequence, &lives)
}

#[test]
fn r38_a_failed_leader_is_replaced_in_one_write_and_returns_like_any_follower() {
    let mut term = healthy();
    let effects = failed(&mut term, 1, 11, 1, true);
    assert_eq!(effects.failed_answers[0].1, Ok(()));
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (2, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(2, 12), (3, 13)]));
    assert!(effects.image_changed && said(&effects, "broker 1 cannot serve its replica"));
    assert!(!term.core.image().is_online(b(1), &name("t"), 0), "shown at once");
    term.apply();
    let effects = term.propose(term.proposal(ALL));
    assert!(
        matches!(refused(&effects), Condition::InvalidUpdateVersion { reason } if reason.contains("cannot serve"))
    );

    let effects = failed(&mut term, 1, 11, 2, false);
    assert!(effects.partition_writes.is_empty(), "it has to catch up first");
    assert!(term.core.image().is_online(b(1), &name("t"), 0));
    let effects = term.propose(term.proposal(ALL));
    assert_eq!(only(&effects).isr, isr(ALL));
}

#[test]
fn r38_a_failed_follower_leaves_the_isr_and_the_leader_stays() {
    let mut term = healthy();
    let effects = failed(&mut term, 3, 13, 1, true);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (1, LeaderEpoch(5)));
    assert_eq!(new.isr, isr(&[(1, 11), (2, 12)]));
    term.apply();
    assert_eq!(failed(&mut term, 3, 13, 1, true).partition_writes.len(), 0, "told twice");
}

#[test]
fn r38_the_sole_member_that_fails_leaves_no_leader_and_leads_again_when_it_can() {
    let (mut term, _) = Term::of(brokers(ALL), AR, stored(1, 5, &[(1, 11)]));
    let effects = failed(&mut term, 1, 11, 1, true);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (-1, LeaderEpoch(6)));
    assert_eq!(new.isr, isr(&[(1, 11)]), "R5: kept");
    term.apply();
    // R8 looks at all of AR: the replica that cannot be read may hold the longest log.
    assert!(term.report(2, 12, 5, 90).partition_writes.is_empty());
    assert!(term.report(3, 13, 5, 99).partition_writes.is_empty());

    let version = term.core.version();
    let effects = failed(&mut term, 1, 11, 2, false);
    let new = only(&effects);
    assert_eq!((leader(new), new.leader_epoch), (1, LeaderEpoch(7)));
    let (_, push) = term.core.push_for(b(1), BrokerEpoch(11), Some(version)).unwrap();
    assert_eq!(push.topics[&name("t")].partitions.len(), 1, "pushed again: it was not taken over");
}

#[test]
fn r38_a_failed_replica_is_passed_over_by_every_way_to_a_leader() {
    // Not the next in line: neither when the leader goes nor by an unclean election.
    let mut term = healthy();
    failed(&mut term, 2, 12, 1, true);
    term.apply();
    let effects = term.register(brokers(&[(2, 12), (3, 13)]));
    assert_eq!(leader(only(&effects)), 3);

    let mut t = topic(AR, &[Some(stored(1, 5, &[(1, 11)]))]);
    t.overrides = settings(&[("unclean.leader.election.enable", "true")]);
    let (mut term, _) = Term::with(brokers(ALL), t);
    failed(&mut term, 1, 11, 1, true);
    term.apply();
    assert!(term.report(2, 12, 5, 99).partition_writes.is_empty(), "3 has not reported");
    failed(&mut term, 2, 12, 1, true);
    let new = only(&term.report(3, 13, 5, 90)).clone();
    assert_eq!(
        leader(&new),
        3,
        "all that can serve have reported; the longest log cannot be served"
    );
}

#[test]
fn r38_a_member_that_lost_its_tail_does_not_lead_when_it_can_serve_again() {
    let lost_1 = || {
        let mut registered = brokers(ALL);
        registered.insert(b(1), lost(21));
        registered
    };
    let (mut term, _) = Term::of(lost_1(), AR, stored(1, 5, &[(1, 11)]));
    term.apply();
    assert_eq!(leader(term.state()), -1, "R6");
    failed(&mut term, 1, 21, 1, true);
    let effects = failed(&mut term, 1, 21, 2, false);
    assert!(effects.partition_writes.is_empty(), "it waits for R8");
    term.report(2, 12, 5, 10);
    term.report(3, 13, 5, 10);
    assert_eq!(leader(only(&term.report(1, 21, 5, 9))), 2);
}

#[test]
fn r38_reports_of_another_life_or_registration_are_not_believed() {
    let mut term = healthy();
    let stale = failed(&mut term, 1, 10, 1, true);
    assert!(matches!(stale.failed_answers[0].1, Err(Condition::StaleBrokerEpoch { .. })));
    let unregistered = failed(&mut term, 4, 14, 1, true);
    assert!(matches!(unregistered.failed_answers[0].1, Err(Condition::StaleBrokerEpoch { .. })));
    let other_life = term.failed(1, 11, 1, &[incarnation(99)]);
    assert_eq!(other_life.failed_answers[0].1, Ok(()));
    assert!(other_life.partition_writes.is_empty() && !other_life.image_changed);

    failed(&mut term, 1, 11, 5, true);
    term.apply();
    let late = failed(&mut term, 1, 11, 4, false);
    assert!(matches!(late.failed_answers[0].1, Err(Condition::InvalidRequest(_))));
    assert!(!term.core.image().is_online(b(1), &name("t"), 0));

    // A new registration can serve everything until it says otherwise, whatever its sequence.
    let effects = term.register(brokers(&[(1, 21), (2, 12), (3, 13)]));
    assert!(effects.image_changed);
    assert!(term.core.image().is_online(b(1), &name("t"), 0));
    assert_eq!(failed(&mut term, 1, 21, 1, true).failed_answers[0].1, Ok(()));
    assert!(!term.core.image().is_online(b(1), &name("t"), 0));
}

#[test]
fn r38_the_list_of_failed_replicas_is_pushed_when_it_changes() {
    let mut term = healthy();
    let version = term.core.version();
    failed(&mut term, 3, 13, 1, true);
    let (newer, push) = term.core.push_for(b(2), BrokerEpoch(12), Some(version)).unwrap();
    assert_eq!(push.failed.unwrap()[&b(3)].len(), 1);
    term.apply();
    let (_, push) = term.core.push_for(b(2), BrokerEpoch(12), Some(newer)).unwrap();
    assert_eq!(push.failed, None, "only the partition changed");
    let (_, push) = term.core.push_for(b(2), BrokerEpoch(12), None).unwrap();
    assert_eq!(push.failed.unwrap().len(), 1);
}
