//! (a) Controller election and fencing.

use std::cell::Cell;

use barnabas_simulator::{BROKERS, Reached};
use barnabas_types::{Acks, TopicName};

use super::{Stage, quiet, rounds};

fn until_all_registered(stage: &mut Stage) {
    stage.until("every broker is registered in its present session", |w, _| {
        (0..BROKERS).all(|b| w.is_registered(b))
    });
    stage.until("there is one controller", |w, _| w.controller().is_some());
    stage.until_isr(BROKERS);
}

/// The registration of an earlier session is still there, or the handshake's answer was lost.
#[test]
fn a1_a_broker_registers_again_though_its_earlier_session_lives() {
    for unknown in [0, 300] {
        let mut swarm = quiet(2);
        swarm.store_unknown_permille = unknown;
        rounds(&swarm, |stage| {
            let b = (stage.seed % 3) as usize;
            if stage.seed % 2 == 0 {
                stage.world.kill(b, false);
                stage.elapse(stage.seed);
                stage.world.start(b);
            } else {
                stage.world.part_from_store(b, true);
                stage.elapse(90 + 3 * stage.seed);
                stage.world.part_from_store(b, false);
            }
            until_all_registered(stage);
        });
    }
}

/// A broker stops and is back before the controller looks: the set of ids is the same, the broker is not.
#[test]
fn a3_a_broker_that_bounces_faster_than_the_controller_looks_is_led_back() {
    rounds(&quiet(2), |stage| {
        let c = stage.controller();
        let b = (c + 1 + (stage.seed % 2) as usize) % BROKERS;
        let before = stage.world.processes[b].broker_epoch;
        stage.world.pause(c, 80, stage.seed % 4 < 2);
        // A clean stop: the session is closed at once.
        stage.world.expire_session_of(b);
        stage.world.kill(b, false);
        stage.elapse(1 + stage.seed % 5);
        stage.world.start(b);
        until_all_registered(stage);
        assert_eq!(stage.world.store.controller_epoch.0.0, 1, "the controller stayed");
        let after = stage.world.processes[b].broker_epoch;
        assert!(after > before && stage.world.processes[b].slots.contains_key(&stage.at));
    });
}

/// A controller wakes after its successor was elected, with creations and leader changes under way.
#[test]
fn a4_a_zombie_controller_changes_nothing() {
    let refused = Cell::new(0);
    let mut swarm = quiet(2);
    swarm.topics = 6;
    rounds(&swarm, |stage| {
        let c = stage.controller();
        for n in 0..5 {
            stage.world.create(&TopicName::new(&format!("t{n}")).unwrap());
        }
        stage.elapse(1 + stage.seed % 6);
        stage.world.pause(c, 400, true);
        stage.until("another controller", |w, _| w.store.controller_epoch.0.0 == 2);
        let killed = (c + 1) % BROKERS;
        stage.world.kill(killed, false);
        stage.elapse(300);
        stage.world.wake(c);
        stage.elapse(200);
        stage.world.start(killed);
        until_all_registered(stage);
        let coverage = stage.world.coverage();
        let late = coverage.count(Reached::FencedWrite) + coverage.count(Reached::PushRefused);
        refused.set(refused.get() + late);
    });
    assert!(refused.get() > 0, "the zombie never tried anything: the script shows nothing");
}

/// ZooKeeper is away for three sessions, then again and again for shorter times.
#[test]
fn a7_everything_goes_on_without_zookeeper_and_registers_again_when_it_is_back() {
    rounds(&quiet(2), |stage| {
        let everybody = |stage: &mut Stage, parted: bool| {
            for b in 0..BROKERS {
                stage.world.part_from_store(b, parted);
            }
        };
        everybody(stage, true);
        for _ in 0..6 {
            stage.produce_acked();
            stage.elapse(50);
        }
        everybody(stage, false);
        until_all_registered(stage);
        for round in 0..5 {
            everybody(stage, true);
            stage.elapse(20 + 40 * ((stage.seed + round) % 5));
            everybody(stage, false);
            stage.elapse(5 + 7 * (round % 3));
        }
        until_all_registered(stage);
        assert!(stage.world.processes.iter().all(|p| p.life == 1), "nothing was restarted");
    });
}

/// Pushes, or the acknowledgements of pushes, are lost while leaders move.
#[test]
fn a8_a_lost_push_is_sent_again() {
    let mut swarm = quiet(1);
    swarm.partitions = 6;
    rounds(&swarm, |stage| {
        let c = stage.controller();
        let (b, killed) = ((c + 1) % BROKERS, (c + 2) % BROKERS);
        let (from, to) = if stage.seed % 2 == 0 { (c, b) } else { (b, c) };
        stage.world.cut(from, to);
        stage.world.kill(killed, false);
        stage.until("the dead broker leads nothing", move |w, at| {
            w.store.topics[&at.topic]
                .partitions
                .values()
                .all(|(_, s)| s.leader.is_some_and(|leader| leader.0 as usize != killed + 1))
        });
        stage.elapse(stage.seed * 5);
        stage.world.mend(from, to);
        stage.until("what is stored is done", |w, at| {
            let partitions = &w.store.topics[&at.topic].partitions;
            partitions.iter().all(|(index, (_, state))| {
                let at =
                    barnabas_types::TopicPartition { topic: at.topic.clone(), partition: *index };
                state.leader.is_some_and(|leader| w.is_led_by(&at, leader.0 as usize - 1))
            })
        });
        stage.world.start(killed);
        until_all_registered(stage);
    });
}

/// All sessions expire at once, at any moment, twenty times in one life.
#[test]
fn every_session_expires_again_and_again_and_one_controller_remains() {
    let mut stage = Stage::new(7, quiet(2));
    for round in 0..20 {
        stage.elapse(1 + (round * 7) % 23);
        let leader = stage.leader();
        stage.produce(leader, Acks::All);
        for b in 0..BROKERS {
            stage.world.expire_session_of(b);
        }
        until_all_registered(&mut stage);
    }
    stage.end();
}
