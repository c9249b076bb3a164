//! The timeline beside a real core: what becomes a failover, what belongs to it, and when it is told.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterPartition, Controller, ControllerEvent, Defaults, Effects, LoadedPartition, LoadedTopic,
    PartitionWrite, RequestId, Snapshot, WriteOutcome,
};
use barnabas_proto::convert::{LeaderServed, LeadersServed};
use barnabas_proto::v1;
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, FailedReplicas, LeaderEpoch, Now,
    PartitionEpoch, PartitionState, TopicConfig, TopicName, TopicPartition,
};

use super::{
    DIRECTORIES_WITHIN_US, Heard, LostController, Moment, OPEN_MAX, SERVED_WITHIN_MAX_US, Tracker,
};

mod early;
mod rounds;

/// Topics and brokers as in the core's own tests.
#[path = "../../core/tests/common/mod.rs"]
mod common;

use common::{TERM, b, broker, brokers, incarnation, stored};

fn at(partition: i32) -> TopicPartition {
    common::at("t", partition)
}

/// Brokers 1, 2 and 3 under the epochs 101, 102 and 103.
fn three() -> BTreeMap<BrokerId, BrokerImage> {
    brokers(&[(1, 101), (2, 102), (3, 103)])
}

fn state(leader: i32, isr: &[i32]) -> PartitionState {
    let members: Vec<(i32, i64)> = isr.iter().map(|id| (*id, 100 + i64::from(*id))).collect();
    stored(leader, 1, &members)
}

/// A term in which a test is everything else: ZooKeeper, the brokers, and the clock.
struct World {
    core: Controller,
    tracker: Tracker,
    us: i64,
    open: Vec<PartitionWrite>,
}

impl World {
    /// Topic `t`: each partition with its replicas (all in the ISR), the first of which leads.
    fn new(lost: Option<LostController>, partitions: &[&[i32]]) -> Self {
        Self::with(lost, three(), partitions)
    }

    fn with(
        lost: Option<LostController>,
        brokers: BTreeMap<BrokerId, BrokerImage>,
        partitions: &[&[i32]],
    ) -> Self {
        let defaults = Defaults {
            num_partitions: 1,
            default_replication_factor: 1,
            topic: TopicConfig::default(),
        };
        let mut world = Self {
            core: Controller::new(b(1), TERM, defaults),
            tracker: Tracker::new(b(1), TERM, lost, Moment { us: 0, unix_ms: 1_000_000 }),
            us: 0,
            open: Vec::new(),
        };
        let partition = |replicas: &&[i32]| LoadedPartition {
            assignment: Assignment::settled(replicas.iter().map(|id| b(*id)).collect()),
            state: Some(state(replicas[0], replicas)),
        };
        let topic = LoadedTopic {
            incarnation: incarnation(100),
            version: 0,
            overrides: BTreeMap::new(),
            partitions: (0..).zip(partitions.iter().map(partition)).collect(),
            deleting: false,
        };
        let topics = BTreeMap::from([(TopicName::new("t").unwrap(), topic)]);
        let snapshot = Snapshot { brokers, topics, ..Snapshot::default() };
        world.pass(1);
        world.step(ControllerEvent::Loaded(snapshot));
        world
    }

    /// Lets so many milliseconds pass.
    fn pass(&mut self, ms: i64) {
        self.us += ms * 1000;
    }

    fn step(&mut self, event: ControllerEvent) {
        let heard = Heard::of(&event, &self.core);
        let mut effects = Effects::default();
        self.core.step(Now(u64::try_from(self.us / 1000).unwrap()), event, &mut effects);
        let at = Moment { us: self.us, unix_ms: 1_000_000 + self.us / 1000 };
        self.tracker.stepped(at, &heard, &self.core, &effects);
        self.open.extend(effects.partition_writes);
    }

    /// Ends every write under way, one millisecond after the other.
    fn apply(&mut self, outcome: impl Fn(&PartitionWrite) -> WriteOutcome) {
        for write in std::mem::take(&mut self.open) {
            self.pass(1);
            let outcome = outcome(&write);
            self.step(ControllerEvent::Written { write: write.write, outcome });
        }
    }

    fn apply_all(&mut self) {
        while !self.open.is_empty() {
            self.apply(|_| WriteOutcome::Applied);
        }
    }

    /// The process of a broker is gone: its stream breaks, a millisecond later its ports refuse.
    fn suspect(&mut self, id: i32) {
        let (broker, broker_epoch) = (b(id), self.core.image().brokers[&b(id)].epoch);
        self.step(ControllerEvent::PushBroken { broker, broker_epoch });
        self.pass(1);
        self.step(ControllerEvent::BrokerSuspected { broker, broker_epoch });
    }

    /// A broker acknowledges the present image, two milliseconds after it was sent.
    fn ack(&mut self, id: i32) {
        let (broker, version) = (b(id), self.core.version());
        let broker_epoch = self.core.image().brokers[&broker].epoch;
        self.tracker.sent(self.us, broker, version);
        self.pass(2);
        let reports = Vec::new();
        self.step(ControllerEvent::PushAcked { broker, broker_epoch, version, reports });
    }

    fn register(&mut self, change: impl FnOnce(&mut BTreeMap<BrokerId, BrokerImage>)) {
        let mut brokers = self.core.image().brokers.clone();
        change(&mut brokers);
        self.step(ControllerEvent::Brokers(brokers));
    }

    fn due(&mut self) -> Vec<v1::Failover> {
        self.tracker.due(self.us)
    }

    /// The one failover that is due.
    fn one(&mut self) -> v1::Failover {
        let mut due = self.due();
        assert_eq!(due.len(), 1, "{due:?}");
        due.remove(0)
    }

    /// These brokers acknowledge the present image, one after the other.
    fn ack_all(&mut self, ids: &[i32]) {
        ids.iter().for_each(|id| self.ack(*id));
    }

    /// The process of a broker is killed, what follows is written, and the other two know.
    fn kill(&mut self, id: i32) {
        self.suspect(id);
        self.apply_all();
        let others: Vec<i32> = (1..=3).filter(|other| *other != id).collect();
        self.ack_all(&others);
    }

    /// A new leader tells, 200 ms after its push, when it first appended and acknowledged.
    fn serves(&mut self, partition: i32, append_ms: u64, ack_ms: u64) {
        let (leader, leader_epoch) = self.leader(partition);
        let told = LeaderServed {
            partition: at(partition),
            leader_epoch,
            led_ms: 200,
            first_append_ms: Some(append_ms),
            first_ack_ms: Some(ack_ms),
        };
        self.tracker.served(self.us, &LeadersServed { leader, partitions: vec![told] });
    }

    /// A broker cannot serve the replicas of these partitions.
    fn fails_to_serve(&mut self, id: i32, sequence: u64, partitions: &[i32]) {
        let report = FailedReplicas {
            broker: b(id),
            broker_epoch: self.core.image().brokers[&b(id)].epoch,
            sequence,
            replicas: partitions
                .iter()
                .map(|partition| (at(*partition), incarnation(100)))
                .collect(),
        };
        self.step(ControllerEvent::ReplicasFailed { request: RequestId(3), report });
        self.apply_all();
    }

    fn leader(&self, partition: i32) -> (BrokerId, LeaderEpoch) {
        let state = &self.core.image().topics[&at(partition).topic].partitions[&partition].state;
        (state.leader.unwrap(), state.leader_epoch)
    }

    /// The leader proposes an ISR with everybody in it who is registered.
    fn propose_all(&mut self, partition: i32) {
        let known = &self.core.image().topics[&at(partition).topic].partitions[&partition];
        let brokers = &self.core.image().brokers;
        let isr = known.assigned_replicas.iter().map(|id| (*id, brokers[id].epoch)).collect();
        let leader = known.state.leader.unwrap();
        let proposal = AlterPartition {
            leader,
            broker_epoch: brokers[&leader].epoch,
            partition: at(partition),
            incarnation: incarnation(100),
            leader_epoch: known.state.leader_epoch,
            partition_epoch: known.state.partition_epoch,
            isr,
        };
        self.step(ControllerEvent::AlterPartition { request: RequestId(1), proposal });
    }
}

fn names(failover: &v1::Failover) -> Vec<&str> {
    failover.phases.iter().map(|phase| phase.name.as_str()).collect()
}

fn ms(failover: &v1::Failover, name: &str) -> u64 {
    let phase = failover.phases.iter().rev().find(|phase| phase.name == name);
    phase.unwrap_or_else(|| panic!("no {name} in {failover:?}")).at_us / 1000
}

#[test]
fn a_killed_leader_is_one_failover_whose_phases_are_in_order() {
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1], &[1, 2, 3]]);
    world.pass(10_000);
    world.suspect(2);
    world.pass(1);
    assert_eq!(world.open.len(), 3);
    world.apply_all();
    let early = world.one();
    assert_eq!(world.due(), [], "nothing new before everybody knows");
    world.ack(3);
    world.ack(1);
    let told = world.one();
    assert_eq!((&early.id, early.phases.len()), (&told.id, 5), "{early:?}");
    assert_eq!(
        names(&told),
        ["stream_broke", "suspected", "decided", "first_written", "written", "pushed", "pushed"]
    );
    let times: Vec<u64> = told.phases.iter().map(|phase| phase.at_us / 1000).collect();
    assert_eq!(times, [0, 1, 1, 3, 5, 7, 9]);
    assert_eq!((told.phases[5].broker_id, told.phases[5].sent_us), (Some(3), Some(5_000)));
    assert_eq!(
        (told.id.as_str(), told.cause.as_str(), told.was_controller),
        ("7-1", "suspicion", false)
    );
    assert_eq!((told.broker_id, told.broker_epoch), (2, Some(102)));
    assert_eq!((told.moved, told.shrunk, told.leaderless), (2, 1, 0));
    assert_eq!((told.controller_id, told.controller_epoch), (1, 7));
    assert_eq!(told.at_ms, 1_010_001, "the first sign, by the calendar's clock");
    assert_eq!(world.due(), []);
}

#[test]
fn new_leaders_tell_when_they_appended_and_acknowledged() {
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1]]);
    world.kill(2);
    world.due();
    let began = world.us;
    for (partition, append_ms, ack_ms) in [(0, 20, 30), (1, 5, 90)] {
        let (leader, leader_epoch) = world.leader(partition);
        world.us = began + 200_000;
        let told = LeaderServed {
            partition: at(partition),
            leader_epoch,
            led_ms: 200,
            first_append_ms: Some(append_ms),
            first_ack_ms: Some(ack_ms),
        };
        let served = LeadersServed { leader, partitions: vec![told.clone()] };
        world.tracker.served(world.us, &served);
        // Again, of an earlier epoch, and by somebody else: no news.
        world.tracker.served(world.us, &served);
        let older = LeaderServed { leader_epoch: LeaderEpoch(1), ..told.clone() };
        world.tracker.served(world.us, &LeadersServed { leader, partitions: vec![older] });
        let served = LeadersServed { leader: b(2), partitions: vec![told] };
        world.tracker.served(world.us, &served);
    }
    assert_eq!(world.due(), [], "not twice in a second");
    world.pass(1_000);
    let told = world.one();
    assert_eq!((told.appended, told.acknowledged), (2, 2));
    let zero = began / 1000 - i64::try_from(ms(&told, "pushed")).unwrap();
    let since_push = |name| i64::try_from(ms(&told, name)).unwrap() + zero - began / 1000;
    let times = ["first_append", "last_append", "first_ack", "last_ack"].map(since_push);
    assert_eq!(times, [5, 20, 30, 90]);
    let last = told.phases.iter().find(|phase| phase.name == "last_ack").unwrap();
    assert_eq!((last.partition, last.since_push_ms, last.broker_id), (Some(1), Some(90), Some(3)));
}

#[test]
fn what_a_leader_first_serves_a_minute_later_is_no_part_of_the_failover() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.kill(2);
    world.due();
    world.us += SERVED_WITHIN_MAX_US + 2_000_000;
    let (leader, leader_epoch) = world.leader(0);
    let told = LeaderServed {
        partition: at(0),
        leader_epoch,
        led_ms: 62_000,
        first_append_ms: Some(61_900),
        first_ack_ms: Some(61_950),
    };
    world.tracker.served(world.us, &LeadersServed { leader, partitions: vec![told] });
    assert_eq!(world.due(), []);
}

#[test]
fn the_isr_is_restored_when_all_that_it_touched_have_as_many_members_again() {
    let mut world = World::new(None, &[&[2, 1, 3], &[1, 2, 3]]);
    world.kill(2);
    assert!(!names(&world.one()).contains(&"isr_restored"));
    world.pass(20_000);
    world.register(|brokers| {
        brokers.insert(b(2), broker(202));
    });
    world.ack(2);
    world.pass(100);
    world.propose_all(0);
    world.apply_all();
    assert_eq!(world.due(), [], "one of two");
    world.propose_all(1);
    world.apply_all();
    let told = world.one();
    assert!(ms(&told, "isr_restored") > 20_000, "{told:?}");
    assert_eq!((told.id.as_str(), told.cause.as_str()), ("7-1", "suspicion"));
    assert!(!told.suspicion_was_wrong, "it is another life that has answered");
}

#[test]
fn a_session_that_ends_is_a_failover_from_its_first_sign_on() {
    let mut world = World::new(None, &[&[3, 1, 2]]);
    let epoch = BrokerEpoch(103);
    world.step(ControllerEvent::PushBroken { broker: b(3), broker_epoch: epoch });
    world.pass(6_000);
    world.register(|brokers| {
        brokers.remove(&b(3));
    });
    world.apply_all();
    world.ack_all(&[1, 2]);
    let told = world.one();
    assert_eq!(told.cause, "session_end");
    assert_eq!(ms(&told, "session_ended"), 6_000);
    assert_eq!(names(&told)[0], "stream_broke");
}

#[test]
fn a_broker_that_answers_again_was_wrongly_suspected_and_fails_anew_another_time() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.kill(2);
    world.due();
    world.pass(2_000);
    world.ack(2);
    let told = world.one();
    assert!(told.suspicion_was_wrong && names(&told).contains(&"answered"), "{told:?}");
    world.propose_all(0);
    world.apply_all();
    world.pass(2_000);
    world.due();
    world.kill(2);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.shrunk, told.moved), ("7-2", 1, 0));
}

#[test]
fn a_drain_is_a_failover_and_what_its_stop_leaves_belongs_to_it() {
    // Partition 1 has two replicas only: with min.insync.replicas 1 it can leave all the same.
    let mut world = World::new(None, &[&[2, 1, 3], &[1, 2]]);
    world.register(|brokers| brokers.get_mut(&b(2)).unwrap().draining = true);
    world.apply_all();
    world.ack_all(&[1, 2, 3]);
    let told = world.one();
    assert_eq!((told.cause.as_str(), told.moved, told.shrunk), ("drain", 1, 1));
    assert_eq!(names(&told)[0], "drain_requested");
    world.register(|brokers| {
        brokers.remove(&b(2));
    });
    world.pass(10_000);
    assert_eq!(world.due(), [], "nothing was left to lose");
}

#[test]
fn a_directory_that_fails_is_a_failover() {
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1]]);
    world.fails_to_serve(2, 1, &[0]);
    world.ack_all(&[1, 2, 3]);
    let told = world.one();
    assert_eq!((told.cause.as_str(), told.moved, told.broker_id), ("failed_replicas", 1, 2));
}

#[test]
fn partitions_without_another_member_are_left_leaderless_until_one_leads() {
    let mut world = World::new(None, &[&[2]]);
    world.register(|brokers| {
        brokers.remove(&b(2));
    });
    world.apply_all();
    world.ack_all(&[1, 3]);
    let told = world.one();
    assert_eq!((told.moved, told.leaderless), (0, 1));
    world.pass(5_000);
    world.register(|brokers| {
        brokers.insert(b(2), broker(202));
    });
    world.apply_all();
    let told = world.one();
    assert_eq!((told.id.as_str(), told.leaderless), ("7-1", 1), "what it cost does not go away");
    assert!(ms(&told, "led_again") > 5_000, "{told:?}");
    assert!(names(&told).contains(&"isr_restored"));
    world.pass(10_000);
    assert_eq!(world.due(), [], "its return is no failover of its own");
}

#[test]
fn leaders_that_change_for_other_reasons_are_no_failover() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    let elect = ControllerEvent::RebalanceDue { imbalance_percentage: 0 };
    world.kill(2);
    world.ack(2);
    world.propose_all(0);
    world.apply_all();
    world.pass(2_000);
    world.due();
    world.step(elect);
    assert_eq!(world.open.len(), 1, "the preferred leader is to lead again");
    world.apply_all();
    assert_eq!(world.leader(0).0, b(2));
    world.pass(10_000);
    assert_eq!(world.due(), []);
}

#[test]
fn a_controller_that_fails_is_recorded_by_its_successor_with_its_leaderships() {
    let lost = LostController {
        broker: b(3),
        stream_broke_us: Some(-30_000),
        suspected_us: Some(-29_000),
        gone_us: Some(-10_000),
        draining: false,
    };
    let mut world = World::new(Some(lost), &[&[3, 1, 2], &[1, 2, 3]]);
    world.pass(1);
    world.ack(1);
    world.ack(2);
    let told = world.one();
    assert_eq!(
        names(&told),
        [
            "controller_lost",
            "controller_suspected",
            "controller_gone",
            "controller_elected",
            "loaded",
            "pushed",
            "pushed"
        ]
    );
    assert!(told.was_controller);
    assert_eq!((ms(&told, "controller_elected"), ms(&told, "loaded")), (30, 31));
    assert_eq!((told.moved, told.broker_epoch), (0, Some(103)));
    // It is registered still, until its ports refuse.
    world.kill(3);
    world.pass(1_000);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved, told.shrunk), ("7-1", 1, 1));
    assert!(ms(&told, "written") > ms(&told, "suspected"));
    assert_eq!(told.at_ms, 1_000_000 - 30);
}

#[test]
fn the_leaderships_of_a_controller_whose_session_has_ended_are_moved_at_the_load() {
    let lost = LostController {
        broker: b(3),
        stream_broke_us: None,
        suspected_us: None,
        gone_us: Some(-5_000),
        draining: false,
    };
    let mut brokers = three();
    brokers.remove(&b(3));
    let mut world = World::with(Some(lost), brokers, &[&[3, 1, 2]]);
    world.apply_all();
    world.ack_all(&[1, 2]);
    let told = world.one();
    assert_eq!((told.cause.as_str(), told.moved, told.was_controller), ("session_end", 1, true));
    assert_eq!(told.broker_epoch, Some(103), "as the ISRs tell it");
}

#[test]
fn a_write_that_meets_another_state_is_decided_anew_and_counts_once() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.suspect(2);
    let now = PartitionState { partition_epoch: PartitionEpoch(10), ..state(2, &[2, 3]) };
    world.apply(|_| WriteOutcome::Conflict { now: Some(now.clone()) });
    world.apply_all();
    world.ack_all(&[1, 3]);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved), ("7-1", 1));
}

#[test]
fn a_broker_that_does_not_acknowledge_holds_up_the_whole_record_only() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.suspect(2);
    world.apply_all();
    world.due();
    world.ack(1);
    assert_eq!(world.due(), []);
    world.pass(1_000);
    let told = world.one();
    assert_eq!(names(&told).iter().filter(|name| **name == "pushed").count(), 1);
    world.pass(10_000);
    world.ack(3);
    let told = world.one();
    assert_eq!(names(&told).iter().filter(|name| **name == "pushed").count(), 2);
}

#[test]
fn watched_failovers_are_bounded_and_the_oldest_is_told_as_it_is() {
    let replicas: &[i32] = &[1, 2, 3];
    let mut world = World::new(None, &[replicas; OPEN_MAX + 1]);
    for partition in 0..=i32::try_from(OPEN_MAX).unwrap() {
        world.register(|brokers| {
            brokers.remove(&b(2));
        });
        world.apply_all();
        let is_last = partition == i32::try_from(OPEN_MAX).unwrap();
        assert_eq!(world.due().len(), 1 + usize::from(is_last), "each as it begins");
        world.register(|brokers| {
            brokers.insert(b(2), broker(1_000 + i64::from(partition)));
        });
        world.ack(2);
        // It comes back into one of them, which is the next that it leaves: the others are never whole again.
        world.propose_all(partition);
        world.apply_all();
    }
}
