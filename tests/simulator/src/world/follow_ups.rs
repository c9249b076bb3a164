//! Idempotent producers that go on after an acknowledgement, at whoever they believe to lead (KIP-98). Only what comes before a
//! batch is simulated: a broker whose log lacks it has found a gap, and its core says when that may be told.

use barnabas_replica::{Event, ProduceGap, Role, WaiterId};
use barnabas_types::{Acks, Condition, LeaderEpoch, Offset, TopicPartition};

use super::World;
use crate::coverage::Reached;
use crate::disk::Record;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;
use crate::process::Pending;

/// Longest time from an acknowledgement to the next request.
const DELAY_MS_MAX: u64 = 60;
/// How long the request waits.
const WAIT_MS_MAX: u64 = 150;

/// What comes before an idempotent producer's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// Where it was acknowledged.
    pub offset: Offset,
    /// In which leader epoch.
    pub made_in: LeaderEpoch,
    /// The record. A hole: there is none, the producer has left one out.
    pub record: Record,
}

impl World {
    /// Records were acknowledged at acks=all: their producer may go on, sometimes with a record left out.
    pub(crate) fn follow_up(&mut self, by: Ix, partition: &TopicPartition, before: Before) {
        if self.healed || !self.follow.chance(self.swarm.follow_up_permille) {
            return;
        }
        let leaves_out = self.follow.chance(300);
        let before = if leaves_out { Before { record: Record::HOLE, ..before } } else { before };
        let others: Vec<Ix> = (0..self.swarm.brokers)
            .filter(|b| *b != by)
            .filter(|b| {
                let slot = self.processes[*b].slots.get(partition);
                slot.is_some_and(|slot| matches!(slot.replica.role(), Role::Leader { .. }))
            })
            .collect();
        let to = match others.first() {
            // Its metadata is old, and whom it names does not know better.
            Some(deposed) if self.follow.chance(800) => *deposed,
            _ => self.follow.index(self.swarm.brokers),
        };
        let delay = self.follow.range(1, DELAY_MS_MAX);
        self.send_follow_up(to, partition.clone(), before, delay);
    }

    fn send_follow_up(&mut self, to: Ix, partition: TopicPartition, before: Before, delay: u64) {
        let input = Input::FollowUp { partition, before };
        self.queue.after(delay, Happening::Input { to, life: None, from: None, input });
    }

    /// The request reaches a broker.
    pub(crate) fn followed_up(&mut self, b: Ix, at: &TopicPartition, before: Before) {
        let waiter = self.correlation();
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let left_out = before.record.is_hole();
        if !matches!(slot.replica.role(), Role::Leader { .. })
            || (!left_out && before.record.topic_czxid != slot.incarnation.czxid)
        {
            return;
        }
        let found = usize::try_from(before.offset.0).ok().and_then(|at| directory.records.get(at));
        if !left_out && found.is_some_and(|record| record.agrees(&before.record)) {
            // It goes on like any other.
            return;
        }
        let incarnation = slot.incarnation;
        let pending = Pending {
            acks: Acks::All,
            values: Vec::new(),
            leader_epoch: LeaderEpoch(-1),
            before: Some(before),
        };
        slot.pending.insert(waiter, pending);
        if self.is_mutated(Mutation::GapToldAtOnce) {
            let told = Condition::OutOfOrderSequenceNumber { found: 1, expected: 0 };
            return self.answered(b, at, WaiterId(waiter), Err(told));
        }
        let (waiter_id, acks) = (WaiterId(waiter), Acks::All);
        let gap = ProduceGap { waiter: waiter_id, acks, found: 1, expected: 0 };
        self.step_replica(b, at, Event::ProduceGap(gap));
        if self.processes[b].slots.get(at).is_some_and(|s| s.pending.contains_key(&waiter)) {
            let overdue = Input::ProduceOverdue { partition: at.clone(), incarnation, waiter };
            self.later(b, WAIT_MS_MAX, overdue);
        }
    }

    /// What the producer is told of the gap.
    pub(super) fn follow_up_answered(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        before: Before,
        result: &Result<Offset, Condition>,
    ) {
        self.note(Some(b), "gap", || format!("{at} after {}: {result:?}", before.offset));
        match result {
            Ok(_) => self.checkers.broken("R11", format!("{at}: a gap was acknowledged")),
            Err(Condition::OutOfOrderSequenceNumber { .. }) => {
                self.reach(Reached::GapTold);
                if !before.record.is_hole() {
                    let life = (at.clone(), before.record.topic_czxid);
                    let slot = self.processes[b].slots.get(at);
                    let told_in =
                        slot.and_then(|slot| slot.replica.leader_epoch()).unwrap_or_default();
                    let made = (before.offset, before.made_in);
                    self.checkers.gap_told(&life, (b, told_in), made);
                }
            }
            Err(_) => self.reach(Reached::GapWithheld),
        }
    }
}
