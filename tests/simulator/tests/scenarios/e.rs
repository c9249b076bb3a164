//! (e) Producers and what an acknowledgement promises.

use barnabas_simulator::{BROKERS, Swarm};
use barnabas_types::{Acks, Condition};

use super::{Stage, quiet, rounds};

/// A leader is cut off from everybody but its clients.
#[test]
fn e5_an_isolated_leader_acknowledges_nothing_at_acks_all() {
    rounds(&quiet(1), |stage| {
        let old = stage.leader();
        stage.produce_acked();
        stage.world.isolate_broker(old, true);
        stage.world.part_from_store(old, true);
        let mut values = Vec::new();
        for _ in 0..8 {
            values.push(stage.produce(old, Acks::All));
            stage.produce(old, Acks::Leader);
            stage.elapse(40);
        }
        stage.until_leader_is_not(old);
        stage.produce_acked();
        for value in values {
            let told = stage.told(value);
            assert!(told.is_none_or(|told| told.broker != old || told.result.is_err()), "{told:?}");
        }
        stage.world.isolate_broker(old, false);
        stage.world.part_from_store(old, false);
        stage.until_isr(BROKERS);
    });
}

fn answered(stage: &mut Stage, acks: Acks) -> Result<(), Condition> {
    let leader = stage.leader();
    let value = stage.produce(leader, acks);
    stage.until("it is answered", move |w, _| w.answers().iter().any(|t| t.value == value));
    stage.told(value).unwrap().result.clone().map(|_| ())
}

/// What acks ask for, by the size of the ISR.
#[test]
fn e6_min_insync_replicas_is_asked_for_by_acks_all_alone() {
    for min in 1..=3 {
        let swarm = Swarm { session_timeout_ms: 600, lag_time_max_ms: 120, ..quiet(min) };
        rounds(&swarm, |stage| {
            let followers = stage.followers();
            for (size, gone) in [(3, None), (2, Some(followers[0])), (1, Some(followers[1]))] {
                if let Some(b) = gone {
                    stage.world.pause(b, 100_000, false);
                    stage.until_isr(size);
                }
                // The leader learns of the ISR by a push.
                stage.elapse(30);
                let leader = stage.leader();
                let before = stage.world.log_len(&stage.at, leader);
                let all = answered(stage, Acks::All);
                if size >= min as usize {
                    assert_eq!(all, Ok(()), "min {min}, ISR of {size}");
                } else {
                    assert!(matches!(all, Err(Condition::NotEnoughReplicas { .. })), "{all:?}");
                    assert_eq!(
                        stage.world.log_len(&stage.at, leader),
                        before,
                        "nothing is appended"
                    );
                }
                assert_eq!(answered(stage, Acks::Leader), Ok(()), "min {min}, ISR of {size}");
            }
        });
    }
}
