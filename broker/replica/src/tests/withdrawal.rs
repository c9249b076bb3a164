//! R9: a follower that the controller does not admit is withdrawn, and proposed again after pauses that grow.

use super::isr::{accept, ineligible, refuse};
use super::*;

#[test]
fn r9_a_follower_that_is_ineligible_is_withdrawn_at_once() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    rig.produce(1, Acks::All);
    let effects = ineligible(&mut rig, 2);
    assert_eq!((proposed(&effects), answers(&effects)), (Some(vec![1]), vec![]));
    assert_eq!(rig.replica.maximal_isr().len(), 2, "the wish alone withdraws nothing");
    let effects = accept(&mut rig, &[1]);
    assert_eq!(answers(&effects), [(1, Ok(0))], "nobody waits for it any more");
    assert_eq!(rig.replica.maximal_isr(), [BrokerId(1)]);
    assert_eq!(proposed(&rig.fetch(2, 1)), None, "it would be refused again");
    assert_eq!(answers(&rig.produce(2, Acks::All)), [(2, Ok(1))]);
}

#[test]
fn r9_a_follower_that_stays_ineligible_costs_few_writes_and_joins_when_it_may() {
    let mut rig = Rig::leader(&[1]);
    let mut writes = 0;
    while rig.now < 61_000 {
        let fetched = proposed(&rig.fetch(2, 0));
        let ticked = proposed(&rig.step(Event::Tick));
        if let Some(isr) = fetched.or(ticked) {
            assert_eq!(isr, [1, 2]);
            assert_eq!(proposed(&ineligible(&mut rig, 2)), Some(vec![1]));
            accept(&mut rig, &[1]);
            writes += 1;
        }
        rig.now += 10;
    }
    // After 0.1, 0.2 ... 6.4 s, then every lag time.
    assert_eq!(writes, 12);
    let until = rig.now + LAG_MS;
    while proposed(&rig.fetch(2, 0)).is_none() {
        rig.now += 10;
        assert!(rig.now <= until, "the lag time is the longest pause");
    }
    accept(&mut rig, &[1, 2]);
    assert_eq!(rig.replica.isr().len(), 2);
}

#[test]
fn r9_a_parked_follower_is_proposed_again_when_its_pause_ends() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    ineligible(&mut rig, 2);
    accept(&mut rig, &[1]);
    rig.fetch(2, 0);
    rig.now += 99;
    assert_eq!(proposed(&rig.step(Event::Tick)), None);
    rig.now += 1;
    assert_eq!(proposed(&rig.step(Event::Tick)), Some(vec![1, 2]));
}

#[test]
fn r9_others_stay_proposed_while_one_is_withdrawn() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    refuse(&mut rig);
    rig.now += 1_000;
    assert_eq!(proposed(&rig.fetch(3, 0)), Some(vec![1, 2, 3]));
    assert_eq!(proposed(&ineligible(&mut rig, 3)), Some(vec![1, 2]));
    assert_eq!(proposed(&ineligible(&mut rig, 2)), Some(vec![1]), "neither may");
    accept(&mut rig, &[1]);
    assert_eq!(rig.replica.maximal_isr(), [BrokerId(1)]);
}

#[test]
fn r9_a_withdrawal_that_fails_is_made_again_after_a_pause() {
    for outcome in [ProposalOutcome::Unknown, ProposalOutcome::Refused(Condition::NotController)] {
        let mut rig = Rig::leader(&[1]);
        for _ in 0..4 {
            // The follower's pause has grown beyond that of the proposals.
            while proposed(&rig.fetch(2, 0)).is_none() {
                rig.now += 10;
            }
            ineligible(&mut rig, 2);
            accept(&mut rig, &[1]);
        }
        while proposed(&rig.fetch(2, 0)).is_none() {
            rig.now += 10;
        }
        assert_eq!(proposed(&ineligible(&mut rig, 2)), Some(vec![1]));
        assert_eq!(rig.step(Event::ProposalAnswered(outcome)).propose, None);
        assert_eq!(proposed(&rig.step(Event::Tick)), None);
        rig.now += 100;
        assert_eq!(proposed(&rig.step(Event::Tick)), Some(vec![1]));
    }
}

#[test]
fn r9_a_refusal_that_names_nobody_who_was_proposed_withdraws_nobody() {
    for named in [1, 3, 4] {
        let mut rig = Rig::leader(&[1]);
        rig.fetch(2, 0);
        assert_eq!(ineligible(&mut rig, named).propose, None, "{named}");
        rig.now += 100;
        assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]), "an ordinary refusal");
    }
    let mut rig = Rig::leader(&[1, 2]);
    rig.fetch(3, 0);
    assert_eq!(ineligible(&mut rig, 2).propose, None, "only the controller takes a member out");
}

#[test]
fn r9_who_was_withdrawn_is_named_again_only_by_an_answer_to_something_else() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    ineligible(&mut rig, 2);
    assert_eq!(ineligible(&mut rig, 2).propose, None, "no circle of refusals");
    assert_eq!(ineligible(&mut rig, 2), Effects::default(), "and none is open");
}

#[test]
fn r9_a_new_incarnation_and_an_admission_end_the_pause() {
    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    ineligible(&mut rig, 2);
    accept(&mut rig, &[1]);
    let restarted = FetchPosition { broker_epoch: BrokerEpoch(302), ..rig.at(2, 0) };
    assert_eq!(proposed(&rig.fetch_at(2, restarted)), Some(vec![1, 2]));

    let mut rig = Rig::leader(&[1]);
    rig.fetch(2, 0);
    ineligible(&mut rig, 2);
    // An earlier attempt is applied after all; then the member leaves for its own reasons.
    rig.isr(&[1, 2]);
    rig.isr(&[1]);
    assert_eq!(proposed(&rig.fetch(2, 0)), Some(vec![1, 2]));
}
