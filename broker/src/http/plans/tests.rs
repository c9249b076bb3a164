//! Tests of plans without a controller: what each kind says, what has moved on, what is kept.

use std::time::Duration;

use barnabas_controller::{CreatedTopic, Obstruction, StopVerdict};
use barnabas_types::{
    BrokerEpoch, ClusterImage, ConfigEntity, Partition, PartitionEpoch, TopicConfig, TopicImage,
    TopicName, TopicPartition,
};

use super::kept::{PLAN_AGE_MAX, PLANS_MAX, RUNNING_MAX};
use super::made_for::{MadeFor, Part};
use super::wanted::At;
use super::*;
use crate::testing::{registered, tp};

/// Topic `t` with min.insync.replicas 2 on brokers 1 to 4: a partition for each (replicas, leader, ISR).
fn image(partitions: &[(&[i32], i32, &[i32])]) -> ClusterImage {
    let mut image = ClusterImage::default();
    for id in 1..=4 {
        image.brokers.insert(BrokerId(id), registered(BrokerEpoch(i64::from(id))));
    }
    let partition = |(replicas, leader, isr): &(&[i32], i32, &[i32])| {
        let mut partition = Partition {
            assigned_replicas: replicas.iter().copied().map(BrokerId).collect(),
            ..Partition::default()
        };
        partition.state.leader = Some(BrokerId(*leader)).filter(|_| *leader >= 0);
        partition.state.isr =
            isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(i64::from(*id)))).collect();
        partition.state.partition_epoch = PartitionEpoch(5);
        partition
    };
    let topic = TopicImage {
        config: TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() },
        partitions: (0..).zip(partitions.iter().map(partition)).collect(),
        ..TopicImage::default()
    };
    image.topics.insert(TopicName::new("t").unwrap(), topic);
    image
}

fn partition_of(image: &mut ClusterImage, index: i32) -> &mut Partition {
    let topic = image.topics.get_mut(&TopicName::new("t").unwrap()).unwrap();
    topic.partitions.get_mut(&index).unwrap()
}

fn texts(plan: &Plan) -> Vec<&str> {
    plan.risks.iter().map(|risk| risk.text.as_str()).collect()
}

fn target(partition: i32, replicas: &[i32]) -> Target {
    Target { topic: "t".to_owned(), partition, replicas: replicas.to_vec() }
}

#[test]
fn a_drain_says_who_leads_instead_and_what_stays() {
    let partitions: [(&[i32], i32, &[i32]); 4] = [
        (&[1, 2, 3], 1, &[1, 2, 3]),
        (&[2, 1, 3], 2, &[2, 1, 3]),
        (&[1, 2, 3], 1, &[1, 3]),
        (&[2, 3, 4], 2, &[2, 3, 4]),
    ];
    let mut image = image(&partitions);
    let stays = Obstruction {
        partition: tp("t", 2),
        reason: "1 live ISR member would be left".to_owned(),
        never: false,
    };
    let verdict = StopVerdict { never: false, partitions: 3, obstructions: vec![stays] };
    let plan = drain::drain(&image, BrokerId(1), &verdict).unwrap();
    assert_eq!(
        plan.steps,
        [
            "broker 1 is marked as draining, until it is undrained or starts again",
            "broker 2 leads t-0 instead of broker 1",
            "broker 1 leaves the ISR of t-1",
        ]
    );
    assert_eq!((plan.moves_leaders, plan.copies_bytes), (1, Some(0)));
    assert_eq!(plan.command, "barnabas broker drain 1");
    let told = texts(&plan);
    assert_eq!(told[0], "t-2 stays on it: 1 live ISR member would be left");
    assert_eq!(told[1], "2 partitions more stay on it");
    assert!(told[2].starts_with("2 partitions will have no in-sync replica to spare"), "{told:?}");
    // A follower that is being drained itself is passed over.
    image.brokers.get_mut(&BrokerId(2)).unwrap().draining = true;
    let plan = drain::drain(&image, BrokerId(1), &verdict).unwrap();
    assert_eq!(plan.steps[1], "broker 3 leads t-0 instead of broker 1");
    assert!(drain::drain(&image, BrokerId(2), &verdict).unwrap_err().message.contains("already"));
    assert_eq!(drain::drain(&image, BrokerId(9), &verdict).unwrap_err().status().as_u16(), 404);
    let back = drain::undrain(&image, BrokerId(2)).unwrap();
    assert_eq!((back.steps.len(), back.command.as_str()), (3, "barnabas broker undrain 2"));
    assert!(drain::undrain(&image, BrokerId(1)).unwrap_err().message.contains("not being drained"));
}

#[test]
fn an_election_names_what_moves_and_why_the_rest_stays() {
    let partitions: [(&[i32], i32, &[i32]); 4] =
        [(&[1, 2], 1, &[1, 2]), (&[1, 2], 2, &[1, 2]), (&[3, 2], 2, &[2]), (&[1, 4], -1, &[4])];
    let image = image(&partitions);
    let plan = elect::plan(&image, None).unwrap();
    assert_eq!(plan.steps, ["broker 1 leads t-1 instead of broker 2"]);
    assert_eq!(plan.act, plan::Act::ElectPreferred(vec![(tp("t", 1), PartitionEpoch(5))]));
    assert_eq!(plan.command, "barnabas leader elect t:1");
    assert_eq!(
        texts(&plan),
        [
            "t-2 stays as it is: broker 3, its preferred replica, is not in the ISR",
            "t-3 stays as it is: broker 1, its preferred replica, is not in the ISR",
        ]
    );
    let named = |partition| vec![At { topic: "t".to_owned(), partition }];
    assert!(elect::plan(&image, Some(&named(0))).unwrap_err().message.contains("lead already"));
    assert!(elect::plan(&image, Some(&named(2))).unwrap_err().message.contains("no preferred"));
    assert_eq!(elect::plan(&image, Some(&named(7))).unwrap_err().status().as_u16(), 404);
    let hostile = vec![At { topic: "<b>../x</b>".to_owned(), partition: 0 }];
    assert_eq!(elect::plan(&image, Some(&hostile)).unwrap_err().status().as_u16(), 400);
}

#[test]
fn a_move_says_what_is_copied_how_long_that_takes_and_what_it_costs() {
    let partitions: [(&[i32], i32, &[i32]); 3] =
        [(&[1, 2, 3], 1, &[1, 2, 3]), (&[2, 3], 2, &[2, 3]), (&[1, 2], 1, &[1, 2])];
    let image = image(&partitions);
    let sizes = reassign::Sizes::from([(tp("t", 0), 10_000), (tp("t", 1), 5_000)]);
    let targets = [target(0, &[2, 4]), target(1, &[2, 3, 4]), target(2, &[1, 2])];
    let plan = reassign::plan(&image, &targets, Some(1_000), &sizes).unwrap();
    assert_eq!(
        plan.steps,
        [
            "t-0: broker 4 copies it, brokers 1 and 3 delete it once that is in sync, another one leads instead of broker 1",
            "t-1: broker 4 copies it",
        ]
    );
    assert_eq!((plan.copies_bytes, plan.eta_ms), (Some(15_000), Some(15_000)));
    assert_eq!(plan.moves_leaders, 1);
    assert_eq!(
        plan.command,
        "barnabas topic set-replicas t --assignment '0:2,4;1:2,3,4' --throttle 1000"
    );
    assert_eq!(texts(&plan), ["t-0 has 2 replicas instead of 3"]);

    let unlimited = reassign::plan(&image, &targets, None, &reassign::Sizes::new()).unwrap();
    assert_eq!((unlimited.copies_bytes, unlimited.eta_ms), (None, None), "unknown, not 0");
    assert!(texts(&unlimited)[1].starts_with("no limit is set"));
    let order = reassign::plan(&image, &[target(0, &[3, 1, 2])], None, &sizes).unwrap();
    assert_eq!(order.steps, ["t-0: its preferred order becomes 3, 1 and 2"]);
    assert_eq!(order.copies_bytes, Some(0));
    let one = reassign::plan(&image, &[target(0, &[1])], None, &sizes).unwrap();
    assert!(one.risks[0].bad && one.risks[0].text.contains("acks=all are refused"));
    for (targets, part) in [
        (vec![target(2, &[1, 2])], "there already"),
        (vec![target(0, &[])], "a replica at least"),
        (vec![target(0, &[1, 1])], "named twice"),
        (vec![target(0, &[9])], "not registered"),
        (vec![target(0, &[4]), target(0, &[3])], "named twice"),
        (vec![target(9, &[1])], "no partition"),
        (vec![], "there already"),
    ] {
        let said = reassign::plan(&image, &targets, None, &sizes).unwrap_err().message;
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_new_topic_is_told_with_its_traps_and_a_command_that_can_be_pasted() {
    let image = image(&[]);
    let new = NewTopic {
        name: "new".to_owned(),
        overrides: [("retention.ms".to_owned(), "1000; rm -rf '/'".to_owned())].into(),
        validate_only: true,
        ..NewTopic::default()
    };
    let would = CreatedTopic { topic_id: None, partitions: 6, replication_factor: 1 };
    let plan = create::plan(&image, new.clone(), would, 1).unwrap();
    assert!(plan.steps[0].starts_with("topic new is created with 6 partitions, 1 replica each"));
    assert!(plan.risks[0].bad && plan.risks[0].text.starts_with("one replica"));
    assert_eq!(
        plan.command,
        "barnabas topic create new --partitions 6 --replication-factor 1 --config \
         'retention.ms=1000; rm -rf '\\''/'\\'''"
    );
    let plan::Act::CreateTopic(act) = &plan.act else { panic!("{:?}", plan.act) };
    assert_eq!((act.partitions, act.replication_factor), (Some(6), Some(1)));
    assert!(!act.validate_only, "it is run as it was checked");
    let hostile = NewTopic { name: "<img src=x>".to_owned(), ..new };
    assert_eq!(create::plan(&image, hostile, would, 1).unwrap_err().status().as_u16(), 400);
}

#[test]
fn settings_are_told_with_what_they_were_and_what_becoming_smaller_costs() {
    let mut image = image(&[(&[1, 2], 1, &[1, 2])]);
    let entity = settings::entity(&image, "topic:t").unwrap();
    let changes = |key: &str, value: &str| AlterConfig {
        entity: entity.clone(),
        replace: false,
        changes: vec![
            (key.to_owned(), SettingChange::Set(value.to_owned())),
            ("segment.ms".to_owned(), SettingChange::Delete),
        ],
        validate_only: true,
    };
    let plan = settings::plan(&image, changes("retention.ms", "1000")).unwrap();
    assert_eq!(plan.steps[0], "retention.ms of topic t becomes 1000, which is not set there");
    assert_eq!(
        plan.command,
        "barnabas topic alter t --config 'retention.ms=1000' --delete-config segment.ms"
    );
    assert!(plan.risks[0].bad && plan.risks[0].text.contains("are deleted"));
    let longer = settings::plan(&image, changes("retention.ms", "-1")).unwrap();
    assert!(longer.risks.is_empty(), "{:?}", longer.risks);
    let unclean =
        settings::plan(&image, changes("unclean.leader.election.enable", "true")).unwrap();
    assert!(unclean.risks[0].bad);
    // Somebody else sets something meanwhile.
    let topic = image.topics.get_mut(&TopicName::new("t").unwrap()).unwrap();
    topic.overrides.insert("retention.ms".to_owned(), "7".to_owned());
    assert_eq!(plan.made_for.moved_on(&image).unwrap(), "the settings of topic t have changed");
    for (scope, status) in [
        ("topic:none", 404),
        ("topic:../x", 400),
        ("broker:x", 400),
        ("broker:-1", 400),
        ("", 400),
        ("all", 400),
    ] {
        assert_eq!(
            settings::entity(&image, scope).unwrap_err().status().as_u16(),
            status,
            "{scope}"
        );
    }
    assert_eq!(settings::entity(&image, "cluster").unwrap(), ConfigEntity::Broker(None));
}

#[test]
fn whatever_a_plan_depends_on_makes_it_void_when_it_changes() {
    let partitions: [(&[i32], i32, &[i32]); 2] =
        [(&[1, 2, 3], 1, &[1, 2, 3]), (&[2, 3, 4], 2, &[2, 3, 4])];
    let before = image(&partitions);
    let made = |part| MadeFor::of(&before, part);
    let of_broker = made(Part::Broker(BrokerId(1)));
    let of_partition = made(Part::Partitions(vec![tp("t", 0)], vec![BrokerId(4)]));
    let absent = made(Part::Absent(TopicName::new("new").unwrap()));
    for made in [&of_broker, &of_partition, &absent] {
        assert_eq!(made.moved_on(&before), None);
    }
    let after = |change: &dyn Fn(&mut ClusterImage)| {
        let mut image = before.clone();
        change(&mut image);
        image
    };
    let epoch = after(&|image| partition_of(image, 0).state.partition_epoch = PartitionEpoch(6));
    let said = "t-0 is at partition epoch 6 now; the plan was made for 5";
    assert_eq!(of_broker.moved_on(&epoch).as_deref(), Some(said));
    assert_eq!(of_partition.moved_on(&epoch).as_deref(), Some(said));
    assert_eq!(absent.moved_on(&epoch), None);
    let other = after(&|image| partition_of(image, 1).state.partition_epoch = PartitionEpoch(6));
    assert_eq!(of_broker.moved_on(&other), None, "it has no replica there");
    let moved = after(&|image| partition_of(image, 1).assigned_replicas.push(BrokerId(1)));
    assert_eq!(of_broker.moved_on(&moved).as_deref(), Some("t-1 has come to be"));
    let anew = after(&|image| image.topics.values_mut().for_each(|t| t.incarnation.czxid = 9));
    assert_eq!(
        of_partition.moved_on(&anew).as_deref(),
        Some("topic t was deleted and created again")
    );
    let gone = after(&|image| image.topics.clear());
    assert!(of_broker.moved_on(&gone).unwrap().contains("is gone"));
    assert!(of_partition.moved_on(&gone).unwrap().contains("is gone"));
    let draining = after(&|image| image.brokers.get_mut(&BrokerId(4)).unwrap().draining = true);
    assert_eq!(of_partition.moved_on(&draining).as_deref(), Some("broker 4 is being drained"));
    let restarted =
        after(&|image| image.brokers.get_mut(&BrokerId(1)).unwrap().epoch = BrokerEpoch(99));
    assert_eq!(of_broker.moved_on(&restarted).as_deref(), Some("broker 1 has registered anew"));
    let died = after(&|image| drop(image.brokers.remove(&BrokerId(1))));
    assert!(of_broker.moved_on(&died).unwrap().contains("not registered any more"));
    let created = after(&|image| {
        image.topics.insert(TopicName::new("new").unwrap(), TopicImage::default());
    });
    assert_eq!(absent.moved_on(&created).as_deref(), Some("topic new exists now"));
}

#[test]
fn plans_are_few_and_young_and_run_once() {
    let image = image(&[(&[1, 2], 2, &[1, 2])]);
    let plan = || elect::plan(&image, None).unwrap();
    let (mut kept, start) = (Kept::default(), Instant::now());
    let status =
        |answer: Result<(), Refusal>| answer.map_or_else(|no| no.status().as_u16(), |()| 200);
    for n in 0..PLANS_MAX + 1 {
        kept.add(start, n.to_string(), plan());
    }
    assert_eq!(status(kept.begin(start, "0")), 404, "it made room");
    assert_eq!(status(kept.begin(start, "../1")), 404);
    assert_eq!(status(kept.begin(start, "")), 404);
    for n in 1..=RUNNING_MAX {
        assert_eq!(status(kept.begin(start, &n.to_string())), 200);
    }
    assert_eq!(status(kept.begin(start, "1")), 409, "it runs");
    assert_eq!(status(kept.begin(start, "60")), 429, "so many run");
    kept.end(start, "1", json!({ "outcome": "done" }));
    assert_eq!(status(kept.begin(start, "1")), 409, "it was run");
    assert_eq!(kept.get(start, "1").unwrap().1, Stage::Ended(json!({ "outcome": "done" })));
    // Those that run are not forgotten, however many come after them and however long they take.
    for n in 100..300 {
        kept.add(start, n.to_string(), plan());
    }
    let late = start + PLAN_AGE_MAX;
    assert_eq!(kept.get(late, "2").unwrap().1, Stage::Running);
    assert_eq!(status(kept.begin(late, "299")), 404, "too old");
    assert_eq!(kept.get(late - Duration::from_millis(1), "4").unwrap().1, Stage::Running);
}

#[test]
fn progress_is_read_off_the_cluster() {
    let mut image = image(&[(&[1, 2, 3], 1, &[1, 2, 3]), (&[2, 1, 3], 2, &[2, 3])]);
    let of = |image: &ClusterImage, act: &plan::Act| {
        let told = progress::of(image, act);
        (told["done"].as_u64(), told["of"].as_u64())
    };
    let draining = plan::Act::SetDraining(BrokerId(1), true);
    assert_eq!(of(&image, &draining), (Some(1), Some(2)));
    let moves = vec![(tp("t", 0), vec![BrokerId(2), BrokerId(3)])];
    let moved = plan::Act::Reassign { moves, throttle: None };
    assert_eq!(of(&image, &moved), (Some(0), Some(1)));
    let partition = partition_of(&mut image, 0);
    partition.assigned_replicas = vec![BrokerId(2), BrokerId(3)];
    partition.moving.removing = vec![BrokerId(1)];
    assert_eq!(of(&image, &moved), (Some(0), Some(1)), "it is under way");
    partition_of(&mut image, 0).moving.removing.clear();
    assert_eq!(of(&image, &moved), (Some(1), Some(1)));
    let gone = TopicPartition { topic: TopicName::new("gone").unwrap(), partition: 0 };
    let elected =
        plan::Act::ElectPreferred(vec![(gone, PartitionEpoch(0)), (tp("t", 1), PartitionEpoch(0))]);
    assert_eq!(of(&image, &elected), (Some(1), Some(2)));
}
