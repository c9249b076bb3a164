//! A seeded loop over the whole controller: brokers come and go, topics too, writes end in any order, pushes are lost.
//!
//! After every step: what a broker holds by full pushes and deltas is the image; no broker was told that it leads, or is in
//! sync, under an incarnation that is not its own (R3); one leader epoch has one leader of one incarnation (I1, R5).

mod common;

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    AlterConfig, AlterPartition, ConfigWrite, ControllerEvent, ReplicaReport, RequestId, Snapshot,
    TopicWrite, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerImage, BrokerSettings, ClusterDelta, ConfigEntity, FailedByBroker,
    FailedReplicas, Incarnation, LeaderEpoch, Offset, Partition, TopicImage, TopicName,
    TopicPartition,
};
use common::*;

/// What one live broker holds of the term's image.
#[derive(Default)]
struct Mirror {
    version: Option<u64>,
    brokers: BTreeMap<BrokerId, BrokerImage>,
    topics: BTreeMap<TopicName, TopicImage>,
    failed: FailedByBroker,
    suspected: BTreeSet<BrokerId>,
    settings: BrokerSettings,
}

impl Mirror {
    fn take(&mut self, version: u64, delta: ClusterDelta) {
        if let Some(failed) = delta.failed {
            self.failed = failed;
        }
        if let Some(suspected) = delta.suspected {
            self.suspected = suspected;
        }
        if delta.full {
            self.topics = delta.topics;
        } else {
            for (name, incarnation) in delta.deleted {
                if self.topics.get(&name).is_some_and(|t| t.incarnation == incarnation) {
                    self.topics.remove(&name);
                }
            }
            for (name, topic) in delta.topics {
                let mine = self.topics.entry(name).or_insert_with(|| topic.clone());
                mine.partitions.extend(topic.partitions);
                (mine.config, mine.overrides) = (topic.config, topic.overrides);
            }
        }
        if let Some(brokers) = delta.brokers {
            self.brokers = brokers;
        }
        if let Some(settings) = delta.broker_settings {
            self.settings = settings;
        }
        self.version = Some(version);
    }
}

struct Soak {
    dice: Dice,
    term: Term,
    topics: Vec<TopicWrite>,
    registered: BTreeMap<BrokerId, BrokerImage>,
    mirrors: BTreeMap<BrokerId, Mirror>,
    next_epoch: i64,
    next_sequence: u64,
    led: BTreeMap<(TopicPartition, Incarnation, LeaderEpoch), (BrokerId, BrokerEpoch)>,
    epochs: BTreeMap<(TopicPartition, Incarnation), LeaderEpoch>,
    recovered: usize,
    /// Settings as stored, and the writes of them that are open.
    settings: BTreeMap<ConfigEntity, BTreeMap<String, String>>,
    config_writes: Vec<ConfigWrite>,
    /// Changes of settings that are not answered yet.
    unanswered: BTreeSet<RequestId>,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let t = |leader: i32, epoch: i64| {
            let states =
                [Some(stored(leader, 5, &[(1, epoch), (2, 12)])), Some(stored(2, 3, &[(2, 12)]))];
            let mut topic = topic(&[1, 2, 3], &states);
            if leader == 2 {
                topic.overrides = common::settings(&[("unclean.leader.election.enable", "true")]);
            }
            topic
        };
        let registered = brokers(&[(1, 21), (2, 12), (3, 13), (4, 14)]);
        let topics = BTreeMap::from([(name("t"), t(1, 11)), (name("u"), t(2, 21))]);
        let mut term = Term::new();
        let snapshot = Snapshot { brokers: registered.clone(), topics, ..Snapshot::default() };
        let effects = term.step(ControllerEvent::Loaded(snapshot));
        assert!(effects.image_changed);
        Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            term,
            topics: Vec::new(),
            mirrors: registered.keys().map(|b| (*b, Mirror::default())).collect(),
            registered,
            next_epoch: 100,
            next_sequence: 0,
            led: BTreeMap::new(),
            epochs: BTreeMap::new(),
            recovered: 0,
            settings: BTreeMap::new(),
            config_writes: Vec::new(),
            unanswered: BTreeSet::new(),
        }
    }

    fn step(&mut self, event: ControllerEvent) {
        let effects = self.term.step(event);
        for write in &effects.partition_writes {
            if let Some(leader) = write.state.leader {
                let image = self.term.core.image();
                let at = &write.partition;
                assert!(image.is_online(leader, &at.topic, at.partition), "R38: {write:?}");
            }
        }
        self.recovered += usize::from(said(&effects, "longest log"));
        self.topics.extend(effects.topic_writes);
        self.config_writes.extend(effects.config_writes);
        for (request, answer) in effects.config_answers {
            assert!(self.unanswered.remove(&request), "answered twice: {answer:?}");
        }
        self.check();
    }

    fn partitions(&self) -> Vec<(TopicPartition, Incarnation, Partition)> {
        let image = self.term.core.image();
        let of = |(name, topic): (&TopicName, &TopicImage)| {
            let at = |i: &i32| TopicPartition { topic: name.clone(), partition: *i };
            topic
                .partitions
                .iter()
                .map(|(i, p)| (at(i), topic.incarnation, p.clone()))
                .collect::<Vec<_>>()
        };
        image.topics.iter().flat_map(of).collect()
    }

    fn check(&mut self) {
        for (at, incarnation, partition) in self.partitions() {
            let state = partition.state;
            let last = self.epochs.entry((at.clone(), incarnation)).or_default();
            assert!(state.leader_epoch >= *last, "I2 at {at}");
            *last = state.leader_epoch;
            if let Some(leader) = state.leader {
                let now = (leader, state.isr_epoch_of(leader).unwrap());
                let key = (at, incarnation, state.leader_epoch);
                let first = *self.led.entry(key.clone()).or_insert(now);
                assert_eq!(first, now, "I1 at {key:?}");
            }
        }
    }

    fn random_broker(&mut self) -> BrokerId {
        b(i32::try_from(1 + self.dice.below(4)).unwrap())
    }

    fn registrations(&mut self) {
        let id = self.random_broker();
        self.next_epoch += 1;
        if self.registered.remove(&id).is_none() || self.dice.one_in(3) {
            let tail_lost = self.dice.one_in(2);
            self.registered.insert(id, BrokerImage { tail_lost, ..broker(self.next_epoch) });
        }
        self.mirrors.remove(&id);
        if self.registered.contains_key(&id) {
            self.mirrors.insert(id, Mirror::default());
        }
        self.step(ControllerEvent::Brokers(self.registered.clone()));
    }

    fn complete(&mut self) {
        if !self.topics.is_empty() && self.dice.one_in(3) {
            let index = self.dice.below(self.topics.len());
            let (write, outcome) = match self.topics.remove(index) {
                TopicWrite::Create { write, name, .. } => {
                    self.settings.insert(ConfigEntity::Topic(name), BTreeMap::new());
                    self.next_epoch += 1;
                    (write, WriteOutcome::TopicCreated { czxid: self.next_epoch })
                }
                TopicWrite::Grow { write, name, incarnation, .. } => {
                    let lives = self.term.core.image().topics.get(&name).map(|t| t.incarnation);
                    let there = lives == Some(incarnation);
                    let gone = WriteOutcome::TopicConflict;
                    (write, if there { WriteOutcome::Applied } else { gone })
                }
                TopicWrite::Delete { write, name, .. } => {
                    self.term.open.retain(|w| w.partition.topic != name);
                    (write, WriteOutcome::Applied)
                }
            };
            return self.step(ControllerEvent::Written { write, outcome });
        }
        if self.term.open.is_empty() {
            return;
        }
        let index = self.dice.below(self.term.open.len());
        let write = self.term.open.remove(index);
        let outcome = if self.dice.one_in(10) {
            // Somebody edited the node: the same content under a newer version.
            let mut now = self.term.partition_of(&write.partition).state.clone();
            now.partition_epoch.0 += 3;
            WriteOutcome::Conflict { now: Some(now) }
        } else {
            WriteOutcome::Applied
        };
        self.step(ControllerEvent::Written { write: write.write, outcome });
    }

    fn propose(&mut self) {
        let partitions = self.partitions();
        if partitions.is_empty() {
            return;
        }
        let (at, incarnation, p) = partitions[self.dice.below(partitions.len())].clone();
        let Some(leader) = p.state.leader else { return };
        let mut isr = Vec::new();
        for id in &p.assigned_replicas {
            if let Some(r) = self.registered.get(id)
                && (*id == leader || self.dice.one_in(2))
            {
                isr.push((*id, r.epoch));
            }
        }
        let proposal = AlterPartition {
            leader,
            broker_epoch: p.state.isr_epoch_of(leader).unwrap(),
            partition: at,
            incarnation,
            leader_epoch: p.state.leader_epoch,
            partition_epoch: p.state.partition_epoch,
            isr,
        };
        let request = self.term.request();
        self.step(ControllerEvent::AlterPartition { request, proposal });
    }

    /// Pushes to one broker what it lacks; it acknowledges with its reports, unless the push or the answer is lost.
    fn push(&mut self, id: BrokerId, losses: bool) {
        let Some(me) = self.registered.get(&id).map(|r| r.epoch) else { return };
        let Some(mirror) = self.mirrors.get_mut(&id) else { return };
        let Some((version, delta)) = self.term.core.push_for(id, me, mirror.version) else {
            return;
        };
        if losses && self.dice.one_in(4) {
            mirror.version = None; // the stream broke: the next one begins in full
            return;
        }
        for topic in delta.topics.values() {
            for partition in topic.partitions.values().filter(|p| p.state.leader.is_some()) {
                let entry = partition.state.isr_epoch_of(id);
                assert!(entry.is_none_or(|e| e == me), "R3: {id} under {me} is told {partition:?}");
            }
        }
        mirror.take(version, delta);
        let image = self.term.core.image();
        assert_eq!(
            (&mirror.brokers, &mirror.topics, &mirror.failed, &mirror.settings),
            (&image.brokers, &image.topics, &image.failed, &image.broker_settings),
            "delta = full"
        );
        assert_eq!(mirror.suspected, image.suspected, "delta = full");
        let mut reports = Vec::new();
        for (at, incarnation, p) in self.partitions() {
            if p.state.leader.is_none() && p.assigned_replicas.contains(&id) {
                let log_end = Offset(i64::try_from(self.dice.below(50)).unwrap());
                let leader_epoch = p.state.leader_epoch;
                let last_epoch = Some(LeaderEpoch(1));
                reports
                    .push((at, ReplicaReport { incarnation, leader_epoch, last_epoch, log_end }));
            }
        }
        if losses && self.dice.one_in(4) {
            return; // the acknowledgement is lost
        }
        self.step(ControllerEvent::PushAcked { broker: id, broker_epoch: me, version, reports });
    }

    fn topics(&mut self) {
        let text = ["v", "w", "x"][self.dice.below(3)];
        let request = self.term.request();
        let event = match self.dice.below(5) {
            0 | 1 => ControllerEvent::CreateTopic { request, topic: create(text, 3, 2) },
            2 | 3 => ControllerEvent::DeleteTopic { request, topic: name(text) },
            _ => {
                let total = i32::try_from(self.dice.below(8)).unwrap();
                ControllerEvent::CreatePartitions { request, create: add(text, total) }
            }
        };
        self.step(event);
    }

    /// Somebody asks for other settings, or writes them into the store himself.
    fn alter(&mut self) {
        let value = self.dice.below(5).to_string();
        let (entity, keys) = match self.dice.below(6) {
            4 => {
                (ConfigEntity::Broker(None), ["log.retention.ms", "log.roll.ms", "log.flush.mode"])
            }
            5 => (ConfigEntity::Broker(Some(self.random_broker())), ["log.cleaner.backoff.ms"; 3]),
            n => {
                let topic = ConfigEntity::Topic(name(["t", "u", "v", "w"][n]));
                (topic, ["retention.ms", "segment.ms", "flush.ms"])
            }
        };
        let key = keys[self.dice.below(3)].to_owned();
        if self.dice.one_in(4) {
            self.settings.entry(entity.clone()).or_default().insert(key, value);
            if self.dice.one_in(2) {
                self.step(ControllerEvent::ConfigChanged { entity });
            }
            return;
        }
        let change = match self.dice.below(3) {
            0 => SettingChange::Delete,
            _ => SettingChange::Set(value),
        };
        let alter = AlterConfig {
            entity,
            replace: self.dice.one_in(5),
            changes: vec![(key, change)],
            validate_only: self.dice.one_in(8),
        };
        let request = self.term.request();
        self.unanswered.insert(request);
        self.step(ControllerEvent::AlterConfig { request, alter });
    }

    fn complete_config(&mut self) {
        if self.config_writes.is_empty() {
            return;
        }
        let index = self.dice.below(self.config_writes.len());
        let ConfigWrite { write, entity, life, expected, overrides } =
            self.config_writes.remove(index);
        let lives = match &entity {
            ConfigEntity::Topic(name) => {
                self.term.core.image().topics.get(name).map(|t| t.incarnation)
            }
            ConfigEntity::Broker(_) => None,
        };
        let stored = self.settings.entry(entity).or_default();
        let outcome = match overrides {
            _ if lives != life => WriteOutcome::TopicConflict,
            Some(overrides) if *stored == expected => {
                *stored = overrides;
                WriteOutcome::Applied
            }
            _ => WriteOutcome::Config { now: stored.clone() },
        };
        self.step(ControllerEvent::Written { write, outcome });
    }

    /// A broker reports a random set of its replicas as failed, or some older report again.
    fn fail(&mut self, id: BrokerId, none: bool) {
        let Some(epoch) = self.registered.get(&id).map(|r| r.epoch) else { return };
        self.next_sequence += 1;
        let mut replicas = BTreeMap::new();
        for (at, incarnation, p) in self.partitions() {
            if p.assigned_replicas.contains(&id) && !none && self.dice.one_in(3) {
                replicas.insert(at, incarnation);
            }
        }
        let late = u64::from(!none && self.dice.one_in(4)) * 3;
        let sequence = self.next_sequence.saturating_sub(late);
        let report = FailedReplicas { broker: id, broker_epoch: epoch, sequence, replicas };
        let request = self.term.request();
        self.step(ControllerEvent::ReplicasFailed { request, report });
    }

    fn random(&mut self) {
        match self.dice.below(18) {
            13 => self.alter(),
            14 | 15 => self.complete_config(),
            16 => {
                if let Some(request) = self.unanswered.first().copied() {
                    self.step(ControllerEvent::ConfirmationDue { request });
                }
            }
            0 => self.registrations(),
            12 => {
                let id = self.random_broker();
                self.fail(id, false);
            }
            1 => self.topics(),
            2..=4 => self.propose(),
            5..=7 => self.complete(),
            _ => {
                let id = self.random_broker();
                self.push(id, true);
            }
        }
    }

    /// Faults stop: every broker is live, every write ends, every push arrives.
    fn heal(&mut self) {
        for id in 1..=4 {
            self.next_epoch += 1;
            let epoch = self.next_epoch;
            self.registered.entry(b(id)).or_insert_with(|| broker(epoch));
            self.mirrors.entry(b(id)).or_default();
        }
        self.step(ControllerEvent::Brokers(self.registered.clone()));
        for id in 1..=4 {
            self.fail(b(id), true);
        }
        for _ in 0..20 {
            while !self.term.open.is_empty() || !self.topics.is_empty() {
                self.complete();
            }
            while !self.config_writes.is_empty() {
                self.complete_config();
            }
            for id in 1..=4 {
                self.push(b(id), false);
            }
        }
        assert_eq!(self.unanswered, BTreeSet::new(), "every leader has confirmed");
        for (at, _, p) in self.partitions() {
            assert!(p.state.leader.is_some(), "I12: {at} {p:?}");
        }
        for (id, broker) in &self.registered {
            assert!(
                self.term.core.push_for(*id, broker.epoch, None).is_some(),
                "{id} is held for ever"
            );
        }
    }
}

#[test]
fn deltas_equal_full_pushes_and_no_incarnation_is_told_what_was_anothers() {
    let mut recovered = 0;
    for seed in 1..=300 {
        let mut soak = Soak::new(seed);
        for _ in 0..400 {
            soak.random();
        }
        soak.heal();
        recovered += soak.recovered;
    }
    assert!(recovered > 100, "R8 was reached: {recovered}");
}
