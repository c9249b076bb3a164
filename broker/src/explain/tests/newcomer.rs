//! What a newcomer was told wrongly once: about processes that stand still, moves without a leader, ages, in headlines, and at
//! too great length.

use barnabas_types::{Moving, TopicName, TopicPartition};

use super::of_the_cluster;
use super::world::{World, at, id, ids, out_of_isr, silent};
use crate::explain::cause::{Cause, Kind, Severity, in_order};
use crate::explain::facts::{Listener, Reached};
use crate::explain::judge::{self, Counted};
use crate::explain::{message, unwell};

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
    let [wake, look] = &dead.next[..] else { panic!("{dead:#?}") };
    assert_eq!(wake.command, "kill -CONT 102");
    assert!(look.command.starts_with("ps ") && look.place.contains("broker 2"), "{look:?}");
    assert!(!dead.heals_by_itself && dead.healing.contains("goes on"), "{dead:#?}");

    let mut follower = World::new(&[1, 2], &[1]);
    hung(&mut follower, 2);
    let causes = follower.causes();
    let down = of(&causes, Kind::BrokerDown);
    assert_eq!(down.next[0].command, "kill -CONT 102", "{down:#?}");
    // Of one whose port refuses there is no process that could go on.
    let found = follower.found(2);
    (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
    let causes = follower.causes();
    let down = of(&causes, Kind::BrokerDown);
    assert_eq!(down.next[0].command, "barnabas broker --config /etc/b2.yaml", "{down:#?}");
    // Of one that nobody knows only that it is to be started, and not which process was it.
    follower.processes.clear();
    let causes = follower.causes();
    assert_eq!(of(&causes, Kind::BrokerDown).next[0].command, "barnabas broker --config FILE");
    silent(&mut follower, 2);
    let causes = follower.causes();
    assert!(of(&causes, Kind::BrokerDown).next[0].command.starts_with("ps -C barnabas"));
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
    let cluster = with(judge::cluster(&facts, Severity::WritesRefused));
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

/// `min.insync.replicas` is not reached by so many partitions of each of these topics.
fn below(topics: &[&str], each: i32) -> Vec<Cause> {
    let mut world = World::new(&[1, 2], &[1]);
    world.min_insync(2).dead(2);
    let topic = world.topic().clone();
    for name in topics {
        let mut many = topic.clone();
        for index in 0..each {
            many.partitions.insert(index, topic.partitions[&0].clone());
        }
        world.image.topics.insert(TopicName::new(name).unwrap(), many);
    }
    let facts = world.facts();
    let all = |(name, topic): (&TopicName, &barnabas_types::TopicImage)| {
        let name = name.clone();
        let at = |partition| TopicPartition { topic: name.clone(), partition };
        topic.partitions.keys().copied().map(at).collect::<Vec<_>>()
    };
    let causes = facts.image.topics.iter().flat_map(all);
    causes.flat_map(|at| judge::partition(&facts, &at)).collect()
}

#[test]
fn what_is_wrong_with_a_topic_is_told_once_and_what_is_left_out_is_counted() {
    let told = in_order(below(&["a", "b"], 25));
    let shown: Vec<(&str, usize)> =
        told.iter().map(|cause| (cause.summary.as_str(), cause.partitions.len())).collect();
    let refuses =
        |of: &str| format!("{of} refuses acks=all: 1 of at least 2 replicas are in the ISR");
    assert_eq!(
        shown,
        [
            ("broker 2 is down", 51),
            (&*refuses("a (25 partitions)"), 25),
            (&*refuses("b (25 partitions)"), 25),
            (&*refuses("t:0"), 1),
        ]
    );
    let steps: Vec<&str> = told[1].next.iter().map(|step| step.command.as_str()).collect();
    let lower = "barnabas topic alter a --config min.insync.replicas=1";
    assert_eq!(steps, ["barnabas broker --config /etc/b2.yaml", lower]);

    let names: Vec<String> = (0..120).map(|n| format!("many{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let causes = below(&names, 1);
    let all = in_order(causes.clone()).len();
    let facts = World::new(&[1], &[1]).facts();
    let answer = message::response(&facts, of_the_cluster("121 wrong".into()), causes);
    assert_eq!(answer.causes_left_out, 22);
    assert_eq!((all, answer.causes.len()), (122, message::CAUSES_MAX));
    assert_eq!(answer.headline, "121 wrong; 22 more causes than the 100 below are left out");
    let few = message::response(&facts, of_the_cluster("wrong".into()), below(&[], 0));
    assert_eq!(few.headline, "wrong");
}

#[test]
fn the_price_of_an_unclean_election_stays_with_its_partition() {
    let mut world = World::new(&[1, 2], &[1, 2]);
    world.dead(1).leaderless(&[1]);
    let causes = world.causes();
    let first = of(&causes, Kind::OnlyOutOfSyncAlive);
    let mut second = first.clone();
    second.summary = first.summary.replace("t:0", "t:1");
    second.partitions = vec![TopicPartition { partition: 1, ..at() }];
    assert!(first.summary.ends_with("(broker 1); out of sync, but alive: broker 2"), "{first:?}");
    assert_eq!(in_order(vec![first.clone(), second]).len(), 2);
}

#[test]
fn a_follower_that_is_slow_in_many_partitions_is_told_of_each_by_name_and_not_without_end() {
    let mut world = World::new(&[1, 2], &[1, 2]);
    out_of_isr(&mut world, 2);
    world.replica(1).followers[0].log_end = Some(3);
    let causes = world.causes();
    let slow = of(&causes, Kind::SlowFollower);
    assert!(slow.evidence[0].starts_with("t:0: broker 2 has everything to offset 3"), "{slow:#?}");
    let elsewhere = |partition| {
        let mut cause = slow.clone();
        cause.evidence = slow
            .evidence
            .iter()
            .map(|fact| fact.replace("t:0", &format!("t:{partition}")))
            .collect();
        cause.partitions = vec![TopicPartition { partition, ..at() }];
        cause
    };
    let told = in_order((0..50).map(elsewhere).collect());
    assert_eq!((told.len(), told[0].partitions.len(), told[0].evidence.len()), (1, 50, 21));
    assert!(told[0].evidence[20].ends_with("more such facts are left out"), "{:?}", told[0]);
}
