//! acks and flush.mode together, the live change of the mode (R37), the failed fsync (R38), and the full disk.

use super::*;

fn flushed(rig: &mut Rig, to: i64) -> Effects {
    rig.step(Event::Flushed { to: Offset(to) })
}

/// A fetch of a follower that has flushed less than it has.
fn fetch_flushed(rig: &mut Rig, follower: i32, log_end: i64, flushed: i64) -> Effects {
    let position = FetchPosition { flushed: Offset(flushed), ..rig.at(follower, log_end) };
    rig.fetch_at(follower, position)
}

fn switch(rig: &mut Rig, flush_mode: FlushMode) -> Effects {
    let present = rig.replica.accepted.clone().unwrap();
    rig.state(StatePush { flush_mode, ..present })
}

/// A sync leader of epoch 1 with these members, and nothing in its log.
fn sync_leader(isr: &[i32]) -> Rig {
    Rig::leader_with(log(0, &[]), isr, 1, FlushMode::Sync)
}

#[test]
fn r10_in_sync_mode_only_flushed_positions_count_the_leaders_too() {
    let mut rig = sync_leader(&[1, 2]);
    assert_eq!(answers(&rig.produce(1, Acks::All)), []);
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 1, 0)), []);
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 1, 1)), [], "the leader has not flushed");
    assert_eq!(rig.high_watermark(), 0);
    let effects = flushed(&mut rig, 1);
    assert_eq!((answers(&effects), effects.high_watermark), (vec![(1, Ok(0))], Some(Offset(1))));
}

#[test]
fn r10_consumers_see_flushed_records_and_followers_are_granted_all() {
    let mut rig = sync_leader(&[1, 2]);
    rig.produce(1, Acks::None);
    rig.produce(2, Acks::None);
    flushed(&mut rig, 1);
    let effects = fetch_flushed(&mut rig, 2, 1, 1);
    let Some(FetchReply::Grant(grant)) = effects.fetch_reply else { panic!("{effects:?}") };
    assert_eq!((grant.to, grant.high_watermark), (Offset(2), Offset(1)), "both flush at once");
    let view = rig.replica.consumer_view(None).unwrap();
    assert_eq!((view.high_watermark, view.log_end), (Offset(1), Offset(2)));
}

#[test]
fn acks_times_flush_when_each_is_answered() {
    // (mode, acks) -> answered after: the append, the leader's flush, the follower's append, the follower's flush.
    for (mode, acks, at) in [
        (FlushMode::Async, Acks::Leader, 0),
        (FlushMode::Async, Acks::All, 2),
        (FlushMode::Sync, Acks::Leader, 1),
        (FlushMode::Sync, Acks::All, 3),
    ] {
        let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, mode);
        let steps = [
            rig.produce(1, acks),
            flushed(&mut rig, 1),
            fetch_flushed(&mut rig, 2, 1, 0),
            fetch_flushed(&mut rig, 2, 1, 1),
        ];
        let answered: Vec<usize> = (0..4).filter(|step| !steps[*step].answers.is_empty()).collect();
        assert_eq!(answered, [at], "{mode:?} {acks:?}");
    }
}

#[test]
fn r12_in_sync_mode_a_joiner_has_flushed_up_to_the_high_watermark() {
    let mut rig = sync_leader(&[1]);
    rig.produce(1, Acks::All);
    flushed(&mut rig, 1);
    assert_eq!(rig.high_watermark(), 1);
    assert_eq!(proposed(&fetch_flushed(&mut rig, 2, 1, 0)), None);
    assert_eq!(proposed(&fetch_flushed(&mut rig, 2, 1, 1)), Some(vec![1, 2]));
}

#[test]
fn r37_async_to_sync_takes_no_high_watermark_back_and_acknowledges_only_what_is_flushed() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.produce(2, Acks::All);
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 1, 0)), [(1, Ok(0))]);
    let effects = switch(&mut rig, FlushMode::Sync);
    assert_eq!((answers(&effects), effects.high_watermark), (vec![], None));
    assert_eq!((rig.replica.flush_mode(), rig.high_watermark()), (FlushMode::Sync, 1));
    assert_eq!(rig.replica.consumer_view(None).unwrap().high_watermark, Offset(1), "I4");
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 2, 0)), []);
    assert_eq!(answers(&flushed(&mut rig, 2)), [], "both numbers were kept");
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 2, 2)), [(2, Ok(1))]);
}

#[test]
fn r37_a_repeated_batch_below_the_high_watermark_waits_for_the_flush_after_the_switch() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 1, 0)), [(1, Ok(0))]);
    switch(&mut rig, FlushMode::Sync);
    let again = |waiter, acks| Event::ProduceAgain {
        waiter: WaiterId(waiter),
        acks,
        base: Offset(0),
        end: Offset(1),
    };
    assert_eq!(answers(&rig.step(again(2, Acks::All))), []);
    assert_eq!(answers(&rig.step(again(3, Acks::Leader))), []);
    assert_eq!(answers(&flushed(&mut rig, 1)), [(3, Ok(0))]);
    assert_eq!(answers(&fetch_flushed(&mut rig, 2, 1, 1)), [(2, Ok(0))]);
}

#[test]
fn r37_sync_to_async_answers_what_is_written() {
    let mut rig = sync_leader(&[1, 2]);
    rig.produce(1, Acks::All);
    rig.produce(2, Acks::Leader);
    fetch_flushed(&mut rig, 2, 2, 0);
    let effects = switch(&mut rig, FlushMode::Async);
    assert_eq!(answers(&effects), [(2, Ok(1)), (1, Ok(0))]);
    assert_eq!(effects.high_watermark, Some(Offset(2)));
}

#[test]
fn r37_the_settings_of_a_deposed_controller_are_refused() {
    let mut rig = Rig::leader(&[1]);
    let present = rig.replica.accepted.clone().unwrap();
    let newer = ControllerEpoch(2);
    let sync = StatePush {
        controller_epoch: newer,
        flush_mode: FlushMode::Sync,
        min_insync_replicas: 2,
        ..present.clone()
    };
    rig.state(sync);
    assert_eq!(rig.replica.flush_mode(), FlushMode::Sync);
    rig.state(present);
    assert_eq!(rig.replica.flush_mode(), FlushMode::Sync);
    let refused = answers(&rig.order(1, Acks::All, 1));
    assert_eq!(refused, [(1, Err(Condition::NotEnoughReplicas { isr: 1, min: 2 }))]);
}

#[test]
fn r37_the_settings_reach_a_leader_elected_by_the_same_push() {
    let mut rig = Rig::follower(log(1, &[(1, 0)]), 2);
    rig.state(StatePush { flush_mode: FlushMode::Sync, ..push(1, 3, 2, &[1]) });
    assert_eq!(answers(&rig.produce(1, Acks::All)), []);
    assert_eq!(answers(&flushed(&mut rig, 2)), [(1, Ok(1))]);
}

#[test]
fn flush_timeout_is_an_error_and_the_records_stay() {
    let mut rig = sync_leader(&[1]);
    rig.produce(1, Acks::All);
    rig.produce(2, Acks::Leader);
    let out = |waiter| vec![(waiter, Err(Condition::RequestTimedOut))];
    for waiter in [1, 2] {
        let late = rig.step(Event::WaiterTimedOut { waiter: WaiterId(waiter) });
        assert_eq!(answers(&late), out(waiter));
    }
    let effects = flushed(&mut rig, 2);
    assert_eq!((answers(&effects), effects.high_watermark), (vec![], Some(Offset(2))));
}

#[test]
fn r38_after_a_failed_fsync_nothing_is_acknowledged_moved_served_or_reported() {
    let mut rig = sync_leader(&[1, 2]);
    rig.produce(1, Acks::All);
    flushed(&mut rig, 1);
    fetch_flushed(&mut rig, 2, 1, 1);
    assert_eq!(rig.high_watermark(), 1);
    rig.produce(2, Acks::All);
    rig.produce(3, Acks::Leader);
    rig.order(4, Acks::All, 1);
    let effects = rig.step(Event::AppendFailed { waiter: None });
    let storage = |waiter| (waiter, Err(Condition::KafkaStorageError));
    assert_eq!(answers(&effects), [storage(2), storage(3), storage(4)]);
    assert!(Condition::KafkaStorageError.is_retriable(), "others may have the records");
    assert!(rig.replica.is_fenced());
    assert_eq!((effects.high_watermark, effects.role_changed), (None, Some(Role::Idle)));
    let storage_error = Condition::KafkaStorageError;
    assert_eq!(rig.replica.consumer_view(None), Err(storage_error.clone()));
    assert_eq!(rig.replica.end_offset_for_epoch(None, LeaderEpoch(1)), Err(storage_error.clone()));
    assert_eq!(refused(&rig.fetch(2, 1)), Some(storage_error));
    assert_eq!((rig.replica.report(), rig.replica.fetch_position()), (None, None));
    assert!(!rig.replica.is_isr_member_under(broker_epoch(1)), "R7: the mark stays");
    // A second fsync that "succeeds" proves nothing, and a late completion is no success either.
    assert_eq!(answers(&flushed(&mut rig, 3)), []);
    let late = rig.step(Event::Appended {
        waiter: Some(WaiterId(4)),
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(4),
    });
    assert_eq!(answers(&late), []);
    assert_eq!(rig.high_watermark(), 1);
    assert_eq!(rig.state(push(1, 2, 2, &[1])).role_changed, None, "until it is opened anew");
}

#[test]
fn d2_a_refused_append_ends_its_producer_and_the_log_goes_on() {
    let mut rig = Rig::leader(&[1]);
    assert_eq!(answers(&rig.produce(1, Acks::All)), [(1, Ok(0))]);
    let full = Condition::NotEnoughReplicas { isr: 0, min: 0 };
    for (waiter, acks) in [(2, Acks::All), (3, Acks::Leader), (4, Acks::None)] {
        rig.order(waiter, acks, 2);
        let refused =
            Event::AppendRefused { waiter: Some(WaiterId(waiter)), condition: full.clone() };
        let expected: Vec<_> =
            (acks != Acks::None).then(|| (waiter, Err(full.clone()))).into_iter().collect();
        assert_eq!(answers(&rig.step(refused)), expected);
    }
    assert!(!rig.replica.is_fenced());
    assert_eq!((rig.replica.log_end(), rig.replica.waiters()), (Offset(1), 0));
    assert_eq!(answers(&rig.produce(5, Acks::All)), [(5, Ok(1))], "there is room again");
}

#[test]
fn d2_a_follower_without_room_stays_where_it_is_and_takes_a_deferred_state() {
    let mut rig = Rig::follower(log(2, &[(1, 0)]), 2);
    rig.answer(records(4, &[(1, 2)], 2));
    rig.state(push(3, 3, 2, &[1, 3]));
    let condition = Condition::KafkaStorageError;
    let effects = rig.step(Event::AppendRefused { waiter: None, condition });
    let leader_epoch = LeaderEpoch(3);
    let follows = Role::Follower { leader: BrokerId(3), leader_epoch };
    assert_eq!(effects.role_changed, Some(follows));
    assert_eq!(rig.replica.fetch_position().unwrap().log_end, Offset(2));
}

#[test]
fn d2_a_follower_without_room_for_a_cut_stays_where_it_is() {
    for outcome in [
        FetchOutcome::Diverging { epoch: LeaderEpoch(1), end: Offset(1) },
        FetchOutcome::Reset { log_start: Offset(5) },
    ] {
        let mut rig = Rig::follower(log(2, &[(1, 0)]), 2);
        let before = rig.replica.fetch_position();
        rig.answer(outcome);
        assert_eq!(rig.replica.fetch_position(), None);
        let condition = Condition::KafkaStorageError;
        rig.step(Event::AppendRefused { waiter: None, condition });
        assert_eq!(rig.replica.fetch_position(), before);
    }
}

#[test]
fn r37_a_mode_that_comes_with_a_state_overtaken_by_a_proposals_answer_is_taken_all_the_same() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Async);
    let before = rig.replica.accepted.clone().unwrap();
    let mut answered = before.clone();
    answered.partition.state.partition_epoch.0 += 1;
    rig.state(answered.clone());
    rig.state(StatePush { flush_mode: FlushMode::Sync, ..before });
    let known = rig.replica.accepted.clone().unwrap();
    assert_eq!(known.flush_mode, FlushMode::Sync, "who obeys the push confirms it");
    assert_eq!(known.partition, answered.partition, "and the newer state stays");
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), [], "nothing is flushed");
    assert_eq!(answers(&flushed(&mut rig, 1)), [(1, Ok(0))]);
}
