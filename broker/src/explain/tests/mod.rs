//! One world for each cause, worlds with several, and one in which nothing is wrong.

mod advice;
mod claims;
mod newcomer;
mod waiting;
mod world;

use std::collections::BTreeSet;

use barnabas_proto::v1;
use barnabas_types::{ClusterDelta, FlushMode, Moving, Now, TopicPartition};

use super::cause::{Cause, Kind, Severity, in_order, lasted, listed, quoted};
use super::facts::{BrokerFacts, Listener, Reached};
use super::judge::{self, Coordinated, Subject};
use super::message::{self, Said};
pub(super) use world::{World, at};
use world::{broken, id, ids, out_of_isr, silent};

/// What makes a world of the well one, with an ISR of 1, 2 and 3 unless it says otherwise.
type Wrong = fn(&mut World);

/// What is told first, and what has to be told too.
const PARTITIONS: &[(&str, Wrong, &[Kind])] = &[
    ("nothing is wrong", |_| {}, &[]),
    (
        "all replicas are dead",
        |w| {
            w.dead(1).dead(2).dead(3).leaderless(&[1, 2, 3]);
            w.brokers.get_mut(&id(3)).unwrap().reached = Reached::NoAddress;
        },
        &[Kind::AllReplicasDead],
    ),
    (
        "the leader is dead, others were out of sync",
        |w| {
            w.dead(1).leaderless(&[1]);
            w.replica(2).log_end = 90;
            for broker in 2..=3 {
                w.health(broker).controller_id = 2;
            }
        },
        &[Kind::OnlyOutOfSyncAlive],
    ),
    (
        "the last member has lost its tail, and another replica is away",
        |w| {
            w.image.brokers.get_mut(&id(1)).unwrap().tail_lost = true;
            w.dead(2).leaderless(&[1]);
        },
        &[Kind::TailLost, Kind::BrokerDown],
    ),
    (
        "the leader's disk is full",
        |w| w.health(1).directories[0].room = "exhausted".to_owned(),
        &[Kind::DiskFull],
    ),
    (
        "a write of the leader does not end, and holds its connections too",
        |w| {
            w.replica(1).held = true;
            w.found(1).listener = Listener::Unreachable("it did not answer".to_owned());
            for broker in 2..=3 {
                w.health(broker).links[0].answered_ms = 5_000;
            }
        },
        &[Kind::DiskStalled, Kind::ListenerUnreachable],
    ),
    (
        "the directory of the last member has failed",
        |w| {
            w.dead(2).leaderless(&[1]);
            w.health(1).directories[0].offline_reason = Some("Input/output error".to_owned());
            w.replica(1).failed = true;
        },
        &[Kind::DirectoryFailed, Kind::BrokerDown],
    ),
    (
        "the directory of a follower has failed",
        |w| {
            out_of_isr(w, 2);
            w.image.failed.insert(id(2), BTreeSet::from([at()]));
            w.health(2).directories[0].offline_reason = Some("Input/output error".to_owned());
        },
        &[Kind::DirectoryFailed],
    ),
    (
        "ZooKeeper is away",
        |w| {
            for broker in 1..=3 {
                let health = w.health(broker);
                (health.zookeeper_connected, health.zookeeper_away_ms) = (false, Some(4_000));
            }
        },
        &[Kind::ZooKeeperUnreachable],
    ),
    (
        "ZooKeeper and the leader are away: nobody can be elected",
        |w| {
            w.health(2).zookeeper_connected = false;
            w.health(3).zookeeper_connected = false;
            let found = w.found(1);
            (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
        },
        &[Kind::ZooKeeperUnreachable, Kind::BrokerSuspected],
    ),
    (
        "nobody is controller",
        |w| {
            for broker in 1..=3 {
                let health = w.health(broker);
                (health.controller_id, health.no_controller_ms) = (-1, Some(9_000));
            }
        },
        &[Kind::NoController],
    ),
    (
        "a follower's process stands still",
        |w| {
            silent(w, 2);
            out_of_isr(w, 2);
        },
        &[Kind::BrokerSilent],
    ),
    (
        "the leader's process stands still, and it is the controller",
        |w| silent(w, 1),
        &[Kind::NoController, Kind::BrokerSilent],
    ),
    (
        "a follower is dead",
        |w| {
            w.dead(2);
            out_of_isr(w, 2);
        },
        &[Kind::BrokerDown],
    ),
    (
        "a follower is cut off from ZooKeeper alone",
        |w| {
            w.image.brokers.remove(&id(2));
            w.health(2).zookeeper_connected = false;
            out_of_isr(w, 2);
        },
        &[Kind::BrokerFenced],
    ),
    (
        "the only member of the ISR runs, but is cut off from ZooKeeper",
        |w| {
            w.image.brokers.remove(&id(1));
            w.health(1).zookeeper_connected = false;
            w.dead(2).leaderless(&[1]);
        },
        &[Kind::BrokerFenced, Kind::BrokerDown],
    ),
    (
        "of two members one is dead, the other is cut off from ZooKeeper",
        |w| {
            w.image.brokers.remove(&id(2));
            w.health(2).zookeeper_connected = false;
            w.dead(1).leaderless(&[1, 2]);
            for broker in 2..=3 {
                w.health(broker).controller_id = 3;
            }
        },
        &[Kind::BrokerFenced, Kind::BrokerDown],
    ),
    (
        "the last member has lost its tail, and all are there",
        |w| {
            w.image.brokers.get_mut(&id(1)).unwrap().tail_lost = true;
            w.leaderless(&[1]);
        },
        &[Kind::TailLost],
    ),
    (
        "the link between two brokers is cut",
        |w| {
            out_of_isr(w, 2);
            broken(w, 2);
        },
        &[Kind::LinkCut],
    ),
    (
        "the link is silent",
        |w| {
            out_of_isr(w, 2);
            w.health(2).links[0].answered_ms = 5_000;
        },
        &[Kind::LinkCut],
    ),
    (
        "fetches do not arrive",
        |w| {
            out_of_isr(w, 2);
            w.replica(1).followers[0].last_fetch_ms = Some(9_000);
        },
        &[Kind::LinkCut],
    ),
    (
        "nobody reaches the leader where it says that it is",
        |w| {
            w.found(1).listener = Listener::Refused;
            for broker in 2..=3 {
                out_of_isr(w, broker);
                broken(w, broker);
            }
        },
        &[Kind::ListenerUnreachable],
    ),
    (
        "a broker recovers, the only member of the ISR",
        |w| {
            w.dead(2).leaderless(&[1]);
            let health = w.health(1);
            health.status = "recovering".to_owned();
            health.recovery = Some(v1::RecoveryProgress { opened: 1, of: 4, ..Default::default() });
        },
        &[Kind::Recovering, Kind::BrokerDown],
    ),
    (
        "a broker is starting, the only member of the ISR: it is not to be started again",
        |w| {
            w.dead(1).leaderless(&[1]);
            w.found(1).reached = Reached::Starting;
            for broker in 2..=3 {
                w.health(broker).controller_id = 2;
            }
        },
        &[Kind::Recovering],
    ),
    (
        "a broker is starting within the session of its last life",
        |w| {
            w.found(2).reached = Reached::Starting;
            out_of_isr(w, 2);
        },
        &[Kind::Recovering],
    ),
    (
        "too few replicas for acks=all, since a broker is dead",
        |w| {
            w.min_insync(3).dead(2);
            out_of_isr(w, 2);
        },
        &[Kind::BrokerDown, Kind::BelowMinIsr],
    ),
    (
        "min.insync.replicas is out of reach",
        |w| {
            w.min_insync(4);
        },
        &[Kind::BelowMinIsr],
    ),
    (
        "a move waits for a dead broker",
        |w| {
            let partition = w.topic().partitions.get_mut(&0).unwrap();
            partition.assigned_replicas = ids(&[1, 4, 2, 3]);
            partition.moving = Moving { adding: ids(&[4]), removing: ids(&[3]), throttle: None };
            let (kafka, admin) = (String::new(), String::new());
            let (reached, listener) = (Reached::NoAddress, Listener::NotTried);
            w.brokers.insert(id(4), BrokerFacts { kafka, admin, reached, listener });
        },
        &[Kind::ReassignmentWaiting],
    ),
    (
        "a deleted topic's files wait for a dead broker",
        |w| {
            w.dead(2);
            let before = w.image.clone();
            w.image.topics.clear();
            for broker in [1, 3] {
                w.replica(broker).hosted = false;
            }
            let gone = [at().topic];
            w.ages.note(Now(2_000), &before, &w.image, (&ClusterDelta::default(), &gone));
        },
        &[Kind::DeletionWaiting],
    ),
    (
        "a follower is slow",
        |w| {
            out_of_isr(w, 2);
            w.replica(2).log_end = 40;
            w.replica(1).followers[0].log_end = Some(40);
        },
        &[Kind::SlowFollower],
    ),
    (
        "a broker is drained",
        |w| {
            out_of_isr(w, 2);
            w.image.brokers.get_mut(&id(2)).unwrap().draining = true;
        },
        &[Kind::Draining],
    ),
    (
        "nothing is known against the members of a partition without a leader",
        |w| {
            w.leaderless(&[1, 2]);
        },
        &[Kind::Electing],
    ),
    (
        "a broker is down, and the disk of the leader is full",
        |w| {
            w.dead(2);
            out_of_isr(w, 2);
            w.health(1).directories[0].room = "exhausted".to_owned();
        },
        &[Kind::DiskFull, Kind::BrokerDown],
    ),
];

#[test]
fn each_wrong_has_its_cause_and_the_most_important_is_first() {
    let mut other = Vec::new();
    for (what, wrong, expected) in PARTITIONS {
        let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
        wrong(&mut world);
        let causes = world.causes();
        let kinds: Vec<Kind> = causes.iter().map(|cause| cause.kind).collect();
        if kinds != *expected {
            other.push(format!("{what}: {kinds:?}, not {expected:?}: {causes:#?}"));
        }
        for cause in &causes {
            assert!(!cause.evidence.is_empty() && !cause.summary.is_empty(), "{what}: {cause:?}");
            assert!(!cause.next.is_empty() && !cause.healing.is_empty(), "{what}: {cause:?}");
            assert_eq!(cause.partitions, [at()], "{what}");
        }
        // The same facts, the same answer.
        assert_eq!(causes, world.causes(), "{what}");
    }
    assert!(other.is_empty(), "{}", other.join("\n"));
}

#[test]
fn what_a_follower_waits_for_is_told_as_far_as_it_can_be() {
    let slow = |wrong: Wrong| {
        let mut world = World::new(&[1, 2], &[1, 2]);
        out_of_isr(&mut world, 2);
        wrong(&mut world);
        let causes = world.causes();
        assert_eq!(causes.iter().map(|c| c.kind).collect::<Vec<_>>(), [Kind::SlowFollower]);
        causes[0].summary.clone()
    };
    let disk = |w: &mut World| {
        w.topic().config.flush_mode = FlushMode::Sync;
        w.replica(2).flushed = 10;
    };
    assert!(slow(disk).contains("not flushed"));
    assert!(slow(|w| w.replica(2).held = true).contains("a write does not end"));
    assert!(slow(|w| w.replica(2).log_end = 3).contains("has not caught up yet"));
}

#[test]
fn what_partitions_have_in_common_is_told_once() {
    let cause = |severity, partition| {
        let mut cause =
            Cause::new(Kind::BrokerDown, severity, &[id(2)], "broker 2 is down").fact("gone");
        cause.partitions = vec![TopicPartition { partition, ..at() }];
        cause
    };
    let told = in_order(vec![cause(Severity::Degraded, 1), cause(Severity::Offline, 0)]);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].severity, told[0].partitions.len()), (Severity::Offline, 2));
    assert_eq!(told[0].evidence, ["gone"]);
}

#[test]
fn a_cluster_tells_of_each_broker_and_of_what_coordinates_them() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    assert_eq!(in_order(judge::cluster(&world.facts(), Severity::WritesRefused)), []);
    world.health(3).directories[0].room = "low".to_owned();
    silent(&mut world, 1);
    let kinds: Vec<Kind> = in_order(judge::cluster(&world.facts(), Severity::WritesRefused))
        .iter()
        .map(|cause| cause.kind)
        .collect();
    assert_eq!(kinds, [Kind::NoController, Kind::BrokerSilent, Kind::DiskFull]);
    let of = |broker| judge::broker(&world.facts(), id(broker), Severity::Degraded);
    assert!(of(2).is_empty(), "{:?}", of(2));
    let told = message::response(&world.facts(), of_the_cluster(String::new()), of(1));
    assert_eq!(told.causes[0].name, "broker_silent");
    assert!(told.unanswered[0].contains("did not answer within 1.5 s"), "{told:?}");
}

#[test]
fn a_group_has_causes_of_its_own_and_those_of_its_partitions() {
    let world = World::new(&[1, 2, 3], &[1, 2, 3]);
    let judged = |world: &World, at: Option<&TopicPartition>, health: Option<v1::GroupHealth>| {
        let of = Coordinated { group: "g", at, health: health.as_ref() };
        let causes = in_order(judge::group(&world.facts(), of));
        causes.iter().map(|cause| cause.kind).collect::<Vec<_>>()
    };
    let (offsets, stable) = (at(), |state: &str, offset| v1::GroupHealth {
        coordinated: true,
        state: state.to_owned(),
        offsets: vec![v1::GroupOffset { topic: "t".to_owned(), partition: 0, offset }],
        ..Default::default()
    });
    assert_eq!(judged(&world, Some(&offsets), Some(stable("Stable", 100))), []);
    for waits in ["PreparingRebalance", "CompletingRebalance"] {
        let kinds = judged(&world, Some(&offsets), Some(stable(waits, 50)));
        assert_eq!(kinds, [Kind::GroupRebalancing]);
    }
    assert_eq!(judged(&world, None, None), [Kind::CoordinatorUnavailable]);
    let none = Some(v1::GroupHealth::default());
    assert_eq!(judged(&world, Some(&offsets), none), [Kind::CoordinatorUnavailable]);
    let mut began = World::new(&[1, 2, 3], &[1, 2, 3]);
    began.replica(1).log_start = 60;
    let kinds = judged(&began, Some(&offsets), Some(stable("Empty", 59)));
    assert_eq!(kinds, [Kind::OffsetOutOfRange, Kind::NoMembers]);
    assert_eq!(judged(&began, Some(&offsets), Some(stable("Stable", 60))), []);
    let kinds = judged(&began, Some(&offsets), Some(stable("Stable", 101)));
    assert_eq!(kinds, [Kind::OffsetOutOfRange]);
    let mut dead = World::new(&[1, 2, 3], &[1, 2, 3]);
    dead.dead(1).dead(2).leaderless(&[1, 2]);
    dead.health(3).controller_id = 3;
    let kinds = judged(&dead, Some(&offsets), None);
    assert_eq!(kinds, [Kind::OnlyOutOfSyncAlive, Kind::CoordinatorUnavailable]);
}

#[test]
fn every_kind_is_named_once_and_told_of_somewhere() {
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    let told: BTreeSet<Kind> =
        PARTITIONS.iter().flat_map(|(_, _, kinds)| kinds.iter().copied()).collect();
    let of_groups = [
        Kind::CoordinatorUnavailable,
        Kind::GroupRebalancing,
        Kind::OffsetOutOfRange,
        Kind::NoMembers,
        Kind::RecordsLost,
    ];
    let missing: Vec<_> =
        Kind::ALL.iter().filter(|k| !told.contains(k) && !of_groups.contains(k)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What a message says of the cluster.
pub(super) fn of_the_cluster(headline: String) -> Said {
    let (name, state, facts) = (String::new(), String::new(), Vec::new());
    Said { subject: Subject::Cluster, name, state, headline, facts, partitions_left_out: 0 }
}

#[test]
fn durations_and_lists_are_those_of_people() {
    let shown: Vec<String> =
        [999, 34_000, 600_000, 36_000_000, 864_000_000].into_iter().map(lasted).collect();
    assert_eq!(shown, ["999 ms", "34 s", "10 min", "10 h", "10 days"]);
    let names: Vec<String> = ["g", "a b", "-x", "it's;rm"].into_iter().map(quoted).collect();
    assert_eq!(names, ["g", "'a b'", "'-x'", r"'it'\''s;rm'"], "nothing in a name is run");
    assert_eq!(listed(&[]), "none");
    assert_eq!(listed(&ids(&[1])), "1");
    assert_eq!(listed(&ids(&[1, 2, 3])), "1, 2 and 3");
}
