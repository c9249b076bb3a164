//! What unflushed records may be answered for: `flush.messages` and `flush.ms` in async mode, `flush.timeout.ms` in sync mode.

use super::*;

fn bound(unflushed_max: i64, answered_to: Option<i64>) -> Event {
    Event::FlushBound(FlushBound { unflushed_max, answered_to: answered_to.map(Offset) })
}

fn flushed(to: i64) -> Event {
    Event::Flushed { to: Offset(to) }
}

#[test]
fn fewer_records_than_flush_messages_are_answered_unflushed() {
    let mut rig = Rig::leader(&[1]);
    rig.step(bound(3, None));
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), [(1, Ok(0))]);
    assert_eq!(answers(&rig.produce(2, Acks::All)), [(2, Ok(1))]);
    for (waiter, acks) in [(3, Acks::Leader), (4, Acks::All), (5, Acks::Leader)] {
        assert_eq!(answers(&rig.produce(waiter, acks)), [], "three would be lost");
    }
    assert_eq!(rig.high_watermark(), 5, "committed is what it was");
    assert_eq!(answers(&rig.step(flushed(1))), [(3, Ok(2))]);
    assert_eq!(answers(&rig.step(flushed(2))), [(4, Ok(3))]);
    assert_eq!(answers(&rig.step(bound(4, None))), [(5, Ok(4))], "a higher limit counts at once");
}

#[test]
fn flush_messages_of_one_answers_flushed_records_only() {
    let mut rig = Rig::leader(&[1]);
    rig.step(bound(1, None));
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), []);
    assert_eq!(answers(&rig.step(flushed(1))), [(1, Ok(0))]);
}

#[test]
fn acks_all_waits_for_the_followers_and_the_bound() {
    let mut rig = Rig::leader(&[1, 2]);
    rig.step(bound(1, None));
    rig.produce(1, Acks::All);
    assert_eq!(answers(&rig.fetch(2, 1)), [], "committed, and not flushed here");
    assert_eq!(answers(&rig.step(flushed(1))), [(1, Ok(0))]);
    rig.produce(2, Acks::All);
    assert_eq!(answers(&rig.step(flushed(2))), [], "flushed, and not committed");
    assert_eq!(answers(&rig.fetch(2, 2)), [(2, Ok(1))]);
}

#[test]
fn a_late_flush_holds_the_answers_of_what_comes_after() {
    let mut rig = Rig::leader(&[1]);
    assert_eq!(answers(&rig.produce(1, Acks::Leader)), [(1, Ok(0))]);
    rig.step(bound(i64::MAX, Some(1)));
    assert_eq!(answers(&rig.produce(2, Acks::Leader)), []);
    assert_eq!(answers(&rig.produce(3, Acks::All)), []);
    assert_eq!(answers(&rig.step(flushed(2))), [(2, Ok(1))], "flushed is flushed, late or not");
    assert_eq!(answers(&rig.step(bound(i64::MAX, None))), [(3, Ok(2))]);
}

#[test]
fn a_held_answer_ends_like_any_other() {
    let mut rig = Rig::leader(&[1]);
    rig.step(bound(1, None));
    rig.produce(1, Acks::Leader);
    rig.produce(2, Acks::All);
    let late = rig.step(Event::WaiterTimedOut { waiter: WaiterId(1) });
    assert_eq!(answers(&late), [(1, Err(Condition::RequestTimedOut))]);
    let ended = rig.state(push(2, 2, 2, &[1, 2]));
    assert_eq!(answers(&ended), [(2, Err(Condition::NotLeaderOrFollower))]);
}

#[test]
fn sync_mode_has_no_use_for_the_bound() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1], 1, FlushMode::Sync);
    rig.step(bound(1, Some(0)));
    rig.produce(1, Acks::Leader);
    assert_eq!(answers(&rig.step(flushed(1))), [(1, Ok(0))]);
}

#[test]
fn flush_timeout_ends_what_waits_for_the_flush_here_and_nothing_else() {
    let late = |waiter| Event::FlushTimedOut { waiter: WaiterId(waiter) };
    let timed_out = |waiter| (waiter, Err(Condition::RequestTimedOut));
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Sync);
    rig.produce(1, Acks::All);
    rig.step(flushed(1));
    rig.produce(2, Acks::All);
    rig.produce(3, Acks::Leader);
    rig.order(4, Acks::Leader, 1);
    assert_eq!(answers(&rig.step(late(1))), [], "it waits for the follower");
    for waiter in [2, 3, 4] {
        assert_eq!(answers(&rig.step(late(waiter))), [timed_out(waiter)]);
    }
    rig.written(4, 4);
    assert_eq!(answers(&rig.step(flushed(4))), [], "an error was said, a success never follows");
    assert_eq!(answers(&rig.fetch(2, 4)), [(1, Ok(0))]);

    let mut rig = Rig::leader(&[1, 2]);
    rig.produce(1, Acks::All);
    assert_eq!(answers(&rig.step(late(1))), [], "async: it waits for no flush");
}

#[test]
fn b7_a_follower_that_fetches_and_never_flushes_leaves_the_isr_in_sync_mode() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Sync);
    let fetch = |rig: &mut Rig, log_end: i64, to: i64| {
        let position = FetchPosition { flushed: Offset(to), ..rig.at(2, log_end) };
        rig.fetch_at(2, position)
    };
    fetch(&mut rig, 0, 0);
    rig.pass_ms(2 * LAG_MS);
    // Idle so far: its time begins with the record that is flushed here.
    rig.produce(1, Acks::All);
    rig.step(flushed(1));
    fetch(&mut rig, 1, 0);
    assert_eq!(proposed(&rig.pass_ms(LAG_MS / 2)), None);
    fetch(&mut rig, 1, 0);
    let effects = rig.pass_ms(LAG_MS);
    assert_eq!(proposed(&effects), Some(vec![1]), "its disk hangs");
    let state = rig.isr(&[1]);
    assert_eq!(answers(&state), [(1, Ok(0))]);
}

#[test]
fn b7_a_follower_that_flushes_as_the_leader_does_stays_however_much_is_written() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Sync);
    rig.fetch(2, 0);
    for waiter in 1..10 {
        rig.produce(waiter, Acks::None);
    }
    // The leader's own disk is slow: nobody lags.
    assert_eq!(proposed(&rig.pass_ms(2 * LAG_MS)), None);
    rig.step(flushed(9));
    rig.fetch(2, 9);
    assert_eq!(proposed(&rig.pass_ms(2 * LAG_MS)), None);
}
