//! One partition's write in flight, its queue and its settling: level-triggered, at most one write at a time.

use std::collections::BTreeMap;

use barnabas_types::{
    Assignment, BrokerId, Condition, LeaderEpoch, Partition, PartitionState, TopicPartition,
};

use crate::controller::{Controller, Target, note};
use crate::controller_api::{
    AlterPartition, Effects, PartitionWrite, RequestId, WriteId, WriteOutcome,
};
use crate::decide::{Decision, Report, decide, is_sound, judge};
use crate::elections::{Wish, elect};
use crate::reassign::Moves;

/// A write of the partition's state that is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flight {
    write: WriteId,
    decision: Decision,
    /// The proposal that asked for it; without one or the next: registrations or reports did.
    proposal: Option<(RequestId, AlterPartition)>,
    /// The election that asked for it.
    wish: Option<Wish>,
}

/// A state node that is missing or breaks I8.
#[derive(Debug)]
pub(crate) struct Damaged;

/// What the controller knows of one partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot {
    pub(crate) assignment: Assignment,
    /// What is asked of the assignment.
    pub(crate) moves: Moves,
    /// The newest state known to be stored.
    last_known: PartitionState,
    /// It is missing or damaged since: shown without a leader, never written by us.
    damaged: bool,
    /// The store refused the write that registrations demanded: shown without a leader until one succeeds.
    withheld: bool,
    /// Boxed, as the queued proposal is: nearly always there is none, and there are many partitions.
    pub(crate) flight: Option<Box<Flight>>,
    /// The newest proposal that came while a write was under way.
    queued: Option<Box<(RequestId, AlterPartition)>>,
    /// An election that waits for its turn.
    pub(crate) wish: Option<Box<Wish>>,
    /// Reports for exactly the present leaderless epoch (R8).
    pub(crate) reports: BTreeMap<BrokerId, Report>,
    /// Assigned replicas that their live brokers cannot serve (R38).
    pub(crate) failed: Vec<BrokerId>,
    /// Brokers that are not pushed to because of this partition (R3).
    holds: Vec<BrokerId>,
}

impl Slot {
    pub(crate) fn new(assignment: Assignment) -> Self {
        Self {
            assignment,
            moves: Moves::default(),
            last_known: PartitionState::default(),
            damaged: true,
            withheld: false,
            flight: None,
            queued: None,
            wish: None,
            reports: BTreeMap::new(),
            failed: Vec::new(),
            holds: Vec::new(),
        }
    }

    /// Takes what the store holds. An earlier leader epoch's reports are void (R8).
    ///
    /// # Errors
    /// [`Damaged`] if there is nothing sound; the partition is then shown without a leader.
    pub(crate) fn adopt(&mut self, state: Option<PartitionState>) -> Result<(), Damaged> {
        self.withheld = false;
        self.moves.refused = false;
        let Some(state) = state.filter(|s| is_sound(&self.assignment.replicas, s)) else {
            self.damaged = true;
            self.reports.clear();
            return Err(Damaged);
        };
        if state.leader.is_some() || state.leader_epoch != self.last_known.leader_epoch {
            self.reports.clear();
        }
        self.last_known = state;
        self.damaged = false;
        Ok(())
    }

    /// The state on which decisions build; `None` if it is missing or damaged.
    pub(crate) fn committed(&self) -> Option<&PartitionState> {
        (!self.damaged).then_some(&self.last_known)
    }

    /// The partition as brokers and clients are shown it.
    pub(crate) fn shown(&self) -> Partition {
        let mut state = self.last_known.clone();
        if self.damaged || self.withheld {
            state.leader = None;
        }
        let Assignment { replicas: assigned_replicas, moving } = self.assignment.clone();
        Partition { assigned_replicas, moving, state }
    }

    /// Keeps a report if it speaks of the present leaderless epoch. Returns whether it may change a decision.
    pub(crate) fn note_report(
        &mut self,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
        report: Report,
    ) -> bool {
        let fits = self.committed().is_some_and(|s| {
            s.leader.is_none()
                && s.leader_epoch == leader_epoch
                && self.assignment.replicas.contains(&broker)
        });
        fits && self.reports.insert(broker, report) != Some(report)
    }

    /// Whether no write is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_busy()
    }

    /// Whether the stored state, or the one that is being written, is such a one.
    pub(crate) fn concerns(&self, such: impl Fn(&PartitionState) -> bool) -> bool {
        such(&self.last_known)
            || self.flight.as_ref().is_some_and(|f| such(&f.decision.state))
            || self.moves.assigning.as_ref().is_some_and(|a| such(&a.decision.state))
    }

    /// Whether a write of its state is under way, alone or with its assignment.
    pub(crate) fn is_busy(&self) -> bool {
        self.flight.is_some() || self.moves.assigning.is_some()
    }

    /// The write under way.
    pub(crate) fn write_under_way(&self) -> Option<WriteId> {
        self.flight.as_ref().map(|f| f.write)
    }

    /// Forgets the write under way and the queue; returns whose proposals they were.
    pub(crate) fn abandon(&mut self) -> Vec<RequestId> {
        let flight = self.flight.take().and_then(|f| f.proposal);
        flight.into_iter().chain(self.queued.take().map(|q| *q)).map(|p| p.0).collect()
    }

    /// Forgets the election that waits, and the one that is being written. To be called before [`Slot::abandon`].
    pub(crate) fn abandon_elections(&mut self) -> Vec<Wish> {
        let flight = self.flight.as_mut().and_then(|f| f.wish.take());
        flight.into_iter().chain(self.wish.take().map(|wish| *wish)).collect()
    }
}

impl Controller {
    /// A leader's proposal: judged now, or after the write that is under way.
    pub(crate) fn alter_partition(
        &mut self,
        request: RequestId,
        proposal: AlterPartition,
        effects: &mut Effects,
    ) {
        let at = proposal.partition.clone();
        let deleting = self.topics.get(&at.topic).is_some_and(|t| t.deleting.is_some());
        let Some(slot) = self.slot_mut(&at).filter(|_| !deleting) else {
            effects.alter_answers.push((request, Err(Condition::UnknownTopicOrPartition)));
            return;
        };
        if let Some(earlier) = slot.queued.replace(Box::new((request, proposal))) {
            effects.alter_answers.push((earlier.0, Err(superseded())));
        }
        if !slot.is_busy() {
            self.settle(&at, effects);
        }
    }

    /// Brings one partition to rest: if nothing is under way, writes what registrations and reports demand, else what
    /// becomes of its assignment, else what a queued proposal asks for. Called after everything that could change the answer.
    pub(crate) fn settle(&mut self, at: &TopicPartition, effects: &mut Effects) {
        self.release(at);
        let Some(topic) = self.topics.get(&at.topic).filter(|t| !t.hidden) else { return };
        let Some(slot) = topic.slots.get(&at.partition) else { return };
        let view = self.view(topic, slot);
        let unclean = topic.config.unclean_leader_election;
        let assigned = &slot.assignment.replicas;
        let decided = slot
            .committed()
            .filter(|_| !slot.is_busy())
            .and_then(|s| decide(&view, assigned, s, &slot.reports, unclean));
        let busy = slot.is_busy() || decided.is_some();
        let elected = slot.wish.as_deref().filter(|_| !busy).map(|wish| {
            slot.committed()
                .map_or(Err(unreadable()), |s| elect(&view, assigned, s, &slot.reports, wish))
        });
        if busy {
            let bounced = slot.committed().map_or_else(Vec::new, |s| view.bounced(s));
            self.hold(at, bounced);
        }
        if let Some(decision) = decided {
            self.write(at, decision, (None, None), effects);
        } else if let Some(elected) = elected
            && let Some(wish) = self.slot_mut(at).and_then(|s| s.wish.take()).map(|wish| *wish)
        {
            match elected {
                Ok(decision) => self.write(at, decision, (None, Some(wish)), effects),
                Err(condition) => {
                    self.election_ended(at, wish, &Err(condition), effects);
                    self.settle(at, effects);
                }
            }
        } else if !busy && !self.begin_assignment(at, effects) {
            self.judge_queued(at, effects);
        }
    }

    /// Answers or writes the proposal that waits, if there is one.
    fn judge_queued(&mut self, at: &TopicPartition, effects: &mut Effects) {
        let Some(topic) = self.topics.get_mut(&at.topic) else { return };
        let incarnation = topic.incarnation;
        let Some(slot) = topic.slots.get_mut(&at.partition) else { return };
        let Some(queued) = slot.queued.take() else { return };
        let (request, proposal) = *queued;
        let Some(topic) = self.topics.get(&at.topic) else { return };
        let Some(slot) = topic.slots.get(&at.partition) else { return };
        let view = self.view(topic, slot);
        let judged = slot.committed().map_or(Err(unreadable()), |s| {
            judge(&view, incarnation, &slot.assignment.replicas, s, &proposal)
        });
        match judged {
            Ok(decision) => self.write(at, decision, (Some((request, proposal)), None), effects),
            Err(condition) => effects.alter_answers.push((request, Err(condition))),
        }
    }

    fn write(
        &mut self,
        at: &TopicPartition,
        decision: Decision,
        (proposal, wish): (Option<(RequestId, AlterPartition)>, Option<Wish>),
        effects: &mut Effects,
    ) {
        let write = self.begin_write(Target::Partition(at.clone()));
        let Some(slot) = self.slot_mut(at) else { return };
        let state = decision.state.clone();
        debug_assert!(holds_i8(&slot.assignment.replicas, &state), "I8 at {at}: {state:?}");
        let expected = slot.last_known.partition_epoch;
        slot.flight = Some(Box::new(Flight { write, decision, proposal, wish }));
        effects.partition_writes.push(PartitionWrite {
            write,
            partition: at.clone(),
            expected,
            state,
        });
    }

    pub(crate) fn partition_written(
        &mut self,
        write: WriteId,
        at: &TopicPartition,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let deleting = self.topics.get(&at.topic).is_some_and(|t| t.deleting.is_some());
        let Some(slot) = self.slot_mut(at) else { return };
        let Some(flight) = slot.flight.take_if(|f| f.write == write) else {
            return; // of an earlier life of the topic
        };
        let Flight { decision, proposal, wish, .. } = *flight;
        let applied = match &outcome {
            WriteOutcome::Applied => true,
            WriteOutcome::Conflict { now } => now.as_ref() == Some(&decision.state),
            _ => false,
        };
        let request = proposal.as_ref().map(|p| p.0);
        if applied {
            let Decision { state, text, warn } = decision;
            // Sound by construction; the epochs' upper bound is the only way to fail, and then it is shown leaderless.
            let sound = slot.adopt(Some(state.clone())).is_ok();
            note(effects, Some(at.clone()), warn || !sound, text);
            if let Some(request) = request {
                effects.alter_answers.push((request, Ok(state.clone())));
            }
            if let Some(wish) = wish {
                self.election_ended(at, wish, &Ok(state), effects);
            }
        } else if let WriteOutcome::Refused { reason } = outcome {
            note(
                effects,
                Some(at.clone()),
                true,
                format!("not written, {reason}: {}", decision.text),
            );
            let refused = Condition::InvalidUpdateVersion { reason };
            match (request, wish) {
                (Some(request), _) => effects.alter_answers.push((request, Err(refused))),
                (None, Some(wish)) => self.election_ended(at, wish, &Err(refused), effects),
                (None, None) => return self.withhold(at, effects),
            }
        } else {
            let now = if let WriteOutcome::Conflict { now } = outcome { now } else { None };
            let text = match &now {
                Some(s) => format!(
                    "another state is stored (leader epoch {}, partition epoch {}); deciding anew",
                    s.leader_epoch, s.partition_epoch
                ),
                None => "its state node is gone".to_owned(),
            };
            let damaged = slot.adopt(now).is_err();
            // Another one may have come while this one was written.
            let overtaken = match wish {
                Some(wish) if slot.wish.is_none() => {
                    slot.wish = Some(Box::new(wish));
                    None
                }
                wish => wish,
            };
            note(effects, Some(at.clone()), damaged && !deleting, text);
            if let Some(earlier) = proposal
                && slot.queued.is_none()
            {
                slot.queued = Some(Box::new(earlier));
            } else if let Some(request) = request {
                effects.alter_answers.push((request, Err(superseded())));
            }
            if let Some(wish) = overtaken {
                let reason = "the partition has changed, and another election of it is under way";
                let refused = Err(Condition::InvalidUpdateVersion { reason });
                self.election_ended(at, wish, &refused, effects);
            }
        }
        self.show(at);
        self.settle(at, effects);
    }

    /// The store refused what registrations demand: shown without a leader, tried again at the next change. Whoever waited for
    /// this write is told.
    fn withhold(&mut self, at: &TopicPartition, effects: &mut Effects) {
        let mut election = None;
        if let Some(slot) = self.slot_mut(at) {
            slot.withheld = true;
            election = slot.wish.take();
            if let Some(queued) = slot.queued.take() {
                effects.alter_answers.push((queued.0, Err(unreadable())));
            }
            for request in slot.moves.give_up_waiting() {
                effects.reassign_answers.push((request, Err(unreadable())));
            }
        }
        if let Some(wish) = election {
            self.election_ended(at, *wish, &Err(unreadable()), effects);
        }
        self.show(at);
        self.release(at);
    }

    /// Puts the partition into the image as it is now.
    pub(crate) fn show(&mut self, at: &TopicPartition) {
        let shown = self.slot_mut(at).map(|s| s.shown());
        if let Some(shown) = shown {
            self.image.set_partition(&at.topic, at.partition, shown);
        }
    }

    /// Holds pushes to `brokers` until the partition is settled (R3).
    fn hold(&mut self, at: &TopicPartition, brokers: Vec<BrokerId>) {
        for broker in &brokers {
            *self.held.entry(*broker).or_default() += 1;
        }
        if let Some(slot) = self.slot_mut(at) {
            slot.holds = brokers;
        }
    }

    /// Ends the holds of one partition.
    pub(crate) fn release(&mut self, at: &TopicPartition) {
        let holds = self.slot_mut(at).map(|s| std::mem::take(&mut s.holds));
        for broker in holds.unwrap_or_default() {
            if let Some(count) = self.held.get_mut(&broker) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&broker);
                    self.released.insert(broker);
                }
            }
        }
    }
}

fn superseded() -> Condition {
    Condition::InvalidUpdateVersion { reason: "a later proposal took its place" }
}

pub(crate) fn unreadable() -> Condition {
    Condition::InvalidUpdateVersion { reason: "the stored state cannot be read or written" }
}

/// I8 for a state that is about to be written.
fn holds_i8(assigned: &[BrokerId], state: &PartitionState) -> bool {
    barnabas_types::invariants::i8_isr_within_assignment(&Partition {
        assigned_replicas: assigned.to_vec(),
        state: state.clone(),
        ..Partition::default()
    })
}
