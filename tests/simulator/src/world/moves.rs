//! Moves of replicas (KIP-455): the operator who asks for them, the controller's write of both nodes, and what must hold of it.

use barnabas_controller_core::{AssignmentWrite, ControllerEvent, Reassign, WriteOutcome};
use barnabas_types::{Assignment, BrokerId, Moving, PartitionState, TopicPartition};

use super::term::request_id;
use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;
use crate::store::{Answer, Fence, Request};

impl World {
    /// An operator asks a controller to move a partition to brokers that are drawn.
    pub(crate) fn ask_to_move(&mut self) {
        let Some(at) = self.some_partition() else { return };
        let mut all: Vec<BrokerId> = (0..self.swarm.brokers).map(id_of).collect();
        let least = u64::from(self.swarm.config.min_insync_replicas);
        let count = self.choice.range(least, (all.len() as u64).min(least + 2)) as usize;
        let mut replicas = Vec::with_capacity(count);
        while replicas.len() < count && !all.is_empty() {
            replicas.push(all.swap_remove(self.choice.index(all.len())));
        }
        self.ask_for_move(at, Reassign::To { replicas, throttle: None });
    }

    /// An operator asks for the end of a move, where there is one.
    pub(crate) fn ask_to_cancel(&mut self) {
        let Some(at) = self.some_partition() else { return };
        if self.assignment_of(&at).is_some_and(|a| a.moving.is_under_way()) {
            self.ask_for_move(at, Reassign::Cancel);
        }
    }

    pub(super) fn ask_for_move(&mut self, partition: TopicPartition, wish: Reassign) {
        let Some(to) = self.some_controller() else { return };
        self.note(Some(to), "move", || format!("{partition} {wish:?}"));
        let delay = self.net.range(1, self.swarm.net_delay_ms_max);
        let input = Input::Reassign { partition, wish };
        self.queue.after(delay, Happening::Input { to, life: None, from: None, input });
    }

    pub(crate) fn reassign_asked(&mut self, b: Ix, partition: TopicPartition, wish: Reassign) {
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        self.step_controller(b, ControllerEvent::Reassign { request, partition, wish });
    }

    /// The stored assignment.
    pub(crate) fn assignment_of(&self, at: &TopicPartition) -> Option<Assignment> {
        Some(self.store.topics.get(&at.topic)?.partitions.get(&at.partition)?.0.clone())
    }

    pub(crate) fn write_assignment(&mut self, b: Ix, mut write: AssignmentWrite) {
        self.misdecide(&mut write);
        self.halve(b, &mut write);
        let Some(term) = &self.processes[b].term else { return };
        let fence = term.fence;
        self.ask_as_controller(b, Request::WriteAssignment { fence, write });
    }

    /// What a submitted write came to; `None`: it must be found out first.
    pub(crate) fn assignment_submitted(
        &mut self,
        b: Ix,
        fence: Fence,
        write: &AssignmentWrite,
        answer: &Answer,
    ) -> Option<WriteOutcome> {
        match answer {
            // A controller with a planted bug is shown what it wrote.
            Answer::Done if !self.misdecides() => Some(WriteOutcome::Applied),
            Answer::EpochMoved => Some(WriteOutcome::Fenced),
            answer => {
                if !matches!(answer, Answer::Done) {
                    self.reach(Reached::WriteConflict);
                }
                self.ask_as_controller(b, Request::ReadAssignment { fence, write: write.clone() });
                None
            }
        }
    }

    /// What was found; `None`: nothing has landed yet, and the write is submitted again.
    pub(crate) fn assignment_read(
        &mut self,
        b: Ix,
        fence: Fence,
        write: &AssignmentWrite,
        answer: Answer,
    ) -> Option<WriteOutcome> {
        let node = match answer {
            Answer::EpochMoved => return Some(WriteOutcome::Fenced),
            Answer::Topic(node, _) => node,
            _ => return None,
        };
        let index = write.partition.partition;
        let stored = node.as_ref().and_then(|node| node.partitions.get(&index));
        let meant = write.assignments.get(&index);
        if stored.is_some_and(|(a, s)| Some(a) == meant && *s == write.state) && !self.misdecides()
        {
            return Some(WriteOutcome::Applied);
        }
        let as_before = |version| version == write.topic_version;
        if node.as_ref().is_some_and(|node| as_before(node.version))
            && stored.is_some_and(|(_, s)| s.partition_epoch == write.expected)
        {
            self.ask_as_controller(b, Request::WriteAssignment { fence, write: write.clone() });
            return None;
        }
        let now = stored.map(|(_, state)| state.clone());
        let half = self.processes[b]
            .term
            .as_ref()
            .is_some_and(|term| term.half_ended.contains(&write.partition));
        let topic = node.map(|node| {
            let shown = |(at, (assignment, _)): (i32, (Assignment, _))| match half && at == index {
                // It has yet to write how the move ended, and takes the replicas of both ends for settled.
                true => (at, Assignment::settled(assignment.replicas)),
                false => (at, assignment),
            };
            (node.version, node.partitions.into_iter().map(shown).collect())
        });
        Some(WriteOutcome::AssignmentConflict { topic, now })
    }

    /// The end of a move as a controller with a planted bug writes it: the state now, the assignment later.
    fn halve(&mut self, b: Ix, write: &mut AssignmentWrite) {
        let at = &write.partition;
        if !self.is_mutated(Mutation::MoveEndsInTwoWrites) {
            return;
        }
        let (Some(before), Some(after)) =
            (self.assignment_of(at), write.assignments.get_mut(&at.partition))
        else {
            return;
        };
        let ends = before.moving.is_under_way() && !after.moving.is_under_way();
        let Some(term) = self.processes[b].term.as_mut().filter(|_| ends) else { return };
        *after = before;
        term.half_ended.insert(at.clone());
        let delay = self.choice.range(5, 60);
        let partition = at.clone();
        self.later(b, delay, Input::EndMove { partition });
    }

    /// The second write of a move's end.
    pub(crate) fn end_move(&mut self, b: Ix, partition: TopicPartition) {
        let moving = self.assignment_of(&partition).is_some_and(|a| a.moving.is_under_way());
        let Some(term) = &mut self.processes[b].term else { return };
        if term.half_ended.remove(&partition) && moving {
            let fence = term.fence;
            self.ask_as_controller(b, Request::EndMove { fence, partition });
        }
    }

    /// F: replicas leave only when the ISR is what is assigned from then on. Nobody is forgotten on the way.
    ///
    /// R20: whenever somebody leaves, the leader epoch rises, so that nobody's position outlives its replica.
    pub(crate) fn assignment_written(
        &mut self,
        at: &TopicPartition,
        before: Option<&Assignment>,
        state_before: Option<&PartitionState>,
    ) {
        let (Some(before), Some(after)) = (before, self.assignment_of(at)) else { return };
        let Some((_, state)) = self.store.state(at) else { return };
        let state = state.clone();
        self.note(None, "assignment", || format!("{at} {before:?} -> {after:?}"));
        let left = |b: &BrokerId| !after.replicas.contains(b);
        let shrinks = before.replicas.iter().any(left);
        let whole = after.replicas.iter().all(|b| state.in_isr(*b));
        if shrinks && (!whole || state.isr.len() != after.replicas.len()) {
            self.checkers.broken(
                "F",
                format!("{at}: replicas {before:?} became {after:?} with ISR {:?}", state.isr),
            );
        }
        if shrinks && state_before.is_some_and(|s| s.leader_epoch >= state.leader_epoch) {
            let text = format!("{at}: replicas left in leader epoch {}", state.leader_epoch);
            self.checkers.broken("R20", text);
        }
        match (before.moving.is_under_way(), after.moving.is_under_way()) {
            (false, true) => self.reach(Reached::MoveBegan),
            (true, true) => self.reach(Reached::MoveTurned),
            (true, false) => {
                self.reach(Reached::MoveEnded);
                if state.controller_epoch > self.move_began.remove(at).unwrap_or_default() {
                    self.reach(Reached::MoveTakenOver);
                }
            }
            (false, false) => {}
        }
        if after.moving.is_under_way() {
            self.move_began.entry(at.clone()).or_insert(state.controller_epoch);
        }
    }

    /// E: whoever is admitted to an ISR has a directory of this life of the topic.
    pub(crate) fn members_have_directories(
        &mut self,
        at: &TopicPartition,
        czxid: i64,
        before: Option<&PartitionState>,
        after: &PartitionState,
    ) {
        for (broker, _) in &after.isr {
            let new = before.is_some_and(|before| !before.in_isr(*broker));
            let directory = self.disks[ix_of(*broker)].directories.get(at);
            if new && directory.is_none_or(|d| d.incarnation.czxid != czxid) {
                let text = format!("{at}: broker {broker} is in the ISR without a directory");
                self.checkers.broken("E", text);
            }
        }
    }

    /// E, from the other side: a replica that is in the committed ISR is never deleted.
    pub(crate) fn replica_deleted(&mut self, b: Ix, at: &TopicPartition, czxid: i64) {
        let stored = self.store.state(at).filter(|(topic, _)| topic.incarnation.czxid == czxid);
        // A topic whose deletion is decided is gone for the brokers before its nodes are.
        let stored = stored.filter(|_| !self.store.delete_marks.contains(&at.topic));
        let Some((_, state)) = stored else { return };
        if state.in_isr(id_of(b)) {
            let text = format!("{at}: broker {} deletes its replica while it is in the ISR", b + 1);
            self.checkers.broken("E", text);
        }
        self.reach(Reached::ReplicaLeft);
    }

    /// Whether the controller decides about moves with a planted bug.
    fn misdecides(&self) -> bool {
        let planted = [
            Mutation::FinishEarly,
            Mutation::LeaversLeaveAtOnce,
            Mutation::NewcomerDroppedAtOnce,
            Mutation::FinishKeepsEpoch,
            Mutation::MoveEndsInTwoWrites,
        ];
        planted.into_iter().any(|mutation| self.is_mutated(mutation))
    }

    /// A decision as a controller with a planted bug makes it.
    fn misdecide(&self, write: &mut AssignmentWrite) {
        let before = self.store.state(&write.partition).map(|(_, state)| state.clone());
        let Some(assignment) = write.assignments.get_mut(&write.partition.partition) else {
            return;
        };
        let state = &mut write.state;
        let members = |assignment: &Assignment, state: &PartitionState| -> Vec<BrokerId> {
            assignment.target().into_iter().filter(|b| state.in_isr(*b)).collect()
        };
        if self.is_mutated(Mutation::FinishEarly) && assignment.moving.is_under_way() {
            let some = members(assignment, state);
            let Some(first) = some.first().copied().filter(|_| state.leader.is_some()) else {
                return;
            };
            *assignment = assignment.arrived();
            state.isr.retain(|(b, _)| some.contains(b));
            state.leader = state.leader.filter(|l| some.contains(l)).or(Some(first));
            state.leader_epoch = state.leader_epoch.next();
        }
        if self.is_mutated(Mutation::FinishKeepsEpoch)
            && let Some(before) = before
            && before.leader == state.leader
        {
            state.leader_epoch = before.leader_epoch;
        }
        let newcomers_only = self.is_mutated(Mutation::NewcomerDroppedAtOnce);
        if newcomers_only || self.is_mutated(Mutation::LeaversLeaveAtOnce) {
            let Moving { adding, removing, .. } = &assignment.moving;
            let mut unwanted = removing.clone();
            unwanted.retain(|b| !newcomers_only || adding.contains(b));
            unwanted.retain(|b| state.leader != Some(*b));
            assignment.replicas.retain(|b| !unwanted.contains(b));
            assignment.moving.adding.retain(|b| !unwanted.contains(b));
            assignment.moving.removing.retain(|b| !unwanted.contains(b));
            state.isr.retain(|(b, _)| !unwanted.contains(b));
        }
    }
}
