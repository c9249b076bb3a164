//! Whole scenarios from the public record of what broke elsewhere, and the model's counterexamples.

use super::world::World;
use super::*;

#[test]
fn kip101_c1_a_restarted_follower_keeps_what_it_has_although_its_hw_lags() {
    let mut world = World::new(&[1, 2], 1);
    let first = world.produce(1, Acks::All);
    world.fetch(2);
    let second = world.produce(1, Acks::All);
    world.fetch(2);
    let request = world.request(2).unwrap();
    world.serve(request.0, request.1, 0); // the leader learns that 2 has both, its answer is lost
    assert!(world.is_acked(first) && world.is_acked(second));
    assert!(world.high_watermark(2) < 2, "2 does not know that the second is committed");
    world.restart(2, 0);
    world.elect(Some(2), &[2]);
    world.settle();
    world.assert_equal_logs();
    assert_eq!(world.values(1), [first, second]);
}

#[test]
fn kip279_c2_double_failovers_with_unreplicated_records_end_in_equal_logs() {
    // How many unreplicated records each of five leaders writes; 3 sleeps until the end.
    for pattern in 0..3_u32.pow(5) {
        let mut world = World::new(&[1, 2, 3], 1);
        for turn in 0..5 {
            let leader = 1 + i32::try_from(turn % 2).unwrap();
            if turn > 0 {
                // The one before is cut off: it neither hears of the election nor fetches.
                world.elect(Some(leader), &[1, 2, 3]);
                world.push(leader);
            }
            for _ in 0..pattern / 3_u32.pow(turn) % 3 {
                world.produce(leader, Acks::Leader);
            }
        }
        world.settle();
        world.assert_equal_logs();
    }
}

#[test]
fn kip279_an_epoch_without_records_does_not_hide_an_older_one_that_won() {
    let mut world = World::new(&[1, 2, 3], 1);
    world.elect(Some(2), &[1, 2, 3]);
    world.push(2);
    world.push(3);
    let kept = world.produce(2, Acks::Leader); // epoch 2, fetched by 3 only
    world.fetch(3);
    world.elect(Some(1), &[1, 2, 3]);
    world.push(1); // leads in epoch 3 without a record
    world.elect(Some(3), &[1, 2, 3]);
    world.settle();
    world.assert_equal_logs();
    assert_eq!(world.values(1), [kept]);
}

#[test]
fn c3_a_missed_epoch_of_the_same_leader_is_reconciled() {
    let mut world = World::new(&[1, 2, 3], 1);
    let first = world.produce(1, Acks::Leader);
    world.fetch(2); // 2 has what 3 will never see
    world.elect(Some(3), &[1, 2, 3]);
    world.push(3);
    let won = world.produce(3, Acks::Leader);
    world.push(1);
    world.fetch(1);
    world.fetch(1);
    world.elect(Some(1), &[1, 2, 3]); // 2 knows nothing of epoch 2
    world.settle();
    world.assert_equal_logs();
    assert_eq!(world.values(2), [won]);
    assert_ne!(first, won);
}

#[test]
fn b2_a_new_leaders_follower_joins_only_at_the_epochs_start() {
    let mut world = World::new(&[1, 2], 2);
    let acked = world.produce(1, Acks::All);
    world.fetch(2);
    let request = world.request(2).unwrap();
    world.serve(request.0, request.1, 0);
    assert!(world.is_acked(acked));
    world.elect(Some(2), &[2]);
    for id in 1..=3 {
        world.push(id);
    }
    assert_eq!(world.high_watermark(2), 0, "frozen below min.insync");
    let request = world.request(3).unwrap();
    world.serve(request.0, request.1, 0);
    assert!(world.proposals.is_empty(), "3 is at the HW, but lacks the acked record");
    world.fetch(3);
    world.fetch(3);
    assert_eq!(world.proposals.len(), 1);
}

#[test]
fn g1_r30_a_dead_incarnations_late_request_acknowledges_nothing() {
    let mut world = World::new(&[1, 2], 2);
    let record = world.produce(1, Acks::All);
    world.fetch(2);
    let (leader, late) = world.request(2).unwrap(); // "LEO 1", still in the leader's socket
    world.lose_tail(2, 0);
    world.push(2);
    let (_, fresh) = world.request(2).unwrap();
    world.serve(leader, fresh, 0);
    world.serve(leader, late, 0);
    assert_eq!(world.high_watermark(1), 0);
    assert!(!world.is_acked(record));
}

#[test]
fn g8_r31_a_late_truncation_answer_cuts_nothing_that_was_counted() {
    let mut world = World::new(&[1, 2], 1);
    world.produce(1, Acks::Leader); // only at 1
    world.elect(Some(2), &[2]);
    world.push(1);
    world.push(2);
    let record = world.produce(2, Acks::Leader);
    let (leader, fetch) = world.request(1).unwrap();
    let first = world.serve(leader, fetch, 0);
    let second = world.serve(leader, fetch, 0); // pipelined or re-sent: the same answer twice
    world.deliver(first);
    assert_eq!(world.values(1), []);
    world.fetch(1); // again LEO 1 and the same leader epoch, but another last epoch
    world.fetch(1);
    assert_eq!(world.proposals.len(), 1, "1 joins: it counts");
    world.deliver(second);
    assert_eq!(world.values(1), [record]);
}

#[test]
fn f4_r9_a_refused_proposal_that_is_applied_later_loses_nothing() {
    let mut world = World::new(&[1], 1);
    world.fetch(2);
    let proposal = world.proposals.pop().unwrap();
    let reason = "broker epoch is not registered";
    let refused = ProposalOutcome::Refused(Condition::InvalidUpdateVersion { reason });
    world.answer_proposal(1, refused);
    let record = world.produce(1, Acks::All);
    assert!(!world.is_acked(record), "an earlier attempt may still be applied");
    assert!(world.admit(&proposal), "and it is");
    world.elect(Some(2), &[2]);
    world.settle();
    world.assert_equal_logs();
    assert_eq!(world.values(2), [], "2 leads without the record that nobody was promised");
}

#[test]
fn f4_r9_after_a_withdrawal_the_earlier_attempt_cannot_be_applied() {
    let mut world = World::new(&[1], 1);
    world.fetch(2);
    let proposal = world.proposals.pop().unwrap();
    world.answer_proposal(1, ProposalOutcome::Unknown);
    let record = world.produce(1, Acks::All);
    for _ in 0..6 {
        world.tick(LAG_MS / 4);
        if world.proposals.last().is_none_or(|p| p.isr.len() > 1) {
            world.answer_proposal(1, ProposalOutcome::Unknown);
        }
    }
    let withdrawal = world.proposals.pop().unwrap();
    assert_eq!(withdrawal.isr, [(BrokerId(1), broker_epoch(1))]);
    assert!(world.admit(&withdrawal));
    world.push(1);
    assert!(world.is_acked(record));
    assert!(!world.admit(&proposal));
}

#[test]
fn e5_an_isolated_leader_acknowledges_nothing_at_acks_all() {
    let mut world = World::new(&[1, 2, 3], 1);
    world.elect(Some(2), &[2, 3]);
    world.push(2);
    world.push(3);
    let lost = world.produce(1, Acks::All);
    for _ in 0..20 {
        world.tick(LAG_MS / 4); // proposes to shrink, nobody answers
    }
    let won = world.produce(2, Acks::All);
    world.fetch(3);
    world.fetch(3);
    assert!(!world.is_acked(lost) && world.is_acked(won));
    world.settle();
    assert_eq!(world.produced[&lost], Some(Err(Condition::NotLeaderOrFollower)));
    world.assert_equal_logs();
    assert_eq!(world.values(1), [won]);
}

#[test]
fn r4_late_pushes_in_any_order_do_not_bring_an_old_leader_back() {
    let mut world = World::new(&[1, 2, 3], 1);
    let old = world.state_for(1);
    world.elect(None, &[1, 2, 3]);
    let leaderless = world.state_for(1);
    world.elect(Some(2), &[1, 2, 3]);
    world.push(1);
    for late in [leaderless, old] {
        world.deliver_push(1, late);
    }
    let role = Role::Follower { leader: BrokerId(2), leader_epoch: LeaderEpoch(3) };
    assert_eq!(world.brokers[&1].replica.role(), role);
}
