//! R15, R16, R31, R34, R35: what a follower does with its leader's answers.

use super::*;

fn appended(rig: &mut Rig, log_end: i64) -> Effects {
    let leader_epoch = rig.epoch();
    rig.step(Event::Appended { waiter: None, leader_epoch, log_end: Offset(log_end) })
}

fn diverging(epoch: i32, end: i64) -> FetchOutcome {
    FetchOutcome::Diverging { epoch: LeaderEpoch(epoch), end: Offset(end) }
}

fn truncated(rig: &mut Rig, log_start: i64, log_end: i64, flushed: i64) -> Effects {
    rig.step(Event::Truncated {
        log_start: Offset(log_start),
        log_end: Offset(log_end),
        flushed: Offset(flushed),
    })
}

#[test]
fn r15_fetched_records_their_epochs_and_the_high_watermark_count_once_written() {
    let mut rig = Rig::follower(log(2, &[(1, 0)]), 3);
    let effects = rig.answer(records(6, &[(1, 2), (2, 4), (3, 5)], 5));
    let order = effects.append.unwrap();
    assert_eq!((order.waiter, order.base_offset), (None, Offset(2)));
    assert_eq!((rig.replica.log_end(), rig.high_watermark()), (Offset(2), 0));
    assert_eq!(rig.replica.fetch_position(), None, "an append is under way");
    let effects = appended(&mut rig, 6);
    assert_eq!(effects.high_watermark, Some(Offset(5)));
    assert_eq!(*rig.replica.epochs(), table(&[(1, 0), (2, 4), (3, 5)]));
    let position = rig.replica.fetch_position().unwrap();
    assert_eq!((position.log_end, position.last_epoch), (Offset(6), Some(LeaderEpoch(3))));
}

#[test]
fn r15_the_high_watermark_is_bounded_by_the_own_leo_and_never_goes_down() {
    let mut rig = Rig::follower(log(2, &[(1, 0)]), 1);
    assert_eq!(rig.answer(records(2, &[], 9)).high_watermark, Some(Offset(2)));
    assert_eq!(rig.answer(records(2, &[], 1)), Effects::default());
    assert_eq!(rig.high_watermark(), 2);
}

#[test]
fn r15_a_diverging_log_is_cut_to_the_lesser_end_of_the_epoch() {
    // own log: (1, 0) (2, 4), LEO 6
    for (epoch, leaders_end, cut) in [(2, 5, 5), (1, 3, 3), (1, 5, 4), (0, 9, 0)] {
        let mut rig = Rig::follower(log(6, &[(1, 0), (2, 4)]), 3);
        let effects = rig.answer(diverging(epoch, leaders_end));
        assert_eq!(effects.truncate_to, Some(Offset(cut)), "epoch {epoch}");
        assert!(!effects.notes[0].warn);
        assert_eq!(rig.replica.fetch_position(), None);
        truncated(&mut rig, 0, cut, 0);
        assert_eq!(rig.replica.log_end(), Offset(cut));
        assert_eq!(rig.replica.fetch_position().unwrap().log_end, Offset(cut));
    }
}

#[test]
fn r15_never_to_the_high_watermark_but_through_it_with_a_warning() {
    let mut state = log(6, &[(1, 0), (2, 4)]);
    state.high_watermark = Offset(5);
    state.flushed = Offset(6);
    let mut rig = Rig::follower(state, 3);
    let effects = rig.answer(diverging(1, 9));
    assert_eq!(effects.truncate_to, Some(Offset(4)));
    assert!(effects.notes[0].warn);
    let effects = truncated(&mut rig, 0, 4, 9);
    assert_eq!(effects.high_watermark, Some(Offset(4)));
    assert_eq!((rig.high_watermark(), rig.replica.flushed()), (4, Offset(4)), "R16: lowered");
    assert_eq!(*rig.replica.epochs(), table(&[(1, 0)]));
}

#[test]
fn r15_never_below_the_log_start() {
    let mut state = log(6, &[(4, 0)]);
    state.log_start = Offset(3);
    let mut rig = Rig::follower(state, 5);
    let effects = rig.answer(diverging(2, 1));
    assert_eq!((effects.truncate_to, effects.reset_to), (None, Some(Offset(3))), "all of it goes");
    truncated(&mut rig, 3, 3, 0);
    rig.step(Event::LogStartDurable { to: Offset(3) });
    assert_eq!(rig.replica.fetch_position().unwrap().last_epoch, None, "R36: empty at 3");
}

#[test]
fn r15_an_answer_that_would_cut_nothing_is_ignored_loudly() {
    let mut rig = Rig::follower(log(6, &[(1, 0)]), 3);
    for senseless in [diverging(1, 6), diverging(2, 3)] {
        let effects = rig.answer(senseless);
        assert_eq!(effects.truncate_to, None);
        assert!(effects.notes[0].warn);
    }
    let mut empty = Rig::follower(log(0, &[]), 3);
    assert!(empty.answer(diverging(1, 0)).notes[0].warn);
}

#[test]
fn r35_a_reset_begins_at_the_leaders_log_start() {
    let mut state = log(6, &[(1, 0)]);
    state.high_watermark = Offset(6);
    let mut rig = Rig::follower(state, 3);
    let effects = rig.answer(FetchOutcome::Reset { log_start: Offset(9) });
    assert_eq!((effects.reset_to, effects.truncate_to), (Some(Offset(9)), None));
    let effects = truncated(&mut rig, 9, 9, 9);
    assert_eq!((effects.high_watermark, effects.log_start), (Some(Offset(9)), Some(Offset(9))));
    assert_eq!(rig.replica.fetch_position(), None, "not before the start is durable");
    rig.step(Event::LogStartDurable { to: Offset(9) });
    let position = rig.replica.fetch_position().unwrap();
    assert_eq!(
        (position.log_start, position.log_end, position.last_epoch),
        (Offset(9), Offset(9), None)
    );
    assert_eq!(rig.replica.epochs().latest(), None);
}

#[test]
fn r31_an_answer_counts_only_where_the_request_stood() {
    let mut rig = Rig::follower(log(6, &[(1, 0), (2, 4)]), 3);
    let asked = rig.replica.fetch_position().unwrap();
    let elsewhere = [
        FetchPosition { incarnation: Incarnation { czxid: 71, ..LIFE }, ..asked },
        FetchPosition { broker_epoch: BrokerEpoch(99), ..asked },
        FetchPosition { leader_epoch: LeaderEpoch(2), ..asked },
        FetchPosition { log_end: Offset(5), ..asked },
        FetchPosition { last_epoch: Some(LeaderEpoch(1)), ..asked },
    ];
    for asked in elsewhere {
        for outcome in [records(8, &[(2, 6)], 6), records(6, &[], 6), diverging(1, 0)] {
            assert_eq!(rig.answer_to(asked, outcome), Effects::default());
        }
        let reset = FetchOutcome::Reset { log_start: Offset(0) };
        assert_eq!(rig.answer_to(asked, reset), Effects::default());
    }
    let of_another_leader = FetchAnswer { leader: BrokerId(3), asked, outcome: diverging(1, 0) };
    assert_eq!(rig.step(Event::FetchAnswered(of_another_leader)), Effects::default());
    let flushed_meanwhile = FetchPosition { flushed: Offset(6), ..asked };
    assert!(rig.answer_to(flushed_meanwhile, records(8, &[(2, 6)], 6)).append.is_some());
}

#[test]
fn r31_a_duplicate_answer_during_and_after_the_append_is_dropped() {
    let mut rig = Rig::follower(log(0, &[]), 1);
    let asked = rig.replica.fetch_position().unwrap();
    rig.answer_to(asked, records(2, &[(1, 0)], 0));
    assert_eq!(rig.answer_to(asked, records(2, &[(1, 0)], 0)), Effects::default());
    appended(&mut rig, 2);
    assert_eq!(rig.answer_to(asked, records(2, &[(1, 0)], 0)), Effects::default());
}

#[test]
fn r31_a_new_registration_voids_answers_under_way() {
    let mut rig = Rig::follower(log(0, &[]), 1);
    let asked = rig.replica.fetch_position().unwrap();
    rig.step(Event::Registered { broker_epoch: BrokerEpoch(201) });
    assert_eq!(rig.answer_to(asked, records(2, &[(1, 0)], 0)), Effects::default());
    assert_eq!(rig.replica.fetch_position().unwrap().broker_epoch, BrokerEpoch(201));
}

#[test]
fn r31_a_leader_takes_no_answers() {
    let mut rig = Rig::follower(log(0, &[]), 1);
    let asked = rig.replica.fetch_position().unwrap();
    rig.state(push(1, 2, 2, &[1, 2]));
    assert_eq!(rig.answer_to(asked, records(2, &[(1, 0)], 0)), Effects::default());
    assert_eq!(rig.replica.fetch_position(), None);
}

#[test]
fn records_that_would_break_the_epoch_table_are_refused_loudly() {
    let mut rig = Rig::follower(log(4, &[(2, 0)]), 3);
    let broken = [
        records(6, &[], 0),
        records(6, &[(1, 4)], 0),
        records(6, &[(4, 4)], 0),
        records(6, &[(3, 4), (2, 5)], 0),
        records(6, &[(2, 5), (3, 5)], 0),
        records(6, &[(2, 4), (3, 6)], 0),
        records(3, &[], 0),
    ];
    for outcome in broken {
        let effects = rig.answer(outcome.clone());
        assert!(effects.append.is_none() && effects.notes[0].warn, "{outcome:?}");
    }
}

#[test]
fn kip279_an_epoch_led_without_a_record_gives_way_to_an_older_one() {
    // Led epoch 5 without a record, over a log that ends in epoch 3; then follows in 6, whose log has epoch 4 here.
    let mut rig = Rig::new(log(4, &[(3, 0)]));
    rig.state(push(1, 5, 1, &[1, 2]));
    rig.state(push(2, 6, 2, &[1, 2]));
    assert_eq!(rig.replica.fetch_position().unwrap().last_epoch, Some(LeaderEpoch(3)));
    rig.answer(records(6, &[(4, 4), (6, 5)], 0));
    appended(&mut rig, 6);
    assert_eq!(*rig.replica.epochs(), table(&[(3, 0), (4, 4), (6, 5)]));
}

#[test]
fn r34_the_log_start_follows_the_leaders_up_to_the_own_high_watermark() {
    let mut rig = Rig::follower(log(6, &[(1, 0), (2, 4)]), 2);
    let outcome = FetchOutcome::Records {
        end: Offset(6),
        epochs: vec![],
        high_watermark: Offset(5),
        log_start: Offset(9),
    };
    let effects = rig.answer(outcome);
    assert_eq!(effects.log_start, Some(Offset(5)));
    assert_eq!(rig.replica.log_start(), Offset(0), "not before it is durable");
    rig.step(Event::LogStartDurable { to: Offset(5) });
    assert_eq!(rig.replica.log_start(), Offset(5));
    assert_eq!(*rig.replica.epochs(), table(&[(2, 5)]));
    assert_eq!(rig.answer(records(6, &[], 5)).log_start, None, "never down");
}

#[test]
fn r36_a_reset_log_takes_a_batch_that_begins_below_its_start() {
    let mut state = log(2, &[(2, 2)]);
    state.log_start = Offset(2);
    let mut rig = Rig::follower(state, 2);
    rig.answer(records(5, &[(2, 0)], 5));
    appended(&mut rig, 5);
    assert_eq!((rig.replica.log_start(), rig.replica.log_end()), (Offset(2), Offset(5)));
    assert_eq!(*rig.replica.epochs(), table(&[(2, 2)]));
}

#[test]
fn completions_that_were_not_ordered_change_nothing() {
    let mut rig = Rig::follower(log(6, &[(1, 0)]), 1);
    let before = rig.replica.clone();
    assert!(appended(&mut rig, 9).notes[0].warn);
    assert!(truncated(&mut rig, 0, 3, 0).notes[0].warn);
    assert_eq!(rig.replica, before);
    rig.answer(records(8, &[(1, 6)], 0));
    assert!(truncated(&mut rig, 0, 3, 0).notes[0].warn, "an append is under way, not a cut");
    assert!(appended(&mut rig, 7).notes[0].warn, "ends elsewhere");
    assert_eq!(appended(&mut rig, 8).notes, []);
    assert_eq!(rig.replica.log_end(), Offset(8));
}

#[test]
fn r16_a_flush_reported_during_a_cut_does_not_reach_above_it() {
    let mut rig = Rig::follower(log(6, &[(1, 0), (2, 4)]), 3);
    rig.answer(diverging(1, 3));
    rig.step(Event::Flushed { to: Offset(6) });
    assert_eq!(rig.replica.flushed(), Offset(3));
}

#[test]
fn a_follower_that_led_waits_for_its_own_appends_before_it_fetches() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.order(1, Acks::Leader, 2);
    rig.state(push(2, 2, 2, &[1, 2]));
    assert_eq!(rig.replica.fetch_position(), None);
    rig.step(Event::Appended {
        waiter: Some(WaiterId(1)),
        leader_epoch: LeaderEpoch(1),
        log_end: Offset(2),
    });
    let position = rig.replica.fetch_position().unwrap();
    assert_eq!((position.log_end, position.last_epoch), (Offset(2), Some(LeaderEpoch(1))));
}
