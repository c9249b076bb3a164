//! R10, R14, R15, R19, R29, R30, R35, R36: what a leader counts and what it answers to fetches.

use super::*;

#[test]
fn r10_the_least_position_of_the_isr_is_committed_and_never_taken_back() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    for waiter in 0..5 {
        rig.produce(waiter, Acks::Leader);
    }
    rig.fetch(2, 5);
    assert_eq!(rig.high_watermark(), 0, "3 has not reported in this epoch");
    rig.fetch(3, 3);
    assert_eq!(rig.high_watermark(), 3);
    rig.fetch(3, 1);
    assert_eq!(rig.high_watermark(), 3, "a late fetch takes nothing back");
}

#[test]
fn r10_positions_of_an_earlier_epoch_do_not_count() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::Leader);
    rig.fetch(2, 1);
    rig.state(push(1, 2, 2, &[1, 2]));
    rig.produce(2, Acks::Leader);
    assert_eq!(rig.replica.follower_positions()[0].position, None);
    rig.fetch(2, 2);
    assert_eq!(rig.high_watermark(), 2);
}

#[test]
fn r10_positions_stay_over_a_newer_partition_epoch() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    rig.produce(1, Acks::All);
    rig.fetch(2, 1);
    assert_eq!(answers(&rig.isr(&[1, 2])), [(1, Ok(0))]);
}

#[test]
fn r10_only_flushed_positions_count_in_sync_mode() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Sync);
    rig.produce(1, Acks::All);
    let flushed = |rig: &Rig, to| FetchPosition { flushed: Offset(to), ..rig.at(2, 1) };
    let position = flushed(&rig, 0);
    rig.fetch_at(2, position);
    rig.step(Event::Flushed { to: Offset(1) });
    assert_eq!(rig.high_watermark(), 0);
    let position = flushed(&rig, 1);
    assert_eq!(answers(&rig.fetch_at(2, position)), [(1, Ok(0))]);
    rig.produce(2, Acks::All);
    rig.fetch(2, 2);
    assert_eq!(rig.high_watermark(), 1, "the leader's own position counts too");
    assert_eq!(answers(&rig.step(Event::Flushed { to: Offset(9) })), [(2, Ok(1))]);
    assert_eq!(rig.replica.flushed(), Offset(2), "never above the LEO");
}

#[test]
fn kip207_r14_the_high_watermark_is_not_told_below_the_epochs_start() {
    let mut rig = Rig::leader_with(log(5, &[(1, 0)]), &[1, 2], 1, FlushMode::Async);
    assert_eq!(rig.replica.consumer_view(None), Err(Condition::OffsetNotAvailable));
    rig.fetch(2, 4);
    assert_eq!(rig.high_watermark(), 4);
    assert_eq!(rig.replica.consumer_view(None), Err(Condition::OffsetNotAvailable));
    rig.fetch(2, 5);
    let view = rig.replica.consumer_view(None).unwrap();
    assert_eq!((view.high_watermark, view.log_end), (Offset(5), Offset(5)));
}

#[test]
fn kip320_consumers_of_another_epoch_are_fenced() {
    let rig = Rig::leader_with(log(5, &[(3, 0)]), &[1], 1, FlushMode::Async);
    let present = LeaderEpoch(4);
    let asked = LeaderEpoch(3);
    let fenced = Condition::FencedLeaderEpoch { asked, present };
    assert_eq!(rig.replica.consumer_view(Some(asked)), Err(fenced.clone()));
    assert_eq!(rig.replica.end_offset_for_epoch(Some(asked), asked), Err(fenced));
    let asked = LeaderEpoch(5);
    let unknown = Condition::UnknownLeaderEpoch { asked, present };
    assert_eq!(rig.replica.consumer_view(Some(asked)), Err(unknown));
    assert!(rig.replica.consumer_view(Some(present)).is_ok());
    let follower = Rig::follower(log(0, &[]), 1);
    assert_eq!(follower.replica.consumer_view(None), Err(Condition::NotLeaderOrFollower));
    let idle = Rig::new(log(0, &[]));
    assert_eq!(idle.replica.consumer_view(None), Err(Condition::NotLeaderOrFollower));
}

#[test]
fn kip279_the_end_of_an_epoch_that_was_never_known_is_undefined() {
    let rig = Rig::leader_with(log(5, &[(1, 0), (3, 2)]), &[1], 1, FlushMode::Async);
    let end = |epoch| {
        let answer = rig.replica.end_offset_for_epoch(None, LeaderEpoch(epoch)).unwrap();
        answer.map(|(epoch, end)| (epoch.0, end.0))
    };
    assert_eq!(
        [end(0), end(1), end(2), end(3), end(4), end(5)],
        [None, Some((1, 2)), Some((1, 2)), Some((3, 5)), Some((4, 5)), None]
    );
}

/// A leader of epoch 5 over the epochs (1, 0) (3, 4) (5, 8), LEO 8, log start as given.
fn leader_of_epoch_5(log_start: i64) -> Rig {
    let mut state = log(8, &[(1, 0), (3, 4)]);
    state.log_start = Offset(log_start);
    state.epochs.truncate_from_start(Offset(log_start));
    let mut rig = Rig::new(state);
    rig.state(push(1, 5, 1, &[1, 2]));
    rig
}

#[test]
fn r15_a_diverging_follower_is_sent_to_the_common_point_and_not_noted() {
    // (last epoch, LEO) of the follower -> (epoch, end) of the answer
    let cases = [
        ((1, 6), (1, 4)), // more of epoch 1 than there is here
        ((2, 6), (1, 4)), // an epoch that was never known here
        ((3, 9), (3, 8)),
        ((4, 8), (3, 8)),
        ((9, 9), (5, 8)), // above everything known here
    ];
    for ((last, end), (epoch, cut)) in cases {
        let mut rig = leader_of_epoch_5(0);
        let asked = rig.at(2, end);
        let effects =
            rig.fetch_at(2, FetchPosition { last_epoch: Some(LeaderEpoch(last)), ..asked });
        assert_eq!(
            effects.fetch_reply,
            Some(FetchReply::Diverging { epoch: LeaderEpoch(epoch), end: Offset(cut) }),
            "epoch {last}, LEO {end}"
        );
        assert_eq!(rig.replica.follower_positions()[0].position, None);
        assert_eq!(rig.high_watermark(), 0);
    }
}

#[test]
fn r15_an_earlier_epoch_ends_at_the_leo_while_its_last_append_is_on_the_way() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.order(1, Acks::Leader, 4);
    rig.state(push(1, 2, 2, &[1, 2]));
    let ahead = FetchPosition { last_epoch: Some(LeaderEpoch(1)), ..rig.at(2, 2) };
    assert_eq!(
        rig.fetch_at(2, ahead).fetch_reply,
        Some(FetchReply::Diverging { epoch: LeaderEpoch(1), end: Offset(0) })
    );
}

#[test]
fn r15_a_prefix_of_the_log_is_granted() {
    for (last, end) in [(1, 1), (1, 4), (3, 5), (3, 8)] {
        let mut rig = leader_of_epoch_5(0);
        let asked = rig.at(2, end);
        let effects =
            rig.fetch_at(2, FetchPosition { last_epoch: Some(LeaderEpoch(last)), ..asked });
        let Some(FetchReply::Grant(grant)) = effects.fetch_reply else { panic!("{effects:?}") };
        assert_eq!((grant.from, grant.to), (Offset(end), Offset(8)));
    }
}

#[test]
fn r35_a_follower_below_the_log_start_is_reset_to_it() {
    let mut rig = leader_of_epoch_5(5);
    let reset = Some(FetchReply::Reset { log_start: Offset(5) });
    let below = rig.at(2, 4);
    assert_eq!(
        rig.fetch_at(2, FetchPosition { last_epoch: Some(LeaderEpoch(1)), ..below }).fetch_reply,
        reset
    );
    let no_common_epoch = FetchPosition { last_epoch: Some(LeaderEpoch(2)), ..rig.at(2, 7) };
    assert_eq!(rig.fetch_at(2, no_common_epoch).fetch_reply, reset);
    assert_eq!(rig.replica.follower_positions()[0].position, None);
}

#[test]
fn r36_an_empty_log_inside_the_leaders_range_is_not_compared_by_epoch() {
    let empty_at =
        |rig: &Rig, at| FetchPosition { last_epoch: None, log_start: Offset(at), ..rig.at(2, at) };
    for at in [5, 6, 8] {
        let mut rig = leader_of_epoch_5(5);
        let position = empty_at(&rig, at);
        let effects = rig.fetch_at(2, position);
        assert!(matches!(effects.fetch_reply, Some(FetchReply::Grant(_))), "{at}");
    }
    for at in [4, 9] {
        let mut rig = leader_of_epoch_5(5);
        let position = empty_at(&rig, at);
        let effects = rig.fetch_at(2, position);
        assert_eq!(effects.fetch_reply, Some(FetchReply::Reset { log_start: Offset(5) }), "{at}");
    }
}

#[test]
fn r36_records_without_a_known_epoch_are_not_taken_for_an_empty_log() {
    let mut rig = leader_of_epoch_5(0);
    let unknown = FetchPosition { last_epoch: None, ..rig.at(2, 6) };
    assert_eq!(
        rig.fetch_at(2, unknown).fetch_reply,
        Some(FetchReply::Reset { log_start: Offset(0) })
    );
}

#[test]
fn r29_fetches_of_another_life_or_epoch_are_refused() {
    let mut rig = leader_of_epoch_5(0);
    let fits = rig.at(2, 8);
    let other = Incarnation { czxid: 71, ..LIFE };
    let effects = rig.fetch_at(2, FetchPosition { incarnation: other, ..fits });
    assert_eq!(refused(&effects), Some(Condition::InconsistentTopicId));
    let present = LeaderEpoch(5);
    let asked = LeaderEpoch(4);
    let effects = rig.fetch_at(2, FetchPosition { leader_epoch: asked, ..fits });
    assert_eq!(refused(&effects), Some(Condition::FencedLeaderEpoch { asked, present }));
    let asked = LeaderEpoch(6);
    let effects = rig.fetch_at(2, FetchPosition { leader_epoch: asked, ..fits });
    assert_eq!(refused(&effects), Some(Condition::UnknownLeaderEpoch { asked, present }));
    assert_eq!(rig.high_watermark(), 0, "a refused fetch moves nothing");
    assert_eq!(
        refused(&Rig::follower(log(0, &[]), 5).fetch_at(3, fits)),
        Some(Condition::NotLeaderOrFollower)
    );
}

#[test]
fn r19_only_assigned_replicas_are_served() {
    let mut rig = Rig::leader(&[1, 2]);
    for stranger in [1, 4] {
        let effects = rig.fetch(stranger, 0);
        assert_eq!(refused(&effects), Some(Condition::NotAssignedReplica(BrokerId(stranger))));
    }
}

#[test]
fn r30_a_late_fetch_of_an_earlier_incarnation_does_not_count() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    let late = rig.at(2, 1);
    let newer = FetchPosition { broker_epoch: BrokerEpoch(202), ..rig.at(2, 0) };
    assert!(matches!(rig.fetch_at(2, newer).fetch_reply, Some(FetchReply::Grant(_))));
    let effects = rig.fetch_at(2, late);
    let stale = Condition::StaleBrokerEpoch { asked: broker_epoch(2), present: BrokerEpoch(202) };
    assert_eq!(refused(&effects), Some(stale));
    assert_eq!((rig.high_watermark(), answers(&effects)), (0, vec![]));
}

#[test]
fn r30_a_fetch_below_the_broker_epoch_of_its_isr_entry_does_not_count() {
    let mut rig = Rig::leader(&[1, 2]);
    let old = FetchPosition { broker_epoch: BrokerEpoch(99), ..rig.at(2, 0) };
    let present = broker_epoch(2);
    let stale = Condition::StaleBrokerEpoch { asked: BrokerEpoch(99), present };
    assert_eq!(refused(&rig.fetch_at(2, old)), Some(stale));
}

#[test]
fn r30_a_newer_incarnation_voids_the_position_even_if_it_diverges() {
    let mut rig = leader_of_epoch_5(0);
    rig.isr(&[1, 2, 3]);
    rig.fetch(2, 8);
    let diverging = FetchPosition {
        broker_epoch: BrokerEpoch(202),
        last_epoch: Some(LeaderEpoch(2)),
        ..rig.at(2, 6)
    };
    rig.fetch_at(2, diverging);
    rig.fetch(3, 8);
    assert_eq!(rig.high_watermark(), 0, "nobody knows what 2 has now");
}

#[test]
fn r30_an_isr_entry_with_a_newer_broker_epoch_voids_the_position() {
    let mut rig = Rig::leader(&[1]);
    rig.produce(1, Acks::Leader);
    rig.produce(2, Acks::Leader);
    rig.fetch(2, 1);
    let mut next = push(1, 1, 2, &[1, 2]);
    next.partition.state.isr[1].1 = BrokerEpoch(202);
    rig.state(next);
    assert_eq!(rig.replica.follower_positions()[0].position, None);
}
