//! KIP-98: a gap in a producer's sequences is told by who surely led after the request had come, and by nobody else.

use super::*;

/// Sequence 7 where 5 is next.
fn gap(rig: &mut Rig, waiter: u64, acks: Acks) -> Effects {
    let gap = ProduceGap { waiter: WaiterId(waiter), acks, found: 7, expected: 5 };
    let effects = rig.step(Event::ProduceGap(gap));
    assert_eq!(effects.append, None, "nothing is written");
    effects
}

/// A fetch of a follower that has heard this call, from the end of an empty log.
fn heard(rig: &mut Rig, follower: i32, call: u64) -> Effects {
    let position = rig.at(follower, 0);
    rig.fetch_after(call, follower, position)
}

fn told(waiter: u64) -> (u64, Result<i64, Condition>) {
    (waiter, Err(Condition::OutOfOrderSequenceNumber { found: 7, expected: 5 }))
}

#[test]
fn r11_a_gap_is_told_once_every_member_has_heard_the_roll_call_and_fetched() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    let effects = gap(&mut rig, 1, Acks::All);
    assert_eq!((answers(&effects), effects.roll_call), (vec![], true));
    assert_eq!((rig.replica.roll_call(), rig.replica.waiters()), (1, 1));
    assert_eq!(answers(&heard(&mut rig, 2, 1)), []);
    assert_eq!(answers(&heard(&mut rig, 2, 1)), [], "the third has not");
    assert_eq!(answers(&heard(&mut rig, 3, 1)), [told(1)]);
    assert_eq!(rig.replica.waiters(), 0);
}

/// A leader that is stopped finds, when it goes on, the fetches from before its deposition among its requests.
#[test]
fn r11_a_fetch_that_was_sent_before_the_call_was_heard_is_no_witness() {
    let mut rig = Rig::leader(&[1, 2]);
    gap(&mut rig, 1, Acks::All);
    for _ in 0..3 {
        assert_eq!(answers(&heard(&mut rig, 2, 0)), []);
    }
    assert_eq!(answers(&heard(&mut rig, 2, 1)), [told(1)]);
    let effects = gap(&mut rig, 2, Acks::All);
    assert_eq!((answers(&effects), effects.roll_call), (vec![], true), "each gap has its call");
    assert_eq!(answers(&heard(&mut rig, 2, 1)), []);
    gap(&mut rig, 3, Acks::All);
    assert_eq!(answers(&heard(&mut rig, 2, 3)), [told(2), told(3)], "the last stands for all");
}

#[test]
fn r11_a_deposed_leader_says_who_leads_and_not_that_a_sequence_is_missing() {
    let mut rig = Rig::leader(&[1, 2]);
    gap(&mut rig, 1, Acks::All);
    let effects = rig.state(push(2, 2, 2, &[1, 2]));
    assert_eq!(answers(&effects), [(1, Err(Condition::NotLeaderOrFollower))]);
    let follows = answers(&gap(&mut rig, 2, Acks::All));
    assert_eq!(follows, [(2, Err(Condition::NotLeaderOrFollower))]);
}

#[test]
fn r11_what_was_heard_in_an_earlier_leadership_is_no_witness() {
    let mut rig = Rig::leader(&[1, 2]);
    gap(&mut rig, 1, Acks::All);
    heard(&mut rig, 2, 1);
    rig.state(push(1, 3, 3, &[1, 2]));
    gap(&mut rig, 2, Acks::All);
    assert_eq!(answers(&heard(&mut rig, 2, 1)), []);
    assert_eq!(answers(&heard(&mut rig, 2, 2)), [told(2)]);
}

#[test]
fn r9_a_gap_waits_for_proposed_members_too_and_for_nobody_outside() {
    let mut rig = Rig::leader(&[1, 2]);
    gap(&mut rig, 1, Acks::All);
    assert_eq!(answers(&heard(&mut rig, 2, 1)), [told(1)], "the third is no member");
    rig.fetch(2, 0);
    assert_eq!(proposed(&rig.fetch(3, 0)), Some(vec![1, 2, 3]));
    gap(&mut rig, 2, Acks::All);
    assert_eq!(answers(&heard(&mut rig, 2, 2)), []);
    assert_eq!(answers(&heard(&mut rig, 3, 2)), [told(2)]);
}

#[test]
fn a_gap_is_told_when_the_member_that_is_silent_has_left() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    gap(&mut rig, 1, Acks::All);
    heard(&mut rig, 2, 1);
    assert_eq!(answers(&rig.isr(&[1, 2])), [told(1)]);
}

#[test]
fn whoever_is_the_isr_alone_and_whoever_is_asked_alone_tells_at_once() {
    let mut alone = Rig::leader(&[1]);
    assert_eq!(answers(&gap(&mut alone, 1, Acks::All)), [told(1)]);
    let mut rig = Rig::leader(&[1, 2]);
    let effects = gap(&mut rig, 1, Acks::Leader);
    assert_eq!((answers(&effects), effects.roll_call), (vec![told(1)], false));
}

#[test]
fn r10_what_may_pass_is_told_before_the_gap_at_once_and_later() {
    let few = Err(Condition::NotEnoughReplicas { isr: 1, min: 2 });
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 2, FlushMode::Async);
    assert_eq!(answers(&gap(&mut rig, 1, Acks::All)), []);
    assert_eq!(answers(&rig.isr(&[1])), [(1, few.clone())]);
    assert_eq!(answers(&gap(&mut rig, 2, Acks::All)), [(2, few)]);
}

#[test]
fn a_gap_waits_as_long_as_its_request_and_for_no_flush() {
    let mut rig = Rig::leader_with(log(0, &[]), &[1, 2], 1, FlushMode::Sync);
    gap(&mut rig, 1, Acks::All);
    let flush = rig.step(Event::FlushTimedOut { waiter: WaiterId(1) });
    assert_eq!(answers(&flush), []);
    let late = rig.step(Event::WaiterTimedOut { waiter: WaiterId(1) });
    assert_eq!(answers(&late), [(1, Err(Condition::RequestTimedOut))]);
    assert_eq!(answers(&heard(&mut rig, 2, 1)), [], "once");
    gap(&mut rig, 2, Acks::All);
    let failed = rig.step(Event::AppendFailed { waiter: None });
    assert_eq!(answers(&failed), [(2, Err(Condition::KafkaStorageError))]);
}
