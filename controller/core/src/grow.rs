//! Adding partitions to a topic: checks, first states, one write with the topic's node (R1, R29), answers.

use std::collections::BTreeMap;

use barnabas_types::{Assignment, BrokerId, Condition, PartitionState, TopicName, TopicPartition};

use crate::announcements::Announced;
use crate::controller::{Controller, Target, note};
use crate::controller_api::{
    CreatePartitions, Effects, RequestId, TopicWrite, WriteId, WriteOutcome,
};
use crate::partitions::Slot;
use crate::placement::place;
use crate::topics::{PARTITIONS_PER_CREATE_MAX, counted, length};

type NewPartitions = BTreeMap<i32, (Vec<BrokerId>, PartitionState)>;

/// Partitions that are being added to a topic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Growing {
    request: RequestId,
    write: WriteId,
    partitions: NewPartitions,
    /// They were found in the topic's node, whose version is known since: it need not be counted on.
    found: bool,
}

impl Growing {
    /// The topic's node was read meanwhile.
    pub(crate) fn note_found(&mut self, stored: &BTreeMap<i32, Assignment>) {
        self.found = self.partitions.keys().all(|index| stored.contains_key(index));
    }

    /// The new partitions' first states.
    pub(crate) fn states(&self) -> impl Iterator<Item = &PartitionState> {
        self.partitions.values().map(|(_, state)| state)
    }
}

impl Controller {
    pub(crate) fn create_partitions(
        &mut self,
        request: RequestId,
        create: CreatePartitions,
        effects: &mut Effects,
    ) {
        let min = self.topics.get(&create.name).map_or(1, |t| t.config.min_insync_replicas);
        let checked = self.new_assignment(&create);
        let assignment = match checked.and_then(|a| self.check_draining(&a, min).map(|()| a)) {
            Ok(assignment) => assignment,
            Err(condition) => {
                return effects.partitions_answers.push((request, Err(condition)));
            }
        };
        if create.validate_only {
            return effects.partitions_answers.push((request, Ok(create.total)));
        }
        let name = create.name;
        let Some(topic) = self.topics.get(&name) else { return };
        let (incarnation, first) = (topic.incarnation, length(topic.slots.len()));
        let with_state = |assigned: Vec<BrokerId>| {
            let state = self.first_state(&assigned);
            (assigned, state)
        };
        let partitions: NewPartitions =
            (first..).zip(assignment.into_iter().map(with_state)).collect();
        for (assigned, _) in partitions.values() {
            self.count_replicas(assigned, true);
        }
        let write = self.begin_write(Target::Grow(name.clone()));
        if let Some(topic) = self.topics.get_mut(&name) {
            let partitions = partitions.clone();
            topic.growing = Some(Growing { request, write, partitions, found: false });
        }
        let grow = TopicWrite::Grow { write, name, incarnation, first, partitions };
        effects.topic_writes.push(grow);
    }

    /// The replicas of each new partition.
    fn new_assignment(&self, create: &CreatePartitions) -> Result<Vec<Vec<BrokerId>>, Condition> {
        let name = &create.name;
        let topic = self.topics.get(name).filter(|t| t.deleting.is_none() && !t.hidden);
        let topic = topic.ok_or(Condition::UnknownTopicOrPartition)?;
        if topic.growing.is_some() {
            return Err(Condition::InvalidRequest(format!(
                "another request is adding partitions to topic '{name}'; describe it, then try again"
            )));
        }
        if name.is_internal() {
            // A group's partition follows from their number: another number, and every group has lost its offsets.
            return Err(Condition::InvalidPartitions(format!(
                "the brokers keep their own state in '{name}', spread over the partitions that it has: it gets no others"
            )));
        }
        let present = length(topic.slots.len());
        let added = i64::from(create.total) - i64::from(present);
        if added <= 0 {
            return Err(Condition::InvalidPartitions(format!(
                "topic '{name}' has {}; {} would be no increase, and partitions cannot be taken away",
                counted(present),
                create.total
            )));
        }
        if added > i64::from(PARTITIONS_PER_CREATE_MAX) {
            return Err(Condition::InvalidPartitions(format!(
                "{added} more partitions are too many for one request, which adds at most {PARTITIONS_PER_CREATE_MAX}; \
                 add them in steps"
            )));
        }
        let added = usize::try_from(added).unwrap_or(0);
        let replicas = topic.slots.get(&0).map_or(0, |slot| slot.assignment.target().len());
        if create.assignment.is_empty() {
            self.check_replication_factor(replicas)?;
            return Ok(place(&self.image().brokers, &self.load, added, replicas));
        }
        if create.assignment.len() != added {
            return Err(Condition::InvalidReplicaAssignment(format!(
                "{} given for {added} new of topic '{name}', which has {}: name the replicas of each new partition",
                if create.assignment.len() == 1 {
                    "1 assignment is".to_owned()
                } else {
                    format!("{} assignments are", create.assignment.len())
                },
                counted(present),
            )));
        }
        for (index, assigned) in (present..).zip(&create.assignment) {
            self.check_replicas(index, assigned, replicas)?;
        }
        Ok(create.assignment.clone())
    }

    pub(crate) fn partitions_created(
        &mut self,
        name: &TopicName,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let Some(growing) = topic.growing.take() else { return };
        let Growing { request, partitions, found, .. } = growing;
        let condition = match outcome {
            WriteOutcome::Applied => {
                if !found {
                    topic.version += 1;
                }
                return self.adopt_partitions(name, request, partitions, effects);
            }
            WriteOutcome::Refused { reason } => Condition::InvalidRequest(format!(
                "topic '{name}' did not get more partitions: {reason}"
            )),
            _ => Condition::UnknownTopicOrPartition,
        };
        for (assigned, _) in partitions.values() {
            self.count_replicas(assigned, false);
        }
        effects.partitions_answers.push((request, Err(condition)));
        self.next_assignments(name, effects);
    }

    fn adopt_partitions(
        &mut self,
        name: &TopicName,
        request: RequestId,
        partitions: NewPartitions,
        effects: &mut Effects,
    ) {
        let indexes: Vec<i32> = partitions.keys().copied().collect();
        let Some(topic) = self.topics.get_mut(name) else { return };
        for (index, (assigned, state)) in partitions {
            let mut slot = Slot::new(Assignment::settled(assigned));
            // Sound by construction; otherwise it would be shown without a leader.
            let _ = slot.adopt(Some(state));
            self.image.set_partition(name, index, slot.shown());
            topic.slots.insert(index, slot);
        }
        let total = length(topic.slots.len());
        let text = format!("topic {name} got more partitions: {}", counted(total));
        note(effects, None, false, text);
        self.announce(request, Announced::Grown(total), effects);
        // Brokers may have gone or come back since the first states were written.
        for partition in indexes {
            self.settle(&TopicPartition { topic: name.clone(), partition }, effects);
        }
        self.next_assignments(name, effects);
    }

    /// The topic is gone, and with it what was being added.
    pub(crate) fn abandon_growth(&mut self, growing: Option<Growing>, effects: &mut Effects) {
        let Some(Growing { request, write, partitions, .. }) = growing else { return };
        self.writes.remove(&write);
        for (assigned, _) in partitions.values() {
            self.count_replicas(assigned, false);
        }
        let gone = Condition::UnknownTopicOrPartition;
        effects.partitions_answers.push((request, Err(gone)));
    }

    /// The term is over: what becomes of the writes under way is not known, unless one was `fenced`.
    pub(crate) fn abandon_all_growth(&mut self, fenced: Option<&Target>, effects: &mut Effects) {
        for (name, topic) in &mut self.topics {
            let Some(growing) = topic.growing.take() else { continue };
            let why = if fenced == Some(&Target::Grow(name.clone())) {
                Condition::NotController
            } else {
                Condition::UnknownOutcome("the controller was deposed meanwhile")
            };
            effects.partitions_answers.push((growing.request, Err(why)));
        }
    }
}
