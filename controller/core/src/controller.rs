//! The controller of one term: owns topics, leaders and ISRs; every change is a conditional write, and counts when it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use barnabas_types::topic_config::{Naming, tolerant};
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterDelta, ClusterImage, Condition, ConfigEntity, ControllerEpoch,
    Incarnation, Now, TopicConfig, TopicImage, TopicName, TopicPartition,
};

use crate::announcements::Announcements;
use crate::configs::{Configs, note_refused};
use crate::confirmations::Confirming;
use crate::controller_api::{
    BrokerRegistration, ControllerEvent, Effects, ElectPartition, LoadedTopic, Note, ReplicaReport,
    RequestId, Snapshot, WriteId, WriteOutcome,
};
use crate::decide::{Report, View};
use crate::elections::Electing;
use crate::grow::Growing;
use crate::image::Image;
use crate::partitions::Slot;
use crate::placement::Load;
use crate::suspicion::Suspicion;
use crate::topics::Creating;

/// What a topic gets that is created without saying how.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Defaults {
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// What holds for topics that do not say, where nothing is stored for the cluster.
    pub topic: TopicConfig,
}

/// A topic of this term.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Topic {
    pub(crate) incarnation: Incarnation,
    /// Version of its node.
    pub(crate) version: i32,
    pub(crate) config: TopicConfig,
    /// What the topic itself sets.
    pub(crate) overrides: BTreeMap<String, String>,
    pub(crate) slots: BTreeMap<i32, Slot>,
    /// Being deleted, and who waits for it.
    pub(crate) deleting: Option<Vec<RequestId>>,
    /// Its deletion was decided in an earlier term: brokers are told at once that it does not exist.
    pub(crate) hidden: bool,
    /// Changes of its settings.
    pub(crate) configs: Configs,
    /// Partitions that are being added.
    pub(crate) growing: Option<Growing>,
    /// A write of its node is under way (R18).
    pub(crate) assigning: bool,
}

/// What a write under way is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Target {
    Partition(TopicPartition),
    Assignment(TopicPartition),
    Create(TopicName),
    Delete(TopicName),
    Grow(TopicName),
    Config(ConfigEntity),
}

/// Names the next write. No part of the hash: how many writes there were changes nothing that is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextWrite(u64);

impl Hash for NextWrite {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

/// One term of the controller. Built at `BeginTerm`, dropped at `EndTerm`; nothing outlives it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Controller {
    pub(crate) epoch: ControllerEpoch,
    pub(crate) defaults: Defaults,
    /// What holds for topics that do not say: `defaults`, and above it what is stored for the cluster.
    pub(crate) topic_defaults: TopicConfig,
    /// Changes of brokers' settings under way.
    pub(crate) broker_configs: BTreeMap<Option<BrokerId>, Configs>,
    pub(crate) loaded: bool,
    pub(crate) resigned: bool,
    pub(crate) image: Image,
    pub(crate) topics: BTreeMap<TopicName, Topic>,
    pub(crate) creating: BTreeMap<TopicName, Creating>,
    /// Preferred leaderships and replicas of each broker, topics under creation included.
    pub(crate) load: BTreeMap<BrokerId, Load>,
    pub(crate) writes: BTreeMap<WriteId, Target>,
    pub(crate) next_write: NextWrite,
    /// How many partitions must still be processed as down-then-up for this broker before it may be pushed to (R3).
    pub(crate) held: BTreeMap<BrokerId, usize>,
    /// Newest version that each live broker acknowledged under its present registration.
    pub(crate) acked: BTreeMap<BrokerId, u64>,
    /// Sequence of the newest report of failed replicas of each live broker under its present registration.
    pub(crate) failure_reports: BTreeMap<BrokerId, u64>,
    /// Brokers of which a hold ended in this step.
    pub(crate) released: BTreeSet<BrokerId>,
    /// Topics, under creation too, by the form in which names collide.
    pub(crate) names_by_key: BTreeMap<String, BTreeSet<TopicName>>,
    /// Stored changes of settings that wait for the leaders' confirmation (R37).
    pub(crate) confirming: BTreeMap<RequestId, Confirming>,
    /// Changes of topics that are stored and wait until the brokers have heard of them.
    pub(crate) announcements: Announcements,
    /// Draining brokers, in the order in which they began (R26).
    pub(crate) draining: Vec<BrokerId>,
    /// The image without each of them that has left every ISR.
    pub(crate) drained_at: BTreeMap<BrokerId, u64>,
    /// Requests for elections that are not answered.
    pub(crate) electing: BTreeMap<RequestId, Electing>,
    /// What is remembered of brokers that seemed to be gone although they are registered (R17); who is suspected is in the image.
    pub(crate) suspicions: BTreeMap<BrokerId, Suspicion>,
}

impl Controller {
    /// A controller for the term `epoch`, elected on broker `me`. The first event must be `Loaded`.
    #[must_use]
    pub fn new(me: BrokerId, epoch: ControllerEpoch, defaults: Defaults) -> Self {
        let cluster = ClusterImage { controller: Some((me, epoch)), ..ClusterImage::default() };
        Self {
            epoch,
            topic_defaults: defaults.topic,
            defaults,
            broker_configs: BTreeMap::new(),
            loaded: false,
            resigned: false,
            image: Image::new(cluster),
            topics: BTreeMap::new(),
            creating: BTreeMap::new(),
            load: BTreeMap::new(),
            writes: BTreeMap::new(),
            next_write: NextWrite(1),
            held: BTreeMap::new(),
            acked: BTreeMap::new(),
            failure_reports: BTreeMap::new(),
            released: BTreeSet::new(),
            names_by_key: BTreeMap::new(),
            confirming: BTreeMap::new(),
            announcements: Announcements::default(),
            draining: Vec::new(),
            drained_at: BTreeMap::new(),
            electing: BTreeMap::new(),
            suspicions: BTreeMap::new(),
        }
    }

    /// The cluster as committed: what ZooKeeper is known to hold. Partitions whose node is missing or damaged are shown
    /// without a leader.
    #[must_use]
    pub fn image(&self) -> &ClusterImage {
        self.image.cluster()
    }

    /// Version of the image; grows within the term.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.image.version()
    }

    /// What to push to the incarnation `broker_epoch` of `broker`, which holds version `since` of this term's image
    /// (`None`: nothing, the push is full), and the version that it has afterwards.
    ///
    /// `None`: nothing may be pushed now, or there is nothing new. Held back are pushes to an incarnation that is not the
    /// registered one, and pushes to an incarnation that is still an ISR member under an earlier broker epoch (R3); everybody
    /// else hears of each partition as soon as it is settled. `Effects::image_changed` says when to ask again.
    #[must_use]
    pub fn push_for(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        since: Option<u64>,
    ) -> Option<(u64, ClusterDelta)> {
        let registered = self.image().brokers.get(&broker).is_some_and(|b| b.epoch == broker_epoch);
        let open = self.loaded && !self.resigned;
        if !open || !registered || self.held.contains_key(&broker) {
            return None;
        }
        if since.is_some_and(|s| s >= self.version()) {
            return None;
        }
        Some((self.version(), self.image.delta(since)))
    }

    /// Takes one event. `now` bounds how often a broker is suspected; what else depends on time comes as an event.
    pub fn step(&mut self, now: Now, event: ControllerEvent, effects: &mut Effects) {
        self.image.begin_step();
        self.released.clear();
        let closed = !self.loaded;
        if self.resigned || (!self.loaded && !matches!(event, ControllerEvent::Loaded(_))) {
            return refuse(&event, effects);
        }
        match event {
            ControllerEvent::Loaded(snapshot) => self.load(snapshot, effects),
            ControllerEvent::Brokers(brokers) => self.brokers(brokers, effects),
            ControllerEvent::AlterPartition { request, proposal } => {
                self.alter_partition(request, proposal, effects);
            }
            ControllerEvent::CreateTopic { request, topic } => {
                self.create_topic(request, topic, effects);
            }
            ControllerEvent::CreatePartitions { request, create } => {
                self.create_partitions(request, create, effects);
            }
            ControllerEvent::DeleteTopic { request, topic } => {
                self.delete_topic(request, &topic, effects);
            }
            ControllerEvent::AlterConfig { request, alter } => {
                self.alter_config(request, alter, effects);
            }
            ControllerEvent::ConfirmationDue { request } => {
                self.confirmation_due(request, effects);
                self.announcement_due(request, effects);
            }
            ControllerEvent::PushBroken { broker, broker_epoch } => {
                self.push_broken(broker, broker_epoch);
            }
            ControllerEvent::ConfigChanged { entity } => self.reload_config(&entity, effects),
            ControllerEvent::Reassign { request, partition, wish } => {
                self.reassign(request, &partition, wish, effects);
            }
            ControllerEvent::PushAcked { broker, broker_epoch, version, reports } => {
                self.push_acked(broker, broker_epoch, version, reports, effects);
            }
            ControllerEvent::BrokerSuspected { broker, broker_epoch } => {
                self.suspect(now, (broker, broker_epoch), effects);
            }
            ControllerEvent::ReplicasFailed { request, report } => {
                self.replicas_failed(request, report, effects);
            }
            ControllerEvent::Drain { request, broker, broker_epoch, draining } => {
                self.drain(request, (broker, broker_epoch), draining, effects);
            }
            ControllerEvent::ElectLeaders { request, elect } => {
                self.elect_leaders(request, elect, effects);
            }
            ControllerEvent::RebalanceDue { imbalance_percentage } => {
                self.rebalance(imbalance_percentage, effects);
            }
            ControllerEvent::Written { write, outcome } => self.written(write, outcome, effects),
        }
        self.confirm(effects);
        self.answer_announced(effects);
        let released = self.released.iter().any(|b| !self.held.contains_key(b));
        if !self.resigned && (closed || released || self.image.changed()) {
            effects.image_changed = true;
        }
    }

    fn load(&mut self, snapshot: Snapshot, effects: &mut Effects) {
        if self.loaded {
            note(effects, None, true, "loaded twice in one term; the second is ignored".to_owned());
            return;
        }
        self.loaded = true;
        self.note_draining(&snapshot.brokers);
        self.image.set_brokers(snapshot.brokers);
        self.image.set_unreadable(snapshot.unreadable);
        for (broker, settings) in snapshot.broker_settings {
            self.image.set_broker_settings(broker, settings);
        }
        self.read_cluster_default(effects);
        for (name, topic) in snapshot.topics {
            self.load_topic(name, topic, effects);
        }
        let partitions: Vec<TopicPartition> = self.partitions();
        for at in &partitions {
            self.settle(at, effects);
        }
    }

    fn load_topic(&mut self, name: TopicName, loaded: LoadedTopic, effects: &mut Effects) {
        let LoadedTopic { incarnation, version, overrides, partitions, deleting } = loaded;
        let (config, refused) = tolerant(Naming::Topic, &self.topic_defaults, &overrides);
        note_refused(&ConfigEntity::Topic(name.clone()), &refused, effects);
        self.index_name(&name);
        let mut slots = BTreeMap::new();
        for (index, partition) in partitions {
            self.count_replicas(&partition.assignment.replicas, true);
            let mut slot = Slot::new(partition.assignment);
            if slot.adopt(partition.state).is_err() && !deleting {
                let at = TopicPartition { topic: name.clone(), partition: index };
                let text = "its state node is missing or damaged: shown without a leader, never written; restore the node";
                note(effects, Some(at), true, text.to_owned());
            }
            slots.insert(index, slot);
        }
        if !deleting {
            let shown = slots.iter().map(|(i, s)| (*i, s.shown())).collect();
            let overrides = overrides.clone();
            self.image
                .add_topic(&name, TopicImage { incarnation, config, overrides, partitions: shown });
        }
        let topic = Topic {
            incarnation,
            version,
            config,
            overrides,
            slots,
            deleting: None,
            hidden: deleting,
            configs: Configs::default(),
            growing: None,
            assigning: false,
        };
        self.topics.insert(name.clone(), topic);
        if deleting {
            self.begin_delete(&name, Vec::new(), effects);
        }
    }

    /// The registrations changed. Looks at every partition: the one event that may.
    fn brokers(&mut self, brokers: BTreeMap<BrokerId, BrokerRegistration>, effects: &mut Effects) {
        let before = &self.image.cluster().brokers;
        if *before == brokers {
            return;
        }
        let epoch_in = |map: &BTreeMap<BrokerId, BrokerRegistration>, id: &BrokerId| {
            map.get(id).map(|b| b.epoch)
        };
        self.acked.retain(|id, _| epoch_in(before, id) == epoch_in(&brokers, id));
        for id in before.keys().filter(|id| epoch_in(before, id) != epoch_in(&brokers, id)) {
            self.announcements.hears(*id);
        }
        let reported = self.failure_reports.keys().copied();
        let void: Vec<BrokerId> =
            reported.filter(|id| epoch_in(before, id) != epoch_in(&brokers, id)).collect();
        self.forget_failures(&void);
        self.forget_suspicions(&brokers);
        self.note_draining(&brokers);
        self.image.set_brokers(brokers);
        for at in &self.partitions() {
            self.settle(at, effects);
        }
    }

    fn push_acked(
        &mut self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        version: u64,
        reports: Vec<(TopicPartition, ReplicaReport)>,
        effects: &mut Effects,
    ) {
        if self.image().brokers.get(&broker).is_none_or(|b| b.epoch != broker_epoch) {
            return; // an acknowledgement of an incarnation that is gone
        }
        self.clear_suspicion(broker, effects);
        let version = version.min(self.version());
        let acked = self.acked.entry(broker).or_default();
        *acked = version.max(*acked);
        self.announcements.hears(broker);
        if self.image.has_tombstones() {
            let all = self.image().brokers.keys().map(|b| self.acked.get(b).copied().unwrap_or(0));
            let least = all.min().unwrap_or(0);
            self.image.acknowledged_by_all(least);
        }
        for (at, report) in reports {
            let kept =
                Report { broker_epoch, last_epoch: report.last_epoch, log_end: report.log_end };
            let incarnation = self.topics.get(&at.topic).map(|t| t.incarnation);
            if incarnation == Some(report.incarnation)
                && let Some(slot) = self.slot_mut(&at)
                && slot.note_report(broker, report.leader_epoch, kept)
            {
                self.settle(&at, effects);
            }
        }
    }

    fn written(&mut self, write: WriteId, outcome: WriteOutcome, effects: &mut Effects) {
        let target = self.writes.remove(&write);
        if outcome == WriteOutcome::Fenced {
            return self.resign(target.as_ref(), effects);
        }
        let Some(target) = target else {
            return; // a duplicate, or a partition of a topic that is gone
        };
        match target {
            Target::Partition(at) => self.partition_written(write, &at, outcome, effects),
            Target::Assignment(at) => self.assignment_written(write, &at, outcome, effects),
            Target::Create(name) => self.topic_created(&name, outcome, effects),
            Target::Delete(name) => self.topic_deleted(&name, outcome, effects),
            Target::Grow(name) => self.partitions_created(&name, outcome, effects),
            Target::Config(name) => self.config_written(&name, outcome, effects),
        }
    }

    /// A newer controller exists: ends the term, answers everybody who waits. `fenced` is known not to be written; what
    /// becomes of the other writes is not known.
    pub(crate) fn resign(&mut self, fenced: Option<&Target>, effects: &mut Effects) {
        self.resigned = true;
        effects.resign = true;
        note(effects, None, true, format!("resigning from controller epoch {}", self.epoch));
        let unknown = || Condition::UnknownOutcome("the controller was deposed meanwhile");
        for (name, creating) in std::mem::take(&mut self.creating) {
            let known = fenced == Some(&Target::Create(name));
            let why = if known { Condition::NotController } else { unknown() };
            effects.create_answers.push((creating.request, Err(why)));
        }
        self.end_announcements(effects);
        self.abandon_all_configs(fenced, effects);
        self.abandon_all_growth(fenced, effects);
        self.abandon_elections(effects);
        for (name, topic) in &mut self.topics {
            for request in topic.deleting.take().unwrap_or_default() {
                effects.delete_answers.push((request, Err(unknown())));
            }
            for (index, slot) in &mut topic.slots {
                for request in slot.abandon() {
                    effects.alter_answers.push((request, Err(Condition::NotController)));
                }
                let (under_way, waiting) = slot.moves.abandon();
                for request in waiting {
                    effects.reassign_answers.push((request, Err(Condition::NotController)));
                }
                if let Some(request) = under_way {
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    let known = fenced == Some(&Target::Assignment(at));
                    let why = if known { Condition::NotController } else { unknown() };
                    effects.reassign_answers.push((request, Err(why)));
                }
            }
        }
        self.writes.clear();
    }

    /// Every partition of this term, in order.
    pub(crate) fn partitions(&self) -> Vec<TopicPartition> {
        let of = |(name, topic): (&TopicName, &Topic)| -> Vec<TopicPartition> {
            let at = |index: &i32| TopicPartition { topic: name.clone(), partition: *index };
            topic.slots.keys().map(at).collect()
        };
        self.topics.iter().flat_map(of).collect()
    }

    pub(crate) fn slot_mut(&mut self, at: &TopicPartition) -> Option<&mut Slot> {
        self.topics.get_mut(&at.topic)?.slots.get_mut(&at.partition)
    }

    pub(crate) fn view<'a>(&'a self, topic: &Topic, slot: &'a Slot) -> View<'a> {
        View {
            brokers: &self.image().brokers,
            controller_epoch: self.epoch,
            failed: &slot.failed,
            draining: &self.draining,
            suspected: &self.image().suspected,
            min_insync_replicas: topic.config.min_insync_replicas,
        }
    }

    pub(crate) fn begin_write(&mut self, target: Target) -> WriteId {
        let write = WriteId(self.next_write.0);
        self.next_write.0 += 1;
        self.writes.insert(write, target);
        write
    }

    /// Counts a partition's replicas in (or out) for placement.
    pub(crate) fn count_replicas(&mut self, assigned: &[BrokerId], add: bool) {
        let change = |n: u64| if add { n + 1 } else { n.saturating_sub(1) };
        for (index, broker) in assigned.iter().enumerate() {
            let load = self.load.entry(*broker).or_default();
            load.replicas = change(load.replicas);
            if index == 0 {
                load.leads = change(load.leads);
            }
        }
    }
}

pub(crate) fn note(effects: &mut Effects, at: Option<TopicPartition>, warn: bool, text: String) {
    effects.notes.push(Note { partition: at, warn, text });
}

/// Answers a request that this term cannot serve: it has not begun, or it is over.
fn refuse(event: &ControllerEvent, effects: &mut Effects) {
    match event {
        ControllerEvent::AlterPartition { request, .. } => {
            effects.alter_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::CreateTopic { request, .. } => {
            effects.create_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::CreatePartitions { request, .. } => {
            effects.partitions_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::DeleteTopic { request, .. } => {
            effects.delete_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::AlterConfig { request, .. } => {
            effects.config_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::Drain { request, .. } => {
            effects.drain_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::ElectLeaders { request, elect } => {
            let refused = |p: &ElectPartition| (p.partition.clone(), Err(Condition::NotController));
            let results = elect.partitions.iter().map(refused).collect();
            effects.elect_answers.push((*request, results));
        }
        ControllerEvent::Reassign { request, .. } => {
            effects.reassign_answers.push((*request, Err(Condition::NotController)));
        }
        ControllerEvent::ReplicasFailed { request, .. } => {
            effects.failed_answers.push((*request, Err(Condition::NotController)));
        }
        _ => {}
    }
}
