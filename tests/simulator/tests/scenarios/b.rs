//! (b) ISR and leader election.

use std::cell::Cell;

use barnabas_simulator::{BROKERS, Reached, Swarm};
use barnabas_types::{Acks, Condition, TopicName, TopicPartition};

use super::{Stage, quiet, rounds};

/// Sessions outlive the lag limit, so that followers leave by their lag.
fn long_sessions(min_insync_replicas: u32) -> Swarm {
    Swarm { session_timeout_ms: 600, lag_time_max_ms: 120, ..quiet(min_insync_replicas) }
}

/// The write of the ISR lands and its answer is lost, again and again.
#[test]
fn b1_an_isr_write_of_unknown_outcome_freezes_nothing() {
    let mut swarm = long_sessions(1);
    swarm.store_unknown_permille = 400;
    rounds(&swarm, |stage| {
        let follower = stage.followers()[1];
        for _ in 0..3 {
            stage.world.pause(follower, 100_000, false);
            // A follower of an idle leader lags behind nothing.
            let leader = stage.leader();
            stage.produce(leader, Acks::Leader);
            stage.until("the stopped one leaves", move |w, at| !w.isr_of(at).contains(&follower));
            stage.world.wake(follower);
            stage.until_isr(BROKERS);
        }
    });
}

/// The leader loses the ensemble for longer than its session, another one is elected, and it comes back.
#[test]
fn b1_a_leader_that_was_deposed_behind_its_back_follows() {
    rounds(&quiet(2), |stage| {
        let old = stage.leader();
        stage.produce_acked();
        stage.world.part_from_store(old, true);
        stage.until_leader_is_not(old);
        stage.produce(old, Acks::All);
        stage.elapse(20 + stage.seed * 5);
        stage.world.part_from_store(old, false);
        stage.until_isr(BROKERS);
        stage.produce_acked();
    });
}

/// A follower is admitted just before its leader dies: it has everything that was acknowledged, or it was not admitted.
#[test]
fn b2_who_joins_has_reached_the_start_of_the_leaders_epoch() {
    let led = Cell::new(0);
    let mut swarm = long_sessions(1);
    swarm.fetch_records_max = 1;
    rounds(&swarm, |stage| {
        let (first, [second, third]) = (stage.leader(), stage.followers());
        stage.world.pause(third, 100_000, false);
        stage.until_isr(2);
        for _ in 0..3 {
            stage.produce(first, Acks::All);
        }
        stage.produce_acked();
        stage.world.kill(first, false);
        stage.until_leader_is_not(first);
        if stage.leader() != second {
            return; // the stopped one's session went, too
        }
        stage.world.wake(third);
        stage.until("the third joins", move |w, at| w.isr_of(at).contains(&third));
        stage.world.kill(second, false);
        stage.until("the third leads", move |w, at| w.is_led_by(at, third));
        led.set(led.get() + 1);
    });
    assert!(led.get() > 0, "the third never led: the script shows nothing");
}

/// The ISR shrinks while a producer waits, and nothing else happens on the partition.
#[test]
fn b4_a_waiting_producer_is_answered_when_the_isr_shrinks() {
    for min_insync_replicas in [1, 2] {
        let swarm =
            Swarm { lag_time_max_ms: 60, partitions: 3, ..long_sessions(min_insync_replicas) };
        rounds(&swarm, |stage| {
            // Both others are stopped: who leads must be who decides.
            stage.choose_the_controllers();
            let (leader, followers) = (stage.leader(), stage.followers());
            for b in followers {
                stage.world.pause(b, 500, false);
            }
            let sent = stage.world.now_ms();
            let value = stage.produce(leader, Acks::All);
            stage.until("it is answered", move |w, _| w.answers().iter().any(|t| t.value == value));
            let told = stage.told(value).unwrap().clone();
            let took = told.at_ms - sent;
            assert!(took < 2 * 60 + 30, "answered after {took} ms, the lag limit is 60");
            match min_insync_replicas {
                1 => assert!(told.result.is_ok(), "{told:?}"),
                _ => assert_eq!(told.result, Err(Condition::NotEnoughReplicasAfterAppend)),
            }
        });
    }
}

/// The last member of the ISR loses its unflushed tail.
#[test]
fn b5_the_last_member_does_not_lead_when_its_tail_is_gone() {
    let recovered = Cell::new(0);
    let mut swarm = long_sessions(2);
    swarm.flush_interval_ms = 100_000;
    rounds(&swarm, |stage| {
        let (leader, followers) = (stage.leader(), stage.followers());
        for _ in 0..4 {
            stage.produce_acked();
        }
        for b in followers {
            stage.world.pause(b, 100_000, false);
            stage.elapse(60);
        }
        stage.until_isr(1);
        let value = stage.produce(leader, Acks::All);
        stage.until("it is answered", move |w, _| w.answers().iter().any(|t| t.value == value));
        assert!(stage.told(value).unwrap().result.is_err(), "fewer than min.insync.replicas");
        stage.produce(leader, Acks::Leader);
        stage.elapse(10);
        stage.world.kill(leader, true);
        stage.elapse(20 + stage.seed * 4);
        for b in followers {
            stage.world.wake(b);
        }
        stage.elapse(50);
        stage.world.start(leader);
        // I6 is checked when the next leader begins: nothing that was acknowledged is missing.
        stage.until_isr(BROKERS);
        recovered.set(recovered.get() + stage.world.coverage().count(Reached::LongestLog));
    });
    assert!(recovered.get() > 0, "no election looked at every log: the script shows nothing");
}

/// Idle partitions, and a leader that itself stands still for longer than the lag limit.
#[test]
fn b7_nobody_leaves_the_isr_without_cause() {
    rounds(&long_sessions(2), |stage| {
        stage.produce_acked();
        stage.elapse(100);
        let shrinks = |stage: &Stage| stage.world.coverage().count(Reached::IsrShrink);
        let before = shrinks(stage);
        stage.elapse(10 * 120);
        assert_eq!(shrinks(stage), before, "nobody lags behind a leader without records");
        let leader = stage.leader();
        stage.world.pause(leader, 180, false);
        stage.elapse(180 + 240);
        assert_eq!(shrinks(stage), before, "the pause was the leader's own");
        assert_eq!(stage.leader(), leader);
        stage.world.jump_clock(leader, 180);
        stage.elapse(240);
        assert_eq!(shrinks(stage), before, "the time was its clock's alone");
    });
}

/// A move to another broker, while that one and the controller die; a wish for a topic that is not there came before it.
#[test]
fn b9_a_move_ends_though_controller_and_target_died_on_the_way() {
    let swarm = Swarm { brokers: 4, ..quiet(2) };
    rounds(&swarm, |stage| {
        for _ in 0..5 {
            stage.produce_acked();
        }
        let held = stage.world.assigned_to(&stage.at);
        let new = (0..4).find(|b| !held.contains(b)).unwrap();
        let (left, target) = (held[0], [held[1], held[2], new]);
        let absent = TopicPartition { topic: TopicName::new("absent").unwrap(), partition: 0 };
        stage.world.move_to(&absent, &target);
        let at = stage.at.clone();
        stage.world.move_to(&at, &target);
        stage.until("the move has begun", |w, at| w.assigned_to(at).len() == 4);
        stage.elapse(stage.seed % 6);
        let c = stage.world.controller().unwrap_or(new);
        stage.world.kill(new, false);
        stage.world.kill(c, false);
        stage.elapse(200);
        stage.world.start(c);
        stage.world.start(new);
        stage.until("the move has ended", move |w, at| w.is_moved_to(at, &target));
        stage.until_isr(3);
        stage.until("the replica that left is gone", move |w, at| {
            !w.disks[left].directories.contains_key(at)
        });
    });
}

/// All die, one that did not lead is back alone for a while, dies again; then all come.
#[test]
fn b10_a_replica_without_a_leader_forgets_nothing() {
    rounds(&quiet(2), |stage| {
        for _ in 0..5 {
            stage.produce_acked();
        }
        let alone = stage.followers()[0];
        let lengths: Vec<usize> = (0..BROKERS).map(|b| stage.world.log_len(&stage.at, b)).collect();
        let least = *lengths.iter().min().unwrap();
        for b in 0..BROKERS {
            stage.world.kill(b, false);
        }
        stage.world.start(alone);
        stage.elapse(400);
        stage.world.kill(alone, false);
        stage.elapse(20);
        for b in 0..BROKERS {
            stage.world.start(b);
        }
        stage.until_isr(BROKERS);
        for b in 0..BROKERS {
            assert!(stage.world.log_len(&stage.at, b) >= least, "broker {b} was cut");
        }
    });
}
