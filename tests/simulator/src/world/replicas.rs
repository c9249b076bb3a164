//! The replica's shell: steps the core and performs its effects in their order; produce, flush, ISR proposals.

use barnabas_controller_core::AlterPartition;
use barnabas_replica::{
    Effects, Event, FetchReply, IsrProposal, Produce, ProposalOutcome, Role, WaiterId,
};
use barnabas_types::{
    Acks, Condition, FlushMode, Incarnation, LeaderEpoch, Offset, PartitionState, TopicPartition,
};

use super::{Before, World, id_of, ix_of};
use crate::coverage::Reached;
use crate::disk::Record;
use crate::happening::{Input, Ix};
use crate::process::Pending;

/// How long a proposal waits for its answer.
const PROPOSAL_MS_MAX: u64 = 60;

/// Longest mean time until a flush in sync mode.
const SYNC_FLUSH_MS_MAX: u64 = 12;

/// How long a produce request waits.
const PRODUCE_MS_MAX: u64 = 150;

impl World {
    /// Steps a replica that gets no records with the event.
    pub(crate) fn step_replica(&mut self, b: Ix, at: &TopicPartition, event: Event) {
        self.step_with(b, at, event, &[]);
    }

    /// Steps a replica and performs its effects in their order; completions are stepped on the way.
    pub(crate) fn step_with(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        event: Event,
        records: &[Record],
    ) -> Option<FetchReply> {
        let now = self.now_of(b);
        let slot = self.processes[b].slots.get_mut(at)?;
        let mut effects = Effects::default();
        slot.replica.step(now, event, &mut effects);
        self.touched.push((b, at.clone()));
        if let Some(end) = effects.truncate_to {
            self.reach(Reached::Truncation);
            self.truncate(b, at, end);
        }
        if let Some(start) = effects.reset_to {
            self.reset(b, at, start);
        }
        if let Some((epoch, start)) = effects.assign_epoch
            && let Some(directory) = self.disks[b].directories.get_mut(at)
        {
            directory.epochs.assign(epoch, start);
        }
        if let Some(order) = effects.append {
            let leader_epoch = order.leader_epoch;
            match order.waiter {
                Some(waiter) => self.append_produced(b, at, waiter, leader_epoch),
                None => self.append_fetched(b, at, leader_epoch, records),
            }
        }
        self.pass_on(b, at, &mut effects);
        self.lie_for_absent(b, at);
        effects.fetch_reply
    }

    fn truncate(&mut self, b: Ix, at: &TopicPartition, end: Offset) {
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        directory.truncate(end);
        let (log_start, log_end) = (directory.log_start, directory.log_end());
        let flushed = directory.recovery_point;
        self.note(Some(b), "truncate", || format!("{at} to {end}"));
        let event = Event::Truncated { log_start, log_end, flushed };
        self.step_replica(b, at, event);
    }

    fn append_produced(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        waiter: WaiterId,
        leader_epoch: LeaderEpoch,
    ) {
        if self.disks[b].full {
            return self.refuse_append(b, at, Some(waiter));
        }
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let czxid = slot.incarnation.czxid;
        let Some(pending) = slot.pending.get_mut(&waiter.0) else { return };
        pending.leader_epoch = leader_epoch;
        let records: Vec<Record> = pending
            .values
            .iter()
            .map(|value| Record { epoch: leader_epoch, value: *value, topic_czxid: czxid })
            .collect();
        if pending.acks == Acks::None {
            slot.pending.remove(&waiter.0);
        }
        let log_end = self.append(b, at, &records);
        let event = Event::Appended { waiter: Some(waiter), leader_epoch, log_end };
        self.step_replica(b, at, event);
    }

    fn append_fetched(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        leader_epoch: LeaderEpoch,
        records: &[Record],
    ) {
        if self.disks[b].full {
            return self.refuse_append(b, at, None);
        }
        let log_end = self.append(b, at, records);
        self.step_replica(b, at, Event::Appended { waiter: None, leader_epoch, log_end });
    }

    fn append(&mut self, b: Ix, at: &TopicPartition, records: &[Record]) -> Offset {
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return Offset(0) };
        let life = (at.clone(), directory.incarnation.czxid);
        for record in records {
            self.checkers.appended(&life, b, directory.log_end(), *record);
            directory.append(*record);
        }
        let end = directory.log_end();
        self.note(Some(b), "append", || format!("{at} {} records, LEO {end}", records.len()));
        self.arm_flush(b, at);
        self.wake_parked(b, at);
        end
    }

    /// Effects 4 to 10: nothing of them touches the log.
    pub(crate) fn pass_on(&mut self, b: Ix, at: &TopicPartition, effects: &mut Effects) {
        for (waiter, result) in effects.answers.drain(..) {
            self.answered(b, at, waiter, result);
        }
        if effects.high_watermark.is_some() || effects.roll_call {
            self.wake_parked(b, at);
        }
        if let Some(to) = effects.log_start {
            self.start_ordered(b, at, to);
        }
        if let Some(role) = effects.role_changed {
            self.role_changed(b, at, role);
        }
        if let Some(proposal) = effects.propose.take() {
            self.propose(b, at, proposal);
        }
        for note in effects.notes.drain(..) {
            self.note(Some(b), "replica", || format!("{at} {}", note.text));
        }
    }

    fn role_changed(&mut self, b: Ix, at: &TopicPartition, role: Role) {
        self.note(Some(b), "role", || format!("{at} {role:?}"));
        let life = self.processes[b].life;
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        slot.fetching = None;
        slot.proposing = None;
        let czxid = slot.incarnation.czxid;
        self.wake_parked(b, at);
        match role {
            Role::Leader { leader_epoch } => {
                if let Some(directory) = self.disks[b].directories.get(at) {
                    let of = (b, life);
                    let life = (at.clone(), czxid);
                    self.checkers.leader_begins(&life, leader_epoch, of, directory);
                    if self.checkers.has_deletion_before(&life, leader_epoch) {
                        self.reach(Reached::FailoverAfterDeletion);
                    }
                }
                let others = self.processes.iter().enumerate().filter(|(o, p)| *o != b && p.up);
                let leads = others.filter(|(_, p)| {
                    p.slots.get(at).is_some_and(|s| matches!(s.replica.role(), Role::Leader { .. }))
                });
                if leads.count() > 0 {
                    self.reach(Reached::TwoLeaders);
                }
            }
            Role::Follower { .. } => {
                self.later(b, 0, Input::FetchNow { partition: at.clone() });
            }
            Role::Idle | Role::Leaderless { .. } | Role::Deleted => {}
        }
    }

    /// A producer's request.
    pub(crate) fn produced(&mut self, b: Ix, at: &TopicPartition, acks: Acks, values: Vec<u64>) {
        let waiter = self.correlation();
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let incarnation = slot.incarnation;
        let offsets = values.len() as i64;
        let pending = Pending { acks, values, leader_epoch: LeaderEpoch(-1), before: None };
        slot.pending.insert(waiter, pending);
        let event = Event::Produce(Produce { waiter: WaiterId(waiter), acks, offsets });
        self.step_replica(b, at, event);
        let still = self.processes[b].slots.get_mut(at).and_then(|s| {
            if acks == Acks::None {
                s.pending.remove(&waiter);
            }
            s.pending.get(&waiter).map(|_| ())
        });
        if still.is_some() {
            let partition = at.clone();
            let overdue = Input::ProduceOverdue { partition, incarnation, waiter };
            self.later(b, PRODUCE_MS_MAX, overdue);
        }
    }

    pub(crate) fn produce_overdue(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        waiter: u64,
    ) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        if slot.incarnation == incarnation && slot.pending.contains_key(&waiter) {
            self.step_replica(b, at, Event::WaiterTimedOut { waiter: WaiterId(waiter) });
        }
    }

    pub(super) fn answered(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        waiter: WaiterId,
        result: Result<Offset, Condition>,
    ) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        if slot.deletions.remove(&waiter.0) {
            return self.deletion_answered(b, at, result);
        }
        let czxid = slot.incarnation.czxid;
        let mode = slot.replica.flush_mode();
        let Some(pending) = slot.pending.remove(&waiter.0) else {
            self.checkers
                .broken("answers", format!("{at} broker {}: {waiter:?} answered twice", b + 1));
            return;
        };
        self.note(Some(b), "answer", || format!("{at} {:?} {result:?}", pending.acks));
        if let Some(before) = pending.before {
            return self.follow_up_answered(b, at, before, &result);
        }
        self.remember_answer(b, &pending, &result);
        if pending.acks != Acks::All {
            return;
        }
        let Ok(base) = result else { return self.reach(Reached::NotAcked) };
        let epoch = pending.leader_epoch;
        self.reach(Reached::AckedAll);
        if epoch.0 > 0 {
            self.reach(Reached::AckedAfterFailover);
        }
        let records: Vec<Record> = pending
            .values
            .iter()
            .map(|value| Record { epoch, value: *value, topic_czxid: czxid })
            .collect();
        let end = Offset(base.0 + records.len() as i64);
        let held = self.disks[b].directories.get(at).map_or_else(Vec::new, |d| d.read(base, end).0);
        let all = held.len() == records.len();
        if !all || !held.iter().zip(&records).all(|(held, record)| held.agrees(record)) {
            let text =
                format!("{at} broker {}: acknowledged at {base}, but its log has {held:?}", b + 1);
            self.checkers.broken("I6", text);
        }
        let life = (at.clone(), czxid);
        if self.checkers.acked(&life, (epoch, mode), base, &records) {
            self.reach(Reached::AckedAfterSwitch);
        }
        if let Some(record) = records.last() {
            let offset = Offset(end.0 - 1);
            self.follow_up(b, at, Before { offset, made_in: epoch, record: *record });
        }
    }

    /// Schedules a flush, if there is something to flush and none is scheduled.
    pub(crate) fn arm_flush(&mut self, b: Ix, at: &TopicPartition) {
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let due = directory.recovery_point < directory.log_end();
        if slot.flush_armed || slot.replica.is_fenced() || !due {
            return;
        }
        slot.flush_armed = true;
        let incarnation = slot.incarnation;
        let interval_ms = match slot.replica.flush_mode() {
            FlushMode::Sync => self.swarm.flush_interval_ms.min(SYNC_FLUSH_MS_MAX),
            FlushMode::Async => self.swarm.flush_interval_ms,
        };
        let delay = self.choice.range(1, 2 * interval_ms);
        self.later(b, delay, Input::Flush { partition: at.clone(), incarnation });
    }

    pub(crate) fn flush(&mut self, b: Ix, at: &TopicPartition, incarnation: Incarnation) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        if slot.incarnation != incarnation {
            return;
        }
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let (to, truncations) = (directory.log_end(), directory.truncations);
        let delay = self.choice.range(1, self.swarm.flush_ms_max);
        let partition = at.clone();
        self.later(b, delay, Input::FlushDone { partition, incarnation, to, truncations });
    }

    pub(crate) fn flush_done(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        to: Offset,
        truncations: u64,
    ) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        if slot.incarnation != incarnation {
            return;
        }
        slot.flush_armed = false;
        if std::mem::take(&mut self.disks[b].sync_fails) {
            return self.sync_failed(b, at, to);
        }
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        if directory.truncations == truncations {
            directory.flushed(to);
            self.step_replica(b, at, Event::Flushed { to });
            // A follower tells its leader what it flushed with its next fetch; in sync mode somebody waits for that.
            let mode = self.processes[b].slots.get(at).map(|s| s.replica.flush_mode());
            if mode == Some(FlushMode::Sync) {
                self.refetch(b, at);
            }
        }
        self.arm_flush(b, at);
    }

    /// Sends a proposal to the controller that this broker knows.
    fn propose(&mut self, b: Ix, at: &TopicPartition, proposal: IsrProposal) {
        let correlation = self.correlation();
        let process = &mut self.processes[b];
        let controller = process.image.controller.map(|(id, _)| ix_of(id));
        let (Some(slot), Some(broker_epoch)) = (process.slots.get_mut(at), process.broker_epoch)
        else {
            return;
        };
        slot.proposing = Some((correlation, proposal.clone()));
        let incarnation = slot.incarnation;
        let life = process.life;
        self.note(Some(b), "propose", || format!("{at} {:?}", proposal.isr));
        if let Some(to) = controller {
            let alter = AlterPartition {
                leader: id_of(b),
                broker_epoch,
                partition: at.clone(),
                incarnation: proposal.incarnation,
                leader_epoch: proposal.leader_epoch,
                partition_epoch: proposal.partition_epoch,
                isr: proposal.isr,
            };
            self.send(b, to, None, Input::Alter { correlation, life, proposal: Box::new(alter) });
        }
        let partition = at.clone();
        self.later(b, PROPOSAL_MS_MAX, Input::AlterOverdue { partition, incarnation, correlation });
    }

    pub(crate) fn alter_overdue(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        correlation: u64,
    ) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        if slot.incarnation == incarnation
            && slot.proposing.as_ref().is_some_and(|(c, _)| *c == correlation)
        {
            slot.proposing = None;
            self.step_replica(b, at, Event::ProposalAnswered(ProposalOutcome::Unknown));
        }
    }

    /// The controller answered. An accepted proposal's state is adopted at once; the push repeats it.
    pub(crate) fn alter_answered(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        correlation: u64,
        proposal: &IsrProposal,
        answer: Result<PartitionState, Condition>,
    ) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let expected = slot.proposing.as_ref().is_some_and(|(c, _)| *c == correlation);
        if !expected || slot.incarnation != proposal.incarnation {
            return;
        }
        slot.proposing = None;
        self.note(Some(b), "proposal", || format!("{at} {answer:?}"));
        let outcome = match answer {
            Ok(state) => match self.processes[b].broker_epoch {
                Some(broker_epoch) => ProposalOutcome::Accepted { broker_epoch, state },
                None => ProposalOutcome::Unknown,
            },
            Err(condition) => {
                if let Some(slot) = self.processes[b].slots.get_mut(at) {
                    slot.refused_at = slot.replica.partition_epoch();
                }
                ProposalOutcome::Refused(condition)
            }
        };
        self.step_replica(b, at, Event::ProposalAnswered(outcome));
    }

    /// Time passed, for every replica of a process.
    pub(crate) fn tick(&mut self, b: Ix) {
        let partitions: Vec<TopicPartition> = self.processes[b].slots.keys().cloned().collect();
        for at in partitions {
            self.step_replica(b, &at, Event::Tick);
            self.later(b, 0, Input::FetchNow { partition: at });
        }
        if self.choice.chance(300) {
            self.checkpoint(b);
        }
        self.later(b, (self.swarm.lag_time_max_ms / 4).max(1), Input::Tick);
    }
}
