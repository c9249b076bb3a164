//! The controllers' shell: terms that act on what they last read, and pushes that are offered.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterPartition, AlterPartitionAnswer, Controller, ControllerEvent, Defaults, DrainProgress,
    Effects, LoadedPartition, LoadedTopic, ReplicaReport, RequestId, Snapshot,
};
use barnabas_replica::ProposalOutcome;
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, Condition, ControllerEpoch, FlushMode,
    LeaderEpoch, Now, PartitionEpoch, TopicConfig,
};

use crate::node::{Assigned, Node, Proposal, Push, Registration, entries_of, incarnation};
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::shared::Shared;
use crate::world::{BROKERS, Ix, PlantedTerm, Term, World, id_of, partition};

/// What a term answered.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) alters: Vec<AlterPartitionAnswer>,
    pub(crate) drains: Vec<Result<DrainProgress, Condition>>,
}

impl Protocol {
    /// Steps a controller and performs its effects in their order. `None` if a write would need a leader epoch beyond the
    /// row's bound.
    pub(crate) fn step_controller(
        &self,
        w: &mut World,
        k: usize,
        event: ControllerEvent,
        twist: Twist,
    ) -> Option<Answers> {
        let mut events = vec![event];
        let mut answers = Answers::default();
        while let Some(event) = events.pop() {
            let mut effects = Effects::default();
            let term = w.terms[k].edit();
            term.controller.step(Now(0), event, &mut effects);
            term.over |= effects.resign;
            let states = effects.partition_writes.iter().map(|p| self.state_flight(w, k, p));
            let moves = effects.assignment_writes.iter().map(|a| self.assignment_flight(w, k, a));
            for flight in states.chain(moves).collect::<Vec<_>>() {
                if self.row.late_writes {
                    w.flights.push(flight);
                } else {
                    events.push(self.land(w, &flight, twist)?);
                }
            }
            for write in effects.topic_writes {
                events.push(self.write_topic(w, k, write));
            }
            for write in effects.config_writes {
                events.push(self.write_config(w, k, &write));
            }
            answers.alters.extend(effects.alter_answers.into_iter().map(|(_, answer)| answer));
            answers.drains.extend(effects.drain_answers.into_iter().map(|(_, answer)| answer));
            let confirmed = |(_, answer): &(RequestId, Result<_, Condition>)| {
                let answer: &Result<barnabas_controller_core::AlteredConfig, _> = answer;
                answer.as_ref().is_ok_and(|altered| altered.unconfirmed.is_empty())
            };
            if effects.config_answers.iter().any(confirmed) {
                w.history.promise_sync();
            }
            if effects.image_changed {
                self.offer_all(w, k);
            }
        }
        Some(answers)
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
        let twist = truth.map_or(Twist::None, |r| self.observation_twist(b, r));
        self.tell(w, k, b, truth, twist)
    }

    /// A term is told of one broker's registration.
    pub(crate) fn tell(
        &self,
        w: &mut World,
        k: usize,
        b: Ix,
        truth: Option<Registration>,
        twist: Twist,
    ) -> Option<()> {
        let term = w.terms[k].edit();
        term.seen[b] = truth;
        if self.breaks(crate::Mutation::DrainKeptById) && truth.is_some_and(|r| r.draining) {
            term.planted.drained |= 1 << b;
        }
        let told = truth.map(|r| self.misread_registration(w, k, b, r));
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
        if let Some(done) = self.misjudge(w, k, proposal) {
            return done;
        }
        let alter = AlterPartition {
            leader: id_of(usize::from(proposal.leader)),
            broker_epoch: BrokerEpoch(i64::from(proposal.broker_epoch)),
            partition: partition(),
            incarnation: incarnation(self.claimed_life(w, k, proposal)),
            leader_epoch: LeaderEpoch(i32::from(proposal.leader_epoch)),
            partition_epoch: PartitionEpoch(i32::from(proposal.partition_epoch)),
            isr: entries_of(&self.claimed_epochs(w, k, proposal)),
        };
        let event = ControllerEvent::AlterPartition { request: RequestId(0), proposal: alter };
        let answers = self.step_controller(w, k, event, Twist::None)?;
        let b = usize::from(proposal.leader);
        let waits = heard && w.brokers[b].up() && w.brokers[b].waiting == Some(proposal);
        if waits && let Some(answer) = answers.alters.into_iter().next() {
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
        let before = w.node;
        let report = self.reported(w, b)?;
        if self.misrecover(w, k, b, report) {
            return Some(());
        }
        let event = ControllerEvent::PushAcked {
            broker: id_of(b),
            broker_epoch: BrokerEpoch(i64::from(w.brokers[b].epoch)),
            version: 0,
            reports: vec![(partition(), report)],
        };
        self.step_controller(w, k, event, Twist::None)?;
        if w.node != before {
            self.reach(Reached::Recovered);
            w.history.lossy |= self.row.unclean;
        }
        Some(())
    }

    fn reported(&self, w: &mut World, b: Ix) -> Option<ReplicaReport> {
        let broker = &w.brokers[b];
        let said = broker.replica.as_ref().and_then(|r| r.report());
        let Some(said) = said.filter(|_| broker.up()) else { return self.misreport(w, b) };
        let (last, end) = (said.last_epoch.map_or(0, |e| e.0 as u8 + 1), said.log_end.0 as u8);
        let life = broker.life();
        if self.breaks(crate::Mutation::ReportOfAnyEpoch) {
            w.brokers[b].edit().planted.reported = Some((last, end));
        }
        Some(ReplicaReport {
            incarnation: incarnation(life),
            leader_epoch: said.leader_epoch,
            last_epoch: said.last_epoch,
            log_end: said.log_end,
        })
    }

    /// A new controller is elected; the one before goes on.
    pub(crate) fn new_term(&self, w: &mut World) -> Option<()> {
        w.controller_epoch += 1;
        let k = w.terms.len();
        let seen = w.registered;
        let gone = if w.exists() { w.node.life - 1 } else { w.lives };
        let (controller, planted) = (self.controller(k), PlantedTerm::default());
        let term = Term { controller, seen, over: false, gone, sync: w.sync, planted };
        w.terms.push(Shared::new(term));
        self.load(w, k)
    }

    fn controller(&self, k: usize) -> Controller {
        let topic = self.topic_config();
        let defaults = Defaults { num_partitions: 1, default_replication_factor: 3, topic };
        Controller::new(BrokerId(1), ControllerEpoch(k as i32 + 1), defaults)
    }

    /// A term begins anew with what is stored, and the registrations that it knew.
    pub(crate) fn reload(&self, w: &mut World, k: usize) -> Option<()> {
        w.terms[k].edit().controller = self.controller(k);
        self.load(w, k)
    }

    fn load(&self, w: &mut World, k: usize) -> Option<()> {
        let mut brokers = BTreeMap::new();
        for (b, registration) in w.terms[k].seen.into_iter().enumerate() {
            if let Some(registration) = registration {
                let told = self.misread_registration(w, k, b, registration);
                brokers.insert(id_of(b), image_of(told));
            }
        }
        let loaded = LoadedPartition {
            assignment: w.node.assigned.assignment(),
            state: Some(self.loaded_node(w).state()),
        };
        let topic = LoadedTopic {
            incarnation: incarnation(w.node.life),
            version: i32::from(w.topic_version),
            overrides: self.overrides(w.sync),
            partitions: BTreeMap::from([(0, loaded)]),
            deleting: false,
        };
        let topics = w.exists().then_some((partition().topic, topic)).into_iter().collect();
        let event = ControllerEvent::Loaded(Snapshot { brokers, topics, ..Snapshot::default() });
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    fn topic_config(&self) -> TopicConfig {
        TopicConfig {
            min_insync_replicas: self.min_insync_of_controller(),
            unclean_leader_election: self.row.unclean || self.elects_uncleanly(),
            flush_mode: self.row.flush_mode,
            ..TopicConfig::default()
        }
    }

    /// Keeps whatever the term may push now.
    fn offer_all(&self, w: &mut World, k: usize) {
        for b in 0..BROKERS {
            let controller = &w.terms[k].controller;
            let Some(registered) = controller.image().brokers.get(&id_of(b)) else { continue };
            let target = registered.epoch.0 as u8;
            let Some((version, delta)) = controller.push_for(id_of(b), registered.epoch, None)
            else {
                continue;
            };
            let topic = delta.topics.get(&partition().topic);
            let sync = topic.is_some_and(|t| t.config.flush_mode == FlushMode::Sync);
            let node = match topic.and_then(|t| Some((t.incarnation, t.partitions.get(&0)?))) {
                Some((life, p)) => {
                    let (replicas, moving) = (p.assigned_replicas.clone(), p.moving.clone());
                    let assigned = Assigned::of(&Assignment { replicas, moving });
                    Node::of(&p.state, life.czxid as u8, assigned)
                }
                None => Node::gone(w.terms[k].gone),
            };
            let version = if w.counts_acknowledgements() { version as u8 } else { 0 };
            let controller_epoch = k as u8 + 1;
            w.offer(Push { to: b as u8, target, controller_epoch, node, sync, version });
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
        draining: registration.draining,
    }
}
