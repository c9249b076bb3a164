//! The store: which of a controller's writes it takes, and what the controller hears of them (R1, R18).

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AssignmentWrite, ConfigWrite, ControllerEvent, PartitionWrite, TopicWrite, WriteOutcome,
};
use barnabas_types::{Assignment, PartitionState};

use crate::mutation::Mutation;
use crate::node::{Assigned, Node};
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::world::{Flight, World};

impl Protocol {
    pub(crate) fn state_flight(&self, w: &World, k: usize, write: &PartitionWrite) -> Flight {
        Flight {
            term: k as u8,
            write: write.write,
            expected: write.expected.0 as u8,
            topic_version: None,
            node: Node::of(&write.state, w.node.life, w.node.assigned),
        }
    }

    pub(crate) fn assignment_flight(&self, w: &World, k: usize, write: &AssignmentWrite) -> Flight {
        let assigned = Assigned::of(&write.assignments[&0]);
        Flight {
            term: k as u8,
            write: write.write,
            expected: write.expected.0 as u8,
            topic_version: Some(write.topic_version as u8),
            node: Node::of(&write.state, w.node.life, assigned),
        }
    }

    /// A write reaches the store (R1). Returns what its term hears; `None` beyond the bound.
    pub(crate) fn land(
        &self,
        w: &mut World,
        flight: &Flight,
        twist: Twist,
    ) -> Option<ControllerEvent> {
        let checked = !self.breaks(Mutation::NoWriteChecks);
        let (write, stored) = (flight.write, w.node);
        let heard = |outcome| Some(ControllerEvent::Written { write, outcome });
        if checked && w.controller_epoch != flight.term + 1 {
            return heard(WriteOutcome::Fenced);
        }
        let conflict = |w: &World, topic_too: bool| {
            let now = w.exists().then(|| w.node.state());
            let of_topic = || (i32::from(w.topic_version), assignments(w.node.assigned));
            match topic_too {
                true => WriteOutcome::AssignmentConflict { topic: w.exists().then(of_topic), now },
                false => WriteOutcome::Conflict { now },
            }
        };
        let topic_too = flight.topic_version.is_some();
        let stale = stored.partition_epoch != flight.expected
            || flight.topic_version.is_some_and(|version| version != w.topic_version);
        if !w.exists() || (checked && stale) {
            return heard(conflict(w, topic_too));
        }
        let mut node = Node { assigned: stored.assigned, life: stored.life, ..flight.node };
        if topic_too {
            node.assigned = flight.node.assigned;
        }
        node.partition_epoch = stored.partition_epoch + 1;
        let meant = node;
        let node = self.twisted(w, twist, node);
        let node = if topic_too { self.misassigned(w, flight.term, node) } else { node };
        if node.leader_epoch >= self.row.epochs {
            return None;
        }
        if node.members().count_ones() > stored.members().count_ones() {
            self.reach(Reached::IsrGrew);
        }
        self.note_move(w, node);
        if topic_too {
            w.topic_version += 1;
        }
        w.node = node;
        let same = node == meant && node.state() == flight.node.state();
        let told = |w: &World| match self.moves_hidden_from(w, flight.term) {
            Some((version, hidden)) => WriteOutcome::AssignmentConflict {
                topic: Some((version, assignments(hidden))),
                now: Some(w.node.state()),
            },
            None => conflict(w, topic_too),
        };
        heard(if same { WriteOutcome::Applied } else { told(w) })
    }

    /// F: a move ends only where its target is the ISR. Whoever only gives up a removal changes nothing.
    pub(crate) fn note_move(&self, w: &mut World, next: Node) {
        let before = w.node.assigned;
        match (before.moves(), next.assigned.moves()) {
            (true, true) if before.target() != next.assigned.target() => {
                self.reach(Reached::MoveTurned);
            }
            (true, false) => self.reach(Reached::MoveEnded),
            _ => {}
        }
        let left = before.mask() & !next.assigned.mask() != 0;
        if left && next.members() != next.assigned.mask() {
            w.history.ended_early = true;
        }
    }

    /// A write of the topic's nodes lands.
    pub(crate) fn write_topic(
        &self,
        w: &mut World,
        k: usize,
        write: TopicWrite,
    ) -> ControllerEvent {
        let fenced = usize::from(w.controller_epoch) != k + 1;
        match write {
            TopicWrite::Create { write, partitions, .. } => {
                if fenced {
                    return ControllerEvent::Written { write, outcome: WriteOutcome::Fenced };
                }
                w.lives += 1;
                let (replicas, state): &(_, PartitionState) = &partitions[&0];
                let assigned = Assigned::of(&Assignment::settled(replicas.clone()));
                w.node = Node::of(state, w.lives, assigned);
                w.topic_version = 0;
                let outcome = WriteOutcome::TopicCreated { czxid: i64::from(w.lives) };
                ControllerEvent::Written { write, outcome }
            }
            TopicWrite::Delete { write, .. } => {
                if fenced {
                    return ControllerEvent::Written { write, outcome: WriteOutcome::Fenced };
                }
                let term = w.terms[k].edit();
                term.gone = term.gone.max(w.node.life);
                w.node = Node::gone(0);
                (w.history.seen, w.history.visible) = Default::default();
                ControllerEvent::Written { write, outcome: WriteOutcome::Applied }
            }
            TopicWrite::Grow { write, .. } => {
                let reason = "no row adds partitions";
                ControllerEvent::Written { write, outcome: WriteOutcome::Refused { reason } }
            }
        }
    }

    /// A write of the settings lands: all that is ever changed is `flush.mode`.
    pub(crate) fn write_config(
        &self,
        w: &mut World,
        k: usize,
        write: &ConfigWrite,
    ) -> ControllerEvent {
        let outcome = match &write.overrides {
            _ if usize::from(w.controller_epoch) != k + 1 => WriteOutcome::Fenced,
            Some(overrides) => {
                w.sync = overrides.get("flush.mode").is_some_and(|mode| mode == "sync");
                w.terms[k].edit().sync = w.sync;
                if self.breaks(Mutation::ModeConfirmedEarly) {
                    w.history.promise_sync();
                }
                WriteOutcome::Applied
            }
            None => WriteOutcome::Config { now: self.overrides(w.sync) },
        };
        ControllerEvent::Written { write: write.write, outcome }
    }

    /// What the topic itself sets.
    pub(crate) fn overrides(&self, sync: bool) -> BTreeMap<String, String> {
        let set = sync.then(|| ("flush.mode".to_owned(), "sync".to_owned()));
        set.into_iter().collect()
    }
}

/// The topic's assignments: it has one partition.
pub(crate) fn assignments(assigned: Assigned) -> BTreeMap<i32, Assignment> {
    BTreeMap::from([(0, assigned.assignment())])
}
