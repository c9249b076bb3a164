//! R10, R11, B4: when producers are answered, each exactly once.

use super::*;

#[test]
fn acks_1_is_answered_when_written_and_acks_0_never() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), [(1, Ok(0))]);
    assert_eq!(answers(&rig.produce(2, Acks::None)), []);
    assert_eq!((rig.replica.log_end(), rig.replica.waiters()), (Offset(2), 0));
}

#[test]
fn acks_1_waits_for_the_flush_in_sync_mode() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 1, FlushMode::Sync);
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), []);
    assert_eq!(answers(&rig.produce(2, Acks::Leader)), []);
    assert_eq!(answers(&rig.step(Event::Flushed { to: Offset(1) })), [(1, Ok(0))]);
    let to_async = rig.state(push(1, 1, 1, &[1]));
    assert_eq!(answers(&to_async), [(2, Ok(1))], "the mode in force decides");
}

#[test]
fn r11_acks_all_is_answered_below_the_high_watermark() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    assert_eq!(answers(&rig.produce(1, Acks::All)), []);
    assert_eq!(answers(&rig.produce(2, Acks::All)), []);
    assert_eq!(rig.replica.waiters(), 2);
    assert_eq!(answers(&rig.fetch(2, 2)), []);
    let effects = rig.fetch(3, 1);
    assert_eq!((answers(&effects), effects.high_watermark), (vec![(1, Ok(0))], Some(Offset(1))));
    let Some(FetchReply::Grant(grant)) = effects.fetch_reply else { panic!("{effects:?}") };
    assert_eq!((grant.from, grant.to, grant.high_watermark), (Offset(1), Offset(2), Offset(1)));
    assert_eq!(answers(&rig.fetch(3, 2)), [(2, Ok(1))]);
}

#[test]
fn r11_a_new_epoch_ends_every_waiter_even_if_the_leader_stays() {
    for next in [push(1, 2, 2, &[1, 2]), push(2, 2, 2, &[1, 2]), push(-1, 2, 2, &[1, 2])] {
        let mut rig = Rig::leader(&[1, 2]);
        rig.produce(1, Acks::All);
        rig.produce(2, Acks::All);
        rig.order(3, Acks::Leader, 1);
        let not_leader = |w| (w, Err(Condition::NotLeaderOrFollower));
        let effects = rig.state(next);
        assert_eq!(answers(&effects), [not_leader(1), not_leader(2), not_leader(3)]);
        assert_eq!(rig.replica.waiters(), 0);
        for waiter in 1..=3 {
            let late = rig.step(Event::WaiterTimedOut { waiter: WaiterId(waiter) });
            assert_eq!(late, Effects::default(), "answered exactly once");
        }
    }
}

#[test]
fn r11_a_late_append_of_an_older_epoch_moves_the_leo_only() {
    let mut rig = Rig::leader(&[1]);
    rig.order(1, Acks::All, 2);
    rig.state(push(1, 2, 2, &[1]));
    let effects = rig.step(Event::Appended {
        waiter: Some(WaiterId(1)),
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(2),
    });
    assert_eq!(answers(&effects), []);
    assert_eq!((rig.replica.log_end(), rig.high_watermark()), (Offset(2), 2));
}

#[test]
fn a_completion_that_was_not_ordered_changes_nothing() {
    let mut rig = Rig::leader(&[1]);
    rig.order(1, Acks::Leader, 2);
    let before = rig.replica.clone();
    for (waiter, epoch, end) in [(9, 1, 2), (1, 2, 2), (1, 1, 3)] {
        let effects = rig.step(Event::Appended {
            waiter: Some(WaiterId(waiter)),
            leader_epoch: LeaderEpoch(epoch),
            log_end: Offset(end),
        });
        assert!(effects.notes[0].warn);
        assert_eq!(rig.replica, before);
    }
    assert_eq!(answers(&rig.written(1, 2)), [(1, Ok(0))]);
}

#[test]
fn several_appends_may_be_on_the_way() {
    let mut rig = Rig::leader(&[1]);
    assert_eq!(rig.order(1, Acks::All, 3).append.unwrap().base_offset, Offset(0));
    assert_eq!(rig.order(2, Acks::Leader, 2).append.unwrap().base_offset, Offset(3));
    assert_eq!(answers(&rig.written(1, 3)), [(1, Ok(0))]);
    assert_eq!(answers(&rig.written(2, 5)), [(2, Ok(3))]);
}

#[test]
fn produce_to_a_replica_that_does_not_lead_is_refused() {
    let mut rig = Rig::follower(log(0, &[]), 1);
    let effects = rig.produce(1, Acks::All);
    assert_eq!(answers(&effects), [(1, Err(Condition::NotLeaderOrFollower))]);
    assert_eq!(rig.produce(2, Acks::None), Effects::default(), "acks=0 is never answered");
}

#[test]
fn r10_acks_all_under_min_insync_appends_nothing() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 2, FlushMode::Async);
    let effects = rig.order(1, Acks::All, 1);
    assert_eq!(answers(&effects), [(1, Err(Condition::NotEnoughReplicas { isr: 1, min: 2 }))]);
    assert_eq!(effects.append, None);
    assert_eq!(answers(&rig.produce(2, Acks::Leader)), [(2, Ok(0))], "acks=1 is unaffected");
    assert_eq!(rig.high_watermark(), 0, "the HW stands still below min.insync");
}

#[test]
fn b4_a_confirmed_shrink_answers_waiters_without_other_traffic() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    let effects = rig.isr(&[1]);
    assert_eq!((answers(&effects), effects.high_watermark), (vec![(1, Ok(0))], Some(Offset(1))));
}

#[test]
fn b4_a_shrink_below_min_insync_ends_waiters_at_once() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 2, FlushMode::Async);
    rig.produce(1, Acks::All);
    rig.order(2, Acks::All, 1);
    let after = |w| (w, Err(Condition::NotEnoughReplicasAfterAppend));
    assert_eq!(answers(&rig.isr(&[1])), [after(1)]);
    assert_eq!(answers(&rig.written(2, 2)), [after(2)], "its append was on the way");
    assert_eq!((rig.replica.log_end(), rig.high_watermark()), (Offset(2), 0));
}

#[test]
fn a_timeout_is_answered_once_before_and_after_the_append() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.order(2, Acks::All, 1);
    for waiter in [1, 2] {
        let timed_out = Event::WaiterTimedOut { waiter: WaiterId(waiter) };
        let effects = rig.step(timed_out.clone());
        assert_eq!(answers(&effects), [(waiter, Err(Condition::RequestTimedOut))]);
        assert_eq!(rig.step(timed_out), Effects::default());
    }
    rig.written(2, 2);
    assert_eq!(answers(&rig.fetch(2, 2)), [], "committed, but nobody waits");
    assert_eq!(rig.high_watermark(), 2);
}

#[test]
fn a_failed_append_ends_everyone_and_fences() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.order(2, Acks::Leader, 1);
    rig.order(3, Acks::None, 1);
    let effects = rig.step(Event::AppendFailed { waiter: Some(WaiterId(2)) });
    let failed = |w| (w, Err(Condition::KafkaStorageError));
    assert_eq!(answers(&effects), [failed(1), failed(2)]);
    assert_eq!(effects.role_changed, Some(Role::Idle));
    assert_eq!(answers(&rig.produce(4, Acks::Leader)), [failed(4)]);
    assert_eq!(refused(&rig.fetch(2, 1)), Some(Condition::KafkaStorageError));
    assert_eq!(rig.replica.consumer_view(None), Err(Condition::KafkaStorageError));
    rig.state(push(1, 2, 2, &[1, 2]));
    assert_eq!(rig.replica.role(), Role::Idle, "until it is created anew");
}

#[test]
fn a_batch_without_records_is_refused() {
    let mut rig = Rig::leader(&[1]);
    let effects = rig.order(1, Acks::Leader, 0);
    assert!(matches!(effects.answers[0].1, Err(Condition::InvalidRecord(_))));
    assert_eq!(effects.append, None);
}
