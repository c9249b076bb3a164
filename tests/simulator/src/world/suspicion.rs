//! Suspicions (R17): true ones, when whoever dials a process that is gone is refused, and wrong ones at any moment.

use barnabas_controller_core::{CandidateEvent, ControllerEvent, PartitionWrite, WriteOutcome};
use barnabas_types::BrokerId;

use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Input, Ix};
use crate::mutation::Mutation;

/// Longest time until a broken connection is noticed and dialled again.
const NOTICED_MS_MAX: u64 = 20;

impl World {
    /// A process is gone: the others' connections to it break, and they dial it.
    pub(crate) fn connections_break(&mut self, gone: Ix) {
        if !self.swarm.suspicion {
            return;
        }
        for b in (0..self.swarm.brokers).filter(|b| *b != gone) {
            let notice = self.choice.range(1, NOTICED_MS_MAX);
            self.later(b, notice, Input::Dial { to: gone });
        }
    }

    /// A dial is refused if the host can be reached and the process is not there. A process that stands still refuses nobody.
    pub(crate) fn dial(&mut self, b: Ix, to: Ix) {
        let reached = self.link[b][to] && self.link[to][b];
        if self.swarm.suspicion && !self.healed && reached && !self.processes[to].up {
            self.suspect_broker_at(b, to);
            self.suspect_controller_at(b, to);
        }
    }

    /// An acting controller takes some broker for gone, whatever is true.
    pub(crate) fn suspect_some_broker(&mut self) {
        let acting: Vec<Ix> =
            (0..self.swarm.brokers).filter(|b| self.processes[*b].acts_as_controller()).collect();
        if acting.is_empty() {
            return;
        }
        let b = acting[self.choice.index(acting.len())];
        let whom = self.choice.index(self.swarm.brokers);
        self.suspect_broker_at(b, whom);
    }

    /// Some broker takes the controller for gone, whatever is true.
    pub(crate) fn suspect_some_controller(&mut self) {
        if let (Some(b), Some(node)) = (self.some_running(), self.store.controller) {
            self.suspect_controller_at(b, ix_of(node.broker));
        }
    }

    fn suspect_broker_at(&mut self, b: Ix, whom: Ix) {
        let acts = self.processes[b].acts_as_controller();
        let broker = id_of(whom);
        let Some(term) = self.processes[b].term.as_mut().filter(|_| acts) else { return };
        let Some(broker_epoch) = term.brokers.get(&broker).copied() else { return };
        let before = term.controller.is_suspected(broker);
        // A new stream begins with the full image: its acknowledgement ends the suspicion.
        if let Some(stream) = term.streams.get_mut(&broker) {
            (stream.acked, stream.in_flight) = (None, None);
        }
        self.note(Some(b), "suspects", || format!("broker {broker} of epoch {broker_epoch}"));
        if self.is_mutated(Mutation::SoleMemberDeposed) {
            self.take_for_unregistered(b, broker);
        } else {
            self.step_controller(b, ControllerEvent::BrokerSuspected { broker, broker_epoch });
        }
        let after =
            self.processes[b].term.as_ref().is_some_and(|t| t.controller.is_suspected(broker));
        if after && !before {
            self.reach(Reached::Suspected);
            if self.processes[whom].up && self.processes[whom].broker_epoch == Some(broker_epoch) {
                self.reach(Reached::WronglySuspected);
            }
        } else if !after {
            self.reach(Reached::SuspicionLimited);
        }
        self.pump(b);
    }

    fn suspect_controller_at(&mut self, b: Ix, whom: Ix) {
        let Some(session) = self.processes[b].client.session else { return };
        let Some(node) = self.store.controller.filter(|node| node.broker == id_of(whom)) else {
            return;
        };
        self.note(Some(b), "suspects", || format!("controller {}", node.broker));
        let now = self.now_of(b);
        let event = CandidateEvent::ControllerSuspected { session, owner: node.owner, now };
        self.candidate(b, event);
    }

    /// R17, for each state that a suspicion wants written: a clean choice, built on the state that is stored at that version.
    fn check_suspicion(&mut self, suspect: BrokerId, writes: &[PartitionWrite]) {
        for write in writes {
            let Some((_, before)) = self.store.state(&write.partition) else { continue };
            if before.partition_epoch != write.expected {
                continue; // it will not be applied
            }
            let moved = write.state.leader != before.leader;
            let clean = write.state.leader.is_some_and(|leader| before.in_isr(leader))
                && !write.state.in_isr(suspect)
                && i32::from(moved) == write.state.leader_epoch.0 - before.leader_epoch.0;
            if before.leader.is_some() && before.in_isr(suspect) && !clean {
                let text = format!("{}: {before:?} -> {:?}", write.partition, write.state);
                self.checkers.broken("R17", text);
            } else if moved {
                self.reach(Reached::SuspectReplaced);
            }
        }
    }

    /// Planted: for a suspicion the controller takes the registration for gone.
    fn take_for_unregistered(&mut self, b: Ix, broker: BrokerId) {
        let Some(term) = &self.processes[b].term else { return };
        let mut brokers = term.controller.image().brokers.clone();
        brokers.remove(&broker);
        self.suspecting = Some(broker);
        self.step_controller(b, ControllerEvent::Brokers(brokers));
        self.suspecting = None;
        self.brokers_changed(b);
    }

    /// Looks at what a suspicion wants written, and lets planted bugs change it on its way.
    pub(crate) fn suspicion_decided(
        &mut self,
        b: Ix,
        suspect: BrokerId,
        writes: &mut [PartitionWrite],
    ) {
        self.check_suspicion(suspect, writes);
        for write in writes {
            let decided = write.state.clone();
            self.twist(b, suspect, write);
            if write.state != decided
                && let Some(term) = &mut self.processes[b].term
            {
                term.twisted.insert(write.write);
            }
        }
    }

    fn twist(&self, b: Ix, suspect: BrokerId, write: &mut PartitionWrite) {
        let Some((_, before)) = self.store.state(&write.partition) else { return };
        let Some(term) = &self.processes[b].term else { return };
        if before.partition_epoch != write.expected || write.state.leader == before.leader {
            return;
        }
        match self.options.mutation {
            Some(Mutation::SuspicionKeepsEpoch) => write.state.leader_epoch = before.leader_epoch,
            Some(Mutation::SuspicionElectsOutsideIsr) => {
                let shown = term.controller.image().topics.get(&write.partition.topic);
                let shown = shown.and_then(|t| t.partitions.get(&write.partition.partition));
                let assigned = shown.map(|p| p.assigned_replicas.clone()).unwrap_or_default();
                let outside = |id: &&BrokerId| **id != suspect && !before.in_isr(**id);
                let live = |id: &&BrokerId| outside(id) && term.brokers.contains_key(*id);
                if let Some(id) = assigned.iter().find(live) {
                    write.state.leader = Some(*id);
                    write.state.isr.push((*id, term.brokers[id]));
                }
            }
            _ => {}
        }
    }

    /// What the core is told of a state that was written: a planted bug may have changed it on its way.
    pub(crate) fn applied(&mut self, b: Ix, write: &PartitionWrite) -> WriteOutcome {
        let twisted = |t: &mut crate::process::Term| t.twisted.remove(&write.write);
        if self.processes[b].term.as_mut().is_some_and(twisted) {
            return WriteOutcome::Conflict { now: Some(write.state.clone()) };
        }
        WriteOutcome::Applied
    }
}
