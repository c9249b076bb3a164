//! What moves the start of a log: retention on a replica, clients' deletions, and the write that makes it durable.

use barnabas_replica::{Event, Role, WaiterId};
use barnabas_types::{Condition, Incarnation, Offset, TopicPartition};

use super::{World, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;

/// How long a deletion waits.
const DELETION_MS_MAX: u64 = 200;

impl World {
    /// Retention on some replica wants a part of its log gone, perhaps more than it may have.
    pub(crate) fn retention(&mut self) {
        let b = self.choice.index(self.swarm.brokers);
        if !self.processes[b].up || self.processes[b].paused {
            return;
        }
        let count = self.processes[b].slots.len();
        if count == 0 {
            return;
        }
        let index = self.choice.index(count);
        let Some(at) = self.processes[b].slots.keys().nth(index).cloned() else { return };
        let slot = &self.processes[b].slots[&at];
        let (start, end) = (slot.replica.log_start().0 as u64, slot.replica.log_end().0 as u64);
        if start >= end {
            return;
        }
        let czxid = slot.incarnation.czxid;
        let to = Offset(self.choice.range(start + 1, end) as i64);
        let slot = &self.processes[b].slots[&at];
        let may = to.min(slot.replica.log_start_max());
        self.note(Some(b), "retention", || format!("{at} to {to}"));
        self.checkers.deletion_ordered(&(at.clone(), czxid), may);
        if to > may && self.is_mutated(Mutation::RetentionAboveHighWatermark) {
            self.touched.push((b, at.clone()));
            if let Some(directory) = self.disks[b].directories.get_mut(&at) {
                directory.log_start = directory.log_start.max(to);
                directory.start_written(directory.log_start, true);
            }
            return;
        }
        self.step_replica(b, &at, Event::RetentionReached { to });
    }

    /// A client asks whom it believes to lead.
    pub(crate) fn ask_to_delete_records(&mut self) {
        let Some(at) = self.some_partition() else { return };
        let asked = self.choice.index(self.swarm.brokers);
        let topic = self.processes[asked].image.topics.get(&at.topic);
        let believed = topic
            .and_then(|topic| topic.partitions.get(&at.partition))
            .and_then(|partition| partition.state.leader);
        let Some(to) = believed.map(ix_of) else { return };
        let end = self.processes[to].slots.get(&at).map_or(0, |slot| slot.replica.log_end().0);
        let up_to = match self.choice.below(4) {
            0 => None,
            _ => Some(Offset(self.choice.range(0, end as u64 + 1) as i64)),
        };
        let delay = self.net.range(1, self.swarm.net_delay_ms_max);
        let input = Input::DeleteRecords { partition: at, to: up_to };
        self.queue.after(delay, Happening::Input { to, life: None, from: None, input });
    }

    pub(crate) fn delete_records(&mut self, b: Ix, at: &TopicPartition, to: Option<Offset>) {
        let waiter = self.correlation();
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let incarnation = slot.incarnation;
        slot.deletions.insert(waiter);
        let wanted = to.unwrap_or(slot.replica.high_watermark());
        let leads = matches!(slot.replica.role(), Role::Leader { .. });
        if leads && wanted <= slot.replica.log_start_max() {
            self.checkers.deletion_ordered(&(at.clone(), incarnation.czxid), wanted);
        }
        self.note(Some(b), "delete records", || format!("{at} to {to:?}"));
        self.step_replica(b, at, Event::DeleteRecords { waiter: WaiterId(waiter), to });
        let waits = |slot: &crate::process::Slot| slot.deletions.contains(&waiter);
        if self.processes[b].slots.get(at).is_some_and(waits) {
            if self.is_mutated(Mutation::DeletionAnsweredEarly) {
                self.deletion_answered(b, at, Ok(wanted));
            }
            let partition = at.clone();
            let overdue = Input::DeletionOverdue { partition, incarnation, waiter };
            self.later(b, DELETION_MS_MAX, overdue);
        }
    }

    pub(crate) fn deletion_overdue(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        waiter: u64,
    ) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        if slot.incarnation == incarnation && slot.deletions.contains(&waiter) {
            self.step_replica(b, at, Event::WaiterTimedOut { waiter: WaiterId(waiter) });
        }
    }

    pub(crate) fn deletion_answered(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        result: Result<Offset, Condition>,
    ) {
        self.note(Some(b), "deleted", || format!("{at} {result:?}"));
        let Ok(to) = result else { return self.reach(Reached::NotDeleted) };
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let Some(epoch) = slot.replica.leader_epoch() else { return };
        let life = (at.clone(), slot.incarnation.czxid);
        let last_epoch = self.disks[b].directories.get(at).and_then(|d| d.records.last());
        let last_epoch = last_epoch.map(|record| record.epoch);
        self.reach(Reached::Deleted);
        self.checkers.deletion_acked(&life, (epoch, last_epoch), to);
    }

    /// The core wants its log to begin at `to`.
    pub(crate) fn start_ordered(&mut self, b: Ix, at: &TopicPartition, to: Offset) {
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        if to > directory.log_start {
            self.coverage.reach(Reached::Retention);
            directory.log_start = to;
        }
        self.note(Some(b), "start ordered", || format!("{at} {to}"));
        if self.is_mutated(Mutation::StartReportedBeforeDurable) {
            self.step_replica(b, at, Event::LogStartDurable { to });
        }
        self.arm_start(b, at);
    }

    fn arm_start(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        if std::mem::replace(&mut slot.start_writing, true) {
            return;
        }
        let incarnation = slot.incarnation;
        let delay = self.choice.range(1, 2 * self.swarm.flush_ms_max);
        self.later(b, delay, Input::WriteStart { partition: at.clone(), incarnation });
    }

    /// One write of the checkpoint: what it says is decided when it begins.
    pub(crate) fn write_start(&mut self, b: Ix, at: &TopicPartition, incarnation: Incarnation) {
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        if !self.is_life(b, at, incarnation) {
            return;
        }
        let to = directory.log_start;
        let delay = self.choice.range(1, self.swarm.flush_ms_max);
        self.later(b, delay, Input::StartWritten { partition: at.clone(), incarnation, to });
    }

    pub(crate) fn start_written(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        to: Offset,
    ) {
        if !self.is_life(b, at, incarnation) {
            return;
        }
        let segments_go = self.choice.chance(400);
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        // A start that a reset has overtaken is on the disk all the same, until the next write.
        directory.start_written(to, segments_go && to <= directory.log_start);
        let again = to != directory.log_start;
        self.note(Some(b), "start durable", || format!("{at} {to}"));
        if let Some(slot) = self.processes[b].slots.get_mut(at) {
            slot.start_writing = false;
        }
        self.step_replica(b, at, Event::LogStartDurable { to });
        if again {
            self.arm_start(b, at);
        }
        // The leader hears of it with the next fetch, the followers with the next answer: somebody waits for that.
        self.refetch(b, at);
        self.wake_parked(b, at);
    }

    fn is_life(&self, b: Ix, at: &TopicPartition, incarnation: Incarnation) -> bool {
        let slot = self.processes[b].slots.get(at);
        slot.is_some_and(|slot| slot.incarnation == incarnation && !slot.replica.is_fenced())
    }

    /// A follower drops everything (R35).
    pub(crate) fn reset(&mut self, b: Ix, at: &TopicPartition, start: Offset) {
        if start > Offset(0) {
            self.reach(Reached::Reset);
        }
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        directory.reset(start);
        self.note(Some(b), "reset", || format!("{at} to {start}"));
        let event = Event::Truncated { log_start: start, log_end: start, flushed: start };
        self.step_replica(b, at, event);
    }

    /// Where a leader tells a follower to begin anew.
    pub(crate) fn reset_start_told(&self, b: Ix, at: &TopicPartition, log_start: Offset) -> Offset {
        let slot = self.processes[b].slots.get(at);
        match slot.filter(|_| self.is_mutated(Mutation::ResetToHighWatermark)) {
            Some(slot) => slot.replica.high_watermark(),
            None => log_start,
        }
    }
}
