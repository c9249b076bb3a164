//! R9, R12, R13, R34, B7: how the ISR is proposed to grow and shrink, and what counts meanwhile.

use super::*;

pub(super) fn refuse(rig: &mut Rig) -> Effects {
    let reason = Condition::InvalidUpdateVersion { reason: "not registered" };
    rig.step(Event::ProposalAnswered(ProposalOutcome::Refused(reason)))
}

pub(super) fn ineligible(rig: &mut Rig, id: i32) -> Effects {
    let reason = Condition::IneligibleReplica(BrokerId(id));
    rig.step(Event::ProposalAnswered(ProposalOutcome::Refused(reason)))
}

/// The controller writes what was proposed, as the next state of this leader epoch.
pub(super) fn accept(rig: &mut Rig, isr: &[i32]) -> Effects {
    let epoch = rig.replica.partition_epoch().unwrap().0 + 1;
    rig.step(Event::ProposalAnswered(accepted(push(1, rig.epoch().0, epoch, isr))))
}

#[test]
fn r12_a_follower_at_the_high_watermark_and_epoch_start_is_proposed_at_once() {
    let mut rig = Rig::leader_with(log(4, &[(1, 0)]), &[1], 1, FlushMode::Async);
    rig.produce(1, Acks::Leader);
    assert_eq!(proposed(&rig.fetch(2, 4)), None, "below the HW");
    let effects = rig.fetch(2, 5);
    let proposal = effects.propose.unwrap();
    assert_eq!(proposal.isr, [(BrokerId(1), broker_epoch(1)), (BrokerId(2), broker_epoch(2))]);
    assert_eq!(
        (proposal.leader_epoch, proposal.partition_epoch, proposal.incarnation),
        (LeaderEpoch(2), PartitionEpoch(1), LIFE)
    );
}

#[test]
fn r12_reaching_a_frozen_high_watermark_is_not_enough_below_the_epoch_start() {
    let mut rig = Rig::leader_with(log(4, &[(1, 0)]), &[1], 2, FlushMode::Async);
    assert_eq!(rig.high_watermark(), 0);
    assert_eq!(proposed(&rig.fetch(2, 3)), None);
    assert_eq!(proposed(&rig.fetch(2, 4)), Some(vec![1, 2]));
}

#[test]
fn r12_in_sync_mode_the_flushed_position_must_have_reached_it() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 1, FlushMode::Sync);
    rig.produce(1, Acks::Leader);
    rig.step(Event::Flushed { to: Offset(1) });
    let unflushed = FetchPosition { flushed: Offset(0), ..rig.at(2, 1) };
    assert_eq!(proposed(&rig.fetch_at(2, unflushed)), None);
    assert_eq!(proposed(&rig.fetch(2, 1)), Some(vec![1, 2]));
}

#[test]
fn r12_the_proposal_carries_the_broker_epoch_that_fetched() {
    let mut rig = Rig::leader(&[1]);
    let position = FetchPosition { broker_epoch: BrokerEpoch(302), ..rig.at(2, 0) };
    let proposal = rig.fetch_at(2, position).propose.unwrap();
    assert_eq!(proposal.isr[1], (BrokerId(2), BrokerEpoch(302)));
}

#[test]
fn r12_a_restarted_member_is_not_confirmed_under_its_new_broker_epoch() {
    let mut rig = Rig::leader(&[1, 2]);
    let restarted = FetchPosition { broker_epoch: BrokerEpoch(202), ..rig.at(2, 0) };
    rig.fetch_at(2, restarted);
    let proposal = rig.fetch(3, 0).propose.unwrap();
    assert_eq!(proposal.isr[1], (BrokerId(2), broker_epoch(2)), "as it was admitted");
}

#[test]
fn r34_a_follower_with_an_older_log_start_is_not_proposed() {
    let mut state = log(6, &[(1, 0)]);
    state.log_start = Offset(3);
    let mut rig = Rig::leader_with(state, &[1], 1, FlushMode::Async);
    assert_eq!(proposed(&rig.fetch(2, 6)), None);
    let caught_up = FetchPosition { log_start: Offset(3), ..rig.at(2, 6) };
    assert_eq!(proposed(&rig.fetch_at(2, caught_up)), Some(vec![1, 2]));
}

#[test]
fn r9_a_proposed_member_counts_before_it_is_admitted() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    assert_eq!(rig.replica.maximal_isr(), [BrokerId(1), BrokerId(2)]);
    assert_eq!(answers(&rig.produce(1, Acks::All)), [], "waits for 2 as well");
    assert_eq!(answers(&rig.fetch(2, 1)), [(1, Ok(0))]);
}

#[test]
fn r9_neither_refusal_nor_silence_nor_an_old_state_empties_the_maximal_isr() {
    for outcome in [
        ProposalOutcome::Refused(Condition::NotController),
        ProposalOutcome::Unknown,
        accepted(push(1, 1, 1, &[1])),
    ] {
        let mut rig = Rig::leader(&[1]);
        rig.fetch(2, 0);
        rig.step(Event::ProposalAnswered(outcome));
        assert_eq!(answers(&rig.produce(1, Acks::All)), []);
        assert_eq!(rig.replica.maximal_isr().len(), 2);
        assert_eq!(answers(&rig.isr(&[1])), [(1, Ok(0))], "a newer partition epoch does");
    }
}

#[test]
fn r9_at_most_one_proposal_is_open() {
    let mut rig = Rig::leader(&[1]);
    assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]));
    assert_eq!(proposed(&rig.fetch(3, 0)), None);
    assert_eq!(rig.pass_ms(3 * LAG_MS).propose, None);
    rig.step(Event::ProposalAnswered(accepted(push(1, 1, 1, &[1]))));
    assert_eq!(proposed(&rig.fetch(3, 0)), None, "its state is on the way");
    assert_eq!(proposed(&rig.isr(&[1, 2])), Some(vec![1, 2, 3]));
    assert_eq!(proposed(&rig.fetch(3, 0)), None);
}

#[test]
fn r9_a_refused_proposal_is_made_again_after_a_pause() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    refuse(&mut rig);
    assert_eq!(proposed(&rig.step(Event::Tick)), None);
    assert_eq!(proposed(&rig.fetch(2, 0)), None);
    rig.now += 100;
    assert_eq!(proposed(&rig.step(Event::Tick)), Some(vec![1, 2]));
    refuse(&mut rig);
    rig.now += 100;
    assert_eq!(proposed(&rig.fetch(2, 0)), None, "the pause grows");
    rig.now += 100;
    assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]));
}

#[test]
fn r9_a_refused_member_that_stopped_is_withdrawn_by_proposing_the_committed_isr() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    refuse(&mut rig);
    rig.produce(1, Acks::All);
    let mut last = None;
    for _ in 0..6 {
        last = proposed(&rig.pass_ms(LAG_MS / 4)).or(last);
        if rig.replica.maximal_isr().len() == 2 {
            refuse(&mut rig);
        }
    }
    assert_eq!(last, Some(vec![1]));
    assert_eq!(rig.high_watermark(), 0, "the wish alone withdraws nothing");
    assert_eq!(answers(&rig.isr(&[1])), [(1, Ok(0))]);
}

#[test]
fn r9_an_accepted_proposal_whose_state_never_comes_is_made_again() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    rig.step(Event::ProposalAnswered(accepted(push(1, 1, 1, &[1]))));
    assert_eq!(proposed(&rig.pass_ms(2 * LAG_MS)), Some(vec![1, 2]));
}

#[test]
fn r9_answers_of_settled_proposals_are_ignored() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    rig.isr(&[1, 2]);
    assert_eq!(refuse(&mut rig), Effects::default());
    assert_eq!(proposed(&rig.fetch(3, 0)), Some(vec![1, 2, 3]), "without a pause");
}

#[test]
fn r13_a_shrink_counts_only_when_confirmed() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.fetch(2, 0);
    rig.produce(1, Acks::All);
    let effects = rig.pass_ms(LAG_MS + LAG_MS / 4);
    assert_eq!((proposed(&effects), answers(&effects)), (Some(vec![1]), vec![]));
    assert_eq!(rig.high_watermark(), 0);
    let effects = rig.step(Event::ProposalAnswered(accepted(push(1, 1, 2, &[1]))));
    assert_eq!(answers(&effects), [(1, Ok(0))], "the answer brings the state");
    assert_eq!(rig.isr(&[1]).answers, []);
}

#[test]
fn r37_an_accepted_proposal_changes_neither_settings_nor_assignment() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 1, FlushMode::Sync);
    rig.fetch(2, 0);
    let mut answer = push(1, 1, 2, &[1, 2]);
    answer.partition.assigned_replicas.clear();
    rig.step(Event::ProposalAnswered(accepted(answer)));
    assert_eq!(rig.replica.partition_epoch(), Some(PartitionEpoch(2)));
    assert_eq!(rig.replica.flush_mode(), FlushMode::Sync);
    assert_eq!(rig.replica.isr().len(), 2);
    assert_eq!(rig.replica.follower_positions().len(), 2);
}

#[test]
fn r4_an_accepted_proposal_of_another_incarnation_of_this_broker_is_refused() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    rig.step(Event::Registered { broker_epoch: BrokerEpoch(201) });
    rig.step(Event::ProposalAnswered(accepted(push(1, 1, 2, &[1, 2]))));
    assert_eq!(rig.replica.partition_epoch(), Some(PartitionEpoch(1)));
}

#[test]
fn a_member_that_never_fetches_leaves_after_the_lag_time() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    rig.fetch(3, 0);
    assert_eq!(rig.pass_ms(LAG_MS).propose, None);
    assert_eq!(proposed(&rig.pass_ms(LAG_MS / 4)), Some(vec![1, 3]));
}

#[test]
fn a_member_that_fetches_but_stays_behind_leaves() {
    let mut rig = Rig::leader(&[1, 2]);
    let mut last = None;
    for n in 0..8 {
        for record in 0..5 {
            rig.produce(n * 5 + record, Acks::Leader);
        }
        rig.fetch(2, n as i64);
        last = proposed(&rig.pass_ms(LAG_MS / 4)).or(last);
    }
    assert_eq!(last, Some(vec![1]));
}

#[test]
fn a_member_that_is_one_fetch_behind_stays() {
    let mut rig = Rig::leader(&[1, 2]);
    for n in 0..20 {
        rig.produce(n, Acks::Leader);
        assert_eq!(rig.fetch(2, n as i64).propose, None);
        assert_eq!(rig.pass_ms(LAG_MS / 4).propose, None, "it has what was there one fetch ago");
    }
}

#[test]
fn b7_an_idle_partition_never_flaps() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.fetch(2, 0);
    assert_eq!(rig.pass_ms(10 * LAG_MS).propose, None);
    rig.produce(1, Acks::Leader);
    assert_eq!(rig.step(Event::Tick).propose, None, "it was in sync until this append");
    assert_eq!(proposed(&rig.pass_ms(LAG_MS + LAG_MS / 4)), Some(vec![1]));
}

#[test]
fn b7_a_stall_of_the_leader_is_no_lag_of_its_followers() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.fetch(2, 0);
    rig.produce(1, Acks::Leader);
    rig.now += LAG_MS * 3 / 2;
    assert_eq!(rig.step(Event::Tick).propose, None);
    assert_eq!(rig.pass_ms(LAG_MS).propose, None);
    assert_eq!(proposed(&rig.pass_ms(LAG_MS / 4)), Some(vec![1]), "judged later");
}

#[test]
fn a_member_gets_the_whole_lag_time_from_its_admission_on() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 2, FlushMode::Async);
    rig.produce(1, Acks::Leader);
    rig.pass_ms(3 * LAG_MS);
    assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]), "HW 0 is frozen below min.insync");
    assert_eq!(rig.pass_ms(LAG_MS * 3 / 4).propose, None);
    rig.isr(&[1, 2]);
    assert_eq!(rig.pass_ms(LAG_MS).propose, None);
}

#[test]
fn r20_a_follower_that_left_the_assignment_is_forgotten() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.fetch(3, 1);
    let mut without_3 = push(1, 1, 3, &[1, 2]);
    without_3.partition.assigned_replicas.pop();
    rig.state(without_3);
    assert_eq!(refused(&rig.fetch(3, 1)), Some(Condition::NotAssignedReplica(BrokerId(3))));
    rig.isr(&[1, 2]);
    assert_eq!(rig.replica.follower_positions()[1].position, None);
}

#[test]
fn r12_a_follower_that_caught_up_during_another_proposal_is_proposed_when_that_is_settled() {
    let mut rig = Rig::leader(&[1]);
    assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]));
    assert_eq!(proposed(&rig.fetch(3, 0)), None, "one proposal at a time");
    // Broker 3's next fetch is parked: nothing reminds of it but the end of the open proposal.
    assert_eq!(proposed(&rig.isr(&[1, 2])), Some(vec![1, 2, 3]));
}

#[test]
fn r12_a_deferred_join_survives_a_refusal_of_the_open_proposal() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    rig.fetch(3, 0);
    refuse(&mut rig);
    assert_eq!(proposed(&rig.pass_ms(LAG_MS / 4)), Some(vec![1, 2]), "the refused one again");
    assert_eq!(proposed(&rig.isr(&[1, 2])), Some(vec![1, 2, 3]));
}

#[test]
fn r9_an_earlier_attempt_that_lands_without_a_proposed_follower_proposes_it_again() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    refuse(&mut rig);
    rig.now += 1_000;
    assert_eq!(proposed(&rig.fetch(3, 0)), Some(vec![1, 2, 3]));
    // The refused attempt {1, 2} is applied after all.
    assert_eq!(proposed(&rig.isr(&[1, 2])), Some(vec![1, 2, 3]));
}

#[test]
fn r26_a_draining_follower_is_not_proposed_until_it_drains_no_more() {
    let mut rig = Rig::leader(&[1]);
    let draining =
        |ids: &[i32]| Event::Draining { brokers: ids.iter().copied().map(BrokerId).collect() };
    rig.step(draining(&[2]));
    assert_eq!(proposed(&rig.fetch(2, 0)), None);
    assert_eq!(rig.pass_ms(3 * LAG_MS).propose, None, "nor later");
    assert_eq!(rig.replica.maximal_isr(), [BrokerId(1)], "nobody waits for it");
    assert_eq!(proposed(&rig.fetch(3, 0)), Some(vec![1, 3]), "others are");
    rig.isr(&[1, 3]);
    assert_eq!(
        proposed(&rig.step(draining(&[]))),
        Some(vec![1, 3, 2]).map(|mut v| {
            v.sort();
            v
        })
    );
}

#[test]
fn r26_a_proposal_that_was_refused_because_of_a_drain_is_withdrawn() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    assert_eq!(proposed(&ineligible(&mut rig, 2)), Some(vec![1]));
    rig.step(Event::Draining { brokers: vec![BrokerId(2)] });
    assert_eq!(rig.replica.maximal_isr().len(), 2, "an attempt may still be applied (R9)");
    refuse(&mut rig);
    rig.now += 1_000;
    assert_eq!(proposed(&rig.step(Event::Tick)), Some(vec![1]));
    rig.isr(&[1]);
    assert_eq!(rig.replica.maximal_isr(), [BrokerId(1)]);
    assert_eq!(rig.pass_ms(3 * LAG_MS).propose, None, "and not made again");
}

#[test]
fn r39_a_replica_that_leads_without_having_been_a_member_says_so() {
    let led = |members: &[i32]| {
        let mut rig = Rig::new(log(7, &[(1, 0)]));
        rig.state(push(-1, 2, 2, members));
        rig.state(push(1, 3, 3, &[1])).led_uncleanly
    };
    assert_eq!(led(&[2]), Some(Offset(7)));
    assert_eq!(led(&[1]), None);
}

#[test]
fn r39_what_may_be_lost_begins_at_the_high_watermark_if_somebody_may_have_led_over_another_tail() {
    let led = |epochs: &[(i32, i64)], leaderless: i32| {
        let mut rig = Rig::new(LogState { high_watermark: Offset(4), ..log(7, epochs) });
        rig.state(push(-1, leaderless, 9, &[2]));
        rig.state(push(1, leaderless + 1, 10, &[1])).led_uncleanly
    };
    assert_eq!(led(&[(0, 0), (2, 6)], 3), Some(Offset(7)), "nobody led later than in epoch 2");
    assert_eq!(led(&[(0, 0), (2, 6)], 4), Some(Offset(4)), "in epoch 3 another one may have led");
    assert_eq!(led(&[(0, 0)], 2), Some(Offset(4)), "the tail may be one that was cut elsewhere");
    assert_eq!(led(&[], 2), Some(Offset(4)), "without epochs nothing is known of the tail");
}
