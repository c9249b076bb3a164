//! KIP-98: batches that are in the log already are answered as new ones are, and never appended.

use super::*;

fn again(rig: &mut Rig, waiter: u64, acks: Acks, base: i64, end: i64) -> Effects {
    let waiter = WaiterId(waiter);
    let effects =
        rig.step(Event::ProduceAgain { waiter, acks, base: Offset(base), end: Offset(end) });
    assert_eq!(effects.append, None, "it is in the log");
    effects
}

#[test]
fn acks_1_is_answered_at_once_with_the_offsets_of_the_first_time() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::Leader);
    rig.produce(2, Acks::Leader);
    assert_eq!(answers(&again(&mut rig, 3, Acks::Leader, 0, 1)), [(3, Ok(0))]);
    assert_eq!((rig.replica.log_end(), rig.replica.waiters()), (Offset(2), 0));
}

#[test]
fn acks_1_waits_for_the_flush_in_sync_mode() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 1, FlushMode::Sync);
    rig.produce(1, Acks::Leader);
    assert_eq!(answers(&again(&mut rig, 2, Acks::Leader, 0, 1)), []);
    let flushed = rig.step(Event::Flushed { to: Offset(1) });
    assert_eq!(answers(&flushed), [(1, Ok(0)), (2, Ok(0))]);
}

#[test]
fn r11_acks_all_is_answered_below_the_high_watermark_and_waits_above_it() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.fetch(2, 1);
    assert_eq!(rig.high_watermark(), 1);
    assert_eq!(answers(&again(&mut rig, 2, Acks::All, 0, 1)), [(2, Ok(0))]);
    rig.produce(3, Acks::All);
    rig.produce(4, Acks::All);
    assert_eq!(answers(&again(&mut rig, 5, Acks::All, 1, 2)), []);
    assert_eq!(rig.replica.waiters(), 3);
    assert_eq!(answers(&rig.fetch(2, 2)), [(3, Ok(1)), (5, Ok(1))], "in its place by its end");
    assert_eq!(answers(&rig.fetch(2, 3)), [(4, Ok(2))]);
}

#[test]
fn r11_a_new_leader_answers_records_of_earlier_epochs_once_its_epoch_is_committed() {
    let mut rig = Rig::leader_with(log(5, &[(1, 0)]), &[1, 2], 1, FlushMode::Async);
    assert_eq!((rig.epoch(), rig.high_watermark()), (LeaderEpoch(2), 0));
    assert_eq!(answers(&again(&mut rig, 1, Acks::All, 3, 5)), []);
    assert_eq!(answers(&rig.fetch(2, 4)), [], "the follower lacks a part of it");
    assert_eq!(answers(&rig.fetch(2, 5)), [(1, Ok(3))]);
}

#[test]
fn r11_a_change_of_epoch_ends_the_wait_without_success() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::Leader);
    assert_eq!(answers(&again(&mut rig, 2, Acks::All, 0, 1)), []);
    let effects = rig.state(push(1, 2, 2, &[1, 2]));
    assert_eq!(answers(&effects), [(2, Err(Condition::NotLeaderOrFollower))]);
    assert_eq!(answers(&again(&mut rig, 3, Acks::All, 0, 1)), []);
    let effects = rig.state(push(2, 3, 3, &[1, 2]));
    assert_eq!(answers(&effects), [(3, Err(Condition::NotLeaderOrFollower))]);
    let effects = again(&mut rig, 4, Acks::Leader, 0, 1);
    assert_eq!(answers(&effects), [(4, Err(Condition::NotLeaderOrFollower))], "it follows now");
}

#[test]
fn r10_under_min_insync_acks_all_is_refused_also_for_what_is_in_the_log() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 2, FlushMode::Async);
    rig.produce(1, Acks::Leader);
    assert_eq!(answers(&again(&mut rig, 2, Acks::All, 0, 1)), []);
    let effects = rig.isr(&[1]);
    assert_eq!(answers(&effects), [(2, Err(Condition::NotEnoughReplicasAfterAppend))]);
    let few = Condition::NotEnoughReplicas { isr: 1, min: 2 };
    assert_eq!(answers(&again(&mut rig, 3, Acks::All, 0, 1)), [(3, Err(few))]);
    assert_eq!(answers(&again(&mut rig, 4, Acks::Leader, 0, 1)), [(4, Ok(0))]);
}

#[test]
fn a_timeout_ends_the_wait_once() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::Leader);
    again(&mut rig, 2, Acks::All, 0, 1);
    let timed_out = Event::WaiterTimedOut { waiter: WaiterId(2) };
    let effects = rig.step(timed_out.clone());
    assert_eq!(answers(&effects), [(2, Err(Condition::RequestTimedOut))]);
    assert_eq!(rig.step(timed_out), Effects::default());
    assert_eq!(answers(&rig.fetch(2, 1)), []);
}

#[test]
fn a_fenced_replica_answers_nothing_as_written() {
    let mut rig = Rig::leader(&[1]);
    rig.produce(1, Acks::Leader);
    rig.step(Event::AppendFailed { waiter: None });
    let effects = again(&mut rig, 2, Acks::Leader, 0, 1);
    assert_eq!(answers(&effects), [(2, Err(Condition::KafkaStorageError))]);
}
