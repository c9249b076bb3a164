//! A controller with an in-memory store behind it: performs the writes, checks what must hold of every one of them.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterPartition, AssignmentWrite, Controller, ControllerEvent, CreatePartitions, CreateTopic,
    Defaults, Effects, LoadedPartition, LoadedTopic, PartitionWrite, Reassign, ReplicaReport,
    RequestId, Snapshot, WriteOutcome,
};
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, ControllerEpoch, FailedReplicas, Incarnation,
    LeaderEpoch, Now, Offset, Partition, PartitionEpoch, PartitionState, TopicConfig, TopicId,
    TopicName, TopicPartition, invariants,
};

pub(crate) const TERM: ControllerEpoch = ControllerEpoch(7);

pub(crate) fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

pub(crate) fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: name(topic), partition }
}

pub(crate) fn b(id: i32) -> BrokerId {
    BrokerId(id)
}

pub(crate) fn broker(epoch: i64) -> BrokerImage {
    BrokerImage {
        epoch: BrokerEpoch(epoch),
        host: "host".to_owned(),
        port: 9092,
        control_address: "host:9192".to_owned(),
        rack: None,
        tail_lost: false,
        draining: false,
    }
}

pub(crate) fn lost(epoch: i64) -> BrokerImage {
    BrokerImage { tail_lost: true, ..broker(epoch) }
}

/// Registrations `(id, epoch)`, logs whole.
pub(crate) fn brokers(of: &[(i32, i64)]) -> BTreeMap<BrokerId, BrokerImage> {
    of.iter().map(|&(id, epoch)| (b(id), broker(epoch))).collect()
}

pub(crate) fn isr(of: &[(i32, i64)]) -> Vec<(BrokerId, BrokerEpoch)> {
    of.iter().map(|&(id, epoch)| (b(id), BrokerEpoch(epoch))).collect()
}

/// A stored state of an earlier term: partition epoch 9.
pub(crate) fn stored(leader: i32, leader_epoch: i32, members: &[(i32, i64)]) -> PartitionState {
    PartitionState {
        leader: (leader >= 0).then_some(b(leader)),
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(9),
        controller_epoch: ControllerEpoch(3),
        isr: isr(members),
    }
}

pub(crate) fn incarnation(czxid: i64) -> Incarnation {
    Incarnation { topic_id: TopicId([4; 16]), czxid }
}

pub(crate) fn topic(assigned: &[i32], states: &[Option<PartitionState>]) -> LoadedTopic {
    let partition = |state: &Option<PartitionState>| LoadedPartition {
        assignment: Assignment::settled(assigned.iter().map(|i| b(*i)).collect()),
        state: state.clone(),
    };
    LoadedTopic {
        incarnation: incarnation(100),
        version: 0,
        overrides: BTreeMap::new(),
        partitions: (0..).zip(states.iter().map(partition)).collect(),
        deleting: false,
    }
}

pub(crate) fn create(text: &str, partitions: i32, replication_factor: i32) -> CreateTopic {
    CreateTopic {
        name: name(text),
        topic_id: TopicId([9; 16]),
        partitions: Some(partitions),
        replication_factor: Some(replication_factor),
        assignment: BTreeMap::new(),
        overrides: BTreeMap::new(),
        validate_only: false,
    }
}

/// More partitions for a topic, placed automatically.
pub(crate) fn add(text: &str, total: i32) -> CreatePartitions {
    let assignment = Vec::new();
    CreatePartitions { name: name(text), total, assignment, validate_only: false }
}

/// Settings of a topic.
pub(crate) fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// The controller under test. What a step wants written waits in `open` until the test applies it.
pub(crate) struct Term {
    pub(crate) core: Controller,
    pub(crate) open: Vec<PartitionWrite>,
    /// Assignments to write, likewise.
    pub(crate) assigning: Vec<AssignmentWrite>,
    pub(crate) now: Now,
    next_request: u64,
}

impl Term {
    pub(crate) fn new() -> Self {
        let defaults = Defaults {
            num_partitions: 2,
            default_replication_factor: 2,
            topic: TopicConfig::default(),
        };
        Self {
            core: Controller::new(b(1), TERM, defaults),
            open: Vec::new(),
            assigning: Vec::new(),
            now: Now(0),
            next_request: 1,
        }
    }

    /// A term over one topic `t` with partition 0, AR as given; `Loaded` is done.
    pub(crate) fn of(
        registered: BTreeMap<BrokerId, BrokerImage>,
        assigned: &[i32],
        state: PartitionState,
    ) -> (Self, Effects) {
        Self::with(registered, topic(assigned, &[Some(state)]))
    }

    pub(crate) fn with(
        registered: BTreeMap<BrokerId, BrokerImage>,
        t: LoadedTopic,
    ) -> (Self, Effects) {
        let mut term = Self::new();
        let snapshot = Snapshot {
            brokers: registered,
            topics: BTreeMap::from([(name("t"), t)]),
            broker_settings: BTreeMap::new(),
            ..Snapshot::default()
        };
        let effects = term.step(ControllerEvent::Loaded(snapshot));
        (term, effects)
    }

    /// One step; every partition write it orders is checked: I8, I9, the version, one at a time for each partition.
    pub(crate) fn step(&mut self, event: ControllerEvent) -> Effects {
        let mut effects = Effects::default();
        self.core.step(self.now, event, &mut effects);
        for write in &effects.partition_writes {
            let assigned = &self.partition_of(&write.partition).assigned_replicas;
            let written = Partition {
                assigned_replicas: assigned.clone(),
                state: write.state.clone(),
                ..Partition::default()
            };
            assert!(invariants::i8_isr_within_assignment(&written), "I8: {write:?}");
            assert_eq!(write.state.controller_epoch, TERM, "I9");
            assert_eq!(write.state.partition_epoch.0, write.expected.0 + 1);
            assert!(
                self.open.iter().all(|o| o.partition != write.partition),
                "one write at a time: {write:?}"
            );
            self.open.push(write.clone());
        }
        for write in &effects.assignment_writes {
            let assignment = &write.assignments[&write.partition.partition];
            let written = Partition {
                assigned_replicas: assignment.replicas.clone(),
                moving: assignment.moving.clone(),
                state: write.state.clone(),
            };
            assert!(invariants::i8_isr_within_assignment(&written), "I8: {write:?}");
            assert_eq!(write.state.partition_epoch.0, write.expected.0 + 1, "R18");
            let shown = self.partition_of(&write.partition);
            let left = |b: &BrokerId| !assignment.replicas.contains(b);
            if shown.assigned_replicas.iter().any(left) {
                let ids = write.state.isr_ids();
                assert!(assignment.replicas.iter().all(|b| ids.contains(b)), "F: {write:?}");
                assert!(!assignment.moving.is_under_way(), "R20: {write:?}");
                assert!(write.state.leader_epoch > shown.state.leader_epoch, "R20: {write:?}");
            }
            let same_topic = |o: &AssignmentWrite| o.partition.topic == write.partition.topic;
            assert!(!self.assigning.iter().any(same_topic), "one write of a topic: {write:?}");
            assert!(self.open.iter().all(|o| o.partition != write.partition), "{write:?}");
            self.assigning.push(write.clone());
        }
        effects
    }

    /// The next assignment write ends so.
    pub(crate) fn assigned(&mut self, outcome: WriteOutcome) -> Effects {
        let write = self.assigning.remove(0).write;
        self.step(ControllerEvent::Written { write, outcome })
    }

    pub(crate) fn reassign(&mut self, at: TopicPartition, wish: Reassign) -> Effects {
        let request = self.request();
        self.step(ControllerEvent::Reassign { request, partition: at, wish })
    }

    pub(crate) fn partition_of(&self, at: &TopicPartition) -> &Partition {
        &self.core.image().topics[&at.topic].partitions[&at.partition]
    }

    pub(crate) fn state(&self) -> &PartitionState {
        &self.partition_of(&at("t", 0)).state
    }

    pub(crate) fn finish(&mut self, outcome: WriteOutcome) -> Effects {
        let write = self.open.remove(0).write;
        self.step(ControllerEvent::Written { write, outcome })
    }

    /// Applies the writes that are open, and what they lead to; returns all that was ordered and answered.
    pub(crate) fn apply(&mut self) -> Effects {
        let mut all = Effects::default();
        while !self.open.is_empty() {
            let e = self.finish(WriteOutcome::Applied);
            all.partition_writes.extend(e.partition_writes);
            all.alter_answers.extend(e.alter_answers);
            all.notes.extend(e.notes);
            all.image_changed |= e.image_changed;
        }
        all
    }

    pub(crate) fn register(&mut self, registered: BTreeMap<BrokerId, BrokerImage>) -> Effects {
        self.step(ControllerEvent::Brokers(registered))
    }

    pub(crate) fn suspect(&mut self, id: i32, epoch: i64) -> Effects {
        let broker_epoch = BrokerEpoch(epoch);
        self.step(ControllerEvent::BrokerSuspected { broker: b(id), broker_epoch })
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// A proposal by the present leader of `t-0` on the present state.
    pub(crate) fn proposal(&self, members: &[(i32, i64)]) -> AlterPartition {
        let state = self.state();
        let leader = state.leader.unwrap();
        AlterPartition {
            leader,
            broker_epoch: state.isr_epoch_of(leader).unwrap(),
            partition: at("t", 0),
            incarnation: self.core.image().topics[&name("t")].incarnation,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: isr(members),
        }
    }

    pub(crate) fn propose(&mut self, proposal: AlterPartition) -> Effects {
        let request = self.request();
        self.step(ControllerEvent::AlterPartition { request, proposal })
    }

    /// `broker` acknowledges everything and reports its log of `t-0` for the present leader epoch.
    pub(crate) fn report(&mut self, id: i32, epoch: i64, last_epoch: i32, log_end: i64) -> Effects {
        let leader_epoch = self.state().leader_epoch;
        self.report_in(id, epoch, leader_epoch, (last_epoch, log_end))
    }

    pub(crate) fn report_in(
        &mut self,
        id: i32,
        epoch: i64,
        leader_epoch: LeaderEpoch,
        (last_epoch, log_end): (i32, i64),
    ) -> Effects {
        let report = ReplicaReport {
            incarnation: self.core.image().topics[&name("t")].incarnation,
            leader_epoch,
            last_epoch: (last_epoch >= 0).then_some(LeaderEpoch(last_epoch)),
            log_end: Offset(log_end),
        };
        self.step(ControllerEvent::PushAcked {
            broker: b(id),
            broker_epoch: BrokerEpoch(epoch),
            version: self.core.version(),
            reports: vec![(at("t", 0), report)],
        })
    }

    /// Broker `id` reports that it cannot serve `t-0`, once for each life given.
    pub(crate) fn failed(
        &mut self,
        id: i32,
        epoch: i64,
        sequence: u64,
        lives: &[Incarnation],
    ) -> Effects {
        let request = self.request();
        let report = FailedReplicas {
            broker: b(id),
            broker_epoch: BrokerEpoch(epoch),
            sequence,
            replicas: lives.iter().map(|life| (at("t", 0), *life)).collect(),
        };
        self.step(ControllerEvent::ReplicasFailed { request, report })
    }

    /// Broker `id` acknowledges all that there is.
    pub(crate) fn hears(&mut self, id: i32) -> Effects {
        let Some(registered) = self.core.image().brokers.get(&b(id)) else {
            return Effects::default();
        };
        self.step(ControllerEvent::PushAcked {
            broker: b(id),
            broker_epoch: registered.epoch,
            version: self.core.version(),
            reports: Vec::new(),
        })
    }

    /// Every live broker acknowledges all that there is; the answers about topics that this leads to.
    pub(crate) fn all_hear(&mut self) -> Effects {
        let mut all = Effects::default();
        for id in self.core.image().brokers.keys().copied().collect::<Vec<_>>() {
            let effects = self.hears(id.0);
            all.create_answers.extend(effects.create_answers);
            all.partitions_answers.extend(effects.partitions_answers);
            all.delete_answers.extend(effects.delete_answers);
        }
        all
    }

    pub(crate) fn pushable(&self, id: i32, epoch: i64) -> bool {
        self.core.push_for(b(id), BrokerEpoch(epoch), None).is_some()
    }
}

pub(crate) fn said(effects: &Effects, text: &str) -> bool {
    effects.notes.iter().any(|n| n.text.contains(text))
}

/// xorshift64*: repeatable numbers for the seeded loops.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % n
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
