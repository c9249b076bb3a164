//! Moving replicas (KIP-455): what may be asked for (R19, R21, R23), when a move is over (R20), and one write of a topic's node at a time (R18).
//!
//! One node holds the assignments of all partitions of a topic, so the writes of a topic take turns. A move is part of that
//! node: a new controller finds it there and goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use barnabas_types::{
    Assignment, BrokerId, Condition, Partition, PartitionState, TopicName, TopicPartition,
};

use crate::controller::{Controller, Target, Topic, note};
use crate::controller_api::{AssignmentWrite, Effects, Reassign, RequestId, WriteId, WriteOutcome};
use crate::decide::{Decision, finish, start};
use crate::partitions::{Slot, unreadable};
use crate::placement::resize;

/// Most wishes of one partition that wait for their turn.
const WISHES_MAX: usize = 16;

/// A write of the topic's node and the partition's state that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Assigning {
    write: WriteId,
    assignment: Assignment,
    pub(crate) decision: Decision,
    /// The wish that asked for it; `None`: a move is over.
    wish: Option<(RequestId, Reassign)>,
}

/// The moves of one partition's replicas, beside the assignment itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Moves {
    wishes: VecDeque<(RequestId, Reassign)>,
    /// Boxed: nearly always there is none, and there are many partitions.
    pub(crate) assigning: Option<Box<Assigning>>,
    /// The store refused the end of the move: tried again when something of the partition changes.
    pub(crate) refused: bool,
    /// Replicas that the last move removed, and the image that tells their brokers so (R22).
    leaving: Option<Box<(u64, Vec<BrokerId>)>>,
}

impl Moves {
    /// The write under way.
    pub(crate) fn write_under_way(&self) -> Option<WriteId> {
        self.assigning.as_ref().map(|a| a.write)
    }

    /// Forgets everything; returns who waits: those whose wish was being written first, then the others.
    pub(crate) fn abandon(&mut self) -> (Option<RequestId>, Vec<RequestId>) {
        let under_way = self.assigning.take().and_then(|a| a.wish).map(|w| w.0);
        (under_way, self.give_up_waiting())
    }

    /// Forgets the wishes that wait; returns whose they were.
    pub(crate) fn give_up_waiting(&mut self) -> Vec<RequestId> {
        self.wishes.drain(..).map(|w| w.0).collect()
    }
}

impl Controller {
    /// An operator's wish: looked at now, or when the writes that are under way are done.
    pub(crate) fn reassign(
        &mut self,
        request: RequestId,
        at: &TopicPartition,
        wish: Reassign,
        effects: &mut Effects,
    ) {
        let topic = self.topics.get_mut(&at.topic);
        let topic = topic.filter(|t| t.deleting.is_none() && !t.hidden);
        let Some(slot) = topic.and_then(|t| t.slots.get_mut(&at.partition)) else {
            let unknown = Err(Condition::UnknownTopicOrPartition);
            return effects.reassign_answers.push((request, unknown));
        };
        if slot.moves.wishes.len() >= WISHES_MAX {
            return effects.reassign_answers.push((request, Err(Condition::RequestTimedOut)));
        }
        slot.moves.wishes.push_back((request, wish));
        if !slot.is_busy() {
            self.settle(at, effects);
        }
    }

    /// Begins what is to be written to the topic's node because of this partition, if it is its turn. `true`: a write is
    /// under way now. The partition itself has none, and its state may stand.
    pub(crate) fn begin_assignment(&mut self, at: &TopicPartition, effects: &mut Effects) -> bool {
        while let Some((request, wish)) = self.next_wish(at) {
            match self.judge_wish(at, &wish) {
                Err(condition) => effects.reassign_answers.push((request, Err(condition))),
                // It is so already, or on the way to be.
                Ok(None) => effects.reassign_answers.push((request, Ok(()))),
                Ok(Some((assignment, decision))) => {
                    self.write_assignment(at, assignment, decision, Some((request, wish)), effects);
                    return true;
                }
            }
        }
        let Some(topic) = self.topics.get(&at.topic).filter(|t| may_write(t)) else { return false };
        let Some(slot) = topic.slots.get(&at.partition).filter(|s| !s.moves.refused) else {
            return false;
        };
        let view = self.view(topic, slot);
        let over = slot.committed().and_then(|state| finish(&view, &slot.assignment, state));
        let Some(decision) = over else { return false };
        let assignment = slot.assignment.arrived();
        self.write_assignment(at, assignment, decision, None, effects);
        true
    }

    fn next_wish(&mut self, at: &TopicPartition) -> Option<(RequestId, Reassign)> {
        let topic = self.topics.get_mut(&at.topic).filter(|t| may_write(t))?;
        topic.slots.get_mut(&at.partition)?.moves.wishes.pop_front()
    }

    /// The assignment and the state that a wish asks for; `None` if nothing is to be written.
    fn judge_wish(
        &self,
        at: &TopicPartition,
        wish: &Reassign,
    ) -> Result<Option<(Assignment, Decision)>, Condition> {
        let topic = self.topics.get(&at.topic).ok_or(Condition::UnknownTopicOrPartition)?;
        let slot = topic.slots.get(&at.partition).ok_or(Condition::UnknownTopicOrPartition)?;
        let state = slot.committed().ok_or_else(unreadable)?;
        let present = &slot.assignment;
        let limit = |throttle: u64| Some(throttle).filter(|limit| *limit > 0);
        let kept = present.moving.throttle;
        let wanted = match wish {
            Reassign::To { replicas, throttle } => {
                self.check_target(present, replicas)?;
                present.towards(replicas, throttle.map_or(kept, limit))
            }
            _ if !present.moving.is_under_way() => return Err(Condition::NoReassignmentInProgress),
            Reassign::Cancel => present.towards(&present.original(), kept),
            Reassign::Throttle(throttle) => present.towards(&present.target(), limit(*throttle)),
        };
        let min = topic.config.min_insync_replicas;
        let target = wanted.target().len();
        // One that has fewer already may move: that is no fault of the move.
        let lowers = matches!(wish, Reassign::To { .. }) && target < present.target().len();
        if u32::try_from(target).unwrap_or(u32::MAX) < min && lowers {
            return Err(Condition::InvalidReplicaAssignment(format!(
                "{target} replicas are fewer than min.insync.replicas, {min}: no producer with acks=all could ever \
                 succeed; name more brokers, or lower it first (`barnabas topic alter {} --config \
                 min.insync.replicas={target}`)",
                at.topic
            )));
        }
        if wanted == *present {
            return Ok(None);
        }
        let decision = start(&self.view(topic, slot), present, &wanted, state);
        Ok(Some((wanted, decision)))
    }

    /// Brokers that do not hold the partition yet must be registered, as in Kafka; those that do may be away.
    fn check_target(&self, present: &Assignment, target: &[BrokerId]) -> Result<(), Condition> {
        let bad = |text: String| Err(Condition::InvalidReplicaAssignment(text));
        if target.is_empty() {
            return bad("a partition needs a replica: name one broker or more".to_owned());
        }
        if let Some(b) = target.iter().find(|b| b.0 < 0) {
            return bad(format!("{b} is no broker id"));
        }
        let distinct: BTreeSet<BrokerId> = target.iter().copied().collect();
        if distinct.len() != target.len() {
            return bad("a broker is named twice".to_owned());
        }
        let original = present.original();
        let registered = |b: &BrokerId| self.image().brokers.contains_key(b);
        match target.iter().find(|b| !original.contains(b) && !registered(b)) {
            Some(b) => bad(format!(
                "broker {b} is not registered and holds no replica yet: start it, or name another"
            )),
            None => Ok(()),
        }
    }

    fn write_assignment(
        &mut self,
        at: &TopicPartition,
        assignment: Assignment,
        decision: Decision,
        wish: Option<(RequestId, Reassign)>,
        effects: &mut Effects,
    ) {
        let write = self.begin_write(Target::Assignment(at.clone()));
        let Some(topic) = self.topics.get_mut(&at.topic) else { return };
        topic.assigning = true;
        let mut assignments: BTreeMap<i32, Assignment> =
            topic.slots.iter().map(|(index, slot)| (*index, slot.assignment.clone())).collect();
        assignments.insert(at.partition, assignment.clone());
        let (topic_id, topic_version) = (topic.incarnation.topic_id, topic.version);
        let Some(slot) = topic.slots.get_mut(&at.partition) else { return };
        let state = decision.state.clone();
        let expected = slot.committed().map_or(state.partition_epoch, |s| s.partition_epoch);
        slot.moves.assigning = Some(Box::new(Assigning { write, assignment, decision, wish }));
        effects.assignment_writes.push(AssignmentWrite {
            write,
            partition: at.clone(),
            topic_id,
            topic_version,
            assignments,
            expected,
            state,
        });
    }

    pub(crate) fn assignment_written(
        &mut self,
        write: WriteId,
        at: &TopicPartition,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(&at.topic) else { return };
        let foreign = match &outcome {
            WriteOutcome::AssignmentConflict { topic: Some((_, found)), .. } => {
                let unknown = |index: &i32| !topic.slots.contains_key(index);
                topic.growing.is_none() && found.keys().any(unknown)
            }
            _ => false,
        };
        let Some(slot) = topic.slots.get_mut(&at.partition) else { return };
        let Some(assigning) = slot.moves.assigning.take_if(|a| a.write == write) else {
            return; // of an earlier life of the topic
        };
        let Assigning { assignment, decision, wish, .. } = *assigning;
        topic.assigning = false;
        match outcome {
            WriteOutcome::Applied => {
                topic.version += 1;
                let Decision { state, text, warn } = decision;
                note(effects, Some(at.clone()), warn, text);
                self.adopt_assignment(at, assignment, Some(state), effects);
                if let Some((request, _)) = wish {
                    effects.reassign_answers.push((request, Ok(())));
                }
            }
            WriteOutcome::Refused { reason } => {
                self.assignment_refused(at, wish, reason, effects);
            }
            // Written over, they would be lost.
            WriteOutcome::AssignmentConflict { .. } if foreign => {
                let reason = "somebody else has changed its number of partitions in ZooKeeper; it is known after the next election";
                self.assignment_refused(at, wish, reason, effects);
            }
            // Its version is not known either: decided anew, it would meet the same for ever.
            WriteOutcome::AssignmentConflict { topic: None, now } => {
                self.assignments_found(at, None, now, effects);
                let reason = "the topic's node in ZooKeeper is gone or cannot be read; restore it";
                self.assignment_refused(at, wish, reason, effects);
            }
            WriteOutcome::AssignmentConflict { topic: found, now } => {
                let text = "another assignment or state is stored; deciding anew".to_owned();
                note(effects, Some(at.clone()), false, text);
                if let Some(wish) = wish {
                    slot.moves.wishes.push_front(wish);
                }
                self.assignments_found(at, found, now, effects);
            }
            _ => {
                if let Some((request, _)) = wish {
                    let gone = Err(Condition::UnknownTopicOrPartition);
                    effects.reassign_answers.push((request, gone));
                }
            }
        }
        self.settle(at, effects);
        if self.topics.get(&at.topic).is_some_and(|topic| topic.deleting.is_some()) {
            // It has waited for this write.
            self.write_deletion(&at.topic, effects);
        } else {
            self.next_assignments(&at.topic, effects);
        }
    }

    /// Whoever asked is told; the end of a move is tried again when something of the partition changes.
    fn assignment_refused(
        &mut self,
        at: &TopicPartition,
        wish: Option<(RequestId, Reassign)>,
        reason: &'static str,
        effects: &mut Effects,
    ) {
        let text = format!("the reassignment was not stored: {reason}");
        note(effects, Some(at.clone()), true, text.clone());
        match (wish, self.slot_mut(at)) {
            (Some((request, _)), _) => {
                effects.reassign_answers.push((request, Err(Condition::InvalidRequest(text))));
            }
            (None, Some(slot)) => slot.moves.refused = true,
            (None, None) => {}
        }
    }

    /// The store holds other versions than were known: what it says counts, for every partition of the topic.
    fn assignments_found(
        &mut self,
        at: &TopicPartition,
        found: Option<(i32, BTreeMap<i32, Assignment>)>,
        now: Option<PartitionState>,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(&at.topic) else { return };
        let mut found = match found {
            Some((version, assignments)) => {
                topic.version = version;
                if let Some(growing) = &mut topic.growing {
                    growing.note_found(&assignments);
                }
                assignments
            }
            None => BTreeMap::new(),
        };
        let present = topic.slots.get(&at.partition).map(|slot| slot.assignment.clone());
        let assignment = found.remove(&at.partition).or(present).unwrap_or_default();
        self.adopt_assignment(at, assignment, now, effects);
        for (partition, assignment) in found {
            let at = TopicPartition { topic: at.topic.clone(), partition };
            let state = self.slot_mut(&at).and_then(|slot| slot.committed().cloned());
            if self.slot_mut(&at).is_some_and(|slot| slot.assignment != assignment) {
                self.adopt_assignment(&at, assignment, state, effects);
            }
        }
    }

    /// What is stored now, shown to everybody. Replicas that are gone are remembered until their brokers know (R22).
    fn adopt_assignment(
        &mut self,
        at: &TopicPartition,
        assignment: Assignment,
        state: Option<PartitionState>,
        effects: &mut Effects,
    ) {
        let Some(slot) = self.slot_mut(at) else { return };
        let before = std::mem::replace(&mut slot.assignment, assignment);
        let after = slot.assignment.replicas.clone();
        slot.failed.retain(|b| after.contains(b));
        let damaged = slot.adopt(state).is_err();
        if damaged {
            let text = "its stored state does not fit its assignment: shown without a leader";
            note(effects, Some(at.clone()), true, text.to_owned());
        }
        self.count_replicas(&before.replicas, false);
        self.count_replicas(&after, true);
        self.show(at);
        let version = self.version();
        let left: Vec<BrokerId> =
            before.replicas.into_iter().filter(|b| !after.contains(b)).collect();
        if let Some(slot) = self.slot_mut(at)
            && !left.is_empty()
        {
            let earlier = slot.moves.leaving.take().map_or_else(Vec::new, |leaving| leaving.1);
            let still = earlier.into_iter().filter(|b| !after.contains(b) && !left.contains(b));
            let leaving = left.iter().copied().chain(still).collect();
            slot.moves.leaving = Some(Box::new((version, leaving)));
        }
    }

    /// The topic's node may be free: the next partition's turn.
    pub(crate) fn next_assignments(&mut self, name: &TopicName, effects: &mut Effects) {
        let Some(topic) = self.topics.get(name) else { return };
        let waits = |slot: &Slot| {
            !slot.is_busy()
                && (!slot.moves.wishes.is_empty() || slot.assignment.moving.is_under_way())
        };
        let waiting: Vec<i32> =
            topic.slots.iter().filter(|(_, slot)| waits(slot)).map(|(index, _)| *index).collect();
        for partition in waiting {
            if self.topics.get(name).is_none_or(|topic| !may_write(topic)) {
                return;
            }
            self.settle(&TopicPartition { topic: name.clone(), partition }, effects);
        }
    }

    /// Where the partitions of a topic would have to move to get another replication factor: as few replicas as possible move,
    /// racks and brokers with few replicas come first. Nothing is begun.
    ///
    /// # Errors
    /// The replication factor is not legal or above the number of brokers, or there is no such topic.
    pub fn resized(
        &self,
        name: &TopicName,
        replication_factor: i32,
    ) -> Result<BTreeMap<i32, Vec<BrokerId>>, Condition> {
        if !self.loaded || self.resigned {
            return Err(Condition::NotController);
        }
        let topic = self.topics.get(name).filter(|t| t.deleting.is_none() && !t.hidden);
        let topic = topic.ok_or(Condition::UnknownTopicOrPartition)?;
        let bad = |text: String| Err(Condition::InvalidReplicationFactor(text));
        let wanted = usize::try_from(replication_factor).unwrap_or(0);
        if wanted < 1 {
            return bad(format!(
                "replication factor {replication_factor} is not legal: it must be 1 or more"
            ));
        }
        let present: BTreeMap<i32, Vec<BrokerId>> =
            topic.slots.iter().map(|(index, slot)| (*index, slot.assignment.target())).collect();
        let resized = resize(&self.image().brokers, &self.load, &present, wanted);
        if resized.values().any(|replicas| replicas.len() < wanted) {
            let live = self.image().brokers.len();
            return bad(format!(
                "replication factor {wanted} is above the number of live brokers, {live}; start more brokers or lower it"
            ));
        }
        Ok(resized)
    }

    /// The partitions whose replicas are being moved, each with the replicas of both ends; also those whose move is stored as
    /// over, while live brokers that lost their replica have not confirmed it (R22): they count as being removed.
    ///
    /// # Errors
    /// [`Condition::NotController`] before the term is loaded and after it is over.
    pub fn reassignments(&self) -> Result<BTreeMap<TopicPartition, Partition>, Condition> {
        if !self.loaded || self.resigned {
            return Err(Condition::NotController);
        }
        let mut all = BTreeMap::new();
        for (name, topic) in self.topics.iter().filter(|(_, t)| !t.hidden) {
            for (index, slot) in &topic.slots {
                let mut shown = slot.shown();
                let leaving = self.still_leaving(slot);
                shown.assigned_replicas.extend(&leaving);
                shown.moving.removing.extend(&leaving);
                if shown.moving.is_under_way() {
                    all.insert(TopicPartition { topic: name.clone(), partition: *index }, shown);
                }
            }
        }
        Ok(all)
    }

    /// Removed replicas whose live brokers have not confirmed that they are gone. A dead broker is not waited for: the first
    /// full state after its return removes them.
    fn still_leaving(&self, slot: &Slot) -> Vec<BrokerId> {
        let Some((version, brokers)) = slot.moves.leaving.as_deref() else { return Vec::new() };
        let knows = |b: &BrokerId| self.acked.get(b).is_some_and(|acked| acked >= version);
        let live = |b: &BrokerId| self.image().brokers.contains_key(b);
        let held = |b: &BrokerId| slot.assignment.replicas.contains(b);
        brokers.iter().copied().filter(|b| live(b) && !knows(b) && !held(b)).collect()
    }
}

/// Whether the topic's node may be written now (R18): one write at a time, none while partitions are being added, which it
/// would not name, and none while it is being deleted.
fn may_write(topic: &Topic) -> bool {
    !topic.assigning && topic.growing.is_none() && topic.deleting.is_none() && !topic.hidden
}
