//! (c) High watermark, truncation, divergence.

use std::cell::Cell;

use barnabas_simulator::{BROKERS, Reached, Swarm};
use barnabas_types::Acks;

use super::{quiet, rounds};

/// A follower whose high watermark is behind restarts, and its leader dies as soon as it is registered again.
#[test]
fn c1_a_restarted_follower_cuts_nothing_that_was_acknowledged() {
    rounds(&quiet(1), |stage| {
        let (leader, [follower, _]) = (stage.leader(), stage.followers());
        stage.produce_acked();
        stage.produce_acked();
        let epoch = stage.world.processes[follower].broker_epoch;
        stage.world.kill(follower, false);
        stage.elapse(1 + stage.seed % 8);
        stage.world.start(follower);
        stage.until("it is registered again", move |w, _| {
            w.is_registered(follower) && w.processes[follower].broker_epoch > epoch
        });
        stage.world.kill(leader, false);
        stage.until_leader_is_not(leader);
        stage.produce_acked();
        stage.world.start(leader);
        stage.until_isr(BROKERS);
    });
}

/// The power of both fails, the follower is back first and takes other records at the same offsets.
#[test]
fn c1_two_replicas_that_lost_their_tails_agree_in_the_end() {
    let mut swarm = quiet(1);
    swarm.config.unclean_leader_election = true;
    rounds(&swarm, |stage| {
        let (leader, [follower, third]) = (stage.leader(), stage.followers());
        stage.produce_acked();
        for _ in 0..3 {
            stage.produce(leader, Acks::Leader);
        }
        stage.elapse(1 + stage.seed % 7);
        stage.world.kill(third, false);
        stage.world.kill(leader, true);
        stage.world.kill(follower, true);
        stage.world.start(follower);
        stage.until("the follower leads", move |w, at| w.is_led_by(at, follower));
        for _ in 0..3 {
            stage.produce(follower, Acks::Leader);
        }
        stage.elapse(30);
        stage.world.start(leader);
        stage.world.start(third);
        stage.until_isr(BROKERS);
    });
}

/// Leadership goes to and fro between two, with records that only the leader has; the third was away all the time.
#[test]
fn c2_many_leader_changes_with_records_of_their_own_end_in_equal_logs() {
    let cut = Cell::new(0);
    rounds(&quiet(1), |stage| {
        let third = stage.followers()[1];
        stage.produce_acked();
        stage.world.kill(third, false);
        stage.until_isr(2);
        for change in 0..5 {
            let old = stage.leader();
            for _ in 0..(stage.seed + change) % 3 {
                stage.produce(old, Acks::Leader);
            }
            stage.elapse((stage.seed + change) % 4);
            stage.world.kill(old, false);
            let new = stage.until_leader_is_not(old);
            stage.produce(new, Acks::Leader);
            stage.world.start(old);
            stage.until_isr(2);
        }
        stage.world.start(third);
        stage.until_isr(BROKERS);
        cut.set(cut.get() + stage.world.coverage().count(Reached::Truncation));
    });
    assert!(cut.get() > 0, "nothing was ever cut: the script shows nothing");
}

/// A follower does not hear that another broker led in between: the leader is the same, its epoch is not.
#[test]
fn c3_a_missed_epoch_of_the_same_leader_is_reconciled() {
    let swarm = Swarm { session_timeout_ms: 10_000, ..quiet(1) };
    rounds(&swarm, |stage| {
        let (first, [second, third]) = (stage.leader(), stage.followers());
        stage.produce_acked();
        // It goes on with what it was told last: whatever comes in between is one push when it is back.
        stage.world.pause(third, 100_000, false);
        stage.produce(first, Acks::Leader);
        stage.until_isr(2);
        for (old, new) in [(first, second), (second, first)] {
            stage.produce(old, Acks::Leader);
            stage.elapse(1 + stage.seed % 5);
            stage.world.expire_session_of(old);
            stage.until("the other one leads", move |w, at| w.is_led_by(at, new));
            stage.produce(new, Acks::Leader);
            stage.until("both are in sync", move |w, at| {
                w.isr_of(at).contains(&old) && w.isr_of(at).contains(&new)
            });
        }
        stage.world.wake(third);
        stage.until_isr(BROKERS);
    });
}

/// Ten leaders die under load: what was shown of the high watermark never goes down (I4), nothing shown vanishes (V).
#[test]
fn c4_offsets_never_go_back_over_elections() {
    let mut swarm = quiet(2);
    swarm.produce_interval_ms = 4;
    rounds(&swarm, |stage| {
        stage.world.begin_clients();
        for _ in 0..10 {
            stage.elapse(10 + stage.seed % 7);
            let old = stage.leader();
            stage.world.kill(old, false);
            stage.until_leader_is_not(old);
            stage.world.start(old);
            stage.until_isr(BROKERS);
        }
    });
}

/// Slow followers, fast producers that do not wait, leaders that die: nobody is shown what later is not there (V).
#[test]
fn c5_nothing_is_shown_above_the_high_watermark() {
    let mut swarm = quiet(1);
    swarm.produce_interval_ms = 3;
    swarm.net_slow_permille = 300;
    swarm.fetch_records_max = 1;
    rounds(&swarm, |stage| {
        stage.world.begin_clients();
        for _ in 0..3 {
            stage.elapse(60);
            let old = stage.leader();
            stage.world.kill(old, false);
            // If nobody else kept up, the partition waits for it.
            stage.elapse(150);
            stage.world.start(old);
            stage.until("it is led", |w, at| w.leader_of(at).is_some());
        }
    });
}

/// A log came back shorter than it was: its replica does not lead while others may have the rest, and they are not cut to it.
#[test]
fn c7_a_replica_that_lost_its_tail_does_not_shorten_the_others() {
    let mut swarm = quiet(2);
    swarm.flush_interval_ms = 100_000;
    rounds(&swarm, |stage| {
        for _ in 0..4 {
            stage.produce_acked();
        }
        let short = stage.leader();
        let [second, third] = stage.followers();
        for b in [second, third] {
            stage.world.kill(b, false);
        }
        stage.world.kill(short, true);
        let lengths = [second, third].map(|b| stage.world.log_len(&stage.at, b));
        stage.world.start(short);
        stage.elapse(300);
        let led =
            stage.world.leader_of(&stage.at).is_some_and(|l| stage.world.is_led_by(&stage.at, l));
        assert!(!led, "seed {}: it leads with a shorter log", stage.seed);
        for b in [second, third] {
            stage.world.start(b);
        }
        stage.until_isr(BROKERS);
        for (b, before) in [second, third].into_iter().zip(lengths) {
            let common = lengths.iter().min().copied().unwrap_or(0).min(before);
            assert!(stage.world.log_len(&stage.at, b) >= common, "broker {b} was cut");
        }
    });
}

/// A follower goes on fetching from a leader that was deposed: that counts for nothing.
#[test]
fn c8_a_deposed_leader_and_its_last_follower_commit_nothing() {
    rounds(&quiet(2), |stage| {
        let (old, [second, third]) = (stage.leader(), stage.followers());
        stage.produce_acked();
        // `old` and `third` still talk to one another, and to nobody else.
        for b in [old, third] {
            stage.world.part_from_store(b, true);
            stage.world.cut(b, second);
            stage.world.cut(second, b);
        }
        stage.until("the second leads", move |w, at| w.leader_of(at) == Some(second));
        let value = stage.produce(old, Acks::All);
        stage.elapse(100 + stage.seed * 5);
        let told = stage.told(value);
        assert!(told.is_none_or(|told| told.result.is_err()), "{told:?}");
        for b in [old, third] {
            stage.world.mend(b, second);
            stage.world.mend(second, b);
            stage.world.part_from_store(b, false);
        }
        stage.until_isr(BROKERS);
    });
}
