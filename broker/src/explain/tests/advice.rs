//! What is told of the whole, of groups, and what is to be run: commands that can be pasted, the one that loses nothing first.

use barnabas_proto::v1;
use barnabas_types::{ClusterDelta, Moving, Now};

use super::world::{World, at, id, ids, out_of_isr, silent};
use super::{PARTITIONS, of_the_cluster};
use crate::explain::cause::{Cause, Kind, Severity, Step, first, in_order};
use crate::explain::facts::{BrokerFacts, Listener, Reached};
use crate::explain::judge::{self, Coordinated, Lost, Subject};
use crate::explain::message;

fn of(causes: &[Cause], kind: Kind) -> &Cause {
    causes
        .iter()
        .find(|cause| cause.kind == kind)
        .unwrap_or_else(|| panic!("{kind:?}: {causes:#?}"))
}

/// What stands at the beginning of a line that a shell can run.
const RUN: &[&str] = &["barnabas ", "kill ", "nc ", "ps ", "iostat ", "df "];

#[test]
fn every_step_can_be_pasted_and_the_first_one_loses_nothing() {
    for (what, wrong, _) in PARTITIONS {
        let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
        wrong(&mut world);
        for cause in world.causes() {
            let safe = cause.next.iter().find(|step| step.loses == Some(0));
            assert!(safe.is_some_and(|safe| *safe == cause.next[0]), "{what}: {cause:#?}");
            for Step { command, cost, .. } in &cause.next {
                assert!(RUN.iter().any(|run| command.starts_with(run)), "{what}: {command}");
                // The only broker that nobody knows is the one that was never seen.
                let unknown = command.contains("FILE") || command.contains("PID");
                assert!(!unknown || cause.brokers.contains(&id(4)), "{what}: {command}");
                assert!(!command.contains("...") && !command.contains('('), "{what}: {command}");
                assert!(!cost.is_empty(), "{what}: {command}");
            }
        }
    }
}

#[test]
fn a_process_id_is_named_only_of_the_registration_that_it_was_told_under() {
    let mut world = World::new(&[1, 2], &[1, 2]);
    silent(&mut world, 2);
    assert_eq!(world.facts().process(id(2)).pid, 102);
    world.image.brokers.get_mut(&id(2)).unwrap().epoch.0 += 1;
    let process = world.facts().process(id(2));
    assert_eq!((process.pid, &*process.config_file), (0, "/etc/b2.yaml"));
}

#[test]
fn without_zookeeper_the_same_is_told_whatever_is_asked() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    for broker in 1..=3 {
        world.health(broker).zookeeper_connected = false;
    }
    let severities = |world: &World| {
        let facts = world.facts();
        let partition = judge::partition(&facts, &at());
        let worst = judge::undecided(&partition);
        let cluster = judge::cluster(&facts, worst);
        [partition, cluster].map(|causes| of(&causes, Kind::ZooKeeperUnreachable).severity)
    };
    assert_eq!(severities(&world), [Severity::WritesRefused; 2]);
    let causes = world.causes();
    let headline = judge::headline(&world.facts(), &at(), &causes).unwrap();
    assert!(headline.starts_with("t:0: broker 1 leads, ISR 1, 2 and 3"), "{headline}");
    assert!(headline.contains("but no broker that answers reaches ZooKeeper"), "{headline}");
    // What stands still waits for it.
    world.leaderless(&[1, 2]);
    assert_eq!(severities(&world), [Severity::Offline; 2]);
}

#[test]
fn too_few_replicas_for_min_insync_replicas_are_told_what_loses_nothing_first() {
    let commands = |replicas: &[i32], min| {
        let mut world = World::new(replicas, replicas);
        let causes = world.min_insync(min).causes();
        let cause = of(&causes, Kind::BelowMinIsr);
        assert!(!cause.heals_by_itself && cause.next.iter().all(|step| step.loses == Some(0)));
        cause.next.iter().map(|step| step.command.clone()).collect::<Vec<_>>()
    };
    let (more, lower) = (
        "barnabas topic set-replicas t --replication-factor 2",
        "barnabas topic alter t --config min.insync.replicas=1",
    );
    assert_eq!(commands(&[1], 2), [more, lower]);
    let lower = "barnabas topic alter t --config min.insync.replicas=3";
    assert_eq!(commands(&[1, 2, 3], 4), [lower], "there are three brokers");
}

#[test]
fn a_full_disk_is_left_for_a_broker_that_has_room() {
    let told = |replicas: &[i32]| {
        let mut world = World::new(replicas, replicas);
        world.health(1).directories[0].room = "exhausted".to_owned();
        let causes = world.causes();
        let steps = of(&causes, Kind::DiskFull).next.iter();
        steps.map(|step| (step.command.clone(), step.loses)).collect::<Vec<_>>()
    };
    let two = told(&[1, 2]);
    assert_eq!(two[0], ("barnabas topic set-replicas t --assignment 0:3,2".to_owned(), Some(0)));
    assert!(two[1].0.starts_with("df -h /data"), "{two:?}");
    let delete = "barnabas topic delete-records t --partition 0 --before 50";
    assert_eq!(two[2], (delete.to_owned(), Some(50)));
    assert!(told(&[1, 2, 3])[0].0.starts_with("df -h /data"), "nobody else is there");
    let mut moving = World::new(&[1, 2], &[1, 2]);
    moving.health(1).directories[0].room = "exhausted".to_owned();
    let partition = moving.topic().partitions.get_mut(&0).unwrap();
    partition.assigned_replicas = ids(&[3, 1, 2]);
    partition.moving = Moving { adding: ids(&[3]), removing: ids(&[1]), throttle: None };
    let causes = moving.causes();
    assert!(of(&causes, Kind::DiskFull).next[0].command.starts_with("df "), "it moves already");
}

fn group(state: &str, offsets: &[i64]) -> v1::GroupHealth {
    let offset =
        |offset: &i64| v1::GroupOffset { topic: "t".to_owned(), partition: 0, offset: *offset };
    v1::GroupHealth {
        coordinated: true,
        state: state.to_owned(),
        generation: 4,
        offsets: offsets.iter().map(offset).collect(),
        ..Default::default()
    }
}

#[test]
fn a_group_without_members_is_trouble_if_there_is_something_to_read() {
    let world = World::new(&[1, 2, 3], &[1, 2, 3]);
    let judged = |health: &v1::GroupHealth| {
        let (offsets, facts) = (at(), world.facts());
        let of = Coordinated { group: "g", at: Some(&offsets), health: Some(health) };
        judge::group(&facts, of)
    };
    let read = judged(&group("Empty", &[100]));
    assert_eq!(of(&read, Kind::NoMembers).severity, Severity::Notice);
    let behind = judged(&group("Empty", &[40]));
    let cause = of(&behind, Kind::NoMembers);
    assert_eq!(cause.severity, Severity::Degraded);
    let lag = "t:0: committed 40, log end 100, lag 60".to_owned();
    assert!(cause.evidence.contains(&lag), "{cause:#?}");
    assert!(judged(&group("Stable", &[40])).is_empty(), "it is being read");
    let lags = judge::lags(&world.facts(), &group("Stable", &[40]));
    assert_eq!(lags, ["lag 60 records in 1 partitions".to_owned(), lag]);
    let mut unknown = World::new(&[1, 2, 3], &[1, 2, 3]);
    unknown.replica(1).busy = true;
    let lags = judge::lags(&unknown.facts(), &group("Stable", &[40]));
    assert_eq!(lags, ["of 1 more partitions the log end is not known"]);
}

#[test]
fn there_is_no_group_where_nobody_could_have_made_one() {
    let without = |world: &World| {
        let of = Coordinated { group: "g", at: None, health: None };
        judge::is_without_groups(&world.facts(), of)
    };
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    assert!(without(&world));
    world.image.controller = None;
    assert!(!without(&world), "nobody has told of the topics");
    let mut few = World::new(&[1, 2, 3], &[1, 2, 3]);
    few.dead(3);
    assert!(!without(&few), "a group may wait for the third broker");
    let of = Coordinated { group: "g", at: None, health: None };
    let causes = judge::group(&few.facts(), of);
    let start = &unavailable(&causes).next[0];
    assert_eq!(start.command, "barnabas broker --config /etc/b3.yaml");
}

fn unavailable(causes: &[Cause]) -> &Cause {
    of(causes, Kind::CoordinatorUnavailable)
}

#[test]
fn a_cluster_tells_of_what_no_partition_that_is_there_has() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    // One without anything to hold runs on without a registration, another one was taken away.
    for broker in [4, 5] {
        let found = BrokerFacts {
            kafka: String::new(),
            admin: String::new(),
            reached: match broker {
                4 => Reached::Answered(Box::default()),
                _ => Reached::Refused,
            },
            listener: Listener::NotTried,
        };
        world.brokers.insert(id(broker), found);
    }
    world.health(2).waiting_groups = vec![v1::WaitingGroup {
        group: "slow one".to_owned(),
        state: "PreparingRebalance".to_owned(),
        state_age_ms: 90_000,
        members: 3,
    }];
    let facts = world.facts();
    let mut causes = judge::cluster(&facts, Severity::WritesRefused);
    causes.extend(judge::groups_waiting(&facts));
    let kinds: Vec<Kind> = in_order(causes.clone()).iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [Kind::BrokerFenced, Kind::GroupRebalancing]);
    let waits = of(&causes, Kind::GroupRebalancing);
    assert_eq!((waits.age, waits.severity), (Some((90_000, false)), Severity::Degraded));
    assert!(waits.evidence.contains(&"broker 2: it coordinates the group".to_owned()));
    assert_eq!(waits.next[0].command, "barnabas group describe 'slow one'");

    // Groups stand still with their partition.
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    world.leaderless(&[1, 2]);
    let offline = judge::partition(&world.facts(), &at());
    let groups = judge::without_coordinator(&at(), &offline).unwrap();
    assert!(groups.summary.contains("in t:0 have no coordinator"), "{groups:?}");
    assert!(judge::without_coordinator(&at(), &[]).is_none());
}

#[test]
fn what_was_lost_within_a_day_is_worth_knowing() {
    let facts = World::new(&[1], &[1]).facts();
    assert_eq!(judge::losses(&facts, &[], false), None);
    let lost = |from, class: &str| Lost {
        broker: 2,
        at: at(),
        from,
        to: None,
        class: class.to_owned(),
        cause: "truncated".to_owned(),
        age_ms: 60_000,
    };
    let all = [lost(5, "acks=1"), lost(9, "acks=all"), lost(12, "acks=1")];
    let cause = judge::losses(&facts, &all, true).unwrap();
    assert!(cause.summary.starts_with("at least 3 ranges"), "{cause:?}");
    assert_eq!((cause.severity, cause.age), (Severity::Notice, Some((60_000, false))));
    assert_eq!(cause.partitions, [at()]);
    assert_eq!(
        cause.evidence[..2],
        ["broker 3: 1 of class acks=all", "broker 3: 2 of class acks=1"]
    );
    assert!(cause.evidence[2].contains("offsets 5 to an unknown end"), "{cause:?}");
    assert_eq!(cause.next[0].command, "barnabas ledger verify --since 24h");
}

#[test]
fn what_was_looked_for_and_is_not_there_is_said_as_far_as_it_is_known() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    let names = |world: &World| {
        let causes = world.causes();
        let told = judge::ruled_out(&world.facts(), Subject::Partition, &causes);
        told.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert!(names(&world).contains(&Kind::DiskFull) && names(&world).contains(&Kind::BrokerFenced));
    world.health(1).directories[0].room = "exhausted".to_owned();
    assert!(!names(&world).contains(&Kind::DiskFull));
    silent(&mut world, 2);
    out_of_isr(&mut world, 2);
    assert!(!names(&world).contains(&Kind::BrokerDown), "who knows how broker 2 is");
    let told = message::response(&world.facts(), of_the_cluster(String::new()), world.causes());
    let disks = told.ruled_out.iter().find(|one| one.cause == "directory_failed").unwrap();
    assert!(disks.text.contains("brokers 1 and 3"), "{disks:?}");
}

#[test]
fn every_fact_says_whose_word_it_is_and_how_old_it_may_be() {
    let mut world = World::new(&[1, 2], &[1]);
    world.dead(2);
    world.health(1).directories[0].room = "exhausted".to_owned();
    let told = message::response(&world.facts(), of_the_cluster(String::new()), world.causes());
    let facts = |name: &str| {
        let cause = told.causes.iter().find(|cause| cause.name == name).unwrap();
        cause.evidence.iter().map(|f| (f.source.as_str(), f.age_ms)).collect::<Vec<_>>()
    };
    assert_eq!(facts("disk_full"), [("broker 1", Some(40))]);
    let down = facts("broker_down");
    assert_eq!(
        down,
        [("broker 3, as it knows the cluster", None), ("asked by broker 3", Some(40))]
    );
}

#[test]
fn something_is_named_in_one_word() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    let partition = |world: &World| {
        let causes = world.causes();
        judge::state_of_partition(&world.facts(), &at(), &causes)
    };
    assert_eq!(partition(&world), "online");
    out_of_isr(&mut world, 2);
    assert_eq!(partition(&world), "under_replicated");
    world.min_insync(3);
    assert_eq!(partition(&world), "under_min_isr");
    silent(&mut world, 1);
    assert_eq!(partition(&world), "offline");
    world.image.brokers.get_mut(&id(2)).unwrap().draining = true;
    world.dead(3);
    let facts = world.facts();
    let brokers = [1, 2, 3].map(|broker| judge::state_of_broker(&facts, id(broker)));
    assert_eq!(brokers, ["silent", "draining", "dead"]);
    assert_eq!(judge::of_causes(&[]), "well");
    assert!(first(&world.causes()).is_some_and(|_| judge::of_causes(&world.causes()) == "offline"));
    let before = world.image.clone();
    world.image.topics.clear();
    world.ages.note(Now(2_000), &before, &world.image, (&ClusterDelta::default(), &[at().topic]));
    assert_eq!(partition(&world), "deleted");
}
