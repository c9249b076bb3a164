//! Who may be told that what it asks for is above the log end: it is known of whom that is asked, and of which moment.

use super::*;

/// The roll call for one consumer.
fn call(rig: &mut Rig) -> u64 {
    let effects = rig.step(Event::RollCall);
    assert!(effects.roll_call && !effects.roll_call_answered);
    rig.replica.roll_call()
}

/// A fetch of a follower that has heard this call; whether waiting consumers are to look again.
fn heard(rig: &mut Rig, follower: i32, call: u64) -> bool {
    let position = rig.at(follower, 0);
    rig.fetch_after(call, follower, position).roll_call_answered
}

#[test]
fn r14_the_log_end_is_in_doubt_until_every_member_has_heard_the_call_and_fetched() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    assert!(rig.replica.doubts_end(None));
    let first = call(&mut rig);
    assert!(!heard(&mut rig, 2, 0), "sent before it had heard the call");
    assert!(!heard(&mut rig, 2, first), "the third has not");
    assert!(rig.replica.doubts_end(Some(first)));
    assert!(heard(&mut rig, 3, first));
    assert!(!rig.replica.doubts_end(Some(first)));
    assert!(!heard(&mut rig, 3, first), "once");
}

#[test]
fn r14_an_epoch_above_the_leaders_own_is_in_doubt_until_the_call_is_answered() {
    let mut rig = Rig::leader(&[1, 2]);
    let present = rig.epoch();
    let to_come = LeaderEpoch(present.0 + 1);
    assert!(!rig.replica.doubts_epoch(present, None), "of that it knows all");
    assert!(rig.replica.doubts_epoch(to_come, None));
    let first = call(&mut rig);
    assert!(rig.replica.doubts_epoch(to_come, Some(first)));
    assert!(heard(&mut rig, 2, first));
    assert!(!rig.replica.doubts_epoch(to_come, Some(first)));
    rig.isr(&[1]);
    assert!(!rig.replica.doubts_epoch(to_come, None), "nobody else can be elected");
}

/// A successor may have been elected since, and the next consumer have read its records.
#[test]
fn r14_an_answered_call_says_nothing_of_later_requests() {
    let mut rig = Rig::leader(&[1, 2]);
    let first = call(&mut rig);
    assert!(heard(&mut rig, 2, first));
    assert!(rig.replica.doubts_end(None), "there is no call for the next request");
    let second = call(&mut rig);
    assert!(!heard(&mut rig, 2, first));
    assert!(rig.replica.doubts_end(Some(second)));
    let third = call(&mut rig);
    assert!(heard(&mut rig, 2, third));
    assert!(!rig.replica.doubts_end(Some(second)), "the last stands for all");
}

#[test]
fn r14_a_call_is_answered_for_who_leads_again_by_those_who_fetch_then() {
    let mut rig = Rig::leader(&[1, 2]);
    let first = call(&mut rig);
    assert!(rig.state(push(2, 2, 2, &[1, 2])).role_changed.is_some());
    assert!(!rig.replica.doubts_end(Some(first)), "it says who leads");
    let ignored = rig.step(Event::RollCall);
    assert_eq!((ignored.roll_call, rig.replica.roll_call()), (false, first), "nobody is called");
    rig.state(push(1, 3, 3, &[1, 2]));
    assert!(rig.replica.doubts_end(Some(first)), "nobody has said so in this epoch");
    assert!(heard(&mut rig, 2, first));
    assert!(!rig.replica.doubts_end(Some(first)));
}

#[test]
fn r9_proposed_members_are_asked_too_and_nobody_outside() {
    let mut rig = Rig::leader(&[1, 2]);
    let first = call(&mut rig);
    assert!(heard(&mut rig, 2, first), "the third is no member");
    rig.fetch(2, 0);
    assert!(rig.fetch(3, 0).propose.is_some());
    let second = call(&mut rig);
    assert!(!heard(&mut rig, 2, second));
    assert!(heard(&mut rig, 3, second));
}

#[test]
fn a_call_is_answered_when_the_member_that_is_silent_has_left() {
    let mut rig = Rig::leader(&[1, 2, 3]);
    let first = call(&mut rig);
    assert!(!heard(&mut rig, 2, first));
    assert!(rig.isr(&[1, 2]).roll_call_answered);
    assert!(!rig.replica.doubts_end(Some(first)));
    assert!(rig.replica.doubts_end(None));
    call(&mut rig);
    assert!(rig.isr(&[1]).roll_call_answered);
    assert!(!rig.replica.doubts_end(None), "whoever is the ISR alone doubts nothing");
}
