//! R32 to R36: how the log start moves, from when on it counts, and when a deletion is answered.

use super::*;

fn delete(rig: &mut Rig, waiter: u64, to: Option<i64>) -> Effects {
    rig.step(Event::DeleteRecords { waiter: WaiterId(waiter), to: to.map(Offset) })
}

fn durable(rig: &mut Rig, to: i64) -> Effects {
    rig.step(Event::LogStartDurable { to: Offset(to) })
}

/// A fetch of a follower whose log begins at `log_start`.
fn fetch_from(rig: &mut Rig, follower: i32, log_end: i64, log_start: i64) -> Effects {
    let position = FetchPosition { log_start: Offset(log_start), ..rig.at(follower, log_end) };
    rig.fetch_at(follower, position)
}

/// Leads over ten records below the HW, with these members.
fn leader_of_ten(isr: &[i32], min_insync: u32) -> Rig {
    let mut rig = Rig::leader_with(log(10, &[(1, 0)]), isr, min_insync, FlushMode::Async);
    for member in isr.iter().filter(|id| **id != 1) {
        rig.fetch(*member, 10);
    }
    rig.step(Event::Tick);
    assert_eq!(rig.high_watermark(), 10);
    rig
}

#[test]
fn r32_nothing_above_the_high_watermark_is_deleted() {
    let mut rig = Rig::leader_with(log(10, &[(1, 0)]), &[1, 2], 1, FlushMode::Async);
    rig.fetch(2, 6);
    assert_eq!(rig.high_watermark(), 6);
    for to in [7, 10, 11, -2] {
        let effects = delete(&mut rig, 1, Some(to));
        let out =
            Condition::OffsetOutOfRange { asked: Offset(to), start: Offset(0), end: Offset(6) };
        assert_eq!((answers(&effects), effects.log_start), (vec![(1, Err(out))], None));
    }
    assert_eq!(delete(&mut rig, 2, None).log_start, Some(Offset(6)), "-1 is the HW");
}

#[test]
fn r32_retention_stops_at_the_own_high_watermark() {
    for mut rig in [
        Rig::leader_with(log(10, &[(1, 0)]), &[1, 2], 1, FlushMode::Async),
        Rig::follower(log(10, &[(1, 0)]), 2),
    ] {
        assert_eq!(rig.replica.log_start_max(), Offset(0));
        let none = rig.step(Event::RetentionReached { to: Offset(4) });
        assert_eq!(none.log_start, None);
        if rig.replica.fetch_position().is_some() {
            rig.answer(records(10, &[], 7));
        } else {
            rig.fetch(2, 7);
        }
        assert_eq!(rig.replica.log_start_max(), Offset(7));
        let effects = rig.step(Event::RetentionReached { to: Offset(9) });
        assert_eq!(effects.log_start, Some(Offset(7)));
        durable(&mut rig, 7);
        assert_eq!((rig.replica.log_start(), rig.replica.log_end()), (Offset(7), Offset(10)));
        assert_eq!(rig.replica.epochs().start_of(LeaderEpoch(1)), Some(Offset(7)));
    }
}

#[test]
fn r32_a_start_counts_only_once_it_is_durable_and_never_goes_back() {
    let mut rig = leader_of_ten(&[1], 1);
    assert_eq!(rig.step(Event::RetentionReached { to: Offset(3) }).log_start, Some(Offset(3)));
    assert_eq!(rig.replica.log_start(), Offset(0));
    assert_eq!(rig.step(Event::RetentionReached { to: Offset(5) }).log_start, Some(Offset(5)));
    assert_eq!(rig.step(Event::RetentionReached { to: Offset(4) }).log_start, None);
    durable(&mut rig, 3);
    assert_eq!(rig.replica.log_start(), Offset(3));
    durable(&mut rig, 9);
    assert_eq!(rig.replica.log_start(), Offset(3), "9 was not ordered");
    durable(&mut rig, 5);
    durable(&mut rig, 3);
    assert_eq!(rig.replica.log_start(), Offset(5));
}

#[test]
fn r33_a_deletion_waits_for_the_own_start_and_for_every_member() {
    let mut rig = leader_of_ten(&[1, 2, 3], 2);
    let effects = delete(&mut rig, 1, Some(4));
    assert_eq!((effects.log_start, effects.answers), (Some(Offset(4)), vec![]));
    assert_eq!(answers(&fetch_from(&mut rig, 2, 10, 4)), []);
    assert_eq!(answers(&fetch_from(&mut rig, 3, 10, 6)), []);
    assert_eq!(answers(&durable(&mut rig, 4)), [(1, Ok(4))], "the own start counts when durable");
    assert_eq!(answers(&delete(&mut rig, 2, Some(4))), [(2, Ok(4))], "done already");
    delete(&mut rig, 3, Some(8));
    durable(&mut rig, 8);
    assert_eq!(answers(&fetch_from(&mut rig, 2, 10, 8)), []);
    assert_eq!(answers(&fetch_from(&mut rig, 3, 10, 7)), []);
    assert_eq!(answers(&fetch_from(&mut rig, 3, 10, 8)), [(3, Ok(8))]);
    assert_eq!(rig.replica.waiters(), 0);
}

#[test]
fn r33_a_deletion_waits_for_a_proposed_member_too() {
    let mut rig = leader_of_ten(&[1], 1);
    rig.fetch(2, 10);
    assert_eq!(rig.replica.maximal_isr().len(), 2);
    delete(&mut rig, 1, Some(4));
    assert_eq!(answers(&durable(&mut rig, 4)), []);
    assert_eq!(answers(&fetch_from(&mut rig, 2, 10, 4)), [(1, Ok(4))]);
}

#[test]
fn r33_a_deletion_is_not_answered_below_min_insync() {
    let mut rig = leader_of_ten(&[1, 2], 2);
    rig.isr(&[1]);
    delete(&mut rig, 1, Some(4));
    assert_eq!(answers(&durable(&mut rig, 4)), []);
    fetch_from(&mut rig, 2, 10, 4);
    assert_eq!(answers(&rig.isr(&[1, 2])), [(1, Ok(4))], "the ISR is large enough again");
}

#[test]
fn r33_a_start_reported_in_an_earlier_epoch_or_by_a_dead_incarnation_does_not_count() {
    let mut rig = leader_of_ten(&[1, 2], 1);
    fetch_from(&mut rig, 2, 10, 4);
    rig.state(push(1, 3, 2, &[1, 2]));
    delete(&mut rig, 1, Some(4));
    assert_eq!(answers(&durable(&mut rig, 4)), [], "2 has reported nothing in this epoch");
    let reborn = FetchPosition { broker_epoch: BrokerEpoch(201), ..rig.at(2, 10) };
    assert_eq!(answers(&rig.fetch_at(2, reborn)), []);
    assert!(refused(&fetch_from(&mut rig, 2, 10, 4)).is_some(), "R30: a dead one");
    let reborn = FetchPosition { log_start: Offset(4), ..reborn };
    assert_eq!(answers(&rig.fetch_at(2, reborn)), [(1, Ok(4))]);
}

#[test]
fn r33_a_change_of_role_or_epoch_ends_a_deletion_without_success() {
    for next in [push(1, 3, 2, &[1, 2]), push(2, 3, 2, &[1, 2]), push(-1, 3, 2, &[1, 2])] {
        let mut rig = leader_of_ten(&[1, 2], 1);
        delete(&mut rig, 1, Some(4));
        let ended = [(1, Err(Condition::NotLeaderOrFollower))];
        assert_eq!(answers(&rig.state(next)), ended);
        assert_eq!(answers(&durable(&mut rig, 4)), []);
        assert_eq!(rig.replica.log_start(), Offset(4), "the order stands");
    }
    let mut rig = leader_of_ten(&[1, 2], 1);
    delete(&mut rig, 1, Some(4));
    let late = rig.step(Event::WaiterTimedOut { waiter: WaiterId(1) });
    assert_eq!(answers(&late), [(1, Err(Condition::RequestTimedOut))]);
    assert_eq!(rig.replica.waiters(), 0);
}

#[test]
fn r33_only_a_leader_deletes() {
    let not_leader = [(1, Err(Condition::NotLeaderOrFollower))];
    let mut follower = Rig::follower(log(4, &[(1, 0)]), 2);
    assert_eq!(answers(&delete(&mut follower, 1, None)), not_leader);
    let mut fenced = leader_of_ten(&[1, 2], 1);
    delete(&mut fenced, 1, Some(4));
    let storage = |waiter| [(waiter, Err(Condition::KafkaStorageError))];
    let failed = fenced.step(Event::AppendFailed { waiter: None });
    assert_eq!(answers(&failed), storage(1));
    assert_eq!(answers(&delete(&mut fenced, 2, Some(4))), storage(2));
}

#[test]
fn r34_who_lacks_a_deletion_does_not_join() {
    let mut rig = leader_of_ten(&[1], 1);
    delete(&mut rig, 1, Some(4));
    durable(&mut rig, 4);
    assert_eq!(proposed(&fetch_from(&mut rig, 2, 10, 3)), None);
    assert_eq!(proposed(&fetch_from(&mut rig, 2, 10, 4)), Some(vec![1, 2]));
}

#[test]
fn r34_a_follower_reports_its_start_only_once_it_is_durable() {
    let mut rig = Rig::follower(log(6, &[(1, 0)]), 2);
    let outcome = FetchOutcome::Records {
        end: Offset(6),
        epochs: vec![],
        high_watermark: Offset(6),
        log_start: Offset(4),
    };
    assert_eq!(rig.answer(outcome).log_start, Some(Offset(4)));
    assert_eq!(rig.replica.fetch_position().unwrap().log_start, Offset(0));
    durable(&mut rig, 4);
    assert_eq!(rig.replica.fetch_position().unwrap().log_start, Offset(4));
}

#[test]
fn r35_after_a_reset_to_a_lower_start_a_late_completion_of_the_old_one_changes_nothing() {
    let mut state = log(8, &[(1, 0)]);
    state.high_watermark = Offset(8);
    let mut rig = Rig::follower(state, 2);
    rig.step(Event::RetentionReached { to: Offset(7) });
    rig.answer(FetchOutcome::Reset { log_start: Offset(5) });
    assert_eq!(rig.step(Event::RetentionReached { to: Offset(8) }).log_start, None, "not now");
    let done =
        rig.step(Event::Truncated { log_start: Offset(5), log_end: Offset(5), flushed: Offset(5) });
    assert_eq!(done.log_start, Some(Offset(5)));
    durable(&mut rig, 7);
    assert_eq!((rig.replica.log_start(), rig.replica.fetch_position()), (Offset(5), None));
    durable(&mut rig, 5);
    let position = rig.replica.fetch_position().unwrap();
    assert_eq!((position.log_start, position.log_end), (Offset(5), Offset(5)));
    assert_eq!(rig.high_watermark(), 5);
}

#[test]
fn r35_a_reset_log_that_is_told_to_lead_commits_nothing_before_its_start_is_durable() {
    let mut rig = Rig::follower(log(3, &[(1, 0)]), 2);
    rig.answer(FetchOutcome::Reset { log_start: Offset(5) });
    let (log_start, log_end) = (Offset(5), Offset(5));
    rig.step(Event::Truncated { log_start, log_end, flushed: log_end });
    rig.state(push(1, 3, 2, &[1]));
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), []);
    assert_eq!(answers(&rig.produce(2, Acks::All)), []);
    assert_eq!(answers(&durable(&mut rig, 5)), [(1, Ok(5)), (2, Ok(6))]);
}

#[test]
fn r15_a_cut_never_reaches_below_a_start_that_is_ordered() {
    let mut state = log(8, &[(1, 0)]);
    state.high_watermark = Offset(6);
    let mut rig = Rig::follower(state, 2);
    rig.step(Event::RetentionReached { to: Offset(6) });
    let outcome = FetchOutcome::Diverging { epoch: LeaderEpoch(1), end: Offset(4) };
    let effects = rig.answer(outcome);
    assert_eq!((effects.truncate_to, effects.reset_to), (None, Some(Offset(6))));
}

#[test]
fn r8_a_log_whose_records_are_all_deleted_reports_their_epoch() {
    let mut rig = leader_of_ten(&[1], 1);
    delete(&mut rig, 1, None);
    durable(&mut rig, 10);
    assert_eq!(rig.replica.log_start(), rig.replica.log_end());
    rig.state(push(-1, 3, 2, &[1]));
    let report = rig.replica.report().unwrap();
    assert_eq!((report.last_epoch, report.log_end), (Some(LeaderEpoch(2)), Offset(10)));
    rig.state(push(2, 4, 3, &[2]));
    assert_eq!(rig.replica.fetch_position().unwrap().last_epoch, None, "R36");
}

#[test]
fn r36_middle_of_a_batch_an_empty_follower_joins_and_both_agree_on_the_start() {
    // One batch of five records; deleted up to its third.
    let mut leader = Rig::leader(&[1]);
    leader.order(1, Acks::All, 5);
    assert_eq!(answers(&leader.written(1, 5)), [(1, Ok(0))]);
    delete(&mut leader, 2, Some(2));
    assert_eq!(answers(&durable(&mut leader, 2)), [(2, Ok(2))]);
    let empty = FetchPosition { last_epoch: None, ..leader.at(2, 0) };
    let reset = FetchReply::Reset { log_start: Offset(2) };
    assert_eq!(leader.fetch_at(2, empty).fetch_reply, Some(reset), "below the log start");
    let at_start = FetchPosition { log_end: Offset(2), log_start: Offset(2), ..empty };
    let effects = leader.fetch_at(2, at_start);
    let Some(FetchReply::Grant(grant)) = effects.fetch_reply else { panic!("{effects:?}") };
    assert_eq!((grant.from, grant.to, grant.log_start), (Offset(2), Offset(5), Offset(2)));
    assert_eq!(proposed(&effects), None, "below the HW");

    let mut follower = Rig::follower(log(0, &[]), 1);
    follower.answer(FetchOutcome::Reset { log_start: Offset(2) });
    let (log_start, log_end) = (Offset(2), Offset(2));
    follower.step(Event::Truncated { log_start, log_end, flushed: log_end });
    durable(&mut follower, 2);
    // The batch begins below the start.
    follower.answer(FetchOutcome::Records {
        end: Offset(5),
        epochs: vec![(LeaderEpoch(1), Offset(0))],
        high_watermark: Offset(5),
        log_start: Offset(2),
    });
    follower.step(Event::Appended {
        waiter: None,
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(5),
    });
    let position = follower.replica.fetch_position().unwrap();
    assert_eq!((position.log_start, position.log_end), (Offset(2), Offset(5)));
    assert_eq!(position.last_epoch, Some(LeaderEpoch(1)));
    let joined = FetchPosition { log_start: Offset(2), ..leader.at(2, 5) };
    assert_eq!(proposed(&leader.fetch_at(2, joined)), Some(vec![1, 2]));
}
