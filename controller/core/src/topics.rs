//! Creating and deleting topics: checks, first states, answers.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::topic_config::from_overrides;
use barnabas_types::{
    Assignment, BrokerId, Condition, Incarnation, LeaderEpoch, PartitionEpoch, PartitionState,
    TopicConfig, TopicImage, TopicName, TopicPartition,
};

use crate::announcements::Announced;
use crate::configs::Configs;
use crate::controller::{Controller, Target, Topic, note};
use crate::controller_api::{CreateTopic, Effects, RequestId, TopicWrite, WriteOutcome};
use crate::drain::needed;
use crate::partitions::Slot;
use crate::placement::place;

/// Most partitions of one creation: one ZooKeeper transaction carries all their nodes (R29).
pub const PARTITIONS_PER_CREATE_MAX: i32 = 1000;

/// Most requests that wait for one deletion.
const DELETE_WAITERS_MAX: usize = 16;

/// A creation under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Creating {
    pub(crate) request: RequestId,
    topic: CreateTopic,
    pub(crate) partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
}

impl Controller {
    pub(crate) fn create_topic(
        &mut self,
        request: RequestId,
        topic: CreateTopic,
        effects: &mut Effects,
    ) {
        let checked = self
            .check_name(&topic.name)
            .and_then(|()| from_overrides(&self.topic_defaults, &topic.overrides))
            .and_then(|config| {
                check_cleanup(&topic.name, &config)?;
                let assignment = self.assignment(&topic)?;
                check_min_insync(&topic, &config, &assignment)?;
                self.check_draining(&assignment, config.min_insync_replicas)?;
                Ok(assignment)
            });
        let assignment = match checked {
            Ok(assignment) => assignment,
            Err(condition) => return effects.create_answers.push((request, Err(condition))),
        };
        if topic.validate_only {
            let rf = assignment.first().map_or(0, Vec::len);
            let answer = (topic.topic_id, length(assignment.len()), length(rf));
            return effects.create_answers.push((request, Ok(answer)));
        }
        let partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)> = (0..)
            .zip(assignment)
            .map(|(index, assigned)| {
                let state = self.first_state(&assigned);
                (index, (assigned, state))
            })
            .collect();
        for (assigned, _) in partitions.values() {
            self.count_replicas(assigned, true);
        }
        effects.topic_writes.push(TopicWrite::Create {
            write: self.begin_write(Target::Create(topic.name.clone())),
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            overrides: topic.overrides.clone(),
            partitions: partitions.clone(),
        });
        self.index_name(&topic.name);
        self.creating.insert(topic.name.clone(), Creating { request, topic, partitions });
    }

    /// Whether a topic of this name may be created.
    fn check_name(&self, name: &TopicName) -> Result<(), Condition> {
        if self.topics.get(name).is_some_and(|t| t.deleting.is_some() || t.hidden) {
            let text = format!("{name} (still being deleted; try again when it is gone)");
            return Err(Condition::TopicAlreadyExists(text));
        }
        if self.creating.contains_key(name) {
            let text = format!("{name} (being created by another request)");
            return Err(Condition::TopicAlreadyExists(text));
        }
        if self.topics.contains_key(name) {
            return Err(Condition::TopicAlreadyExists(name.to_string()));
        }
        if self.image().unreadable.contains(name) {
            let text = format!("{name} (its node in ZooKeeper cannot be read: restore it)");
            return Err(Condition::TopicAlreadyExists(text));
        }
        let others = self.names_by_key.get(&name.collision_key());
        if let Some(other) = others.and_then(BTreeSet::first) {
            return Err(Condition::InvalidTopic(format!(
                "topic name '{name}' collides with '{other}': '.' and '_' are the same in metric names; choose another name"
            )));
        }
        Ok(())
    }

    /// The assignment asked for, or an automatic one.
    fn assignment(&self, topic: &CreateTopic) -> Result<Vec<Vec<BrokerId>>, Condition> {
        if topic.assignment.is_empty() {
            self.automatic(topic)
        } else {
            self.manual(&topic.assignment)
        }
    }

    fn automatic(&self, topic: &CreateTopic) -> Result<Vec<Vec<BrokerId>>, Condition> {
        let partitions = topic.partitions.unwrap_or(self.defaults.num_partitions);
        check_partitions(i64::from(partitions))?;
        let rf = topic.replication_factor.unwrap_or(self.defaults.default_replication_factor);
        let wanted = usize::try_from(rf).unwrap_or(0);
        if wanted < 1 {
            let text = format!("replication factor {rf} is not legal: it must be 1 or more");
            return Err(Condition::InvalidReplicationFactor(text));
        }
        self.check_replication_factor(wanted)?;
        let partitions = usize::try_from(partitions).unwrap_or(0);
        Ok(place(&self.image().brokers, &self.load, partitions, wanted))
    }

    fn manual(
        &self,
        assignment: &BTreeMap<i32, Vec<BrokerId>>,
    ) -> Result<Vec<Vec<BrokerId>>, Condition> {
        let bad = |text: String| Err(Condition::InvalidReplicaAssignment(text));
        check_partitions(i64::try_from(assignment.len()).unwrap_or(i64::MAX))?;
        let length = assignment.values().next().map_or(0, Vec::len);
        for (expected, (index, replicas)) in (0..).zip(assignment) {
            if *index != expected {
                return bad(format!(
                    "the assignment names partition {index} where {expected} is due: indexes run from 0 without a gap"
                ));
            }
            self.check_replicas(*index, replicas, length)?;
        }
        Ok(assignment.values().cloned().collect())
    }

    /// Whether a new partition may have these replicas; `length`: as many as partition 0 has.
    pub(crate) fn check_replicas(
        &self,
        index: i32,
        replicas: &[BrokerId],
        length: usize,
    ) -> Result<(), Condition> {
        let bad = |text: String| Err(Condition::InvalidReplicaAssignment(text));
        if replicas.is_empty() || replicas.len() != length {
            return bad(format!(
                "partition {index} has {} replicas, partition 0 has {length}: all need the same number, 1 or more",
                replicas.len()
            ));
        }
        let distinct: BTreeSet<BrokerId> = replicas.iter().copied().collect();
        if distinct.len() != replicas.len() {
            return bad(format!("partition {index} names a broker twice"));
        }
        if let Some(b) = replicas.iter().find(|b| !self.image().brokers.contains_key(b)) {
            return bad(format!(
                "partition {index} is assigned to broker {b}, which is not registered"
            ));
        }
        Ok(())
    }

    /// Whether so many replicas of a new partition find a live broker each.
    pub(crate) fn check_replication_factor(&self, wanted: usize) -> Result<(), Condition> {
        let live = self.image().brokers.len();
        if wanted > live {
            return Err(Condition::InvalidReplicationFactor(format!(
                "replication factor {wanted} is above the number of live brokers, {live}; start more brokers or lower it"
            )));
        }
        Ok(())
    }

    /// Whether enough replicas of each new partition stay: a draining or suspected broker is admitted to no ISR (R26, R17).
    pub(crate) fn check_draining(
        &self,
        assignment: &[Vec<BrokerId>],
        min_insync_replicas: u32,
    ) -> Result<(), Condition> {
        for replicas in assignment {
            let min = needed(min_insync_replicas).min(replicas.len());
            let stays = |b: &&BrokerId| !self.draining.contains(b) && !self.is_suspected(**b);
            let staying = replicas.iter().filter(stays).count();
            if staying < min {
                return Err(Condition::InvalidReplicationFactor(format!(
                    "of the {} replicas of a new partition only {staying} can be reached and are not being drained, and \
                     {min} must be; try again when the others are back, or undrain one",
                    replicas.len()
                )));
            }
        }
        Ok(())
    }

    /// A new partition's state: all its live replicas in the ISR under their registered epochs, so that R3 works from the
    /// first moment (R29); without those that are draining (R26) or suspected (R17).
    pub(crate) fn first_state(&self, assigned: &[BrokerId]) -> PartitionState {
        let brokers = &self.image().brokers;
        let staying = |b: &BrokerId| {
            let present = brokers.get(b).filter(|r| !r.draining && !self.is_suspected(*b));
            present.map(|r| (*b, r.epoch))
        };
        let isr: Vec<_> = assigned.iter().filter_map(staying).collect();
        PartitionState {
            leader: isr.first().map(|m| m.0),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            controller_epoch: self.epoch,
            isr,
        }
    }

    pub(crate) fn topic_created(
        &mut self,
        name: &TopicName,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(created) = self.creating.remove(name) else { return };
        let request = created.request;
        let condition = match outcome {
            WriteOutcome::TopicCreated { czxid } => {
                let incarnation = Incarnation { topic_id: created.topic.topic_id, czxid };
                return self.add_created(created, incarnation, effects);
            }
            WriteOutcome::TopicConflict => Condition::TopicAlreadyExists(name.to_string()),
            WriteOutcome::Refused { reason } => {
                Condition::InvalidRequest(format!("topic '{name}' was not created: {reason}"))
            }
            // No czxid, so the topic cannot be shown (R27): only a new term, which reads it, can go on.
            _ => {
                let why = Condition::UnknownOutcome("the topic was written, but not read back");
                effects.create_answers.push((request, Err(why)));
                return self.resign(None, effects);
            }
        };
        for (assigned, _) in created.partitions.values() {
            self.count_replicas(assigned, false);
        }
        self.forget_name(name);
        effects.create_answers.push((request, Err(condition)));
    }

    fn add_created(&mut self, created: Creating, incarnation: Incarnation, effects: &mut Effects) {
        let Creating { request, topic, partitions } = created;
        let CreateTopic { name, topic_id, overrides, .. } = topic;
        let config = self.in_force(&overrides);
        let rf = partitions.values().next().map_or(0, |p| p.0.len());
        let answer = (topic_id, length(partitions.len()), length(rf));
        let mut slots = BTreeMap::new();
        for (index, (assigned, state)) in partitions {
            let mut slot = Slot::new(Assignment::settled(assigned));
            // Sound by construction; otherwise it would be shown without a leader.
            let _ = slot.adopt(Some(state));
            slots.insert(index, slot);
        }
        let partitions = slots.iter().map(|(index, slot)| (*index, slot.shown())).collect();
        let indexes: Vec<i32> = slots.keys().copied().collect();
        let shown = overrides.clone();
        self.image
            .add_topic(&name, TopicImage { incarnation, config, overrides: shown, partitions });
        let text = format!("topic {name} created: id {topic_id}, {}", counted(answer.1));
        let topic = Topic {
            incarnation,
            version: 0,
            config,
            overrides,
            slots,
            deleting: None,
            hidden: false,
            configs: Configs::default(),
            growing: None,
            assigning: false,
        };
        self.topics.insert(name.clone(), topic);
        note(effects, None, false, text);
        self.announce(request, Announced::Created(answer), effects);
        // Brokers may have gone or come back since the first states were written.
        for partition in indexes {
            self.settle(&TopicPartition { topic: name.clone(), partition }, effects);
        }
    }

    pub(crate) fn delete_topic(
        &mut self,
        request: RequestId,
        name: &TopicName,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else {
            let unknown = Err(Condition::UnknownTopicOrPartition);
            return effects.delete_answers.push((request, unknown));
        };
        if name.is_internal() {
            let text = format!("the brokers keep their own state in '{name}': it is not deleted");
            return effects.delete_answers.push((request, Err(Condition::InvalidTopic(text))));
        }
        match &mut topic.deleting {
            None => self.begin_delete(name, vec![request], effects),
            Some(waiters) if waiters.len() < DELETE_WAITERS_MAX => waiters.push(request),
            Some(_) => effects.delete_answers.push((request, Err(Condition::RequestTimedOut))),
        }
    }

    /// Writes the deletion. Until it is applied the topic stays in the image and its partitions are looked after; dead
    /// replicas are not waited for (R29).
    pub(crate) fn begin_delete(
        &mut self,
        name: &TopicName,
        waiters: Vec<RequestId>,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.deleting = Some(waiters);
        // A write of its node that is under way must not meet the next life of the topic.
        if !topic.assigning {
            self.write_deletion(name, effects);
        }
    }

    pub(crate) fn write_deletion(&mut self, name: &TopicName, effects: &mut Effects) {
        let Some(topic) = self.topics.get(name) else { return };
        let partitions = topic.slots.keys().copied().collect();
        let write = self.begin_write(Target::Delete(name.clone()));
        effects.topic_writes.push(TopicWrite::Delete { write, name: name.clone(), partitions });
    }

    pub(crate) fn topic_deleted(
        &mut self,
        name: &TopicName,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let waiters = topic.deleting.take().unwrap_or_default();
        let topic_id = topic.incarnation.topic_id;
        // `TopicConflict`: gone already, which is what was asked for.
        let gone = matches!(outcome, WriteOutcome::Applied | WriteOutcome::TopicConflict);
        let answer = if gone {
            self.remove_topic(name, effects);
            note(effects, None, false, format!("topic {name} deleted: id {topic_id}"));
            Ok(topic_id)
        } else {
            let reason = match outcome {
                WriteOutcome::Refused { reason } => reason,
                _ => "the store's answer does not fit a deletion",
            };
            let text = format!("topic {name} was not deleted: {reason}");
            note(effects, None, true, text.clone());
            Err(Condition::InvalidRequest(text))
        };
        for request in waiters {
            match &answer {
                Ok(id) => self.announce(request, Announced::Deleted(*id), effects),
                Err(_) => effects.delete_answers.push((request, answer.clone())),
            }
        }
        if !gone {
            // Moves of its replicas have waited for the deletion.
            self.next_assignments(name, effects);
        }
    }

    fn remove_topic(&mut self, name: &TopicName, effects: &mut Effects) {
        let indexes: Vec<i32> =
            self.topics.get(name).map(|t| t.slots.keys().copied().collect()).unwrap_or_default();
        for partition in indexes {
            let at = TopicPartition { topic: name.clone(), partition };
            self.release(&at);
        }
        let Some(mut topic) = self.topics.remove(name) else { return };
        self.abandon_configs(&mut topic.configs, &Condition::UnknownTopicOrPartition, effects);
        self.abandon_growth(topic.growing.take(), effects);
        for (partition, mut slot) in topic.slots {
            let at = TopicPartition { topic: name.clone(), partition };
            for wish in slot.abandon_elections() {
                let gone = Err(Condition::UnknownTopicOrPartition);
                self.election_ended(&at, wish, &gone, effects);
            }
            self.count_replicas(&slot.assignment.replicas, false);
            let writes = [slot.write_under_way(), slot.moves.write_under_way()];
            for write in writes.into_iter().flatten() {
                self.writes.remove(&write);
            }
            let (under_way, waiting) = slot.moves.abandon();
            for request in under_way.into_iter().chain(waiting) {
                let unknown = Err(Condition::UnknownTopicOrPartition);
                effects.reassign_answers.push((request, unknown));
            }
            for request in slot.abandon() {
                effects.alter_answers.push((request, Err(Condition::UnknownTopicOrPartition)));
            }
        }
        self.forget_name(name);
        self.image.remove_topic(name);
    }

    /// Takes a name into the index of colliding names.
    pub(crate) fn index_name(&mut self, name: &TopicName) {
        self.names_by_key.entry(name.collision_key()).or_default().insert(name.clone());
    }

    fn forget_name(&mut self, name: &TopicName) {
        let key = name.collision_key();
        if let Some(names) = self.names_by_key.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.names_by_key.remove(&key);
            }
        }
    }
}

/// `n partitions`, as people say it.
pub(crate) fn counted(partitions: i32) -> String {
    if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") }
}

fn check_partitions(partitions: i64) -> Result<(), Condition> {
    if (1..=i64::from(PARTITIONS_PER_CREATE_MAX)).contains(&partitions) {
        return Ok(());
    }
    Err(Condition::InvalidPartitions(format!(
        "{partitions} partitions are not possible: a topic is created with 1 to {PARTITIONS_PER_CREATE_MAX}"
    )))
}

pub(crate) fn length(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A topic that says itself what no producer with acks=all could ever satisfy is refused. What holds for topics that do not say
/// is no reason, as in Kafka: those producers are then told so, and all others can write.
fn check_min_insync(
    topic: &CreateTopic,
    config: &TopicConfig,
    assignment: &[Vec<BrokerId>],
) -> Result<(), Condition> {
    let rf = assignment.first().map_or(0, Vec::len);
    let min = config.min_insync_replicas;
    if topic.overrides.contains_key("min.insync.replicas") && u32::try_from(rf).unwrap_or(0) < min {
        return Err(Condition::InvalidConfig(format!(
            "min.insync.replicas {min} is above the replication factor {rf}: no producer with acks=all could ever \
             succeed; lower min.insync.replicas or raise the replication factor"
        )));
    }
    Ok(())
}

/// Retention by age would take the brokers' own state away, for instance what groups have committed.
pub(crate) fn check_cleanup(name: &TopicName, config: &TopicConfig) -> Result<(), Condition> {
    if name.is_internal() && (config.cleanup.delete || !config.cleanup.compact) {
        return Err(Condition::InvalidConfig(format!(
            "the brokers keep their own state in '{name}', and old records of it must not go: its cleanup.policy has to be compact"
        )));
    }
    Ok(())
}
