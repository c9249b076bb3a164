//! A seeded loop of everything that can be asked of the controller at once, with writes that end in any order and way: every
//! request is answered, once, and no decision is written for ever.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    AlterConfig, AlterPartition, AssignmentWrite, ConfigWrite, ControllerEvent, Effects,
    ElectLeaders, ElectPartition, Election, PartitionWrite, Reassign, ReplicaReport, RequestId,
    Snapshot, TopicWrite, WriteId, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, ConfigEntity, FailedReplicas, Incarnation,
    Offset, PartitionState, TopicPartition,
};
use common::*;

const TOPICS: [&str; 2] = ["t", "u"];
const STEPS: usize = 400;
/// More writes than any run has needed to come to rest.
const REST_WRITES_MAX: usize = 2_000;

/// What the store holds of a topic.
struct Stored {
    life: Incarnation,
    version: i32,
    partitions: BTreeMap<i32, (Assignment, PartitionState)>,
    settings: BTreeMap<String, String>,
}

/// A write that is under way.
enum Open {
    Partition(PartitionWrite),
    Assignment(AssignmentWrite),
    Topic(TopicWrite),
    Config(ConfigWrite),
}

struct Chaos {
    dice: Dice,
    term: Term,
    store: BTreeMap<&'static str, Stored>,
    cluster_settings: BTreeMap<String, String>,
    open: Vec<Open>,
    registered: BTreeMap<BrokerId, BrokerImage>,
    next_id: i64,
    unanswered: BTreeSet<RequestId>,
    confirming: Vec<RequestId>,
    /// Whether writes may still end badly.
    faulty: bool,
}

fn topic_of(name: &str) -> &'static str {
    TOPICS.into_iter().find(|known| *known == name).unwrap()
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let all = [(1, 11), (2, 12), (3, 13)];
        let state = || Some(stored(1, 5, &all));
        let loaded = topic(&[1, 2, 3], &[state(), state()]);
        let registered = brokers(&[(1, 11), (2, 12), (3, 13), (4, 14), (5, 15)]);
        let partitions = loaded.partitions.iter();
        let held = Stored {
            life: loaded.incarnation,
            version: 0,
            partitions: partitions
                .map(|(index, p)| (*index, (p.assignment.clone(), p.state.clone().unwrap())))
                .collect(),
            settings: BTreeMap::new(),
        };
        let mut chaos = Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            term: Term::new(),
            store: BTreeMap::from([("t", held)]),
            cluster_settings: BTreeMap::new(),
            open: Vec::new(),
            registered: registered.clone(),
            next_id: 1_000,
            unanswered: BTreeSet::new(),
            confirming: Vec::new(),
            faulty: true,
        };
        let topics = BTreeMap::from([(name("t"), loaded)]);
        let snapshot = Snapshot { brokers: registered, topics, ..Snapshot::default() };
        chaos.step(ControllerEvent::Loaded(snapshot));
        chaos
    }

    fn step(&mut self, event: ControllerEvent) {
        let effects = self.term.step(event);
        self.open.extend(self.term.open.drain(..).map(Open::Partition));
        self.open.extend(self.term.assigning.drain(..).map(Open::Assignment));
        self.open.extend(effects.topic_writes.iter().cloned().map(Open::Topic));
        self.open.extend(effects.config_writes.iter().cloned().map(Open::Config));
        self.confirming.extend(&effects.confirmations_awaited);
        self.confirming.extend(&effects.announcements_awaited);
        for request in answered(&effects) {
            assert!(self.unanswered.remove(&request), "answered twice: {effects:?}");
        }
    }

    /// The same for an event that is to be answered.
    fn ask(&mut self, event: impl FnOnce(RequestId) -> ControllerEvent) {
        let request = self.term.request();
        self.unanswered.insert(request);
        self.step(event(request));
    }

    fn id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    fn some_broker(&mut self) -> BrokerId {
        b(1 + i32::try_from(self.dice.below(5)).unwrap())
    }

    fn some_partition(&mut self) -> TopicPartition {
        let topic = TOPICS[self.dice.below(TOPICS.len())];
        at(topic, i32::try_from(self.dice.below(4)).unwrap())
    }

    fn registers(&mut self) {
        let id = self.some_broker();
        let epoch = BrokerEpoch(self.id());
        match self.dice.below(5) {
            0 if self.registered.len() > 2 => drop(self.registered.remove(&id)),
            1 => {
                drop(self.registered.insert(id, BrokerImage { tail_lost: true, ..broker(epoch.0) }))
            }
            2 => {
                if let Some(image) = self.registered.get_mut(&id) {
                    image.draining ^= true;
                }
            }
            _ => drop(self.registered.insert(id, broker(epoch.0))),
        }
        self.step(ControllerEvent::Brokers(self.registered.clone()));
    }

    fn proposes(&mut self) {
        let at = self.some_partition();
        let image = self.term.core.image();
        let Some(topic) = image.topics.get(&at.topic) else { return };
        let Some(partition) = topic.partitions.get(&at.partition) else { return };
        let state = &partition.state;
        let Some(leader) = state.leader else { return };
        let registered = |id: BrokerId| image.brokers.get(&id).map(|b| (id, b.epoch));
        let all = partition.assigned_replicas.iter().filter_map(|id| registered(*id));
        let proposal = AlterPartition {
            leader,
            broker_epoch: state.isr_epoch_of(leader).unwrap(),
            partition: at,
            incarnation: topic.incarnation,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: all.collect(),
        };
        self.ask(|request| ControllerEvent::AlterPartition { request, proposal });
    }

    fn moves(&mut self) {
        let partition = self.some_partition();
        let wish = match self.dice.below(5) {
            0 => Reassign::Cancel,
            1 => Reassign::Throttle(self.dice.below(3) as u64),
            _ => {
                let mut replicas: Vec<BrokerId> = Vec::new();
                for _ in 0..=self.dice.below(3) {
                    let id = self.some_broker();
                    if !replicas.contains(&id) {
                        replicas.push(id);
                    }
                }
                Reassign::To { replicas, throttle: None }
            }
        };
        self.ask(|request| ControllerEvent::Reassign { request, partition, wish });
    }

    fn elects(&mut self) {
        let election = match self.dice.below(2) {
            0 => Election::Preferred,
            _ => Election::Unclean { to: None },
        };
        let mut partitions = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let partition = self.some_partition();
            let topic = self.term.core.image().topics.get(&partition.topic);
            let known = topic.and_then(|t| t.partitions.get(&partition.partition));
            let shown = known.map(|p| p.state.partition_epoch);
            let expected = shown.filter(|_| !self.dice.one_in(3));
            partitions.push(ElectPartition { partition, expected });
        }
        let elect = ElectLeaders { election, partitions };
        self.ask(|request| ControllerEvent::ElectLeaders { request, elect });
    }

    fn alters(&mut self) {
        let entity = match self.dice.below(3) {
            0 => ConfigEntity::Broker(None),
            _ => ConfigEntity::Topic(name(TOPICS[self.dice.below(2)])),
        };
        let value = (1 + self.dice.below(2)).to_string();
        let changes = vec![("min.insync.replicas".to_owned(), SettingChange::Set(value))];
        let alter = AlterConfig { entity, replace: false, changes, validate_only: false };
        self.ask(|request| ControllerEvent::AlterConfig { request, alter });
    }

    /// A live broker acknowledges everything and tells of the leaderless partitions.
    fn acknowledges(&mut self) {
        let id = self.some_broker();
        let image = self.term.core.image();
        let Some(broker_epoch) = image.brokers.get(&id).map(|b| b.epoch) else { return };
        let mut reports = Vec::new();
        for (name, topic) in &image.topics {
            for (index, partition) in &topic.partitions {
                if partition.state.leader.is_none() && partition.assigned_replicas.contains(&id) {
                    let report = ReplicaReport {
                        incarnation: topic.incarnation,
                        leader_epoch: partition.state.leader_epoch,
                        last_epoch: None,
                        log_end: Offset(i64::from(id.0)),
                    };
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    reports.push((at, report));
                }
            }
        }
        let version = self.term.core.version();
        self.step(ControllerEvent::PushAcked { broker: id, broker_epoch, version, reports });
    }

    fn fails(&mut self) {
        let (broker, sequence) = (self.some_broker(), self.id().cast_unsigned());
        let at = self.some_partition();
        let image = self.term.core.image();
        let Some(broker_epoch) = image.brokers.get(&broker).map(|b| b.epoch) else { return };
        let life = image.topics.get(&at.topic).map(|t| t.incarnation);
        let one = life.filter(|_| self.dice.one_in(2)).map(|life| (at, life));
        let replicas = one.into_iter().collect();
        let report = FailedReplicas { broker, broker_epoch, sequence, replicas };
        self.ask(|request| ControllerEvent::ReplicasFailed { request, report });
    }

    fn drains(&mut self) {
        let broker = self.some_broker();
        let known = self.registered.get(&broker).map(|b| (b.epoch, b.draining));
        let (broker_epoch, draining) = known.unwrap_or((BrokerEpoch(1), true));
        self.ask(|request| ControllerEvent::Drain { request, broker, broker_epoch, draining });
    }

    fn something(&mut self) {
        let topic = TOPICS[self.dice.below(2)];
        match self.dice.below(24) {
            0 | 1 => self.registers(),
            2..=4 => self.proposes(),
            5..=7 => self.moves(),
            8 | 9 => self.elects(),
            10 => self.alters(),
            11 | 12 => self.acknowledges(),
            13 => self.fails(),
            14 => self.drains(),
            15 => self.step(ControllerEvent::RebalanceDue { imbalance_percentage: 0 }),
            16 => {
                let topic = create(topic, 2, 2);
                self.ask(|request| ControllerEvent::CreateTopic { request, topic });
            }
            17 => {
                let total = 1 + i32::try_from(self.dice.below(4)).unwrap();
                let create = add(topic, total);
                self.ask(|request| ControllerEvent::CreatePartitions { request, create });
            }
            18 if self.dice.one_in(4) => {
                let topic = name(topic);
                self.ask(|request| ControllerEvent::DeleteTopic { request, topic });
            }
            _ => self.some_write_ends(),
        }
    }

    fn some_write_ends(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let place = self.dice.below(self.open.len());
        let (write, outcome) = match self.open.swap_remove(place) {
            Open::Partition(write) => (write.write, self.partition_ends(write)),
            Open::Assignment(write) => (write.write, self.assignment_ends(write)),
            Open::Topic(write) => self.topic_ends(write),
            Open::Config(write) => (write.write, self.config_ends(write)),
        };
        self.step(ControllerEvent::Written { write, outcome });
    }

    fn refused(&mut self) -> Option<WriteOutcome> {
        let refused = self.faulty && self.dice.one_in(12);
        refused.then_some(WriteOutcome::Refused { reason: "too large" })
    }

    /// Somebody else writes a state as it is.
    fn touch(&mut self, at: &TopicPartition) {
        let touched = self.faulty && self.dice.one_in(8);
        let topic = self.store.get_mut(at.topic.as_str()).filter(|_| touched);
        if let Some((_, state)) = topic.and_then(|t| t.partitions.get_mut(&at.partition)) {
            state.partition_epoch.0 += 1;
        }
    }

    fn partition_ends(&mut self, write: PartitionWrite) -> WriteOutcome {
        if let Some(refused) = self.refused() {
            return refused;
        }
        self.touch(&write.partition);
        let topic = self.store.get_mut(write.partition.topic.as_str());
        let found = topic.and_then(|t| t.partitions.get_mut(&write.partition.partition));
        match found {
            Some((_, state)) if state.partition_epoch == write.expected => {
                *state = write.state;
                WriteOutcome::Applied
            }
            found => WriteOutcome::Conflict { now: found.map(|(_, state)| state.clone()) },
        }
    }

    fn assignment_ends(&mut self, write: AssignmentWrite) -> WriteOutcome {
        if let Some(refused) = self.refused() {
            return refused;
        }
        self.touch(&write.partition);
        let unreadable = self.faulty && self.dice.one_in(12);
        let index = write.partition.partition;
        let Some(topic) = self.store.get_mut(write.partition.topic.as_str()) else {
            return WriteOutcome::AssignmentConflict { topic: None, now: None };
        };
        let now = topic.partitions.get(&index).map(|(_, state)| state.clone());
        let fits = topic.version == write.topic_version
            && now.as_ref().is_some_and(|state| state.partition_epoch == write.expected);
        if !fits || unreadable {
            let assignments = topic.partitions.iter().map(|(i, (a, _))| (*i, a.clone()));
            let node = (topic.version, assignments.collect());
            return WriteOutcome::AssignmentConflict {
                topic: Some(node).filter(|_| !unreadable),
                now,
            };
        }
        topic.version += 1;
        for (i, (assignment, state)) in &mut topic.partitions {
            *assignment = write.assignments[i].clone();
            if *i == index {
                *state = write.state.clone();
            }
        }
        WriteOutcome::Applied
    }

    fn topic_ends(&mut self, write: TopicWrite) -> (WriteId, WriteOutcome) {
        let refused = self.refused();
        let settled =
            |p: &(Vec<BrokerId>, PartitionState)| (Assignment::settled(p.0.clone()), p.1.clone());
        match write {
            TopicWrite::Create { write, name, topic_id, overrides, partitions } => {
                let key = topic_of(name.as_str());
                if self.store.contains_key(key) {
                    return (write, WriteOutcome::TopicConflict);
                }
                if let Some(refused) = refused {
                    return (write, refused);
                }
                let czxid = self.id();
                let held = Stored {
                    life: Incarnation { topic_id, czxid },
                    version: 0,
                    partitions: partitions.iter().map(|(i, p)| (*i, settled(p))).collect(),
                    settings: overrides,
                };
                self.store.insert(key, held);
                (write, WriteOutcome::TopicCreated { czxid })
            }
            TopicWrite::Grow { write, name, incarnation, partitions, .. } => {
                let topic = self.store.get_mut(name.as_str()).filter(|t| t.life == incarnation);
                let Some(topic) = topic else { return (write, WriteOutcome::TopicConflict) };
                if let Some(refused) = refused {
                    return (write, refused);
                }
                topic.version += 1;
                topic.partitions.extend(partitions.iter().map(|(i, p)| (*i, settled(p))));
                (write, WriteOutcome::Applied)
            }
            TopicWrite::Delete { write, name, .. } => {
                if let Some(refused) = refused {
                    return (write, refused);
                }
                self.store.remove(name.as_str());
                (write, WriteOutcome::Applied)
            }
        }
    }

    fn config_ends(&mut self, write: ConfigWrite) -> WriteOutcome {
        if let Some(refused) = self.refused() {
            return refused;
        }
        let settings = match &write.entity {
            ConfigEntity::Topic(name) => {
                let topic = self.store.get_mut(name.as_str());
                let topic = topic.filter(|t| Some(t.life) == write.life);
                topic.map(|t| &mut t.settings)
            }
            ConfigEntity::Broker(_) => Some(&mut self.cluster_settings),
        };
        match (settings, write.overrides) {
            (None, _) => WriteOutcome::TopicConflict,
            (Some(settings), Some(meant)) if *settings == write.expected => {
                *settings = meant;
                WriteOutcome::Applied
            }
            (Some(settings), _) => WriteOutcome::Config { now: settings.clone() },
        }
    }

    /// Nothing ends badly any more: whatever is under way comes to its end.
    fn rests(&mut self) {
        self.faulty = false;
        let mut writes = 0;
        while !self.open.is_empty() {
            self.some_write_ends();
            writes += 1;
            assert!(writes < REST_WRITES_MAX, "it never comes to rest");
        }
        for request in std::mem::take(&mut self.confirming) {
            self.step(ControllerEvent::ConfirmationDue { request });
        }
    }
}

/// Whose requests these effects answer.
fn answered(e: &Effects) -> Vec<RequestId> {
    let mut all: Vec<RequestId> = e.alter_answers.iter().map(|a| a.0).collect();
    all.extend(e.create_answers.iter().map(|a| a.0));
    all.extend(e.delete_answers.iter().map(|a| a.0));
    all.extend(e.config_answers.iter().map(|a| a.0));
    all.extend(e.failed_answers.iter().map(|a| a.0));
    all.extend(e.partitions_answers.iter().map(|a| a.0));
    all.extend(e.drain_answers.iter().map(|a| a.0));
    all.extend(e.elect_answers.iter().map(|a| a.0));
    all.extend(e.reassign_answers.iter().map(|a| a.0));
    all
}

#[test]
fn every_request_is_answered_once_and_everything_comes_to_rest() {
    for seed in 0..1000 {
        let mut chaos = Chaos::new(seed);
        (0..STEPS).for_each(|_| chaos.something());
        chaos.rests();
        assert_eq!(chaos.unanswered, BTreeSet::new(), "seed {seed}");
    }
}

#[test]
fn a_deposed_controller_answers_everybody_once() {
    for seed in 0..1000 {
        let mut chaos = Chaos::new(seed);
        let steps = 50 + chaos.dice.below(STEPS);
        (0..steps).for_each(|_| chaos.something());
        let write = match chaos.open.pop() {
            Some(Open::Partition(write)) => write.write,
            Some(Open::Assignment(write)) => write.write,
            Some(Open::Config(write)) => write.write,
            Some(Open::Topic(
                TopicWrite::Create { write, .. }
                | TopicWrite::Grow { write, .. }
                | TopicWrite::Delete { write, .. },
            )) => write,
            None => continue,
        };
        chaos.step(ControllerEvent::Written { write, outcome: WriteOutcome::Fenced });
        assert_eq!(chaos.unanswered, BTreeSet::new(), "seed {seed}");
    }
}
