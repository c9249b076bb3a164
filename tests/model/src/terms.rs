//! The controllers' shell and the store: terms that act on what they last read, writes that are checked, pushes that are offered.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterPartition, AlterPartitionAnswer, Controller, ControllerEvent, Defaults, Effects,
    LoadedPartition, LoadedTopic, ReplicaReport, RequestId, Snapshot, WriteOutcome,
};
use barnabas_replica::ProposalOutcome;
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, ControllerEpoch, LeaderEpoch, Now,
    PartitionEpoch, TopicConfig,
};

use crate::mutation::Mutation;
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::shared::Shared;
use crate::world::{
    BROKERS, Flight, Ix, LIFE, Node, Proposal, Push, Registration, Term, World, entries_of, id_of,
    partition,
};

impl Protocol {
    /// Steps a controller and performs its effects in their order. Returns the answers to proposals; `None` if a write would
    /// need a leader epoch beyond the row's bound.
    pub(crate) fn step_controller(
        &self,
        w: &mut World,
        k: usize,
        event: ControllerEvent,
        twist: Twist,
    ) -> Option<Vec<AlterPartitionAnswer>> {
        let mut events = vec![event];
        let mut answers = Vec::new();
        while let Some(event) = events.pop() {
            let mut effects = Effects::default();
            let term = w.terms[k].edit();
            term.controller.step(Now(0), event, &mut effects);
            term.over |= effects.resign;
            for write in effects.partition_writes {
                let flight = Flight {
                    term: k as u8,
                    write: write.write,
                    expected: write.expected.0 as u8,
                    node: Node::of(&write.state),
                };
                if self.row.late_writes {
                    w.flights.push(flight);
                } else {
                    events.push(self.land(w, &flight, twist)?);
                }
            }
            answers.extend(effects.alter_answers.into_iter().map(|(_, answer)| answer));
            if effects.image_changed {
                offer_all(w, k);
            }
        }
        Some(answers)
    }

    /// A write reaches the store (R1). Returns what its term hears; `None` beyond the bound.
    fn land(&self, w: &mut World, flight: &Flight, twist: Twist) -> Option<ControllerEvent> {
        let checked = !self.breaks(Mutation::NoWriteChecks);
        let write = flight.write;
        if checked && w.controller_epoch != flight.term + 1 {
            return Some(ControllerEvent::Written { write, outcome: WriteOutcome::Fenced });
        }
        if checked && w.node.partition_epoch != flight.expected {
            let outcome = WriteOutcome::Conflict { now: Some(w.node.state()) };
            return Some(ControllerEvent::Written { write, outcome });
        }
        let mut node = flight.node;
        node.partition_epoch = w.node.partition_epoch + 1;
        let node = self.twisted(w, twist, node);
        if node.leader_epoch >= self.row.epochs {
            return None;
        }
        if node.members().count_ones() > w.node.members().count_ones() {
            self.reach(Reached::IsrGrew);
        }
        w.node = node;
        let outcome = if node == flight.node {
            WriteOutcome::Applied
        } else {
            WriteOutcome::Conflict { now: Some(node.state()) }
        };
        Some(ControllerEvent::Written { write, outcome })
    }

    /// A late write lands.
    pub(crate) fn land_late(&self, w: &mut World, index: usize) -> Option<()> {
        let flight = w.flights.remove(index);
        let heard = self.land(w, &flight, Twist::None)?;
        self.step_controller(w, usize::from(flight.term), heard, Twist::None)?;
        Some(())
    }

    /// A term reads one broker's registration.
    pub(crate) fn observe(&self, w: &mut World, k: usize, b: Ix) -> Option<()> {
        let truth = w.registered[b];
        if w.terms[k].seen[b] == truth {
            return None;
        }
        w.terms[k].edit().seen[b] = truth;
        let told = truth.map(|r| self.misread_registration(w, k, b, r));
        let twist = truth.map_or(Twist::None, |r| self.observation_twist(b, r));
        let brokers = told_brokers(w, k, b, told);
        self.step_controller(w, k, ControllerEvent::Brokers(brokers), twist)?;
        Some(())
    }

    /// The elected term takes a live ISR member for gone.
    pub(crate) fn suspect(&self, w: &mut World, b: Ix) -> Option<()> {
        let k = w.present_term();
        w.terms[k].edit().seen[b]?;
        w.spent.suspicions += 1;
        w.terms[k].edit().seen[b] = None;
        let brokers = told_brokers(w, k, b, None);
        let twist = self.suspicion_twist(b);
        self.step_controller(w, k, ControllerEvent::Brokers(brokers), twist)?;
        Some(())
    }

    /// A proposal reaches a term; its leader may hear the answer.
    pub(crate) fn alter(
        &self,
        w: &mut World,
        k: usize,
        proposal: Proposal,
        heard: bool,
    ) -> Option<()> {
        let alter = AlterPartition {
            leader: id_of(usize::from(proposal.leader)),
            broker_epoch: BrokerEpoch(i64::from(proposal.broker_epoch)),
            partition: partition(),
            incarnation: LIFE,
            leader_epoch: LeaderEpoch(i32::from(proposal.leader_epoch)),
            partition_epoch: PartitionEpoch(i32::from(proposal.partition_epoch)),
            isr: entries_of(&self.claimed_epochs(w, k, proposal)),
        };
        let event = ControllerEvent::AlterPartition { request: RequestId(0), proposal: alter };
        let answers = self.step_controller(w, k, event, Twist::None)?;
        let b = usize::from(proposal.leader);
        let waits = heard && w.brokers[b].up() && w.brokers[b].waiting == Some(proposal);
        if waits && let Some(answer) = answers.into_iter().next() {
            match answer {
                Ok(state) => self.proposal_accepted(w, b, state),
                Err(condition) => {
                    w.brokers[b].edit().waiting = None;
                    self.proposal_failed(w, b, ProposalOutcome::Refused(condition));
                }
            }
        }
        Some(())
    }

    /// A leaderless replica's report reaches a term (R8).
    pub(crate) fn report(&self, w: &mut World, k: usize, b: Ix) -> Option<()> {
        let broker = &w.brokers[b];
        let said = broker.replica.as_ref()?.report()?;
        let report = ReplicaReport {
            incarnation: LIFE,
            leader_epoch: said.leader_epoch,
            last_epoch: said.last_epoch,
            log_end: said.log_end,
        };
        let event = ControllerEvent::PushAcked {
            broker: id_of(b),
            broker_epoch: BrokerEpoch(i64::from(broker.epoch)),
            version: 0,
            reports: vec![(partition(), report)],
        };
        let before = w.node;
        self.step_controller(w, k, event, Twist::None)?;
        if w.node != before {
            self.reach(Reached::Recovered);
            w.history.lossy |= self.row.unclean;
        }
        Some(())
    }

    /// A new controller is elected; the one before goes on.
    pub(crate) fn new_term(&self, w: &mut World) -> Option<()> {
        w.controller_epoch += 1;
        let k = w.terms.len();
        let config = self.topic_config();
        let defaults = Defaults { num_partitions: 1, default_replication_factor: 3, topic: config };
        let epoch = ControllerEpoch(i32::from(w.controller_epoch));
        let controller = Controller::new(BrokerId(1), epoch, defaults);
        let seen = w.registered;
        w.terms.push(Shared::new(Term { controller, seen, over: false }));
        let mut brokers = BTreeMap::new();
        for (b, registration) in seen.into_iter().enumerate() {
            if let Some(registration) = registration {
                let told = self.misread_registration(w, k, b, registration);
                brokers.insert(id_of(b), image_of(told));
            }
        }
        let loaded = LoadedPartition {
            assignment: Assignment::settled((0..BROKERS).map(id_of).collect()),
            state: Some(self.loaded_node(w).state()),
        };
        let topic = LoadedTopic {
            incarnation: LIFE,
            version: 0,
            overrides: BTreeMap::new(),
            partitions: BTreeMap::from([(0, loaded)]),
            deleting: false,
        };
        let topics = BTreeMap::from([(partition().topic, topic)]);
        let event = ControllerEvent::Loaded(Snapshot { brokers, topics, ..Snapshot::default() });
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    fn topic_config(&self) -> TopicConfig {
        TopicConfig {
            min_insync_replicas: u32::from(self.row.min_insync),
            unclean_leader_election: self.row.unclean || self.elects_uncleanly(),
            flush_mode: self.row.flush_mode,
            ..TopicConfig::default()
        }
    }
}

/// Keeps whatever the term may push now.
fn offer_all(w: &mut World, k: usize) {
    for b in 0..BROKERS {
        let controller = &w.terms[k].controller;
        let Some(registered) = controller.image().brokers.get(&id_of(b)) else { continue };
        let epoch = registered.epoch;
        let Some((_, delta)) = controller.push_for(id_of(b), epoch, None) else { continue };
        let states = delta.topics.values().filter_map(|topic| topic.partitions.get(&0));
        for node in states.map(|p| Node::of(&p.state)).collect::<Vec<_>>() {
            let controller_epoch = k as u8 + 1;
            w.offer(Push { to: b as u8, target: epoch.0 as u8, controller_epoch, node });
        }
    }
}

/// The registrations as the term knows them, with one broker's replaced.
fn told_brokers(
    w: &World,
    k: usize,
    b: Ix,
    told: Option<Registration>,
) -> BTreeMap<BrokerId, BrokerImage> {
    let mut brokers = w.terms[k].controller.image().brokers.clone();
    match told {
        Some(registration) => brokers.insert(id_of(b), image_of(registration)),
        None => brokers.remove(&id_of(b)),
    };
    brokers
}

fn image_of(registration: Registration) -> BrokerImage {
    BrokerImage {
        epoch: BrokerEpoch(i64::from(registration.epoch)),
        host: String::new(),
        port: 0,
        control_address: String::new(),
        rack: None,
        tail_lost: registration.tail_lost,
        draining: false,
    }
}
