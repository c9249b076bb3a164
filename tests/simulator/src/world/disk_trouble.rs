//! Disks that are full for a while, and syncs that fail (R38).

use barnabas_controller_core::{CandidateEvent, ControllerEvent};
use barnabas_replica::{Event, WaiterId};
use barnabas_types::{Condition, FailedReplicas, Offset, TopicPartition};

use super::term::request_id;
use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;

impl World {
    /// A disk has no room for records; reads, truncations and checkpoints go on.
    pub(crate) fn fill_disk(&mut self) {
        let b = self.choice.index(self.swarm.brokers);
        self.disks[b].full = true;
        self.note(Some(b), "disk full", String::new);
        let for_ms = self.choice.range(10, 400);
        self.queue.after(for_ms, Happening::MakeRoom { broker: b });
    }

    pub(crate) fn make_room(&mut self, b: Ix) {
        if std::mem::take(&mut self.disks[b].full) {
            self.note(Some(b), "disk has room", String::new);
        }
    }

    /// An append finds no room.
    pub(crate) fn refuse_append(&mut self, b: Ix, at: &TopicPartition, waiter: Option<WaiterId>) {
        self.reach(match waiter {
            Some(_) => Reached::DiskFull,
            None => Reached::FollowerFull,
        });
        let condition = Condition::KafkaStorageError;
        self.step_replica(b, at, Event::AppendRefused { waiter, condition });
    }

    /// The broker wants another broker epoch.
    pub(crate) fn register_anew(&mut self, b: Ix) {
        let failed = self.processes[b].slots.values().any(|slot| slot.replica.is_fenced());
        if let Some(session) = self.processes[b].client.session.filter(|_| failed) {
            self.candidate(b, CandidateEvent::RegisterAnew { session });
        }
    }

    /// R38: like a host crash of this replica that kept exactly what is below the flushed offset. In this order: nothing more
    /// is said, the mark is made durable, the log is cut, the broker registers anew.
    pub(crate) fn sync_failed(&mut self, b: Ix, at: &TopicPartition, to: Offset) {
        self.reach(Reached::SyncFailed);
        self.note(Some(b), "sync failed", || at.to_string());
        if self.is_mutated(Mutation::SecondSyncCounts) {
            // The system has forgotten that the pages are not written: the second one has nothing to do, and says "done".
            self.step_replica(b, at, Event::Flushed { to });
            return self.arm_flush(b, at);
        }
        self.step_replica(b, at, Event::AppendFailed { waiter: None });
        self.disks[b].tail_lost = true;
        let Some(directory) = self.disks[b].directories.get_mut(at) else { return };
        let life = (at.clone(), directory.incarnation.czxid);
        let gone = directory.cut(directory.recovery_point);
        self.checkers.host_crashes += 1;
        self.checkers.copies_lost(&life, &gone);
        if !gone.is_empty() {
            self.reach(Reached::TailLost);
        }
        self.report_failures(b);
        let delay = self.choice.range(0, 40);
        self.later(b, delay, Input::RegisterAnew);
    }

    /// Tells the controller that this broker knows what it cannot serve: others lead before it has registered anew.
    fn report_failures(&mut self, b: Ix) {
        let process = &mut self.processes[b];
        process.failure_reports += 1;
        let failed = process.slots.iter().filter(|(_, slot)| slot.replica.is_fenced());
        let replicas = failed.map(|(at, slot)| (at.clone(), slot.incarnation)).collect();
        let sequence = process.failure_reports;
        let controller = process.image.controller.map(|(id, _)| ix_of(id));
        let (Some(broker_epoch), Some(to)) = (process.broker_epoch, controller) else { return };
        let report = FailedReplicas { broker: id_of(b), broker_epoch, sequence, replicas };
        self.send(b, to, None, Input::Failed(Box::new(report)));
    }

    pub(crate) fn replicas_failed(&mut self, b: Ix, report: FailedReplicas) {
        if !self.processes[b].acts_as_controller() {
            return;
        }
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        self.step_controller(b, ControllerEvent::ReplicasFailed { request, report });
    }
}
