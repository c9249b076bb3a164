//! What a newcomer was told wrongly once: about processes that stand still, moves without a leader, ages, and in headlines.

use barnabas_types::Moving;

use super::world::{World, at, id, ids, out_of_isr, silent};
use crate::explain::cause::{Cause, Kind, Severity};
use crate::explain::facts::{Listener, Reached};
use crate::explain::judge::{self, Counted};
use crate::explain::unwell;

fn of(causes: &[Cause], kind: Kind) -> &Cause {
    causes
        .iter()
        .find(|cause| cause.kind == kind)
        .unwrap_or_else(|| panic!("{kind:?}: {causes:#?}"))
}

/// Its session has ended, and its port still takes connections.
fn hung(world: &mut World, broker: i32) {
    world.dead(broker);
    silent(world, broker);
}

#[test]
fn a_process_that_stands_still_is_not_to_be_started_a_second_time() {
    let mut world = World::new(&[2], &[2]);
    hung(&mut world, 2);
    world.leaderless(&[2]);
    let causes = world.causes();
    let dead = of(&causes, Kind::AllReplicasDead);
    let [only] = &dead.next[..] else { panic!("{dead:#?}") };
    assert!(only.command.contains("broker 2: ps ") && only.command.contains("kill -CONT"));
    assert!(!dead.heals_by_itself && dead.healing.contains("goes on"), "{dead:#?}");

    let mut follower = World::new(&[1, 2], &[1]);
    hung(&mut follower, 2);
    let causes = follower.causes();
    let down = of(&causes, Kind::BrokerDown);
    assert!(down.next[0].command.contains("kill -CONT") && down.next.len() == 1, "{down:#?}");
    // Of one whose port refuses there is no process that could go on.
    let found = follower.found(2);
    (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
    let causes = follower.causes();
    let down = of(&causes, Kind::BrokerDown);
    assert!(down.next[0].command.ends_with("barnabas broker --config FILE"), "{down:#?}");
    assert_eq!(down.summary, "broker 2 is down");
}

#[test]
fn a_move_without_a_leader_does_not_wait_for_those_that_are_well() {
    // From 2 to 1; the leader, 2, is dead, and the broker that copies is well.
    let moved = |isr: &[i32]| {
        let mut world = World::new(&[1, 2, 3], isr);
        let partition = world.topic().partitions.get_mut(&0).unwrap();
        partition.moving = Moving { adding: ids(&[1]), removing: ids(&[2]), throttle: None };
        world
    };
    let mut world = moved(&[2]);
    let causes = world.causes();
    let copies = of(&causes, Kind::ReassignmentWaiting);
    assert!(copies.heals_by_itself && copies.summary.ends_with("waits for brokers 1 and 3"));
    world.dead(2);
    let causes = world.causes();
    let waits = of(&causes, Kind::ReassignmentWaiting);
    assert!(waits.summary.ends_with("waits for broker 2, which leads"), "{waits:#?}");
    assert!(!waits.heals_by_itself && waits.brokers == [id(2)], "{waits:#?}");
    world.leaderless(&[2]);
    let causes = world.causes();
    let waits = of(&causes, Kind::ReassignmentWaiting);
    assert!(waits.summary.ends_with("waits for a leader") && !waits.heals_by_itself, "{waits:#?}");
    // With another member of the ISR there will be a leader.
    let mut world = moved(&[2, 3]);
    world.dead(2);
    let causes = world.causes();
    let waits = of(&causes, Kind::ReassignmentWaiting);
    assert!(waits.heals_by_itself && waits.healing.contains("election"), "{waits:#?}");
}

#[test]
fn the_age_of_a_cause_is_not_that_of_another_broker() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    world.dead(2);
    out_of_isr(&mut world, 2);
    // The partition has been short of broker 2 since then; broker 3 has just been killed.
    let (before, delta) = (world.image.clone(), world.changed());
    world.ages.note(barnabas_types::Now(1_000), &before, &before, (&delta, &[]));
    out_of_isr(&mut world, 3);
    let found = world.found(3);
    (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
    let causes = world.causes();
    assert_eq!(of(&causes, Kind::BrokerDown).age, Some((34_000, false)));
    assert_eq!(of(&causes, Kind::BrokerSuspected).age, None, "nobody knows since when");
    // One that is slow has been so since it had everything.
    let found = World::new(&[3], &[3]).found(3).clone();
    *world.found(3) = found;
    let causes = world.causes();
    assert_eq!(of(&causes, Kind::SlowFollower).age, Some((20_000, false)), "{causes:#?}");
}

/// The headlines of the cluster, of broker 1, and of the partition.
fn headlines(world: &World) -> [String; 3] {
    let facts = world.facts();
    let leads = |id| judge::leads(&facts, id);
    let (looked, left_out, counted) = unwell(&facts.image, |_| true, leads);
    assert_eq!((looked.len(), left_out), (counted.unwell, 0));
    let of_partition = judge::partition(&facts, &at());
    let partition = judge::headline(&facts, &at(), &of_partition).unwrap();
    let with = |mut causes: Vec<Cause>| {
        causes.extend(looked.iter().flat_map(|at| judge::partition(&facts, at)));
        causes
    };
    let cluster = with(judge::cluster(&facts));
    let broker = with(judge::broker(&facts, id(1), Severity::Degraded));
    [
        judge::of_cluster(facts.image.brokers.len(), &cluster, counted),
        judge::of_broker(id(1), &broker, counted),
        partition,
    ]
}

#[test]
fn a_headline_says_no_more_good_than_the_causes_below_it() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    assert_eq!(
        headlines(&world),
        [
            "all 3 brokers and their partitions are well",
            "broker 1 is well",
            "t:0: broker 1 leads, ISR 1, 2 and 3 of replicas 1, 2 and 3",
        ]
    );
    world.health(1).directories[0].room = "exhausted".to_owned();
    let [cluster, broker, partition] = headlines(&world);
    assert_eq!(
        (&*cluster, &*broker),
        ("1 partition is not well", "broker 1: 1 partition is not well")
    );
    assert!(partition.starts_with("t:0 takes no writes: the disk of /data of broker 1 is full"));
    let causes = judge::partition(&world.facts(), &at());
    assert_eq!(of(&causes, Kind::DiskFull).partitions, [at()]);

    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    silent(&mut world, 1);
    let [cluster, broker, partition] = headlines(&world);
    assert_eq!(
        (&*cluster, &*broker),
        ("1 partition is offline", "broker 1: 1 partition is offline")
    );
    assert!(partition.starts_with("t:0 is offline"), "{partition}");

    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    world.replica(1).held = true;
    let [.., partition] = headlines(&world);
    assert!(partition.starts_with("t:0 is offline: a write to the log of t:0"), "{partition}");

    // What concerns no partition is in the headline itself.
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    for broker in 1..=3 {
        world.health(broker).zookeeper_connected = false;
    }
    let [cluster, ..] = headlines(&world);
    assert!(cluster.starts_with("no broker that answers reaches ZooKeeper"), "{cluster}");
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    world.image.brokers.get_mut(&id(3)).unwrap().draining = true;
    let [cluster, ..] = headlines(&world);
    let draining = "every partition is served and whole, but broker 3 is being emptied";
    assert!(cluster.starts_with(draining), "{cluster}");
}

#[test]
fn partitions_are_counted_as_they_are_served() {
    let some = [
        (5, 0, "5 partitions are not well"),
        (5, 2, "5 partitions are not well, 2 of them offline"),
        (2, 2, "2 partitions are offline"),
    ];
    let cause = Cause::new(Kind::Electing, Severity::Offline, &[], "t:0 is waiting");
    for (unwell, offline, told) in some {
        let of = Counted { unwell, offline };
        assert_eq!(judge::of_cluster(3, std::slice::from_ref(&cause), of), told);
    }
}
