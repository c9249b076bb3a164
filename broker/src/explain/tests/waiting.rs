//! Partitions that wait for the same brokers are one cause, whatever the moment of their failure.

use barnabas_types::{BrokerId, TopicName, TopicPartition};

use super::world::{World, at, id};
use crate::explain::cause::{Kind, Severity, by_topic, in_order};
use crate::explain::facts::{Listener, Reached};
use crate::explain::{judge, judged};

/// 60 partitions of `t` and 10 of `u`, all like `t:0`.
fn many(world: &mut World) {
    let one = world.topic().partitions[&0].clone();
    world.topic().partitions.extend((1..60).map(|index| (index, one.clone())));
    let mut other = world.topic().clone();
    other.partitions.retain(|index, _| *index < 10);
    world.image.topics.insert(TopicName::new("u").unwrap(), other);
}

#[test]
fn what_waits_for_one_dead_broker_is_told_with_that_broker() {
    let mut world = World::new(&[1, 2, 3], &[1]);
    world.dead(1).leaderless(&[1]);
    many(&mut world);
    // One lives on without the broker.
    let served = world.topic().partitions.get_mut(&7).unwrap();
    served.state.leader = Some(id(2));
    served.state.isr = vec![(id(2), served.state.isr[0].1), (id(3), served.state.isr[0].1)];
    let facts = world.facts();
    let (looked, left_out, counted, awaited) = judged(&facts, |_| true);
    assert_eq!((counted.unwell, counted.offline, left_out), (70, 69, 0));
    assert_eq!(looked, [TopicPartition { partition: 7, ..at() }], "the others have their cause");
    let mut causes: Vec<_> = looked.iter().flat_map(|at| judge::partition(&facts, at)).collect();
    causes.extend(judge::cluster(&facts, Severity::Offline));
    let causes = in_order(judge::told_once(causes, awaited));
    let down: Vec<_> = causes.iter().filter(|cause| cause.kind == Kind::BrokerDown).collect();
    let [first] = down[..] else { panic!("{causes:#?}") };
    assert_eq!(&causes[0].severity, &Severity::Offline);
    assert_eq!(first.summary, "broker 1 is down, and 69 partitions wait for it: t 59, u 10");
    assert_eq!((first.partitions.len(), &first.brokers[..]), (70, &[id(1)][..]));
    assert!(
        first.evidence.contains(&"others are without its replica: t 1".to_owned()),
        "{first:#?}"
    );
    assert!(!first.heals_by_itself && first.healing.contains("started again"));
    assert!(first.next[0].command.contains("/etc/b1.yaml"), "{first:#?}");
    assert!(first.next.iter().all(|step| step.loses == Some(0)), "{first:#?}");
    assert!(first.next.last().unwrap().command.contains("explain partition t:0"));
    // Who asks about another broker is told what concerns that.
    let (_, _, counted, awaited) = judged(&facts, |at| at.topic.as_str() == "u");
    assert_eq!((counted.offline, awaited.len()), (10, 1));
}

#[test]
fn it_is_the_same_from_the_death_of_the_process_to_the_end_of_its_session() {
    let mut world = World::new(&[1, 2, 3], &[1]);
    many(&mut world);
    let told = |world: &World| {
        let facts = world.facts();
        let (_, _, counted, mut awaited) = judged(&facts, |_| true);
        assert_eq!((counted.offline, awaited.len()), (70, 1), "{awaited:#?}");
        (awaited.remove(0), judge::state_of_partition(&facts, &at(), &[]))
    };
    let found = world.found(1);
    (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
    let (suspected, state) = told(&world);
    assert_eq!((suspected.kind, state), (Kind::BrokerSuspected, "offline"));
    world.dead(1);
    let (ended, state) = told(&world);
    assert_eq!((ended.kind, state), (Kind::BrokerDown, "offline"));
    assert_eq!(suspected.summary, ended.summary);
    for (_, partition) in world.image.topics.values_mut().flat_map(|t| t.partitions.iter_mut()) {
        partition.state.leader = None;
    }
    assert_eq!(told(&world).0.summary, ended.summary);
}

#[test]
fn what_waits_alone_is_told_by_itself_and_so_is_what_waits_for_several_of_which_one_runs() {
    let mut world = World::new(&[1, 2, 3], &[1]);
    world.dead(1).leaderless(&[1]);
    assert_eq!(judge::waiting(&world.facts(), |_| true), []);
    many(&mut world);
    for partition in world.topic().partitions.values_mut() {
        partition.state.isr.push((id(2), partition.state.isr[0].1));
    }
    let waiting = judge::waiting(&world.facts(), |_| true);
    assert_eq!(waiting.len(), 1, "broker 2 lives, so those of t wait for an election");
    assert_eq!((waiting[0].partitions.len(), &waiting[0].brokers[..]), (10, &[BrokerId(1)][..]));
    world.dead(2);
    let waiting = judge::waiting(&world.facts(), |_| true);
    let counts: Vec<usize> = waiting.iter().map(|waiting| waiting.partitions.len()).collect();
    assert_eq!(counts, [10, 60]);
    let both = judge::awaited(&world.facts(), &waiting[1]);
    assert_eq!(
        both.summary,
        "brokers 1 and 2 are down, and 60 partitions wait for one of them: t 60"
    );
}

#[test]
fn many_topics_are_counted_by_those_with_the_most() {
    let of = |topic: usize, partitions: i32| {
        let topic = TopicName::new(&format!("t{topic}")).unwrap();
        (0..partitions).map(move |partition| TopicPartition { topic: topic.clone(), partition })
    };
    let all: Vec<TopicPartition> = (1..=7).flat_map(|n: usize| of(n, n as i32)).collect();
    assert_eq!(by_topic(&all), "t7 7, t6 6, t5 5, t4 4, t3 3, 2 more topics 3");
}
